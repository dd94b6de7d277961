"""The small files beside the log: checkpoint and config.

Owns the check that they can be read. Their values are not protected by anything, so only what
cannot be right at all is a fault.
"""

from __future__ import annotations

from pathlib import Path

from roquet.format import config_files
from roquet.format.checkpoint import checkpoint_faults
from roquet.format.config_files import BACKUP_SUFFIX, TOPICS
from roquet.runtime.clock import Clock
from roquet.runtime.files import Files
from roquet.store.inspect.layout import CHECKPOINT, CONFIG
from roquet.store.inspect.report import Reporter
from roquet.store.inspect.view import StoreView


def json_files(files: Files, root: Path) -> list[Path]:
    """Config files of a store that hold JSON, backups aside."""
    directory = root / CONFIG
    return [directory / name for name in config_files.json_names(files.list_dir(directory))]


def json_fault(files: Files, path: Path) -> str | None:
    """Why a config file cannot be read, or ``None``."""
    return config_files.json_fault(_content(files, path))


def _content(files: Files, path: Path) -> bytes | None:
    try:
        return files.read_file(path)
    except FileNotFoundError:
        return None


def known_topics(view: StoreView) -> set[str] | None:
    """Topics the broker has, by ``topics.json`` or its backup; ``None`` if neither tells."""
    path = view.root / CONFIG / TOPICS
    for candidate in (path, path.with_name(path.name + BACKUP_SUFFIX)):
        names = config_files.topic_names(_content(view.files, candidate))
        if names is not None:
            return names
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
    for name, detail in checkpoint_faults(view.files.read_file(path), clock.now_ms()):
        reporter.fault(path, name, detail)
