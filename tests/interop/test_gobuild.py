"""The build of the Go agent names what is missing, and does not take a broken build for that."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.interop import gobuild, javabuild


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory as the whole PATH, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(javabuild, "CACHE", tmp_path / "cache")
    return folder


def _add_go(folder: Path, script: str) -> None:
    path = folder / "go"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def test_missing_go_is_named(tools: Path) -> None:
    assert list(tools.iterdir()) == []
    with pytest.raises(javabuild.OracleMissingError, match=r"Go \(go\) is missing"):
        gobuild.build()


def test_no_network_is_missing_but_a_compile_error_is_a_failure(tools: Path) -> None:
    _add_go(tools, "echo 'dial tcp: lookup: no such host'; exit 1")
    with pytest.raises(javabuild.OracleMissingError, match="network"):
        gobuild.build()
    _add_go(tools, "echo './main.go:1:1: syntax error'; exit 1")
    with pytest.raises(javabuild.OracleBuildError, match="syntax error"):
        gobuild.build()


def test_a_finished_build_is_reused(tools: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    _add_go(tools, f'echo run >> {runs}; : > "$3"')
    assert gobuild.build() == gobuild.build()
    assert runs.read_text().split() == ["run"]


@pytest.mark.parametrize(("ci", "required"), [("true", True), ("false", False)])
def test_a_build_is_required_in_ci_with_go(
    tools: Path,
    monkeypatch: pytest.MonkeyPatch,
    ci: str,
    required: bool,  # noqa: FBT001  a test parameter
) -> None:
    monkeypatch.setenv("CI", ci)
    assert not gobuild.is_required()
    _add_go(tools, "")
    assert gobuild.is_required() == required
