"""What a run leaves on disk, as named values like those of frames: messages and tables."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from roquet.format.commit_log import decode_record
from roquet.model.fastjson import loads
from roquet.model.message import StoredMessage
from tests.golden.records import SEGMENT_BYTES, log_records
from tests.golden.replay_compare import Values, leaves, message_values

METRICS = "transactionMetrics"
"""The one table whose file has no suffix."""


def stored_values(store: Path) -> Values:
    """The messages of a store by queue, and its tables by file.

    Messages of a queue are ordered by birth time: the threads of upstream's broker store messages
    that consumers send back at the same time in any order.
    """
    values: Values = {}
    for (topic, queue_id), messages in _queues(store).items():
        messages.sort(key=lambda message: (message.born_timestamp_ms, message.body))
        for number, message in enumerate(messages):
            values |= message_values(f"stored.{topic}.{queue_id}.{number}", message)
    tables = store / "config"
    for file in (*tables.glob("*.json"), tables / METRICS):
        values |= leaves(f"table.{file.stem}", loads(file.read_text("utf-8")))
    return values


def _queues(store: Path) -> dict[tuple[str, int], list[StoredMessage]]:
    queues: dict[tuple[str, int], list[StoredMessage]] = defaultdict(list)
    for record in log_records(store):
        base, position = divmod(record.physical_offset, SEGMENT_BYTES)
        data = (store / "commitlog" / f"{base * SEGMENT_BYTES:020d}").read_bytes()
        message = decode_record(data, position, len(data))
        queues[message.topic, message.queue_id].append(message)
    return queues
