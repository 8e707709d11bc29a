// Gradients that an accumulator keeps apart, until a chosen set of them is taken: for steps that happen as a whole.
//
// Each comes with the number of the attempt to compute it, which no two attempts share. A take names the
// attempts whose sum it returns, added in the order of their names; and the global step that it sets drops all
// gradients with a lower number, those that are still to come too. So nothing is left of an attempt that was given up,
// and the sum has the same bits whenever its parts arrived.
#include "ops/core/op.h"
#include "ops/state/accumulator.h"

typedef struct take_kept_attrs {
    mu_shape shape;
} take_kept_attrs;

static const mu_attr_spec take_kept_fields[] = {{"shape", MU_ATTR_SHAPE, offsetof(take_kept_attrs, shape)}, {0}};

// ---- What is kept -------------------------------------------------------------------------------

// All have the declared shape.
static size_t bytes_of_one(const mu_accumulator *a)
{
    return mu__spec_bytes(&(mu_spec){.dtype = a->resource.spec.dtype, .shape = a->declared});
}

void mu__accumulator_drop_kept(mu_accumulator *a, int64_t below)
{
    size_t left = 0;
    for (size_t i = 0; i < a->kept.n; i++)
        if (a->kept.items[i].attempt < below)
            mu__free(a->kept.items[i].values);
        else
            a->kept.items[left++] = a->kept.items[i];
    if (left < a->kept.n)
        mu__holder_give(&a->holder, (a->kept.n - left) * bytes_of_one(a));
    a->kept.n = left;
}

static mu_kept_gradient *find(const mu_accumulator *a, int64_t attempt)
{
    for (size_t i = 0; i < a->kept.n; i++)
        if (a->kept.items[i].attempt == attempt)
            return &a->kept.items[i];
    return NULL;
}

// A request that was sent twice changes nothing.
static mu_status keep(mu_accumulator *a, int64_t attempt, const mu_view *gradient)
{
    const mu_spec spec = {.dtype = gradient->dtype, .shape = gradient->shape};
    if (a->closed)
        return mu__error(MU_CANCELLED, "accumulator '%s' is closed", a->resource.name);
    if (attempt < a->step || find(a, attempt))
        return MU_OK;
    MU_TRY(mu__accumulator_reserve(a, mu__spec_bytes(&spec)));
    void *values = mu__alloc(mu__spec_bytes(&spec) + 1);
    if (!values || MU_PUSH(&a->kept, ((mu_kept_gradient){.attempt = attempt, .values = values})) != MU_OK) {
        mu__free(values);
        mu__holder_give(&a->holder, mu__spec_bytes(&spec));
        return MU_RESOURCE_EXHAUSTED;
    }
    memcpy(values, gradient->data, mu__spec_bytes(&spec));
    return MU_OK;
}

static mu_status take(mu_accumulator *a, const mu_view *attempts, int64_t step, const mu_view *out)
{
    const int64_t n = attempts->shape.dims[0], *attempt = attempts->data, elements = mu__elements(&out->shape);
    for (int64_t i = 0; i < n; i++)
        if (!find(a, attempt[i]))
            return mu__error(
                MU_FAILED_PRECONDITION,
                "accumulator '%s' does not have gradient %lld: its server has started again; restore a checkpoint",
                a->resource.name, (long long)attempt[i]);
    memset(out->data, 0, (size_t)elements * mu_dtype_bytes(out->dtype));
    for (int64_t i = 0; i < n; i++) {
        const void *values = find(a, attempt[i])->values;
        if (i == 0)
            memcpy(out->data, values, (size_t)elements * mu_dtype_bytes(out->dtype));
        else
            mu__add_elements(out->dtype, out->data, values, elements);
    }
    a->step = step;
    mu__accumulator_drop_kept(a, step);
    for (int64_t i = 0; i < n; i++) { // with a number that is not below the step: taken all the same
        mu_kept_gradient *taken = find(a, attempt[i]);
        if (taken) {
            mu__free(taken->values);
            mu__holder_give(&a->holder, bytes_of_one(a));
            *taken = a->kept.items[--a->kept.n];
        }
    }
    return MU_OK;
}

// ---- The ops ------------------------------------------------------------------------------------

static bool is_scalar(const mu_spec *spec) { return spec->dtype == MU_I64 && spec->shape.rank == 0; }

static mu_status keep_infer(mu_infer *infer)
{
    if (!is_scalar(&infer->in[0]) || infer->in[1].dtype != infer->resources[0].dtype)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s takes an int64 scalar and a gradient of type %s; the gradient is of type %s",
                         infer->op->name, mu_dtype_name(infer->resources[0].dtype), mu_dtype_name(infer->in[1].dtype));
    return MU_OK;
}

static mu_status take_infer(mu_infer *infer)
{
    const take_kept_attrs *attrs = infer->attrs;
    if (infer->in[0].dtype != MU_I64 || infer->in[0].shape.rank != 1 || !is_scalar(&infer->in[1]) ||
        !mu__shape_known(&attrs->shape))
        return mu__error(MU_INVALID_ARGUMENT, "%s takes a vector and a scalar of int64, and the shape of a gradient",
                         infer->op->name);
    infer->out[0] = (mu_spec){.dtype = infer->resources[0].dtype, .shape = attrs->shape};
    return MU_OK;
}

static mu_status check_shape(const mu_accumulator *a, const mu_shape *shape)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (a->declared_rank >= 0 && mu__shape_equal(shape, &a->declared))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "accumulator '%s' keeps gradients of shape %s, not of %s", a->resource.name,
                     a->declared_rank < 0 ? "none" : mu__shape_text(&a->declared, wanted), mu__shape_text(shape, seen));
}

static mu_status keep_ref(const mu_kernel *k)
{
    mu_accumulator *a = mu__accumulator_of(k);
    MU_TRY(check_shape(a, &k->in[1].shape));
    pthread_mutex_lock(&a->lock);
    const mu_status status = keep(a, *(const int64_t *)k->in[0].data, &k->in[1]);
    pthread_mutex_unlock(&a->lock);
    return status;
}

static mu_status take_ref(const mu_kernel *k)
{
    mu_accumulator *a = mu__accumulator_of(k);
    MU_TRY(check_shape(a, &k->out[0].shape));
    pthread_mutex_lock(&a->lock);
    const mu_status status = take(a, &k->in[0], *(const int64_t *)k->in[1].data, &k->out[0]);
    pthread_mutex_unlock(&a->lock);
    return status;
}

enum { CHANGES = MU_OP_READS | MU_OP_WRITES };
#define NO_LOWERING "accumulators are kept in host memory; use them outside of the function"

const mu_op mu_op_accumulator_keep_gradient = {
    .name = "accumulator_keep_gradient",
    .n_in = 2,
    .n_resources = 1,
    .flags = CHANGES,
    .resource_kind = "conditional_accumulator",
    .infer = keep_infer,
    .ref = keep_ref,
    .no_lowering = NO_LOWERING,
};

const mu_op mu_op_accumulator_take_kept = {
    .name = "accumulator_take_kept",
    .n_in = 2,
    .n_out = 1,
    .n_resources = 1,
    .flags = CHANGES,
    .resource_kind = "conditional_accumulator",
    .attrs_bytes = sizeof(take_kept_attrs),
    .attrs = take_kept_fields,
    .infer = take_infer,
    .ref = take_ref,
    .no_lowering = NO_LOWERING,
};

mu_status mu__accumulator_keep(mu_accumulator *a, mu_tensor *attempt, mu_tensor *gradient)
{
    mu_resource *resource = &a->resource;
    mu_tensor *in[] = {attempt, gradient};
    return mu__apply(&mu_op_accumulator_keep_gradient, NULL, 2, in, 1, &resource, NULL);
}

mu_tensor *mu__accumulator_take_kept(mu_accumulator *a, mu_tensor *attempts, mu_tensor *step)
{
    mu_resource *resource = &a->resource;
    mu_tensor *in[] = {attempts, step}, *out = NULL;
    take_kept_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.shape = a->declared;
    return mu__apply(&mu_op_accumulator_take_kept, &attrs, 2, in, 1, &resource, &out) == MU_OK ? out : NULL;
}
