"""What an audit sees of a store before its log is read.

Owns the state in which the store was left, and the small files: checkpoint, config, names and
lengths of all others. They are looked at on the driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from roquet.errors import ConfigError, StoreDamaged
from roquet.filter.consumer_filters import ConsumerFilterData, ConsumerFilters
from roquet.format.checkpoint import checkpoint_faults
from roquet.format.config_files import (
    BACKUP_SUFFIX,
    CONSUMER_FILTERS,
    TOPICS,
    decode_table,
    json_fault,
    json_names,
    topic_names,
)
from roquet.format.file_parts import Parts, arrange_parts
from roquet.format.index_file import HEADER_BYTES
from roquet.runtime.files import Files
from roquet.runtime.held_stores import store_holder
from roquet.spark.jobs import audit_findings as kinds
from roquet.spark.jobs.audit_findings import Findings
from roquet.spark.log.store_files import COMMIT_LOG, CONSUME_QUEUE

INDEX = "index"
ROCKSDB_QUEUES = "consumequeue_r"
_BATCH_QUEUES = "batchconsumequeue"
_ABORT = "abort"
_CHECKPOINT = "checkpoint"
_CONFIG = "config"


class StoreState:
    """A store directory, seen from outside.

    Attributes:
        root: The directory.
        is_running: Whether a broker has it open.
        has_crashed: Whether its last broker did not close it.
        has_queues: Whether the directory of the ConsumeQueues is there.
    """

    def __init__(self, files: Files, root: Path) -> None:
        """Look who has the store, and how it was left."""
        self._files = files
        self.root = root
        self.is_running = store_holder(files, root) is not None
        self.has_crashed = not self.is_running and files.exists(root / _ABORT)
        self.has_queues = files.is_dir(root / CONSUME_QUEUE)

    def known_topics(self) -> frozenset[str] | None:
        """Topics the broker has, by ``topics.json`` or its backup; ``None`` if neither tells."""
        for name in (TOPICS, TOPICS + BACKUP_SUFFIX):
            names = topic_names(self._content(self.root / _CONFIG / name))
            if names is not None:
                return frozenset(names)
        return None

    def consumer_filters(self) -> list[ConsumerFilterData]:
        """SQL92 filters the broker has, by ``consumerFilter.json`` or its backup, if one tells."""
        for name in (CONSUMER_FILTERS, CONSUMER_FILTERS + BACKUP_SUFFIX):
            data = self._content(self.root / _CONFIG / name)
            with suppress(ConfigError, UnicodeDecodeError):
                if data is not None:
                    table = decode_table(ConsumerFilters, data.decode()).filter_data_by_topic
                    return [
                        msgspec.structs.replace(each, topic=topic)
                        for topic, filters in table.items()
                        for each in filters.group_filter_data.values()
                    ]
        return []

    def batch_topics(self) -> frozenset[str]:
        """Topics whose queues are of the batch kind, which is kept elsewhere."""
        return frozenset(self._files.list_dir(self.root / _BATCH_QUEUES))

    def unchecked(self) -> list[str]:
        """Directories of queues of other kinds, which are not compared with the log."""
        names = [_BATCH_QUEUES] if self.batch_topics() else []
        if not self.has_queues and self._files.is_dir(self.root / ROCKSDB_QUEUES):
            names.append(ROCKSDB_QUEUES)
        return names

    def check(self, findings: Findings, *, now_ms: int) -> None:
        """Look at names and lengths of files, checkpoint and config."""
        for problem in self._file_problems():
            detail = problem.detail or problem.message
            findings.add(kinds.BAD_FILE, problem.message, detail)
        path = self.root / _CHECKPOINT
        data = self._content(path)
        for name, detail in () if data is None else checkpoint_faults(data, now_ms):
            findings.add(kinds.CHECKPOINT, name, detail)
        if self._files.is_dir(self.root / _ABORT):
            findings.add(kinds.BAD_FILE, _ABORT, "is a directory")
        self._check_config(findings)

    def judge_strangers(self, strangers: list[Path], findings: Findings) -> bool:
        """Judge files among index files that are none; gives whether any should not be there.

        An index file without a header was being made when a broker ended.
        """
        is_bad = False
        for path in strangers:
            is_unfinished = path.name.isdecimal() and not any(
                (self._content(path) or b"")[:HEADER_BYTES]
            )
            if not (is_unfinished and (self.has_crashed or self.is_running)):
                detail = "is no index file by name or length"
                findings.add(kinds.BAD_FILE, f"{INDEX}/{path.name}", detail)
                is_bad = True
        return is_bad

    def _file_problems(self) -> Iterator[StoreDamaged]:
        yield from self._parts((self.root / COMMIT_LOG).resolve()).problems
        base = self.root / CONSUME_QUEUE
        for topic in self._files.list_dir(base):
            for queue in self._files.list_dir(base / topic):
                if queue.isdecimal() and self._files.is_dir(base / topic / queue):
                    yield from self._parts(base / topic / queue).problems

    def _parts(self, directory: Path) -> Parts:
        listed: list[tuple[str, int]] = []
        for name in self._files.list_dir(directory):
            if not self._files.is_dir(directory / name):
                with suppress(FileNotFoundError):  # a broker removed it after the listing
                    listed.append((name, self._files.size_bytes(directory / name)))
        return arrange_parts(directory, listed)

    def _check_config(self, findings: Findings) -> None:
        directory = self.root / _CONFIG
        for name in json_names(self._files.list_dir(directory)):
            fault = json_fault(self._content(directory / name))
            if fault is None:
                continue
            backup = self._content(directory / (name + BACKUP_SUFFIX))
            has_backup = backup is not None and json_fault(backup) is None
            if has_backup and self.is_running:
                continue  # it may be being replaced
            rest = "the backup can be read" if has_backup else "there is no backup that can be read"
            findings.add(kinds.CONFIG, name, f"{fault}; {rest}")

    def _content(self, path: Path) -> bytes | None:
        try:
            return self._files.read_file(path)
        except (FileNotFoundError, IsADirectoryError):
            return None
