// Eager replicas: threads of which only one runs at a time, and which switch only at a rendezvous.
//
// The calling thread coordinates. It runs replica 0 until its first rendezvous (a merge or a collective) or its end,
// then replica 1, and so on. When all replicas have paused, it carries out the operation and starts again from replica
// 0. So the user's C code needs no locks, and a wrong number of collectives is detected at once: no replica waits for
// one that has ended. Ops' collectives arrive here too, through the mu_collective of each replica
// (eager_collectives.c). A merge concerns this worker's replicas only.
#include "base/callback.h"
#include "distribute/run/eager_device.h"
#include "distribute/run/eager_replicas.h"

#include <signal.h>

static const char *const rendezvous_names[] = {"merge_call", "assignment",     "all_reduce",        "all_gather",
                                               "broadcast",  "reduce_scatter", "collective_permute"};

// ---- On a replica's thread ----------------------------------------------------------------------

// Passes control to the coordinator; with `come_back` it waits until control returns.
static void hand_over(eager_replica *t, eager_state stage, bool come_back)
{
    struct mu_eager_replicas *run = t->head.eager;
    pthread_mutex_lock(&run->lock);
    t->stage = stage;
    run->whose = -1;
    pthread_cond_broadcast(&run->changed);
    while (come_back && run->whose != t->head.local)
        pthread_cond_wait(&run->changed, &run->lock);
    pthread_mutex_unlock(&run->lock);
}

mu_status mu__eager_rendezvous(eager_replica *t, rendezvous *what)
{
    struct mu_eager_replicas *run = t->head.eager;
    if (run->cause.code == MU_OK) {
        t->rendezvous = what;
        hand_over(t, PAUSED, true);
        t->rendezvous = NULL;
    }
    return mu__error_raise(&run->cause);
}

static void *replica_main(void *argument)
{
    eager_replica *t = argument;
    struct mu_eager_replicas *run = t->head.eager;
    mu_context context = {0};
    if (mu__context_enter(&context, run->caller) == MU_OK) {
        context.scope = &run->scope.scope;
        context.replica = &t->head.replica;
        context.run = run->number;
        context.component = t->head.local;
        context.n_components = run->n;
        mu_value *result = run->fn(t->arguments, run->arg);
        t->result = mu__context_leave(&context, mu__pending() ? NULL : result, &t->error);
    } else {
        mu__error_move(&t->error);
    }
    hand_over(t, ENDED, false);
    return NULL;
}

// ---- What the replicas do at a rendezvous, on the coordinating thread ----------------------------

static mu_status complain_form(const struct mu_eager_replicas *run, int r)
{
    const rendezvous *first = run->replicas[0].rendezvous, *other = run->replicas[r].rendezvous;
    char text[MU_FORM_TEXT], text_r[MU_FORM_TEXT];
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s \"%s\": replica %d brings %s, replica %d %s; all replicas must bring the same shapes, and the "
                     "same axis to a gather or scatter",
                     rendezvous_names[first->kind], first->name, run->strategy->first_replica,
                     mu__form_text(first->form, text), run->strategy->first_replica + r,
                     mu__form_text(other->form, text_r));
}

enum { RENDEZVOUS_TEXT = 160 };

static const char *rendezvous_text(const rendezvous *what, char text[RENDEZVOUS_TEXT])
{
    if (what->kind == RENDEZVOUS_ASSIGN)
        snprintf(text, RENDEZVOUS_TEXT, "%s to variable '%s'", mu__update_function(what->update), what->name);
    else if (what->name && what->name[0])
        snprintf(text, RENDEZVOUS_TEXT, "%s of '%s'", rendezvous_names[what->kind], what->name);
    else
        snprintf(text, RENDEZVOUS_TEXT, "%s", rendezvous_names[what->kind]);
    return text;
}

// The name of a reduce_scatter is its operation, and that of a permute its pairs: they are arguments of the same call.
static bool has_arguments_in_name(const rendezvous *what)
{
    return what->kind == RENDEZVOUS_SCATTER || what->kind == RENDEZVOUS_PERMUTE;
}

// The replicas' merge functions are not compared: the first replica's is used.
static bool same_call(const rendezvous *a, const rendezvous *b)
{
    return a->kind == b->kind && a->update == b->update && a->variable == b->variable &&
           (has_arguments_in_name(a) || strcmp(a->name ? a->name : "", b->name ? b->name : "") == 0);
}

enum { SOURCE_TEXT = 40 };

static const char *source_text(int64_t source, char text[SOURCE_TEXT])
{
    if (source < 0)
        return "zeros";
    snprintf(text, SOURCE_TEXT, "replica %lld's tensor", (long long)source);
    return text;
}

// Replica r's operation or pairs, which differ from the first replica's. Pairs may be many: it names the first target
// that gets something else.
static mu_status complain_arguments(const struct mu_eager_replicas *run, int r)
{
    const rendezvous *first = run->replicas[0].rendezvous, *other = run->replicas[r].rendezvous;
    const int id = run->strategy->first_replica;
    char text[SOURCE_TEXT], text_r[SOURCE_TEXT];
    int to = 0;
    if (first->kind == RENDEZVOUS_SCATTER)
        return mu__error(MU_INVALID_ARGUMENT,
                         "reduce_scatter: replica %d asks for '%s', replica %d for '%s'; all replicas must ask for the "
                         "same operation",
                         id, first->name, id + r, other->name);
    while (to + 1 < run->strategy->n_replicas && first->counts[to] == other->counts[to])
        to++;
    return mu__error(MU_INVALID_ARGUMENT,
                     "collective_permute: by the pairs of replica %d, replica %d gets %s, by those of replica %d it "
                     "gets %s; all replicas must give the same pairs",
                     id, to, source_text(first->counts[to], text), id + r, source_text(other->counts[to], text_r));
}

// Another type is INTERNAL, which is TensorFlow's code, though the program is at fault: its exit code is 64, as between
// processes.
static mu_status complain_elements(const struct mu_eager_replicas *run, int r)
{
    const rendezvous *first = run->replicas[0].rendezvous, *other = run->replicas[r].rendezvous;
    const int id = run->strategy->first_replica;
    const bool alike = other->dtype == first->dtype && other->reduction == first->reduction;
    char text[RENDEZVOUS_TEXT];
    const mu_status status =
        mu__error(alike ? MU_INVALID_ARGUMENT : MU_INTERNAL,
                  "%s: replica %d has %lld elements of %s, replica %d has %lld of %s, or they ask for different "
                  "operations; all replicas must ask for the same",
                  rendezvous_text(first, text), id, (long long)first->count, mu_dtype_name(first->dtype), id + r,
                  (long long)other->count, mu_dtype_name(other->dtype));
    mu__error_of_caller();
    return status;
}

static mu_status check_rendezvous(const struct mu_eager_replicas *run)
{
    const rendezvous *first = run->replicas[0].rendezvous;
    const int id = run->strategy->first_replica;
    char mine[RENDEZVOUS_TEXT], theirs[RENDEZVOUS_TEXT];
    for (int r = 1; r < run->n; r++) {
        const rendezvous *other = run->replicas[r].rendezvous;
        if (!same_call(first, other))
            return mu__error(MU_FAILED_PRECONDITION,
                             "replica %d calls %s where replica %d calls %s%s; nothing was written. Replicas must make "
                             "the same calls, with the same variables, in the same order",
                             id, rendezvous_text(first, mine), id + r, rendezvous_text(other, theirs),
                             other->variable && strcmp(first->name, other->name) == 0 && other->update == first->update
                                 ? " (another variable of the same name)"
                                 : "");
        if (has_arguments_in_name(first) && strcmp(first->name, other->name) != 0)
            return complain_arguments(run, r);
        const bool scatter = first->kind == RENDEZVOUS_SCATTER, same_type = other->dtype == first->dtype;
        if (first->kind > RENDEZVOUS_ASSIGN && same_type &&
            (other->form->hash != first->form->hash || (scatter && other->count != first->count)))
            return complain_form(run, r);
        if (first->kind > RENDEZVOUS_ASSIGN &&
            (other->dtype != first->dtype || other->reduction != first->reduction || other->root != first->root ||
             (first->kind != RENDEZVOUS_GATHER && other->count != first->count)))
            return complain_elements(run, r);
    }
    return MU_OK;
}

static mu_status hand_out(struct mu_eager_replicas *run, const mu_value *result)
{
    MU_TRY(mu__need_components(run->strategy, result, "mu_merge_call: the result"));
    for (int r = 0; r < run->n; r++) {
        rendezvous *m = run->replicas[r].rendezvous;
        m->result = result ? mu__select_for(run->strategy, result, r, run->number)
                           : mu__value_container(MU_VALUE_LIST, 0, NULL, NULL);
        if (!m->result)
            return mu_error_code();
    }
    return MU_OK;
}

static mu_value *regroup_arguments(const struct mu_eager_replicas *run)
{
    mu_value **values = mu__calloc((size_t)run->n, sizeof *values), *grouped = NULL;
    for (int r = 0; values && r < run->n; r++)
        values[r] = run->replicas[r].rendezvous->arguments;
    if (values)
        grouped = mu__regroup(run->n, values);
    mu__free(values);
    return grouped;
}

static mu_status merge_at_rendezvous(struct mu_eager_replicas *run)
{
    const rendezvous *first = run->replicas[0].rendezvous;
    mu_pool *pool = mu_pool_open();
    mu_value *grouped = pool ? mu__give(regroup_arguments(run)) : NULL;
    if (grouped) {
        mu_strategy_scope scope = {.strategy = run->strategy};
        mu_saved_context before = mu__enter_cross_replica(&scope);
        mu_value *result;
        MU_CALLBACK("a function of mu_merge_call", result = first->fn(run->strategy, grouped, first->arg));
        mu__leave_replica(before);
        if (!mu__pending())
            hand_out(run, result);
    }
    mu_pool_close(pool);
    return mu_error_code();
}

static mu_status run_rendezvous(struct mu_eager_replicas *run)
{
    MU_TRY(check_rendezvous(run));
    return run->replicas[0].rendezvous->kind > RENDEZVOUS_ASSIGN ? mu__eager_collect(run) : merge_at_rendezvous(run);
}

// ---- Coordination -------------------------------------------------------------------------------

// Lets one replica run until it pauses or ends.
static mu_status let_run(struct mu_eager_replicas *run, eager_replica *t)
{
    pthread_mutex_lock(&run->lock);
    const bool start = t->stage == NOT_STARTED; // from here on the replica may run and change stage
    run->whose = t->head.local;
    pthread_cond_broadcast(&run->changed);
    pthread_mutex_unlock(&run->lock);
    if (start) {
        sigset_t all, own; // leave signals to the program's own threads
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &own);
        const int failed = pthread_create(&t->thread, NULL, replica_main, t);
        pthread_sigmask(SIG_SETMASK, &own, NULL);
        if (failed)
            return mu__error(mu__errno_code(failed),
                             "cannot start a thread for replica %d: %s; raise the limit on threads", t->head.local,
                             strerror(failed));
    }
    pthread_mutex_lock(&run->lock);
    while (run->whose != -1)
        pthread_cond_wait(&run->changed, &run->lock);
    pthread_mutex_unlock(&run->lock);
    return mu__error_raise(&t->error);
}

static mu_status count_ends(const struct mu_eager_replicas *run, int *ended)
{
    int paused = -1, gone = -1;
    *ended = 0;
    for (int r = 0; r < run->n; r++) {
        *(run->replicas[r].stage == ENDED ? &gone : &paused) = r;
        *ended += run->replicas[r].stage == ENDED;
    }
    if (*ended == 0 || *ended == run->n)
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION,
                     "replica %d has ended while replica %d is in %s: the replicas made different numbers of merge or "
                     "collective calls; each must make the same",
                     gone, paused, rendezvous_names[run->replicas[paused].rendezvous->kind]);
}

static mu_status drive(struct mu_eager_replicas *run)
{
    for (;;) {
        int ended;
        for (int r = 0; r < run->n; r++)
            if (run->replicas[r].stage != ENDED)
                MU_TRY(let_run(run, &run->replicas[r]));
        MU_TRY(count_ends(run, &ended));
        if (ended == run->n)
            return MU_OK;
        MU_TRY(run_rendezvous(run));
    }
}

// After a failure: every waiting replica gets the error, and ends.
static void release_all(struct mu_eager_replicas *run)
{
    mu__strategy_failed(run->strategy);
    mu__error_move(&run->cause);
    for (int r = 0; r < run->n; r++)
        while (run->replicas[r].stage == PAUSED) {
            run->replicas[r].error.code = MU_OK;
            let_run(run, &run->replicas[r]);
            mu_error_value echo;
            mu__error_move(&echo);
        }
    mu__error_raise(&run->cause);
}

static mu_status prepare(struct mu_eager_replicas *run, const mu_value *arguments)
{
    run->replicas = mu__calloc((size_t)run->n, sizeof *run->replicas);
    if (!run->replicas)
        return MU_RESOURCE_EXHAUSTED;
    for (int r = 0; r < run->n; r++) {
        eager_replica *t = &run->replicas[r];
        t->collective = (mu_collective){
            .rank = run->strategy->first_replica + r, .size = run->strategy->n_replicas, .form = &t->form};
        mu__eager_collective(&t->collective);
        t->head = (mu_strategy_replica){
            .replica = {.id = run->strategy->first_replica + r, .collective = &t->collective, .run = run->number},
            .strategy = run->strategy,
            .eager = run,
            .local = r};
        t->arguments = mu__select_for(run->strategy, arguments, r, run->number);
        if (!t->arguments)
            return mu_error_code();
    }
    return MU_OK;
}

static mu_value *take_results(const struct mu_eager_replicas *run)
{
    mu_value **values = mu__calloc((size_t)run->n, sizeof *values), *grouped = NULL;
    mu_value *nothing = mu__value_container(MU_VALUE_LIST, 0, NULL, NULL);
    for (int r = 0; values && r < run->n; r++)
        values[r] = run->replicas[r].result ? run->replicas[r].result : nothing;
    if (values && nothing)
        grouped = mu__regroup(run->n, values);
    mu_release(nothing);
    mu__free(values);
    return grouped;
}

mu_value *mu__eager_run(mu_strategy *strategy, mu_replica_fn *fn, void *arg, const mu_value *arguments)
{
    struct mu_eager_replicas run = {.strategy = strategy,
                                    .number = mu__new_run(strategy),
                                    .scope = {.strategy = strategy,
                                              .scope = {.make_variable = mu__make_distributed_variable,
                                                        .apply = mu__eager_apply_of(strategy, true)}},
                                    .caller = mu__context(),
                                    .fn = fn,
                                    .arg = arg,
                                    .n = strategy->n_local,
                                    .whose = -1};
    mu_value *result = NULL;
    pthread_mutex_init(&run.lock, NULL);
    pthread_cond_init(&run.changed, NULL);
    if (prepare(&run, arguments) == MU_OK && drive(&run) != MU_OK)
        release_all(&run);
    for (int r = 0; run.replicas && r < run.n; r++)
        if (run.replicas[r].stage == ENDED)
            pthread_join(run.replicas[r].thread, NULL);
    if (!mu__pending())
        result = take_results(&run);
    for (int r = 0; run.replicas && r < run.n; r++) {
        mu_release(run.replicas[r].arguments);
        mu_release(run.replicas[r].result);
    }
    for (size_t i = 0; i < run.made.n; i++)
        mu_release(run.made.items[i].variable);
    mu__free(run.made.items);
    mu__free(run.replicas);
    pthread_cond_destroy(&run.changed);
    pthread_mutex_destroy(&run.lock);
    return result;
}

static mu_value *rendezvous_and_take(rendezvous *what)
{
    if (mu__eager_rendezvous((eager_replica *)mu__replica(), what) == MU_OK)
        return mu__give(what->result);
    mu_release(what->result);
    return NULL;
}

mu_value *mu__eager_merge(mu_merge_fn *fn, void *arg, mu_value *arguments)
{
    return rendezvous_and_take(&(rendezvous){.kind = RENDEZVOUS_MERGE, .fn = fn, .arg = arg, .arguments = arguments});
}

mu_value *mu__eager_assign(const mu_variable *variable, mu_update update, mu_merge_fn *fn, void *arg, mu_value *value)
{
    return rendezvous_and_take(&(rendezvous){.kind = RENDEZVOUS_ASSIGN,
                                             .name = variable->resource.name,
                                             .variable = variable,
                                             .update = update,
                                             .fn = fn,
                                             .arg = arg,
                                             .arguments = value});
}

// ---- Variables made on replicas -----------------------------------------------------------------

// Compares TensorFlow's canonical names: "_<digit>" is dropped at the end and before a '/'.
static bool same_canonical_name(const char *a, const char *b)
{
    for (;;) {
        const char **both[] = {&a, &b};
        for (int i = 0; i < 2; i++) {
            const char *at = *both[i];
            if (at[0] == '_' && at[1] >= '0' && at[1] <= '9' && (at[2] == '\0' || at[2] == '/'))
                *both[i] += 2;
        }
        if (*a != *b)
            return false;
        if (*a == '\0')
            return true;
        a++;
        b++;
    }
}

mu_variable *mu__eager_variable(const char *name)
{
    const eager_replica *t = (const eager_replica *)mu__replica();
    struct mu_eager_replicas *run = t->head.eager;
    // The n-th variable of a name on this replica is the n-th on replica 0: the one that exactly the replicas before
    // this one have received.
    for (size_t i = 0; t->head.local > 0 && i < run->made.n; i++) {
        made_variable *made = &run->made.items[i];
        if (made->taken != t->head.local - 1 || !same_canonical_name(made->variable->resource.name, name))
            continue;
        made->taken++;
        return mu_retain(made->variable);
    }
    if (t->head.local > 0)
        mu__error(MU_FAILED_PRECONDITION,
                  "replica %d makes the variable '%s', but replica 0 has made none of that name; every replica must "
                  "make the same variables",
                  t->head.local, name);
    return NULL;
}

mu_status mu__eager_made(mu_variable *variable)
{
    struct mu_eager_replicas *run = mu__replica()->eager;
    const made_variable made = {.variable = variable};
    MU_TRY(MU_PUSH(&run->made, made));
    mu_retain(variable);
    return MU_OK;
}
