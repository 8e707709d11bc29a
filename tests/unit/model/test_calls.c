// What every public call does besides its work: a failure names the caller's line, a call that does nothing because of
// an earlier error is reported once, and so is a loop that fills its pool.
#include "model_test.h"

#include "../base/base_test.h"
#include "model/core/layer.h"

#include <muster.h>

// The line of a call below: set just before the call, compared with the error.
static int wanted_line;
#define HERE (wanted_line = __LINE__)
// A call stands in the line of its HERE.
// clang-format off

static void assert_named(const char *part)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, "(made at %s:%d)", __FILE__, wanted_line);
    const mu_error error = mu_error_take();
    if (error.code == MU_OK || !strstr(error.message, wanted) || !strstr(error.message, part))
        fail_msg("'%s' does not say %s and %s", error.message, wanted, part);
    assert_int_equal(mu__context()->n_lines, 0);
}

static void constructors_name_their_line(void **state)
{
    (void)state;
    HERE; assert_null(mu_dense(-1));
    assert_named("mu_dense");
    HERE; assert_null(mu_sequential(mu_dense(3), mu_flatten(), NULL));
    assert_named("mu_sequential");
    HERE; assert_null(mu_adam(.beta_1 = 2));
    assert_named("mu_adam");
    HERE; assert_null(mu_dataset_batch(mu_dataset_range(0, 5, 1), -2));
    assert_named("the batch size is -2");
    HERE; assert_null(mu_dataset_take(NULL, 2));
    assert_named("NULL");
    HERE; assert_null(mu_mirrored_strategy(.replicas = 99));
    assert_named("99");
    HERE; assert_null(mu_function_new(NULL));
    assert_named("mu_function_new");
    HERE; assert_int_equal(mu_tensor_dim(mu_constant(MU_F32, 1), 3), -1);
    assert_named("axis");
    HERE; assert_true(isnan(mu_scalar((mu_value *)NULL)));
    assert_named("mu_scalar");
    HERE; mu_tensor_print(mu_constant(MU_F32, 1), NULL);
    assert_named("mu_tensor_print");
}

static void pools_name_their_line(void **state)
{
    (void)state;
    mu_pool *pool = mu_pool_open();
    mu_pool_close(pool);
    HERE; mu_pool_close(pool);
    assert_named("mu_pool_close");
    mu__alloc_fail_at(1);
    HERE; pool = mu_pool_open();
    mu__alloc_fail_at(0);
    assert_null(pool);
    assert_named("memory");
    mu_fail(MU_ABORTED, "of an earlier call");
    mu_pool_close(mu_pool_open());
    assert_string_equal(mu_error_take().message, "of an earlier call");
}

static void fit_names_its_line(void **state)
{
    (void)state;
    mu_model *model = mu_sequential(mu_dense(3));
    HERE; assert_null(mu_fit(model, rows_and_classes(4, 2, 3, 2)));
    assert_named("mu_fit");
    mu_compile(model, .optimizer = mu_sgd(), .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    HERE; assert_null(mu_fit(model, rows_and_classes(4, 2, 3, 2), .epochs = -1));
    assert_named("epochs -1");
    HERE; assert_null(mu_fit(model, mu_dataset_range(0, 4, 1)));  // fails in the step
    assert_named("");
    HERE; assert_null(mu_predict(NULL, rows_and_classes(4, 2, 3, 2)));
    assert_named("mu_predict");
    HERE; assert_int_not_equal(mu_load_weights(NULL, "no such file"), MU_OK);
    assert_named("mu_load_weights");
}

// ---- Skipped calls ------------------------------------------------------------------------------

static void skip_calls(void *arg)
{
    mu_dense(-1);
    for (int i = 0; i < 3; i++)
        mu_flatten();
    mu_layer *again = mu_dense(2);
    *(bool *)arg = !again;
    assert_null(mu_strategy_cluster_resolver(NULL));
    mu_error_take();
}

static void skipped_calls_are_reported_once(void **state)
{
    (void)state;
    char text[4000];
    bool skipped = false;
    catch_stderr(skip_calls, &skipped, text, sizeof text);
    assert_true(skipped);
    const char *first = strstr(text, "mu_flatten and later calls do nothing");
    if (!first)
        fail_msg("%s", text);
    if (strstr(first + strlen("mu_flatten and later calls do nothing"), "do nothing"))
        fail_msg("%s", text);
    assert_non_null(strstr(text, "test_calls.c:"));
    assert_non_null(strstr(text, "mu_dense"));
}

static void check_a_chain(void *arg)
{
    (void)arg;
    mu_add(mu_constant(MU_F32, 1), mu_neg(mu_matmul(mu_constant(MU_F32, 1), mu_constant(MU_F32, 1))));
    mu_error_take();
    mu_dense(-1);
    mu_error_take();
    mu_flatten();
}

// A call whose own argument failed is part of the same expression.
static void errors_that_are_read_are_not_reported(void **state)
{
    (void)state;
    char text[4000];
    catch_stderr(check_a_chain, NULL, text, sizeof text);
    if (strstr(text, "do nothing"))
        fail_msg("%s", text);
}

// ---- Loops without a pool -----------------------------------------------------------------------

static mu_value *leaves_a_row(mu_value *arguments, void *arg)
{
    (void)arguments, (void)arg;
    return mu_of(mu_zeros(MU_F32, 1, (int64_t[]){33000}));  // 132 KB
}

static void loop_without_a_pool(void *arg)
{
    mu_function *step = arg;
    mu_pool *outer = mu_pool_open();
    for (int i = 0; i < 700; i++)
        mu_run(NULL, step, NULL);
    mu_pool_close(outer);
}

static void loop_with_a_pool(void *arg)
{
    mu_function *step = arg;
    for (int i = 0; i < 700; i++) {
        mu_pool *pool = mu_pool_open();
        mu_run(NULL, step, NULL);
        mu_pool_close(pool);
    }
}

static void a_loop_that_fills_its_pool_is_reported(void **state)
{
    (void)state;
    char text[4000];
    mu_function *step = mu_function_new(leaves_a_row);
    catch_stderr(loop_with_a_pool, step, text, sizeof text);
    assert_string_equal(text, "");
    catch_stderr(loop_without_a_pool, step, text, sizeof text);
    const char *first = strstr(text, "leaves about 132 KB in its pool");
    if (!first)
        fail_msg("%s", text);
    assert_null(strstr(first + 1, "leaves about"));
    assert_non_null(strstr(text, "test_calls.c:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(constructors_name_their_line),
        MODEL_TEST(pools_name_their_line),
        MODEL_TEST(fit_names_its_line),
        MODEL_TEST(skipped_calls_are_reported_once),
        MODEL_TEST(errors_that_are_read_are_not_reported),
        MODEL_TEST(a_loop_that_fills_its_pool_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
