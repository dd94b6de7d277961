"""A broker whose delayed messages are delivered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from roquet.broker.service.schedule_message import (
    ScheduleMessageService,
)
from roquet.store.config import MessageStoreConfig
from tests.unit.broker.processor.send_kit import SMALL, UNIQUE_KEY, SendBroker, broker
from tests.unit.broker.service.manual_timers import ManualTimers


class Delays:
    """A send broker whose delayed messages are delivered."""

    def __init__(self, made: SendBroker) -> None:
        self.made = made
        self.clock = made.clock
        self.timers = ManualTimers(made.clock)
        parts = msgspec.structs.replace(made.parts, timers=self.timers)
        self.offsets = parts.delay_offsets
        self.offsets.load()
        self.service = ScheduleMessageService(parts)
        made.store.add_arriving_listener(self.service.notify_arriving)
        self.service.start()

    def send(self, level: int, body: bytes = b"later", *, topic: str = "T") -> None:
        properties = f"DELAY\x01{level}\x02UNIQ_KEY\x01{UNIQUE_KEY}\x02TAGS\x01A\x02"
        answer = self.made.send(properties, topic=topic, body=body, queue_id=1)
        assert answer.code == 0

    def bodies(self, topic: str = "T", queue_id: int = 1) -> list[bytes]:
        count = self.made.count(topic, queue_id)
        return [self.made.stored(topic, queue_id, at).body for at in range(count)]


@contextmanager
def delays(root: Path, store_config: MessageStoreConfig = SMALL) -> Iterator[Delays]:
    with broker(root, store_config=store_config) as made:
        yield Delays(made)
