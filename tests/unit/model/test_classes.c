// Keras's losses and metrics over replicas: each gives the same on one device, on several with parts of different
// sizes, and eagerly; and which options are refused. Values are compared in tests/conformance/classes.py.
#include "model/losses/loss.h"
#include "model/metrics/metric.h"
#include "model/training/training.h"
#include "model_test.h"

#define ROWS    22
#define OUTPUTS 3

static mu_tensor *bits(uint64_t seed)
{
    mu_tensor *random = numbers(2, (int64_t[]){ROWS, OUTPUTS}, seed);
    return mu_cast(mu_greater(random, mu_constant(MU_F64, 0)), MU_F64);
}

static mu_tensor *shares(uint64_t seed) { return mu_sigmoid(numbers(2, (int64_t[]){ROWS, OUTPUTS}, seed)); }

static mu_items *all_metrics(void)
{
    static const double thresholds[] = {.25, .5};
    static const int targets[] = {1};
    return MU_METRICS(
        mu_true_positives_metric(.n_thresholds = 2, .thresholds = thresholds), mu_false_negatives_metric(),
        mu_precision_metric(.top_k = 2), mu_recall_metric(.class_id = 1), mu_precision_at_recall_metric(.5),
        mu_recall_at_precision_metric(.5), mu_sensitivity_at_specificity_metric(.5),
        mu_specificity_at_sensitivity_metric(.5), mu_auc_metric(.multi_label = true, .num_labels = OUTPUTS),
        mu_f1_score_metric(), mu_fbeta_score_metric(.beta = 2, .average = "weighted"), mu_r2_score_metric(),
        mu_cosine_similarity_metric(), mu_concordance_correlation_metric(),
        mu_one_hot_iou_metric(OUTPUTS, .n_target_class_ids = 1, .target_class_ids = targets), mu_binary_iou_metric());
}

static mu_history *measure(int replicas)
{
    mu_strategy *strategy = strategy_of(replicas);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_activation("linear"));
        mu_compile(model, .loss = mu_tversky_loss(.n_axis = 1, .axis = (int[]){1}), .metrics = all_metrics());
    }
    return mu_evaluate(model, shares(2), bits(1), .batch_size = 8, .verbose = MU_VERBOSE_SILENT);
}

static void one_result_on_any_number_of_replicas(void **state)
{
    (void)state;
    mu_history *one = measure(-1);
    if (!one)
        fail_msg("%s", mu_error_message());
    for (int replicas = 2; replicas <= DEVICES; replicas += 3) {
        mu_history *several = measure(replicas);
        if (!several)
            fail_msg("%s", mu_error_message());
        for (int i = 0; i < mu_history_names(one); i++) {
            const char *name = mu_history_name(one, i);
            if (!(fabs(mu_history_last(several, name) - mu_history_last(one, name)) < 1e-12))
                fail_msg("%s: %g on %d replicas, %g on one", name, mu_history_last(several, name), replicas,
                         mu_history_last(one, name));
        }
    }
}

// ---- Training over replicas ---------------------------------------------------------------------

typedef mu_loss *loss_maker(const char *reduction);

static mu_loss *sparse(const char *reduction)
{
    return mu_sparse_categorical_crossentropy_loss(.from_logits = true, .reduction = reduction);
}

static mu_loss *sparse_but_one(const char *reduction)
{
    return mu_sparse_categorical_crossentropy_loss(.from_logits = true, .ignore_class = 1, .reduction = reduction);
}

static mu_loss *dice(const char *reduction) { return mu_dice_loss(.reduction = reduction); }

static mu_loss *tversky_of_columns(const char *reduction)
{
    return mu_tversky_loss(.alpha = .25, .n_axis = 2, .axis = (int[]){-3, 1}, .reduction = reduction);
}

// Weights and losses after two epochs of 11 sequences in batches of 4, whose parts on several replicas are uneven.
// Sequences end early, some within the batch's first rows, and one has no steps at all.
static double *trained_on(int replicas, loss_maker *make, const char *reduction, bool masked, bool weighted, int64_t *n)
{
    enum { SEQUENCES = 11, STEPS = 3, WORDS = 5 };
    mu_tensor *words = mu_add(classes(SEQUENCES * STEPS, WORDS - 1, 3), mu_constant(MU_I64, 1));
    int64_t *data = mu__host_write(words);
    for (int i = 0; i < SEQUENCES; i++)
        memset(data + STEPS * i + i % (STEPS + 1), 0, sizeof *data * (size_t)MU_MAX(STEPS - i % (STEPS + 1), 0));
    mu_tensor *x = mu_reshape(words, 2, (int64_t[]){SEQUENCES, STEPS}), *y = classes(SEQUENCES * STEPS, OUTPUTS, 4);
    const bool regions = make == dice || make == tversky_of_columns;
    y = mu_reshape(y, 2, (int64_t[]){SEQUENCES, STEPS});
    if (regions)
        y = mu_one_hot(y, OUTPUTS, MU_F64);
    mu_model *model = NULL;
    mu_set_seed(5);
    MU_SCOPE(strategy_of(replicas)) {
        model = mu_sequential(mu_embedding(WORDS, 4, .mask_zero = masked),
                              mu_dense(OUTPUTS, .activation = regions ? "sigmoid" : NULL));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = .5), .loss = make(reduction));
    }
    mu_tensor *weights = weighted ? mu_abs(numbers(1, (int64_t[]){SEQUENCES}, 6)) : NULL;
    mu_history *history = mu_fit(model, x, y, .sample_weight = weights, .epochs = 2, .batch_size = 4,
                                 .no_shuffle = true, .verbose = MU_VERBOSE_SILENT);
    if (!history)
        fail_msg("%s", mu_error_message());
    double *all = weights_of(model, n);
    all[(*n)++] = mu_history_last(history, "loss"); // weights_of has room for one more
    return all;
}

// With every reduction, with masks, ignored classes and weights, training on 2 and 3 replicas reaches the weights of
// one.
static void reductions_on_uneven_replicas(void **state)
{
    (void)state;
    static const char *const reductions[] = {"sum_over_batch_size", "sum", "mean_with_sample_weight"};
    static loss_maker *const losses[] = {sparse, sparse_but_one, dice, tversky_of_columns};
    for (size_t i = 0; i < MU_COUNT(losses) * MU_COUNT(reductions) * 4; i++) {
        loss_maker *make = losses[i % 4];
        const bool masked = i / 4 % 2, weighted = i / 8 % 2;
        const char *reduction = reductions[i / 16];
        int64_t n, m;
        if (make == tversky_of_columns && (masked || weighted))
            continue; // its losses are of columns, which neither masks nor weights are of
        double *wanted = trained_on(1, make, reduction, masked, weighted, &n);
        for (int replicas = 2; replicas <= 3; replicas++) {
            double *seen = trained_on(replicas, make, reduction, masked, weighted, &m);
            for (int64_t k = 0; k < n; k++)
                if (!(fabs(seen[k] - wanted[k]) <= 1e-11 * fmax(1, fabs(wanted[k]))))
                    fail_msg("loss %zu, %s, mask %d, weights %d: %lld of %lld is %.15g, not %.15g, on %d replicas",
                             i % 4, reduction, masked, weighted, (long long)k, (long long)n, seen[k], wanted[k],
                             replicas);
            free(seen);
        }
        free(wanted);
    }
}

static void several_results(void **state)
{
    (void)state;
    double results[OUTPUTS] = {0};
    mu_metric *score = mu_f1_score_metric();
    assert_int_equal(mu_metric_results(score, OUTPUTS, results), 0);
    assert_int_equal(mu_metric_update(score, bits(1), shares(2)), MU_OK);
    assert_int_equal(mu_metric_results(score, 1, results), OUTPUTS);
    assert_true(results[0] > 0 && results[1] == 0);
    assert_int_equal(mu_metric_results(score, OUTPUTS, results), OUTPUTS);
    assert_number(mu_metric_result(score), (results[0] + results[1] + results[2]) / 3, 1e-15);
    assert_int_equal(mu_metric_results(mu_accuracy(), 1, results), 0);
    assert_int_equal(mu_metric_update(score, numbers(2, (int64_t[]){4, 2}, 1), numbers(2, (int64_t[]){4, 2}, 2)),
                     MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "with the same outputs in every batch");
}

// A vector of zeros has no direction, and no gradient; labels of a small type are compared with any ignored class, and
// what is predicted for an ignored label has no gradient either.
static void nothing_is_divided_by_zero(void **state)
{
    (void)state;
    mu_tensor *zeros = mu_zeros(MU_F64, 2, (int64_t[]){2, 3}), *y = numbers(2, (int64_t[]){2, 3}, 1);
    const uint8_t classes[] = {2, 255};
    const double rows[] = {1, 2, 3, NAN, 1, 2};
    mu_tensor *labels = mu_tensor_new(MU_U8, 1, (int64_t[]){2}, classes);
    mu_tensor *logits = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 3}, rows);
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = mu_identity(zeros), *z = mu_identity(logits);
    mu_loss *sparse = mu_sparse_categorical_crossentropy_loss(.from_logits = true, .ignore_class = 255);
    mu_tensor *both = mu_add(mu_reduce_sum(mu_loss_call(mu_cosine_similarity_loss(), y, x), MU_ALL_AXES),
                             mu_reduce_sum(mu_loss_call(sparse, labels, z), MU_ALL_AXES));
    mu_value *gradients = mu_gradients(tape, both, mu_list(x, z, MU_END));
    mu_tape_close(tape);
    if (!gradients)
        fail_msg("%s", mu_error_message());
    for (int i = 0; i < 6; i++) {
        assert_true(isfinite(doubles(mu_at(gradients, 0))[i]));
        assert_true(isfinite(doubles(mu_at(gradients, 1))[i]));
    }
    mu_loss *never = mu_sparse_categorical_crossentropy_loss(.from_logits = true, .ignore_class = -1);
    mu_tensor *one = mu_slice(labels, (int64_t[]){0}, (int64_t[]){1}),
              *row = mu_slice(logits, (int64_t[]){0, 0}, (int64_t[]){1, 3});
    assert_true(doubles(mu_loss_call(never, one, row))[0] > 0);
}

static void options_are_checked(void **state)
{
    (void)state;
    assert_null(mu_iou_metric(2));
    expect_error(MU_INVALID_ARGUMENT, "mu_iou_metric: 0 target_class_ids; give the classes");
    assert_null(mu_mean_iou_metric(2, .n_target_class_ids = 1, .target_class_ids = (int[]){1}));
    expect_error(MU_INVALID_ARGUMENT, "leave them out");
    assert_null(mu_binary_iou_metric(.n_target_class_ids = 1, .target_class_ids = (int[]){2}));
    expect_error(MU_INVALID_ARGUMENT, "target_class_ids has class 2; there are 2 classes");
    assert_null(mu_precision_metric(.n_thresholds = 2));
    expect_error(MU_INVALID_ARGUMENT, "n_thresholds is 2 and thresholds is NULL");
    assert_null(mu_recall_metric(.n_thresholds = 1, .thresholds = (double[]){1.5}));
    expect_error(MU_INVALID_ARGUMENT, "thresholds is 1.5; it must be from 0 to 1");
    assert_null(mu_auc_metric(.num_labels = 3));
    expect_error(MU_INVALID_ARGUMENT, "num_labels is 3, but multi_label is false");
    assert_null(mu_f1_score_metric(.average = "median"));
    expect_error(MU_INVALID_ARGUMENT, "must be one of 'micro', 'macro', 'weighted'");
    assert_null(mu_categorical_generalized_cross_entropy_loss(.q = 1));
    expect_error(MU_INVALID_ARGUMENT, "q is 1; it must be between 0 and 1");
    assert_null(mu_metric_named("iuo"));
    expect_error(MU_INVALID_ARGUMENT, "no metric is named 'iuo'; expected an object or one of accuracy, ");
}

static const mu_count_args *options_of(const mu_metric *metric)
{
    assert_non_null(metric);
    return metric->args;
}

// Files have the threshold of a metric as a list of one, whether its name or its number says that it was given.
static void given_thresholds_are_listed(void **state)
{
    (void)state;
    const mu_metric *listed[] = {
        mu_precision_metric_with(&(mu_precision_args){.size = sizeof(mu_precision_args), .threshold = .9}),
        mu_recall_metric_with(&(mu_precision_args){.size = sizeof(mu_precision_args), .threshold = .9, .top_k = 2}),
        mu_true_positives_metric_with(&(mu_count_args){.size = sizeof(mu_count_args), .threshold = .9}),
        mu_precision_metric(.threshold = .9)};
    for (size_t i = 0; i < MU_COUNT(listed); i++) {
        assert_int_equal(options_of(listed[i])->n_thresholds, 1);
        assert_number(options_of(listed[i])->thresholds[0], .9, 0);
    }
    assert_number(options_of(mu_precision_metric(.threshold = .5))->thresholds[0], .5, 0);
    assert_int_equal(options_of(mu_precision_metric(.top_k = 2))->n_thresholds, 0);
    assert_int_equal(options_of(mu_true_positives_metric())->n_thresholds, 0);
}

static void shapes_are_checked(void **state)
{
    (void)state;
    mu_tensor *labels = mu_zeros(MU_I64, 1, (int64_t[]){4}), *logits = numbers(3, (int64_t[]){4, 5, 3}, 1);
    assert_null(mu_loss_call(mu_ctc_loss(), labels, logits));
    expect_error(MU_INVALID_ARGUMENT, "mu_ctc_loss: the labels have shape [4], the predictions [4, 5, 3]; expected");
    assert_null(mu_loss_call(mu_cosine_similarity_loss(.axis = 4), logits, logits));
    expect_error(MU_INVALID_ARGUMENT, "axis is 4; the predictions have 3 axes");
    mu_metric *precision = mu_precision_metric(.class_id = 7);
    assert_int_equal(mu_metric_update(precision, bits(1), shares(2)), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "more than class_id 7");
    // A batch that is refused does not say how many labels there are.
    mu_metric *auc = mu_auc_metric(.multi_label = true);
    assert_int_equal(mu_metric_update(auc, bits(1), numbers(2, (int64_t[]){ROWS, OUTPUTS + 1}, 2)),
                     MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "the labels have shape");
    assert_int_equal(mu_metric_update(auc, bits(1), shares(2)), MU_OK);
    assert_int_equal(mu_metric_update(mu_pearson_correlation_metric(), labels, logits), MU_INVALID_ARGUMENT);
    expect_error(MU_INVALID_ARGUMENT, "expected one shape that has this axis");
}

static void assert_same_losses(mu_tensor *a, mu_tensor *b)
{
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(mu_tensor_elements(a), mu_tensor_elements(b));
    assert_near(doubles(a), doubles(b), (int)mu_tensor_elements(a), 1e-12);
}

// "ce" chooses by the shapes that it is given: one output is a decision, also for labels without its axis.
static void the_name_of_several_losses_chooses(void **state)
{
    (void)state;
    mu_loss *ce = mu_loss_named("ce");
    mu_tensor *of_steps = mu_cast(mu_greater(numbers(2, (int64_t[]){4, 3}, 1), mu_constant(MU_F64, 0)), MU_F64);
    mu_tensor *p = mu_sigmoid(numbers(3, (int64_t[]){4, 3, 1}, 2));
    assert_same_losses(mu_loss_call(ce, of_steps, p), mu_loss_call(mu_binary_crossentropy_loss(), of_steps, p));
    mu_tensor *many = mu_nn_softmax(numbers(2, (int64_t[]){4, 3}, 3), -1), *numbered = classes(4, 3, 1);
    assert_same_losses(mu_loss_call(ce, of_steps, many),
                       mu_loss_call(mu_categorical_crossentropy_loss(), of_steps, many));
    assert_same_losses(mu_loss_call(ce, numbered, many),
                       mu_loss_call(mu_sparse_categorical_crossentropy_loss(), numbered, many));
}

// The logits of a softmax count if it is along the axis of the loss; else the loss is that of the probabilities.
static void logits_are_those_of_the_axis(void **state)
{
    (void)state;
    mu_tensor *x = mu_multiply(numbers(3, (int64_t[]){2, 3, 4}, 1), mu_constant(MU_F64, 200));
    mu_tensor *labels = mu_nn_softmax(numbers(3, (int64_t[]){2, 3, 4}, 2), 1);
    mu_loss *along = mu_categorical_crossentropy_loss(.axis = 1);
    mu_loss *of_logits = mu_categorical_crossentropy_loss(.axis = 1, .from_logits = true);
    assert_same_losses(mu_loss_call(along, labels, mu_call(mu_softmax(.axis = 1), x)),
                       mu_loss_call(of_logits, labels, x));
    assert_same_losses(mu_loss_call(along, labels, mu_call(mu_softmax(.axis = -1), x)),
                       mu_loss_call(along, labels, mu_nn_softmax(x, -1)));
}

static void ctc_of_too_many_labels_is_infinite(void **state)
{
    (void)state;
    mu_tensor *labels = mu_ones(MU_I64, 2, (int64_t[]){2, 3}), *logits = numbers(3, (int64_t[]){2, 4, 3}, 1);
    mu_tensor *losses = mu_loss_call(mu_ctc_loss(), labels, logits); // three equal labels need two blanks: 5 moments
    assert_true(isinf(mu_tensor_item(losses, 0)) && isinf(mu_tensor_item(losses, 1)));
}

// Labels of the ignored class add neither to the loss nor to its divisor.
static void ignored_class(void **state)
{
    (void)state;
    mu_tensor *scores = numbers(2, (int64_t[]){4, 3}, 3);
    mu_tensor *labels = mu_tensor_new(MU_I64, 1, (int64_t[]){4}, (int64_t[]){0, 2, 255, 1});
    mu_loss *all = mu_sparse_categorical_crossentropy_loss(.from_logits = true);
    mu_loss *some = mu_sparse_categorical_crossentropy_loss(.from_logits = true, .ignore_class = 255);
    mu_tensor *losses = mu_loss_call(some, labels, scores);
    assert_true(mu_tensor_item(losses, 2) == 0);
    mu_metric *mean = mu_loss_metric(some), *wanted = mu_loss_metric(all);
    const int64_t kept[] = {0, 1, 3};
    mu_tensor *which = mu_tensor_new(MU_I64, 1, (int64_t[]){3}, kept);
    assert_int_equal(mu_metric_update(mean, labels, scores), MU_OK);
    assert_int_equal(mu_metric_update(wanted, mu_gather(labels, which, 0, 0), mu_gather(scores, which, 0, 0)), MU_OK);
    assert_number(mu_metric_result(mean), mu_metric_result(wanted), 1e-15);
}

// Labels that are floats, as files of numbers have them, are truncated, as in Keras.
static void class_numbers_in_floats(void **state)
{
    (void)state;
    mu_tensor *scores = numbers(2, (int64_t[]){2, 3}, 3);
    mu_tensor *whole = mu_tensor_new(MU_I64, 1, (int64_t[]){2}, (int64_t[]){1, 2});
    mu_tensor *parts = mu_tensor_new(MU_F64, 1, (int64_t[]){2}, (double[]){1.7, 2.2});
    mu_tensor *column = mu_tensor_new(MU_F32, 2, (int64_t[]){2, 1}, (float[]){1, 2});
    mu_loss *loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true);
    mu_tensor *expected = mu_loss_call(loss, whole, scores);
    mu_tensor *of_parts = mu_loss_call(loss, parts, scores), *of_column = mu_loss_call(loss, column, scores);
    for (int i = 0; i < 2; i++) {
        assert_true(mu_tensor_item(of_parts, i) == mu_tensor_item(expected, i));
        assert_true(mu_tensor_item(of_column, i) == mu_tensor_item(expected, i));
    }
    assert_null(mu_loss_call(loss, scores, scores)); // one-hot labels are no class numbers
    expect_error(MU_INVALID_ARGUMENT, "for one-hot labels use the categorical cross-entropy");
}

static void crossentropy_of_probabilities(void **state)
{
    (void)state;
    static const double hot[] = {1, 0, 0, 0, 1, 0}, given[] = {.5, .25, .25, .1, .8, .1};
    mu_tensor *labels = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 3}, hot);
    mu_tensor *probabilities = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 3}, given);
    mu_tensor *losses = mu_loss_call(mu_categorical_crossentropy_loss(), labels, probabilities);
    assert_int_equal(mu_tensor_dim(losses, 0), 2);
    assert_number(mu_tensor_item(losses, 0), -log(.5), 1e-14);
    assert_number(mu_tensor_item(losses, 1), -log(.8), 1e-14);
}

static void regularizers_and_initializers(void **state)
{
    (void)state;
    assert_null(mu_orthogonal_regularizer(-1, NULL));
    expect_error(MU_INVALID_ARGUMENT, "mu_orthogonal_regularizer: factor is -1; it must be 0 or more");
    assert_null(mu_orthogonal_regularizer(1, "row"));
    expect_error(MU_INVALID_ARGUMENT, "mode is 'row'; it must be one of 'rows', 'columns'");
    const mu_shape wide = MU_SHAPE(2, 3), row = MU_SHAPE(3);
    mu_tensor *eye = initial("identity", MU_F64, wide);
    for (int i = 0; i < 6; i++)
        assert_true(mu_tensor_item(eye, i) == (i == 0 || i == 4));
    assert_null(initial("identity", MU_F64, row));
    expect_error(MU_INVALID_ARGUMENT, "the initializer 'identity' makes matrices, and a weight has shape [3]");
    assert_null(mu_layer_from_config("{\"class_name\": \"Dense\", \"config\": {\"units\": 2, \"kernel_initializer\": "
                                     "{\"class_name\": \"RandomNormal\", \"config\": {\"stddev\": -0.5}}}}"));
    expect_error(MU_INVALID_ARGUMENT, "mu_random_normal_initializer: stddev is -0.5; it must be 0 or more");
    assert_null(mu_layer_from_config(
        "{\"class_name\": \"Dense\", \"config\": {\"units\": 2, \"kernel_initializer\": \"nice\"}}"));
    expect_error(MU_UNIMPLEMENTED, "the configuration has the initializer 'nice', which Muster lacks");
    assert_null(mu_dense(1, .kernel_initializer = mu_l2(1)));
    expect_error(MU_INVALID_ARGUMENT, "mu_dense: a regularizer is given where an initializer is expected");
}

static mu_tensor *nothing(mu_tensor *weight, void *arg)
{
    (void)weight, (void)arg;
    return NULL;
}

static mu_tensor *wrong_type(mu_dtype dtype, const mu_shape *shape, void *arg)
{
    (void)dtype, (void)arg;
    return mu_zeros(MU_F16, shape->rank, shape->dims);
}

static void functions_of_the_program(void **state)
{
    (void)state;
    assert_null(mu_constraint_call(mu_constraint_new(nothing), mu_ones(MU_F64, 1, (int64_t[]){2})));
    expect_error(MU_INVALID_ARGUMENT, "mu_constraint_new: its function returned NULL without an error");
    assert_null(mu_initializer_call(mu_initializer_new(wrong_type), MU_F64, MU_SHAPE(2)));
    expect_error(MU_INVALID_ARGUMENT, "mu_initializer_new: the value is float16 [2]; the weight is float64 [2]");
    assert_null(mu_layer_config(mu_dense(1, .kernel_constraint = mu_constraint_new(nothing))));
    expect_error(MU_UNIMPLEMENTED, "the constraint of a function of the program's own has no configuration");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(one_result_on_any_number_of_replicas),
        MODEL_TEST(reductions_on_uneven_replicas),
        MODEL_TEST(several_results),
        MODEL_TEST(options_are_checked),
        MODEL_TEST(nothing_is_divided_by_zero),
        MODEL_TEST(given_thresholds_are_listed),
        MODEL_TEST(the_name_of_several_losses_chooses),
        MODEL_TEST(logits_are_those_of_the_axis),
        MODEL_TEST(shapes_are_checked),
        MODEL_TEST(ctc_of_too_many_labels_is_infinite),
        MODEL_TEST(ignored_class),
        MODEL_TEST(class_numbers_in_floats),
        MODEL_TEST(crossentropy_of_probabilities),
        MODEL_TEST(regularizers_and_initializers),
        MODEL_TEST(functions_of_the_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
