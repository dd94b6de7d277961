"""What a slave takes from a master, and what it reports."""

from __future__ import annotations

import pytest

from roquet.errors import ProtocolError, StoreError
from roquet.format.ha_frames import BODY_BYTES_MAX, encode_report, encode_transfer_header
from roquet.ha.slave_side import OVERLAP_BYTES, SlaveSide, overlap_start
from tests.unit.ha.ha_kit import CONFIG, SECOND, MemoryLog

LOG = bytes(number % 251 for number in range(2500))


def frame(offset: int, body: bytes) -> bytes:
    return encode_transfer_header(offset, len(body)) + body


def side_of(log: MemoryLog, overlap: int = 100) -> SlaveSide:
    end = log.max_offset
    return SlaveSide(log, end, log.tail(max(end - overlap, log.min_offset)), CONFIG, 0)


class TestOverlap:
    @pytest.mark.parametrize(
        ("first", "end", "start"),
        [
            (0, 0, 0),
            (4096, 4096, 4096),
            (0, 1, 1),
            (0, 50, 1),
            (1000, 1050, 1000),
            (0, OVERLAP_BYTES + 7, 7),
            (0, OVERLAP_BYTES, 1),
        ],
    )
    def test_overlap_start(self, first: int, end: int, start: int) -> None:
        assert overlap_start(first, end) == start

    def test_the_overlap_is_requested_and_compared_before_appending(self) -> None:
        log = MemoryLog(LOG[:2000])
        side = side_of(log)
        assert side.begin(0) == encode_report(1900)
        assert side.received(frame(1900, LOG[1900:1960]), 0) == encode_report(1960)
        assert not side.is_compared
        assert side.received(frame(1960, LOG[1960:2300]), 0) == encode_report(2300)
        assert bytes(log.data) == LOG[:2300]

    def test_a_difference_in_the_overlap_appends_nothing(self) -> None:
        log = MemoryLog(LOG[:2000])
        side = side_of(log)
        other = LOG[1900:1950] + b"?" + LOG[1951:2300]
        with pytest.raises(StoreError, match="differs") as raised:
            side.received(frame(1900, other), 0)
        assert "1950" in (raised.value.detail or "")
        assert bytes(log.data) == LOG[:2000]

    def test_a_heartbeat_within_the_overlap_means_a_shorter_master(self) -> None:
        log = MemoryLog(LOG[:2000])
        side = side_of(log)
        side.received(frame(1900, LOG[1900:1950]), SECOND)
        side.received(frame(1950, b""), 2 * SECOND)  # a master whose flow is limited does this
        with pytest.raises(StoreError, match="longer than its master's"):
            side.received(frame(1950, b""), 3 * SECOND)
        assert bytes(log.data) == LOG[:2000]

    def test_a_heartbeat_after_the_overlap_is_normal(self) -> None:
        side = side_of(MemoryLog(LOG[:2000]))
        side.received(frame(1900, LOG[1900:2000]), 0)
        assert side.received(frame(2000, b""), 9 * SECOND) == b""


class TestAppending:
    def test_an_empty_slave_starts_at_the_masters_offset(self) -> None:
        log = MemoryLog()
        side = side_of(log)
        assert side.begin(0) == encode_report(0)
        assert side.received(frame(2000, b""), 0) == b""
        assert side.received(frame(2000, LOG[2000:2100]), 0) == encode_report(2100)
        assert (log.min_offset, log.max_offset) == (2000, 2100)

    @pytest.mark.parametrize("offset", [1999, 2001, 0, 1 << 40])
    def test_an_unexpected_offset_is_refused(self, offset: int) -> None:
        log = MemoryLog(LOG[:2000])
        side = side_of(log, overlap=0)
        with pytest.raises(StoreError, match="what comes next"):
            side.received(frame(offset, b"x"), 0)
        with pytest.raises(StoreError, match="what comes next"):
            side_of(log, overlap=0).received(frame(offset, b""), 0)
        assert bytes(log.data) == LOG[:2000]

    @pytest.mark.parametrize("size", [-1, BODY_BYTES_MAX + 1, -(2**31)])
    def test_impossible_headers_are_refused(self, size: int) -> None:
        with pytest.raises(ProtocolError, match="impossible"):
            side_of(MemoryLog()).received(encode_transfer_header(0, size), 0)

    def test_transfers_may_arrive_byte_by_byte(self) -> None:
        log = MemoryLog(LOG[:1000])
        side = side_of(log, overlap=10)
        data = frame(990, LOG[990:1200]) + frame(1200, b"") + frame(1200, LOG[1200:1300])
        for position in range(len(data)):
            side.received(data[position : position + 1], 0)
        assert bytes(log.data) == LOG[:1300]


class TestReports:
    def test_only_flushed_bytes_are_reported(self) -> None:
        log = MemoryLog(LOG[:2000])
        log.flushed_offset = 2000
        side = side_of(log, overlap=0)
        side.begin(0)
        assert side.received(frame(2000, LOG[2000:2100]), 0) == b""
        log.flushed_offset = 2050
        assert side.reported(0) == encode_report(2050)
        assert side.reported(0) == b""
        log.flushed_offset = 2100
        assert side.reported(0) == encode_report(2100)

    def test_an_idle_slave_repeats_its_report(self) -> None:
        side = side_of(MemoryLog(LOG[:2000]), overlap=0)
        side.begin(0)
        assert side.tick(5 * SECOND - 1) == b""
        assert side.tick(5 * SECOND) == encode_report(2000)
        assert side.tick(6 * SECOND) == b""

    def test_a_silent_master_is_disconnected(self) -> None:
        side = side_of(MemoryLog(LOG[:2000]), overlap=0)
        side.received(frame(2000, b""), SECOND)
        side.tick(21 * SECOND)
        with pytest.raises(TimeoutError):
            side.tick(21 * SECOND + 1)
