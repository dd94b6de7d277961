"""``verify`` against every bit of records, queues and index files.

Each test compares with the table of docs/internals/verify.md: what the format reveals must be
named, what it does not protect must pass, so that the table is exact.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.format.consume_queue import UNIT, UNIT_BYTES
from roquet.format.index_file import ENTRY_BYTES, HEADER_BYTES, entry_position, slot_position
from roquet.storefiles.queues import QueueView
from roquet.storefiles.view import StoreView
from tests.campaign import sampled
from tests.unit.store.protection import SHOWS_AS, UNPROTECTED, Shows, record_fields, shows
from tests.unit.store.synthetic import SyntheticStore, flip_bit
from tests.unit.store.verify_kit import SEGMENT_BYTES, check, fill, named, segment_of

WITH_CRC = {"__CRC32#"}
PARTS = 3  # of all bits that are tried; each takes a whole check of the store


@pytest.fixture
def store(tmp_path: Path) -> SyntheticStore:
    made = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES)
    fill(made)
    return made


# -- single bits of a record --------------------------------------------------------------------


def between_ms(store: SyntheticStore, place: int) -> range:
    """Times that fit between the neighbours and lie in the same second of the index."""
    times = [placed.store_timestamp_ms for placed in store.placed]
    if not 0 < place < len(times) - 1:
        return range(0)  # the header of an index file knows the first and the last one exactly
    second = times[place] - (times[place] - times[0]) % 1000
    low, high = max(times[place - 1], second), min(times[place + 1], second + 999)
    return range(low, high + 1)


@pytest.mark.parametrize("place", [0, 7, 23], ids=["first", "middle", "last"])
def test_every_bit_of_a_record(store: SyntheticStore, place: int) -> None:
    record = store.placed[place]
    path, start = segment_of(store, record)
    raw = bytes(store.log[record.physical_offset : record.end_offset])
    request = store.requests()[place]
    wrong: list[str] = []
    for byte, name in enumerate(record_fields(raw, record.topic)):
        bits = range(8) if name not in {"body", "properties", *UNPROTECTED} else [byte % 8]
        for bit in bits:
            flip_bit(path, start + byte, bit)
            report = check(store.root)
            flip_bit(path, start + byte, bit)
            found = {fault.field for fault in named(report, record)}
            expected = shows(
                name, byte, bit, raw=raw, record=request, between_ms=between_ms(store, place)
            )
            if expected is not Shows.ALWAYS:
                if not report.ok:
                    wrong.append(f"{name} byte {byte} bit {bit}: {report.faults}")
            elif not found & SHOWS_AS[name]:
                wrong.append(f"{name} byte {byte} bit {bit}: {report.faults}")
    assert wrong == []
    assert check(store.root).ok


def test_every_byte_of_a_record_with_the_crc_property(tmp_path: Path) -> None:
    """The CRC property protects the whole record, itself included."""
    store = SyntheticStore(tmp_path / "store", segment_bytes=SEGMENT_BYTES, append_crc=True)
    fill(store)
    assert check(store.root).ok
    record = store.placed[7]
    path, start = segment_of(store, record)
    raw = bytes(store.log[record.physical_offset : record.end_offset])
    wrong: list[str] = []
    for byte, name in enumerate(record_fields(raw, record.topic)):
        is_crc = byte >= record.size_bytes - 20
        for bit in range(8) if is_crc or name in UNPROTECTED else [byte % 8]:
            flip_bit(path, start + byte, bit)
            report = check(store.root)
            flip_bit(path, start + byte, bit)
            found = {fault.field for fault in named(report, record)}
            if not found & (SHOWS_AS.get(name, set()) | WITH_CRC):
                wrong.append(f"{name} byte {byte} bit {bit}: {report.faults}")
    assert wrong == []


def test_a_bad_record_hides_no_other(store: SyntheticStore) -> None:
    """After bad bytes the check continues, so that all faults are listed."""
    bad = [store.placed[number] for number in (3, 4, 11, 20)]
    for record, byte in zip(bad, (5, 0, 90, 30), strict=True):
        path, start = segment_of(store, record)
        flip_bit(path, start + byte, 2)
    report = check(store.root)
    assert [named(report, record) != [] for record in bad] == [True] * 4
    assert report.counts.records == 20
    assert {fault.physical_offset for fault in report.faults} == {r.physical_offset for r in bad}


def test_records_in_a_torn_out_region_are_named_by_their_queues(store: SyntheticStore) -> None:
    lost = [p for p in store.placed if p.physical_offset // SEGMENT_BYTES == 1][2:5]
    path, start = segment_of(store, lost[0])
    data = bytearray(path.read_bytes())
    data[start : start + lost[-1].end_offset - lost[0].physical_offset] = bytes(
        lost[-1].end_offset - lost[0].physical_offset
    )
    path.write_bytes(data)
    report = check(store.root)
    told = [(f.topic, f.queue_id, f.queue_offset) for f in report.faults]
    assert told == [(p.topic, p.queue_id, p.queue_offset) for p in lost]
    assert report.counts.records == 21


def test_the_end_of_a_segment_is_checked(store: SyntheticStore) -> None:
    last = [p for p in store.placed if p.physical_offset < SEGMENT_BYTES][-1]
    path, _ = segment_of(store, last)
    for byte in range(8):
        flip_bit(path, last.end_offset + byte, byte)
        report = check(store.root)
        flip_bit(path, last.end_offset + byte, byte)
        assert [(f.physical_offset, f.field) for f in report.faults] == [
            (last.end_offset, "totalSize" if byte < 4 else "magic")
        ]
        assert report.counts.records == 24


# -- single bits of queue and index -------------------------------------------------------------


@pytest.mark.parametrize("part", sampled(range(PARTS)))
def test_every_bit_of_a_queue_file(store: SyntheticStore, part: int) -> None:
    names = ["physicalOffset"] * 8 + ["size"] * 4 + ["tagsCode"] * 8
    records = [p for p in store.placed if (p.topic, p.queue_id) == ("Orders", 1)]
    path = store.root / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    wrong: list[str] = []
    for byte in range(store.queue_file_bytes):
        queue_offset = byte // UNIT_BYTES
        for bit in range((byte + part) % PARTS, 8, PARTS):
            flip_bit(path, byte, bit)
            report = check(store.root)
            flip_bit(path, byte, bit)
            if queue_offset >= len(records):
                is_told = any(f.topic == "Orders" for f in report.faults)
                if not is_told:
                    wrong.append(f"free byte {byte} bit {bit}: {report.faults}")
                continue
            name = names[byte % UNIT_BYTES]
            found = {fault.field for fault in named(report, records[queue_offset])}
            # A size below 1 means that there is no entry.
            if not found & {name, "physicalOffset" if name == "size" else name}:
                wrong.append(f"{name} byte {byte} bit {bit}: {report.faults}")
    assert wrong == []


@pytest.mark.parametrize("meanwhile", [True, False])
def test_entries_that_a_running_broker_writes_during_the_check(
    store: SyntheticStore, monkeypatch: pytest.MonkeyPatch, *, meanwhile: bool
) -> None:
    records = [p for p in store.placed if (p.topic, p.queue_id) == ("Orders", 1)]
    path = store.root / "consumequeue" / "Orders" / "1" / f"{0:020d}"
    behind_the_log = UNIT.pack(1 << 20, 100, 0)
    place = len(records) * UNIT_BYTES
    original = QueueView.nonzero_end

    def write(position: int) -> None:
        data = bytearray(path.read_bytes())
        data[position : position + UNIT_BYTES] = behind_the_log
        path.write_bytes(data)

    def nonzero_end(queue: QueueView) -> int:
        end = original(queue)
        if meanwhile:
            write(place)
        return end

    write(place + UNIT_BYTES)
    monkeypatch.setattr(QueueView, "nonzero_end", nonzero_end)
    monkeypatch.setattr(StoreView, "is_running", property(lambda _: True))
    faults = [fault.detail for fault in check(store.root).faults]
    expected = [] if meanwhile else [f"entry {len(records)} is empty, later ones are not"]
    assert faults == expected


def index_field(store: SyntheticStore, byte: int, count: int) -> tuple[str, int]:
    """The field of a byte of an index file, and the number of its entry."""
    if byte < HEADER_BYTES:
        head = ["beginTimestamp", "endTimestamp", "beginPhyOffset", "endPhyOffset"]
        names = [name for name in head for _ in range(8)]
        return (names + ["hashSlotCount"] * 4 + ["indexCount"] * 4)[byte], 0
    if byte < slot_position(store.slots):
        return "slot", 0
    number, rest = divmod(byte - entry_position(store.slots, 0), ENTRY_BYTES)
    if not 0 < number < count:
        return "free", number
    entry = ["keyHash"] * 4 + ["physicalOffset"] * 8 + ["seconds"] * 4 + ["previous"] * 4
    return entry[rest], number


@pytest.mark.parametrize("part", sampled(range(PARTS)))
@pytest.mark.parametrize("place", [0, 1], ids=["full", "newest"])
def test_every_byte_of_an_index_file(store: SyntheticStore, place: int, part: int) -> None:
    """Free entries are not protected. A wrong position may show in a missing entry."""
    path = sorted((store.root / "index").iterdir())[place]
    count = int.from_bytes(path.read_bytes()[36:40], "big")
    wrong: list[str] = []
    for byte in range(part, path.stat().st_size, PARTS):
        name, number = index_field(store, byte, count)
        for bit in range(8) if name in {"indexCount", "hashSlotCount"} else [byte % 8]:
            flip_bit(path, byte, bit)
            report = check(store.root)
            flip_bit(path, byte, bit)
            fields = {f.field for f in report.faults if f.file == f"index/{path.name}"}
            if name == "free":
                if not report.ok:
                    wrong.append(f"free {number} byte {byte}: {report.faults}")
            elif name == "physicalOffset":
                if not fields & {"physicalOffset", "keyHash", "seconds"}:
                    wrong.append(f"{name} {number} byte {byte}: {report.faults}")
            elif name == "slot":
                if not fields & {"slot", "indexCount"}:
                    wrong.append(f"{name} byte {byte}: {report.faults}")
            elif name not in fields:
                wrong.append(f"{name} {number} byte {byte}: {report.faults}")
    assert wrong == []


def test_a_key_that_is_missing_in_the_index_names_its_record(store: SyntheticStore) -> None:
    for path in sorted((store.root / "index").iterdir())[:1]:
        path.unlink()
    assert check(store.root).ok  # the index may begin later than the log
    first = SyntheticStore(store.root.parent / "other", segment_bytes=SEGMENT_BYTES, entries=20)
    fill(first)
    middle = sorted((first.root / "index").iterdir())[1]
    middle.unlink()
    report = check(first.root)
    assert {fault.field for fault in report.faults} == {"keys"}
    assert all(fault.topic in {"Orders", "Parts"} for fault in report.faults)


def test_an_index_file_without_a_slot_count(store: SyntheticStore) -> None:
    newest = max((store.root / "index").iterdir())
    for path in (store.root / "index").iterdir():
        if path != newest:
            path.unlink()
    data = bytearray(newest.read_bytes())
    data[slot_position(0) : slot_position(store.slots)] = bytes(4 * store.slots)
    newest.write_bytes(data)
    assert [fault.field for fault in check(store.root).faults] == ["indexCount"]
    with_slots = check(store.root, index_slots=store.slots)
    assert {fault.field for fault in with_slots.faults} == {"slot"}
    assert len(with_slots.faults) > 1
