"""Stores with a topic of batch consume queues."""

from __future__ import annotations

from pathlib import Path

from roquet.format.batch_consume_queue import BATCH_UNIT_BYTES
from roquet.model import sys_flag as flags
from roquet.model.message import BrokerMessage
from roquet.runtime.clock import ManualClock
from roquet.store.batch_consume_queue import BatchConsumeQueue
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from tests.unit.store.kit import NOW_MS, message, put
from tests.unit.store.kit import config as changed

SMALL_FILE = 4 * BATCH_UNIT_BYTES
SMALL = changed(batch_consume_queue_file_bytes=SMALL_FILE)
INNER = flags.INNER_BATCH | flags.NEED_UNWRAP
SIZES = (3, 1, 2, 4, 5, 2, 1, 7, 3)


def open_batches(
    root: Path, *, clock: ManualClock | None = None, settings: MessageStoreConfig = SMALL
) -> DefaultMessageStore:
    store = DefaultMessageStore(root, settings, clock=clock or ManualClock(NOW_MS + 10**6))
    store.queues.is_batch_topic = "B".__eq__
    store.load()
    store.start(threads=False)
    return store


def inner_batch(count: int | str, *, body: bytes = b"inner", topic: str = "B") -> BrokerMessage:
    return message(body, topic=topic, sys_flag=INNER, INNER_NUM=str(count), UNIQ_KEY="u")


def fill(root: Path, sizes: tuple[int, ...] = SIZES, *, body: bytes = b"inner") -> None:
    """A cleanly closed store with batches of these sizes, one a second."""
    clock = ManualClock(NOW_MS)
    store = open_batches(root, clock=clock)
    for size in sizes:
        put(store, inner_batch(size, body=body))
        clock.advance(1000)
    store.shutdown()


def kill(store: DefaultMessageStore) -> None:
    """Stop it as if its process was killed."""
    store.lifecycle.abandon()


def queue_of(store: DefaultMessageStore) -> BatchConsumeQueue:
    queue = store.find_consume_queue("B", 0)
    assert isinstance(queue, BatchConsumeQueue)
    return queue


def places(store: DefaultMessageStore) -> list[tuple[int, int]]:
    queue = queue_of(store)
    units = queue.batch_units(max(queue.min_queue_offset, 0), queue.max_queue_offset)
    return [(unit.base_offset, unit.batch_size) for unit in units]


def files_of(root: Path) -> dict[str, bytes]:
    folder = root / "batchconsumequeue"
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
