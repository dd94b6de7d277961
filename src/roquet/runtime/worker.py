"""Background threads with a clean start and stop.

Owns the loop every service thread of the store shares: wait until woken or until the interval
passed, then run one round. Threads exist only where the kernel may block (sync, allocation,
cold reads); what they find out goes back to the owner by value. A round that raises is logged and
the thread goes on: nobody would notice the silence of one that ended.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Worker:
    """One thread that runs ``round_`` every interval and whenever :meth:`wake` is called."""

    def __init__(
        self, name: str, round_: Callable[[], None], *, interval_ms: Callable[[], int]
    ) -> None:
        """Name the thread and say what a round does; ``interval_ms`` is asked before each wait."""
        self._round = round_
        self._interval_ms = interval_ms
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Ask for a round now."""
        self._wake.set()

    def stop(self) -> None:
        """End after the round under way and wait for it; safe to call twice or before start."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval_ms() / 1000)
            self._wake.clear()
            if self._stopping:
                return
            try:
                self._round()
            except Exception:
                log.exception("%s: a round failed", self._thread.name)
