// Ops that check or show values: check_numerics, assert, print.
//
// assert and print are effects: they keep their order among effects and are never removed. A device program in which a
// check fails says so at its end (lower_fault.c).
#include "ops/core/assert.h"
#include "ops/core/attrs.h"
#include "ops/core/lower.h"

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

static mu_status not_finite(const mu_text_attrs *attrs, int64_t element, double value)
{
    return mu__error(MU_INVALID_ARGUMENT, "check_numerics: %s: element %lld is %g", attrs->text, (long long)element,
                     value);
}

static mu_status check_numerics_ref(const mu_kernel *k)
{
    const mu_view *x = &k->in[0];
    int64_t n = mu__elements(&x->shape);
    for (int64_t i = 0; i < n; i++) {
        double value = mu__read_element(x->dtype, x->data, i);
        if (!isfinite(value))
            return not_finite(k->attrs, i, value);
    }
    if (k->out[0].data != x->data && n)
        memcpy(k->out[0].data, x->data, (size_t)n * mu_dtype_bytes(x->dtype));
    return MU_OK;
}

static mu_hlo flat(mu_emitter *e, mu_hlo a)
{
    const mu_shape line = MU_SHAPE(mu__elements(&a.spec.shape));
    return mu__hlo_reshape(e, a, &line);
}

// A fault has a whole number, so in a device program it is the kind that is said.
enum { IS_NAN, IS_INFINITE, IS_MINUS_INFINITE, KINDS };

static mu_status raise_not_finite(const mu_fault *fault, int64_t position, int64_t kind)
{
    static const double values[KINDS] = {[IS_NAN] = NAN, [IS_INFINITE] = INFINITY, [IS_MINUS_INFINITE] = -INFINITY};
    return not_finite(fault->attrs, position, values[MU_MAX(MU_MIN(kind, KINDS - 1), 0)]);
}

static mu_status check_numerics_lower(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_hlo x = flat(e, l->in[0]);
    const mu_shape *shape = &x.spec.shape;
    const mu_fault fault = {.raise = raise_not_finite, .op = l->op, .attrs = l->attrs, .positions = shape->dims[0]};
    l->out[0] = l->in[0];
    if (fault.positions == 0)
        return e->status;
    const mu_hlo zero = mu__hlo_fill(e, x.spec.dtype, shape, 0);
    const mu_hlo infinite =
        mu__hlo_select(e, mu__hlo_compare(e, "GT", x, zero), mu__hlo_fill(e, MU_I32, shape, IS_INFINITE),
                       mu__hlo_fill(e, MU_I32, shape, IS_MINUS_INFINITE));
    const mu_hlo kind =
        mu__hlo_select(e, mu__hlo_compare(e, "EQ", x, x), infinite, mu__hlo_fill(e, MU_I32, shape, IS_NAN));
    const mu_spec bools = {.dtype = MU_BOOL, .shape = *shape};
    const mu_hlo finite = e->add(e, &bools, "stablehlo.is_finite", 1, &x, NULL);
    mu__hlo_fail(e, &fault, mu__hlo_unary(e, "stablehlo.not", finite), kind);
    return e->status;
}

static mu_tensor *check_numerics_grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply1(&mu_op_check_numerics, g->attrs, g->dy);
}

static const mu_text_attrs sample_text = {"a sample"};
static const mu_sample samples_check[] = {{.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &sample_text}, {0}};
const mu_op mu_op_check_numerics = {
    .name = "check_numerics",
    .n_in = 1,
    .n_out = 1,
    .flags = MU_OP_EFFECT,
    .dtypes = MU_FLOATS,
    .fails_for = MU_FLOATS,
    .in_place = 1,
    .attrs_bytes = sizeof(mu_text_attrs),
    .attrs = text_attrs,
    .infer = mu__infer_same,
    .grad = check_numerics_grad,
    .ref = check_numerics_ref,
    .samples = samples_check,
    .lower = check_numerics_lower,
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

// The condition, and optionally the number that belongs to it.
static mu_status assert_infer(mu_infer *infer)
{
    const mu_spec *in = infer->in;
    return infer->n_in == 1 || (in[1].dtype == MU_I64 && in[0].shape.rank == 0 && in[1].shape.rank == 0)
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "assert: a number beside the condition needs both to be scalars, and "
                                                "itself to be int64");
}

static mu_status is_false(const mu_text_attrs *attrs, int64_t element)
{
    return mu__error(MU_INVALID_ARGUMENT, "assert: %s (element %lld of the condition is false)", attrs->text,
                     (long long)element);
}

static mu_status is_not(const mu_text_attrs *attrs, int64_t number)
{
    return mu__error(MU_INVALID_ARGUMENT, "assert: %s %lld", attrs->text, (long long)number);
}

static mu_status assert_ref(const mu_kernel *k)
{
    const bool *holds = k->in[0].data;
    int64_t n = mu__elements(&k->in[0].shape);
    for (int64_t i = 0; i < n; i++)
        if (!holds[i])
            return k->n_in > 1 ? is_not(k->attrs, *(const int64_t *)k->in[1].data) : is_false(k->attrs, i);
    return MU_OK;
}

static mu_status raise_false(const mu_fault *fault, int64_t position, int64_t value)
{
    (void)value;
    return is_false(fault->attrs, position);
}

static mu_status raise_number(const mu_fault *fault, int64_t position, int64_t value)
{
    (void)position;
    return is_not(fault->attrs, value);
}

static mu_status assert_lower(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const bool numbered = l->n_in > 1;
    const mu_hlo holds = flat(e, l->in[0]), number = numbered ? flat(e, l->in[1]) : (mu_hlo){.id = -1};
    const mu_fault fault = {.raise = numbered ? raise_number : raise_false,
                            .op = l->op,
                            .attrs = l->attrs,
                            .positions = holds.spec.shape.dims[0]};
    if (fault.positions > 0)
        mu__hlo_fail(e, &fault, mu__hlo_unary(e, "stablehlo.not", holds), number);
    return e->status;
}

const mu_op mu_op_assert = {
    .name = "assert",
    .n_in = 1,
    .max_in = 2,
    .n_out = 0,
    .flags = MU_OP_EFFECT,
    .dtypes = MU_BOOLS,
    .fails_for = MU_BOOLS,
    .attrs_bytes = sizeof(mu_text_attrs),
    .attrs = text_attrs,
    .infer = assert_infer,
    .ref = assert_ref,
    .lower = assert_lower,
};
mu_status mu_assert(mu_tensor *condition, const char *message)
{
    mu_text_attrs attrs = text_of(message);
    return mu__apply(&mu_op_assert, &attrs, 1, &condition, 0, NULL, NULL);
}

mu_status mu__assert_number(mu_tensor *condition, const char *message, mu_tensor *number)
{
    mu_text_attrs attrs = text_of(message);
    mu_tensor *in[] = {condition, number};
    return mu__apply(&mu_op_assert, &attrs, 2, in, 0, NULL, NULL);
}

static mu_status print_ref(const mu_kernel *k)
{
    const mu_view *x = &k->in[0];
    mu_tensor *copy = mu__tensor_alloc(x->dtype, &x->shape);
    if (!copy)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(mu__host_write(copy), x->data, (size_t)mu__elements(&x->shape) * mu_dtype_bytes(x->dtype));
    mu_text_attrs label = *(const mu_text_attrs *)k->attrs;
    mu__printable(label.text, true); // the graph may come from a file
    const size_t length = strlen(label.text);
    flockfile(stderr); // one write, also with parallel replicas
    fprintf(stderr, length == 0 || strchr(" \n=", label.text[length - 1]) ? "%s" : "%s ", label.text);
    mu_tensor_print(copy, stderr);
    funlockfile(stderr);
    mu_release(copy);
    return MU_OK;
}

const mu_op mu_op_print = {
    .name = "print",
    .n_in = 1,
    .n_out = 0,
    .flags = MU_OP_EFFECT,
    .attrs_bytes = sizeof(mu_text_attrs),
    .attrs = text_attrs,
    .infer = no_output,
    .ref = print_ref,
    .no_lowering = "a device program cannot write to the host's terminal; return the tensor and print it after the "
                   "call, or run the function on a CPU device",
};
mu_status mu_print(mu_tensor *x, const char *label)
{
    mu_text_attrs attrs = text_of(label);
    return mu__apply(&mu_op_print, &attrs, 1, &x, 0, NULL, NULL);
}
