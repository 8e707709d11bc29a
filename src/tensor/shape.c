// Shapes: counting, comparing, broadcasting, checking, and their text for messages.
//
// A dimension may be MU_UNKNOWN in a trace; every function here states how it treats unknown dimensions.
#include "tensor/tensor.h"

#include <limits.h>

const mu_shape mu__scalar_shape = {.rank = 0};

// The value that mu_shape_make gives to missing dimensions.
enum { NO_DIMS = INT_MIN };

mu_shape mu_shape_make(int rank, const int64_t *dims)
{
    mu_shape shape = {.rank = rank > 0 && !dims ? NO_DIMS : rank};
    if (shape.rank > 0 && shape.rank <= MU_MAX_RANK)
        memcpy(shape.dims, dims, (size_t)rank * sizeof dims[0]);
    return shape; // an invalid rank is rejected where the shape is used
}

int64_t mu__elements(const mu_shape *shape)
{
    int64_t n = 1;
    bool unknown = false;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] == MU_UNKNOWN)
            unknown = true;
        else
            n *= shape->dims[i];
    }
    return unknown && n != 0 ? MU_UNKNOWN : n;
}

int64_t mu__elements_between(const mu_shape *shape, int begin, int end)
{
    int64_t n = 1;
    for (int i = begin; i < end; i++)
        n *= shape->dims[i];
    return n;
}

mu_shape mu__batch_axes(const mu_shape *shape)
{
    mu_shape out = *shape;
    out.rank -= 2;
    return out;
}

size_t mu__spec_bytes(const mu_spec *spec) { return (size_t)mu__elements(&spec->shape) * mu_dtype_bytes(spec->dtype); }

bool mu__shape_known(const mu_shape *shape)
{
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] == MU_UNKNOWN)
            return false;
    return true;
}

bool mu__shape_equal(const mu_shape *a, const mu_shape *b)
{
    return a->rank == b->rank && memcmp(a->dims, b->dims, (size_t)a->rank * sizeof a->dims[0]) == 0;
}

bool mu__shape_compatible(const mu_shape *a, const mu_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i] && a->dims[i] != MU_UNKNOWN && b->dims[i] != MU_UNKNOWN)
            return false;
    return true;
}

mu_status mu__shape_check(const mu_shape *shape, const char *what)
{
    if (shape->rank == NO_DIMS)
        return mu__error(MU_INVALID_ARGUMENT, "%s: dims is NULL; give the size of each axis", what);
    if (shape->rank < 0 || shape->rank > MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "%s: rank %d is outside 0 to %d", what, shape->rank, MU_MAX_RANK);
    int64_t n = 16; // no element is larger, so the byte count cannot overflow either
    for (int i = 0; i < shape->rank; i++) {
        int64_t dim = shape->dims[i];
        if (dim < 0 && dim != MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT, "%s: dimension %d is %lld; a dimension is 0 or more", what, i,
                             (long long)dim);
        if (dim > 0 && n > INT64_MAX / dim) {
            char text[MU_SHAPE_TEXT];
            return mu__error(MU_INVALID_ARGUMENT, "%s: shape %s has more bytes than can be counted", what,
                             mu__shape_text(shape, text));
        }
        if (dim > 0)
            n *= dim;
    }
    return MU_OK;
}

static mu_status broadcast_error(const mu_shape *a, const mu_shape *b, const char *what)
{
    char text_a[MU_SHAPE_TEXT], text_b[MU_SHAPE_TEXT];
    return mu__error(
        MU_INVALID_ARGUMENT,
        "%s: shapes %s and %s do not broadcast: from the last axis back, dimensions must be equal or one of them 1",
        what, mu__shape_text(a, text_a), mu__shape_text(b, text_b));
}

mu_status mu__broadcast(const mu_shape *a, const mu_shape *b, mu_shape *out, const char *what)
{
    mu_shape result = {.rank = MU_MAX(a->rank, b->rank)};
    for (int i = 1; i <= result.rank; i++) {
        int64_t x = i <= a->rank ? a->dims[a->rank - i] : 1;
        int64_t y = i <= b->rank ? b->dims[b->rank - i] : 1;
        int64_t *dim = &result.dims[result.rank - i];
        if (x == y || y == 1)
            *dim = x;
        else if (x == 1)
            *dim = y;
        else if (x == MU_UNKNOWN || y == MU_UNKNOWN)
            *dim = MU_MAX(x, y); // the known one is not 1, so the other must become 1 or equal it
        else
            return broadcast_error(a, b, what);
    }
    *out = result;
    return MU_OK;
}

int mu__axis(int axis, int rank, const char *what)
{
    int at = axis < 0 ? axis + rank : axis;
    if (at >= 0 && at < rank)
        return at;
    if (rank == 0)
        mu__error(MU_INVALID_ARGUMENT, "%s: axis %d of a scalar, which has none", what, axis);
    else
        mu__error(MU_INVALID_ARGUMENT, "%s: axis %d is outside %d to %d for rank %d", what, axis, -rank, rank - 1,
                  rank);
    return -1;
}

const char *mu__shape_text(const mu_shape *shape, char text[MU_SHAPE_TEXT])
{
    int rank = MU_MIN(MU_MAX(shape->rank, 0), MU_MAX_RANK);
    size_t at = (size_t)snprintf(text, MU_SHAPE_TEXT, "[");
    for (int i = 0; i < rank && at < MU_SHAPE_TEXT; i++) {
        const char *comma = i ? ", " : "";
        if (shape->dims[i] == MU_UNKNOWN)
            at += (size_t)snprintf(text + at, MU_SHAPE_TEXT - at, "%s?", comma);
        else
            at += (size_t)snprintf(text + at, MU_SHAPE_TEXT - at, "%s%lld", comma, (long long)shape->dims[i]);
    }
    if (at < MU_SHAPE_TEXT)
        snprintf(text + at, MU_SHAPE_TEXT - at, "]");
    return text;
}
