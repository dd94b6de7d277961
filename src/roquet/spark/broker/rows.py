"""Turns the records of a response into Arrow batches.

Plain records, which are nearly all, go through the log's decoder, many at once. Batches inside a
message, static topics and records that the decoder does not take go through the client's decoder,
message by message. Both give the same rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from roquet.client.compression import decompress
from roquet.client.expression import Expression, subscription_of
from roquet.client.message import ReceivedMessage
from roquet.client.record_reader import decode_messages
from roquet.errors import BadBody, ProtocolError
from roquet.model.message_queue import MessageQueue
from roquet.spark.broker.fetch import FetchedRecords
from roquet.spark.broker.offsets import queue_text
from roquet.spark.log.decoder import ENDED, FULL, DecodedRows, make_decoder
from roquet.spark.log.selection import Selection
from roquet.spark.message_values import VALUES
from roquet.spark.schema import BODY_BYTES_MAX

__all__ = ["RowMaker"]

_ANYWHERE = -1
"""Stands for the physical offset of records from several places of a log."""

_NOT_IN_RECORDS = frozenset({"topic", "brokerName"})


class RowMaker:
    """Converts the records of one queue to batches.

    Args:
        queue: The queue, with the user's topic.
        schema: The Arrow schema that Spark expects; its names are columns of the source.
        expression: The filter.
        decompress: Whether bodies are decompressed.
    """

    def __init__(
        self, queue: MessageQueue, schema: pa.Schema, expression: Expression, *, decompress: bool
    ) -> None:
        self._queue = queue
        self._schema = schema
        self._decompress = decompress
        subscription = subscription_of(queue.topic, expression, version_ms=0)
        is_tags = isinstance(expression, str)
        self._tags = frozenset(subscription.tags_set if is_tags else ())
        decoded = dict.fromkeys(name for name in schema.names if name not in _NOT_IN_RECORDS)
        if self._tags:
            decoded["tags"] = None
        self._decoder = make_decoder(tuple(decoded), Selection(), check_crc=False)

    def batches(self, pieces: Iterable[FetchedRecords]) -> Iterator[pa.RecordBatch]:
        """Yield all messages in the pieces, in order; no batch is empty.

        Raises:
            ProtocolError: Some bytes are not a message, or a body cannot be decompressed.
        """
        for is_plain, run in itertools.groupby(pieces, key=_is_plain):
            if is_plain:
                yield from self._quickly(list(run))
            else:
                for piece in run:
                    yield from self._one_by_one(piece)

    # ------------------------------------------------------------------------------ many at once

    def _quickly(self, pieces: Sequence[FetchedRecords]) -> Iterator[pa.RecordBatch]:
        # Responses are joined, because every batch costs Spark the same, however small.
        data = pieces[0].data if len(pieces) == 1 else b"".join(piece.data for piece in pieces)
        view = memoryview(data)
        position = 0
        while position < len(data):
            found = self._decoder.decode(view, position, len(data), len(data), _ANYWHERE)
            if found.rows:
                yield from self._taken(self._batch(found), found.arrays.get("tags"))
            position = found.reached
            if found.why not in {ENDED, FULL}:
                whole = FetchedRecords(
                    data=bytes(view[position:]),
                    offset_delta=0,
                    start_offset=pieces[0].start_offset,
                    end_offset=pieces[-1].end_offset,
                    is_plain=False,
                )
                yield from self._one_by_one(whole)
                return

    def _batch(self, found: DecodedRows) -> pa.RecordBatch:
        arrays = dict(found.arrays)
        if "topic" in self._schema.names:
            arrays["topic"] = _repeated(self._queue.topic, found.rows)
        if "brokerName" in self._schema.names:
            arrays["brokerName"] = _repeated(self._queue.broker_name, found.rows)
        if self._decompress and found.compressed:
            bodies = arrays["body"].to_pylist()
            for row, sys_flag in found.compressed:
                bodies[row] = self._unpacked(bodies[row], sys_flag)
            arrays["body"] = pa.array(bodies, pa.binary())
        columns = [arrays[name] for name in self._schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _taken(self, batch: pa.RecordBatch, tags: pa.Array | None) -> Iterator[pa.RecordBatch]:
        """Drop rows whose tags differ from the requested ones but have the same hash."""
        if self._tags and tags is not None:
            is_wanted = [tag in self._tags for tag in tags.to_pylist()]
            if not all(is_wanted):
                batch = batch.filter(pa.array(is_wanted))
        if batch.num_rows:
            yield batch

    def _unpacked(self, body: bytes, sys_flag: int) -> bytes:
        try:
            return decompress(body, sys_flag, max_bytes=BODY_BYTES_MAX)
        except BadBody as error:
            raise ProtocolError(
                f"A body of {queue_text(self._queue)} cannot be decompressed",
                code="bad_body_bytes",
                detail=error.detail or error.message,
                hint="To read it as stored, set decompress to false.",
            ) from error

    # -------------------------------------------------------------------------------- one by one

    def _one_by_one(self, piece: FetchedRecords) -> Iterator[pa.RecordBatch]:
        messages = list(self._messages(piece))
        if messages:
            arrays = [
                pa.array(self._values(field.name, messages), type=field.type)
                for field in self._schema
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _messages(self, piece: FetchedRecords) -> Iterable[ReceivedMessage]:
        found, is_whole = decode_messages(
            piece.data,
            self._queue,
            offset_delta=piece.offset_delta,
            max_body_bytes=BODY_BYTES_MAX,
        )
        if not is_whole:
            raise ProtocolError(
                f"A response for {queue_text(self._queue)} holds bytes that are not a message",
                code="bad_message_bytes",
                detail=f"after offset {found[-1].queue_offset}",
                hint="The broker's log may be damaged there; see roquet store check.",
            )
        return (
            message
            for message in found
            if piece.start_offset <= message.queue_offset < piece.end_offset
            and (not self._tags or message.tags in self._tags)
        )

    def _values(self, column: str, messages: Sequence[ReceivedMessage]) -> list[object]:
        if column == "topic":
            return [self._queue.topic] * len(messages)
        if column == "brokerName":
            return [self._queue.broker_name] * len(messages)
        if column == "body":
            return [self._body(message) for message in messages]
        value_of = VALUES[column]
        return [value_of(message) for message in messages]

    def _body(self, message: ReceivedMessage) -> bytes:
        if not self._decompress:
            return message.raw_body
        return self._unpacked(message.raw_body, message.sys_flag)


def _is_plain(piece: FetchedRecords) -> bool:
    return piece.is_plain and piece.offset_delta == 0


def _repeated(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)
