"""Checks the small files beside the log: checkpoint and config.

Reports them; :mod:`roquet.storefiles.small_files` decides what is wrong.
"""

from __future__ import annotations

from roquet.format.checkpoint import checkpoint_faults
from roquet.runtime.clock import Clock
from roquet.store.inspect.report import Reporter
from roquet.storefiles.layout import CHECKPOINT
from roquet.storefiles.small_files import config_faults, json_files
from roquet.storefiles.view import StoreView


def check_config(view: StoreView, reporter: Reporter) -> None:
    """Check every config file; a bad one is a fault even if a broker would use its backup."""
    reporter.report.counts.config_files = len(json_files(view))
    for fault in config_faults(view):
        if fault.may_be_replaced:
            detail = f"{view.name_of(fault.path)} {fault.reason}; it may be being replaced"
            reporter.note("config", detail)
        else:
            reporter.fault(fault.path, "json", fault.detail)


def check_checkpoint(view: StoreView, reporter: Reporter, clock: Clock) -> None:
    """Check the checkpoint; its marks must be times in the past."""
    path = view.root / CHECKPOINT
    if not view.files.exists(path):
        reporter.note(
            "checkpoint", "there is none: a broker will read the whole log at its next start"
        )
        return
    for name, detail in checkpoint_faults(view.files.read_file(path), clock.now_ms()):
        reporter.fault(path, name, detail)
