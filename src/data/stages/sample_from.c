// Stages that take each element from one of several datasets: sample_from_datasets draws its number,
// choose_from_datasets reads its number from another dataset.
#include "data/describe.h"

typedef struct select_args {
    int n; // datasets; choose has one more input, the numbers
    bool stop_on_empty;
    uint64_t seed;
    mu_tensor *weights; // sample: float64 [n]; retained
} select_args;

static mu_value *write_weights(const void *object, const mu_dataset *dataset)
{
    (void)dataset;
    return mu_of((mu_tensor *)(uintptr_t)object);
}

static void *read_weights(const mu_value *value)
{
    const mu_tensor *tensor = value->kind == MU_VALUE_TENSOR ? (const mu_tensor *)value->leaf : NULL;
    return tensor != NULL && tensor->dtype == MU_F64 && tensor->shape.rank == 1 ? mu_retain((void *)value->leaf) : NULL;
}

static const mu_object_form weights_form = {.write = write_weights, .read = read_weights};
static const mu_sent_field select_sent[] = {MU_SENDS_INT(select_args, n, 1, UINT16_MAX),
                                            MU_SENDS_INT(select_args, stop_on_empty, 0, 1),
                                            MU_SENDS_INT(select_args, seed, INT64_MIN, INT64_MAX),
                                            MU_SENDS_OPTIONAL(select_args, weights, &weights_form),
                                            {.kind = MU_SENT_END}};
static const mu_owned_field select_owned[] = {{MU_OWNS_OBJECT, offsetof(select_args, weights)}, {MU_OWNS_END, 0}};

typedef struct select_state {
    bool *ended; // [n]
    uint64_t random;
} select_state;

static const select_args *args_of(const mu_stage *stage) { return stage->dataset->args; }

static mu_status select_open(mu_stage *stage)
{
    select_state *state = stage->state;
    state->ended = mu__calloc((size_t)args_of(stage)->n, sizeof *state->ended);
    state->random = args_of(stage)->seed;
    return state->ended != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static void select_close(mu_stage *stage) { mu__free(((select_state *)stage->state)->ended); }

// Takes an element of dataset i; *end if the whole stage ends, *taken if there was one.
static mu_status take(mu_stage *stage, int i, mu_item *item, bool *taken, bool *end)
{
    select_state *state = stage->state;
    if (!state->ended[i])
        MU_TRY(mu__stage_next(stage, i, item, &state->ended[i]));
    *taken = !state->ended[i];
    *end = !*taken && args_of(stage)->stop_on_empty;
    return MU_OK;
}

// Draws one of the datasets that still have elements, by their weights; -1: none has.
static int draw(mu_stage *stage)
{
    select_state *state = stage->state;
    const select_args *args = args_of(stage);
    const double *weights = mu__host_read(args->weights);
    double sum = 0;
    int last = -1;
    for (int i = 0; i < args->n; i++)
        sum += state->ended[i] ? 0 : weights[i];
    const double drawn = (double)(mu__splitmix(&state->random) >> 11) * 0x1p-53 * sum;
    double below = 0;
    for (int i = 0; i < args->n; i++) {
        if (state->ended[i] || weights[i] == 0)
            continue;
        last = i;
        below += weights[i];
        if (drawn < below)
            break;
    }
    return last;
}

static mu_status sample_next(mu_stage *stage, mu_item *item, bool *end)
{
    for (bool taken = false; !taken && !*end;) {
        const int i = draw(stage);
        *end = i < 0;
        if (!*end)
            MU_TRY(take(stage, i, item, &taken, end));
    }
    return MU_OK;
}

static int64_t sample_cardinality(const mu_dataset *dataset)
{
    const select_args *args = dataset->args;
    int64_t sum = 0;
    for (int i = 0; i < args->n; i++) {
        const int64_t n =
            ((const double *)mu__host_read(args->weights))[i] == 0 ? 0 : mu_dataset_cardinality(dataset->inputs[i]);
        if (args->stop_on_empty || n == MU_UNKNOWN_CARDINALITY)
            return MU_UNKNOWN_CARDINALITY;
        sum = n == MU_INFINITE || sum == MU_INFINITE ? MU_INFINITE : sum + n;
    }
    return sum;
}

static mu_status next_choice(mu_stage *stage, int *choice, bool *end)
{
    const int n = args_of(stage)->n;
    mu_item item;
    MU_TRY(mu__stage_next(stage, n, &item, end));
    if (*end)
        return MU_OK;
    mu_value *value = mu__item_value(&item);
    const mu_tensor *tensor = value != NULL && value->kind == MU_VALUE_TENSOR ? (mu_tensor *)value->leaf : NULL;
    mu_status status = mu_error_code();
    if (status == MU_OK && (tensor == NULL || tensor->dtype != MU_I64 || tensor->shape.rank != 0))
        status = mu__error(MU_INVALID_ARGUMENT, "choose_from_datasets: a choice is not an int64 scalar; make the "
                                                "choices with mu_dataset_range or mu_dataset_from_tensor_slices");
    const int64_t number = status == MU_OK ? mu_tensor_item_int(tensor, 0) : 0;
    if (status == MU_OK && (number < 0 || number >= n))
        status = mu__error(MU_INVALID_ARGUMENT, "choose_from_datasets: choice %lld; expected 0 to %d",
                           (long long)number, n - 1);
    *choice = (int)number;
    mu__item_drop(&item);
    return status;
}

static bool all_ended(const mu_stage *stage)
{
    const select_state *state = stage->state;
    int n = 0;
    while (n < args_of(stage)->n && state->ended[n])
        n++;
    return n == args_of(stage)->n;
}

// The choices may have no end.
static mu_status choose_next(mu_stage *stage, mu_item *item, bool *end)
{
    for (bool taken = false; !taken && !*end;) {
        int choice = 0;
        *end = all_ended(stage);
        if (*end)
            break;
        MU_TRY(next_choice(stage, &choice, end));
        if (!*end)
            MU_TRY(take(stage, choice, item, &taken, end));
    }
    return MU_OK;
}

static mu_status check_weights(int n, const double *weights)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        if (!(weights[i] >= 0 && weights[i] <= 1e100))
            return mu__error(MU_INVALID_ARGUMENT, "mu_sample_from_datasets: weight %d is %g; expected a number from 0",
                             i, weights[i]);
        sum += weights[i];
    }
    return sum > 0 ? MU_OK
                   : mu__error(MU_INVALID_ARGUMENT, "mu_sample_from_datasets: all weights are 0; one must be above");
}

static mu_status check_sample(const mu_dataset *dataset)
{
    const select_args *args = dataset->args;
    if (args->n != dataset->n_inputs || args->weights == NULL || args->weights->shape.dims[0] != args->n)
        return mu__error(MU_INVALID_ARGUMENT, "%d datasets are sampled, and there are %d; expected one weight for each",
                         args->n, dataset->n_inputs);
    return check_weights(args->n, mu__host_read(args->weights));
}

static mu_status check_choose(const mu_dataset *dataset)
{
    const select_args *args = dataset->args;
    return args->n == dataset->n_inputs - 1 && args->weights == NULL
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "it chooses from %d datasets, and there are %d with the choices",
                           args->n, dataset->n_inputs);
}

const mu_stage_ops mu__sample_from_datasets_stage = {
    .name = "sample_from_datasets",
    .sent = select_sent,
    .check = check_sample,
    .state_bytes = sizeof(select_state),
    .args_bytes = sizeof(select_args),
    .owned = select_owned,
    .open = select_open,
    .next = sample_next,
    .close = select_close,
    .cardinality = sample_cardinality,
    .batch_size = mu__batch_size_of_inputs,
};

const mu_stage_ops mu__choose_from_datasets_stage = {
    .name = "choose_from_datasets",
    .sent = select_sent,
    .check = check_choose,
    .state_bytes = sizeof(select_state),
    .args_bytes = sizeof(select_args),
    .owned = select_owned,
    .open = select_open,
    .next = choose_next,
    .close = select_close,
};

static mu_status check_count(const char *function, int n, mu_dataset *const *datasets)
{
    if (n < 1 || n > UINT16_MAX || datasets == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "%s of %d datasets%s; give 1 to %d", function, n,
                         datasets == NULL ? ", which are NULL" : "", UINT16_MAX);
    return MU_OK;
}

static mu_tensor *weights_of(const mu_sample_from_datasets_args *a)
{
    mu_tensor *weights = mu__tensor_alloc(MU_F64, &(mu_shape){1, {a->n_datasets}});
    for (int i = 0; weights != NULL && i < a->n_datasets; i++)
        ((double *)mu__host_write(weights))[i] = a->weights != NULL ? a->weights[i] : 1;
    if (weights == NULL || check_weights(a->n_datasets, mu__host_read(weights)) == MU_OK)
        return weights;
    mu_release(weights);
    return NULL;
}

mu_dataset *mu_sample_from_datasets_with(const mu_sample_from_datasets_args *args)
{
    static const char function[] = "mu_sample_from_datasets";
    mu_sample_from_datasets_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK ||
        check_count(function, a.n_datasets, a.datasets) != MU_OK ||
        mu__args_length(function, "weights", a.weights, a.n_weights, a.n_datasets, "dataset") != MU_OK)
        return NULL;
    select_args stage = {.n = a.n_datasets, .stop_on_empty = a.stop_on_empty, .weights = weights_of(&a)};
    if (stage.weights == NULL)
        return NULL;
    stage.seed = MU_GIVEN(&a, seed) ? a.seed : mu__runtime_next_seed(mu__runtime());
    return mu__give(mu__dataset_new(&mu__sample_from_datasets_stage, &stage, a.n_datasets, a.datasets));
}

mu_dataset *mu_choose_from_datasets_with(const mu_choose_from_datasets_args *args)
{
    static const char function[] = "mu_choose_from_datasets";
    mu_choose_from_datasets_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK ||
        check_count(function, a.n_datasets, a.datasets) != MU_OK)
        return NULL;
    mu_dataset **inputs = mu__calloc((size_t)a.n_datasets + 1, sizeof *inputs);
    if (inputs == NULL)
        return NULL;
    memcpy(inputs, a.datasets, (size_t)a.n_datasets * sizeof *inputs);
    inputs[a.n_datasets] = a.choices;
    const select_args stage = {.n = a.n_datasets, .stop_on_empty = !a.continue_on_empty};
    mu_dataset *chosen = mu__dataset_new(&mu__choose_from_datasets_stage, &stage, a.n_datasets + 1, inputs);
    mu__free(inputs);
    return mu__give(chosen);
}
