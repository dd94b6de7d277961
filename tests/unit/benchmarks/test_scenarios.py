"""The parts of scenarios that decide: which files are read, and how many queues get a message."""

from __future__ import annotations

import struct
from pathlib import Path

from benchmarks import rows
from benchmarks.scenarios import (
    SCENARIOS,
    Sizes,
    full_segments,
    largest_record,
    queues_to_fill,
)


def segment(path: Path, *sizes: int) -> Path:
    records = b"".join(struct.pack(">i", size) + bytes(size - 4) for size in sizes)
    path.write_bytes(records + bytes(8192 - len(records)))
    return path


def test_every_scenario_has_a_row() -> None:
    assert set(SCENARIOS) == {row.name for row in rows.SCENARIOS}


def test_records_are_walked_by_their_sizes(tmp_path: Path) -> None:
    path = segment(tmp_path / "0", 100, 300, 200)
    assert largest_record(path) == 300
    assert largest_record(path, 1) == 100
    assert largest_record(segment(tmp_path / "1")) == 0


def test_only_full_files_are_compared_with_dd(tmp_path: Path) -> None:
    segments = [segment(tmp_path / "0", 100), segment(tmp_path / "1", 100), segment(tmp_path / "2")]
    assert full_segments(segments) == segments[:1]


def test_every_topic_gets_a_message() -> None:
    assert queues_to_fill(Sizes(topics=1_000_000), 65_530) == 1
    assert queues_to_fill(Sizes(topics=10, topic_queues=3), 65_530) == 3
