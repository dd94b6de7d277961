"""The consumer groups of the broker, kept in ``subscriptionGroup.json``.

Owns the table, the broker's own groups, the rules by which a consumer creates a new one, and what a
group is forbidden to read:

.. code-block:: text

    forbidden[group][topic]    bits; a bit that is set forbids
    bit 1 (value 2)            the group may not pull this topic

Invariants:

* A change by an administrator is in the file before it takes effect, or nothing changed; many
  changes share one write: see :mod:`roquet.broker.manager.staged`.
* A group created by a consumer has default settings, so it can be created again at any time; it is
  in the file after the next :meth:`persist`, and a full disk does not stop reading.
* Consumers cannot create groups with invalid names, nor more than :data:`GROUPS_MAX`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.attributes import GROUP_ATTRIBUTES, alter_attributes
from roquet.broker.manager.change_log import ChangeLog
from roquet.broker.manager.config_manager import (
    EntryTextCache,
    config_path,
    decode_table,
    merge,
    pretty,
)
from roquet.broker.manager.staged import StagedManager
from roquet.model.data_version import DataVersion
from roquet.model.fastjson import WritableJson, dumps
from roquet.model.subscription import SubscriptionGroupConfig
from roquet.model.topic import group_fault
from roquet.remoting.bodies.group import SubscriptionGroupWrapper
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files
from roquet.runtime.log_budget import LogBudget

__all__ = [
    "GROUPS_MAX",
    "SYSTEM_GROUPS",
    "SubscriptionGroupManager",
    "is_system_group",
]

log = logging.getLogger(__name__)

GROUPS_MAX = 100_000
"""Limit on groups that consumers may create; it does not apply to administrators."""

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


def _member(name: str, entry: SubscriptionGroupConfig) -> bytes:
    plain: dict[str, WritableJson] = msgspec.to_builtins(entry)
    policy = entry.group_retry_policy
    if policy.customized_retry_policy is not None:
        # A tuple, because fastjson keeps an array of numbers on one line.
        customized = {"next": tuple(policy.customized_retry_policy.next_ms)}
        plain["groupRetryPolicy"] = msgspec.to_builtins(policy) | {
            "customizedRetryPolicy": customized
        }
    return f"{dumps(name)}:{pretty(plain, level=2)}".encode()


class _DefaultGroups:
    """Groups as consumers create them, which differ only in their names."""

    def __init__(self) -> None:
        self._default = SubscriptionGroupConfig()
        mark = SubscriptionGroupConfig(group_name="%NAME-OF-GROUP%")
        _, self._before, self._behind = _member("%NAME-OF-GROUP%", mark).split(b'"%NAME-OF-GROUP%"')

    def new(self, name: str) -> SubscriptionGroupConfig:
        """Return a new group; all share the parts that are never modified."""
        default = self._default
        return SubscriptionGroupConfig(
            group_name=name,
            attributes=default.attributes,
            group_retry_policy=default.group_retry_policy,
        )

    def member(self, name: str, group: SubscriptionGroupConfig) -> bytes | None:
        """Encode a group as :func:`_member` does; ``None`` if it has other settings."""
        if group != self.new(name):
            return None
        quoted = dumps(name).encode()
        return quoted + self._before + quoted + self._behind


class SubscriptionGroupManager(StagedManager[SubscriptionGroupWrapper]):
    """The consumer groups.

    Args:
        config: The broker's settings.
        file: Their file; see :meth:`at`.
        clock: The time.

    Attributes:
        table: The groups by name. Entries are replaced, never modified; read only.
        forbidden: Forbidden bits by group and topic; read only.
        changed: Called after every change.
        changes: The names of recently changed groups.
    """

    def __init__(
        self, config: BrokerConfig, file: ConfigFile[SubscriptionGroupWrapper], clock: Clock
    ) -> None:
        super().__init__(file, clock)
        self._config = config
        self.table = {group: SubscriptionGroupConfig(group_name=group) for group in SYSTEM_GROUPS}
        self.forbidden: dict[str, dict[str, int]] = {}
        self._lines = LogBudget(log, clock)
        self.changes = ChangeLog()
        self._staged_groups = self._stages(self.table, self.changes.note)
        self._staged_forbidden = self._stages(self.forbidden)
        self._defaults = _DefaultGroups()
        self._texts = EntryTextCache[SubscriptionGroupConfig](2, _member, self._defaults.member)

    @classmethod
    def at(cls, config: BrokerConfig, files: Files, clock: Clock) -> SubscriptionGroupManager:
        """Return the groups in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, _FILE_NAME), files, decode=_decode)
        return cls(config, file, clock)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return a group; create it where that is allowed.

        Returns:
            The group, or None if it is unknown and may not be created.
        """
        known = self.table.get(group)
        if known is not None or not self._may_create(group):
            return known
        new = self._defaults.new(group)
        self.table[group] = new
        self.changes.note(group)
        self._bump()
        self._lines.info("Group %s was created by a consumer", group)
        self.tell_changed()
        return new

    def stage_all(self, group_configs: Sequence[SubscriptionGroupConfig]) -> None:
        """Create or change groups, all or none, once committed.

        The attributes of a group are changes, as ``+key`` and ``-key``.

        Raises:
            ConfigError: An attribute is refused.
        """
        new: dict[str, SubscriptionGroupConfig] = {}
        for given in group_configs:
            name = given.group_name
            assert name, "a group has a name"
            known = new.get(name) or self._staged_groups.get(name)
            attributes = alter_attributes(
                {} if known is None else known.attributes,
                given.attributes,
                GROUP_ATTRIBUTES,
                is_new=known is None,
            )
            new[name] = msgspec.structs.replace(given, attributes=attributes)
        if new:
            change = self._new_change()
            for name, group in new.items():
                self._staged_groups.stage(change, name, group)

    def stage_delete(self, group: str) -> None:
        """Delete a group and its forbidden bits, if it exists, once committed."""
        staged = (self._staged_groups, self._staged_forbidden)
        if any(table.get(group) is not None for table in staged):
            change = self._new_change()
            for table in staged:
                table.stage(change, group, None)

    def forbidden_bits(self, group: str, topic: str) -> int:
        """Return the forbidden bits of a group for a topic."""
        topics = self.forbidden.get(group)
        return 0 if topics is None else max(0, topics.get(topic, 0))

    def is_forbidden(self, group: str, topic: str, bit: int) -> bool:
        """Whether a bit, counted from 0, is set."""
        return bool(self.forbidden_bits(group, topic) >> bit & 1)

    def stage_forbidden(self, group: str, topic: str, bit: int, *, forbidden: bool) -> None:
        """Set or clear a bit, counted from 0, once committed; the bits of other topics stay."""
        assert 0 <= bit < 31, "a bit of a positive Java int"
        topics = dict(self._staged_forbidden.get(group) or {})
        old = max(0, topics.pop(topic, 0))
        new = old | 1 << bit if forbidden else old & ~(1 << bit)
        if new == old:
            return
        if new:
            topics[topic] = new
        self._staged_forbidden.stage(self._new_change(), group, topics or None)

    def adopt(
        self,
        table: Mapping[str, SubscriptionGroupConfig],
        forbidden: Mapping[str, dict[str, int]],
        version: DataVersion,
    ) -> None:
        """Become a copy of a master's table; the groups that every broker has stay."""
        kept = {name: each for name, each in table.items() if self._is_adoptable(name)}
        for name in [name for name in self.table if name not in kept]:
            if name not in SYSTEM_GROUPS:
                del self.table[name]
                self.changes.note(name)
        for name, each in kept.items():
            group = msgspec.structs.replace(each, group_name=name)
            if self.table.get(name) != group:
                self.table[name] = group
                self.changes.note(name)
        self.forbidden.clear()
        self.forbidden.update(forbidden)
        self._adopt_version(version)
        self.tell_changed()

    def _is_adoptable(self, name: str) -> bool:
        fault = group_fault(name)
        if fault is not None and (more := self._log_limiter.allow("not adopted")) is not None:
            log.warning("Group %.300r of the master was ignored: %.300s%s", name, fault, more)
        return fault is None

    def _may_create(self, group: str) -> bool:
        config = self._config
        if not config.auto_create_subscription_group and not (
            config.enable_create_system_group and is_system_group(group)
        ):
            return False
        fault = group_fault(group)
        if fault is None and len(self._staged_groups) >= GROUPS_MAX:
            fault = f"there are {GROUPS_MAX} groups"
        if fault is not None and (more := self._log_limiter.allow("refused")) is not None:
            log.warning("Group %.300r was not created: %.300s%s", group, fault, more)
        return fault is None

    def _take(self, loaded: SubscriptionGroupWrapper) -> bool:
        for name, group_config in loaded.subscription_group_table.items():
            group_config.group_name = name
        self.forbidden.update(loaded.forbidden_table)
        self.data_version = loaded.data_version
        return merge(self.table, loaded.subscription_group_table)

    def _snapshot(self) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(
            data_version=self._pictured_version(),
            forbidden_table=self._staged_forbidden.snapshot(),
            subscription_group_table=self._staged_groups.snapshot(),
        )

    def _pieces(self, snapshot: SubscriptionGroupWrapper) -> Iterator[bytes]:
        version = pretty(msgspec.to_builtins(snapshot.data_version), level=1)
        forbidden = pretty(snapshot.forbidden_table, level=1)
        yield f'{{\n\t"dataVersion":{version},\n\t"forbiddenTable":{forbidden},'.encode()
        yield b'\n\t"subscriptionGroupTable":'
        yield from self._texts.pieces(snapshot.subscription_group_table)
        yield b"\n}"
