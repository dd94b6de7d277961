from __future__ import annotations

from pathlib import Path

import pytest

from roquet.broker.processor.inner_message import added_properties
from roquet.format.batch import encode_batch
from roquet.model.host import Host
from roquet.model.topic_config import TopicConfig
from roquet.remoting.codes import RequestCode, ResponseCode
from roquet.remoting.command import create_request
from roquet.remoting.headers.base import encode_header
from roquet.remoting.headers.send import SendMessageRequestHeader
from roquet.store.config import BrokerRole, FlushDiskType, replace
from tests.table_changes import drop_topics, put_topics
from tests.unit.broker.processor.send_kit import (
    PLAIN,
    SMALL,
    SUFFIX,
    UNIQUE_KEY,
    FakeConnection,
    broker,
    send_header,
)

SLAVE = replace(SMALL, broker_role=BrokerRole.SLAVE)
SYNC_FLUSH = replace(SMALL, flush_disk_type=FlushDiskType.SYNC_FLUSH)
PLAIN_TWICE = 2
"""The first send of a topic makes its plan, the second one goes by it."""


def test_a_plain_message_is_stored_with_what_the_broker_adds(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        answers = [made.send(queue_id=2, sys_flag=1) for _ in range(PLAIN_TWICE)]
        records = [made.stored(queue_id=2, queue_offset=at) for at in range(PLAIN_TWICE)]
    assert [answer.code for answer in answers] == [0, 0]
    assert [list((answer.ext_fields or {}).items()) for answer in answers] == [
        [
            ("queueId", "2"),
            ("transactionId", UNIQUE_KEY),
            ("msgId", f"7F00000100002A9F{record.physical_offset:016X}"),
            ("TRACE_ON", "true"),
            ("MSG_REGION", "DefaultRegion"),
            ("queueOffset", str(record.queue_offset)),
        ]
        for record in records
    ]
    for record in records:
        assert record.properties_data == (PLAIN + SUFFIX).encode()
        assert record.body == b"body"
        assert (record.flag, record.sys_flag) == (5, 1)
        assert record.born_timestamp_ms == 1_699_999_999_000
        assert record.born_host == Host.parse("10.1.2.3:4567")
        assert record.store_host == Host.parse("127.0.0.1:10911")


def test_both_paths_store_the_same(tmp_path: Path) -> None:
    """With a hook every send goes step by step."""

    class Silent:
        def before(self, context: object) -> None: ...

        def after(self, context: object) -> None: ...

    texts = [PLAIN, f"{PLAIN}clé\x01värde\x02", f"A\x01\x01\x02UNIQ_KEY\x01{UNIQUE_KEY}\x02"]
    with broker(tmp_path) as made:
        made.send()
        for text in texts:
            made.processor.send_hooks.clear()
            made.send(text, reconsume_times=2)
            made.processor.send_hooks.append(Silent())
            made.send(text, reconsume_times=2)
        assert made.count() == 7
        for at in range(1, 7, 2):
            first, second = made.stored(queue_offset=at), made.stored(queue_offset=at + 1)
            assert first.properties_data == second.properties_data
            assert first.store_size == second.store_size
            assert first.reconsume_times == second.reconsume_times == 2


def test_the_suffix_follows_the_settings(tmp_path: Path) -> None:
    with broker(tmp_path, region_id="R", trace_on=False, cluster_name="C") as made:
        answer = made.send()
        assert made.stored().properties_data == PLAIN.encode() + added_properties(made.config)
    assert (
        added_properties(made.config) == b"MSG_REGION\x01R\x02TRACE_ON\x01false\x02CLUSTER\x01C\x02"
    )
    assert (answer.ext_fields or {})["MSG_REGION"] == "R"
    assert (answer.ext_fields or {})["TRACE_ON"] == "false"


def test_the_long_names_are_read_too(tmp_path: Path) -> None:
    values = encode_header(send_header(queue_id=1))
    with broker(tmp_path) as made:
        request = create_request(RequestCode.SEND_MESSAGE, opaque=1, body=b"long")
        request.ext_fields = encode_header(
            SendMessageRequestHeader(
                producer_group=values["a"],
                topic=values["b"],
                default_topic=values["c"],
                default_topic_queue_nums=4,
                queue_id=1,
                sys_flag=0,
                born_timestamp_ms=1,
                flag=0,
                properties=PLAIN,
            )
        )
        answer = made.handle(request)
        assert answer is not None
        assert answer.code == ResponseCode.SUCCESS
        assert made.stored(queue_id=1).body == b"long"


def test_a_one_way_send_is_stored_without_a_response(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        for _ in range(PLAIN_TWICE):
            assert made.send(oneway=True).code == -1
        assert made.count() == 2
        assert made.connection.answers == []
        assert made.flow.sends_waiting == 0


def test_responses_come_in_order_at_the_end_of_the_burst(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send()
        for opaque in range(5):
            request = create_request(310, send_header(), opaque=opaque, body=b"x")
            assert made.take(request) is None
        assert made.flow.sends_waiting == 5
        assert len(made.connection.answers) == 1
        made.end_burst()
        assert [answer.opaque for answer in made.connection.answers[1:]] == [0, 1, 2, 3, 4]
        assert made.flow.sends_waiting == 0


@pytest.mark.parametrize(
    ("wait", "answered_at_once"),
    [
        ("WAIT\x01true\x02", False),
        ("", False),
        ("WAIT\x01false\x02", True),
        ("WAIT\x01x\x02", True),
    ],
)
def test_only_sends_that_ask_for_it_wait_for_the_disk(
    wait: str, *, answered_at_once: bool, tmp_path: Path
) -> None:
    with broker(tmp_path, store_config=SYNC_FLUSH) as made:
        made.send("WAIT\x01false\x02")
        for _ in range(PLAIN_TWICE):
            answer = made.send(f"{wait}UNIQ_KEY\x01{UNIQUE_KEY}\x02")
            assert (answer.code == ResponseCode.SUCCESS) == answered_at_once
        assert made.flow.sends_waiting == (0 if answered_at_once else PLAIN_TWICE)
        made.flush()
        assert made.flow.sends_waiting == 0
        assert [answer.code for answer in made.connection.answers] == [0, 0, 0]


def test_a_waiting_send_keeps_neither_body_nor_properties(tmp_path: Path) -> None:
    with broker(tmp_path, store_config=SYNC_FLUSH) as made:
        requests = [
            create_request(310, send_header(), opaque=at, body=bytes(1000))
            for at in range(PLAIN_TWICE)
        ]
        for request in requests:
            assert made.handle(request) is None
        assert made.flow.sends_waiting == PLAIN_TWICE
        assert [request.body for request in requests] == [b"", b""]
        assert ["i" in (request.ext_fields or {}) for request in requests] == [False, False]
        made.flush()
        assert made.stored(queue_offset=1).body == bytes(1000)


def test_a_disk_that_takes_too_long_is_reported(tmp_path: Path) -> None:
    with broker(tmp_path, store_config=SYNC_FLUSH) as made:
        made.send()
        made.clock.advance(SYNC_FLUSH.sync_flush_timeout_ms + 1)
        made.store.acks.expire()
        (answer,) = made.connection.answers
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert answer.remark is None
        assert (answer.ext_fields or {})["queueOffset"] == "0"
        assert made.flow.sends_waiting == 0


def test_a_negative_queue_id_chooses_one_at_random(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        chosen = {(made.send(queue_id=-1).ext_fields or {})["queueId"] for _ in range(60)}
    assert chosen == {"0", "1", "2", "3"}


def test_a_queue_that_only_readers_have_accepts_messages(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        put_topics(made.topics, TopicConfig(topic_name="R", read_queue_nums=6, write_queue_nums=2))
        codes = [made.send(topic="R", queue_id=at).code for at in (5, 5, 6)]
    assert codes == [0, 0, ResponseCode.INVALID_PARAMETER]


def test_no_queue_of_a_topic_without_write_queues_can_be_chosen(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        put_topics(made.topics, TopicConfig(topic_name="R", read_queue_nums=2, write_queue_nums=0))
        answer = made.send(topic="R", queue_id=-1)
    assert (answer.code, answer.remark) == (1, "topic[R] has no queue to write to")


def test_a_change_of_a_topic_applies_at_once(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        assert made.send(queue_id=3).code == 0
        put_topics(made.topics, TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        assert made.send(queue_id=3).code == ResponseCode.INVALID_PARAMETER
        drop_topics(made.topics, "T")
        answer = made.send(default_topic="nobody")
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_plain_topics_are_approved_until_any_topic_changes(tmp_path: Path) -> None:
    approved: list[tuple[str, int]] = []
    with broker(tmp_path) as made:
        made.processor.plain_topics.append(lambda topic, queues: approved.append((topic, queues)))
        put_topics(
            made.topics,
            TopicConfig(topic_name="M", write_queue_nums=1, topic_filter_type="MULTI_TAG"),
        )
        for topic in ("T", "T", "M", "%RETRY%g"):
            assert made.send(topic=topic).code == 0
        assert approved == [("T", 4)]
        drop_topics(made.topics, "M")
        made.send()
        assert approved == [("T", 4)] * 2


def test_a_multi_tag_topic_marks_its_messages(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        put_topics(made.topics, TopicConfig(topic_name="M", topic_filter_type="MULTI_TAG"))
        for _ in range(PLAIN_TWICE):
            made.send(topic="M", sys_flag=1)
        assert made.stored("M", queue_offset=1).sys_flag == 3


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("[2001:db8::1]:99", Host.parse("[2001:db8::1]:99")),
        ("[::ffff:10.0.0.9]:99", Host.parse("10.0.0.9:99")),
        ("unknown", Host(bytes(4), 0)),
    ],
)
def test_the_producers_address_is_kept(address: str, host: Host, tmp_path: Path) -> None:
    connection = FakeConnection(address)
    with broker(tmp_path) as made:
        for at in range(PLAIN_TWICE):
            request = create_request(310, send_header(), opaque=1, body=b"x")
            answer = made.handle(request, connection)
            assert answer is not None
            assert answer.code == 0
            assert made.stored(queue_offset=at).born_host == host


# ------------------------------------------------------------------------------------ batches


def batch_of(*bodies: bytes) -> bytes:
    return encode_batch([(0, body, f"KEYS\x01{at}\x02".encode()) for at, body in enumerate(bodies)])


def test_a_batch_is_stored_as_its_messages(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send()
        answer = made.send(
            code=RequestCode.SEND_BATCH_MESSAGE, batch=True, body=batch_of(b"a", b"bb", b"c")
        )
        records = [made.stored(queue_offset=at) for at in (1, 2, 3)]
    assert answer.code == 0
    fields = answer.ext_fields or {}
    assert fields["msgId"].split(",") == [record.offset_message_id for record in records]
    assert fields["queueOffset"] == "1"
    assert fields["transactionId"] == UNIQUE_KEY
    assert [record.body for record in records] == [b"a", b"bb", b"c"]
    assert [record.properties_data for record in records] == [
        b"KEYS\x010\x02",
        b"KEYS\x011\x02",
        b"KEYS\x012\x02",
    ]


def test_a_batch_without_a_unique_key_has_no_transaction_id(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        answer = made.send("", code=320, batch=True, body=batch_of(b"a"))
    assert list(answer.ext_fields or {}) == [
        "queueId",
        "msgId",
        "TRACE_ON",
        "MSG_REGION",
        "queueOffset",
    ]


def test_only_the_header_tells_whether_it_is_a_batch(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send(code=320, batch=None, body=batch_of(b"a", b"b"))
        assert made.count() == 1
        assert made.stored().body == batch_of(b"a", b"b")
        made.send(code=310, batch=True, body=batch_of(b"a", b"b"))
        assert made.count() == 3


ILLEGAL = (
    "the message is illegal, maybe msg body or properties length not matched. "
    "msg body length limit 4194304B, msg properties length limit 32KB."
)


@pytest.mark.parametrize(
    ("fields", "code", "remark"),
    [
        ({"topic": "%RETRY%g"}, 13, "batch request does not support retry group %RETRY%g"),
        ({"topic": "%DLQ%" + "d" * 123}, 13, "message topic length too long 128"),
        ({"sys_flag": 4}, 13, ILLEGAL),
        ({"sys_flag": 8}, 13, ILLEGAL),
        ({"properties": "DELAY\x013\x02"}, 13, ILLEGAL),
        ({"properties": "INNER_NUM\x013\x02"}, 13, ILLEGAL),
        ({"properties": "k\x01" + "v" * 32767}, 13, ILLEGAL),
        ({"sys_flag": 0x80}, 13, ILLEGAL),
        (
            {"properties": "TIMER_DELAY_SEC\x013\x02"},
            1,
            "accurate timer message is not enabled, timerWheelEnable is false",
        ),
        ({"body": b"\0\0\0\7garbage"}, 13, ILLEGAL),
        ({"body": batch_of(b"a")[:-1]}, 13, ILLEGAL),
    ],
)
def test_batches_that_are_refused(
    fields: dict[str, object], code: int, remark: str, tmp_path: Path
) -> None:
    given: dict[str, object] = {"body": batch_of(b"a", b"b"), **fields}
    with broker(tmp_path) as made:
        answer = made.send(code=320, batch=True, **given)  # type: ignore[arg-type]
        assert made.store.max_physical_offset == 0
    assert (answer.code, answer.remark) == (code, remark)
    assert answer.ext_fields == {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}


# ------------------------------------------------------------------------------- refused sends


def test_a_slave_takes_no_sends(tmp_path: Path) -> None:
    with broker(tmp_path, store_config=SLAVE) as made:
        for _ in range(PLAIN_TWICE):
            answer = made.send()
            assert (answer.code, answer.remark, answer.ext_fields) == (
                ResponseCode.SYSTEM_BUSY,
                "[REJECTREQUEST]system busy, start flow control for a while",
                None,
            )
        assert made.store.max_physical_offset == 0


def test_a_slave_acting_for_its_master_takes_no_sends(tmp_path: Path) -> None:
    approved: list[str] = []
    with broker(tmp_path, store_config=SLAVE, slave_acting_master=True) as made:
        made.processor.plain_topics.append(lambda topic, _: approved.append(topic))
        for _ in range(PLAIN_TWICE):
            assert made.send().code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert approved == []
        assert made.store.max_physical_offset == 0


def test_sends_are_refused_before_the_start_time(tmp_path: Path) -> None:
    approved: list[str] = []
    with broker(tmp_path, start_accept_send_timestamp_ms=1_700_000_000_500) as made:
        made.processor.plain_topics.append(lambda topic, _: approved.append(topic))
        answer = made.send()
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("broker unable to service, until 2023-11-1")
        assert (answer.remark or "").endswith(":20,500")
        assert answer.ext_fields == {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
        assert approved == []
        made.clock.advance(500)
        assert [made.send().code for _ in range(3)] == [0, 0, 0]
        assert approved == ["T"]


def test_flow_control_comes_first(tmp_path: Path) -> None:
    with broker(tmp_path, send_queue_capacity=2, store_config=SYNC_FLUSH) as made:
        for _ in range(2):
            assert made.send().code == -1
        answer = made.send(topic="bad topic!")
        assert (answer.code, answer.remark, answer.ext_fields) == (
            ResponseCode.SYSTEM_BUSY,
            "[OVERLOAD]system busy, start flow control for a while",
            None,
        )
        made.busy = True
        assert (made.send().remark or "").startswith("[REJECTREQUEST]")


def test_a_store_that_fails_leaves_nothing_counted(tmp_path: Path) -> None:
    with broker(tmp_path) as made:
        made.send()
        made.store.put_hooks.append(_explode)
        with pytest.raises(ZeroDivisionError):
            made.send()
        assert made.flow.sends_waiting == 0
        made.store.put_hooks.clear()


def _explode(_: object) -> None:
    raise ZeroDivisionError
