// Losses and metrics as in Keras, and your own.
//
// A loss is computed for each sample; its reduction makes one number of the samples of all replicas. A metric adds up
// over steps and replicas. Names, defaults and formulas are those of Keras 3.
//
// Errors: INVALID_ARGUMENT for an option outside of its range or an unknown name; when it is computed, for labels and
// predictions whose shapes or types do not fit, and for a label that is not a class.
#ifndef MUSTER_LOSS_H
#define MUSTER_LOSS_H

#include <muster/distribute.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_loss mu_loss;     // a loss function of labels and predictions
typedef struct mu_metric mu_metric; // a running value over batches, such as an accuracy

// ---- Losses -------------------------------------------------------------------------------------

// Cross-entropies of probabilities that a sigmoid (binary, and binary focal) or a softmax along the loss's axis
// (categorical and sparse categorical) of a layer or mu_activation made are computed of the logits, so that
// probabilities of 0 and 1 keep their loss and gradient. Computed of the probabilities are: categorical focal and
// generalized cross-entropies; sparse ones with .ignore_class; outputs of a half type, which are cast; and what
// mu_sigmoid and mu_nn_softmax return.

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
    const char *reduction; // as in mu_loss_args
    const char *name;
    int axis; // default -1, the last
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
    const char *reduction; // as in mu_loss_args
    const char *name;
    double delta; // errors up to this count squared, larger ones linearly; default 1
} mu_huber_args;
// mu_huber_loss makes a loss: squares of small errors, sizes of large ones; labels as for mu_mean_squared_error_loss.
#define mu_huber_loss(...) mu_huber_loss_with(MU_ARGS(mu_huber_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_huber_loss_with(const mu_huber_args *args);

typedef struct mu_crossentropy_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction; // as in mu_loss_args
    const char *name;
    bool from_logits;       // predictions are logits, not probabilities
    double label_smoothing; // share of each label that is spread over all classes; default 0
    int axis;               // of the classes; default -1, the last
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
    const char *reduction; // as in mu_loss_args
    const char *name;
    bool from_logits; // predictions are logits, not probabilities
    int ignore_class; // samples with this label do not count; default: all count
    int axis;         // of the classes in the predictions; default -1, the last
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
    const char *reduction; // as in mu_loss_args
    const char *name;
    bool from_logits;
    double label_smoothing;     // default 0
    double alpha;               // weight of the positive class; default 0.25
    double gamma;               // how little outputs that are right count; default 2
    bool apply_class_balancing; // binary: use alpha; categorical losses always do
    int axis;                   // of the classes; default -1, the last
} mu_focal_args;
// Cross-entropies that count outputs less the more they are right; labels as for the cross-entropies without focus.
#define mu_binary_focal_crossentropy_loss(...) \
    mu_binary_focal_crossentropy_loss_with(MU_ARGS(mu_focal_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_binary_focal_crossentropy_loss_with(const mu_focal_args *args);
// mu_categorical_focal_crossentropy_loss is the focal cross-entropy for one-hot labels [batch, …, classes].
#define mu_categorical_focal_crossentropy_loss(...) \
    mu_categorical_focal_crossentropy_loss_with(MU_ARGS(mu_focal_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_categorical_focal_crossentropy_loss_with(const mu_focal_args *args);

typedef struct mu_generalized_crossentropy_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction; // as in mu_loss_args
    const char *name;
    double q; // 0 to 1: from cross-entropy to absolute error; default 0.5
} mu_generalized_crossentropy_args;
// mu_categorical_generalized_cross_entropy_loss makes a loss for labels with mistakes: (1 - p^q) / q of the label's
// probability p. Labels are class numbers [batch, …], predictions probabilities [batch, …, classes].
#define mu_categorical_generalized_cross_entropy_loss(...) \
    mu_categorical_generalized_cross_entropy_loss_with(    \
        MU_ARGS(mu_generalized_crossentropy_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_categorical_generalized_cross_entropy_loss_with(const mu_generalized_crossentropy_args *args);

typedef struct mu_dice_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction; // as in mu_loss_args
    const char *name;
    int n_axis;      // number of axes
    const int *axis; // axes that make up a region; default: all, the batch's included
} mu_dice_args;
// mu_dice_loss makes a loss: 1 - 2 |A ∩ B| / (|A| + |B|), where labels and predictions are memberships from 0 to 1.
// With the default axes, or others that include the batch's, a batch has one loss, over the parts of all replicas: each
// replica must compute it.
#define mu_dice_loss(...) mu_dice_loss_with(MU_ARGS(mu_dice_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_dice_loss_with(const mu_dice_args *args);

typedef struct mu_tversky_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction; // as in mu_loss_args
    const char *name;
    double alpha, beta; // weights of what is missed and of what is wrongly predicted; default 0.5
    int n_axis;         // as in mu_dice_args
    const int *axis;
} mu_tversky_args;
// mu_tversky_loss makes a loss like mu_dice_loss, which weights the two kinds of errors.
#define mu_tversky_loss(...) mu_tversky_loss_with(MU_ARGS(mu_tversky_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_tversky_loss_with(const mu_tversky_args *args);

typedef struct mu_circle_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction; // as in mu_loss_args
    const char *name;
    double gamma;       // scale of the distances; default 80
    double margin;      // default 0.4
    bool keep_diagonal; // a sample is a pair with itself
} mu_circle_args;
// mu_circle_loss makes a loss for embeddings of length 1: y_pred [batch, dimensions], labels class numbers [batch] or
// [batch, 1]. Samples with one label attract, others repel each other; each replica compares the samples of its part.
#define mu_circle_loss(...) mu_circle_loss_with(MU_ARGS(mu_circle_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_circle_loss_with(const mu_circle_args *args);

// mu_ctc_loss makes a loss for sequences without alignment (connectionist temporal classification). Labels are class
// numbers [batch, labels] from 1, padded with 0 after the last label of a sample; predictions are logits [batch, time,
// classes], where class 0 is the blank. The loss is infinite if the time is too short for the labels.
#define mu_ctc_loss(...) mu_ctc_loss_with(MU_ARGS(mu_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_ctc_loss_with(const mu_loss_args *args);

// mu_loss_named makes a loss with default options by its name, in any case: a function above without mu_ and _loss
// ("mean_squared_error"), Keras's class ("MeanSquaredError"), or a short form: "mse", "mae", "mape", "msle", "bce",
// "kld", "logcosh". "crossentropy" or "ce" is the cross-entropy that fits the shapes, binary, categorical or sparse.
MU_API mu_loss *mu_loss_named(const char *name);
// mu_loss_name returns the loss's name; it belongs to the loss.
MU_API const char *mu_loss_name(const mu_loss *loss);
// mu_loss_call returns the loss of each sample: [batch, …].
MU_API mu_tensor *mu_loss_call(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred);

typedef struct mu_own_loss_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *reduction; // as in mu_loss_args
    const char *name;
    // Returns the loss of each sample, [batch, …], computed with ops; NULL on error. Labels come as the data have them.
    mu_tensor *(*call)(mu_tensor *y_true, mu_tensor *y_pred, void *arg);
    void *arg; // must live as long as the loss
} mu_own_loss_args;
// mu_loss_new makes a loss of your own.
#define mu_loss_new(...) mu_loss_new_with(MU_ARGS(mu_own_loss_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_loss *mu_loss_new_with(const mu_own_loss_args *args);

typedef struct mu_average_loss_args {
    size_t size;
    const char *given;
    mu_tensor *losses; // loss of each sample of this replica
    mu_keyword_only only_;
    int64_t global_batch_size; // default: the number of samples of all replicas
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
// mu_sum_metric makes a metric that adds up values. mu_accuracy_metric is Keras's class Accuracy: how often labels and
// predictions of one shape are equal.
MU_API mu_metric *mu_sum_metric(const char *name);
MU_API mu_metric *mu_accuracy_metric(const char *name);
// mu_loss_metric makes a metric that averages a loss over samples, named like it. Retains: loss.
MU_API mu_metric *mu_loss_metric(mu_loss *loss);
// mu_root_mean_squared_error_metric makes a metric: the root of the mean of (label - prediction)².
MU_API mu_metric *mu_root_mean_squared_error_metric(void);
// mu_metric_named makes a metric with default options by its name, in any case: a function of this part without mu_ and
// _metric ("accuracy", "auc", "top_k_categorical_accuracy"), Keras's class ("AUC"), "rmse", or the name of a loss
// (mu_loss_named), whose mean it then is. Errors: INVALID_ARGUMENT for another name.
MU_API mu_metric *mu_metric_named(const char *name);

typedef struct mu_threshold_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double threshold; // a prediction above it counts as 1; default 0.5
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

typedef struct mu_count_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double threshold; // a prediction above it counts as 1; default 0.5
    int n_thresholds; // several thresholds instead: mu_metric_results has a number for each
    const double *thresholds;
    const char *name;
} mu_count_args;
// Metrics that count decisions, in the sum of the samples' weights; labels are 0 or 1 for each prediction.
#define mu_true_positives_metric(...) mu_true_positives_metric_with(MU_ARGS(mu_count_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_true_positives_metric_with(const mu_count_args *args);
#define mu_false_positives_metric(...) mu_false_positives_metric_with(MU_ARGS(mu_count_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_false_positives_metric_with(const mu_count_args *args);
#define mu_true_negatives_metric(...) mu_true_negatives_metric_with(MU_ARGS(mu_count_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_true_negatives_metric_with(const mu_count_args *args);
#define mu_false_negatives_metric(...) mu_false_negatives_metric_with(MU_ARGS(mu_count_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_false_negatives_metric_with(const mu_count_args *args);

typedef struct mu_precision_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    double threshold; // as in mu_count_args
    int n_thresholds;
    const double *thresholds;
    const char *name;
    int top_k;    // only the k largest predictions of a row are positive; default: any
    int class_id; // compare only this column; default: all
} mu_precision_args;
// Labels are 0 or 1 for each prediction. Precision is the share of positive predictions that are right, recall the
// share of positive labels that are found.
#define mu_precision_metric(...) mu_precision_metric_with(MU_ARGS(mu_precision_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_precision_metric_with(const mu_precision_args *args);
#define mu_recall_metric(...) mu_recall_metric_with(MU_ARGS(mu_precision_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_recall_metric_with(const mu_precision_args *args);

typedef struct mu_precision_at_recall_args {
    size_t size;
    const char *given;
    double recall;
    mu_keyword_only only_;
    int num_thresholds; // evenly spaced from 0 to 1; default 200
    int class_id;       // compare only this column; default: all
    const char *name;
} mu_precision_at_recall_args;
// Metrics: the largest precision at a threshold where the recall is at least this; 0 if there is none. The others
// alike. Sensitivity is recall, specificity the share of negative labels that are found.
#define mu_precision_at_recall_metric(...) \
    mu_precision_at_recall_metric_with(MU_ARGS(mu_precision_at_recall_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_precision_at_recall_metric_with(const mu_precision_at_recall_args *args);

typedef struct mu_recall_at_precision_args {
    size_t size;
    const char *given;
    double precision;
    mu_keyword_only only_;
    int num_thresholds; // evenly spaced from 0 to 1; default 200
    int class_id;       // compare only this column; default: all
    const char *name;
} mu_recall_at_precision_args;
// mu_recall_at_precision_metric is the largest recall where the precision is at least this.
#define mu_recall_at_precision_metric(...) \
    mu_recall_at_precision_metric_with(MU_ARGS(mu_recall_at_precision_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_recall_at_precision_metric_with(const mu_recall_at_precision_args *args);

typedef struct mu_sensitivity_at_specificity_args {
    size_t size;
    const char *given;
    double specificity;
    mu_keyword_only only_;
    int num_thresholds; // evenly spaced from 0 to 1; default 200
    int class_id;       // compare only this column; default: all
    const char *name;
} mu_sensitivity_at_specificity_args;
// mu_sensitivity_at_specificity_metric is the largest sensitivity where the specificity is at least this.
#define mu_sensitivity_at_specificity_metric(...) \
    mu_sensitivity_at_specificity_metric_with(MU_ARGS(mu_sensitivity_at_specificity_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_sensitivity_at_specificity_metric_with(const mu_sensitivity_at_specificity_args *args);

typedef struct mu_specificity_at_sensitivity_args {
    size_t size;
    const char *given;
    double sensitivity;
    mu_keyword_only only_;
    int num_thresholds; // evenly spaced from 0 to 1; default 200
    int class_id;       // compare only this column; default: all
    const char *name;
} mu_specificity_at_sensitivity_args;
// mu_specificity_at_sensitivity_metric is the largest specificity where the sensitivity is at least this.
#define mu_specificity_at_sensitivity_metric(...) \
    mu_specificity_at_sensitivity_metric_with(MU_ARGS(mu_specificity_at_sensitivity_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_specificity_at_sensitivity_metric_with(const mu_specificity_at_sensitivity_args *args);

typedef struct mu_f1_score_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *average; // "micro": all outputs together; "macro": their mean; "weighted":
                         // by their labels; default: one for each output, in mu_metric_results
    double threshold;    // a prediction above it counts as 1; default: the largest of its row does
    const char *name;
} mu_f1_score_args;
// mu_f1_score_metric makes a metric: the harmonic mean of precision and recall, for labels of 0 or 1 [batch,
// outputs].
#define mu_f1_score_metric(...) mu_f1_score_metric_with(MU_ARGS(mu_f1_score_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_f1_score_metric_with(const mu_f1_score_args *args);

typedef struct mu_fbeta_score_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *average; // as in mu_f1_score_args
    double threshold;
    const char *name;
    double beta; // how much recall weighs against precision; default 1
} mu_fbeta_score_args;
// mu_fbeta_score_metric makes a metric like mu_f1_score_metric with a weighted harmonic mean.
#define mu_fbeta_score_metric(...) mu_fbeta_score_metric_with(MU_ARGS(mu_fbeta_score_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_fbeta_score_metric_with(const mu_fbeta_score_args *args);

typedef struct mu_r2_score_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *class_aggregation; // "uniform_average" (default), "variance_weighted_average", or "none": one
                                   // score for each output, in mu_metric_results
    int num_regressors;            // adjusts the score for so many independent inputs; default 0
    const char *name;
} mu_r2_score_args;
// mu_r2_score_metric makes a metric: 1 - residual / variance of the labels, [batch, outputs].
#define mu_r2_score_metric(...) mu_r2_score_metric_with(MU_ARGS(mu_r2_score_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_r2_score_metric_with(const mu_r2_score_args *args);

typedef struct mu_axis_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int axis; // default -1, the last
    const char *name;
} mu_axis_args;
// Metrics: how alike labels and predictions of one shape are along an axis; 1 is the best. The cosine metric has the
// sign opposite to the loss.
#define mu_cosine_similarity_metric(...) \
    mu_cosine_similarity_metric_with(MU_ARGS(mu_axis_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_cosine_similarity_metric_with(const mu_axis_args *args);
#define mu_pearson_correlation_metric(...) \
    mu_pearson_correlation_metric_with(MU_ARGS(mu_axis_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_pearson_correlation_metric_with(const mu_axis_args *args);
#define mu_concordance_correlation_metric(...) \
    mu_concordance_correlation_metric_with(MU_ARGS(mu_axis_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_concordance_correlation_metric_with(const mu_axis_args *args);

typedef struct mu_top_k_args {
    size_t size;
    const char *given;
    int k; // default 5
    mu_keyword_only only_;
    const char *name;
} mu_top_k_args;
// Metrics: how often the label, one-hot or a class number (sparse), is among the k largest predictions.
#define mu_top_k_categorical_accuracy_metric(...) \
    mu_top_k_categorical_accuracy_metric_with(MU_ARGS(mu_top_k_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_top_k_categorical_accuracy_metric_with(const mu_top_k_args *args);
// mu_sparse_top_k_categorical_accuracy_metric is that metric for class numbers [batch, …].
#define mu_sparse_top_k_categorical_accuracy_metric(...) \
    mu_sparse_top_k_categorical_accuracy_metric_with(MU_ARGS(mu_top_k_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_sparse_top_k_categorical_accuracy_metric_with(const mu_top_k_args *args);

typedef struct mu_auc_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int num_thresholds; // default 200
    const char *curve;  // "ROC" (default); "PR", precision over recall; "PRGAIN", their gains
    bool from_logits;
    const char *name;
    const char *summation_method; // "interpolation" (default), or heights: "minoring", "majoring"
    int n_thresholds;             // thresholds between 0 and 1, instead of evenly spaced ones
    const double *thresholds;
    bool multi_label;    // the mean of the areas of all columns
    int num_labels;      // the columns of multi_label; default: those of the first batch
    int n_label_weights; // of the columns
    const double *label_weights;
} mu_auc_args;
// mu_auc_metric makes a metric: the area under a curve, from counts at thresholds. Labels are 0 or 1 for each
// prediction.
#define mu_auc_metric(...) mu_auc_metric_with(MU_ARGS(mu_auc_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_auc_metric_with(const mu_auc_args *args);

typedef struct mu_iou_args {
    size_t size;
    const char *given;
    int num_classes;
    mu_keyword_only only_;
    int n_target_class_ids; // classes to average over: required for mu_iou_metric, else all
    const int *target_class_ids;
    const char *name;
    int ignore_class;  // labels with this number do not count; default: all count
    bool dense_y_true; // labels are one-hot, not class numbers
    bool dense_y_pred; // predictions are probabilities or logits, not class numbers
    int axis;          // of the classes, where dense; default -1, the last
} mu_iou_args;
// Metrics: intersection over union of class numbers, averaged over some classes or all (mean) that occur. Labels and
// predictions have one shape. Numbers outside of the classes do not count.
#define mu_iou_metric(...) mu_iou_metric_with(MU_ARGS(mu_iou_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_iou_metric_with(const mu_iou_args *args);
#define mu_mean_iou_metric(...) mu_mean_iou_metric_with(MU_ARGS(mu_iou_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_mean_iou_metric_with(const mu_iou_args *args);

typedef struct mu_one_hot_iou_args {
    size_t size;
    const char *given;
    int num_classes;
    mu_keyword_only only_;
    int n_target_class_ids; // as in mu_iou_args
    const int *target_class_ids;
    const char *name;
    int ignore_class;   // as in mu_iou_args
    bool sparse_y_pred; // predictions are class numbers, not probabilities
    int axis;           // of the classes; default -1, the last
} mu_one_hot_iou_args;
// The same for one-hot labels.
#define mu_one_hot_iou_metric(...) mu_one_hot_iou_metric_with(MU_ARGS(mu_one_hot_iou_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_one_hot_iou_metric_with(const mu_one_hot_iou_args *args);
#define mu_one_hot_mean_iou_metric(...) \
    mu_one_hot_mean_iou_metric_with(MU_ARGS(mu_one_hot_iou_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_one_hot_mean_iou_metric_with(const mu_one_hot_iou_args *args);

typedef struct mu_binary_iou_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int n_target_class_ids; // 0, 1 or both, the default
    const int *target_class_ids;
    double threshold; // a prediction of at least this is a 1; default 0.5
    const char *name;
} mu_binary_iou_args;
// mu_binary_iou_metric makes a metric: intersection over union of labels and predictions of 0 and 1.
#define mu_binary_iou_metric(...) mu_binary_iou_metric_with(MU_ARGS(mu_binary_iou_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_binary_iou_metric_with(const mu_binary_iou_args *args);

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
    const mu_metric_state *states; // array and names must live as long as the metric
    // update adds a batch to the states with mu_metric_add; `weights` (per sample) may be NULL.
    mu_status (*update)(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights, void *arg);
    // result computes the metric from the numbers of all states, side by side, summed over all replicas.
    double (*result)(const double *sums, void *arg);
    void *arg; // must live as long as the metric
} mu_metric_args;
// mu_metric_new makes a metric of your own. mu_metric_add adds a tensor of the state's shape to a state, in `update`.
// Errors of the latter: OUT_OF_RANGE for a state that it does not have.
#define mu_metric_new(...) mu_metric_new_with(MU_ARGS(mu_metric_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_metric *mu_metric_new_with(const mu_metric_args *args);
MU_API mu_status mu_metric_add(mu_metric *metric, int state, mu_tensor *delta);

// mu_metric_update adds a batch: labels and predictions, or values and NULL for a mean. mu_metric_update_weighted gives
// every sample a weight (NULL: 1): [batch] or [batch, …].
MU_API mu_status mu_metric_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred);
MU_API mu_status mu_metric_update_weighted(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights);
MU_API double mu_metric_result(mu_metric *metric); // over all replicas; 0 before the first update, NaN on failure
// mu_metric_results writes at most n results of a metric that has several (one for each threshold, output or class) and
// returns how many there are: 1 for other metrics, 0 before the first update, -1 after an error. mu_metric_result is
// their mean.
MU_API int mu_metric_results(mu_metric *metric, int n, double *results);
MU_API mu_status mu_metric_reset(mu_metric *metric);        // forgets all batches so far
MU_API const char *mu_metric_name(const mu_metric *metric); // belongs to the metric

#ifdef __cplusplus
}
#endif
#endif
