"""What a slave does on the connection to its master, without I/O.

Owns where the slave is on one connection. It is fed with received bytes and the time, appends to
the log it is given, and says what to report.

The protocol carries neither epochs nor checksums: a master that has lost the end of its log and has
gone on, or one that is another broker altogether, would be followed without anybody noticing that
two histories were joined. Therefore a slave asks for the log from a little before its own end, and
compares what it gets with what it has. This needs nothing from the master, Java's or ours.

.. code-block:: text

    own log     ─────────────────────┬──overlap──┤ end
    master      ─────────────────────┴───────────┼──────────►
                                  request     append from here

=========================== ===================================================================
bytes of the overlap        compared; the first difference ends the connection
bytes after it              appended, then reported
a heartbeat in the overlap  the master's log ends there: it is shorter than the slave's
any other offset            ends the connection, as upstream
nothing for long            the connection is given up after haHousekeepingInterval
=========================== ===================================================================

Invariants: nothing is appended before the whole overlap was compared; a report never covers what
was neither compared nor appended on this connection.
"""

from __future__ import annotations

from typing import Protocol

from roquet.errors import StoreError
from roquet.format.ha_frames import TransferDecoder, encode_report
from roquet.ha.flow import FlowMonitor
from roquet.store.config import MessageStoreConfig

__all__ = ["OVERLAP_BYTES", "ReplicaLog", "SlaveSide", "overlap_start"]

OVERLAP_BYTES = 64 << 10
"""How much is compared. Every record in it tells its own offset and time."""


_IDLE_NS = 1_500_000_000
"""A master whose flow is limited sends empty frames, but not for longer than a second."""


class ReplicaLog(Protocol):
    """The slave's log."""

    @property
    def safe_offset(self) -> int:
        """What may be reported: flushed with SYNC_FLUSH, appended otherwise."""
        ...

    def append(self, physical_offset: int, data: memoryview) -> None:
        """Append bytes at the end; raises :class:`~roquet.errors.StoreError`, ``OSError``."""
        ...


def overlap_start(min_offset: int, end_offset: int) -> int:
    """Where the overlap of a log begins; at its end if it is empty.

    Never 0 unless the log is empty: a master takes 0 for an empty slave.
    """
    if min_offset == end_offset:
        return end_offset
    return max(min_offset, end_offset - OVERLAP_BYTES, 1)


class SlaveSide:
    """One connection to a master.

    Args:
        log: Where to append.
        end_offset: Where the log ends; 0 if it is empty and may begin anywhere.
        overlap: The last bytes of the log, from :func:`overlap_start` on.
        config: The settings.
        now_ns: The monotonic time.

    Attributes:
        flow: What was received.
    """

    def __init__(
        self,
        log: ReplicaLog,
        end_offset: int,
        overlap: bytes,
        config: MessageStoreConfig,
        now_ns: int,
    ) -> None:
        self._log = log
        self._end = end_offset
        self._overlap = memoryview(overlap)
        self._position = end_offset - len(overlap)
        self._may_begin_anywhere = end_offset == 0
        self._heartbeat_ns = config.ha_heartbeat_interval_ms * 1_000_000
        self._housekeeping_ns = config.ha_housekeeping_interval_ms * 1_000_000
        self._decoder = TransferDecoder()
        self._last_read_ns = now_ns
        self._last_part_ns = now_ns
        self._last_report_ns = now_ns
        self._reported = -1
        self.flow = FlowMonitor()

    @property
    def is_compared(self) -> bool:
        """Whether the logs are known to agree, so that the slave follows its master."""
        return not self._overlap

    def begin(self, now_ns: int) -> bytes:
        """The first report, which asks for the log."""
        return self._report(self._position, now_ns)

    def received(self, data: bytes, now_ns: int) -> bytes:
        """Compare or append what the master sent; return the report to send.

        Raises:
            ProtocolError: This is no master's frame.
            StoreError: What it sends does not continue this log, or the store refused it.
            OSError: The store failed.
        """
        self._last_read_ns = now_ns
        self.flow.add(len(data), now_ns)
        for offset, part in self._decoder.feed(data):
            if self._may_begin_anywhere:
                self._may_begin_anywhere = False
                self._position = self._end = offset
            if offset != self._position:
                raise StoreError(
                    "the master does not send what comes next",
                    detail=f"it sends offset {offset}, next is {self._position}",
                    hint="connecting again usually helps; otherwise check haMasterAddress",
                )
            if part:
                self._last_part_ns = now_ns
                self._take(part)
            elif self._overlap and now_ns - self._last_part_ns > _IDLE_NS:
                self._refuse_shorter_master()
        return self.reported(now_ns)

    def _take(self, part: memoryview) -> None:
        compared = min(len(part), len(self._overlap))
        if compared:
            if part[:compared] != self._overlap[:compared]:
                self._refuse_other_bytes(part[:compared])
            self._overlap = self._overlap[compared:]
            self._position += compared
            part = part[compared:]
        if part:
            self._log.append(self._position, part)
            self._position += len(part)

    def _refuse_other_bytes(self, part: memoryview) -> None:
        pairs = zip(part, self._overlap, strict=False)
        same = next(number for number, (ours, theirs) in enumerate(pairs) if ours != theirs)
        raise StoreError(
            "this slave's log differs from its master's",
            detail=f"the first difference found is at {self._position + same}, "
            f"the slave's log ends at {self._end}",
            hint="the two were masters apart from each other, or the master has lost the end of "
            "its log: decide which history counts, and delete the other store",
        )

    def _refuse_shorter_master(self) -> None:
        raise StoreError(
            "this slave's log is longer than its master's",
            detail=f"the slave's ends at {self._end}, the master's at {self._position} or before",
            hint="the master has lost the end of its log: make the slave the master, or delete the "
            "slave's store to copy the master's",
        )

    def reported(self, now_ns: int) -> bytes:
        """The report to send if more of the log is safe than was reported."""
        safe = min(self._position, self._log.safe_offset)
        return self._report(safe, now_ns) if safe > self._reported else b""

    def tick(self, now_ns: int) -> bytes:
        """Return a report if it is time for one.

        Raises:
            TimeoutError: The master was silent for too long.
        """
        silent_ns = now_ns - self._last_read_ns
        if silent_ns > self._housekeeping_ns:
            raise TimeoutError(f"nothing from the master for {silent_ns / 1e9:.1f} s")
        if now_ns - self._last_report_ns < self._heartbeat_ns:
            return b""
        return self._report(self._reported, now_ns)

    def _report(self, offset: int, now_ns: int) -> bytes:
        self._reported = offset
        self._last_report_ns = now_ns
        return encode_report(offset)
