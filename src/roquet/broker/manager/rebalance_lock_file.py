"""The owners of queue locks, kept in ``rebalanceLock.json`` across restarts of the broker.

Clients that consume in order request a lock every 20 seconds and regard it as theirs for 30.
Upstream keeps locks in memory only: after a restart it gives a queue to the first client that
requests it, while the former owner may continue for up to half a minute. Here the locks of the last
run hold that long, unless their owners extend or release them. Other clients must wait, as they
would without a restart.

Invariants:

* The file is only a help and never prevents a start: if it is missing or damaged, all queues are
  free, as in upstream.
* It is written with the other tables, so a kill may lose the changes of the last seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from roquet.broker.config import BrokerConfig
from roquet.broker.manager.config_manager import config_path
from roquet.broker.manager.rebalance_lock import Owners, RebalanceLockManager
from roquet.errors import ConfigError, RoquetError
from roquet.model.message_queue import MessageQueue
from roquet.runtime.config_file import ConfigFile
from roquet.runtime.files import Files

__all__ = ["RebalanceLockFile"]

log = logging.getLogger(__name__)

LOCKS_MAX = 20_000
"""Further locks are not kept."""

_FILE_NAME = "rebalanceLock.json"


class _File(Struct, rename="camel"):
    """Topic, broker and id of each client's queues, by group and client."""

    lock_table: dict[str, dict[str, list[tuple[str, str, int]]]]


def _decode(text: str) -> _File:
    return msgspec.json.decode(text, type=_File)


class RebalanceLockFile:
    """Keeps the locks.

    Args:
        locks: The locks.
        file: Their file; see :meth:`at`.
    """

    def __init__(self, locks: RebalanceLockManager, file: ConfigFile[_File]) -> None:
        self._locks = locks
        self._file = file
        self._written_edits = locks.edits

    @classmethod
    def at(
        cls, config: BrokerConfig, files: Files, *, locks: RebalanceLockManager
    ) -> RebalanceLockFile:
        """Return the file in the store of ``config``."""
        path = config_path(config.store_root, _FILE_NAME)
        return cls(locks, ConfigFile(path, files, decode=_decode))

    def load(self) -> ConfigError | None:
        """Restore the locks of the last run; a fault of the file is logged."""
        try:
            loaded = self._file.load()
        except RoquetError as error:
            log.warning("Locks of queues consumed in order are lost: %s", error)
            return None
        if loaded is not None:
            self._locks.restore(
                {
                    group: {
                        client_id: [MessageQueue(*each) for each in held]
                        for client_id, held in clients.items()
                    }
                    for group, clients in loaded.value.lock_table.items()
                }
            )
        return None

    def begin_persist(self) -> Callable[[], None] | None:
        """Return a function that writes the current locks; ``None`` if no owner changed."""
        edits = self._locks.edits
        if edits == self._written_edits:
            return None
        return partial(self._write, edits, self._locks.owners(LOCKS_MAX))

    def _write(self, edits: int, owners: Owners) -> None:
        table = {
            group: {
                client_id: [(each.topic, each.broker_name, each.queue_id) for each in queues]
                for client_id, queues in clients.items()
            }
            for group, clients in owners.items()
        }
        self._file.save(msgspec.json.encode(_File(table)).decode())
        self._written_edits = edits
