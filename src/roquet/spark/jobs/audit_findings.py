"""The findings of an audit.

Owns a bounded list of findings: of a log that is damaged all over, it keeps some faults and the
number of all. Kinds and faults are those of
:mod:`roquet.storefiles.faults`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from roquet.format.derived import QueueKey
from roquet.spark.report import Finding
from roquet.storefiles.faults import ENTRY_MISSING, INDEX_KINDS, KINDS, StoreFault

LISTED_MAX = 200
"""How many findings of one kind a task lists; further ones are only counted."""


def queue_name(key: QueueKey) -> str:
    """Return the name of a queue in findings."""
    return f"{key.topic} queue {key.queue_id}"


class Findings:
    """Findings of one task.

    Attributes:
        listed: Those listed.
        counts: How many there were, by kind.
    """

    def __init__(self) -> None:
        self.listed: list[Finding] = []
        self.counts: Counter[str] = Counter()

    def tell(self, kind: str, where: str, detail: str) -> None:
        """Add a finding."""
        assert kind in KINDS, f"{kind} is no kind of finding"
        self.counts[kind] += 1
        if self.counts[kind] <= LISTED_MAX:
            self.listed.append(Finding(kind, where, detail))

    def add(self, fault: StoreFault) -> None:
        """Add a fault of a record, or of a queue or index file."""
        name = "" if fault.key is None else queue_name(fault.key)
        detail, entry = f"{fault.field}: {fault.detail}", fault.entry
        if fault.path is None:
            where = f"physical offset {fault.physical_offset}"
            where += f", {name} offset {fault.queue_offset}" if name else ""
        elif fault.kind in INDEX_KINDS:
            where = f"index file {fault.path.name}"
        elif not name:
            where = fault.path.name
        else:
            where = f"ConsumeQueue of {name}"
        if fault.kind == ENTRY_MISSING:
            detail = f"{fault.detail}; the first record is at {fault.physical_offset}"
        self.tell(fault.kind, where if entry is None else f"{where}, entry {entry}", detail)

    def add_if(self, fault: StoreFault | None) -> None:
        """Add a fault if there is one."""
        if fault is not None:
            self.add(fault)

    def add_all(self, faults: Iterable[StoreFault]) -> None:
        """Add faults."""
        for fault in faults:
            self.add(fault)

    def note(self, kind: str, detail: str, *, physical_offset: int | None = None) -> None:
        """Ignore a note, which is not a fault."""

    def merge(self, others: Iterable[Findings]) -> None:
        """Add all findings that other tasks list."""
        for other in others:
            self.listed += other.listed
            self.counts.update(other.counts)
