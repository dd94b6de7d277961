from __future__ import annotations

import zlib
from pathlib import Path

import pytest

from roquet.client.compression import Compression, compress
from roquet.errors import CorruptRecord
from roquet.spark.schema import COLUMNS
from tests.unit.spark.log.kit import Row, mixed_messages, rows, stored_rows, task_rows, write_store
from tests.unit.store.kit import SEGMENT_BYTES, message

TOLD = ",".join([*COLUMNS, "_corrupt"])
BAD = 30  # number of the record that is damaged


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_store(tmp_path, mixed_messages(200))
    return tmp_path


@pytest.fixture
def good(store: Path) -> list[Row]:
    return stored_rows(store)


def damage(store: Path, physical_offset: int, data: bytes) -> None:
    start = physical_offset - physical_offset % SEGMENT_BYTES
    path = store / "commitlog" / f"{start:020d}"
    with path.open("r+b") as file:
        file.seek(physical_offset - start)
        file.write(data)


@pytest.mark.parametrize(
    ("at", "data", "field"),
    [
        (0, b"\x00\x00\x00\x10", "totalSize"),
        (0, b"\x00\x00\x02\x00", "propertiesLength"),
        (4, b"\x00\x00\x00\x00", "magic"),
        (84, b"\x7f\xff\xff\xff", "bodyLength"),
    ],
)
def test_broken_lengths_are_one_row_and_the_rest_is_read(
    store: Path, good: list[Row], at: int, data: bytes, field: str
) -> None:
    bad = good[BAD]
    damage(store, bad["physicalOffset"] + at, data)
    found = rows(store, columns=TOLD)
    assert len(found) == len(good)
    row = found.pop(BAD)
    assert {row.pop("_corrupt").split(": ")[1]} == {field}
    assert (row.pop("physicalOffset"), row.pop("storeSize")) == (
        bad["physicalOffset"],
        bad["storeSize"],
    )
    assert set(row.values()) == {None}
    assert [
        {**each, "brokerName": None, "_corrupt": None} for each in good if each is not bad
    ] == found
    assert len(rows(store)) == len(good)
    assert len(rows(store, mode="DROPMALFORMED")) == len(good) - 1
    with pytest.raises(CorruptRecord, match=f"damaged at physical offset {bad['physicalOffset']}"):
        rows(store, mode="failfast")


def test_a_body_that_does_not_fit_its_crc_is_told_if_asked(store: Path, good: list[Row]) -> None:
    bad = good[BAD]
    assert bad["body"]
    damage(store, bad["physicalOffset"] + 88, b"!")
    spoilt = b"!" + bad["body"][1:]
    assert rows(store)[BAD]["body"] == spoilt
    told = rows(store, columns=TOLD, checkCrc="true")
    assert [row["physicalOffset"] for row in told if row["_corrupt"]] == [bad["physicalOffset"]]
    assert "bodyCRC" in told[BAD]["_corrupt"]
    assert told[BAD]["body"] == spoilt
    assert told[BAD]["msgId"] == bad["msgId"]
    untold = rows(store, checkCrc="true")
    assert untold[BAD]["body"] is None
    assert untold[BAD]["topic"] == bad["topic"]
    assert len(rows(store, checkCrc="true", mode="DROPMALFORMED")) == len(good) - 1
    assert rows(store, checkCrc="true", topics=f"T{(BAD + 1) % 3}", columns=TOLD) == [
        row for row in told if row["topic"] == f"T{(BAD + 1) % 3}"
    ]
    with pytest.raises(CorruptRecord):
        rows(store, checkCrc="true", mode="FAILFAST", columns="topic")


@pytest.mark.parametrize("split_bytes", ["1024", "3000", "64k"])
def test_damage_does_not_depend_on_where_the_log_is_cut(
    store: Path, good: list[Row], split_bytes: str
) -> None:
    for number in (0, 17, 18, 60, 61, 62, 140):
        damage(store, good[number]["physicalOffset"], b"\xff" * 40)
    whole = rows(store, columns=TOLD)
    cut = [
        row for task in task_rows(store, columns=TOLD, maxSplitBytes=split_bytes) for row in task
    ]
    good_ones = [row for row in whole if row["_corrupt"] is None]
    assert [row for row in cut if row["_corrupt"] is None] == good_ones
    assert len(good_ones) == len(good) - 7
    assert sum(row["storeSize"] for row in cut) == sum(row["storeSize"] for row in whole)


def test_a_segment_of_rubbish_is_one_row(store: Path, good: list[Row]) -> None:
    second = sorted((store / "commitlog").iterdir())[1]
    second.write_bytes(b"\xa7" * SEGMENT_BYTES)
    found = rows(store, columns=TOLD)
    bad = [row for row in found if row["_corrupt"]]
    assert [(row["physicalOffset"], row["storeSize"]) for row in bad] == [
        (SEGMENT_BYTES, SEGMENT_BYTES)
    ]
    assert len(found) - 1 == sum(row["physicalOffset"] // SEGMENT_BYTES != 1 for row in good)


def test_a_record_copied_into_a_body_is_no_record(tmp_path: Path) -> None:
    write_store(tmp_path / "a", mixed_messages(3))
    segment = next((tmp_path / "a" / "commitlog").iterdir()).read_bytes()
    write_store(tmp_path / "b", [message(segment[:900]), message(b"next")])
    first = stored_rows(tmp_path / "b")[0]
    damage(tmp_path / "b", first["physicalOffset"], b"\x00\x00\x00\x01")
    found = rows(tmp_path / "b", columns="physicalOffset,storeSize,_corrupt")
    assert [row["physicalOffset"] for row in found] == [0, first["storeSize"]]


@pytest.mark.parametrize("kind", list(Compression))
def test_bodies_are_decompressed_if_asked(tmp_path: Path, kind: Compression) -> None:
    body = b"hello " * 50
    plain = message(b"plain")
    packed = message(compress(body, kind), sys_flag=kind.sys_flag)
    write_store(tmp_path, [plain, packed, plain])
    assert [row["body"] for row in rows(tmp_path, decompress="true")] == [b"plain", body, b"plain"]
    assert rows(tmp_path, decompress="false")[1]["body"] == packed.body
    assert [row["storeSize"] for row in rows(tmp_path, decompress="true", columns="storeSize")]


def test_a_body_that_cannot_be_decompressed_is_damage(tmp_path: Path) -> None:
    packed = message(zlib.compress(b"x" * 100)[:-3], sys_flag=Compression.ZLIB.sys_flag)
    write_store(tmp_path, [message(b"plain"), packed])
    found = rows(tmp_path, decompress="true", columns="body,_corrupt")
    assert found[0] == {"body": b"plain", "_corrupt": None}
    assert found[1]["body"] == packed.body
    assert found[1]["_corrupt"].startswith("body: ")
    assert [row["body"] for row in rows(tmp_path, decompress="true")] == [b"plain", None]
    kept = rows(tmp_path, decompress="true", mode="DROPMALFORMED", columns="body")
    assert [row["body"] for row in kept] == [b"plain"]
    with pytest.raises(CorruptRecord, match="cannot be decompressed"):
        rows(tmp_path, decompress="true", mode="FAILFAST")


def test_large_bodies_do_not_share_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from roquet.spark.log import reading

    monkeypatch.setattr(reading, "BODY_BATCH_BYTES", 1000)
    bodies = [bytes([number]) * 600 for number in range(9)]
    packed = [message(zlib.compress(b), sys_flag=Compression.ZLIB.sys_flag) for b in bodies]
    write_store(tmp_path, packed)
    assert [row["body"] for row in rows(tmp_path, decompress="true")] == bodies
