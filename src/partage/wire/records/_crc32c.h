/* CRC-32C (Castagnoli, RFC 3720 appendix B.4): by the processor's own instruction where there is
 * one, otherwise by eight tables, eight bytes a step.
 *
 * crc32c_init() must have run before crc32c(). */

#ifndef PARTAGE_CRC32C_H
#define PARTAGE_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && defined(__x86_64__)
#define PARTAGE_CRC32C_SSE42 1
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
#elif defined(PARTAGE_CRC32C_ARM)
    crc32c_run = crc32c_by_instruction;
#endif
}

static inline uint32_t crc32c(const uint8_t *at, size_t size)
{
    return ~crc32c_run(~0u, at, size);
}

#endif
