// What Keras's tests of models under strategies pin and no numbered case has: losses, weights of samples, partial
// batches and names of inputs are those of one device under every strategy of one machine.
#include "cases.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define QUIET .verbose = MU_VERBOSE_SILENT

enum { KINDS = 5 };
static mu_strategy *kinds[KINDS];

// The first is what the others are compared with.
static void make_kinds(void)
{
    kinds[0] = mu_default_strategy();
    kinds[1] = mirrored(2);
    kinds[2] = mirrored(3);
    kinds[3] = mu_central_storage_strategy(.replicas = 2);
    kinds[4] = mu_one_device_strategy("CPU:0");
}

static mu_tensor *ones(int64_t rows, int64_t columns) { return mu_ones(MU_F32, 2, (int64_t[]){rows, columns}); }

// Numbers from 0 to 1 that are the same in every call.
static mu_tensor *numbers(int64_t rows, int64_t columns)
{
    mu_tensor *all = mu_range(MU_F32, 0, (double)(rows * columns), 1);
    return mu_reshape(mu_abs(mu_sin(all)), 2, (int64_t[]){rows, columns});
}

static mu_dataset *rows_of(mu_value *parts) { return mu_dataset_from_tensor_slices(parts); }

// Whether a value is that of the first strategy.
static void same_as_first(int line, int kind, double value, double *first)
{
    if (kind == 0)
        *first = value;
    else if (!(fabs(value - *first) <= 1e-5 * fmax(1, fabs(*first))))
        fail_case(line, "%s has %.9g, one device %.9g", mu_strategy_name(kinds[kind]), value, *first);
}
#define SAME_AS_FIRST(...) same_as_first(__LINE__, __VA_ARGS__)

// ---- Losses -------------------------------------------------------------------------------------

static mu_status build_one(mu_layer *layer, int n, const mu_shape *inputs, void *arg)
{
    (void)n, (void)inputs;
    return mu_layer_add_weight(layer, "v", (mu_shape){0}, .initializer = "ones", .regularizer = (mu_regularizer *)arg)
               ? MU_OK
               : mu_error_code();
}

static mu_value *add_one_weight(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    return mu_of(mu_add(mu_at(inputs, 0), mu_variable_read(mu_layer_weight(layer, "v"))));
}

static mu_tensor *same_penalty(mu_tensor *x, void *arg)
{
    (void)arg;
    return mu_identity(x);
}

static mu_tensor *mean_prediction(mu_tensor *y_true, mu_tensor *y_pred, void *arg)
{
    (void)y_true, (void)arg;
    return mu_reduce_mean(y_pred, -1);
}

// test_regularizer_loss: the loss is x + 2 v, so one step of rate 1 takes v from 1 to -1 on any number of replicas.
static void penalties(void)
{
    make_kinds();
    for (int k = 0; k < KINDS; k++) {
        mu_model *m = NULL;
        MU_SCOPE(kinds[k]) {
            mu_layer *layer = mu_layer_new("add", .build = build_one, .call = add_one_weight,
                                           .arg = mu_regularizer_new(same_penalty));
            m = mu_sequential(mu_input_layer({1}), layer);
            mu_compile(m, .optimizer = mu_sgd(.learning_rate = 1), .loss = mu_loss_new(.call = mean_prediction));
        }
        mu_history *h = mu_fit(m, ones(2, 1), ones(2, 1), .batch_size = 2, QUIET);
        CHECK(h && mu_history_last(h, "loss") == 3);
        EXPECT(read_of(mu_value_variable(mu_value_at(mu_model_weights(m), 0))), -1);
    }
}

// test_distribution_strategy_with_loss_reduction_types.
static void kinds_of_reduction(void)
{
    make_kinds();
    double first[2][3] = {{0}};
    for (int k = 0; k < KINDS; k++)
        for (int sum = 0; sum < 2; sum++) {
            mu_model *m = NULL;
            MU_SCOPE(kinds[k]) {
                m = mu_sequential(mu_input_layer({10}), mu_dense(10, .kernel_initializer = "zeros"),
                                  mu_dense(1, .kernel_initializer = "zeros"));
                const char *reduction = sum ? "sum" : "sum_over_batch_size";
                mu_compile(m, .optimizer = "sgd", .loss = mu_mean_squared_error_loss(.reduction = reduction));
            }
            mu_dataset *data = mu_dataset_batch(rows_of(mu_list(numbers(64, 10), numbers(64, 1), MU_END)), 32);
            mu_history *h = mu_fit(m, data, .epochs = 2, QUIET);
            CHECK(h);
            for (int epoch = 0; epoch < 2; epoch++)
                SAME_AS_FIRST(k, mu_history_at(h, "loss", epoch), &first[sum][epoch]);
        }
}

static mu_value *add_mean_square(mu_layer *layer, mu_value *inputs, const mu_call_context *context, void *arg)
{
    (void)context, (void)arg;
    mu_tensor *x = mu_at(inputs, 0);
    return mu_layer_add_loss(layer, mu_reduce_mean(mu_square(x))) == MU_OK ? mu_of(x) : NULL;
}

typedef struct training {
    mu_model *model;
    mu_optimizer *optimizer;
} training;

static training make_training(mu_strategy *s)
{
    training t = {0};
    MU_SCOPE(s) {
        t.model =
            mu_sequential(mu_input_layer({1}), mu_dense(4, .kernel_initializer = "ones", .activation = "relu"),
                          mu_dense(1, .kernel_initializer = "ones"), mu_layer_new("add_loss", .call = add_mean_square));
        t.optimizer = mu_sgd(.learning_rate = .01);
        mu_compile(t.model, .optimizer = t.optimizer, .loss = "mse");
    }
    return t;
}

// test_distribution_strategy_with_symbolic_add_loss.
static void losses_of_layers(void)
{
    make_kinds();
    double first[2] = {0};
    for (int k = 0; k < KINDS; k++) {
        training t = make_training(kinds[k]);
        mu_history *h = mu_fit(t.model, numbers(64, 1), ones(64, 1), .epochs = 2, .no_shuffle = true, QUIET);
        CHECK(h);
        for (int epoch = 0; epoch < 2; epoch++)
            SAME_AS_FIRST(k, mu_history_at(h, "loss", epoch), &first[epoch]);
    }
}

static mu_value *merge_nothing(mu_strategy *strategy, mu_value *arguments, void *arg)
{
    (void)strategy, (void)arguments, (void)arg;
    return mu_list(MU_END);
}

static mu_value *own_and_added(mu_value *arguments, void *arg)
{
    const training *t = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_call(t->model, mu_at(arguments, 0), .training = true);
    mu_merge_call(merge_nothing, NULL, NULL);
    mu_value *added = mu_model_losses(t->model);
    CHECK(mu_value_count(added) == 1);
    mu_tensor *loss = mu_reduce_mean(mu_square(y)), *difference = mu_subtract(loss, mu_at(added, 0));
    CHECK(mu_apply_gradients(t->optimizer, mu_gradients(tape, loss, mu_trainable_variables(t->model))) == MU_OK);
    return mu_of(difference);
}

// test_correctness_of_add_loss_with_merge_call: a merge between the call and the loss changes neither.
static void losses_across_merges(void)
{
    make_kinds();
    for (int k = 0; k < KINDS; k++)
        for (int way = 0; way < 2; way++) {
            training t = make_training(kinds[k]);
            mu_dataset *data = mu_dataset_batch(rows_of(mu_list(numbers(60, 1), ones(60, 1), MU_END)), 30);
            mu_function *f = mu_function_new(own_and_added, &t);
            MU_EACH(x, mu_distribute_dataset(kinds[k], data)) {
                mu_value *out = way ? mu_run(kinds[k], f, x) : mu_run_callback(kinds[k], own_and_added, &t, x);
                mu_value *each = mu_local_results(kinds[k], out);
                for (int i = 0; i < mu_num_replicas_in_sync(kinds[k]); i++)
                    EXPECT(mu_value_at(each, i), 0);
            }
        }
}

// ---- Samples ------------------------------------------------------------------------------------

// test_numpy_with_sample_weights, test_dataset_with_sample_weights.
static void weights_of_samples(void)
{
    make_kinds();
    mu_tensor *x = mu_reshape(VECTOR(0, 1, 2, 3), 2, (int64_t[]){4, 1});
    mu_tensor *y = mu_reshape(VECTOR(2, 4, 6, 8), 2, (int64_t[]){4, 1}), *weights = VECTOR(.25, .5, .75, 1);
    for (int k = 0; k < KINDS; k++) {
        mu_model *m = NULL;
        MU_SCOPE(kinds[k]) {
            m = mu_sequential(mu_input_layer({1}), mu_dense(1, .kernel_initializer = "ones"));
            mu_compile(m, .optimizer = "rmsprop", .loss = "mse");
        }
        mu_history *h = mu_evaluate(m, x, y, .batch_size = 2, .sample_weight = weights, QUIET);
        CHECK(fabs(mu_history_last(h, "loss") - 10.625) < 1e-5);
        h = mu_evaluate(m, mu_dataset_batch(rows_of(mu_list(x, y, weights, MU_END)), 3), QUIET);
        CHECK(fabs(mu_history_last(h, "loss") - 10.625) < 1e-5);
        h = mu_evaluate(m, x, y, .batch_size = 2, QUIET);
        CHECK(fabs(mu_history_last(h, "loss") - 13.5) < 1e-5);
    }
}

static mu_model *three_to_four(mu_strategy *s)
{
    mu_model *m = NULL;
    MU_SCOPE(s) {
        mu_tensor *x = mu_input({3});
        m = mu_model_new(x, mu_call(mu_dense(4, .kernel_initializer = "ones"), x));
        mu_compile(m, .optimizer = mu_sgd(.learning_rate = .001), .loss = "mse",
                   .metrics = MU_METRICS("mae", "categorical_accuracy"));
    }
    return m;
}

static bool keep_all(mu_value *element, void *arg)
{
    (void)element, (void)arg;
    return true;
}

// test_evaluate_with_partial_batch, test_predict_with_partial_batch, also of data of unknown length.
static void partial_batches(void)
{
    make_kinds();
    mu_dataset *x = rows_of(mu_of(numbers(10, 3))), *both = rows_of(mu_list(numbers(10, 3), numbers(10, 4), MU_END));
    double loss = 0, mae = 0, first[4] = {0};
    for (int k = 0; k < KINDS; k++) {
        mu_model *m = three_to_four(kinds[k]);
        mu_tensor *all[] = {mu_predict(m, numbers(10, 3), .batch_size = 4, QUIET),
                            mu_predict(m, mu_dataset_batch(x, 4), .steps = 3, QUIET),
                            mu_predict(m, mu_dataset_batch(x, 6), QUIET),
                            mu_predict(m, mu_dataset_batch(mu_dataset_filter(x, keep_all, NULL), 4), QUIET)};
        for (int i = 0; i < 4; i++) {
            CHECK(all[i] && mu_tensor_elements(all[i]) == 40);
            SAME_AS_FIRST(k, mu_scalar(mu_reduce_sum(all[i])), &first[i]);
        }
        for (int size = 4; size <= 6; size += 2) {
            mu_history *h = mu_evaluate(m, mu_dataset_batch(both, size), QUIET);
            SAME_AS_FIRST(size == 4 ? k : 1, mu_history_last(h, "loss"), &loss);
            SAME_AS_FIRST(size == 4 ? k : 1, mu_history_last(h, "mae"), &mae);
        }
    }
}

// test_model_interleaved_eval_same_as_direct_eval.
static void evaluations_between_epochs(void)
{
    static const char *const names[][2] = {
        {"val_loss", "loss"}, {"val_mae", "mae"}, {"val_categorical_accuracy", "categorical_accuracy"}};
    make_kinds();
    for (int k = 0; k < KINDS; k++) {
        mu_model *inside = three_to_four(kinds[k]), *outside = three_to_four(kinds[k]);
        mu_dataset *rows = rows_of(mu_list(numbers(10, 3), numbers(10, 4), MU_END));
        mu_dataset *data = mu_dataset_batch(mu_dataset_repeat(rows, 100), 10);
        mu_history *h = mu_fit(inside, data, .epochs = 2, .steps_per_epoch = 2, .validation_data = data,
                               .validation_steps = 2, QUIET);
        for (int epoch = 0; epoch < 2; epoch++) {
            CHECK(mu_fit(outside, data, .steps_per_epoch = 2, QUIET));
            mu_history *direct = mu_evaluate(outside, data, .steps = 2, QUIET);
            for (size_t i = 0; i < MU_COUNT(names); i++)
                CHECK(mu_history_at(h, names[i][0], epoch) == mu_history_last(direct, names[i][1]));
        }
    }
}

static mu_model *two_inputs(mu_strategy *s, bool by_name)
{
    mu_model *m = NULL;
    MU_SCOPE(s) {
        mu_tensor *z = mu_input({16}, .name = "z_last"), *a = mu_input({32}, .name = "a_first");
        mu_value *both = mu_list(mu_call(mu_dense(10, .kernel_initializer = "ones"), z),
                                 mu_call(mu_dense(10, .kernel_initializer = "ones"), a), MU_END);
        mu_tensor *y = mu_call(mu_dense(2, .kernel_initializer = "ones"), mu_call(mu_add_layer(), .inputs = both));
        m = mu_model_new(.inputs = by_name ? mu_map("z_last", z, "a_first", a, MU_END) : mu_list(z, a, MU_END),
                         .output = y);
        mu_compile(m, .optimizer = "sgd", .loss = "mse");
    }
    return m;
}

// test_match_model_input_matches_with_dataset_tensors: a map of inputs goes by name, not by the order of its keys.
static void inputs_by_name(void)
{
    make_kinds();
    double first = 0;
    for (int k = 0; k < KINDS; k++)
        for (int by_name = 0; by_name < 2; by_name++) {
            mu_value *map = mu_map("a_first", numbers(32, 32), "z_last", numbers(32, 16), MU_END);
            mu_dataset *data = mu_dataset_batch(rows_of(mu_list(map, ones(32, 2), MU_END)), 4);
            mu_history *h = mu_fit(two_inputs(kinds[k], by_name), data, .steps_per_epoch = 1, QUIET);
            CHECK(h);
            SAME_AS_FIRST(k + by_name, mu_history_last(h, "loss"), &first);
        }
}

// ---- What belongs to the strategy ---------------------------------------------------------------

static mu_status build_two(mu_layer *layer, int n, const mu_shape *inputs, void *arg)
{
    (void)n, (void)inputs, (void)arg;
    return mu_layer_add_weight(layer, "unused", (mu_shape){0}, .initializer = "ones") &&
                   mu_layer_add_weight(layer, "v", (mu_shape){0}, .initializer = "ones")
               ? MU_OK
               : mu_error_code();
}

// test_gradients_are_none, and of TestModelCapturesStrategy test_fit_and_evaluate: compiled and trained outside of the
// scope in which it was made, with a metric of elsewhere.
static void owned_by_the_strategy(void)
{
    make_kinds();
    for (int k = 0; k < KINDS; k++) {
        mu_model *m = NULL;
        MU_SCOPE(kinds[k])
            m = mu_sequential(mu_input_layer({4}), mu_layer_new("add", .build = build_two, .call = add_one_weight));
        CHECK(mu_compile(m, .optimizer = mu_adam(.learning_rate = .1), .loss = "mse", .metrics = "mae") == MU_OK);
        CHECK(mu_fit(m, ones(64, 4), ones(64, 4), QUIET));
        mu_value *weights = mu_model_weights(m);
        CHECK(mu_value_count(weights) == 2);
        EXPECT(read_of(mu_value_variable(mu_value_at(weights, 0))), 1);
        CHECK(mu_scalar(mu_variable_read(mu_value_variable(mu_value_at(weights, 1)))) < 1);
        for (int i = 0; i < 2; i++)
            CHECK(mu_variable_created_in_scope(kinds[k], mu_value_variable(mu_value_at(weights, i))));
        mu_optimizer *optimizer = mu_model_optimizer(m);
        CHECK(mu_variable_created_in_scope(kinds[k], mu_optimizer_iterations(optimizer)));
        CHECK(mu_variable_created_in_scope(kinds[k], mu_optimizer_learning_rate(optimizer)));
        EXPECT(read_of(mu_optimizer_iterations(optimizer)), 2);
    }
}

static mu_value *step_of_adam(mu_value *arguments, void *arg)
{
    (void)arguments;
    const training *t = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_reduce_sum(mu_call(t->model, ones(1, 2)));
    mu_value *gradients = mu_gradients(tape, y, mu_trainable_variables(t->model));
    return mu_apply_gradients(t->optimizer, gradients) == MU_OK ? mu_list(MU_END) : NULL;
}

static training one_weight_and_adam(mu_strategy *s)
{
    training t = {0};
    MU_SCOPE(s) {
        t.model = mu_sequential(mu_input_layer({2}), mu_dense(1, .no_bias = true));
        t.optimizer = mu_adam();
    }
    return t;
}

static mu_checkpoint *state_of(const training *t)
{
    CHECK(mu_optimizer_build(t->optimizer, mu_trainable_variables(t->model)) == MU_OK);
    return mu_checkpoint_new(.variables = mu_trainable_variables(t->model), .optimizer = t->optimizer);
}

// testCheckpointRestoreOptimizerSlots: inside of the scope and outside, under the strategy that saved and each other.
static void restored_slots(void)
{
    char path[] = "/tmp/muster-pin-XXXXXX";
    const int file = mkstemp(path);
    make_kinds();
    for (int k = 0; k < KINDS; k++)
        for (int inside = 0; inside < 2; inside++) {
            mu_strategy *s = kinds[k];
            training saved = one_weight_and_adam(kinds[1]), restored = one_weight_and_adam(s);
            CHECK(mu_run(kinds[1], mu_function_new(step_of_adam, &saved), NULL));
            CHECK(mu_checkpoint_save(state_of(&saved), path) == MU_OK);
            mu_scope_guard scope = {0};
            if (inside)
                scope = mu_scope_open(s);
            CHECK(mu_checkpoint_restore(state_of(&restored), path) == MU_OK);
            if (inside)
                mu_scope_close(&scope);
            CHECK(mu_variable_created_in_scope(s, mu_optimizer_iterations(restored.optimizer)));
            EXPECT(read_of(mu_optimizer_iterations(restored.optimizer)), 1);
            CHECK(mu_run(s, mu_function_new(step_of_adam, &restored), NULL));
            EXPECT(read_of(mu_optimizer_iterations(restored.optimizer)), 2);
        }
    close(file);
    unlink(path);
}

const one_case pin_model_cases[] = {
    {"pin_penalties", penalties, NULL},
    {"pin_kinds_of_reduction", kinds_of_reduction, NULL},
    {"pin_losses_of_layers", losses_of_layers, NULL},
    {"pin_losses_across_merges", losses_across_merges, NULL},
    {"pin_weights_of_samples", weights_of_samples, NULL},
    {"pin_batches_at_the_end", partial_batches, NULL},
    {"pin_evaluations_between_epochs", evaluations_between_epochs, NULL},
    {"pin_inputs_by_name", inputs_by_name, NULL},
    {"pin_owned_by_the_strategy", owned_by_the_strategy, NULL},
    {"pin_restored_slots", restored_slots, NULL},
    {0},
};
