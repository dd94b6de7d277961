"""What a master does on the connection of one slave, without I/O.

Owns where the transfer is and what the slave has acknowledged. It is fed with received bytes and
the time, and says what to send:

=========================== ===================================================================
first report                where to begin: at the reported offset, or, if that is 0, at the
                            beginning of the master's last segment, as upstream
later reports               acknowledge the log up to there
log not yet sent            frames of at most haTransferBatchSize, within the flow limit
nothing to send             a heartbeat every haSendHeartbeatInterval
no report for long          the connection is given up after haHousekeepingInterval
=========================== ===================================================================

Invariants: an acknowledged offset is never beyond what was sent on this connection, and releases no
message that ends before the transfer began: an empty slave does not have it, and that of any other
was not compared. A slave whose log is longer than the master's, or so old that the master has
deleted what it needs, is refused before anything is sent.
"""

from __future__ import annotations

from typing import Protocol

from roquet.errors import ProtocolError, StoreError
from roquet.format.ha_frames import ReportDecoder, encode_transfer_header
from roquet.ha.flow import FlowMonitor
from roquet.store.config import MessageStoreConfig

__all__ = ["MasterLog", "MasterSide"]

Buffer = bytes | memoryview


class MasterLog(Protocol):
    """The master's log, as far as replication reads it."""

    @property
    def min_offset(self) -> int:
        """Its oldest byte."""
        ...

    @property
    def max_offset(self) -> int:
        """The end of what may be sent."""
        ...

    def data_from(self, physical_offset: int, size_bytes: int) -> memoryview | None:
        """Bytes from an offset to at most the end of its segment; ``None`` at the end."""
        ...


class MasterSide:
    """One slave's connection.

    Args:
        log: The master's log.
        config: The settings.
        now_ns: The monotonic time.

    Attributes:
        begin_offset: Where the transfer began; -1 before the first report.
        next_offset: What is sent next; -1 before the first report.
        ack_offset: The end of the slave's log by its last report; -1 before the first.
        flow: What was sent.
    """

    def __init__(self, log: MasterLog, config: MessageStoreConfig, now_ns: int) -> None:
        self._log = log
        self._segment_bytes = config.commit_log_file_bytes
        self._batch_bytes = config.ha_transfer_batch_bytes
        self._heartbeat_ns = config.ha_heartbeat_interval_ms * 1_000_000
        self._housekeeping_ns = config.ha_housekeeping_interval_ms * 1_000_000
        self._decoder = ReportDecoder()
        self._last_read_ns = now_ns
        self._last_write_ns = now_ns
        self.flow = FlowMonitor(config.ha_bytes_per_second_max if config.ha_flow_control else None)
        self.begin_offset = -1
        self.next_offset = -1
        self.ack_offset = -1

    @property
    def has_more(self) -> bool:
        """Whether there is something to send."""
        return 0 <= self.next_offset < self._log.max_offset

    def confirmed_offset(self, oldest_end_offset: int) -> int:
        """What the slave has acknowledged of messages the oldest of which ends at an offset.

        -1 if the transfer began after that one, which this slave may therefore lack.
        """
        return self.ack_offset if oldest_end_offset > self.begin_offset else -1

    def received(self, data: bytes, now_ns: int) -> None:
        """Take reports.

        Raises:
            ProtocolError: This is no slave's report.
            StoreError: The slave's log does not fit this one.
        """
        self._last_read_ns = now_ns
        for offset in self._decoder.feed(data):
            if self.next_offset < 0:
                self.begin_offset = self.next_offset = self._begin_at(offset)
            elif offset > self.next_offset:
                raise ProtocolError(
                    "a slave acknowledges what it was never sent",
                    detail=f"it reports {offset}, sent was the log up to {self.next_offset}",
                )
            self.ack_offset = offset

    def _begin_at(self, offset: int) -> int:
        first, end = self._log.min_offset, self._log.max_offset
        if offset == 0:
            return end - end % self._segment_bytes
        if offset > end:
            raise StoreError(
                "a slave's log is longer than this master's",
                detail=f"it ends at {offset}, the master's at {end}",
                hint="the master has lost the end of its log: make the slave the master, or delete "
                "the slave's store to copy the master's",
            )
        if offset < first:
            self._refuse_deleted(offset)
        return offset

    def _refuse_deleted(self, offset: int) -> None:
        raise StoreError(
            "a slave needs what this master has deleted",
            detail=f"it continues at {offset}, the master's log begins at {self._log.min_offset}",
            hint="delete the slave's store: an empty slave begins with the newest segment; or "
            "copy the master's store while it is stopped",
        )

    def frames(self, now_ns: int, budget_bytes: int) -> list[Buffer]:
        """Headers and parts of the log to send now, about ``budget_bytes`` at most.

        Raises:
            StoreError: What comes next was deleted.
        """
        buffers: list[Buffer] = []
        while budget_bytes > 0 and self.has_more:
            size_bytes = self._batch_bytes
            allowance = self.flow.allowance(now_ns)
            if allowance is not None:
                size_bytes = min(size_bytes, allowance)
            part = self._log.data_from(self.next_offset, size_bytes) if size_bytes else None
            if not part:
                if self.next_offset < self._log.min_offset:
                    self._refuse_deleted(self.next_offset)
                break
            buffers.append(encode_transfer_header(self.next_offset, len(part)))
            buffers.append(part)
            self.flow.add(len(part), now_ns)
            self.next_offset += len(part)
            budget_bytes -= len(part)
        if buffers:
            self._last_write_ns = now_ns
        return buffers

    def tick(self, now_ns: int) -> bytes:
        """Return a heartbeat if it is time for one.

        Raises:
            TimeoutError: The slave was silent for too long.
        """
        silent_ns = now_ns - self._last_read_ns
        if silent_ns > self._housekeeping_ns:
            raise TimeoutError(f"no report for {silent_ns / 1e9:.1f} s")
        if self.next_offset < 0 or now_ns - self._last_write_ns < self._heartbeat_ns:
            return b""
        self._last_write_ns = now_ns
        return encode_transfer_header(self.next_offset, 0)
