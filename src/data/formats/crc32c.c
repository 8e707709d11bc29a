// CRC-32C eight bytes at a time, by tables made at first use; see crc32c.h.
#include "data/formats/crc32c.h"

#include <pthread.h>

#define POLYNOMIAL 0x82f63b78u // reversed

static uint32_t tables[8][256]; // tables[k][b]: byte b, followed by k zero bytes
static pthread_once_t tables_once = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][byte] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (uint32_t byte = 0; byte < 256; byte++)
            tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 255];
}

uint32_t mu__crc32c(uint32_t crc, const void *data, size_t bytes)
{
    const uint8_t *p = data;
    pthread_once(&tables_once, make_tables);
    crc = ~crc;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        crc ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        crc = tables[7][crc & 255] ^ tables[6][crc >> 8 & 255] ^ tables[5][crc >> 16 & 255] ^ tables[4][crc >> 24] ^
              tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^ tables[0][p[7]];
    }
    for (; bytes > 0; p++, bytes--)
        crc = crc >> 8 ^ tables[0][(crc ^ *p) & 255];
    return ~crc;
}
