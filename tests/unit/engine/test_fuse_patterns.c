// Fused ops: a lowered training step gives the numbers of the graph that it was made from, for shapes to which every
// rule applies and for shapes to which none does.
#include "../model/model_test.h"
#include "engine/cpu/fused_ops.h"
#include "engine/cpu/plan.h"
#include "model/core/layer.h"
#include "ops/nn/nn.h"

typedef struct shape_case {
    int64_t batch, side, channels;
    int filters, kernel;
    bool pool, second, relu;
} shape_case;

static mu_model *model_of(const shape_case *c)
{
    const char *activation = c->relu ? "relu" : "tanh";
    mu_layer *layers[8];
    int n = 0;
    layers[n++] = mu_conv2d(c->filters, c->kernel, .activation = activation, .bias_initializer = "random_normal");
    if (c->pool)
        layers[n++] = mu_max_pool2d(2);
    if (c->second) {
        layers[n++] = mu_conv2d(8, 2, .activation = activation, .bias_initializer = "random_normal");
        layers[n++] = mu_max_pool2d(2);
    }
    layers[n++] = mu_flatten();
    layers[n++] = mu_dense(5, .activation = "relu", .bias_initializer = "random_normal");
    layers[n++] = mu_dense(3);
    layers[n] = (mu_layer *)MU_END;
    return mu_sequential_of(layers);
}

// Returns all results and every gradient; updates nothing.
static mu_value *forward_and_back(mu_value *arguments, void *arg)
{
    mu_model *model = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_call(model, mu_at(arguments, 0), .training = true);
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(mu_at(arguments, 1), y);
    mu_value *gradients = mu_gradients(tape, mu_reduce_sum(losses, MU_ALL_AXES), mu_trainable_variables(model));
    return mu_list(y, losses, gradients, MU_END);
}

// Runs a graph as it stands, without the engine's lowering.
static void run_graph(mu_graph *graph, const mu_value *arguments, mu_tensor **out)
{
    mu_device *device = mu__device_at(mu__runtime(), 0);
    mu_tensor *in[] = {mu_at(arguments, 0), mu_at(arguments, 1)};
    mu_spec specs[] = {mu__spec_of(in[0]), mu__spec_of(in[1])};
    mu_plan *plan = mu__cpu_compile(device, graph, specs, 2);
    if (!plan)
        fail_msg("%s", mu_error_message());
    mu_run_args args = {.in = in, .out = out};
    assert_int_equal(mu__cpu_run(plan, &args), MU_OK);
    mu__cpu_free(plan);
}

static int fused_nodes(const mu_graph *graph)
{
    int n = 0;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        const mu_op *op = graph->nodes.items[i]->op;
        n += op == &mu__op_conv2d_bias || op == &mu__op_matmul_bias || op == &mu__op_relu_max_pool2d ||
             op == &mu__op_relu_max_pool2d_grad || op == &mu__op_conv2d_relu_pool ||
             op == &mu__op_conv2d_relu_pool_grad;
    }
    return n;
}

static int compare(const shape_case *c, mu_dtype dtype, double tolerance)
{
    mu_pool *pool = mu_pool_open();
    assert_int_equal(mu_set_floatx(dtype), MU_OK);
    mu_set_seed(1);
    mu_model *model = model_of(c);
    int64_t dims[] = {c->batch, c->side, c->side, c->channels};
    mu_value *arguments = mu_list(mu_cast(numbers(4, dims, 3), dtype), classes(c->batch, 3, 4), MU_END);
    mu_function *function = mu_function_new(forward_and_back, model);
    mu_concrete *concrete = mu__function_concrete(function, arguments, true, NULL);
    if (!concrete)
        fail_msg("%s", mu_error_message());
    mu_graph *lowered = mu__cpu_lower(concrete->graph);
    assert_non_null(lowered);
    mu_tensor *wanted[32], *seen[32];
    run_graph(concrete->graph, arguments, wanted);
    run_graph(lowered, arguments, seen);
    for (size_t i = 0; i < lowered->outputs.n; i++) {
        mu_tensor *a = mu_cast(seen[i], MU_F64), *b = mu_cast(wanted[i], MU_F64);
        assert_near(doubles(a), doubles(b), mu_tensor_elements(b), tolerance);
        mu_release(seen[i]);
        mu_release(wanted[i]);
    }
    int fused = fused_nodes(lowered);
    assert_int_equal(fused_nodes(concrete->graph), 0);
    mu_release(lowered);
    mu_pool_close(pool);
    return fused;
}

static void lowered_graphs_give_the_same_numbers(void **state)
{
    (void)state;
    static const struct {
        int64_t batch, side;
    } inputs[] = {{1, 11}, {7, 10}, {0, 10}};
    int fused = 0;
    for (size_t i = 0; i < MU_COUNT(inputs); i++)
        for (int channels = 1; channels <= 5; channels += 2)
            for (int kernel = 2; kernel <= 4; kernel++)
                for (int kind = 0; kind < 8; kind++) {
                    shape_case c = {inputs[i].batch, inputs[i].side, channels,        kernel == 3 ? 32 : 6,
                                    kernel,          kind & 1,       (kind & 3) == 3, kind & 4};
                    fused += compare(&c, MU_F32, 2e-5);
                }
    assert_true(fused > 300);
    shape_case c = {5, 10, 1, 6, 3, true, true, true};
    assert_true(compare(&c, MU_F64, 1e-12) > 0);
}

// Products with a bias exist for floats only: with integers the two ops stay separate.
static mu_value *whole_products(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *image = mu_at(arguments, 0), *kernel = mu_at(arguments, 1), *bias = mu_at(arguments, 2);
    mu_tensor *rows = mu_reshape(image, 2, (int64_t[]){-1, 2});
    mu_tensor *weights = mu_reshape(kernel, 2, (int64_t[]){2, 3});
    return mu_list(mu_nn_bias_add(mu_nn_conv2d(image, kernel), bias), mu_nn_bias_add(mu_matmul(rows, weights), bias),
                   MU_END);
}

static void integers_are_not_fused(void **state)
{
    (void)state;
    int32_t data[32], taps[6] = {1, -2, 3, 4, 5, -6};
    for (int i = 0; i < 32; i++)
        data[i] = i * 7 % 11;
    mu_value *arguments = mu_list(mu_tensor_new(MU_I32, 4, (int64_t[]){1, 4, 4, 2}, data),
                                  mu_tensor_new(MU_I32, 4, (int64_t[]){1, 1, 2, 3}, taps),
                                  mu_tensor_new(MU_I32, 1, (int64_t[]){3}, (int32_t[]){7, 0, -9}), MU_END);
    const mu_value *eager = whole_products(arguments, NULL);
    const mu_value *traced = mu_run(mu_default_strategy(), mu_function_new(whole_products, NULL), arguments);
    if (!traced)
        fail_msg("%s", mu_error_message());
    for (int i = 0; i < 2; i++)
        assert_memory_equal(mu__host_read(mu_at(eager, i)), mu__host_read(mu_at(traced, i)), 48 * sizeof(int32_t));
}

// A trace does not know how long a bias is that comes as an argument: the fused op sees it when it runs.
typedef struct biased {
    bool convolution, relu, pool;
    bool captures; // the weights, so that the sizes of a kernel are known; otherwise they are an argument too
    mu_tensor *weights;
} biased;

static mu_value *biased_product(mu_value *arguments, void *arg)
{
    const biased *b = arg;
    mu_tensor *x = mu_at(arguments, 0), *w = b->captures ? b->weights : mu_at(arguments, 2);
    mu_tensor *y = mu_nn_bias_add(b->convolution ? mu_nn_conv2d(x, w) : mu_matmul(x, w), mu_at(arguments, 1));
    y = b->relu ? mu_nn_relu(y) : y;
    return mu_of(b->pool ? mu_nn_max_pool2d(y, .window = {2}) : y);
}

static void expect_checked_bias(const biased *b)
{
    int64_t image[] = {2, 6, 6, 1}, kernel[] = {3, 3, 1, 8}, rows[] = {2, 3}, columns[] = {3, 8};
    for (int64_t length = 4; length <= 9; length++) {
        mu_pool *pool = mu_pool_open();
        biased now = *b;
        mu_tensor *x = mu_cast(b->convolution ? numbers(4, image, 1) : numbers(2, rows, 1), MU_F32);
        mu_tensor *w = mu_cast(b->convolution ? numbers(4, kernel, 2) : numbers(2, columns, 2), MU_F32);
        mu_value *arguments = mu_list(x, mu_cast(numbers(1, &length, 3), MU_F32), w, MU_END);
        now.weights = w;
        mu_function *function = mu_function_new(biased_product, &now);
        mu_concrete *concrete = mu__function_concrete(function, arguments, true, NULL);
        mu_graph *lowered = concrete ? mu__cpu_lower(concrete->graph) : NULL;
        assert_int_equal(lowered ? fused_nodes(lowered) : 0, 1);
        mu_release(lowered);
        mu_value *result = mu_run(mu_default_strategy(), function, arguments);
        assert_int_equal(result != NULL, length == 8);
        if (length != 8)
            expect_error(MU_INVALID_ARGUMENT, "the bias must have as many elements as the last axis of [2, ");
        mu_pool_close(pool);
    }
}

static void lengths_of_biases_are_checked(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        expect_checked_bias(&(biased){.convolution = i & 1, .relu = i & 2, .captures = i & 4});
    expect_checked_bias(&(biased){.convolution = true, .relu = true, .pool = true, .captures = true});
}

int main(void)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(lowered_graphs_give_the_same_numbers),
                                       MODEL_TEST(integers_are_not_fused), MODEL_TEST(lengths_of_biases_are_checked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
