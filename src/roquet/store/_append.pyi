from array import array

from roquet.model.message import BrokerMessage
from roquet.store.commit_log import CommitLog
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import Dispatcher
from roquet.store.index import IndexService

class PlainAppender:
    def __init__(
        self,
        commit_log: CommitLog,
        queues: ConsumeQueueStore,
        index: IndexService | None,
        dispatcher: Dispatcher,
        *,
        max_body_bytes: int,
    ) -> None: ...
    def append(
        self,
        messages: list[BrokerMessage],
        first: int,
        now_ms: int,
        dispatch: bool,
        queue_offsets: array[int],
        physical_offsets: array[int],
    ) -> int: ...
    def redispatch(
        self,
        view: bytes | memoryview,
        position: int,
        limit: int,
        start_offset: int,
        check_crc: bool,
    ) -> int: ...
