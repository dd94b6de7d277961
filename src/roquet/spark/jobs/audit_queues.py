"""Checks queue entries that no record of the log was compared with.

Owns the work of one task; :mod:`roquet.storefiles.queue_checks` decides what is wrong with an
entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from roquet.format.derived import QueueKey
from roquet.spark.jobs.audit_findings import Findings
from roquet.spark.jobs.audit_scan import AuditRules
from roquet.storefiles.damage import DamagedRange, DamagedRanges
from roquet.storefiles.queue_leftovers import UncheckedEntries, check_left_over


@dataclass(frozen=True)
class QueueTask:
    """A queue, and which of its entries are already checked, as ordered runs of numbers."""

    key: QueueKey
    settled: tuple[tuple[int, int], ...]


@dataclass
class QueueTaskResult:
    """The result of a task: unchecked entries by queue, and findings."""

    left: dict[QueueKey, UncheckedEntries] = field(default_factory=dict)
    findings: Findings = field(default_factory=Findings)


@dataclass(frozen=True)
class QueueWorker:
    """Sent to executors: checks the remaining entries of some queues."""

    rules: AuditRules
    log_end: int
    damages: tuple[DamagedRange, ...]

    def __call__(self, tasks: Sequence[QueueTask]) -> QueueTaskResult:
        """Check some queues."""
        seen, damages = QueueTaskResult(), DamagedRanges(self.damages)
        bounds = (self.rules.start, self.log_end)
        with self.rules.open_store() as view:
            for task in tasks:
                queue = view.queue_of(task.key)
                if queue is not None:
                    seen.left[task.key] = check_left_over(
                        view,
                        self.rules.queues,
                        seen.findings,
                        queue,
                        task.settled,
                        bounds,
                        damages,
                    )
        return seen
