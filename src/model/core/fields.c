// Defaults, checks and copies of options, by the class's table of fields.
#include "model/core/fields.h"
#include "model/core/layer.h"
#include "model/optimizers/optimizer.h"

#include <math.h>

static void *at(const void *args, const mu_field *field) { return (char *)(uintptr_t)args + field->offset; }

static const char **text_at(const void *args, const mu_field *field) { return at(args, field); }

// What a field of a weight's options holds; NULL: it is none.
static mu_weight_option_kind *option_kind(const mu_field *field)
{
    return field->kind == MU_FIELD_INITIALIZER   ? &mu__initializer_kind
           : field->kind == MU_FIELD_REGULARIZER ? &mu__regularizer_kind
           : field->kind == MU_FIELD_CONSTRAINT  ? &mu__constraint_kind
                                                 : NULL;
}

// The member that holds an object, or NULL if the field has none.
static void **object_at(const void *args, const mu_field *field)
{
    const bool is_object = option_kind(field) || field->kind == MU_FIELD_LAYER || field->kind == MU_FIELD_OPTIMIZER;
    return is_object                      ? at(args, field)
           : field->kind == MU_FIELD_RATE ? (void **)(void *)((char *)(uintptr_t)args + field->second)
                                          : NULL;
}

static bool is_text(const mu_field *field)
{
    return field->kind == MU_FIELD_TEXT || field->kind == MU_FIELD_CHOICE || field->kind == MU_FIELD_ACTIVATION ||
           field->kind == MU_FIELD_NAME || field->kind == MU_FIELD_POLICY;
}

// ---- Checks -------------------------------------------------------------------------------------

static bool within(mu_limit limit, double value, bool whole)
{
    switch (limit) {
    case MU_ANY_NUMBER: return true;
    case MU_POSITIVE: return whole ? value >= 1 : value > 0;
    case MU_NOT_NEGATIVE: return value >= 0;
    case MU_NOT_POSITIVE: return value <= 0;
    case MU_FRACTION: return value >= 0 && value <= 1;
    case MU_BELOW_ONE: return value >= 0 && value < 1;
    case MU_INSIDE: return value > 0 && value < 1;
    }
    return false;
}

static mu_status check_number(const mu_class *class, const mu_field *field, double value, bool whole)
{
    static const char *const expected[] = {
        [MU_ANY_NUMBER] = "",          [MU_NOT_NEGATIVE] = "0 or more",      [MU_NOT_POSITIVE] = "0 or less",
        [MU_FRACTION] = "from 0 to 1", [MU_BELOW_ONE] = "from 0 to below 1", [MU_INSIDE] = "between 0 and 1"};
    if (within(field->limit, value, whole))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s is %g; it must be %s", class->function, field->name, value,
                     field->limit != MU_POSITIVE ? expected[field->limit]
                     : whole                     ? "1 or more"
                                                 : "above 0");
}

// A negative default, Keras's None, is outside of what callers may give.
static mu_status check_array_number(const mu_class *class, const mu_field *field, bool in_array, int i, int value)
{
    char name[64];
    if (!in_array && value < 0 && value == (int)field->number)
        return MU_OK;
    snprintf(name, sizeof name, in_array ? "%s[%d]" : "%s", in_array ? field->array : field->name, i);
    mu_field named = *field;
    named.name = name;
    return check_number(class, &named, value, true);
}

static mu_status check_choice(const mu_class *class, const mu_field *field, const char *word)
{
    char known[256] = "";
    for (int i = 0; field->choices[i]; i++) {
        if (strcmp(field->choices[i], word) == 0)
            return MU_OK;
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s'%s'", i ? ", " : "", field->choices[i]);
    }
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s is '%s'; it must be one of %s", class->function, field->name, word,
                     known);
}

// Lists: a pointer to numbers, and how many there are.
static size_t number_bytes(const mu_field *field)
{
    return field->kind == MU_FIELD_INTS      ? sizeof(int)
           : field->kind == MU_FIELD_DOUBLES ? sizeof(double)
           : field->kind == MU_FIELD_LONGS   ? sizeof(int64_t)
                                             : 0;
}

static const void **list_at(const void *args, const mu_field *field) { return at(args, field); }

static int list_length(const void *args, const mu_field *field)
{
    return *(const int *)(const void *)((const char *)args + field->second);
}

static double list_number(const void *args, const mu_field *field, int i)
{
    const void *list = *list_at(args, field);
    return field->kind == MU_FIELD_INTS    ? ((const int *)list)[i]
           : field->kind == MU_FIELD_LONGS ? (double)((const int64_t *)list)[i]
                                           : ((const double *)list)[i];
}

static mu_status check_list(const mu_class *class, const mu_field *field, const void *args)
{
    const int n = list_length(args, field);
    if (n < 0 || (n > 0) != (*list_at(args, field) != NULL))
        return mu__error(MU_INVALID_ARGUMENT, "%s: n_%s is %d and %s is %s; give a list and its length, or neither",
                         class->function, field->name, n, field->name, *list_at(args, field) ? "a list" : "NULL");
    for (int i = 0; i < n && field->kind != MU_FIELD_TEXTS; i++)
        MU_TRY(check_number(class, field, list_number(args, field, i), field->kind != MU_FIELD_DOUBLES));
    for (int i = 0; i < n && field->kind == MU_FIELD_TEXTS; i++)
        if (((const char *const *)*list_at(args, field))[i] == NULL)
            return mu__error(MU_INVALID_ARGUMENT, "%s: %s[%d] is NULL; give a string", class->function, field->name, i);
    return MU_OK;
}

// The number of ints in a field's array, and the array.
static int array_count(const mu_field *field) { return field->pairs ? 2 * field->n : field->n; }

static int *array_at(const void *args, const mu_field *field)
{
    return (int *)(void *)((char *)(uintptr_t)args + field->array_offset);
}

static mu_status check_dims(const mu_class *class, const mu_field *field, const int64_t *dims)
{
    for (int i = 0; i < MU_MAX_SAMPLE_RANK && dims[i] != 0; i++)
        if (dims[i] < 1 && dims[i] != MU_UNKNOWN)
            return mu__error(MU_INVALID_ARGUMENT, "%s: dimension %d of %s is %lld; it must be positive, or MU_UNKNOWN",
                             class->function, i, field->name, (long long)dims[i]);
    return MU_OK;
}

// ---- Defaults -----------------------------------------------------------------------------------

// The number of arguments that may go without a name before this one; -1 if it needs its name.
static int position(const mu_class *class, const mu_field *field)
{
    int before = 0;
    for (const mu_field *other = class->fields; other->kind != MU_FIELD_END; other++)
        before += other->kind != MU_FIELD_FIXED && other->offset < field->offset;
    return field->offset < class->only ? before : -1;
}

// An argument that is written counts, also if it is 0.
static bool is_given(const mu_class *class, const mu_field *field, const void *args)
{
    return mu__args_text(args, field->name, position(class, field)) != NULL;
}

// Completes and checks the array of a field that has a number for each axis.
static mu_status fill_array(const mu_class *class, const mu_field *field, void *args)
{
    const int n = array_count(field);
    int *common = at(args, field), *array = array_at(args, field), last = 0;
    for (int i = 0; i < field->array_length; i++)
        last = array[i] != 0 ? i + 1 : last;
    const bool has_array = last > 0 || mu__args_given(args, field->array);
    if (has_array && *common != 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %s and %s are both given; give one of them", class->function,
                         field->name, field->array);
    if (last > n)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %s has %d numbers; give %d", class->function, field->array, last, n);
    const int value = *common || is_given(class, field, args) ? *common : (int)field->number;
    for (int i = 0; i < n; i++) {
        array[i] = has_array ? array[i] : value;
        MU_TRY(check_array_number(class, field, has_array, i, array[i]));
    }
    return MU_OK;
}

static mu_status fill_range(const mu_class *class, const mu_field *field, void *args)
{
    double *range = at(args, field);
    if (range[0] != 0 || range[1] != 0 || is_given(class, field, args))
        return MU_OK;
    range[0] = field->number;
    range[1] = field->high;
    return MU_OK;
}

// Makes the object that an option of a weight names.
static mu_status fill_option(const mu_class *class, const mu_field *field, void *args)
{
    void **object = object_at(args, field);
    const void *given = *object ? *object : field->text;
    *object = mu__weight_option_argument(option_kind(field), given, class->function);
    return *object || !given ? MU_OK : mu_error_code();
}

// Puts in the default and checks one field.
static mu_status fill(const mu_class *class, const mu_field *field, void *args)
{
    const char **text = text_at(args, field);
    int *number = at(args, field);
    int64_t *wide = at(args, field);
    double *real = at(args, field);
    switch (field->kind) {
    case MU_FIELD_INT:
        *number = *number || is_given(class, field, args) ? *number : (int)field->number;
        return check_number(class, field, *number, true);
    case MU_FIELD_INT64:
        *wide = *wide || is_given(class, field, args) ? *wide : (int64_t)field->number;
        return check_number(class, field, (double)*wide, true);
    case MU_FIELD_DOUBLE:
    case MU_FIELD_RATE:
        if (field->kind == MU_FIELD_RATE && *object_at(args, field) && is_given(class, field, args))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "%s: .%s and .schedule are both given; a schedule says each step's rate, so give one of them",
                class->function, field->name);
        *real = *real != 0 || is_given(class, field, args) ? *real : field->number;
        return isnan(*real) && isnan(field->number) ? MU_OK : check_number(class, field, *real, false);
    case MU_FIELD_CHOICE: *text = *text ? *text : field->text; return *text ? check_choice(class, field, *text) : MU_OK;
    case MU_FIELD_ACTIVATION:
        *text = *text ? *text : field->text ? field->text : "linear";
        return mu__activation_known(*text, class->function);
    case MU_FIELD_POLICY: return *text ? mu__layer_policy_named(*text, class->function, &(mu_layer_policy){0}) : MU_OK;
    case MU_FIELD_INITIALIZER:
    case MU_FIELD_REGULARIZER:
    case MU_FIELD_CONSTRAINT: return fill_option(class, field, args);
    case MU_FIELD_AXES: return fill_array(class, field, args);
    case MU_FIELD_RANGE: return fill_range(class, field, args);
    case MU_FIELD_DIMS: return check_dims(class, field, wide);
    case MU_FIELD_INTS:
    case MU_FIELD_DOUBLES:
    case MU_FIELD_LONGS:
    case MU_FIELD_TEXTS: return check_list(class, field, args);
    default: return MU_OK;
    }
}

mu_status mu__fields_fill(const mu_class *class, void *args, const void *given)
{
    MU_TRY(mu__args_take(args, class->args_bytes, class->only, given, class->function));
    bool seeded = false;
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END; field++) {
        MU_TRY(fill(class, field, args));
        seeded |= field->kind == MU_FIELD_SEED && is_given(class, field, args);
    }
    MU_TRY(class->complete ? class->complete(args) : MU_OK);
    ((mu_args_head *)args)->given = seeded ? ".seed" : NULL; // the caller's text does not live as long as the object
    return MU_OK;
}

// ---- Copies -------------------------------------------------------------------------------------

static void drop_texts(void *args, const mu_field *field)
{
    char **texts = *(char ***)at(args, field);
    for (int i = 0; texts && i < list_length(args, field); i++)
        mu__free(texts[i]);
    mu__free(texts);
}

void mu__fields_drop_list(const mu_class *class, void *args, const char *name)
{
    for (const mu_field *field = class->fields; field->kind != MU_FIELD_END; field++)
        if (strcmp(field->name, name) == 0) {
            if (field->kind == MU_FIELD_TEXTS)
                drop_texts(args, field);
            else
                mu__free((void *)(uintptr_t)*list_at(args, field));
        }
}

void mu__fields_drop(const mu_class *class, void *args)
{
    if (!args)
        return;
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END; field++)
        if (is_text(field) || number_bytes(field) > 0)
            mu__free((void *)(uintptr_t)*text_at(args, field));
        else if (field->kind == MU_FIELD_TEXTS)
            drop_texts(args, field);
        else if (object_at(args, field))
            mu_release(*object_at(args, field));
    mu__free(args);
}

// A copy of a list, which is not empty; NULL on error.
static void *copy_list(const void *args, const mu_field *field)
{
    const size_t bytes = (size_t)list_length(args, field) * number_bytes(field);
    void *copy = mu__alloc(bytes);
    return copy ? memcpy(copy, *list_at(args, field), bytes) : NULL;
}

// A copy of a list of strings; its strings are NULL from the first that had no memory.
static char **copy_texts(const void *args, const mu_field *field, bool *whole)
{
    const char *const *from = *(const char *const *const *)at(args, field);
    const int n = list_length(args, field);
    char **copy = mu__calloc((size_t)n, sizeof *copy);
    *whole = *whole && copy != NULL;
    for (int i = 0; *whole && i < n; i++)
        *whole = (copy[i] = mu__strdup(from[i])) != NULL;
    return copy;
}

void *mu__fields_keep(const mu_class *class, const void *args)
{
    void *copy = mu__alloc(class->args_bytes);
    bool whole = copy != NULL;
    if (!copy)
        return NULL;
    memcpy(copy, args, class->args_bytes);
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END; field++)
        if (is_text(field) && *text_at(copy, field))
            whole &= (*text_at(copy, field) = mu__strdup(*text_at(args, field))) != NULL;
        else if (number_bytes(field) > 0 && *list_at(args, field))
            whole &= (*list_at(copy, field) = copy_list(args, field)) != NULL;
        else if (field->kind == MU_FIELD_TEXTS && *list_at(args, field))
            *list_at(copy, field) = copy_texts(args, field, &whole);
        else if (object_at(copy, field))
            mu_retain(*object_at(copy, field));
    if (whole)
        return copy;
    mu__fields_drop(class, copy);
    return NULL;
}

void *mu__fields_object(const mu_class *class, const void *args, const char *name)
{
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END; field++)
        if (object_at(args, field) && strcmp(field->name, name) == 0)
            return *object_at(args, field);
    return NULL;
}

const char *mu__fields_text(const mu_class *class, const void *args, const char *name)
{
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END; field++)
        if (is_text(field) && strcmp(field->name, name) == 0)
            return *text_at(args, field);
    return NULL;
}

// The first text of a kind; NULL: it was not given, or there is no such field.
static const char *text_of_kind(const mu_class *class, const void *args, mu_field_kind kind)
{
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END; field++)
        if (field->kind == kind)
            return *text_at(args, field);
    return NULL;
}

const char *mu__fields_name(const mu_class *class, const void *args)
{
    return text_of_kind(class, args, MU_FIELD_NAME);
}

const char *mu__fields_policy(const mu_class *class, const void *args)
{
    return text_of_kind(class, args, MU_FIELD_POLICY);
}

// ---- Keras's JSON -------------------------------------------------------------------------------

// Keras writes a list with a number for each axis, or a list of pairs; the pair itself if there is one axis.
static json_t *array_json(const void *args, const mu_field *field)
{
    const int *array = array_at(args, field);
    if (field->number < 0 && array[0] < 0)
        return json_null();
    if (field->pairs && field->n == 1)
        return json_pack("[i, i]", array[0], array[1]);
    json_t *list = json_array();
    for (int i = 0; list && i < field->n; i++)
        json_array_append_new(list, field->pairs ? json_pack("[i, i]", array[2 * i], array[2 * i + 1])
                                                 : json_integer(array[i]));
    return list;
}

static json_t *dims_json(const mu_field *field, const int64_t *dims)
{
    json_t *list = field->none && dims[0] == 0 ? json_null() : json_array();
    for (int i = 0; i < MU_MAX_SAMPLE_RANK && dims[i] != 0; i++)
        json_array_append_new(list, dims[i] != MU_UNKNOWN ? json_integer(dims[i])
                                    : field->nulls        ? json_null()
                                                          : json_integer(-1));
    return list;
}

static json_t *item_json(const void *args, const mu_field *field, int i)
{
    const void *list = *list_at(args, field);
    switch (field->kind) {
    case MU_FIELD_TEXTS: return json_string(((const char *const *)list)[i]);
    case MU_FIELD_LONGS: return json_integer(((const int64_t *)list)[i]);
    case MU_FIELD_INTS: return json_integer(((const int *)list)[i]);
    default: return json_real(((const double *)list)[i]);
    }
}

static json_t *list_json(const void *args, const mu_field *field)
{
    if (!*list_at(args, field))
        return field->none_is_empty ? json_array() : json_null();
    if (field->single && list_length(args, field) == 1)
        return item_json(args, field, 0);
    json_t *list = json_array();
    for (int i = 0; list && i < list_length(args, field); i++)
        if (json_array_append_new(list, item_json(args, field, i)) != 0) {
            json_decref(list);
            mu__error(MU_INVALID_ARGUMENT,
                      "%s[%d] is not UTF-8, so it cannot be written to a configuration; encode it as UTF-8",
                      field->name, i);
            return NULL;
        }
    return list;
}

static json_t *range_json(const mu_field *field, const double *range)
{
    if (isnan(range[0]))
        return json_null();
    return field->whole ? json_pack("[I, I]", (json_int_t)range[0], (json_int_t)range[1])
                        : json_pack("[f, f]", range[0], range[1]);
}

static json_t *rate_json(const void *args, const mu_field *field)
{
    const mu_learning_rate_schedule *schedule = *object_at(args, field);
    return schedule ? mu__schedule_json(schedule) : json_real(*(const double *)at(args, field));
}

static bool is_none(const void *value, const mu_field *field)
{
    if (field->null_choice)
        return strcmp(*(const char *const *)value, field->null_choice) == 0;
    if (!field->none || field->kind == MU_FIELD_DOUBLE)
        return field->none && *(const double *)value == 0;
    const int64_t number = field->kind == MU_FIELD_INT64 ? *(const int64_t *)value : *(const int *)value;
    return number == (int64_t)field->number;
}

// Whether the next row of one with .or_next has a value: a list, or an integer.
static bool has_next(const void *args, const mu_field *next)
{
    return number_bytes(next) > 0 ? *list_at(args, next) != NULL : !is_none(at(args, next), next);
}

static json_t *value_json(const void *args, const mu_field *field)
{
    field += field->or_next && has_next(args, field + 1);
    const void *value = at(args, field);
    if (is_none(value, field))
        return json_null();
    switch (field->kind) {
    case MU_FIELD_INT: return json_integer(*(const int *)value);
    case MU_FIELD_AXES: return array_json(args, field);
    case MU_FIELD_INT64: return json_integer(*(const int64_t *)value);
    case MU_FIELD_DOUBLE: return isnan(*(const double *)value) ? json_null() : json_real(*(const double *)value);
    case MU_FIELD_RANGE: return range_json(field, value);
    case MU_FIELD_FLAG: return json_boolean(*(const bool *)value);
    case MU_FIELD_NOT: return json_boolean(!*(const bool *)value);
    case MU_FIELD_SEED:
        return *(const uint64_t *)value || mu__args_given(args, field->name)
                   ? json_integer((json_int_t) * (const uint64_t *)value)
                   : json_null();
    case MU_FIELD_DIMS: return dims_json(field, value);
    case MU_FIELD_INTS:
    case MU_FIELD_DOUBLES:
    case MU_FIELD_LONGS:
    case MU_FIELD_TEXTS: return list_json(args, field);
    case MU_FIELD_INITIALIZER:
    case MU_FIELD_REGULARIZER:
    case MU_FIELD_CONSTRAINT: return mu__weight_option_json(option_kind(field), *object_at(args, field));
    case MU_FIELD_OPTIMIZER: return mu__optimizer_json(*(mu_optimizer *const *)value);
    case MU_FIELD_RATE: return rate_json(args, field);
    case MU_FIELD_LAYER: return *(mu_layer *const *)value ? mu__layer_json(*(mu_layer *const *)value) : json_null();
    default: return *text_at(args, field) ? json_string(*text_at(args, field)) : json_null();
    }
}

mu_status mu__fields_json(const mu_class *class, const void *args, json_t *config)
{
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END; field++)
        if (!field->internal && !field->in_call && field->kind != MU_FIELD_NAME && field->kind != MU_FIELD_FIXED)
            MU_TRY(mu__json_member(config, field->keras ? field->keras : field->name, value_json(args, field)));
    return MU_OK;
}

mu_status mu__fields_call_json(const mu_class *class, const void *args, json_t *kwargs)
{
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END; field++)
        if (field->in_call && *(const bool *)at(args, field))
            MU_TRY(mu__json_member(kwargs, field->name, json_true()));
    return MU_OK;
}

bool mu__fields_call_option(const mu_class *class, const char *name)
{
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END; field++)
        if (field->in_call && strcmp(field->name, name) == 0)
            return true;
    return false;
}

static bool read_dims(const json_t *value, int64_t *dims)
{
    const size_t n = json_array_size(value);
    for (size_t i = 0; i < n && n < MU_MAX_RANK; i++)
        dims[i] = json_is_integer(json_array_get(value, i)) ? json_integer_value(json_array_get(value, i)) : MU_UNKNOWN;
    return json_is_array(value) && n < MU_MAX_RANK;
}

// Appends the integers of a number or of nested lists; returns how many there are then, or -1.
static int flatten_ints(const json_t *value, int depth, int n, int capacity, int *out)
{
    if (json_is_integer(value) && n >= 0 && n < capacity) {
        const json_int_t number = json_integer_value(value);
        out[n] = (int)number;
        return out[n] == number ? n + 1 : -1;
    }
    if (!json_is_array(value) || depth == 0)
        return -1;
    for (size_t i = 0; n >= 0 && i < json_array_size(value); i++)
        n = flatten_ints(json_array_get(value, i), depth - 1, n, capacity, out);
    return n;
}

// Reads one number for all axes, or a list with one for each, which may all be equal.
static bool read_array(void *args, const mu_field *field, const json_t *value)
{
    int numbers[6], n = array_count(field);
    const int found = flatten_ints(value, 2, 0, (int)MU_COUNT(numbers), numbers);
    bool equal = true;
    for (int i = 1; i < found; i++)
        equal &= numbers[i] == numbers[0];
    if (found != n && !(found == 1 && json_is_integer(value)))
        return false;
    if (equal)
        *(int *)at(args, field) = numbers[0];
    else
        memcpy(array_at(args, field), numbers, (size_t)n * sizeof *numbers);
    return true;
}

// Keras writes some numbers as a list of one.
static const json_t *only_number(const json_t *value)
{
    return json_array_size(value) == 1 ? json_array_get(value, 0) : value;
}

static bool read_int(int *out, const json_t *value)
{
    const json_int_t number = json_integer_value(value);
    *out = (int)number;
    return json_is_integer(value) && *out == number;
}

// One item of a list; false if it is of another type. Strings belong to the JSON.
static bool read_item(mu_field_kind kind, const json_t *value, void *list, size_t i)
{
    switch (kind) {
    case MU_FIELD_TEXTS: return (((const char **)list)[i] = json_string_value(value)) != NULL;
    case MU_FIELD_LONGS: ((int64_t *)list)[i] = json_integer_value(value); return json_is_integer(value);
    case MU_FIELD_INTS: return read_int((int *)list + i, value);
    default: ((double *)list)[i] = json_number_value(value); return json_is_number(value);
    }
}

// The list in what Keras writes for a tensor or an array: {"class_name": "__tensor__", "config": {"value": …}}.
static const json_t *elements_of(const json_t *value)
{
    const char *class_name = json_string_value(json_object_get(value, "class_name"));
    const bool array = class_name && (strcmp(class_name, "__tensor__") == 0 || strcmp(class_name, "__numpy__") == 0);
    return array ? json_object_get(json_object_get(value, "config"), "value") : value;
}

// Reads a list, or one item, into memory that belongs to the pool; there are 8 bytes for an item of any kind.
static bool read_list(void *args, const mu_field *field, const json_t *value)
{
    typedef struct items {
        mu_object object;
        _Alignas(8) char items[];
    } items;
    static mu_type type = {.name = "items"};
    value = elements_of(value);
    const bool listed = json_is_array(value);
    const size_t n = listed ? json_array_size(value) : 1;
    items *list = n > 0 && n <= INT32_MAX ? mu__new(&type, sizeof *list + 8 * n) : NULL;
    bool valid = list != NULL;
    for (size_t i = 0; valid && i < n; i++)
        valid = read_item(field->kind, listed ? json_array_get(value, i) : value, list->items, i);
    list = mu__give(list);
    if (!list || !valid)
        return false;
    *list_at(args, field) = list->items;
    *(int *)(void *)((char *)args + field->second) = (int)n;
    return true;
}

enum { MOST_UP_TO = 1000 };

// Reads the numbers from 1 to what Keras writes alone.
static bool read_up_to(void *args, const mu_field *field, const json_t *value)
{
    const json_int_t last = json_integer_value(value);
    json_t *list = last >= 1 && last <= MOST_UP_TO ? json_array() : NULL;
    for (json_int_t i = 1; list && i <= last; i++)
        json_array_append_new(list, json_integer(i));
    const bool valid = list && read_list(args, field, list);
    json_decref(list);
    return valid;
}

static bool read_rate(void *args, const mu_field *field, const json_t *value)
{
    if (json_is_object(value))
        return (*object_at(args, field) = mu__schedule_from(value)) != NULL;
    *(double *)at(args, field) = json_number_value(value);
    return json_is_number(value);
}

// A single number is as far below 0 as above; Keras's None is the default.
static bool read_range(double *out, const json_t *value)
{
    if (json_is_number(value)) {
        out[1] = fabs(json_number_value(value));
        out[0] = -out[1];
    }
    if (json_is_number(value) || json_is_null(value))
        return true;
    for (size_t i = 0; i < 2; i++)
        out[i] = json_number_value(json_array_get(value, i));
    return json_array_size(value) == 2 && json_is_number(json_array_get(value, 0)) &&
           json_is_number(json_array_get(value, 1));
}

// Reads one value; false if it is of another type.
static bool read_value(void *args, const mu_field *field, const json_t *value, int depth)
{
    void *out = at(args, field);
    const char *name = json_string_value(value);
    switch (field->kind) {
    case MU_FIELD_INT: return read_int(out, only_number(value));
    case MU_FIELD_AXES: return read_array(args, field, value);
    case MU_FIELD_INT64: *(int64_t *)out = json_integer_value(value); return json_is_integer(value);
    case MU_FIELD_DOUBLE: *(double *)out = json_number_value(value); return json_is_number(value);
    case MU_FIELD_RANGE: return read_range(out, value);
    case MU_FIELD_FLAG: *(bool *)out = json_is_true(value); return json_is_boolean(value);
    case MU_FIELD_NOT: *(bool *)out = json_is_false(value); return json_is_boolean(value);
    case MU_FIELD_SEED: *(uint64_t *)out = (uint64_t)json_integer_value(value); return json_is_integer(value);
    case MU_FIELD_DIMS: return read_dims(value, out);
    case MU_FIELD_INTS:
    case MU_FIELD_DOUBLES:
    case MU_FIELD_LONGS:
    case MU_FIELD_TEXTS:
        return field->up_to && json_is_integer(value) ? read_up_to(args, field, value) : read_list(args, field, value);
    case MU_FIELD_OPTIMIZER: return (*(mu_optimizer **)out = mu__optimizer_from(value)) != NULL;
    case MU_FIELD_RATE: return read_rate(args, field, value);
    case MU_FIELD_FIXED:
        return field->text
                   ? name && strcmp(name, field->text) == 0
                   : json_is_number(only_number(value)) && json_number_value(only_number(value)) == field->number;
    case MU_FIELD_INITIALIZER:
    case MU_FIELD_REGULARIZER:
    case MU_FIELD_CONSTRAINT:
        return (*object_at(args, field) = mu__weight_option_from(option_kind(field), value)) != NULL;
    case MU_FIELD_LAYER: return (*(mu_layer **)out = mu__layer_from_json(value, depth + 1)) != NULL;
    default: return (*text_at(args, field) = name) != NULL;
    }
}

// What Keras writes for options that every layer has there, and whose only value here is Keras's default.
static bool is_fixed(const char *key, const json_t *value)
{
    static const char *const keys[] = {"dtype",        "trainable", "name",           "registered_name",
                                       "build_config", "autocast",  "vocabulary_size"};
    for (size_t i = 0; i < MU_COUNT(keys); i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    const char *text = json_string_value(value);
    return json_is_null(value) || json_is_false(value) || (text && strcmp(text, "channels_last") == 0) ||
           (json_is_integer(value) && strcmp(key, "axis") == 0 && json_integer_value(value) == -1);
}

// The row that reads a value of a configuration.
static const mu_field *row_of(const mu_field *field, const json_t *value)
{
    const bool fits = field->kind == MU_FIELD_TEXT ? json_is_string(value) : json_is_number(value);
    return field->or_next && !fits && !json_is_null(value) ? field + 1 : field;
}

static const mu_field *field_named(const mu_class *class, const char *key, const json_t *value)
{
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END; field++)
        if (!field->internal && strcmp(field->keras ? field->keras : field->name, key) == 0)
            return row_of(field, value);
    return NULL;
}

// Keras's names of the options of a class, with commas.
enum { OPTIONS_TEXT = 400 };
static const char *options_of(const mu_class *class, char text[OPTIONS_TEXT])
{
    size_t used = 0;
    text[0] = '\0';
    for (const mu_field *field = class->fields; field && field->kind != MU_FIELD_END && used < OPTIONS_TEXT; field++)
        if (!field->internal)
            used += (size_t)snprintf(text + used, OPTIONS_TEXT - used, "%s%s", used ? ", " : "",
                                     field->keras ? field->keras : field->name);
    return text;
}

static mu_status read_fields(const mu_class *class, void *args, const json_t *config, int depth)
{
    const char *key;
    json_t *value;
    char options[OPTIONS_TEXT];
    *(size_t *)args = class->args_bytes;
    json_object_foreach((json_t *)(uintptr_t)config, key, value)
    {
        const mu_field *field = field_named(class, key, value);
        if (!field && !is_fixed(key, value))
            return mu__error(MU_UNIMPLEMENTED,
                             "%s has no option '%.60s' as Keras's %s has in this configuration; leave it at Keras's "
                             "default. The options are %s",
                             class->function, key, class->keras, options_of(class, options));
        if (field && field->null_choice && json_is_null(value))
            *text_at(args, field) = field->null_choice;
        const bool empty = json_is_null(value) || (json_is_array(value) && json_array_size(value) == 0);
        if (field && field->none_is_empty && empty)
            continue;
        if (field && field->empty && empty) {
            *(bool *)((char *)args + field->empty) = true;
            continue;
        }
        if (field && !json_is_null(value) && !read_value(args, field, value, depth))
            return mu__pending() ? mu_error_code()
                                 : mu__error(MU_INVALID_ARGUMENT,
                                             "%s: '%.60s' of the configuration has a value that %s does not take",
                                             class->keras, key, class->function);
    }
    return MU_OK;
}

// Whether Keras's None is a number that is not the default here.
static bool none_is_zero(const mu_field *field)
{
    return field->kind == MU_FIELD_DOUBLE && field->none && field->number != 0;
}

// The options that a configuration gives, as a caller writes them. Keras gives a schedule in the place of the rate.
static char *written(const mu_class *class, const json_t *config)
{
    char *text = mu__strdup("");
    for (const mu_field *field = class->fields; text && field && field->kind != MU_FIELD_END; field++) {
        const json_t *value = json_object_get(config, field->keras ? field->keras : field->name);
        if (field->internal || !value || (json_is_null(value) && !none_is_zero(field)))
            continue;
        const bool schedule = field->kind == MU_FIELD_RATE && json_is_object(value);
        char *longer = mu__sprintf("%s.%s,", text, schedule ? "schedule" : row_of(field, value)->name);
        mu__free(text);
        text = longer;
    }
    return text;
}

void *mu__fields_from(const mu_class *class, const json_t *config, int depth)
{
    mu_args_head *args = mu__calloc(1, class->args_bytes);
    char *given = args ? written(class, config) : NULL;
    if (args && given && read_fields(class, args, config, depth) == MU_OK) {
        args->given = given;
        return args;
    }
    mu__free(given);
    mu__free(args);
    return NULL;
}

void mu__fields_from_free(void *args)
{
    if (args)
        mu__free((void *)(uintptr_t)((mu_args_head *)args)->given);
    mu__free(args);
}
