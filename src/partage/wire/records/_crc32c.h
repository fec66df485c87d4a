/* CRC-32C (Castagnoli, RFC 3720 appendix B.4). Uses the processor's CRC instruction if it has one,
 * otherwise eight tables, which process eight bytes in each step.
 *
 * Each CRC instruction depends on the result of the previous one. Processors with a carry-less
 * multiplication of two 16-byte lanes therefore fold large inputs first. Folding multiplies 128
 * bytes and adds them to the next 128, which leaves the remainder unchanged (V. Gopal et al.,
 * "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", 2009).
 *
 * Call crc32c_init() before crc32c(). */

#ifndef PARTAGE_CRC32C_H
#define PARTAGE_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)
#define PARTAGE_CRC32C_SSE42 1
#if defined(__clang__) ? __clang_major__ >= 9 : __GNUC__ >= 10
#define PARTAGE_CRC32C_FOLDS 1
#include <immintrin.h>
#endif
#elif defined(__GNUC__) && defined(__ARM_FEATURE_CRC32)
#define PARTAGE_CRC32C_ARM 1
#include <arm_acle.h>
#endif

static uint32_t crc32c_table[8][256];
static uint32_t (*crc32c_run)(uint32_t, const uint8_t *, size_t);

static uint32_t crc32c_by_tables(uint32_t crc, const uint8_t *at, size_t size)
{
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                              (uint32_t)at[3] << 24);
        crc = crc32c_table[7][low & 0xFF] ^ crc32c_table[6][low >> 8 & 0xFF] ^
              crc32c_table[5][low >> 16 & 0xFF] ^ crc32c_table[4][low >> 24] ^
              crc32c_table[3][at[4]] ^ crc32c_table[2][at[5]] ^ crc32c_table[1][at[6]] ^
              crc32c_table[0][at[7]];
        at += 8;
        size -= 8;
    }
    while (size--)
        crc = crc32c_table[0][(crc ^ *at++) & 0xFF] ^ crc >> 8;
    return crc;
}

#ifdef PARTAGE_CRC32C_SSE42
__attribute__((target("sse4.2")))
static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *at, size_t size)
{
    uint64_t wide = crc;
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = __builtin_ia32_crc32di(wide, word);
        at += 8;
        size -= 8;
    }
    crc = (uint32_t)wide;
    while (size--)
        crc = __builtin_ia32_crc32qi(crc, *at++);
    return crc;
}
#endif

#ifdef PARTAGE_CRC32C_FOLDS
#define PARTAGE_CRC32C_FOLDED_MIN 256

/* Factors that move 16 bytes forward by 128, 32 or 16 bytes; lower half first. */
static uint64_t crc32c_by_128[2], crc32c_by_32[2], crc32c_by_16[2];

/* Returns x to the power of n modulo the polynomial, highest power in the lowest bit. */
static uint32_t crc32c_power(int n)
{
    uint32_t value = 0x80000000u;
    while (n--)
        value = value >> 1 ^ (value & 1 ? 0x82F63B78u : 0);
    return value;
}

/* In this bit order the product of two 64-bit halves is one power too high. A 32-bit constant in
 * the lower half of 64 bits adds another 32. The lower half of 16 bytes comes first in the message,
 * so it moves 64 bits further. */
static void crc32c_init_distance(uint64_t by[2], int bytes)
{
    by[0] = crc32c_power(8 * bytes + 64 - 33);
    by[1] = crc32c_power(8 * bytes - 33);
}

#define PARTAGE_CRC32C_FOLDING __attribute__((target("sse4.2,avx2,pclmul,vpclmulqdq")))

PARTAGE_CRC32C_FOLDING
static inline __m256i crc32c_folded(__m256i lanes, const uint64_t by[2], __m256i into)
{
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)by));
    return _mm256_xor_si256(into, _mm256_xor_si256(_mm256_clmulepi64_epi128(lanes, twice, 0x00),
                                                   _mm256_clmulepi64_epi128(lanes, twice, 0x11)));
}

PARTAGE_CRC32C_FOLDING
static uint32_t crc32c_by_folding(uint32_t crc, const uint8_t *at, size_t size)
{
    if (size >= PARTAGE_CRC32C_FOLDED_MIN) {
        __m256i lanes[4];
        for (int i = 0; i < 4; i++)
            lanes[i] = _mm256_loadu_si256((const __m256i *)at + i);
        lanes[0] = _mm256_xor_si256(lanes[0], _mm256_zextsi128_si256(_mm_cvtsi32_si128((int)crc)));
        for (at += 128, size -= 128; size >= 128; at += 128, size -= 128)
            for (int i = 0; i < 4; i++)
                lanes[i] = crc32c_folded(lanes[i], crc32c_by_128,
                                        _mm256_loadu_si256((const __m256i *)at + i));
        for (int i = 1; i < 4; i++)
            lanes[i] = crc32c_folded(lanes[i - 1], crc32c_by_32, lanes[i]);
        /* Fold the first half of these 32 bytes into the second. */
        const __m256i last = _mm256_zextsi128_si256(_mm256_extracti128_si256(lanes[3], 1));
        const __m128i rest = _mm256_castsi256_si128(
            crc32c_folded(_mm256_zextsi128_si256(_mm256_castsi256_si128(lanes[3])),
                          crc32c_by_16, last));
        uint64_t wide = __builtin_ia32_crc32di(0, (uint64_t)_mm_cvtsi128_si64(rest));
        crc = (uint32_t)__builtin_ia32_crc32di(wide, (uint64_t)_mm_extract_epi64(rest, 1));
    }
    return crc32c_by_instruction(crc, at, size);
}
#endif

#ifdef PARTAGE_CRC32C_ARM
static uint32_t crc32c_by_instruction(uint32_t crc, const uint8_t *at, size_t size)
{
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        crc = __crc32cd(crc, word);
        at += 8;
        size -= 8;
    }
    while (size--)
        crc = __crc32cb(crc, *at++);
    return crc;
}
#endif

static void crc32c_init(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        crc32c_table[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t before = crc32c_table[table - 1][byte];
            crc32c_table[table][byte] = before >> 8 ^ crc32c_table[0][before & 0xFF];
        }
    crc32c_run = crc32c_by_tables;
#if defined(PARTAGE_CRC32C_SSE42)
    if (__builtin_cpu_supports("sse4.2"))
        crc32c_run = crc32c_by_instruction;
#ifdef PARTAGE_CRC32C_FOLDS
    if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("vpclmulqdq")) {
        crc32c_init_distance(crc32c_by_128, 128);
        crc32c_init_distance(crc32c_by_32, 32);
        crc32c_init_distance(crc32c_by_16, 16);
        crc32c_run = crc32c_by_folding;
    }
#endif
#elif defined(PARTAGE_CRC32C_ARM)
    crc32c_run = crc32c_by_instruction;
#endif
}

/* Returns the checksum of bytes that follow those with the checksum crc. */
static inline uint32_t crc32c_continued(uint32_t crc, const uint8_t *at, size_t size)
{
    return ~crc32c_run(~crc, at, size);
}

static inline uint32_t crc32c(const uint8_t *at, size_t size)
{
    return crc32c_continued(0, at, size);
}

#endif
