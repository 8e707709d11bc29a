// Internal interface of metrics: what a class of metrics is, and the states that add up over steps and replicas.
#ifndef MU_SRC_MODEL_METRIC_H
#define MU_SRC_MODEL_METRIC_H

#include "model/core/fields.h"

typedef struct mu_metric_ops {
    mu_class class;
    bool compares; // update needs y_pred
    // states writes names and shapes, at most MU_MAX_METRIC_STATES, and returns how many there are.
    int (*states)(const mu_metric *metric, mu_metric_state *states);
    // update adds a batch with mu_metric_add; `weights` may be NULL.
    mu_status (*update)(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights);
    // result computes the metric from the numbers of all states, side by side, summed over all replicas. Instead,
    // results writes several, at most one per number of the states, and returns how many; their mean is the result.
    double (*result)(const mu_metric *metric, const double *sums);
    int (*results)(const mu_metric *metric, const double *sums, double *out);
    bool maximized; // larger is better
    bool by_column; // the sizes of the states depend on `columns` of the metric
    // columns_of returns the number of columns that the options give; 0: the first batch says it. Optional: so it does.
    int64_t (*columns_of)(const void *args);
} mu_metric_ops;

// A class of metrics and the function that makes one; the other fields of its mu_metric_ops by name.
#define MU_METRIC(word, keras_class, args_type, args_fields, completes, ...)                                 \
    static const mu_metric_ops word##_ops = {                                                                \
        .class = {#word, keras_class, "mu_" #word "_metric", MU_OPTIONS(args_type), args_fields, completes}, \
        .compares = true,                                                                                    \
        __VA_ARGS__};                                                                                        \
    mu_metric *mu_##word##_metric_with(const args_type *args) { return mu__metric_make(&word##_ops, args); }

struct mu_metric {
    mu_object object;
    const mu_metric_ops *ops;
    void *args;
    char *name;
    char *label; // by which a model with several outputs logs it; NULL: its name
    struct {
        mu_variable **items;
        size_t n, capacity;
    } states;      // made on first use; retained
    mu_loss *loss; // of a metric that averages a loss; retained
    // Of a step on a worker, while it is traced: what is added to each state (NULL: nothing) instead of the variables.
    bool collects;
    mu_tensor *added[MU_MAX_METRIC_STATES];
    int64_t columns; // of the predictions, for classes whose states have as many; 0: not known yet
};

typedef struct mu_metric_name_args { // of classes without options
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *name;
} mu_metric_name_args;
mu_metric *mu__metric_make(const mu_metric_ops *ops, const void *args); // belongs to the pool; NULL on error
// The classes of each file, which end with NULL.
extern const mu_metric_ops *const mu__mean_metrics[],
    *const mu__counting_metrics[], *const mu__iou_metrics[], *const mu__column_metrics[],
                                                                 *const mu__correlation_metrics[];
mu_status mu__metric_rename(mu_metric *metric, const char *name); // Errors: INVALID_ARGUMENT for a long name
// mu__metric_find returns a class by Keras's names; NULL: there is none. mu__metric_known returns whether
// mu__metric_named knows a name. mu__metric_word returns the name that Keras has for what is no class of its own here
// ("accuracy", the name of a loss); NULL: it is one.
const mu_metric_ops *mu__metric_find(const char *name);
bool mu__metric_known(const char *name);
const char *mu__metric_word(const mu_metric *metric);
// mu__metric_label returns the name by which a model logs a metric; its states have it too. mu__metric_set_label makes
// it PREFIX and the name. Errors: INVALID_ARGUMENT if it becomes too long.
const char *mu__metric_label(const mu_metric *metric);
mu_status mu__metric_set_label(mu_metric *metric, const char *prefix);
double mu__metric_value(const mu_metric *metric, const double *sums); // NaN after an error
mu_status mu__metric_build(mu_metric *metric);
// mu__metric_learn_columns notes how many columns there are, where the first batch would say it, from the shape that
// the first state has in a file. It leaves that to the first batch if the metric has no state of such a shape.
void mu__metric_learn_columns(mu_metric *metric, const mu_shape *first);
int mu__metric_state_count(const mu_metric *metric);
const char *mu__metric_state_name(const mu_metric *metric, int i);
int64_t mu__metric_numbers(const mu_metric *metric); // of all states together
// mu__metric_read reads the sums over all replicas; mu__metric_write makes them these numbers.
mu_status mu__metric_read(const mu_metric *metric, double *sums);
mu_status mu__metric_write(mu_metric *metric, const double *sums);
// A mean: what classes whose result is the mean of values per sample have in common.
int mu__mean_states(const mu_metric *metric, mu_metric_state *states);
mu_status mu__mean_update(mu_metric *metric, mu_tensor *values, mu_tensor *weights);
double mu__mean_result(const mu_metric *metric, const double *sums);
extern mu_type mu__metric_type;

#endif
