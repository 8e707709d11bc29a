// Prints a model's layers, their output shapes and numbers of parameters, as Keras does.
#include "model/models/functional.h"
#include "model/drawing/text_table.h"
#include "model/models/model.h"
#include "model/optimizers/optimizer.h"
#include "model/training/progress.h"
#include "model/training/training.h"

#include <regex.h>

void mu__shape_as_keras(const mu_shape *shape, char text[MU_SHAPE_TEXT])
{
    size_t used = (size_t)snprintf(text, MU_SHAPE_TEXT, "(");
    for (int i = 0; i < shape->rank && used < MU_SHAPE_TEXT; i++) {
        const char *comma = i ? ", " : "";
        if (shape->dims[i] == MU_UNKNOWN)
            used += (size_t)snprintf(text + used, MU_SHAPE_TEXT - used, "%sNone", comma);
        else
            used += (size_t)snprintf(text + used, MU_SHAPE_TEXT - used, "%s%lld", comma, (long long)shape->dims[i]);
    }
    if (used < MU_SHAPE_TEXT)
        snprintf(text + used, MU_SHAPE_TEXT - used, ")");
}

typedef struct summary {
    const mu_summary_args *args;
    bool connected; // the layers are no chain, so a column says what each is connected to
    mu_text_table table;
} summary;

// The layers of a model, in the order in which Keras lists them.
typedef struct listing {
    const mu_layer *model;
    const mu_functional *f; // NULL: the layers follow each other
    mu_operation_list operations;
    char **names;  // of inputs; NULL: that of the layer
    int64_t batch; // of a model whose layers follow each other; MU_UNKNOWN: any
} listing;

// ---- The layers of a model ----------------------------------------------------------------------

static void listing_free(listing *l)
{
    for (size_t i = 0; l->names && i < l->operations.n; i++)
        mu__free(l->names[i]);
    mu__free(l->names);
    mu__free(l->operations.items);
}

// The input of a sequential model is none of its layers in Keras.
static mu_status list_sublayers(listing *l)
{
    for (size_t i = 0; i < l->model->sublayers.n; i++) {
        mu_layer *layer = l->model->sublayers.items[i];
        const mu_input_args *input = i == 0 && layer->ops == &mu__input_layer_ops ? layer->args : NULL;
        if (input && input->batch_size > 0)
            l->batch = input->batch_size;
        if (!input)
            MU_TRY(MU_PUSH(&l->operations, ((mu_operation){.layer = layer})));
    }
    return MU_OK;
}

static mu_status listing_make(const mu_layer *model, listing *l)
{
    bool unknown;
    *l = (listing){.model = model, .f = model->ops == &mu__functional_ops ? model->state : NULL, .batch = MU_UNKNOWN};
    MU_TRY(l->f ? mu__model_operations(model, &l->operations, &unknown) : list_sublayers(l));
    l->names = mu__calloc(l->operations.n + 1, sizeof *l->names);
    return l->names ? mu__name_inputs(&l->operations, l->names) : MU_RESOURCE_EXHAUSTED;
}

static const char *name_of(const listing *l, size_t i)
{
    return l->operations.items[i].layer ? mu_layer_name(l->operations.items[i].layer) : l->names[i];
}

static bool has_layers(const mu_layer *layer) { return layer && mu__layer_only_calls(layer) && layer->sublayers.n > 0; }

// The layer tensors among the leaves of a nest; returns how many there are.
static int tensors_in(const mu_value *nest, int n, const mu_tensor **out)
{
    for (int i = 0; nest && !nest->leaf && i < nest->n; i++)
        n = tensors_in(nest->items[i], n, out);
    if (nest && nest->leaf && mu__is(nest->leaf, &mu__tensor_type) && n < 2 * MU_MAX_MODEL_INPUTS &&
        mu__is_layer_tensor((const mu_tensor *)nest->leaf))
        out[n++] = (const mu_tensor *)nest->leaf;
    return n;
}

// What a call was given: inputs and masks.
static int arguments_of(const mu_layer_call *call, const mu_tensor *out[2 * MU_MAX_MODEL_INPUTS])
{
    return tensors_in(call->mask, tensors_in(call->inputs, 0, out), out);
}

// A model is a chain if each call has one input, no layer is called twice, and only one call is the input of no other.
static bool is_chain(const mu_functional *f)
{
    const mu_tensor *from[2 * MU_MAX_MODEL_INPUTS];
    size_t ends = f->calls.n;
    for (size_t i = 0; i < f->calls.n; i++) {
        const mu_layer_call *call = f->calls.items[i];
        bool used = false;
        if (arguments_of(call, from) > 1)
            return false;
        for (size_t k = 0; k < f->calls.n; k++) {
            if (k != i && call->layer && f->calls.items[k]->layer == call->layer)
                return false;
            used |= arguments_of(f->calls.items[k], from) == 1 && mu__call_of(from[0]) == call;
        }
        ends -= used;
    }
    return ends == 1;
}

// ---- Cells --------------------------------------------------------------------------------------

// Appends to a text, which is freed if that fails. NULL on error, and for NULL.
static char *append(char *text, const char *more)
{
    char *longer = text ? mu__sprintf("%s%s", text, more) : NULL;
    mu__free(text);
    return longer;
}

static char *name_cell(const listing *l, size_t i, int level)
{
    char printable[MU_PRINTABLE_BYTES];
    const mu_layer *layer = l->operations.items[i].layer;
    const char *class_name = layer ? mu__layer_keras_class(layer) : "InputLayer";
    return mu__sprintf("%*s%s%s (%s)", 3 * level, "", level > 0 ? "└ " : "",
                       mu__printable_copy(name_of(l, i), printable), class_name);
}

// The outputs of the last call of an operation; several as a list.
static char *call_shapes(const listing *l, const mu_operation *operation)
{
    const mu_layer_call *call = operation->call, *next;
    char one[MU_SHAPE_TEXT];
    for (int k = 0; operation->layer && (next = mu__nth_call(l->f, operation->layer, k)); k++)
        call = next;
    const size_t n = call->graph->inputs.n;
    char *text = mu__strdup(n == 1 ? "" : "[");
    for (size_t i = 0; i < n; i++) {
        mu__shape_as_keras(&call->graph->inputs.items[i]->out[0].shape, one);
        text = append(append(text, i ? ", " : ""), one);
    }
    return append(text, n == 1 ? "" : "]");
}

static char *shape_cell(const listing *l, size_t i)
{
    const mu_operation *operation = &l->operations.items[i];
    char text[MU_SHAPE_TEXT];
    if (l->f)
        return call_shapes(l, operation);
    if (!operation->layer->built)
        return mu__strdup("?");
    mu_shape shape = operation->layer->output;
    if (shape.rank > 0 && shape.dims[0] == MU_UNKNOWN)
        shape.dims[0] = l->batch;
    mu__shape_as_keras(&shape, text);
    return mu__strdup(text);
}

enum { NUMBER_TEXT = 32 };

// "1,234,567"
static const char *grouped(int64_t number, char text[NUMBER_TEXT])
{
    char digits[NUMBER_TEXT];
    const int n = snprintf(digits, sizeof digits, "%lld", (long long)number);
    int used = 0;
    for (int i = 0; i < n; i++) {
        if (i > 0 && (n - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

static char *count_cell(const mu_layer *layer)
{
    char number[NUMBER_TEXT];
    return layer && !layer->built ? mu__strdup("0 (unbuilt)")
                                  : mu__strdup(grouped(layer ? mu__layer_parameters(layer, false) : 0, number));
}

// "dense[0][0], …": the layer, the number of its call, the number of the output.
static char *connections_of(const listing *l, const mu_layer_call *call, char *text)
{
    const mu_tensor *from[2 * MU_MAX_MODEL_INPUTS];
    const int n = arguments_of(call, from);
    for (int k = 0; k < n && text; k++) {
        const mu_layer_call *maker = mu__call_of(from[k]);
        char printable[MU_PRINTABLE_BYTES];
        for (size_t i = 0; i < l->operations.n; i++) {
            const mu_operation *operation = &l->operations.items[i];
            if (operation->layer ? operation->layer != maker->layer : operation->call != maker)
                continue;
            char *one = mu__sprintf("%s%s[%d][%d]", *text ? ", " : "", mu__printable_copy(name_of(l, i), printable),
                                    mu__call_number(l->f, maker), from[k]->node->id);
            text = append(one ? text : (mu__free(text), NULL), one ? one : "");
            mu__free(one);
            break;
        }
    }
    return text;
}

// Layers inside of a nested model are connected to none of the model's own.
static char *connection_cell(const listing *l, size_t i, int level)
{
    const mu_operation *operation = &l->operations.items[i];
    const mu_layer_call *call;
    char *text = mu__strdup("");
    for (int k = 0; level == 0 && text && operation->layer && (call = mu__nth_call(l->f, operation->layer, k)); k++)
        text = connections_of(l, call, text);
    return text && !*text ? append(text, "-") : text;
}

static const char *trainable_cell(const mu_layer *layer)
{
    const bool weights = layer && mu__layer_parameters(layer, false) > 0;
    return !weights ? "-" : layer->frozen ? "N" : "Y";
}

// ---- Rows ---------------------------------------------------------------------------------------

static mu_status print_layer(summary *s, const listing *l, size_t i, int level)
{
    const mu_layer *layer = l->operations.items[i].layer;
    char *cells[MU_TABLE_COLUMNS] = {name_cell(l, i, level), shape_cell(l, i), count_cell(layer)};
    int n = 3;
    if (s->connected)
        cells[n++] = connection_cell(l, i, level);
    if (s->args->show_trainable)
        cells[n++] = mu__strdup(trainable_cell(layer));
    bool whole = true;
    for (int k = 0; k < n; k++)
        whole &= cells[k] != NULL;
    if (whole)
        mu__table_row(&s->table, (const char *const *)cells);
    for (int k = 0; k < n; k++)
        mu__free(cells[k]);
    return whole ? MU_OK : mu_error_code();
}

static mu_status print_layers(summary *s, const listing *l, size_t begin, size_t end, int level)
{
    for (size_t i = begin; i < end; i++) {
        listing inside = {0};
        MU_TRY(print_layer(s, l, i, level));
        if (!s->args->expand_nested || !has_layers(l->operations.items[i].layer))
            continue;
        mu_status status = listing_make(l->operations.items[i].layer, &inside);
        if (status == MU_OK)
            status = print_layers(s, &inside, 0, inside.operations.n, level + 1);
        listing_free(&inside);
        MU_TRY(status);
    }
    return MU_OK;
}

// The first and the last layer whose names begin with what matches an expression; `*first` is -1 if there is none.
static mu_status find_layers(const listing *l, const char *expression, int *first, int *last)
{
    regex_t compiled;
    char reason[120];
    char *anchored = mu__sprintf("^(%s)", expression);
    if (!anchored)
        return MU_RESOURCE_EXHAUSTED;
    const int code = regcomp(&compiled, anchored, REG_EXTENDED | REG_NOSUB);
    mu__free(anchored);
    *first = *last = -1;
    if (code != 0) {
        regerror(code, &compiled, reason, sizeof reason);
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_summary: layer_range has '%.60s', which is not a regular expression: %s", expression,
                         reason);
    }
    for (size_t i = 0; i < l->operations.n; i++)
        if (regexec(&compiled, name_of(l, i), 0, NULL, 0) == 0) {
            *first = *first < 0 ? (int)i : *first;
            *last = (int)i;
        }
    regfree(&compiled);
    return *first >= 0
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "mu_summary: layer_range has '%.60s', but the name of no layer of '%s' begins with it",
                           expression, mu_layer_name(l->model));
}

static mu_status range_of(const summary *s, const listing *l, size_t *begin, size_t *end)
{
    const char *const *range = s->args->layer_range;
    int first[2], last[2];
    *begin = 0;
    *end = l->operations.n;
    if (!range[0] && !range[1])
        return MU_OK;
    if (!range[0] || !range[1])
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_summary: layer_range has one name; give the first and the last layer's");
    MU_TRY(find_layers(l, range[0], &first[0], &last[0]));
    MU_TRY(find_layers(l, range[1], &first[1], &last[1]));
    const bool in_order = first[0] <= last[1];
    *begin = (size_t)(in_order ? first[0] : first[1]);
    *end = (size_t)(in_order ? last[1] : last[0]) + 1;
    return MU_OK;
}

// ---- Columns ------------------------------------------------------------------------------------

// Where the columns end, as shares of the line, as in Keras. Returns how many columns there are; 0 on error.
static int positions_of(const summary *s, double out[MU_TABLE_COLUMNS])
{
    static const double chain[] = {.45, .80, 1}, connected[] = {.3, .56, .74, 1};
    const double *given = s->args->positions;
    const int n = s->connected ? (int)MU_COUNT(connected) : (int)MU_COUNT(chain);
    int n_given = (int)MU_COUNT(s->args->positions);
    while (n_given > 0 && given[n_given - 1] == 0)
        n_given--;
    if (n_given != 0 && n_given != n) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_summary: positions has %d numbers; the table has %d columns%s, without that of .show_trainable. "
                  "Give where each ends",
                  n_given, n, s->connected ? ", because its layers do not follow each other in a row" : "");
        return 0;
    }
    for (int i = 0; i < n; i++)
        out[i] = (n_given ? given : s->connected ? connected : chain)[i] * (s->args->show_trainable ? .9 : 1);
    out[n] = 1;
    return n + s->args->show_trainable;
}

static int default_length(const summary *s)
{
    enum { CHAIN = 88, CONNECTED = 108, TRAINABLE = 12, MARGIN = 4, NO_TERMINAL = 80, LEAST = 60 };
    const int width = mu__terminal_width(s->args->out);
    const int wanted = (s->connected ? CONNECTED : CHAIN) + (s->args->show_trainable ? TRAINABLE : 0);
    return MU_MIN(wanted, MU_MAX((width > 0 ? width : NO_TERMINAL) - MARGIN, LEAST)); // a terminal may be too narrow
}

// The quotient, where halves become the even number.
static int divide_evenly(int a, int b)
{
    const int twice = 2 * (a % b);
    return a / b + (twice > b || (twice == b && a / b % 2 == 1));
}

// The widths with the spaces around a column's text become those of a table of so many columns as rich does it: what is
// too much is taken from all alike, and what is left is given in proportion.
static void fit_widths(int n, int *widths, int width)
{
    int total = 0;
    for (int i = 0; i < n; i++)
        total += widths[i];
    int excess = total - width, missing = -excess, left = total;
    for (int i = 0; i < n && excess > 0; i++) {
        const int taken = MU_MIN(widths[i], divide_evenly(excess, n - i));
        widths[i] -= taken;
        excess -= taken;
    }
    for (int i = 0; i < n && missing > 0; i++) {
        const int added = (widths[i] * missing + left - 1) / left;
        left -= widths[i];
        widths[i] += added;
        missing -= added;
    }
}

// Keras gives each column its share of the line, and rich changes all of them for borders and spaces.
static mu_status measure_columns(summary *s)
{
    enum { NARROWEST = 5, SPACES = 2 };
    const int length = s->args->line_length > 0 ? s->args->line_length : default_length(s);
    double positions[MU_TABLE_COLUMNS];
    int widths[MU_TABLE_COLUMNS], used = 0;
    const int n = s->table.n = positions_of(s, positions);
    MU_TRY(n > 0 ? MU_OK : mu_error_code());
    const int width = length - (n + 1);
    for (int i = 0; i < n; i++) {
        const double end = positions[i] * length;
        const int share = end >= 0 && end <= INT32_MAX ? (int)end - used : 0;
        if (share < NARROWEST)
            return mu__error(MU_INVALID_ARGUMENT,
                             "mu_summary: column %d of %d is too narrow in a line of %d columns: it has %d, and needs "
                             "%d; give a larger .line_length, or other .positions",
                             i + 1, n, length, share, NARROWEST);
        widths[i] = MU_MIN(share + SPACES, width);
        used += share;
    }
    fit_widths(n, widths, width);
    for (int i = 0; i < n; i++)
        s->table.columns[i].width = widths[i] - SPACES;
    s->table.columns[2].align = MU_ALIGN_RIGHT;
    if (s->args->show_trainable)
        s->table.columns[n - 1].align = MU_ALIGN_CENTRE;
    return MU_OK;
}

static void print_header(summary *s)
{
    const char *cells[MU_TABLE_COLUMNS] = {"Layer (type)", "Output Shape", "Param #"};
    int n = 3;
    if (s->connected)
        cells[n++] = "Connected to";
    if (s->args->show_trainable)
        cells[n++] = "Trainable";
    mu__table_header(&s->table, cells);
}

// ---- Totals -------------------------------------------------------------------------------------

typedef struct total {
    int64_t elements, bytes;
} total;

static void add_variable(total *t, const mu_variable *variable)
{
    const int64_t n = variable ? mu__elements(&variable->resource.spec.shape) : 0;
    t->elements += n;
    t->bytes += variable ? n * (int64_t)mu_dtype_bytes(variable->resource.spec.dtype) : 0;
}

static total optimizer_total(const mu_optimizer *optimizer)
{
    total t = {0};
    for (; optimizer; optimizer = optimizer->inner) {
        add_variable(&t, optimizer->iterations);
        add_variable(&t, optimizer->learning_rate);
        for (int i = 0; i < optimizer->n_scalars; i++)
            add_variable(&t, optimizer->scalars[i]);
        for (size_t i = 0; i < optimizer->slots.n; i++)
            add_variable(&t, optimizer->slots.items[i]);
    }
    return t;
}

static bool optimizer_is_built(const mu_optimizer *optimizer)
{
    for (; optimizer; optimizer = optimizer->inner)
        if (optimizer->variables.n > 0)
            return true;
    return false;
}

static void print_total(FILE *out, const char *what, total t)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    char number[NUMBER_TEXT];
    double size = (double)t.bytes;
    size_t unit = 0;
    for (; size >= 1024 && unit + 1 < MU_COUNT(units); unit++)
        size /= 1024;
    fprintf(out, " %s: %s (%.2f %s)\n", what, grouped(t.elements, number), size, units[unit]);
}

static mu_status print_totals(const mu_model *model, FILE *out)
{
    mu_variable_list all = {0}, trained = {0};
    total weights = {0}, trainable = {0}, optimizer = {0};
    mu_status status = mu__layer_collect(model, MU_WEIGHTS_ALL, &all);
    if (status == MU_OK)
        status = mu__layer_collect(model, MU_WEIGHTS_TRAINABLE, &trained);
    for (size_t i = 0; i < all.n; i++)
        add_variable(&weights, all.items[i]);
    for (size_t i = 0; i < trained.n; i++)
        add_variable(&trainable, trained.items[i]);
    mu__free(all.items);
    mu__free(trained.items);
    MU_TRY(status);
    const bool built = optimizer_is_built(model->trainer->optimizer);
    if (built)
        optimizer = optimizer_total(model->trainer->optimizer);
    print_total(out, "Total params", (total){weights.elements + optimizer.elements, weights.bytes + optimizer.bytes});
    print_total(out, "Trainable params", trainable);
    print_total(out, "Non-trainable params",
                (total){weights.elements - trainable.elements, weights.bytes - trainable.bytes});
    if (built)
        print_total(out, "Optimizer params", optimizer);
    return MU_OK;
}

// ---- The whole ----------------------------------------------------------------------------------

static mu_status print_summary(summary *s, const listing *l)
{
    FILE *out = s->args->out;
    char name[MU_PRINTABLE_BYTES];
    size_t begin, end;
    s->connected = l->f && !is_chain(l->f);
    MU_TRY(range_of(s, l, &begin, &end));
    MU_TRY(measure_columns(s));
    fprintf(out, "Model: \"%s\"\n", mu__printable_copy(mu_layer_name(l->model), name));
    print_header(s);
    MU_TRY(print_layers(s, l, begin, end, 0));
    mu__table_end(&s->table);
    return print_totals(l->model, out);
}

mu_status mu_summary_with(const mu_summary_args *given)
{
    mu_summary_args args;
    listing l = {0};
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_summary"));
    MU_TRY(mu__need_model(args.model, "mu_summary"));
    if (!args.out && !mu__args_text(&args, "out", 1))
        args.out = stdout;
    MU_TRY(mu__need(args.out, "mu_summary: out"));
    MU_TRY(mu__args_positive(&args, "line_length", args.line_length, "mu_summary"));
    summary s = {.args = &args, .table = {.out = args.out}};
    mu_status status = listing_make(args.model, &l);
    if (status == MU_OK)
        status = print_summary(&s, &l);
    listing_free(&l);
    return status;
}
