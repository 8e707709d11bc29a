// Saves the state of a run as named tensors in one safetensors file, and restores it.
//
// Variables are saved under their names with their values outside of replicas, so a file fits any strategy, and
// mu_load_weights can read it. State that is not a tensor (the position in the data, the input shape that an unbuilt
// model needs) is metadata. A restore first checks everything, then changes everything.
#include "model/checkpoint.h"

#include "base/temporary.h"

#include <errno.h>
#include <stdlib.h>

// The variables of a checkpoint: borrowed, each once, in a fixed order.
typedef struct entries {
    mu_variable **items;
    size_t n, capacity;
} entries;

struct mu_checkpoint {
    mu_object object;
    mu_model *model;          // these four are retained; NULL: not included
    mu_optimizer *optimizer;
    mu_value *variables;
    mu_iterator *iterator;
    int64_t *counter;         // of a preemption handler; NULL: none
    mu_embedding_table **tables; // [n_tables] retained
    int n_tables;
};

static const char *const iterator_key = "muster.iterator";
static const char *const input_key = "muster.input_shape";
static const char *const counter_key = "muster.run_calls";
static const char *const format_key = "muster.checkpoint";

static void checkpoint_destroy(void *object)
{
    mu_checkpoint *checkpoint = object;
    mu_release(checkpoint->model);
    mu_release(checkpoint->optimizer);
    mu_release(checkpoint->variables);
    mu_release(checkpoint->iterator);
    for (int i = 0; i < checkpoint->n_tables; i++)
        mu_release(checkpoint->tables[i]);
    mu__free(checkpoint->tables);
}

static mu_type checkpoint_type = {.name = "checkpoint", .destroy = checkpoint_destroy};

static mu_status check_variables(const mu_value *value)
{
    if (value && value->leaf)
        return mu__is(value->leaf, &mu__variable_type)
                   ? MU_OK
                   : mu__error(MU_INVALID_ARGUMENT,
                               "mu_checkpoint_new: .variables holds something else than variables; a checkpoint "
                               "keeps only what can be assigned when it is restored");
    for (int i = 0; value && i < value->n; i++)
        MU_TRY(check_variables(value->items[i]));
    return MU_OK;
}

static mu_status check_names(const mu_checkpoint *checkpoint);

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

mu_checkpoint *mu_checkpoint_new_with(const mu_checkpoint_args *given)
{
    mu_checkpoint_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_checkpoint_new") != MU_OK ||
        check_variables(args.variables) != MU_OK)
        return NULL;
    if (!args.model && !args.optimizer && !args.variables && !args.iterator && !args.embedding_tables) {
        mu__error(MU_INVALID_ARGUMENT, "mu_checkpoint_new: nothing to save is given; give .model, .optimizer, "
                  ".variables, .iterator or .embedding_tables");
        return NULL;
    }
    if (args.model && mu__need_model(args.model, "mu_checkpoint_new") != MU_OK)
        return NULL;
    mu_checkpoint *checkpoint = mu__new(&checkpoint_type, sizeof *checkpoint);
    if (!checkpoint)
        return NULL;
    checkpoint->model = mu_retain(args.model);
    checkpoint->optimizer = mu_retain(args.optimizer);
    checkpoint->variables = mu_retain(args.variables);
    checkpoint->iterator = mu_retain(args.iterator);
    checkpoint = mu__give(checkpoint);
    const bool whole = checkpoint && keep_tables(checkpoint, args.embedding_tables) == MU_OK &&
                       check_names(checkpoint) == MU_OK;
    return whole ? checkpoint : NULL;
}

void mu__checkpoint_count(mu_checkpoint *checkpoint, int64_t *counter) { checkpoint->counter = counter; }

// ---- What there is to save ----------------------------------------------------------------------

static mu_optimizer *optimizer_of(const mu_checkpoint *checkpoint)
{
    const mu_trainer *trainer = checkpoint->model ? checkpoint->model->trainer : NULL;
    return checkpoint->optimizer ? checkpoint->optimizer : trainer ? trainer->optimizer : NULL;
}

static mu_status add(entries *all, mu_variable *variable)
{
    if (!variable)
        return MU_OK;
    const char *name = mu__saved_name(variable);
    for (size_t i = 0; i < all->n; i++)
        if (strcmp(mu__saved_name(all->items[i]), name) == 0 && !mu__are_parts_of_one(all->items[i], variable))
            return all->items[i] == variable
                       ? MU_OK
                       : mu__error(MU_INVALID_ARGUMENT,
                                   "two variables of the checkpoint are named '%s', under which a file holds one. Give "
                                   "one of them another name when it is made",
                                   name);
    return MU_PUSH(all, variable);
}

static mu_status add_layers(entries *all, const mu_model *model, mu_weight_choice choice)
{
    mu_variable_list list = {0};
    mu_status status = mu__layer_collect(model, choice, &list);
    for (size_t i = 0; i < list.n && status == MU_OK; i++)
        status = add(all, list.items[i]);
    mu__free(list.items);
    return status;
}

static mu_status add_model(entries *all, const mu_model *model)
{
    MU_TRY(add_layers(all, model, MU_WEIGHTS_AND_SEEDS));
    for (int i = 0; i < model->trainer->n_metrics; i++) {
        const mu_metric *metric = model->trainer->metrics[i];
        for (size_t k = 0; k < metric->states.n; k++)
            MU_TRY(add(all, metric->states.items[k]));
    }
    return MU_OK;
}

static mu_status add_optimizer(entries *all, const mu_optimizer *optimizer)
{
    for (int i = 0; i < optimizer->n_scalars; i++)
        MU_TRY(add(all, optimizer->scalars[i]));
    if (optimizer->inner)
        return add_optimizer(all, optimizer->inner);
    MU_TRY(add(all, optimizer->iterations));
    MU_TRY(add(all, optimizer->learning_rate));
    for (size_t i = 0; i < optimizer->slots.n; i++)
        MU_TRY(add(all, optimizer->slots.items[i]));
    return MU_OK;
}

static mu_status add_variables(entries *all, const mu_value *value)
{
    if (value->leaf)
        return add(all, (mu_variable *)value->leaf);
    for (int i = 0; i < value->n; i++)
        MU_TRY(add_variables(all, value->items[i]));
    return MU_OK;
}

static mu_status collect(const mu_checkpoint *checkpoint, entries *all)
{
    const mu_optimizer *optimizer = optimizer_of(checkpoint);
    if (checkpoint->model)
        MU_TRY(add_model(all, checkpoint->model));
    if (optimizer)
        MU_TRY(add_optimizer(all, optimizer));
    return checkpoint->variables ? add_variables(all, checkpoint->variables) : MU_OK;
}

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

static bool optimizer_will_make(const mu_optimizer *optimizer, const entries *all, const char *name)
{
    const char *own = mu__optimizer_name(optimizer);
    bool found = !optimizer->inner && ((!optimizer->iterations && is_joined(name, own, "iterations", NULL)) ||
                                       (!optimizer->learning_rate && is_joined(name, own, "learning_rate", NULL)));
    for (int i = 0; i < optimizer->n_scalars; i++)
        found |= !optimizer->scalars[i] && is_joined(name, own, optimizer->scalar_kinds[i].name, NULL);
    for (size_t i = 0; i < all->n; i++)
        for (int s = 0; s < optimizer->n_slots && optimizer->slots.n == 0; s++)
            found |= is_joined(name, own, mu_variable_name(all->items[i]), optimizer->slot_kinds[s].name);
    return found;
}

// Whether metrics or optimizer will make a variable of this name in the first step, or before the first save.
static bool will_be_made(const mu_checkpoint *checkpoint, const entries *all, const char *name)
{
    const mu_optimizer *optimizer = optimizer_of(checkpoint);
    bool found = false;
    for (int i = 0; checkpoint->model && i < checkpoint->model->trainer->n_metrics; i++) {
        const mu_metric *metric = checkpoint->model->trainer->metrics[i];
        for (int k = (int)metric->states.n; k < mu__metric_state_count(metric); k++)
            found |= is_joined(name, metric->name, mu__metric_state_name(metric, k), NULL);
    }
    if (!optimizer)
        return found;
    return found || optimizer_will_make(optimizer, all, name) ||
           (optimizer->inner && optimizer_will_make(optimizer->inner, all, name));
}

// Reports duplicate names when the checkpoint is made, not when hours of training are to be saved. Variables of layers
// that are not built are not known yet.
static mu_status check_names(const mu_checkpoint *checkpoint)
{
    entries all = {0};
    mu_status status = collect(checkpoint, &all);
    for (size_t i = 0; status == MU_OK && i < all.n; i++) {
        const char *name = mu_variable_name(all.items[i]);
        if (will_be_made(checkpoint, &all, name))
            status = mu__error(MU_INVALID_ARGUMENT,
                               "mu_checkpoint_new: the variable '%s' has the name that the optimizer or a metric "
                               "gives to "
                               "its own state. Give the variable another name when it is made",
                               name);
    }
    mu__free(all.items);
    return status;
}

static mu_status list_trainable(const mu_checkpoint *checkpoint, entries *out)
{
    entries all = {0};
    mu_status status = MU_OK;
    if (checkpoint->model)
        status = add_layers(&all, checkpoint->model, MU_WEIGHTS_ALL);
    if (status == MU_OK && checkpoint->variables)
        status = add_variables(&all, checkpoint->variables);
    for (size_t i = 0; status == MU_OK && i < all.n; i++)
        if (mu_variable_is_trainable(all.items[i]))
            status = MU_PUSH(out, all.items[i]);
    mu__free(all.items);
    return status;
}

// Makes the state of metrics and optimizer that the first step would make, as far as weights exist. So any file can be
// restored, also before the first step.
static mu_status build_state(const mu_checkpoint *checkpoint)
{
    const mu_model *model = checkpoint->model;
    mu_optimizer *optimizer = optimizer_of(checkpoint);
    entries variables = {0};
    if (!model && !optimizer)
        return MU_OK;
    mu_scope_guard scope = mu_scope_open(model ? model->strategy : optimizer->strategy);
    mu_status status = mu__pending() ? mu_error_code() : MU_OK;
    for (int i = 0; model && status == MU_OK && i < model->trainer->n_metrics; i++)
        status = mu__metric_build(model->trainer->metrics[i]);
    if (status == MU_OK && optimizer)
        status = list_trainable(checkpoint, &variables);
    if (status == MU_OK && optimizer)
        status = mu__optimizer_build(optimizer, (int)variables.n, variables.items);
    mu__free(variables.items);
    mu_scope_close(&scope);
    return status;
}

// ---- Saving -------------------------------------------------------------------------------------

enum { MAX_METADATA = 32 };

// The shape of one sample ("28,28,1"), from which a model without weights can be built.
static void input_shape_text(const mu_model *model, char text[MU_SHAPE_TEXT])
{
    const mu_shape *shape = &model->input;
    size_t used = 0;
    text[0] = '\0';
    for (int i = 1; i < shape->rank && used < MU_SHAPE_TEXT; i++)
        used +=
            (size_t)snprintf(text + used, MU_SHAPE_TEXT - used, "%s%lld", i > 1 ? "," : "", (long long)shape->dims[i]);
}

// Storage for the strings of a file's metadata.
typedef struct metadata_texts {
    char shape[MU_SHAPE_TEXT], counter[24];
    const char *all[MAX_METADATA];
} metadata_texts;

// Lists the file's metadata: ours, then the caller's.
static mu_status metadata_of(const mu_checkpoint *checkpoint, const char *const *more, metadata_texts *out)
{
    const char **all = out->all;
    int n = 0;
    all[n++] = format_key;
    all[n++] = "1";
    if (checkpoint->model && mu__layer_is_built(checkpoint->model)) {
        input_shape_text(checkpoint->model, out->shape);
        all[n++] = input_key;
        all[n++] = out->shape;
    }
    if (checkpoint->counter) {
        snprintf(out->counter, sizeof out->counter, "%lld", (long long)*checkpoint->counter);
        all[n++] = counter_key;
        all[n++] = out->counter;
    }
    if (checkpoint->iterator) {
        all[n++] = iterator_key;
        if (!(all[n++] = mu_iterator_state(checkpoint->iterator)))
            return mu_error_code();
    }
    for (int i = 0; more && more[i] && n < MAX_METADATA - 1; i++)
        all[n++] = more[i];
    all[n] = NULL;
    return MU_OK;
}

// The strategy whose workers save together; NULL: there is only one worker.
static mu_strategy *strategy_of(const entries *all)
{
    for (size_t i = 0; i < all->n; i++)
        if (all->items[i]->owner && mu_strategy_worker_count(all->items[i]->owner) > 1)
            return all->items[i]->owner;
    return NULL;
}

// All workers read the variables, the chief writes the file.
static mu_status write_entries(const mu_checkpoint *checkpoint, const entries *all, const char *path,
                               const char *const *metadata)
{
    mu_status status = MU_OK;
    int n = 0;
    mu_strategy *strategy = strategy_of(all);
    const size_t most = all->n + (size_t)checkpoint->n_tables * MU_TABLE_TENSORS + 1;
    const char **names = mu__calloc(most, sizeof *names);
    mu_tensor **tensors = mu__calloc(most, sizeof *tensors);
    if (!names || !tensors)
        MU_GO(MU_RESOURCE_EXHAUSTED);
    for (size_t i = 0; i < all->n; i++) {
        if (mu__saved_before(all->items, i))
            continue;
        names[n] = mu__saved_name(all->items[i]);
        if (!(tensors[n++] = mu__saved_value(all->items, all->n, i)))
            MU_GO(mu_error_code());
    }
    for (int i = 0; i < checkpoint->n_tables; i++)
        MU_GO(mu__table_tensors(checkpoint->tables[i], names, tensors, &n));
    mu__strategy_doing(strategy, "saving", -1);
    const mu_tensors saved = {.n = n, .names = names, .tensors = tensors, .metadata = metadata};
    if (mu_strategy_should_checkpoint(strategy))
        status = mu__tensors_save_as(&mu__safetensors_format, path, &saved);
    status = mu__workers_written(strategy, status);
out:
    mu__free(names);
    mu__free(tensors);
    return status;
}

static mu_status need_outside(const void *checkpoint, const char *path, const char *function)
{
    if (!checkpoint || !path)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", function, checkpoint ? "path" : "checkpoint");
    if (mu__context()->replica || mu__context()->trace)
        return mu__error(MU_FAILED_PRECONDITION,
                         "%s is called inside a function that runs on replicas or is traced; call it outside",
                         function);
    return MU_OK;
}

mu_status mu__checkpoint_write(mu_checkpoint *checkpoint, const char *path, const char *const *metadata)
{
    MU_TRY(need_outside(checkpoint, path, "mu_checkpoint_save"));
    mu_pool *pool = mu_pool_open();
    entries all = {0};
    metadata_texts texts;
    mu_status status = pool ? build_state(checkpoint) : mu_error_code();
    if (status == MU_OK)
        status = collect(checkpoint, &all);
    if (status == MU_OK)
        status = metadata_of(checkpoint, metadata, &texts);
    if (status == MU_OK)
        status = write_entries(checkpoint, &all, path, texts.all);
    mu__free(all.items);
    mu_pool_close(pool);
    return status;
}

mu_strategy *mu__checkpoint_strategy(const mu_checkpoint *checkpoint)
{
    entries all = {0};
    mu_strategy *strategy = NULL;
    if (collect(checkpoint, &all) == MU_OK)
        for (size_t i = 0; i < all.n && !strategy; i++)
            strategy = all.items[i]->owner;
    mu__free(all.items);
    return strategy ? strategy : checkpoint->model ? checkpoint->model->strategy : NULL;
}

bool mu__checkpoint_is_ours(const mu_checkpoint *checkpoint)
{
    entries all = {0};
    const bool ours = collect(checkpoint, &all) == MU_OK && mu_strategy_should_checkpoint(strategy_of(&all));
    mu__free(all.items);
    return ours;
}

mu_status mu_checkpoint_save(mu_checkpoint *checkpoint, const char *path)
{
    return mu__pending() ? mu_error_code() : mu__checkpoint_write(checkpoint, path, NULL);
}

// ---- Restoring ----------------------------------------------------------------------------------

static mu_status build_model(mu_model *model, const mu_tensor_file *file)
{
    const char *text = mu_tensor_file_metadata(file, input_key);
    int64_t dims[MU_MAX_RANK];
    int rank = 0;
    if (mu__layer_is_built(model) || !text)
        return MU_OK;
    for (char *end; *text && rank < MU_MAX_RANK - 1; text = *end == ',' ? end + 1 : end) {
        dims[rank] = strtoll(text, &end, 10);
        if (end == text || dims[rank] < 1 || (*end && *end != ','))
            return mu__error(MU_DATA_LOSS,
                             "the checkpoint '%s' says that samples have the shape '%s'; expected numbers from 1 up "
                             "with commas",
                             file->path, mu_tensor_file_metadata(file, input_key));
        rank++;
    }
    return mu_model_build(model, rank, dims);
}

static mu_status check_entry(const mu_tensor_file *file, const mu_variable *variable)
{
    const char *name = mu__saved_name(variable);
    const int i = mu_tensor_file_find(file, name);
    if (i < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the checkpoint '%s' has no '%s'; it was saved from another model, optimizer or set "
                         "of variables (muster inspect lists what it has)",
                         file->path, name);
    char seen_text[MU_SHAPE_TEXT], wanted_text[MU_SHAPE_TEXT];
    const mu_spec wanted = mu__saved_spec(variable);
    const mu_dtype dtype = mu_tensor_file_dtype(file, i);
    const mu_shape shape = mu_tensor_file_shape(file, i);
    if (dtype == wanted.dtype && mu__shape_equal(&shape, &wanted.shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "'%s' in the checkpoint '%s' is %s%s; the variable is %s%s", name, file->path,
                     mu_dtype_name(dtype), mu__shape_text(&shape, seen_text), mu_dtype_name(wanted.dtype),
                     mu__shape_text(&wanted.shape, wanted_text));
}

// The tensor of variable i, which may have been read for an earlier part of the same variable.
static mu_tensor *read_saved(const entries *all, size_t i, mu_tensor *const *saved, const mu_tensor_file *file)
{
    for (size_t k = 0; k < i; k++)
        if (mu__are_parts_of_one(all->items[k], all->items[i]))
            return saved[k];
    return mu_tensor_file_read(file, mu_tensor_file_find(file, mu__saved_name(all->items[i])));
}

// Reads every tensor before the first variable changes.
static mu_status read_entries(const entries *all, const mu_tensor_file *file)
{
    mu_tensor **values = mu__calloc(all->n + 1, sizeof *values);
    mu_status status = values ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < all->n; i++)
        status = check_entry(file, all->items[i]);
    for (size_t i = 0; status == MU_OK && i < all->n; i++) {
        values[i] = read_saved(all, i, values, file);
        status = values[i] ? MU_OK : mu_error_code();
    }
    for (size_t i = 0; status == MU_OK && i < all->n; i++)
        status = mu_variable_assign(all->items[i], mu__part_of_saved(all->items[i], values[i]));
    mu__free(values);
    return status;
}

static mu_status read_counter(const mu_tensor_file *file, int64_t *out)
{
    const char *text = mu_tensor_file_metadata(file, counter_key);
    char *end = NULL;
    errno = 0;
    *out = text ? strtoll(text, &end, 10) : 0;
    if (!text || (end != text && *end == '\0' && errno == 0 && *out >= 0))
        return MU_OK;
    return mu__error(MU_DATA_LOSS, "the checkpoint '%s' has \"%.40s\" for %s; expected a number from 0", file->path,
                     text,
                     counter_key);
}

mu_status mu__checkpoint_read(mu_checkpoint *checkpoint, mu_tensor_file *file)
{
    entries all = {0};
    int64_t counter = 0;
    mu_pool *pool = mu_pool_open();
    mu_status status = pool ? read_counter(file, &counter) : mu_error_code();
    if (status == MU_OK && checkpoint->model)
        status = build_model(checkpoint->model, file);
    if (status == MU_OK)
        status = build_state(checkpoint);
    if (status == MU_OK)
        status = collect(checkpoint, &all);
    for (int i = 0; i < checkpoint->n_tables && status == MU_OK; i++)
        status = mu__table_check_file(checkpoint->tables[i], file);
    if (status == MU_OK)
        status = read_entries(&all, file);
    for (int i = 0; i < checkpoint->n_tables && status == MU_OK; i++)
        status = mu__table_restore(checkpoint->tables[i], file);
    const char *position = mu_tensor_file_metadata(file, iterator_key);
    if (status == MU_OK && checkpoint->iterator && position)
        status = mu_iterator_restore(checkpoint->iterator, position);
    if (status == MU_OK && checkpoint->counter)
        *checkpoint->counter = counter;
    mu__free(all.items);
    mu_pool_close(pool);
    return status;
}

mu_status mu_checkpoint_restore(mu_checkpoint *checkpoint, const char *path)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(need_outside(checkpoint, path, "mu_checkpoint_restore"));
    mu__temporary_sweep(path);
    mu_tensor_file *file = mu__tensor_file_open(path);
    mu_status status = file ? mu__checkpoint_read(checkpoint, file) : mu_error_code();
    mu_release(file);
    return status;
}
