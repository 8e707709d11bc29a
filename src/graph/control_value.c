// Values as lists of tensors, as bodies of control flow take and give them.
#include "graph/control.h"

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
            return mu__error(MU_INVALID_ARGUMENT, "%s: element %d is a variable; read it (mu_variable_read), or use it inside "
                             "the body", what, i);
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
