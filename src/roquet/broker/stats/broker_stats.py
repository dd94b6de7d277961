"""The broker's counters: what topics receive, what groups get, and more, by name and key.

Upstream's BrokerStatsManager. Owns the names, the format of the keys, the periods and when they are
sampled. Everything is plain integers on the event loop.

.. code-block:: text

    names                                              key
    TOPIC_PUT_NUMS TOPIC_PUT_SIZE                      topic
    TOPIC_PUT_LATENCY                                  queue@topic
    QUEUE_PUT_NUMS QUEUE_PUT_SIZE                      topic@queue
    GROUP_GET_NUMS GROUP_GET_SIZE
    GROUP_GET_FROM_DISK_NUMS/SIZE GROUP_ACK_NUMS
    GROUP_CK_NUMS SNDBCK_PUT_NUMS                      topic@group
    GROUP_GET_LATENCY                                  queue@topic@group
    QUEUE_GET_NUMS QUEUE_GET_SIZE                      topic@queue@group
    BROKER_… CONSUMER_REGISTER_TIME
    PRODUCER_REGISTER_TIME                             cluster
    COMMERCIAL_… SNDBCK2DLQ_TIMES                      owner@topic@group@kind
    CHANNEL_ACTIVITY                                   CONNECT, CLOSE, EXCEPTION, IDLE

Each is counted where upstream counts it. Upstream's own broker never counts
COMMERCIAL_…, DLQ_PUT_NUMS and …_FROM_DISK_…: they are for hooks, such as those of
:mod:`roquet.broker.stats.commercial`.

Invariants:

* Counts kept elsewhere, by the hot path, are collected before any counter is read.
* There are at most :data:`ITEMS_MAX` counters, and at most :data:`QUEUE_ITEMS_MAX` of one name for
  single queues, so that these leave room for topics and groups. Beyond that nothing is counted;
  every hour, counters that did not change for a day are dropped.
* Counters of a topic or group are deleted with it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from roquet.broker.stats import names
from roquet.broker.stats.item import TURN_ITEMS, StatsItem, StatsPeriod, StatsSnapshot
from roquet.broker.stats.names import STATS_NAMES
from roquet.model.topic import is_system_topic
from roquet.remoting.bodies.broker import BrokerStatsData, BrokerStatsItem
from roquet.runtime.clock import Clock

__all__ = ["ITEMS_MAX", "QUEUE_ITEMS_MAX", "SAMPLE_INTERVAL_MS", "STATS_NAMES", "BrokerStats"]

log = logging.getLogger(__name__)

ITEMS_MAX = 200_000
QUEUE_ITEMS_MAX = 50_000
SAMPLE_INTERVAL_MS = 10_000
"""How often :meth:`BrokerStats.sample` has to be called."""

_NS_PER_MS = 1_000_000
_SEPARATOR = "@"

_SYSTEM_PUTS, _SYSTEM_GETS = (names.BROKER_PUTS,), (names.BROKER_GETS,)
_USER_PUTS, _USER_GETS = (
    (names.BROKER_PUTS, names.BROKER_USER_PUTS),
    (names.BROKER_GETS, names.BROKER_USER_GETS),
)
_BY_QUEUE = frozenset({names.PUT_LATENCY, names.GET_LATENCY})
_TOPIC_FIRST = ("QUEUE_", "GROUP_", "SNDBCK_")
_GET_KINDS = ("QUEUE_GET_", "GROUP_", "SNDBCK_")


class _Row(NamedTuple):
    """The counters of messages and bytes that change together."""

    nums: StatsItem
    size: StatsItem
    is_system: bool


class BrokerStats:
    """The counters of one broker.

    Args:
        cluster: The name of the cluster, the key of counters for the whole broker.
        clock: The time.
        is_system: Whether a topic is the broker's own, and not used by users.

    Attributes:
        fall_size_bytes: How many bytes groups are behind the end of the log, by
            ``queue@topic@group``, as of the last read of each.
        fall_time_ms: The same in time.
        dropped: How often a count was dropped because there are too many counters.
        sources: Called before counters are read; they add counts kept elsewhere.

    Example:
        >>> from roquet.runtime.clock import ManualClock
        >>> clock = ManualClock()
        >>> stats = BrokerStats("c", clock)
        >>> stats.add_puts("Orders", 30, 6_000)
        >>> clock.advance(10_000)
        >>> for _ in stats.sampling():
        ...     pass
        >>> stats.topic_put_tps("Orders")
        3.0
    """

    def __init__(
        self,
        cluster: str,
        clock: Clock,
        *,
        is_system: Callable[[str], bool] = is_system_topic,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._is_system = is_system
        self._items: dict[str, dict[str, StatsItem]] = {name: {} for name in STATS_NAMES}
        self._count = 0
        self._marked: list[StatsItem] = []
        self._minute = StatsPeriod(SAMPLE_INTERVAL_MS, 7)
        self._hour = StatsPeriod(600_000, 7)
        self._day = StatsPeriod(3_600_000, 25)
        now_ms = self._now_ms()
        for period in (self._minute, self._hour, self._day):
            deque(period.sample(now_ms), maxlen=0)
        self._due_ms = {each: now_ms + each.interval_ms for each in (self._hour, self._day)}
        self._put_rows: dict[str, _Row] = {}
        self._get_rows: dict[tuple[str, str], _Row] = {}
        self._whole: dict[tuple[str, ...], list[StatsItem]] = {}
        self.fall_size_bytes: dict[str, int] = {}
        self.fall_time_ms: dict[str, int] = {}
        self.dropped = 0
        self.sources: list[Callable[[], None]] = []
        self._day_name = clock.local_stamp()[:8]
        self._put_mornings = self._get_mornings = (0, 0)

    # ----------------------------------------------------------------------------- counting

    def add_puts(self, topic: str, messages: int, size_bytes: int, *, requests: int = 1) -> None:
        """Count messages that a topic received, in one request or several."""
        row = self._put_row(topic)
        self._add_row(row, messages, size_bytes, requests)
        self._add_whole(_SYSTEM_PUTS if row.is_system else _USER_PUTS, messages)

    def add_topic_puts(self, topic: str, messages: int, size_bytes: int) -> None:
        """Count messages of a topic that are not part of the broker's totals."""
        self._add_row(self._put_row(topic), messages, size_bytes, 1)

    def add_gets(
        self, group: str, topic: str, messages: int, size_bytes: int, *, requests: int = 1
    ) -> None:
        """Count messages that a group got from a topic, in one request or several."""
        row = self._get_row(topic, group)
        self._add_row(row, messages, size_bytes, requests)
        self._add_whole(_SYSTEM_GETS if row.is_system else _USER_GETS, messages)

    def add_put_latency(
        self, topic: str, queue_id: int, latency_ms: int, *, requests: int = 1
    ) -> None:
        """Add the latency of one or more sends."""
        self.add(names.PUT_LATENCY, f"{queue_id}{_SEPARATOR}{topic}", latency_ms, times=requests)

    def add_get_latency(
        self, group: str, topic: str, queue_id: int, latency_ms: int, *, requests: int = 1
    ) -> None:
        """Add the latency of one or more reads for a group."""
        key = f"{queue_id}{_SEPARATOR}{topic}{_SEPARATOR}{group}"
        self.add(names.GET_LATENCY, key, latency_ms, times=requests)

    def add_queue_puts(
        self, topic: str, queue_id: int, messages: int, size_bytes: int, *, requests: int = 1
    ) -> None:
        """Count messages that a queue of delayed messages received."""
        key = f"{topic}{_SEPARATOR}{queue_id}"
        self.add("QUEUE_PUT_NUMS", key, messages, times=requests)
        self.add("QUEUE_PUT_SIZE", key, size_bytes, times=requests)

    def add_queue_gets(
        self, group: str, topic: str, queue_id: int, messages: int, size_bytes: int
    ) -> None:
        """Count messages delivered from a queue of delayed ones, one by one."""
        key = f"{topic}{_SEPARATOR}{queue_id}{_SEPARATOR}{group}"
        self.add("QUEUE_GET_NUMS", key, messages, times=messages)
        self.add("QUEUE_GET_SIZE", key, size_bytes, times=messages)

    def add_group_gets(self, group: str, topic: str, messages: int, size_bytes: int) -> None:
        """Count messages that one of the broker's own groups got, one by one.

        They are not part of the broker's totals.
        """
        self._add_row(self._get_row(topic, group), messages, size_bytes, messages)

    def add_send_back(self, group: str, topic: str) -> None:
        """Count a message that a group sent back."""
        self.add(names.SEND_BACK, f"{topic}{_SEPARATOR}{group}", 1)

    def add_registration(self, *, is_consumer: bool, took_ms: int) -> None:
        """Add the time that the registration of a client took."""
        name = "CONSUMER_REGISTER_TIME" if is_consumer else "PRODUCER_REGISTER_TIME"
        self.add(name, self._cluster, took_ms)

    def add_commercial(
        self, name: str, *, owner: str, group: str, topic: str, kind: str, value: int
    ) -> None:
        """Count for an account; ``kind`` is the outcome of the request."""
        self.add(name, _SEPARATOR.join((owner, topic, group, kind)), value)

    def add(self, name: str, key: str, value: int, *, times: int = 1) -> None:
        """Add to any counter.

        Raises:
            KeyError: There is no such name.
        """
        item = self._items[name].get(key) or self._make(name, key)
        item.value += value
        item.times += times
        if not item.is_marked:
            self._mark(item)

    def record_fall(
        self, group: str, topic: str, queue_id: int, *, size_bytes: int, time_ms: int
    ) -> None:
        """Record how far a group is behind the end of the log."""
        key = f"{queue_id}{_SEPARATOR}{topic}{_SEPARATOR}{group}"
        if key not in self.fall_size_bytes and len(self.fall_size_bytes) >= QUEUE_ITEMS_MAX:
            self.dropped += 1
            return
        self.fall_size_bytes[key] = size_bytes
        self.fall_time_ms[key] = time_ms

    def _add_row(self, row: _Row, messages: int, size_bytes: int, requests: int) -> None:
        nums, size, _ = row
        nums.value += messages
        nums.times += requests
        size.value += size_bytes
        size.times += requests
        if not nums.is_marked:
            self._mark(nums)
        if not size.is_marked:
            self._mark(size)

    def _add_whole(self, which: tuple[str, ...], messages: int) -> None:
        items = self._whole.get(which)
        if items is None:
            items = self._whole[which] = [self._make(name, self._cluster) for name in which]
        for item in items:
            # Upstream does not count the times, so the average is 0.
            item.value += messages
            if not item.is_marked:
                self._mark(item)

    def _put_row(self, topic: str) -> _Row:
        known = self._put_rows.get(topic)
        if known is not None:
            return known
        row = _Row(
            self._make(names.PUT_NUMS, topic),
            self._make(names.PUT_SIZE, topic),
            self._is_system(topic),
        )
        if self._is_kept(row.size):
            self._put_rows[topic] = row
        return row

    def _get_row(self, topic: str, group: str) -> _Row:
        known = self._get_rows.get((topic, group))
        if known is not None:
            return known
        key = f"{topic}{_SEPARATOR}{group}"
        row = _Row(
            self._make(names.GET_NUMS, key), self._make(names.GET_SIZE, key), self._is_system(topic)
        )
        if self._is_kept(row.size):
            self._get_rows[topic, group] = row
        return row

    def _make(self, name: str, key: str) -> StatsItem:
        """Return a counter; one that is not kept if there are too many."""
        items = self._items[name]
        known = items.get(key)
        if known is not None:
            return known
        if self._count >= ITEMS_MAX or (name in _BY_QUEUE and len(items) >= QUEUE_ITEMS_MAX):
            self.dropped += 1
            return StatsItem(name=name, key=key, is_marked=True)
        self._count += 1
        item = items[key] = StatsItem(name=name, key=key)
        return item

    def _is_kept(self, item: StatsItem) -> bool:
        return self._items[item.name].get(item.key) is item

    def _mark(self, item: StatsItem) -> None:
        item.is_marked = True
        self._marked.append(item)

    # ----------------------------------------------------------------------------- sampling

    def sampling(self) -> Iterator[None]:
        """Sample the periods; to be called every :data:`SAMPLE_INTERVAL_MS`.

        Runs in steps, because there may be many counters, with other work in between.
        """
        self._collect()
        self._roll_day()
        now_ms = self._now_ms()
        marked, self._marked = self._marked, []
        for number, item in enumerate(marked, 1):
            item.is_marked = False
            if not self._is_kept(item):
                continue
            is_new = item.seen_value == item.seen_times == 0
            for period in (self._minute, self._hour, self._day):
                period.follow(item, is_new=is_new)
            item.seen_value, item.seen_times = item.value, item.times
            if number % TURN_ITEMS == 0:
                yield
        yield from self._minute.sample(now_ms)
        for period, due_ms in self._due_ms.items():
            if now_ms < due_ms:
                continue
            yield from period.sample(now_ms)
            # Based on the time at which it was due, so that delays do not add up.
            self._due_ms[period] = max(due_ms, now_ms - period.interval_ms + 1) + period.interval_ms
            if period is self._day:
                self._make_room()

    def _make_room(self) -> None:
        if self._count >= ITEMS_MAX or any(
            len(self._items[name]) >= QUEUE_ITEMS_MAX for name in _BY_QUEUE
        ):
            self._drop(self._is_idle)
        if len(self.fall_size_bytes) >= QUEUE_ITEMS_MAX:
            # The next read records an active reader again.
            self.fall_size_bytes.clear()
            self.fall_time_ms.clear()

    def _is_idle(self, item: StatsItem) -> bool:
        """Whether a counter did not change for a day, or since its creation."""
        return not item.is_marked and item not in self._day

    def _collect(self) -> None:
        for source in self.sources:
            source()

    def _roll_day(self) -> None:
        """Record the totals when a new day has started by the system clock."""
        day = self._clock.local_stamp()[:8]
        if day <= self._day_name:
            return
        self._day_name = day
        puts, gets = self._user_totals()
        log.info("yesterday put message total: %d", puts - self._put_mornings[0])
        log.info("yesterday get message total: %d", gets - self._get_mornings[0])
        self._put_mornings = (puts, self._put_mornings[0])
        self._get_mornings = (gets, self._get_mornings[0])

    def _user_totals(self) -> tuple[int, int]:
        return (
            self.total(names.BROKER_USER_PUTS, self._cluster),
            self.total(names.BROKER_USER_GETS, self._cluster),
        )

    def _now_ms(self) -> int:
        return self._clock.monotonic_ns() // _NS_PER_MS

    # ----------------------------------------------------------------------------- dropping

    def topic_deleted(self, topic: str) -> None:
        """Drop the counters of a topic."""
        self._collect()

        def is_of_topic(item: StatsItem) -> bool:
            parts = item.key.split(_SEPARATOR)
            if item.name.startswith("TOPIC_"):
                return parts[-1] == topic
            if item.name.startswith(_TOPIC_FIRST) and item.name != names.GET_LATENCY:
                return parts[0] == topic
            return len(parts) >= 3 and parts[1] == topic

        self._drop(is_of_topic)
        self._drop_falls(lambda parts: parts[1] == topic)

    def group_deleted(self, group: str) -> None:
        """Drop the counters of a group."""
        self._collect()

        def is_of_group(item: StatsItem) -> bool:
            parts = item.key.split(_SEPARATOR)
            if item.name.startswith(_GET_KINDS):
                return parts[-1] == group
            return len(parts) == 4 and parts[2] == group

        self._drop(is_of_group)
        self._drop_falls(lambda parts: parts[2] == group)

    def _drop(self, matches: Callable[[StatsItem], bool]) -> None:
        for items in self._items.values():
            for item in [each for each in items.values() if matches(each)]:
                del items[item.key]
                self._count -= 1
                for period in (self._minute, self._hour, self._day):
                    period.forget(item)
        self._put_rows.clear()
        self._get_rows.clear()
        self._whole.clear()

    def _drop_falls(self, matches: Callable[[list[str]], bool]) -> None:
        for key in [each for each in self.fall_size_bytes if matches(each.split(_SEPARATOR))]:
            del self.fall_size_bytes[key], self.fall_time_ms[key]

    # ------------------------------------------------------------------------------ looking

    def __len__(self) -> int:
        return self._count

    def topic_put_tps(self, topic: str) -> float:
        """Messages per second that a topic received in the last minute."""
        return self._last_minute(names.PUT_NUMS, topic).tps

    def group_get_tps(self, group: str, topic: str) -> float:
        """Messages per second that a group got from a topic in the last minute."""
        return self._last_minute(names.GET_NUMS, f"{topic}{_SEPARATOR}{group}").tps

    def total(self, name: str, key: str) -> int:
        """The sum of everything counted; 0 if there is no such counter."""
        self._collect()
        item = self._items.get(name, {}).get(key)
        return 0 if item is None else item.value

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """Return a counter's values for the last minute, hour and day."""
        self._collect()
        item = self._items.get(name, {}).get(key)
        if item is None:
            return None
        return BrokerStatsData(
            stats_day=_shown(self._day.snapshot(item)),
            stats_hour=_shown(self._hour.snapshot(item)),
            stats_minute=_shown(self._minute.snapshot(item)),
        )

    def runtime_info(self) -> dict[str, str]:
        """Return the daily totals without system topics, under upstream's names."""
        self._collect()
        self._roll_day()
        puts, gets = self._user_totals()
        return {
            "msgPutTotalYesterdayMorning": str(self._put_mornings[1]),
            "msgPutTotalTodayMorning": str(self._put_mornings[0]),
            "msgPutTotalTodayNow": str(puts),
            "msgGetTotalYesterdayMorning": str(self._get_mornings[1]),
            "msgGetTotalTodayMorning": str(self._get_mornings[0]),
            "msgGetTotalTodayNow": str(gets),
        }

    def _last_minute(self, name: str, key: str) -> StatsSnapshot:
        item = self._items[name].get(key)
        return StatsSnapshot() if item is None else self._minute.snapshot(item)


def _shown(snapshot: StatsSnapshot) -> BrokerStatsItem:
    return BrokerStatsItem(
        average_per_time=snapshot.average_per_time, sum=snapshot.sum, tps=snapshot.tps
    )
