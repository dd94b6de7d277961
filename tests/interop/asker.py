"""Requests of administrators, as they are on the wire, to one server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count

from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand, create_request
from roquet.remoting.connection import Connection

__all__ = ["Ask", "Asker", "make_ask"]

ANSWER_TIMEOUT_S = 60


@dataclass(frozen=True)
class Ask:
    """A request.

    Attributes:
        note: What distinguishes it from other requests of the code.
        differs: Why Roquet responds differently, where it does.
    """

    code: RequestCode
    note: str
    fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    differs: str = ""

    @property
    def name(self) -> str:
        return f"{self.code.name}-{self.note}" if self.note else self.code.name


def make_ask(code: RequestCode, note: str, body: object = b"", /, **fields: object) -> Ask:
    """A request; what is not bytes becomes JSON."""
    packed = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Ask(code, note, {name: str(value) for name, value in fields.items()}, packed)


class Asker:
    """Sends one after the other."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._opaques = count(1)

    async def ask(self, request: Ask) -> RemotingCommand:
        command = create_request(request.code, opaque=next(self._opaques), body=request.body)
        command.ext_fields = dict(request.fields)
        return await asyncio.wait_for(self._connection.sender.invoke(command), ANSWER_TIMEOUT_S)
