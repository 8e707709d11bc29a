// Stages that put elements together: batch, padded_batch, window.
//
// Items are collected first and stacked at once, so a batch over rows in memory is one gather. A window is a
// batch whose items may be used again by the next one.
#include "data/dataset.h"

typedef struct batch_state {
    struct {
        mu_item *items;
        size_t n, capacity;
    } held;
    mu_spares spares;
    bool input_ended;
} batch_state;

static void batch_close(mu_stage *stage)
{
    batch_state *state = stage->state;
    for (size_t i = 0; i < state->held.n; i++)
        mu__item_drop(&state->held.items[i]);
    mu__free(state->held.items);
    mu__spares_free(&state->spares);
}

// Reads until `wanted` items are held or the input ends.
static mu_status hold(mu_stage *stage, int64_t wanted)
{
    batch_state *state = stage->state;
    while (!state->input_ended && state->held.n < (size_t)wanted) {
        mu_item item;
        MU_TRY(mu__stage_next(stage, 0, &item, &state->input_ended));
        if (!state->input_ended && MU_PUSH(&state->held, item) != MU_OK) {
            mu__item_drop(&item);
            return MU_RESOURCE_EXHAUSTED;
        }
    }
    return MU_OK;
}

static void drop_first(batch_state *state, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mu__item_drop(&state->held.items[i]);
    state->held.n -= n;
    memmove(state->held.items, state->held.items + n, state->held.n * sizeof *state->held.items);
}

// All that is held, or the part of it that falls to this worker.
static mu_value *stack_own(mu_stage *stage, int64_t n)
{
    batch_state *state = stage->state;
    const mu_division *by = &stage->dataset->args.division;
    const bool pad = stage->ops == &mu__stage_padded_batch;
    int64_t begin = 0, end = n;
    if (by->n > 0)
        mu__division_rows(by, n, &begin, &end);
    if (end > begin)
        return mu__stack(state->held.items + begin, end - begin, pad, &state->spares, stage->ops->name);
    mu_value *like = mu__stack(state->held.items, 1, pad, &state->spares, stage->ops->name);
    mu_value *empty = like != NULL ? mu__empty_like(like) : NULL;
    mu_release(like);
    return empty;
}

static mu_status batch_next(mu_stage *stage, mu_item *item, bool *end)
{
    batch_state *state = stage->state;
    const mu_stage_args *args = &stage->dataset->args;
    MU_TRY(hold(stage, args->count));
    size_t n = state->held.n;
    *end = n == 0 || (args->drop_remainder && n < (size_t)args->count);
    if (*end)
        return MU_OK;
    item->value = stack_own(stage, (int64_t)n);
    drop_first(state, n);
    return item->value != NULL ? MU_OK : mu_error_code();
}

static mu_status batch_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    const mu_stage_args *args = &stage->dataset->args;
    int64_t limit = INT64_MAX / args->count, part = 0;
    while (*skipped < count) {
        int64_t batches = MU_MIN(count - *skipped, limit);
        MU_TRY(mu__stage_skip(stage, 0, batches * args->count, &part));
        *skipped += part / args->count + (!args->drop_remainder && part % args->count > 0);
        if (part < batches * args->count)
            break;
    }
    return MU_OK;
}

static int64_t batch_cardinality(const mu_dataset *dataset)
{
    int64_t n = mu_dataset_cardinality(dataset->inputs[0]), size = dataset->args.count;
    return n < 0 ? n : n / size + (!dataset->args.drop_remainder && n % size > 0);
}

static mu_value *batch_spec(const mu_dataset *dataset)
{
    mu_value *spec = mu__dataset_spec(dataset->inputs[0]);
    int64_t n = dataset->args.drop_remainder ? dataset->args.count : MU_UNKNOWN;
    return spec != NULL ? mu__stack_spec(spec, n, dataset->ops == &mu__stage_padded_batch) : NULL;
}

const mu_stage_ops mu__stage_batch = {
    .name = "batch", .state_bytes = sizeof(batch_state), .next = batch_next, .skip = batch_skip, .close = batch_close,
    .cardinality = batch_cardinality, .spec = batch_spec,
};

const mu_stage_ops mu__stage_padded_batch = {
    .name = "padded_batch", .state_bytes = sizeof(batch_state), .next = batch_next, .skip = batch_skip,
    .close = batch_close, .cardinality = batch_cardinality, .spec = batch_spec,
};

static mu_dataset *batch_dataset(const mu_stage_ops *ops, const mu_dataset_batch_args *args, const char *function)
{
    mu_dataset_batch_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK)
        return NULL;
    if (a.batch_size < 1) {
        mu__error(MU_INVALID_ARGUMENT, "the batch size is %lld; wanted at least 1", (long long)a.batch_size);
        return NULL;
    }
    mu_stage_args stage = {.count = a.batch_size, .drop_remainder = a.drop_remainder};
    return mu__dataset_stage(ops, &stage, a.dataset);
}

mu_dataset *mu_dataset_batch_with(const mu_dataset_batch_args *args)
{
    return batch_dataset(&mu__stage_batch, args, "mu_dataset_batch");
}

mu_dataset *mu_dataset_padded_batch_with(const mu_dataset_batch_args *args)
{
    return batch_dataset(&mu__stage_padded_batch, args, "mu_dataset_padded_batch");
}

// ---- Window -------------------------------------------------------------------------------------

// Elements from the first of a window to its last.
static int64_t window_span(const mu_stage_args *args)
{
    return (args->count - 1) * args->step + 1;
}

static mu_value *window_stack(mu_stage *stage)
{
    batch_state *state = stage->state;
    const mu_stage_args *args = &stage->dataset->args;
    size_t n = 0;
    mu_item *chosen = mu__calloc((size_t)args->count, sizeof *chosen);
    if (chosen == NULL)
        return NULL;
    for (size_t i = 0; i < state->held.n && n < (size_t)args->count; i += (size_t)args->step)
        chosen[n++] = state->held.items[i];
    for (size_t i = 0; i < n; i++)
        mu_retain(chosen[i].value);
    mu_value *value = mu__stack(chosen, (int64_t)n, false, &state->spares, "window");
    for (size_t i = 0; i < n; i++)
        mu__item_drop(&chosen[i]);
    mu__free(chosen);
    return value;
}

static mu_status window_next(mu_stage *stage, mu_item *item, bool *end)
{
    batch_state *state = stage->state;
    const mu_stage_args *args = &stage->dataset->args;
    MU_TRY(hold(stage, window_span(args)));
    *end = state->held.n == 0 || (args->drop_remainder && state->held.n < (size_t)window_span(args));
    if (*end)
        return MU_OK;
    item->value = window_stack(stage);
    size_t dropped = MU_MIN((size_t)args->index, state->held.n);
    drop_first(state, dropped);
    if (dropped < (size_t)args->index && !state->input_ended) {
        int64_t skipped = 0, wanted = args->index - (int64_t)dropped;
        MU_TRY(mu__stage_skip(stage, 0, wanted, &skipped));
        state->input_ended = skipped < wanted;
    }
    return item->value != NULL ? MU_OK : mu_error_code();
}

static int64_t window_cardinality(const mu_dataset *dataset)
{
    int64_t n = mu_dataset_cardinality(dataset->inputs[0]), shift = dataset->args.index;
    if (n < 0)
        return n;
    if (dataset->args.drop_remainder)
        return n < window_span(&dataset->args) ? 0 : (n - window_span(&dataset->args)) / shift + 1;
    return n / shift + (n % shift > 0);
}

const mu_stage_ops mu__stage_window = {
    .name = "window", .state_bytes = sizeof(batch_state), .next = window_next, .close = batch_close,
    .cardinality = window_cardinality, .spec = batch_spec,
};

mu_dataset *mu_dataset_window_with(const mu_dataset_window_args *args)
{
    mu_dataset_window_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_window") != MU_OK)
        return NULL;
    int64_t shift = a.shift != 0 ? a.shift : a.window_size, stride = a.stride != 0 ? a.stride : 1;
    if (a.window_size < 1 || shift < 1 || stride < 1 || a.window_size > INT32_MAX || stride > INT32_MAX) {
        mu__error(MU_INVALID_ARGUMENT,
                  "a window of %lld elements, shifted by %lld, with stride %lld: each must be at least 1",
                  (long long)a.window_size, (long long)shift, (long long)stride);
        return NULL;
    }
    mu_stage_args stage = {.count = a.window_size, .index = shift, .step = stride, .drop_remainder = a.drop_remainder};
    return mu__dataset_stage(&mu__stage_window, &stage, a.dataset);
}
