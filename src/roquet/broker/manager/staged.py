"""Tables whose changes are written together, in a thread, before they take effect.

Owns group commit for the tables of topics, groups and offsets. A change is staged first; the next
write of the file includes all changes staged by then. Once it is on disk they are applied in memory
and their waiters are called. Changes that come while a write is under way share the next one.

.. code-block:: text

    stage A ─► write 1 (A) ──────────────► A applied ─► waiters of A
        stage B, stage C ─► (wait) ─► write 2 (A B C) ─► B, C applied ─► waiters of B, C

Invariants:

* A staged change is visible only to other changes, which build on it. It is applied in memory only
  once it is in the file.
* If a write fails, everything that is staged is dropped and its waiters get the error: later
  changes were built on those that failed.
* One write is under way at a time, and it does not block the event loop. Without a running loop
  there is nothing to block, and writes happen at once.
* At most :data:`WAITERS_A_TURN` waiters are called per iteration of the loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from roquet.broker.manager.config_manager import SettingsManager, TableSnapshot
from roquet.errors import StoreError
from roquet.model.data_version import DataVersion
from roquet.runtime.clock import Clock
from roquet.runtime.config_file import ConfigFile

__all__ = ["Done", "StagedManager", "StagedTable"]

log = logging.getLogger(__name__)

WAITERS_A_TURN = 64

T = TypeVar("T")
V = TypeVar("V")

Done = Callable[[Exception | None], None]
"""Called when a change is in the file, or with the error that prevented it."""


class StagedTable(Generic[V]):
    """A table with changes that are not in its file yet.

    Args:
        live: The table that all others see; changed by :meth:`apply`.
        changed: Called with the key of every entry that :meth:`apply` changes.

    Example:
        >>> live = {"a": 1, "b": 2}
        >>> staged = StagedTable(live)
        >>> staged.stage(1, "a", None)
        >>> staged.stage(2, "c", 3)
        >>> staged.get("a"), staged.get("c"), live
        (None, 3, {'a': 1, 'b': 2})
        >>> staged.snapshot()
        {'b': 2, 'c': 3}
        >>> staged.apply(1)
        >>> live
        {'b': 2}
    """

    def __init__(
        self, live: dict[str, V], changed: Callable[[str], object] = lambda _key: None
    ) -> None:
        self._live = live
        self._changed = changed
        self._edits: deque[tuple[int, str, V | None]] = deque()
        self._newest: dict[str, tuple[int, V | None]] = {}

    def __len__(self) -> int:
        """The maximum number of entries once all changes are applied."""
        return len(self._live) + len(self._newest)

    def get(self, key: str) -> V | None:
        """Return an entry as it will be once all changes are applied."""
        newest = self._newest.get(key)
        return self._live.get(key) if newest is None else newest[1]

    def stage(self, change: int, key: str, value: V | None) -> None:
        """Stage the setting or removal of an entry; change numbers increase."""
        self._edits.append((change, key, value))
        self._newest[key] = (change, value)

    def snapshot(self) -> dict[str, V]:
        """Return the table as it will be once all changes are applied."""
        snapshot = dict(self._live)
        for _, key, value in self._edits:
            _set(snapshot, key, value)
        return snapshot

    def apply(self, last_change: int) -> None:
        """Apply the changes up to a number."""
        edits = self._edits
        while edits and edits[0][0] <= last_change:
            change, key, value = edits.popleft()
            _set(self._live, key, value)
            self._changed(key)
            if self._newest[key][0] == change:
                del self._newest[key]

    def drop(self) -> None:
        """Discard all changes."""
        self._edits.clear()
        self._newest.clear()


def _set(table: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value


def _end(ended: asyncio.Future[None], error: Exception | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)


def _go_on(
    then: Callable[[], object], ended: asyncio.Future[None], error: Exception | None
) -> None:
    if error is None:
        try:
            then()
        except Exception as failure:  # noqa: BLE001 - passed to the waiter
            error = failure
    _end(ended, error)


class _Staged(Protocol):
    def apply(self, last_change: int) -> None: ...

    def drop(self) -> None: ...


class _Waiter(NamedTuple):
    """Waits for a staged change, and for an edit of the table in memory."""

    change: int
    edits: int
    done: Done


class StagedManager(SettingsManager[T]):
    """A table that is written by group commit."""

    def __init__(self, file: ConfigFile[T], clock: Clock) -> None:
        super().__init__(file, clock)
        self._staged_tables: list[_Staged] = []
        self._settled = 0
        self._waiters: deque[_Waiter] = deque()
        self._told: deque[tuple[Done, Exception | None]] = deque()
        self._is_telling = False
        self._is_writing = False

    # Changing

    def _stages(
        self, live: dict[str, V], changed: Callable[[str], object] = lambda _key: None
    ) -> StagedTable[V]:
        staged = StagedTable(live, changed)
        self._staged_tables.append(staged)
        return staged

    def _new_change(self) -> int:
        """Return the number of a new change, which the caller stages at once."""
        self._staged += 1
        self._staged_ms = self._clock.now_ms()
        return self._staged

    def _pictured_version(self) -> DataVersion:
        """The version once all changes are applied."""
        version = self.data_version
        changes = self._staged - self._settled
        return msgspec.structs.replace(
            version,
            counter=version.counter + changes,
            timestamp_ms=self._staged_ms if changes else version.timestamp_ms,
        )

    def _keep_if_possible(self, what: str) -> None:
        """Write a change that was just made to the table, at the latest with a later save."""
        self._bump()
        self.tell_changed()
        self._wait(_Waiter(0, self._edits, partial(self._kept, what)))

    def _when_written(self, edits: int, callback: Callable[[], None]) -> None:
        """Call a function once an edit is in the file, or its write has failed."""
        self._wait(_Waiter(0, edits, lambda _error: callback()))

    def _kept(self, what: str, error: Exception | None) -> None:
        more = None if error is None else self._log_limiter.allow("not kept")
        if more is not None:
            log.warning("%s is not yet in %s: %s%s", what, self._file.path.name, error, more)

    # Waiting

    def commit_staged(self) -> None:
        """Write the table and apply the staged changes; this blocks.

        Raises:
            StoreError: The write failed; nothing was applied.
        """
        snapshot = self._new_snapshot()
        try:
            self._write(snapshot)
        except Exception as error:
            self._settle(snapshot, error)
            raise
        self._settle(snapshot, None)

    def when_committed(self, done: Done) -> None:
        """Call a function once all changes staged so far are applied or dropped."""
        if self._staged == self._settled:
            done(None)
        else:
            self._wait(_Waiter(self._staged, 0, done))

    async def committed(self, then: Callable[[], object] = lambda: None) -> None:
        """Wait until all changes staged so far are applied.

        ``then`` is called in the same turn, before the waiters of later changes.

        Raises:
            StoreError: The write failed; nothing was applied.
        """
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when_committed(partial(_go_on, then, ended))
        await ended

    async def written(self) -> None:
        """Wait until the current table is in the file.

        Raises:
            StoreError: The write failed.
        """
        if not self._is_dirty():
            return
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wait(_Waiter(self._staged, self._edits, partial(_end, ended)))
        await ended

    def _wait(self, waiter: _Waiter) -> None:
        self._waiters.append(waiter)
        self._write_soon()

    # Writing

    def _is_dirty(self) -> bool:
        return super()._is_dirty() or self._staged > self._settled

    def _write_soon(self) -> None:
        if self._is_writing:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            with suppress(StoreError):  # waiters get it
                self.commit_staged()
            return
        self._is_writing = True
        # In the next iteration, so that all changes of this one are written together.
        loop.call_soon(self._start_writing, loop)

    def _start_writing(self, loop: asyncio.AbstractEventLoop) -> None:
        snapshot = self._new_snapshot()
        writing = loop.run_in_executor(None, self._write, snapshot)
        writing.add_done_callback(partial(self._wrote, snapshot))

    def _wrote(self, snapshot: TableSnapshot[T], writing: asyncio.Future[None]) -> None:
        self._is_writing = False
        if writing.cancelled():
            return
        error = writing.exception()
        assert error is None or isinstance(error, Exception), "threads raise exceptions only"
        self._settle(snapshot, error)
        if self._waiters:
            self._write_soon()

    def _settle(self, snapshot: TableSnapshot[T], error: Exception | None) -> None:
        """Apply what was written, or drop what is staged; then call the waiters."""
        last_change = snapshot.staged if error is None else self._staged
        if error is not None:
            for table in self._staged_tables:
                table.drop()
            # The file may already hold the dropped changes.
            self._edits += self._staged > self._settled
            self._settled = self._staged
        elif last_change > self._settled:
            for table in self._staged_tables:
                table.apply(last_change)
            version = self.data_version
            version.counter += last_change - self._settled
            version.timestamp_ms = snapshot.staged_ms
            self._settled = last_change
            self.tell_changed()
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if waiter.change <= last_change and waiter.edits <= snapshot.edits:
                self._told.append((waiter.done, error))
            else:
                self._waiters.append(waiter)
        if not self._is_telling:
            self._tell_waiters()

    def _tell_waiters(self) -> None:
        self._is_telling = True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        left = WAITERS_A_TURN
        while self._told and (left or loop is None):
            left -= 1
            done, error = self._told.popleft()
            try:
                done(error)
            except Exception:
                # One failing waiter must not stop the others.
                log.exception("no response to a change of %s", self._file.path.name)
        self._is_telling = False
        if self._told and loop is not None:
            self._is_telling = True
            loop.call_soon(self._tell_waiters)
