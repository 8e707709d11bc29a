// Chooses the part of a dataset that each worker reads, and how it is divided.
//
// By default, each batch is divided by rows among all replicas of all workers, and each worker takes its replicas'
// rows, so the result does not depend on the number of workers. Under the policies FILE (shards of files) and OFF
// (whole copies) and with TensorFlow's division (MUSTER_TF_COMPAT), a dataset is divided into pieces, one per replica
// and step.
#include "distribute/distribute.h"

int64_t *mu__rebatch_sizes(int64_t batch, int workers, int worker, int replicas)
{
    const int n = workers * replicas;
    int64_t *sizes = mu__alloc(sizeof *sizes * (size_t)n);
    for (int i = 0; sizes && i < n; i++)
        sizes[i] = batch / n + ((i + worker * replicas) % n < batch % n);
    return sizes;
}

// The rows of all tensors of every element, if that is known before one is read; else -1.
static int64_t rows_of_spec(const mu_value *spec)
{
    const mu_shape *shape = spec->leaf ? &((const mu_tensor *)spec->leaf)->shape : NULL;
    if (shape)
        return shape->rank > 0 ? shape->dims[0] : -1;
    int64_t rows = spec->n > 0 ? rows_of_spec(spec->items[0]) : -1;
    for (int i = 1; i < spec->n; i++)
        rows = rows_of_spec(spec->items[i]) == rows ? rows : -1;
    return rows;
}

static int64_t batch_size_of(const mu_dataset *dataset)
{
    const mu_value *spec = mu__known_spec(dataset);
    const int64_t rows = spec ? rows_of_spec(spec) : -1;
    return rows >= 0 ? rows : mu__dataset_batch_size(dataset);
}

// Pieces may span input batches, so that one step of all replicas takes exactly one batch. If the batch size is
// unknown, each batch is divided by itself and the last pieces may be short or empty.
static mu_dataset *pieces_of(const mu_strategy *strategy, mu_dataset *dataset, bool cut)
{
    const int64_t batch = batch_size_of(dataset);
    if (cut || batch < 0)
        return mu__dataset_split(dataset, strategy->n_replicas);
    int64_t *sizes = mu__rebatch_sizes(batch, strategy->n_workers, strategy->worker, strategy->n_local);
    mu_dataset *pieces = sizes ? mu_dataset_rebatch(dataset, strategy->n_replicas, sizes, false) : NULL;
    mu__free(sizes);
    return pieces;
}

// ---- Log messages -------------------------------------------------------------------------------

// Logs each message once: `fit` and `evaluate` distribute their datasets at every call.
static void tell_once(mu_strategy *strategy, const char *text)
{
    enum { KEPT = MU_COUNT(strategy->logged) };
    for (int i = 0; i < KEPT; i++)
        if (strcmp(strategy->logged[i], text) == 0)
            return;
    snprintf(strategy->logged[strategy->n_logged++ % KEPT], sizeof strategy->logged[0], "%s", text);
    mu__notice("%s", text);
}

static void say_rows(mu_strategy *strategy, const mu_dataset *dataset, const mu_division *by)
{
    char text[MU_LOGGED_BYTES];
    int64_t rows, batch, begin, end, rest_begin, rest_end;
    if (!mu__dataset_rows(dataset, &rows, &batch)) {
        snprintf(text, sizeof text, "worker %d of %d reads its own rows of every batch; no other worker reads them",
                 strategy->worker, strategy->n_workers);
        tell_once(strategy, text);
        return;
    }
    mu__division_rows(by, batch, &begin, &end);
    mu__division_rows(by, rows % batch, &rest_begin, &rest_end);
    snprintf(text, sizeof text, "worker %d reads %lld of %lld samples; no other worker reads them", strategy->worker,
             (long long)(rows / batch * (end - begin) + rest_end - rest_begin), (long long)rows);
    tell_once(strategy, text);
}

// What a worker reads; written after its number.
enum { READS_TEXT = MU_LOGGED_BYTES - 40 };

static void say(mu_strategy *strategy, const mu_division *by, const char *what)
{
    char text[MU_LOGGED_BYTES];
    if (by->n < 2)
        return;
    snprintf(text, sizeof text, "worker %d of %d reads %s", (int)by->index, (int)by->n, what);
    tell_once(strategy, text);
}

// ---- The pipeline of a worker -------------------------------------------------------------------

static mu_shard_plan by_rows(mu_strategy *strategy, mu_dataset *dataset)
{
    const mu_division by = {.n = strategy->n_replicas, .index = strategy->first_replica, .width = strategy->n_local};
    say_rows(strategy, dataset, &by);
    return (mu_shard_plan){.dataset = mu__dataset_divide_rows(dataset, &by), .same_order = true};
}

// Divides every batch into pieces for all replicas; each worker takes every n-th piece.
static mu_shard_plan by_pieces(mu_strategy *strategy, mu_dataset *dataset, const mu_division *by)
{
    mu_dataset *pieces = pieces_of(strategy, dataset, true);
    char text[READS_TEXT];
    snprintf(text, sizeof text, "1 of every %d pieces of the batches; no other worker reads it", (int)by->n);
    say(strategy, by, text);
    if (pieces && by->n > 1)
        pieces = mu__dataset_divide_elements(pieces, by);
    return (mu_shard_plan){.dataset = pieces, .pieces = true, .same_order = by->n > 1};
}

// The number of file names that a pipeline begins with; below 0 if unknown.
static int64_t files_of(const mu_dataset *dataset)
{
    while (dataset->n_inputs == 1 && mu__dataset_reads_files(dataset->inputs[0]))
        dataset = dataset->inputs[0];
    return dataset->n_inputs > 1 ? -1 : mu_dataset_cardinality(dataset->n_inputs == 1 ? dataset->inputs[0] : dataset);
}

static mu_shard_plan of_files(mu_strategy *strategy, mu_dataset *dataset, const mu_division *by)
{
    mu_dataset *own = mu__dataset_divide_files(dataset, by);
    const int64_t files = by->all_shares ? -1 : files_of(dataset);
    char text[READS_TEXT] = "its own files; no other worker reads them";
    const char *few =
        files >= by->n ? "" : ". There are fewer files than workers: policy AUTO or DATA gives all samples";
    if (files >= 0)
        snprintf(text, sizeof text, "%lld of %lld files; no other worker reads them%s",
                 (long long)(files / by->n + (by->index < files % by->n)), (long long)files, few);
    say(strategy, by, text);
    return (mu_shard_plan){.dataset = own ? pieces_of(strategy, own, false) : NULL, .pieces = true};
}

// Divides a dataset into pieces, one per replica and step, as the policy says.
static mu_shard_plan into_pieces(mu_strategy *strategy, mu_dataset *dataset)
{
    const mu_auto_shard_policy policy = mu__dataset_auto_shard(dataset);
    const mu_division by = {.n = strategy->n_workers,
                            .index = strategy->worker,
                            .width = 1,
                            .all_shares = mu__setting_bool(MU_SETTING_TF_COMPAT)};
    if (policy == MU_AUTO_SHARD_DATA || (policy == MU_AUTO_SHARD_AUTO && !mu__dataset_reads_files(dataset)))
        return by_pieces(strategy, dataset, &by);
    if (policy == MU_AUTO_SHARD_AUTO || policy == MU_AUTO_SHARD_FILE)
        return of_files(strategy, dataset, &by);
    if (policy == MU_AUTO_SHARD_HINT)
        dataset = mu__dataset_divide_hints(dataset, &by);
    say(strategy, &by,
        policy == MU_AUTO_SHARD_HINT ? "the shards that the pipeline marks" : "all samples, as every other does");
    return (mu_shard_plan){.dataset = dataset ? pieces_of(strategy, dataset, false) : NULL, .pieces = true};
}

mu_value *mu__known_spec(const mu_dataset *dataset)
{
    mu_value *spec = mu_dataset_element_spec(dataset);
    if (!spec && mu_error_code() != MU_RESOURCE_EXHAUSTED && mu_error_code() != MU_CANCELLED)
        mu_error_take();
    return spec;
}

static bool has_scalar(const mu_value *spec)
{
    bool found = spec->leaf && ((const mu_tensor *)spec->leaf)->shape.rank == 0;
    for (int i = 0; i < spec->n; i++)
        found |= has_scalar(spec->items[i]);
    return found;
}

// Elements that several replicas are to share have rows. Where only reading an element would show that, the first
// element that is read is refused instead.
static mu_status need_rows(const mu_strategy *strategy, const mu_dataset *dataset)
{
    const mu_value *spec = strategy->n_replicas > 1 ? mu__known_spec(dataset) : NULL;
    return !spec || !has_scalar(spec)
               ? mu_error_code()
               : mu__error(MU_INVALID_ARGUMENT,
                           "mu_distribute_dataset: the dataset's elements are scalars, or have some, and %d replicas "
                           "are to share the rows of each; batch it first (mu_dataset_batch)",
                           strategy->n_replicas);
}

mu_shard_plan mu__shard_local(mu_strategy *strategy, mu_dataset *dataset)
{
    if (need_rows(strategy, dataset) != MU_OK)
        return (mu_shard_plan){0};
    const bool pieces = strategy->n_replicas > 1 && mu__setting_bool(MU_SETTING_TF_COMPAT);
    return pieces ? into_pieces(strategy, dataset) : (mu_shard_plan){.dataset = dataset};
}

mu_shard_plan mu__shard_workers(mu_strategy *strategy, mu_dataset *dataset)
{
    if (need_rows(strategy, dataset) != MU_OK)
        return (mu_shard_plan){0};
    const mu_auto_shard_policy policy = mu__dataset_auto_shard(dataset);
    const bool rows = policy == MU_AUTO_SHARD_AUTO || policy == MU_AUTO_SHARD_DATA;
    return rows && !mu__setting_bool(MU_SETTING_TF_COMPAT) ? by_rows(strategy, dataset)
                                                           : into_pieces(strategy, dataset);
}
