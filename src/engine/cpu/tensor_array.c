// Stacks of rows whose number is found while a loop runs: one for each value that the loop's body yields in every
// iteration.
//
// All rows have one shape, except for axes that count the iterations of inner loops: these have the length of the
// longest row, and shorter rows are padded with zeros. The reader of such a row, the gradient of the inner loop,
// makes as many iterations as the row has entries, so it never reads the padding.
#include "engine/cpu/control_run.h"

int mu__tensor_array_axes(mu_edge edge)
{
    const mu_node *node = edge.node;
    const int k = edge.output - 1;
    if (node->op == &mu_op_call)
        return mu__tensor_array_axes(((const mu_call_attrs *)node->attrs)->body->outputs.items[edge.output]);
    if (node->op == &mu_op_while_loop) {
        const mu_loop_attrs *loop = node->attrs;
        return k < loop->n_carried ? 0 : 1 + mu__tensor_array_axes(loop->body->outputs.items[k]);
    }
    if (node->op != &mu_op_cond)
        return 0;
    const mu_cond_attrs *cond = node->attrs;
    const int shared = (int)cond->n_shared, then = (int)cond->then->outputs.n;
    if (edge.output >= then)
        return mu__tensor_array_axes(cond->otherwise->outputs.items[edge.output - then + shared]);
    const int axes = mu__tensor_array_axes(cond->then->outputs.items[edge.output]);
    return edge.output >= shared ? axes
                                 : MU_MIN(axes, mu__tensor_array_axes(cond->otherwise->outputs.items[edge.output]));
}

// Copies a row into the corner of a larger one, axis by axis.
static void copy_corner(const tensor_array *s, char *to, const mu_shape *outer, const char *from, const mu_shape *inner,
                        int axis)
{
    const size_t element = mu_dtype_bytes(s->row.dtype);
    if (axis == s->loose) {
        const size_t bytes = (size_t)mu__elements_between(inner, axis, inner->rank) * element;
        if (bytes)
            memcpy(to, from, bytes);
        return;
    }
    const size_t step_to = (size_t)mu__elements_between(outer, axis + 1, outer->rank) * element;
    const size_t step_from = (size_t)mu__elements_between(inner, axis + 1, inner->rank) * element;
    for (int64_t i = 0; i < inner->dims[axis]; i++)
        copy_corner(s, to + (size_t)i * step_to, outer, from + (size_t)i * step_from, inner, axis + 1);
}

static void put_row(const tensor_array *s, char *data, int64_t index, const char *from, const mu_shape *shape)
{
    char *to = data + (size_t)index * s->row_bytes;
    if (!mu__shape_equal(&s->row.shape, shape))
        memset(to, 0, s->row_bytes);
    copy_corner(s, to, &s->row.shape, from, shape, 0);
}

// The shape that holds both; returns false if an axis differs that must not.
static bool join(const tensor_array *s, const mu_shape *row, mu_shape *out)
{
    *out = s->row.shape;
    for (int k = 0; k < row->rank; k++) {
        if (k >= s->loose && out->dims[k] != row->dims[k])
            return false;
        out->dims[k] = MU_MAX(out->dims[k], row->dims[k]);
    }
    return true;
}

// Makes room for longer rows; existing rows are moved.
static mu_status widen(tensor_array *s, const mu_shape *wider)
{
    const mu_spec before = s->row;
    const size_t bytes = s->row_bytes;
    if (mu__shape_equal(&before.shape, wider))
        return MU_OK;
    s->row.shape = *wider;
    s->row_bytes = mu__spec_bytes(&s->row);
    char *data = mu__calloc((size_t)s->capacity + 1, MU_MAX(s->row_bytes, (size_t)1));
    if (!data)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < s->capacity; i++)
        if (s->filled_from <= i && i < s->rows)
            put_row(s, data, i, s->data + (size_t)i * bytes, &before.shape);
    mu__free(s->data);
    s->data = data;
    return MU_OK;
}

static mu_status make_room(tensor_array *s, int64_t index, int64_t rows)
{
    if (index < s->capacity)
        return MU_OK;
    const int64_t capacity = rows >= 0 ? rows : MU_MAX(8, 2 * (index + 1));
    char *data = mu__realloc(s->data, (size_t)capacity * s->row_bytes + 1);
    if (!data)
        return MU_RESOURCE_EXHAUSTED;
    s->data = data;
    s->capacity = capacity;
    return MU_OK;
}

mu_status mu__tensor_array_write(tensor_array *s, int64_t index, mu_tensor *row, int64_t rows, const mu_graph *graph)
{
    char seen[MU_SHAPE_TEXT], first[MU_SHAPE_TEXT];
    mu_shape wider;
    if (!s->data) {
        s->row = mu__spec_of(row);
        s->row_bytes = mu__spec_bytes(&s->row);
        s->filled_from = index;
    } else if (!join(s, &row->shape, &wider)) {
        return mu__error(MU_UNIMPLEMENTED,
                         "a loop of '%s' gives rows of shapes %s and %s, which cannot be stacked; the gradient of a "
                         "loop needs values of constant shapes",
                         graph->name, mu__shape_text(&s->row.shape, first), mu__shape_text(&row->shape, seen));
    } else {
        MU_TRY(widen(s, &wider));
    }
    MU_TRY(make_room(s, index, rows));
    put_row(s, s->data, index, mu__host_read(row), &row->shape);
    s->filled_from = MU_MIN(s->filled_from, index);
    s->rows = MU_MAX(s->rows, index + 1);
    return MU_OK;
}
