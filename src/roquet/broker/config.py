"""Settings of the broker, under RocketMQ's own keys.

Owns :class:`BrokerConfig`: who the broker is and what it allows. The settings of its files are
those of :class:`~roquet.store.config.MessageStoreConfig`. Python names carry units, file keys are
upstream's, so a ``broker.conf`` is read unchanged.
"""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, field

from roquet.model.host import Host
from roquet.model.topic import TRACE_TOPIC
from roquet.model.topic_config import PERM_READ, PERM_WRITE
from roquet.remoting.bodies.route import MASTER_ID

__all__ = ["BrokerConfig", "broker_ip", "replace"]

NonNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535)]


class BrokerConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The broker's settings; defaults are upstream's unless ``docs/differences.md`` says why not.

    Attributes:
        namesrv_address: Name servers, with semicolons between; empty for none.
        bind_address: Where the ports listen.
        broker_ip1: The address that clients are told; empty for the one that is listened on.
        broker_ip2: The address that slaves are told.
        broker_permission: 4 read, 2 write; what clients may do at all.
        address_server_domain: Host, and port if it is not 8080, of the server that lists the name
            servers, for ``fetchNamesrvAddrByAddressServer``.
        address_server_subgroup: The last part of the path of that list.
        region_id: What messages and answers carry as MSG_REGION.
        send_message_hooks: Names of plug-ins with commas between, as the two below; see
            :mod:`roquet.broker.plugins`.
    """

    # Identity
    cluster_name: str = field(default="DefaultCluster", name="brokerClusterName")
    broker_name: str = field(default="DEFAULT_BROKER", name="brokerName")
    broker_id: NonNegative = field(default=MASTER_ID, name="brokerId")
    broker_ip1: str = field(default="", name="brokerIP1")
    broker_ip2: str = field(default="", name="brokerIP2")

    # Network
    namesrv_address: str = field(default="", name="namesrvAddr")
    bind_address: str = field(default="127.0.0.1", name="bindAddress")
    listen_port: Port = field(default=10911, name="listenPort")
    channel_idle_seconds_max: Positive = field(default=120, name="serverChannelMaxIdleTimeSeconds")
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
    slave_acting_master: bool = field(default=False, name="enableSlaveActingMaster")
    broker_not_active_timeout_ms: Positive = field(
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
    broker_permission: NonNegative = field(default=PERM_READ | PERM_WRITE, name="brokerPermission")
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
    start_accept_send_timestamp_ms: NonNegative = field(
        default=0, name="startAcceptSendRequestTimeStamp"
    )
    reject_transaction_message: bool = field(default=False, name="rejectTransactionMessage")
    transaction_timeout_ms: Positive = field(default=6_000, name="transactionTimeOut")
    transaction_check_max: Positive = field(default=15, name="transactionCheckMax")
    transaction_check_interval_ms: Positive = field(default=30_000, name="transactionCheckInterval")
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
    short_polling_ms: Positive = field(default=1_000, name="shortPollingTimeMills")
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
    filter_data_clean_ms: NonNegative = field(default=86_400_000, name="filterDataCleanTimeSpan")
    disable_consume_if_consumer_read_slowly: bool = field(
        default=False, name="disableConsumeIfConsumerReadSlowly"
    )
    consumer_fallbehind_threshold_bytes: NonNegative = field(
        default=16 << 30, name="consumerFallbehindThreshold"
    )
    reject_pull_consumer: bool = field(default=False, name="rejectPullConsumerEnable")
    use_server_side_reset_offset: bool = field(default=True, name="useServerSideResetOffset")
    consumer_offset_update_version_step: Positive = field(
        default=500, name="consumerOffsetUpdateVersionStep"
    )

    # Clients
    notify_consumer_ids_changed: bool = field(default=True, name="notifyConsumerIdsChangedEnable")
    real_time_notify_consumer_change: bool = field(
        default=True, name="realTimeNotifyConsumerChange"
    )
    channel_expired_timeout_ms: Positive = field(default=120_000, name="channelExpiredTimeout")
    subscription_expired_timeout_ms: Positive = field(
        default=600_000, name="subscriptionExpiredTimeout"
    )
    register_producer: bool = field(default=True, name="enableRegisterProducer")
    use_static_subscription: bool = field(default=False, name="useStaticSubscription")

    # Flow control
    fast_failure: bool = field(default=True, name="brokerFastFailureEnable")
    wait_ms_in_send_queue: Positive = field(default=200, name="waitTimeMillsInSendQueue")
    wait_ms_in_pull_queue: Positive = field(default=5_000, name="waitTimeMillsInPullQueue")
    wait_ms_in_admin_queue: Positive = field(default=5_000, name="waitTimeMillsInAdminBrokerQueue")
    send_queue_capacity: Positive = field(default=10_000, name="sendThreadPoolQueueCapacity")
    pull_queue_capacity: Positive = field(default=100_000, name="pullThreadPoolQueueCapacity")
    query_queue_capacity: Positive = field(default=20_000, name="queryThreadPoolQueueCapacity")

    # Plug-ins
    send_message_hooks: str = field(default="", name="sendMessageHooks")
    consume_message_hooks: str = field(default="", name="consumeMessageHooks")
    rpc_hooks: str = field(default="", name="rpcHooks")

    @property
    def is_master(self) -> bool:
        """Whether the broker takes writes."""
        return self.broker_id == MASTER_ID


def broker_ip(config: BrokerConfig, store_host: Host) -> str:
    """The address that remarks name: the one that clients are told, or that of the records."""
    return config.broker_ip1 or str(ipaddress.ip_address(store_host.ip))


def replace(config: BrokerConfig, **changes: object) -> BrokerConfig:
    """A copy of ``config`` with some settings changed, checked like a new one."""
    return msgspec.structs.replace(config, **changes)
