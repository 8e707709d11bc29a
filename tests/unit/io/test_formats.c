// Files of named tensors in every format: written tensors are read back, Python's files are read, files keep the bytes
// that Python has read, and damaged files, false headers and a full disk are errors that leave no wrong tensor behind.
#include "golden.h"

#include <signal.h>
#include <sys/resource.h>

static const char *const written[] = {"muster.npz", "muster.weights.h5", "muster.ckpt", "muster.safetensors"};

static void round_trips(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(written); i++) {
        assert_int_equal(mu_save_tensors(written[i], golden_map()), MU_OK);
        assert_golden(written[i]);
    }
    // The contents tell the format, whatever the name is.
    assert_int_equal(rename("muster.weights.h5", "renamed"), 0);
    assert_golden("renamed");
    assert_golden("muster.ckpt.index");
}

static void reads_python(void **state)
{
    (void)state;
    assert_golden(GOLDEN "python.npz");
    assert_golden(GOLDEN "python.weights.h5");
    assert_golden(GOLDEN "python_latest.weights.h5");
    assert_golden(GOLDEN "python.ckpt");
}

// Python opened the golden files when they were made; as long as we write the same bytes, it can open our files.
static void writes_what_python_read(void **state)
{
    (void)state;
    static const char *const files[] = {"muster.npz", "muster.weights.h5", "muster.ckpt.index",
                                        "muster.ckpt.data-00000-of-00001"};
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(mu_save_tensors(written[i], golden_map()), MU_OK);
    for (size_t i = 0; i < MU_COUNT(files); i++) {
        char golden[400];
        size_t n_wanted, n_seen;
        snprintf(golden, sizeof golden, GOLDEN "%s", files[i]);
        void *wanted = slurp(golden, &n_wanted), *seen = slurp(files[i], &n_seen);
        assert_int_equal(n_seen, n_wanted);
        assert_memory_equal(seen, wanted, n_wanted);
        mu__free(wanted);
        mu__free(seen);
    }
}

static mu_tensor *brain_half(void)
{
    return mu_tensor_new(MU_BF16, 1, (int64_t[]){3}, (uint16_t[]){0x3f80, 0xbf80, 0x4000});
}

static void keeps_bfloat16(void **state)
{
    (void)state;
    static const char *const paths[] = {"b.weights.h5", "b.ckpt", "b.safetensors"};
    for (size_t i = 0; i < MU_COUNT(paths); i++) {
        assert_int_equal(mu_save_tensors(paths[i], mu_map("x", brain_half(), "y/z", brain_half(), MU_END)), MU_OK);
        mu_value *seen = mu_load_tensors(paths[i]);
        assert_true(same(brain_half(), mu_value_tensor(mu_value_get(seen, "y/z"))));
    }
    assert_int_equal(mu_save_tensors("b.npz", mu_map("x", brain_half(), MU_END)), MU_UNIMPLEMENTED);
    assert_non_null(strstr(mu_error_message(), "bfloat16"));
    mu_error_take();
}

// So many variables that groups, blocks and object graphs are large.
static void many_tensors(void **state)
{
    (void)state;
    enum { N = 3000 };
    static char names[N][80];
    const char *list[N];
    mu_value *items[N];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "_operations/%d/kernel/.ATTRIBUTES/VARIABLE_VALUE", i);
        list[i] = names[i];
        items[i] = mu_of(mu_constant(MU_F32, i));
    }
    for (size_t f = 0; f < 3; f++) {
        assert_int_equal(mu_save_tensors(written[f], mu_map_of(N, list, items)), MU_OK);
        mu_value *seen = mu_load_tensors(written[f]);
        assert_int_equal(mu_value_count(seen), N);
        assert_float_equal(mu_scalar(mu_value_tensor(mu_value_get(seen, list[N - 7]))), N - 7, 0);
    }
    // A path of attributes finds its variable, with the underscore that Keras may have in front, or without.
    mu_tensor_file *file = mu_tensor_file_open("muster.ckpt");
    const int i = mu_tensor_file_find(file, "_operations/12/_kernel");
    assert_string_equal(mu_tensor_file_name(file, i), "_operations/12/kernel/.ATTRIBUTES/VARIABLE_VALUE");
    assert_int_equal(mu_tensor_file_find(file, "operations/12/kernel"), i);
    assert_int_equal(mu_tensor_file_find(file, "_operations/12/bias"), -1);
}

// The index of a checkpoint has blocks of 256 KiB: keys with little in common fill several.
static void several_blocks(void **state)
{
    (void)state;
    enum { N = 6000 };
    static char names[N][120];
    const char *list[N];
    mu_value *items[N];
    for (int i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%d/%0100d", i, i);
        list[i] = names[i];
        items[i] = mu_of(mu_constant(MU_F32, i));
    }
    assert_int_equal(mu_save_tensors("blocks.ckpt", mu_map_of(N, list, items)), MU_OK);
    mu_value *seen = mu_load_tensors("blocks.ckpt");
    assert_int_equal(mu_value_count(seen), N);
    for (int i = 0; i < N; i++)
        assert_float_equal(mu_scalar(mu_value_tensor(mu_value_get(seen, list[i]))), i, 0);
}

// ---- Damage -------------------------------------------------------------------------------------

static void put(const char *to, const void *data, size_t bytes)
{
    FILE *file = fopen(to, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

// Loads a damaged file: either an error with a record, or tensors of the sizes that the file gives.
static bool loads(const char *path)
{
    mu_pool *pool = mu_pool_open();
    mu_value *map = mu_load_tensors(path);
    const mu_error error = mu_error_take();
    assert_true(!map == (error.code != MU_OK));
    mu_pool_close(pool);
    return error.code == MU_OK;
}

// A format with checksums notices every change; HDF5 has none for elements and old headers.
static void survives_damage(void **state)
{
    (void)state;
    static const struct {
        const char *path, *file;
        bool checked;
    } cases[] = {{"muster.npz", "muster.npz", false},
                 {"muster.weights.h5", "muster.weights.h5", false},
                 {"muster.ckpt", "muster.ckpt.index", true},
                 {"muster.ckpt", "muster.ckpt.data-00000-of-00001", true}};
    for (size_t c = 0; c < MU_COUNT(cases); c++) {
        size_t bytes;
        assert_int_equal(mu_save_tensors(cases[c].path, golden_map()), MU_OK);
        uint8_t *data = slurp(cases[c].file, &bytes);
        const size_t step = bytes > 1000 ? 5 : 1;
        for (size_t cut = 0; cut < bytes; cut += step) {
            put(cases[c].file, data, cut);
            if (loads(cases[c].path))
                fail_msg("%s loads though it ends after %zu of %zu bytes", cases[c].file, cut, bytes);
        }
        for (size_t i = 0; i < bytes; i += step) {
            data[i] ^= (uint8_t)(1 << i % 8);
            put(cases[c].file, data, bytes);
            const bool whole = loads(cases[c].path);
            // The footer of the index is the only part without a checksum; it has unused bytes.
            if (whole && cases[c].checked && (strstr(cases[c].file, "data") || i + 48 < bytes))
                fail_msg("%s loads though byte %zu is wrong", cases[c].file, i);
            data[i] ^= (uint8_t)(1 << i % 8);
        }
        put(cases[c].file, data, bytes);
        assert_true(loads(cases[c].path));
        mu__free(data);
    }
}

static void assert_refused(mu_status status, mu_status code, const char *words)
{
    const mu_error error = mu_error_take();
    if (status != code || !strstr(error.message, words))
        fail_msg("wanted %s with '%s', got %s: %s", mu_status_name(code), words, mu_status_name(error.code),
                 error.message);
}

static void refuses_names(void **state)
{
    (void)state;
    mu_tensor *x = mu_constant(MU_F32, 1);
    assert_refused(mu_save_tensors("a.weights.h5", mu_map("a", x, "a/b", x, MU_END)), MU_INVALID_ARGUMENT,
                   "beginning of its path");
    assert_refused(mu_save_tensors("a.weights.h5", mu_map("a//b", x, MU_END)), MU_INVALID_ARGUMENT, "empty");
    assert_refused(mu_save_tensors("a.keras", mu_map("a", x, MU_END)), MU_INVALID_ARGUMENT, "mu_save_model");
    assert_refused(mu_save_tensors("a.npz", mu_map("a", x, MU_END), .metadata = (const char *[]){"k", "v", NULL}),
                   MU_INVALID_ARGUMENT, "cannot hold the metadata 'k'");
}

// A limit on a file's size stands for a full disk: the old file is kept.
static void full_disk(void **state)
{
    (void)state;
    static const char *const targets[] = {"muster.npz", "muster.weights.h5", "muster.ckpt"};
    mu_tensor *large = mu_tensor_new(MU_F32, 1, (int64_t[]){1 << 18}, NULL);
    struct rlimit kept, small;
    signal(SIGXFSZ, SIG_IGN);
    for (size_t i = 0; i < MU_COUNT(targets); i++) {
        assert_int_equal(mu_save_tensors(targets[i], golden_map()), MU_OK);
        getrlimit(RLIMIT_FSIZE, &kept);
        small = kept;
        small.rlim_cur = 100000;
        setrlimit(RLIMIT_FSIZE, &small);
        const mu_status status = mu_save_tensors(targets[i], mu_map("x", large, MU_END));
        setrlimit(RLIMIT_FSIZE, &kept);
        assert_int_equal(status, MU_RESOURCE_EXHAUSTED);
        mu_error_take();
        assert_golden(targets[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),    cmocka_unit_test(reads_python), cmocka_unit_test(writes_what_python_read),
        cmocka_unit_test(keeps_bfloat16), cmocka_unit_test(many_tensors), cmocka_unit_test(survives_damage),
        cmocka_unit_test(refuses_names),  cmocka_unit_test(full_disk),    cmocka_unit_test(several_blocks),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
