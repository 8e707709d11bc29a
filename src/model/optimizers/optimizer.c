// Optimizers: what all classes share. Their options, the state of each variable, which is made in the order of first
// use, and configurations. The classes are in optimizers.c, the use of gradients is in apply_gradients.c.

#include "model/core/layer.h"
#include "model/optimizers/optimizer.h"

#include <ctype.h>
#include <muster/ops.h>
#include <regex.h>

static void optimizer_destroy(void *object)
{
    mu_optimizer *optimizer = object;
    mu__optimizer_forget_left(optimizer);
    for (size_t i = 0; i < optimizer->variables.n; i++)
        mu_release(optimizer->variables.items[i]);
    for (size_t i = 0; i < optimizer->slots.n; i++)
        mu_release(optimizer->slots.items[i]);
    for (int i = 0; i < optimizer->n_scalars; i++)
        mu_release(optimizer->scalars[i]);
    mu__free(optimizer->variables.items);
    mu__free(optimizer->slots.items);
    mu__free(optimizer->excluded_names);
    mu_release(optimizer->excluded);
    mu_release(optimizer->iterations);
    mu_release(optimizer->learning_rate);
    mu_release(optimizer->strategy);
    mu__fields_drop(&optimizer->ops->class, optimizer->args);
}

mu_type mu__optimizer_type = {.name = "optimizer", .destroy = optimizer_destroy};

// ---- Making one ---------------------------------------------------------------------------------

static mu_status check_shared(const mu_optimizer_args *args, const char *function)
{
    const mu_clipping clipping = {
        .norm = args->clipnorm, .global_norm = args->global_clipnorm, .value = args->clipvalue};
    if (args->gradient_accumulation_steps == 1)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: gradient_accumulation_steps is 1; it must be 2 or more, or 0 for no accumulation",
                         function);
    return mu__check_clipping(&clipping, function);
}

static void choose_slots(mu_optimizer *optimizer)
{
    const mu_optimizer_args *args = optimizer->args;
    optimizer->n_slots = optimizer->ops->slots ? optimizer->ops->slots(args, optimizer->slot_kinds) : 0;
    optimizer->average = args->use_ema ? optimizer->n_slots++ : -1;
    optimizer->accumulator = args->gradient_accumulation_steps ? optimizer->n_slots++ : -1;
    if (optimizer->average >= 0)
        optimizer->slot_kinds[optimizer->average] = (mu_optimizer_slot){.name = "average"};
    if (optimizer->accumulator >= 0)
        optimizer->slot_kinds[optimizer->accumulator] = (mu_optimizer_slot){.name = "gradient_accumulator"};
}

static mu_optimizer *optimizer_of(const mu_optimizer_ops *ops, const void *args)
{
    mu_optimizer *optimizer = mu__new(&mu__optimizer_type, sizeof *optimizer);
    if (!optimizer)
        return NULL;
    optimizer->ops = ops;
    optimizer->strategy = mu_retain(mu_get_strategy());
    optimizer->args = mu__fields_keep(&ops->class, args);
    if (optimizer->args && ops->scalars)
        optimizer->n_scalars = ops->scalars(optimizer->args, optimizer->scalar_kinds);
    if (optimizer->args && ops == &mu__loss_scale_ops)
        optimizer->inner = ((mu_loss_scale_args *)optimizer->args)->inner_optimizer;
    else if (optimizer->args)
        choose_slots(optimizer);
    if (optimizer->args)
        return mu__give(optimizer);
    mu_release(optimizer);
    return NULL;
}

mu_optimizer *mu__optimizer_make(const mu_optimizer_ops *ops, const void *args)
{
    void *filled = mu__pending() ? NULL : mu__alloc(ops->class.args_bytes);
    mu_optimizer *optimizer = NULL;
    if (filled && mu__fields_fill(&ops->class, filled, args) == MU_OK &&
        (ops == &mu__loss_scale_ops || check_shared(filled, ops->class.function) == MU_OK))
        optimizer = optimizer_of(ops, filled);
    mu__free(filled);
    return optimizer;
}

const char *mu__optimizer_name(const mu_optimizer *optimizer)
{
    const char *given = mu__fields_name(&optimizer->ops->class, optimizer->args);
    return given ? given : optimizer->ops->class.name;
}

// ---- State --------------------------------------------------------------------------------------

static mu_variable *scalar_state(const mu_optimizer *optimizer, const mu_optimizer_scalar *kind)
{
    char *full = mu__sprintf("%s/%s", mu__optimizer_name(optimizer), kind->name);
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *initial = full ? mu_constant(kind->dtype ? kind->dtype : mu__floatx(), kind->initial) : NULL;
    mu__trace_resume(suspended);
    mu_variable *variable = initial ? mu_variable_new(initial, full, .not_trainable = true,
                                                      .aggregation = MU_AGGREGATION_ONLY_FIRST_REPLICA)
                                    : NULL;
    mu__free(full);
    return mu_retain(variable);
}

static mu_status need_scalar(const mu_optimizer *optimizer, const mu_optimizer_scalar *kind, mu_variable **out)
{
    if (!*out)
        *out = scalar_state(optimizer, kind);
    return *out ? MU_OK : mu_error_code();
}

mu_status mu__optimizer_need(mu_optimizer *optimizer)
{
    for (int i = 0; i < optimizer->n_scalars; i++)
        MU_TRY(need_scalar(optimizer, &optimizer->scalar_kinds[i], &optimizer->scalars[i]));
    if (optimizer->inner)
        return mu__optimizer_need(optimizer->inner);
    const mu_optimizer_args *args = optimizer->args;
    const mu_optimizer_scalar iterations = {.name = "iterations", .dtype = MU_I64},
                              rate = {.name = "learning_rate", .initial = args->learning_rate};
    MU_TRY(need_scalar(optimizer, &iterations, &optimizer->iterations));
    return args->schedule ? MU_OK : need_scalar(optimizer, &rate, &optimizer->learning_rate);
}

// Makes the scalars for a caller outside of steps, when the scope may be closed.
static mu_status need_in_scope(mu_optimizer *optimizer, const char *function)
{
    if (mu__pending())
        return mu_error_code();
    if (!optimizer)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the optimizer is NULL", function);
    const mu_optimizer *updating = optimizer->inner ? optimizer->inner : optimizer;
    if (mu__context()->replica || updating->iterations)
        return mu__optimizer_need(optimizer);
    mu_scope_change change;
    mu_scope_guard scope = mu__scope_open_apart(&change, optimizer->strategy);
    mu_status status = mu__pending() ? mu_error_code() : mu__optimizer_need(optimizer);
    mu__scope_close_apart(&change, &scope);
    return status;
}

mu_variable *mu_optimizer_learning_rate(mu_optimizer *optimizer)
{
    if (need_in_scope(optimizer, "mu_optimizer_learning_rate") != MU_OK)
        return NULL;
    optimizer = optimizer->inner ? optimizer->inner : optimizer;
    if (!optimizer->learning_rate)
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_optimizer_learning_rate: '%s' follows a schedule; mu_optimizer_current_rate returns its rate",
                  mu__optimizer_name(optimizer));
    return optimizer->learning_rate;
}

mu_tensor *mu_optimizer_current_rate(mu_optimizer *optimizer)
{
    if (need_in_scope(optimizer, "mu_optimizer_current_rate") != MU_OK)
        return NULL;
    const mu_optimizer_args *args = optimizer->inner ? optimizer->inner->args : optimizer->args;
    const bool follows = args->schedule != NULL;
    mu_variable *variable = follows ? mu_optimizer_iterations(optimizer) : mu_optimizer_learning_rate(optimizer);
    mu_tensor *value = variable ? mu_variable_read(variable) : NULL;
    return value && follows ? mu_learning_rate_schedule_call(args->schedule, value) : value;
}

mu_variable *mu_optimizer_iterations(mu_optimizer *optimizer)
{
    if (need_in_scope(optimizer, "mu_optimizer_iterations") != MU_OK)
        return NULL;
    return optimizer->inner ? optimizer->inner->iterations : optimizer->iterations;
}

// The slot of a part of a sharded variable is a part too, so that checkpoints hold the slots as one tensor.
static mu_status slice_slot(const mu_optimizer *optimizer, mu_variable *made, const mu_variable *variable,
                            const char *slot)
{
    const mu_slice_info *slice = variable->slice;
    if (!slice)
        return MU_OK;
    char *full = mu__sprintf("%s/%s/%s", mu__optimizer_name(optimizer), slice->full_name, slot);
    const mu_status status =
        full ? mu__variable_set_slice(made, full, &slice->full_shape, slice->offset) : MU_RESOURCE_EXHAUSTED;
    mu__free(full);
    return status;
}

// The variable's shape without one axis.
static mu_shape slot_shape(const mu_shape *shape, int without)
{
    mu_shape result = *shape;
    if (without == 0)
        return result;
    for (int i = shape->rank + without; i + 1 < shape->rank; i++)
        result.dims[i] = result.dims[i + 1];
    result.rank--;
    return result;
}

// Slots that have been made stay, even if the variable's layer gets another name, by which the class may go.
bool mu__optimizer_lacks(const mu_optimizer *optimizer, const mu_variable *variable, int slot)
{
    const mu_optimizer_ops *ops = optimizer->ops;
    const int rank = variable->resource.spec.shape.rank;
    if (optimizer->slot_kinds[slot].without != 0)
        return rank < 2;
    for (size_t i = 0; ops->lacks && i < optimizer->variables.n; i++) {
        const size_t index = i * (size_t)optimizer->n_slots + (size_t)slot;
        if (optimizer->variables.items[i] == variable)
            return optimizer->slots.items[index]->resource.spec.shape.rank < rank;
    }
    return ops->lacks && slot != optimizer->average && slot != optimizer->accumulator &&
           ops->lacks(optimizer->args, variable, slot);
}

static mu_tensor *first_value(const mu_spec *spec, const mu_optimizer_slot *slot, bool lacks)
{
    const mu_shape shape = lacks ? (mu_shape){0} : slot_shape(&spec->shape, slot->without);
    return slot->initial == 0 ? mu_tensor_new(spec->dtype, shape.rank, shape.dims, NULL)
                              : mu_broadcast_to(mu_constant(spec->dtype, slot->initial), shape.rank, shape.dims);
}

static mu_status make_slot(mu_optimizer *optimizer, const mu_variable *variable, int s)
{
    const mu_optimizer_slot *slot = &optimizer->slot_kinds[s];
    const bool lacks = mu__optimizer_lacks(optimizer, variable, s), alike = slot->without == 0 && !lacks;
    char *full = mu__sprintf("%s/%s/%s", mu__optimizer_name(optimizer), variable->resource.name, slot->name);
    mu_suspended suspended = mu__trace_suspend();
    mu_tensor *initial = full ? first_value(&variable->resource.spec, slot, lacks) : NULL;
    mu__trace_resume(suspended);
    mu_scope_change scope;
    mu__scope_beside(&scope, variable);
    mu_variable *made = initial ? mu_variable_new(initial, full, .not_trainable = true) : NULL;
    mu__scope_restore(&scope);
    mu__free(full);
    if (!made || (alike && slice_slot(optimizer, made, variable, slot->name) != MU_OK) ||
        MU_PUSH(&optimizer->slots, made) != MU_OK)
        return mu_error_code();
    mu_retain(made);
    return MU_OK;
}

// The index of a variable in the optimizer; makes the slots of a new variable.
static int index_of(mu_optimizer *optimizer, mu_variable *variable)
{
    for (size_t i = 0; i < optimizer->variables.n; i++)
        if (optimizer->variables.items[i] == variable)
            return (int)i;
    for (int s = 0; s < optimizer->n_slots; s++)
        if (make_slot(optimizer, variable, s) != MU_OK)
            return -1;
    if (MU_PUSH(&optimizer->variables, variable) != MU_OK)
        return -1;
    mu_retain(variable);
    return (int)optimizer->variables.n - 1;
}

// A sharded variable is updated part by part, so each part has slots of its own.
mu_status mu__optimizer_build(mu_optimizer *optimizer, int n, mu_variable *const *variables)
{
    MU_TRY(mu__optimizer_need(optimizer));
    optimizer = optimizer->inner ? optimizer->inner : optimizer;
    for (int i = 0; i < n; i++)
        if (variables[i]->n_shards > 0)
            MU_TRY(mu__optimizer_build(optimizer, variables[i]->n_shards, variables[i]->shards));
        else if (index_of(optimizer, variables[i]) < 0)
            return mu_error_code();
    return MU_OK;
}

mu_status mu_optimizer_build(mu_optimizer *optimizer, mu_value *variables)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(optimizer, "mu_optimizer_build: the optimizer"));
    MU_TRY(mu__need(variables, "mu_optimizer_build: the list of variables"));
    const int n = mu__value_flatten(variables, NULL, 0);
    mu_object **leaves = mu__calloc((size_t)n + 1, sizeof *leaves);
    mu_status status = leaves ? MU_OK : MU_RESOURCE_EXHAUSTED;
    if (leaves)
        mu__value_flatten(variables, leaves, n);
    for (int i = 0; status == MU_OK && i < n; i++)
        if (!mu__is(leaves[i], &mu__variable_type))
            status = mu__error(MU_INVALID_ARGUMENT,
                               "mu_optimizer_build: element %d is not a variable; give mu_trainable_variables(model), "
                               "or a list of variables",
                               i);
    mu_scope_change change;
    mu_scope_guard scope = mu__scope_open_apart(&change, optimizer->strategy);
    if (status == MU_OK)
        status = mu__optimizer_build(optimizer, n, (mu_variable *const *)leaves);
    mu__scope_close_apart(&change, &scope);
    mu__free(leaves);
    return status;
}

mu_variable *const *mu__optimizer_slots(mu_optimizer *optimizer, mu_variable *variable)
{
    static mu_variable *const none[] = {NULL};
    const int index = index_of(optimizer, variable);
    if (index < 0)
        return NULL;
    return optimizer->n_slots ? optimizer->slots.items + index * optimizer->n_slots : none;
}

// ---- Averages of variables ----------------------------------------------------------------------

static mu_optimizer *own_of(mu_optimizer *optimizer) { return optimizer->inner ? optimizer->inner : optimizer; }

static mu_variable *average_of(const mu_optimizer *optimizer, size_t i)
{
    return optimizer->slots.items[i * (size_t)optimizer->n_slots + (size_t)optimizer->average];
}

bool mu__optimizer_has_averages(mu_optimizer *optimizer) { return own_of(optimizer)->average >= 0; }
bool mu__optimizer_averages_in_place(mu_optimizer *optimizer) { return own_of(optimizer)->averages_in_place; }

mu_status mu__optimizer_swap_averages(mu_optimizer *optimizer)
{
    optimizer = own_of(optimizer);
    for (size_t i = 0; i < optimizer->variables.n; i++) {
        mu_variable *variable = optimizer->variables.items[i], *average = average_of(optimizer, i);
        mu_tensor *value = mu_variable_read(variable), *other = mu_variable_read(average);
        MU_TRY(value && other ? mu_variable_assign(variable, other) : mu_error_code());
        MU_TRY(mu_variable_assign(average, value));
    }
    optimizer->averages_in_place = !optimizer->averages_in_place && optimizer->variables.n > 0;
    return MU_OK;
}

mu_status mu_optimizer_finalize_variable_values(mu_optimizer *optimizer)
{
    if (mu__pending() || mu__need(optimizer, "mu_optimizer_finalize_variable_values: the optimizer") != MU_OK)
        return mu_error_code();
    optimizer = own_of(optimizer);
    for (size_t i = 0; optimizer->average >= 0 && i < optimizer->variables.n; i++) {
        mu_variable *variable = optimizer->variables.items[i], *average = average_of(optimizer, i);
        MU_TRY(optimizer->averages_in_place ? mu_variable_assign(average, mu_variable_read(variable))
                                            : mu_variable_assign(variable, mu_variable_read(average)));
    }
    optimizer->averages_in_place = false;
    return mu_error_code();
}

// ---- Weight decay -------------------------------------------------------------------------------

static bool holds(const mu_value *value, const mu_variable *variable)
{
    bool found = value->leaf == (const mu_object *)variable;
    for (int i = 0; !value->leaf && i < value->n; i++)
        found |= holds(value->items[i], variable);
    return found;
}

bool mu__expression_occurs(const char *expression, const char *text)
{
    regex_t compiled;
    if (regcomp(&compiled, expression, REG_EXTENDED | REG_NOSUB) != 0)
        return false;
    const bool found = regexec(&compiled, text, 0, NULL, 0) == 0;
    regfree(&compiled);
    return found;
}

// Refuses what the C library takes unbounded memory or stack for, as text of a file may ask: each "+" within another
// doubles what is compiled, "{" multiplies it, and references back make the search exponential. Escapes that Python has
// and POSIX does not, like \d, would match the letter.
static mu_status check_size(const char *option, const char *expression)
{
    enum { LONGEST = 1000, MOST_PLUS = 8 };
    int n_plus = 0;
    if (strlen(expression) > LONGEST)
        return mu__error(MU_INVALID_ARGUMENT, "%s is an expression of %zu bytes, '%.60s...'; expected at most %d",
                         option, strlen(expression), expression, LONGEST);
    for (const char *at = expression; *at; at++) {
        if (*at == '{')
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s is '%.60s', which has a '{'; write the repetition out, or use '*'", option,
                             expression);
        if (*at == '+' && ++n_plus > MOST_PLUS)
            return mu__error(MU_INVALID_ARGUMENT, "%s is '%.60s', which has more than %d times '+'; use '*'", option,
                             expression, MOST_PLUS);
        if (*at == '\\' && at[1] && isalnum((unsigned char)*++at) && !strchr("wWsSbB", *at))
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s is '%.60s', which has '\\%c'; a POSIX extended expression has only \\w, \\W, \\s, "
                             "\\S, \\b and \\B: write digits as [0-9]",
                             option, expression, *at);
    }
    return MU_OK;
}

mu_status mu__expression_check(const char *option, const char *expression)
{
    regex_t compiled;
    char reason[120];
    MU_TRY(check_size(option, expression));
    const int code = regcomp(&compiled, expression, REG_EXTENDED | REG_NOSUB);
    if (code == 0) {
        regfree(&compiled);
        return MU_OK;
    }
    regerror(code, &compiled, reason, sizeof reason);
    return mu__error(MU_INVALID_ARGUMENT, "%s is '%.60s', which is not a regular expression: %s", option, expression,
                     reason);
}

// Whether the expression occurs in the name without the layer's.
static bool matches(const char *expression, const char *name)
{
    const char *slash = strrchr(name, '/');
    return mu__expression_occurs(expression, slash ? slash + 1 : name);
}

const char *mu__optimizer_path(const mu_variable *variable)
{
    return variable->slice ? variable->slice->full_name : variable->resource.name;
}

bool mu__optimizer_decays(const mu_optimizer *optimizer, const mu_variable *variable)
{
    return !(optimizer->excluded && holds(optimizer->excluded, variable)) &&
           !(optimizer->excluded_names && matches(optimizer->excluded_names, mu__optimizer_path(variable)));
}

mu_status mu_exclude_from_weight_decay_with(const mu_exclude_from_weight_decay_args *given)
{
    mu_exclude_from_weight_decay_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_exclude_from_weight_decay"));
    MU_TRY(mu__need(args.optimizer, "mu_exclude_from_weight_decay: the optimizer"));
    mu_optimizer *optimizer = args.optimizer->inner ? args.optimizer->inner : args.optimizer;
    if (optimizer->variables.n > 0)
        return mu__error(
            MU_FAILED_PRECONDITION,
            "mu_exclude_from_weight_decay: '%s' has updated variables already; call it before the first update",
            mu__optimizer_name(optimizer));
    if (args.names)
        MU_TRY(mu__expression_check("mu_exclude_from_weight_decay: names", args.names));
    char *names = args.names ? mu__strdup(args.names) : NULL;
    if (args.names && !names)
        return mu_error_code();
    mu__free(optimizer->excluded_names);
    mu_release(optimizer->excluded);
    optimizer->excluded_names = names;
    optimizer->excluded = mu_retain(args.variables);
    return MU_OK;
}

// ---- Keras's JSON -------------------------------------------------------------------------------

// The learning rate that has been assigned last, where it can be read.
static mu_status current_rate(const mu_optimizer *optimizer, json_t *config)
{
    if (!optimizer->learning_rate || mu__context()->replica)
        return MU_OK;
    mu_tensor *rate = mu_variable_read(optimizer->learning_rate);
    return rate ? mu__json_member(config, "learning_rate", json_real(mu_scalar(rate))) : mu_error_code();
}

json_t *mu__optimizer_json(const mu_optimizer *optimizer)
{
    const mu_class *class = &optimizer->ops->class;
    json_t *config = json_pack("{s:s}", "name", mu__optimizer_name(optimizer));
    if (config && mu__fields_json(class, optimizer->args, config) == MU_OK && current_rate(optimizer, config) == MU_OK)
        return mu__keras_json("keras.optimizers", class->keras, config);
    json_decref(config);
    return NULL;
}

mu_optimizer *mu__optimizer_of(const json_t *json, const char *function)
{
    const char *class_name = json_string_value(json_object_get(json, "class_name"));
    const json_t *config = json_object_get(json, "config");
    if (!class_name || !json_is_object(config)) {
        mu__error(MU_INVALID_ARGUMENT, "%s: expected {\"class_name\": …, \"config\": {…}}", function);
        return NULL;
    }
    const mu_optimizer_ops *ops = mu__optimizer_find(class_name);
    if (!ops) {
        mu__error(MU_UNIMPLEMENTED, "%s: Muster has no optimizer of Keras's class '%.60s'", function, class_name);
        return NULL;
    }
    void *args = mu__fields_from(&ops->class, config, 0);
    mu_optimizer *optimizer = args ? mu__optimizer_make(ops, args) : NULL;
    mu__fields_from_free(args);
    return optimizer;
}

mu_optimizer *mu__optimizer_from(const json_t *json)
{
    const char *class_name = json_string_value(json_object_get(json, "class_name"));
    if (!class_name || mu__optimizer_find(class_name) != &mu__loss_scale_ops)
        return mu__optimizer_of(json, "inner_optimizer");
    mu__error(
        MU_INVALID_ARGUMENT,
        "inner_optimizer: a LossScaleOptimizer scales the loss of another one; give an optimizer of another class");
    return NULL;
}

const char *mu_optimizer_config(const mu_optimizer *optimizer)
{
    if (mu__pending() || mu__need(optimizer, "mu_optimizer_config: the optimizer") != MU_OK)
        return NULL;
    json_t *json = mu__optimizer_json(optimizer);
    if (!json && !mu__pending())
        mu__error(MU_RESOURCE_EXHAUSTED, "mu_optimizer_config: no memory for the configuration");
    return json ? mu__json_text(json, "mu_optimizer_config") : NULL;
}

mu_optimizer *mu_optimizer_from_config(const char *json)
{
    if (mu__pending() || mu__need(json, "mu_optimizer_from_config: the text") != MU_OK)
        return NULL;
    json_t *root = mu__json_read(json, "mu_optimizer_from_config");
    mu_optimizer *optimizer = root ? mu__optimizer_of(root, "mu_optimizer_from_config") : NULL;
    json_decref(root);
    return optimizer;
}

mu_optimizer *mu_optimizer_named(const char *name)
{
    if (mu__pending() || mu__need(name, "mu_optimizer_named: the name") != MU_OK)
        return NULL;
    return mu__optimizer_named(name, "mu_optimizer_named");
}
