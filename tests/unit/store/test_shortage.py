"""No descriptors or memory left: not taken for a failed disk, and everything recovers by itself."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.errors import OutOfResources
from roquet.runtime.clock import ManualClock
from roquet.runtime.exhaustion import SyncFailed
from roquet.store.config import FlushDiskType
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import PutMessageStatus
from roquet.store.running_flags import RunningFlag
from roquet.testing.files import EMFILE_CALLS, ENOMEM_CALLS, FaultyFiles
from tests.unit.store.kit import NOW_MS, answer, bodies, config, message
from tests.unit.store.kit import put as put_messages

SHORTAGES = [errno.EMFILE, errno.ENFILE, errno.ENOMEM]


class Bench:
    """A store without threads on files that may run short."""

    def __init__(self, root: Path, error: int, **changes: object) -> None:
        only = EMFILE_CALLS if error in {errno.EMFILE, errno.ENFILE} else ENOMEM_CALLS
        self.root = root
        self.clock = ManualClock(NOW_MS)
        self.files = FaultyFiles(error=error, and_after=True, only=only)
        self.fatal: list[OSError] = []
        self.config = config(**changes)
        self.store = self.open()

    def open(self) -> DefaultMessageStore:
        self.store = DefaultMessageStore(
            self.root,
            self.config,
            files=self.files,
            clock=self.clock,
            on_fatal=self.fatal.append,
        )
        self.store.load()
        self.store.start(threads=False)
        return self.store

    def run_short(self) -> None:
        """Let every call that can fail do so from now on."""
        self.files.fail_at = len(self.files.calls) + 1

    def sync_logics(self) -> None:
        self.clock.advance(60_001)
        self.store.upkeep.flush_logics_round()


def put(store: DefaultMessageStore, *sent: bytes, topic: str = "T") -> None:
    put_messages(store, *(message(body, topic=topic) for body in sent))


@pytest.fixture(params=SHORTAGES, ids=lambda number: errno.errorcode[number])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "store", request.param)
    yield bench
    bench.files.heal()
    bench.store.shutdown()


def test_a_sync_of_queues_waits_and_loses_nothing(bench: Bench) -> None:
    put(bench.store, b"one", b"two")
    bench.run_short()
    bench.sync_logics()
    bench.sync_logics()
    assert not bench.fatal
    assert bench.store.flags.is_writeable
    assert bench.store.queues.synced_offset < bench.store.commit_log.wrote_offset
    bench.files.heal()
    bench.sync_logics()
    assert bench.store.queues.synced_offset == bench.store.commit_log.wrote_offset
    put(bench.store, b"three")
    assert bodies(bench.store) == [b"one", b"two", b"three"]


def test_a_queue_without_a_file_refuses_writes_until_it_has_one(bench: Bench) -> None:
    put(bench.store, b"first")
    bench.run_short()
    answer(bench.store, message(b"new queue", topic="Payments"))
    assert bench.store.flags.has(RunningFlag.LOGICS_QUEUE_ERROR)
    refused = answer(bench.store, message(b"second"))
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    bench.store.upkeep.housekeeping_round()
    assert bench.store.flags.has(RunningFlag.LOGICS_QUEUE_ERROR)
    bench.files.heal()
    bench.clock.advance(1_000)
    bench.store.upkeep.housekeeping_round()
    put(bench.store, b"second")
    assert bodies(bench.store) == [b"first", b"second"]
    assert bodies(bench.store, topic="Payments") == [b"new queue"]
    assert not bench.fatal


def test_kept_queue_files_are_closed_to_open_another(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", errno.EMFILE)
    for number in range(6):
        put(bench.store, b"x", topic=f"Topic{number}")
    queues = bench.store.queues
    assert len(queues._descriptors) == 6
    bench.files._and_after = False
    bench.run_short()
    put(bench.store, b"x", topic="Another")
    assert bench.files.failed is not None
    assert len(queues._descriptors) == 4
    assert bench.store.flags.is_writeable
    bench.store.shutdown()


def test_queue_files_are_kept_open_up_to_the_setting(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", errno.EMFILE, open_queue_files_max=3)
    topics = [f"Topic{number}" for number in range(20)]
    for body in (b"one", b"two"):
        for topic in topics:
            put(bench.store, body, topic=topic)
        bench.sync_logics()
    assert bench.store.queues.open_files_max == 3
    assert len(bench.store.queues._descriptors) == 3
    for topic in topics:
        assert bodies(bench.store, topic=topic) == [b"one", b"two"]
    bench.store.shutdown()


def test_a_new_segment_is_refused_as_unavailable(bench: Bench) -> None:
    segment_bytes = bench.store.config.commit_log_file_bytes
    large = b"x" * (segment_bytes // 2)
    put(bench.store, large)
    bench.run_short()
    refused = answer(bench.store, message(large))
    assert refused.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert bench.store.flags.is_writeable
    bench.files.heal()
    put(bench.store, large)
    assert bodies(bench.store) == [large, large]


def test_shutdown_waits_once(bench: Bench) -> None:
    put(bench.store, b"one")
    bench.files._and_after = False
    bench.run_short()
    bench.store.shutdown()
    assert bench.files.failed is not None
    assert not (bench.root / "abort").exists()


def test_a_store_that_cannot_be_opened_gives_a_hint(bench: Bench) -> None:
    put(bench.store, b"one")
    bench.store.shutdown()
    bench.run_short()
    with pytest.raises(OutOfResources) as caught:
        bench.open()
    assert caught.value.retriable
    cure = "memory" if bench.files._error == errno.ENOMEM else "ulimit -n"
    assert cure in (caught.value.hint or "")
    bench.files.heal()
    bench.open()
    assert bodies(bench.store) == [b"one"]


def test_a_transient_buffer_is_written_when_there_is_memory(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", errno.ENOMEM, transient_store_pool=True)
    put(bench.store, b"one")
    bench.run_short()
    bench.clock.advance(10_000)
    bench.store.flusher._commit_round()
    assert bench.store.remaining_to_commit_bytes() > 0
    assert not bench.fatal
    bench.files.heal()
    bench.store.flush()
    assert bench.store.remaining_to_commit_bytes() == 0
    bench.store.shutdown()
    bench.open()
    assert bodies(bench.store) == [b"one"]
    bench.store.shutdown()


def test_a_failed_sync_is_fatal_whatever_its_reason(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "store", errno.ENOMEM, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    bench.files._only = frozenset({"data_sync"})
    bench.store.submit(message(b"one"))
    bench.store.finish_burst()
    bench.run_short()
    bench.store.flusher._flush_round()
    (error,) = bench.fatal
    assert isinstance(error, SyncFailed)
    bench.store.shutdown()
