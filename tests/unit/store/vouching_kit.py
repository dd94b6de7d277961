"""Stores whose files vanish while not in use."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace as replace_struct

from roquet.errors import StoreDamaged
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.inspect.rebuild import plan_rebuild, rebuild
from roquet.storefiles.layout import MANIFEST_FILE
from roquet.storefiles.view import StoreView
from roquet.testing.files import QuickFiles
from tests.unit.store.kit import (
    CONFIG,
    NOW_MS,
    SEGMENT_BYTES,
    bodies,
    config,
    hash_of,
    message,
    new_store,
    opened,
    put,
)

ONE_FILE_A_QUEUE = config(consume_queue_file_bytes=4000)
LATER = ManualClock(NOW_MS + 10**6)
COUNT = 40


def make(root: Path, count: int = COUNT, settings: MessageStoreConfig = CONFIG) -> None:
    """A cleanly closed store of three segments, two queues and some index files."""
    clock = ManualClock(NOW_MS)
    with opened(root, clock=clock, config=settings) as store:
        for number in range(count):
            put(store, message(b"%04d" % number * 250, queue_id=number % 2, KEYS=f"k{number:02d}"))
            clock.advance(1000)


def crash(root: Path) -> None:
    (root / "abort").write_bytes(b"1")


def as_java_left_it(root: Path) -> None:
    (root / MANIFEST_FILE).unlink()
    (root / "lock").write_bytes(b"lock")


def segments(root: Path) -> list[Path]:
    return sorted((root / "commitlog").iterdir())


def numbers(store: DefaultMessageStore, count: int = COUNT) -> bool:
    """Whether both queues serve all messages."""
    wanted = [b"%04d" % number * 250 for number in range(count)]
    return [bodies(store, queue_id=queue_id) for queue_id in (0, 1)] == [wanted[::2], wanted[1::2]]


def refused(root: Path) -> StoreDamaged:
    before = hash_of(root)
    store = new_store(root, clock=LATER)
    with pytest.raises(StoreDamaged) as caught:
        store.load()
    assert hash_of(root) == before
    assert "roquet store" in (caught.value.hint or "")
    return caught.value


def remove_newest(root: Path) -> None:
    segments(root)[-1].unlink()


def remove_newest_two(root: Path) -> None:
    for path in segments(root)[-2:]:
        path.unlink()


def empty_newest(root: Path) -> None:
    os.truncate(segments(root)[-1], 0)


def zero_newest(root: Path) -> None:
    segments(root)[-1].write_bytes(bytes(SEGMENT_BYTES))


def zero_the_end(root: Path) -> None:
    """The last records of the newest segment read as zeros."""
    with segments(root)[-1].open("r+b") as file:
        file.seek(4000)
        file.write(bytes(SEGMENT_BYTES - 4000))


def empty_log(root: Path) -> None:
    for path in segments(root):
        path.unlink()


def remove_log(root: Path) -> None:
    shutil.rmtree(root / "commitlog")


LOST_ENDS = [
    remove_newest,
    remove_newest_two,
    empty_newest,
    zero_newest,
    zero_the_end,
    empty_log,
    remove_log,
]


def expire_all_of_queue_1(root: Path) -> None:
    """A store whose queue 1 has entries but no record in the log any more."""
    clock = ManualClock(NOW_MS)
    with opened(root, clock=clock) as store:
        for number in range(COUNT):
            queue_id = 1 if number < 5 else 0
            put(store, message(b"%04d" % number * 250, queue_id=queue_id))
        store.flush()
        store.upkeep.flush_logics(thorough=True)
        store.retention.request_archived(SEGMENT_BYTES)
        store.retention.run_once()
        assert store.commit_log.min_offset == SEGMENT_BYTES


def rebuild_in_place(root: Path, *, accepts_loss: bool, files: Files | None = None) -> None:
    with StoreView(files or QuickFiles(), root) as view:
        plan = plan_rebuild(
            view, into=None, index_slots=20, index_entries=50, accepts_loss=accepts_loss
        )
        rebuild(view, replace_struct(plan, consume_queue_file_bytes=200), LATER)
