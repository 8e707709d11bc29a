// Tests of reading (plain, gzip, damaged, too large) and of atomic writing (also on a full disk, and when killed).
#include "base_test.h"

#include "base/temporary.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <zlib.h>

static const char *folder;
static char path[200];

static int start(void **state)
{
    (void)state;
    folder = temporary_folder();
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    remove_folder(folder);
    assert_no_error();
    return 0;
}

static void put(const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

// Compresses `bytes` bytes into a gzip member of static storage.
static const uint8_t *packed(const void *data, size_t bytes, size_t *packed_bytes)
{
    static uint8_t out[300000];
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)data;
    stream.avail_in = (unsigned)bytes;
    stream.next_out = out;
    stream.avail_out = sizeof out;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    *packed_bytes = sizeof out - stream.avail_out;
    deflateEnd(&stream);
    return out;
}

static uint8_t *noise(size_t bytes)
{
    static uint8_t data[250000];
    uint32_t x = 1;
    for (size_t i = 0; i < bytes; i++) {
        x = x * 1664525 + 1013904223;
        data[i] = (uint8_t)(x >> 24);
    }
    return data;
}

static void expect_content(const void *wanted, size_t bytes, size_t limit)
{
    void *data;
    size_t n;
    assert_int_equal(mu__file_read(path, limit, &data, &n), MU_OK);
    assert_int_equal(n, bytes);
    assert_memory_equal(data, wanted, bytes);
    assert_int_equal(((char *)data)[n], 0);
    mu__free(data);
}

static void expect_failure(size_t limit, mu_status code, const char *part)
{
    void *data;
    size_t n;
    assert_int_equal(mu__file_read(path, limit, &data, &n), code);
    assert_null(data);
    assert_non_null(strstr(mu_error_message(), path));
    assert_taken(code, part);
}

static void test_plain(void **state)
{
    (void)state;
    put("", 0);
    expect_content("", 0, 0);
    put("abc", 3);
    expect_content("abc", 3, 3);
    expect_content("abc", 3, SIZE_MAX);
    expect_failure(2, MU_RESOURCE_EXHAUSTED, "more than the 2 bytes");
    put(noise(200000), 200000);
    expect_content(noise(200000), 200000, 200000);
}

static void test_not_a_file(void **state)
{
    (void)state;
    expect_failure(10, MU_NOT_FOUND, "cannot open");
    assert_int_equal(mkfifo(path, 0600), 0);
    expect_failure(10, MU_FAILED_PRECONDITION, "pipe");
    snprintf(path, sizeof path, "%s", folder);
    expect_failure(10, MU_FAILED_PRECONDITION, "folder");
}

static void test_gzip(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 65535, 65536, 131072, 200000};
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        size_t n;
        const uint8_t *gzip = packed(noise(sizes[i]), sizes[i], &n);
        put(gzip, n);
        expect_content(noise(sizes[i]), sizes[i], sizes[i]);
        expect_content(noise(sizes[i]), sizes[i], SIZE_MAX);
        if (sizes[i] > 0)
            expect_failure(sizes[i] - 1, MU_RESOURCE_EXHAUSTED, "more than");
    }
}

static void test_gzip_bomb(void **state)
{
    (void)state;
    static uint8_t zeros[20 << 20];
    size_t n;
    const uint8_t *gzip = packed(zeros, sizeof zeros, &n);
    assert_true(n < 30000);
    put(gzip, n);
    expect_failure(1000, MU_RESOURCE_EXHAUSTED, "more than the 1000 bytes");
    expect_content(zeros, sizeof zeros, sizeof zeros);
}

static void test_gzip_members_and_padding(void **state)
{
    (void)state;
    uint8_t file[500];
    size_t first, second;
    const uint8_t *gzip = packed("abc", 3, &first);
    memcpy(file, gzip, first);
    gzip = packed("def", 3, &second);
    memcpy(file + first, gzip, second);
    memset(file + first + second, 0, 100);
    put(file, first + second + 100);
    expect_content("abcdef", 6, 6);
    file[first + second + 50] = 7;
    put(file, first + second + 100);
    expect_failure(100, MU_DATA_LOSS, "other data follow");
}

static void test_gzip_cut_anywhere(void **state)
{
    (void)state;
    size_t n;
    const uint8_t *gzip = packed("some text, some more text", 25, &n);
    for (size_t cut = 2; cut < n; cut++) {
        char part[40];
        put(gzip, cut);
        snprintf(part, sizeof part, "at byte %zu", cut);
        expect_failure(1000, MU_DATA_LOSS, part);
    }
}

static void test_gzip_damaged(void **state)
{
    (void)state;
    size_t n;
    uint8_t file[1000];
    const uint8_t *gzip = packed("some text, some more text", 25, &n);
    memcpy(file, gzip, n);
    file[n - 6] ^= 1; // in the checksum
    put(file, n);
    expect_failure(1000, MU_DATA_LOSS, "damaged near byte");
    file[n - 6] ^= 1;
    file[3] = 0xff; // flags
    put(file, n);
    expect_failure(1000, MU_DATA_LOSS, "");
}

static void test_write_replaces(void **state)
{
    (void)state;
    put("old", 3);
    mu_file_writer *file = mu__file_create(path);
    assert_int_equal(mu__file_write(file, "n", 1), MU_OK);
    assert_int_equal(mu__file_write(file, "ew", 2), MU_OK);
    expect_content("old", 3, 10);
    assert_int_equal(mu__file_commit(file), MU_OK);
    expect_content("new", 3, 10);
    // Larger than the buffer, in odd pieces.
    file = mu__file_create(path);
    for (size_t at = 0; at < 240000; at += 30000)
        assert_int_equal(mu__file_write(file, noise(240000) + at, 30000), MU_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(mu__file_write(file, noise(240000), 240000), MU_OK);
    assert_int_equal(mu__file_commit(file), MU_OK);
    struct stat found;
    assert_int_equal(stat(path, &found), 0);
    assert_int_equal(found.st_size, 4 * 240000);
    unlink(path);
    assert_int_equal(remove_folder(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void test_abandon(void **state)
{
    (void)state;
    put("old", 3);
    mu_file_writer *file = mu__file_create(path), *other = mu__file_create(path);
    assert_non_null(other);
    assert_int_equal(mu__file_write(file, "new", 3), MU_OK);
    mu__file_abandon(file);
    mu__file_abandon(other);
    mu__file_abandon(NULL);
    expect_content("old", 3, 10);
    assert_int_equal(remove_folder(folder), 1);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static int count_files(void)
{
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

// A process that is killed while it writes leaves its temporary file.
static void kill_a_writer(void)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        mu_file_writer *file = mu__file_create(path);
        if (file != NULL && mu__file_write(file, noise(240000), 240000) == MU_OK)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int how = 0;
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
}

static void test_killed_writers_are_swept(void **state)
{
    (void)state;
    put("old", 3);
    kill_a_writer();
    assert_int_equal(count_files(), 2);
    mu__temporary_sweep(path);
    assert_int_equal(count_files(), 1);
    kill_a_writer();
    mu_file_writer *file = mu__file_create(path);
    assert_int_equal(count_files(), 2);
    assert_int_equal(mu__file_write(file, "new", 3), MU_OK);
    mu__temporary_sweep(path); // the file of a living writer is kept
    assert_int_equal(mu__file_commit(file), MU_OK);
    expect_content("new", 3, 10);
    assert_int_equal(remove_folder(folder), 1);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void test_what_may_live_stays(void **state)
{
    (void)state;
    static const char *const others[] = {".tmp-12",
                                         ".tmp-12-1",
                                         ".tmp-0123456789ab",
                                         ".tmp-0123456789ab-12",
                                         ".tmp-0123456789ab-12-x",
                                         ".tmp-0123456789abc-12-1",
                                         "x.tmp-0123456789ab-12-1"};
    char kept[sizeof path], whole[sizeof path + 40];
    put("old", 3);
    snprintf(kept, sizeof kept, "%s", path);
    for (size_t i = 0; i < MU_COUNT(others); i++) {
        snprintf(whole, sizeof whole, "%s%s", kept, others[i]);
        FILE *out = fopen(whole, "w");
        assert_non_null(out);
        fclose(out);
    }
    mu__temporary_sweep(kept);
    assert_int_equal(count_files(), 1 + (int)MU_COUNT(others));
    assert_int_equal(mu__temporary_goal("a.b.tmp-0123456789ab-12-0"), 3);
    assert_int_equal(mu__temporary_goal("a.b.tmp-0123456789ab-12-"), 0);
    assert_int_equal(mu__temporary_goal(".tmp-"), 0);
    assert_int_equal(remove_folder(folder), 1 + (int)MU_COUNT(others));
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void test_bad_goals(void **state)
{
    (void)state;
    assert_null(mu__file_create(folder));
    assert_taken(MU_FAILED_PRECONDITION, "folder");
    snprintf(path, sizeof path, "%s/none/file", folder);
    assert_null(mu__file_create(path));
    assert_taken(MU_NOT_FOUND, path);
}

// A limit on the file's size stands for a full disk: the same system call fails in the same place.
static void test_full_disk(void **state)
{
    (void)state;
    put("old", 3);
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit kept, small;
    getrlimit(RLIMIT_FSIZE, &kept);
    small = kept;
    small.rlim_cur = 100000;
    setrlimit(RLIMIT_FSIZE, &small);
    mu_file_writer *file = mu__file_create(path);
    mu_status status = mu__file_write(file, noise(240000), 240000);
    assert_int_equal(status, MU_OK);
    assert_int_equal(mu__file_write(file, noise(240000), 240000), MU_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(mu_error_message(), path));
    assert_taken(MU_RESOURCE_EXHAUSTED, "100000 bytes");
    assert_int_equal(mu__file_commit(file), MU_RESOURCE_EXHAUSTED);
    assert_taken(MU_RESOURCE_EXHAUSTED, path);
    setrlimit(RLIMIT_FSIZE, &kept);
    expect_content("old", 3, 10);
    assert_int_equal(remove_folder(folder), 1);
    assert_int_equal(mkdir(folder, 0700), 0);
}

static bool read_gzip(void *arg)
{
    (void)arg;
    void *data;
    size_t n;
    const bool succeeded = mu__file_read(path, 1000000, &data, &n) == MU_OK;
    mu__free(data);
    return succeeded;
}

static bool write_file(void *arg)
{
    (void)arg;
    mu_file_writer *file = mu__file_create(path);
    if (file == NULL)
        return false;
    mu__file_write(file, "abc", 3);
    return mu__file_commit(file) == MU_OK;
}

static void test_failing_allocations(void **state)
{
    (void)state;
    with_failing_allocations(write_file, NULL);
    with_failing_allocations(read_gzip, NULL);
    size_t n;
    const uint8_t *gzip = packed(noise(200000), 200000, &n);
    put(gzip, n);
    with_failing_allocations(read_gzip, NULL);
    unlink(path);
    assert_int_equal(remove_folder(folder), 0);
    assert_int_equal(mkdir(folder, 0700), 0);
}

// A device that a program writes to by mistake is not replaced by a file.
static void test_devices_are_not_replaced(void **state)
{
    (void)state;
    assert_null(mu__file_create("/dev/null"));
    assert_taken(MU_FAILED_PRECONDITION, "/dev/null: it is a device");
    assert_null(mu__file_create(""));
    assert_taken(MU_INVALID_ARGUMENT, "is empty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plain, start, end),
        cmocka_unit_test_setup_teardown(test_not_a_file, start, end),
        cmocka_unit_test_setup_teardown(test_gzip, start, end),
        cmocka_unit_test_setup_teardown(test_gzip_bomb, start, end),
        cmocka_unit_test_setup_teardown(test_gzip_members_and_padding, start, end),
        cmocka_unit_test_setup_teardown(test_gzip_cut_anywhere, start, end),
        cmocka_unit_test_setup_teardown(test_gzip_damaged, start, end),
        cmocka_unit_test_setup_teardown(test_write_replaces, start, end),
        cmocka_unit_test_setup_teardown(test_abandon, start, end),
        cmocka_unit_test_setup_teardown(test_devices_are_not_replaced, start, end),
        cmocka_unit_test_setup_teardown(test_killed_writers_are_swept, start, end),
        cmocka_unit_test_setup_teardown(test_what_may_live_stays, start, end),
        cmocka_unit_test_setup_teardown(test_bad_goals, start, end),
        cmocka_unit_test_setup_teardown(test_full_disk, start, end),
        cmocka_unit_test_setup_teardown(test_failing_allocations, start, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
