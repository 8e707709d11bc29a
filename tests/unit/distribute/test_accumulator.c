// Accumulators beyond the numbered cases: traced functions, waits that end early, shared names, hostile graphs, merges
// of rows, threads that apply and take at once, and no memory.
#include "../base/base_test.h"
#include "distribute_test.h"

#include "ops/state/accumulator.h"

#include <muster/accumulator.h>
#include <pthread.h>
#include <sched.h>

static mu_tensor *longs(int n, const int64_t *values) { return mu_tensor_new(MU_I64, 1, (int64_t[]){n}, values); }
#define LONGS(...) longs((int)MU_COUNT(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__})

static mu_tensor *scalar(double value) { return mu_constant(MU_F64, value); }

static void apply(mu_accumulator *a, double value, int64_t step)
{
    assert_int_equal(mu_accumulator_apply_grad(a, scalar(value), step), MU_OK);
}

static int waiting(mu_accumulator *a)
{
    pthread_mutex_lock(&a->lock);
    const int n = a->n_waiting;
    pthread_mutex_unlock(&a->lock);
    return n;
}

// ---- Traced functions ---------------------------------------------------------------------------

// Applies its argument and twice its argument with the step given, then takes both.
static mu_value *apply_and_take(mu_value *arguments, void *arg)
{
    mu_accumulator *a = arg;
    mu_tensor *x = mu_at(arguments, 0), *step = mu_at(arguments, 1);
    mu_resource_accumulator_apply_gradient(a, step, x);
    mu_resource_accumulator_apply_gradient(a, step, mu_add(x, x));
    mu_tensor *n = mu_accumulator_num_accumulated(a);
    mu_tensor *taken = mu_accumulator_take_grad(a, 2);
    return mu_list(n, mu_multiply(taken, taken), mu_accumulator_num_accumulated(a), MU_END);
}

static mu_value *call(mu_function *function, mu_tensor *x, int64_t step)
{
    return mu_function_call(function, mu_list(x, mu_tensor_new(MU_I64, 0, NULL, &step), MU_END));
}

static void test_traced(void **state)
{
    (void)state;
    const mu_shape shapes[] = {{1, {3}}, {1, {MU_UNKNOWN}}};
    for (int i = 0; i < 2; i++) {
        mu_accumulator *a = mu_conditional_accumulator(MU_F64, .shape = &shapes[i]);
        mu_function *function = mu_function_new(apply_and_take, a);
        for (int64_t step = 0; step < 3; step++) {
            mu_value *result = call(function, vector(3, (double[]){2, 4, 6}), step);
            if (!result)
                fail_msg("%s", mu_error_message());
            assert_true(mu_scalar(mu_value_at(result, 0)) == 2 && mu_scalar(mu_value_at(result, 2)) == 0);
            const double *squares = mu_tensor_data(mu_at(result, 1));
            assert_true(squares[0] == 9 && squares[1] == 36 && squares[2] == 81);
        }
        assert_int_equal(mu_function_trace_count(function), 1);
    }
}

static mu_value *take_rows(mu_value *arguments, void *arg)
{
    mu_sparse_accumulator_apply_grad(arg, mu_at(arguments, 0), mu_at(arguments, 1), NULL, 0);
    return mu_sparse_accumulator_take_grad(arg, 1);
}

static void test_traced_sparse(void **state)
{
    (void)state;
    mu_accumulator *a =
        mu_sparse_conditional_accumulator(MU_F64, .shape = &(mu_shape){2, {5, MU_UNKNOWN}}, .reduction_type = "SUM");
    mu_function *function = mu_function_new(take_rows, a);
    mu_value *taken = mu_function_call(function, mu_list(LONGS(1, 4), numbers(2, (int64_t[]){2, 3}, 1), MU_END));
    if (!taken)
        fail_msg("%s", mu_error_message());
    const int64_t *indices = mu_tensor_data(mu_at(taken, 0)), *shape = mu_tensor_data(mu_at(taken, 2));
    assert_true(indices[0] == 1 && indices[1] == 4 && shape[0] == 5 && shape[1] == 3);
    mu_tensor *given = numbers(2, (int64_t[]){2, 3}, 1);
    assert_memory_equal(mu_tensor_data(mu_at(taken, 1)), mu_tensor_data(given), 6 * sizeof(double));
}

static mu_value *take_only(mu_value *arguments, void *arg)
{
    (void)arguments;
    return mu_of(mu_accumulator_take_grad(arg, 1));
}

static mu_value *apply_argument(mu_value *arguments, void *arg)
{
    return mu_accumulator_apply_grad(arg, mu_at(arguments, 0), 0) == MU_OK ? mu_list(MU_END, NULL) : NULL;
}

static void test_traces_refuse(void **state)
{
    (void)state;
    mu_accumulator *any = mu_conditional_accumulator(MU_F64);
    assert_null(mu_function_call(mu_function_new(take_only, any), NULL));
    assert_taken(MU_INVALID_ARGUMENT, "made without a shape");
    mu_accumulator *three = mu_conditional_accumulator(MU_F64, .shape = &(mu_shape){2, {3, 3}});
    // A shape that is known to be wrong is refused when the function is traced, also for a step that would be stale.
    mu_accumulator_set_global_step(three, 7);
    assert_null(mu_function_call(mu_function_new(apply_argument, three), mu_list(vector(3, (double[3]){0}), MU_END)));
    assert_taken(MU_INVALID_ARGUMENT, "was made with [3, 3]");
    // A rank that no gradient has is noticed when the take is served; the gradients are kept.
    mu_accumulator *sparse = mu_sparse_conditional_accumulator(MU_F64, .shape = &(mu_shape){1, {9}});
    assert_null(mu_function_call(mu_function_new(take_rows, sparse),
                                 mu_list(LONGS(0), numbers(2, (int64_t[]){1, 2}, 1), MU_END)));
    assert_taken(MU_INVALID_ARGUMENT, "the traced function takes [?]");
    assert_true(mu_scalar(mu_accumulator_num_accumulated(sparse)) == 1);
}

// ---- Waits that end -----------------------------------------------------------------------------

typedef struct taker {
    pthread_t thread;
    atomic_bool ended;
    mu_accumulator *accumulator;
    mu_function *function; // the take in it, or NULL
    mu_cancellation *cancellation;
    int required;
    double value;
    mu_error_value error;
} taker;

static void *take_main(void *argument)
{
    taker *t = argument;
    mu_pool *pool = mu_pool_open();
    mu_cancellation_use(t->cancellation);
    mu_value *result = t->function ? mu_function_call(t->function, NULL)
                                   : mu_of(mu_accumulator_take_grad(t->accumulator, t->required));
    t->value = result ? mu_scalar(result) : NAN;
    mu__error_move(&t->error);
    atomic_store(&t->ended, true);
    mu_cancellation_use(NULL);
    mu_pool_close(pool);
    return NULL;
}

// A take that is refused at once does not wait.
static void start_take(taker *t)
{
    const int before = waiting(t->accumulator);
    assert_int_equal(pthread_create(&t->thread, NULL, take_main, t), 0);
    while (waiting(t->accumulator) == before && !atomic_load(&t->ended))
        sched_yield();
}

static void test_cancelled_takes(void **state)
{
    (void)state;
    for (int traced = 0; traced < 2; traced++) {
        mu_accumulator *a = mu_conditional_accumulator(MU_F64, .shape = &(mu_shape){0}, .name = "sums");
        taker t = {.accumulator = a,
                   .required = 1,
                   .cancellation = mu_cancellation_new(),
                   .function = traced ? mu_function_new(take_only, a) : NULL};
        start_take(&t);
        assert_int_equal(mu_cancellation_cancel(t.cancellation), MU_OK);
        pthread_join(t.thread, NULL);
        assert_int_equal(t.error.code, MU_CANCELLED);
        assert_non_null(strstr(t.error.message, "TakeGrad operation was cancelled: accumulator 'sums'"));
        // Cancelled before it begins: the same error, and the queue is empty.
        mu_cancellation_use(t.cancellation);
        assert_null(mu_accumulator_take_grad(a, 1));
        assert_taken(MU_CANCELLED, "cancelled");
        mu_cancellation_use(NULL);
        apply(a, 3, 0);
        assert_true(mu_scalar(mu_accumulator_take_grad(a, 1)) == 3);
    }
}

static void test_deadline(void **state)
{
    (void)state;
    mu_accumulator *a = mu_conditional_accumulator(MU_F64, .name = "slow");
    apply(a, 1, 0);
    assert_null(mu_accumulator_take_grad(a, 2, .timeout_seconds = 0.05));
    assert_taken(MU_DEADLINE_EXCEEDED, "accumulator 'slow' has 1 of the 2 gradients");
    assert_null(mu_accumulator_take_grad(a, 2, .timeout_seconds = -1));
    assert_taken(MU_INVALID_ARGUMENT, "must be positive");
    assert_true(mu_scalar(mu_accumulator_take_grad(a, 1)) == 1);
}

static void test_closed(void **state)
{
    (void)state;
    mu_accumulator *a = mu_conditional_accumulator(MU_F64, .shared_name = "ends");
    assert_int_equal(mu_accumulator_close(a), MU_OK);
    assert_int_equal(mu_accumulator_apply_grad(a, scalar(1), 0), MU_CANCELLED);
    assert_taken(MU_CANCELLED, "'ends' is closed");
    assert_null(mu_accumulator_num_accumulated(a));
    assert_taken(MU_CANCELLED, "closed");
    assert_int_equal(mu_accumulator_close(a), MU_OK);
    mu_accumulator *again = mu_conditional_accumulator(MU_F64, .shared_name = "ends");
    assert_ptr_not_equal(again, a);
    apply(again, 1, 0);
}

// ---- Names and kinds ----------------------------------------------------------------------------

static void test_shared_names(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_accumulator *a = mu_conditional_accumulator(MU_F64, .shared_name = "both");
    apply(a, 5, 0);
    mu_pool_close(pool); // the runtime keeps it
    a = mu_accumulator_find("both");
    assert_non_null(a);
    assert_ptr_equal(mu_conditional_accumulator(MU_F64, .shared_name = "both", .name = "other"), a);
    assert_true(mu_scalar(mu_accumulator_take_grad(a, 1)) == 5);
    assert_null(mu_conditional_accumulator(MU_F32, .shared_name = "both"));
    assert_taken(MU_INVALID_ARGUMENT, "another type");
    assert_null(mu_sparse_conditional_accumulator(MU_F64, .shared_name = "both"));
    assert_taken(MU_INVALID_ARGUMENT, "kind");
    assert_null(mu_conditional_accumulator(MU_F64, .shared_name = "both", .shape = &(mu_shape){1, {2}}));
    assert_taken(MU_INVALID_ARGUMENT, "shape");
    assert_null(mu_accumulator_find("neither"));
    assert_taken(MU_NOT_FOUND, "neither");
    assert_ptr_not_equal(mu_conditional_accumulator(MU_F64, .name = "n"),
                         mu_conditional_accumulator(MU_F64, .name = "n"));
}

static void test_types(void **state)
{
    (void)state;
    mu_accumulator *a = mu_conditional_accumulator(MU_F64), *s = mu_sparse_conditional_accumulator(MU_F64);
    assert_int_equal(mu_accumulator_apply_grad(a, mu_constant(MU_F32, 1), 0), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "cast the gradient");
    assert_int_equal(mu_accumulator_apply_grad(s, scalar(1), 0), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "mu_sparse_accumulator");
    assert_null(mu_sparse_accumulator_take_grad(a, 1));
    assert_taken(MU_INVALID_ARGUMENT, "holds dense gradients");
    assert_null(mu_resource_accumulator_take_gradient(a, mu_constant(MU_I32, 1), MU_F32));
    assert_taken(MU_INVALID_ARGUMENT, "asks for float32");
    assert_int_equal(mu_resource_accumulator_apply_gradient(a, LONGS(0), scalar(1)), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "local_step is int64[1]");
    assert_null(mu_conditional_accumulator(MU_I32));
    assert_taken(MU_INVALID_ARGUMENT, "int32");
    assert_null(mu_conditional_accumulator(MU_DTYPE_DEFAULT));
    assert_taken(MU_INVALID_ARGUMENT, "not given");
}

// A stale gradient is dropped whatever its shape, and is not counted.
static void test_stale(void **state)
{
    (void)state;
    mu_accumulator *a = mu_conditional_accumulator(MU_F64, .shape = &(mu_shape){1, {2}});
    assert_int_equal(mu_accumulator_set_global_step(a, 2), MU_OK);
    assert_int_equal(mu_accumulator_apply_grad(a, scalar(1), 1), MU_OK);
    assert_true(mu_scalar(mu_accumulator_num_accumulated(a)) == 0);
    assert_int_equal(mu_accumulator_apply_grad(a, scalar(1), 2), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "[2]");
    assert_int_equal(mu_accumulator_set_global_step(a, INT64_MAX), MU_OK);
    assert_int_equal(mu_accumulator_apply_grad(a, vector(2, (double[]){1, 2}), INT64_MAX), MU_OK);
    assert_non_null(mu_accumulator_take_grad(a, 1)); // the step stays at its largest
    assert_int_equal(mu_accumulator_apply_grad(a, vector(2, (double[]){1, 2}), INT64_MAX), MU_OK);
    assert_true(mu_scalar(mu_accumulator_num_accumulated(a)) == 1);
}

// ---- Graphs from elsewhere ----------------------------------------------------------------------

// Ops of variables do not accept accumulators, and ops of one kind of accumulator do not accept the other kind.
static void test_ops_keep_to_their_kind(void **state)
{
    (void)state;
    mu_accumulator *a = mu_conditional_accumulator(MU_F64, .name = "dense"),
                   *s = mu_sparse_conditional_accumulator(MU_F64);
    mu_variable *v = mu_variable_new(scalar(1), "v");
    mu_resource *dense = &a->resource, *sparse = &s->resource, *variable = &v->resource;
    mu_tensor *out = NULL, *one = mu_tensor_new(MU_I64, 0, NULL, (int64_t[]){1});
    assert_int_equal(mu__apply(&mu_op_read_variable, NULL, 0, NULL, 1, &dense, &out), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "'dense' is a conditional_accumulator; this op works on a variable");
    const mu_op *step = &mu_op_resource_accumulator_set_global_step;
    assert_int_equal(mu__apply(step, NULL, 1, &one, 1, &sparse, NULL), MU_INVALID_ARGUMENT);
    mu_error_take();
    mu_graph *graph = mu__graph_new("hostile");
    mu_edge edge = {.node = mu__graph_constant(graph, one)};
    assert_null(mu__graph_node(graph, step, NULL, 1, &edge, 1, &variable));
    assert_taken(MU_INVALID_ARGUMENT, "'v' is a variable");
    mu_release(graph);
}

static mu_resource *resolve(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    (void)spec;
    mu_resource *resource = arg;
    return strcmp(kind, resource->kind->name) == 0 && strcmp(name, resource->name) == 0 ? resource : NULL;
}

static void test_through_the_wire(void **state)
{
    (void)state;
    mu_accumulator *a =
        mu_conditional_accumulator(MU_F64, .shared_name = "wired", .shape = &(mu_shape){1, {MU_UNKNOWN}});
    mu_function *function = mu_function_new(apply_and_take, a);
    mu_value *arguments = mu_list(vector(1, (double[]){1}), mu_tensor_new(MU_I64, 0, NULL, NULL), MU_END);
    mu_concrete *concrete = mu__function_concrete(function, arguments, MU_BATCH_NONE, NULL);
    assert_non_null(concrete);
    void *bytes = NULL;
    size_t size = 0;
    assert_int_equal(mu__graph_write(concrete->graph, &bytes, &size), MU_OK);
    mu_graph *read = mu__graph_read(bytes, size, resolve, &a->resource);
    if (!read)
        fail_msg("%s", mu_error_message());
    assert_int_equal(read->nodes.n, concrete->graph->nodes.n);
    assert_ptr_equal(read->resources.items[0], &a->resource);
    mu_release(read);
    mu__free(bytes);
}

// ---- Rows ---------------------------------------------------------------------------------------

static void expect_taken(mu_accumulator *a, int n, const int64_t *indices, const double *values)
{
    mu_value *taken = mu_sparse_accumulator_take_grad(a, 1);
    if (!taken)
        fail_msg("%s", mu_error_message());
    assert_int_equal(mu_tensor_elements(mu_at(taken, 0)), n);
    assert_memory_equal(mu_tensor_data(mu_at(taken, 0)), indices, (size_t)n * sizeof *indices);
    assert_memory_equal(mu_tensor_data(mu_at(taken, 1)), values, (size_t)n * sizeof *values);
}

static void apply_rows(mu_accumulator *a, int n, const int64_t *indices, const double *values)
{
    mu_tensor *rows = mu_tensor_new(MU_F64, 2, (int64_t[]){n, 1}, values);
    assert_int_equal(mu_sparse_accumulator_apply_grad(a, longs(n, indices), rows, NULL, 0), MU_OK);
    mu_accumulator_set_global_step(a, 0);
}

static void test_merging_rows(void **state)
{
    (void)state;
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F64);
    // Unsorted lists are sorted when they are merged; a single list keeps its order.
    apply_rows(a, 3, (int64_t[]){7, 2, 5}, (double[]){1, 2, 3});
    expect_taken(a, 3, (int64_t[]){7, 2, 5}, (double[]){1, 2, 3});
    mu_accumulator_set_global_step(a, 0);
    apply_rows(a, 3, (int64_t[]){7, 2, 5}, (double[]){1, 2, 3});
    apply_rows(a, 2, (int64_t[]){9, 2}, (double[]){10, 4});
    expect_taken(a, 4, (int64_t[]){2, 5, 7, 9}, (double[]){3, 3, 1, 10});
    mu_accumulator_set_global_step(a, 0);
    // Duplicates within one gradient stay apart and are paired in order.
    apply_rows(a, 2, (int64_t[]){4, 4}, (double[]){1, 2});
    apply_rows(a, 1, (int64_t[]){4}, (double[]){5});
    expect_taken(a, 2, (int64_t[]){4, 4}, (double[]){3, 2});
    mu_accumulator_set_global_step(a, 0);
    // First no gradients at all, then some.
    apply_rows(a, 0, (int64_t[]){0}, NULL);
    apply_rows(a, 1, (int64_t[]){3}, (double[]){6});
    expect_taken(a, 1, (int64_t[]){3}, (double[]){6});
    mu_tensor *one_row = mu_tensor_new(MU_F64, 2, (int64_t[]){1, 1}, NULL);
    assert_int_equal(mu_sparse_accumulator_apply_grad(a, LONGS(-1), one_row, NULL, 9), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "index -1");
}

// The take also forgets the shape that the first gradient has set.
static void test_rows_of_another_shape(void **state)
{
    (void)state;
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F64, .shape = &(mu_shape){2, {MU_UNKNOWN, MU_UNKNOWN}});
    mu_tensor *two = mu_zeros(MU_F64, 2, (int64_t[]){1, 2}), *three = mu_zeros(MU_F64, 2, (int64_t[]){1, 3});
    assert_int_equal(mu_sparse_accumulator_apply_grad(a, LONGS(0), two, NULL, 0), MU_OK);
    assert_int_equal(mu_sparse_accumulator_apply_grad(a, LONGS(0), three, NULL, 0), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "[1, 3]");
    assert_non_null(mu_sparse_accumulator_take_grad(a, 1));
    assert_int_equal(mu_sparse_accumulator_apply_grad(a, LONGS(0), three, NULL, 1), MU_OK);
    assert_int_equal(mu_sparse_accumulator_apply_grad(a, LONGS(0), three, LONGS(4), 1), MU_INVALID_ARGUMENT);
    assert_taken(MU_INVALID_ARGUMENT, "rank 1");
    mu_value *slices = mu_indexed_slices(three, LONGS(2), 2, (int64_t[]){4, 3});
    assert_int_equal(mu_sparse_accumulator_apply_indexed_slices_grad(a, slices, 1), MU_OK);
    assert_true(mu_scalar(mu_accumulator_num_accumulated(a)) == 2);
}

// ---- Threads ------------------------------------------------------------------------------------

enum { APPLIERS = 4, EACH = 200, AT_A_TIME = 8 };

static void *apply_many(void *argument)
{
    mu_pool *pool = mu_pool_open();
    mu_status status = MU_OK;
    for (int i = 0; i < EACH && status == MU_OK; i++)
        status = mu_accumulator_apply_grad(argument, scalar(1), INT64_MAX);
    mu_pool_close(pool);
    return status == MU_OK ? NULL : argument;
}

// No gradient is lost or counted twice: the sums that are taken add up to what was applied.
static void test_threads(void **state)
{
    (void)state;
    mu_accumulator *a = mu_conditional_accumulator(MU_F64, .reduction_type = "SUM");
    pthread_t threads[APPLIERS];
    double total = 0;
    for (int i = 0; i < APPLIERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, apply_many, a), 0);
    while (total + AT_A_TIME <= APPLIERS * EACH) {
        const double sum = mu_scalar(mu_accumulator_take_grad(a, AT_A_TIME, .timeout_seconds = 60));
        assert_true(sum >= AT_A_TIME);
        total += sum;
    }
    for (int i = 0; i < APPLIERS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_true(total + mu_scalar(mu_accumulator_num_accumulated(a)) == APPLIERS * EACH);
}

// ---- No memory ----------------------------------------------------------------------------------

// Whichever allocation fails, the sum is the one before the call or the one after it.
static void test_no_memory(void **state)
{
    (void)state;
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F64);
    mu_tensor *values = numbers(2, (int64_t[]){2, 1}, 1), *first = LONGS(0, 1), *second = LONGS(1, 2);
    double n = 0;
    bool reached = true;
    assert_int_equal(mu_sparse_accumulator_apply_grad(a, first, values, NULL, 0), MU_OK);
    for (long k = 1; reached; k++) {
        mu_pool *pool = mu_pool_open();
        mu__alloc_fail_at(k);
        const mu_status status = mu_sparse_accumulator_apply_grad(a, second, values, NULL, 0);
        reached = mu__alloc_fail_at(0) >= k;
        assert_int_equal(status, mu_error_take().code);
        assert_true(status == MU_RESOURCE_EXHAUSTED || status == MU_OK);
        n += status == MU_OK;
        mu_pool_close(pool);
        assert_true(mu_scalar(mu_accumulator_num_accumulated(a)) == 1 + n);
    }
    assert_true(n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(test_traced),
        MODEL_TEST(test_traced_sparse),
        MODEL_TEST(test_traces_refuse),
        MODEL_TEST(test_cancelled_takes),
        MODEL_TEST(test_deadline),
        MODEL_TEST(test_closed),
        MODEL_TEST(test_shared_names),
        MODEL_TEST(test_types),
        MODEL_TEST(test_stale),
        MODEL_TEST(test_ops_keep_to_their_kind),
        MODEL_TEST(test_through_the_wire),
        MODEL_TEST(test_merging_rows),
        MODEL_TEST(test_rows_of_another_shape),
        MODEL_TEST(test_threads),
        MODEL_TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
