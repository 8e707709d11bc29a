// Metrics: what all classes share. A metric's state is any number of variables that add up over steps and replicas.
//
// Each is an ON_READ variable with aggregation SUM, so every sample counts once for any division of batches. What the
// state means is computed from the sums as plain numbers.

#include "base/callback.h"
#include "model/core/layer.h"
#include "model/losses/loss.h"
#include "model/metrics/metric.h"

#include <math.h>
#include <muster/ops.h>

#define LONGEST_NAME  48 // "val_" and the name fit wherever values are logged
#define LONGEST_LABEL 64 // likewise, with the name of an output before it

static void metric_destroy(void *object)
{
    mu_metric *metric = object;
    for (size_t i = 0; i < metric->states.n; i++)
        mu_release(metric->states.items[i]);
    mu__free(metric->states.items);
    mu__fields_drop(&metric->ops->class, metric->args);
    mu_release(metric->loss);
    mu__free(metric->name);
    mu__free(metric->label);
}

mu_type mu__metric_type = {.name = "metric", .destroy = metric_destroy};

static mu_status check_name(const char *name)
{
    return strlen(name) <= LONGEST_NAME
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "the name of a metric has %zu characters; at most %d are supported: '%s'", strlen(name),
                           LONGEST_NAME, name);
}

static mu_metric *metric_of(const mu_metric_ops *ops, const void *args, const char *name)
{
    mu_metric *metric = check_name(name) == MU_OK ? mu__new(&mu__metric_type, sizeof *metric) : NULL;
    if (!metric)
        return NULL;
    metric->ops = ops;
    metric->args = mu__fields_keep(&ops->class, args);
    metric->name = mu__strdup(name);
    if (metric->args && ops->columns_of)
        metric->columns = ops->columns_of(metric->args);
    if (metric->args && metric->name)
        return mu__give(metric);
    mu_release(metric);
    return NULL;
}

mu_metric *mu__metric_make(const mu_metric_ops *ops, const void *args)
{
    void *filled = mu__pending() ? NULL : mu__alloc(ops->class.args_bytes);
    mu_metric *metric = NULL;
    if (filled && mu__fields_fill(&ops->class, filled, args) == MU_OK) {
        const char *name = mu__fields_name(&ops->class, filled);
        metric = metric_of(ops, filled, name ? name : ops->class.name);
    }
    mu__free(filled);
    return metric;
}

mu_status mu__metric_rename(mu_metric *metric, const char *name)
{
    MU_TRY(check_name(name));
    char *own = mu__strdup(name);
    if (!own)
        return mu_error_code();
    mu__free(metric->name);
    metric->name = own;
    return MU_OK;
}

const char *mu_metric_name(const mu_metric *metric) { return metric ? metric->name : NULL; }

const char *mu__metric_label(const mu_metric *metric) { return metric->label ? metric->label : metric->name; }

mu_status mu__metric_set_label(mu_metric *metric, const char *prefix)
{
    char *label = *prefix ? mu__sprintf("%s%s", prefix, metric->name) : NULL;
    if (*prefix && !label)
        return MU_RESOURCE_EXHAUSTED;
    if (label && strlen(label) > LONGEST_LABEL) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_compile: the values of metric '%s' would be logged as '%s'; at most %d characters are supported. "
                  "Give the metric or the output a shorter name",
                  metric->name, label, LONGEST_LABEL);
        mu__free(label);
        return MU_INVALID_ARGUMENT;
    }
    mu__free(metric->label);
    metric->label = label;
    return MU_OK;
}

// ---- State --------------------------------------------------------------------------------------

static mu_variable *make_state(const mu_metric *metric, const char *name, const mu_shape *shape)
{
    char *full = mu__sprintf("%s/%s", mu__metric_label(metric), name);
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *zeros = full ? mu_tensor_new(mu__floatx(), shape->rank, shape->dims, NULL) : NULL;
    mu__trace_resume(suspended);
    mu_variable *variable = NULL;
    if (zeros)
        variable = mu_variable_new(zeros, full, .synchronization = MU_SYNCHRONIZATION_ON_READ,
                                   .aggregation = MU_AGGREGATION_SUM, .not_trainable = true);
    mu__free(full);
    return variable;
}

int mu__metric_state_count(const mu_metric *metric)
{
    mu_metric_state states[MU_MAX_METRIC_STATES];
    return metric->ops->states(metric, states);
}

const char *mu__metric_state_name(const mu_metric *metric, int i)
{
    mu_metric_state states[MU_MAX_METRIC_STATES];
    return i < metric->ops->states(metric, states) ? states[i].name : NULL;
}

int64_t mu__metric_numbers(const mu_metric *metric)
{
    mu_metric_state states[MU_MAX_METRIC_STATES];
    const int n = metric->ops->states(metric, states);
    int64_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += mu__elements(&states[i].shape);
    return sum;
}

void mu__metric_learn_columns(mu_metric *metric, const mu_shape *first)
{
    mu_metric_state states[MU_MAX_METRIC_STATES];
    if (!metric->ops->by_column || metric->columns != 0 || first->rank == 0 || first->dims[first->rank - 1] < 1)
        return;
    metric->columns = first->dims[first->rank - 1];
    if (metric->ops->states(metric, states) == 0 || !mu__shape_equal(&states[0].shape, first))
        metric->columns = 0;
}

mu_status mu__metric_build(mu_metric *metric)
{
    mu_metric_state states[MU_MAX_METRIC_STATES];
    const int n = metric->ops->states(metric, states);
    if (metric->ops->by_column && metric->columns == 0)
        return MU_OK;
    while (metric->states.n < (size_t)n) {
        const mu_metric_state *next = &states[metric->states.n];
        mu_variable *variable = make_state(metric, next->name, &next->shape);
        if (!variable || MU_PUSH(&metric->states, variable) != MU_OK)
            return mu_error_code();
        mu_retain(variable);
    }
    return MU_OK;
}

// A value added outside of replicas counts once: on the first copy.
static mu_status add_to(mu_variable *variable, mu_tensor *value)
{
    mu_context *context = mu__context();
    if (context->replica || context->trace || !variable->rules)
        return mu_variable_assign_add(variable, value);
    const int before = context->component;
    context->component = 0;
    const mu_status status = mu__variable_update(variable, MU_UPDATE_ADD, value);
    context->component = before;
    return status;
}

mu_status mu_metric_add(mu_metric *metric, int state, mu_tensor *delta)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(metric, "mu_metric_add: the metric"));
    MU_TRY(mu__need(delta, "mu_metric_add: the delta"));
    MU_TRY(mu__metric_build(metric));
    if (state < 0 || (size_t)state >= metric->states.n)
        return mu__error(MU_OUT_OF_RANGE, "mu_metric_add: state %d of metric '%s', which has %zu", state, metric->name,
                         metric->states.n);
    mu_tensor *typed = mu_cast(delta, mu__floatx());
    if (typed && metric->collects) {
        mu_tensor **sum = &metric->added[state];
        *sum = *sum ? mu_add(*sum, typed) : typed;
        return mu_error_code();
    }
    return typed ? add_to(metric->states.items[state], typed) : mu_error_code();
}

// ---- Mean metrics -------------------------------------------------------------------------------

int mu__mean_states(const mu_metric *metric, mu_metric_state *states)
{
    (void)metric;
    states[0] = (mu_metric_state){.name = "total"};
    states[1] = (mu_metric_state){.name = "count"};
    return 2;
}

double mu__mean_result(const mu_metric *metric, const double *sums)
{
    (void)metric;
    return sums[1] != 0 ? sums[0] / sums[1] : 0;
}

mu_status mu__mean_update(mu_metric *metric, mu_tensor *values, mu_tensor *weights)
{
    mu_tensor *each = weights ? mu__weights_like(weights, values) : NULL;
    mu_tensor *total = mu_reduce_sum(each ? mu_multiply(values, each) : values, MU_ALL_AXES);
    mu_tensor *count = each ? mu_reduce_sum(each, MU_ALL_AXES) : mu_dim_size(values, MU_ALL_AXES);
    if (!total || !count || mu_metric_add(metric, 0, total) != MU_OK)
        return mu_error_code();
    return mu_metric_add(metric, 1, count);
}

// ---- Public -------------------------------------------------------------------------------------

static mu_status need_update(const mu_metric *metric, const mu_tensor *y_true, const mu_tensor *y_pred)
{
    if (metric && y_true && (y_pred || !metric->ops->compares))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "mu_metric_update: %s is NULL",
                     !metric   ? "metric"
                     : !y_true ? "y_true"
                               : "y_pred");
}

mu_status mu_metric_update_weighted(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(need_update(metric, y_true, y_pred));
    if (y_pred && mu__dtype_is_half(mu_tensor_dtype(y_pred)) && !(y_pred = mu_cast(y_pred, mu__floatx())))
        return mu_error_code();
    const mu_status status = metric->ops->update(metric, y_true, y_pred, weights);
    return status == MU_OK || mu__pending()
               ? mu_error_code()
               : mu__error(
                     status,
                     "metric '%s': its update function returned %s without an error; return mu_fail(code, reason)",
                     metric->name, mu_status_name(status));
}

mu_status mu_metric_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred)
{
    return mu_metric_update_weighted(metric, y_true, y_pred, NULL);
}

static mu_status read_state(mu_variable *variable, double *out)
{
    mu_tensor *value = mu_variable_read(variable);
    mu_tensor *wide = value ? mu_cast(value, MU_F64) : NULL;
    return wide ? mu_tensor_copy_to(wide, out, (size_t)mu_tensor_elements(wide) * sizeof *out) : mu_error_code();
}

mu_status mu__metric_read(const mu_metric *metric, double *sums)
{
    for (size_t i = 0; i < metric->states.n; i++) {
        MU_TRY(read_state(metric->states.items[i], sums));
        sums += mu__elements(&metric->states.items[i]->resource.spec.shape);
    }
    return MU_OK;
}

mu_status mu__metric_write(mu_metric *metric, const double *sums)
{
    for (size_t i = 0; i < metric->states.n; i++) {
        const mu_shape *shape = &metric->states.items[i]->resource.spec.shape;
        mu_tensor *value = mu_tensor_new(MU_F64, shape->rank, shape->dims, sums);
        MU_TRY(value ? mu_variable_assign(metric->states.items[i], mu_cast(value, mu__floatx())) : mu_error_code());
        sums += mu__elements(shape);
    }
    return MU_OK;
}

// The numbers of all states; for mu__free. NULL on error.
static double *read_sums(const mu_metric *metric)
{
    double *sums = mu__calloc((size_t)mu__metric_numbers(metric) + 1, sizeof *sums);
    mu_pool *pool = sums ? mu_pool_open() : NULL;
    const mu_status status = pool ? mu__metric_read(metric, sums) : mu_error_code();
    mu_pool_close(pool);
    if (status == MU_OK)
        return sums;
    mu__free(sums);
    return NULL;
}

// All results of a metric that has been updated; for mu__free. NULL on error.
static double *results_of(const mu_metric *metric, const double *sums, int *n)
{
    double *results = mu__calloc((size_t)mu__metric_numbers(metric) + 1, sizeof *results);
    *n = 1;
    if (results && metric->ops->results)
        *n = metric->ops->results(metric, sums, results);
    else if (results)
        results[0] = metric->ops->result(metric, sums);
    return results;
}

double mu__metric_value(const mu_metric *metric, const double *sums)
{
    double sum = 0;
    int n = 0;
    if (metric->ops->result)
        return metric->ops->result(metric, sums);
    double *results = results_of(metric, sums, &n);
    for (int i = 0; results && i < n; i++)
        sum += results[i];
    mu__free(results);
    return results && n > 0 ? sum / n : NAN;
}

double mu_metric_result(mu_metric *metric)
{
    if (mu__pending() || mu__need(metric, "mu_metric_result: the metric") != MU_OK)
        return NAN;
    if (metric->states.n == 0)
        return 0;
    double *sums = read_sums(metric);
    const double result = sums ? mu__metric_value(metric, sums) : NAN;
    mu__free(sums);
    return result;
}

int mu_metric_results(mu_metric *metric, int n, double *results)
{
    int count = 0;
    if (mu__pending() || mu__need(metric, "mu_metric_results: the metric") != MU_OK ||
        (n > 0 && mu__need(results, "mu_metric_results: the results") != MU_OK))
        return -1;
    if (metric->states.n == 0)
        return 0;
    double *sums = read_sums(metric);
    double *all = sums ? results_of(metric, sums, &count) : NULL;
    if (all && n > 0)
        memcpy(results, all, (size_t)MU_MIN(n, count) * sizeof *results);
    mu__free(sums);
    mu__free(all);
    return all ? count : -1;
}

mu_status mu_metric_reset(mu_metric *metric)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(metric, "mu_metric_reset: the metric"));
    double *zeros = mu__calloc((size_t)mu__metric_numbers(metric) + 1, sizeof *zeros);
    const mu_status status = zeros ? mu__metric_write(metric, zeros) : MU_RESOURCE_EXHAUSTED;
    mu__free(zeros);
    return status;
}

// ---- Metrics of the user's own ------------------------------------------------------------------

static const mu_field own_fields[] = {MU_FIELD(mu_metric_args, name, NAME), {0}};

static int own_states(const mu_metric *metric, mu_metric_state *states)
{
    const mu_metric_args *args = metric->args;
    memcpy(states, args->states, sizeof *states * (size_t)args->n_states);
    return args->n_states;
}

static mu_status own_update(mu_metric *metric, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *weights)
{
    const mu_metric_args *args = metric->args;
    mu_status status;
    MU_CALLBACK("the update function of a metric", status = args->update(metric, y_true, y_pred, weights, args->arg));
    return status;
}

static double own_result(const mu_metric *metric, const double *sums)
{
    const mu_metric_args *args = metric->args;
    double result;
    MU_CALLBACK("the result function of a metric", result = args->result(sums, args->arg));
    return result;
}

static mu_status own_complete(void *arguments)
{
    const mu_metric_args *args = arguments;
    if (!args->name || !args->update || !args->result)
        return mu__error(MU_INVALID_ARGUMENT, "mu_metric_new: %s is NULL",
                         !args->name    ? "the name"
                         : args->update ? ".result"
                                        : ".update");
    if (!args->states || args->n_states < 1 || args->n_states > MU_MAX_METRIC_STATES)
        return mu__error(MU_INVALID_ARGUMENT, "mu_metric_new: '%s' has %d states; give 1 to %d in .states", args->name,
                         args->states ? args->n_states : 0, MU_MAX_METRIC_STATES);
    for (int i = 0; i < args->n_states; i++) {
        if (!args->states[i].name)
            return mu__error(MU_INVALID_ARGUMENT, "mu_metric_new: state %d of '%s' has no name", i, args->name);
        MU_TRY(mu__shape_check(&args->states[i].shape, "mu_metric_new"));
    }
    return MU_OK;
}

static const mu_metric_ops own_ops = {
    .class = {"metric", "Metric", "mu_metric_new", MU_OPTIONS(mu_metric_args), own_fields, own_complete},
    .compares = true,
    .states = own_states,
    .update = own_update,
    .result = own_result,
};

mu_metric *mu_metric_new_with(const mu_metric_args *args) { return mu__metric_make(&own_ops, args); }
