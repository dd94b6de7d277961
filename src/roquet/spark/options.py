"""Parses the options of the sources and the sink.

Converts the text of an option to a value, and owns the errors: each is one sentence that names the
option in the user's spelling, with a hint. Spark passes option names in lower case, so they are
case-insensitive. An unknown option is refused with the nearest name, because a misspelt one would
otherwise be ignored silently.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NoReturn

from roquet.errors import SparkOptionError

__all__ = ["EARLIEST", "LATEST", "Offsets", "Options", "parse_offsets", "parse_time_ms"]

EARLIEST = -2
"""In offsets: the oldest message of a queue."""

LATEST = -1
"""In offsets: after the newest message of a queue."""

Offsets = dict[str, dict[str, dict[int, int]]]
"""By topic, broker name and queue id: a queue offset, :data:`EARLIEST` or :data:`LATEST`."""

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE = re.compile(r"(\d+)\s*([kmg]?)i?b?", re.IGNORECASE)
_DURATION_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_DURATION = re.compile(r"(\d+)\s*(ms|s|m|min|h)", re.IGNORECASE)


class Options:
    """The options of one source or sink.

    Args:
        source: The format's name, for error messages.
        given: Names and values as Spark passes them.
        known: Every option of the source, spelt as in its documentation.
        aliases: Other names for some of them.

    Raises:
        SparkOptionError: An option is unknown, or given under two names.

    Example:
        >>> options = Options("rocketmq-log", {"topics": "A, B"}, known=["topics"])
        >>> options.names("topics")
        ('A', 'B')
    """

    def __init__(
        self,
        source: str,
        given: Mapping[str, str],
        *,
        known: Iterable[str],
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.source = source
        targets = {name.lower(): name for name in known}
        spelling = dict(targets)
        for alias, name in (aliases or {}).items():
            targets[alias.lower()] = name
            spelling[alias.lower()] = alias
        self._values: dict[str, str] = {}
        self._given_as: dict[str, str] = {}
        for name, value in given.items():
            key = name.lower()
            if key not in targets:
                raise self._unknown(name, spelling)
            target = targets[key]
            if target in self._values:
                raise SparkOptionError(
                    f"The options {self._given_as[target]!r} and {spelling[key]!r} of"
                    f" {source} mean the same.",
                    hint="Set only one of them.",
                )
            self._values[target] = value
            self._given_as[target] = spelling[key]

    def _unknown(self, name: str, spelling: Mapping[str, str]) -> SparkOptionError:
        near = difflib.get_close_matches(name.lower(), spelling, n=1)
        hint = (
            f"Did you mean {spelling[near[0]]!r}?"
            if near
            else f"It has: {', '.join(sorted(spelling.values(), key=str.lower))}."
        )
        return SparkOptionError(f"{self.source} has no option {name!r}.", hint=hint)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def given_as(self, name: str) -> str:
        """Return the name that the user gave for an option: its own or an alias."""
        return self._given_as.get(name, name)

    def bad(self, name: str, reason: str, hint: str) -> SparkOptionError:
        """Return the error for an invalid value.

        Args:
            name: The option.
            reason: What is wrong; follows "which is", as in ``not a number``.
            hint: What to write instead.
        """
        value = self._values.get(name, "")
        return SparkOptionError(
            f"The option {self.given_as(name)!r} of {self.source} is {value!r}, which is {reason}.",
            hint=hint,
        )

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return an option as text; an empty one counts as not given."""
        return self._values.get(name) or default

    def required(self, name: str, hint: str) -> str:
        """Return an option that must be given."""
        value = self.text(name)
        if value is None:
            raise SparkOptionError(f"{self.source} needs the option {name!r}.", hint=hint)
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """Return one of ``choices``, in that spelling."""
        value = self.text(name, default)
        for choice in choices:
            if value is not None and value.lower() == choice.lower():
                return choice
        raise self.bad(name, "not one of its values", f"Write one of: {', '.join(choices)}.")

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return an option that is ``true`` or ``false``."""
        word = "true" if default else "false"
        return self.choice(name, ["true", "false"], word) == "true"

    def integer(
        self, name: str, default: int | None = None, *, minimum: int = 0, maximum: int = 2**63 - 1
    ) -> int | None:
        """Return a whole number within bounds."""
        text = self.text(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise self.bad(name, "not a whole number", "Write digits only.") from None
        if not minimum <= value <= maximum:
            raise self.bad(
                name, "out of bounds", f"Write a number from {minimum} to {maximum}."
            ) from None
        return value

    def size_bytes(self, name: str, default: int | None = None, *, minimum: int = 1) -> int | None:
        """Return the bytes of a size such as ``128m``, ``1g`` or ``4096``."""
        text = self.text(name)
        if text is None:
            return default
        match = _SIZE.fullmatch(text.strip())
        if match is None:
            raise self.bad(name, "not a size", "Write it as 64k, 128m or 1g.")
        value = int(match[1]) * _UNITS[match[2].lower()]
        if value < minimum:
            raise self.bad(name, "too small", f"Write at least {minimum} bytes.")
        return value

    def duration_ms(self, name: str, default: int | None = None) -> int | None:
        """Return the milliseconds of ``500ms``, ``30s``, ``15m`` or a bare number."""
        text = self.text(name)
        if text is None:
            return default
        if text.strip().isdecimal():
            return int(text)
        match = _DURATION.fullmatch(text.strip())
        if match is None:
            raise self.bad(name, "not a duration", "Write it as 500ms, 30s, 15m or 1h.")
        return int(match[1]) * _DURATION_UNITS_MS[match[2].lower()]

    def names(self, name: str) -> tuple[str, ...]:
        """Return a comma-separated list of words."""
        text = self.text(name) or ""
        return tuple(word.strip() for word in text.split(",") if word.strip())

    def integers(self, name: str) -> tuple[int, ...]:
        """Return a comma-separated list of whole numbers, none negative."""
        try:
            numbers = tuple(int(word) for word in self.names(name))
        except ValueError:
            numbers = (-1,)
        if any(number < 0 for number in numbers):
            raise self.bad(name, "not a list of numbers", "Write it as 0,1,2.")
        return numbers

    def pattern(self, name: str) -> re.Pattern[str] | None:
        """Return a regular expression that must match a whole name."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return re.compile(text)
        except re.error as error:
            raise self.bad(
                name, f"not a regular expression ({error})", "Write it as orders_.*"
            ) from None

    def time_ms(self, name: str) -> int | None:
        """Return a time as milliseconds since the epoch; see :func:`parse_time_ms`."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return parse_time_ms(text)
        except ValueError:
            raise self.bad(
                name,
                "no time",
                "Write milliseconds since 1970, or 2026-11-15T07:33:00Z.",
            ) from None

    def offsets(self, name: str, default: int) -> Offsets | int:
        """Return offsets given as ``earliest``, ``latest`` or JSON; see :func:`parse_offsets`."""
        text = self.text(name)
        if text is None:
            return default
        word = text.strip().lower()
        if word in {"earliest", "latest"}:
            return EARLIEST if word == "earliest" else LATEST
        try:
            return parse_offsets(text)
        except ValueError as error:
            raise self.bad(
                name,
                str(error),
                'Write earliest, latest, or JSON as {"topic":{"broker-a":{"0":42}}}'
                " with -2 for earliest and -1 for latest.",
            ) from None


def parse_time_ms(text: str) -> int:
    """Return milliseconds since the epoch, from a number or ISO 8601; without a zone it is UTC.

    Raises:
        ValueError: The text is not a time.

    Example:
        >>> parse_time_ms("1970-01-01T00:00:01.5")
        1500
        >>> parse_time_ms("1500")
        1500
    """
    stripped = text.strip()
    if re.fullmatch(r"-?\d+", stripped):
        return int(stripped)
    time = datetime.fromisoformat(stripped)
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    since = time - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000


def parse_offsets(text: str) -> Offsets:
    """Read ``{topic: {broker: {queue: offset}}}``.

    Raises:
        ValueError: It is not JSON of that form; the text says why and follows "which is".

    Example:
        >>> parse_offsets('{"Orders": {"broker-a": {"0": 42, "1": -1}}}')
        {'Orders': {'broker-a': {0: 42, 1: -1}}}
    """
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON ({error})") from None
    offsets: Offsets = {}
    for topic, brokers in _object(topics, "the whole").items():
        offsets[topic] = {}
        for broker, queues in _object(brokers, f"topic {topic!r}").items():
            offsets[topic][broker] = {
                _queue_id(queue, topic, broker): _offset(offset, topic, broker, queue)
                for queue, offset in _object(queues, f"broker {broker!r} of {topic!r}").items()
            }
    return offsets


def _object(value: object, what: str) -> dict[str, object]:
    if not isinstance(value, dict):
        _wrong(f"{what} is not an object")
    return value


def _queue_id(text: str, topic: str, broker: str) -> int:
    if not text.isdecimal():
        _wrong(f"{text!r} of {topic!r} on {broker!r} is not a queue id")
    return int(text)


def _offset(value: object, topic: str, broker: str, queue: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
        _wrong(f"{value!r} of queue {queue} of {topic!r} on {broker!r} is not an offset")
    return value


def _wrong(reason: str) -> NoReturn:
    raise ValueError(f"of a wrong shape ({reason})")
