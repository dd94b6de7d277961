"""Checks half messages that were neither committed nor rolled back, up to a limit.

Upstream's TransactionalMessageCheckService with TransactionalMessageServiceImpl.check. Every round
walks the half queue from where the last one ended. What happens to a half message:

=========================================== ========================================================
an op message names it                      it has ended
it was checked checkMax times, or is older  it goes to TRANS_CHECK_MAX_TIME_TOPIC
than the log may be
it was stored since the round started, or   the round ends here
is younger than transactionTimeOut
its producer set an immunity time that is   it is stored again behind the others, with its first
not over (CHECK_IMMUNITY_TIME_IN_SECONDS)   offset in TRAN_PREPARED_QUEUE_OFFSET
otherwise                                   it is stored again with TRANSACTION_CHECK_TIMES, and a
                                            producer of its group is asked about that copy
=========================================== ========================================================

Progress in the half queue and the op queue is kept as consumer offsets of CID_RMQ_SYS_TRANS.

Invariants:

* The walk passes a half message once it has ended, or once its copy is in the log; the offsets are
  committed when the copies are on disk. After a crash a producer may be asked twice.
* No producer is asked before all stored op messages have been read, nor about a transaction whose
  op message is not written yet.
* A turn of the loop handles a bounded number of messages, and rounds take at most a twentieth of
  the loop's time, however many transactions are open.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import NamedTuple

from roquet.broker.components import BrokerComponents
from roquet.broker.processor.end_transaction import CHECK_IMMUNITY_SECONDS
from roquet.broker.service.check_request import TransactionChecker
from roquet.broker.service.op_queue import EndedTransactions
from roquet.broker.service.sliced_task import SlicedTask, Steps
from roquet.broker.service.timers import TimerHandle
from roquet.broker.service.transaction_op import TransactionOps
from roquet.broker.stored_copy import copied, messages_of
from roquet.model import properties as prop
from roquet.model.message import BrokerMessage, StoredMessage
from roquet.model.topic import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from roquet.model.topic_config import PERM_READ, PERM_WRITE
from roquet.remoting.endpoint import LogLimiter
from roquet.store.results import GetMessageResult, GetMessageStatus, PutMessageResult

__all__ = ["TRANSACTION_GROUP", "TransactionCheckService"]

log = logging.getLogger(__name__)

TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"

ROUND_MS_MAX = 60_000
BATCH_MESSAGES = 32
OP_MESSAGES = 8
"""Op messages per read; each may name several hundred half messages."""
SKIPS_A_TURN = 2_000
"""Ended half messages that are skipped in one turn."""
NO_OP_PAUSE_MS = 1_000
REFUSED_PAUSE_MS = 100
REST_MS_MAX = 100
PAUSE_TO_WORK = 20
"""How long a round pauses after a turn, as a multiple of the turn's length."""
_HOUR_MS = 3_600_000
_QUEUE_ID = 0

Pause = int | Callable[[], object]
Reading = Generator[Pause, object, GetMessageResult]


class _Walk:
    """The position of one round in the half queue."""

    def __init__(self, began_ms: int, half_offset: int, ended: EndedTransactions) -> None:
        self.began_ms = began_ms
        self.half_offset = half_offset
        self.ended = ended
        self.batch: dict[int, StoredMessage] = {}
        self.stored: list[_Stored] = []
        self.checked = 0
        self.is_over = False


class _Stored(NamedTuple):
    """A half message that was stored again in this turn."""

    message: StoredMessage
    properties: dict[str, str]
    result: list[PutMessageResult]
    asks: bool


class TransactionCheckService:
    """Checks half messages at intervals.

    Args:
        components: The broker's components.
        ops: The ended transactions whose op messages are not written yet.

    Attributes:
        checked: How many messages producers were asked about.
        discarded: How many were discarded.
        read_listeners: Called for every read that found messages, with its topic.
        renewed_listeners: Called for every message that was stored again, with its size in the log.
    """

    def __init__(self, components: BrokerComponents, ops: TransactionOps) -> None:
        self.checked = 0
        self.discarded = 0
        self.read_listeners: list[Callable[[str, GetMessageResult], None]] = []
        self.renewed_listeners: list[Callable[[int], None]] = []
        self._broker = components
        self._ops = ops
        self._checker = TransactionChecker(
            components.config, producers=components.producers, clock=components.clock
        )
        self._reserved_ms = components.store.config.file_reserved_hours * _HOUR_MS
        self._half_offset: int | None = None
        self._op_offset: int | None = None
        self._timer: TimerHandle | None = None
        self._round: SlicedTask | None = None
        self._log_limiter = LogLimiter(components.clock)

    # ----------------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Start the first round after one interval."""
        self._timer = self._broker.timers.call_later(
            self._broker.config.transaction_check_interval_ms, self._begin
        )

    def stop(self) -> None:
        """Stop the current round; the next start repeats it."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._round is not None:
            self._round.cancel()
            self._round = None

    def _begin(self) -> None:
        self._timer = None
        self._round = SlicedTask(self._broker.timers, self._check(), self._ended)

    def _ended(self, error: Exception | None) -> None:
        self._round = None
        if error is not None:
            log.error("a round of transaction checks failed", exc_info=error)
        self.start()

    # -------------------------------------------------------------------------------- round

    def _check(self) -> Steps:
        half_offset = self._offset(self._half_offset, TRANS_HALF_TOPIC)
        op_offset = self._offset(self._op_offset, TRANS_OP_HALF_TOPIC)
        ended = EndedTransactions(op_offset, half_offset)
        walk = _Walk(self._broker.clock.now_ms(), half_offset, ended)
        try:
            yield from self._read_ops(walk)
            yield from self._walk(walk)
        finally:
            self._finish_turn(walk)
            self._half_offset = walk.half_offset
            self._op_offset = walk.ended.done_offset()
        if (half_offset, op_offset) != (self._half_offset, self._op_offset):
            yield from self._commit()
        if walk.checked:
            log.info("checked %d transactions", walk.checked)

    def _offset(self, known: int | None, topic: str) -> int:
        if known is not None:
            return known
        offset = self._broker.offsets.query(TRANSACTION_GROUP, topic, _QUEUE_ID)
        if offset < 0:
            offset = self._broker.store.min_offset_in_queue(topic, _QUEUE_ID)
        return max(offset, 0)

    def _commit(self) -> Steps:
        """Commit the offsets, once everything stored before is on disk."""
        half_offset, op_offset = self._half_offset, self._op_offset
        end_offset = self._broker.store.max_physical_offset
        flushed_offset = yield self._broker.store.flush
        assert isinstance(flushed_offset, int), "a flush returns its offset"
        if flushed_offset < end_offset or half_offset is None or op_offset is None:
            log.warning("the offsets of half messages are not committed yet")
            return
        for topic, offset in ((TRANS_HALF_TOPIC, half_offset), (TRANS_OP_HALF_TOPIC, op_offset)):
            if offset != max(self._broker.offsets.query(TRANSACTION_GROUP, topic, _QUEUE_ID), 0):
                self._broker.offsets.commit(TRANSACTION_GROUP, topic, _QUEUE_ID, offset)

    def _walk(self, walk: _Walk) -> Steps:
        skipped = 0
        began_ns = self._broker.clock.monotonic_ns()
        while not walk.is_over and self._broker.clock.now_ms() - walk.began_ms <= ROUND_MS_MAX:
            if self._is_ended(walk, walk.half_offset):
                walk.half_offset += 1
                skipped += 1
                pause = 0 if skipped % SKIPS_A_TURN == 0 else None
            else:
                message = walk.batch.pop(walk.half_offset, None)
                if message is None:
                    self._finish_turn(walk)
                    yield from self._read_halves(walk)
                    continue
                pause = yield from self._decide(walk, message)
            if pause is None and len(walk.stored) >= BATCH_MESSAGES:
                pause = 0
            if pause is not None:
                self._finish_turn(walk)
                took_us = (self._broker.clock.monotonic_ns() - began_ns) // 1_000
                yield pause or min(-(-took_us * PAUSE_TO_WORK // 1_000), REST_MS_MAX)
                began_ns = self._broker.clock.monotonic_ns()
                yield from self._read_new_ops(walk)

    def _is_ended(self, walk: _Walk, queue_offset: int) -> bool:
        if walk.ended.take(queue_offset) or queue_offset in self._ops.pending:
            self._ops.copies.forget(queue_offset)
            return True
        return False

    def _read_halves(self, walk: _Walk) -> Steps:
        """Read half messages at the walk's position, or end the walk."""
        walk.batch.clear()
        found = yield from self._get(TRANS_HALF_TOPIC, walk.half_offset, BATCH_MESSAGES)
        if found.status is GetMessageStatus.FOUND:
            walk.batch = {message.queue_offset: message for message in messages_of(found)}
            # Offsets before the first one have no messages any more.
            walk.half_offset = max(walk.half_offset, min(walk.batch))
        elif found.next_begin_offset > walk.half_offset:
            walk.half_offset = found.next_begin_offset
        else:
            # The queue may be shorter than when the offset was committed: its end was lost.
            walk.half_offset = found.next_begin_offset
            walk.is_over = True

    def _read_ops(self, walk: _Walk) -> Generator[Pause, object, bool]:
        """Read the next op messages; return whether there were any."""
        found = yield from self._get(TRANS_OP_HALF_TOPIC, walk.ended.next_offset, OP_MESSAGES)
        messages: Iterator[StoredMessage] = iter(())
        if found.status is GetMessageStatus.FOUND:
            messages = messages_of(found)
        return walk.ended.add(messages, found.next_begin_offset)

    def _read_new_ops(self, walk: _Walk) -> Steps:
        """Read op messages that were stored while the walk paused."""
        is_read_through = walk.ended.last_born_ms is None
        store, ended = self._broker.store, walk.ended
        while store.max_offset_in_queue(TRANS_OP_HALF_TOPIC, _QUEUE_ID) > ended.next_offset:
            if not (yield from self._read_ops(walk)):
                break
            yield 0
        if is_read_through:
            ended.last_born_ms = None

    def _get(self, topic: str, queue_offset: int, messages: int) -> Reading:
        """Read a batch of a queue, in a thread if that may wait for the disk."""
        found = self._broker.store.get_message_in_memory(topic, _QUEUE_ID, queue_offset, messages)
        if found is None:
            read = partial(self._read_cold, topic, queue_offset, messages)
            result = yield read
            assert isinstance(result, GetMessageResult), "a read returns records"
            found = result
        if found.status is GetMessageStatus.FOUND:
            for listener in self.read_listeners:
                listener(topic, found)
        return found

    def _read_cold(self, topic: str, queue_offset: int, messages: int) -> GetMessageResult:
        found = self._broker.store.get_message(topic, _QUEUE_ID, queue_offset, messages)
        found.slices = [bytes(part) for part in found.slices]
        return found

    # --------------------------------------------------------------------- one half message

    def _decide(self, walk: _Walk, message: StoredMessage) -> Generator[Pause, object, int | None]:
        """Handle one half message; return how long to pause, if at all.

        A message that stays in place goes back into the batch.
        """
        now_ms = self._broker.clock.now_ms()
        age_ms = now_ms - message.born_timestamp_ms
        times = _number(message.properties.get(CHECK_TIMES), missing=0)
        if times >= self._broker.config.transaction_check_max or age_ms > self._reserved_ms:
            return self._discard(walk, message, times)
        if message.store_timestamp_ms >= walk.began_ms:
            walk.is_over = True
            return None
        immunity_ms = self._broker.config.transaction_timeout_ms
        immunity = message.properties.get(CHECK_IMMUNITY_SECONDS)
        if immunity is not None:
            seconds = _number(immunity, missing=-1)
            immunity_ms = immunity_ms if seconds == -1 else seconds * 1000
            if age_ms <= immunity_ms:
                return self._keep_immune(walk, message)
        elif 0 <= age_ms <= immunity_ms:
            walk.is_over = True
            return None
        if self._is_check_due(walk, age_ms, immunity_ms):
            properties = {**message.properties, CHECK_TIMES: str(max(times, 0) + 1)}
            return self._store_anew(walk, message, properties, asks=True)
        walk.batch[message.queue_offset] = message
        self._finish_turn(walk)
        has_more = yield from self._read_ops(walk)
        return 0 if has_more else NO_OP_PAUSE_MS

    def _is_check_due(self, walk: _Walk, age_ms: int, immunity_ms: int) -> bool:
        if age_ms < 0:
            return True
        last_op_ms = walk.ended.last_born_ms
        if last_op_ms is None:
            return age_ms > immunity_ms
        return last_op_ms - walk.began_ms > self._broker.config.transaction_timeout_ms

    def _keep_immune(self, walk: _Walk, message: StoredMessage) -> int | None:
        first_offset = _prepared_offset(message)
        if first_offset is not None and walk.ended.take(first_offset):
            self._ops.copies.forget(message.queue_offset)
            walk.half_offset = message.queue_offset + 1
            return None
        first_offset = message.queue_offset if first_offset is None else first_offset
        properties = {**message.properties, PREPARED_QUEUE_OFFSET: str(first_offset)}
        return self._store_anew(walk, message, properties, asks=False)

    def _store_anew(
        self, walk: _Walk, message: StoredMessage, properties: dict[str, str], *, asks: bool
    ) -> int | None:
        properties.pop(prop.CRC32, None)
        result: list[PutMessageResult] = []
        again = copied(message, (TRANS_HALF_TOPIC, _QUEUE_ID), properties)
        if not self._submit(walk, message, again, result):
            return REFUSED_PAUSE_MS
        walk.stored.append(_Stored(message, properties, result, asks))
        return None

    def _discard(self, walk: _Walk, message: StoredMessage, times: int) -> int | None:
        """Discard a message whose state no producer will ever report."""
        self._broker.topics.create_in_send_back(
            TRANS_CHECK_MAX_TIME_TOPIC, queue_nums=1, perm=PERM_READ | PERM_WRITE, sys_flag=0
        )
        properties = dict(message.properties)
        properties.pop(prop.CRC32, None)
        if times < self._broker.config.transaction_check_max:
            properties[CHECK_TIMES] = str(max(times, 0) + 1)
        aside = copied(message, (TRANS_CHECK_MAX_TIME_TOPIC, 0), properties)
        if not self._submit(walk, message, aside, []):
            return REFUSED_PAUSE_MS
        self.discarded += 1
        self._ops.copies.forget(message.queue_offset)
        self._broker.transaction_metrics.add(message.properties.get(prop.REAL_TOPIC, ""), -1)
        more = self._log_limiter.allow("discarded")
        if more is not None:
            log.error(
                "the half message %s for %s was checked %d times and is discarded%s",
                message.unique_key,
                message.properties.get(prop.REAL_TOPIC),
                times,
                more,
            )
        return 0 if self.discarded % BATCH_MESSAGES == 0 else None

    def _submit(
        self,
        walk: _Walk,
        message: StoredMessage,
        again: BrokerMessage,
        result: list[PutMessageResult],
    ) -> bool:
        """Store a message; return whether the walk continues behind it."""
        self._broker.store.submit(again, result.append)
        if result and result[0].append is None:
            walk.batch[message.queue_offset] = message
            more = self._log_limiter.allow("refused")
            if more is not None:
                log.warning(
                    "a half message could not be stored again: %s%s", result[0].status.value, more
                )
            return False
        walk.half_offset = message.queue_offset + 1
        return True

    def _finish_turn(self, walk: _Walk) -> None:
        """End the burst, and check the copies that it stored."""
        stored, walk.stored = walk.stored, []
        self._broker.store.finish_burst()
        for message, properties, results, asks in stored:
            appended = results[0].append if results else None
            if appended is None:
                continue
            self._ops.copies.moved(message.queue_offset, appended.queue_offset)
            for listener in self.renewed_listeners:
                listener(appended.wrote_bytes)
            if asks:
                self._checker.ask(message, properties, appended)
                self.checked += 1
                walk.checked += 1


def _number(text: str | None, *, missing: int) -> int:
    """Parse a number in a property; -1 if it is not one, as in upstream."""
    if text is None:
        return missing
    try:
        return int(text)
    except ValueError:
        return -1


def _prepared_offset(message: StoredMessage) -> int | None:
    """Return the first offset of a message that was stored again for its immunity."""
    text = message.properties.get(PREPARED_QUEUE_OFFSET)
    offset = _number(text, missing=-1)
    return None if offset < 0 else offset
