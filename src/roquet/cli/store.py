"""``roquet store``: inspect, check and repair a message store.

Owns the options and the text; ``roquet.store.inspect`` does the work. Every verb but
``rebuild`` only reads, whether a broker has the store open or not.
"""

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from roquet.cli.output import (
    format_bytes,
    format_number,
    format_time,
    json_option,
    parse_time,
    print_error,
    print_json,
    print_table,
    printable,
)
from roquet.cli.progress import progress_bar
from roquet.errors import ConfigError, DiskFull, RoquetError, StoreError, StoreLocked
from roquet.model.delay_level import DEFAULT_DELAY_LEVELS, DelayLevels
from roquet.runtime.clock import SystemClock
from roquet.runtime.files import Files
from roquet.store.inspect.dump import Dump, Selection, to_dumped
from roquet.store.inspect.info import StoreInfo, gather_info
from roquet.store.inspect.rebuild import RebuildPlan, RebuildResult, plan_rebuild
from roquet.store.inspect.rebuild import rebuild as rebuild_store
from roquet.store.inspect.report import Report
from roquet.store.inspect.verify import verify as verify_store
from roquet.storefiles.view import StoreView

EXIT_FAILURE = 1
EXIT_FAULTS = 2
BODY_SHOWN_MAX = 200

_path_argument = click.argument("path", type=click.Path(path_type=Path))
_delay_levels_option = click.option(
    "--delay-levels",
    default=DEFAULT_DELAY_LEVELS,
    show_default=True,
    help="The broker's messageDelayLevel, by which delayed messages are due.",
)
_index_slots_option = click.option(
    "--index-slots",
    type=click.IntRange(min=1),
    help="The broker's maxHashSlotNum, if the index files do not say.",
)


@click.group()
def store() -> None:
    """Inspect, verify and repair a message store.

    PATH is the store directory of a broker, Roquet's or Apache RocketMQ's: the one with commitlog
    in it. The broker may be running; only rebuild changes anything.
    """


@contextmanager
def _files_of(path: Path, *, action: str = "read") -> Iterator[None]:
    """Convert errors of the file system."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise DiskFull(
                f"{path} cannot be {action}: the disk is full",
                detail=f"{error.filename or path}: {error.strerror}",
                hint="free some space or choose another directory",
            ) from error
        raise StoreError(
            f"{path} cannot be {action}",
            detail=f"{error.filename or path}: {error.strerror}",
            hint="check this user's permissions on the directory",
        ) from error


# -- info -------------------------------------------------------------------------------------


@store.command()
@_path_argument
@json_option
@click.pass_context
def info(context: click.Context, path: Path, *, as_json: bool) -> None:
    """Show what is in a store: segments, topics, queues, index, checkpoint, config."""
    with _files_of(path), StoreView(Files(), path) as view:
        found = gather_info(view, SystemClock())
    if as_json:
        print_json(found)
    else:
        _print_info(found)
    for warning in found.warnings:
        click.echo(f"Warning: {warning}", err=True)
    for problem in found.problems:
        error = StoreError(problem.message, detail=problem.detail, hint=problem.hint)
        if not as_json:
            print_error(error, as_json=False)
    if found.problems:
        context.exit(EXIT_FAILURE)


def _print_info(found: StoreInfo) -> None:
    state = found.state
    if found.lock_holder is not None:
        state += f", open in process {found.lock_holder}" if found.lock_holder else ", locked"
    click.echo(f"Store        {found.path}")
    click.echo(f"State        {state}")
    click.echo(f"Log          {found.min_physical_offset} to {found.max_physical_offset}")
    click.echo(f"Total size   {format_bytes(found.total_bytes)}")
    for name, size in found.sizes_bytes.items():
        click.echo(f"  {name:<20} {format_bytes(size)}")
    click.echo()
    print_table(
        "Segments",
        ("name", "size", "first", "stored", "last", "stored last", "end"),
        [
            (
                segment.name,
                str(segment.size_bytes),
                format_number(segment.first_physical_offset),
                format_time(segment.first_store_timestamp),
                format_number(segment.last_physical_offset),
                format_time(segment.last_store_timestamp),
                format_number(segment.end_physical_offset),
            )
            for segment in found.segments
        ],
        numbers=("size", "first", "last", "end"),
    )
    print_table(
        "Topics",
        ("topic", "queues", "messages"),
        [(topic.topic, str(topic.queue_count), str(topic.message_count)) for topic in found.topics],
        numbers=("queues", "messages"),
    )
    print_table(
        "Queues",
        ("topic", "queue", "min", "max", "first record", "last record", "files"),
        [
            (
                queue.topic,
                str(queue.queue_id),
                str(queue.min_queue_offset),
                str(queue.max_queue_offset),
                format_number(queue.min_physical_offset),
                format_number(queue.max_physical_offset),
                str(queue.file_count),
            )
            for queue in found.queues
        ],
        numbers=("queue", "min", "max", "first record", "last record", "files"),
    )
    _print_derived(found)


def _print_derived(found: StoreInfo) -> None:
    print_table(
        "Index files",
        ("name", "entries", "room", "slots", "begin", "end", "first record", "last record"),
        [
            (
                file.name,
                str(file.entry_count),
                str(file.entry_capacity) if file.slots else "?",
                str(file.slots) if file.slots else "?",
                format_time(file.begin_timestamp),
                format_time(file.end_timestamp),
                str(file.begin_physical_offset),
                str(file.end_physical_offset),
            )
            for file in found.index_files
        ],
        numbers=("entries", "room", "slots", "first record", "last record"),
    )
    if found.consume_queue_ext_count:
        click.echo(f"ConsumeQueueExt of {found.consume_queue_ext_count} queues\n")
    if found.checkpoint is not None:
        marks = found.checkpoint
        print_table(
            "Checkpoint",
            ("mark", "value"),
            [
                ("physicMsgTimestamp", format_time(marks.physic_msg_timestamp)),
                ("logicsMsgTimestamp", format_time(marks.logics_msg_timestamp)),
                ("indexMsgTimestamp", format_time(marks.index_msg_timestamp)),
                ("masterFlushedOffset", str(marks.master_flushed_offset)),
                ("confirmPhyOffset", str(marks.confirm_phy_offset)),
            ],
        )
    print_table(
        "Config files",
        ("name", "size", "state"),
        [
            (file.name, str(file.size_bytes), "cannot be read" if file.fault else "ok")
            for file in found.config_files
        ],
        numbers=("size",),
    )


# -- dump -------------------------------------------------------------------------------------


@store.command()
@_path_argument
@click.option("--topic", "topics", multiple=True, help="Only this topic; may be repeated.")
@click.option("--queue", "queue_id", type=click.IntRange(min=0), help="Only this queue id.")
@click.option("--from-offset", type=click.IntRange(min=0), help="First queue offset.")
@click.option("--to-offset", type=click.IntRange(min=0), help="Last queue offset.")
@click.option("--physical-from", type=click.IntRange(min=0), help="First physical offset.")
@click.option("--physical-to", type=click.IntRange(min=0), help="Last physical offset.")
@click.option("--from", "from_ms", callback=parse_time, help="Earliest store time: ms or ISO 8601.")
@click.option("--to", "to_ms", callback=parse_time, help="Latest store time: ms or ISO 8601.")
@click.option("--key", help="Only records with this key or unique id.")
@click.option("--limit", type=click.IntRange(min=0), help="At most this many records.")
@json_option
@click.pass_context
def dump(
    context: click.Context,
    path: Path,
    *,
    topics: tuple[str, ...],
    queue_id: int | None,
    from_offset: int | None,
    to_offset: int | None,
    physical_from: int | None,
    physical_to: int | None,
    from_ms: int | None,
    to_ms: int | None,
    key: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Print records: as text, or with --json one JSON object a line.

    With a topic, a queue and a queue offset the records are found through the ConsumeQueue, with a
    topic and a key through the index, otherwise the log is read. Damage is reported on standard
    error and makes the exit code 1.
    """
    selection = Selection(
        topics=frozenset(topics),
        queue_id=queue_id,
        from_queue_offset=from_offset,
        to_queue_offset=to_offset,
        from_physical_offset=physical_from,
        to_physical_offset=physical_to,
        from_ms=from_ms,
        to_ms=to_ms,
        key=key,
        limit=limit,
    )
    with _files_of(path), StoreView(Files(), path) as view:
        for problem in view.problems:
            print_error(problem, as_json=as_json)
        work = Dump(
            view, selection, lambda text: click.echo(f"Warning: {printable(text)}", err=True)
        )
        for message in work.messages():
            dumped = to_dumped(message)
            if as_json:
                print_json(dumped)
                continue
            click.echo(
                f"{dumped.physical_offset}  {printable(dumped.topic)}-{dumped.queue_id} "
                f"offset {dumped.queue_offset}  {format_time(dumped.store_timestamp)}  "
                f"{dumped.store_size} bytes"
            )
            for name, value in dumped.properties.items():
                click.echo(f"    {printable(name)}={printable(value)}")
            click.echo(f"    {_shown_body(dumped.body, dumped.body_encoding)}")
        if work.damage_count or view.problems:
            context.exit(EXIT_FAILURE)


def _shown_body(body: str, encoding: str) -> str:
    """The start of a body on one line."""
    text = body if encoding == "base64" else repr(body)
    shown = text if len(text) <= BODY_SHOWN_MAX else f"{text[:BODY_SHOWN_MAX]}…"
    return f"body ({encoding}): {shown}"


# -- verify -----------------------------------------------------------------------------------


@store.command()
@_path_argument
@_delay_levels_option
@_index_slots_option
@json_option
@click.pass_context
def verify(
    context: click.Context,
    path: Path,
    *,
    delay_levels: str,
    index_slots: int | None,
    as_json: bool,
) -> None:
    """Check a store completely. Exit code 0: sound, 2: faults, 1: could not run."""
    try:
        levels = DelayLevels(delay_levels)
        with _files_of(path), StoreView(Files(), path, delay_levels=levels) as view:
            total = view.max_offset - view.min_offset
            with progress_bar("Verifying", total) as advance:
                report = verify_store(
                    view, SystemClock(), index_slots=index_slots, progress=advance
                )
    except ConfigError:
        raise
    except RoquetError as error:
        print_error(error, as_json=as_json)
        context.exit(EXIT_FAILURE)
    if as_json:
        print_json(report)
    else:
        _print_report(report)
    if not report.ok:
        context.exit(EXIT_FAULTS)


def _print_report(report: Report) -> None:
    counts = report.counts
    click.echo(f"Store    {report.path}")
    click.echo(f"Log      {counts.records} records, {format_bytes(counts.log_bytes)}")
    click.echo(
        f"Queues   {counts.queues}, {counts.queue_entries} entries compared, "
        f"{counts.expired_entries} expired"
    )
    click.echo(f"Index    {counts.index_files} files, {counts.index_entries} entries")
    click.echo(f"Config   {counts.config_files} files")
    for note in report.notes:
        click.echo(f"Note     {note.kind}: {note.detail}")
    for fault in report.faults:
        where = f"{fault.where}: " if fault.where else ""
        click.echo(f"Fault    {printable(f'{fault.file}: {where}{fault.field}: {fault.detail}')}")
    if counts.faults > len(report.faults):
        click.echo(f"         and {counts.faults - len(report.faults)} more")
    click.echo("No fault found." if report.ok else f"{counts.faults} faults found.")


# -- rebuild ----------------------------------------------------------------------------------


@store.command()
@_path_argument
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    help="Build into this new or empty directory and leave the store as it is.",
)
@click.option("--yes", is_flag=True, help="Rebuild in place without asking.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="In place: accept that records at the end or the start of the log are lost.",
)
@_delay_levels_option
@_index_slots_option
@click.option(
    "--index-entries",
    type=click.IntRange(min=2),
    help="The broker's maxIndexNum, if the index files do not say.",
)
@json_option
@click.pass_context
def rebuild(
    context: click.Context,
    path: Path,
    *,
    into: Path | None,
    yes: bool,
    accept_loss: bool,
    delay_levels: str,
    index_slots: int | None,
    index_entries: int | None,
    as_json: bool,
) -> None:
    """Rebuild ConsumeQueue and index from the log, in place or into another directory.

    In place the broker must be stopped and the log sound. The new directories are complete on disk
    before they are swapped with the old ones, so an interruption leaves one or the other.

    A log whose end or beginning is missing is refused, here and by the broker. With --accept-loss
    the store continues with what is left: checkpoint and manifest are lowered to it, and queues
    continue after the offsets they had.
    """
    if accept_loss and into is not None:
        raise click.UsageError("--accept-loss is for a rebuild in place, not for --into.")
    levels = DelayLevels(delay_levels)
    with (
        _files_of(into or path, action="rebuilt"),
        StoreView(Files(), path, delay_levels=levels) as view,
    ):
        plan = plan_rebuild(
            view,
            into=into,
            index_slots=index_slots,
            index_entries=index_entries,
            accepts_loss=accept_loss,
        )
        if into is None and view.is_running:
            raise StoreLocked(
                f"{path} is in use",
                detail=f"process {view.lock_holder or 'unknown'} holds the lock",
                hint="stop the broker, or build into another directory with --into",
            )
        if into is None and not yes:
            _ask(plan, as_json=as_json)
        total = 2 * (view.max_offset - view.min_offset)
        with progress_bar("Rebuilding", total) as advance:
            result = rebuild_store(view, plan, SystemClock(), progress=advance)
    if as_json:
        print_json(result)
    else:
        _print_rebuilt(result)
    if result.faults:
        context.exit(EXIT_FAILURE)


def _ask(plan: RebuildPlan, *, as_json: bool) -> None:
    """Show what a rebuild in place replaces, and prompt; without a terminal refuse."""
    if as_json or not sys.stdin.isatty():
        raise ConfigError(
            "a rebuild in place needs --yes",
            detail=f"it replaces {' and '.join(plan.replaces) or plan.target}",
            hint="add --yes, or build into another directory with --into",
        )
    for line in _plan_lines(plan):
        click.echo(line)
    click.confirm("Rebuild now?", abort=True)


def _plan_lines(plan: RebuildPlan) -> list[str]:
    lines = [f"Replaces      {name}" for name in plan.replaces]
    return [
        *(lines or [f"Writes to     {plan.target}"]),
        f"ConsumeQueue  files of {plan.consume_queue_file_bytes} bytes",
        f"Index         files of {plan.index_slots} slots and {plan.index_entries} entries",
    ]


def _print_rebuilt(result: RebuildResult) -> None:
    for line in _plan_lines(result.plan):
        click.echo(line)
    click.echo(
        f"Rebuilt       {result.queues} queues and {result.index_files} index files from "
        f"{result.records} records; {result.carried_queues} queues without messages carried over"
    )
    for fault in result.faults:
        where = f"{fault.where}: " if fault.where else ""
        text = printable(f"{fault.file}: {where}{fault.field}: {fault.detail}")
        click.echo(f"Warning: skipped: {text}", err=True)
