"""Headers of replication, the controller and the container of brokers."""

from __future__ import annotations

from msgspec import field

from roquet.remoting.headers.base import Header, Int32, Int64

__all__ = [
    "AddBrokerRequestHeader",
    "AlterSyncStateSetRequestHeader",
    "AlterSyncStateSetResponseHeader",
    "ApplyBrokerIdRequestHeader",
    "ApplyBrokerIdResponseHeader",
    "CleanControllerBrokerDataRequestHeader",
    "ElectMasterRequestHeader",
    "ElectMasterResponseHeader",
    "ExchangeHAInfoHeader",
    "GetMetaDataResponseHeader",
    "GetNextBrokerIdRequestHeader",
    "GetNextBrokerIdResponseHeader",
    "GetReplicaInfoRequestHeader",
    "GetReplicaInfoResponseHeader",
    "NotifyBrokerRoleChangedRequestHeader",
    "NotifyMinBrokerIdChangeRequestHeader",
    "RegisterBrokerToControllerRequestHeader",
    "RegisterBrokerToControllerResponseHeader",
    "RemoveBrokerRequestHeader",
    "ResetMasterFlushOffsetRequestHeader",
]


class ExchangeHAInfoHeader(Header, kw_only=True):
    """Where a master is and how far it has flushed; used by request and response."""

    master_ha_address: str | None = None
    master_flush_offset: Int64 | None = None
    master_address: str | None = None


class NotifyMinBrokerIdChangeRequestHeader(Header, kw_only=True):
    """The broker of a name that now has the smallest id."""

    min_broker_id: Int64 | None = None
    broker_name: str | None = None
    min_broker_address: str | None = field(default=None, name="minBrokerAddr")
    offline_broker_address: str | None = field(default=None, name="offlineBrokerAddr")
    ha_broker_address: str | None = field(default=None, name="haBrokerAddr")


class ResetMasterFlushOffsetRequestHeader(Header, kw_only=True):
    """How far the master has flushed."""

    master_flush_offset: Int64


class NotifyBrokerRoleChangedRequestHeader(Header, kw_only=True):
    """The new master; the replicas in sync are in the body."""

    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None
    master_broker_id: Int64 | None = None


class AlterSyncStateSetRequestHeader(Header, kw_only=True):
    """A change of the replicas in sync, which are in the body."""

    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_epoch: Int32 | None = None
    invoke_time_ms: Int64 = field(default=0, name="invokeTime")


class AlterSyncStateSetResponseHeader(Header, kw_only=True):
    """How often the set changed."""

    new_sync_state_set_epoch: Int32 = 0


class ElectMasterRequestHeader(Header, kw_only=True):
    """A request to elect a master, possibly this broker."""

    cluster_name: str = ""
    broker_name: str = ""
    broker_id: Int64 = -1
    designate_elect: bool = False
    invoke_time_ms: Int64 | None = field(default=None, name="invokeTime")


class ElectMasterResponseHeader(Header, kw_only=True):
    """The elected master."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class RegisterBrokerToControllerRequestHeader(Header, kw_only=True):
    """A broker to register."""

    cluster_name: str | None = None
    broker_name: str | None = None
    broker_id: Int64 | None = None
    broker_address: str | None = None
    invoke_time_ms: Int64 = field(default=0, name="invokeTime")


class RegisterBrokerToControllerResponseHeader(Header, kw_only=True):
    """The current master."""

    cluster_name: str | None = None
    broker_name: str | None = None
    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None
    sync_state_set_epoch: Int32 | None = None


class GetReplicaInfoRequestHeader(Header, kw_only=True):
    """The replicas of a broker name."""

    broker_name: str | None = None


class GetReplicaInfoResponseHeader(Header, kw_only=True):
    """The current master; the replicas in sync are in the body."""

    master_broker_id: Int64 | None = None
    master_address: str | None = None
    master_epoch: Int32 | None = None


class GetMetaDataResponseHeader(Header, kw_only=True):
    """The leader of the controllers."""

    group: str | None = None
    controller_leader_id: str | None = None
    controller_leader_address: str | None = None
    is_leader: bool = False
    peers: str | None = None


class GetNextBrokerIdRequestHeader(Header, kw_only=True):
    """The next free id of a broker name."""

    cluster_name: str | None = None
    broker_name: str | None = None


class GetNextBrokerIdResponseHeader(Header, kw_only=True):
    """That id."""

    cluster_name: str | None = None
    broker_name: str | None = None
    next_broker_id: Int64 | None = None


class ApplyBrokerIdRequestHeader(Header, kw_only=True):
    """A broker id to claim; the check code later proves that it was this broker."""

    cluster_name: str | None = None
    broker_name: str | None = None
    applied_broker_id: Int64 | None = None
    register_check_code: str | None = None


class ApplyBrokerIdResponseHeader(Header, kw_only=True):
    """The broker that got the id."""

    cluster_name: str | None = None
    broker_name: str | None = None


class CleanControllerBrokerDataRequestHeader(Header, kw_only=True):
    """Brokers to forget.

    Attributes:
        broker_controller_ids_to_clean: Ids separated by semicolons.
    """

    cluster_name: str | None = None
    broker_name: str
    broker_controller_ids_to_clean: str | None = None
    is_clean_living_broker: bool = False
    invoke_time_ms: Int64 = field(default=0, name="invokeTime")


class AddBrokerRequestHeader(Header, kw_only=True):
    """The configuration file of a broker to start."""

    config_path: str | None = None


class RemoveBrokerRequestHeader(Header, kw_only=True):
    """A broker to stop."""

    broker_name: str
    broker_cluster_name: str
    broker_id: Int64
