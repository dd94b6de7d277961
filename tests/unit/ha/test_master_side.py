"""What a master sends to a slave, and what it believes."""

from __future__ import annotations

import pytest

from roquet.errors import ProtocolError, StoreError
from roquet.format.ha_frames import encode_report, encode_transfer_header
from roquet.ha.master_side import MasterSide
from roquet.store.config import MessageStoreConfig
from tests.unit.ha.ha_kit import CONFIG, SECOND, MemoryLog, settings, transfers

LOG = bytes(number % 251 for number in range(2500))


def begun(log: MemoryLog, report: int, config: MessageStoreConfig = CONFIG) -> MasterSide:
    side = MasterSide(log, config, 0)
    side.received(encode_report(report), 0)
    return side


class TestWhereToBegin:
    @pytest.mark.parametrize(
        ("report", "begin"), [(0, 2000), (1, 1), (999, 999), (2000, 2000), (2500, 2500)]
    )
    def test_transfer_begins_at_the_first_report_or_the_last_segment(
        self, report: int, begin: int
    ) -> None:
        side = begun(MemoryLog(LOG), report)
        assert side.next_offset == begin
        assert side.ack_offset == report

    def test_transfer_from_an_empty_master_begins_at_0(self) -> None:
        assert begun(MemoryLog(), 0).next_offset == 0

    @pytest.mark.parametrize("report", [2501, 1 << 62])
    def test_a_slave_ahead_of_its_master_is_refused(self, report: int) -> None:
        with pytest.raises(StoreError, match="longer than this master's") as raised:
            begun(MemoryLog(LOG), report)
        assert "2500" in (raised.value.detail or "")
        assert raised.value.hint

    def test_a_slave_behind_the_oldest_segment_is_refused(self) -> None:
        with pytest.raises(StoreError, match="deleted"):
            begun(MemoryLog(LOG[1000:], min_offset=1000), 999)

    def test_a_segment_deleted_during_the_transfer_ends_it(self) -> None:
        log = MemoryLog(LOG)
        side = begun(log, 100)
        log.min_offset, log.data = 1000, log.data[1000:]
        with pytest.raises(StoreError, match="deleted"):
            side.frames(0, 1000)

    def test_nothing_is_sent_before_the_first_report(self) -> None:
        side = MasterSide(MemoryLog(LOG), CONFIG, 0)
        assert not side.has_more
        assert side.frames(0, 1000) == []
        assert side.tick(10 * SECOND) == b""

    @pytest.mark.parametrize(("report", "begin"), [(0, 2000), (1000, 1000)])
    def test_nothing_is_confirmed_that_ends_before_the_transfer_began(
        self, report: int, begin: int
    ) -> None:
        side = begun(MemoryLog(LOG), report)
        side.frames(0, 10_000)
        side.received(encode_report(2500), 0)
        assert side.confirmed_offset(begin) == -1
        assert side.confirmed_offset(begin + 1) == 2500

    def test_a_split_report_is_joined(self) -> None:
        side = MasterSide(MemoryLog(LOG), CONFIG, 0)
        side.received(encode_report(7)[:3], 0)
        assert side.next_offset == -1
        side.received(encode_report(7)[3:] + encode_report(7), 0)
        assert side.next_offset == 7


class TestFrames:
    def test_frames_are_limited_by_the_batch_size_and_the_segment(self) -> None:
        side = begun(MemoryLog(LOG), 500)
        frames = transfers(side.frames(0, 10_000))
        assert [(offset, len(part)) for offset, part in frames] == [
            (500, 300), (800, 200), (1000, 300), (1300, 300), (1600, 300), (1900, 100),
            (2000, 300), (2300, 200),
        ]  # fmt: skip
        assert b"".join(part for _, part in frames) == LOG[500:]
        assert not side.has_more

    def test_frames_stop_at_the_budget(self) -> None:
        side = begun(MemoryLog(LOG), 1)
        assert sum(len(part) for _, part in transfers(side.frames(0, 301))) == 600
        assert side.has_more

    def test_flow_control_limits_the_bytes_per_second(self) -> None:
        config = settings(ha_flow_control=True, ha_bytes_per_second_max=450)
        side = begun(MemoryLog(LOG), 1, config)
        assert [len(part) for _, part in transfers(side.frames(0, 10_000))] == [300, 150]
        assert side.frames(SECOND - 1, 10_000) == []
        assert side.has_more
        assert [len(part) for _, part in transfers(side.frames(SECOND, 10_000))] == [300, 150]


class TestReports:
    def test_reports_acknowledge(self) -> None:
        side = begun(MemoryLog(LOG), 1)
        side.frames(0, 300)
        side.received(encode_report(100) + encode_report(301), 0)
        assert side.ack_offset == 301

    def test_acknowledging_unsent_bytes_is_a_protocol_error(self) -> None:
        side = begun(MemoryLog(LOG), 1)
        side.frames(0, 300)
        with pytest.raises(ProtocolError, match="never sent"):
            side.received(encode_report(302), 0)
        assert side.ack_offset == 1

    def test_a_negative_offset_is_a_protocol_error(self) -> None:
        with pytest.raises(ProtocolError, match="negative"):
            begun(MemoryLog(LOG), -1)


class TestTime:
    def test_an_idle_master_sends_heartbeats(self) -> None:
        side = begun(MemoryLog(LOG), 2500)
        assert side.tick(5 * SECOND - 1) == b""
        assert side.tick(5 * SECOND) == encode_transfer_header(2500, 0)
        assert side.tick(10 * SECOND - 1) == b""
        assert side.tick(10 * SECOND) == encode_transfer_header(2500, 0)

    def test_data_replaces_heartbeats(self) -> None:
        side = begun(MemoryLog(LOG), 1)
        side.frames(4 * SECOND, 100)
        assert side.tick(6 * SECOND) == b""

    def test_a_silent_slave_is_disconnected(self) -> None:
        side = begun(MemoryLog(LOG), 1)
        side.received(encode_report(1), 7 * SECOND)
        side.tick(27 * SECOND)
        with pytest.raises(TimeoutError):
            side.tick(27 * SECOND + 1)

    def test_a_slave_that_never_reports_is_disconnected(self) -> None:
        with pytest.raises(TimeoutError):
            MasterSide(MemoryLog(LOG), CONFIG, 0).tick(21 * SECOND)
