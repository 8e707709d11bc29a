// How elements of different shapes are padded in a batch: the shapes and values that a user gives, checked and kept.
#include "data/dataset.h"

static void padding_destroy(void *object)
{
    mu_padding *padding = object;
    mu__free(padding->shapes);
    mu__free(padding->leaves);
    mu_release(padding->values);
}

static mu_type padding_type = {.name = "padding", .destroy = padding_destroy};

static mu_status keep_shapes(mu_padding *padding, const char *function, int n, const mu_shape *shapes)
{
    if (n < 0 || (n > 0) != (shapes != NULL))
        return mu__error(MU_INVALID_ARGUMENT, "%s: n_padded_shapes is %d and padded_shapes %s; give both, one shape "
                         "for each component, or neither", function, n, shapes != NULL ? "given" : "NULL");
    if (n == 0)
        return MU_OK;
    if ((padding->shapes = mu__calloc((size_t)n, sizeof *shapes)) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n; i++)
        MU_TRY(mu__shape_check(&shapes[i], function));
    memcpy(padding->shapes, shapes, (size_t)n * sizeof *shapes);
    padding->n_shapes = n;
    return MU_OK;
}

static mu_status keep_values(mu_padding *padding, const char *function, mu_value *values)
{
    if (values == NULL)
        return MU_OK;
    mu_leaves leaves;
    MU_TRY(mu__leaves_of(values, &leaves));
    padding->values = mu_retain(values);
    padding->leaves = leaves.items;
    padding->n_values = leaves.n;
    for (int i = 0; i < leaves.n; i++) {
        const mu_tensor *value = mu__leaf(&leaves, i);
        if (value->buffer == NULL || value->shape.rank != 0 || mu__host_read(value) == NULL)
            return mu__error(MU_INVALID_ARGUMENT, "%s: padding value %d is not a scalar with an element; make it with "
                             "mu_constant or mu_string_scalar", function, i);
    }
    return MU_OK;
}

mu_padding *mu__padding_new(const char *function, int n_shapes, const mu_shape *shapes, mu_value *values)
{
    mu_padding *padding = mu__new(&padding_type, sizeof *padding);
    if (padding != NULL && keep_shapes(padding, function, n_shapes, shapes) == MU_OK &&
        keep_values(padding, function, values) == MU_OK)
        return padding;
    mu_release(padding);
    return NULL;
}

mu_value *mu__padded_spec(mu_value *spec, const mu_padding *padding, int64_t n)
{
    mu_leaves leaves, made;
    mu_value *padded = NULL;
    if (spec == NULL || padding->n_shapes == 0)
        return spec != NULL ? mu__stack_spec(spec, n, true) : NULL;
    if (mu__leaves_of(spec, &leaves) == MU_OK) {
        bool ok = mu__build_begin(&made, leaves.n) && leaves.n == padding->n_shapes;
        while (ok && made.n < leaves.n) {
            mu_spec leaf = {.dtype = mu__leaf(&leaves, made.n)->dtype, .shape = padding->shapes[made.n]};
            ok = mu__add_axis(&leaf, n) == MU_OK && mu__build_add(&made, mu__tensor_symbolic(NULL, 0, &leaf, NULL));
        }
        padded = mu__build_end(&made, spec);
        mu__leaves_free(&leaves);
    }
    mu_release(spec);
    return padded;
}
