// Metrics that layers update in their calls, logged by the models that the layers are part of.
//
// A layer may make its metrics when it is built, in the first step, so a model looks for them then, too.
#include "model/metrics/metric.h"
#include "model/training/pass.h"
#include "model/training/training.h"

mu_status mu_layer_add_metric(mu_layer *layer, mu_metric *metric)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(layer, "mu_layer_add_metric: the layer"));
    MU_TRY(mu__need(metric, "mu_layer_add_metric: the metric"));
    MU_TRY(MU_PUSH(&layer->metrics, metric));
    mu_retain(metric);
    return MU_OK;
}

static bool has(const mu_trainer *trainer, const mu_metric *metric)
{
    for (int i = 0; i < trainer->n_metrics; i++)
        if (trainer->metrics[i] == metric)
            return true;
    return false;
}

static mu_status append(mu_trainer *trainer, mu_metric *metric)
{
    const size_t n = (size_t)trainer->n_metrics + 1;
    mu_metric **metrics = mu__realloc(trainer->metrics, n * sizeof *metrics);
    trainer->metrics = metrics ? metrics : trainer->metrics;
    int *outputs = metrics ? mu__realloc(trainer->metric_outputs, n * sizeof *outputs) : NULL;
    trainer->metric_outputs = outputs ? outputs : trainer->metric_outputs;
    if (!outputs)
        return MU_RESOURCE_EXHAUSTED;
    trainer->metrics[trainer->n_metrics] = mu_retain(metric);
    trainer->metric_outputs[trainer->n_metrics++] = 0;
    return MU_OK;
}

static mu_status adopt(mu_model *model, const mu_layer *layer)
{
    for (size_t i = 0; i < layer->metrics.n; i++)
        if (!has(model->trainer, layer->metrics.items[i]))
            MU_TRY(append(model->trainer, layer->metrics.items[i]));
    for (size_t i = 0; i < layer->sublayers.n; i++)
        MU_TRY(adopt(model, layer->sublayers.items[i]));
    return MU_OK;
}

mu_status mu__adopt_metrics(mu_model *model)
{
    const int before = model->trainer->n_metrics;
    MU_TRY(adopt(model, model));
    return before == model->trainer->n_metrics ? MU_OK : mu__check_labels(model->trainer);
}
