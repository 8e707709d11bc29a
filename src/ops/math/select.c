// Ops that select, convert and combine: where, cast, the logical ops.
//
// `where` copies elements of any type, so its fast loops (select_loops.inc.c) depend only on the element size.
#include "kernels/kernels.h"
#include "ops/core/attrs.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"

#include <muster/ops.h>

// ---- Where --------------------------------------------------------------------------------------

// A row of the result: where its operands begin, and their strides in elements.
typedef struct select_part {
    const void *in[3];
    int64_t step[3];
} select_part;

#define T        uint8_t
#define FN(name) name##_8
#include "ops/math/select_loops.inc.c"
#define T        uint16_t
#define FN(name) name##_16
#include "ops/math/select_loops.inc.c"
#define T        uint32_t
#define FN(name) name##_32
#include "ops/math/select_loops.inc.c"
#define T        uint64_t
#define FN(name) name##_64
#include "ops/math/select_loops.inc.c"

static void select_row(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t n)
{
    const mu_kernel *k = arg;
    const size_t bytes = mu_dtype_bytes(k->out[0].dtype);
    select_part part;
    for (int i = 0; i < 3; i++) {
        part.step[i] = walk->strides[i][walk->rank - 1];
        part.in[i] = (const char *)k->in[i].data + (size_t)at[i] * (i == 0 ? 1 : bytes);
    }
    (bytes == 1   ? make_8
     : bytes == 2 ? make_16
     : bytes == 4 ? make_32
                  : make_64)(&part, n, (char *)k->out[0].data + (size_t)out_at * bytes);
}

static mu_status where_run(const mu_kernel *k)
{
    mu_walk walk;
    mu__walk_make(&walk, &k->out[0].shape, 3, k->in);
    mu__walk_run(&walk, k->team, select_row, (void *)(uintptr_t)k);
    return MU_OK;
}

static mu_status where_ref(const mu_kernel *k)
{
    const mu_view *condition = &k->in[0], *out = &k->out[0];
    for (int64_t i = 0; i < mu__elements(&out->shape); i++) {
        const bool first = mu__read_whole(condition, mu__broadcast_at(&out->shape, &condition->shape, i));
        const mu_view *chosen = &k->in[first ? 1 : 2];
        mu__copy_element(out, i, chosen, mu__broadcast_at(&out->shape, &chosen->shape, i));
    }
    return MU_OK;
}

static mu_status where_infer(mu_infer *infer)
{
    mu_shape both;
    MU_TRY(mu__need_same_dtype(infer, 1, 2));
    MU_TRY(mu__broadcast(&infer->in[1].shape, &infer->in[2].shape, &both, infer->op->name));
    infer->out[0].dtype = infer->in[1].dtype;
    return mu__broadcast(&infer->in[0].shape, &both, &infer->out[0].shape, infer->op->name);
}

static mu_tensor *where_grad(mu_grad *g, int i)
{
    if (i == 0)
        return NULL;
    mu_tensor *zero = mu__scalar_like(g->dy, 0);
    mu_tensor *dx = i == 1 ? mu_where(g->x[0], g->dy, zero) : mu_where(g->x[0], zero, g->dy);
    return mu__unbroadcast(g, dx, i);
}

static const mu_sample samples_where[] = {
    {.n_in = 3, .in = {MU_DIMS(3, 5), MU_DIMS(3, 5), MU_DIMS(3, 5)}, .dtypes = {MU_BOOL}, .no_grad = 1},
    {.n_in = 3, .in = {MU_DIMS(4, 1), MU_DIMS(3), MU_NO_DIMS}, .dtypes = {MU_BOOL}, .no_grad = 1},
    {.n_in = 3, .in = {MU_DIMS(0, 3), MU_DIMS(3), MU_DIMS(1)}, .dtypes = {MU_BOOL}, .no_grad = 1},
    {0},
};
const mu_op mu_op_where = {
    .name = "where",
    .n_in = 3,
    .n_out = 1,
    .flags = MU_OP_ELEMENTWISE,
    .dtypes = MU_BOOLS,
    .in_place = 6,
    .infer = where_infer,
    .grad = where_grad,
    .ref = where_ref,
    .cpu = {.run = where_run},
    .hlo = "stablehlo.select",
    .samples = samples_where,
};
mu_tensor *mu_where(mu_tensor *condition, mu_tensor *a, mu_tensor *b)
{
    return mu__apply3(&mu_op_where, NULL, condition, a, b);
}

// ---- Cast ---------------------------------------------------------------------------------------

static void cast_range(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    const mu_view *in = &k->in[0], *out = &k->out[0];
    mu__convert(out->dtype, (char *)out->data + (size_t)begin * mu_dtype_bytes(out->dtype), in->dtype,
                (const char *)in->data + (size_t)begin * mu_dtype_bytes(in->dtype), end - begin);
}

static mu_status cast_run(const mu_kernel *k)
{
    int64_t n = mu__elements(&k->in[0].shape);
    mu__share_range(k->team, n, 1024, n, cast_range, (void *)k);
    return MU_OK;
}

// Truncates to int64, or to int32, of which smaller types keep the low bits. What does not fit, and NaN, becomes the
// least value, as the processor's conversion gives it.
static int64_t truncated(mu_dtype to, double x)
{
    if (to == MU_I64)
        return x >= -0x1p63 && x < 0x1p63 ? (int64_t)x : INT64_MIN;
    return x > -0x1p31 - 1 && x < 0x1p31 ? (int64_t)x : INT32_MIN;
}

static mu_status cast_ref(const mu_kernel *k)
{
    const mu_view *in = &k->in[0], *out = &k->out[0];
    for (int64_t i = 0; i < mu__elements(&in->shape); i++) {
        const bool real = mu__dtype_is_float(in->dtype);
        const double x = real ? mu__read_real(in, i) : 0;
        const int64_t whole = real ? truncated(out->dtype, x) : mu__read_whole(in, i);
        if (out->dtype == MU_BOOL)
            mu__write_whole(out, i, real ? x != 0 : whole != 0);
        else if (!mu__dtype_is_float(out->dtype))
            mu__write_whole(out, i, whole);
        else if (real || out->dtype == MU_F64)
            mu__write_real(out, i, real ? x : (double)whole);
        else
            mu__write_real(out, i, (double)(float)whole); // one rounding to float32, also of integers above 2^53
    }
    return MU_OK;
}

static mu_status cast_infer(mu_infer *infer)
{
    mu_dtype dtype = ((const mu_cast_attrs *)infer->attrs)->dtype;
    if (!mu__dtype_ok(dtype))
        return mu__error(MU_INVALID_ARGUMENT, "cast: %d is not an element type; use MU_F32 and the like", (int)dtype);
    infer->out[0] = (mu_spec){.dtype = dtype, .shape = infer->in[0].shape};
    return MU_OK;
}

static mu_tensor *cast_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__dtype_is_float(g->dy->dtype) ? mu_cast(g->dy, g->x[0]->dtype) : NULL;
}

static const mu_attr_spec cast_attrs[] = {{"dtype", MU_ATTR_DTYPE, offsetof(mu_cast_attrs, dtype)}, {0}};
static const mu_cast_attrs to_f32 = {MU_F32}, to_i32 = {MU_I32}, to_f64 = {MU_F64}, to_bool = {MU_BOOL},
                           to_u8 = {MU_U8}, to_bf16 = {MU_BF16};
static const mu_sample samples_cast[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &to_f64},
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &to_f32, .no_grad = 1},
    {.n_in = 1, .in = {MU_DIMS(0)}, .attrs = &to_f64},
    {.n_in = 1, .in = {MU_DIMS(300)}, .attrs = &to_i32, .no_grad = 1},
    {.n_in = 1, .in = {MU_DIMS(300)}, .attrs = &to_bool, .no_grad = 1},
    {.n_in = 1, .in = {MU_DIMS(300)}, .attrs = &to_u8, .no_grad = 1},
    {.n_in = 1, .in = {MU_DIMS(300)}, .attrs = &to_bf16, .no_grad = 1},
    {0},
};
const mu_op mu_op_cast = {
    .name = "cast",
    .n_in = 1,
    .n_out = 1,
    .flags = MU_OP_ELEMENTWISE,
    .attrs_bytes = sizeof(mu_cast_attrs),
    .attrs = cast_attrs,
    .infer = cast_infer,
    .grad = cast_grad,
    .ref = cast_ref,
    .cpu = {.run = cast_run},
    .lower = mu__lower_cast,
    .samples = samples_cast,
};
mu_tensor *mu_cast(mu_tensor *x, mu_dtype dtype)
{
    if (x && x->dtype == dtype)
        return x;
    mu_cast_attrs attrs = {.dtype = dtype};
    return mu__apply1(&mu_op_cast, &attrs, x);
}

// ---- Truth values -------------------------------------------------------------------------------

// Steps are 0 or 1; both are 0 only for a single element.
static void logical_row(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t n)
{
    const mu_kernel *k = arg;
    const uint8_t *a = (const uint8_t *)k->in[0].data + at[0], *b = (const uint8_t *)k->in[1].data + at[1];
    const bool alone_a = walk->strides[0][walk->rank - 1] == 0, alone_b = walk->strides[1][walk->rank - 1] == 0;
    mu__kernels()->bitwise((mu_bitwise)k->op->variant, alone_a ? b : a, alone_a ? a : b, alone_a || alone_b,
                           (uint8_t *)k->out[0].data + out_at, n);
}

static mu_status logical_run(const mu_kernel *k)
{
    mu_walk walk;
    mu__walk_make(&walk, &k->out[0].shape, 2, k->in);
    mu__walk_run(&walk, k->team, logical_row, (void *)k);
    return MU_OK;
}

static void not_range(void *arg, int64_t begin, int64_t end)
{
    const mu_kernel *k = arg;
    const uint8_t one = 1;
    mu__kernels()->bitwise(MU_BITWISE_XOR, (const uint8_t *)k->in[0].data + begin, &one, true,
                           (uint8_t *)k->out[0].data + begin, end - begin);
}

static mu_status not_run(const mu_kernel *k)
{
    const int64_t n = mu__elements(&k->out[0].shape);
    mu__share_range(k->team, n, 1024, n, not_range, (void *)k);
    return MU_OK;
}

static int64_t logical_of(mu_bitwise function, int64_t a, int64_t b)
{
    switch (function) {
    case MU_BITWISE_AND: return a & b;
    case MU_BITWISE_OR: return a | b;
    default: return a ^ b;
    }
}

static mu_status logical_ref(const mu_kernel *k)
{
    const mu_view *a = &k->in[0], *b = &k->in[1], *out = &k->out[0];
    for (int64_t i = 0; i < mu__elements(&out->shape); i++)
        mu__write_whole(out, i,
                        logical_of((mu_bitwise)k->op->variant,
                                   mu__read_whole(a, mu__broadcast_at(&out->shape, &a->shape, i)),
                                   mu__read_whole(b, mu__broadcast_at(&out->shape, &b->shape, i))));
    return MU_OK;
}

static mu_status not_ref(const mu_kernel *k)
{
    for (int64_t i = 0; i < mu__elements(&k->out[0].shape); i++)
        mu__write_whole(&k->out[0], i, !mu__read_whole(&k->in[0], i));
    return MU_OK;
}

static const mu_sample samples_logical[] = {
    {.n_in = 2, .in = {MU_DIMS(3, 5), MU_DIMS(3, 5)}, .dtypes = {MU_BOOL, MU_BOOL}, .no_grad = 3},
    {.n_in = 2, .in = {MU_DIMS(4, 1), MU_DIMS(3)}, .dtypes = {MU_BOOL, MU_BOOL}, .no_grad = 3},
    {0},
};
#define LOGICAL(text, which)                                                                                          \
    .name = text, .variant = which, .n_in = 2, .n_out = 1, .flags = MU_OP_ELEMENTWISE | MU_OP_COMMUTES,               \
    .dtypes = MU_BOOLS, .in_place = 3, .infer = mu__infer_broadcast, .ref = logical_ref, .cpu = {.run = logical_run}, \
    .samples = samples_logical

const mu_op mu_op_logical_and = {LOGICAL("logical_and", MU_BITWISE_AND), .hlo = "stablehlo.and"};
const mu_op mu_op_logical_or = {LOGICAL("logical_or", MU_BITWISE_OR), .hlo = "stablehlo.or"};
const mu_op mu_op_logical_xor = {LOGICAL("logical_xor", MU_BITWISE_XOR), .hlo = "stablehlo.xor"};
static const mu_sample samples_not[] = {{.n_in = 1, .in = {MU_DIMS(3, 5)}, .dtypes = {MU_BOOL}, .no_grad = 1}, {0}};
const mu_op mu_op_logical_not = {
    .name = "logical_not",
    .variant = MU_BITWISE_XOR,
    .n_in = 1,
    .n_out = 1,
    .flags = MU_OP_ELEMENTWISE,
    .dtypes = MU_BOOLS,
    .in_place = 1,
    .infer = mu__infer_same,
    .ref = not_ref,
    .cpu = {.run = not_run},
    .hlo = "stablehlo.not",
    .samples = samples_not,
};
