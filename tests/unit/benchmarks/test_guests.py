"""Further peers: which rows they do, how they are set up, and what their programs print."""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks import broker, guests, kafka, nats, rows
from benchmarks.load import BenchmarkError


def test_peers_do_rows_that_exist() -> None:
    names = {row.name for row in rows.LOADS}
    assert {*kafka.LOADS, *kafka.FETCHED_BYTES, *nats.LOADS} <= names
    assert {name for name, _, _ in rows.OTHER_GOALS} <= names


def test_bodies_of_peers_are_those_of_the_rows() -> None:
    sizes = {
        row.name: int(row.arguments[row.arguments.index("-size") + 1])
        for row in rows.LOADS
        if "-size" in row.arguments
    }
    for name, (size, _) in kafka.LOADS.items():
        assert size == sizes.get(name, 1024)
    for name, arguments in nats.LOADS.items():
        given = arguments[arguments.index("-size") + 1] if "-size" in arguments else 1024
        assert int(given) == sizes.get(name, 1024)


@pytest.mark.parametrize("is_sync", [False, True])
def test_durability_of_kafka(*, is_sync: bool) -> None:
    text = kafka.settings_text(Path("folder"), 1, 2, is_sync=is_sync)
    assert ("log.flush.interval.messages=1\n" in text) is is_sync
    assert "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2\n" in text


@pytest.mark.parametrize("is_sync", [False, True])
def test_durability_of_nats(*, is_sync: bool) -> None:
    text = nats.settings_text(Path("folder"), "127.0.0.1:1", is_sync=is_sync)
    assert ("sync_interval: always" in text) is is_sync


def test_rates_of_a_cold_client_are_ignored() -> None:
    def text(*rates: float) -> str:
        return "".join(f"9 records sent, {rate} records/sec (x MB/sec)\n" for rate in rates)

    assert kafka.sent_rate(text(2000.5)) == 2000.5
    assert kafka.sent_rate(text(10, 2000.5)) == 2000.5
    assert kafka.sent_rate(text(10, 300, 100, 200, 152.5)) == 200


def test_output_without_a_rate_is_an_error() -> None:
    with pytest.raises(BenchmarkError, match="no rate"):
        kafka.sent_rate("nothing")
    with pytest.raises(BenchmarkError, match="no rate"):
        kafka.fetched_rate("start.time, end.time\n")


def test_names_of_peers() -> None:
    assert broker.parse(["--peers", "kafka,nats"]).peers == ["kafka", "nats"]
    with pytest.raises(SystemExit):
        broker.parse(["--peers", "rabbit"])


def test_a_peer_that_cannot_be_installed_is_skipped(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> guests.Guest:
        raise BenchmarkError("no network")

    monkeypatch.setattr(broker, "Kafka", missing)
    options = argparse.Namespace(cold_peer=False, limits=False, peers=["kafka"])
    with ExitStack() as stack:
        assert broker.make_guests(options, Path(), stack) == []
    assert "no network" in capsys.readouterr().err


def test_the_loop_in_c_only_stores_and_reads() -> None:
    for row in rows.LOADS:
        assert not row.has_limit or not {"-filter", "-groups"} & set(row.arguments)
