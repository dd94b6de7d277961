"""Settings: from the text of a file to a checked struct, and back.

Owns the one way in which a name server or broker gets its settings. A settings struct is a frozen
``msgspec.Struct`` whose fields carry upstream's keys as their encoded names.

Invariants:

* An invalid value is an error that names its place, the key, the value, and what is expected
  instead. Nothing is guessed.
* Every number has a range: that of upstream's Java type, or a narrower one. Other values would only
  fail later, in a timer, a header or a file name.
* An unknown key is a warning with the nearest known name, so that a misspelt key never goes
  unnoticed and a file of a later version can still be read.
* A key whose value asks for something that this version cannot do is an error
  (:class:`Unsupported`). A key that only tunes a missing feature is a warning that names the
  feature, and one that has nothing to tune here is a note (both :class:`IgnoredKeys`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from roquet.errors import ConfigError
from roquet.model.properties_text import property_lines
from roquet.runtime.files import Files

__all__ = [
    "COMMAND_LINE",
    "INT_MAX",
    "IgnoredKeys",
    "NonNegative",
    "NonNegativeLong",
    "NonNegativeMs",
    "Port",
    "Positive",
    "PositiveLong",
    "PositiveMs",
    "Setting",
    "SettingsTable",
    "SortedSettings",
    "Unsupported",
    "changed",
    "check_supported",
    "expected_value",
    "from_command_line",
    "keys_of",
    "read_settings_file",
    "shown_value",
    "to_properties",
    "unknown_key",
]

COMMAND_LINE = "the command line"
"""The origin of settings from flags."""

INT_MAX = (1 << 31) - 1
"""The maximum of a Java ``int``."""

LONG_MAX = (1 << 63) - 1
"""The maximum of a Java ``long``."""

DURATION_MS_MAX = 100 * 365 * 24 * 3600 * 1000
"""A century: the longest wait that every kind of timer supports."""

Positive = Annotated[int, Meta(ge=1, le=INT_MAX)]
NonNegative = Annotated[int, Meta(ge=0, le=INT_MAX)]
PositiveLong = Annotated[int, Meta(ge=1, le=LONG_MAX)]
NonNegativeLong = Annotated[int, Meta(ge=0, le=LONG_MAX)]
PositiveMs = Annotated[int, Meta(ge=1, le=DURATION_MS_MAX)]
"""A duration that upstream keeps in a ``long``."""
NonNegativeMs = Annotated[int, Meta(ge=0, le=DURATION_MS_MAX)]
Port = Annotated[int, Meta(ge=0, le=65535)]

MAX_FILE_BYTES = 1 << 20
_SHOWN_CHARACTERS = 80

S = TypeVar("S", bound=Struct)


class Setting(NamedTuple):
    """One value as it was written.

    Attributes:
        key: Upstream's name of the setting.
        text: The value.
        origin: Where it was set, in words; may be empty.
    """

    key: str
    text: str
    origin: str = ""


class IgnoredKeys(NamedTuple):
    """Upstream's keys that a file may have, but that have no effect here.

    Attributes:
        reason: Why they have no effect.
        keys: The keys.
        feature: The missing feature that they tune, if there is one.
    """

    reason: str
    keys: frozenset[str]
    feature: str = ""


class Unsupported(NamedTuple):
    """A key of which only some values are supported; the others need missing features.

    Attributes:
        key: The key.
        accepted: The supported values, in lower case.
        reason: Why the others are refused.
    """

    key: str
    accepted: frozenset[str]
    reason: str


class SortedSettings(NamedTuple):
    """The settings of a file, sorted by how they are handled.

    Attributes:
        known: Those of the structs, by key.
        without_effect: Keys without effect that tune nothing missing.
        warnings: The problems with the others.
    """

    known: dict[str, Setting]
    without_effect: list[str]
    warnings: list[ConfigError]


class SettingsTable:
    """The known keys of one kind of server.

    Args:
        structs: The settings structs.
        also: Further keys that the reader of the settings handles itself.
        without_effect: Keys without effect.
        unsupported: Keys without effect of which only some values may be ignored.
    """

    def __init__(
        self,
        structs: Iterable[type[Struct]],
        *,
        also: Iterable[str] = (),
        without_effect: Iterable[IgnoredKeys] = (),
        unsupported: Iterable[Unsupported] = (),
    ) -> None:
        self.with_effect = frozenset({*also, *(key for each in structs for key in keys_of(each))})
        self.unsupported = {each.key: each for each in unsupported}
        self.without_effect = {key: group for group in without_effect for key in group.keys}

    def sort(self, settings: Mapping[str, Setting]) -> SortedSettings:
        """Sort settings by how they are handled.

        Raises:
            ConfigError: A value needs a missing feature.
        """
        known: dict[str, Setting] = {}
        without_effect: list[str] = []
        warnings: list[ConfigError] = []
        missing: dict[str, list[Setting]] = {}
        for key, setting in settings.items():
            unsupported = self.unsupported.get(key)
            if unsupported is not None:
                check_supported(setting, unsupported)
            if key in self.with_effect:
                known[key] = setting
            elif unsupported is None and key in self.without_effect:
                feature = self.without_effect[key].feature
                if feature:
                    missing.setdefault(feature, []).append(setting)
                else:
                    without_effect.append(key)
            elif unsupported is None:
                warnings.append(self.unknown(setting))
        warnings += [_missing_feature(*each) for each in missing.items()]
        return SortedSettings(known, without_effect, warnings)

    def unknown(self, setting: Setting) -> ConfigError:
        """The warning about an unknown key."""
        return unknown_key(setting, [*self.with_effect, *self.unsupported, *self.without_effect])


def read_settings_file(path: Path, files: Files) -> dict[str, Setting]:
    """Read the settings of a file by key; the last one wins if a key is repeated.

    Raises:
        ConfigError: The file cannot be read or parsed.
    """
    try:
        # A configuration file may be a link, as on container platforms.
        place = path.resolve()
        size_bytes = files.size_bytes(place)
        data = files.read_file(place) if size_bytes <= MAX_FILE_BYTES else b""
    except OSError as error:
        raise ConfigError(
            "The configuration file cannot be read.", detail=f"{path}: {error.strerror or error}"
        ) from None
    if size_bytes > MAX_FILE_BYTES:
        raise ConfigError(
            "The configuration file is too long.",
            detail=f"{path}: {size_bytes} bytes, at most {MAX_FILE_BYTES}",
        )
    try:
        lines = list(property_lines(data.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise ConfigError(
            "The configuration file is not UTF-8.",
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
    """Settings from flags, or from another caller, by key."""
    return {key: Setting(key, text.strip(), origin) for key, text in overrides.items()}


def changed(config: S, settings: Iterable[Setting]) -> S:
    """A checked copy of ``config`` with the given settings.

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
        # The struct's own check: add where the settings were set that it mentions.
        told = [each.origin for each in asked.values() if each.origin and each.key in error.message]
        detail = "; ".join([*told, *filter(None, [error.detail])])
        raise ConfigError(error.message, detail=detail or None, hint=error.hint) from None


@cache
def keys_of(kind: type[Struct]) -> Mapping[str, str]:
    """Upstream's keys of a settings struct, with our names."""
    return {each.encode_name: each.name for each in msgspec.structs.fields(kind)}


def expected_value(kind: type[Struct], key: str) -> str:
    """A description of the valid values of a key.

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
    """A value as written in a file.

    Example:
        >>> shown_value(True), shown_value(7)
        ('true', '7')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value if isinstance(value, Enum) else value)


def to_properties(config: Struct) -> dict[str, str]:
    """All settings of a struct, by upstream's keys, in the order of the struct."""
    return {key: shown_value(getattr(config, name)) for key, name in keys_of(type(config)).items()}


def unknown_key(setting: Setting, known: Sequence[str]) -> ConfigError:
    """The warning about an unknown key."""
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


def _missing_feature(feature: str, settings: Sequence[Setting]) -> ConfigError:
    return ConfigError(
        f"This version has no {feature}: {', '.join(each.key for each in settings)} "
        f"{'has' if len(settings) == 1 else 'have'} no effect.",
        code="config_missing_feature",
        detail="; ".join(dict.fromkeys(each.origin for each in settings if each.origin)) or None,
    )


def check_supported(setting: Setting, unsupported: Unsupported) -> None:
    """Refuse a value that needs a missing feature.

    Raises:
        ConfigError: It does; the code is ``config_unsupported``.
    """
    if setting.text.lower() in unsupported.accepted:
        return
    place = f"{setting.origin}: " if setting.origin else ""
    accepted = " or ".join(sorted(unsupported.accepted - {""}))
    raise ConfigError(
        f"{setting.key}={setting.text[:_SHOWN_CHARACTERS]} is not supported.",
        code="config_unsupported",
        detail=f"{place}{unsupported.reason}",
        hint=f"Remove {setting.key}" + (f", or set it to {accepted}." if accepted else "."),
    )
