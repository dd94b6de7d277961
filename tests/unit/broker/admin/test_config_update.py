"""Changes of settings while the broker runs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import msgspec
import pytest

from roquet.broker.admin.config_update import (
    SETTINGS_BODY_BYTES_MAX,
)
from roquet.broker.config import BrokerConfig
from roquet.broker.manager.dynamic_settings import (
    BLACK_LIST,
    DYNAMIC_KEYS,
    DynamicSettings,
    NotDynamic,
)
from roquet.broker.settings import BROKER_SETTINGS
from roquet.errors import ConfigError, StoreError
from roquet.model.topic_config import PERM_READ
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import RemotingCommand
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.runtime.settings import keys_of
from roquet.store.config import MessageStoreConfig
from tests.unit.broker.admin.kit import Desk


@pytest.fixture(name="settings")
def _settings(at: Desk) -> DynamicSettings:
    return at.parts.settings


async def update(at: Desk, text: str | bytes) -> RemotingCommand:
    body = text if isinstance(text, bytes) else text.encode()
    return await at.ask(RequestCode.UPDATE_BROKER_CONFIG, body=body)


def everything(at: Desk) -> tuple[object, object]:
    return msgspec.to_builtins(at.config), msgspec.to_builtins(at.store.config)


async def test_a_change_has_its_effect_at_once(at: Desk, settings: DynamicSettings) -> None:
    assert at.groups.find("New") is not None
    text = "autoCreateSubscriptionGroup=false\nfileReservedTime = 48 \ndeleteWhen=03;15\n"
    answer = await update(at, text)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    assert at.groups.find("Newer") is None
    assert at.store.config.file_reserved_hours == 48
    assert at.store.config.delete_when == "03;15"
    assert settings.data_version.counter == 1


@pytest.mark.usefixtures("settings")
async def test_a_change_is_kept(at: Desk) -> None:
    await update(at, "fileReservedTime=48")
    await update(at, "brokerPermission=4\nfileReservedTime=49")
    config = BrokerConfig(store_root=at.config.store_root)
    store_config = MessageStoreConfig()
    again = DynamicSettings.at(config, store_config, Files(), at.clock)
    assert again.load() is None
    assert (config.broker_permission, store_config.file_reserved_hours) == (PERM_READ, 49)
    assert await again.update({"deleteFileBatchMax": "5"}) == (["deleteFileBatchMax"], [])
    third = MessageStoreConfig()
    assert DynamicSettings.at(config, third, Files(), at.clock).load() is None
    assert (third.file_reserved_hours, third.delete_file_batch_max) == (49, 5)


@pytest.mark.usefixtures("settings")
async def test_the_permission_is_sent_to_name_servers(at: Desk) -> None:
    told: list[None] = []
    at.topics.changed.append(lambda: told.append(None))
    version = at.topics.data_version.counter
    await update(at, "fileReservedTime=48")
    assert (len(told), at.topics.data_version.counter) == (1, version)
    await update(at, "brokerPermission=4")
    assert (len(told), at.topics.data_version.counter) == (2, version + 1)


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    "key",
    ["listenPort", "storePathRootDir", "namesrvAddr", "messageStorePlugIn", "flushDiskType",
     "tls.server.certPath", "aclEnable", "rmqAddressServerDomain", "noSuchKey"],
)  # fmt: skip
async def test_what_is_not_on_the_list_is_refused(at: Desk, key: str) -> None:
    before = everything(at)
    answer = await update(at, f"fileReservedTime=48\n{key}=x")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert (answer.remark or "").startswith("Can not update config in black list. ")
    assert key in (answer.remark or "")
    assert everything(at) == before
    assert not (Path(at.config.store_root) / "config" / "broker.properties").exists()


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("key", sorted(BLACK_LIST))
async def test_settings_that_upstream_refuses_get_its_remark(at: Desk, key: str) -> None:
    before = everything(at)
    answer = await update(at, f"fileReservedTime=48\n{key}=x")
    expected = (ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    assert (answer.code, answer.remark) == expected
    assert everything(at) == before


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    "text",
    [
        "fileReservedTime=-1",
        "fileReservedTime=",
        "fileReservedTime=soon",
        "diskMaxUsedSpaceRatio=101",
        "autoCreateTopicEnable=perhaps",
        "deleteWhen=25",
        "deleteWhen=04\\nlistenPort=1",
        "consumerOffsetUpdateVersionStep=0",
    ],
)
async def test_values_that_cannot_be_used(at: Desk, text: str) -> None:
    before = everything(at)
    answer = await update(at, f"deleteFileBatchMax=3\n{text}")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert text.partition("=")[0] in (answer.remark or "")
    assert everything(at) == before


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("digits", [20, 400, 5_000])
@pytest.mark.parametrize(
    ("key", "value_range"),
    [
        ("registerBrokerTimeoutMills", "from 1 to 2147483647"),
        ("filterDataCleanTimeSpan", "from 0 to 3153600000000"),
        ("consumerOffsetUpdateVersionStep", "from 1 to 9223372036854775807"),
        ("brokerPermission", "from 0 to 7"),
    ],
)
async def test_numbers_out_of_range(at: Desk, key: str, value_range: str, digits: int) -> None:
    before = everything(at)
    answer = await update(at, f"{key}={'9' * digits}")
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark == (
        f"The value of {key} cannot be used. "
        f"'{'9' * min(digits, 80)}', expected a whole number {value_range}"
    )
    assert everything(at) == before


@pytest.mark.usefixtures("settings")
async def test_only_changes_are_logged(at: Desk, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    await update(at, "defaultQueryMaxNum=33\n")
    assert [each.message for each in caplog.records if "changed" in each.message] == []
    await update(at, "defaultQueryMaxNum=33\nfileReservedTime=48\n")
    told = [each.message for each in caplog.records if "changed" in each.message]
    assert [each.partition("changed ")[2] for each in told] == ["fileReservedTime"]
    caplog.clear()
    await update(at, "fileReservedTime=48\n")
    assert [each.message for each in caplog.records] == []


@pytest.mark.usefixtures("settings")
async def test_keys_without_effect_are_named(at: Desk) -> None:
    answer = await update(at, "defaultQueryMaxNum=33\n")
    assert (answer.code, answer.remark) == (
        ResponseCode.SUCCESS,
        "without effect in this version: defaultQueryMaxNum",
    )


@pytest.mark.usefixtures("settings")
async def test_a_missing_feature_is_refused_by_name(at: Desk) -> None:
    before = everything(at)
    answer = await update(at, "fileReservedTime=48\ntimerWheelEnable=true")
    assert (answer.code, answer.remark) == (
        ResponseCode.NO_PERMISSION,
        "Can not update config in black list. timerWheelEnable=true is not supported. there are "
        "no timed messages, and none can be recalled; delay levels work",
    )
    assert everything(at) == before
    answer = await update(at, "timerWheelEnable=false\nmetricsExporterType=DISABLE")
    assert (answer.code, answer.remark) == (
        ResponseCode.SUCCESS,
        "without effect in this version: metricsExporterType, timerWheelEnable",
    )


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("body", [b"a=\\u12", b"\xff\xfe=1"])
async def test_malformed_settings(at: Desk, body: bytes) -> None:
    answer = await update(at, body)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "string2Properties error")


@pytest.mark.usefixtures("settings")
async def test_empty_and_oversized_bodies(at: Desk) -> None:
    assert (await update(at, b"")).code == ResponseCode.SUCCESS
    answer = await update(at, b"#" * (SETTINGS_BODY_BYTES_MAX + 1))
    assert answer.code == ResponseCode.INVALID_PARAMETER


async def test_a_change_that_cannot_be_saved_is_not_made(
    at: Desk, settings: DynamicSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Files, "write_at", refuse)
    before = everything(at)
    with pytest.raises(StoreError):
        await settings.update({"fileReservedTime": "48"})
    answer = await update(at, "fileReservedTime=48")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert everything(at) == before
    assert settings.data_version.counter == 0


async def test_changes_are_written_off_the_loop_and_applied_in_order(
    at: Desk, settings: DynamicSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers: set[int] = set()
    data_sync = Files.data_sync

    def noting(files: Files, fd: int) -> None:
        writers.add(threading.get_ident())
        data_sync(files, fd)

    monkeypatch.setattr(Files, "data_sync", noting)
    made: list[int] = []
    settings.changed.append(lambda _keys: made.append(at.store.config.file_reserved_hours))
    texts = ["fileReservedTime=48", "fileReservedTime=49", "fileReservedTime=50"]
    await asyncio.gather(*(update(at, text) for text in texts))
    assert made == [48, 49, 50]
    assert writers
    assert threading.get_ident() not in writers
    kept = Path(at.config.store_root) / "config" / "broker.properties"
    assert "fileReservedTime=50" in kept.read_text("utf-8")


def test_a_file_of_another_version_changes_only_what_may_be_changed(tmp_path: Path) -> None:
    config = BrokerConfig(store_root=str(tmp_path))
    path = tmp_path / "config" / "broker.properties"
    path.parent.mkdir()
    path.write_text("listenPort=1\nfileReservedTime=old\nbrokerPermission=4\nnew=1\n")
    settings = DynamicSettings.at(config, MessageStoreConfig(), Files(), ManualClock())
    assert settings.load() is None
    assert config == BrokerConfig(store_root=str(tmp_path), broker_permission=4)


async def test_using_a_backup_is_reported(tmp_path: Path) -> None:
    config, store_config = BrokerConfig(store_root=str(tmp_path)), MessageStoreConfig()
    settings = DynamicSettings.at(config, store_config, Files(), ManualClock())
    await settings.update({"fileReservedTime": "48"})
    await settings.update({"fileReservedTime": "49"})
    (tmp_path / "config" / "broker.properties").write_bytes(b"\xff")
    store_config = MessageStoreConfig()
    problem = DynamicSettings.at(config, store_config, Files(), ManualClock()).load()
    assert isinstance(problem, ConfigError)
    assert store_config.file_reserved_hours == 48


def test_the_list_has_known_keys_only() -> None:
    known = {*keys_of(BrokerConfig), *keys_of(MessageStoreConfig)}
    assert known >= DYNAMIC_KEYS
    assert not DYNAMIC_KEYS & BROKER_SETTINGS.without_effect.keys()
    words = ("path", "addr", "port", "dir", "plugin", "domain", "tls")
    names = [key.lower().replace("support", "") for key in DYNAMIC_KEYS]
    assert not [name for name in names if any(word in name for word in words)]


async def test_an_unknown_key_has_a_hint(settings: DynamicSettings) -> None:
    with pytest.raises(NotDynamic) as error:
        await settings.update({"fileReservedTimes": "1"})
    assert error.value.hint == "Did you mean fileReservedTime?"
