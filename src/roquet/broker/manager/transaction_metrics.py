"""Counts the pending half messages of each topic.

Upstream's TransactionMetrics, kept in ``config/transactionMetrics`` in upstream's layout, on one
line. The counts are for operators; nothing depends on them, and after a crash they may be off by
the changes since the last write.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct, field

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.config_manager import ConfigManager, config_path, decode_table
from roquet.model.data_version import DataVersion
from roquet.model.fastjson import dumps
from roquet.model.topic import SYSTEM_TOPIC_PREFIX
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = ["Metric", "TransactionMetrics", "TransactionMetricsSerializeWrapper"]

TOPICS_MAX = 100_000
"""Further topics are not counted."""

_FILE_NAME = "transactionMetrics"


class Metric(Struct, frozen=True, kw_only=True):
    """The half messages of one topic."""

    count: int = 0
    timestamp_ms: int = field(default=0, name="timeStamp")


class TransactionMetricsSerializeWrapper(Struct, rename="camel", kw_only=True):
    """The content of the file."""

    data_version: DataVersion | None = None
    transaction_count: dict[str, Metric] = field(default_factory=dict)


def _decode(text: str) -> TransactionMetricsSerializeWrapper:
    return decode_table(TransactionMetricsSerializeWrapper, text)


class TransactionMetrics(ConfigManager[TransactionMetricsSerializeWrapper]):
    """The counts.

    Args:
        file: Their file; see :meth:`at`.
        clock: The time.

    Attributes:
        table: Counts by topic; read only.
    """

    def __init__(self, file: ConfigFile[TransactionMetricsSerializeWrapper], clock: Clock) -> None:
        super().__init__(file, clock)
        self.table: dict[str, Metric] = {}

    @classmethod
    def at(cls, config: BrokerConfig, files: Files, clock: Clock) -> TransactionMetrics:
        """Return the counts in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, _FILE_NAME), files, decode=_decode)
        return cls(file, clock)

    def add(self, topic: str, half_messages: int) -> int:
        """Add to a topic's count; negative for ended ones. Return the new count."""
        if topic not in self.table and len(self.table) >= TOPICS_MAX:
            return 0
        count = self.count(topic) + half_messages
        self.table[topic] = Metric(count=count, timestamp_ms=self._clock.now_ms())
        self._bump()
        return count

    def count(self, topic: str) -> int:
        """Return how many half messages of a topic are pending."""
        known = self.table.get(topic)
        return 0 if known is None else known.count

    def forget(self, topics: Iterable[str]) -> None:
        """Drop the counts of deleted topics."""
        for topic in topics:
            if topic in self.table and not topic.startswith(SYSTEM_TOPIC_PREFIX):
                del self.table[topic]
                self._edits += 1

    def _take(self, loaded: TransactionMetricsSerializeWrapper) -> bool:
        self.table.update(loaded.transaction_count)
        if loaded.data_version is not None:
            self.data_version = loaded.data_version
        return False

    def _snapshot(self) -> TransactionMetricsSerializeWrapper:
        return TransactionMetricsSerializeWrapper(
            data_version=msgspec.structs.replace(self.data_version),
            transaction_count=dict(self.table),
        )

    def _pieces(self, snapshot: TransactionMetricsSerializeWrapper) -> Iterable[bytes]:
        return (dumps(msgspec.to_builtins(snapshot)).encode(),)
