"""Stores to read, and rows as plain values, once by the source and once by Roquet's own reader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from roquet.format.commit_log import (
    Blank,
    DispatchRequest,
    RecordRules,
    check_record,
    decode_record,
)
from roquet.model.delay_level import DelayLevels
from roquet.model.message import BrokerMessage, StoredMessage
from roquet.model.properties import encode_properties
from roquet.runtime.clock import ManualClock
from roquet.spark.log.corrupt import message_row
from roquet.spark.log.log_options import read_log_options
from roquet.spark.log.planning import Task, batch_tasks
from roquet.spark.log.reading import LogReader
from roquet.spark.schema import arrow_schema, struct_type
from tests.unit.store.kit import NOW_MS, message, opened, put

Row = dict[str, Any]


def stored_messages(store: Path) -> Iterator[StoredMessage]:
    """Every record of a log as ``roquet.format`` decodes it."""
    rules = RecordRules(DelayLevels())
    for segment in sorted((store / "commitlog").iterdir()):
        data = segment.read_bytes()
        position = 0
        while position < len(data):
            offset = int(segment.name) + position
            found = check_record(data, position, len(data), physical_offset=offset, rules=rules)
            if not isinstance(found, DispatchRequest):
                break
            yield decode_record(data, position, len(data))
            position += found.size_bytes
        if position < len(data) and not isinstance(found, Blank):
            return


def stored_rows(store: Path) -> list[Row]:
    """The rows that a store must give."""
    return [message_row(each) for each in stored_messages(store)]


def tasks_of(path: Path, **options: str) -> Sequence[Task]:
    """The tasks of a query, as the driver plans them."""
    given = {name.lower(): value for name, value in options.items()}
    return batch_tasks(read_log_options({"path": str(path), **given}))


def task_rows(path: Path, **options: str) -> list[list[Row]]:
    """The rows of each task of a query."""
    given = {name.lower(): value for name, value in options.items()}
    read = read_log_options({"path": str(path), "decompress": "false", **given})
    reader = LogReader(arrow_schema(struct_type(read.columns)), read.rules)
    return [plain_rows(reader.batches(task)) for task in batch_tasks(read)]


def rows(path: Path, **options: str) -> list[Row]:
    """All rows of a query, in the order of the log."""
    return [row for task in task_rows(path, **options) for row in task]


def plain_rows(batches: Iterable[Any]) -> list[Row]:
    """Batches as rows; times are microseconds, so that they compare with the reference."""
    made: list[Row] = []
    for batch in batches:
        batch.validate(full=True)
        columns = {}
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if field.name.endswith("Timestamp"):
                column = column.cast("int64")  # noqa: PLW2901
            columns[field.name] = column.to_pylist()
        made += [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
    return made


def without(row: Row, *names: str) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def mixed_messages(count: int) -> list[BrokerMessage]:
    """Messages of several topics and queues, with and without tags, keys and unique ids."""
    made = []
    for number in range(count):
        named = {"index": str(number)}
        if number % 3:
            named["TAGS"] = f"Tag{number % 5}"
        if number % 4:
            named["KEYS"] = f"key-{number} all"
        if number % 2:
            named["UNIQ_KEY"] = f"{number:032X}"
        made.append(
            message(
                b"x" * (number * 37 % 400),
                topic=f"T{number % 3}",
                queue_id=number % 4,
                properties=encode_properties(named),
            )
        )
    return made


def write_store(root: Path, messages: Sequence[BrokerMessage], *, step_ms: int = 0) -> None:
    """A store of some messages, closed again; ``step_ms`` passes between one and the next."""
    clock = ManualClock(NOW_MS)
    with opened(root, clock=clock) as store:
        for one in messages:
            put(store, one)
            clock.advance(step_ms)
