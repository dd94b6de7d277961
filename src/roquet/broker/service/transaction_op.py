"""Ended transactions: the op messages that say so, and what is known of half messages meanwhile.

Upstream's deletePrepareMessage with its TransactionalOpBatchService. A half message is never
deleted: that its transaction is over stands in an op message on RMQ_SYS_TRANS_OP_HALF_TOPIC, whose
body is the list of queue offsets of half messages (``7,9,10,``) and whose tag is ``d``. This module
owns the offsets that wait for the next op message, and which copy of a half message is the last.

Invariants:

* The offsets of one op message are collected for some seconds, or up to some thousand bytes. What
  the store refuses is kept and tried again; upstream logs and forgets it.
* Until an op message is stored, :attr:`TransactionOps.pending` has its offsets, so that no check
  asks about what is over.
* The check stores half messages anew. An end that names the first place of a message counts for
  its last copy too, so that its producer is not asked again and does not commit twice.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from roquet.broker.config import BrokerConfig
from roquet.broker.service.timers import Handle, Timers
from roquet.model.host import Host
from roquet.model.message import BrokerMessage
from roquet.model.topic import TRANS_OP_HALF_TOPIC
from roquet.remoting.endpoint import LogLimiter
from roquet.runtime.clock import Clock
from roquet.store.message_store import MessageStore
from roquet.store.results import PutMessageResult

__all__ = ["OFFSET_SEPARATOR", "REMOVE_TAG", "HalfCopies", "TransactionOps", "TransactionSettings"]

log = logging.getLogger(__name__)

REMOVE_TAG = "d"
OFFSET_SEPARATOR = ","
RETRY_MS = 100
COPIES_MAX = 1_000_000
"""Half messages whose copies are kept in mind; of those beyond, ends are taken by their word."""

_PROPERTIES = b"WAIT\x01true\x02TAGS\x01d\x02"


class TransactionSettings(NamedTuple):
    """When transactions are checked, with upstream's defaults.

    Attributes:
        timeout_ms: How old a half message must be before its producer is asked.
        check_max: How often it is asked before the message is put aside.
        check_interval_ms: From the end of one round to the next.
        op_message_bytes_max: An op message is written when it is so long.
        op_batch_interval_ms: An op message is written at the latest after this.
    """

    timeout_ms: int = 6_000
    check_max: int = 15
    check_interval_ms: int = 30_000
    op_message_bytes_max: int = 4_096
    op_batch_interval_ms: int = 3_000

    @classmethod
    def of(cls, config: BrokerConfig) -> TransactionSettings:
        """Those of a broker."""
        return cls(
            timeout_ms=config.transaction_timeout_ms,
            check_max=config.transaction_check_max,
            check_interval_ms=config.transaction_check_interval_ms,
            op_message_bytes_max=config.transaction_op_message_bytes_max,
            op_batch_interval_ms=config.transaction_op_batch_interval_ms,
        )


class HalfCopies:
    """Which copy of a half message is the last one; only what happened in this process.

    Example:
        >>> copies = HalfCopies()
        >>> copies.moved(3, 10)
        >>> copies.moved(10, 25)
        >>> copies.last_copy(3), copies.last_copy(25)
        (25, None)
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}
        self._first: dict[int, int] = {}

    def moved(self, old_offset: int, new_offset: int) -> None:
        """A half message was stored anew."""
        first = self._first.pop(old_offset, old_offset)
        if first not in self._last and len(self._last) >= COPIES_MAX:
            return
        self._last[first] = new_offset
        self._first[new_offset] = first

    def last_copy(self, first_offset: int) -> int | None:
        """The last copy of what was first stored at an offset, if there is a copy."""
        return self._last.get(first_offset)

    def forget(self, queue_offset: int) -> None:
        """The transaction of a half message is over; the first place and the last both name it."""
        last = self._last.pop(queue_offset, queue_offset)
        first = self._first.pop(last, None)
        if first is not None:
            self._last.pop(first, None)

    def __len__(self) -> int:
        return len(self._last)


class TransactionOps:
    """Writes op messages.

    Args:
        settings: How long they wait.
        store: Where they go.
        clock: The time.
        timers: The event loop.
        store_host: The broker's address in records.

    Attributes:
        pending: Queue offsets of half messages whose end no stored op message names yet.
        copies: Which copy of a half message is the last.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        *,
        store: MessageStore,
        clock: Clock,
        timers: Timers,
        store_host: Host,
    ) -> None:
        self.pending: dict[int, None] = {}
        self.copies = HalfCopies()
        self._settings = settings
        self._store = store
        self._clock = clock
        self._timers = timers
        self._store_host = store_host
        self._pending_bytes = 0
        self._timer: Handle | None = None
        self._is_due = False
        self._log_limiter = LogLimiter(clock)

    def ended(self, queue_offset: int) -> None:
        """The transaction of a half message is over, and what follows from that is in the log."""
        copy = self.copies.last_copy(queue_offset)
        self.copies.forget(queue_offset)
        for offset in (queue_offset,) if copy is None else (queue_offset, copy):
            if offset not in self.pending:
                self.pending[offset] = None
                self._pending_bytes += len(str(offset)) + len(OFFSET_SEPARATOR)
        if self._pending_bytes > self._settings.op_message_bytes_max and not self._is_due:
            self._is_due = True
            self._schedule(0)
        elif self._timer is None:
            self._schedule(self._settings.op_batch_interval_ms)

    def flush(self) -> bool:
        """Write what waits, now; whether nothing waits any more."""
        self._cancel()
        while self.pending:
            if not self._write_one():
                self._schedule(RETRY_MS)
                return False
        return True

    def stop(self) -> None:
        """Write what waits, if possible, and nothing later."""
        self.flush()
        self._cancel()

    def _schedule(self, delay_ms: int) -> None:
        self._cancel()
        if delay_ms:
            self._timer = self._timers.call_later(delay_ms, self._turn)
        else:
            self._timer = self._timers.call_soon(self._turn)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        """Write one op message; what is left is due at once, or after the interval."""
        self._timer = None
        self._is_due = False
        if not self._write_one():
            self._schedule(RETRY_MS)
        elif self.pending:
            self._is_due = self._pending_bytes > self._settings.op_message_bytes_max
            self._schedule(0 if self._is_due else self._settings.op_batch_interval_ms)

    def _write_one(self) -> bool:
        offsets: list[int] = []
        parts: list[str] = []
        length = 0
        for offset in self.pending:
            if length >= self._settings.op_message_bytes_max:
                break
            offsets.append(offset)
            parts.append(f"{offset}{OFFSET_SEPARATOR}")
            length += len(parts[-1])
        results: list[PutMessageResult] = []
        self._store.submit(self._op_message("".join(parts).encode()), results.append)
        self._store.finish_burst()
        if results and results[0].append is None:
            more = self._log_limiter.allow("refused")
            if more is not None:
                log.warning("an op message waits: %s%s", results[0].status.value, more)
            return False
        for offset in offsets:
            del self.pending[offset]
        self._pending_bytes -= length
        return True

    def _op_message(self, body: bytes) -> BrokerMessage:
        return BrokerMessage(
            topic=TRANS_OP_HALF_TOPIC,
            queue_id=0,
            body=body,
            properties=_PROPERTIES,
            born_timestamp_ms=self._clock.now_ms(),
            born_host=self._store_host,
            store_host=self._store_host,
            wait_store_ok=False,
        )
