// Core cases J, K, L and M: ways of reducing, collectives, several workers, what is special to a strategy.
#include "cases.h"

#include <pthread.h>

static mu_value *plus_one(const mu_value *parts)
{
    mu_tensor *sums[8];
    for (int i = 0; i < parts->n; i++)
        sums[i] = mu_add(mu_value_tensor(parts->items[i]), scalar(1));
    return per_replica_of(parts->n, sums);
}

static void check_way(mu_cross_device_ops *ops, int n)
{
    static const double ids[] = {0, 1, 2, 3, 4, 5, 6, 7};
    mu_strategy *s = mu_mirrored_strategy(.replicas = n, .cross_device_ops = ops);
    mu_value *d = per_replica(n, ids), *list = d ? mu_list(d, plus_one(d), MU_END) : NULL;
    const char *const other[] = {"CPU:7", NULL};
    EXPECT(mu_reduce(s, MU_MEAN, d), (n - 1) / 2.0);
    EXPECT(mu_reduce(s, MU_SUM, d), n * (n - 1) / 2.0);
    EXPECT(mu_reduce_to(s, MU_SUM, d, .devices = other), n * (n - 1) / 2.0);
    mu_value *means = mu_batch_reduce_to(s, MU_MEAN, list, NULL), *sums = mu_batch_reduce_to(s, MU_SUM, list, NULL);
    for (int r = 0; r < n && means && sums; r++) {
        EXPECT(mu_value_at(mu_local_results(s, means), r), (n - 1) / 2.0, (n + 1) / 2.0);
        EXPECT(mu_value_at(mu_local_results(s, sums), r), n * (n - 1) / 2.0, n * (n + 1) / 2.0);
    }
    mu_value *copies = mu_broadcast_to_devices(s, mu_of(scalar(1)), d);
    CHECK(copies && copies->kind == MU_VALUE_MIRRORED && copies->n == n);
}

static void core_115(void)
{
    for (int n = 2; n <= 5; n++) {
        check_way(mu_reduction_to_one_device(), n);
        check_way(NULL, n);
        for (int packs = 0; packs <= 8; packs = packs * 8 + (packs == 0))
            check_way(mu_hierarchical_copy(packs), n);
    }
    CHECK(!mu_hierarchical_copy(-1));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    mu_strategy *s = mu_mirrored_strategy(.replicas = 2, .cross_device_ops = mu_nccl_all_reduce(1));
    EXPECT(mu_reduce(s, MU_SUM, PER_REPLICA(1, 2)), 3); // a hint: without GPUs the default way, with a warning
}

static mu_value *slices_of(int n, mu_tensor *indices, mu_tensor *values)
{
    return mu_indexed_slices(mu_reshape(values, 2, (int64_t[]){n, 2}), indices, 2, (int64_t[]){5, 2});
}

static mu_value *dense(const mu_value *slices)
{
    return mu_of(mu_unsorted_segment_sum(mu_at(slices, 0), mu_at(slices, 1), 5));
}

static void core_116(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *parts[] = {slices_of(1, INDICES(1), VECTOR(1, 2)), slices_of(2, INDICES(1, 3), VECTOR(3, 4, 5, 6))};
    mu_value *both = mu__give(mu__regroup(2, parts));
    EXPECT(dense(mu_reduce(s, MU_SUM, both)), 0, 0, 4, 6, 0, 0, 5, 6, 0, 0);
    EXPECT(dense(mu_reduce(s, MU_MEAN, both)), 0, 0, 2, 3, 0, 0, 2.5, 3, 0, 0);
    mu_value *batch = mu_batch_reduce_to(s, MU_SUM, mu_list(both, MU_END), NULL);
    EXPECT(dense(mu_value_at(mu_local_results(s, mu_value_at(batch, 0)), 1)), 0, 0, 4, 6, 0, 0, 5, 6, 0, 0);
}

static void core_118(void)
{
    static const int64_t wanted[] = {2, 2, 2, 2, 4};
    int64_t sizes[5];
    mu__pack_sizes(12, 5, sizes);
    CHECK(memcmp(sizes, wanted, sizeof sizes) == 0);
    mu_strategy *s = mu_mirrored_strategy(.replicas = 2, .cross_device_ops = mu_hierarchical_copy(5));
    mu_tensor *a[] = {VECTOR(1, 2, 3), VECTOR(1, 1, 1)}, *b[] = {VECTOR(1, 2, 3, 4), VECTOR(1, 1, 1, 1)},
              *c[] = {VECTOR(1, 2, 3, 4, 5), VECTOR(1, 1, 1, 1, 1)};
    mu_value *sums = mu_batch_reduce_to(
        s, MU_SUM, mu_list(per_replica_of(2, a), per_replica_of(2, b), per_replica_of(2, c), MU_END), NULL);
    EXPECT(mu_value_at(mu_local_results(s, sums), 0), 2, 3, 4, 2, 3, 4, 5, 2, 3, 4, 5, 6);
}

static void core_119(void)
{
    static const int64_t scalars[] = {4, 4, 4, 4}, unknown[] = {4, -1, 4, 4};
    int pack[4];
    CHECK(mu__group_by_size(4, scalars, 0, pack) == 1);
    CHECK(mu__group_by_size(4, scalars, 3, pack) == 4 && pack[3] == 3);
    CHECK(mu__group_by_size(4, scalars, 4, pack) == 2 && pack[1] == 0 && pack[2] == 1);
    CHECK(mu__group_by_size(4, unknown, 4, pack) == 1);
}

static void core_124(void)
{
    mu_tensor *parts[] = {VECTOR(1, 2), VECTOR(3, 4), VECTOR(5, 6), VECTOR(7, 8)};
    mu_strategy *two = mirrored(2), *four = mirrored(4);
    mu_value *first = mu_list(per_replica_of(2, parts), MU_END), *all = mu_list(per_replica_of(4, parts), MU_END);
    EXPECT(mu_value_at(mu_local_results(two, mu_batch_reduce_to(two, MU_SUM, first, NULL)), 0), 4, 6);
    EXPECT(mu_value_at(mu_local_results(two, mu_batch_reduce_to(two, MU_MEAN, first, NULL)), 1), 2, 3);
    EXPECT(mu_value_at(mu_local_results(four, mu_batch_reduce_to(four, MU_SUM, all, NULL)), 2), 16, 20);
    EXPECT(mu_value_at(mu_local_results(four, mu_batch_reduce_to(four, MU_MEAN, all, NULL)), 3), 4, 5);
}

static mu_value *column(int n, mu_tensor *indices, mu_tensor *values)
{
    return mu_indexed_slices(mu_reshape(values, 2, (int64_t[]){n, 1}), indices, 2, (int64_t[]){10, 1});
}

static void core_125(void)
{
    mu_strategy *s = mirrored(2);
    mu_value *parts[] = {column(2, INDICES(0, 1), VECTOR(1, 2)), column(2, INDICES(1, 2), VECTOR(3, 4))};
    mu_value *sum = mu_reduce(s, MU_SUM, mu__give(mu__regroup(2, parts)));
    EXPECT(mu_value_at(sum, 1), 0, 1, 1, 2);
    EXPECT(mu_value_at(sum, 0), 1, 2, 3, 4);
    mu_value *uneven[] = {column(1, INDICES(0), VECTOR(1)), column(3, INDICES(0, 1, 2), VECTOR(2, 3, 4))};
    sum = mu_reduce(s, MU_SUM, mu__give(mu__regroup(2, uneven)));
    EXPECT(mu_of(mu_unsorted_segment_sum(mu_at(sum, 0), mu_at(sum, 1), 3)), 3, 3, 4);
}

// ---- Two user threads ---------------------------------------------------------------------------

typedef struct user {
    mu_strategy *strategy;
    double value, result;
    mu_runtime *runtime;
} user;

static void *reduce_often(void *arg)
{
    user *u = arg;
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < 50; i++) {
        mu_value *sum = mu_batch_reduce_to(u->strategy, MU_SUM, mu_list(PER_REPLICA(u->value, u->value), MU_END), NULL);
        u->result = sum ? mu_scalar(mu_value_at(mu_local_results(u->strategy, mu_value_at(sum, 0)), 0)) : -1;
    }
    mu_pool_close(pool);
    return NULL;
}

static void core_127(void)
{
    mu_strategy *s = mirrored(2);
    user users[] = {{.strategy = s, .value = 1}, {.strategy = s, .value = 2}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, reduce_often, &users[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(users[0].result == 2 && users[1].result == 4);
}

// ---- Collectives --------------------------------------------------------------------------------

typedef struct rank {
    mu_group *group;
    int rank, what;
    float in[3], out[4];
    mu_status status;
    char message[200];
    double seconds;
} rank;

enum { ALL_REDUCE, ALL_GATHER, BROADCAST, ALL_TO_ALL };

static void *join_collective(void *arg)
{
    rank *r = arg;
    mu_collective *c = mu__group_member(r->group, r->rank);
    const int64_t ones[] = {1, 1}, begin = mu__now_ns();
    mu__collective_begin(c, 1);
    memcpy(r->out, r->in, sizeof r->in);
    r->status = r->what == ALL_REDUCE   ? c->all_reduce(c, 1, "case", MU_REDUCTION_SUM, MU_F32, r->out, 1)
                : r->what == ALL_GATHER ? c->all_gather(c, 1, "case", MU_F32, r->in, 1, r->out, ones)
                : r->what == BROADCAST  ? c->broadcast(c, 1, "case", MU_F32, r->out, 3, 0)
                                        : mu__collective_all_to_all(c, 1, "case", MU_F32, r->in, r->out, 1);
    r->seconds = (double)(mu__now_ns() - begin) / 1e9;
    snprintf(r->message, sizeof r->message, "%s", mu_error_take().message);
    return NULL;
}

static void join_all(int n, rank *ranks)
{
    pthread_t threads[4];
    for (int i = 0; i < n; i++)
        pthread_create(&threads[i], NULL, join_collective, &ranks[i]);
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

static void core_128(void)
{
    mu_group *one = mu__give(mu__group_new(1, "one")), *two = mu__give(mu__group_new(2, "two"));
    rank alone = {.group = one, .in = {5}};
    join_all(1, &alone);
    CHECK(alone.status == MU_OK && alone.out[0] == 5);
    for (int what = ALL_REDUCE; what <= ALL_GATHER; what++) {
        rank both[] = {{.group = two, .what = what, .in = {1}}, {.group = two, .rank = 1, .what = what, .in = {1}}};
        join_all(2, both);
        CHECK(both[0].out[0] == (what == ALL_REDUCE ? 2 : 1) && (what == ALL_REDUCE || both[1].out[1] == 1));
    }
}

static void core_130(void)
{
    mu_group *two = mu__give(mu__group_new(2, "two"));
    rank sent[] = {{.group = two, .what = BROADCAST, .in = {1, 2, 3}}, {.group = two, .rank = 1, .what = BROADCAST}};
    join_all(2, sent);
    CHECK(sent[1].out[0] == 1 && sent[1].out[2] == 3);
    rank both[] = {{.group = two, .what = ALL_TO_ALL, .in = {0, 0}},
                   {.group = two, .rank = 1, .what = ALL_TO_ALL, .in = {1, 1}}};
    join_all(2, both);
    for (int r = 0; r < 2; r++)
        CHECK(both[r].out[0] == 0 && both[r].out[1] == 1);
}

static void core_131(void)
{
    mu_group *first = mu__give(mu__group_new(2, "first")), *second = mu__give(mu__group_new(2, "second"));
    rank all[] = {{.group = first, .in = {1}},
                  {.group = first, .rank = 1, .in = {2}},
                  {.group = second, .in = {3}},
                  {.group = second, .rank = 1, .in = {4}}};
    join_all(4, all);
    CHECK(all[0].out[0] == 3 && all[1].out[0] == 3 && all[2].out[0] == 7 && all[3].out[0] == 7);
}

static void core_134(void)
{
    for (int what = ALL_REDUCE; what <= ALL_GATHER; what++) {
        mu_group *two = mu__give(mu__group_new(2, "two"));
        mu__group_set_timeout(two, 0.3);
        rank alone = {.group = two, .what = what, .in = {1}};
        join_all(1, &alone);
        CHECK(alone.status == MU_DEADLINE_EXCEEDED && alone.seconds >= 0.3);
    }
}

static void core_136(void)
{
    mu_group *two = mu__give(mu__group_new(2, "two"));
    rank blocked = {.group = two, .in = {1}}, next = {.group = two, .rank = 1, .in = {1}};
    pthread_t thread;
    pthread_create(&thread, NULL, join_collective, &blocked);
    const mu_error_value cause = {.code = MU_UNAVAILABLE, .file = __FILE__, .message = "peer down"};
    mu__group_abort(two, &cause);
    pthread_join(thread, NULL);
    join_all(1, &next);
    CHECK(blocked.status == MU_UNAVAILABLE && strstr(blocked.message, "peer down"));
    CHECK(next.status == MU_UNAVAILABLE && strstr(next.message, "peer down"));
    CHECK(mu__group_reset(two) == MU_OK);
    rank both[] = {{.group = two, .in = {1}}, {.group = two, .rank = 1, .in = {2}}};
    join_all(2, both);
    CHECK(both[0].status == MU_OK && both[0].out[0] == 3 && both[1].out[0] == 3);
}

static mu_value *reduce_then_fail(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_tensor *sum = mu_all_reduce(MU_SUM, mu_add(id(), scalar(1)));
    if (!*(bool *)arg)
        return mu_of(sum);
    mu_fail(MU_OUT_OF_RANGE, "end of data");
    return NULL;
}

static void core_137(void)
{
    mu_strategy *s = mirrored(2);
    bool fails = true;
    CHECK(!eager(s, reduce_then_fail, &fails));
    EXPECT_ERROR(MU_OUT_OF_RANGE);
    fails = false;
    EXPECT(eager(s, reduce_then_fail, &fails), 3, 3);
    EXPECT(traced(s, reduce_then_fail, &fails), 3, 3);
}

// ---- What is special to a strategy --------------------------------------------------------------

static mu_value *assign_in_update(mu_variable *v, mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_variable_assign(v, mu_at(arguments, 0)) == MU_OK ? read_of(v) : NULL;
}

static mu_value *reduce_and_update(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    mu_value *like = mu_value_at(mu_variables(arg, MU_END), 0);
    mu_value *sum = mu_reduce_to(strategy, MU_SUM, arguments, .like = like);
    return mu_update_variable(strategy, arg, assign_in_update, NULL, sum);
}

static mu_value *merge_update(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_merge_call(reduce_and_update, arg, mu_of(scalar(1)));
}

static void core_148(void)
{
    mu_strategy *s = mirrored(2), *one = mu_one_device_strategy("CPU:0");
    mu_variable *v = on_write(s, 0, MU_AGGREGATION_NONE), *w = on_write(one, 0, MU_AGGREGATION_NONE);
    CHECK(eager(s, merge_update, v));
    EXPECT(components(v), 2, 2);
    CHECK(eager(one, merge_update, w));
    EXPECT(components(w), 1);
}

static void core_148_central(void)
{
    mu_strategy *s = mu_central_storage_strategy(.replicas = 2);
    mu_variable *v = on_write(s, 0, MU_AGGREGATION_NONE);
    for (int i = 0; i < 2; i++) {
        CHECK((i ? traced : eager)(s, merge_update, v));
        EXPECT(components(v), 2);
    }
}

static mu_value *assign_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_variable_assign(arg, scalar(1)) == MU_OK ? read_of(arg) : NULL;
}

static void core_149(void)
{
    mu_strategy *s = mu_central_storage_strategy(.replicas = 2);
    mu_variable *none = on_write(s, 0, MU_AGGREGATION_NONE), *sum = on_write(s, 0, MU_AGGREGATION_SUM);
    for (int i = 0; i < 2; i++) {
        CHECK(!(i ? traced : eager)(s, assign_one, none));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        EXPECT((i ? traced : eager)(s, assign_one, sum), 2, 2);
        EXPECT(components(sum), 2);
        CHECK(mu_variable_assign(none, scalar(4)) == MU_OK && mu_variable_assign(sum, scalar(4)) == MU_OK);
        EXPECT(components(none), 4);
        EXPECT(components(sum), 4);
    }
}

static mu_value *assign_given(mu_variable *v, mu_value *arguments, void *arg)
{
    ++*(int *)arg;
    return mu_variable_assign(v, mu_value_tensor(arguments)) == MU_OK ? read_of(v) : NULL;
}

static void core_151(void)
{
    int calls = 0;
    mu_strategy *s = mu_central_storage_strategy(.replicas = 2);
    mu_variable *v = on_write(s, 0, MU_AGGREGATION_NONE);
    CHECK(mu_update_variable(s, v, assign_given, &calls, PER_REPLICA(3, 4)) && calls == 1);
    EXPECT(components(v), 3);
}

static mu_value *make_one(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_value_at(mu_variables(mu_variable_new(scalar(1), "v"), MU_END), 0);
}

static mu_value *gather_two(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_all_gather(VECTOR(1, 2), 0));
}

static void core_152(void)
{
    mu_strategy *one = mu_one_device_strategy("CPU:1");
    mu_value *made = eager(one, make_one, NULL);
    CHECK(made && made->kind == MU_VALUE_VARIABLE && mu_variable_component_count((mu_variable *)made->leaf) == 1);
    EXPECT(mu_strategy_gather(one, mu_of(VECTOR(1, 2)), 0), 1, 2);
    EXPECT(eager(one, gather_two, NULL), 1, 2);
    CHECK(mu_strategy_device_count(one) == 1 && strcmp(mu_strategy_device(one, 0), "CPU:1") == 0);
    CHECK(mu_strategy_device_count(mu_default_strategy()) == -1);
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
}

static void core_154(void)
{
    const char *const none[] = {NULL}, *const twice[] = {"CPU:0", "CPU:0", NULL};
    const char *const mixed[] = {"CPU:0", "/job:worker/task:1/CPU:0", NULL};
    const char *const *tried[] = {none, twice, mixed};
    for (int i = 0; i < 3; i++) {
        CHECK(!mu_mirrored_strategy(.devices = tried[i]));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

static void core_154_remote(void)
{
    const char *const both[] = {"/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0", NULL};
    CHECK(!mu_mirrored_strategy(.devices = both));
    EXPECT_ERROR(MU_FAILED_PRECONDITION);
}

static void core_140(void)
{
    mu_cluster_spec *with = mu_cluster_spec_parse(
        "{\"chief\": [\"a:1\"], \"worker\": [\"b:1\", \"c:1\", \"d:1\"], \"evaluator\": [\"e:1\"]}");
    mu_cluster_spec *without = mu_cluster_spec_parse("{\"worker\": [\"b:1\", \"c:1\", \"d:1\"]}");
    CHECK(mu_cluster_spec_is_chief(with, "chief", 0) == 1 && mu_cluster_spec_is_chief(with, "evaluator", 0) == 1);
    CHECK(mu_cluster_spec_worker_index(with, "chief", 0) == 0 && mu_cluster_spec_worker_count(with, "evaluator") == 1);
    CHECK(strstr(mu_cluster_spec_leader(with, "worker", 1), "/job:chief/") &&
          !*mu_cluster_spec_leader(with, "evaluator", 0));
    for (int i = 0; i < 3; i++) {
        CHECK(mu_cluster_spec_is_chief(with, "worker", i) == 0 &&
              mu_cluster_spec_worker_index(with, "worker", i) == i + 1);
        CHECK(mu_cluster_spec_worker_count(with, "worker") == 4);
        CHECK(mu_cluster_spec_is_chief(without, "worker", i) == (i == 0) &&
              mu_cluster_spec_worker_index(without, "worker", i) == i);
    }
    CHECK(strstr(mu_cluster_spec_leader(without, "worker", 2), "/job:worker/") != NULL);
}

const one_case device_cases[] = {
    {"core-115", core_115, NULL},
    {"core-116", core_116, NULL},
    {"core-118", core_118, NULL},
    {"core-119", core_119, NULL},
    {"core-121", NULL, "groups are objects of one size, so there are no keys to look up or to mistake"},
    {"core-122", NULL, "needs devices that are called GPU: pjrt/test_defaults"},
    {"core-124", core_124, NULL},
    {"core-125", core_125, NULL},
    {"core-127", core_127, NULL},
    {"core-128", core_128, NULL},
    {"core-130", core_130, NULL},
    {"core-131", core_131, NULL},
    {"core-133", NULL, "a group has one size; workers that disagree are refused at the bootstrap (ranks/failures)"},
    {"core-134", core_134, NULL},
    {"core-136", core_136, NULL},
    {"core-137", core_137, NULL},
    {"core-140", core_140, NULL},
    {"core-148", core_148, NULL},
    {"core-148-central", core_148_central, NULL},
    {"core-149", core_149, NULL},
    {"core-151", core_151, NULL},
    {"core-152", core_152, NULL},
    {"core-154", core_154, NULL},
    {"core-154-remote", core_154_remote, NULL},
    {0},
};
