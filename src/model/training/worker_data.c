// The datasets of all workers as one: see worker_data.h.
#include "model/training/worker_data.h"

#include "coordinator/per_worker.h"
#include "distribute/servers/aggregation.h"

struct mu_worker_data {
    mu_object object;
    mu_strategy *strategy;           // retained
    mu_resource_list *list;          // retained: its lock is held while the creator runs
    mu_dataset_creator *creator;     // retained
    mu_dataset *dataset;             // retained
    const char *function, *argument; // NULL: datasets may repeat for ever
};

static void destroy(void *object)
{
    mu_worker_data *data = object;
    mu_release(data->dataset);
    mu_release(data->creator);
    mu_release(data->list);
    mu_release(data->strategy);
}

static mu_type worker_data_type = {.name = "data of workers", .destroy = destroy};

mu_dataset *mu__creator_call(void *arg)
{
    const mu_dataset_creator *creator = arg;
    const mu_input_context context = {.num_input_pipelines = 1, .num_replicas_in_sync = 1};
    return creator->fn(&context, creator->arg);
}

static mu_dataset *of_worker(mu_value *element, void *arg)
{
    const mu_worker_data *data = arg;
    const mu_maker maker = {.dataset = mu__creator_call, .arg = data->creator};
    const int worker = (int)mu_tensor_item_int(mu_at(element, 0), 0);
    mu_dataset *made = mu__give(mu__per_worker_make(data->strategy, data->list, &maker, worker));
    if (made && data->argument && mu_dataset_cardinality(made) == MU_INFINITE) {
        mu__error(MU_INVALID_ARGUMENT,
                  "%s: the dataset of worker %d repeats for ever; say with .%s when to stop, or do not repeat it",
                  data->function, worker, data->argument);
        return NULL;
    }
    return made;
}

mu_worker_data *mu__worker_data_new(mu_strategy *strategy, mu_dataset_creator *creator)
{
    if (!strategy->servers || !strategy->servers->aggregation)
        return NULL;
    const int n = strategy->servers->n_workers;
    mu_worker_data *data = mu__new(&worker_data_type, sizeof *data);
    if (!data)
        return NULL;
    data->strategy = mu_retain(strategy);
    data->creator = mu_retain(creator);
    data->list = mu__resource_list_new();
    if (data->list)
        data->dataset = mu_retain(mu_dataset_interleave(mu_dataset_range(0, n, 1), of_worker, data, .cycle_length = n));
    if (data->dataset)
        return mu__give(data);
    mu_release(data);
    return NULL;
}

mu_dataset *mu__worker_data_dataset(const mu_worker_data *data) { return data->dataset; }

void mu__worker_data_must_end(mu_worker_data *data, const char *function, const char *argument)
{
    data->function = function;
    data->argument = argument;
}
