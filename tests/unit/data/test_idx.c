// IDX files and Fashion-MNIST: contents, types, every way a file can be damaged, files that do not fit together.
#include "../scratch.h"
#include "data_test.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define BYTES(...) (const uint8_t[]){__VA_ARGS__}, sizeof((const uint8_t[]){__VA_ARGS__})

static mu_dataset *idx_of(const uint8_t *data, size_t bytes)
{
    const char *path = temporary_file(data, bytes);
    mu_dataset *dataset = mu_dataset_idx(path);
    unlink(path);
    return dataset;
}

static void test_bytes(void **state)
{
    (void)state;
    mu_dataset *dataset = idx_of(BYTES(0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 2, 1, 2, 3, 4, 5, 255));
    assert_int_equal(mu_dataset_cardinality(dataset), 3);
    assert_elements(dataset, "[1 2] [3 4] [5 255]");
    assert_elements(mu_dataset_batch(dataset, 2), "[1 2|3 4] [5 255]");
}

static void test_big_endian(void **state)
{
    (void)state;
    assert_elements(idx_of(BYTES(0, 0, 0x0b, 1, 0, 0, 0, 2, 1, 2, 0xff, 0xfe)), "258 -2");
    assert_elements(idx_of(BYTES(0, 0, 0x0d, 1, 0, 0, 0, 1, 0x40, 0x20, 0, 0)), "2.5");
}

static void test_damage(void **state)
{
    (void)state;
    idx_of(BYTES(0, 0, 8));
    expect_error(MU_DATA_LOSS, "in the magic number: 3 bytes seen, 4 expected");
    idx_of(BYTES(0, 1, 8, 1, 0, 0, 0, 1, 7));
    expect_error(MU_DATA_LOSS, "begins with 00 01 08 01");
    idx_of(BYTES(0, 0, 7, 1, 0, 0, 0, 1, 7));
    expect_error(MU_DATA_LOSS, "begins with 00 00 07 01");
    idx_of(BYTES(0, 0, 8, 9, 0, 0, 0, 1, 7));
    expect_error(MU_DATA_LOSS, "begins with");
    idx_of(BYTES(0, 0, 8, 2, 0, 0, 0, 1, 0, 0));
    expect_error(MU_DATA_LOSS, "in the dimensions: 6 bytes seen, 8 expected");
    idx_of(BYTES(0, 0, 8, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1));
    expect_error(MU_DATA_LOSS, "claims [4294967295, 4294967295] elements");
    idx_of(BYTES(0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 0));
    expect_error(MU_DATA_LOSS, "dimension of 0");
    mu_dataset_idx("/nowhere/at-all");
    expect_error(MU_NOT_FOUND, "/nowhere/at-all");
    mu_dataset_idx("/");
    expect_error(MU_FAILED_PRECONDITION, "folder");
    assert_elements(idx_of(BYTES(0, 0, 8, 1, 0, 0, 0, 2, 1, 2, 3)), "");
    expect_error(MU_DATA_LOSS, "continues after byte 10");
}

// ---- gzip ---------------------------------------------------------------------------------------

static const char folder[] = "muster-test-fashion";

static void write_gz(const char *path, const uint8_t *data, size_t bytes)
{
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)bytes), bytes);
    gzclose(file);
}

// Writes images (n of them, image i all i) and labels (m, label i is i % 10) of the test part.
static void write_fashion(uint32_t n, uint32_t m, uint8_t side)
{
    size_t image = (size_t)side * side, bytes = 16 + n * image;
    uint8_t *data = calloc(1, bytes);
    memcpy(data, (uint8_t[]){0, 0, 8, 3, 0, 0, (uint8_t)(n >> 8), (uint8_t)n, 0, 0, 0, side, 0, 0, 0, side}, 16);
    for (uint32_t i = 0; i < n; i++)
        memset(data + 16 + i * image, (int)i, image);
    write_gz("muster-test-fashion/fashion-mnist/t10k-images-idx3-ubyte.gz", data, bytes);
    memcpy(data, (uint8_t[]){0, 0, 8, 1, 0, 0, (uint8_t)(m >> 8), (uint8_t)m}, 8);
    for (uint32_t i = 0; i < m; i++)
        data[8 + i] = (uint8_t)(i % 10);
    write_gz("muster-test-fashion/fashion-mnist/t10k-labels-idx1-ubyte.gz", data, 8 + m);
    free(data);
}

static void cut_file(const char *path, long drop)
{
    struct stat found;
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(truncate(path, found.st_size - drop), 0);
}

static void test_fashion(void **state)
{
    (void)state;
    write_fashion(5, 5, 28);
    mu_dataset *dataset = mu_dataset_fashion_mnist("test");
    assert_int_equal(mu_dataset_cardinality(dataset), 5);
    int turn = 0;
    MU_EACH(batch, mu_dataset_batch(dataset, 2)) {
        const mu_tensor *images = mu_at(batch, 0), *labels = mu_at(batch, 1);
        char text[MU_SHAPE_TEXT];
        mu_shape shape = mu_tensor_shape(images);
        assert_string_equal(mu__shape_text(&shape, text), turn < 2 ? "[2, 28, 28, 1]" : "[1, 28, 28, 1]");
        assert_true(((const float *)mu_tensor_data(images))[783] == (float)(2 * turn) / 255.0f);
        assert_int_equal(((const int32_t *)mu_tensor_data(labels))[0], 2 * turn);
        turn++;
    }
    assert_int_equal(turn, 3);
}

static void test_fashion_damage(void **state)
{
    (void)state;
    mu_dataset_fashion_mnist("training");
    expect_error(MU_INVALID_ARGUMENT, "no part \"training\"");
    mu_dataset_fashion_mnist("train");
    mu_error error = mu_error_take();
    assert_int_equal(error.code, MU_NOT_FOUND);
    assert_non_null(strstr(error.message, "train-images-idx3-ubyte.gz"));
    assert_non_null(strstr(error.message, "install the Debian package dataset-fashion-mnist or set MUSTER_DATA_DIR"));
    write_fashion(5, 6, 28);
    mu_dataset_fashion_mnist("test");
    expect_error(MU_DATA_LOSS, "5 images and 6 labels");
    write_fashion(5, 5, 27);
    mu_dataset_fashion_mnist("test");
    expect_error(MU_DATA_LOSS, "uint8 [5, 27, 27]; expected uint8 [n, 28, 28]");
    write_fashion(200, 200, 28);
    cut_file("muster-test-fashion/fashion-mnist/t10k-images-idx3-ubyte.gz", 9);
    elements(mu_dataset_batch(mu_dataset_fashion_mnist("test"), 200));
    expect_error(MU_DATA_LOSS, "cut off after");
}

static void test_gzip_damage(void **state)
{
    (void)state;
    static const char path[] = "muster-test-fashion/damaged.gz";
    write_gz(path, BYTES(0, 0, 8, 1, 0, 0, 0, 4, 1, 2, 3, 4));
    assert_elements(mu_dataset_idx(path), "1 2 3 4");
    FILE *file = fopen(path, "r+b");
    fseek(file, -8, SEEK_END); // the checksum
    fputc(fgetc(file) ^ 1, (fseek(file, -8, SEEK_END), file));
    fclose(file);
    elements(mu_dataset_idx(path));
    expect_error(MU_DATA_LOSS, "corrupt");
    write_gz(path, BYTES(0, 0, 8, 1, 0, 0, 0, 9, 1, 2, 3, 4));
    elements(mu_dataset_idx(path));
    expect_error(MU_DATA_LOSS, "in the elements: 4 bytes seen, 9 expected");
    write_gz(path, BYTES(0, 0, 8, 1, 0xff, 0, 0, 0, 1, 2, 3, 4));
    elements(mu_dataset_idx(path));
    expect_error(MU_DATA_LOSS, "can hold at most");
    unlink(path);
}

static int use_folder(void **state)
{
    if (scratch_enter(state) != 0)
        return -1;
    mkdir(folder, 0777);
    mkdir("muster-test-fashion/fashion-mnist", 0777);
    return setenv("MUSTER_DATA_DIR", folder, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DATA_TEST(test_bytes),   DATA_TEST(test_big_endian),     DATA_TEST(test_damage),
        DATA_TEST(test_fashion), DATA_TEST(test_fashion_damage), DATA_TEST(test_gzip_damage),
    };
    return cmocka_run_group_tests(tests, use_folder, scratch_leave);
}
