"""What the crash tests share: a ledger of the sent messages, a store driven by hand, a full check.

Without threads every session repeats from its seed: the rounds of the store's workers are run
where the session says so.
"""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from roquet.format import commit_log as fmt
from roquet.format.batch import encode_batch
from roquet.model import properties as prop
from roquet.model import sys_flag as flags
from roquet.model.message import BatchMessage, BrokerMessage, StoredMessage
from roquet.model.properties import encode_properties
from roquet.model.topic import SCHEDULE_TOPIC
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.config import FlushDiskType, MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.inspect.verify import verify
from roquet.store.queue_reader import ReadRequest
from roquet.store.results import GetMessageStatus, PutMessageResult
from roquet.store.running_flags import RunningFlag
from roquet.storefiles.view import StoreView
from roquet.testing.files import QuickFiles

QueueKey = tuple[str, int]

TOPICS = ("Orders", "Payments", "T" * 127, "%RETRY%" + "g" * 200)
SYNC = FlushDiskType.SYNC_FLUSH
ASYNC = FlushDiskType.ASYNC_FLUSH


def small_config(
    flush: FlushDiskType = SYNC,
    *,
    segment_bytes: int = 1 << 15,
    index_entries: int = 100,
    pool: bool = False,
    ext: bool = False,
    crc: bool = False,
    index: bool = True,
    reserved_hours: int = 72,
    disk_warning_percent: int = 100,
) -> MessageStoreConfig:
    """Files so small that a short session rolls all kinds of them."""
    return MessageStoreConfig(
        commit_log_file_bytes=segment_bytes,
        consume_queue_file_bytes=600,
        consume_queue_ext_file_bytes=2048,
        index_slots=50,
        index_entries=index_entries,
        flush_disk_type=flush,
        transient_store_pool=pool,
        transient_store_pool_size=2,
        consume_queue_ext=ext,
        append_property_crc=crc,
        message_index=index,
        file_reserved_hours=reserved_hours,
        delete_when=";".join(f"{hour:02d}" for hour in range(24)),
        delete_commit_log_interval_ms=0,
        disk_max_used_percent=100,
        disk_clean_forcibly_percent=100,
        disk_warning_percent=disk_warning_percent,
    )


class Identity(NamedTuple):
    """The fields of a record that the sender knows."""

    topic: str
    queue_id: int
    queue_offset: int
    sys_flag: int
    body: bytes
    properties: dict[str, str]


@dataclass
class Sent:
    """One message, and its outcome as far as the sender knows."""

    topic: str
    queue_id: int
    body: bytes
    properties: dict[str, str]
    sys_flag: int = 0
    queue_offset: int = 0
    end_offset: int = -1
    acked: bool = False

    @property
    def key(self) -> QueueKey:
        return self.topic, self.queue_id

    @property
    def takes_offset(self) -> bool:
        return flags.takes_queue_offset(self.sys_flag)

    @property
    def identity(self) -> Identity:
        """What a record of it must say."""
        return Identity(
            self.topic,
            self.queue_id,
            self.queue_offset,
            self.sys_flag,
            self.body,
            self.properties,
        )

    def message(self) -> BrokerMessage:
        return BrokerMessage(
            self.topic,
            self.queue_id,
            self.body,
            encode_properties(self.properties),
            sys_flag=self.sys_flag,
            born_timestamp_ms=1,
        )


@dataclass
class Ledger:
    """All messages that the log may hold, in its order.

    ``sure`` counts those that must survive any crash.
    """

    sent: list[Sent] = field(default_factory=list)
    sure: int = 0
    numbers: int = 0

    def copy(self) -> Ledger:
        return Ledger(list(self.sent), self.sure, self.numbers)

    def next_queue_offset(self, key: QueueKey) -> int:
        return sum(1 for sent in self.sent if sent.key == key and sent.takes_offset)

    def begin(self, entries: Sequence[Sent]) -> None:
        """Take note before the store sees them."""
        for entry in entries:
            if entry.takes_offset:
                entry.queue_offset = self.next_queue_offset(entry.key)
            self.sent.append(entry)

    def refused(self, entries: Sequence[Sent]) -> None:
        """The store refused them; those after them in their queues move up."""
        gone = {id(entry) for entry in entries}
        self.sent = [sent for sent in self.sent if id(sent) not in gone]
        for key in {entry.key for entry in entries}:
            places = (s for s in self.sent if s.key == key and s.takes_offset)
            for queue_offset, sent in enumerate(places):
                sent.queue_offset = queue_offset

    def note_safe(self, safe_offset: int, *, with_acked: bool = False) -> None:
        """Everything that ends before a physical offset must survive from now on."""
        for number, sent in enumerate(self.sent, start=1):
            if 0 <= sent.end_offset <= safe_offset or (with_acked and sent.acked):
                self.sure = max(self.sure, number)

    def make(self, rng: random.Random, *, kind: str = "plain") -> Sent:
        """A message with a body that no other has."""
        self.numbers += 1
        topic = TOPICS[min(int(rng.expovariate(1.0)), len(TOPICS) - 1)]
        sys_flag = 0
        size = rng.choice((0, 0, 10, 100, 400, 900, 3000, 6000))
        filler = b"\0" if rng.random() < 0.2 else b"x"
        properties = {"n": str(self.numbers)}
        if rng.random() < 0.7:
            properties[prop.KEYS] = f"key{self.numbers} shared{self.numbers % 7}"
        if rng.random() < 0.7:
            properties[prop.UNIQ_CLIENT_MESSAGE_ID_KEYIDX] = f"uniq{self.numbers}"
        if rng.random() < 0.5:
            properties[prop.TAGS] = rng.choice(("a", "b", "Tag-c"))
        if rng.random() < 0.15:
            properties["long"] = "p" * rng.choice((300, 2000))
        if kind == "prepared":
            sys_flag = flags.TRANSACTION_PREPARED
        elif kind == "rollback":
            sys_flag = flags.TRANSACTION_ROLLBACK
        elif kind == "delayed":
            topic = SCHEDULE_TOPIC
            properties[prop.DELAY_TIME_LEVEL] = str(rng.randrange(1, 19))
        body = f"{self.numbers:08d}:".encode() + filler * size
        return Sent(topic, rng.randrange(2), body, properties, sys_flag)


class Driver:
    """A store without threads, and the ledger of its messages."""

    def __init__(
        self, root: Path, config: MessageStoreConfig, files: Files, clock: ManualClock
    ) -> None:
        self.config = config
        self.clock = clock
        self.ledger = Ledger()
        self.fatal: list[OSError] = []
        self.store = self._make(root, files)

    def _make(self, root: Path, files: Files) -> DefaultMessageStore:
        return DefaultMessageStore(
            root, self.config, files=files, clock=self.clock, on_fatal=self.fatal.append
        )

    def open(self, root: Path, files: Files) -> None:
        """Open a store in the state it was left in."""
        self.store = self._make(root, files)
        self.store.load()
        self.store.start(threads=False)

    def adopt(self) -> None:
        """Take what the log was recovered to as the truth; what was sure must be in it."""
        found = [*log_records(self.store)]
        kept = first_of(self.store, found, self.ledger) + len(found)
        assert kept >= self.ledger.sure, f"{kept} kept, {self.ledger.sure} were sure"
        self.ledger.sent = self.ledger.sent[:kept]
        self.ledger.sure = kept

    def submit(self, entries: Sequence[Sent], *, batch: bool = False) -> None:
        """Append without ending the burst."""
        self.ledger.begin(entries)
        message: BrokerMessage | BatchMessage = entries[0].message()
        if batch:
            first = entries[0]
            body = encode_batch((0, e.body, encode_properties(e.properties)) for e in entries)
            message = BatchMessage(first.topic, first.queue_id, body, born_timestamp_ms=1)
        refused: list[PutMessageResult] = []

        def done(result: PutMessageResult) -> None:
            if result.append is None:
                refused.append(result)
            elif result.is_ok:
                for entry in entries:
                    entry.acked = True

        self.store.submit(message, done)
        if refused:
            self.ledger.refused(entries)
            return
        for entry in entries:
            entry.end_offset = self.store.commit_log.wrote_offset

    def put(self, entries: Sequence[Sent]) -> None:
        """One burst of plain sends."""
        for entry in entries:
            self.submit([entry])
        self.store.finish_burst()
        self.note_safe()

    def put_batch(self, entries: Sequence[Sent]) -> None:
        """One batch send."""
        self.submit(entries, batch=True)
        self.store.finish_burst()
        self.note_safe()

    def put_burst(self, entries: Sequence[Sent]) -> None:
        """One burst through the hot path."""
        self.ledger.begin(entries)
        result = self.store.put_burst([entry.message() for entry in entries])
        self.ledger.refused([entries[number] for number in result.refused])
        size = self.config.commit_log_file_bytes
        following = self.store.commit_log.wrote_offset
        for number in range(len(entries) - 1, -1, -1):
            start = result.physical_offsets[number]
            if start >= 0:
                entries[number].end_offset = min(following, start - start % size + size)
                following = start
        self.note_safe()

    def flush_log(self) -> None:
        """A round of the commit and of the flush worker."""
        self.store.flusher._commit_round()
        self.store.flusher._flush_round()
        self.note_safe()

    def flush_logics(self) -> None:
        """A round of the worker that syncs queues, index and checkpoint."""
        self.store.upkeep.flush_logics_round()

    def housekeeping(self) -> None:
        """A round of the worker that deletes and retries."""
        self.store.upkeep.housekeeping_round()

    def note_safe(self) -> None:
        """What is on disk, as the store says, must survive; with SYNC_FLUSH all acknowledged."""
        flushed = self.store.commit_log.flushed_offset
        self.ledger.note_safe(flushed, with_acked=self.config.is_sync_flush)

    def abandon(self) -> None:
        """Release the store as a killed process does: nothing is flushed or marked."""
        abandon(self.store)


def abandon(store: DefaultMessageStore) -> None:
    """Close the descriptors of a store and nothing else."""
    store.flags.set(RunningFlag.SHUT_DOWN)
    with suppress(OSError), ExitStack() as stack:
        stack.callback(store.components.store_lock.release)
        if store.index is not None:
            stack.callback(store.index._release_all)
        stack.callback(store.queues._descriptors.close)
        stack.callback(store.commit_log.queue.close)


def log_records(store: DefaultMessageStore) -> Iterator[StoredMessage]:
    """Every record of the log, each checked."""
    log = store.commit_log
    offset = log.min_offset
    while offset < log.max_offset:
        segment = log.queue.find(offset)
        assert segment is not None, f"no segment at {offset}"
        position = offset - segment.start_offset
        found = fmt.check_record(
            segment.view, position, segment.size_bytes, physical_offset=offset, rules=log.rules
        )
        if isinstance(found, fmt.Blank):
            offset = segment.end_offset
            continue
        assert isinstance(found, fmt.DispatchRequest), f"bad record at {offset}: {found}"
        yield fmt.decode_record(segment.view, position, segment.size_bytes)
        offset = found.end_offset


def identity(message: StoredMessage) -> Identity:
    """What a record says."""
    properties = {name: value for name, value in message.properties.items() if name != prop.CRC32}
    return Identity(
        message.topic,
        message.queue_id,
        message.queue_offset,
        message.sys_flag,
        message.body,
        properties,
    )


def read_queue(
    store: DefaultMessageStore, key: QueueKey, *, may_expire: bool = False
) -> list[StoredMessage]:
    """A queue from its first to its last offset, as a consumer reads it; offsets are dense.

    ``may_expire`` allows for a log whose oldest records were deleted before the queue's first
    offset moved.
    """
    queue = store.queues.find(*key)
    if queue is None:
        return []
    messages: list[StoredMessage] = []
    offset = queue.min_queue_offset
    while True:
        result = store.reader.get_message(ReadRequest(*key, offset, 32))
        if result.status is GetMessageStatus.FOUND:
            expected = offset
            if may_expire and not messages:
                expected = result.queue_offsets[0]
            for data in result.slices:
                position = 0
                while position < len(data):
                    message = fmt.decode_record(data, position, len(data))
                    assert message.queue_offset == expected, f"{key}: gap at {expected}"
                    expected += 1
                    messages.append(message)
                    position += message.store_size
            assert result.next_begin_offset == expected, f"{key}: skipped to another offset"
            offset = expected
            continue
        end = {GetMessageStatus.OFFSET_OVERFLOW_ONE, GetMessageStatus.NO_MESSAGE_IN_QUEUE}
        assert result.status in end, f"{key} offset {offset}: {result.status}"
        return messages


def check_store(store: DefaultMessageStore, ledger: Ledger) -> int:
    """Compare an open store with a ledger; returns how many of the sent messages it has.

    The log must be a leading part of what was sent (its oldest segments may have been deleted),
    reach at least to what was sure, and queues, index and times must agree with the log.
    """
    found = [*log_records(store)]
    sent = ledger.sent
    first = first_of(store, found, ledger)
    kept = first + len(found)
    assert [identity(m) for m in found] == [s.identity for s in sent[first:kept]]
    assert kept >= ledger.sure, f"{kept} of {len(sent)} kept, {ledger.sure} were sure"
    check_queues(store, found)
    check_index(store, found)
    return kept


def first_of(store: DefaultMessageStore, found: Sequence[StoredMessage], ledger: Ledger) -> int:
    """Which of the sent messages is the first in a log whose oldest segments may be gone."""
    if store.commit_log.min_offset == 0:
        return 0
    if found:
        bodies = {entry.body: number for number, entry in enumerate(ledger.sent)}
        return bodies.get(found[0].body, 0)
    return sum(0 <= sent.end_offset <= store.commit_log.min_offset for sent in ledger.sent)


def check_queues(store: DefaultMessageStore, found: Sequence[StoredMessage]) -> None:
    """Every queue holds exactly the records of the log, at dense offsets."""
    by_queue: dict[QueueKey, list[StoredMessage]] = {}
    for message in found:
        if flags.takes_queue_offset(message.sys_flag):
            by_queue.setdefault((message.topic, message.queue_id), []).append(message)
    for key, messages in by_queue.items():
        read = read_queue(store, key)
        assert [identity(m) for m in read] == [identity(m) for m in messages], key
        queue = store.queues.find(*key)
        assert queue is not None
        assert queue.next_queue_offset == messages[-1].queue_offset + 1, key
    for queue in store.queues:
        if (queue.topic, queue.queue_id) not in by_queue:
            assert queue.min_queue_offset == queue.max_queue_offset, f"{queue.topic}: ghosts"


def check_index(store: DefaultMessageStore, found: Sequence[StoredMessage]) -> None:
    """Every key finds its record."""
    if store.index is None:
        return
    for message in found:
        if flags.transaction_type(message.sys_flag) == flags.TRANSACTION_ROLLBACK:
            continue
        for key in (message.unique_key, *message.keys):
            if key is None or key.startswith("shared"):
                continue
            result = store.reader.query_message(message.topic, key, 64, 0, 1 << 62)
            offsets = [fmt.decode_record(r, 0, len(r)).physical_offset for r in result.records]
            assert message.physical_offset in offsets, f"{key} of {message.physical_offset}"


def check_files(root: Path, config: MessageStoreConfig) -> None:
    """The files of a closed store agree with each other, regardless of the clock."""
    with StoreView(Files(), root) as view:
        report = verify(view, ManualClock(1 << 42), index_slots=config.index_slots)
    assert report.ok, report.faults[:5]


def digest(root: Path) -> dict[str, str]:
    """Name and content of every file below a directory."""
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def recover(
    root: Path,
    config: MessageStoreConfig,
    clock: ManualClock,
    ledger: Ledger,
    *,
    files: Files | None = None,
    then: Callable[[DefaultMessageStore], None] | None = None,
) -> int:
    """Open a crashed store, check all of it, close it cleanly, check its files."""
    store = DefaultMessageStore(root, config, files=files or QuickFiles(), clock=clock)
    store.load()
    try:
        kept = check_store(store, ledger)
        store.start(threads=False)
        if then is not None:
            then(store)
    finally:
        store.shutdown()
    assert not (root / "abort").exists()
    check_files(root, config)
    return kept


def copy_tree(source: Path, target: Path) -> Path:
    """A copy of a store as it lies in the page cache, which a killed process leaves behind."""
    shutil.copytree(source, target)
    return target
