"""Long work, split into short slices on the event loop.

Runs generators that yield where they can be interrupted:

.. code-block:: text

    yield 0                  continue in the next iteration of the loop
    yield 1000               continue after this many milliseconds
    result = yield work      call a function in a thread, and continue with its result

A failure in the thread is raised at the ``yield``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from roquet.broker.service.timers import TimerHandle, Timers

__all__ = ["SlicedTask", "Steps"]

Steps = Generator[int | Callable[[], object], object, None]


class SlicedTask:
    """A generator that runs in slices.

    Args:
        timers: The event loop.
        steps: The work; its first slice runs in the next iteration of the loop.
        ended: Called at the end, with the exception if there was one.
    """

    def __init__(
        self, timers: Timers, steps: Steps, ended: Callable[[Exception | None], None]
    ) -> None:
        self._timers = timers
        self._steps = steps
        self._ended = ended
        self._is_cancelled = False
        self._handle: TimerHandle | None = timers.call_soon(self._go_on)

    def cancel(self) -> None:
        """Stop the work where it is; ``ended`` is not called."""
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
        except Exception as error:  # noqa: BLE001 - raised at the yield
            failure = error
            self._advance(lambda: self._steps.throw(failure))
        else:
            self._advance(lambda: self._steps.send(value))

    def _advance(self, move: Callable[[], int | Callable[[], object]]) -> None:
        try:
            pause = move()
        except StopIteration:
            self._ended(None)
        except Exception as error:  # noqa: BLE001 - passed to ended
            self._ended(error)
        else:
            if not isinstance(pause, int):
                self._timers.in_thread(pause, self._was_done)
            elif pause:
                self._handle = self._timers.call_later(pause, self._go_on)
            else:
                self._handle = self._timers.call_soon(self._go_on)
