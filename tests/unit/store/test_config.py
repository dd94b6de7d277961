from __future__ import annotations

import msgspec
import pytest

from roquet.errors import ConfigError
from roquet.store.config import BrokerRole, FlushDiskType, MessageStoreConfig, replace


def read(values: dict[str, object]) -> MessageStoreConfig:
    return msgspec.convert(values, MessageStoreConfig)


def test_defaults_are_upstreams() -> None:
    config = msgspec.to_builtins(MessageStoreConfig())
    expected = {
        "mappedFileSizeCommitLog": 1 << 30,
        "mappedFileSizeConsumeQueue": 6_000_000,
        "mappedFileSizeConsumeQueueExt": 48 << 20,
        "maxHashSlotNum": 5_000_000,
        "maxIndexNum": 20_000_000,
        "maxMessageSize": 4 << 20,
        "flushDiskType": "ASYNC_FLUSH",
        "brokerRole": "ASYNC_MASTER",
        "flushIntervalCommitLog": 500,
        "flushCommitLogLeastPages": 4,
        "flushCommitLogThoroughInterval": 10_000,
        "commitIntervalCommitLog": 200,
        "flushConsumeQueueThoroughInterval": 60_000,
        "syncFlushTimeout": 5000,
        "slaveTimeout": 3000,
        "transientStorePoolEnable": False,
        "transientStorePoolSize": 5,
        "maxTransferBytesOnMessageInMemory": 262_144,
        "maxTransferCountOnMessageInMemory": 32,
        "maxTransferBytesOnMessageInDisk": 65_536,
        "maxTransferCountOnMessageInDisk": 8,
        "accessMessageInMemoryMaxRatio": 40,
        "deleteWhen": "04",
        "fileReservedTime": 72,
        "diskMaxUsedSpaceRatio": 75,
        "diskSpaceCleanForciblyRatio": 85,
        "diskSpaceWarningLevelRatio": 90,
        "cleanFileForciblyEnable": True,
        "messageStorePlugIn": "",
    }
    assert {key: config[key] for key in expected} == expected


def test_upstreams_keys_are_read() -> None:
    config = read({"flushDiskType": "SYNC_FLUSH", "brokerRole": "SLAVE", "fileReservedTime": 48})
    assert config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert config.broker_role is BrokerRole.SLAVE
    assert config.is_sync_flush
    assert config.file_reserved_hours == 48


@pytest.mark.parametrize(
    "values",
    [
        {"mappedFileSizeCommitLog": 0},
        {"fileReservedTime": -1},
        {"diskMaxUsedSpaceRatio": 101},
        {"flushDiskType": "SOMETIMES"},
        {"noSuchKey": 1},
        {"maxMessageSize": "big"},
    ],
)
def test_nonsensical_values_are_refused(values: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(values)


def test_queue_files_hold_whole_entries() -> None:
    with pytest.raises(ConfigError) as raised:
        MessageStoreConfig(consume_queue_file_bytes=6_000_001)
    assert raised.value.hint == "use 6000020"


@pytest.mark.parametrize("hours", ["04", "00;23", "4", "03;15;21"])
def test_hours(hours: str) -> None:
    assert MessageStoreConfig(delete_when=hours).delete_when == hours


@pytest.mark.parametrize("hours", ["", "24", "-1", "4,5", "04;", "noon"])
def test_bad_hours(hours: str) -> None:
    with pytest.raises(ConfigError, match="deleteWhen") as raised:
        MessageStoreConfig(delete_when=hours)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("pool", "flush", "role", "used"),
    [
        (True, FlushDiskType.ASYNC_FLUSH, BrokerRole.ASYNC_MASTER, True),
        (True, FlushDiskType.ASYNC_FLUSH, BrokerRole.SYNC_MASTER, True),
        (True, FlushDiskType.SYNC_FLUSH, BrokerRole.ASYNC_MASTER, False),
        (True, FlushDiskType.ASYNC_FLUSH, BrokerRole.SLAVE, False),
        (False, FlushDiskType.ASYNC_FLUSH, BrokerRole.ASYNC_MASTER, False),
    ],
)
def test_when_a_transient_pool_is_used(
    *, pool: bool, flush: FlushDiskType, role: BrokerRole, used: bool
) -> None:
    config = MessageStoreConfig(transient_store_pool=pool, flush_disk_type=flush, broker_role=role)
    assert config.uses_transient_pool is used


def test_the_longest_record() -> None:
    assert MessageStoreConfig().max_record_bytes == (4 << 20) + 65_536
    assert MessageStoreConfig(max_message_bytes=0x7FFFFFFF).max_record_bytes == 0x7FFFFFFF


def test_a_changed_copy_is_checked_too() -> None:
    config = replace(MessageStoreConfig(), file_reserved_hours=1)
    assert config.file_reserved_hours == 1
    with pytest.raises(ConfigError):
        replace(config, consume_queue_file_bytes=7)
