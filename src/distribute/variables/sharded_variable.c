// Sharded variables: made of parts, read by concatenation, assigned part by part.
//
// A sharded variable is a variable without storage. Its rules go through the public functions of its parts, so each
// part may live wherever its own strategy keeps it. An update is not one atomic change: parts on servers are all
// requested at the same time (in a function by the engine that runs it), others are updated one after the other.
#include "distribute/variables/sharded_variable.h"

#include "base/callback.h"
#include "distribute/strategies/parameter_server.h"
#include "graph/trace.h"
#include "graph/variables/variable_parts.h"
#include "rpc/services/service.h"

#include <muster/ops.h>

// ---- The resource -------------------------------------------------------------------------------

static mu_status acquire(mu_resource *resource, int replica, const mu_memory_space *space, mu_access access,
                         mu_buffer **out)
{
    (void)replica, (void)space, (void)access, (void)out;
    return mu__error(MU_FAILED_PRECONDITION, "variable '%s' is sharded and has no storage of its own; use its parts",
                     resource->name);
}

static const mu_resource_kind sharded_kind = {.name = "sharded_variable", .acquire = acquire, .opaque = true};

static mu_tensor *sharded_read(mu_variable *variable)
{
    mu_tensor **parts = mu__calloc((size_t)variable->n_shards, sizeof *parts);
    for (int i = 0; parts && i < variable->n_shards; i++)
        parts[i] = mu_variable_read(variable->shards[i]);
    mu_tensor *whole = parts && !mu__pending() ? mu_concat(variable->n_shards, parts, 0) : NULL;
    mu__free(parts);
    return whole;
}

// Whether all parts can be asked at the same time: a trace and a tape note one op after the other, and the rules of a
// part that is in doubt note that it has a value again.
static bool can_ask_all(const mu_variable *variable)
{
    bool served = !mu__context()->trace && !mu__context()->tape && !mu__context()->replica;
    for (int i = 0; i < variable->n_shards; i++)
        served =
            served && variable->shards[i]->resource.kind == &mu__remote_variable_kind && !variable->shards[i]->in_doubt;
    return served;
}

static mu_status ask_all(const mu_variable *variable, mu_update kind, mu_tensor *value)
{
    static const mu_op *const ops[] = {&mu_op_assign_variable, &mu_op_assign_add_variable, &mu_op_assign_sub_variable};
    const int n = variable->n_shards;
    mu_resource **parts = mu__calloc((size_t)n, sizeof *parts);
    mu_tensor **rows = mu__calloc((size_t)n, sizeof *rows);
    for (int i = 0; parts && rows && i < n; i++) {
        parts[i] = &variable->shards[i]->resource;
        rows[i] = mu__rows_of_part(variable->shards[i], value);
    }
    const mu_status status = mu__pending() ? mu_error_code() : mu__remote_update_each(ops[kind], n, parts, rows);
    mu__free(parts);
    mu__free(rows);
    return status;
}

static mu_status update_part(mu_variable *part, mu_update kind, mu_tensor *rows)
{
    static mu_status (*const updates[])(mu_variable *, mu_tensor *) = {mu_variable_assign, mu_variable_assign_add,
                                                                       mu_variable_assign_sub};
    return updates[kind](part, rows);
}

static mu_status sharded_update(mu_variable *variable, mu_update kind, mu_tensor *value)
{
    if (can_ask_all(variable))
        return ask_all(variable, kind, value);
    return mu__update_parts(variable, kind, value, update_part);
}

static const mu_variable_rules sharded_rules = {
    .read = sharded_read, .update = sharded_update, .scatter = mu__sharded_scatter};

// ---- Made of existing variables -----------------------------------------------------------------

static mu_status check_part(const mu_variable *first, const mu_variable *part, int i)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (!part || !mu__is(part, &mu__variable_type) || part->n_shards > 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_sharded_variable_of: element %d is %s; give plain variables only", i,
                         !part                              ? "NULL"
                         : mu__is(part, &mu__variable_type) ? "sharded itself"
                                                            : "not a variable");
    mu_shape shape = part->resource.spec.shape;
    const mu_spec *like = &first->resource.spec;
    if (part->slice)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_sharded_variable_of: '%s' is a part of '%s' already; make a new variable for each part",
                         part->resource.name, part->slice->full_name);
    if (shape.rank < 1)
        return mu__error(MU_INVALID_ARGUMENT, "mu_sharded_variable_of: '%s' is a scalar, which has no rows",
                         part->resource.name);
    mu__shape_text(&shape, seen);
    shape.dims[0] = like->shape.dims[0];
    if (part->resource.spec.dtype == like->dtype && mu__shape_equal(&shape, &like->shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_sharded_variable_of: '%s' is %s%s and '%s' is %s%s; parts agree in type and in every "
                     "dimension but the first",
                     first->resource.name, mu_dtype_name(like->dtype), mu__shape_text(&like->shape, wanted),
                     part->resource.name, mu_dtype_name(part->resource.spec.dtype), seen);
}

static mu_status check_parts(int n, mu_variable *const *variables)
{
    if (n < 1 || !variables)
        return mu__error(MU_INVALID_ARGUMENT, "mu_sharded_variable_of: no variables are given; give one or more");
    for (int i = 0; i < n; i++) {
        MU_TRY(check_part(variables[0], variables[i], i));
        for (int k = 0; k < i; k++)
            if (variables[k] == variables[i])
                return mu__error(MU_INVALID_ARGUMENT,
                                 "mu_sharded_variable_of: '%s' is given twice; make a new variable for each part",
                                 variables[i]->resource.name);
    }
    return MU_OK;
}

static mu_status set_slices(mu_variable *whole)
{
    int64_t offset = 0;
    for (int i = 0; i < whole->n_shards; i++) {
        MU_TRY(mu__variable_set_slice(whole->shards[i], whole->resource.name, &whole->resource.spec.shape, offset));
        offset += whole->shards[i]->resource.spec.shape.dims[0];
    }
    return MU_OK;
}

// The caller owns the result.
static mu_variable *new_sharded(int n, mu_variable *const *variables, const char *name)
{
    mu_variable *whole = mu__new(&mu__variable_type, sizeof *whole);
    if (!whole)
        return NULL;
    whole->resource.kind = &sharded_kind;
    whole->resource.spec = variables[0]->resource.spec;
    whole->resource.spec.shape.dims[0] = 0;
    whole->resource.name = mu__strdup(name);
    whole->rules = &sharded_rules;
    whole->trainable = variables[0]->trainable;
    whole->synchronization = variables[0]->synchronization;
    whole->aggregation = variables[0]->aggregation;
    whole->owner = mu_retain(variables[0]->owner);
    whole->shards = mu__calloc((size_t)n, sizeof *whole->shards);
    for (int i = 0; whole->shards && i < n; i++) {
        whole->shards[whole->n_shards++] = mu_retain(variables[i]);
        whole->resource.spec.shape.dims[0] += variables[i]->resource.spec.shape.dims[0];
    }
    if (whole->resource.name && whole->shards && mu__shape_check(&whole->resource.spec.shape, name) == MU_OK &&
        set_slices(whole) == MU_OK)
        return whole;
    mu_release(whole);
    return NULL;
}

mu_variable *mu_sharded_variable_of(int n, mu_variable *const *variables, const char *name)
{
    if (mu__pending() || check_parts(n, variables) != MU_OK)
        return NULL;
    return mu__give(new_sharded(n, variables, name ? name : "ShardedVariable"));
}

// ---- Made by a partitioner ----------------------------------------------------------------------

typedef struct making {
    mu_sharded_variable_args args;
    const char *name;
    mu_spec spec;     // of the whole variable
    mu_tensor *whole; // its value; NULL: ask the function for each part
    int64_t parts;
} making;

static mu_tensor *ask_function(const making *m, const mu_partition_info *info)
{
    const char *before = mu__callback_enter("an initial value's function");
    mu_tensor *value = m->args.initial_value_fn(info, m->args.arg);
    mu__callback_leave(before);
    if (!value && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT, "variable '%s': initial_value_fn returned NULL; return a tensor", m->name);
    return mu__pending() ? NULL : value;
}

static mu_status find_spec(making *m)
{
    const mu_sharded_variable_args *args = &m->args;
    if (args->initial_value && args->initial_value_fn)
        return mu__error(MU_INVALID_ARGUMENT,
                         "variable '%s': initial_value and initial_value_fn are both given; give one", m->name);
    if (!args->initial_value && !args->initial_value_fn)
        return mu__error(MU_INVALID_ARGUMENT,
                         "variable '%s': initial_value is NULL; give a tensor, or initial_value_fn", m->name);
    m->whole = args->initial_value;
    if (args->initial_value_fn && args->shape && args->dtype != MU_DTYPE_DEFAULT) {
        m->spec = (mu_spec){.dtype = args->dtype, .shape = *args->shape};
        return mu__shape_check(args->shape, m->name);
    }
    if (!m->whole && !(m->whole = ask_function(m, NULL)))
        return mu_error_code();
    m->spec = mu__spec_of(m->whole);
    return MU_OK;
}

static void warn_of_size(const making *m)
{
    enum { LARGE = 1000000000 };
    if (mu__elements(&m->spec.shape) > LARGE)
        mu__log(MU_LOG_WARNING,
                "variable '%s': its initial value has %lld elements and is made whole; an initial_value_fn that "
                "returns one part at a time needs less memory",
                m->name, (long long)mu__elements(&m->spec.shape));
}

// The rows of part i of an initial value, which is the part's own or the whole.
static mu_tensor *part_value(const making *m, int64_t i)
{
    mu_partition_info info = {.full_shape = m->spec.shape, .shape = m->spec.shape, .dtype = m->spec.dtype};
    const int64_t begin = m->spec.shape.rank > 0 ? mu__div_begin(m->spec.shape.dims[0], m->parts, i) : 0;
    if (m->parts > 1) {
        info.shape.dims[0] = mu__div_begin(m->spec.shape.dims[0], m->parts, i + 1) - begin;
        info.offset[0] = begin;
    }
    mu_tensor *value = m->whole ? m->whole : ask_function(m, &info);
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (!value)
        return NULL;
    if (value->dtype == info.dtype && mu__shape_equal(&value->shape, &info.shape))
        return value;
    if (value->dtype == info.dtype && mu__shape_equal(&value->shape, &info.full_shape)) {
        warn_of_size(m);
        return mu__rows_of(value, begin, info.shape.dims[0]);
    }
    mu__error(MU_INVALID_ARGUMENT,
              "variable '%s': initial_value_fn returned %s%s for part %lld; return the part, %s%s, or the whole value",
              m->name, mu_dtype_name(value->dtype), mu__shape_text(&value->shape, seen), (long long)i,
              mu_dtype_name(info.dtype), mu__shape_text(&info.shape, wanted));
    return NULL;
}

static mu_variable *make_part(const making *m, int64_t i)
{
    const mu_sharded_variable_args *args = &m->args;
    char *name = m->parts > 1 ? mu__sprintf("%s/part_%lld", m->name, (long long)i) : mu__strdup(m->name);
    mu_tensor *value = name ? part_value(m, i) : NULL;
    mu_variable *part = value ? mu_variable_new(value, name, .not_trainable = args->not_trainable,
                                                .synchronization = args->synchronization,
                                                .aggregation = args->aggregation, .trainable = args->trainable)
                              : NULL;
    mu__free(name);
    return part;
}

static mu_status make_parts(const making *m, mu_variable **parts)
{
    mu_scope_change scope;
    mu__scope_for_parts(&scope);
    for (int64_t i = 0; i < m->parts && !mu__pending(); i++)
        parts[i] = make_part(m, i);
    mu__scope_restore(&scope);
    return mu_error_code();
}

// All parts in a pool of their own; the whole retains them.
static mu_variable *make_all(making *m)
{
    mu_pool *pool = mu_pool_open();
    mu_variable **parts = NULL, *whole = NULL;
    if (!pool || find_spec(m) != MU_OK)
        goto out;
    if ((m->parts = mu__partition_count(m->args.partitioner, &m->spec, m->name)) < 1)
        goto out;
    if (!(parts = mu__calloc((size_t)m->parts, sizeof *parts)))
        goto out;
    if (make_parts(m, parts) != MU_OK)
        goto out;
    whole = m->parts == 1 ? parts[0] : mu__give(new_sharded((int)m->parts, parts, m->name));
    mu__pool_return(pool, whole);
out:
    mu__free(parts);
    mu_pool_close(pool);
    return whole;
}

mu_variable *mu_sharded_variable_new_with(const mu_sharded_variable_args *given)
{
    making m = {0};
    if (mu__pending() || mu__args_copy(&m.args, sizeof m.args, given, "mu_sharded_variable_new") != MU_OK)
        return NULL;
    m.name = m.args.name ? m.args.name : "Variable";
    const mu_strategy *strategy = mu__current_strategy();
    if (!m.args.partitioner && strategy && strategy->servers)
        m.args.partitioner = strategy->servers->partitioner;
    if (!mu__trace_may_make_variables()) {
        mu__error(MU_FAILED_PRECONDITION,
                  "variable '%s' is made in a later trace of a function, but only the first may make variables; make "
                  "it once, before the function, and keep it",
                  m.name);
        return NULL;
    }
    if (m.args.initial_value && m.args.initial_value->node) {
        mu__error(MU_FAILED_PRECONDITION,
                  "variable '%s': the initial value is a symbolic tensor of the trace in progress; make the variable "
                  "outside the function, or from a constant",
                  m.name);
        return NULL;
    }
    mu_suspended suspended = mu__trace_suspend();
    mu_variable *variable = make_all(&m);
    mu__trace_resume(suspended);
    return variable;
}

// ---- Parts --------------------------------------------------------------------------------------

int mu_variable_shard_count(const mu_variable *variable) { return variable ? variable->n_shards : 0; }

static bool has_shard(const mu_variable *variable, int i, const char *function)
{
    if (!variable)
        mu__error(MU_INVALID_ARGUMENT, "%s: the variable is NULL", function);
    else if (i < 0 || i >= variable->n_shards)
        mu__error(MU_OUT_OF_RANGE, "%s: part %d of '%s', which has %d parts", function, i, variable->resource.name,
                  variable->n_shards);
    return variable && i >= 0 && i < variable->n_shards;
}

mu_variable *mu_variable_shard(mu_variable *variable, int i)
{
    return has_shard(variable, i, "mu_variable_shard") ? variable->shards[i] : NULL;
}

int64_t mu_variable_shard_offset(const mu_variable *variable, int i)
{
    return has_shard(variable, i, "mu_variable_shard_offset") ? variable->shards[i]->slice->offset : -1;
}
