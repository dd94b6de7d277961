"""A client on a connection."""

from __future__ import annotations

from msgspec import Struct

from roquet.remoting.codes import LanguageCode
from roquet.remoting.connection import Connection

__all__ = ["ClientChannel"]


class ClientChannel(Struct, eq=False, kw_only=True):
    """A client that registered itself by a heartbeat.

    Attributes:
        connection: Where it can be asked.
        client_id: What it calls itself; unique among its group's clients.
        language: What it is written in.
        version: Its version, as the number of ``remoting.codes``.
        last_update_ns: When its last heartbeat came, on the monotonic clock.
    """

    connection: Connection
    client_id: str
    language: LanguageCode
    version: int
    last_update_ns: int
