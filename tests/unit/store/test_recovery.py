"""Opening a store again: what is kept, truncated and rebuilt, and what is refused untouched."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from roquet.errors import StoreDamaged
from roquet.model import sys_flag as flags
from roquet.runtime.clock import ManualClock
from roquet.store.results import RecoveryReport
from tests.unit.store.kit import (
    FOREVER_MS,
    NOW_MS,
    SEGMENT_BYTES,
    answer,
    bodies,
    config,
    hash_of,
    message,
    new_store,
    opened,
    put,
)
from tests.unit.store.recovery_kit import (
    A_SEGMENT,
    RECORD,
    body,
    crash,
    damage,
    files_of,
    make,
    make_killed,
    numbers,
    offset_of,
    recover,
    refused,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


class TestSoundStores:
    def test_a_new_store(self, root: Path) -> None:
        report, found = recover(root)
        assert report == RecoveryReport(
            clean_exit=True,
            start_offset=0,
            end_offset=0,
            records=0,
            cut_reason="",
            read_bytes=0,
        )
        assert found == []

    @pytest.mark.parametrize("count", [1, A_SEGMENT - 1, A_SEGMENT, A_SEGMENT + 1, 40])
    @pytest.mark.parametrize("clean", [True, False])
    def test_everything_is_recovered(self, root: Path, count: int, *, clean: bool) -> None:
        make(root, count)
        parts = files_of(root, "commitlog", "consumequeue", "index")
        if not clean:
            crash(root)
        report, found = recover(root)
        assert found == list(range(count))
        assert report.clean_exit is clean
        assert report.end_offset == offset_of(count - 1) + RECORD
        again = files_of(root, "commitlog", "consumequeue", "index")
        assert {n: d for n, d in again.items() if "index" not in n} == {
            n: d for n, d in parts.items() if "index" not in n
        }
        if clean:
            assert again == parts

    def test_recovering_twice_equals_once(self, root: Path) -> None:
        make(root, 40)
        crash(root)
        recover(root)
        once = files_of(root, ".")
        crash(root)
        recover(root)
        assert files_of(root, ".") == once

    def test_appending_continues(self, root: Path) -> None:
        make(root, 20)
        with opened(root, clock=ManualClock(NOW_MS + 10**6)) as store:
            result = answer(store, message(body(20), KEYS="k20"))
            assert result.append is not None
            assert result.append.wrote_offset == offset_of(20)
            assert result.append.queue_offset == 10
            assert numbers(store) == list(range(21))

    def test_an_end_at_the_very_end_of_a_segment(self, root: Path) -> None:
        with opened(root) as store:
            put(store, message(b"x" * (SEGMENT_BYTES - 8 - 92)), message(b"y"))
            store.truncate_to(SEGMENT_BYTES)
        crash(root)
        with opened(root) as store:
            assert store.max_physical_offset == SEGMENT_BYTES
            put(store, message(b"z"))
            assert [len(one) for one in bodies(store)] == [SEGMENT_BYTES - 100, 1]

    def test_where_an_unclean_start_begins(self, root: Path) -> None:
        make(root, 5 * A_SEGMENT)
        crash(root)
        report, _ = recover(root, config(message_index=False))
        # The newest segment that began three seconds before the checkpoint's mark.
        assert report.start_offset == offset_of(5 * A_SEGMENT - 4) // SEGMENT_BYTES * SEGMENT_BYTES

    def test_without_a_checkpoint_everything_is_scanned(self, root: Path) -> None:
        make(root, 40)
        crash(root)
        (root / "checkpoint").unlink()
        report, found = recover(root)
        assert (report.start_offset, report.records) == (0, 40)
        assert found == list(range(40))

    def test_prepared_records_at_the_end(self, root: Path) -> None:
        with opened(root) as store:
            put(store, message(b"0001"), message(b"half", sys_flag=flags.TRANSACTION_PREPARED))
        for clean in (True, False):
            if not clean:
                crash(root)
            with opened(root) as store:
                assert bodies(store) == [b"0001"]
                half = store.look_message(store.max_physical_offset - 96)
                assert half is not None
                assert half.body == b"half"

    def test_a_delay_level_that_is_not_a_number_stops_nothing(self, root: Path) -> None:
        with opened(root) as store:
            put(store, message(b"odd", topic="SCHEDULE_TOPIC_XXXX", DELAY="soon"), message(b"ok"))
        crash(root)
        (root / "checkpoint").unlink()
        with opened(root) as store:
            assert bodies(store, "SCHEDULE_TOPIC_XXXX") == [b"odd"]
            assert bodies(store) == [b"ok"]


class TestTornEnds:
    @pytest.mark.parametrize("back", [1, 20, 500, RECORD - 1])
    def test_a_torn_last_record_is_cut(self, root: Path, back: int) -> None:
        make_killed(root, 20)
        end = offset_of(19) + RECORD
        damage(root, end - back, bytes(back))
        report, found = recover(root)
        expected = list(range(19))
        if found == list(range(20)):
            assert back <= 20, "only the last bytes of the properties may be lost unseen"
            return
        assert found == expected
        assert report.end_offset == offset_of(19)
        assert report.cut_reason
        segment = offset_of(19) // SEGMENT_BYTES * SEGMENT_BYTES
        data = (root / "commitlog" / f"{segment:020d}").read_bytes()
        assert not any(data[offset_of(19) - segment :])

    def test_garbage_after_the_end(self, root: Path) -> None:
        make(root, 20)
        crash(root)
        damage(root, offset_of(19) + RECORD, b"garbage" * 100)
        report, found = recover(root)
        assert found == list(range(20))
        assert report.cut_reason.startswith("magic")

    def test_a_record_of_an_earlier_life_after_the_end(self, root: Path) -> None:
        """Its own offset gives it away."""
        make(root, 20)
        crash(root)
        path = root / "commitlog" / f"{0:020d}"
        damage(root, offset_of(19) + RECORD, path.read_bytes()[:RECORD])
        report, found = recover(root)
        assert found == list(range(20))
        assert report.cut_reason.startswith("physicalOffset")

    def test_the_truncated_record_leaves_queue_and_index(self, root: Path) -> None:
        make_killed(root, 20)
        damage(root, offset_of(19) + 4)
        with opened(root, clock=ManualClock(NOW_MS + 10**6)) as store:
            assert store.max_offset_in_queue("T", 1) == 9
            assert store.query_message("T", "k19", 5, 0, FOREVER_MS).records == []
            put(store, message(b"0099" * 250, queue_id=1, KEYS="k19"))
            assert numbers(store) == [*range(19), 99]
            assert len(store.query_message("T", "k19", 5, 0, FOREVER_MS).records) == 1

    def test_empty_preallocated_segments_are_removed(self, root: Path) -> None:
        make(root, 5)
        crash(root)
        for number in (1, 2):
            (root / "commitlog" / f"{number * SEGMENT_BYTES:020d}").write_bytes(
                bytes(SEGMENT_BYTES)
            )
        (root / "commitlog" / f"{3 * SEGMENT_BYTES:020d}").write_bytes(b"")
        _, found = recover(root)
        assert found == list(range(5))
        assert [path.name for path in (root / "commitlog").iterdir()] == [f"{0:020d}"]

    def test_all_that_was_not_flushed_may_be_lost(self, root: Path) -> None:
        make_killed(root, 20, unflushed=7)
        damage(root, offset_of(13) + 4)
        assert recover(root)[1] == list(range(13))


class TestDamage:
    """Good records after a bad one: truncating there would delete acknowledged messages."""

    @pytest.mark.parametrize("clean", [True, False])
    @pytest.mark.parametrize(
        ("where", "data"),
        [
            (0, struct.pack(">i", 50)),
            (4, b"\0"),
            (8, b"\0\0\0\0"),
            (28, b"\x01"),
            (100, b"?"),
            (0, bytes(RECORD)),
        ],
    )
    def test_in_the_middle(self, root: Path, where: int, data: bytes, *, clean: bool) -> None:
        make(root, 3 * A_SEGMENT)
        if not clean:
            crash(root)
        # In the segment that recovery has to scan, before records known to be on disk.
        damage(root, offset_of(2 * A_SEGMENT + 1) + where, data)
        error = refused(root)
        assert isinstance(error, StoreDamaged)
        assert error.message == f"the log is damaged at {offset_of(2 * A_SEGMENT + 1)}"

    @pytest.mark.parametrize("clean", [True, False])
    def test_of_the_last_record_when_it_was_on_disk(self, root: Path, *, clean: bool) -> None:
        make(root, 20)
        if not clean:
            crash(root)
        damage(root, offset_of(19) + 100)
        assert "bodyCRC" in (refused(root).detail or "")

    def test_the_store_opens_once_it_is_repaired(self, root: Path) -> None:
        make(root, 3 * A_SEGMENT)
        copy = root.with_name("copy")
        shutil.copytree(root, copy)
        damage(root, offset_of(2 * A_SEGMENT + 1) + 100)
        refused(root)
        shutil.rmtree(root / "commitlog")
        shutil.copytree(copy / "commitlog", root / "commitlog")
        _, found = recover(root)
        assert found == list(range(3 * A_SEGMENT))

    def test_a_flipped_bit_in_an_old_segment_is_skipped_when_it_is_read(self, root: Path) -> None:
        make(root, 3 * A_SEGMENT)
        damage(root, offset_of(1) + 100)
        _, found = recover(root)
        assert found == [n for n in range(3 * A_SEGMENT) if n != 1]


class TestRefusals:
    def test_a_store_from_the_future(self, root: Path) -> None:
        make(root, 5)
        store = new_store(root, clock=ManualClock(NOW_MS - 60_001))
        before = hash_of(root)
        with pytest.raises(StoreDamaged, match="newer than this machine's clock") as raised:
            store.load()
        assert str(NOW_MS) in (raised.value.detail or "")
        assert hash_of(root) == before
        with opened(root, clock=ManualClock(NOW_MS - 60_000)) as store:
            assert numbers(store) == list(range(5))

    def test_another_segment_size(self, root: Path) -> None:
        make(root, 5)
        for size in (SEGMENT_BYTES // 2, SEGMENT_BYTES * 2):
            error = refused(root, config(commit_log_file_bytes=size))
            assert "wrong size" in error.message
            assert str(size) in (error.detail or "")

    def test_another_queue_file_size(self, root: Path) -> None:
        make(root, 5)
        assert "wrong size" in refused(root, config(consume_queue_file_bytes=400)).message

    def test_another_index_size(self, root: Path) -> None:
        make(root, 5)
        assert "wrong length" in refused(root, config(index_entries=51)).message

    @pytest.mark.parametrize("name", ["notes.txt", "123", f"{0:020d}.bak", "x" * 20])
    def test_an_unknown_file_among_the_segments(self, root: Path, name: str) -> None:
        make(root, 5)
        (root / "commitlog" / name).write_bytes(b"x")
        assert name in refused(root).message

    def test_a_missing_segment(self, root: Path) -> None:
        make(root, 3 * A_SEGMENT)
        (root / "commitlog" / f"{SEGMENT_BYTES:020d}").unlink()
        error = refused(root)
        assert "missing" in error.message
        assert f"{SEGMENT_BYTES:020d}" in (error.hint or "")

    def test_a_segment_with_a_wrong_name(self, root: Path) -> None:
        make(root, 5)
        log = root / "commitlog"
        (log / f"{0:020d}").rename(log / f"{100:020d}")
        assert "wrong name" in refused(root).message

    def test_a_short_segment(self, root: Path) -> None:
        make(root, 3 * A_SEGMENT)
        with (root / "commitlog" / f"{2 * SEGMENT_BYTES:020d}").open("r+b") as file:
            file.truncate(SEGMENT_BYTES - 1)
        assert "wrong size" in refused(root).message

    def test_a_refused_store_can_be_opened_again(self, root: Path) -> None:
        make(root, 5)
        (root / "commitlog" / "notes.txt").write_bytes(b"x")
        refused(root)
        refused(root)
        (root / "commitlog" / "notes.txt").unlink()
        assert recover(root)[1] == list(range(5))
