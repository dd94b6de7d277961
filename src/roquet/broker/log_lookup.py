"""Reads single records by physical offset, on the loop if that cannot block on the disk.

Owns the guess whether it can: what this process appended recently is in memory, everything else is
read in a thread. Messages that consumers send back and producers commit were mostly stored moments
ago, so a thread is the exception.
"""

from __future__ import annotations

from functools import partial

from roquet.broker.service.flow_control import FlowControl, RequestClass
from roquet.model.message import StoredMessage
from roquet.store.message_store import MessageStore

__all__ = ["LogLookup"]

RECENT_BYTES = 16 << 20
"""Records within this distance of the end of the log count as in memory."""


class LogLookup:
    """Looks up messages.

    Args:
        store: The log.
        flow: The threads.
    """

    def __init__(self, store: MessageStore, flow: FlowControl) -> None:
        self._store = store
        self._flow = flow
        self._own_offset = store.max_physical_offset

    def is_recent(self, physical_offset: int) -> bool:
        """Whether :meth:`now` does not wait for the disk."""
        recent_offset = self._store.max_physical_offset - RECENT_BYTES
        return physical_offset >= max(recent_offset, self._own_offset)

    def now(self, physical_offset: int) -> StoredMessage | None:
        """Return the message at an offset, read here; ``None`` if no valid record starts there."""
        return self._store.look_message(physical_offset)

    async def later(self, physical_offset: int) -> StoredMessage | None:
        """Return the message at an offset, read in a thread.

        Raises:
            RequestRefused: Too many reads are waiting.
        """
        return await self._flow.run(
            RequestClass.PULL, partial(self._store.look_message, physical_offset)
        )
