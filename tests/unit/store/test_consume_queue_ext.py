from __future__ import annotations

import errno
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from roquet.errors import StoreDamaged
from roquet.format import consume_queue_ext as layout
from roquet.format.consume_queue_ext import CqExtUnit, address_of, real_offset_of
from roquet.runtime.files import Files
from roquet.store.consume_queue_ext import ConsumeQueueExt
from tests.unit.store.failing_files import FailingFiles

FILE_BYTES = 100  # four units of 20 bytes, or two of 47
FIRST, SECOND, THIRD = "0" * 20, "0" * 17 + "100", "0" * 17 + "200"


def unit(number: int, *, bitmap: bytes = b"") -> CqExtUnit:
    return CqExtUnit(number, 1_700_000_000_000 + number, bitmap)


class Bench:
    """Ext files in a directory, opened as often as a test likes."""

    def __init__(self, root: Path) -> None:
        self.root = root / "consumequeue_ext" / "T" / "0"

    def ext(self, files: Files | None = None) -> ConsumeQueueExt:
        return ConsumeQueueExt(files or Files(), self.root, file_bytes=FILE_BYTES)

    def reopen(self) -> ConsumeQueueExt:
        ext = self.ext()
        ext.load()
        ext.recover()
        return ext

    def contents(self) -> dict[str, bytes]:
        if not self.root.exists():
            return {}
        return {path.name: path.read_bytes() for path in sorted(self.root.iterdir())}

    def patch(self, name: str, position: int, data: bytes) -> None:
        with (self.root / name).open("r+b") as file:
            file.seek(position)
            file.write(data)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def put_numbers(ext: ConsumeQueueExt, numbers: range) -> list[int]:
    return [ext.put(unit(number)) for number in numbers]


# -- putting and getting --------------------------------------------------------------------


def test_an_empty_queue(bench: Bench) -> None:
    ext = bench.reopen()
    assert ext.max_address == address_of(0)
    assert ext.get(address_of(0)) is None
    assert not bench.root.exists()


def test_units_follow_each_other(bench: Bench) -> None:
    ext = bench.ext()
    first = ext.put(unit(1, bitmap=b"\x01" * 27))
    second = ext.put(unit(2))
    assert (first, second, ext.max_address) == (address_of(0), address_of(47), address_of(67))
    assert ext.get(first) == unit(1, bitmap=b"\x01" * 27)
    assert ext.get(second) == unit(2)
    data = layout.pack_unit(unit(1, bitmap=b"\x01" * 27)) + layout.pack_unit(unit(2))
    assert bench.contents() == {FIRST: data.ljust(FILE_BYTES, b"\0")}
    assert ext.total_bytes == FILE_BYTES


def test_only_addresses_of_units_point_to_units(bench: Bench) -> None:
    ext = bench.ext()
    put_numbers(ext, range(2))
    for address in (0, 1, 20, -1, address_of(40), address_of(19), address_of(1 << 40)):
        assert ext.get(address) is None


def test_a_file_ends_where_the_next_unit_would_reach_its_last_four_bytes(bench: Bench) -> None:
    ext = bench.ext()
    put_numbers(ext, range(3))
    fits = unit(3, bitmap=b"\x07" * 16)  # 36 bytes, up to 96
    assert ext.put(fits) == address_of(60)
    assert ext.put(unit(4)) == address_of(FILE_BYTES)
    data = bench.contents()
    assert data[FIRST][60:] == layout.pack_unit(fits) + b"\xff\xff\0\0"
    assert data[SECOND][:20] == layout.pack_unit(unit(4))
    assert ext.get(address_of(60)) == fits
    assert ext.get(address_of(FILE_BYTES)) == unit(4)
    assert ext.get(address_of(96)) is None


def test_a_unit_one_byte_too_long_goes_to_the_next_file(bench: Bench) -> None:
    ext = bench.ext()
    put_numbers(ext, range(3))
    assert ext.put(unit(3, bitmap=b"\x07" * 17)) == address_of(FILE_BYTES)
    assert bench.contents()[FIRST][60:] == b"\xff\xff".ljust(40, b"\0")


def test_too_big_a_unit_gets_no_address_and_changes_nothing(bench: Bench) -> None:
    ext = bench.ext()
    put_numbers(ext, range(1))
    before = bench.contents()
    assert ext.put(unit(1, bitmap=bytes(FILE_BYTES - 4 - 20 + 1))) == 1
    assert ext.put_message(tags_code=1, store_time_ms=2, bitmap=bytes(40_000)) is None
    assert bench.contents() == before
    assert ext.max_address == address_of(20)
    wide = ConsumeQueueExt(Files(), bench.root.parent / "1", file_bytes=1 << 17)
    assert wide.put(unit(1, bitmap=bytes(32767 - 20 + 1))) == 1
    largest = unit(1, bitmap=b"\x05" * (32767 - 20))
    assert wide.get(wide.put(largest)) == largest


def test_put_message(bench: Bench) -> None:
    ext = bench.ext()
    address = ext.put_message(tags_code=7, store_time_ms=8, bitmap=None)
    assert address == address_of(0)
    assert ext.get(address) == CqExtUnit(7, 8)


# -- loading --------------------------------------------------------------------------------


def test_reopening_keeps_every_byte_and_continues(bench: Bench) -> None:
    ext = bench.ext()
    addresses = put_numbers(ext, range(10))
    end = ext.max_address
    ext.close()
    before = bench.contents()
    ext = bench.reopen()
    assert ext.max_address == end
    assert bench.contents() == before
    assert [ext.get(address) for address in addresses] == [unit(number) for number in range(10)]
    assert ext.put(unit(10)) == end


def test_until_recovery_the_files_count_as_full(bench: Bench) -> None:
    put_numbers(bench.ext(), range(2))
    ext = bench.ext()
    ext.load()
    assert ext.max_address == address_of(FILE_BYTES)
    assert ext.get(address_of(20)) == unit(1)
    assert ext.get(address_of(40)) is None


def test_an_ended_file_without_a_successor_takes_a_smaller_unit(bench: Bench) -> None:
    ext = bench.ext()
    put_numbers(ext, range(3))
    ext.put(unit(3, bitmap=bytes(17)))
    (bench.root / SECOND).unlink()
    ext = bench.reopen()
    assert ext.max_address == address_of(60)
    assert ext.put(unit(4)) == address_of(60)
    assert bench.contents()[FIRST][60:] == layout.pack_unit(unit(4)).ljust(40, b"\0")


@pytest.mark.parametrize(
    "garbage", [b"\x7f\xff", b"\x00\x14" + b"\x01" * 30, b"\xff\xfe", b"\x00\x28" + bytes(16)]
)
def test_bytes_that_are_no_unit_are_erased(bench: Bench, garbage: bytes) -> None:
    put_numbers(bench.ext(), range(2))
    clean = bench.contents()
    bench.patch(FIRST, 40, garbage)
    ext = bench.reopen()
    assert ext.max_address == address_of(40)
    assert bench.contents() == clean


def test_units_after_a_lost_page_are_erased(bench: Bench) -> None:
    put_numbers(bench.ext(), range(4))
    bench.patch(FIRST, 20, bytes(20))
    ext = bench.reopen()
    assert ext.max_address == address_of(20)
    assert bench.contents()[FIRST] == layout.pack_unit(unit(0)).ljust(FILE_BYTES, b"\0")


@pytest.mark.parametrize("length", [0, 20, 80])
def test_a_length_that_a_crash_took_is_restored(bench: Bench, length: int) -> None:
    """A creation, or the erasure of a remainder, that did not finish."""
    put_numbers(bench.ext(), range(6))
    (bench.root / SECOND).write_bytes(b"".join(map(layout.pack_unit, map(unit, range(4))))[:length])
    ext = bench.reopen()
    assert ext.max_address == address_of(FILE_BYTES + length)
    assert len(bench.contents()[SECOND]) == FILE_BYTES


@pytest.mark.parametrize("length", [1, 19, 21, 99, 101])
def test_another_length_is_refused_and_nothing_changes(bench: Bench, length: int) -> None:
    put_numbers(bench.ext(), range(6))
    (bench.root / SECOND).write_bytes(b"\x01" * length)
    before = bench.contents()
    with pytest.raises(StoreDamaged) as raised:
        bench.ext().load()
    assert raised.value.detail
    assert raised.value.hint
    assert bench.contents() == before


def test_files_of_another_size_are_refused(bench: Bench) -> None:
    put_numbers(bench.ext(), range(2))
    before = bench.contents()
    for file_bytes in (FILE_BYTES - 1, FILE_BYTES + 1, 2 * FILE_BYTES):
        with pytest.raises(StoreDamaged):
            ConsumeQueueExt(Files(), bench.root, file_bytes=file_bytes).load()
    assert bench.contents() == before


def test_a_missing_file_is_refused(bench: Bench) -> None:
    put_numbers(bench.ext(), range(10))
    (bench.root / SECOND).unlink()
    with pytest.raises(StoreDamaged, match="missing"):
        bench.ext().load()


def test_a_strange_name_is_refused(bench: Bench) -> None:
    put_numbers(bench.ext(), range(2))
    (bench.root / "zzz").mkdir()
    with pytest.raises(StoreDamaged):
        bench.ext().load()


# -- cutting --------------------------------------------------------------------------------


def test_cut_after_a_unit(bench: Bench) -> None:
    ext = bench.ext()
    addresses = put_numbers(ext, range(10))
    assert ext.truncate_by_max_address(addresses[5])
    assert ext.max_address == address_of(FILE_BYTES + 40)
    data = bench.contents()
    assert list(data) == [FIRST, SECOND]
    expected = layout.pack_unit(unit(4)) + layout.pack_unit(unit(5))
    assert data[SECOND] == expected.ljust(FILE_BYTES, b"\0")
    assert [ext.get(address) is not None for address in addresses] == [True] * 6 + [False] * 4
    assert bench.reopen().max_address == ext.max_address
    assert ext.put(unit(20)) == addresses[6]
    assert ext.get(addresses[6]) == unit(20)


def test_cut_of_an_ended_file_takes_its_end_mark(bench: Bench) -> None:
    ext = bench.ext()
    addresses = put_numbers(ext, range(6))
    assert ext.truncate_by_max_address(addresses[3])
    assert bench.contents()[FIRST][80:] == bytes(20)
    assert ext.max_address == address_of(80)


def test_cut_at_the_end_writes_nothing(bench: Bench) -> None:
    files = FailingFiles()
    ext = bench.ext(files)
    addresses = put_numbers(ext, range(3))
    files.calls.clear()
    assert ext.truncate_by_max_address(addresses[-1])
    assert set(files.calls) == {"open", "read_at", "close"}


@pytest.mark.parametrize("tags_code", [0, 1, -1])
def test_a_tags_code_cuts_nothing(bench: Bench, tags_code: int) -> None:
    ext = bench.ext()
    put_numbers(ext, range(6))
    before = bench.contents()
    assert not ext.truncate_by_max_address(tags_code)
    ext.truncate_by_min_address(tags_code)
    assert bench.contents() == before


@pytest.mark.parametrize("lost", [20, 60, 99])
def test_the_address_of_a_lost_unit_is_not_reused(bench: Bench, lost: int) -> None:
    """The queue's entry reached the disk, the unit did not."""
    put_numbers(bench.ext(), range(1))
    ext = bench.reopen()
    assert not ext.truncate_by_max_address(address_of(lost))
    assert ext.get(address_of(lost)) is None
    assert ext.put(unit(7)) == address_of(FILE_BYTES)
    assert ext.get(address_of(lost)) is None
    assert ext.get(address_of(0)) == unit(0)
    ext = bench.reopen()
    assert ext.max_address == address_of(FILE_BYTES + 20)


def test_an_address_far_beyond_all_files_changes_nothing(bench: Bench) -> None:
    ext = bench.ext()
    put_numbers(ext, range(1))
    before = bench.contents()
    assert not ext.truncate_by_max_address(address_of(FILE_BYTES * 1000))
    assert bench.contents() == before


def test_files_before_an_address_are_removed_except_the_last(bench: Bench) -> None:
    ext = bench.ext()
    addresses = put_numbers(ext, range(10))
    ext.truncate_by_min_address(address_of(FILE_BYTES))
    assert list(bench.contents()) == [FIRST, SECOND, THIRD]
    ext.truncate_by_min_address(address_of(FILE_BYTES + 20))
    assert list(bench.contents()) == [SECOND, THIRD]
    assert ext.get(addresses[3]) is None
    assert ext.get(addresses[4]) == unit(4)
    ext.truncate_by_min_address(address_of(1 << 40))
    assert list(bench.contents()) == [THIRD]
    ext = bench.reopen()
    assert ext.get(addresses[9]) == unit(9)
    assert real_offset_of(ext.put(unit(10))) == 2 * FILE_BYTES + 40


def test_destroy_leaves_nothing(bench: Bench) -> None:
    ext = bench.ext()
    put_numbers(ext, range(10))
    ext.destroy()
    assert not bench.root.exists()
    assert ext.put(unit(1)) == address_of(0)


# -- flushing and failing calls -------------------------------------------------------------


def test_only_files_written_since_the_last_flush_are_synced(bench: Bench) -> None:
    files = FailingFiles()
    ext = bench.ext(files)

    def syncs() -> int:
        files.calls.clear()
        ext.flush()
        return files.calls.count("data_sync")

    assert syncs() == 0
    put_numbers(ext, range(2))
    assert (syncs(), syncs()) == (1, 0)
    put_numbers(ext, range(2, 10))
    assert (syncs(), syncs()) == (3, 0)
    put_numbers(ext, range(1))
    assert (syncs(), syncs()) == (1, 0)


def test_a_failed_sync_is_retried_in_full(bench: Bench) -> None:
    files = FailingFiles(number=errno.EIO)
    ext = bench.ext(files)
    put_numbers(ext, range(6))
    files.calls.clear()
    files.fail_at = 5  # the sync of the second file
    with pytest.raises(OSError, match="Input/output"):
        ext.flush()
    files.calls.clear()
    files.fail_at = 0
    ext.flush()
    assert files.calls.count("data_sync") == 2


def test_flush_skips_a_file_deleted_meanwhile(bench: Bench) -> None:
    ext = bench.ext()
    put_numbers(ext, range(6))
    (bench.root / FIRST).unlink()
    ext.flush()
    assert ext.get(address_of(0)) is None


def test_every_failing_call_leaves_a_usable_queue(tmp_path: Path) -> None:
    """Fail the n-th call; units that got an address are found, here and after the next start."""
    seen: set[str] = set()
    for fail_at in count(1):
        bench = Bench(tmp_path / str(fail_at))
        files = FailingFiles(fail_at)
        ext = bench.ext(files)
        found: dict[int, CqExtUnit] = {}
        for number in range(10):
            with suppress(OSError):
                found[ext.put(unit(number))] = unit(number)
        with suppress(OSError):
            ext.flush()
        last = max(found)
        with suppress(OSError):
            ext.truncate_by_max_address(last)
        failed = files.has_failed
        if failed:
            seen.add(files.calls[fail_at - 1])
        files.fail_at = 0
        assert len(found) >= 9
        assert {address: ext.get(address) for address in found} == found
        ext.close()
        ext = bench.reopen()
        assert ext.truncate_by_max_address(last)
        assert {address: ext.get(address) for address in found} == found
        assert ext.put(unit(99)) not in found
        if not failed:
            break
    assert seen >= {"make_dirs", "create", "truncate", "write_at", "sync_dir", "open", "close"}


def test_every_failing_call_of_a_cut_can_be_repeated(tmp_path: Path) -> None:
    for fail_at in count(1):
        bench = Bench(tmp_path / str(fail_at))
        addresses = put_numbers(bench.ext(), range(10))
        files = FailingFiles(fail_at)
        ext = bench.ext(files)
        with suppress(OSError):
            ext.load()
            ext.recover()
            ext.truncate_by_max_address(addresses[1])
        failed = files.has_failed
        ext = bench.reopen()
        assert ext.truncate_by_max_address(addresses[1])
        expected = layout.pack_unit(unit(0)) + layout.pack_unit(unit(1))
        assert bench.contents() == {FIRST: expected.ljust(FILE_BYTES, b"\0")}
        if not failed:
            break
