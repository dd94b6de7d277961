"""The index that Roquet builds from a log is, byte for byte, the one that Java built from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.format.checkpoint import Checkpoint
from roquet.format.index_file import HEADER_BYTES, IndexHeader
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.index import IndexService
from tests.golden.records import log_records

SLOTS = 100
ENTRIES = 200
FOREVER_MS = 1 << 62

# A clean shutdown that followed a crash: the second file was rebuilt by a recovery.
RECOVERED = ("store-json-clean", "store-binary-clean", "store-ext-clean")


def service(root: Path) -> IndexService:
    return IndexService(Files(), root, slots=SLOTS, entries=ENTRIES, clock=ManualClock())


def contents(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(root.iterdir())]


def header_of(data: bytes) -> IndexHeader:
    return IndexHeader.unpack(data[:HEADER_BYTES])


def index_timestamp_ms(store: Path) -> int:
    return Checkpoint.unpack((store / "checkpoint").read_bytes()).index_msg_timestamp_ms


def test_index_of_the_whole_log(golden_data: Path, golden_store_name: str, tmp_path: Path) -> None:
    store = golden_data / golden_store_name
    index = service(tmp_path / "index")
    for record in log_records(store):
        index.build(record)
    checkpoint_ms = index.flush(thorough=False)
    index.close()
    built, java = contents(tmp_path / "index"), contents(store / "index")
    assert len(built) == len(java) == 2
    assert built[0] == java[0]
    assert checkpoint_ms == index_timestamp_ms(store) > 0
    if golden_store_name in RECOVERED:
        assert header_of(built[1]) != header_of(java[1])
    else:
        assert built[1] == java[1]


@pytest.mark.parametrize("clean", RECOVERED)
def test_recovery_after_a_crash(golden_data: Path, tmp_path: Path, clean: str) -> None:
    crash = golden_data / clean.replace("-clean", "-crash")
    root = tmp_path / "index"
    shutil.copytree(crash / "index", root, copy_function=shutil.copyfile)
    first, second = contents(root)
    index = service(root)
    resume_offset = index.load(last_exit_ok=False, index_msg_timestamp_ms=index_timestamp_ms(crash))
    assert contents(root) == [first]
    assert resume_offset == header_of(first).end_physical_offset
    assert resume_offset <= header_of(second).begin_physical_offset
    for record in log_records(golden_data / clean):
        index.build(record)
    index.close()
    assert contents(root) == contents(golden_data / clean / "index")


def test_the_record_at_the_end_of_the_kept_file_is_indexed_again(golden_data: Path) -> None:
    first, before = map(header_of, contents(golden_data / "store-json-crash" / "index"))
    _, after = map(header_of, contents(golden_data / "store-json-clean" / "index"))
    assert first.end_physical_offset == after.begin_physical_offset == 18332
    assert (before.index_count, after.index_count) == (184, 187)


def test_every_key_of_a_java_store_is_found(
    golden_store: Callable[[str], Path], golden_store_name: str
) -> None:
    store = golden_store(golden_store_name)
    before = contents(store / "index")
    index = service(store / "index")
    assert index.load(last_exit_ok=True, index_msg_timestamp_ms=0) is None
    keys = 0
    for record in log_records(store):
        words = [word for word in record.keys.split(" ") if word]
        for key in [record.unique_key, *words]:
            if key is not None:
                found = index.query(record.topic, key, 64, 0, FOREVER_MS)
                assert record.physical_offset in found.physical_offsets
                keys += 1
    assert keys > ENTRIES
    index.close()
    assert contents(store / "index") == before


def test_a_wrong_size_is_refused_and_nothing_changes(golden_store: Callable[[str], Path]) -> None:
    from roquet.errors import StoreDamaged

    store = golden_store("store-json-crash")
    before = contents(store / "index")
    index = IndexService(
        Files(), store / "index", slots=SLOTS, entries=2 * ENTRIES, clock=ManualClock()
    )
    with pytest.raises(StoreDamaged, match="wrong length") as raised:
        index.load(last_exit_ok=False, index_msg_timestamp_ms=0)
    assert raised.value.hint is not None
    assert "maxIndexNum" in raised.value.hint
    assert contents(store / "index") == before
