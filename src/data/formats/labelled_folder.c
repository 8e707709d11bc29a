// Files in a folder, labelled by the folders that they are in. See labelled_folder.h.
#include "data/formats/labelled_folder.h"

#include <dirent.h>
#include <errno.h>
#include <muster/ops.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

enum { DEEPEST = 32 };

// ---- Files --------------------------------------------------------------------------------------

typedef struct names {
    char **items;
    size_t n, capacity;
} names;

static void names_free(names *list)
{
    for (size_t i = 0; i < list->n; i++)
        mu__free(list->items[i]);
    mu__free(list->items);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool has_end(const mu_folder_kind *kind, const char *name)
{
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && kind->ends[i] != NULL; i++)
        if (strcasecmp(dot, kind->ends[i]) == 0)
            return true;
    return false;
}

// The names in a folder, in order; those that begin with a dot are left out.
static mu_status list_folder(const char *path, const char *function, names *out)
{
    DIR *folder = opendir(path);
    mu_status status = MU_OK;
    if (folder == NULL) {
        const int number = errno;
        return mu__error(mu__errno_code(number), "%s: cannot open %s: %s", function, path, strerror(number));
    }
    for (const struct dirent *entry; status == MU_OK && (entry = readdir(folder)) != NULL;) {
        char *name = entry->d_name[0] != '.' ? mu__strdup(entry->d_name) : NULL;
        if (name != NULL && (status = MU_PUSH(out, name)) != MU_OK)
            mu__free(name);
        status = status == MU_OK ? mu_error_code() : status;
    }
    closedir(folder);
    if (out->n > 1)
        qsort(out->items, out->n, sizeof *out->items, by_name);
    return status;
}

typedef enum entry_kind { OTHER, FOLDER, SAMPLE } entry_kind;

// What a name in a folder is; a link to a folder is one only with `follow`, else folders could contain themselves.
// *path is owned by the caller.
static entry_kind kind_of(const mu_folder_kind *kind, const char *folder, const char *name, bool follow, char **path)
{
    struct stat found, link;
    *path = mu__sprintf("%s/%s", folder, name);
    if (*path == NULL || stat(*path, &found) != 0 || lstat(*path, &link) != 0)
        return OTHER;
    if (S_ISDIR(found.st_mode))
        return S_ISLNK(link.st_mode) && !follow ? OTHER : FOLDER;
    return S_ISREG(found.st_mode) && has_end(kind, name) ? SAMPLE : OTHER;
}

// The order of Keras, which takes each folder's own files together: by the path of the folder, then by the file's name.
static int by_folder(const void *a, const void *b)
{
    const char *const path_a = *(char *const *)a, *const path_b = *(char *const *)b;
    const size_t n_a = (size_t)(strrchr(path_a, '/') - path_a), n_b = (size_t)(strrchr(path_b, '/') - path_b);
    const int order = memcmp(path_a, path_b, MU_MIN(n_a, n_b));
    if (order != 0 || n_a != n_b)
        return order != 0 ? order : n_a < n_b ? -1 : 1;
    return strcmp(path_a + n_a, path_b + n_b);
}

// Adds the samples of a folder and of the folders in it, in no order.
static mu_status add_samples(const mu_folder_kind *of, const char *folder, int depth, names *samples)
{
    names entries = {0};
    mu_status status = depth < DEEPEST
                           ? list_folder(folder, of->function, &entries)
                           : mu__error(MU_INVALID_ARGUMENT, "%s: folders are nested more than %d deep in %s",
                                       of->function, DEEPEST, folder);
    for (size_t i = 0; i < entries.n && status == MU_OK; i++) {
        char *path = NULL;
        const entry_kind kind = kind_of(of, folder, entries.items[i], false, &path);
        if (kind == SAMPLE && (status = MU_PUSH(samples, path)) == MU_OK)
            path = NULL;
        else if (kind == FOLDER)
            status = add_samples(of, path, depth + 1, samples);
        mu__free(path);
        status = status == MU_OK ? mu_error_code() : status;
    }
    names_free(&entries);
    return status;
}

// Adds the samples of a folder in order.
static mu_status add_sorted(const mu_folder_kind *of, const char *folder, int depth, names *samples)
{
    const size_t before = samples->n;
    MU_TRY(add_samples(of, folder, depth, samples));
    if (samples->n - before > 1)
        qsort(samples->items + before, samples->n - before, sizeof *samples->items, by_folder);
    return MU_OK;
}

// The folders in a folder, and links to folders: the classes, as in Keras.
static mu_status list_classes(const mu_folder_kind *of, const char *directory, names *classes)
{
    names entries = {0};
    mu_status status = list_folder(directory, of->function, &entries);
    for (size_t i = 0; i < entries.n && status == MU_OK; i++) {
        char *path = NULL;
        const bool folder = kind_of(of, directory, entries.items[i], true, &path) == FOLDER;
        char *name = folder ? mu__strdup(entries.items[i]) : NULL;
        mu__free(path);
        if (name != NULL && (status = MU_PUSH(classes, name)) != MU_OK)
            mu__free(name);
        status = status == MU_OK ? mu_error_code() : status;
    }
    names_free(&entries);
    return status;
}

// All samples with their classes.
typedef struct listing {
    names classes, samples;
    struct {
        int32_t *items;
        size_t n, capacity;
    } labels;
} listing;

static void listing_free(listing *l)
{
    names_free(&l->classes);
    names_free(&l->samples);
    mu__free(l->labels.items);
}

static mu_status refuse_none(const mu_folder_kind *of, const char *directory, bool labelled)
{
    char ends[60] = "";
    for (int i = 0; of->ends[i] != NULL; i++) {
        const size_t used = strlen(ends);
        snprintf(ends + used, sizeof ends - used, "%s%s", i > 0 ? ", " : "", of->ends[i]);
    }
    return mu__error(MU_NOT_FOUND, "%s: there are no %s (%s) in %s%s", of->function, of->samples, ends, directory,
                     labelled ? ": each class needs a folder of its own there" : "");
}

static mu_status list_samples(const mu_folder_kind *of, const char *directory, bool labelled, listing *l)
{
    if (!labelled)
        MU_TRY(add_sorted(of, directory, 0, &l->samples));
    else
        MU_TRY(list_classes(of, directory, &l->classes));
    for (size_t i = 0; i < l->classes.n; i++) {
        char *path = mu__sprintf("%s/%s", directory, l->classes.items[i]);
        const mu_status status = path != NULL ? add_sorted(of, path, 1, &l->samples) : MU_RESOURCE_EXHAUSTED;
        mu__free(path);
        MU_TRY(status);
        while (l->labels.n < l->samples.n)
            MU_TRY(MU_PUSH(&l->labels, (int32_t)i));
    }
    return l->samples.n > 0 ? MU_OK : refuse_none(of, directory, labelled);
}

// ---- Options ------------------------------------------------------------------------------------

mu_status mu__folder_word(const char *function, const char *option, const char *word, const char *const *words)
{
    char known[160] = "";
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(word, words[i]) == 0)
            return MU_OK;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s\"%s\"", i > 0 ? ", " : "", words[i]);
    }
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s is \"%s\"; expected one of %s", function, option, word, known);
}

static mu_status check(const mu_folder_kind *of, const mu_folder_options *o)
{
    static const char *const labels[] = {"int", "categorical", "binary", "none", NULL}, *const subsets[] = {
                                                                                            "training", "validation",
                                                                                            NULL};
    MU_TRY(mu__folder_word(of->function, "label_mode", o->label_mode, labels));
    if ((o->validation_split != 0) != (o->subset != NULL) || !(o->validation_split >= 0 && o->validation_split < 1))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: validation_split is %g and subset is %s; give a share from 0 to below 1 and \"training\" "
                         "or \"validation\", or neither",
                         of->function, o->validation_split, o->subset != NULL ? o->subset : "NULL");
    if (o->subset != NULL)
        MU_TRY(mu__folder_word(of->function, "subset", o->subset, subsets));
    if (o->subset != NULL && !o->no_shuffle && o->seed == NULL)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: a validation_split of shuffled files needs a .seed, the same for both subsets, so that "
                         "they share no file",
                         of->function);
    return o->batch_size == -1 || o->batch_size >= 1
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "%s: batch_size is %lld; expected at least 1, or -1 for single samples",
                           of->function, (long long)o->batch_size);
}

// ---- The dataset of files -----------------------------------------------------------------------

// Swaps files and labels into an order drawn from the seed (Fisher and Yates).
static void shuffle(listing *l, uint64_t seed)
{
    for (size_t i = l->samples.n; i > 1; i--) {
        const size_t other = (size_t)(mu__splitmix(&seed) % i);
        char *sample = l->samples.items[i - 1];
        l->samples.items[i - 1] = l->samples.items[other];
        l->samples.items[other] = sample;
        if (l->labels.n == 0)
            continue;
        const int32_t number = l->labels.items[i - 1];
        l->labels.items[i - 1] = l->labels.items[other];
        l->labels.items[other] = number;
    }
}

// Names and labels [begin, begin + n) as a dataset.
static mu_dataset *files_dataset(const listing *l, size_t begin, size_t n)
{
    const int64_t rows = (int64_t)n;
    mu_tensor *paths = mu_tensor_strings(1, &rows, (const char *const *)l->samples.items + begin);
    if (l->labels.n == 0)
        return mu_dataset_from_tensor_slices(mu_list(paths, MU_END));
    return mu_dataset_from_tensor_slices(
        mu_list(paths, mu_tensor_new(MU_I32, 1, &rows, l->labels.items + begin), MU_END));
}

// The files of a subset, which the seed draws, in its order.
static mu_dataset *chosen(const mu_folder_kind *of, const mu_folder_options *o, listing *l, uint64_t seed)
{
    const size_t n = l->samples.n, held = (size_t)(o->validation_split * (double)n);
    const bool validation = o->subset != NULL && strcmp(o->subset, "validation") == 0;
    if (!o->no_shuffle)
        shuffle(l, seed);
    const size_t begin = validation ? n - held : 0, count = validation ? held : n - held;
    if (count == 0) {
        mu__error(MU_INVALID_ARGUMENT, "%s: a validation_split of %g leaves no files of %zu for %s", of->function,
                  o->validation_split, n, o->subset);
        return NULL;
    }
    mu_dataset *files = files_dataset(l, begin, count);
    return o->no_shuffle ? files : mu_dataset_shuffle(files, (int64_t)count, .seed = seed);
}

mu_dataset *mu__folder_files(const mu_folder_kind *of, const mu_folder_options *o, mu_folder_labels *labels)
{
    listing l = {0};
    mu_dataset *dataset = NULL;
    if (mu__need(o->directory, of->need) != MU_OK || check(of, o) != MU_OK)
        return NULL;
    *labels = (mu_folder_labels){.given = strcmp(o->label_mode, "none") != 0,
                                 .binary = strcmp(o->label_mode, "binary") == 0,
                                 .categorical = strcmp(o->label_mode, "categorical") == 0};
    mu_status status = list_samples(of, o->directory, labels->given, &l);
    labels->classes = (int)l.classes.n;
    if (status == MU_OK && labels->binary && l.classes.n != 2)
        status = mu__error(MU_INVALID_ARGUMENT, "%s: label_mode \"binary\" needs two classes; %s has %zu", of->function,
                           o->directory, l.classes.n);
    if (status == MU_OK)
        dataset = chosen(of, o, &l, o->seed != NULL ? *o->seed : mu__runtime_next_seed(mu__runtime()));
    listing_free(&l);
    return dataset;
}

mu_tensor *mu__folder_classes(const mu_folder_kind *of, const char *directory)
{
    names classes = {0};
    if (mu__need(directory, of->need) != MU_OK)
        return NULL;
    const mu_status status = list_classes(of, directory, &classes);
    const int64_t n = (int64_t)classes.n;
    mu_tensor *tensor = status == MU_OK ? mu_tensor_strings(1, &n, (const char *const *)classes.items) : NULL;
    names_free(&classes);
    return tensor;
}

// ---- Samples ------------------------------------------------------------------------------------

static mu_tensor *label(const mu_folder_labels *labels, mu_tensor *number)
{
    if (labels->categorical)
        return mu_one_hot(number, labels->classes, MU_F32);
    return labels->binary ? mu_expand_dims(mu_cast(number, MU_F32), 0) : number;
}

mu_status mu__folder_next(mu_stage *stage, const mu_folder_labels *labels, mu_item *item, bool *end,
                          mu_tensor *(*load)(const void *args, const char *path))
{
    MU_TRY(mu__stage_next(stage, 0, item, end));
    mu_value *element = *end ? NULL : mu__item_value(item);
    if (element == NULL)
        return mu_error_code();
    mu_pool *pool = mu_pool_open();
    mu_tensor *path = pool != NULL ? mu_at(element, 0) : NULL;
    mu_tensor *sample = path != NULL ? load(stage->dataset->args, mu__string_at(path, 0).bytes) : NULL;
    mu_value *made = sample == NULL  ? NULL
                     : labels->given ? mu_list(sample, label(labels, mu_at(element, 1)), MU_END)
                                     : mu_of(sample);
    mu_retain(made);
    mu_pool_close(pool);
    mu__item_drop(item);
    *item = (mu_item){.value = made};
    return made != NULL ? MU_OK : mu_error_code();
}

mu_status mu__folder_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    return mu__stage_skip(stage, 0, count, skipped);
}

int64_t mu__folder_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

mu_value *mu__folder_spec(const mu_folder_labels *labels, mu_value *sample)
{
    const mu_shape one = {1, {labels->categorical ? labels->classes : 1}};
    const bool floats = labels->categorical || labels->binary;
    mu_value *parts[] = {sample, NULL};
    if (!labels->given)
        return sample;
    parts[1] = floats ? mu__spec_leaf(MU_F32, &one) : mu__spec_leaf(MU_I32, &mu__scalar_shape);
    return mu__list_value(2, parts);
}
