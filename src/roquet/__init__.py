"""Roquet: a RocketMQ-compatible message broker in Python.

This module holds the version and little else, so that importing any part of Roquet stays cheap.
"""

import os

__all__ = ["__version__"]

__version__ = "0.1.0"

if os.environ.get("ROQUET_PURE", "") not in {"", "0"}:
    # Before any module is imported that was compiled.
    from roquet.runtime.compiled import prefer_sources

    prefer_sources()
