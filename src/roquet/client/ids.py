"""The id of a client, and the unique ids of its messages.

Owns the client id, ``ip@instance[@unit]``, and the unique ids, which have the format of Java's
client, so that tools can read sender and time from them.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime

from roquet.client.options import ClientOptions
from roquet.model.message_id import UniqueIdFactory
from roquet.runtime.clock import Clock
from roquet.runtime.memory import process_id
from roquet.runtime.network import advertised_ip
from roquet.runtime.randomness import Randomness

__all__ = ["UniqueIds", "client_id_of"]


def client_id_of(options: ClientOptions, clock: Clock) -> str:
    """Return the id by which brokers know a client.

    Example:
        >>> from roquet.runtime.clock import SystemClock
        >>> options = ClientOptions(namesrv="h:1", client_ip="10.0.0.7", instance_name="blue")
        >>> client_id_of(options, SystemClock())
        '10.0.0.7@blue'
    """
    ip = options.client_ip or advertised_ip("0.0.0.0")  # noqa: S104 - nothing is bound
    instance = options.instance_name or f"{process_id()}#{clock.monotonic_ns()}"
    return "@".join(part for part in (ip, instance, options.unit_name) if part)


class UniqueIds:
    """Generates unique ids for messages.

    Args:
        client_ip: The address in the ids.
        clock: The clock.
        randomness: Distinguishes clients of one process.

    Attributes:
        factory: Generates the ids from the time since the start of the month.
        month_start_ms: When the month started.
        month_end_ms: When it ends.
    """

    def __init__(self, client_ip: str, clock: Clock, randomness: Randomness) -> None:
        try:
            ip = ipaddress.ip_address(client_ip.strip("[]")).packed
        except ValueError:  # a name
            ip = ipaddress.ip_address(advertised_ip(client_ip)).packed
        self.factory = UniqueIdFactory(ip, process_id(), randomness.getrandbits(31))
        self._clock = clock
        self.month_start_ms = self.month_end_ms = 0

    def make(self, now_ms: int | None = None) -> str:
        """Return the next id; callers that know the time pass it."""
        if now_ms is None:
            now_ms = self._clock.now_ms()
        if not self.month_start_ms <= now_ms < self.month_end_ms:
            self.month_start_ms, self.month_end_ms = _month_of(now_ms)
        return self.factory.make(now_ms - self.month_start_ms)


def _month_of(now_ms: int) -> tuple[int, int]:
    """Return when the month of a time starts and ends in the machine's time zone."""
    local = datetime.fromtimestamp(now_ms / 1000, tz=UTC).astimezone()
    start = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    year, month = divmod(start.year * 12 + start.month, 12)
    end = start.replace(year=year, month=month + 1)
    return _epoch_ms(start), _epoch_ms(end)


def _epoch_ms(local: datetime) -> int:
    return int(local.astimezone().timestamp() * 1000)
