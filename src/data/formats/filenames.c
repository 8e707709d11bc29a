// File names as elements: uint8 vectors, so that a dataset of files is shuffled, sharded and interleaved like
// any other. Readers take the dataset of names as their input.
#include "data/formats/filenames.h"

#define MOST_PATH_BYTES 4096

// A string that a pool owns, for mu_dataset_path_of.
typedef struct lent_text {
    mu_object object;
    char text[MOST_PATH_BYTES];
} lent_text;

static mu_type text_type = {.name = "path"};

static mu_status path_of(const mu_value *element, char path[MOST_PATH_BYTES])
{
    mu_leaves leaves;
    MU_TRY(mu__leaves_of(element, &leaves));
    const mu_tensor *tensor = leaves.n == 1 ? mu__leaf(&leaves, 0) : NULL;
    mu__leaves_free(&leaves);
    const bool string = tensor != NULL && mu__has_strings(tensor) && tensor->shape.rank == 0;
    if (tensor == NULL || tensor->buffer == NULL || !(string || (tensor->dtype == MU_U8 && tensor->shape.rank == 1)))
        return mu__error(MU_INVALID_ARGUMENT,
                         "an element is not a file name; give a dataset made by mu_dataset_paths, or of strings");
    size_t bytes = string ? mu__string_at(tensor, 0).n : (size_t)tensor->shape.dims[0];
    const char *text = string ? mu__string_at(tensor, 0).bytes : mu__host_read(tensor);
    if (text == NULL)
        return mu_error_code();
    if (bytes == 0 || bytes >= MOST_PATH_BYTES || memchr(text, 0, bytes) != NULL)
        return mu__error(MU_INVALID_ARGUMENT, "a file name of %zu bytes: expected 1 to %d, none of them 0", bytes,
                         MOST_PATH_BYTES - 1);
    memcpy(path, text, bytes);
    path[bytes] = 0;
    return MU_OK;
}

const char *mu_dataset_path_of(const mu_value *element)
{
    lent_text *lent = mu__new(&text_type, sizeof *lent);
    if (lent == NULL)
        return NULL;
    mu_status status = path_of(element, lent->text);
    lent = mu__give(lent);
    return status == MU_OK && lent != NULL ? lent->text : NULL;
}

// Names of different lengths cannot be rows of one tensor: each is a dataset of one element.
static mu_dataset *one_path(const char *path)
{
    mu_shape shape = mu_shape_make(1, (int64_t[]){(int64_t)strlen(path)});
    mu_tensor *tensor = mu__tensor_alloc(MU_U8, &shape);
    if (tensor != NULL)
        memcpy(mu__host_write(tensor), path, strlen(path));
    mu_value *value = mu__leaf_value(tensor);
    mu_dataset *dataset = value != NULL ? mu__dataset_of_rows(mu__rows_of_tensors(value, false), true) : NULL;
    mu_release(value);
    return dataset;
}

mu_dataset *mu_dataset_paths(int n, const char *const *paths)
{
    mu_dataset *dataset = NULL;
    if (n > 0 && mu__need(paths, "mu_dataset_paths: the list") != MU_OK)
        return NULL;
    for (int i = 0; i < n && !mu__pending(); i++) {
        mu_dataset *one = mu__files_one(paths[i], "mu_dataset_paths");
        dataset = dataset == NULL ? one : mu_dataset_concatenate(dataset, one);
    }
    if (n < 1)
        mu__error(MU_INVALID_ARGUMENT, "mu_dataset_paths got %d names; give at least one", n);
    return mu__pending() ? NULL : dataset;
}

mu_dataset *mu__files_one(const char *path, const char *function)
{
    if (mu__pending())
        return NULL;
    if (path == NULL) {
        mu__error(MU_INVALID_ARGUMENT, "%s got no path (NULL); give the path of a file", function);
        return NULL;
    }
    return one_path(path);
}

mu_status mu__files_next(mu_stage *stage, mu_file_stream **stream, bool *end)
{
    char path[MOST_PATH_BYTES];
    mu_item item;
    mu__file_stream_close(*stream);
    *stream = NULL;
    MU_TRY(mu__stage_next(stage, 0, &item, end));
    if (*end)
        return MU_OK;
    mu_status status = mu__item_value(&item) != NULL ? path_of(item.value, path) : mu_error_code();
    mu__item_drop(&item);
    MU_TRY(status);
    *stream = mu__file_stream_open(path);
    return *stream != NULL ? MU_OK : mu_error_code();
}
