from collections.abc import Callable

from roquet.client.message import ReceivedMessage
from roquet.model.host import Host

class RecordReader:
    def __init__(
        self,
        make: type[ReceivedMessage],
        text_of: Callable[[bytes], str],
        host_of: Callable[[bytes], Host],
        odd_flags: int,
        wrapped_flags: int,
    ) -> None: ...
    def read(
        self,
        data: bytes,
        position: int,
        found: list[ReceivedMessage],
        broker_name: str,
        queue_id: int,
        offset_delta: int,
    ) -> int: ...
