// Queries answer as usual while an error is pending, and leave its record unchanged: what base.h promises of them.
//
// A row makes one query and returns its answer as a number, a text as its first letter. A refused query is -1 or NaN.
#include "../unit/base/base_test.h"
#include "../unit/model/model_test.h"
#include "model/core/layer.h"
#include "model/metrics/metric.h"

#include <muster/checkpoint.h>

typedef struct world {
    mu_strategy *strategy, *central;
    mu_variable *variable;
    mu_tensor *tensor;
    mu_value *map;
    mu_dataset *dataset;
    mu_cluster *cluster;
    mu_cluster_spec *spec;
    mu_checkpoint_manager *manager;
    mu_model *model;
    mu_layer *layer;
    mu_metric *metric;
    mu_function *function;
    mu_tensor_file *file;
} world;

static double text(const char *text) { return text ? text[0] : -1; }

typedef double ask(world *w);
#define QUERY(name, expression)      \
    static double name(world *w)     \
    {                                \
        (void)w;                     \
        return (double)(expression); \
    }
QUERY(device_count, mu_strategy_device_count(w->strategy))
QUERY(device, text(mu_strategy_device(w->strategy, 1)))
QUERY(no_device, text(mu_strategy_device(w->strategy, 9)))
QUERY(no_devices, mu_strategy_device_count(mu_default_strategy()))
QUERY(parameter_count, mu_strategy_parameter_device_count(w->central))
QUERY(parameter_device, text(mu_strategy_parameter_device(w->central, 0)))
QUERY(parameter_devices, mu_strategy_parameter_device_count(w->strategy))
QUERY(strategy_name, text(mu_strategy_name(w->strategy)))
QUERY(replicas, mu_num_replicas_in_sync(w->strategy))
QUERY(workers, mu_strategy_worker_count(w->strategy))
QUERY(worker, mu_strategy_worker_index(w->strategy))
QUERY(checkpoints, mu_strategy_should_checkpoint(w->strategy))
QUERY(replica_count, mu_replica_count())
QUERY(strategy_there, mu_get_strategy() == mu_default_strategy())
QUERY(cross_replica, mu_in_cross_replica_context())
QUERY(sum, mu_reduce_op_from_name("mean"))
QUERY(no_sum, mu_reduce_op_from_name("median"))
QUERY(type, mu_dtype_from_name("int8"))
QUERY(no_type, (int)mu_dtype_from_name("int9") - 1)
QUERY(policy, mu_auto_shard_policy_from_name("data"))
QUERY(no_policy, mu_auto_shard_policy_from_name("all") + 1)
QUERY(mode, mu_input_replication_mode_from_name("per_replica"))
QUERY(no_mode, mu_input_replication_mode_from_name("per_device"))
QUERY(ring, mu_communication_from_name("ring"))
QUERY(no_ring, mu_communication_from_name("star"))
QUERY(batch_size, mu_per_replica_batch_size(&(mu_input_context){.num_replicas_in_sync = 3}, 12))
QUERY(no_batch_size, mu_per_replica_batch_size(&(mu_input_context){.num_replicas_in_sync = 3}, 13))
QUERY(devices, mu_device_count())
QUERY(device_name, text(mu_device_name(2)))
QUERY(variable_name, text(mu_variable_name(w->variable)))
QUERY(variable_dtype, mu_variable_dtype(w->variable))
QUERY(variable_rank, mu_variable_shape(w->variable).rank)
QUERY(trainable, mu_variable_is_trainable(w->variable))
QUERY(copies, mu_variable_component_count(w->variable))
QUERY(copy_name, mu_variable_component_name(w->variable, 1, NULL, 0))
QUERY(owner, mu_variable_strategy(w->variable) == w->strategy)
QUERY(made_in, mu_variable_created_in_scope(w->strategy, w->variable))
QUERY(dtype, mu_tensor_dtype(w->tensor))
QUERY(dim, mu_tensor_dim(w->tensor, -1))
QUERY(how_many, mu_tensor_elements(w->tensor))
QUERY(data, ((const double *)mu_tensor_data(w->tensor))[1])
QUERY(number, mu_scalar(mu_value_get(w->map, "one")))
QUERY(no_number, mu_scalar(w->tensor))
QUERY(count, mu_value_count(w->map))
QUERY(kind, mu_value_kind_of(w->map))
QUERY(key, text(mu_value_key(w->map, 0)))
QUERY(element, mu_value_tensor(mu_value_at(w->map, 1)) == w->tensor)
QUERY(cardinality, mu_dataset_cardinality(w->dataset))
QUERY(task_type, text(mu_cluster_task_type(w->cluster)))
QUERY(task_id, mu_cluster_task_id(w->cluster))
QUERY(layer_name, text(mu_cluster_rpc_layer(w->cluster)))
QUERY(environment, text(mu_cluster_environment(w->cluster)))
QUERY(accelerators, mu_cluster_num_accelerators(w->cluster, "GPU"))
QUERY(source, text(mu_cluster_source(w->cluster)))
QUERY(master, text(mu_cluster_master(w->cluster)))
QUERY(chief, mu_cluster_is_chief(w->cluster))
QUERY(cluster_workers, mu_cluster_worker_count(w->cluster))
QUERY(cluster_worker, mu_cluster_worker_index(w->cluster))
QUERY(coordinator, mu_cluster_is_coordinator(w->cluster))
QUERY(no_cluster, mu_cluster_worker_count(NULL))
QUERY(jobs, mu_cluster_spec_job_count(mu_cluster_get_spec(w->cluster)))
QUERY(job, text(mu_cluster_spec_job(w->spec, 0)))
QUERY(tasks, mu_cluster_spec_num_tasks(w->spec, "worker"))
QUERY(no_tasks, mu_cluster_spec_num_tasks(w->spec, "ps"))
QUERY(address, text(mu_cluster_spec_task_address(w->spec, "worker", 1)))
QUERY(json, text(mu_cluster_spec_json(w->spec)))
QUERY(leader, text(mu_cluster_spec_leader(w->spec, "worker", 1)))
QUERY(latest, mu_checkpoint_manager_latest(w->manager))
QUERY(parameters, mu_model_parameters(w->model))
QUERY(layer, text(mu_layer_name(w->layer)))
QUERY(metric, text(mu_metric_name(w->metric)))
QUERY(traces, mu_function_trace_count(w->function))
QUERY(tensors, mu_tensor_file_count(w->file))
QUERY(tensor_found, mu_tensor_file_find(w->file, "one"))
QUERY(tensor_name, text(mu_tensor_file_name(w->file, 0)))
QUERY(version, text(mu_version()))
#undef QUERY

static const struct {
    const char *name;
    ask *ask;
    bool fails;
} rows[] = {
#define ROW(name)          \
    {                      \
#name, name, false \
    }
#define FAILS(name)       \
    {                     \
#name, name, true \
    }
    ROW(device_count),
    ROW(device),
    FAILS(no_device),
    FAILS(no_devices),
    ROW(parameter_count),
    ROW(parameter_device),
    ROW(parameter_devices),
    ROW(strategy_name),
    ROW(replicas),
    ROW(workers),
    ROW(worker),
    ROW(checkpoints),
    ROW(replica_count),
    ROW(strategy_there),
    ROW(cross_replica),
    ROW(sum),
    FAILS(no_sum),
    ROW(ring),
    FAILS(no_ring),
    ROW(type),
    FAILS(no_type),
    ROW(policy),
    FAILS(no_policy),
    ROW(mode),
    FAILS(no_mode),
    ROW(batch_size),
    FAILS(no_batch_size),
    ROW(devices),
    ROW(device_name),
    ROW(variable_name),
    ROW(variable_dtype),
    ROW(variable_rank),
    ROW(trainable),
    ROW(copies),
    ROW(copy_name),
    ROW(owner),
    ROW(made_in),
    ROW(dtype),
    ROW(dim),
    ROW(how_many),
    ROW(data),
    ROW(number),
    FAILS(no_number),
    ROW(count),
    ROW(kind),
    ROW(key),
    ROW(element),
    ROW(cardinality),
    ROW(task_type),
    ROW(task_id),
    ROW(layer_name),
    ROW(environment),
    ROW(accelerators),
    ROW(source),
    ROW(master),
    ROW(chief),
    ROW(cluster_workers),
    ROW(cluster_worker),
    ROW(coordinator),
    FAILS(no_cluster),
    ROW(jobs),
    ROW(job),
    ROW(tasks),
    FAILS(no_tasks),
    ROW(address),
    ROW(json),
    ROW(leader),
    ROW(latest),
    ROW(parameters),
    ROW(layer),
    ROW(metric),
    ROW(traces),
    ROW(tensors),
    ROW(tensor_found),
    ROW(tensor_name),
    ROW(version),
#undef ROW
#undef FAILS
};

static mu_value *nothing(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

static world make_world(const char *folder)
{
    world w = {.strategy = strategy_of(2), .central = strategy_of(CENTRAL + 2)};
    MU_SCOPE(w.strategy) {
        w.variable = mu_variable_new(mu_zeros(MU_F32, 2, (int64_t[]){2, 3}), "v");
    }
    w.tensor = vector(3, (double[]){4, 5, 6});
    w.map = mu_map("one", mu_constant(MU_F64, 7), "rows", w.tensor, MU_END);
    w.dataset = mu_dataset_from_tensor_slices(mu_of(w.tensor));
    w.spec = mu_cluster_spec_parse("{\"worker\": [\"a:1\", \"b:2\"]}");
    w.cluster = mu_simple_cluster_resolver(w.spec, .task_type = "worker", .task_id = 1);
    w.layer = mu_dense(2);
    w.model = mu_sequential(w.layer);
    assert_non_null(mu_call(w.model, mu_ones(MU_F64, 2, (int64_t[]){1, 3})));
    w.metric = mu_accuracy();
    w.function = mu_function_new(nothing, NULL);
    w.manager = mu_checkpoint_manager_new(.checkpoint = mu_checkpoint_new(.model = w.model), .directory = folder);
    assert_int_equal(mu_checkpoint_manager_save(w.manager, 3), MU_OK);
    char path[128];
    snprintf(path, sizeof path, "%s/tensors.safetensors", folder);
    assert_int_equal(mu_save_tensors(path, w.map), MU_OK);
    w.file = mu_tensor_file_open(path);
    if (mu_error_code() != MU_OK)
        fail_msg("%s", mu_error_message());
    return w;
}

static void answers_in_spite_of_an_error(void **state)
{
    (void)state;
    const char *folder = temporary_folder();
    world w = make_world(folder);
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        const double before = rows[i].ask(&w);
        if (rows[i].fails != (mu_error_take().code != MU_OK) || (rows[i].fails && !(isnan(before) || before == -1)))
            fail_msg("%s answers %g", rows[i].name, before);
        mu_fail(MU_ABORTED, "the first");
        const double answer = rows[i].ask(&w);
        if (!(answer == before || (isnan(answer) && isnan(before))))
            fail_msg("%s answers %g, with an error pending %g", rows[i].name, before, answer);
        assert_string_equal(mu_error_message(), "the first");
        expect_error(MU_ABORTED, "the first");
    }
    mu_fail(MU_ABORTED, "the first");
    assert_int_equal(mu_cluster_set_task_id(w.cluster, 0), MU_ABORTED); // no query: does nothing
    assert_int_equal(mu_cluster_task_id(w.cluster), 1);
    expect_error(MU_ABORTED, "the first");
    assert_int_equal(remove_folder(folder), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(answers_in_spite_of_an_error)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
