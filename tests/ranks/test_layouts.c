// MultiWorkerMirroredStrategy: the same replicas, divided among one, two, three or four processes, train to the
// parameters of one device, count every sample once even if most replicas get none, and with `deterministic` have the
// same bits; a layout can continue from another one's checkpoint.
//
// The test starts itself under `muster launch`; as a worker it trains every recipe, and the chief writes the results.
#include "../tables/recipes.h"

#include "kernels/kernels.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"

#include <muster/checkpoint.h>

#include <sys/wait.h>
#include <unistd.h>

typedef struct results {
    double *items;
    size_t n, capacity;
} results;

static void add_numbers(results *all, const double *numbers, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(MU_PUSH(all, numbers[i]), MU_OK);
}

// The results of one process or worker: weights and losses of all recipes, then the evaluation.
static void find_all(mu_strategy *(*make)(void), results *out)
{
    static measured m;
    for (size_t i = 0; i < MU_COUNT(recipes); i++) {
        outcome o = train_on(&recipes[i], make());
        add_numbers(out, o.weights, o.n_weights);
        add_numbers(out, o.losses, o.epochs);
        free_outcome(&o);
    }
    measure_on(make(), &m);
    add_numbers(out, (double[]){(double)m.samples, m.accuracy}, 2);
    add_numbers(out, m.counted, COUNTED);
    add_numbers(out, (double[]){m.loss, m.mean_error}, 2);
    add_numbers(out, m.outputs, MU_COUNT(m.outputs));
}

// ---- Fewer samples than replicas ----------------------------------------------------------------

typedef struct loop {
    mu_model *model;
    mu_optimizer *optimizer;
} loop;

static mu_value *own_step(mu_value *batch, void *arg)
{
    const loop *own = arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *losses = mu_nn_sparse_softmax_cross_entropy(mu_at(batch, 1), mu_call(own->model, mu_at(batch, 0)));
    mu_tensor *loss = mu_compute_average_loss(losses);
    mu_apply_gradients(own->optimizer, mu_gradients(tape, loss, mu_trainable_variables(own->model)));
    return mu_of(loss);
}

static void add_weights(mu_model *model, results *out)
{
    int64_t n;
    double *weights = weights_of(model, &n);
    add_numbers(out, weights, n);
    free(weights);
}

static void loop_over(mu_strategy *strategy, mu_dataset *data, results *out)
{
    loop own = {0};
    MU_SCOPE(strategy) {
        own.model = dense_model();
        own.optimizer = adam();
    }
    mu_function *step = mu_function_new(own_step, &own);
    MU_EACH(batch, mu_distribute_dataset(strategy, data)) {
        const double loss = mu_scalar(mu_reduce(strategy, MU_SUM, mu_run(strategy, step, batch)));
        add_numbers(out, &loss, 1);
    }
    assert_int_equal(mu_error_code(), MU_OK);
    add_weights(own.model, out);
}

static mu_model *compiled(mu_strategy *strategy)
{
    mu_model *model = NULL;
    mu_set_seed(42);
    MU_SCOPE(strategy) {
        model = dense_model();
        mu_compile(model, .optimizer = adam(), .metrics = MU_METRICS(mu_accuracy()),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    return model;
}

// fit, evaluate, predict and a training loop of its own on 1, 2, 5 and 7 rows in batches of 3, for up to twelve
// replicas.
static void find_few(mu_strategy *(*make)(void), results *out)
{
    static const int64_t rows[] = {1, 2, 5, 7};
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        mu_pool *pool = mu_pool_open();
        mu_strategy *strategy = make();
        mu_dataset *data = rows_and_classes(rows[i], 6, 4, 3);
        mu_model *model = compiled(strategy);
        mu_history *history = mu_fit(model, data, .epochs = 2, .verbose = MU_VERBOSE_SILENT, .validation_data = data);
        assert_non_null(history);
        add_weights(model, out);
        add_numbers(out, (double[]){mu_history_last(history, "loss"), mu_history_last(history, "val_loss")}, 2);
        history = mu_evaluate(model, data, .verbose = MU_VERBOSE_SILENT);
        assert_non_null(history);
        add_numbers(out, (double[]){(double)mu_history_samples(history), mu_history_last(history, "accuracy")}, 2);
        mu_tensor *outputs = mu_predict(model, data);
        assert_int_equal(mu_tensor_dim(outputs, 0), rows[i]);
        add_numbers(out, doubles(outputs), rows[i] * 4);
        loop_over(strategy, data, out);
        mu_pool_close(pool);
    }
}

// ---- Continuing what others have saved ---------------------------------------------------------

// Continues from the checkpoint in a folder (none: from the beginning), trains two epochs and saves; returns the
// results.
static void go_on(mu_strategy *strategy, const char *folder, results *out)
{
    mu_pool *pool = mu_pool_open();
    mu_dataset *data = rows_and_classes(SAMPLES, 6, 4, BATCH);
    mu_model *model = compiled(strategy);
    mu_checkpoint_manager *saved = mu_checkpoint_manager_new(mu_checkpoint_new(.model = model), folder);
    if (saved && mu_checkpoint_manager_latest(saved) >= 0)
        assert_true(mu_checkpoint_manager_restore(saved) >= 0);
    mu_history *history = mu_fit(model, data, .epochs = 2, .verbose = MU_VERBOSE_SILENT);
    if (!history || mu_checkpoint_manager_save(saved, -1) != MU_OK)
        fail_msg("%s", mu_error_message());
    out->n = 0;
    add_weights(model, out);
    add_numbers(out, (double[]){mu_history_last(history, "loss")}, 1);
    mu_pool_close(pool);
}

// ---- A worker -----------------------------------------------------------------------------------

static mu_strategy *joined;

static mu_strategy *the_joined(void) { return joined; }

// Large values are reduced in pieces: the bits are those of all parts fetched at once.
static void reduce_in_pieces(void)
{
    enum { LARGE = 300001, MOST = 4 };
    const int64_t dims[] = {LARGE};
    const mu_parts_name name = {.what = "a large value", .whose = "replica"};
    const mu_cross_worker_ops *workers = joined->ops->cross_worker;
    mu_tensor *mine[MOST];
    int n_all;
    for (int r = 0; r < joined->n_local && r < MOST; r++) {
        mine[r] = mu_tensor_new(MU_F64, 1, dims, NULL);
        for (int64_t i = 0; i < LARGE && mine[r]; i++)
            ((double *)mu__host_write(mine[r]))[i] = 1.0 / (double)(i % 1000 + joined->first_replica + r + 1);
    }
    for (int op = MU_SUM; op <= MU_MEAN && joined->n_workers > 1 && !mu__pending(); op++) {
        mu_tensor *seen = workers->reduce(joined, &name, NULL, (mu_reduce_op)op, joined->n_local, mine);
        mu_tensor **all = workers->gather(joined, "all parts", joined->n_local, mine, &n_all);
        mu_tensor *wanted = all ? mu__reduce_tensors((mu_reduce_op)op, n_all, all) : NULL;
        mu__free(all);
        if (seen && wanted && memcmp(mu__host_read(seen), mu__host_read(wanted), LARGE * sizeof(double)) != 0)
            mu_fail(MU_INTERNAL, "a value reduced in pieces has other bits");
    }
}

static int worker(const char *path, const char *how)
{
    const bool deterministic = strcmp(how, "deterministic") == 0;
    results found = {0};
    if (mu_init(.seed = 7) != MU_OK || mu_set_floatx(MU_F64) != MU_OK)
        return mu_exit(false);
    joined = mu_multi_worker_mirrored_strategy(.communication_options =
                                                   MU_COMMUNICATION_OPTIONS(.deterministic = deterministic));
    if (!joined)
        return mu_exit(false);
    if (!deterministic)
        joined->bytes_per_pack = 200; // many buckets
    for (int r = 0; r < joined->n_local && strcmp(how, "on the spot") == 0; r++)
        mu__group_member(joined->group, r)->start = NULL;
    reduce_in_pieces();
    if (strcmp(how, "few") == 0)
        find_few(the_joined, &found);
    else if (how[0] == '/')
        go_on(joined, how, &found);
    else
        find_all(the_joined, &found);
    FILE *file = mu_strategy_should_checkpoint(joined) ? fopen(path, "w") : NULL;
    if (file && (fwrite(found.items, sizeof *found.items, found.n, file) != found.n || fclose(file) != 0))
        mu_fail(MU_INTERNAL, "cannot write %s", path);
    mu__free(found.items);
    return mu_exit(true);
}

// ---- The test -----------------------------------------------------------------------------------

static mu_strategy *one_device(void) { return mu_one_device_strategy("CPU:0"); }

static void launch(int processes, int replicas, const char *how, results *out)
{
    char self[512], command[1400], path[] = "/tmp/muster-layouts-XXXXXX";
    double number;
    const int fd = mkstemp(path);
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0 && fd >= 0);
    self[n] = '\0';
    snprintf(command, sizeof command, "'%s' launch -n %d --replicas %d --timeout 300 -- '%s' --worker %s '%s' >&2",
             MUSTER_COMMAND, processes, replicas, self, path, how);
    const int status = system(command);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    while (read(fd, &number, sizeof number) == (ssize_t)sizeof number)
        add_numbers(out, &number, 1);
    close(fd);
    unlink(path);
}

static void reaches_the_parameters_of_one_device(void **state)
{
    (void)state;
    static const int layouts[][2] = {{1, 4}, {2, 2}, {4, 1}, {3, 1}, {2, 1}};
    results wanted = {0};
    find_all(one_device, &wanted);
    const size_t rest = wanted.n - MU_COUNT(((measured *)0)->outputs) - 2, evaluation = rest - COUNTED - 2;
    assert_true(wanted.items[evaluation] == 1000);
    for (size_t i = 0; i < MU_COUNT(layouts); i++) {
        results seen = {0};
        launch(layouts[i][0], layouts[i][1], "meanwhile", &seen);
        assert_int_equal(seen.n, wanted.n);
        assert_near(seen.items, wanted.items, (int64_t)evaluation, TOLERANCE);
        for (size_t k = evaluation; k < rest; k++) // samples, the accuracy, and metrics that count
            assert_true(seen.items[k] == wanted.items[k]);
        assert_near(seen.items + rest, wanted.items + rest, (int64_t)(wanted.n - rest), TOLERANCE);
        mu__free(seen.items);
    }
    mu__free(wanted.items);
}

static void few_samples_are_enough(void **state)
{
    (void)state;
    static const int layouts[][2] = {{1, 3}, {2, 1}, {2, 3}, {3, 2}, {4, 1}, {4, 3}};
    results wanted = {0};
    find_few(one_device, &wanted);
    for (size_t i = 0; i < MU_COUNT(layouts); i++) {
        results seen = {0};
        launch(layouts[i][0], layouts[i][1], "few", &seen);
        assert_int_equal(seen.n, wanted.n);
        assert_near(seen.items, wanted.items, (int64_t)wanted.n, TOLERANCE);
        mu__free(seen.items);
    }
    mu__free(wanted.items);
}

// Four workers, then three, one, and two with two replicas each: two epochs each, as eight epochs on one device.
static void others_go_on(void **state)
{
    (void)state;
    static const int layouts[][2] = {{4, 1}, {3, 1}, {1, 1}, {2, 2}};
    char folder[] = "/tmp/muster-chain-XXXXXX", alone[] = "/tmp/muster-chain-XXXXXX", command[80];
    results seen = {0}, wanted = {0};
    assert_true(mkdtemp(folder) && mkdtemp(alone));
    for (size_t i = 0; i < MU_COUNT(layouts); i++) {
        seen.n = 0;
        launch(layouts[i][0], layouts[i][1], folder, &seen);
        go_on(one_device(), alone, &wanted);
        assert_int_equal(seen.n, wanted.n);
        assert_near(seen.items, wanted.items, (int64_t)wanted.n, TOLERANCE);
    }
    mu__free(seen.items);
    mu__free(wanted.items);
    snprintf(command, sizeof command, "rm -r %s %s", folder, alone);
    assert_int_equal(system(command), 0);
}

static void deterministic_layouts_have_the_same_bits(void **state)
{
    (void)state;
    static const int replicas[] = {4, 6};
    for (size_t k = 0; k < MU_COUNT(replicas); k++) {
        results first = {0};
        for (int processes = 1; processes <= replicas[k]; processes++)
            for (int tcp = 0; tcp < 2 && replicas[k] % processes == 0; tcp++) {
                results seen = {0};
                setenv("MUSTER_SHARED_MEMORY", tcp ? "0" : "1", 1);
                launch(processes, replicas[k] / processes, "deterministic", first.n == 0 ? &first : &seen);
                if (seen.n == 0)
                    continue;
                assert_int_equal(seen.n, first.n);
                assert_memory_equal(seen.items, first.items, first.n * sizeof *first.items);
                mu__free(seen.items);
            }
        mu__free(first.items);
    }
    unsetenv("MUSTER_SHARED_MEMORY");
}

// Two deterministic workers, the second one with another environment; returns what they print.
static int unlike(const char *second, char *said, size_t bytes)
{
    char self[512], command[1600];
    const ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    snprintf(command, sizeof command,
             "MUSTER_PIN=0 '%s' launch -n 2 --replicas 1 --timeout 300 -- sh -c '"
             "case $TF_CONFIG in *\\\"index\\\":1*) export %s;; esac; exec \"$0\" --worker /dev/null deterministic' "
             "'%s' 2>&1",
             MUSTER_COMMAND, second, self);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    said[fread(said, 1, bytes - 1, pipe)] = '\0';
    return WEXITSTATUS(pclose(pipe));
}

static void deterministic_workers_have_the_same_instructions(void **state)
{
    (void)state;
    static char said[20000];
    assert_int_equal(unlike("MUSTER_LOG=warning", said, sizeof said), 0);
    assert_non_null(strstr(said, "muster: deterministic: costs nothing here"));
    if (strcmp(mu__kernels()->isa, "base") != 0) {
        assert_int_not_equal(unlike("MUSTER_ISA=base", said, sizeof said), 0);
        assert_non_null(strstr(said, "/job:worker/task:1 has \"base/0x1"));
    }
    // All workers take the smallest number of threads of any replica, so different numbers are not refused.
    assert_int_equal(unlike("MUSTER_THREADS=1", said, sizeof said), 0);
}

// Gradients reduced while the backward pass continues, or at once: in shared memory and over TCP.
static void overlap_has_the_same_bits(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        results seen = {0}, wanted = {0};
        setenv("MUSTER_SHARED_MEMORY", tcp ? "0" : "1", 1);
        launch(2, 1 + tcp, "on the spot", &wanted);
        launch(2, 1 + tcp, "meanwhile", &seen);
        assert_int_equal(seen.n, wanted.n);
        assert_memory_equal(seen.items, wanted.items, wanted.n * sizeof *wanted.items);
        mu__free(seen.items);
        mu__free(wanted.items);
    }
    unsetenv("MUSTER_SHARED_MEMORY");
}

int main(int argc, char **argv)
{
    if (argc >= 3 && strcmp(argv[1], "--worker") == 0)
        return worker(argv[2], argc == 4 ? argv[3] : "meanwhile");
    const struct CMUnitTest tests[] = {
        MODEL_TEST(reaches_the_parameters_of_one_device),
        MODEL_TEST(few_samples_are_enough),
        MODEL_TEST(others_go_on),
        MODEL_TEST(deterministic_layouts_have_the_same_bits),
        MODEL_TEST(deterministic_workers_have_the_same_instructions),
        MODEL_TEST(overlap_has_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
