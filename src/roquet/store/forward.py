"""Forwarding: a class delegates parts of an interface to its components.

Owns :func:`forwards`. An interface is a protocol, or several that a protocol joins. A class that
forwards inherits from it, so type checkers know every member with its types; the members are never
written down a second time.

The bodies of such an interface raise :class:`NotForwarded`. A body of ``...``, or one that raises
``NotImplementedError``, would make the member abstract to type checkers, and a call of it through
``super()`` an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Protocol, TypeVar

_Class = TypeVar("_Class", bound=type)


class NotForwarded(RuntimeError):
    """A class inherits a member of an interface that it neither defines nor forwards."""


def forwards(attribute: str, *interfaces: type) -> Callable[[_Class], _Class]:
    """Forward every member of ``interfaces`` that a class does not define to one of its attributes.

    Example:
        >>> class Greeter(Protocol):
        ...     def greet(self, name: str) -> str:
        ...         raise NotForwarded
        >>> class English:
        ...     def greet(self, name: str) -> str:
        ...         return f"Hello, {name}"
        >>> @forwards("language", Greeter)
        ... class Host(Greeter):
        ...     def __init__(self) -> None:
        ...         self.language = English()
        >>> Host().greet("Ada")
        'Hello, Ada'
    """

    def decorate(owner: _Class) -> _Class:
        for interface in interfaces:
            for name, member in members(interface):
                if name not in vars(owner):
                    get = attrgetter(f"{attribute}.{name}")
                    is_property = isinstance(member, property)
                    make = property if is_property else _ForwardedMethod
                    setattr(owner, name, make(get, doc=member.__doc__))
        return owner

    return decorate


class _ForwardedMethod:
    """The method of the same name of another object; an instance may override it."""

    def __init__(self, get: Callable[[object], object], *, doc: str | None) -> None:
        self._get = get
        self.__doc__ = doc

    def __get__(self, owner: object | None, _: type | None = None) -> object:
        return self if owner is None else self._get(owner)


def members(interface: type) -> Iterator[tuple[str, object]]:
    """The public members of a protocol and of the protocols it joins."""
    for part in interface.__mro__:
        if part not in {Protocol, object}:
            for name, member in vars(part).items():
                if not name.startswith("_"):
                    yield name, member
