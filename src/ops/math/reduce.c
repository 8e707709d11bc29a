// Reductions over axes: sums, means, products, minima and maxima, and cumulative sums.
//
// Adjacent reduced axes are merged, so a tensor is [outer, n, inner] and every output is the fold of n elements `inner`
// apart. If the reduced axes are not adjacent, the last group is reduced first. float16 and bfloat16 are reduced in
// float32. The order of additions depends on the shape alone, never on the team.
#include "kernels/kernels.h"
#include "ops/core/attrs.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"
#include "ops/math/reduce.h"

#include <float.h>
#include <math.h>
#include <muster/ops.h>

enum { SUM, MEAN, PROD, MAX, MIN, ANY, ALL, CUMSUM, CUMPROD };
// Columns folded together: at least COLUMNS, at most MOST_BYTES (more columns mean longer contiguous reads).
enum { COLUMNS = 256, MOST_BYTES = MU_FOLD_BYTES };
// Elements of 16-bit floats widened at once, and columns of them folded together.
enum { FLOAT16_TILE = 4096, FLOAT16_COLUMNS = 512 };

// Minima or maxima of `width` columns of n rows.
static void f32_minmax(int variant, const float *x, int64_t n, int64_t stride, int64_t width, float *out)
{
    mu__kernels()->minmax_columns_f32(variant == MIN, x, out, n, stride, width);
}

static void f64_minmax(int variant, const double *x, int64_t n, int64_t stride, int64_t width, double *out)
{
    mu__kernels()->minmax_columns_f64(variant == MIN, x, out, n, stride, width);
}

#define T        float
#define S        float
#define FN(name) f32_##name
#define MINMAX   f32_minmax
#define IS_FLOAT 1
#include "ops/math/reduce_loops.inc.c"

#define T        double
#define S        double
#define FN(name) f64_##name
#define MINMAX   f64_minmax
#define IS_FLOAT 1
#include "ops/math/reduce_loops.inc.c"

#define T        int64_t
#define S        uint64_t
#define FN(name) i64_##name
#define IS_FLOAT 0
#define LOWEST   INT64_MIN
#define HIGHEST  INT64_MAX
#include "ops/math/reduce_loops.inc.c"

#define T        int32_t
#define S        uint32_t
#define FN(name) i32_##name
#define IS_FLOAT 0
#define LOWEST   INT32_MIN
#define HIGHEST  INT32_MAX
#include "ops/math/reduce_loops.inc.c"

#define T        int16_t
#define S        uint32_t
#define FN(name) i16_##name
#define IS_FLOAT 0
#define LOWEST   INT16_MIN
#define HIGHEST  INT16_MAX
#include "ops/math/reduce_loops.inc.c"

#define T        int8_t
#define S        uint32_t
#define FN(name) i8_##name
#define IS_FLOAT 0
#define LOWEST   INT8_MIN
#define HIGHEST  INT8_MAX
#include "ops/math/reduce_loops.inc.c"

#define T        uint8_t
#define S        uint32_t
#define FN(name) u8_##name
#define IS_FLOAT 0
#define LOWEST   0
#define HIGHEST  UINT8_MAX
#include "ops/math/reduce_loops.inc.c"

typedef void fold_loop(int variant, const void *in, int64_t n, int64_t stride, int64_t width, void *out);
typedef void running_loop(int variant, const void *in, int64_t n, int64_t step, int64_t width, bool exclusive,
                          void *out);
typedef void divide_loop(void *sums, int64_t n, int64_t count);
typedef struct type_loops {
    fold_loop *fold;
    running_loop *running;
    divide_loop *divide;
} type_loops;

#define LOOPS(type) \
    (type_loops) { type##_reduce, type##_cumulate, type##_divide }

static type_loops loops_of(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F64: return LOOPS(f64);
    case MU_I64: return LOOPS(i64);
    case MU_I32: return LOOPS(i32);
    case MU_I16: return LOOPS(i16);
    case MU_I8: return LOOPS(i8);
    case MU_U8:
    case MU_BOOL: return LOOPS(u8);
    default: return LOOPS(f32);
    }
}

// ---- Kernels ------------------------------------------------------------------------------------

// A tensor as [outer, n, inner]; `variant` is the reduction along n.
typedef struct fold_job {
    int variant;
    int64_t outer, n, inner;
    int64_t columns; // per block
    mu_dtype dtype;
    const void *in;
    void *out;
    bool exclusive, backward;
} fold_job;

int64_t mu__columns_at_once(int64_t outer, int64_t inner, int64_t most, const mu_team *team)
{
    while (most > COLUMNS && outer * ((inner + most - 1) / most) < 2 * (int64_t)team->n_threads && team->n_threads > 1)
        most /= 2;
    return most;
}

static int64_t blocks_per_outer(const fold_job *job) { return (job->inner + job->columns - 1) / job->columns; }

// Folds rows [begin, end) of float32.
static void fold_f32_rows(int variant, const float *x, float *out, int64_t n, int64_t begin, int64_t end)
{
    static const mu_fold folds[] = {[SUM] = MU_FOLD_SUM,
                                    [MEAN] = MU_FOLD_SUM,
                                    [PROD] = MU_FOLD_PRODUCT,
                                    [MAX] = MU_FOLD_GREATEST,
                                    [MIN] = MU_FOLD_LEAST};
    mu__kernels()->fold_rows(folds[variant], x, out, n, begin, end);
    for (int64_t row = begin; row < end && variant == MEAN; row++)
        out[row] /= (float)n;
}

static bool is_minmax(int variant) { return variant == MAX || variant == MIN; }

static void fold_f64_rows(const fold_job *job, int64_t begin, int64_t end)
{
    const mu_kernels *kernels = mu__kernels();
    for (int64_t row = begin; row < end; row++) {
        const double *x = (const double *)job->in + row * job->n;
        double *out = (double *)job->out + row;
        if (is_minmax(job->variant))
            *out = kernels->minmax_f64(job->variant == MIN, x, job->n);
        else
            *out = kernels->sum_f64(x, job->n) / (job->variant == MEAN ? (double)job->n : 1);
    }
}

// Folds `width` columns of 16-bit floats in float32. A tile of rows is widened at a time, after a row with the result
// so far, so that the tile stays in the first-level cache.
static void fold_float16(const fold_job *job, const uint16_t *x, int64_t width, uint16_t *out)
{
    float tile[FLOAT16_TILE + FLOAT16_COLUMNS], totals[FLOAT16_COLUMNS];
    const int64_t most = FLOAT16_TILE / width;
    const int variant = job->variant == MEAN ? SUM : job->variant;
    int64_t held = 0; // rows of the tile that hold the result so far
    for (int64_t done = 0; done < job->n || !held; done += most) {
        const int64_t rows = MU_MIN(most, job->n - done);
        if (width == job->inner)
            mu__convert(MU_F32, tile + held * width, job->dtype, x + done * width, rows * width);
        for (int64_t i = 0; i < rows && width != job->inner; i++)
            mu__convert(MU_F32, tile + (held + i) * width, job->dtype, x + (done + i) * job->inner, width);
        f32_reduce(variant, tile, held + rows, width, width, totals);
        memcpy(tile, totals, (size_t)width * sizeof *tile);
        held = 1;
    }
    for (int64_t j = 0; j < width && job->variant == MEAN; j++)
        totals[j] /= (float)job->n;
    mu__convert(job->dtype, out, MU_F32, totals, width);
}

// Folds rows [begin, end) where a loop over rows is faster than blocks of columns; returns false if there is none.
static bool fold_rows(const fold_job *job, int64_t begin, int64_t end)
{
    if (job->inner == 1 && job->dtype == MU_F32) {
        fold_f32_rows(job->variant, job->in, job->out, job->n, begin, end);
        return true;
    }
    if (job->inner == 1 && job->dtype == MU_F64 && job->variant != PROD) {
        fold_f64_rows(job, begin, end);
        return true;
    }
    if (job->inner != 1 || job->dtype != MU_BOOL)
        return false;
    const uint8_t *x = job->in;
    for (int64_t row = begin; row < end; row++)
        ((bool *)job->out)[row] = mu__bool_reduce_row(job->variant == ALL, x + row * job->n, job->n);
    return true;
}

static void fold_range(void *arg, int64_t begin, int64_t end)
{
    const fold_job *job = arg;
    fold_loop *fold = loops_of(job->dtype).fold;
    size_t bytes = mu_dtype_bytes(job->dtype);
    int64_t blocks = blocks_per_outer(job);
    if (fold_rows(job, begin, end))
        return;
    for (int64_t item = begin; item < end; item++) {
        int64_t o = item / blocks, column = item % blocks * job->columns;
        int64_t width = MU_MIN(job->columns, job->inner - column);
        const void *in = (const char *)job->in + (size_t)(o * job->n * job->inner + column) * bytes;
        void *out = (char *)job->out + (size_t)(o * job->inner + column) * bytes;
        if (mu__dtype_is_half(job->dtype))
            fold_float16(job, in, width, out);
        else
            fold(job->variant, in, job->n, job->inner, width, out);
    }
}

static void run_folds(const mu_team *team, fold_job *job)
{
    const int64_t most =
        mu__dtype_is_half(job->dtype) ? FLOAT16_COLUMNS : MOST_BYTES / (int64_t)mu_dtype_bytes(job->dtype);
    job->columns = mu__columns_at_once(job->outer, job->inner, most, team);
    int64_t items = job->outer * blocks_per_outer(job), work = job->outer * job->n * job->inner;
    mu__share_range(team, items, 1, work, fold_range, job);
}

// Finds [outer, n, inner] if the reduced axes (bits) are adjacent; ignores axes of size 1.
static bool as_one_group(const mu_shape *shape, unsigned reduced, fold_job *job)
{
    int phase = 0; // before, in, after the group
    job->outer = job->n = job->inner = 1;
    for (int axis = 0; axis < shape->rank; axis++) {
        bool in_group = reduced >> axis & 1;
        if (shape->dims[axis] == 1)
            continue;
        if (in_group && phase == 2)
            return false;
        if (in_group)
            phase = 1;
        else if (phase == 1)
            phase = 2;
        *(in_group ? &job->n : phase == 0 ? &job->outer : &job->inner) *= shape->dims[axis];
    }
    return true;
}

static int64_t count_of(const mu_shape *shape, unsigned reduced)
{
    int64_t n = 1;
    for (int axis = 0; axis < shape->rank; axis++)
        n *= reduced >> axis & 1 ? shape->dims[axis] : 1;
    return n;
}

static mu_status reduce_bits(const mu_kernel *k, int variant, unsigned reduced);

// Reduces the last group of adjacent axes into temporary memory, then the other axes of that.
static mu_status reduce_scattered(const mu_kernel *k, int variant, unsigned reduced)
{
    const bool mean = variant == MEAN;
    mu_view in = k->in[0], part = {.dtype = in.dtype, .shape = in.shape};
    unsigned last = 0;
    for (int axis = in.shape.rank - 1; axis >= 0; axis--) {
        const bool own = reduced >> axis & 1;
        if (last != 0 && !own && in.shape.dims[axis] != 1)
            break;
        last |= own ? 1u << axis : 0;
    }
    for (int axis = 0; axis < in.shape.rank; axis++)
        part.shape.dims[axis] = last >> axis & 1 ? 1 : in.shape.dims[axis];
    const size_t bytes = MU_MAX((size_t)mu__elements(&part.shape) * mu_dtype_bytes(part.dtype), (size_t)1);
    part.data = mu__alloc_data(bytes);
    if (!part.data)
        return MU_RESOURCE_EXHAUSTED;
    mu_kernel first = *k, second = *k;
    first.out = &part;
    second.in = &part;
    mu_status status = reduce_bits(&first, mean ? SUM : variant, last);
    if (status == MU_OK)
        status = reduce_bits(&second, mean ? SUM : variant, reduced & ~last);
    if (status == MU_OK && mean)
        loops_of(in.dtype).divide(k->out[0].data, mu__elements(&k->out[0].shape), count_of(&in.shape, reduced));
    mu__free_data(part.data, bytes);
    return status;
}

static mu_status reduce_bits(const mu_kernel *k, int variant, unsigned reduced)
{
    fold_job job = {.variant = variant, .dtype = k->in[0].dtype, .in = k->in[0].data, .out = k->out[0].data};
    if (!as_one_group(&k->in[0].shape, reduced, &job))
        return reduce_scattered(k, variant, reduced);
    run_folds(k->team, &job);
    return MU_OK;
}

// Whether x has 16-bit floats and is reduced in two steps, between which they would be rounded.
static bool needs_f32(const mu_view *x, unsigned reduced)
{
    fold_job job;
    return mu__dtype_is_half(x->dtype) && !as_one_group(&x->shape, reduced, &job);
}

static unsigned axis_bits(const mu_ints *axes)
{
    unsigned bits = 0;
    for (int64_t i = 0; i < axes->n; i++)
        bits |= 1u << axes->at[i];
    return bits;
}

static mu_status reduce_fast(const mu_kernel *k)
{
    const unsigned reduced = axis_bits(&((const mu_reduce_attrs *)k->attrs)->axes);
    if (k->op->variant == MEAN && mu__dtype_is_integer(k->in[0].dtype) && k->in[0].dtype != MU_I64)
        return mu__run_wide(k, reduce_fast);
    if (needs_f32(&k->in[0], reduced))
        return mu__run_as_f32(k, reduce_fast);
    return reduce_bits(k, k->op->variant, reduced);
}

// ---- Plain loops --------------------------------------------------------------------------------

static double real_of_two(int variant, double total, double x)
{
    switch (variant) {
    case PROD:
    case CUMPROD: return total * x;
    case MAX: return total > x || total != total ? total : x;
    case MIN: return total < x || total != total ? total : x;
    default: return total + x;
    }
}

static int64_t whole_of_two(int variant, int64_t total, int64_t x)
{
    switch (variant) {
    case PROD:
    case CUMPROD: return (int64_t)((uint64_t)total * (uint64_t)x);
    case MAX:
    case ANY: return MU_MAX(total, x);
    case MIN:
    case ALL: return MU_MIN(total, x);
    default: return (int64_t)((uint64_t)total + (uint64_t)x);
    }
}

// What a reduction of no elements gives.
static double real_start(int variant)
{
    return variant == PROD || variant == CUMPROD ? 1 : variant == MAX ? -INFINITY : variant == MIN ? INFINITY : 0;
}

static int64_t whole_start(int variant, mu_dtype dtype)
{
    const int bits = 8 * (int)mu_dtype_bytes(dtype);
    const int64_t highest = dtype == MU_U8 ? UINT8_MAX : (int64_t)(UINT64_MAX >> (65 - bits));
    switch (variant) {
    case PROD:
    case CUMPROD:
    case ALL: return 1;
    case MAX: return dtype == MU_U8 ? 0 : -highest - 1;
    case MIN: return highest;
    default: return 0;
    }
}

// The input element at position `at` of the kept axes and `fold` of the reduced ones, whose shapes have 1 elsewhere.
static int64_t element_of(const mu_shape *in, const mu_shape *kept, int64_t at, const mu_shape *folded, int64_t fold)
{
    int64_t index[MU_MAX_RANK], along[MU_MAX_RANK];
    mu__index_of(kept, at, index);
    mu__index_of(folded, fold, along);
    for (int axis = 0; axis < in->rank; axis++)
        index[axis] += along[axis];
    return mu__element_at(in, index);
}

static mu_status reduce_plainly(const mu_kernel *k, int variant, unsigned reduced)
{
    const mu_view *in = &k->in[0], *out = &k->out[0];
    mu_shape kept = in->shape, folded = in->shape;
    for (int axis = 0; axis < in->shape.rank; axis++)
        (reduced >> axis & 1 ? &kept : &folded)->dims[axis] = 1;
    const int64_t n = mu__elements(&folded);
    for (int64_t at = 0; at < mu__elements(&kept); at++) {
        double real = real_start(variant);
        int64_t whole = whole_start(variant, in->dtype);
        for (int64_t fold = 0; fold < n; fold++) {
            const int64_t i = element_of(&in->shape, &kept, at, &folded, fold);
            if (mu__dtype_is_float(in->dtype))
                real = real_of_two(variant, real, mu__read_real(in, i));
            else
                whole = whole_of_two(variant, whole, mu__read_whole(in, i));
        }
        if (mu__dtype_is_float(in->dtype))
            mu__write_real(out, at, variant == MEAN ? real / (double)n : real);
        else
            mu__write_whole(out, at, variant == MEAN && n > 0 ? whole / n : whole);
    }
    return MU_OK;
}

static mu_status reduce_ref(const mu_kernel *k)
{
    return reduce_plainly(k, k->op->variant, axis_bits(&((const mu_reduce_attrs *)k->attrs)->axes));
}

static mu_status reduce_infer(mu_infer *infer)
{
    const mu_reduce_attrs *attrs = infer->attrs;
    const mu_shape *in = &infer->in[0].shape;
    mu_shape shape = {.rank = 0};
    int64_t next = 0;
    for (int axis = 0; axis < in->rank; axis++) {
        bool reduced = next < attrs->axes.n && attrs->axes.at[next] == axis;
        next += reduced;
        if (!reduced)
            shape.dims[shape.rank++] = in->dims[axis];
        else if (attrs->keep_dims)
            shape.dims[shape.rank++] = 1;
    }
    if (next != attrs->axes.n)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the axes must be ascending and below rank %d", infer->op->name,
                         in->rank);
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = shape};
    return MU_OK;
}

// ---- Gradients ----------------------------------------------------------------------------------

// The reduced tensor x with the reduced axes restored as size 1.
static mu_tensor *with_axes(const mu_grad *g, mu_tensor *x)
{
    const mu_reduce_attrs *attrs = g->attrs;
    for (int64_t i = 0; i < attrs->axes.n && !attrs->keep_dims; i++)
        x = mu_expand_dims(x, (int)attrs->axes.at[i]);
    return x;
}

static mu_tensor *sum_grad(mu_grad *g, int i)
{
    (void)i;
    return mu_broadcast_like(with_axes(g, g->dy), g->x[0]);
}

static mu_tensor *mean_grad(mu_grad *g, int i)
{
    (void)i;
    mu_tensor *n = mu_cast(mu__dim_product(g->x[0], &((const mu_reduce_attrs *)g->attrs)->axes), g->dy->dtype);
    return mu_broadcast_like(with_axes(g, mu_divide(g->dy, n)), g->x[0]);
}

// Ties share the gradient. The others get 0 times it, which is NaN where no element equals a result that is NaN: XLA
// makes a choice, whose other side is 0, of a product with 0 or 1.
static mu_tensor *minmax_grad(mu_grad *g, int i)
{
    const mu_reduce_attrs *attrs = g->attrs;
    int axes[MU_MAX_RANK];
    (void)i;
    for (int64_t a = 0; a < attrs->axes.n; a++)
        axes[a] = (int)attrs->axes.at[a];
    mu_tensor *is_minmax = mu_equal(g->x[0], with_axes(g, g->y[0]));
    mu_tensor *count =
        mu_reduce_sum(mu_cast(is_minmax, g->dy->dtype), .axes = axes, .n_axes = (int)attrs->axes.n, .keep_dims = true);
    mu_tensor *share = mu_multiply(mu_divide(mu__scalar_like(g->dy, 1), count), with_axes(g, g->dy));
    return mu_where(is_minmax, share, mu_multiply(share, mu__scalar_like(g->dy, 0)));
}

// The product of all other elements: of those before times of those after. Products over several axes are made one axis
// at a time, so an op that is differentiated has at most one axis.
static mu_tensor *prod_grad(mu_grad *g, int i)
{
    const mu_reduce_attrs *attrs = g->attrs;
    (void)i;
    if (attrs->axes.n == 0)
        return g->dy;
    if (attrs->axes.n > 1)
        return mu_multiply(mu_divide(with_axes(g, g->y[0]), g->x[0]), with_axes(g, g->dy));
    int axis = (int)attrs->axes.at[0];
    mu_tensor *others = mu_multiply(mu_cumprod(g->x[0], axis, true, false), mu_cumprod(g->x[0], axis, true, true));
    return mu_multiply(others, with_axes(g, g->dy));
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_attr_spec reduce_attrs[] = {
    {"axes", MU_ATTR_INTS, offsetof(mu_reduce_attrs, axes)},
    {"keep_dims", MU_ATTR_BOOL, offsetof(mu_reduce_attrs, keep_dims)},
    {0},
};
static const mu_reduce_attrs over_none = {{0, {0}}, false}, over_0 = {{1, {0}}, false}, over_1 = {{1, {1}}, true},
                             over_02 = {{2, {0, 2}}, false}, over_012 = {{3, {0, 1, 2}}, false};
static const mu_sample samples_reduce[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &over_0},
    {.n_in = 1, .in = {MU_DIMS(3, 37)}, .attrs = &over_1},
    {.n_in = 1, .in = {MU_DIMS(3, 5, 2)}, .attrs = &over_02},
    {.n_in = 1, .in = {MU_DIMS(3, 1, 67)}, .attrs = &over_012},
    {.n_in = 1, .in = {MU_DIMS(3, 0)}, .attrs = &over_0},
    {.n_in = 1, .in = {MU_DIMS(2, 3)}, .attrs = &over_none},
    {0},
};
static const mu_sample samples_prod[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &over_0},
    {.n_in = 1, .in = {MU_DIMS(3, 7)}, .attrs = &over_1},
    {.n_in = 1, .in = {MU_DIMS(3, 5, 2)}, .attrs = &over_02, .low = {0.5}, .high = {2}},
    {0},
};
static const mu_sample samples_bool[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &over_0, .dtypes = {MU_BOOL}, .no_grad = 1},
    {.n_in = 1, .in = {MU_DIMS(3, 5, 2)}, .attrs = &over_02, .dtypes = {MU_BOOL}, .no_grad = 1},
    {0},
};

#define REDUCTION(text, which, allowed, inputs)                                                                       \
    .name = text, .variant = which, .n_in = 1, .n_out = 1, .dtypes = allowed, .attrs_bytes = sizeof(mu_reduce_attrs), \
    .attrs = reduce_attrs, .infer = reduce_infer, .ref = reduce_ref, .cpu = {.run = reduce_fast}, .samples = inputs

const mu_op mu_op_reduce_sum = {REDUCTION("reduce_sum", SUM, MU_NUMBERS, samples_reduce), .grad = sum_grad,
                                .lower = mu__lower_reduce};
const mu_op mu_op_reduce_mean = {REDUCTION("reduce_mean", MEAN, MU_NUMBERS, samples_reduce), .grad = mean_grad,
                                 .lower = mu__lower_reduce};
const mu_op mu_op_reduce_max = {REDUCTION("reduce_max", MAX, MU_NUMBERS, samples_reduce), .grad = minmax_grad,
                                .lower = mu__lower_reduce};
const mu_op mu_op_reduce_min = {REDUCTION("reduce_min", MIN, MU_NUMBERS, samples_reduce), .grad = minmax_grad,
                                .lower = mu__lower_reduce};
const mu_op mu_op_reduce_prod = {REDUCTION("reduce_prod", PROD, MU_NUMBERS, samples_prod), .grad = prod_grad,
                                 .lower = mu__lower_reduce};
const mu_op mu_op_reduce_any = {REDUCTION("reduce_any", ANY, MU_BOOLS, samples_bool), .lower = mu__lower_reduce};
const mu_op mu_op_reduce_all = {REDUCTION("reduce_all", ALL, MU_BOOLS, samples_bool), .lower = mu__lower_reduce};

// ---- sum_to_like --------------------------------------------------------------------------------

static mu_status sum_to_like_infer(mu_infer *infer)
{
    mu_shape result;
    const mu_shape *x = &infer->in[0].shape, *like = &infer->in[1].shape;
    MU_TRY(mu__broadcast(like, x, &result, infer->op->name));
    if (!mu__shape_compatible(&result, x)) {
        char from[MU_SHAPE_TEXT], to[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT, "sum_to_like: shape %s is not what %s broadcasts to",
                         mu__shape_text(x, from), mu__shape_text(like, to));
    }
    return mu__infer_like(infer);
}

// The axes that broadcasting added or repeated.
static unsigned broadcast_axes(const mu_shape *x, const mu_shape *like)
{
    unsigned reduced = 0;
    for (int axis = 0; axis < x->rank; axis++) {
        int at = axis - (x->rank - like->rank);
        if (at < 0 || (like->dims[at] == 1 && x->dims[axis] != 1))
            reduced |= 1u << axis;
    }
    return reduced;
}

static mu_status sum_to_like_ref(const mu_kernel *k)
{
    return reduce_plainly(k, SUM, broadcast_axes(&k->in[0].shape, &k->in[1].shape));
}

static mu_status sum_to_like_fast(const mu_kernel *k)
{
    const mu_shape *x = &k->in[0].shape;
    const unsigned reduced = broadcast_axes(x, &k->in[1].shape);
    if (needs_f32(&k->in[0], reduced))
        return mu__run_as_f32(k, sum_to_like_fast);
    if (reduced)
        return reduce_bits(k, SUM, reduced);
    size_t bytes = (size_t)mu__elements(x) * mu_dtype_bytes(k->in[0].dtype);
    if (k->out[0].data != k->in[0].data && bytes)
        memcpy(k->out[0].data, k->in[0].data, bytes);
    return MU_OK;
}

static mu_tensor *sum_to_like_grad(mu_grad *g, int i) { return i == 0 ? mu_broadcast_like(g->dy, g->x[0]) : NULL; }

static const mu_sample samples_sum_to_like[] = {
    {.n_in = 2, .in = {MU_DIMS(4, 3, 5), MU_DIMS(3, 1)}, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(4, 3), MU_DIMS(4, 3)}, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(0, 3), MU_DIMS(3)}, .no_grad = 2},
    {0},
};
const mu_op mu_op_sum_to_like = {
    .name = "sum_to_like",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_NUMBERS,
    .shape_only = 2,
    .flags = MU_OP_VIEW_IF_SAME,
    .infer = sum_to_like_infer,
    .grad = sum_to_like_grad,
    .ref = sum_to_like_ref,
    .cpu = {.run = sum_to_like_fast},
    .samples = samples_sum_to_like,
    .lower = mu__lower_sum_to_like,
};
mu_tensor *mu_sum_to_like(mu_tensor *x, mu_tensor *like)
{
    if (x && like && mu__shape_equal(&x->shape, &like->shape) && mu__shape_known(&x->shape))
        return x;
    return mu__apply2(&mu_op_sum_to_like, NULL, x, like);
}

// ---- Along one axis: running sums ---------------------------------------------------------------

static void split_at_axis(const mu_shape *shape, int64_t axis, fold_job *job)
{
    job->outer = job->n = job->inner = 1;
    for (int i = 0; i < shape->rank; i++)
        *(i < axis ? &job->outer : i == axis ? &job->n : &job->inner) *= shape->dims[i];
}

mu_status mu__check_axis(const mu_infer *infer, int64_t axis)
{
    if (axis >= 0 && axis < infer->in[0].shape.rank)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: axis %lld for rank %d", infer->op->name, (long long)axis,
                     infer->in[0].shape.rank);
}

int mu__axis_of(const mu_tensor *x, int axis, const char *name)
{
    return !x || mu__pending() ? 0 : mu__axis(axis, x->shape.rank, name);
}

static void running_range(void *arg, int64_t begin, int64_t end)
{
    const fold_job *job = arg;
    running_loop *running = loops_of(job->dtype).running;
    const int64_t bytes = (int64_t)mu_dtype_bytes(job->dtype), blocks = blocks_per_outer(job);
    for (int64_t item = begin; item < end; item++) {
        int64_t column = item % blocks * job->columns, first = item / blocks * job->n * job->inner + column;
        int64_t step = job->backward ? -job->inner : job->inner;
        if (job->backward)
            first += (job->n - 1) * job->inner;
        running(job->variant, (const char *)job->in + first * bytes, job->n, step,
                MU_MIN(job->columns, job->inner - column), job->exclusive, (char *)job->out + first * bytes);
    }
}

static mu_status running_fast(const mu_kernel *k)
{
    const mu_cumulate_attrs *attrs = k->attrs;
    if (mu__dtype_is_half(k->in[0].dtype))
        return mu__run_as_f32(k, running_fast);
    fold_job job = {.variant = k->op->variant,
                    .dtype = k->in[0].dtype,
                    .in = k->in[0].data,
                    .out = k->out[0].data,
                    .exclusive = attrs->exclusive,
                    .backward = attrs->reverse};
    split_at_axis(&k->in[0].shape, attrs->axis, &job);
    job.columns = COLUMNS;
    if (job.n > 0)
        mu__share_range(k->team, job.outer * blocks_per_outer(&job), 1, job.outer * job.n * job.inner, running_range,
                        &job);
    return MU_OK;
}

static mu_status running_ref(const mu_kernel *k)
{
    const mu_cumulate_attrs *attrs = k->attrs;
    const mu_view *in = &k->in[0], *out = &k->out[0];
    const int variant = k->op->variant;
    fold_job shape;
    split_at_axis(&in->shape, attrs->axis, &shape);
    for (int64_t line = 0; line < shape.outer * shape.inner; line++) {
        const int64_t first = line / MU_MAX(shape.inner, 1) * shape.n * shape.inner + line % MU_MAX(shape.inner, 1);
        double real = real_start(variant);
        int64_t whole = whole_start(variant, in->dtype);
        for (int64_t step = 0; step < shape.n; step++) {
            const int64_t at = first + (attrs->reverse ? shape.n - 1 - step : step) * shape.inner;
            const double real_before = real;
            const int64_t whole_before = whole;
            if (mu__dtype_is_float(in->dtype)) {
                real = real_of_two(variant, real, mu__read_real(in, at));
                mu__write_real(out, at, attrs->exclusive ? real_before : real);
            } else {
                whole = whole_of_two(variant, whole, mu__read_whole(in, at));
                mu__write_whole(out, at, attrs->exclusive ? whole_before : whole);
            }
        }
    }
    return MU_OK;
}

static mu_status running_infer(mu_infer *infer)
{
    MU_TRY(mu__check_axis(infer, ((const mu_cumulate_attrs *)infer->attrs)->axis));
    return mu__infer_same(infer);
}

static mu_tensor *cumsum_grad(mu_grad *g, int i)
{
    const mu_cumulate_attrs *attrs = g->attrs;
    (void)i;
    return mu_cumsum(g->dy, (int)attrs->axis, attrs->exclusive, !attrs->reverse);
}

// The weighted sum of the products from an element on, divided by the element. The first 0 of a row cannot be divided
// by: its products are computed without it. Elements after it have no influence.
static mu_tensor *cumprod_grad(mu_grad *g, int i)
{
    const mu_cumulate_attrs *attrs = g->attrs;
    const int axis = (int)attrs->axis;
    mu_tensor *x = g->x[0], *none = mu__scalar_like(x, 0), *is_zero = mu_equal(x, none);
    mu_tensor *before = mu_cumsum(mu_cast(is_zero, x->dtype), axis, true, attrs->reverse);
    mu_tensor *first = mu_logical_and(is_zero, mu_equal(before, none));
    mu_tensor *without = mu_cumprod(mu_where(first, mu__scalar_like(x, 1), x), axis, attrs->exclusive, attrs->reverse);
    mu_tensor *sum = mu_cumsum(mu_multiply(g->y[0], g->dy), axis, attrs->exclusive, !attrs->reverse);
    mu_tensor *others = mu_cumsum(mu_multiply(without, g->dy), axis, attrs->exclusive, !attrs->reverse);
    (void)i;
    return mu_where(first, others, mu_divide_no_nan(sum, x));
}

static const mu_attr_spec cumulate_attrs[] = {
    {"axis", MU_ATTR_INT, offsetof(mu_cumulate_attrs, axis)},
    {"exclusive", MU_ATTR_BOOL, offsetof(mu_cumulate_attrs, exclusive)},
    {"reverse", MU_ATTR_BOOL, offsetof(mu_cumulate_attrs, reverse)},
    {0},
};
static const mu_cumulate_attrs along_0 = {0, false, false}, along_1 = {1, true, true}, along_1_back = {1, false, true};
static const mu_sample samples_cumulate[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &along_0, .low = {0.5}, .high = {2}},
    {.n_in = 1, .in = {MU_DIMS(3, 5, 2)}, .attrs = &along_1, .low = {0.5}, .high = {2}},
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &along_1_back, .low = {0.5}, .high = {2}},
    {.n_in = 1, .in = {MU_DIMS(0, 5)}, .attrs = &along_0, .low = {0.5}, .high = {2}},
    {0},
};
#define CUMULATE(text, which)                                                                                      \
    .name = text, .variant = which, .n_in = 1, .n_out = 1, .dtypes = MU_NUMBERS,                                   \
    .attrs_bytes = sizeof(mu_cumulate_attrs), .attrs = cumulate_attrs, .infer = running_infer, .ref = running_ref, \
    .cpu = {.run = running_fast}, .samples = samples_cumulate, .lower = mu__lower_cumulate

static mu_tensor *cumulate(const mu_op *op, mu_tensor *x, int axis, bool exclusive, bool reverse)
{
    mu_cumulate_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.axis = mu__axis_of(x, axis, op->name);
    attrs.exclusive = exclusive;
    attrs.reverse = reverse;
    return mu__apply1(op, &attrs, x);
}

const mu_op mu_op_cumsum = {CUMULATE("cumsum", CUMSUM), .grad = cumsum_grad};
mu_tensor *mu_cumsum(mu_tensor *x, int axis, bool exclusive, bool reverse)
{
    return cumulate(&mu_op_cumsum, x, axis, exclusive, reverse);
}

const mu_op mu_op_cumprod = {CUMULATE("cumprod", CUMPROD), .grad = cumprod_grad};
mu_tensor *mu_cumprod(mu_tensor *x, int axis, bool exclusive, bool reverse)
{
    return cumulate(&mu_op_cumprod, x, axis, exclusive, reverse);
}
