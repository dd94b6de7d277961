"""Settings of the broker, under RocketMQ's own keys.

Owns :class:`BrokerConfig`: the broker's identity and limits. The settings of its files are in
:class:`~roquet.store.config.MessageStoreConfig`. Python names carry units, file keys are
upstream's, so a ``broker.conf`` works unchanged.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from roquet.model.topic import TRACE_TOPIC
from roquet.model.topic_config import PERM_INHERIT, PERM_READ, PERM_WRITE
from roquet.remoting.bodies.route import MASTER_ID
from roquet.runtime.settings import (
    NonNegative,
    NonNegativeLong,
    NonNegativeMs,
    Port,
    Positive,
    PositiveLong,
    PositiveMs,
)

__all__ = ["BrokerConfig", "replace"]

Permission = Annotated[int, Meta(ge=0, le=PERM_READ | PERM_WRITE | PERM_INHERIT)]


class BrokerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The broker's settings; defaults are upstream's unless ``docs/differences.md`` says why not.

    Attributes:
        namesrv_address: Name servers, separated by semicolons; empty for none.
        bind_address: Where the ports listen.
        broker_ip1: The advertised address for clients; empty for the listening one.
        broker_ip2: The advertised address for slaves.
        broker_permission: 4 read, 2 write; applies to all clients.
        write_high_bytes: With more unsent bytes than this a connection is not read; both marks are
            Netty's unless both are set.
        write_low_bytes: With at most this many it is read again.
        write_stall_ms: How long a peer may leave unsent bytes unread.
        max_held_bytes: Half-read and unsent bytes of all connections together.
        address_server_domain: Host, and port if it is not 8080, of the server that lists the name
            servers, for ``fetchNamesrvAddrByAddressServer``.
        address_server_subgroup: The last part of the path of that list.
        region_id: MSG_REGION in messages and responses.
        send_message_hooks: Names of plug-ins, separated by commas, like the two below; see
            :mod:`roquet.broker.plugins`.
    """

    # Identity
    cluster_name: str = field(default="DefaultCluster", name="brokerClusterName")
    broker_name: str = field(default="DEFAULT_BROKER", name="brokerName")
    broker_id: NonNegativeLong = field(default=MASTER_ID, name="brokerId")
    broker_ip1: str = field(default="", name="brokerIP1")
    broker_ip2: str = field(default="", name="brokerIP2")

    # Network
    namesrv_address: str = field(default="", name="namesrvAddr")
    bind_address: str = field(default="127.0.0.1", name="bindAddress")
    listen_port: Port = field(default=10911, name="listenPort")
    channel_idle_seconds_max: Positive = field(default=120, name="serverChannelMaxIdleTimeSeconds")
    connections_max: Positive = field(default=20_000, name="maxConnections")
    write_high_bytes: NonNegative = field(default=0, name="writeBufferHighWaterMark")
    write_low_bytes: NonNegative = field(default=0, name="writeBufferLowWaterMark")
    write_stall_ms: PositiveMs = field(default=30_000, name="slowReaderTimeoutMillis")
    max_held_bytes: Positive = field(default=80 << 20, name="maxHeldBytes")
    fetch_namesrv_address_by_address_server: bool = field(
        default=False, name="fetchNamesrvAddrByAddressServer"
    )
    fetch_namesrv_address_by_dns_lookup: bool = field(
        default=False, name="fetchNameSrvAddrByDnsLookup"
    )
    address_server_domain: str = field(default="", name="rmqAddressServerDomain")
    address_server_subgroup: str = field(default="nsaddr", name="rmqAddressServerSubGroup")
    update_namesrv_address_period_ms: Positive = field(
        default=120_000, name="updateNameServerAddrPeriod"
    )
    register_namesrv_period_ms: Positive = field(default=30_000, name="registerNameServerPeriod")
    register_broker_timeout_ms: Positive = field(default=24_000, name="registerBrokerTimeoutMills")
    force_register: bool = field(default=True, name="forceRegister")
    compressed_register: bool = field(default=False, name="compressedRegister")
    split_registration: bool = field(default=False, name="enableSplitRegistration")
    split_registration_topics: Positive = field(default=800, name="splitRegistrationSize")
    single_topic_register: bool = field(default=False, name="enableSingleTopicRegister")
    forward_timeout_ms: Positive = field(default=3_000, name="forwardTimeout")
    slave_acting_master: bool = field(default=False, name="enableSlaveActingMaster")
    broker_not_active_timeout_ms: PositiveMs = field(
        default=10_000, name="brokerNotActiveTimeoutMillis"
    )

    # Files
    store_root: str = field(
        default_factory=lambda: str(Path.home() / "store"), name="storePathRootDir"
    )
    flush_consumer_offset_interval_ms: Positive = field(
        default=5_000, name="flushConsumerOffsetInterval"
    )

    # Topics and groups
    broker_permission: Permission = field(default=PERM_READ | PERM_WRITE, name="brokerPermission")
    default_topic_queue_nums: Positive = field(default=8, name="defaultTopicQueueNums")
    auto_create_topic: bool = field(default=True, name="autoCreateTopicEnable")
    cluster_topic: bool = field(default=True, name="clusterTopicEnable")
    broker_topic: bool = field(default=True, name="brokerTopicEnable")
    auto_create_subscription_group: bool = field(default=True, name="autoCreateSubscriptionGroup")
    enable_create_system_group: bool = field(default=True, name="enableCreateSysGroup")
    validate_system_topic_when_update_topic: bool = field(
        default=True, name="validateSystemTopicWhenUpdateTopic"
    )
    revive_queue_nums: Positive = field(default=8, name="reviveQueueNum")
    trace_topic: bool = field(default=False, name="traceTopicEnable")
    trace_topic_name: str = field(default=TRACE_TOPIC, name="msgTraceTopicName")

    # Sending
    region_id: str = field(default="DefaultRegion", name="regionId")
    trace_on: bool = field(default=True, name="traceOn")
    start_accept_send_timestamp_ms: NonNegativeLong = field(
        default=0, name="startAcceptSendRequestTimeStamp"
    )
    reject_transaction_message: bool = field(default=False, name="rejectTransactionMessage")
    transaction_timeout_ms: PositiveMs = field(default=6_000, name="transactionTimeOut")
    transaction_check_max: Positive = field(default=15, name="transactionCheckMax")
    transaction_check_interval_ms: PositiveMs = field(
        default=30_000, name="transactionCheckInterval"
    )
    transaction_op_message_bytes_max: Positive = field(
        default=4_096, name="transactionOpMsgMaxSize"
    )
    transaction_op_batch_interval_ms: Positive = field(
        default=3_000, name="transactionOpBatchInterval"
    )
    store_reply_message: bool = field(default=True, name="storeReplyMessageEnable")
    mixed_message_type: bool = field(default=False, name="enableMixedMessageType")

    # Pulling
    long_polling: bool = field(default=True, name="longPollingEnable")
    short_polling_ms: PositiveMs = field(default=1_000, name="shortPollingTimeMills")
    lite_pull_message: bool = field(default=True, name="litePullMessageEnable")
    slave_read: bool = field(default=False, name="slaveReadEnable")
    property_filter: bool = field(default=False, name="enablePropertyFilter")
    filter_support_retry: bool = field(default=False, name="filterSupportRetry")
    calculate_filter_bitmap: bool = field(default=False, name="enableCalcFilterBitMap")
    expected_filter_consumers: Annotated[int, Meta(ge=1, le=10_000)] = field(
        default=32, name="expectConsumerNumUseFilter"
    )
    bloom_filter_error_percent: Annotated[int, Meta(ge=1, le=99)] = field(
        default=20, name="maxErrorRateOfBloomFilter"
    )
    filter_data_clean_ms: NonNegativeMs = field(default=86_400_000, name="filterDataCleanTimeSpan")
    disable_consume_if_consumer_read_slowly: bool = field(
        default=False, name="disableConsumeIfConsumerReadSlowly"
    )
    consumer_fallbehind_threshold_bytes: NonNegativeLong = field(
        default=16 << 30, name="consumerFallbehindThreshold"
    )
    reject_pull_consumer: bool = field(default=False, name="rejectPullConsumerEnable")
    use_server_side_reset_offset: bool = field(default=True, name="useServerSideResetOffset")
    consumer_offset_update_version_step: PositiveLong = field(
        default=500, name="consumerOffsetUpdateVersionStep"
    )

    # Clients
    notify_consumer_ids_changed: bool = field(default=True, name="notifyConsumerIdsChangedEnable")
    real_time_notify_consumer_change: bool = field(
        default=True, name="realTimeNotifyConsumerChange"
    )
    channel_expired_timeout_ms: PositiveMs = field(default=120_000, name="channelExpiredTimeout")
    subscription_expired_timeout_ms: PositiveMs = field(
        default=600_000, name="subscriptionExpiredTimeout"
    )
    register_producer: bool = field(default=True, name="enableRegisterProducer")
    use_static_subscription: bool = field(default=False, name="useStaticSubscription")

    # Flow control
    fast_failure: bool = field(default=True, name="brokerFastFailureEnable")
    wait_ms_in_send_queue: PositiveMs = field(default=200, name="waitTimeMillsInSendQueue")
    wait_ms_in_pull_queue: PositiveMs = field(default=5_000, name="waitTimeMillsInPullQueue")
    wait_ms_in_admin_queue: PositiveMs = field(
        default=5_000, name="waitTimeMillsInAdminBrokerQueue"
    )
    send_queue_capacity: Positive = field(default=10_000, name="sendThreadPoolQueueCapacity")
    pull_queue_capacity: Positive = field(default=100_000, name="pullThreadPoolQueueCapacity")
    query_queue_capacity: Positive = field(default=20_000, name="queryThreadPoolQueueCapacity")
    admin_queue_capacity: Positive = field(
        default=10_000, name="adminBrokerThreadPoolQueueCapacity"
    )
    admin_workers: Positive = field(default=16, name="adminBrokerThreadPoolNums")

    # Plug-ins
    send_message_hooks: str = field(default="", name="sendMessageHooks")
    consume_message_hooks: str = field(default="", name="consumeMessageHooks")
    rpc_hooks: str = field(default="", name="rpcHooks")

    @property
    def is_master(self) -> bool:
        """Whether the broker accepts writes."""
        return self.broker_id == MASTER_ID


def replace(config: BrokerConfig, **changes: object) -> BrokerConfig:
    """Return a copy of ``config`` with some settings changed, validated like a new one."""
    return msgspec.structs.replace(config, **changes)
