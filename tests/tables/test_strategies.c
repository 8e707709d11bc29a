// Every strategy, one model after the other: training on any number of replicas, with uneven and empty parts,
// reaches the parameters of one device; evaluation counts every sample once.
//
// All in float64: the only differences left come from the order of summation, far below the tolerance.
#include "model/metrics/metric.h"
#include "recipes.h"

static mu_model *dropout_model(void) { return mu_sequential(relu_dense(9), mu_dropout(.3), mu_dense(4)); }

static outcome train(const struct recipe *recipe, int kind)
{
    mu_pool *pool = mu_pool_open();
    outcome o = train_on(recipe, strategy_of(kind));
    mu_pool_close(pool);
    return o;
}

static void reaches_the_parameters_of_one_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(recipes); i++) {
        outcome wanted = train(&recipes[i], 0);
        for (int k = -1; k <= 2 * DEVICES + 2; k++) {
            const int served = k - 2 * DEVICES, central = k - DEVICES;
            outcome seen = train(&recipes[i], served > 0 ? SERVED + served : central > 0 ? CENTRAL + central : k);
            assert_int_equal(seen.n_weights, wanted.n_weights);
            assert_near(seen.weights, wanted.weights, wanted.n_weights, TOLERANCE);
            assert_near(seen.losses, wanted.losses, wanted.epochs, TOLERANCE);
            free_outcome(&seen);
        }
        free_outcome(&wanted);
    }
}

// Dropout draws differ from replica to replica, but one copy of the generator's state for all works as well as one
// each.
static void central_generators_draw_alike(void **state)
{
    (void)state;
    static const struct recipe recipe = {"dropout", dropout_model, adam, false};
    for (int n = 1; n <= DEVICES; n++) {
        outcome wanted = train(&recipe, n), seen = train(&recipe, CENTRAL + n);
        assert_near(seen.weights, wanted.weights, wanted.n_weights, TOLERANCE);
        free_outcome(&wanted);
        free_outcome(&seen);
    }
}

// The same seed gives the same bits, however the threads are scheduled.
static void repeats_its_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < MU_COUNT(recipes); i++)
        for (int k = 1; k < 2 * DEVICES; k += 2) {
            const int kind = k <= DEVICES ? k : CENTRAL + k - DEVICES + 1;
            outcome first = train(&recipes[i], kind), second = train(&recipes[i], kind);
            assert_memory_equal(first.weights, second.weights, sizeof(double) * (size_t)first.n_weights);
            assert_memory_equal(first.losses, second.losses, sizeof(double) * (size_t)first.epochs);
            free_outcome(&first);
            free_outcome(&second);
        }
}

// ---- Evaluation ---------------------------------------------------------------------------------

static void measure(int kind, measured *out)
{
    mu_pool *pool = mu_pool_open();
    measure_on(strategy_of(kind), out);
    mu_pool_close(pool);
}

static void counts_every_sample_once(void **state)
{
    (void)state;
    static const int kinds[] = {-1, 1, 2, 3, 7, 8, CENTRAL + 2, CENTRAL + 7, SERVED + 2};
    static measured wanted, seen;
    measure(0, &wanted);
    assert_int_equal(wanted.samples, 1000);
    assert_true(wanted.accuracy > 0 && wanted.accuracy < 1);
    for (size_t i = 0; i < MU_COUNT(kinds); i++) {
        measure(kinds[i], &seen);
        assert_int_equal(seen.samples, 1000);
        assert_true(seen.accuracy == wanted.accuracy);
        for (int k = 0; k < COUNTED; k++)
            if (seen.counted[k] != wanted.counted[k])
                fail_msg("strategy %d: metric %d is %.17g; expected %.17g", kinds[i], k, seen.counted[k],
                         wanted.counted[k]);
        assert_number(seen.mean_error, wanted.mean_error, TOLERANCE);
        assert_number(seen.loss, wanted.loss, TOLERANCE);
        assert_near(seen.outputs, wanted.outputs, MU_COUNT(wanted.outputs), TOLERANCE);
    }
}

// The metrics that the callbacks see are sums over parts: after 1,000 samples they have counted 1,000.
static void metric_counts_parts(void **state)
{
    (void)state;
    for (int kind = 1; kind <= DEVICES + 2; kind++) {
        mu_pool *pool = mu_pool_open();
        mu_metric *accuracy = mu_accuracy();
        mu_model *model = NULL;
        mu_strategy *strategy = strategy_of(kind <= DEVICES ? kind : CENTRAL + kind - DEVICES + 1);
        MU_SCOPE(strategy) {
            model = mu_sequential(mu_dense(3));
            mu_compile(model, .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                       .metrics = MU_METRICS(accuracy));
        }
        assert_non_null(mu_evaluate(model, rows_and_classes(1000, 6, 3, 7), .verbose = MU_VERBOSE_SILENT));
        assert_true(mu_scalar(mu_variable_read(accuracy->states.items[1])) == 1000);
        mu_pool_close(pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(reaches_the_parameters_of_one_device),
        MODEL_TEST(central_generators_draw_alike),
        MODEL_TEST(repeats_its_bits),
        MODEL_TEST(counts_every_sample_once),
        MODEL_TEST(metric_counts_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
