"""The lanes of connections for plain sends and their answers, see ``_sends.pyx``."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec

from roquet.remoting.connection import Connection
from roquet.remoting.frame_lane import ConnectionLane
from roquet.runtime import compiled

IS_BUILT = all(find_spec(f"roquet.{name}") for name in ("_fast", "_frame", "_sends"))
if IS_BUILT:
    from roquet import _sends

__all__ = ["IS_BUILT", "AnswerLanes", "make_answer_lanes"]


class AnswerLanes:
    """Opens the lane of each connection."""

    def open(self, connection: Connection) -> ConnectionLane | None:
        """The lane of a new connection."""
        return _sends.ClientLane(connection, asyncio.get_running_loop())


def make_answer_lanes() -> AnswerLanes | None:
    """The lanes, or ``None`` where they are not built or not wanted."""
    return AnswerLanes() if IS_BUILT and compiled.is_wanted() else None
