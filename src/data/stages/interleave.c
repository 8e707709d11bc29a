// flat_map and interleave: stages whose callback makes a dataset of every element.
//
// flat_map is an interleave with one open dataset. Elements are passed on as values, because a row's dataset may be
// freed before the row is used.
#include "data/dataset.h"

#include "base/callback.h"

typedef struct nested_args {
    mu_dataset *(*fn)(mu_value *element, void *arg);
    void *arg;
    char *name;           // name of the callback, for errors; owned
    int64_t cycle_length; // datasets open at the same time
    int64_t block_length; // elements taken from one dataset before the next
} nested_args;

static const mu_owned_field nested_owned[] = {{MU_OWNS_TEXT, offsetof(nested_args, name)}, {MU_OWNS_END, 0}};

typedef struct nested_state {
    mu_iterator **open;            // [cycle_length]; NULL: empty slot
    int64_t cycle, current, taken; // current slot, and elements taken from it
    int n_open;
    bool input_ended;
} nested_state;

static mu_status nested_open(mu_stage *stage)
{
    nested_state *state = stage->state;
    state->cycle = ((const nested_args *)stage->dataset->args)->cycle_length;
    state->open = mu__calloc((size_t)state->cycle, sizeof *state->open);
    return state->open != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static void nested_close(mu_stage *stage)
{
    nested_state *state = stage->state;
    for (int64_t i = 0; state->open != NULL && i < state->cycle; i++)
        mu_release(state->open[i]);
    mu__free(state->open);
}

static mu_iterator *iterate_result(const nested_args *args, mu_value *element)
{
    mu_pool *pool = element != NULL ? mu_pool_open() : NULL;
    if (pool == NULL)
        return NULL;
    const char *before = mu__callback_enter("a function of a dataset");
    mu_dataset *dataset = args->fn(element, args->arg);
    mu__callback_leave(before);
    mu_iterator *iterator = NULL;
    if (!mu__pending() && (dataset == NULL || !mu__is(dataset, &mu__dataset_type)))
        mu__error(MU_INVALID_ARGUMENT,
                  "the function of %s returned %s; it must return a dataset, or call mu_fail first", args->name,
                  dataset == NULL ? "NULL" : "something else");
    if (mu__pending())
        mu__error_context("in the function of %s", args->name);
    else
        iterator = mu__dataset_iterate(dataset);
    mu_pool_close(pool);
    return iterator;
}

// Opens the next dataset in the current slot.
static mu_status open_slot(mu_stage *stage)
{
    nested_state *state = stage->state;
    mu_item item;
    MU_TRY(mu__stage_next(stage, 0, &item, &state->input_ended));
    if (state->input_ended)
        return MU_OK;
    state->open[state->current] = iterate_result(stage->dataset->args, mu__item_value(&item));
    mu__item_drop(&item);
    if (state->open[state->current] == NULL)
        return mu_error_code();
    state->n_open++;
    return MU_OK;
}

static void next_slot(nested_state *state)
{
    state->current = (state->current + 1) % state->cycle;
    state->taken = 0;
}

static void close_slot(nested_state *state)
{
    mu_release(state->open[state->current]);
    state->open[state->current] = NULL;
    state->n_open--;
    next_slot(state);
}

static mu_status nested_next(mu_stage *stage, mu_item *item, bool *end)
{
    nested_state *state = stage->state;
    const nested_args *args = stage->dataset->args;
    for (;;) {
        bool over = false;
        if (state->open[state->current] == NULL && !state->input_ended)
            MU_TRY(open_slot(stage));
        if (state->open[state->current] == NULL) {
            *end = state->input_ended && state->n_open == 0;
            if (*end)
                return MU_OK;
            next_slot(state);
            continue;
        }
        MU_TRY(mu__iterator_item(state->open[state->current], item, &over));
        if (over) {
            close_slot(state);
            continue;
        }
        if (++state->taken == args->block_length)
            next_slot(state);
        return mu__item_value(item) != NULL ? MU_OK : mu_error_code();
    }
}

// Both are one stage; flat_map reads one data set after the other.
#define NESTED_STAGE(stage_name)                                                                                \
    {                                                                                                           \
        .name = stage_name, .state_bytes = sizeof(nested_state), .args_bytes = sizeof(nested_args),             \
        .owned = nested_owned, .open = nested_open, .next = nested_next, .close = nested_close, .opaque = true, \
        .makes_datasets = true,                                                                                 \
    }

static const mu_stage_ops flat_map_stage = NESTED_STAGE("flat_map"), interleave_stage = NESTED_STAGE("interleave");

mu_dataset *mu_dataset_flat_map(mu_dataset *dataset, mu_dataset *(*fn)(mu_value *element, void *arg), void *arg)
{
    nested_args stage = {.fn = fn, .arg = arg, .cycle_length = 1, .block_length = INT64_MAX};
    if (mu__pending() || (stage.name = mu__callback_name(NULL, "flat_map", fn != NULL)) == NULL)
        return NULL;
    return mu__dataset_stage(&flat_map_stage, &stage, dataset);
}

mu_dataset *mu_dataset_interleave_with(const mu_dataset_interleave_args *args)
{
    mu_dataset_interleave_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_interleave") != MU_OK)
        return NULL;
    const int64_t cycle = MU_GIVEN(&a, cycle_length) ? a.cycle_length : 4;
    const int64_t block = MU_GIVEN(&a, block_length) ? a.block_length : 1;
    if (cycle < 1 || cycle > UINT16_MAX || block < 1) {
        mu__error(
            MU_INVALID_ARGUMENT,
            "mu_dataset_interleave with cycle_length %lld and block_length %lld; expected 1 to %d, and at least 1",
            (long long)cycle, (long long)block, UINT16_MAX);
        return NULL;
    }
    nested_args stage = {.fn = a.fn, .arg = a.arg, .cycle_length = cycle, .block_length = block};
    if ((stage.name = mu__callback_name(NULL, "interleave", a.fn != NULL)) == NULL)
        return NULL;
    return mu__dataset_stage(&interleave_stage, &stage, a.dataset);
}
