// Lowerings of the ops that move elements axis by axis: slices, padding, reversing, rolling, tiling, repeating.
//
// index_map.c has, per axis, the input index that each output index reads; here this map is cut into runs with a
// constant step. Forward, each run is a slice, and the slices are concatenated. Backward, each run is a slice of the
// gradient padded to its position, and these are added. Tiles and repeats are broadcasts along a new axis; their
// gradients are sums over it.
#include "ops/core/attrs.h"
#include "ops/core/lower.h"
#include "ops/array/index_map.h"

enum { MOST_RUNS = 64 };

// Output indices [to, to + length) read input indices starting at `from` with step `step`; from -1: the constant.
typedef struct stretch {
    int64_t to, from, length, step;
} stretch;

static int cut_into_stretches(const int64_t *map, int64_t n, stretch *out)
{
    int count = 0;
    for (int64_t i = 0; i < n; count++) {
        stretch s = {.to = i, .from = map[i], .length = 1, .step = 1};
        if (i + 1 < n && map[i] >= 0 && map[i + 1] >= 0 && map[i + 1] != map[i])
            s.step = map[i + 1] - map[i];
        while (i + s.length < n &&
               (s.from < 0 ? map[i + s.length] < 0 : map[i + s.length] == s.from + s.length * s.step))
            s.length++;
        i += s.length;
        if (count == MOST_RUNS)
            return MOST_RUNS + 1;
        out[count] = s;
    }
    return count;
}

static mu_hlo forward_axis(mu_emitter *e, mu_hlo a, int axis, int n, const stretch *runs, double constant)
{
    mu_hlo parts[MOST_RUNS];
    mu_shape shape = a.spec.shape;
    for (int i = 0; i < n; i++) {
        const stretch *s = &runs[i];
        const int64_t last = s->from + (s->length - 1) * s->step, low = MU_MIN(s->from, last),
                      high = MU_MAX(s->from, last);
        shape.dims[axis] = s->length;
        if (s->from < 0)
            parts[i] = mu__hlo_fill(e, a.spec.dtype, &shape, constant);
        else
            parts[i] = mu__hlo_slice_axis(e, a, axis, low, high + 1, s->step < 0 ? -s->step : s->step);
        if (s->from >= 0 && s->step < 0)
            parts[i] = mu__hlo_reverse(e, parts[i], axis);
    }
    shape.dims[axis] = 0;
    return n == 0 ? mu__hlo_fill(e, a.spec.dtype, &shape, 0) : mu__hlo_concat(e, n, parts, axis);
}

static mu_hlo backward_axis(mu_emitter *e, mu_hlo dy, int axis, int n, const stretch *runs, int64_t size)
{
    mu_hlo sum = {.id = -1};
    mu_shape shape = dy.spec.shape;
    const int rank = shape.rank;
    shape.dims[axis] = size;
    for (int i = 0; i < n; i++) {
        const stretch *s = &runs[i];
        const int64_t last = s->from + (s->length - 1) * s->step, low = MU_MIN(s->from, last),
                      high = MU_MAX(s->from, last);
        mu_ints before = {.n = rank}, after = {.n = rank}, inner = {.n = rank};
        if (s->from < 0)
            continue;
        mu_hlo part = mu__hlo_slice_axis(e, dy, axis, s->to, s->to + s->length, 1);
        if (s->step < 0)
            part = mu__hlo_reverse(e, part, axis);
        before.at[axis] = low;
        after.at[axis] = size - 1 - high;
        inner.at[axis] = (s->step < 0 ? -s->step : s->step) - 1;
        part = mu__hlo_pad(e, part, mu__hlo_number(e, dy.spec.dtype, 0), &before, &after, &inner);
        sum = sum.id < 0 ? part : mu__hlo_binary(e, "stablehlo.add", sum, part);
    }
    return sum.id < 0 ? mu__hlo_fill(e, dy.spec.dtype, &shape, 0) : sum;
}

static mu_status lower_axis(mu_lowering *l, const mu_shape *in, const mu_shape *out, int axis, bool backward,
                            mu_hlo *value)
{
    const int64_t n = in->dims[axis], n_out = out->dims[axis];
    stretch runs[MOST_RUNS];
    int64_t *map = mu__alloc((size_t)MU_MAX(n_out, 1) * sizeof *map);
    if (!map)
        return MU_RESOURCE_EXHAUSTED;
    mu__map_axis(l->op, l->attrs, axis, n, n_out, map);
    const int count = cut_into_stretches(map, n_out, runs);
    mu__free(map);
    if (count > MOST_RUNS)
        return mu__error(MU_UNIMPLEMENTED, "op %s has no lowering if axis %d is split into more than %d runs",
                         l->op->name, axis, (int)MOST_RUNS);
    *value = backward ? backward_axis(l->emitter, *value, axis, count, runs, n)
                      : forward_axis(l->emitter, *value, axis, count, runs, mu__map_constant(l->op, l->attrs));
    return l->emitter->status;
}

mu_status mu__lower_map(mu_lowering *l)
{
    const bool backward = l->n_in == 2;
    const mu_shape *in = backward ? &l->out[0].spec.shape : &l->in[0].spec.shape;
    const mu_shape *out = backward ? &l->in[0].spec.shape : &l->out[0].spec.shape;
    mu_hlo value = backward ? mu__hlo_wide(l->emitter, l->in[0]) : l->in[0];
    for (int axis = 0; axis < in->rank; axis++)
        MU_TRY(lower_axis(l, in, out, axis, backward, &value));
    return mu__lowered(l, 0, mu__hlo_convert(l->emitter, value, l->out[0].spec.dtype));
}

// ---- Tiles and repeats --------------------------------------------------------------------------

// Copies one axis of n elements, viewed as [before, n, after], along a new axis of size `times` before or after it.
static mu_hlo copies_axis(mu_emitter *e, mu_hlo a, int axis, int64_t n, int64_t times, bool tile, bool backward)
{
    mu_shape shape = a.spec.shape;
    const int64_t before = mu__elements_between(&shape, 0, axis),
                  after = mu__elements_between(&shape, axis + 1, shape.rank);
    const mu_shape flat = MU_SHAPE(before, n, after);
    const mu_shape wide = tile ? MU_SHAPE(before, times, n, after) : MU_SHAPE(before, n, times, after);
    shape.dims[axis] = backward ? n : n * times;
    if (backward) {
        const mu_ints axes = {.n = 1, .at = {tile ? 1 : 2}};
        const mu_hlo zero = mu__hlo_number(e, a.spec.dtype, 0);
        return mu__hlo_reshape(e, mu__hlo_reduce(e, "stablehlo.add", mu__hlo_reshape(e, a, &wide), zero, &axes),
                               &shape);
    }
    const mu_ints axes = {.n = 3, .at = {0, tile ? 2 : 1, 3}};
    return mu__hlo_reshape(e, mu__hlo_broadcast(e, mu__hlo_reshape(e, a, &flat), &wide, &axes), &shape);
}

mu_status mu__lower_copies(mu_lowering *l)
{
    const mu_op *op = l->op;
    const mu_ints *counts = &((const mu_counts_attrs *)l->attrs)->counts;
    const bool backward = l->n_in == 2, tile = op == &mu_op_tile || op == &mu_op_tile_grad;
    const mu_shape in = backward ? l->out[0].spec.shape : l->in[0].spec.shape;
    mu_hlo value = backward ? mu__hlo_wide(l->emitter, l->in[0]) : l->in[0];
    for (int axis = 0; axis < in.rank; axis++)
        if (counts->at[axis] != 1)
            value = copies_axis(l->emitter, value, axis, in.dims[axis], counts->at[axis], tile, backward);
    return mu__lowered(l, 0, mu__hlo_convert(l->emitter, value, l->out[0].spec.dtype));
}
