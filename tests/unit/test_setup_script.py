"""Which packages scripts/setup.sh installs, and its message if it cannot.

The script runs in a folder of its own, and finds no programs but those that a test gives it.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "setup.sh"
BORROWED = ("bash", "dirname", "env", "find")

ANY_PYTHON = """
case "$*" in
    *"%d.%d"*) echo 3.13 ;;
    *Python.h*) echo "$0" ;;
esac
"""
"""A Python that lacks nothing, and whose headers are there: its own file stands for Python.h."""


class Machine:
    """A folder with the script, and the programs of a machine.

    Args:
        folder: An empty folder.
        packages: What apt can install; None on a machine without apt.
        user: The id of the user.
    """

    def __init__(
        self, folder: Path, *, packages: tuple[str, ...] | None = (), user: int = 0
    ) -> None:
        self._folder = folder
        self._programs = folder / "bin"
        self._installed = folder / "installed"
        for directory in ("bin", "scripts", "src/roquet", ".venv/bin"):
            (folder / directory).mkdir(parents=True)
        shutil.copy(SCRIPT, folder / "scripts" / SCRIPT.name)
        for name in BORROWED:
            found = shutil.which(name)
            assert found is not None
            (self._programs / name).symlink_to(found)
        self.add("id", f"echo {user}")
        self.add("cc", "")
        self.add("python3", ANY_PYTHON)
        shutil.copy(self._programs / "python3", folder / ".venv" / "bin" / "python")
        if packages is not None:
            self.add("apt-get", self._fake_apt(packages))

    def _fake_apt(self, packages: tuple[str, ...]) -> str:
        return f"""
            [ "$1" = update ] && exit 0
            for name; do :; done
            case " {" ".join(packages)} " in
                *" $name "*) echo "$name" >>{self._installed} ;;
                *) echo "E: Unable to locate package $name" >&2; exit 100 ;;
            esac
        """

    def add(self, name: str, script: str) -> None:
        path = self._programs / name
        path.write_text(f"#!/usr/bin/env bash\n{script}\n")
        path.chmod(0o755)

    def run(self) -> str:
        """Runs the script and returns its output."""
        done = subprocess.run(
            [self._folder / "scripts" / SCRIPT.name],
            env={"PATH": str(self._programs)},
            check=True,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def installed(self) -> list[str]:
        return self._installed.read_text().split() if self._installed.exists() else []


@pytest.mark.parametrize(
    ("packages", "installed"),
    [
        (("openjdk-17-jre-headless", "default-jre-headless"), "openjdk-17-jre-headless"),
        (("openjdk-21-jre-headless", "default-jre-headless"), "default-jre-headless"),
    ],
    ids=["a release with Java 17", "a release without"],
)
def test_java_is_installed(tmp_path: Path, packages: tuple[str, ...], installed: str) -> None:
    machine = Machine(tmp_path, packages=packages)
    assert "Java is missing" not in machine.run()
    assert machine.installed() == [installed]


def test_an_installed_java_is_kept(tmp_path: Path) -> None:
    machine = Machine(tmp_path, packages=("openjdk-17-jre-headless",))
    machine.add("java", "")
    machine.run()
    assert machine.installed() == []


@pytest.mark.parametrize(
    ("packages", "user"),
    [((), 0), (None, 0), (("openjdk-17-jre-headless",), 1000)],
    ids=["no such package", "no apt", "not root"],
)
def test_a_missing_java_is_named(
    tmp_path: Path, packages: tuple[str, ...] | None, user: int
) -> None:
    machine = Machine(tmp_path, packages=packages, user=user)
    assert "install a JRE of version 17 or newer" in machine.run()
    assert machine.installed() == []
