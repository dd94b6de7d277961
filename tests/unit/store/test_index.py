from __future__ import annotations

import errno
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from roquet.errors import ConfigError, StoreDamaged
from roquet.format import index_file as layout
from roquet.format.commit_log import DispatchRequest
from roquet.format.index_file import IndexEntry, IndexHeader
from roquet.model import sys_flag as flags
from roquet.model.java_string import index_key_hash, java_hash
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.index import IndexFile, IndexService, QueryOffsetResult, tag_key
from tests.unit.store.failing_files import FailingFiles

SLOTS = 7
ENTRIES = 6  # five can be used
FILE_BYTES = layout.file_size(SLOTS, ENTRIES)
T0 = 1_700_000_000_000
FOREVER_MS = 1 << 62


def new_file(*, slots: int = SLOTS, entries: int = ENTRIES) -> IndexFile:
    mapping = Files().map_anonymous(layout.file_size(slots, entries))
    return IndexFile(Path("20240101000000000"), mapping, slots=slots, entries=entries, fd=-1)


def entry(file: IndexFile, number: int) -> IndexEntry:
    position = layout.entry_position(file.slots, number)
    return IndexEntry._make(layout.ENTRY.unpack_from(file.mapping, position))


def slot(file: IndexFile, key_hash: int) -> int:
    position = layout.slot_position(key_hash % file.slots)
    value: int = layout.SLOT.unpack_from(file.mapping, position)[0]
    return value


def select(
    file: IndexFile,
    key_hash: int,
    *,
    max_num: int = 64,
    begin_ms: int = 0,
    end_ms: int = FOREVER_MS,
) -> list[int]:
    offsets: list[int] = []
    file.select(offsets, key_hash, max_num, begin_ms, end_ms)
    return offsets


def record(
    physical_offset: int,
    *,
    unique_key: str | None = None,
    keys: str = "",
    tags: str | None = None,
    topic: str = "T",
    store_timestamp_ms: int = T0,
    sys_flag: int = 0,
) -> DispatchRequest:
    return DispatchRequest(
        topic=topic,
        queue_id=0,
        physical_offset=physical_offset,
        size_bytes=100,
        tags_code=0,
        store_timestamp_ms=store_timestamp_ms,
        queue_offset=0,
        keys=keys,
        unique_key=unique_key,
        sys_flag=sys_flag,
        prepared_transaction_offset=0,
        properties={} if tags is None else {"TAGS": tags},
    )


class Bench:
    """An index in a directory, opened as often as a test likes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock(T0)

    def service(self, files: Files | None = None) -> IndexService:
        return IndexService(
            files or Files(), self.root, slots=SLOTS, entries=ENTRIES, clock=self.clock
        )

    def reopen(self, *, clean: bool = True, checkpoint_ms: int = 0) -> IndexService:
        index = self.service()
        index.load(last_exit_ok=clean, index_msg_timestamp_ms=checkpoint_ms)
        return index

    def contents(self) -> dict[str, bytes]:
        if not self.root.exists():
            return {}
        return {path.name: path.read_bytes() for path in sorted(self.root.iterdir())}

    def fill(self, index: IndexService, numbers: range) -> None:
        """One entry a record; record n lies at 100 n and was stored at T0 + n seconds."""
        for number in numbers:
            index.build(
                record(
                    number * 100,
                    unique_key=f"k{number}",
                    store_timestamp_ms=T0 + number * 1000,
                )
            )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "index")


def find(index: IndexService, key: str, topic: str = "T") -> list[int]:
    return index.query(topic, key, 64, 0, FOREVER_MS).physical_offsets


# -- one file -------------------------------------------------------------------------------


def test_first_entry_sets_begin_and_end() -> None:
    file = new_file()
    assert file.put_key(3, 700, T0)
    assert file.header == IndexHeader(T0, T0, 700, 700, 1, 2)
    assert entry(file, 1) == IndexEntry(3, 700, 0, 0)
    assert slot(file, 3) == 1


def test_chain_leads_from_new_to_old() -> None:
    file = new_file()
    for offset in (100, 200, 300):
        assert file.put_key(3, offset, T0)
    assert [entry(file, number).previous for number in (1, 2, 3)] == [0, 1, 2]
    assert slot(file, 3) == 3
    assert file.header.hash_slot_count == 1
    assert select(file, 3) == [300, 200, 100]
    assert select(file, 3, max_num=2) == [300, 200]
    assert select(file, 3, max_num=0) == []


def test_hashes_of_one_slot_share_a_chain_and_are_told_apart() -> None:
    file = new_file()
    for key_hash, offset in ((3, 100), (3 + SLOTS, 200), (3, 300)):
        assert file.put_key(key_hash, offset, T0)
    assert file.header.hash_slot_count == 1
    assert select(file, 3) == [300, 100]
    assert select(file, 3 + SLOTS) == [200]
    assert select(file, 3 + 2 * SLOTS) == []
    assert select(file, 4) == []


def test_full_file_takes_nothing_and_does_not_change() -> None:
    file = new_file()
    for offset in range(ENTRIES - 1):
        assert not file.is_full
        assert file.put_key(offset, offset, T0)
    assert file.is_full
    before = bytes(file.mapping[:])
    assert not file.put_key(1, 9999, T0 + 5000)
    assert bytes(file.mapping[:]) == before


def test_seconds_are_counted_from_the_begin_before_the_first_entry_replaces_it() -> None:
    file = new_file()
    file.mapping[: layout.HEADER_BYTES] = IndexHeader(T0, T0, 50, 50, 0, 1).pack()
    assert file.put_key(1, 100, T0 + 2500)
    assert file.header.begin_timestamp_ms == T0 + 2500
    assert file.header.begin_physical_offset == 100
    assert entry(file, 1).seconds == 2
    assert file.put_key(2, 200, T0 + 2500 + 1999)
    assert entry(file, 2).seconds == 1


@pytest.mark.parametrize(
    ("elapsed_ms", "seconds"),
    [(-1, 0), (-5000, 0), (999, 0), (1000, 1), ((1 << 31) * 1000, layout.SECONDS_MAX)],
)
def test_seconds_are_clamped(elapsed_ms: int, seconds: int) -> None:
    file = new_file()
    file.put_key(1, 100, T0)
    file.put_key(2, 200, T0 + elapsed_ms)
    assert entry(file, 2).seconds == seconds


def test_both_ends_of_the_time_range_are_included() -> None:
    file = new_file()
    for number in range(4):
        file.put_key(3, number, T0 + number * 1000)
    assert select(file, 3, begin_ms=T0 + 1000, end_ms=T0 + 2000) == [2, 1]
    assert select(file, 3, begin_ms=T0 + 1001, end_ms=T0 + 2000) == [2]
    assert select(file, 3, begin_ms=T0 + 1000, end_ms=T0 + 1999) == [1]
    assert select(file, 3, begin_ms=T0 + 2001, end_ms=T0 + 2999) == []


def test_a_file_without_entries_finds_nothing() -> None:
    assert select(new_file(), 0) == []


def test_hash_of_the_smallest_int_is_zero() -> None:
    key = "jlli8mc"
    assert java_hash(f"T#{key}") == -(1 << 31)
    assert index_key_hash("T", key) == 0
    file = new_file()
    file.put_key(index_key_hash("T", key), 700, T0)
    assert entry(file, 1).key_hash == 0
    assert select(file, 0) == [700]


@pytest.mark.parametrize("previous", [2, 3, 5, ENTRIES, 1000, -1])
def test_a_damaged_chain_ends(previous: int) -> None:
    file = new_file()
    for offset in range(4):
        file.put_key(3, offset, T0)
    position = layout.entry_position(SLOTS, 2)
    layout.ENTRY.pack_into(file.mapping, position, 3, 1, 0, previous)
    assert select(file, 3) == [3, 2, 1]


@pytest.mark.parametrize("value", [-1, ENTRIES, 1 << 30])
def test_a_slot_that_leads_nowhere_is_empty(value: int) -> None:
    file = new_file()
    file.put_key(1, 100, T0)
    layout.SLOT.pack_into(file.mapping, layout.slot_position(3), value)
    assert select(file, 3) == []
    file.put_key(3, 200, T0)
    assert entry(file, 2).previous == 0
    assert select(file, 3) == [200]


# -- building and querying ------------------------------------------------------------------


def test_unique_key_then_each_word_of_keys_then_tags(bench: Bench) -> None:
    index = bench.service()
    index.build(record(100, unique_key="U", keys=" a  b ", tags="x || y"))
    (file,) = index.index_files
    hashes = [entry(file, number).key_hash for number in range(1, file.header.index_count)]
    assert hashes == [
        index_key_hash("T", "U"),
        index_key_hash("T", "a"),
        index_key_hash("T", "b"),
        index_key_hash("T", "T#x || y"),
    ]
    assert find(index, "a") == [100]
    assert find(index, "x || y") == []
    assert find(index, tag_key("x || y")) == [100]
    assert find(index, "a", topic="other") == []
    index.close()


def test_non_ascii_keys(bench: Bench) -> None:
    index = bench.service()
    keys = ["ключ", "鍵", "🔑", "e\u0301"]
    index.build(record(100, keys=" ".join(keys)))
    assert [find(index, key) for key in keys] == [[100]] * 4
    assert entry(index.index_files[0], 3).key_hash == abs(java_hash("T#\ud83d\udd11"))
    index.close()


def test_record_without_keys_makes_no_file(bench: Bench) -> None:
    index = bench.service()
    index.build(record(100))
    assert index.file_count == 0
    assert not bench.root.exists()
    assert index.query("T", "k", 8, 0, FOREVER_MS) == QueryOffsetResult([], 0, 0)


@pytest.mark.parametrize(
    ("kind", "indexed"),
    [
        (flags.TRANSACTION_NOT, True),
        (flags.TRANSACTION_PREPARED, True),
        (flags.TRANSACTION_COMMIT, True),
        (flags.TRANSACTION_ROLLBACK, False),
    ],
)
def test_only_rolled_back_records_are_left_out(bench: Bench, kind: int, *, indexed: bool) -> None:
    index = bench.service()
    index.build(record(100, keys="k", sys_flag=kind | flags.COMPRESSED))
    assert find(index, "k") == ([100] if indexed else [])
    index.close()


def test_records_before_the_end_are_skipped_and_the_one_at_the_end_is_put_again(
    bench: Bench,
) -> None:
    index = bench.service()
    for offset in (100, 200, 100, 200, 199):
        index.build(record(offset, keys="k"))
    assert find(index, "k") == [200, 200, 100]
    index.close()


def test_new_file_starts_where_the_last_one_ended(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 6))
    assert index.file_count == 1
    rolled = index.last_writable()
    assert index.index_files[1] is rolled
    assert rolled.header == IndexHeader(T0 + 5000, T0 + 5000, 500, 500, 0, 1)
    assert index.query("T", "none", 8, 0, FOREVER_MS) == ([], T0 + 5000, 500)
    bench.fill(index, range(8, 9))
    assert rolled.header == IndexHeader(T0 + 8000, T0 + 8000, 800, 800, 1, 2)
    assert entry(rolled, 1).seconds == 3
    assert index.total_bytes == 2 * FILE_BYTES
    index.close()


def test_keys_of_one_record_may_lie_in_two_files(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 4))
    index.build(record(900, keys="a b c d"))
    assert index.file_count == 2
    assert [find(index, key) for key in "abcd"] == [[900]] * 4
    index.close()


def test_query_goes_from_the_newest_file_to_the_oldest(bench: Bench) -> None:
    index = bench.service()
    for number in range(12):
        index.build(record(number, keys="k", store_timestamp_ms=T0 + number * 1000))
    assert index.file_count == 3
    assert find(index, "k") == list(range(11, -1, -1))
    assert index.query("T", "k", 6, 0, FOREVER_MS) == ([11, 10, 9, 8, 7, 6], T0 + 11000, 11)
    assert index.query("T", "k", 0, 0, FOREVER_MS) == ([], T0 + 11000, 11)
    middle = index.query("T", "k", 64, T0 + 3000, T0 + 5999)
    # The first entry of a rolled file counts from the file before it, here one second.
    assert middle.physical_offsets == [4, 3]
    assert index.query("T", "k", 64, T0 - 5000, T0 - 1).physical_offsets == []
    assert index.query("T", "k", 64, T0 + 60_000, FOREVER_MS).physical_offsets == []
    index.close()


def test_file_names_are_the_local_time_and_always_grow(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 6))
    first = index.index_files[0].path.name
    assert first == bench.clock.local_stamp()
    bench.fill(index, range(6, 11))
    bench.clock.set(T0 - 3_600_000)
    bench.fill(index, range(11, 12))
    names = [file.path.name for file in index.index_files]
    assert names == [first, str(int(first) + 1), str(int(first) + 2)]
    index.close()


def test_a_name_carries_into_the_next_second_minute_and_year(bench: Bench) -> None:
    bench.root.mkdir()
    (bench.root / "20231231235959999").write_bytes(full_file(last=5))
    bench.clock.set(0)
    index = bench.reopen()
    bench.fill(index, range(6, 7))
    assert index.index_files[1].path.name == "20240101000000000"
    index.close()


def test_a_taken_name_is_passed_over(bench: Bench) -> None:
    index = bench.service()
    bench.root.mkdir()
    stamp = bench.clock.local_stamp()
    (bench.root / stamp).write_bytes(b"in the way")
    bench.fill(index, range(1, 2))
    assert index.index_files[0].path.name == str(int(stamp) + 1)
    assert (bench.root / stamp).read_bytes() == b"in the way"
    index.close()


@pytest.mark.parametrize(("slots", "entries"), [(0, 6), (7, 1)])
def test_sizes_that_cannot_work_are_refused(bench: Bench, slots: int, entries: int) -> None:
    with pytest.raises(ConfigError) as raised:
        IndexService(Files(), bench.root, slots=slots, entries=entries, clock=bench.clock)
    assert raised.value.hint


# -- loading --------------------------------------------------------------------------------


def full_file(*, last: int) -> bytes:
    """A full file whose newest record is number ``last``."""
    file = new_file()
    for number in range(last - ENTRIES + 2, last + 1):
        key_hash = index_key_hash("T", f"k{number}")
        assert file.put_key(key_hash, number * 100, T0 + number * 1000)
    return bytes(file.mapping[:])


def test_clean_reopen_keeps_every_byte_and_goes_on(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 8))
    index.close()
    before = bench.contents()
    index = bench.service()
    assert index.load(last_exit_ok=True, index_msg_timestamp_ms=0) is None
    assert bench.contents() == before
    bench.fill(index, range(1, 12))
    assert [find(index, f"k{number}") for number in range(1, 12)] == [
        [100 * number] if number != 7 else [700, 700] for number in range(1, 12)
    ]
    index.close()


def test_blocks_of_a_sparse_file_are_reserved_before_it_is_written(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 3))
    index.close()
    files = FailingFiles()
    index = bench.service(files)
    index.load(last_exit_ok=True, index_msg_timestamp_ms=0)
    assert "allocate" not in files.calls
    bench.fill(index, range(3, 5))
    assert files.calls.count("allocate") == 1
    index.close()
    disk_full = FailingFiles()
    index = bench.service(disk_full)
    index.load(last_exit_ok=True, index_msg_timestamp_ms=0)
    disk_full.fail_at = len(disk_full.calls) + 1
    with pytest.raises(OSError, match="No space left"):
        bench.fill(index, range(5, 6))
    assert find(index, "k4") == [400]
    index.close()


def test_unclean_exit_keeps_full_files_up_to_the_checkpoint(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 14))
    checkpoint_ms = index.flush(thorough=False)
    assert checkpoint_ms == T0 + 10_000
    index.close()
    names = sorted(bench.contents())
    index = bench.service()
    resume_offset = index.load(last_exit_ok=False, index_msg_timestamp_ms=checkpoint_ms)
    assert resume_offset == 1000
    assert sorted(bench.contents()) == names[:2]
    assert index.durable_timestamp_ms == checkpoint_ms
    bench.fill(index, range(resume_offset // 100, 14))
    assert all(find(index, f"k{number}") for number in range(1, 14))
    index.close()


def test_a_file_past_the_checkpoint_is_in_doubt_even_if_full(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 11))
    index.close()
    index = bench.service()
    assert index.load(last_exit_ok=False, index_msg_timestamp_ms=T0 + 5000) == 500
    assert index.file_count == 1
    index.close()


@pytest.mark.parametrize(
    ("checkpoint_ms", "kept"), [(T0 + 4999, 0), (T0 + 5000, 1), (T0 + 6000, 1)]
)
def test_the_checkpoint_decides_to_the_millisecond(
    bench: Bench, checkpoint_ms: int, kept: int
) -> None:
    index = bench.service()
    bench.fill(index, range(1, 6))
    index.close()
    assert bench.reopen(clean=False, checkpoint_ms=checkpoint_ms).file_count == kept


def test_an_unfilled_file_is_in_doubt_although_it_ends_at_the_checkpoint(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 6))
    index.last_writable()
    index.close()
    index = bench.service()
    assert index.load(last_exit_ok=False, index_msg_timestamp_ms=T0 + 5000) == 500
    assert index.file_count == 1
    index.close()


def test_a_file_filled_in_the_millisecond_of_the_checkpoint_is_in_doubt(bench: Bench) -> None:
    index = bench.service()
    for number in range(10):
        index.build(record(number, keys=f"k{number}"))
    index.close()
    index = bench.service()
    assert index.load(last_exit_ok=False, index_msg_timestamp_ms=T0) == 4
    assert index.file_count == 1
    index.close()


def test_everything_behind_a_torn_file_is_in_doubt(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 16))
    index.close()
    names = sorted(bench.contents())
    with (bench.root / names[1]).open("r+b") as torn:
        torn.write(bytes(layout.HEADER_BYTES))
    index = bench.service()
    assert index.load(last_exit_ok=False, index_msg_timestamp_ms=T0 + 15_000) == 500
    assert sorted(bench.contents()) == names[:1]
    index.close()


def test_without_a_kept_file_records_resume_where_the_oldest_began(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(3, 5))
    index.close()
    index = bench.service()
    assert index.load(last_exit_ok=False, index_msg_timestamp_ms=0) == 300
    assert bench.contents() == {}


def test_recovery_that_died_is_resumed_from_the_kept_end(bench: Bench) -> None:
    """The removal happened, the records were not put again, and the process died once more."""
    index = bench.service()
    bench.fill(index, range(1, 8))
    index.close()
    for _ in range(3):
        index = bench.service()
        assert index.load(last_exit_ok=False, index_msg_timestamp_ms=T0 + 5000) == 500
    (bench.root / index.index_files[0].path.name).unlink()
    index = bench.service()
    assert index.load(last_exit_ok=False, index_msg_timestamp_ms=T0 + 5000) == 0


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("length", [0, 10, FILE_BYTES - 1])
def test_a_creation_that_did_not_end_is_removed(bench: Bench, length: int, *, clean: bool) -> None:
    index = bench.service()
    bench.fill(index, range(1, 6))
    index.close()
    before = bench.contents()
    (bench.root / "29991231235959999").write_bytes(bytes(length))
    index = bench.service()
    resume_offset = index.load(last_exit_ok=clean, index_msg_timestamp_ms=T0 + 5000)
    assert resume_offset == (None if clean else 500)
    assert bench.contents() == before
    index.close()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("20240101000000000", b"\0" * 8 + b"\1" + b"\0" * 100),
        ("20240101000000000", bytes(FILE_BYTES + 1)),
        ("2024010100000000", bytes(FILE_BYTES)),
        ("20240101000000000.bak", bytes(FILE_BYTES)),
        ("20241301000000000", bytes(FILE_BYTES)),
        ("2024010100000000\u0660", bytes(FILE_BYTES)),
    ],
)
@pytest.mark.parametrize("clean", [True, False])
def test_a_strange_file_is_refused_and_nothing_changes(
    bench: Bench, name: str, data: bytes, *, clean: bool
) -> None:
    bench.root.mkdir()
    (bench.root / name).write_bytes(data)
    (bench.root / "19990101000000000").write_bytes(b"")
    (bench.root / "29990101000000000").write_bytes(full_file(last=9))
    before = bench.contents()
    index = bench.service()
    with pytest.raises(StoreDamaged) as raised:
        index.load(last_exit_ok=clean, index_msg_timestamp_ms=0)
    assert raised.value.detail is not None
    assert name in raised.value.detail
    assert raised.value.hint
    assert bench.contents() == before
    assert index.file_count == 0


def test_a_directory_in_place_of_a_file_is_refused(bench: Bench) -> None:
    (bench.root / "20240101000000000").mkdir(parents=True)
    with pytest.raises(StoreDamaged, match="no index file"):
        bench.service().load(last_exit_ok=True, index_msg_timestamp_ms=0)


# -- the log was cut ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log_end", "resume_offset", "kept"),
    [
        (1301, None, 3),
        (1300, 1000, 2),
        (1001, 1000, 2),
        (1000, 500, 1),
        (501, 500, 1),
        (500, 100, 0),
        (100, 100, 0),
        (50, 50, 0),
    ],
)
def test_files_with_entries_at_or_beyond_the_cut_are_removed(
    bench: Bench, log_end: int, resume_offset: int | None, kept: int
) -> None:
    index = bench.service()
    bench.fill(index, range(1, 14))
    assert index.flush(thorough=False) == T0 + 10_000
    assert index.doubtful_from(log_end) == resume_offset
    assert index.file_count == len(bench.contents()) == kept
    assert index.durable_timestamp_ms == (0, T0 + 5000, T0 + 10_000, T0 + 10_000)[kept]
    if resume_offset is not None:
        bench.fill(index, range(resume_offset // 100, log_end // 100))
        bench.fill(index, range(20, 22))
    for number in range(1, 14):
        assert bool(find(index, f"k{number}")) == (number * 100 < log_end)
    index.close()


# -- removing -------------------------------------------------------------------------------


def test_expired_files_go_and_the_newest_stays(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 14))
    assert index.delete_expired(500) == 0
    assert index.delete_expired(501) == 1
    assert index.file_count == len(bench.contents()) == 2
    assert find(index, "k5") == []
    assert find(index, "k6") == [600]
    assert index.delete_expired(1 << 40) == 1
    assert index.file_count == len(bench.contents()) == 1
    assert index.delete_expired(1 << 40) == 0
    bench.fill(index, range(14, 16))
    assert find(index, "k15") == [1500]
    index.close()


def test_destroy_leaves_no_file(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 14))
    index.destroy()
    assert bench.contents() == {}
    assert index.total_bytes == 0


# -- flushing -------------------------------------------------------------------------------


def test_full_files_are_synced_once_and_the_newest_when_asked(bench: Bench) -> None:
    files = FailingFiles()
    index = bench.service(files)
    assert index.flush(thorough=True) == 0
    bench.fill(index, range(1, 4))
    assert index.flush(thorough=False) == 0
    assert files.calls.count("data_sync") == 0
    assert index.flush(thorough=True) == 0
    assert files.calls.count("data_sync") == 1
    bench.fill(index, range(4, 12))
    assert index.flush(thorough=False) == T0 + 10_000
    assert files.calls.count("data_sync") == 3
    assert index.flush(thorough=False) == T0 + 10_000
    assert files.calls.count("data_sync") == 3
    index.close()
    assert files.calls.count("data_sync") == 4
    assert bench.reopen().durable_timestamp_ms == T0 + 10_000


def test_a_failed_sync_vouches_for_nothing(bench: Bench) -> None:
    files = FailingFiles(number=errno.EIO)
    index = bench.service(files)
    bench.fill(index, range(1, 12))
    files.fail_at = len(files.calls) + 2  # the second file
    with pytest.raises(OSError, match="Input/output"):
        index.flush(thorough=False)
    assert index.durable_timestamp_ms == T0 + 5000
    index.close()


def test_a_file_removed_during_its_sync_keeps_its_descriptor_until_the_end(bench: Bench) -> None:
    class SlowFiles(Files):
        during: Callable[[], None] | None = None
        synced: int = -1
        closed: list[int]

        def __init__(self) -> None:
            self.closed = []

        def data_sync(self, fd: int) -> None:
            if self.during is not None:
                self.during()
            assert fd not in self.closed
            super().data_sync(fd)

        def close(self, fd: int) -> None:
            self.closed.append(fd)
            super().close(fd)

    files = SlowFiles()
    index = bench.service(files)
    bench.fill(index, range(1, 12))
    oldest = index.index_files[0].fd
    reached, go_on = threading.Event(), threading.Event()

    def during() -> None:
        files.during = None
        reached.set()
        assert go_on.wait(60)

    files.during = during
    results: list[int] = []
    flusher = threading.Thread(target=lambda: results.append(index.flush(thorough=False)))
    flusher.start()
    assert reached.wait(60)
    assert index.delete_expired(501) == 1
    assert oldest not in files.closed
    go_on.set()
    flusher.join(60)
    assert results == [T0 + 10_000]
    assert oldest in files.closed
    index.close()


def test_mapping_outlives_the_service_while_it_is_used(bench: Bench) -> None:
    index = bench.service()
    bench.fill(index, range(1, 3))
    (file,) = index.index_files
    index.close()
    assert index.file_count == 0
    assert file.header.index_count == 3


# -- failing calls --------------------------------------------------------------------------


def open_descriptors() -> int:
    gc.collect()  # what other tests left to the collector must not be closed between two counts
    return len(list(Path("/proc/self/fd").iterdir()))


def test_building_survives_every_failing_call(tmp_path: Path) -> None:
    """Fail the n-th call, put the record again as the store does, and miss no key."""
    seen: set[str] = set()
    for fail_at in count(1):
        bench = Bench(tmp_path / str(fail_at) / "index")
        bench.root.parent.mkdir()
        before = open_descriptors()
        files = FailingFiles(fail_at)
        index = bench.service(files)
        for number in range(1, 13):
            try:
                bench.fill(index, range(number, number + 1))
            except OSError:
                seen.add(files.calls[fail_at - 1])
                assert index.file_count == len(bench.contents())
                assert all(len(data) == FILE_BYTES for data in bench.contents().values())
                bench.fill(index, range(number, number + 1))
        assert all(find(index, f"k{number}") for number in range(1, 13))
        failed = files.has_failed
        files.fail_at = 0
        index.close()
        assert open_descriptors() == before
        reopened = bench.reopen()
        assert all(find(reopened, f"k{number}") for number in range(1, 13))
        reopened.close()
        if not failed:
            break
    assert seen == {"make_dirs", "create", "allocate", "map", "sync_dir"}


def test_recovery_survives_every_failing_call(tmp_path: Path) -> None:
    """Fail the n-th call of a start after a crash, start again, and miss no key."""
    seen: set[str] = set()
    for fail_at in count(1):
        bench = Bench(tmp_path / str(fail_at) / "index")
        bench.root.parent.mkdir()
        index = bench.service()
        bench.fill(index, range(1, 14))
        index.close()
        (bench.root / "29990101000000000").write_bytes(b"")
        before = open_descriptors()
        files = FailingFiles(fail_at)
        index = bench.service(files)
        with suppress(OSError):
            index.load(last_exit_ok=False, index_msg_timestamp_ms=T0 + 5000)
        failed = files.has_failed
        files.fail_at = 0
        if failed:
            seen.add(files.calls[fail_at - 1])
            assert index.file_count == 0
            assert open_descriptors() == before
            index = bench.service()
            assert index.load(last_exit_ok=False, index_msg_timestamp_ms=T0 + 5000) == 500
        assert index.file_count == len(bench.contents()) == 1
        bench.fill(index, range(5, 14))
        assert all(find(index, f"k{number}") for number in range(1, 14))
        index.close()
        if not failed:
            break
    assert seen >= {"list_dir", "open", "length", "map", "unlink", "sync_dir"}
