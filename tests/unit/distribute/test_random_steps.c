// Random steps give the same however they are run: eagerly and as traced functions, by the replicas of one process and
// by those of two, on as many replicas. Or they fail everywhere, with the same code at the same step.
//
// A program that fails ends a job of several workers, so each such program has a job of its own; all others share one.
// Arguments: the first seed, and how many.
#include "../comm/mesh_test.h"
#include "distribute/distribute.h"
#include "random_steps.h"

enum { MOST_PROGRAMS = 2000, MOST_WAYS = 6 };

// One way to run all programs: what makes the strategy, and by how many processes with how many replicas each.
typedef struct way {
    const char *name;
    mu_strategy *(*strategy)(int replicas);
    int workers, replicas;
    bool traced;
} way;

static mu_strategy *mirrored(int replicas) { return mu_mirrored_strategy(.replicas = replicas); }

static mu_strategy *central(int replicas) { return mu_central_storage_strategy(.replicas = replicas); }

static mu_strategy *on_workers(int replicas)
{
    (void)replicas;
    return mu_multi_worker_mirrored_strategy();
}

static mu_strategy *one_device(int replicas)
{
    (void)replicas;
    return mu_one_device_strategy("CPU:0");
}

static mu_strategy *by_default(int replicas)
{
    (void)replicas;
    return mu_default_strategy();
}

// What all ways of a family give must be what the first gives.
static const way families[][MOST_WAYS] = {
    {{"mirrored 2, eager", mirrored, 1, 2, false},
     {"mirrored 2, traced", mirrored, 1, 2, true},
     {"workers 2x1, eager", on_workers, 2, 1, false},
     {"workers 2x1, traced", on_workers, 2, 1, true}},
    {{"mirrored 4, eager", mirrored, 1, 4, false},
     {"mirrored 4, traced", mirrored, 1, 4, true},
     {"workers 2x2, eager", on_workers, 2, 2, false},
     {"workers 2x2, traced", on_workers, 2, 2, true}},
    {{"mirrored 3, eager", mirrored, 1, 3, false}, {"mirrored 3, traced", mirrored, 1, 3, true}},
    {{"central 2, eager", central, 1, 2, false}, {"central 2, traced", central, 1, 2, true}},
    {{"mirrored 1, eager", mirrored, 1, 1, false},
     {"mirrored 1, traced", mirrored, 1, 1, true},
     {"workers 1x1, eager", on_workers, 1, 1, false},
     {"workers 1x1, traced", on_workers, 1, 1, true}},
    {{"one device, eager", one_device, 1, 1, false},
     {"one device, traced", one_device, 1, 1, true},
     {"default, eager", by_default, 1, 1, false},
     {"default, traced", by_default, 1, 1, true}},
};

// Shared between processes.
static struct shared {
    int n;
    program programs[MOST_PROGRAMS];
    outcome found[MOST_WAYS][2][MOST_PROGRAMS];
} * shared;

static unsigned long long first_seed = 1;
static int n_programs = 40;

// ---- Running one program ------------------------------------------------------------------------

static void note(noted *list, const mu_value *value)
{
    mu_object *leaves[32];
    const int n = value ? mu__value_flatten(value, leaves, (int)MU_COUNT(leaves)) : 0;
    for (int i = 0; i < n; i++) {
        const mu_tensor *tensor = (const mu_tensor *)leaves[i];
        for (int64_t k = 0; k < mu_tensor_elements(tensor) && list->n < MOST_NOTED; k++)
            list->at[list->n++] = mu_tensor_item(tensor, k);
    }
}

// What is the same on all counts for each.
static void note_local(const run *r, outcome *found, mu_value *value)
{
    mu_value *local = mu_local_results(r->strategy, value);
    const int n = mu_num_replicas_in_sync(r->strategy) / mu_strategy_worker_count(r->strategy);
    for (int i = 0; i < n; i++)
        note(&found->replica[mu_strategy_worker_index(r->strategy) * n + i],
             mu_value_at(local, mu_value_count(local) == n ? i : 0));
}

static void make_variables(run *r)
{
    const program *p = r->program;
    MU_SCOPE(r->strategy)
        for (int v = 0; v < VARIABLES; v++)
            r->variables[v] = mu_variable_new(filled(r, v + 1), "v", .synchronization = p->synchronization[v],
                                              .aggregation = p->aggregation[v]);
}

// In cross-replica context, or in none.
static mu_value *do_between(run *r, const instruction *i, mu_value *results)
{
    mu_value *x = mu_value_at(results, i->a), *made = NULL;
    r->merging = i;
    if (i->how & 4)
        MU_SCOPE(r->strategy)
            made = across[i->to](r, i, x);
    else
        made = across[i->to](r, i, x);
    return made;
}

static void note_variables(const run *r, outcome *found)
{
    for (int v = 0; v < VARIABLES; v++) {
        note_local(r, found, variable_value(r->variables[v]));
        const bool on_read = r->program->synchronization[v] == MU_SYNCHRONIZATION_ON_READ;
        if (!may_differ(r, v) && !(on_read && r->program->aggregation[v] == MU_AGGREGATION_NONE))
            note(&found->all, value_of(mu_variable_read(r->variables[v])));
    }
}

static mu_value *arguments_of(const run *r)
{
    return mu_list(own_rows(r, false), own_rows(r, true), r->outside, MU_END);
}

static void run_step(run *r, bool traced, outcome *found)
{
    *r->reached = -1;
    mu_value *results = traced ? mu_run(r->strategy, mu_function_new(step_on_replica, r), arguments_of(r))
                               : mu_run_callback(r->strategy, step_on_replica, r, arguments_of(r));
    if (results) {
        note_local(r, found, results);
        *r->reached = MOST_INSTRUCTIONS;
        mu_value *made = do_between(r, &r->program->between[r->step], results);
        if (made)
            note_local(r, found, made);
    }
    if (!mu_error_code())
        note_variables(r, found);
}

// Returns the instruction of the failed step that was begun last (MOST_INSTRUCTIONS: the one after it).
static int run_program(const program *p, mu_strategy *strategy, bool traced, outcome *found)
{
    int reached = 0;
    run r = {.program = p, .strategy = strategy, .reached = &reached};
    mu_pool *pool = mu_pool_open();
    *found = (outcome){0};
    make_variables(&r);
    r.outside = filled(&r, 3);
    for (r.step = 0; r.step < STEPS && !mu_error_code(); r.step++) {
        found->step = r.step;
        run_step(&r, traced, found);
    }
    const mu_error error = mu_error_take();
    found->code = error.code;
    snprintf(found->message, sizeof found->message, "%s", error.message);
    mu_pool_close(pool);
    mu_error_take();
    return reached;
}

// ---- All programs in one way --------------------------------------------------------------------

typedef struct job {
    const way *way;
    int index;       // of the way in its family
    int from, to;    // programs
    bool failing;    // those that fail, or those that do not
    bool on_workers; // programs are run by several processes, too
} job;

static void set_environment(int rank, const way *w)
{
    char cluster[256], replicas[16];
    snprintf(cluster, sizeof cluster,
             "{\"cluster\": {\"worker\": [\"%s\"%s%s%s]}, \"task\": {\"type\": \"worker\", \"index\": %d}}",
             test_peer_addresses[0], w->workers > 1 ? ", \"" : "", w->workers > 1 ? test_peer_addresses[1] : "",
             w->workers > 1 ? "\"" : "", rank);
    snprintf(replicas, sizeof replicas, "%d", w->replicas);
    setenv("TF_CONFIG", cluster, 1);
    setenv("MUSTER_CPU_DEVICES", replicas, 1);
    setenv("MUSTER_TIMEOUT", "60", 1);
}

static bool fails(int i) { return shared->found[0][0][i].code != MU_OK; }

static int play(int rank, void *arg)
{
    const job *j = arg;
    set_environment(rank, j->way);
    CHECK(mu_init(.seed = 1) == MU_OK);
    mu_strategy *strategy = mu_retain(j->way->strategy(j->way->replicas));
    CHECK(strategy != NULL);
    for (int i = j->from; i < j->to; i++)
        if (j->way->workers == 1 || fails(i) == j->failing)
            run_program(&shared->programs[i], strategy, j->way->traced, &shared->found[j->index][rank][i]);
    fflush(NULL);
    _exit(0); // a job that has failed leaves as it can
}

static void drop(program *p, int step, int k)
{
    memmove(&p->at[step][k], &p->at[step][k + 1], sizeof(instruction) * (size_t)(p->n[step] - 1 - k));
    p->n[step]--;
}

// Of four programs three lose what fails, so that the rest of them is compared.
static int make_programs(int rank, void *arg)
{
    const job *j = arg;
    set_environment(rank, j->way);
    CHECK(mu_init(.seed = 1) == MU_OK);
    mu_strategy *strategy = mu_retain(j->way->strategy(j->way->replicas));
    CHECK(strategy != NULL);
    for (int i = 0; i < n_programs; i++) {
        program *p = &shared->programs[i];
        outcome *found = &shared->found[0][0][i];
        make_program(p, first_seed + (unsigned)i);
        p->on_workers = j->on_workers;
        for (int reached = run_program(p, strategy, false, found); found->code != MU_OK && i % 4 != 0;
             reached = run_program(p, strategy, false, found)) {
            if (reached == MOST_INSTRUCTIONS) {
                CHECK(p->between[found->step].to != PASS_ON);
                p->between[found->step].to = PASS_ON;
            } else {
                CHECK(reached >= 0 && reached < p->n[found->step]);
                drop(p, found->step, reached);
            }
        }
    }
    _exit(0);
}

static void play_way(const way *w, int index)
{
    job j = {.way = w, .index = index, .from = 0, .to = n_programs};
    pid_t children[MOST_RANKS];
    start_ranks(children, w->workers, play, &j);
    wait_ranks(children, w->workers);
    j.failing = true;
    for (j.from = 0; w->workers > 1 && j.from < n_programs; j.from++)
        if (fails(j.from)) {
            j.to = j.from + 1;
            start_ranks(children, w->workers, play, &j);
            wait_ranks(children, w->workers);
        }
}

// ---- Comparing ----------------------------------------------------------------------------------

static bool same_numbers(const noted *a, const noted *b)
{
    return a->n == b->n && memcmp(a->at, b->at, sizeof *a->at * (size_t)a->n) == 0;
}

static bool same_outcome(const outcome *a, const outcome *b, int first, int n)
{
    if (a->code != b->code || a->step != b->step)
        return false;
    bool same = a->code != MU_OK || same_numbers(&a->all, &b->all);
    for (int r = first; a->code == MU_OK && r < first + n; r++)
        same = same && same_numbers(&a->replica[r], &b->replica[r]);
    return same;
}

static void print_numbers(const char *what, const noted *list)
{
    fprintf(stderr, "    %s:", what);
    for (int i = 0; i < list->n; i++)
        fprintf(stderr, " %g", list->at[i]);
    fprintf(stderr, "\n");
}

static void print_outcome(const char *name, int rank, const outcome *found)
{
    fprintf(stderr, "  %s, worker %d: %s at step %d %s\n", name, rank, mu_status_name(found->code), found->step,
            found->message);
    for (int r = 0; r < RUN_REPLICAS && found->code == MU_OK; r++)
        print_numbers("a replica", &found->replica[r]);
    print_numbers("all", &found->all);
}

static int compare(const way *family, int ways)
{
    int failures = 0, succeeded = 0;
    for (int i = 0; i < n_programs; i++) {
        const outcome *wanted = &shared->found[0][0][i];
        succeeded += wanted->code == MU_OK;
        for (int w = 1; w < ways; w++)
            for (int rank = 0; rank < family[w].workers; rank++) {
                const outcome *found = &shared->found[w][rank][i];
                if (same_outcome(wanted, found, rank * family[w].replicas, family[w].replicas))
                    continue;
                fprintf(stderr, "seed %llu differs:\n", first_seed + (unsigned)i);
                print_program(&shared->programs[i]);
                print_outcome(family[0].name, 0, wanted);
                print_outcome(family[w].name, rank, found);
                failures++;
            }
    }
    fprintf(stderr, "%s: %d programs, %d of them succeed\n", family[0].name, n_programs, succeeded);
    return failures;
}

static void play_family(const way *family)
{
    int ways = 0;
    job j = {.way = family, .on_workers = family[2].workers > 1};
    run_ranks(1, make_programs, &j);
    for (ways = 1; ways < MOST_WAYS && family[ways].name != NULL; ways++)
        play_way(&family[ways], ways);
    assert_int_equal(compare(family, ways), 0);
}

static void steps_give_the_same(void **state)
{
    (void)state;
    for (size_t f = 0; f < MU_COUNT(families); f++)
        play_family(families[f]);
}

int main(int n, char **arguments)
{
    if (n > 1)
        first_seed = strtoull(arguments[1], NULL, 10);
    if (n > 2)
        n_programs = MU_MIN(atoi(arguments[2]), MOST_PROGRAMS);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_give_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
