"""Builds the Go agent, and servers written in Go, once; or names what is missing.

Shares the cache directory and its lock with the Java builds: one folder per state of the sources,
valid when the program is in it, which Go writes last.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.interop import javabuild
from tests.interop.javabuild import OracleBuildError, OracleMissingError

GO_PROJECT = javabuild.HERE / "go"
BUILD_TIMEOUT_S = 280

# What Go prints when it cannot reach its module proxy; anything else is a fault of the build.
NETWORK_FAULTS = ("dial tcp", "no such host", "i/o timeout", "connection refused", "GOPROXY")


def is_required() -> bool:
    """Whether a failed build must fail the tests instead of skipping them."""
    return os.environ.get("CI") == "true" and shutil.which("go") is not None


def build() -> Path:
    """Builds the agent, or finds the earlier build; returns its path.

    Raises:
        OracleMissingError: Go or the network is missing.
        OracleBuildError: everything is there and the build fails.
    """
    program = javabuild.CACHE / f"go-{_digest()}" / "agent"
    return _once(program, ["build", "-o", str(program), "."])


def install(package: str, version: str) -> Path:
    """Builds a published program, or finds the earlier build; returns its path.

    Args:
        package: Its package, whose last part is the program's name.
        version: Its version, such as v1.8.0.

    Raises:
        OracleMissingError: Go or the network is missing.
        OracleBuildError: everything is there and the build fails.
    """
    name = package.rpartition("/")[2]
    program = javabuild.CACHE / f"{name}-{version}" / name
    return _once(program, ["install", f"{package}@{version}"])


def _once(program: Path, arguments: Sequence[str]) -> Path:
    go = shutil.which("go")
    if go is None:
        raise OracleMissingError("Go (go) is missing")
    javabuild.CACHE.mkdir(exist_ok=True)
    with (javabuild.CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.is_file():
            _run_go([go, *arguments], program)
    return program


def _digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in GO_PROJECT.iterdir() if path.is_file()):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _run_go(command: Sequence[str], program: Path) -> None:
    program.parent.mkdir(exist_ok=True)
    try:
        done = subprocess.run(
            command,
            cwd=GO_PROJECT,
            env={**os.environ, "GOBIN": str(program.parent)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OracleMissingError(
            f"a network that brings the Go modules within {BUILD_TIMEOUT_S} s is missing"
        ) from error
    if done.returncode == 0:
        return
    tail = "\n".join(done.stdout.splitlines()[-15:])
    if any(fault in done.stdout for fault in NETWORK_FAULTS):
        raise OracleMissingError(f"the network to a Go module proxy is missing; Go said:\n{tail}")
    raise OracleBuildError(f"Go failed with exit code {done.returncode}:\n{tail}")
