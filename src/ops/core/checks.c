// Ops that check or show values: check_numerics, assert, print.
//
// assert and print are effects: they keep their order among effects and are never removed.
#include "ops/core/attrs.h"
#include "ops/core/op.h"

#include <math.h>
#include <muster/ops.h>

static const mu_attr_spec text_attrs[] = {{"text", MU_ATTR_MESSAGE, offsetof(mu_text_attrs, text)}, {0}};

static mu_text_attrs text_of(const char *text)
{
    mu_text_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    if (snprintf(attrs.text, sizeof attrs.text, "%s", text ? text : "") >= (int)sizeof attrs.text)
        strcpy(attrs.text + sizeof attrs.text - sizeof "...", "...");
    return attrs;
}

// ---- check_numerics -----------------------------------------------------------------------------

static mu_status check_numerics_ref(const mu_kernel *k)
{
    const mu_view *x = &k->in[0];
    int64_t n = mu__elements(&x->shape);
    for (int64_t i = 0; i < n; i++) {
        double value = mu__read_element(x->dtype, x->data, i);
        if (!isfinite(value))
            return mu__error(MU_INVALID_ARGUMENT, "check_numerics: %s: element %lld is %g",
                             ((const mu_text_attrs *)k->attrs)->text, (long long)i, value);
    }
    if (k->out[0].data != x->data && n)
        memcpy(k->out[0].data, x->data, (size_t)n * mu_dtype_bytes(x->dtype));
    return MU_OK;
}

static mu_tensor *check_numerics_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply1(&mu_op_check_numerics, g->attrs, g->dy);
}

static const mu_text_attrs sample_text = {"a sample"};
static const mu_sample samples_check[] = {{.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &sample_text}, {0}};
const mu_op mu_op_check_numerics = {
    .name = "check_numerics", .n_in = 1, .n_out = 1, .flags = MU_OP_EFFECT, .dtypes = MU_FLOATS, .in_place = 1,
    .attrs_bytes = sizeof(mu_text_attrs), .attrs = text_attrs, .infer = mu__infer_same, .grad = check_numerics_grad,
    .ref = check_numerics_ref, .samples = samples_check,
    .no_lowering = "a device program cannot stop with an error; return mu_is_finite of the tensor and check that, or "
                   "run the function on a CPU device",
};
mu_tensor *mu_check_numerics(mu_tensor *x, const char *message)
{
    mu_text_attrs attrs = text_of(message);
    return mu__apply1(&mu_op_check_numerics, &attrs, x);
}

// ---- assert and print ---------------------------------------------------------------------------

static mu_status no_output(mu_infer *infer)
{
    (void)infer;
    return MU_OK;
}

static mu_status assert_ref(const mu_kernel *k)
{
    const bool *holds = k->in[0].data;
    int64_t n = mu__elements(&k->in[0].shape);
    for (int64_t i = 0; i < n; i++)
        if (!holds[i])
            return mu__error(MU_INVALID_ARGUMENT, "assert: %s (element %lld of the condition is false)",
                             ((const mu_text_attrs *)k->attrs)->text, (long long)i);
    return MU_OK;
}

const mu_op mu_op_assert = {
    .name = "assert", .n_in = 1, .n_out = 0, .flags = MU_OP_EFFECT, .dtypes = MU_BOOLS,
    .attrs_bytes = sizeof(mu_text_attrs), .attrs = text_attrs, .infer = no_output, .ref = assert_ref,
    .no_lowering = "a device program cannot stop with an error; return the condition and check it after the call, or "
                   "run the function on a CPU device",
};
mu_status mu_assert(mu_tensor *condition, const char *message)
{
    mu_text_attrs attrs = text_of(message);
    return mu__apply(&mu_op_assert, &attrs, 1, &condition, 0, NULL, NULL);
}

static mu_status print_ref(const mu_kernel *k)
{
    const mu_view *x = &k->in[0];
    mu_tensor *copy = mu__tensor_alloc(x->dtype, &x->shape);
    if (!copy)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(mu__host_write(copy), x->data, (size_t)mu__elements(&x->shape) * mu_dtype_bytes(x->dtype));
    mu_text_attrs label = *(const mu_text_attrs *)k->attrs;
    mu__printable(label.text, true);  // the graph may come from a file
    const size_t length = strlen(label.text);
    flockfile(stderr);                // one write, also with parallel replicas
    fprintf(stderr, length == 0 || strchr(" \n=", label.text[length - 1]) ? "%s" : "%s ", label.text);
    mu_tensor_print(copy, stderr);
    funlockfile(stderr);
    mu_release(copy);
    return MU_OK;
}

const mu_op mu_op_print = {
    .name = "print", .n_in = 1, .n_out = 0, .flags = MU_OP_EFFECT, .attrs_bytes = sizeof(mu_text_attrs),
    .attrs = text_attrs, .infer = no_output, .ref = print_ref,
    .no_lowering = "a device program cannot write to the host's terminal; return the tensor and print it after the "
                   "call, or run the function on a CPU device",
};
mu_status mu_print(mu_tensor *x, const char *label)
{
    mu_text_attrs attrs = text_of(label);
    return mu__apply(&mu_op_print, &attrs, 1, &x, 0, NULL, NULL);
}
