// Datasets as data: making, cloning and querying them.
//
// Nothing is read here and no element is made. What a stage does with elements is in its mu_stage_ops.
#include "data/dataset.h"

static void free_owned(const mu_stage_ops *ops, void *args)
{
    const mu_owned_field *field = args != NULL ? ops->owned : NULL;
    for (; field != NULL && field->kind != MU_OWNS_END; field++) {
        void *at = (char *)args + field->offset;
        if (field->kind == MU_OWNS_TEXT)
            mu__free(*(char **)at);
        else if (field->kind == MU_OWNS_NUMBERS)
            mu__free(((mu_numbers *)at)->items);
        else
            mu_release(*(void **)at);
    }
}

void mu__stage_args_free(const mu_stage_ops *ops, void *args)
{
    free_owned(ops, args);
    mu__free(args);
}

static mu_status copy_owned(const mu_owned_field *field, void *to, const void *from)
{
    if (field->kind == MU_OWNS_OBJECT) {
        *(void **)to = mu_retain(*(void *const *)from);
        return MU_OK;
    }
    if (field->kind == MU_OWNS_TEXT) {
        const char *text = *(char *const *)from;
        *(char **)to = text != NULL ? mu__strdup(text) : NULL;
        return text == NULL || *(char **)to != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    }
    const mu_numbers *numbers = from;
    int64_t *items = mu__calloc((size_t)numbers->n, sizeof *items);
    if (items != NULL && numbers->n > 0)
        memcpy(items, numbers->items, (size_t)numbers->n * sizeof *items);
    *(mu_numbers *)to = (mu_numbers){.n = items != NULL ? numbers->n : 0, .items = items};
    return items != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// A deep copy; NULL on error, and for a stage without arguments.
static void *args_copy(const mu_stage_ops *ops, const void *from)
{
    void *to = from != NULL ? mu__alloc(ops->args_bytes) : NULL;
    mu_status status = MU_OK;
    if (to == NULL)
        return NULL;
    memcpy(to, from, ops->args_bytes);
    for (const mu_owned_field *field = ops->owned; field != NULL && field->kind != MU_OWNS_END; field++)
        if (copy_owned(field, (char *)to + field->offset, (const char *)from + field->offset) != MU_OK)
            status = MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        return to;
    mu__stage_args_free(ops, to);
    return NULL;
}

static void dataset_destroy(void *object)
{
    mu_dataset *dataset = object;
    for (int i = 0; i < dataset->n_inputs; i++)
        mu_release(dataset->inputs[i]);
    mu__free(dataset->inputs);
    mu_release(dataset->shared);
    mu__stage_args_free(dataset->ops, dataset->args);
}

mu_type mu__dataset_type = {.name = "dataset", .destroy = dataset_destroy};

static mu_iterator *dataset_iterate(mu_iterable *iterable) { return mu__dataset_iterate((mu_dataset *)iterable); }

static mu_status check_inputs(const mu_stage_ops *ops, int n_inputs, mu_dataset *const *inputs)
{
    for (int i = 0; i < n_inputs; i++) {
        if (inputs[i] == NULL)
            return mu__error(MU_INVALID_ARGUMENT, "the dataset to %s is NULL; give a dataset", ops->name);
        if (!mu__is(inputs[i], &mu__dataset_type))
            return mu__error(MU_INVALID_ARGUMENT,
                             "what %s got is not a dataset; give one that a mu_dataset_ function returned", ops->name);
    }
    return MU_OK;
}

// Takes over `args`, which this file allocated.
static mu_dataset *dataset_new(const mu_stage_ops *ops, void *args, int n_inputs, mu_dataset *const *inputs)
{
    mu_dataset *dataset = NULL;
    if (check_inputs(ops, n_inputs, inputs) != MU_OK ||
        (dataset = mu__new(&mu__dataset_type, sizeof *dataset)) == NULL) {
        mu__stage_args_free(ops, args);
        return NULL;
    }
    dataset->iterable.iterate = dataset_iterate;
    dataset->ops = ops;
    dataset->args = args;
    dataset->inputs = mu__calloc((size_t)n_inputs, sizeof(mu_dataset *));
    if (dataset->inputs == NULL || (ops->share != NULL && (dataset->shared = ops->share()) == NULL)) {
        mu_release(dataset);
        return NULL;
    }
    for (; dataset->n_inputs < n_inputs; dataset->n_inputs++)
        dataset->inputs[dataset->n_inputs] = mu_retain(inputs[dataset->n_inputs]);
    return dataset;
}

// Moves the caller's struct into an allocation of this file. NULL on error, after freeing what the struct owns, and for
// a stage without arguments.
static void *args_take(const mu_stage_ops *ops, const void *args)
{
    void *own = args != NULL ? mu__alloc(ops->args_bytes) : NULL;
    if (own != NULL)
        memcpy(own, args, ops->args_bytes);
    else
        free_owned(ops, (void *)args);
    return own;
}

mu_dataset *mu__dataset_new(const mu_stage_ops *ops, const void *args, int n_inputs, mu_dataset *const *inputs)
{
    void *own = args_take(ops, args);
    return args == NULL || own != NULL ? dataset_new(ops, own, n_inputs, inputs) : NULL;
}

mu_dataset *mu__dataset_stage(const mu_stage_ops *ops, const void *args, mu_dataset *input)
{
    if (!mu__pending())
        return mu__give(mu__dataset_new(ops, args, 1, &input));
    mu__stage_args_free(ops, args_take(ops, args));
    return NULL;
}

mu_dataset *mu__dataset_clone(const mu_dataset *dataset, mu_dataset *const *inputs)
{
    void *args = args_copy(dataset->ops, dataset->args);
    if (args == NULL && dataset->args != NULL)
        return NULL;
    return dataset_new(dataset->ops, args, dataset->n_inputs, inputs);
}

mu_value *mu__dataset_spec(const mu_dataset *dataset)
{
    if (dataset->ops->spec != NULL)
        return dataset->ops->spec(dataset);
    if (dataset->ops->opaque || dataset->n_inputs == 0)
        return NULL;
    return mu__dataset_spec(dataset->inputs[0]);
}

int64_t mu__dataset_batch_size(const mu_dataset *dataset)
{
    return dataset->ops->batch_size != NULL ? dataset->ops->batch_size(dataset) : -1;
}

int64_t mu__batch_size_of_inputs(const mu_dataset *dataset)
{
    const int64_t first = dataset->n_inputs > 0 ? mu__dataset_batch_size(dataset->inputs[0]) : -1;
    for (int i = 1; i < dataset->n_inputs; i++)
        if (mu__dataset_batch_size(dataset->inputs[i]) != first)
            return -1;
    return first;
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
                  "mu_dataset_element_spec: the elements of a '%s' are known only once they are read: map with a "
                  "traced function (.function), give a generator an example (.like), or take the first element",
                  dataset->ops->name);
    return mu__give(spec);
}
