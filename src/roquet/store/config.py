"""Settings of the store, under RocketMQ's own keys.

Owns :class:`MessageStoreConfig`: Python names carry units, file keys are upstream's
``MessageStoreConfig`` names, so a broker's ``.conf`` is read unchanged. Values are fixed once the
store is created.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from roquet.errors import ConfigError
from roquet.format import index_file
from roquet.format.batch_consume_queue import BATCH_UNIT_BYTES, DEFAULT_BATCH_FILE_BYTES
from roquet.format.consume_queue import UNIT_BYTES
from roquet.format.ha_frames import BODY_BYTES_MAX
from roquet.model.delay_level import DEFAULT_DELAY_LEVELS, DelayLevels
from roquet.runtime.settings import INT_MAX, NonNegative, Port, Positive, PositiveLong, PositiveMs

Percent = Annotated[int, Meta(ge=0, le=100)]


class FlushDiskType(Enum):
    """When a send gets its response: after the append, or once that is on disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


class BrokerRole(Enum):
    """Role of a broker in its group."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class MessageStoreConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The store's settings; defaults are upstream's."""

    # Sizes
    commit_log_file_bytes: Positive = field(default=1 << 30, name="mappedFileSizeCommitLog")
    consume_queue_file_bytes: Positive = field(
        default=300_000 * UNIT_BYTES, name="mappedFileSizeConsumeQueue"
    )
    batch_consume_queue_file_bytes: Positive = field(
        default=DEFAULT_BATCH_FILE_BYTES, name="mapperFileSizeBatchConsumeQueue"
    )
    consume_queue_ext_file_bytes: Positive = field(
        default=48 << 20, name="mappedFileSizeConsumeQueueExt"
    )
    index_slots: Positive = field(default=5_000_000, name="maxHashSlotNum")
    index_entries: Positive = field(default=20_000_000, name="maxIndexNum")
    max_message_bytes: Positive = field(default=4 << 20, name="maxMessageSize")

    # Durability
    flush_disk_type: FlushDiskType = field(default=FlushDiskType.ASYNC_FLUSH, name="flushDiskType")
    broker_role: BrokerRole = field(default=BrokerRole.ASYNC_MASTER, name="brokerRole")
    in_sync_replicas: Positive = field(default=1, name="inSyncReplicas")
    min_in_sync_replicas: Positive = field(default=1, name="minInSyncReplicas")
    auto_in_sync_replicas: bool = field(default=False, name="enableAutoInSyncReplicas")
    flush_commit_log_interval_ms: Positive = field(default=500, name="flushIntervalCommitLog")
    flush_commit_log_least_pages: NonNegative = field(default=4, name="flushCommitLogLeastPages")
    flush_commit_log_thorough_interval_ms: Positive = field(
        default=10_000, name="flushCommitLogThoroughInterval"
    )
    commit_interval_ms: Positive = field(default=200, name="commitIntervalCommitLog")
    commit_least_pages: NonNegative = field(default=4, name="commitCommitLogLeastPages")
    commit_thorough_interval_ms: Positive = field(
        default=200, name="commitCommitLogThoroughInterval"
    )
    flush_consume_queue_interval_ms: Positive = field(
        default=1000, name="flushIntervalConsumeQueue"
    )
    flush_consume_queue_least_pages: NonNegative = field(
        default=2, name="flushConsumeQueueLeastPages"
    )
    flush_consume_queue_thorough_interval_ms: Positive = field(
        default=60_000, name="flushConsumeQueueThoroughInterval"
    )
    sync_flush_timeout_ms: Positive = field(default=5000, name="syncFlushTimeout")
    slave_timeout_ms: Positive = field(default=3000, name="slaveTimeout")
    append_property_crc: bool = field(default=False, name="enabledAppendPropCRC")
    force_verify_property_crc: bool = field(default=False, name="forceVerifyPropCRC")
    check_crc_on_recover: bool = field(default=True, name="checkCRCOnRecover")
    must_exist: bool = field(default=False, name="storeMustExist")
    auto_message_version_on_topic_length: bool = field(
        default=True, name="autoMessageVersionOnTopicLen"
    )

    # Replication
    ha_listen_port: Port = field(default=0, name="haListenPort")
    ha_master_address: str = field(default="", name="haMasterAddress")
    ha_heartbeat_interval_ms: Positive = field(default=5000, name="haSendHeartbeatInterval")
    ha_housekeeping_interval_ms: Positive = field(default=20_000, name="haHousekeepingInterval")
    ha_transfer_batch_bytes: Positive = field(default=32 << 10, name="haTransferBatchSize")
    ha_max_gap_bytes: Positive = field(default=256 << 20, name="haMaxGapNotInSync")
    ha_flow_control: bool = field(default=False, name="haFlowControlEnable")
    ha_bytes_per_second_max: PositiveLong = field(
        default=100 << 20, name="maxHaTransferByteInSecond"
    )

    # Allocation
    transient_store_pool: bool = field(default=False, name="transientStorePoolEnable")
    transient_store_pool_size: Positive = field(default=5, name="transientStorePoolSize")
    fast_fail_if_no_buffer_in_store_pool: bool = field(
        default=False, name="fastFailIfNoBufferInStorePool"
    )
    warm_mapped_file: bool = field(default=False, name="warmMapedFileEnable")
    os_page_cache_busy_timeout_ms: PositiveMs = field(
        default=1000, name="osPageCacheBusyTimeOutMills"
    )

    # Derived files
    message_index: bool = field(default=True, name="messageIndexEnable")
    consume_queue_ext: bool = field(default=False, name="enableConsumeQueueExt")
    open_queue_files_max: NonNegative = field(default=0, name="maxOpenConsumeQueueFiles")
    message_delay_levels: str = field(default=DEFAULT_DELAY_LEVELS, name="messageDelayLevel")

    # Reading
    transfer_bytes_in_memory_max: Positive = field(
        default=256 << 10, name="maxTransferBytesOnMessageInMemory"
    )
    transfer_count_in_memory_max: Positive = field(
        default=32, name="maxTransferCountOnMessageInMemory"
    )
    transfer_bytes_in_disk_max: Positive = field(
        default=64 << 10, name="maxTransferBytesOnMessageInDisk"
    )
    transfer_count_in_disk_max: Positive = field(default=8, name="maxTransferCountOnMessageInDisk")
    access_message_in_memory_max_ratio: Percent = field(
        default=40, name="accessMessageInMemoryMaxRatio"
    )
    message_in_disk_by_distance: bool = field(default=False, name="messageInDiskByDistance")
    filter_message_bytes_max: Positive = field(default=16_000, name="maxFilterMessageSize")
    query_messages_max: Positive = field(default=64, name="maxMsgsNumBatch")
    offset_check_in_slave: bool = field(default=False, name="offsetCheckInSlave")

    # Retention
    delete_when: str = field(default="04", name="deleteWhen")
    file_reserved_hours: NonNegative = field(default=72, name="fileReservedTime")
    archived_reserved_hours: NonNegative = field(default=72, name="archivedFileReservedTime")
    clean_resource_interval_ms: Positive = field(default=10_000, name="cleanResourceInterval")
    delete_commit_log_interval_ms: NonNegative = field(
        default=100, name="deleteCommitLogFilesInterval"
    )
    delete_file_batch_max: Positive = field(default=10, name="deleteFileBatchMax")
    clean_file_forcibly: bool = field(default=True, name="cleanFileForciblyEnable")
    disk_max_used_percent: Percent = field(default=75, name="diskMaxUsedSpaceRatio")
    disk_clean_forcibly_percent: Percent = field(default=85, name="diskSpaceCleanForciblyRatio")
    disk_warning_percent: Percent = field(default=90, name="diskSpaceWarningLevelRatio")

    # Extension
    message_store_plug_in: str = field(default="", name="messageStorePlugIn")

    @property
    def is_sync_flush(self) -> bool:
        """Whether sends wait for the disk."""
        return self.flush_disk_type is FlushDiskType.SYNC_FLUSH

    @property
    def uses_transient_pool(self) -> bool:
        """Whether appends go through buffers outside the mapping, as upstream decides it."""
        return (
            self.transient_store_pool
            and not self.is_sync_flush
            and self.broker_role is not BrokerRole.SLAVE
        )

    @property
    def max_record_bytes(self) -> int:
        """Longest record: body limit plus 64 KiB for everything else."""
        return min(self.max_message_bytes + (64 << 10), 0x7FFFFFFF)

    def __post_init__(self) -> None:
        """Reject sizes that cannot work together."""
        for name, size, unit_bytes in (
            ("mappedFileSizeConsumeQueue", self.consume_queue_file_bytes, UNIT_BYTES),
            (
                "mapperFileSizeBatchConsumeQueue",
                self.batch_consume_queue_file_bytes,
                BATCH_UNIT_BYTES,
            ),
        ):
            if size % unit_bytes:
                raise ConfigError(
                    f"{name} does not hold whole entries",
                    detail=f"{size} is not a multiple of {unit_bytes}",
                    hint=f"use {-(-size // unit_bytes) * unit_bytes}",
                )
        for hour in self.delete_when.split(";"):
            if not (hour.isdecimal() and len(hour) <= 2 and int(hour) < 24):
                raise ConfigError(
                    "deleteWhen is not a list of hours",
                    detail=f"{self.delete_when[:80]!r} holds {hour[:80]!r}",
                    hint="write hours from 00 to 23 separated by ';', such as 04 or 03;15",
                )
        index_bytes = index_file.file_size(self.index_slots, self.index_entries)
        if index_bytes > INT_MAX:
            raise ConfigError(
                "maxHashSlotNum and maxIndexNum make an index file too large",
                detail=f"{self.index_slots} slots and {self.index_entries} entries are "
                f"{index_bytes} bytes, at most {INT_MAX}",
            )
        DelayLevels(self.message_delay_levels)
        self._check_replication()

    def _check_replication(self) -> None:
        if self.ha_transfer_batch_bytes > BODY_BYTES_MAX:
            raise ConfigError(
                "haTransferBatchSize is too large",
                detail=f"{self.ha_transfer_batch_bytes} bytes, a slave takes {BODY_BYTES_MAX}",
            )
        if self.ha_housekeeping_interval_ms <= self.ha_heartbeat_interval_ms:
            raise ConfigError(
                "haHousekeepingInterval is not longer than haSendHeartbeatInterval",
                detail=f"{self.ha_housekeeping_interval_ms} ms and "
                f"{self.ha_heartbeat_interval_ms} ms",
                hint="a connection without messages would be given up before its next heartbeat",
            )


SMALL_SEGMENTS = MessageStoreConfig(
    commit_log_file_bytes=32 << 20,
    index_slots=100_000,
    index_entries=400_000,
)
"""For first steps and tests: segments of 32 MiB, and index files of 8.4 MB."""


def replace(config: MessageStoreConfig, **changes: object) -> MessageStoreConfig:
    """A copy of ``config`` with some settings changed, checked like a new one."""
    return msgspec.structs.replace(config, **changes)
