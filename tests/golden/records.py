"""The records of a golden store's log, read by Roquet's own reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from roquet.format.commit_log import Blank, DispatchRequest, RecordRules, check_record
from roquet.model.delay_level import DelayLevels

SEGMENT_BYTES = 65536


def log_records(store: Path) -> Iterator[DispatchRequest]:
    """Every record from the first segment's first byte to the end of the log."""
    rules = RecordRules(DelayLevels())
    for segment in sorted((store / "commitlog").iterdir()):
        data = segment.read_bytes()
        assert len(data) == SEGMENT_BYTES
        position = 0
        while position < len(data):
            record = check_record(
                data, position, len(data), physical_offset=int(segment.name) + position, rules=rules
            )
            if not isinstance(record, DispatchRequest):
                break
            yield record
            position += record.size_bytes
        if position < len(data) and not isinstance(record, Blank):
            return
