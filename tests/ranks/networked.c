// networked WHAT FOLDER WEIGHTS [ROUNDS [PAUSE]]: the work of jobs on several hosts whose network is slow, loses
// packets or is cut. WHAT is collectives (sums and gathers of many sizes, each compared with the expected result), fit,
// evaluate, save or loop (steps of a training loop of its own). It prints "round N" as it proceeds, so that the test
// knows when to cut, and pauses for PAUSE seconds in each round. fit keeps backups in FOLDER and writes WEIGHTS at the
// end, as does loop.
#define _DEFAULT_SOURCE // usleep
#include <muster.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shuffled_rows.h"
#include "train_on_batch.h"

enum { BATCH = 16 };

typedef struct job {
    const char *folder, *weights;
    mu_strategy *strategy;
    mu_model *model;
    mu_optimizer *optimizer;
    int rounds, done;
    double pause;
    int64_t n; // numbers in the sum that is under way, or rows drawn
} job;

static void next_round(job *j)
{
    printf("round %d\n", ++j->done);
    fflush(stdout);
    usleep((useconds_t)(1e6 * j->pause));
}

// ---- Collectives --------------------------------------------------------------------------------

// Returns the distance of the sum and the gathered parts from the expected results: 0.
static mu_value *compare(mu_value *arguments, void *arg)
{
    (void)arguments;
    const job *j = arg;
    const int ranks = mu_replica_count();
    mu_tensor *base = mu_mod(mu_range(MU_F32, 0, (double)j->n, 1), mu_constant(MU_F32, 97));
    mu_tensor *own = mu_add(mu_cast(mu_replica_id(), MU_F32), mu_constant(MU_F32, 1));
    mu_tensor *sum = mu_all_reduce(MU_SUM, mu_multiply(base, own));
    mu_tensor *wanted = mu_multiply(base, mu_constant(MU_F32, ranks * (ranks + 1) / 2));
    mu_tensor *all = mu_all_gather(mu_reshape(mu_multiply(own, own), 1, (int64_t[]){1}), 0);
    mu_tensor *squares = mu_constant(MU_F32, ranks * (ranks + 1) * (2 * ranks + 1) / 6);
    mu_tensor *off = mu_reduce_max(mu_abs(mu_subtract(sum, wanted)), MU_ALL_AXES);
    return mu_of(mu_add(off, mu_abs(mu_subtract(mu_reduce_sum(all, MU_ALL_AXES), squares))));
}

static bool run_collectives(job *j)
{
    static const int64_t sizes[] = {1, 1000, 70000, 600000};
    mu_function *steps[4];
    job sized[4];
    for (int i = 0; i < 4; i++) {
        sized[i] = *j;
        sized[i].n = sizes[i];
        steps[i] = mu_function_new(compare, &sized[i]);
    }
    double off = 0;
    while (mu_error_code() == MU_OK && j->done < j->rounds) {
        mu_pool *pool = mu_pool_open();
        mu_value *result = mu_run(j->strategy, steps[j->done % 4], NULL);
        off += mu_scalar(mu_reduce(j->strategy, MU_SUM, result));
        next_round(j);
        mu_pool_close(pool);
    }
    if (mu_error_code() == MU_OK)
        printf("off by %g\n", off);
    return mu_error_code() == MU_OK;
}

// ---- Training -----------------------------------------------------------------------------------

static mu_status batch_ended(const mu_logs *logs, void *arg)
{
    (void)logs;
    next_round(arg);
    return MU_OK;
}

static bool run_fit(job *j)
{
    mu_dataset *batches = mu_dataset_batch(shuffled_rows(), BATCH);
    mu_history *history = mu_fit(j->model, batches, .epochs = 4, .verbose = MU_VERBOSE_SILENT,
                                 .callbacks = MU_CALLBACKS(mu_backup_and_restore(j->folder, .save_freq = 5),
                                                           mu_callback_new(.on_batch_end = batch_ended, .arg = j)));
    return history != NULL && mu_save_weights(j->model, j->weights) == MU_OK;
}

static mu_value *train_step(mu_value *batch, void *arg)
{
    const job *j = arg;
    return train_on_batch(j->model, j->optimizer, batch);
}

static bool run_loop(job *j)
{
    mu_function *step = mu_function_new(train_step, j);
    mu_dataset *endless = mu_dataset_batch(mu_dataset_repeat(shuffled_rows(), -1), BATCH);
    mu_iterator *batches = mu_iterate(mu_distribute_dataset(j->strategy, endless));
    while (mu_error_code() == MU_OK && j->done < j->rounds) {
        mu_pool *pool = mu_pool_open();
        mu_run(j->strategy, step, mu_next(batches));
        next_round(j);
        mu_pool_close(pool);
    }
    return mu_error_code() == MU_OK && mu_save_weights(j->model, j->weights) == MU_OK;
}

static mu_value *next_row(void *state)
{
    job *j = state;
    if (j->n == (int64_t)j->rounds * BATCH)
        return NULL;
    const int64_t i = j->n++;
    if (i % BATCH == 0)
        next_round(j);
    float x[WIDTH];
    for (int k = 0; k < WIDTH; k++)
        x[k] = (float)(i * 31 % 23 + k);
    return mu_list(mu_tensor_new(MU_F32, 1, (int64_t[]){WIDTH}, x), mu_constant(MU_I64, (double)(i % 3)), MU_END);
}

static bool run_evaluate(job *j)
{
    mu_dataset *batches = mu_dataset_batch(mu_dataset_generator(next_row, j), BATCH);
    return mu_evaluate(j->model, batches, .verbose = MU_VERBOSE_SILENT) != NULL;
}

static bool run_save(job *j)
{
    mu_checkpoint *checkpoint = mu_checkpoint_new(.model = j->model);
    mu_checkpoint_manager *manager = mu_checkpoint_manager_new(checkpoint, j->folder, .max_to_keep = 2);
    while (mu_error_code() == MU_OK && j->done < j->rounds) {
        mu_checkpoint_manager_save(manager, -1);
        next_round(j);
    }
    return mu_error_code() == MU_OK;
}

static void make_model(job *j)
{
    MU_SCOPE(j->strategy) {
        j->model = mu_sequential(mu_dense(8, .activation = "relu"), mu_dropout(.2), mu_dense(3));
        j->optimizer = mu_adam();
        mu_compile(j->model, .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true),
                   .optimizer = j->optimizer);
        mu_model_build(j->model, 1, (int64_t[]){WIDTH});
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        bool (*run)(job *j);
    } all[] = {{"collectives", run_collectives},
               {"fit", run_fit},
               {"loop", run_loop},
               {"evaluate", run_evaluate},
               {"save", run_save}};
    if (argc < 4)
        return 64;
    job j = {.folder = argv[2],
             .weights = argv[3],
             .rounds = argc > 4 ? atoi(argv[4]) : 40,
             .pause = argc > 5 ? atof(argv[5]) : 0};
    mu_init(.seed = 3);
    mu_stop_on_signals();
    j.strategy = mu_multi_worker_mirrored_strategy();
    make_model(&j);
    bool good = false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (strcmp(argv[1], all[i].name) == 0)
            good = all[i].run(&j);
    if (good)
        puts("well");
    return mu_exit(good);
}
