#!/usr/bin/env python3
"""Runs tests on every other Python of this machine that Roquet supports.

``python scripts/pythons.py SDIST TESTS`` looks for Pythons from 3.11 on, besides the one that runs
it: on PATH, and among the versions of pyenv. It installs the sdist into an empty environment of
each, with the ``test`` extra and compiled for that Python, and runs pytest on the tests there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "codecs,otel,test"
MINORS = range(11, 14)
"""The minor versions in the classifiers of pyproject.toml."""
SHOW_VERSION = "import ensurepip, platform, venv; print(platform.python_version())"


def say(text: str) -> None:
    """Print one line about what happens."""
    print(f"pythons: {text}", flush=True)


def folders() -> Iterator[Path]:
    """Where Pythons may be. The shims of pyenv refuse versions that are not enabled."""
    for name in os.environ.get("PATH", "").split(os.pathsep):
        folder = Path(name)
        if folder.name == "shims":
            yield from sorted((folder.parent / "versions").glob("*/bin"))
        else:
            yield folder


def version_of(python: Path) -> str | None:
    """The version of a Python that can create environments."""
    command = [str(python), "-c", SHOW_VERSION]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def other_pythons() -> dict[str, Path]:
    """The first Python of each minor version, by its version, except the one that runs this."""
    found: dict[str, Path] = {}
    searched = list(folders())
    for minor in MINORS:
        if minor == sys.version_info.minor:
            continue
        for folder in searched:
            python = folder / f"python3.{minor}"
            if python.is_file() and (version := version_of(python)) is not None:
                found[version] = python
                break
    return found


def run_tests(python: Path, sdist: Path, arguments: list[str]) -> bool:
    """Install the sdist into an environment of a Python, and run pytest there."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", folder], check=True)
        inner = Path(folder) / "bin" / "python"
        pip = [str(inner), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-cache-dir", f"{sdist}[{EXTRAS}]"], check=True)
        shown = subprocess.run(
            [inner, "-m", "roquet", "--version"],
            check=True,
            cwd=folder,
            capture_output=True,
            text=True,
        )
        say(shown.stdout.strip())
        tests = subprocess.run([inner, "-m", "pytest", *arguments], check=False, cwd=ROOT)
        return tests.returncode == 0


def main(sdist: Path, arguments: list[str]) -> None:
    """Run the tests on every Python, then report where they failed."""
    os.environ.pop("PYTHONPATH", None)
    found = other_pythons()
    say(f"besides {sys.version.split()[0]} there is {', '.join(found) or 'no other Python'}")
    failed = []
    for version, python in found.items():
        say(f"testing on {version}")
        if not run_tests(python, sdist, arguments):
            failed.append(version)
    if failed:
        sys.exit(f"pythons: the tests failed on {', '.join(failed)}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: pythons.py SDIST [PYTEST_ARGUMENT ...]")
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
