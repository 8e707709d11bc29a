// Calls of the op benchmark: ops that move or reshape elements, and ops that create tensors. cases_shapes.py uses the
// same names.
#include "calls.h"

#define SHAPES(X)                                                                                                   \
    X(transpose, mu_transpose(in[0], NULL))                                                                         \
    X(transpose_nchw, mu_transpose(in[0], (const int[]){0, 3, 1, 2}))                                               \
    X(transpose_heads, mu_transpose(in[0], (const int[]){0, 2, 1, 3}))                                              \
    X(reshape, mu_reshape(in[0], 1, (const int64_t[]){mu_tensor_elements(in[0])}))                                  \
    X(expand_dims, mu_expand_dims(in[0], 1))                                                                        \
    X(squeeze, mu_squeeze(in[0], 1))                                                                                \
    X(concat_0, mu_concat(2, in, 0))                                                                                \
    X(concat_1, mu_concat(2, in, 1))                                                                                \
    X(stack_0, mu_stack(2, in, 0))                                                                                  \
    X(stack_1, mu_stack(2, in, 1))                                                                                  \
    X(stack_2, mu_stack(2, in, 2))                                                                                  \
    X(slice, mu_slice(in[0], (const int64_t[]){1, 1}, (const int64_t[]){dim(in[0], 0) - 2, dim(in[0], 1) - 2}))     \
    X(strided_slice,                                                                                                \
      mu_strided_slice(in[0], (const int64_t[]){0, 0}, (const int64_t[]){0, 0}, (const int64_t[]){1, 2}, 3, 3, 0))  \
    X(slice_back,                                                                                                   \
      mu_strided_slice(in[0], (const int64_t[]){0, 0}, (const int64_t[]){0, 0}, (const int64_t[]){1, -1}, 3, 3, 0)) \
    X(pad, mu_pad(in[0], (const int64_t[]){1, 2}, (const int64_t[]){1, 2}, "constant", 0))                          \
    X(pad_reflect, mu_pad(in[0], (const int64_t[]){1, 2}, (const int64_t[]){1, 2}, "reflect", 0))                   \
    X(pad_symmetric, mu_pad(in[0], (const int64_t[]){1, 2}, (const int64_t[]){1, 2}, "symmetric", 0))               \
    X(tile, mu_tile(in[0], (const int64_t[]){2, 2}))                                                                \
    X(repeat_0, mu_repeat(in[0], 2, 0))                                                                             \
    X(repeat_1, mu_repeat(in[0], 2, 1))                                                                             \
    X(broadcast_row, mu_broadcast_to(in[0], 2, (const int64_t[]){dim(in[0], -1), dim(in[0], -1)}))                  \
    X(broadcast_column, mu_broadcast_to(in[0], 2, (const int64_t[]){dim(in[0], 0), dim(in[0], 0)}))                 \
    X(reverse_0, mu_reverse(in[0], 0))                                                                              \
    X(reverse_1, mu_reverse(in[0], 1))                                                                              \
    X(roll_0, mu_roll(in[0], 3, 0))                                                                                 \
    X(roll_1, mu_roll(in[0], 3, 1))
#define MAKING(X)                                                                     \
    X(zeros, mu_zeros(MU_F32, 2, (const int64_t[]){dim(in[0], 0), dim(in[0], 0)}))    \
    X(fill, mu_fill(MU_F32, 2, (const int64_t[]){dim(in[0], 0), dim(in[0], 0)}, 1.5)) \
    X(eye, mu_eye(MU_F32, dim(in[0], 0), dim(in[0], 0)))                              \
    X(range, mu_range(MU_F32, 0, (double)(dim(in[0], 0) * dim(in[0], 0)), 1))         \
    X(linspace, mu_linspace(MU_F32, 0, 1, dim(in[0], 0) * dim(in[0], 0)))
SHAPES(ONE)
MAKING(ONE)

static int call_split(mu_tensor *const *in, mu_tensor **out)
{
    mu_split(in[0], 4, 1, out);
    return 4;
}

static int call_split_0(mu_tensor *const *in, mu_tensor **out)
{
    mu_split(in[0], 4, 0, out);
    return 4;
}

static int call_unstack(mu_tensor *const *in, mu_tensor **out)
{
    mu_unstack(in[0], 4, 0, out);
    return 4;
}

const call_row call_shapes[] = {
    SHAPES(NAMED) MAKING(NAMED){"split", call_split, NULL},
    {"split_0", call_split_0, NULL},
    {"unstack", call_unstack, NULL},
    {0},
};
