// Trains a small model in a custom loop under a preemption handler that saves to a folder, and writes the weights at
// the end. Further arguments say which worker gets SIGTERM and when: preempted_loop FOLDER WEIGHTS [WORKER WHERE STEP
// [GRACE]]; WHERE is input, step, between, save (a periodic save), twice, fail (the step fails) or watch (the watcher
// reports it). With LOOP_PAUSE every step takes that many milliseconds longer; with LOOP_SAVES_NOTHING save_fn does
// nothing.
#define _DEFAULT_SOURCE // usleep
#include <muster.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shuffled_rows.h"
#include "train_on_batch.h"

enum { STEPS = 60, SAVE_EVERY = 10 };

typedef struct job {
    mu_strategy *strategy;
    mu_model *model;
    mu_optimizer *optimizer;
    mu_iterator *iterator;
    mu_function *step;
    int64_t done;      // steps, of this process
    const char *where; // "": never
    int64_t at;
    int pause_ms;
} job;

static void interrupt_at(const job *j, const char *where)
{
    if (strcmp(j->where, where) != 0 || j->done != j->at)
        return;
    raise(SIGTERM);
}

static mu_value *train_step(mu_value *batch, void *arg)
{
    const job *j = arg;
    return train_on_batch(j->model, j->optimizer, batch);
}

static mu_value *one_step(mu_value *arguments, void *arg)
{
    job *j = arg;
    (void)arguments;
    interrupt_at(j, "input");
    mu_value *batch = mu_next(j->iterator);
    interrupt_at(j, "step");
    if (strcmp(j->where, "fail") == 0 && j->done == j->at) {
        mu_fail(MU_RESOURCE_EXHAUSTED, "out of luck in step %lld", (long long)j->done);
        return NULL;
    }
    usleep((useconds_t)j->pause_ms * 1000);
    return batch ? mu_run(j->strategy, j->step, batch) : NULL;
}

static bool the_end_is_near(void *arg)
{
    const job *j = arg;
    return strcmp(j->where, "watch") == 0 && j->done >= j->at;
}

static mu_status save_nothing(void *arg)
{
    (void)arg;
    return MU_OK;
}

static bool loop(job *j, mu_checkpoint_manager *manager, double grace)
{
    const bool watched = strcmp(j->where, "watch") == 0, nothing = getenv("LOOP_SAVES_NOTHING") != NULL;
    mu_preemption_handler *handler =
        mu_preemption_handler_new(.manager = manager, .strategy = j->strategy, .grace_period = grace, .arg = j,
                                  .termination_watcher_fn = watched ? the_end_is_near : NULL,
                                  .save_fn = nothing ? save_nothing : NULL);
    const int64_t first = mu_preemption_total_runs(handler);
    for (int64_t step = first; mu_error_code() == MU_OK && step < STEPS; step++, j->done++) {
        mu_pool *pool = mu_pool_open();
        interrupt_at(j, "between");
        if (strcmp(j->where, "twice") == 0 && j->done == j->at)
            raise(SIGTERM), raise(SIGTERM);
        if (step > 0 && step % SAVE_EVERY == 0 && grace == 0) {
            interrupt_at(j, "save");
            mu_checkpoint_manager_save(manager, -1);
        }
        mu_preemption_run(handler, one_step, j, NULL);
        mu_pool_close(pool);
    }
    printf("steps %lld to %lld\n", (long long)first, (long long)mu_preemption_total_runs(handler));
    return mu_error_code() == MU_OK;
}

int main(int argc, char **argv)
{
    const char *pause = getenv("LOOP_PAUSE");
    if (argc < 3)
        return 64;
    mu_init(.cpu_devices = 1, .seed = 3);
    job j = {.strategy = mu_multi_worker_mirrored_strategy(), .where = "", .pause_ms = pause ? atoi(pause) : 0};
    if (argc > 5 && j.strategy && mu_strategy_worker_index(j.strategy) == atoi(argv[3])) {
        j.where = argv[4];
        j.at = atoll(argv[5]);
    }
    MU_SCOPE(j.strategy) {
        j.model = mu_sequential(mu_dense(8, .activation = "relu"), mu_dropout(.2), mu_dense(3));
        j.optimizer = mu_adam();
        mu_compile(j.model, .optimizer = j.optimizer,
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    j.step = mu_function_new(train_step, &j);
    mu_dataset *endless = mu_dataset_batch(mu_dataset_repeat(shuffled_rows(), -1), 16);
    j.iterator = mu_iterate(mu_distribute_dataset(j.strategy, endless));
    mu_checkpoint *checkpoint = mu_checkpoint_new(.model = j.model, .iterator = j.iterator);
    bool ok = loop(&j, mu_checkpoint_manager_new(checkpoint, argv[1], .max_to_keep = 3), argc > 6 ? atof(argv[6]) : 0);
    if (ok)
        ok = mu_save_weights(j.model, argv[2]) == MU_OK;
    return mu_exit(ok);
}
