"""The quick copy of delayed messages equals the one that decodes the whole message."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from roquet.broker.due_copy import DueCopies
from roquet.broker.stored_copy import copied, real_queue, records_in, stored_properties
from roquet.format.commit_log import encode_record
from roquet.model import sys_flag as flags
from roquet.model.host import Host
from roquet.model.message import BrokerMessage
from roquet.model.topic import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from tests.campaign import examples

NAMES = st.sampled_from(["REAL_TOPIC", "REAL_QID", "DELAY", "TAGS", "__CRC32#", "XREAL_TOPIC", ""])
VALUES = st.sampled_from(["T", "U", "0", "12", "007", "1234567890", "", "a\x01b", "é", "-1", "12 "])
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=5)
PLACE = st.sampled_from(
    [
        b"",
        b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02",
        b"REAL_TOPIC\x01T\x02REAL_QID\x0112\x02",
        b"REAL_QID\x011\x02REAL_TOPIC\x01\xff\x02",
        b"REAL_TOPIC\x01" + TRANS_HALF_TOPIC.encode() + b"\x02REAL_QID\x010\x02",
    ]
)
HOSTS = st.sampled_from([Host(b"\x7f\0\0\1", 10911), Host(bytes(15) + b"\1", 80)])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    born_host, store_host = draw(HOSTS), draw(HOSTS)
    properties = draw(PLACE)
    properties += b"".join(f"{name}\x01{value}\x02".encode() for name, value in draw(PAIRS))
    sys_flag = draw(st.sampled_from([0, 1, 8]))
    sys_flag |= flags.BORN_HOST_V6 if born_host.is_ipv6 else 0
    sys_flag |= flags.STORE_HOST_V6 if store_host.is_ipv6 else 0
    return encode_record(
        topic=SCHEDULE_TOPIC.encode(),
        body=draw(st.binary(max_size=30)),
        properties=properties[:-1] if draw(st.booleans()) else properties,
        queue_id=draw(st.integers(0, 17)),
        flag=draw(st.integers(-5, 5)),
        queue_offset=draw(st.integers(0, 2**40)),
        physical_offset=draw(st.integers(0, 2**40)),
        sys_flag=sys_flag,
        born_timestamp_ms=draw(st.integers(0, 2**42)),
        born_host=born_host.pack(),
        store_timestamp_ms=7,
        store_host=store_host.pack(),
        reconsume_times=draw(st.integers(0, 3)),
        prepared_transaction_offset=draw(st.integers(0, 9)),
        v2=draw(st.booleans()),
    )


def whole(data: bytes) -> list[tuple[int, BrokerMessage | None]]:
    found: list[tuple[int, BrokerMessage | None]] = []
    for message in records_in(data):
        queue = real_queue(message)
        is_meant = queue is not None and queue[0] != TRANS_HALF_TOPIC
        copy = copied(message, queue, stored_properties(message)) if queue and is_meant else None
        found.append((message.queue_offset, copy))
    return found


@settings(max_examples=examples(400), deadline=None)
@given(parts=st.lists(st.lists(records(), max_size=4).map(b"".join), max_size=4))
def test_quick_copies_equal_those_of_whole_messages(parts: list[bytes]) -> None:
    expected = [copy for part in parts for copy in whole(part)]
    assert list(DueCopies().of([memoryview(part) for part in parts])) == expected
