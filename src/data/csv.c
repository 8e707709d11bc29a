// Reads lines of numbers in CSV format (RFC 4180): quotes, doubled quotes, either line end; plain or gzip.
//
// Characters are read through a small buffer, and fields collected in another, so no line is stored and a field has a
// fixed limit. Numbers are read in the C locale, whatever the program's locale is.
#include "data/filenames.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>

#define BUFFER_BYTES 65536
#define MOST_FIELD_BYTES 512

typedef struct csv_args {
    mu_numbers dtypes;     // of each column; owned
    bool scalars;          // an element is a list of scalars; else one vector of float32
    int64_t header_lines;  // lines skipped at the start of each file
    char delimiter;
} csv_args;

static const mu_owned_field csv_owned[] = {{MU_OWNS_NUMBERS, offsetof(csv_args, dtypes)}, {MU_OWNS_END, 0}};

static const csv_args *args_of(const mu_stage *stage)
{
    return stage->dataset->args;
}

typedef struct csv_state {
    mu_file_stream *stream;
    uint8_t *buffer;
    size_t at, n;
    int64_t line;
    locale_t c_locale;
    int pushed;                     // a character put back; 0: none
    char field[MOST_FIELD_BYTES];
} csv_state;

enum { END_OF_FILE = -1 };
typedef enum field_end { FIELD_MORE, FIELD_LINE, FIELD_FILE } field_end;

static mu_status csv_open(mu_stage *stage)
{
    csv_state *state = stage->state;
    state->buffer = mu__alloc(BUFFER_BYTES);
    state->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (state->c_locale == (locale_t)0)
        return mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the C locale");
    return state->buffer != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static void close_file(csv_state *state)
{
    mu__file_stream_close(state->stream);
    state->stream = NULL;
}

static void csv_close(mu_stage *stage)
{
    csv_state *state = stage->state;
    close_file(state);
    mu__free(state->buffer);
    if (state->c_locale != (locale_t)0)
        freelocale(state->c_locale);
}

static mu_status next_character(csv_state *state, int *character)
{
    if (state->pushed != 0) {
        *character = state->pushed;
        state->pushed = 0;
        return MU_OK;
    }
    if (state->at == state->n) {
        state->at = 0;
        MU_TRY(mu__file_stream_read(state->stream, state->buffer, BUFFER_BYTES, &state->n));
    }
    *character = state->at < state->n ? state->buffer[state->at++] : END_OF_FILE;
    return MU_OK;
}

static mu_status damaged(const csv_state *state, int column, const char *what)
{
    return mu__error(MU_DATA_LOSS, "%s, line %lld, column %d: %s", mu__file_stream_path(state->stream),
                     (long long)state->line, column + 1, what);
}

// ---- Fields -------------------------------------------------------------------------------------

// Reads a quoted field, after the opening quote.
static mu_status read_quoted(csv_state *state, int column, size_t *n)
{
    for (;;) {
        int c;
        MU_TRY(next_character(state, &c));
        if (c == END_OF_FILE)
            return damaged(state, column, "the file ends inside quotes");
        if (c == '"') {
            MU_TRY(next_character(state, &c));
            if (c != '"') {
                state->pushed = c == END_OF_FILE ? 0 : c;
                return MU_OK;
            }
        }
        if (*n + 1 == MOST_FIELD_BYTES)
            return damaged(state, column, "the field is too long for a number");
        state->field[(*n)++] = (char)c;
    }
}

static mu_status read_field(csv_state *state, int column, char delimiter, field_end *ended)
{
    size_t n = 0;
    for (;;) {
        int c;
        MU_TRY(next_character(state, &c));
        if (c == '"' && n == 0) {
            MU_TRY(read_quoted(state, column, &n));
            continue;
        }
        if (c == '\r')
            continue;
        if (c == END_OF_FILE || c == '\n' || c == delimiter) {
            *ended = c == delimiter ? FIELD_MORE : c == '\n' ? FIELD_LINE : FIELD_FILE;
            state->field[n] = 0;
            return MU_OK;
        }
        if (n + 1 == MOST_FIELD_BYTES)
            return damaged(state, column, "the field is too long for a number");
        state->field[n++] = (char)c;
    }
}

static mu_status field_error(const csv_state *state, int column, mu_dtype dtype)
{
    return mu__error(MU_DATA_LOSS, "%s, line %lld, column %d: \"%.40s\" is not a valid %s",
                     mu__file_stream_path(state->stream),
                     (long long)state->line, column + 1, state->field, mu_dtype_name(dtype));
}

static mu_status store_number(const csv_state *state, int column, mu_dtype dtype, void *data, int64_t index)
{
    char *rest = NULL;
    errno = 0;
    if (mu__dtype_is_float(dtype)) {
        double value = strtod_l(state->field, &rest, state->c_locale);
        mu__write_element(dtype, data, index, value);
    } else {
        long long value = strtoll_l(state->field, &rest, 10, state->c_locale);
        mu__write_element(dtype, data, index, (double)value);
        if (errno == ERANGE || (dtype != MU_I64 && mu__read_element(dtype, data, index) != (double)value))
            return field_error(state, column, dtype);
        if (dtype == MU_I64)
            ((int64_t *)data)[index] = value;
    }
    if (rest == state->field)
        return field_error(state, column, dtype);
    while (*rest == ' ' || *rest == '\t')
        rest++;
    return *rest == 0 ? MU_OK : field_error(state, column, dtype);
}

// ---- Lines --------------------------------------------------------------------------------------

static mu_status skip_lines(csv_state *state, int64_t lines)
{
    while (state->line < lines) {
        int c;
        MU_TRY(next_character(state, &c));
        if (c == END_OF_FILE)
            return MU_OK;
        state->line += c == '\n';
    }
    return MU_OK;
}

static mu_status next_file(mu_stage *stage, bool *end)
{
    csv_state *state = stage->state;
    MU_TRY(mu__files_next(stage, &state->stream, end));
    state->at = state->n = 0;
    state->line = 0;
    state->pushed = 0;
    return *end ? MU_OK : skip_lines(state, args_of(stage)->header_lines);
}

// Reads the first field of the next line that is not empty.
static mu_status begin_line(mu_stage *stage, field_end *ended, bool *end)
{
    csv_state *state = stage->state;
    for (;;) {
        if (state->stream == NULL)
            MU_TRY(next_file(stage, end));
        if (*end)
            return MU_OK;
        state->line++;
        MU_TRY(read_field(state, 0, args_of(stage)->delimiter, ended));
        if (state->field[0] != 0 || *ended == FIELD_MORE)
            return MU_OK;
        if (*ended == FIELD_FILE)
            close_file(state);
    }
}

// Reads the fields of a line into `out`: one pointer per column, or the same one and an index.
static mu_status read_line(mu_stage *stage, void *const *out, bool vector, bool *end)
{
    csv_state *state = stage->state;
    const csv_args *args = args_of(stage);
    field_end ended = FIELD_MORE;
    MU_TRY(begin_line(stage, &ended, end));
    for (int column = 0; !*end && column < args->dtypes.n; column++) {
        if (column > 0)
            MU_TRY(read_field(state, column, args->delimiter, &ended));
        const mu_dtype dtype = (mu_dtype)args->dtypes.items[column];
        MU_TRY(store_number(state, column, dtype, out[vector ? 0 : column], vector ? column : 0));
        bool last = column + 1 == args->dtypes.n;
        if (last != (ended != FIELD_MORE))
            return mu__error(MU_DATA_LOSS, "%s, line %lld has %s %d columns; expected %d",
                             mu__file_stream_path(state->stream), (long long)state->line, last ? "more than" : "only",
                             column + 1, args->dtypes.n);
    }
    if (!*end && ended == FIELD_FILE)
        close_file(state);
    return MU_OK;
}

static mu_value *csv_spec(const mu_dataset *dataset)
{
    const csv_args *args = dataset->args;
    if (!args->scalars)
        return mu__spec_leaf(MU_F32, &(mu_shape){.rank = 1, .dims = {args->dtypes.n}});
    mu_value **columns = mu__calloc((size_t)args->dtypes.n, sizeof *columns);
    for (int i = 0; columns != NULL && i < args->dtypes.n; i++)
        columns[i] = mu__spec_leaf((mu_dtype)args->dtypes.items[i], &mu__scalar_shape);
    mu_value *spec = columns != NULL ? mu__list_value(args->dtypes.n, columns) : NULL;
    mu__free(columns);
    return spec;
}

static mu_status csv_next(mu_stage *stage, mu_item *item, bool *end)
{
    mu_value *spec = csv_spec(stage->dataset);
    mu_leaves leaves = {0}, made = {0};
    void **out = NULL;
    mu_status status = spec != NULL ? MU_OK : mu_error_code();
    if (spec == NULL)
        goto out;
    MU_GO(mu__leaves_of(spec, &leaves));
    out = mu__calloc((size_t)leaves.n, sizeof *out);
    bool ok = out != NULL && mu__build_begin(&made, leaves.n);
    while (ok && made.n < leaves.n) {
        mu_tensor *tensor = mu__tensor_alloc(mu__leaf(&leaves, made.n)->dtype, &mu__leaf(&leaves, made.n)->shape);
        out[made.n] = tensor != NULL ? mu__host_write(tensor) : NULL;
        ok = mu__build_add(&made, tensor);
    }
    status = ok ? read_line(stage, out, !args_of(stage)->scalars, end) : mu_error_code();
    if (status == MU_OK && !*end) {
        item->value = mu__build_end(&made, spec);
        status = item->value != NULL ? MU_OK : mu_error_code();
    }
out:
    if (status != MU_OK)  // skip the rest of a damaged file: continue with the next
        close_file(stage->state);
    mu_release(mu__build_end(&made, spec));
    mu__leaves_free(&leaves);
    mu__free(out);
    mu_release(spec);
    return status;
}

static const mu_stage_ops csv_stage = {
    .name = "csv",
    .state_bytes = sizeof(csv_state),
    .args_bytes = sizeof(csv_args),
    .owned = csv_owned,
    .open = csv_open,
    .next = csv_next,
    .close = csv_close,
    .spec = csv_spec,
    .opens_files = true,
};

// ---- The dataset --------------------------------------------------------------------------------

static mu_status check_args(const mu_dataset_csv_args *a)
{
    if ((a->path != NULL) == (a->paths != NULL))
        return mu__error(MU_INVALID_ARGUMENT, "mu_dataset_csv got %s; give a path or a dataset of paths",
                         a->path != NULL ? "a path and .paths" : "neither a path nor .paths");
    if (a->columns < 1 || a->columns > UINT16_MAX)
        return mu__error(MU_INVALID_ARGUMENT, "mu_dataset_csv with columns = %d; expected 1 to %d", a->columns,
                         UINT16_MAX);
    if (a->skip_lines < 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_dataset_csv with skip_lines = %d; expected at least 0",
                         a->skip_lines);
    for (int i = 0; a->dtypes != NULL && i < a->columns; i++)
        if (!mu__dtype_ok(a->dtypes[i]) || a->dtypes[i] == MU_BOOL)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_dataset_csv: the type of column %d is %d; expected a type of numbers", i + 1,
                             a->dtypes[i]);
    return MU_OK;
}

mu_dataset *mu_dataset_csv_with(const mu_dataset_csv_args *args)
{
    mu_dataset_csv_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, "mu_dataset_csv") != MU_OK || check_args(&a) != MU_OK)
        return NULL;
    mu_dataset *paths = a.paths != NULL ? a.paths : mu__files_one(a.path, "mu_dataset_csv");
    const csv_args stage = {.dtypes = {a.columns, mu__calloc((size_t)a.columns, sizeof(int64_t))},
                            .scalars = a.dtypes != NULL,
                            .header_lines = a.skip_lines,
                            .delimiter = a.delimiter != 0 ? a.delimiter : ','};
    if (stage.dtypes.items == NULL)
        return NULL;
    for (int i = 0; i < a.columns; i++)
        stage.dtypes.items[i] = a.dtypes != NULL ? (int64_t)a.dtypes[i] : MU_F32;
    return mu__dataset_stage(&csv_stage, &stage, paths);
}
