from typing import TypeAlias

from roquet.remoting.connection import Connection

QueueCounts: TypeAlias = tuple[int, int, int, int]
"""Queue, requests, and the lag of the last of them: bytes, milliseconds."""

class Peer:
    connection: Connection
    is_reader: bool
    def __init__(self, connection: Connection, ip: bytes, port: int) -> None: ...

class Sends:
    def approve_topic(self, topic: str, queues: int) -> None: ...
    def forget_topics(self) -> None: ...
    def drain(self) -> list[tuple[str, int, int, list[QueueCounts]]]: ...
