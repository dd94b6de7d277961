"""The filter expressions of consumer groups, other than tags, kept in ``consumerFilter.json``.

Upstream's ConsumerFilterManager and ConsumerFilterData. Owns the compiled expression of each topic
and group, and its bits in the bloom filter. Expressions come from heartbeats; pulls are filtered by
the expression in the table, and the bit map of each new message says which filters of its topic it
matches.

A filter is alive while its group has clients that subscribe to its topic. Afterwards it is dead,
but stays for ``filterDataCleanTimeSpan``, so that new messages are still matched against it.

Invariants:

* The expression with the newer version wins. A newer one that cannot be parsed removes the older:
  its consumers should see the error instead of messages they no longer want.
* The bit map of a message is valid for a filter only if the message was stored after the filter
  was, and since the broker's start. The file is written at intervals, so after a crash it may hold
  an expression older than the one that the last messages were matched against. Upstream trusts
  their bit maps.
* All filters are dead after a start, until a heartbeat comes.
* The number of filters and their total length are limited; further ones are refused, and so are
  pulls with them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable

import msgspec

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.config_manager import ConfigManager, config_path, decode_table
from roquet.errors import ProtocolError
from roquet.filter.bloom import BloomFilter
from roquet.filter.consumer_filters import (
    ConsumerFilter,
    ConsumerFilterData,
    ConsumerFilters,
    TopicFilters,
    compile_expression,
)
from roquet.filter.sql92 import Sql92Error
from roquet.filter.sql92.expression import EXPRESSION_CHARACTERS_MAX
from roquet.filter.tags import is_tag_type
from roquet.format.config_files import CONSUMER_FILTERS
from roquet.model.fastjson import WritableJson, dumps
from roquet.model.subscription import SubscriptionData
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = [
    "ConsumerFilter",
    "ConsumerFilterData",
    "ConsumerFilterManager",
    "ConsumerFilters",
    "TopicFilters",
    "compile_expression",
    "filter_members",
]

log = logging.getLogger(__name__)

FILTERS_MAX = 10_000
CHARACTERS_MAX = 16 << 20
"""Limit on the total length of all expressions, in characters."""

CHARACTERS_A_HEARTBEAT_MAX = EXPRESSION_CHARACTERS_MAX
"""Limit on the new expressions of one heartbeat, in characters; parsing them blocks the loop."""

SILENT_MS = 30_000
"""Filters alive at the broker's stop count as having died this long before its start."""


def filter_members(data: ConsumerFilterData) -> WritableJson:
    """Return a filter as upstream prints it."""
    bloom = data.bloom_filter_data
    bits: WritableJson = None
    if bloom is not None:
        bits = {"bitNum": bloom.bit_num, "bitPos": bloom.bit_pos}
    return {
        "bloomFilterData": bits,
        "bornTime": data.born_time_ms,
        "clientVersion": data.client_version,
        "consumerGroup": data.consumer_group,
        "dead": data.is_dead,
        "deadTime": data.dead_time_ms,
        "expression": data.expression,
        "expressionType": data.expression_type,
        "topic": data.topic,
    }


def _decode(text: str) -> ConsumerFilters:
    return decode_table(ConsumerFilters, text)


class ConsumerFilterManager(ConfigManager[ConsumerFilters]):
    """The filters.

    Args:
        config: The broker's settings.
        file: Their file; see :meth:`at`.
        clock: The time.
        latest_store_time_ms: When the latest message was stored; it may be ahead of the clock.

    Attributes:
        bloom: Chooses the bits of filters.
        table: Filters by topic, then by group; read only.

    Raises:
        ConfigError: The bloom filter settings are invalid.
    """

    def __init__(
        self,
        config: BrokerConfig,
        file: ConfigFile[ConsumerFilters],
        clock: Clock,
        *,
        latest_store_time_ms: Callable[[], int],
    ) -> None:
        super().__init__(file, clock)
        self._config = config
        self._latest_store_time_ms = latest_store_time_ms
        self.bloom = BloomFilter(
            error_percent=config.bloom_filter_error_percent,
            expected_count=config.expected_filter_consumers,
        )
        self.table: dict[str, dict[str, ConsumerFilter]] = {}
        self._topics_of: dict[str, set[str]] = {}
        self._count = 0
        self._characters = 0

    @classmethod
    def at(
        cls,
        config: BrokerConfig,
        files: Files,
        clock: Clock,
        *,
        latest_store_time_ms: Callable[[], int],
    ) -> ConsumerFilterManager:
        """Return the filters in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, CONSUMER_FILTERS), files, decode=_decode)
        return cls(config, file, clock, latest_store_time_ms=latest_store_time_ms)

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return a group's filter for a topic; callable from any thread."""
        groups = self.table.get(topic)
        return None if groups is None else groups.get(group)

    def of_topic(self, topic: str) -> Collection[ConsumerFilter]:
        """Return the filters of a topic, including dead ones."""
        return self.table.get(topic, {}).values()

    # -- heartbeats ---------------------------------------------------------------------------

    def register(self, group: str, subscriptions: Iterable[SubscriptionData]) -> None:
        """Apply the subscriptions of a heartbeat; the group's other filters become dead."""
        named: set[str] = set()
        characters_left = CHARACTERS_A_HEARTBEAT_MAX
        for subscription in subscriptions:
            topic, text = subscription.topic, subscription.sub_string
            if topic is None:
                continue
            named.add(topic)
            if not text or is_tag_type(subscription.expression_type):
                continue
            known = self.find(topic, group)
            is_new = known is None or known.data.expression != text
            if is_new and len(text) <= EXPRESSION_CHARACTERS_MAX:  # longer ones are not parsed
                if len(text) > characters_left:
                    log.warning(
                        "Group %s: filter for %s postponed to its next heartbeat", group, topic
                    )
                    continue
                characters_left -= len(text)
            self._register(group, topic, subscription)
        for topic in self._topics_of.get(group, set()) - named:
            self._bury(topic, group)

    def unregister(self, group: str) -> None:
        """Mark a group's filters as dead, as its last client is gone."""
        for topic in self._topics_of.get(group, ()):
            self._bury(topic, group)

    def _register(self, group: str, topic: str, subscription: SubscriptionData) -> None:
        old = self.find(topic, group)
        version = subscription.sub_version
        if old is None:
            self._renew(group, topic, subscription)
            return
        known = old.data
        said = (subscription.sub_string, subscription.expression_type)
        if said == (known.expression, known.expression_type):
            self._revive(old, max(version, known.client_version))
        elif version > known.client_version:
            self._renew(group, topic, subscription)
        else:
            log.info("Group %s already has a newer filter for %s", group, topic)
            if version == known.client_version:
                self._revive(old, version)

    def _renew(self, group: str, topic: str, subscription: SubscriptionData) -> None:
        """Replace a filter, or remove it if the new expression cannot be parsed."""
        self._remove(topic, group)
        text, kind = subscription.sub_string or "", subscription.expression_type
        if self._count >= FILTERS_MAX or self._characters + len(text) > CHARACTERS_MAX:
            log.warning("Group %s: filter for %s refused, there are too many", group, topic)
            return
        try:
            expression = compile_expression(kind, text)
        except (ProtocolError, Sql92Error) as error:
            log.info("Group %s: invalid filter for %s: %.200s", group, topic, error.message)
            return
        now_ms = self._clock.now_ms()
        data = ConsumerFilterData(
            bloom_filter_data=self.bloom.generate(f"{group}#{topic}"),
            born_time_ms=now_ms,
            client_version=subscription.sub_version,
            consumer_group=group,
            expression=text,
            expression_type=kind,
            topic=topic,
        )
        self._add(ConsumerFilter(data, expression, max(now_ms, self._latest_store_time_ms())))
        log.info("Group %s filters %s by %.200s", group, topic, expression.text)

    def _revive(self, old: ConsumerFilter, version: int) -> None:
        data = old.data
        if data.is_dead or data.client_version != version:
            self._replace(old, client_version=version, dead_time_ms=0)

    def _bury(self, topic: str, group: str) -> None:
        known = self.find(topic, group)
        if known is not None and not known.data.is_dead:
            log.info("Group %s no longer filters %s", group, topic)
            # The clock may have been set back since then.
            dead_time_ms = max(self._clock.now_ms(), known.data.born_time_ms)
            self._replace(known, dead_time_ms=dead_time_ms)

    def clean(self) -> None:
        """Remove filters that have been dead for too long."""
        deadline_ms = self._clock.now_ms() - self._config.filter_data_clean_ms
        expired = [
            (topic, group)
            for topic, groups in self.table.items()
            for group, known in groups.items()
            if known.data.is_dead and known.data.dead_time_ms <= deadline_ms
        ]
        for topic, group in expired:
            log.info("Removed the expired filter of group %s for %s", group, topic)
            self._remove(topic, group)

    # -- the table ----------------------------------------------------------------------------

    def _add(self, new: ConsumerFilter) -> None:
        topic, group = new.data.topic, new.data.consumer_group
        self.table.setdefault(topic, {})[group] = new
        self._topics_of.setdefault(group, set()).add(topic)
        self._count += 1
        self._characters += len(new.data.expression)
        self._edits += 1

    def _replace(self, old: ConsumerFilter, **changes: int) -> None:
        data = msgspec.structs.replace(old.data, **changes)
        self.table[data.topic][data.consumer_group] = old._replace(data=data)
        self._edits += 1

    def _remove(self, topic: str, group: str) -> None:
        groups = self.table.get(topic, {})
        known = groups.pop(group, None)
        if known is None:
            return
        if not groups:
            del self.table[topic]
        topics = self._topics_of[group]
        topics.discard(topic)
        if not topics:
            del self._topics_of[group]
        self._count -= 1
        self._characters -= len(known.data.expression)
        self._edits += 1

    # -- the file -----------------------------------------------------------------------------

    def begin_persist(self) -> Callable[[], None] | None:
        """Remove expired filters, then take a snapshot of the table."""
        self.clean()
        return super().begin_persist()

    def _take(self, loaded: ConsumerFilters) -> bool:
        found = [
            msgspec.structs.replace(data, topic=topic, consumer_group=group)
            for topic, filters in loaded.filter_data_by_topic.items()
            for group, data in filters.group_filter_data.items()
        ]
        if not all(self.bloom.is_valid(data.bloom_filter_data) for data in found):
            log.info("%s has other bloom filter settings and is ignored", CONSUMER_FILTERS)
            return True
        now_ms = self._clock.now_ms()
        judged_from_ms = max(now_ms, self._latest_store_time_ms())
        for data in found:
            try:
                expression = compile_expression(data.expression_type, data.expression)
            except (ProtocolError, Sql92Error) as error:
                log.warning("%s: %.200s", CONSUMER_FILTERS, error.message)
                continue
            dead_time_ms = data.dead_time_ms
            if not data.is_dead:
                dead_time_ms = max(now_ms - SILENT_MS, data.born_time_ms)
            dead = msgspec.structs.replace(data, dead_time_ms=dead_time_ms)
            self._add(ConsumerFilter(dead, expression, judged_from_ms))
        self.clean()
        return self._snapshot() != loaded

    def _snapshot(self) -> ConsumerFilters:
        return ConsumerFilters(
            filter_data_by_topic={
                topic: TopicFilters(
                    group_filter_data={group: known.data for group, known in groups.items()},
                    topic=topic,
                )
                for topic, groups in self.table.items()
            }
        )

    def _pieces(self, snapshot: ConsumerFilters) -> Iterable[bytes]:
        topics: dict[str, WritableJson] = {}
        for topic, filters in snapshot.filter_data_by_topic.items():
            groups = {
                group: filter_members(data) for group, data in filters.group_filter_data.items()
            }
            topics[topic] = {"groupFilterData": groups, "topic": topic}
        return (dumps({"filterDataByTopic": topics}, pretty=True).encode(),)
