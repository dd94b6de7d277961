"""A producer and a consumer of a broker that is killed under them, with the responses they got.

Everything that the broker acknowledged is recorded, and everything that it sent. A request without
a response because the broker died may or may not have been carried out; it is recorded as tried.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import Enum

from roquet.broker.stored_copy import records_in
from roquet.errors import ClientError
from roquet.format.commit_log import decode_record
from roquet.model.message import StoredMessage
from roquet.model.message_id import OffsetMessageId
from roquet.model.topic import dlq_topic, retry_topic
from roquet.remoting.bodies.client import HeartbeatData, ProducerData
from roquet.remoting.bodies.codec import encode_body
from roquet.remoting.client import ClientConfig, RemotingClient
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.headers.base import Header, decode_header
from roquet.remoting.headers.pull import PullMessageRequestHeader
from roquet.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    ConsumerSendMsgBackRequestHeader,
    EndTransactionRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from roquet.remoting.processor import PUBLIC, ProcessorRegistry, RequestContext, processor
from roquet.runtime.clock import SystemClock

DELAYED, ENDED, TRIED = "Delayed", "Ended", "Tried"
QUEUES = 2
PRODUCERS, CONSUMERS = "Producers", "Consumers"
RETRIES_MAX = 2
RETRY_LEVEL = 1
PULL_SUBSCRIPTION = 4
REQUEST_TIMEOUT_MS = 60_000

Queue = tuple[str, int]


class Verdict(Enum):
    """How a transaction ends."""

    COMMIT = 8
    ROLLBACK = 12


class Load:
    """Both clients.

    Args:
        address: Where the broker listens, whenever it lives.

    Attributes:
        delayed: Delay level of every acknowledged delayed message, by key.
        halves: Verdict of every acknowledged half message.
        verdicts: Verdict of every half message that was sent.
        ended: Half messages whose producer ended them by itself, and got a response.
        tried: Keys of acknowledged messages that no consumer can take.
        asked: How often the broker checked a transaction.
        commits: How often a commit was sent.
        sent_back_ms: When a message was last sent back, by key and number of retries.
        unsure: Keys with a request that got no response.
        faults: What the broker must never do.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.delayed: dict[str, int] = {}
        self.halves: dict[str, Verdict] = {}
        self.ended: set[str] = set()
        self.tried: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.commits: Counter[str] = Counter()
        self.sent_back_ms: dict[tuple[str, int], int] = {}
        self.unsure: set[str] = set()
        self.faults: list[str] = []
        self._clock = SystemClock()
        self.verdicts: dict[str, Verdict] = {}
        self._silent: dict[str, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._client = RemotingClient(
            ProcessorRegistry(self),
            ClientConfig(request_timeout_ms=REQUEST_TIMEOUT_MS),
        )

    async def close(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def ask(
        self, code: int, header: Header | None, body: bytes = b""
    ) -> RemotingCommand | None:
        """The response; ``None`` if the broker died first."""
        try:
            answer = await self._client.invoke(self.address, code, header, body=body)
        except ClientError:
            return None
        # A broker that shuts down refuses requests that still arrive.
        return None if answer.code == ResponseCode.GO_AWAY else answer

    async def introduce(self) -> None:
        """Tell the broker which group the producer is of; it must live."""
        data = HeartbeatData(
            client_id="producer", producer_data_set=[ProducerData(group_name=PRODUCERS)]
        )
        # The loss of the connection to the previous broker process may not have been noticed yet.
        body = encode_body(data)
        while (answer := await self.ask(RequestCode.HEART_BEAT, None, body)) is None:  # noqa: ASYNC110 - another process has no event
            await asyncio.sleep(0.05)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    # ------------------------------------------------------------------------------ sending

    async def send(
        self, place: Queue, key: str, properties: str = ""
    ) -> SendMessageResponseHeader | None:
        """Send a message whose body is its key; ``None`` if its outcome is unknown."""
        topic, queue_id = place
        header = SendMessageRequestHeaderV2(
            producer_group=PRODUCERS,
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp_ms=self._clock.now_ms(),
            flag=0,
            properties=f"UNIQ_KEY\x01{key}\x02{properties}",
            reconsume_times=0,
        )
        answer = await self.ask(RequestCode.SEND_MESSAGE_V2, header, key.encode())
        if answer is None:
            return None
        if answer.code != ResponseCode.SUCCESS:
            self.faults.append(f"{key} was refused: {answer.code} {answer.remark}")
            return None
        return decode_header(SendMessageResponseHeader, answer.ext_fields)

    async def send_delayed(self, key: str, queue_id: int, level: int) -> None:
        """Send a message of a delay level."""
        if await self.send((DELAYED, queue_id), key, f"DELAY\x01{level}\x02") is not None:
            self.delayed[key] = level

    async def send_half(
        self, key: str, queue_id: int, verdict: Verdict, *, ends: bool, silent: int
    ) -> None:
        """Send a half message, and perhaps end it.

        Args:
            key: Its key.
            queue_id: Its queue.
            verdict: How its transaction ends.
            ends: Whether the producer ends it by itself; if not, it has to be checked.
            silent: How often it returns unknown when it is checked.
        """
        self.verdicts[key] = verdict
        self._silent[key] = silent
        properties = f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02"
        stored = await self.send((ENDED, queue_id), key, properties)
        if stored is None:
            return
        self.halves[key] = verdict
        if ends:
            physical_offset = OffsetMessageId.parse(stored.msg_id).physical_offset
            await self._end(key, stored.queue_offset, physical_offset, is_asked=False)

    async def send_tried(self, key: str, queue_id: int) -> None:
        """Send a message that will be sent back until it is a dead letter."""
        if await self.send((TRIED, queue_id), key) is not None:
            self.tried.add(key)

    async def _end(
        self, key: str, half_queue_offset: int, physical_offset: int, *, is_asked: bool
    ) -> None:
        verdict = self.verdicts[key]
        header = EndTransactionRequestHeader(
            topic=ENDED,
            producer_group=PRODUCERS,
            half_queue_offset=half_queue_offset,
            physical_offset=physical_offset,
            commit_or_rollback=verdict.value,
            from_transaction_check=is_asked,
            msg_id=key,
            transaction_id=key,
        )
        self.commits[key] += verdict is Verdict.COMMIT
        answer = await self.ask(RequestCode.END_TRANSACTION, header)
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            self.faults.append(f"the end of {key} was refused: {answer.code} {answer.remark}")
        elif answer is not None and not is_asked:
            self.ended.add(key)

    @processor(
        RequestCode.CHECK_TRANSACTION_STATE,
        header=CheckTransactionStateRequestHeader,
        permission=PUBLIC,
    )
    def check(self, context: RequestContext, header: CheckTransactionStateRequestHeader) -> None:
        """Respond to a transaction check, as Apache's clients do: by ending it."""
        body = bytes(context.request.body)
        message = decode_record(body, 0, len(body))
        key = message.unique_key or ""
        if (message.topic, message.body, header.transaction_id) != (ENDED, key.encode(), key):
            self.faults.append(f"asked about something that was not sent: {header}")
            return
        self.asked[key] += 1
        if self.asked[key] <= self._silent[key]:
            return
        end = self._end(key, header.half_queue_offset, header.physical_offset, is_asked=True)
        task = asyncio.get_running_loop().create_task(end)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------------------------ reading

    async def pull(self, place: Queue, queue_offset: int) -> list[StoredMessage] | None:
        """Messages of a queue; ``None`` when the broker is dead."""
        topic, queue_id = place
        header = PullMessageRequestHeader(
            consumer_group=CONSUMERS,
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            max_msg_nums=32,
            sys_flag=PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_ms=0,
            subscription="*",
            sub_version=0,
        )
        answer = await self.ask(RequestCode.PULL_MESSAGE, header)
        if answer is None:
            return None
        if answer.code == ResponseCode.SUCCESS:
            return list(records_in(answer.body))
        if answer.code in {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.PULL_NOT_FOUND}:
            return []
        self.faults.append(f"{place} at {queue_offset}: {answer.code} {answer.remark}")
        return []

    async def read_all(self, place: Queue) -> list[StoredMessage]:
        """All messages of a queue; the broker must live."""
        found: list[StoredMessage] = []
        while True:
            more = await self.pull(place, len(found))
            assert more is not None, "the broker does not respond"
            if not more:
                return found
            found += more

    async def read_topic(self, topic: str) -> dict[str, list[StoredMessage]]:
        """All messages of a topic by key."""
        by_key: dict[str, list[StoredMessage]] = defaultdict(list)
        for queue_id in range(QUEUES):
            for message in await self.read_all((topic, queue_id)):
                by_key[message.unique_key or ""].append(message)
        return by_key

    async def give_back(self, message: StoredMessage) -> bool:
        """Send a message back; return whether the broker took it."""
        key = message.unique_key or ""
        header = ConsumerSendMsgBackRequestHeader(
            physical_offset=message.physical_offset,
            group=CONSUMERS,
            delay_level=RETRY_LEVEL,
            origin_msg_id=message.offset_message_id,
            origin_topic=message.topic,
            max_reconsume_times=RETRIES_MAX,
        )
        now_ms = self._clock.now_ms()
        answer = await self.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)
        if answer is None:
            self.unsure.add(key)
            return False
        if answer.code != ResponseCode.SUCCESS:
            self.faults.append(f"{key} is not taken back: {answer.code} {answer.remark}")
            return False
        self.sent_back_ms.setdefault((key, message.reconsume_times), now_ms)
        return True

    async def consume(self) -> None:
        """Send back every message, forever, and retry those that the broker did not take."""
        places = [(TRIED, queue_id) for queue_id in range(QUEUES)]
        places.append((retry_topic(CONSUMERS), 0))
        offsets = dict.fromkeys(places, 0)
        while True:
            for place in places:
                for message in await self.pull(place, offsets[place]) or ():
                    if not await self.give_back(message):
                        break
                    offsets[place] = message.queue_offset + 1
            await asyncio.sleep(0.02)

    async def read_dead(self) -> Counter[str]:
        """How often each message is among the dead letters."""
        found = await self.read_all((dlq_topic(CONSUMERS), 0))
        return Counter(message.unique_key or "" for message in found)


@asynccontextmanager
async def load(address: str) -> AsyncIterator[Load]:
    """The clients of a broker."""
    made = Load(address)
    try:
        yield made
    finally:
        await made.close()
