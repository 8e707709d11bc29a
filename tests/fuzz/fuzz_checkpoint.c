// Fuzzes the reader of TensorFlow's checkpoints. The input is an index behind its length in two bytes, then the shard.
// Checksums are put right, so that what they cover is read too.
#include "io/io.h"

#include "data/formats/crc32c.h"

#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char folder[] = "/tmp/muster-fuzz-XXXXXX", index_path[64], data_path[64], prefix[32];

static void remove_files(void)
{
    unlink(index_path);
    unlink(data_path);
    rmdir(folder);
}

static void make_folder(void)
{
    if (*prefix)
        return;
    if (!mkdtemp(folder))
        abort();
    snprintf(prefix, sizeof prefix, "%s/c", folder);
    snprintf(index_path, sizeof index_path, "%s.index", prefix);
    snprintf(data_path, sizeof data_path, "%s.data-00000-of-00001", prefix);
    atexit(remove_files);
}

static void write_file(const char *path, const uint8_t *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
        abort();
}

static uint64_t varint(const uint8_t **at, const uint8_t *end)
{
    uint64_t value = 0;
    for (int shift = 0; *at < end && shift < 64; shift += 7) {
        const uint8_t byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            break;
    }
    return value;
}

static void mend(uint8_t *data, size_t bytes, uint64_t offset, uint64_t size)
{
    if (offset > bytes || size > bytes - offset || bytes - offset - size < 5)
        return;
    const uint32_t sum = mu__crc32c_mask(mu__crc32c(0, data + offset, (size_t)size + 1));
    for (int i = 0; i < 4; i++)
        data[offset + size + 1 + (uint64_t)i] = (uint8_t)(sum >> 8 * i);
}

// The footer's two blocks, and a first block that ends where the next begins.
static void mend_index(uint8_t *data, size_t bytes)
{
    if (bytes < 48)
        return;
    const uint8_t *at = data + bytes - 48, *end = data + bytes;
    const uint64_t metadata = varint(&at, end), metadata_size = varint(&at, end);
    const uint64_t offset = varint(&at, end), size = varint(&at, end);
    mend(data, bytes, metadata, metadata_size);
    mend(data, bytes, offset, size);
    if (metadata > 5)
        mend(data, bytes, 0, metadata - 5);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    make_folder();
    const size_t length = bytes < 2 ? 0 : MU_MIN((size_t)(data[0] | data[1] << 8), bytes - 2);
    uint8_t *index = malloc(length + 1);
    if (!index)
        abort();
    if (length > 0)
        memcpy(index, data + 2, length);
    mend_index(index, length);
    write_file(index_path, index, length);
    write_file(data_path, bytes < 2 ? data : data + 2 + length, bytes < 2 ? 0 : bytes - 2 - length);
    mu_pool *pool = mu_pool_open();
    mu_value *map = mu_load_tensors(prefix);
    if (!map == !mu_error_code())
        abort();
    mu_error_take();
    mu_pool_close(pool);
    free(index);
    return 0;
}
