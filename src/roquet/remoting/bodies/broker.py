"""Bodies about a broker: its state, its replication, its users and policies."""

from __future__ import annotations

from msgspec import Struct, field

from roquet.remoting.bodies.route import BrokerMemberGroup

__all__ = [
    "AclInfo",
    "BrokerReplicasInfo",
    "BrokerStatsData",
    "BrokerStatsItem",
    "ElectMasterResponseBody",
    "EpochEntry",
    "EpochEntryCache",
    "HAClientRuntimeInfo",
    "HAConnectionRuntimeInfo",
    "HARuntimeInfo",
    "KVTable",
    "PolicyEntryInfo",
    "PolicyInfo",
    "ReplicaIdentity",
    "ReplicasInfo",
    "RoleChangeNotifyEntry",
    "SyncStateSet",
    "UserInfo",
]


class KVTable(Struct, rename="camel", kw_only=True):
    """Names and values."""

    table: dict[str, str] = field(default_factory=dict)


class BrokerStatsItem(Struct, rename="camel", kw_only=True):
    """A statistic over one span of time."""

    average_per_time: float = field(default=0.0, name="avgpt")
    sum: int = 0
    tps: float = 0.0


class BrokerStatsData(Struct, rename="camel", kw_only=True):
    """A statistic over a minute, an hour and a day."""

    stats_day: BrokerStatsItem | None = None
    stats_hour: BrokerStatsItem | None = None
    stats_minute: BrokerStatsItem | None = None


class HAConnectionRuntimeInfo(Struct, rename="camel", kw_only=True):
    """A slave, as its master sees it."""

    address: str | None = field(default=None, name="addr")
    diff_bytes: int = field(default=0, name="diff")
    in_sync: bool = False
    slave_ack_offset: int = 0
    transfer_from_where: int = 0
    transferred_bytes_per_second: int = field(default=0, name="transferredByteInSecond")


class HAClientRuntimeInfo(Struct, rename="camel", kw_only=True):
    """The master, as a slave sees it."""

    last_read_timestamp_ms: int = field(default=0, name="lastReadTimestamp")
    last_write_timestamp_ms: int = field(default=0, name="lastWriteTimestamp")
    master_address: str | None = field(default=None, name="masterAddr")
    master_flush_offset: int = 0
    max_physical_offset: int = field(default=0, name="maxOffset")
    transferred_bytes_per_second: int = field(default=0, name="transferredByteInSecond")


class HARuntimeInfo(Struct, rename="camel", kw_only=True):
    """The state of replication."""

    ha_client_runtime_info: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)
    ha_connection_info: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    in_sync_slave_nums: int = 0
    master: bool = False
    master_commit_log_max_offset: int = 0


class EpochEntry(Struct, rename="camel", kw_only=True):
    """The part of a log that one master wrote."""

    end_offset: int = 0
    epoch: int = 0
    start_offset: int = 0


class EpochEntryCache(Struct, rename="camel", kw_only=True):
    """The parts of a broker's log."""

    broker_id: int = 0
    broker_name: str | None = None
    cluster_name: str | None = None
    epoch_list: list[EpochEntry] | None = None
    max_physical_offset: int = field(default=0, name="maxOffset")


class SyncStateSet(Struct, rename="camel", kw_only=True):
    """The broker ids of replicas in sync, and how often that set changed."""

    sync_state_set: list[int] = field(default_factory=list)
    sync_state_set_epoch: int = 0


class ReplicaIdentity(Struct, rename="camel", kw_only=True):
    """One replica."""

    alive: bool | None = None
    broker_address: str | None = None
    broker_id: int | None = None
    broker_name: str | None = None


class ReplicasInfo(Struct, rename="camel", kw_only=True):
    """The replicas of a broker name."""

    in_sync_replicas: list[ReplicaIdentity] | None = None
    master_address: str | None = None
    master_broker_id: int | None = None
    master_epoch: int | None = None
    not_in_sync_replicas: list[ReplicaIdentity] | None = None
    sync_state_set_epoch: int | None = None


class BrokerReplicasInfo(Struct, rename="camel", kw_only=True):
    """The replicas, by broker name."""

    replicas_info_table: dict[str, ReplicasInfo] = field(default_factory=dict)


class ElectMasterResponseBody(Struct, rename="camel", kw_only=True):
    """The replicas after a master was elected."""

    broker_member_group: BrokerMemberGroup | None = None
    sync_state_set: list[int] = field(default_factory=list)


class RoleChangeNotifyEntry(Struct, rename="camel", kw_only=True):
    """The current master."""

    broker_member_group: BrokerMemberGroup | None = None
    master_address: str | None = None
    master_broker_id: int | None = None
    master_epoch: int = 0
    sync_state_set: list[int] | None = None
    sync_state_set_epoch: int = 0


class UserInfo(Struct, rename="camel", kw_only=True):
    """A user; responses never carry the password."""

    password: str | None = None
    user_status: str | None = None
    user_type: str | None = None
    username: str | None = None


class PolicyEntryInfo(Struct, rename="camel", kw_only=True):
    """What is allowed or denied on one resource."""

    actions: list[str] | None = None
    decision: str | None = None
    resource: str | None = None
    source_ips: list[str] | None = None


class PolicyInfo(Struct, rename="camel", kw_only=True):
    """Entries of one kind of policy."""

    entries: list[PolicyEntryInfo] | None = None
    policy_type: str | None = None


class AclInfo(Struct, rename="camel", kw_only=True):
    """The policies of a subject."""

    policies: list[PolicyInfo] | None = None
    subject: str | None = None
