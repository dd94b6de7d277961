"""Synthetic stores, and what ``verify`` reports about them."""

from __future__ import annotations

from pathlib import Path

from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.inspect.report import Fault, Report
from roquet.store.inspect.verify import verify
from roquet.storefiles.view import StoreView
from tests.unit.store.synthetic import NOW_MS, Placed, SyntheticStore

SEGMENT_BYTES = 2048


def check(root: Path, *, now_ms: int = NOW_MS, index_slots: int | None = None) -> Report:
    with StoreView(Files(), root) as view:
        return verify(view, ManualClock(now_ms), index_slots=index_slots)


def named(report: Report, record: Placed) -> list[Fault]:
    return [fault for fault in report.faults if fault.physical_offset == record.physical_offset]


def fill(store: SyntheticStore, count: int = 24) -> Path:
    for number in range(count):
        store.put(
            "Orders" if number % 3 else "Parts",
            number % 2,
            f"body number {number}".encode() * 3,
            tags=f"Tag{number % 4}",
            keys=f"k{number} all",
            unique_key=f"7F0000010001{number:020X}",
            more={"colour": "blue"},
        )
    return store.write()


def segment_of(store: SyntheticStore, record: Placed) -> tuple[Path, int]:
    start = record.physical_offset - record.physical_offset % store.segment_bytes
    return store.root / "commitlog" / f"{start:020d}", record.physical_offset - start
