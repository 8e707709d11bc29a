// Tests of printing: the same text as NumPy's str() (2.x) for the same arrays.
#include "tensor_test.h"

#include <stdlib.h>

static void expect(mu_tensor *tensor, const char *wanted)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    mu_tensor_print(tensor, out);
    fclose(out);
    assert_string_equal(text, wanted);
    free(text);
}

static mu_tensor *counted(mu_dtype dtype, int rank, const int64_t *dims, double first, double step)
{
    mu_tensor *tensor = mu_tensor_new(dtype, rank, dims, NULL);
    for (int64_t i = 0; i < mu_tensor_elements(tensor); i++)
        mu__write_element(dtype, mu__host_write(tensor), i, first + step * (double)i);
    return tensor;
}

static void test_vectors(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    expect(mu_vector_f32(3, (const float[]){1.5f, 2.25f, -3}), "[ 1.5   2.25 -3.  ]\n");
    expect(mu_vector_f32(2, (const float[]){1e-5f, 1}), "[1.e-05 1.e+00]\n");
    expect(mu_vector_f32(3, (const float[]){0.1f, 1 / 3.0f, 100}), "[  0.1          0.33333334 100.        ]\n");
    expect(mu_vector_f32(3, (const float[]){NAN, 1, -INFINITY}), "[ nan   1. -inf]\n");
    expect(mu_vector_f32(2, (const float[]){0, -0.0f}), "[ 0. -0.]\n");
    expect(mu_tensor_new(MU_F64, 1, (const int64_t[]){2}, (const double[]){1e-300, 1}), "[1.e-300 1.e+000]\n");
    expect(mu_tensor_new(MU_BOOL, 1, (const int64_t[]){2}, (const bool[]){true, false}), "[ True False]\n");
    expect(mu_tensor_new(MU_F32, 1, (const int64_t[]){0}, NULL), "[]\n");
    mu_pool_close(pool);
}

static void test_scalars(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    expect(mu_constant(MU_F32, 0.1), "0.1\n");
    expect(mu_constant(MU_F64, 1 / 3.0), "0.3333333333333333\n");
    expect(mu_constant(MU_F32, 3), "3.0\n");
    expect(mu_constant(MU_F32, 1e20), "1e+20\n");
    expect(mu_constant(MU_I64, -5), "-5\n");
    mu_pool_close(pool);
}

static void test_matrices(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    expect(counted(MU_I32, 2, (const int64_t[]){2, 2}, 1, 1), "[[1 2]\n [3 4]]\n");
    expect(counted(MU_F32, 3, (const int64_t[]){2, 2, 2}, 6, 1),
           "[[[ 6.  7.]\n  [ 8.  9.]]\n\n [[10. 11.]\n  [12. 13.]]]\n");
    mu_pool_close(pool);
}

static void test_long_lines_wrap_and_long_axes_shorten(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    expect(counted(MU_F32, 1, (const int64_t[]){26}, 0, 1.25),
           "[ 0.    1.25  2.5   3.75  5.    6.25  7.5   8.75 10.   11.25 12.5  13.75\n"
           " 15.   16.25 17.5  18.75 20.   21.25 22.5  23.75 25.   26.25 27.5  28.75\n"
           " 30.   31.25]\n");
    expect(counted(MU_I64, 1, (const int64_t[]){1500}, 0, 1), "[   0    1    2 ... 1497 1498 1499]\n");
    mu_pool_close(pool);
}

// Cases where NumPy's rules are easy to miss; each text is what NumPy 2.4 prints.
static void test_corners(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const int64_t one = 1, two = 2, three = 3, ten = 10;
    expect(mu_tensor_new(MU_BOOL, 1, &two, (const bool[]){true, true}), "[ True  True]\n");
    // From which size on exponents are used depends on the type.
    expect(mu_vector_f32(2, (const float[]){1e6f, 1}), "[1.e+06 1.e+00]\n");
    expect(mu_tensor_new(MU_F64, 1, &two, (const double[]){1e6, 1e4}), "[1000000.   10000.]\n");
    expect(mu_tensor_new(MU_F16, 1, &two, (const uint16_t[]){0x63D0, 0x63CF}), "[1.000e+03 9.995e+02]\n");
    expect(mu_vector_f32(1, (const float[]){1e-4f}), "[0.0001]\n");
    expect(mu_vector_f32(1, (const float[]){0.99e-4f}), "[9.9e-05]\n");
    expect(mu_constant(MU_F32, 1e6), "1e+06\n");
    expect(mu_constant(MU_F16, 65504), "6.55e+04\n");
    expect(mu_constant(MU_F64, 1e15), "1000000000000000.0\n");
    // The neighbour below a power of two is nearer than the one above.
    expect(mu_vector_f32(1, (const float[]){1237940039285380274899124224.f}), "[1.2379401e+27]\n");
    expect(mu_tensor_new(MU_F16, 1, &two, (const uint16_t[]){0x2400, 0x0001}), "[1.563e-02 5.960e-08]\n");
    expect(mu_tensor_new(MU_F64, 1, &one, (const double[]){693138830000.01}), "[6.9313883e+11]\n");
    // Columns are filled up with spaces, but no line ends with them.
    const double lines[] = {123456.25, 2, 3.5, 4, 5, 6, 1e3, 123456.25, 9, 10};
    expect(mu_tensor_new(MU_F64, 1, &ten, lines),
           "[1.2345625e+05 2.0000000e+00 3.5000000e+00 4.0000000e+00 5.0000000e+00\n"
           " 6.0000000e+00 1.0000000e+03 1.2345625e+05 9.0000000e+00 1.0000000e+01]\n");
    expect(counted(MU_F64, 1, (const int64_t[]){13}, 100.5, -0.125),
           "[100.5   100.375 100.25  100.125 100.     99.875  99.75   99.625  99.5\n"
           "  99.375  99.25   99.125  99.   ]\n");
    expect(mu_tensor_new(MU_BF16, 1, &three, (const uint16_t[]){0x3FC0, 0x4000, 0xFFC0}), "[1.5 2 nan]\n");
    mu_pool_close(pool);
}

// As NumPy prints an array of Python's bytes.
static void test_strings(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    expect(mu_string_scalar("a b"), "b'a b'\n");
    expect(mu_string_scalar(""), "b''\n");
    expect(mu_string_scalar("it's \"x\""), "b'it\\'s \"x\"'\n");
    expect(mu_string_scalar("it's"), "b\"it's\"\n");
    expect(mu_tensor_strings(1, (const int64_t[]){2}, (const char *const[]){"\t\\", "\xc3\xbc\x01\x7f"}),
           "[b'\\t\\\\' b'\\xc3\\xbc\\x01\\x7f']\n");
    expect(mu_tensor_strings(2, (const int64_t[]){2, 1}, (const char *const[]){"a", "bc"}), "[[b'a']\n [b'bc']]\n");
    expect(mu_tensor_strings(1, (const int64_t[]){0}, NULL), "[]\n");
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors), cmocka_unit_test(test_scalars),
        cmocka_unit_test(test_strings), cmocka_unit_test(test_matrices),
        cmocka_unit_test(test_corners), cmocka_unit_test(test_long_lines_wrap_and_long_axes_shorten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
