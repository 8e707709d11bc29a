// The TFRecord format: length, checksum of the length, bytes, checksum of the bytes; plain or gzip.
//
// A record is read in growing steps, so a false length costs no more memory than the file holds.
#include "data/formats/tfrecord.h"

#include "data/formats/crc32c.h"
#include "data/formats/filenames.h"

#define FIRST_STEP ((size_t)1 << 20)

// ---- Records ------------------------------------------------------------------------------------

static mu_status damaged(const mu_record_reader *reader, const char *what)
{
    return mu__error(MU_DATA_LOSS, "%s: %s near byte %llu; is it a TFRecord file, and whole?",
                     mu__file_stream_path(reader->stream), what,
                     (unsigned long long)mu__file_stream_at(reader->stream));
}

// Reads the header; *end at the end of the file.
static mu_status read_length(mu_record_reader *reader, uint64_t *length, bool *end)
{
    uint8_t header[12];
    size_t got = 0;
    MU_TRY(mu__file_stream_read(reader->stream, header, sizeof header, &got));
    *end = got == 0;
    if (*end)
        return MU_OK;
    if (got < sizeof header)
        return damaged(reader, "the length of a record is cut off");
    mu_cursor cursor = mu__cursor(header, sizeof header);
    *length = mu__cursor_u64_little(&cursor);
    if (mu__cursor_u32_little(&cursor) != mu__crc32c_mask(mu__crc32c(0, header, 8)))
        return damaged(reader, "the checksum of a record's length does not fit");
    if (*length > mu__file_stream_most(reader->stream))
        return damaged(reader, "a record claims to be longer than its file");
    return MU_OK;
}

static mu_status read_bytes(mu_record_reader *reader, size_t bytes)
{
    uint8_t checksum[4];
    size_t got = 0;
    for (reader->n = 0; reader->n < bytes; reader->n += got) {
        size_t step = MU_MIN(bytes - reader->n, MU_MAX(FIRST_STEP, reader->n));
        MU_TRY(mu__grow((void **)&reader->items, &reader->capacity, reader->n + step, 1));
        MU_TRY(mu__file_stream_read(reader->stream, reader->items + reader->n, step, &got));
        if (got < step)
            return damaged(reader, "a record is cut off");
    }
    MU_TRY(mu__file_stream_read(reader->stream, checksum, sizeof checksum, &got));
    mu_cursor cursor = mu__cursor(checksum, got);
    uint32_t wanted = mu__cursor_u32_little(&cursor);
    if (cursor.bad || wanted != mu__crc32c_mask(mu__crc32c(0, reader->items, bytes)))
        return damaged(reader,
                       cursor.bad ? "the checksum of a record is cut off" : "the checksum of a record does not fit");
    return MU_OK;
}

mu_status mu__record_read(mu_record_reader *reader, bool *end)
{
    uint64_t length = 0;
    MU_TRY(read_length(reader, &length, end));
    return *end ? MU_OK : read_bytes(reader, (size_t)length);
}

void mu__record_close(mu_record_reader *reader)
{
    mu__file_stream_close(reader->stream);
    mu__free(reader->items);
    *reader = (mu_record_reader){0};
}

static void put_little(uint8_t *out, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++, value >>= 8)
        out[i] = (uint8_t)value;
}

mu_status mu__record_write(mu_file_writer *file, const void *head, size_t head_bytes, const void *body,
                           size_t body_bytes)
{
    uint8_t header[12], checksum[4];
    put_little(header, head_bytes + body_bytes, 8);
    put_little(header + 8, mu__crc32c_mask(mu__crc32c(0, header, 8)), 4);
    put_little(checksum, mu__crc32c_mask(mu__crc32c(mu__crc32c(0, head, head_bytes), body, body_bytes)), 4);
    MU_TRY(mu__file_write(file, header, sizeof header));
    MU_TRY(mu__file_write(file, head, head_bytes));
    MU_TRY(mu__file_write(file, body, body_bytes));
    return mu__file_write(file, checksum, sizeof checksum);
}

// ---- The stage ----------------------------------------------------------------------------------

static void close_file(mu_record_reader *reader)
{
    mu__file_stream_close(reader->stream);
    reader->stream = NULL;
}

static void records_close(mu_stage *stage) { mu__record_close(stage->state); }

// Reads the next record, from this file or the next one.
static mu_status next_record(mu_stage *stage, bool *end)
{
    mu_record_reader *reader = stage->state;
    for (;;) {
        bool file_ended = false;
        if (reader->stream == NULL)
            MU_TRY(mu__files_next(stage, &reader->stream, end));
        if (*end)
            return MU_OK;
        MU_TRY(mu__record_read(reader, &file_ended));
        if (!file_ended)
            return MU_OK;
        close_file(reader);
    }
}

static mu_status records_next(mu_stage *stage, mu_item *item, bool *end)
{
    mu_record_reader *reader = stage->state;
    mu_status status = next_record(stage, end);
    if (status != MU_OK) // data after damage cannot be trusted: continue with the next file
        close_file(reader);
    if (status != MU_OK || *end)
        return status;
    mu_shape shape = mu_shape_make(1, (int64_t[]){(int64_t)reader->n});
    mu_tensor *tensor = mu__tensor_alloc(MU_U8, &shape);
    if (tensor != NULL && reader->n > 0)
        memcpy(mu__host_write(tensor), reader->items, reader->n);
    item->value = mu__leaf_value(tensor);
    return item->value != NULL ? MU_OK : mu_error_code();
}

static mu_value *records_spec(const mu_dataset *dataset)
{
    (void)dataset;
    return mu__spec_leaf(MU_U8, &(mu_shape){.rank = 1, .dims = {MU_UNKNOWN}});
}

const mu_stage_ops mu__tfrecord_stage = {
    .name = "tfrecord",
    .state_bytes = sizeof(mu_record_reader),
    .next = records_next,
    .close = records_close,
    .spec = records_spec,
    .opens_files = true,
};

mu_dataset *mu_dataset_tfrecords(mu_dataset *paths) { return mu__dataset_stage(&mu__tfrecord_stage, NULL, paths); }

mu_dataset *mu_dataset_tfrecord(const char *path)
{
    mu_dataset *paths = mu__files_one(path, "mu_dataset_tfrecord");
    return paths != NULL ? mu_dataset_tfrecords(paths) : NULL;
}
