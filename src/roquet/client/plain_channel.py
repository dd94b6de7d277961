"""Plain sends over a client's connections, implemented in ``_send.pyx``."""

from __future__ import annotations

import asyncio

from roquet.remoting.connection import Connection
from roquet.remoting.hot_reader import HotReader
from roquet.runtime import compiled

if compiled.is_built("roquet.client._send"):
    from roquet.client import _send

__all__ = ["PlainChannels", "make_plain_channels"]


class PlainChannels:
    """Opens the channel of each connection."""

    def open(self, connection: Connection) -> HotReader | None:
        """Return the channel of a new connection."""
        return _send.PlainChannel(connection, asyncio.get_running_loop())


def make_plain_channels() -> PlainChannels | None:
    """Return the channels of a client, ``None`` where compiled code does not run."""
    return PlainChannels() if compiled.is_used("roquet.client._send") else None
