// Source lines in errors from the inside of loops, branches, nested functions, vectorised maps and custom gradients,
// when they fail while the function runs; and the layer that was being called.
#include "control_test.h"
#include "same_resource.h"

#include <muster.h>

static int wanted_line;
#define HERE (wanted_line = __LINE__)
// A call stands in the line of its HERE.
// clang-format off

static void assert_made_here(const char *what)
{
    char wanted[256];
    snprintf(wanted, sizeof wanted, "(made at %s:%d)", __FILE__, wanted_line);
    const mu_error error = mu_error_take();
    if (error.code == MU_OK || !strstr(error.message, wanted))
        fail_msg("%s: '%s' does not say %s", what, error.message, wanted);
}

// Infinite as soon as the function runs, and no sooner.
static mu_tensor *checked(mu_tensor *x)
{
    mu_tensor *huge = mu_exp(mu_multiply(x, mu_constant(MU_F64, 1e4)));
    HERE; return mu_check_numerics(huge, "huge");
}

static mu_value *fails(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(checked(mu_at(arguments, 0)), MU_END);
}

static mu_value *passes(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_neg(mu_at(arguments, 0)), MU_END);
}

static mu_tensor *total(mu_tensor *x)
{
    return mu_reduce_sum(x, MU_ALL_AXES);
}

static mu_tensor *positive(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_greater(total(mu_at(arguments, 0)), mu_constant(MU_F64, 0));
}

static mu_value *in_a_loop(mu_value *arguments, void *arg)
{
    return mu_while_loop(positive, fails, arguments, arg);
}

static mu_value *in_a_branch(mu_value *arguments, void *arg)
{
    return mu_cond(positive(arguments, arg), fails, passes, arguments, arg);
}

static mu_value *step(mu_value *states, mu_value *element, void *arg)
{
    (void)arg;
    return mu_list(checked(mu_add(mu_at(states, 0), mu_at(element, 0))), MU_END);
}

static mu_value *in_a_scan(mu_value *arguments, void *arg)
{
    return mu_scan(step, arguments, mu_list(mu_constant(MU_F64, 1), MU_END), arg);
}

static mu_value *in_a_map(mu_value *arguments, void *arg)
{
    return mu_map_fn(fails, arguments, arg);
}

static mu_value *in_a_vectorized_map(mu_value *arguments, void *arg)
{
    return mu_vectorized_map(fails, arguments, arg);
}

static mu_value *in_a_nested_function(mu_value *arguments, void *arg)
{
    return mu_function_call(mu_function_new(in_a_branch, arg), arguments);
}

static mu_value *recomputed(mu_value *arguments, void *arg)
{
    return mu_recompute_grad(fails, arguments, arg);
}

static mu_value *derivative(mu_value *arguments, mu_value *results, mu_value *gradients, void *arg)
{
    (void)arguments;
    (void)results;
    return fails(gradients, arg);
}

static mu_value *in_a_custom_gradient(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    return mu_gradients(tape, total(mu_at(mu_custom_gradient(passes, derivative, arguments, arg), 0)), arguments);
}

// The forward pass succeeds; the gradient of check_numerics, which is checked too, fails.
static mu_value *steep(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *huge = mu_constant(MU_F64, 1e300);
    HERE; mu_tensor *same = mu_check_numerics(x, "the gradient");
    return mu_list(mu_multiply(mu_multiply(mu_subtract(same, x), huge), huge), MU_END);
}

static mu_value *gradient_in_a_branch(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    mu_value *y = mu_cond(positive(arguments, arg), steep, passes, arguments, arg);
    return mu_gradients(tape, total(mu_at(y, 0)), arguments);
}

static mu_value *gradient_of_what_is_recomputed(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    return mu_gradients(tape, total(mu_at(mu_recompute_grad(steep, arguments, arg), 0)), arguments);
}

static const struct { const char *name; mu_traceable *fn; } functions[] = {
    {"in a loop", in_a_loop}, {"in a branch", in_a_branch}, {"in a scan", in_a_scan}, {"in a map", in_a_map},
    {"in a vectorized map", in_a_vectorized_map}, {"in a nested function", in_a_nested_function},
    {"recomputed", recomputed}, {"in a custom gradient", in_a_custom_gradient},
    {"gradient in a branch", gradient_in_a_branch}, {"gradient of what is recomputed", gradient_of_what_is_recomputed},
};

static void ops_inside_name_their_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(functions); i++) {
        mu_pool *pool = mu_pool_open();
        mu_value *arguments = mu_list(vector(2, (double[]){1, 2}), MU_END);
        if (mu_run(NULL, mu_function_new(functions[i].fn, NULL), arguments))
            fail_msg("%s: no error", functions[i].name);
        assert_made_here(functions[i].name);
        mu_pool_close(pool);
    }
}

// ---- While tracing ------------------------------------------------------------------------------

static mu_value *joins_other_ranks(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(arguments, 0), *matrix = mu_zeros(MU_F64, 2, (int64_t[]){2, 2});
    HERE; mu_tensor *sum = mu_concat(2, (mu_tensor *[]){x, matrix}, 0);
    return mu_list(sum, MU_END);
}

static mu_value *traced_in_a_branch(mu_value *arguments, void *arg)
{
    return mu_cond(positive(arguments, arg), joins_other_ranks, passes, arguments, arg);
}

static mu_value *traced_in_a_loop(mu_value *arguments, void *arg)
{
    return mu_while_loop(positive, joins_other_ranks, arguments, arg);
}

static void traces_of_bodies_name_their_lines(void **state)
{
    (void)state;
    mu_traceable *const fns[] = {traced_in_a_branch, traced_in_a_loop};
    for (size_t i = 0; i < MU_COUNT(fns); i++) {
        mu_value *arguments = mu_list(vector(2, (double[]){1, 2}), MU_END);
        assert_null(mu_run(NULL, mu_function_new(fns[i], NULL), arguments));
        assert_made_here("trace");
    }
}

// ---- Layers -------------------------------------------------------------------------------------

static mu_value *calls_a_layer(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    HERE; mu_tensor *y = mu_call(arg, x);
    return mu_list(y, MU_END);
}

static void a_layer_is_named_with_the_line_of_its_call(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_dense(3, .name = "front"), mu_dense(2, .name = "back"));
    mu_value *good = mu_list(mu_zeros(MU_F64, 2, (int64_t[]){4, 5}), MU_END);
    assert_non_null(mu_run(NULL, mu_function_new(calls_a_layer, model), good));
    mu_value *bad = mu_list(mu_zeros(MU_F64, 2, (int64_t[]){4, 6}), MU_END);
    assert_null(mu_run(NULL, mu_function_new(calls_a_layer, model), bad));
    assert_non_null(strstr(mu_error_message(), "'front'"));
    assert_made_here("layer in a function");
    assert_null(calls_a_layer(bad, model));
    assert_non_null(strstr(mu_error_message(), "'front'"));
    assert_made_here("layer called at once");
}

// An error when the function runs, long after the layer was called, still names the layer: in the forward pass, in the
// gradient, and where the graph came from another process.
static mu_value *embeds(mu_value *arguments, void *arg)
{
    mu_tensor *rows = mu_at(arguments, 0);
    HERE; mu_tensor *y = mu_call(arg, rows);
    return mu_list(y, MU_END);
}

static void assert_layer_travels(mu_traceable *fn, void *model, mu_value *arguments)
{
    void *bytes;
    size_t size;
    mu_concrete *concrete = mu__function_concrete(mu_function_new(fn, model), arguments, true, NULL);
    assert_non_null(concrete);
    assert_int_equal(mu__graph_write(concrete->graph, &bytes, &size), MU_OK);
    mu_graph *read = mu__graph_read(bytes, size, same_resource, concrete->graph);
    assert_non_null(read);
    int named = 0;
    for (size_t i = 0; i < read->nodes.n; i++)
        named += read->nodes.items[i]->layer && strcmp(read->nodes.items[i]->layer, "words") == 0;
    assert_true(named > 0);
    mu__free(bytes);
    mu_release(read);
}

static void a_run_that_fails_names_the_layer(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_embedding(5, 3, .name = "words"), mu_dense(2, .name = "back"));
    mu_function *function = mu_function_new(embeds, model);
    const int64_t good[] = {0, 4, 1}, bad[] = {0, 5, 1};
    assert_non_null(mu_run(NULL, function, mu_list(mu_tensor_new(MU_I64, 1, (int64_t[]){3}, good), MU_END)));
    mu_value *arguments = mu_list(mu_tensor_new(MU_I64, 1, (int64_t[]){3}, bad), MU_END);
    assert_null(mu_run(NULL, function, arguments));
    const char *line = strstr(mu_error_message(), "in layer 'words'");
    if (!line || strstr(line + 1, "in layer '"))
        fail_msg("%s", mu_error_message());
    assert_made_here("layer in a run");
    assert_null(embeds(arguments, model));
    line = strstr(mu_error_message(), "in layer 'words'");
    if (!line || strstr(line + 1, "in layer '"))
        fail_msg("%s", mu_error_message());
    assert_made_here("layer called at once");
    assert_layer_travels(embeds, model, arguments);
}

static void fit_names_the_layer(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_flatten(), mu_dense(3, .name = "front"), mu_conv2d(2, 3, .name = "back"));
    mu_compile(model, .optimizer = mu_sgd(), .loss = mu_mean_squared_error_loss());
    mu_value *data = mu_list(mu_zeros(MU_F64, 2, (int64_t[]){4, 5}), mu_zeros(MU_F64, 2, (int64_t[]){4, 3}), MU_END);
    assert_null(mu_fit(model, mu_dataset_batch(mu_dataset_from_tensor_slices(data), 2)));
    const mu_error error = mu_error_take();
    if (!strstr(error.message, "'back'"))
        fail_msg("%s", error.message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(ops_inside_name_their_lines),
        MODEL_TEST(traces_of_bodies_name_their_lines),
        MODEL_TEST(a_layer_is_named_with_the_line_of_its_call),
        MODEL_TEST(a_run_that_fails_names_the_layer),
        MODEL_TEST(fit_names_the_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
