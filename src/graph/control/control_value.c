// Values as lists of tensors, for inputs and outputs of bodies, and how control flow nodes are made.
#include "graph/control/control.h"
#include "graph/variables/variables_read.h"

mu_status mu__tensors_of(const mu_value *value, const char *what, mu_tensors *out)
{
    int n = mu__value_flatten(value, NULL, 0);
    *out = (mu_tensors){.n = n, .at = mu__calloc((size_t)n + 1, sizeof *out->at)};
    if (!out->at)
        return MU_RESOURCE_EXHAUSTED;
    mu__value_flatten(value, (mu_object **)out->at, n);
    for (int i = 0; i < n; i++)
        if (!mu__is(out->at[i], &mu__tensor_type)) {
            mu__free(out->at);
            *out = (mu_tensors){0};
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: element %d is a variable; read it (mu_variable_read), or use it inside the body",
                             what, i);
        }
    return MU_OK;
}

mu_value *mu__value_around(const mu_value *like, mu_tensor *const *tensors)
{
    if (!like)
        return mu_list(MU_END);
    int n = mu__value_flatten(like, NULL, 0);
    return mu__give(mu__value_pack(like, (mu_object *const *)tensors, n));
}

mu_status mu__body_finish(mu_body_trace *body, mu_value *result, const char *what, mu_tensors *out)
{
    result = mu__variables_read(result);
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__tensors_of(result, what, out));
    for (int i = 0; i < out->n; i++)
        MU_TRY(mu__body_output(body, out->at[i]));
    mu__body_end(body);
    return MU_OK;
}

mu_value *mu__body_inputs(mu_body_trace *body, const mu_value *like, const mu_tensors *tensors, mu_spec_for *spec)
{
    mu_tensor **inputs = mu__calloc((size_t)tensors->n + 1, sizeof *inputs);
    mu_value *value = NULL;
    bool whole = inputs != NULL;
    for (int i = 0; whole && i < tensors->n; i++) {
        const mu_spec own = spec(tensors->at[i]);
        whole = (inputs[i] = mu__body_input(body, &own)) != NULL;
    }
    if (whole)
        value = mu__value_around(like, inputs);
    mu__free(inputs);
    return value;
}

mu_status mu__control_apply(const mu_op *op, const void *attrs, int n, mu_body_trace *const *bodies, int n_own,
                            mu_tensor *const *own, mu_tensor ***out)
{
    mu_graph *graphs[2];
    mu_tensor **captured = NULL, **in = NULL;
    mu_resource **resources = NULL;
    mu_status status = MU_OK;
    int n_captured = 0, n_resources = 0;
    for (int b = 0; b < n; b++)
        graphs[b] = bodies[b]->trace.graph;
    MU_GO(mu__bodies_join(n, bodies, &captured, &n_captured));
    MU_GO(mu__bodies_resources(n, graphs, &resources, &n_resources));
    in = mu__calloc((size_t)(n_own + n_captured) + 1, sizeof *in);
    *out = mu__calloc((size_t)mu__op_outputs(op, attrs, 1) + 1, sizeof **out);
    if (!in || !*out)
        MU_GO(MU_RESOURCE_EXHAUSTED);
    for (int i = 0; i < n_own + n_captured; i++)
        in[i] = i < n_own ? own[i] : captured[i - n_own];
    status = mu__apply(op, attrs, n_own + n_captured, in, n_resources, resources, *out);
out:
    mu__free(in);
    mu__free(captured);
    mu__free(resources);
    return status;
}
