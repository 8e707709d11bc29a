// Values without variables: see variables_read.h.
#include "graph/variables/variables_read.h"

#include "graph/graph.h"

static bool has_variable(const mu_value *value)
{
    bool has = value->leaf && mu__is(value->leaf, &mu__variable_type);
    for (int i = 0; !value->leaf && i < value->n && !has; i++)
        has = has_variable(value->items[i]);
    return has;
}

mu_value *mu__variables_read(mu_value *value)
{
    if (!value || mu__pending() || !has_variable(value))
        return value;
    const int n = mu__value_flatten(value, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n, sizeof *leaves);
    if (!leaves)
        return NULL;
    mu__value_flatten(value, leaves, n);
    for (int i = 0; i < n && !mu__pending(); i++)
        if (mu__is(leaves[i], &mu__variable_type))
            leaves[i] = (mu_object *)mu_variable_read((mu_variable *)leaves[i]);
    mu_value *read = mu__pending() ? NULL : mu__give(mu__value_pack(value, leaves, n));
    mu__free(leaves);
    return read;
}
