"""The hot path beside the reference path: the same bytes, the same responses.

Two brokers without sockets live through many inputs. After some hundreds they are closed, their
files compared, and new ones begin; an input that fails is tried once more on new ones, so that
it is known whether it fails by itself.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from fuzz import corpus
from fuzz.binary_header import TOKENS as BINARY_TOKENS
from fuzz.json_header import TOKENS as JSON_TOKENS
from fuzz.outcome import size_class
from roquet.remoting.codec import decode_command, encode_command
from roquet.remoting.codes import RequestCode
from roquet.remoting.command import RemotingCommand
from roquet.remoting.frame import FrameDecoder, SerializeType
from roquet.store.config import MessageStoreConfig
from tests.property.wire_sides import TOPICS, Side

INPUTS_OF_A_LIFE = 300
CONFIG = MessageStoreConfig(
    commit_log_file_bytes=1 << 20,
    consume_queue_file_bytes=20_000,
    index_slots=100,
    index_entries=1_000,
    max_message_bytes=4_000,
)
TOKENS = (
    *JSON_TOKENS,
    *BINARY_TOKENS,
    b"UNIQ_KEY\x01u\x02",
    b"\\u0001",
    b"KEYS\x01k\x02",
    b'"e":"0"',
    b"Orders",
    b"\x00\x00\x00\x01",
)
PROPERTIES = "KEYS\x01k\x02TAGS\x01A\x02UNIQ_KEY\x017F00000171E15FFD2B2749B877600000\x02"


def _send(topic: str, queue_id: int, serialize_type: SerializeType) -> bytes:
    fields = {"a": "group", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0"}
    fields |= {"g": "1794728025952", "h": "0", "i": PROPERTIES, "j": "0", "k": "false"}
    return _frame(RequestCode.SEND_MESSAGE_V2, {**fields, "m": "false"}, serialize_type, b"body")


def _pull(topic: str, queue_id: int, serialize_type: SerializeType) -> bytes:
    fields = {"consumerGroup": "readers", "topic": topic, "queueId": str(queue_id)}
    fields |= {"queueOffset": "0", "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0"}
    fields |= {"suspendTimeoutMillis": "1000", "subscription": "*", "subVersion": "0"}
    return _frame(RequestCode.PULL_MESSAGE, {**fields, "expressionType": "TAG"}, serialize_type)


def _commit(topic: str, queue_id: int, serialize_type: SerializeType) -> bytes:
    fields = {"consumerGroup": "readers", "topic": topic, "queueId": str(queue_id)}
    return _frame(
        RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": "1"}, serialize_type
    )


def _frame(
    code: int, fields: dict[str, str], serialize_type: SerializeType, body: bytes = b""
) -> bytes:
    return encode_command(
        RemotingCommand(
            code=code,
            version=493,
            opaque=7,
            ext_fields=fields,
            body=body,
            serialize_type=serialize_type,
        )
    )


def seeds() -> list[bytes]:
    """Plain requests in both codecs, and recorded sends and pulls of any kind."""
    own = [
        make(topic, queue_id, serialize_type)
        for make in (_send, _pull, _commit)
        for topic in TOPICS
        for queue_id in (0, 1)
        for serialize_type in SerializeType
    ]
    return [*own, *(b"".join(own[place : place + 4]) for place in range(0, len(own), 4)),
            *(data for data in corpus.frames() if len(data) < 2_000)]  # fmt: skip


class _Sides:
    """A broker with the hot path and one without."""

    def __init__(self) -> None:
        self.inputs = 0
        self._folder = Path(mkdtemp(prefix="fuzz-wire-"))
        self._loop = asyncio.new_event_loop()
        self._sides = self._loop.run_until_complete(self._open(self._folder))
        for topic in TOPICS:
            self.play(_send(topic, 0, SerializeType.JSON) + _pull(topic, 0, SerializeType.JSON))

    async def _open(self, folder: Path) -> list[Side]:
        return [Side(folder / str(is_hot), CONFIG, is_hot=is_hot) for is_hot in (True, False)]

    def play(self, data: bytes) -> list[bytes]:
        """Feed all; return their responses, which must be the same."""
        self.inputs += 1
        cut = sum(data[:9]) % (len(data) + 1)
        chunks = [chunk for chunk in (data[:cut], data[cut:]) if chunk]
        of_hot, without = (
            self._loop.run_until_complete(self._feed(side, chunks)) for side in self._sides
        )
        side, reference = self._sides
        assert of_hot == without, "the responses differ"
        assert side.offsets.table == reference.offsets.table
        assert side.store.commit_log.max_offset == reference.store.commit_log.max_offset
        return without

    async def _feed(self, side: Side, chunks: list[bytes]) -> list[bytes]:
        await side.feed(chunks)
        found = [frame for answers in side.answers() for frame in answers]
        for transport in side.transports:
            transport.written.clear()
        return found

    def hot_took(self) -> int:
        """How many requests the hot path has handled."""
        hot_path = self._sides[0].hot_path
        assert hot_path is not None
        return hot_path.requests_taken

    def discard(self) -> None:
        """Forget all, after they differed."""
        with suppress(AssertionError):
            self.close()

    def close(self) -> None:
        """Close all; their files must be the same."""

        async def close() -> list[dict[str, bytes]]:
            return [side.close() for side in self._sides]

        try:
            of_hot, without = self._loop.run_until_complete(close())
        finally:
            self._loop.close()
            shutil.rmtree(self._folder)
        assert of_hot == without, "the files differ"


_live: list[_Sides] = []


def _sides() -> _Sides:
    if _live and _live[0].inputs >= INPUTS_OF_A_LIFE:
        _live.pop().close()
    if not _live:
        _live.append(_Sides())
    return _live[0]


@atexit.register
def close() -> None:
    """Close the brokers that are open."""
    while _live:
        _live.pop().close()


def fuzz_one(data: bytes) -> str:
    """All paths give the same responses, commit the same offsets and write as much."""
    sides = _sides()
    took = sides.hot_took()
    try:
        answers = sides.play(data)
    except Exception:
        _live.pop().discard()
        _sides().play(data)  # raises again if the input fails by itself
        raise
    words = {_word(answer) for answer in answers}
    return f"{size_class(sides.hot_took() - took)} taken, {sorted(words)}"


def _word(answer: bytes) -> str:
    decoder = FrameDecoder()
    decoder.feed(answer)
    (frame,) = decoder
    command = decode_command(frame)
    return f"{command.code} {size_class(len(command.body))} {(command.remark or '')[:12]}"
