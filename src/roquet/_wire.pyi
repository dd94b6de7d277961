from collections.abc import Callable
from typing import Protocol, TypeAlias

from roquet import _fast
from roquet._frame import Template
from roquet.model.host import Host
from roquet.remoting.connection import Connection
from roquet.remoting.frame import Received
from roquet.store.default_message_store import DefaultMessageStore

QueueCounts: TypeAlias = tuple[int, int, int, int]
"""Queue, requests, and how far the last of them was behind: bytes, milliseconds."""

class Rules(Protocol):
    def may_send(self) -> bool: ...
    def plan(self, frame: bytes, connection: Connection) -> Plan | None: ...
    def may_pull(self, plan: Plan, queue_id: int) -> bool: ...
    def pulled(
        self, plan: Plan, queue_id: int, next_offset: int, committed: int | None
    ) -> None: ...
    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> bool: ...
    def failed(self, error: Exception) -> None: ...

class Peer:
    connection: Connection
    is_reader: bool
    def __init__(self, connection: Connection, ip: bytes, port: int) -> None: ...

class Plan:
    group: str
    topic: str
    key: str
    def __init__(
        self,
        group: str,
        topic: str,
        key: str,
        queues: int,
        is_wanted: Callable[[int, None], bool] | None,
        json: Template,
        binary: Template,
    ) -> None: ...

class Wire:
    messages: int
    waiting_answers: int
    gets: int
    got_messages: int
    def __init__(
        self,
        lane: _fast.Lane,
        store: DefaultMessageStore,
        rules: Rules,
        store_host: Host,
        own_properties: bytes,
        answers: dict[str, tuple[Template, Template]],
        *,
        memory_bytes: int,
        pull_max: int,
    ) -> None: ...
    def approve_topic(self, topic: str, queues: int) -> None: ...
    def forget_topics(self) -> None: ...
    def forget_plans(self) -> None: ...
    def drain_sends(self) -> list[tuple[str, int, int, list[QueueCounts]]]: ...
    def drain_pulls(self) -> list[tuple[Plan, int, int, list[QueueCounts]]]: ...
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
