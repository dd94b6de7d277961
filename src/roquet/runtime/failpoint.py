"""Named points where a test can interrupt the program.

Owns one hook. Product code calls :func:`failpoint` around operations that must be atomic; with no
hook installed that is one comparison. A crash test installs a hook that raises or kills.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_hook: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Tell the installed hook, if any, that execution reached ``name``."""
    if _hook is not None:
        _hook(name)


@contextmanager
def installed(hook: Callable[[str], None]) -> Iterator[None]:
    """Install ``hook`` for the length of a ``with`` block."""
    global _hook  # noqa: PLW0603 - one hook for the process is the point of a fail point
    previous, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = previous
