// bucket_by_sequence_length: batches of elements of similar length, so that little is padding.
//
// Elements wait in the bucket of their length until it has a batch. At the end of the input the buckets that are left
// over are given in order of their lengths, as TensorFlow's group_by_window does.
#include "data/dataset.h"

#include "base/callback.h"

typedef struct bucket_args {
    int64_t (*length)(mu_value *element, void *arg);
    void *arg;
    mu_numbers boundaries, sizes; // n; n + 1; owned
    mu_padding *padding;          // NULL: none; owned
    bool to_boundary, drop_remainder;
} bucket_args;

static const mu_owned_field bucket_owned[] = {{MU_OWNS_NUMBERS, offsetof(bucket_args, boundaries)},
                                              {MU_OWNS_NUMBERS, offsetof(bucket_args, sizes)},
                                              {MU_OWNS_OBJECT, offsetof(bucket_args, padding)},
                                              {MU_OWNS_END, 0}};

typedef struct held_items {
    mu_item *items;
    size_t n, capacity;
} held_items;

typedef struct bucket_state {
    held_items *buckets;
    mu_buffer_cache buffer_cache;
    bool input_ended;
    int left; // after the input: the next bucket to give
} bucket_state;

static const bucket_args *args_of(const mu_stage *stage) { return stage->dataset->args; }

static mu_status bucket_open(mu_stage *stage)
{
    bucket_state *state = stage->state;
    state->buckets = mu__calloc((size_t)args_of(stage)->sizes.n, sizeof *state->buckets);
    return state->buckets != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static void empty_bucket(held_items *bucket)
{
    for (size_t i = 0; i < bucket->n; i++)
        mu__item_drop(&bucket->items[i]);
    bucket->n = 0;
}

static void bucket_close(mu_stage *stage)
{
    bucket_state *state = stage->state;
    for (int i = 0; state->buckets != NULL && i < args_of(stage)->sizes.n; i++) {
        empty_bucket(&state->buckets[i]);
        mu__free(state->buckets[i].items);
    }
    mu__free(state->buckets);
    mu__buffer_cache_free(&state->buffer_cache);
}

static mu_status length_of(mu_stage *stage, mu_item *item, int64_t *length)
{
    const bucket_args *args = args_of(stage);
    mu_value *element = mu__item_value(item);
    mu_pool *pool = element != NULL ? mu_pool_open() : NULL;
    if (pool == NULL)
        return mu_error_code();
    const char *before = mu__callback_enter("a function of a dataset");
    *length = args->length(element, args->arg);
    mu__callback_leave(before);
    mu_pool_close(pool);
    if (!mu__pending() && *length < 0)
        mu__error(MU_INVALID_ARGUMENT,
                  "bucket_by_sequence_length: the function returned a length of %lld; expected 0 or more",
                  (long long)*length);
    return mu_error_code();
}

// The bucket that an element belongs to: the first whose upper boundary is above its length.
static mu_status bucket_of(mu_stage *stage, mu_item *item, int *number)
{
    const mu_numbers *boundaries = &args_of(stage)->boundaries;
    int64_t length = 0;
    MU_TRY(length_of(stage, item, &length));
    for (*number = 0; *number < boundaries->n && length >= boundaries->items[*number]; ++*number)
        ;
    if (args_of(stage)->to_boundary && *number == boundaries->n)
        return mu__error(MU_INVALID_ARGUMENT,
                         "bucket_by_sequence_length: an element of length %lld; with pad_to_bucket_boundary all must "
                         "be shorter than the last boundary, %lld",
                         (long long)length, (long long)boundaries->items[boundaries->n - 1]);
    return MU_OK;
}

// Stacks with the unknown axes of the padded shapes as long as the longest element that the bucket may have.
static mu_value *stack_to_boundary(mu_stage *stage, held_items *bucket, int64_t longest)
{
    const mu_padding *given = args_of(stage)->padding;
    mu_padding padding = *given;
    padding.shapes = mu__calloc((size_t)given->n_shapes, sizeof *padding.shapes);
    if (padding.shapes == NULL)
        return NULL;
    memcpy(padding.shapes, given->shapes, (size_t)given->n_shapes * sizeof *padding.shapes);
    for (int i = 0; i < given->n_shapes; i++)
        for (int axis = 0; axis < padding.shapes[i].rank; axis++)
            if (padding.shapes[i].dims[axis] == MU_UNKNOWN)
                padding.shapes[i].dims[axis] = longest;
    mu_value *value = mu__stack(bucket->items, (int64_t)bucket->n, &padding,
                                &((bucket_state *)stage->state)->buffer_cache, stage->ops->name);
    mu__free(padding.shapes);
    return value;
}

static mu_status give_bucket(mu_stage *stage, int number, mu_item *item)
{
    bucket_state *state = stage->state;
    held_items *bucket = &state->buckets[number];
    const bucket_args *args = args_of(stage);
    item->value = args->to_boundary ? stack_to_boundary(stage, bucket, args->boundaries.items[number] - 1)
                                    : mu__stack(bucket->items, (int64_t)bucket->n, args->padding, &state->buffer_cache,
                                                stage->ops->name);
    empty_bucket(bucket);
    return item->value != NULL ? MU_OK : mu_error_code();
}

static mu_status bucket_next(mu_stage *stage, mu_item *item, bool *end)
{
    bucket_state *state = stage->state;
    const bucket_args *args = args_of(stage);
    while (!state->input_ended) {
        mu_item taken;
        int number = 0;
        MU_TRY(mu__stage_next(stage, 0, &taken, &state->input_ended));
        if (state->input_ended)
            break;
        mu_status status = bucket_of(stage, &taken, &number);
        if (status == MU_OK)
            status = MU_PUSH(&state->buckets[number], taken);
        if (status != MU_OK) {
            mu__item_drop(&taken);
            return status;
        }
        if (state->buckets[number].n == (size_t)args->sizes.items[number])
            return give_bucket(stage, number, item);
    }
    while (state->left < args->sizes.n && (state->buckets[state->left].n == 0 || args->drop_remainder))
        state->left++;
    *end = state->left == args->sizes.n;
    return *end ? MU_OK : give_bucket(stage, state->left, item);
}

static mu_value *bucket_spec(const mu_dataset *dataset)
{
    const bucket_args *args = dataset->args;
    mu_value *spec = mu__dataset_spec(dataset->inputs[0]);
    if (spec == NULL)
        return NULL;
    return args->padding != NULL ? mu__padded_spec(spec, args->padding, MU_UNKNOWN)
                                 : mu__stack_spec(spec, MU_UNKNOWN, false);
}

static const mu_stage_ops bucket_stage = {
    .name = "bucket_by_sequence_length",
    .state_bytes = sizeof(bucket_state),
    .args_bytes = sizeof(bucket_args),
    .owned = bucket_owned,
    .open = bucket_open,
    .next = bucket_next,
    .close = bucket_close,
    .spec = bucket_spec,
};

// ---- The dataset --------------------------------------------------------------------------------

static mu_status check(const mu_dataset_bucket_args *a)
{
    static const char function[] = "mu_dataset_bucket_by_sequence_length";
    const int n = a->n_bucket_boundaries;
    if (a->element_length == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the function element_length is NULL; give one", function);
    if (n < 1 || n > UINT16_MAX || a->bucket_boundaries == NULL || a->bucket_batch_sizes == NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: n_bucket_boundaries is %d; give bucket_boundaries, 1 to %d of them, and one more in "
                         "bucket_batch_sizes",
                         function, n, UINT16_MAX);
    for (int i = 0; i < n; i++)
        if (a->bucket_boundaries[i] < 1 || (i > 0 && a->bucket_boundaries[i] <= a->bucket_boundaries[i - 1]))
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: bucket_boundaries[%d] is %lld; expected numbers from 1 that ascend", function, i,
                             (long long)a->bucket_boundaries[i]);
    MU_TRY(mu__args_length(function, "bucket_batch_sizes", a->bucket_batch_sizes, a->n_bucket_batch_sizes, n + 1,
                           "bucket: those below a boundary, and the last"));
    for (int i = 0; i <= n; i++)
        if (a->bucket_batch_sizes[i] < 1)
            return mu__error(MU_INVALID_ARGUMENT, "%s: bucket_batch_sizes[%d] is %lld; expected at least 1", function,
                             i, (long long)a->bucket_batch_sizes[i]);
    if (a->pad_to_bucket_boundary && (a->no_padding || a->n_padded_shapes == 0))
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: pad_to_bucket_boundary needs padded_shapes, which say by MU_UNKNOWN which axes are padded", function);
    return MU_OK;
}

static mu_numbers copy_numbers(int n, const int64_t *from)
{
    int64_t *items = mu__calloc((size_t)n, sizeof *items);
    if (items != NULL)
        memcpy(items, from, (size_t)n * sizeof *items);
    return (mu_numbers){.n = items != NULL ? n : 0, .items = items};
}

mu_dataset *mu_dataset_bucket_by_sequence_length_with(const mu_dataset_bucket_args *args)
{
    static const char function[] = "mu_dataset_bucket_by_sequence_length";
    mu_dataset_bucket_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK || check(&a) != MU_OK)
        return NULL;
    mu_padding *padding = NULL;
    if (!a.no_padding &&
        (padding = mu__padding_new(function, a.n_padded_shapes, a.padded_shapes, a.padding_values)) == NULL)
        return NULL;
    const bucket_args stage = {.length = a.element_length,
                               .arg = a.arg,
                               .padding = padding,
                               .boundaries = copy_numbers(a.n_bucket_boundaries, a.bucket_boundaries),
                               .sizes = copy_numbers(a.n_bucket_batch_sizes, a.bucket_batch_sizes),
                               .to_boundary = a.pad_to_bucket_boundary,
                               .drop_remainder = a.drop_remainder};
    return mu__dataset_stage(&bucket_stage, &stage, a.dataset);
}
