// Checkpoints: the whole state of a training run in one file, and resuming from it after a failure.
//
// A checkpoint holds weights, the optimizer's state, running metrics, random states and the place in the data, so
// that an interrupted run ends with the weights of an undisturbed one. Files are safetensors, named after step
// numbers; each appears whole under its name or not at all, so a crash at any moment leaves the one before. What is
// saved does not depend on the strategy: a run on four replicas continues with three.
#ifndef MUSTER_CHECKPOINT_H
#define MUSTER_CHECKPOINT_H

#include <muster/model.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- One checkpoint -----------------------------------------------------------------------------

typedef struct mu_checkpoint mu_checkpoint;

typedef struct mu_checkpoint_args {
    size_t size;
    mu_keyword_only only_;
    mu_model *model;          // its weights and random states; if it is compiled its optimizer and metrics too
    mu_optimizer *optimizer;  // of a custom loop
    mu_value *variables;      // more variables (mu_variables), saved under their names
    mu_iterator *iterator;    // its place in the data; restore before its first element
} mu_checkpoint_args;

// mu_checkpoint_new names what is saved together; everything in it is retained.
// Errors: INVALID_ARGUMENT if there is nothing to save, or .variables holds something else.
#define mu_checkpoint_new(...) mu_checkpoint_new_with(MU_ARGS(mu_checkpoint_args, __VA_ARGS__))
MU_API mu_checkpoint *mu_checkpoint_new_with(const mu_checkpoint_args *args);

// mu_checkpoint_save writes the state to a file, whole or not at all. Collective: under a strategy of several
// workers all must call it, and the chief writes. Errors: FAILED_PRECONDITION inside replicas; RESOURCE_EXHAUSTED for
// a full disk (the previous file is kept).
MU_API mu_status mu_checkpoint_save(mu_checkpoint *checkpoint, const char *path);

// mu_checkpoint_restore reads a file back. A model that has no weights yet is built, with the shape it had. Nothing
// changes unless everything fits. Errors: NOT_FOUND; DATA_LOSS for a damaged file; INVALID_ARGUMENT naming the
// first variable that is missing or has another type or shape.
MU_API mu_status mu_checkpoint_restore(mu_checkpoint *checkpoint, const char *path);

// ---- A folder of checkpoints --------------------------------------------------------------------

typedef struct mu_checkpoint_manager mu_checkpoint_manager;

typedef struct mu_checkpoint_manager_args {
    size_t size;
    mu_checkpoint *checkpoint;
    const char *directory;    // made if it is not there
    mu_keyword_only only_;
    int max_to_keep;          // older ones are deleted; default 5
    const char *name;         // of the files: "ckpt" (default) gives ckpt-12.safetensors
} mu_checkpoint_manager_args;

// mu_checkpoint_manager_new looks after the checkpoints of one run.
#define mu_checkpoint_manager_new(...) \
    mu_checkpoint_manager_new_with(MU_ARGS(mu_checkpoint_manager_args, __VA_ARGS__))
MU_API mu_checkpoint_manager *mu_checkpoint_manager_new_with(const mu_checkpoint_manager_args *args);

// mu_checkpoint_manager_save writes the checkpoint with this number; below 0: the one after the latest.
MU_API mu_status mu_checkpoint_manager_save(mu_checkpoint_manager *manager, int64_t number);
// mu_checkpoint_manager_latest returns the highest number in the folder, -1 if there is none.
MU_API int64_t mu_checkpoint_manager_latest(mu_checkpoint_manager *manager);
// mu_checkpoint_manager_restore restores the latest one that is whole (a damaged one is named on the log, and the
// one before taken) and returns its number; -1 without an error if there is none to restore.
MU_API int64_t mu_checkpoint_manager_restore(mu_checkpoint_manager *manager);

// ---- Going on after an interruption -------------------------------------------------------------

typedef struct mu_backup_and_restore_args {
    size_t size;
    const char *backup_dir;         // of this run alone; made if it is not there, gone after a successful end
    mu_keyword_only only_;
    int64_t save_freq;              // steps from one backup to the next; default: at the end of every epoch
    bool no_delete_checkpoint;      // keep the backup after a successful end
} mu_backup_and_restore_args;

// mu_backup_and_restore saves the state of fit, and continues from there when the program runs again: with the same
// model, data and arguments it ends with the weights of an undisturbed run. It also saves when a signal ends fit
// (mu_stop_on_signals), after the step in progress, which all workers agree on; the program then leaves with
// 128 + the signal's number, 143 for SIGTERM.
#define mu_backup_and_restore(...) \
    mu_backup_and_restore_with(MU_ARGS(mu_backup_and_restore_args, __VA_ARGS__))
MU_API mu_callback *mu_backup_and_restore_with(const mu_backup_and_restore_args *args);

// ---- Preemption in custom loops -----------------------------------------------------------------

typedef struct mu_preemption_handler mu_preemption_handler;

typedef struct mu_preemption_handler_args {
    size_t size;
    mu_checkpoint *checkpoint;       // what is saved; or .manager
    const char *directory;           // where; the latest file stays
    mu_keyword_only only_;
    mu_checkpoint_manager *manager;  // saves as it does, in place of checkpoint and directory
    mu_strategy *strategy;           // whose workers leave together; default: the checkpoint's, or the one in scope
    double grace_period;             // seconds that are left when the signal comes; default 0: leave at once
    int exit_code;                   // default 42
    bool (*termination_watcher_fn)(void *arg);  // asked once a second whether the end is near; default: SIGTERM says so
    mu_status (*save_fn)(void *arg);            // saves, in place of the manager
    void (*exit_fn)(void *arg);                 // called when all is saved; it may end the process
    void *arg;                                  // of these functions
} mu_preemption_handler_args;

// mu_preemption_handler_new lets a loop of steps be interrupted without losing any: when SIGTERM comes to one of the
// workers (SIGINT too), or its watcher says so, all agree on a step, save in front of it and leave. First of all it
// restores the latest checkpoint, with the number of steps that were run. With a grace period training continues after
// that first save, and a second one follows shortly before the period is over. Collective: all workers make one.
// Errors: INVALID_ARGUMENT without a checkpoint or its directory, or where workers do not see the same files;
// UNIMPLEMENTED for clusters with parameter servers; those of mu_checkpoint_manager_restore.
#define mu_preemption_handler_new(...) \
    mu_preemption_handler_new_with(MU_ARGS(mu_preemption_handler_args, __VA_ARGS__))
MU_API mu_preemption_handler *mu_preemption_handler_new_with(const mu_preemption_handler_args *args);

// mu_preemption_run runs one step: it calls `fn`, which takes the next batch and runs the replicas, and counts. All
// workers call it equally often. NULL without a record is fn's (its data has ended) and does not count. An error of
// one worker's fn is that of all. Errors: CANCELLED when the state is saved and the program should end: mu_exit then
// returns the exit code (130 for SIGINT).
MU_API mu_value *mu_preemption_run(mu_preemption_handler *handler, mu_value *(*fn)(mu_value *arguments, void *arg),
                                   void *arg, mu_value *arguments);

// mu_preemption_total_runs counts the steps that were run, also before this process began; -1 on error.
MU_API int64_t mu_preemption_total_runs(const mu_preemption_handler *handler);

#ifdef __cplusplus
}
#endif
#endif
