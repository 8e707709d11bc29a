// Dtype policies: the types of weights and of computation in layers, as Keras 3 has them.
//
// A layer keeps the policy that it was made under. Calls convert its inputs (layer.c) and, through the context's
// `autocast`, the weights that it reads (variable.c), so gradients return to the weights' type through the casts.
#include "model/core/layer.h"

typedef struct defaults {
    mu_dtype floatx;
    mu_layer_policy policy; // compute is MU_DTYPE_DEFAULT: follows floatx
} defaults;

static void *create_defaults(mu_runtime *runtime)
{
    (void)runtime;
    defaults *slot = mu__calloc(1, sizeof *slot);
    if (slot)
        slot->floatx = MU_F32;
    return slot;
}

static defaults *slot(void) { return mu__runtime_slot(mu__runtime(), MU_SLOT_MODEL, create_defaults, mu__free); }

mu_dtype mu__floatx(void)
{
    const defaults *now = slot();
    return now ? now->floatx : MU_F32;
}

mu_status mu_set_floatx(mu_dtype dtype)
{
    if (mu__pending())
        return mu_error_code();
    if (dtype != MU_F32 && dtype != MU_F64)
        return mu__error(MU_INVALID_ARGUMENT, "mu_set_floatx: %s is neither float32 nor float64", mu_dtype_name(dtype));
    defaults *now = slot();
    if (!now)
        return mu_error_code();
    now->floatx = dtype;
    return MU_OK;
}

// ---- Policies -----------------------------------------------------------------------------------

// Compute type and weight type by Keras's names.
static const struct {
    const char *name;
    mu_layer_policy policy;
} policies[] = {
    {"float32", {MU_F32, MU_F32}},    {"float64", {MU_F64, MU_F64}},         {"float16", {MU_F16, MU_F16}},
    {"bfloat16", {MU_BF16, MU_BF16}}, {"mixed_bfloat16", {MU_BF16, MU_F32}}, {"mixed_float16", {MU_F16, MU_F32}},
};

static bool find(const char *name, mu_layer_policy *out)
{
    for (size_t i = 0; i < MU_COUNT(policies); i++)
        if (strcmp(policies[i].name, name) == 0) {
            *out = policies[i].policy;
            return true;
        }
    return false;
}

mu_status mu__layer_policy_named(const char *name, const char *function, mu_layer_policy *out)
{
    char known[128] = "";
    if (find(name, out))
        return MU_OK;
    for (size_t i = 0; i < MU_COUNT(policies); i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s'%s'", i ? ", " : "", policies[i].name);
    }
    return mu__error(MU_INVALID_ARGUMENT, "%s: '%.60s' is not a dtype policy; the policies are %s", function, name,
                     known);
}

const char *mu__layer_policy_name(mu_layer_policy policy)
{
    for (size_t i = 0; i < MU_COUNT(policies); i++)
        if (policies[i].policy.compute == policy.compute && policies[i].policy.variable == policy.variable)
            return policies[i].name;
    return NULL;
}

mu_layer_policy mu__layer_policy_now(void)
{
    const mu_layer_policy *of_maker = mu__context()->policy;
    const defaults *now = slot();
    if (of_maker)
        return *of_maker;
    if (now && now->policy.compute != MU_DTYPE_DEFAULT)
        return now->policy;
    return (mu_layer_policy){mu__floatx(), mu__floatx()};
}

mu_status mu_set_dtype_policy(const char *policy)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(policy, "mu_set_dtype_policy: the policy"));
    defaults *now = slot();
    return now ? mu__layer_policy_named(policy, "mu_set_dtype_policy", &now->policy) : mu_error_code();
}

const char *mu_dtype_policy(void) { return mu__layer_policy_name(mu__layer_policy_now()); }

mu_status mu_layer_set_dtype_policy(mu_layer *layer, const char *policy)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(layer, "mu_layer_set_dtype_policy: the layer"));
    MU_TRY(mu__need(policy, "mu_layer_set_dtype_policy: the policy"));
    if (layer->built)
        return mu__error(MU_FAILED_PRECONDITION,
                         "mu_layer_set_dtype_policy: the weights of layer '%s' exist already; choose its policy before "
                         "its first call",
                         mu_layer_name(layer));
    return mu__layer_policy_named(policy, "mu_layer_set_dtype_policy", &layer->policy);
}

const char *mu_layer_dtype_policy(const mu_layer *layer) { return layer ? mu__layer_policy_name(layer->policy) : NULL; }

// ---- Keras's JSON -------------------------------------------------------------------------------

// Keras 3 writes {"class_name": "DTypePolicy", "config": {"name": "mixed_bfloat16"}}; the name alone means the same.
mu_status mu__layer_policy_from_json(const json_t *json, bool moves_integers, mu_layer_policy *out)
{
    const char *class_name = json_string_value(json_object_get(json, "class_name"));
    const json_t *named = json_is_string(json) ? json : json_object_get(json_object_get(json, "config"), "name");
    const char *name = json_string_value(named);
    *out = mu__layer_policy_now();
    if (!json || json_is_null(json) || (name && moves_integers && !find(name, out)))
        return MU_OK;
    if (!name || (class_name && strcmp(class_name, "DTypePolicy") != 0))
        return mu__error(
            MU_UNIMPLEMENTED,
            "the configuration's dtype is %.60s; expected the name of a dtype policy, or a DTypePolicy with one",
            class_name ? class_name : "neither text nor an object");
    return mu__layer_policy_named(name, "mu_layer_from_config", out);
}
