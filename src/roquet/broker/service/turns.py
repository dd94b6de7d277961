"""Long work in short turns of the event loop.

Owns the driver of generators that say where they can be interrupted:

.. code-block:: text

    yield 0                  go on in the next turn
    yield 1000               go on when so many milliseconds have passed
    result = yield work      have a function called in a thread, and go on with what it returns

A failure in the thread is raised at the ``yield``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from roquet.broker.service.timers import Handle, Timers

__all__ = ["Steps", "Turns"]

Steps = Generator[int | Callable[[], object], object, None]


class Turns:
    """A generator that is being worked through.

    Args:
        timers: The event loop.
        steps: The work; its first turn is the next one of the loop.
        ended: Told when it is through, with what it raised.
    """

    def __init__(
        self, timers: Timers, steps: Steps, ended: Callable[[Exception | None], None]
    ) -> None:
        self._timers = timers
        self._steps = steps
        self._ended = ended
        self._is_cancelled = False
        self._handle: Handle | None = timers.call_soon(self._go_on)

    def cancel(self) -> None:
        """End the work where it is; nobody is told."""
        self._is_cancelled = True
        if self._handle is not None:
            self._handle.cancel()
        self._steps.close()

    def _go_on(self) -> None:
        self._handle = None
        self._advance(lambda: self._steps.send(None))

    def _was_done(self, result: Callable[[], object]) -> None:
        if self._is_cancelled:
            return
        try:
            value = result()
        except Exception as error:  # noqa: BLE001 - whoever asked for the work is to know
            failure = error
            self._advance(lambda: self._steps.throw(failure))
        else:
            self._advance(lambda: self._steps.send(value))

    def _advance(self, move: Callable[[], int | Callable[[], object]]) -> None:
        try:
            pause = move()
        except StopIteration:
            self._ended(None)
        except Exception as error:  # noqa: BLE001 - handed on
            self._ended(error)
        else:
            if not isinstance(pause, int):
                self._timers.in_thread(pause, self._was_done)
            elif pause:
                self._handle = self._timers.call_later(pause, self._go_on)
            else:
                self._handle = self._timers.call_soon(self._go_on)
