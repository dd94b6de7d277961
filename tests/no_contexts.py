"""Commands under test know nothing of the user who runs the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

VARIABLES = (
    "NAMESRV_ADDR",
    "ROQUET_ACCESS_KEY",
    "ROQUET_CONTEXT",
    "ROQUET_SECRET_KEY",
    "ROQUET_SECURITY_TOKEN",
)


@pytest.fixture(autouse=True)
def no_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of settings that is empty."""
    folder = tmp_path / "settings"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return folder
