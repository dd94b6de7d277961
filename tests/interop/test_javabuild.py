"""The build of the oracle names what is missing, and does not take a broken build for that."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.interop import javabuild


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory as the whole PATH, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(javabuild, "CACHE", tmp_path / "cache")
    return folder


def _add_tool(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _add_java(folder: Path, version: str = "17.0.1") -> None:
    _add_tool(folder, "java", f"echo 'openjdk version \"{version}\"' >&2")
    _add_tool(folder, "javac", "")


def test_each_missing_tool_is_named(tools: Path) -> None:
    with pytest.raises(javabuild.OracleMissingError, match="Java 17 or newer is missing"):
        javabuild.build()
    _add_tool(tools, "java", "")
    with pytest.raises(javabuild.OracleMissingError, match="javac"):
        javabuild.build()
    _add_java(tools)
    with pytest.raises(javabuild.OracleMissingError, match=r"Maven \(mvn\) is missing"):
        javabuild.build()


def test_an_old_java_is_named(tools: Path) -> None:
    _add_java(tools, version="11.0.2")
    _add_tool(tools, "mvn", "")
    with pytest.raises(javabuild.OracleMissingError, match="Java 17 or newer is missing"):
        javabuild.build()


def test_no_network_is_missing_but_a_compile_error_is_a_failure(tools: Path) -> None:
    _add_java(tools)
    _add_tool(tools, "mvn", "echo '[ERROR] Could not transfer artifact x: Unknown host'; exit 1")
    with pytest.raises(javabuild.OracleMissingError, match="network"):
        javabuild.build()
    _add_tool(tools, "mvn", "echo '[ERROR] COMPILATION ERROR'; exit 1")
    with pytest.raises(javabuild.OracleBuildError, match="COMPILATION ERROR"):
        javabuild.build()


def test_a_finished_build_is_reused_until_a_jar_goes(tools: Path, tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"")
    runs = tmp_path / "runs"
    _add_java(tools)
    _add_tool(
        tools,
        "mvn",
        f'echo run >> {runs}; for word; do case "$word" in '
        f'-Dmdep.outputFile=*) printf %s {jar} > "${{word#*=}}";; esac; done',
    )
    first = javabuild.build()
    assert javabuild.build() == first
    assert first.classpath.endswith(str(jar))
    assert runs.read_text().split() == ["run"]
    jar.unlink()
    with pytest.raises(javabuild.OracleBuildError, match="jar"):
        javabuild.build()
    assert runs.read_text().split() == ["run", "run"]


@pytest.mark.parametrize(("ci", "required"), [("true", True), ("false", False), (None, False)])
def test_a_build_is_required_in_ci_with_java_and_maven(
    tools: Path,
    monkeypatch: pytest.MonkeyPatch,
    ci: str | None,
    required: bool,  # noqa: FBT001  a test parameter
) -> None:
    if ci is None:
        monkeypatch.delenv("CI", raising=False)
    else:
        monkeypatch.setenv("CI", ci)
    assert not javabuild.is_required()
    _add_java(tools)
    _add_tool(tools, "mvn", "")
    assert javabuild.is_required() == required
