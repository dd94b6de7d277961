from typing import Protocol

from roquet.broker.hot._pull import Plan, Pulls
from roquet.broker.hot._send import Peer, Sends
from roquet.model.host import Host
from roquet.remoting._frame import Template
from roquet.remoting.connection import Connection
from roquet.remoting.frame import Received
from roquet.store._append import PlainAppender
from roquet.store.default_message_store import DefaultMessageStore

class Rules(Protocol):
    def may_send(self) -> bool: ...
    def plan(self, frame: bytes, connection: Connection) -> Plan | None: ...
    def may_pull(self, plan: Plan, queue_id: int) -> bool: ...
    def pulled(
        self, plan: Plan, queue_id: int, next_offset: int, committed: int | None
    ) -> None: ...
    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool: ...
    def failed(self, error: Exception) -> None: ...

class PlainRequests:
    sends: Sends
    pulls: Pulls
    messages: int
    waiting_answers: int
    gets: int
    got_messages: int
    def __init__(
        self,
        appender: PlainAppender,
        store: DefaultMessageStore,
        rules: Rules,
        store_host: Host,
        own_properties: bytes,
        answers: dict[str, tuple[Template, Template]],
        *,
        memory_bytes: int,
        pull_max: int,
    ) -> None: ...
    def take(
        self,
        data: Received,
        position: int,
        peer: Peer,
        *,
        now_ms: int,
        appends: bool,
        dispatch: bool,
        waits: bool,
        pulls: bool,
        max_output: int,
    ) -> tuple[int, int, bytes, bytes]: ...
