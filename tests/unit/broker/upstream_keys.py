"""The settings of Apache RocketMQ 5.4.0, as read from the setters and annotations in its jars.

``UPSTREAM_KEYS`` has the names by class, ``IMPORTANT_KEYS`` those that are marked as important.
"""

from __future__ import annotations

import json
from pathlib import Path

_DATA = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))

UPSTREAM_KEYS: dict[str, list[str]] = _DATA["keys"]
IMPORTANT_KEYS: list[str] = _DATA["important"]
