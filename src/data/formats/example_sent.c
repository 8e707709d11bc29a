// What a user asks of serialised examples as part of a description: [features, sequences], or [features] of Examples.
//
// A feature is [name, numbers, name of its lengths, default value], where the last two may be empty lists; the
// numbers are its type, whether its length varies, and its axes.
#include "data/describe.h"
#include "data/formats/example_form.h"

enum { MOST_FEATURES = 4096, FIRST_AXIS = 2 };
static const char function[] = "mu_dataset_parse_example";

// ---- Writing ------------------------------------------------------------------------------------

static mu_value *write_feature(const mu_feature *f)
{
    int64_t numbers[FIRST_AXIS + MU_MAX_RANK] = {(int64_t)f->dtype, (int64_t)f->length};
    memcpy(numbers + FIRST_AXIS, f->shape.dims, (size_t)f->shape.rank * sizeof *numbers);
    return mu_list(mu_of(mu_string_scalar(f->name)), mu__int64s_value(FIRST_AXIS + f->shape.rank, numbers),
                   f->lengths != NULL ? mu_of(mu_string_scalar(f->lengths)) : mu_list(MU_END),
                   f->default_value != NULL ? mu_of((mu_tensor *)(uintptr_t)f->default_value) : mu_list(MU_END),
                   MU_END);
}

static mu_value *write_list(const mu_feature_list *list)
{
    if (list->n > MOST_FEATURES) {
        mu__error(MU_UNIMPLEMENTED, "%s: more than %d features are not sent to another process", function,
                  MOST_FEATURES);
        return NULL;
    }
    mu_value **items = mu__calloc((size_t)list->n + 1, sizeof *items);
    for (int i = 0; items != NULL && i < list->n; i++)
        items[i] = write_feature(&list->items[i]);
    mu_value *written = items != NULL ? mu_list_of(list->n, items) : NULL;
    mu__free(items);
    return written;
}

static mu_value *write_form(const void *object, const mu_dataset *dataset)
{
    const mu_example_form *form = object;
    (void)dataset;
    mu_value *features = write_list(&form->features);
    return form->sequential ? mu_list(features, write_list(&form->sequences), MU_END) : mu_list(features, MU_END);
}

// ---- Reading ------------------------------------------------------------------------------------

static bool is_nothing(const mu_value *value) { return value->kind == MU_VALUE_LIST && value->n == 0; }

// The texts and the default value stay the description's.
static bool read_feature(const mu_value *value, mu_feature *out)
{
    const int64_t *numbers;
    int64_t n;
    mu_string name, lengths = {0};
    if (value->kind != MU_VALUE_LIST || value->n != 4 || !mu__described_text(value->items[0], &name) ||
        !mu__described_numbers(value->items[1], &numbers, &n) || n < FIRST_AXIS || n > FIRST_AXIS + MU_MAX_RANK ||
        numbers[0] < 0 || numbers[0] > INT8_MAX || numbers[1] < 0 || numbers[1] > MU_FEATURE_VARIABLE ||
        !(is_nothing(value->items[2]) || mu__described_text(value->items[2], &lengths)) ||
        !(is_nothing(value->items[3]) || value->items[3]->kind == MU_VALUE_TENSOR))
        return false;
    *out = (mu_feature){.name = name.bytes,
                        .dtype = (mu_dtype)numbers[0],
                        .lengths = lengths.bytes,
                        .length = (mu_feature_length)numbers[1],
                        .shape = {.rank = (int)n - FIRST_AXIS}};
    memcpy(out->shape.dims, numbers + FIRST_AXIS, (size_t)out->shape.rank * sizeof *numbers);
    if (!is_nothing(value->items[3]))
        out->default_value = (mu_tensor *)value->items[3]->leaf;
    return true;
}

// [n] features, which the caller frees; NULL: they are something else, or an error.
static mu_feature *read_list(const mu_value *list)
{
    if (list->kind != MU_VALUE_LIST || list->n > MOST_FEATURES)
        return NULL;
    mu_feature *features = mu__calloc((size_t)list->n + 1, sizeof *features);
    for (int i = 0; features != NULL && i < list->n; i++)
        if (!read_feature(list->items[i], &features[i])) {
            mu__free(features);
            return NULL;
        }
    return features;
}

static void *read_form(const mu_value *value)
{
    if (value->kind != MU_VALUE_LIST || value->n < 1 || value->n > 2)
        return NULL;
    const int n = value->items[0]->n, n_sequences = value->n == 2 ? value->items[1]->n : -1;
    mu_feature *features = read_list(value->items[0]), *sequences = NULL;
    bool whole = features != NULL;
    if (whole && value->n == 2)
        whole = (sequences = read_list(value->items[1])) != NULL;
    mu_example_form *form = whole ? mu__example_form_new(function, n, features, n_sequences, sequences) : NULL;
    mu__free(features);
    mu__free(sequences);
    return form;
}

const mu_object_form mu__example_form_form = {.write = write_form, .read = read_form};
