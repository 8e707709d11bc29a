// Rules of the guide to TensorFlow's core, sections 8 and 10 to 12, that no numbered case covers: what a strategy
// answers, destinations, ways of reducing used directly, options of communication, collectives, constructors.
#include "cases.h"

#include <pthread.h>

// ---- Section 8: what a strategy answers ---------------------------------------------------------

static void properties(void)
{
    mu_strategy *s = mirrored(2), *one = mu_one_device_strategy("CPU:1"), *none = mu_default_strategy(),
                *central = mu_central_storage_strategy(.replicas = 2, .parameter_device = "CPU:3");
    mu_strategy *all[] = {s, one, central};
    for (int i = 0; i < 3; i++) {
        CHECK(mu_strategy_should_checkpoint(all[i]) && mu_strategy_should_save_summary(all[i]));
        CHECK(mu_strategy_should_init(all[i]) && !mu_strategy_require_static_shapes(all[i]));
        CHECK(mu_strategy_between_graph(all[i]) == (all[i] == central));
        CHECK(mu_strategy_cluster_resolver(all[i]) == NULL);
    }
    CHECK(mu_strategy_device_count(s) == 2 && mu_strategy_parameter_device_count(s) == 2);
    CHECK(strcmp(mu_strategy_parameter_device(s, 1), "CPU:1") == 0);
    CHECK(mu_strategy_device_count(central) == 2 && mu_strategy_parameter_device_count(central) == 1);
    CHECK(strcmp(mu_strategy_parameter_device(central, 0), "CPU:3") == 0);
    CHECK(mu_num_replicas_in_sync(central) == 2 && mu_num_replicas_in_sync(one) == 1);
    CHECK(mu_strategy_parameter_device_count(none) == -1);
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(!mu_strategy_device(none, 0));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
    CHECK(!mu_strategy_device(s, 2));
    EXPECT_ERROR(MU_OUT_OF_RANGE);
}

static void destinations(void)
{
    static const char *const one[] = {"CPU:2", NULL}, *const three[] = {"CPU:0", "CPU:1", "CPU:2", NULL},
                             *const none[] = {NULL}, *const unknown[] = {"CPU:99", NULL};
    mu_strategy *s = mirrored(2);
    mu_value *p = PER_REPLICA(1, 2), *v = mu_value_at(mu_variables(on_write(s, 5, MU_AGGREGATION_SUM), MU_END), 0);
    mu_value *likes[] = {p, v, mu_of(scalar(0)), mu_broadcast_to_devices(s, mu_of(scalar(1)), v)};
    for (int i = 0; i < 4; i++) {
        mu_value *sum = mu_reduce_to(s, MU_SUM, p, .like = likes[i]);
        CHECK(mu_value_kind_of(sum) == (i == 2 ? MU_VALUE_TENSOR : MU_VALUE_MIRRORED));
        EXPECT(mu_value_at(mu_local_results(s, sum), 0), 3);
    }
    EXPECT(mu_reduce(s, MU_MEAN, v), 5); // never updates the variable
    CHECK(mu_value_kind_of(mu_reduce_to(s, MU_SUM, p, .devices = one)) == MU_VALUE_TENSOR);
    CHECK(mu_value_count(mu_reduce_to(s, MU_SUM, p, .devices = three)) == 3);
    CHECK(mu_value_count(mu_broadcast_to_devices(s, mu_of(scalar(1)), .devices = three)) == 3);
    CHECK(mu_value_kind_of(mu_broadcast_to_devices(s, mu_of(scalar(1)), .devices = one)) == MU_VALUE_TENSOR);
    CHECK(!mu_reduce_to(s, MU_SUM, p, .like = mu_list(p, MU_END)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_reduce_to(s, MU_SUM, p, .devices = none));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_reduce_to(s, MU_SUM, p, .devices = unknown));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_broadcast_to_devices(s, mu_of(scalar(1))));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_broadcast_to_devices(mu_default_strategy(), mu_of(scalar(1)), p));
    EXPECT_ERROR(MU_UNIMPLEMENTED);
    EXPECT(mu_broadcast_to_devices(mu_one_device_strategy("CPU:0"), mu_of(scalar(1)), p), 1);
}

static void batches(void)
{
    mu_strategy *s = mirrored(2);
    mu_tensor *wide[] = {VECTOR(1, 2, 3), VECTOR(4, 5, 6)}, *whole[] = {mu_constant(MU_I32, 1), mu_constant(MU_I32, 4)};
    mu_value *values = mu_list(PER_REPLICA(1, 2), per_replica_of(2, wide), per_replica_of(2, whole), MU_END);
    mu_value *sums = mu_batch_reduce_to(s, MU_SUM, values, NULL);
    EXPECT(mu_value_at(mu_local_results(s, sums), 1), 3, 5, 7, 9, 5);
    mu_value *means = mu_batch_reduce_to(s, MU_MEAN, values, NULL);
    EXPECT(mu_value_at(mu_local_results(s, means), 0), 1.5, 2.5, 3.5, 4.5, 2.5);
    mu_value *single = mu_of(scalar(0)), *likes = mu_list(single, PER_REPLICA(0, 0), single, MU_END);
    sums = mu_batch_reduce_to(s, MU_SUM, values, likes);
    CHECK(mu_value_kind_of(mu_value_at(sums, 0)) == MU_VALUE_TENSOR);
    CHECK(mu_value_kind_of(mu_value_at(sums, 1)) == MU_VALUE_MIRRORED);
    CHECK(!mu_batch_reduce_to(s, MU_SUM, values, mu_list(single, MU_END)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_batch_reduce_to(s, MU_SUM, single, NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

// ---- Section 10: ways of reducing, used directly ------------------------------------------------

static mu_value *row_of(double row, double value)
{
    return mu_indexed_slices(mu_reshape(VECTOR(value), 2, (int64_t[]){1, 1}), INDICES(row), 2, (int64_t[]){4, 1});
}

static void direct_use(void)
{
    mu_cross_device_ops *ways[] = {mu_reduction_to_one_device(), mu_hierarchical_copy(0), mu_hierarchical_copy(1),
                                   mu_hierarchical_copy(8)};
    mu_value *p = PER_REPLICA(1, 2, 6), *single = mu_of(scalar(5)), *two = PER_REPLICA(0, 0);
    mu_tensor *wide[] = {VECTOR(1, 2, 3), VECTOR(4, 5, 6), VECTOR(7, 8, 9)};
    mu_value *rows[] = {row_of(0, 1), row_of(2, 4)};
    mu_value *sparse = mu__give(mu__regroup(2, rows));
    for (int i = 0; i < 4; i++) {
        EXPECT(mu_cross_device_reduce(ways[i], MU_SUM, p, single), 9);
        EXPECT(mu_cross_device_reduce(ways[i], MU_MEAN, p, p), 3, 3, 3);
        EXPECT(mu_cross_device_reduce(ways[i], MU_SUM, single, single), 5); // alone it is itself
        mu_value *sum = mu_cross_device_reduce(ways[i], MU_SUM, sparse, single);
        CHECK(mu_value_kind_of(sum) == MU_VALUE_SLICES);
        EXPECT(mu_value_at(sum, 1), 0, 2);
        EXPECT(mu_value_at(mu_cross_device_reduce(ways[i], MU_MEAN, sparse, single), 0), .5, 2);
        mu_value *values = mu_list(p, per_replica_of(3, wide), MU_END);
        EXPECT(mu_cross_device_batch_reduce(ways[i], MU_SUM, values, mu_list(single, single, MU_END)), 9, 12, 15, 18);
        values = mu_list(two, sparse, p, MU_END);
        mu_value *all = mu_cross_device_batch_reduce(ways[i], MU_SUM, values, mu_list(single, two, two, MU_END));
        EXPECT(mu_value_at(all, 0), 0);
        EXPECT(mu_value_at(all, 2), 9, 9);
        mu_value *copies = mu_cross_device_broadcast(ways[i], scalar(7), single);
        CHECK(mu_value_kind_of(copies) == MU_VALUE_MIRRORED && mu_value_count(copies) == 1);
        EXPECT(mu_cross_device_broadcast(ways[i], scalar(7), two), 7, 7);
    }
}

static void direct_misuse(void)
{
    mu_cross_device_ops *way = mu_reduction_to_one_device();
    mu_value *p = PER_REPLICA(1, 2), *list = mu_list(p, MU_END);
    mu_value *wrong[][2] = {{list, p}, {p, list}, {NULL, p}, {p, NULL}};
    for (int i = 0; i < 4; i++) {
        CHECK(!mu_cross_device_reduce(way, MU_SUM, wrong[i][0], wrong[i][1]));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(!mu_cross_device_reduce(NULL, MU_SUM, p, p));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_cross_device_reduce(way, (mu_reduce_op)3, p, p));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_cross_device_batch_reduce(way, MU_SUM, list, mu_list(p, p, MU_END)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_cross_device_batch_reduce(way, MU_SUM, p, p));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_cross_device_broadcast(way, NULL, p));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_hierarchical_copy(-1));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_nccl_all_reduce(-2));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_cross_device_ops_new(NULL, NULL));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void communication_options(void)
{
    const mu_communication_options *base =
        MU_COMMUNICATION_OPTIONS(.bytes_per_pack = 8, .timeout_seconds = 3, .implementation = MU_COMM_RING);
    const mu_communication_options *over =
        MU_COMMUNICATION_OPTIONS(.timeout_seconds = 5, .implementation = MU_COMM_NCCL);
    mu_communication_options merged = mu_communication_options_merge(base, MU_COMMUNICATION_OPTIONS());
    CHECK(merged.bytes_per_pack == 8 && merged.timeout_seconds == 3 && merged.implementation == MU_COMM_RING);
    merged = mu_communication_options_merge(base, over);
    CHECK(merged.bytes_per_pack == 8 && merged.timeout_seconds == 5 && merged.implementation == MU_COMM_NCCL);
    merged = mu_communication_options_merge(NULL, base);
    CHECK(merged.bytes_per_pack == 8);
    CHECK(mu_communication_from_name("ring") == MU_COMM_RING && mu_communication_from_name("Auto") == MU_COMM_AUTO);
    CHECK(mu_communication_from_name("NCCL") == MU_COMM_NCCL && mu_communication_from_name("mpi") == MU_COMM_MPI);
    CHECK(mu_communication_from_name("gloo") == -1);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(mu_communication_from_name(NULL) == -1);
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    const mu_communication_options *wrong[] = {MU_COMMUNICATION_OPTIONS(.bytes_per_pack = -1),
                                               MU_COMMUNICATION_OPTIONS(.timeout_seconds = -1),
                                               MU_COMMUNICATION_OPTIONS(.implementation = (mu_communication)17)};
    for (int i = 0; i < 3; i++) {
        CHECK(mu_communication_options_check(wrong[i]) != MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(!mu_multi_worker_mirrored_strategy(.communication_options = wrong[i]));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(mu_communication_options_check(base) == MU_OK && mu_communication_options_check(NULL) == MU_OK);
}

static void packs(void)
{
    int64_t sizes[3] = {0};
    mu__pack_sizes(7, 1, sizes);
    CHECK(sizes[0] == 7);
    mu__pack_sizes(7, 2, sizes);
    CHECK(sizes[0] == 3 && sizes[1] == 4);
    mu__pack_sizes(2, 3, sizes);
    CHECK(sizes[0] == 0 && sizes[1] == 0 && sizes[2] == 2);
    static const int64_t bytes[] = {1, 5, 1, 5, 2};
    int pack[5];
    CHECK(mu__group_by_size(5, bytes, 4, pack) == 3 && pack[1] == 0 && pack[2] == 1 && pack[3] == 1 && pack[4] == 2);
    CHECK(mu__group_by_size(0, bytes, 4, pack) == 0);
}

// ---- Section 11: collectives --------------------------------------------------------------------

typedef struct member {
    mu_group *group;
    int rank, kind, root; // kind: 0 all_reduce, 1 all_gather, 2 broadcast
    mu_dtype dtype;
    int64_t count;
    float data[4], out[8];
    mu_status status;
    char message[300];
} member;

static void *take_part(void *arg)
{
    member *m = arg;
    mu_collective *c = mu__group_member(m->group, m->rank);
    const int64_t counts[] = {m->count, m->count};
    mu__collective_begin(c, 1);
    m->status = m->kind == 0   ? c->all_reduce(c, 1, "rule", MU_REDUCTION_SUM, m->dtype, m->data, m->count)
                : m->kind == 1 ? c->all_gather(c, 1, "rule", m->dtype, m->data, m->count, m->out, counts)
                               : c->broadcast(c, 1, "rule", m->dtype, m->data, m->count, m->root);
    snprintf(m->message, sizeof m->message, "%s", mu_error_take().message);
    return NULL;
}

static void both_take_part(member *first, member *second)
{
    pthread_t threads[2];
    first->group = second->group = mu__give(mu__group_new(2, "two"));
    second->rank = 1;
    pthread_create(&threads[0], NULL, take_part, first);
    pthread_create(&threads[1], NULL, take_part, second);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

// Different operations or types are INTERNAL, different sizes INVALID_ARGUMENT with both; the same on all ranks.
static void disagreements(void)
{
    const member plain = {.dtype = MU_F32, .count = 2, .data = {1, 2}};
    member first = plain, second = plain;
    second.kind = 1;
    both_take_part(&first, &second);
    CHECK(first.status == MU_INTERNAL && second.status == MU_INTERNAL);
    first = second = plain;
    second.dtype = MU_I32;
    both_take_part(&first, &second);
    CHECK(first.status == MU_INTERNAL && second.status == MU_INTERNAL);
    CHECK(strstr(first.message, "float32") && strstr(first.message, "int32"));
    first = second = plain;
    second.count = 1;
    both_take_part(&first, &second);
    CHECK(first.status == MU_INVALID_ARGUMENT && second.status == MU_INVALID_ARGUMENT);
    CHECK(strstr(first.message, "2 elements") && strstr(first.message, "1 elements"));
    first = second = plain;
    first.kind = second.kind = 2;
    second.root = 1; // two senders
    both_take_part(&first, &second);
    CHECK(first.status != MU_OK && second.status == first.status);
}

// After a deadline whoever comes late fails at once with the same.
static void late(void)
{
    mu_group *group = mu__give(mu__group_new(2, "two"));
    mu__group_set_timeout(group, 1);
    member first = {.group = group, .dtype = MU_F32, .count = 1}, second = first;
    second.rank = 1;
    take_part(&first);
    const int64_t begin = mu__now_ns();
    take_part(&second);
    CHECK(first.status == MU_DEADLINE_EXCEEDED && second.status == MU_DEADLINE_EXCEEDED);
    CHECK(mu__now_ns() - begin < 1000000000);
    CHECK(strcmp(first.message, second.message) == 0);
}

static void first_abort_wins(void)
{
    mu_group *group = mu__give(mu__group_new(2, "two"));
    const mu_error_value causes[] = {{.code = MU_UNAVAILABLE, .message = "first"},
                                     {.code = MU_INTERNAL, .message = "second"}};
    for (int i = 0; i < 2; i++)
        mu__group_abort(group, &causes[i]);
    member one = {.group = group, .dtype = MU_F32, .count = 1};
    for (int i = 0; i < 2; i++) {
        take_part(&one);
        CHECK(one.status == MU_UNAVAILABLE && strstr(one.message, "first"));
    }
}

// ---- Section 12: constructors -------------------------------------------------------------------

static void constructors(void)
{
    static const char *const one[] = {"CPU:1", NULL}, *const turned[] = {"CPU:3", "CPU:0", NULL},
                             *const twice[] = {"CPU:1", "CPU:1", NULL}, *const none[] = {NULL},
                             *const unknown[] = {"CPU:99", NULL};
    mu_strategy *s = mu_mirrored_strategy(.devices = turned);
    CHECK(mu_num_replicas_in_sync(s) == 2 && strcmp(mu_strategy_device(s, 0), "CPU:3") == 0);
    CHECK(mu_num_replicas_in_sync(mu_mirrored_strategy(.devices = one)) == 1);
    mu_strategy *central = mu_central_storage_strategy();
    CHECK(mu_num_replicas_in_sync(central) == 1 && strcmp(mu_strategy_parameter_device(central, 0), "CPU:0") == 0);
    central = mu_central_storage_strategy(.compute_devices = one);
    CHECK(strcmp(mu_strategy_parameter_device(central, 0), "CPU:1") == 0);
    central = mu_central_storage_strategy(.compute_devices = turned);
    CHECK(strcmp(mu_strategy_parameter_device(central, 0), "CPU:0") == 0);
    const char *const *const wrong[] = {twice, none, unknown};
    for (int i = 0; i < 3; i++) {
        CHECK(!mu_mirrored_strategy(.devices = wrong[i]) && mu_error_code() != MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(!mu_central_storage_strategy(.compute_devices = wrong[i]));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(!mu_one_device_strategy("CPU:99"));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_one_device_strategy("GPU:0")); // a plugin that is not there
    CHECK(strstr(mu_error_message(), "no device is named 'GPU:0'; there") && strstr(mu_error_message(), "CPU:0"));
    CHECK(!strstr(mu_error_message(), "xla-cpu-pjrt"));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(mu_default_strategy() == mu_default_strategy());
}

// Names in TensorFlow's forms are names of the same devices.
static void names_of_devices(void)
{
    static const char *const forms[] = {"CPU:1",
                                        "/CPU:1",
                                        "cpu:1",
                                        "/cpu:1",
                                        "/device:CPU:1",
                                        "device:cpu:1",
                                        "/job:localhost/replica:0/task:0/device:CPU:1",
                                        "/job:localhost/CPU:1"};
    static const char *const wrong[] = {"",
                                        "/",
                                        "CPU:",
                                        "CPU:x",
                                        "CPU:1:2",
                                        "/job:worker/CPU:1",
                                        "CPU:1/CPU:1",
                                        "/job:localhost/task:1/CPU:1",
                                        "device:",
                                        "//",
                                        "XLA_CPU",
                                        "XLA_CPU:-1"};
    for (size_t i = 0; i < MU_COUNT(forms); i++) {
        CHECK(strcmp(mu_strategy_device(mu_one_device_strategy(forms[i]), 0), "CPU:1") == 0);
        const char *const twice[] = {"CPU:1", forms[i], NULL};
        CHECK(!mu_mirrored_strategy(.devices = twice));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(strcmp(mu_strategy_device(mu_one_device_strategy("/device:CPU"), 0), "CPU:0") == 0);
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        CHECK(!mu_one_device_strategy(wrong[i]));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

// TensorFlow 2.21 takes the state of a replica for one in the scope.
static mu_value *colocate_inside(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable *beside = NULL;
    MU_COLOCATE(mu_get_strategy(), arg)
        beside = mu_variable_new(scalar(3), "beside");
    CHECK(beside && mu_variable_component_count(beside) == mu_variable_component_count(arg));
    return read_of(beside);
}

static void colocation(void)
{
    mu_strategy *all[] = {mirrored(2), mu_central_storage_strategy(.replicas = 2), mu_one_device_strategy("CPU:1")};
    mu_variable *plain = mu_variable_new(scalar(1));
    for (int i = 0; i < 3; i++) {
        mu_variable *own = on_write(all[i], 1, MU_AGGREGATION_NONE);
        MU_SCOPE(all[i]) {
            MU_COLOCATE(all[i], own)
                CHECK(mu_variable_created_in_scope(all[i], mu_variable_new(scalar(2))));
            MU_COLOCATE(all[i], plain) {
            }
            EXPECT_ERROR(MU_INVALID_ARGUMENT);
            MU_COLOCATE(all[i], NULL) {
            }
            EXPECT_ERROR(MU_INVALID_ARGUMENT);
        }
        MU_COLOCATE(all[i], own) {
        }
        EXPECT_ERROR(MU_FAILED_PRECONDITION);
        mu_value *got = eager(all[i], colocate_inside, own);
        i == 2 ? EXPECT(got, 3) : EXPECT(got, 3, 3);
    }
}

// A cluster without tasks is this process; one that does not say who this is cannot be used.
static void clusters(void)
{
    mu_strategy *s = mu_multi_worker_mirrored_strategy(mu_simple_cluster_resolver(mu_cluster_spec_parse("{}")));
    CHECK(mu_strategy_worker_count(s) == 1 && mu_strategy_worker_index(s) == 0 && mu_strategy_should_checkpoint(s));
    CHECK(mu_strategy_cluster_resolver(s) != NULL && mu_strategy_between_graph(s));
    mu_variable *v = on_write(s, 2, MU_AGGREGATION_SUM);
    EXPECT(mu_reduce(s, MU_MEAN, mu_value_at(mu_variables(v, MU_END), 0)), 2);
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"127.0.0.1:1\", \"127.0.0.1:2\"]}");
    CHECK(!mu_multi_worker_mirrored_strategy(mu_simple_cluster_resolver(spec)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_multi_worker_mirrored_strategy(mu_simple_cluster_resolver(spec, .task_type = "worker", .task_id = 2)));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_multi_worker_mirrored_strategy(mu_simple_cluster_resolver(spec, .task_type = "chief")));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

const one_case rule_device_cases[] = {
    {"rule_core_8_properties", properties, NULL},
    {"rule_core_8_destinations", destinations, NULL},
    {"rule_core_8_colocation", colocation, NULL},
    {"rule_core_8_batches", batches, NULL},
    {"rule_core_10_direct", direct_use, NULL},
    {"rule_core_10_misuse", direct_misuse, NULL},
    {"rule_core_10_options", communication_options, NULL},
    {"rule_core_10_packs", packs, NULL},
    {"rule_core_11_disagreements", disagreements, NULL},
    {"rule_core_11_late", late, NULL},
    {"rule_core_11_first_abort", first_abort_wins, NULL},
    {"rule_core_12_constructors", constructors, NULL},
    {"rule_core_12_clusters", clusters, NULL},
    {"rule_core_13_device_names", names_of_devices, NULL},
    {0},
};
