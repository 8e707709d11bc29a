// Element-wise ops on two tensors with broadcasting: arithmetic, comparisons and clipping.
//
// A definition selects its case of the shared loops (arithmetic_loops.inc.c, compiled once per number type). float16
// and bfloat16 are converted to float32 chunk by chunk. Integers wrap around; integer division by zero is an error.
#include "kernels/kernels.h"
#include "ops/core/grads.h"
#include "ops/array/index.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/math/elementwise.h"

#include <math.h>
#include <muster/ops.h>

// Rows of n elements of two operands and of the result, which is dense. All strides are in elements: within a row (0: a
// scalar for the whole row) and from row to row.
typedef struct rows2 {
    const void *a, *b;
    void *out;
    int64_t step_a, step_b, row_a, row_b, rows, n;
} rows2;
typedef void loop2(int variant, const rows2 *r);

#define ONE_ROW(first, along_first, second, along_second, to, count)                                            \
    (rows2)                                                                                                     \
    {                                                                                                           \
        .a = (first), .b = (second), .out = (to), .step_a = (along_first), .step_b = (along_second), .rows = 1, \
        .n = (count)                                                                                            \
    }

// Whether both operands have stride 1, or both are scalars.
static bool is_dense(const rows2 *r)
{
    return (r->step_a == 0 || r->step_a == 1) && (r->step_b == 0 || r->step_b == 1);
}

static mu_math2 function_of(int variant)
{
    return variant == MU_BINARY_POW ? MU_MATH_POW : variant == MU_BINARY_ATAN2 ? MU_MATH_ATAN2 : MU_MATH_FLOOR_MOD;
}

#define T         float
#define W         float
#define FN(name)  f32_##name
#define M(name)   name##f
#define MATH2     math2_f32
#define IS_FLOAT  1
#define IS_SIGNED 1
#include "ops/math/arithmetic_loops.inc.c"

#define T         double
#define W         double
#define FN(name)  f64_##name
#define M(name)   name
#define MATH2     math2_f64
#define IS_FLOAT  1
#define IS_SIGNED 1
#include "ops/math/arithmetic_loops.inc.c"

#define T         int64_t
#define W         uint64_t
#define FN(name)  i64_##name
#define IS_FLOAT  0
#define IS_SIGNED 1
#include "ops/math/arithmetic_loops.inc.c"

#define T         int32_t
#define W         uint32_t
#define FN(name)  i32_##name
#define REAL      double
#define IS_FLOAT  0
#define IS_SIGNED 1
#include "ops/math/arithmetic_loops.inc.c"

#define T         int16_t
#define W         uint32_t
#define FN(name)  i16_##name
#define REAL      float
#define IS_FLOAT  0
#define IS_SIGNED 1
#include "ops/math/arithmetic_loops.inc.c"

#define T         int8_t
#define W         uint32_t
#define FN(name)  i8_##name
#define REAL      float
#define IS_FLOAT  0
#define IS_SIGNED 1
#include "ops/math/arithmetic_loops.inc.c"

#define T         uint8_t
#define W         uint32_t
#define FN(name)  u8_##name
#define REAL      float
#define IS_FLOAT  0
#define IS_SIGNED 0
#include "ops/math/arithmetic_loops.inc.c"

// ---- Kernels ------------------------------------------------------------------------------------

static loop2 *arithmetic_loop(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F64: return f64_binary;
    case MU_I64: return i64_binary;
    case MU_I32: return i32_binary;
    case MU_I16: return i16_binary;
    case MU_I8: return i8_binary;
    case MU_U8: return u8_binary;
    default: return f32_binary;
    }
}

static loop2 *compare_loop(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F64: return f64_compare;
    case MU_I64: return i64_compare;
    case MU_I32: return i32_compare;
    case MU_I16: return i16_compare;
    case MU_I8: return i8_compare;
    case MU_U8:
    case MU_BOOL: return u8_compare;
    default: return f32_compare;
    }
}

typedef struct binary_job {
    const mu_kernel *kernel;
    loop2 *loop;
    size_t in_bytes, out_bytes; // of an element
    bool is_float16;            // inputs are float16 or bfloat16
    rows2 row;                  // binary_rows: what all rows share
} binary_job;

// One row of 16-bit floats.
typedef struct float16_row {
    const binary_job *job;
    const rows2 *row;
} float16_row;

static void run_in_f32(void *arg, const mu_f32_run *run)
{
    const float16_row *part = arg;
    part->job->loop(part->job->kernel->op->variant,
                    &ONE_ROW(run->in[0], part->row->step_a, run->in[1], part->row->step_b, run->out, run->n));
}

static void make_row(const binary_job *job, const rows2 *row)
{
    float16_row part = {job, row};
    const mu_kernel *k = job->kernel;
    const mu_float16_run run = {.in_dtype = k->in[0].dtype,
                                .out_dtype = k->out[0].dtype,
                                .n_in = 2,
                                .in = {row->a, row->b},
                                .step = {row->step_a, row->step_b},
                                .out = row->out,
                                .n = row->n};
    if (job->is_float16)
        mu__in_f32(&run, run_in_f32, &part);
    else
        job->loop(k->op->variant, row);
}

static void binary_row(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t n)
{
    const binary_job *job = arg;
    const mu_kernel *k = job->kernel;
    const int last = walk->rank - 1;
    const char *a = (const char *)k->in[0].data + (size_t)at[0] * job->in_bytes,
               *b = (const char *)k->in[1].data + (size_t)at[1] * job->in_bytes;
    make_row(job, &ONE_ROW(a, walk->strides[0][last], b, walk->strides[1][last],
                           (char *)k->out[0].data + (size_t)out_at * job->out_bytes, n));
}

enum { FLOAT16_CHUNK = 1024 }; // elements

// Widens rows of 16-bit floats, of which one is enough if all are the same. Returns the distance of the wide rows.
static int64_t widen_rows(mu_dtype dtype, const uint16_t *x, int64_t step, int64_t row, const rows2 *r, float *wide)
{
    const int64_t width = step == 0 ? 1 : r->n;
    if (row == width)
        mu__convert(MU_F32, wide, dtype, x, r->rows * width);
    for (int64_t i = 0; row != width && i < (row == 0 ? 1 : r->rows); i++)
        mu__convert(MU_F32, wide + i * width, dtype, x + i * row, width);
    return row == 0 ? 0 : width;
}

// Several short rows of 16-bit floats, as many at a time as fit a chunk.
static void float16_rows(const binary_job *job, const rows2 *r)
{
    const mu_dtype from = job->kernel->in[0].dtype, to = job->kernel->out[0].dtype;
    _Alignas(64) float a[FLOAT16_CHUNK], b[FLOAT16_CHUNK], out[FLOAT16_CHUNK];
    rows2 some = *r;
    some.a = a;
    some.b = b;
    for (int64_t row = 0; r->n > 0 && row < r->rows; row += FLOAT16_CHUNK / r->n) {
        char *result = (char *)r->out + (size_t)(row * r->n) * job->out_bytes;
        some.rows = MU_MIN(FLOAT16_CHUNK / r->n, r->rows - row);
        some.row_a = widen_rows(from, (const uint16_t *)r->a + row * r->row_a, r->step_a, r->row_a, &some, a);
        some.row_b = widen_rows(from, (const uint16_t *)r->b + row * r->row_b, r->step_b, r->row_b, &some, b);
        some.out = to == MU_BOOL ? (void *)result : out;
        job->loop(job->kernel->op->variant, &some);
        if (to != MU_BOOL)
            mu__convert(to, result, MU_F32, out, some.rows * r->n);
    }
}

// Rows of a walk that are short: one call handles several rows. `outer` walks the remaining axes.
static void binary_rows(void *arg, const mu_walk *outer, const int64_t *at, int64_t out_at, int64_t n)
{
    const binary_job *job = arg;
    const mu_kernel *k = job->kernel;
    const int last = outer->rank - 1;
    rows2 r = job->row;
    r.a = (const char *)k->in[0].data + (size_t)at[0] * job->in_bytes;
    r.b = (const char *)k->in[1].data + (size_t)at[1] * job->in_bytes;
    r.out = (char *)k->out[0].data + (size_t)(out_at * r.n) * job->out_bytes;
    r.row_a = outer->strides[0][last];
    r.row_b = outer->strides[1][last];
    r.rows = n;
    if (job->is_float16)
        float16_rows(job, &r);
    else
        job->loop(k->op->variant, &r);
}

static const int combining[] = {[MU_COMBINE_ADD] = MU_BINARY_ADD,
                                [MU_COMBINE_MIN] = MU_BINARY_MINIMUM,
                                [MU_COMBINE_MAX] = MU_BINARY_MAXIMUM,
                                [MU_COMBINE_MULTIPLY] = MU_BINARY_MULTIPLY,
                                [MU_COMBINE_SUBTRACT] = MU_BINARY_SUBTRACT};

void mu__accumulate(mu_combine combine, mu_dtype dtype, void *into, const void *from, int64_t n)
{
    const int variant = combining[combine];
    if (dtype != MU_F16 && dtype != MU_BF16) {
        arithmetic_loop(dtype)(variant, &ONE_ROW(into, 1, from, 1, into, n));
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        float a, b;
        mu__convert(MU_F32, &a, dtype, (uint16_t *)into + i, 1);
        mu__convert(MU_F32, &b, dtype, (const uint16_t *)from + i, 1);
        f32_binary(variant, &ONE_ROW(&a, 1, &b, 1, &a, 1));
        mu__convert(dtype, (uint16_t *)into + i, MU_F32, &a, 1);
    }
}

typedef int64_t combiner(int variant, void *into, const mu_scatter_indices *positions, const void *from, int64_t n);

static combiner *combiner_for(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F64: return f64_combine_at;
    case MU_F32: return f32_combine_at;
    case MU_I64: return i64_combine_at;
    case MU_I32: return i32_combine_at;
    case MU_I16: return i16_combine_at;
    case MU_I8: return i8_combine_at;
    case MU_U8: return u8_combine_at;
    default: return NULL;
    }
}

// A row is written after it has been read, so out-of-order execution cannot hide the cache miss: the row is prefetched.
// The rest of a row longer than this follows by itself.
enum { ROWS_AHEAD = 8, MOST_AHEAD = 512 };

static void prefetch_row(const char *row, size_t bytes)
{
    for (size_t i = 0; i < MU_MIN(bytes, (size_t)MOST_AHEAD); i += 64)
        __builtin_prefetch(row + i, 1);
}

void mu__accumulate_at(mu_combine combine, mu_dtype dtype, void *into, const int64_t *positions, const void *from,
                       int64_t inner, int64_t n)
{
    const size_t bytes = (size_t)inner * mu_dtype_bytes(dtype);
    const mu_scatter_indices checked = {.kind = MU_INDICES_CHECKED, .indices = positions};
    combiner *numbers = inner == 1 ? combiner_for(dtype) : NULL;
    if (numbers)
        numbers(combining[combine], into, &checked, from, n);
    for (int64_t i = 0; i < n && !numbers; i++) {
        if (i + ROWS_AHEAD < n)
            prefetch_row((const char *)into + (size_t)positions[i + ROWS_AHEAD] * bytes, bytes);
        mu__accumulate(combine, dtype, (char *)into + (size_t)positions[i] * bytes,
                       (const char *)from + (size_t)i * bytes, inner);
    }
}

int64_t mu__scatter_numbers(int combine, mu_dtype dtype, void *into, const mu_scatter_indices *positions,
                            const void *from, int64_t n)
{
    combiner *numbers = combiner_for(dtype);
    return numbers ? numbers(combine == MU_SCATTER_PUT ? MU_BINARY_PUT : combining[combine], into, positions, from, n)
                   : 0;
}

// For a dense operand and a short row that broadcasts to all of its rows: a tile repeats the row as often as it fits.
typedef struct tile_job {
    const binary_job *binary;
    int tiled;             // which operand is the row
    int64_t columns, rows; // of the tile
    const char *tile;
} tile_job;

static void tile_range(void *arg, int64_t begin, int64_t end)
{
    const tile_job *job = arg;
    const binary_job *binary = job->binary;
    const char *dense = binary->kernel->in[1 - job->tiled].data;
    for (int64_t row = begin; row < end; row += job->rows) {
        const int64_t n = MU_MIN(job->rows, end - row) * job->columns, at = row * job->columns;
        const char *from = dense + (size_t)at * binary->in_bytes;
        const char *a = job->tiled == 0 ? job->tile : from, *b = job->tiled == 1 ? job->tile : from;
        make_row(binary, &ONE_ROW(a, 1, b, 1, (char *)binary->kernel->out[0].data + (size_t)at * binary->out_bytes, n));
    }
}

// Returns false if the walk is not such a case, or if its rows are long enough without tiling.
static bool run_tiled(const binary_job *binary, const mu_walk *walk)
{
    enum { TILE_BYTES = 8192 };
    _Alignas(64) char tile[TILE_BYTES];
    const int64_t columns = walk->rank == 2 ? walk->dims[1] : 0;
    const size_t row = (size_t)columns * binary->in_bytes;
    tile_job job = {.binary = binary, .columns = columns, .tile = tile};
    if (columns == 0 || row > sizeof tile / 2 || walk->strides[0][1] != 1 || walk->strides[1][1] != 1)
        return false;
    job.tiled = walk->strides[0][0] == 0 ? 0 : 1;
    if (walk->strides[job.tiled][0] != 0 || walk->strides[1 - job.tiled][0] != columns)
        return false;
    job.rows = MU_MIN((int64_t)(sizeof tile / row), walk->dims[0]);
    mu__copy_blocks(tile, row, binary->kernel->in[job.tiled].data, 0, row, job.rows);
    mu__share_range(binary->kernel->team, walk->dims[0], job.rows, walk->dims[0] * columns, tile_range, &job);
    return true;
}

// Returns false if rows are long enough for one call each.
static bool run_short_rows(binary_job *job, const mu_walk *walk)
{
    enum { SHORT = 4096 };
    const int inner = walk->rank - 1;
    if (inner == 0 || walk->dims[inner] > (job->is_float16 ? (int)FLOAT16_CHUNK : (int)SHORT))
        return false;
    mu_walk outer = *walk;
    outer.rank--;
    job->row = ONE_ROW(NULL, walk->strides[0][inner], NULL, walk->strides[1][inner], NULL, walk->dims[inner]);
    mu__walk_blocks(&outer, job->kernel->team, job->row.n, binary_rows, job);
    return true;
}

static mu_status run_binary(const mu_kernel *k, loop2 *loop)
{
    mu_dtype dtype = k->in[0].dtype;
    binary_job job = {.kernel = k,
                      .loop = loop,
                      .in_bytes = mu_dtype_bytes(dtype),
                      .out_bytes = mu_dtype_bytes(k->out[0].dtype),
                      .is_float16 = dtype == MU_F16 || dtype == MU_BF16};
    mu_walk walk;
    mu__walk_make(&walk, &k->out[0].shape, 2, k->in);
    if (!run_tiled(&job, &walk) && !run_short_rows(&job, &walk))
        mu__walk_run(&walk, k->team, binary_row, &job);
    return MU_OK;
}

static mu_status arithmetic_fast(const mu_kernel *k) { return run_binary(k, arithmetic_loop(k->in[0].dtype)); }

static mu_status compare_fast(const mu_kernel *k) { return run_binary(k, compare_loop(k->in[0].dtype)); }

static bool has_bad(mu_dtype dtype, bool power, const void *data, int64_t n)
{
    switch (dtype) {
    case MU_I64: return i64_has_bad(power, data, n);
    case MU_I32: return i32_has_bad(power, data, n);
    case MU_I16: return i16_has_bad(power, data, n);
    case MU_I8: return i8_has_bad(power, data, n);
    default: return u8_has_bad(power, data, n);
    }
}

// Integers of the second operand that a result needs.
static int64_t checked_integers(const mu_kernel *k)
{
    const mu_view *b = &k->in[1];
    return mu__dtype_is_integer(b->dtype) && mu__elements(&k->out[0].shape) > 0 ? mu__elements(&b->shape) : 0;
}

mu_status mu__integer_error(const mu_op *op, int64_t value, int64_t i)
{
    return mu__error(
        MU_INVALID_ARGUMENT,
        op->variant == MU_BINARY_POW
            ? "%s: an integer to the power %lld (element %lld) is not an integer; cast to a float type first"
            : "%s: integer division by %lld (element %lld of the divisor)",
        op->name, (long long)value, (long long)i);
}

// Reports the first element of the second operand that is invalid: a zero divisor or a negative exponent.
mu_status mu__check_integers(const mu_kernel *k)
{
    const mu_view *b = &k->in[1];
    const bool power = k->op->variant == MU_BINARY_POW;
    for (int64_t i = 0; i < checked_integers(k); i++) {
        const int64_t value = mu__read_whole(b, i);
        if (power ? value < 0 : value == 0)
            return mu__integer_error(k->op, value, i);
    }
    return MU_OK;
}

static mu_status integer_fast(const mu_kernel *k)
{
    const mu_view *b = &k->in[1];
    const int64_t n = checked_integers(k);
    if (n > 0 && has_bad(b->dtype, k->op->variant == MU_BINARY_POW, b->data, n))
        return mu__check_integers(k);
    return arithmetic_fast(k);
}

static mu_status math_run(const mu_kernel *k)
{
    const mu_dtype dtype = k->in[0].dtype;
    if (dtype == MU_F64)
        return run_binary(k, f64_math);
    return dtype == MU_F32 || dtype == MU_F16 || dtype == MU_BF16 ? run_binary(k, f32_math) : integer_fast(k);
}

// ---- Shapes -------------------------------------------------------------------------------------

static mu_status compare_infer(mu_infer *infer)
{
    MU_TRY(mu__infer_broadcast(infer));
    infer->out[0].dtype = MU_BOOL;
    return MU_OK;
}

// ---- Samples ------------------------------------------------------------------------------------

static const mu_sample samples2[] = {
    {.n_in = 2, .in = {MU_DIMS(3, 5), MU_DIMS(3, 5)}},
    {.n_in = 2, .in = {MU_DIMS(4, 1, 3), MU_DIMS(5, 1)}},
    {.n_in = 2, .in = {MU_DIMS(2, 7), MU_DIMS(7)}},
    {.n_in = 2, .in = {MU_NO_DIMS, MU_DIMS(2, 2)}},
    {.n_in = 2, .in = {MU_DIMS(0, 3), MU_DIMS(3)}},
    {.n_in = 2, .in = {MU_DIMS(1, 1), MU_DIMS(1)}},
    {0},
};

static const mu_sample samples_divide[] = {
    {.n_in = 2, .in = {MU_DIMS(3, 5), MU_DIMS(3, 5)}, .low = {-9, 1}, .high = {9, 3}},
    {.n_in = 2, .in = {MU_DIMS(4, 1, 3), MU_DIMS(5, 1)}, .low = {-9, -3}, .high = {9, -1}},
    {.n_in = 2, .in = {MU_DIMS(2, 7), MU_NO_DIMS}, .low = {-9, 1}, .high = {9, 3}},
    {.n_in = 2, .in = {MU_DIMS(0, 3), MU_DIMS(3)}, .low = {-9, 1}, .high = {9, 3}},
    {0},
};

static const mu_sample samples_power[] = {
    {.n_in = 2, .in = {MU_DIMS(3, 5), MU_DIMS(3, 5)}, .low = {0.5, 0}, .high = {3, 3}},
    {.n_in = 2, .in = {MU_DIMS(4, 1, 3), MU_DIMS(5, 1)}, .low = {0.5, 0}, .high = {3, 3}},
    {0},
};

// ---- Arithmetic ---------------------------------------------------------------------------------

#define ROW2(text, which, more_flags, allowed)                                                        \
    .name = text, .variant = which, .n_in = 2, .n_out = 1, .flags = MU_OP_ELEMENTWISE | (more_flags), \
    .dtypes = allowed, .in_place = 3, .infer = mu__infer_broadcast
#define FAST   .ref = mu__arithmetic_ref, .cpu = {.run = arithmetic_fast}
#define SIMPLE FAST, .samples = samples2

static mu_tensor *add_grad(mu_grad *g, int i) { return mu__unbroadcast(g, g->dy, i); }
const mu_op mu_op_add = {ROW2("add", MU_BINARY_ADD, MU_OP_COMMUTES, MU_NUMBERS), .grad = add_grad,
                         .hlo = "stablehlo.add", SIMPLE};
static mu_tensor *subtract_grad(mu_grad *g, int i)
{
    mu_tensor *dx = mu__unbroadcast(g, g->dy, i);
    return i == 0 ? dx : mu_neg(dx);
}
const mu_op mu_op_subtract = {ROW2("subtract", MU_BINARY_SUBTRACT, 0, MU_NUMBERS), .grad = subtract_grad,
                              .hlo = "stablehlo.subtract", SIMPLE};
static mu_tensor *multiply_grad(mu_grad *g, int i) { return mu__unbroadcast(g, mu_multiply(g->dy, g->x[1 - i]), i); }
const mu_op mu_op_multiply = {ROW2("multiply", MU_BINARY_MULTIPLY, MU_OP_COMMUTES, MU_NUMBERS), .grad = multiply_grad,
                              .hlo = "stablehlo.multiply", SIMPLE};
static mu_tensor *divide_grad(mu_grad *g, int i)
{
    mu_tensor *dx = mu__apply2(g->op, NULL, g->dy, g->x[1]); // the gradient of divide_no_nan uses it too
    return mu__unbroadcast(g, i == 0 ? dx : mu_neg(mu_multiply(dx, g->y[0])), i);
}
const mu_op mu_op_divide = {ROW2("divide", MU_BINARY_DIVIDE, 0, MU_FLOATS), .grad = divide_grad,
                            .hlo = "stablehlo.divide", .samples = samples_divide, FAST};

// Integers are divided as floats, as in TensorFlow's true division.
static mu_tensor *true_division(const mu_op *op, mu_tensor *a, mu_tensor *b)
{
    if (a && b && a->dtype == b->dtype && mu__dtype_is_integer(a->dtype)) {
        mu_dtype wide = mu_dtype_bytes(a->dtype) >= 4 ? MU_F64 : MU_F32;
        a = mu_cast(a, wide);
        b = mu_cast(b, wide);
    }
    return mu__apply2(op, NULL, a, b);
}

mu_tensor *mu_divide(mu_tensor *a, mu_tensor *b) { return true_division(&mu_op_divide, a, b); }

const mu_op mu_op_divide_no_nan = {ROW2("divide_no_nan", MU_BINARY_DIVIDE_NO_NAN, 0, MU_FLOATS), .grad = divide_grad,
                                   .samples = samples_divide, FAST, .lower = mu__lower_divide_no_nan};
mu_tensor *mu_divide_no_nan(mu_tensor *a, mu_tensor *b) { return true_division(&mu_op_divide_no_nan, a, b); }

const mu_op mu_op_floor_divide = {ROW2("floor_divide", MU_BINARY_FLOOR_DIVIDE, 0, MU_NUMBERS),
                                  .ref = mu__arithmetic_ref,
                                  .cpu = {.run = integer_fast},
                                  .samples = samples_divide,
                                  .fails_for = MU_INTS,
                                  .lower = mu__lower_whole_division};
static mu_tensor *mod_grad(mu_grad *g, int i)
{
    mu_tensor *dx = i == 0 ? g->dy : mu_neg(mu_multiply(g->dy, mu_floor_divide(g->x[0], g->x[1])));
    return mu__unbroadcast(g, dx, i);
}
const mu_op mu_op_mod = {ROW2("mod", MU_BINARY_MOD, 0, MU_NUMBERS),
                         .ref = mu__arithmetic_ref,
                         .cpu = {.run = math_run},
                         .grad = mod_grad,
                         .samples = samples_divide,
                         .lower = mu__lower_whole_division,
                         .fails_for = MU_INTS};
// d/dy x^y = x^y log x. If x is not positive, log x counts as 0, as in TensorFlow.
static mu_tensor *pow_grad(mu_grad *g, int i)
{
    mu_tensor *x = g->x[0], *y = g->x[1], *dx;
    if (i == 0) {
        dx = mu_multiply(y, mu_pow(x, mu_subtract(y, mu__scalar_like(y, 1))));
    } else {
        mu_tensor *one = mu__scalar_like(x, 1), *positive = mu_greater(x, mu__scalar_like(x, 0));
        dx = mu_multiply(g->y[0], mu_log(mu_where(positive, x, one)));
    }
    return mu__unbroadcast(g, mu_multiply(g->dy, dx), i);
}
const mu_op mu_op_pow = {ROW2("pow", MU_BINARY_POW, 0, MU_NUMBERS),
                         .ref = mu__arithmetic_ref,
                         .cpu = {.run = math_run},
                         .grad = pow_grad,
                         .hlo = "stablehlo.power",
                         .samples = samples_power,
                         .fails_for = MU_INTS,
                         .lower = mu__lower_pow};
// At a tie the first operand gets the whole gradient.
static mu_tensor *minmax_grad(mu_grad *g, int i)
{
    bool greatest = g->op->variant == MU_BINARY_MAXIMUM;
    mu_tensor *first = greatest ? mu_greater_equal(g->x[0], g->x[1]) : mu_less_equal(g->x[0], g->x[1]);
    mu_tensor *zero = mu__scalar_like(g->dy, 0);
    return mu__unbroadcast(g, i == 0 ? mu_where(first, g->dy, zero) : mu_where(first, zero, g->dy), i);
}
const mu_op mu_op_maximum = {ROW2("maximum", MU_BINARY_MAXIMUM, MU_OP_COMMUTES, MU_NUMBERS), .grad = minmax_grad,
                             .hlo = "stablehlo.maximum", SIMPLE};
const mu_op mu_op_minimum = {ROW2("minimum", MU_BINARY_MINIMUM, MU_OP_COMMUTES, MU_NUMBERS), .grad = minmax_grad,
                             .hlo = "stablehlo.minimum", SIMPLE};
static mu_tensor *squared_difference_grad(mu_grad *g, int i)
{
    mu_tensor *dx = mu_multiply(mu__scale(g->dy, i == 0 ? 2 : -2), mu_subtract(g->x[0], g->x[1]));
    return mu__unbroadcast(g, dx, i);
}
const mu_op mu_op_squared_difference = {
    ROW2("squared_difference", MU_BINARY_SQUARED_DIFFERENCE, MU_OP_COMMUTES, MU_NUMBERS),
    .grad = squared_difference_grad, SIMPLE, .lower = mu__lower_squared_difference};
static mu_tensor *atan2_grad(mu_grad *g, int i)
{
    mu_tensor *y = g->x[0], *x = g->x[1];
    mu_tensor *factor = mu_divide(g->dy, mu_add(mu_square(x), mu_square(y)));
    return mu__unbroadcast(g, i == 0 ? mu_multiply(x, factor) : mu_neg(mu_multiply(y, factor)), i);
}
const mu_op mu_op_atan2 = {ROW2("atan2", MU_BINARY_ATAN2, 0, MU_FLOATS),
                           .cpu = {.run = math_run},
                           .grad = atan2_grad,
                           .ref = mu__arithmetic_ref,
                           .hlo = "stablehlo.atan2",
                           .samples = samples2};
// ---- Comparisons --------------------------------------------------------------------------------

#define ROW_COMPARE(text, which, allowed)                                                                 \
    .name = text, .variant = which, .n_in = 2, .n_out = 1, .flags = MU_OP_ELEMENTWISE, .dtypes = allowed, \
    .infer = compare_infer, .ref = mu__compare_ref, .cpu = {.run = compare_fast}, .samples = samples2

const mu_op mu_op_equal = {ROW_COMPARE("equal", MU_BINARY_EQUAL, MU_ALL_DTYPES), .lower = mu__lower_compare};
const mu_op mu_op_not_equal = {ROW_COMPARE("not_equal", MU_BINARY_NOT_EQUAL, MU_ALL_DTYPES),
                               .lower = mu__lower_compare};
const mu_op mu_op_less = {ROW_COMPARE("less", MU_BINARY_LESS, MU_NUMBERS), .lower = mu__lower_compare};
const mu_op mu_op_less_equal = {ROW_COMPARE("less_equal", MU_BINARY_LESS_EQUAL, MU_NUMBERS),
                                .lower = mu__lower_compare};
const mu_op mu_op_greater = {ROW_COMPARE("greater", MU_BINARY_GREATER, MU_NUMBERS), .lower = mu__lower_compare};
const mu_op mu_op_greater_equal = {ROW_COMPARE("greater_equal", MU_BINARY_GREATER_EQUAL, MU_NUMBERS),
                                   .lower = mu__lower_compare};
// ---- Clipping -----------------------------------------------------------------------------------

typedef void clip_loop(const void *x, int64_t step, const void *low, int64_t step_low, const void *high,
                       int64_t step_high, void *out, int64_t n);

static clip_loop *clip_loop_of(mu_dtype dtype)
{
    switch (dtype) {
    case MU_F64: return f64_clip;
    case MU_I64: return i64_clip;
    case MU_I32: return i32_clip;
    case MU_I16: return i16_clip;
    case MU_I8: return i8_clip;
    case MU_U8: return u8_clip;
    default: return f32_clip;
    }
}

// A row of the result: where its operands begin, and their strides in elements.
typedef struct clip_part {
    const char *in[3];
    int64_t step[3];
} clip_part;

static void clip_in_f32(void *arg, const mu_f32_run *run)
{
    const clip_part *part = arg;
    f32_clip(run->in[0], part->step[0], run->in[1], part->step[1], run->in[2], part->step[2], run->out, run->n);
}

static void clip_row(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t n)
{
    const mu_kernel *k = arg;
    const mu_dtype dtype = k->out[0].dtype;
    clip_part part;
    mu_float16_run run = {.in_dtype = dtype,
                          .out_dtype = dtype,
                          .n_in = 3,
                          .n = n,
                          .out = (char *)k->out[0].data + (size_t)out_at * mu_dtype_bytes(dtype)};
    for (int i = 0; i < 3; i++) {
        run.step[i] = part.step[i] = walk->strides[i][walk->rank - 1];
        run.in[i] = part.in[i] = (const char *)k->in[i].data + (size_t)at[i] * mu_dtype_bytes(dtype);
    }
    if (dtype == MU_F16 || dtype == MU_BF16)
        mu__in_f32(&run, clip_in_f32, &part);
    else
        clip_loop_of(dtype)(part.in[0], part.step[0], part.in[1], part.step[1], part.in[2], part.step[2], run.out, n);
}

static mu_status clip_fast(const mu_kernel *k)
{
    mu_walk walk;
    mu__walk_make(&walk, &k->out[0].shape, 3, k->in);
    mu__walk_run(&walk, k->team, clip_row, (void *)(uintptr_t)k);
    return MU_OK;
}

static mu_status clip_infer(mu_infer *infer)
{
    mu_shape both;
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    MU_TRY(mu__need_same_dtype(infer, 0, 2));
    MU_TRY(mu__broadcast(&infer->in[0].shape, &infer->in[2].shape, &both, infer->op->name));
    infer->out[0].dtype = infer->in[0].dtype;
    return mu__broadcast(&both, &infer->in[1].shape, &infer->out[0].shape, infer->op->name);
}

// The gradient of max(min(x, high), low); a NaN's gradient goes to low.
static mu_tensor *clip_grad(mu_grad *g, int i)
{
    mu_tensor *zero = mu__scalar_like(g->dy, 0), *below_high = mu_less_equal(g->x[0], g->x[2]);
    mu_tensor *above_low = mu_greater_equal(mu_minimum(g->x[0], g->x[2]), g->x[1]);
    mu_tensor *dx = i == 0   ? mu_where(mu_logical_and(above_low, below_high), g->dy, zero)
                    : i == 1 ? mu_where(above_low, zero, g->dy)
                             : mu_where(mu_logical_and(above_low, mu_logical_not(below_high)), g->dy, zero);
    return mu__unbroadcast(g, dx, i);
}

static const mu_sample samples_clip[] = {
    {.n_in = 3, .in = {MU_DIMS(3, 5), MU_NO_DIMS, MU_NO_DIMS}, .low = {-2, -1, 0.5}, .high = {2, -0.5, 1}},
    {.n_in = 3, .in = {MU_DIMS(4, 3), MU_DIMS(3), MU_DIMS(4, 1)}, .low = {-2, -1, 0.5}, .high = {2, -0.5, 1}},
    {.n_in = 3, .in = {MU_DIMS(0, 3), MU_DIMS(3), MU_NO_DIMS}},
    {0},
};
const mu_op mu_op_clip_by_value = {
    .name = "clip_by_value",
    .n_in = 3,
    .n_out = 1,
    .flags = MU_OP_ELEMENTWISE,
    .dtypes = MU_NUMBERS,
    .in_place = 1,
    .infer = clip_infer,
    .grad = clip_grad,
    .ref = mu__clip_ref,
    .cpu = {.run = clip_fast},
    .samples = samples_clip,
    .lower = mu__lower_clip,
};
mu_tensor *mu_clip_by_value(mu_tensor *x, mu_tensor *low, mu_tensor *high)
{
    return mu__apply3(&mu_op_clip_by_value, NULL, x, low, high);
}
