// Workers bring tensors of different shapes but equal size to one collective, or use different variables, updates or
// operations with equal shapes. Every worker gets the same error before a number is computed. It names the tensor, both
// sides and the two replicas, and counts as the program's own fault. Traced and eagerly, in shared memory and over TCP,
// with one replica for each worker and with two.
#include "../comm/mesh_test.h"

#include "distribute/distribute.h"

#include <muster.h>

typedef struct layout {
    bool tcp, traced;
    const char *replicas;
} layout;

typedef mu_status update_fn(mu_variable *variable, mu_tensor *value);

// What both workers do; `odd` is worker 1. Returns NULL or a value with the pending error.
typedef struct scene {
    const char *name;
    void (*run)(mu_strategy *strategy, bool odd, bool traced);
    const char *words[4];
    bool eager_only; // traced, the error is the mesh's own: TensorFlow's code for another operation (test_mismatch.c)
    // Of on_pair; without an update worker 1 assigns to the other variable.
    mu_value *(*fn)(mu_value *arguments, void *arg);
    mu_variable_aggregation aggregation;
    update_fn *update;
} scene;

static bool is_odd; // of the process
static const scene *playing;

static mu_tensor *numbers(int rank, const int64_t *dims) { return mu_reshape(mu_range(MU_F32, 0, 12, 1), rank, dims); }

static mu_tensor *three_by_four(void) { return is_odd ? numbers(2, (int64_t[]){4, 3}) : numbers(2, (int64_t[]){3, 4}); }

static mu_tensor *matrix_or_vector(void)
{
    return is_odd ? numbers(1, (int64_t[]){12}) : numbers(2, (int64_t[]){3, 4});
}

static void on_replicas(mu_strategy *strategy, bool traced, mu_value *(*fn)(mu_value *arguments, void *arg))
{
    mu_value *none = mu_list(MU_END);
    if (traced)
        mu_run(strategy, mu_function_new(fn, NULL), none);
    else
        mu_run_callback(strategy, fn, NULL, none);
}

// ---- The scenes ---------------------------------------------------------------------------------

static mu_value *sum_of_matrix(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, three_by_four()));
}

static mu_value *sum_of_vector(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_all_reduce(MU_MEAN, matrix_or_vector()));
}

// Four floats or six: padded to a cache line, both are equally long.
static mu_value *sum_of_short(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *few = mu_slice(matrix_or_vector(), is_odd ? (int64_t[]){0} : (int64_t[]){0, 0},
                              is_odd ? (int64_t[]){6} : (int64_t[]){1, 4});
    return mu_of(mu_all_reduce(MU_SUM, mu_add(few, mu_constant(MU_F32, 1))));
}

static mu_value *gathered(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *square = mu_reshape(mu_range(MU_F32, 0, 16, 1), 2, (int64_t[]){4, 4});
    return mu_of(mu_all_gather(square, is_odd ? 1 : 0));
}

static mu_value *gathered_rows(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_all_gather(three_by_four(), 0));
}

static mu_tensor *square(int rows) { return mu_zeros(MU_F32, 2, (int64_t[]){rows, 4}); }

static mu_value *scattered_rows(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_reduce_scatter(MU_SUM, square(is_odd ? 8 : 4), 0));
}

static mu_value *scattered_axis(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_reduce_scatter(MU_SUM, square(4), is_odd ? 1 : 0));
}

static mu_value *scattered_mean(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_reduce_scatter(is_odd ? MU_MEAN : MU_SUM, mu_cast(square(4), MU_I32), 0));
}

static mu_value *moved_matrix(mu_value *arguments, void *arg)
{
    static const mu_replica_pair pair = {0, 1};
    (void)arguments, (void)arg;
    return mu_of(mu_collective_permute(three_by_four(), &pair, 1));
}

static mu_value *moved_back(mu_value *arguments, void *arg)
{
    static const mu_replica_pair forth = {0, 1}, back = {1, 0};
    (void)arguments, (void)arg;
    return mu_of(mu_collective_permute(square(4), is_odd ? &back : &forth, 1));
}

static void scatter_rows(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, scattered_rows); }
static void scatter_axis(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, scattered_axis); }
static void scatter_mean(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, scattered_mean); }
static void move_matrix(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, moved_matrix); }
static void move_back(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, moved_back); }
static void reduce_matrix(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, sum_of_matrix); }
static void reduce_vector(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, sum_of_vector); }
static void reduce_short(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, sum_of_short); }
static void gather(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, gathered); }
static void gather_rows(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, gathered_rows); }

static void make_variable(mu_strategy *strategy, bool odd, bool traced)
{
    (void)traced;
    MU_SCOPE(strategy)
        mu_variable_new(mu_zeros(MU_F32, 2, odd ? (int64_t[]){3, 2} : (int64_t[]){2, 3}), .name = "dense/kernel");
}

static void gather_outside(mu_strategy *strategy, bool odd, bool traced)
{
    (void)traced;
    mu_strategy_gather(strategy, mu_of(mu_zeros(MU_F32, 2, (int64_t[]){4, 4})), odd ? 1 : 0);
}

static void reduce_outside(mu_strategy *strategy, bool odd, bool traced)
{
    (void)traced;
    mu_reduce(strategy, odd ? MU_SUM : MU_MEAN, mu_of(mu_zeros(MU_F32, 1, (int64_t[]){4})));
}

static void reduce_axis_outside(mu_strategy *strategy, bool odd, bool traced)
{
    (void)traced;
    mu_reduce(strategy, MU_SUM, mu_of(mu_zeros(MU_F32, 2, (int64_t[]){4, 4})), odd ? 1 : 0);
}

// ---- Variables of one shape ---------------------------------------------------------------------

typedef struct pair {
    mu_variable *a, *b; // of one shape
    mu_tensor *outside; // made outside of the function
    update_fn *even, *odd;
} pair;

static mu_tensor *one_zero(void) { return mu_zeros(MU_F32, 1, (int64_t[]){1}); }

static pair make_pair(mu_strategy *strategy, mu_variable_synchronization synchronization,
                      mu_variable_aggregation aggregation)
{
    pair made = {.even = mu_variable_assign, .odd = mu_variable_assign};
    MU_SCOPE(strategy) {
        made.a = mu_variable_new(one_zero(), .name = "dense/kernel", .synchronization = synchronization,
                                 .aggregation = aggregation);
        made.b = mu_variable_new(one_zero(), .name = "dense/shadow", .synchronization = synchronization,
                                 .aggregation = aggregation);
    }
    made.outside = one_zero();
    return made;
}

static mu_value *assigned(mu_value *arguments, void *arg)
{
    const pair *p = arg;
    (void)arguments;
    (is_odd ? p->odd : p->even)(is_odd && p->even == p->odd ? p->b : p->a, one_zero());
    return mu_list(MU_END);
}

static mu_value *assigned_outside(mu_value *arguments, void *arg)
{
    const pair *p = arg;
    (void)arguments;
    (is_odd ? p->odd : p->even)(is_odd && p->even == p->odd ? p->b : p->a, p->outside);
    return mu_list(MU_END);
}

static mu_value *read_in_sync(mu_value *arguments, void *arg)
{
    const pair *p = arg;
    (void)arguments;
    mu_sync_on_read(true);
    return mu_of(mu_variable_read(is_odd ? p->b : p->a));
}

static void with_pair(mu_strategy *strategy, bool traced, mu_value *(*fn)(mu_value *arguments, void *arg), pair *p)
{
    mu_value *none = mu_list(MU_END);
    if (traced)
        mu_run(strategy, mu_function_new(fn, p), none);
    else
        mu_run_callback(strategy, fn, p, none);
}

// The scene selects the function, aggregation and update of worker 1.
static void on_pair(mu_strategy *strategy, bool odd, bool traced)
{
    pair p = make_pair(strategy, MU_SYNCHRONIZATION_ON_WRITE, playing->aggregation);
    (void)odd;
    if (playing->update)
        p.odd = playing->update;
    with_pair(strategy, traced, playing->fn, &p);
}

static void read_other(mu_strategy *strategy, bool odd, bool traced)
{
    (void)traced;
    const pair p = make_pair(strategy, MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_SUM);
    mu_variable_read(odd ? p.b : p.a);
}

static void read_other_in_sync(mu_strategy *strategy, bool odd, bool traced)
{
    (void)odd;
    pair p = make_pair(strategy, MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_MEAN);
    with_pair(strategy, traced, read_in_sync, &p);
}

static void reduce_other(mu_strategy *strategy, bool odd, bool traced)
{
    (void)traced;
    const pair p = make_pair(strategy, MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_SUM);
    mu_reduce(strategy, MU_MEAN, mu_variables(odd ? p.b : p.a, MU_END));
}

static void gather_other(mu_strategy *strategy, bool odd, bool traced)
{
    (void)traced;
    const pair p = make_pair(strategy, MU_SYNCHRONIZATION_ON_READ, MU_AGGREGATION_SUM);
    mu_strategy_gather(strategy, mu_variables(odd ? p.b : p.a, MU_END), 0);
}

static mu_value *scattered_into(mu_value *arguments, void *arg)
{
    const pair *p = arg;
    (void)arguments;
    (is_odd ? mu_variable_scatter_sub : mu_variable_scatter_add)(p->a, mu_range(MU_I64, 0, 1, 1), one_zero());
    return mu_list(MU_END);
}

// ---- Operations of one shape --------------------------------------------------------------------

static mu_value *sum_or_mean(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_all_reduce(is_odd ? MU_MEAN : MU_SUM, square(4)));
}

static mu_value *sum_or_mean_of_integers(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_all_reduce(is_odd ? MU_MEAN : MU_SUM, mu_cast(square(4), MU_I32)));
}

static void reduce_floats(mu_strategy *s, bool odd, bool traced) { (void)odd, on_replicas(s, traced, sum_or_mean); }

static void reduce_integers(mu_strategy *s, bool odd, bool traced)
{
    (void)odd, on_replicas(s, traced, sum_or_mean_of_integers);
}

static const scene scenes[] = {
    {"a matrix and its transpose", reduce_matrix, {"float32[3, 4]", "float32[4, 3]", "all_reduce", "shape"}},
    {"a matrix and a vector", reduce_vector, {"float32[3, 4]", "float32[12]", "all_reduce", "shape"}},
    {"as many with what pads them", reduce_short, {"float32[1, 4]", "float32[6]", "all_reduce", "shape"}},
    {"another axis", gather, {"along axis 0", "along axis 1", "all_gather", "axis"}},
    {"rows of other lengths", gather_rows, {"float32[3, 4]", "float32[4, 3]", "all_gather", "along axis 0"}},
    {"other rows to scatter", scatter_rows, {"float32[4, 4]", "float32[8, 4]", "reduce_scatter", "same shapes"}},
    {"another axis to scatter", scatter_axis, {"along axis 0", "along axis 1", "reduce_scatter", "same axis"}},
    {"another operation to scatter", scatter_mean, {"sum\"", "mean\"", "reduce_scatter", "same"}},
    {"another matrix to permute", move_matrix, {"float32[3, 4]", "float32[4, 3]", "collective_permute", "shape"}},
    {"other pairs", move_back, {"0>1", "1>0", "collective_permute", "same"}},
    {"a variable", make_variable, {"float32[2, 3]", "float32[3, 2]", "\"dense/kernel\"", "shape"}},
    {"another axis outside", gather_outside, {"gather along axis 0", "gather along axis 1", "all_gather", "same"}},
    {"another operation outside", reduce_outside, {"reduce mean", "reduce sum", "all_gather", "same"}},
    {"another axis to reduce", reduce_axis_outside, {"axis 0", "axis 1", "reduce sum", "same"}},
    {"another variable of sums",
     on_pair,
     {"assign to 'dense/kernel'", "assign to 'dense/shadow'", "same"},
     .fn = assigned,
     .aggregation = MU_AGGREGATION_SUM},
    {"another variable of means",
     on_pair,
     {"assign to 'dense/kernel'", "assign to 'dense/shadow'", "same"},
     .fn = assigned,
     .aggregation = MU_AGGREGATION_MEAN},
    {"another variable of the first",
     on_pair,
     {"assign to 'dense/kernel'", "assign to 'dense/shadow'", "same"},
     .fn = assigned,
     .aggregation = MU_AGGREGATION_ONLY_FIRST_REPLICA},
    {"another variable set to 0",
     on_pair,
     {"assign to 'dense/kernel'", "assign to 'dense/shadow'", "broadcast"},
     .fn = assigned_outside,
     .aggregation = MU_AGGREGATION_SUM},
    {"another variable, one value",
     on_pair,
     {"assign to 'dense/kernel'", "assign to 'dense/shadow'", "same"},
     .fn = assigned_outside,
     .aggregation = MU_AGGREGATION_MEAN},
    {"assign and assign_add",
     on_pair,
     {"assign to 'dense/kernel'", "assign_add to 'dense/kernel'", "same"},
     .fn = assigned,
     .aggregation = MU_AGGREGATION_SUM,
     .update = mu_variable_assign_add},
    {"assign and assign_sub",
     on_pair,
     {"assign to 'dense/kernel'", "assign_sub to 'dense/kernel'", "same"},
     .fn = assigned,
     .aggregation = MU_AGGREGATION_MEAN,
     .update = mu_variable_assign_sub},
    {"both of the first replica",
     on_pair,
     {"assign to 'dense/kernel'", "assign_add to 'dense/kernel'", "same"},
     .fn = assigned,
     .aggregation = MU_AGGREGATION_ONLY_FIRST_REPLICA,
     .update = mu_variable_assign_add},
    {"scatter_add and scatter_sub",
     on_pair,
     {"scatter_add to 'dense/kernel'", "scatter_sub to 'dense/kernel'", "same"},
     .fn = scattered_into,
     .aggregation = MU_AGGREGATION_SUM},
    {"another one to read", read_other, {"read of 'dense/kernel'", "read of 'dense/shadow'", "reduce sum", "same"}},
    {"another one on replicas", read_other_in_sync, {"read of 'dense/kernel'", "read of 'dense/shadow'", "same"}},
    {"another one to reduce", reduce_other, {"mu_reduce of 'dense/kernel'", "mu_reduce of 'dense/shadow'", "mean"}},
    {"another one to gather", gather_other, {"gather along axis 0", "'dense/kernel'", "'dense/shadow'", "same"}},
    {"sum and mean of floats", reduce_floats, {"all_reduce sum", "all_reduce mean", "float32[4, 4]"}, .eager_only = 1},
    {"sum and mean of integers", reduce_integers, {"mean of integers", "a value", "all_reduce", "same"}},
};

// ---- Running them -------------------------------------------------------------------------------

static void set_environment(int rank, const layout *l)
{
    char cluster[256];
    snprintf(cluster, sizeof cluster,
             "{\"cluster\": {\"worker\": [\"%s\", \"%s\"]}, \"task\": {\"type\": \"worker\", \"index\": %d}}",
             test_peer_addresses[0], test_peer_addresses[1], rank);
    setenv("TF_CONFIG", cluster, 1);
    setenv("MUSTER_CPU_DEVICES", l->replicas, 1);
    setenv("MUSTER_SHARED_MEMORY", l->tcp ? "0" : "1", 1);
    setenv("MUSTER_TIMEOUT", "60", 1);
}

typedef struct job {
    const scene *scene;
    layout layout;
} job;

static int play(int rank, void *arg)
{
    const job *j = arg;
    set_environment(rank, &j->layout);
    is_odd = rank == 1;
    playing = j->scene;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy();
    CHECK(strategy != NULL);
    j->scene->run(strategy, is_odd, j->layout.traced);
    const mu_error error = mu_error_take();
    bool good = error.code == MU_INVALID_ARGUMENT && strstr(error.message, "/job:worker/task:0") != NULL &&
                strstr(error.message, "/job:worker/task:1") != NULL;
    for (size_t i = 0; i < MU_COUNT(j->scene->words) && j->scene->words[i] != NULL; i++)
        good = good && strstr(error.message, j->scene->words[i]) != NULL;
    if (!good)
        fprintf(stderr, "%s, %s, %s, %s replicas, worker %d: [%s] %s\n", j->scene->name,
                j->layout.tcp ? "tcp" : "shared", j->layout.traced ? "traced" : "eager", j->layout.replicas, rank,
                mu_status_name(error.code), error.message);
    mu_pool_close(pool);
    fflush(NULL);
    _exit(!good); // the job has failed: the rest of it is not checked
}

static int failures;

static void play_in(layout l)
{
    for (size_t i = 0; i < MU_COUNT(scenes); i++) {
        pid_t children[MOST_RANKS];
        job j = {.scene = &scenes[i], .layout = l};
        if (l.traced && scenes[i].eager_only)
            continue;
        start_ranks(children, 2, play, &j);
        for (int rank = 0; rank < 2; rank++)
            failures += wait_rank(children[rank]) != 0;
    }
}

static void test_all(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        play_in((layout){.tcp = i & 1, .traced = (i & 2) != 0, .replicas = (i & 4) != 0 ? "2" : "1"});
    assert_int_equal(failures, 0);
}

// ---- A worker that says what cannot be ----------------------------------------------------------

// The signature that worker 1 sends instead of float32[2, 2].
static const int64_t headers[][MU_HEADER_INTS] = {
    {MU_F32, 2000, 2, 2}, // more axes than the stack has room for
    {MU_F32, -1, 2, 2},
    {MU_F32, 2, -2, -2},                                   // whose product is as it should be
    {MU_F32, 4, (int64_t)1 << 32, (int64_t)1 << 32, 3, 3}, // whose product wraps
    {MU_F32, 1, MU_UNKNOWN},
    {999, 2, 2, 2},
    {((int64_t)1 << 32) + MU_F32, 2, 2, 2}, // a type again where the number is cut
};

static int hear_header(int rank, void *arg)
{
    const int64_t *header = arg;
    int64_t counts[] = {MU_HEADER_INTS, MU_HEADER_INTS}, all[2 * MU_HEADER_INTS];
    set_environment(rank, &(layout){.replicas = "1"});
    CHECK(mu_init() == MU_OK);
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy();
    CHECK(strategy != NULL);
    if (rank == 0) {
        CHECK(mu_strategy_gather(strategy, mu_of(mu_zeros(MU_F32, 2, (int64_t[]){2, 2})), 0) == NULL);
        CHECK_TAKEN(MU_DATA_LOSS, "/job:worker/task:1");
    } else {
        CHECK(mu__many_workers.all_gather(strategy, "gather along axis 0", NULL, MU_I64, header, all, counts) == MU_OK);
    }
    CHECK(mu_exit(true) == 0);
    return 0;
}

static void test_hostile_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(headers); i++)
        run_ranks(2, hear_header, (void *)(uintptr_t)headers[i]);
}

static int hear_text(int rank, void *arg)
{
    int64_t bytes = *(const int64_t *)arg;
    set_environment(rank, &(layout){.replicas = "1"});
    CHECK(mu_init() == MU_OK);
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy();
    CHECK(strategy != NULL);
    if (rank == 0) {
        CHECK(mu__workers_take_text(strategy, "first batch", NULL, 1) == NULL);
        CHECK_TAKEN(MU_DATA_LOSS, "/job:worker/task:1");
    } else {
        CHECK(mu__many_workers.broadcast(strategy, "first batch", NULL, MU_I64, &bytes, 1, 1) == MU_OK);
    }
    CHECK(mu_exit(true) == 0);
    return 0;
}

static void test_hostile_texts(void **state)
{
    int64_t lengths[] = {-1, INT64_MIN, INT64_MAX, (int64_t)1 << 40};
    (void)state;
    for (size_t i = 0; i < MU_COUNT(lengths); i++)
        run_ranks(2, hear_text, &lengths[i]);
}

// ---- Another type, another operation: TensorFlow's code, and the program's fault -----------------

static mu_value *other_type(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, mu_constant(is_odd ? MU_F64 : MU_F32, 1)));
}

static mu_value *other_operation(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_tensor *one = mu_ones(MU_F32, 1, (int64_t[]){2});
    return mu_of(is_odd ? mu_all_gather(one, 0) : mu_all_reduce(MU_SUM, one));
}

typedef struct mismatch {
    layout layout;
    mu_value *(*fn)(mu_value *arguments, void *arg);
} mismatch;

// mu_exit prints and counts the error in this way.
static int exit_of_mismatch(int rank, void *arg)
{
    const mismatch *m = arg;
    set_environment(rank, &m->layout);
    is_odd = rank == 1;
    mu_pool *pool = mu_pool_open();
    on_replicas(mu_multi_worker_mirrored_strategy(), m->layout.traced, m->fn);
    // Another operation has another name as well, which is INVALID_ARGUMENT.
    CHECK(mu_error_code() == (m->fn == other_type ? MU_INTERNAL : MU_INVALID_ARGUMENT));
    mu_pool_close(pool);
    CHECK(freopen("/dev/null", "w", stderr) != NULL);
    _exit(mu_exit(true) != 64);
}

static mu_value *other_type_on_replica_1(mu_value *arguments, void *arg)
{
    is_odd = mu_scalar(mu_replica_id()) == 1;
    return other_type(arguments, arg);
}

static int exit_of_one_process(int rank, void *arg)
{
    (void)rank, (void)arg;
    setenv("MUSTER_CPU_DEVICES", "2", 1);
    mu_pool *pool = mu_pool_open();
    on_replicas(mu_mirrored_strategy(), false, other_type_on_replica_1);
    CHECK(mu_error_code() == MU_INTERNAL);
    mu_pool_close(pool);
    CHECK(freopen("/dev/null", "w", stderr) != NULL);
    _exit(mu_exit(true) != 64);
}

static void test_mismatches_are_the_programs_fault(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        mismatch m = {.layout = {.tcp = i & 1, .traced = (i & 2) != 0, .replicas = "1"},
                      .fn = (i & 4) != 0 ? other_operation : other_type};
        run_ranks(2, exit_of_mismatch, &m);
    }
    run_ranks(1, exit_of_one_process, NULL);
}

// ---- What one worker runs alone ------------------------------------------------------------------

static mu_value *doubled(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_multiply(mu_at(arguments, 0), mu_constant(MU_F32, 2)));
}

static mu_value *summed(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, mu_at(arguments, 0)));
}

static float run_on_one(mu_strategy *strategy, mu_function *function)
{
    const mu_tensor *result =
        mu_at(mu_local_results(strategy, mu_run(strategy, function, mu_list(mu_constant(MU_F32, 3), MU_END))), 0);
    return result ? *(const float *)mu_tensor_data(result) : -1;
}

static int run_alone(int rank, void *arg)
{
    const layout *l = arg;
    set_environment(rank, l);
    CHECK(mu_init() == MU_OK);
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy();
    mu_function *alone = mu_function_new(doubled, NULL), *together = mu_function_new(summed, NULL);
    CHECK(strategy != NULL);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < step && rank == 1; i++)
            CHECK(run_on_one(strategy, alone) == 6);
        CHECK(run_on_one(strategy, together) == 6);
    }
    CHECK(mu_exit(true) == 0);
    return 0;
}

// A function without collectives does not concern the other workers.
static void test_one_worker_runs_alone(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        run_ranks(2, run_alone, &(layout){.tcp = tcp, .replicas = "1"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_mismatches_are_the_programs_fault),
        cmocka_unit_test(test_one_worker_runs_alone),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_hostile_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
