// TFRecord files and file names as elements: checksums, gzip, several files, every damage.
#include "data_test.h"

#include "data/formats/crc32c.h"

#include <unistd.h>
#include <zlib.h>

static size_t put_record(uint8_t *out, const char *text)
{
    uint64_t length = strlen(text);
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(length >> 8 * i);
    uint32_t sums[2] = {mu__crc32c_mask(mu__crc32c(0, out, 8)), mu__crc32c_mask(mu__crc32c(0, text, length))};
    for (int i = 0; i < 4; i++) {
        out[8 + i] = (uint8_t)(sums[0] >> 8 * i);
        out[12 + length + (size_t)i] = (uint8_t)(sums[1] >> 8 * i);
    }
    memcpy(out + 12, text, length);
    return 16 + length;
}

// The records as text: "ab cde".
static const char *records(mu_dataset *dataset)
{
    static char text[TEXT_BYTES];
    text[0] = 0;
    MU_EACH(record, dataset) {
        size_t used = strlen(text), bytes = (size_t)mu_tensor_elements(mu_at(record, 0));
        snprintf(text + used, sizeof text - used, "%s%.*s", used > 0 ? " " : "", (int)bytes,
                 (const char *)mu_tensor_data(mu_at(record, 0)));
    }
    return text;
}

static void test_checksum(void **state)
{
    (void)state;
    assert_int_equal(mu__crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(mu__crc32c(mu__crc32c(0, "12345", 5), "6789", 4), 0xe3069283u);
    uint8_t zeros[32] = {0};
    assert_int_equal(mu__crc32c(0, zeros, 32), 0x8a9136aau);
}

static size_t example(uint8_t *file)
{
    size_t n = put_record(file, "ab");
    n += put_record(file + n, "");
    return n + put_record(file + n, "cde");
}

static void test_records(void **state)
{
    (void)state;
    uint8_t file[256];
    const char *first = temporary_file(file, example(file));
    const char *second = temporary_file(file, put_record(file, "zz"));
    assert_string_equal(records(mu_dataset_tfrecord(first)), "ab  cde");
    mu_dataset *paths = mu_dataset_paths(2, (const char *[]){first, second});
    assert_string_equal(records(mu_dataset_tfrecords(paths)), "ab  cde zz");
    assert_string_equal(records(mu_dataset_tfrecords(mu_dataset_shard(paths, 2, 1))), "zz");
    MU_EACH(path, mu_dataset_take(paths, 1))
        assert_string_equal(mu_dataset_path_of(path), first);
    unlink(first);
    unlink(second);
    records(mu_dataset_tfrecord(first));
    expect_error(MU_NOT_FOUND, first);
    records(mu_dataset_tfrecords(mu_dataset_range(0, 2, 1)));
    expect_error(MU_INVALID_ARGUMENT, "not a file name");
}

static mu_dataset *read_file(mu_value *element, void *arg)
{
    (void)arg;
    return mu_dataset_tfrecord(mu_dataset_path_of(element));
}

static void test_gzip_interleaved(void **state)
{
    (void)state;
    uint8_t file[256];
    size_t n = example(file);
    const char *plain = temporary_file(file, n), *packed = temporary_file("", 0);
    gzFile gz = gzopen(packed, "wb");
    gzwrite(gz, file, (unsigned)n);
    gzclose(gz);
    mu_dataset *paths = mu_dataset_paths(2, (const char *[]){plain, packed});
    assert_string_equal(records(mu_dataset_interleave(paths, read_file, NULL, .cycle_length = 2)), "ab ab   cde cde");
    unlink(plain);
    unlink(packed);
}

static void test_damage(void **state)
{
    (void)state;
    uint8_t file[256];
    size_t n = example(file);
    for (size_t i = 0; i <= n; i++) {
        size_t bytes = i == n ? n - 1 : n;
        file[i < n ? i : 0] ^= i < n ? 0x10 : 0;
        const char *path = temporary_file(file, bytes);
        records(mu_dataset_tfrecord(path));
        expect_error(MU_DATA_LOSS, path);
        unlink(path);
        file[i < n ? i : 0] ^= i < n ? 0x10 : 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_checksum),
        DATA_TEST(test_records),
        DATA_TEST(test_gzip_interleaved),
        DATA_TEST(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
