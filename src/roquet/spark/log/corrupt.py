"""Rows for damaged bytes of the log.

Builds the row that represents them; :mod:`roquet.storefiles.damage` finds where damage ends.

========================= ========================================================================
mode                      damaged bytes
========================= ========================================================================
``PERMISSIVE`` (default)  are one row: ``_corrupt`` says what is wrong, ``physicalOffset`` where and
                          ``storeSize`` how much. A record whose lengths agree has all its columns,
                          but no body unless ``_corrupt`` is there to warn of it.
``DROPMALFORMED``         are left out
``FAILFAST``              are an error
========================= ========================================================================
"""

from __future__ import annotations

from roquet.errors import CorruptRecord
from roquet.format.segment_files import Segment
from roquet.model.message import StoredMessage
from roquet.spark.message_values import VALUES
from roquet.spark.schema import CORRUPT_COLUMN
from roquet.storefiles.damage import DamagedRange

PERMISSIVE = "PERMISSIVE"
DROPMALFORMED = "DROPMALFORMED"
FAILFAST = "FAILFAST"
MODES = (PERMISSIVE, DROPMALFORMED, FAILFAST)

INT_MAX = 2**31 - 1


def damage_text(damage: DamagedRange) -> str:
    """Return the text of ``_corrupt``."""
    fault = damage.fault
    return f"bytes {damage.start} to {damage.end}: {fault.field}: {fault.detail}"


def damage_error(damage: DamagedRange, segment: Segment) -> CorruptRecord:
    """Return the error that ``FAILFAST`` raises."""
    return CorruptRecord(
        f"The log is damaged at physical offset {damage.start}.",
        detail=f"{segment.path}, {damage_text(damage)}",
        hint="Read it with the option mode=PERMISSIVE and the column _corrupt, or leave damaged"
        " bytes out with mode=DROPMALFORMED.",
    )


def message_row(message: StoredMessage) -> dict[str, object]:
    """All columns of one record as plain values."""
    return {"body": message.body, **{name: value(message) for name, value in VALUES.items()}}


def damage_row(damage: DamagedRange, *, is_told: bool) -> dict[str, object]:
    """Return the row for damage; ``is_told``: whether it has the column ``_corrupt``."""
    row: dict[str, object] = {}
    if damage.message is not None:
        row = message_row(damage.message)
        if not is_told:
            row["body"] = None
    row["physicalOffset"] = damage.start
    row["storeSize"] = min(damage.end - damage.start, INT_MAX)
    row[CORRUPT_COLUMN] = damage_text(damage)
    return row
