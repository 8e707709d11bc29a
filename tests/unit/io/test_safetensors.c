// safetensors: written tensors are read back, Python's files are read, files keep the bytes that Python has read, and
// every false header is DATA_LOSS, never a crash or a wrong tensor.
#include "golden.h"

static const char path[] = "test_safetensors.tmp.safetensors";

static mu_status save_golden(const char *to)
{
    return mu_save_tensors(to, golden_map(), .metadata = (const char *[]){"made by", "golden", NULL});
}

static void round_trip(void **state)
{
    (void)state;
    assert_int_equal(save_golden(path), MU_OK);
    assert_golden(path);
    mu_tensor_file *file = mu_tensor_file_open(path);
    assert_int_equal(mu_tensor_file_count(file), 7);
    assert_string_equal(mu_tensor_file_name(file, 1), "conv2d/bias");
    assert_int_equal(mu_tensor_file_find(file, "mask"), 3);
    assert_int_equal(mu_tensor_file_find(file, "no such"), -1);
    assert_string_equal(mu_tensor_file_metadata(file, "made by"), "golden");
    assert_null(mu_tensor_file_metadata(file, "other"));
    assert_int_equal(file->data_at % 64, 0);
    for (int i = 0; i < mu_tensor_file_count(file); i++)
        assert_int_equal(file->entries.items[i].begin % mu_dtype_bytes(mu_tensor_file_dtype(file, i)), 0);
    assert_null(mu_tensor_file_name(file, 7));
    assert_int_equal(mu_tensor_file_shape(file, -1).rank, -1);
    assert_null(mu_tensor_file_read(file, 7));
    assert_int_equal(mu_error_take().code, MU_OUT_OF_RANGE);
}

static void reads_python(void **state)
{
    (void)state;
    assert_golden(GOLDEN "python.safetensors");
}

// Python opened muster.safetensors when it was made; as long as we write the same bytes, it can open our file.
static void writes_what_python_read(void **state)
{
    (void)state;
    size_t n_wanted, n_seen;
    assert_int_equal(save_golden(path), MU_OK);
    void *wanted = slurp(GOLDEN "muster.safetensors", &n_wanted), *seen = slurp(path, &n_seen);
    assert_int_equal(n_seen, n_wanted);
    assert_memory_equal(seen, wanted, n_wanted);
    mu__free(wanted);
    mu__free(seen);
}

static void put(const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    fclose(file);
}

// Writes a file of this header and so many bytes of data.
static void put_header(const char *header, size_t data_bytes)
{
    const size_t length = strlen(header);
    char *all = calloc(1, 8 + length + data_bytes);
    assert_non_null(all);
    for (size_t i = 0; i < 8; i++)
        all[i] = (char)(length >> 8 * i);
    memcpy(all + 8, header, length);
    put(all, 8 + length + data_bytes);
    free(all);
}

static void assert_refused(mu_status code, const char *words)
{
    assert_null(mu_load_tensors(path));
    const mu_error error = mu_error_take();
    if (error.code != code || !strstr(error.message, words) || !strstr(error.message, path))
        fail_msg("wanted %s with '%s', got %s: %s", mu_status_name(code), words, mu_status_name(error.code),
                 error.message);
}

#define TENSOR(dtype, shape, offsets) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void refuses_lies(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        mu_status code;
        const char *words;
    } lies[] = {
        {"{]", 0, MU_DATA_LOSS, "JSON"},
        {"[1]", 0, MU_DATA_LOSS, "not an object"},
        {"{} x", 0, MU_DATA_LOSS, "JSON"},
        {"{\"a\":1}", 0, MU_DATA_LOSS, "object with dtype"},
        {"{\"__metadata__\":{\"k\":1}}", 0, MU_DATA_LOSS, "must be a text"},
        {"{\"__metadata__\":[]}", 0, MU_DATA_LOSS, "object of texts"},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,4]") ",\"a\":" TENSOR("F32", "[1]", "[4,8]") "}", 8, MU_DATA_LOSS,
         "duplicate"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, MU_DATA_LOSS, "\"dtype\""},
        {"{\"a\":" TENSOR("U64", "[1]", "[0,8]") "}", 8, MU_UNIMPLEMENTED, "U64"},
        {"{\"a\":" TENSOR("F32", "3", "[0,4]") "}", 4, MU_DATA_LOSS, "\"shape\""},
        {"{\"a\":" TENSOR("F32", "[-1]", "[0,4]") "}", 4, MU_DATA_LOSS, "dimension"},
        {"{\"a\":" TENSOR("F32", "[1.0]", "[0,4]") "}", 4, MU_DATA_LOSS, "dimension"},
        {"{\"a\":" TENSOR("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, MU_UNIMPLEMENTED, "9 dimensions"},
        {"{\"a\":" TENSOR("F32", "[4294967296,4294967296]", "[0,4]") "}", 4, MU_DATA_LOSS, "63 bits"},
        {"{\"a\":" TENSOR("F32", "[0,4294967296,4294967296]", "[0,0]") "}", 0, MU_DATA_LOSS, "63 bits"},
        {"{\"a\":" TENSOR("F32", "[2]", "[0,4]") "}", 4, MU_DATA_LOSS, "take 8 bytes"},
        {"{\"a\":" TENSOR("F32", "[1]", "[0]") "}", 4, MU_DATA_LOSS, "two integers"},
        {"{\"a\":" TENSOR("F32", "[1]", "[4,0]") "}", 4, MU_DATA_LOSS, "must rise"},
        {"{\"a\":" TENSOR("F32", "[1]", "[-4,0]") "}", 4, MU_DATA_LOSS, "must rise"},
        {"{\"a\":" TENSOR("F32", "[2]", "[0,8]") "}", 4, MU_DATA_LOSS, "inside"},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,99999999999999999999]") "}", 4, MU_DATA_LOSS, "JSON"},
        {"{\"a\":" TENSOR("F32", "[1]", "[4,8]") "}", 8, MU_DATA_LOSS, "expected 0"},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,4]") "}", 8, MU_DATA_LOSS, "holds 8 bytes"},
        {"{\"a\":" TENSOR("F32", "[1]", "[0,4]") ",\"b\":" TENSOR("F32", "[1]", "[2,6]") "}", 6, MU_DATA_LOSS,
         "starts at byte 2"},
    };
    for (size_t i = 0; i < MU_COUNT(lies); i++) {
        put_header(lies[i].header, lies[i].data);
        assert_refused(lies[i].code, lies[i].words);
    }
}

static void refuses_lengths(void **state)
{
    (void)state;
    put("", 0);
    assert_refused(MU_DATA_LOSS, "0 bytes");
    put("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    assert_refused(MU_DATA_LOSS, "18446744073709551615");
    put("\x03\0\0\0\0\0\0\0{}", 10);
    assert_refused(MU_DATA_LOSS, "expected 2 to 2");
    put("\x02\0\0\0\0\0\0\0{}", 10);
    assert_int_equal(mu_value_count(mu_load_tensors(path)), 0);
}

// A file that is cut anywhere, or has any byte of its header changed, is refused or read as its header says.
static void survives_damage(void **state)
{
    (void)state;
    size_t bytes;
    assert_int_equal(save_golden(path), MU_OK);
    char *data = slurp(path, &bytes);
    for (size_t cut = 0; cut < bytes; cut++) {
        put(data, cut);
        assert_null(mu_load_tensors(path));
        assert_int_equal(mu_error_take().code, MU_DATA_LOSS);
    }
    for (size_t at = 0; at < bytes; at++) {
        mu_pool *pool = mu_pool_open();
        data[at] = (char)(data[at] ^ (char)(1 << at % 8));
        put(data, bytes);
        mu_load_tensors(path);
        mu_error_take();
        data[at] = (char)(data[at] ^ (char)(1 << at % 8));
        mu_pool_close(pool);
    }
    mu__free(data);
}

static void refuses_bad_input(void **state)
{
    (void)state;
    mu_tensor *one = mu_constant(MU_F32, 1);
    assert_int_equal(mu_save_tensors(NULL, mu_map("a", one, MU_END)), MU_INVALID_ARGUMENT);
    mu_error_take();
    assert_int_equal(mu_save_tensors(path, mu_of(one)), MU_INVALID_ARGUMENT);
    mu_error_take();
    assert_int_equal(mu_save_tensors(path, mu_map("__metadata__", one, MU_END)), MU_INVALID_ARGUMENT);
    mu_error_take();
    assert_int_equal(mu_save_tensors(path, mu_map("\xff", one, MU_END)), MU_INVALID_ARGUMENT);
    mu_error_take();
    const char *names[] = {"a", "a"};
    mu_tensor *tensors[] = {one, one};
    assert_int_equal(mu__tensors_save(path, 2, names, tensors, NULL), MU_INVALID_ARGUMENT);
    mu_error_take();
    assert_int_equal(mu__tensors_save(path, 1, names, tensors, (const char *[]){"key", NULL}), MU_INVALID_ARGUMENT);
    mu_error_take();
    assert_null(mu_load_tensors("no/such/file"));
    assert_int_equal(mu_error_take().code, MU_NOT_FOUND);
    assert_null(mu_load_tensors("."));
    assert_int_equal(mu_error_take().code, MU_FAILED_PRECONDITION);
    char too_long[300] = {0};
    memset(too_long, 'x', sizeof too_long - 1);
    assert_null(mu_load_tensors(too_long));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_load_tensors(NULL));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
}

// A save that fails leaves the old file.
static void keeps_the_old_file(void **state)
{
    (void)state;
    assert_int_equal(save_golden(path), MU_OK);
    const char *names[] = {"good", "\xff"};
    mu_tensor *one = mu_constant(MU_F32, 1), *tensors[] = {one, one};
    assert_int_not_equal(mu__tensors_save(path, 2, names, tensors, NULL), MU_OK);
    mu_error_take();
    assert_golden(path);
}

static void survives_failing_allocations(void **state)
{
    (void)state;
    bool failed = true;
    for (long n = 1; failed; n++) {
        mu_pool *pool = mu_pool_open();
        mu_value *map = golden_map();
        mu__alloc_fail_at(n);
        mu_save_tensors(path, map);
        mu_load_tensors(path);
        mu__alloc_fail_at(0);
        failed = mu_error_code() != MU_OK;
        if (failed)
            assert_int_equal(mu_error_take().code, MU_RESOURCE_EXHAUSTED);
        mu_pool_close(pool);
        assert_true(n < 10000);
    }
    assert_golden(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(reads_python),
        cmocka_unit_test(writes_what_python_read),
        cmocka_unit_test(refuses_lies),
        cmocka_unit_test(refuses_lengths),
        cmocka_unit_test(survives_damage),
        cmocka_unit_test(refuses_bad_input),
        cmocka_unit_test(keeps_the_old_file),
        cmocka_unit_test(survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, start, finish);
}
