// argmax and argmin: index of the maximum or minimum along an axis.
//
// As in reductions, a tensor is [outer, n, inner], and blocks of columns are searched together. 16-bit floats are
// compared as integers. Ties go to the first element, and a NaN beats all numbers.
#include "kernels/kernels.h"
#include "ops/core/attrs.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"
#include "ops/math/reduce.h"

#include <math.h>
#include <muster/ops.h>

enum { ARGMAX, ARGMIN };

// Integer keys of 16-bit floats, whose order is that of the floats (reversed for `smallest`). Both zeros have key 0,
// and a NaN has the largest key.
REDUCE_INLINE int16_t key_of_float16(uint16_t x, uint16_t infinity, bool smallest)
{
    const int16_t sign = (int16_t)(((int16_t)x >> 15) ^ (smallest ? -1 : 0)), size = x & 0x7fff;
    return size > infinity ? INT16_MAX : (int16_t)((size ^ sign) - sign);
}

#define T                     uint16_t
#define K                     int16_t
#define P                     int16_t
#define KEY(x, smallest)      key_of_float16(x, 0x7c00, smallest)
#define BEATS(a, b, smallest) ((a) > (b))
#define ODD(x)                false
#define NONE                  0
#define FN(name)              f16_##name
#include "ops/math/argmax_loops.inc.c"

#define T                     uint16_t
#define K                     int16_t
#define P                     int16_t
#define KEY(x, smallest)      key_of_float16(x, 0x7f80, smallest)
#define BEATS(a, b, smallest) ((a) > (b))
#define ODD(x)                false
#define NONE                  0
#define FN(name)              bf16_##name
#include "ops/math/argmax_loops.inc.c"

#define T                      float
#define K                      float
#define P                      int32_t
#define KEY(x, smallest)       ((void)(smallest), (x))
#define BEATS(a, b, smallest)  ((smallest) ? (a) < (b) : (a) > (b))
#define ODD(x)                 ((x) != (x))
#define NONE                   (T) NAN
#define MINMAX(smallest, x, n) mu__kernels()->minmax_f32(smallest, x, n)
#define FN(name)               f32_##name
#include "ops/math/argmax_loops.inc.c"

#define T                      double
#define K                      double
#define P                      int64_t
#define KEY(x, smallest)       ((void)(smallest), (x))
#define BEATS(a, b, smallest)  ((smallest) ? (a) < (b) : (a) > (b))
#define ODD(x)                 ((x) != (x))
#define NONE                   (T) NAN
#define MINMAX(smallest, x, n) mu__kernels()->minmax_f64(smallest, x, n)
#define FN(name)               f64_##name
#include "ops/math/argmax_loops.inc.c"

#define T                     int64_t
#define K                     int64_t
#define P                     int64_t
#define KEY(x, smallest)      ((void)(smallest), (x))
#define BEATS(a, b, smallest) ((smallest) ? (a) < (b) : (a) > (b))
#define ODD(x)                false
#define NONE                  0
#define FN(name)              i64_##name
#include "ops/math/argmax_loops.inc.c"

#define T                     int32_t
#define K                     int32_t
#define P                     int32_t
#define KEY(x, smallest)      ((void)(smallest), (x))
#define BEATS(a, b, smallest) ((smallest) ? (a) < (b) : (a) > (b))
#define ODD(x)                false
#define NONE                  0
#define FN(name)              i32_##name
#include "ops/math/argmax_loops.inc.c"

#define T                     int16_t
#define K                     int16_t
#define P                     int16_t
#define KEY(x, smallest)      ((void)(smallest), (x))
#define BEATS(a, b, smallest) ((smallest) ? (a) < (b) : (a) > (b))
#define ODD(x)                false
#define NONE                  0
#define FN(name)              i16_##name
#include "ops/math/argmax_loops.inc.c"

#define T                     int8_t
#define K                     int8_t
#define P                     int8_t
#define KEY(x, smallest)      ((void)(smallest), (x))
#define BEATS(a, b, smallest) ((smallest) ? (a) < (b) : (a) > (b))
#define ODD(x)                false
#define NONE                  0
#define FN(name)              i8_##name
#include "ops/math/argmax_loops.inc.c"

#define T                     uint8_t
#define K                     uint8_t
#define P                     int8_t
#define KEY(x, smallest)      ((void)(smallest), (x))
#define BEATS(a, b, smallest) ((smallest) ? (a) < (b) : (a) > (b))
#define ODD(x)                false
#define NONE                  0
#define FN(name)              u8_##name
#include "ops/math/argmax_loops.inc.c"

typedef int64_t argmax_loop(int variant, const void *in, int64_t n);
typedef void argmax_columns_loop(int variant, const void *in, int64_t n, int64_t stride, int64_t width,
                                 int64_t *positions);

typedef struct argmax_loops {
    argmax_loop *row;
    argmax_columns_loop *columns;
} argmax_loops;

#define POSITIONS(type) \
    (argmax_loops) { type##_position_in_row, type##_positions_of_columns }

static argmax_loops argmax_loops_of(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F64: return POSITIONS(f64);
    case MU_F16: return POSITIONS(f16);
    case MU_BF16: return POSITIONS(bf16);
    case MU_I64: return POSITIONS(i64);
    case MU_I32: return POSITIONS(i32);
    case MU_I16: return POSITIONS(i16);
    case MU_I8: return POSITIONS(i8);
    case MU_U8:
    case MU_BOOL: return POSITIONS(u8);
    default: return POSITIONS(f32);
    }
}

// A tensor as [outer, n, inner]; `columns` of them make one block.
typedef struct argmax_job {
    int variant;
    int64_t outer, n, inner, columns;
    mu_dtype dtype;
    const void *in;
    void *out;
} argmax_job;

static int64_t blocks_of(const argmax_job *job) { return (job->inner + job->columns - 1) / job->columns; }

// Items are blocks of columns.
static void argmax_range(void *arg, int64_t begin, int64_t end)
{
    const argmax_job *job = arg;
    const argmax_loops loops = argmax_loops_of(job->dtype);
    const int64_t blocks = blocks_of(job);
    for (int64_t item = begin; item < end; item++) {
        const int64_t o = item / blocks, column = item % blocks * job->columns;
        const char *start =
            (const char *)job->in + (size_t)(o * job->n * job->inner + column) * mu_dtype_bytes(job->dtype);
        int64_t *positions = (int64_t *)job->out + o * job->inner + column;
        if (job->inner == 1)
            *positions = loops.row(job->variant, start, job->n);
        else
            loops.columns(job->variant, start, job->n, job->inner, MU_MIN(job->columns, job->inner - column),
                          positions);
    }
}

mu_status mu__check_extremes(const mu_op *op, const mu_shape *shape, int axis)
{
    char text[MU_SHAPE_TEXT];
    const int64_t rows = mu__elements_between(shape, 0, axis) * mu__elements_between(shape, axis + 1, shape->rank);
    if (shape->dims[axis] > 0 || rows == 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: axis %d of shape %s is empty, so nothing there is an extreme", op->name,
                     axis, mu__shape_text(shape, text));
}

static mu_status make_job(const mu_kernel *k, argmax_job *out)
{
    argmax_job job = {.variant = k->op->variant, .dtype = k->in[0].dtype, .in = k->in[0].data, .out = k->out[0].data};
    const int axis = (int)((const mu_axis_attrs *)k->attrs)->axis;
    const mu_shape *shape = &k->in[0].shape;
    job.outer = mu__elements_between(shape, 0, axis);
    job.n = shape->dims[axis];
    job.inner = mu__elements_between(shape, axis + 1, shape->rank);
    MU_TRY(mu__check_extremes(k->op, shape, axis));
    *out = job;
    return MU_OK;
}

// Whether element i replaces the extreme so far; the first NaN does, and nothing replaces it.
static bool beats(const argmax_job *job, const mu_view *x, int64_t i, int64_t best)
{
    const double here = mu__read_real(x, i), most = mu__read_real(x, best);
    if (mu__dtype_is_float(job->dtype))
        return most == most && (here != here || (job->variant == ARGMIN ? here < most : here > most));
    const int64_t a = mu__read_whole(x, i), b = mu__read_whole(x, best);
    return job->variant == ARGMIN ? a < b : a > b;
}

static mu_status argmax_ref(const mu_kernel *k)
{
    argmax_job job = {0};
    MU_TRY(make_job(k, &job));
    for (int64_t at = 0; at < job.outer * job.inner; at++) {
        const int64_t first = at / job.inner * job.n * job.inner + at % job.inner;
        int64_t best = 0;
        for (int64_t i = 1; i < job.n; i++)
            if (beats(&job, &k->in[0], first + i * job.inner, first + best * job.inner))
                best = i;
        ((int64_t *)job.out)[at] = best;
    }
    return MU_OK;
}

static mu_status argmax_fast(const mu_kernel *k)
{
    argmax_job job = {0};
    MU_TRY(make_job(k, &job));
    const int64_t wide = MU_FOLD_BYTES / (int64_t)mu_dtype_bytes(job.dtype);
    job.columns = mu__columns_at_once(job.outer, job.inner, wide, k->team);
    mu__share_range(k->team, job.outer * blocks_of(&job), 1, job.outer * job.n * job.inner, argmax_range, &job);
    return MU_OK;
}

static mu_status argmax_infer(mu_infer *infer)
{
    int64_t axis = ((const mu_axis_attrs *)infer->attrs)->axis;
    const mu_shape *in = &infer->in[0].shape;
    mu_shape shape = {.rank = 0};
    MU_TRY(mu__check_axis(infer, axis));
    for (int i = 0; i < in->rank; i++)
        if (i != axis)
            shape.dims[shape.rank++] = in->dims[i];
    infer->out[0] = (mu_spec){.dtype = MU_I64, .shape = shape};
    return MU_OK;
}

static const mu_attr_spec axis_attrs[] = {{"axis", MU_ATTR_INT, offsetof(mu_axis_attrs, axis)}, {0}};
static const mu_axis_attrs axis_0 = {0}, axis_1 = {1};
static const mu_sample samples_argmax[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &axis_1, .no_grad = 1},
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &axis_0, .no_grad = 1},
    {.n_in = 1, .in = {MU_DIMS(3, 0)}, .attrs = &axis_0, .no_grad = 1},
    {0},
};
#define POSITION(text, which)                                                                            \
    .name = text, .variant = which, .n_in = 1, .n_out = 1, .dtypes = MU_ALL_DTYPES,                      \
    .attrs_bytes = sizeof(mu_axis_attrs), .attrs = axis_attrs, .infer = argmax_infer, .ref = argmax_ref, \
    .cpu = {.run = argmax_fast}, .samples = samples_argmax

static mu_tensor *argmax_of(const mu_op *op, mu_tensor *x, int axis)
{
    mu_axis_attrs attrs = {.axis = mu__axis_of(x, axis, op->name)};
    return mu__apply1(op, &attrs, x);
}

const mu_op mu_op_argmax = {POSITION("argmax", ARGMAX), .lower = mu__lower_arg};
mu_tensor *mu_argmax(mu_tensor *x, int axis) { return argmax_of(&mu_op_argmax, x, axis); }

const mu_op mu_op_argmin = {POSITION("argmin", ARGMIN), .lower = mu__lower_arg};
mu_tensor *mu_argmin(mu_tensor *x, int axis) { return argmax_of(&mu_op_argmin, x, axis); }
