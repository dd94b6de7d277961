/* CRC-32 (the polynomial of zlib), for compiled code.
 *
 * roquet_crc32() folds 256 or 64 bytes a step with carry-less multiplication where the CPU has it,
 * and walks eight tables otherwise. All return the same as zlib.crc32.
 */
#ifndef ROQUET_CRC32_H
#define ROQUET_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t roquet_crc_table[8][256];
static int roquet_crc_ready = 0;
static int roquet_crc_folds = 0;
static int roquet_crc_folds_wide = 0;

#if defined(__x86_64__) && defined(__GNUC__)
#define ROQUET_HAS_FOLD 1
#include <immintrin.h>
#else
#define ROQUET_HAS_FOLD 0
#endif

/* The compiler knows 512-bit carry-less multiplication. */
#if ROQUET_HAS_FOLD && (__GNUC__ >= 8 || (defined(__clang__) && __clang_major__ >= 8))
#define ROQUET_HAS_WIDE_FOLD 1
#else
#define ROQUET_HAS_WIDE_FOLD 0
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
#if ROQUET_HAS_WIDE_FOLD
    roquet_crc_folds_wide = roquet_crc_folds && __builtin_cpu_supports("avx512f") &&
                            __builtin_cpu_supports("vpclmulqdq");
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

/* Constants for folding by a distance in bits: x^(bits - 32) and x^(bits + 32), reflected. */
#define ROQUET_BY_128 _mm_set_epi64x(0x0ccaa009e, 0x1751997d0)
#define ROQUET_BY_512 _mm_set_epi64x(0x1c6e41596, 0x154442bd4)
#define ROQUET_BY_2048 _mm_set_epi64x(0x1322d1430, 0x11542778a)

/* The state of 64 bytes in four lanes, moved over the 16-byte blocks of `data` that are left. */
__attribute__((target("pclmul,sse4.1"))) static inline uint32_t
roquet_crc_reduced(__m128i a, __m128i b, __m128i c, __m128i d, const unsigned char *data,
                   size_t blocks) {
    const __m128i by_128 = ROQUET_BY_128;
    const __m128i by_64 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
    a = roquet_fold(a, by_128, b);
    a = roquet_fold(a, by_128, c);
    a = roquet_fold(a, by_128, d);
    for (; blocks; blocks--, data += 16)
        a = roquet_fold(a, by_128, _mm_loadu_si128((const __m128i *)data));
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

/* size >= 64; returns the state after the last whole block of 16 bytes. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t
roquet_crc_folded(uint32_t crc, const unsigned char *data, size_t size) {
    const __m128i by_512 = ROQUET_BY_512;
    const unsigned char *at = data + 64;
    __m128i a = _mm_loadu_si128((const __m128i *)data);
    __m128i b = _mm_loadu_si128((const __m128i *)(data + 16));
    __m128i c = _mm_loadu_si128((const __m128i *)(data + 32));
    __m128i d = _mm_loadu_si128((const __m128i *)(data + 48));
    a = _mm_xor_si128(a, _mm_cvtsi32_si128((int)crc));
    for (size -= 64; size >= 64; size -= 64, at += 64) {
        a = roquet_fold(a, by_512, _mm_loadu_si128((const __m128i *)at));
        b = roquet_fold(b, by_512, _mm_loadu_si128((const __m128i *)(at + 16)));
        c = roquet_fold(c, by_512, _mm_loadu_si128((const __m128i *)(at + 32)));
        d = roquet_fold(d, by_512, _mm_loadu_si128((const __m128i *)(at + 48)));
    }
    return roquet_crc_reduced(a, b, c, d, at, size / 16);
}

#if ROQUET_HAS_WIDE_FOLD
#define ROQUET_WIDE __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1")))

/* Four lanes of 128 bits moved forward at once. */
ROQUET_WIDE static inline __m512i roquet_fold_wide(__m512i lanes, __m512i powers, __m512i data) {
    __m512i low = _mm512_clmulepi64_epi128(lanes, powers, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(lanes, powers, 0x11);
    return _mm512_ternarylogic_epi64(low, high, data, 0x96); /* all three xored */
}

/* As roquet_crc_folded() with 256 bytes a step; size >= 256. */
ROQUET_WIDE static uint32_t
roquet_crc_folded_wide(uint32_t crc, const unsigned char *data, size_t size) {
    const __m512i by_512 = _mm512_broadcast_i32x4(ROQUET_BY_512);
    const __m512i by_2048 = _mm512_broadcast_i32x4(ROQUET_BY_2048);
    const unsigned char *at = data + 256;
    __m512i start = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc));
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(data), start);
    __m512i b = _mm512_loadu_si512(data + 64);
    __m512i c = _mm512_loadu_si512(data + 128);
    __m512i d = _mm512_loadu_si512(data + 192);
    for (size -= 256; size >= 256; size -= 256, at += 256) {
        a = roquet_fold_wide(a, by_2048, _mm512_loadu_si512(at));
        b = roquet_fold_wide(b, by_2048, _mm512_loadu_si512(at + 64));
        c = roquet_fold_wide(c, by_2048, _mm512_loadu_si512(at + 128));
        d = roquet_fold_wide(d, by_2048, _mm512_loadu_si512(at + 192));
    }
    b = roquet_fold_wide(a, by_512, b);
    c = roquet_fold_wide(b, by_512, c);
    d = roquet_fold_wide(c, by_512, d);
    for (; size >= 64; size -= 64, at += 64)
        d = roquet_fold_wide(d, by_512, _mm512_loadu_si512(at));
    return roquet_crc_reduced(_mm512_castsi512_si128(d), _mm512_extracti32x4_epi32(d, 1),
                              _mm512_extracti32x4_epi32(d, 2), _mm512_extracti32x4_epi32(d, 3),
                              at, size / 16);
}
#endif
#endif

static uint32_t roquet_crc32(const unsigned char *data, size_t size) {
    uint32_t crc = 0xFFFFFFFFu;
    roquet_crc32_init();
#if ROQUET_HAS_FOLD
    if (size >= 64 && roquet_crc_folds) {
#if ROQUET_HAS_WIDE_FOLD
        if (size >= 256 && roquet_crc_folds_wide)
            crc = roquet_crc_folded_wide(crc, data, size);
        else
#endif
            crc = roquet_crc_folded(crc, data, size);
        data += size & ~(size_t)15;
        size &= 15;
    }
#endif
    return ~roquet_crc_bytes(crc, data, size);
}

#endif
