// Divides a pipeline among workers: by files, by elements, at MU_SHARD_HINT, or by the rows of each batch.
//
// The pipeline is walked from its end, and cloned up to the last change; the stages before that are shared. By rows,
// every worker runs the whole pipeline and keeps its rows of each batch; of rows in memory only those are gathered.
#include "data/formats/filenames.h"

// The same stage on another input; takes ownership of `input`. Owned; NULL gives NULL.
static mu_dataset *on_input(const mu_dataset *dataset, mu_dataset *input)
{
    mu_dataset *clone = input ? mu__dataset_clone(dataset, &input) : NULL;
    mu_release(input);
    return clone;
}

// ---- By elements --------------------------------------------------------------------------------

static mu_dataset *share(mu_dataset *dataset, const mu_division *by)
{
    return mu_retain(by->all_shares ? mu__dataset_share(dataset, by->n, by->index)
                                    : mu_dataset_shard(dataset, by->n, by->index));
}

static mu_dataset *share_elements(mu_dataset *dataset, const mu_division *by)
{
    if (dataset->ops->divided_before)
        return on_input(dataset, share_elements(dataset->inputs[0], by));
    return share(dataset, by);
}

mu_dataset *mu__dataset_divide_elements(mu_dataset *dataset, const mu_division *by)
{
    return mu__give(share_elements(dataset, by));
}

// ---- By files -----------------------------------------------------------------------------------

bool mu__dataset_reads_files(const mu_dataset *dataset)
{
    bool reader = dataset->ops->opens_files || mu__dataset_is_path(dataset);
    for (int i = 0; i < dataset->n_inputs && !reader; i++)
        reader = mu__dataset_reads_files(dataset->inputs[i]);
    return reader;
}

// File names are divided before they are shuffled, so that the parts are disjoint for all seeds.
static mu_dataset *share_names(mu_dataset *names, const mu_division *by)
{
    return names->ops->order ? on_input(names, share_names(names->inputs[0], by)) : share(names, by);
}

// Whether a stage opens the files named by its input: a reader, or a function over names.
static bool takes_names(const mu_dataset *dataset)
{
    return dataset->ops->opens_files || (dataset->ops->makes_datasets && mu__dataset_reads_files(dataset->inputs[0]));
}

static mu_dataset *share_files(mu_dataset *dataset, const mu_division *by)
{
    if (takes_names(dataset))
        return on_input(dataset, share_names(dataset->inputs[0], by));
    if (dataset->n_inputs == 0) {
        mu__error(MU_NOT_FOUND,
                  "the pipeline has a source (%s) that reads no files, so it cannot be divided between %lld workers by "
                  "files; use the auto-shard policy DATA",
                  dataset->ops->name, (long long)by->n);
        return NULL;
    }
    mu_dataset **inputs = mu__calloc((size_t)dataset->n_inputs, sizeof *inputs), *clone = NULL;
    int made = 0;
    while (inputs && made < dataset->n_inputs && (inputs[made] = share_files(dataset->inputs[made], by)))
        made++;
    if (made == dataset->n_inputs)
        clone = mu__dataset_clone(dataset, inputs);
    for (int i = 0; i < made; i++)
        mu_release(inputs[i]);
    mu__free(inputs);
    return clone;
}

mu_dataset *mu__dataset_divide_files(mu_dataset *dataset, const mu_division *by)
{
    return by->n < 2 ? dataset : mu__give(share_files(dataset, by));
}

// ---- At marked places ---------------------------------------------------------------------------

static mu_dataset *resolve_hints(mu_dataset *dataset, const mu_division *by)
{
    if (mu__dataset_is_shard_hint(dataset))
        return share(dataset->inputs[0], by);
    if (dataset->n_inputs != 1)
        return mu_retain(dataset);
    return on_input(dataset, resolve_hints(dataset->inputs[0], by));
}

mu_dataset *mu__dataset_divide_hints(mu_dataset *dataset, const mu_division *by)
{
    return mu__give(resolve_hints(dataset, by));
}

// ---- By rows ------------------------------------------------------------------------------------

void mu__division_rows(const mu_division *by, int64_t rows, int64_t *begin, int64_t *end)
{
    const int64_t n = by->n, first = by->index, last = by->index + by->width;
    *begin = rows / n * first + MU_MIN(first, rows % n);
    *end = rows / n * last + MU_MIN(last, rows % n);
}

typedef struct part_args {
    mu_division division;
} part_args;

static mu_status part_next(mu_stage *stage, mu_item *item, bool *end)
{
    const part_args *args = stage->dataset->args;
    mu_leaves leaves, parts;
    MU_TRY(mu__stage_next(stage, 0, item, end));
    if (*end)
        return MU_OK;
    mu_value *batch = mu__item_value(item);
    mu_status status = batch ? mu__leaves_of(batch, &leaves) : mu_error_code();
    if (status != MU_OK) {
        mu__item_drop(item);
        return status;
    }
    bool ok = mu__build_begin(&parts, leaves.n);
    while (ok && parts.n < leaves.n) {
        int64_t begin, stop;
        const mu_tensor *whole = mu__leaf(&leaves, parts.n);
        if (whole->shape.rank == 0) {
            mu__error(MU_INVALID_ARGUMENT,
                      "component %d of an element is a scalar, which has no rows to divide between workers; batch the "
                      "dataset before distributing it",
                      parts.n);
            break;
        }
        mu__division_rows(&args->division, whole->shape.dims[0], &begin, &stop);
        ok = mu__build_add(&parts, mu__row_view(whole, begin, stop - begin, false));
    }
    item->value = mu__build_end(&parts, batch);
    mu__leaves_free(&leaves);
    mu_release(batch);
    return item->value ? MU_OK : mu_error_code();
}

static mu_status forget_rows(mu_spec *leaf, int64_t number)
{
    if (leaf->shape.rank > 0)
        leaf->shape.dims[0] = number;
    return MU_OK;
}

static mu_value *part_spec(const mu_dataset *dataset)
{
    return mu__map_spec(mu__dataset_spec(dataset->inputs[0]), forget_rows, MU_UNKNOWN);
}

static int64_t part_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

static const mu_stage_ops part_stage = {
    .name = "part",
    .args_bytes = sizeof(part_args),
    .next = part_next,
    .spec = part_spec,
    .cardinality = part_cardinality,
};

static mu_dataset *divide_rows(mu_dataset *dataset, const mu_division *by)
{
    if (dataset->ops->divided_before)
        return on_input(dataset, divide_rows(dataset->inputs[0], by));
    if (dataset->ops->divide_rows)
        return dataset->ops->divide_rows(dataset, by);
    return mu_retain(mu__dataset_stage(&part_stage, &(part_args){*by}, dataset));
}

mu_dataset *mu__dataset_divide_rows(mu_dataset *dataset, const mu_division *by)
{
    return mu__give(divide_rows(dataset, by));
}

bool mu__dataset_rows(const mu_dataset *dataset, int64_t *rows, int64_t *batch)
{
    while (dataset->ops->divided_before)
        dataset = dataset->inputs[0];
    *rows = dataset->ops->rows ? dataset->ops->rows(dataset) : -1;
    *batch = mu__dataset_batch_size(dataset);
    return *rows >= 0;
}
