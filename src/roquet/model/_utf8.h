/* Checks UTF-8 by the rules of Python's strict decoder, for compiled code. */
#ifndef ROQUET_UTF8_H
#define ROQUET_UTF8_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline int roquet_is_tail(unsigned char byte) { return (byte & 0xC0) == 0x80; }

static inline int roquet_is_utf8(const unsigned char *at, size_t size) {
    const unsigned char *end = at + size;
    while (at < end) {
        uint64_t word;
        while (end - at >= 8) {
            memcpy(&word, at, sizeof word);
            if (word & 0x8080808080808080ull) break;
            at += 8;
        }
        if (at == end) break;
        unsigned char first = *at;
        ptrdiff_t left = end - at;
        if (first < 0x80) {
            at += 1;
        } else if (first >= 0xC2 && first <= 0xDF) {
            if (left < 2 || !roquet_is_tail(at[1])) return 0;
            at += 2;
        } else if (first >= 0xE0 && first <= 0xEF) {
            if (left < 3 || !roquet_is_tail(at[1]) || !roquet_is_tail(at[2])) return 0;
            if (first == 0xE0 && at[1] < 0xA0) return 0; /* overlong */
            if (first == 0xED && at[1] > 0x9F) return 0; /* a surrogate */
            at += 3;
        } else if (first >= 0xF0 && first <= 0xF4) {
            if (left < 4 || !roquet_is_tail(at[1]) || !roquet_is_tail(at[2]) ||
                !roquet_is_tail(at[3]))
                return 0;
            if (first == 0xF0 && at[1] < 0x90) return 0; /* overlong */
            if (first == 0xF4 && at[1] > 0x8F) return 0; /* beyond U+10FFFF */
            at += 4;
        } else {
            return 0;
        }
    }
    return 1;
}

#endif
