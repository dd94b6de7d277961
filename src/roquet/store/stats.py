"""Counters of the store: puts, gets, sizes and latencies.

Upstream's StoreStatsService. Owns plain integers, updated on the owner's side; a count costs a few
additions. Once a second :meth:`StoreStatsService.sample` takes a snapshot; rates over the last 10,
60 and 600 seconds come from these, as text ``a b c``, with an empty word for a period that is not
yet full.

Latencies are counted in whole milliseconds. Upstream prints two views of them, a distribution of
13 classes and percentiles from 76 finer ones; both are derived from one histogram with the limits
of both. The views cover the last full minute, as upstream's do.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, chain, repeat

from roquet.runtime.clock import Clock
from roquet.runtime.ring_buffer import RingBuffer

_SECOND_NS = 1_000_000_000
_SAMPLE_NS = _SECOND_NS * 9 // 10  # a thread that wakes every second may be a little early
_ROTATE_NS = 60 * _SECOND_NS
_PERIODS_SECONDS = (10, 60, 600)

# Names of the classes, each with the first millisecond that no longer belongs to it.
_CLASSES = (
    ("[<=0ms]", 1),
    ("[0~10ms]", 10),
    ("[10~50ms]", 50),
    ("[50~100ms]", 100),
    ("[100~200ms]", 200),
    ("[200~500ms]", 500),
    ("[500ms~1s]", 1000),
    ("[1~2s]", 2000),
    ("[2~3s]", 3000),
    ("[3~4s]", 4000),
    ("[4~5s]", 5000),
    ("[5~10s]", 10_000),
    ("[10s~]", None),
)
# Last milliseconds of the finer classes: steps of 1 up to 20, of 2 up to 50, and so on.
_FINE_MS = tuple(
    accumulate(
        chain.from_iterable(
            repeat(step, times)
            for step, times in ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))
        )
    )
)
# First milliseconds of the histogram's classes, except the first.
_LIMITS_MS = sorted({limit for _, limit in _CLASSES if limit} | {last + 1 for last in _FINE_MS})
_LIMITS_NS = [limit * 1_000_000 for limit in _LIMITS_MS]
_FIRST_LIMIT_NS = _LIMITS_NS[0]


_COLUMNS = ("at_ns", "put_messages", "get_found", "get_missed", "get_messages")
"""The fields of a snapshot: when it was taken, and the totals at that moment."""


class StoreStatsService:
    """The counters of one store.

    Example:
        >>> from roquet.runtime.clock import ManualClock
        >>> stats = StoreStatsService(ManualClock())
        >>> stats.count_put(2, 300, 40_000)
        >>> stats.runtime_info()["putMessageAverageSize"]
        '150.0'
    """

    def __init__(self, clock: Clock) -> None:
        """Start at zero."""
        self._clock = clock
        self.boot_timestamp_ms = clock.now_ms()
        self._boot_ns = clock.monotonic_ns()
        self.put_messages = 0
        self.put_bytes = 0
        self.put_failed = 0
        self.get_found = 0
        self.get_missed = 0
        self.get_messages = 0
        self.put_latency_max_ns = 0
        self.get_latency_max_ns = 0
        self._latencies = [0] * (len(_LIMITS_NS) + 1)
        self._last_latencies = self._latencies[:]
        self._rotated_ns = self._boot_ns
        self._snapshots = RingBuffer(_PERIODS_SECONDS[-1] + 1, len(_COLUMNS))

    # -- counting -----------------------------------------------------------------------------

    def count_put(self, messages: int, size_bytes: int, took_ns: int) -> None:
        """Count one append; a batch counts as several messages."""
        self.put_messages += messages
        self.put_bytes += size_bytes
        # Nearly every append takes less than a millisecond.
        which = 0 if took_ns < _FIRST_LIMIT_NS else bisect_right(_LIMITS_NS, took_ns)
        self._latencies[which] += 1
        self.put_latency_max_ns = max(self.put_latency_max_ns, took_ns)

    def count_get(self, *, found: bool, messages: int) -> None:
        """Count one get."""
        if found:
            self.get_found += 1
            self.get_messages += messages
        else:
            self.get_missed += 1

    def note_get_latency(self, took_ns: int) -> None:
        """Record how long a get took."""
        self.get_latency_max_ns = max(self.get_latency_max_ns, took_ns)

    def sample(self) -> None:
        """Take a snapshot; call this about once a second, more often does no harm."""
        now_ns = self._clock.monotonic_ns()
        if (
            self._snapshots
            and now_ns - self._snapshots.get(0, _COLUMNS.index("at_ns")) < _SAMPLE_NS
        ):
            return
        self._snapshots.append(
            now_ns, self.put_messages, self.get_found, self.get_missed, self.get_messages
        )
        if now_ns - self._rotated_ns >= _ROTATE_NS:
            self._rotated_ns = now_ns
            self._last_latencies = self._latencies
            self._latencies = [0] * len(self._last_latencies)

    # -- views --------------------------------------------------------------------------------

    def put_tps(self) -> str:
        """Messages put per second."""
        return " ".join(self._rate(period, "put_messages") for period in _PERIODS_SECONDS)

    def get_found_tps(self) -> str:
        """Gets per second that found something."""
        return " ".join(self._rate(period, "get_found") for period in _PERIODS_SECONDS)

    def get_miss_tps(self) -> str:
        """Gets per second that found nothing."""
        return " ".join(self._rate(period, "get_missed") for period in _PERIODS_SECONDS)

    def get_transferred_tps(self) -> str:
        """Messages returned per second."""
        return " ".join(self._rate(period, "get_messages") for period in _PERIODS_SECONDS)

    def get_total_tps(self) -> str:
        """Gets per second; a period that is not yet full counts as 0.0 here, as in upstream."""
        return " ".join(
            repr(
                float(self._rate(period, "get_found") or 0)
                + float(self._rate(period, "get_missed") or 0)
            )
            for period in _PERIODS_SECONDS
        )

    def _rate(self, window_seconds: int, name: str) -> str:
        snapshots = self._snapshots
        if len(snapshots) <= window_seconds:
            return ""
        moved, took_ns = (
            snapshots.get(0, column) - snapshots.get(window_seconds, column)
            for column in (_COLUMNS.index(name), _COLUMNS.index("at_ns"))
        )
        return repr(moved * _SECOND_NS / took_ns)

    def put_latency_distribution(self) -> str:
        """Distribution of the put latencies of the last full minute."""
        words = []
        first = 0
        for name, limit in _CLASSES:
            stop = len(_LIMITS_MS) + 1 if limit is None else _LIMITS_MS.index(limit) + 1
            words.append(f"{name}:{sum(self._last_latencies[first:stop])} ")
            first = stop
        return "".join(words)

    def put_latency_ms(self, share: float) -> float:
        """The latency that a share of the puts of the last full minute did not exceed."""
        rank = int(sum(self._last_latencies) * share)
        passed, first, low = 0, 0, 0
        for last in _FINE_MS:
            stop = _LIMITS_MS.index(last + 1) + 1
            count = sum(self._last_latencies[first:stop])
            if rank <= passed + count:
                return low + ((last - low) * (rank - passed) / count if count else 0.0)
            passed, first, low = passed + count, stop, last
        return float(low)

    def run_time(self) -> str:
        """How long the store has been up."""
        seconds = (self._clock.monotonic_ns() - self._boot_ns) // _SECOND_NS
        minutes, seconds = divmod(seconds, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"

    def runtime_info(self) -> dict[str, str]:
        """Everything under upstream's names."""
        return {
            "bootTimestamp": str(self.boot_timestamp_ms),
            "runtime": self.run_time(),
            "putMessageEntireTimeMax": str(self.put_latency_max_ns // 1_000_000),
            "putMessageTimesTotal": str(self.put_messages),
            "putMessageFailedTimes": str(self.put_failed),
            "putMessageSizeTotal": str(self.put_bytes),
            "putMessageDistributeTime": self.put_latency_distribution(),
            "putMessageAverageSize": repr(self.put_bytes / max(self.put_messages, 1)),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": str(self.get_latency_max_ns // 1_000_000),
            "putTps": self.put_tps(),
            "getFoundTps": self.get_found_tps(),
            "getMissTps": self.get_miss_tps(),
            "getTotalTps": self.get_total_tps(),
            "getTransferredTps": self.get_transferred_tps(),
            "putLatency99": f"{self.put_latency_ms(0.99):.2f}",
            "putLatency999": f"{self.put_latency_ms(0.999):.2f}",
        }

    def __str__(self) -> str:
        """The same, one name per line."""
        return "".join(f"\t{name}: {value}\r\n" for name, value in self.runtime_info().items())
