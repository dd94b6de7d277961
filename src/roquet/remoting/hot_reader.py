"""How compiled code gets the frames of a connection before they are decoded.

Owns the interface between a connection and code that handles plain frames faster than a processor,
or a future that waits for a response. A hot reader takes frames from the front of a read and stops
at the first that it cannot handle; the peer cannot tell the difference. An endpoint with hooks does
not use hot readers, because hooks must see every request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from roquet.remoting.frame import Received

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection

__all__ = ["HOT_OUTPUT_BYTES", "HotPath", "HotReader", "Taken"]

HOT_OUTPUT_BYTES = 128 << 10
"""Once its responses have this length, a hot reader takes no more frames until they are written."""


Taken: TypeAlias = tuple[int, int, bytes]
"""The result of a hot reader: where the first remaining frame starts, how many frames it took, and
their responses as frames; the hot path itself writes later responses."""


class HotReader(Protocol):
    """Takes plain frames of one connection."""

    def take(self, data: Received, position: int) -> Taken:
        """Handle frames from ``position`` on; leaves the bytes after the last whole frame.

        Stops early when the responses have :data:`HOT_OUTPUT_BYTES`.
        The data changes after this returns.
        """
        ...


class HotPath(Protocol):
    """Serves the plain frames of an endpoint."""

    def open(self, connection: Connection) -> HotReader | None:
        """The hot reader of a new connection; ``None`` if it gets none."""
        ...
