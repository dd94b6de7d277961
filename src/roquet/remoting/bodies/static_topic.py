"""A change of a static topic, as the admin tool saves it to a file."""

from __future__ import annotations

from msgspec import Struct, field

from roquet.remoting.bodies.topic import TopicConfigAndQueueMapping

__all__ = ["CREATE_OR_UPDATE", "REMAPPING", "TopicRemappingDetailWrapper"]

CREATE_OR_UPDATE = "CREATE_OR_UPDATE"
REMAPPING = "REMAPPING"


class TopicRemappingDetailWrapper(Struct, rename="camel", kw_only=True):
    """The planned state of a static topic on each broker.

    Attributes:
        configs: The settings and mappings by broker name.
        map_in: The brokers that get queues.
        map_out: The brokers that lose queues.
        kind: Whether the topic is created (or gets more queues) or remapped.
    """

    configs: dict[str, TopicConfigAndQueueMapping] = field(
        default_factory=dict, name="brokerConfigMap"
    )
    map_in: list[str] = field(default_factory=list, name="brokerToMapIn")
    map_out: list[str] = field(default_factory=list, name="brokerToMapOut")
    epoch: int = 0
    topic: str = ""
    kind: str = field(default=CREATE_OR_UPDATE, name="type")
