"""How long appends take, which reveals a busy page cache.

Owns two times. Only the owner of the store sets them; any thread may read them.
"""

from __future__ import annotations

from roquet.runtime.clock import Clock
from roquet.store.config import MessageStoreConfig


class AppendTiming:
    """Times of the current append and of the last one.

    Attributes:
        began_ns: When the current append began, 0 if there is none.
    """

    __slots__ = ("_config", "_ended_ns", "_monotonic_ns", "_took_ns", "began_ns")

    def __init__(self, clock: Clock, config: MessageStoreConfig) -> None:
        self._monotonic_ns = clock.monotonic_ns
        self._config = config
        self._ended_ns = 0
        self._took_ns = 0
        self.began_ns = 0

    def begin(self) -> int:
        """Note that an append begins; return the time."""
        self.began_ns = self._monotonic_ns()
        return self.began_ns

    def end(self, began_ns: int, size_bytes: int) -> int:
        """Note the end of an append and return how long it took; one of 0 bytes was refused."""
        ended_ns = self._monotonic_ns()
        self.began_ns = 0
        if size_bytes:
            self._ended_ns, self._took_ns = ended_ns, ended_ns - began_ns
        return ended_ns - began_ns

    def lock_time_ms(self) -> int:
        """How long the current append has taken, 0 if there is none."""
        began_ns = self.began_ns
        return (self._monotonic_ns() - began_ns) // 1_000_000 if began_ns else 0

    def is_os_page_cache_busy(self) -> bool:
        """Whether appends take longer than ``osPageCacheBusyTimeOutMills``.

        The loop that asks is also the one that appends, so a slow append still counts after its
        end, for as long as it took.
        """
        limit_ms = self._config.os_page_cache_busy_timeout_ms
        limit_ns = limit_ms * 1_000_000
        began_ns = self.began_ns
        if not began_ns and self._took_ns <= limit_ns:
            return False
        now_ns = self._monotonic_ns()
        if began_ns and (now_ns - began_ns) // 1_000_000 > limit_ms:
            return True
        return self._took_ns > limit_ns and now_ns - self._ended_ns < limit_ns
