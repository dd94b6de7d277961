"""Decides whether compiled code runs.

A compiled module runs where it was built, unless ``ROQUET_PURE`` is set to anything but 0. There
are two kinds, and everything works without them, only slower.

* A module in Cython has a twin in Python, which imports it like this, and checks :func:`is_used`
  before each use::

      if compiled.is_built("roquet.client._records"):
          from roquet.client import _records

* A module in Python with a ``.pxd`` beside it is compiled as it stands. Python prefers what was
  compiled; :func:`prefer_sources` makes it take the source.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

__all__ = ["is_built", "is_used", "is_wanted", "path_in_use", "prefer_sources"]

HOT_PATH = "roquet.broker.hot._requests"
"""The module that serves plain requests; it needs all compiled modules of store and broker."""

HOW_TO_GET_IT = (
    "install a C compiler and Python's headers, "
    "then install Roquet again with pip's --force-reinstall --no-cache-dir"
)
"""Without the option, pip reuses the cached wheel that it built without a compiler."""


class SourceFinder:
    """Finds no compiled module of Roquet, only its source."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that has both; the other finders have the rest."""
        if path is None or not name.startswith("roquet."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
            return None
        source = Path(spec.loader.path).parent / f"{name.rpartition('.')[2]}.py"
        if source.exists():
            return spec_from_file_location(name, source)
        raise ModuleNotFoundError(f"{name} is compiled, and ROQUET_PURE is set", name=name)


def prefer_sources() -> None:
    """Import modules from their source from now on, where they were compiled too."""
    sys.meta_path.insert(0, SourceFinder)


@cache
def is_built(name: str) -> bool:
    """Whether a compiled module and its dependencies can be imported."""
    try:
        import_module(name)
    except ModuleNotFoundError:
        return False
    return True


def is_wanted() -> bool:
    """Whether compiled code may run where it was built."""
    return os.environ.get("ROQUET_PURE", "") in {"", "0"}


def is_used(name: str) -> bool:
    """Whether a compiled module is built and enabled."""
    return is_wanted() and is_built(name)


def path_in_use() -> str:
    """A description of the path that plain requests take, and how to get the faster one."""
    if not is_wanted():
        return "reference path, slower: ROQUET_PURE is set"
    if not is_built(HOT_PATH):
        return f"reference path, slower: not compiled; {HOW_TO_GET_IT}"
    return "compiled"
