// Saves the state of a run as named tensors in one safetensors file, and restores it.
//
// Variables are saved under their names with their values outside of replicas, so a file fits any strategy, and
// mu_load_weights can read it. State that is not a tensor (the position in the data, the input shape that an unbuilt
// model needs) is metadata, of an object with a name under KEY/NAME. A restore first checks everything, then changes
// everything.
#include "model/core/layer.h"
#include "model/files/checkpoint.h"

#include <errno.h>
#include <stdlib.h>

static const char *const iterator_key = "muster.iterator";
static const char *const input_key = "muster.input_shape";
static const char *const counter_key = "muster.run_calls";
static const char *const format_key = "muster.checkpoint";

// ---- Saving -------------------------------------------------------------------------------------

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

// A file's metadata: keys and texts in turn, all owned.
typedef struct metadata_list {
    char **items;
    size_t n, capacity;
} metadata_list;

static void metadata_free(metadata_list *all)
{
    for (size_t i = 0; i < all->n; i++)
        mu__free(all->items[i]);
    mu__free(all->items);
}

static mu_status append(metadata_list *all, char *text)
{
    if (text && MU_PUSH(all, text) == MU_OK)
        return MU_OK;
    mu__free(text);
    return MU_RESOURCE_EXHAUSTED;
}

// The key of an object's metadata; for mu__free.
static char *key_of(const char *key, const mu_checkpoint_part *part)
{
    return mu__sprintf("%s%s%s", key, *part->name ? "/" : "", part->name);
}

static mu_status add_part(const mu_checkpoint_part *part, metadata_list *all)
{
    if (part->model && mu__layer_is_built(part->model)) {
        char shape[MU_SHAPE_TEXT];
        input_shape_text(part->model, shape);
        MU_TRY(append(all, key_of(input_key, part)));
        MU_TRY(append(all, mu__strdup(shape)));
    }
    if (!part->iterator)
        return MU_OK;
    const char *state = mu_iterator_state(part->iterator);
    MU_TRY(state ? append(all, key_of(iterator_key, part)) : mu_error_code());
    return append(all, mu__strdup(state));
}

// Lists the file's metadata: ours, then the caller's, then NULL.
static mu_status metadata_of(const mu_checkpoint *checkpoint, const char *const *more, metadata_list *all)
{
    MU_TRY(append(all, mu__strdup(format_key)));
    MU_TRY(append(all, mu__strdup("1")));
    for (size_t i = 0; i < checkpoint->parts.n; i++)
        MU_TRY(add_part(&checkpoint->parts.items[i], all));
    if (checkpoint->counter) {
        MU_TRY(append(all, mu__strdup(counter_key)));
        MU_TRY(append(all, mu__sprintf("%lld", (long long)*checkpoint->counter)));
    }
    for (int i = 0; more && more[i]; i++)
        MU_TRY(append(all, mu__strdup(more[i])));
    char *end = NULL;
    return MU_PUSH(all, end);
}

// The strategy whose workers save together; NULL: this process saves alone.
static mu_strategy *strategy_of(const mu_entries *all)
{
    for (size_t i = 0; i < all->n; i++) {
        mu_strategy *owner = all->items[i].variable->owner;
        if (owner && owner->ops->cross_worker->chief_writes)
            return owner;
    }
    return NULL;
}

// All workers read the variables, the chief writes the file.
static mu_status write_entries(const mu_checkpoint *checkpoint, const mu_entries *all, const char *path,
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
        if (mu__saved_before(all, i) >= 0)
            continue;
        names[n] = all->items[i].name;
        if (!(tensors[n++] = mu__saved_value(all, i)))
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

mu_status mu__checkpoint_write(mu_checkpoint *checkpoint, const char *path, const char *const *more)
{
    MU_TRY(need_outside(checkpoint, path, "mu_checkpoint_save"));
    mu_pool *pool = mu_pool_open();
    mu_entries all = {0};
    metadata_list texts = {0};
    mu_status status = pool ? mu__checkpoint_build(checkpoint) : mu_error_code();
    if (status == MU_OK)
        status = mu__checkpoint_collect(checkpoint, &all);
    if (status == MU_OK)
        status = metadata_of(checkpoint, more, &texts);
    if (status == MU_OK)
        status = write_entries(checkpoint, &all, path, (const char *const *)texts.items);
    mu__entries_free(&all);
    metadata_free(&texts);
    mu_pool_close(pool);
    return status;
}

mu_strategy *mu__checkpoint_strategy(const mu_checkpoint *checkpoint)
{
    mu_entries all = {0};
    mu_strategy *strategy = NULL;
    if (mu__checkpoint_collect(checkpoint, &all) == MU_OK)
        for (size_t i = 0; i < all.n && !strategy; i++)
            strategy = all.items[i].variable->owner;
    mu__entries_free(&all);
    for (size_t i = 0; i < checkpoint->parts.n && !strategy; i++)
        strategy = checkpoint->parts.items[i].model ? checkpoint->parts.items[i].model->strategy : NULL;
    return strategy;
}

bool mu__checkpoint_is_ours(const mu_checkpoint *checkpoint)
{
    mu_entries all = {0};
    const bool ours =
        mu__checkpoint_collect(checkpoint, &all) == MU_OK && mu_strategy_should_checkpoint(strategy_of(&all));
    mu__entries_free(&all);
    return ours;
}

mu_status mu_checkpoint_save(mu_checkpoint *checkpoint, const char *path)
{
    return mu__pending() ? mu_error_code() : mu__checkpoint_write(checkpoint, path, NULL);
}

// ---- Restoring ----------------------------------------------------------------------------------

// The text that a file has for an object; NULL: none, or an error.
static const char *text_of(const mu_tensor_file *file, const char *key, const mu_checkpoint_part *part)
{
    char *own = key_of(key, part);
    const char *text = own ? mu_tensor_file_metadata(file, own) : NULL;
    mu__free(own);
    return text;
}

static mu_status build_model(const mu_checkpoint_part *part, const mu_tensor_file *file)
{
    const char *whole = part->model ? text_of(file, input_key, part) : NULL, *text = whole;
    int64_t dims[MU_MAX_RANK];
    int rank = 0;
    if (!text || mu__layer_is_built(part->model))
        return mu_error_code();
    for (char *end; *text && rank < MU_MAX_RANK - 1; text = *end == ',' ? end + 1 : end) {
        dims[rank] = strtoll(text, &end, 10);
        if (end == text || dims[rank] < 1 || (*end && *end != ','))
            return mu__error(
                MU_DATA_LOSS,
                "the checkpoint '%s' says that samples have the shape '%s'; expected numbers from 1 up with commas",
                file->path, whole);
        rank++;
    }
    return mu_model_build(part->model, rank, dims);
}

static mu_status check_entry(const mu_tensor_file *file, const mu_entry *entry)
{
    const int i = mu_tensor_file_find(file, entry->name);
    if (i < 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "the checkpoint '%s' has no '%s'; it was saved from another model, optimizer or set of "
                         "variables (muster inspect lists what it has)",
                         file->path, entry->name);
    char seen_text[MU_SHAPE_TEXT], wanted_text[MU_SHAPE_TEXT];
    const mu_spec wanted = mu__saved_spec(entry->variable);
    const mu_dtype dtype = mu_tensor_file_dtype(file, i);
    const mu_shape shape = mu_tensor_file_shape(file, i);
    if (dtype == wanted.dtype && mu__shape_equal(&shape, &wanted.shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "'%s' in the checkpoint '%s' is %s%s; the variable is %s%s", entry->name,
                     file->path, mu_dtype_name(dtype), mu__shape_text(&shape, seen_text), mu_dtype_name(wanted.dtype),
                     mu__shape_text(&wanted.shape, wanted_text));
}

// The tensor of variable i, which may have been read for an earlier part of the same variable.
static mu_tensor *read_saved(const mu_entries *all, size_t i, mu_tensor *const *saved, const mu_tensor_file *file)
{
    const int earlier = mu__saved_before(all, i);
    return earlier >= 0 ? saved[earlier] : mu_tensor_file_read(file, mu_tensor_file_find(file, all->items[i].name));
}

// Reads every tensor before the first variable changes.
static mu_status read_entries(const mu_entries *all, const mu_tensor_file *file)
{
    mu_tensor **values = mu__calloc(all->n + 1, sizeof *values);
    mu_status status = values ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; status == MU_OK && i < all->n; i++)
        status = check_entry(file, &all->items[i]);
    for (size_t i = 0; status == MU_OK && i < all->n; i++) {
        values[i] = read_saved(all, i, values, file);
        status = values[i] ? MU_OK : mu_error_code();
    }
    for (size_t i = 0; status == MU_OK && i < all->n; i++) {
        mu_variable *variable = all->items[i].variable;
        status = mu_variable_assign(variable, mu__part_of_saved(variable, values[i]));
    }
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
                     text, counter_key);
}

static mu_status restore_position(const mu_checkpoint_part *part, const mu_tensor_file *file)
{
    const char *position = part->iterator ? text_of(file, iterator_key, part) : NULL;
    return position ? mu_iterator_restore(part->iterator, position) : mu_error_code();
}

mu_status mu__checkpoint_read(mu_checkpoint *checkpoint, mu_tensor_file *file)
{
    mu_entries all = {0};
    int64_t counter = 0;
    mu_pool *pool = mu_pool_open();
    mu_status status = pool ? read_counter(file, &counter) : mu_error_code();
    for (size_t i = 0; status == MU_OK && i < checkpoint->parts.n; i++)
        status = build_model(&checkpoint->parts.items[i], file);
    for (size_t i = 0; status == MU_OK && i < checkpoint->parts.n; i++)
        status = mu__checkpoint_find_columns(&checkpoint->parts.items[i], file);
    if (status == MU_OK)
        status = mu__checkpoint_build(checkpoint);
    if (status == MU_OK)
        status = mu__checkpoint_collect(checkpoint, &all);
    for (int i = 0; i < checkpoint->n_tables && status == MU_OK; i++)
        status = mu__table_check_file(checkpoint->tables[i], file);
    if (status == MU_OK)
        status = read_entries(&all, file);
    for (int i = 0; i < checkpoint->n_tables && status == MU_OK; i++)
        status = mu__table_restore(checkpoint->tables[i], file);
    for (size_t i = 0; status == MU_OK && i < checkpoint->parts.n; i++)
        status = restore_position(&checkpoint->parts.items[i], file);
    if (status == MU_OK && checkpoint->counter)
        *checkpoint->counter = counter;
    mu__entries_free(&all);
    mu_pool_close(pool);
    return status;
}

mu_status mu_checkpoint_restore(mu_checkpoint *checkpoint, const char *path)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(need_outside(checkpoint, path, "mu_checkpoint_restore"));
    mu__tensor_file_sweep(path);
    mu_tensor_file *file = mu__tensor_file_open(path);
    mu_status status = file ? mu__checkpoint_read(checkpoint, file) : mu_error_code();
    mu_release(file);
    return status;
}
