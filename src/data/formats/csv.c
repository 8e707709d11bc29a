// Reads lines of fields in CSV format (RFC 4180): quotes, doubled quotes, either line end; plain or gzip.
//
// Characters are read through a small buffer, and the field being read is collected in another, so no line is stored.
// Numbers are read in the C locale, whatever the program's locale is.
#include "data/formats/csv.h"

#include "data/describe.h"
#include "data/formats/filenames.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>

#define BUFFER_BYTES      65536
#define MOST_NUMBER_BYTES 512
#define MOST_FIELD_BYTES  (1 << 24)

typedef struct csv_args {
    int columns;         // fields of a line
    mu_numbers selected; // numbers of the columns that are read, ascending; owned
    mu_numbers dtypes;   // of each column that is read; owned
    mu_value *like;      // the spec of an element: scalars, or one vector of float32; owned
    mu_value *defaults;  // list of scalars, or of empty lists where there is none; NULL: none at all; owned
    char *na_value;      // owned
    bool no_quotes;
    int64_t header_lines; // lines skipped at the start of each file
    char delimiter;
} csv_args;

static const mu_owned_field csv_owned[] = {
    {MU_OWNS_NUMBERS, offsetof(csv_args, selected)}, {MU_OWNS_NUMBERS, offsetof(csv_args, dtypes)},
    {MU_OWNS_OBJECT, offsetof(csv_args, like)},      {MU_OWNS_OBJECT, offsetof(csv_args, defaults)},
    {MU_OWNS_TEXT, offsetof(csv_args, na_value)},    {MU_OWNS_END, 0}};

static mu_value *write_like(const void *object, const mu_dataset *dataset)
{
    (void)dataset;
    return mu__give(mu__spec_describe(object));
}

static void *read_like(const mu_value *value) { return mu__spec_described(value); }

static mu_value *write_defaults(const void *object, const mu_dataset *dataset)
{
    (void)dataset;
    return (mu_value *)(uintptr_t)object;
}

static void *read_defaults(const mu_value *value) { return mu_retain((void *)(uintptr_t)value); }

static const mu_object_form like_form = {.write = write_like, .read = read_like};
static const mu_object_form defaults_form = {.write = write_defaults, .read = read_defaults};
static const mu_sent_field csv_sent[] = {MU_SENDS_INT(csv_args, columns, 1, UINT16_MAX),
                                         MU_SENDS_NUMBERS(csv_args, selected, 0, UINT16_MAX - 1),
                                         MU_SENDS_NUMBERS(csv_args, dtypes, 0, INT8_MAX),
                                         MU_SENDS_OBJECT(csv_args, like, &like_form),
                                         MU_SENDS_OBJECT(csv_args, defaults, &defaults_form),
                                         MU_SENDS_OPTIONAL_TEXT(csv_args, na_value),
                                         MU_SENDS_INT(csv_args, no_quotes, 0, 1),
                                         MU_SENDS_INT(csv_args, header_lines, 0, INT32_MAX),
                                         MU_SENDS_INT(csv_args, delimiter, 1, INT8_MAX),
                                         {.kind = MU_SENT_END}};

static const csv_args *args_of(const mu_stage *stage) { return stage->dataset->args; }

typedef struct csv_state {
    mu_file_stream *stream;
    uint8_t *buffer;
    size_t at, n;
    int64_t line;
    locale_t c_locale;
    int pushed; // a character put back, or END_OF_FILE; NOTHING: none
    struct {
        char *items;
        size_t n, capacity;
        bool quoted;
    } field; // followed by a zero
} csv_state;

enum { END_OF_FILE = -1, NOTHING = -2 };
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
    mu__free(state->field.items);
    if (state->c_locale != (locale_t)0)
        freelocale(state->c_locale);
}

static mu_status next_character(csv_state *state, int *character)
{
    if (state->pushed != NOTHING) {
        *character = state->pushed;
        state->pushed = NOTHING;
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

static mu_status add_character(csv_state *state, int column, char c)
{
    if (state->field.n + 1 == MOST_FIELD_BYTES)
        return damaged(state, column, "the field is too long");
    MU_TRY(mu__grow((void **)&state->field.items, &state->field.capacity, state->field.n + 2, 1));
    state->field.items[state->field.n++] = c;
    return MU_OK;
}

// Reads a quoted field, after the opening quote.
static mu_status read_quoted(csv_state *state, int column)
{
    for (;;) {
        int c;
        MU_TRY(next_character(state, &c));
        if (c == END_OF_FILE)
            return damaged(state, column, "the file ends inside quotes");
        if (c == '"') {
            MU_TRY(next_character(state, &c));
            if (c != '"') {
                state->pushed = c;
                return MU_OK;
            }
        }
        MU_TRY(add_character(state, column, (char)c));
    }
}

// Either line end is '\n' here: a carriage return, alone or in front of a line feed.
static mu_status next_outside_quotes(csv_state *state, int *character)
{
    MU_TRY(next_character(state, character));
    if (*character != '\r')
        return MU_OK;
    int next;
    MU_TRY(next_character(state, &next));
    state->pushed = next == '\n' ? NOTHING : next;
    *character = '\n';
    return MU_OK;
}

static mu_status read_field(csv_state *state, int column, const csv_args *args, field_end *ended)
{
    MU_TRY(mu__grow((void **)&state->field.items, &state->field.capacity, 1, 1));
    state->field.quoted = false;
    for (state->field.n = 0;;) {
        int c;
        MU_TRY(next_outside_quotes(state, &c));
        if (c == END_OF_FILE || c == '\n' || c == args->delimiter) {
            *ended = c == args->delimiter ? FIELD_MORE : c == '\n' ? FIELD_LINE : FIELD_FILE;
            state->field.items[state->field.n] = 0;
            return MU_OK;
        }
        if (state->field.quoted)
            return damaged(state, column, "text follows the closing quote; double a quote inside of quotes");
        if (c == '"' && !args->no_quotes) {
            if (state->field.n > 0)
                return damaged(state, column,
                               "a quote is inside of a field without quotes; put the field in quotes and double the "
                               "quote, or give .no_quotes = true");
            state->field.quoted = true;
            MU_TRY(read_quoted(state, column));
            continue;
        }
        MU_TRY(add_character(state, column, (char)c));
    }
}

static mu_status field_error(const csv_state *state, int column, mu_dtype dtype)
{
    return mu__error(
        MU_DATA_LOSS, "%s, line %lld, column %d: \"%.40s\" is not a valid %s%s", mu__file_stream_path(state->stream),
        (long long)state->line, column + 1, state->field.items, mu_dtype_name(dtype),
        state->line == 1 ? "; if the line is a header, give .skip_lines = 1 (muster fit: --skip-lines 1)" : "");
}

static mu_status store_number(const csv_state *state, int column, mu_dtype dtype, void *data, int64_t index)
{
    char *rest = NULL;
    if (state->field.n >= MOST_NUMBER_BYTES)
        return damaged(state, column, "the field is too long for a number");
    errno = 0;
    if (mu__dtype_is_float(dtype)) {
        double value = strtod_l(state->field.items, &rest, state->c_locale);
        mu__write_element(dtype, data, index, value);
    } else {
        long long value = strtoll_l(state->field.items, &rest, 10, state->c_locale);
        mu__write_element(dtype, data, index, (double)value);
        if (errno == ERANGE || (dtype != MU_I64 && mu__read_element(dtype, data, index) != (double)value))
            return field_error(state, column, dtype);
        if (dtype == MU_I64)
            ((int64_t *)data)[index] = value;
    }
    if (rest == state->field.items)
        return field_error(state, column, dtype);
    while (*rest == ' ' || *rest == '\t')
        rest++;
    // A byte 0 inside of the field is not its end.
    return rest == state->field.items + state->field.n ? MU_OK : field_error(state, column, dtype);
}

// ---- Lines --------------------------------------------------------------------------------------

// Skips a line, which ends as those of the data do. It need not be one of fields: quotes that are not where a field
// begins mean nothing in it.
static mu_status skip_line(csv_state *state, const csv_args *args, int *last)
{
    bool begins = true;
    for (*last = 0; *last != '\n' && *last != END_OF_FILE; begins = *last == args->delimiter) {
        MU_TRY(next_outside_quotes(state, last));
        state->field.n = 0;
        if (*last == '"' && begins && !args->no_quotes)
            MU_TRY(read_quoted(state, 0));
    }
    return MU_OK;
}

static mu_status skip_lines(csv_state *state, const csv_args *args)
{
    int last = 0;
    while (state->line < args->header_lines && last != END_OF_FILE) {
        state->line++;
        MU_TRY(skip_line(state, args, &last));
        state->line -= last == END_OF_FILE;
    }
    return MU_OK;
}

// Whether the field just read is alone in a line without any character. A line that is only "" has one field, of an
// empty text.
static bool line_is_empty(const csv_state *state, field_end ended)
{
    return state->field.n == 0 && !state->field.quoted && ended != FIELD_MORE;
}

static mu_status next_file(mu_stage *stage, bool *end)
{
    csv_state *state = stage->state;
    MU_TRY(mu__files_next(stage, &state->stream, end));
    state->at = state->n = 0;
    state->line = 0;
    state->pushed = NOTHING;
    return *end ? MU_OK : skip_lines(state, args_of(stage));
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
        MU_TRY(read_field(state, 0, args_of(stage), ended));
        if (!line_is_empty(state, *ended))
            return MU_OK;
        if (*ended == FIELD_FILE)
            close_file(state);
    }
}

// The default of a field that is empty; NULL: it has none.
static const mu_tensor *default_of(const csv_args *args, int field)
{
    const mu_value *value = args->defaults != NULL ? args->defaults->items[field] : NULL;
    return value != NULL && value->kind == MU_VALUE_TENSOR ? (const mu_tensor *)value->leaf : NULL;
}

static bool is_empty(const csv_state *state, const csv_args *args)
{
    return state->field.n == 0 || (args->na_value != NULL && strlen(args->na_value) == state->field.n &&
                                   memcmp(state->field.items, args->na_value, state->field.n) == 0);
}

// The scalar of the field just read; owned, NULL on error.
static mu_tensor *field_scalar(mu_stage *stage, int column, int field)
{
    csv_state *state = stage->state;
    const csv_args *args = args_of(stage);
    const mu_dtype dtype = (mu_dtype)args->dtypes.items[field];
    const bool empty = is_empty(state, args);
    if (empty && default_of(args, field) != NULL)
        return mu_retain((void *)(uintptr_t)default_of(args, field));
    if (dtype == MU_STRING)
        return mu__strings_text(empty ? "" : state->field.items, empty ? 0 : state->field.n);
    if (empty) {
        damaged(state, column, "the field is empty; give a default in record_defaults");
        return NULL;
    }
    mu_tensor *tensor = mu__tensor_alloc(dtype, &mu__scalar_shape);
    if (tensor != NULL && store_number(state, column, dtype, mu__host_write(tensor), 0) == MU_OK)
        return tensor;
    mu_release(tensor);
    return NULL;
}

// Keeps the field just read: as a scalar of its own, or in the vector.
static mu_status keep_field(mu_stage *stage, int column, int field, mu_leaves *made)
{
    const csv_args *args = args_of(stage);
    if (args->like->kind != MU_VALUE_TENSOR)
        return mu__build_add(made, field_scalar(stage, column, field)) ? MU_OK : mu_error_code();
    if (made->n == 0 && !mu__build_add(made, mu__tensor_alloc(MU_F32, &(mu_shape){1, {args->dtypes.n}})))
        return mu_error_code();
    float *vector = mu__host_write((mu_tensor *)made->items[0]);
    if (!is_empty(stage->state, args) || default_of(args, field) == NULL)
        return store_number(stage->state, column, MU_F32, vector, field);
    vector[field] = ((const float *)mu__host_read(default_of(args, field)))[0];
    return MU_OK;
}

static mu_status read_line(mu_stage *stage, mu_leaves *made, bool *end)
{
    csv_state *state = stage->state;
    const csv_args *args = args_of(stage);
    field_end ended = FIELD_MORE;
    int field = 0;
    MU_TRY(begin_line(stage, &ended, end));
    for (int column = 0; !*end && column < args->columns; column++) {
        if (column > 0)
            MU_TRY(read_field(state, column, args, &ended));
        if (field < args->selected.n && args->selected.items[field] == column)
            MU_TRY(keep_field(stage, column, field++, made));
        bool last = column + 1 == args->columns;
        if (last != (ended != FIELD_MORE))
            return mu__error(MU_DATA_LOSS, "%s, line %lld has %s %d columns; expected %d",
                             mu__file_stream_path(state->stream), (long long)state->line, last ? "more than" : "only",
                             column + 1, args->columns);
    }
    if (!*end && ended == FIELD_FILE)
        close_file(state);
    return MU_OK;
}

static mu_value *csv_spec(const mu_dataset *dataset) { return mu_retain(((const csv_args *)dataset->args)->like); }

static mu_status csv_next(mu_stage *stage, mu_item *item, bool *end)
{
    const csv_args *args = args_of(stage);
    mu_leaves made = {0};
    const bool vector = args->like->kind == MU_VALUE_TENSOR;
    mu_status status =
        mu__build_begin(&made, vector ? 1 : args->dtypes.n) ? read_line(stage, &made, end) : MU_RESOURCE_EXHAUSTED;
    mu_value *value = mu__build_end(&made, args->like);
    if (status == MU_OK && !*end && (item->value = value) == NULL)
        status = mu_error_code();
    if (status != MU_OK) { // skip the rest of a damaged file: continue with the next
        close_file(stage->state);
        mu_release(value);
        item->value = NULL;
    }
    return status;
}

// ---- A stage that was read from a description ---------------------------------------------------

static mu_status check_column(mu_dtype dtype, int i)
{
    if (dtype != MU_STRING && (!mu__dtype_ok(dtype) || dtype == MU_BOOL))
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_dataset_csv: the type of column %d is %d; expected a type of numbers, or MU_STRING", i + 1,
                         dtype);
    return MU_OK;
}

// Whether a value is a scalar of this type; symbolic if it is a spec.
static bool is_scalar(const mu_value *value, mu_dtype dtype, bool symbolic)
{
    const mu_tensor *tensor = value->kind == MU_VALUE_TENSOR ? (const mu_tensor *)value->leaf : NULL;
    return tensor != NULL && tensor->dtype == dtype && tensor->shape.rank == 0 && (symbolic || tensor->buffer != NULL);
}

// Whether `like` is one vector of floats, or a scalar for each column.
static bool like_fits(const csv_args *args)
{
    const int n = args->dtypes.n;
    const bool vector = args->like->kind == MU_VALUE_TENSOR;
    const mu_tensor *leaf = vector ? (const mu_tensor *)args->like->leaf : NULL;
    bool fits =
        vector ? leaf->dtype == MU_F32 && leaf->shape.rank == 1 && leaf->shape.dims[0] == n : args->like->n == n;
    for (int i = 0; fits && i < n; i++)
        fits = vector ? args->dtypes.items[i] == MU_F32
                      : is_scalar(args->like->items[i], (mu_dtype)args->dtypes.items[i], true);
    return fits;
}

static mu_status check_csv(const mu_dataset *dataset)
{
    const csv_args *args = dataset->args;
    const mu_value *defaults = args->defaults;
    const int n = args->dtypes.n;
    bool fits = args->selected.n == n && defaults->kind == MU_VALUE_LIST && defaults->n == n && like_fits(args);
    for (int i = 0; fits && i < n; i++) {
        const int64_t before = i > 0 ? args->selected.items[i - 1] : -1, column = args->selected.items[i];
        const mu_value *value = defaults->items[i];
        MU_TRY(check_column((mu_dtype)args->dtypes.items[i], i));
        fits = column > before && column < args->columns &&
               ((value->kind == MU_VALUE_LIST && value->n == 0) ||
                is_scalar(value, (mu_dtype)args->dtypes.items[i], false));
    }
    return fits ? MU_OK
                : mu__error(MU_INVALID_ARGUMENT, "columns, types, defaults and the element of csv do not fit together");
}

const mu_stage_ops mu__csv_stage = {
    .name = "csv",
    .sent = csv_sent,
    .check = check_csv,
    .state_bytes = sizeof(csv_state),
    .args_bytes = sizeof(csv_args),
    .owned = csv_owned,
    .open = csv_open,
    .next = csv_next,
    .close = csv_close,
    .spec = csv_spec,
    .opens_files = true,
};

// ---- Columns ------------------------------------------------------------------------------------

static mu_status count_columns(csv_state *state, const csv_args *args, int64_t *lines, int *columns)
{
    field_end ended = FIELD_LINE;
    MU_TRY(skip_lines(state, args));
    *lines = state->line;
    do {
        state->line++;
        MU_TRY(read_field(state, 0, args, &ended));
    } while (line_is_empty(state, ended) && ended == FIELD_LINE);
    for (*columns = !line_is_empty(state, ended); ended == FIELD_MORE; ++*columns)
        MU_TRY(read_field(state, *columns, args, &ended));
    return MU_OK;
}

mu_status mu__csv_columns(const char *path, int64_t skip_lines, int64_t *lines, int *columns)
{
    const csv_args args = {.header_lines = skip_lines, .delimiter = ','};
    csv_state state = {.stream = mu__file_stream_open(path), .buffer = mu__alloc(BUFFER_BYTES), .pushed = NOTHING};
    mu_status status = state.stream == NULL ? mu_error_code() : state.buffer == NULL ? MU_RESOURCE_EXHAUSTED : MU_OK;
    *lines = *columns = 0;
    if (status == MU_OK)
        status = count_columns(&state, &args, lines, columns);
    close_file(&state);
    mu__free(state.buffer);
    mu__free(state.field.items);
    return status;
}

// ---- The dataset --------------------------------------------------------------------------------

static const char function[] = "mu_dataset_csv";

static mu_status check_selected(const mu_dataset_csv_args *a)
{
    if (a->n_select_columns < 0 || (a->n_select_columns > 0) != (a->select_columns != NULL))
        return mu__error(MU_INVALID_ARGUMENT, "%s: n_select_columns is %d and select_columns %s; give both or neither",
                         function, a->n_select_columns, a->select_columns != NULL ? "given" : "NULL");
    for (int i = 0; i < a->n_select_columns; i++)
        if (a->select_columns[i] < (i > 0 ? a->select_columns[i - 1] + 1 : 0) || a->select_columns[i] >= a->columns)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: select_columns[%d] is %d; expected columns from 0 to %d, ascending", function, i,
                             a->select_columns[i], a->columns - 1);
    return MU_OK;
}

static mu_status check_field(const mu_dataset_csv_args *a, int i)
{
    const mu_dtype dtype = a->dtypes != NULL ? a->dtypes[i] : MU_F32;
    const mu_tensor *value = a->record_defaults != NULL ? a->record_defaults[i] : NULL;
    MU_TRY(check_column(dtype, i));
    if (a->names != NULL && a->names[i] == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "%s: names[%d] is NULL; give a name for each column", function, i);
    if (value == NULL)
        return MU_OK;
    if (value->buffer == NULL || value->shape.rank != 0 || value->dtype != dtype)
        return mu__error(MU_INVALID_ARGUMENT, "%s: record_defaults[%d] is of type %s; expected a scalar of %s",
                         function, i, mu_dtype_name(value->dtype), mu_dtype_name(dtype));
    return mu__host_read(value) != NULL ? MU_OK : mu_error_code();
}

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
    MU_TRY(check_selected(a));
    const int n = a->n_select_columns > 0 ? a->n_select_columns : a->columns;
    MU_TRY(mu__args_length(function, "dtypes", a->dtypes, a->n_dtypes, n, "column that is read"));
    MU_TRY(mu__args_length(function, "names", a->names, a->n_names, n, "column that is read"));
    MU_TRY(mu__args_length(function, "record_defaults", a->record_defaults, a->n_record_defaults, n,
                           "column that is read"));
    for (int i = 0; i < n; i++)
        MU_TRY(check_field(a, i));
    return MU_OK;
}

// The spec of an element, and the defaults as a list; both NULL on error.
static void keep_values(csv_args *stage, const mu_dataset_csv_args *a)
{
    const int n = stage->dtypes.n;
    mu_value **specs = mu__calloc((size_t)n, sizeof *specs), **defaults = mu__calloc((size_t)n, sizeof *defaults);
    for (int i = 0; specs != NULL && defaults != NULL && i < n; i++) {
        mu_tensor *value = a->record_defaults != NULL ? a->record_defaults[i] : NULL;
        specs[i] = mu__spec_leaf((mu_dtype)stage->dtypes.items[i], &mu__scalar_shape);
        defaults[i] =
            value != NULL ? mu__leaf_value(mu_retain(value)) : mu__value_container(MU_VALUE_LIST, 0, NULL, NULL);
    }
    if (specs != NULL && defaults != NULL && !mu__pending()) {
        stage->like = a->names != NULL    ? mu__value_container(MU_VALUE_MAP, n, specs, a->names)
                      : a->dtypes != NULL ? mu__value_container(MU_VALUE_LIST, n, specs, NULL)
                                          : mu__spec_leaf(MU_F32, &(mu_shape){.rank = 1, .dims = {n}});
        stage->defaults = mu__value_container(MU_VALUE_LIST, n, defaults, NULL);
    }
    for (int i = 0; specs != NULL && defaults != NULL && i < n; i++) {
        mu_release(specs[i]);
        mu_release(defaults[i]);
    }
    mu__free(specs);
    mu__free(defaults);
}

mu_dataset *mu_dataset_csv_with(const mu_dataset_csv_args *args)
{
    mu_dataset_csv_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK || check_args(&a) != MU_OK)
        return NULL;
    mu_dataset *paths = a.paths != NULL ? a.paths : mu__files_one(a.path, function);
    const int n = a.n_select_columns > 0 ? a.n_select_columns : a.columns;
    csv_args stage = {.columns = a.columns,
                      .dtypes = {n, mu__calloc((size_t)n, sizeof(int64_t))},
                      .selected = {n, mu__calloc((size_t)n, sizeof(int64_t))},
                      .no_quotes = a.no_quotes,
                      .na_value = a.na_value != NULL ? mu__strdup(a.na_value) : NULL,
                      .header_lines = a.skip_lines,
                      .delimiter = a.delimiter != 0 ? a.delimiter : ','};
    for (int i = 0; i < n && !mu__pending(); i++) {
        stage.dtypes.items[i] = a.dtypes != NULL ? (int64_t)a.dtypes[i] : MU_F32;
        stage.selected.items[i] = a.select_columns != NULL ? a.select_columns[i] : i;
    }
    if (!mu__pending())
        keep_values(&stage, &a);
    return mu__dataset_stage(&mu__csv_stage, &stage, paths);
}
