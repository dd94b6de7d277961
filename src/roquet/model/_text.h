/* Scans text several bytes at a time, for compiled code.
 *
 * A step tests whether all eight bytes of a word qualify; a word that fails, and the bytes after
 * the last whole word, are scanned byte by byte. Where the CPU has 16-byte vectors, JSON strings
 * are scanned with those: most are shorter than one, so the first step finds their end.
 */
#ifndef ROQUET_TEXT_H
#define ROQUET_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define ROQUET_ONES 0x0101010101010101ull
#define ROQUET_HIGHS 0x8080808080808080ull

static inline uint64_t roquet_word(const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Nonzero if any byte of the word is below the bound, which is at most 0x80. */
static inline uint64_t roquet_has_below(uint64_t word, unsigned char bound) {
    return (word - ROQUET_ONES * bound) & ~word & ROQUET_HIGHS;
}

/* Nonzero if any byte of the word equals this one. */
static inline uint64_t roquet_has(uint64_t word, unsigned char byte) {
    return roquet_has_below(word ^ (ROQUET_ONES * byte), 1);
}

/* How many leading bytes need no escape in a JSON string; sets `beyond` if one of them is not
 * ASCII. */
static inline size_t roquet_json_run(const unsigned char *at, size_t size, int *beyond) {
    size_t done = 0;
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    const __m128i control = _mm_set1_epi8(0x1F);
    while (size - done >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(at + done));
        __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(bytes, quote), _mm_cmpeq_epi8(bytes, backslash));
        ends = _mm_or_si128(ends, _mm_cmpeq_epi8(_mm_min_epu8(bytes, control), bytes));
        unsigned end = (unsigned)_mm_movemask_epi8(ends);
        unsigned high = (unsigned)_mm_movemask_epi8(bytes);
        if (end) {
            unsigned count = (unsigned)__builtin_ctz(end);
            *beyond |= (high & ((1u << count) - 1)) != 0;
            return done + count;
        }
        *beyond |= high != 0;
        done += 16;
    }
#endif
    while (size - done >= 8) {
        uint64_t word = roquet_word(at + done);
        if (roquet_has(word, '"') | roquet_has(word, '\\') | roquet_has_below(word, 0x20)) break;
        *beyond |= (word & ROQUET_HIGHS) != 0;
        done += 8;
    }
    while (done < size && at[done] != '"' && at[done] != '\\' && at[done] >= 0x20)
        *beyond |= at[done++] >= 0x80;
    return done;
}

/* The first byte of this value, or the end. Texts are short: calling memchr would cost more. */
static inline const unsigned char *roquet_find(const unsigned char *at, const unsigned char *end,
                                               unsigned char byte) {
#ifdef __SSE2__
    const __m128i wanted = _mm_set1_epi8((char)byte);
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)at);
        unsigned found = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, wanted));
        if (found) return at + __builtin_ctz(found);
    }
#endif
    while (end - at >= 8 && !roquet_has(roquet_word(at), byte)) at += 8;
    while (at < end && *at != byte) at++;
    return at;
}

/* How many leading bytes, in steps of eight, are ASCII and not NUL. */
static inline size_t roquet_ascii_run(const unsigned char *at, size_t size) {
    size_t done = 0;
    while (size - done >= 8) {
        uint64_t word = roquet_word(at + done);
        if ((word & ROQUET_HIGHS) | roquet_has_below(word, 1)) break;
        done += 8;
    }
    return done;
}

/* Whether all bytes are ASCII. */
static inline int roquet_is_ascii(const unsigned char *at, size_t size) {
    uint64_t seen = 0;
    for (; size >= 8; at += 8, size -= 8) seen |= roquet_word(at);
    while (size--) seen |= *at++;
    return !(seen & ROQUET_HIGHS);
}

/* Continues Java's hash over ASCII text; four steps at once do not wait for each other. */
static inline uint32_t roquet_java_hash(uint32_t hash, const unsigned char *at, size_t size) {
    for (; size >= 4; at += 4, size -= 4)
        hash = hash * 923521u + at[0] * 29791u + at[1] * 961u + at[2] * 31u + at[3];
    while (size--) hash = hash * 31u + *at++;
    return hash;
}

#endif
