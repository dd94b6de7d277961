"""A store of some 100 MB, as the broker's lane writes it: every row, and the memory of a reader."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from roquet.model.message import BrokerMessage
from roquet.model.properties import encode_properties
from roquet.runtime.clock import ManualClock
from roquet.spark.log import decoder
from roquet.spark.log.corrupt import message_row
from roquet.spark.log.log_options import read_log_options
from roquet.spark.log.planning import batch_tasks
from roquet.spark.log.reading import LogReader
from roquet.spark.schema import COLUMNS, arrow_schema, struct_type
from tests.unit.spark.log.kit import plain_rows, stored_messages
from tests.unit.store.kit import NOW_MS, config, opened, put

STORE_BYTES = 100_000_000
BURST = 200


def messages(rng: random.Random) -> Iterator[BrokerMessage]:
    filler = rng.randbytes(1 << 16)
    number = 0
    while True:
        size = rng.choice([0, 100, 900, 4000, 30_000])
        start = rng.randrange(len(filler) - size)
        named = {"UNIQ_KEY": f"{number:032X}", "n": str(number)}
        if number % 3:
            named |= {"TAGS": f"Tag{number % 7}", "KEYS": f"k{number}"}
        yield BrokerMessage(
            topic=f"Topic{number % 5}",
            queue_id=number % 8,
            body=filler[start : start + size],
            properties=encode_properties(named),
            born_timestamp_ms=NOW_MS + number,
        )
        number += 1


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large")
    clock = ManualClock(NOW_MS)
    settings = config(
        commit_log_file_bytes=32 << 20,
        consume_queue_file_bytes=20_000,
        max_message_bytes=1 << 20,
        index_entries=100_000,
    )
    made = messages(random.Random(7))
    with opened(root, clock=clock, config=settings) as target:
        while target.commit_log.wrote_offset < STORE_BYTES:
            put(target, *(next(made) for _ in range(BURST)))
            clock.advance(1)
    return root


@pytest.mark.slow
def test_every_row_of_a_large_store_is_the_stores_own(store: Path) -> None:
    options = read_log_options({"path": str(store), "maxsplitbytes": "20m", "checkcrc": "true"})
    names = [name for name in COLUMNS if name != "brokerName"]
    reader = LogReader(arrow_schema(struct_type(names)), options.rules)
    tasks = batch_tasks(options)
    assert len(tasks) >= 5
    reference = stored_messages(store)
    count = 0
    for task in tasks:
        for batch in reader.batches(task):
            for row in plain_rows([batch]):
                assert row == message_row(next(reference))
                count += 1
    assert next(reference, None) is None
    assert count > 10_000


@pytest.mark.slow
@pytest.mark.skipif(not decoder.is_compiled(), reason="compiled code does not run")
def test_a_reader_uses_its_memory_again(store: Path) -> None:
    options = read_log_options({"path": str(store)})
    reader = LogReader(arrow_schema(struct_type()), options.rules)
    (task,) = batch_tasks(options)
    addresses = set()
    batches = 0
    for batch in reader.batches(task):
        body = batch.column(batch.schema.get_field_index("body"))
        addresses.add(body.buffers()[1].address)
        batches += 1
    assert batches > 20
    assert len(addresses) <= 2
    kept = list(reader.batches(task))
    bodies = sum(batch.column(4).nbytes for batch in kept)
    again = sum(batch.column(4).nbytes for batch in reader.batches(task))
    assert bodies == again, "a batch that is kept is not written over"
    assert kept[0].equals(next(iter(reader.batches(task))))
