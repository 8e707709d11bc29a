// NumPy's files: types, byte orders, archives stored and deflated, and every way in which a header can lie.
#include "data_test.h"

#include "data/formats/npy.h"

#include <unistd.h>
#include <zlib.h>

// Writes a version 1 file into `out` and returns its size.
static size_t npy(uint8_t *out, const char *dictionary, const void *data, size_t bytes)
{
    size_t header = strlen(dictionary);
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (uint8_t)header;
    out[9] = (uint8_t)(header >> 8);
    memcpy(out + 10, dictionary, header);
    if (bytes > 0)
        memcpy(out + 10 + header, data, bytes);
    return 10 + header + bytes;
}

#define DICTIONARY(type, shape) "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }          \n"

static mu_dataset *npy_of(const char *dictionary, const void *data, size_t bytes)
{
    uint8_t file[512];
    size_t n = npy(file, dictionary, data, bytes);
    const char *path = temporary_file(file, n);
    mu_dataset *dataset = mu_dataset_npy(path);
    unlink(path);
    return dataset;
}

static void test_types(void **state)
{
    (void)state;
    assert_elements(npy_of(DICTIONARY("<f4", "(2, 2)"), (float[]){1, 2, 3, 4.5f}, 16), "[1 2] [3 4.5]");
    assert_elements(npy_of(DICTIONARY("<i8", "(2,)"), (int64_t[]){-7, 1}, 16), "-7 1");
    assert_elements(npy_of(DICTIONARY(">i2", "(2,)"), (uint8_t[]){1, 2, 0xff, 0xfe}, 4), "258 -2");
    assert_elements(npy_of(DICTIONARY("|b1", "(3,)"), (uint8_t[]){0, 1, 7}, 3), "0 1 1");
    assert_elements(npy_of(DICTIONARY("|u1", "(0, 3)"), NULL, 0), "");
    assert_elements(npy_of("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3), }",
                           (uint8_t[]){0, 1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6}, 12),
                    "[1 2 3] [4 5 6]");
    assert_elements(
        npy_of("{'descr': '|i1', 'fortran_order': True, 'shape': (2, 2, 2), }", (int8_t[]){0, 4, 2, 6, 1, 5, 3, 7}, 8),
        "[0 1|2 3] [4 5|6 7]");
    assert_elements(npy_of("{'descr': '|i1', 'fortran_order': True, 'shape': (0, 2), }", NULL, 0), "");
}

static void test_lies(void **state)
{
    (void)state;
    float two[2] = {1, 2};
    npy_of(DICTIONARY("<f4", "(3,)"), two, 8);
    expect_error(MU_DATA_LOSS, "8 bytes of elements seen, 12 expected");
    npy_of(DICTIONARY("<f4", "(4611686018427387904, 4611686018427387904)"), two, 8);
    assert_int_not_equal(mu_error_take().code, MU_OK);
    npy_of(DICTIONARY("<f4", "(99999999999999999999,)"), two, 8);
    expect_error(MU_DATA_LOSS, "dimension is too large");
    npy_of(DICTIONARY("<f4", "(-1,)"), two, 8);
    expect_error(MU_DATA_LOSS, "not a list of numbers");
    npy_of(DICTIONARY("<c8", "(1,)"), two, 8);
    expect_error(MU_UNIMPLEMENTED, "<c8");
    npy_of("{'descr': '<f4', 'fortran_order': maybe, 'shape': (2,)}", two, 8);
    expect_error(MU_DATA_LOSS, "neither True nor False");
    npy_of("{'descr': '<f4'", two, 8);
    expect_error(MU_DATA_LOSS, "no 'fortran_order'");
    npy_of(DICTIONARY("<f4", "()"), two, 4);
    expect_error(MU_INVALID_ARGUMENT, "no axis 0");
    assert_null(mu__npy_parse("x", "\x93NUM", 4));
    expect_error(MU_DATA_LOSS, "version 1 to 3");
}

// ---- Archives -----------------------------------------------------------------------------------

static uint8_t *put(uint8_t *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++, value >>= 8)
        *at++ = (uint8_t)value;
    return at;
}

typedef struct part {
    const char *name;
    uint8_t data[512], packed[600];
    size_t bytes, packed_bytes;
    bool deflated;
} part;

static void pack(part *entry)
{
    z_stream z = {.next_in = entry->data,
                  .avail_in = (uInt)entry->bytes,
                  .next_out = entry->packed,
                  .avail_out = sizeof entry->packed};
    if (!entry->deflated) {
        memcpy(entry->packed, entry->data, entry->bytes);
        entry->packed_bytes = entry->bytes;
        return;
    }
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    entry->packed_bytes = sizeof entry->packed - z.avail_out;
    deflateEnd(&z);
}

static uint8_t *put_common(uint8_t *at, const part *entry)
{
    at = put(at, 20, 2);
    at = put(at, 0, 2);
    at = put(at, entry->deflated ? 8 : 0, 2);
    at = put(at, 0, 4);
    at = put(at, crc32(0, entry->data, (uInt)entry->bytes), 4);
    at = put(at, entry->packed_bytes, 4);
    at = put(at, entry->bytes, 4);
    at = put(at, strlen(entry->name), 2);
    return put(at, 0, 2);
}

static size_t zip(uint8_t *out, part *parts, int n)
{
    uint8_t *at = out;
    size_t offsets[4];
    for (int i = 0; i < n; i++) {
        pack(&parts[i]);
        offsets[i] = (size_t)(at - out);
        at = put_common(put(at, 0x04034b50, 4), &parts[i]);
        at = (uint8_t *)memcpy(at, parts[i].name, strlen(parts[i].name)) + strlen(parts[i].name);
        at = (uint8_t *)memcpy(at, parts[i].packed, parts[i].packed_bytes) + parts[i].packed_bytes;
    }
    uint8_t *directory = at;
    for (int i = 0; i < n; i++) {
        at = put_common(put(put(at, 0x02014b50, 4), 20, 2), &parts[i]);
        at = put(at, 0, 2 + 2 + 2 + 4);
        at = put(at, offsets[i], 4);
        at = (uint8_t *)memcpy(at, parts[i].name, strlen(parts[i].name)) + strlen(parts[i].name);
    }
    size_t directory_bytes = (size_t)(at - directory);
    at = put(put(put(at, 0x06054b50, 4), 0, 4), (uint64_t)n, 2);
    at = put(put(put(at, (uint64_t)n, 2), directory_bytes, 4), (uint64_t)(directory - out), 4);
    return (size_t)(put(at, 0, 2) - out);
}

static size_t example(uint8_t *file)
{
    part parts[2] = {{.name = "x.npy", .deflated = true}, {.name = "y.npy"}};
    parts[0].bytes = npy(parts[0].data, DICTIONARY("<f4", "(3, 2)"), (float[]){1, 2, 3, 4, 5, 6}, 24);
    parts[1].bytes = npy(parts[1].data, DICTIONARY("<i4", "(3,)"), (int32_t[]){7, 8, 9}, 12);
    return zip(file, parts, 2);
}

static void test_archive(void **state)
{
    (void)state;
    uint8_t file[2048];
    const char *path = temporary_file(file, example(file));
    mu_dataset *dataset = mu_dataset_npz(path);
    unlink(path);
    assert_elements(dataset, "([1 2],7) ([3 4],8) ([5 6],9)");
    mu_value *spec = mu__dataset_spec(dataset);
    assert_string_equal(mu_value_key(spec, 0), "x");
    mu_release(spec);
}

// A file that is cut anywhere, or with any single byte changed, has the same elements or is an error.
static void test_archive_damage(void **state)
{
    (void)state;
    uint8_t file[2048];
    size_t n = example(file);
    for (size_t cut = 0; cut < n; cut++) {
        assert_null(mu__npz_parse("cut", file, cut));
        assert_int_not_equal(mu_error_take().code, MU_OK);
    }
    for (size_t i = 0; i < n; i++) {
        file[i] ^= 0x41;
        mu_value *value = mu__npz_parse("damaged", file, n);
        assert_true((value == NULL) == (mu_error_take().code != MU_OK));
        mu_release(value);
        file[i] ^= 0x41;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_types),
        DATA_TEST(test_lies),
        DATA_TEST(test_archive),
        DATA_TEST(test_archive_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
