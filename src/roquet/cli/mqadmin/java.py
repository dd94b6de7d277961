"""Java's text formats, which scripts that parse upstream's tool expect.

Owns the order of Java's hash tables, the texts of its collections and numbers, and the date formats
of upstream's tool. Times are in the local zone, as upstream's are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TypeVar

from roquet.model.java_string import java_hash
from roquet.model.message_queue import MessageQueue

__all__ = [
    "PROPERTIES_TABLE_SIZE",
    "BadNumber",
    "bool_text",
    "concurrent_order",
    "copied_order",
    "day_and_time",
    "hash_order",
    "map_text",
    "message_queue_text",
    "millis_time",
    "null_text",
    "packed_time",
    "parse_moment_ms",
    "parse_number",
    "queue_hash",
    "queue_order",
]

K = TypeVar("K")

TABLE_SIZE = 16
PROPERTIES_TABLE_SIZE = 128
"""The initial size of upstream's table of a message's properties."""

_NUMBER = re.compile(r"(?a)[+-]?\d+")
_MOMENT = re.compile(r"(?a)(\d+)-(\d+)-(\d+)#(\d+):(\d+):(\d+):(\d+)")


class BadNumber(ValueError):
    """A text is not a number; the message is Java's."""


def parse_number(text: str) -> int:
    """Parse a whole number.

    Raises:
        BadNumber: It is not a number.
    """
    if _NUMBER.fullmatch(text) is None:
        raise BadNumber(f'For input string: "{text}"')
    return int(text)


def _buckets(keys: Iterable[K], hash_of: Callable[[K], int], size: int) -> list[K]:
    def bucket(key: K) -> int:
        value = hash_of(key) & 0xFFFFFFFF
        return (value ^ value >> 16) & (size - 1)

    return sorted(keys, key=bucket)


def hash_order(
    keys: Iterable[K], *, hash_of: Callable[[K], int] | None = None, size: int = TABLE_SIZE
) -> list[K]:
    """Keys in the order of a ``HashMap`` to which they were added one by one.

    Example:
        >>> hash_order(["TAGS", "KEYS", "WAIT"], size=128)
        ['TAGS', 'KEYS', 'WAIT']
    """
    found = list(dict.fromkeys(keys))
    while len(found) > size * 3 // 4:
        size *= 2
    return _buckets(found, hash_of or _text_hash, size)


def concurrent_order(keys: Iterable[str], *, size: int = TABLE_SIZE) -> list[str]:
    """Like :func:`hash_order`, for a ``ConcurrentHashMap``, which reverses chains when it grows.

    Example:
        >>> concurrent_order(["b", "a"])
        ['a', 'b']
    """
    table: list[list[str]] = [[] for _ in range(size)]
    hashes = {key: java_hash(key) & 0xFFFFFFFF for key in dict.fromkeys(keys)}
    hashes = {key: value ^ value >> 16 for key, value in hashes.items()}
    for count, key in enumerate(hashes, start=1):
        table[hashes[key] & len(table) - 1].append(key)
        while count >= len(table) * 3 // 4:
            table = _grown(table, hashes)
    return [key for chain in table for key in chain]


def copied_order(keys: Iterable[str]) -> list[str]:
    """The order of a ``ConcurrentHashMap`` that is a copy of another one.

    Example:
        >>> copied_order(["b", "a"])
        ['a', 'b']
    """
    found = concurrent_order(keys)
    needed = len(found) + len(found) // 2 + 1
    # Java allocates a table of the needed size, finds it three quarters full, and doubles it.
    return concurrent_order(found, size=2 << (needed - 1).bit_length())


def _grown(table: list[list[str]], hashes: Mapping[str, int]) -> list[list[str]]:
    """Double the table: a chain's tail that stays together keeps its order, the rest reverses."""
    size = len(table)
    grown: list[list[str]] = [[] for _ in range(2 * size)]
    for at, chain in enumerate(table):
        bits = [hashes[key] & size for key in chain]
        run = next((i + 1 for i in range(len(bits) - 2, -1, -1) if bits[i] != bits[-1]), 0)
        for bit, target in ((0, at), (size, at + size)):
            kept = [key for key in chain[run:] if hashes[key] & size == bit]
            turned = [key for key in reversed(chain[:run]) if hashes[key] & size == bit]
            grown[target] = turned + kept
    return grown


def _text_hash(key: object) -> int:
    return java_hash(str(key))


def queue_hash(queue: MessageQueue) -> int:
    """``MessageQueue.hashCode()`` as an unsigned number."""
    value = 31 + java_hash(queue.broker_name)
    value = 31 * value + queue.queue_id
    return 31 * value + java_hash(queue.topic)


def queue_order(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues in the order of a ``HashSet``."""
    return hash_order(queues, hash_of=queue_hash)


def map_text(entries: Mapping[str, str], *, size: int = TABLE_SIZE) -> str:
    """A ``HashMap`` as text.

    Example:
        >>> map_text({"b": "2", "a": "1"})
        '{a=1, b=2}'
    """
    ordered = hash_order(entries, size=size)
    return f"{{{', '.join(f'{key}={entries[key]}' for key in ordered)}}}"


def message_queue_text(queue: MessageQueue) -> str:
    """A queue as text."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
        f"queueId={queue.queue_id}]"
    )


def bool_text(value: object) -> str:
    """``true`` or ``false``."""
    return "true" if value else "false"


def null_text(value: object | None) -> str:
    """A value as text, ``null`` for none."""
    if isinstance(value, bool):
        return bool_text(value)
    return "null" if value is None else str(value)


# ------------------------------------------------------------------------------------------ times


def _local(time_ms: int) -> datetime:
    seconds, millis = divmod(time_ms, 1000)
    return datetime.fromtimestamp(seconds, tz=UTC).astimezone().replace(microsecond=millis * 1000)


def day_and_time(time_ms: int) -> str:
    """A time such as ``2026-01-31 12:00:00``."""
    return f"{_local(time_ms):%Y-%m-%d %H:%M:%S}"


def millis_time(time_ms: int) -> str:
    """A time such as ``2026-01-31 12:00:00,250``."""
    moment = _local(time_ms)
    return f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03}"


def packed_time(time_ms: int) -> str:
    """A time such as ``20260131120000250``."""
    moment = _local(time_ms)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03}"


def parse_moment_ms(text: str) -> int:
    """Milliseconds since the epoch, or a local time such as ``2026-01-31#12:00:00:000``.

    Raises:
        BadNumber: It is neither.

    Example:
        >>> parse_moment_ms("1700000000000")
        1700000000000
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return parse_number(text)
    *parts, millis = (int(each) for each in match.groups())
    year, month, day, hour, minute, second = parts
    moment = datetime(year, month, day, hour, minute, second).astimezone()
    return round(moment.timestamp()) * 1000 + millis
