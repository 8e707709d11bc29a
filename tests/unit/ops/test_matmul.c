// matmul: against the defining sum in every type, transposed and batched; gradients; fast kernels.
#include "engine/cpu/fused_ops.h"
#include "nn_check.h"

#include <dirent.h>
#include <muster/nn.h>
#include <muster/ops.h>

typedef struct matmul_case {
    mu_shape a, b;
    bool transpose_a, transpose_b;
} matmul_case;

static const matmul_case cases[] = {
    {{2, {5, 7}}, {2, {7, 3}}, false, false},
    {{2, {7, 5}}, {2, {7, 3}}, true, false},
    {{2, {5, 7}}, {2, {3, 7}}, false, true},
    {{2, {7, 5}}, {2, {3, 7}}, true, true},
    {{2, {66, 130}}, {2, {130, 71}}, false, false},
    {{3, {2, 3, 4}}, {3, {2, 4, 5}}, false, false},
    {{3, {2, 3, 4}}, {2, {4, 5}}, false, false},
    {{3, {2, 4, 3}}, {2, {5, 4}}, true, true},
    {{4, {2, 1, 3, 4}}, {3, {3, 4, 2}}, false, false},
    {{2, {3, 4}}, {4, {2, 3, 4, 5}}, false, false},
    {{3, {4, 2, 3}}, {3, {4, 5, 3}}, false, true},
    {{3, {2, 21, 30}}, {4, {3, 1, 30, 20}}, false, false}, // batches that broadcast, one way and the other
    {{4, {3, 2, 20, 21}}, {4, {3, 1, 21, 20}}, false, false},
    {{4, {3, 2, 20, 21}}, {4, {3, 1, 20, 20}}, true, false},
    {{5, {2, 1, 2, 9, 21}}, {4, {3, 2, 21, 20}}, false, false},
    {{2, {1, 70}}, {2, {70, 37}}, false, false}, // vectors, from either side and either way
    {{2, {1, 70}}, {2, {37, 70}}, false, true},
    {{2, {70, 1}}, {2, {70, 37}}, true, false},
    {{2, {70, 1}}, {2, {37, 70}}, true, true},
    {{2, {37, 70}}, {2, {70, 1}}, false, false},
    {{2, {70, 37}}, {2, {1, 70}}, true, true},
    {{3, {2, 1, 70}}, {3, {2, 70, 5}}, false, false},
    {{2, {67, 1}}, {2, {1, 35}}, false, false}, // a column by a row
    {{2, {1, 67}}, {2, {35, 1}}, true, true},
    {{2, {3, 0}}, {2, {0, 2}}, false, false},
    {{2, {0, 3}}, {2, {3, 2}}, false, false},
};

static mu_matmul_attrs attrs_of(const matmul_case *c)
{
    mu_matmul_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.transpose_a = c->transpose_a;
    attrs.transpose_b = c->transpose_b;
    return attrs;
}

// Returns element (row, column) of a matrix of the stack, for any batch of the result.
static double at(const mu_tensor *t, const mu_shape *result, int64_t batch, int64_t row, int64_t column,
                 bool transposed)
{
    const int rank = t->shape.rank;
    int64_t offset = 0, stride = t->shape.dims[rank - 1] * t->shape.dims[rank - 2];
    for (int own = rank - 3, axis = result->rank - 3; own >= 0; own--, axis--) {
        offset += (t->shape.dims[own] == 1 ? 0 : batch % result->dims[axis]) * stride;
        batch /= result->dims[axis];
        stride *= t->shape.dims[own];
    }
    const int64_t width = t->shape.dims[rank - 1];
    return element(t, offset + (transposed ? column * width + row : row * width + column));
}

static void check_sum(const matmul_case *c, const mu_tensor *a, const mu_tensor *b, const mu_tensor *y,
                      double tolerance)
{
    const int64_t m = y->shape.dims[y->shape.rank - 2], n = y->shape.dims[y->shape.rank - 1];
    const int64_t k = a->shape.dims[a->shape.rank - (c->transpose_a ? 2 : 1)];
    for (int64_t i = 0; i < mu__elements(&y->shape); i++) {
        double sum = 0;
        for (int64_t p = 0; p < k; p++)
            sum += at(a, &y->shape, i / n / m, i / n % m, p, c->transpose_a) *
                   at(b, &y->shape, i / n / m, p, i % n, c->transpose_b);
        assert_true(fabs(element(y, i) - sum) <= tolerance * (1 + fabs(sum)));
    }
}

static void test_is_the_sum_in_every_type(void **state)
{
    (void)state;
    const struct {
        mu_dtype dtype;
        double tolerance;
    } types[] = {{MU_F64, 1e-13}, {MU_F32, 1e-5}, {MU_F16, 1e-2}, {MU_BF16, 5e-2}, {MU_I32, 0}, {MU_I64, 0}};
    mu_pool *pool = mu_pool_open();
    for (size_t t = 0; t < MU_COUNT(types); t++)
        for (size_t k = 0; k < MU_COUNT(cases); k++) {
            const mu_matmul_attrs attrs = attrs_of(&cases[k]);
            mu_tensor *in[] = {random_tensor(types[t].dtype, cases[k].a, -3, 3, k),
                               random_tensor(types[t].dtype, cases[k].b, -3, 3, k + 9)};
            mu_tensor *y;
            run_row(&mu_op_matmul, &attrs, 2, in, &y, false);
            check_sum(&cases[k], in[0], in[1], y, types[t].tolerance);
            // Each of the two results may differ from the sum by its tolerance.
            check_fast(&mu_op_matmul, &attrs, 2, in, types[t].dtype == MU_F32 ? 2e-5 : 2e-2, false);
        }
    mu_pool_close(pool);
}

// Sums of small integers keep their low bits, in the type of the operands.
static void test_small_integers_wrap_around(void **state)
{
    (void)state;
    static const mu_dtype types[] = {MU_I16, MU_I8, MU_U8};
    mu_pool *pool = mu_pool_open();
    for (size_t t = 0; t < MU_COUNT(types); t++)
        for (size_t k = 0; k < MU_COUNT(cases); k++) {
            const bool is_signed = types[t] != MU_U8;
            const double high = types[t] == MU_I16 ? 32767 : is_signed ? 127 : 255, low = is_signed ? -high - 1 : 0;
            mu_tensor *a = random_tensor(types[t], cases[k].a, low, high, k);
            mu_tensor *b = random_tensor(types[t], cases[k].b, low, high, k + 9);
            mu_tensor *y = mu_matmul_transposed(a, b, cases[k].transpose_a, cases[k].transpose_b);
            mu_tensor *wide = mu_matmul_transposed(mu_cast(a, MU_I64), mu_cast(b, MU_I64), cases[k].transpose_a,
                                                   cases[k].transpose_b);
            assert_non_null(y);
            assert_int_equal(y->dtype, types[t]);
            for (int64_t i = 0; i < mu__elements(&y->shape); i++) {
                const int64_t sum = ((const int64_t *)mu__host_read(wide))[i];
                const double kept = types[t] == MU_I16 ? (double)(int16_t)(uint16_t)(uint64_t)sum
                                    : is_signed        ? (double)(int8_t)(uint8_t)(uint64_t)sum
                                                       : (double)(uint8_t)(uint64_t)sum;
                assert_true(element(y, i) == kept);
            }
        }
    mu_pool_close(pool);
}

static void test_gradients_match_differences(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (size_t k = 0; k < MU_COUNT(cases); k++) {
        if (k == 4)
            continue; // large: only for the blocks of the plain product
        const mu_matmul_attrs attrs = attrs_of(&cases[k]);
        mu_tensor *in[] = {random_tensor(MU_F64, cases[k].a, -1, 1, k),
                           random_tensor(MU_F64, cases[k].b, -1, 1, k + 9)};
        check_gradient(&mu_op_matmul, &attrs, 2, in, 0, 0);
    }
    mu_pool_close(pool);
}

// Sizes from which another of oneDNN's implementations is used, and sizes just below.
static void test_large_matrices(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (int64_t k = 255; k <= 300; k += 45)
        for (int turned = 0; turned < 2; turned++) {
            const mu_matmul_attrs attrs = {.transpose_a = turned}, biased = {.transpose_a = turned, .relu = turned};
            const int64_t rows = turned ? k : 257, inner = turned ? 257 : k;
            mu_tensor *flat[] = {random_tensor(MU_F32, MU_SHAPE(rows, inner), -1, 1, 1),
                                 random_tensor(MU_F32, MU_SHAPE(k, 261), -1, 1, 2),
                                 random_tensor(MU_F32, MU_SHAPE(261), -1, 1, 3)};
            mu_tensor *stacked[] = {random_tensor(MU_F32, MU_SHAPE(2, rows, inner), -1, 1, 4),
                                    random_tensor(MU_F32, MU_SHAPE(2, k, 261), -1, 1, 5)};
            check_fast(&mu_op_matmul, &attrs, 2, flat, 2e-5, false);
            check_fast(&mu_op_matmul, &attrs, 2, stacked, 2e-5, false);
            check_fast(&mu__op_matmul_bias, &biased, 3, flat, 2e-5, false);
        }
    mu_pool_close(pool);
}

// Sizes from which the hand-written kernels are used, alone and by a team, whose members take rows or whole matrices.
static void test_large_matrices_of_other_types(void **state)
{
    static const mu_dtype types[] = {MU_F64, MU_I32, MU_I64, MU_I16};
    (void)state;
    mu_pool *pool = mu_pool_open();
    for (int t = 0; t < 4; t++)
        for (int stack = 1; stack <= 3; stack += 2) {
            const mu_matmul_attrs attrs = {.transpose_a = t % 2, .transpose_b = t / 2};
            const mu_shape a = t % 2 ? MU_SHAPE(stack, 199, 190) : MU_SHAPE(stack, 190, 199);
            const mu_shape b = t / 2 ? MU_SHAPE(196, 199) : MU_SHAPE(199, 196);
            mu_tensor *in[] = {random_tensor(types[t], a, -9, 9, t), random_tensor(types[t], b, -9, 9, t + 9)};
            check_team.n_threads = 1 + t % 3;
            // Partial sums of some hundreds are rounded 199 times, and differently if multiplication and addition are
            // not fused.
            check_fast(&mu_op_matmul, &attrs, 2, in, types[t] == MU_F64 ? 1e-11 : 0, true);
        }
    check_team.n_threads = 1;
    mu_pool_close(pool);
}

static int threads_of_process(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/task");
    for (const struct dirent *each; folder && (each = readdir(folder));)
        n += each->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return n;
}

// On a thread that is not a worker oneDNN would use all processors. This test must run before any other product.
static void test_one_thread_starts_no_other(void **state)
{
    (void)state;
    mu_runtime *alone = mu_runtime_new(.threads = 1);
    assert_non_null(alone);
    mu_runtime_use(alone);
    mu_pool *pool = mu_pool_open();
    mu_tensor *a = random_tensor(MU_F32, MU_SHAPE(256, 256), 1, 2, 1),
              *q = random_tensor(MU_F32, MU_SHAPE(2, 64, 64), -1, 1, 2);
    const int before = threads_of_process();
    assert_non_null(mu_matmul(a, a));
    assert_non_null(mu_triangular_solve(a, a, true, false));
    assert_non_null(mu_nn_attention(q, q, q));
    assert_int_equal(threads_of_process(), before);
    mu_pool_close(pool);
    mu_runtime_use(NULL);
    mu_release(alone);
}

static void test_wrong_shapes_say_why(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *a = random_tensor(MU_F32, MU_SHAPE(2, 3), -1, 1, 1),
              *b = random_tensor(MU_F32, MU_SHAPE(4, 5), -1, 1, 2);
    mu_tensor *wide = random_tensor(MU_F64, MU_SHAPE(3, 5), -1, 1, 2),
              *vector = random_tensor(MU_F32, MU_SHAPE(3), -1, 1, 2);
    assert_null(mu_matmul(a, b));
    assert_non_null(strstr(mu_error_message(), "[2, 3]"));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_matmul(a, wide));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    assert_null(mu_matmul(a, vector));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread_starts_no_other),
        cmocka_unit_test(test_is_the_sum_in_every_type),
        cmocka_unit_test(test_small_integers_wrap_around),
        cmocka_unit_test(test_gradients_match_differences),
        cmocka_unit_test(test_large_matrices),
        cmocka_unit_test(test_large_matrices_of_other_types),
        cmocka_unit_test(test_wrong_shapes_say_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
