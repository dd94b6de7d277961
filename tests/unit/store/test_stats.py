from __future__ import annotations

import pytest

from roquet.runtime.clock import ManualClock
from roquet.store.stats import StoreStatsService

MS = 1_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000_000)


@pytest.fixture
def stats(clock: ManualClock) -> StoreStatsService:
    return StoreStatsService(clock)


def put(stats: StoreStatsService, took_ms: float = 0.0, *, messages: int = 1) -> None:
    stats.count_put(messages, 100 * messages, round(took_ms * MS))


def pass_seconds(stats: StoreStatsService, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds):
        clock.advance(1000)
        stats.sample()


def test_totals(stats: StoreStatsService) -> None:
    put(stats, messages=3)
    put(stats, 7.9)
    stats.put_failed += 1
    info = stats.runtime_info()
    assert info["putMessageTimesTotal"] == "4"
    assert info["putMessageSizeTotal"] == "400"
    assert info["putMessageAverageSize"] == "100.0"
    assert info["putMessageFailedTimes"] == "1"
    assert info["putMessageEntireTimeMax"] == "7"


def test_gets(stats: StoreStatsService) -> None:
    stats.count_get(found=True, messages=5)
    stats.count_get(found=True, messages=1)
    stats.count_get(found=False, messages=0)
    stats.note_get_latency(12 * MS)
    stats.note_get_latency(MS)
    assert (stats.get_found, stats.get_missed, stats.get_messages) == (2, 1, 6)
    assert stats.runtime_info()["getMessageEntireTimeMax"] == "12"


def test_names_are_upstreams(stats: StoreStatsService) -> None:
    assert set(stats.runtime_info()) == {
        "bootTimestamp",
        "runtime",
        "putMessageEntireTimeMax",
        "putMessageTimesTotal",
        "putMessageFailedTimes",
        "putMessageSizeTotal",
        "putMessageDistributeTime",
        "putMessageAverageSize",
        "dispatchMaxBuffer",
        "getMessageEntireTimeMax",
        "putTps",
        "getFoundTps",
        "getMissTps",
        "getTotalTps",
        "getTransferredTps",
        "putLatency99",
        "putLatency999",
    }


def test_runtime(stats: StoreStatsService, clock: ManualClock) -> None:
    clock.advance(((2 * 24 + 3) * 60 + 4) * 60_000 + 5999)
    clock.set(0)  # the machine's clock is set: that does not make the store younger
    info = stats.runtime_info()
    assert info["runtime"] == "[ 2 days, 3 hours, 4 minutes, 5 seconds ]"
    assert info["bootTimestamp"] == "1700000000000"


class TestRates:
    def test_a_window_that_is_not_full_is_an_empty_string(
        self, stats: StoreStatsService, clock: ManualClock
    ) -> None:
        assert stats.put_tps() == "  "
        pass_seconds(stats, clock, 10)
        assert stats.put_tps() == "  "
        pass_seconds(stats, clock, 1)
        assert stats.put_tps() == "0.0  "
        pass_seconds(stats, clock, 50)
        assert stats.put_tps() == "0.0 0.0 "
        pass_seconds(stats, clock, 540)
        assert stats.put_tps() == "0.0 0.0 0.0"
        assert stats.get_total_tps() == "0.0 0.0 0.0"

    def test_periods(self, stats: StoreStatsService, clock: ManualClock) -> None:
        pass_seconds(stats, clock, 601)
        put(stats, messages=600)
        stats.count_get(found=True, messages=120)
        stats.count_get(found=False, messages=0)
        pass_seconds(stats, clock, 1)
        assert stats.put_tps() == "60.0 10.0 1.0"
        assert stats.get_transferred_tps() == "12.0 2.0 0.2"
        assert stats.get_found_tps() == f"0.1 {1 / 60!r} {1 / 600!r}"
        assert stats.get_miss_tps() == stats.get_found_tps()
        assert stats.get_total_tps() == f"0.2 {2 / 60!r} {2 / 600!r}"
        pass_seconds(stats, clock, 10)
        assert stats.put_tps() == "0.0 10.0 1.0"
        pass_seconds(stats, clock, 600)
        assert stats.put_tps() == "0.0 0.0 0.0"

    def test_rates_use_the_time_that_really_passed(
        self, stats: StoreStatsService, clock: ManualClock
    ) -> None:
        for _ in range(11):
            clock.advance(2000)
            stats.sample()
            put(stats, messages=2)
        assert stats.put_tps().split(" ")[0] == "1.0"

    def test_sampling_too_often_is_harmless(
        self, stats: StoreStatsService, clock: ManualClock
    ) -> None:
        for _ in range(200):
            clock.advance(100)
            put(stats)
            stats.sample()
        assert stats.put_tps().split(" ")[0] == "10.0"

    def test_total_is_zero_before_a_window_is_full(self, stats: StoreStatsService) -> None:
        assert stats.get_total_tps() == "0.0 0.0 0.0"


class TestLatencies:
    @pytest.mark.parametrize(
        ("took_ms", "name"),
        [
            (0, "[<=0ms]"),
            (0.999, "[<=0ms]"),
            (1, "[0~10ms]"),
            (9.999, "[0~10ms]"),
            (10, "[10~50ms]"),
            (49, "[10~50ms]"),
            (50, "[50~100ms]"),
            (100, "[100~200ms]"),
            (200, "[200~500ms]"),
            (500, "[500ms~1s]"),
            (1000, "[1~2s]"),
            (2000, "[2~3s]"),
            (3000, "[3~4s]"),
            (4999, "[4~5s]"),
            (5000, "[5~10s]"),
            (9999, "[5~10s]"),
            (10_000, "[10s~]"),
            (1_000_000, "[10s~]"),
        ],
    )
    def test_classes(
        self, stats: StoreStatsService, clock: ManualClock, took_ms: float, name: str
    ) -> None:
        put(stats, took_ms)
        pass_seconds(stats, clock, 60)
        words = stats.put_latency_distribution().split(" ")
        assert [word for word in words if word and not word.endswith(":0")] == [f"{name}:1"]

    def test_the_text_is_upstreams(self, stats: StoreStatsService, clock: ManualClock) -> None:
        for took_ms in [0] * 77 + [3] * 52 + [12] * 3 + [73]:
            put(stats, took_ms)
        pass_seconds(stats, clock, 60)
        assert stats.put_latency_distribution() == (
            "[<=0ms]:77 [0~10ms]:52 [10~50ms]:3 [50~100ms]:1 [100~200ms]:0 [200~500ms]:0 "
            "[500ms~1s]:0 [1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "
        )

    def test_the_last_full_minute_is_used(
        self, stats: StoreStatsService, clock: ManualClock
    ) -> None:
        put(stats)
        pass_seconds(stats, clock, 59)
        assert stats.put_latency_distribution().startswith("[<=0ms]:0 ")
        pass_seconds(stats, clock, 1)
        assert stats.put_latency_distribution().startswith("[<=0ms]:1 ")
        put(stats, 20)
        pass_seconds(stats, clock, 60)
        assert stats.put_latency_distribution().startswith("[<=0ms]:0 [0~10ms]:0 [10~50ms]:1 ")

    def test_percentiles(self, stats: StoreStatsService, clock: ManualClock) -> None:
        assert stats.put_latency_ms(0.99) == 0.0
        for took_ms in range(100):
            put(stats, took_ms)
        pass_seconds(stats, clock, 60)
        assert stats.put_latency_ms(0.5) == pytest.approx(50, abs=2)
        assert stats.put_latency_ms(0.99) == pytest.approx(99, abs=5)
        assert stats.runtime_info()["putLatency99"] == f"{stats.put_latency_ms(0.99):.2f}"

    def test_percentiles_end_at_ten_seconds(
        self, stats: StoreStatsService, clock: ManualClock
    ) -> None:
        put(stats, 3_600_000)
        pass_seconds(stats, clock, 60)
        assert stats.put_latency_ms(0.99) <= 10_000
        put(stats, 3_600_000)
        put(stats, 3_600_000)
        pass_seconds(stats, clock, 60)
        assert stats.put_latency_ms(0.99) == 10_000


def test_text(stats: StoreStatsService) -> None:
    text = str(stats)
    assert "\tputTps:   \r\n" in text
    assert text.count("\r\n") == len(stats.runtime_info())
