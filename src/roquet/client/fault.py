"""Which brokers to avoid for a while, because they were slow or failed.

Owns the rules of Apache RocketMQ's client, "latency fault tolerance": after each send, a broker is
avoided for a time that depends on its latency; a failure counts as a latency of ten seconds.

=================== ==== ==== ===== ===== ===== ====== ======
latency from, ms      50  100   550 1,800 3,000  5,000 15,000
avoided for, ms        0    0 2,000 5,000 6,000 10,000 30,000
=================== ==== ==== ===== ===== ===== ====== ======
"""

from __future__ import annotations

from roquet.runtime.clock import Clock

__all__ = ["LatencyFaults", "avoided_ms"]

_TABLE = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
)
FAILURE_LATENCY_MS = 10_000
_NS_PER_MS = 1_000_000


def avoided_ms(latency_ms: float) -> int:
    """Return how long a broker with this latency is avoided.

    Example:
        >>> avoided_ms(100), avoided_ms(550), avoided_ms(20_000)
        (0, 2000, 30000)
    """
    for from_ms, for_ms in _TABLE:
        if latency_ms >= from_ms:
            return for_ms
    return 0


class _Fault:
    __slots__ = ("avoid_until_ns", "is_reachable")

    def __init__(self) -> None:
        self.avoid_until_ns = 0
        self.is_reachable = True


class LatencyFaults:
    """The latency and faults of each broker.

    Args:
        clock: The clock.

    Example:
        >>> from roquet.runtime.clock import ManualClock
        >>> clock = ManualClock()
        >>> faults = LatencyFaults(clock)
        >>> faults.failed("broker-a", is_reachable=True)
        >>> faults.is_available("broker-a"), faults.is_available("broker-b")
        (False, True)
        >>> clock.advance(10_000)
        >>> faults.is_available("broker-a")
        True
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._faults: dict[str, _Fault] = {}

    def succeeded(self, broker_name: str, latency_ms: float) -> None:
        """Record a send that the broker accepted in this time."""
        self._record(broker_name, avoided_ms(latency_ms), is_reachable=True)

    def failed(self, broker_name: str, *, is_reachable: bool) -> None:
        """Record a send that failed.

        Args:
            broker_name: The broker.
            is_reachable: Whether it may still be chosen when all are being avoided.
        """
        self._record(broker_name, avoided_ms(FAILURE_LATENCY_MS), is_reachable=is_reachable)

    def is_available(self, broker_name: str) -> bool:
        """Return whether a broker need not be avoided."""
        fault = self._faults.get(broker_name)
        return fault is None or self._clock.monotonic_ns() >= fault.avoid_until_ns

    def is_reachable(self, broker_name: str) -> bool:
        """Return whether a broker may be chosen even if all are being avoided."""
        fault = self._faults.get(broker_name)
        return fault is None or fault.is_reachable

    def _record(self, broker_name: str, for_ms: int, *, is_reachable: bool) -> None:
        fault = self._faults.get(broker_name)
        if fault is None:
            if not for_ms and is_reachable:
                return
            fault = self._faults[broker_name] = _Fault()
        fault.is_reachable = is_reachable
        if for_ms:
            until_ns = self._clock.monotonic_ns() + for_ms * _NS_PER_MS
            fault.avoid_until_ns = max(fault.avoid_until_ns, until_ns)
