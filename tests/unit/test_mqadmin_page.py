"""docs/reference/mqadmin.md matches the table of commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from roquet.cli.mqadmin.catalogue import all_specs

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "mqadmin_page.py"
PAGE = ROOT / "docs" / "reference" / "mqadmin.md"


def test_the_page_is_current() -> None:
    result = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_every_command_is_on_the_page() -> None:
    lines = PAGE.read_text("utf-8").splitlines()
    for spec in all_specs():
        [row] = [line for line in lines if line.startswith(f"| `{spec.name}` |")]
        status = row.split("|")[-2].strip()
        assert (status == "here") == (spec.refusal is None)
