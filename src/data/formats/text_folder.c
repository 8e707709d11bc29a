// Datasets of the texts in a folder, labelled by the folders that they are in.
#include "data/formats/labelled_folder.h"

#include <muster/ops.h>

#define MOST_FILE_BYTES ((size_t)1 << 28)

static const char *const ends[] = {".txt", NULL};
static const mu_folder_kind texts = {"mu_dataset_text_folder", "mu_dataset_text_folder: the directory", "texts", ends};

typedef struct text_args {
    mu_folder_labels labels;
    int64_t max_length; // 0: all
} text_args;

static mu_tensor *load(const void *args, const char *path)
{
    const int64_t most = ((const text_args *)args)->max_length;
    void *bytes = NULL;
    size_t n = 0;
    if (mu__file_read(path, MOST_FILE_BYTES, &bytes, &n) != MU_OK)
        return NULL;
    const mu_string text = {.bytes = bytes, .n = most > 0 ? MU_MIN(n, (size_t)most) : n};
    mu_tensor *tensor = mu_tensor_byte_strings(0, NULL, &text);
    mu__free(bytes);
    return tensor;
}

static mu_status text_next(mu_stage *stage, mu_item *item, bool *end)
{
    return mu__folder_next(stage, &((const text_args *)stage->dataset->args)->labels, item, end, load);
}

static mu_value *text_spec(const mu_dataset *dataset)
{
    return mu__folder_spec(&((const text_args *)dataset->args)->labels, mu__spec_leaf(MU_STRING, &mu__scalar_shape));
}

static const mu_stage_ops text_stage = {
    .name = "text_folder",
    .args_bytes = sizeof(text_args),
    .next = text_next,
    .skip = mu__folder_skip,
    .cardinality = mu__folder_cardinality,
    .spec = text_spec,
    .opens_files = true,
};

mu_dataset *mu_dataset_text_folder_with(const mu_dataset_text_folder_args *args)
{
    mu_dataset_text_folder_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, texts.function) != MU_OK ||
        mu__args_positive(&a, "max_length", a.max_length, texts.function) != MU_OK)
        return NULL;
    const int64_t batch_size = MU_GIVEN(&a, batch_size) ? a.batch_size : 32;
    const mu_folder_options options = {.directory = a.directory,
                                       .subset = a.subset,
                                       .batch_size = batch_size,
                                       .label_mode = a.label_mode != NULL ? a.label_mode : "int",
                                       .no_shuffle = a.no_shuffle,
                                       .seed = MU_GIVEN(&a, seed) ? &a.seed : NULL,
                                       .validation_split = a.validation_split};
    text_args stage = {.max_length = a.max_length};
    mu_dataset *files = mu__folder_files(&texts, &options, &stage.labels);
    mu_dataset *dataset = files != NULL ? mu__dataset_stage(&text_stage, &stage, files) : NULL;
    return dataset != NULL && batch_size > 0 ? mu_dataset_batch(dataset, batch_size) : dataset;
}
