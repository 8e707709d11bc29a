// joined_training PART: one process of several whose replicas run one program on the devices of all processes, with
// joined_plugin (tests/pjrt). PART: "weights", the weights are those of MirroredStrategy on as many CPU devices,
// through steps with equal and unequal parts; programs are counted, and with RING there are none; "fit", the same for a
// model; "refused", an operation that one worker cannot do fails on all of them, and they continue; "gone", the last
// worker ends before a step; "dies", it ends during a launch; "broken", its launch fails; "stuck", its launch does not
// return; "again", a second job uses the devices of the first one.
#include "pjrt/joined_plugin.h"

#include "distribute/distribute.h"
#include "engine/pjrt/pjrt.h"
#include "pjrt/changed_table.h"

#include <muster.h>

#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

enum { MOST_EACH = 2, COLUMNS = 6, MOST_WORKERS = 3, STEPS = 6, UNEQUAL_STEP = 3, WAIT_SECONDS = 10 };

static int worker, n_workers, each; // `each`: replicas of a worker
static mu_strategy *strategy;

static int complain(const char *what)
{
    fprintf(stderr, "joined_training, worker %d: %s; error: %s\n", worker, what, mu_error_message());
    return 1;
}

static bool is_last(void) { return worker == n_workers - 1; }

static const int *counts(void)
{
    void *library = dlopen(MU_TEST_JOINED_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
    return library ? dlsym(library, "joined_plugin_counts") : NULL;
}

static int check_counts(int compiled, int launched)
{
    const int *seen = counts();
    if (seen && seen[JOINED_COMPILED] == compiled && seen[JOINED_LAUNCHED] == launched)
        return 0;
    fprintf(stderr, "%d compiled and %d launched on all devices; wanted %d and %d\n", seen ? seen[JOINED_COMPILED] : -1,
            seen ? seen[JOINED_LAUNCHED] : -1, compiled, launched);
    return 1;
}

// ---- Steps --------------------------------------------------------------------------------------

typedef struct job {
    mu_variable *weight;
    bool fails; // in its trace
} job;

static mu_value *train_step(mu_value *arguments, void *arg)
{
    const job *j = arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tensor *sum = mu_all_reduce(MU_SUM, mu_reduce_sum(mu_multiply(x, mu_variable_read(j->weight)), 0));
    mu_tensor *own = mu_multiply(mu_cast(mu_replica_id(), MU_F32), mu_constant(MU_F32, 1e-3));
    mu_tensor *ids = mu_all_gather(mu_reshape(own, 1, (int64_t[]){1}), 0);
    mu_variable_assign_sub(
        j->weight, mu_multiply(mu_add(sum, mu_reduce_sum(mu_square(ids), MU_ALL_AXES)), mu_constant(MU_F32, 1e-2)));
    if (j->fails)
        return mu_of(mu_matmul(x, mu_constant(MU_F32, 1)));
    return mu_of(mu_reduce_sum(sum, MU_ALL_AXES));
}

static void open_job(mu_strategy *here, job *j)
{
    MU_SCOPE(here)
        j->weight = mu_variable_new(.initial_value = mu_fill(MU_F32, 1, (int64_t[]){COLUMNS}, 1), .name = "weight",
                                    .aggregation = MU_AGGREGATION_MEAN);
}

// Replica r's rows in a step: three, except that in the unequal step some replicas have another number: with two
// workers one replica on each, with three workers all of the second worker's.
static mu_value *part_of(int replica, int step)
{
    float data[4 * COLUMNS];
    const int more = n_workers == 2 ? replica % 2 : replica / each == 1;
    const int rows = step == UNEQUAL_STEP ? 3 + more : 3;
    for (int i = 0; i < rows * COLUMNS; i++)
        data[i] = (float)((replica * 31 + step * 17 + i) * 7 % 23) * 0.1f - 0.7f;
    return mu_of(mu_tensor_new(MU_F32, 2, (int64_t[]){rows, COLUMNS}, data));
}

static mu_value *parts_of(mu_strategy *here, int n, int first, int step)
{
    mu_value *values[MOST_EACH * MOST_WORKERS];
    for (int r = 0; r < n; r++)
        values[r] = part_of(first + r, step);
    return mu_list(mu_per_replica_of(here, n, values), MU_END);
}

static mu_value *run(mu_function *function, int step)
{
    return mu_run(strategy, function, parts_of(strategy, each, each * worker, step));
}

static mu_value *doubled(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_multiply(mu_at(arguments, 0), mu_constant(MU_F32, 2)));
}

// A function without collectives does not concern the other workers.
static int run_alone(int times)
{
    mu_function *alone = mu_function_new(doubled, NULL);
    for (int i = 0; i < times; i++)
        if (!run(alone, i))
            return complain("a function does not run on one worker alone");
    return 0;
}

// Two steps are in progress at a time.
static mu_status train(mu_strategy *here, int n, int first, job *j)
{
    enum { AT_ONCE = 2 };
    mu_running *running[AT_ONCE] = {NULL};
    mu_function *step = mu_function_new(train_step, j);
    for (int i = 0; i < STEPS + AT_ONCE && mu_error_code() == MU_OK; i++) {
        if (i >= AT_ONCE)
            mu__run_wait(running[i % AT_ONCE]);
        if (i == STEPS / 2 && here == strategy && is_last() && run_alone(2))
            break;
        if (i < STEPS && mu_error_code() == MU_OK)
            running[i % AT_ONCE] = mu__run_start(here, step, parts_of(here, n, first, i));
    }
    return mu_error_code();
}

// ---- Parts that succeed -------------------------------------------------------------------------

static mu_strategy *mirrored(void)
{
    static const char *const names[] = {"CPU:0", "CPU:1", "CPU:2", "CPU:3", "CPU:4", "CPU:5", NULL};
    const char *used[MOST_EACH * MOST_WORKERS + 1] = {NULL};
    for (int i = 0; i < each * n_workers; i++)
        used[i] = names[i];
    return mu_mirrored_strategy(.devices = used);
}

static int check_near(const mu_tensor *seen, const mu_tensor *wanted, double tolerance)
{
    const float *a = mu_tensor_data(seen), *b = mu_tensor_data(wanted);
    double most = 0;
    for (int64_t i = 0; a && b && i < mu_tensor_elements(wanted); i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]) / (1 + fabs((double)b[i])));
    if (a && b && most <= tolerance)
        return 0;
    fprintf(stderr, "worker %d: weights differ by %g\n", worker, most);
    return 1;
}

// A program that names a way to reduce gets that way, on the host.
static int check_ring(void)
{
    job j = {0};
    strategy = mu_multi_worker_mirrored_strategy(.communication = MU_COMM_RING);
    if (!strategy)
        return complain("there is no second strategy");
    open_job(strategy, &j);
    if (!run(mu_function_new(train_step, &j), 0))
        return complain("a step by RING failed");
    return check_counts(1, STEPS - 1);
}

// The unequal step runs in parts, between launches.
static int check_weights(void)
{
    job joined = {0}, alone = {0};
    mu_strategy *native = mirrored();
    open_job(strategy, &joined);
    open_job(native, &alone);
    if (train(strategy, each, each * worker, &joined) != MU_OK || train(native, each * n_workers, 0, &alone) != MU_OK)
        return complain("a step failed");
    for (int r = 0; r < each; r++)
        if (check_near(mu__variable_component(joined.weight, r), mu__variable_component(alone.weight, 0), 1e-6))
            return complain("the weights are others");
    return check_counts(1, STEPS - 1) || (n_workers == 2 && check_ring());
}

static mu_model *fit(mu_strategy *here, int rows, int steps_per_execution)
{
    enum { MOST_ROWS = 71, BATCH = 12 };
    float x[MOST_ROWS * COLUMNS], y[MOST_ROWS];
    for (int i = 0; i < rows * COLUMNS; i++)
        x[i] = (float)(i * 7 % 23) * 0.1f - 1;
    for (int i = 0; i < rows; i++)
        y[i] = (float)(i % 5) * 0.3f;
    mu_tensor *inputs = mu_tensor_new(MU_F32, 2, (int64_t[]){rows, COLUMNS}, x);
    mu_tensor *targets = mu_tensor_new(MU_F32, 2, (int64_t[]){rows, 1}, y);
    mu_model *model = NULL;
    mu_set_seed(11);
    MU_SCOPE(here) {
        model = mu_sequential(mu_dense(1, .activation = "tanh"));
        mu_compile(model, .optimizer = mu_sgd(.learning_rate = 0.05, .momentum = 0.9),
                   .loss = mu_mean_squared_error_loss(), .steps_per_execution = steps_per_execution);
    }
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(inputs, targets, MU_END)), BATCH);
    return mu_fit(model, data, .epochs = 2, .verbose = 0) ? model : NULL;
}

static int compare_fit(int rows, int steps_per_execution)
{
    mu_model *joined = fit(strategy, rows, steps_per_execution), *alone = joined ? fit(mirrored(), rows, 1) : NULL;
    if (!joined || !alone)
        return complain("a model does not train");
    mu_value *seen = mu_model_weights(joined), *wanted = mu_model_weights(alone);
    for (int i = 0; i < mu_value_count(wanted); i++)
        if (check_near(mu_variable_read(mu_value_variable(mu_value_at(seen, i))),
                       mu_variable_read(mu_value_variable(mu_value_at(wanted, i))), 1e-6))
            return complain("the model's weights are others");
    return 0;
}

// The last batch of an epoch has 9 rows, so workers have parts of other sizes. With two steps per execution it has 11,
// which only the last worker sees: of 6 batches in 2 epochs, 1 + 2 + 2 and 2 + 2 + 1 are in launches, 1 and 1 in parts.
static int check_fit(void)
{
    return compare_fit(21, 1) || check_counts(1, 2) || compare_fit(71, 2) || check_counts(1 + 2, 2 + 6);
}

// ---- Parts that fail ----------------------------------------------------------------------------

static int check_error(int64_t begin, mu_status code, const char *first, const char *second)
{
    const mu_error error = mu_error_take();
    const double seconds = (double)(mu__now_ns() - begin) / 1e9;
    if (error.code == code && strstr(error.message, first) && strstr(error.message, second) && seconds < WAIT_SECONDS)
        return 0;
    fprintf(stderr, "worker %d: after %.1f s %s \"%s\"; wanted %s with \"%s\" and \"%s\"\n", worker, seconds,
            mu_status_name(error.code), error.message, mu_status_name(code), first, second);
    return 1;
}

static mu_value *other_step(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_all_reduce(MU_SUM, mu_at(arguments, 0)));
}

static void *reduce_meanwhile(void *arg)
{
    enum { TIMES = 20 };
    double *sum = arg;
    mu_pool *pool = mu_pool_open();
    for (int i = 0; i < TIMES; i++)
        *sum += mu_scalar(mu_reduce(strategy, MU_SUM, mu_of(mu_constant(MU_F32, 1)))) / TIMES;
    if (mu_error_code() != MU_OK)
        complain("a reduction meanwhile failed");
    mu_pool_close(pool);
    return NULL;
}

// The agreements before launches do not mix with the workers' own collectives. A value that is not per replica counts
// once for each worker.
static int check_two_threads(void)
{
    enum { RUNS = 5 };
    double sum = 0;
    pthread_t meanwhile;
    bool run_all = true;
    mu_function *step = mu_function_new(other_step, NULL);
    if (pthread_create(&meanwhile, NULL, reduce_meanwhile, &sum) != 0)
        return complain("there is no second thread");
    for (int i = 0; run_all && i < RUNS; i++)
        run_all = run(step, 0) != NULL;
    pthread_join(meanwhile, NULL);
    if (!run_all || fabs(sum - n_workers) > 1e-6)
        return complain("a step failed, or sums of another thread over the workers are others");
    return check_counts(2, 2 + RUNS);
}

static mu_value *scale_by_worker(mu_value *arguments, void *arg)
{
    mu_tensor *sum = mu_reduce_sum(mu_all_reduce(MU_SUM, mu_multiply(mu_at(arguments, 0), arg)), MU_ALL_AXES);
    return mu_of(mu_divide(sum, mu_reduce_sum(mu_all_reduce(MU_SUM, mu_at(arguments, 0)), MU_ALL_AXES)));
}

// A value that a function captures from its own worker is a different constant on each, so the host reduces.
static int check_own_tensor(void)
{
    mu_function *step = mu_function_new(scale_by_worker, mu_constant(MU_F32, worker));
    for (int i = 0; i < 2; i++) {
        mu_value *parts[MOST_EACH];
        for (int r = 0; r < each; r++)
            parts[r] = part_of(0, 0);
        mu_value *mean = mu_run(strategy, step, mu_list(mu_per_replica_of(strategy, each, parts), MU_END));
        const double seen = mean ? mu_scalar(mu_at(mu_local_results(strategy, mean), 0)) : NAN;
        if (!(fabs(seen - (n_workers - 1) / 2.0) < 1e-5))
            return complain("a function that uses a worker's own tensor has failed, or is wrong");
    }
    return 0;
}

static mu_value *wrong_product(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_of(mu_matmul(mu_at(arguments, 0), mu_constant(MU_F32, 1)));
}

static mu_value *write_outside(mu_value *arguments, void *arg)
{
    mu_variable_assign(arg, mu_reduce_sum(mu_at(arguments, 0), 0));
    return mu_list(MU_END);
}

// The last worker's error in a function without collectives is its own: nobody else takes part.
static int fail_alone(void)
{
    mu_variable *outside = mu_variable_new(.initial_value = mu_zeros(MU_F32, 1, (int64_t[]){COLUMNS}));
    const int64_t begin = mu__now_ns();
    if (run(mu_function_new(wrong_product, NULL), 0))
        return complain("a wrong product has been traced");
    if (check_error(begin, MU_INVALID_ARGUMENT, "matmul", ""))
        return 1;
    if (run(mu_function_new(write_outside, outside), 0))
        return complain("a variable without copies has been written");
    return check_error(begin, MU_FAILED_PRECONDITION, "made outside of its scope", "");
}

// Arguments of another strategy do not fit on the last worker.
static int check_unfit(mu_function *step, const char *last)
{
    const int64_t begin = mu__now_ns();
    mu_strategy *other = is_last() ? mirrored() : NULL;
    if (other ? mu_run(strategy, step, parts_of(other, each * n_workers, 0, 0)) : run(step, 0))
        return complain("a step has run whose arguments do not fit on one worker");
    return check_error(begin, MU_INVALID_ARGUMENT, is_last() ? "" : last, "components");
}

// A function that one worker cannot trace is refused on all; so are different functions. Afterwards they train as
// before.
static int check_refused(void)
{
    char last[40];
    job j = {.fails = is_last()}, good = {0};
    snprintf(last, sizeof last, "/job:worker/task:%d", n_workers - 1);
    open_job(strategy, &j);
    good.weight = j.weight;
    int64_t begin = mu__now_ns();
    if (run(mu_function_new(train_step, &j), 0))
        return complain("a step that one worker cannot trace has run");
    if (is_last() ? check_error(begin, MU_INVALID_ARGUMENT, "matmul", "")
                  : check_error(begin, MU_INVALID_ARGUMENT, last, "matmul"))
        return 1;
    begin = mu__now_ns();
    if (run(is_last() ? mu_function_new(other_step, NULL) : mu_function_new(train_step, &good), 0))
        return complain("two functions have run as one");
    if (check_error(begin, MU_FAILED_PRECONDITION, is_last() ? "/job:worker/task:0" : "", "same functions"))
        return 1;
    mu_function *step = mu_function_new(train_step, &good);
    if (!run(step, 0) || (is_last() && fail_alone()) || check_unfit(step, last))
        return 1;
    if (!run(step, 1))
        return complain("a good step failed");
    return check_counts(1, 2) || check_two_threads() || check_own_tensor();
}

// Neither the last worker nor the launches that the others have begun with it come back.
static int check_lost(const job *j, mu_function *step)
{
    const int64_t begin = mu__now_ns();
    if (mu__variable_component(j->weight, 0))
        return complain("a variable in doubt can be read");
    if (check_error(begin, MU_FAILED_PRECONDITION, "'weight' was left in doubt", ""))
        return 1;
    if (run(step, 4))
        return complain("a step has run without the last worker");
    mu_error_take();
    mu_strategy *here = mu_one_device_strategy("JOINED:0");
    if (mu_run(here, mu_function_new(other_step, NULL), mu_list(part_of(0, 0), MU_END)))
        return complain("devices that are lost can be used");
    return check_error(begin, MU_UNAVAILABLE, "cannot be used any more", "");
}

static pj_api *table;
static const pj_api *own_table;
static bool held = true;

static pj_error *execute_broken(void *args)
{
    pj_execute_args broken = *(const pj_execute_args *)args;
    broken.n_devices = JOINED_DEVICES + 1;
    return own_table->functions[PJ_LOADED_EXECUTE](&broken);
}

static pj_error *execute_never(void *args)
{
    while (__atomic_load_n(&held, __ATOMIC_SEQ_CST))
        usleep(10000);
    return execute_broken(args);
}

static void change_last(pj_call *execute)
{
    mu_pjrt_client *client = mu__device_at(mu__runtime(), 0)->engine_client;
    const changed_function changed[] = {{PJ_LOADED_EXECUTE, execute}};
    if (is_last())
        table = change_table(client, 1, changed, &own_table);
}

// Two successful steps, then one during which the last worker ends, or in which its launch fails or hangs.
static int check_failure(const char *part)
{
    char last[40];
    job j = {0};
    const bool gone = strcmp(part, "gone") == 0, broken = strcmp(part, "broken") == 0;
    snprintf(last, sizeof last, "/job:worker/task:%d", n_workers - 1);
    open_job(strategy, &j);
    mu_function *step = mu_function_new(train_step, &j);
    if (!run(step, 0) || !run(step, 1))
        return complain("a good step failed");
    if (gone && is_last())
        _exit(0);
    if (broken || strcmp(part, "stuck") == 0)
        change_last(broken ? execute_broken : execute_never);
    const int64_t begin = mu__now_ns();
    if (run(step, 2))
        return complain("a step has run without the last worker");
    if (broken && is_last())
        return check_error(begin, MU_INVALID_ARGUMENT, "a launch for 65 devices", "");
    if (strcmp(part, "stuck") == 0)
        return check_error(begin, MU_DEADLINE_EXCEEDED, "has not ended after 2 s", "") || check_lost(&j, step);
    if (check_error(begin, broken ? MU_INVALID_ARGUMENT : MU_UNAVAILABLE, last, broken ? "65 devices" : "gone"))
        return 1;
    return gone ? 0 : check_lost(&j, step);
}

// Devices remain when their job ends. In the next job the old one would not report a worker that dies, so the devices
// no longer form a world, and the host reduces.
static int check_again(mu_pool *first_job)
{
    job j = {0};
    open_job(strategy, &j);
    if (!run(mu_function_new(train_step, &j), 0))
        return complain("a good step failed");
    mu_pool_close(first_job);
    mu_pool *pool = mu_pool_open();
    strategy = mu_multi_worker_mirrored_strategy();
    if (!strategy)
        return complain("there is no second strategy");
    open_job(strategy, &j);
    if (!run(mu_function_new(train_step, &j), 1))
        return complain("a step of the second job failed");
    mu_pool_close(pool);
    return check_counts(1, 1);
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "weights";
    if (access(MU_TEST_PLUGIN, R_OK) != 0) {
        printf("SKIPPED: %s is missing (pjrt/fetch makes it)\n", MU_TEST_PLUGIN);
        return 0;
    }
    mu_init(.cpu_devices = MOST_EACH * MOST_WORKERS);
    mu_pool *pool = mu_pool_open();
    strategy = mu_multi_worker_mirrored_strategy();
    if (!strategy)
        return complain("there is no strategy");
    worker = mu_strategy_worker_index(strategy);
    n_workers = mu_strategy_worker_count(strategy);
    each = mu_num_replicas_in_sync(strategy) / n_workers;
    int failed = strcmp(part, "weights") == 0   ? check_weights()
                 : strcmp(part, "fit") == 0     ? check_fit()
                 : strcmp(part, "refused") == 0 ? check_refused()
                 : strcmp(part, "again") == 0   ? check_again(pool)
                                                : check_failure(part);
    const int ended = mu_exit(true);
    __atomic_store_n(&held, false, __ATOMIC_SEQ_CST);
    return failed || ended;
}
