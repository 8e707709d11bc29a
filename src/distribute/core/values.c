// Values on replicas: selects one replica's component, and groups results.
#include "distribute/distribute.h"

bool mu__is_distributed(const mu_value *value)
{
    if (value->kind == MU_VALUE_PER_REPLICA || value->kind == MU_VALUE_MIRRORED)
        return true;
    for (int i = 0; i < value->n; i++)
        if (mu__is_distributed(value->items[i]))
            return true;
    return false;
}

mu_status mu__need_value(const mu_value *value, const char *function)
{
    if (!value || mu__is(value, &mu__value_type))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: the arguments are not a mu_value; wrap a tensor with mu_of, several with mu_list", function);
}

// Builds a container from owned elements, which it releases in every case.
static mu_value *build(mu_value_kind kind, int n, mu_value **items, char *const *keys)
{
    mu_value *result = NULL;
    bool whole = items != NULL;
    for (int i = 0; whole && i < n; i++)
        whole = items[i] != NULL;
    if (whole)
        result = mu__value_container(kind, n, items, (const char *const *)keys);
    for (int i = 0; items && i < n; i++)
        mu_release(items[i]);
    mu__free(items);
    return result;
}

// Adds the position in the nest to the pending error.
static void name_element(const mu_value *nest, int i)
{
    if (nest->kind == MU_VALUE_MAP)
        mu__error_context("in element '%s' of the map", nest->keys[i]);
    else if (nest->kind == MU_VALUE_LIST)
        mu__error_context("in element %d of the list", i);
}

mu_value *mu__map_parts(const mu_value *value, bool deep, mu_part_fn *fn, const void *arg)
{
    if (value->leaf || !(deep || value->kind == MU_VALUE_LIST || value->kind == MU_VALUE_MAP))
        return fn(value, arg);
    mu_value **items = mu__calloc((size_t)value->n + 1, sizeof *items), *mapped = NULL;
    bool whole = items != NULL;
    for (int i = 0; whole && i < value->n; i++) {
        whole = (items[i] = mu__map_parts(value->items[i], deep, fn, arg)) != NULL;
        if (!whole)
            name_element(value, i);
    }
    if (whole)
        mapped = mu__give(mu__value_container(value->kind, value->n, items, (const char *const *)value->keys));
    mu__free(items);
    return mapped;
}

mu_value *mu__select(const mu_value *value, int i)
{
    if (value->kind == MU_VALUE_PER_REPLICA || value->kind == MU_VALUE_MIRRORED)
        return mu_retain(value->items[i < value->n ? i : 0]);
    if (value->kind != MU_VALUE_LIST && value->kind != MU_VALUE_MAP)
        return mu_retain((void *)value);
    mu_value **items = mu__calloc((size_t)value->n + 1, sizeof *items);
    for (int k = 0; items && k < value->n; k++)
        items[k] = mu__select(value->items[k], i);
    return build(value->kind, value->n, items, value->keys);
}

// ---- Which run a tensor belongs to --------------------------------------------------------------

enum { RUN_OF_INPUT = -1 }; // for components not made by a replica function

int64_t mu__new_run(const mu_strategy *strategy)
{
    static _Atomic int64_t runs;
    return strategy->n_replicas == 1 ? 0 : atomic_fetch_add(&runs, 1) + 1;
}

static mu_value *of_run(const mu_value *leaf, const void *arg)
{
    const int64_t run = *(const int64_t *)arg;
    const mu_tensor *tensor = (const mu_tensor *)leaf->leaf;
    if (!mu__is(tensor, &mu__tensor_type) || tensor->run == run)
        return (mu_value *)leaf;
    mu_tensor *again = mu__give(mu__tensor_again(tensor, run));
    return again ? mu_of(again) : NULL;
}

// As mu__map_parts, but the result is owned, and temporaries do not stay in the caller's pool.
static mu_value *map_owned(const mu_value *value, bool deep, mu_part_fn *fn, const void *arg)
{
    mu_pool *pool = mu_pool_open();
    mu_value *mapped = pool ? mu_retain(mu__map_parts(value, deep, fn, arg)) : NULL;
    mu_pool_close(pool);
    return mapped;
}

mu_value *mu__own_component(const mu_value *value) { return map_owned(value, true, of_run, &(int64_t){RUN_OF_INPUT}); }

typedef struct selection {
    int i;
    int64_t run;
    bool alone; // one replica here, more on other workers: components are not wrapped
} selection;

static bool is_component(const mu_value *part)
{
    if (part->kind == MU_VALUE_TENSOR)
        return ((const mu_tensor *)part->leaf)->run != 0;
    return part->kind == MU_VALUE_SLICES && (is_component(part->items[0]) || is_component(part->items[1]));
}

static mu_value *select_part(const mu_value *part, const void *arg)
{
    const selection *s = arg;
    const bool wrapped = part->kind == MU_VALUE_PER_REPLICA || part->kind == MU_VALUE_MIRRORED;
    if (wrapped)
        part = part->items[s->i < part->n ? s->i : 0];
    return wrapped || (s->alone && is_component(part)) ? mu__map_parts(part, true, of_run, &s->run) : (mu_value *)part;
}

mu_value *mu__select_for(const mu_strategy *strategy, const mu_value *value, int i, int64_t run)
{
    const selection s = {.i = i, .run = run, .alone = strategy->n_local == 1 && strategy->n_replicas > 1};
    return run == 0 ? mu__select(value, i) : map_owned(value, false, select_part, &s);
}

// The index of the k-th element of `like` in a value of the same kind; -1 if missing. Maps may order keys differently.
static int index_of(const mu_value *like, int k, const mu_value *value)
{
    if (like->kind != MU_VALUE_MAP || strcmp(value->keys[k], like->keys[k]) == 0)
        return k;
    for (int i = 0; i < value->n; i++)
        if (strcmp(value->keys[i], like->keys[k]) == 0)
            return i;
    return -1;
}

static mu_status same_shape_of_nest(int n, mu_value *const *values)
{
    for (int r = 1; r < n; r++) {
        bool same = values[r]->kind == values[0]->kind && values[r]->n == values[0]->n;
        for (int k = 0; same && values[0]->kind == MU_VALUE_MAP && k < values[0]->n; k++)
            same = index_of(values[0], k, values[r]) >= 0;
        if (!same)
            return mu__error(MU_INVALID_ARGUMENT,
                             "replicas 0 and %d give values of different structure, as results or as arguments of a "
                             "merge_call; all must give the same lists, lengths and keys",
                             r);
    }
    return MU_OK;
}

// Whether all are the same object, or slices of the same tensors; such values are not grouped.
static bool identical(int n, mu_value *const *values)
{
    for (int r = 1; r < n; r++) {
        bool same = values[r] == values[0] || (values[0]->leaf && values[r]->leaf == values[0]->leaf);
        if (!same && values[0]->kind == MU_VALUE_SLICES && values[r]->kind == MU_VALUE_SLICES)
            same = values[r]->items[0]->leaf == values[0]->items[0]->leaf &&
                   values[r]->items[1]->leaf == values[0]->items[1]->leaf;
        if (!same)
            return false;
    }
    return true;
}

mu_value *mu__regroup_as(mu_value_kind kind, bool always, int n, mu_value *const *values)
{
    if (!always && (n == 1 || identical(n, values)))
        return mu_retain(values[0]);
    if (same_shape_of_nest(n, values) != MU_OK)
        return NULL;
    const mu_value *first = values[0];
    if (first->kind != MU_VALUE_LIST && first->kind != MU_VALUE_MAP)
        return mu__value_container(kind, n, values, NULL);
    mu_value **items = mu__calloc((size_t)first->n + 1, sizeof *items);
    mu_value **column = mu__calloc((size_t)n, sizeof *column);
    for (int k = 0; items && column && k < first->n; k++) {
        for (int r = 0; r < n; r++)
            column[r] = values[r]->items[index_of(first, k, values[r])];
        items[k] = mu__regroup_as(kind, always, n, column);
    }
    mu__free(column);
    return build(first->kind, first->n, items, first->keys);
}

mu_value *mu__regroup(int n, mu_value *const *values) { return mu__regroup_as(MU_VALUE_PER_REPLICA, false, n, values); }

mu_value *mu__select_mirrored(const mu_value *value, int i)
{
    if (value->kind == MU_VALUE_PER_REPLICA) {
        mu__error(MU_INVALID_ARGUMENT,
                  "a value that may differ between replicas is given where all must have the same; reduce it first");
        return NULL;
    }
    for (int k = 0; (value->kind == MU_VALUE_LIST || value->kind == MU_VALUE_MAP) && k < value->n; k++) {
        mu_value *part = mu__select_mirrored(value->items[k], i);
        if (!part)
            return NULL;
        mu_release(part);
    }
    return mu__select(value, i);
}
