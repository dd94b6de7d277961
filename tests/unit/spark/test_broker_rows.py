"""Records of answers as rows: the quick way and the one by messages."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pytest

from roquet.errors import ProtocolError
from roquet.format.batch import encode_batch
from roquet.format.commit_log import encode_record
from roquet.model import sys_flag as flags
from roquet.model.message_queue import MessageQueue
from roquet.spark.broker.fetch import FetchedRecords
from roquet.spark.broker.rows import RowMaker
from roquet.spark.schema import COLUMNS, arrow_schema, struct_type

QUEUE = MessageQueue("Orders", "broker-a", 3)
ALL = arrow_schema(struct_type(COLUMNS))


def a_record(queue_offset: int, **fields: object) -> bytes:
    given: dict[str, object] = {
        "topic": b"shop%Orders",
        "v2": False,
        "body": b"body %d" % queue_offset,
        "properties": b"TAGS\x01eu\x02KEYS\x01a b\x02UNIQ_KEY\x01AB%d\x02" % queue_offset,
        "queue_id": 3,
        "flag": 7,
        "queue_offset": queue_offset,
        "sys_flag": 0,
        "born_timestamp_ms": 1_700_000_000_123,
        "store_timestamp_ms": 1_700_000_000_456,
        "born_host": bytes(range(8)),
        "store_host": b"\x7f\0\0\x01\0\0\x2a\x9f",
        "reconsume_times": 2,
        "prepared_transaction_offset": 5,
        "append_crc": False,
        **fields,
    }
    return encode_record(physical_offset=queue_offset * 1_000, **given)  # type: ignore[arg-type]


def a_piece(records: Sequence[bytes], *, is_plain: bool, offset_delta: int = 0) -> FetchedRecords:
    return FetchedRecords(
        data=b"".join(records),
        offset_delta=offset_delta,
        start_offset=0,
        end_offset=1_000,
        is_plain=is_plain,
    )


def rows(
    pieces: Iterable[FetchedRecords],
    *,
    schema: pa.Schema = ALL,
    expression: str = "*",
    decompress: bool = True,
) -> list[dict[str, object]]:
    maker = RowMaker(QUEUE, schema, expression, decompress=decompress)
    found: list[dict[str, object]] = []
    for batch in maker.batches(pieces):
        assert batch.schema == schema
        assert batch.num_rows
        found += batch.to_pylist()
    return found


RECORDS = [
    a_record(0),
    a_record(1, properties=b"", born_timestamp_ms=-(2**63), flag=-1),
    a_record(2, properties=b"TAGS\x01\xff\x02a\x01b\x02a\x01c\x02"),
    a_record(3, body=zlib.compress(b"long" * 99), sys_flag=flags.COMPRESSED),
    a_record(
        4,
        sys_flag=flags.BORN_HOST_V6 | flags.STORE_HOST_V6,
        born_host=bytes(range(20)),
        store_host=b"\xfe" * 20,
    ),
    a_record(5, topic=b"Orders", body=b""),
]


@pytest.mark.parametrize("decompress", [True, False])
def test_both_ways_give_the_same(*, decompress: bool) -> None:
    quick = rows([a_piece(RECORDS, is_plain=True)], decompress=decompress)
    slow = rows([a_piece(RECORDS, is_plain=False)], decompress=decompress)
    assert quick == slow
    assert [row["queueOffset"] for row in quick] == list(range(6))
    assert {row["topic"] for row in quick} == {"Orders"}
    assert {row["brokerName"] for row in quick} == {"broker-a"}
    assert (quick[3]["body"] == b"long" * 99) is decompress


def test_only_the_columns_that_are_asked_for() -> None:
    schema = arrow_schema(struct_type(["queueOffset", "topic"]))
    found = rows([a_piece(RECORDS[:2], is_plain=True)], schema=schema)
    assert found == [{"queueOffset": 0, "topic": "Orders"}, {"queueOffset": 1, "topic": "Orders"}]


@pytest.mark.parametrize("is_plain", [True, False])
def test_tags_that_only_have_the_same_hash_are_left_out(*, is_plain: bool) -> None:
    # Java's hash of both texts is the same, and brokers compare hashes.
    records = [
        a_record(n, properties=b"TAGS\x01%b\x02" % tag) for n, tag in enumerate([b"Aa", b"BB"])
    ]
    schema = arrow_schema(struct_type(["queueOffset"]))
    piece = a_piece(records, is_plain=is_plain)
    assert rows([piece], schema=schema, expression="Aa") == [{"queueOffset": 0}]


def test_pieces_stay_in_order_whatever_their_way() -> None:
    pieces = [
        a_piece(RECORDS[:2], is_plain=True),
        a_piece(RECORDS[2:3], is_plain=True),
        a_piece(RECORDS[3:4], is_plain=False),
        a_piece(RECORDS[4:], is_plain=True),
    ]
    assert [row["queueOffset"] for row in rows(pieces)] == list(range(6))


def test_a_static_topic_counts_from_elsewhere() -> None:
    found = rows([a_piece(RECORDS[:2], is_plain=True, offset_delta=100)])
    assert [row["queueOffset"] for row in found] == [100, 101]


def test_a_batch_inside_of_a_message_is_opened() -> None:
    inner = encode_batch([(1, b"one", b"TAGS\x01x\x02"), (2, b"two", b"")])
    outer = a_record(8, body=inner, sys_flag=flags.INNER_BATCH | flags.NEED_UNWRAP)
    found = rows([a_piece([outer], is_plain=False)])
    assert [(row["queueOffset"], row["body"], row["tags"]) for row in found] == [
        (8, b"one", "x"),
        (9, b"two", None),
    ]


def test_bytes_that_are_no_message_are_an_error() -> None:
    with pytest.raises(ProtocolError, match="not a message"):
        rows([a_piece([RECORDS[0], b"\0" * 200], is_plain=True)])


def test_a_body_that_cannot_be_decompressed_is_an_error_with_a_way_out() -> None:
    bad = a_record(0, body=b"not zlib", sys_flag=flags.COMPRESSED)
    with pytest.raises(ProtocolError, match="cannot be decompressed") as caught:
        rows([a_piece([bad], is_plain=True)])
    assert "decompress to false" in (caught.value.hint or "")
    assert rows([a_piece([bad], is_plain=True)], decompress=False)[0]["body"] == b"not zlib"
