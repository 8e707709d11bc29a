// Attention: values averaged by the softmax of scaled products of queries and keys, as one op with a gradient.
//
// A second, hidden output is the logarithm of each query's sum of exponentials. From it the gradient recomputes the
// softmax tile by tile, so memory grows linearly with the length, not quadratically. A query that may attend to no key
// gets the mean of all values, and its logarithm is -infinity. The gradient of the gradient is composed of ops on whole
// matrices. attention_fast.c has the fast kernels.
#include "ops/nn/attention.h"
#include "ops/core/composed.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

static bool sees(const attention_job *job, int64_t batch, int64_t query, int64_t key)
{
    int64_t per_query, per_key;
    if (key >= mu__attention_reach(job, query))
        return false;
    const uint8_t *mask = mu__attention_mask(job, batch, &per_query, &per_key);
    return !mask || mask[query * per_query + key * per_key];
}

#define T        float
#define FN(name) f32_##name
#include "ops/nn/attention_loops.inc.c"

#define T        double
#define FN(name) f64_##name
#include "ops/nn/attention_loops.inc.c"

static const mu_attr_spec attention_fields[] = {{"scale", MU_ATTR_REAL, offsetof(mu_attention_attrs, scale)},
                                                {"causal", MU_ATTR_BOOL, offsetof(mu_attention_attrs, causal)},
                                                {0}};

// ---- Shapes -------------------------------------------------------------------------------------

// Whether a shape has `like`'s leading axes and the given last two; MU_UNKNOWN fits anything.
static bool fits(const mu_shape *shape, const mu_shape *like, int64_t rows, int64_t columns)
{
    mu_shape wanted = *like;
    if (shape->rank != like->rank || shape->rank < 2)
        return false;
    wanted.dims[wanted.rank - 2] = rows;
    wanted.dims[wanted.rank - 1] = columns;
    return mu__shape_compatible(shape, &wanted);
}

static mu_status need_operands(const mu_infer *infer)
{
    char q_text[MU_SHAPE_TEXT], k_text[MU_SHAPE_TEXT], v_text[MU_SHAPE_TEXT];
    const mu_shape *q = &infer->in[0].shape, *k = &infer->in[1].shape, *v = &infer->in[2].shape;
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    MU_TRY(mu__need_same_dtype(infer, 0, 2));
    if (q->rank < 2 || !fits(k, q, MU_UNKNOWN, q->dims[q->rank - 1]) || !fits(v, q, k->dims[k->rank - 2], MU_UNKNOWN))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: queries [..., n, width], keys [..., m, width] and values [..., m, any] must have the "
                         "same leading axes, got %s, %s and %s",
                         infer->op->name, mu__shape_text(q, q_text), mu__shape_text(k, k_text),
                         mu__shape_text(v, v_text));
    return MU_OK;
}

static mu_shape scores_shape(const mu_shape *q, const mu_shape *k)
{
    mu_shape shape = *q;
    shape.dims[shape.rank - 1] = k->dims[k->rank - 2];
    return shape;
}

static mu_status need_mask(const mu_infer *infer, int i)
{
    char mask_text[MU_SHAPE_TEXT], scores_text[MU_SHAPE_TEXT];
    const mu_shape scores = scores_shape(&infer->in[0].shape, &infer->in[1].shape);
    mu_shape both;
    if (i >= infer->n_in)
        return MU_OK;
    const mu_shape *mask = &infer->in[i].shape;
    if (infer->in[i].dtype == MU_BOOL && mask->rank <= scores.rank &&
        mu__broadcast(mask, &scores, &both, infer->op->name) == MU_OK && mu__shape_compatible(&both, &scores))
        return MU_OK;
    mu_error_take();
    return mu__error(MU_INVALID_ARGUMENT, "%s: the mask must be bool and broadcast to %s, got %s %s", infer->op->name,
                     mu__shape_text(&scores, scores_text), mu_dtype_name(infer->in[i].dtype),
                     mu__shape_text(mask, mask_text));
}

static mu_status attention_infer(mu_infer *infer)
{
    const mu_shape *q = &infer->in[0].shape, *v = &infer->in[2].shape;
    MU_TRY(need_operands(infer));
    MU_TRY(need_mask(infer, 3));
    infer->out[0] = infer->out[1] = infer->in[0];
    infer->out[0].shape.dims[q->rank - 1] = v->dims[v->rank - 1];
    infer->out[1].shape.rank--;
    infer->out[1].dtype = infer->in[0].dtype == MU_F64 ? MU_F64 : MU_F32;
    return MU_OK;
}

// Checks attention's results and the gradient with respect to them.
static mu_status need_results(const mu_infer *infer)
{
    static const int like_y[] = {3, 5};
    const mu_shape *q = &infer->in[0].shape, *v = &infer->in[2].shape;
    mu_shape y = *q, log_sum = *q;
    char text[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    y.dims[y.rank - 1] = v->dims[v->rank - 1];
    log_sum.rank--;
    for (size_t i = 0; i < MU_COUNT(like_y); i++) {
        MU_TRY(mu__need_same_dtype(infer, 0, like_y[i]));
        if (!mu__shape_compatible(&infer->in[like_y[i]].shape, &y))
            return mu__error(MU_INVALID_ARGUMENT, "%s: input %d is %s; expected %s, as attention gave it",
                             infer->op->name, like_y[i], mu__shape_text(&infer->in[like_y[i]].shape, text),
                             mu__shape_text(&y, wanted));
    }
    if (infer->in[4].dtype != (infer->in[0].dtype == MU_F64 ? MU_F64 : MU_F32) ||
        !mu__shape_compatible(&infer->in[4].shape, &log_sum))
        return mu__error(MU_INVALID_ARGUMENT, "%s: the logarithms of the sums are %s %s; expected %s %s",
                         infer->op->name, mu_dtype_name(infer->in[4].dtype), mu__shape_text(&infer->in[4].shape, text),
                         infer->in[0].dtype == MU_F64 ? "f64" : "f32", mu__shape_text(&log_sum, wanted));
    return MU_OK;
}

// Inputs (q, k, v, y, log_sum, dy[, mask]), outputs (dq, dk, dv).
static mu_status grad_infer(mu_infer *infer)
{
    MU_TRY(need_operands(infer));
    MU_TRY(need_mask(infer, 6));
    MU_TRY(need_results(infer));
    for (int i = 0; i < 3; i++)
        infer->out[i] = infer->in[i];
    return MU_OK;
}

// ---- Kernels ------------------------------------------------------------------------------------

attention_job mu__attention_job(const mu_kernel *kernel)
{
    const mu_attention_attrs *attrs = kernel->attrs;
    const mu_view *q = &kernel->in[0], *k = &kernel->in[1], *v = &kernel->in[2];
    const int rank = q->shape.rank;
    return (attention_job){.kernel = kernel,
                           .batches = mu__elements_between(&q->shape, 0, rank - 2),
                           .queries = q->shape.dims[rank - 2],
                           .keys = k->shape.dims[rank - 2],
                           .width = q->shape.dims[rank - 1],
                           .depth = v->shape.dims[rank - 1],
                           .scale = attrs->scale,
                           .causal = attrs->causal,
                           .scores = scores_shape(&q->shape, &k->shape),
                           .mask = kernel->n_in == 4 ? &kernel->in[3] : NULL,
                           .q = q->data,
                           .k = k->data,
                           .v = v->data,
                           .y = kernel->out[0].data,
                           .log_sum = kernel->n_out == 2 ? kernel->out[1].data : NULL};
}

attention_job mu__attention_grad_job(const mu_kernel *kernel)
{
    attention_job job = mu__attention_job(kernel);
    job.mask = kernel->n_in > 6 ? &kernel->in[6] : NULL;
    job.seen_y = kernel->in[3].data;
    job.seen_log_sum = kernel->in[4].data;
    job.dy = kernel->in[5].data;
    job.dq = kernel->out[0].data;
    job.dk = kernel->out[1].data;
    job.dv = kernel->out[2].data;
    return job;
}

const uint8_t *mu__attention_mask(const attention_job *job, int64_t batch, int64_t *per_query, int64_t *per_key)
{
    if (!job->mask)
        return NULL;
    const mu_shape *mask = &job->mask->shape, *scores = &job->scores;
    int64_t at = 0, step = 1;
    *per_query = *per_key = 0;
    for (int axis = scores->rank - 1, own = mask->rank - 1; own >= 0; axis--, own--) {
        const bool moves = mask->dims[own] != 1;
        if (axis == scores->rank - 1)
            *per_key = moves;
        else if (axis == scores->rank - 2)
            *per_query = moves ? step : 0;
        else if (moves)
            at += batch / mu__elements_between(scores, axis + 1, scores->rank - 2) % scores->dims[axis] * step;
        step *= mask->dims[own];
    }
    return (const uint8_t *)job->mask->data + at;
}

static mu_status attention_ref(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->in[0].dtype;
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__run_as_f32(kernel, attention_ref);
    const attention_job job = mu__attention_job(kernel);
    double *scores = mu__alloc((size_t)job.keys * sizeof *scores);
    if (!scores)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t batch = 0; batch < job.batches; batch++)
        for (int64_t query = 0; query < job.queries; query++)
            (dtype == MU_F32 ? f32_attend : f64_attend)(&job, batch, query, scores);
    mu__free(scores);
    return MU_OK;
}

static mu_status grad_ref(const mu_kernel *kernel)
{
    const mu_dtype dtype = kernel->in[0].dtype;
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__run_as_f32(kernel, grad_ref);
    const attention_job job = mu__attention_grad_job(kernel);
    for (int i = 1; i < 3; i++)
        memset(kernel->out[i].data, 0, (size_t)mu__elements(&kernel->out[i].shape) * mu_dtype_bytes(dtype));
    for (int64_t batch = 0; batch < job.batches; batch++)
        for (int64_t query = 0; query < job.queries; query++)
            (dtype == MU_F32 ? f32_attend_grad : f64_attend_grad)(&job, batch, query);
    return MU_OK;
}

// ---- Composed of ops on whole matrices ----------------------------------------------------------

// True where key position <= query position, both counted from the end.
static mu_tensor *causal_mask(const mu_tensor *q, const mu_tensor *k)
{
    const int64_t queries = q->shape.dims[q->shape.rank - 2], keys = k->shape.dims[k->shape.rank - 2];
    if (queries < 0 || keys < 0) {
        mu__error(MU_INVALID_ARGUMENT, "attention: causal attention on whole matrices (second derivatives, operands "
                                       "that broadcast) needs known lengths of query and key");
        return NULL;
    }
    const mu_shape shape = MU_SHAPE(queries, keys);
    mu_tensor *mask = mu__tensor_alloc(MU_BOOL, &shape);
    if (!mask)
        return NULL;
    bool *to = mu__host_write(mask);
    for (int64_t query = 0; query < queries; query++)
        for (int64_t key = 0; key < keys; key++)
            to[query * keys + key] = key <= query + keys - queries;
    return mu__give(mask);
}

// The scores, with `other` where a query may not attend to a key.
static mu_tensor *where_seen(mu_tensor *scores, mu_tensor *causal, mu_tensor *mask, double other)
{
    mu_tensor *instead = mu__scalar_like(scores, other);
    scores = causal ? mu_where(causal, scores, instead) : scores;
    return mask ? mu_where(mask, scores, instead) : scores;
}

static mu_tensor *weights(mu_tensor *q, mu_tensor *k, mu_tensor *causal, mu_tensor *mask, double scale)
{
    mu_tensor *scores = mu__scale(mu_matmul_transposed(q, k, false, true), scale);
    return mu_nn_softmax(where_seen(scores, causal, mask, q && q->dtype == MU_F16 ? -6e4 : -1e30), -1);
}

// ---- Gradients ----------------------------------------------------------------------------------

static mu_tensor *attention_grad(mu_grad *g, int i)
{
    if (i == 3)
        return NULL;
    if (!g->memo[0]) {
        mu_tensor *mask = g->n_in > 3 ? g->x[3] : NULL;
        mu_tensor *in[] = {g->x[0], g->x[1], g->x[2], g->y[0], g->y[1], mu__grad_of(g, 0), mask};
        if (mu__apply(&mu_op_attention_grad, g->attrs, g->n_in > 3 ? 7 : 6, in, 0, NULL, g->memo) != MU_OK)
            return NULL;
    }
    return g->memo[i];
}

static mu_tensor *row_sums(mu_tensor *t)
{
    const int last = -1;
    return mu_reduce_sum(t, last, .keep_dims = true);
}

// Terms of the second derivative. P: weights, dP = dy v', dS = P (dP - sum(P dP)) where visible. With a, b, c the
// gradients of dq = scale dS k, dk = scale dS' q and dv = P' dy:
//   G = scale (a k' + q b') where visible       of dS
//   Z = P (G - sum(P G))                         of dP
//   H = G (dP - sum(P dP)) - sum(P G) dP + dy c' of P
//   S = P (H - sum(P H)) where visible          of the scores
typedef struct second {
    mu_tensor *a, *b, *c, *p, *ds, *z, *s;
} second;

static second describe_second(mu_grad *g)
{
    const mu_attention_attrs *attrs = g->attrs;
    mu_tensor *q = g->x[0], *k = g->x[1], *v = g->x[2], *dy = g->x[5], *mask = g->n_in > 6 ? g->x[6] : NULL;
    mu_tensor *causal = attrs->causal ? causal_mask(q, k) : NULL;
    second it = {.a = mu__grad_of(g, 0), .b = mu__grad_of(g, 1), .c = mu__grad_of(g, 2)};
    mu_tensor *p = it.p = weights(q, k, causal, mask, attrs->scale);
    mu_tensor *dp = mu_matmul_transposed(dy, v, false, true);
    mu_tensor *centered = mu_subtract(dp, row_sums(mu_multiply(p, dp)));
    it.ds = where_seen(mu_multiply(p, centered), causal, mask, 0);
    mu_tensor *products =
        mu_add(mu_matmul_transposed(it.a, k, false, true), mu_matmul_transposed(q, it.b, false, true));
    mu_tensor *of_ds = where_seen(mu__scale(products, attrs->scale), causal, mask, 0);
    mu_tensor *along = row_sums(mu_multiply(p, of_ds));
    it.z = mu_multiply(p, mu_subtract(of_ds, along));
    mu_tensor *of_p = mu_subtract(mu_multiply(of_ds, centered), mu_multiply(along, dp));
    of_p = mu_add(of_p, mu_matmul_transposed(dy, it.c, false, true));
    it.s = where_seen(mu_multiply(p, mu_subtract(of_p, row_sums(mu_multiply(p, of_p)))), causal, mask, 0);
    return it;
}

static mu_tensor *grad_grad(mu_grad *g, int i)
{
    const mu_attention_attrs *attrs = g->attrs;
    if (i == 3 || i == 4 || i == 6)
        return NULL; // functions of the other inputs
    const second it = describe_second(g);
    mu_tensor *q = g->x[0], *k = g->x[1], *v = g->x[2], *dy = g->x[5];
    switch (i) {
    case 0: return mu__scale(mu_add(mu_matmul(it.s, k), mu_matmul(it.ds, it.b)), attrs->scale);
    case 1:
        return mu__scale(
            mu_add(mu_matmul_transposed(it.s, q, true, false), mu_matmul_transposed(it.ds, it.a, true, false)),
            attrs->scale);
    case 2: return mu_matmul_transposed(it.z, dy, true, false);
    default: return mu_add(mu_matmul(it.z, v), mu_matmul(it.p, it.c));
    }
}

// ---- Op definitions -----------------------------------------------------------------------------

static const mu_attention_attrs half_scale = {0.5, false}, causal_half = {0.5, true};

static const mu_sample attention_samples[] = {
    {.n_in = 3, .in = {{3, {2, 5, 4}}, {3, {2, 7, 4}}, {3, {2, 7, 3}}}, .attrs = &half_scale},
    {.n_in = 3, .in = {{4, {2, 1, 3, 4}}, {4, {2, 1, 5, 4}}, {4, {2, 1, 5, 6}}}, .attrs = &causal_half},
    {.n_in = 3, .in = {{2, {6, 3}}, {2, {4, 3}}, {2, {4, 2}}}, .attrs = &causal_half},
    {.n_in = 4,
     .in = {{3, {2, 5, 4}}, {3, {2, 7, 4}}, {3, {2, 7, 3}}, {3, {2, 1, 7}}},
     .dtypes = {0, 0, 0, MU_BOOL},
     .no_grad = 8,
     .attrs = &causal_half},
    {.n_in = 4,
     .in = {{2, {70, 9}}, {2, {300, 9}}, {2, {300, 5}}, {2, {70, 300}}},
     .dtypes = {0, 0, 0, MU_BOOL},
     .no_grad = 15,
     .attrs = &half_scale},
    {.n_in = 3, .in = {{3, {0, 5, 4}}, {3, {0, 7, 4}}, {3, {0, 7, 3}}}, .attrs = &half_scale},
    {0},
};

// y and log_sum are not attention's results for these inputs; the kernels do not check that.
static const mu_sample grad_samples[] = {
    {.n_in = 6,
     .in = {{3, {2, 5, 4}}, {3, {2, 7, 4}}, {3, {2, 7, 3}}, {3, {2, 5, 3}}, {2, {2, 5}}, {3, {2, 5, 3}}},
     .low = {-2, -2, -2, -2, 2, -2},
     .high = {2, 2, 2, 2, 9, 2},
     .no_grad = 63,
     .attrs = &half_scale},
    {.n_in = 6,
     .in = {{2, {70, 9}}, {2, {300, 9}}, {2, {300, 5}}, {2, {70, 5}}, {1, {70}}, {2, {70, 5}}},
     .low = {-1, -1, -2, -2, 5, -2},
     .high = {1, 1, 2, 2, 9, 2},
     .no_grad = 63,
     .attrs = &causal_half},
    {0},
};

const mu_op mu_op_attention = {
    .name = "attention",
    .n_in = 3,
    .max_in = 4,
    .n_out = 2,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_attention_attrs),
    .attrs = attention_fields,
    .infer = attention_infer,
    .grad = attention_grad,
    .ref = attention_ref,
    .samples = attention_samples,
    .cpu = {.prepare = mu__attention_prepare, .run = mu__attention_fast},
    .lower = mu__lower_attention,
};

const mu_op mu_op_attention_grad = {
    .name = "attention_grad",
    .n_in = 6,
    .max_in = 7,
    .n_out = 3,
    .dtypes = MU_FLOATS,
    .attrs_bytes = sizeof(mu_attention_attrs),
    .attrs = attention_fields,
    .infer = grad_infer,
    .grad = grad_grad,
    .ref = grad_ref,
    .samples = grad_samples,
    .cpu = {.prepare = mu__attention_prepare, .run = mu__attention_grad_fast},
    .lower = mu__lower_attention_grad,
};

// ---- Public function ----------------------------------------------------------------------------

static bool same_leading(const mu_tensor *a, const mu_tensor *b)
{
    bool same = a->shape.rank == b->shape.rank && a->shape.rank >= 2;
    for (int axis = 0; same && axis < a->shape.rank - 2; axis++)
        same = a->shape.dims[axis] == b->shape.dims[axis];
    return same;
}

// Whether broadcasting with the mask leaves the shape of the scores unchanged.
static bool mask_fits(const mu_tensor *mask, const mu_tensor *q, const mu_tensor *k)
{
    const mu_shape scores = scores_shape(&q->shape, &k->shape);
    const int leading = scores.rank - mask->shape.rank;
    bool fit = leading >= 0;
    for (int own = 0; fit && own < mask->shape.rank; own++)
        fit = mask->shape.dims[own] == 1 || mask->shape.dims[own] == scores.dims[own + leading];
    return fit && mask->dtype == MU_BOOL;
}

// The query divided by the square root of its width, if the width is known only when the trace runs.
static mu_tensor *scaled_query(mu_tensor *query)
{
    return mu_multiply(query, mu_rsqrt(mu_cast(mu_dim_size(query, -1), query->dtype)));
}

mu_tensor *mu_nn_attention_with(const mu_nn_attention_args *args)
{
    mu_nn_attention_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_nn_attention") != MU_OK)
        return NULL;
    mu_attention_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.causal = a.causal;
    attrs.scale = a.scale;
    if (!MU_GIVEN(&a, scale) && a.query && a.query->shape.rank > 0) {
        const int64_t width = mu_tensor_dim(a.query, -1);
        attrs.scale = width == MU_UNKNOWN ? 1 : 1 / sqrt((double)width);
        if (width == MU_UNKNOWN && !(a.query = scaled_query(a.query)))
            return NULL;
    }
    if (!a.query || !a.key || !a.value || a.query->shape.rank < 2 || a.key->shape.rank < 2 ||
        (same_leading(a.query, a.key) && same_leading(a.query, a.value) &&
         (!a.mask || mask_fits(a.mask, a.query, a.key)))) {
        mu_tensor *in[] = {a.query, a.key, a.value, a.mask}, *out[2];
        return mu__apply(&mu_op_attention, &attrs, a.mask ? 4 : 3, in, 0, NULL, out) == MU_OK ? out[0] : NULL;
    }
    mu_tensor *causal = a.causal ? causal_mask(a.query, a.key) : NULL;
    mu_tensor *in[] = {a.query, a.key, a.value, a.mask};
    return mu__composed("attention", 4, in, mu_matmul(weights(a.query, a.key, causal, a.mask, attrs.scale), a.value));
}
