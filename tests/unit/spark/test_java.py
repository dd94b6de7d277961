"""Which Java is taken, and what is said when none will do."""

from pathlib import Path

import pytest

from roquet.errors import JavaMissing
from roquet.spark.java import find_java


def fake_java(folder: Path, script: str) -> Path:
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_the_java_of_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(tmp_path / "home", "echo 'openjdk version \"21.0.2\" 2024' >&2")
    other = fake_java(tmp_path / "other", "echo 'openjdk version \"17.0.1\"' >&2")
    monkeypatch.setenv("PATH", str(other.parent))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert (find_java().path, find_java().version) == (home, "21.0.2")
    monkeypatch.delenv("JAVA_HOME")
    assert (find_java().path, find_java().version) == (other, "17.0.1")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 'java version \"1.8.0_392\"' >&2", "1.8.0_392"),
        ("echo 'openjdk version \"11.0.1\"' >&2", "11.0.1"),
        ("echo hello", "unknown version"),
        ("exit 3", "exit status 3"),
    ],
)
def test_a_java_that_will_not_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str
) -> None:
    fake_java(tmp_path, script)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing) as caught:
        find_java()
    assert message in str(caught.value.detail)
    assert "JAVA_HOME" in str(caught.value.hint)


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaMissing, match="not installed"):
        find_java()
