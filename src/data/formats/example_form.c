// The functions and the dataset stage that parse examples: what the user asks for, checked once and kept.
#include "data/describe.h"
#include "data/formats/example_form.h"

static const char parse_example[] = "mu_parse_example", parse_sequence[] = "mu_parse_sequence_example";

// ---- Requested features -------------------------------------------------------------------------

static void list_free(mu_feature_list *list)
{
    for (int i = 0; list->items != NULL && i < list->n; i++) {
        mu__free((char *)list->items[i].name);
        mu__free((char *)list->items[i].lengths);
        mu_release(list->items[i].default_value);
    }
    mu__free(list->items);
    mu_release(list->like);
}

static void form_destroy(void *object)
{
    mu_example_form *form = object;
    list_free(&form->features);
    list_free(&form->sequences);
}

static mu_type form_type = {.name = "example form", .destroy = form_destroy};

static mu_status check_default(const char *function, const mu_feature *f)
{
    const mu_tensor *value = f->default_value;
    char text[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (value == NULL)
        return MU_OK;
    if (value->buffer == NULL || value->dtype != f->dtype ||
        (value->shape.rank > 0 && (f->length == MU_FEATURE_VARIABLE || !mu__shape_equal(&value->shape, &f->shape))))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the default value of feature '%s' is %s %s; a scalar of %s%s%s is wanted", function,
                         f->name, mu_dtype_name(value->dtype), mu__shape_text(&value->shape, text),
                         mu_dtype_name(f->dtype), f->length == MU_FEATURE_VARIABLE ? "" : ", or a tensor of shape ",
                         f->length == MU_FEATURE_VARIABLE ? "" : mu__shape_text(&f->shape, wanted));
    return mu__host_read(value) != NULL ? MU_OK : mu_error_code();
}

// `steps`: of a sequence, whose steps are counted also where each has a fixed length.
static mu_status check_feature(const char *function, int i, const mu_feature *f, bool steps)
{
    enum { MORE_AXES = 3 }; // of the batch, the sequence and the steps
    if (f->name == NULL)
        return mu__error(MU_INVALID_ARGUMENT, "%s: feature %d has no name", function, i);
    if (f->dtype != MU_F32 && f->dtype != MU_I64 && f->dtype != MU_STRING)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "%s: feature '%s' is to be %s; examples hold MU_F32, MU_I64 and MU_STRING, which mu_cast converts later",
            function, f->name, mu_dtype_name(f->dtype));
    if (f->lengths != NULL && f->length != MU_FEATURE_VARIABLE && !steps)
        return mu__error(MU_INVALID_ARGUMENT, "%s: feature '%s' has a fixed length, and .lengths; drop one of them",
                         function, f->name);
    MU_TRY(mu__shape_check(&f->shape, function));
    if (!mu__shape_known(&f->shape) || f->shape.rank > MU_MAX_RANK - MORE_AXES)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the shape of feature '%s' has an unknown axis, or more than %d; use MU_FEATURE_VARIABLE "
                         "for a length that varies",
                         function, f->name, MU_MAX_RANK - MORE_AXES);
    return check_default(function, f);
}

// Copies one feature, and adds what it gives to keys and leaves.
static mu_status keep_feature(mu_feature_list *list, const mu_feature *f, const char **keys, mu_value **leaves)
{
    mu_feature *kept = &list->items[list->n++];
    *kept = *f;
    kept->default_value = mu_retain(f->default_value);
    kept->lengths = NULL;
    kept->name = mu__strdup(f->name);
    if (kept->name == NULL || (f->lengths != NULL && (kept->lengths = mu__strdup(f->lengths)) == NULL))
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < 1 + (f->lengths != NULL); i++) {
        keys[list->n_leaves] = i == 0 ? kept->name : kept->lengths;
        for (int k = 0; k < list->n_leaves; k++)
            if (strcmp(keys[k], keys[list->n_leaves]) == 0)
                return mu__error(MU_INVALID_ARGUMENT,
                                 "two features or lengths have the name '%s'; a map has each name once", keys[k]);
        leaves[list->n_leaves] = mu__spec_leaf(MU_I64, &mu__scalar_shape);
        if (leaves[list->n_leaves++] == NULL)
            return mu_error_code();
    }
    return MU_OK;
}

static mu_status keep_list(mu_feature_list *list, const char *function, int n, const mu_feature *features, bool steps)
{
    const char **keys = mu__calloc(2 * (size_t)n + 1, sizeof *keys);
    mu_value **leaves = mu__calloc(2 * (size_t)n + 1, sizeof *leaves);
    list->items = mu__calloc((size_t)n + 1, sizeof *list->items);
    mu_status status = keys != NULL && leaves != NULL && list->items != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; status == MU_OK && i < n; i++) {
        status = check_feature(function, i, &features[i], steps);
        if (status == MU_OK)
            status = keep_feature(list, &features[i], keys, leaves);
    }
    if (status == MU_OK)
        list->like = mu__value_container(MU_VALUE_MAP, list->n_leaves, leaves, keys);
    for (int i = 0; leaves != NULL && i < list->n_leaves; i++)
        mu_release(leaves[i]);
    mu__free(keys);
    mu__free(leaves);
    return status != MU_OK || list->like != NULL ? status : mu_error_code();
}

static mu_status check_count(const char *function, const char *what, int n, const mu_feature *features)
{
    if (n >= 0 && n <= UINT16_MAX && (n == 0 || features != NULL))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: %d %s%s; give 0 to %d and the array of them", function, n, what,
                     features == NULL ? ", and NULL for them" : "", UINT16_MAX);
}

mu_example_form *mu__example_form_new(const char *function, int n_features, const mu_feature *features, int n_sequences,
                                      const mu_feature *sequences)
{
    const bool sequential = n_sequences >= 0;
    if (check_count(function, "features", n_features, features) != MU_OK ||
        (sequential && check_count(function, "sequences", n_sequences, sequences) != MU_OK))
        return NULL;
    mu_example_form *form = mu__new(&form_type, sizeof *form);
    if (form == NULL)
        return NULL;
    form->sequential = sequential;
    if (keep_list(&form->features, function, n_features, features, false) == MU_OK &&
        (!sequential || keep_list(&form->sequences, function, n_sequences, sequences, true) == MU_OK))
        return form;
    mu_release(form);
    return NULL;
}

// ---- Examples -----------------------------------------------------------------------------------

static mu_status records_of(mu_records *records, const mu_tensor *serialized)
{
    const bool string = serialized->dtype == MU_STRING && serialized->shape.rank <= 1;
    if (serialized->buffer == NULL || !(string || (serialized->dtype == MU_U8 && serialized->shape.rank == 1))) {
        char text[MU_SHAPE_TEXT];
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the examples are %s %s%s; expected a string, a vector of strings, or of uint8",
                         records->function, mu_dtype_name(serialized->dtype), mu__shape_text(&serialized->shape, text),
                         serialized->buffer == NULL ? " of a trace" : "");
    }
    records->batch = string && serialized->shape.rank == 1;
    records->n = string ? mu__elements(&serialized->shape) : 1;
    if ((records->items = mu__calloc((size_t)records->n + 1, sizeof *records->items)) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    for (int64_t i = 0; string && i < records->n; i++) {
        const mu_string record = mu__string_at(serialized, i);
        records->items[i] = (mu_span){(const uint8_t *)record.bytes, record.n};
    }
    if (!string)
        records->items[0] = (mu_span){mu__host_read(serialized), (size_t)serialized->shape.dims[0]};
    return MU_OK;
}

// Parses what one tensor holds; owned.
static mu_value *parse(const mu_example_form *form, const char *function, const mu_tensor *serialized)
{
    const mu_example_map first = form->sequential ? MU_EXAMPLE_CONTEXT : MU_EXAMPLE_FEATURES;
    mu_records records = {.function = function};
    mu_value *parts[2] = {NULL};
    if (records_of(&records, serialized) == MU_OK &&
        (parts[0] = mu__example_parse(&records, &form->features, first)) != NULL && form->sequential)
        parts[1] = mu__example_parse(&records, &form->sequences, MU_EXAMPLE_LISTS);
    mu__free(records.items);
    return form->sequential ? mu__list_value(2, parts) : parts[0];
}

static mu_value *parse_once(const char *function, mu_tensor *serialized, int n_features, const mu_feature *features,
                            int n_sequences, const mu_feature *sequences)
{
    if (mu__need(serialized, "the serialised examples") != MU_OK)
        return NULL;
    mu_example_form *form = mu__example_form_new(function, n_features, features, n_sequences, sequences);
    mu_value *value = form != NULL ? parse(form, function, serialized) : NULL;
    mu_release(form);
    return mu__give(value);
}

mu_value *mu_parse_example(mu_tensor *serialized, int n_features, const mu_feature *features)
{
    return parse_once(parse_example, serialized, n_features, features, -1, NULL);
}

mu_value *mu_parse_sequence_example(mu_tensor *serialized, int n_context, const mu_feature *context, int n_sequences,
                                    const mu_feature *sequences)
{
    return parse_once(parse_sequence, serialized, n_context, context, MU_MAX(n_sequences, 0), sequences);
}

// ---- The stage ----------------------------------------------------------------------------------

typedef struct parse_args {
    mu_example_form *form; // owned
} parse_args;

static const mu_sent_field parse_sent[] = {MU_SENDS_OBJECT(parse_args, form, &mu__example_form_form),
                                           {.kind = MU_SENT_END}};
static const mu_owned_field parse_owned[] = {{MU_OWNS_OBJECT, offsetof(parse_args, form)}, {MU_OWNS_END, 0}};

static const mu_example_form *form_of(const mu_dataset *dataset) { return ((const parse_args *)dataset->args)->form; }

static mu_status parse_next(mu_stage *stage, mu_item *item, bool *end)
{
    mu_leaves leaves = {0};
    mu_value *parsed = NULL;
    MU_TRY(mu__stage_next(stage, 0, item, end));
    if (*end)
        return MU_OK;
    mu_status status = mu__item_value(item) != NULL ? mu__leaves_of(item->value, &leaves) : mu_error_code();
    if (status == MU_OK && leaves.n != 1)
        status = mu__error(MU_INVALID_ARGUMENT,
                           "mu_dataset_parse_example: an element has %d tensors; expected one, of serialised examples",
                           leaves.n);
    if (status == MU_OK) {
        parsed = parse(form_of(stage->dataset), "mu_dataset_parse_example", mu__leaf(&leaves, 0));
        status = parsed != NULL ? MU_OK : mu_error_code();
    }
    mu__leaves_free(&leaves);
    mu__item_drop(item);
    *item = (mu_item){.value = parsed};
    return status;
}

static mu_status parse_skip(mu_stage *stage, int64_t count, int64_t *skipped)
{
    return mu__stage_skip(stage, 0, count, skipped);
}

static int64_t parse_cardinality(const mu_dataset *dataset) { return mu_dataset_cardinality(dataset->inputs[0]); }

// Whether a feature's tensor has the axes of the batch (size `batch`), of the sequence and of the steps.
static mu_value *list_spec(const mu_feature_list *list, const mu_shape *before, const mu_shape *batch)
{
    mu_leaves made;
    bool ok = mu__build_begin(&made, list->n_leaves);
    for (int i = 0; ok && i < list->n; i++) {
        const mu_feature *f = &list->items[i];
        mu_shape shape = *before;
        if (f->length == MU_FEATURE_VARIABLE)
            shape.dims[shape.rank++] = MU_UNKNOWN;
        for (int k = 0; k < f->shape.rank; k++)
            shape.dims[shape.rank++] = f->shape.dims[k];
        ok = mu__build_add(&made, mu__tensor_symbolic(NULL, 0, &(mu_spec){f->dtype, shape}, NULL));
        if (ok && f->lengths != NULL)
            ok = mu__build_add(&made, mu__tensor_symbolic(NULL, 0, &(mu_spec){MU_I64, *batch}, NULL));
    }
    return mu__build_end(&made, list->like);
}

static mu_value *parse_spec(const mu_dataset *dataset)
{
    const mu_example_form *form = form_of(dataset);
    mu_leaves leaves = {0};
    mu_value *input = mu__dataset_spec(dataset->inputs[0]), *parts[2] = {NULL};
    if (input == NULL || mu__leaves_of(input, &leaves) != MU_OK || leaves.n != 1) {
        mu__leaves_free(&leaves);
        mu_release(input);
        return NULL;
    }
    const mu_tensor *serialized = mu__leaf(&leaves, 0);
    mu_shape batch = serialized->dtype == MU_STRING ? serialized->shape : mu__scalar_shape, steps = batch;
    mu__leaves_free(&leaves);
    mu_release(input);
    if (batch.rank > 1)
        return NULL;
    steps.dims[steps.rank++] = MU_UNKNOWN;
    parts[0] = list_spec(&form->features, &batch, &batch);
    if (!form->sequential)
        return parts[0];
    parts[1] = list_spec(&form->sequences, &steps, &batch);
    return mu__list_value(2, parts);
}

const mu_stage_ops mu__parse_example_stage = {
    .name = "parse_example",
    .sent = parse_sent,
    .args_bytes = sizeof(parse_args),
    .owned = parse_owned,
    .next = parse_next,
    .skip = parse_skip,
    .cardinality = parse_cardinality,
    .spec = parse_spec,
    .batch_size = mu__batch_size_of_inputs,
};

mu_dataset *mu_dataset_parse_example_with(const mu_dataset_parse_example_args *args)
{
    static const char function[] = "mu_dataset_parse_example";
    mu_dataset_parse_example_args a;
    if (mu__pending() || mu__args_copy(&a, sizeof a, args, function) != MU_OK)
        return NULL;
    const int n_sequences = a.sequences != NULL || a.n_sequences != 0 ? MU_MAX(a.n_sequences, 0) : -1;
    const parse_args stage = {mu__example_form_new(function, a.n_features, a.features, n_sequences, a.sequences)};
    return stage.form != NULL ? mu__dataset_stage(&mu__parse_example_stage, &stage, a.dataset) : NULL;
}
