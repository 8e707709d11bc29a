// The data of `muster fit`: each kind of file becomes a dataset of lists of inputs and labels.
#include "tools/fit_data.h"

#include <muster/io.h>
#include <muster/ops.h>

enum { MOST_NAMES = 64, SHUFFLE_ROWS = 10000 };

static bool ends_with(const char *path, const char *extension)
{
    const size_t length = strlen(path), n = strlen(extension);
    return length >= n && strcmp(path + length - n, extension) == 0;
}

// ---- .npz ---------------------------------------------------------------------------------------

// The arrays of these names, with commas: one, or a list.
static mu_value *arrays_of(const mu_value *map, const char *names, const mu_fit_source *source, bool labels)
{
    mu_value *items[MOST_NAMES];
    char copy[1000], *rest = copy;
    int n = 0;
    snprintf(copy, sizeof copy, "%s", names);
    for (char *word; n < MOST_NAMES && (word = strsep(&rest, ","));) {
        mu_value *array = mu_value_get(map, word);
        if (!array) {
            if (!mu__pending())
                mu__error(MU_INVALID_ARGUMENT, "muster fit: %s has no array '%s'; name its arrays with --inputs and "
                          "--labels (muster inspect lists them)", source->path, word);
            return NULL;
        }
        items[n] = labels && source->counts_labels ? mu_of(mu_cast(mu_value_tensor(array), MU_I32)) : array;
        if (!items[n++])
            return NULL;
    }
    return n == 1 ? items[0] : mu_list_of(n, items);
}

static mu_dataset *from_npz(const mu_fit_source *source)
{
    mu_value *map = mu_load_tensors(source->path);
    mu_value *x = map ? arrays_of(map, source->inputs, source, false) : NULL;
    mu_value *y = x ? arrays_of(map, source->labels ? source->labels : "y", source, true) : NULL;
    return y ? mu_dataset_from_tensor_slices(mu_list(x, y, MU_END)) : NULL;
}

// ---- .csv ---------------------------------------------------------------------------------------

// The number of fields in the first line that is a sample.
static mu_status count_columns(const mu_fit_source *source, int *columns)
{
    void *data = NULL;
    size_t bytes;
    MU_TRY(mu__file_read(source->path, (size_t)1 << 40, &data, &bytes));
    const char *line = data;
    for (int i = 0; line && i < source->skip_lines; i++)
        line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL;
    *columns = 1;
    for (bool quoted = false; line && *line && *line != '\n'; line++) {
        quoted ^= *line == '"';
        *columns += !quoted && *line == ',';
    }
    mu__free(data);
    if (*columns > source->label_columns)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "muster fit: the first sample of %s has %d columns, of which %d are labels; "
                     "set --label-columns and --skip-lines", source->path, *columns, source->label_columns);
}

static mu_value *split_row(mu_value *element, void *arg)
{
    const mu_fit_source *source = arg;
    mu_tensor *row = mu_value_tensor(element);
    const int64_t columns = mu_tensor_dim(row, 0), inputs = columns - source->label_columns;
    mu_tensor *x = mu_slice(row, (int64_t[]){0}, (int64_t[]){inputs});
    mu_tensor *y = mu_slice(row, (int64_t[]){inputs}, (int64_t[]){source->label_columns});
    if (y && source->counts_labels)
        y = mu_cast(source->label_columns == 1 ? mu_squeeze(y, 0) : y, MU_I32);
    return y ? mu_list(x, y, MU_END) : NULL;
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
    if (!source->labels) {
        mu__error(MU_INVALID_ARGUMENT, "muster fit: %s holds samples without labels; give their file with --labels",
                  source->path);
        return NULL;
    }
    mu_dataset *x = rows_of(source->path), *y = x ? rows_of(source->labels) : NULL;
    return y ? mu_dataset_zip_of(2, (mu_dataset *[]){x, y}) : NULL;
}

mu_dataset *mu__fit_data(const mu_fit_source *source)
{
    const bool csv = ends_with(source->path, ".csv") || ends_with(source->path, ".csv.gz");
    mu_dataset *samples = ends_with(source->path, ".npz") ? from_npz(source)
                          : csv                           ? from_csv(source) : from_two_files(source);
    if (samples && source->shuffles)
        samples = mu_dataset_shuffle(samples, SHUFFLE_ROWS);
    return samples ? mu_dataset_batch(samples, source->batch_size) : NULL;
}
