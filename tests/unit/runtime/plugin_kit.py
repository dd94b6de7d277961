"""Distributions as an installer leaves them: modules beside a folder of metadata."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

GROUP = "roquet.test_plugins"


class Installed:
    """A folder of packages on the path of a test, whose modules are forgotten with it.

    Args:
        folder: The folder.
        monkeypatch: Undoes everything.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._monkeypatch = monkeypatch
        folder.mkdir()
        monkeypatch.syspath_prepend(folder)

    def module(self, name: str, source: str) -> None:
        """Install a module without metadata."""
        (self.folder / f"{name}.py").write_text(source, "utf-8")
        self._monkeypatch.setitem(sys.modules, name, ModuleType(name))
        del sys.modules[name]  # what is imported in its place is removed when the patch is undone

    def distribution(
        self,
        project: str,
        module: str,
        source: str,
        entry_points: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Install a module with its metadata."""
        self.module(module, source)
        metadata = self.folder / f"{project.replace('-', '_')}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.0\n", "utf-8"
        )
        lines = [
            line
            for group, points in entry_points.items()
            for line in (f"[{group}]", *(f"{name} = {place}" for name, place in points.items()))
        ]
        (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")
