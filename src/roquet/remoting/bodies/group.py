"""Bodies of consumer groups: their settings, lists of them, what they may not read."""

from __future__ import annotations

from msgspec import Struct, field

from roquet.model.data_version import DataVersion
from roquet.model.subscription import SubscriptionData, SubscriptionGroupConfig

__all__ = [
    "GroupForbidden",
    "GroupList",
    "QuerySubscriptionResponseBody",
    "SubscriptionGroupList",
    "SubscriptionGroupWrapper",
]


class SubscriptionGroupWrapper(Struct, rename="camel", kw_only=True):
    """Groups by name.

    Attributes:
        forbidden_table: By group and topic: bits of what is forbidden.
    """

    data_version: DataVersion = field(default_factory=DataVersion)
    forbidden_table: dict[str, dict[str, int]] = field(default_factory=dict)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)


class SubscriptionGroupList(Struct, rename="camel", kw_only=True):
    """Groups to create or change."""

    group_config_list: list[SubscriptionGroupConfig] | None = None


class GroupList(Struct, rename="camel", kw_only=True):
    """Names of groups."""

    group_list: list[str] = field(default_factory=list)


class GroupForbidden(Struct, rename="camel", kw_only=True):
    """Whether a group may read a topic."""

    group: str | None = None
    readable: bool | None = None
    topic: str | None = None


class QuerySubscriptionResponseBody(Struct, rename="camel", kw_only=True):
    """The subscription of a group to a topic."""

    group: str | None = None
    subscription_data: SubscriptionData | None = None
    topic: str | None = None
