"""Decompresses bodies ahead of their use on the event loop.

A body of a few kilobytes may expand to many megabytes, which takes a tenth of a second or more. So
short bodies are decompressed on the loop, and long ones in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from roquet.client.message import ReceivedMessage
from roquet.errors import BadBody, ConfigError

__all__ = ["unpack"]

ON_LOOP_BYTES_MAX = 1 << 20
"""Decompressing as much as this takes a few milliseconds."""


async def unpack(messages: Iterable[ReceivedMessage]) -> None:
    """Make sure that the bodies of messages are decompressed.

    An error of a body, or a missing package, is raised when the body is read.

    Args:
        messages: The messages.
    """
    for message in messages:
        with suppress(ConfigError):
            if not message.unpack_short(ON_LOOP_BYTES_MAX):
                await asyncio.to_thread(_unpack_long, message)


def _unpack_long(message: ReceivedMessage) -> None:
    with suppress(BadBody):
        _ = message.body
