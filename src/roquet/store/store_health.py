"""How far behind and how busy a store is.

Owns no state: every number is read from the components on request.
"""

from __future__ import annotations

from roquet.runtime.open_files import DESCRIPTORS_A_MAPPING
from roquet.store.allocate import SEGMENTS_AHEAD
from roquet.store.running_flags import RunningFlags
from roquet.store.store_components import StoreComponents

_INT_MAX = 0x7FFFFFFF


class StoreHealth:
    """The health of one store."""

    def __init__(self, components: StoreComponents) -> None:
        """Report on ``components``."""
        self._components = components
        self._log = components.commit_log

    @property
    def flags(self) -> RunningFlags:
        """What the store may do at the moment."""
        return self._components.flags

    @property
    def flushed_offset(self) -> int:
        """End of what is on disk."""
        return self._log.flushed_offset

    def remaining_to_flush_bytes(self) -> int:
        """How much of the readable log is not on disk."""
        return max(self._log.max_offset - self._log.flushed_offset, 0)

    def remaining_to_commit_bytes(self) -> int:
        """How much of the log is only in transient buffers."""
        return self._log.wrote_offset - self._log.max_offset

    def remaining_transient_buffers(self) -> int:
        """How many transient buffers are free; the largest int when none are used."""
        pool = self._log.pool
        return _INT_MAX if pool is None else pool.available

    def is_transient_store_pool_deficient(self) -> bool:
        """Whether all transient buffers are in use."""
        pool = self._log.pool
        return pool is not None and pool.available == 0

    def dispatch_behind_bytes(self) -> int:
        """How much of the log is not dispatched."""
        return self._components.dispatcher.behind_bytes

    def lock_time_ms(self) -> int:
        """How long the current append has taken, 0 if there is none."""
        return self._components.timing.lock_time_ms()

    def is_os_page_cache_busy(self) -> bool:
        """Whether appends take longer than ``osPageCacheBusyTimeOutMills``."""
        return self._components.timing.is_os_page_cache_busy()

    def is_in_memory(self, topic: str, queue_id: int, queue_offset: int, batch: int = 1) -> bool:
        """Whether the pages of messages are in memory now."""
        first = self._components.unit(topic, queue_id, queue_offset)
        if first is None:
            return False
        last = (
            self._components.unit(topic, queue_id, queue_offset + batch - 1) if batch > 1 else None
        )
        end_offset = max(first.end_offset, last.end_offset if last is not None else 0)
        segment = self._log.queue.find(first.physical_offset)
        if segment is None or end_offset > segment.start_offset + segment.read_limit:
            return False
        position = first.physical_offset - segment.start_offset
        return segment.is_resident(position, end_offset - first.physical_offset)

    def open_files_max(self) -> int:
        """How many descriptors the store may need, including files allocated ahead."""
        mapped = len(self._log.queue.segments) + SEGMENTS_AHEAD
        if self._components.index is not None:
            mapped += self._components.index.file_count + 1
        return self._components.queues.open_files_max + mapped * DESCRIPTORS_A_MAPPING

    def runtime_info(self) -> dict[str, str]:
        """Counters and marks under upstream's names."""
        info = self._components.stats.runtime_info()
        log_root = self._log.queue.root
        ratio = repr(round(self._components.files.disk_usage(self._components.root).used_ratio, 2))
        info[f"commitLogDiskRatio_{log_root}"] = ratio
        info["commitLogDiskRatio"] = ratio
        info["consumeQueueDiskRatio"] = ratio
        info["commitLogMinOffset"] = str(self._log.min_offset)
        info["commitLogMaxOffset"] = str(self._log.max_offset)
        return info
