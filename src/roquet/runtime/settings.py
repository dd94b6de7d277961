"""Settings: from the text of a file to a checked struct, and back.

Owns the one way in which a name server or broker gets its settings. A settings struct is a frozen
``msgspec.Struct`` whose fields carry upstream's keys as their encoded names.

Invariants:

* A value that cannot be used is an error that names where it stands, its key, the value, and what
  is expected instead. Nothing is guessed.
* A key that nobody knows is a warning with the nearest known name, so that a misspelt key never
  goes unseen and a file of a later version can still be read.
* A key whose value asks for something that this version cannot do is an error when ignoring it
  would break a promise (:class:`Unsupported`), and a note when it would not
  (:class:`WithoutEffect`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from roquet.errors import ConfigError
from roquet.model.properties_text import property_lines
from roquet.runtime.files import Files

__all__ = [
    "COMMAND_LINE",
    "Setting",
    "SettingsTable",
    "Sorted",
    "Unsupported",
    "WithoutEffect",
    "changed",
    "expected_value",
    "from_command_line",
    "keys_of",
    "read_settings_file",
    "shown_value",
    "to_properties",
    "unknown_key",
]

COMMAND_LINE = "the command line"
"""The origin of settings that flags give."""

MAX_FILE_BYTES = 1 << 20
_SHOWN_CHARACTERS = 80

S = TypeVar("S", bound=Struct)


class Setting(NamedTuple):
    """One value as it was written.

    Attributes:
        key: Upstream's name of the setting.
        text: The value.
        origin: Where it stands, in words; empty if there is nothing to say.
    """

    key: str
    text: str
    origin: str = ""


class WithoutEffect(NamedTuple):
    """Upstream's keys that a file may have and that change nothing here.

    Attributes:
        reason: Why they change nothing.
        keys: The keys.
    """

    reason: str
    keys: frozenset[str]


class Unsupported(NamedTuple):
    """A key of which only some values are understood, since the others ask for what is not there.

    Attributes:
        key: The key.
        accepted: The values that are understood, in lower case.
        reason: Why the others are refused.
    """

    key: str
    accepted: frozenset[str]
    reason: str


class Sorted(NamedTuple):
    """The settings of a file by what becomes of them.

    Attributes:
        known: Those of the structs, by key.
        without_effect: Keys that change nothing.
        warnings: What is wrong with the others.
    """

    known: dict[str, Setting]
    without_effect: list[str]
    warnings: list[ConfigError]


class SettingsTable:
    """What is known of the keys that one kind of server reads.

    Args:
        structs: The types of the structs that hold settings.
        also: Further keys that the reader of the settings handles itself.
        without_effect: Keys that change nothing.
        unsupported: Keys that have no effect, but of which only some values may be left unheard.
    """

    def __init__(
        self,
        structs: Iterable[type[Struct]],
        *,
        also: Iterable[str] = (),
        without_effect: Iterable[WithoutEffect] = (),
        unsupported: Iterable[Unsupported] = (),
    ) -> None:
        self.with_effect = frozenset({*also, *(key for each in structs for key in keys_of(each))})
        self.unsupported = {each.key: each for each in unsupported}
        self.without_effect = {key: group for group in without_effect for key in group.keys}

    def sort(self, settings: Mapping[str, Setting]) -> Sorted:
        """Tell settings apart.

        Raises:
            ConfigError: A value asks for something that is not there.
        """
        known: dict[str, Setting] = {}
        without_effect: list[str] = []
        warnings: list[ConfigError] = []
        for key, setting in settings.items():
            unsupported = self.unsupported.get(key)
            if unsupported is not None:
                _check_supported(setting, unsupported)
            if key in self.with_effect:
                known[key] = setting
            elif unsupported is None and key in self.without_effect:
                without_effect.append(key)
            elif unsupported is None:
                warnings.append(self.unknown(setting))
        return Sorted(known, without_effect, warnings)

    def unknown(self, setting: Setting) -> ConfigError:
        """The warning about a key that nobody knows."""
        return unknown_key(setting, [*self.with_effect, *self.unsupported, *self.without_effect])


def read_settings_file(path: Path, files: Files) -> dict[str, Setting]:
    """The settings of a file by key; of a key that comes twice, the last.

    Raises:
        ConfigError: The file cannot be read, or is no text of settings.
    """
    try:
        # A file of settings may be a link: the tables of a container platform are.
        place = path.resolve()
        size_bytes = files.size_bytes(place)
        data = files.read_file(place) if size_bytes <= MAX_FILE_BYTES else b""
    except OSError as error:
        raise ConfigError(
            "The file of settings cannot be read.", detail=f"{path}: {error.strerror or error}"
        ) from None
    if size_bytes > MAX_FILE_BYTES:
        raise ConfigError(
            "The file of settings is too long.",
            detail=f"{path}: {size_bytes} bytes, at most {MAX_FILE_BYTES}",
        )
    try:
        lines = list(property_lines(data.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise ConfigError(
            "The file of settings is not UTF-8.",
            detail=f"{path}: byte {error.start} of the file",
            hint="Save it as UTF-8, or write other characters as \\uXXXX.",
        ) from None
    except ConfigError as error:
        raise ConfigError(
            error.message, detail=f"{path}, {error.detail}", hint=error.hint
        ) from None
    return {
        line.key: Setting(line.key, line.value.strip(), f"{path}, line {line.line_number}")
        for line in lines
    }


def from_command_line(
    overrides: Mapping[str, str], *, origin: str = COMMAND_LINE
) -> dict[str, Setting]:
    """Settings that flags gave, or another caller, by key."""
    return {key: Setting(key, text.strip(), origin) for key, text in overrides.items()}


def changed(config: S, settings: Iterable[Setting]) -> S:
    """A copy of ``config`` with settings of the file, checked.

    Raises:
        ConfigError: A value cannot be used.
    """
    asked = {setting.key: setting for setting in settings}
    kind = type(config)
    types = {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
    values: dict[str, object] = msgspec.to_builtins(config)
    for key, setting in asked.items():
        try:
            # One at a time, so that the error can name the key.
            msgspec.convert(setting.text, types[key], strict=False)
        except msgspec.ValidationError:
            raise _bad_value(setting, expected_value(kind, key)) from None
        values[key] = setting.text
    try:
        return msgspec.convert(values, kind, strict=False)
    except ConfigError as error:
        # The struct's own check: say where the settings stand that it speaks of.
        told = [each.origin for each in asked.values() if each.origin and each.key in error.message]
        detail = "; ".join([*told, *filter(None, [error.detail])])
        raise ConfigError(error.message, detail=detail or None, hint=error.hint) from None


def keys_of(kind: type[Struct]) -> dict[str, str]:
    """Upstream's keys of a struct of settings, with our names."""
    return {each.encode_name: each.name for each in msgspec.structs.fields(kind)}


def expected_value(kind: type[Struct], key: str) -> str:
    """What may be written for a key, in words.

    Example:
        >>> class Ports(Struct):
        ...     secure: bool = msgspec.field(default=False, name="secureOnly")
        >>> expected_value(Ports, "secureOnly")
        'true or false'
    """
    types = {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
    found = msgspec.inspect.type_info(types[key])
    match found:
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.EnumType(cls=cls):
            return "one of " + ", ".join(str(each.value) for each in cls)
        case msgspec.inspect.IntType(ge=int(least), le=int(most)):
            return f"a whole number from {least} to {most}"
        case msgspec.inspect.IntType(ge=int(least)):
            return f"a whole number, {least} or more"
        case msgspec.inspect.IntType():
            return "a whole number"
        case _:
            return "text"


def shown_value(value: object) -> str:
    """A value as it is written in a file.

    Example:
        >>> shown_value(True), shown_value(7)
        ('true', '7')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value if isinstance(value, Enum) else value)


def to_properties(config: Struct) -> dict[str, str]:
    """All settings of a struct, by upstream's keys, in the order of the struct."""
    return {
        each.encode_name: shown_value(getattr(config, each.name))
        for each in msgspec.structs.fields(config)
    }


def unknown_key(setting: Setting, known: Sequence[str]) -> ConfigError:
    """The warning about a key that nobody knows."""
    near = difflib.get_close_matches(setting.key[:_SHOWN_CHARACTERS], known, n=1)
    return ConfigError(
        f"There is no setting {setting.key[:_SHOWN_CHARACTERS]!r}.",
        code="config_unknown_key",
        detail=setting.origin or None,
        hint=f"Did you mean {near[0]}?" if near else None,
    )


def _bad_value(setting: Setting, expected: str) -> ConfigError:
    place = f"{setting.origin}: " if setting.origin else ""
    return ConfigError(
        f"The value of {setting.key} cannot be used.",
        detail=f"{place}{setting.text[:_SHOWN_CHARACTERS]!r}, expected {expected}",
    )


def _check_supported(setting: Setting, unsupported: Unsupported) -> None:
    if setting.text.lower() in unsupported.accepted:
        return
    place = f"{setting.origin}: " if setting.origin else ""
    accepted = " or ".join(sorted(unsupported.accepted - {""}))
    raise ConfigError(
        f"{setting.key}={setting.text[:_SHOWN_CHARACTERS]} cannot be had.",
        code="config_unsupported",
        detail=f"{place}{unsupported.reason}",
        hint=f"Leave {setting.key} out" + (f", or set it to {accepted}." if accepted else "."),
    )
