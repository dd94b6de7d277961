"""System flag of a message: bits the broker and the clients agree on.

====== ========================================================
bits   meaning
====== ========================================================
0x1    body is compressed
0x2    TAGS holds several tags
0xC    transaction: 0x4 prepared, 0x8 commit, 0xC rollback
0x10   bornHost is IPv6
0x20   storeHost is IPv6
0x40   needs unwrapping by the consumer
0x80   inner batch
0x700  compression: 0x100 LZ4, 0x200 ZSTD, 0x300 ZLIB, 0 ZLIB
====== ========================================================
"""

from __future__ import annotations

COMPRESSED = 0x1
MULTI_TAGS = 0x2
TRANSACTION_MASK = 0xC
TRANSACTION_NOT = 0x0
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC
BORN_HOST_V6 = 0x10
STORE_HOST_V6 = 0x20
NEED_UNWRAP = 0x40
INNER_BATCH = 0x80
COMPRESSION_MASK = 0x700
COMPRESSION_LZ4 = 0x100
COMPRESSION_ZSTD = 0x200
COMPRESSION_ZLIB = 0x300


def transaction_type(sys_flag: int) -> int:
    """The transaction bits alone."""
    return sys_flag & TRANSACTION_MASK


def with_transaction_type(sys_flag: int, transaction_type_bits: int) -> int:
    """``sys_flag`` with its transaction bits replaced."""
    return (sys_flag & ~TRANSACTION_MASK) | transaction_type_bits


def takes_queue_offset(sys_flag: int) -> bool:
    """Whether a message with this flag gets a queue offset.

    Prepared and rolled-back messages of the old transaction scheme stay in the log only.
    """
    return transaction_type(sys_flag) in {TRANSACTION_NOT, TRANSACTION_COMMIT}
