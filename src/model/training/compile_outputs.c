// What compile is given for each output of a model: losses with their weights, and metrics, in order or by name.
//
// A functional model knows its outputs. Of another model they are known by the names under which the losses are given,
// or only by their number.
#include "model/core/names.h"
#include "model/models/functional.h"
#include "model/training/arguments.h"

static mu_status know_outputs(const mu_model *model, mu_name_list *names)
{
    if (model->ops != &mu__functional_ops)
        return MU_OK;
    const mu_name_list *own = &((const mu_functional *)model->state)->output_names;
    return mu__name_list_copy(names, own->n, own->items);
}

static const mu_items *items_in(const void *given) { return mu__is(given, &mu__items_type) ? given : NULL; }

// The output of a name in a list by name. Errors: INVALID_ARGUMENT naming those that the model has.
static mu_status output_named(const mu_for_outputs *all, const char *what, const char *name, int *out)
{
    char known[MU_NAME_LIST_TEXT];
    *out = mu__name_list_find(&all->names, name);
    if (*out >= 0)
        return MU_OK;
    mu__name_list_text(&all->names, known);
    return mu__error(
        MU_INVALID_ARGUMENT, "mu_compile: %s are given for '%s', but the model has no such output; %s%s", what, name,
        all->names.n > 0 ? "its outputs are " : "give the losses by name too, which says what its outputs are", known);
}

// ---- Losses -------------------------------------------------------------------------------------

static mu_status allocate(mu_for_outputs *out, size_t n)
{
    out->n_losses = (int)n;
    out->losses = mu__calloc(n + 1, sizeof *out->losses);
    out->weights = mu__calloc(n + 1, sizeof *out->weights);
    return out->losses && out->weights ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// Weights are in the order in which the losses are given.
static mu_status set_loss(mu_for_outputs *out, int output, const void *given, const double *weights, int k)
{
    out->losses[output] = mu__loss_argument(given, "mu_compile");
    out->weights[output] = weights ? weights[k] : 1;
    return mu_error_code();
}

static mu_status check_weights(const mu_compile_args *args, int n)
{
    return mu__args_length("mu_compile", "loss_weights", args->loss_weights, args->n_loss_weights, n, "loss");
}

static mu_status losses_by_name(const mu_compile_args *args, const mu_items *items, mu_for_outputs *out)
{
    char known[MU_NAME_LIST_TEXT];
    MU_TRY(check_weights(args, items->n));
    if (out->names.n == 0)
        MU_TRY(mu__name_list_copy(&out->names, (size_t)items->n, items->names));
    MU_TRY(allocate(out, out->names.n));
    for (int k = 0, output; k < items->n; k++) {
        MU_TRY(output_named(out, "losses", items->names[k], &output));
        MU_TRY(set_loss(out, output, items->items[k], args->loss_weights, k));
    }
    if ((size_t)items->n == out->names.n)
        return MU_OK;
    mu__name_list_text(&out->names, known);
    return mu__error(
        MU_INVALID_ARGUMENT,
        "mu_compile: losses are given for %d of the outputs %s; give each one, NULL where there is no loss", items->n,
        known);
}

static mu_status losses_in_order(const mu_compile_args *args, const mu_items *items, mu_for_outputs *out)
{
    char known[MU_NAME_LIST_TEXT];
    MU_TRY(check_weights(args, items->n));
    MU_TRY(allocate(out, (size_t)items->n));
    for (int k = 0; k < items->n; k++)
        MU_TRY(set_loss(out, k, items->items[k], args->loss_weights, k));
    if (out->names.n == 0 || out->names.n == (size_t)items->n)
        return MU_OK;
    mu__name_list_text(&out->names, known);
    return mu__error(
        MU_INVALID_ARGUMENT,
        "mu_compile: %d losses for a model with the outputs %s; give one for each, or a single one for all", items->n,
        known);
}

static mu_status take_losses(const mu_compile_args *args, mu_for_outputs *out)
{
    const mu_items *items = items_in(args->loss);
    if (items)
        return items->names ? losses_by_name(args, items, out) : losses_in_order(args, items, out);
    if (!args->loss)
        return check_weights(args, 0);
    const int n = (int)MU_MAX(out->names.n, 1);
    const bool one = args->n_loss_weights == 1;
    MU_TRY(check_weights(args, one ? 1 : n));
    MU_TRY(allocate(out, (size_t)n));
    for (int k = 0; k < n; k++)
        MU_TRY(set_loss(out, k, args->loss, args->loss_weights, one ? 0 : k));
    return MU_OK;
}

// ---- Metrics ------------------------------------------------------------------------------------

typedef struct metric_list {
    struct mu_output_metric *items;
    size_t n, capacity;
} metric_list;

static mu_status add_metric(metric_list *list, const void *given, int output)
{
    if (!given)
        return mu__error(MU_INVALID_ARGUMENT, "mu_compile: metric %zu is NULL; leave it out, or give an object",
                         list->n);
    const struct mu_output_metric item = {mu__metric_argument(given, "mu_compile"), output};
    return item.metric ? MU_PUSH(list, item) : mu_error_code();
}

// One metric, several, or none, all of one output.
static mu_status add_metrics(metric_list *list, const void *given, int output)
{
    const mu_items *items = items_in(given);
    if (!items)
        return given ? add_metric(list, given, output) : MU_OK;
    for (int i = 0; i < items->n; i++)
        MU_TRY(add_metric(list, items->items[i], output));
    return MU_OK;
}

static mu_status refuse_number(const mu_for_outputs *all, const char *what, int n)
{
    char known[MU_NAME_LIST_TEXT];
    mu__name_list_text(&all->names, known);
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_compile: %d %s for a model with the outputs %s; give what each output has, in order or as in "
                     "MU_BY_NAME(\"%s\", \"mae\")",
                     n, what, known, all->names.items[0]);
}

static bool has_lists(const mu_items *items)
{
    for (int i = 0; i < items->n; i++)
        if (items_in(items->items[i]))
            return true;
    return false;
}

// Metrics by the outputs' names.
static mu_status take_named(mu_for_outputs *all, metric_list *list, const mu_items *items, const char *what)
{
    for (int k = 0, output; k < items->n; k++) {
        MU_TRY(output_named(all, what, items->names[k], &output));
        MU_TRY(add_metrics(list, items->items[k], output));
    }
    return MU_OK;
}

// One of the arguments that give metrics.
typedef struct metrics_given {
    const char *what;   // "weighted metrics"
    const char *option; // the option with `outputs`
    const void *metrics;
    const int *outputs; // [n_outputs]; NULL: not given
    int n_outputs;
} metrics_given;

static mu_status check_outputs(const metrics_given *from, int n, bool known)
{
    if (known && from->outputs)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_compile: .%s is given, but the %s are given by name or in a list for each output, which "
                         "says what they compare; leave .%s out",
                         from->option, from->what, from->option);
    return mu__args_length("mu_compile", from->option, from->outputs, from->n_outputs, n, "metric");
}

// What one of the arguments gives: by name, a list or one for each output, or all for the only output.
static mu_status take_metrics(mu_for_outputs *all, metric_list *list, const metrics_given *from)
{
    const mu_items *items = items_in(from->metrics);
    const int n = items ? items->n : from->metrics ? 1 : 0, n_outputs = (int)all->names.n;
    const bool names = items && items->names, lists = items && has_lists(items);
    MU_TRY(check_outputs(from, n, names || lists));
    if (names)
        return take_named(all, list, items, from->what);
    const bool each = lists || (n_outputs > 1 && !from->outputs);
    if (n_outputs > 1 && n > 0 && each && n != n_outputs)
        return refuse_number(all, from->what, n);
    for (int k = 0; k < n; k++) {
        const int output = each ? k : from->outputs ? from->outputs[k] : 0;
        if (output < 0 || (n_outputs > 0 && output >= n_outputs))
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_compile: metric %d compares output %d of a model that has %d; outputs count from 0", k,
                             output, n_outputs);
        const void *item = items ? items->items[k] : from->metrics;
        MU_TRY(each ? add_metrics(list, item, output) : add_metric(list, item, output));
    }
    return MU_OK;
}

// ---- Both ---------------------------------------------------------------------------------------

mu_status mu__for_outputs(const mu_compile_args *args, mu_for_outputs *out)
{
    const metrics_given plain = {"metrics", "metric_outputs", args->metrics, args->metric_outputs,
                                 args->n_metric_outputs};
    const metrics_given weighted = {"weighted metrics", "weighted_metric_outputs", args->weighted_metrics,
                                    args->weighted_metric_outputs, args->n_weighted_metric_outputs};
    metric_list list = {0};
    mu_status status = know_outputs(args->model, &out->names);
    status = status == MU_OK ? take_losses(args, out) : status;
    status = status == MU_OK ? take_metrics(out, &list, &plain) : status;
    out->first_weighted = list.n;
    if (status == MU_OK)
        status = take_metrics(out, &list, &weighted);
    out->metrics = list.items;
    out->n_metrics = list.n;
    return status;
}

void mu__for_outputs_free(mu_for_outputs *out)
{
    mu__name_list_free(&out->names);
    mu__free(out->losses);
    mu__free(out->weights);
    mu__free(out->metrics);
    *out = (mu_for_outputs){0};
}
