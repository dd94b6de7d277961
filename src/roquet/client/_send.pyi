from asyncio import AbstractEventLoop

from roquet.client.message import Message
from roquet.client.plain_send import PlainSends, Sending
from roquet.remoting.connection import Connection
from roquet.remoting.frame import Received
from roquet.remoting.hot_reader import Taken

class SendTemplate:
    def __init__(self, literals: list[bytes]) -> None: ...
    def frame(
        self,
        tags: object,
        keys: object,
        unique_id: str,
        flag: object,
        born_ms: int,
        opaque: int,
        body: bytes,
    ) -> bytes | None: ...

class PlainSender:
    def __init__(
        self, owner: PlainSends, bytes_max: int, timeout_ms: int, attempt_ms: int
    ) -> None: ...
    def begin(self, message: Message, timeout_ms: int | None) -> Sending | None: ...

class PlainChannel:
    def __init__(self, connection: Connection, loop: AbstractEventLoop) -> None: ...
    def take(self, data: Received, position: int) -> Taken: ...
