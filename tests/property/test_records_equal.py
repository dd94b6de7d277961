"""The compiled reader of records makes the messages that the reference makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from roquet.client.message import ReceivedMessage
from roquet.client.record_reader import decode_messages
from roquet.errors import ProtocolError
from roquet.format.commit_log import encode_record
from roquet.model import sys_flag as flags
from roquet.model.host import Host
from roquet.model.message_queue import MessageQueue
from roquet.runtime import compiled

pytestmark = pytest.mark.skipif(
    not compiled.is_built("roquet.client._records"), reason="not compiled"
)

QUEUE = MessageQueue("Orders", "broker-a", 3)
HOSTS = st.builds(Host, st.binary(min_size=4, max_size=4), st.integers(0, 65_535))
FLAGS = st.sampled_from([0, 0, flags.COMPRESSED, flags.INNER_BATCH | flags.NEED_UNWRAP])
LONGS = st.integers(-(2**63), 2**62)
OFFSETS = st.integers(0, 2**60)
RECORDS = st.builds(
    encode_record,
    topic=st.sampled_from([b"Orders", b"Orders2", b"\xc3\xbc" * 20, b"\xff"]),
    body=st.binary(max_size=20),
    properties=st.sampled_from([b"", b"TAGS\x01a\x02", b"\xff\x00"]),
    queue_id=st.integers(0, 9),
    flag=st.integers(-(2**31), 2**31 - 1),
    queue_offset=OFFSETS,
    physical_offset=OFFSETS,
    sys_flag=FLAGS,
    born_timestamp_ms=LONGS,
    born_host=HOSTS.map(Host.pack),
    store_timestamp_ms=LONGS,
    store_host=HOSTS.map(Host.pack),
    reconsume_times=st.integers(0, 2**31 - 1),
    prepared_transaction_offset=LONGS,
    v2=st.booleans(),
).map(bytes)


def decoded(
    data: bytes, offset_delta: int, *, is_compiled: bool
) -> tuple[list[ReceivedMessage], bool] | None:
    """What a body holds; ``None`` if it begins with something else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ROQUET_PURE", "0" if is_compiled else "1")
        try:
            return decode_messages(data, QUEUE, offset_delta=offset_delta)
        except ProtocolError:
            return None


def check(data: bytes, offset_delta: int = 5) -> None:
    one = decoded(data, offset_delta, is_compiled=True)
    other = decoded(data, offset_delta, is_compiled=False)
    assert (one is None) == (other is None)
    if one is None or other is None:
        return
    assert one[1] is other[1]
    assert [structs.asdict(each) for each in one[0]] == [structs.asdict(each) for each in other[0]]


@given(records=st.lists(RECORDS, max_size=4), tail=st.binary(max_size=100))
def test_both_readers_read_the_same(records: list[bytes], tail: bytes) -> None:
    check(b"".join(records) + tail)


@pytest.mark.parametrize("offset_delta", [0, -1, 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("queue_offset", [0, 7, 2**63 - 1])
def test_both_readers_add_the_same_to_offsets(queue_offset: int, offset_delta: int) -> None:
    host = Host(bytes(4), 0).pack()
    record = encode_record(
        topic=b"Orders",
        body=b"body",
        properties=b"",
        queue_id=0,
        flag=0,
        queue_offset=queue_offset,
        physical_offset=0,
        sys_flag=0,
        born_timestamp_ms=0,
        born_host=host,
        store_timestamp_ms=0,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
    )
    check(bytes(record), offset_delta)


@given(
    records=st.lists(RECORDS, min_size=1, max_size=2),
    places=st.lists(st.tuples(st.integers(0, 150), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 30),
)
def test_both_readers_treat_damage_the_same(
    records: list[bytes], places: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(b"".join(records))
    for place, value in places:
        data[place % len(data)] = value
    check(bytes(data[: len(data) - cut]))
