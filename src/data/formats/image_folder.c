// Datasets of the images in a folder, labelled by the folders that they are in.
//
// The files are listed when the dataset is made; a dataset of names and labels follows, which is divided, shuffled and
// repeated like any other, and a stage that reads, decodes and resizes one image.
#include "data/formats/image.h"

#include <dirent.h>
#include <errno.h>
#include <muster/nn.h>
#include <muster/ops.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

enum { DEEPEST = 32 };
#define MOST_FILE_BYTES ((size_t)1 << 28)

static const char function[] = "mu_dataset_image_folder";

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

static bool is_image(const char *name)
{
    static const char *const ends[] = {".jpg", ".jpeg", ".png"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot != NULL && i < MU_COUNT(ends); i++)
        if (strcasecmp(dot, ends[i]) == 0)
            return true;
    return false;
}

// The names in a folder, in order; those that begin with a dot are left out.
static mu_status list_folder(const char *path, names *out)
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

typedef enum entry_kind { OTHER, FOLDER, IMAGE } entry_kind;

// What a name in a folder is; links to folders are not followed. *path is owned by the caller.
static entry_kind kind_of(const char *folder, const char *name, char **path)
{
    struct stat found, link;
    *path = mu__sprintf("%s/%s", folder, name);
    if (*path == NULL || stat(*path, &found) != 0 || lstat(*path, &link) != 0)
        return OTHER;
    if (S_ISDIR(found.st_mode))
        return S_ISLNK(link.st_mode) ? OTHER : FOLDER;
    return S_ISREG(found.st_mode) && is_image(name) ? IMAGE : OTHER;
}

// Adds the images of a folder and of the folders in it.
static mu_status add_images(const char *folder, int depth, names *images)
{
    names entries = {0};
    mu_status status = depth < DEEPEST ? list_folder(folder, &entries)
                                       : mu__error(MU_INVALID_ARGUMENT, "%s: folders are nested more than %d deep in "
                                                   "%s",
                                                   function, DEEPEST, folder);
    for (size_t i = 0; i < entries.n && status == MU_OK; i++) {
        char *path = NULL;
        const entry_kind kind = kind_of(folder, entries.items[i], &path);
        if (kind == IMAGE && (status = MU_PUSH(images, path)) == MU_OK)
            path = NULL;
        else if (kind == FOLDER)
            status = add_images(path, depth + 1, images);
        mu__free(path);
        status = status == MU_OK ? mu_error_code() : status;
    }
    names_free(&entries);
    return status;
}

// The folders in a folder: the classes.
static mu_status list_classes(const char *directory, names *classes)
{
    names entries = {0};
    mu_status status = list_folder(directory, &entries);
    for (size_t i = 0; i < entries.n && status == MU_OK; i++) {
        char *path = NULL, *name = kind_of(directory, entries.items[i], &path) == FOLDER ? mu__strdup(entries.items[i])
            : NULL;
        mu__free(path);
        if (name != NULL && (status = MU_PUSH(classes, name)) != MU_OK)
            mu__free(name);
        status = status == MU_OK ? mu_error_code() : status;
    }
    names_free(&entries);
    return status;
}

// All images with their classes.
typedef struct listing {
    names classes, images;
    struct { int32_t *items; size_t n, capacity; } labels;
} listing;

static void listing_free(listing *l)
{
    names_free(&l->classes);
    names_free(&l->images);
    mu__free(l->labels.items);
}

static mu_status list_images(const char *directory, bool labelled, listing *l)
{
    if (!labelled)
        MU_TRY(add_images(directory, 0, &l->images));
    else
        MU_TRY(list_classes(directory, &l->classes));
    for (size_t i = 0; i < l->classes.n; i++) {
        char *path = mu__sprintf("%s/%s", directory, l->classes.items[i]);
        const mu_status status = path != NULL ? add_images(path, 1, &l->images) : MU_RESOURCE_EXHAUSTED;
        mu__free(path);
        MU_TRY(status);
        while (l->labels.n < l->images.n)
            MU_TRY(MU_PUSH(&l->labels, (int32_t)i));
    }
    if (l->images.n > 0)
        return MU_OK;
    return mu__error(MU_NOT_FOUND, "%s: there are no images (.jpg, .jpeg, .png) in %s%s", function, directory,
                     labelled ? ": each class needs a folder of its own there" : "");
}

// ---- The stage that reads one image -------------------------------------------------------------

typedef struct image_args {
    int height, width, channels, classes;
    bool nearest, labelled, categorical, binary;
} image_args;

static mu_tensor *load(const image_args *args, const mu_tensor *path)
{
    void *bytes = NULL;
    size_t n = 0;
    if (mu__file_read(mu__string_at(path, 0).bytes, MOST_FILE_BYTES, &bytes, &n) != MU_OK)
        return NULL;
    mu_tensor *image = mu__give(mu__decode_image(bytes, n, args->channels));
    mu__free(bytes);
    if (image == NULL) {
        mu__error_context("in %s", mu__string_at(path, 0).bytes);
        return NULL;
    }
    return mu_image_resize(mu_cast(image, MU_F32), args->height, args->width,
                           args->nearest ? MU_RESIZE_NEAREST : MU_RESIZE_BILINEAR);
}

static mu_tensor *label(const image_args *args, mu_tensor *number)
{
    if (args->categorical)
        return mu_one_hot(number, args->classes, MU_F32);
    return args->binary ? mu_expand_dims(mu_cast(number, MU_F32), 0) : number;
}

static mu_status image_next(mu_stage *stage, mu_item *item, bool *end)
{
    const image_args *args = stage->dataset->args;
    MU_TRY(mu__stage_next(stage, 0, item, end));
    mu_value *element = *end ? NULL : mu__item_value(item);
    if (element == NULL)
        return mu_error_code();
    mu_pool *pool = mu_pool_open();
    mu_tensor *image = pool != NULL ? load(args, mu_at(element, 0)) : NULL;
    mu_value *made = image == NULL ? NULL
                     : args->labelled ? mu_list(image, label(args, mu_at(element, 1)), MU_END) : mu_of(image);
    mu_retain(made);
    mu_pool_close(pool);
    mu__item_drop(item);
    *item = (mu_item){.value = made};
    return made != NULL ? MU_OK : mu_error_code();
}

static mu_status image_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    return mu__stage_skip(stage, 0, count, skipped);
}

static int64_t image_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

static mu_value *image_spec(const mu_dataset *dataset)
{
    const image_args *args = dataset->args;
    const mu_shape one = {1, {args->categorical ? args->classes : 1}};
    mu_value *parts[2];
    parts[0] = mu__spec_leaf(MU_F32, &(mu_shape){3, {args->height, args->width, args->channels}});
    if (!args->labelled)
        return parts[0];
    parts[1] = args->categorical || args->binary ? mu__spec_leaf(MU_F32, &one) : mu__spec_leaf(MU_I32,
                                                                                               &mu__scalar_shape);
    return mu__list_value(2, parts);
}

static const mu_stage_ops image_stage = {
    .name = "image_folder",
    .args_bytes = sizeof(image_args),
    .next = image_next,
    .skip = image_skip,
    .cardinality = image_cardinality,
    .spec = image_spec,
    .opens_files = true,
};

// ---- The dataset --------------------------------------------------------------------------------

static mu_status one_of(const char *option, const char *word, const char *const *words)
{
    char known[100] = "";
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(word, words[i]) == 0)
            return MU_OK;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s\"%s\"", i > 0 ? ", " : "", words[i]);
    }
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s is \"%s\"; expected one of %s", function, option, word, known);
}

static mu_status complete(mu_dataset_image_folder_args *a)
{
    static const char *const labels[] = {"int", "categorical", "binary", "none", NULL},
                            *const colors[] = {"rgb", "grayscale", "rgba", NULL},
                            *const subsets[] = {"training", "validation", NULL},
                            *const ways[] = {"bilinear", "nearest", NULL};
    MU_TRY(mu__need(a->directory, "mu_dataset_image_folder: the directory"));
    a->label_mode = a->label_mode != NULL ? a->label_mode : "int";
    a->color_mode = a->color_mode != NULL ? a->color_mode : "rgb";
    a->interpolation = a->interpolation != NULL ? a->interpolation : "bilinear";
    a->batch_size = MU_GIVEN(a, batch_size) ? a->batch_size : 32;
    if (a->image_size[0] == 0 && a->image_size[1] == 0)
        a->image_size[0] = a->image_size[1] = 256;
    MU_TRY(one_of("label_mode", a->label_mode, labels));
    MU_TRY(one_of("color_mode", a->color_mode, colors));
    MU_TRY(one_of("interpolation", a->interpolation, ways));
    if ((a->validation_split != 0) != (a->subset != NULL) || !(a->validation_split >= 0 && a->validation_split < 1))
        return mu__error(MU_INVALID_ARGUMENT, "%s: validation_split is %g and subset is %s; give a share from 0 to "
                         "below 1 and \"training\" or \"validation\", or neither", function, a->validation_split,
                         a->subset != NULL ? a->subset : "NULL");
    if (a->subset != NULL)
        MU_TRY(one_of("subset", a->subset, subsets));
    if (a->subset != NULL && !a->no_shuffle && !MU_GIVEN(a, seed))
        return mu__error(MU_INVALID_ARGUMENT, "%s: a validation_split of shuffled files needs a .seed, the same for "
                         "both subsets, so that they share no file", function);
    if (a->batch_size < -1 || a->batch_size == 0 || a->image_size[0] < 1 || a->image_size[1] < 1)
        return mu__error(MU_INVALID_ARGUMENT, "%s: batch_size is %lld and image_size %d x %d; expected at least 1",
                         function,
                         (long long)a->batch_size, a->image_size[0], a->image_size[1]);
    return MU_OK;
}

// Swaps files and labels into an order drawn from the seed (Fisher and Yates).
static void shuffle(listing *l, uint64_t seed)
{
    for (size_t i = l->images.n; i > 1; i--) {
        const size_t other = (size_t)(mu__splitmix(&seed) % i);
        char *image = l->images.items[i - 1];
        l->images.items[i - 1] = l->images.items[other];
        l->images.items[other] = image;
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
    mu_tensor *paths = mu_tensor_strings(1, &rows, (const char *const *)l->images.items + begin);
    if (l->labels.n == 0)
        return mu_dataset_from_tensor_slices(mu_list(paths, MU_END));
    return mu_dataset_from_tensor_slices(mu_list(paths, mu_tensor_new(MU_I32, 1, &rows, l->labels.items + begin),
                                                 MU_END));
}

static mu_dataset *make(const mu_dataset_image_folder_args *a, const image_args *stage, listing *l, uint64_t seed)
{
    const size_t n = l->images.n, held = (size_t)(a->validation_split * (double)n);
    const bool validation = a->subset != NULL && strcmp(a->subset, "validation") == 0;
    if (!a->no_shuffle)
        shuffle(l, seed);
    const size_t begin = validation ? n - held : 0, count = validation ? held : n - held;
    if (count == 0) {
        mu__error(MU_INVALID_ARGUMENT, "%s: a validation_split of %g leaves no files of %zu for %s", function,
                  a->validation_split, n, a->subset);
        return NULL;
    }
    mu_dataset *files = files_dataset(l, begin, count);
    if (!a->no_shuffle)
        files = mu_dataset_shuffle(files, (int64_t)count, .seed = seed);
    mu_dataset *images = mu__dataset_stage(&image_stage, stage, files);
    return a->batch_size > 0 ? mu_dataset_batch(images, a->batch_size) : images;
}

mu_dataset *mu_dataset_image_folder_with(const mu_dataset_image_folder_args *args)
{
    mu_dataset_image_folder_args a;
    listing l = {0};
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK || complete(&a) != MU_OK)
        return NULL;
    const bool labelled = strcmp(a.label_mode, "none") != 0, binary = strcmp(a.label_mode, "binary") == 0;
    mu_dataset *dataset = NULL;
    mu_status status = list_images(a.directory, labelled, &l);
    if (status == MU_OK && binary && l.classes.n != 2)
        status = mu__error(MU_INVALID_ARGUMENT, "%s: label_mode \"binary\" needs two classes; %s has %zu", function,
                           a.directory, l.classes.n);
    const image_args stage = {.height = a.image_size[0], .width = a.image_size[1], .classes = (int)l.classes.n,
                              .channels = strcmp(a.color_mode, "rgb") == 0 ? 3 : strcmp(a.color_mode, "rgba") == 0 ? 4
                                  : 1,
                              .nearest = strcmp(a.interpolation, "nearest") == 0, .labelled = labelled,
                              .categorical = strcmp(a.label_mode, "categorical") == 0, .binary = binary};
    if (status == MU_OK)
        dataset = make(&a, &stage, &l, MU_GIVEN(&a, seed) ? a.seed : mu__runtime_next_seed(mu__runtime()));
    listing_free(&l);
    return dataset;
}

mu_tensor *mu_image_folder_classes(const char *directory)
{
    names classes = {0};
    if (mu__need(directory, "mu_image_folder_classes: the directory") != MU_OK)
        return NULL;
    const mu_status status = list_classes(directory, &classes);
    const int64_t n = (int64_t)classes.n;
    mu_tensor *tensor = status == MU_OK ? mu_tensor_strings(1, &n, (const char *const *)classes.items) : NULL;
    names_free(&classes);
    return tensor;
}
