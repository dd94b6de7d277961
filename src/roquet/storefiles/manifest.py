"""The file ``roquet-manifest.json``: what a store held when it was last closed.

Owns its content. Files can vanish from a stopped store: a missing mount, a segment or a queue's
directory removed by hand. The rest looks like a smaller store, so the manifest lists what must
exist: the start and end of the log and the CRC of its last bytes, which also distinguish this log
from another store's, the offsets of every queue, and the names of the index files. It does not list
ConsumeQueueExt units: queue entries hold their addresses, so a missing unit is noticed anyway.

A Java broker ignores the file, and may delete topics and old segments without changing it. The
file ``lock`` shows if one did (:data:`roquet.storefiles.layout.OUR_MARK`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from roquet.errors import StoreDamaged
from roquet.format.consume_queue import CqUnit
from roquet.format.derived import QueueKey
from roquet.runtime.files import Files
from roquet.storefiles.layout import MANIFEST_FILE

SCHEMA_VERSION: Final = 1

QueueRanges = dict[str, dict[int, tuple[int, int]]]
"""First and next queue offset by topic and queue id."""


class LogTail(Struct, frozen=True, rename="camel"):
    """The last bytes of a log, which never change once they are written."""

    offset: int
    size_bytes: int
    crc32: int


class Manifest(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the store held.

    Attributes:
        log_start: Physical offset of the oldest segment.
        log_end: Physical offset after the last record.
        tail: The bytes before ``log_end``; ``None`` if the log is empty or they are unknown.
        queues: Every queue that ever had a message; ``None`` if unknown, as after a truncation.
        batch_queues: The same for batch consume queues.
        index_files: Names of the index files.
    """

    schema: Literal[1] = SCHEMA_VERSION
    log_start: int = 0
    log_end: int = 0
    tail: LogTail | None = None
    queues: QueueRanges | None = field(default_factory=dict)
    batch_queues: QueueRanges = field(default_factory=dict)
    index_files: list[str] = field(default_factory=list)


class QueueBounds(NamedTuple):
    """A queue, and the first and next queue offset it had."""

    key: QueueKey
    first: int
    end: int
    is_batch: bool


def vouched_queues(
    manifest: Manifest, known_topics: Collection[str] | None
) -> Iterator[QueueBounds]:
    """The queues of both types that must exist.

    Args:
        manifest: What the store held.
        known_topics: If not ``None``, a Java broker may have deleted all other topics since.
    """
    if manifest.queues is None:
        return
    for is_batch, table in ((False, manifest.queues), (True, manifest.batch_queues)):
        for topic, ranges in table.items():
            if known_topics is None or topic in known_topics:
                for queue_id, (first, end) in ranges.items():
                    yield QueueBounds(QueueKey(topic, queue_id), first, end, is_batch)


def is_made_anew(manifest: Manifest, first: CqUnit | None) -> bool:
    """Whether a queue's first entry belongs to a record that is newer than the manifest.

    Then a Java broker, or the master of this slave, deleted and re-created the topic.
    """
    return (
        first is not None
        and first.is_written
        and not first.is_filler
        and first.physical_offset >= manifest.log_end
    )


def read_manifest(files: Files, root: Path) -> Manifest | None:
    """The manifest of a store; ``None`` if Roquet never closed it.

    Raises:
        StoreDamaged: It cannot be read.
    """
    path = root / MANIFEST_FILE
    if not files.exists(path):
        return None
    try:
        return msgspec.json.decode(files.read_file(path), type=Manifest)
    except ValueError as error:
        raise StoreDamaged(
            f"{path} cannot be used",
            detail=str(error),
            hint="restore it from a backup; without it, 'roquet store rebuild --accept-loss' "
            "creates a new one from what the store holds now",
        ) from error
