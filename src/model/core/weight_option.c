// What initializers, regularizers and constraints have in common: how they are made, named, and written as JSON.
#include "base/callback.h"
#include "model/core/layer.h"
#include "model/core/weight_option.h"

void mu__weight_option_destroy(void *object)
{
    mu_weight_option *option = object;
    mu__fields_drop(&option->ops->class, option->args);
}

mu_tensor *mu__own_weight_apply(const void *arguments, mu_tensor *weight)
{
    const mu_own_weight_function_args *args = arguments;
    mu_tensor *applied;
    MU_CALLBACK("the function of a regularizer or a constraint", applied = args->apply(weight, args->arg));
    return applied;
}

void *mu__weight_option_make(mu_weight_option_kind *kind, const mu_weight_option_ops *ops, const void *args)
{
    void *filled = mu__pending() ? NULL : mu__alloc(ops->class.args_bytes);
    mu_weight_option *option = NULL;
    if (filled && mu__fields_fill(&ops->class, filled, args) == MU_OK &&
        (option = mu__new(&kind->type, sizeof *option))) {
        option->ops = ops;
        option->args = mu__fields_keep(&ops->class, filled);
        option = mu__give(option);
    }
    mu__free(filled);
    return option && option->args ? option : NULL;
}

static const mu_weight_option_ops *find(const mu_weight_option_kind *kind, const char *name)
{
    for (int i = 0; kind->classes[i]; i++) {
        const mu_weight_option_ops *ops = kind->classes[i];
        if (strcmp(ops->class.name, name) == 0 || strcmp(ops->class.keras, name) == 0 ||
            (ops->alias && strcmp(ops->alias, name) == 0))
            return ops;
    }
    return NULL;
}

static void *named(mu_weight_option_kind *kind, const char *name, const char *function)
{
    const mu_weight_option_ops *ops = find(kind, name);
    char known[512] = "";
    if (ops)
        return mu__weight_option_make(kind, ops, NULL);
    for (int i = 0; kind->classes[i]; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", kind->classes[i]->class.name);
    }
    mu__error(MU_INVALID_ARGUMENT, "%s: no %s is named '%.60s'; there are %s", function, kind->type.name, name, known);
    return NULL;
}

void *mu__weight_option_argument(mu_weight_option_kind *kind, const void *given, const char *function)
{
    if (!given || mu__is(given, &kind->type))
        return (void *)(uintptr_t)given;
    if (!mu__is_object(given))
        return named(kind, given, function);
    mu__error(MU_INVALID_ARGUMENT, "%s: a %s is given where a%s %s is expected; give such an object, or its name",
              function, ((const mu_object *)given)->type->name, strchr("aeiou", kind->type.name[0]) ? "n" : "",
              kind->type.name);
    return NULL;
}

json_t *mu__weight_option_json(const mu_weight_option_kind *kind, const mu_weight_option *option)
{
    if (!option)
        return json_null();
    const mu_class *class = &option->ops->class;
    if (!class->keras) {
        mu__error(MU_UNIMPLEMENTED,
                  "the %s of a function of the program's own has no configuration in Keras's JSON; make it again where "
                  "the configuration is read",
                  kind->type.name);
        return NULL;
    }
    json_t *config = json_object();
    if (config && mu__fields_json(class, option->args, config) == MU_OK)
        return mu__keras_json(kind->module, class->keras, config);
    json_decref(config);
    return NULL;
}

void *mu__weight_option_from(mu_weight_option_kind *kind, const json_t *json)
{
    const char *name = json_string_value(json_is_object(json) ? json_object_get(json, "class_name") : json);
    const mu_weight_option_ops *ops = name ? find(kind, name) : NULL;
    if (!ops) {
        mu__error(MU_UNIMPLEMENTED, "the configuration has the %s '%.60s', which Muster lacks", kind->type.name,
                  name ? name : "?");
        return NULL;
    }
    void *args = mu__fields_from(&ops->class, json_object_get(json, "config"), 0);
    void *option = args ? mu__weight_option_make(kind, ops, args) : NULL;
    mu__fields_from_free(args);
    return option;
}

// ---- Calls --------------------------------------------------------------------------------------

// A function of the program's own may have returned NULL.
static mu_tensor *checked(const mu_weight_option *option, mu_tensor *result)
{
    if (!result && !mu__pending())
        mu__error(
            MU_INVALID_ARGUMENT,
            "%s: its function returned NULL without an error; return a tensor, or NULL after mu_fail(code, reason)",
            option->ops->class.function);
    return result;
}

mu_tensor *mu__weight_option_draw(const mu_weight_option *option, mu_dtype dtype, const mu_shape *shape)
{
    mu_runtime *runtime = mu__runtime();
    uint64_t numbers[2] = {mu__runtime_next_seed(runtime)};
    numbers[1] = mu__runtime_next_seed(runtime);
    mu_tensor *value = checked(option, option->ops->draw(option->args, numbers, dtype, shape));
    char wanted[MU_SHAPE_TEXT], seen[MU_SHAPE_TEXT];
    if (!value || (value->dtype == dtype && mu__shape_equal(&value->shape, shape)))
        return value;
    mu__error(MU_INVALID_ARGUMENT, "%s: the value is %s %s; the weight is %s %s", option->ops->class.function,
              mu_dtype_name(value->dtype), mu__shape_text(&value->shape, seen), mu_dtype_name(dtype),
              mu__shape_text(shape, wanted));
    return NULL;
}

mu_tensor *mu__weight_option_apply(const mu_weight_option *option, mu_tensor *weight)
{
    return weight ? checked(option, option->ops->apply(option->args, weight)) : NULL;
}

mu_tensor *mu_initializer_call(const mu_initializer *initializer, mu_dtype dtype, mu_shape shape)
{
    if (mu__pending() || mu__need(initializer, "mu_initializer_call: the initializer") != MU_OK ||
        mu__shape_check(&shape, "mu_initializer_call") != MU_OK)
        return NULL;
    if (dtype != MU_F32 && dtype != MU_F64) {
        mu__error(MU_INVALID_ARGUMENT, "mu_initializer_call: dtype is %s; it must be float32 or float64",
                  mu__dtype_ok(dtype) ? mu_dtype_name(dtype) : "no element type");
        return NULL;
    }
    return mu__weight_option_draw(&initializer->option, dtype, &shape);
}

mu_tensor *mu_regularizer_call(const mu_regularizer *regularizer, mu_tensor *x)
{
    if (mu__pending() || mu__need(regularizer, "mu_regularizer_call: the regularizer") != MU_OK ||
        mu__need(x, "mu_regularizer_call: the tensor") != MU_OK)
        return NULL;
    return mu__weight_option_apply(&regularizer->option, x);
}

mu_tensor *mu_constraint_call(const mu_constraint *constraint, mu_tensor *weight)
{
    if (mu__pending() || mu__need(constraint, "mu_constraint_call: the constraint") != MU_OK ||
        mu__need(weight, "mu_constraint_call: the weight") != MU_OK)
        return NULL;
    return mu__weight_option_apply(&constraint->option, weight);
}
