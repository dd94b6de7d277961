"""Parses flags and prints help like upstream's tools.

Owns the rules of Apache Commons CLI 1.5 (``DefaultParser``, ``HelpFormatter``), as far as flags
with one value or none need them: long names may be abbreviated, ``-t=x``, ``-tx`` and ``--topic=x``
are the same, short flags can be joined, quotes around a value are dropped, and other words are
set aside.
"""

from __future__ import annotations

from collections.abc import Sequence

from roquet.cli.mqadmin.catalogue import CommandSpec, Flag
from roquet.cli.mqadmin.java import parse_number

__all__ = ["BadFlags", "Flags", "format_help", "parse_flags"]

HELP_WIDTH = 110


class BadFlags(Exception):
    """The arguments of a command are invalid; the text is upstream's."""


class Flags:
    """The flags that a command was given."""

    def __init__(self) -> None:
        self._given: dict[str, str | None] = {}

    def note(self, flag: Flag, value: str | None) -> None:
        """Record a flag; if it is repeated, the first value counts."""
        if self._given.get(flag.key) is None:
            self._given[flag.key] = value

    def __contains__(self, key: str) -> bool:
        return key in self._given

    def get(self, key: str) -> str | None:
        """The value of a flag, without blanks around it; ``None`` if it was not given."""
        value = self._given.get(key)
        return None if value is None else value.strip()

    def text(self, key: str, default: str = "") -> str:
        """The value of a flag, or the default."""
        value = self.get(key)
        return default if value is None else value

    def number(self, key: str, default: int = 0) -> int:
        """The value of a flag as a whole number, or the default.

        Raises:
            BadNumber: It is not a number.
        """
        value = self.get(key)
        return default if value is None else parse_number(value)

    def truth(self, key: str, *, default: bool = False) -> bool:
        """Whether the value of a flag is ``true``."""
        value = self.get(key)
        return default if value is None else value.lower() == "true"


class _Parser:
    def __init__(self, flags: Sequence[Flag]) -> None:
        self._shorts = {flag.short: flag for flag in flags if flag.short}
        self._longs = {flag.long: flag for flag in flags}
        self._flags = flags
        self._waiting: Flag | None = None
        self._chosen: dict[int, Flag] = {}
        self.found = Flags()

    # ------------------------------------------------------------------------------- looking up

    def _matching(self, word: str) -> list[Flag]:
        name = word.lstrip("-") if word.startswith("--") else word.removeprefix("-")
        if name in self._longs:
            return [self._longs[name]]
        return [flag for long, flag in self._longs.items() if long.startswith(name)]

    def _by_prefix(self, word: str) -> Flag | None:
        """The flag whose whole long name is a prefix of a word."""
        name = word.lstrip("-")
        for length in range(len(name) - 2, 1, -1):
            if name[:length] in self._longs:
                return self._longs[name[:length]]
        return None

    def _is_flag(self, word: str) -> bool:
        if not word.startswith("-") or len(word) == 1:
            return False
        name = word.partition("=")[0]
        if self._matching(name):
            return True
        if not word.startswith("--") and self._by_prefix(word) is not None:
            return True
        short = name[1:]
        return bool(short) and (short in self._shorts or short[0] in self._shorts)

    # --------------------------------------------------------------------------------- parsing

    def parse(self, words: Sequence[str]) -> Flags:
        for word in words:
            if word == "--":
                if self._waiting is None:
                    break
                raise _missing_value(self._waiting)
            if self._waiting is not None and (not self._is_flag(word) or _is_number(word)):
                self._take(_unquoted(word))
            elif word.startswith("--"):
                self._long(word)
            elif word.startswith("-") and word != "-":
                self._short_or_long(word)
        self._check_waiting()
        self._check_required()
        return self.found

    def _take(self, value: str) -> None:
        assert self._waiting is not None
        self.found.note(self._waiting, value)
        self._waiting = None

    def _check_waiting(self) -> None:
        if self._waiting is not None:
            raise _missing_value(self._waiting)

    def _given(self, flag: Flag, value: str | None = None) -> None:
        self._check_waiting()
        if flag.group:
            chosen = self._chosen.setdefault(flag.group, flag)
            if chosen is not flag:
                raise BadFlags(
                    f"The option '{flag.key}' was specified but an option from this group has "
                    f"already been selected: '{chosen.key}'"
                )
        self.found.note(flag, value)
        if flag.has_value and value is None:
            self._waiting = flag

    def _long(self, word: str) -> None:
        name, equals, value = word.partition("=")
        matching = self._matching(name)
        if not matching:
            raise _unknown(word)
        if len(matching) > 1:
            names = ", ".join(f"'{flag.long}'" for flag in matching)
            raise BadFlags(f"Ambiguous option: '{name}'  (could be: {names})")
        if not equals:
            self._given(matching[0])
        elif matching[0].has_value:
            self._given(matching[0], value)
        else:
            raise _unknown(word)

    def _short_or_long(self, word: str) -> None:
        name, equals, value = word[1:].partition("=")
        if equals:
            if len(name) != 1:
                self._long(word)
            elif name in self._shorts and self._shorts[name].has_value:
                self._given(self._shorts[name], value)
            else:
                raise _unknown(word)
        elif name in self._shorts:
            self._given(self._shorts[name])
        elif len(name) > 1 and self._matching(name):
            self._long(word)
        elif (flag := self._by_prefix(name)) is not None and flag.has_value:
            self._given(flag, name[len(flag.long) :])
        else:
            self._joined(word)

    def _joined(self, word: str) -> None:
        for at, letter in enumerate(word[1:], start=1):
            flag = self._shorts.get(letter)
            if flag is None:
                raise _unknown(word)
            rest = word[at + 1 :]
            if flag.has_value and rest:
                self._given(flag, rest)
                return
            self._given(flag)

    def _check_required(self) -> None:
        missing: list[str] = []
        groups: set[int] = set()
        for flag in self._flags:
            if flag.is_required and flag.key not in self.found:
                missing.append(flag.key)
            elif flag.group and flag.group not in groups | self._chosen.keys():
                groups.add(flag.group)
                members = [each for each in self._flags if each.group == flag.group]
                missing.append(f"[{', '.join(f'-{each.key} {each.help}' for each in members)}]")
        if missing:
            plural = "s" if len(missing) > 1 else ""
            raise BadFlags(f"Missing required option{plural}: {', '.join(missing)}")


def _missing_value(flag: Flag) -> BadFlags:
    return BadFlags(f"Missing argument for option: {flag.key}")


def _unknown(word: str) -> BadFlags:
    return BadFlags(f"Unrecognized option: {word}")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value.startswith('"') and value.endswith('"')
    return value[1:-1] if is_quoted and '"' not in value[1:-1] else value


def parse_flags(spec: CommandSpec, words: Sequence[str]) -> Flags:
    """Parse the words after the name of a command.

    Raises:
        BadFlags: They are invalid.
    """
    return _Parser(spec.flags).parse(words)


# ------------------------------------------------------------------------------------------ help


def format_help(spec: CommandSpec) -> str:
    """The help of a command."""
    flags = sorted(spec.flags, key=lambda flag: flag.key.lower())
    usage = f"usage: mqadmin {spec.name} {' '.join(_usages(flags))}"
    lines = _wrapped(usage, len("usage: "))
    names = [_names(flag) for flag in flags]
    width = max(len(name) for name in names)
    for flag, name in zip(flags, names, strict=True):
        lines += _wrapped(f"{name:{width}}   {flag.help}", width + 3)
    return "\n".join(lines) + "\n"


def _usages(flags: Sequence[Flag]) -> list[str]:
    found: list[str] = []
    groups: set[int] = set()
    for flag in flags:
        if not flag.group:
            found.append(_usage(flag) if flag.is_required else f"[{_usage(flag)}]")
        elif flag.group in groups:
            found.append("")
        else:
            groups.add(flag.group)
            members = [each for each in flags if each.group == flag.group]
            found.append(" | ".join(_usage(each) for each in members))
    return found


def _usage(flag: Flag) -> str:
    name = f"-{flag.short}" if flag.short else f"--{flag.long}"
    return f"{name} <arg>" if flag.has_value else name


def _names(flag: Flag) -> str:
    name = f" -{flag.short},--{flag.long}" if flag.short else f"    --{flag.long}"
    return f"{name} <arg>" if flag.has_value else name


def _wrapped(text: str, indent: int) -> list[str]:
    lines: list[str] = []
    at = _wrap_position(text)
    while at is not None:
        lines.append(text[:at].rstrip())
        text = " " * indent + text[at:].strip()
        at = _wrap_position(text)
        if at is not None and at == indent - 1:
            at = HELP_WIDTH
    lines.append(text if lines else text.rstrip())
    return lines


def _wrap_position(text: str) -> int | None:
    if len(text) <= HELP_WIDTH:
        return None
    blank = text.rfind(" ", 0, HELP_WIDTH + 1)
    return blank if blank > 0 else HELP_WIDTH
