// How elements of different shapes are padded in a batch: the shapes and values that a user gives, checked and kept.
#include "data/describe.h"

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
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: n_padded_shapes is %d and padded_shapes %s; give both, one shape for each component, or neither",
            function, n, shapes != NULL ? "given" : "NULL");
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
            return mu__error(
                MU_INVALID_ARGUMENT,
                "%s: padding value %d is not a scalar with an element; make it with mu_constant or mu_string_scalar",
                function, i);
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

// ---- In descriptions ----------------------------------------------------------------------------

// [shapes, values], where no shapes are an empty list, and no values too.
static mu_value *write_padding(const void *object, const mu_dataset *dataset)
{
    const mu_padding *padding = object;
    (void)dataset;
    mu_value **shapes = mu__calloc((size_t)padding->n_shapes + 1, sizeof *shapes);
    for (int i = 0; shapes != NULL && i < padding->n_shapes; i++)
        shapes[i] = mu__int64s_value(padding->shapes[i].rank, padding->shapes[i].dims);
    mu_value *list = shapes != NULL ? mu_list_of(padding->n_shapes, shapes) : NULL;
    mu__free(shapes);
    return mu_list(list, padding->values != NULL ? padding->values : mu_list(MU_END), MU_END);
}

static bool read_shapes(const mu_value *list, mu_shape *out)
{
    for (int i = 0; i < list->n; i++) {
        const int64_t *dims;
        int64_t n;
        if (!mu__described_numbers(list->items[i], &dims, &n) || n > MU_MAX_RANK)
            return false;
        out[i].rank = (int)n;
        memcpy(out[i].dims, dims, (size_t)n * sizeof *dims);
    }
    return true;
}

static void *read_padding(const mu_value *value)
{
    if (value->kind != MU_VALUE_LIST || value->n != 2 || value->items[0]->kind != MU_VALUE_LIST)
        return NULL;
    const mu_value *list = value->items[0];
    mu_value *values = value->items[1];
    const bool none = values->kind == MU_VALUE_LIST && values->n == 0;
    mu_shape *shapes = mu__calloc((size_t)list->n + 1, sizeof *shapes);
    mu_padding *padding =
        shapes != NULL && read_shapes(list, shapes)
            ? mu__padding_new("padded_batch", list->n, list->n > 0 ? shapes : NULL, none ? NULL : values)
            : NULL;
    mu__free(shapes);
    return padding;
}

const mu_object_form mu__padding_form = {.write = write_padding, .read = read_padding};

// ---- Specs --------------------------------------------------------------------------------------

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
