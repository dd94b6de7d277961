"""The broker's counters."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from roquet.broker.admin.stats import StatsAdmin
from roquet.broker.components import BrokerComponents
from roquet.broker.service.housekeeping import in_turns
from roquet.broker.stats import broker_stats
from roquet.broker.stats.broker_stats import SAMPLE_INTERVAL_MS, BrokerStats
from roquet.broker.stats.item import TURN_ITEMS, StatsSnapshot
from roquet.remoting.bodies.broker import BrokerStatsItem
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import create_request
from roquet.remoting.headers.admin import ViewBrokerStatsDataRequestHeader
from roquet.remoting.hooks import RequestRefused
from roquet.remoting.processor import PUBLIC, Port, ProcessorRegistry, RequestContext
from roquet.runtime.clock import ManualClock

CLUSTER = "c"


@pytest.fixture(name="clock")
def _clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(name="stats")
def _stats(clock: ManualClock) -> BrokerStats:
    return BrokerStats(CLUSTER, clock)


def pass_time(stats: BrokerStats, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds * 1000 // SAMPLE_INTERVAL_MS):
        clock.advance(SAMPLE_INTERVAL_MS)
        list(stats.sampling())


def minute(stats: BrokerStats, name: str, key: str) -> StatsSnapshot:
    found = stats.view(name, key)
    assert found is not None
    return snapshot(found.stats_minute)


def snapshot(item: BrokerStatsItem | None) -> StatsSnapshot:
    assert item is not None
    return StatsSnapshot(item.sum, item.tps, item.average_per_time)


def test_nothing_is_shown_before_the_first_snapshot(stats: BrokerStats) -> None:
    assert stats.view("TOPIC_PUT_NUMS", "T") is None
    stats.add_puts("T", 3, 300)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == StatsSnapshot()
    assert stats.total("TOPIC_PUT_NUMS", "T") == 3


def test_puts(stats: BrokerStats, clock: ManualClock) -> None:
    stats.add_puts("T", 26, 5_200, requests=13)
    pass_time(stats, clock, 10)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == StatsSnapshot(26, 2.6, 2.0)
    assert minute(stats, "TOPIC_PUT_SIZE", "T") == StatsSnapshot(5_200, 520.0, 400.0)
    assert minute(stats, "BROKER_PUT_NUMS", CLUSTER) == StatsSnapshot(26, 2.6, 0.0)
    assert stats.topic_put_tps("T") == 2.6
    assert stats.topic_put_tps("None") == 0.0


def test_gets(stats: BrokerStats, clock: ManualClock) -> None:
    stats.add_gets("G", "T", 20, 1_000)
    stats.add_gets("G", "T", 10, 500)
    pass_time(stats, clock, 20)
    assert minute(stats, "GROUP_GET_NUMS", "T@G") == StatsSnapshot(30, 1.0 * 30 / 20, 15.0)
    assert minute(stats, "GROUP_GET_SIZE", "T@G").sum == 1_500
    assert stats.group_get_tps("G", "T") == 1.5
    assert stats.group_get_tps("G", "U") == 0.0


def test_system_topics_are_counted_apart(stats: BrokerStats) -> None:
    stats.add_puts("T", 1, 1)
    stats.add_puts("SCHEDULE_TOPIC_XXXX", 2, 1)
    stats.add_gets("G", "SCHEDULE_TOPIC_XXXX", 4, 1)
    assert stats.total("BROKER_PUT_NUMS", CLUSTER) == 3
    assert stats.total("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER) == 1
    assert stats.total("BROKER_GET_NUMS", CLUSTER) == 4
    assert stats.total("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER) == 0


def test_topics_that_a_broker_has_by_its_name_are_system_topics(clock: ManualClock) -> None:
    stats = BrokerStats(CLUSTER, clock, is_system=lambda topic: topic == f"{CLUSTER}_REPLY_TOPIC")
    stats.add_puts(f"{CLUSTER}_REPLY_TOPIC", 2, 1)
    stats.add_puts("T", 1, 1)
    assert stats.total("BROKER_PUT_NUMS", CLUSTER) == 3
    assert stats.total("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER) == 1


def test_periods(stats: BrokerStats, clock: ManualClock) -> None:
    stats.add_puts("T", 600, 1)
    pass_time(stats, clock, 600)
    found = stats.view("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert snapshot(found.stats_minute) == StatsSnapshot()
    assert snapshot(found.stats_hour) == StatsSnapshot(600, 1.0, 600.0)
    assert snapshot(found.stats_day) == StatsSnapshot()
    pass_time(stats, clock, 3_000)
    found = stats.view("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert snapshot(found.stats_hour) == StatsSnapshot(600, 600 / 3600, 600.0)
    assert snapshot(found.stats_day) == StatsSnapshot(600, 600 / 3600, 600.0)


def test_hours_begin_with_the_broker(clock: ManualClock) -> None:
    clock.advance(12_345_678)
    stats = BrokerStats(CLUSTER, clock)
    stats.add_puts("T", 6, 1)
    pass_time(stats, clock, 590)
    found = stats.view("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert snapshot(found.stats_hour) == StatsSnapshot()
    pass_time(stats, clock, 10)
    found = stats.view("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert snapshot(found.stats_hour) == StatsSnapshot(6, 0.01, 6.0)


def test_samples_older_than_the_window_are_ignored(stats: BrokerStats, clock: ManualClock) -> None:
    stats.add_puts("T", 60, 1)
    pass_time(stats, clock, 10)
    stats.add_puts("T", 6, 1)
    pass_time(stats, clock, 50)
    assert minute(stats, "TOPIC_PUT_NUMS", "T").sum == 66
    pass_time(stats, clock, 10)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == StatsSnapshot(6, 0.1, 6.0)
    pass_time(stats, clock, 10)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == StatsSnapshot()


def test_a_counter_that_moves_again_has_the_rate_of_a_whole_minute(
    stats: BrokerStats, clock: ManualClock
) -> None:
    stats.add_puts("T", 5, 1)
    pass_time(stats, clock, 300)
    stats.add_puts("T", 60, 1)
    pass_time(stats, clock, 10)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == StatsSnapshot(60, 1.0, 60.0)


def test_the_snapshot_equals_that_of_a_counter_sampled_all_along(clock: ManualClock) -> None:
    """Dropping idle counters must not be visible from outside."""
    stats = BrokerStats(CLUSTER, clock)
    snapshots: list[tuple[int, int]] = []
    sent = 0
    for tick in range(400):
        count = (tick * 7919) % 11 if (tick // 20) % 3 == 0 else 0
        if count:
            stats.add_puts("T", count, 1)
            sent += count
        clock.advance(SAMPLE_INTERVAL_MS)
        list(stats.sampling())
        now_ms = clock.monotonic_ns() // 1_000_000
        if sent and not snapshots:
            snapshots.append((now_ms - SAMPLE_INTERVAL_MS, 0))
        if sent:
            snapshots = [*snapshots, (now_ms, sent)][-7:]
            total = snapshots[-1][1] - snapshots[0][1]
            tps = total * 1000 / (snapshots[-1][0] - snapshots[0][0])
            seen = minute(stats, "TOPIC_PUT_NUMS", "T")
            assert (tick, seen.sum) == (tick, total)
            assert seen.tps == pytest.approx(tps)


def test_other_counters(stats: BrokerStats) -> None:
    stats.add_put_latency("T", 3, 7)
    stats.add_get_latency("G", "T", 2, 8)
    stats.add_queue_puts("S", 4, 1, 90)
    stats.add_queue_gets("G", "S", 4, 2, 180)
    stats.add_registration(is_consumer=True, took_ms=3)
    stats.add_registration(is_consumer=False, took_ms=4)
    stats.add_send_back("G", "T")
    stats.add_commercial(
        "COMMERCIAL_SEND_TIMES", owner="o", group="G", topic="T", kind="SEND_SUCCESS", value=2
    )
    assert stats.total("TOPIC_PUT_LATENCY", "3@T") == 7
    assert stats.total("GROUP_GET_LATENCY", "2@T@G") == 8
    assert stats.total("QUEUE_PUT_SIZE", "S@4") == 90
    assert stats.total("QUEUE_GET_NUMS", "S@4@G") == 2
    assert stats.total("CONSUMER_REGISTER_TIME", CLUSTER) == 3
    assert stats.total("PRODUCER_REGISTER_TIME", CLUSTER) == 4
    assert stats.total("SNDBCK_PUT_NUMS", "T@G") == 1
    assert stats.total("COMMERCIAL_SEND_TIMES", "o@T@G@SEND_SUCCESS") == 2
    with pytest.raises(KeyError):
        stats.add("NO_SUCH_NAME", "x", 1)


def fill(stats: BrokerStats) -> None:
    for topic in ("T", "U"):
        stats.add_puts(topic, 1, 1)
        stats.add_put_latency(topic, 0, 1)
        stats.add_queue_puts(topic, 0, 1, 1)
        for group in ("G", "H"):
            stats.add_gets(group, topic, 1, 1)
            stats.add_get_latency(group, topic, 0, 1)
            stats.add_queue_gets(group, topic, 0, 1, 1)
            stats.add_send_back(group, topic)
            stats.record_fall(group, topic, 0, size_bytes=9, time_ms=8)
            stats.add_commercial(
                "COMMERCIAL_RCV_SIZE", owner="o", group=group, topic=topic, kind="K", value=1
            )


def keys(stats: BrokerStats) -> set[tuple[str, str]]:
    probes = {
        "TOPIC_PUT_NUMS": ("T", "U"),
        "TOPIC_PUT_SIZE": ("T", "U"),
        "TOPIC_PUT_LATENCY": ("0@T", "0@U"),
        "COMMERCIAL_RCV_SIZE": ("o@T@G@K", "o@T@H@K", "o@U@G@K", "o@U@H@K"),
        "QUEUE_PUT_NUMS": ("T@0", "U@0"),
        "QUEUE_PUT_SIZE": ("T@0", "U@0"),
        "QUEUE_GET_NUMS": ("T@0@G", "T@0@H", "U@0@G", "U@0@H"),
        "QUEUE_GET_SIZE": ("T@0@G", "T@0@H", "U@0@G", "U@0@H"),
        "GROUP_GET_LATENCY": ("0@T@G", "0@T@H", "0@U@G", "0@U@H"),
    } | dict.fromkeys(
        ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"), ("T@G", "T@H", "U@G", "U@H")
    )
    return {(name, key) for name in probes for key in probes[name] if stats.view(name, key)}


def test_counters_are_removed_with_their_topic(stats: BrokerStats, clock: ManualClock) -> None:
    fill(stats)
    pass_time(stats, clock, 10)
    everything, count = keys(stats), len(stats)
    stats.topic_deleted("T")
    left = keys(stats)
    assert left == {each for each in everything if "U" in each[1].split("@")}
    assert len(stats) == count - len(everything - left)
    assert stats.fall_size_bytes == {"0@U@G": 9, "0@U@H": 9}
    assert stats.fall_time_ms.keys() == stats.fall_size_bytes.keys()
    stats.add_puts("T", 5, 1)
    pass_time(stats, clock, 10)
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == StatsSnapshot(5, 0.5, 5.0)


def test_counters_are_removed_with_their_group(stats: BrokerStats) -> None:
    fill(stats)
    everything = keys(stats)
    stats.group_deleted("G")
    assert keys(stats) == {each for each in everything if "G" not in each[1].split("@")}
    assert set(stats.fall_size_bytes) == {"0@T@H", "0@U@H"}


def test_counters_are_bounded(
    stats: BrokerStats, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_stats, "ITEMS_MAX", 10)
    monkeypatch.setattr(broker_stats, "QUEUE_ITEMS_MAX", 7)
    for number in range(20):
        stats.add_puts(f"T{number}", 1, 1)
        stats.record_fall("G", f"T{number}", 0, size_bytes=1, time_ms=1)
    assert (len(stats), len(stats.fall_size_bytes)) == (10, 7)
    assert stats.dropped > 0
    for _ in range(27 * 360):
        stats.add_puts("T0", 1, 1)
        clock.advance(SAMPLE_INTERVAL_MS)
        list(stats.sampling())
    assert stats.view("TOPIC_PUT_NUMS", "T1") is None
    assert stats.view("TOPIC_PUT_NUMS", "T0") is not None
    assert stats.fall_size_bytes == {}
    stats.add_puts("New", 1, 1)
    assert stats.total("TOPIC_PUT_NUMS", "New") == 1


def test_counters_of_queues_leave_room_for_others(
    stats: BrokerStats, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_stats, "QUEUE_ITEMS_MAX", 4)
    for queue_id in range(9):
        stats.add_put_latency("T", queue_id, 0)
    assert (len(stats), stats.dropped) == (4, 5)
    stats.add_puts("T", 1, 1)
    assert stats.total("TOPIC_PUT_NUMS", "T") == 1
    # One that is changed by 0 ms repeatedly is not idle.
    for _ in range(27 * 360):
        stats.add_put_latency("T", 0, 0)
        clock.advance(SAMPLE_INTERVAL_MS)
        list(stats.sampling())
    assert stats.view("TOPIC_PUT_LATENCY", "0@T") is not None
    assert stats.view("TOPIC_PUT_LATENCY", "1@T") is None


def ask(stats: BrokerStats, name: str, key: str) -> object:
    header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
    parts = cast("BrokerComponents", SimpleNamespace(stats=stats))
    registry = ProcessorRegistry(StatsAdmin(parts))
    found = registry.find(RequestCode.VIEW_BROKER_STATS_DATA, Port.MAIN)
    assert found is not None
    request = create_request(RequestCode.VIEW_BROKER_STATS_DATA, header, opaque=1)
    return found.handle(RequestContext(None, request, PUBLIC))  # type: ignore[arg-type]


def test_counters_are_shown(stats: BrokerStats, clock: ManualClock) -> None:
    stats.add_puts("T", 26, 1, requests=13)
    pass_time(stats, clock, 20)
    answer = ask(stats, "TOPIC_PUT_NUMS", "T")
    assert getattr(answer, "body", b"") == (
        b'{"statsDay":{"avgpt":0.0,"sum":0,"tps":0.0},"statsHour":{"avgpt":0.0,"sum":0,"tps":0.0},'
        b'"statsMinute":{"avgpt":2.0,"sum":26,"tps":1.3}}'
    )


@pytest.mark.parametrize(("name", "key"), [("TOPIC_PUT_NUMS", "None"), ("NO_SUCH", "T")])
def test_unknown_counters(stats: BrokerStats, name: str, key: str) -> None:
    with pytest.raises(RequestRefused, match=f"The stats <{name}> <{key}> not exist") as error:
        ask(stats, name, key)
    assert error.value.response_code == ResponseCode.SYSTEM_ERROR


def test_pulls_of_the_brokers_own_groups_are_not_counted(stats: BrokerStats) -> None:
    stats.add_group_gets("G", "T", 3, 300)
    stats.add_topic_puts("T", 2, 200)
    assert stats.total("GROUP_GET_NUMS", "T@G") == 3
    assert stats.total("TOPIC_PUT_SIZE", "T") == 200
    for name in ("BROKER_GET_NUMS", "BROKER_PUT_NUMS"):
        assert stats.total(name, CLUSTER) == 0


def test_sources_are_queried_before_a_view(stats: BrokerStats, clock: ManualClock) -> None:
    waiting = [("T", 3), ("T", 4), ("T", 5), ("Gone", 6), ("T", 7)]

    def source() -> None:
        if waiting:
            topic, count = waiting.pop(0)
            stats.add_puts(topic, count, 10)

    stats.sources.append(source)
    assert stats.total("TOPIC_PUT_NUMS", "T") == 3
    pass_time(stats, clock, 10)
    assert stats.view("TOPIC_PUT_NUMS", "T") is not None
    assert minute(stats, "TOPIC_PUT_NUMS", "T") == StatsSnapshot(7, 0.7, 3.5)
    # Counts from before a topic was deleted do not appear afterwards.
    waiting.insert(0, ("Gone", 1))
    stats.topic_deleted("Gone")
    assert stats.view("TOPIC_PUT_NUMS", "Gone") is None
    assert stats.runtime_info()["msgPutTotalTodayNow"] == str(3 + 4 + 5 + 6 + 1 + 7)


class TestDays:
    DAY_MS = 86_400_000

    @pytest.fixture
    def midnight(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setenv("TZ", "UTC-2")  # two hours ahead of Greenwich
        time.tzset()
        yield
        monkeypatch.undo()
        time.tzset()

    def totals(self, stats: BrokerStats) -> tuple[str, ...]:
        info = stats.runtime_info()
        names = ("YesterdayMorning", "TodayMorning", "TodayNow")
        return tuple(info[f"msg{what}Total{name}"] for what in ("Put", "Get") for name in names)

    @pytest.mark.usefixtures("midnight")
    def test_days_begin_at_local_midnight(self) -> None:
        day_ms = 1_700_000_000_000 // self.DAY_MS * self.DAY_MS
        clock = ManualClock(day_ms + 12 * 3_600_000)
        stats = BrokerStats(CLUSTER, clock)
        stats.add_puts("T", 5, 500)
        stats.add_gets("G", "T", 3, 300)
        stats.add_puts("SCHEDULE_TOPIC_XXXX", 9, 900)
        clock.set(day_ms + 22 * 3_600_000 - 1)
        assert self.totals(stats) == ("0", "0", "5", "0", "0", "3")
        clock.set(day_ms + 22 * 3_600_000)
        assert self.totals(stats) == ("0", "5", "5", "0", "3", "3")
        stats.add_puts("T", 1, 100)
        clock.advance(self.DAY_MS)
        list(stats.sampling())
        stats.add_puts("T", 1, 100)
        assert self.totals(stats) == ("5", "6", "7", "3", "3", "3")

    @pytest.mark.usefixtures("midnight")
    def test_a_clock_that_goes_back_begins_no_day(self) -> None:
        clock = ManualClock(1_700_000_000_000)
        stats = BrokerStats(CLUSTER, clock)
        stats.add_puts("T", 1, 100)
        clock.advance(-self.DAY_MS)
        assert self.totals(stats)[:3] == ("0", "0", "1")
        clock.advance(self.DAY_MS)
        assert self.totals(stats)[:3] == ("0", "0", "1")


async def test_other_work_runs_while_many_counters_are_sampled(
    stats: BrokerStats, clock: ManualClock
) -> None:
    count = TURN_ITEMS + 1
    for number in range(count):
        stats.add_puts(f"T{number}", 1, 10)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1
            # What happens meanwhile belongs to this snapshot or to the next.
            stats.add_puts("T0", 1, 10)
            stats.topic_deleted(f"T{turns}")

    beside = asyncio.ensure_future(other())
    for _ in range(2):
        clock.advance(SAMPLE_INTERVAL_MS)
        await in_turns(stats.sampling)()
    beside.cancel()
    list(stats.sampling())
    assert turns >= 4
    assert stats.view("TOPIC_PUT_NUMS", "T1") is None
    last = f"T{count - 1}"
    assert minute(stats, "TOPIC_PUT_NUMS", last) == StatsSnapshot(1, 0.05, 1.0)
    assert minute(stats, "TOPIC_PUT_NUMS", "T0").sum == 1 + turns
