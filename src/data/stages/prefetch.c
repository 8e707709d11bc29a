// Stages with their own threads: prefetch, and map with parallel calls.
//
// Both read their input on producer threads and return elements in order. The threads start with the first element, so
// a restored iterator skips before any element is made.
#include "data/stages/queue.h"

typedef struct prefetch_args {
    int64_t buffer_size;
} prefetch_args;

static const mu_sent_field prefetch_sent[] = {MU_SENDS_INT(prefetch_args, buffer_size, 1, MU_MAX_PREFETCH),
                                              {.kind = MU_SENT_END}};

typedef struct prefetch_state {
    mu_queue *queue;
} prefetch_state;

static mu_status take_input(void *arg, mu_item *item, bool *end) { return mu__stage_next(arg, 0, item, end); }

static mu_status map_input(void *arg, mu_item *item)
{
    const mu_stage *stage = arg;
    mu_value *result = mu__call_map(stage->dataset->args, mu__item_value(item));
    mu__item_drop(item);
    item->value = result;
    return result != NULL ? MU_OK : mu_error_code();
}

static const mu_queue_ops prefetch_ops = {.name = "prefetch", .take = take_input};
static const mu_queue_ops map_ops = {.name = "map", .take = take_input, .make = map_input};

static mu_status prefetch_next(mu_stage *stage, mu_item *item, bool *end)
{
    prefetch_state *state = stage->state;
    const prefetch_args *args = stage->dataset->args;
    if (state->queue == NULL && (state->queue = mu__queue_open(&prefetch_ops, stage, args->buffer_size, 1)) == NULL)
        return mu_error_code();
    return mu__queue_get(state->queue, item, end);
}

static mu_status parallel_map_next(mu_stage *stage, mu_item *item, bool *end)
{
    prefetch_state *state = stage->state;
    const mu_map_args *args = stage->dataset->args;
    if (state->queue == NULL &&
        (state->queue = mu__queue_open(&map_ops, stage, args->parallel_calls, (int)args->parallel_calls)) == NULL)
        return mu_error_code();
    return mu__queue_get(state->queue, item, end);
}

// Once threads run, skipping drops their elements one by one.
static mu_status prefetch_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    prefetch_state *state = stage->state;
    if (state->queue == NULL)
        return mu__stage_skip(stage, 0, count, skipped);
    for (; *skipped < count; ++*skipped) {
        mu_item item;
        bool end = false;
        MU_TRY(mu__queue_get(state->queue, &item, &end));
        if (end)
            break;
        mu__item_drop(&item);
    }
    return MU_OK;
}

static void prefetch_close(mu_stage *stage) { mu__queue_close(((prefetch_state *)stage->state)->queue); }

static int64_t prefetch_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

const mu_stage_ops mu__prefetch_stage = {
    .name = "prefetch",
    .sent = prefetch_sent,
    .state_bytes = sizeof(prefetch_state),
    .args_bytes = sizeof(prefetch_args),
    .next = prefetch_next,
    .skip = prefetch_skip,
    .close = prefetch_close,
    .cardinality = prefetch_cardinality,
    .divided_before = true,
    .batch_size = mu__batch_size_of_inputs,
};

// Without calls there would be neither threads nor room for a result.
static mu_status check_calls(const mu_dataset *dataset)
{
    const int calls = ((const mu_map_args *)dataset->args)->parallel_calls;
    return calls >= 1 ? MU_OK
                      : mu__error(MU_INVALID_ARGUMENT, "it has %d parallel calls; expected 1 to %d", calls,
                                  MU_MAX_PARALLEL_CALLS);
}

const mu_stage_ops mu__parallel_map_stage = {
    .name = "parallel_map",
    .sent = mu__map_sent,
    .check = check_calls,
    .state_bytes = sizeof(prefetch_state),
    .args_bytes = sizeof(mu_map_args),
    .owned = mu__map_owned,
    .next = parallel_map_next,
    .skip = prefetch_skip,
    .close = prefetch_close,
    .cardinality = prefetch_cardinality,
    .spec = mu__map_result_spec,
};

mu_dataset *mu_dataset_prefetch(mu_dataset *dataset, int64_t count)
{
    if (!mu__pending() && (count < 0 || count > MU_MAX_PREFETCH)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dataset_prefetch of %lld elements; expected 0 (two) to %d", (long long)count,
                  MU_MAX_PREFETCH);
        return NULL;
    }
    return mu__dataset_stage(&mu__prefetch_stage, &(prefetch_args){count > 0 ? count : 2}, dataset);
}
