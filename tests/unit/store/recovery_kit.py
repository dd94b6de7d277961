"""Stores of numbered messages, and what is there after they were opened again."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import RecoveryReport
from tests.unit.store.kit import (
    CONFIG,
    NOW_MS,
    SEGMENT_BYTES,
    bodies,
    hash_of,
    message,
    new_store,
    opened,
    put,
)

RECORD = 1000 + 92 + len(b"KEYS\x01k00\x02")
A_SEGMENT = SEGMENT_BYTES // RECORD  # records in one


def body(number: int) -> bytes:
    return b"%04d" % number * 250


def make(root: Path, count: int, *, settings: MessageStoreConfig = CONFIG) -> ManualClock:
    """A cleanly closed store of numbered messages, one a second."""
    clock = ManualClock(NOW_MS)
    with opened(root, clock=clock, config=settings) as store:
        for number in range(count):
            put(store, message(body(number), queue_id=number % 2, KEYS=f"k{number:02d}"))
            clock.advance(1000)
    return clock


def crash(root: Path) -> None:
    """Make the last exit unclean."""
    (root / "abort").write_bytes(b"1")


def make_killed(root: Path, count: int, *, unflushed: int = 1) -> None:
    """A store whose process was killed before the last messages reached the disk."""
    clock = ManualClock(NOW_MS)
    store = new_store(root, clock=clock)
    store.load()
    store.start(threads=False)
    for number in range(count):
        if number == count - unflushed:
            store.flush()
            store.upkeep.flush_logics(thorough=True)
        put(store, message(body(number), queue_id=number % 2, KEYS=f"k{number:02d}"))
        clock.advance(1000)
    store.lifecycle.abandon()


def damage(root: Path, physical_offset: int, data: bytes = b"\xff") -> None:
    start = physical_offset // SEGMENT_BYTES * SEGMENT_BYTES
    with (root / "commitlog" / f"{start:020d}").open("r+b") as file:
        file.seek(physical_offset - start)
        file.write(data)


def numbers(store: DefaultMessageStore) -> list[int]:
    """Numbers of all messages that are served, in the order of the log."""
    return sorted(int(one[:4]) for queue_id in (0, 1) for one in bodies(store, queue_id=queue_id))


def offset_of(number: int) -> int:
    """Physical offset of a message."""
    segment, place = divmod(number, A_SEGMENT)
    return segment * SEGMENT_BYTES + place * RECORD


def files_of(root: Path, *parts: str) -> dict[str, bytes]:
    found = {}
    for part in parts:
        paths = sorted(path for path in (root / part).rglob("*") if path.is_file())
        for number, path in enumerate(paths):
            name = f"index-{number}" if part == "index" else str(path.relative_to(root))
            found[name] = path.read_bytes()
    return found


def recover(root: Path, settings: MessageStoreConfig = CONFIG) -> tuple[RecoveryReport, list[int]]:
    with opened(root, clock=ManualClock(NOW_MS + 10**6), config=settings) as store:
        assert store.lifecycle.last_recovery is not None
        return store.lifecycle.last_recovery, numbers(store)


def refused(root: Path, settings: MessageStoreConfig = CONFIG) -> StoreError:
    """The error of a store that must be neither opened nor changed."""
    before = hash_of(root)
    store = new_store(root, clock=ManualClock(NOW_MS + 10**6), config=settings)
    with pytest.raises(StoreError) as raised:
        store.load()
    assert hash_of(root) == before
    assert raised.value.detail
    assert raised.value.hint
    return raised.value
