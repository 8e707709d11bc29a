// Elements and indices for plain reference loops; see plain.h.
#include "ops/core/plain.h"

int64_t mu__read_whole(const mu_view *view, int64_t i)
{
    switch (view->dtype) {
    case MU_I64: return ((const int64_t *)view->data)[i];
    case MU_I32: return ((const int32_t *)view->data)[i];
    case MU_I16: return ((const int16_t *)view->data)[i];
    case MU_I8: return ((const int8_t *)view->data)[i];
    default: return ((const uint8_t *)view->data)[i];
    }
}

void mu__write_whole(const mu_view *view, int64_t i, int64_t value)
{
    switch (view->dtype) {
    case MU_I64: ((int64_t *)view->data)[i] = value; break;
    case MU_I32: ((int32_t *)view->data)[i] = (int32_t)value; break;
    case MU_I16: ((int16_t *)view->data)[i] = (int16_t)value; break;
    case MU_I8: ((int8_t *)view->data)[i] = (int8_t)value; break;
    default: ((uint8_t *)view->data)[i] = (uint8_t)value;
    }
}

double mu__read_real(const mu_view *view, int64_t i) { return mu__read_element(view->dtype, view->data, i); }

void mu__write_real(const mu_view *view, int64_t i, double value)
{
    mu__write_element(view->dtype, view->data, i, value);
}

void mu__copy_element(const mu_view *to, int64_t i, const mu_view *from, int64_t j)
{
    const size_t bytes = mu_dtype_bytes(to->dtype);
    memcpy((char *)to->data + (size_t)i * bytes, (const char *)from->data + (size_t)j * bytes, bytes);
}

double mu__rounded(mu_dtype dtype, double value) { return dtype == MU_F64 ? value : (double)(float)value; }

void mu__index_of(const mu_shape *shape, int64_t at, int64_t index[MU_MAX_RANK])
{
    for (int axis = shape->rank - 1; axis >= 0; axis--) {
        index[axis] = at % shape->dims[axis];
        at /= shape->dims[axis];
    }
}

int64_t mu__element_at(const mu_shape *shape, const int64_t *index)
{
    int64_t at = 0;
    for (int axis = 0; axis < shape->rank; axis++)
        at = at * shape->dims[axis] + index[axis];
    return at;
}

int64_t mu__broadcast_at(const mu_shape *out, const mu_shape *operand, int64_t at)
{
    int64_t index[MU_MAX_RANK], own[MU_MAX_RANK];
    mu__index_of(out, at, index);
    for (int axis = 0; axis < operand->rank; axis++)
        own[axis] = operand->dims[axis] == 1 ? 0 : index[axis + out->rank - operand->rank];
    return mu__element_at(operand, own);
}

// ---- Totals -------------------------------------------------------------------------------------

mu_status mu__totals_open(mu_totals *totals, const mu_view *out)
{
    const int64_t n = mu__elements(&out->shape);
    *totals = (mu_totals){.out = out};
    if (!mu__dtype_is_float(out->dtype))
        return MU_OK;
    totals->reals = mu__alloc((size_t)n * sizeof *totals->reals);
    if (!totals->reals)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < n; i++)
        totals->reals[i] = mu__read_real(out, i);
    return MU_OK;
}

static double combined_reals(mu_combine combine, double a, double b)
{
    switch (combine) {
    case MU_COMBINE_ADD: return a + b;
    case MU_COMBINE_MULTIPLY: return a * b;
    case MU_COMBINE_MAX: return a > b || a != a ? a : b;
    default: return a < b || a != a ? a : b;
    }
}

static int64_t combined_wholes(mu_combine combine, int64_t a, int64_t b)
{
    switch (combine) {
    case MU_COMBINE_ADD: return (int64_t)((uint64_t)a + (uint64_t)b);
    case MU_COMBINE_MULTIPLY: return (int64_t)((uint64_t)a * (uint64_t)b);
    case MU_COMBINE_MAX: return MU_MAX(a, b);
    default: return MU_MIN(a, b);
    }
}

void mu__totals_combine(const mu_totals *totals, mu_combine combine, int64_t i, const mu_view *from, int64_t j)
{
    if (totals->reals)
        totals->reals[i] = combined_reals(combine, totals->reals[i], mu__read_real(from, j));
    else
        mu__write_whole(totals->out, i,
                        combined_wholes(combine, mu__read_whole(totals->out, i), mu__read_whole(from, j)));
}

void mu__totals_close(mu_totals *totals)
{
    for (int64_t i = 0; totals->reals && i < mu__elements(&totals->out->shape); i++)
        mu__write_real(totals->out, i, totals->reals[i]);
    mu__free(totals->reals);
}

// ---- Sums of products ---------------------------------------------------------------------------

mu_status mu__wide_open(mu_wide *wide, const mu_view *view, bool zeros)
{
    const int64_t n = mu__elements(&view->shape);
    const bool real = mu__dtype_is_float(view->dtype);
    void *data = mu__calloc((size_t)MU_MAX(n, 1), sizeof(double));
    *wide = (mu_wide){.view = view, .reals = real ? data : NULL, .wholes = real ? NULL : data};
    if (!data)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; i < n && !zeros; i++)
        if (real)
            wide->reals[i] = mu__read_real(view, i);
        else
            wide->wholes[i] = (uint64_t)mu__read_whole(view, i);
    return MU_OK;
}

void mu__wide_store(const mu_wide *wide)
{
    for (int64_t i = 0; i < mu__elements(&wide->view->shape); i++)
        if (wide->reals)
            mu__write_real(wide->view, i, wide->reals[i]);
        else
            mu__write_whole(wide->view, i, (int64_t)wide->wholes[i]);
}

void mu__wide_close(mu_wide *wide)
{
    mu__free(wide->reals);
    mu__free(wide->wholes);
}
