"""How far behind and how busy a store is.

Owns nothing but the answers: every number is read off the parts at the moment of the question.
"""

from __future__ import annotations

from pathlib import Path

from roquet.format.consume_queue import CqUnit
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.store.commit_log import CommitLog
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import Dispatcher
from roquet.store.reader import MessageReader
from roquet.store.running_flags import RunningFlag, RunningFlags
from roquet.store.stats import StoreStatsService

_INT_MAX = 0x7FFFFFFF


class StoreHealth:
    """The part of a store that tells how it is; a subclass makes the parts."""

    root: Path
    config: MessageStoreConfig
    clock: Clock
    flags: RunningFlags
    stats: StoreStatsService
    commit_log: CommitLog
    queues: ConsumeQueueStore
    dispatcher: Dispatcher
    reader: MessageReader
    _files: Files
    _append_began_ns: int
    _append_took_ns: tuple[int, int]

    @property
    def is_shut_down(self) -> bool:
        """Whether the store was shut down."""
        return self.flags.has(RunningFlag.SHUT_DOWN)

    @property
    def flushed_offset(self) -> int:
        """End of what is on disk."""
        return self.commit_log.flushed_offset

    def remaining_to_flush_bytes(self) -> int:
        """How much of the readable log is not on disk."""
        return max(self.commit_log.max_offset - self.commit_log.flushed_offset, 0)

    def remaining_to_commit_bytes(self) -> int:
        """How much of the log is in transient buffers only."""
        return self.commit_log.wrote_offset - self.commit_log.max_offset

    def remaining_transient_buffers(self) -> int:
        """How many transient buffers are free; the largest int when none are used."""
        pool = self.commit_log.pool
        return _INT_MAX if pool is None else pool.available

    def is_transient_store_pool_deficient(self) -> bool:
        """Whether all transient buffers are in use."""
        return self.remaining_transient_buffers() == 0

    def dispatch_behind_bytes(self) -> int:
        """How much of the log is not dispatched."""
        return self.dispatcher.behind_bytes

    def dispatch_behind_ms(self) -> int:
        """How much older than the newest record the last dispatched one is."""
        if self.dispatcher.behind_bytes == 0:
            return 0
        return max(self.commit_log.store_timestamp_ms - self.dispatcher.store_timestamp_ms, 0)

    def lock_time_ms(self) -> int:
        """How long the append under way has taken, 0 when none is."""
        began_ns = self._append_began_ns
        return (self.clock.monotonic_ns() - began_ns) // 1_000_000 if began_ns else 0

    def is_os_page_cache_busy(self) -> bool:
        """Whether appends take longer than ``osPageCacheBusyTimeOutMills``.

        The loop that would ask is the one that appends, so a slow append counts for as long again
        after it has ended.
        """
        limit_ms = self.config.os_page_cache_busy_timeout_ms
        limit_ns = limit_ms * 1_000_000
        now_ns = self.clock.monotonic_ns()
        began_ns = self._append_began_ns
        if began_ns and (now_ns - began_ns) // 1_000_000 > limit_ms:
            return True
        ended_ns, took_ns = self._append_took_ns
        return took_ns > limit_ns and now_ns - ended_ns < limit_ns

    def is_in_disk(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is there but too far from the end to be in memory."""
        unit = self._unit(topic, queue_id, queue_offset)
        return unit is not None and not self.reader.is_in_memory(unit.physical_offset)

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int, batch: int = 1) -> bool:
        """Whether the pages of messages are in memory now."""
        first = self._unit(topic, queue_id, queue_offset)
        if first is None:
            return False
        last = self._unit(topic, queue_id, queue_offset + batch - 1) if batch > 1 else None
        end_offset = max(first.end_offset, last.end_offset if last is not None else 0)
        segment = self.commit_log.queue.find(first.physical_offset)
        if segment is None or end_offset > segment.start_offset + segment.read_limit:
            return False
        position = first.physical_offset - segment.start_offset
        return segment.is_resident(position, end_offset - first.physical_offset)

    def is_in_store(self, topic: str, queue_id: int, queue_offset: int) -> bool:
        """Whether a message is there."""
        unit = self._unit(topic, queue_id, queue_offset)
        if unit is None:
            return False
        return self.commit_log.slice(unit.physical_offset, unit.size_bytes) is not None

    def runtime_info(self) -> dict[str, str]:
        """Counters and marks under upstream's names."""
        info = self.stats.runtime_info()
        log_root = self.commit_log.queue.root
        ratio = repr(round(self._files.disk_usage(self.root).used_ratio, 2))
        info[f"commitLogDiskRatio_{log_root}"] = ratio
        info["commitLogDiskRatio"] = ratio
        info["consumeQueueDiskRatio"] = ratio
        info["commitLogMinOffset"] = str(self.commit_log.min_offset)
        info["commitLogMaxOffset"] = str(self.commit_log.max_offset)
        return info

    def running_data_info(self) -> str:
        """The counters as text."""
        return str(self.stats)

    def _unit(self, topic: str, queue_id: int, queue_offset: int) -> CqUnit | None:
        """The entry of a message; filler is none."""
        queue = self.queues.find(topic, queue_id)
        unit = queue.unit_at(queue_offset) if queue is not None else None
        return None if unit is None or unit.is_filler else unit
