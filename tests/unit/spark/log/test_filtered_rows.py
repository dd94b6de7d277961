"""Rows with filters handed over, against the same filters applied to all rows of a store."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import datasource as spark
from pyspark.sql.datasource import EqualTo, Filter, In, IsNotNull, Not

from roquet.model.properties import encode_properties
from roquet.spark.log import index_choice, queue_choice, reading, row_decoder, splits
from roquet.spark.log.decoder import ColumnDecoder, is_compiled
from roquet.spark.log.log_options import read_log_options
from roquet.spark.log.planning import batch_tasks
from roquet.spark.log.pushed_filters import NUMBER_COLUMNS, TEXT_COLUMNS, PushedFilters
from roquet.spark.log.queue_reading import PlacesRange, QueueRange
from roquet.spark.log.reading import LogReader
from roquet.spark.schema import CORRUPT_COLUMNS, arrow_schema, struct_type
from roquet.storefiles.records import LogRange
from tests.unit.spark.log.kit import (
    Row,
    mixed_messages,
    plain_rows,
    rows,
    stored_messages,
    write_store,
)
from tests.unit.store.kit import NOW_MS, message

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = ",".join(CORRUPT_COLUMNS)
ROUNDS = 150
STORE_TIME_AT = 56
"""Where a record has it if its producer's address is of IPv4."""

DECODERS = [row_decoder.RowDecoder, *([ColumnDecoder] if is_compiled() else [])]


class Damaged(NamedTuple):
    path: Path
    rows: list[Row]


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    """A store with odd properties, and records that are unreadable or have other bytes."""
    path = tmp_path_factory.mktemp("filtered")
    odd = [
        message(b"o", topic="Odd", queue_id=queue_id, properties=properties)
        for queue_id, properties in enumerate(
            [
                b"",
                b"TAGS\x01\xff\x02KEYS\x01k\x02",
                b"TAGS\x01a\x02TAGS\x01b\x02",
                b"TAGS\x01\x02KEYS\x01 \x02",
                encode_properties({f"n{number}": "v" for number in range(70)} | {"TAGS": "a"}),
                encode_properties({"TAGS": "主题", "KEYS": "a b", "UNIQ_KEY": "F" * 32}),
            ]
        )
    ]
    write_store(path, [*mixed_messages(90), *odd, *mixed_messages(60)], step_ms=7)
    messages = list(stored_messages(path))
    for number, at in ((20, 0), (21, 4), (50, 91), (100, 28)):
        offset = messages[number].physical_offset
        segment = max(each for each in (path / "commitlog").iterdir() if int(each.name) <= offset)
        data = bytearray(segment.read_bytes())
        data[offset - int(segment.name) + at] ^= 0x41
        segment.write_bytes(data)
    return Damaged(path, rows(path, columns=COLUMNS))


def filtered(path: Path, filters: Sequence[Filter], **options: str) -> list[Row]:
    """The rows that a reader returns with filters, as its tasks are planned for them."""
    given = {"path": str(path), "columns": COLUMNS, "decompress": "false", **options}
    pushed = PushedFilters(read_log_options(given), filters)
    assert not pushed.left
    if pushed.is_empty:
        return []
    reader = LogReader(arrow_schema(struct_type(CORRUPT_COLUMNS)), pushed.options.rules)
    tasks = batch_tasks(pushed.options)
    found = [row for task in tasks for row in plain_rows(reader.batches(task))]
    return sorted(found, key=lambda row: int(row["physicalOffset"]))


ORDER: dict[type[Filter], Callable[[object, object], bool]] = {
    spark.GreaterThan: lambda one, other: one > other,  # type: ignore[operator]
    spark.GreaterThanOrEqual: lambda one, other: one >= other,  # type: ignore[operator]
    spark.LessThan: lambda one, other: one < other,  # type: ignore[operator]
    spark.LessThanOrEqual: lambda one, other: one <= other,  # type: ignore[operator]
    spark.EqualTo: lambda one, other: one == other,
    spark.EqualNullSafe: lambda one, other: one == other,
}


def is_true(condition: Filter, row: Row) -> bool:
    """What Spark says of a filter and a row; null is not true."""
    if isinstance(condition, Not):
        (column,) = condition.child.attribute
        return row[column] is not None and not is_true(condition.child, row)
    (column,) = condition.attribute
    value = row[column]
    if value is None:
        return False
    if isinstance(condition, IsNotNull):
        return True
    if isinstance(condition, In):
        return value in condition.value
    given = condition.value
    if isinstance(given, datetime):
        given = (given - EPOCH) // timedelta(microseconds=1)
    if isinstance(condition, spark.StringStartsWith):
        return bool(value.startswith(given))
    if isinstance(value, str):
        value, given = value.encode(), given.encode()
    return ORDER[type(condition)](value, given)


def a_filter(rng: random.Random, found: Sequence[Row]) -> Filter:
    column = rng.choice([*TEXT_COLUMNS, *NUMBER_COLUMNS, "storeTimestamp"])
    known = sorted({row[column] for row in found if row[column] is not None})
    values = rng.sample(known, k=min(len(known), rng.choice([1, 1, 2, 5])))
    attribute = (column,)
    if column == "storeTimestamp":
        time = EPOCH + timedelta(microseconds=values[0] + rng.choice([-1, 0, 0, 1]))
        return rng.choice([*ORDER])(attribute, time)
    if column in TEXT_COLUMNS:
        values.append(rng.choice(["", "nobody", "\ufffd", values[0][:-1], values[0] + "x"]))
        start = spark.StringStartsWith(attribute, values[0][: rng.randrange(4)])
    else:
        values.append(values[0] + rng.choice([-1, 1]))
        start = IsNotNull(attribute)
    rng.shuffle(values)
    return rng.choice(
        [
            rng.choice([*ORDER])(attribute, values[0]),
            EqualTo(attribute, values[0]),
            In(attribute, tuple(values)),
            Not(EqualTo(attribute, values[0])),
            Not(In(attribute, tuple(values))),
            start,
        ]
    )


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda each: each.__name__)
def test_filters_return_the_rows_for_which_they_are_true(
    damaged: Damaged, decoder: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "make_decoder", decoder)
    monkeypatch.setattr(splits, "SLACK_BYTES", 700)
    monkeypatch.setattr(queue_choice, "RANDOM_READ_BYTES", 1)
    for seed in range(ROUNDS):
        rng = random.Random(seed)
        filters = [a_filter(rng, damaged.rows) for _ in range(rng.choice([1, 1, 2, 3]))]
        wanted = [row for row in damaged.rows if all(is_true(each, row) for each in filters)]
        options = rng.choice([{}, {"maxSplitBytes": "2000"}])
        assert filtered(damaged.path, filters, **options) == wanted, (seed, filters)


def parts_for(
    path: Path, *filters: Filter, **options: str
) -> list[LogRange | QueueRange | PlacesRange]:
    """What is read for a query."""
    given = read_log_options({"path": str(path), **options})
    planned = PushedFilters(given, filters).options if filters else given
    return [part for task in batch_tasks(planned) for part in task]


def uses_queues(path: Path, *filters: Filter, **options: str) -> bool:
    return any(isinstance(part, QueueRange) for part in parts_for(path, *filters, **options))


def sparse_store(path: Path) -> None:
    common = [message(b"x" * 3000, topic="Common", queue_id=number % 3) for number in range(60)]
    write_store(path, [*common[:30], message(b"r", topic="Rare"), *common[30:]], step_ms=1)


def test_a_rare_topic_is_read_through_its_queues(tmp_path: Path) -> None:
    sparse_store(tmp_path)
    rare = EqualTo(("topic",), "Rare")
    assert uses_queues(tmp_path, rare)
    assert [row["body"] for row in filtered(tmp_path, [rare])] == [b"r"]
    assert not uses_queues(tmp_path, Not(rare))
    assert not uses_queues(tmp_path, rare, mode="FAILFAST")
    assert not uses_queues(tmp_path, rare, useQueues="false")
    assert not uses_queues(tmp_path, topics="Rare")


def test_queues_that_lack_a_record_are_not_used(tmp_path: Path) -> None:
    sparse_store(tmp_path)
    queue = tmp_path / "consumequeue" / "Common" / "1"
    for each in queue.iterdir():
        each.unlink()
    queue.rmdir()
    rare = EqualTo(("topic",), "Rare")
    assert not uses_queues(tmp_path, rare)
    assert len(filtered(tmp_path, [EqualTo(("topic",), "Common")])) == 60


def test_no_row_is_lost_if_the_clock_was_set_back(tmp_path: Path) -> None:
    write_set_back(tmp_path)
    since = EPOCH + timedelta(milliseconds=NOW_MS + 100)
    everything = rows(tmp_path, columns=COLUMNS)
    for condition in (
        spark.GreaterThan(("storeTimestamp",), since),
        spark.LessThan(("storeTimestamp",), since),
    ):
        wanted = [row for row in everything if is_true(condition, row)]
        assert 0 < len(wanted) < len(everything)
        assert filtered(tmp_path, [condition]) == wanted


def test_a_list_of_times_loses_no_row_if_the_clock_was_set_back(tmp_path: Path) -> None:
    write_set_back(tmp_path)
    times_ms = (NOW_MS + 100, NOW_MS + 110)
    times = tuple(EPOCH + timedelta(milliseconds=each) for each in times_ms)
    wanted = [
        row for row in rows(tmp_path, columns=COLUMNS) if row["storeTimestamp"] // 1000 in times_ms
    ]
    given = read_log_options({"path": str(tmp_path)})
    pushed = PushedFilters(given, [In(("storeTimestamp",), times)])
    reader = LogReader(arrow_schema(struct_type(CORRUPT_COLUMNS)), pushed.options.rules)
    found = [
        row for task in batch_tasks(pushed.options) for row in plain_rows(reader.batches(task))
    ]
    assert len(wanted) == 2
    assert found == wanted


def write_set_back(path: Path) -> None:
    """A log whose second half seems to be older; a broker of ours would not write that."""
    write_store(path, mixed_messages(80), step_ms=10)
    for number, each in enumerate(stored_messages(path)):
        time_ms = each.store_timestamp_ms - (900 if number >= 40 else 0)
        segment = max(
            one for one in (path / "commitlog").iterdir() if int(one.name) <= each.physical_offset
        )
        with segment.open("r+b") as file:
            file.seek(each.physical_offset - int(segment.name) + STORE_TIME_AT)
            file.write(time_ms.to_bytes(8, "big"))


def indexed_store(path: Path) -> None:
    """Messages with ids and keys, some of them in more than one topic."""
    made = [
        message(
            b"x" * 2000,
            topic=f"T{number % 2}",
            properties=encode_properties(
                {"KEYS": f"key-{number // 2} all", "UNIQ_KEY": f"{number:032X}"}
                if number % 5
                else {}
            ),
        )
        for number in range(120)
    ]
    write_store(path, made, step_ms=1)


@pytest.mark.parametrize(
    "filters",
    [
        [EqualTo(("keys",), "key-7 all")],
        [In(("keys",), ("key-7 all", "key-9 all", "key-9"))],
        [EqualTo(("keys",), "key-7 all"), EqualTo(("topic",), "T1")],
        [EqualTo(("msgId",), f"{7:032X}")],
        [EqualTo(("msgId",), f"{7:032X}"), EqualTo(("keys",), "key-1 all")],
    ],
)
@pytest.mark.parametrize("gap_bytes", [1 << 16, 100])
def test_keys_and_ids_are_found_through_the_index(
    tmp_path: Path, filters: list[Filter], gap_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    indexed_store(tmp_path)
    monkeypatch.setattr(index_choice, "RANDOM_READ_BYTES", 1)
    monkeypatch.setattr(index_choice, "PART_MAX", 2)
    monkeypatch.setattr(index_choice, "GAP_BYTES", gap_bytes)
    everything = rows(tmp_path, columns=COLUMNS)
    wanted = [row for row in everything if all(is_true(each, row) for each in filters)]
    assert filtered(tmp_path, filters) == wanted
    parts = parts_for(tmp_path, *filters)
    assert not any(isinstance(each, QueueRange) for each in parts)
    read_bytes = sum(each.stop - each.start for each in parts if isinstance(each, LogRange))
    assert (read_bytes > 10_000) == (gap_bytes == 100)
    own = everything[10]["msgId"]
    assert filtered(tmp_path, [EqualTo(("msgId",), own)]) == [everything[10]]


def test_what_the_index_lacks_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    indexed_store(tmp_path)
    monkeypatch.setattr(index_choice, "RANDOM_READ_BYTES", 1)
    monkeypatch.setattr(index_choice, "PART_MAX", 2)
    wanted = filtered(tmp_path, [EqualTo(("keys",), "key-1 all")])
    assert len(wanted) == 2
    first = min((tmp_path / "index").iterdir())
    assert len(list((tmp_path / "index").iterdir())) > 1
    first.unlink()
    assert filtered(tmp_path, [EqualTo(("keys",), "key-1 all")]) == wanted
    assert {type(each) for each in parts_for(tmp_path, EqualTo(("keys",), "key-1 all"))} == {
        LogRange
    }


def test_an_option_uses_the_index_only_on_request(tmp_path: Path) -> None:
    indexed_store(tmp_path)
    assert {type(each) for each in parts_for(tmp_path, keys="key-7")} == {LogRange}
    found = parts_for(tmp_path, keys="key-7", useIndex="true")
    assert any(isinstance(each, PlacesRange) for each in found)
    assert rows(tmp_path, keys="key-7", useIndex="true") == rows(tmp_path, keys="key-7")
