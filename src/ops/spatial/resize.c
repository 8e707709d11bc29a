// Image resizing: nearest neighbour or bilinear.
//
// Pixel centres are at half-integers: output pixel o samples the image at (o + 1/2) * in / out. Positions are computed
// in float32, as TensorFlow does, so that the same pixels are chosen. Both methods are linear: the gradient distributes
// each element to the pixels it was sampled from, and the gradient of that is the resizing itself.
#include "ops/core/composed.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/nn/nn.h"

#include <math.h>
#include <muster/nn.h>
#include <muster/ops.h>

typedef struct mu_resize_attrs {
    int64_t height, width, method; // mu_resize_method
} mu_resize_attrs;

// Source of an output row or column: two neighbours, and the weight of the second.
typedef struct position {
    int64_t low, high;
    float part;
} position;

typedef struct resize_job {
    int64_t n, height, width, channels, out_height, out_width;
    size_t element;
    void *image, *result;
    const position *rows, *columns;
    bool single; // float32, else float64
    _Atomic bool exhausted;
} resize_job;

enum { CHANNELS = 16 }; // channels sampled together

#define T        float
#define FN(name) f32_##name
#include "ops/spatial/resize_loops.inc.c"

#define T        double
#define FN(name) f64_##name
#include "ops/spatial/resize_loops.inc.c"

// ---- Shapes -------------------------------------------------------------------------------------

static mu_status resize_shape(const mu_infer *infer, const mu_shape *image, mu_shape *out)
{
    const mu_resize_attrs *attrs = infer->attrs;
    char text[MU_SHAPE_TEXT];
    const bool empty = image->rank == 4 && (image->dims[1] == 0 || image->dims[2] == 0);
    if (image->rank != 4 || empty || attrs->height < 1 || attrs->width < 1 || attrs->height > INT32_MAX ||
        attrs->width > INT32_MAX)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: images %s to %lld x %lld; they must have shape [batch, height, width, channels], and no side may be 0",
            infer->op->name, mu__shape_text(image, text), (long long)attrs->height, (long long)attrs->width);
    *out = MU_SHAPE(image->dims[0], attrs->height, attrs->width, image->dims[3]);
    return MU_OK;
}

static mu_status resize_infer(mu_infer *infer)
{
    const mu_resize_attrs *attrs = infer->attrs;
    if (attrs->method != MU_RESIZE_NEAREST && !mu__dtype_is_float(infer->in[0].dtype))
        return mu__error(MU_INVALID_ARGUMENT,
                         "resize: %s images cannot be mixed; only the nearest pixel can be taken (mu_cast converts)",
                         mu_dtype_name(infer->in[0].dtype));
    infer->out[0].dtype = infer->in[0].dtype;
    return resize_shape(infer, &infer->in[0].shape, &infer->out[0].shape);
}

// Inputs (dy, x); only the shape of x is used.
static mu_status resize_grad_infer(mu_infer *infer)
{
    mu_shape result;
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    MU_TRY(resize_shape(infer, &infer->in[1].shape, &result));
    if (!mu__shape_compatible(&result, &infer->in[0].shape))
        return mu__error(MU_INVALID_ARGUMENT, "resize_grad: dy has shape %s, the resized images have %s",
                         mu__shape_text(&infer->in[0].shape, seen), mu__shape_text(&result, wanted));
    infer->out[0] = (mu_spec){infer->in[0].dtype, infer->in[1].shape};
    return MU_OK;
}

// ---- Kernels ------------------------------------------------------------------------------------

static void fill_positions(position *to, int64_t in, int64_t out, int64_t method)
{
    const float scale = (float)in / (float)out;
    for (int64_t o = 0; o < out; o++) {
        if (method == MU_RESIZE_NEAREST) {
            const int64_t at = MU_MIN((int64_t)floorf(((float)o + 0.5f) * scale), in - 1);
            to[o] = (position){.low = at, .high = at};
            continue;
        }
        const float at = ((float)o + 0.5f) * scale - 0.5f, below = floorf(at);
        to[o] = (position){
            .low = MU_MAX((int64_t)below, 0), .high = MU_MIN((int64_t)ceilf(at), in - 1), .part = at - below};
    }
}

typedef void run_part(const resize_job *j, int64_t begin, int64_t end, void *scratch);

static void run_with_rows(resize_job *j, run_part *run, int64_t begin, int64_t end, int64_t width)
{
    const size_t bytes = (size_t)MU_MAX(width * j->channels, 1) * j->element;
    void *scratch = mu__alloc_data(bytes);
    if (!scratch) {
        j->exhausted = true;
        return;
    }
    run(j, begin, end, scratch);
    mu__free_data(scratch, bytes);
}

static void sample(void *arg, int64_t begin, int64_t end)
{
    resize_job *j = arg;
    run_with_rows(j, j->single ? f32_sample_rows : f64_sample_rows, begin, end, 2 * j->out_width);
}

static void spread(void *arg, int64_t begin, int64_t end)
{
    resize_job *j = arg;
    run_with_rows(j, j->single ? f32_spread_images : f64_spread_images, begin, end, j->width);
}

// Copies pixels of whole words in vectors; memcpy would branch on the size for every pixel.
MU_PER_ISA(copy_pixels,
           (const uint32_t *from, uint32_t *restrict to, const position *columns, int64_t n, int64_t words),
           (from, to, columns, n, words))
{
    for (int64_t o = 0; o < n; o++, to += words) {
        const uint32_t *pixel = from + columns[o].low * words;
        for (int64_t i = 0; i < words; i++)
            to[i] = pixel[i];
    }
}

static void copy_nearest(void *arg, int64_t begin, int64_t end)
{
    const resize_job *j = arg;
    const size_t pixel = (size_t)j->channels * j->element, wide = (size_t)j->out_width * pixel;
    int64_t last = -1;
    for (int64_t row = begin; row < end; row++) {
        const int64_t y = row / j->out_height * j->height + j->rows[row % j->out_height].low;
        const char *from = (const char *)j->image + (size_t)(y * j->width) * pixel;
        char *to = (char *)j->result + (size_t)row * wide;
        if (y == last)
            memcpy(to, to - wide, wide);
        else if (pixel % sizeof(uint32_t) == 0)
            copy_pixels((const uint32_t *)(const void *)from, (uint32_t *)(void *)to, j->columns, j->out_width,
                        (int64_t)(pixel / sizeof(uint32_t)));
        else
            for (int64_t ox = 0; ox < j->out_width; ox++)
                memcpy(to + (size_t)ox * pixel, from + (size_t)j->columns[ox].low * pixel, pixel);
        last = y;
    }
}

static mu_status resize_run(const mu_kernel *kernel)
{
    const mu_resize_attrs *attrs = kernel->attrs;
    const bool backward = kernel->op == &mu_op_resize_grad, copies = !backward && attrs->method == MU_RESIZE_NEAREST;
    const mu_view *image = backward ? &kernel->out[0] : &kernel->in[0],
                  *result = backward ? &kernel->in[0] : &kernel->out[0];
    if (!copies && image->dtype != MU_F32 && image->dtype != MU_F64)
        return mu__run_as_f32(kernel, resize_run);
    const int64_t *dims = image->shape.dims, work = mu__elements(&result->shape);
    if (work == 0)
        return MU_OK; // empty images may have any height and width, and the tables of positions would be as large
    position *positions = mu__alloc((size_t)(attrs->height + attrs->width) * sizeof *positions);
    if (!positions)
        return MU_RESOURCE_EXHAUSTED;
    resize_job job = {
        .n = dims[0],
        .height = dims[1],
        .width = dims[2],
        .channels = dims[3],
        .out_height = attrs->height,
        .out_width = attrs->width,
        .element = mu_dtype_bytes(image->dtype),
        .image = image->data,
        .result = result->data,
        .rows = positions,
        .columns = positions + attrs->height,
        .single = image->dtype == MU_F32,
    };
    fill_positions(positions, job.height, job.out_height, attrs->method);
    fill_positions(positions + attrs->height, job.width, job.out_width, attrs->method);
    if (backward)
        mu__share_range(kernel->team, job.n, 1, work, spread, &job);
    else
        mu__share_range(kernel->team, job.n * job.out_height, 1, work, copies ? copy_nearest : sample, &job);
    mu__free(positions);
    return job.exhausted ? mu__error(MU_RESOURCE_EXHAUSTED, "%s: no memory for rows of %lld pixels", kernel->op->name,
                                     (long long)(backward ? job.width : job.out_width))
                         : MU_OK;
}

// ---- Plain loops --------------------------------------------------------------------------------

// The four pixels that a result element is sampled from: the index of each in the image, and its weight.
typedef struct sources {
    int64_t at[4];
    double weight[4];
} sources;

static sources sources_of(const mu_shape *image, const mu_shape *result, const position *rows, const position *columns,
                          int64_t i)
{
    int64_t index[MU_MAX_RANK];
    mu__index_of(result, i, index);
    const position *y = &rows[index[1]], *x = &columns[index[2]];
    sources four;
    for (int k = 0; k < 4; k++) {
        index[1] = k < 2 ? y->low : y->high;
        index[2] = k % 2 ? x->high : x->low;
        four.at[k] = mu__element_at(image, index);
        four.weight[k] =
            (k < 2 ? 1 - (double)y->part : (double)y->part) * (k % 2 ? (double)x->part : 1 - (double)x->part);
    }
    return four;
}

static void sample_element(const mu_view *to, int64_t i, const mu_view *image, const sources *four, bool nearest)
{
    double sum = 0;
    for (int k = 0; k < 4 && !nearest; k++)
        sum += mu__read_real(image, four->at[k]) * four->weight[k];
    if (nearest)
        mu__copy_element(to, i, image, four->at[0]);
    else
        mu__write_real(to, i, sum);
}

// Every element of the result and of dy is treated alone; the gradient adds it to the pixels that it was sampled from.
static mu_status resize_ref(const mu_kernel *kernel)
{
    const mu_resize_attrs *attrs = kernel->attrs;
    const bool backward = kernel->op == &mu_op_resize_grad, nearest = attrs->method == MU_RESIZE_NEAREST;
    const mu_view *image = backward ? &kernel->out[0] : &kernel->in[0],
                  *result = backward ? &kernel->in[0] : &kernel->out[0];
    mu_wide sums = {0};
    mu_status status = MU_OK;
    if (mu__elements(&result->shape) == 0)
        return MU_OK;
    position *positions = mu__alloc((size_t)(attrs->height + attrs->width) * sizeof *positions), *rows = positions;
    if (!positions)
        return MU_RESOURCE_EXHAUSTED;
    fill_positions(rows, image->shape.dims[1], attrs->height, attrs->method);
    fill_positions(rows + attrs->height, image->shape.dims[2], attrs->width, attrs->method);
    if (backward)
        MU_GO(mu__wide_open(&sums, image, true));
    for (int64_t i = 0; i < mu__elements(&result->shape); i++) {
        const sources four = sources_of(&image->shape, &result->shape, rows, rows + attrs->height, i);
        if (!backward)
            sample_element(result, i, image, &four, nearest);
        for (int k = 0; k < 4 && backward; k++)
            sums.reals[four.at[k]] += mu__read_real(result, i) * four.weight[k];
    }
    if (backward)
        mu__wide_store(&sums);
out:
    mu__wide_close(&sums);
    mu__free(positions);
    return status;
}

// ---- Lowerings ----------------------------------------------------------------------------------

// One axis in a program: the neighbours of each output row or column, [out], and the weight of the second.
typedef struct lowered_axis {
    int64_t in, out;
    mu_hlo low, high, part; // part: without a value if there is one neighbour
} lowered_axis;

static mu_status lower_axis(mu_emitter *e, int64_t in, int64_t out, int64_t method, mu_dtype dtype, lowered_axis *axis)
{
    position *positions = mu__alloc((size_t)out * sizeof *positions);
    int64_t *low = mu__alloc((size_t)out * 2 * sizeof *low), *high = low ? low + out : NULL;
    float *parts = mu__alloc((size_t)out * sizeof *parts);
    const mu_spec index = {.dtype = MU_I64, .shape = MU_SHAPE(out)}, weight = {.dtype = MU_F32, .shape = MU_SHAPE(out)};
    *axis = (lowered_axis){.in = in, .out = out, .part = {.id = -1}};
    if (!positions || !low || !parts)
        e->status = MU_RESOURCE_EXHAUSTED;
    if (e->status == MU_OK) {
        fill_positions(positions, in, out, method);
        for (int64_t o = 0; o < out; o++) {
            low[o] = positions[o].low;
            high[o] = positions[o].high;
            parts[o] = positions[o].part;
        }
        axis->low = axis->high = mu__hlo_data(e, &index, low);
        if (method != MU_RESIZE_NEAREST) {
            axis->high = mu__hlo_data(e, &index, high);
            axis->part = mu__hlo_convert(e, mu__hlo_data(e, &weight, parts), dtype);
        }
    }
    mu__free(positions);
    mu__free(low);
    mu__free(parts);
    return e->status;
}

static mu_hlo weights_along(mu_emitter *e, const lowered_axis *axis, const mu_shape *shape, int number)
{
    const mu_ints axes = {.n = 1, .at = {number}};
    return mu__hlo_broadcast(e, axis->part, shape, &axes);
}

// Samples along axis `number` of images.
static mu_hlo sample_axis(mu_emitter *e, mu_hlo a, const lowered_axis *axis, int number)
{
    const mu_hlo first = mu__hlo_take(e, a, number, axis->low);
    if (axis->part.id < 0)
        return first;
    const mu_hlo apart = mu__hlo_binary(e, "stablehlo.subtract", mu__hlo_take(e, a, number, axis->high), first);
    const mu_hlo step =
        mu__hlo_binary(e, "stablehlo.multiply", apart, weights_along(e, axis, &apart.spec.shape, number));
    return mu__hlo_binary(e, "stablehlo.add", first, step);
}

// Adds the slices of dy along axis `number` to those at the positions `index` of `sum`.
static mu_hlo add_along(mu_emitter *e, mu_hlo sum, int number, mu_hlo index, mu_hlo dy)
{
    mu_ints order = {.n = 4, .at = {0, 1, 2, 3}};
    order.at[0] = number;
    order.at[number] = 0;
    const mu_hlo moved = mu__hlo_transpose(e, sum, &order);
    return mu__hlo_transpose(e, mu__hlo_combine(e, "stablehlo.add", moved, index, mu__hlo_transpose(e, dy, &order)),
                             &order);
}

static mu_hlo spread_axis(mu_emitter *e, mu_hlo dy, const lowered_axis *axis, int number)
{
    mu_shape shape = dy.spec.shape;
    shape.dims[number] = axis->in;
    const mu_hlo zeros = mu__hlo_fill(e, dy.spec.dtype, &shape, 0);
    if (axis->part.id < 0)
        return add_along(e, zeros, number, axis->low, dy);
    const mu_hlo second = mu__hlo_binary(e, "stablehlo.multiply", dy, weights_along(e, axis, &dy.spec.shape, number));
    const mu_hlo first = mu__hlo_binary(e, "stablehlo.subtract", dy, second);
    return add_along(e, add_along(e, zeros, number, axis->low, first), number, axis->high, second);
}

// Along a row, then between rows, as in the loops; the gradient in the reverse order.
static mu_status lower_resize(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_resize_attrs *attrs = l->attrs;
    const bool copies = attrs->method == MU_RESIZE_NEAREST;
    const mu_spec *result = &l->out[0].spec;
    const mu_hlo x = copies ? l->in[0] : mu__hlo_wide(e, l->in[0]);
    const int64_t *image = x.spec.shape.dims;
    lowered_axis rows, columns;
    if (mu__elements(&result->shape) == 0)
        return mu__lowered(l, 0, mu__hlo_fill(e, result->dtype, &result->shape, 0));
    MU_TRY(lower_axis(e, image[1], attrs->height, attrs->method, x.spec.dtype, &rows));
    MU_TRY(lower_axis(e, image[2], attrs->width, attrs->method, x.spec.dtype, &columns));
    const mu_hlo y = sample_axis(e, sample_axis(e, x, &columns, 2), &rows, 1);
    return mu__lowered(l, 0, mu__hlo_convert(e, y, result->dtype));
}

static mu_status lower_resize_grad(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_resize_attrs *attrs = l->attrs;
    const mu_spec *image = &l->out[0].spec;
    const mu_hlo dy = mu__hlo_wide(e, l->in[0]);
    lowered_axis rows, columns;
    if (mu__elements(&dy.spec.shape) == 0)
        return mu__lowered(l, 0, mu__hlo_fill(e, image->dtype, &image->shape, 0));
    MU_TRY(lower_axis(e, image->shape.dims[1], attrs->height, attrs->method, dy.spec.dtype, &rows));
    MU_TRY(lower_axis(e, image->shape.dims[2], attrs->width, attrs->method, dy.spec.dtype, &columns));
    const mu_hlo dx = spread_axis(e, spread_axis(e, dy, &rows, 1), &columns, 2);
    return mu__lowered(l, 0, mu__hlo_convert(e, dx, image->dtype));
}

// ---- Op definitions -----------------------------------------------------------------------------

static mu_tensor *resize_rule(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(&mu_op_resize_grad, g->attrs, g->dy, g->x[0]);
}

static mu_tensor *resize_grad_rule(mu_grad *g, int i)
{
    return i == 0 ? mu__apply1(&mu_op_resize, g->attrs, g->dy) : NULL;
}

static const mu_attr_spec resize_fields[] = {
    {"height", MU_ATTR_INT, offsetof(mu_resize_attrs, height)},
    {"width", MU_ATTR_INT, offsetof(mu_resize_attrs, width)},
    {"method", MU_ATTR_INT, offsetof(mu_resize_attrs, method)},
    {0},
};
static const mu_resize_attrs larger = {7, 9, MU_RESIZE_BILINEAR}, smaller = {2, 3, MU_RESIZE_BILINEAR},
                             nearest = {7, 3, MU_RESIZE_NEAREST}, one_pixel = {1, 1, MU_RESIZE_BILINEAR};
static const mu_sample samples_resize[] = {
    {.n_in = 1, .in = {MU_DIMS(2, 4, 5, 3)}, .attrs = &larger},
    {.n_in = 1, .in = {MU_DIMS(1, 5, 7, 1)}, .attrs = &smaller},
    {.n_in = 1, .in = {MU_DIMS(2, 4, 5, 2)}, .attrs = &nearest},
    {.n_in = 1, .in = {MU_DIMS(2, 1, 6, 2)}, .attrs = &one_pixel},
    {.n_in = 1, .in = {MU_DIMS(0, 4, 5, 2)}, .attrs = &nearest},
    {0},
};
static const mu_sample samples_resize_grad[] = {
    {.n_in = 2, .in = {MU_DIMS(2, 7, 9, 3), MU_DIMS(2, 4, 5, 3)}, .attrs = &larger, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(1, 7, 3, 2), MU_DIMS(1, 4, 5, 2)}, .attrs = &nearest, .no_grad = 2},
    {0},
};
const mu_op mu_op_resize = {
    .name = "resize",
    .n_in = 1,
    .n_out = 1,
    .dtypes = MU_NUMBERS,
    .attrs_bytes = sizeof(mu_resize_attrs),
    .attrs = resize_fields,
    .infer = resize_infer,
    .grad = resize_rule,
    .ref = resize_ref,
    .cpu = {.run = resize_run},
    .samples = samples_resize,
    .lower = lower_resize,
};
const mu_op mu_op_resize_grad = {
    .name = "resize_grad",
    .n_in = 2,
    .n_out = 1,
    .dtypes = MU_FLOATS,
    .shape_only = 2,
    .attrs_bytes = sizeof(mu_resize_attrs),
    .attrs = resize_fields,
    .infer = resize_grad_infer,
    .grad = resize_grad_rule,
    .ref = resize_ref,
    .cpu = {.run = resize_run},
    .samples = samples_resize_grad,
    .lower = lower_resize_grad,
};

mu_tensor *mu_image_resize(mu_tensor *x, int64_t height, int64_t width, mu_resize_method method)
{
    const mu_resize_attrs attrs = {.height = height, .width = width, .method = method};
    if (mu__pending())
        return NULL;
    if (method != MU_RESIZE_BILINEAR && method != MU_RESIZE_NEAREST) {
        mu__error(MU_INVALID_ARGUMENT, "image_resize: %d is not a method; use MU_RESIZE_BILINEAR or MU_RESIZE_NEAREST",
                  (int)method);
        return NULL;
    }
    const bool single = x && x->shape.rank == 3;
    if (x && method != MU_RESIZE_NEAREST && !mu__dtype_is_float(x->dtype))
        x = mu_cast(x, MU_F32);
    mu_tensor *y = mu__apply1(&mu_op_resize, &attrs, single ? mu_expand_dims(x, 0) : x);
    return single && y ? mu_squeeze(y, 0) : mu__called("image_resize", &mu_op_resize, y);
}
