// Trains a small model on all workers with backups in a folder. With a third argument a worker gets a signal after so
// many steps, by default worker 1 SIGTERM. Usage: preempted FOLDER WEIGHTS [STEPS [WORKER SIGNAL]]. With
// PREEMPTED_ONCE, the name of a file, it gets the signal only if that file does not exist.
#include <muster.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "shuffled_rows.h"

typedef struct breaking {
    int64_t at;
    bool mine;
    int number;
} breaking;

static mu_status count_down(const mu_logs *logs, void *arg)
{
    (void)logs;
    breaking *b = arg;
    if (--b->at != 0 || !b->mine)
        return MU_OK;
    const char *once = getenv("PREEMPTED_ONCE");
    FILE *file = once ? fopen(once, "wx") : NULL;
    if (!once || file)
        raise(b->number);
    if (file)
        fclose(file);
    return MU_OK;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 64;
    mu_init(.seed = 3);
    mu_stop_on_signals();
    mu_strategy *strategy = mu_multi_worker_mirrored_strategy();
    const int worker = strategy ? mu_strategy_worker_index(strategy) : 0;
    breaking b = {.at = argc > 3 ? atoll(argv[3]) : -1,
                  .mine = worker == (argc > 4 ? atoi(argv[4]) : 1),
                  .number = argc > 5 ? atoi(argv[5]) : SIGTERM};
    mu_model *model = NULL;
    MU_SCOPE(strategy) {
        model = mu_sequential(mu_dense(8, .activation = "relu"), mu_dropout(.2), mu_dense(3));
        mu_compile(model, .loss = mu_sparse_categorical_crossentropy_loss(.from_logits = true), .optimizer = mu_adam());
    }
    mu_dataset *batches = mu_dataset_batch(shuffled_rows(), 16);
    mu_history *history = mu_fit(model, batches, .epochs = 4, .verbose = MU_VERBOSE_SILENT,
                                 .callbacks = MU_CALLBACKS(mu_backup_and_restore(argv[1]),
                                                           mu_callback_new(.on_batch_end = count_down, .arg = &b)));
    if (history)
        mu_save_weights(model, argv[2]);
    return mu_exit(history != NULL);
}
