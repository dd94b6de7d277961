"""Every fuzz target, for a bounded number of inputs; and the driver finds planted faults."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz import __main__ as command
from fuzz import batch, driver, frames, json_header
from fuzz.mutator import INPUT_BYTES_MAX, Mutator
from roquet.format.batch import BatchEntry
from roquet.remoting.command import RemotingCommand

RUNS = 1_500


@pytest.fixture(autouse=True)
def lane_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lane is fuzzed even if the suite runs with it switched off."""
    monkeypatch.setenv("ROQUET_PURE", "0")


def target_names() -> list[str]:
    return [name for name in driver.NAMES if driver.is_available(name)]


@pytest.mark.parametrize("name", target_names())
def test_nothing_is_found(name: str, seed: int) -> None:
    report = driver.run(name, seed=seed, runs_max=RUNS)
    assert report.runs == RUNS
    assert report.outcomes > 5, "the inputs are all alike, so nothing was tried"


@pytest.mark.parametrize("name", target_names())
def test_recorded_inputs_are_understood(name: str) -> None:
    target = driver.load(name)
    outcomes = [target.fuzz_one(data) for data in target.seeds()]
    assert len(outcomes) > 1
    refused = [outcome for outcome in outcomes if outcome.startswith("refused")]
    assert len(refused) < len(outcomes) / 10


def test_a_reader_that_trusts_a_length_is_found(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    def gullible(data: bytes | memoryview) -> Iterator[BatchEntry]:
        view = memoryview(data)
        position = 0
        while position < len(view):
            _, _, _, flag, body_bytes = struct.unpack_from(">5i", view, position)
            end = position + 20 + body_bytes
            (properties_bytes,) = struct.unpack_from(">h", view, end)
            yield BatchEntry(flag, view[position + 20 : end], view[end + 2 :][:properties_bytes])
            position = end + 2 + properties_bytes

    monkeypatch.setattr(batch, "decode_batch", gullible)
    with pytest.raises(driver.FaultFoundError) as found:
        driver.run("batch", seed=seed, runs_max=RUNS)
    assert found.value.data not in batch.seeds()
    with pytest.raises((AssertionError, struct.error)):
        batch.fuzz_one(found.value.data)


def test_a_reader_that_loses_a_field_is_found(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    def forgetful(header: bytes) -> RemotingCommand:
        return RemotingCommand(code=1, opaque=len(header))

    monkeypatch.setattr(json_header, "decode_json_header", forgetful)
    with pytest.raises(driver.FaultFoundError):
        driver.run("json-header", seed=seed, runs_max=RUNS)


def test_the_seed_determines_every_input() -> None:
    def inputs(seed: int) -> list[bytes]:
        corpus = frames.seeds()
        source = random.Random(seed)
        mutator = Mutator(source, frames.TOKENS)
        return [mutator.change(source.choice(corpus), corpus) for _ in range(200)]

    assert inputs(5) == inputs(5)
    assert inputs(5) != inputs(6)
    assert max(map(len, inputs(5))) <= INPUT_BYTES_MAX


def test_a_fault_is_kept_and_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(data: bytes) -> str:
        assert len(data) < 30, "too long for me"
        return "short"

    monkeypatch.setattr(batch, "fuzz_one", broken)
    assert command.main(["batch", "--seed", "3", "--keep", str(tmp_path)]) == 1
    (kept,) = tmp_path.iterdir()
    assert str(kept) in capsys.readouterr().out
    with pytest.raises(AssertionError, match="too long for me"):
        command.main(["batch", "--input", str(kept)])
    monkeypatch.undo()
    assert command.main(["batch", "--input", str(kept)]) == 0
    assert command.main(["batch", "--runs", "50"]) == 0
