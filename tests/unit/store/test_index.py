"""The index over all its files: adding, finding, removing and flushing."""

from __future__ import annotations

import errno
import gc
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from roquet.errors import ConfigError
from roquet.format.index_file import IndexHeader
from roquet.model import sys_flag as flags
from roquet.model.java_string import index_key_hash, java_hash
from roquet.runtime.files import Files
from roquet.store.index import IndexService, QueryOffsetResult, tag_key
from tests.unit.store.failing_files import FailingFiles
from tests.unit.store.index_kit import (
    FILE_BYTES,
    FOREVER_MS,
    T0,
    Bench,
    entry,
    find,
    full_file,
    record,
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "index")


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
def test_only_rolled_back_records_are_skipped(bench: Bench, kind: int, *, indexed: bool) -> None:
    index = bench.service()
    index.build(record(100, keys="k", sys_flag=kind | flags.COMPRESSED))
    assert find(index, "k") == ([100] if indexed else [])
    index.close()


def test_records_before_the_end_are_skipped_and_the_one_at_the_end_is_indexed_again(
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


def test_a_taken_name_is_skipped(bench: Bench) -> None:
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


# -- removing -------------------------------------------------------------------------------


def test_expired_files_are_removed_and_the_newest_kept(bench: Bench) -> None:
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


def test_a_failed_sync_makes_nothing_trusted(bench: Bench) -> None:
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
    """Fail the n-th call, index the record again as the store does, and miss no key."""
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
