// Calls of the op benchmark: contractions, norms, factorisations, triangular systems, image resizing. cases_linear.py
// uses the same names.
#include "calls.h"

#include <math.h>

#define OTHERS(X)                                                                          \
    X(einsum_product, mu_einsum("ij,jk->ik", 2, in))                                       \
    X(einsum_turned, mu_einsum("ij,kj->ki", 2, in))                                        \
    X(einsum_batched, mu_einsum("bij,bjk->bik", 2, in))                                    \
    X(einsum_dots, mu_einsum("ij,ij->i", 2, in))                                           \
    X(einsum_scores, mu_einsum("bhid,bhjd->bhij", 2, in))                                  \
    X(einsum_sum, mu_einsum("ij->j", 1, in))                                               \
    X(einsum_heads, mu_einsum("ihd,hdk->ik", 2, in))                                       \
    X(einsum_trace, mu_einsum("ij,ji->", 2, in))                                           \
    X(einsum_outer, mu_einsum("i,j->ij", 2, in))                                           \
    X(tensordot, mu_tensordot(in[0], in[1], 1))                                            \
    X(tensordot_2, mu_tensordot(in[0], in[1], 2))                                          \
    X(norm_1, mu_norm(in[0], 1, .axis = 1))                                                \
    X(norm_2, mu_norm(in[0], 2, .axis = 1))                                                \
    X(norm_3, mu_norm(in[0], 3, .axis = 1))                                                \
    X(norm_inf, mu_norm(in[0], INFINITY, .axis = 1))                                       \
    X(norm_all, mu_norm(in[0]))                                                            \
    X(norm_frobenius, mu_norm(in[0], .axes = (const int[]){1, 2}, .n_axes = 2))            \
    X(norm_matrix_1, mu_norm(in[0], 1, .axes = (const int[]){0, 1}, .n_axes = 2))          \
    X(norm_matrix_2, mu_norm(in[0], 2, .axes = (const int[]){0, 1}, .n_axes = 2))          \
    X(norm_matrix_inf, mu_norm(in[0], INFINITY, .axes = (const int[]){0, 1}, .n_axes = 2)) \
    X(cholesky, mu_cholesky(in[0]))                                                        \
    X(solve_lower, mu_triangular_solve(in[0], in[1], true, false))                         \
    X(solve_upper, mu_triangular_solve(in[0], in[1], false, false))                        \
    X(solve_adjoint, mu_triangular_solve(in[0], in[1], true, true))                        \
    X(resize_bilinear_larger, resized(in[0], true, MU_RESIZE_BILINEAR))                    \
    X(resize_bilinear_smaller, resized(in[0], false, MU_RESIZE_BILINEAR))                  \
    X(resize_nearest_larger, resized(in[0], true, MU_RESIZE_NEAREST))                      \
    X(resize_nearest_smaller, resized(in[0], false, MU_RESIZE_NEAREST))

// Resizes to twice the side lengths, or to just under half.
static mu_tensor *resized(mu_tensor *x, bool larger, mu_resize_method method)
{
    const int64_t height = dim(x, 1), width = dim(x, 2);
    return larger ? mu_image_resize(x, 2 * height, 2 * width, method)
                  : mu_image_resize(x, height / 2 - 1, width / 2 - 1, method);
}

OTHERS(ONE)

const call_row call_linear[] = {OTHERS(NAMED){0}};
