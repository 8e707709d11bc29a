// matmul: op definition and public functions.
//
// float32 and bfloat16 use oneDNN's matmul on row-major arrays (a transpose only swaps strides); float16, and bfloat16
// where the processor multiplies float32 faster, are computed as float32. Large products of float64 and of integers use
// our kernels (small integers as int32). Everything else uses the products of gemm.c, also vector-matrix products,
// which are bound by memory. Leading axes are batch axes and broadcast; one oneDNN call gets as many trailing batch
// axes as it handles efficiently. The fast kernel takes a bias too, as third input: the native engine's matmul_bias
// (engine/cpu/fused_bias.c) runs it.
#include "kernels/kernels.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"
#include "ops/onednn/onednn.h"

#include <muster/nn.h>
#include <muster/ops.h>

static const mu_attr_spec matmul_fields[] = {
    MU_MATMUL_FIELDS,
    {0},
};

// ---- Shapes -------------------------------------------------------------------------------------

// A batched product: rows, inner size and columns, and the strides of both operands in elements.
typedef struct product {
    int64_t m, k, n;
    int64_t a_row, a_col, b_row, b_col;
    mu_shape batch_a, batch_b, batch; // leading axes
} product;

static mu_status describe(const mu_matmul_attrs *attrs, const mu_shape *a, const mu_shape *b, const char *op,
                          product *out)
{
    char a_text[MU_SHAPE_TEXT], b_text[MU_SHAPE_TEXT];
    if (a->rank < 2 || b->rank < 2)
        return mu__error(MU_INVALID_ARGUMENT, "%s: needs two matrices (rank 2 or more), got shapes %s and %s", op,
                         mu__shape_text(a, a_text), mu__shape_text(b, b_text));
    const int64_t a0 = a->dims[a->rank - 2], a1 = a->dims[a->rank - 1];
    const int64_t b0 = b->dims[b->rank - 2], b1 = b->dims[b->rank - 1];
    const int64_t k_a = attrs->transpose_a ? a0 : a1, k_b = attrs->transpose_b ? b1 : b0;
    if (k_a != k_b && k_a != MU_UNKNOWN && k_b != MU_UNKNOWN)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the inner axes differ, %lld and %lld, in shapes %s%s and %s%s; they must be equal", op,
                         (long long)k_a, (long long)k_b, mu__shape_text(a, a_text),
                         attrs->transpose_a ? " (transposed)" : "", mu__shape_text(b, b_text),
                         attrs->transpose_b ? " (transposed)" : "");
    *out = (product){
        .m = attrs->transpose_a ? a1 : a0,
        .k = k_a,
        .n = attrs->transpose_b ? b0 : b1,
        .a_row = attrs->transpose_a ? 1 : a1,
        .a_col = attrs->transpose_a ? a1 : 1,
        .b_row = attrs->transpose_b ? 1 : b1,
        .b_col = attrs->transpose_b ? b1 : 1,
        .batch_a = mu__batch_axes(a),
        .batch_b = mu__batch_axes(b),
    };
    return mu__broadcast(&out->batch_a, &out->batch_b, &out->batch, op);
}

static mu_status matmul_infer(mu_infer *infer)
{
    product it;
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    MU_TRY(describe(infer->attrs, &infer->in[0].shape, &infer->in[1].shape, infer->op->name, &it));
    mu_shape shape = it.batch;
    if (shape.rank + 2 > MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the result would have rank %d, the limit is %d", infer->op->name,
                         shape.rank + 2, MU_MAX_RANK);
    shape.dims[shape.rank++] = it.m;
    shape.dims[shape.rank++] = it.n;
    infer->out[0] = (mu_spec){infer->in[0].dtype, shape};
    return MU_OK;
}

// ---- Gradients ----------------------------------------------------------------------------------

static mu_tensor *product_of(mu_tensor *a, mu_tensor *b, bool transpose_a, bool transpose_b)
{
    mu_matmul_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.transpose_a = transpose_a;
    attrs.transpose_b = transpose_b;
    return mu__apply2(&mu_op_matmul, &attrs, a, b);
}

static bool same_batches(const mu_tensor *a, const mu_tensor *b)
{
    const mu_shape x = mu__batch_axes(&a->shape), y = mu__batch_axes(&b->shape);
    return mu__shape_equal(&x, &y) && mu__shape_known(&x);
}

// The rows of all batches, as one matrix.
static mu_tensor *rows_of(mu_tensor *x) { return mu_reshape(x, 2, (int64_t[]){-1, x->shape.dims[x->shape.rank - 1]}); }

// Whether b is one matrix for all batches of a: then its gradient is one product over all rows, and no sum of products.
static bool is_for_all(const mu_matmul_attrs *attrs, const mu_tensor *a, const mu_tensor *b, const mu_tensor *dy)
{
    return b->shape.rank == 2 && a->shape.rank > 2 && !attrs->transpose_a && a->shape.dims[a->shape.rank - 1] > 0 &&
           dy->shape.dims[dy->shape.rank - 1] > 0;
}

// The gradient of one factor of op(a) op(b), where op may transpose.
static mu_tensor *factor_grad(const mu_matmul_attrs *attrs, mu_tensor *a, mu_tensor *b, mu_tensor *dy, int i)
{
    const bool ta = attrs->transpose_a, tb = attrs->transpose_b;
    if (i == 1 && is_for_all(attrs, a, b, dy)) {
        mu_tensor *x = rows_of(a), *d = rows_of(dy);
        return x && d ? (tb ? product_of(d, x, true, false) : product_of(x, d, true, false)) : NULL;
    }
    mu_tensor *grad = i == 0 ? (ta ? product_of(b, dy, tb, true) : product_of(dy, b, false, !tb))
                             : (tb ? product_of(dy, a, true, ta) : product_of(a, dy, !ta, false));
    if (!grad || (a->shape.rank == 2 && b->shape.rank == 2) || same_batches(a, b))
        return grad;
    return mu_sum_to_like(grad, i == 0 ? a : b);
}

static mu_tensor *matmul_grad(mu_grad *g, int i) { return factor_grad(g->attrs, g->x[0], g->x[1], g->dy, i); }

// ---- Plain loop ---------------------------------------------------------------------------------

// Offset, in matrices, of batch element `index` in an operand whose leading axes broadcast.
static int64_t batch_offset(const mu_shape *batch, const mu_shape *operand, int64_t index)
{
    int64_t offset = 0, stride = 1;
    for (int axis = batch->rank - 1, own = operand->rank - 1; own >= 0; axis--, own--) {
        const int64_t at = index % batch->dims[axis];
        index /= batch->dims[axis];
        offset += operand->dims[own] == 1 ? 0 : at * stride;
        stride *= operand->dims[own];
    }
    return offset;
}

// One product at a time, in float64 or int64.
static mu_status matmul_ref(const mu_kernel *kernel)
{
    product it;
    mu_wide a = {0}, b = {0}, c = {0};
    mu_status status = MU_OK;
    MU_TRY(describe(kernel->attrs, &kernel->in[0].shape, &kernel->in[1].shape, kernel->op->name, &it));
    MU_GO(mu__wide_open(&a, &kernel->in[0], false));
    MU_GO(mu__wide_open(&b, &kernel->in[1], false));
    MU_GO(mu__wide_open(&c, &kernel->out[0], true));
    for (int64_t i = 0; i < mu__elements(&kernel->out[0].shape); i++) {
        const int64_t column = i % it.n, row = i / it.n % it.m, batch = i / it.n / it.m;
        const int64_t a_at = batch_offset(&it.batch, &it.batch_a, batch) * it.m * it.k + row * it.a_row;
        const int64_t b_at = batch_offset(&it.batch, &it.batch_b, batch) * it.k * it.n + column * it.b_col;
        for (int64_t p = 0; p < it.k; p++)
            mu__wide_multiply(&c, i, &a, a_at + p * it.a_col, &b, b_at + p * it.b_row);
    }
    mu__wide_store(&c);
out:
    mu__wide_close(&a);
    mu__wide_close(&b);
    mu__wide_close(&c);
    return status;
}

// ---- Products of gemm.c -------------------------------------------------------------------------

static bool gemm_type(mu_dtype dtype, mu_gemm_type *type)
{
    switch (dtype) {
    case MU_F32: *type = MU_GEMM_F32; return true;
    case MU_F64: *type = MU_GEMM_F64; return true;
    case MU_I32: *type = MU_GEMM_I32; return true;
    case MU_I64: *type = MU_GEMM_I64; return true;
    default: return false;
    }
}

mu_gemm *mu__gemm_for(mu_dtype dtype)
{
    mu_gemm_type type;
    return gemm_type(dtype, &type) ? mu__gemm_of(type) : NULL;
}

mu_outer *mu__outer_for(mu_dtype dtype)
{
    mu_gemm_type type;
    return gemm_type(dtype, &type) ? mu__outer_of(type) : NULL;
}

// An outer product of a column and a row.
typedef struct outer_job {
    mu_outer *outer;
    const mu_kernel *kernel;
    const product *it;
} outer_job;

static void outer_rows(void *arg, int64_t begin, int64_t end)
{
    const outer_job *job = arg;
    const mu_kernel *k = job->kernel;
    job->outer(k->out[0].data, k->in[0].data, k->in[1].data, job->it->n, begin, end);
}

static mu_status run_gemm(const mu_kernel *kernel)
{
    mu_gemm *gemm = mu__gemm_for(kernel->in[0].dtype);
    product it;
    MU_TRY(describe(kernel->attrs, &kernel->in[0].shape, &kernel->in[1].shape, kernel->op->name, &it));
    const size_t element = mu_dtype_bytes(kernel->in[0].dtype);
    if (it.k == 1 && mu__elements(&it.batch) == 1) {
        outer_job job = {mu__outer_for(kernel->in[0].dtype), kernel, &it};
        mu__share_range(kernel->team, it.m, 1, it.m * it.n, outer_rows, &job);
        return MU_OK;
    }
    memset(kernel->out[0].data, 0, element * (size_t)mu__elements(&kernel->out[0].shape));
    const int64_t batches = mu__elements(&it.batch);
    for (int64_t i = 0; i < batches; i++) {
        const char *a = kernel->in[0].data, *b = kernel->in[1].data;
        char *c = kernel->out[0].data;
        gemm(c + element * (size_t)(i * it.m * it.n), it.n,
             a + element * (size_t)(batch_offset(&it.batch, &it.batch_a, i) * it.m * it.k), it.a_row, it.a_col,
             b + element * (size_t)(batch_offset(&it.batch, &it.batch_b, i) * it.k * it.n), it.b_row, it.b_col, it.m,
             it.n, it.k);
    }
    return MU_OK;
}

static mu_status run_loops(const mu_kernel *kernel)
{
    const mu_matmul_attrs *attrs = kernel->attrs;
    if (!mu__gemm_for(kernel->in[0].dtype))
        return mu__dtype_is_integer(kernel->in[0].dtype) ? mu__run_as_i32(kernel, run_loops)
                                                         : mu__run_as_f32(kernel, run_loops);
    MU_TRY(run_gemm(kernel));
    if (kernel->n_in == 3)
        mu__bias_in_place(&kernel->out[0], &kernel->in[2], attrs->relu);
    return MU_OK;
}

// ---- Kernels of float64 and integers ------------------------------------------------------------

typedef struct kernel_job {
    const mu_kernel *kernel;
    const product *it;
} kernel_job;

static bool has_kernel(mu_dtype dtype) { return mu__dtype_is_integer(dtype) || dtype == MU_F64; }

// The products of gemm.c are as fast if the matrices fit the second-level cache. The decision must not depend on the
// team, because the two ways may differ in the last bits.
static bool kernel_takes(mu_dtype dtype, const product *it)
{
    enum { FEW = 8, NARROW = 64, LARGE = 192 * 192 * 192 };
    return has_kernel(dtype) && it->m >= FEW && it->n >= NARROW &&
           (double)it->m * (double)it->n * (double)it->k >= LARGE;
}

// Computes rows [begin, end) of one matrix of the result.
static void kernel_rows(const kernel_job *job, int64_t batch, void *scratch, int64_t begin, int64_t end)
{
    const product *it = job->it;
    const mu_view *in = job->kernel->in;
    const size_t element = mu_dtype_bytes(in[0].dtype);
    const mu_product_shape shape = {it->m, it->n, it->k, it->a_row, it->a_col, it->b_row, it->b_col};
    const int64_t a_at = batch_offset(&it->batch, &it->batch_a, batch) * it->m * it->k;
    const int64_t b_at = batch_offset(&it->batch, &it->batch_b, batch) * it->k * it->n;
    const void *a = (const char *)in[0].data + element * (size_t)a_at;
    const void *b = (const char *)in[1].data + element * (size_t)b_at;
    void *c = (char *)job->kernel->out[0].data + element * (size_t)(batch * it->m * it->n);
    if (in[0].dtype == MU_F64)
        mu__kernels()->product_f64(&shape, a, b, c, scratch, begin, end);
    else if (in[0].dtype == MU_I64)
        mu__kernels()->product_i64(&shape, a, b, c, scratch, begin, end);
    else
        mu__kernels()->product_i32(&shape, a, b, c, scratch, begin, end);
}

// If there are enough matrices, a member takes whole matrices; otherwise it takes some rows of each.
static void kernel_member(void *arg, int index, int count)
{
    const kernel_job *job = arg;
    const int64_t batches = mu__elements(&job->it->batch), m = job->it->m;
    const bool whole = batches >= count;
    void *scratch = (char *)job->kernel->scratch + (size_t)index * MU_PRODUCT_SCRATCH;
    int64_t begin, end;
    mu__team_share(whole ? batches : m, 1, index, count, &begin, &end);
    for (int64_t i = whole ? begin : 0; i < (whole ? end : batches); i++)
        kernel_rows(job, i, scratch, whole ? 0 : begin, whole ? m : end);
}

static mu_status run_kernel(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->in[0].dtype;
    if (mu_dtype_bytes(dtype) < 4)
        return mu__run_as_i32(kernel, run_kernel);
    product it;
    MU_TRY(describe(kernel->attrs, &kernel->in[0].shape, &kernel->in[1].shape, kernel->op->name, &it));
    kernel_job job = {kernel, &it};
    const int64_t work = mu__elements(&kernel->out[0].shape) * MU_MAX(it.k, 1);
    mu__team_run(mu__team_for(kernel->team, work), kernel_member, &job);
    return MU_OK;
}

// ---- oneDNN -------------------------------------------------------------------------------------

enum { MAX_DIMS = MU_MAX_RANK };

// Layout of one operand: batch axes (missing ones have size 1), then a matrix with the given strides.
static dnnl_memory_desc_t operand_layout(mu_dnnl *dnnl, const mu_shape *batch, const mu_shape *own, int64_t rows,
                                         int64_t columns, int64_t row, int64_t column, dnnl_data_type_t type)
{
    dnnl_dim_t dims[MAX_DIMS], strides[MAX_DIMS];
    const int n = batch->rank, missing = batch->rank - own->rank;
    int64_t stride = rows * columns;
    for (int axis = n - 1; axis >= 0; axis--) {
        dims[axis] = axis < missing ? 1 : own->dims[axis - missing];
        strides[axis] = stride;
        stride *= dims[axis];
    }
    dims[n] = rows;
    dims[n + 1] = columns;
    strides[n] = row;
    strides[n + 1] = column;
    return mu__dnnl_layout(dnnl, n + 2, dims, type, strides);
}

// First of the leading axes [first, rank) that one primitive handles: axes that both operands have, or axes that only a
// has, whose matrices are stacked vertically. The axes before `first` are looped over.
static int first_at_once(const product *it)
{
    bool both = true, only_a = it->a_col == 1;
    int first = it->batch.rank;
    for (; first > 0; first--) {
        const int from_end = it->batch.rank - first + 1;
        const int64_t a = from_end <= it->batch_a.rank ? it->batch_a.dims[it->batch_a.rank - from_end] : 1;
        const int64_t b = from_end <= it->batch_b.rank ? it->batch_b.dims[it->batch_b.rank - from_end] : 1;
        if (!(both && a == b) && !(only_a && b == 1))
            break;
        both = both && a == b;
        only_a = only_a && b == 1;
    }
    return first;
}

// The product for one primitive, with one batch axis, or with a's matrices stacked into one. It runs n times and each
// run computes `matrices` matrices of the result.
static product at_once(const product *it, int64_t *n, int64_t *matrices)
{
    const int first = first_at_once(it), own = MU_MIN(it->batch.rank - first, it->batch_b.rank);
    product one = *it;
    int64_t b_matrices = 1;
    *matrices = *n = 1;
    for (int i = 0; i < it->batch.rank; i++)
        *(i < first ? n : matrices) *= it->batch.dims[i];
    for (int i = it->batch_b.rank - own; i < it->batch_b.rank; i++)
        b_matrices *= it->batch_b.dims[i];
    one.batch_a = one.batch_b = one.batch = mu_shape_make(1, matrices);
    if (b_matrices == 1) {
        one.m *= *matrices;
        one.batch_a.rank = one.batch_b.rank = one.batch.rank = 0;
    }
    return one;
}

// Whether the products of gemm.c are as good: for products so small that creating a primitive takes longer, and for
// products that are one pass over memory.
static bool loops_are_better(dnnl_data_type_t type, int64_t batches, const product *it, const product *one)
{
    enum { SMALL = 16 * 16 * 16 };
    const bool pass = one->n == 1 || one->m == 1 || (it->k == 1 && batches == 1);
    return type == dnnl_f32 && (batches * it->m * it->n * it->k <= SMALL || pass);
}

// State made by prepare: a primitive for `matrices` of the result's matrices, which runs n times.
typedef struct product_state {
    mu_dnnl *dnnl;
    int64_t n, matrices;
    bool as_f32; // converts its operands
} product_state;

static void state_free(void *object)
{
    product_state *state = object;
    if (state)
        mu__dnnl_free(state->dnnl);
    mu__free(state);
}

// For large float32 matrices oneDNN 2.6.3's sgemm is faster than its default with AVX-512. If b is transposed, it is no
// faster, and its sums depend on the number of threads.
static const char *best_kind(const product *p, dnnl_data_type_t type)
{
    enum { LARGE = 256 };
    return type == dnnl_f32 && p->b_col == 1 && p->m >= LARGE && p->n >= LARGE && p->k >= LARGE ? "gemm" : NULL;
}

static mu_status build_primitive(mu_prepare *prepare, const product *p, dnnl_data_type_t type)
{
    const mu_matmul_attrs *attrs = prepare->attrs;
    mu_dnnl *dnnl = mu__dnnl_new(prepare->op->name);
    if (!dnnl)
        return MU_RESOURCE_EXHAUSTED;
    const mu_shape *batch = &p->batch;
    const dnnl_memory_desc_t a = operand_layout(dnnl, batch, &p->batch_a, p->m, p->k, p->a_row, p->a_col, type);
    const dnnl_memory_desc_t b = operand_layout(dnnl, batch, &p->batch_b, p->k, p->n, p->b_row, p->b_col, type);
    const dnnl_memory_desc_t c = operand_layout(dnnl, batch, batch, p->m, p->n, p->n, 1, type);
    const bool biased = prepare->n_in == 3;
    const dnnl_memory_desc_t bias = mu__dnnl_layout(dnnl, 2, (dnnl_dim_t[]){1, p->n}, type, NULL);
    dnnl_matmul_desc_t operation;
    const_dnnl_primitive_desc_t chosen = NULL;
    if (dnnl_matmul_desc_init(&operation, &a, &b, biased ? &bias : NULL, &c) == dnnl_success)
        chosen = mu__dnnl_choose_kind(dnnl, &operation, attrs->relu, NULL, best_kind(p, type));
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, mu__dnnl_operand(dnnl, 0, &a)},
        {DNNL_ARG_WEIGHTS, mu__dnnl_operand(dnnl, 1, &b)},
        {DNNL_ARG_DST, mu__dnnl_operand(dnnl, prepare->n_in, &c)},
        {DNNL_ARG_BIAS, biased ? mu__dnnl_operand(dnnl, 2, &bias) : NULL},
    };
    mu__dnnl_step(dnnl, chosen, biased ? 4 : 3, args);
    return mu__dnnl_finish(dnnl, prepare);
}

static mu_status matmul_prepare(mu_prepare *prepare)
{
    dnnl_data_type_t type;
    product it;
    const mu_dtype dtype = prepare->in[0].dtype;
    MU_TRY(describe(prepare->attrs, &prepare->in[0].shape, &prepare->in[1].shape, prepare->op->name, &it));
    if (prepare->n_in == 2 && kernel_takes(dtype, &it)) {
        prepare->scratch_bytes = (size_t)prepare->team->n_threads * MU_PRODUCT_SCRATCH;
        return MU_OK;
    }
    product_state *state = mu__calloc(1, sizeof *state);
    if (!state)
        return MU_RESOURCE_EXHAUSTED;
    const int64_t batches = mu__elements(&it.batch);
    const product one = batches > 0 ? at_once(&it, &state->n, &state->matrices) : it;
    const bool loops =
        !mu__dnnl_type(dtype, &type) || batches * it.m * it.n * it.k == 0 || loops_are_better(type, batches, &it, &one);
    const mu_status status = loops ? MU_OK : build_primitive(prepare, &one, type);
    if (status != MU_OK || loops || prepare->declined) { // without a state: run_loops
        mu__free(state);
        prepare->declined = false;
        return status;
    }
    state->dnnl = prepare->state;
    state->as_f32 = type == dnnl_f32 && dtype != MU_F32;
    prepare->state = state;
    return MU_OK;
}

static mu_status run_batches(const mu_kernel *kernel)
{
    const product_state *state = kernel->state;
    mu_kernel one = *kernel;
    one.state = state->dnnl;
    if (state->n == 1)
        return mu__dnnl_run(&one);
    product it;
    mu_view a = kernel->in[0], b = kernel->in[1], c = kernel->out[0];
    const size_t element = mu_dtype_bytes(a.dtype);
    MU_TRY(describe(kernel->attrs, &a.shape, &b.shape, kernel->op->name, &it));
    one.out = &c;
    for (int64_t i = 0; i < state->n; i++) {
        const int64_t at = i * state->matrices;
        mu_view in[] = {a, b};
        in[0].data = (char *)a.data + element * (size_t)(batch_offset(&it.batch, &it.batch_a, at) * it.m * it.k);
        in[1].data = (char *)b.data + element * (size_t)(batch_offset(&it.batch, &it.batch_b, at) * it.k * it.n);
        c.data = (char *)kernel->out[0].data + element * (size_t)(at * it.m * it.n);
        one.in = in;
        MU_TRY(mu__dnnl_run(&one));
    }
    return MU_OK;
}

static mu_status matmul_run(const mu_kernel *kernel)
{
    const product_state *state = kernel->state;
    const mu_dtype dtype = kernel->in[0].dtype;
    product it;
    if (!state && (kernel->n_in == 3 || !has_kernel(dtype)))
        return run_loops(kernel);
    if (!state) {
        MU_TRY(describe(kernel->attrs, &kernel->in[0].shape, &kernel->in[1].shape, kernel->op->name, &it));
        return kernel_takes(dtype, &it) ? run_kernel(kernel) : run_loops(kernel);
    }
    return state->as_f32 ? mu__run_as_f32(kernel, run_batches) : run_batches(kernel);
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_matmul_attrs plain = {0};
static const mu_matmul_attrs both_transposed = {.transpose_a = true, .transpose_b = true};

static const mu_sample matmul_samples[] = {
    {.n_in = 2, .in = {{2, {5, 7}}, {2, {7, 3}}}, .attrs = &plain},
    {.n_in = 2, .in = {{2, {7, 5}}, {2, {3, 7}}}, .attrs = &both_transposed},
    {.n_in = 2, .in = {{2, {1, 1}}, {2, {1, 9}}}, .attrs = &plain},
    {.n_in = 2, .in = {{2, {0, 4}}, {2, {4, 3}}}, .attrs = &plain},
    {.n_in = 2, .in = {{2, {3, 0}}, {2, {0, 2}}}, .attrs = &plain},
    {.n_in = 2, .in = {{3, {2, 3, 4}}, {3, {2, 4, 5}}}, .attrs = &plain},
    {.n_in = 2, .in = {{4, {2, 1, 3, 4}}, {3, {3, 4, 2}}}, .attrs = &plain},
    {.n_in = 2, .in = {{3, {2, 3, 4}}, {2, {4, 5}}}, .attrs = &plain},
    {.n_in = 2, .in = {{3, {2, 21, 30}}, {4, {3, 1, 30, 20}}}, .attrs = &plain},
    {.n_in = 2, .in = {{4, {3, 2, 20, 21}}, {4, {3, 1, 21, 20}}}, .attrs = &plain},
    {.n_in = 2, .in = {{4, {1, 2, 20, 21}}, {4, {3, 2, 20, 20}}}, .attrs = &both_transposed},
    {.n_in = 2, .in = {{2, {1, 19}}, {2, {19, 6}}}, .attrs = &plain},
    {.n_in = 2, .in = {{2, {19, 6}}, {2, {1, 19}}}, .attrs = &both_transposed},
    {.n_in = 2, .in = {{2, {5, 1}}, {2, {1, 7}}}, .attrs = &plain},
    {0},
};

const mu_op mu_op_matmul = {
    .name = "matmul",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_FLOATS | MU_DTYPE_BIT(MU_I32) | MU_DTYPE_BIT(MU_I64) | MU_DTYPE_BIT(MU_I16) | MU_DTYPE_BIT(MU_I8) |
              MU_DTYPE_BIT(MU_U8),
    .attrs_bytes = sizeof(mu_matmul_attrs),
    .attrs = matmul_fields,
    .infer = matmul_infer,
    .grad = matmul_grad,
    .ref = matmul_ref,
    .cpu = {matmul_prepare, matmul_run, state_free},
    .samples = matmul_samples,
    .lower = mu__lower_matmul,
};

// ---- Public functions ---------------------------------------------------------------------------

mu_tensor *mu_matmul(mu_tensor *a, mu_tensor *b) { return product_of(a, b, false, false); }

mu_tensor *mu_matmul_transposed(mu_tensor *a, mu_tensor *b, bool transpose_a, bool transpose_b)
{
    return product_of(a, b, transpose_a, transpose_b);
}
