"""The compiled decoder and the reference, fed the same bytes, good and bad."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roquet.format.commit_log import decode_record, encode_record, end_of_segment, uses_v2
from roquet.format.segment_files import Segment
from roquet.model import sys_flag as flags
from roquet.spark.log import decoder, reading, row_decoder
from roquet.spark.log.conditions import NumberCondition, TextCondition
from roquet.spark.log.corrupt import message_row
from roquet.spark.log.reading import LogReader, ReadRules
from roquet.spark.log.selection import Selection
from roquet.spark.schema import CORRUPT_COLUMNS, arrow_schema, struct_type
from roquet.storefiles import window
from roquet.storefiles.records import LogRange
from tests.campaign import examples
from tests.unit.spark.log.kit import Row, plain_rows

pytestmark = pytest.mark.skipif(not decoder.is_compiled(), reason="compiled code does not run")

ALL = arrow_schema(struct_type(CORRUPT_COLUMNS))
PRUNED = arrow_schema(struct_type(["keys", "physicalOffset", "bornHost"]))

NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", b"\xe4\xbd\xa0", b"__CRC32#"])
VALUES = st.one_of(
    st.sampled_from([b"", b"v", b"TagA", b"key-1 key-2", b"\xff\xfe", b"a\x01b"]),
    st.binary(max_size=9),
)
PAIRS = st.builds(
    lambda pairs, tail: b"".join(name + b"\x01" + value + b"\x02" for name, value in pairs) + tail,
    st.lists(st.tuples(NAMES, VALUES), max_size=6),
    st.sampled_from([b"", b"x", b"x\x01y", b"\x01y\x02", b"\x02\x02"]),
)
MANY_PAIRS = st.integers(60, 70).map(lambda n: b"".join(b"n%d\x01v\x02" % i for i in range(n)))
TOPICS = st.sampled_from(
    [
        b"T",
        b"Orders",
        "主题".encode(),
        b"L" * 130,
        b"",
        b"\xff",
        b"a\0b",
        b"\xed\xa0\x80",
        b"\xc0\x80",
    ]
)
TIMES = st.sampled_from([0, 1_700_000_000_000, -1, 2**62, -(2**63), 253_402_300_799_999])
SIZES = st.sampled_from([0, 1, 80, 700])


@st.composite
def records(draw: st.DrawFn) -> list[dict[str, object]]:
    made = []
    for _ in range(draw(st.integers(0, 12))):
        topic = draw(TOPICS)
        sys_flag = draw(st.sampled_from([0, 1, 0x301, 8]))
        sys_flag |= draw(st.sampled_from([0, flags.BORN_HOST_V6]))
        sys_flag |= draw(st.sampled_from([0, flags.STORE_HOST_V6]))
        made.append(
            {
                "topic": topic,
                "v2": uses_v2(topic.decode("latin-1")),
                "body": bytes(draw(SIZES)),
                "properties": draw(st.one_of(PAIRS, MANY_PAIRS)),
                "queue_id": draw(st.sampled_from([0, 7, -1])),
                "flag": draw(st.sampled_from([0, -5])),
                "queue_offset": draw(st.sampled_from([0, 2**40])),
                "sys_flag": sys_flag,
                "born_timestamp_ms": draw(TIMES),
                "store_timestamp_ms": draw(TIMES),
                "born_host": bytes(range(20 if sys_flag & flags.BORN_HOST_V6 else 8)),
                "store_host": b"\xfe" * (20 if sys_flag & flags.STORE_HOST_V6 else 8),
                "reconsume_times": draw(st.sampled_from([0, 3])),
                "prepared_transaction_offset": draw(st.sampled_from([0, 2**33])),
                "append_crc": draw(st.booleans()),
            }
        )
    return made


BASE = 1 << 20


def segment_of(parts: list[dict[str, object]], room: int) -> bytearray:
    data = bytearray()
    for part in parts:
        data += encode_record(physical_offset=BASE + len(data), **part)  # type: ignore[arg-type]
    return data + end_of_segment(8 + room) + bytes(room)


def read(path: Path, schema: pa.Schema, rules: ReadRules, size: int) -> list[Row]:
    segment = Segment(path, BASE, size)
    part = LogRange(segment, BASE, segment.end, segment.end)
    return plain_rows(LogReader(schema, rules).batches([part]))


def both(path: Path, schema: pa.Schema, rules: ReadRules, size: int) -> list[Row]:
    """What both decoders read, which must be the same."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        for kind in (decoder.ColumnDecoder, row_decoder.RowDecoder):
            patch.setattr(reading, "make_decoder", kind)
            found.append(read(path, schema, rules, size))
    assert found[0] == found[1]
    return found[0]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("decoders") / "segment"


@settings(max_examples=examples(60))
@given(
    parts=records(),
    flips=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=3),
    window_bytes=st.sampled_from([64, 200, 1000, 1 << 20]),
    check_crc=st.booleans(),
    room=st.sampled_from([0, 33]),
)
@example(parts=[], flips=[], window_bytes=64, check_crc=True, room=0)
def test_both_decoders_read_the_same(
    *,
    path: Path,
    parts: list[dict[str, object]],
    flips: list[tuple[int, int]],
    window_bytes: int,
    check_crc: bool,
    room: int,
) -> None:
    data = segment_of(parts, room)
    for at, value in flips:
        data[at % len(data)] = value
    path.write_bytes(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window, "WINDOW_BYTES", window_bytes)
        whole = both(path, ALL, ReadRules(check_crc=check_crc, decompress=False), len(data))
        patch.setattr(row_decoder, "ROWS_MAX", 3)
        again = both(path, ALL, ReadRules(check_crc=check_crc, decompress=False), len(data))
        pruned = both(path, PRUNED, ReadRules(check_crc=check_crc), len(data))
    assert again == whole
    assert pruned == [{name: row[name] for name in PRUNED.names} for row in whole]
    for row in whole:
        if row["_corrupt"] is None:
            start = row["physicalOffset"] - BASE
            own = message_row(decode_record(data, start, len(data)))
            assert {name: row[name] for name in own} == own
    covered = sum(row["storeSize"] for row in whole)
    assert covered <= len(data)


NUMBERS = st.sampled_from(
    [
        {},
        {"queueId": NumberCondition().one_of([0, 3])},
        {"queueOffset": NumberCondition().above(0), "queueId": NumberCondition().none_of([7])},
        {"physicalOffset": NumberCondition().above(BASE).below(BASE + 700, or_equal=True)},
    ]
)
TEXTS = st.sampled_from(
    [
        {},
        {"topic": TextCondition().starting_with("主".encode())},
        {"tags": TextCondition().one_of([b"v", b"TagA"])},
        {"tags": TextCondition(), "keys": TextCondition().one_of([b"key-1 key-2"])},
        {"keys": TextCondition().above(b"a").none_of([b"v"])},
        {"keys": TextCondition().one_of(["\ufffd\ufffd".encode(), b""])},
        {"msgId": TextCondition().one_of([b"v", f"{'FE' * 8}{BASE:016X}".encode()])},
        {"msgId": TextCondition().starting_with(b"FEFE")},
    ]
)


@settings(max_examples=examples(60))
@given(
    parts=records(),
    selection=st.builds(
        Selection,
        topics=st.sampled_from([frozenset(), frozenset({"T"}), frozenset({"主题", "Orders"})]),
        topic_pattern=st.sampled_from([None, "[A-Z].*"]),
        queue_ids=st.sampled_from([frozenset(), frozenset({0}), frozenset({7, 9})]),
        keys=st.sampled_from([frozenset(), frozenset({"key-2"}), frozenset({"TagA", "v"})]),
        store_from_ms=st.sampled_from([-(2**63), 0, 5]),
        store_to_ms=st.sampled_from([2**63 - 1, 1_700_000_000_000]),
        numbers=NUMBERS,
        texts=TEXTS,
    ),
)
def test_a_selection_takes_the_rows_that_it_describes(
    path: Path, parts: list[dict[str, object]], selection: Selection
) -> None:
    data = segment_of(parts, 0)
    path.write_bytes(data)
    whole = both(path, ALL, ReadRules(decompress=False), len(data))
    some = both(path, ALL, ReadRules(selection=selection, decompress=False), len(data))
    wanted = []
    for row in whole:
        if not selection.takes_values(row.get):
            continue
        if row["topic"] is None:
            wanted.append(row)
            continue
        message = decode_record(data, row["physicalOffset"] - BASE, len(data))
        if selection.takes(
            message.topic, message.queue_id, message.store_timestamp_ms, message.properties
        ):
            wanted.append(row)
    assert some == wanted


def test_walking_stops_where_decoding_stops(rng: random.Random) -> None:
    part = {
        "topic": b"T",
        "properties": b"",
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 0,
        "sys_flag": 0,
        "born_timestamp_ms": 0,
        "store_timestamp_ms": 0,
        "born_host": bytes(8),
        "store_host": bytes(8),
    }
    data = segment_of([{**part, "body": bytes(rng.randrange(50))} for _ in range(40)], 8)
    from roquet.spark.log import _walk

    for _ in range(200):
        copy = bytearray(data)
        if rng.random() < 0.5:
            copy[rng.randrange(len(copy))] = rng.randrange(256)
        view = memoryview(copy)[: rng.randrange(len(copy) + 1)]
        arguments = (view, 0, rng.randrange(len(copy) + 1), len(copy), BASE)
        limit = rng.choice([1, 5, 1000])
        compiled = _walk.walk(*arguments, records_max=limit)
        assert row_decoder.walk(*arguments, records_max=limit)[:2] == compiled[:2]
