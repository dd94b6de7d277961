"""The record as bytes: both versions, every length and every check."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest

from roquet.errors import CorruptRecord
from roquet.format import commit_log as fmt
from roquet.format.commit_log import Blank, DispatchRequest, RecordFault, RecordRules
from roquet.format.record_layout import CRC_PROPERTY_BYTES
from roquet.model import sys_flag as flags
from roquet.model.delay_level import DelayLevels
from roquet.model.host import Host
from roquet.model.java_string import tags_code
from roquet.model.properties import encode_properties

RULES = RecordRules(DelayLevels())
V4 = Host.parse("10.0.0.1:1234")
V6 = Host.parse("[2001:db8::1]:65535")
PROPERTIES = encode_properties({"KEYS": "k1 k2", "TAGS": "tag", "UNIQ_KEY": "u"})


def record(
    *,
    topic: bytes = b"Topic",
    body: bytes = b"the body",
    properties: bytes = PROPERTIES,
    queue_id: int = 3,
    queue_offset: int = 42,
    physical_offset: int = 1000,
    sys_flag: int = 0,
    born: Host = V4,
    store: Host = V4,
    v2: bool = False,
    append_crc: bool = False,
) -> bytes:
    return fmt.encode_record(
        topic=topic,
        body=body,
        properties=properties,
        queue_id=queue_id,
        flag=9,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp_ms=11,
        born_host=born.pack(),
        store_timestamp_ms=22,
        store_host=store.pack(),
        reconsume_times=4,
        prepared_transaction_offset=55,
        v2=v2,
        append_crc=append_crc,
    )


def check(
    data: bytes, *, physical_offset: int = 1000, rules: RecordRules = RULES
) -> DispatchRequest | Blank | RecordFault:
    return fmt.check_record(data, 0, len(data), physical_offset=physical_offset, rules=rules)


def fault_of(data: bytes, *, physical_offset: int = 1000, rules: RecordRules = RULES) -> str:
    found = check(data, physical_offset=physical_offset, rules=rules)
    assert isinstance(found, RecordFault), found
    assert found.physical_offset == physical_offset
    assert found.detail
    return found.field


def patched(data: bytes, position: int, value: bytes) -> bytes:
    return data[:position] + value + data[position + len(value) :]


def test_layout_of_v1() -> None:
    data = record()
    assert len(data) == 91 + 8 + 5 + len(PROPERTIES)
    assert struct.unpack_from(">iIIiiqqiq", data) == (
        len(data),
        0xDAA320A7,
        zlib.crc32(b"the body") & 0x7FFFFFFF,
        3,
        9,
        42,
        1000,
        0,
        11,
    )
    assert data[48:56] == V4.pack()
    assert struct.unpack_from(">q", data, 56) == (22,)
    assert data[64:72] == V4.pack()
    assert struct.unpack_from(">iqi", data, 72) == (4, 55, 8)
    assert data[88:96] == b"the body"
    assert data[96] == 5
    assert data[97:102] == b"Topic"
    assert struct.unpack_from(">h", data, 102) == (len(PROPERTIES),)
    assert data[104:] == PROPERTIES


def test_layout_of_v2() -> None:
    topic = b"%RETRY%" + b"g" * 200
    data = record(topic=topic, v2=True)
    assert struct.unpack_from(">I", data, 4) == (0xDAA320AB,)
    assert len(data) == 92 + 8 + len(topic) + len(PROPERTIES)
    assert struct.unpack_from(">H", data, 96) == (207,)
    found = check(data)
    assert isinstance(found, DispatchRequest)
    assert found.topic == topic.decode()


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("v2", [False, True])
def test_hosts_of_both_families(born: Host, store: Host, *, v2: bool) -> None:
    sys_flag = flags.COMPRESSED
    sys_flag |= flags.BORN_HOST_V6 if born.is_ipv6 else 0
    sys_flag |= flags.STORE_HOST_V6 if store.is_ipv6 else 0
    data = record(sys_flag=sys_flag, born=born, store=store, v2=v2)
    found = check(data)
    assert isinstance(found, DispatchRequest)
    assert (found.topic, found.sys_flag, found.end_offset) == ("Topic", sys_flag, 1000 + len(data))
    message = fmt.decode_record(data, 0, len(data))
    assert (message.born_host, message.store_host) == (born, store)
    assert (message.body, message.reconsume_times) == (b"the body", 4)
    assert fmt.peek_store_timestamp_ms(data, 0, len(data)) == 22


def test_what_dispatch_needs() -> None:
    found = check(record())
    assert found == DispatchRequest(
        "Topic",
        3,
        1000,
        len(record()),
        tags_code("tag"),
        22,
        42,
        "k1 k2",
        "u",
        0,
        55,
        {"KEYS": "k1 k2", "TAGS": "tag", "UNIQ_KEY": "u"},
    )


def test_a_record_inside_a_larger_buffer() -> None:
    data = b"?" * 10 + record() + b"?" * 10
    found = fmt.check_record(memoryview(data), 10, len(data), physical_offset=1000, rules=RULES)
    assert isinstance(found, DispatchRequest)
    assert fmt.decode_record(data, 10, len(data)).body == b"the body"
    short = fmt.check_record(data, 10, 10 + found.size_bytes - 1, physical_offset=1000, rules=RULES)
    assert isinstance(short, RecordFault)
    assert short.field == "totalSize"


def test_every_cut_is_detected() -> None:
    data = record()
    for length in range(len(data)):
        assert fault_of(data[:length]) in {"totalSize", "magic"}


def test_end_of_segment() -> None:
    data = fmt.end_of_segment(100)
    assert data.hex() == "00000064cbd43194"
    assert check(data) == Blank(100)
    assert check(data + b"?" * 50) == Blank(100)
    with pytest.raises(CorruptRecord):
        fmt.decode_record(data, 0, len(data))


def test_no_record() -> None:
    assert fault_of(bytes(200)) == "magic"
    assert fault_of(b"") == "totalSize"
    assert fmt.peek_store_timestamp_ms(bytes(200), 0, 200) is None
    assert fmt.peek_store_timestamp_ms(record(), 0, 90) is None


@pytest.mark.parametrize(
    ("position", "value", "field"),
    [
        (0, struct.pack(">i", 90), "totalSize"),
        (0, struct.pack(">i", -1), "totalSize"),
        (0, struct.pack(">i", 0x7FFFFFFF), "totalSize"),
        (0, struct.pack(">i", 98), "bodyLength"),
        (0, struct.pack(">i", 100), "topicLength"),
        (4, b"\0\0\0\0", "magic"),
        (8, b"\x7f\xff\xff\xff", "bodyCRC"),
        (12, struct.pack(">i", -1), "queueId"),
        (20, struct.pack(">q", -1), "queueOffset"),
        (28, struct.pack(">q", 1001), "physicalOffset"),
        (84, struct.pack(">i", -1), "bodyLength"),
        (84, struct.pack(">i", 1000), "bodyLength"),
        (88, b"THE", "bodyCRC"),
        (96, b"\x00", "propertiesLength"),
        (96, b"\xff", "topicLength"),
        (97, b"\0", "topic"),
        (97, b"\xff", "topic"),
        (102, struct.pack(">h", -1), "propertiesLength"),
        (102, struct.pack(">h", 5), "propertiesLength"),
    ],
)
def test_every_field_is_checked(position: int, value: bytes, field: str) -> None:
    assert fault_of(patched(record(), position, value)) == field


def test_hosts_that_do_not_fit() -> None:
    data = record(topic=b"T", body=b"", properties=b"")
    claims_v6 = patched(data, 36, struct.pack(">i", flags.BORN_HOST_V6 | flags.STORE_HOST_V6))
    assert fault_of(claims_v6) == "sysFlag"


def test_an_empty_topic_is_no_record() -> None:
    assert fault_of(record(topic=b"")) == "topic"


def test_the_body_is_checked_only_if_asked() -> None:
    data = patched(record(), 88, b"THE")
    assert isinstance(check(data, rules=replace(RULES, check_crc=False)), DispatchRequest)


def test_crc_is_31_bits() -> None:
    body = next(b for b in (bytes([n]) for n in range(256)) if zlib.crc32(b) >= 1 << 31)
    data = record(body=body)
    assert struct.unpack_from(">I", data, 8)[0] == zlib.crc32(body) - (1 << 31)
    assert isinstance(check(data), DispatchRequest)


class TestPropertyCrc:
    def test_form(self) -> None:
        data = record(append_crc=True)
        assert data[-20:-11] == b"__CRC32#\x01"
        assert data[-1] == 2
        digits = data[-11:-1].decode()
        assert int(digits[::-1]) == zlib.crc32(data[:-20]) & 0x7FFFFFFF
        assert fmt.crc_property(1) == b"__CRC32#\x011000000000\x02"
        assert isinstance(check(data), DispatchRequest)

    def test_every_flipped_bit_before_it_is_detected(self) -> None:
        data = record(append_crc=True)
        for position in range(len(data) - CRC_PROPERTY_BYTES):
            flipped = patched(data, position, bytes([data[position] ^ 1]))
            assert not isinstance(check(flipped), DispatchRequest), position

    def test_a_record_may_go_without_unless_it_is_forced(self) -> None:
        forced = replace(RULES, force_property_crc=True)
        assert isinstance(check(record()), DispatchRequest)
        assert fault_of(record(), rules=forced) == "__CRC32#"
        assert isinstance(check(record(append_crc=True), rules=forced), DispatchRequest)

    def test_a_producers_property_of_that_name_is_ignored(self) -> None:
        data = record(properties=encode_properties({"__CRC32#": "junk", "a": "b"}))
        assert isinstance(check(data), DispatchRequest)

    @pytest.mark.parametrize(
        ("properties", "expected"),
        [
            (b"", b""),
            (b"a\x01b", b"a\x01b\x02"),
            (b"a\x01b\x02", b"a\x01b\x02"),
            (fmt.crc_property(5), b""),
            (b"a\x01b\x02" + fmt.crc_property(5), b"a\x01b\x02"),
            (fmt.crc_property(5) + b"a\x01b", b"a\x01b\x02"),
        ],
    )
    def test_room_for_it(self, properties: bytes, expected: bytes) -> None:
        assert fmt.with_crc_room(properties) == expected


class TestTornRecords:
    """A power cut leaves whole sectors of zeros in what no CRC covers."""

    RULES = replace(RULES, check_torn=True)

    def torn(self, sector: int) -> bytes:
        data = bytearray(record(properties=b"a\x01" + b"v" * 3000 + b"\x02", physical_offset=100))
        start = max(sector * 512 - 100, 0)
        data[start : sector * 512 + 512 - 100] = bytes(sector * 512 + 512 - 100 - start)
        return bytes(data)

    @pytest.mark.parametrize("sector", range(1, 7))
    def test_a_lost_sector_is_detected(self, sector: int) -> None:
        data = self.torn(sector)
        found = check(data, physical_offset=100)
        assert isinstance(found, DispatchRequest), "only the torn rule can see it"
        assert fault_of(data, physical_offset=100, rules=self.RULES) == "properties"

    def test_the_rest_of_a_sector_counts(self) -> None:
        data = record(properties=b"a\x01" + b"v" * 3000 + b"\x02", physical_offset=100)
        last = (100 + len(data)) // 512 * 512 - 100
        assert 0 < len(data) - last < 512
        lost = data[:last] + bytes(len(data) - last)
        assert fault_of(lost, physical_offset=100, rules=self.RULES) == "properties"

    def test_zeros_within_a_sector_are_data(self) -> None:
        data = record(properties=b"a\x01" + b"\0" * 400 + b"\x02", physical_offset=0)
        assert isinstance(check(data, physical_offset=0, rules=self.RULES), DispatchRequest)

    def test_a_body_of_zeros_is_data(self) -> None:
        data = record(body=bytes(5000), physical_offset=0)
        assert isinstance(check(data, physical_offset=0, rules=self.RULES), DispatchRequest)


class TestTagsCode:
    def code(self, topic: bytes, properties: dict[str, str]) -> int:
        data = record(topic=topic, properties=encode_properties(properties))
        found = check(data)
        assert isinstance(found, DispatchRequest)
        return found.tags_code

    def test_hash_of_the_tags(self) -> None:
        assert self.code(b"T", {"TAGS": "a || b"}) == tags_code("a || b")
        assert self.code(b"T", {}) == 0

    @pytest.mark.parametrize(
        ("level", "delay_ms"), [("1", 1000), ("3", 10_000), ("18", 7_200_000), ("99", 7_200_000)]
    )
    def test_due_time_of_a_delayed_message(self, level: str, delay_ms: int) -> None:
        properties = {"DELAY": level, "TAGS": "a"}
        assert self.code(b"SCHEDULE_TOPIC_XXXX", properties) == 22 + delay_ms
        assert self.code(b"T", properties) == tags_code("a")

    @pytest.mark.parametrize("level", ["0", "-1", "x", "1.5", " ", "٣٤٥٦٧٨٩"])
    def test_a_bad_level_is_ignored(self, level: str) -> None:
        expected = 22 + 7_200_000 if level.isdecimal() and int(level) > 0 else tags_code("a")
        assert self.code(b"SCHEDULE_TOPIC_XXXX", {"DELAY": level, "TAGS": "a"}) == expected


def test_properties_that_are_not_utf8_are_kept_unchanged() -> None:
    data = record(properties=b"a\x01\xff\x02")
    found = check(data)
    assert isinstance(found, DispatchRequest)
    assert found.properties == {"a": "\ufffd"}
    assert fmt.decode_record(data, 0, len(data)).properties_data == b"a\x01\xff\x02"


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("sys_flag", [0, flags.BORN_HOST_V6, flags.STORE_HOST_V6, 0x30])
@pytest.mark.parametrize("properties", [b"", b"a\x015\x02", b"a\x01" + b"x" * 300 + b"\x02b\x011"])
def test_properties_of_a_record(*, v2: bool, sys_flag: int, properties: bytes) -> None:
    data = record(
        topic=b"T" * 40,
        body=b"body" * 100,
        properties=properties,
        sys_flag=sys_flag,
        born=V6 if sys_flag & flags.BORN_HOST_V6 else V4,
        store=V6 if sys_flag & flags.STORE_HOST_V6 else V4,
        v2=v2,
    )
    found = check(data)
    assert isinstance(found, DispatchRequest)
    for form in (data, memoryview(data)):
        assert fmt.record_properties(form) == found.properties
