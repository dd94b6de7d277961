"""The state of brokers: a row for each process, as text and as JSON.

Owns :class:`BrokerState`, built from the runtime info that brokers report under upstream's names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from roquet.admin import Admin, BrokerInfo
from roquet.cli.output import format_time, print_table
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
    error: str | None = None


async def broker_states(admin: Admin, brokers: Sequence[BrokerInfo]) -> list[BrokerState]:
    """The state of some brokers, including those that do not respond."""
    return list(await asyncio.gather(*(_state(admin, each) for each in brokers)))


async def _state(admin: Admin, info: BrokerInfo) -> BrokerState:
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
    print_table(
        title,
        ("broker", "id", "role", "address", "version", "in/s", "out/s", "disk", "started"),
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
            )
            for each in states
        ],
        numbers=("id", "in/s", "out/s", "disk"),
    )


def _shown(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:.1f}"
