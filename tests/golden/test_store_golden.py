"""Stores that Apache RocketMQ wrote, opened by Roquet: everything is served, nothing is damaged.

What Java derived from its log is what Roquet derives from it, and what Java made of a crashed
store is what Roquet makes of it, byte for byte. The comparison omits the names of index files,
which are times of creation, and the bytes after the used part.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from roquet.format.checkpoint import Checkpoint
from roquet.format.commit_log import DispatchRequest, decode_record
from roquet.format.consume_queue import UNIT_BYTES, unpack_unit
from roquet.format.consume_queue_ext import CqExtUnit, is_ext_address, real_offset_of
from roquet.format.consume_queue_ext import unpack_unit as unpack_ext_unit
from roquet.format.index_file import ENTRY, HEADER_BYTES, IndexHeader, entry_position
from roquet.model.message import BrokerMessage
from roquet.model.sys_flag import takes_queue_offset
from roquet.runtime.clock import ManualClock
from roquet.store.config import MessageStoreConfig
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import GetMessageStatus
from tests.golden.records import SEGMENT_BYTES, log_records

QUEUE_FILE_BYTES = 600
EXT_FILE_BYTES = 4096
SLOTS = 100
ENTRIES = 200
FOREVER_MS = 1 << 62

CRASHED = ("store-json-crash", "store-binary-crash", "store-ext-crash")


def config_of(name: str) -> MessageStoreConfig:
    return MessageStoreConfig(
        commit_log_file_bytes=SEGMENT_BYTES,
        consume_queue_file_bytes=QUEUE_FILE_BYTES,
        consume_queue_ext_file_bytes=EXT_FILE_BYTES,
        consume_queue_ext="-ext-" in name,
        index_slots=SLOTS,
        index_entries=ENTRIES,
    )


def store_of(root: Path, name: str) -> DefaultMessageStore:
    """The store of a directory, at a time just after its newest record."""
    newest_ms = max(record.store_timestamp_ms for record in log_records(root))
    store = DefaultMessageStore(root, config_of(name), clock=ManualClock(newest_ms + 1))
    if "-ext-" in name:
        bitmaps = ext_bitmaps(root)
        store.dispatcher.bitmap = lambda request: bitmaps.get(request.physical_offset)
    return store


def open_and_close(root: Path, name: str) -> DefaultMessageStore:
    store = store_of(root, name)
    store.load()
    store.start(threads=False)
    store.shutdown()
    return store


def ext_bitmaps(root: Path) -> dict[int, bytes]:
    """The filter bitmaps that Java computed, by the physical offset of their records.

    Only a live broker knows which groups matched a record, so the bitmaps are passed back in.
    """
    return {
        entry[0]: entry[2].filter_bitmap
        for entries in resolved_queues(root).values()
        for entry in entries
        if isinstance(entry[2], CqExtUnit)
    }


def resolved_queues(root: Path) -> dict[str, list[tuple[int, int, int | CqExtUnit]]]:
    """The entries of every queue, with the ext unit in place of its address."""
    queues: dict[str, list[tuple[int, int, int | CqExtUnit]]] = {}
    for name, data in contents(root, "consumequeue").items():
        queue = name.rsplit("/", 1)[0]
        entries = queues.setdefault(queue, [])
        for position in range(0, len(data), UNIT_BYTES):
            unit = unpack_unit(data, position)
            meaning: int | CqExtUnit | None = unit.tags_code
            if is_ext_address(unit.tags_code):
                at = real_offset_of(unit.tags_code)
                file = root / "consumequeue_ext" / queue / f"{at - at % EXT_FILE_BYTES:020d}"
                meaning = unpack_ext_unit(file.read_bytes(), at % EXT_FILE_BYTES)
            assert meaning is not None
            entries.append((unit.physical_offset, unit.size_bytes, meaning))
    return queues


def contents(root: Path, part: str) -> dict[str, bytes]:
    """The files below a directory of a store, by name; index files by their order."""
    files = sorted(path for path in (root / part).rglob("*") if path.is_file())
    names = [path.relative_to(root / part).as_posix() for path in files]
    if part == "index":
        names = [str(number) for number in range(len(files))]
    return dict(zip(names, (path.read_bytes() for path in files), strict=True))


def used_log(root: Path, end: int) -> bytes:
    return b"".join(data for _, data in sorted(contents(root, "commitlog").items()))[:end]


def used_queues(root: Path, end: int) -> dict[str, list[tuple[int, int, int]]]:
    """The entries of every queue whose records end at or before ``end``."""
    queues: dict[str, list[tuple[int, int, int]]] = {}
    for name, data in contents(root, "consumequeue").items():
        entries = queues.setdefault(name.rsplit("/", 1)[0], [])
        for position in range(0, len(data), UNIT_BYTES):
            unit = unpack_unit(data, position)
            if unit.is_written and unit.end_offset <= end:
                entries.append(unit)
    return queues


def used_index(root: Path, end: int) -> list[tuple[int, int, int, int]]:
    """The entries of all index files whose records lie before ``end``."""
    found = []
    for data in contents(root, "index").values():
        header = IndexHeader.unpack(data[:HEADER_BYTES])
        for number in range(1, header.index_count):
            entry = ENTRY.unpack_from(data, entry_position(SLOTS, number))
            if entry[1] < end:
                found.append(entry)
    return found


def queued(root: Path) -> list[DispatchRequest]:
    return [record for record in log_records(root) if takes_queue_offset(record.sys_flag)]


def test_every_record_is_served_at_its_offset(
    golden_store: Callable[[str], Path], golden_store_name: str
) -> None:
    root = golden_store(golden_store_name)
    records = list(log_records(root))
    store = store_of(root, golden_store_name)
    report = store.load()
    store.start(threads=False)
    assert report.clean_exit is ("crash" not in golden_store_name)
    assert report.end_offset == records[-1].end_offset == store.max_physical_offset
    for record in records:
        found = store.look_message(record.physical_offset)
        assert found is not None
        assert (found.topic, found.queue_id, found.store_size) == (
            record.topic,
            record.queue_id,
            record.size_bytes,
        )
        assert found.properties == record.properties
    for record in queued(root):
        result = store.get_message(record.topic, record.queue_id, record.queue_offset, 1)
        assert result.status is GetMessageStatus.FOUND
        served = decode_record(result.body(), 0, result.total_bytes)
        assert served == store.look_message(record.physical_offset)
        assert served.queue_offset == record.queue_offset
    assert store.reader.damaged_records == 0
    store.shutdown()


def test_queues_hold_what_the_log_says(
    golden_store: Callable[[str], Path], golden_store_name: str
) -> None:
    root = golden_store(golden_store_name)
    ends: dict[tuple[str, int], int] = {}
    for record in queued(root):
        ends[record.topic, record.queue_id] = record.queue_offset + 1
    store = store_of(root, golden_store_name)
    store.load()
    for (topic, queue_id), end in ends.items():
        assert store.max_offset_in_queue(topic, queue_id) == end
        assert store.max_offset_in_queue(topic, queue_id, committed=False) == end
        assert store.min_offset_in_queue(topic, queue_id) == 0
    known = {(t, q) for t, queues in store.queues.table.items() for q in queues}
    assert {key for key in known if store.max_offset_in_queue(*key)} == set(ends)
    store.shutdown()


def test_every_key_is_found(golden_store: Callable[[str], Path], golden_store_name: str) -> None:
    root = golden_store(golden_store_name)
    store = store_of(root, golden_store_name)
    store.load()
    keys = 0
    for record in log_records(root):
        for key in filter(None, [record.unique_key, *record.keys.split(" ")]):
            result = store.query_message(record.topic, key, 64, 0, FOREVER_MS)
            offsets = [decode_record(r, 0, len(r)).physical_offset for r in result.records]
            assert record.physical_offset in offsets
            keys += 1
    assert keys > 50
    store.shutdown()


@pytest.mark.parametrize(
    "name",
    [
        "store-json-clean",
        "store-binary-clean",
        "store-ext-clean",
        "store-ha-master",
        "store-ha-slave",
    ],
)
def test_opening_and_closing_a_clean_store_changes_nothing(
    golden_store: Callable[[str], Path], name: str
) -> None:
    root = golden_store(name)
    parts = ("commitlog", "consumequeue", "index", "config", "compaction")
    before = {part: contents(root, part) for part in parts}
    queues = resolved_queues(root)
    marks = Checkpoint.unpack((root / "checkpoint").read_bytes())
    open_and_close(root, name)
    assert {part: contents(root, part) for part in parts} == before
    # Java's recovery left ext units that no entry points to; they are removed.
    assert resolved_queues(root) == queues
    after = Checkpoint.unpack((root / "checkpoint").read_bytes())
    newest_ms = max(record.store_timestamp_ms for record in log_records(root))
    assert marks.physic_msg_timestamp_ms <= after.physic_msg_timestamp_ms == newest_ms
    assert after.logics_msg_timestamp_ms == newest_ms
    assert after.index_msg_timestamp_ms == marks.index_msg_timestamp_ms
    assert not (root / "abort").exists()


def test_queues_and_index_are_derived_as_java_derives_them(
    golden_store: Callable[[str], Path], golden_store_name: str
) -> None:
    name = golden_store_name
    java = golden_store(name)
    end = list(log_records(java))[-1].end_offset
    root = golden_store(name)
    store = store_of(root, name)  # remembers the bitmaps of the files removed now
    for part in ("consumequeue", "consumequeue_ext", "index"):
        shutil.rmtree(root / part, ignore_errors=True)
    (root / "abort").unlink(missing_ok=True)
    store.load()
    store.start(threads=False)
    store.shutdown()
    assert used_log(root, end) == used_log(java, end)
    assert resolved_queues(root) == resolved_queues(java)
    if name != "store-ext-clean":  # where Java's recovery wrote every ext unit a second time
        assert contents(root, "consumequeue") == contents(java, "consumequeue")
        assert contents(root, "consumequeue_ext") == contents(java, "consumequeue_ext")
    built, written = contents(root, "index"), contents(java, "index")
    assert built.keys() == written.keys()
    assert built["0"] == written["0"]
    if name in {"store-json-clean", "store-binary-clean", "store-ext-clean"}:
        # Java's second file was rebuilt by a recovery, which put the record at the end of the
        # first file once more.
        first_end = IndexHeader.unpack(built["0"][:HEADER_BYTES]).end_physical_offset
        twice = [entry[:2] for entry in used_index(java, end) if entry[1] == first_end]
        assert len(twice) > len([e for e in used_index(root, end) if e[1] == first_end])
    else:
        assert built == written


@pytest.mark.parametrize("name", CRASHED)
def test_a_crashed_store_recovers_as_java_recovered_it(
    golden_store: Callable[[str], Path], name: str
) -> None:
    root = golden_store(name)
    java = golden_store(name.replace("crash", "clean"))
    end = list(log_records(root))[-1].end_offset
    open_and_close(root, name)
    assert [path.name for path in (root / "commitlog").iterdir()] == [f"{0:020d}"]
    assert used_log(root, end) == used_log(java, end)
    assert not any(contents(root, "commitlog")[f"{0:020d}"][end:])
    assert used_queues(root, end) == {
        queue: entries for queue, entries in used_queues(java, end).items() if entries
    }
    assert used_index(root, end) == used_index(java, end)
    if name != "store-ext-crash":  # Java then appended two records to that one
        assert contents(root, "consumequeue") == contents(java, "consumequeue")
        assert contents(root, "index") == contents(java, "index")
    assert not (root / "abort").exists()


@pytest.mark.parametrize("name", CRASHED)
def test_recovering_a_second_time_changes_nothing(
    golden_store: Callable[[str], Path], name: str
) -> None:
    root = golden_store(name)
    open_and_close(root, name)
    parts = ("commitlog", "consumequeue", "consumequeue_ext", "index")
    once = {part: contents(root, part) for part in parts}
    marks = (root / "checkpoint").read_bytes()
    open_and_close(root, name)
    assert {part: contents(root, part) for part in parts} == once
    assert (root / "checkpoint").read_bytes() == marks


def test_a_golden_store_takes_new_messages(
    golden_store: Callable[[str], Path], golden_store_name: str
) -> None:
    root = golden_store(golden_store_name)
    records = list(log_records(root))
    store = store_of(root, golden_store_name)
    store.load()
    store.start(threads=False)
    place = store.max_offset_in_queue("GoldenTopic", 0)
    assert place > 0
    store.submit(BrokerMessage("GoldenTopic", 0, b"and on"))
    store.finish_burst()
    result = store.get_message("GoldenTopic", 0, place, 1)
    assert result.status is GetMessageStatus.FOUND
    served = decode_record(result.body(), 0, result.total_bytes)
    assert (served.body, served.physical_offset) == (b"and on", records[-1].end_offset)
    assert served.store_timestamp_ms >= records[-1].store_timestamp_ms
    store.shutdown()
    assert len(list(log_records(root))) == len(records) + 1
