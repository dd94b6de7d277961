"""Checks of a store before its log is read.

Checks the small files: checkpoint, config, names and lengths of all others. This runs on the
driver.
"""

from __future__ import annotations

from pathlib import Path

from roquet.format.checkpoint import checkpoint_faults
from roquet.spark.jobs.audit_findings import Findings
from roquet.storefiles import faults as kinds
from roquet.storefiles.layout import ABORT, CHECKPOINT, INDEX
from roquet.storefiles.small_files import config_faults, is_unfinished_index
from roquet.storefiles.view import StoreView


def check_state(view: StoreView, findings: Findings, *, now_ms: int) -> None:
    """Check names and lengths of files, checkpoint and config."""
    problems = [*view.problems]
    for queue in view.all_queues:
        problems += queue.segments.problems
    for problem in problems:
        findings.tell(kinds.BAD_FILE, problem.message, problem.detail or problem.message)
    data = view.content(view.root / CHECKPOINT)
    for name, detail in () if data is None else checkpoint_faults(data, now_ms):
        findings.tell(kinds.CHECKPOINT, name, detail)
    if view.files.is_dir(view.root / ABORT):
        findings.tell(kinds.BAD_FILE, ABORT, "is a directory")
    for fault in config_faults(view):
        if not fault.may_be_replaced:
            findings.tell(kinds.CONFIG, fault.path.name, fault.detail)


def judge_strangers(view: StoreView, strangers: list[Path], findings: Findings) -> bool:
    """Check other files among index files; return whether any should not be there."""
    bad = [path for path in strangers if not is_unfinished_index(view, path)]
    for path in bad:
        findings.tell(kinds.BAD_FILE, f"{INDEX}/{path.name}", "not an index file by name or length")
    return bool(bad)
