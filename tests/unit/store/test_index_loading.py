"""What is kept of the index files when a store is opened, or its log was truncated."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.errors import StoreDamaged
from roquet.format import index_file as layout
from tests.unit.store.failing_files import FailingFiles
from tests.unit.store.index_kit import FILE_BYTES, T0, Bench, find, full_file, record


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "index")


# -- loading --------------------------------------------------------------------------------


def test_clean_reopen_keeps_every_byte_and_continues(bench: Bench) -> None:
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


def test_everything_after_a_torn_file_is_in_doubt(bench: Bench) -> None:
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
    """The removal happened, the records were not indexed again, and the process died once more."""
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
def test_an_unfinished_creation_is_removed(bench: Bench, length: int, *, clean: bool) -> None:
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
    with pytest.raises(StoreDamaged, match="not an index file"):
        bench.service().load(last_exit_ok=True, index_msg_timestamp_ms=0)


# -- the log was truncated -------------------------------------------------------------------


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
