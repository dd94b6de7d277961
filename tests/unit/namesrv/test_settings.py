"""The settings of a name server: its file and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.errors import ConfigError
from roquet.namesrv.config import NamesrvConfig
from roquet.namesrv.settings import (
    NAMESRV_SETTINGS,
    NamesrvSettings,
    load_namesrv_settings,
    namesrv_properties,
)
from tests.unit.broker import upstream_keys


def load(tmp_path: Path, text: str, flags: dict[str, str] | None = None) -> NamesrvSettings:
    path = tmp_path / "namesrv.conf"
    path.write_text(text, "utf-8")
    return load_namesrv_settings(path, flags or {})


@pytest.mark.parametrize("name", ["NamesrvConfig", "NettyServerConfig"])
def test_every_key_of_upstream_is_known(name: str) -> None:
    table = NAMESRV_SETTINGS
    known = {*table.with_effect, *table.without_effect, *table.unsupported}
    assert set(upstream_keys.UPSTREAM_KEYS[name]) - known == set()


def test_upstreams_file_is_read(tmp_path: Path) -> None:
    settings = load(tmp_path, "listenPort=9877\nserverWorkerThreads=8\norderMessageEnable = TRUE\n")
    assert (settings.config.listen_port, settings.config.order_message) == (9877, True)
    assert settings.without_effect == ["serverWorkerThreads"]
    assert settings.warnings == []


def test_the_defaults_bind_loopback() -> None:
    assert load_namesrv_settings(None, {}).config == NamesrvConfig()
    assert NamesrvConfig().bind_address == "127.0.0.1"


def test_flags_win(tmp_path: Path) -> None:
    settings = load(tmp_path, "listenPort=1\nbindAddress=a\n", {"listenPort": "0"})
    assert (settings.config.listen_port, settings.config.bind_address) == (0, "a")


def test_an_unknown_key_is_a_warning_with_the_nearest_name(tmp_path: Path) -> None:
    (warning,) = load(tmp_path, "listenport=1").warnings
    assert warning.message == "There is no setting 'listenport'."
    assert warning.hint == "Did you mean listenPort?"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listenPort", "70000"),
        ("listenPort", ""),
        ("orderMessageEnable", "maybe"),
        ("scanNotActiveBrokerInterval", "0"),
    ],
)
def test_a_bad_value_names_its_key_and_its_line(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, f"\n{key}={value}")
    assert caught.value.message == f"The value of {key} cannot be used."
    assert f"line 2: {value!r}, expected" in (caught.value.detail or "")


def test_a_controller_inside_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="enableControllerInNamesrv=true"):
        load(tmp_path, "enableControllerInNamesrv=true")


def test_shown_settings_can_be_read_again(tmp_path: Path) -> None:
    settings = load(tmp_path, "orderMessageEnable=true\n")
    shown = namesrv_properties(settings)
    assert shown["orderMessageEnable"] == "true"
    text = "".join(f"{key}={value}\n" for key, value in shown.items())
    assert load(tmp_path, text).config == settings.config
