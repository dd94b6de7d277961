"""Puts: the path of a message from the check to the response.

Owns the burst: messages that are appended but not yet dispatched and responded to. The append
itself is in :mod:`roquet.store.append`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager

from roquet.model.message import BatchMessage, BrokerMessage
from roquet.store.config import BrokerRole
from roquet.store.flush import FlushCommitLog
from roquet.store.message_store import PutDone
from roquet.store.results import (
    AppendResult,
    BurstResult,
    PutMessageResult,
    PutMessageStatus,
)
from roquet.store.store_components import StoreComponents

_NOBODY_WAITS: tuple[PutMessageResult, PutDone | None, bool] = (
    PutMessageResult(PutMessageStatus.PUT_OK),
    None,
    False,
)
"""What a burst holds for messages whose responses were already made."""


class PlainPuts:
    """What the hot path may append in one burst, and under which conditions.

    Attributes:
        is_allowed: Whether anything may be appended.
        now_ms: The store timestamp of what is appended; -1 if nothing may be appended.
        dispatch: Whether queues and index are fed at once.
        began_ns: When the burst began, by the monotonic clock.
        began_offset: Where the log ended then.
    """

    __slots__ = ("began_ns", "began_offset", "dispatch", "is_allowed", "now_ms")

    def __init__(
        self, now_ms: int, began_ns: int = 0, began_offset: int = 0, *, dispatch: bool = False
    ) -> None:
        self.is_allowed = now_ms >= 0
        self.now_ms = now_ms
        self.dispatch = dispatch
        self.began_ns = began_ns
        self.began_offset = began_offset


_NO_PLAIN_PUTS = PlainPuts(-1)


class Puts:
    """Puts into one store.

    Attributes:
        is_open: Whether the store was started, so that messages are accepted.
        is_replica: Whether the store is a slave's, whose log may only grow by its master's bytes.
    """

    def __init__(self, components: StoreComponents, flusher: FlushCommitLog) -> None:
        """Append to the log of ``components``; ``flusher`` puts it on disk."""
        self._components = components
        self._flusher = flusher
        self._acks = components.acks
        self._appender = components.appender
        self._dispatcher = components.dispatcher
        self._flags = components.flags
        self._hooks = components.put_hooks
        self._lock = components.lock
        self._log = components.commit_log
        self._segments = components.commit_log.queue
        self._stats = components.stats
        self._timing = components.timing
        self._burst: list[tuple[PutMessageResult, PutDone | None, bool]] = []
        self.is_open = False
        self.is_replica = components.config.broker_role is BrokerRole.SLAVE

    @property
    def is_under_way(self) -> bool:
        """Whether a burst is not finished, or waits for the disk or a slave."""
        return bool(self._burst) or len(self._acks) > 0

    def submit(self, message: BrokerMessage | BatchMessage, done: PutDone | None = None) -> None:
        """Append a message as part of a burst; :meth:`finish_burst` must follow.

        ``done`` gets the result: at once if the message is refused; otherwise when the burst is
        finished and, if the message has to wait for the disk or a slave, once that is done.
        """
        with self._lock:
            began_ns = self._timing.begin()
            began_offset = self._segments.max_wrote_offset()
            try:
                result = self._append(message)
            finally:
                size_bytes = self._segments.max_wrote_offset() - began_offset
                took_ns = self._timing.end(began_ns, size_bytes)
            appended = result.append
            if appended is None:
                self._stats.put_failed += 1
                if done is not None:
                    done(result)
                return
            self._stats.count_put(appended.message_count, appended.wrote_bytes, took_ns)
            self._burst.append((result, done, message.wait_store_ok))

    def finish_burst(self) -> None:
        """Dispatch what was appended, then respond, or let the responses wait for the disk."""
        if not self._burst:
            return
        with self._lock:
            burst, self._burst = self._burst, []
            if not burst:
                return
            self._dispatch_burst()
            may_wait = self._acks.is_needed
            for result, done, must_wait in burst:
                if done is None:
                    continue
                if may_wait and must_wait:
                    self._wait(result, done)
                else:
                    done(result)
            if self._components.is_sync_flush:
                self._flusher.request()

    def put_burst(self, messages: Sequence[BrokerMessage]) -> BurstResult:
        """Append and dispatch many messages at once.

        Does not wait for the disk: ``acks.wait(result.end_offset, ...)`` does.
        """
        with self._lock:
            began_ns = self._timing.begin()
            began_offset = self._segments.max_wrote_offset()
            try:
                result = self._append_all(list(messages))
                self._dispatch_burst()
            finally:
                size_bytes = self._segments.max_wrote_offset() - began_offset
                took_ns = self._timing.end(began_ns, size_bytes)
            self._stats.put_failed += len(result.refused)
            self._stats.count_put(len(messages) - len(result.refused), size_bytes, took_ns)
            if self._components.is_sync_flush:
                self._flusher.request()
            return result

    def _append_all(self, messages: list[BrokerMessage]) -> BurstResult:
        """Append messages in order: runs of plain ones together, the others one by one."""
        result = BurstResult.of(len(messages))
        is_allowed = self._allows_plain_puts()
        number = 0
        while number < len(messages):
            if is_allowed:
                number = self._appender.append_plain(
                    messages, number, result, is_confirmed=self._components.confirms_at_once()
                )
            if number < len(messages):
                result.note(number, self._append(messages[number]))
                number += 1
        result.end_offset = self._segments.max_wrote_offset()
        return result

    def begin_plain_puts(self) -> PlainPuts:
        """Let the hot path append directly; :meth:`finish_plain_puts` must follow in any case.

        In between, the store belongs to the caller: no segment is deleted, and nobody else appends.
        """
        self._lock.acquire()
        try:
            if not self._allows_plain_puts():
                return _NO_PLAIN_PUTS
            began_offset = self._segments.max_wrote_offset()
            is_confirmed = self._components.confirms_at_once()
            dispatch = self._appender.dispatches_at(began_offset, is_confirmed=is_confirmed)
            now_ms = self._log.next_store_timestamp()
            began_ns = self._timing.begin()
            return PlainPuts(now_ms, began_ns, began_offset, dispatch=dispatch)
        except BaseException:
            self._lock.release()
            raise

    def finish_plain_puts(
        self, puts: PlainPuts, messages: int, done: PutDone | None = None
    ) -> None:
        """Take over what the hot path has appended; :meth:`finish_burst` must follow.

        ``done`` gets one result for all messages, if there are any, as with :meth:`submit`.
        """
        try:
            if not puts.is_allowed:
                return
            size_bytes = self._segments.max_wrote_offset() - puts.began_offset
            took_ns = self._timing.end(puts.began_ns, size_bytes)
            if size_bytes:
                self._stats.count_put(messages, size_bytes, took_ns)
                if done is None:
                    self._burst.append(_NOBODY_WAITS)
                else:
                    appended = AppendResult(puts.began_offset, size_bytes, puts.now_ms, 0, ())
                    result = PutMessageResult(PutMessageStatus.PUT_OK, appended)
                    self._burst.append((result, done, True))
        finally:
            self._lock.release()

    def reading(self) -> AbstractContextManager[object]:
        """Held while the hot path reads, so that no segment is deleted meanwhile."""
        return self._lock

    def _allows_plain_puts(self) -> bool:
        """Whether messages may be appended without checking each of them."""
        return (
            self.is_open
            and not self.is_replica
            and self._flags.is_writeable
            and not self._hooks
            and self._acks.accepts_puts
            and not self._timing.is_os_page_cache_busy()
        )

    def _dispatch_burst(self) -> None:
        segment = self._segments.last
        if segment is not None and segment.write_buffer is None:
            self._log.allocator.populate_ahead(segment)
        dispatcher = self._dispatcher
        if dispatcher.dispatched_offset == self._segments.max_wrote_offset():
            dispatcher.finish()  # the usual case: the append has dispatched, and all is confirmed
        else:
            dispatcher.run(self._components.confirm_offset)
        if self._components.grown is not None:
            self._components.grown()

    def put_message(self, message: BrokerMessage | BatchMessage) -> PutMessageResult:
        """Append one message or batch and wait for the result; not on an event loop."""
        answered = threading.Event()
        answers: list[PutMessageResult] = []

        def done(result: PutMessageResult) -> None:
            answers.append(result)
            answered.set()

        self.submit(message, done)
        self.finish_burst()
        answered.wait()
        return answers[0]

    def _append(self, message: BrokerMessage | BatchMessage) -> PutMessageResult:
        if not self._flags.is_writeable or not self.is_open:
            reasons = ", ".join(self._flags.reasons()) or "not started"
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, detail=reasons)
        if self.is_replica:
            return PutMessageResult(
                PutMessageStatus.SERVICE_NOT_AVAILABLE, detail="this is a slave's store"
            )
        if self._timing.is_os_page_cache_busy():
            return PutMessageResult(PutMessageStatus.OS_PAGE_CACHE_BUSY)
        if message.wait_store_ok and not self._acks.accepts_puts:
            return PutMessageResult(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)
        for hook in self._hooks:
            refused = hook(message)
            if refused is not None:
                return refused
        return self._appender.append(message, is_confirmed=self._components.confirms_at_once())

    def _wait(self, result: PutMessageResult, done: PutDone) -> None:
        """Call ``done`` when the disk or a slave has a message."""
        appended = result.append
        assert appended is not None, "a refused message does not wait"
        self._acks.wait(
            appended.end_offset, lambda status: done(PutMessageResult(status, appended))
        )
