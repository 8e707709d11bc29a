// What the tests of models and strategies share: the library with eight logical devices, made-up data, and a
// model's weights as numbers that can be compared.
#ifndef MU_TEST_MODEL_H
#define MU_TEST_MODEL_H

#include "../data/data_test.h"
#include "model/core/layer.h"

#include <muster/callback.h>
#include <muster/io.h>
#include <muster/nn.h>
#include <muster/ops.h>
#include <muster/parameter_server.h>

#include <math.h>

#define DEVICES 8

static inline int start_devices(void **state)
{
    (void)state;
    return mu_init(.cpu_devices = DEVICES, .seed = 7) != MU_OK || mu_set_floatx(MU_F64) != MU_OK;
}

#define REFUSED_STATUS(call, code, part) \
    do {                                 \
        assert_int_equal(call, code);    \
        expect_error(code, part);        \
    } while (0)

#define MODEL_TEST(name) cmocka_unit_test_setup_teardown(name, start_devices, end_library)

// A parameter-server strategy in this process with this number of workers and servers.
static inline mu_strategy *on_servers(int workers, int servers, mu_partitioner *partitioner)
{
    mu_cluster_spec *spec = mu_cluster_spec_parse("{}");
    for (int i = 0; i < workers; i++)
        mu_cluster_spec_add(spec, "worker", -1, "");
    for (int i = 0; i < servers; i++)
        mu_cluster_spec_add(spec, "ps", -1, "");
    return mu_parameter_server_strategy(mu_simple_cluster_resolver(spec), partitioner, .in_process = true);
}

// Kinds of strategies by number: -1 one device, 0 the default, n mirrored on the first n devices, CENTRAL + n with
// central storage, SERVED + n with one worker and n parameter servers.
#define CENTRAL 100
#define SERVED  200
static inline mu_strategy *strategy_of(int kind)
{
    if (kind > SERVED)
        return on_servers(1, kind - SERVED, NULL);
    if (kind == 0)
        return mu_default_strategy();
    if (kind > CENTRAL)
        return mu_central_storage_strategy(.replicas = kind - CENTRAL);
    return kind < 0 ? mu_one_device_strategy("CPU:0") : mu_mirrored_strategy(.replicas = kind);
}

// Numbers from -1 to 1 that depend on the seed alone, as float64.
static inline mu_tensor *numbers(int rank, const int64_t *dims, uint64_t seed)
{
    mu_tensor *tensor = mu_tensor_new(MU_F64, rank, dims, NULL);
    assert_non_null(tensor);
    double *data = mu__host_write(tensor);
    uint64_t state = seed * 2 + 1;
    for (int64_t i = 0; i < mu_tensor_elements(tensor); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        data[i] = (double)(state >> 11) / 4503599627370496.0 - 1;
    }
    return tensor;
}

static inline mu_tensor *classes(int64_t n, int64_t count, uint64_t seed)
{
    mu_tensor *tensor = mu_tensor_new(MU_I64, 1, &n, NULL);
    assert_non_null(tensor);
    int64_t *data = mu__host_write(tensor);
    uint64_t state = seed;
    for (int64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        data[i] = (int64_t)((state >> 33) % (uint64_t)count);
    }
    return tensor;
}

static inline mu_tensor *vector(int64_t n, const double *values) { return mu_tensor_new(MU_F64, 1, &n, values); }

static inline const double *doubles(const mu_tensor *tensor)
{
    assert_non_null(tensor);
    assert_int_equal(mu_tensor_dtype(tensor), MU_F64);
    return mu_tensor_data(tensor);
}

// All weights of a model side by side, as float64. For free().
static inline double *weights_of(mu_model *model, int64_t *n)
{
    mu_value *weights = mu_model_weights(model);
    assert_non_null(weights);
    *n = mu_model_parameters(model);
    double *all = malloc(sizeof *all * (size_t)(*n + 1)), *at = all;
    for (int i = 0; i < mu_value_count(weights); i++) {
        mu_tensor *value = mu_variable_read((mu_variable *)mu_value_at(weights, i)->leaf);
        memcpy(at, doubles(mu_cast(value, MU_F64)), sizeof *at * (size_t)mu_tensor_elements(value));
        at += mu_tensor_elements(value);
    }
    return all;
}

// The same bits.
static inline void assert_same_weights(mu_model *a, mu_model *b)
{
    int64_t n, m;
    double *x = weights_of(a, &n), *y = weights_of(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, sizeof *x * (size_t)n);
    free(x);
    free(y);
}

// Compares within `tolerance` times the largest expected number.
static inline void assert_near(const double *seen, const double *wanted, int64_t n, double tolerance)
{
    double largest = 1e-300;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(wanted[i]));
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(seen[i] - wanted[i]) <= tolerance * largest))
            fail_msg("element %lld of %lld is %.17g; expected %.17g", (long long)i, (long long)n, seen[i], wanted[i]);
}

static inline void assert_number(double seen, double wanted, double tolerance)
{
    if (!(fabs(seen - wanted) <= tolerance * fmax(1, fabs(wanted))))
        fail_msg("%.17g; expected %.17g", seen, wanted);
}

// Features [n, width] and class numbers, in batches.
static inline mu_dataset *rows_and_classes(int64_t n, int64_t width, int64_t count, int64_t batch)
{
    mu_value *all = mu_list(numbers(2, (int64_t[]){n, width}, 3), classes(n, count, 5), MU_END);
    return mu_dataset_batch(mu_dataset_from_tensor_slices(all), batch);
}

// Images [n, 8, 8, 1] and class numbers, in batches.
static inline mu_dataset *images_and_classes(int64_t n, int64_t count, int64_t batch)
{
    mu_value *all = mu_list(numbers(4, (int64_t[]){n, 8, 8, 1}, 11), classes(n, count, 13), MU_END);
    return mu_dataset_batch(mu_dataset_from_tensor_slices(all), batch);
}

// ---- Gradients ----------------------------------------------------------------------------------

static inline mu_tensor *loss_of(mu_model *model, mu_tensor *x)
{
    return mu_reduce_sum(mu_square(mu_call(model, x, .training = true)), MU_ALL_AXES);
}

// Compares the gradients of a model's weights with finite differences, for every third weight.
static inline void check_gradients(mu_model *model, mu_tensor *x)
{
    loss_of(model, x);
    assert_int_equal(mu_error_code(), MU_OK);
    mu_value *variables = mu_trainable_variables(model);
    mu_tape *tape = mu_tape_open();
    mu_value *gradients = mu_gradients(tape, loss_of(model, x), variables);
    mu_tape_close(tape);
    for (int v = 0; v < mu_value_count(variables); v++) {
        mu_variable *variable = (mu_variable *)mu_value_at(variables, v)->leaf;
        mu_tensor *value = mu_variable_read(variable);
        const double *derivative = doubles(mu_at(gradients, v));
        double *at = mu__host_write(variable->components[0]), step = 1e-5;
        for (int64_t i = 0; i < mu_tensor_elements(value); i += 3) {
            double kept = at[i];
            at[i] = kept + step;
            double above = mu_scalar(loss_of(model, x));
            at[i] = kept - step;
            double below = mu_scalar(loss_of(model, x));
            at[i] = kept;
            assert_number(derivative[i], (above - below) / (2 * step), 2e-5);
        }
    }
}

// The first value of a weight, by the name of its initializer.
static inline mu_tensor *initial(const char *name, mu_dtype dtype, mu_shape shape)
{
    return mu_initializer_call(mu__weight_option_argument(&mu__initializer_kind, name, "initial"), dtype, shape);
}

// Trains make()'s model on 1, 2 and 3 replicas: all must reach the same weights.
static inline void check_replicas_train_alike(mu_model *(*make)(void), mu_dataset *data)
{
    double *wanted = NULL;
    int64_t n = 0;
    for (int replicas = 1; replicas <= 3; replicas++) {
        mu_model *model = NULL;
        mu_set_seed(11);
        MU_SCOPE(strategy_of(replicas)) {
            model = make();
            mu_compile(model, .optimizer = mu_adam(.learning_rate = .01),
                       .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
        }
        if (!mu_fit(model, data, .epochs = 3, .verbose = MU_VERBOSE_SILENT))
            fail_msg("%s", mu_error_message());
        double *weights = weights_of(model, &n);
        assert_near(weights, wanted ? wanted : weights, n, 1e-10);
        if (wanted)
            free(weights);
        else
            wanted = weights;
    }
    free(wanted);
}

#endif
