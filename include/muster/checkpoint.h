// Checkpoints: save the whole state of a training run in one file, and resume from it after a failure.
//
// A checkpoint holds weights, optimizer state, running metrics, random states and the position in the data, so an
// interrupted run ends with the same weights as an uninterrupted one. Files are in safetensors format and named after
// step numbers. Each file appears complete under its name or not at all, so after a crash the previous one is still
// there. The contents do not depend on the strategy: a run on four replicas can continue on three.
//
// Errors: what saves or restores fails with FAILED_PRECONDITION on a replica and in a trace; for variables on servers
// with UNAVAILABLE, CANCELLED and DATA_LOSS (muster/parameter_server.h).
#ifndef MUSTER_CHECKPOINT_H
#define MUSTER_CHECKPOINT_H

#include <muster/embedding_table.h>
#include <muster/model.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- One checkpoint -----------------------------------------------------------------------------

typedef struct mu_checkpoint mu_checkpoint; // objects that are saved together

typedef struct mu_checkpoint_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    mu_model *model;         // weights and random states; also optimizer and metrics if it is compiled
    mu_optimizer *optimizer; // optimizer of a custom training loop
    mu_value *variables;     // further variables (mu_variables), saved under their names
    mu_iterator *iterator;   // position in the data; restore it before its first element is read
    // Embedding tables with the state of their rows, saved under their names: MU_EMBEDDING_TABLES(…); ends with MU_END.
    mu_embedding_table *const *embedding_tables;
    // Further objects by name, MU_BY_NAME("critic", model, "noise", variables): models (with optimizer and metrics if
    // they are compiled), optimizers, metrics, iterators, and values of variables. What they hold is saved under
    // NAME/…, so names of layers may repeat; a variable of several objects is saved once, with the first. An optimizer
    // alone has the state that it has when a file is saved or restored: see mu_optimizer_build.
    mu_items *objects;
} mu_checkpoint_args;
#define MU_EMBEDDING_TABLES(...) MU_LIST_OF(mu_embedding_table, __VA_ARGS__)

// mu_checkpoint_new groups the objects that are saved together, and retains them. Errors: INVALID_ARGUMENT if there is
// nothing to save, if .variables holds anything but variables, for an object of another kind, or if two variables would
// have one name in a file.
#define mu_checkpoint_new(...) mu_checkpoint_new_with(MU_ARGS(mu_checkpoint_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_checkpoint *mu_checkpoint_new_with(const mu_checkpoint_args *args);

// mu_checkpoint_save writes the state to a file, atomically. Collective: under a strategy with several workers every
// worker must call it; the chief writes the file. Errors: FAILED_PRECONDITION inside replicas; RESOURCE_EXHAUSTED if
// the disk is full (the previous file is kept).
MU_API mu_status mu_checkpoint_save(mu_checkpoint *checkpoint, const char *path);

// mu_checkpoint_restore restores the state from a file. A model without weights is built first, with the saved shapes.
// If anything does not match, nothing changes. Errors: NOT_FOUND; DATA_LOSS for a damaged file; INVALID_ARGUMENT naming
// the first variable that is missing or has another type or shape.
MU_API mu_status mu_checkpoint_restore(mu_checkpoint *checkpoint, const char *path);

// ---- A folder of checkpoints --------------------------------------------------------------------

typedef struct mu_checkpoint_manager mu_checkpoint_manager; // the numbered checkpoints of a run

typedef struct mu_checkpoint_manager_args {
    size_t size;
    const char *given;
    mu_checkpoint *checkpoint;
    const char *directory; // created if it does not exist
    mu_keyword_only only_;
    int max_to_keep;  // older checkpoints are deleted; default 5
    const char *name; // prefix of file names; default "ckpt", as in ckpt-12.safetensors
} mu_checkpoint_manager_args;

// mu_checkpoint_manager_new manages the numbered checkpoints of one run in a folder. Retains: checkpoint.
#define mu_checkpoint_manager_new(...) \
    mu_checkpoint_manager_new_with(MU_ARGS(mu_checkpoint_manager_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_checkpoint_manager *mu_checkpoint_manager_new_with(const mu_checkpoint_manager_args *args);

// mu_checkpoint_manager_save writes the checkpoint with this number; a negative number means the latest number plus 1.
// Errors: as mu_checkpoint_save.
MU_API mu_status mu_checkpoint_manager_save(mu_checkpoint_manager *manager, int64_t number);
// mu_checkpoint_manager_latest returns the highest number in the folder, -1, without an error, if there is none.
MU_API int64_t mu_checkpoint_manager_latest(mu_checkpoint_manager *manager);
// mu_checkpoint_manager_restore restores the latest intact checkpoint and returns its number. The log names each
// damaged one that it skips. Returns -1 without an error if there is no checkpoint to restore. Errors (-1): as
// mu_checkpoint_restore; DATA_LOSS if all are damaged.
MU_API int64_t mu_checkpoint_manager_restore(mu_checkpoint_manager *manager);

// ---- Resuming after an interruption -------------------------------------------------------------

typedef struct mu_backup_and_restore_args {
    size_t size;
    const char *given;
    const char *backup_dir; // folder for this run only; created if missing, deleted after a successful end
    mu_keyword_only only_;
    int64_t save_freq;         // steps between backups; default: one backup at the end of each epoch
    bool no_delete_checkpoint; // keep the backup after a successful end
    mu_items *objects;         // saved with the model, retained: as in mu_checkpoint_args
} mu_backup_and_restore_args;

// mu_backup_and_restore saves the state of mu_fit, and restores it when the program runs again. With the same model,
// data and arguments the run ends with the same weights as an uninterrupted one. When a signal ends mu_fit
// (mu_stop_on_signals), it also saves after the step in progress, which all workers agree on; mu_exit then returns 128
// + the signal's number: 143 for SIGTERM.
#define mu_backup_and_restore(...) \
    mu_backup_and_restore_with(MU_ARGS(mu_backup_and_restore_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_callback *mu_backup_and_restore_with(const mu_backup_and_restore_args *args);

// ---- Preemption in custom loops -----------------------------------------------------------------

typedef struct mu_preemption_handler mu_preemption_handler; // saves and ends a training loop when it is asked to stop

typedef struct mu_preemption_handler_args {
    size_t size;
    const char *given;
    mu_checkpoint *checkpoint; // what to save, retained; or set .manager
    const char *directory;     // folder to save in; only the latest file is kept
    mu_keyword_only only_;
    mu_checkpoint_manager *manager; // used instead of checkpoint and directory; retained
    // its workers stop together; retained; default: the checkpoint's strategy, else the one in scope
    mu_strategy *strategy;
    double grace_period; // seconds between the signal and the end; default 0: stop at once
    int exit_code;       // exit code of the process; default 42
    // called once a second; true: the process will be ended soon; default: wait for SIGTERM
    bool (*termination_watcher_fn)(void *arg);
    mu_status (*save_fn)(void *arg); // saves the state instead of the manager
    void (*exit_fn)(void *arg);      // called after saving; it may end the process
    void *arg;                       // passed to these functions
} mu_preemption_handler_args;

// mu_preemption_handler_new makes a training loop preemptible without losing a step. When a worker gets SIGTERM or
// SIGINT, or its watcher returns true, all workers agree on a step, save before that step and stop. The call itself
// first restores the latest checkpoint, including the number of steps run so far. With a grace period, training
// continues after the first save, and a second save follows shortly before the period ends. Collective: every worker
// makes one. Errors: INVALID_ARGUMENT without a checkpoint or directory, or if workers do not see the same files;
// UNIMPLEMENTED for clusters with parameter servers; and the errors of mu_checkpoint_manager_restore.
#define mu_preemption_handler_new(...) \
    mu_preemption_handler_new_with(MU_ARGS(mu_preemption_handler_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_preemption_handler *mu_preemption_handler_new_with(const mu_preemption_handler_args *args);

// mu_preemption_run runs and counts one step: it calls `fn`, which takes the next batch and runs the replicas. All
// workers must call it the same number of times. If fn returns NULL without an error (its data has ended), so does
// mu_preemption_run, and the step is not counted. If fn fails on one worker, the call fails on all. Errors: CANCELLED
// when the state has been saved and the program should end; mu_exit then returns the exit code (130 for SIGINT).
// FAILED_PRECONDITION after that.
MU_API mu_value *mu_preemption_run(mu_preemption_handler *handler, mu_value *(*fn)(mu_value *arguments, void *arg),
                                   void *arg, mu_value *arguments);

// mu_preemption_total_runs returns the number of steps run, including those of earlier processes; -1 for NULL.
MU_API int64_t mu_preemption_total_runs(const mu_preemption_handler *handler);

#ifdef __cplusplus
}
#endif
#endif
