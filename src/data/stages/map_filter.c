// Stages that call C code for elements: generator, map, filter; and zip and enumerate, which only nest them.
//
// Every call has a pool of its own, and only its result leaves it. Datasets made by callbacks are in interleave.c,
// map with several threads in prefetch.c, map by traced functions in traced.c.
#include "data/dataset.h"

#include "base/callback.h"

#include <stdarg.h>

static const char in_dataset[] = "a function of a dataset";

char *mu__callback_name(const char *name, const char *stage, bool given)
{
    if (given)
        return mu__strdup(name != NULL ? name : stage);
    mu__error(MU_INVALID_ARGUMENT, "%s has no function (NULL) to call; give one", stage);
    return NULL;
}

// A result leaves its pool with its own reference. NULL without an error is the callback's mistake, unless `end`.
static mu_value *leave_pool(mu_pool *pool, mu_value *result, const char *name, bool end)
{
    if (result == NULL && !end && !mu__pending())
        mu__error(MU_INVALID_ARGUMENT,
                  "the function of %s returned NULL; it must return an element, or call mu_fail first", name);
    if (result == NULL && mu__pending())
        mu__error_context("in the function of %s", name);
    if (mu__pending())
        result = NULL;
    mu_retain(result);
    mu_pool_close(pool);
    return result;
}

mu_value *mu__call_map(const mu_map_args *args, mu_value *element)
{
    mu_pool *pool = element != NULL ? mu_pool_open() : NULL;
    if (pool == NULL)
        return NULL;
    const char *before = mu__callback_enter(in_dataset);
    mu_value *result =
        args->traced != NULL ? mu__give(mu__traced_map_call(args->traced, element)) : args->fn(element, args->arg);
    mu__callback_leave(before);
    return leave_pool(pool, result, args->name, false);
}

// The traced function's result is known without an element.
mu_value *mu__map_result_spec(const mu_dataset *dataset)
{
    const mu_map_args *args = dataset->args;
    mu_value *input = args->traced != NULL ? mu__dataset_spec(dataset->inputs[0]) : NULL;
    mu_value *spec = input != NULL ? mu__traced_map_spec(args->traced, input) : NULL;
    mu_release(input);
    return spec;
}

// ---- Generator ----------------------------------------------------------------------------------

typedef struct generator_args {
    void *(*open)(void *arg);
    mu_value *(*next)(void *state);
    void (*close)(void *state);
    void *arg;
    char *name;     // of the callback, in errors; owned
    mu_value *like; // spec of an element; may be NULL; retained
    int64_t n;      // elements of an iteration, or one of the special results of mu_dataset_cardinality
} generator_args;

static const mu_owned_field generator_owned[] = {
    {MU_OWNS_TEXT, offsetof(generator_args, name)}, {MU_OWNS_OBJECT, offsetof(generator_args, like)}, {MU_OWNS_END, 0}};

typedef struct generator_state {
    void *user;
    bool opened;
    int64_t given; // elements
} generator_state;

// Whether the generator keeps its word about the number of elements.
static mu_status check_count(const generator_args *args, const generator_state *state, bool end)
{
    const bool fewer = end && (args->n == MU_INFINITE || state->given < args->n);
    if (args->n == MU_UNKNOWN_CARDINALITY || (!fewer && (args->n == MU_INFINITE || state->given <= args->n)))
        return MU_OK;
    if (args->n == MU_INFINITE)
        return mu__error(MU_INVALID_ARGUMENT, "%s ended after %lld elements; its .cardinality says that it never ends",
                         args->name, (long long)state->given);
    return mu__error(MU_INVALID_ARGUMENT, "%s gave %s %lld elements; its .cardinality says %lld. Correct one of them",
                     args->name, end ? "only" : "at least", (long long)state->given, (long long)args->n);
}

static mu_status generator_next(mu_stage *stage, mu_item *item, bool *end)
{
    generator_state *state = stage->state;
    const generator_args *args = stage->dataset->args;
    mu_pool *pool = mu_pool_open();
    if (pool == NULL)
        return mu_error_code();
    const char *before = mu__callback_enter(in_dataset);
    if (!state->opened)
        state->user = args->open != NULL ? args->open(args->arg) : args->arg;
    state->opened = true;
    mu_value *element = mu__pending() ? NULL : args->next(state->user);
    mu__callback_leave(before);
    item->value = leave_pool(pool, element, args->name, true);
    *end = item->value == NULL;
    state->given += !*end;
    MU_TRY(mu_error_code());
    if (check_count(args, state, *end) == MU_OK)
        return MU_OK;
    mu__item_drop(item);
    return mu_error_code();
}

static int64_t generator_cardinality(const mu_dataset *dataset) { return ((const generator_args *)dataset->args)->n; }

static void generator_close(mu_stage *stage)
{
    generator_state *state = stage->state;
    const generator_args *args = stage->dataset->args;
    if (state->opened && args->close != NULL)
        args->close(state->user);
}

static mu_value *generator_spec(const mu_dataset *dataset)
{
    return mu_retain(((const generator_args *)dataset->args)->like);
}

static const mu_stage_ops generator_stage = {
    .name = "generator",
    .state_bytes = sizeof(generator_state),
    .args_bytes = sizeof(generator_args),
    .owned = generator_owned,
    .next = generator_next,
    .close = generator_close,
    .spec = generator_spec,
    .cardinality = generator_cardinality,
};

mu_dataset *mu_dataset_generator_with(const mu_dataset_generator_args *args)
{
    mu_dataset_generator_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_generator") != MU_OK)
        return NULL;
    generator_args stage = {.open = a.open,
                            .next = a.next,
                            .close = a.close,
                            .arg = a.arg,
                            .n = MU_GIVEN(&a, cardinality) ? a.cardinality : MU_UNKNOWN_CARDINALITY};
    if (stage.n < 0 && stage.n != MU_INFINITE && stage.n != MU_UNKNOWN_CARDINALITY) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_dataset_generator: cardinality is %lld; give a number of elements, or MU_INFINITE",
                  (long long)stage.n);
        return NULL;
    }
    if ((stage.name = mu__callback_name(a.name, "generator", a.next != NULL)) == NULL)
        return NULL;
    if (a.like != NULL && (stage.like = mu__map_spec(mu_retain(a.like), mu__spec_as_it_is, 0)) == NULL) {
        mu__free(stage.name);
        return NULL;
    }
    return mu__give(mu__dataset_new(&generator_stage, &stage, 0, NULL));
}

// ---- Map ----------------------------------------------------------------------------------------

static mu_status map_next(mu_stage *stage, mu_item *item, bool *end)
{
    MU_TRY(mu__stage_next(stage, 0, item, end));
    if (*end)
        return MU_OK;
    mu_value *result = mu__call_map(stage->dataset->args, mu__item_value(item));
    mu__item_drop(item);
    item->value = result;
    return result != NULL ? MU_OK : mu_error_code();
}

static mu_status map_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    return mu__stage_skip(stage, 0, count, skipped);
}

static int64_t input_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

const mu_owned_field mu__map_owned[] = {
    {MU_OWNS_TEXT, offsetof(mu_map_args, name)}, {MU_OWNS_OBJECT, offsetof(mu_map_args, traced)}, {MU_OWNS_END, 0}};

const mu_sent_field mu__map_sent[] = {MU_SENDS_INT(mu_map_args, parallel_calls, 0, MU_MAX_PARALLEL_CALLS),
                                      MU_SENDS_NOTHING(mu_map_args, fn),
                                      MU_SENDS_OBJECT(mu_map_args, traced, &mu__traced_map_form),
                                      MU_SENDS_TEXT(mu_map_args, name),
                                      {.kind = MU_SENT_END}};

const mu_stage_ops mu__map_stage = {
    .name = "map",
    .sent = mu__map_sent,
    .args_bytes = sizeof(mu_map_args),
    .owned = mu__map_owned,
    .next = map_next,
    .skip = map_skip,
    .cardinality = input_cardinality,
    .spec = mu__map_result_spec,
};

// Traces at once if the spec of elements is known, so that errors are reported here.
static mu_traced_map *traced_map(mu_function *function, const mu_dataset *dataset)
{
    mu_traced_map *map = mu__traced_map_new(function);
    mu_value *input = map != NULL && mu__is(dataset, &mu__dataset_type) ? mu__dataset_spec(dataset) : NULL;
    if (input != NULL)
        mu_release(mu__traced_map_spec(map, input));
    mu_release(input);
    if (!mu__pending())
        return map;
    mu_release(map);
    return NULL;
}

mu_dataset *mu_dataset_map_with(const mu_dataset_map_args *args)
{
    mu_dataset_map_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_map") != MU_OK)
        return NULL;
    if (a.parallel_calls < 0 || a.parallel_calls > MU_MAX_PARALLEL_CALLS) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dataset_map with parallel_calls = %d; expected 0 to %d", a.parallel_calls,
                  MU_MAX_PARALLEL_CALLS);
        return NULL;
    }
    if (a.fn != NULL && a.function != NULL) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dataset_map is given both fn and function; give one of them");
        return NULL;
    }
    mu_map_args stage = {.parallel_calls = a.parallel_calls, .fn = a.fn, .arg = a.arg};
    if ((stage.name = mu__callback_name(a.name, "map", a.fn != NULL || a.function != NULL)) == NULL)
        return NULL;
    if (a.function != NULL && (stage.traced = traced_map(a.function, a.dataset)) == NULL) {
        mu__free(stage.name);
        return NULL;
    }
    return mu__dataset_stage(a.parallel_calls > 1 ? &mu__parallel_map_stage : &mu__map_stage, &stage, a.dataset);
}

// ---- Filter -------------------------------------------------------------------------------------

typedef struct filter_args {
    bool (*keep)(mu_value *element, void *arg);
    void *arg;
    char *name; // owned
} filter_args;

static const mu_owned_field filter_owned[] = {{MU_OWNS_TEXT, offsetof(filter_args, name)}, {MU_OWNS_END, 0}};

static mu_status filter_next(mu_stage *stage, mu_item *item, bool *end)
{
    const filter_args *args = stage->dataset->args;
    for (;;) {
        MU_TRY(mu__stage_next(stage, 0, item, end));
        if (*end)
            return MU_OK;
        mu_value *element = mu__item_value(item);
        mu_pool *pool = element != NULL ? mu_pool_open() : NULL;
        const char *before = mu__callback_enter(in_dataset);
        bool keep = pool != NULL && args->keep(element, args->arg);
        mu__callback_leave(before);
        mu_pool_close(pool);
        if (keep && !mu__pending())
            return MU_OK;
        mu__item_drop(item);
        if (mu__pending()) {
            mu__error_context("in the function of %s", args->name);
            return mu_error_code();
        }
    }
}

static const mu_stage_ops filter_stage = {
    .name = "filter",
    .args_bytes = sizeof(filter_args),
    .owned = filter_owned,
    .next = filter_next,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu_dataset_filter(mu_dataset *dataset, bool (*keep)(mu_value *element, void *arg), void *arg)
{
    filter_args stage = {.keep = keep, .arg = arg};
    if (mu__pending() || (stage.name = mu__callback_name(NULL, "filter", keep != NULL)) == NULL)
        return NULL;
    return mu__dataset_stage(&filter_stage, &stage, dataset);
}

// ---- Zip ----------------------------------------------------------------------------------------

static mu_status zip_next(mu_stage *stage, mu_item *item, bool *end)
{
    int n = stage->dataset->n_inputs;
    mu_value **parts = mu__calloc((size_t)n, sizeof *parts);
    mu_status status = parts != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && !*end && i < n; i++) {
        mu_item part;
        status = mu__stage_next(stage, i, &part, end);
        if (status != MU_OK || *end)
            break;
        parts[i] = mu__item_value(&part);
        status = parts[i] != NULL ? MU_OK : mu_error_code();
    }
    if (status == MU_OK && !*end) {
        item->value = mu__list_value(n, parts);
        status = item->value != NULL ? MU_OK : mu_error_code();
    } else {
        for (int i = 0; parts != NULL && i < n; i++)
            mu_release(parts[i]);
    }
    mu__free(parts);
    return status;
}

static mu_status zip_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    *skipped = count;
    for (int i = 0; i < stage->dataset->n_inputs; i++) {
        int64_t part = 0;
        MU_TRY(mu__stage_skip(stage, i, count, &part));
        *skipped = MU_MIN(*skipped, part);
    }
    return MU_OK;
}

static int64_t zip_cardinality(const mu_dataset *dataset)
{
    int64_t shortest = MU_INFINITE;
    for (int i = 0; i < dataset->n_inputs; i++) {
        int64_t n = mu_dataset_cardinality(dataset->inputs[i]);
        if (n == MU_UNKNOWN_CARDINALITY)
            return n;
        if (n != MU_INFINITE && (shortest == MU_INFINITE || n < shortest))
            shortest = n;
    }
    return shortest;
}

static mu_value *zip_spec(const mu_dataset *dataset)
{
    mu_value **parts = mu__calloc((size_t)dataset->n_inputs, sizeof *parts);
    for (int i = 0; parts != NULL && i < dataset->n_inputs; i++)
        parts[i] = mu__dataset_spec(dataset->inputs[i]);
    mu_value *spec = parts != NULL ? mu__list_value(dataset->n_inputs, parts) : NULL;
    mu__free(parts);
    return spec;
}

const mu_stage_ops mu__zip_stage = {
    .name = "zip",
    .next = zip_next,
    .skip = zip_skip,
    .cardinality = zip_cardinality,
    .spec = zip_spec,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu_dataset_zip_of(int n, mu_dataset *const *datasets)
{
    if (mu__pending() || (n > 0 && mu__need(datasets, "mu_dataset_zip_of: the list") != MU_OK))
        return NULL;
    if (n < 1) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dataset_zip of %d datasets; give at least one", n);
        return NULL;
    }
    return mu__give(mu__dataset_new(&mu__zip_stage, NULL, n, datasets));
}

mu_dataset *mu_dataset_zip(mu_dataset *first, ...)
{
    struct {
        mu_dataset **items;
        size_t n, capacity;
    } list = {0};
    mu_dataset *zipped = NULL;
    va_list more;
    va_start(more, first);
    for (mu_dataset *dataset = first; (void *)dataset != MU_END; dataset = va_arg(more, mu_dataset *))
        if (MU_PUSH(&list, dataset) != MU_OK)
            goto out;
    zipped = mu_dataset_zip_of((int)list.n, list.items);
out:
    va_end(more);
    mu__free(list.items);
    return zipped;
}

mu_dataset *mu_dataset_enumerate(mu_dataset *dataset, int64_t start)
{
    return mu_dataset_zip_of(2, (mu_dataset *[]){mu_dataset_range(start, INT64_MAX, 1), dataset});
}
