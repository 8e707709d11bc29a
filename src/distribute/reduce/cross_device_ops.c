// Direct use of cross-device ops: reduce, batch_reduce and broadcast of TensorFlow's CrossDeviceOps.
//
// A value has one component per device. All devices share one memory, so a destination only determines the number of
// copies. This file does not depend on strategies.
#include "distribute/distribute.h"

#include <muster/ops.h>

// The number of devices that a value is on; -1 if it cannot be on devices.
static int devices_of(const mu_value *value)
{
    if (value->kind == MU_VALUE_VARIABLE)
        return ((const mu_variable *)value->leaf)->n_components;
    if (value->kind == MU_VALUE_PER_REPLICA || value->kind == MU_VALUE_MIRRORED)
        return value->n;
    return value->kind == MU_VALUE_TENSOR || value->kind == MU_VALUE_SLICES ? 1 : -1;
}

static mu_status check(const mu_cross_device_ops *ops, mu_reduce_op op, const mu_value *value, const mu_value *like,
                       const char *function)
{
    MU_TRY(mu__need_value(value, function));
    MU_TRY(mu__need_value(like, function));
    MU_TRY(mu__need_reduce_op(op, function));
    if (!ops || !value || !like)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", function,
                         !ops     ? "way of reducing"
                         : !value ? "value"
                                  : "destination");
    if (devices_of(value) < 1 || devices_of(like) < 1)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: the %s is a list or a map, or empty; give a tensor, a per-replica or mirrored value, or a variable",
            function, devices_of(value) < 1 ? "value" : "destination");
    return MU_OK;
}

static bool is_sparse(const mu_value *value)
{
    return value->kind == MU_VALUE_SLICES || (value->n > 0 && value->items[0]->kind == MU_VALUE_SLICES);
}

// Concatenates slices; for MEAN it divides the values.
static mu_value *reduce_sparse(mu_reduce_op op, const mu_value *value, const mu_parts_name *name)
{
    const int n = devices_of(value);
    mu_tensor *parts[3][MU_MAX_REPLICAS], *whole[2];
    const mu_value *first = value->kind == MU_VALUE_SLICES ? value : value->items[0];
    for (int i = 0; i < n; i++) {
        const mu_value *slices = value->kind == MU_VALUE_SLICES ? value : value->items[i];
        for (int k = 0; k < 3; k++)
            if (!(parts[k][i] = mu_at(slices, k)))
                return NULL;
    }
    if (mu__same_dense_shapes(name, n, parts[2]) != MU_OK)
        return NULL;
    for (int k = 0; k < 2; k++)
        if (!(whole[k] = mu_concat(n, parts[k], 0)))
            return NULL;
    if (op == MU_MEAN && !(whole[0] = mu__mean_of(whole[0], n)))
        return NULL;
    mu_value *joined[] = {mu_of(whole[0]), mu_of(whole[1]), first->items[2]};
    return mu__pending() ? NULL : mu__give(mu__value_container(MU_VALUE_SLICES, 3, joined, NULL));
}

static mu_status dense_parts(const mu_value *value, const mu_parts_name *name, mu_tensor **parts)
{
    const int n = devices_of(value);
    for (int i = 0; i < n; i++) {
        parts[i] = value->kind == MU_VALUE_VARIABLE ? mu__variable_component((mu_variable *)value->leaf, i)
                   : value->leaf                    ? mu_value_tensor(value)
                                                    : mu_value_tensor(value->items[i]);
        if (!parts[i])
            return mu_error_code();
    }
    return mu__same_parts(name, n, parts);
}

static mu_value *reduce_one(const mu_cross_device_ops *ops, mu_reduce_op op, const mu_value *value,
                            const mu_parts_name *name)
{
    mu_tensor *parts[MU_MAX_REPLICAS];
    if (is_sparse(value))
        return reduce_sparse(op, value, name);
    if (dense_parts(value, name, parts) != MU_OK)
        return NULL;
    mu_tensor *reduced = mu__cross_device_reduce(ops, op, devices_of(value), parts);
    return reduced ? mu_of(reduced) : NULL;
}

mu_value *mu_cross_device_reduce(mu_cross_device_ops *ops, mu_reduce_op op, mu_value *value, mu_value *like)
{
    static const mu_parts_name name = {.what = "mu_cross_device_reduce", .whose = "component"};
    if (mu__pending() || check(ops, op, value, like, name.what) != MU_OK)
        return NULL;
    return mu__mirror(reduce_one(ops, op, value, &name), devices_of(like));
}

static const char batch_name[] = "mu_cross_device_batch_reduce";

// Dense values on the same number of devices are reduced together, so that they can be packed.
static mu_status reduce_dense(const mu_cross_device_ops *ops, mu_reduce_op op, const mu_value *values, mu_value **out)
{
    const int n = values->n > 0 ? devices_of(values->items[0]) : 0;
    mu_tensor **parts = mu__calloc((size_t)values->n * (size_t)(n + 1) + 1, sizeof *parts),
              **reduced = parts + values->n * n;
    bool together = n > 0;
    for (int i = 0; i < values->n; i++)
        together &= devices_of(values->items[i]) == n && !is_sparse(values->items[i]);
    mu_status status = parts ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; together && status == MU_OK && i < values->n; i++)
        status = dense_parts(values->items[i], &(mu_parts_name){batch_name, "component", i + 1}, parts + i * n);
    if (together && status == MU_OK)
        status = mu__cross_device_batch(ops, op, values->n, n, parts, reduced);
    for (int i = 0; together && status == MU_OK && i < values->n; i++)
        status = (out[i] = mu_of(reduced[i])) ? MU_OK : mu_error_code();
    mu__free(parts);
    return status;
}

mu_value *mu_cross_device_batch_reduce(mu_cross_device_ops *ops, mu_reduce_op op, mu_value *values, mu_value *likes)
{
    if (mu__pending() || mu__need_value(values, batch_name) != MU_OK || mu__need_value(likes, batch_name) != MU_OK)
        return NULL;
    if (!values || values->kind != MU_VALUE_LIST || !likes || likes->kind != MU_VALUE_LIST || likes->n != values->n) {
        mu__error(MU_INVALID_ARGUMENT, "%s: expected a list of values and a list of as many destinations", batch_name);
        return NULL;
    }
    for (int i = 0; i < values->n; i++)
        if (check(ops, op, values->items[i], likes->items[i], batch_name) != MU_OK)
            return NULL;
    mu_value **items = mu__calloc((size_t)values->n + 1, sizeof *items), *list = NULL;
    bool whole = items && reduce_dense(ops, op, values, items) == MU_OK;
    for (int i = 0; whole && i < values->n; i++) {
        const mu_parts_name name = {batch_name, "component", i + 1};
        items[i] =
            mu__mirror(items[i] ? items[i] : reduce_one(ops, op, values->items[i], &name), devices_of(likes->items[i]));
        whole = items[i] != NULL;
    }
    if (whole)
        list = mu__give(mu__value_container(MU_VALUE_LIST, values->n, items, NULL));
    mu__free(items);
    return list;
}

mu_value *mu_cross_device_broadcast(mu_cross_device_ops *ops, mu_tensor *tensor, mu_value *like)
{
    mu_value *value = mu__pending() || !tensor ? NULL : mu_of(tensor);
    if (mu__pending() || check(ops, MU_SUM, value, like, "mu_cross_device_broadcast") != MU_OK)
        return NULL;
    mu_value *mirrored = mu__mirror(value, devices_of(like));
    return mirrored && devices_of(like) == 1 ? mu__give(mu__value_container(MU_VALUE_MIRRORED, 1, &mirrored, NULL))
                                             : mirrored;
}
