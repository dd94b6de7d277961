"""Whether the compiled lane is used.

Owns the one decision: ``roquet._fast`` if it was built, unless ``ROQUET_PURE`` is set to anything
but 0. Everything works without it.
"""

from __future__ import annotations

import os


def is_wanted() -> bool:
    """Whether the compiled lane may be used where it is there."""
    return os.environ.get("ROQUET_PURE", "") in {"", "0"}
