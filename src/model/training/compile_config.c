// What a model is compiled with, as Keras's compile_config, in both directions.
//
// Optimizer, losses and metrics are objects with their options, or names. What Keras stores for functions of a
// program's own is refused by its name.
#include "model/models/functional.h"
#include "model/files/keras_names.h"
#include "model/losses/loss.h"
#include "model/metrics/metric.h"
#include "model/optimizers/optimizer.h"
#include "model/training/arguments.h"
#include "model/training/training.h"

// ---- Writing ------------------------------------------------------------------------------------

static json_t *object_json(const char *module, const mu_class *class, const void *args, const char *name)
{
    json_t *config = json_pack("{s:s}", "name", name);
    if (config && mu__fields_json(class, args, config) == MU_OK)
        return mu__keras_json(module, class->keras, config);
    json_decref(config);
    return NULL;
}

static json_t *loss_json(const mu_loss *loss)
{
    if (!loss)
        return json_null();
    if (strcmp(loss->ops->class.keras, loss->ops->class.name) == 0) // a name that stands for several classes
        return json_string(loss->ops->class.name);
    json_t *json = mu__loss_find(loss->ops->class.name) == loss->ops
                       ? object_json("keras.losses", &loss->ops->class, loss->args, mu_loss_name(loss))
                       : NULL;
    if (!json && !mu__pending())
        mu__error(MU_UNIMPLEMENTED,
                  "the loss '%s' is a function of the program's own, which the configuration cannot hold; save the "
                  "weights alone, or compile with one of Keras's losses",
                  mu_loss_name(loss));
    return json;
}

static json_t *losses_json(const mu_trainer *trainer)
{
    if (trainer->n_losses == 1)
        return loss_json(trainer->losses[0]);
    json_t *list = json_array();
    for (int i = 0; i < trainer->n_losses; i++) {
        json_t *json = loss_json(trainer->losses[i]);
        if (!json || json_array_append_new(list, json) != 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

// The options of a loss without those that are not of its function.
static json_t *loss_options(const mu_loss *loss)
{
    json_t *options = json_object();
    if (options && mu__fields_json(&loss->ops->class, loss->args, options) == MU_OK &&
        json_object_del(options, "reduction") == 0)
        return options;
    json_decref(options);
    if (!mu__pending())
        mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the options of the loss '%s'", mu_loss_name(loss));
    return NULL;
}

// Whether Keras has a metric of this name: losses of which it has no class of metrics are none.
static bool is_metric_of_keras(const char *name)
{
    static const char *const names[] = {
        "mse",
        "MSE",
        "mean_squared_error",
        "mae",
        "MAE",
        "mean_absolute_error",
        "mape",
        "MAPE",
        "mean_absolute_percentage_error",
        "msle",
        "MSLE",
        "mean_squared_logarithmic_error",
        "hinge",
        "squared_hinge",
        "categorical_hinge",
        "kl_divergence",
        "poisson",
        "bce",
        "BCE",
        "binary_crossentropy",
        "categorical_crossentropy",
        "sparse_categorical_crossentropy",
    };
    for (size_t i = 0; i < MU_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

// Whether a name says all of a metric of a loss: what Keras makes of it has the same options and the same name.
static bool name_says_all(const mu_metric *metric)
{
    const mu_loss_ops *ops = metric->loss->ops;
    const bool known = is_metric_of_keras(metric->name) && mu__loss_find(metric->name) == ops;
    const mu_loss *plain = known ? mu__loss_make(ops, NULL) : NULL;
    json_t *options = plain ? loss_options(metric->loss) : NULL, *defaults = options ? loss_options(plain) : NULL;
    const bool same = defaults && json_equal(options, defaults);
    json_decref(options);
    json_decref(defaults);
    return same;
}

// One of Keras's own functions, which is stored by its name.
static json_t *function_json(const char *name)
{
    return json_pack("{s:s, s:s, s:s, s:s}", "module", "builtins", "class_name", "function", "config", name,
                     "registered_name", name);
}

// A metric of a loss with options is Keras's mean of its function.
static json_t *loss_metric_json(const mu_metric *metric)
{
    const mu_class *class = &metric->loss->ops->class;
    json_t *options = loss_options(metric->loss);
    if (options && mu__json_member(options, "name", json_string(metric->name)) == MU_OK &&
        mu__json_member(options, "fn", function_json(class->name)) == MU_OK)
        return mu__keras_json("keras.metrics", "MeanMetricWrapper", options);
    json_decref(options);
    return NULL;
}

// A metric of a loss has the loss's name, if it has no options; others are objects, or a name that stands for several.
static json_t *metric_json(const mu_metric *metric)
{
    const char *word = mu__metric_word(metric);
    const bool of_loss = word && metric->loss && strcmp(word, metric->loss->ops->class.name) == 0;
    const bool known = !of_loss || mu__loss_find(word) == metric->loss->ops;
    if (of_loss && known && !name_says_all(metric))
        return mu__pending() ? NULL : loss_metric_json(metric);
    if (word && known && metric->loss && !of_loss) // the root of a mean, which is a class of Keras's
        return object_json("keras.metrics", &metric->ops->class, metric->args, metric->name);
    if (word && known)
        return json_string(mu__loss_find(metric->name) || strcmp(metric->name, "acc") == 0 ? metric->name : word);
    if (mu__metric_find(metric->ops->class.name) == metric->ops)
        return object_json("keras.metrics", &metric->ops->class, metric->args, metric->name);
    mu__error(MU_UNIMPLEMENTED,
              "the metric '%s' is one of the program's own, which the configuration cannot hold; compile with Keras's "
              "metrics",
              metric->name);
    return NULL;
}

static int output_count(const mu_model *model)
{
    return model->ops == &mu__functional_ops
               ? mu__value_flatten(((const mu_functional *)model->state)->outputs, NULL, 0)
               : 1;
}

// Some of the metrics: one list, or one for each output.
static json_t *metrics_json(const mu_model *model, int begin, int end)
{
    const mu_trainer *trainer = model->trainer;
    const int outputs = output_count(model);
    json_t *all = json_array();
    for (int o = 0; outputs > 1 && o < outputs; o++)
        json_array_append_new(all, json_array());
    for (int i = begin; i < end; i++) {
        json_t *json = metric_json(trainer->metrics[i]);
        json_t *list = outputs > 1 ? json_array_get(all, (size_t)trainer->metric_outputs[i]) : all;
        if (!json || json_array_append_new(list, json) != 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

static json_t *weights_json(const mu_trainer *trainer)
{
    bool plain = true;
    for (int i = 0; i < trainer->n_losses; i++)
        plain &= trainer->loss_weights[i] == 1;
    json_t *list = plain ? json_null() : json_array();
    for (int i = 0; !plain && i < trainer->n_losses; i++)
        json_array_append_new(list, json_real(trainer->loss_weights[i]));
    return list;
}

json_t *mu__compile_json(const mu_model *model)
{
    const mu_trainer *trainer = model->trainer;
    if (trainer->n_losses == 0)
        return NULL;
    json_t *optimizer = trainer->optimizer ? mu__optimizer_json(trainer->optimizer) : json_null();
    json_t *losses = optimizer ? losses_json(trainer) : NULL;
    const bool weighs = trainer->first_weighted < trainer->first_of_layers;
    json_t *metrics = losses ? metrics_json(model, trainer->first_metric, trainer->first_weighted) : NULL;
    json_t *weighted = !metrics ? NULL
                       : weighs ? metrics_json(model, trainer->first_weighted, trainer->first_of_layers)
                                : json_null();
    if (weighted)
        return json_pack("{s:o, s:o, s:o, s:o, s:o, s:b, s:i, s:b}", "optimizer", optimizer, "loss", losses,
                         "loss_weights", weights_json(trainer), "metrics", metrics, "weighted_metrics", weighted,
                         "run_eagerly", trainer->run_eagerly, "steps_per_execution", (int)trainer->steps_per_execution,
                         "jit_compile", trainer->jit_compile);
    json_decref(metrics);
    json_decref(optimizer);
    json_decref(losses);
    if (!mu__pending())
        mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the configuration that the model was compiled with");
    return NULL;
}

// ---- Reading ------------------------------------------------------------------------------------

enum { MOST_ITEMS = MU_MAX_MODEL_INPUTS };

typedef struct reader {
    const mu_model *model;
    const char *function;
    int n_outputs;
    const void *losses[MOST_ITEMS + 1]; // ends with MU_END
    double weights[MOST_ITEMS];
    int n_losses;
} reader;

// Metrics that are read; the list ends with MU_END.
typedef struct metrics_read {
    const void *items[MOST_ITEMS + 1];
    int outputs[MOST_ITEMS], n;
} metrics_read;

static mu_status refuse(const reader *r, const char *what, const json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    const mu_status status = mu__error(MU_UNIMPLEMENTED,
                                       "%s: the configuration compiles the model with %s %.120s, which is not one of "
                                       "Keras's that Muster has. Load it with .no_compile and call mu_compile",
                                       r->function, what, text ? text : "?");
    free(text);
    return status;
}

// The name of what is a name, or one of Keras's own functions, which is stored by its name.
static const char *name_of(const json_t *json)
{
    const char *class_name = json_string_value(json_object_get(json, "class_name"));
    return json_is_string(json)                                ? json_string_value(json)
           : class_name && strcmp(class_name, "function") == 0 ? json_string_value(json_object_get(json, "config"))
                                                               : NULL;
}

static const json_t *config_of(const json_t *json, const char **class_name)
{
    *class_name = json_string_value(json_object_get(json, "class_name"));
    const json_t *config = json_object_get(json, "config");
    return *class_name && json_is_object(config) ? config : NULL;
}

static mu_loss *loss_from(const reader *r, const json_t *json)
{
    const char *name = name_of(json), *class_name;
    const mu_loss_ops *ops = name ? mu__loss_find(name) : NULL;
    if (ops)
        return mu__loss_make(ops, NULL);
    const json_t *config = config_of(json, &class_name);
    ops = config ? mu__loss_find(class_name) : NULL;
    if (ops && json_is_null(json_object_get(config, "reduction"))) {
        mu__error(MU_UNIMPLEMENTED,
                  "%s: the configuration compiles the model with the loss '%.60s' without a reduction, whose gradient "
                  "in Keras is that of the sum. Load it with .no_compile and call mu_compile with a loss that has "
                  ".reduction = \"sum\", or another",
                  r->function, class_name);
        return NULL;
    }
    void *args = ops ? mu__fields_from(&ops->class, config, 0) : NULL;
    mu_loss *loss = args ? mu__loss_make(ops, args) : NULL;
    mu__fields_from_free(args);
    if (!loss && !mu__pending())
        refuse(r, "the loss", json);
    return loss;
}

// A metric that is the mean of a loss: one of Keras's classes, which have the loss's name, or its wrapper of functions.
// NULL without an error: it is no such.
static mu_metric *loss_metric_from(const char *class_name, const json_t *config)
{
    const bool wraps = strcmp(class_name, "MeanMetricWrapper") == 0;
    const char *name = wraps                                     ? name_of(json_object_get(config, "fn"))
                       : strcmp(class_name, "LogCoshError") == 0 ? "LogCosh"
                                                                 : class_name;
    const mu_loss_ops *ops = name ? mu__loss_find(name) : NULL;
    json_t *options = ops ? json_copy((json_t *)(uintptr_t)config) : NULL;
    json_object_del(options, "fn");
    void *args = options ? mu__fields_from(&ops->class, options, 0) : NULL;
    mu_loss *loss = args ? mu__loss_make(ops, args) : NULL;
    mu__fields_from_free(args);
    json_decref(options);
    return loss ? mu_loss_metric(loss) : NULL;
}

// One that Keras's configuration names otherwise than its class.
static mu_metric *with_name(mu_metric *metric, const json_t *config)
{
    const char *name = json_string_value(json_object_get(config, "name"));
    return metric && (!name || mu__metric_rename(metric, name) == MU_OK) ? metric : NULL;
}

static mu_metric *metric_from(const reader *r, const json_t *json)
{
    const char *name = name_of(json), *class_name;
    if (name && mu__metric_known(name))
        return mu__metric_called(name, r->function);
    const json_t *config = config_of(json, &class_name);
    const mu_metric_ops *ops = config ? mu__metric_find(class_name) : NULL;
    void *args = ops ? mu__fields_from(&ops->class, config, 0) : NULL;
    mu_metric *metric = args             ? mu__metric_make(ops, args)
                        : config && !ops ? loss_metric_from(class_name, config)
                                         : NULL;
    mu__fields_from_free(args);
    if (!metric && !mu__pending() && config && !ops && mu__metric_known(class_name))
        metric = with_name(mu__metric_named(class_name, r->function), config);
    if (!metric && !mu__pending())
        refuse(r, "the metric", json);
    return metric;
}

// What a value, list or object keyed by outputs has for output i.
static const json_t *of_output(const reader *r, const json_t *json, int i)
{
    if (json_is_array(json))
        return json_array_get(json, (size_t)i);
    if (json_is_object(json) && !json_object_get(json, "class_name"))
        return json_object_get(json, mu_model_output_name(r->model, i));
    return i == 0 ? json : NULL;
}

// A single loss is that of every output.
static mu_status read_losses(reader *r, const json_t *config)
{
    const json_t *losses = json_object_get(config, "loss"), *weights = json_object_get(config, "loss_weights");
    const bool single = json_is_string(losses) || json_object_get(losses, "class_name");
    bool any = false;
    for (int i = 0; i < r->n_outputs; i++) {
        const json_t *json = of_output(r, losses, single ? 0 : i), *weight = of_output(r, weights, i);
        const bool none = !json || json_is_null(json);
        r->losses[i] = none ? NULL : loss_from(r, json);
        MU_TRY(mu_error_code());
        any |= !none;
        r->weights[i] = json_is_number(weight) ? json_number_value(weight) : 1;
    }
    r->n_losses = any ? r->n_outputs : 0;
    return MU_OK;
}

static mu_status add_metric(const reader *r, const json_t *json, int output, metrics_read *out)
{
    if (out->n == MOST_ITEMS)
        return refuse(r, "more metrics than Muster's models can have:", json);
    out->outputs[out->n] = output;
    out->items[out->n] = metric_from(r, json);
    return out->items[out->n++] ? MU_OK : mu_error_code();
}

// Keras takes one list for a model with one output; otherwise a list or an object with what each output has.
static mu_status read_metrics(const reader *r, const json_t *metrics, metrics_read *out)
{
    const bool flat = r->n_outputs == 1 && json_is_array(metrics) && !json_is_array(json_array_get(metrics, 0));
    for (int o = 0; o < r->n_outputs; o++) {
        const json_t *own = flat ? metrics : of_output(r, metrics, o);
        const size_t n = json_is_array(own) ? json_array_size(own) : own && !json_is_null(own);
        for (size_t i = 0; i < n; i++)
            MU_TRY(add_metric(r, json_is_array(own) ? json_array_get(own, i) : own, o, out));
    }
    out->items[out->n] = MU_END;
    return MU_OK;
}

static mu_items *items_of(const metrics_read *metrics) { return metrics->n > 0 ? mu_items_of(metrics->items) : NULL; }

// A number of steps that Muster does not run at once only costs time.
static int64_t steps_of(const json_t *config)
{
    const json_int_t steps = json_integer_value(json_object_get(config, "steps_per_execution"));
    return MU_MAX(1, MU_MIN(steps, MU_MOST_LOOPED_STEPS));
}

mu_status mu__compile_from(mu_model *model, const json_t *config, const char *function)
{
    reader r = {.model = model, .function = function, .n_outputs = output_count(model)};
    metrics_read plain = {.n = 0}, weighted = {.n = 0};
    const json_t *by = json_object_get(config, "optimizer");
    MU_TRY(read_losses(&r, config));
    MU_TRY(read_metrics(&r, json_object_get(config, "metrics"), &plain));
    MU_TRY(read_metrics(&r, json_object_get(config, "weighted_metrics"), &weighted));
    if (r.n_losses == 0)
        return MU_OK;
    mu_optimizer *optimizer = json_is_string(by)               ? mu__optimizer_named(json_string_value(by), function)
                              : json_is_null(by) || by == NULL ? NULL
                                                               : mu__optimizer_of(by, function);
    MU_TRY(mu_error_code());
    r.losses[r.n_losses] = MU_END;
    mu_items *losses = mu_items_of(r.losses), *metrics = items_of(&plain), *weighing = items_of(&weighted);
    MU_TRY(mu_error_code());
    mu_scope_guard scope = mu_scope_open(model->strategy);
    const mu_status status =
        mu_compile(model, .optimizer = optimizer, .loss = losses, .metrics = metrics, .loss_weights = r.weights,
                   .n_loss_weights = r.n_losses, .metric_outputs = plain.outputs, .n_metric_outputs = plain.n,
                   .weighted_metrics = weighing, .weighted_metric_outputs = weighted.outputs,
                   .n_weighted_metric_outputs = weighted.n, .steps_per_execution = steps_of(config),
                   .run_eagerly = json_is_true(json_object_get(config, "run_eagerly")));
    mu_scope_close(&scope);
    return status;
}
