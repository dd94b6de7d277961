"""Writers of one Delta or Iceberg table, several at once, each a process that may be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config

from roquet.spark.jobs.table_verify import verify_table
from tests.spark.conftest import SOURCE
from tests.spark.stages import Writer
from tests.spark.table_writer import COMMITTED, COMMITTING, WRITING
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.lake_kit import log_rows
from tests.unit.spark.log.kit import mixed_messages, write_store

deltalake = pytest.importorskip("deltalake")

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("ROQUET_TEST_LAKE_ROUNDS", "1"))
"""How often, each with its own seed; a long campaign has 20."""

BROKERS = ("broker-a", "broker-b")
WRITERS = (("broker-a", 8 << 10), ("broker-a", 5 << 10), ("broker-b", 8 << 10))
"""The brokers and sizes of ranges of writers that run at once; two are for the same log."""

KILLED_PART = 0.8
CATALOG = "PYICEBERG_CATALOG__LAKES__"


def rows_of(address: str, lake_format: str) -> pa.Table:
    if lake_format == "delta":
        return deltalake.DeltaTable(address).to_pyarrow_table()
    catalog, _, name = address.partition(".")
    return load_catalog(catalog).load_table(name).scan().to_arrow()


def exact(table: pa.Table, stores: Mapping[str, Path]) -> None:
    """The table has every message of both logs once."""
    rows: dict[tuple[str, int], tuple[str, bytes, str]] = {}
    for row in table.to_pylist():
        key = (row["brokerName"], row["physicalOffset"])
        assert key not in rows, f"{key} is there again"
        rows[key] = (row["topic"], row["body"], f"day={row['day']}")
    assert rows == {
        (broker, offset): row
        for broker, store in stores.items()
        for offset, row in log_rows(store).items()
    }


class Round:
    """Writers of one table, whose ends are drawn."""

    def __init__(
        self, seed: int, stores: Mapping[str, Path], folder: Path, lake_format: str
    ) -> None:
        (folder / "warehouse").mkdir(parents=True)
        self.address = str(folder / "delta") if lake_format == "delta" else "lakes.shop.messages"
        self.catalog = {
            f"{CATALOG}TYPE": "sql",
            f"{CATALOG}URI": f"sqlite:///{folder}/catalog.db?timeout=60",
            f"{CATALOG}WAREHOUSE": f"file://{folder}/warehouse",
        }
        self._stores, self._format, self._draw = stores, lake_format, Random(seed)

    def start(self, broker: str, range_bytes: int, *, is_killed: bool) -> Writer:
        words = [str(self._stores[broker]), self.address, self._format, broker, str(range_bytes)]
        word = self._draw.choice([WRITING, COMMITTING, COMMITTED])
        count = self._draw.randint(1, 9 if word == WRITING else 3)
        paths = {"PYTHONPATH": os.pathsep.join([str(SOURCE), str(SOURCE.parent)])}
        environment = {**os.environ, **self.catalog, **paths}
        return Writer(words, environment, (word, count) if is_killed else None)

    def waves(self) -> Iterator[tuple[int, str]]:
        """Two waves of writers at once: exit codes, and what they said."""
        for _ in range(2):
            writers = [
                self.start(*each, is_killed=self._draw.random() < KILLED_PART) for each in WRITERS
            ]
            for writer in writers:
                yield writer.wait(), writer.errors


@pytest.mark.timeout(120 + 120 * ROUNDS)
@pytest.mark.parametrize("lake_format", ["delta", "iceberg"])
def test_concurrent_writers(
    lake_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = {broker: tmp_path / broker for broker in BROKERS}
    for number, store in enumerate(stores.values()):
        write_store(store, mixed_messages(100 + 20 * number), step_ms=600_000)
    ended: dict[int, int] = {}
    for seed in range(ROUNDS):
        made = Round(seed, stores, tmp_path / f"round-{seed}", lake_format)
        for name, value in made.catalog.items():
            monkeypatch.setenv(name, value)
        # It reads the environment once, when it is imported.
        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
        load_catalog("lakes").create_namespace_if_not_exists("shop")
        for code, errors in made.waves():
            ended[code] = ended.get(code, 0) + 1
            came_first = code == 1 and "came first" in errors
            assert code in {0, -signal.SIGKILL} or came_first, (seed, errors)
        for broker in BROKERS:
            last = made.start(broker, 8 << 10, is_killed=False)
            assert last.wait() == 0, (seed, last.errors)
            given = {"broker_name": broker, "check_bodies": True}
            report = verify_table(HERE, str(stores[broker]), made.address, lake_format, **given)  # type: ignore[arg-type]
            assert report.findings == [], seed
        exact(rows_of(made.address, lake_format), stores)
    print(f"{lake_format}: {ROUNDS} rounds, exit codes of writers: {ended}")  # noqa: T201 - the result
    assert -signal.SIGKILL in ended
