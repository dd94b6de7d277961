"""The quick judgement of records says yes only where the thorough one does."""

from __future__ import annotations

import pytest

from roquet.format import commit_log as fmt
from roquet.format.commit_log import MAGIC_V1, DispatchRequest, RecordRules
from roquet.format.plain_record import plain_tags_code, topic_field
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.model.host import Host
from roquet.model.java_string import java_hash
from roquet.model.properties import encode_properties

RULES = RecordRules(DelayLevels(), check_property_crc=False)
V4, V6 = Host.parse("10.0.0.1:1234"), Host.parse("[2001:db8::1]:65535")
TAGGED = encode_properties({"KEYS": "k", "TAGS": "tag", "UNIQ_KEY": "u"})


def record(
    *,
    topic: bytes = b"Topic",
    body: bytes = b"the body",
    properties: bytes = TAGGED,
    sys_flag: int = 0,
    v2: bool = False,
) -> bytes:
    return fmt.encode_record(
        topic=topic,
        body=body,
        properties=properties,
        queue_id=3,
        flag=9,
        queue_offset=42,
        physical_offset=1000,
        sys_flag=sys_flag,
        born_timestamp_ms=11,
        born_host=(V6 if sys_flag & flags.BORN_HOST_V6 else V4).pack(),
        store_timestamp_ms=22,
        store_host=(V6 if sys_flag & flags.STORE_HOST_V6 else V4).pack(),
        reconsume_times=4,
        prepared_transaction_offset=55,
        v2=v2,
    )


def judge(
    data: bytes, *, topic: str = "Topic", start: int = 0, size: int | None = None
) -> int | None:
    size = len(data) - start if size is None else size
    return plain_tags_code(data, start, (size, MAGIC_V1, 3, 42, 1000), topic_field(topic))


def thorough(data: bytes) -> int | None:
    found = fmt.check_record(data, 0, len(data), physical_offset=1000, rules=RULES)
    if not isinstance(found, DispatchRequest):
        return None
    named = (found.topic, found.queue_id, found.queue_offset, found.size_bytes)
    return found.tags_code if named == ("Topic", 3, 42, len(data)) else None


@pytest.mark.parametrize("body", [b"", b"b", b"body" * 1000])
@pytest.mark.parametrize(
    "properties",
    [
        b"",
        TAGGED,
        b"TAGS\x01tag\x02",
        b"TAGS\x01tag",
        b"KEYS\x01k\x02TAGS\x01tag",
        b"TAGS\x01\x02",
        b"TAGS\x01\x02KEYS\x01k\x02",
        "TAGS\x01订单\x02".encode(),
        b"TAGS\x01\xff\xfe\x02",
        b"KEYS\x01TAGS\x02",
        b"KEYS\x01" + b"k" * 700 + b"\x02TAGS\x01tag\x02",
        b"TAGS",
    ],
)
def test_ordinary_records_are_known(body: bytes, properties: bytes) -> None:
    data = record(body=body, properties=properties)
    assert judge(data) is not None
    assert judge(data) == thorough(data)
    assert judge(memoryview(data)) == thorough(data)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "properties",
    [
        b"XTAGS\x01tag\x02",
        b"TAGS\x01a\x02TAGS\x01b\x02",
        b"TAGS\x01a\x02KEYS\x01k\x02TAGS\x01b\x02",
        b"KEYS\x01k\x02XTAGS\x01a\x02TAGS\x01b\x02",
    ],
)
def test_odd_properties_are_left_to_others(properties: bytes) -> None:
    data = record(properties=properties)
    assert judge(data) is None
    assert thorough(data) is not None


def test_odd_records_are_left_to_others() -> None:
    for data in (
        record(sys_flag=flags.BORN_HOST_V6),
        record(sys_flag=flags.STORE_HOST_V6),
        record(v2=True),
    ):
        assert judge(data) is None
        assert thorough(data) is not None


def test_a_record_within_others() -> None:
    data = record()
    framed = b"x" * 7 + data + b"y" * 9
    assert judge(framed, start=7, size=len(data)) == java_hash("tag")


def test_other_numbers_and_names() -> None:
    data = record()
    topic = topic_field("Topic")
    good = (len(data), MAGIC_V1, 3, 42, 1000)
    assert plain_tags_code(data, 0, good, topic) == java_hash("tag")
    for place in range(5):
        bad = list(good)
        bad[place] -= 1
        assert plain_tags_code(data, 0, (bad[0], bad[1], bad[2], bad[3], bad[4]), topic) is None
    for other in ("Topi", "Topic2", "Tropic", "x" * 300):
        assert plain_tags_code(data, 0, good, topic_field(other)) is None


def test_every_changed_bit_is_seen_or_seen_by_the_thorough_check_as_well() -> None:
    data = record()
    known = 0
    for place in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << place % 8
        quick, slow = judge(bytes(damaged)), thorough(bytes(damaged))
        assert quick is None or quick == slow
        known += quick is not None
    assert known > 0, "flag, times and hosts have no check"


def test_every_length_that_is_too_short() -> None:
    data = record(properties=b"")
    for size in range(len(data)):
        assert judge(data[:size]) is None
