// Variables as resources of a graph: makes them, reads and assigns them. variable_storage.c keeps their values.
//
// The strategy that made the variable defines reads and assignments in each context (cross-replica, replica, update);
// without a strategy there is one component and no rule.
#include "base/callback.h"
#include "graph/trace.h"
#include "graph/variables/variable_parts.h"

#include <muster/ops.h>

#include <stdarg.h>

static void variable_destroy(void *object)
{
    mu_variable *variable = object;
    mu_release(variable->deferred); // it knows the owner
    mu__variable_empty(variable);
    if (variable->slice)
        mu__free(variable->slice->full_name);
    mu__free(variable->slice);
    for (int i = 0; i < variable->n_shards && variable->shards; i++)
        mu_release(variable->shards[i]);
    mu__free(variable->shards);
    if ((variable->resource.home || variable->resource.per_worker) && variable->resource.kind->forget)
        variable->resource.kind->forget(&variable->resource);
    mu__free(variable->resource.name);
    mu_release(variable->owner);
    mu_release(variable->constraint);
    mu_release(variable->resource.home);
}

mu_type mu__variable_type = {.name = "variable", .destroy = variable_destroy};

mu_variable *mu__variable_make(const mu_variable_args *args, mu_tensor *value, int n_components)
{
    mu_variable *variable = mu__new(&mu__variable_type, sizeof *variable);
    if (!variable)
        return NULL;
    variable->resource.kind = &mu__variable_kind;
    variable->resource.spec = mu__spec_of(value);
    variable->resource.name = mu__strdup(args->name ? args->name : "Variable");
    variable->synchronization = args->synchronization;
    variable->aggregation = args->aggregation;
    variable->trainable =
        args->trainable || (!args->not_trainable && args->synchronization != MU_SYNCHRONIZATION_ON_READ);
    if (!variable->resource.name || mu__variable_fill(variable, n_components, value) != MU_OK) {
        mu_release(variable);
        return NULL;
    }
    return variable;
}

mu_status mu__variable_set_slice(mu_variable *variable, const char *full_name, const mu_shape *full_shape,
                                 int64_t offset)
{
    mu_slice_info *slice = mu__calloc(1, sizeof *slice);
    char *name = mu__strdup(full_name);
    if (!slice || !name) {
        mu__free(slice);
        mu__free(name);
        return MU_RESOURCE_EXHAUSTED;
    }
    *slice = (mu_slice_info){.full_name = name, .full_shape = *full_shape, .offset = offset};
    variable->slice = slice;
    return MU_OK;
}

static mu_status check_initial(const mu_variable_args *args)
{
    if (!args->initial_value)
        return mu__error(MU_INVALID_ARGUMENT, "variable '%s': %s", args->name ? args->name : "Variable",
                         args->initial_value_fn ? "initial_value_fn returned NULL"
                                                : "initial_value is NULL; give a tensor");
    if (args->initial_value->node)
        return mu__error(
            MU_FAILED_PRECONDITION,
            "variable '%s': the initial value is a symbolic tensor of the trace in progress; make the variable outside "
            "the function, from a constant, or with .initial_value_fn, which runs eagerly",
            args->name ? args->name : "Variable");
    return MU_OK;
}

static mu_status check_args(const mu_variable_args *args)
{
    if (args->initial_value && args->initial_value_fn)
        return mu__error(MU_INVALID_ARGUMENT, "variable '%s': initial_value and initial_value_fn are both set; set one",
                         args->name ? args->name : "Variable");
    if ((unsigned)args->synchronization > MU_SYNCHRONIZATION_ON_READ)
        return mu__error(MU_INVALID_ARGUMENT,
                         "variable '%s': synchronization %d is none of AUTO 0, NONE 1, ON_WRITE 2, ON_READ 3",
                         args->name ? args->name : "Variable", (int)args->synchronization);
    if ((unsigned)args->aggregation > MU_AGGREGATION_ONLY_FIRST_REPLICA)
        return mu__error(MU_INVALID_ARGUMENT,
                         "variable '%s': aggregation %d is none of NONE 0, SUM 1, MEAN 2, ONLY_FIRST_REPLICA 3",
                         args->name ? args->name : "Variable", (int)args->aggregation);
    if (args->per_worker_variable && !mu__context()->scope)
        return mu__error(MU_INVALID_ARGUMENT,
                         "variable '%s': per_worker_variable needs the scope of a strategy with parameter servers",
                         args->name ? args->name : "Variable");
    if (args->trainable && args->not_trainable)
        return mu__error(MU_INVALID_ARGUMENT, "variable '%s': trainable and not_trainable are both set; set one",
                         args->name ? args->name : "Variable");
    if (!mu__trace_may_make_variables())
        return mu__error(MU_FAILED_PRECONDITION,
                         "variable '%s' is made in a later trace of a function, but only the first may make variables; "
                         "make it once, before the function, and keep it",
                         args->name ? args->name : "Variable");
    return args->initial_value_fn ? MU_OK : check_initial(args);
}

// Makes the variable; nothing in it is part of a trace in progress.
static mu_variable *make_eagerly(mu_variable_args *args)
{
    struct mu_scope *scope = mu__context()->scope;
    if (args->initial_value_fn) {
        MU_CALLBACK("an initial value's function", args->initial_value = args->initial_value_fn(args->arg));
        if (mu__pending() || check_initial(args) != MU_OK)
            return NULL;
    }
    return scope ? scope->make_variable(scope, args) : mu__variable_make(args, args->initial_value, 1);
}

mu_variable *mu_variable_new_with(const mu_variable_args *given)
{
    mu_variable_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_variable_new") != MU_OK ||
        check_args(&args) != MU_OK)
        return NULL;
    const mu_suspended suspended = mu__trace_suspend();
    mu_variable *variable = make_eagerly(&args);
    mu__trace_resume(suspended);
    return mu__give(variable);
}

const char *mu_variable_name(const mu_variable *variable) { return variable ? variable->resource.name : NULL; }

mu_dtype mu_variable_dtype(const mu_variable *variable)
{
    return variable ? variable->resource.spec.dtype : MU_DTYPE_DEFAULT;
}

mu_shape mu_variable_shape(const mu_variable *variable)
{
    return variable ? variable->resource.spec.shape : (mu_shape){.rank = -1};
}

bool mu_variable_is_trainable(const mu_variable *variable) { return variable && variable->trainable; }

mu_variable_synchronization mu_variable_synchronization_of(const mu_variable *variable)
{
    return variable ? variable->synchronization : MU_SYNCHRONIZATION_AUTO;
}

mu_variable_aggregation mu_variable_aggregation_of(const mu_variable *variable)
{
    return variable ? variable->aggregation : MU_AGGREGATION_NONE;
}

// ---- Parts --------------------------------------------------------------------------------------

mu_tensor *mu__rows_of(mu_tensor *value, int64_t begin, int64_t n)
{
    int64_t begins[MU_MAX_RANK] = {begin}, sizes[MU_MAX_RANK] = {n};
    for (int i = 1; value && i < value->shape.rank; i++)
        sizes[i] = -1;
    return mu_slice(value, begins, sizes);
}

mu_tensor *mu__rows_of_part(const mu_variable *part, mu_tensor *value)
{
    return mu__rows_of(value, part->slice->offset, part->resource.spec.shape.dims[0]);
}

// In a trace the assignments to the parts get the whole variable's name (mu_node.name).
static mu_status name_update(const mu_variable *variable)
{
    const mu_graph_trace *trace = (const mu_graph_trace *)mu__context()->trace;
    mu_node *last = trace && trace->graph->nodes.n > 0 ? trace->graph->nodes.items[trace->graph->nodes.n - 1] : NULL;
    if (!last || last->name || !(last->flags & MU_OP_WRITES))
        return MU_OK;
    last->name = mu__arena_strdup(&trace->graph->arena, variable->resource.name);
    return last->name ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

mu_status mu__update_parts(mu_variable *variable, mu_update update, mu_tensor *value,
                           mu_status (*update_part)(mu_variable *part, mu_update update, mu_tensor *rows))
{
    for (int i = 0; i < variable->n_shards; i++) {
        mu_tensor *rows = mu__rows_of_part(variable->shards[i], value);
        MU_TRY(rows ? update_part(variable->shards[i], update, rows) : mu_error_code());
        MU_TRY(name_update(variable));
    }
    return MU_OK;
}

// ---- Reads and writes ---------------------------------------------------------------------------

mu_tensor *mu__variable_read(mu_variable *variable)
{
    mu_resource *resource = &variable->resource;
    mu_tensor *value = NULL;
    return mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, &resource, &value) == MU_OK ? value : NULL;
}

mu_status mu__variable_update(mu_variable *variable, mu_update update, mu_tensor *value)
{
    static const mu_op *const ops[] = {&mu_op_assign_variable, &mu_op_assign_add_variable, &mu_op_assign_sub_variable};
    mu_resource *resource = &variable->resource;
    if (variable->n_shards > 0)
        return mu__update_parts(variable, update, value, mu__variable_update);
    return mu__apply(ops[update], NULL, 1, &value, 1, &resource, NULL);
}

mu_tensor *mu__autocast(const mu_variable *variable, mu_tensor *value)
{
    const mu_dtype dtype = (mu_dtype)mu__context()->autocast;
    return value && variable->autocast && dtype != MU_DTYPE_DEFAULT ? mu_cast(value, dtype) : value;
}

static mu_tensor *read_as_it_is(mu_variable *variable)
{
    mu_tensor *cached = mu__cached_read(variable);
    if (cached)
        return cached;
    return mu__cache_read(variable, variable->rules ? variable->rules->read(variable) : mu__variable_read(variable));
}

mu_tensor *mu_variable_read(mu_variable *variable)
{
    if (mu__pending())
        return NULL;
    if (variable)
        return mu__autocast(variable, read_as_it_is(variable));
    mu__error(MU_INVALID_ARGUMENT, "mu_variable_read: the variable is NULL");
    return NULL;
}

mu_tensor *mu__variable_gather(mu_variable *variable, mu_tensor *indices)
{
    mu_resource *resource = &variable->resource;
    mu_tensor *rows = NULL;
    if (!resource->home && !resource->lock)
        return mu_gather(read_as_it_is(variable), indices, 0, 0);
    return mu__apply(&mu_op_gather_variable, NULL, 1, &indices, 1, &resource, &rows) == MU_OK ? rows : NULL;
}

static mu_status update(mu_variable *variable, mu_update kind, mu_tensor *value, const char *function)
{
    if (mu__pending())
        return mu_error_code();
    if (!variable || !value)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", function, variable ? "value" : "variable");
    if (value->dtype != variable->resource.spec.dtype ||
        !mu__shape_compatible(&value->shape, &variable->resource.spec.shape)) {
        char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the value is %s%s, but variable '%s' is %s%s; give it that type and shape (mu_cast, "
                         "mu_reshape, mu_transpose)",
                         function, mu_dtype_name(value->dtype), mu__shape_text(&value->shape, seen),
                         variable->resource.name, mu_dtype_name(variable->resource.spec.dtype),
                         mu__shape_text(&variable->resource.spec.shape, wanted));
    }
    return variable->rules ? variable->rules->update(variable, kind, value)
                           : mu__variable_update(variable, kind, value);
}

mu_status mu_variable_assign(mu_variable *variable, mu_tensor *value)
{
    return update(variable, MU_UPDATE_ASSIGN, value, "mu_variable_assign");
}

mu_status mu_variable_assign_add(mu_variable *variable, mu_tensor *delta)
{
    return update(variable, MU_UPDATE_ADD, delta, "mu_variable_assign_add");
}

mu_status mu_variable_assign_sub(mu_variable *variable, mu_tensor *delta)
{
    return update(variable, MU_UPDATE_SUB, delta, "mu_variable_assign_sub");
}

// ---- Values of variables ------------------------------------------------------------------------

mu_variable *mu_value_variable(const mu_value *value)
{
    if (mu__need(value, "mu_value_variable: the value") != MU_OK)
        return NULL;
    if (value->kind == MU_VALUE_VARIABLE)
        return (mu_variable *)value->leaf;
    mu__error(MU_INVALID_ARGUMENT, "mu_value_variable: the value is %s, not a variable",
              value->kind == MU_VALUE_TENSOR ? "a tensor" : "a container");
    return NULL;
}

mu_value *mu_variables_of(int n, mu_variable *const *variables)
{
    if (mu__pending() || (n > 0 && mu__need(variables, "mu_variables: the list") != MU_OK))
        return NULL;
    if (n < 0) {
        mu__error(MU_INVALID_ARGUMENT, "mu_variables_of: n is %d; give the number of variables, 0 or more", n);
        return NULL;
    }
    mu_value **items = mu__calloc((size_t)n + 1, sizeof *items);
    mu_value *list = NULL;
    for (int i = 0; items && i < n; i++) {
        if (!variables[i]) {
            mu__error(MU_INVALID_ARGUMENT, "mu_variables: element %d of %d is NULL", i, n);
            goto out;
        }
        if (!mu__is(variables[i], &mu__variable_type)) {
            mu__error(MU_INVALID_ARGUMENT,
                      "mu_variables: element %d of %d is a %s; give variables only (mu_list takes tensors and values)",
                      i, n, variables[i]->resource.object.type->name);
            goto out;
        }
        items[i] = variables[i]->n_shards > 0 ? mu_variables_of(variables[i]->n_shards, variables[i]->shards)
                                              : mu__give(mu__value_leaf(MU_VALUE_VARIABLE, variables[i]));
        if (!items[i])
            goto out;
    }
    if (items)
        list = mu__give(mu__value_container(MU_VALUE_LIST, n, items, NULL));
out:
    mu__free(items);
    return list;
}

mu_value *mu_variables(mu_variable *first, ...)
{
    mu_variable *variables[256];
    int n = 0;
    va_list rest;
    va_start(rest, first);
    for (mu_variable *at = first; (void *)at != MU_END; at = va_arg(rest, mu_variable *)) {
        if (n == (int)MU_COUNT(variables)) {
            va_end(rest);
            mu__error(MU_INVALID_ARGUMENT, "mu_variables: more than %d arguments; does the list end with MU_END?", n);
            return NULL;
        }
        variables[n++] = at;
    }
    va_end(rest);
    return mu_variables_of(n, variables);
}
