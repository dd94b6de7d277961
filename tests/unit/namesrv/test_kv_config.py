"""Values by namespace and key, and the file that keeps them."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from roquet.errors import ConfigError, StoreError
from roquet.namesrv import kv_config as module
from roquet.namesrv.kv_config import KVConfigManager
from roquet.runtime.files import Buffer, Files
from tests.unit.namesrv.kit import FullDisk


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_values_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    first = KVConfigManager.at(path, Files())
    assert first.load() is None
    await first.put("ORDER_TOPIC_CONFIG", "T", "a:4;b:4")
    await first.put("ns", "k", 'v "quoted"\n主题')
    await first.put("ns", "gone", "x")
    await first.delete("ns", "gone")
    second = KVConfigManager.at(path, Files())
    assert second.load() is None
    assert second.get("ORDER_TOPIC_CONFIG", "T") == "a:4;b:4"
    assert dict(second.namespace("ns") or {}) == {"k": 'v "quoted"\n主题'}
    assert second.get("ns", "gone") is None


async def test_the_file_is_the_line_that_upstream_writes(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    values = KVConfigManager.at(path, Files())
    await values.put("ns", "k", "v")
    assert path.read_text("utf-8") == '{"configTable":{"ns":{"k":"v"}}}'
    await values.delete("ns", "k")
    assert path.read_text("utf-8") == '{"configTable":{"ns":{}}}'
    assert values.namespace("ns") == {}
    assert values.namespace("other") is None


def test_a_file_that_people_formatted_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{\n\t"configTable":{\n\t\t"ns":{"k":"v",}\n\t}\n}\n', "utf-8")
    values = KVConfigManager.at(path, Files())
    values.load()
    assert values.get("ns", "k") == "v"


async def test_a_damaged_file_falls_back_to_its_backup_or_stops(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    values = KVConfigManager.at(path, Files())
    await values.put("ns", "k", "1")
    await values.put("ns", "k", "2")
    path.write_text('{"configTable":{"ns":{"k"', "utf-8")
    again = KVConfigManager.at(path, Files())
    problem = again.load()
    assert problem is not None
    assert problem.code == "config_backup_used"
    assert again.get("ns", "k") == "1"
    path.with_name("kvConfig.json.bak").write_text("[]", "utf-8")
    with pytest.raises(ConfigError):
        KVConfigManager.at(path, Files()).load()


async def test_a_value_that_cannot_be_saved_is_not_set(tmp_path: Path) -> None:
    values = KVConfigManager.at(tmp_path / "kvConfig.json", FullDisk())
    with pytest.raises(StoreError):
        await values.put("ns", "k", "v")
    assert values.get("ns", "k") is None


async def test_deleting_an_unknown_key_writes_nothing(tmp_path: Path) -> None:
    values = KVConfigManager.at(tmp_path / "kvConfig.json", Files())
    await values.delete("ns", "k")
    assert names_in(tmp_path) == []
    await values.put("ns", "k", "v")
    await values.delete("ns", "other")
    assert names_in(tmp_path) == ["kvConfig.json"]


async def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KV_CONFIG_BYTES_MAX", 100)
    values = KVConfigManager()
    await values.put("ns", "k", "v")
    with pytest.raises(ConfigError, match="too many values"):
        await values.put("ns", "l", "ü" * 40)
    assert values.get("ns", "l") is None
    await values.delete("ns", "k")
    await values.put("ns", "l", "ü" * 30)


class CountingDisk(Files):
    """A disk that counts files, writes them beside the loop only, and may be full."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.is_full = False

    def write_at(self, fd: int, data: Buffer, position: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        self.writes += 1
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(fd, data, position)


async def test_many_changes_share_a_write(tmp_path: Path) -> None:
    disk = CountingDisk()
    values = KVConfigManager.at(tmp_path / "kvConfig.json", disk)
    await asyncio.gather(*(values.put("ns", f"k{number}", "v") for number in range(1_000)))
    assert disk.writes == 2, "the first alone, and all others"
    await asyncio.gather(values.put("ns", "k0", "w"), values.delete("ns", "k0"))
    assert values.get("ns", "k0") is None
    again = KVConfigManager.at(tmp_path / "kvConfig.json", Files())
    again.load()
    assert again.namespace("ns") == values.namespace("ns")
    assert again._size_bytes == values._size_bytes


async def test_changes_of_a_write_that_fails_are_dropped_together(tmp_path: Path) -> None:
    disk = CountingDisk()
    values = KVConfigManager.at(tmp_path / "kvConfig.json", disk)
    await values.put("ns", "k", "1")
    size_bytes = values._size_bytes
    disk.is_full = True
    failed = await asyncio.gather(
        *(values.put("other", f"k{number}", "2") for number in range(3)), return_exceptions=True
    )
    assert all(isinstance(each, StoreError) for each in failed)
    assert values.namespace("other") is None
    assert values._size_bytes == size_bytes
    disk.is_full = False
    await values.put("other", "k", "3")
    assert values.get("other", "k") == "3"
