"""Tools for testing programs that use Roquet, and Roquet itself.

``broker`` and ``background`` run a broker inside a test, ``pytest_plugin`` has the fixtures,
``fault_proxy`` simulates a bad network, ``files`` a bad disk, and ``history`` checks what clients
saw. They are part of the product: typed, documented and kept working. May import every package
except the commands and the dashboard; product code never imports it.

``from roquet.testing import broker`` imports the function of that name, which is all that a test
needs of its module. Everything is imported lazily, because every run of pytest imports this
package.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roquet.testing.broker import broker  # noqa: TC004 - given by the class below

__all__ = ["broker"]


class _Testing(ModuleType):
    """This package, whose attribute ``broker`` stays the function when the module is imported."""

    @property
    def broker(self) -> object:
        """The function of the module ``broker``."""
        return import_module(f"{__name__}.broker").broker

    @broker.setter
    def broker(self, module: object) -> None:
        """Ignore the module, which the import system sets on its package."""


sys.modules[__name__].__class__ = _Testing
