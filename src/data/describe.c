// Writes and reads descriptions of datasets: see describe.h.
#include "data/describe.h"

// MOST_OPENED: stages that an iterator opens; a stage that is an input twice is opened twice.
enum { MOST_NUMBERS = 65536, MOST_TEXT = 65536, MOST_OPENED = 65536 };

static const struct known_stage {
    const mu_stage_ops *ops;
    int fewest, most; // inputs
} stages[] = {
#define MU_STAGE(name, fewest, most) {&mu__##name##_stage, fewest, most},
#include "data/stages/stages.def"
#undef MU_STAGE
};

// ---- Numbers and specs --------------------------------------------------------------------------

mu_value *mu__int64s_value(int64_t n, const int64_t *numbers) { return mu_of(mu_tensor_new(MU_I64, 1, &n, numbers)); }

static const mu_tensor *int64s(const mu_value *value, int rank)
{
    const mu_tensor *tensor = value != NULL && value->kind == MU_VALUE_TENSOR ? (const mu_tensor *)value->leaf : NULL;
    return tensor != NULL && tensor->buffer != NULL && tensor->dtype == MU_I64 && tensor->shape.rank == rank ? tensor
                                                                                                             : NULL;
}

bool mu__described_number(const mu_value *value, int64_t *out)
{
    const mu_tensor *tensor = int64s(value, 0);
    if (tensor != NULL)
        *out = *(const int64_t *)mu__host_read(tensor);
    return tensor != NULL;
}

bool mu__described_numbers(const mu_value *value, const int64_t **items, int64_t *n)
{
    const mu_tensor *tensor = int64s(value, 1);
    if (tensor != NULL) {
        *n = tensor->shape.dims[0];
        *items = mu__host_read(tensor);
    }
    return tensor != NULL;
}

static mu_tensor *spec_numbers(const mu_tensor *leaf)
{
    mu_tensor *tensor = mu__tensor_alloc(MU_I64, &(mu_shape){.rank = 1, .dims = {leaf->shape.rank + 1}});
    if (tensor == NULL)
        return NULL;
    int64_t *numbers = mu__host_write(tensor);
    numbers[0] = (int64_t)leaf->dtype;
    memcpy(numbers + 1, leaf->shape.dims, (size_t)leaf->shape.rank * sizeof *numbers);
    return tensor;
}

// The symbolic leaf that spec_numbers has described.
static mu_tensor *spec_leaf(const mu_tensor *numbers)
{
    const mu_value value = {.kind = MU_VALUE_TENSOR, .leaf = (mu_object *)(uintptr_t)&numbers->object};
    const int64_t *items = NULL;
    int64_t n = 0;
    if (!mu__described_numbers(&value, &items, &n) || n < 1 || n > MU_MAX_RANK + 1 || items[0] < 0 ||
        items[0] > INT8_MAX || !(mu__dtype_ok((mu_dtype)items[0]) || items[0] == MU_STRING)) {
        mu__error(MU_INVALID_ARGUMENT, "the spec of an element has a leaf that is not a type and up to %d axes",
                  MU_MAX_RANK);
        return NULL;
    }
    mu_spec spec = {.dtype = (mu_dtype)items[0], .shape = {.rank = (int)n - 1}};
    memcpy(spec.shape.dims, items + 1, (size_t)(n - 1) * sizeof *items);
    return mu__shape_check(&spec.shape, "the spec of an element") == MU_OK ? mu__tensor_symbolic(NULL, 0, &spec, NULL)
                                                                           : NULL;
}

static mu_value *rebuild(const mu_value *value, mu_tensor *(*leaf)(const mu_tensor *tensor))
{
    mu_leaves leaves, made;
    if (value == NULL || mu__leaves_of(value, &leaves) != MU_OK)
        return NULL;
    bool ok = mu__build_begin(&made, leaves.n);
    while (ok && made.n < leaves.n)
        ok = mu__build_add(&made, leaf(mu__leaf(&leaves, made.n)));
    mu_value *rebuilt = mu__build_end(&made, value);
    mu__leaves_free(&leaves);
    return rebuilt;
}

mu_value *mu__spec_describe(const mu_value *spec) { return rebuild(spec, spec_numbers); }

mu_value *mu__spec_described(const mu_value *value) { return rebuild(value, spec_leaf); }

// ---- Writing ------------------------------------------------------------------------------------

typedef struct writer {
    struct {
        mu_dataset **items;
        size_t n, capacity;
    } seen;
    struct {
        mu_value **items;
        size_t n, capacity;
    } stages; // of the pool
} writer;

static const struct known_stage *known(const mu_stage_ops *ops)
{
    for (size_t i = 0; i < MU_COUNT(stages); i++)
        if (stages[i].ops == ops)
            return &stages[i];
    return NULL;
}

static int64_t int_at(const void *at, size_t bytes)
{
    if (bytes == sizeof(int64_t))
        return *(const int64_t *)at;
    return bytes == sizeof(int) ? *(const int *)at : *(const int8_t *)at;
}

static mu_status cannot_send(const mu_dataset *dataset, const char *why)
{
    return mu__error(MU_UNIMPLEMENTED, "stage %s of a dataset cannot be sent to another process: %s",
                     dataset->ops->name, why);
}

static bool within(const mu_sent_field *field, int64_t n, const int64_t *numbers)
{
    for (int64_t i = 0; i < n; i++)
        if (numbers[i] < field->least || numbers[i] > field->most)
            return false;
    return true;
}

static mu_value *write_numbers(const mu_sent_field *field, const void *at)
{
    const mu_numbers *numbers = at;
    return numbers->n >= 1 && numbers->n <= MOST_NUMBERS && within(field, numbers->n, numbers->items)
               ? mu__int64s_value(numbers->n, numbers->items)
               : NULL;
}

static mu_value *write_int(const mu_sent_field *field, const void *at)
{
    const int64_t number = int_at(at, field->bytes);
    return within(field, 1, &number) ? mu_of(mu_tensor_new(MU_I64, 0, NULL, &number)) : NULL;
}

static mu_value *write_seed(mu_dataset *dataset)
{
    const int64_t seed = (int64_t)mu__order_begins(dataset);
    return mu_of(mu_tensor_new(MU_I64, 0, NULL, &seed));
}

// One field, of the pool; NULL on error, and for one outside of its bounds.
static mu_value *write_field(const mu_sent_field *field, mu_dataset *dataset)
{
    const void *at = (const char *)dataset->args + field->offset;
    const void *pointer = field->kind == MU_SENT_TEXT || field->kind == MU_SENT_OBJECT ? *(void *const *)at : NULL;
    switch (field->kind) {
    case MU_SENT_INT: return write_int(field, at);
    case MU_SENT_SEED: return write_seed(dataset);
    case MU_SENT_NUMBERS: return write_numbers(field, at);
    case MU_SENT_TEXT:
        if (pointer != NULL)
            return strlen(pointer) <= MOST_TEXT ? mu_of(mu_string_scalar(pointer)) : NULL;
        return field->may_lack ? mu_list(MU_END) : NULL;
    case MU_SENT_OBJECT:
        if (pointer != NULL)
            return field->form->write(pointer, dataset);
        return field->may_lack ? mu_list(MU_END) : NULL;
    case MU_SENT_NOTHING:
    case MU_SENT_END: break;
    }
    return NULL;
}

static bool is_null(const mu_sent_field *field, const void *args)
{
    static const void *const nothing;
    return memcmp((const char *)args + field->offset, &nothing, MU_MIN(field->bytes, sizeof nothing)) == 0;
}

// Appends the fields to what is there of a stage; `n` counts.
static mu_status write_fields(mu_dataset *dataset, mu_value **items, int *n)
{
    for (const mu_sent_field *field = dataset->ops->sent; field != NULL && field->kind != MU_SENT_END; field++) {
        if (field->kind == MU_SENT_NOTHING && !is_null(field, dataset->args))
            return cannot_send(dataset, "it calls a function of the program; a map by a traced function can be sent");
        if (field->kind == MU_SENT_NOTHING)
            continue;
        if ((items[(*n)++] = write_field(field, dataset)) == NULL)
            return mu__pending() ? mu_error_code() : cannot_send(dataset, "an argument is too large");
    }
    return MU_OK;
}

static int n_sent(const mu_stage_ops *ops)
{
    int n = 0;
    for (const mu_sent_field *field = ops->sent; field != NULL && field->kind != MU_SENT_END; field++)
        n += field->kind != MU_SENT_NOTHING;
    return n;
}

static int64_t write_stage(writer *w, mu_dataset *dataset, int depth);

static mu_status write_inputs(writer *w, const mu_dataset *dataset, int depth, mu_value **out)
{
    int64_t *numbers = mu__calloc((size_t)dataset->n_inputs + 1, sizeof *numbers);
    mu_status status = numbers != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < dataset->n_inputs; i++)
        status = (numbers[i] = write_stage(w, dataset->inputs[i], depth + 1)) >= 0 ? MU_OK : mu_error_code();
    *out = status == MU_OK ? mu__int64s_value(dataset->n_inputs, numbers) : NULL;
    mu__free(numbers);
    return mu_error_code();
}

// Adds a stage after its inputs and returns its number; -1 on error.
static int64_t write_stage(writer *w, mu_dataset *dataset, int depth)
{
    for (size_t i = 0; i < w->seen.n; i++)
        if (w->seen.items[i] == dataset)
            return (int64_t)i;
    const struct known_stage *stage = known(dataset->ops);
    if (stage == NULL || depth > MU_MOST_STAGES || w->seen.n == MU_MOST_STAGES) {
        cannot_send(dataset, stage != NULL ? "there are too many stages"
                                           : "it calls a function of the program, or writes a file");
        return -1;
    }
    mu_value **items = mu__calloc((size_t)n_sent(dataset->ops) + 2, sizeof *items);
    int n = 2;
    mu_status status = items != NULL ? write_inputs(w, dataset, depth, &items[1]) : MU_RESOURCE_EXHAUSTED;
    if (status == MU_OK)
        status = write_fields(dataset, items, &n);
    if (status == MU_OK) {
        items[0] = mu_of(mu_string_scalar(dataset->ops->name));
        mu_value *list = mu_list_of(n, items);
        status = list != NULL ? MU_PUSH(&w->stages, list) : mu_error_code();
    }
    mu__free(items);
    return status == MU_OK && MU_PUSH(&w->seen, dataset) == MU_OK ? (int64_t)w->seen.n - 1 : -1;
}

mu_value *mu__dataset_describe(mu_dataset *dataset)
{
    writer w = {0};
    mu_value *description = write_stage(&w, dataset, 0) >= 0 ? mu_list_of((int)w.stages.n, w.stages.items) : NULL;
    mu__free(w.seen.items);
    mu__free(w.stages.items);
    return description;
}

// ---- Reading ------------------------------------------------------------------------------------

bool mu__described_text(const mu_value *value, mu_string *out)
{
    const mu_tensor *tensor = value != NULL && value->kind == MU_VALUE_TENSOR ? (const mu_tensor *)value->leaf : NULL;
    if (tensor == NULL || tensor->buffer == NULL || tensor->dtype != MU_STRING || tensor->shape.rank != 0)
        return false;
    *out = mu__string_at(tensor, 0);
    return out->n <= MOST_TEXT && memchr(out->bytes, '\0', out->n) == NULL;
}

static bool is_nothing(const mu_value *value) { return value->kind == MU_VALUE_LIST && value->n == 0; }

static bool read_int(const mu_sent_field *field, const mu_value *value, void *at)
{
    int64_t number;
    if (!mu__described_number(value, &number) || !within(field, 1, &number))
        return false;
    if (field->bytes == sizeof number)
        *(int64_t *)at = number;
    else if (field->bytes == sizeof(int))
        *(int *)at = (int)number;
    else
        *(int8_t *)at = (int8_t)number;
    return true;
}

static bool read_numbers(const mu_sent_field *field, const mu_value *value, mu_numbers *out)
{
    const int64_t *items;
    int64_t n;
    if (!mu__described_numbers(value, &items, &n) || n < 1 || n > MOST_NUMBERS || !within(field, n, items) ||
        (out->items = mu__alloc((size_t)n * sizeof *items)) == NULL)
        return false;
    memcpy(out->items, items, (size_t)n * sizeof *items);
    out->n = (int)n;
    return true;
}

static bool read_field(const mu_sent_field *field, const mu_value *value, void *args)
{
    void *at = (char *)args + field->offset;
    mu_string text;
    switch (field->kind) {
    case MU_SENT_INT:
    case MU_SENT_SEED: return read_int(field, value, at);
    case MU_SENT_NUMBERS: return read_numbers(field, value, at);
    case MU_SENT_TEXT:
        return is_nothing(value) ? field->may_lack
                                 : mu__described_text(value, &text) && (*(char **)at = mu__strdup(text.bytes)) != NULL;
    case MU_SENT_OBJECT: return is_nothing(value) ? field->may_lack : (*(void **)at = field->form->read(value)) != NULL;
    case MU_SENT_NOTHING:
    case MU_SENT_END: break;
    }
    return false;
}

// The struct of arguments, which the caller frees (mu__stage_args_free); NULL on error, and for a stage without any.
static void *read_args(const mu_stage_ops *ops, const mu_value *stage)
{
    void *args = ops->args_bytes > 0 ? mu__calloc(1, ops->args_bytes) : NULL;
    int i = 2;
    for (const mu_sent_field *field = ops->sent; args != NULL && field->kind != MU_SENT_END; field++) {
        if (field->kind == MU_SENT_NOTHING || read_field(field, stage->items[i++], args))
            continue;
        if (!mu__pending())
            mu__error(MU_INVALID_ARGUMENT, "argument %d is of another kind than expected, or out of its range", i - 2);
        mu__stage_args_free(ops, args);
        return NULL;
    }
    return args;
}

static const struct known_stage *stage_named(const mu_value *stage)
{
    mu_string name = {0};
    if (stage->kind != MU_VALUE_LIST || stage->n < 2 || !mu__described_text(stage->items[0], &name))
        mu__error(MU_INVALID_ARGUMENT, "it does not begin with a name and the numbers of its inputs");
    for (size_t i = 0; i < MU_COUNT(stages) && !mu__pending(); i++)
        if (strcmp(stages[i].ops->name, name.bytes) == 0)
            return &stages[i];
    if (!mu__pending())
        mu__error(MU_INVALID_ARGUMENT, "there is no stage named \"%.60s\" that can be sent", name.bytes);
    return NULL;
}

static mu_dataset *make_stage(const mu_stage_ops *ops, const mu_value *stage, int n_inputs, mu_dataset *const *inputs)
{
    void *args = read_args(ops, stage);
    if (mu__pending())
        return NULL;
    mu_dataset *dataset = mu__dataset_new(ops, args, n_inputs, inputs);
    mu__free(args); // what it owned is the dataset's
    if (dataset == NULL || ops->check == NULL || ops->check(dataset) == MU_OK)
        return dataset;
    mu_release(dataset);
    return NULL;
}

// The stages that were read so far.
typedef struct reading {
    mu_dataset **made; // [n]
    int64_t *opened;   // [n] stages that an iterator of each opens
    int n;
} reading;

// The inputs of a stage that have these numbers, borrowed.
static mu_status find_inputs(reading *r, int64_t n, const int64_t *numbers, mu_dataset **inputs)
{
    int64_t opened = 1;
    for (int64_t i = 0; i < n; i++) {
        if (numbers[i] < 0 || numbers[i] >= r->n)
            return mu__error(MU_INVALID_ARGUMENT, "input %lld is stage %lld, which is not before it", (long long)i,
                             (long long)numbers[i]);
        inputs[i] = r->made[numbers[i]];
        opened += r->opened[numbers[i]];
    }
    r->opened[r->n] = opened;
    return opened <= MOST_OPENED
               ? MU_OK
               : mu__error(
                     MU_INVALID_ARGUMENT,
                     "an iterator would open %lld stages, because inputs are used several times; expected at most %d",
                     (long long)opened, MOST_OPENED);
}

// Makes the next stage, which may use those before it; false on error.
static bool read_stage(reading *r, const mu_value *stage)
{
    const int64_t *numbers;
    int64_t n;
    const struct known_stage *kind = stage_named(stage);
    if (kind == NULL)
        return false;
    if (!mu__described_numbers(stage->items[1], &numbers, &n) || n < kind->fewest || n > kind->most ||
        stage->n != n_sent(kind->ops) + 2) {
        mu__error(MU_INVALID_ARGUMENT, "%s has %d to %d inputs and %d arguments", kind->ops->name, kind->fewest,
                  kind->most, n_sent(kind->ops));
        return false;
    }
    mu_dataset **inputs = mu__calloc((size_t)n + 1, sizeof *inputs), *made = NULL;
    if (inputs != NULL && find_inputs(r, n, numbers, inputs) == MU_OK)
        made = r->made[r->n] = make_stage(kind->ops, stage, (int)n, inputs);
    mu__free(inputs);
    r->n += made != NULL;
    return made != NULL;
}

mu_dataset *mu__dataset_described(const mu_value *description)
{
    const int n = description != NULL && description->kind == MU_VALUE_LIST ? description->n : 0;
    if (n < 1 || n > MU_MOST_STAGES) {
        mu__error(MU_INVALID_ARGUMENT, "the description of a dataset must be a list of 1 to %d stages", MU_MOST_STAGES);
        return NULL;
    }
    reading r = {.made = mu__calloc((size_t)n + 1, sizeof *r.made), .opened = mu__calloc((size_t)n, sizeof *r.opened)};
    const bool memory = r.made != NULL && r.opened != NULL;
    while (memory && r.n < n && read_stage(&r, description->items[r.n]))
        continue;
    if (memory && r.n < n)
        mu__error_context("stage %d of the description of a dataset", r.n);
    mu_dataset *last = r.n == n ? mu_retain(r.made[n - 1]) : NULL;
    for (int i = 0; i < r.n; i++)
        mu_release(r.made[i]);
    mu__free(r.made);
    mu__free(r.opened);
    return last;
}
