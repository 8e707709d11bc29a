// Lowerings of the neural network ops to StableHLO: products, pools, softmax and losses.
//
// They compute the same results as the reference loops, hidden outputs included, so a gradient may run on either
// engine. Pools are written tap by tap, which makes the positions of maxima exact (ties go to the first, as in the
// loops).
#include "ops/core/lower.h"
#include "ops/spatial/pool.h"

// ---- Products -----------------------------------------------------------------------------------

mu_hlo mu__hlo_with_batches(mu_emitter *e, mu_hlo a, const mu_shape *result)
{
    mu_shape shape = *result;
    for (int i = 1; i <= 2; i++)
        shape.dims[shape.rank - i] = a.spec.shape.dims[a.spec.shape.rank - i];
    return mu__hlo_broadcast_to(e, a, &shape);
}

mu_hlo mu__hlo_product(mu_emitter *e, mu_hlo a, mu_hlo b, bool transpose_a, bool transpose_b)
{
    const mu_hlo operands[] = {a, b};
    const int rank = a.spec.shape.rank;
    mu_spec result = a.spec;
    char batches[64] = "", text[MU_HLO_TEXT];
    result.shape.dims[rank - 2] = a.spec.shape.dims[transpose_a ? rank - 1 : rank - 2];
    result.shape.dims[rank - 1] = b.spec.shape.dims[transpose_b ? rank - 2 : rank - 1];
    for (int i = 0; i < rank - 2; i++)
        snprintf(batches + strlen(batches), sizeof batches - strlen(batches), "%s%d", i ? ", " : "", i);
    snprintf(text, sizeof text,
             "{dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = [%s], rhs_batching_dimensions = [%s], "
             "lhs_contracting_dimensions = [%d], rhs_contracting_dimensions = [%d]>, %s}",
             batches, batches, transpose_a ? rank - 2 : rank - 1, transpose_b ? rank - 1 : rank - 2,
             mu__hlo_precision());
    return e->add(e, &result, "stablehlo.dot_general", 2, operands, text);
}

// One matrix for all batches: their rows are one product, which is faster than many with copies of the matrix.
static mu_hlo product_of_rows(mu_emitter *e, mu_hlo a, mu_hlo b, bool transpose_b, const mu_shape *result)
{
    const int last = a.spec.shape.rank - 1;
    mu_shape rows = {.rank = 2, .dims = {mu__elements_between(&a.spec.shape, 0, last), a.spec.shape.dims[last]}};
    return mu__hlo_reshape(e, mu__hlo_product(e, mu__hlo_reshape(e, a, &rows), b, false, transpose_b), result);
}

mu_status mu__lower_matmul(mu_lowering *l)
{
    const mu_matmul_attrs *attrs = l->attrs;
    const mu_shape *result = &l->out[0].spec.shape;
    if (l->in[0].spec.shape.rank > 2 && l->in[1].spec.shape.rank == 2 && !attrs->transpose_a)
        return mu__lowered(l, 0, product_of_rows(l->emitter, l->in[0], l->in[1], attrs->transpose_b, result));
    const mu_hlo a = mu__hlo_with_batches(l->emitter, l->in[0], result);
    const mu_hlo b = mu__hlo_with_batches(l->emitter, l->in[1], result);
    return mu__lowered(l, 0, mu__hlo_product(l->emitter, a, b, attrs->transpose_a, attrs->transpose_b));
}

// ---- Bias ---------------------------------------------------------------------------------------

mu_status mu__lower_bias_add(mu_lowering *l)
{
    const mu_hlo bias = mu__hlo_broadcast_to(l->emitter, l->in[1], &l->in[0].spec.shape);
    return mu__lowered(l, 0, mu__hlo_binary(l->emitter, "stablehlo.add", l->in[0], bias));
}

mu_status mu__lower_bias_add_grad(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_hlo dy = mu__hlo_wide(e, l->in[0]);
    mu_ints axes = {.n = dy.spec.shape.rank - 1};
    for (int i = 0; i < axes.n; i++)
        axes.at[i] = i;
    const mu_hlo sum = mu__hlo_reduce(e, "stablehlo.add", dy, mu__hlo_number(e, dy.spec.dtype, 0), &axes);
    return mu__lowered(l, 0, mu__hlo_convert(e, sum, l->out[0].spec.dtype));
}

mu_status mu__lower_relu(mu_lowering *l)
{
    const mu_hlo zero = mu__hlo_fill(l->emitter, l->in[0].spec.dtype, &l->in[0].spec.shape, 0);
    return mu__lowered(l, 0, mu__hlo_binary(l->emitter, "stablehlo.maximum", l->in[0], zero));
}

mu_status mu__lower_relu_grad(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_hlo zero = mu__hlo_fill(e, l->in[0].spec.dtype, &l->in[0].spec.shape, 0);
    return mu__lowered(l, 0, mu__hlo_select(e, mu__hlo_compare(e, "GT", l->in[1], zero), l->in[0], zero));
}

// ---- Pools --------------------------------------------------------------------------------------

enum { MOST_TAPS = 256 };

// A pool as sums and selections over the taps of its window.
typedef struct taps {
    mu_emitter *e;
    mu_window w;
    mu_ints before, after, none; // padding of [N, height, width, channels]
} taps;

static mu_status make_taps(mu_lowering *l, const mu_shape *image, taps *t)
{
    t->e = l->emitter;
    MU_TRY(mu__pool_window(l->attrs, image, l->op->name, &t->w));
    const mu_window_axis *y = &t->w.y, *x = &t->w.x;
    if (y->size * x->size > MOST_TAPS)
        return mu__error(MU_UNIMPLEMENTED,
                         "op %s has no lowering for a window of %lld x %lld; the limit is %d elements", l->op->name,
                         (long long)y->size, (long long)x->size, (int)MOST_TAPS);
    t->none = (mu_ints){.n = 4};
    t->before = (mu_ints){.n = 4, .at = {0, y->before, x->before, 0}};
    t->after = (mu_ints){.n = 4,
                         .at = {0, (y->out - 1) * y->stride + y->size - y->in - y->before,
                                (x->out - 1) * x->stride + x->size - x->in - x->before, 0}};
    return MU_OK;
}

static int64_t tap_count(const taps *t) { return t->w.y.size * t->w.x.size; }

// The elements of the padded image under tap number `tap` of every window.
static mu_hlo seen(const taps *t, mu_hlo padded, int64_t tap)
{
    const mu_window_axis *y = &t->w.y, *x = &t->w.x;
    const int64_t *dims = padded.spec.shape.dims, i = tap / x->size, k = tap % x->size;
    const mu_ints begin = {.n = 4, .at = {0, i, k, 0}}, strides = {.n = 4, .at = {1, y->stride, x->stride, 1}};
    const mu_ints end = {.n = 4,
                         .at = {dims[0], i + (y->out - 1) * y->stride + 1, k + (x->out - 1) * x->stride + 1, dims[3]}};
    return mu__hlo_slice(t->e, padded, &begin, &end, &strides);
}

// The reverse: each window's value at the position of its tap, in an image of zeros.
static mu_hlo spread(const taps *t, mu_hlo value, int64_t tap)
{
    const mu_window_axis *y = &t->w.y, *x = &t->w.x;
    const int64_t top = tap / x->size - y->before, left = tap % x->size - x->before;
    const mu_ints low = {.n = 4, .at = {0, top, left, 0}}, inner = {.n = 4, .at = {0, y->stride - 1, x->stride - 1, 0}};
    const mu_ints high = {
        .n = 4,
        .at = {0, y->in - top - ((y->out - 1) * y->stride + 1), x->in - left - ((x->out - 1) * x->stride + 1), 0}};
    return mu__hlo_pad(t->e, value, mu__hlo_number(t->e, value.spec.dtype, 0), &low, &high, &inner);
}

static mu_hlo plus(mu_emitter *e, mu_hlo sum, mu_hlo more)
{
    return sum.id < 0 ? more : mu__hlo_binary(e, "stablehlo.add", sum, more);
}

// Where tap number `tap` of the windows lies inside the image.
static mu_hlo inside(const taps *t, const mu_hlo *image, int64_t tap)
{
    mu_shape pixels = image->spec.shape;
    pixels.dims[0] = pixels.dims[3] = 1;
    const mu_hlo padded = mu__hlo_pad(t->e, mu__hlo_fill(t->e, MU_BOOL, &pixels, 1), mu__hlo_number(t->e, MU_BOOL, 0),
                                      &t->before, &t->after, &t->none);
    return seen(t, padded, tap);
}

static bool is_padded(const taps *t)
{
    for (int i = 1; i <= 2; i++)
        if (t->before.at[i] > 0 || t->after.at[i] > 0)
            return true;
    return false;
}

// Whether `here` replaces `best`: ties go to the first, and a NaN beats all numbers.
static mu_hlo is_better(mu_emitter *e, mu_hlo here, mu_hlo best)
{
    const mu_hlo greater = mu__hlo_compare(e, "GT", here, best);
    if (!mu__dtype_is_float(here.spec.dtype))
        return greater;
    const mu_hlo first_nan =
        mu__hlo_binary(e, "stablehlo.and", mu__hlo_compare(e, "NE", here, here), mu__hlo_compare(e, "EQ", best, best));
    return mu__hlo_binary(e, "stablehlo.or", greater, first_nan);
}

// The first tap inside the image is the start, so that padding is never chosen, not even where the image has the lowest
// value of its type.
static mu_status max_pool(mu_lowering *l, const taps *t)
{
    mu_emitter *e = t->e;
    const bool has_padding = is_padded(t);
    const mu_hlo padded =
        mu__hlo_pad(e, l->in[0], mu__hlo_minmax(e, l->in[0].spec.dtype, false), &t->before, &t->after, &t->none);
    mu_hlo best = seen(t, padded, 0), position = mu__hlo_fill(e, l->out[1].spec.dtype, &best.spec.shape, 0);
    mu_hlo found = {.id = -1};
    for (int64_t tap = 0; tap < tap_count(t); tap++) {
        const mu_hlo here = seen(t, padded, tap), within = has_padding ? inside(t, &l->in[0], tap) : found;
        if (tap > 0) {
            mu_hlo better = is_better(e, here, best);
            if (has_padding) {
                const mu_hlo first = mu__hlo_compare(e, "GT", within, found);
                better = mu__hlo_binary(e, "stablehlo.or", better, mu__hlo_broadcast_to(e, first, &best.spec.shape));
            }
            const mu_hlo number = mu__hlo_fill(e, position.spec.dtype, &best.spec.shape, (double)tap);
            position = mu__hlo_select(e, better, number, position);
            best = mu__hlo_binary(e, "stablehlo.maximum", best, here);
        }
        found = tap > 0 && has_padding ? mu__hlo_binary(e, "stablehlo.or", found, within) : within;
    }
    l->out[1] = position;
    return mu__lowered(l, 0, best);
}

static mu_hlo at_tap(const taps *t, mu_hlo positions, int64_t tap, mu_hlo value)
{
    const mu_hlo here = mu__hlo_fill(t->e, positions.spec.dtype, &positions.spec.shape, (double)tap);
    const mu_hlo zero = mu__hlo_fill(t->e, value.spec.dtype, &value.spec.shape, 0);
    return mu__hlo_select(t->e, mu__hlo_compare(t->e, "EQ", positions, here), value, zero);
}

static mu_status max_pool_grad(mu_lowering *l, const taps *t)
{
    mu_hlo sum = {.id = -1};
    for (int64_t tap = 0; tap < tap_count(t); tap++)
        sum = plus(t->e, sum, spread(t, at_tap(t, l->in[1], tap, l->in[0]), tap));
    return mu__lowered(l, 0, sum);
}

static mu_status max_pool_pick(mu_lowering *l, const taps *t)
{
    const mu_hlo padded =
        mu__hlo_pad(t->e, l->in[0], mu__hlo_number(t->e, l->in[0].spec.dtype, 0), &t->before, &t->after, &t->none);
    mu_hlo sum = {.id = -1};
    for (int64_t tap = 0; tap < tap_count(t); tap++)
        sum = plus(t->e, sum, at_tap(t, l->in[1], tap, seen(t, padded, tap)));
    return mu__lowered(l, 0, sum);
}

static mu_hlo sum_of_taps(const taps *t, mu_hlo image)
{
    const mu_hlo padded =
        mu__hlo_pad(t->e, image, mu__hlo_number(t->e, image.spec.dtype, 0), &t->before, &t->after, &t->none);
    mu_hlo sum = {.id = -1};
    for (int64_t tap = 0; tap < tap_count(t); tap++)
        sum = plus(t->e, sum, seen(t, padded, tap));
    return sum;
}

// Number of taps of each window inside the image, at least 1; averages exclude padding.
static mu_hlo taps_inside(const taps *t, const mu_hlo *image)
{
    const mu_hlo count = sum_of_taps(t, mu__hlo_fill(t->e, image->spec.dtype, &image->spec.shape, 1));
    const mu_hlo one = mu__hlo_fill(t->e, image->spec.dtype, &count.spec.shape, 1);
    return mu__hlo_binary(t->e, "stablehlo.maximum", count, one);
}

static mu_status average_pool(mu_lowering *l, const taps *t)
{
    const mu_hlo x = mu__hlo_wide(t->e, l->in[0]);
    const mu_hlo mean = mu__hlo_binary(t->e, "stablehlo.divide", sum_of_taps(t, x), taps_inside(t, &x));
    return mu__lowered(l, 0, mu__hlo_convert(t->e, mean, l->out[0].spec.dtype));
}

static mu_status average_pool_grad(mu_lowering *l, const taps *t)
{
    const mu_hlo dy = mu__hlo_wide(t->e, l->in[0]);
    const mu_hlo image = {.spec = {.dtype = dy.spec.dtype, .shape = l->out[0].spec.shape}};
    const mu_hlo part = mu__hlo_binary(t->e, "stablehlo.divide", dy, taps_inside(t, &image));
    mu_hlo sum = {.id = -1};
    for (int64_t tap = 0; tap < tap_count(t); tap++)
        sum = plus(t->e, sum, spread(t, part, tap));
    return mu__lowered(l, 0, mu__hlo_convert(t->e, sum, l->out[0].spec.dtype));
}

mu_status mu__lower_pool(mu_lowering *l)
{
    const bool backward = l->op == &mu_op_max_pool2d_grad || l->op == &mu_op_avg_pool2d_grad;
    taps t;
    MU_TRY(make_taps(l, backward ? &l->out[0].spec.shape : &l->in[0].spec.shape, &t));
    return l->op == &mu_op_max_pool2d        ? max_pool(l, &t)
           : l->op == &mu_op_max_pool2d_grad ? max_pool_grad(l, &t)
           : l->op == &mu_op_max_pool2d_pick ? max_pool_pick(l, &t)
           : l->op == &mu_op_avg_pool2d      ? average_pool(l, &t)
                                             : average_pool_grad(l, &t);
}

// ---- Softmax and losses -------------------------------------------------------------------------

// Logits minus their maximum, and derived values. `along`: all axes except the classes.
typedef struct exponentials {
    mu_hlo shifted, powers, sum, log_sum; // sum and log_sum lack the axis of classes
    mu_ints classes, along;
} exponentials;

static exponentials exponentials_of(mu_emitter *e, mu_hlo logits, int axis)
{
    exponentials x = {.classes = {.n = 1, .at = {axis}}};
    const mu_hlo wide = mu__hlo_wide(e, logits);
    const mu_shape *shape = &wide.spec.shape;
    for (int i = 0; i < shape->rank; i++)
        if (i != axis)
            x.along.at[x.along.n++] = i;
    const mu_hlo largest =
        mu__hlo_reduce(e, "stablehlo.maximum", wide, mu__hlo_minmax(e, wide.spec.dtype, false), &x.classes);
    x.shifted = mu__hlo_binary(e, "stablehlo.subtract", wide, mu__hlo_broadcast(e, largest, shape, &x.along));
    x.powers = mu__hlo_unary(e, "stablehlo.exponential", x.shifted);
    x.sum = mu__hlo_reduce(e, "stablehlo.add", x.powers, mu__hlo_number(e, wide.spec.dtype, 0), &x.classes);
    x.log_sum = mu__hlo_unary(e, "stablehlo.log", x.sum);
    return x;
}

static mu_hlo probabilities(mu_emitter *e, const exponentials *x)
{
    return mu__hlo_binary(e, "stablehlo.divide", x->powers,
                          mu__hlo_broadcast(e, x->sum, &x->powers.spec.shape, &x->along));
}

static mu_hlo log_probabilities(mu_emitter *e, const exponentials *x)
{
    return mu__hlo_binary(e, "stablehlo.subtract", x->shifted,
                          mu__hlo_broadcast(e, x->log_sum, &x->shifted.spec.shape, &x->along));
}

mu_status mu__lower_softmax(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const int axis = mu__axis((int)((const mu_axis_attrs *)l->attrs)->axis, l->in[0].spec.shape.rank, l->op->name);
    const exponentials x = exponentials_of(e, l->in[0], axis);
    const mu_hlo y = l->op == &mu_op_softmax ? probabilities(e, &x) : log_probabilities(e, &x);
    return mu__lowered(l, 0, mu__hlo_convert(e, y, l->out[0].spec.dtype));
}

// Inputs dy and the result y. softmax: y (dy - sum(y dy)); log_softmax: dy - exp(y) sum(dy).
mu_status mu__lower_softmax_grad(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_hlo dy = mu__hlo_wide(e, l->in[0]), y = mu__hlo_wide(e, l->in[1]);
    const mu_shape *shape = &dy.spec.shape;
    const int axis = mu__axis((int)((const mu_axis_attrs *)l->attrs)->axis, shape->rank, l->op->name);
    const bool logarithm = l->op == &mu_op_log_softmax_grad;
    const mu_hlo terms = logarithm ? dy : mu__hlo_binary(e, "stablehlo.multiply", y, dy);
    mu_ints classes = {.n = 1, .at = {axis}}, along = {.n = 0};
    for (int i = 0; i < shape->rank; i++)
        if (i != axis)
            along.at[along.n++] = i;
    const mu_hlo sum = mu__hlo_reduce(e, "stablehlo.add", terms, mu__hlo_number(e, dy.spec.dtype, 0), &classes);
    const mu_hlo all = mu__hlo_broadcast(e, sum, shape, &along);
    mu_hlo dx;
    if (logarithm) {
        const mu_hlo part = mu__hlo_binary(e, "stablehlo.multiply", mu__hlo_unary(e, "stablehlo.exponential", y), all);
        dx = mu__hlo_binary(e, "stablehlo.subtract", dy, part);
    } else {
        dx = mu__hlo_binary(e, "stablehlo.multiply", y, mu__hlo_binary(e, "stablehlo.subtract", dy, all));
    }
    return mu__lowered(l, 0, mu__hlo_convert(e, dx, l->out[0].spec.dtype));
}

static mu_hlo sum_of_classes(mu_emitter *e, const exponentials *x, mu_hlo a)
{
    return mu__hlo_reduce(e, "stablehlo.add", a, mu__hlo_number(e, a.spec.dtype, 0), &x->classes);
}

static mu_status raise_label(const mu_fault *fault, int64_t position, int64_t value)
{
    return mu__label_error(fault->op, value, fault->limits.dims[0], position);
}

// One-hot mask of each row's label. An invalid label selects nothing, and the program fails.
static mu_hlo at_label(mu_lowering *l, const exponentials *x)
{
    mu_emitter *e = l->emitter;
    const mu_shape *shape = &x->shifted.spec.shape, classes = MU_SHAPE(shape->dims[shape->rank - 1]);
    const mu_hlo wanted = mu__hlo_convert(e, l->in[1], MU_I64);
    const mu_hlo index = mu__hlo_iota(e, MU_I64, shape, shape->rank - 1);
    mu__hlo_check(l, 1, MU_CHECK_INDEX, &classes, raise_label);
    return mu__hlo_compare(e, "EQ", index, mu__hlo_broadcast(e, wanted, shape, &x->along));
}

static mu_status lower_loss(mu_lowering *l, const exponentials *x, mu_hlo terms, mu_hlo labels)
{
    mu_emitter *e = l->emitter;
    const mu_hlo loss = mu__hlo_unary(e, "stablehlo.negate", sum_of_classes(e, x, terms));
    const mu_hlo grad = mu__hlo_binary(e, "stablehlo.subtract", probabilities(e, x), labels);
    l->out[1] = mu__hlo_convert(e, grad, l->out[1].spec.dtype);
    return mu__lowered(l, 0, mu__hlo_convert(e, loss, l->out[0].spec.dtype));
}

// Both cross-entropies: -sum(labels log p), and its derivative p - labels as the hidden output.
mu_status mu__lower_cross_entropy(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const exponentials x = exponentials_of(e, l->in[0], l->in[0].spec.shape.rank - 1);
    const mu_hlo logs = log_probabilities(e, &x);
    if (l->op == &mu_op_softmax_cross_entropy) {
        const mu_hlo labels = mu__hlo_wide(e, l->in[1]);
        return lower_loss(l, &x, mu__hlo_binary(e, "stablehlo.multiply", labels, logs), labels);
    }
    const mu_hlo hit = at_label(l, &x), zero = mu__hlo_fill(e, logs.spec.dtype, &logs.spec.shape, 0);
    return lower_loss(l, &x, mu__hlo_select(e, hit, logs, zero), mu__hlo_convert(e, hit, logs.spec.dtype));
}
