from array import array

from roquet.model.message import BrokerMessage
from roquet.store.commit_log import CommitLog
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.consume_queue_store import ConsumeQueueStore
from roquet.store.dispatch import Dispatcher
from roquet.store.index import IndexService

def crc32(data: bytes | memoryview) -> int: ...
def walk(
    view: bytes | memoryview, position: int, limit: int, start_offset: int, check_crc: bool
) -> tuple[int, int, int, int]: ...
def fits_entry(
    record: bytes | memoryview,
    physical_offset: int,
    topic: bytes,
    queue_id: int,
    queue_offset: int,
    tags_code: int,
) -> bool: ...
def write_pending(touched: list[ConsumeQueue], grown: list[ConsumeQueue]) -> None: ...

class Lane:
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
        self, view: bytes | memoryview, position: int, limit: int, start_offset: int
    ) -> int: ...
