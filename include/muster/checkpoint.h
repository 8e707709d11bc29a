// Checkpoints: the whole state of a training run in one file, and going on from it after a failure.
//
// A checkpoint holds weights, the optimizer's state, running metrics, random states and the place in the data, so
// that an interrupted run ends with the weights of an undisturbed one. Files are safetensors, named after step
// numbers; each appears whole under its name or not at all, so a crash at any moment leaves the one before. What is
// saved does not depend on the strategy: a run on four replicas goes on with three.
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
// a full disk (the file of before stays).
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
    const char *backup_dir;         // of this run alone; made if it is not there
    mu_keyword_only only_;
    int64_t save_freq;              // steps from one backup to the next; default: at the end of every epoch
    bool no_delete_checkpoint;      // keep the backup after a successful end
} mu_backup_and_restore_args;

// mu_backup_and_restore saves the state of fit, and goes on from there when the program runs again: with the same
// model, data and arguments it ends with the weights of an undisturbed run. It also saves when a signal ends fit
// (mu_stop_on_signals), after the step in progress, which all workers agree on; the program then leaves with
// 128 + the signal's number, 143 for SIGTERM.
#define mu_backup_and_restore(...) \
    mu_backup_and_restore_with(MU_ARGS(mu_backup_and_restore_args, __VA_ARGS__))
MU_API mu_callback *mu_backup_and_restore_with(const mu_backup_and_restore_args *args);

#ifdef __cplusplus
}
#endif
#endif
