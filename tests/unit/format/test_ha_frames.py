"""Frames between master and slave, cut anywhere."""

from __future__ import annotations

import pytest

from roquet.errors import ProtocolError
from roquet.format.ha_frames import (
    BODY_BYTES_MAX,
    ReportDecoder,
    TransferDecoder,
    encode_report,
    encode_transfer_header,
)


@pytest.mark.parametrize("step", [1, 3, 7, 8, 9, 100])
def test_reports_may_be_split_anywhere(step: int) -> None:
    data = b"".join(encode_report(offset) for offset in (0, 800, 1 << 62))
    decoder = ReportDecoder()
    parts = [data[start : start + step] for start in range(0, len(data), step)]
    assert [offset for part in parts for offset in decoder.feed(part)] == [0, 800, 1 << 62]


@pytest.mark.parametrize("step", [1, 5, 12, 13, 100])
def test_transfers_may_be_split_anywhere(step: int) -> None:
    data = (
        encode_transfer_header(10, 20) + bytes(20)
        + encode_transfer_header(30, 0)
        + encode_transfer_header(30, 5) + b"abcde"
    )  # fmt: skip
    decoder = TransferDecoder()
    parts = [data[start : start + step] for start in range(0, len(data), step)]
    found = [each for part in parts for each in decoder.feed(part)]
    assert [offset for offset, part in found if not part] == [30]
    position, whole = 10, b""
    for offset, part in found:
        assert offset == position
        position += len(part)
        whole += part
    assert whole == bytes(20) + b"abcde"


@pytest.mark.parametrize(("offset", "size"), [(-1, 0), (0, -1), (0, BODY_BYTES_MAX + 1)])
def test_impossible_headers_are_refused(offset: int, size: int) -> None:
    with pytest.raises(ProtocolError):
        list(TransferDecoder().feed(encode_transfer_header(offset, size)))
