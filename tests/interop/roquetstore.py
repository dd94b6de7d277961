"""Roquet's side of the store tests: messages of every kind, and reading a store through its API.

Messages are made from a seed and a number alone, so that a child process and its parent agree.
"""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from roquet.format.batch import encode_batch
from roquet.format.commit_log import decode_record
from roquet.model import sys_flag as flags
from roquet.model.host import Host
from roquet.model.message import BatchMessage, BrokerMessage, StoredMessage
from roquet.model.properties import encode_properties
from roquet.runtime.clock import SystemClock
from roquet.runtime.files import Files
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.inspect.report import Report
from roquet.store.inspect.verify import verify
from roquet.store.queue_reader import ReadRequest
from roquet.store.results import GetMessageStatus, PutMessageResult
from roquet.storefiles.view import StoreView
from tests.interop.oracle import SMALL_FILES

BORN_TIMESTAMP_MS = 1_700_000_000_000
BORN_HOST = Host.parse("192.0.2.17:40001")
BORN_HOST_V6 = Host.parse("[2001:db8::17]:40002")
STORE_HOST = Host.parse("127.0.0.1:10911")

# The hash of the second is negative, which a queue entry must sign-extend.
TAGS = ("TagA", "订单-已支付")

PULL_COUNT = 32
QUERY_COUNT = 64
FOREVER_MS = 1 << 62


@dataclass(frozen=True)
class Ack:
    """A message that the store acknowledged: where it lies and what it holds."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body_sha1: str


def sha1(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()


def visible_body(message: StoredMessage) -> bytes:
    """The body as a consumer sees it."""
    return zlib.decompress(message.body) if message.sys_flag & flags.COMPRESSED else message.body


# Marks in the checkpoint move many times a second, so that a kill finds some of them set.
CONFIG = msgspec.convert(
    {
        **SMALL_FILES,
        "flushIntervalCommitLog": 20,
        "flushCommitLogThoroughInterval": 40,
        "flushIntervalConsumeQueue": 20,
        "flushConsumeQueueThoroughInterval": 40,
    },
    MessageStoreConfig,
)


@contextmanager
def open_store(path: Path) -> Iterator[DefaultMessageStore]:
    """The store, recovered and started; shut down cleanly at the end."""
    store = DefaultMessageStore(path, CONFIG)
    store.load()
    store.start()
    try:
        yield store
    finally:
        store.shutdown()


def put_messages(
    store: DefaultMessageStore, topic: str, *, queues: int, seed: int, first: int, count: int
) -> list[Ack]:
    """Puts messages `first` to `first + count - 1` of a seed as one burst.

    Message i is a batch of three when i mod 20 is 7, and a prepared transaction, which gets no
    place in its queue and no acknowledgement here, when i mod 20 is 13.
    """
    acks: list[Ack] = []
    for i in range(first, first + count):
        rng = random.Random(f"{seed}-{i}")
        message, bodies = _make(topic, i, queues=queues, seed=seed, rng=rng)

        def done(
            result: PutMessageResult,
            queue_id: int = message.queue_id,
            bodies: list[bytes] = bodies,
        ) -> None:
            assert result.is_ok, result
            assert result.append is not None
            for number, body in enumerate(bodies):
                acks.append(
                    Ack(
                        topic,
                        queue_id,
                        result.append.queue_offset + number,
                        result.append.physical_offsets[number],
                        sha1(body),
                    )
                )

        store.submit(message, done)
    store.finish_burst()
    return acks


def _make(
    topic: str, i: int, *, queues: int, seed: int, rng: random.Random
) -> tuple[BrokerMessage | BatchMessage, list[bytes]]:
    """A message and the bodies that a consumer will see of it."""
    queue_id = rng.randrange(queues)
    if i % 20 == 7:
        bodies = [rng.randbytes(rng.randint(1, 300)) for _ in range(3)]
        entries = [
            (number, body, _properties(seed, f"{i}.{number}", rng))
            for number, body in enumerate(bodies)
        ]
        batch = BatchMessage(
            topic,
            queue_id,
            encode_batch(entries),
            born_timestamp_ms=BORN_TIMESTAMP_MS + i,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
        )
        return batch, bodies
    body = rng.randbytes(rng.randint(1, 5000 if i % 17 == 0 else 500))
    is_prepared = i % 20 == 13
    is_compressed = i % 9 == 0 and not is_prepared
    sys_flag = flags.TRANSACTION_PREPARED if is_prepared else 0
    if is_compressed:
        sys_flag |= flags.COMPRESSED | flags.COMPRESSION_ZLIB
    message = BrokerMessage(
        topic,
        queue_id,
        zlib.compress(body) if is_compressed else body,
        _properties(seed, str(i), rng),
        flag=i,
        sys_flag=sys_flag,
        born_timestamp_ms=BORN_TIMESTAMP_MS + i,
        born_host=BORN_HOST_V6 if i % 11 == 0 else BORN_HOST,
        store_host=STORE_HOST,
        reconsume_times=i % 3,
    )
    return message, [] if is_prepared else [body]


def _properties(seed: int, name: str, rng: random.Random) -> bytes:
    properties = {
        "KEYS": f"{seed}-k{name} {seed}-all",
        "UNIQ_KEY": rng.randbytes(16).hex().upper(),
        "seq": name,
        "note": "žluť → 雪 𝄞",
    }
    tags = rng.choice((None, *TAGS))
    if tags is not None:
        properties["TAGS"] = tags
    return encode_properties(properties)


def read_queue(store: DefaultMessageStore, topic: str, queue_id: int) -> list[StoredMessage]:
    """Every message of a queue, as a consumer would pull them from offset 0."""
    messages: list[StoredMessage] = []
    offset = 0
    while True:
        result = store.reader.get_message(ReadRequest(topic, queue_id, offset, PULL_COUNT))
        if result.status is GetMessageStatus.OFFSET_FOUND_NULL:
            offset = result.next_begin_offset
            continue
        if result.status is not GetMessageStatus.FOUND:
            assert result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE, result
            assert offset == result.max_offset
            return messages
        found = list(_decode(result.body()))
        assert [message.queue_offset for message in found] == result.queue_offsets
        messages += found
        offset = result.next_begin_offset


def query(store: DefaultMessageStore, topic: str, key: str) -> list[StoredMessage]:
    """The messages that a key or unique key finds through the index.

    The index knows hashes only: others with the same hash are dropped, as clients do.
    """
    result = store.reader.query_message(topic, key, QUERY_COUNT, 0, FOREVER_MS)
    messages = [message for record in result.records for message in _decode(bytes(record))]
    return [item for item in messages if key in {*item.keys, item.unique_key}]


def verify_store(path: Path) -> Report:
    """What `roquet store verify` finds in a store."""
    with StoreView(Files(), path) as view:
        return verify(view, SystemClock(), index_slots=int(SMALL_FILES["maxHashSlotNum"]))


def _decode(data: bytes) -> Iterator[StoredMessage]:
    position = 0
    while position < len(data):
        message = decode_record(data, position, len(data))
        yield message
        position += message.store_size
