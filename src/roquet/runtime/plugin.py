"""User code that settings refer to.

Resolves names to code: ``package.module:Name``, or the name of an entry point of an installed
distribution. If importing or calling that code fails, the caller gets a
:class:`~roquet.errors.ConfigError` with the setting, the name and the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import entry_points
from typing import TypeVar

from roquet.errors import ConfigError, RoquetError

__all__ = ["PluginName", "plugin_names"]

_T = TypeVar("_T")


class PluginName:
    """The name of a plug-in in a setting.

    Args:
        text: ``package.module:Name``, or the name of an entry point.
        setting: The key of the setting, for errors.
        group: The group of its entry point.
    """

    def __init__(self, text: str, *, setting: str, group: str) -> None:
        self.text = text
        self._setting = setting
        self._group = group

    def load(self) -> object:
        """Import the object that the name refers to.

        Raises:
            ConfigError: There is no such object, or it cannot be imported.
        """
        return self._guarded(self._find)

    def make(self, factory: Callable[[], _T]) -> _T:
        """Call a function of the plug-in.

        Raises:
            ConfigError: It failed.
        """
        return self._guarded(factory)

    def refusal(self, detail: str) -> ConfigError:
        """The error for a plug-in that cannot be used."""
        return ConfigError(
            f"{self._setting} names {self.text!r}, which cannot be used.",
            code="plugin",
            detail=detail,
            hint="Write package.module:Name, or the name of an entry point of group "
            f"{self._group}; the package must be installed where Roquet is.",
        )

    def _guarded(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except RoquetError:
            raise
        except (Exception, SystemExit) as error:
            raise self.refusal(f"{type(error).__name__}: {error}") from error

    def _find(self) -> object:
        module_name, colon, attribute = self.text.partition(":")
        if colon:
            found: object = import_module(module_name)
            for part in attribute.split("."):
                found = getattr(found, part)
            return found
        points = tuple(entry_points(group=self._group, name=self.text))
        if not points:
            known = sorted({point.name for point in entry_points(group=self._group)})
            raise self.refusal(
                f"no entry point of that name; installed are: {', '.join(known) or 'none'}"
            )
        if len({point.value for point in points}) > 1:
            places = ", ".join(sorted(point.value for point in points))
            raise self.refusal(f"several distributions have that name: {places}")
        loaded: object = points[0].load()
        return loaded


def plugin_names(text: str, *, setting: str, group: str) -> list[PluginName]:
    """The names in a setting, which are separated by commas.

    Example:
        >>> [name.text for name in plugin_names("a, b:C,", setting="rpcHooks", group="g")]
        ['a', 'b:C']
    """
    names = [name.strip() for name in text.split(",")]
    return [PluginName(name, setting=setting, group=group) for name in names if name]
