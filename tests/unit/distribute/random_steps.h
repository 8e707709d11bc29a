// Random training loops without a model: steps, each a list of instructions that every replica carries out, and what is
// done in cross-replica context between them.
//
// A program has three variables of any synchronization and aggregation, and registers that hold tensors of the replica.
// What it gives is noted as numbers: what each replica ends with, and what all see. It must not know how its steps are
// run.
#ifndef MU_TEST_RANDOM_STEPS_H
#define MU_TEST_RANDOM_STEPS_H

#include <muster.h>

#include <string.h>

enum {
    VARIABLES = 3,
    REGISTERS = 4,
    MOST_INSTRUCTIONS = 8,
    STEPS = 3,
    PASS_ON = 10,
    MOST_NOTED = 500,
    RUN_REPLICAS = 4
};

typedef struct instruction {
    int kind, how; // what it does, and which of several like it
    int to, a, b;  // registers
    int variable;
    double number;
} instruction;

typedef struct program {
    bool on_workers; // where a tensor from outside, in cross-replica context, is each worker's own
    mu_dtype dtype;
    int rank;
    int64_t dims[2];
    mu_variable_synchronization synchronization[VARIABLES];
    mu_variable_aggregation aggregation[VARIABLES];
    int n[STEPS];
    instruction at[STEPS][MOST_INSTRUCTIONS], between[STEPS];
} program;

// What a program gave. Numbers of one replica, or what is the same on all.
typedef struct noted {
    int n;
    double at[MOST_NOTED];
} noted;

typedef struct outcome {
    mu_status code;
    int step; // the one that failed
    char message[200];
    noted replica[RUN_REPLICAS], all;
} outcome;

// ---- The program that runs ----------------------------------------------------------------------

typedef struct run {
    const program *program;
    mu_strategy *strategy;
    int step;
    mu_variable *variables[VARIABLES];
    mu_tensor *outside; // made outside of the replicas' functions
    const instruction *merging, *body;
    int *reached; // how many instructions of the step were begun
} run;

static uint64_t drawn;

static int draw(int below)
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    drawn ^= drawn << 17;
    return (int)((drawn >> 20) % (uint64_t)below);
}

// In the program's type, whatever a mean made of it.
static mu_tensor *own_type(const run *r, mu_tensor *x)
{
    return x && mu_tensor_dtype(x) != r->program->dtype ? mu_cast(x, r->program->dtype) : x;
}

static mu_tensor *filled(const run *r, double number)
{
    return mu_fill(r->program->dtype, r->program->rank, r->program->dims, number);
}

static mu_tensor *id_of(const run *r) { return mu_add(filled(r, 0), mu_cast(mu_replica_id(), r->program->dtype)); }

// Adds up a tensor of any size, and spreads the sum over the program's shape.
static mu_tensor *spread(const run *r, mu_tensor *x)
{
    return x ? mu_add(filled(r, 0), own_type(r, mu_reduce_sum(x, MU_ALL_AXES))) : NULL;
}

static mu_tensor *kept_small(const run *r, mu_tensor *x)
{
    return x ? mu_minimum(mu_maximum(x, mu_constant(r->program->dtype, -60)), mu_constant(r->program->dtype, 60))
             : NULL;
}

static mu_value *variable_value(mu_variable *variable)
{
    mu_value *list = mu_variables(variable, MU_END);
    return list ? mu_value_at(list, 0) : NULL;
}

static mu_value *value_of(mu_tensor *x) { return x ? mu_of(x) : NULL; }

static mu_tensor *tensor_of(mu_value *x) { return x ? mu_value_tensor(x) : NULL; }

// A per-replica value of the replica's own rows: r + 1 of them if `uneven`.
static mu_value *own_rows(const run *r, bool uneven)
{
    mu_value *parts[RUN_REPLICAS];
    const int n = mu_num_replicas_in_sync(r->strategy) / mu_strategy_worker_count(r->strategy);
    const int first = mu_strategy_worker_index(r->strategy) * n;
    for (int i = 0; i < n; i++) {
        const int64_t dims[] = {uneven ? first + i + 1 : 2, 2};
        parts[i] = value_of(uneven ? mu_fill(r->program->dtype, 2, dims, first + i + 2) : filled(r, first + i + 5));
    }
    return mu_per_replica_of(r->strategy, n, parts);
}

// ---- In cross-replica context -------------------------------------------------------------------

typedef mu_status assign_fn(mu_variable *variable, mu_tensor *value);
typedef mu_status scatter_fn(mu_variable *variable, mu_tensor *indices, mu_tensor *values);
static assign_fn *const assignments[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};
static scatter_fn *const scatters[] = {mu_variable_scatter_add, mu_variable_scatter_sub, mu_variable_scatter_mul,
                                       mu_variable_scatter_max, mu_variable_scatter_min, mu_variable_scatter_update};

static mu_reduce_op op_of(const instruction *i) { return i->how & 1 ? MU_MEAN : MU_SUM; }

static mu_value *update_copy(mu_variable *variable, mu_value *arguments, void *arg)
{
    const run *r = arg;
    mu_tensor *x = mu_at(arguments, 0);
    if (r->merging->number < 0 && !r->program->on_workers) // another variable is this copy, too
        x = mu_add(x, mu_variable_read(r->variables[(r->merging->variable + 1) % VARIABLES]));
    assignments[r->merging->how % 3](variable, x);
    return NULL;
}

// Copies that differ are read as the first one, of each worker.
static bool may_differ(const run *r, int variable)
{
    const bool on_write = r->program->synchronization[variable] == MU_SYNCHRONIZATION_ON_WRITE;
    return r->program->on_workers &&
           r->program->aggregation[variable] == (on_write ? MU_AGGREGATION_NONE : MU_AGGREGATION_ONLY_FIRST_REPLICA);
}

static bool stays_equal(const run *r, int variable)
{
    return r->program->on_workers && r->program->synchronization[variable] == MU_SYNCHRONIZATION_ON_WRITE &&
           r->program->aggregation[variable] != MU_AGGREGATION_NONE;
}

static mu_value *update_by(const run *r, const instruction *i, mu_value *x)
{
    run own = *r;
    own.merging = i;
    if (stays_equal(r, i->variable))
        x = value_of(own_type(r, tensor_of(mu_reduce(r->strategy, MU_SUM, x))));
    mu_value *list = mu_list(x, MU_END);
    mu_update_variable(r->strategy, r->variables[i->variable], update_copy, &own, list);
    return mu_error_code() ? NULL : value_of(filled(r, 1));
}

static mu_value *assign_across(const run *r, const instruction *i, mu_value *x)
{
    mu_tensor *sum = own_type(r, tensor_of(mu_reduce(r->strategy, op_of(i), x)));
    assignments[i->how % 3](r->variables[i->variable], sum);
    return mu_error_code() ? NULL : value_of(sum);
}

static mu_value *read_across(const run *r, const instruction *i, mu_value *x)
{
    return may_differ(r, i->variable) ? x : value_of(own_type(r, mu_variable_read(r->variables[i->variable])));
}

static mu_value *reduce_across(const run *r, const instruction *i, mu_value *x)
{
    return value_of(own_type(r, tensor_of(mu_reduce(r->strategy, op_of(i), x))));
}

static mu_value *reduce_axis(const run *r, const instruction *i, mu_value *x)
{
    return value_of(spread(r, tensor_of(mu_reduce(r->strategy, op_of(i), x, i->how & 2 ? -1 : 0))));
}

static mu_value *reduce_to_own(const run *r, const instruction *i, mu_value *x)
{
    return mu_reduce_to(r->strategy, op_of(i), x, .like = x);
}

static mu_value *reduce_batch(const run *r, const instruction *i, mu_value *x)
{
    return mu_value_at(mu_batch_reduce_to(r->strategy, op_of(i), mu_list(x, x, MU_END), NULL), i->how & 1);
}

static mu_value *gather_across(const run *r, const instruction *i, mu_value *x)
{
    (void)i;
    return value_of(spread(r, tensor_of(mu_strategy_gather(r->strategy, x, 0))));
}

static mu_value *reduce_variable(const run *r, const instruction *i, mu_value *x)
{
    if (may_differ(r, i->variable))
        return x;
    return value_of(
        own_type(r, tensor_of(mu_reduce(r->strategy, op_of(i), variable_value(r->variables[i->variable])))));
}

static mu_value *reduce_outside(const run *r, const instruction *i, mu_value *x)
{
    (void)x;
    return value_of(own_type(
        r, tensor_of(mu_reduce(r->strategy, r->program->on_workers ? MU_MEAN : op_of(i), value_of(r->outside)))));
}

static mu_value *pass_on(const run *r, const instruction *i, mu_value *x)
{
    (void)r, (void)i;
    return x;
}

static mu_value *assign_plain(const run *r, const instruction *i, mu_value *x)
{
    assignments[i->how % 3](r->variables[i->variable], r->outside);
    return mu_error_code() ? NULL : x;
}

typedef mu_value *across_fn(const run *r, const instruction *i, mu_value *x);
static across_fn *const across[] = {update_by,       assign_across,  read_across,  reduce_across,
                                    reduce_axis,     reduce_to_own,  reduce_batch, gather_across,
                                    reduce_variable, reduce_outside, pass_on,      assign_plain};
static const char *const across_names[] = {"update",          "assign sum",     "read",  "reduce",
                                           "reduce axis",     "reduce_to",      "batch", "gather",
                                           "reduce variable", "reduce outside", "pass",  "assign outside"};

// ---- On a replica -------------------------------------------------------------------------------

static mu_value *merged(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    const run *r = arg;
    (void)strategy;
    return across[r->merging->to](r, r->merging, mu_value_at(arguments, 0));
}

// `to` of a merge's instruction is what is done; its result goes to register 0.
static mu_tensor *do_merge(run *r, const instruction *i, mu_tensor *const *x)
{
    r->merging = i;
    return own_type(r, tensor_of(mu_merge_call(merged, r, mu_list(x[i->a], MU_END))));
}

static mu_tensor *do_add(run *r, const instruction *i, mu_tensor *const *x)
{
    (void)r;
    return mu_add(x[i->a], x[i->b]);
}

static mu_tensor *do_scale(run *r, const instruction *i, mu_tensor *const *x)
{
    return mu_multiply(x[i->a], mu_constant(r->program->dtype, i->number));
}

static mu_tensor *do_id(run *r, const instruction *i, mu_tensor *const *x) { return mu_add(x[i->a], id_of(r)); }

static mu_tensor *do_constant(run *r, const instruction *i, mu_tensor *const *x)
{
    (void)x;
    return filled(r, i->number);
}

static mu_tensor *from_outside(const run *r, mu_tensor *x)
{
    return r->program->on_workers ? mu_add(x, mu_constant(r->program->dtype, 1)) : x;
}

static mu_tensor *do_outside(run *r, const instruction *i, mu_tensor *const *x)
{
    (void)i, (void)x;
    return from_outside(r, r->outside);
}

static mu_tensor *do_read(run *r, const instruction *i, mu_tensor *const *x)
{
    (void)x;
    return mu_variable_read(r->variables[i->variable]);
}

static mu_tensor *do_assign(run *r, const instruction *i, mu_tensor *const *x)
{
    return assignments[i->how % 3](r->variables[i->variable], x[i->a]) == MU_OK ? x[i->a] : NULL;
}

static mu_tensor *do_assign_outside(run *r, const instruction *i, mu_tensor *const *x)
{
    return assignments[i->how % 3](r->variables[i->variable], r->outside) == MU_OK ? x[i->a] : NULL;
}

static mu_tensor *do_reduce(run *r, const instruction *i, mu_tensor *const *x)
{
    return own_type(r, mu_all_reduce(op_of(i), x[i->a]));
}

static mu_tensor *do_reduce_variable(run *r, const instruction *i, mu_tensor *const *x)
{
    (void)x;
    return own_type(r, tensor_of(mu_all_reduce_value(op_of(i), variable_value(r->variables[i->variable]))));
}

static mu_tensor *do_gather(run *r, const instruction *i, mu_tensor *const *x)
{
    return spread(r, mu_all_gather(x[i->a], i->how % (r->program->rank ? r->program->rank : 1)));
}

static mu_tensor *do_permute(run *r, const instruction *i, mu_tensor *const *x)
{
    mu_replica_pair pairs[RUN_REPLICAS];
    for (int k = 0; k < mu_replica_count(); k++)
        pairs[k] = (mu_replica_pair){k, (k + i->how) % mu_replica_count()};
    (void)r;
    return mu_collective_permute(x[i->a], pairs, mu_replica_count() - (i->number > 2));
}

static mu_tensor *do_scatter_part(run *r, const instruction *i, mu_tensor *const *x)
{
    mu_tensor *flat =
        mu_reshape(mu_stack(4, (mu_tensor *[]){x[i->a], x[i->b], x[i->a], x[i->b]}, 0), 1, (int64_t[]){-1});
    return spread(r, mu_reduce_scatter(op_of(i), flat, 0));
}

static mu_tensor *do_scatter(run *r, const instruction *i, mu_tensor *const *x)
{
    if (r->program->rank == 0 || r->program->dims[0] == 0)
        return x[i->a];
    mu_tensor *row =
        mu_mod(mu_add(mu_replica_id(), mu_constant(MU_I32, i->b)), mu_constant(MU_I32, (double)r->program->dims[0]));
    mu_tensor *indices = mu_reshape(i->number < 0 ? row : mu_constant(MU_I32, 0), 1, (int64_t[]){1});
    mu_tensor *values = mu_gather(x[i->a], indices, 0, 0);
    return scatters[i->how % 6](r->variables[i->variable], indices, values) == MU_OK ? x[i->a] : NULL;
}

static mu_tensor *do_sync_read(run *r, const instruction *i, mu_tensor *const *x)
{
    (void)x;
    if (!mu_has_strategy() || may_differ(r, i->variable)) // where no replica can ask for it, or each worker has its own
        return do_read(r, i, x);
    mu_sync_on_read(true);
    mu_tensor *seen = own_type(r, mu_variable_read(r->variables[i->variable]));
    const mu_error before = mu_error_take();
    mu_sync_on_read(false);
    if (before.code)
        mu_fail(before.code, "%s", before.message);
    return seen;
}

static mu_tensor *do_update(run *r, const instruction *i, mu_tensor *const *x)
{
    mu_tensor *own = stays_equal(r, i->variable) ? mu_all_reduce(MU_SUM, x[i->a]) : x[i->a];
    r->merging = i;
    mu_update_variable(r->strategy, r->variables[i->variable], update_copy, r, mu_list(own, MU_END));
    return mu_error_code() ? NULL : x[i->a];
}

static mu_tensor *do_slices(run *r, const instruction *i, mu_tensor *const *x)
{
    if (r->program->rank == 0 || r->program->dims[0] == 0)
        return x[i->a];
    mu_tensor *indices =
        mu_reshape(mu_mod(mu_replica_id(), mu_constant(MU_I32, (double)r->program->dims[0])), 1, (int64_t[]){1});
    mu_value *slices =
        mu_indexed_slices(mu_gather(x[i->a], indices, 0, 0), indices, r->program->rank, r->program->dims);
    return own_type(r, mu_convert_to_tensor(mu_all_reduce_value(op_of(i), slices)));
}

typedef mu_tensor *on_replica_fn(run *r, const instruction *i, mu_tensor *const *x);

// ---- In branches, loops and functions of a replica ----------------------------------------------

static on_replica_fn *const in_bodies[] = {do_assign,          do_assign_outside, do_read,    do_reduce,
                                           do_reduce_variable, do_gather,         do_scatter, do_permute,
                                           do_slices,          do_scatter_part,   do_id,      do_sync_read};

static mu_value *body(mu_value *arguments, void *arg)
{
    run *r = arg;
    const instruction *i = r->body;
    mu_tensor *x[REGISTERS];
    for (int k = 0; k < REGISTERS; k++)
        x[k] = mu_at(arguments, k);
    return value_of(kept_small(r, in_bodies[i->how % (int)MU_COUNT(in_bodies)](r, i, x)));
}

static mu_value *other_body(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_value_at(arguments, 1);
}

// In a trace, what a body gets counts as made in the function, also what comes from outside: so it is here.
static mu_value *all_of(const run *r, mu_tensor *const *x)
{
    mu_value *own[REGISTERS];
    for (int k = 0; k < REGISTERS; k++)
        own[k] = value_of(mu_add(x[k], mu_constant(r->program->dtype, 0)));
    return mu_list_of(REGISTERS, own);
}

// All replicas take one branch, for the sake of its collectives: the one that may fail, which a trace looks at anyway.
static mu_tensor *do_branch(run *r, const instruction *i, mu_tensor *const *x)
{
    r->body = i;
    mu_tensor *sum = mu_all_reduce(MU_SUM, mu_reduce_sum(x[i->a], MU_ALL_AXES));
    mu_tensor *pred = sum ? mu_equal(mu_subtract(sum, sum), mu_constant(mu_tensor_dtype(sum), 0)) : NULL;
    return tensor_of(mu_cond(pred, body, other_body, all_of(r, x), r));
}

static mu_tensor *do_call(run *r, const instruction *i, mu_tensor *const *x)
{
    r->body = i;
    return tensor_of(mu_function_call(mu_function_new(body, r), all_of(r, x)));
}

static mu_tensor *is_below(mu_value *vars, void *arg)
{
    const run *r = arg;
    return mu_less(mu_at(vars, 0), mu_constant(MU_I32, 1 + r->body->b % 3));
}

static mu_value *again(mu_value *vars, void *arg)
{
    const run *r = arg;
    mu_tensor *x[REGISTERS];
    for (int k = 0; k < REGISTERS; k++)
        x[k] = mu_at(vars, k + 1);
    mu_tensor *made = tensor_of(body(all_of(r, x), arg));
    x[r->body->a] = made;
    return made ? mu_list(mu_add(mu_at(vars, 0), mu_constant(MU_I32, 1)), x[0], x[1], x[2], x[3], MU_END) : NULL;
}

static mu_tensor *do_loop(run *r, const instruction *i, mu_tensor *const *x)
{
    r->body = i;
    mu_value *first = all_of(r, x);
    mu_value *vars =
        mu_list(mu_constant(MU_I32, 0), mu_at(first, 0), mu_at(first, 1), mu_at(first, 2), mu_at(first, 3), MU_END);
    mu_value *after = mu_while_loop(.loop_vars = vars, .condition = is_below, .body = again, .arg = r);
    return after ? mu_at(after, i->a + 1) : NULL;
}

static on_replica_fn *const on_replica_kinds[] = {
    do_merge,          do_add,    do_scale,           do_id,     do_constant, do_outside,      do_read,    do_assign,
    do_assign_outside, do_reduce, do_reduce_variable, do_gather, do_permute,  do_scatter_part, do_scatter, do_sync_read,
    do_update,         do_slices, do_branch,          do_call,   do_loop,
};
static const char *const kind_names[] = {
    "merge",          "add",    "scale",           "id",     "constant", "outside",        "read",    "assign",
    "assign outside", "reduce", "reduce variable", "gather", "permute",  "reduce_scatter", "scatter", "sync read",
    "update",         "slices", "branch",          "call",   "loop",
};

// Arguments: a value of each replica's own, rows of other lengths, a plain tensor.
static mu_value *step_on_replica(mu_value *arguments, void *arg)
{
    run own = *(run *)arg; // eager replicas take turns
    run *r = &own;
    const program *p = r->program;
    mu_tensor *x[REGISTERS] = {mu_at(arguments, 0), spread(r, mu_at(arguments, 1)),
                               from_outside(r, mu_at(arguments, 2)), id_of(r)};
    for (int k = 0; k < p->n[r->step] && !mu_error_code(); k++) {
        const instruction *i = &p->at[r->step][k];
        *r->reached = k;
        mu_tensor *made = on_replica_kinds[i->kind](r, i, x);
        if (made)
            x[i->kind == 0 ? 0 : i->to] = kept_small(r, made);
    }
    return mu_error_code() ? NULL : mu_list(x[0], x[1], x[2], x[3], MU_END);
}

// ---- Making one ---------------------------------------------------------------------------------

static instruction any_instruction(void)
{
    instruction i = {.kind = draw((int)MU_COUNT(on_replica_kinds) + 3),
                     .how = draw(12),
                     .to = draw(REGISTERS),
                     .a = draw(REGISTERS),
                     .b = draw(REGISTERS),
                     .variable = draw(VARIABLES),
                     .number = draw(6) - 2};
    if (i.kind >= (int)MU_COUNT(on_replica_kinds))
        i.kind = 0;
    if (i.kind == 0)
        i.to = draw((int)MU_COUNT(across));
    return i;
}

static void make_instructions(program *p)
{
    for (int s = 0; s < STEPS; s++) {
        p->n[s] = 1 + draw(MOST_INSTRUCTIONS);
        for (int k = 0; k < p->n[s]; k++)
            p->at[s][k] = any_instruction();
        p->between[s] = any_instruction();
        p->between[s].to = draw((int)MU_COUNT(across));
    }
}

static void make_program(program *p, uint64_t seed)
{
    static const mu_dtype dtypes[] = {MU_F32, MU_F32, MU_F32, MU_F64, MU_I32, MU_I64};
    // rank, then sizes
    static const int64_t shapes[][3] = {{2, 2, 2}, {2, 3, 1}, {1, 3}, {0}, {1, 1}, {1, 0}, {2, 1, 2}};
    drawn = seed * 0x9E3779B97F4A7C15u + 88172645463325252u;
    for (int i = 0; i < 8; i++)
        draw(2);
    *p = (program){.dtype = dtypes[draw((int)MU_COUNT(dtypes))]};
    const int64_t *shape = shapes[draw((int)MU_COUNT(shapes))];
    p->rank = (int)shape[0];
    memcpy(p->dims, shape + 1, sizeof p->dims);
    for (int v = 0; v < VARIABLES; v++) {
        p->synchronization[v] = draw(3) ? MU_SYNCHRONIZATION_ON_WRITE : MU_SYNCHRONIZATION_ON_READ;
        p->aggregation[v] = (mu_variable_aggregation)draw(4);
        const bool integer = p->dtype == MU_I32 || p->dtype == MU_I64; // whose mean is no integer
        if (integer && p->aggregation[v] == MU_AGGREGATION_MEAN && p->synchronization[v] == MU_SYNCHRONIZATION_ON_READ)
            p->aggregation[v] = MU_AGGREGATION_SUM;
    }
    make_instructions(p);
}

// Instruction k of a step, or what follows the step.
static void print_instruction(const program *p, int s, int k)
{
    const bool after = k == p->n[s];
    const instruction *i = after ? &p->between[s] : &p->at[s][k];
    const bool merges = after || i->kind == 0;
    fprintf(stderr, "  step %d%s %s%s%s: x%d of x%d, x%d, v%d, how %d, %g\n", s, after ? " after:" : "",
            after ? "" : kind_names[i->kind], merges && !after ? " " : "", merges ? across_names[i->to] : "",
            merges ? 0 : i->to, i->a, i->b, i->variable, i->how, i->number);
}

static void print_program(const program *p)
{
    fprintf(stderr, "%s, rank %d [%lld, %lld]\n", mu_dtype_name(p->dtype), p->rank, (long long)p->dims[0],
            (long long)p->dims[1]);
    for (int v = 0; v < VARIABLES; v++)
        fprintf(stderr, "  v%d %s %s\n", v, mu_variable_synchronization_name(p->synchronization[v]),
                mu_variable_aggregation_name(p->aggregation[v]));
    for (int s = 0; s < STEPS; s++)
        for (int k = 0; k <= p->n[s]; k++)
            print_instruction(p, s, k);
}

#endif
