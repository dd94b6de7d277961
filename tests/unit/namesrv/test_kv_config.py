"""Values by namespace and key, and the file that keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.errors import ConfigError, StoreError
from roquet.namesrv import kv_config as module
from roquet.namesrv.kv_config import KVConfigManager
from roquet.runtime.files import Files
from tests.unit.namesrv.kit import FullDisk


def test_values_outlive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    first = KVConfigManager.at(path, Files())
    assert first.load() is None
    first.put("ORDER_TOPIC_CONFIG", "T", "a:4;b:4")
    first.put("ns", "k", 'v "quoted"\n主题')
    first.put("ns", "gone", "x")
    first.delete("ns", "gone")
    second = KVConfigManager.at(path, Files())
    assert second.load() is None
    assert second.get("ORDER_TOPIC_CONFIG", "T") == "a:4;b:4"
    assert dict(second.namespace("ns") or {}) == {"k": 'v "quoted"\n主题'}
    assert second.get("ns", "gone") is None


def test_the_file_is_the_line_that_upstream_writes(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    values = KVConfigManager.at(path, Files())
    values.put("ns", "k", "v")
    assert path.read_text("utf-8") == '{"configTable":{"ns":{"k":"v"}}}'
    values.delete("ns", "k")
    assert path.read_text("utf-8") == '{"configTable":{"ns":{}}}'
    assert values.namespace("ns") == {}
    assert values.namespace("other") is None


def test_a_file_that_people_formatted_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{\n\t"configTable":{\n\t\t"ns":{"k":"v",}\n\t}\n}\n', "utf-8")
    values = KVConfigManager.at(path, Files())
    values.load()
    assert values.get("ns", "k") == "v"


def test_a_damaged_file_falls_back_to_its_backup_or_stops(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    values = KVConfigManager.at(path, Files())
    values.put("ns", "k", "1")
    values.put("ns", "k", "2")
    path.write_text('{"configTable":{"ns":{"k"', "utf-8")
    again = KVConfigManager.at(path, Files())
    problem = again.load()
    assert problem is not None
    assert problem.code == "config_backup_used"
    assert again.get("ns", "k") == "1"
    path.with_name("kvConfig.json.bak").write_text("[]", "utf-8")
    with pytest.raises(ConfigError):
        KVConfigManager.at(path, Files()).load()


def test_a_value_that_cannot_be_kept_is_not_there(tmp_path: Path) -> None:
    values = KVConfigManager.at(tmp_path / "kvConfig.json", FullDisk())
    with pytest.raises(StoreError):
        values.put("ns", "k", "v")
    assert values.get("ns", "k") is None


def test_dropping_what_is_not_there_writes_nothing(tmp_path: Path) -> None:
    values = KVConfigManager.at(tmp_path / "kvConfig.json", Files())
    values.delete("ns", "k")
    assert list(tmp_path.iterdir()) == []
    values.put("ns", "k", "v")
    values.delete("ns", "other")
    assert [path.name for path in tmp_path.iterdir()] == ["kvConfig.json"]


def test_there_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KV_CONFIG_BYTES_MAX", 100)
    values = KVConfigManager()
    values.put("ns", "k", "v")
    with pytest.raises(ConfigError, match="too many values"):
        values.put("ns", "l", "ü" * 40)
    assert values.get("ns", "l") is None
    values.delete("ns", "k")
    values.put("ns", "l", "ü" * 30)
