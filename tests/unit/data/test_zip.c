// Zip archives of 4 GiB and more: the records that PKWARE's APPNOTE 6.3 has for them, in 4.3.14, 4.3.15 and 4.5.3.
#include "data_test.h"

#include "data/formats/zip.h"

#include <sys/mman.h>
#include <unistd.h>

enum { LOCAL_BYTES = 30, EXTRA_BYTES = 20 };
static const uint64_t START = UINT64_C(5) << 30;
static const char TEXT[] = "behind five gibibytes";

// An archive as it would stand behind START bytes of earlier members, without these.
static uint8_t *write_archive(size_t *bytes)
{
    const char *path = temporary_file("", 0);
    mu_zip_writer zip = {.file = mu__file_create(path), .at = START};
    assert_non_null(zip.file);
    assert_int_equal(mu__zip_add(&zip, "a", 2, (mu_zip_piece[]){{TEXT, 6}, {TEXT + 6, sizeof TEXT - 6}}), MU_OK);
    assert_int_equal(mu__zip_add(&zip, "b", 0, NULL), MU_OK);
    assert_int_equal(mu__zip_finish(&zip), MU_OK);
    assert_int_equal(mu__file_commit(zip.file), MU_OK);
    *bytes = (size_t)(zip.at - START);
    mu__zip_free(&zip);
    uint8_t *archive = test_malloc(*bytes);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(archive, 1, *bytes, file), *bytes);
    fclose(file);
    unlink(path);
    return archive;
}

static uint64_t number(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

// Readers that take members one after another look at this header only.
static void test_local_headers(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *archive = write_archive(&bytes);
    const uint8_t *extra = archive + LOCAL_BYTES + strlen("a");
    assert_true(bytes > LOCAL_BYTES + 1 + EXTRA_BYTES + sizeof TEXT);
    assert_int_equal(number(archive, 4), 0x04034b50);
    assert_int_equal(number(archive + 4, 2), 45);          // the version that knows the 64-bit kind
    assert_int_equal(number(archive + 18, 4), UINT32_MAX); // packed
    assert_int_equal(number(archive + 22, 4), UINT32_MAX); // size
    assert_int_equal(number(archive + 28, 2), EXTRA_BYTES);
    assert_int_equal(number(extra, 2), 1);
    assert_int_equal(number(extra + 2, 2), EXTRA_BYTES - 4);
    assert_int_equal(number(extra + 4, 8), sizeof TEXT);  // size
    assert_int_equal(number(extra + 12, 8), sizeof TEXT); // packed
    assert_memory_equal(extra + EXTRA_BYTES, TEXT, sizeof TEXT);
    test_free(archive);
}

static void expect_member(mu_zip *zip, const char *name, const void *data, size_t bytes)
{
    const uint8_t *read;
    uint8_t *own;
    const mu_zip_entry *entry = mu__zip_find(zip, name);
    assert_non_null(entry);
    assert_int_equal(entry->size, bytes);
    assert_true(entry->offset >= START);
    assert_int_equal(mu__zip_read(zip, entry, &read, &own), MU_OK);
    assert_memory_equal(read, data, bytes);
    mu__free(own);
}

// The bytes before the archive are never touched, so they take address space only.
static void test_reading_it_back(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *archive = write_archive(&bytes);
    const size_t all = (size_t)START + bytes;
    uint8_t *memory = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    memcpy(memory + START, archive, bytes);
    mu_zip zip;
    assert_int_equal(mu__zip_open(&zip, "large.zip", memory, all), MU_OK);
    assert_int_equal(zip.entries.n, 2);
    expect_member(&zip, "a", TEXT, sizeof TEXT);
    expect_member(&zip, "b", "", 0);
    mu__zip_close(&zip);
    munmap(memory, all);
    test_free(archive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {DATA_TEST(test_local_headers), DATA_TEST(test_reading_it_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
