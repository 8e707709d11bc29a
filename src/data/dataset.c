// Datasets as data: making, cloning and asking them, and the table of stages.
//
// Nothing is read here and no element is made. What a stage does with elements is its row of the table.
#include "data/dataset.h"

static void args_free(mu_stage_args *args)
{
    mu__free(args->sizes);
    mu__free(args->name);
    mu_release(args->value);
    mu_release(args->rows);
    mu_release(args->shared);
    mu_release(args->traced);
    memset(args, 0, sizeof *args);
}

static mu_status args_copy(mu_stage_args *to, const mu_stage_args *from)
{
    *to = *from;
    to->name = NULL;
    to->sizes = NULL;
    mu_retain(to->value);
    mu_retain(to->rows);
    mu_retain(to->traced);
    to->shared = NULL;
    if (from->name != NULL && (to->name = mu__strdup(from->name)) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    if (from->sizes != NULL) {
        size_t bytes = (size_t)from->n_sizes * sizeof *from->sizes;
        if ((to->sizes = mu__alloc(bytes)) == NULL)
            return MU_RESOURCE_EXHAUSTED;
        memcpy(to->sizes, from->sizes, bytes);
    }
    return MU_OK;
}

static void dataset_destroy(void *object)
{
    mu_dataset *dataset = object;
    for (int i = 0; i < dataset->n_inputs; i++)
        mu_release(dataset->inputs[i]);
    mu__free(dataset->inputs);
    args_free(&dataset->args);
}

mu_type mu__dataset_type = {.name = "dataset", .destroy = dataset_destroy};

static mu_iterator *dataset_iterate(mu_iterable *iterable)
{
    return mu__dataset_iterate((mu_dataset *)iterable);
}

static mu_status check_inputs(const mu_stage_ops *ops, int n_inputs, mu_dataset *const *inputs)
{
    for (int i = 0; i < n_inputs; i++) {
        if (inputs[i] == NULL)
            return mu__error(MU_INVALID_ARGUMENT, "the dataset to %s is NULL; give a dataset", ops->name);
        if (!mu__is(inputs[i], &mu__dataset_type))
            return mu__error(MU_INVALID_ARGUMENT,
                             "what %s got is no dataset; give one that a mu_dataset_ function returned", ops->name);
    }
    return MU_OK;
}

mu_dataset *mu__dataset_new(const mu_stage_ops *ops, const mu_stage_args *args, int n_inputs, mu_dataset *const *inputs)
{
    mu_stage_args own = *args;
    mu_dataset *dataset = NULL;
    if (check_inputs(ops, n_inputs, inputs) != MU_OK ||
        (dataset = mu__new(&mu__dataset_type, sizeof *dataset)) == NULL) {
        args_free(&own);
        return NULL;
    }
    dataset->iterable.iterate = dataset_iterate;
    dataset->ops = ops;
    dataset->args = own;
    dataset->inputs = mu__calloc((size_t)n_inputs, sizeof(mu_dataset *));
    if (dataset->inputs == NULL || (ops->share != NULL && (dataset->args.shared = ops->share()) == NULL)) {
        mu_release(dataset);
        return NULL;
    }
    for (; dataset->n_inputs < n_inputs; dataset->n_inputs++)
        dataset->inputs[dataset->n_inputs] = mu_retain(inputs[dataset->n_inputs]);
    return dataset;
}

mu_dataset *mu__dataset_stage(const mu_stage_ops *ops, const mu_stage_args *args, mu_dataset *input)
{
    if (mu__pending()) {
        mu_stage_args own = *args;
        args_free(&own);
        return NULL;
    }
    return mu__give(mu__dataset_new(ops, args, 1, &input));
}

mu_dataset *mu__dataset_clone(const mu_dataset *dataset, mu_dataset *const *inputs)
{
    mu_stage_args args;
    if (args_copy(&args, &dataset->args) != MU_OK) {
        args_free(&args);
        return NULL;
    }
    return mu__dataset_new(dataset->ops, &args, dataset->n_inputs, inputs);
}

mu_value *mu__dataset_spec(const mu_dataset *dataset)
{
    if (dataset->ops->spec != NULL)
        return dataset->ops->spec(dataset);
    if (dataset->ops->opaque || dataset->n_inputs == 0)
        return NULL;
    return mu__dataset_spec(dataset->inputs[0]);
}

bool mu__dataset_is(const mu_dataset *dataset, const char *stage)
{
    return strcmp(dataset->ops->name, stage) == 0;
}

int64_t mu_dataset_cardinality(const mu_dataset *dataset)
{
    if (!mu__is(dataset, &mu__dataset_type) || dataset->ops->cardinality == NULL)
        return MU_UNKNOWN_CARDINALITY;
    return dataset->ops->cardinality(dataset);
}

mu_value *mu_dataset_element_spec(const mu_dataset *dataset)
{
    if (mu__pending())
        return NULL;
    if (!mu__is(dataset, &mu__dataset_type)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dataset_element_spec: the dataset is %s",
                  dataset ? "something else" : "NULL");
        return NULL;
    }
    mu_value *spec = mu__dataset_spec(dataset);
    if (!spec && !mu__pending())
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_dataset_element_spec: only an element would tell what a '%s' gives: map with a traced function "
                  "(.function), give a generator an example (.like), or take the first element",
                  dataset->ops->name);
    return mu__give(spec);
}

static const mu_stage_ops *const stages[] = {
    &mu__stage_rows,       &mu__stage_range,   &mu__stage_generator,    &mu__stage_records,      &mu__stage_csv,
    &mu__stage_shuffle,    &mu__stage_repeat,  &mu__stage_take,         &mu__stage_skip_first,   &mu__stage_shard,
    &mu__stage_zip,        &mu__stage_batch,   &mu__stage_padded_batch, &mu__stage_concatenate,  &mu__stage_window,
    &mu__stage_unbatch,    &mu__stage_rebatch, &mu__stage_split,        &mu__stage_map,          &mu__stage_filter,
    &mu__stage_parallel_map, &mu__stage_flat_map, &mu__stage_interleave, &mu__stage_prefetch,    &mu__stage_cache,
    &mu__stage_options,    &mu__stage_cache_file, &mu__stage_part,
};

const mu_stage_ops *mu__stage_named(const char *name)
{
    for (size_t i = 0; i < MU_COUNT(stages); i++)
        if (strcmp(stages[i]->name, name) == 0)
            return stages[i];
    return NULL;
}
