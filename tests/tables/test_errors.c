// Provokes the errors that the headers document: each call of errors.def gives the code that its header names, returns
// the value that stands for failure, and records a message. scripts/check_errors compares the table with the headers.
//   ROW(function, CODE, call)
#include <muster.h>

#include "../unit/base/base_test.h"

#include <math.h>

// ---- What the rows use --------------------------------------------------------------------------

static mu_tensor *x, *text, *symbolic, *out[2]; // x: float32 [2, 3]
static mu_value *map;
static mu_variable *w, *total;
static mu_function *function, *fails;
static mu_dataset *rows, *pairs;
static mu_model *model, *unbuilt;
static mu_layer *own;
static mu_checkpoint *checkpoint;
static mu_strategy *two, *central, *served;
static mu_cluster_spec *spec;
static mu_tpu_topology *topology;
static mu_tpu_device_assignment *assignment;
static mu_coordinator *coordinator;
static mu_worker_calls calls;
static mu_coordinator_times times;
static mu_accumulator *accumulator, *closed;
static mu_rpc_server *server;
static mu_rpc_client *client;
static float floats[6] = {1, 2, 3, 4, 5, 6};
static const int64_t dims[MU_MAX_RANK + 1] = {3, 1, 1, 1, 1, 1, 1, 1, 1};
static const int beyond[MU_TPU_RANK] = {9}, missing[MU_TPU_RANK] = {1}, origin[MU_TPU_RANK];
static const mu_feature age = {.name = "age", .dtype = MU_I64};
static const char *folder;
static char notes[120];

static const char *path(const char *name)
{
    static char made[120];
    snprintf(made, sizeof made, "%s/%s", folder, name);
    return made;
}

static mu_value *first(mu_dataset *dataset) { return mu_next(mu_iterate(dataset)); }

static mu_value *same(mu_value *arguments, void *arg)
{
    (void)arg;
    return arguments;
}

static mu_value *adds_up(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign_add(total, mu_reduce_sum(mu_value_tensor(arguments)));
    return arguments;
}

static mu_value *saves(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_checkpoint_save(checkpoint, path("saved"));
    return NULL;
}

static mu_status fills(const mu_array *in, const mu_array *made, void *arg)
{
    (void)arg;
    memcpy(made->data, in->data, sizeof floats);
    return MU_OK;
}

static mu_value *answers(mu_value *arguments, void *arg) { return same(arguments, arg); }

static mu_value *refuses(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    mu_fail(MU_INVALID_ARGUMENT, "a step that fails");
    return NULL;
}

static mu_value *ends(void *state)
{
    (void)state;
    return NULL;
}

static mu_value *merge(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arg;
    return arguments;
}

static mu_value *calls_itself(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)layer, (void)context, (void)arg;
    return inputs;
}

static mu_layer *layer_of_test(const char *config, void *arg)
{
    (void)config, (void)arg;
    return mu_flatten();
}

static mu_pool *closed_pool(void)
{
    mu_pool *pool = mu_pool_open();
    mu_pool_close(pool);
    return pool;
}

static mu_value *makes_variable(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_variable_new(mu_constant(MU_F32, 1)) ? arguments : NULL;
}

static mu_value *makes_variables_twice(void)
{
    mu_function *maker = mu_function_new(makes_variable, NULL);
    return mu_function_call(maker, mu_of(x)) ? mu_function_call(maker, mu_of(mu_constant(MU_I32, 1))) : mu_of(x);
}

static mu_value *gradient_of_custom_op(void)
{
    mu_register_op("flat", 1, 1, .kernel = fills);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_variable_read(w);
    mu_value *gradients = mu_gradients(tape, mu_reduce_sum(mu_call_op1("flat", 1, &y)), mu_variables(w, MU_END));
    mu_tape_close(tape);
    return gradients;
}

static mu_value *two_gradients(mu_value *arguments, mu_value *results, mu_value *gradients, void *arg)
{
    (void)arguments, (void)results, (void)arg;
    return mu_list(mu_at(gradients, 0), mu_at(gradients, 0), MU_END);
}

static mu_value *gradient_of_two_for_one(void)
{
    mu_tape *tape = mu_tape_open();
    mu_value *y = mu_custom_gradient(same, two_gradients, mu_of(mu_variable_read(w)), NULL);
    mu_value *gradients = mu_gradients(tape, mu_reduce_sum(mu_value_tensor(y)), mu_variables(w, MU_END));
    mu_tape_close(tape);
    return gradients;
}

static mu_checkpoint_manager *damaged_checkpoints(void)
{
    mu_checkpoint_manager *manager = mu_checkpoint_manager_new(checkpoint, folder, .name = "damaged");
    FILE *file = fopen(path("damaged-1.safetensors"), "w");
    fputs("no checkpoint", file);
    fclose(file);
    return manager;
}

static mu_status restore_used_iterator(void)
{
    mu_iterator *iterator = mu_iterate(rows);
    mu_next(iterator);
    return mu_iterator_restore(iterator, mu_iterator_state(iterator));
}

static mu_tfrecord_writer *closed_writer(void)
{
    mu_tfrecord_writer *writer = mu_tfrecord_writer_new(path("records"));
    mu_tfrecord_writer_close(writer);
    return writer;
}

static mu_tensor_file *saved_tensors(void)
{
    mu_save_tensors(path("a.safetensors"), map);
    return mu_tensor_file_open(path("a.safetensors"));
}

static mu_tensor *nothing_finite(void) { return mu_fill(MU_F32, 2, (const int64_t[]){2, 3}, NAN); }

static mu_value *slices(void)
{
    return mu_indexed_slices(x, mu_tensor_new(MU_I64, 1, (const int64_t[]){2}, (const int64_t[]){4, 7}), 2,
                             (const int64_t[]){9, 3});
}

// ---- In the scope of a strategy, and not on its replicas ----------------------------------------

static bool in_scope(bool (*fails_there)(void))
{
    bool failed = false;
    MU_SCOPE(two)
        failed = fails_there();
    return failed;
}

static bool opens_another_scope(void)
{
    mu_scope_guard guard = mu_scope_open(mu_one_device_strategy("CPU:0"));
    const bool failed = !guard.scope;
    mu_scope_close(&guard);
    return !failed;
}

static bool sets_strategy(void) { return mu_set_strategy(two) == MU_OK; }
static bool asks_for_its_id(void) { return mu_replica_id() != NULL; }
static bool merges(void) { return mu_merge_call(merge, NULL, NULL) != NULL; }
static bool reduces(void) { return mu_all_reduce(MU_SUM, x) != NULL; }
static bool gathers(void) { return mu_all_gather(x, 0) != NULL; }
static bool scatters(void) { return mu_reduce_scatter(MU_SUM, x, 0) != NULL; }

// ---- Objects ------------------------------------------------------------------------------------

static void write_notes(void)
{
    snprintf(notes, sizeof notes, "%s", path("notes.txt"));
    FILE *file = fopen(notes, "w");
    assert_non_null(file);
    fputs("these are some notes, which are no data\n", file);
    fclose(file);
}

static void make_models(void)
{
    model = mu_sequential(mu_dense(1));
    mu_model_build(model, 1, (const int64_t[]){3});
    mu_compile(model, .optimizer = "sgd", .loss = "mse");
    unbuilt = mu_sequential(mu_dense(1));
    own = mu_layer_new("mine", .call = calls_itself, .arg = &own);
    checkpoint = mu_checkpoint_new(.model = model);
}

static void make_servers(void)
{
    served = mu_parameter_server_strategy(
        mu_simple_cluster_resolver(mu_cluster_spec_parse("{\"worker\": [\"a:1\"], \"ps\": [\"b:1\"]}")),
        .in_process = true);
    coordinator = mu_coordinator_new(served);
    server = mu_rpc_server_new("muster", "localhost:0");
    mu_rpc_server_register(server, "answers", .fn = answers);
    mu_rpc_server_start(server);
    client = mu_rpc_client_new("muster", mu_rpc_server_address(server));
}

static int set_up(void **state)
{
    (void)state;
    assert_int_equal(mu_init(.cpu_devices = 2, .log = "error"), MU_OK);
    folder = temporary_folder();
    write_notes();
    x = mu_tensor_new(MU_F32, 2, (const int64_t[]){2, 3}, floats);
    text = mu_string_scalar("some text");
    map = mu_map("a", x, MU_END);
    w = mu_variable_new(x, "w");
    total = mu_variable_new(mu_constant(MU_F32, 0), "total");
    function = mu_function_new(same, NULL);
    fails = mu_function_new(refuses, NULL);
    rows = mu_dataset_from_tensor_slices(mu_of(x));
    pairs = mu_dataset_batch(mu_dataset_from_tensor_slices(
                                 mu_list(x, mu_slice(x, (const int64_t[]){0, 0}, (const int64_t[]){2, 1}), MU_END)),
                             1);
    symbolic = mu_value_tensor(mu_dataset_element_spec(rows));
    make_models();
    two = mu_mirrored_strategy(.replicas = 2);
    central = mu_central_storage_strategy(.replicas = 2);
    spec = mu_cluster_spec_parse("{\"worker\": [\"a:1\"]}");
    topology = mu_tpu_topology_new({2, 1, 1, 1}, 1, 1, origin, 4);
    assignment = mu_tpu_device_assignment_build(topology);
    accumulator = mu_conditional_accumulator(MU_F32);
    closed = mu_conditional_accumulator(MU_F32);
    make_servers();
    assert_no_error();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_int_equal(mu_exit(true), 0);
    assert_int_equal(mu__live_objects(NULL), 0);
    remove_folder(folder);
    return 0;
}

// ---- The table ----------------------------------------------------------------------------------

static bool is_null(const void *object) { return object == NULL; }
static bool is_error(mu_status status) { return status != MU_OK; }
static bool is_minus_one(int64_t number) { return number == -1; }
static bool is_nan(double number) { return isnan(number); }
static bool is_false(bool answer) { return !answer; }
#define FAILED(call)                 \
    _Generic((call), mu_status       \
             : is_error, int         \
             : is_minus_one, int64_t \
             : is_minus_one, double  \
             : is_nan, bool          \
             : is_false, default     \
             : is_null)(call)

#define ROW(function, code, ...) \
    static bool function##_##code(void) { return FAILED((__VA_ARGS__)); }
#include "errors.def"
#undef ROW

static const struct row {
    const char *name;
    mu_status code;
    bool (*has_failed)(void);
} table[] = {
#define ROW(function, code, ...) {#function ": " #code, MU_##code, function##_##code},
#include "errors.def"
};

static void calls_give_the_codes_of_their_headers(void **state)
{
    (void)state;
    int n_wrong = 0;
    for (size_t i = 0; i < MU_COUNT(table); i++) {
        mu_pool *pool = mu_pool_open();
        const bool failed = table[i].has_failed();
        const mu_error error = mu_error_take();
        if (failed && error.code == table[i].code && strlen(error.message) > 10) {
            mu_pool_close(pool);
            continue;
        }
        n_wrong++;
        print_error("%s: %s, %s \"%s\"\n", table[i].name, failed ? "failed" : "did not return what stands for failure",
                    mu_status_name(error.code), error.message);
        mu_pool_close(pool);
    }
    assert_int_equal(n_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_give_the_codes_of_their_headers, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
