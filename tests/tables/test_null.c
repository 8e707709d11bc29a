// NULL everywhere: every public function with each of its pointers NULL in turn, with all of them NULL before mu_init,
// after mu_exit and on a thread of its own, and with an error pending. It must end in an error, never in a crash.
//
// The rows stand in the files null_*.def; null_complete compares them with what the library exports.
//   ROW(name, n, call)    works as it stands, and fails when one of its P is NULL
//   BAD(name, n, call)    fails as it stands already
//   ANY(name, n, call)    does or answers something for NULL as well, with an error or without
//   ASK(name, n, call)    a query that is a ROW: with an error pending, its answer is the one that it has without
//   QUERY(name, n, call)  a query that is an ANY
// P(i, x) is argument i of n, O(i, x) one that may be NULL. Rows run in child processes, so that a crash is one row's.
#include <muster.h>

#include "../unit/base/base_test.h"
#include "../unit/scratch.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>

// ---- What the rows use --------------------------------------------------------------------------

static mu_tensor *x, *b, *i, *ii, *rows, *one, *seed, *square, *pair, *eight, *image, *kernel, *pixel, *line, *volume,
    *truth, *one_long, *yes, *whole, *loss, *strings, *examples;
static mu_value *v, *list, *map, *sources, *variables, *name, *per_replica;
static mu_variable *w, *w2, *mirrored;
static mu_function *function;
static mu_tape *tape;
static mu_dataset *data, *batches, *pairs;
static mu_cluster_spec *spec;
static mu_cluster *cluster;
static mu_strategy *strategy, *served;
static mu_coordinator *coordinator;
static mu_worker_calls worker_calls;
static mu_coordinator_times times;
static mu_ps_recovery recovery;
static mu_read_cache_guard reads;
static bool flag;
static mu_cross_device_ops *ways;
static mu_model *model, *compiled;
static mu_metric *metric;
static mu_optimizer *optimizer;
static mu_learning_rate_schedule *schedule;
static mu_history *history;
static mu_checkpoint *checkpoint;
static mu_checkpoint_manager *manager;
static mu_tensor_file *file;
static mu_cancellation *cancellation;
static mu_accumulator *dense, *sparse;
static mu_embedding_table *table_of_rows;
static mu_partitioner *partitioner;
static mu_variable *sharded;
static mu_rpc_server *server;
static mu_rpc_client *client;
static mu_rpc_result *answered;
static mu_server *local_server;
static mu_loss *hinge;
static mu_tpu_topology *topology;
static mu_cluster *tpu;
static mu_strategy *on_tpu;
static mu_tpu_device_assignment *assignment;
static mu_tensor *out[8], *late;
#define LATE 1000000 // a step that no gradient is behind
static int64_t counts[MU_MAX_RANK];
static int place[MU_TPU_RANK];
static const int origin[MU_TPU_RANK];
static const int first_column;
static const char *const one_name[] = {"one"};
static const double one_weight[] = {1};
static const mu_feature age = {.name = "age", .dtype = MU_I64};
static const mu_feature ages = {.name = "ages", .dtype = MU_I64, .length = MU_FEATURE_VARIABLE};
static const mu_shape vector_of_two = {1, {2}};
static FILE *nowhere;
static int world;
static float floats[6] = {1, 2, 3, 4, 5, 6};
static char space[24], folder[64], path[100], saved[100];
static const int64_t two[] = {2}, two_three[] = {2, 3}, three_two[] = {3, 2}, zeros[] = {0, 0}, ones[] = {1, 1};
static const double half = .5;
static const int axes[] = {0}, swapped[] = {1, 0};
static const mu_dtype dtypes[] = {MU_F32};
static const mu_replica_pair itself[] = {{0, 0}};
static const mu_input_options options = {.size = sizeof options, .per_replica_buffer_size = 1};
static const mu_metric_state one_state[] = {{.name = "total"}};
static mu_call_context told_to_layers;
static mu_layer *dense_layer, *subclassed;
static mu_tensor *layer_tensor;
static const mu_communication_options communication = {.size = sizeof communication, .timeout_seconds = 5};

static void ignore(void *arg) { (void)arg; }
static mu_value *echo(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}
static mu_tensor *never(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_constant(MU_BOOL, 0);
}
static mu_value *step(mu_value *state, mu_value *element, void *arg)
{
    (void)element, (void)arg;
    return state;
}
static mu_value *back(mu_value *arguments, mu_value *results, mu_value *gradients, void *arg)
{
    (void)arguments, (void)results, (void)arg;
    return gradients;
}
static mu_value *nothing_next(void *state)
{
    (void)state;
    return NULL;
}
static bool always(mu_value *element, void *arg)
{
    (void)element, (void)arg;
    return true;
}
static mu_dataset *no_more(mu_value *element, void *arg)
{
    (void)element, (void)arg;
    return mu_dataset_range(0, 1, 1);
}
static mu_tensor *first_part(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg)
{
    (void)op, (void)n, (void)arg;
    return parts[0];
}
static mu_value *a_value(const mu_value_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_of(mu_constant(MU_F32, 1));
}
static mu_value *update(mu_variable *variable, mu_value *arguments, void *arg)
{
    (void)variable, (void)arg;
    return arguments;
}
static mu_value *merged(mu_strategy *s, mu_value *arguments, void *arg)
{
    (void)s, (void)arg;
    return arguments;
}
static mu_tensor *draw_ones(mu_dtype dtype, const mu_shape *shape, void *arg)
{
    (void)arg;
    return mu_ones(dtype, shape->rank, shape->dims);
}
static mu_tensor *weight_itself(mu_tensor *weight, void *arg)
{
    (void)arg;
    return weight;
}
static mu_dataset *input(const mu_input_context *context, void *arg)
{
    (void)context, (void)arg;
    return batches;
}
static int in_two(const mu_shape *shape, mu_dtype dtype, int64_t parts[MU_MAX_RANK], void *arg)
{
    (void)dtype, (void)arg;
    for (int axis = 0; axis < shape->rank; axis++)
        parts[axis] = axis == 0 ? 2 : 1;
    return shape->rank;
}
static mu_status no_kernel(const mu_array *in, const mu_array *result, void *arg)
{
    (void)in, (void)result, (void)arg;
    return MU_OK;
}
static mu_value *sum_of_first(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_reduce_sum(mu_at(arguments, 0), MU_ALL_AXES));
}

static mu_layer *layer_of_test(const char *config, void *arg)
{
    (void)config, (void)arg;
    return mu_flatten();
}

static mu_value *as_it_is(mu_layer *layer, mu_value *inputs, const mu_call_context *told, void *arg)
{
    (void)layer, (void)told, (void)arg;
    return inputs;
}
static double same_rate(int epoch, double rate, void *arg)
{
    (void)epoch, (void)arg;
    return rate;
}
static mu_tensor *own_loss(mu_tensor *y_true, mu_tensor *y_pred, void *arg)
{
    (void)y_true, (void)arg;
    return y_pred;
}
static mu_tensor *own_schedule(mu_tensor *step, void *arg)
{
    (void)arg;
    return step;
}
static mu_status own_update(mu_metric *m, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights, void *arg)
{
    (void)m, (void)y_true, (void)y_pred, (void)weights, (void)arg;
    return MU_OK;
}
static double own_result(const double *sums, void *arg)
{
    (void)arg;
    return sums[0];
}

static int64_t length(mu_value *element, void *arg)
{
    (void)element, (void)arg;
    return 1;
}
static bool keep_all(mu_value *element, void *arg)
{
    (void)element, (void)arg;
    return true;
}
static mu_value *carry(mu_value *state, mu_value *element, void *arg)
{
    (void)arg;
    return mu_list(state, element, MU_END);
}

static void close_scope(mu_scope_guard guard) { mu_scope_close(&guard); }
static void drop_dlpack(void *managed)
{
    if (managed)
        mu_from_dlpack(managed, false);
}
static void finish(mu_value *loop)
{
    while (loop && mu_each_next(loop)) {
    }
}

static void make_tensors(void)
{
    x = mu_tensor_new(MU_F32, 2, two_three, floats);
    b = mu_cast(x, MU_BOOL);
    i = mu_tensor_new(MU_I32, 1, two, (int32_t[]){0, 1});
    ii = mu_tensor_new(MU_I32, 2, (int64_t[]){2, 1}, (int32_t[]){0, 1});
    rows = ii;
    one = mu_constant(MU_F32, 1);
    seed = mu_tensor_new(MU_I64, 1, two, (int64_t[]){1, 2});
    square = mu_eye(MU_F32, 2, 2);
    pair = mu_vector_f32(2, floats);
    eight = mu_ones(MU_F32, 1, (int64_t[]){8});
    image = mu_ones(MU_F32, 4, (int64_t[]){1, 4, 4, 1});
    kernel = mu_ones(MU_F32, 4, (int64_t[]){2, 2, 1, 1});
    pixel = mu_ones(MU_F32, 4, (int64_t[]){1, 1, 1, 1});
    line = mu_ones(MU_F32, 3, (int64_t[]){1, 1, 1});
    volume = mu_ones(MU_F32, 5, (int64_t[]){1, 1, 1, 1, 1});
    truth = mu_ones(MU_BOOL, 2, (int64_t[]){2, 2});
    one_long = mu_ones(MU_F32, 1, (int64_t[]){1});
    yes = mu_constant(MU_BOOL, 1);
    whole = mu_constant(MU_I32, 0);
    v = mu_of(x);
    strings = mu_string_scalar("text");
    examples = mu_serialize_example(mu_map("age", mu_constant(MU_I64, 1), MU_END));
    list = mu_list(x, x, MU_END);
    map = mu_map("a", x, MU_END);
    name = mu_of(mu_tensor_new(MU_U8, 1, two, "ab"));
}

static mu_dataset *dataset_of_worker(void *arg)
{
    (void)arg;
    return data;
}

static mu_value *value_of_worker(void *arg)
{
    (void)arg;
    return mu_of(x);
}

static void make_objects(void)
{
    w = mu_variable_new(x, "w");
    w2 = mu_variable_new(x, "w2");
    variables = mu_variables(w, w2, MU_END);
    sources = mu_variables(w, MU_END);
    function = mu_function_new(sum_of_first, NULL);
    mu_function_call(function, v);
    data = mu_dataset_from_tensor_slices(v);
    batches = mu_dataset_batch(data, 1);
    pairs = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(x, i, MU_END)), 1);
    spec = mu_cluster_spec_parse("{\"worker\": [\"127.0.0.1:1\"]}");
    cluster = mu_simple_cluster_resolver(spec, .task_type = "worker");
    strategy = mu_mirrored_strategy(.replicas = 2);
    served = mu_parameter_server_strategy(
        mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"worker\": [\"a:1\"], \"ps\": [\"b:1\"]}")),
        .in_process = true);
    coordinator = mu_coordinator_new(served);
    ways = mu_reduction_to_one_device();
    per_replica = mu_distribute_values(strategy, a_value, NULL);
    MU_SCOPE(strategy)
        mirrored = mu_variable_new(x, "mirrored");
    model = mu_sequential(mu_dense(1));
    mu_model_build(model, 1, (int64_t[]){3});
    subclassed = mu_model_subclass("mine", .call = as_it_is);
    mu_layer_set_attribute(subclassed, "flat", mu_flatten());
    dense_layer = mu_dense(1);
    mu_call(dense_layer, x);
    layer_tensor = mu_input({3});
    compiled = mu_sequential(mu_dense(2));
    metric = mu_accuracy();
    hinge = mu_hinge_loss();
    optimizer = mu_sgd();
    schedule = mu_exponential_decay(.5, 9, .5);
    mu_compile(compiled, .optimizer = mu_sgd(), .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    history = mu_fit(compiled, pairs, .verbose = MU_VERBOSE_SILENT);
    checkpoint = mu_checkpoint_new(.model = model);
    manager = mu_checkpoint_manager_new(checkpoint, folder);
    mu_save_tensors(saved, map);
    file = mu_tensor_file_open(saved);
    cancellation = mu_cancellation_new();
    dense = mu_conditional_accumulator(MU_F32);
    table_of_rows = mu_embedding_table_new(2, .name = "rows");
    sparse = mu_sparse_conditional_accumulator(MU_F32);
    mu_conditional_accumulator(MU_F32, .shared_name = "found");
    late = mu_tensor_new(MU_I64, 0, NULL, (int64_t[]){LATE});
    partitioner = mu_fixed_shards_partitioner(2);
    sharded = mu_sharded_variable_new(x, "sharded", .partitioner = partitioner);
    topology = mu_tpu_topology_new({1, 1, 1, 1}, 1, 1, origin, 4);
    assignment = mu_tpu_device_assignment_build(topology);
    server = mu_rpc_server_new("muster", "localhost:0");
    mu_rpc_server_register(server, "echo", .fn = echo);
    mu_rpc_server_start(server);
    client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
    answered = mu_rpc_call(client, "echo", v);
    local_server = mu_server_create_local_server(true);
    tpu = mu_tpu_cluster_resolver("");
    mu_tpu_initialize(tpu);
    on_tpu = mu_tpu_strategy(tpu);
    tape = mu_tape_open();
    loss = mu_reduce_sum(mu_variable_read(w), MU_ALL_AXES);
}

// ---- The table ----------------------------------------------------------------------------------

enum { NONE_MISSING = -1, ALL_MISSING = -2 };
#define P(number, argument) (missing == (number) || missing == ALL_MISSING ? NULL : (argument))
#define O(number, argument) (may_be_null(&optional, number), P(number, argument))

static void may_be_null(unsigned *optional, int number) { *optional |= 1u << number; }

typedef enum kind { WORKS, FAILS, ANSWERS } kind;

// A query's answer as a number.
static double of_number(double answer) { return answer; }
static double of_pointer(const void *answer) { return (double)(uintptr_t)answer; }
static double of_text(const char *answer)
{
    double number = answer ? 1 : -1;
    for (; answer && *answer; answer++)
        number = number * 31 + (unsigned char)*answer;
    return number;
}
static double of_string(mu_string answer) { return (double)answer.n; }
static double of_shape(mu_shape answer)
{
    double number = answer.rank;
    for (int axis = 0; axis < answer.rank; axis++)
        number = number * 31 + (double)answer.dims[axis];
    return number;
}
#define ANSWER(call) \
    _Generic((call), bool: of_number, int: of_number, unsigned: of_number, int64_t: of_number,                 \
             uint64_t: of_number, double: of_number, char *: of_text, const char *: of_text,                   \
             mu_string: of_string, mu_shape: of_shape, default: of_pointer)(call)
#define ASKED(name, call)                 \
    static double answer_##name(void)     \
    {                                     \
        const int missing = NONE_MISSING; \
        unsigned optional = 0;            \
        (void)missing, (void)optional;    \
        return ANSWER(call);              \
    }

#define ROW(name, n, call)                   \
    static unsigned call_##name(int missing) \
    {                                        \
        unsigned optional = 0;               \
        (void)missing;                       \
        (void)(call);                        \
        return optional;                     \
    }
#define BAD ROW
#define ANY ROW
#define ASK(name, n, call) \
    ROW(name, n, call)     \
    ASKED(name, call)
#define QUERY ASK
#include "null_objects.def"
#include "null_servers.def"
#include "null_layers.def"
#include "null_losses.def"
#include "null_ops.def"
#include "null_rpc.def"
#undef ROW
#undef BAD
#undef ANY
#undef ASK
#undef QUERY

#define LINE(name, n, kind, answer) {#name, n, kind, call_##name, answer},
#define ROW(name, n, call)          LINE(name, n, WORKS, NULL)
#define BAD(name, n, call)          LINE(name, n, FAILS, NULL)
#define ANY(name, n, call)          LINE(name, n, ANSWERS, NULL)
#define ASK(name, n, call)          LINE(name, n, WORKS, answer_##name)
#define QUERY(name, n, call)        LINE(name, n, ANSWERS, answer_##name)
static const struct row {
    const char *name;
    int arguments;
    kind kind;
    unsigned (*call)(int missing);
    double (*answer)(void); // of a query
} table[] = {
#include "null_objects.def"
#include "null_servers.def"
#include "null_layers.def"
#include "null_losses.def"
#include "null_ops.def"
#include "null_rpc.def"
};
#define TABLE_ROWS ((int)(sizeof table / sizeof table[0]))

// ---- Running it in processes of its own ---------------------------------------------------------

// How far the child has come, for the parent to read after the child's death.
static volatile struct progress {
    int row, missing, failures;
    bool begun;
} * progress;

static void complain(const struct row *row, int missing, const char *what)
{
    printf("%s, argument %d NULL (-1: none, -2: all): %s\n", row->name, missing, what);
    fflush(stdout);
    progress->failures++;
}

typedef void try_row(const struct row *row);

static void in_child(try_row *try, void (*before)(void), void (*after)(void))
{
    // cmocka's signal handlers would continue with its other tests here.
    const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};
    for (size_t n = 0; n < sizeof signals / sizeof signals[0]; n++)
        signal(signals[n], SIG_DFL);
    if (before)
        before();
    progress->begun = true;
    while (progress->row < TABLE_ROWS) {
        alarm(60);
        try(&table[progress->row]);
        progress->row++;
    }
    if (after)
        after();
    fflush(stdout);
    _exit(0);
}

// Runs the whole table, with a new child after each crash.
static void whole_table(try_row *try, void (*before)(void), void (*after)(void))
{
    progress->row = progress->failures = 0;
    while (progress->row < TABLE_ROWS) {
        progress->begun = false;
        fflush(stdout);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            in_child(try, before, after);
        int status = 0;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(progress->begun);
        if (progress->row == TABLE_ROWS || WIFEXITED(status)) {
            assert_int_equal(status, 0);
            continue;
        }
        complain(&table[progress->row], progress->missing, strsignal(WTERMSIG(status)));
        progress->row++;
    }
    assert_int_equal(progress->failures, 0);
}

static void make_world(void)
{
    if (!freopen("/dev/null", "w", stderr))
        abort();
    mu_init(.cpu_devices = 2, .threads = 2, .seed = 1, .log = "error");
    nowhere = fopen("/dev/null", "w");
    make_tensors();
    make_objects();
    if (mu_error_code() != MU_OK) {
        printf("the world cannot be made: %s\n", mu_error_message());
        fflush(stdout);
        _exit(1);
    }
}

static void end_world(void)
{
    fclose(nowhere);
    mu_exit(true);
}

// ---- Ways to call a row -------------------------------------------------------------------------

static void each_argument_missing(const struct row *row)
{
    for (int missing = NONE_MISSING; missing < row->arguments; missing++) {
        progress->missing = missing;
        mu_pool *pool = mu_pool_open();
        const unsigned optional = row->call(missing);
        const mu_error error = mu_error_take();
        const bool bad = missing < 0 ? row->kind == FAILS : row->kind != ANSWERS && !(optional >> missing & 1);
        const bool open = row->kind == ANSWERS || (missing >= 0 && optional >> missing & 1);
        if (bad && error.code == MU_OK)
            complain(row, missing, "no error");
        if (!bad && !open && error.code != MU_OK)
            complain(row, missing, error.message);
        if (error.code == MU_INTERNAL || error.code == MU_UNKNOWN_ERROR)
            complain(row, missing, error.message);
        mu_pool_close(pool);
    }
}

// A query answers as without the error: what base.h promises.
static void ask(const struct row *row)
{
    const double before = row->answer();
    mu_error_take();
    mu_fail(MU_DATA_LOSS, "the first error");
    const double answer = row->answer();
    mu_error_take();
    if (answer != before && !(isnan(answer) && isnan(before)))
        complain(row, NONE_MISSING, "a query that answers otherwise with an error pending");
}

static void with_an_error_pending(const struct row *row)
{
    if (strcmp(row->name, "mu_error_take") == 0)
        return;
    if (row->answer)
        ask(row);
    for (int missing = ALL_MISSING; missing <= NONE_MISSING; missing++) {
        progress->missing = missing;
        mu_pool *pool = mu_pool_open();
        mu_fail(MU_DATA_LOSS, "the first error");
        row->call(missing);
        const mu_error error = mu_error_take();
        if (error.code != MU_DATA_LOSS || strncmp(error.message, "the first error", 15) != 0)
            complain(row, missing, "the pending error did not stay");
        mu_pool_close(pool);
    }
}

static void all_missing(const struct row *row)
{
    progress->missing = ALL_MISSING;
    row->call(ALL_MISSING);
    mu_error_take();
}

static void *on_this_thread(void *arg)
{
    const struct row *row = arg;
    progress->missing = NONE_MISSING;
    row->call(NONE_MISSING);
    mu_error_take();
    all_missing(row);
    return NULL;
}

static void on_a_thread(const struct row *row)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, on_this_thread, (void *)(uintptr_t)row) != 0 || pthread_join(thread, NULL) != 0)
        abort();
}

// ---- Tests --------------------------------------------------------------------------------------

static void an_argument_is_null(void **state)
{
    (void)state;
    whole_table(each_argument_missing, make_world, end_world);
}

static void an_error_is_pending(void **state)
{
    (void)state;
    whole_table(with_an_error_pending, make_world, end_world);
}

static void before_the_start(void **state)
{
    (void)state;
    whole_table(all_missing, NULL, NULL);
}

static void begin_and_end(void)
{
    if (mu_init(.cpu_devices = 1) != MU_OK || mu_exit(true) != 0)
        abort();
}

static void after_the_end(void **state)
{
    (void)state;
    whole_table(all_missing, begin_and_end, NULL);
}

static void on_another_thread(void **state)
{
    (void)state;
    whole_table(on_a_thread, make_world, end_world);
}

static void start_and_end_by_themselves(void **state)
{
    (void)state;
    assert_int_equal(mu_init_with(NULL), MU_OK);
    assert_int_not_equal(mu_init_with(NULL), MU_OK);
    assert_taken(MU_FAILED_PRECONDITION, "mu_init");
    assert_int_equal(mu_exit(true), 0);
    mu_exit(true);
}

static int start(void **state)
{
    progress = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(folder, sizeof folder, "%s", temporary_folder());
    snprintf(path, sizeof path, "%s/written", folder);
    snprintf(saved, sizeof saved, "%s/saved.safetensors", folder);
    return progress == MAP_FAILED || scratch_enter(state) != 0; // some rows write files in the working directory
}

static int end(void **state)
{
    remove_folder(folder);
    return scratch_leave(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_argument_is_null), cmocka_unit_test(an_error_is_pending),
        cmocka_unit_test(before_the_start),    cmocka_unit_test(after_the_end),
        cmocka_unit_test(on_another_thread),   cmocka_unit_test(start_and_end_by_themselves),
    };
    return cmocka_run_group_tests(tests, start, end);
}
