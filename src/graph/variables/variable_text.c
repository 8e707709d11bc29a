// Variables as text: their settings by name, and a print of one.
#include "graph/graph.h"

static const mu_enum_name synchronizations[] = {{MU_SYNCHRONIZATION_AUTO, "AUTO"},
                                                {MU_SYNCHRONIZATION_NONE, "NONE"},
                                                {MU_SYNCHRONIZATION_ON_WRITE, "ON_WRITE"},
                                                {MU_SYNCHRONIZATION_ON_READ, "ON_READ"},
                                                {0, NULL}};
static const mu_enum_name aggregations[] = {{MU_AGGREGATION_NONE, "NONE"},
                                            {MU_AGGREGATION_SUM, "SUM"},
                                            {MU_AGGREGATION_MEAN, "MEAN"},
                                            {MU_AGGREGATION_ONLY_FIRST_REPLICA, "ONLY_FIRST_REPLICA"},
                                            {0, NULL}};
static const char unrecognized[] = "UNRECOGNIZED"; // as TensorFlow's protocol buffers say

const char *mu_variable_synchronization_name(mu_variable_synchronization synchronization)
{
    return mu__enum_name(synchronizations, (int)synchronization, unrecognized);
}

const char *mu_variable_aggregation_name(mu_variable_aggregation aggregation)
{
    return mu__enum_name(aggregations, (int)aggregation, unrecognized);
}

int mu_variable_synchronization_from_name(const char *name)
{
    return mu__enum_number(synchronizations, name, -1, "mu_variable_synchronization_from_name");
}

int mu_variable_aggregation_from_name(const char *name)
{
    return mu__enum_number(aggregations, name, -1, "mu_variable_aggregation_from_name");
}

mu_status mu_variable_print(mu_variable *variable, FILE *out)
{
    if (mu__pending())
        return mu_error_code();
    if (!variable || !out)
        return mu__error(MU_INVALID_ARGUMENT, "mu_variable_print: the %s is NULL", variable ? "file" : "variable");
    const mu_spec *spec = &variable->resource.spec;
    char shape[MU_SHAPE_TEXT];
    const bool known = !mu__context()->trace;
    mu_tensor *value = known ? mu_variable_read(variable) : NULL;
    if (known && !value)
        return mu_error_code();
    fprintf(out, "%s %s %s%s", variable->resource.name, mu_dtype_name(spec->dtype), mu__shape_text(&spec->shape, shape),
            !known                 ? "\n"
            : spec->shape.rank > 0 ? "\n"
                                   : " ");
    if (value)
        mu_tensor_print(value, out);
    return MU_OK;
}
