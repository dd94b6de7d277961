"""A shorter way for frames that are all alike.

Owns the interface between a connection and whoever handles ordinary frames faster than processors
can. A lane takes frames from the front of what was read and stops at the first that it leaves to
the processors; who sends the frames cannot tell the difference. A server with hooks does not use
its lane, because hooks must see every request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from roquet.remoting.frame import Received

if TYPE_CHECKING:
    from roquet.remoting.connection import Connection

__all__ = ["ConnectionLane", "FrameLane", "Taken"]


class Taken(NamedTuple):
    """What a lane has done.

    Attributes:
        position: Where the first frame is that it left.
        requests: How many frames it took.
        answers: Their answers as frames; those that come later are written by the lane.
    """

    position: int
    requests: int
    answers: bytes


class ConnectionLane(Protocol):
    """The lane of one connection."""

    def take(self, data: Received, position: int) -> Taken:
        """Handle frames from ``position`` on; what follows the last whole frame is left.

        The data changes when this has returned.
        """
        ...


class FrameLane(Protocol):
    """The lanes of a server's connections."""

    def open(self, connection: Connection) -> ConnectionLane | None:
        """The lane of a new connection; ``None`` if it has to do without."""
        ...
