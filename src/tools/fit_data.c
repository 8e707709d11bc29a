// The data of `muster fit`: each kind of file becomes a dataset of lists of inputs and labels.
#include "tools/fit_data.h"

#include "data/formats/csv.h"
#include "model/losses/loss.h"
#include "model/training/training.h"

#include <muster/io.h>
#include <muster/ops.h>
#include <sys/stat.h>

static bool ends_with(const char *path, const char *extension)
{
    const size_t length = strlen(path), n = strlen(extension);
    return length >= n && strcmp(path + length - n, extension) == 0;
}

// ---- Names --------------------------------------------------------------------------------------

static mu_status add_names(mu_fit_source *source, const char *names, char *copy)
{
    if (strlen(names) >= MU_FIT_NAMES_BYTES)
        return mu__error(MU_INVALID_ARGUMENT, "muster fit: --inputs and --labels take at most %d bytes of names each",
                         MU_FIT_NAMES_BYTES - 1);
    memcpy(copy, names, strlen(names) + 1);
    for (char *word; (word = strsep(&copy, ","));) {
        if (source->n_names == MU_FIT_NAMES)
            return mu__error(MU_INVALID_ARGUMENT, "muster fit: more than %d inputs and labels", MU_FIT_NAMES);
        source->names[source->n_names++] = word;
    }
    return MU_OK;
}

static mu_status find_names(mu_fit_source *source)
{
    source->n_names = 0;
    MU_TRY(add_names(source, source->inputs, source->text));
    source->n_inputs = source->n_names;
    return add_names(source, source->labels ? source->labels : "y", source->text + MU_FIT_NAMES_BYTES);
}

// ---- Labels -------------------------------------------------------------------------------------

mu_tensor *mu__fit_label(const mu_fit_source *source, int output, mu_tensor *label)
{
    const mu_trainer *trainer = source->model->trainer;
    const mu_loss *loss = trainer->losses[MU_MIN(output, trainer->n_losses - 1)];
    return loss && loss->ops->takes_labels ? mu_cast(label, MU_I32) : label;
}

// ---- .npz ---------------------------------------------------------------------------------------

static mu_value *array_of(const mu_value *map, const char *name)
{
    for (int i = 0; i < map->n; i++)
        if (strcmp(map->keys[i], name) == 0)
            return map->items[i];
    return NULL;
}

// The arrays of some of the names: one, or a list.
static mu_value *arrays_of(const mu_value *map, const mu_fit_source *source, int begin, int end)
{
    mu_value *items[MU_FIT_NAMES];
    for (int i = begin; i < end; i++) {
        mu_value *array = array_of(map, source->names[i]);
        if (!array) {
            mu__error(MU_INVALID_ARGUMENT,
                      "muster fit: %s has no array '%.100s'; name its arrays with --inputs and --labels (muster "
                      "inspect lists them)",
                      source->path, source->names[i]);
            return NULL;
        }
        const bool label = i >= source->n_inputs;
        items[i - begin] = label ? mu_of(mu__fit_label(source, i - source->n_inputs, mu_value_tensor(array))) : array;
        if (!items[i - begin])
            return NULL;
    }
    return end - begin == 1 ? items[0] : mu_list_of(end - begin, items);
}

static mu_dataset *from_npz(const mu_fit_source *source)
{
    mu_value *map = mu_load_tensors(source->path);
    mu_value *x = map ? arrays_of(map, source, 0, source->n_inputs) : NULL;
    mu_value *y = x ? arrays_of(map, source, source->n_inputs, source->n_names) : NULL;
    return y ? mu_dataset_from_tensor_slices(mu_list(x, y, MU_END)) : NULL;
}

// ---- .csv ---------------------------------------------------------------------------------------

// The number of fields in the first line that is a sample.
static mu_status count_columns(const mu_fit_source *source, int *columns)
{
    int64_t lines;
    MU_TRY(mu__csv_columns(source->path, source->skip_lines, &lines, columns));
    if (lines < source->skip_lines)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "muster fit: --skip-lines is %d, but %s has %lld lines; give the number of lines before the first sample",
            source->skip_lines, source->path, (long long)lines);
    if (*columns == 0)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "muster fit: %s has no line with a sample; expected numbers with commas between them, the labels last",
            source->path);
    if (*columns > source->label_columns)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "muster fit: columns in the first sample of %s: %d, and of labels: %d, which leaves none for "
                     "inputs; expected numbers with commas between them: set --label-columns and --skip-lines",
                     source->path, *columns, source->label_columns);
}

static mu_value *split_row(mu_value *element, void *arg)
{
    const mu_fit_source *source = arg;
    mu_tensor *row = mu_value_tensor(element);
    const int64_t columns = mu_tensor_dim(row, 0), inputs = columns - source->label_columns;
    mu_tensor *x = mu_slice(row, (int64_t[]){0}, (int64_t[]){inputs});
    mu_tensor *y = mu_slice(row, (int64_t[]){inputs}, (int64_t[]){source->label_columns});
    mu_tensor *label = y ? mu__fit_label(source, 0, y) : NULL;
    if (label && label->dtype != y->dtype && source->label_columns == 1)
        label = mu_squeeze(label, 0); // numbers of classes have no axis of their own
    return label ? mu_list(x, label, MU_END) : NULL;
}

static mu_dataset *from_csv(const mu_fit_source *source)
{
    int columns;
    if (count_columns(source, &columns) != MU_OK)
        return NULL;
    mu_dataset *rows = mu_dataset_csv(source->path, .columns = columns, .skip_lines = source->skip_lines);
    return rows ? mu_dataset_map(rows, split_row, (void *)(uintptr_t)source, .name = "split_row") : NULL;
}

// ---- .npy and IDX -------------------------------------------------------------------------------

static mu_dataset *rows_of(const char *path)
{
    return ends_with(path, ".npy") ? mu_dataset_npy(path) : mu_dataset_idx(path);
}

static mu_dataset *from_two_files(const mu_fit_source *source)
{
    mu_dataset *x = rows_of(source->path);
    if (!x) {
        mu__error_context(
            "muster fit takes .npz, .csv, .npy, .tfrecord, or a folder; files with other names are read as IDX");
        return NULL;
    }
    if (!source->labels) {
        mu__error(MU_INVALID_ARGUMENT,
                  "muster fit: %s holds samples without labels; give their file with --labels, those of "
                  "--validation-data with --validation-labels",
                  source->path);
        return NULL;
    }
    mu_dataset *y = rows_of(source->labels);
    const int64_t n = y ? mu_dataset_cardinality(x) : 0, n_labels = y ? mu_dataset_cardinality(y) : 0;
    if (n != n_labels) {
        mu__error(MU_INVALID_ARGUMENT,
                  "muster fit: %s holds %lld samples, and %s labels for %lld; give a label for each", source->path,
                  (long long)n, source->labels, (long long)n_labels);
        return NULL;
    }
    return y ? mu_dataset_zip_of(2, (mu_dataset *[]){x, y}) : NULL;
}

mu_fit_form mu__fit_form_of(const char *path)
{
    struct stat found;
    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        return MU_FIT_FOLDER;
    if (ends_with(path, ".tfrecord") || ends_with(path, ".tfrecords") || ends_with(path, ".tfrecord.gz"))
        return MU_FIT_EXAMPLES;
    if (ends_with(path, ".csv") || ends_with(path, ".csv.gz"))
        return MU_FIT_CSV;
    return ends_with(path, ".npz") ? MU_FIT_ARRAYS : MU_FIT_TWO_FILES;
}

mu_dataset *mu__fit_data(mu_fit_source *source)
{
    const mu_fit_form form = mu__fit_form_of(source->path);
    if (find_names(source) != MU_OK)
        return NULL;
    mu_dataset *samples = form == MU_FIT_EXAMPLES ? mu__fit_examples(source)
                          : form == MU_FIT_ARRAYS ? from_npz(source)
                          : form == MU_FIT_CSV    ? from_csv(source)
                          : form == MU_FIT_FOLDER ? mu__fit_files(source)
                                                  : from_two_files(source);
    // Examples and files are shuffled before they are read.
    if (samples && source->shuffles && form != MU_FIT_EXAMPLES && form != MU_FIT_FOLDER)
        samples = mu_dataset_shuffle(samples, MU_FIT_SHUFFLED_ROWS);
    return samples ? mu_dataset_batch(samples, source->batch_size) : NULL;
}
