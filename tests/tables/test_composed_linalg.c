// einsum, tensordot, norms and Cholesky factors: gradients of first and second order, and traces.
//
// Values are compared with sums written out here for einsum, with known matrices for the rest.
#include "composed_check.h"

#include <float.h>

// ---- einsum -------------------------------------------------------------------------------------

#define EINSUM(name, equation, n) \
    static mu_tensor *name(mu_tensor *const *in) { return mu_einsum(equation, n, in); }
EINSUM(einsum_matrices, "ij,jk->ik", 2)
EINSUM(einsum_turned, "ji,kj->ki", 2)
EINSUM(einsum_batches, "bij,bjk->bik", 2)
EINSUM(einsum_attention, "bqhd,bkhd->bhqk", 2)
EINSUM(einsum_many_inner, "bijk,jkl->bil", 2)
EINSUM(einsum_ellipsis, "...ij,...jk->...ik", 2)
EINSUM(einsum_outer, "i,j->ij", 2)
EINSUM(einsum_dot, "bi,bi->b", 2)
EINSUM(einsum_trace, "ii", 1)
EINSUM(einsum_diagonal, "bii->bi", 1)
EINSUM(einsum_sums, "bij->b", 1)
EINSUM(einsum_three, "ij,jk,kl->il", 3)
EINSUM(einsum_bilinear, "bi,ijk,bj->bk", 3)
EINSUM(einsum_implicit, "ba,bc", 2)
EINSUM(einsum_one_axis, "...i->...", 1)
EINSUM(einsum_scalar, "i,->i", 2)

static mu_tensor *dot_two(mu_tensor *const *in) { return mu_tensordot(in[0], in[1], 2); }
static mu_tensor *dot_outer(mu_tensor *const *in) { return mu_tensordot(in[0], in[1], 0); }
static mu_tensor *dot_axes(mu_tensor *const *in)
{
    return mu_tensordot(in[0], in[1], .axes_a = (const int[]){0, -1}, .axes_b = (const int[]){2, 0}, .n_axes = 2);
}

// ---- Norms and factors --------------------------------------------------------------------------

// Products of all pairs of rows: a trace knows the size of neither axis.
static mu_tensor *pairs(mu_tensor *x) { return mu_multiply(mu_expand_dims(x, 0), mu_expand_dims(x, 1)); }
static mu_tensor *einsum_unknown_trace(mu_tensor *const *in)
{
    mu_tensor *gram = mu_matmul_transposed(in[0], in[0], false, true);
    return mu_einsum("ii", 1, &gram);
}
static mu_tensor *einsum_unknown_diagonal(mu_tensor *const *in)
{
    mu_tensor *x = pairs(in[0]);
    return mu_einsum("iik->ki", 1, &x);
}
// The trace knows the two equal axes, and two others it does not.
static mu_tensor *einsum_between_unknown(mu_tensor *const *in)
{
    mu_tensor *x = pairs(in[0]), *squares = mu_multiply(mu_expand_dims(x, -1), mu_expand_dims(x, -2));
    return mu_einsum("abkk->kab", 1, &squares);
}
static mu_tensor *einsum_unknown_rows(mu_tensor *const *in)
{
    return mu_einsum("abk,kl->abl", 2, (mu_tensor *const[]){pairs(in[0]), in[1]});
}
static mu_tensor *einsum_unknown_inner(mu_tensor *const *in)
{
    return mu_einsum("abk,acl->bckl", 2, (mu_tensor *const[]){pairs(in[0]), pairs(in[1])});
}
#define MATRICES(rows, columns) .axes = (const int[]){rows, columns}, .n_axes = 2
static mu_tensor *norm_all(mu_tensor *const *in) { return mu_norm(in[0]); }
static mu_tensor *norm_rows(mu_tensor *const *in) { return mu_norm(in[0], 2, .axis = -1, .keep_dims = true); }
static mu_tensor *norm_one(mu_tensor *const *in) { return mu_norm(in[0], 1, .axis = 0); }
static mu_tensor *norm_cubes(mu_tensor *const *in) { return mu_norm(in[0], 3, .axis = 1); }
static mu_tensor *norm_largest(mu_tensor *const *in) { return mu_norm(in[0], INFINITY, .axis = 1); }
static mu_tensor *norm_columns(mu_tensor *const *in) { return mu_norm(in[0], 1, MATRICES(-2, -1)); }
static mu_tensor *norm_frobenius(mu_tensor *const *in) { return mu_norm(in[0], MATRICES(-2, -1), .keep_dims = true); }
static mu_tensor *norm_spectral(mu_tensor *const *in) { return mu_norm(in[0], 2, MATRICES(-2, -1)); }
static mu_tensor *norm_turned(mu_tensor *const *in) { return mu_norm(in[0], 2, MATRICES(2, 0), .keep_dims = true); }

// The factor of x x' + 2: it stays symmetric and positive definite for any change of x.
static mu_tensor *factor(mu_tensor *const *in)
{
    const int64_t n = mu_tensor_dim(in[0], -1);
    mu_tensor *two = mu_multiply(mu_eye(MU_F64, n, n), mu_constant(MU_F64, 2));
    return mu_cholesky(mu_add(mu_matmul_transposed(in[0], in[0], false, true), two));
}

static const composed rows[] = {
    {"einsum ij,jk->ik", einsum_matrices, 2, {MU_DIMS(3, 4), MU_DIMS(4, 2)}, .batched = 1},
    {"einsum ji,kj->ki", einsum_turned, 2, {MU_DIMS(4, 3), MU_DIMS(2, 4)}, .batched = 2},
    {"einsum bij,bjk->bik", einsum_batches, 2, {MU_DIMS(2, 3, 4), MU_DIMS(2, 4, 1)}, .batched = 3},
    {"einsum bqhd,bkhd->bhqk", einsum_attention, 2, {MU_DIMS(2, 3, 2, 2), MU_DIMS(2, 1, 2, 2)}, .batched = 3},
    {"einsum bijk,jkl->bil", einsum_many_inner, 2, {MU_DIMS(2, 2, 3, 2), MU_DIMS(3, 2, 2)}, .batched = 1},
    {"einsum with ellipsis", einsum_ellipsis, 2, {MU_DIMS(3, 1, 2, 3), MU_DIMS(2, 3, 2)}, .batched = 1},
    {"einsum i,j->ij", einsum_outer, 2, {MU_DIMS(3), MU_DIMS(2)}, .batched = 3},
    {"einsum bi,bi->b", einsum_dot, 2, {MU_DIMS(3, 4), MU_DIMS(3, 4)}, .batched = 3},
    {"einsum ii", einsum_trace, 1, {MU_DIMS(3, 3)}},
    {"einsum bii->bi", einsum_diagonal, 1, {MU_DIMS(2, 3, 3)}, .batched = 1},
    {"einsum bij->b", einsum_sums, 1, {MU_DIMS(2, 3, 1)}, .batched = 1},
    {"einsum ij,jk,kl->il", einsum_three, 3, {MU_DIMS(2, 3), MU_DIMS(3, 4), MU_DIMS(4, 1)}, .batched = 1},
    {"einsum abkk->kab, unknown sizes beside", einsum_between_unknown, 1, {MU_DIMS(3, 2)}, .batched = 1},
    {"einsum bi,ijk,bj->bk", einsum_bilinear, 3, {MU_DIMS(2, 3), MU_DIMS(3, 2, 2), MU_DIMS(2, 2)}, .batched = 5},
    {"einsum ba,bc", einsum_implicit, 2, {MU_DIMS(4, 2), MU_DIMS(4, 3)}, .batched = 3},
    {"einsum ...i->...", einsum_one_axis, 1, {MU_DIMS(2, 1, 3)}, .batched = 1},
    {"einsum i,->i", einsum_scalar, 2, {MU_DIMS(3), MU_NO_DIMS}, .batched = 1},
    {"einsum ii, unknown size", einsum_unknown_trace, 1, {MU_DIMS(3, 2)}, .batched = 1},
    {"einsum iik->ki, unknown size", einsum_unknown_diagonal, 1, {MU_DIMS(3, 2)}, .batched = 1},
    {"einsum abk,kl->abl, unknown sizes", einsum_unknown_rows, 2, {MU_DIMS(3, 2), MU_DIMS(2, 3)}, .batched = 1},
    {"einsum abk,acl->bckl, unknown sizes", einsum_unknown_inner, 2, {MU_DIMS(3, 2), MU_DIMS(3, 1)}, .batched = 3},
    {"einsum of nothing", einsum_matrices, 2, {MU_DIMS(0, 4), MU_DIMS(4, 2)}, .batched = 1},
    {"einsum over nothing", einsum_many_inner, 2, {MU_DIMS(2, 2, 0, 2), MU_DIMS(0, 2, 2)}},
    {"tensordot, two axes", dot_two, 2, {MU_DIMS(2, 3, 2), MU_DIMS(3, 2, 4)}, .batched = 1},
    {"tensordot, no axis", dot_outer, 2, {MU_DIMS(2, 1), MU_DIMS(3)}, .batched = 1},
    {"tensordot, named axes", dot_axes, 2, {MU_DIMS(2, 3, 4), MU_DIMS(4, 3, 2)}},
    {"norm of all", norm_all, 1, {MU_DIMS(2, 3, 2)}, .batched = 1},
    {"norm of rows", norm_rows, 1, {MU_DIMS(4, 3)}, .batched = 1},
    {"norm 1", norm_one, 1, {MU_DIMS(3, 2)}, .batched = 1},
    {"norm 3", norm_cubes, 1, {MU_DIMS(2, 3)}, .batched = 1},
    {"norm infinite", norm_largest, 1, {MU_DIMS(2, 5)}, .batched = 1},
    {"norm 1 of matrices", norm_columns, 1, {MU_DIMS(2, 3, 4)}, .batched = 1},
    {"norm of matrices", norm_frobenius, 1, {MU_DIMS(2, 3, 1)}, .batched = 1},
    {"norm 2 of matrices", norm_spectral, 1, {MU_DIMS(2, 3, 4)}, .batched = 1},
    {"norm 2 of matrices, other axes", norm_turned, 1, {MU_DIMS(3, 2, 2)}},
    {"cholesky", factor, 1, {MU_DIMS(2, 3, 3)}, .batched = 1},
    {"cholesky of nothing", factor, 1, {MU_DIMS(2, 0, 0)}, .batched = 1},
};

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(rows); i++)
        composed_check(&rows[i]);
}

// ---- Values -------------------------------------------------------------------------------------

static double at(const mu_tensor *x, int64_t i) { return ((const double *)mu__host_read(x))[i]; }

static void test_einsum_values(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_tensor *q = composed_tensor(MU_SHAPE(2, 3, 2, 5), 1, -1, 1),
              *k = composed_tensor(MU_SHAPE(2, 4, 2, 5), 2, -1, 1);
    const mu_tensor *scores = mu_einsum("bqhd, bkhd -> bhqk", 2, (mu_tensor *const[]){q, k});
    assert_int_equal(mu_tensor_dim(scores, 1), 2);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t h = 0; h < 2; h++)
            for (int64_t i = 0; i < 3; i++)
                for (int64_t j = 0; j < 4; j++) {
                    double sum = 0;
                    for (int64_t d = 0; d < 5; d++)
                        sum += at(q, ((b * 3 + i) * 2 + h) * 5 + d) * at(k, ((b * 4 + j) * 2 + h) * 5 + d);
                    assert_true(fabs(at(scores, ((b * 2 + h) * 3 + i) * 4 + j) - sum) < 1e-12);
                }
    mu_tensor *cube = composed_tensor(MU_SHAPE(2, 3, 3), 3, -1, 1);
    const mu_tensor *diagonal = mu_einsum("bii->ib", 1, &cube);
    assert_int_equal(mu_tensor_dim(diagonal, 0), 3);
    for (int64_t i = 0; i < 3; i++)
        assert_true(at(diagonal, i * 2 + 1) == at(cube, 9 + 4 * i));
    mu_pool_close(pool);
}

static void test_largest_singular_values(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const double known[] = {3, 0, 4, 5, 0, 0, 0, 0, 1, 1, 1, 1, NAN, 1, 2, 3};
    const mu_tensor *norms = mu_norm(mu_tensor_new(MU_F64, 3, (int64_t[]){4, 2, 2}, known), 2, MATRICES(1, 2));
    assert_int_equal(mu_tensor_elements(norms), 4);
    assert_true(fabs(at(norms, 0) - sqrt(45)) < 1e-15 * 7 && at(norms, 1) == 0);
    assert_true(fabs(at(norms, 2) - 2) < 1e-15 && isnan(at(norms, 3)));
    mu_pool_close(pool);
}

// As long as x makes the vector that it stretches most, on every way through blocks and remainders.
static void test_largest_of_all_values(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{2, 2}, {5, 3}, {3, 50}, {33, 33}, {64, 65}, {131, 131}, {300, 9}};
    for (size_t i = 0; i < MU_COUNT(shapes); i++)
        for (int kind = 0; kind < 3; kind++) {
            mu_pool *pool = mu_pool_open();
            const int64_t m = shapes[i][0], n = shapes[i][1];
            mu_tensor *x = composed_tensor(MU_SHAPE(m, n), i + 1, -1, 1), *parts[3];
            for (int64_t e = 0; kind && e < m * n; e++) // a rank of one; a diagonal with the largest value at its end
                ((double *)mu__host_write(x))[e] = kind == 1        ? 1e-100 * (double)(e / n + 1) * (double)(e % n - 1)
                                                   : e / n == e % n ? (double)(e / n + 1) * 1e100
                                                                    : 0;
            assert_int_equal(mu__apply(&mu_op_svd, NULL, 1, &x, 0, NULL, parts), MU_OK);
            const mu_tensor *norm = mu_norm(x, 2, MATRICES(0, 1));
            const mu_tensor *before = mu_norm(parts[2], 2, .axis = 0);
            const mu_tensor *after = mu_norm(mu_matmul(x, parts[2]), 2, .axis = 0);
            const double wanted = at(after, 0) / at(before, 0);
            assert_int_equal(norm->shape.rank, 0);
            if (!(fabs(at(norm, 0) / wanted - 1) < 4e-15))
                fail_msg("%lld by %lld, kind %d: %.17g, not %.17g", (long long)m, (long long)n, kind, at(norm, 0),
                         wanted);
            mu_pool_close(pool);
        }
}

// Equal elements: sqrt(m n) times one of them, up to both ends of the range.
static void test_largest_value_at_ends(void **state)
{
    (void)state;
    const double sizes[] = {DBL_TRUE_MIN, DBL_MIN, 1e-160, 1e160, DBL_MAX / 8};
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        mu_pool *pool = mu_pool_open();
        mu_tensor *x = mu_fill(MU_F64, 2, (const int64_t[]){4, 9}, sizes[i]);
        const double norm = mu_scalar(mu_norm(x, 2, MATRICES(0, 1)));
        assert_true(fabs(norm / 6 - sizes[i]) <= 4e-15 * sizes[i]);
        mu_pool_close(pool);
    }
    mu_pool *pool = mu_pool_open();
    mu_tensor *largest = mu_fill(MU_F64, 2, (const int64_t[]){1, 1}, DBL_MAX), *parts[3];
    assert_int_equal(mu__apply(&mu_op_svd, NULL, 1, &largest, 0, NULL, parts), MU_OK);
    assert_true(at(parts[0], 0) == DBL_MAX);
    const double infinite[] = {1, INFINITY, 2, 3};
    assert_true(
        isnan(mu_scalar(mu_norm(mu_tensor_new(MU_F64, 2, (const int64_t[]){2, 2}, infinite), 2, MATRICES(0, 1)))));
    const mu_tensor *none = mu_norm(mu_ones(MU_F64, 3, (const int64_t[]){2, 0, 3}), 2, MATRICES(1, 2));
    assert_true(mu_tensor_elements(none) == 2 && at(none, 0) == -INFINITY && at(none, 1) == -INFINITY);
    mu_pool_close(pool);
}

// All singular values of an identity are the largest and share the incoming gradient.
static void test_equal_largest_values(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const double identity[] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    mu_tensor *x = mu_tensor_new(MU_F64, 2, (const int64_t[]){3, 3}, identity);
    mu_tape *tape = mu_tape_open();
    mu_tensor *norm = mu_norm(x, 2, MATRICES(0, 1));
    const mu_tensor *dx = mu_at(mu_gradients(tape, norm, mu_list_of(1, (mu_value *[]){mu_of(x)})), 0);
    mu_tape_close(tape);
    assert_true(mu_scalar(norm) == 1);
    for (int64_t i = 0; i < 9; i++)
        assert_true(fabs(at(dx, i) - identity[i] / 3) < 1e-15);
    mu_pool_close(pool);
}

// Of any shape, rank and scale: x = u diag(s) v', vectors at right angles, s descending.
static void test_singular_values(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {5, 3}, {3, 5}, {40, 40}, {60, 7}};
    for (size_t i = 0; i < MU_COUNT(shapes); i++)
        for (int kind = 0; kind < 3; kind++) {
            mu_pool *pool = mu_pool_open();
            const int64_t m = shapes[i][0], n = shapes[i][1], k = MU_MIN(m, n);
            mu_tensor *x = composed_tensor(MU_SHAPE(m, n), i + 1, -1, 1), *parts[3];
            const double scale = kind == 0 ? 1 : kind == 1 ? 1e-200 : 1e200;
            for (int64_t e = 0; e < m * n; e++) // every second matrix has a rank of one or two
                ((double *)mu__host_write(x))[e] =
                    scale * (kind ? (double)(e / n + 1) * (e % n % 2 ? 2 : 3) : at(x, e));
            assert_int_equal(mu__apply(&mu_op_svd, NULL, 1, &x, 0, NULL, parts), MU_OK);
            mu_tensor *again = mu_matmul_transposed(mu_multiply(parts[1], parts[0]), parts[2], false, true);
            for (int64_t e = 0; e < m * n; e++)
                assert_true(fabs(at(again, e) - at(x, e)) <= 1e-13 * at(parts[0], 0));
            for (int side = 1; side <= 2; side++) {
                const mu_tensor *angles = mu_matmul_transposed(parts[side], parts[side], true, false);
                for (int64_t e = 0; e < k * k; e++)
                    assert_true(fabs(at(angles, e) - (e / k == e % k)) < 1e-13);
            }
            for (int64_t e = 1; e < k; e++)
                assert_true(at(parts[0], e) <= at(parts[0], e - 1));
            mu_pool_close(pool);
        }
}

static void test_einsum_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *equation, *part;
    } wrong[] = {
        {"ij,jk->iz", "no operand has"},
        {"ij,jk->ii", "twice"},
        {"ij,jk->ik->", "->"},
        {"ij,jk,kl->il", "3 operands"},
        {"i$,jk->i", "cannot be read"},
        {"ijk,jk->i", "names 3 axes"},
        {"ij,kj->ik", "sizes must be equal"},
        {"...j,jk->k", "must have it too"},
        {"ii,jk->i", "one letter"},
    };
    mu_pool *pool = mu_pool_open();
    mu_tensor *in[] = {composed_tensor(MU_SHAPE(2, 3), 1, 0, 1), composed_tensor(MU_SHAPE(3, 4), 2, 0, 1)};
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        assert_null(mu_einsum(wrong[i].equation, 2, in));
        const mu_error error = mu_error_take();
        assert_int_equal(error.code, MU_INVALID_ARGUMENT);
        if (!strstr(error.message, wrong[i].part))
            fail_msg("%s: no \"%s\" in: %s", wrong[i].equation, wrong[i].part, error.message);
    }
    mu_pool_close(pool);
}

// Larger than a block, so that the products between blocks take part.
static void test_factor_and_solve_large(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const int64_t n = 131;
    mu_tensor *x = composed_tensor(MU_SHAPE(1, n, n), 5, -1, 1), *l = factor(&x);
    const mu_tensor *back = mu_matmul_transposed(l, l, false, true), *wanted = mu_matmul_transposed(x, x, false, true);
    for (int64_t i = 0; i < n * n; i++)
        assert_true(fabs(at(back, i) - at(wanted, i) - (i / n == i % n ? 2 : 0)) < 1e-10);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++)
            assert_true(at(l, i * n + j) == 0);
    mu_tensor *rhs = composed_tensor(MU_SHAPE(1, n, 7), 6, -1, 1), *upper = mu_transpose(l, (const int[]){0, 2, 1});
    for (int adjoint = 0; adjoint < 2; adjoint++) {
        mu_tensor *ys[] = {mu_triangular_solve(l, rhs, true, adjoint),
                           mu_triangular_solve(upper, rhs, false, !adjoint)};
        mu_tensor *product = mu_matmul_transposed(l, ys[0], adjoint, false);
        for (int64_t i = 0; i < n * 7; i++) {
            assert_true(fabs(at(product, i) - at(rhs, i)) < 1e-9);
            assert_true(fabs(at(ys[0], i) - at(ys[1], i)) < 1e-9);
        }
    }
    mu_pool_close(pool);
}

static void test_not_positive_definite(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    const double values[] = {1, 0, 0, 1, 1, 2, 2, 1};
    assert_null(mu_cholesky(mu_tensor_new(MU_F64, 3, (const int64_t[]){2, 2, 2}, values)));
    const mu_error error = mu_error_take();
    assert_int_equal(error.code, MU_INVALID_ARGUMENT);
    assert_non_null(strstr(error.message, "matrix 1"));
    mu_pool_close(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_einsum_values),
        cmocka_unit_test(test_largest_singular_values),
        cmocka_unit_test(test_largest_of_all_values),
        cmocka_unit_test(test_largest_value_at_ends),
        cmocka_unit_test(test_equal_largest_values),
        cmocka_unit_test(test_singular_values),
        cmocka_unit_test(test_einsum_refuses),
        cmocka_unit_test(test_factor_and_solve_large),
        cmocka_unit_test(test_not_positive_definite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
