// Ops whose output elements are each one input element or a constant, computed axis by axis: slices, padding, tiling,
// repeating, reversing, rolling.
//
// Each axis has an index map: a list that says which input index each output index reads (-1: the constant). One kernel
// follows the maps; trailing axes with identity maps are merged into blocks. A second kernel follows them backwards and
// adds, which computes every gradient. The kernels do not depend on the meaning of the maps.
#include "ops/core/attrs.h"
#include "ops/core/grads.h"
#include "ops/core/loops.h"
#include "ops/core/lower.h"
#include "ops/core/plain.h"
#include "ops/array/index_map.h"
#include "ops/nn/nn.h"

#include <muster/ops.h>

enum { SLICE, PAD, TILE, REPEAT, REVERSE, ROLL };

// ---- Which input index an output index reads ----------------------------------------------------

// Attributes of a loaded graph may have any value: computing sizes from them must not overflow.
static mu_status check_numbers(int variant, const void *attrs, int axis, int64_t n)
{
    const mu_pad_attrs *pad = attrs;
    const mu_counts_attrs *counts = attrs;
    const int64_t most = INT64_MAX / 4;
    if (variant == PAD && (pad->before.at[axis] < -most || pad->before.at[axis] > most || pad->after.at[axis] < -most ||
                           pad->after.at[axis] > most))
        return mu__error(MU_INVALID_ARGUMENT, "pad: %lld before and %lld after axis %d cannot be counted",
                         (long long)pad->before.at[axis], (long long)pad->after.at[axis], axis);
    if ((variant == TILE || variant == REPEAT) &&
        (counts->counts.at[axis] < 0 || counts->counts.at[axis] > INT64_MAX / MU_MAX(n, 1)))
        return mu__error(MU_INVALID_ARGUMENT,
                         "tile or repeat: %lld times an axis of size %lld; it must be at least 0 and countable",
                         (long long)counts->counts.at[axis], (long long)n);
    if (variant == ROLL && counts->counts.at[axis] == INT64_MIN)
        return mu__error(MU_INVALID_ARGUMENT,
                         "roll: axis %d by %lld positions, which cannot be rolled back; give a shift above that", axis,
                         (long long)INT64_MIN);
    return MU_OK;
}

static mu_status map_dim(int variant, const void *attrs, int axis, int64_t n, int64_t *out)
{
    *out = n;
    MU_TRY(check_numbers(variant, attrs, axis, n));
    if (variant == SLICE) {
        mu_slice_range range = {0};
        if (n != MU_UNKNOWN)
            MU_TRY(mu__slice_range(attrs, axis, n, &range));
        *out = n == MU_UNKNOWN ? mu__slice_unknown(attrs, axis) : range.count;
    } else if (variant == PAD && n != MU_UNKNOWN) {
        const mu_pad_attrs *pad = attrs;
        int64_t most = pad->mode == MU_PAD_REFLECT ? n - 1 : n;
        if (pad->mode != MU_PAD_WITH_CONSTANT && (pad->before.at[axis] > most || pad->after.at[axis] > most))
            return mu__error(
                MU_INVALID_ARGUMENT, "pad: %lld before and %lld after axis %d of size %lld; its mirror image has %lld",
                (long long)pad->before.at[axis], (long long)pad->after.at[axis], axis, (long long)n, (long long)most);
        *out = n + pad->before.at[axis] + pad->after.at[axis];
    } else if ((variant == TILE || variant == REPEAT) && n != MU_UNKNOWN) {
        *out = n * ((const mu_counts_attrs *)attrs)->counts.at[axis];
    } else if (variant == TILE || variant == REPEAT) {
        *out = ((const mu_counts_attrs *)attrs)->counts.at[axis] == 1 ? n : MU_UNKNOWN;
    }
    return MU_OK;
}

// j is up to n elements outside [0, n). reflect: mirrors at the last element; otherwise repeats it (symmetric).
static int64_t mirrored(int64_t j, int64_t n, bool reflect)
{
    if (j < 0)
        return reflect ? -j : -j - 1;
    if (j >= n)
        return reflect ? 2 * n - 2 - j : 2 * n - 1 - j;
    return j;
}

static void fill_map(int variant, const void *attrs, int axis, int64_t n, int64_t n_out, int64_t *map)
{
    const mu_ints *counts = &((const mu_counts_attrs *)attrs)->counts;
    const mu_pad_attrs *pad = attrs;
    mu_slice_range range = {0};
    if (variant == SLICE && mu__slice_range(attrs, axis, n, &range) != MU_OK)
        return; // the shape rule has reported it
    for (int64_t i = 0; i < n_out; i++) {
        int64_t shift;
        switch (variant) {
        case SLICE: map[i] = range.start + i * range.stride; break;
        case TILE: map[i] = i % n; break;
        case REPEAT: map[i] = i / counts->at[axis]; break;
        case REVERSE: map[i] = counts->at[axis] ? n - 1 - i : i; break;
        case ROLL:
            shift = (i - counts->at[axis] % n) % n;
            map[i] = shift < 0 ? shift + n : shift;
            break;
        default:
            shift = i - pad->before.at[axis];
            if (pad->mode == MU_PAD_WITH_CONSTANT)
                map[i] = shift >= 0 && shift < n ? shift : -1;
            else
                map[i] = mirrored(shift, n, pad->mode == MU_PAD_REFLECT);
        }
    }
}

void mu__map_axis(const mu_op *op, const void *attrs, int axis, int64_t n, int64_t n_out, int64_t *map)
{
    fill_map(op->variant, attrs, axis, n, n_out, map);
}

double mu__map_constant(const mu_op *op, const void *attrs)
{
    return op->variant == PAD ? ((const mu_pad_attrs *)attrs)->value : 0;
}

// ---- Following the index maps -------------------------------------------------------------------

// Consecutive output indices that read consecutive input indices, or the constant (from is -1).
typedef struct run {
    int64_t to, from, length;
} run;

typedef struct axis_maps {
    int rank;                   // axes with a map; the axes after them make up the block
    int64_t dims[MU_MAX_RANK];  // of the output
    int64_t steps[MU_MAX_RANK]; // input strides, in blocks
    int64_t *maps[MU_MAX_RANK];
    int64_t block; // elements
    run *runs;     // of the last axis with a map
    int64_t n_runs;
    void *memory;
} axis_maps;

static bool maps_to_itself(const int64_t *map, int64_t n, int64_t n_out)
{
    if (n != n_out)
        return false;
    for (int64_t i = 0; i < n; i++)
        if (map[i] != i)
            return false;
    return true;
}

static void make_runs(axis_maps *maps)
{
    const int64_t *map = maps->maps[maps->rank - 1];
    for (int64_t i = 0; i < maps->dims[maps->rank - 1]; i++) {
        run *last = maps->n_runs > 0 ? &maps->runs[maps->n_runs - 1] : NULL;
        bool continues = last && (last->from < 0 ? map[i] < 0 : map[i] == last->from + last->length);
        if (continues)
            last->length++;
        else
            maps->runs[maps->n_runs++] = (run){.to = i, .from = map[i], .length = 1};
    }
}

static mu_status make_maps(const mu_kernel *k, const mu_shape *in, const mu_shape *out, axis_maps *maps)
{
    size_t n = 0, last = 1;
    *maps = (axis_maps){.rank = out->rank, .block = 1};
    for (int axis = 0; axis < out->rank; axis++) {
        n += (size_t)out->dims[axis];
        last = MU_MAX(last, (size_t)out->dims[axis]);
    }
    int64_t *at = maps->memory = mu__alloc(n * sizeof *at + last * sizeof *maps->runs);
    if (!at)
        return MU_RESOURCE_EXHAUSTED;
    maps->runs = (run *)(void *)(at + n);
    int64_t step = 1;
    for (int axis = 0; axis < out->rank; axis++) {
        maps->maps[axis] = at;
        maps->dims[axis] = out->dims[axis];
        fill_map(k->op->variant, k->attrs, axis, in->dims[axis], out->dims[axis], at);
        at += out->dims[axis];
    }
    while (maps->rank > 0 &&
           maps_to_itself(maps->maps[maps->rank - 1], in->dims[maps->rank - 1], out->dims[maps->rank - 1]))
        maps->block *= out->dims[--maps->rank];
    for (int axis = maps->rank - 1; axis >= 0; axis--) {
        maps->steps[axis] = step;
        step *= in->dims[axis];
    }
    if (maps->rank > 0)
        make_runs(maps);
    return MU_OK;
}

// Offset of the input row (in blocks) for an output row with these indices of all axes but the last; -1: the row is
// constant.
static int64_t row_base(const axis_maps *maps, const int64_t *index)
{
    int64_t base = 0;
    for (int axis = maps->rank - 2; axis >= 0; axis--) {
        const int64_t from = maps->maps[axis][index[axis]];
        if (from < 0)
            return -1;
        base += from * maps->steps[axis];
    }
    return base;
}

static void next_row(const axis_maps *maps, int64_t *index)
{
    for (int axis = maps->rank - 2; axis >= 0 && ++index[axis] == maps->dims[axis]; axis--)
        index[axis] = 0;
}

static int64_t count_rows(const axis_maps *maps)
{
    int64_t n = 1;
    for (int axis = 0; axis < maps->rank - 1; axis++)
        n *= maps->dims[axis];
    return n;
}

// Loops for elements of one size: out[i] = in[map[i]]; a loop without the map for constant strides, as in slices and
// reversals; and a loop that repeats each element.
#define BY_ELEMENTS(T, bits)                                                                                \
    MU_PER_ISA(gather_##bits, (const void *from, const int64_t *map, int64_t stride, void *to, int64_t n),  \
               (from, map, stride, to, n))                                                                  \
    {                                                                                                       \
        const T *in = from;                                                                                 \
        T *restrict out = to;                                                                               \
        const T *first = n > 0 ? in + map[0] : in, *last = n > 0 ? in + map[n - 1] : in;                    \
        if (stride == -1)                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                                 \
                out[n - 1 - i] = last[i];                                                                   \
        else if (stride == 2)                                                                               \
            for (int64_t i = 0; i < n; i++)                                                                 \
                out[i] = first[2 * i];                                                                      \
        else                                                                                                \
            for (int64_t i = 0; i < n; i++)                                                                 \
                out[i] = in[map[i]];                                                                        \
    }                                                                                                       \
                                                                                                            \
    MU_PER_ISA(spread_##bits, (const void *from, int64_t times, void *to, int64_t n), (from, times, to, n)) \
    {                                                                                                       \
        const T *in = from;                                                                                 \
        T *restrict out = to;                                                                               \
        if (times == 2)                                                                                     \
            for (int64_t i = 0; i < n; i++)                                                                 \
                out[2 * i] = out[2 * i + 1] = in[i];                                                        \
        else                                                                                                \
            for (int64_t i = 0; i < n; i++)                                                                 \
                for (int64_t k = 0; k < times; k++)                                                         \
                    out[i * times + k] = in[i];                                                             \
    }
BY_ELEMENTS(uint8_t, 8)
BY_ELEMENTS(uint16_t, 16)
BY_ELEMENTS(uint32_t, 32)
BY_ELEMENTS(uint64_t, 64)

// How to make one output row element by element.
typedef struct element_row {
    size_t bytes;
    const int64_t *map;
    int64_t width, stride, times; // times: repetitions per element, or 0
} element_row;

static void write_row(const element_row *row, const char *in, char *out)
{
    const size_t bytes = row->bytes;
    const int64_t n = row->width;
    if (row->times > 0)
        (bytes == 1   ? spread_8
         : bytes == 2 ? spread_16
         : bytes == 4 ? spread_32
                      : spread_64)(in, row->times, out, n / row->times);
    else
        (bytes == 1   ? gather_8
         : bytes == 2 ? gather_16
         : bytes == 4 ? gather_32
                      : gather_64)(in, row->map, row->stride, out, n);
}

static int64_t stride_of(const int64_t *map, int64_t n)
{
    const int64_t stride = n > 1 ? map[1] - map[0] : 1;
    for (int64_t i = 2; i < n; i++)
        if (map[i] - map[i - 1] != stride)
            return 0;
    return stride;
}

// Start of the input for an output row; NULL: the row is constant.
static const char *row_start(const mu_kernel *k, const axis_maps *maps, const int64_t *index)
{
    const int64_t base = row_base(maps, index);
    const size_t block = (size_t)maps->block * mu_dtype_bytes(k->out[0].dtype);
    return base < 0 ? NULL : (const char *)k->in[0].data + (size_t)base * block;
}

// If most runs are single elements, makes rows element by element; otherwise returns false.
static bool map_by_elements(const mu_kernel *k, const axis_maps *maps)
{
    if (maps->rank == 0)
        return false;
    const int64_t width = maps->dims[maps->rank - 1], rows = count_rows(maps);
    const size_t bytes = mu_dtype_bytes(k->out[0].dtype);
    const bool repeats = k->op->variant == REPEAT;
    if (maps->block != 1 || maps->n_runs * 4 < width || k->op->variant == PAD)
        return false;
    const int64_t *map = maps->maps[maps->rank - 1];
    const element_row way = {
        .bytes = bytes,
        .map = map,
        .width = width,
        .stride = stride_of(map, width),
        .times = repeats ? ((const mu_counts_attrs *)k->attrs)->counts.at[maps->rank - 1] : 0,
    };
    int64_t index[MU_MAX_RANK] = {0};
    for (int64_t row = 0; row < rows; row++, next_row(maps, index))
        write_row(&way, row_start(k, maps, index), (char *)k->out[0].data + (size_t)(row * width) * bytes);
    return true;
}

// How to make output rows run by run.
typedef struct run_rows {
    const axis_maps *maps;
    size_t bytes, block;           // bytes: of an element; block: of a block
    char constant[sizeof(double)]; // one element
} run_rows;

static inline void put_element(char *to, const char *from, size_t bytes)
{
    switch (bytes) {
    case 1: memcpy(to, from, 1); break;
    case 2: memcpy(to, from, 2); break;
    case 4: memcpy(to, from, 4); break;
    default: memcpy(to, from, 8);
    }
}

// Writes n elements, copied or constant (from is NULL). A few, as in margins, are stored inline because a call costs
// more.
static void write_run(const run_rows *way, char *to, const char *from, int64_t n)
{
    enum { FEW = 4 };
    const size_t bytes = way->bytes;
    if (n <= FEW)
        for (int64_t i = 0; i < n; i++)
            put_element(to + (size_t)i * bytes, from ? from + (size_t)i * bytes : way->constant, bytes);
    else if (from)
        mu__copy_blocks(to, 0, from, 0, (size_t)n * bytes, 1);
    else
        mu__fill(to, way->constant, bytes, n);
}

// Makes one output row, run by run. in: NULL if the whole row is constant.
static void write_runs(const run_rows *way, const char *in, char *out)
{
    const size_t block = way->block;
    for (int64_t r = 0; r < way->maps->n_runs; r++) {
        const run *part = &way->maps->runs[r];
        write_run(way, out + (size_t)part->to * block, in && part->from >= 0 ? in + (size_t)part->from * block : NULL,
                  part->length * way->maps->block);
    }
}

// Copies rows that are one run each at equal distances, as in slices: all rows of the last axis but one in one call.
// Returns false for other rows.
static bool write_even(const mu_kernel *k, const run_rows *way)
{
    const axis_maps *maps = way->maps;
    const int outer = maps->rank - 2;
    if (k->op->variant != SLICE || outer < 0 || maps->n_runs != 1)
        return false;
    const int64_t n = maps->dims[outer], stride = stride_of(maps->maps[outer], n), rows = count_rows(maps);
    const size_t bytes = (size_t)maps->dims[outer + 1] * way->block;
    int64_t index[MU_MAX_RANK] = {0};
    char *out = k->out[0].data;
    if (stride <= 0)
        return false;
    for (int64_t row = 0; row < rows; row += n, out += (size_t)n * bytes) {
        mu__copy_blocks(out, bytes, row_start(k, maps, index) + (size_t)maps->runs[0].from * way->block,
                        (size_t)(stride * maps->steps[outer]) * way->block, bytes, n);
        index[outer] = n - 1;
        next_row(maps, index);
    }
    return true;
}

static void write_rows(const mu_kernel *k, const run_rows *way)
{
    const axis_maps *maps = way->maps;
    const size_t bytes = (size_t)maps->dims[maps->rank - 1] * way->block;
    int64_t index[MU_MAX_RANK] = {0};
    char *out = k->out[0].data;
    for (int64_t rows = count_rows(maps); rows > 0; rows--, out += bytes, next_row(maps, index))
        write_runs(way, row_start(k, maps, index), out);
}

// The element that element `at` of `out` reads, or -1 for the constant. `map` has room for the largest axis.
static int64_t read_by(const mu_kernel *k, const mu_shape *in, const mu_shape *out, int64_t at, int64_t *map)
{
    int64_t index[MU_MAX_RANK];
    mu__index_of(out, at, index);
    for (int axis = 0; axis < out->rank; axis++) {
        mu__map_axis(k->op, k->attrs, axis, in->dims[axis], out->dims[axis], map);
        index[axis] = map[index[axis]];
        if (index[axis] < 0)
            return -1;
    }
    return mu__element_at(in, index);
}

static int64_t *axis_buffer(const mu_shape *shape)
{
    int64_t most = 1;
    for (int axis = 0; axis < shape->rank; axis++)
        most = MU_MAX(most, shape->dims[axis]);
    return mu__alloc((size_t)most * sizeof(int64_t));
}

static mu_status map_ref(const mu_kernel *k)
{
    const mu_view *in = &k->in[0], *out = &k->out[0];
    int64_t *map = axis_buffer(&out->shape);
    if (!map)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < mu__elements(&out->shape); i++) {
        const int64_t from = read_by(k, &in->shape, &out->shape, i, map);
        if (from >= 0)
            mu__copy_element(out, i, in, from);
        else
            mu__write_real(out, i, mu__map_constant(k->op, k->attrs));
    }
    mu__free(map);
    return MU_OK;
}

static mu_status map_grad_ref(const mu_kernel *k)
{
    const mu_view *dy = &k->in[0], *dx = &k->out[0];
    const int64_t n = mu__elements(&dx->shape);
    int64_t *map = axis_buffer(&dy->shape);
    mu_totals sums = {0};
    mu_status status = map ? MU_OK : MU_RESOURCE_EXHAUSTED;
    memset(dx->data, 0, (size_t)n * mu_dtype_bytes(dx->dtype));
    MU_GO(status);
    MU_GO(mu__totals_open(&sums, dx));
    for (int64_t i = 0; n > 0 && i < mu__elements(&dy->shape); i++) {
        const int64_t to = read_by(k, &dx->shape, &dy->shape, i, map);
        if (to >= 0)
            mu__totals_combine(&sums, MU_COMBINE_ADD, to, dy, i);
    }
    mu__totals_close(&sums);
out:
    mu__free(map);
    return status;
}

static mu_status map_fast(const mu_kernel *k)
{
    axis_maps maps;
    if (mu__elements(&k->out[0].shape) == 0)
        return MU_OK;
    MU_TRY(make_maps(k, &k->in[0].shape, &k->out[0].shape, &maps));
    run_rows way = {.maps = &maps, .bytes = mu_dtype_bytes(k->out[0].dtype)};
    way.block = (size_t)maps.block * way.bytes;
    mu__write_element(k->out[0].dtype, way.constant, 0, mu__map_constant(k->op, k->attrs));
    if (maps.rank == 0)
        mu__copy_blocks(k->out[0].data, 0, k->in[0].data, 0, way.block, 1);
    else if (!map_by_elements(k, &maps) && !write_even(k, &way))
        write_rows(k, &way);
    mu__free(maps.memory);
    return MU_OK;
}

// Adds every dy to the element of dx (zeroed) that it was read from.
static void add_back(const axis_maps *maps, mu_dtype dtype, const char *dy, char *dx)
{
    size_t bytes = mu_dtype_bytes(dtype);
    int64_t width = maps->rank > 0 ? maps->dims[maps->rank - 1] : 1, rows = count_rows(maps);
    run whole = {.to = 0, .from = 0, .length = 1};
    int64_t n_runs = maps->rank > 0 ? maps->n_runs : 1;
    int64_t index[MU_MAX_RANK] = {0};
    for (int64_t row = 0; row < rows; row++, next_row(maps, index)) {
        int64_t base = row_base(maps, index);
        for (int64_t r = 0; r < n_runs && base >= 0; r++) {
            const run *part = maps->rank > 0 ? &maps->runs[r] : &whole;
            if (part->from < 0)
                continue;
            const char *from = dy + (size_t)((row * width + part->to) * maps->block) * bytes;
            char *to = dx + (size_t)((base + part->from) * maps->block) * bytes;
            mu__accumulate(MU_COMBINE_ADD, dtype, to, from, part->length * maps->block);
        }
    }
}

static mu_status map_grad_fast(const mu_kernel *k)
{
    axis_maps maps;
    mu_dtype dtype = k->out[0].dtype;
    if (dtype == MU_F16 || dtype == MU_BF16)
        return mu__run_as_f32(k, map_grad_fast);
    int64_t n_dy = mu__elements(&k->in[0].shape), n = mu__elements(&k->out[0].shape);
    memset(k->out[0].data, 0, (size_t)n * mu_dtype_bytes(dtype));
    if (n_dy == 0 || n == 0)
        return MU_OK;
    MU_TRY(make_maps(k, &k->out[0].shape, &k->in[0].shape, &maps));
    add_back(&maps, dtype, k->in[0].data, k->out[0].data);
    mu__free(maps.memory);
    return MU_OK;
}

// ---- Shape rules and gradients ------------------------------------------------------------------

// Whether every attribute list has one entry per axis.
static bool attrs_fit(const mu_op *op, const void *attrs, int rank)
{
    const mu_slice_attrs *slice = attrs;
    const mu_pad_attrs *pad = attrs;
    const mu_counts_attrs *counts = attrs;
    bool fit;
    if (op->variant == SLICE)
        fit = slice->begin.n == rank && slice->end.n == rank && slice->strides.n == rank;
    else if (op->variant == PAD)
        fit = pad->before.n == rank && pad->after.n == rank;
    else
        fit = counts->counts.n == rank;
    for (int i = 0; fit && i < rank; i++) {
        if (op->variant == SLICE)
            fit = slice->strides.at[i] != 0;
        else if (op->variant == PAD)
            fit = pad->before.at[i] >= 0 && pad->after.at[i] >= 0;
        else if (op->variant == TILE || op->variant == REPEAT)
            fit = counts->counts.at[i] >= 0;
    }
    return fit;
}

static mu_status map_shape(const mu_op *op, const void *attrs, const mu_shape *in, mu_shape *out)
{
    if (!attrs_fit(op, attrs, in->rank)) {
        char text[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: for shape %s it takes one entry per axis, no stride of 0 and no negative amounts",
                         op->name, mu__shape_text(in, text));
    }
    *out = (mu_shape){.rank = in->rank};
    for (int axis = 0; axis < in->rank; axis++)
        MU_TRY(map_dim(op->variant, attrs, axis, in->dims[axis], &out->dims[axis]));
    return MU_OK;
}

static mu_status map_infer(mu_infer *infer)
{
    infer->out[0].dtype = infer->in[0].dtype;
    return map_shape(infer->op, infer->attrs, &infer->in[0].shape, &infer->out[0].shape);
}

static mu_status map_grad_infer(mu_infer *infer)
{
    mu_shape forward;
    MU_TRY(map_shape(infer->op, infer->attrs, &infer->in[1].shape, &forward));
    if (!mu__shape_compatible(&forward, &infer->in[0].shape)) {
        char dy[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT, "%s: the gradient has shape %s; it must have %s", infer->op->name,
                         mu__shape_text(&infer->in[0].shape, dy), mu__shape_text(&forward, wanted));
    }
    return mu__infer_like(infer);
}

static const mu_op *const forward_rows[] = {&mu_op_strided_slice, &mu_op_pad, &mu_op_tile, &mu_op_repeat};
static const mu_op *const backward_rows[] = {&mu_op_strided_slice_grad, &mu_op_pad_grad, &mu_op_tile_grad,
                                             &mu_op_repeat_grad};

static mu_tensor *map_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply2(backward_rows[g->op->variant], g->attrs, g->dy, g->x[0]);
}

static mu_tensor *map_grad_grad(mu_grad *g, int i)
{
    if (i != 0)
        return NULL;
    if (g->op->variant != PAD)
        return mu__apply1(forward_rows[g->op->variant], g->attrs, g->dy);
    mu_pad_attrs attrs;
    memcpy(&attrs, g->attrs, sizeof attrs);
    attrs.value = 0;
    return mu__apply1(&mu_op_pad, &attrs, g->dy);
}

// ---- Op definitions -----------------------------------------------------------------------------

#define LOWERING(which) ((which) == TILE || (which) == REPEAT ? mu__lower_copies : mu__lower_map)
#define MAP(text, which, struct_name, fields, rule, inputs)                                                     \
    .name = text, .variant = which, .n_in = 1, .n_out = 1, .attrs_bytes = sizeof(struct_name), .attrs = fields, \
    .infer = map_infer, .grad = rule, .ref = map_ref, .cpu = {.run = map_fast}, .samples = inputs,              \
    .lower = LOWERING(which)
#define MAP_GRAD(text, which, struct_name, fields, inputs)                                               \
    .name = text, .variant = which, .n_in = 2, .n_out = 1, .dtypes = MU_FLOATS, .shape_only = 2,         \
    .attrs_bytes = sizeof(struct_name), .attrs = fields, .infer = map_grad_infer, .grad = map_grad_grad, \
    .ref = map_grad_ref, .cpu = {.run = map_grad_fast}, .samples = inputs, .lower = LOWERING(which)

static const mu_attr_spec slice_attrs[] = {
    {"begin", MU_ATTR_INTS, offsetof(mu_slice_attrs, begin)},
    {"end", MU_ATTR_INTS, offsetof(mu_slice_attrs, end)},
    {"strides", MU_ATTR_INTS, offsetof(mu_slice_attrs, strides)},
    {"begin_mask", MU_ATTR_INT, offsetof(mu_slice_attrs, begin_mask)},
    {"end_mask", MU_ATTR_INT, offsetof(mu_slice_attrs, end_mask)},
    {"exact", MU_ATTR_BOOL, offsetof(mu_slice_attrs, exact)},
    {0},
};
static const mu_slice_attrs slice_back = {.begin = {2, {1, -1}}, .end = {2, {3, -6}}, .strides = {2, {1, -2}}};
static const mu_slice_attrs slice_open = {
    .begin = {3, {0}}, .end = {3, {2, 0, 0}}, .strides = {3, {1, 3, 1}}, .begin_mask = 7, .end_mask = 6};
static const mu_slice_attrs slice_exact = {
    .begin = {2, {0, 1}}, .end = {2, {3, 4}}, .strides = {2, {1, 1}}, .exact = true};
static const mu_sample samples_slice[] = {
    {.n_in = 1, .in = {MU_DIMS(4, 6)}, .attrs = &slice_back},
    {.n_in = 1, .in = {MU_DIMS(3, 7, 2)}, .attrs = &slice_open},
    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &slice_exact},
    {.n_in = 1, .in = {MU_DIMS(1, 6)}, .attrs = &slice_back},
    {0},
};
static const mu_sample samples_slice_grad[] = {
    {.n_in = 2, .in = {MU_DIMS(2, 3), MU_DIMS(4, 6)}, .attrs = &slice_back, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(2, 3, 2), MU_DIMS(3, 7, 2)}, .attrs = &slice_open, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(1, 1, 2), MU_DIMS(1, 1, 2)}, .attrs = &slice_open, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(0, 3, 2), MU_DIMS(0, 7, 2)}, .attrs = &slice_open, .no_grad = 2},
    {0},
};
const mu_op mu_op_strided_slice = {MAP("strided_slice", SLICE, mu_slice_attrs, slice_attrs, map_grad, samples_slice),
                                   .view_at = mu__slice_view};
const mu_op mu_op_strided_slice_grad = {
    MAP_GRAD("strided_slice_grad", SLICE, mu_slice_attrs, slice_attrs, samples_slice_grad)};

static const mu_attr_spec pad_attrs[] = {
    {"before", MU_ATTR_INTS, offsetof(mu_pad_attrs, before)},
    {"after", MU_ATTR_INTS, offsetof(mu_pad_attrs, after)},
    {"mode", MU_ATTR_INT, offsetof(mu_pad_attrs, mode)},
    {"value", MU_ATTR_REAL, offsetof(mu_pad_attrs, value)},
    {0},
};
static const mu_pad_attrs pad_constant = {.before = {2, {1, 0}}, .after = {2, {0, 2}}, .value = 3};
static const mu_pad_attrs pad_reflect = {.before = {2, {1, 2}}, .after = {2, {2, 3}}, .mode = MU_PAD_REFLECT};
static const mu_pad_attrs pad_symmetric = {.before = {2, {1, 2}}, .after = {2, {2, 4}}, .mode = MU_PAD_SYMMETRIC};
static const mu_sample samples_pad[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 4)}, .attrs = &pad_constant},
    {.n_in = 1, .in = {MU_DIMS(3, 4)}, .attrs = &pad_reflect},
    {.n_in = 1, .in = {MU_DIMS(3, 4)}, .attrs = &pad_symmetric},
    {.n_in = 1, .in = {MU_DIMS(0, 4)}, .attrs = &pad_constant},
    {0},
};
static const mu_sample samples_pad_grad[] = {
    {.n_in = 2, .in = {MU_DIMS(4, 6), MU_DIMS(3, 4)}, .attrs = &pad_constant, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(6, 9), MU_DIMS(3, 4)}, .attrs = &pad_reflect, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(2, 3), MU_DIMS(1, 1)}, .attrs = &pad_constant, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(1, 6), MU_DIMS(0, 4)}, .attrs = &pad_constant, .no_grad = 2},
    {0},
};
const mu_op mu_op_pad = {MAP("pad", PAD, mu_pad_attrs, pad_attrs, map_grad, samples_pad), .flags = MU_OP_VIEW_IF_SAME};
const mu_op mu_op_pad_grad = {MAP_GRAD("pad_grad", PAD, mu_pad_attrs, pad_attrs, samples_pad_grad)};

static const mu_attr_spec counts_attrs[] = {{"counts", MU_ATTR_INTS, offsetof(mu_counts_attrs, counts)}, {0}};
static const mu_counts_attrs twice_thrice = {{2, {2, 3}}}, once_thrice = {{2, {1, 3}}}, never = {{2, {0, 1}}};
static const mu_sample samples_tile[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 4)}, .attrs = &twice_thrice},
    {.n_in = 1, .in = {MU_DIMS(1, 4)}, .attrs = &once_thrice},
    {.n_in = 1, .in = {MU_DIMS(3, 4)}, .attrs = &never},
    {0},
};
static const mu_sample samples_tile_grad[] = {
    {.n_in = 2, .in = {MU_DIMS(6, 12), MU_DIMS(3, 4)}, .attrs = &twice_thrice, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(2, 3), MU_DIMS(1, 1)}, .attrs = &twice_thrice, .no_grad = 2},
    {.n_in = 2, .in = {MU_DIMS(0, 9), MU_DIMS(0, 3)}, .attrs = &twice_thrice, .no_grad = 2},
    {0},
};
const mu_op mu_op_tile = {MAP("tile", TILE, mu_counts_attrs, counts_attrs, map_grad, samples_tile),
                          .flags = MU_OP_VIEW_IF_SAME};
const mu_op mu_op_tile_grad = {MAP_GRAD("tile_grad", TILE, mu_counts_attrs, counts_attrs, samples_tile_grad)};
const mu_op mu_op_repeat = {MAP("repeat", REPEAT, mu_counts_attrs, counts_attrs, map_grad, samples_tile),
                            .flags = MU_OP_VIEW_IF_SAME};
const mu_op mu_op_repeat_grad = {MAP_GRAD("repeat_grad", REPEAT, mu_counts_attrs, counts_attrs, samples_tile_grad)};

// Both are their own inverse, except for the direction.
static mu_tensor *reverse_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply1(&mu_op_reverse, g->attrs, g->dy);
}

static mu_tensor *roll_grad(mu_grad *g, int i)
{
    mu_counts_attrs attrs;
    (void)i;
    memcpy(&attrs, g->attrs, sizeof attrs);
    for (int64_t axis = 0; axis < attrs.counts.n; axis++)
        attrs.counts.at[axis] = -attrs.counts.at[axis];
    return mu__apply1(&mu_op_roll, &attrs, g->dy);
}

static const mu_counts_attrs last_only = {{2, {0, 1}}}, shifts = {{2, {-1, 7}}};
static const mu_sample samples_reverse[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 4)}, .attrs = &last_only},
    {.n_in = 1, .in = {MU_DIMS(3, 0)}, .attrs = &last_only},
    {0},
};
static const mu_sample samples_roll[] = {
    {.n_in = 1, .in = {MU_DIMS(3, 4)}, .attrs = &shifts},
    {.n_in = 1, .in = {MU_DIMS(0, 4)}, .attrs = &shifts},
    {0},
};
const mu_op mu_op_reverse = {MAP("reverse", REVERSE, mu_counts_attrs, counts_attrs, reverse_grad, samples_reverse)};
const mu_op mu_op_roll = {MAP("roll", ROLL, mu_counts_attrs, counts_attrs, roll_grad, samples_roll)};

// ---- Public functions ---------------------------------------------------------------------------

mu_tensor *mu_pad(mu_tensor *x, const int64_t *before, const int64_t *after, const char *mode, double value)
{
    static const char *const modes[] = {"constant", "reflect", "symmetric"};
    mu_pad_attrs attrs;
    if (mu__need(before, "mu_pad: before") != MU_OK || mu__need(after, "mu_pad: after") != MU_OK)
        return NULL;
    memset(&attrs, 0, sizeof attrs);
    for (attrs.mode = 0; mode && attrs.mode < 3 && strcmp(mode, modes[attrs.mode]) != 0;)
        attrs.mode++;
    if (attrs.mode == 3) {
        if (!mu__pending())
            mu__error(MU_INVALID_ARGUMENT, "pad: mode \"%s\"; it is constant, reflect or symmetric", mode);
        return NULL;
    }
    attrs.value = attrs.mode == MU_PAD_WITH_CONSTANT ? value : 0;
    if (x && !mu__pending() && mu__check_number(x->dtype, attrs.value, "mu_pad") != MU_OK)
        return NULL;
    attrs.before.n = attrs.after.n = x ? x->shape.rank : 0;
    for (int i = 0; i < attrs.before.n; i++) {
        attrs.before.at[i] = before[i];
        attrs.after.at[i] = after[i];
    }
    return mu__apply1(&mu_op_pad, &attrs, x);
}

mu_tensor *mu_tile(mu_tensor *x, const int64_t *multiples)
{
    mu_counts_attrs attrs;
    if (mu__need(multiples, "mu_tile: multiples") != MU_OK)
        return NULL;
    memset(&attrs, 0, sizeof attrs);
    attrs.counts.n = x ? x->shape.rank : 0;
    for (int i = 0; i < attrs.counts.n; i++)
        attrs.counts.at[i] = multiples[i];
    return mu__apply1(&mu_op_tile, &attrs, x);
}

// Applies an op along one axis of x; all other axes get `nothing`, the count that leaves them unchanged.
static mu_tensor *along_axis(const mu_op *op, mu_tensor *x, int axis, int64_t count, int64_t nothing)
{
    mu_counts_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.counts.n = x ? x->shape.rank : 0;
    int at = !x || mu__pending() ? 0 : mu__axis(axis, x->shape.rank, op->name);
    for (int i = 0; i < attrs.counts.n; i++)
        attrs.counts.at[i] = i == at ? count : nothing;
    return mu__apply1(op, &attrs, x);
}

mu_tensor *mu_repeat(mu_tensor *x, int64_t times, int axis) { return along_axis(&mu_op_repeat, x, axis, times, 1); }

mu_tensor *mu_reverse(mu_tensor *x, int axis) { return along_axis(&mu_op_reverse, x, axis, 1, 0); }

mu_tensor *mu_roll(mu_tensor *x, int64_t shift, int axis) { return along_axis(&mu_op_roll, x, axis, shift, 0); }
