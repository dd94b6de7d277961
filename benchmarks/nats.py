"""NATS JetStream as a further peer: its server on loopback, and a program with its client.

Both are built by Go, the server into the cache of the interop tests. All sends are acknowledged
after the server has stored them; with SYNC_FLUSH it syncs each of them. Pulled messages are
acknowledged one by one, as JetStream does by default.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.guests import watched
from benchmarks.lab import LOAD_WARM_S, Lab
from benchmarks.load import RUN_MARGIN_S, BenchmarkError
from benchmarks.rows import SYNC, Row
from benchmarks.sides import wait_listens
from tests.interop.javabuild import CACHE
from tests.interop.process import ChildProcess, find_free_port

CLIENT = Path(__file__).parent / "natsclient"
SERVER_PACKAGE = "github.com/nats-io/nats-server/v2@latest"
BUILD_TIMEOUT_S = 600

SEND = ("-mode", "send", "-conns", "8", "-window", "64")
PULL = ("-mode", "pull", "-conns", "4", "-stream", "WARM")
LOADS = {
    "send-json": SEND,
    "sync-json": SEND,
    "alone-json": ("-mode", "send", "-conns", "1", "-window", "1"),
    "sync-alone": ("-mode", "send", "-conns", "1", "-window", "1"),
    "body-100": (*SEND, "-size", "100"),
    "body-16k": (*SEND, "-size", "16384"),
    "pull-json": (*PULL, "-window", "32"),
    "pull-256": (*PULL, "-window", "256"),
}


class Nats:
    """NATS JetStream, started when a row needs it and kept until the durability changes.

    Args:
        folder: Where its client is built.

    Raises:
        BenchmarkError: Go is missing, or the network to its modules.
    """

    name = "NATS"

    def __init__(self, folder: Path) -> None:
        go = shutil.which("go")
        if go is None:
            raise BenchmarkError("Go is missing; NATS is built with it")
        CACHE.mkdir(exist_ok=True)
        self._program = CACHE / "nats-server"
        if not self._program.exists():
            _build([go, "install", SERVER_PACKAGE], {**os.environ, "GOBIN": str(CACHE)})
        self._client = folder / "natsclient-program"
        _build([go, "build", "-o", str(self._client), "."], dict(os.environ))
        self._stack = ExitStack()
        self._server: ChildProcess | None = None
        self._is_sync = False
        self._address = ""

    def can(self, row: Row) -> bool:
        """Plain sends, one at a time or many, and pulls near the end."""
        return row.name in LOADS

    def measure(self, lab: Lab, row: Row) -> dict[str, float]:
        """Do a row's work once."""
        server = self._running(lab, is_sync=row.settings == SYNC)
        values: dict[str, float] = {}
        arguments = LOADS[row.name]
        lab.settle()
        if "-stream" not in arguments:
            arguments = (*arguments, "-stream", row.name)
        self._run(arguments, LOAD_WARM_S)
        with watched(server.pid, values):
            values.update(self._run(arguments, lab.lengths.load_s))
        return values

    def _running(self, lab: Lab, *, is_sync: bool) -> ChildProcess:
        if self._server is not None and self._is_sync == is_sync:
            return self._server
        self.close()
        self._is_sync = is_sync
        folder = self._stack.enter_context(lab.folder())
        port = find_free_port()
        self._address = f"127.0.0.1:{port}"
        config = folder / "nats.conf"
        config.write_text(settings_text(folder, self._address, is_sync=is_sync))
        self._server = self._stack.enter_context(
            ChildProcess(
                "nats",
                [str(self._program), "-c", str(config)],
                folder=folder,
                environment=os.environ,
            )
        )
        wait_listens(self._server, self._address)
        self._run((*SEND, "-stream", "WARM"), max(lab.lengths.warm_s, LOAD_WARM_S))
        return self._server

    def _run(self, arguments: Sequence[str], seconds: float) -> dict[str, float]:
        done = subprocess.run(
            [
                *(str(self._client), "-addr", self._address, *arguments),
                *("-warm", "0", "-seconds", str(seconds)),
            ],
            capture_output=True,
            text=True,
            timeout=seconds + RUN_MARGIN_S,
            check=False,
        )
        if done.returncode != 0:
            raise BenchmarkError(f"the client of NATS failed: {done.stderr[-500:]}")
        return {key: value for key, value in json.loads(done.stdout).items() if value >= 0}

    def close(self) -> None:
        """Stop the server."""
        self._server = None
        self._stack.close()
        self._stack = ExitStack()


def settings_text(folder: Path, address: str, *, is_sync: bool) -> str:
    """The settings of a server with files."""
    sync = "\n  sync_interval: always" if is_sync else ""
    return f'listen: "{address}"\njetstream {{\n  store_dir: "{folder}"{sync}\n}}\n'


def _build(command: Sequence[str], environment: dict[str, str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=CLIENT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchmarkError(f"NATS was not built within {BUILD_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise BenchmarkError(f"NATS cannot be built: {done.stderr[-1000:]}")
