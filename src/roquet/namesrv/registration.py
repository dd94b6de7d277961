"""What a broker says of itself, what it learns, and what others are told.

Owns the values that go into and come out of the tables of brokers, and the rules for names. Names
of brokers and clusters are topics too, so both have one rule; it is wider than the one for topics
that clients make, because brokers are often called by a host name.
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
]

NAME_LENGTH_MAX = 255

_BREAKS_ADDRESS = frozenset(' ,"\\{}')
"""What old clients, which take the text of addresses apart by hand, would stumble over."""


class BrokerKey(NamedTuple):
    """One broker process."""

    cluster_name: str
    address: str


class BrokerRegistration(Struct, frozen=True, kw_only=True):
    """What a broker says of itself.

    Attributes:
        heartbeat_timeout_ms: How long it may be silent, unless the default is meant.
        enable_acting_master: Whether a slave may stand in for its master; ``None`` from brokers
            that do not know of this, whose slaves never do.
        filter_servers: ``None`` leaves what is known.
        connection: By which it came.
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
        """By what it is known to be alive."""
        return BrokerKey(self.cluster_name, self.address)


class MinBrokerIdChange(NamedTuple):
    """News about the least broker id of a name, and the brokers to tell."""

    header: NotifyMinBrokerIdChangeRequestHeader
    addresses: list[str]


class RegisterBrokerResult(NamedTuple):
    """What a broker learns from registering, and what other brokers are to be told.

    A master's addresses are there only when the broker is a slave.
    """

    ha_server_address: str | None = None
    master_address: str | None = None
    changes: tuple[MinBrokerIdChange, ...] = ()


class SilentBroker(NamedTuple):
    """A broker that was dropped, and its connection, which is to be closed."""

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
