// Stacks items into one batch along a new axis 0.
//
// Every item is written directly to its position: rows of a source are gathered in runs, values are copied. Buffers are
// reused when they have no other users. This file does not depend on stages.
#include "data/dataset.h"

// ---- Buffers used again -------------------------------------------------------------------------

void mu__buffer_cache_free(mu_buffer_cache *buffer_cache)
{
    for (int i = 0; i < MU_CACHED_BUFFERS; i++)
        mu_release(buffer_cache->buffers[i]);
    *buffer_cache = (mu_buffer_cache){0};
}

static bool unused(const mu_buffer *buffer)
{
    return atomic_load_explicit(&buffer->object.references, memory_order_acquire) == 1;
}

// Returns a buffer of these bytes without other holders; the caller owns the reference.
static mu_buffer *cached_buffer(mu_buffer_cache *buffer_cache, size_t bytes)
{
    int free_slot = -1;
    for (int i = 0; i < MU_CACHED_BUFFERS; i++) {
        mu_buffer *buffer = buffer_cache->buffers[i];
        if (buffer != NULL && buffer->bytes == bytes && unused(buffer))
            return mu_retain(buffer);
        if (buffer == NULL || unused(buffer))
            free_slot = i;
    }
    mu_buffer *fresh = mu__buffer_new(bytes);
    if (fresh != NULL && free_slot >= 0) {
        mu_release(buffer_cache->buffers[free_slot]);
        buffer_cache->buffers[free_slot] = mu_retain(fresh);
    }
    return fresh;
}

static mu_tensor *stack_tensor(const mu_spec *spec, mu_buffer_cache *buffer_cache)
{
    if (mu__shape_check(&spec->shape, "a stack of elements") != MU_OK)
        return NULL;
    mu_buffer *buffer = cached_buffer(buffer_cache, mu__spec_bytes(spec));
    mu_tensor *tensor = buffer != NULL ? mu__tensor_view(buffer, 0, spec->dtype, &spec->shape) : NULL;
    mu_release(buffer);
    return tensor;
}

// ---- Stacks -------------------------------------------------------------------------------------

typedef struct stack {
    mu_item *items;
    int64_t n;
    const mu_padding *pad; // NULL: shapes must agree
    const char *what;
    const mu_value *like; // structure of item 0
    int n_leaves;
    mu_spec *specs; // of one element
    mu_leaves out;
    void **destination; // scratch, n_leaves
    int64_t *index;     // scratch, n
} stack;

static mu_status first_specs(stack *s)
{
    const mu_item *first = &s->items[0];
    s->like = first->value != NULL ? first->value : first->rows->spec;
    mu_leaves leaves;
    MU_TRY(mu__leaves_of(s->like, &leaves));
    s->n_leaves = leaves.n;
    s->specs = mu__calloc((size_t)leaves.n, sizeof *s->specs);
    s->out.items = mu__calloc((size_t)leaves.n, sizeof *s->out.items);
    s->destination = mu__calloc((size_t)leaves.n, sizeof *s->destination);
    s->index = mu__calloc((size_t)s->n, sizeof *s->index);
    mu_status status = s->specs != NULL && s->out.items != NULL && s->destination != NULL && s->index != NULL
                           ? MU_OK
                           : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < leaves.n; i++)
        s->specs[i] = mu__spec_of(mu__leaf(&leaves, i));
    mu__leaves_free(&leaves);
    return status;
}

// Compares another item with the first; with padding, keeps the largest sizes.
static mu_status fit_leaf(stack *s, int64_t item, int leaf, const mu_spec *spec)
{
    mu_spec *first = &s->specs[leaf];
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    bool same = spec->dtype == first->dtype &&
                (s->pad ? spec->shape.rank == first->shape.rank : mu__shape_equal(&spec->shape, &first->shape));
    if (!same)
        return mu__error(MU_INVALID_ARGUMENT, "%s: component %d of element %lld is %s %s and the first is %s %s; %s",
                         s->what, leaf, (long long)item, mu_dtype_name(spec->dtype), mu__shape_text(&spec->shape, seen),
                         mu_dtype_name(first->dtype), mu__shape_text(&first->shape, wanted),
                         s->pad ? "types and ranks must agree" : "make them equal, or use mu_dataset_padded_batch");
    for (int axis = 0; axis < spec->shape.rank; axis++)
        first->shape.dims[axis] = MU_MAX(first->shape.dims[axis], spec->shape.dims[axis]);
    return MU_OK;
}

// Applies the shapes that the user wants of padded elements.
static mu_status fit_padded_shape(stack *s, int leaf)
{
    const mu_shape *wanted = &s->pad->shapes[leaf];
    mu_shape *shape = &s->specs[leaf].shape;
    char seen[MU_SHAPE_TEXT], text[MU_SHAPE_TEXT];
    bool fits = wanted->rank == shape->rank;
    for (int axis = 0; fits && axis < shape->rank; axis++)
        fits = wanted->dims[axis] == MU_UNKNOWN || wanted->dims[axis] >= shape->dims[axis];
    if (!fits)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: component %d has elements of shape up to %s, which do not fit in padded_shapes[%d], %s; "
                         "give a larger shape, or ? (MU_UNKNOWN) for the longest of each batch",
                         s->what, leaf, mu__shape_text(shape, seen), leaf, mu__shape_text(wanted, text));
    for (int axis = 0; axis < shape->rank; axis++)
        shape->dims[axis] = MU_MAX(shape->dims[axis], wanted->dims[axis]);
    return MU_OK;
}

static mu_status fit_padding(stack *s)
{
    const mu_padding *pad = s->pad;
    if (pad == NULL)
        return MU_OK;
    if ((pad->n_shapes != 0 && pad->n_shapes != s->n_leaves) || (pad->n_values > 1 && pad->n_values != s->n_leaves))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: elements have %d components, and there are %d padded_shapes and %d padding_values; give "
                         "one for each component",
                         s->what, s->n_leaves, pad->n_shapes, pad->n_values);
    for (int leaf = 0; leaf < s->n_leaves; leaf++) {
        const mu_tensor *value = mu__padding_value(pad, leaf);
        if (pad->n_shapes != 0)
            MU_TRY(fit_padded_shape(s, leaf));
        if (value != NULL && value->dtype != s->specs[leaf].dtype)
            return mu__error(MU_INVALID_ARGUMENT, "%s: component %d is %s and its padding value %s; make them equal",
                             s->what, leaf, mu_dtype_name(s->specs[leaf].dtype), mu_dtype_name(value->dtype));
    }
    return MU_OK;
}

static mu_status fit_items(stack *s)
{
    for (int64_t i = 1; i < s->n; i++) {
        const mu_item *item = &s->items[i];
        if (item->value == NULL && s->items[0].value == NULL && item->rows == s->items[0].rows)
            continue;
        const mu_value *structure = item->value != NULL ? item->value : item->rows->spec;
        if (!mu__value_same_structure(structure, s->like))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "%s: element %lld is nested in another way than the first; elements of one dataset must look alike",
                s->what, (long long)i);
        mu_leaves leaves;
        MU_TRY(mu__leaves_of(structure, &leaves));
        mu_status status = MU_OK;
        for (int leaf = 0; status == MU_OK && leaf < leaves.n; leaf++) {
            mu_spec spec = mu__spec_of(mu__leaf(&leaves, leaf));
            status = fit_leaf(s, i, leaf, &spec);
        }
        mu__leaves_free(&leaves);
        MU_TRY(status);
    }
    return MU_OK;
}

// ---- Strings ------------------------------------------------------------------------------------

// Adds the block of `whole` that begins at axis `axis`: the elements of a string tensor from `at` on, and the padding
// around them (`at` < 0: nothing else).
static mu_status add_block(mu_strings *strings, const mu_tensor *from, const mu_shape *whole, int axis, int64_t at,
                           mu_string padding)
{
    if (axis == whole->rank)
        return at >= 0 ? mu__strings_copy(strings, from, at, at + 1)
                       : mu__strings_add(strings, padding.bytes, padding.n);
    const int64_t n = from->shape.dims[axis];
    for (int64_t i = 0; i < whole->dims[axis]; i++)
        MU_TRY(add_block(strings, from, whole, axis + 1, at < 0 || i >= n ? -1 : at * n + i, padding));
    return MU_OK;
}

static mu_status add_item_strings(stack *s, int64_t item, int leaf, mu_strings *strings)
{
    mu_leaves leaves;
    const mu_tensor *value = s->pad != NULL ? mu__padding_value(s->pad, leaf) : NULL;
    const mu_string padding = value != NULL ? mu__string_at(value, 0) : (mu_string){"", 0};
    if (mu__item_value(&s->items[item]) == NULL)
        return mu_error_code();
    MU_TRY(mu__leaves_of(s->items[item].value, &leaves));
    const mu_tensor *from = mu__leaf(&leaves, leaf);
    const mu_status status = mu__shape_equal(&from->shape, &s->specs[leaf].shape)
                                 ? mu__strings_copy(strings, from, 0, mu__elements(&from->shape))
                                 : add_block(strings, from, &s->specs[leaf].shape, 0, 0, padding);
    mu__leaves_free(&leaves);
    return status;
}

static mu_tensor *stack_strings(stack *s, int leaf, const mu_shape *whole)
{
    mu_strings strings = {0};
    mu_status status = mu__shape_check(whole, "a stack of strings");
    for (int64_t i = 0; i < s->n && status == MU_OK; i++)
        status = add_item_strings(s, i, leaf, &strings);
    if (status == MU_OK)
        return mu__strings_end(&strings, whole);
    mu__strings_free(&strings);
    return NULL;
}

// ---- Numbers ------------------------------------------------------------------------------------

// Copies a block into the corner of a larger one of the same rank.
static void copy_corner(const mu_shape *from, const char *in, const mu_shape *to, char *out, size_t element, int axis)
{
    if (axis == from->rank) {
        memcpy(out, in, element);
        return;
    }
    size_t in_step = element, out_step = element;
    for (int i = axis + 1; i < from->rank; i++) {
        in_step *= (size_t)from->dims[i];
        out_step *= (size_t)to->dims[i];
    }
    if (axis == from->rank - 1) {
        memcpy(out, in, (size_t)from->dims[axis] * element);
        return;
    }
    for (int64_t i = 0; i < from->dims[axis]; i++)
        copy_corner(from, in + (size_t)i * in_step, to, out + (size_t)i * out_step, element, axis + 1);
}

static void fill_padding(const stack *s, int leaf, void *to, size_t bytes)
{
    const mu_tensor *value = s->pad != NULL ? mu__padding_value(s->pad, leaf) : NULL;
    const size_t element = mu_dtype_bytes(s->specs[leaf].dtype);
    memset(to, 0, bytes);
    for (size_t at = 0; value != NULL && at < bytes; at += element)
        memcpy((char *)to + at, mu__host_read(value), element);
}

static mu_status write_value(stack *s, int64_t i)
{
    mu_leaves leaves;
    MU_TRY(mu__leaves_of(s->items[i].value, &leaves));
    mu_status status = MU_OK;
    for (int leaf = 0; status == MU_OK && leaf < s->n_leaves; leaf++) {
        const mu_tensor *tensor = mu__leaf(&leaves, leaf);
        if (mu__has_strings(tensor))
            continue;
        const void *from = mu__host_read(tensor);
        size_t bytes = mu__spec_bytes(&s->specs[leaf]);
        char *to = (char *)mu__host_write(mu__leaf(&s->out, leaf)) + (size_t)i * bytes;
        if (from == NULL) {
            status = mu_error_code();
        } else if (mu__shape_equal(&tensor->shape, &s->specs[leaf].shape)) {
            memcpy(to, from, bytes);
        } else {
            fill_padding(s, leaf, to, bytes);
            copy_corner(&tensor->shape, from, &s->specs[leaf].shape, to, mu_dtype_bytes(tensor->dtype), 0);
        }
    }
    mu__leaves_free(&leaves);
    return status;
}

// Consecutive rows of one source are gathered together.
static mu_status write_rows(stack *s, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        s->index[i] = s->items[i].row;
    for (int leaf = 0; leaf < s->n_leaves; leaf++)
        s->destination[leaf] =
            (char *)mu__host_write(mu__leaf(&s->out, leaf)) + (size_t)begin * mu__spec_bytes(&s->specs[leaf]);
    return mu__rows_gather(s->items[begin].rows, s->index + begin, end - begin, s->destination);
}

static bool row_fits(const stack *s, const mu_rows *rows)
{
    for (int leaf = 0; leaf < s->n_leaves; leaf++)
        if (!mu__shape_equal(&rows->columns[leaf].spec.shape, &s->specs[leaf].shape))
            return false;
    return true;
}

static mu_status write_items(stack *s)
{
    for (int64_t i = 0, end; i < s->n; i = end) {
        end = i + 1;
        mu_item *item = &s->items[i];
        if (item->value == NULL && row_fits(s, item->rows)) {
            while (end < s->n && s->items[end].value == NULL && s->items[end].rows == item->rows)
                end++;
            MU_TRY(write_rows(s, i, end));
            continue;
        }
        if (mu__item_value(item) == NULL)
            return mu_error_code();
        MU_TRY(write_value(s, i));
    }
    return MU_OK;
}

static mu_status stack_outputs(stack *s, mu_buffer_cache *buffer_cache)
{
    for (int leaf = 0; leaf < s->n_leaves; leaf++) {
        mu_spec whole = s->specs[leaf];
        MU_TRY(mu__add_axis(&whole, s->n));
        mu_tensor *tensor =
            whole.dtype == MU_STRING ? stack_strings(s, leaf, &whole.shape) : stack_tensor(&whole, buffer_cache);
        if (tensor == NULL)
            return mu_error_code();
        s->out.items[s->out.n++] = &tensor->object;
    }
    return MU_OK;
}

mu_value *mu__stack(mu_item *items, int64_t n, const mu_padding *pad, mu_buffer_cache *buffer_cache, const char *what)
{
    stack s = {.items = items, .n = n, .pad = pad, .what = what};
    mu_value *value = NULL;
    mu_status status = MU_OK;
    MU_GO(first_specs(&s));
    MU_GO(fit_items(&s));
    MU_GO(fit_padding(&s));
    MU_GO(stack_outputs(&s, buffer_cache));
    MU_GO(write_items(&s));
    value = mu__value_pack(s.like, s.out.items, s.n_leaves);
out:
    for (int i = 0; i < s.out.n; i++)
        mu_release(s.out.items[i]);
    mu__free(s.specs);
    mu__leaves_free(&s.out);
    mu__free(s.destination);
    mu__free(s.index);
    return value;
}
