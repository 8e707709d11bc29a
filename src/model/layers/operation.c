// The entry of an operation in a configuration: its options, its arguments, and the constants among them.
#include "model/layers/operation_kinds.h"

#include <muster/ops.h>

enum { MOST_ELEMENTS = 1 << 22, MOST_DEPTH = 16 };

// The state of the layer.
typedef struct operation {
    const mu_operation_kind *kind;
    json_t *entry; // module, class_name, config and registered_name; owned
    json_t *args;  // of its call; owned
} operation;

static const char *class_of(const json_t *json) { return json_string_value(json_object_get(json, "class_name")); }

static bool is_class(const json_t *json, const char *name)
{
    const char *class_name = class_of(json);
    return class_name && strcmp(class_name, name) == 0;
}

static bool is_tensor(const json_t *json) { return is_class(json, "__keras_tensor__"); }

bool mu__is_operation_json(const json_t *json)
{
    static const char module[] = "keras.src.ops";
    const char *seen = json_string_value(json_object_get(json, "module"));
    return seen && strncmp(seen, module, strlen(module)) == 0;
}

// ---- Constants ----------------------------------------------------------------------------------

// A nested list of numbers, which must have one length along each axis.
static mu_status read_numbers(const json_t *json, const mu_shape *shape, int axis, double *out, int64_t *n)
{
    const int64_t size = axis < shape->rank ? shape->dims[axis] : 0;
    if (axis == shape->rank ? !json_is_number(json) && !json_is_boolean(json) : (int64_t)json_array_size(json) != size)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "the configuration has a constant that is not a list of numbers with one length along each axis");
    if (axis == shape->rank)
        out[(*n)++] = json_is_boolean(json) ? json_is_true(json) : json_number_value(json);
    for (int64_t i = 0; i < size; i++)
        MU_TRY(read_numbers(json_array_get(json, (size_t)i), shape, axis + 1, out, n));
    return MU_OK;
}

// An array of NumPy or a tensor with values.
static mu_tensor *constant_of(const json_t *config)
{
    const json_t *value = json_object_get(config, "value");
    const char *type = json_string_value(json_object_get(config, "dtype"));
    const mu_dtype dtype = type ? mu__dtype_from_name(type) : MU_DTYPE_DEFAULT;
    mu_shape shape = {0};
    int64_t n = 1, read = 0;
    for (const json_t *at = value; json_is_array(at) && shape.rank < MU_MAX_RANK; at = json_array_get(at, 0)) {
        shape.dims[shape.rank++] = (int64_t)json_array_size(at);
        n *= (int64_t)json_array_size(at);
        if (n > MOST_ELEMENTS)
            break;
    }
    if (!mu__dtype_ok(dtype) || n < 1 || n > MOST_ELEMENTS) {
        mu__error(MU_UNIMPLEMENTED,
                  "the configuration has a constant of type '%.40s' and %lld or more elements; Muster reads constants "
                  "of 1 to %d numbers",
                  type ? type : "?", (long long)n, (int)MOST_ELEMENTS);
        return NULL;
    }
    double *numbers = mu__calloc((size_t)n, sizeof *numbers);
    mu_tensor *whole = NULL;
    if (numbers && read_numbers(value, &shape, 0, numbers, &read) == MU_OK)
        whole = mu_tensor_new(MU_F64, shape.rank, shape.dims, numbers);
    mu__free(numbers);
    return mu_cast(whole, dtype);
}

// Numbers in Python have the type of the tensor beside them; one with a fraction makes floats of integers.
static mu_tensor *number_of(const json_t *json, mu_dtype beside)
{
    if (json_is_boolean(json))
        return mu_constant(MU_BOOL, json_is_true(json));
    const bool fits = mu__dtype_is_float(beside) || (json_is_integer(json) && beside != MU_BOOL);
    return mu_constant(fits ? beside : json_is_integer(json) ? MU_I32 : mu__floatx(), json_number_value(json));
}

// ---- Arguments ----------------------------------------------------------------------------------

mu_status mu__operation_tensors(const json_t *args, json_t *tensors)
{
    if (is_tensor(args) && json_array_append(tensors, (json_t *)(uintptr_t)args) != 0)
        return mu__error(MU_RESOURCE_EXHAUSTED, "no memory for the %zu tensors in the arguments of a call",
                         json_array_size(tensors) + 1);
    for (size_t i = 0; i < json_array_size(args); i++)
        MU_TRY(mu__operation_tensors(json_array_get(args, i), tensors));
    return MU_OK;
}

static int count_tensors(const json_t *args)
{
    int n = is_tensor(args);
    for (size_t i = 0; i < json_array_size(args); i++)
        n += count_tensors(json_array_get(args, i));
    return n;
}

// A call in progress: the next of the tensors that it was given, and the type of those that numbers are beside.
typedef struct gathering {
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    int n, next;
    mu_dtype beside;
    mu_operation_call *call;
} gathering;

// The type of the first tensor of floats, else of the first.
static mu_dtype beside_type(const gathering *g)
{
    for (int i = 0; i < g->n; i++)
        if (mu__dtype_is_float(((const mu_tensor *)g->leaves[i])->dtype))
            return ((const mu_tensor *)g->leaves[i])->dtype;
    return ((const mu_tensor *)g->leaves[0])->dtype;
}

static mu_status gather(gathering *g, const json_t *json, int depth)
{
    mu_operation_call *c = g->call;
    mu_tensor *x = NULL;
    if (json_is_array(json) && depth < MOST_DEPTH) {
        for (size_t i = 0; i < json_array_size(json); i++)
            MU_TRY(gather(g, json_array_get(json, i), depth + 1));
        return MU_OK;
    }
    if (json_is_null(json))
        return MU_OK;
    if (is_tensor(json) && g->next < g->n)
        x = (mu_tensor *)g->leaves[g->next++];
    else if (json_is_number(json) || json_is_boolean(json))
        x = json_is_number(json) && mu__takes_numbers_alone(c->kind) ? mu__number_alone(json)
                                                                     : number_of(json, g->beside);
    else if (is_class(json, "__numpy__") || is_class(json, "__tensor__"))
        x = constant_of(json_object_get(json, "config"));
    else
        return mu__error(MU_UNIMPLEMENTED, "'%s' (%s) has an argument that is neither a tensor nor a number", c->name,
                         c->kind->keras);
    if (!x)
        return mu_error_code();
    if (c->n == MU_MAX_MODEL_INPUTS)
        return mu__error(MU_UNIMPLEMENTED, "'%s' (%s) has more than %d operands", c->name, c->kind->keras,
                         MU_MAX_MODEL_INPUTS);
    c->x[c->n++] = x;
    return MU_OK;
}

// The tensors that the operation is called on, which must be as many as its configuration names.
static mu_status take_tensors(gathering *g, const mu_value *inputs)
{
    const mu_operation_call *c = g->call;
    const int n = mu__value_flatten(inputs, g->leaves, MU_MAX_MODEL_INPUTS), wanted = count_tensors(c->args);
    if (n == 0 || n > MU_MAX_MODEL_INPUTS || n != wanted)
        return mu__error(MU_INVALID_ARGUMENT, "'%s' (%s) is called on %d tensors; expected %d, as in its configuration",
                         c->name, c->kind->keras, n, wanted);
    for (int i = 0; i < n; i++)
        if (!mu__is(g->leaves[i], &mu__tensor_type))
            return mu__error(MU_INVALID_ARGUMENT,
                             "'%s' (%s) is called on an object of type %s as input %d; expected a tensor: read a "
                             "variable with mu_variable_read first",
                             c->name, c->kind->keras, g->leaves[i]->type->name, i);
    g->n = n;
    g->beside = beside_type(g);
    return MU_OK;
}

static mu_value *operation_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context)
{
    const operation *o = layer->state;
    mu_operation_call call = {
        .kind = o->kind, .config = json_object_get(o->entry, "config"), .args = o->args, .name = mu_layer_name(layer)};
    gathering g = {.call = &call};
    (void)context;
    if (take_tensors(&g, inputs) != MU_OK)
        return NULL;
    for (size_t i = 0; i < (o->kind->first_alone ? 1 : json_array_size(o->args)); i++)
        if (gather(&g, json_array_get(o->args, i), 0) != MU_OK)
            return NULL;
    return mu__operation_apply(&call);
}

// ---- The layer ----------------------------------------------------------------------------------

typedef struct operation_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    const char *name;
} operation_args;

static const mu_field operation_fields[] = {MU_FIELD(operation_args, name, NAME), {0}};

static void operation_release(mu_layer *layer)
{
    operation *o = layer->state;
    json_decref(o->entry);
    json_decref(o->args);
    mu__free(o);
}

// Any type arrives as it is: Keras's operations know no policy.
const mu_layer_ops mu__operation_ops = {
    .class = {"operation", "Operation", "mu_layer_from_config", MU_OPTIONS(operation_args), operation_fields, NULL},
    .takes_integers = true,
    .takes_several = true,
    .keeps_type = true,
    .no_autocast = true,
    .call = operation_call,
    .release = operation_release,
};

static mu_status check_options(const mu_operation_kind *kind, const json_t *config, const char *name)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)config, key, value)
    {
        const char *at = kind->options ? strstr(kind->options, key) : NULL;
        const char after = at ? at[strlen(key)] : ' ';
        const bool takes = at && (at == kind->options || at[-1] == ' ') && (after == '\0' || after == ' ');
        const bool usual = kind->option && strcmp(kind->option, key) == 0 && json_number_value(value) == kind->usual;
        if (!takes && !usual && !json_is_null(value) && !json_is_false(value) && strcmp(key, "name") != 0)
            return mu__error(MU_UNIMPLEMENTED,
                             "'%.60s' (%s) has the option '%.60s', which Muster's operation does not take", name,
                             kind->keras, key);
    }
    return MU_OK;
}

// The arguments of the entry's one call; NULL: an error.
static const json_t *args_of(const json_t *json, const char *name)
{
    const json_t *calls = json_object_get(json, "inbound_nodes"), *call = json_array_get(calls, 0);
    const json_t *args = json_object_get(call, "args"), *kwargs = json_object_get(call, "kwargs");
    const char *key;
    json_t *value;
    if (json_array_size(calls) != 1 || json_array_size(args) == 0) {
        mu__error(MU_UNIMPLEMENTED,
                  "'%.60s' (%.60s) is an operation with %zu calls in this configuration; Muster reads operations that "
                  "are called once, with arguments in order",
                  name, class_of(json), json_array_size(calls));
        return NULL;
    }
    json_object_foreach((json_t *)(uintptr_t)kwargs, key, value)
    {
        if (json_is_null(value) || json_is_false(value))
            continue;
        mu__error(MU_UNIMPLEMENTED,
                  "'%.60s' (%.60s) is called with '%.60s' by name in this configuration, which Muster's operation does "
                  "not take",
                  name, class_of(json), key);
        return NULL;
    }
    return args;
}

static json_t *copy_of_entry(const json_t *json)
{
    static const char *const members[] = {"module", "class_name", "config", "registered_name"};
    json_t *entry = json_object();
    for (size_t i = 0; i < MU_COUNT(members); i++) {
        json_t *member = json_object_get(json, members[i]);
        if (member)
            json_object_set_new(entry, members[i], json_deep_copy(member));
    }
    return entry;
}

mu_layer *mu__operation_from(const json_t *json)
{
    const char *name = json_string_value(json_object_get(json, "name")), *class_name = class_of(json);
    const mu_operation_kind *kind = class_name ? mu__operation_kind(class_name) : NULL;
    if (!kind || !name) {
        mu__error(MU_UNIMPLEMENTED,
                  "'%.60s' is the operation %.60s of keras.ops, which Muster does not read; in Python, put a layer in "
                  "its place before the model is saved (docs/porting.md lists the operations that are read)",
                  name ? name : "?", class_name ? class_name : "?");
        return NULL;
    }
    const json_t *args = args_of(json, name);
    if (!args || check_options(kind, json_object_get(json, "config"), name) != MU_OK)
        return NULL;
    const operation_args options = {.size = sizeof options, .name = name};
    mu_layer *layer = mu__layer_make(&mu__operation_ops, &options);
    operation *o = layer ? mu__calloc(1, sizeof *o) : NULL;
    if (!o)
        return NULL;
    layer->state = o;
    *o = (operation){.kind = kind, .entry = copy_of_entry(json), .args = json_deep_copy(args)};
    if (o->entry && o->args)
        return layer;
    mu__error(MU_RESOURCE_EXHAUSTED, "mu_layer_from_config: no memory for the operation '%.60s'", name);
    return NULL;
}

// ---- Writing ------------------------------------------------------------------------------------

const char *mu__operation_class(const mu_layer *layer) { return ((const operation *)layer->state)->kind->keras; }

json_t *mu__operation_json(const mu_layer *layer) { return json_deep_copy(((const operation *)layer->state)->entry); }

// The arguments with the next of the tensors in the place of each that is written.
static json_t *with_tensors(const json_t *args, const json_t *tensors, size_t *next)
{
    if (is_tensor(args))
        return json_deep_copy(json_array_get(tensors, (*next)++));
    if (!json_is_array(args))
        return json_deep_copy(args);
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(args); i++)
        json_array_append_new(list, with_tensors(json_array_get(args, i), tensors, next));
    return list;
}

json_t *mu__operation_args(const mu_layer *layer, const json_t *tensors)
{
    size_t next = 0;
    return with_tensors(((const operation *)layer->state)->args, tensors, &next);
}
