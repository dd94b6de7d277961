from __future__ import annotations

import pytest

from roquet.format import index_file as layout
from roquet.format.index_file import IndexHeader


def test_header() -> None:
    header = IndexHeader(1, 2, 3, 4, 5, 6)
    assert header.pack().hex() == "".join(f"{n:016x}" for n in (1, 2, 3, 4)) + "0000000500000006"
    assert IndexHeader.unpack(header.pack()) == header
    assert IndexHeader.unpack(bytes(40)) == IndexHeader()
    assert IndexHeader().index_count == 1


def test_positions() -> None:
    assert layout.file_size(5_000_000, 20_000_000) == 420_000_040
    assert layout.slot_position(0) == 40
    assert layout.slot_position(99) == 40 + 99 * 4
    assert layout.entry_position(100, 0) == 440
    assert layout.entry_position(100, 199) + layout.ENTRY_BYTES == layout.file_size(100, 200)


@pytest.mark.parametrize(
    ("begin_ms", "timestamp_ms", "seconds"),
    [
        (0, 5000, 0),  # the first entry of a file has no begin yet
        (1000, 1000, 0),
        (1000, 1999, 0),
        (1000, 2000, 1),
        (5000, 1000, 0),
        (1, 1 << 62, 0x7FFFFFFF),
    ],
)
def test_seconds(begin_ms: int, timestamp_ms: int, seconds: int) -> None:
    assert layout.seconds_since(begin_ms, timestamp_ms) == seconds
