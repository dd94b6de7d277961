from __future__ import annotations

import pytest

from roquet.format.checkpoint import FILE_BYTES, Checkpoint


def test_round_trip() -> None:
    marks = Checkpoint(1, 2, 3, 4, 5)
    data = marks.pack()
    assert data.hex() == "".join(f"{n:016x}" for n in range(1, 6))
    assert Checkpoint.unpack(data.ljust(FILE_BYTES, b"\0")) == marks


@pytest.mark.parametrize("length", [0, 8, 39])
def test_a_short_file_holds_no_mark(length: int) -> None:
    assert Checkpoint.unpack(b"\xff" * length) == Checkpoint()


def test_a_fresh_file_holds_no_mark() -> None:
    assert Checkpoint.unpack(bytes(FILE_BYTES)) == Checkpoint()
