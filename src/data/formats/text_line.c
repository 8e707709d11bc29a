// Lines of text files as strings, plain or gzip, without line feeds and carriage returns.
#include "data/formats/filenames.h"

enum { BUFFER_BYTES = 65536, MOST_LINE_BYTES = 1 << 28 };

typedef struct line_state {
    mu_file_stream *stream;
    uint8_t *buffer;
    size_t at, n;
    struct {
        char *items;
        size_t n, capacity;
    } line;
} line_state;

static mu_status line_open(mu_stage *stage)
{
    line_state *state = stage->state;
    state->buffer = mu__alloc(BUFFER_BYTES);
    return state->buffer != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static void line_close(mu_stage *stage)
{
    line_state *state = stage->state;
    mu__file_stream_close(state->stream);
    mu__free(state->buffer);
    mu__free(state->line.items);
}

// TensorFlow leaves out every carriage return, not only one in front of a line feed.
static mu_status add(line_state *state, const uint8_t *from, size_t n)
{
    if (n > MOST_LINE_BYTES - state->line.n)
        return mu__error(MU_DATA_LOSS, "%s: a line of more than %d bytes; is it a text file?",
                         mu__file_stream_path(state->stream), MOST_LINE_BYTES);
    MU_TRY(mu__grow((void **)&state->line.items, &state->line.capacity, state->line.n + n + 1, 1));
    while (n > 0) {
        const uint8_t *stop = memchr(from, '\r', n);
        const size_t part = stop != NULL ? (size_t)(stop - from) : n, passed = part + (stop != NULL);
        memcpy(state->line.items + state->line.n, from, part);
        state->line.n += part;
        from += passed;
        n -= passed;
    }
    return MU_OK;
}

// Reads up to the end of a line; *file_ended without a line, or with an empty one that has no end.
static mu_status read_line(line_state *state, bool *file_ended)
{
    for (state->line.n = 0;;) {
        if (state->at == state->n) {
            state->at = 0;
            MU_TRY(mu__file_stream_read(state->stream, state->buffer, BUFFER_BYTES, &state->n));
            *file_ended = state->n == 0 && state->line.n == 0;
            if (state->n == 0)
                return MU_OK;
        }
        const uint8_t *from = state->buffer + state->at, *end = memchr(from, '\n', state->n - state->at);
        const size_t n = end != NULL ? (size_t)(end - from) : state->n - state->at;
        MU_TRY(add(state, from, n));
        state->at += n + (end != NULL);
        if (end != NULL)
            return MU_OK;
    }
}

static mu_status next_line(mu_stage *stage, bool *end)
{
    line_state *state = stage->state;
    for (bool file_ended = false;; file_ended = false) {
        if (state->stream == NULL) {
            state->at = state->n = 0;
            MU_TRY(mu__files_next(stage, &state->stream, end));
        }
        if (*end)
            return MU_OK;
        MU_TRY(read_line(state, &file_ended));
        if (!file_ended)
            return MU_OK;
        mu__file_stream_close(state->stream);
        state->stream = NULL;
    }
}

static mu_status line_next(mu_stage *stage, mu_item *item, bool *end)
{
    line_state *state = stage->state;
    const mu_status status = next_line(stage, end);
    if (status != MU_OK) { // continue with the next file
        mu__file_stream_close(state->stream);
        state->stream = NULL;
    }
    if (status != MU_OK || *end)
        return status;
    item->value = mu__leaf_value(mu__strings_text(state->line.items, state->line.n));
    return item->value != NULL ? MU_OK : mu_error_code();
}

static mu_value *line_spec(const mu_dataset *dataset)
{
    (void)dataset;
    return mu__spec_leaf(MU_STRING, &mu__scalar_shape);
}

const mu_stage_ops mu__text_line_stage = {
    .name = "text_line",
    .state_bytes = sizeof(line_state),
    .open = line_open,
    .next = line_next,
    .close = line_close,
    .spec = line_spec,
    .opens_files = true,
};

mu_dataset *mu_dataset_text_lines(mu_dataset *paths) { return mu__dataset_stage(&mu__text_line_stage, NULL, paths); }

mu_dataset *mu_dataset_text_line(const char *path)
{
    mu_dataset *paths = mu__files_one(path, "mu_dataset_text_line");
    return paths != NULL ? mu_dataset_text_lines(paths) : NULL;
}
