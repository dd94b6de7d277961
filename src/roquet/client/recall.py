"""Messages that are delivered later, called back before they are.

Owns the handle that a broker gives for a message with a time of delivery (``SendResult``'s
``recall_handle``), which is the URL-safe base64 of five words with spaces between:

.. code-block:: text

    v1 <topic> <broker name> <time of delivery, ms since the epoch> <unique id of the message>

Only brokers with the timer (version 5.3.2 and later, ``recallMessageEnable=true``) call messages
back; they know them by their unique id and time.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple, Self

from roquet.errors import BadMessage

__all__ = ["RecallHandle"]

VERSION = "v1"


class RecallHandle(NamedTuple):
    """What a handle says.

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
        """The handle as brokers write it."""
        return base64.urlsafe_b64encode(" ".join((VERSION, *self)).encode()).decode("ascii")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The handle that a broker gave.

        Raises:
            BadMessage: It is none.
        """
        try:
            # Java reads it with and without the padding at its end.
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
        "This is no handle to recall a message",
        code="bad_recall_handle",
        detail=f"{text[:100]!r}: {why}",
        hint="Give the recall_handle of the result of its send.",
    )
