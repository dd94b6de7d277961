/* CRC-32 (the polynomial of zlib), for compiled code.
 *
 * roquet_crc32() folds 64 bytes a step with carry-less multiplication where the CPU has it,
 * and walks eight tables otherwise. Both return the same as zlib.crc32.
 */
#ifndef ROQUET_CRC32_H
#define ROQUET_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t roquet_crc_table[8][256];
static int roquet_crc_ready = 0;
static int roquet_crc_folds = 0;

#if defined(__x86_64__) && defined(__GNUC__)
#define ROQUET_HAS_FOLD 1
#include <immintrin.h>
#else
#define ROQUET_HAS_FOLD 0
#endif

static void roquet_crc32_init(void) {
    if (roquet_crc_ready) return;
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
        roquet_crc_table[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t previous = roquet_crc_table[slice - 1][byte];
            roquet_crc_table[slice][byte] =
                (previous >> 8) ^ roquet_crc_table[0][previous & 0xFF];
        }
#if ROQUET_HAS_FOLD
    __builtin_cpu_init();
    roquet_crc_folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
    roquet_crc_ready = 1;
}

static uint32_t roquet_crc_bytes(uint32_t crc, const unsigned char *data, size_t size) {
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 |
                              (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = roquet_crc_table[7][low & 0xFF] ^ roquet_crc_table[6][(low >> 8) & 0xFF] ^
              roquet_crc_table[5][(low >> 16) & 0xFF] ^ roquet_crc_table[4][low >> 24] ^
              roquet_crc_table[3][data[4]] ^ roquet_crc_table[2][data[5]] ^
              roquet_crc_table[1][data[6]] ^ roquet_crc_table[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--) crc = (crc >> 8) ^ roquet_crc_table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if ROQUET_HAS_FOLD
/* One 128-bit lane moved forward: both halves multiplied by their power of x, data added. */
__attribute__((target("pclmul,sse4.1"))) static inline __m128i
roquet_fold(__m128i lane, __m128i powers, __m128i data) {
    __m128i low = _mm_clmulepi64_si128(lane, powers, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), data);
}

/* size >= 64; returns the state and sets *used to the bytes consumed, a multiple of 16. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t
roquet_crc_folded(uint32_t crc, const unsigned char *data, size_t size, size_t *used) {
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
    const unsigned char *at = data;
    __m128i a = _mm_loadu_si128((const __m128i *)at);
    __m128i b = _mm_loadu_si128((const __m128i *)(at + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(at + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(at + 48));
    a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)crc));
    at += 64;
    size -= 64;
    while (size >= 64) {
        a = roquet_fold(a, by_512, _mm_loadu_si128((const __m128i *)at));
        b = roquet_fold(b, by_512, _mm_loadu_si128((const __m128i *)(at + 16)));
        c = roquet_fold(c, by_512, _mm_loadu_si128((const __m128i *)(at + 32)));
        d = roquet_fold(d, by_512, _mm_loadu_si128((const __m128i *)(at + 48)));
        at += 64;
        size -= 64;
    }
    a = roquet_fold(a, by_128, b);
    a = roquet_fold(a, by_128, c);
    a = roquet_fold(a, by_128, d);
    while (size >= 16) {
        a = roquet_fold(a, by_128, _mm_loadu_si128((const __m128i *)at));
        at += 16;
        size -= 16;
    }
    *used = (size_t)(at - data);
    /* 128 bits to 64, 64 to 32, then Barrett's reduction. */
    b = _mm_clmulepi64_si128(a, by_128, 0x10);
    a = _mm_xor_si128(_mm_srli_si128(a, 8), b);
    b = _mm_srli_si128(a, 4);
    a = _mm_clmulepi64_si128(_mm_and_si128(a, low_words), by_64, 0x00);
    a = _mm_xor_si128(a, b);
    b = _mm_clmulepi64_si128(_mm_and_si128(a, low_words), barrett, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, low_words), barrett, 0x00);
    a = _mm_xor_si128(a, b);
    return (uint32_t)_mm_extract_epi32(a, 1);
}
#endif

static uint32_t roquet_crc32(const unsigned char *data, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    roquet_crc32_init();
#if ROQUET_HAS_FOLD
    if (size >= 64 && roquet_crc_folds) {
        size_t used = 0;
        crc = roquet_crc_folded(crc, data, size, &used);
        data += used;
        size -= used;
    }
#endif
    return ~roquet_crc_bytes(crc, data, size);
}

#endif
