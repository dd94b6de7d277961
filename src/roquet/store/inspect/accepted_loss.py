"""Records an accepted loss: lowers marks and manifest to what exists."""

from __future__ import annotations

from msgspec.structs import replace

from roquet.format.checkpoint import FILE_BYTES, Checkpoint
from roquet.store.manifest import write_manifest
from roquet.storefiles.layout import CHECKPOINT
from roquet.storefiles.manifest import Manifest
from roquet.storefiles.manifest_checks import LogSpan
from roquet.storefiles.view import StoreView


def accept_loss(view: StoreView, span: LogSpan, contents: Manifest) -> None:
    """Lower marks and manifest to what the store holds; raises ``OSError``."""
    files, root = view.files, view.root
    marks = view.checkpoint() or Checkpoint()
    marks = Checkpoint(
        min(marks.physic_msg_timestamp_ms, span.newest_ms),
        min(marks.logics_msg_timestamp_ms, span.newest_ms),
        min(marks.index_msg_timestamp_ms, span.newest_ms),
        marks.master_flushed_offset,
        min(marks.confirm_physical_offset, span.end),
    )
    files.write_file(root / CHECKPOINT, marks.pack().ljust(FILE_BYTES, b"\0"))
    write_manifest(files, root, replace(contents, log_start=view.min_offset, log_end=span.end))
