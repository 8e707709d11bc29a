// Values that are known when a program is written, because they come from constants and from shapes.
//
// A check of such a value is made then: one that fails is an error before anything runs, and one that holds costs the
// program nothing. Values are only followed in graphs with checks, and not into bodies, which may not run.
#include "engine/pjrt/pjrt_plan.h"
#include "ops/core/attrs.h"
#include "ops/nn/nn.h"

// The inputs of a node: their types and shapes in the program, and the values that are known.
typedef struct inputs {
    mu_spec *specs;
    mu_tensor **known;
} inputs;

static mu_status list_inputs(const mu_pjrt_known *k, const mu_node *node, const mu_hlo *in, inputs *out)
{
    const size_t n = (size_t)node->n_in + 1;
    *out = (inputs){.specs = mu__calloc(n, sizeof *out->specs), .known = mu__calloc(n, sizeof *out->known)};
    if (!out->specs || !out->known)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++) {
        out->specs[i] = in[i].spec;
        out->known[i] = k->values[k->first[node->in[i].node->id] + node->in[i].output];
    }
    return MU_OK;
}

// All replicas run this program, so what it knows of one part is true of every part.
static mu_status gather(const mu_pjrt_known *k, const mu_node *node, mu_tensor *part, const mu_hlo *out,
                        mu_tensor **values)
{
    const mu_axis_attrs axis = {.axis = ((const mu_all_gather_attrs *)node->attrs)->axis};
    mu_spec *specs = mu__calloc((size_t)k->replicas, sizeof *specs);
    mu_tensor **parts = mu__calloc((size_t)k->replicas, sizeof *parts);
    mu_status status = specs && parts ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int r = 0; status == MU_OK && r < k->replicas; r++) {
        parts[r] = part;
        specs[r] = mu__spec_of(part);
    }
    if (status == MU_OK)
        values[0] = mu__fold_op(&mu_op_concat, &axis, k->replicas, specs, parts, &out[0].spec);
    mu__free(specs);
    mu__free(parts);
    return status;
}

static mu_status check(const mu_node *node, mu_tensor *const *values)
{
    mu_tensor *out = NULL;
    mu_pool *pool = mu_pool_open();
    if (!pool)
        return mu_error_code();
    mu_suspended outside = mu__trace_suspend();
    const mu_status status = mu__apply(node->op, node->attrs, node->n_in, values, 0, NULL, &out);
    mu__trace_resume(outside);
    mu_pool_close(pool);
    return status;
}

static bool is_check(const mu_op *op) { return op == &mu_op_assert || op == &mu_op_check_numerics; }

mu_status mu__pjrt_know(const mu_pjrt_known *k, const mu_node *node, const mu_hlo *in, mu_hlo *out, bool *checked)
{
    mu_tensor **values = &k->values[k->first[node->id]];
    inputs given = {0};
    mu_status status = list_inputs(k, node, in, &given);
    mu_tensor *first = status == MU_OK && node->n_in > 0 ? given.known[0] : NULL;
    *checked = is_check(node->op) && first && given.known[node->n_in - 1];
    if (status != MU_OK)
        goto out;
    if (node->op == &mu_op_constant)
        values[0] = mu_retain(((const mu_constant_attrs *)node->attrs)->tensor);
    else if (node->op == &mu_op_all_gather && first && k->replicas > 1)
        status = gather(k, node, first, out, values);
    else if (*checked)
        status = check(node, given.known);
    else if (node->n_out == 1 && node->n_resources == 0)
        values[0] = mu__fold_op(node->op, node->attrs, node->n_in, given.specs, given.known, &out[0].spec);
    if (*checked && node->n_out > 0) {
        values[0] = mu_retain(first);
        out[0] = in[0];
    }
out:
    mu__free(given.specs);
    mu__free(given.known);
    return status;
}

void mu__pjrt_forget_known(mu_pjrt_known *k, int n_values)
{
    for (int i = 0; k->values && i < n_values; i++)
        mu_release(k->values[i]);
    mu__free(k->values);
    k->values = NULL;
}
