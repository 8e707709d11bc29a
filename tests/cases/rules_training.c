// What TensorFlow's tests of custom training loops, metrics and optimizers ask beside the numbered cases: metrics on
// replicas and outside, gradients of steps, sparse reductions in steps, counters, loops over input.
#include "cases.h"

static mu_strategy *all_kinds[5];
static int n_kinds(void)
{
    all_kinds[0] = mirrored(2);
    all_kinds[1] = mu_central_storage_strategy(.replicas = 2);
    all_kinds[2] = mirrored(1);
    all_kinds[3] = mu_one_device_strategy("CPU:0");
    all_kinds[4] = mu_default_strategy();
    return 5;
}

static mu_dataset *numbers(int first, int last, int batch)
{
    return mu_dataset_batch(mu_dataset_range(first, last + 1, 1), batch);
}

static mu_tensor *floats(mu_value *value) { return mu_cast(mu_value_tensor(value), MU_F32); }

// ---- Metrics ------------------------------------------------------------------------------------

static mu_value *add_to_metrics(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_metric *const *both = arg;
    mu_metric_update(both[0], scalar(5), NULL);
    mu_metric_update(both[1], scalar(5), NULL);
    return NULL;
}

static mu_value *add_batch(mu_value *arguments, void *arg)
{
    mu_metric_update(arg, floats(arguments), NULL);
    return NULL;
}

static mu_metric *metric_of(mu_strategy *s)
{
    mu_metric *made = NULL;
    MU_SCOPE(s)
        made = mu_mean_metric("loss");
    return made;
}

static void metrics_in_steps(void)
{
    for (int k = n_kinds() - 1; k >= 0; k--)
        for (int i = 0; i < 2; i++) {
            mu_strategy *s = all_kinds[k];
            mu_metric *both[] = {metric_of(s), metric_of(s)}, *mean = metric_of(s);
            CHECK((i ? traced : eager)(s, add_to_metrics, both));
            CHECK(mu_metric_result(both[0]) == 5 && mu_metric_result(both[1]) == 5);
            mu_function *step = mu_function_new(add_batch, mean);
            MU_EACH(batch, mu_distribute_dataset(s, numbers(0, 9, 2)))
                CHECK(i ? mu_run(s, step, batch) : mu_run_callback(s, add_batch, mean, batch));
            CHECK(mu_metric_result(mean) == 4.5);
            CHECK(mu_metric_reset(mean) == MU_OK && mu_metric_result(mean) == 0);
        }
}

static void metrics_outside(void)
{
    for (int k = n_kinds() - 1; k >= 0; k--) {
        mu_metric *mean = mu_mean_metric(NULL); // made outside of the scope
        MU_SCOPE(all_kinds[k])
            for (int i = 0; i < 10; i++)
                CHECK(mu_metric_update(mean, scalar(i), NULL) == MU_OK);
        CHECK(mu_metric_result(mean) == 4.5);
    }
}

// ---- Gradients ----------------------------------------------------------------------------------

static mu_value *gradient_of_square(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = floats(arguments);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_square(x);
    return mu_gradients(tape, y, mu_list(x, MU_END));
}

static void gradients_of_steps(void)
{
    for (int k = n_kinds() - 1; k >= 0; k--)
        for (int i = 0; i < 2; i++) {
            mu_strategy *s = all_kinds[k];
            mu_function *step = mu_function_new(gradient_of_square, NULL);
            double wanted = 10;
            MU_EACH(batch, mu_distribute_dataset(s, numbers(5, 8, 2))) {
                mu_value *g = i ? mu_run(s, step, batch) : mu_run_callback(s, gradient_of_square, NULL, batch);
                EXPECT(mu_local_results(s, g), wanted, wanted + 2);
                wanted += 4;
            }
            CHECK(wanted == 18);
        }
}

typedef struct weighing {
    mu_variable *variable;
    bool inside; // the reduction is part of what is differentiated
} weighing;

// Each replica's loss is (id + 1) times the variable.
static mu_value *gradient_of_variable(mu_value *arguments, void *arg)
{
    (void)arguments;
    const weighing *w = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = mu_multiply(mu_add(id(), scalar(1)), mu_variable_read(w->variable));
    if (w->inside)
        loss = mu_all_reduce(MU_MEAN, loss);
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(w->variable, MU_END));
    mu_tape_close(tape);
    return w->inside ? gradients : mu_all_reduce_value(MU_SUM, gradients);
}

static void gradients_of_variables(void)
{
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 4; i++) {
        weighing w = {.variable = on_write(s, 2, MU_AGGREGATION_NONE), .inside = i / 2};
        mu_value *g = (i % 2 ? traced : eager)(s, gradient_of_variable, &w);
        if (w.inside)
            EXPECT(g, 1, 2); // the mean of two ones, times each one's factor
        else
            EXPECT(g, 3, 3);
    }
}

static mu_value *slices(mu_tensor *row, mu_tensor *value)
{
    return mu_indexed_slices(mu_reshape(value, 2, (int64_t[]){1, 1}), mu_cast(row, MU_I32), 2, (int64_t[]){4, 1});
}

static mu_value *reduce_slices(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_value *own = slices(mu_expand_dims(id(), 0), mu_add(id(), scalar(1)));
    mu_value *all = mu_all_reduce_value(*(mu_reduce_op *)arg, own);
    CHECK(all && mu_value_kind_of(all) == MU_VALUE_SLICES);
    return all ? mu_list(mu_at(all, 0), mu_at(all, 1), MU_END) : NULL;
}

static void sparse_reductions(void)
{
    mu_reduce_op sum = MU_SUM, mean = MU_MEAN;
    mu_strategy *s = mirrored(2);
    for (int i = 0; i < 2; i++) {
        mu_value *result = (i ? traced : eager)(s, reduce_slices, &sum);
        EXPECT(mu_value_at(mu_local_results(s, result), 1), 1, 2, 0, 1);
        result = (i ? traced : eager)(s, reduce_slices, &mean);
        EXPECT(mu_value_at(mu_local_results(s, result), 0), .5, 1, 0, 1);
    }
    EXPECT(reduce_slices(NULL, &mean), 1, 0);
}

// ---- Counters and state -------------------------------------------------------------------------

typedef struct counters {
    mu_variable *step, *seen;
} counters;

static mu_value *count(mu_value *arguments, void *arg)
{
    const counters *c = arg;
    mu_tensor *rows = mu_cast(mu_dim_size(mu_value_tensor(arguments), 0), MU_F32);
    mu_variable_assign_add(c->seen, rows);
    mu_variable_assign_add(c->step, mu_constant(MU_I64, 1));
    return read_of(c->step);
}

// A step counter counts steps, however many replicas there are; an ON_READ sum counts samples.
static void counting(void)
{
    for (int k = n_kinds() - 1; k >= 0; k--)
        for (int i = 0; i < 2; i++) {
            mu_strategy *s = all_kinds[k];
            counters c = {
                .step = variable(s, mu_constant(MU_I64, 0), MU_SYNCHRONIZATION_AUTO, MU_AGGREGATION_ONLY_FIRST_REPLICA),
                .seen = on_read(s, 0, MU_AGGREGATION_SUM)};
            mu_function *step = mu_function_new(count, &c);
            MU_EACH(batch, mu_distribute_dataset(s, numbers(0, 10, 4)))
                CHECK(i ? mu_run(s, step, batch) : mu_run_callback(s, count, &c, batch));
            EXPECT(read_of(c.step), 3);
            EXPECT(read_of(c.seen), 11);
        }
}

static mu_value *random_rows(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_add(floats(arguments), mu_variable_read(arg)));
}

// Variables are read as arguments of a step too, and steps follow each other's writes.
static mu_value *assign_and_return(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign_add(arg, mu_add(id(), scalar(1)));
    return read_of(arg);
}

static void writes_are_seen(void)
{
    mu_strategy *s = mirrored(2);
    mu_variable *v = on_write(s, 0, MU_AGGREGATION_SUM);
    for (int i = 1; i <= 4; i++)
        EXPECT((i % 2 ? traced : eager)(s, assign_and_return, v), 3 * i, 3 * i);
    mu_function *reader = mu_function_new(random_rows, v);
    EXPECT(mu_run(s, reader, PER_REPLICA(1, 2)), 13, 14);
    CHECK(mu_variable_assign(v, scalar(1)) == MU_OK);
    EXPECT(mu_run(s, reader, PER_REPLICA(1, 2)), 2, 3);
    CHECK(mu_function_trace_count(reader) == 1);
}

// ---- Optimizers ---------------------------------------------------------------------------------

typedef struct training {
    mu_variable *variable;
    mu_optimizer *optimizer;
} training;

static mu_value *minimise(mu_value *arguments, void *arg)
{
    (void)arguments;
    const training *t = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *loss = mu_multiply(mu_add(id(), scalar(1)), mu_variable_read(t->variable));
    mu_value *gradients = mu_gradients(tape, loss, mu_variables(t->variable, MU_END));
    mu_tape_close(tape);
    mu_apply_gradients(t->optimizer, gradients);
    return read_of(t->variable);
}

// Gradients of all replicas are added up, once for each step.
static void optimizers(void)
{
    for (int k = n_kinds() - 2; k >= 0; k--)
        for (int i = 0; i < 2; i++) {
            mu_strategy *s = all_kinds[k];
            training t = {.variable = on_write(s, 1, MU_AGGREGATION_NONE)};
            MU_SCOPE(s)
                t.optimizer = mu_sgd(.learning_rate = .5);
            const double sum = mu_num_replicas_in_sync(s) == 2 ? 3 : 1;
            CHECK((i ? traced : eager)(s, minimise, &t) && (i ? traced : eager)(s, minimise, &t));
            EXPECT(read_of(t.variable), 1 - 2 * .5 * sum);
        }
}

const one_case rule_training_cases[] = {
    {"rule_loop_metrics", metrics_in_steps, NULL},
    {"rule_loop_metrics_outside", metrics_outside, NULL},
    {"rule_loop_gradients", gradients_of_steps, NULL},
    {"rule_loop_variables", gradients_of_variables, NULL},
    {"rule_loop_sparse", sparse_reductions, NULL},
    {"rule_loop_counters", counting, NULL},
    {"rule_loop_writes", writes_are_seen, NULL},
    {"rule_loop_optimizers", optimizers, NULL},
    {0},
};
