"""Blocks of plain records and the reference: what compiled code accepts has no faults, and the same
entries."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roquet.format.commit_log import (
    DispatchRequest,
    RecordRules,
    check_record,
    crc_property,
    encode_record,
)
from roquet.format.derived import key_hashes, light_places, tag_hash
from roquet.format.record_checks import content_faults
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.storefiles.plain_blocks import PlainBlock, make_block_reader
from tests.campaign import examples

pytest.importorskip("roquet.storefiles._plain_blocks", reason="it is not built")

pytestmark = pytest.mark.usefixtures("compiled_on")

BASE = 4_096
RULES = RecordRules(DelayLevels())
V4_HOST, V6_HOST = bytes(8), bytes(20)

NAMES = st.sampled_from(
    ["TAGS", "KEYS", "UNIQ_KEY", "DELAY", "INNER_MULTI_DISPATCH", "INNER_NUM", "__CRC32#", "a", ""]
)
VALUES = st.sampled_from(["", "A", "k1 k2  k3", "ü", "%LMQ%x", "3", " ".join("abcdefgh" * 5), "\1"])
PAIRS = st.lists(st.tuples(NAMES, st.sampled_from(["\1", "", "\1\1"]), VALUES), max_size=5).map(
    lambda pairs: "".join(f"{name}{mark}{value}\2" for name, mark, value in pairs).encode()
)
TAILS = st.sampled_from(
    [b"", b"\2", b"rest", b"\xff", b"\0", crc_property(7), b"__CRC" + b"x" * 15]
)
BODIES = st.sampled_from(
    [b"", b"plain", zlib.compress(b"body"), b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"\x78"]
)
SYS_FLAGS = st.one_of(
    st.sampled_from([0, flags.COMPRESSED, flags.COMPRESSED | flags.COMPRESSION_LZ4]),
    st.sampled_from([1 << bit for bit in range(12)]),
    st.integers(0, 0xFFF),
)
TOPICS = st.sampled_from([b"T", b"SCHEDULE_TOPIC_XXXX", "Ü".encode(), b"%LMQ%x", b"%bad topic"])


def encode(topic: bytes, sys_flag: int, body: bytes, properties: bytes, *, v2: bool) -> bytes:
    return encode_record(
        topic=topic,
        body=body,
        properties=properties,
        queue_id=2,
        flag=0,
        queue_offset=9,
        physical_offset=BASE,
        sys_flag=sys_flag,
        born_timestamp_ms=1,
        born_host=V6_HOST if sys_flag & flags.BORN_HOST_V6 else V4_HOST,
        store_timestamp_ms=1_700_000_000_000,
        store_host=V6_HOST if sys_flag & flags.STORE_HOST_V6 else V4_HOST,
        v2=v2,
    )


def read(record: bytes) -> PlainBlock | None:
    reader = make_block_reader(lambda _topic, _queue_id: 5)
    assert reader is not None
    return reader.read(memoryview(record), 0, len(record), len(record), BASE)


@settings(max_examples=examples(400), deadline=None)
@given(TOPICS, SYS_FLAGS, BODIES, PAIRS, TAILS, st.sampled_from([1, 2]))
@example(b"T", flags.MULTI_TAGS, b"body", b"KEYS\1k\2TAGS\1A\2", b"", 1)
def test_a_block_has_no_faults_and_the_same_entries(  # noqa: PLR0917 - the parts of a record
    topic: bytes, sys_flag: int, body: bytes, pairs: bytes, tail: bytes, version: int
) -> None:
    data = encode(topic, sys_flag, body, pairs + tail, v2=version == 2)
    block = read(data)
    if block is None:
        return
    record = check_record(data, 0, len(data), physical_offset=BASE, rules=RULES)
    assert isinstance(record, DispatchRequest)
    assert list(content_faults(record, memoryview(data), 0)) == []
    assert list(light_places(record)) == []
    assert flags.takes_queue_offset(record.sys_flag)
    assert not record.sys_flag & flags.INNER_BATCH
    assert (block.rows, block.reached) == (1, len(data))
    assert block.physical_offsets[0] == record.physical_offset
    assert block.sizes[0] == record.size_bytes
    assert block.store_times_ms[0] == record.store_timestamp_ms
    assert (block.places[0], block.queue_offsets[0]) == (5, record.queue_offset)
    assert block.tags_codes[0] == record.tags_code
    assert list(block.owed_keys) == key_hashes(record)
    tag = tag_hash(record)
    assert list(block.tag_keys) == ([] if tag is None else [tag])


@pytest.mark.parametrize("sys_flag", [0, flags.MULTI_TAGS, flags.BORN_HOST_V6])
def test_usual_records_are_in_blocks(sys_flag: int) -> None:
    properties = "KEYS\1k1 k2\2UNIQ_KEY\1id\2TAGS\1A\2name\1ü\2".encode()
    assert read(encode(b"T", sys_flag, b"body", properties, v2=False)) is not None


def test_a_compressed_record_is_in_a_block() -> None:
    sys_flag = flags.COMPRESSED | flags.COMPRESSION_ZLIB
    assert read(encode(b"T", sys_flag, zlib.compress(b"body"), b"", v2=False)) is not None


def test_damage_ends_a_block() -> None:
    record = encode(b"T", 0, b"body", b"TAGS\1A\2", v2=False)
    for position in (0, 4, 8, 12, 20, 28, 84, 88, len(record) - 1):
        hurt = bytearray(record)
        hurt[position] ^= 0xFF
        assert read(bytes(hurt)) is None


def test_a_queue_may_be_refused() -> None:
    asked: list[tuple[str, int]] = []

    def refuse(topic: str, queue_id: int) -> int:
        asked.append((topic, queue_id))
        return -1

    reader = make_block_reader(refuse)
    assert reader is not None
    record = memoryview(encode(b"T", 0, b"body", b"", v2=False))
    for _ in range(3):
        assert reader.read(record, 0, len(record), len(record), BASE) is None
    assert asked == [("T", 2)], "each queue is asked about once"


def test_positions_are_checked() -> None:
    reader = make_block_reader(lambda *_: 0)
    assert reader is not None
    record = memoryview(encode(b"T", 0, b"body", b"", v2=False))
    with pytest.raises(ValueError, match="position"):
        reader.read(record, -1, 10, 10, BASE)
    assert reader.read(record, 0, 1 << 40, 1 << 40, BASE) is not None
    assert reader.read(record, len(record), 1 << 40, 1 << 40, BASE) is None
