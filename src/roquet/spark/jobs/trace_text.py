r"""Parses the text of trace messages.

Parses what Roquet's clients and Java's since 4.9 write to the trace topic; see
:mod:`roquet.client.trace` for the format. Records of a message end with ``0x02``, their fields are
separated by ``0x01``. Records that cannot be parsed are skipped and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

__all__ = ["RETURNS", "Event", "parse_trace"]

RETURNS = ("success", "time out", "exception", "returned nothing", "failed")
"""The results of a handler, by the number that clients write."""

_FIELD, _RECORD = "\x01", "\x02"


class Event(NamedTuple):
    """An event in the life of a message.

    Attributes:
        kind: Pub, SubBefore, SubAfter, EndTransaction or Recall.
        msg_id: The unique id of the message.
        time_ms: When it happened; unknown for a SubAfter of older clients.
        group: The producer or consumer group.
        topic: For a send, the topic.
        request_id: For a consumption, joins its two events.
        cost_ms: How long a send or a consumption took.
        is_success: Whether it succeeded.
        keys: The message's keys.
        times: How often it was consumed before.
        returned: For the end of a consumption, the handler's result: one of :data:`RETURNS`.
    """

    kind: str
    msg_id: str
    time_ms: int | None
    group: str | None
    topic: str | None
    request_id: str | None
    cost_ms: int | None
    is_success: bool | None
    keys: str | None
    times: int | None
    returned: str | None = None


def parse_trace(text: str) -> tuple[list[Event], int]:
    r"""Return the events of a trace message, and how many records could not be parsed.

    Example:
        >>> text = "SubAfter\x01r1\x01m1\x017\x01true\x01k\x010\x01500\x01g\x02what?\x02"
        >>> events, bad = parse_trace(text)
        >>> events[0].cost_ms, events[0].time_ms, bad
        (7, 500, 1)
    """
    events, bad = [], 0
    for record in text.split(_RECORD):
        fields = record.strip("\n").split(_FIELD)
        if fields == [""]:
            continue
        read = _KINDS.get(fields[0])
        try:
            if read is None:
                raise ValueError(fields[0])  # noqa: TRY301 - counted below
            events.append(read(fields))
        except (ValueError, IndexError):
            bad += 1
    return events, bad


def _text(value: str) -> str | None:
    return None if value in {"", "null"} else value


def _flag(fields: Sequence[str], at: int) -> bool | None:
    return fields[at] == "true" if len(fields) > at else None


def _pub(fields: Sequence[str]) -> Event:
    # Older clients do not write the offset message id before the success flag.
    return Event(
        kind="Pub",
        time_ms=int(fields[1]),
        group=_text(fields[3]),
        topic=_text(fields[4]),
        msg_id=fields[5],
        keys=_text(fields[7]),
        cost_ms=int(fields[10]),
        is_success=_flag(fields, 13 if len(fields) > 13 else 12),
        request_id=None,
        times=None,
    )


def _sub_before(fields: Sequence[str]) -> Event:
    return Event(
        kind="SubBefore",
        time_ms=int(fields[1]),
        group=_text(fields[3]),
        topic=None,
        request_id=_text(fields[4]),
        msg_id=fields[5],
        times=int(fields[6]),
        keys=_text(fields[7]) if len(fields) > 7 else None,
        cost_ms=None,
        is_success=None,
    )


def _sub_after(fields: Sequence[str]) -> Event:
    return Event(
        kind="SubAfter",
        request_id=_text(fields[1]),
        msg_id=fields[2],
        cost_ms=int(fields[3]),
        is_success=_flag(fields, 4),
        keys=_text(fields[5]) if len(fields) > 5 else None,
        time_ms=int(fields[7]) if len(fields) > 7 else None,
        group=_text(fields[8]) if len(fields) > 8 else None,
        topic=None,
        times=None,
        returned=_returned(fields),
    )


def _returned(fields: Sequence[str]) -> str | None:
    code = fields[6] if len(fields) > 6 else ""
    return RETURNS[int(code)] if code.isdecimal() and int(code) < len(RETURNS) else None


def _end_transaction(fields: Sequence[str]) -> Event:
    return Event(
        kind="EndTransaction",
        time_ms=int(fields[1]),
        group=_text(fields[3]),
        topic=_text(fields[4]),
        msg_id=fields[5],
        keys=_text(fields[7]),
        is_success=fields[11] == "COMMIT_MESSAGE",
        cost_ms=None,
        request_id=None,
        times=None,
    )


_KINDS: dict[str, Callable[[Sequence[str]], Event]] = {
    "Pub": _pub,
    "SubBefore": _sub_before,
    "SubAfter": _sub_after,
    "EndTransaction": _end_transaction,
}
