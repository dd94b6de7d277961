"""The store against a model: any order of sends, flushes, crashes, power cuts and deletions.

The model is a list of what was sent, in the order of the log, and the offset up to which it must
survive. Every rule leaves both alike; invariants compare them.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from roquet.format import commit_log as fmt
from roquet.model.message import StoredMessage
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.queue_reader import ReadRequest
from roquet.store.results import BoundaryType, GetMessageStatus
from roquet.testing.files import RecordingFiles
from tests.campaign import examples
from tests.crash import harness
from tests.crash.harness import ASYNC, SYNC, Driver, Sent, small_config

SEGMENT = 1 << 13
QUEUES = (("Orders", 0), ("Orders", 1), ("Payments", 0))

sizes = st.sampled_from((0, 5, 120, 500, 1500))
queues = st.sampled_from(QUEUES)
keys = st.lists(st.sampled_from(("red", "green", "blue")), max_size=2, unique=True)
seeds = st.integers(0, 1 << 30)


class StoreMachine(RuleBasedStateMachine):
    """One store, its model, and the disk below it."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="roquet-machine-"))
        self.roots = 0
        self.number = 0
        self.root = self.place / "store0"

    @initialize(is_sync=st.booleans(), ext=st.booleans(), crc=st.booleans(), pool=st.booleans())
    def start(self, *, is_sync: bool, ext: bool, crc: bool, pool: bool) -> None:
        self.config: MessageStoreConfig = small_config(
            SYNC if is_sync else ASYNC,
            segment_bytes=SEGMENT,
            index_entries=20,
            ext=ext,
            crc=crc,
            pool=pool and not is_sync,
            reserved_hours=1,
        )
        self.clock = ManualClock()
        self.files = RecordingFiles(self.root)
        self.driver = Driver(self.root, self.config, self.files, self.clock)
        self.times: dict[bytes, int] = {}
        self.load()

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            self.driver.abandon()
            self.files.release()
        shutil.rmtree(self.place)

    # -- helpers ----------------------------------------------------------------------------

    def load(self) -> None:
        self.driver.open(self.root, self.files)
        kept = harness.check_store(self.driver.store, self.driver.ledger)
        sent = self.driver.ledger.sent = self.driver.ledger.sent[:kept]
        self.driver.ledger.sure = kept
        # A power cut may leave a part of a batch, so its known end has to follow.
        found = [*harness.log_records(self.driver.store)]
        for entry, message in zip(sent[kept - len(found) :], found, strict=True):
            entry.end_offset = message.physical_offset + message.store_size

    def make(self, key: tuple[str, int], size: int, words: list[str]) -> Sent:
        self.number += 1
        properties = {"n": str(self.number), "UNIQ_KEY": f"u{self.number}"}
        if words:
            properties["KEYS"] = " ".join(words)
        entry = Sent(*key, f"{self.number:08d}:".encode() + b"x" * size, properties)
        self.times[entry.body] = self.clock.now_ms()
        return entry

    def living(self, key: tuple[str, int]) -> list[Sent]:
        """The part of a queue that the log still holds and shows."""
        log = self.driver.store.commit_log
        return [
            sent
            for sent in self.driver.ledger.sent
            if sent.key == key and self.start_of(sent) >= log.min_offset and self.is_shown(sent)
        ]

    def start_of(self, sent: Sent) -> int:
        """An offset in the segment of a message, enough to tell whether it was deleted."""
        return sent.end_offset - 1

    def is_shown(self, sent: Sent) -> bool:
        return sent.end_offset <= self.driver.store.confirm_offset

    # -- sending ----------------------------------------------------------------------------

    @rule(key=queues, size=sizes, words=keys)
    def append(self, key: tuple[str, int], size: int, words: list[str]) -> None:
        self.driver.put([self.make(key, size, words)])

    @rule(key=queues, parts=st.lists(sizes, min_size=1, max_size=5))
    def append_batch(self, key: tuple[str, int], parts: list[int]) -> None:
        self.driver.put_batch([self.make(key, size, []) for size in parts])

    @rule(parts=st.lists(st.tuples(queues, sizes, keys), min_size=1, max_size=8))
    def append_burst(self, parts: list[tuple[tuple[str, int], int, list[str]]]) -> None:
        self.driver.put_burst([self.make(*part) for part in parts])

    @rule()
    def flush(self) -> None:
        self.driver.store.flusher.flush_all()
        self.driver.note_safe()

    @rule(is_thorough=st.booleans())
    def flush_logics(self, *, is_thorough: bool) -> None:
        if is_thorough:
            self.clock.advance(60_001)
        self.driver.flush_logics()

    @rule(millis=st.sampled_from((1, 40, 5000, 7_200_000)))
    def pass_time(self, millis: int) -> None:
        self.clock.advance(millis)

    # -- reading ----------------------------------------------------------------------------

    @rule(key=queues, back=st.integers(-2, 40))
    def get(self, key: tuple[str, int], back: int) -> None:
        living = self.living(key)
        queue = self.driver.store.queues.find(*key)
        if queue is None or not living:
            return
        offset = living[-1].queue_offset - back
        result = self.driver.store.reader.get_message(ReadRequest(*key, offset, 8))
        end = living[-1].queue_offset + 1
        if offset > end:
            assert result.status is GetMessageStatus.OFFSET_OVERFLOW_BADLY
        elif offset == end:
            assert result.status is GetMessageStatus.OFFSET_OVERFLOW_ONE
        elif offset < queue.min_queue_offset:
            assert result.status is GetMessageStatus.OFFSET_TOO_SMALL
            assert result.next_begin_offset == queue.min_queue_offset
        elif offset >= living[0].queue_offset:
            assert result.status is GetMessageStatus.FOUND
            assert result.queue_offsets[0] == offset
            found = fmt.decode_record(result.slices[0], 0, len(result.slices[0]))
            assert found.body == living[offset - living[0].queue_offset].body

    @rule(topic=st.sampled_from(("Orders", "Payments")), word=st.sampled_from(("red", "blue")))
    def query_by_key(self, topic: str, word: str) -> None:
        """The newest messages with a key, as many as a query may return."""
        wanted = [
            sent.body
            for key in QUEUES
            for sent in self.living(key)
            if sent.topic == topic and word in sent.properties.get("KEYS", "").split()
        ]
        result = self.driver.store.reader.query_message(topic, word, 64, 0, 1 << 60)
        found = {fmt.decode_record(r, 0, len(r)).body for r in result.records}
        assert found <= set(wanted)
        if len(wanted) < 32:
            assert found == set(wanted)

    @rule(key=queues, shift=st.integers(-3, 3), pick=st.integers(0, 1 << 16))
    def offset_by_time(self, key: tuple[str, int], shift: int, pick: int) -> None:
        living = self.living(key)
        queue = self.driver.store.queues.find(*key)
        if not living or queue is None or queue.min_queue_offset != living[0].queue_offset:
            return
        stamps = self.stamps(living)
        time_ms = stamps[pick % len(stamps)] + shift
        first = living[0].queue_offset
        at_or_after = sum(stamp < time_ms for stamp in stamps)
        upto = sum(stamp <= time_ms for stamp in stamps)
        reader = self.driver.store.reader
        assert reader.offset_by_time(*key, time_ms, BoundaryType.LOWER) == first + at_or_after
        upper = first + max(upto - 1, 0)
        assert reader.offset_by_time(*key, time_ms, BoundaryType.UPPER) == upper

    def stamps(self, living: list[Sent]) -> list[int]:
        """Store times; the clock never goes back here, so they are those of the sends."""
        return [self.times[sent.body] for sent in living]

    # -- starts and stops ----------------------------------------------------------------------

    @rule()
    def clean_restart(self) -> None:
        self.driver.store.shutdown()
        self.driver.ledger.sure = len(self.driver.ledger.sent)
        self.load()

    @rule()
    def kill(self) -> None:
        """The process ends; the page cache stays."""
        expected = self.driver.ledger.copy()
        expected.note_safe(self.driver.store.commit_log.max_offset)
        self.driver.abandon()
        self.load()
        assert len(self.driver.ledger.sent) >= expected.sure

    @rule(seed=seeds, by_sector=st.booleans())
    def power_cut(self, *, seed: int, by_sector: bool) -> None:
        """The machine ends; what was not synced is there in part, or not."""
        self.roots += 1
        image = self.place / f"store{self.roots}"
        self.files.image(random.Random(seed), image, by_sector=by_sector)
        self.driver.abandon()
        self.files.release()
        shutil.rmtree(self.root)
        self.root = image
        self.files = RecordingFiles(image)
        self.load()

    @precondition(lambda self: len(self.driver.store.commit_log.queue.segments) > 1)
    @rule(count=st.integers(1, 3))
    def delete_expired(self, count: int) -> None:
        log = self.driver.store.commit_log
        for number, segment in enumerate(log.queue.segments):
            age_s = 2 * 3600 if number < count else 0
            os.utime(segment.path, (self.clock.now_ms() / 1000 - age_s,) * 2)
        limit = min(log.flushed_offset, self.driver.store.queues.synced_offset)
        may_go = sum(segment.end_offset <= limit for segment in log.queue.segments[:-1])
        before = len(log.queue.segments)
        self.clock.advance(10_001)
        self.driver.housekeeping()
        assert before - len(log.queue.segments) == min(count, may_go)

    # -- what always holds -----------------------------------------------------------------------

    @invariant()
    def offsets_go_on(self) -> None:
        if not hasattr(self, "driver"):
            return
        store = self.driver.store
        for key in QUEUES:
            queue = store.queues.find(*key)
            if queue is None:
                continue
            sent = [s for s in self.driver.ledger.sent if s.key == key]
            assert queue.next_queue_offset == len(sent), "the next offset is not the next"
            assert queue.min_queue_offset <= queue.max_queue_offset <= queue.next_queue_offset
        log = store.commit_log
        assert log.min_offset <= log.flushed_offset <= log.max_offset <= log.wrote_offset

    @invariant()
    def what_is_shown_is_what_was_sent(self) -> None:
        if not hasattr(self, "driver"):
            return
        for key in QUEUES:
            living = self.living(key)
            read: list[StoredMessage] = []
            if living:
                read = harness.read_queue(self.driver.store, key, may_expire=True)
            assert [m.body for m in read] == [s.body for s in living], key


@pytest.mark.hypothesis
def test_the_store_does_what_the_model_does() -> None:
    rounds = int(os.environ.get("ROQUET_CRASH_ROUNDS", "1"))
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=examples(150 * rounds),
            stateful_step_count=40,
            phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink),
        ),
    )
