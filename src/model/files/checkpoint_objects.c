// The objects of a checkpoint: models, optimizers, variables and their like, and the names under which their variables
// are saved.
//
// An object that was given by name has it before the names of its variables, so that two models with the same layers
// fit into one file. A variable of several objects is saved once, with the first.
#include "model/files/checkpoint.h"
#include "model/metrics/metric.h"
#include "model/models/model.h"
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"

static void part_free(mu_checkpoint_part *part)
{
    mu_release(part->model);
    mu_release(part->optimizer);
    mu_release(part->variables);
    mu_release(part->iterator);
    mu_release(part->metric);
    mu__free(part->name);
}

static void checkpoint_destroy(void *object)
{
    mu_checkpoint *checkpoint = object;
    for (size_t i = 0; i < checkpoint->parts.n; i++)
        part_free(&checkpoint->parts.items[i]);
    mu__free(checkpoint->parts.items);
    for (int i = 0; i < checkpoint->n_tables; i++)
        mu_release(checkpoint->tables[i]);
    mu__free(checkpoint->tables);
}

static mu_type checkpoint_type = {.name = "checkpoint", .destroy = checkpoint_destroy};

// ---- Making -------------------------------------------------------------------------------------

static mu_status check_variables(const mu_value *value)
{
    if (value && value->leaf)
        return mu__is(value->leaf, &mu__variable_type)
                   ? MU_OK
                   : mu__error(MU_INVALID_ARGUMENT,
                               "mu_checkpoint_new: .variables holds something else than variables; a checkpoint keeps "
                               "only what can be assigned when it is restored");
    for (int i = 0; value && i < value->n; i++)
        MU_TRY(check_variables(value->items[i]));
    return MU_OK;
}

static mu_status keep_tables(mu_checkpoint *checkpoint, mu_embedding_table *const *tables)
{
    int n = 0;
    while (tables && tables[n] != MU_END)
        if (!tables[n++])
            return mu__error(MU_INVALID_ARGUMENT, "mu_checkpoint_new: embedding table %d is NULL", n - 1);
    checkpoint->tables = mu__calloc((size_t)n + 1, sizeof *checkpoint->tables);
    for (; checkpoint->tables && checkpoint->n_tables < n; checkpoint->n_tables++)
        checkpoint->tables[checkpoint->n_tables] = mu_retain(tables[checkpoint->n_tables]);
    return checkpoint->tables ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// Keeps a part, whose objects the checkpoint retains.
static mu_status keep_part(mu_checkpoint *checkpoint, const char *name, mu_checkpoint_part part)
{
    part.name = mu__strdup(name);
    if (!part.name || MU_PUSH(&checkpoint->parts, part) != MU_OK) {
        mu__free(part.name);
        return mu_error_code();
    }
    mu_retain(part.model);
    mu_retain(part.optimizer);
    mu_retain(part.variables);
    mu_retain(part.iterator);
    mu_retain(part.metric);
    return MU_OK;
}

static mu_status keep_object(mu_checkpoint *checkpoint, const char *name, void *object)
{
    mu_checkpoint_part part = {0};
    if (mu__is(object, &mu__layer_type))
        MU_TRY(mu__need_model(part.model = object, "mu_checkpoint_new"));
    else if (mu__is(object, &mu__optimizer_type))
        part.optimizer = object;
    else if (mu__is(object, &mu__metric_type))
        part.metric = object;
    else if (mu__is(object, &mu__iterator_type))
        part.iterator = object;
    else if (mu__is(object, &mu__value_type))
        MU_TRY(check_variables(part.variables = object));
    else
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_checkpoint_new: '%s' is %s%s; a checkpoint keeps models, optimizers, metrics, iterators, "
                         "and variables in a value (mu_variables)",
                         name,
                         !object                 ? "NULL"
                         : mu__is_object(object) ? "of type "
                                                 : "a name",
                         object && mu__is_object(object) ? ((const mu_object *)object)->type->name : "");
    return keep_part(checkpoint, name, part);
}

static mu_status keep_objects(mu_checkpoint *checkpoint, const mu_items *objects)
{
    if (objects && !objects->names)
        return mu__error(MU_INVALID_ARGUMENT, "mu_checkpoint_new: .objects have no names; give them as in "
                                              "MU_BY_NAME(\"generator\", model, \"noise\", variables)");
    for (int i = 0; objects && i < objects->n; i++) {
        if (!objects->names[i][0] || strchr(objects->names[i], '/'))
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_checkpoint_new: an object has the name '%s'; it must not be empty or have a '/'",
                             objects->names[i]);
        MU_TRY(keep_object(checkpoint, objects->names[i], objects->items[i]));
    }
    return MU_OK;
}

static mu_status keep_all(mu_checkpoint *checkpoint, const mu_checkpoint_args *args)
{
    const mu_checkpoint_part part = {
        .model = args->model, .optimizer = args->optimizer, .variables = args->variables, .iterator = args->iterator};
    MU_TRY(keep_part(checkpoint, "", part));
    MU_TRY(keep_objects(checkpoint, args->objects));
    MU_TRY(keep_tables(checkpoint, args->embedding_tables));
    return mu__checkpoint_check_names(checkpoint);
}

mu_checkpoint *mu_checkpoint_new_with(const mu_checkpoint_args *given)
{
    mu_checkpoint_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_checkpoint_new") != MU_OK ||
        check_variables(args.variables) != MU_OK)
        return NULL;
    if (!args.model && !args.optimizer && !args.variables && !args.iterator && !args.embedding_tables &&
        !args.objects) {
        mu__error(MU_INVALID_ARGUMENT, "mu_checkpoint_new: nothing to save is given; give .model, .optimizer, "
                                       ".variables, .iterator, .embedding_tables or .objects");
        return NULL;
    }
    if (args.model && mu__need_model(args.model, "mu_checkpoint_new") != MU_OK)
        return NULL;
    mu_checkpoint *checkpoint = mu__give(mu__new(&checkpoint_type, sizeof *checkpoint));
    return checkpoint && keep_all(checkpoint, &args) == MU_OK ? checkpoint : NULL;
}

void mu__checkpoint_count(mu_checkpoint *checkpoint, int64_t *counter) { checkpoint->counter = counter; }

// ---- What there is to save ----------------------------------------------------------------------

static mu_optimizer *optimizer_of(const mu_checkpoint_part *part)
{
    const mu_trainer *trainer = part->model ? part->model->trainer : NULL;
    return part->optimizer ? part->optimizer : trainer ? trainer->optimizer : NULL;
}

void mu__entries_free(mu_entries *all)
{
    for (size_t i = 0; i < all->n; i++)
        mu__free(all->items[i].name);
    mu__free(all->items);
    *all = (mu_entries){0};
}

static mu_status same_name(const mu_entries *all, size_t i, const mu_variable *variable)
{
    return mu__are_parts_of_one(all->items[i].variable, variable)
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "two variables of the checkpoint are named '%s', under which a file holds one. Give one of "
                           "them another name when it is made, or give the objects names in .objects",
                           all->items[i].name);
}

static mu_status add(mu_entries *all, const mu_checkpoint_part *part, mu_variable *variable)
{
    if (!variable)
        return MU_OK;
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i].variable == variable)
            return MU_OK;
    mu_entry entry = {variable, mu__sprintf("%s%s%s", part->name, *part->name ? "/" : "", mu__saved_name(variable))};
    mu_status status = entry.name ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < all->n; i++)
        if (strcmp(all->items[i].name, entry.name) == 0)
            status = same_name(all, i, variable);
    if (status == MU_OK)
        status = MU_PUSH(all, entry);
    if (status != MU_OK)
        mu__free(entry.name);
    return status;
}

static mu_status add_layers(mu_entries *all, const mu_checkpoint_part *part, mu_weight_choice choice)
{
    mu_variable_list list = {0};
    mu_status status = mu__layer_collect(part->model, choice, &list);
    for (size_t i = 0; i < list.n && status == MU_OK; i++)
        status = add(all, part, list.items[i]);
    mu__free(list.items);
    return status;
}

static mu_status add_metric(mu_entries *all, const mu_checkpoint_part *part, const mu_metric *metric)
{
    for (size_t k = 0; metric && k < metric->states.n; k++)
        MU_TRY(add(all, part, metric->states.items[k]));
    return MU_OK;
}

static mu_status add_model(mu_entries *all, const mu_checkpoint_part *part)
{
    MU_TRY(add_layers(all, part, MU_WEIGHTS_AND_SEEDS));
    for (int i = 0; i < part->model->trainer->n_metrics; i++)
        MU_TRY(add_metric(all, part, part->model->trainer->metrics[i]));
    return MU_OK;
}

static mu_status add_optimizer(mu_entries *all, const mu_checkpoint_part *part, const mu_optimizer *optimizer)
{
    for (int i = 0; i < optimizer->n_scalars; i++)
        MU_TRY(add(all, part, optimizer->scalars[i]));
    if (optimizer->inner)
        return add_optimizer(all, part, optimizer->inner);
    MU_TRY(add(all, part, optimizer->iterations));
    MU_TRY(add(all, part, optimizer->learning_rate));
    for (size_t i = 0; i < optimizer->slots.n; i++)
        MU_TRY(add(all, part, optimizer->slots.items[i]));
    return MU_OK;
}

static mu_status add_variables(mu_entries *all, const mu_checkpoint_part *part, const mu_value *value)
{
    if (value->leaf)
        return add(all, part, (mu_variable *)value->leaf);
    for (int i = 0; i < value->n; i++)
        MU_TRY(add_variables(all, part, value->items[i]));
    return MU_OK;
}

static mu_status collect_part(const mu_checkpoint_part *part, mu_entries *all)
{
    const mu_optimizer *optimizer = optimizer_of(part);
    if (part->model)
        MU_TRY(add_model(all, part));
    if (optimizer)
        MU_TRY(add_optimizer(all, part, optimizer));
    MU_TRY(add_metric(all, part, part->metric));
    return part->variables ? add_variables(all, part, part->variables) : MU_OK;
}

mu_status mu__checkpoint_collect(const mu_checkpoint *checkpoint, mu_entries *all)
{
    for (size_t i = 0; i < checkpoint->parts.n; i++)
        MU_TRY(collect_part(&checkpoint->parts.items[i], all));
    return MU_OK;
}

// ---- Names that are not taken yet ---------------------------------------------------------------

// Whether a name consists of these parts joined by "/"; the last may be NULL.
static bool is_joined(const char *name, const char *a, const char *b, const char *c)
{
    const char *const parts[] = {a, b, c};
    for (int i = 0; i < 3 && parts[i]; i++) {
        const size_t n = strlen(parts[i]);
        if ((i > 0 && *name++ != '/') || strncmp(name, parts[i], n) != 0)
            return false;
        name += n;
    }
    return *name == '\0';
}

static bool optimizer_will_make(const mu_optimizer *optimizer, const mu_entries *all, const char *name)
{
    const char *own = mu__optimizer_name(optimizer);
    bool found = !optimizer->inner && ((!optimizer->iterations && is_joined(name, own, "iterations", NULL)) ||
                                       (!optimizer->learning_rate && is_joined(name, own, "learning_rate", NULL)));
    for (int i = 0; i < optimizer->n_scalars; i++)
        found |= !optimizer->scalars[i] && is_joined(name, own, optimizer->scalar_kinds[i].name, NULL);
    for (size_t i = 0; i < all->n; i++)
        for (int s = 0; s < optimizer->n_slots && optimizer->slots.n == 0; s++)
            found |= is_joined(name, own, mu_variable_name(all->items[i].variable), optimizer->slot_kinds[s].name);
    return found;
}

// Whether metrics or optimizer will make a variable of this name in the first step, or before the first save.
static bool will_be_made(const mu_checkpoint_part *part, const mu_entries *all, const char *name)
{
    const mu_optimizer *optimizer = optimizer_of(part);
    bool found = false;
    for (int i = 0; part->model && i < part->model->trainer->n_metrics; i++) {
        const mu_metric *metric = part->model->trainer->metrics[i];
        for (int k = (int)metric->states.n; k < mu__metric_state_count(metric); k++)
            found |= is_joined(name, mu__metric_label(metric), mu__metric_state_name(metric, k), NULL);
    }
    if (!optimizer)
        return found;
    return found || optimizer_will_make(optimizer, all, name) ||
           (optimizer->inner && optimizer_will_make(optimizer->inner, all, name));
}

static mu_status check_part(const mu_checkpoint_part *part)
{
    mu_entries all = {0};
    mu_status status = collect_part(part, &all);
    for (size_t i = 0; status == MU_OK && i < all.n; i++) {
        const char *name = mu_variable_name(all.items[i].variable);
        if (will_be_made(part, &all, name))
            status = mu__error(MU_INVALID_ARGUMENT,
                               "mu_checkpoint_new: the variable '%s' has the name that the optimizer or a metric gives "
                               "to its own state. Give the variable another name when it is made",
                               name);
    }
    mu__entries_free(&all);
    return status;
}

// Reports duplicate names when the checkpoint is made, not when hours of training are to be saved. Variables of layers
// that are not built are not known yet.
mu_status mu__checkpoint_check_names(const mu_checkpoint *checkpoint)
{
    mu_entries all = {0};
    mu_status status = mu__checkpoint_collect(checkpoint, &all);
    mu__entries_free(&all);
    for (size_t i = 0; status == MU_OK && i < checkpoint->parts.n; i++)
        status = check_part(&checkpoint->parts.items[i]);
    return status;
}

// ---- State that the first step would make -------------------------------------------------------

static mu_status list_trainable(const mu_checkpoint_part *part, mu_variable_list *out)
{
    mu_entries all = {0};
    mu_status status = MU_OK;
    if (part->model)
        status = add_layers(&all, part, MU_WEIGHTS_ALL);
    if (status == MU_OK && part->variables)
        status = add_variables(&all, part, part->variables);
    for (size_t i = 0; status == MU_OK && i < all.n; i++)
        if (mu_variable_is_trainable(all.items[i].variable))
            status = MU_PUSH(out, all.items[i].variable);
    mu__entries_free(&all);
    return status;
}

// A metric whose states are as wide as the predictions would not know how wide before its first batch, and what the
// file has of it would be left out.
static mu_status learn_columns(const mu_checkpoint_part *part, mu_metric *metric, const mu_tensor_file *file)
{
    if (!metric->ops->by_column)
        return MU_OK;
    char *name = mu__sprintf("%s%s%s/%s", part->name, *part->name ? "/" : "", mu__metric_label(metric),
                             mu__metric_state_name(metric, 0));
    if (!name)
        return MU_RESOURCE_EXHAUSTED;
    const int i = mu_tensor_file_find(file, name);
    if (i >= 0) {
        const mu_shape shape = mu_tensor_file_shape(file, i);
        mu__metric_learn_columns(metric, &shape);
    }
    mu__free(name);
    return MU_OK;
}

mu_status mu__checkpoint_find_columns(const mu_checkpoint_part *part, const mu_tensor_file *file)
{
    for (int i = 0; part->model && i < part->model->trainer->n_metrics; i++)
        MU_TRY(learn_columns(part, part->model->trainer->metrics[i], file));
    return part->metric ? learn_columns(part, part->metric, file) : MU_OK;
}

static mu_status build_part(const mu_checkpoint_part *part)
{
    const mu_model *model = part->model;
    mu_optimizer *optimizer = optimizer_of(part);
    mu_variable_list variables = {0};
    if (!model && !optimizer && !part->metric)
        return MU_OK;
    mu_scope_change change;
    mu_scope_guard scope = {0};
    if (model || optimizer)
        scope = mu__scope_open_apart(&change, model ? model->strategy : optimizer->strategy);
    mu_status status = mu__pending() ? mu_error_code() : MU_OK;
    for (int i = 0; model && status == MU_OK && i < model->trainer->n_metrics; i++)
        status = mu__metric_build(model->trainer->metrics[i]);
    if (status == MU_OK && part->metric)
        status = mu__metric_build(part->metric);
    if (status == MU_OK && optimizer)
        status = list_trainable(part, &variables);
    if (status == MU_OK && optimizer)
        status = mu__optimizer_build(optimizer, (int)variables.n, variables.items);
    mu__free(variables.items);
    if (model || optimizer)
        mu__scope_close_apart(&change, &scope);
    return status;
}

mu_status mu__checkpoint_build(const mu_checkpoint *checkpoint)
{
    mu_status status = MU_OK;
    for (size_t i = 0; status == MU_OK && i < checkpoint->parts.n; i++)
        status = build_part(&checkpoint->parts.items[i]);
    return status;
}
