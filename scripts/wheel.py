#!/usr/bin/env python3
"""Builds sdist and wheel in ``build/wheel``, and tests both as a user would install them.

The wheel is built from the sdist, and given a manylinux tag by auditwheel. Both archives are
checked for missing and extra files. Then the wheel, the sdist, and the sdist without a C compiler
are installed into empty environments outside the checkout, and each runs the README's first minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILT = ROOT / "build" / "wheel"
FIRST_MINUTE = ROOT / "scripts" / "first_minute.py"

TOP_LEVEL = ("LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py")
NOT_SOURCES = shutil.ignore_patterns("*.so", "_*.c", "__pycache__", "*.egg-info")

DATA_FILES = {"roquet/py.typed", "roquet/cli/mqadmin/commands.txt"}
SDIST_TOP_LEVEL = {*TOP_LEVEL, "PKG-INFO", "setup.cfg"}
SDIST_SUFFIXES = (".py", ".pyi", ".pyx", ".pxd", ".h")
WHEEL_SUFFIXES = (".py", ".pyi")

NO_COMPILER = {"CC": "false", "CXX": "false"}
OURS = ("PYTHONPATH", "ROQUET_CHECKED", "ROQUET_PURE")
"""Environment variables of the user that must not affect the build and the tests."""


class Stopwatch:
    """Prints the steps of this program with the seconds since it was started."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        """Print one line."""
        print(f"wheel: {time.monotonic() - self._started:5.1f} s  {text}", flush=True)


def clean_environment() -> dict[str, str]:
    """The environment of a user."""
    return {name: value for name, value in os.environ.items() if name not in OURS}


def run(*command: str | Path, variables: dict[str, str] | None = None) -> None:
    """Run a command; show its output only if it fails."""
    done = subprocess.run(
        command,
        check=False,
        cwd=BUILT,
        env=clean_environment() | (variables or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nwheel: {command}: exit code {done.returncode}")


def build() -> tuple[Path, Path]:
    """Build both archives from a copy of the sources, so that the checkout stays clean."""
    shutil.rmtree(BUILT, ignore_errors=True)
    copy = BUILT / "source"
    copy.mkdir(parents=True)
    for name in TOP_LEVEL:
        shutil.copy2(ROOT / name, copy / name)
    shutil.copytree(ROOT / "src", copy / "src", ignore=NOT_SOURCES)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", BUILT, copy)
    shutil.rmtree(copy)
    (sdist,) = BUILT.glob("*.tar.gz")
    (wheel,) = BUILT.glob("*.whl")
    return sdist, wheel


def repaired(wheel: Path) -> Path:
    """Give the wheel the tag of the oldest system that it runs on."""
    scripts = Path(sys.executable).parent
    path = f"{scripts}{os.pathsep}{os.environ['PATH']}"
    run(
        *(sys.executable, "-m", "auditwheel", "repair", "--strip"),
        *("--wheel-dir", BUILT / "dist", wheel),
        variables={"PATH": path},
    )
    wheel.unlink()
    (found,) = (BUILT / "dist").glob("*.whl")
    return found


def contents(archive: Path) -> dict[str, bytes]:
    """The files of an archive by name, without the top folder of an sdist."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if not name.endswith("/")]
            return {name: opened.read(name) for name in names}
    with tarfile.open(archive) as opened_tar:
        files = [member for member in opened_tar.getmembers() if member.isfile()]
        return {
            member.name.partition("/")[2]: opened_file.read()
            for member in files
            if (opened_file := opened_tar.extractfile(member)) is not None
        }


def source_names(*suffixes: str) -> set[str]:
    """Source files with these suffixes, below ``src``."""
    source = ROOT / "src"
    return {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.suffix in suffixes and ".egg-info" not in str(path)
    }


def check_sdist(files: dict[str, bytes]) -> list[str]:
    """Problems with the contents of an sdist: it has the sources, and no generated C."""
    wanted = {f"src/{name}" for name in source_names(*SDIST_SUFFIXES) | DATA_FILES}
    found = {name for name in files if ".egg-info/" not in name}
    return differences("sdist", found, wanted | SDIST_TOP_LEVEL)


def check_wheel(files: dict[str, bytes]) -> list[str]:
    """Problems with the contents of a wheel: it has compiled modules in place of Cython.

    A module that is compiled from its Python source is there in both forms.
    """
    information = {name for name in files if ".dist-info/" in name}
    modules = {module_name(name) for name in files if name.endswith(".so")}
    others = {name for name in files if not name.endswith(".so")} - information
    licences = [name for name in information if name.endswith("/licenses/LICENSE")]
    twins = {name.removesuffix(".pyx") for name in source_names(".pyx")}
    typed = {name.removesuffix(".pxd") for name in source_names(".pxd")} & {
        name.removesuffix(".py") for name in source_names(".py")
    }
    return (
        differences("wheel", others, source_names(*WHEEL_SUFFIXES) | DATA_FILES)
        + differences("wheel", modules, twins | typed)
        + ([] if licences else ["wheel: the licence is missing"])
    )


def module_name(name: str) -> str:
    """The path of a compiled module without the tags of Python and platform."""
    return name.partition(".")[0]


def differences(archive: str, found: set[str], wanted: set[str]) -> list[str]:
    """One line for each extra or missing file."""
    return [
        *(f"{archive}: {name} does not belong there" for name in sorted(found - wanted)),
        *(f"{archive}: {name} is missing" for name in sorted(wanted - found)),
    ]


def check_paths(archive: Path, files: dict[str, bytes]) -> list[str]:
    """Places where an archive names folders of this machine."""
    folders = {str(ROOT), str(Path.home()), tempfile.gettempdir()}
    own = {folder.encode() for folder in folders if folder.count("/") > 1}
    return [
        f"{archive.name}: {name} names a folder of this machine"
        for name, data in files.items()
        if any(folder in data for folder in own)
    ]


def try_out(archive: Path, expected: str, variables: dict[str, str]) -> None:
    """Install an archive into an empty environment and run the README's first minute there."""
    with tempfile.TemporaryDirectory() as name:
        environment = Path(name) / "venv"
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        run(
            *(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            # A wheel from pip's cache would hide what this compiler builds.
            *("--no-cache-dir", archive),
            variables=variables,
        )
        run(python, FIRST_MINUTE, expected)


def main() -> None:
    """Build, check and try."""
    watch = Stopwatch()
    sdist, plain_wheel = build()
    watch.say(f"built {sdist.name} and {plain_wheel.name}")
    wheel = repaired(plain_wheel)
    watch.say(f"repaired: {wheel.name}, {wheel.stat().st_size / 2**20:.1f} MiB")
    sdist_files, wheel_files = contents(sdist), contents(wheel)
    wrong = [
        *check_sdist(sdist_files),
        *check_wheel(wheel_files),
        *check_paths(sdist, sdist_files),
        *check_paths(wheel, wheel_files),
    ]
    if wrong:
        sys.exit("\n".join(wrong))
    watch.say(f"{len(sdist_files)} files in the sdist, {len(wheel_files)} in the wheel")
    try_out(wheel, "compiled", {})
    watch.say("the wheel runs the first minute, compiled")
    try_out(sdist, "compiled", {})
    watch.say("the sdist runs the first minute, compiled")
    try_out(sdist, "reference", NO_COMPILER)
    watch.say("the sdist without a compiler runs the first minute on the reference path")


if __name__ == "__main__":
    main()
