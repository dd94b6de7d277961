"""Pulling for a push consumer: one loop for each queue.

Owns :class:`Pulling`, which also pauses pulls when too many messages are unfinished.

=========================================== ====================================================
result of a pull                            what follows
=========================================== ====================================================
messages                                    they are consumed; the next pull
nothing new, or no match                    the next pull; the offset is recorded if nothing is
                                            unfinished
the queue does not have this offset         the offset from the broker is stored, and the queue
                                            is started again
no response, or a refusal                   the same pull, after 3 seconds
=========================================== ====================================================
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Protocol

from roquet.client.consume_stats import ConsumeStats
from roquet.client.instance import ClientInstance
from roquet.client.lifetime import end_tasks
from roquet.client.message import ReceivedMessage
from roquet.client.offset_store import OffsetStore, ReadOffset
from roquet.client.process_queue import ProcessQueue
from roquet.client.pull_api import PullApi, PullStatus
from roquet.client.push_options import PushOptions
from roquet.client.rebalance import Rebalancer
from roquet.errors import BrokerRefused, RoquetError
from roquet.model import properties as prop
from roquet.model.message_queue import MessageQueue
from roquet.model.subscription import SubscriptionData
from roquet.model.topic import is_retry_topic, retry_topic
from roquet.remoting.codes import ResponseCode
from roquet.remoting.endpoint import LogLimiter
from roquet.remoting.headers.pull import PullFlag

__all__ = ["Consumption", "Pulling"]

log = logging.getLogger(__name__)

SUSPEND_MS = 15_000
PULL_TIMEOUT_MS = 30_000
ERROR_MS = 3_000
BROKER_FLOW_CONTROL_MS = 20
MOVED_MS = 200
PAUSED_MS = 1_000
FULL_MS = 1_000
_MIB = 1024 * 1024


class Consumption(Protocol):
    """Has messages consumed."""

    def start(self) -> None:
        """Start consuming."""
        ...

    def take_in(
        self, messages: list[ReceivedMessage], process_queue: ProcessQueue, queue: MessageQueue
    ) -> None:
        """Put pulled messages into their process queue, and have them consumed."""
        ...

    def begin_stop(self) -> None:
        """Start no more calls."""
        ...

    async def stop(self, *, timeout_ms: int) -> None:
        """Start no more calls, wait for the running ones until the timeout, then cancel them."""
        ...


class Pulling:
    """Pulls all queues of a consumer.

    Args:
        client: The client.
        group: The consumer's group on the wire.
        options: The consumer's settings.
        subscriptions: The subscriptions by topic on the wire.
        api: Sends the pulls.
        offsets: The consumer's offsets.
        stats: The statistics.
        consumption: Has messages consumed.
        rebalancer: Has the queues.

    Attributes:
        is_paused: Whether pulling is paused.
    """

    def __init__(
        self,
        client: ClientInstance,
        group: str,
        options: PushOptions,
        *,
        subscriptions: Mapping[str, SubscriptionData],
        api: PullApi,
        offsets: OffsetStore,
        stats: ConsumeStats,
        consumption: Consumption,
        rebalancer: Rebalancer,
    ) -> None:
        self._client = client
        self._group = group
        self._retry_topic = retry_topic(group)
        self._options = options
        self._subscriptions = subscriptions
        self._api = api
        self._offsets = offsets
        self._stats = stats
        self._consumption = consumption
        self._rebalancer = rebalancer
        self.is_paused = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._messages_max: dict[str, int] = {}
        self._mib_max: dict[str, int] = {}
        self._log_limiter = LogLimiter(client.clock)

    def start_queue(
        self, queue: MessageQueue, process_queue: ProcessQueue, queue_offset: int
    ) -> None:
        """Pull a queue from an offset on, until it is dropped."""
        task = asyncio.get_running_loop().create_task(self._run(queue, process_queue, queue_offset))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Stop pulling."""
        await end_tasks(list(self._tasks))

    def share_limits(self, topic: str, queues: Iterable[MessageQueue]) -> None:
        """Divide the limits of a topic among its queues."""
        count = max(len(list(queues)), 1)
        options = self._options
        if options.cached_messages_max_of_topic is not None:
            self._messages_max[topic] = max(1, options.cached_messages_max_of_topic // count)
        if options.cached_mib_max_of_topic is not None:
            self._mib_max[topic] = max(1, options.cached_mib_max_of_topic // count)

    def restore_topic(self, message: ReceivedMessage) -> None:
        """Set the topic of a message to the name that the user knows."""
        if message.topic == self._retry_topic:
            message.topic = message.properties.get(prop.RETRY_TOPIC) or message.topic
        if self._client.options.namespace:
            message.topic = self._client.unwrap(message.topic)

    # ------------------------------------------------------------------------------ the loop

    async def _run(
        self, queue: MessageQueue, process_queue: ProcessQueue, queue_offset: int
    ) -> None:
        at: int | None = queue_offset
        while at is not None and not process_queue.is_dropped:
            process_queue.note_pull()
            if self.is_paused:
                await asyncio.sleep(PAUSED_MS / 1000)
                continue
            if self._is_full(queue, process_queue):
                await self._wait_room(queue, process_queue)
                continue
            subscription = self._subscriptions.get(queue.topic)
            if subscription is None or (self._options.is_locking and not process_queue.is_locked):
                await asyncio.sleep(ERROR_MS / 1000)
                continue
            try:
                at = await self._pull(queue, process_queue, at, subscription)
            except RoquetError as error:
                if _is_moved(error):
                    await self._client.routes.refresh([queue.topic])
                await asyncio.sleep(self._delay_ms(queue, error) / 1000)
            except Exception:
                log.exception("%s: a pull of %s failed", self._group, queue)
                await asyncio.sleep(ERROR_MS / 1000)

    async def _pull(
        self,
        queue: MessageQueue,
        process_queue: ProcessQueue,
        queue_offset: int,
        subscription: SubscriptionData,
    ) -> int | None:
        """Pull once; returns the next offset, or ``None`` if the queue is given up."""
        options = self._options
        sys_flag = int(PullFlag.SUSPEND)
        if options.subscription_in_pull:
            sys_flag |= PullFlag.SUBSCRIPTION
        commit_offset = None
        if not options.is_broadcasting:
            commit_offset = await self._offsets.read(queue, ReadOffset.MEMORY)
            if commit_offset:
                sys_flag |= PullFlag.COMMIT_OFFSET
        started_ns = self._client.clock.monotonic_ns()
        result = await self._api.pull(
            queue,
            queue_offset,
            subscription=subscription,
            max_messages=options.pull_batch_max,
            max_bytes=options.pull_batch_bytes_max,
            sys_flag=sys_flag,
            suspend_ms=SUSPEND_MS,
            commit_offset=commit_offset or 0,
            timeout_ms=PULL_TIMEOUT_MS,
        )
        if process_queue.is_dropped:
            return None
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "%s: %s has no offset %d; continuing at %d",
                self._group,
                queue,
                queue_offset,
                result.next_offset,
            )
            process_queue.is_dropped = True
            self._offsets.update_and_freeze(queue, result.next_offset)
            await self._rebalancer.drop(queue, process_queue)
            return None
        messages = result.messages
        if messages:
            self._stats.pulled(queue.topic, len(messages), started_ns=started_ns)
            if queue.topic == self._retry_topic or self._client.options.namespace:
                for message in messages:
                    self.restore_topic(message)
            self._consumption.take_in(messages, process_queue, queue)
            if options.pull_interval_ms:
                await asyncio.sleep(options.pull_interval_ms / 1000)
        elif process_queue.cached_messages == 0:
            self._offsets.update(queue, result.next_offset, increase_only=True)
        return result.next_offset

    def _delay_ms(self, queue: MessageQueue, error: RoquetError) -> int:
        if isinstance(error, BrokerRefused) and error.response_code == ResponseCode.FLOW_CONTROL:
            return BROKER_FLOW_CONTROL_MS
        if _is_moved(error):
            return MOVED_MS
        more = None if is_retry_topic(queue.topic) else self._log_limiter.allow("pull")
        if more is not None:
            log.warning(
                "%s: a pull of %s failed: %s (%s)%s",
                self._group,
                queue,
                error.message,
                error.detail,
                more,
            )
        return ERROR_MS

    # -------------------------------------------------------------------------- flow control

    def _is_full(self, queue: MessageQueue, process_queue: ProcessQueue) -> bool:
        options = self._options
        messages_max = self._messages_max.get(queue.topic, options.cached_messages_max)
        if process_queue.cached_messages > messages_max:
            return True
        mib_max = self._mib_max.get(queue.topic, options.cached_mib_max)
        if process_queue.cached_bytes > mib_max * _MIB:
            return True
        return not options.orderly and process_queue.span > options.span_max

    async def _wait_room(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        has_room = asyncio.Event()

        def look() -> None:
            if not self._is_full(queue, process_queue):
                has_room.set()

        process_queue.on_less = look
        try:
            async with asyncio.timeout(FULL_MS / 1000):
                await has_room.wait()
        except TimeoutError:
            pass
        finally:
            process_queue.on_less = None


def _is_moved(error: RoquetError) -> bool:
    """Return whether a queue of a static topic has moved to another leader."""
    return (
        isinstance(error, BrokerRefused)
        and error.response_code == ResponseCode.NOT_LEADER_FOR_QUEUE
    )
