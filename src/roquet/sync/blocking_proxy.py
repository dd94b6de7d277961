"""Turns classes with coroutines into classes that block.

Owns :class:`BlockingProxy` and two ways to make its methods: :func:`blocking` for coroutine
functions, and :func:`on_loop` for ordinary methods that must run on the loop's thread. A method
keeps the parameters, types and docstring of the asyncio method, with ``await`` removed from its
example.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, Self, TypeVar

from roquet.client.lifetime import Lifetime
from roquet.sync.loop import Runner

__all__ = ["BlockingProxy", "LifetimeProxy", "blocking", "on_loop"]

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_T = TypeVar("_T")
_Inner = TypeVar("_Inner")
_Inner_co = TypeVar("_Inner_co", covariant=True)
_Lifetime_co = TypeVar("_Lifetime_co", bound=Lifetime, covariant=True)

_ASYNC_WORDS = re.compile(r"\basync (?=with|for|def)|\bawait ")


class BlockingProxy(Generic[_Inner_co]):
    """Calls an object that lives on the event loop, and blocks until it is done.

    Args:
        inner: The object.
        runner: Runs its work on the loop.
    """

    def __init__(self, inner: _Inner_co, runner: Runner) -> None:
        self._proxied = inner
        self._runner = runner

    @property
    def _inner(self) -> _Inner_co:
        return self._proxied


class LifetimeProxy(BlockingProxy[_Lifetime_co]):
    """A proxy of an object that is started and closed.

    Args:
        inner: The object.
        pooled: Whether the object uses thread pools.
    """

    def __init__(self, inner: _Lifetime_co, *, pooled: bool = False) -> None:
        super().__init__(inner, Runner())
        self._pooled = pooled

    def start(self) -> None:
        """Start; ``with`` does it. Raises the errors of the asyncio class.

        Example:
            later = Producer(namesrv, group="later")
            later.start()
            later.close()
        """
        self._runner.start(self._inner, pooled=self._pooled)

    def close(self) -> None:
        """Close; ``with`` does it. Whatever is still open when the program ends is closed then.

        Example:
            short = SimplePull(namesrv, queue, group="short")
            short.start()
            short.close()
        """
        self._runner.close(self._inner, self._inner.close)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        inner = self._inner
        self._runner.close(inner, lambda: inner.__aexit__(kind, error, traceback))


def blocking(
    method: Callable[Concatenate[_Inner, _P], Coroutine[object, object, _T]],
) -> Callable[Concatenate[BlockingProxy[_Inner], _P], _T]:
    """Return the blocking version of a coroutine method."""

    @functools.wraps(method)
    def called(self: BlockingProxy[_Inner], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._runner.run(lambda: method(self._inner, *args, **kwargs))

    _describe(called, method)
    return called


def on_loop(
    method: Callable[Concatenate[_Inner, _P], _T],
) -> Callable[Concatenate[BlockingProxy[_Inner], _P], _T]:
    """Return a version of an ordinary method that runs on the loop's thread once it is started."""

    @functools.wraps(method)
    def called(self: BlockingProxy[_Inner], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if not self._runner.is_bound:
            return method(self._inner, *args, **kwargs)

        async def work() -> _T:
            return method(self._inner, *args, **kwargs)

        return self._runner.run(work)

    _describe(called, method)
    return called


def _describe(called: Callable[_Q, object], method: Callable[_P, object]) -> None:
    called.__doc__ = _ASYNC_WORDS.sub("", inspect.getdoc(method) or "")
    # `wraps` points to the coroutine function, which would make this look like one.
    del called.__dict__["__wrapped__"]
    called.__dict__["__signature__"] = inspect.signature(method)
