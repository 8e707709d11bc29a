// How workers agree before they run one program together on the devices of all of them.
//
// Inside of XLA a participant that is missing ends the process, or the others wait for ever, so no worker launches
// before it knows that all do: the same run of the same function, with equal shapes, with a program of the same text
// that every one of them has compiled. Where shapes or programs differ, all reduce on the host instead. If a worker
// cannot run the function, all fail with its error. A worker that dies after the agreement is left to the engine
// (engine/pjrt/pending.c).
//
// One thread of a process at a time agrees and then launches: programs that share devices must be queued everywhere in
// the order in which workers agreed on them. Agreements have a group of their own, because another thread may be in a
// collective of the workers (mu_reduce) meanwhile.
#include "distribute/core/job.h"
#include "distribute/run/replica_run.h"

// What a worker says. Others only compare these numbers.
typedef struct offer {
    int64_t run;      // number of the run among those with collectives
    int64_t status;   // MU_OK: this worker is ready
    int64_t function; // hash of its name, and of the option that all parts are equal
    int64_t specs;    // hash of the inputs' specs; 0: they differ between the worker's replicas
    int64_t program;  // hash of the compiled program; 0: it is not compiled
} offer;

enum { NUMBERS = sizeof(offer) / sizeof(int64_t) };

typedef struct agreement {
    mu_strategy *strategy;
    const char *function;
    offer own;
    mu_error_value error; // why this worker is not ready
    offer *all;           // [workers]
} agreement;

bool mu__joins(const mu_replica_run *running)
{
    const mu_strategy *strategy = running->head.strategy;
    return strategy->world_ids && running->devices == strategy->devices && running->concrete->graph->collective;
}

// ---- What is compared ---------------------------------------------------------------------------

// FNV-1a (Fowler, Noll, Vo); never 0.
static int64_t add_to_hash(int64_t hash, const void *data, size_t bytes)
{
    uint64_t h = (uint64_t)hash;
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3);
    return (int64_t)(h | 1);
}

static const int64_t first_hash = INT64_C(0x4bf29ce484222325);

static int64_t hash_of_specs(const mu_replica_run *running)
{
    int64_t hash = first_hash;
    for (int r = 1; r < running->n; r++)
        for (int i = 0; i < running->n_in; i++)
            if (!mu__shape_equal(&running->jobs[r].specs[i].shape, &running->jobs[0].specs[i].shape))
                return 0;
    for (int i = 0; i < running->n_in; i++) {
        const mu_spec *spec = &running->jobs[0].specs[i];
        const int32_t kind[2] = {(int32_t)spec->dtype, spec->shape.rank};
        hash = add_to_hash(hash, kind, sizeof kind);
        hash = add_to_hash(hash, spec->shape.dims, sizeof *spec->shape.dims * (size_t)spec->shape.rank);
    }
    return hash;
}

// Every worker that enters the exchange takes a number, also if the exchange fails.
static int64_t take_number(mu_strategy *strategy)
{
    pthread_mutex_lock(&strategy->order);
    const int64_t run = ++strategy->common_runs;
    pthread_mutex_unlock(&strategy->order);
    return run;
}

// ---- Exchanging ---------------------------------------------------------------------------------

// The pending error becomes what this worker says.
static void offer_failure(agreement *a)
{
    mu__error_move(&a->error);
    a->own.status = a->error.code != MU_OK ? (int64_t)a->error.code : MU_RESOURCE_EXHAUSTED;
}

static mu_status valid_code(int64_t status)
{
    return status > MU_OK && status <= MU_UNAUTHENTICATED ? (mu_status)status : MU_UNKNOWN_ERROR;
}

static mu_collective *begin_exchange(mu_strategy *strategy, const char *what, int64_t *number)
{
    *number = ++strategy->n_agreements;
    mu__mesh_doing(strategy->mesh, "in agreement", *number, what);
    return mu__group_member(strategy->agreements, 0);
}

static mu_status gather_offers(agreement *a)
{
    static const char what[] = "whether all run";
    mu_strategy *strategy = a->strategy;
    int64_t number, *counts = mu__alloc(sizeof *counts * (size_t)strategy->n_workers);
    mu__free(a->all);
    a->all = mu__calloc((size_t)strategy->n_workers, sizeof *a->all);
    for (int w = 0; counts && w < strategy->n_workers; w++)
        counts[w] = NUMBERS;
    mu_status status = MU_RESOURCE_EXHAUSTED;
    if (a->all && counts) {
        mu_collective *all = begin_exchange(strategy, what, &number);
        status = all->all_gather(all, number, what, MU_I64, &a->own, NUMBERS, a->all, counts);
        mu__strategy_done(strategy);
    }
    mu__free(counts);
    return status;
}

// All workers get the text of the first one that failed, each has its own error if it failed itself.
static mu_status fail_together(const agreement *a, int worker)
{
    static const char what[] = "why a worker cannot run a function";
    mu_strategy *strategy = a->strategy;
    char why[sizeof a->error.message];
    int64_t number;
    memcpy(why, a->error.message, sizeof why);
    mu_collective *all = begin_exchange(strategy, what, &number);
    const mu_status status = all->broadcast(all, number, what, MU_U8, why, sizeof why, worker);
    mu__strategy_done(strategy);
    why[sizeof why - 1] = '\0';
    if (status == MU_OK && a->own.status != MU_OK)
        mu__error_raise(&a->error);
    else if (status == MU_OK)
        mu__error(valid_code(a->all[worker].status), "%s cannot take part in run %lld of '%s': %.700s",
                  strategy->ops->cross_worker->worker_name(strategy, worker), (long long)a->own.run, a->function, why);
    return mu_error_code();
}

static mu_status refuse_other(const agreement *a, int worker)
{
    const offer *theirs = &a->all[worker];
    const char *name = a->strategy->ops->cross_worker->worker_name(a->strategy, worker);
    if (theirs->run != a->own.run)
        return mu__error(MU_FAILED_PRECONDITION,
                         "this worker is at run %lld with collectives of its strategy, '%s', and %s at run %lld; all "
                         "workers must run the same functions in the same order",
                         (long long)a->own.run, a->function, name, (long long)theirs->run);
    return mu__error(MU_FAILED_PRECONDITION,
                     "run %lld is of '%s' on this worker, and of another function, or with other options, on %s; all "
                     "workers must run the same functions in the same order",
                     (long long)a->own.run, a->function, name);
}

// Every worker compares the same list, so that all fail or none.
static mu_status exchange(agreement *a)
{
    const int n = a->strategy->n_workers;
    MU_TRY(gather_offers(a));
    for (int w = 0; w < n; w++)
        if (a->all[w].status != MU_OK)
            return fail_together(a, w);
    for (int w = 0; w < n; w++)
        if (a->all[w].run != a->all[0].run || a->all[w].function != a->all[0].function)
            return refuse_other(a, a->strategy->worker == 0 ? w : 0);
    return MU_OK;
}

static bool same_specs(const agreement *a)
{
    bool same = true;
    for (int w = 0; same && w < a->strategy->n_workers; w++)
        same = a->all[w].specs != 0 && a->all[w].specs == a->all[0].specs;
    return same;
}

static mu_status refuse_shapes(const agreement *a)
{
    int other = 1;
    while (other + 1 < a->strategy->n_workers && a->all[other].specs == a->all[0].specs)
        other++;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: the tensors of '%s' differ in shape between %s and %s; give all replicas as many rows "
                     "(mu_dataset_batch(.drop_remainder = true)), or leave the option out",
                     mu__equal_option, a->function, a->strategy->ops->cross_worker->worker_name(a->strategy, other),
                     a->strategy->ops->cross_worker->worker_name(a->strategy, 0));
}

static bool all_compiled(const agreement *a)
{
    bool all = true;
    for (int w = 0; all && w < a->strategy->n_workers; w++)
        all = a->all[w].program != 0;
    return all;
}

// A function may use a worker's own tensor, which is a constant in its program. Then all run the parts.
static bool same_programs(const agreement *a, mu_concrete *concrete)
{
    int other = 0;
    for (int w = 1; other == 0 && w < a->strategy->n_workers; w++)
        other = a->all[w].program != a->all[0].program ? w : 0;
    if (other > 0 && !concrete->differs)
        mu__log(MU_LOG_WARNING,
                "the programs of '%s' on %s and %s differ, so the host reduces between the workers: it was traced "
                "differently, or uses a tensor that is another one there (pass it as an argument). "
                "MUSTER_DUMP_STABLEHLO=folder on both shows where",
                a->function, a->strategy->ops->cross_worker->worker_name(a->strategy, 0),
                a->strategy->ops->cross_worker->worker_name(a->strategy, other));
    concrete->differs |= other > 0;
    return other == 0;
}

// ---- Before a run -------------------------------------------------------------------------------

static mu_status find_program(mu_replica_run *running, bool compile, int64_t *hash)
{
    const mu_strategy *strategy = running->head.strategy;
    MU_TRY(mu__find_plan(running));
    return running->devices[0]->engine->join(running->plan, &running->world, running->n, mu__run_partitions(strategy),
                                             mu__run_devices(running), compile, hash);
}

static mu_status agree(agreement *a, mu_replica_run *running)
{
    a->own.specs = hash_of_specs(running);
    if (find_program(running, false, &a->own.program) != MU_OK)
        offer_failure(a);
    MU_TRY(exchange(a));
    if (!same_specs(a))
        return running->equal ? refuse_shapes(a) : MU_OK;
    if (!all_compiled(a)) {
        mu__strategy_doing(a->strategy, "compiling", -1);
        if (find_program(running, true, &a->own.program) != MU_OK)
            offer_failure(a);
        MU_TRY(exchange(a));
    }
    if (!same_programs(a, running->concrete))
        return MU_OK;
    running->joined = true;
    running->launch_id = mu__job_next_launch(a->strategy->job);
    return MU_OK;
}

mu_status mu__agree_to_run(mu_replica_run *running)
{
    mu_strategy *strategy = running->head.strategy;
    const char *function = running->concrete->graph->name;
    agreement a = {.strategy = strategy, .function = function};
    a.own.run = running->common = take_number(strategy);
    a.own.function = add_to_hash(first_hash, function, strlen(function));
    if (running->equal)
        a.own.function = add_to_hash(a.own.function, mu__equal_option, strlen(mu__equal_option));
    running->world = (mu_launch_world){.n_replicas = strategy->n_replicas, .ids = strategy->world_ids};
    const mu_status status = agree(&a, running);
    mu__free(a.all);
    if (!running->joined) {
        mu__concrete_unuse(running->concrete, running->plan);
        running->plan = NULL;
    }
    return status;
}

mu_status mu__agree_on_trace(mu_strategy *strategy, const char *function)
{
    agreement a = {.strategy = strategy, .function = function};
    if (!strategy->world_ids)
        return mu_error_code();
    pthread_mutex_t *launches = mu__job_launches(strategy->job);
    if (mu__pending())
        offer_failure(&a);
    pthread_mutex_lock(launches);
    a.own.run = take_number(strategy);
    exchange(&a);
    pthread_mutex_unlock(launches);
    mu__free(a.all);
    if (a.own.status == MU_OK)
        return mu_error_code();
    mu_error_value ignored;
    mu__error_move(&ignored); // this worker's own error, or that the others are gone
    return mu__error_raise(&a.error);
}

// No worker waits for this one before a function without collectives, which it may run alone; and a function that
// failed before its first collective does not show which collectives it would have had.
void mu__refuse_run(mu_strategy *strategy, mu_function *function, const mu_concrete *concrete)
{
    const bool known = concrete ? concrete->graph->collective : mu__function_is_collective(function, strategy);
    if (known && !mu__function_jit_compile(function))
        mu__agree_on_trace(strategy, mu_function_name(function));
}
