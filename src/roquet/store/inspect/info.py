"""The summary of a store.

Owns what ``roquet store info`` shows. It is fast for any size: it reads the ends of files and never
walks the log.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from roquet.errors import StoreDamaged
from roquet.format.checkpoint import Checkpoint
from roquet.format.commit_log import DispatchRequest
from roquet.format.config_files import BACKUP_SUFFIX, is_json_name, json_fault
from roquet.runtime.clock import Clock
from roquet.storefiles.index_files import IndexFileView
from roquet.storefiles.layout import CONFIG, disk_bytes
from roquet.storefiles.queues import BatchQueueView, QueueView
from roquet.storefiles.view import StoreView

SCHEMA_VERSION = 1


class SegmentInfo(Struct, kw_only=True, rename="camel"):
    """One file of the log; what is unknown is ``None``."""

    name: str
    size_bytes: int
    first_physical_offset: int | None = None
    first_store_timestamp: int | None = None
    last_physical_offset: int | None = None
    last_store_timestamp: int | None = None
    end_physical_offset: int | None = None


class QueueInfo(Struct, kw_only=True, rename="camel"):
    """One queue; offsets are those of entries whose records the log still holds."""

    topic: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int
    min_physical_offset: int | None = None
    max_physical_offset: int | None = None
    file_count: int = 0
    size_bytes: int = 0


class TopicInfo(Struct, kw_only=True, rename="camel"):
    """One topic."""

    topic: str
    queue_count: int
    message_count: int


class IndexFileInfo(Struct, kw_only=True, rename="camel"):
    """One index file; ``slots`` is 0 if unknown."""

    name: str
    size_bytes: int
    entry_count: int
    slots: int
    entry_capacity: int
    begin_timestamp: int
    end_timestamp: int
    begin_physical_offset: int
    end_physical_offset: int


class ConfigFileInfo(Struct, kw_only=True, rename="camel"):
    """One file of the directory ``config``; ``fault`` says why it cannot be read."""

    name: str
    size_bytes: int
    fault: str | None = None


class ProblemInfo(Struct, kw_only=True, rename="camel"):
    """A problem with a file's name, size or location."""

    message: str
    detail: str | None = None
    hint: str | None = None


class CheckpointInfo(Struct, kw_only=True, rename="camel"):
    """The marks of the last flush."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_phy_offset: int


class StoreInfo(Struct, kw_only=True, rename="camel"):
    """Everything that ``info`` shows.

    Attributes:
        state: ``running``, ``clean`` or ``crashed``.
        lock_holder: Id of the process that has the store open; 0 if not visible from here.
        sizes_bytes: Length of each part of the store.
        problems: Files with a wrong name, size or location, or that cannot be read.
        warnings: Anything else worth attention.
    """

    path: str
    state: str
    lock_holder: int | None
    min_physical_offset: int
    max_physical_offset: int
    segment_bytes: int
    segments: list[SegmentInfo]
    topics: list[TopicInfo]
    queues: list[QueueInfo]
    consume_queue_ext_count: int
    index_files: list[IndexFileInfo]
    checkpoint: CheckpointInfo | None
    config_files: list[ConfigFileInfo]
    sizes_bytes: dict[str, int]
    total_bytes: int
    problems: list[ProblemInfo]
    warnings: list[str]
    schema: int = SCHEMA_VERSION


def gather_info(view: StoreView, clock: Clock) -> StoreInfo:
    """Summarize an open store."""
    segments = [_segment_info(view, number) for number in range(len(view.segments))]
    queues = [_queue_info(view, queue) for queue in view.all_queues]
    config_files = _config_infos(view)
    index_files, strangers = view.open_index()
    problems = [_problem_info(problem) for problem in view.problems]
    for queue in view.all_queues:
        problems += [_problem_info(problem) for problem in queue.segments.problems]
    problems += [_stranger_problem(view, path) for path in strangers]
    problems += [_config_problem(view, file) for file in config_files if file.fault]
    sizes = {name: disk_bytes(view.files, view.root / name) for name in _entries(view)}
    marks = view.checkpoint()
    ends = [segment.end_physical_offset or 0 for segment in segments]
    return StoreInfo(
        path=str(view.root),
        state="running" if view.is_running else "crashed" if view.crashed else "clean",
        lock_holder=view.lock_holder,
        min_physical_offset=view.min_offset,
        max_physical_offset=max(ends, default=0),
        segment_bytes=view.segment_bytes,
        segments=segments,
        topics=_topic_infos(queues),
        queues=queues,
        consume_queue_ext_count=len(view.extensions),
        index_files=[_index_info(file) for file in index_files],
        checkpoint=None if marks is None else _checkpoint_info(marks),
        config_files=config_files,
        sizes_bytes=sizes,
        total_bytes=sum(sizes.values()),
        problems=problems,
        warnings=_future_warnings(segments, clock),
    )


def _problem_info(error: StoreDamaged) -> ProblemInfo:
    return ProblemInfo(message=error.message, detail=error.detail, hint=error.hint)


def _stranger_problem(view: StoreView, path: Path) -> ProblemInfo:
    return ProblemInfo(
        message=f"{view.name_of(path)} is not an index file",
        detail="its name is not 17 digits, or its length is not that of an index file",
        hint="move files that do not belong to the store out of its directory",
    )


def _config_problem(view: StoreView, file: ConfigFileInfo) -> ProblemInfo:
    path = view.root / CONFIG / file.name
    backup = path.with_name(path.name + BACKUP_SUFFIX)
    if file.name.endswith(BACKUP_SUFFIX):
        hint = "only the file itself matters; a broker writes a new backup when it saves"
    elif view.files.exists(backup) and json_fault(view.content(backup)) is None:
        hint = f"a broker falls back to {backup.name}; copy that over the file to repair it"
    else:
        hint = "there is no readable backup: restore the file from a copy"
    return ProblemInfo(message=f"{CONFIG}/{file.name} cannot be read", detail=file.fault, hint=hint)


def _entries(view: StoreView) -> list[str]:
    return view.files.list_dir(view.root)


def _segment_info(view: StoreView, number: int) -> SegmentInfo:
    part = view.segments[number]
    info = SegmentInfo(name=part.path.name, size_bytes=part.size_bytes)
    first = view.check_at(part.start)
    last = view.last_record(number)
    if isinstance(first, DispatchRequest):
        info.first_physical_offset = first.physical_offset
        info.first_store_timestamp = first.store_timestamp_ms
    if last is not None:
        info.last_physical_offset = last.physical_offset
        info.last_store_timestamp = last.store_timestamp_ms
        info.end_physical_offset = last.end_offset
    return info


def _queue_info(view: StoreView, queue: QueueView) -> QueueInfo:
    end = queue.written_end()
    start = min(queue.first_behind(view.min_offset), end)
    segments = queue.segments
    offsets = (start, end)
    if isinstance(queue, BatchQueueView):
        offsets = queue.offsets(view.min_offset)
    info = QueueInfo(
        topic=queue.key.topic,
        queue_id=queue.key.queue_id,
        min_queue_offset=offsets[0],
        max_queue_offset=offsets[1],
        file_count=len(segments.files),
        size_bytes=sum(part.size_bytes for part in segments.files),
    )
    if start < end:
        first, last = queue.unit(start), queue.unit(end - 1)
        info.min_physical_offset = first.physical_offset if first else None
        info.max_physical_offset = last.physical_offset if last else None
    queue.forget()
    return info


def _topic_infos(queues: list[QueueInfo]) -> list[TopicInfo]:
    topics: dict[str, TopicInfo] = {}
    for queue in queues:
        topic = topics.setdefault(
            queue.topic, TopicInfo(topic=queue.topic, queue_count=0, message_count=0)
        )
        topic.queue_count += 1
        topic.message_count += queue.max_queue_offset - queue.min_queue_offset
    return list(topics.values())


def _index_info(index_file: IndexFileView) -> IndexFileInfo:
    header = index_file.header
    return IndexFileInfo(
        name=index_file.path.name,
        size_bytes=index_file.size_bytes,
        entry_count=header.index_count - 1,
        slots=index_file.slots,
        entry_capacity=index_file.entry_capacity if index_file.slots else 0,
        begin_timestamp=header.begin_timestamp_ms,
        end_timestamp=header.end_timestamp_ms,
        begin_physical_offset=header.begin_physical_offset,
        end_physical_offset=header.end_physical_offset,
    )


def _config_infos(view: StoreView) -> list[ConfigFileInfo]:
    directory = view.root / CONFIG
    infos: list[ConfigFileInfo] = []
    for name in view.files.list_dir(directory):
        path = directory / name
        if view.files.is_dir(path):
            continue
        fault = None
        if is_json_name(name.removesuffix(BACKUP_SUFFIX)):
            fault = json_fault(view.content(path))
        infos.append(ConfigFileInfo(name=name, size_bytes=view.files.size_bytes(path), fault=fault))
    return infos


def _checkpoint_info(marks: Checkpoint) -> CheckpointInfo:
    return CheckpointInfo(
        physic_msg_timestamp=marks.physic_msg_timestamp_ms,
        logics_msg_timestamp=marks.logics_msg_timestamp_ms,
        index_msg_timestamp=marks.index_msg_timestamp_ms,
        master_flushed_offset=marks.master_flushed_offset,
        confirm_phy_offset=marks.confirm_physical_offset,
    )


def _future_warnings(segments: list[SegmentInfo], clock: Clock) -> list[str]:
    newest = max((segment.last_store_timestamp or 0 for segment in segments), default=0)
    ahead_ms = newest - clock.now_ms()
    if ahead_ms <= 0:
        return []
    return [f"the newest record was stored {ahead_ms} ms after now: check the machine's clock"]
