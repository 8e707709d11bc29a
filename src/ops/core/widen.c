// Runs kernels on converted operands: 16-bit floats as float32, integers as wider ones.
//
// A kernel without loops for a short type, or without loops that are wide enough, runs on converted copies of its
// operands; results are rounded once. Element-wise ops convert chunk by chunk in the cache.
#include "ops/core/loops.h"
#include "ops/nn/nn.h"

// The type that a view is converted to; its own type if no conversion is needed.
static mu_dtype wide_type(mu_dtype wanted, mu_dtype dtype)
{
    const bool half = dtype == MU_F16 || dtype == MU_BF16;
    return wanted == MU_F32 ? (half ? MU_F32 : dtype) : mu__dtype_is_integer(dtype) ? wanted : dtype;
}

// Sets `to` to the view, or to newly allocated memory if it needs another type.
static mu_status widen(mu_dtype wanted, const mu_view *from, mu_view *to, bool filled)
{
    *to = *from;
    to->dtype = wide_type(wanted, from->dtype);
    if (to->dtype == from->dtype || !from->data)
        return MU_OK;
    const int64_t n = mu__elements(&from->shape);
    to->data = mu__alloc_data((size_t)n * mu_dtype_bytes(to->dtype));
    if (!to->data)
        return MU_RESOURCE_EXHAUSTED;
    if (filled)
        mu__convert(to->dtype, to->data, from->dtype, from->data, n);
    return MU_OK;
}

// Whether the operand's elements are used; an operand used only for its shape may have no memory.
static bool has_elements(const mu_op *op, int input) { return !op || input >= 32 || !(op->shape_only >> input & 1); }

static void drop_widened(const mu_view *from, const mu_view *to)
{
    if (to->data && to->dtype != from->dtype)
        mu__free_data(to->data, (size_t)mu__elements(&from->shape) * mu_dtype_bytes(to->dtype));
}

static mu_status run_as(mu_dtype wanted, const mu_kernel *kernel, mu_kernel_run *run)
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
        MU_GO(widen(wanted, &kernel->in[i], &wide[i], has_elements(kernel->op, i)));
    for (int i = 0; i < kernel->n_out; i++)
        MU_GO(widen(wanted, &kernel->out[i], &wide[kernel->n_in + i], false));
    MU_GO(run(&copy));
    for (int i = 0; i < kernel->n_out; i++)
        if (copy.out[i].data != kernel->out[i].data)
            mu__convert(kernel->out[i].dtype, kernel->out[i].data, copy.out[i].dtype, copy.out[i].data,
                        mu__elements(&kernel->out[i].shape));
out:
    for (int i = 0; i < n; i++)
        drop_widened(i < kernel->n_in ? &kernel->in[i] : &kernel->out[i - kernel->n_in], &wide[i]);
    mu__free(wide);
    return status;
}

mu_status mu__run_as_f32(const mu_kernel *kernel, mu_kernel_run *run) { return run_as(MU_F32, kernel, run); }

mu_status mu__run_as_i32(const mu_kernel *kernel, mu_kernel_run *run) { return run_as(MU_I32, kernel, run); }

mu_status mu__run_wide(const mu_kernel *kernel, mu_kernel_run *run) { return run_as(MU_I64, kernel, run); }

mu_status mu__prepare_f32(mu_prepare *prepare)
{
    prepare->declined = prepare->in[0].dtype != MU_F32;
    return MU_OK;
}

// ---- Chunk by chunk -----------------------------------------------------------------------------

void mu__in_f32(const mu_float16_run *run, void (*loop)(void *arg, const mu_f32_run *run), void *arg)
{
    enum { CHUNK = 1024 };
    _Alignas(64) float in[MU_WALK_OPERANDS][CHUNK], out[CHUNK];
    const bool converts = run->out_dtype != MU_BOOL;
    mu_f32_run chunk = {.out = out};
    for (int i = 0; i < run->n_in; i++)
        chunk.in[i] = in[i];
    for (int64_t at = 0; at < run->n; at += CHUNK) {
        char *to = (char *)run->out + (size_t)at * mu_dtype_bytes(run->out_dtype);
        chunk.n = MU_MIN((int64_t)CHUNK, run->n - at);
        for (int i = 0; i < run->n_in; i++)
            mu__convert(MU_F32, in[i], run->in_dtype, (const uint16_t *)run->in[i] + at * run->step[i],
                        run->step[i] ? chunk.n : 1);
        if (!converts)
            chunk.out = to;
        loop(arg, &chunk);
        if (converts)
            mu__convert(run->out_dtype, to, MU_F32, out, chunk.n);
    }
}
