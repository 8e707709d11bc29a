// Records of one length from binary files, plain or gzip, between a header and a footer of known lengths (CIFAR's
// format, for one). A window holds a record and the following footer, so the end of a file need not be known
// beforehand.
#include "data/formats/filenames.h"

enum { MOST_RECORD_BYTES = 1 << 28 };

static const char function[] = "mu_dataset_fixed_length_record";

typedef struct record_args {
    int64_t record, header, footer; // bytes
} record_args;

typedef struct record_state {
    mu_file_stream *stream;
    uint8_t *window; // of a record and the footer
    size_t n;        // bytes in it
} record_state;

static const mu_sent_field record_sent[] = {MU_SENDS_INT(record_args, record, 1, MOST_RECORD_BYTES),
                                            MU_SENDS_INT(record_args, header, 0, INT64_MAX),
                                            MU_SENDS_INT(record_args, footer, 0, MOST_RECORD_BYTES),
                                            {.kind = MU_SENT_END}};

static const record_args *args_of(const mu_stage *stage) { return stage->dataset->args; }

static size_t window_bytes(const record_args *args) { return (size_t)(args->record + args->footer); }

static mu_status record_open(mu_stage *stage)
{
    record_state *state = stage->state;
    state->window = mu__alloc(window_bytes(args_of(stage)));
    return state->window != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static void close_file(record_state *state)
{
    mu__file_stream_close(state->stream);
    state->stream = NULL;
    state->n = 0;
}

static void record_close(mu_stage *stage)
{
    record_state *state = stage->state;
    close_file(state);
    mu__free(state->window);
}

// Reads until there are `wanted` bytes in the window, or the file ends.
static mu_status fill(record_state *state, size_t wanted)
{
    for (size_t got = 1; state->n < wanted && got > 0; state->n += got)
        MU_TRY(mu__file_stream_read(state->stream, state->window + state->n, wanted - state->n, &got));
    return MU_OK;
}

static mu_status skip_header(record_state *state, const record_args *args)
{
    for (int64_t left = args->header; left > 0; left -= (int64_t)state->n) {
        state->n = 0;
        MU_TRY(fill(state, MU_MIN((size_t)left, window_bytes(args))));
        if (state->n == 0)
            return mu__error(MU_DATA_LOSS, "%s: the file ends in its header of %lld bytes",
                             mu__file_stream_path(state->stream), (long long)args->header);
    }
    state->n = 0;
    return MU_OK;
}

// Fills the window with the next record, of this file or the next one.
static mu_status next_record(mu_stage *stage, bool *end)
{
    record_state *state = stage->state;
    const record_args *args = args_of(stage);
    for (;;) {
        if (state->stream == NULL) {
            MU_TRY(mu__files_next(stage, &state->stream, end));
            if (*end)
                return MU_OK;
            MU_TRY(skip_header(state, args));
        }
        MU_TRY(fill(state, window_bytes(args)));
        if (state->n == window_bytes(args))
            return MU_OK;
        if (state->n != (size_t)args->footer)
            return mu__error(MU_DATA_LOSS,
                             "%s: %zu bytes are behind the last whole record of %lld bytes; expected a footer of %lld. "
                             "Check record_bytes, header_bytes and footer_bytes",
                             mu__file_stream_path(state->stream), state->n, (long long)args->record,
                             (long long)args->footer);
        close_file(state);
    }
}

static mu_status record_next(mu_stage *stage, mu_item *item, bool *end)
{
    record_state *state = stage->state;
    const record_args *args = args_of(stage);
    const mu_status status = next_record(stage, end);
    if (status != MU_OK) // continue with the next file
        close_file(state);
    if (status != MU_OK || *end)
        return status;
    mu_tensor *tensor = mu__tensor_alloc(MU_U8, &(mu_shape){.rank = 1, .dims = {args->record}});
    if (tensor != NULL)
        memcpy(mu__host_write(tensor), state->window, (size_t)args->record);
    state->n = (size_t)args->footer;
    memmove(state->window, state->window + args->record, state->n);
    item->value = mu__leaf_value(tensor);
    return item->value != NULL ? MU_OK : mu_error_code();
}

static mu_value *record_spec(const mu_dataset *dataset)
{
    return mu__spec_leaf(MU_U8, &(mu_shape){.rank = 1, .dims = {((const record_args *)dataset->args)->record}});
}

const mu_stage_ops mu__fixed_length_record_stage = {
    .name = "fixed_length_record",
    .state_bytes = sizeof(record_state),
    .args_bytes = sizeof(record_args),
    .sent = record_sent,
    .open = record_open,
    .next = record_next,
    .close = record_close,
    .spec = record_spec,
    .opens_files = true,
};

static mu_status check(const mu_dataset_fixed_length_record_args *a)
{
    if ((a->path != NULL) == (a->paths != NULL))
        return mu__error(MU_INVALID_ARGUMENT, "%s got %s; give a path or a dataset of paths", function,
                         a->path != NULL ? "a path and .paths" : "neither a path nor .paths");
    const bool large = a->record_bytes > MOST_RECORD_BYTES || a->footer_bytes > MOST_RECORD_BYTES;
    if (a->record_bytes >= 1 && a->header_bytes >= 0 && a->footer_bytes >= 0 && !large)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: record_bytes %lld, header_bytes %lld, footer_bytes %lld; expected a record of 1 to %d bytes, "
                     "a header of 0 or more, and a footer of 0 to %d",
                     function, (long long)a->record_bytes, (long long)a->header_bytes, (long long)a->footer_bytes,
                     MOST_RECORD_BYTES, MOST_RECORD_BYTES);
}

mu_dataset *mu_dataset_fixed_length_record_with(const mu_dataset_fixed_length_record_args *given)
{
    mu_dataset_fixed_length_record_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, given, function) != MU_OK || check(&a) != MU_OK)
        return NULL;
    mu_dataset *paths = a.paths != NULL ? a.paths : mu__files_one(a.path, function);
    const record_args args = {a.record_bytes, a.header_bytes, a.footer_bytes};
    return paths != NULL ? mu__dataset_stage(&mu__fixed_length_record_stage, &args, paths) : NULL;
}
