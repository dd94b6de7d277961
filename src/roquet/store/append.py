"""Turns a message into its record, queue entry and index keys.

Owns the one append of the store. The reference, :meth:`CommitLog.append` followed by
:meth:`Dispatcher.dispatch`, handles every message. Its compiled twin handles runs of plain ones and
writes the same bytes; only :mod:`roquet.store.compiled` enables it. The caller has checked that the
store may be written to.
"""

from __future__ import annotations

import logging

from roquet.model import sys_flag as flags
from roquet.model.message import BatchMessage, BrokerMessage
from roquet.model.topic import topic_fault
from roquet.store.batch_append import append_to_batch_queue
from roquet.store.batch_consume_queue import BatchConsumeQueue
from roquet.store.commit_log import Appended, CommitLog
from roquet.store.compiled import make_compiled_append
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import Dispatcher
from roquet.store.index import IndexService
from roquet.store.results import AppendResult, BurstResult, PutMessageResult, PutMessageStatus

__all__ = ["Appender"]

log = logging.getLogger(__name__)


class Appender:
    """Appends to one store.

    ``is_confirmed``, in its methods, means that an append is confirmed at once, so that it is
    dispatched together with the append.

    Attributes:
        compiled: The compiled twin, ``None`` if the reference has to do everything.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        dispatcher: Dispatcher,
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._dispatcher = dispatcher
        self.compiled = make_compiled_append(config, commit_log, queues, index, dispatcher)

    def append(
        self, message: BrokerMessage | BatchMessage, *, is_confirmed: bool
    ) -> PutMessageResult:
        """Append one message or batch, or return why not."""
        began_offset = self._log.wrote_offset
        burst = BurstResult.of(1)
        if isinstance(message, BrokerMessage) and self.append_plain(
            [message], 0, burst, is_confirmed=is_confirmed
        ):
            appended = AppendResult(
                burst.physical_offsets[0],
                self._log.wrote_offset - began_offset,
                self._log.store_timestamp_ms,
                burst.queue_offsets[0],
                (burst.physical_offsets[0],),
            )
            return PutMessageResult(PutMessageStatus.PUT_OK, appended)
        queue = self._queue_of(message)
        if isinstance(queue, PutMessageResult):
            return queue
        result = self._append_to(queue, message)
        if isinstance(result, PutMessageResult):
            return result
        if is_confirmed:
            self._dispatcher.dispatch(result.requests)
        return PutMessageResult(PutMessageStatus.PUT_OK, result.result)

    def append_plain(
        self,
        messages: list[BrokerMessage],
        first: int,
        result: BurstResult,
        *,
        is_confirmed: bool,
    ) -> int:
        """Append plain messages from ``messages[first]`` on; return the number of the first left.

        Their offsets go into ``result``.
        """
        if self.compiled is None:
            return first
        try:
            return self.compiled.append(
                messages,
                first,
                self._log.next_store_timestamp(),
                self.dispatches_at(self._log.wrote_offset, is_confirmed=is_confirmed),
                result.queue_offsets,
                result.physical_offsets,
            )
        except OSError:
            # No index file. The reference gets the next message, and reports the error.
            return result.physical_offsets.index(-1, first)

    def dispatches_at(self, end_offset: int, *, is_confirmed: bool) -> bool:
        """Whether the compiled append at the end of the log also feeds queue and index."""
        dispatcher = self._dispatcher
        return is_confirmed and dispatcher.is_plain and dispatcher.dispatched_offset == end_offset

    def _queue_of(self, message: BrokerMessage | BatchMessage) -> ConsumeQueue | PutMessageResult:
        queue = self._queues.find(message.topic, message.queue_id)
        if queue is not None:
            return queue
        fault = topic_fault(message.topic)
        if fault is None and message.queue_id < 0:
            fault = f"queue id {message.queue_id}"
        if fault is not None:
            return PutMessageResult(PutMessageStatus.MESSAGE_ILLEGAL, detail=fault)
        try:
            return self._queues.find_or_create(message.topic, message.queue_id)
        except OSError as error:
            detail = f"files of the deleted topic {message.topic} cannot be removed: {error}"
            return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, detail=detail)

    def _append_to(
        self, queue: ConsumeQueue, message: BrokerMessage | BatchMessage
    ) -> Appended | PutMessageResult:
        appended: Appended | PutMessageResult
        if isinstance(queue, BatchConsumeQueue):
            appended = append_to_batch_queue(self._log, message, queue)
        elif message.sys_flag & flags.INNER_BATCH:
            return PutMessageResult(
                PutMessageStatus.MESSAGE_ILLEGAL, detail="an inner batch for a simple queue"
            )
        elif isinstance(message, BatchMessage):
            appended = self._log.append_batch(message, queue)
        else:
            appended = self._log.append(message, queue)
        if isinstance(appended, PutMessageResult):
            if appended.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
                log.error("no new segment: %s", appended.detail)
            elif appended.status is PutMessageStatus.SERVICE_NOT_AVAILABLE:
                log.warning("no new segment for the moment: %s", appended.detail)
                self._queues.give_up_descriptors()
        return appended
