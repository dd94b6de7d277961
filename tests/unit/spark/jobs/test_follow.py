"""A lake that follows a log holds each message once, and stops when told to."""

import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from roquet.cli.spark.run import stop_signals
from roquet.client.options import ClientOptions
from roquet.errors import SparkOptionError
from roquet.spark.jobs import follow as module
from roquet.spark.jobs.archive import archive
from roquet.spark.jobs.follow import archive_topics, follow, stream_options
from roquet.spark.jobs.inputs import Wanted
from roquet.spark.jobs.lake import Lake
from tests.unit.spark.jobs.kit import HERE
from tests.unit.spark.jobs.lake_kit import BROKER, lake_rows, log_rows
from tests.unit.spark.log.kit import mixed_messages, write_store


class Steps(threading.Event):
    """Stands for time between rounds: has something happen in each, and then stops."""

    def __init__(self, store: Path, counts: list[int]) -> None:
        super().__init__()
        self.store, self.counts = store, counts
        self.messages = mixed_messages(max(counts))
        self.grow()

    def grow(self) -> None:
        shutil.rmtree(self.store, ignore_errors=True)
        write_store(self.store, self.messages[: self.counts.pop(0)], step_ms=60_000)

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout == 7
        if not self.counts:
            return True
        self.grow()
        return False


def test_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    sizes: list[int] = []

    def counted(*args: object, **more: object) -> object:
        report = archive(*args, **more)  # type: ignore[arg-type]
        sizes.append(int(str(report.numbers["bytesToRead"])))
        return report

    monkeypatch.setattr(module, "archive", counted)
    steps = Steps(store, [100, 130, 130, 160, 190, 220, 250])
    report = follow(
        HERE,
        str(store),
        str(lake),
        stopping=steps,
        interval_s=7,
        broker_name=BROKER,
        growing_bytes=8 << 10,
    )
    assert lake_rows(lake) == log_rows(store)
    assert report.numbers == {"rangesBefore": 0, "rounds": 6, "newMessages": 250}
    assert report.outputs == [str(lake)]
    log_bytes = Lake(str(lake)).manifests(BROKER)[-1].stop
    # Each round reads what is new and a bounded rest, not the whole log once more.
    assert max(sizes[2:]) < log_bytes / 2


def test_a_smaller_range_replaces_all_of_a_larger_one(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    write_store(store, mixed_messages(200), step_ms=600_000)
    for range_bytes in (1 << 30, 4 << 10):
        archive(HERE, str(store), str(lake), broker_name=BROKER, range_bytes=range_bytes)
        assert lake_rows(lake) == log_rows(store)


def test_a_range_whose_beginning_is_gone_is_not_written_twice(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    write_store(store, mixed_messages(400), step_ms=1000)
    rows = log_rows(store)
    archive(HERE, str(store), str(lake), broker_name=BROKER, range_bytes=1 << 30)
    min((store / "commitlog").iterdir()).unlink()
    report = archive(HERE, str(store), str(lake), broker_name=BROKER)
    assert lake_rows(lake) == rows
    assert not report.findings


def test_spark_that_was_ended_by_the_same_signal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    write_store(store, mixed_messages(20))
    stopping = threading.Event()

    def end(*_: object, **__: object) -> object:
        stopping.set()
        raise Py4JNetworkError("Answer from Java side is empty")

    monkeypatch.setattr(module, "archive", end)
    report = follow(HERE, str(store), str(lake), stopping=stopping)
    assert report.numbers == {"rounds": 0, "newMessages": 0, "roundsGivenUp": 1}
    assert report.outputs == []
    unstopped = threading.Event()
    monkeypatch.setattr(stopping, "set", lambda: None)
    with pytest.raises(Py4JNetworkError):
        follow(HERE, str(store), str(lake), stopping=unstopped)


def test_what_is_followed_has_no_end(tmp_path: Path) -> None:
    wanted = Wanted(to_ms=5)
    with pytest.raises(SparkOptionError, match="no end"):
        follow(HERE, str(tmp_path), str(tmp_path), stopping=threading.Event(), wanted=wanted)


def test_lakes_of_logs_and_of_clusters_stay_apart(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    write_store(store, mixed_messages(3))
    archive(HERE, str(store), str(lake))
    with pytest.raises(SparkOptionError, match="lake of a log"):
        archive_topics(HERE, ClientOptions(namesrv="127.0.0.1:9876"), str(lake))
    (tmp_path / "stream" / "_spark_metadata").mkdir(parents=True)
    with pytest.raises(SparkOptionError, match="live cluster"):
        archive(HERE, str(store), str(tmp_path / "stream"))


def test_what_a_stream_is_asked_for() -> None:
    client = ClientOptions(namesrv="127.0.0.1:9876")
    found = stream_options(client, Wanted(topics=["A", "B"], from_ms=5))
    assert (found["subscribe"], found["startingTimestamp"]) == ("A,B", "5")
    found = stream_options(client, Wanted())
    assert (found["subscribePattern"], found["startingOffsets"]) == (".*", "earliest")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_is_not_held(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_signals() as stopping:
        assert signal.getsignal(number) is not before
        os.kill(os.getpid(), number)
        assert stopping.wait(60)
        assert signal.getsignal(number) is before
    assert signal.getsignal(number) is before
