"""Files that a rebuild makes, and what of them is equal to those of golden stores: everything.

The stores after a crash and those of the replicated pair were written in one life of their broker.
The three clean ones are later lives of the crashed ones. There Java's recovery left traces of which
the log knows nothing, and which a rebuild by Java does not leave either (see
``tests/interop/test_rebuild_java.py``):

* The record whose entries end the first index file was put again at the head of the second.
* The units of all records were put again into the ConsumeQueueExt, behind those that were there; no
  entry leads to them, but units of later records stand behind them.

Each of these files is made here from what the rebuild made, and is then equal byte for byte, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from roquet.format.commit_log import DispatchRequest
from roquet.format.consume_queue import UNIT, UNIT_BYTES
from roquet.format.consume_queue_ext import address_of
from roquet.format.index_file import ENTRY, IndexHeader, entry_position
from tests.golden.records import log_records

GOLDEN = Path(__file__).parents[3] / "golden" / "data"
GOLDEN_STORES = sorted(path.name for path in GOLDEN.glob("store-*"))
RECOVERED = ("store-binary-clean", "store-ext-clean", "store-json-clean")

SPLITS = [1 << 27, 8192, 1000]


def _files(base: Path) -> dict[str, bytes]:
    return {
        path.relative_to(base).as_posix(): path.read_bytes()
        for path in sorted(base.rglob("*"))
        if path.is_file()
    }


def queues(root: Path) -> dict[str, bytes]:
    return _files(root / "consumequeue")


def extensions(root: Path) -> dict[str, bytes]:
    return _files(root / "consumequeue_ext")


def index(root: Path) -> list[bytes]:
    """Index files in order; their names are times of creation, which no log tells."""
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


# -- golden stores ------------------------------------------------------------------------------

SLOTS, ENTRIES = 100, 200
QUEUE_FILE = "0" * 20
PUT_AGAIN = 18332
"""Physical offset of the record that ends the first index file, in each of the recovered stores."""

CRASH_END = 27015
"""Where the log of the store with a ConsumeQueueExt ended when its broker was killed."""


def check_golden(name: str, new: Path) -> None:
    """Compare all that was made of a golden store with what Java made."""
    store = GOLDEN / name
    built, units, made = queues(new), extensions(new), index(new)
    assert bool(units) == ("-ext-" in name)
    if name == "store-ext-clean":
        built = with_later_units(built)
        units = with_units_again(units, extensions(GOLDEN / "store-ext-crash"))
    assert built == queues(store)
    assert units == extensions(store)
    if name in RECOVERED:
        check_recovered_index(made, store)
    else:
        assert made == index(store)


def with_later_units(built: dict[str, bytes]) -> dict[str, bytes]:
    """Queues whose entries behind the crash lead to units behind those that were put again."""
    for queue, number, address in (("GoldenTopic/1", 14, 280), ("GoldenTopic/2", 20, 400)):
        path, at = f"{queue}/{QUEUE_FILE}", number * UNIT_BYTES
        offset, size, found = UNIT.unpack_from(built[path], at)
        assert (offset >= CRASH_END, found) == (True, address_of(address))
        entry = UNIT.pack(offset, size, address_of(2 * address))
        built[path] = built[path][:at] + entry + built[path][at + UNIT_BYTES :]
    return built


def with_units_again(built: dict[str, bytes], before: dict[str, bytes]) -> dict[str, bytes]:
    """Units in which those from before a crash stand twice in a row."""
    assert built.keys() == before.keys()
    made, later = {}, 0
    for path, data in built.items():
        old = before[path].rstrip(b"\0")
        # Units without a bit map end with its length, 0; those of the other topic are 34 bytes.
        unit_bytes = 34 if path.startswith("GoldenSql/") else 20
        old = old.ljust(-(-len(old) // unit_bytes) * unit_bytes, b"\0")
        assert data.startswith(old)
        new = data[len(old) :]
        later += any(new)
        made[path] = (old + old + new)[: len(data)]
    assert later == 2
    return made


def check_recovered_index(built: list[bytes], store: Path) -> None:
    """The second file is Java's, once the record is put again before all it holds."""
    java = index(store)
    assert (len(built), len(java)) == (2, 2)
    assert built[0] == java[0]
    records = {record.physical_offset: record for record in log_records(store)}
    first, second = (puts_of(data, records) for data in built)
    again = [put for put in first if put.physical_offset == PUT_AGAIN]
    assert len(again) == 3
    assert first[-3:] == again
    before_ms = first[-1].store_timestamp_ms
    assert java_index_file(second, before_ms) == built[1]
    assert java_index_file([*again, *second], before_ms) == java[1]


class Put(NamedTuple):
    """What Java is given to put into an index file."""

    key_hash: int
    physical_offset: int
    store_timestamp_ms: int


def java_index_file(puts: Sequence[Put], before_ms: int) -> bytes:
    """An index file as Java writes it, entry by entry; the file before it ends at a time."""
    data = bytearray(entry_position(SLOTS, ENTRIES))
    slots = [0] * SLOTS
    begin_ms = before_ms
    for number, put in enumerate(puts, start=1):
        seconds = 0 if begin_ms <= 0 else max(0, (put.store_timestamp_ms - begin_ms) // 1000)
        slot = put.key_hash % SLOTS
        entry = (put.key_hash, put.physical_offset, seconds, slots[slot])
        ENTRY.pack_into(data, entry_position(SLOTS, number), *entry)
        slots[slot] = number
        if number == 1:
            begin_ms = put.store_timestamp_ms
    header = IndexHeader(
        puts[0].store_timestamp_ms,
        puts[-1].store_timestamp_ms,
        puts[0].physical_offset,
        puts[-1].physical_offset,
        sum(map(bool, slots)),
        len(puts) + 1,
    )
    data[:40] = header.pack()
    data[40 : 40 + 4 * SLOTS] = b"".join(slot.to_bytes(4, "big") for slot in slots)
    return bytes(data)


def puts_of(data: bytes, records: dict[int, DispatchRequest]) -> list[Put]:
    """What was put into an index file."""
    made = []
    for number in range(1, IndexHeader.unpack(data).index_count):
        key_hash, offset, _, _ = ENTRY.unpack_from(data, entry_position(SLOTS, number))
        made.append(Put(key_hash, offset, records[offset].store_timestamp_ms))
    return made
