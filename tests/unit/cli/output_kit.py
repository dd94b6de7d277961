"""What commands write with ``--json``."""

from __future__ import annotations

import json
from typing import Any

from click.testing import Result


def lines(text: str) -> list[dict[str, Any]]:
    """Lines of JSON."""
    return [json.loads(line) for line in text.splitlines()]


def error_of(result: Result) -> dict[str, Any]:
    """The error that a command with ``--json`` ended with."""
    found: dict[str, Any] = json.loads(result.stderr.splitlines()[-1])["error"]
    return found
