// Cases FAULT of the parameter-server list: training that is told to end, saves, and continues in the next run.
// tests/ranks/preemption_loop has the same at many moments, down to the bytes of the weights.
#include "cases.h"

#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 12, TOLD_AT = 5 };

static const char *folder_of_run(void)
{
    static char folder[256];
    snprintf(folder, sizeof folder, "%.200s.saved", getenv("CASE_MARK"));
    return folder;
}

// The number of entries of the folder, and whether one of them has this name; -1: there is no folder.
static int entries(const char *folder, const char *name, bool *found)
{
    DIR *directory = opendir(folder);
    int n = directory ? 0 : -1;
    for (const struct dirent *e; directory && (e = readdir(directory));) {
        n += e->d_name[0] != '.';
        *found |= strcmp(e->d_name, name) == 0;
    }
    if (directory)
        closedir(directory);
    return n;
}

static mu_value *add_one(mu_value *arguments, void *arg)
{
    (void)arguments;
    mu_variable_assign_add(arg, scalar(1));
    return mu_of(scalar(0));
}

typedef struct loop {
    mu_strategy *strategy;
    mu_variable *v;
    mu_function *step;
} loop;

static mu_value *run_step(mu_value *arguments, void *arg)
{
    (void)arguments;
    const loop *l = arg;
    return mu_run(l->strategy, l->step, NULL);
}

static mu_status save_nothing(void *arg)
{
    (void)arg;
    return MU_OK;
}

static void end_first_life(void)
{
    FILE *mark = fopen(getenv("CASE_MARK"), "w");
    if (mark)
        fclose(mark);
    raise(SIGTERM);
}

// The last worker is told to end in the first life; then all leave with the handler's exit code.
static mu_variable *train(mu_strategy *strategy, bool saves)
{
    const bool first = access(getenv("CASE_MARK"), F_OK) != 0;
    loop l = {.strategy = strategy, .v = on_write(strategy, 0, MU_AGGREGATION_SUM)};
    l.step = mu_function_new(add_one, l.v);
    mu_preemption_handler *handler =
        mu_preemption_handler_new(mu_checkpoint_new(.variables = mu_variables(l.v, MU_END)), folder_of_run(),
                                  .strategy = strategy, .arg = &l, .save_fn = saves ? NULL : save_nothing);
    const bool last = mu_strategy_worker_index(strategy) == mu_strategy_worker_count(strategy) - 1;
    for (int64_t i = mu_preemption_total_runs(handler); i < STEPS && mu_error_code() == MU_OK; i++) {
        if (first && last && i == TOLD_AT)
            end_first_life();
        mu_preemption_run(handler, run_step, &l, NULL);
    }
    if (mu_error_code() == MU_CANCELLED)
        exit(mu_exit(false));
    CHECK(!first);
    return l.v;
}

// Also ps-160: in one process without a cluster.
void ps_158(mu_strategy *strategy)
{
    mu_variable *v = train(strategy, true);
    bool found = false;
    EXPECT(read_of(v), STEPS * mu_num_replicas_in_sync(strategy));
    CHECK(entries(folder_of_run(), "ckpt-1.safetensors", &found) == 1 && found);
}

void ps_161(mu_strategy *strategy)
{
    bool found = false;
    train(strategy, false);
    CHECK(entries(folder_of_run(), "ckpt-1.safetensors", &found) <= 0 && !found);
}

// TensorFlow's worker 1 writes to a folder of its own and deletes it; here it writes nothing.
void ps_163(mu_strategy *strategy)
{
    bool found = false;
    mu_variable *v = on_write(strategy, 7, MU_AGGREGATION_MEAN);
    mu_checkpoint *checkpoint = mu_checkpoint_new(.variables = mu_variables(v, MU_END));
    mu_checkpoint_manager *manager = mu_checkpoint_manager_new(checkpoint, folder_of_run());
    CHECK(mu_checkpoint_manager_save(manager, 1) == MU_OK);
    CHECK(entries(folder_of_run(), "ckpt-1.safetensors", &found) == 1 && found);
    mu_variable_assign(v, scalar(0));
    CHECK(mu_checkpoint_manager_restore(manager) == 1);
    EXPECT(read_of(v), 7);
}

// ---- mu_fit -------------------------------------------------------------------------------------

typedef struct epochs {
    int n, breaks_at; // epochs that began; in which one the program is interrupted, -1: none
} epochs;

static mu_status count_epoch(const mu_logs *logs, void *arg)
{
    epochs *e = arg;
    if (logs->epoch == e->breaks_at)
        return mu_fail(MU_CANCELLED, "interrupted");
    e->n++;
    return MU_OK;
}

static bool fit(const char *folder, epochs *e)
{
    mu_model *model = mu_sequential(mu_dense(1));
    mu_compile(model, .optimizer = mu_sgd(.learning_rate = 0.1), .loss = mu_mean_squared_error_loss());
    mu_tensor *rows = mu_zeros(MU_F32, 2, (int64_t[]){4, 3}), *wanted = mu_zeros(MU_F32, 2, (int64_t[]){4, 1});
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(rows, wanted, MU_END)), 2);
    mu_callback *counter = mu_callback_new(.on_epoch_begin = count_epoch, .arg = e);
    return mu_fit(model, data, .epochs = 10, .verbose = MU_VERBOSE_SILENT,
                  .callbacks = MU_CALLBACKS(mu_backup_and_restore(folder), counter)) != NULL;
}

static void ps_164(void)
{
    char folder[] = "/tmp/muster-case-XXXXXX";
    bool found = false;
    epochs first = {.breaks_at = 4}, second = {.breaks_at = -1};
    CHECK(mkdtemp(folder));
    CHECK(!fit(folder, &first) && first.n == 4);
    EXPECT_ERROR(MU_CANCELLED);
    CHECK(fit(folder, &second) && second.n == 6);
    CHECK(entries(folder, "", &found) <= 0);
    rmdir(folder);
}

const one_case preempted_cases[] = {
    {"ps-164", .run = ps_164},
    {0},
};
