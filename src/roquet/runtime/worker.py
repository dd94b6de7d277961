"""Background threads with a clean start and stop.

Owns the loop of every service thread of the store: wait until woken or until the interval has
passed, then run one round. Threads exist only where the kernel may block (sync, allocation, cold
reads); their results go back to the owner by value. If a round raises, the error is logged and the
thread continues: a thread that silently ended would go unnoticed.
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
        """Name the thread and its round; ``interval_ms`` is called before each wait."""
        self._round = round_
        self._interval_ms = interval_ms
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Ask for a round now."""
        self._wake.set()

    def stop(self) -> None:
        """Wait for the current round, then end; safe to call twice or before start."""
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
