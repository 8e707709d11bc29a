// Slices: ranges of each axis, slices that can share the operand's memory, and the public functions. index_map.c has
// the op definition and the kernel that copies.
#include "ops/core/attrs.h"
#include "ops/array/index_map.h"

#include <muster/ops.h>

mu_status mu__slice_range(const mu_slice_attrs *attrs, int axis, int64_t n, mu_slice_range *range)
{
    int64_t stride = attrs->strides.at[axis], begin = attrs->begin.at[axis], end = attrs->end.at[axis];
    bool open_begin = attrs->begin_mask >> axis & 1, open_end = attrs->end_mask >> axis & 1;
    if (attrs->exact && open_end && (begin < 0 || begin > n))
        return mu__error(MU_INVALID_ARGUMENT, "slice: from %lld on, the rest of axis %d, which has %lld",
                         (long long)begin, axis, (long long)n);
    if (attrs->exact && !open_end && (begin < 0 || begin > n || end < begin || end > n))
        return mu__error(MU_INVALID_ARGUMENT, "slice: from %lld on, %lld elements of axis %d, which has %lld",
                         (long long)begin, (long long)((uint64_t)end - (uint64_t)begin), axis, (long long)n);
    int64_t low = stride > 0 ? 0 : -1, high = stride > 0 ? n : n - 1;
    begin = open_begin ? (stride > 0 ? 0 : n - 1) : MU_MIN(MU_MAX(begin < 0 ? begin + n : begin, low), high);
    end = open_end ? (stride > 0 ? n : -1) : MU_MIN(MU_MAX(end < 0 ? end + n : end, low), high);
    int64_t span = stride > 0 ? end - begin : begin - end, step = stride > 0 ? stride : -MU_MAX(stride, -INT64_MAX);
    *range = (mu_slice_range){.start = begin, .count = span > 0 ? (span - 1) / step + 1 : 0, .stride = stride};
    return MU_OK;
}

int64_t mu__slice_unknown(const mu_slice_attrs *attrs, int axis)
{
    bool open_end = attrs->end_mask >> axis & 1;
    return attrs->exact && !open_end ? (int64_t)((uint64_t)attrs->end.at[axis] - (uint64_t)attrs->begin.at[axis])
                                     : MU_UNKNOWN;
}

// A slice is a view if it takes one element of each leading axis, a range of the next axis, and all of the rest.
bool mu__slice_view(const void *attrs, const mu_spec *in, const mu_spec *out, size_t *offset)
{
    const mu_shape *x = &in->shape;
    size_t step = mu_dtype_bytes(in->dtype), from = 0;
    bool whole = true;
    if (mu__spec_bytes(out) == 0)
        return false;
    for (int axis = x->rank - 1; axis >= 0; axis--) {
        mu_slice_range range = {0};
        if (mu__slice_range(attrs, axis, x->dims[axis], &range) != MU_OK)
            return false; // the shape rule has reported it
        if (range.count > 1 && (!whole || range.stride != 1))
            return false;
        whole = whole && range.count == x->dims[axis];
        from += (size_t)range.start * step;
        step *= (size_t)x->dims[axis];
    }
    *offset = from;
    return true;
}

mu_tensor *mu_slice(mu_tensor *x, const int64_t *begin, const int64_t *size)
{
    mu_slice_attrs attrs;
    if (mu__need(begin, "mu_slice: begin") != MU_OK || mu__need(size, "mu_slice: size") != MU_OK)
        return NULL;
    memset(&attrs, 0, sizeof attrs);
    attrs.exact = true;
    attrs.begin.n = attrs.end.n = attrs.strides.n = x ? x->shape.rank : 0;
    for (int i = 0; i < attrs.begin.n; i++) {
        if (size[i] < -1 && !mu__pending())
            mu__error(MU_INVALID_ARGUMENT, "mu_slice: size %lld of axis %d; it must be at least 0, or -1 for the rest",
                      (long long)size[i], i);
        attrs.begin.at[i] = begin[i];
        attrs.end.at[i] = size[i] < 0 ? 0 : (int64_t)((uint64_t)begin[i] + (uint64_t)size[i]);
        attrs.end_mask |= size[i] < 0 ? 1 << i : 0;
        attrs.strides.at[i] = 1;
    }
    return mu__apply1(&mu_op_strided_slice, &attrs, x);
}

mu_tensor *mu_strided_slice(mu_tensor *x, const int64_t *begin, const int64_t *end, const int64_t *strides,
                            unsigned begin_mask, unsigned end_mask, unsigned shrink_mask)
{
    mu_slice_attrs attrs;
    if (mu__need(begin, "mu_strided_slice: begin") != MU_OK || mu__need(end, "mu_strided_slice: end") != MU_OK)
        return NULL;
    memset(&attrs, 0, sizeof attrs);
    int rank = x ? x->shape.rank : 0;
    attrs.begin.n = attrs.end.n = attrs.strides.n = rank;
    attrs.begin_mask = begin_mask & ~shrink_mask;
    attrs.end_mask = end_mask & ~shrink_mask;
    for (int i = 0; i < rank && !mu__pending(); i++) {
        bool shrinks = shrink_mask >> i & 1;
        int64_t n = x->shape.dims[i];
        if (shrinks && strides && strides[i] <= 0) {
            mu__error(MU_INVALID_ARGUMENT,
                      "strided_slice: stride %lld of axis %d, of which one element is taken; it must be at least 1",
                      (long long)strides[i], i);
            return NULL;
        }
        attrs.begin.at[i] = attrs.begin_mask >> i & 1 ? 0 : begin[i];
        attrs.strides.at[i] = shrinks ? 1 : strides ? strides[i] : 1;
        attrs.end.at[i] = shrinks ? MU_MIN(begin[i], INT64_MAX - 1) + 1 : attrs.end_mask >> i & 1 ? 0 : end[i];
        if (shrinks && begin[i] == -1)
            attrs.end_mask |= 1 << i;
        if (shrinks && n != MU_UNKNOWN && (begin[i] < -n || begin[i] >= n)) {
            mu__error(MU_INVALID_ARGUMENT, "strided_slice: element %lld of axis %d, which has %lld",
                      (long long)begin[i], i, (long long)n);
            return NULL;
        }
    }
    mu_tensor *y = mu__apply1(&mu_op_strided_slice, &attrs, x);
    for (int i = rank - 1; i >= 0; i--)
        if (shrink_mask >> i & 1)
            y = mu_squeeze(y, i);
    return y;
}
