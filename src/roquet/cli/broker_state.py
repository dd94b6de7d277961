"""The state of brokers: a row for each process, as text and as JSON.

Owns :class:`BrokerState`, built from the runtime info that brokers report under upstream's names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from roquet.admin import Admin, BrokerInfo, ReplicaLag
from roquet.cli.output import format_bytes, format_time, print_table
from roquet.errors import RoquetError

__all__ = ["BrokerState", "broker_states", "print_states"]


class BrokerState(Struct, frozen=True, kw_only=True, rename="camel"):
    """A broker process, for programs; it did not report what is ``None``.

    Attributes:
        role: ``master`` or ``slave``.
        put_tps: Messages per second in.
        get_tps: Messages per second out.
        put_today: Messages in since midnight.
        get_today: Messages out since midnight.
        disk_ratio: How full the disk of its log is, from 0 to 1.
        boot_timestamp: When it started, in milliseconds since 1970.
        behind_bytes: How much of its master's log a slave does not have.
        behind_seconds: The age of the oldest message that a slave does not have.
        error: Why it did not respond.
    """

    cluster: str
    broker_name: str
    broker_id: int
    role: str
    address: str
    version: str | None = None
    put_tps: float | None = None
    get_tps: float | None = None
    put_today: int | None = None
    get_today: int | None = None
    disk_ratio: float | None = None
    boot_timestamp: int | None = None
    behind_bytes: int | None = None
    behind_seconds: float | None = None
    error: str | None = None


async def broker_states(admin: Admin, brokers: Sequence[BrokerInfo]) -> list[BrokerState]:
    """The state of some brokers, including those that do not respond."""
    lags: dict[str, ReplicaLag] = {}
    if not all(each.is_master for each in brokers):
        lags = (await admin.clusters.replica_lag(brokers)).answers
    states = (_state(admin, each, lags.get(each.address)) for each in brokers)
    return list(await asyncio.gather(*states))


async def _state(admin: Admin, info: BrokerInfo, lag: ReplicaLag | None) -> BrokerState:
    said: dict[str, str] = {}
    failure: str | None = None
    try:
        found = await admin.clusters.runtime(broker=info.address)
        said = found.complete("Reading a broker's state")[info.address]
    except RoquetError as error:
        failure = error.message
    return BrokerState(
        cluster=info.cluster,
        broker_name=info.name,
        broker_id=info.broker_id,
        role="master" if info.is_master else "slave",
        address=info.address,
        version=said.get("brokerVersionDesc"),
        put_tps=_rate(said.get("putTps")),
        get_tps=_rate(said.get("getTransferredTps")),
        put_today=_since(said, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
        get_today=_since(said, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
        disk_ratio=_rate(said.get("commitLogDiskRatio")),
        boot_timestamp=_whole(said.get("bootTimestamp")),
        behind_bytes=None if lag is None else lag.behind_bytes,
        behind_seconds=None if lag is None or lag.behind_ms is None else lag.behind_ms / 1000,
        error=failure,
    )


def _rate(text: str | None) -> float | None:
    """The first of some numbers, for the last seconds; new brokers report none."""
    if text is None:
        return None
    words = text.split()
    try:
        return float(words[0]) if words else 0.0
    except ValueError:
        return None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _since(said: dict[str, str], now: str, before: str) -> int | None:
    total, morning = _whole(said.get(now)), _whole(said.get(before))
    return None if total is None or morning is None else total - morning


def print_states(title: str, states: Sequence[BrokerState]) -> None:
    """Print a table of brokers."""
    has_slaves = any(each.role == "slave" for each in states)
    behind = ("behind",) if has_slaves else ()
    print_table(
        title,
        ("broker", "id", "role", "address", "version", "in/s", "out/s", "disk", "started", *behind),
        [
            (
                each.broker_name,
                str(each.broker_id),
                each.role,
                each.address,
                each.version or (f"no response: {each.error}" if each.error else "-"),
                _shown(each.put_tps),
                _shown(each.get_tps),
                "-" if each.disk_ratio is None else f"{each.disk_ratio:.0%}",
                format_time(each.boot_timestamp),
                *((_behind(each),) if has_slaves else ()),
            )
            for each in states
        ],
        numbers=("id", "in/s", "out/s", "disk"),
    )


def _behind(state: BrokerState) -> str:
    if state.behind_bytes is None:
        return "-"
    if not state.behind_bytes or state.behind_seconds is None:
        return format_bytes(state.behind_bytes)
    return f"{format_bytes(state.behind_bytes)}, {state.behind_seconds:.1f} s"


def _shown(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}"
