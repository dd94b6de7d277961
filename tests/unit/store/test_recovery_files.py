"""Opening a store again: rebuilding derived files, and what an exit leaves behind."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from roquet.errors import StoreError
from roquet.format.checkpoint import Checkpoint
from roquet.runtime.clock import ManualClock
from roquet.testing.files import FaultyFiles
from tests.unit.store.kit import FOREVER_MS, NOW_MS, answer, config, message, new_store, opened, put
from tests.unit.store.recovery_kit import A_SEGMENT, crash, files_of, make, numbers, recover


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


class TestDerivedFiles:
    @pytest.mark.parametrize("clean", [True, False])
    def test_queues_and_index_are_rebuilt_from_the_log(self, root: Path, *, clean: bool) -> None:
        make(root, 40)
        before = files_of(root, "consumequeue", "index")
        shutil.rmtree(root / "consumequeue")
        shutil.rmtree(root / "index")
        if not clean:
            crash(root)
        _, found = recover(root)
        assert found == list(range(40))
        assert files_of(root, "consumequeue", "index") == before

    def test_a_lost_queue_is_rebuilt_after_a_crash(self, root: Path) -> None:
        make(root, 40)
        before = files_of(root, "consumequeue")
        crash(root)
        (root / "checkpoint").unlink()
        shutil.rmtree(root / "consumequeue" / "T" / "1")
        recover(root)
        assert files_of(root, "consumequeue") == before

    def test_entries_beyond_the_log_are_removed(self, root: Path) -> None:
        """After a crash they may be on disk before their records, if nothing confirms those."""
        make(root, 40)
        crash(root)
        (root / "checkpoint").unlink()
        (root / "roquet-manifest.json").unlink()
        log = root / "commitlog"
        for path in sorted(log.iterdir())[1:]:
            path.unlink()
        with opened(root, clock=ManualClock(NOW_MS + 10**6)) as store:
            assert numbers(store) == list(range(A_SEGMENT))
            total = sum(store.max_offset_in_queue("T", queue_id) for queue_id in (0, 1))
            assert total == A_SEGMENT
            assert store.query_message("T", "k30", 5, 0, FOREVER_MS).records == []

    def test_a_full_disk_stops_the_start_and_the_next_one_succeeds(self, root: Path) -> None:
        make(root, 40)
        before = files_of(root, "consumequeue")
        shutil.rmtree(root / "consumequeue")
        crash(root)
        files = FaultyFiles(only=frozenset({"write_at"}), error=errno.ENOSPC, fail_at=2)
        files._and_after = True
        store = new_store(root, files=files, clock=ManualClock(NOW_MS + 10**6))
        with pytest.raises(StoreError, match="rebuilt") as raised:
            store.load()
        assert raised.value.hint
        assert (root / "abort").exists()
        _, found = recover(root)
        assert found == list(range(40))
        assert files_of(root, "consumequeue") == before

    def test_without_an_index(self, root: Path) -> None:
        settings = config(message_index=False)
        make(root, 20, settings=settings)
        crash(root)
        report, found = recover(root, settings)
        assert found == list(range(20))
        assert not (root / "index").exists()
        assert report.records > 0

    def test_the_index_may_be_switched_on_later(self, root: Path) -> None:
        make(root, 20, settings=config(message_index=False))
        crash(root)
        (root / "checkpoint").unlink()
        with opened(root, clock=ManualClock(NOW_MS + 10**6)) as store:
            assert len(store.query_message("T", "k03", 5, 0, FOREVER_MS).records) == 1


class TestExits:
    def test_a_clean_exit_leaves_no_mark(self, root: Path) -> None:
        with opened(root) as store:
            assert (root / "abort").exists()
            put(store, message())
        assert not (root / "abort").exists()

    def test_a_store_that_was_only_opened_stays_clean(self, root: Path) -> None:
        make(root, 20)
        before = files_of(root, ".")
        store = new_store(root, clock=ManualClock(NOW_MS + 10**6))
        store.load()
        store.shutdown()
        after = files_of(root, ".")
        assert (
            Checkpoint.unpack(after.pop("checkpoint"))[:3]
            == (Checkpoint.unpack(before.pop("checkpoint"))[:3])
        )
        assert after == before

    def test_queues_that_cannot_be_written_make_an_exit_unclean(self, root: Path) -> None:
        files = FaultyFiles(only=frozenset({"write_at"}), error=errno.ENOSPC)
        with opened(root, files=files) as store:
            put(store, message(b"0000", queue_id=0), message(b"0001", queue_id=1))
            files.fail_at = len(files.calls) + 1
            files._and_after = True
            store.submit(message(b"0002", queue_id=0))
            store.finish_burst()
            refused_put = answer(store, message(b"0003"))
            assert refused_put.detail == "LOGICS_QUEUE_ERROR"
            assert numbers(store) == [0, 1]
        assert (root / "abort").exists()
        assert recover(root)[1] == [0, 1, 2]

    def test_writes_resume_once_there_is_space(self, root: Path) -> None:
        files = FaultyFiles(only=frozenset({"write_at"}), error=errno.ENOSPC, and_after=True)
        clock = ManualClock(NOW_MS)
        with opened(root, files=files, clock=clock) as store:
            put(store, message(b"0000"))
            files.fail_at = len(files.calls) + 1
            store.submit(message(b"0001"))
            store.finish_burst()
            assert numbers(store) == [0]
            files.heal()
            clock.advance(10_000)
            store.upkeep.housekeeping_round()
            assert numbers(store) == [0, 1]
            put(store, message(b"0002"))
            assert numbers(store) == [0, 1, 2]
        assert not (root / "abort").exists()

    def test_no_index_file_stops_writes_until_there_is_space(self, root: Path) -> None:
        files = FaultyFiles(only=frozenset({"allocate"}), error=errno.ENOSPC)
        clock = ManualClock(NOW_MS)
        with opened(root, files=files, clock=clock) as store:
            put(store, message(b"0000"))
            files.fail_at = len(files.calls) + 1
            files._and_after = True
            store.submit(message(b"0001", KEYS="k"))
            store.finish_burst()
            assert answer(store, message()).detail == "INDEX_FILE_ERROR"
            files.heal()
            clock.advance(10_000)
            store.upkeep.housekeeping_round()
            put(store, message(b"0002", KEYS="k"))
            assert numbers(store) == [0, 1, 2]
            assert len(store.query_message("T", "k", 5, 0, FOREVER_MS).records) == 2


@pytest.mark.parametrize("is_crashed", [False, True])
def test_files_kept_by_the_file_system_at_the_top_of_a_disk_are_ignored(
    tmp_path: Path, *, is_crashed: bool
) -> None:
    root = tmp_path / "store"
    make(root, 40)
    for name in ("commitlog", "consumequeue", "index"):
        (root / name / "lost+found").mkdir()
    if is_crashed:
        crash(root)
    assert recover(root)[1] == list(range(40))
    assert (root / "commitlog" / "lost+found").is_dir()
