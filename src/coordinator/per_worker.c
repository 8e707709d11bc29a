// Per-worker values: see per_worker.h.
#include "coordinator/per_worker.h"

#include "base/callback.h"
#include "distribute/servers/input_service.h"

#include <muster/coordinator.h>

// ---- Objects ------------------------------------------------------------------------------------

static void list_destroy(void *object)
{
    mu_resource_list *list = object;
    mu__monitor_free(&list->monitor);
    mu__monitor_free(&list->making);
}

static mu_type list_type = {.name = "list of per-worker values", .destroy = list_destroy};

static void maker_destroy(void *object) { mu_release(((mu_maker *)object)->made); }

static mu_type maker_type = {.name = "maker of a per-worker value", .destroy = maker_destroy};

static void per_worker_destroy(void *object)
{
    mu_per_worker_resource *per_worker = object;
    mu_resource_list *list = per_worker->list;
    if (list) {
        pthread_mutex_lock(&list->monitor.lock);
        for (mu_per_worker_resource **at = &list->first; *at; at = &(*at)->next)
            if (*at == per_worker) {
                *at = per_worker->next;
                break;
            }
        pthread_mutex_unlock(&list->monitor.lock);
    }
    for (int i = 0; i < per_worker->n; i++)
        mu_release(per_worker->values[i]);
    mu__free(per_worker->values);
    mu_release(per_worker->maker);
    mu_release(list);
}

mu_type mu__per_worker_type = {.name = "per-worker value", .destroy = per_worker_destroy};

mu_resource_list *mu__resource_list_new(void)
{
    mu_resource_list *list = mu__new(&list_type, sizeof *list);
    if (list && mu__monitor_init(&list->monitor, "coordinator") == MU_OK &&
        mu__monitor_init(&list->making, "coordinator") == MU_OK)
        return list;
    mu_release(list);
    return NULL;
}

static mu_maker *copy_maker(const mu_maker *maker)
{
    mu_maker *copy = mu__new(&maker_type, sizeof *copy);
    if (copy) {
        copy->dataset = maker->dataset;
        copy->made = mu_retain(maker->made);
        copy->value = maker->value;
        copy->arg = maker->arg;
        copy->shared = maker->shared;
    }
    return copy;
}

mu_per_worker_resource *mu__per_worker_new(mu_resource_list *list, int n, const mu_maker *maker, bool drawn_here)
{
    mu_per_worker_resource *per_worker = mu__new(&mu__per_worker_type, sizeof *per_worker);
    if (!per_worker)
        return NULL;
    per_worker->drawn_here = drawn_here;
    per_worker->maker = copy_maker(maker);
    per_worker->values = mu__calloc((size_t)n, sizeof(mu_remote_value *));
    bool whole = per_worker->maker && per_worker->values;
    for (int i = 0; i < n && whole; i++) {
        whole = (per_worker->values[i] = mu__remote_value_new()) != NULL;
        per_worker->n += whole;
    }
    if (!whole) {
        mu_release(per_worker);
        return NULL;
    }
    per_worker->list = mu_retain(list);
    pthread_mutex_lock(&list->monitor.lock);
    per_worker->next = list->first;
    list->first = per_worker;
    pthread_mutex_unlock(&list->monitor.lock);
    return per_worker;
}

void mu__per_worker_abort(mu_resource_list *list, int worker, const mu_error_value *error)
{
    pthread_mutex_lock(&list->monitor.lock);
    for (mu_per_worker_resource *at = list->first; at; at = at->next)
        if (!at->drawn_here)
            mu__remote_value_abort(at->values[worker], error);
    pthread_mutex_unlock(&list->monitor.lock);
}

// ---- Making one ---------------------------------------------------------------------------------

static _Thread_local int current_worker = -1;

int mu_get_current_worker_index(void)
{
    if (current_worker < 0)
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_get_current_worker_index is called outside of a function that makes something for each worker "
                  "(mu_create_per_worker_dataset, mu_create_per_worker_values)");
    return current_worker;
}

static mu_variable *refuse_variable(struct mu_scope *scope, const mu_variable_args *args)
{
    (void)scope;
    mu__error(MU_INVALID_ARGUMENT,
              "variable '%s' is made in a function that makes something for each worker; make it in the strategy's "
              "scope, before",
              args->name ? args->name : "Variable");
    return NULL;
}

static void *call_maker(const mu_maker *maker)
{
    if (maker->made)
        return mu_retain(maker->made);
    const char *before = mu__callback_enter("a function for each worker");
    void *made = maker->dataset ? (void *)maker->dataset(maker->arg) : maker->value(maker->arg);
    mu__callback_leave(before);
    if (made && maker->dataset && !mu__is(made, &mu__dataset_type) && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT,
                  "the function for each worker returned something else than a dataset for worker %d", current_worker);
    if (!made && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT,
                  "the function for each worker returned NULL for worker %d; return a %s, or call mu_fail",
                  current_worker, maker->dataset ? "dataset" : "value");
    return mu__pending() ? NULL : mu_retain(made);
}

void *mu__per_worker_make(mu_strategy *strategy, mu_resource_list *list, const mu_maker *maker, int worker)
{
    mu_strategy_scope scope = {.scope = {.make_variable = refuse_variable}, .strategy = strategy};
    mu_context *context = mu__context();
    scope.scope.outer = context->scope;
    pthread_mutex_lock(&list->making.lock);
    context->scope = &scope.scope;
    current_worker = worker;
    void *made = call_maker(maker);
    current_worker = -1;
    context->scope = scope.scope.outer;
    pthread_mutex_unlock(&list->making.lock);
    return made;
}

void *mu__per_worker_here(void *made)
{
    if (!made || !mu__is(made, &mu__dataset_type))
        return made;
    void *iterator = mu__dataset_iterate(made);
    mu_release(made);
    return iterator;
}

// ---- Using it -----------------------------------------------------------------------------------

// The element outlives the iterator's next one: a call may name the dataset twice.
static mu_value *next_element(mu_iterator *iterator, int worker)
{
    mu_value *element = mu_next(iterator);
    if (!element && !mu__pending())
        mu__error(MU_OUT_OF_RANGE,
                  "the dataset of worker %d has no more elements (end of data); repeat it, or schedule fewer steps",
                  worker);
    return mu__give(mu_retain(element));
}

mu_value *mu__per_worker_argument(const mu_per_worker_resource *per_worker, int worker)
{
    void *made = mu__give(
        mu__remote_value_take(per_worker->values[worker], mu__deadline_ns(mu__setting_real(MU_SETTING_TIMEOUT))));
    if (!made) {
        mu__error_begin(0, "input error, what each worker has for itself could not be made: ");
        return NULL;
    }
    if (mu__is(made, &mu__remote_input_type))
        return mu__give(mu__value_leaf(MU_VALUE_PER_WORKER, made));
    return mu__makes_dataset(per_worker->maker) ? next_element(made, worker) : made;
}

mu_value *mu__per_worker_drawn(mu_strategy *strategy, mu_per_worker_resource *per_worker)
{
    const int worker = per_worker->maker->shared ? 0 : (int)(per_worker->n_drawn % per_worker->n);
    per_worker->n_drawn++;
    mu_remote_value *value = per_worker->values[worker];
    if (mu__remote_value_state(value) == MU_REMOTE_NOT_READY) {
        void *made = mu__per_worker_here(mu__per_worker_make(strategy, per_worker->list, per_worker->maker, worker));
        mu_error_value error;
        mu__error_move(&error);
        if (error.code == MU_OK)
            mu__remote_value_set(value, made);
        else
            mu__remote_value_fail(value, &error);
        mu_release(made);
    }
    return mu__per_worker_argument(per_worker, worker);
}
