"""From the text of a file to a checked struct, and back."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import pytest
from msgspec import Meta, Struct, field

from roquet.errors import ConfigError
from roquet.runtime.files import Files
from roquet.runtime.settings import (
    MAX_FILE_BYTES,
    IgnoredKeys,
    Setting,
    SettingsTable,
    Unsupported,
    changed,
    expected_value,
    from_command_line,
    read_settings_file,
    to_properties,
)


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Config(Struct, frozen=True, kw_only=True):
    port: Annotated[int, Meta(ge=0, le=9)] = field(default=1, name="thePort")
    count: Annotated[int, Meta(ge=1)] = field(default=1, name="theCount")
    any_number: int = field(default=0, name="anyNumber")
    switch: bool = field(default=False, name="theSwitch")
    colour: Colour = field(default=Colour.RED, name="theColour")
    name: str = field(default="", name="theName")

    def __post_init__(self) -> None:
        if self.port and self.port == self.count + 1:
            raise ConfigError("thePort does not go with theCount", detail="one too many")


TABLE = SettingsTable(
    [Config],
    also=["aFile"],
    without_effect=[IgnoredKeys("of old", frozenset({"oldThing"}))],
    unsupported=[Unsupported("magic", frozenset({"off"}), "there is none")],
)


def setting(key: str, text: str) -> Setting:
    return Setting(key, text, "a.conf, line 1")


def test_values_take_the_type_of_their_field() -> None:
    asked = [
        setting("thePort", "7"),
        setting("theSwitch", "TRUE"),
        setting("theColour", "blue"),
        setting("theName", "x y"),
    ]
    assert changed(Config(count=3), asked) == Config(
        port=7, count=3, switch=True, colour=Colour.BLUE, name="x y"
    )


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("thePort", "10", "a whole number from 0 to 9"),
        ("thePort", "", "a whole number from 0 to 9"),
        ("theCount", "0", "a whole number, 1 or more"),
        ("anyNumber", "1.5", "a whole number"),
        ("theSwitch", "on", "true or false"),
        ("theColour", "RED", "one of red, blue"),
    ],
)
def test_a_bad_value(key: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        changed(Config(), [setting(key, text)])
    assert caught.value.message == f"The value of {key} cannot be used."
    assert caught.value.detail == f"a.conf, line 1: {text!r}, expected {expected}"
    assert expected_value(Config, key) == expected


def test_text_may_be_anything() -> None:
    assert expected_value(Config, "theName") == "text"


def test_a_long_bad_value_is_cut() -> None:
    with pytest.raises(ConfigError) as caught:
        changed(Config(), [Setting("thePort", "9" * 5000)])
    assert len(caught.value.detail or "") < 200


def test_contradicting_values_are_reported_with_their_lines() -> None:
    asked = [Setting("thePort", "3", "line 4"), Setting("theCount", "2", "line 5")]
    with pytest.raises(ConfigError) as caught:
        changed(Config(), [*asked, Setting("theName", "x", "line 6")])
    assert caught.value.detail == "line 4; line 5; one too many"


def test_keys_are_distinguished() -> None:
    settings = {
        key: setting(key, text)
        for key, text in {
            "thePort": "1",
            "aFile": "x",
            "oldThing": "y",
            "magic": "OFF",
            "theProt": "2",
        }.items()
    }
    found = TABLE.sort(settings)
    assert list(found.known) == ["thePort", "aFile"]
    assert found.without_effect == ["oldThing"]
    (warning,) = found.warnings
    assert (warning.message, warning.detail, warning.hint) == (
        "There is no setting 'theProt'.",
        "a.conf, line 1",
        "Did you mean thePort?",
    )


def test_an_unsupported_value_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        TABLE.sort({"magic": setting("magic", "on")})
    assert caught.value.code == "config_unsupported"
    assert caught.value.message == "magic=on is not supported."
    assert caught.value.detail == "a.conf, line 1: there is none"
    assert caught.value.hint == "Remove magic, or set it to off."


def test_a_file_is_read_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_text("# x\na = 1 \nb=2\na=3\n")
    assert read_settings_file(path, Files()) == {
        "a": ("a", "3", f"{path}, line 4"),
        "b": ("b", "2", f"{path}, line 3"),
    }


@pytest.mark.parametrize(
    ("data", "message", "detail"),
    [
        (b"a=\xff", "The configuration file is not UTF-8.", "byte 2"),
        (b"\na=\\u12", "Malformed \\uxxxx encoding.", "line 2"),
        (b"#" * (MAX_FILE_BYTES + 1), "The configuration file is too long.", "at most"),
    ],
)
def test_malformed_settings_files(tmp_path: Path, data: bytes, message: str, detail: str) -> None:
    path = tmp_path / "a.conf"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        read_settings_file(path, Files())
    assert caught.value.message == message
    assert str(path) in (caught.value.detail or "")
    assert detail in (caught.value.detail or "")


def test_a_folder_instead_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_settings_file(tmp_path, Files())


def test_flags_carry_their_source() -> None:
    assert from_command_line({"a": " 1 "}) == {"a": ("a", "1", "the command line")}


def test_back_to_text() -> None:
    assert to_properties(Config(switch=True, colour=Colour.BLUE)) == {
        "thePort": "1",
        "theCount": "1",
        "anyNumber": "0",
        "theSwitch": "true",
        "theColour": "blue",
        "theName": "",
    }
