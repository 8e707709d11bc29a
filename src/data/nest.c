// Takes elements apart into tensors and rebuilds them; specs, empty and concatenated batches.
//
// A spec is a structure whose leaves are symbolic tensors without a node. This file does not depend on stages.
#include "data/dataset.h"

// ---- Specs and small values ---------------------------------------------------------------------

mu_value *mu__leaf_value(mu_tensor *tensor)
{
    mu_value *value = tensor != NULL ? mu__value_leaf(MU_VALUE_TENSOR, tensor) : NULL;
    mu_release(tensor);
    return value;
}

mu_value *mu__spec_leaf(mu_dtype dtype, const mu_shape *shape)
{
    return mu__leaf_value(mu__tensor_symbolic(NULL, 0, &(mu_spec){.dtype = dtype, .shape = *shape}, NULL));
}

mu_value *mu__number_value(int64_t number)
{
    mu_tensor *tensor = mu__tensor_alloc(MU_I64, &mu__scalar_shape);
    if (tensor != NULL)
        memcpy(mu__host_write(tensor), &number, sizeof number);
    return mu__leaf_value(tensor);
}

mu_value *mu__list_value(int n, mu_value **items)
{
    bool complete = true;
    for (int i = 0; i < n; i++)
        complete = complete && items[i] != NULL;
    mu_value *list = complete ? mu__value_container(MU_VALUE_LIST, n, items, NULL) : NULL;
    for (int i = 0; i < n; i++)
        mu_release(items[i]);
    return list;
}

mu_status mu__leaves_of(const mu_value *value, mu_leaves *out)
{
    *out = (mu_leaves){.n = mu__value_flatten(value, NULL, 0)};
    out->items = mu__calloc((size_t)out->n, sizeof *out->items);
    if (out->items == NULL)
        return MU_RESOURCE_EXHAUSTED;
    mu__value_flatten(value, out->items, out->n);
    for (int i = 0; i < out->n; i++)
        if (!mu__is(out->items[i], &mu__tensor_type)) {
            mu__leaves_free(out);
            return mu__error(MU_INVALID_ARGUMENT,
                             "component %d of an element is not a tensor; datasets hold nothing else", i);
        }
    return MU_OK;
}

void mu__leaves_free(mu_leaves *leaves)
{
    mu__free(leaves->items);
    *leaves = (mu_leaves){0};
}

bool mu__build_begin(mu_leaves *made, int wanted)
{
    *made = (mu_leaves){.wanted = wanted, .items = mu__calloc((size_t)wanted, sizeof *made->items)};
    return made->items != NULL;
}

bool mu__build_add(mu_leaves *made, mu_tensor *tensor)
{
    if (tensor == NULL)
        return false;
    made->items[made->n++] = &tensor->object;
    return true;
}

mu_value *mu__build_end(mu_leaves *made, const mu_value *like)
{
    mu_value *value =
        made->items != NULL && made->n == made->wanted ? mu__value_pack(like, made->items, made->n) : NULL;
    for (int i = 0; i < made->n; i++)
        mu_release(made->items[i]);
    mu__leaves_free(made);
    return value;
}

mu_value *mu__map_spec(mu_value *spec, mu_status (*fn)(mu_spec *leaf, int64_t number), int64_t number)
{
    mu_leaves leaves, made;
    mu_value *mapped = NULL;
    if (spec != NULL && mu__leaves_of(spec, &leaves) == MU_OK) {
        bool ok = mu__build_begin(&made, leaves.n);
        while (ok && made.n < leaves.n) {
            mu_spec leaf = mu__spec_of(mu__leaf(&leaves, made.n));
            ok = fn(&leaf, number) == MU_OK && mu__build_add(&made, mu__tensor_symbolic(NULL, 0, &leaf, NULL));
        }
        mapped = mu__build_end(&made, spec);
        mu__leaves_free(&leaves);
    }
    mu_release(spec);
    return mapped;
}

mu_status mu__spec_as_it_is(mu_spec *leaf, int64_t number)
{
    (void)leaf, (void)number;
    return MU_OK;
}

mu_status mu__add_axis(mu_spec *leaf, int64_t n)
{
    if (leaf->shape.rank == MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "an element of rank %d cannot be stacked: the largest rank is %d",
                         leaf->shape.rank, MU_MAX_RANK);
    memmove(leaf->shape.dims + 1, leaf->shape.dims, (size_t)leaf->shape.rank * sizeof leaf->shape.dims[0]);
    leaf->shape.dims[0] = n;
    leaf->shape.rank++;
    return MU_OK;
}

static mu_status add_axis_only(mu_spec *leaf, int64_t n)
{
    for (int i = 0; i < leaf->shape.rank; i++)
        leaf->shape.dims[i] = MU_UNKNOWN;
    return mu__add_axis(leaf, n);
}

mu_value *mu__stack_spec(mu_value *spec, int64_t n, bool shapeless)
{
    return mu__map_spec(spec, shapeless ? add_axis_only : mu__add_axis, n);
}

// ---- Batches along axis 0 -----------------------------------------------------------------------

static mu_tensor *empty_leaf(mu_spec spec)
{
    if (spec.shape.rank == 0) {
        mu__error(MU_INVALID_ARGUMENT, "an element is a scalar, which has no empty batch; batch the dataset first");
        return NULL;
    }
    for (int i = 0; i < spec.shape.rank; i++)
        spec.shape.dims[i] = i == 0 || spec.shape.dims[i] == MU_UNKNOWN ? 0 : spec.shape.dims[i];
    if (spec.dtype == MU_STRING)
        return mu__strings_end(&(mu_strings){0}, &spec.shape);
    return mu__tensor_alloc(spec.dtype, &spec.shape);
}

mu_value *mu__empty_like(const mu_value *like)
{
    mu_leaves leaves, made;
    if (mu__leaves_of(like, &leaves) != MU_OK)
        return NULL;
    bool ok = mu__build_begin(&made, leaves.n);
    while (ok && made.n < leaves.n)
        ok = mu__build_add(&made, empty_leaf(mu__spec_of(mu__leaf(&leaves, made.n))));
    mu__leaves_free(&leaves);
    return mu__build_end(&made, like);
}

static mu_tensor *join_strings(const mu_leaves *parts, int n, int leaf, const mu_shape *whole)
{
    mu_strings strings = {0};
    mu_status status = MU_OK;
    for (int i = 0; i < n && status == MU_OK; i++) {
        const mu_tensor *part = mu__leaf(&parts[i], leaf);
        status = mu__strings_copy(&strings, part, 0, mu__elements(&part->shape));
    }
    if (status == MU_OK)
        return mu__strings_end(&strings, whole);
    mu__strings_free(&strings);
    return NULL;
}

static mu_tensor *join_leaf(const mu_leaves *parts, int n, int leaf, const char *what)
{
    mu_spec whole = mu__spec_of(mu__leaf(&parts[0], leaf));
    for (int i = 1; i < n; i++) {
        mu_shape shape = mu__leaf(&parts[i], leaf)->shape;
        int64_t rows = shape.dims[0];
        shape.dims[0] = whole.shape.dims[0];
        if (mu__leaf(&parts[i], leaf)->dtype != whole.dtype || !mu__shape_equal(&shape, &whole.shape)) {
            mu__error(
                MU_INVALID_ARGUMENT,
                "%s: component %d of two batches differs in type or shape; batches of one dataset must look alike",
                what, leaf);
            return NULL;
        }
        whole.shape.dims[0] += rows;
    }
    if (whole.dtype == MU_STRING)
        return join_strings(parts, n, leaf, &whole.shape);
    mu_tensor *tensor = mu__tensor_alloc(whole.dtype, &whole.shape);
    char *to = tensor != NULL ? mu__host_write(tensor) : NULL;
    for (int i = 0; to != NULL && i < n; i++) {
        mu_spec part = mu__spec_of(mu__leaf(&parts[i], leaf));
        const void *from = mu__host_read(mu__leaf(&parts[i], leaf));
        if (from == NULL) {
            mu_release(tensor);
            return NULL;
        }
        memcpy(to, from, mu__spec_bytes(&part));
        to += mu__spec_bytes(&part);
    }
    return tensor;
}

static mu_status leaves_of_parts(const mu_item *items, int n, mu_leaves *parts, const char *what)
{
    for (int i = 0; i < n; i++) {
        if (!mu__value_same_structure(items[i].value, items[0].value))
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: two batches are nested in different ways; batches of one dataset must look alike",
                             what);
        MU_TRY(mu__leaves_of(items[i].value, &parts[i]));
    }
    return MU_OK;
}

mu_value *mu__join(const mu_item *items, int n, const char *what)
{
    if (n == 1)
        return mu_retain(items[0].value);
    mu_leaves *parts = mu__calloc((size_t)n, sizeof *parts), made = {0};
    if (parts == NULL)
        return NULL;
    mu_value *value = NULL;
    if (leaves_of_parts(items, n, parts, what) == MU_OK) {
        bool ok = mu__build_begin(&made, parts[0].n);
        while (ok && made.n < parts[0].n)
            ok = mu__build_add(&made, join_leaf(parts, n, made.n, what));
        value = mu__build_end(&made, items[0].value);
    }
    for (int i = 0; i < n; i++)
        mu__leaves_free(&parts[i]);
    mu__free(parts);
    return value;
}
