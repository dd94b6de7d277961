"""Delivers delayed messages when they are due.

Upstream's ScheduleMessageService. A message of delay level n waits in queue n-1 of
SCHEDULE_TOPIC_XXXX, whose entries carry the due time in place of the tags. This module owns the
delivery: it reads due messages and stores them again in their real topic, with their properties
(upstream leaves DELAY, REAL_TOPIC and REAL_QID in the stored string).

A level is in one of these states:

.. code-block:: text

    IDLE      nothing waits; a message that arrives makes it READY
    WAITING   the first entry is not due yet, or the store refused: a timer makes it READY
    READY     queued for a turn of the loop
    READING   a thread reads, because the due entries are no longer in memory

Invariants:

* Nothing is delivered before its time, and nothing is skipped because the store refuses it now.
  Only what can never be stored is dropped, and logged: a record that is missing or damaged, or that
  names no target queue.
* The offset of a level advances once a message is in the log. After a crash, the messages since the
  last write of ``delayOffset.json`` are delivered again.
* Levels are served in batches, in turn. One turn of the loop takes some milliseconds at most, and
  a quarter of the time of a busy loop, however much is due.
* An idle level costs nothing, a waiting one a check of the clock per second.

Everything runs on the event loop, except reads in threads.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import NamedTuple

from roquet.broker.components import BrokerComponents
from roquet.broker.due_copy import DueCopies
from roquet.broker.service.timers import TimerHandle
from roquet.format.commit_log import record_size, uses_v2
from roquet.format.consume_queue import FILLER_SIZE, UNIT
from roquet.format.consume_queue_ext import is_ext_address
from roquet.model.delay_level import DelayLevels
from roquet.model.message import BrokerMessage
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.remoting.endpoint import LogLimiter
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.results import BurstResult, Bytes, PutMessageResult, PutMessageStatus

__all__ = ["ScheduleMessageService"]

log = logging.getLogger(__name__)

BATCH_MESSAGES = 64
"""How much of a level is delivered before the next level's turn; well below a millisecond."""
BATCH_BYTES = 256 << 10
TURN_BATCHES = 32
TURN_NS_MIN = 500_000
TURN_NS_MAX = 5_000_000
OTHERS_TO_TURN = 3
"""The length of a turn, as a share of the time that other work had since the last one."""
RETRY_MS = 100
"""How long a level waits after the store refused a message."""
FAILURE_MS = 10_000
"""How long a level waits after an unexpected error."""
SLEEP_MS_MAX = 1_000
"""The longest sleep of a level; the system clock may be changed meanwhile."""

_NEVER_STORED = {PutMessageStatus.MESSAGE_ILLEGAL, PutMessageStatus.PROPERTIES_SIZE_EXCEEDED}


class _State(Enum):
    IDLE = "idle"
    WAITING = "waiting"
    READY = "ready"
    READING = "reading"


class _Level:
    """One level.

    Attributes:
        next_offset: The first entry that is not delivered.
        ahead: Delivered entries after it: the store accepted them and refused the first.
    """

    __slots__ = ("ahead", "delay_ms", "level", "next_offset", "state", "timer")

    def __init__(self, level: int, delay_ms: int | None, next_offset: int) -> None:
        self.level = level
        self.delay_ms = delay_ms
        self.next_offset = next_offset
        self.ahead: set[int] = set()
        self.state = _State.IDLE
        self.timer: TimerHandle | None = None

    @property
    def queue_id(self) -> int:
        return self.level - 1


class _Batch(NamedTuple):
    """Due records, if any; the offset after them, and when the entry there is due."""

    slices: list[Bytes] | None
    end_offset: int
    due_ms: int


class ScheduleMessageService:
    """Delivers delayed messages.

    Args:
        components: The broker's components.

    Attributes:
        delivered: How many messages were delivered.
        dropped: How many could never be delivered.
        listeners: Called after deliveries, per topic: the queue of the level, the topic, how many
            messages, and how many bytes in the log.
    """

    def __init__(self, components: BrokerComponents) -> None:
        self.delivered = 0
        self.dropped = 0
        self.listeners: list[Callable[[int, str, int, int], None]] = []
        self._store = components.store
        self._offsets = components.delay_offsets
        self._clock = components.clock
        self._timers = components.timers
        self._copies = DueCopies()
        self._delays = DelayLevels(components.store.config.message_delay_levels)
        self._levels: dict[int, _Level] = {}
        self._ready: deque[_Level] = deque()
        self._turn_handle: TimerHandle | None = None
        self._turn_ended_ns = 0
        self._delivered_offset = 0
        self._is_started = False
        self._log_limiter = LogLimiter(components.clock)

    # ----------------------------------------------------------------------- start and stop

    def start(self) -> None:
        """Start delivering; the store must be recovered, and the offsets loaded."""
        self._is_started = True
        queues = self._store.queues.table.get(SCHEDULE_TOPIC, {})
        # Levels removed from the settings may hold messages; their entries still have a due time.
        for queue_id in sorted(queues):
            self._wake(self._level(queue_id + 1))

    def stop(self) -> None:
        """Stop delivering; entries that were read and not stored are read again after a start."""
        self._is_started = False
        self._ready.clear()
        if self._turn_handle is not None:
            self._turn_handle.cancel()
            self._turn_handle = None
        for level in self._levels.values():
            if level.timer is not None:
                level.timer.cancel()
        self._levels.clear()

    def notify_arriving(self, queue: ConsumeQueue) -> None:
        """Wake the queue's level; called in the middle of a burst, so nothing is stored here."""
        if self._is_started and queue.topic == SCHEDULE_TOPIC:
            level = self._level(queue.queue_id + 1)
            if level.state is _State.IDLE:
                self._wake(level)

    def _level(self, number: int) -> _Level:
        level = self._levels.get(number)
        if level is None:
            is_known = number <= self._delays.max_level
            delay_ms = self._delays.deliver_timestamp_ms(number, 0) if is_known else None
            level = self._levels[number] = _Level(number, delay_ms, self._offsets.query(number))
        return level

    # -------------------------------------------------------------------------------- turns

    def _wake(self, level: _Level) -> None:
        level.timer = None
        level.state = _State.READY
        self._ready.append(level)
        if self._turn_handle is None:
            self._turn_handle = self._timers.call_soon(self._turn)

    def _wait(self, level: _Level, delay_ms: int) -> None:
        level.state = _State.WAITING
        delay_ms = min(delay_ms, SLEEP_MS_MAX)
        level.timer = self._timers.call_later(delay_ms, lambda: self._wake(level))

    def _turn(self) -> None:
        self._turn_handle = None
        began_ns = self._clock.monotonic_ns()
        others_ns = began_ns - self._turn_ended_ns
        turn_ns = min(max(others_ns // OTHERS_TO_TURN, TURN_NS_MIN), TURN_NS_MAX)
        for _ in range(TURN_BATCHES):
            if not self._ready or self._turn_ended_ns - began_ns >= turn_ns:
                break
            level = self._ready.popleft()
            self._guarded(level, partial(self._look, level))
            self._turn_ended_ns = self._clock.monotonic_ns()
        if self._ready and self._turn_handle is None:
            self._turn_handle = self._timers.call_soon(self._turn)

    def _guarded(self, level: _Level, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            log.exception("delivery of delay level %d failed and is retried", level.level)
            self._wait_failed(level)

    def _wait_failed(self, level: _Level) -> None:
        level.state = _State.WAITING
        level.timer = self._timers.call_later(FAILURE_MS, lambda: self._wake(level))

    def _look(self, level: _Level) -> None:
        queue = self._store.find_consume_queue(SCHEDULE_TOPIC, level.queue_id)
        if queue is None or not self._has_next(level, queue):
            level.state = _State.IDLE
            return
        batch = self._read(level, queue, may_block=False)
        if batch is not None:
            self._deliver(level, batch)
            return
        level.state = _State.READING
        self._timers.in_thread(
            lambda: self._read(level, queue, may_block=True),
            lambda result: self._was_read(level, result),
        )

    def _was_read(self, level: _Level, result: Callable[[], _Batch | None]) -> None:
        if not self._is_started or self._levels.get(level.level) is not level:
            return

        def deliver() -> None:
            batch = result()
            assert batch is not None, "a read that may wait for the disk returns a batch"
            self._deliver(level, batch)

        self._guarded(level, deliver)

    def _has_next(self, level: _Level, queue: ConsumeQueue) -> bool:
        """Whether an entry waits; first moves an offset that is outside the queue."""
        low, high = queue.min_queue_offset, queue.max_queue_offset
        if not low <= level.next_offset <= high:
            corrected = low if level.next_offset < low else high
            # A level that was never used starts at 0, wherever its queue starts.
            if level.next_offset:
                log.error(
                    "delay level %d continues at %d: %d is not between %d and %d",
                    level.level,
                    corrected,
                    level.next_offset,
                    low,
                    high,
                )
            level.next_offset = corrected
            self._offsets.update(level.level, corrected, messages=0)
        return level.next_offset < high

    # ------------------------------------------------------------------------------ reading

    def _read(self, level: _Level, queue: ConsumeQueue, *, may_block: bool) -> _Batch | None:
        """Read what is due; ``None`` if that would wait for the disk and may not."""
        offset = level.next_offset
        read_units = queue.read_units if may_block else queue.read_cached_units
        units = read_units(offset, BATCH_MESSAGES)
        if units is None:
            return None
        if not units:
            # The file has just expired: the queue's own bounds say where to continue.
            return _Batch(None, queue.next_file_offset(offset), 0)
        end_offset, due_ms = self._due_until(level, queue, units)
        if end_offset == offset:
            return _Batch(None, offset, due_ms)
        get = self._store.get_message if may_block else self._store.get_message_in_memory
        slices: list[Bytes] = []
        left_bytes = BATCH_BYTES
        while offset < end_offset and left_bytes > 0:
            count = end_offset - offset
            found = get(SCHEDULE_TOPIC, level.queue_id, offset, count, max_total_bytes=left_bytes)
            if found is None:
                if slices:
                    break
                return None
            slices += [bytes(part) for part in found.slices] if may_block else found.slices
            left_bytes -= found.total_bytes
            if found.next_begin_offset <= offset:
                break
            # A read skips records that are gone, and may continue beyond what is due.
            offset = found.next_begin_offset
        if offset < end_offset:
            return _Batch(slices, offset, 0)
        return _Batch(slices, end_offset, due_ms)

    def _due_until(self, level: _Level, queue: ConsumeQueue, units: bytes) -> tuple[int, int]:
        """Return the end of the due entries, and when the entry there is due."""
        now_ms = self._clock.now_ms()
        end_offset, due_ms = level.next_offset, 0
        has_ext = queue.ext is not None
        for physical_offset, size_bytes, tags_code in UNIT.iter_unpack(units):
            if tags_code > now_ms or has_ext:
                is_filler = physical_offset == 0 and size_bytes == FILLER_SIZE
                due_ms = 0 if is_filler else self._due_ms(level, queue, tags_code, now_ms)
                if due_ms > now_ms:
                    break
            end_offset += 1
        return end_offset, due_ms

    def _due_ms(self, level: _Level, queue: ConsumeQueue, tags_code: int, now_ms: int) -> int:
        """When an entry is due: at the latest, as if it had been sent just now."""
        if queue.ext is not None and is_ext_address(tags_code):
            unit = queue.ext.get(tags_code)
            # Without its unit, it is unknown how long it has waited.
            tags_code = now_ms if unit is None else unit.tags_code
        if level.delay_ms is not None and tags_code > now_ms + level.delay_ms:
            return now_ms
        return tags_code

    # ----------------------------------------------------------------------------- delivery

    def _deliver(self, level: _Level, batch: _Batch) -> None:
        if batch.slices is None:
            self._skip(level, batch)
            return
        began_offset = level.next_offset
        due = self._due(level, batch.slices, batch.end_offset)
        refusal = self._store_all(level, due, batch.end_offset) if due else None
        if refusal is None:
            level.next_offset = max(began_offset, batch.end_offset)
            level.ahead.clear()
        if level.next_offset > began_offset:
            messages = level.next_offset - began_offset
            self._offsets.update(
                level.level,
                level.next_offset,
                delivered_offset=self._delivered_offset,
                messages=messages,
            )
        if refusal is None:
            wait_ms = batch.due_ms - self._clock.now_ms()
            if wait_ms > 0:
                self._wait(level, wait_ms)
            else:
                self._wake(level)
            return
        more = self._log_limiter.allow("refused")
        if more is not None:
            log.warning(
                "delay level %d: the store refuses messages, %s %s%s",
                level.level,
                refusal.status.value,
                refusal.detail,
                more,
            )
        self._wait(level, RETRY_MS)

    def _due(
        self, level: _Level, slices: list[Bytes], end_offset: int
    ) -> list[tuple[int, BrokerMessage]]:
        """Return the messages to store from a batch, each with its offset in the level's queue."""
        due: list[tuple[int, BrokerMessage]] = []
        for queue_offset, message in self._copies.of(slices):
            if queue_offset >= end_offset:
                break
            if queue_offset in level.ahead:
                continue
            if message is None:
                self._drop(level, queue_offset, "it names no target queue")
            else:
                due.append((queue_offset, message))
        return due

    def _store_all(
        self, level: _Level, due: list[tuple[int, BrokerMessage]], end_offset: int
    ) -> PutMessageResult | None:
        """Store messages in their topics; the first that the store refuses for now stays next."""
        result = self._store.put_burst([message for _, message in due])
        self._delivered_offset = max(self._delivered_offset, result.end_offset)
        self.delivered += len(due) - len(result.refused)
        self._tell(level, due, result)
        if not result.refused:
            return None
        refused_now: PutMessageResult | None = None
        for number, (queue_offset, _) in enumerate(due):
            answer = result.refused.get(number)
            if answer is not None and answer.status in _NEVER_STORED:
                self._drop(level, queue_offset, f"{answer.status.value} {answer.detail}")
            elif answer is not None and refused_now is None:
                refused_now = answer
                level.next_offset = queue_offset
                continue
            if refused_now is not None and (answer is None or answer.status in _NEVER_STORED):
                level.ahead.add(queue_offset)
        assert level.next_offset <= end_offset, "a level never advances beyond what it has read"
        return refused_now

    def _tell(
        self, level: _Level, due: list[tuple[int, BrokerMessage]], result: BurstResult
    ) -> None:
        """Report to the listeners how much was delivered to each topic."""
        moved: dict[str, tuple[int, int]] = {}
        segment_bytes = self._store.config.commit_log_file_bytes
        end_offset = result.end_offset
        places = zip(reversed(due), reversed(result.physical_offsets), strict=True)
        for (_, message), offset in places:
            if offset < 0:
                continue
            size_bytes = end_offset - offset
            if end_offset % segment_bytes == 0:
                # There may be padding between the record and the end of its segment.
                size_bytes = min(size_bytes, _record_bytes(message))
            end_offset = offset
            messages, total_bytes = moved.get(message.topic, (0, 0))
            moved[message.topic] = (messages + 1, total_bytes + size_bytes)
        for topic, (messages, total_bytes) in moved.items():
            for listener in self.listeners:
                listener(level.queue_id, topic, messages, total_bytes)

    def _skip(self, level: _Level, batch: _Batch) -> None:
        """Handle a batch without due records: wait for the first, or skip a file that is gone."""
        if batch.end_offset > level.next_offset:
            level.next_offset = batch.end_offset
            self._offsets.update(level.level, level.next_offset, messages=0)
            self._wake(level)
        else:
            self._wait(level, batch.due_ms - self._clock.now_ms())

    def _drop(self, level: _Level, queue_offset: int, reason: str) -> None:
        self.dropped += 1
        log.error("dropped message %d of delay level %d: %s", queue_offset, level.level, reason)


def _record_bytes(message: BrokerMessage) -> int:
    return record_size(
        sys_flag=message.sys_flag,
        body_bytes=len(message.body),
        topic_bytes=len(message.topic),
        properties_bytes=len(message.properties),
        v2=uses_v2(message.topic),
    )
