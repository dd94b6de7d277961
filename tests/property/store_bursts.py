"""Bursts of messages for tests that put the same into several stores.

Messages are drawn so that plain and unusual ones meet: transactions, delays, IPv6, non-ASCII keys,
CRC properties, NULs, too long bodies, ends of segments, queue files and index files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path

import pytest
from hypothesis import strategies as st

from roquet.model.host import Host
from roquet.model.message import BrokerMessage
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.consume_queue import ConsumeQueue
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.index_mark import MARK_FILE
from roquet.store.results import PutMessageResult
from roquet.storefiles.layout import MANIFEST_FILE

Bursts = list[tuple[list[BrokerMessage], int]]


class Way(Enum):
    """Which code appends plain messages; all others take the reference path."""

    REFERENCE = "reference"
    COMPILED = "compiled"


CONFIG = MessageStoreConfig(
    commit_log_file_bytes=1 << 12,
    consume_queue_file_bytes=200,
    index_slots=7,
    index_entries=23,
    max_message_bytes=200,
)

HOSTS = st.sampled_from(
    [
        Host(b"\x7f\0\0\1", 10911),
        Host(b"\x0a\0\0\2", 65535),
        Host(bytes(15) + b"\1", 80),
        Host(b"\x7f\0\0\1", 2**31),
    ]
)
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "A", "", "__CRC32#", "TAG"])
VALUES = st.sampled_from(
    [
        "7F0000010001DEADBEEF0001",
        "",
        "a",
        "k1 k2",
        "  x ",
        "tag",
        "3",
        "é",
        "😀",
        "1234567890",
        "a\x01b",
        "n\0",
    ]
)
PROPERTIES = st.one_of(
    st.lists(st.tuples(NAMES, VALUES), max_size=6).map(
        lambda pairs: "".join(f"{n}\x01{v}\x02" for n, v in pairs).encode()
    ),
    st.binary(max_size=40),
)
TOPICS = st.sampled_from(
    ["T", "Topic-2", "SCHEDULE_TOPIC_XXXX", "%RETRY%" + "g" * 130, "Thème", "bad/name", "x" * 127]
)
MESSAGES = st.builds(
    BrokerMessage,
    topic=TOPICS,
    queue_id=st.integers(-1, 2),
    body=st.one_of(st.binary(max_size=100), st.just(b"x" * 201), st.just(b"y" * 200)),
    properties=PROPERTIES,
    flag=st.sampled_from([0, 1, -1, 2**31 - 1, 2**31, 2**70]),
    sys_flag=st.sampled_from([0, 0, 0, 1, 2, 4, 8, 0xC, 0x10, 0x20, 0x80, 0x301]),
    born_timestamp_ms=st.integers(0, 2**42),
    born_host=HOSTS,
    store_host=HOSTS,
    reconsume_times=st.sampled_from([0, 1, 3, 2**31]),
    prepared_transaction_offset=st.sampled_from([0, 7, 2**40]),
)
ORDINARY = st.builds(
    BrokerMessage,
    topic=st.sampled_from(["T", "Topic-2", "Thème", "x" * 127]),
    queue_id=st.integers(0, 2),
    body=st.binary(max_size=100),
    properties=PROPERTIES,
    flag=st.sampled_from([0, 7]),
    sys_flag=st.sampled_from([0, 1, 0x80]),
    born_timestamp_ms=st.integers(0, 2**42),
    born_host=st.sampled_from([Host(b"\x7f\0\0\1", 10911), Host(b"\x0a\0\0\2", 65535)]),
    store_host=st.just(Host(b"\x7f\0\0\1", 10911)),
    reconsume_times=st.sampled_from([0, 3]),
    prepared_transaction_offset=st.just(0),
    wait_store_ok=st.booleans(),
)
DELAYS = st.sampled_from(["0", "1", "3", "18", "19", "999999999", "12345678901", "-1", "+2", "x"])
DELAYED = st.builds(
    BrokerMessage,
    topic=st.just("SCHEDULE_TOPIC_XXXX"),
    queue_id=st.integers(0, 2),
    body=st.binary(max_size=100),
    properties=st.tuples(PROPERTIES, DELAYS, PROPERTIES).map(
        lambda parts: parts[0] + b"\x02DELAY\x01" + parts[1].encode() + b"\x02" + parts[2]
    ),
    flag=st.sampled_from([0, 7]),
    sys_flag=st.sampled_from([0, 1]),
    born_timestamp_ms=st.integers(0, 2**42),
    born_host=HOSTS,
    store_host=st.just(Host(b"\x7f\0\0\1", 10911)),
    reconsume_times=st.sampled_from([0, 3]),
    prepared_transaction_offset=st.just(0),
    wait_store_ok=st.booleans(),
)
BURSTS = st.lists(
    st.tuples(
        st.lists(st.one_of(ORDINARY, ORDINARY, DELAYED, MESSAGES), max_size=12),
        st.integers(-50, 2000),
    ),
    min_size=1,
    max_size=8,
)


def contents(root: Path) -> dict[str, bytes]:
    """All files of a store by name; index files by their order, not by their time.

    How far the index was synced before the store was closed is a matter of time.
    """
    found: dict[str, bytes] = {}
    for number, path in enumerate(sorted(root.rglob("*"))):
        if path.is_file() and path.name not in {"abort", "lock", MARK_FILE}:
            name = f"index-{number}" if path.parent.name == "index" else path.relative_to(root)
            found[str(name)] = path.read_bytes()
    for number, path in enumerate(sorted((root / "index").glob("*"))):
        named = path.name.encode(), b"index-%d" % number
        found[MANIFEST_FILE] = found[MANIFEST_FILE].replace(*named)
    return found


def make_store(
    root: Path, config: MessageStoreConfig, way: Way, clock: ManualClock
) -> DefaultMessageStore:
    """A store that appends in a given way, not loaded yet."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROQUET_PURE", "0" if way is Way.COMPILED else "1")
        store = DefaultMessageStore(root, config, clock=clock)
    assert (store.appender.compiled is not None) == (way is Way.COMPILED)
    return store


def open_store(
    root: Path, config: MessageStoreConfig, way: Way, clock: ManualClock
) -> DefaultMessageStore:
    """A store that appends in a given way."""
    store = make_store(root, config, way, clock)
    store.load()
    store.start()
    return store


@contextmanager
def closing(store: DefaultMessageStore) -> Iterator[None]:
    """Shut a store down in any case, so that no thread of it is left."""
    try:
        yield
    finally:
        store.shutdown()


def put_bursts(root: Path, bursts: Bursts, config: MessageStoreConfig, way: Way) -> list[object]:
    """Put all bursts; return the results."""
    clock = ManualClock(1_700_000_000_000)
    store = open_store(root, config, way, clock)
    answers: list[object] = []
    with closing(store):
        for messages, millis in bursts:
            result = store.put_burst(messages)
            answers.append((list(result.queue_offsets), list(result.physical_offsets)))
            answers.append({k: (v.status, v.detail) for k, v in result.refused.items()})
            clock.advance(millis)
    answers.append((store.dispatcher.store_timestamp_ms, store.commit_log.store_timestamp_ms))
    answers.append((store.stats.put_messages, store.stats.put_bytes, store.stats.put_failed))
    return answers


def submit_bursts(root: Path, bursts: Bursts, config: MessageStoreConfig, way: Way) -> list[object]:
    """Submit all messages one by one; return the results."""
    clock = ManualClock(1_700_000_000_000)
    store = open_store(root, config, way, clock)
    # The reported end of each queue; the number of steps depends on when the disk was done.
    grown: dict[tuple[str, int], int] = {}

    def arrived(queue: ConsumeQueue) -> None:
        assert queue.max_queue_offset > grown.get((queue.topic, queue.queue_id), 0)
        grown[queue.topic, queue.queue_id] = queue.max_queue_offset

    store.dispatcher.arriving.append(arrived)
    answers: list[object] = []
    with closing(store):
        for messages, millis in bursts:
            results: dict[int, PutMessageResult] = {}
            for number, message in enumerate(messages):
                store.submit(message, partial(results.__setitem__, number))
            store.finish_burst()
            answers.append(results)
            clock.advance(millis)
    answers += (grown, store.dispatcher.store_timestamp_ms, store.commit_log.store_timestamp_ms)
    answers.append((store.stats.put_messages, store.stats.put_bytes, store.stats.put_failed))
    return answers
