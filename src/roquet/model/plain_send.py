"""What makes a send plain: the single rule for what the hot path may handle.

A plain send is stored as is, with the broker's own properties after the producer's. Anything that
may ask the broker for more (delay, transaction, retry, timer, inner batch) goes through all of
:mod:`roquet.broker.processor.send_message`. Compiled code has the same rule:
``scripts/compiled_declarations.py`` writes ``_plain_send.h`` and ``_constants.pxd`` from this
module.

A name is reserved if upstream's brokers or clients give it a meaning, or might in a later release:
it is cheaper to look twice at a message than to store one that should have been delayed.
"""

from __future__ import annotations

from roquet.model import properties as prop
from roquet.model import sys_flag as flags

__all__ = [
    "PLAIN_SYS_FLAGS",
    "RESERVED_NAMES",
    "RESERVED_PREFIXES",
    "UNRESERVED_NAMES",
    "is_reserved",
]

PLAIN_SYS_FLAGS = flags.COMPRESSED | flags.MULTI_TAGS | flags.COMPRESSION_MASK
"""Bits that matter only to readers."""

RESERVED_PREFIXES = (
    "1",  # 1ST_POP_TIME
    "CHECK_",  # CHECK_IMMUNITY_TIME_IN_SECONDS
    "DELAY",
    "DLQ_",
    "INNER_",
    "MAX_",
    "MIN_",
    "MSG_",
    "POP_",
    "PUSH_",
    "RE",  # REAL_TOPIC, RETRY_TOPIC, RECONSUME_TIME, REPLY_TO_CLIENT
    "TIMER_",
    "TRA",  # TRAN_MSG, TRACE_ON, TRANSACTION_CHECK_TIMES
    "_",
)
"""Prefixes of whole families of names."""

RESERVED_NAMES = (prop.CLUSTER, prop.ORIGIN_MESSAGE_ID, prop.PRODUCER_GROUP)
"""Single names that no prefix covers."""

UNRESERVED_NAMES = (prop.SHARDING_KEY,)
"""Names that look reserved but belong to the producer."""


def is_reserved(name: str) -> bool:
    """Whether a property may ask for more than storage, or only the broker may set it.

    Example:
        >>> [is_reserved(name) for name in ("DELAY", "_SYS_MSG_PRIORITY_", "PRICE")]
        [True, True, False]
    """
    if name in UNRESERVED_NAMES:
        return False
    return name.startswith(RESERVED_PREFIXES) or name in RESERVED_NAMES
