"""Settings of the name server, and which of them a request changes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from roquet.errors import ConfigError, DiskFull
from roquet.model.properties_text import parse_properties
from roquet.namesrv.config import (
    DYNAMIC_KEYS,
    KEYS_WITHOUT_EFFECT,
    Configuration,
    NamesrvConfig,
)
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files
from tests.unit.namesrv.kit import FullDisk

FIELDS = {each.encode_name: each for each in msgspec.structs.fields(NamesrvConfig)}


def config_file(path: Path, files: Files | None = None) -> ConfigFile[dict[str, str]]:
    return ConfigFile(path, files or Files(), decode=parse_properties)


def test_keys_that_a_request_may_change_are_not_text() -> None:
    assert FIELDS.keys() >= DYNAMIC_KEYS
    assert [key for key in DYNAMIC_KEYS if FIELDS[key].type is str] == []


def test_keys_have_an_effect_or_none() -> None:
    assert FIELDS.keys() & KEYS_WITHOUT_EFFECT == set()


async def test_changes_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    base = NamesrvConfig(listen_port=1)
    first = Configuration(base, config_file(path))
    first.load()
    await first.update("orderMessageEnable=true\nwaitSecondsForService = 7")
    await first.update("orderMessageEnable=false")
    assert path.read_text("utf-8") == "orderMessageEnable=false\nwaitSecondsForService=7\n"
    second = Configuration(base, config_file(path))
    second.load()
    assert second.current == NamesrvConfig(
        listen_port=1, order_message=False, wait_seconds_for_service=7
    )


def test_a_file_of_upstream_changes_no_path(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    path.write_text("kvConfigPath=/x\nlistenPort=1\nenableTopicList=false\n", "utf-8")
    configuration = Configuration(NamesrvConfig(), config_file(path))
    configuration.load()
    assert configuration.current == NamesrvConfig(topic_list=False)


async def test_a_change_that_cannot_be_saved_is_not_made(tmp_path: Path) -> None:
    configuration = Configuration(NamesrvConfig(), config_file(tmp_path / "p", FullDisk()))
    with pytest.raises(DiskFull):
        await configuration.update("orderMessageEnable=true")
    assert configuration.current == NamesrvConfig()


async def test_changes_are_written_off_the_loop_and_applied_in_order(tmp_path: Path) -> None:
    writers: set[int] = set()

    class Noting(Files):
        def data_sync(self, fd: int) -> None:
            writers.add(threading.get_ident())
            super().data_sync(fd)

    path = tmp_path / "namesrv.properties"
    configuration = Configuration(NamesrvConfig(), config_file(path, Noting()))
    texts = ["waitSecondsForService=7", "orderMessageEnable=true", "waitSecondsForService=8"]
    await asyncio.gather(*map(configuration.update, texts))
    assert configuration.current == NamesrvConfig(order_message=True, wait_seconds_for_service=8)
    assert path.read_text("utf-8") == "orderMessageEnable=true\nwaitSecondsForService=8\n"
    assert writers
    assert threading.get_ident() not in writers


async def test_the_operator_may_forbid_more() -> None:
    base = NamesrvConfig(config_black_list="enableTopicList;x")
    configuration = Configuration(base)
    with pytest.raises(ConfigError, match="black list"):
        await configuration.update("enableTopicList=false")
    await configuration.update("enableAllTopicList=false")


def test_all_settings_are_shown_in_order() -> None:
    lines = Configuration(NamesrvConfig()).text().splitlines()
    keys = [line.partition("=")[0] for line in lines]
    assert keys == sorted(FIELDS)
    assert "orderMessageEnable=false" in lines
    assert "listenPort=9876" in lines
