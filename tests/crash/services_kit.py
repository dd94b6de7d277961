"""A broker's delays and transactions on a store, driven by a manual clock."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from roquet.broker.config import BrokerConfig
from roquet.broker.config import replace as replace_config
from roquet.broker.manager.client_channel import ClientChannel
from roquet.broker.message_services import MessageServices
from roquet.model.message import BrokerMessage, StoredMessage
from roquet.remoting.codes import LanguageCode, RequestCode
from roquet.remoting.command import create_request
from roquet.remoting.connection import Connection
from roquet.remoting.headers.send import EndTransactionRequestHeader
from roquet.remoting.processor import PUBLIC, RequestContext
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.default_message_store import DefaultMessageStore
from tests.crash.harness import ASYNC, SYNC, small_config
from tests.unit.broker.components_kit import components_of
from tests.unit.broker.processor.send_kit import FakeConnection
from tests.unit.broker.service.manual_timers import ManualTimers
from tests.unit.broker.service.transaction_kit import ProducerConnection

CONFIGS = {
    "async": small_config(ASYNC),
    "sync": small_config(SYNC),
    "async-crc-ext": small_config(ASYNC, crc=True, ext=True),
}
SETTINGS = {
    "transaction_timeout_ms": 2_000,
    "transaction_check_interval_ms": 5_000,
    "transaction_op_batch_interval_ms": 1_000,
    "transaction_check_max": 1_000,
}


class Life:
    """One life of a broker's services on a store."""

    def __init__(self, root: Path, name: str, files: Files, now_ms: int) -> None:
        self.clock = clock = ManualClock(now_ms)
        config = replace_config(BrokerConfig(store_root=str(root)), **SETTINGS)
        self.store = DefaultMessageStore(root, CONFIGS[name], files=files, clock=clock)
        self.timers = ManualTimers(clock)
        parts = components_of(config, self.store, clock, files=files, timers=self.timers)
        self.offsets = parts.offsets
        self.delays = parts.delay_offsets
        self.metrics = parts.transaction_metrics
        self.tables = (self.offsets, self.delays, self.metrics)
        for table in self.tables:
            table.load()
        self.store.load()
        self.store.start(threads=False)
        self.producer = ProducerConnection()
        channel = ClientChannel(
            connection=cast("Connection", self.producer),
            client_id="c",
            language=LanguageCode.JAVA,
            version=493,
            last_update_ns=0,
        )
        parts.producers.register("P", channel)
        self.services = MessageServices(parts)
        self.services.start()

    def put(self, topic: str, queue_id: int, properties: str, body: bytes) -> int:
        """Store a message without waiting; where it ends in the log."""
        message = BrokerMessage(
            topic,
            queue_id,
            body,
            properties.encode(),
            born_timestamp_ms=self.clock.now_ms(),
            wait_store_ok=False,
        )
        result = self.store.put_message(message)
        assert result.append is not None
        return result.append.end_offset

    def end(self, half: StoredMessage, verdict: int) -> None:
        header = EndTransactionRequestHeader(
            producer_group="P",
            half_queue_offset=half.queue_offset,
            physical_offset=half.physical_offset,
            commit_or_rollback=verdict,
            msg_id="",
        )
        request = create_request(RequestCode.END_TRANSACTION, header, opaque=1)
        request.flag = 2
        context = RequestContext(cast("Connection", FakeConnection()), request, PUBLIC)
        self.services.end_transaction.end(context, header)
        self.store.finish_burst()

    def messages(self, topic: str, queue_id: int = 0) -> list[StoredMessage]:
        found = []
        for at in range(self.store.max_offset_in_queue(topic, queue_id)):
            offset = self.store.physical_offset_in_queue(topic, queue_id, at)
            message = self.store.look_message(offset) if offset >= 0 else None
            if message is not None:
                found.append(message)
        return found
