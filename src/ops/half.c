// Kernels of the 16-bit floats by way of float32, and the common answer to "only float32".
//
// A kernel that has no loops for a 16-bit type runs on converted copies of its operands; results are rounded
// once. Knows nothing of what a kernel computes.
#include "ops/nn.h"

static bool is_half(mu_dtype dtype)
{
    return dtype == MU_F16 || dtype == MU_BF16;
}

// Gives `to` the view, in float32 memory of its own where it is a 16-bit float.
static mu_status widen(const mu_view *from, mu_view *to, bool filled)
{
    *to = *from;
    if (!is_half(from->dtype) || !from->data)
        return MU_OK;
    const int64_t n = mu__elements(&from->shape);
    to->dtype = MU_F32;
    to->data = mu__alloc_data((size_t)n * sizeof(float));
    if (!to->data)
        return MU_RESOURCE_EXHAUSTED;
    if (filled)
        mu__convert(MU_F32, to->data, from->dtype, from->data, n);
    return MU_OK;
}

static void drop_widened(const mu_view *from, const mu_view *to)
{
    if (is_half(from->dtype) && to->data != from->data)
        mu__free_data(to->data, (size_t)mu__elements(&from->shape) * sizeof(float));
}

mu_status mu__run_as_f32(const mu_kernel *kernel, mu_kernel_run *run)
{
    const int n = kernel->n_in + kernel->n_out;
    mu_view *wide = mu__calloc((size_t)n, sizeof *wide);
    if (!wide)
        return MU_RESOURCE_EXHAUSTED;
    mu_status status = MU_OK;
    mu_kernel copy = *kernel;
    copy.in = wide;
    copy.out = wide + kernel->n_in;
    for (int i = 0; i < kernel->n_in; i++)
        MU_GO(widen(&kernel->in[i], &wide[i], true));
    for (int i = 0; i < kernel->n_out; i++)
        MU_GO(widen(&kernel->out[i], &wide[kernel->n_in + i], false));
    MU_GO(run(&copy));
    for (int i = 0; i < kernel->n_out; i++)
        if (copy.out[i].data != kernel->out[i].data)
            mu__convert(kernel->out[i].dtype, kernel->out[i].data, MU_F32, copy.out[i].data,
                        mu__elements(&kernel->out[i].shape));
out:
    for (int i = 0; i < n; i++)
        drop_widened(i < kernel->n_in ? &kernel->in[i] : &kernel->out[i - kernel->n_in], &wide[i]);
    mu__free(wide);
    return status;
}

mu_status mu__prepare_f32(mu_prepare *prepare)
{
    prepare->declined = prepare->in[0].dtype != MU_F32;
    return MU_OK;
}
