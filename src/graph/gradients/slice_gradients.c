// Joins the gradients of slices of one tensor.
//
// Padding each slice's gradient to x's size and adding n of them would take n times the work of x's size. So the blocks
// are sorted along the first axis that they divide, and concatenated with zeros in the gaps; blocks divided along
// further axes are joined recursively. Overlapping blocks go into several layers, which are added.
#include "graph/gradients/parts.h"

#include "ops/array/index_map.h"

#include <muster/ops.h>
#include <stdlib.h>

// The part of x being joined.
typedef struct region {
    mu_tensor *x;
    int64_t begin[MU_MAX_RANK], size[MU_MAX_RANK];
} region;

typedef const mu_part *part_list; // sorted and cut up as pointers

static mu_tensor *join(const region *whole, part_list *parts, size_t n);

bool mu__slice_part(const mu_op *op, const void *attrs, const mu_tensor *x, mu_tensor *dy, mu_part *out)
{
    const mu_slice_attrs *slice = attrs;
    if (op != &mu_op_strided_slice || x->shape.rank == 0)
        return false;
    *out = (mu_part){.dy = dy, .op = op, .attrs = attrs};
    for (int axis = 0; axis < x->shape.rank; axis++) {
        const int64_t dim = x->shape.dims[axis];
        const bool from_start = slice->begin_mask >> axis & 1 || slice->begin.at[axis] == 0;
        mu_slice_range range = {.count = MU_UNKNOWN};
        if (slice->strides.at[axis] != 1)
            return false;
        if (dim == MU_UNKNOWN ? !from_start || !(slice->end_mask >> axis & 1)
                              : mu__slice_range(slice, axis, dim, &range) != MU_OK)
            return false;
        out->begin[axis] = range.start;
        out->size[axis] = range.count;
    }
    return true;
}

// ---- Zeros --------------------------------------------------------------------------------------

// Zeros of the region's shape except along one axis; in a trace that does not know the shape, zeros like a slice.
static mu_tensor *zeros(const region *whole, int axis, int64_t begin, int64_t size)
{
    mu_shape shape = {.rank = whole->x->shape.rank};
    int64_t from[MU_MAX_RANK];
    for (int i = 0; i < shape.rank; i++) {
        from[i] = i == axis ? begin : whole->begin[i];
        shape.dims[i] = i == axis ? size : whole->size[i]; // MU_UNKNOWN is -1: the rest
    }
    if (mu__shape_known(&shape))
        return mu_broadcast_to(mu_constant(whole->x->dtype, 0), shape.rank, shape.dims);
    return mu_zeros_like(mu_slice(whole->x, from, shape.dims));
}

// ---- One layer ----------------------------------------------------------------------------------

// The first axis along which some part is smaller than the region; -1: all fill it.
static int cut_axis(const region *whole, part_list *parts, size_t n)
{
    for (int axis = 0; axis < whole->x->shape.rank; axis++)
        for (size_t i = 0; i < n; i++)
            if (parts[i]->size[axis] != whole->size[axis])
                return axis;
    return -1;
}

static bool same_range(const mu_part *a, const mu_part *b, int axis)
{
    return a->begin[axis] == b->begin[axis] && a->size[axis] == b->size[axis];
}

static size_t count_range(part_list *parts, size_t n, int axis)
{
    size_t k = 1;
    while (k < n && same_range(parts[k], parts[0], axis))
        k++;
    return k;
}

// Concatenates parts that are sorted along the axis and do not overlap, except for equal ranges.
static mu_tensor *join_layer(const region *whole, part_list *parts, size_t n, int axis)
{
    mu_tensor **pieces = mu__alloc((2 * n + 1) * sizeof *pieces), *result = NULL;
    int64_t at = whole->begin[axis];
    const int64_t end = at + whole->size[axis];
    int n_pieces = 0;
    bool fine = pieces != NULL;
    for (size_t i = 0; fine && i < n;) {
        const size_t k = count_range(parts + i, n - i, axis);
        region inner = *whole;
        inner.begin[axis] = parts[i]->begin[axis];
        inner.size[axis] = parts[i]->size[axis];
        if (inner.begin[axis] > at)
            fine = (pieces[n_pieces++] = zeros(whole, axis, at, inner.begin[axis] - at)) != NULL;
        fine = fine && (pieces[n_pieces++] = join(&inner, parts + i, k)) != NULL;
        at = inner.begin[axis] + inner.size[axis];
        i += k;
    }
    if (fine && at < end)
        fine = (pieces[n_pieces++] = zeros(whole, axis, at, end - at)) != NULL;
    if (fine)
        result = n_pieces == 1 ? pieces[0] : mu_concat(n_pieces, pieces, axis);
    mu__free(pieces);
    return result;
}

// ---- All layers ---------------------------------------------------------------------------------

static int sorted_axis_order(const mu_part *a, const mu_part *b, int axis)
{
    if (a->begin[axis] != b->begin[axis])
        return a->begin[axis] < b->begin[axis] ? -1 : 1;
    if (a->size[axis] != b->size[axis])
        return a->size[axis] < b->size[axis] ? -1 : 1;
    return a < b ? -1 : a > b; // in the order of arrival, so that sums have one order
}

// Merges two sorted halves; `space` has room for all.
static void sort(part_list *parts, size_t n, int axis, part_list *space)
{
    const size_t half = n / 2;
    if (n < 2)
        return;
    sort(parts, half, axis, space);
    sort(parts + half, n - half, axis, space);
    for (size_t i = 0, a = 0, b = half; i < n; i++)
        space[i] = b == n || (a < half && sorted_axis_order(parts[a], parts[b], axis) < 0) ? parts[a++] : parts[b++];
    memcpy(parts, space, n * sizeof *parts);
}

// Moves the first parts that do not overlap to `layer`, and the others to the front; returns the number moved.
static size_t take_layer(part_list *rest, size_t *n, int axis, part_list *layer)
{
    size_t taken = 0, left = 0;
    for (size_t i = 0; i < *n; i++) {
        const mu_part *last = taken > 0 ? layer[taken - 1] : NULL;
        if (!last || same_range(rest[i], last, axis) || rest[i]->begin[axis] >= last->begin[axis] + last->size[axis])
            layer[taken++] = rest[i];
        else
            rest[left++] = rest[i];
    }
    *n = left;
    return taken;
}

static mu_tensor *sum_of_all(part_list *parts, size_t n)
{
    mu_tensor *sum = parts[0]->dy;
    for (size_t i = 1; i < n && sum; i++)
        sum = mu_add(sum, parts[i]->dy);
    return sum;
}

static mu_tensor *join(const region *whole, part_list *parts, size_t n)
{
    const int axis = cut_axis(whole, parts, n);
    if (axis < 0)
        return sum_of_all(parts, n);
    part_list *space = mu__alloc(2 * n * sizeof *space), *rest = MU_BEHIND(space, n);
    mu_tensor *sum = NULL;
    bool fine = space != NULL;
    if (!fine)
        return NULL;
    memcpy(rest, parts, n * sizeof *rest);
    sort(rest, n, axis, space);
    for (size_t left = n; fine && left > 0;) {
        const size_t taken = take_layer(rest, &left, axis, space);
        mu_tensor *layer = join_layer(whole, space, taken, axis);
        sum = sum && layer ? mu_add(sum, layer) : layer;
        fine = sum != NULL;
    }
    mu__free(space);
    return sum;
}

mu_tensor *mu__join_parts(const mu_parts *parts, mu_tensor *x)
{
    if (parts->n == 1)
        return mu__apply2(&mu_op_strided_slice_grad, parts->items[0].attrs, parts->items[0].dy, x);
    part_list *list = mu__alloc(parts->n * sizeof *list);
    if (!list)
        return NULL;
    region whole = {.x = x};
    for (int axis = 0; axis < x->shape.rank; axis++)
        whole.size[axis] = x->shape.dims[axis];
    for (size_t i = 0; i < parts->n; i++)
        list[i] = &parts->items[i];
    mu_tensor *joined = join(&whole, list, parts->n);
    mu__free(list);
    return joined;
}
