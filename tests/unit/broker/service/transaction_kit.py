"""A broker whose transactions are ended and checked, without sockets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec

from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.processor.end_transaction import EndTransactionProcessor
from roquet.broker.service.transaction_check import TRANSACTION_GROUP, TransactionCheckService
from roquet.broker.service.transaction_op import TransactionOps
from roquet.errors import SendFailed
from roquet.format.commit_log import decode_record
from roquet.model.message import StoredMessage
from roquet.model.topic import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from roquet.remoting.codes import LanguageCode, RequestCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.connection import Connection
from roquet.remoting.headers.base import Header
from roquet.remoting.headers.send import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from roquet.store.config import MessageStoreConfig
from tests.unit.broker.processor.send_kit import SMALL, SendBroker, broker
from tests.unit.broker.service.manual_timers import ManualTimers

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
ROUND_MS = 30_000


class ProducerConnection:
    """A producer, with the checks it got."""

    def __init__(self) -> None:
        self.is_closed = False
        self.is_stuck = False
        self.asked: list[tuple[CheckTransactionStateRequestHeader, StoredMessage]] = []

    def send_oneway(self, code: int, header: Header | None = None, *, body: bytes = b"") -> None:
        if self.is_stuck:
            raise SendFailed("the producer does not read")
        assert code == RequestCode.CHECK_TRANSACTION_STATE
        assert isinstance(header, CheckTransactionStateRequestHeader)
        self.asked.append((header, decode_record(body, 0, len(body))))


class Transactions:
    """All that transactions need."""

    def __init__(self, made: SendBroker) -> None:
        self.made = made
        self.clock = made.clock
        self.timers = ManualTimers(made.clock)
        parts = msgspec.structs.replace(made.parts, timers=self.timers)
        self.offsets = parts.offsets
        self.offsets.load()
        self.metrics = parts.transaction_metrics
        self.metrics.load()
        self.producers = parts.producers
        self.ops = TransactionOps(parts)
        self.processor = EndTransactionProcessor(parts, self.ops)
        made.registry.add(self.processor)
        self.service = TransactionCheckService(parts, self.ops)
        self.service.start()

    def producer(self, group: str = "P") -> ProducerConnection:
        connection = ProducerConnection()
        channel = ClientChannel(
            connection=cast("Connection", connection),
            client_id=str(id(connection)),
            language=LanguageCode.JAVA,
            version=493,
            last_update_ns=0,
        )
        self.producers.register(group, channel)
        return connection

    def half(self, key: str = "K", properties: str = "", body: bytes = b"tx") -> StoredMessage:
        """Send a half message, born now."""
        at = self.made.count(TRANS_HALF_TOPIC)
        text = f"TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01{key}\x02TAGS\x01A\x02{properties}"
        born = self.clock.now_ms()
        answer = self.made.send(text, body=body, queue_id=1, born_timestamp_ms=born)
        assert answer.code == 0
        return self.made.stored(TRANS_HALF_TOPIC, 0, at)

    def request(
        self, half: StoredMessage, verdict: int, *, oneway: bool = False, **fields: object
    ) -> RemotingCommand:
        values: dict[str, object] = {
            "topic": "T",
            "producer_group": "P",
            "half_queue_offset": half.queue_offset,
            "physical_offset": half.physical_offset,
            "commit_or_rollback": verdict,
            "msg_id": half.unique_key or "",
            **fields,
        }
        header = EndTransactionRequestHeader(**values)  # type: ignore[arg-type]
        request = create_request(RequestCode.END_TRANSACTION, header, opaque=11)
        request.flag = 2 if oneway else 0
        return request

    def end(
        self, half: StoredMessage, verdict: int, **fields: object
    ) -> tuple[int, str | None] | None:
        answer = self.made.handle(self.request(half, verdict, oneway=False, **fields))
        return None if answer is None else (answer.code, answer.remark)

    def halves(self) -> int:
        return self.made.count(TRANS_HALF_TOPIC)

    def op_bodies(self) -> list[bytes]:
        count = self.made.count(TRANS_OP_HALF_TOPIC)
        return [self.made.stored(TRANS_OP_HALF_TOPIC, 0, at).body for at in range(count)]

    def kept_offsets(self) -> tuple[int, int]:
        half, op = (
            self.offsets.query(TRANSACTION_GROUP, topic, 0)
            for topic in (TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC)
        )
        return half, op


@contextmanager
def transactions(
    root: Path,
    *,
    store_config: MessageStoreConfig = SMALL,
    **settings: int,
) -> Iterator[Transactions]:
    with broker(root, store_config=store_config, with_topic=True, seed=7, **settings) as made:
        yield Transactions(made)
