"""How a class of coroutines gets its blocking twin.

Owns :class:`Face` and the two makers of methods: :func:`blocking` for coroutine functions, and
:func:`on_loop` for ordinary ones that touch what belongs to the loop. A method made so has the
parameters, the types and the words of the asyncio method; in its example nothing is awaited.
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

__all__ = ["Face", "LifetimeFace", "blocking", "on_loop"]

_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_T = TypeVar("_T")
_Inner = TypeVar("_Inner")
_Inner_co = TypeVar("_Inner_co", covariant=True)
_Lifetime_co = TypeVar("_Lifetime_co", bound=Lifetime, covariant=True)

_ASYNC_WORDS = re.compile(r"\basync (?=with|for|def)|\bawait ")


class Face(Generic[_Inner_co]):
    """The blocking face of an object that lives on the loop.

    Args:
        inner: The object.
        runner: How its work gets done.
    """

    def __init__(self, inner: _Inner_co, runner: Runner) -> None:
        self._face_of = inner
        self._runner = runner

    @property
    def _inner(self) -> _Inner_co:
        return self._face_of


class LifetimeFace(Face[_Lifetime_co]):
    """The blocking face of something that is started and closed.

    Args:
        inner: What it is the face of.
        pooled: Whether that works with pools of threads.
    """

    def __init__(self, inner: _Lifetime_co, *, pooled: bool = False) -> None:
        super().__init__(inner, Runner())
        self._pooled = pooled

    def start(self) -> None:
        """Begin; ``with`` does it. Errors are those of the asyncio class.

        Example:
            later = Producer(namesrv, group="later")
            later.start()
            later.close()
        """
        self._runner.start(self._inner, pooled=self._pooled)

    def close(self) -> None:
        """End; ``with`` does it. What is still open when the program ends is closed then.

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
) -> Callable[Concatenate[Face[_Inner], _P], _T]:
    """The blocking twin of a coroutine method."""

    @functools.wraps(method)
    def called(self: Face[_Inner], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._runner.run(lambda: method(self._inner, *args, **kwargs))

    _describe(called, method)
    return called


def on_loop(
    method: Callable[Concatenate[_Inner, _P], _T],
) -> Callable[Concatenate[Face[_Inner], _P], _T]:
    """The twin of an ordinary method, called by the loop's thread once that is at work."""

    @functools.wraps(method)
    def called(self: Face[_Inner], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        if not self._runner.is_bound:
            return method(self._inner, *args, **kwargs)

        async def work() -> _T:
            return method(self._inner, *args, **kwargs)

        return self._runner.run(work)

    _describe(called, method)
    return called


def _describe(called: Callable[_Q, object], method: Callable[_P, object]) -> None:
    called.__doc__ = _ASYNC_WORDS.sub("", inspect.getdoc(method) or "")
    # `wraps` leads to the coroutine function, which would make this look like one.
    del called.__dict__["__wrapped__"]
    called.__dict__["__signature__"] = inspect.signature(method)
