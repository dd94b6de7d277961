"""Checks of the files beside the log: checkpoint, config, and file names and sizes.

No checksum protects the values in checkpoint and config, so only impossible ones are reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from roquet.format import config_files
from roquet.format.config_files import BACKUP_SUFFIX
from roquet.format.index_file import HEADER_BYTES
from roquet.storefiles.layout import CONFIG, CONSUME_QUEUE, ROCKSDB_CONSUME_QUEUE
from roquet.storefiles.view import StoreView


class ConfigFault(NamedTuple):
    """A config file that cannot be read.

    Attributes:
        path: The file.
        reason: Why.
        has_backup: Whether its backup can be read, which a broker uses instead.
        may_be_replaced: Whether a running broker may be replacing it at this moment.
    """

    path: Path
    reason: str
    has_backup: bool
    may_be_replaced: bool

    @property
    def detail(self) -> str:
        """Why, and whether the backup helps."""
        if self.has_backup:
            return f"{self.reason}; the backup can be read"
        return f"{self.reason}; there is no readable backup"


def json_files(view: StoreView) -> list[Path]:
    """Config files of a store that hold JSON, backups excluded."""
    directory = view.root / CONFIG
    return [directory / name for name in config_files.json_names(view.files.list_dir(directory))]


def config_faults(view: StoreView) -> Iterator[ConfigFault]:
    """Config files that cannot be read, even if they have a backup."""
    for path in json_files(view):
        reason = config_files.json_fault(view.content(path))
        if reason is not None:
            backup = view.content(path.with_name(path.name + BACKUP_SUFFIX))
            has_backup = backup is not None and config_files.json_fault(backup) is None
            yield ConfigFault(path, reason, has_backup, has_backup and view.is_running)


def is_unfinished_index(view: StoreView, path: Path) -> bool:
    """Whether a file among the index files was being created when a broker ended."""
    is_unfinished = path.name.isdecimal() and not any((view.content(path) or b"")[:HEADER_BYTES])
    return is_unfinished and (view.crashed or view.is_running)


def has_queues_in_rocksdb(view: StoreView) -> bool:
    """Whether the queues are kept in RocksDB, where they cannot be compared with the log."""
    files, root = view.files, view.root
    return not files.is_dir(root / CONSUME_QUEUE) and files.is_dir(root / ROCKSDB_CONSUME_QUEUE)
