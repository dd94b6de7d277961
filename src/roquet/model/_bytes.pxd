"""Declarations of ``_bytes.h``: big-endian numbers, and publishing a record."""

from libc.stdint cimport uint32_t, uint64_t


cdef extern from "roquet/model/_bytes.h":
    uint32_t roquet_get32(const unsigned char *at) nogil
    uint64_t roquet_get64(const unsigned char *at) nogil
    void roquet_put32(unsigned char *at, uint32_t value) nogil
    void roquet_put64(unsigned char *at, uint64_t value) nogil
    void roquet_prefetch(const unsigned char *at) nogil
    void roquet_prefetch_read(const unsigned char *at, size_t size) nogil
    void roquet_publish(unsigned char *at, uint32_t size, uint32_t magic) nogil
