// The pure forms of effects: what an op does to resources, as a function from their values to new values.
//
// Inputs are the op's own, then the value of each resource; outputs are the op's own, then each resource's new value.
// The kernel is the op's: it uses the outputs as its resources. The definitions are derived once from the ops' own.
#include "ops/core/lower.h"

#include <pthread.h>

static const mu_op *const effects[] = {
    &mu_op_assign_variable,     &mu_op_assign_add_variable,
    &mu_op_assign_sub_variable, &mu_op_scatter_variable,
    &mu_op_generator_next,      &mu_op_apply_gradient_descent,
    &mu_op_apply_adam,          &mu_op_apply_gradient_descent_slices,
    &mu_op_apply_adam_slices,   &mu_op_apply_adagrad_slices,
    &mu_op_apply_ftrl_slices,
};
static mu_op rows[MU_COUNT(effects)];
static char names[MU_COUNT(effects)][48];
static pthread_once_t once = PTHREAD_ONCE_INIT;

// ---- Shared by the pure forms -------------------------------------------------------------------

static mu_status pure_infer(mu_infer *infer)
{
    const mu_op *effect = infer->op->pure_of;
    const int n_in = effect->n_in, n_states = infer->n_in - n_in, n_out = effect->n_out;
    mu_infer inner = *infer;
    if (effect->n_resources != MU_VARIADIC && effect->n_resources != n_states)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %d values of resources given; it takes %d", infer->op->name,
                         n_states, effect->n_resources);
    inner.op = effect;
    inner.n_in = n_in;
    inner.n_out = n_out;
    inner.n_resources = n_states;
    inner.resources = infer->in + n_in;
    MU_TRY(mu__infer_call(&inner));
    for (int i = 0; i < n_states; i++)
        infer->out[n_out + i] = infer->in[n_in + i];
    return MU_OK;
}

static mu_status run_on_outputs(const mu_kernel *kernel, mu_kernel_run *run)
{
    const mu_op *effect = kernel->op->pure_of;
    mu_kernel inner = *kernel;
    inner.op = effect;
    inner.n_in = effect->n_in;
    inner.n_out = effect->n_out;
    inner.n_resources = kernel->n_in - effect->n_in;
    inner.resources = kernel->out + effect->n_out;
    for (int i = 0; i < inner.n_resources; i++) {
        const mu_view *before = &kernel->in[effect->n_in + i], *after = &inner.resources[i];
        const size_t bytes = (size_t)mu__elements(&before->shape) * mu_dtype_bytes(before->dtype);
        if (after->data != before->data && bytes > 0)
            memcpy(after->data, before->data, bytes);
    }
    return run(&inner);
}

static mu_status pure_ref(const mu_kernel *kernel) { return run_on_outputs(kernel, kernel->op->pure_of->ref); }

static mu_status pure_fast(const mu_kernel *kernel) { return run_on_outputs(kernel, kernel->op->pure_of->cpu.run); }

static mu_status pure_prepare(mu_prepare *prepare)
{
    mu_prepare inner = *prepare;
    inner.op = prepare->op->pure_of;
    inner.n_in = inner.op->n_in;
    inner.n_out = inner.op->n_out;
    const mu_status status = inner.op->cpu.prepare(&inner);
    prepare->state = inner.state;
    prepare->scratch_bytes = inner.scratch_bytes;
    prepare->declined = inner.declined;
    return status;
}

static mu_status pure_lower(mu_lowering *l)
{
    mu_lowering inner = *l;
    inner.op = l->op->pure_of;
    inner.n_in = inner.op->n_in;
    inner.n_out = inner.op->n_out;
    inner.n_resources = l->n_in - inner.n_in;
    mu_hlo *states = l->out + inner.n_out;
    for (int i = 0; i < inner.n_resources; i++)
        states[i] = l->in[inner.n_in + i];
    inner.state = states;
    return inner.op->lower(&inner);
}

// ---- Op definitions -----------------------------------------------------------------------------

static void make_op(size_t i)
{
    const mu_op *effect = effects[i];
    mu_op *row = &rows[i];
    *row = *effect;
    snprintf(names[i], sizeof names[i], "%s_pure", effect->name);
    row->name = names[i];
    row->pure_of = effect;
    row->max_in = MU_VARIADIC;
    row->n_resources = 0;
    row->flags &= ~(unsigned)(MU_OP_READS | MU_OP_WRITES);
    row->in_place = effect->n_out == 0 ? 1u << effect->n_in : 0;
    row->infer = pure_infer;
    row->ref = pure_ref;
    row->cpu.prepare = effect->cpu.prepare ? pure_prepare : NULL;
    row->cpu.run = effect->cpu.run ? pure_fast : NULL;
    row->lower = effect->lower ? pure_lower : NULL;
}

static void make_ops(void)
{
    for (size_t i = 0; i < MU_COUNT(effects); i++)
        make_op(i);
}

const mu_op *mu__pure_op(const mu_op *effect)
{
    pthread_once(&once, make_ops);
    for (size_t i = 0; i < MU_COUNT(effects); i++)
        if (effects[i] == effect)
            return &rows[i];
    return NULL;
}
