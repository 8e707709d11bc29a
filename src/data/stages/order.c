// Stages that choose and order elements without looking at them: shuffle, repeat, take, skip, shard,
// concatenate, options.
//
// They pass items on unchanged, so over a source in memory they move only row numbers. A shuffle's draws depend only on
// its seed and the number of the iteration.
#include "data/dataset.h"

// Arguments of the stages that have one number: repeat, take, skip.
typedef struct count_args {
    int64_t count;
} count_args;

static const mu_sent_field count_sent[] = {MU_SENDS_INT(count_args, count, -1, INT64_MAX), {.kind = MU_SENT_END}};

static int64_t count_of(const mu_dataset *dataset) { return ((const count_args *)dataset->args)->count; }

// ---- Shuffle ------------------------------------------------------------------------------------

typedef struct shuffle_args {
    int64_t buffer_size;
    mu_shuffle_order order;
} shuffle_args;

static const mu_sent_field shuffle_sent[] = {MU_SENDS_INT(shuffle_args, buffer_size, 1, UINT32_MAX),
                                             MU_SENDS_SEED(shuffle_args, order.seed),
                                             MU_SENDS_INT(shuffle_args, order.fixed, 0, 1),
                                             {.kind = MU_SENT_END}};

typedef struct shuffle_state {
    struct {
        mu_item *items;
        size_t n, capacity;
    } buffer;
    uint64_t random;
    bool input_ended;
} shuffle_state;

// splitmix64: one addition and a mix per draw.
uint64_t mu__splitmix(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// Lemire's method: an unbiased number below n.
static uint32_t random_below(uint64_t *state, uint32_t n)
{
    uint64_t product = (mu__splitmix(state) >> 32) * n;
    if ((uint32_t)product < n) {
        uint32_t threshold = (0u - n) % n;
        while ((uint32_t)product < threshold)
            product = (mu__splitmix(state) >> 32) * n;
    }
    return (uint32_t)(product >> 32);
}

static mu_status shuffle_open(mu_stage *stage)
{
    shuffle_state *state = stage->state;
    state->random = mu__stage_seed(stage);
    state->random = mu__splitmix(&state->random);
    return MU_OK;
}

static mu_status shuffle_fill(mu_stage *stage)
{
    shuffle_state *state = stage->state;
    const shuffle_args *args = stage->dataset->args;
    while (!state->input_ended && state->buffer.n < (size_t)args->buffer_size) {
        mu_item item;
        MU_TRY(mu__stage_next(stage, 0, &item, &state->input_ended));
        if (!state->input_ended && MU_PUSH(&state->buffer, item) != MU_OK) {
            mu__item_drop(&item);
            return MU_RESOURCE_EXHAUSTED;
        }
    }
    return MU_OK;
}

static mu_status shuffle_next(mu_stage *stage, mu_item *item, bool *end)
{
    shuffle_state *state = stage->state;
    MU_TRY(shuffle_fill(stage));
    *end = state->buffer.n == 0;
    if (*end)
        return MU_OK;
    uint32_t drawn = random_below(&state->random, (uint32_t)state->buffer.n);
    *item = state->buffer.items[drawn];
    state->buffer.items[drawn] = state->buffer.items[--state->buffer.n];
    return MU_OK;
}

static void shuffle_close(mu_stage *stage)
{
    shuffle_state *state = stage->state;
    for (size_t i = 0; i < state->buffer.n; i++)
        mu__item_drop(&state->buffer.items[i]);
    mu__free(state->buffer.items);
}

static int64_t same_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

static mu_shuffle_order shuffle_order(const mu_dataset *dataset)
{
    return ((const shuffle_args *)dataset->args)->order;
}

const mu_stage_ops mu__shuffle_stage = {
    .name = "shuffle",
    .sent = shuffle_sent,
    .state_bytes = sizeof(shuffle_state),
    .args_bytes = sizeof(shuffle_args),
    .open = shuffle_open,
    .next = shuffle_next,
    .close = shuffle_close,
    .cardinality = same_cardinality,
    .batch_size = mu__batch_size_of_inputs,
    .order = shuffle_order,
};

mu_dataset *mu_dataset_shuffle_with(const mu_dataset_shuffle_args *args)
{
    mu_dataset_shuffle_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_shuffle") != MU_OK)
        return NULL;
    if (a.buffer_size < 1 || a.buffer_size > UINT32_MAX) {
        mu__error(MU_INVALID_ARGUMENT, "the buffer of a shuffle is %lld elements; expected 1 to %lld",
                  (long long)a.buffer_size, (long long)UINT32_MAX);
        return NULL;
    }
    uint64_t seed = MU_GIVEN(&a, seed) ? a.seed : mu__runtime_next_seed(mu__runtime());
    const shuffle_args stage = {a.buffer_size, {.seed = seed, .fixed = a.no_reshuffle_each_iteration}};
    return mu__dataset_stage(&mu__shuffle_stage, &stage, a.dataset);
}

// ---- Repeat -------------------------------------------------------------------------------------

typedef struct repeat_state {
    int64_t round;
    bool any; // this round returned an element; an empty input ends even an infinite repeat
} repeat_state;

// Goes to the next round, if there is one.
static bool repeat_again(mu_stage *stage)
{
    repeat_state *state = stage->state;
    int64_t rounds = count_of(stage->dataset);
    state->round++;
    if (!state->any || (rounds >= 0 && state->round >= rounds))
        return false;
    state->any = false;
    mu__stage_again(stage, 0);
    return true;
}

static mu_status repeat_next(mu_stage *stage, mu_item *item, bool *end)
{
    repeat_state *state = stage->state;
    *end = count_of(stage->dataset) == 0;
    while (!*end) {
        MU_TRY(mu__stage_next(stage, 0, item, end));
        if (!*end) {
            state->any = true;
            return MU_OK;
        }
        *end = !repeat_again(stage);
    }
    return MU_OK;
}

static mu_status repeat_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    repeat_state *state = stage->state;
    if (count_of(stage->dataset) == 0)
        return MU_OK;
    while (*skipped < count) {
        int64_t part = 0;
        MU_TRY(mu__stage_skip(stage, 0, count - *skipped, &part));
        *skipped += part;
        state->any = state->any || part > 0;
        if (*skipped < count && !repeat_again(stage))
            break;
    }
    return MU_OK;
}

static int64_t repeat_cardinality(const mu_dataset *dataset)
{
    int64_t n = same_cardinality(dataset), rounds = count_of(dataset);
    if (rounds == 0 || n == 0)
        return 0;
    if (n < 0)
        return n;
    return rounds < 0 || n > INT64_MAX / rounds ? MU_INFINITE : n * rounds;
}

const mu_stage_ops mu__repeat_stage = {
    .name = "repeat",
    .sent = count_sent,
    .state_bytes = sizeof(repeat_state),
    .args_bytes = sizeof(count_args),
    .next = repeat_next,
    .skip = repeat_skip,
    .cardinality = repeat_cardinality,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu_dataset_repeat(mu_dataset *dataset, int64_t count)
{
    return mu__dataset_stage(&mu__repeat_stage, &(count_args){MU_MAX(count, MU_INFINITE)}, dataset);
}

// ---- Take and skip ------------------------------------------------------------------------------

typedef struct count_state {
    int64_t seen;
} count_state;

static int64_t take_left(const mu_stage *stage, int64_t wanted)
{
    const count_state *state = stage->state;
    int64_t limit = count_of(stage->dataset);
    return limit < 0 ? wanted : MU_MIN(wanted, limit - state->seen);
}

static mu_status take_next(mu_stage *stage, mu_item *item, bool *end)
{
    count_state *state = stage->state;
    *end = take_left(stage, 1) == 0;
    if (!*end)
        MU_TRY(mu__stage_next(stage, 0, item, end));
    state->seen++;
    return MU_OK;
}

static mu_status take_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    count_state *state = stage->state;
    int64_t wanted = take_left(stage, count);
    if (wanted > 0)
        MU_TRY(mu__stage_skip(stage, 0, wanted, skipped));
    state->seen += *skipped;
    return MU_OK;
}

static int64_t take_cardinality(const mu_dataset *dataset)
{
    int64_t n = same_cardinality(dataset), limit = count_of(dataset);
    if (limit < 0 || n == MU_UNKNOWN_CARDINALITY)
        return limit == 0 ? 0 : n;
    return n == MU_INFINITE ? limit : MU_MIN(n, limit);
}

const mu_stage_ops mu__take_stage = {
    .name = "take",
    .sent = count_sent,
    .state_bytes = sizeof(count_state),
    .args_bytes = sizeof(count_args),
    .next = take_next,
    .skip = take_skip,
    .cardinality = take_cardinality,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu_dataset_take(mu_dataset *dataset, int64_t count)
{
    return mu__dataset_stage(&mu__take_stage, &(count_args){MU_MAX(count, -1)}, dataset);
}

// The first use skips the elements; -1 ends the dataset without reading.
static mu_status leave_out(mu_stage *stage, bool *end)
{
    count_state *state = stage->state;
    int64_t count = count_of(stage->dataset), skipped = 0;
    *end = count < 0;
    if (*end || state->seen > 0 || count == 0)
        return MU_OK;
    state->seen = 1;
    MU_TRY(mu__stage_skip(stage, 0, count, &skipped));
    *end = skipped < count;
    return MU_OK;
}

static mu_status skip_next(mu_stage *stage, mu_item *item, bool *end)
{
    MU_TRY(leave_out(stage, end));
    return *end ? MU_OK : mu__stage_next(stage, 0, item, end);
}

static mu_status skip_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    bool end = false;
    MU_TRY(leave_out(stage, &end));
    return end ? MU_OK : mu__stage_skip(stage, 0, count, skipped);
}

static int64_t skip_cardinality(const mu_dataset *dataset)
{
    int64_t n = same_cardinality(dataset), count = count_of(dataset);
    if (count < 0)
        return 0;
    return n < 0 ? n : MU_MAX(n - count, 0);
}

const mu_stage_ops mu__skip_stage = {
    .name = "skip",
    .sent = count_sent,
    .state_bytes = sizeof(count_state),
    .args_bytes = sizeof(count_args),
    .next = skip_next,
    .skip = skip_skip,
    .cardinality = skip_cardinality,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu_dataset_skip(mu_dataset *dataset, int64_t count)
{
    return mu__dataset_stage(&mu__skip_stage, &(count_args){MU_MAX(count, -1)}, dataset);
}

// ---- Shard --------------------------------------------------------------------------------------

typedef struct shard_args {
    int64_t n_shards, index;
    bool all_shares; // an error if there are fewer elements than shards
} shard_args;

static const mu_sent_field shard_sent[] = {MU_SENDS_INT(shard_args, n_shards, MU_SHARD_HINT, INT64_MAX),
                                           MU_SENDS_INT(shard_args, index, MU_SHARD_HINT, INT64_MAX),
                                           MU_SENDS_INT(shard_args, all_shares, 0, 1),
                                           {.kind = MU_SENT_END}};

typedef struct shard_state {
    int64_t phase; // elements taken from the input, modulo the number of shards
    bool checked;  // checked that every shard has an element
} shard_state;

// If every shard must have an element, the other shards' first elements must exist too.
static mu_status check_shares(mu_stage *stage)
{
    shard_state *state = stage->state;
    const shard_args *args = stage->dataset->args;
    int64_t others = args->n_shards - 1 - args->index, skipped = 0;
    if (!args->all_shares || state->checked)
        return MU_OK;
    state->checked = true;
    state->phase = 0;
    MU_TRY(mu__stage_skip(stage, 0, others, &skipped));
    if (skipped == others)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "the dataset has only %lld elements (or files), which is not enough for %lld workers; use fewer "
                     "workers, or another auto-shard policy",
                     (long long)(args->index + 1 + skipped), (long long)args->n_shards);
}

static mu_status shard_next(mu_stage *stage, mu_item *item, bool *end)
{
    shard_state *state = stage->state;
    const shard_args *args = stage->dataset->args;
    if (args->n_shards == MU_SHARD_HINT)
        return mu__error(MU_FAILED_PRECONDITION, "a shard hint is left in the pipeline; distribute the dataset with "
                                                 "the auto-shard policy HINT, or give a number of shards");
    const int64_t apart = args->index - state->phase;
    int64_t before = apart < 0 ? apart + args->n_shards : apart, skipped = 0;
    MU_TRY(mu__stage_skip(stage, 0, before, &skipped));
    *end = skipped < before;
    if (!*end)
        MU_TRY(mu__stage_next(stage, 0, item, end));
    if (*end)
        return MU_OK;
    state->phase = (args->index + 1) % args->n_shards;
    mu_status status = check_shares(stage);
    if (status != MU_OK)
        mu__item_drop(item);
    return status;
}

static int64_t shard_cardinality(const mu_dataset *dataset)
{
    const shard_args *args = dataset->args;
    int64_t n = same_cardinality(dataset), shards = args->n_shards;
    if (shards == MU_SHARD_HINT)
        return MU_UNKNOWN_CARDINALITY;
    return n < 0 ? n : n / shards + (args->index < n % shards);
}

static mu_status check_part(int64_t n_shards, int64_t index)
{
    const bool hint = n_shards == MU_SHARD_HINT && index == MU_SHARD_HINT;
    return hint || (n_shards >= 1 && index >= 0 && index < n_shards)
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "shard %lld of %lld: expected at least one shard, and an index from 0 to the number of "
                           "shards less 1",
                           (long long)index, (long long)n_shards);
}

static mu_status check_shard(const mu_dataset *dataset)
{
    const shard_args *args = dataset->args;
    return check_part(args->n_shards, args->index);
}

const mu_stage_ops mu__shard_stage = {
    .name = "shard",
    .sent = shard_sent,
    .check = check_shard,
    .state_bytes = sizeof(shard_state),
    .args_bytes = sizeof(shard_args),
    .next = shard_next,
    .cardinality = shard_cardinality,
    .batch_size = mu__batch_size_of_inputs,
};

bool mu__dataset_is_shard_hint(const mu_dataset *dataset)
{
    return dataset->ops == &mu__shard_stage && ((const shard_args *)dataset->args)->n_shards == MU_SHARD_HINT;
}

static mu_dataset *shard(mu_dataset *dataset, int64_t n_shards, int64_t index, bool all_shares)
{
    if (!mu__pending() && check_part(n_shards, index) != MU_OK)
        return NULL;
    return mu__dataset_stage(&mu__shard_stage, &(shard_args){n_shards, index, all_shares}, dataset);
}

mu_dataset *mu_dataset_shard(mu_dataset *dataset, int64_t n_shards, int64_t index)
{
    return shard(dataset, n_shards, index, false);
}

mu_dataset *mu__dataset_share(mu_dataset *dataset, int64_t n_shards, int64_t index)
{
    return shard(dataset, n_shards, index, true);
}

// ---- Concatenate --------------------------------------------------------------------------------

typedef struct concatenate_state {
    int input;
} concatenate_state;

static mu_status concatenate_next(mu_stage *stage, mu_item *item, bool *end)
{
    concatenate_state *state = stage->state;
    for (; state->input < stage->dataset->n_inputs; state->input++) {
        MU_TRY(mu__stage_next(stage, state->input, item, end));
        if (!*end)
            return MU_OK;
    }
    *end = true;
    return MU_OK;
}

static mu_status concatenate_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    concatenate_state *state = stage->state;
    for (; state->input < stage->dataset->n_inputs; state->input++) {
        int64_t part = 0;
        MU_TRY(mu__stage_skip(stage, state->input, count - *skipped, &part));
        *skipped += part;
        if (*skipped == count)
            return MU_OK;
    }
    return MU_OK;
}

static int64_t concatenate_cardinality(const mu_dataset *dataset)
{
    int64_t a = mu_dataset_cardinality(dataset->inputs[0]), b = mu_dataset_cardinality(dataset->inputs[1]);
    if (a == MU_INFINITE || b == MU_INFINITE)
        return MU_INFINITE;
    if (a < 0 || b < 0)
        return MU_UNKNOWN_CARDINALITY;
    return a > INT64_MAX - b ? MU_INFINITE : a + b;
}

// The common spec of both; dimensions that differ are unknown.
static bool common_spec(mu_spec *a, const mu_tensor *b)
{
    if (a->dtype != b->dtype || a->shape.rank != b->shape.rank)
        return false;
    for (int i = 0; i < b->shape.rank; i++)
        if (a->shape.dims[i] != b->shape.dims[i])
            a->shape.dims[i] = MU_UNKNOWN;
    return true;
}

static mu_value *concatenate_spec(const mu_dataset *dataset)
{
    mu_value *a = mu__dataset_spec(dataset->inputs[0]), *b = mu__dataset_spec(dataset->inputs[1]), *common = NULL;
    mu_leaves left = {0}, right = {0}, made;
    if (a != NULL && b != NULL && mu__value_same_structure(a, b) && mu__leaves_of(a, &left) == MU_OK &&
        mu__leaves_of(b, &right) == MU_OK) {
        bool ok = mu__build_begin(&made, left.n);
        while (ok && made.n < left.n) {
            mu_spec spec = mu__spec_of(mu__leaf(&left, made.n));
            ok = common_spec(&spec, mu__leaf(&right, made.n)) &&
                 mu__build_add(&made, mu__tensor_symbolic(NULL, 0, &spec, NULL));
        }
        common = mu__build_end(&made, a);
    }
    mu__leaves_free(&left);
    mu__leaves_free(&right);
    mu_release(a);
    mu_release(b);
    return common;
}

const mu_stage_ops mu__concatenate_stage = {
    .name = "concatenate",
    .state_bytes = sizeof(concatenate_state),
    .next = concatenate_next,
    .skip = concatenate_skip,
    .cardinality = concatenate_cardinality,
    .spec = concatenate_spec,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu_dataset_concatenate(mu_dataset *first, mu_dataset *second)
{
    if (mu__pending())
        return NULL;
    return mu__give(mu__dataset_new(&mu__concatenate_stage, NULL, 2, (mu_dataset *[]){first, second}));
}

// ---- Options ------------------------------------------------------------------------------------

typedef struct options_args {
    mu_auto_shard_policy policy;
} options_args;

static const mu_sent_field options_sent[] = {MU_SENDS_INT(options_args, policy, MU_AUTO_SHARD_OFF, MU_AUTO_SHARD_HINT),
                                             {.kind = MU_SENT_END}};

static mu_status options_next(mu_stage *stage, mu_item *item, bool *end) { return mu__stage_next(stage, 0, item, end); }

static mu_status options_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    return mu__stage_skip(stage, 0, count, skipped);
}

const mu_stage_ops mu__options_stage = {
    .name = "options",
    .sent = options_sent,
    .args_bytes = sizeof(options_args),
    .next = options_next,
    .skip = options_skip,
    .cardinality = same_cardinality,
    .divided_before = true,
    .batch_size = mu__batch_size_of_inputs,
};

static const mu_enum_name policies[] = {{MU_AUTO_SHARD_OFF, "OFF"},   {MU_AUTO_SHARD_AUTO, "AUTO"},
                                        {MU_AUTO_SHARD_FILE, "FILE"}, {MU_AUTO_SHARD_DATA, "DATA"},
                                        {MU_AUTO_SHARD_HINT, "HINT"}, {0, NULL}};

const char *mu_auto_shard_policy_name(mu_auto_shard_policy policy)
{
    return mu__enum_name(policies, (int)policy, "UNRECOGNIZED");
}

int mu_auto_shard_policy_from_name(const char *name)
{
    return mu__enum_number(policies, name, MU_AUTO_SHARD_OFF - 1, "mu_auto_shard_policy_from_name");
}

mu_dataset *mu_dataset_options_with(const mu_dataset_options_args *args)
{
    mu_dataset_options_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_options") != MU_OK)
        return NULL;
    if (a.auto_shard_policy < MU_AUTO_SHARD_OFF || a.auto_shard_policy > MU_AUTO_SHARD_HINT) {
        mu__error(MU_INVALID_ARGUMENT, "the auto-shard policy is %d; expected -1 (OFF) to 3 (HINT)",
                  (int)a.auto_shard_policy);
        return NULL;
    }
    return mu__dataset_stage(&mu__options_stage, &(options_args){a.auto_shard_policy}, a.dataset);
}

mu_auto_shard_policy mu__dataset_auto_shard(const mu_dataset *dataset)
{
    if (dataset->ops == &mu__options_stage)
        return ((const options_args *)dataset->args)->policy;
    mu_auto_shard_policy policy = MU_AUTO_SHARD_AUTO;
    for (int i = 0; i < dataset->n_inputs && policy == MU_AUTO_SHARD_AUTO; i++)
        policy = mu__dataset_auto_shard(dataset->inputs[i]);
    return policy;
}
