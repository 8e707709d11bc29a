// Stages whose callback makes a dataset of every element: flat_map and interleave.
//
// Flat_map is an interleave with one dataset open at a time. Elements leave as values, because the dataset
// that a row belongs to may be gone before the row is looked at.
#include "data/dataset.h"

typedef struct nested_state {
    mu_iterator **open;    // of cycle length; NULL: none in this place
    int64_t cycle, turn, taken;  // place whose turn it is, elements taken in this turn
    int n_open;
    bool input_ended;
} nested_state;

static mu_status nested_open(mu_stage *stage)
{
    nested_state *state = stage->state;
    state->cycle = stage->dataset->args.count;
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

static mu_iterator *iterate_result(const mu_stage_args *args, mu_value *element)
{
    mu_pool *pool = element != NULL ? mu_pool_open() : NULL;
    if (pool == NULL)
        return NULL;
    mu_dataset *dataset = args->fn.flat(element, args->arg);
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

// Opens the next dataset in the place whose turn it is.
static mu_status open_place(mu_stage *stage)
{
    nested_state *state = stage->state;
    mu_item item;
    MU_TRY(mu__stage_next(stage, 0, &item, &state->input_ended));
    if (state->input_ended)
        return MU_OK;
    state->open[state->turn] = iterate_result(&stage->dataset->args, mu__item_value(&item));
    mu__item_drop(&item);
    if (state->open[state->turn] == NULL)
        return mu_error_code();
    state->n_open++;
    return MU_OK;
}

static void next_turn(nested_state *state)
{
    state->turn = (state->turn + 1) % state->cycle;
    state->taken = 0;
}

static void close_place(nested_state *state)
{
    mu_release(state->open[state->turn]);
    state->open[state->turn] = NULL;
    state->n_open--;
    next_turn(state);
}

static mu_status nested_next(mu_stage *stage, mu_item *item, bool *end)
{
    nested_state *state = stage->state;
    for (;;) {
        bool over = false;
        if (state->open[state->turn] == NULL && !state->input_ended)
            MU_TRY(open_place(stage));
        if (state->open[state->turn] == NULL) {
            *end = state->input_ended && state->n_open == 0;
            if (*end)
                return MU_OK;
            next_turn(state);
            continue;
        }
        MU_TRY(mu__iterator_item(state->open[state->turn], item, &over));
        if (over) {
            close_place(state);
            continue;
        }
        if (++state->taken == stage->dataset->args.index)
            next_turn(state);
        return mu__item_value(item) != NULL ? MU_OK : mu_error_code();
    }
}

const mu_stage_ops mu__stage_flat_map = {
    .name = "flat_map", .state_bytes = sizeof(nested_state), .open = nested_open, .next = nested_next,
    .close = nested_close, .opaque = true,
};

const mu_stage_ops mu__stage_interleave = {
    .name = "interleave", .state_bytes = sizeof(nested_state), .open = nested_open, .next = nested_next,
    .close = nested_close, .opaque = true,
};

mu_dataset *mu_dataset_flat_map(mu_dataset *dataset, mu_dataset *(*fn)(mu_value *element, void *arg), void *arg)
{
    mu_stage_args stage = {.count = 1, .index = INT64_MAX, .arg = arg, .fn.flat = fn};
    if (mu__pending() || mu__name_callback(&stage, NULL, "flat_map", fn != NULL) != MU_OK)
        return NULL;
    return mu__dataset_stage(&mu__stage_flat_map, &stage, dataset);
}

mu_dataset *mu_dataset_interleave_with(const mu_dataset_interleave_args *args)
{
    mu_dataset_interleave_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_interleave") != MU_OK)
        return NULL;
    int64_t cycle = a.cycle_length != 0 ? a.cycle_length : 4, block = a.block_length != 0 ? a.block_length : 1;
    if (cycle < 1 || cycle > UINT16_MAX || block < 1) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_dataset_interleave with cycle_length %lld and block_length %lld; wanted 1 to %d, and at least 1",
                  (long long)cycle, (long long)block, UINT16_MAX);
        return NULL;
    }
    mu_stage_args stage = {.count = cycle, .index = block, .arg = a.arg, .fn.flat = a.fn};
    if (mu__name_callback(&stage, NULL, "interleave", a.fn != NULL) != MU_OK)
        return NULL;
    return mu__dataset_stage(&mu__stage_interleave, &stage, a.dataset);
}
