"""Where the fields of a CommitLog record are: the one table of its layout.

Python takes formats and positions from here, and so does compiled code: the script
``scripts/compiled_declarations.py`` writes ``format/_layout.pxd`` from :data:`RECORD` and the
constants below. All integers are big-endian.

The table ends where the body starts. After it come the body, the topic and the properties, the
last two preceded by their lengths:

============================ ========= ========================================================
field                        bytes     note
============================ ========= ========================================================
body                         n         as sent, still compressed
topicLength, topic           1 + n     V1; V2 has 2 + n, for topics longer than 127
propertiesLength, properties 2 + n     at most 32767
CRC property                 20        the last property, only with enabledAppendPropCRC:
                                       ``__CRC32#`` 0x01, ten digits, lowest first, 0x02;
                                       CRC-32 (31 bits) of the record without these 20
============================ ========= ========================================================

The positions are those of a record with IPv4 hosts. An IPv6 host is 12 bytes longer, which moves
everything after it: see :func:`store_timestamp_at` and :func:`body_at`.

End of a segment: remaining size 4, BLANK magic 4; what follows has no meaning. A record is
written only if 8 bytes stay free after it, so a segment always has room for its end.
"""

from __future__ import annotations

from roquet.format.layout import Field, Layout
from roquet.model import sys_flag as flags
from roquet.model.host import IPV4_HOST_BYTES, IPV6_HOST_BYTES
from roquet.model.properties import PROPERTIES_BYTES_MAX

RECORD = Layout(
    Field("totalSize", "i", "the whole record"),
    Field("magic", "I", "V1, V2, or BLANK for the end of a segment"),
    Field("bodyCRC", "I", "CRC-32 of the stored body, masked to 31 bits"),
    Field("queueId", "i"),
    Field("flag", "i", "the user's"),
    Field("queueOffset", "q", "place in the queue; 0 for prepared and rolled back"),
    Field("physicalOffset", "q", "place of this record in the whole log"),
    Field("sysFlag", "i", "model/sys_flag.py"),
    Field("bornTimestamp", "q", "producer's clock, ms"),
    Field("bornHost", f"{IPV4_HOST_BYTES}s", "address and 4-byte port; IPv6 has 20 bytes"),
    Field("storeTimestamp", "q", "broker's clock, ms; never goes back within the log"),
    Field("storeHost", f"{IPV4_HOST_BYTES}s", "as bornHost"),
    Field("reconsumeTimes", "i"),
    Field("preparedTransactionOffset", "q"),
    Field("bodyLength", "i"),
)

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194
CRC_MASK = 0x7FFFFFFF

IPV6_EXTRA_BYTES = IPV6_HOST_BYTES - IPV4_HOST_BYTES
TOPIC_LENGTH_BYTES_V1 = 1
TOPIC_LENGTH_BYTES_V2 = 2
PROPERTIES_LENGTH_BYTES = 2
CRC_PROPERTY_BYTES = 20
END_OF_SEGMENT_BYTES = 8
RECORD_BYTES_MIN = RECORD.bytes + TOPIC_LENGTH_BYTES_V1 + PROPERTIES_LENGTH_BYTES
BEHIND_BODY_BYTES_MAX = (
    TOPIC_LENGTH_BYTES_V2 + 0xFFFF + PROPERTIES_LENGTH_BYTES + PROPERTIES_BYTES_MAX
)

PHYSICAL_OFFSET_AT = RECORD.at("physicalOffset")
BORN_HOST_AT = RECORD.at("bornHost")
STORE_TIMESTAMP_AT = RECORD.at("storeTimestamp")
BODY_AT = RECORD.bytes
COUNTERS_BYTES = BODY_AT - RECORD.at("reconsumeTimes")  # bytes between storeHost and body


def store_timestamp_at(sys_flag: int) -> int:
    """Position of storeTimestamp, given the type of bornHost."""
    return STORE_TIMESTAMP_AT + (IPV6_EXTRA_BYTES if sys_flag & flags.BORN_HOST_V6 else 0)


def body_at(sys_flag: int) -> int:
    """Position of the body, given the types of the hosts.

    Example:
        >>> body_at(0), body_at(flags.BORN_HOST_V6)
        (88, 100)
    """
    at = BODY_AT
    if sys_flag & flags.BORN_HOST_V6:
        at += IPV6_EXTRA_BYTES
    if sys_flag & flags.STORE_HOST_V6:
        at += IPV6_EXTRA_BYTES
    return at
