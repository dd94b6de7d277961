/* Big-endian access to bytes, for compiled code. */
#ifndef ROQUET_BYTES_H
#define ROQUET_BYTES_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define ROQUET_BE32(value) (value)
#define ROQUET_BE64(value) (value)
#else
#define ROQUET_BE32(value) __builtin_bswap32(value)
#define ROQUET_BE64(value) __builtin_bswap64(value)
#endif

static inline uint32_t roquet_get32(const unsigned char *at) {
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return ROQUET_BE32(value);
}

static inline uint64_t roquet_get64(const unsigned char *at) {
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return ROQUET_BE64(value);
}

static inline void roquet_put32(unsigned char *at, uint32_t value) {
    value = ROQUET_BE32(value);
    memcpy(at, &value, sizeof value);
}

static inline void roquet_put64(unsigned char *at, uint64_t value) {
    value = ROQUET_BE64(value);
    memcpy(at, &value, sizeof value);
}

/* Fetch the cache line at an address that is soon written. */
static inline void roquet_prefetch(const unsigned char *at) { __builtin_prefetch(at, 1); }

/* Fetch the cache lines of bytes that are soon read. */
static inline void roquet_prefetch_read(const unsigned char *at, size_t size) {
    for (size_t line = 0; line < size; line += 64) __builtin_prefetch(at + line, 0);
}

/* Write a record's first eight bytes, after all others: they make it visible. */
static inline void roquet_publish(unsigned char *at, uint32_t size, uint32_t magic) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    roquet_put32(at, size);
    roquet_put32(at + 4, magic);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

#endif
