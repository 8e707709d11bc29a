// Built-in callbacks of mu_fit: checkpoints, early stopping, learning rates, logs. Callbacks of a program's own are
// mu_callback_new (muster/model.h); resuming an interrupted run is mu_backup_and_restore (muster/checkpoint.h).
//
// Options and behaviour are Keras's. A callback that watches a value names it with .monitor, as mu_history_at does:
// "loss", "val_loss", "accuracy". mode says what is better: "min", "max", or "auto", the default: larger for metrics
// like accuracy, precision and AUC, smaller for losses and errors; for metrics of a program's own, larger if the name
// contains "accuracy". Values are compared in the type of mu_set_floatx; NaN is never better, and anything else is
// better than a NaN. With several workers all watch the same values, and the chief writes the files.
//
// Errors: INVALID_ARGUMENT for an option outside of its range or a name that is none, and, when training begins, for a
// value to watch that will not be in the history. A callback's later errors end mu_fit.
#ifndef MUSTER_CALLBACK_H
#define MUSTER_CALLBACK_H

#include <muster/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_model_checkpoint_args {
    size_t size;
    const char *given;
    // File, written atomically; its folder is made. {epoch} (from 1), {batch} (with save_freq) and values of the
    // history are put in, in Python's format, up to a width of 64 and a precision of 32:
    // "weights-{epoch:02d}-{val_loss:.3f}.safetensors".
    const char *path;
    mu_keyword_only only_;
    const char *monitor;            // a name in the history, for save_best_only; default "val_loss"
    bool save_best_only;            // default: save each time
    bool save_weights_only;         // refuse a path of whole models (.keras)
    const char *mode;               // default "auto"
    int64_t save_freq;              // save every so many steps; default: at the end of every epoch
    double initial_value_threshold; // with save_best_only, the value to improve on; default: none
    bool verbose;                   // print whether the value has improved, and where the model is saved
} mu_model_checkpoint_args;
// mu_model_checkpoint saves the model at the end of every epoch, or every so many steps: to a path that ends with
// .keras the whole model, as mu_save_model does, to any other its weights, as mu_save_weights does. With save_best_only
// it saves only if the monitored value has improved; an epoch without the value (.validation_freq) saves nothing.
// Errors when training begins: INVALID_ARGUMENT for a name in the path that will not be in the history; UNIMPLEMENTED
// for a model that a .keras file cannot hold. Errors while training: those of mu_save_model or mu_save_weights.
#define mu_model_checkpoint(...) mu_model_checkpoint_with(MU_ARGS(mu_model_checkpoint_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_callback *mu_model_checkpoint_with(const mu_model_checkpoint_args *args);

typedef struct mu_early_stopping_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *monitor;       // a name in the history; default "val_loss"
    double min_delta;          // smallest change that counts as an improvement; default 0
    int patience;              // epochs without improvement before training stops; default 0
    const char *mode;          // default "auto"
    double baseline;           // a value that must be improved on within `patience`; default: none
    bool restore_best_weights; // at the end of training; default: the last weights stay
    int start_from_epoch;      // earlier epochs do not count; default 0
    bool verbose;              // print the epoch that was the last, and of which the weights are
} mu_early_stopping_args;
// mu_early_stopping stops training when the monitored value no longer improves. Epochs without the value do not count.
#define mu_early_stopping(...) mu_early_stopping_with(MU_ARGS(mu_early_stopping_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_callback *mu_early_stopping_with(const mu_early_stopping_args *args);

typedef struct mu_reduce_lr_on_plateau_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *monitor; // a name in the history; default "val_loss"
    double factor;       // what the learning rate is multiplied by, below 1; default 0.1
    int patience;        // epochs without improvement before that; default 10
    const char *mode;    // default "auto"
    double min_delta;    // smallest change that counts as an improvement; default 1e-4
    int cooldown;        // epochs after a reduction in which patience does not run; default 0
    double min_lr;       // the learning rate is not reduced below; default 0
    bool verbose;        // print each new learning rate
} mu_reduce_lr_on_plateau_args;
// mu_reduce_lr_on_plateau reduces the optimizer's learning rate when the monitored value no longer improves. Epochs
// without the value do not count. This callback and the next one let mu_fit log each epoch's "learning_rate". Errors of
// both, when training begins: FAILED_PRECONDITION for an optimizer that follows a schedule, and without one.
#define mu_reduce_lr_on_plateau(...) \
    mu_reduce_lr_on_plateau_with(MU_ARGS(mu_reduce_lr_on_plateau_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_callback *mu_reduce_lr_on_plateau_with(const mu_reduce_lr_on_plateau_args *args);

// Returns the learning rate of an epoch (from 0), given that of the previous epoch.
typedef double mu_epoch_schedule(int epoch, double learning_rate, void *arg);
typedef struct mu_learning_rate_scheduler_args {
    size_t size;
    const char *given;
    mu_epoch_schedule *schedule;
    void *arg; // passed to it; must live as long as the callback
    mu_keyword_only only_;
    bool verbose; // print the learning rate of each epoch
} mu_learning_rate_scheduler_args;
// mu_learning_rate_scheduler sets the optimizer's learning rate at the beginning of every epoch.
#define mu_learning_rate_scheduler(...) \
    mu_learning_rate_scheduler_with(MU_ARGS(mu_learning_rate_scheduler_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_callback *mu_learning_rate_scheduler_with(const mu_learning_rate_scheduler_args *args);

typedef struct mu_csv_logger_args {
    size_t size;
    const char *given;
    const char *filename;
    mu_keyword_only only_;
    const char *separator; // one character; default ","
    bool append;           // append to the file; default: overwrite it
} mu_csv_logger_args;
// mu_csv_logger writes a line with the values of every epoch to a file, after a first line with their names. Errors
// while training: PERMISSION_DENIED, NOT_FOUND, RESOURCE_EXHAUSTED with the file's name.
#define mu_csv_logger(...) mu_csv_logger_with(MU_ARGS(mu_csv_logger_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_callback *mu_csv_logger_with(const mu_csv_logger_args *args);

typedef struct mu_tensorboard_args {
    size_t size;
    const char *given;
    const char *log_dir; // folder of the run; it is made; default "logs"
    mu_keyword_only only_;
    int64_t update_freq;         // write the values of every so many steps too; default: of epochs only
    int histogram_freq;          // histograms of all weights every so many epochs; default: none
    bool write_images;           // with histogram_freq: the weights as images too
    bool write_steps_per_second; // of each epoch, and with update_freq of each step that is written
} mu_tensorboard_args;
// mu_tensorboard writes values for TensorBoard: event files in the folders "train" and "validation" of log_dir, with
// the tags "epoch_loss", "epoch_learning_rate", "batch_loss", "evaluation_loss_vs_iterations", and so for each metric;
// "epoch_steps_per_second", "batch_steps_per_second"; of weights "dense/kernel/histogram" and "dense/kernel/image".
// A model that is compiled without an optimizer has neither learning rate nor "evaluation_loss_vs_iterations"; given to
// mu_evaluate, the callback writes the latter. Values of epochs and validation are written whatever update_freq says.
// Loops of one's own: muster/summary.h. Errors while training: PERMISSION_DENIED, NOT_FOUND, RESOURCE_EXHAUSTED.
#define mu_tensorboard(...) mu_tensorboard_with(MU_ARGS(mu_tensorboard_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_callback *mu_tensorboard_with(const mu_tensorboard_args *args);

typedef struct mu_terminate_on_nan_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    bool raise_error; // mu_fit fails with OUT_OF_RANGE; default: it ends without an error
} mu_terminate_on_nan_args;
// mu_terminate_on_nan ends training after a step whose loss is infinite or not a number. Errors while training:
// OUT_OF_RANGE then, with raise_error.
#define mu_terminate_on_nan(...) mu_terminate_on_nan_with(MU_ARGS(mu_terminate_on_nan_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_callback *mu_terminate_on_nan_with(const mu_terminate_on_nan_args *args);

typedef struct mu_swap_ema_weights_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    // also from the end of an epoch to the begin of the next, for callbacks behind this one, such as
    // mu_model_checkpoint; default: only while the model is evaluated or predicts
    bool swap_on_epoch;
} mu_swap_ema_weights_args;
// mu_swap_ema_weights evaluates and predicts with the moving averages of the weights, which the optimizer keeps with
// .use_ema, and trains on with the weights. Errors, when the model is evaluated: FAILED_PRECONDITION for another
// optimizer.
#define mu_swap_ema_weights(...) mu_swap_ema_weights_with(MU_ARGS(mu_swap_ema_weights_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_callback *mu_swap_ema_weights_with(const mu_swap_ema_weights_args *args);

#ifdef __cplusplus
}
#endif
#endif
