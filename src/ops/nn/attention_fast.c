// Fast attention kernels for float32 and half types: works tile by tile, with oneDNN for the products and the softmax
// on a tile that stays in the cache.
//
// The forward pass keeps each query's running maximum and sum, and rescales its partial result when the maximum grows
// (Milakov and Gimelshein 2018). The backward pass recomputes the weights from the saved logarithms. Tiles that the
// causal mask hides completely are skipped. Half types are computed in float32: a member of the team converts one batch
// at a time, which stays in its cache. The gradient rule is in attention.c.
#include "ops/nn/attention.h"

#include "kernels/kernels.h"
#include "ops/core/loops.h"

#include <math.h>
#include <oneapi/dnnl/dnnl.h>

enum { QUERIES = 64, KEYS = 256, TILE = QUERIES * KEYS };

// A member's memory: two tiles of scores, and per-query numbers.
typedef struct tile_memory {
    float *weights, *through;  // [QUERIES, KEYS]
    float *most, *sum, *along; // [QUERIES]
    float *failed;             // not 0: oneDNN failed to compute a product
    float *wide;               // half types: one batch of each operand
} tile_memory;

enum { TILE_FLOATS = 2 * TILE + 4 * QUERIES };

static int64_t batch_elements(const mu_shape *shape)
{
    return shape->dims[shape->rank - 2] * shape->dims[shape->rank - 1];
}

// The memory for one batch of an operand in float32, in whole cache lines; 0 if the operand is not converted.
static int64_t wide_floats(mu_dtype dtype, const mu_shape *shape)
{
    return mu__dtype_is_half(dtype) ? (batch_elements(shape) + 15) / 16 * 16 : 0;
}

static int64_t member_floats(const mu_kernel *kernel)
{
    int64_t n = TILE_FLOATS;
    for (int i = 0; i < kernel->n_in; i++)
        n += wide_floats(kernel->in[i].dtype, &kernel->in[i].shape);
    for (int i = 0; i < kernel->n_out; i++)
        n += wide_floats(kernel->out[i].dtype, &kernel->out[i].shape);
    return n;
}

static tile_memory memory_of(const attention_job *job, int member)
{
    float *at = (float *)job->kernel->scratch + member_floats(job->kernel) * member;
    return (tile_memory){.weights = at,
                         .through = at + TILE,
                         .most = at + 2 * TILE,
                         .sum = at + 2 * TILE + QUERIES,
                         .along = at + 2 * TILE + 2 * QUERIES,
                         .failed = at + 2 * TILE + 3 * QUERIES,
                         .wide = at + TILE_FLOATS};
}

mu_status mu__attention_prepare(mu_prepare *prepare)
{
    int64_t n = TILE_FLOATS;
    for (int i = 0; i < prepare->n_in; i++)
        n += wide_floats(prepare->in[i].dtype, &prepare->in[i].shape);
    for (int i = 0; i < prepare->n_out; i++)
        n += wide_floats(prepare->out[i].dtype, &prepare->out[i].shape);
    prepare->scratch_bytes = sizeof(float) * (size_t)n * (size_t)prepare->team->n_threads;
    return mu__dtype_is_half(prepare->in[0].dtype) ? MU_OK : mu__prepare_f32(prepare);
}

// Takes memory for one batch of an operand off `wide`.
static float *take_wide(const mu_view *operand, float **wide)
{
    float *taken = *wide;
    *wide += wide_floats(operand->dtype, &operand->shape);
    return taken;
}

static const float *widened(const mu_view *operand, int64_t batch, float **wide)
{
    const int64_t n = batch_elements(&operand->shape);
    float *copy = take_wide(operand, wide);
    mu__convert(MU_F32, copy, operand->dtype, (const uint16_t *)operand->data + batch * n, n);
    return copy;
}

// Rounds elements [begin, end) of a batch of a result.
static void narrow(const mu_view *result, int64_t batch, const float *wide, int64_t begin, int64_t end)
{
    uint16_t *to = (uint16_t *)result->data + batch * batch_elements(&result->shape);
    mu__convert(result->dtype, to + begin, MU_F32, wide + begin, end - begin);
}

MU_PER_ISA(scale_row, (float *x, float factor, int64_t n), (x, factor, n))
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

static void fill_row(float *x, float value, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = value;
}

// The score of a hidden key; next to any visible key its exponential is 0.
#define HIDDEN (-1e30f)

// One tile: queries [query, query + rows) of a batch and keys [key, key + columns).
typedef struct tile {
    const attention_job *job;
    int64_t batch, query, rows, key, columns;
} tile;

static const float *row_at(const void *data, const tile *t, int64_t per_batch, int64_t row, int64_t width)
{
    return (const float *)data + ((t->batch - t->job->first) * per_batch + row) * width;
}

// c [m, n] = alpha a b + beta c; a and b may be transposed.
static void multiply(const tile_memory *memory, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                     float alpha, const float *a, int64_t a_row, const float *b, int64_t b_row, float beta, float *c,
                     int64_t c_row)
{
    if (dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, a_row, b, b_row, beta, c,
                   c_row) != dnnl_success)
        *memory->failed = 1;
}

MU_PER_ISA(hide, (float *scores, const uint8_t *mask, int64_t step, int64_t n), (scores, mask, step, n))
{
    for (int64_t i = 0; i < n; i++)
        scores[i] = mask[i * step] ? scores[i] : HIDDEN;
}

// Computes the tile's scores; keys that a query may not attend to get HIDDEN.
static void fill_scores(const tile *t, const tile_memory *memory)
{
    float *scores = memory->weights;
    const attention_job *job = t->job;
    int64_t per_query, per_key;
    const uint8_t *mask = mu__attention_mask(job, t->batch, &per_query, &per_key);
    multiply(memory, false, true, t->rows, t->columns, job->width, (float)job->scale,
             row_at(job->q, t, job->queries, t->query, job->width), job->width,
             row_at(job->k, t, job->keys, t->key, job->width), job->width, 0, scores, KEYS);
    for (int64_t row = 0; row < t->rows; row++) {
        float *to = scores + row * KEYS;
        if (mask)
            hide(to, mask + (t->query + row) * per_query + t->key * per_key, per_key, t->columns);
        const int64_t seen = mu__attention_reach(job, t->query + row) - t->key;
        for (int64_t i = MU_MAX(seen, (int64_t)0); i < t->columns; i++)
            to[i] = HIDDEN;
    }
}

static int64_t queries_of(const attention_job *job, int64_t query)
{
    return MU_MIN((int64_t)QUERIES, job->queries - query);
}

// Number of keys that some query of the tile may attend to, given its position.
static int64_t keys_of(const attention_job *job, int64_t query, int64_t rows)
{
    return MU_MIN(job->keys, mu__attention_reach(job, query + rows - 1));
}

// ---- Forward ------------------------------------------------------------------------------------

static void mean_of_values(const attention_job *job, int64_t batch, float *y)
{
    const float *v = (const float *)job->v + (batch - job->first) * job->keys * job->depth;
    for (int64_t i = 0; i < job->depth; i++) {
        double sum = 0;
        for (int64_t key = 0; key < job->keys; key++)
            sum += (double)v[key * job->depth + i];
        y[i] = (float)(sum / (double)job->keys);
    }
}

// Adds the tile's keys to the running results of its queries.
static void add_keys(const tile *t, const tile_memory *memory)
{
    const mu_kernels *kernels = mu__kernels();
    const attention_job *job = t->job;
    float *y = (float *)job->y + ((t->batch - job->first) * job->queries + t->query) * job->depth;
    fill_scores(t, memory);
    for (int64_t row = 0; row < t->rows; row++) {
        float *x = memory->weights + row * KEYS, most;
        const float sum = kernels->softmax_row(x, x, t->columns, &most), before = memory->most[row];
        const float top = most > before ? most : before;
        const float kept = before == top ? 1 : expf(before - top), share = most == top ? 1 : expf(most - top);
        if (share != 1)
            scale_row(x, share, t->columns);
        memory->most[row] = top;
        memory->sum[row] = memory->sum[row] * kept + sum * share;
        if (kept != 1 && t->key > 0)
            scale_row(y + row * job->depth, kept, job->depth);
    }
    multiply(memory, false, false, t->rows, job->depth, t->columns, 1, memory->weights, KEYS,
             row_at(job->v, t, job->keys, t->key, job->depth), job->depth, t->key > 0 ? 1 : 0, y, job->depth);
}

static void attend(const attention_job *job, int64_t batch, int64_t query, const tile_memory *memory)
{
    const int64_t rows = queries_of(job, query), keys = keys_of(job, query, rows);
    float *y = (float *)job->y + ((batch - job->first) * job->queries + query) * job->depth;
    float *log_sum = (float *)job->log_sum + batch * job->queries + query;
    for (int64_t row = 0; row < rows; row++) {
        memory->most[row] = -INFINITY;
        memory->sum[row] = 0;
    }
    for (int64_t key = 0; key < keys; key += KEYS)
        add_keys(&(tile){job, batch, query, rows, key, MU_MIN((int64_t)KEYS, keys - key)}, memory);
    for (int64_t row = 0; row < rows; row++) {
        const bool odd = memory->sum[row] != memory->sum[row]; // a NaN among the scores; a maximum hides it
        const bool blind = memory->most[row] <= HIDDEN && !odd;
        log_sum[row] = blind ? -INFINITY : memory->most[row] + logf(memory->sum[row]);
        if (blind)
            mean_of_values(job, batch, y + row * job->depth);
        else
            scale_row(y + row * job->depth, 1 / memory->sum[row], job->depth);
    }
}

// Runs `part` on each member of the team, each with its own memory.
static mu_status run_members(attention_job *job, void (*part)(void *arg, int index, int count))
{
    const mu_team *team = job->kernel->team;
    for (int member = 0; member < team->n_threads; member++)
        *memory_of(job, member).failed = 0;
    mu__team_run(team, part, job);
    for (int member = 0; member < team->n_threads; member++)
        if (*memory_of(job, member).failed != 0)
            return mu__error(MU_INTERNAL, "%s: oneDNN refused a matrix product of a tile", job->kernel->op->name);
    return MU_OK;
}

static int64_t tiles_of(const attention_job *job) { return (job->queries + QUERIES - 1) / QUERIES; }

// Points a member's own job to a batch in float32.
static void widen_batch(attention_job *own, int64_t batch, float *wide)
{
    const mu_kernel *kernel = own->kernel;
    own->first = batch;
    own->q = widened(&kernel->in[0], batch, &wide);
    own->k = widened(&kernel->in[1], batch, &wide);
    own->v = widened(&kernel->in[2], batch, &wide);
    own->y = take_wide(&kernel->out[0], &wide);
}

static void attend_member(void *arg, int index, int count)
{
    attention_job own = *(const attention_job *)arg;
    const tile_memory memory = memory_of(&own, index);
    const int64_t tiles = tiles_of(&own);
    const mu_view *y = &own.kernel->out[0];
    int64_t begin, end, held = -1;
    mu__team_share(own.batches * tiles, 1, index, count, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        const int64_t batch = item / tiles, query = item % tiles * QUERIES;
        if (mu__dtype_is_half(y->dtype) && batch != held)
            widen_batch(&own, held = batch, memory.wide);
        attend(&own, batch, query, &memory);
        if (mu__dtype_is_half(y->dtype))
            narrow(y, batch, own.y, query * own.depth, (query + queries_of(&own, query)) * own.depth);
    }
}

mu_status mu__attention_fast(const mu_kernel *kernel)
{
    attention_job job = mu__attention_job(kernel);
    if (job.keys == 0 || job.width == 0 || job.depth == 0)
        return kernel->op->ref(kernel);
    return run_members(&job, attend_member);
}

// ---- Backward -----------------------------------------------------------------------------------

MU_PER_ISA_RESULT(float, product_of, (const float *a, const float *b, int64_t n), (a, b, n))
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return (float)sum;
}

MU_PER_ISA(through_softmax, (const float *weights, float *through, float along, float scale, int64_t n),
           (weights, through, along, scale, n))
{
    for (int64_t i = 0; i < n; i++)
        through[i] = weights[i] * (through[i] - along) * scale;
}

// Adds the contribution of one tile to dq, dk and dv.
static void add_gradients(const tile *t, const tile_memory *memory)
{
    const attention_job *job = t->job;
    const float *dy = row_at(job->dy, t, job->queries, t->query, job->depth);
    const float *log_sum = (const float *)job->seen_log_sum + t->batch * job->queries + t->query;
    const int64_t at = t->batch - job->first, query = at * job->queries + t->query, key = at * job->keys + t->key;
    float *weights = memory->weights, *through = memory->through;
    fill_scores(t, memory);
    for (int64_t row = 0; row < t->rows; row++) {
        float most;
        mu__kernels()->softmax_row(weights + row * KEYS, weights + row * KEYS, t->columns, &most);
        if (log_sum[row] == -INFINITY)
            fill_row(weights + row * KEYS, 1 / (float)job->keys, t->columns);
        else
            scale_row(weights + row * KEYS, expf(most - log_sum[row]), t->columns);
    }
    multiply(memory, true, false, t->columns, job->depth, t->rows, 1, weights, KEYS, dy, job->depth, 1,
             (float *)job->dv + key * job->depth, job->depth);
    multiply(memory, false, true, t->rows, t->columns, job->depth, 1, dy, job->depth,
             row_at(job->v, t, job->keys, t->key, job->depth), job->depth, 0, through, KEYS);
    for (int64_t row = 0; row < t->rows; row++) {
        if (log_sum[row] == -INFINITY)
            fill_row(through + row * KEYS, 0, t->columns);
        else
            through_softmax(weights + row * KEYS, through + row * KEYS, memory->along[row], (float)job->scale,
                            t->columns);
    }
    multiply(memory, false, false, t->rows, job->width, t->columns, 1, through, KEYS,
             row_at(job->k, t, job->keys, t->key, job->width), job->width, t->key > 0 ? 1 : 0,
             (float *)job->dq + query * job->width, job->width);
    multiply(memory, true, false, t->columns, job->width, t->rows, 1, through, KEYS,
             row_at(job->q, t, job->queries, t->query, job->width), job->width, 1, (float *)job->dk + key * job->width,
             job->width);
}

static void attend_grad(const attention_job *job, int64_t batch, const tile_memory *memory)
{
    const int64_t at = batch - job->first;
    fill_row((float *)job->dk + at * job->keys * job->width, 0, job->keys * job->width);
    fill_row((float *)job->dv + at * job->keys * job->depth, 0, job->keys * job->depth);
    for (int64_t query = 0; query < job->queries; query += QUERIES) {
        const int64_t rows = queries_of(job, query), first = at * job->queries + query;
        const float *dy = (const float *)job->dy + first * job->depth;
        const float *log_sum = (const float *)job->seen_log_sum + batch * job->queries + query;
        const float *y = (const float *)job->seen_y + first * job->depth;
        int64_t keys = keys_of(job, query, rows);
        for (int64_t row = 0; row < rows; row++) {
            memory->along[row] = product_of(dy + row * job->depth, y + row * job->depth, job->depth);
            keys = log_sum[row] == -INFINITY ? job->keys : keys; // such a row is the mean of all values
        }
        if (keys <= 0)
            fill_row((float *)job->dq + first * job->width, 0, rows * job->width);
        for (int64_t key = 0; key < keys; key += KEYS)
            add_gradients(&(tile){job, batch, query, rows, key, MU_MIN((int64_t)KEYS, keys - key)}, memory);
    }
}

static void widen_grad_batch(attention_job *own, int64_t batch, float *wide)
{
    const mu_kernel *kernel = own->kernel;
    own->first = batch;
    own->q = widened(&kernel->in[0], batch, &wide);
    own->k = widened(&kernel->in[1], batch, &wide);
    own->v = widened(&kernel->in[2], batch, &wide);
    own->seen_y = widened(&kernel->in[3], batch, &wide);
    own->dy = widened(&kernel->in[5], batch, &wide);
    own->dq = take_wide(&kernel->out[0], &wide);
    own->dk = take_wide(&kernel->out[1], &wide);
    own->dv = take_wide(&kernel->out[2], &wide);
}

static void narrow_grad_batch(const attention_job *own)
{
    const void *const wide[] = {own->dq, own->dk, own->dv};
    for (int i = 0; i < 3; i++)
        narrow(&own->kernel->out[i], own->first, wide[i], 0, batch_elements(&own->kernel->out[i].shape));
}

static void attend_grad_member(void *arg, int index, int count)
{
    attention_job own = *(const attention_job *)arg;
    const tile_memory memory = memory_of(&own, index);
    const bool half = mu__dtype_is_half(own.kernel->in[0].dtype);
    int64_t begin, end;
    mu__team_share(own.batches, 1, index, count, &begin, &end);
    for (int64_t batch = begin; batch < end; batch++) {
        if (half)
            widen_grad_batch(&own, batch, memory.wide);
        attend_grad(&own, batch, &memory);
        if (half)
            narrow_grad_batch(&own);
    }
}

mu_status mu__attention_grad_fast(const mu_kernel *kernel)
{
    attention_job job = mu__attention_grad_job(kernel);
    if (job.keys == 0 || job.width == 0 || job.depth == 0)
        return kernel->op->ref(kernel);
    return run_members(&job, attend_grad_member);
}
