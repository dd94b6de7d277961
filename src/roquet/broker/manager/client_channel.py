"""A client on a connection."""

from __future__ import annotations

from msgspec import Struct

from roquet.remoting.codes import LanguageCode
from roquet.remoting.connection import Connection

__all__ = ["ClientChannel"]


class ClientChannel(Struct, eq=False, kw_only=True):
    """A client that registered by a heartbeat.

    Attributes:
        connection: Its connection.
        client_id: Its client id; unique in its group.
        language: The language of the client.
        version: Its version, as the number of ``remoting.codes``.
        last_update_ns: When its last heartbeat came, on the monotonic clock.
    """

    connection: Connection
    client_id: str
    language: LanguageCode
    version: int
    last_update_ns: int
