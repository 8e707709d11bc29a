// Lowerings of gathers, scatters and segments to StableHLO.
//
// All become one of two forms: gather rows of a matrix by a vector of row numbers, or scatter rows into a matrix. A
// gather clamps an index outside its axis and a scatter ignores it, so each op also checks its indices, and the program
// fails as the plain loops do.
#include "ops/core/attrs.h"
#include "ops/array/index.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"

// Rows `index` ([m]) of a ([n, inner]): [m, inner].
static mu_hlo take_rows(mu_emitter *e, mu_hlo a, mu_hlo index)
{
    char text[MU_HLO_TEXT];
    const int64_t inner = a.spec.shape.dims[1];
    const mu_hlo operands[] = {a, index};
    const mu_spec spec = {a.spec.dtype, MU_SHAPE(index.spec.shape.dims[0], inner)};
    if (mu__elements(&spec.shape) == 0 || mu__elements(&a.spec.shape) == 0)
        return mu__hlo_fill(e, a.spec.dtype, &spec.shape, 0);
    snprintf(text, sizeof text,
             "{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = "
             "[0], index_vector_dim = 1>, slice_sizes = array<i64: 1, %lld>, indices_are_sorted = false}",
             (long long)inner);
    return e->add(e, &spec, "stablehlo.gather", 2, operands, text);
}

// Combines updates ([m, inner]) into rows `index` of a ([n, inner]); op NULL: the update replaces the row.
static mu_hlo put_rows(mu_emitter *e, const char *op, mu_hlo a, mu_hlo index, mu_hlo updates)
{
    char text[MU_HLO_TEXT], body[256] = "";
    const char *type = mu__hlo_type(a.spec.dtype), *result = op ? "%r" : "%q";
    const mu_hlo operands[] = {a, index, updates};
    if (mu__elements(&updates.spec.shape) == 0 || mu__elements(&a.spec.shape) == 0)
        return a;
    if (op)
        snprintf(body, sizeof body, "%%r = \"%s\"(%%p, %%q) : (tensor<%s>, tensor<%s>) -> tensor<%s> ", op, type, type,
                 type);
    snprintf(text, sizeof text,
             "({ ^bb0(%%p: tensor<%s>, %%q: tensor<%s>): %s\"stablehlo.return\"(%s) : (tensor<%s>) -> () }) "
             "{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
             "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, unique_indices = "
             "false}",
             type, type, body, result, type);
    return e->add(e, &a.spec, "stablehlo.scatter", 3, operands, text);
}

// ---- gather and gather_grad ---------------------------------------------------------------------

typedef struct gathering {
    int64_t batch, outer, n, inner, m;
} gathering;

static gathering gathering_of(const mu_gather_attrs *attrs, const mu_shape *x, const mu_shape *indices)
{
    const int axis = (int)attrs->axis, batch = (int)attrs->batch_dims;
    return (gathering){
        .batch = mu__elements_between(x, 0, batch),
        .outer = mu__elements_between(x, batch, axis),
        .n = x->dims[axis],
        .inner = mu__elements_between(x, axis + 1, x->rank),
        .m = mu__elements_between(indices, batch, indices->rank),
    };
}

// Indices of a type that can count n rows.
static mu_hlo wide_enough(mu_emitter *e, mu_hlo indices, int64_t n)
{
    return n > INT32_MAX ? mu__hlo_convert(e, indices, MU_I64) : indices;
}

// Row numbers in [0, batch * n) for indices [batch, m].
static mu_hlo row_numbers(mu_emitter *e, mu_hlo indices, const gathering *g)
{
    const mu_shape shape = MU_SHAPE(g->batch, g->m), flat = MU_SHAPE(g->batch * g->m);
    mu_hlo index = mu__hlo_reshape(e, wide_enough(e, indices, g->batch * g->n), &shape);
    if (g->batch > 1) {
        const mu_hlo size = mu__hlo_fill(e, index.spec.dtype, &shape, (double)g->n);
        const mu_hlo first =
            mu__hlo_binary(e, "stablehlo.multiply", mu__hlo_iota(e, index.spec.dtype, &shape, 0), size);
        index = mu__hlo_binary(e, "stablehlo.add", index, first);
    }
    return mu__hlo_reshape(e, index, &flat);
}

// [batch, first, second, inner] with its middle axes exchanged.
static mu_hlo exchanged(mu_emitter *e, mu_hlo a, int64_t batch, int64_t first, int64_t second, int64_t inner)
{
    const mu_shape shape = MU_SHAPE(batch, first, second, inner);
    const mu_ints order = {.n = 4, .at = {0, 2, 1, 3}};
    const mu_hlo seen = mu__hlo_reshape(e, a, &shape);
    return first == 1 || second == 1 ? seen : mu__hlo_transpose(e, seen, &order);
}

mu_hlo mu__hlo_take(mu_emitter *e, mu_hlo a, int axis, mu_hlo index)
{
    mu_shape shape = a.spec.shape;
    const int64_t outer = mu__elements_between(&shape, 0, axis), n = shape.dims[axis], m = index.spec.shape.dims[0],
                  inner = mu__elements_between(&shape, axis + 1, shape.rank);
    const mu_shape rows = MU_SHAPE(n, outer * inner);
    const mu_hlo table = mu__hlo_reshape(e, exchanged(e, a, 1, outer, n, inner), &rows);
    shape.dims[axis] = m;
    return mu__hlo_reshape(e, exchanged(e, take_rows(e, table, index), 1, m, outer, inner), &shape);
}

mu_hlo mu__hlo_combine(mu_emitter *e, const char *operation, mu_hlo a, mu_hlo index, mu_hlo slices)
{
    const mu_shape *shape = &a.spec.shape;
    const int64_t inner = mu__elements_between(shape, 1, shape->rank);
    const mu_shape rows = MU_SHAPE(shape->dims[0], inner), taken = MU_SHAPE(index.spec.shape.dims[0], inner);
    const mu_hlo sum = put_rows(e, operation, mu__hlo_reshape(e, a, &rows), index, mu__hlo_reshape(e, slices, &taken));
    return mu__hlo_reshape(e, sum, shape);
}

static mu_status raise_index(const mu_fault *fault, int64_t position, int64_t value)
{
    const mu_kernel k = {.op = fault->op};
    return mu__index_error(&k, position, value, fault->limits.dims[position % fault->limits.rank]);
}

mu_status mu__lower_gather(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const gathering g = gathering_of(l->attrs, &l->in[0].spec.shape, &l->in[1].spec.shape);
    const mu_shape limits = MU_SHAPE(g.n);
    if (g.outer * g.inner > 0)
        mu__hlo_check(l, 1, MU_CHECK_INDEX, &limits, raise_index);
    const mu_shape rows = MU_SHAPE(g.batch * g.n, g.outer * g.inner);
    const mu_hlo table = mu__hlo_reshape(e, exchanged(e, l->in[0], g.batch, g.outer, g.n, g.inner), &rows);
    const mu_hlo taken = take_rows(e, table, row_numbers(e, l->in[1], &g));
    return mu__lowered(l, 0,
                       mu__hlo_reshape(e, exchanged(e, taken, g.batch, g.m, g.outer, g.inner), &l->out[0].spec.shape));
}

mu_status mu__lower_gather_grad(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_hlo dy = mu__hlo_wide(e, l->in[0]);
    const gathering g = gathering_of(l->attrs, &l->out[0].spec.shape, &l->in[1].spec.shape);
    const mu_shape rows = MU_SHAPE(g.batch * g.n, g.outer * g.inner),
                   taken = MU_SHAPE(g.batch * g.m, g.outer * g.inner), limits = MU_SHAPE(g.n);
    if (g.outer * g.inner > 0)
        mu__hlo_check(l, 1, MU_CHECK_INDEX, &limits, raise_index);
    const mu_hlo updates = mu__hlo_reshape(e, exchanged(e, dy, g.batch, g.outer, g.m, g.inner), &taken);
    const mu_hlo zeros = mu__hlo_fill(e, dy.spec.dtype, &rows, 0);
    const mu_hlo sum = put_rows(e, "stablehlo.add", zeros, row_numbers(e, l->in[1], &g), updates);
    const mu_hlo dx = mu__hlo_reshape(e, exchanged(e, sum, g.batch, g.n, g.outer, g.inner), &l->out[0].spec.shape);
    return mu__lowered(l, 0, mu__hlo_convert(e, dx, l->out[0].spec.dtype));
}

// ---- gather_nd and tensor_scatter_* -------------------------------------------------------------

// Row numbers of indices [..., depth], the op's input 1, into input 0 viewed as [n, inner]; writes n and inner.
static mu_hlo slice_numbers(mu_lowering *l, int64_t *n, int64_t *inner)
{
    mu_emitter *e = l->emitter;
    const mu_shape *x = &l->in[0].spec.shape, *shape = &l->in[1].spec.shape;
    const int depth = (int)shape->dims[shape->rank - 1];
    const int64_t rows = mu__elements_between(shape, 0, shape->rank - 1);
    const mu_shape matrix = MU_SHAPE(rows, depth), vector = MU_SHAPE(rows);
    mu_shape limits = *x;
    limits.rank = depth;
    *n = mu__elements_between(x, 0, depth);
    *inner = mu__elements_between(x, depth, x->rank);
    if (*inner > 0)
        mu__hlo_check(l, 1, MU_CHECK_INDEX, &limits, raise_index);
    const mu_hlo indices = wide_enough(e, l->in[1], *n), seen = mu__hlo_reshape(e, indices, &matrix);
    mu_hlo number = mu__hlo_fill(e, indices.spec.dtype, &vector, 0);
    for (int d = 0; d < depth; d++) {
        const mu_ints begin = {.n = 2, .at = {0, d}}, end = {.n = 2, .at = {rows, d + 1}},
                      strides = {.n = 2, .at = {1, 1}};
        const mu_hlo column = mu__hlo_reshape(e, mu__hlo_slice(e, seen, &begin, &end, &strides), &vector);
        const mu_hlo size = mu__hlo_fill(e, indices.spec.dtype, &vector, (double)x->dims[d]);
        number = mu__hlo_binary(e, "stablehlo.add", mu__hlo_binary(e, "stablehlo.multiply", number, size), column);
    }
    return number;
}

mu_status mu__lower_gather_nd(mu_lowering *l)
{
    int64_t n, inner;
    const mu_hlo number = slice_numbers(l, &n, &inner);
    const mu_shape rows = MU_SHAPE(n, inner);
    const mu_hlo taken = take_rows(l->emitter, mu__hlo_reshape(l->emitter, l->in[0], &rows), number);
    return mu__lowered(l, 0, mu__hlo_reshape(l->emitter, taken, &l->out[0].spec.shape));
}

static const char *combining(int combine)
{
    static const char *const words[] = {[MU_COMBINE_ADD] = "stablehlo.add",
                                        [MU_COMBINE_MIN] = "stablehlo.minimum",
                                        [MU_COMBINE_MAX] = "stablehlo.maximum",
                                        [MU_COMBINE_MULTIPLY] = "stablehlo.multiply"};
    return combine < 0 ? NULL : words[combine];
}

mu_status mu__lower_scatter(mu_lowering *l)
{
    int64_t n, inner;
    const mu_hlo number = slice_numbers(l, &n, &inner);
    const mu_shape rows = MU_SHAPE(n, inner), taken = MU_SHAPE(number.spec.shape.dims[0], inner);
    const mu_hlo table = mu__hlo_reshape(l->emitter, l->in[0], &rows),
                 updates = mu__hlo_reshape(l->emitter, l->in[2], &taken);
    const mu_hlo put = put_rows(l->emitter, combining(l->op->variant), table, number, updates);
    return mu__lowered(l, 0, mu__hlo_reshape(l->emitter, put, &l->out[0].spec.shape));
}

// ---- Segments -----------------------------------------------------------------------------------

// Sums and products of many 16-bit floats are too inexact in 16 bits.
mu_status mu__lower_segment(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const bool chooses = l->op->variant == MU_COMBINE_MIN || l->op->variant == MU_COMBINE_MAX;
    const mu_hlo values = chooses ? l->in[0] : mu__hlo_wide(e, l->in[0]);
    const mu_dtype dtype = values.spec.dtype;
    const mu_shape *x = &values.spec.shape, *segments = &l->in[1].spec.shape;
    const int64_t rows = mu__elements(segments), inner = mu__elements_between(x, segments->rank, x->rank);
    const mu_shape matrix = MU_SHAPE(rows, inner), vector = MU_SHAPE(rows),
                   result = MU_SHAPE(l->out[0].spec.shape.dims[0], inner), limits = MU_SHAPE(result.dims[0]);
    mu__hlo_check(l, 1, MU_CHECK_BELOW, &limits, raise_index);
    const mu_hlo empty = mu__hlo_fill(e, dtype, &result, mu__segment_neutral(l->op, dtype));
    const mu_hlo sum = put_rows(e, combining(l->op->variant), empty, mu__hlo_reshape(e, l->in[1], &vector),
                                mu__hlo_reshape(e, values, &matrix));
    const mu_hlo y = mu__hlo_reshape(e, sum, &l->out[0].spec.shape);
    return mu__lowered(l, 0, mu__hlo_convert(e, y, l->out[0].spec.dtype));
}
