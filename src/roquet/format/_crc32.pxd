"""CRC-32 by ``_crc32.h``."""

from libc.stdint cimport uint32_t


cdef extern from "roquet/format/_crc32.h":
    uint32_t roquet_crc32(const unsigned char *data, size_t size) nogil
