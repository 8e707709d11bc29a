// Losses and metrics as in Keras, and your own.
//
// A loss is computed for each sample; its reduction makes one number of the samples of all replicas. A metric adds up
// over steps and replicas. Names, defaults and formulas are those of Keras 3.
#ifndef MUSTER_LOSS_H
#define MUSTER_LOSS_H

#include <muster/distribute.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_loss mu_loss;  // a loss function of labels and predictions
typedef struct mu_metric mu_metric;  // a running value over batches, such as an accuracy

// ---- Losses -------------------------------------------------------------------------------------

// Every loss begins with these options.
typedef struct mu_loss_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    // How the samples' losses become one: "sum_over_batch_size" (default) or "mean", "sum", or
    // "mean_with_sample_weight", which divides by the sum of the weights. The sums are those of all replicas.
    const char *reduction;
    const char *name;
} mu_loss_args;
// Labels y_true have the shape of the predictions y_pred: [batch, …, outputs]; the loss of a sample is the mean over
// its outputs. Labels [batch] go with predictions [batch, 1].
#define mu_mean_squared_error_loss(...) \
    mu_mean_squared_error_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_mean_squared_error_loss_with(const mu_loss_args *args);
#define mu_mean_absolute_error_loss(...) \
    mu_mean_absolute_error_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_mean_absolute_error_loss_with(const mu_loss_args *args);
#define mu_mean_absolute_percentage_error_loss(...) \
    mu_mean_absolute_percentage_error_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_mean_absolute_percentage_error_loss_with(const mu_loss_args *args);
#define mu_mean_squared_logarithmic_error_loss(...) \
    mu_mean_squared_logarithmic_error_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_mean_squared_logarithmic_error_loss_with(const mu_loss_args *args);
#define mu_log_cosh_loss(...) mu_log_cosh_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_log_cosh_loss_with(const mu_loss_args *args);
// Hinge losses take labels of -1 or 1; labels that are all 0 or 1 are converted.
#define mu_hinge_loss(...) mu_hinge_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_hinge_loss_with(const mu_loss_args *args);
#define mu_squared_hinge_loss(...) mu_squared_hinge_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_squared_hinge_loss_with(const mu_loss_args *args);
#define mu_categorical_hinge_loss(...) mu_categorical_hinge_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_categorical_hinge_loss_with(const mu_loss_args *args);
#define mu_kl_divergence_loss(...) mu_kl_divergence_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_kl_divergence_loss_with(const mu_loss_args *args);
#define mu_poisson_loss(...) mu_poisson_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_poisson_loss_with(const mu_loss_args *args);

typedef struct mu_cosine_similarity_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction;                   // as in mu_loss_args
    const char *name;
    int axis;                                // default -1, the last
} mu_cosine_similarity_args;
// mu_cosine_similarity_loss makes a loss: the negative cosine of the angle between labels and predictions along an
// axis.
#define mu_cosine_similarity_loss(...) \
    mu_cosine_similarity_loss_with(MU_ARGS(mu_cosine_similarity_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_cosine_similarity_loss_with(const mu_cosine_similarity_args *args);

typedef struct mu_huber_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction;                   // as in mu_loss_args
    const char *name;
    double delta;                            // errors up to this count squared, larger ones linearly; default 1
} mu_huber_args;
// mu_huber_loss makes a loss: squares of small errors, sizes of large ones; labels as for mu_mean_squared_error_loss.
#define mu_huber_loss(...) mu_huber_loss_with(MU_ARGS(mu_huber_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_huber_loss_with(const mu_huber_args *args);

typedef struct mu_crossentropy_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction;                   // as in mu_loss_args
    const char *name;
    bool from_logits;                        // predictions are logits, not probabilities
    double label_smoothing;                  // share of each label that is spread over all classes; default 0
    int axis;                                // of the classes; default -1, the last
} mu_crossentropy_args;
// Labels are 0 or 1 for each output (binary), or one-hot or distributions (categorical).
#define mu_binary_crossentropy_loss(...) \
    mu_binary_crossentropy_loss_with(MU_ARGS(mu_crossentropy_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_binary_crossentropy_loss_with(const mu_crossentropy_args *args);
#define mu_categorical_crossentropy_loss(...) \
    mu_categorical_crossentropy_loss_with(MU_ARGS(mu_crossentropy_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_categorical_crossentropy_loss_with(const mu_crossentropy_args *args);

typedef struct mu_sparse_crossentropy_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction;                   // as in mu_loss_args
    const char *name;
    bool from_logits;                        // predictions are logits, not probabilities
    int ignore_class;                        // samples with this label do not count; default: all count
    int axis;                                // of the classes in the predictions; default -1, the last
} mu_sparse_crossentropy_args;
// mu_sparse_categorical_crossentropy_loss makes a loss for labels that are class numbers: labels [batch, …] or
// [batch, …, 1], predictions [batch, …, classes].
#define mu_sparse_categorical_crossentropy_loss(...) \
    mu_sparse_categorical_crossentropy_loss_with(MU_ARGS(mu_sparse_crossentropy_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_sparse_categorical_crossentropy_loss_with(const mu_sparse_crossentropy_args *args);

typedef struct mu_focal_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction;                   // as in mu_loss_args
    const char *name;
    bool from_logits;
    double label_smoothing;                  // default 0
    double alpha;                            // weight of the positive class; default 0.25
    double gamma;                            // how little outputs that are right count; default 2
    bool apply_class_balancing;              // binary: use alpha; categorical losses always do
    int axis;                                // of the classes; default -1, the last
} mu_focal_args;
// Cross-entropies that count outputs less the more they are right; labels as for the cross-entropies without focus.
#define mu_binary_focal_crossentropy_loss(...) \
    mu_binary_focal_crossentropy_loss_with(MU_ARGS(mu_focal_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_binary_focal_crossentropy_loss_with(const mu_focal_args *args);
// mu_categorical_focal_crossentropy_loss is the same for one-hot labels [batch, …, classes].
#define mu_categorical_focal_crossentropy_loss(...) \
    mu_categorical_focal_crossentropy_loss_with(MU_ARGS(mu_focal_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_categorical_focal_crossentropy_loss_with(const mu_focal_args *args);

typedef struct mu_generalized_crossentropy_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction;                   // as in mu_loss_args
    const char *name;
    double q;                                // 0 to 1: from cross-entropy to absolute error; default 0.5
} mu_generalized_crossentropy_args;
// mu_categorical_generalized_cross_entropy_loss makes a loss for labels with mistakes: (1 - p^q) / q of the label's
// probability p. Labels are class numbers [batch, …], predictions probabilities [batch, …, classes].
#define mu_categorical_generalized_cross_entropy_loss(...) \
    mu_categorical_generalized_cross_entropy_loss_with( \
        MU_ARGS(mu_generalized_crossentropy_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_categorical_generalized_cross_entropy_loss_with(const mu_generalized_crossentropy_args *args);

typedef struct mu_dice_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction;                   // as in mu_loss_args
    const char *name;
    int n_axis;                              // number of axes
    const int *axis;                         // axes that make up a region; default: all, the batch's included
} mu_dice_args;
// mu_dice_loss makes a loss: 1 - 2 |A ∩ B| / (|A| + |B|), where labels and predictions are memberships from 0 to 1.
// With the default axes a batch has one loss; each replica computes that of its part.
#define mu_dice_loss(...) mu_dice_loss_with(MU_ARGS(mu_dice_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_dice_loss_with(const mu_dice_args *args);

typedef struct mu_tversky_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction;                   // as in mu_loss_args
    const char *name;
    double alpha, beta;                      // weights of what is missed and of what is wrongly predicted; default 0.5
    int n_axis;                              // as in mu_dice_args
    const int *axis;
} mu_tversky_args;
// mu_tversky_loss makes a loss like mu_dice_loss, which weights the two kinds of errors.
#define mu_tversky_loss(...) mu_tversky_loss_with(MU_ARGS(mu_tversky_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_tversky_loss_with(const mu_tversky_args *args);

typedef struct mu_circle_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction;                   // as in mu_loss_args
    const char *name;
    double gamma;                            // scale of the distances; default 80
    double margin;                           // default 0.4
    bool keep_diagonal;                      // a sample is a pair with itself
} mu_circle_args;
// mu_circle_loss makes a loss for embeddings of length 1: y_pred [batch, dimensions], labels class numbers [batch] or
// [batch, 1]. Samples with one label attract, others repel each other; each replica compares the samples of its part.
#define mu_circle_loss(...) mu_circle_loss_with(MU_ARGS(mu_circle_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_circle_loss_with(const mu_circle_args *args);

// mu_ctc_loss makes a loss for sequences without alignment (connectionist temporal classification). Labels are class
// numbers [batch, labels] from 1, with 0 behind the last label of a sample; predictions are logits [batch, time,
// classes], where class 0 is the blank. The loss is infinite if the time is too short for the labels.
#define mu_ctc_loss(...) mu_ctc_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_ctc_loss_with(const mu_loss_args *args);

// mu_loss_named makes a loss with default options by Keras's name: "mse", "mean_squared_error", "MeanSquaredError".
MU_API mu_loss *mu_loss_named(const char *name);
// mu_loss_name returns the loss's name; it belongs to the loss.
MU_API const char *mu_loss_name(const mu_loss *loss);
// mu_loss_call returns the loss of each sample: [batch, …].
MU_API mu_tensor *mu_loss_call(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred);

typedef struct mu_own_loss_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction;                   // as in mu_loss_args
    const char *name;
    // Returns the loss of each sample, [batch, …], computed with ops; NULL on error. Labels come as the data have them.
    mu_tensor *(*call)(mu_tensor *y_true, mu_tensor *y_pred, void *arg);
    void *arg;                               // must live as long as the loss
} mu_own_loss_args;
// mu_loss_new makes a loss of your own.
#define mu_loss_new(...) mu_loss_new_with(MU_ARGS(mu_own_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_loss_new_with(const mu_own_loss_args *args);

typedef struct mu_average_loss_args {
    size_t size;
    const char *given;
    mu_tensor *losses;                       // loss of each sample of this replica
    mu_keyword_only only_;
    int64_t global_batch_size;               // default: the number of samples of all replicas
} mu_average_loss_args;
// mu_compute_average_loss returns sum(losses) / global batch size. The results of all replicas add up to the mean over
// the global batch, also if replicas have different numbers of samples.
#define mu_compute_average_loss(...) \
    mu_compute_average_loss_with(MU_ARGS(mu_average_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_tensor *mu_compute_average_loss_with(const mu_average_loss_args *args);

// ---- Metrics ------------------------------------------------------------------------------------

// mu_accuracy makes a metric: the fraction of correct predictions. As in Keras, the shapes select how they are
// compared:
//   predictions [batch, …, 1]        labels [batch, …] or [batch, …, 1] of 0 or 1: is the prediction over 0.5 for a 1?
//   predictions [batch, …, classes]  labels [batch, …] or [batch, …, 1]: is the largest prediction that of the class?
//   predictions [batch, …, classes]  one-hot labels [batch, …, classes]: are the largest of both at the same index?
// Errors: INVALID_ARGUMENT for other shapes. mu_mean_metric makes a metric that averages values.
MU_API mu_metric *mu_accuracy(void);
MU_API mu_metric *mu_mean_metric(const char *name);
// mu_loss_metric makes a metric that averages a loss over samples, named like it. mu_metric_named makes a metric with
// default options by Keras's name: "accuracy", "auc", "mae", ….
MU_API mu_metric *mu_loss_metric(mu_loss *loss);
// mu_root_mean_squared_error_metric makes a metric: the root of the mean of (label - prediction)².
MU_API mu_metric *mu_root_mean_squared_error_metric(void);
// mu_metric_named makes a metric by name. Errors: INVALID_ARGUMENT for a name that is none of Keras's here.
MU_API mu_metric *mu_metric_named(const char *name);

typedef struct mu_threshold_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double threshold;                        // a prediction above it counts as 1; default 0.5
    const char *name;
} mu_threshold_args;
// One kind of accuracy whatever the shapes are; the threshold is for the binary one.
#define mu_binary_accuracy_metric(...) \
    mu_binary_accuracy_metric_with(MU_ARGS(mu_threshold_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_binary_accuracy_metric_with(const mu_threshold_args *args);
#define mu_categorical_accuracy_metric(...) \
    mu_categorical_accuracy_metric_with(MU_ARGS(mu_threshold_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_categorical_accuracy_metric_with(const mu_threshold_args *args);
#define mu_sparse_categorical_accuracy_metric(...) \
    mu_sparse_categorical_accuracy_metric_with(MU_ARGS(mu_threshold_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_sparse_categorical_accuracy_metric_with(const mu_threshold_args *args);
// Labels of 0 or 1 for each prediction. The F1 score is the harmonic mean of precision and recall over all outputs.
#define mu_precision_metric(...) mu_precision_metric_with(MU_ARGS(mu_threshold_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_precision_metric_with(const mu_threshold_args *args);
#define mu_recall_metric(...) mu_recall_metric_with(MU_ARGS(mu_threshold_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_recall_metric_with(const mu_threshold_args *args);
#define mu_f1_score_metric(...) mu_f1_score_metric_with(MU_ARGS(mu_threshold_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_f1_score_metric_with(const mu_threshold_args *args);

typedef struct mu_top_k_args {
    size_t size;
    const char *given;
    int k;                                   // default 5
    mu_keyword_only only_;
    const char *name;
} mu_top_k_args;
// Metrics: how often the label, one-hot or a class number (sparse), is among the k largest predictions.
#define mu_top_k_categorical_accuracy_metric(...) \
    mu_top_k_categorical_accuracy_metric_with(MU_ARGS(mu_top_k_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_top_k_categorical_accuracy_metric_with(const mu_top_k_args *args);
// mu_sparse_top_k_categorical_accuracy_metric does so for class numbers [batch, …].
#define mu_sparse_top_k_categorical_accuracy_metric(...) \
    mu_sparse_top_k_categorical_accuracy_metric_with(MU_ARGS(mu_top_k_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_sparse_top_k_categorical_accuracy_metric_with(const mu_top_k_args *args);

typedef struct mu_auc_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int num_thresholds;                      // default 200
    const char *curve;                       // "ROC" (default) or "PR", precision over recall
    bool from_logits;
    const char *name;
} mu_auc_args;
// mu_auc_metric makes a metric: the area under a curve, from counts at evenly spaced thresholds.
#define mu_auc_metric(...) mu_auc_metric_with(MU_ARGS(mu_auc_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_auc_metric_with(const mu_auc_args *args);

typedef struct mu_mean_iou_args {
    size_t size;
    const char *given;
    int num_classes;
    mu_keyword_only only_;
    const char *name;
} mu_mean_iou_args;
// mu_mean_iou_metric makes a metric: intersection over union of class numbers, averaged over classes. Labels and
// predictions are class numbers of one shape.
#define mu_mean_iou_metric(...) mu_mean_iou_metric_with(MU_ARGS(mu_mean_iou_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_mean_iou_metric_with(const mu_mean_iou_args *args);

// A variable of a metric's state, which adds up over steps and replicas.
typedef struct mu_metric_state {
    const char *name;
    mu_shape shape;
} mu_metric_state;
#define MU_MAX_METRIC_STATES 8

typedef struct mu_metric_args {
    size_t size;
    const char *given;
    const char *name;
    mu_keyword_only only_;
    int n_states;
    const mu_metric_state *states;           // array and names must live as long as the metric
    // update adds a batch to the states with mu_metric_add; `weights` (per sample) may be NULL.
    mu_status (*update)(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights, void *arg);
    // result computes the metric from the numbers of all states, side by side, summed over all replicas.
    double (*result)(const double *sums, void *arg);
    void *arg;                               // must live as long as the metric
} mu_metric_args;
// mu_metric_new makes a metric of your own. mu_metric_add adds a tensor of the state's shape to a state, in `update`.
#define mu_metric_new(...) mu_metric_new_with(MU_ARGS(mu_metric_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_metric_new_with(const mu_metric_args *args);
MU_API mu_status mu_metric_add(mu_metric *metric, int state, mu_tensor *delta);

// mu_metric_update adds a batch: labels and predictions, or values and NULL for a mean. mu_metric_update_weighted gives
// every sample a weight (NULL: 1): [batch] or [batch, …].
MU_API mu_status mu_metric_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred);
MU_API mu_status mu_metric_update_weighted(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights);
MU_API double mu_metric_result(mu_metric *metric);           // result over all replicas; 0 before the first update
MU_API mu_status mu_metric_reset(mu_metric *metric);  // forgets all batches so far
MU_API const char *mu_metric_name(const mu_metric *metric);  // belongs to the metric

#ifdef __cplusplus
}
#endif
#endif
