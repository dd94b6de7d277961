"""Small stores for tests: everything runs on the test's own thread, in an order it chooses."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from roquet.format.commit_log import DispatchRequest
from roquet.model.host import LOOPBACK, Host
from roquet.model.message import BatchMessage, BrokerMessage
from roquet.model.properties import encode_properties
from roquet.runtime.clock import Clock, ManualClock
from roquet.runtime.files import DiskUsage, Files
from roquet.store.config import MessageStoreConfig, replace
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import PutMessageResult

NOW_MS = 1_700_000_000_000
SEGMENT_BYTES = 1 << 14
FOREVER_MS = 1 << 62
CONFIG = MessageStoreConfig(
    commit_log_file_bytes=SEGMENT_BYTES,
    consume_queue_file_bytes=200,
    consume_queue_ext_file_bytes=400,
    index_slots=20,
    index_entries=50,
    max_message_bytes=SEGMENT_BYTES,
    delete_commit_log_interval_ms=0,
    archived_reserved_hours=0,
)


def config(**changes: object) -> MessageStoreConfig:
    return replace(CONFIG, **changes)


def message(
    body: bytes = b"body",
    *,
    topic: str = "T",
    queue_id: int = 0,
    properties: bytes = b"",
    sys_flag: int = 0,
    born_host: Host = LOOPBACK,
    store_host: Host = LOOPBACK,
    wait_store_ok: bool = True,
    **named: str,
) -> BrokerMessage:
    return BrokerMessage(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=properties or encode_properties(named),
        sys_flag=sys_flag,
        born_timestamp_ms=NOW_MS - 5,
        born_host=born_host,
        store_host=store_host,
        wait_store_ok=wait_store_ok,
    )


def new_store(
    root: Path,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    config: MessageStoreConfig = CONFIG,
) -> DefaultMessageStore:
    """A store that is not loaded yet, with settings of its own."""
    own = replace(config)
    return DefaultMessageStore(root, own, files=files, clock=clock or ManualClock(NOW_MS))


def open_store(
    root: Path,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    config: MessageStoreConfig = CONFIG,
) -> DefaultMessageStore:
    """A store that takes puts and has no threads."""
    store = new_store(root, files=files, clock=clock, config=config)
    store.load()
    store.start(threads=False)
    return store


@contextmanager
def opened(
    root: Path,
    *,
    files: Files | None = None,
    clock: Clock | None = None,
    config: MessageStoreConfig = CONFIG,
) -> Iterator[DefaultMessageStore]:
    """As :func:`open_store`, shut down at the end."""
    store = open_store(root, files=files, clock=clock, config=config)
    try:
        yield store
    finally:
        store.shutdown()


def put(store: DefaultMessageStore, *messages: BrokerMessage | BatchMessage) -> None:
    """Append messages that must be taken, as one burst."""
    refused: list[PutMessageResult] = []

    def done(result: PutMessageResult) -> None:
        if not result.is_stored:
            refused.append(result)

    for one in messages:
        store.submit(one, done)
    store.finish_burst()
    assert refused == []


def answer(store: DefaultMessageStore, one: BrokerMessage | BatchMessage) -> PutMessageResult:
    """The result of a put that does not have to wait."""
    answers: list[PutMessageResult] = []
    store.submit(one, answers.append)
    store.finish_burst()
    assert len(answers) == 1, "the result waits"
    return answers[0]


def refusal(store: DefaultMessageStore, one: BrokerMessage | BatchMessage) -> tuple[str, str]:
    """Status and detail of a put that must be refused."""
    end = store.commit_log.wrote_offset
    queue_end = store.max_offset_in_queue(one.topic, one.queue_id, committed=False)
    result = answer(store, one)
    assert result.append is None
    assert not result.is_stored
    assert result.detail
    assert store.commit_log.wrote_offset == end
    assert store.max_offset_in_queue(one.topic, one.queue_id, committed=False) == queue_end
    return result.status.value, result.detail


def bodies(store: DefaultMessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """Everything a consumer of a queue gets, from its first offset on."""
    found: list[bytes] = []
    offset = max(store.min_offset_in_queue(topic, queue_id), 0)
    while offset < store.max_offset_in_queue(topic, queue_id):
        result = store.get_message(topic, queue_id, offset, 32)
        position, data = 0, result.body()
        while position < len(data):
            size = int.from_bytes(data[position : position + 4], "big")
            body_bytes = int.from_bytes(data[position + 84 : position + 88], "big")
            found.append(data[position + 88 : position + 88 + body_bytes])
            position += size
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found


def hash_of(root: Path) -> str:
    """Digest of all names and bytes of a store, except its lock, which must not be opened."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.name != "lock":
            digest.update(str(path.relative_to(root)).encode() + b"\0")
            digest.update(path.read_bytes() if path.is_file() else b"")
    return digest.hexdigest()


def request(
    queue_offset: int,
    physical_offset: int,
    *,
    topic: str = "T",
    queue_id: int = 0,
    size_bytes: int = 100,
    store_timestamp_ms: int = NOW_MS,
) -> DispatchRequest:
    """The dispatch request of a record."""
    return DispatchRequest(
        topic,
        queue_id,
        physical_offset,
        size_bytes,
        0,
        store_timestamp_ms,
        queue_offset,
        "",
        None,
        0,
        0,
        {},
    )


class DiskOf(Files):
    """A file system that reports to be as full as a test wants."""

    def __init__(self, used_percent: float = 10.0) -> None:
        self.used_percent = used_percent

    def disk_usage(self, path: Path) -> DiskUsage:
        assert path.is_dir()
        return DiskUsage(total_bytes=10_000, free_bytes=round(10_000 - 100 * self.used_percent))


def fill(store: DefaultMessageStore, count: int, size: int = 1000) -> None:
    for number in range(count):
        put(store, message(b"%04d" % number * (size // 4), queue_id=number % 2, KEYS=f"k{number}"))
