// What is per replica: one table of small replica functions, each with its outcome by the guide (core, sections 4, 9.3
// and 14), run eagerly and traced, under every strategy and on workers.
//
// A tensor made inside of the function is per replica, also a constant that is the same everywhere, and so is a
// component of a per-replica argument. A tensor from outside of the function is one value: it has a mean, but no sum.
#include "cases.h"

typedef enum source {
    CONSTANT,       // made inside
    COMPUTED,       // inside, from tensors from outside
    COMPONENT,      // of a per-replica argument whose components differ as handles
    SAME_COMPONENT, // of one that has the same handle everywhere
    REDUCED,        // what all_reduce gives
    CAPTURED,       // from outside, through `arg`
    PLAIN_ARGUMENT, // from outside, through the arguments
    MERGED,         // what a merge_call returns for all
    SOURCES
} source;

typedef enum sink { ASSIGN, ADD, SUB, SCATTER, MERGE, RETURN, ALL_REDUCE, SINKS } sink;

static const char *const source_names[] = {"a constant",         "a computed tensor", "a component",
                                           "a shared component", "an all_reduce",     "a captured tensor",
                                           "a plain argument",   "a merged value"};
static const char *const sink_names[] = {"assign",     "assign_add", "assign_sub", "scatter_add",
                                         "merge_call", "return",     "all_reduce"};

enum { VALUE = 12, INITIAL = 10 }; // 12 has exact parts for 2, 3 and 4 replicas

typedef struct row {
    source source;
    sink sink;
    mu_dtype dtype;
    mu_variable_aggregation aggregation; // of variables
    mu_reduce_op op;                     // of reductions
    mu_variable *variable;
    mu_tensor *outside, *outside_index;
} row;

// One element, in a tensor of one axis, so that it can be scattered too.
static mu_tensor *of_number(mu_dtype dtype, double number)
{
    mu_tensor *tensor = mu_tensor_new(dtype, 1, (int64_t[]){1}, NULL);
    if (tensor)
        mu__write_element(dtype, mu__host_write(tensor), 0, number);
    return tensor;
}

static bool is_own(const row *r) { return r->source < CAPTURED; }

static bool is_update(const row *r) { return r->sink <= SCATTER; }

// ---- What the guide says ------------------------------------------------------------------------

typedef struct outcome {
    mu_status status;
    double value;
} outcome;

static outcome of_reduction(const row *r, int replicas, int workers)
{
    if (r->op == MU_MEAN || replicas == 1)
        return (outcome){MU_OK, VALUE};
    if (is_own(r) || r->sink == ALL_REDUCE)
        return (outcome){MU_OK, VALUE * replicas};
    return workers > 1 ? (outcome){MU_OK, VALUE * workers} : (outcome){MU_INVALID_ARGUMENT, 0};
}

static outcome of_delta(const row *r, int replicas, bool central)
{
    const bool own = is_own(r);
    if (replicas == 1)
        return (outcome){MU_OK, VALUE};
    if (central && r->sink == SCATTER) // one plain variable, and every replica's slices
        return (outcome){MU_OK, VALUE * replicas};
    switch (r->aggregation) {
    case MU_AGGREGATION_SUM: return own ? (outcome){MU_OK, VALUE * replicas} : (outcome){MU_INVALID_ARGUMENT, 0};
    case MU_AGGREGATION_MEAN:
        return own && r->dtype == MU_I32 ? (outcome){MU_INVALID_ARGUMENT, 0} : (outcome){MU_OK, VALUE};
    case MU_AGGREGATION_NONE: return central ? (outcome){MU_INVALID_ARGUMENT, 0} : (outcome){MU_OK, VALUE};
    default: return (outcome){MU_OK, VALUE};
    }
}

static outcome expected(const row *r, mu_strategy *s, bool central)
{
    const int replicas = mu_num_replicas_in_sync(s);
    if (!is_update(r))
        return of_reduction(r, replicas, mu_strategy_worker_count(s));
    outcome out = of_delta(r, replicas, central);
    out.value = r->sink == ASSIGN ? out.value : r->sink == SUB ? INITIAL - out.value : INITIAL + out.value;
    return out;
}

// ---- The replica function -----------------------------------------------------------------------

static mu_tensor *made(const row *r) { return of_number(r->dtype, VALUE); }

static mu_value *mean_in_merge(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    const row *r = arg;
    mu_value *mean = mu_reduce(strategy, MU_MEAN, arguments);
    return mean ? mu_of(mu_cast(mu_value_tensor(mean), r->dtype)) : NULL;
}

static mu_tensor *value_of(const row *r, mu_value *arguments)
{
    switch (r->source) {
    case CONSTANT: return made(r);
    case COMPUTED: return mu_add(r->outside, mu_zeros_like(r->outside));
    case REDUCED: return mu_cast(mu_all_reduce(MU_MEAN, made(r)), r->dtype);
    case CAPTURED: return r->outside;
    case MERGED: {
        mu_value *merged = mu_merge_call(mean_in_merge, (void *)r, mu_of(made(r)));
        return merged ? mu_value_tensor(merged) : NULL;
    }
    default: return mu_at(arguments, 0);
    }
}

static mu_value *reduce_in_merge(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    return mu_reduce(strategy, ((const row *)arg)->op, arguments);
}

static mu_value *replica_function(mu_value *arguments, void *arg)
{
    static assign_fn *const assigns[] = {mu_variable_assign, mu_variable_assign_add, mu_variable_assign_sub};
    row *r = arg;
    mu_tensor *value = value_of(r, arguments);
    if (!value)
        return NULL;
    switch (r->sink) {
    case SCATTER: {
        mu_tensor *index = is_own(r) ? of_number(MU_I32, 0) : r->outside_index;
        mu_variable_scatter_add(r->variable, index, value);
        break;
    }
    case MERGE: return mu_merge_call(reduce_in_merge, r, mu_of(value));
    case ALL_REDUCE: return mu_of(mu_all_reduce(r->op, value));
    case RETURN: return mu_of(value);
    default: assigns[r->sink](r->variable, value);
    }
    return mu_error_code() == MU_OK ? read_of(r->variable) : NULL;
}

// ---- Running a row ------------------------------------------------------------------------------

static mu_value *arguments_of(const row *r, mu_strategy *s)
{
    const int n = mu_strategy_device_count(s);
    mu_tensor *shared = made(r), *tensors[8];
    for (int i = 0; i < n; i++)
        tensors[i] = r->source == SAME_COMPONENT ? shared : made(r);
    const bool wrapped = r->source == COMPONENT || r->source == SAME_COMPONENT;
    return wrapped ? mu_list(per_replica_of(n, tensors), MU_END) : mu_list(shared, MU_END);
}

static bool all_are(const mu_value *value, double wanted)
{
    mu_object *leaves[16];
    const int n = mu__value_flatten(value, leaves, (int)MU_COUNT(leaves));
    for (int i = 0; i < n; i++) {
        const mu_tensor *tensor = (const mu_tensor *)leaves[i];
        if (mu__read_element(tensor->dtype, mu__host_read(tensor), 0) != wanted)
            return false;
    }
    return n > 0;
}

static void run_row(row *r, mu_strategy *s, bool central, bool compiled)
{
    const outcome wanted = expected(r, s, central);
    mu_pool *pool = mu_pool_open();
    r->variable = variable(s, of_number(r->dtype, INITIAL), MU_SYNCHRONIZATION_AUTO, r->aggregation);
    r->outside = made(r);
    r->outside_index = of_number(MU_I32, 0);
    mu_value *arguments = arguments_of(r, s);
    mu_value *seen = compiled ? mu_run(s, mu_function_new(replica_function, r), arguments)
                              : mu_run_callback(s, replica_function, r, arguments);
    if (seen && r->sink == RETURN)
        seen = mu_reduce(s, r->op, seen);
    const mu_error error = mu_error_take();
    const bool right = error.code == wanted.status && (wanted.status != MU_OK || all_are(seen, wanted.value));
    const bool untouched = wanted.status == MU_OK || all_are(components(r->variable), INITIAL);
    if (!right || !untouched)
        fail_case(
            __LINE__, "%s of %s, %s, aggregation %d, operation %d, %s on %d replicas%s: wanted %s and %g, got %s %s",
            sink_names[r->sink], source_names[r->source], mu_dtype_name(r->dtype), (int)r->aggregation, (int)r->op,
            compiled ? "traced" : "eager", mu_num_replicas_in_sync(s), central ? " of central storage" : "",
            mu_status_name(wanted.status), wanted.value, mu_status_name(error.code),
            error.code != MU_OK ? error.message
            : right             ? "with a variable that was written"
                                : "another value");
    mu_pool_close(pool);
}

// A job of several workers is over after a step that fails, so there only what is refused while it is traced goes in.
static bool ends_job(const row *r, mu_strategy *s, bool compiled)
{
    return !compiled && mu_strategy_worker_count(s) > 1 && expected(r, s, false).status != MU_OK;
}

static void run_rows(mu_strategy *s, bool central)
{
    for (int i = 0; i < SOURCES * SINKS * 4 * 2 * 2; i++) {
        row r = {.source = (source)(i % SOURCES), .sink = (sink)(i / SOURCES % SINKS)};
        const int rest = i / SOURCES / SINKS;
        r.aggregation = (mu_variable_aggregation)(rest % 4);
        r.op = (mu_reduce_op)(rest % 2);
        r.dtype = rest / 4 % 2 ? MU_I32 : MU_F32;
        if (!is_update(&r) && rest % 4 > 1)
            continue; // reductions have two operations, variables four aggregations
        if (!ends_job(&r, s, rest / 8))
            run_row(&r, s, central, rest / 8);
    }
}

static void on_mirrored(void)
{
    for (int n = 1; n <= 3; n++)
        run_rows(mirrored(n), false);
}

static void on_central(void)
{
    for (int n = 1; n <= 3; n++)
        run_rows(mu_central_storage_strategy(.replicas = n), n > 1);
}

static void on_one_device(void) { run_rows(mu_one_device_strategy("CPU:0"), false); }

void per_replica_on_workers(mu_strategy *strategy) { run_rows(strategy, false); }

// What is refused eagerly, each in a job of its own.
void literal_on_workers(mu_strategy *strategy)
{
    run_row(&(row){.source = CAPTURED, .sink = ASSIGN, .dtype = MU_F32, .aggregation = MU_AGGREGATION_SUM}, strategy,
            false, false);
}

void literal_slices_on_workers(mu_strategy *strategy)
{
    run_row(&(row){.source = CAPTURED, .sink = SCATTER, .dtype = MU_F32, .aggregation = MU_AGGREGATION_SUM}, strategy,
            false, false);
}

void integer_mean_on_workers(mu_strategy *strategy)
{
    run_row(&(row){.source = CONSTANT, .sink = ADD, .dtype = MU_I32, .aggregation = MU_AGGREGATION_MEAN}, strategy,
            false, false);
}

// ---- Replicas that do not meet for the same -----------------------------------------------------

typedef struct pair {
    mu_variable *variables[2]; // by replica
    int way;                   // 0: assign, 1: assign and assign_add to one, 2: scatter, 3: an assignment and a merge
} pair;

static mu_value *meet_otherwise(mu_value *arguments, void *arg)
{
    (void)arguments;
    const pair *p = arg;
    const int r = (int)mu_scalar(mu_replica_id());
    mu_tensor *value = of_number(MU_F32, 1);
    if (p->way == 2)
        mu_variable_scatter_add(p->variables[r], of_number(MU_I32, 0), value);
    else if (p->way == 3 && r == 1)
        return mu_merge_call(reduce_in_merge, &(row){.op = MU_SUM}, mu_of(value));
    else if (p->way == 1 && r == 1)
        mu_variable_assign_add(p->variables[0], value);
    else
        mu_variable_assign(p->variables[p->way == 1 ? 0 : r], value);
    return NULL;
}

static void meet_in(mu_strategy *s, const char *const names[2], int way, const char *const words[2])
{
    pair p = {.way = way};
    for (int i = 0; i < 2; i++)
        MU_SCOPE(s)
            p.variables[i] = mu_variable_new(of_number(MU_F32, INITIAL), names[i], .aggregation = MU_AGGREGATION_SUM);
    CHECK(!mu_run_callback(s, meet_otherwise, &p, NULL));
    const char *message = mu_error_message();
    if (!message || !strstr(message, words[0]) || !strstr(message, words[1]) || !strstr(message, "replica 0") ||
        !strstr(message, "replica 1"))
        fail_case(__LINE__, "way %d: the message does not say it: %s", way, message ? message : "none");
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    for (int i = 0; i < 2; i++)
        CHECK(all_are(components(p.variables[i]), INITIAL));
}

// Both replicas and both variables are named, and nothing is written.
static void other_rendezvous(void)
{
    static const char *const two[] = {"left", "right"}, *const same[] = {"twin", "twin"};
    static const char *const both[] = {"'left'", "'right'"}, *const twins[] = {"'twin'", "of the same name"},
                             *const updates[] = {"mu_variable_assign to", "mu_variable_assign_add to variable 'left'"},
                             *const merge[] = {"'left'", "merge_call"};
    mu_strategy *all[] = {mirrored(2), mu_central_storage_strategy(.replicas = 2)};
    for (int i = 0; i < 2; i++) {
        meet_in(all[i], two, 0, both);
        meet_in(all[i], same, 0, twins);
        meet_in(all[i], two, 1, updates);
        meet_in(all[i], two, 2, both);
        meet_in(all[i], two, 3, merge);
    }
}

const one_case per_replica_cases[] = {
    {"per-replica-mirrored", on_mirrored, NULL},
    {"per-replica-central", on_central, NULL},
    {"per-replica-one-device", on_one_device, NULL},
    {"per-replica-other-rendezvous", other_rendezvous, NULL},
    {0},
};
