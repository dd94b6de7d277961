"""Pulls that wait, in queues that a test fills."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from roquet.broker.service.held_pull import HeldPull
from roquet.broker.service.pull_request_hold import PullRequestHoldService
from roquet.format.consume_queue import UNIT
from roquet.format.consume_queue_ext import CqExtUnit
from roquet.model.java_string import java_hash
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import create_request
from roquet.remoting.connection import Connection
from roquet.remoting.processor import PUBLIC, RequestContext
from roquet.runtime.clock import ManualClock
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.reader import MessageFilter
from tests.unit.broker.processor.pull_kit import FakeConnection, pull

A, B = java_hash("a"), java_hash("b")


class FakeExt:
    """Ext units by address."""

    def __init__(self) -> None:
        self.units: dict[int, CqExtUnit] = {}

    def get(self, address: int) -> CqExtUnit | None:
        return self.units.get(address)


class FakeQueue:
    """A queue of tags codes; reads are counted."""

    def __init__(self, topic: str = "T", queue_id: int = 0) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.codes: list[int] = []
        self.ext: FakeExt | None = None
        self.reads = 0

    @property
    def max_queue_offset(self) -> int:
        return len(self.codes)

    def read_units(self, queue_offset: int, count: int) -> bytes:
        self.reads += 1
        chosen = self.codes[queue_offset : queue_offset + count]
        places = range(queue_offset, queue_offset + len(chosen))
        return b"".join(UNIT.pack(at, 1, code) for at, code in zip(places, chosen, strict=True))


def by_codes(wanted: set[int]) -> MessageFilter:
    return MessageFilter(lambda code, _ext: code in wanted)


class Room:
    """A service with queues to wait for."""

    def __init__(self, *, held_max: int = 100_000, held_per_connection_max: int = 100_000) -> None:
        self.clock = ManualClock()
        self.queues: dict[tuple[str, int], FakeQueue] = {}
        self.soon: list[Callable[[], None]] = []
        self.woken: list[HeldPull] = []
        self.records: dict[int, bytes] = {}
        self.service = PullRequestHoldService(
            self.clock,
            max_offset=lambda topic, queue_id: self.queue(topic, queue_id).max_queue_offset,
            record_at=self.record_at,
            held_max=held_max,
            held_per_connection_max=held_per_connection_max,
            call_soon=self.soon.append,
        )
        self.service.wake = self.woken.append
        self.connection = FakeConnection()

    def record_at(self, physical_offset: int, size_bytes: int) -> bytes | None:
        assert size_bytes == 1
        return self.records.get(physical_offset)

    def queue(self, topic: str = "T", queue_id: int = 0) -> FakeQueue:
        return self.queues.setdefault((topic, queue_id), FakeQueue(topic, queue_id))

    def hold(
        self,
        offset: int = 0,
        *,
        queue_id: int = 0,
        wanted: set[int] | MessageFilter | None = None,
        wait_ms: int = 15_000,
        connection: FakeConnection | None = None,
        opaque: int = 1,
    ) -> HeldPull:
        held = self.pull(
            offset,
            queue_id=queue_id,
            wanted=wanted,
            wait_ms=wait_ms,
            connection=connection,
            opaque=opaque,
        )
        assert self.service.suspend(held)
        return held

    def pull(
        self,
        offset: int = 0,
        *,
        queue_id: int = 0,
        wanted: set[int] | MessageFilter | None = None,
        wait_ms: int = 15_000,
        connection: FakeConnection | None = None,
        opaque: int = 1,
        body: bytes = b"",
    ) -> HeldPull:
        header = pull(offset, queue_id=queue_id)
        request = create_request(RequestCode.PULL_MESSAGE, header, opaque=opaque, body=body)
        context = RequestContext(cast("Connection", connection or self.connection), request, PUBLIC)
        return HeldPull(
            context,
            header,
            by_codes(wanted) if isinstance(wanted, set) else wanted,
            deadline_ns=self.clock.monotonic_ns() + wait_ms * 1_000_000,
        )

    def arrive(self, *codes: int, queue_id: int = 0) -> None:
        """One burst of entries."""
        queue = self.queue(queue_id=queue_id)
        queue.codes += codes
        self.service.notify_arriving(cast("ConsumeQueue", queue))

    def turn(self) -> None:
        todo, self.soon[:] = self.soon[:], []
        for each in todo:
            each()
