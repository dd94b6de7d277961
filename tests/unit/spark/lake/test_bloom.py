"""Bloom filters that Arrow wrote, asked in Python."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from roquet.spark.lake.bloom import may_have, xxhash64

PRESENT = [f"order-{number}" for number in range(3_000)]
ABSENT = [f"parcel-{number}" for number in range(3_000)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("abc", 0x44BC2CF5AD770999),
        ("Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_known_hashes(text: str, expected: int) -> None:
    assert xxhash64(text.encode()) == expected


def written(texts: list[str], options: dict[str, object] | None) -> tuple[bytes, int | None]:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"keys": texts}), sink, bloom_filter_options=options)
    data = sink.getvalue().to_pybytes()
    column = pq.ParquetFile(pa.BufferReader(data)).metadata.row_group(0).column(0)
    return data, column.bloom_filter_offset


def test_present_values_are_never_denied() -> None:
    # Values of every length take every path of the hash.
    texts = [*PRESENT, *("x" * size for size in range(80)), "ключ", "鍵"]
    data, offset = written(texts, {"keys": {"ndv": len(texts), "fpp": 0.01}})
    assert offset is not None

    def read(start: int, count: int) -> bytes:
        return data[start : start + count]

    assert all(may_have(read, offset, text) for text in texts)
    wrong = sum(may_have(read, offset, text) for text in ABSENT)
    assert wrong < len(ABSENT) * 0.05


def test_an_unknown_filter_kind_matches_everything() -> None:
    for head in (
        b"",
        b"\x15",
        b"\x15\x40" + bytes(30),
        b"\x25" + bytes(31),
        b"\x15" + b"\xff" * 31,
    ):
        assert may_have(lambda _start, count, head=head: head[:count], 0, "order-1")  # type: ignore[misc]
