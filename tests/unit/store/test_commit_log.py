"""Appending: where records go, what is refused, and what a refusal leaves untouched."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace as replace_rules
from pathlib import Path

import pytest

from roquet.format import commit_log as fmt
from roquet.format.batch import encode_batch
from roquet.format.record_layout import MAGIC_V1, MAGIC_V2
from roquet.model import sys_flag as flags
from roquet.model.host import Host
from roquet.model.message import BatchMessage, BrokerMessage
from roquet.model.properties import encode_properties
from roquet.model.topic import retry_topic
from roquet.runtime.clock import ManualClock
from roquet.store.default_message_store import DefaultMessageStore
from roquet.store.results import AppendResult
from roquet.testing.files import FaultyFiles
from tests.unit.store.kit import (
    NOW_MS,
    SEGMENT_BYTES,
    answer,
    bodies,
    config,
    message,
    opened,
    put,
    refusal,
)

V6 = Host.parse("[2001:db8::1]:10911")
FIXED = 91 + 1  # everything but body and properties of a record of topic "T"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DefaultMessageStore]:
    with opened(tmp_path / "store") as store:
        yield store


def batch(*texts: bytes, **changes: object) -> BatchMessage:
    body = encode_batch([(0, text, encode_properties({"KEYS": "k"})) for text in texts])
    fields: dict[str, object] = {"topic": "T", "queue_id": 0, "body": body, **changes}
    return BatchMessage(**fields)  # type: ignore[arg-type]


def appended(store: DefaultMessageStore, one: BrokerMessage | BatchMessage) -> AppendResult:
    result = answer(store, one)
    assert result.append is not None, result
    assert result.is_ok
    return result.append


class TestSegments:
    def test_a_record_may_leave_exactly_eight_bytes(self, store: DefaultMessageStore) -> None:
        exact = appended(store, message(b"x" * (SEGMENT_BYTES - 8 - FIXED)))
        assert (exact.wrote_offset, exact.wrote_bytes) == (0, SEGMENT_BYTES - 8)
        assert len(store.commit_log.queue.segments) == 1
        following = appended(store, message(b"next"))
        assert following.wrote_offset == SEGMENT_BYTES
        first = store.commit_log.queue.segments[0]
        assert bytes(first.view[-8:]) == fmt.end_of_segment(8)
        assert first.is_full
        assert [len(body) for body in bodies(store)] == [SEGMENT_BYTES - 8 - FIXED, 4]

    def test_one_byte_more_does_not_fit_any_segment(self, store: DefaultMessageStore) -> None:
        status, detail = refusal(store, message(b"x" * (SEGMENT_BYTES - 7 - FIXED)))
        assert status == "MESSAGE_ILLEGAL"
        assert str(SEGMENT_BYTES) in detail

    def test_a_segment_is_closed_when_the_next_record_does_not_fit(
        self, store: DefaultMessageStore
    ) -> None:
        appended(store, message(b"a" * 10_000))
        second = appended(store, message(b"b" * 10_000))
        assert second.wrote_offset == SEGMENT_BYTES
        first = store.commit_log.queue.segments[0]
        end = 10_000 + FIXED
        assert bytes(first.view[end : end + 8]) == fmt.end_of_segment(SEGMENT_BYTES - end)
        assert not any(first.view[end + 8 :])
        assert bodies(store) == [b"a" * 10_000, b"b" * 10_000]

    def test_a_record_that_would_leave_seven_bytes_goes_to_the_next_segment(
        self, store: DefaultMessageStore
    ) -> None:
        appended(store, message(b"a" * 5000))
        room = SEGMENT_BYTES - (5000 + FIXED)
        assert appended(store, message(b"b" * (room - 7 - FIXED))).wrote_offset == SEGMENT_BYTES

    def test_without_a_new_segment_the_old_one_stays_open(self, tmp_path: Path) -> None:
        files = FaultyFiles(only=frozenset({"allocate"}))
        with opened(tmp_path / "store", files=files) as store:
            put(store, message(b"a" * 10_000))
            files.fail_at = len(files.calls) + 1
            result = answer(store, message(b"b" * 10_000))
            assert result.status.value == "CREATE_MAPPED_FILE_FAILED"
            assert "rror" in result.detail
            assert appended(store, message(b"small")).wrote_offset == 10_000 + FIXED
            assert appended(store, message(b"b" * 10_000)).wrote_offset == SEGMENT_BYTES
            assert bodies(store) == [b"a" * 10_000, b"small", b"b" * 10_000]
        assert sorted(p.name for p in (tmp_path / "store" / "commitlog").iterdir()) == [
            f"{0:020d}",
            f"{SEGMENT_BYTES:020d}",
        ]


class TestRecords:
    def test_every_field_is_stored(self, store: DefaultMessageStore) -> None:
        one = BrokerMessage(
            topic="T",
            queue_id=7,
            body=b"the body",
            properties=encode_properties({"TAGS": "t", "a": "é"}),
            flag=-3,
            sys_flag=flags.COMPRESSED | flags.COMPRESSION_ZLIB,
            born_timestamp_ms=123,
            born_host=Host.parse("10.0.0.1:1"),
            store_host=Host.parse("10.0.0.2:2"),
            reconsume_times=4,
            prepared_transaction_offset=99,
        )
        result = appended(store, one)
        found = store.look_message(result.wrote_offset)
        assert found is not None
        assert (found.topic, found.queue_id, found.queue_offset) == ("T", 7, 0)
        assert (found.body, found.properties) == (b"the body", {"TAGS": "t", "a": "é"})
        assert (found.flag, found.sys_flag) == (-3, flags.COMPRESSED | flags.COMPRESSION_ZLIB)
        assert (found.born_timestamp_ms, found.store_timestamp_ms) == (123, NOW_MS)
        assert (str(found.born_host), str(found.store_host)) == ("10.0.0.1:1", "10.0.0.2:2")
        assert (found.reconsume_times, found.prepared_transaction_offset) == (4, 99)

    def test_ipv6_hosts_set_their_flags(self, store: DefaultMessageStore) -> None:
        born_only = appended(store, message(born_host=V6))
        both = appended(store, message(born_host=V6, store_host=V6))
        neither = appended(store, message(sys_flag=flags.BORN_HOST_V6 | flags.STORE_HOST_V6))
        found = [store.look_message(r.wrote_offset) for r in (born_only, both, neither)]
        assert [f.sys_flag for f in found if f] == [0x10, 0x30, 0]
        assert [f.born_host.is_ipv6 for f in found if f] == [True, True, False]
        assert both.wrote_bytes == neither.wrote_bytes + 24
        assert found[1] is not None
        assert len(found[1].offset_message_id) == 56

    @pytest.mark.parametrize(("length", "magic"), [(127, MAGIC_V1), (128, MAGIC_V2)])
    def test_long_retry_topics_use_the_second_version(
        self, store: DefaultMessageStore, length: int, magic: int
    ) -> None:
        topic = retry_topic("g" * (length - 7))
        result = appended(store, message(topic=topic))
        view = store.commit_log.slice(result.wrote_offset, result.wrote_bytes)
        assert view is not None
        assert struct.unpack_from(">I", view, 4) == (magic,)
        found = store.look_message(result.wrote_offset)
        assert found is not None
        assert found.topic == topic
        assert bodies(store, topic) == [b"body"]

    def test_without_the_second_version_long_topics_are_refused(self, tmp_path: Path) -> None:
        settings = config(auto_message_version_on_topic_length=False)
        with opened(tmp_path / "store", config=settings) as store:
            status, detail = refusal(store, message(topic=retry_topic("g" * 200)))
        assert (status, detail) == ("MESSAGE_ILLEGAL", "topic of 207 bytes")

    def test_prepared_and_rolled_back_records_take_no_queue_offset(
        self, store: DefaultMessageStore
    ) -> None:
        kinds = [
            flags.TRANSACTION_NOT,
            flags.TRANSACTION_PREPARED,
            flags.TRANSACTION_COMMIT,
            flags.TRANSACTION_ROLLBACK,
            flags.TRANSACTION_NOT,
        ]
        results = [appended(store, message(sys_flag=kind)) for kind in kinds]
        assert [result.queue_offset for result in results] == [0, 0, 1, 0, 2]
        assert store.max_offset_in_queue("T", 0) == 3

    def test_an_empty_body_is_a_body(self, store: DefaultMessageStore) -> None:
        appended(store, message(b""))
        assert bodies(store) == [b""]


class TestTime:
    def test_store_times_never_go_back(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", clock=clock) as store:
            times = []
            for step in (0, 10, -5000, 100, 6000):
                clock.advance(step)
                times.append(appended(store, message()).store_timestamp_ms)
        assert times == [NOW_MS, NOW_MS + 10, NOW_MS + 10, NOW_MS + 10, NOW_MS + 1110]

    def test_not_even_over_a_restart(self, tmp_path: Path) -> None:
        clock = ManualClock(NOW_MS)
        with opened(tmp_path / "store", clock=clock) as store:
            put(store, message())
        clock.advance(-30_000)
        with opened(tmp_path / "store", clock=clock) as store:
            assert appended(store, message()).store_timestamp_ms == NOW_MS


class TestBatches:
    def test_all_messages_get_offsets_and_ids(self, store: DefaultMessageStore) -> None:
        appended(store, message())
        result = appended(store, batch(b"one", b"two", b"three"))
        assert result.queue_offset == 1
        assert len(result.physical_offsets) == 3
        assert result.wrote_offset == result.physical_offsets[0]
        assert bodies(store) == [b"body", b"one", b"two", b"three"]
        ids = result.message_id(Host.parse("127.0.0.1:10911")).split(",")
        assert [int(text[16:], 16) for text in ids] == list(result.physical_offsets)
        assert store.max_offset_in_queue("T", 0) == 4

    def test_properties_and_flags_are_each_messages_own(self, store: DefaultMessageStore) -> None:
        body = encode_batch([(5, b"a", b"TAGS\x01x"), (-6, b"b", b"")])
        result = appended(store, BatchMessage("T", 0, body))
        found = [store.look_message(offset) for offset in result.physical_offsets]
        assert [(f.flag, f.tags) for f in found if f] == [(5, "x"), (-6, None)]

    def test_all_or_nothing(self, store: DefaultMessageStore) -> None:
        good = encode_batch([(0, b"one", b"")])
        long_properties = encode_batch([(0, b"x", b"a\x01" + b"v" * 32_000)])
        for bad in (
            good + b"rest",
            good + long_properties[:-1],
            good[:-1],
            b"",
        ):
            status, _ = refusal(store, BatchMessage("T", 0, bad))
            assert status == "MESSAGE_ILLEGAL"
        assert store.max_offset_in_queue("T", 0, committed=False) == 0
        assert bodies(store) == []

    def test_a_batch_stays_in_one_segment(self, store: DefaultMessageStore) -> None:
        appended(store, message(b"x" * 10_000))
        result = appended(store, batch(b"a" * 4000, b"b" * 4000))
        assert result.wrote_offset == SEGMENT_BYTES
        status, detail = refusal(store, batch(*[b"a" * 4000] * 4))
        assert status == "MESSAGE_ILLEGAL"
        assert "do not fit a segment" in detail

    def test_a_batch_has_the_limit_of_a_body(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store", config=config(max_message_bytes=1000)) as store:
            status, detail = refusal(store, batch(b"a" * 600, b"b" * 600))
            assert status == "MESSAGE_ILLEGAL"
            assert detail.startswith("batch body of ")

    def test_ipv6_and_long_topics(self, store: DefaultMessageStore) -> None:
        topic = retry_topic("g" * 150)
        result = appended(store, batch(b"a", b"b", topic=topic, born_host=V6, store_host=V6))
        assert len(result.physical_offsets) == 2
        assert bodies_of(store, result) == [b"a", b"b"]


def bodies_of(store: DefaultMessageStore, result: AppendResult) -> list[bytes]:
    found = [store.look_message(offset) for offset in result.physical_offsets]
    return [one.body for one in found if one is not None]


class TestRefusals:
    def test_properties_too_long(self, store: DefaultMessageStore) -> None:
        status, detail = refusal(store, message(properties=b"a\x01" + b"v" * 32_766))
        assert status == "PROPERTIES_SIZE_EXCEEDED"
        assert detail == "32768 bytes, 32767 allowed"

    def test_the_longest_properties_fit(self, tmp_path: Path) -> None:
        settings = config(commit_log_file_bytes=1 << 16)
        with opened(tmp_path / "store", config=settings) as store:
            appended(store, message(properties=b"a\x01" + b"v" * 32_765))

    def test_body_too_long(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store", config=config(max_message_bytes=100)) as store:
            appended(store, message(b"x" * 100))
            assert refusal(store, message(b"x" * 101)) == ("MESSAGE_ILLEGAL", "body of 101 bytes")

    @pytest.mark.parametrize(
        ("one", "words"),
        [
            (message(topic=""), "blank"),
            (message(topic="../escape"), "illegal characters"),
            (message(topic="a/b"), "illegal characters"),
            (message(topic="x" * 128), "longer"),
            (message(topic="Thème"), "illegal characters"),
            (message(queue_id=-1), "queue id -1"),
            (message(queue_id=1 << 31), "field"),
            (message()._replace(flag=1 << 31), "field"),
            (message()._replace(sys_flag=1 << 40), "field"),
            (message()._replace(born_timestamp_ms=1 << 63), "field"),
            (message()._replace(reconsume_times=-(1 << 31) - 1), "field"),
            (message()._replace(prepared_transaction_offset=1 << 63), "field"),
            (message()._replace(born_host=Host(b"\x7f\0\0\1", 1 << 31)), "hosts"),
        ],
    )
    def test_a_bad_field_is_a_result_and_not_an_exception(
        self, store: DefaultMessageStore, one: BrokerMessage, words: str
    ) -> None:
        status, detail = refusal(store, one)
        assert status == "MESSAGE_ILLEGAL"
        assert words in detail
        assert not store.is_os_page_cache_busy()
        assert store.lock_time_ms() == 0

    def test_properties_that_recovery_would_take_for_a_torn_write(
        self, store: DefaultMessageStore
    ) -> None:
        status, detail = refusal(store, message(properties=b"a\x01" + bytes(1500) + b"\x02"))
        assert status == "MESSAGE_ILLEGAL"
        assert detail.startswith("properties: ")
        appended(store, message(properties=b"a\x01" + bytes(200) + b"\x02"))

    def test_a_store_that_is_not_started(self, tmp_path: Path) -> None:
        with opened(tmp_path / "store") as store:
            store.puts.is_open = False
            result = answer(store, message())
            assert (result.status.value, result.detail) == ("SERVICE_NOT_AVAILABLE", "not started")
            store.puts.is_open = True

    def test_refusals_are_counted(self, store: DefaultMessageStore) -> None:
        refusal(store, message(topic=""))
        appended(store, message())
        info = store.runtime_info()
        assert (info["putMessageFailedTimes"], info["putMessageTimesTotal"]) == ("1", "1")


class TestPropertyCrc:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[DefaultMessageStore]:
        with opened(tmp_path / "store", config=config(append_property_crc=True)) as store:
            yield store

    @pytest.mark.parametrize(
        "properties",
        [
            b"",
            b"a\x01b",
            b"a\x01b\x02",
            b"a\x01b\x02" + fmt.crc_property(7),
            fmt.crc_property(7) + b"a\x01b",
        ],
    )
    def test_single_and_batch(self, store: DefaultMessageStore, properties: bytes) -> None:
        single = appended(store, message(properties=properties))
        many = appended(store, BatchMessage("T", 0, encode_batch([(0, b"x", properties)] * 2)))
        forced = replace_rules(store.commit_log.rules, force_property_crc=True)
        for offset in (*single.physical_offsets, *many.physical_offsets):
            record = store.select_one(offset)
            assert record is not None
            found = fmt.check_record(record, 0, len(record), physical_offset=offset, rules=forced)
            assert isinstance(found, fmt.DispatchRequest), found
            expected = {"a": "b"} if b"a" in properties else {}
            assert {k: v for k, v in found.properties.items() if k != "__CRC32#"} == expected

    def test_its_twenty_bytes_count_against_the_limit(self, store: DefaultMessageStore) -> None:
        status, detail = refusal(store, message(properties=b"a\x01" + b"v" * 32_745 + b"\x02"))
        assert (status, detail) == ("PROPERTIES_SIZE_EXCEEDED", "32768 bytes, 32767 allowed")


class TestReplicatedData:
    def filled(self, root: Path) -> bytes:
        with opened(root) as master:
            put(master, *[message(b"%d" % n * 1000, KEYS=f"k{n}") for n in range(20)])
            return b"".join(master.bulk_commit_log_data(0, master.max_physical_offset))

    def test_a_log_may_begin_only_where_a_segment_does(self, store: DefaultMessageStore) -> None:
        assert not store.commit_log.begin_at(100)
        assert not store.commit_log.begin_at(-SEGMENT_BYTES)
        assert store.commit_log.queue.segments == []
        assert store.commit_log.begin_at(5 * SEGMENT_BYTES)
        assert store.commit_log.append_data(5 * SEGMENT_BYTES, b"x")
        assert store.commit_log.min_offset == 5 * SEGMENT_BYTES

    @pytest.mark.parametrize("step", [1, 7, 8, 9, 1000, 32_768, 1 << 20])
    def test_any_cut_of_the_masters_bytes(
        self, store: DefaultMessageStore, tmp_path: Path, step: int
    ) -> None:
        data = self.filled(tmp_path / "master")
        if step == 1:
            data = data[:3000]
        assert store.commit_log.begin_at(0)
        for offset in range(0, len(data), step):
            assert store.commit_log.append_data(offset, data[offset : offset + step])
        assert store.commit_log.wrote_offset == len(data)
        assert b"".join(store.bulk_commit_log_data(0, len(data))) == data

    def test_only_at_the_end(self, store: DefaultMessageStore) -> None:
        assert store.commit_log.begin_at(0)
        assert store.commit_log.append_data(0, b"12345")
        for offset in (0, 4, 6, SEGMENT_BYTES):
            assert not store.commit_log.append_data(offset, b"x")
        assert store.commit_log.wrote_offset == 5


def test_reading_the_log(store: DefaultMessageStore) -> None:
    first = appended(store, message(b"a" * 10_000))
    second = appended(store, message(b"b" * 10_000))
    log = store.commit_log
    assert log.slice(first.wrote_offset, first.wrote_bytes) is not None
    assert log.slice(first.wrote_offset, SEGMENT_BYTES + 1) is None
    assert log.slice(second.wrote_offset, second.wrote_bytes + 1) is None
    assert log.slice(-1, 10) is None
    assert log.slice(10 * SEGMENT_BYTES, 10) is None
    assert log.data_from(log.max_offset, 100) is None
    tail = log.data_from(second.wrote_offset + 10, 1 << 30)
    assert tail is not None
    assert len(tail) == second.wrote_bytes - 10
    assert log.next_segment_offset(5) == SEGMENT_BYTES
    assert log.next_segment_offset(SEGMENT_BYTES) == 2 * SEGMENT_BYTES
    assert log.store_timestamp_at(first.wrote_offset, first.wrote_bytes) == NOW_MS
    assert log.store_timestamp_at(first.wrote_offset + 1, first.wrote_bytes - 1) == -1
    assert log.store_timestamp_at(99 * SEGMENT_BYTES, 100) == -1
