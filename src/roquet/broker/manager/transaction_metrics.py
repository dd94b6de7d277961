"""How many half messages of each topic wait for the end of their transaction.

Upstream's TransactionMetrics, kept in ``config/transactionMetrics`` in upstream's layout, on one
line. The counts are for people who look at the broker; nothing depends on them, and after a crash
they may be off by what happened since the last write.
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
"""Topics beyond these are not counted."""

_FILE_NAME = "transactionMetrics"


class Metric(Struct, frozen=True, kw_only=True):
    """The half messages of one topic."""

    count: int = 0
    timestamp_ms: int = field(default=0, name="timeStamp")


class TransactionMetricsSerializeWrapper(Struct, rename="camel", kw_only=True):
    """What the file holds."""

    data_version: DataVersion | None = None
    transaction_count: dict[str, Metric] = field(default_factory=dict)


def _decode(text: str) -> TransactionMetricsSerializeWrapper:
    return decode_table(TransactionMetricsSerializeWrapper, text)


class TransactionMetrics(ConfigManager[TransactionMetricsSerializeWrapper]):
    """The counts.

    Args:
        file: Where they are kept; see :meth:`at`.
        clock: The time.

    Attributes:
        table: Counts by topic; read only.
    """

    def __init__(self, file: ConfigFile[TransactionMetricsSerializeWrapper], clock: Clock) -> None:
        super().__init__(file, clock)
        self.table: dict[str, Metric] = {}

    @classmethod
    def at(cls, config: BrokerConfig, files: Files, clock: Clock) -> TransactionMetrics:
        """The counts, kept in the store of ``config``."""
        file = ConfigFile(config_path(config.store_root, _FILE_NAME), files, decode=_decode)
        return cls(file, clock)

    def add(self, topic: str, half_messages: int) -> int:
        """Count half messages that came, or with a minus sign that went; how many there are."""
        known = self.table.get(topic)
        if known is None and len(self.table) >= TOPICS_MAX:
            return 0
        count = half_messages + (0 if known is None else known.count)
        self.table[topic] = Metric(count=count, timestamp_ms=self._clock.now_ms())
        self._bump()
        return count

    def count(self, topic: str) -> int:
        """How many half messages of a topic wait."""
        known = self.table.get(topic)
        return 0 if known is None else known.count

    def forget(self, topics: Iterable[str]) -> None:
        """Drop the counts of topics that are gone."""
        for topic in topics:
            if topic in self.table and not topic.startswith(SYSTEM_TOPIC_PREFIX):
                del self.table[topic]
                self._edits += 1

    def _take(self, loaded: TransactionMetricsSerializeWrapper) -> bool:
        self.table.update(loaded.transaction_count)
        if loaded.data_version is not None:
            self.data_version = loaded.data_version
        return False

    def _picture(self) -> TransactionMetricsSerializeWrapper:
        return TransactionMetricsSerializeWrapper(
            data_version=msgspec.structs.replace(self.data_version),
            transaction_count=dict(self.table),
        )

    def _text(self, picture: TransactionMetricsSerializeWrapper) -> str:
        return dumps(msgspec.to_builtins(picture))
