"""The consumer groups of the broker, kept in ``subscriptionGroup.json``.

Owns the table, the groups that the broker makes for itself, the rules by which a consumer makes a
new one, and what a group may not read:

.. code-block:: text

    forbidden[group][topic]    bits; a bit that is set forbids
    bit 1 (value 2)            the group may not pull this topic

Invariants:

* What an administrator changes is in the file before the call returns, or nothing changed.
* A group that a consumer makes has default settings, so it can be made again at any time; it is
  in the file after the next :meth:`persist`, and a full disk does not stop reading.
* Consumers cannot make groups of names that are refused, nor more than :data:`GROUPS_MAX`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.attributes import GROUP_ATTRIBUTES, alter_attributes
from roquet.broker.manager.config_manager import (
    EntryTexts,
    SettingsManager,
    config_path,
    decode_table,
    merge,
    pretty,
    restorer,
)
from roquet.model.fastjson import WritableJson
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic import group_fault
from roquet.remoting.bodies.group import SubscriptionGroupWrapper
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = [
    "GROUPS_MAX",
    "SYSTEM_GROUPS",
    "SubscriptionGroupManager",
    "is_system_group",
]

log = logging.getLogger(__name__)

GROUPS_MAX = 100_000
"""Consumers make no more groups than this; an administrator may."""

SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

SYSTEM_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)
"""Groups that every broker has."""

_FILE_NAME = "subscriptionGroup.json"


def is_system_group(group: str) -> bool:
    """Whether a group belongs to the broker's own services."""
    return group.startswith(SYSTEM_GROUP_PREFIX)


def _decode(text: str) -> SubscriptionGroupWrapper:
    return decode_table(SubscriptionGroupWrapper, text)


def _plain(entry: Struct) -> WritableJson:
    plain: dict[str, WritableJson] = msgspec.to_builtins(entry)
    policy = plain["groupRetryPolicy"]
    if isinstance(policy, dict) and isinstance(customized := policy["customizedRetryPolicy"], dict):
        # An array of numbers, which fastjson keeps on one line.
        customized["next"] = tuple(customized["next"])
    return plain


class SubscriptionGroupManager(SettingsManager[SubscriptionGroupWrapper]):
    """The consumer groups.

    Args:
        config: The broker's settings.
        file: Where they are kept; see :meth:`at`.
        clock: The time.

    Attributes:
        table: The groups by name. Entries are replaced, never altered; read them only.
        forbidden: Bits of what is forbidden, by group and topic; read only.
        changed: Called after every change.
    """

    def __init__(
        self, config: BrokerConfig, file: ConfigFile[SubscriptionGroupWrapper], clock: Clock
    ) -> None:
        super().__init__(file, clock)
        self._config = config
        self.table = {group: SubscriptionGroupConfig(group_name=group) for group in SYSTEM_GROUPS}
        self.forbidden: dict[str, dict[str, int]] = {}
        self._texts = EntryTexts(2, _plain)

    @classmethod
    def at(cls, config: BrokerConfig, files: Files, clock: Clock) -> SubscriptionGroupManager:
        """The groups, kept in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, _FILE_NAME), files, decode=_decode)
        return cls(config, file, clock)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """One group; a new one is made where that is allowed.

        Returns:
            The group, or None when it is unknown and may not be made.
        """
        known = self.table.get(group)
        if known is not None or not self._may_create(group):
            return known
        new = SubscriptionGroupConfig(group_name=group)
        self.table[group] = new
        self._bump()
        log.info("Group %s was made by a consumer", group)
        self._tell()
        return new

    def update(self, group_config: SubscriptionGroupConfig) -> None:
        """Make or alter a group; its attributes say what to alter, as ``+key`` and ``-key``.

        Raises:
            ConfigError: An attribute is refused.
            StoreError: It could not be kept.
        """
        self.update_all([group_config])

    def update_all(self, group_configs: Sequence[SubscriptionGroupConfig]) -> None:
        """As :meth:`update`, for several at once: all or none.

        Raises:
            ConfigError: An attribute is refused.
            StoreError: They could not be kept.
        """
        if not group_configs:
            return
        with self._changing(restorer(self.table)):
            for given in group_configs:
                name = given.group_name
                assert name, "a group has a name"
                known = self.table.get(name)
                attributes = alter_attributes(
                    {} if known is None else known.attributes,
                    given.attributes,
                    GROUP_ATTRIBUTES,
                    is_new=known is None,
                )
                self.table[name] = msgspec.structs.replace(given, attributes=attributes)

    def delete(self, group: str) -> None:
        """Drop a group and what is forbidden to it, if it is there.

        Raises:
            StoreError: That could not be kept.
        """
        if group not in self.table and group not in self.forbidden:
            return
        with self._changing(restorer(self.table), restorer(self.forbidden)):
            self.table.pop(group, None)
            self.forbidden.pop(group, None)

    def disable_consume(self, group: str) -> None:
        """Let a group read no more, because it is so far behind that it harms others."""
        known = self.table.get(group)
        if known is not None and known.consume_enable:
            self.table[group] = msgspec.structs.replace(known, consume_enable=False)
            self._keep_if_possible(f"The end of group {group}")

    def forbidden_bits(self, group: str, topic: str) -> int:
        """The bits of what a group may not do with a topic."""
        topics = self.forbidden.get(group)
        return 0 if topics is None else max(0, topics.get(topic, 0))

    def is_forbidden(self, group: str, topic: str, bit: int) -> bool:
        """Whether a bit, counted from 0, is set."""
        return bool(self.forbidden_bits(group, topic) >> bit & 1)

    def set_forbidden(self, group: str, topic: str, bit: int, *, forbidden: bool) -> None:
        """Set or clear a bit, counted from 0; the bits of other topics stay.

        Raises:
            StoreError: That could not be kept.
        """
        assert 0 <= bit < 31, "a bit of a positive Java int"
        old = self.forbidden_bits(group, topic)
        new = old | 1 << bit if forbidden else old & ~(1 << bit)
        if new == old:
            return
        with self._changing(restorer(self.forbidden)):
            topics = dict(self.forbidden.get(group, {}))
            topics[topic] = new
            if not new:
                del topics[topic]
            if topics:
                self.forbidden[group] = topics
            else:
                del self.forbidden[group]

    def _may_create(self, group: str) -> bool:
        config = self._config
        if not config.auto_create_subscription_group and not (
            config.enable_create_system_group and is_system_group(group)
        ):
            return False
        fault = group_fault(group)
        if fault is None and len(self.table) >= GROUPS_MAX:
            fault = f"there are {GROUPS_MAX} groups"
        if fault is not None and (more := self._log_limiter.allow("refused")) is not None:
            log.warning("Group %.300r was not made: %.300s%s", group, fault, more)
        return fault is None

    def _take(self, loaded: SubscriptionGroupWrapper) -> bool:
        for name, group_config in loaded.subscription_group_table.items():
            group_config.group_name = name
        self.forbidden.update(loaded.forbidden_table)
        self.data_version = loaded.data_version
        return merge(self.table, loaded.subscription_group_table)

    def _picture(self) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(
            data_version=msgspec.structs.replace(self.data_version),
            forbidden_table=dict(self.forbidden),
            subscription_group_table=dict(self.table),
        )

    def _text(self, picture: SubscriptionGroupWrapper) -> str:
        version = pretty(msgspec.to_builtins(picture.data_version), level=1)
        forbidden = pretty(picture.forbidden_table, level=1)
        groups = self._texts.text(dict(picture.subscription_group_table))
        return (
            f'{{\n\t"dataVersion":{version},\n\t"forbiddenTable":{forbidden},'
            f'\n\t"subscriptionGroupTable":{groups}\n}}'
        )
