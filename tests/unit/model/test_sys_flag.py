from __future__ import annotations

import pytest

from roquet.model import sys_flag as flags


@pytest.mark.parametrize(
    ("transaction", "takes"),
    [
        (flags.TRANSACTION_NOT, True),
        (flags.TRANSACTION_PREPARED, False),
        (flags.TRANSACTION_COMMIT, True),
        (flags.TRANSACTION_ROLLBACK, False),
    ],
)
def test_which_messages_get_a_queue_offset(transaction: int, takes: bool) -> None:  # noqa: FBT001
    other = flags.COMPRESSED | flags.MULTI_TAGS | flags.BORN_HOST_V6 | flags.COMPRESSION_ZLIB
    assert flags.takes_queue_offset(transaction | other) is takes
    assert flags.transaction_type(transaction | other) == transaction


def test_replacing_the_transaction_type_keeps_the_rest() -> None:
    flag = flags.COMPRESSED | flags.TRANSACTION_PREPARED | flags.STORE_HOST_V6
    changed = flags.with_transaction_type(flag, flags.TRANSACTION_ROLLBACK)
    assert changed == flags.COMPRESSED | flags.TRANSACTION_ROLLBACK | flags.STORE_HOST_V6
    assert flags.with_transaction_type(changed, flags.TRANSACTION_PREPARED) == flag


def test_no_two_flags_share_a_bit() -> None:
    single = [
        flags.COMPRESSED,
        flags.MULTI_TAGS,
        flags.TRANSACTION_MASK,
        flags.BORN_HOST_V6,
        flags.STORE_HOST_V6,
        flags.NEED_UNWRAP,
        flags.INNER_BATCH,
        flags.COMPRESSION_MASK,
    ]
    assert sum(single) == 0x7FF
