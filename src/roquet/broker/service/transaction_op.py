"""Ended transactions: their op messages, and the state of half messages until those are written.

Upstream's deletePrepareMessage with its TransactionalOpBatchService. A half message is never
deleted: the end of its transaction is recorded in an op message on RMQ_SYS_TRANS_OP_HALF_TOPIC,
whose body is the list of queue offsets of half messages (``7,9,10,``) and whose tag is ``d``. This
module owns the offsets that wait for the next op message, and which copy of a half message is the
last.

Invariants:

* The offsets of one op message are collected for some seconds, or up to some thousand bytes. What
  the store refuses is kept and retried; upstream logs and drops it.
* Until an op message is stored, :attr:`TransactionOps.pending` has its offsets, so that ended
  transactions are not checked.
* The check stores half messages again. An end that names the first offset of a message also
  applies to its last copy, so that its producer is not asked again and does not commit twice.
"""

from __future__ import annotations

import logging

from roquet.broker.components import BrokerComponents
from roquet.broker.service.timers import TimerHandle
from roquet.model.message import BrokerMessage
from roquet.model.topic import TRANS_OP_HALF_TOPIC
from roquet.remoting.endpoint import LogLimiter
from roquet.store.results import PutMessageResult

__all__ = ["OFFSET_SEPARATOR", "REMOVE_TAG", "HalfCopies", "TransactionOps"]

log = logging.getLogger(__name__)

REMOVE_TAG = "d"
OFFSET_SEPARATOR = ","
RETRY_MS = 100
COPIES_MAX = 1_000_000
"""Half messages whose copies are tracked; ends of further ones apply only to the named offset."""

_PROPERTIES = b"WAIT\x01true\x02TAGS\x01d\x02"


class HalfCopies:
    """Tracks the last copy of each half message; only copies made in this process.

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
        """Record that a half message was stored again."""
        first = self._first.pop(old_offset, old_offset)
        if first not in self._last and len(self._last) >= COPIES_MAX:
            return
        self._last[first] = new_offset
        self._first[new_offset] = first

    def last_copy(self, first_offset: int) -> int | None:
        """Return the last copy of the message first stored at an offset, if there is a copy."""
        return self._last.get(first_offset)

    def forget(self, queue_offset: int) -> None:
        """Forget a half message whose transaction has ended, by its first or last offset."""
        last = self._last.pop(queue_offset, queue_offset)
        first = self._first.pop(last, None)
        if first is not None:
            self._last.pop(first, None)

    def __len__(self) -> int:
        return len(self._last)


class TransactionOps:
    """Writes op messages.

    Args:
        components: The broker's components.

    Attributes:
        pending: Queue offsets of half messages whose end no stored op message names yet.
        copies: The last copies of half messages.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self.pending: dict[int, None] = {}
        self.copies = HalfCopies()
        self._config = components.config
        self._store = components.store
        self._clock = components.clock
        self._timers = components.timers
        self._store_host = components.store_host
        self._pending_bytes = 0
        self._timer: TimerHandle | None = None
        self._is_due = False
        self._log_limiter = LogLimiter(components.clock)

    def ended(self, queue_offset: int) -> None:
        """Record the end of a transaction, once its outcome is in the log."""
        copy = self.copies.last_copy(queue_offset)
        self.copies.forget(queue_offset)
        for offset in (queue_offset,) if copy is None else (queue_offset, copy):
            if offset not in self.pending:
                self.pending[offset] = None
                self._pending_bytes += len(str(offset)) + len(OFFSET_SEPARATOR)
        if self._pending_bytes > self._config.transaction_op_message_bytes_max and not self._is_due:
            self._is_due = True
            self._schedule(0)
        elif self._timer is None:
            self._schedule(self._config.transaction_op_batch_interval_ms)

    def flush(self) -> bool:
        """Write pending offsets now; return whether none are left."""
        self._cancel()
        while self.pending:
            if not self._write_one():
                self._schedule(RETRY_MS)
                return False
        return True

    def stop(self) -> None:
        """Write pending offsets if possible, and stop the timer."""
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
        """Write one op message; the rest is due at once, or after the interval."""
        self._timer = None
        self._is_due = False
        if not self._write_one():
            self._schedule(RETRY_MS)
        elif self.pending:
            self._is_due = self._pending_bytes > self._config.transaction_op_message_bytes_max
            self._schedule(0 if self._is_due else self._config.transaction_op_batch_interval_ms)

    def _write_one(self) -> bool:
        offsets: list[int] = []
        parts: list[str] = []
        length = 0
        for offset in self.pending:
            if length >= self._config.transaction_op_message_bytes_max:
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
                log.warning(
                    "an op message could not be stored: %s%s", results[0].status.value, more
                )
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
