// Models as in Keras: layers, losses, metrics, optimizers; compile, fit, evaluate, predict; callbacks.
//
// Names, defaults and formulas are Keras's (version 3). Where Keras's default is true the option here is its
// opposite (.no_bias, .no_shuffle), so that leaving it out means the default.
#ifndef MUSTER_MODEL_H
#define MUSTER_MODEL_H

#include <muster/distribute.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_layer mu_layer;
typedef struct mu_model mu_model;
typedef struct mu_loss mu_loss;
typedef struct mu_metric mu_metric;
typedef struct mu_optimizer mu_optimizer;
typedef struct mu_regularizer mu_regularizer;
typedef struct mu_callback mu_callback;
typedef struct mu_history mu_history;

// mu_set_floatx chooses the type of weights and of what layers compute in: MU_F32 (default) or MU_F64.
MU_API mu_status mu_set_floatx(mu_dtype dtype);

// ---- Layers -------------------------------------------------------------------------------------

typedef struct mu_dense_args {
    size_t size;
    int units;
    mu_keyword_only only_;
    const char *activation;                  // "relu", "softmax", "sigmoid", "tanh", …; default linear
    bool no_bias;
    const char *kernel_initializer;          // default "glorot_uniform"
    const char *bias_initializer;            // default "zeros"
    mu_regularizer *kernel_regularizer;
    mu_regularizer *bias_regularizer;
    const char *name;
} mu_dense_args;
// mu_dense: y = activation(x · kernel + bias); x: [batch, …, in], y: [batch, …, units].
#define mu_dense(...) mu_dense_with(MU_ARGS(mu_dense_args, __VA_ARGS__))
MU_API mu_layer *mu_dense_with(const mu_dense_args *args);

typedef struct mu_conv2d_args {
    size_t size;
    int filters, kernel_size;
    mu_keyword_only only_;
    int kernel_width;                        // default: kernel_size (square)
    int strides, dilation_rate, groups;      // default 1
    const char *padding;                     // "valid" (default) or "same"
    const char *activation;
    bool no_bias;
    const char *kernel_initializer;          // default "glorot_uniform"
    const char *bias_initializer;            // default "zeros"
    mu_regularizer *kernel_regularizer;
    mu_regularizer *bias_regularizer;
    const char *name;
} mu_conv2d_args;
// mu_conv2d: x: [batch, height, width, channels], y: [batch, height', width', filters].
#define mu_conv2d(...) mu_conv2d_with(MU_ARGS(mu_conv2d_args, __VA_ARGS__))
MU_API mu_layer *mu_conv2d_with(const mu_conv2d_args *args);

typedef struct mu_pool2d_args {
    size_t size;
    int pool_size;                           // default 2
    mu_keyword_only only_;
    int strides;                             // default: pool_size
    const char *padding;                     // "valid" (default) or "same"
    const char *name;
} mu_pool2d_args;
#define mu_max_pool2d(...) mu_max_pool2d_with(MU_ARGS(mu_pool2d_args, __VA_ARGS__))
MU_API mu_layer *mu_max_pool2d_with(const mu_pool2d_args *args);
#define mu_average_pool2d(...) mu_average_pool2d_with(MU_ARGS(mu_pool2d_args, __VA_ARGS__))
MU_API mu_layer *mu_average_pool2d_with(const mu_pool2d_args *args);

// mu_flatten: [batch, a, b, …] to [batch, a·b·…].
MU_API mu_layer *mu_flatten(void);

typedef struct mu_dropout_args {
    size_t size;
    double rate;                             // share of elements set to zero while training, 0 ≤ rate < 1
    mu_keyword_only only_;
    uint64_t seed;                           // default: from the program's seed
    const char *name;
} mu_dropout_args;
#define mu_dropout(...) mu_dropout_with(MU_ARGS(mu_dropout_args, __VA_ARGS__))
MU_API mu_layer *mu_dropout_with(const mu_dropout_args *args);

typedef struct mu_batch_normalization_args {
    size_t size;
    mu_keyword_only only_;
    double momentum;                         // of the moving statistics, default 0.99
    double epsilon;                          // default 1e-3
    bool no_center, no_scale;
    bool synchronized;                       // statistics over all replicas' batches
    const char *name;
} mu_batch_normalization_args;
// mu_batch_normalization normalises the last axis.
#define mu_batch_normalization(...) \
    mu_batch_normalization_with(MU_ARGS(mu_batch_normalization_args, __VA_ARGS__))
MU_API mu_layer *mu_batch_normalization_with(const mu_batch_normalization_args *args);

typedef struct mu_embedding_args {
    size_t size;
    int64_t input_dim, output_dim;           // rows of the table, numbers in each
    mu_keyword_only only_;
    const char *embeddings_initializer;      // default "uniform"
    mu_regularizer *embeddings_regularizer;
    const char *name;
} mu_embedding_args;
// mu_embedding: x: whole numbers below input_dim, [batch, …]; y: their rows of the table, [batch, …, output_dim].
// The table's gradient is indexed slices.
#define mu_embedding(...) mu_embedding_with(MU_ARGS(mu_embedding_args, __VA_ARGS__))
MU_API mu_layer *mu_embedding_with(const mu_embedding_args *args);

// mu_activation applies a function by name.
MU_API mu_layer *mu_activation(const char *name);

// mu_l2 penalises weights by factor · Σ w² (Keras's default factor is 0.01).
MU_API mu_regularizer *mu_l2(double factor);

MU_API const char *mu_layer_name(const mu_layer *layer);

// ---- Models -------------------------------------------------------------------------------------

// mu_sequential(layer, layer, …) makes a model of layers, one after the other. Keeps: the layers.
#ifndef __cplusplus
#define mu_sequential(...) mu_sequential_of((mu_layer *const[]){__VA_ARGS__, MU_END})
#endif
MU_API mu_model *mu_sequential_of(mu_layer *const *layers);  // ends with MU_END

// mu_model_build makes the weights for inputs of this shape (without the batch axis). fit and call do it
// themselves from what they are given.
MU_API mu_status mu_model_build(mu_model *model, int rank, const int64_t *dims);

typedef struct mu_call_args {
    size_t size;
    mu_model *model;
    mu_tensor *x;
    mu_keyword_only only_;
    bool training;                           // dropout on, statistics of the batch
} mu_call_args;
// mu_call runs the model's layers on x.
#define mu_call(...) mu_call_with(MU_ARGS(mu_call_args, __VA_ARGS__))
MU_API mu_tensor *mu_call_with(const mu_call_args *args);

MU_API mu_value *mu_trainable_variables(mu_model *model);
MU_API mu_value *mu_model_weights(mu_model *model);          // trainable ones and others, in order of layers
MU_API int64_t mu_model_parameters(const mu_model *model);   // how many numbers all weights have
// mu_summary prints the table of layers, shapes and parameters as Keras does.
MU_API mu_status mu_summary(mu_model *model, FILE *out);

// mu_save_weights writes all weights to a safetensors file (names as "conv2d/kernel"), whole or not at all;
// mu_load_weights reads them back. Errors: RESOURCE_EXHAUSTED (disk full; the old file stays), NOT_FOUND,
// DATA_LOSS, INVALID_ARGUMENT for names or shapes that do not fit the model.
MU_API mu_status mu_save_weights(mu_model *model, const char *path);
MU_API mu_status mu_load_weights(mu_model *model, const char *path);

// ---- Losses, metrics, optimizers ----------------------------------------------------------------

typedef struct mu_crossentropy_args {
    size_t size;
    mu_keyword_only only_;
    bool from_logits;
} mu_crossentropy_args;
#define mu_sparse_categorical_crossentropy_loss(...) \
    mu_sparse_categorical_crossentropy_loss_with(MU_ARGS(mu_crossentropy_args, __VA_ARGS__))
MU_API mu_loss *mu_sparse_categorical_crossentropy_loss_with(const mu_crossentropy_args *args);
MU_API mu_loss *mu_mean_squared_error_loss(void);

// mu_accuracy is the share of right answers, by shapes as Keras chooses: predictions [batch, …, 1] are over 0.5 where
// the label ([batch, …] or [batch, …, 1]) is 1; of predictions [batch, …, classes] the largest stands at the label, a
// class number ([batch, …] or [batch, …, 1]), or where the largest label stands ([batch, …, classes], as one-hot
// labels). Errors: INVALID_ARGUMENT for other shapes. mu_mean_metric averages values.
MU_API mu_metric *mu_accuracy(void);
MU_API mu_metric *mu_mean_metric(const char *name);
// mu_metric_update adds a batch: for accuracy labels and predictions, for a mean the values and NULL.
MU_API mu_status mu_metric_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred);
MU_API double mu_metric_result(mu_metric *metric);           // over all replicas; 0 before the first update
MU_API mu_status mu_metric_reset(mu_metric *metric);
MU_API const char *mu_metric_name(const mu_metric *metric);

typedef struct mu_adam_args {
    size_t size;
    mu_keyword_only only_;
    double learning_rate;                    // default 0.001
    double beta_1, beta_2;                   // default 0.9, 0.999; MU_ZERO for 0
    double epsilon;                          // default 1e-7
    double clipnorm, global_clipnorm, clipvalue;  // default none; see mu_clip_gradients
} mu_adam_args;
#define mu_adam(...) mu_adam_with(MU_ARGS(mu_adam_args, __VA_ARGS__))
MU_API mu_optimizer *mu_adam_with(const mu_adam_args *args);

typedef struct mu_sgd_args {
    size_t size;
    mu_keyword_only only_;
    double learning_rate;                    // default 0.01
    double momentum;
    bool nesterov;
    double clipnorm, global_clipnorm, clipvalue;  // default none; see mu_clip_gradients
} mu_sgd_args;
#define mu_sgd(...) mu_sgd_with(MU_ARGS(mu_sgd_args, __VA_ARGS__))
MU_API mu_optimizer *mu_sgd_with(const mu_sgd_args *args);

// mu_apply_gradients adds the replicas' gradients up and updates the variables that they were taken for
// (mu_gradients remembers them). Collective: every replica.
// Gradients that are indexed slices stay sparse; slices that name a row more than once all count, but Adam squares
// each by itself, as Keras does. An optimizer's own clipping comes first, on each replica's gradients.
MU_API mu_status mu_apply_gradients(mu_optimizer *optimizer, mu_value *gradients);

typedef struct mu_clip_gradients_args {
    size_t size;
    mu_value *gradients;                     // what mu_gradients returned
    mu_keyword_only only_;
    double norm;                             // at most this norm for each of them, or
    double global_norm;                      // for all of them together, or
    double value;                            // every number from -value to value
} mu_clip_gradients_args;
// mu_clip_gradients returns gradients that mu_apply_gradients takes. Slices are clipped as they are.
#define mu_clip_gradients(...) mu_clip_gradients_with(MU_ARGS(mu_clip_gradients_args, __VA_ARGS__))
MU_API mu_value *mu_clip_gradients_with(const mu_clip_gradients_args *args);
MU_API mu_variable *mu_optimizer_learning_rate(mu_optimizer *optimizer);
MU_API mu_variable *mu_optimizer_iterations(mu_optimizer *optimizer);

typedef struct mu_average_loss_args {
    size_t size;
    mu_tensor *losses;                       // per sample
    mu_keyword_only only_;
    int64_t global_batch_size;               // default: counted over all replicas
} mu_average_loss_args;
// mu_compute_average_loss returns the replica's share of the mean over the global batch: the shares of all
// replicas add up to it, also when their parts are unequal.
#define mu_compute_average_loss(...) \
    mu_compute_average_loss_with(MU_ARGS(mu_average_loss_args, __VA_ARGS__))
MU_API mu_tensor *mu_compute_average_loss_with(const mu_average_loss_args *args);

// ---- compile, fit, evaluate, predict ------------------------------------------------------------

#define MU_METRICS(...) MU_LIST_OF(mu_metric, __VA_ARGS__)
#define MU_CALLBACKS(...) MU_LIST_OF(mu_callback, __VA_ARGS__)

typedef struct mu_compile_args {
    size_t size;
    mu_model *model;
    mu_keyword_only only_;
    mu_optimizer *optimizer;
    mu_loss *loss;
    mu_metric *const *metrics;               // MU_METRICS(…)
} mu_compile_args;
#define mu_compile(...) mu_compile_with(MU_ARGS(mu_compile_args, __VA_ARGS__))
MU_API mu_status mu_compile_with(const mu_compile_args *args);

typedef enum mu_verbose { MU_VERBOSE_AUTO = 0, MU_VERBOSE_SILENT, MU_VERBOSE_BAR, MU_VERBOSE_LINES } mu_verbose;

typedef struct mu_fit_args {
    size_t size;
    mu_model *model;
    mu_dataset *x;                           // elements: a list of inputs and labels, batched
    mu_keyword_only only_;
    int epochs;                              // default 1: the number of the last epoch
    int initial_epoch;
    int64_t steps_per_epoch;                 // default: until the data ends; to be given where they never do
    mu_dataset *validation_data;
    int64_t validation_steps;
    mu_callback *const *callbacks;           // MU_CALLBACKS(…)
    mu_verbose verbose;                      // default: a bar on a terminal, lines elsewhere
    mu_value *arrays;                        // in place of x: a list of inputs and labels, a row for each sample
    int64_t batch_size;                      // with arrays; default 32
    bool no_shuffle;                         // with arrays: leave the rows in their order
} mu_fit_args;
// mu_fit trains, under the strategy in whose scope the model was made; every batch is split among the
// replicas, and the result is that of one replica on the whole batch.
// Errors: CANCELLED after a signal (mu_stop_on_signals), at the end of the step in progress.
#define mu_fit(...) mu_fit_with(MU_ARGS(mu_fit_args, __VA_ARGS__))
MU_API mu_history *mu_fit_with(const mu_fit_args *args);

typedef struct mu_evaluate_args {
    size_t size;
    mu_model *model;
    mu_dataset *x;
    mu_keyword_only only_;
    int64_t steps;                           // default: until the data ends
    mu_verbose verbose;
    mu_value *arrays;                        // in place of x, as in mu_fit; for mu_predict a list of the inputs will do
    int64_t batch_size;                      // with arrays; default 32
} mu_evaluate_args;
// mu_evaluate measures loss and metrics; every sample counts exactly once. The result is a history of one
// epoch.
#define mu_evaluate(...) mu_evaluate_with(MU_ARGS(mu_evaluate_args, __VA_ARGS__))
MU_API mu_history *mu_evaluate_with(const mu_evaluate_args *args);
#define mu_predict(...) mu_predict_with(MU_ARGS(mu_evaluate_args, __VA_ARGS__))
// mu_predict returns the outputs for all samples, in their order. Elements may be inputs alone.
MU_API mu_tensor *mu_predict_with(const mu_evaluate_args *args);

// What fit saw: a value per epoch for each name ("loss", "accuracy", "val_loss", …).
MU_API int mu_history_epochs(const mu_history *history);
MU_API double mu_history_at(const mu_history *history, const char *name, int epoch);  // NaN if unknown
MU_API double mu_history_last(const mu_history *history, const char *name);
MU_API double mu_history_seconds(const mu_history *history);  // spent in training steps
MU_API int64_t mu_history_samples(const mu_history *history); // seen by them

// ---- Callbacks ----------------------------------------------------------------------------------

// What a callback is told; values as in mu_history_at for the epoch or batch in progress.
typedef struct mu_logs {
    mu_model *model;
    int epoch;
    int64_t step;
    int n;
    const char *const *names;
    const double *values;
} mu_logs;

typedef struct mu_callback_args {
    size_t size;
    mu_keyword_only only_;
    // Each returns MU_OK, or the code of mu_fail(…), which ends the training. NULL: nothing to do. They may evaluate,
    // predict with and fit the same model, as in Keras: it shares its weights, optimizer, metrics and mu_stop_training
    // with the outer call. Another thread that does so meanwhile gets FAILED_PRECONDITION.
    mu_status (*on_train_begin)(const mu_logs *logs, void *arg);
    mu_status (*on_epoch_begin)(const mu_logs *logs, void *arg);
    mu_status (*on_batch_end)(const mu_logs *logs, void *arg);
    mu_status (*on_epoch_end)(const mu_logs *logs, void *arg);
    mu_status (*on_train_end)(const mu_logs *logs, void *arg);
    void *arg;
} mu_callback_args;
#define mu_callback_new(...) mu_callback_new_with(MU_ARGS(mu_callback_args, __VA_ARGS__))
MU_API mu_callback *mu_callback_new_with(const mu_callback_args *args);
// mu_stop_training asks fit to end after this epoch (or batch, if asked in on_batch_end).
MU_API void mu_stop_training(mu_model *model);

typedef struct mu_model_checkpoint_args {
    size_t size;
    const char *path;                        // safetensors file, written whole or not at all
    mu_keyword_only only_;
    const char *monitor;                     // with save_best_only; default "val_loss"
    bool save_best_only;
} mu_model_checkpoint_args;
// mu_model_checkpoint saves the weights at the end of every epoch.
#define mu_model_checkpoint(...) \
    mu_model_checkpoint_with(MU_ARGS(mu_model_checkpoint_args, __VA_ARGS__))
MU_API mu_callback *mu_model_checkpoint_with(const mu_model_checkpoint_args *args);

typedef struct mu_early_stopping_args {
    size_t size;
    mu_keyword_only only_;
    const char *monitor;                     // default "val_loss"
    double min_delta;
    int patience;
} mu_early_stopping_args;
#define mu_early_stopping(...) \
    mu_early_stopping_with(MU_ARGS(mu_early_stopping_args, __VA_ARGS__))
MU_API mu_callback *mu_early_stopping_with(const mu_early_stopping_args *args);

#ifdef __cplusplus
}

template <typename... Layers> mu_model *mu_sequential(Layers... layers)
{
    mu_layer *const list[] = {layers..., static_cast<mu_layer *>(MU_END)};
    return mu_sequential_of(list);
}
#endif
#endif
