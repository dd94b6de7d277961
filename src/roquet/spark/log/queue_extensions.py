"""The units of ConsumeQueueExts, to which entries of queues lead instead of holding tags codes.

Owns finding their files in a store and reading one unit; the bytes are those of
:mod:`roquet.format.consume_queue_ext`.
"""

from __future__ import annotations

from pathlib import Path

from roquet.format import consume_queue_ext as ext
from roquet.format.derived import QueueKey
from roquet.runtime.files import Files
from roquet.spark.log.queue_files import QueueFiles, read_queues

CONSUME_QUEUE_EXT = "consumequeue_ext"


def extensions_of(files: Files, root: Path) -> dict[QueueKey, QueueFiles]:
    """The ConsumeQueueExt of each queue of a store that has one."""
    return {
        QueueKey(each.topic, each.queue_id): each
        for each in read_queues(files, root / CONSUME_QUEUE_EXT)
    }


def read_extension(files: Files, queue: QueueFiles | None, address: int) -> ext.CqExtUnit | None:
    """The unit at an address of a ConsumeQueueExt, ``None`` if no whole one is there."""
    offset = ext.real_offset_of(address)
    for path, size in queue.parts if queue is not None else ():
        start = int(path.name)
        if start <= offset < start + size:
            fd = files.open(path)
            try:
                data = files.read_at(
                    fd, min(ext.UNIT_BYTES_MAX, start + size - offset), offset - start
                )
            finally:
                files.close(fd)
            return ext.unpack_unit(data)
    return None
