"""Names for the outcome of an input.

Owns how refusals are distinguished: by their message without its numbers and quoted parts, so that
a thousand bad lengths are one outcome.
"""

from __future__ import annotations

import re

from roquet.errors import ProtocolError

_PARTICULARS = re.compile(r"-?\d+|'[^']*'|b'.*'")


def refused(error: ProtocolError) -> str:
    """The kind of a refusal."""
    return "refused: " + _PARTICULARS.sub("#", error.message)


def size_class(count: int) -> int:
    """A number by its magnitude."""
    return count.bit_length()
