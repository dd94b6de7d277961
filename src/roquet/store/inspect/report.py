"""The result of a store check.

Owns the parts of the result: faults, notes and counts, and how they look as JSON. A
fault is a contradiction in the files. A note is worth knowing but not a fault, such as the torn end
that a crash leaves.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from roquet.errors import StoreDamaged
from roquet.format.derived import QueueKey
from roquet.storefiles.faults import StoreFault
from roquet.storefiles.view import StoreView

FAULTS_LISTED_MAX = 10_000
SCHEMA_VERSION = 1


class Fault(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One contradiction.

    Attributes:
        file: The file in which it was found, relative to the store.
        field: The field that is wrong, or that reveals a wrong one.
        detail: Expected and found.
        physical_offset: The record it is about.
        topic: The record's topic, if known.
        queue_id: The record's queue, if known.
        queue_offset: The record's queue offset, if known.
    """

    file: str
    field: str
    detail: str
    physical_offset: int | None = None
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None

    @property
    def where(self) -> str:
        """Which record, in words."""
        parts = [] if self.physical_offset is None else [f"record at {self.physical_offset}"]
        if self.topic is not None:
            parts.append(f"{self.topic}-{self.queue_id} offset {self.queue_offset}")
        return ", ".join(parts)


class Note(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Something worth knowing that is not a fault.

    Attributes:
        kind: One word for programs: tail, lag, stale, restart, deleted, unchecked, vanished.
        detail: What it means here.
        physical_offset: Its offset in the log, if any.
    """

    kind: str
    detail: str
    physical_offset: int | None = None


class Counts(Struct, rename="camel"):
    """How much was checked."""

    segments: int = 0
    records: int = 0
    log_bytes: int = 0
    queues: int = 0
    queue_entries: int = 0
    expired_entries: int = 0
    index_files: int = 0
    index_entries: int = 0
    config_files: int = 0
    faults: int = 0


class Report(Struct, rename="camel"):
    """The result of a check.

    Attributes:
        path: The store.
        faults: Contradictions, at most :data:`FAULTS_LISTED_MAX`; ``counts.faults`` has them all.
        notes: Things worth knowing.
        counts: How much was checked.
        ok: Whether there is no fault.
    """

    path: str
    ok: bool = True
    schema: int = SCHEMA_VERSION
    faults: list[Fault] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)


class Reporter:
    """Collects a :class:`Report`; a fault reported twice counts once."""

    def __init__(self, view: StoreView) -> None:
        self._view = view
        self._seen: set[Fault] = set()
        self.report = Report(path=str(view.root))

    def fault(
        self,
        path: Path,
        name: str,
        detail: str,
        *,
        physical_offset: int | None = None,
        key: QueueKey | None = None,
        queue_offset: int | None = None,
    ) -> None:
        """Record a fault."""
        fault = Fault(
            file=self._view.name_of(path),
            field=name,
            detail=detail,
            physical_offset=physical_offset,
            topic=None if key is None else key.topic,
            queue_id=None if key is None else key.queue_id,
            queue_offset=queue_offset,
        )
        if fault in self._seen:
            return
        report = self.report
        report.ok = False
        report.counts.faults += 1
        if len(report.faults) < FAULTS_LISTED_MAX:
            self._seen.add(fault)
            report.faults.append(fault)

    def add(self, fault: StoreFault) -> None:
        """Record a fault that a check found."""
        self.fault(
            fault.path or self.log_file(fault.physical_offset or 0),
            fault.field,
            fault.detail,
            physical_offset=fault.physical_offset,
            key=fault.key,
            queue_offset=fault.queue_offset,
        )

    def problem(self, path: Path, error: StoreDamaged) -> None:
        """Record a problem with a file's name, size or location."""
        self.fault(path, "file", f"{error.message}: {error.detail}")

    def note(self, kind: str, detail: str, *, physical_offset: int | None = None) -> None:
        """Record a note."""
        self.report.notes.append(Note(kind=kind, detail=detail, physical_offset=physical_offset))

    def log_file(self, physical_offset: int) -> Path:
        """The segment that holds an offset, or the directory of the log."""
        index = self._view.segment_index(physical_offset)
        return self._view.log_directory if index is None else self._view.segments[index].path
