"""Whether the compiled lanes are used.

Owns the one decision: ``roquet._fast`` and ``roquet._wire`` if they were built, unless
``ROQUET_PURE`` is set to anything but 0. Everything works without them.
"""

from __future__ import annotations

import os


def is_wanted() -> bool:
    """Whether the compiled lanes may be used where they are there."""
    return os.environ.get("ROQUET_PURE", "") in {"", "0"}
