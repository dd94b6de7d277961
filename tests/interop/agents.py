"""The clients that the scenarios run with, each started when a test first needs it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest

from tests.interop import gobuild, javabuild
from tests.interop.agent import Agent, start_go_agent, start_java_agent
from tests.interop.javaprocess import QUICK_JVM

JAVA = "java-5.4.0"
# The same client with RocketMQ's binary headers.
JAVA_BINARY = "java-5.4.0-binary"
JAVA_4 = "java-4.9.8"
# Before 4.9.4 clients get routes in a dialect of JSON whose keys are bare numbers.
JAVA_OLD = "java-4.8.0"
GO = "go-2.1.2"

KINDS = (JAVA, JAVA_4, GO)
JAVA_KINDS = (JAVA, JAVA_4)

# A client that found no queue in its group yet looks again after a second, not after twenty.
REBALANCE_OFTEN = "-Drocketmq.client.rebalance.waitInterval=1000"

# Where consumers that are sent everything keep their offsets: a property in Java, the environment
# in Go.
OFFSETS_FOLDER = "rocketmq.client.localOffsetStoreDir"

T = TypeVar("T")
U = TypeVar("U")


class AgentPool:
    """Agents of a test session; each kind is started once and shared.

    Attributes:
        offsets: The folder in which consumers that are sent everything keep their offsets.
    """

    def __init__(self, folder: Path) -> None:
        self.offsets = folder / "offsets"
        self._folder = folder
        self._shared: dict[str, Agent] = {}
        self._numbers = count(1)

    def get(self, kind: str) -> Agent:
        """The shared agent of a kind; skips where it cannot be built."""
        if kind not in self._shared:
            self._shared[kind] = self.spawn(kind)
        return self._shared[kind]

    def all(self, kinds: Sequence[str] = KINDS) -> list[Agent]:
        return [self.get(kind) for kind in kinds]

    def spawn(self, kind: str, *jvm_options: str) -> Agent:
        """An agent of the caller's own, to be killed by it."""
        folder = self._folder / f"{kind}-{next(self._numbers)}"
        language, version, *headers = kind.split("-")
        try:
            if language == "go":
                settings = {OFFSETS_FOLDER: str(self.offsets)}
                return start_go_agent(kind, gobuild.build(), folder, settings)
            toolkit = javabuild.build(javabuild.AGENT_PROJECT, version)
        except javabuild.OracleMissingError as error:
            required = gobuild.is_required() if language == "go" else javabuild.is_required()
            if required:
                pytest.fail(f"CI has the tools of {kind}, so it must build: {error}")
            pytest.skip(f"{kind} cannot be run here: {error}")
        codec = ["-Drocketmq.serialize.type=ROCKETMQ"] if headers else []
        offsets = f"-D{OFFSETS_FOLDER}={self.offsets}"
        options = [*QUICK_JVM, REBALANCE_OFTEN, offsets, *codec, *jvm_options]
        return start_java_agent(kind, toolkit, folder, options)

    def close(self) -> None:
        for agent in self._shared.values():
            agent.kill()


def together(action: Callable[[T], U], items: Sequence[T]) -> list[U]:
    """Applies a function to all items concurrently and returns the results in their order."""
    with ThreadPoolExecutor(max_workers=len(items)) as pool:
        return list(pool.map(action, items))
