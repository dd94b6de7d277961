"""Recalling messages before their delivery time.

Owns the handle that a broker returns for a message with a delivery time (``SendResult``'s
``recall_handle``), which is the URL-safe base64 of five words separated by spaces:

.. code-block:: text

    v1 <topic> <broker name> <time of delivery, ms since the epoch> <unique id of the message>

Only brokers with the timer (version 5.3.2 and later, ``recallMessageEnable=true``) can recall
messages; they find them by unique id and time.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple, Self

from roquet.errors import BadMessage

__all__ = ["RecallHandle"]

VERSION = "v1"


class RecallHandle(NamedTuple):
    """The content of a handle.

    Attributes:
        topic: The topic on the wire.
        broker_name: The broker that has the message.
        deliver_at_ms: When it would be delivered, milliseconds since the epoch, as text.
        message_id: The unique id of the message.

    Example:
        >>> handle = RecallHandle("Orders", "broker-a", "1700000000000", "AC11")
        >>> RecallHandle.parse(handle.text()) == handle
        True
    """

    topic: str
    broker_name: str
    deliver_at_ms: str
    message_id: str

    def text(self) -> str:
        """Return the handle as brokers encode it."""
        return base64.urlsafe_b64encode(" ".join((VERSION, *self)).encode()).decode("ascii")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a handle from a broker.

        Raises:
            BadMessage: It is not a handle.
        """
        try:
            # Java accepts it with and without padding.
            padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
            data = base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True)
            words = data.decode().split(" ")
        except (binascii.Error, UnicodeError) as error:
            raise _invalid(text, str(error)) from None
        if words[0] != VERSION or len(words) < 5:
            raise _invalid(text, f"found {words[0][:20]!r} and {len(words) - 1} words")
        return cls(*words[1:5])


def _invalid(text: str, why: str) -> BadMessage:
    return BadMessage(
        "This is not a recall handle",
        code="bad_recall_handle",
        detail=f"{text[:100]!r}: {why}",
        hint="Use the recall_handle of the send's result.",
    )
