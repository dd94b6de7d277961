"""The op queue, as read by one round of transaction checks.

Owns which half messages have ended according to the op messages, and how much of the op queue need
not be read again: up to the first op message with a half message that the round did not reach.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from roquet.broker.service.transaction_op import OFFSET_SEPARATOR, REMOVE_TAG
from roquet.model.message import StoredMessage

__all__ = ["EndedTransactions"]

log = logging.getLogger(__name__)


class EndedTransactions:
    """Half messages whose transactions have ended.

    Args:
        op_offset: Where the op queue is read from.
        half_offset: Half messages before this offset are ignored.

    Attributes:
        next_offset: Where the op queue is read next.
        last_born_ms: When the last op message of the last read was created; ``None`` if that read
            found nothing.

    Example:
        >>> ended = EndedTransactions(0, 0)
        >>> ended.take(3), ended.done_offset()
        (False, 0)
    """

    def __init__(self, op_offset: int, half_offset: int) -> None:
        self.next_offset = op_offset
        self.last_born_ms: int | None = None
        self._op_offset = op_offset
        self._half_offset = half_offset
        self._op_of: dict[int, int] = {}
        self._open: dict[int, int] = {}
        self._done: set[int] = set()

    def add(self, messages: Iterable[StoredMessage], next_offset: int) -> bool:
        """Add op messages that were read; return whether there were any."""
        self.last_born_ms = None
        expected_offset = self.next_offset
        for message in messages:
            self.last_born_ms = message.born_timestamp_ms
            # Damaged op messages are not returned; their content is lost, so they count as done.
            self._done.update(range(expected_offset, message.queue_offset))
            expected_offset = message.queue_offset + 1
            self._add(message)
        if self.last_born_ms is None and not self._open and not self._done:
            # There is nothing in between: the queue starts later, or ends earlier, than expected.
            self._op_offset = next_offset
        self.next_offset = next_offset
        return self.last_born_ms is not None

    def _add(self, message: StoredMessage) -> None:
        named = 0
        if message.tags == REMOVE_TAG:
            for word in message.body.decode("utf-8", "replace").split(OFFSET_SEPARATOR):
                if not (word.isascii() and word.isdecimal()):
                    continue
                offset = int(word)
                if offset >= self._half_offset and offset not in self._op_of:
                    self._op_of[offset] = message.queue_offset
                    named += 1
        else:
            log.error("op message %d has an unknown tag: %s", message.queue_offset, message.tags)
        if named:
            self._open[message.queue_offset] = named
        else:
            self._done.add(message.queue_offset)

    def take(self, half_queue_offset: int) -> bool:
        """Return whether a half message has ended; if so, forget its op entry."""
        op_offset = self._op_of.pop(half_queue_offset, None)
        if op_offset is None:
            return False
        self._open[op_offset] -= 1
        if not self._open[op_offset]:
            del self._open[op_offset]
            self._done.add(op_offset)
        return True

    def done_offset(self) -> int:
        """The offset before which the op queue need not be read again."""
        offset = self._op_offset
        while offset in self._done:
            offset += 1
        return offset
