// CRC-32C (Castagnoli), and the masked form that TFRecord and TensorFlow's checkpoints store.
#ifndef MU_SRC_DATA_CRC32C_H
#define MU_SRC_DATA_CRC32C_H

#include <stddef.h>
#include <stdint.h>

// mu__crc32c continues from `crc` (0 at the start).
uint32_t mu__crc32c(uint32_t crc, const void *data, size_t bytes);

static inline uint32_t mu__crc32c_mask(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; }

#endif
