"""Lines of standard input for code on an event loop.

Each read runs in its own thread, which is never joined: a command must not hang at its end because
it still waits for input. The stream is read without its buffer, whose lock such a thread would hold
when the interpreter exits.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator
from io import BufferedReader

from roquet.errors import BadMessage, RoquetError

__all__ = ["LINE_BYTES_MAX", "input_lines"]

READ_BYTES = 64 << 10
LINE_BYTES_MAX = 16 << 20
"""The longest line: the longest message of a broker, written in base64, and room for the rest."""


async def input_lines() -> AsyncGenerator[bytes, None]:
    """The lines, without their ends; the last one need not have an end.

    Raises:
        BadMessage: A line is too long.
        RoquetError: Standard input cannot be read.
    """
    rest = bytearray()
    while chunk := await _read():
        searched = len(rest)
        rest += chunk
        begin = 0
        while (end := rest.find(b"\n", max(begin, searched))) >= 0:
            yield bytes(rest[begin:end])
            begin = end + 1
        del rest[:begin]
        if len(rest) > LINE_BYTES_MAX:
            raise BadMessage(
                "A line of standard input is too long to be a message",
                detail=f"more than {LINE_BYTES_MAX} bytes without a line end",
            )
    if rest:
        yield bytes(rest)


async def _read() -> bytes:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[bytes] = loop.create_future()
    stream = sys.stdin.buffer
    raw = stream.raw if isinstance(stream, BufferedReader) else stream

    def settle(chunk: bytes, error: OSError | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(chunk)
        else:
            failure = RoquetError("Standard input cannot be read.", detail=error.strerror)
            done.set_exception(failure)

    def work() -> None:
        chunk, failure = b"", None
        try:
            chunk = raw.read(READ_BYTES) or b""
        except OSError as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, chunk, failure)

    threading.Thread(target=work, name="standard-input", daemon=True).start()
    return await done
