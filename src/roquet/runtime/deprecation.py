"""Old public names, kept working for one version.

A renamed public name is still importable under its old name until the next version, with a
``DeprecationWarning`` that gives the new one::

    if not TYPE_CHECKING:
        __getattr__ = deprecated_names(__name__, {"OldName": "NewName"})
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping

__all__ = ["deprecated_names"]


def deprecated_names(module: str, renamed: Mapping[str, str]) -> Callable[[str], object]:
    """A module's ``__getattr__`` that looks up old names under their new ones.

    Args:
        module: The full name of the module.
        renamed: The new name of each old one; both are names in that module.
    """

    def lookup(name: str) -> object:
        new_name = renamed.get(name)
        if new_name is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        warnings.warn(
            f"{module}.{name} is deprecated, use {module}.{new_name}",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(sys.modules[module], new_name)

    return lookup
