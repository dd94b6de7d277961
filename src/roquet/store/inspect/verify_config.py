"""The small files beside the log: checkpoint and config.

Owns the check that they can be read. Their values are not protected by anything, so only what
cannot be right at all is a fault.
"""

from __future__ import annotations

from pathlib import Path

from roquet.format.checkpoint import FILE_BYTES
from roquet.model.fastjson import JsonSyntaxError, loads
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.store.inspect.layout import CHECKPOINT, CONFIG
from roquet.store.inspect.report import Reporter
from roquet.store.inspect.view import StoreView

JSON_SUFFIX = ".json"
BACKUP_SUFFIX = ".bak"
JSON_WITHOUT_SUFFIX = frozenset({"transactionMetrics", "timermetrics"})
TOPICS = "topics.json"
TOPIC_TABLE = "topicConfigTable"


def json_files(files: Files, root: Path) -> list[Path]:
    """Config files of a store that hold JSON, backups aside."""
    directory = root / CONFIG
    names = set(files.list_dir(directory))
    names |= {name.removesuffix(BACKUP_SUFFIX) for name in names}
    return [
        directory / name
        for name in sorted(names)
        if name.endswith(JSON_SUFFIX) or name in JSON_WITHOUT_SUFFIX
    ]


def json_fault(files: Files, path: Path) -> str | None:
    """Why a config file cannot be read, or ``None``."""
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return "is missing, its backup is there"
    if not data.strip():
        return "is empty"
    try:
        loads(data)
    except JsonSyntaxError as error:
        return error.detail or error.message
    return None


def known_topics(view: StoreView) -> set[str] | None:
    """Topics the broker has, by ``topics.json`` or its backup; ``None`` if neither tells."""
    path = view.root / CONFIG / TOPICS
    for candidate in (path, path.with_name(path.name + BACKUP_SUFFIX)):
        if not view.files.exists(candidate) or json_fault(view.files, candidate):
            continue
        value = loads(view.files.read_file(candidate))
        table = value.get(TOPIC_TABLE) if isinstance(value, dict) else None
        if isinstance(table, dict):
            return {str(name) for name in table}
    return None


def check_config(view: StoreView, reporter: Reporter) -> None:
    """Read every config file; a bad one is a fault even where a broker would use its backup."""
    for path in json_files(view.files, view.root):
        reporter.report.counts.config_files += 1
        fault = json_fault(view.files, path)
        if fault is None:
            continue
        backup = path.with_name(path.name + BACKUP_SUFFIX)
        has_backup = view.files.exists(backup) and json_fault(view.files, backup) is None
        if has_backup and view.is_running:
            reporter.note("config", f"{view.name_of(path)} {fault}; it may be being replaced")
            continue
        rest = "the backup can be read" if has_backup else "there is no backup that can be read"
        reporter.fault(path, "json", f"{fault}; {rest}")


def check_checkpoint(view: StoreView, reporter: Reporter, clock: Clock) -> None:
    """Read the checkpoint; its marks must be times that have been."""
    path = view.root / CHECKPOINT
    if not view.files.exists(path):
        reporter.note(
            "checkpoint", "there is none: a broker will read the whole log when it starts"
        )
        return
    size = view.files.size_bytes(path)
    if size < FILE_BYTES:
        reporter.fault(path, "file", f"{size} bytes, expected {FILE_BYTES}")
        return
    marks = view.checkpoint()
    assert marks is not None
    now_ms = clock.now_ms()
    for name, time_ms in (
        ("physicMsgTimestamp", marks.physic_msg_timestamp_ms),
        ("logicsMsgTimestamp", marks.logics_msg_timestamp_ms),
        ("indexMsgTimestamp", marks.index_msg_timestamp_ms),
    ):
        if not 0 <= time_ms <= now_ms:
            reporter.fault(path, name, f"{time_ms} is no time before now, {now_ms}")
    for name, offset in (
        ("masterFlushedOffset", marks.master_flushed_offset),
        ("confirmPhyOffset", marks.confirm_physical_offset),
    ):
        if offset < 0:
            reporter.fault(path, name, f"{offset} is negative")
