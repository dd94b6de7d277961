"""A burst for several queues, some of whose files cannot be written at the moment."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.runtime.files import Buffer, Files
from roquet.store import recovery
from roquet.store.running_flags import RunningFlag
from tests.unit.store.kit import SEGMENT_BYTES, bodies, message, new_store, opened, put
from tests.unit.store.vouching_kit import LATER, make, numbers


class FullFiles(Files):
    """No room for files below the directory named by ``full``; records what was synced."""

    def __init__(self) -> None:
        self.full = ""
        self.synced: set[str] = set()

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        if self.full and self.full in _path(fd):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write_at(fd, data, position)

    def data_sync(self, fd: int) -> None:
        super().data_sync(fd)
        self.synced.add(str(Path(_path(fd)).parent))


def _path(fd: int) -> str:
    return str(Path(f"/proc/self/fd/{fd}").readlink())


@pytest.mark.parametrize("order", [("Room", "Full"), ("Full", "Room")])
def test_queues_that_were_written_before_another_failed_are_synced(
    tmp_path: Path, order: tuple[str, str]
) -> None:
    root = tmp_path / "store"
    files = FullFiles()
    with opened(root, files=files) as store:
        grown: list[str] = []
        store.add_arriving_listener(lambda queue: grown.append(queue.topic))
        files.full = "consumequeue/Full"
        put(store, *(message(b"x", topic=topic) for topic in order))
        assert store.flags.has(RunningFlag.LOGICS_QUEUE_ERROR)
        files.full = ""
        store.upkeep._retry_dispatch()
        assert not store.flags.has(RunningFlag.LOGICS_QUEUE_ERROR)
        assert sorted(grown) == ["Full", "Room"]
        files.synced.clear()
        store.upkeep.flush_logics(thorough=True)
        assert store.queues.synced_offset == store.commit_log.wrote_offset
        assert {str(root / "consumequeue" / topic / "0") for topic in order} <= files.synced
        assert [bodies(store, topic) for topic in order] == [[b"x"], [b"x"]]


def test_a_rebuild_without_room_does_not_collect_the_entries_of_the_whole_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    make(root, 200)
    shutil.rmtree(root / "consumequeue")
    monkeypatch.setattr(recovery, "_DISPATCH_STEP_BYTES", SEGMENT_BYTES)
    files = FullFiles()
    files.full = "consumequeue/T"
    store = new_store(root, files=files, clock=LATER)
    with pytest.raises(StoreError, match="cannot be rebuilt"):
        store.load()
    collected = sum(len(queue.pending) for queue in store.queues) // 20
    assert collected < 40, "more than the records of one step and what is left of a record"
    files.full = ""
    with opened(root, files=files, clock=LATER) as again:
        assert numbers(again, 200)
