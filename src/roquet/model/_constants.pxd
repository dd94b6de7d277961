"""Flags and limits of messages.

Made by ``scripts/compiled_declarations.py``; change the Python modules, not this file.
"""

cdef enum:  # roquet.model.sys_flag
    COMPRESSED = 1
    TRANSACTION_MASK = 12
    BORN_HOST_V6 = 16
    STORE_HOST_V6 = 32
    INNER_BATCH = 128
    COMPRESSION_MASK = 1792
    COMPRESSION_LZ4 = 256
    COMPRESSION_ZSTD = 512

cdef enum:  # roquet.model.host
    IPV4_HOST_BYTES = 8
    IPV6_HOST_BYTES = 20

cdef enum:  # roquet.model.properties
    PROPERTIES_BYTES_MAX = 32767

cdef enum:  # roquet.model.topic
    TOPIC_LENGTH_MAX = 127

cdef enum:  # roquet.model.plain_send
    PLAIN_SYS_FLAGS = 1795
