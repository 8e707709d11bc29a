// Dividing a pipeline between workers: by files, by elements, at marked places, or by the rows of each batch.
//
// A pipeline is walked from its end and cloned as far as something changes; what lies before is shared. By rows
// every worker runs the whole pipeline and keeps its own rows of each batch: of a batch over rows in memory only
// those are gathered.
#include "data/files.h"

// The same stage on another input; takes over `input`. Owned; NULL stays NULL.
static mu_dataset *on_input(const mu_dataset *dataset, mu_dataset *input)
{
    mu_dataset *clone = input ? mu__dataset_clone(dataset, &input) : NULL;
    mu_release(input);
    return clone;
}

// Stages at the end that hand on whole elements: what divides goes before them.
static bool at_end(const mu_dataset *dataset)
{
    return mu__dataset_is(dataset, "prefetch") || mu__dataset_is(dataset, "options");
}

// ---- By elements --------------------------------------------------------------------------------

static mu_dataset *share(mu_dataset *dataset, const mu_division *by)
{
    return mu_retain(by->all_shares ? mu__dataset_share(dataset, by->n, by->index)
                                    : mu_dataset_shard(dataset, by->n, by->index));
}

static mu_dataset *share_elements(mu_dataset *dataset, const mu_division *by)
{
    if (at_end(dataset))
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
    bool reader = mu__dataset_is(dataset, "tfrecord") || mu__dataset_is(dataset, "csv") || mu__dataset_is_path(dataset);
    for (int i = 0; i < dataset->n_inputs && !reader; i++)
        reader = mu__dataset_reads_files(dataset->inputs[i]);
    return reader;
}

// Names are divided below their shuffles, so that the parts stay disjoint whatever the seeds.
static mu_dataset *share_names(mu_dataset *names, const mu_division *by)
{
    return mu__dataset_is(names, "shuffle") ? on_input(names, share_names(names->inputs[0], by)) : share(names, by);
}

// What opens the files that it gets names of: a reader, or a function over names.
static bool takes_names(const mu_dataset *dataset)
{
    if (mu__dataset_is(dataset, "tfrecord") || mu__dataset_is(dataset, "csv"))
        return true;
    return (mu__dataset_is(dataset, "flat_map") || mu__dataset_is(dataset, "interleave")) &&
           mu__dataset_reads_files(dataset->inputs[0]);
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
    if (mu__dataset_is(dataset, "shard") && dataset->args.count == MU_SHARD_HINT)
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

static mu_status part_next(mu_stage *stage, mu_item *item, bool *end)
{
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
                      "component %d of an element is a scalar, which has no rows to divide between workers; batch "
                      "the dataset before distributing it",
                      parts.n);
            break;
        }
        mu__division_rows(&stage->dataset->args.division, whole->shape.dims[0], &begin, &stop);
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

static int64_t part_cardinality(const mu_dataset *dataset)
{
    return mu_dataset_cardinality(dataset->inputs[0]);
}

const mu_stage_ops mu__stage_part = {
    .name = "part", .next = part_next, .spec = part_spec, .cardinality = part_cardinality};

static mu_dataset *divide_rows(mu_dataset *dataset, const mu_division *by)
{
    if (at_end(dataset))
        return on_input(dataset, divide_rows(dataset->inputs[0], by));
    if (!mu__dataset_is(dataset, "batch"))
        return mu_retain(mu__dataset_stage(&mu__stage_part, &(mu_stage_args){.division = *by}, dataset));
    mu_dataset *clone = mu__dataset_clone(dataset, dataset->inputs);
    if (clone)
        clone->args.division = *by;
    return clone;
}

mu_dataset *mu__dataset_divide_rows(mu_dataset *dataset, const mu_division *by)
{
    return mu__give(divide_rows(dataset, by));
}

bool mu__dataset_rows(const mu_dataset *dataset, int64_t *rows, int64_t *batch)
{
    while (at_end(dataset))
        dataset = dataset->inputs[0];
    *rows = mu__dataset_is(dataset, "batch") ? mu_dataset_cardinality(dataset->inputs[0]) : -1;
    *batch = dataset->args.count;
    if (*rows >= 0 && dataset->args.drop_remainder)
        *rows -= *rows % *batch;
    return *rows >= 0;
}
