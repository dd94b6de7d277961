"""Runs a target: by itself from a seed, under Atheris, or on one recorded input.

Owns the loop. What a target says about an input (the kind of refusal, or the shape of what was
read) guides the search: an input with a result not seen before joins the initial ones.
"""

from __future__ import annotations

import hashlib
import importlib
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from fuzz.mutator import Mutator
from roquet.runtime import compiled

CORPUS_INPUTS_MAX = 2_000

NAMES = (
    "frames",
    "json-header",
    "binary-header",
    "properties",
    "batch",
    "ha-frames",
    "bodies",
    "hot-path",
    "log-columns",
)
COMPILED = {
    "hot-path": "roquet.broker.hot._requests",
    "log-columns": "roquet.spark.log._decoder",
}
"""The compiled modules that targets need."""


class Target(Protocol):
    """What a module of a target has."""

    TOKENS: Sequence[bytes]

    def fuzz_one(self, data: bytes) -> str:
        """Try one input; return a word for the outcome, and raise for a fault."""

    def seeds(self) -> list[bytes]:
        """The initial inputs."""


class Report(NamedTuple):
    """What a run did.

    Attributes:
        runs: Inputs that were tried.
        outcomes: Different results among them.
        slowest_s: The longest that one took.
    """

    runs: int
    outcomes: int
    slowest_s: float


class FaultFoundError(Exception):
    """An input for which something did not hold; the fault itself is its cause.

    Attributes:
        data: The input.
    """

    def __init__(self, name: str, data: bytes, seed: int, run: int) -> None:
        super().__init__(f"{name}, seed {seed}, run {run}: {data[:200]!r}")
        self.data = data


def is_available(name: str) -> bool:
    """Whether a target can run here: the compiled code may not be built, or be switched off."""
    if name not in COMPILED:
        return True
    return compiled.is_used(COMPILED[name])


def load(name: str) -> Target:
    """The target of that name."""
    return cast("Target", importlib.import_module(f"fuzz.{name.replace('-', '_')}"))


def run(
    name: str, *, seed: int, seconds: float | None = None, runs_max: int | None = None
) -> Report:
    """Try inputs until the time or their number is up.

    Args:
        name: The target.
        seed: Decides every input.
        seconds: How long; forever without either limit.
        runs_max: How many inputs.

    Raises:
        FaultFoundError: An input failed.
    """
    target = load(name)
    corpus = target.seeds()
    seed_count = len(corpus)
    source = random.Random(seed)
    mutator = Mutator(source, target.TOKENS)
    begin = time.monotonic()
    outcomes: set[str] = set()
    slowest_s = 0.0
    number = 0
    while runs_max is None or number < runs_max:
        is_seed = number < seed_count
        data = corpus[number] if is_seed else mutator.change(source.choice(corpus), corpus)
        started = time.monotonic()
        outcome = _try(target, name, data, seed, number)
        ended = time.monotonic()
        slowest_s = max(slowest_s, ended - started)
        number += 1
        if outcome not in outcomes:
            outcomes.add(outcome)
            if not is_seed and len(corpus) < CORPUS_INPUTS_MAX:
                corpus.append(data)
        if seconds is not None and ended - begin >= seconds:
            break
    return Report(number, len(outcomes), slowest_s)


def _try(target: Target, name: str, data: bytes, seed: int, number: int) -> str:
    try:
        return target.fuzz_one(data)
    except Exception as error:
        raise FaultFoundError(name, data, seed, number) from error


def keep_input(name: str, data: bytes, folder: Path) -> Path:
    """Write a failing input to a file."""
    path = folder / f"fuzz-{name}-{hashlib.sha256(data).hexdigest()[:8]}.bin"
    path.write_bytes(data)
    return path


def run_atheris(name: str, folder: Path, arguments: Sequence[str]) -> None:
    """Run a target under libFuzzer, which ends the process.

    Args:
        name: The target.
        folder: Where its inputs are kept, the initial ones and those that it finds.
        arguments: Options of libFuzzer.

    Raises:
        ModuleNotFoundError: Atheris is not installed.
    """
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["roquet"]):
        target = load(name)
    folder.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds()):
        (folder / f"{number:04}").write_bytes(data)

    def try_one(data: bytes) -> None:
        target.fuzz_one(data)

    atheris.Setup([sys.argv[0], str(folder), *arguments], try_one)
    atheris.Fuzz()
