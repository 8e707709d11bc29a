// The TFRecord format: length, checksum of the length, bytes, checksum of the bytes; plain or gzip.
//
// A record is read in growing steps, so a false length costs no more memory than the file holds.
#include "data/crc32c.h"
#include "data/files.h"

#define FIRST_STEP ((size_t)1 << 20)

typedef struct records_state {
    mu_stream *stream;
    struct {
        uint8_t *items;
        size_t n, capacity;
    } record;
} records_state;

static void close_file(records_state *state)
{
    mu__stream_close(state->stream);
    state->stream = NULL;
}

static void records_close(mu_stage *stage)
{
    records_state *state = stage->state;
    close_file(state);
    mu__free(state->record.items);
}

static mu_status damaged(const records_state *state, const char *what)
{
    return mu__error(MU_DATA_LOSS, "%s: %s near byte %llu; is it a TFRecord file, and whole?", mu__stream_path(state->stream), what,
                     (unsigned long long)mu__stream_at(state->stream));
}

// Reads the header; *end at the end of the file.
static mu_status read_length(records_state *state, uint64_t *length, bool *end)
{
    uint8_t header[12];
    size_t got = 0;
    MU_TRY(mu__stream_read(state->stream, header, sizeof header, &got));
    *end = got == 0;
    if (*end)
        return MU_OK;
    if (got < sizeof header)
        return damaged(state, "the length of a record is cut off");
    mu_cursor cursor = mu__cursor(header, sizeof header);
    *length = mu__cursor_u64_little(&cursor);
    if (mu__cursor_u32_little(&cursor) != mu__crc32c_mask(mu__crc32c(0, header, 8)))
        return damaged(state, "the checksum of a record's length does not fit");
    if (*length > mu__stream_most(state->stream))
        return damaged(state, "a record claims to be longer than its file");
    return MU_OK;
}

static mu_status read_bytes(records_state *state, size_t bytes)
{
    uint8_t checksum[4];
    size_t got = 0;
    for (state->record.n = 0; state->record.n < bytes; state->record.n += got) {
        size_t step = MU_MIN(bytes - state->record.n, MU_MAX(FIRST_STEP, state->record.n));
        MU_TRY(mu__grow((void **)&state->record.items, &state->record.capacity, state->record.n + step, 1));
        MU_TRY(mu__stream_read(state->stream, state->record.items + state->record.n, step, &got));
        if (got < step)
            return damaged(state, "a record is cut off");
    }
    MU_TRY(mu__stream_read(state->stream, checksum, sizeof checksum, &got));
    mu_cursor cursor = mu__cursor(checksum, got);
    uint32_t wanted = mu__cursor_u32_little(&cursor);
    if (cursor.bad || wanted != mu__crc32c_mask(mu__crc32c(0, state->record.items, bytes)))
        return damaged(state, cursor.bad ? "the checksum of a record is cut off" : "the checksum of a record does not fit");
    return MU_OK;
}

// Finds the next record, in this file or a later one.
static mu_status next_length(mu_stage *stage, uint64_t *length, bool *end)
{
    records_state *state = stage->state;
    for (;;) {
        if (state->stream == NULL)
            MU_TRY(mu__files_next(stage, &state->stream, end));
        if (*end)
            return MU_OK;
        bool file_ended = false;
        MU_TRY(read_length(state, length, &file_ended));
        if (!file_ended)
            return MU_OK;
        close_file(state);
    }
}

static mu_status records_next(mu_stage *stage, mu_item *item, bool *end)
{
    records_state *state = stage->state;
    uint64_t length = 0;
    mu_status status = next_length(stage, &length, end);
    if (status == MU_OK && !*end)
        status = read_bytes(state, (size_t)length);
    if (status != MU_OK) {  // nothing behind a damaged place can be trusted: go on with the next file
        close_file(state);
        return status;
    }
    if (*end)
        return MU_OK;
    mu_shape shape = mu_shape_make(1, (int64_t[]){(int64_t)length});
    mu_tensor *tensor = mu__tensor_alloc(MU_U8, &shape);
    if (tensor != NULL && length > 0)
        memcpy(mu__data(tensor), state->record.items, (size_t)length);
    item->value = mu__leaf_value(tensor);
    return item->value != NULL ? MU_OK : mu_error_code();
}

static mu_value *records_spec(const mu_dataset *dataset)
{
    (void)dataset;
    return mu__spec_leaf(MU_U8, &(mu_shape){.rank = 1, .dims = {MU_UNKNOWN}});
}

const mu_stage_ops mu__stage_records = {
    .name = "tfrecord", .state_bytes = sizeof(records_state), .next = records_next, .close = records_close,
    .spec = records_spec,
};

mu_dataset *mu_dataset_tfrecords(mu_dataset *paths)
{
    return mu__dataset_stage(&mu__stage_records, &(mu_stage_args){0}, paths);
}

mu_dataset *mu_dataset_tfrecord(const char *path)
{
    mu_dataset *paths = mu__files_one(path, "mu_dataset_tfrecord");
    return paths != NULL ? mu_dataset_tfrecords(paths) : NULL;
}
