#!/usr/bin/env python3
"""Runs the first minute of the README with an installed Roquet.

``python scripts/first_minute.py compiled`` takes the Roquet of that Python, checks that it runs the
compiled code (or, with ``reference``, that it does not), starts ``roquet dev`` on free ports in an
empty folder, and runs the commands and programs of the section as they stand. Blocks that need
Spark are skipped. It needs nothing but the standard library, and exits with 1 at the first failure.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
SECTION = re.compile(r"^## First minute$(.*?)^## ", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
DEFAULT_NAMESRV = "127.0.0.1:9876"

TIMEOUT_S = 60
"""How long a step may take, on a slow machine."""


def say(text: str) -> None:
    """Print one line about what happens."""
    print(f"first minute: {text}", flush=True)


def environment(folder: Path) -> dict[str, str]:
    """The environment of commands in a folder: no checkout, no user settings."""
    dropped = {"PYTHONPATH", "ROQUET_PURE", "NAMESRV_ADDR"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    scripts = sysconfig.get_path("scripts")
    return kept | {"HOME": str(folder), "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}


def run(command: list[str], folder: Path, variables: dict[str, str]) -> str:
    """Run a command to its end and return what it printed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=variables,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S,
    )
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def first_line(process: subprocess.Popen[str]) -> str:
    """Wait until a process has printed a line; one that prints none is killed."""
    assert process.stdout is not None
    timer = threading.Timer(TIMEOUT_S, process.kill)
    timer.start()
    line = process.stdout.readline()
    timer.cancel()
    if not line:
        sys.exit("roquet dev printed nothing")
    return line


@contextmanager
def dev_servers(folder: Path, variables: dict[str, str], expected: str) -> Iterator[str]:
    """Run ``roquet dev`` during the block; yields the address of the name server."""
    command = ["roquet", "dev", "--port", "0", "--namesrv-port", "0", "--json"]
    with subprocess.Popen(
        command, cwd=folder, env=variables, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            banner = json.loads(first_line(process))
            check_path("roquet dev", banner["broker"]["hotPath"], expected)
            yield banner["namesrv"]["address"]
            process.terminate()
            if process.wait(TIMEOUT_S) != 0:
                sys.exit(f"roquet dev: exit code {process.returncode} after SIGTERM")
        finally:
            process.kill()


def check_path(who: str, said: str, expected: str) -> None:
    """Compare the code path that a command reports with the expected one."""
    say(f"{who}: {said}")
    if not said.startswith(expected):
        sys.exit(f"{who} should name the {expected} path")


def run_block(language: str, text: str, folder: Path, variables: dict[str, str]) -> None:
    """Run one code block of the README."""
    if language == "python":
        say("a program: " + text.split("\n\n")[1].replace("\n", "; "))
        text = text.replace(DEFAULT_NAMESRV, variables["NAMESRV_ADDR"])
        print(run([sys.executable, "-c", text], folder, variables), end="")
        return
    for line in text.splitlines():
        command = shlex.split(line, comments=True)
        say(shlex.join(command))
        if command == ["roquet", "dev"]:
            continue
        output = run(command, folder, variables)
        print(output, end="")
        if not output:
            sys.exit(f"{line}: printed nothing")


def main(expected: str) -> None:
    """Run the section."""
    section = SECTION.search(README.read_text("utf-8"))
    if section is None:
        sys.exit("README.md has no section '## First minute'")
    blocks = [
        (language, text) for language, text in BLOCK.findall(section[1]) if "spark" not in text
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        variables = environment(folder)
        version = run(["roquet", "--version"], folder, variables)
        check_path("roquet --version", version.partition("(")[2].rstrip(")\n"), expected)
        with dev_servers(folder, variables, expected) as namesrv:
            for language, text in blocks:
                run_block(language, text, folder, variables | {"NAMESRV_ADDR": namesrv})
    say("done")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in {"compiled", "reference"}:
        sys.exit("usage: first_minute.py compiled|reference")
    main(sys.argv[1])
