from asyncio import Future

from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame_lane import Taken
from roquet.remoting.outgoing import Due

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

class AnswerLane:
    def __init__(
        self,
        waiting: dict[int, Future[RemotingCommand]],
        due: dict[int, Due],
        plain: set[int],
    ) -> None: ...
    def take(self, data: bytes | bytearray, position: int) -> Taken: ...
