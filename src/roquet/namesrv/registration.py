"""The data of a registration: what a broker sends, gets back, and what others are notified of.

Owns the inputs and results of the broker tables, and the rules for names. Names of brokers and
clusters are topics too, so both have one rule; it is wider than the one for topics that clients
create, because brokers are often named after hosts.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from roquet.errors import ProtocolError
from roquet.remoting.bodies.topic import TopicConfigAndMappingSerializeWrapper
from roquet.remoting.headers.ha import NotifyMinBrokerIdChangeRequestHeader

__all__ = [
    "BrokerKey",
    "BrokerRegistration",
    "MinBrokerIdChange",
    "RegisterBrokerResult",
    "SilentBroker",
    "check_names",
    "is_name",
    "min_broker_id_change",
]

NAME_LENGTH_MAX = 255

_BREAKS_ADDRESS = frozenset(' ,"\\{}')
"""Characters that break old clients, which parse addresses by hand."""


class BrokerKey(NamedTuple):
    """One broker process."""

    cluster_name: str
    address: str


class BrokerRegistration(Struct, frozen=True, kw_only=True):
    """The registration of a broker.

    Attributes:
        heartbeat_timeout_ms: How long it may be silent; ``None`` for the default.
        enable_acting_master: Whether a slave may act as master; ``None`` from brokers without this
            feature, whose slaves never do.
        filter_servers: ``None`` keeps the known ones.
        connection: The connection it arrived on.
    """

    cluster_name: str
    broker_name: str
    broker_id: int
    address: str
    ha_server_address: str
    zone_name: str | None = None
    heartbeat_timeout_ms: int | None = None
    enable_acting_master: bool | None = None
    topics: TopicConfigAndMappingSerializeWrapper
    filter_servers: list[str] | None = None
    connection: object = None

    @property
    def key(self) -> BrokerKey:
        """The key of its entry in the table of live brokers."""
        return BrokerKey(self.cluster_name, self.address)


class MinBrokerIdChange(NamedTuple):
    """A change of the smallest broker id of a name, and the brokers to notify."""

    header: NotifyMinBrokerIdChangeRequestHeader
    addresses: list[str]


def min_broker_id_change(
    addresses: dict[int, str], *, offline_address: str | None, ha_address: str | None
) -> MinBrokerIdChange:
    """The notification after a broker came, or one went offline.

    Args:
        addresses: The addresses of the name by broker id, as they are now.
        offline_address: The address of the broker that left; ``None`` if one came.
        ha_address: Where a new master replicates from.
    """
    min_id = min(addresses)
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=min_id,
        min_broker_address=addresses[min_id],
        offline_broker_address=offline_address,
        ha_broker_address=ha_address,
    )
    tell_all = offline_address is not None or len(addresses) == 1
    told = [address for each, address in addresses.items() if tell_all or each != min_id]
    return MinBrokerIdChange(header, told)


class RegisterBrokerResult(NamedTuple):
    """What a registering broker gets back, and the notification for other brokers.

    The master's addresses are set only if the broker is a slave.
    """

    ha_server_address: str | None = None
    master_address: str | None = None
    changes: tuple[MinBrokerIdChange, ...] = ()


class SilentBroker(NamedTuple):
    """A dropped broker, and its connection, which is to be closed."""

    address: str
    connection: object
    change: MinBrokerIdChange | None


def is_name(text: str) -> bool:
    """Whether a text can be the name of a topic, a broker or a cluster."""
    return bool(text.strip()) and len(text) <= NAME_LENGTH_MAX and text.isprintable()


def check_names(broker: BrokerRegistration) -> None:
    """Refuse a broker whose names or address cannot be used.

    Raises:
        ProtocolError: The message names the field.
    """
    for what, text in (
        ("brokerName", broker.broker_name),
        ("clusterName", broker.cluster_name),
        ("brokerAddr", broker.address),
    ):
        if not is_name(text) or (what == "brokerAddr" and _BREAKS_ADDRESS & set(text)):
            raise ProtocolError(
                f"the custom field <{what}> cannot be used",
                code="bad_header_field",
                detail=f"{text[:80]!r} is blank, too long or has characters that break routes",
            )
