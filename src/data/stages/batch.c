// Stages that stack elements: batch, padded_batch, window.
//
// Items are collected first and stacked at once, so a batch of rows in memory is one gather. A window is a batch that
// may share items with the next.
#include "data/dataset.h"

typedef struct batch_args {
    int64_t batch_size;
    bool drop_remainder;
    mu_padding *pad;      // NULL: shapes must agree; owned
    mu_division division; // if n is not 0: only these rows of each batch are made
} batch_args;

static const mu_sent_field batch_sent[] = {MU_SENDS_INT(batch_args, batch_size, 1, INT64_MAX),
                                           MU_SENDS_INT(batch_args, drop_remainder, 0, 1),
                                           MU_SENDS_NOTHING(batch_args, pad),
                                           MU_SENDS_INT(batch_args, division.n, 0, 0),
                                           {.kind = MU_SENT_END}};
static const mu_sent_field padded_sent[] = {MU_SENDS_INT(batch_args, batch_size, 1, INT64_MAX),
                                            MU_SENDS_INT(batch_args, drop_remainder, 0, 1),
                                            MU_SENDS_OBJECT(batch_args, pad, &mu__padding_form),
                                            {.kind = MU_SENT_END}};

static const mu_owned_field batch_owned[] = {{MU_OWNS_OBJECT, offsetof(batch_args, pad)}, {MU_OWNS_END, 0}};

typedef struct batch_state {
    struct {
        mu_item *items;
        size_t n, capacity;
    } held;
    mu_buffer_cache buffer_cache;
    bool input_ended;
} batch_state;

static void batch_close(mu_stage *stage)
{
    batch_state *state = stage->state;
    for (size_t i = 0; i < state->held.n; i++)
        mu__item_drop(&state->held.items[i]);
    mu__free(state->held.items);
    mu__buffer_cache_free(&state->buffer_cache);
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

// Stacks all held items, or only this worker's part.
static mu_value *stack_own(mu_stage *stage, int64_t n)
{
    batch_state *state = stage->state;
    const batch_args *args = stage->dataset->args;
    const mu_division *by = &args->division;
    int64_t begin = 0, end = n;
    if (by->n > 0)
        mu__division_rows(by, n, &begin, &end);
    if (end > begin)
        return mu__stack(state->held.items + begin, end - begin, args->pad, &state->buffer_cache, stage->ops->name);
    mu_value *like = mu__stack(state->held.items, 1, args->pad, &state->buffer_cache, stage->ops->name);
    mu_value *empty = like != NULL ? mu__empty_like(like) : NULL;
    mu_release(like);
    return empty;
}

static mu_status batch_next(mu_stage *stage, mu_item *item, bool *end)
{
    batch_state *state = stage->state;
    const batch_args *args = stage->dataset->args;
    MU_TRY(hold(stage, args->batch_size));
    size_t n = state->held.n;
    *end = n == 0 || (args->drop_remainder && n < (size_t)args->batch_size);
    if (*end)
        return MU_OK;
    item->value = stack_own(stage, (int64_t)n);
    drop_first(state, n);
    return item->value != NULL ? MU_OK : mu_error_code();
}

static mu_status batch_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    const batch_args *args = stage->dataset->args;
    int64_t limit = INT64_MAX / args->batch_size, part = 0;
    while (*skipped < count) {
        int64_t batches = MU_MIN(count - *skipped, limit);
        MU_TRY(mu__stage_skip(stage, 0, batches * args->batch_size, &part));
        *skipped += part / args->batch_size + (!args->drop_remainder && part % args->batch_size > 0);
        if (part < batches * args->batch_size)
            break;
    }
    return MU_OK;
}

static int64_t batch_cardinality(const mu_dataset *dataset)
{
    const batch_args *args = dataset->args;
    int64_t n = mu_dataset_cardinality(dataset->inputs[0]), size = args->batch_size;
    return n < 0 ? n : n / size + (!args->drop_remainder && n % size > 0);
}

static mu_value *batch_spec(const mu_dataset *dataset)
{
    const batch_args *args = dataset->args;
    mu_value *spec = mu__dataset_spec(dataset->inputs[0]);
    const int64_t n = args->drop_remainder ? args->batch_size : MU_UNKNOWN;
    if (spec == NULL)
        return NULL;
    return args->pad != NULL ? mu__padded_spec(spec, args->pad, n) : mu__stack_spec(spec, n, false);
}

static int64_t batch_size(const mu_dataset *dataset) { return ((const batch_args *)dataset->args)->batch_size; }

static int64_t batch_rows(const mu_dataset *dataset)
{
    const batch_args *args = dataset->args;
    const int64_t n = mu_dataset_cardinality(dataset->inputs[0]);
    return n >= 0 && args->drop_remainder ? n - n % args->batch_size : n;
}

static mu_dataset *batch_divide_rows(const mu_dataset *dataset, const mu_division *by)
{
    mu_dataset *clone = mu__dataset_clone(dataset, dataset->inputs);
    if (clone != NULL)
        ((batch_args *)clone->args)->division = *by;
    return clone;
}

const mu_stage_ops mu__batch_stage = {
    .name = "batch",
    .sent = batch_sent,
    .state_bytes = sizeof(batch_state),
    .args_bytes = sizeof(batch_args),
    .owned = batch_owned,
    .next = batch_next,
    .skip = batch_skip,
    .close = batch_close,
    .cardinality = batch_cardinality,
    .spec = batch_spec,
    .batch_size = batch_size,
    .rows = batch_rows,
    .divide_rows = batch_divide_rows,
};

// Padding depends on the whole batch, so all of it is made before it is divided.
const mu_stage_ops mu__padded_batch_stage = {
    .name = "padded_batch",
    .sent = padded_sent,
    .state_bytes = sizeof(batch_state),
    .args_bytes = sizeof(batch_args),
    .owned = batch_owned,
    .next = batch_next,
    .skip = batch_skip,
    .close = batch_close,
    .cardinality = batch_cardinality,
    .spec = batch_spec,
    .batch_size = batch_size,
};

static mu_status check_batch_size(int64_t batch_size)
{
    return batch_size >= 1
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "the batch size is %lld; expected at least 1", (long long)batch_size);
}

mu_dataset *mu_dataset_batch_with(const mu_dataset_batch_args *args)
{
    mu_dataset_batch_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_batch") != MU_OK ||
        check_batch_size(a.batch_size) != MU_OK)
        return NULL;
    const batch_args stage = {.batch_size = a.batch_size, .drop_remainder = a.drop_remainder};
    return mu__dataset_stage(&mu__batch_stage, &stage, a.dataset);
}

mu_dataset *mu_dataset_padded_batch_with(const mu_dataset_padded_batch_args *args)
{
    static const char function[] = "mu_dataset_padded_batch";
    mu_dataset_padded_batch_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK ||
        check_batch_size(a.batch_size) != MU_OK)
        return NULL;
    const batch_args stage = {.batch_size = a.batch_size,
                              .drop_remainder = a.drop_remainder,
                              .pad = mu__padding_new(function, a.n_padded_shapes, a.padded_shapes, a.padding_values)};
    return stage.pad != NULL ? mu__dataset_stage(&mu__padded_batch_stage, &stage, a.dataset) : NULL;
}

// ---- Window -------------------------------------------------------------------------------------

typedef struct window_args {
    int64_t size, shift, stride;
    bool drop_remainder;
} window_args;

static const mu_sent_field window_sent[] = {MU_SENDS_INT(window_args, size, 1, INT32_MAX),
                                            MU_SENDS_INT(window_args, shift, 1, INT64_MAX),
                                            MU_SENDS_INT(window_args, stride, 1, INT32_MAX),
                                            MU_SENDS_INT(window_args, drop_remainder, 0, 1),
                                            {.kind = MU_SENT_END}};

// The distance from a window's first element to its last.
static int64_t window_span(const window_args *args) { return (args->size - 1) * args->stride + 1; }

static mu_value *window_stack(mu_stage *stage)
{
    batch_state *state = stage->state;
    const window_args *args = stage->dataset->args;
    size_t n = 0;
    mu_item *chosen = mu__calloc((size_t)args->size, sizeof *chosen);
    if (chosen == NULL)
        return NULL;
    for (size_t i = 0; i < state->held.n && n < (size_t)args->size; i += (size_t)args->stride)
        chosen[n++] = state->held.items[i];
    for (size_t i = 0; i < n; i++)
        mu_retain(chosen[i].value);
    mu_value *value = mu__stack(chosen, (int64_t)n, NULL, &state->buffer_cache, "window");
    for (size_t i = 0; i < n; i++)
        mu__item_drop(&chosen[i]);
    mu__free(chosen);
    return value;
}

static mu_status window_next(mu_stage *stage, mu_item *item, bool *end)
{
    batch_state *state = stage->state;
    const window_args *args = stage->dataset->args;
    MU_TRY(hold(stage, window_span(args)));
    *end = state->held.n == 0 || (args->drop_remainder && state->held.n < (size_t)window_span(args));
    if (*end)
        return MU_OK;
    item->value = window_stack(stage);
    size_t dropped = MU_MIN((size_t)args->shift, state->held.n);
    drop_first(state, dropped);
    if (dropped < (size_t)args->shift && !state->input_ended) {
        int64_t skipped = 0, wanted = args->shift - (int64_t)dropped;
        MU_TRY(mu__stage_skip(stage, 0, wanted, &skipped));
        state->input_ended = skipped < wanted;
    }
    return item->value != NULL ? MU_OK : mu_error_code();
}

static int64_t window_cardinality(const mu_dataset *dataset)
{
    const window_args *args = dataset->args;
    int64_t n = mu_dataset_cardinality(dataset->inputs[0]);
    if (n < 0)
        return n;
    if (args->drop_remainder)
        return n < window_span(args) ? 0 : (n - window_span(args)) / args->shift + 1;
    return n / args->shift + (n % args->shift > 0);
}

static mu_value *window_spec(const mu_dataset *dataset)
{
    const window_args *args = dataset->args;
    mu_value *spec = mu__dataset_spec(dataset->inputs[0]);
    return spec != NULL ? mu__stack_spec(spec, args->drop_remainder ? args->size : MU_UNKNOWN, false) : NULL;
}

const mu_stage_ops mu__window_stage = {
    .name = "window",
    .sent = window_sent,
    .state_bytes = sizeof(batch_state),
    .args_bytes = sizeof(window_args),
    .next = window_next,
    .close = batch_close,
    .cardinality = window_cardinality,
    .spec = window_spec,
};

mu_dataset *mu_dataset_window_with(const mu_dataset_window_args *args)
{
    mu_dataset_window_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_window") != MU_OK)
        return NULL;
    const int64_t shift = MU_GIVEN(&a, shift) ? a.shift : a.window_size, stride = MU_GIVEN(&a, stride) ? a.stride : 1;
    if (a.window_size < 1 || shift < 1 || stride < 1 || a.window_size > INT32_MAX || stride > INT32_MAX) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_dataset_window: window_size %lld, shift %lld, stride %lld; expected window_size and stride from "
                  "1 to %d, and a shift from 1. Correct the one that is outside",
                  (long long)a.window_size, (long long)shift, (long long)stride, INT32_MAX);
        return NULL;
    }
    const window_args stage = {a.window_size, shift, stride, a.drop_remainder};
    return mu__dataset_stage(&mu__window_stage, &stage, a.dataset);
}
