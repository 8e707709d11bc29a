// A training program in which one worker fails on purpose at a chosen moment. It trains in a loop of its own, saves,
// evaluates and ends. Usage: victim FOLDER WEIGHTS [WORKER MOMENT ACTION]; MOMENT: start, joined, values, trace, input,
// between, collective, save, evaluate, end; ACTION: kill, stop, leave, skip (a step) or seconds to sleep. With
// VICTIM_ONCE, the name of a file, it does so only if that file does not exist.
#define _GNU_SOURCE // usleep
#include <muster.h>

#include "train_on_batch.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 96, WIDTH = 6, BATCH = 16, STEPS = 20, AT = 7 };

typedef struct job {
    mu_strategy *strategy;
    mu_model *model;
    mu_optimizer *optimizer;
    mu_function *step;
    int worker; // the worker that fails; -1: none
    const char *moment, *action;
    int drawn; // rows
    int begin; // of the rows that evaluation draws
} job;

static bool is_victim(const job *j)
{
    const char *once = getenv("VICTIM_ONCE"), *config = getenv("TF_CONFIG");
    const char *index = config ? strstr(config, "\"index\":") : NULL;
    return j->worker >= 0 && index && atoi(index + 8) == j->worker && !(once && access(once, F_OK) == 0);
}

static void act(const job *j)
{
    const char *once = getenv("VICTIM_ONCE");
    if (once)
        fclose(fopen(once, "w"));
    printf("acting\n");
    fflush(stdout);
    if (strcmp(j->action, "kill") == 0)
        kill(getpid(), SIGKILL);
    else if (strcmp(j->action, "stop") == 0)
        kill(getpid(), SIGSTOP);
    else if (strcmp(j->action, "leave") == 0)
        exit(mu_exit(true));
    else
        usleep((useconds_t)(1e6 * atof(j->action)));
}

static bool is_now(const job *j, const char *moment) { return strcmp(j->moment, moment) == 0 && is_victim(j); }

static void now(const job *j, const char *moment)
{
    if (is_now(j, moment))
        act(j);
}

// An action that happens a little later, while the program is inside of the library.
static void *act_soon(void *arg)
{
    usleep(300000);
    act(arg);
    return NULL;
}

static void soon(job *j)
{
    pthread_t thread;
    pthread_create(&thread, NULL, act_soon, j);
    pthread_detach(thread);
}

static mu_value *next_row(void *state)
{
    job *j = state;
    float x[WIDTH];
    if (j->drawn == j->begin + ROWS)
        return NULL;
    const int i = j->drawn++;
    if (i == (AT + 1) * BATCH)
        now(j, "input");
    if (j->begin > 0 && i == j->begin + ROWS / 2)
        now(j, "evaluate");
    for (int k = 0; k < WIDTH; k++)
        x[k] = (float)((i * 31 + k * 17) % 23) / 23 + (float)(k == i % 3);
    return mu_list(mu_tensor_new(MU_F32, 1, (int64_t[]){WIDTH}, x), mu_constant(MU_I64, i % 3), MU_END);
}

static mu_dataset *rows(job *j, int begin)
{
    j->drawn = j->begin = begin;
    if (begin == 0)
        j->begin = STEPS * BATCH - ROWS; // as many as all steps need
    return mu_dataset_batch(mu_dataset_generator(next_row, j), BATCH);
}

static mu_value *train_step(mu_value *batch, void *arg)
{
    const job *j = arg;
    now(j, "trace");
    return train_on_batch(j->model, j->optimizer, batch);
}

static void step(job *j, int number, mu_iterator *batches)
{
    mu_value *batch = mu_next(batches);
    if (number == AT && strcmp(j->moment, "collective") == 0) {
        const bool skips = strcmp(j->action, "skip") == 0;
        if (skips && is_victim(j)) {
            printf("acting\n");
            return; // the others are in the step that this one never runs
        }
        if (is_victim(j))
            soon(j);
        else if (!skips)
            usleep(700000); // so that the victim waits in the collective when it happens
    }
    if (number == AT)
        now(j, "between");
    if (batch)
        mu_run(j->strategy, j->step, batch);
}

static void make_model(job *j)
{
    MU_SCOPE(j->strategy) {
        mu_variable_new(mu_constant(MU_F32, 1), "first");
        now(j, "values");
        mu_variable_new(mu_constant(MU_F32, 2), "second");
        j->model = mu_sequential(mu_dense(8, .activation = "relu"), mu_dense(3));
        mu_compile(j->model, .optimizer = j->optimizer = mu_adam(),
                   .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true));
    }
    j->step = mu_function_new(train_step, j);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 64;
    job j = {.worker = -1, .moment = "", .action = ""};
    if (argc > 5)
        j = (job){.worker = atoi(argv[3]), .moment = argv[4], .action = argv[5]};
    mu_init(.seed = 3);
    mu_stop_on_signals();
    now(&j, "start");
    j.strategy = mu_multi_worker_mirrored_strategy();
    printf("joined\n");
    fflush(stdout);
    now(&j, "joined");
    make_model(&j);
    mu_checkpoint *checkpoint = mu_checkpoint_new(.model = j.model);
    mu_checkpoint_manager *manager = mu_checkpoint_manager_new(checkpoint, argv[1], .max_to_keep = 2);
    mu_iterator *batches = mu_iterate(mu_distribute_dataset(j.strategy, rows(&j, 0)));
    for (int i = 0; mu_error_code() == MU_OK && i < STEPS; i++) {
        mu_pool *pool = mu_pool_open();
        step(&j, i, batches);
        mu_pool_close(pool);
    }
    if (is_now(&j, "save"))
        soon(&j);
    const int saves = strcmp(j.moment, "save") == 0 ? 100000 : 2; // more than there is time for
    for (int i = 0; mu_error_code() == MU_OK && i < saves; i++)
        mu_checkpoint_manager_save(manager, -1);
    mu_history *result = mu_evaluate(j.model, rows(&j, 1000), .verbose = MU_VERBOSE_SILENT);
    now(&j, "end");
    const bool saved = mu_save_weights(j.model, argv[2]) == MU_OK;
    return mu_exit(result && saved);
}
