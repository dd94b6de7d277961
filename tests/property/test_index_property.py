"""The index against a model: the same entries as plain lists, searched by brute force."""

from __future__ import annotations

import shutil
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from roquet.format.commit_log import DispatchRequest
from roquet.format.index_file import HEADER_BYTES
from roquet.model.java_string import index_key_hash
from roquet.runtime.clock import ManualClock
from roquet.runtime.files import Files
from roquet.store.index import IndexService
from tests.campaign import examples

SLOTS = 5
ENTRIES = 8
T0 = 1_700_000_000_000
FOREVER_MS = 1 << 62
RECORD_BYTES = 100
KEYS = ["a", "b", "c", "ключ", "🔑", "Aa", "BB"]  # the last two share a hash


class Entry(NamedTuple):
    key_hash: int
    physical_offset: int
    seconds: int


class ModelFile:
    def __init__(self, begin_ms: int = 0, end_ms: int = 0, end_offset: int = 0) -> None:
        self.begin_ms, self.end_ms, self.end_offset = begin_ms, end_ms, end_offset
        self.begin_offset = end_offset
        self.entries: list[Entry] = []

    @property
    def is_full(self) -> bool:
        return len(self.entries) == ENTRIES - 1

    def put(self, key_hash: int, physical_offset: int, timestamp_ms: int) -> None:
        seconds = (timestamp_ms - self.begin_ms) // 1000 if self.begin_ms else 0
        self.entries.append(Entry(key_hash, physical_offset, max(seconds, 0)))
        if len(self.entries) == 1:
            self.begin_ms, self.begin_offset = timestamp_ms, physical_offset
        self.end_ms, self.end_offset = timestamp_ms, physical_offset


class ModelIndex:
    def __init__(self) -> None:
        self.files: list[ModelFile] = []

    def build(self, request: DispatchRequest) -> None:
        if self.files and request.physical_offset < self.files[-1].end_offset:
            return
        for key in request.keys.split():
            if not self.files:
                self.files.append(ModelFile())
            elif self.files[-1].is_full:
                last = self.files[-1]
                self.files.append(ModelFile(last.end_ms, last.end_ms, last.end_offset))
            self.files[-1].put(
                index_key_hash(request.topic, key),
                request.physical_offset,
                request.store_timestamp_ms,
            )

    def query(self, key_hash: int, max_num: int, begin_ms: int, end_ms: int) -> list[int]:
        found: list[int] = []
        for file in reversed(self.files):
            if begin_ms <= file.end_ms and end_ms >= file.begin_ms:
                chain = [
                    e for e in reversed(file.entries) if e.key_hash % SLOTS == key_hash % SLOTS
                ]
                for entry in chain:
                    time_ms = file.begin_ms + entry.seconds * 1000
                    if entry.key_hash == key_hash and begin_ms <= time_ms <= end_ms:
                        found.append(entry.physical_offset)
                    if time_ms < begin_ms:
                        break
            if file.begin_ms < begin_ms or len(found) >= max_num:
                break
        return found[:max_num]


class IndexAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp()) / "index"
        self.clock = ManualClock(T0)
        self.log: list[DispatchRequest] = []
        self.log_end = 0
        self.checkpoint_ms = 0
        self.model = ModelIndex()
        self.index = self.service()

    def service(self) -> IndexService:
        return IndexService(Files(), self.root, slots=SLOTS, entries=ENTRIES, clock=self.clock)

    def teardown(self) -> None:
        self.index.close()
        shutil.rmtree(self.root.parent)

    def put(self, request: DispatchRequest) -> None:
        self.index.build(request)
        self.model.build(request)

    def put_again(self, resume_offset: int) -> None:
        for request in self.log:
            if request.physical_offset >= resume_offset:
                self.put(request)

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=4), pause_ms=st.integers(0, 2500))
    def append(self, keys: list[str], pause_ms: int) -> None:
        self.clock.advance(pause_ms)
        request = DispatchRequest(
            topic="T",
            queue_id=0,
            physical_offset=self.log_end,
            size_bytes=RECORD_BYTES,
            tags_code=0,
            store_timestamp_ms=self.clock.now_ms(),
            queue_offset=0,
            keys=" ".join(keys),
            unique_key=None,
            sys_flag=0,
            prepared_transaction_offset=0,
            properties={},
        )
        self.log.append(request)
        self.log_end += RECORD_BYTES
        self.put(request)

    @rule()
    def flush(self) -> None:
        self.checkpoint_ms = self.index.flush(thorough=False)
        full = [file.end_ms for file in self.model.files if file.is_full]
        assert self.checkpoint_ms == (full[-1] if full else 0)

    @rule()
    def restart_cleanly(self) -> None:
        self.index.close()
        self.index = self.service()
        assert self.index.load(last_exit_ok=True, index_msg_timestamp_ms=0) is None

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """A full file that was not synced comes back without its header, or with odd entries."""
        unsynced = [file.path for file in self.index.index_files if not file.is_durable]
        self.index.close()
        for path in unsynced:
            lost = data.draw(st.sampled_from([None, "header", "entries"]), label="lost")
            content = bytearray(path.read_bytes())
            if lost == "header":
                content[:HEADER_BYTES] = bytes(HEADER_BYTES)
            elif lost == "entries":
                content[HEADER_BYTES:] = b"\x01" * (len(content) - HEADER_BYTES)
            path.write_bytes(content)
        self.index = self.service()
        resume_offset = self.index.load(
            last_exit_ok=False, index_msg_timestamp_ms=self.checkpoint_ms
        )
        assert resume_offset is not None
        self.checkpoint_ms = self.index.durable_timestamp_ms
        del self.model.files[self.index.file_count :]
        self.put_again(resume_offset)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def cut_the_log(self, data: st.DataObject) -> None:
        kept = data.draw(st.integers(0, len(self.log)), label="records kept")
        del self.log[kept:]
        self.log_end = self.log[-1].end_offset if self.log else 0
        resume_offset = self.index.doubtful_from(self.log_end)
        self.checkpoint_ms = self.index.durable_timestamp_ms
        del self.model.files[self.index.file_count :]
        assert all(file.end_offset < self.log_end for file in self.model.files)
        if resume_offset is not None:
            self.put_again(resume_offset)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        gone = data.draw(st.integers(0, len(self.log) - 1), label="records expired")
        del self.log[:gone]
        min_offset = self.log[0].physical_offset
        expired = 0
        for file, following in pairwise(self.index.index_files):
            is_twin = file.header.end_timestamp_ms == following.header.end_timestamp_ms
            if file.header.end_physical_offset >= min_offset or (
                is_twin and not following.is_durable
            ):
                break
            expired += 1
        assert self.index.delete_expired(min_offset) == expired
        del self.model.files[:expired]

    @rule(
        key=st.sampled_from([*KEYS, "none"]),
        max_num=st.integers(0, 12),
        begin_s=st.integers(-5, 120),
        span_s=st.integers(0, 60),
    )
    def query_a_range(self, key: str, max_num: int, begin_s: int, span_s: int) -> None:
        begin_ms = T0 + begin_s * 500
        end_ms = begin_ms + span_s * 500
        found = self.index.query("T", key, max_num, begin_ms, end_ms)
        expected = self.model.query(index_key_hash("T", key), max_num, begin_ms, end_ms)
        assert found.physical_offsets == expected

    @invariant()
    def every_key_of_the_log_is_found(self) -> None:
        for key in KEYS:
            found = self.index.query("T", key, 1 << 20, 0, FOREVER_MS).physical_offsets
            key_hash = index_key_hash("T", key)
            assert found == self.model.query(key_hash, 1 << 20, 0, FOREVER_MS)
            wanted = {r.physical_offset for r in self.log if key in r.keys.split()}
            assert wanted <= set(found)

    @invariant()
    def files_agree(self) -> None:
        headers = [file.header for file in self.index.index_files]
        assert [
            (h.begin_timestamp_ms, h.end_timestamp_ms, h.end_physical_offset, h.index_count - 1)
            for h in headers
        ] == [(f.begin_ms, f.end_ms, f.end_offset, len(f.entries)) for f in self.model.files]
        on_disk = sorted(self.root.iterdir()) if self.root.exists() else []
        assert [file.path for file in self.index.index_files] == on_disk


TestIndexAgainstModel = IndexAgainstModel.TestCase
TestIndexAgainstModel.settings = settings(max_examples=examples(150), stateful_step_count=40)
