// The IDX format (of MNIST), and the data sets in it.
//
// A thread inflates the files, which may have tens of megabytes, while the program builds its model. A gather waits
// only for the rows that it needs. The last rows count as read only after the checksum.
#include "data/formats/idx.h"

#include "data/dataset.h"
#include "data/formats/file_stream.h"

#include <pthread.h>

#define CHUNK_BYTES ((size_t)1 << 20)

struct mu_idx {
    mu_file_stream *stream;
    mu_spec spec;
    size_t row_bytes, bytes;
    uint8_t *data;
    mu_worker *reader;
    pthread_mutex_t lock;
    pthread_cond_t more;
    atomic_size_t ready; // bytes in memory, in the machine's order
    atomic_bool stop, failed;
    mu_error_value error; // guarded by lock until `failed`
};

// ---- Header -------------------------------------------------------------------------------------

static mu_dtype dtype_of_code(uint8_t code)
{
    static const struct {
        uint8_t code;
        mu_dtype dtype;
    } types[] = {{0x08, MU_U8}, {0x09, MU_I8}, {0x0b, MU_I16}, {0x0c, MU_I32}, {0x0d, MU_F32}, {0x0e, MU_F64}};
    for (size_t i = 0; i < MU_COUNT(types); i++)
        if (types[i].code == code)
            return types[i].dtype;
    return MU_DTYPE_DEFAULT;
}

static mu_status read_exactly(mu_idx *idx, void *data, size_t bytes, const char *what)
{
    size_t got = 0;
    MU_TRY(mu__file_stream_read(idx->stream, data, bytes, &got));
    if (got == bytes)
        return MU_OK;
    return mu__error(MU_DATA_LOSS, "%s ends at byte %llu, in %s: %zu bytes seen, %zu expected; get the file again",
                     mu__file_stream_path(idx->stream), (unsigned long long)mu__file_stream_at(idx->stream), what, got,
                     bytes);
}

static mu_status check_size(mu_idx *idx)
{
    const char *path = mu__file_stream_path(idx->stream);
    uint64_t most = mu__file_stream_most(idx->stream), bytes = mu_dtype_bytes(idx->spec.dtype);
    for (int i = idx->spec.shape.rank - 1; i >= 0; i--) {
        uint64_t dim = (uint64_t)idx->spec.shape.dims[i];
        if (i == 0)
            idx->row_bytes = (size_t)bytes;
        if (dim > 0 && bytes > most / dim) {
            char text[MU_SHAPE_TEXT];
            return mu__error(MU_DATA_LOSS,
                             "%s: the header at byte 4 claims %s elements of %zu bytes, the file can hold at most %llu "
                             "bytes; get the file again",
                             path, mu__shape_text(&idx->spec.shape, text), mu_dtype_bytes(idx->spec.dtype),
                             (unsigned long long)most);
        }
        bytes *= dim;
    }
    if (idx->row_bytes == 0)
        return mu__error(MU_DATA_LOSS, "%s: the header at byte 8 has a dimension of 0; get the file again", path);
    idx->bytes = (size_t)bytes;
    return MU_OK;
}

static mu_status read_header(mu_idx *idx)
{
    uint8_t magic[4] = {0}, dims[4 * MU_MAX_RANK];
    const char *path = mu__file_stream_path(idx->stream);
    MU_TRY(read_exactly(idx, magic, sizeof magic, "the magic number"));
    idx->spec.dtype = dtype_of_code(magic[2]);
    if (magic[0] != 0 || magic[1] != 0 || idx->spec.dtype == MU_DTYPE_DEFAULT || magic[3] < 1 || magic[3] > MU_MAX_RANK)
        return mu__error(MU_DATA_LOSS,
                         "%s is not an IDX file: it begins with %02x %02x %02x %02x; expected 00 00, a type (08, 09, "
                         "0b to 0e) and a rank (01 to %02x)",
                         path, magic[0], magic[1], magic[2], magic[3], MU_MAX_RANK);
    idx->spec.shape.rank = magic[3];
    MU_TRY(read_exactly(idx, dims, 4u * magic[3], "the dimensions"));
    mu_cursor cursor = mu__cursor(dims, 4u * magic[3]);
    for (int i = 0; i < idx->spec.shape.rank; i++)
        idx->spec.shape.dims[i] = mu__cursor_u32_big(&cursor);
    return check_size(idx);
}

// ---- Elements -----------------------------------------------------------------------------------

static bool little_endian(void)
{
    const uint16_t probe = 1;
    return *(const uint8_t *)&probe == 1;
}

static mu_status check_end(mu_idx *idx)
{
    uint8_t extra;
    size_t got = 0;
    MU_TRY(mu__file_stream_read(idx->stream, &extra, 1, &got));
    if (got == 0)
        return MU_OK;
    return mu__error(MU_DATA_LOSS, "%s continues after byte %llu, where its header says it ends; get the file again",
                     mu__file_stream_path(idx->stream), (unsigned long long)mu__file_stream_at(idx->stream) - 1);
}

static mu_status read_chunk(mu_idx *idx, size_t at)
{
    size_t bytes = MU_MIN(CHUNK_BYTES, idx->bytes - at);
    MU_TRY(read_exactly(idx, idx->data + at, bytes, "the elements"));
    if (little_endian() && mu_dtype_bytes(idx->spec.dtype) > 1)
        mu__swap_bytes(idx->data + at, bytes, mu_dtype_bytes(idx->spec.dtype));
    return at + bytes == idx->bytes ? check_end(idx) : MU_OK;
}

static void read_all(void *arg)
{
    mu_idx *idx = arg;
    size_t at = 0;
    while (at < idx->bytes && !atomic_load(&idx->stop)) {
        mu_status status = read_chunk(idx, at);
        at = MU_MIN(at + CHUNK_BYTES, idx->bytes);
        pthread_mutex_lock(&idx->lock);
        if (status == MU_OK)
            atomic_store_explicit(&idx->ready, at, memory_order_release);
        else
            mu__error_move(&idx->error);
        atomic_store(&idx->failed, status != MU_OK);
        pthread_cond_broadcast(&idx->more);
        pthread_mutex_unlock(&idx->lock);
        if (status != MU_OK)
            return;
    }
}

static mu_status wait_more(mu_idx *idx, size_t wanted)
{
    int64_t deadline_ns = mu__deadline_ns(mu__setting_real(MU_SETTING_TIMEOUT));
    mu_status status = MU_OK;
    pthread_mutex_lock(&idx->lock);
    while (status == MU_OK && !atomic_load(&idx->failed) && atomic_load(&idx->ready) < wanted) {
        const bool late = !mu__condition_wait(&idx->more, &idx->lock, deadline_ns);
        status = mu__check_stop();
        if (status == MU_OK && late)
            status = mu__error(MU_DEADLINE_EXCEEDED,
                               "%s is read only up to byte %zu of %zu after %g s; is its disk or network well?",
                               mu__file_stream_path(idx->stream), atomic_load(&idx->ready), idx->bytes,
                               mu__setting_real(MU_SETTING_TIMEOUT));
    }
    bool damaged = status == MU_OK && atomic_load(&idx->ready) < wanted;
    pthread_mutex_unlock(&idx->lock);
    return damaged ? mu__error_raise(&idx->error) : status;
}

mu_status mu__idx_wait(mu_idx *idx, int64_t end)
{
    size_t wanted = (size_t)end * idx->row_bytes;
    return atomic_load_explicit(&idx->ready, memory_order_acquire) >= wanted ? MU_OK : wait_more(idx, wanted);
}

mu_idx *mu__idx_open(const char *path)
{
    mu_idx *idx = mu__calloc(1, sizeof *idx);
    if (idx == NULL)
        return NULL;
    pthread_mutex_init(&idx->lock, NULL);
    mu__condition_init(&idx->more);
    idx->stream = mu__file_stream_open(path);
    if (idx->stream == NULL || read_header(idx) != MU_OK || (idx->data = mu__alloc_data(idx->bytes)) == NULL)
        goto failed;
    idx->reader = mu__worker_new("read", NULL, 0, mu__runtime());
    if (idx->reader == NULL || mu__worker_post(idx->reader, read_all, idx) != MU_OK)
        goto failed;
    return idx;
failed:
    mu__idx_close(idx);
    return NULL;
}

void mu__idx_close(mu_idx *idx)
{
    if (idx == NULL)
        return;
    atomic_store(&idx->stop, true);
    if (idx->reader != NULL)
        mu__worker_free(idx->reader);
    mu__file_stream_close(idx->stream);
    if (idx->data != NULL)
        mu__free_data(idx->data, idx->bytes);
    pthread_cond_destroy(&idx->more);
    pthread_mutex_destroy(&idx->lock);
    mu__free(idx);
}

const mu_spec *mu__idx_spec(const mu_idx *idx) { return &idx->spec; }

const void *mu__idx_data(const mu_idx *idx) { return idx->data; }

// ---- IDX files as rows --------------------------------------------------------------------------

#define MOST_FILES 2
typedef struct idx_set {
    mu_idx *files[MOST_FILES];
} idx_set;

static void set_free(void *source)
{
    idx_set *set = source;
    for (int i = 0; i < MOST_FILES; i++)
        mu__idx_close(set->files[i]);
    mu__free(set);
}

static mu_status set_ready(mu_rows *rows, int64_t end)
{
    idx_set *set = rows->source;
    for (int i = 0; i < rows->n_columns; i++)
        MU_TRY(mu__idx_wait(set->files[i], end));
    return MU_OK;
}

// A dataset over files of equal length, one column per file, returned as `specs`; takes ownership of the set.
static mu_dataset *set_dataset(idx_set *set, int n, const mu_spec *specs, const int *divisors)
{
    mu_value *leaves[MOST_FILES] = {0};
    for (int i = 0; i < n; i++)
        leaves[i] = mu__spec_leaf(specs[i].dtype, &specs[i].shape);
    mu_value *spec = n == 1 ? leaves[0] : mu__list_value(n, leaves);
    mu_rows *rows = mu__rows_new(mu__idx_spec(set->files[0])->shape.dims[0], n, spec, set, set_free);
    if (rows == NULL)
        return NULL;
    rows->ready = set_ready;
    for (int i = 0; i < n; i++)
        rows->columns[i] = (mu_column){.data = mu__idx_data(set->files[i]),
                                       .stored = mu__idx_spec(set->files[i])->dtype,
                                       .spec = specs[i],
                                       .divisor = divisors[i]};
    return mu__dataset_of_rows(rows, false);
}

mu_dataset *mu_dataset_idx(const char *path)
{
    if (mu__pending())
        return NULL;
    if (path == NULL) {
        mu__error(MU_INVALID_ARGUMENT, "mu_dataset_idx got no path (NULL); give the path of an IDX file");
        return NULL;
    }
    idx_set *set = mu__calloc(1, sizeof *set);
    if (set == NULL || (set->files[0] = mu__idx_open(path)) == NULL) {
        mu__free(set);
        return NULL;
    }
    mu_spec row = *mu__idx_spec(set->files[0]);
    row.shape = mu_shape_make(row.shape.rank - 1, row.shape.dims + 1);
    return set_dataset(set, 1, &row, (int[]){1});
}

// ---- Fashion-MNIST ------------------------------------------------------------------------------

static mu_idx *open_fashion_file(const char *prefix, const char *kind)
{
    char *path = mu__sprintf("%s/fashion-mnist/%s-%s-ubyte.gz", mu__setting_text(MU_SETTING_DATA_DIR), prefix, kind);
    mu_idx *idx = path != NULL ? mu__idx_open(path) : NULL;
    if (path != NULL && idx == NULL && mu_error_code() == MU_NOT_FOUND)
        mu__error_context("install the Debian package dataset-fashion-mnist or set MUSTER_DATA_DIR");
    mu__free(path);
    return idx;
}

static mu_status check_fashion(const idx_set *set, const char *split)
{
    const mu_spec *images = mu__idx_spec(set->files[0]), *labels = mu__idx_spec(set->files[1]);
    char text[MU_SHAPE_TEXT];
    if (images->dtype != MU_U8 || images->shape.rank != 3 || images->shape.dims[1] != 28 || images->shape.dims[2] != 28)
        return mu__error(MU_DATA_LOSS, "the images of Fashion-MNIST %s are %s %s; expected uint8 [n, 28, 28]", split,
                         mu_dtype_name(images->dtype), mu__shape_text(&images->shape, text));
    if (labels->dtype != MU_U8 || labels->shape.rank != 1)
        return mu__error(MU_DATA_LOSS, "the labels of Fashion-MNIST %s are %s %s; expected uint8 [n]", split,
                         mu_dtype_name(labels->dtype), mu__shape_text(&labels->shape, text));
    if (images->shape.dims[0] != labels->shape.dims[0])
        return mu__error(MU_DATA_LOSS,
                         "Fashion-MNIST %s has %lld images and %lld labels; the files do not belong together", split,
                         (long long)images->shape.dims[0], (long long)labels->shape.dims[0]);
    return MU_OK;
}

mu_dataset *mu_dataset_fashion_mnist(const char *split)
{
    if (mu__pending())
        return NULL;
    bool train = split != NULL && strcmp(split, "train") == 0;
    if (!train && (split == NULL || strcmp(split, "test") != 0)) {
        mu__error(MU_INVALID_ARGUMENT, "Fashion-MNIST has no part \"%s\"; expected \"train\" or \"test\"",
                  split != NULL ? split : "(NULL)");
        return NULL;
    }
    idx_set *set = mu__calloc(1, sizeof *set);
    if (set == NULL)
        return NULL;
    const char *prefix = train ? "train" : "t10k";
    if ((set->files[0] = open_fashion_file(prefix, "images-idx3")) == NULL ||
        (set->files[1] = open_fashion_file(prefix, "labels-idx1")) == NULL || check_fashion(set, split) != MU_OK) {
        set_free(set);
        return NULL;
    }
    const mu_spec specs[] = {{MU_F32, MU_SHAPE(28, 28, 1)}, {MU_I32, mu__scalar_shape}};
    return set_dataset(set, 2, specs, (int[]){255, 1});
}
