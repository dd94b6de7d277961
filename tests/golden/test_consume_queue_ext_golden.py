"""The ext files that Roquet builds from a log are, byte for byte, those that Java built from it.

Size, tags code and store time of every unit come from the log. The bitmap is the result of the
SQL92 filter at that time, which no log holds: its bytes are taken from the Java file, so they are
compared with themselves and only their place and length are checked.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.format import consume_queue as queue_layout
from roquet.format import consume_queue_ext as layout
from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue import CqUnit
from roquet.format.consume_queue_ext import CqExtUnit
from roquet.model import sys_flag as flags
from roquet.runtime.files import Files
from roquet.store.consume_queue_ext import ConsumeQueueExt
from tests.golden.records import log_records

FILE_BYTES = 4096
EXT = "consumequeue_ext"
STORES = ("store-ext-crash", "store-ext-clean")

Queue = tuple[str, int]


def queue_dirs(store: Path, kind: str) -> dict[Queue, Path]:
    return {(path.parent.name, int(path.name)): path for path in sorted((store / kind).glob("*/*"))}


def entries(directory: Path) -> list[CqUnit]:
    data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
    units = (
        queue_layout.unpack_unit(data, at) for at in range(0, len(data), queue_layout.UNIT_BYTES)
    )
    return [unit for unit in units if unit.is_written]


def java_units(directory: Path) -> list[CqExtUnit]:
    (path,) = directory.iterdir()
    data = path.read_bytes()
    units: list[CqExtUnit] = []
    position = 0
    while unit := layout.unpack_unit(data, position):
        units.append(unit)
        position += unit.size_bytes
    assert not any(data[position:])
    return units


def records_by_queue(store: Path) -> dict[Queue, list[DispatchRequest]]:
    queues: dict[Queue, list[DispatchRequest]] = defaultdict(list)
    for record in log_records(store):
        if flags.takes_queue_offset(record.sys_flag):
            queues[record.topic, record.queue_id].append(record)
    return queues


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def opened(directory: Path) -> ConsumeQueueExt:
    return ConsumeQueueExt(Files(), directory, file_bytes=FILE_BYTES)


def test_rebuilt_from_the_log(golden_data: Path, tmp_path: Path) -> None:
    store = golden_data / "store-ext-crash"
    queues = records_by_queue(store)
    java = queue_dirs(store, EXT)
    assert set(queues) == set(java) == set(queue_dirs(store, "consumequeue"))
    for (topic, queue_id), records in queues.items():
        directory = java[topic, queue_id]
        ext = opened(tmp_path / topic / str(queue_id))
        built = []
        for record, java_unit in zip(records, java_units(directory), strict=True):
            bitmap = java_unit.filter_bitmap
            assert bool(bitmap) == (topic == "GoldenSql")
            unit = CqExtUnit(record.tags_code, record.store_timestamp_ms, bitmap)
            built.append(CqUnit(record.physical_offset, record.size_bytes, ext.put(unit)))
        ext.close()
        assert contents(ext.root) == contents(directory)
        assert built == entries(queue_dirs(store, "consumequeue")[topic, queue_id])


def test_recovery_after_a_crash(golden_data: Path, tmp_path: Path) -> None:
    """Java writes a unit again for every record it reads, even if the queue has its entry."""
    crash, clean = (golden_data / name for name in STORES)
    shutil.copytree(crash / EXT, tmp_path / EXT, copy_function=shutil.copyfile)
    java = queue_dirs(clean, EXT)
    appended = 0
    for (topic, queue_id), records in records_by_queue(clean).items():
        kept = entries(queue_dirs(crash, "consumequeue")[topic, queue_id])
        ext = opened(tmp_path / EXT / topic / str(queue_id))
        ext.load()
        ext.recover()
        assert ext.truncate_by_max_address(kept[-1].tags_code)
        bitmaps = [unit.filter_bitmap for unit in java_units(java[topic, queue_id])[len(kept) :]]
        for record, bitmap in zip(records, bitmaps, strict=True):
            address = ext.put(CqExtUnit(record.tags_code, record.store_timestamp_ms, bitmap))
            if record.queue_offset == len(kept):
                kept.append(CqUnit(record.physical_offset, record.size_bytes, address))
                appended += 1
        ext.close()
        assert contents(ext.root) == contents(java[topic, queue_id])
        assert kept == entries(queue_dirs(clean, "consumequeue")[topic, queue_id])
    assert appended == 2


@pytest.mark.parametrize("name", STORES)
def test_every_entry_points_to_the_unit_of_its_record(
    golden_store: Callable[[str], Path], name: str
) -> None:
    store = golden_store(name)
    queues = records_by_queue(store)
    for queue, directory in queue_dirs(store, "consumequeue").items():
        ext = opened(queue_dirs(store, EXT)[queue])
        before = contents(ext.root)
        ext.load()
        ext.recover()
        for entry, record in zip(entries(directory), queues[queue], strict=True):
            assert layout.is_ext_address(entry.tags_code)
            unit = ext.get(entry.tags_code)
            assert unit is not None
            assert unit[:2] == (record.tags_code, record.store_timestamp_ms)
            assert len(unit.filter_bitmap) == (14 if queue[0] == "GoldenSql" else 0)
        assert layout.real_offset_of(ext.max_address) == sum(
            unit.size_bytes for unit in java_units(ext.root)
        )
        ext.close()
        assert contents(ext.root) == before
