// served_job PART: a coordinator under `muster launch --workers 3 --ps 2`, which kills some of its servers itself.
//
// counts:      a worker is killed while steps run. All steps end, each counts, and the worker comes back and gets its
//              dataset again, which it iterates itself.
// weights:     workers are killed between steps, of which one is in progress at a time. The weights are those of one
//              device, bit by bit.
// killed:      cases ps-064 and ps-067: a counter continues with a worker killed; a result that was fetched can be
//              fetched again when all workers are dead.
// fit:         mu_fit, mu_evaluate and mu_predict on the workers, one of which is killed: metrics are exact, outputs in
//              order.
// own_values:  each worker counts its steps in a variable of its own, to which it connects with its own key.
// branches:    variables in branches and loops of a step, also those of an optimizer that accumulates gradients.
// steps:       synchronous steps of 2 calls on 3 workers, which are killed while it runs: the weights of two replicas.
// visits:      a visitation guarantee, workers killed likewise: every batch counts exactly once in each epoch.
// copied_steps, copied_visits: the same with copies, and servers that are killed: the same weights, bit by bit, as
//              without a kill, and every batch counts exactly once.
// lost_server: a parameter server is killed. Steps fail with UNAVAILABLE, naming it (case ps-068).
// copied:      each server's variables have a copy on the other. Both servers are killed, one after the other, while
//              steps run. All steps end, and each counts once.
// nobody:      no launcher, and no server: the strategy is not made.
//
// The exit code is 0 if all is as expected.
#define _GNU_SOURCE // usleep, setenv
#include <muster.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "served_tasks.h"

enum { STEPS = 300, ROWS = 16, COLUMNS = 7, TRAINED = 12 };

// ---- counts -------------------------------------------------------------------------------------

static mu_value *add(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_variable_assign_add(arg, x);
    return mu_of(x);
}

static mu_dataset *ones(void *arg)
{
    ++*(atomic_int *)arg;
    return mu_dataset_repeat(mu_dataset_from_tensors(mu_of(mu_constant(MU_F32, 1))), MU_INFINITE);
}

// Schedules steps one after the other until worker 1 has done one more and, if it was killed, has lost one. Returns the
// number of steps.
static int until_it_works(mu_coordinator *c, mu_function *step, mu_value *data, bool killed)
{
    const int64_t before = calls_of(c, 1).done;
    int n = 0;
    for (; n < 6000 && (calls_of(c, 1).done == before || (killed && calls_of(c, 1).retried == 0)); n++) {
        mu_schedule(c, step, data);
        expect(mu_join(c) == MU_OK, "a step ends");
        usleep(killed ? 10000 : 0);
    }
    expect(calls_of(c, 1).done > before && (!killed || calls_of(c, 1).retried > 0), "worker 1 works");
    return n;
}

static void counts(void)
{
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment());
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(mu_constant(MU_F32, 0), "v");
    mu_function *step = mu_function_new(add, v);
    static atomic_int made;
    mu_value *data = mu_create_per_worker_dataset(c, ones, &made), *results[STEPS];
    for (int i = 0; i < 6000 && made < 3; i++) // workers start when they can
        usleep(10000);
    double sum = 0, done = 0, retried = 0, all = STEPS + until_it_works(c, step, data, false);
    for (int i = 0; i < STEPS; i++) {
        results[i] = mu_schedule(c, step, data);
        if (i == STEPS / 2)
            kill_task("worker", 1);
    }
    expect(mu_join(c) == MU_OK, "all steps end");
    for (int i = 0; i < STEPS; i++)
        sum += mu_scalar(mu_fetch(results[i]));
    for (int i = 0; i < 3; i++) {
        done += (double)calls_of(c, i).done;
        retried += (double)calls_of(c, i).retried;
    }
    const double value = mu_scalar(mu_variable_read(v));
    printf("%g steps of %g done, %g tried again, the variable is %g\n", done, all, retried, value);
    expect(sum == STEPS && done == all, "each step is done once");
    expect(value >= all && value <= all + retried, "each step counts, one that was tried again perhaps twice");
    until_it_works(c, step, data, true);
    expect(made == 4, "the killed worker's dataset is made again, and no other");
}

// ---- own_values ---------------------------------------------------------------------------------

static void own_values(void)
{
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment());
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *own = NULL;
    MU_SCOPE(strategy)
        own = mu_variable_new(mu_constant(MU_F32, 0), "own", .per_worker_variable = true);
    mu_function *step = mu_function_new(add, own);
    for (int i = 0; i < STEPS; i++)
        mu_schedule(c, step, mu_of(mu_constant(MU_F32, 1)));
    expect(mu_join(c) == MU_OK, "steps with values of the workers' own");
    mu_value *all = mu_variable_read_all(own);
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        expect(mu_scalar(mu_at(all, i)) == (double)calls_of(c, i).done, "what a worker has counted");
        sum += mu_scalar(mu_at(all, i));
    }
    expect(sum == STEPS, "what all have counted");
}

// ---- weights ------------------------------------------------------------------------------------

typedef struct job {
    mu_strategy *strategy;
    mu_coordinator *coordinator; // NULL: one device
    mu_variable *table, *bias;
    mu_optimizer *optimizer;
    mu_function *step;
} job;

static mu_value *train_step(mu_value *arguments, void *arg)
{
    job *j = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = mu_at(arguments, 0);
    mu_tensor *y = mu_add(mu_matmul(x, mu_variable_read(j->table)), mu_variable_read(j->bias));
    mu_tensor *loss = mu_reduce_mean(mu_square(mu_subtract(y, mu_constant(MU_F32, 1))), MU_ALL_AXES);
    mu_value *variables = mu_variables(j->table, j->bias, MU_END);
    mu_apply_gradients(j->optimizer, mu_gradients(tape, loss, variables));
    return mu_of(loss);
}

static mu_tensor *numbers(int64_t rows, int64_t columns, int seed)
{
    float values[ROWS * ROWS];
    for (int64_t i = 0; i < rows * columns; i++)
        values[i] = (float)((i * 37 + seed * 11) % 101) / 101 - 0.5f;
    return mu_tensor_new(MU_F32, 2, (int64_t[]){rows, columns}, values);
}

static void begin(job *j, mu_strategy *strategy, mu_coordinator *coordinator)
{
    j->strategy = strategy;
    j->coordinator = coordinator;
    MU_SCOPE(strategy) {
        j->table = mu_variable_new(numbers(ROWS, COLUMNS, 1), "same");
        j->bias = mu_variable_new(numbers(1, COLUMNS, 2), "same");
        j->optimizer = mu_adam(.learning_rate = 0.01);
    }
    j->step = mu_function_new(train_step, j);
}

static double train(job *j, int i)
{
    mu_value *batch = mu_list(mu_of(numbers(4, ROWS, i)), MU_END);
    if (!j->coordinator)
        return mu_scalar(mu_reduce(j->strategy, MU_SUM, mu_run(j->strategy, j->step, batch)));
    mu_value *result = mu_schedule(j->coordinator, j->step, batch);
    expect(mu_join(j->coordinator) == MU_OK, "a step ends");
    return mu_scalar(mu_fetch(result));
}

static bool same(mu_variable *a, mu_variable *b)
{
    float left[ROWS * COLUMNS] = {0}, right[ROWS * COLUMNS] = {1};
    const mu_shape shape = mu_variable_shape(a);
    const size_t bytes = sizeof(float) * (size_t)(shape.dims[0] * shape.dims[1]);
    return mu_tensor_copy_to(mu_variable_read(a), left, bytes) == MU_OK &&
           mu_tensor_copy_to(mu_variable_read(b), right, bytes) == MU_OK && memcmp(left, right, bytes) == 0;
}

// In a pool of its own: a worker that was killed last comes back while the next part runs. If this part's coordinator
// still existed then, it would clear what the next one has on that worker.
static void weights(mu_partitioner *partitioner)
{
    static job served, single;
    mu_pool *pool = mu_pool_open();
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment(), partitioner);
    begin(&served, strategy, mu_coordinator_new(strategy));
    begin(&single, mu_one_device_strategy("CPU:0"), NULL);
    for (int i = 0; i < TRAINED; i++) {
        if (i % 4 == 3)
            kill_task("worker", i % 3);
        const double loss = train(&served, i), wanted = train(&single, i);
        printf("step %d: loss %.9g, on one device %.9g\n", i, loss, wanted);
        expect(loss == wanted, "the losses are those of one device");
    }
    expect(same(served.table, single.table) && same(served.bias, single.bias), "the weights are those of one device");
    expect(strstr(mu_variable_name(served.bias), "same_") != NULL || partitioner, "a name is used once");
    mu_pool_close(pool);
}

// ---- killed -------------------------------------------------------------------------------------

static mu_value *one_and_minus_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign_add(arg, mu_constant(MU_F32, 1));
    return mu_list(mu_of(mu_constant(MU_F32, 1)), mu_of(mu_constant(MU_F32, -1)), MU_END);
}

static void two_steps(mu_coordinator *c, mu_function *step)
{
    for (int i = 0; i < 2; i++)
        mu_schedule(c, step);
    expect(mu_join(c) == MU_OK, "two steps end");
}

static void killed(void)
{
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment());
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v = NULL;
    MU_SCOPE(strategy)
        v = mu_variable_new(mu_constant(MU_F32, 0), "iterations");
    mu_function *step = mu_function_new(one_and_minus_one, v);
    two_steps(c, step);
    expect(mu_scalar(mu_variable_read(v)) == 2, "two steps count");
    kill_task("worker", 0);
    two_steps(c, step);
    expect(mu_scalar(mu_variable_read(v)) == 4, "four steps count");
    mu_value *result = mu_schedule(c, step);
    expect(mu_join(c) == MU_OK, "a step ends");
    for (int time = 0; time < 2; time++) {
        mu_value *value = mu_fetch(result);
        expect(mu_scalar(mu_at(value, 0)) == 1 && mu_scalar(mu_at(value, 1)) == -1, "a result is fetched");
        for (int i = 0; i < 3 && time == 0; i++) {
            for (int pause = 0; pause < 6000 && process_of("worker", i) == 0; pause++)
                usleep(10000);
            kill_task("worker", i);
        }
    }
}

// ---- fit ----------------------------------------------------------------------------------------

enum { BATCH = 8, BATCHES = 40, EPOCHS = 3, CLASSES = 3 };

static mu_dataset *batches(void)
{
    static float x[BATCH * BATCHES][COLUMNS];
    static int32_t y[BATCH * BATCHES];
    for (int i = 0; i < BATCH * BATCHES; i++) {
        for (int k = 0; k < COLUMNS; k++)
            x[i][k] = (float)((i * 31 + k * 17) % 97) / 97;
        y[i] = i % CLASSES;
    }
    mu_tensor *rows = mu_tensor_new(MU_F32, 2, (int64_t[]){BATCH * BATCHES, COLUMNS}, x);
    mu_tensor *labels = mu_tensor_new(MU_I32, 1, (int64_t[]){BATCH * BATCHES}, y);
    return mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(rows, labels, MU_END)), BATCH);
}

static mu_model *classifier(mu_strategy *strategy, double rate)
{
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(5, .activation = "relu"), mu_dense(CLASSES));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = rate),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                   .metrics = MU_METRICS(mu_accuracy()));
        mu_model_build(model, 1, (int64_t[]){COLUMNS});
    }
    return model;
}

static void take_weights(mu_model *to, mu_model *from)
{
    mu_value *a = mu_model_weights(to), *b = mu_model_weights(from);
    for (int i = 0; i < mu_value_count(a); i++)
        mu_variable_assign(mu_value_variable(mu_value_at(a, i)),
                           mu_variable_read(mu_value_variable(mu_value_at(b, i))));
}

static mu_status kill_in_second_epoch(const mu_logs *logs, void *arg)
{
    (void)arg;
    if (logs->epoch == 1)
        kill_task("worker", 1);
    return MU_OK;
}

static mu_status count_batch(const mu_logs *logs, void *arg)
{
    (void)logs;
    ++*(int *)arg;
    return MU_OK;
}

static bool same_numbers(mu_tensor *a, mu_tensor *b)
{
    const int64_t n = mu_tensor_elements(a);
    return a && b && mu_tensor_elements(b) == n &&
           memcmp(mu_tensor_data(a), mu_tensor_data(b), (size_t)n * sizeof(float)) == 0;
}

static void expect_same_metric(mu_history *served, mu_history *single, const char *name, int epoch)
{
    const double got = mu_history_at(served, name, epoch), wanted = mu_history_at(single, name, epoch);
    printf("epoch %d: %s %.9g, on one device %.9g\n", epoch, name, got, wanted);
    expect(got - wanted <= 1e-6 && wanted - got <= 1e-6, name);
}

static mu_dataset *endless_batches(const mu_input_context *context, void *arg)
{
    expect(context->num_input_pipelines == 1, "one pipeline");
    ++((int *)arg)[mu_get_current_worker_index()];
    return mu_dataset_repeat(batches(), MU_INFINITE);
}

static int64_t all_done(mu_coordinator *c) { return calls_of(c, 0).done + calls_of(c, 1).done + calls_of(c, 2).done; }

static void fit(void)
{
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment());
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_model *single = classifier(mu_one_device_strategy("CPU:0"), 0), *served = classifier(strategy, 0);
    take_weights(single, served);
    mu_history *wanted =
        mu_fit(single, batches(), .epochs = EPOCHS, .validation_data = batches(), .verbose = MU_VERBOSE_SILENT);
    mu_callback *killer = mu_callback_new(.on_epoch_begin = kill_in_second_epoch);
    mu_history *got = mu_fit(served, batches(), .epochs = EPOCHS, .validation_data = batches(), .callbacks = killer,
                             .verbose = MU_VERBOSE_LINES);
    static const char *const names[] = {"loss", "accuracy", "val_loss", "val_accuracy"};
    for (int i = 0; i < 2 * EPOCHS && got; i++)
        expect_same_metric(got, wanted, names[i % 4], i / 4);
    expect(got && mu_history_samples(got) == (int64_t)BATCH * BATCHES * EPOCHS, "every sample is used once");
    expect(all_done(c) == (int64_t)2 * BATCHES * EPOCHS, "every step is done once");
    expect(same_numbers(mu_predict(served, batches()), mu_predict(single, batches())), "outputs are in order");
    int made[3] = {0}, ended = 0;
    mu_dataset_creator *creator = mu_dataset_creator_new(endless_batches, made);
    got = mu_fit(served, creator, .epochs = 2, .steps_per_epoch = BATCHES, .verbose = MU_VERBOSE_SILENT,
                 .callbacks = mu_callback_new(.on_batch_end = count_batch, .arg = &ended));
    expect(got && ended == 2 * BATCHES, "a callback for each batch of a creator");
    expect(made[0] == 1 && made[1] >= 1 && made[2] == 1, "a dataset for each worker");
    expect(!mu_fit(served, creator, .epochs = 1) && mu_error_take().code == MU_INVALID_ARGUMENT, "a number of steps");
}

// ---- steps, visits ------------------------------------------------------------------------------

enum { KILLS = 6, VISITED = 60, ROUNDS = 8 }; // the launcher gives up on a worker that ends at once five times

// Kills tasks at random moments, until told to stop: workers, or servers whose variables have a copy.
static atomic_bool no_more_kills;

typedef struct killer {
    unsigned seed;
    const char *job;
    int n, done;         // tasks of the job; kills
    mu_strategy *copied; // NULL: without waiting for copies
    int64_t failovers;   // before the last kill
} killer;

// The server killed last was the primary of some variables: until a copy has taken over, its end may not have been
// noticed.
static bool may_kill(killer *k)
{
    if (!k->copied)
        return true;
    const mu_ps_recovery recovery = recovery_of(k->copied);
    const bool may = recovery.copies_behind == 0 && (k->done == 0 || recovery.failovers > k->failovers);
    k->failovers = may ? recovery.failovers : k->failovers;
    return may;
}

static void *kill_tasks(void *arg)
{
    killer *k = arg;
    while (k->done < KILLS && !no_more_kills) {
        usleep(1000 * (20 + rand_r(&k->seed) % 60));
        const long pid = may_kill(k) ? process_of(k->job, k->done % k->n) : 0;
        if (pid > 0)
            k->done += kill((pid_t)pid, SIGKILL) == 0;
    }
    return NULL;
}

static void train_while_killing(killer *k, mu_model *model, const void *data, int epochs, mu_history **history)
{
    pthread_t thread;
    k->seed = (unsigned)getpid();
    no_more_kills = false;
    printf("kills of seed %u\n", k->seed);
    expect(pthread_create(&thread, NULL, kill_tasks, k) == 0, "a thread");
    *history = mu_fit(model, data, .epochs = epochs, .verbose = MU_VERBOSE_LINES);
    no_more_kills = true;
    pthread_join(thread, NULL);
    printf("%d kills of a %s\n", k->done, k->job);
    expect(*history != NULL, "the training ends");
}

static long long retried(mu_coordinator *c)
{
    return (long long)(calls_of(c, 0).retried + calls_of(c, 1).retried + calls_of(c, 2).retried);
}

static double largest_difference(mu_model *model, mu_model *other)
{
    mu_value *a = mu_model_weights(model), *b = mu_model_weights(other);
    double most = 0;
    for (int w = 0; w < mu_value_count(a); w++) {
        mu_tensor *left = mu_variable_read(mu_value_variable(mu_value_at(a, w)));
        mu_tensor *right = mu_variable_read(mu_value_variable(mu_value_at(b, w)));
        for (int64_t i = 0; i < mu_tensor_elements(left); i++) {
            const double difference = fabs(mu_tensor_item(left, i) - mu_tensor_item(right, i));
            most = difference > most ? difference : most;
        }
    }
    printf("weights differ by %g at most\n", most);
    return most;
}

static void synchronous_steps(void)
{
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas_to_aggregate = 2);
    mu_model *served = classifier(strategy, 0.5), *single = classifier(mu_one_device_strategy("CPU:0"), 0.5);
    take_weights(single, served);
    mu_history *got, *wanted = mu_fit(single, batches(), .epochs = EPOCHS, .verbose = MU_VERBOSE_SILENT);
    train_while_killing(&(killer){.job = "worker", .n = 3}, served, batches(), EPOCHS, &got);
    printf("%lld calls were tried again\n", retried(mu_coordinator_new(strategy)));
    for (int i = 0; i < EPOCHS && got; i++)
        expect_same_metric(got, wanted, "loss", i);
    expect(largest_difference(served, single) < 1e-5, "the weights are those of one device"); // f32: sums of two halves
}

// Trains once without kills and once with them.
static void copied_steps(void)
{
    mu_strategy *strategy =
        mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas_to_aggregate = 2, .replicas = 1);
    mu_model *calm = classifier(strategy, 0.5), *served = classifier(strategy, 0.5);
    take_weights(calm, served);
    mu_history *got, *wanted = mu_fit(calm, batches(), .epochs = 2 * EPOCHS, .verbose = MU_VERBOSE_SILENT);
    killer k = {.job = "ps", .n = 2, .copied = strategy};
    train_while_killing(&k, served, batches(), 2 * EPOCHS, &got);
    for (int i = 0; i < 2 * EPOCHS && got; i++)
        expect_same_metric(got, wanted, "loss", i);
    expect(largest_difference(served, calm) == 0, "the weights are those without a kill");
    const mu_ps_recovery recovery = recovery_of(strategy);
    printf("%lld failovers\n", (long long)recovery.failovers);
    expect(k.done > 0 && recovery.failovers > 0 && recovery.updates_lost == 0, "copies took over, and lack nothing");
}

// The loss is the sum of the weights that a batch names, so each visit subtracts 1 from its weight.
static mu_tensor *sum_of(mu_tensor *y_true, mu_tensor *y_pred, void *arg)
{
    (void)y_true, (void)arg;
    return mu_reshape(y_pred, 1, (int64_t[]){-1});
}

// Rows [begin, begin + n), each a batch, in another order in each epoch.
static mu_dataset *one_hot_rows(int begin, int n)
{
    static float x[VISITED][VISITED], y[VISITED];
    for (int i = 0; i < VISITED; i++)
        x[i][i] = 1;
    mu_tensor *rows = mu_tensor_new(MU_F32, 2, (int64_t[]){VISITED, VISITED}, x);
    mu_tensor *labels = mu_tensor_new(MU_F32, 1, (int64_t[]){VISITED}, y);
    mu_dataset *all = mu_dataset_from_tensor_slices(mu_list(rows, labels, MU_END));
    return mu_dataset_batch(mu_dataset_shuffle(mu_dataset_take(mu_dataset_skip(all, begin), n), VISITED), 1);
}

// Worker 0 has 10 rows, worker 1 has 20, worker 2 has 30.
static mu_dataset *rows_of_worker(const mu_input_context *context, void *arg)
{
    static const int begins[] = {0, 10, 30};
    const int worker = mu_get_current_worker_index();
    (void)context, (void)arg;
    return one_hot_rows(begins[worker], 10 * (worker + 1));
}

static void expect_visits(mu_model *model, int n)
{
    mu_tensor *weights = mu_variable_read(mu_value_variable(mu_value_at(mu_model_weights(model), 0)));
    int wrong = 0;
    for (int64_t i = 0; weights && i < VISITED; i++)
        wrong += mu_tensor_item(weights, i) != -n;
    printf("%d elements do not count %d times\n", wrong, n);
    expect(weights && wrong == 0, "every element counts once in each epoch");
}

static void visits(bool copied)
{
    mu_strategy *strategy =
        mu_parameter_server_strategy(mu_cluster_from_environment(), .visitation_guarantee = true, .replicas = copied);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(1, .no_bias = true, .kernel_initializer = "zeros"));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = 1), .loss = mu_loss_new(.call = sum_of));
    }
    mu_history *history;
    killer k = {.job = copied ? "ps" : "worker", .n = copied ? 2 : 3, .copied = copied ? strategy : NULL};
    train_while_killing(&k, model, one_hot_rows(0, VISITED), ROUNDS, &history);
    expect_visits(model, ROUNDS);
    expect(!copied || (k.done > 0 && recovery_of(strategy).failovers > 0), "copies took over");
    expect(history && mu_history_samples(history) == (int64_t)VISITED * ROUNDS, "every sample is used once");
    expect(all_done(c) == (int64_t)VISITED * ROUNDS, "every call is done once");
    if (copied)
        return; // the launcher gives up on servers that end at once more often
    k.done = 0;
    train_while_killing(&k, model, mu_dataset_creator_new(rows_of_worker, NULL), ROUNDS, &history);
    expect_visits(model, 2 * ROUNDS);
    expect(history && mu_history_samples(history) == (int64_t)VISITED * ROUNDS, "a creator's too");
    printf("%lld calls were tried again\n", retried(c));
}

// ---- branches -----------------------------------------------------------------------------------

typedef struct pair {
    mu_variable *even, *odd;
} pair;

static mu_value *add_to_even(mu_value *arguments, void *arg)
{
    const pair *p = arg;
    mu_variable_assign_add(p->even, mu_value_tensor(arguments));
    return mu_of(mu_variable_read(p->even));
}

static mu_value *add_to_odd(mu_value *arguments, void *arg)
{
    const pair *p = arg;
    mu_variable_assign_add(p->odd, mu_value_tensor(arguments));
    return mu_of(mu_variable_read(p->odd));
}

static mu_value *choose(mu_value *arguments, void *arg)
{
    mu_tensor *x = mu_at(arguments, 0);
    mu_tensor *even = mu_equal(mu_mod(x, mu_constant(MU_F32, 2)), mu_constant(MU_F32, 0));
    return mu_cond(even, add_to_even, add_to_odd, mu_of(x), arg);
}

static mu_value *count_down(mu_value *arguments, void *arg)
{
    mu_tensor *left = mu_value_tensor(arguments);
    const pair *p = arg;
    mu_variable_assign_add(p->even, mu_variable_read(p->odd));
    return mu_of(mu_subtract(left, mu_constant(MU_F32, 1)));
}

static mu_tensor *is_positive(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_greater(mu_value_tensor(arguments), mu_constant(MU_F32, 0));
}

static mu_value *repeat_it(mu_value *arguments, void *arg)
{
    return mu_while_loop(is_positive, count_down, mu_of(mu_at(arguments, 0)), .arg = arg);
}

static void branches(void)
{
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment());
    mu_coordinator *c = mu_coordinator_new(strategy);
    pair p = {0};
    MU_SCOPE(strategy) {
        p.even = mu_variable_new(mu_constant(MU_F32, 0), "even");
        p.odd = mu_variable_new(mu_constant(MU_F32, 0), "odd");
    }
    mu_function *step = mu_function_new(choose, &p), *loop = mu_function_new(repeat_it, &p);
    double sums[2] = {0};
    for (int i = 0; i < 20; i++) {
        mu_value *result = mu_schedule(c, step, mu_list(mu_of(mu_constant(MU_F32, i)), MU_END));
        expect(mu_join(c) == MU_OK, "a branch on a worker");
        sums[i % 2] += i;
        expect(mu_scalar(mu_fetch(result)) == sums[i % 2], "a branch reads what it wrote");
    }
    for (int i = 0; i < 6; i++)
        mu_schedule(c, loop, mu_list(mu_of(mu_constant(MU_F32, 5)), MU_END));
    expect(mu_join(c) == MU_OK, "loops on workers at the same time");
    const double even = mu_scalar(mu_variable_read(p.even)), odd = mu_scalar(mu_variable_read(p.odd));
    printf("even %g, odd %g\n", even, odd);
    expect(odd == sums[1] && even == sums[0] + 30 * sums[1], "no update of a loop is lost");
    job accumulating;
    begin(&accumulating, strategy, c);
    MU_SCOPE(strategy)
        accumulating.optimizer = mu_sgd(.learning_rate = 0.5, .gradient_accumulation_steps = 3);
    for (int i = 0; i < 6; i++)
        train(&accumulating, i);
    expect(mu_error_code() == MU_OK, "gradients are accumulated on servers");
}

// ---- lost_server, nobody ------------------------------------------------------------------------

static void lost_server(void)
{
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment());
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v[2] = {NULL};
    MU_SCOPE(strategy) {
        v[0] = mu_variable_new(mu_constant(MU_F32, 0), "kept");
        v[1] = mu_variable_new(mu_constant(MU_F32, 0), "lost");
    }
    mu_function *on_kept = mu_function_new(add, v[0]), *on_lost = mu_function_new(add, v[1]);
    mu_value *one = mu_list(mu_of(mu_constant(MU_F32, 1)), MU_END);
    mu_schedule(c, on_lost, one);
    expect(mu_join(c) == MU_OK, "a step ends");
    kill_task("ps", 1);
    mu_schedule(c, on_lost, one);
    expect(mu_join(c) == MU_UNAVAILABLE, "the step whose server was lost fails");
    const mu_error error = mu_error_take();
    printf("%s\n", error.message);
    mu_schedule(c, on_kept, one);
    expect(mu_join(c) == MU_OK && mu_scalar(mu_variable_read(v[0])) == 1, "steps on the other server continue");
}

// ---- copied, snapshots --------------------------------------------------------------------------

static void copied(void)
{
    mu_strategy *strategy = mu_parameter_server_strategy(mu_cluster_from_environment(), .replicas = 1);
    mu_coordinator *c = mu_coordinator_new(strategy);
    mu_variable *v[2] = {NULL};
    make_two(strategy, v);
    mu_function *step = mu_function_new(add_to_both, v);
    mu_value *one = mu_list(mu_of(mu_constant(MU_F32, 1)), MU_END);
    for (int server = 0; server < 2; server++) {
        wait_for_copies(strategy);
        for (int i = 0; i < STEPS; i++) {
            mu_schedule(c, step, one);
            if (i == STEPS / 2)
                kill_task("ps", server);
        }
        expect(mu_join(c) == MU_OK, "all steps end");
        const double a = mu_scalar(mu_variable_read(v[0])), b = mu_scalar(mu_variable_read(v[1]));
        printf("server %d killed: %g and %g of %d\n", server, a, b, (server + 1) * STEPS);
        expect(a == (server + 1) * STEPS && b == a, "each update is applied once");
    }
    expect(recovery_of(strategy).failovers >= 2, "a copy took over each time");
    expect(recovery_of(strategy).updates_lost == 0, "no update is lost");
}

static void nobody(void)
{
    mu_cluster_spec *spec = mu_cluster_spec_parse("{\"worker\": [\"localhost:1\"], \"ps\": [\"localhost:1\"]}");
    expect(!mu_parameter_server_strategy(mu_simple_cluster_resolver(spec)), "no strategy without servers");
    const mu_error error = mu_error_take();
    const char *begin = "mu_parameter_server_strategy: parameter server 0: ";
    expect(error.code == MU_UNAVAILABLE && strncmp(error.message, begin, strlen(begin)) == 0 &&
               strstr(error.message, "start this parameter server"),
           error.message);
}

int main(int argc, char **argv)
{
    const char *part = argc == 2 ? argv[1] : "";
    if (strcmp(part, "nobody") == 0)
        setenv("MUSTER_TIMEOUT", "1", 1);
    mu_init(.cpu_devices = 1);
    if (strcmp(part, "counts") == 0) {
        counts();
    } else if (strcmp(part, "weights") == 0) {
        weights(NULL);
        weights(mu_fixed_shards_partitioner(2));
    } else if (strcmp(part, "killed") == 0) {
        killed();
    } else if (strcmp(part, "fit") == 0) {
        fit();
    } else if (strcmp(part, "steps") == 0) {
        synchronous_steps();
    } else if (strcmp(part, "visits") == 0) {
        visits(false);
    } else if (strcmp(part, "copied_steps") == 0) {
        copied_steps();
    } else if (strcmp(part, "copied_visits") == 0) {
        visits(true);
    } else if (strcmp(part, "own_values") == 0) {
        own_values();
    } else if (strcmp(part, "branches") == 0) {
        branches();
    } else if (strcmp(part, "lost_server") == 0) {
        lost_server();
    } else if (strcmp(part, "copied") == 0) {
        copied();
    } else if (strcmp(part, "nobody") == 0) {
        nobody();
    } else {
        return 64;
    }
    printf("%s: %d not as expected\n", part, n_wrong);
    return mu_exit(n_wrong == 0) || n_wrong > 0;
}
