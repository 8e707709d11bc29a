// The operations of accumulators, and the public functions that apply them.
//
// A take whose result has a known shape writes it in place; otherwise `measure` waits, and the kernel copies what it
// left. Outside of traces a take needs no op: the tensor that it returns owns the memory of the sum.
#include "ops/core/op.h"
#include "ops/state/accumulator.h"

#include <muster/ops.h>

typedef struct take_attrs {
    mu_shape shape;   // of the values
    double timeout_s; // 0: MUSTER_TIMEOUT
} take_attrs;

static const mu_attr_spec take_fields[] = {
    {"shape", MU_ATTR_SHAPE, offsetof(take_attrs, shape)},
    {"timeout_s", MU_ATTR_REAL, offsetof(take_attrs, timeout_s)},
    {0},
};

// ---- Shape rules --------------------------------------------------------------------------------

static mu_status need_scalar(const mu_infer *infer, int i, mu_dtype dtype, const char *what)
{
    char text[MU_SHAPE_TEXT];
    const mu_spec *spec = &infer->in[i];
    if (spec->dtype == dtype && spec->shape.rank == 0)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: %s is %s%s; it must be a scalar of type %s", infer->op->name, what,
                     mu_dtype_name(spec->dtype), mu__shape_text(&spec->shape, text), mu_dtype_name(dtype));
}

static mu_status need_type(const mu_infer *infer, int i)
{
    const mu_dtype wanted = infer->resources[0].dtype, seen = infer->in[i].dtype;
    return seen == wanted
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "%s: the gradient is of type %s, the accumulator of type %s; cast the gradient with mu_cast",
                           infer->op->name, mu_dtype_name(seen), mu_dtype_name(wanted));
}

static mu_status apply_infer(mu_infer *infer)
{
    MU_TRY(need_scalar(infer, 0, MU_I64, "local_step"));
    return need_type(infer, 1);
}

static mu_status sparse_apply_infer(mu_infer *infer)
{
    MU_TRY(need_scalar(infer, 0, MU_I64, "local_step"));
    for (int i = 1; i < infer->n_in; i += 2)
        if (infer->in[i].dtype != MU_I64)
            return mu__error(MU_INVALID_ARGUMENT, "%s: the %s are of type %s; they must be int64", infer->op->name,
                             i == 1 ? "indices" : "numbers of the shape", mu_dtype_name(infer->in[i].dtype));
    return need_type(infer, 2);
}

static mu_status take_infer(mu_infer *infer)
{
    const take_attrs *attrs = infer->attrs;
    MU_TRY(need_scalar(infer, 0, MU_I32, "num_required"));
    infer->out[0] = (mu_spec){.dtype = infer->resources[0].dtype, .shape = attrs->shape};
    return MU_OK;
}

static mu_status sparse_take_infer(mu_infer *infer)
{
    const take_attrs *attrs = infer->attrs;
    MU_TRY(need_scalar(infer, 0, MU_I32, "num_required"));
    if (attrs->shape.rank < 1 || attrs->shape.dims[0] != MU_UNKNOWN)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the values of a sparse gradient have rows, whose number is not known", infer->op->name);
    infer->out[0] = (mu_spec){.dtype = MU_I64, .shape = {.rank = 1, .dims = {MU_UNKNOWN}}};
    infer->out[1] = (mu_spec){.dtype = infer->resources[0].dtype, .shape = attrs->shape};
    infer->out[2] = (mu_spec){.dtype = MU_I64, .shape = {.rank = 1, .dims = {attrs->shape.rank}}};
    return MU_OK;
}

static mu_status count_infer(mu_infer *infer)
{
    infer->out[0] = (mu_spec){.dtype = MU_I32, .shape = mu__scalar_shape};
    return MU_OK;
}

static mu_status step_infer(mu_infer *infer) { return need_scalar(infer, 0, MU_I64, "new_global_step"); }

// ---- Kernels ------------------------------------------------------------------------------------

static mu_status apply_ref(const mu_kernel *k)
{
    return mu__accumulator_apply(mu__accumulator_of(k), *(const int64_t *)k->in[0].data, &k->in[1], NULL, NULL);
}

static mu_status sparse_apply_ref(const mu_kernel *k)
{
    return mu__accumulator_apply(mu__accumulator_of(k), *(const int64_t *)k->in[0].data, &k->in[2], &k->in[1],
                                 k->n_in > 3 ? &k->in[3] : NULL);
}

static mu_status count_ref(const mu_kernel *k)
{
    int64_t n = 0;
    MU_TRY(mu__accumulator_count(mu__accumulator_of(k), &n));
    *(int32_t *)k->out[0].data = (int32_t)MU_MIN(n, INT32_MAX);
    return MU_OK;
}

static mu_status step_ref(const mu_kernel *k)
{
    return mu__accumulator_set_step(mu__accumulator_of(k), *(const int64_t *)k->in[0].data);
}

// `block` as in mu__accumulator_take.
static mu_status take_sum(const mu_kernel *k, mu_measured *block, mu_gradient_sum *sum)
{
    const take_attrs *attrs = k->attrs;
    return mu__accumulator_take(mu__accumulator_of(k), *(const int32_t *)k->in[0].data, attrs->timeout_s, &attrs->shape,
                                block, sum);
}

// Waits, and leaves the result for the kernel, if its shape is not known before.
static mu_status take_measure(const mu_kernel *k, mu_spec *out)
{
    mu_gradient_sum sum = {0};
    if (mu__shape_known(&out[0].shape))
        return MU_OK;
    MU_TRY(take_sum(k, k->measured, &sum));
    mu__accumulator_result(mu__accumulator_of(k), &sum, k->measured->block);
    out[0].shape = sum.shape;
    mu__gradient_sum_free(&sum);
    return MU_OK;
}

static mu_status take_ref(const mu_kernel *k)
{
    mu_gradient_sum sum = {0};
    if (k->measured && k->measured->block) {
        memcpy(k->out[0].data, k->measured->block, k->measured->bytes);
        return MU_OK;
    }
    MU_TRY(take_sum(k, NULL, &sum));
    mu__accumulator_result(mu__accumulator_of(k), &sum, k->out[0].data);
    mu__gradient_sum_free(&sum);
    return MU_OK;
}

// The block that measure leaves: the indices, followed by the values.
static mu_status sparse_take_measure(const mu_kernel *k, mu_spec *out)
{
    mu_gradient_sum sum = {0};
    MU_TRY(take_sum(k, k->measured, &sum));
    const size_t index_bytes = (size_t)sum.shape.dims[0] * sizeof *sum.indices;
    memcpy(k->measured->block, sum.indices, index_bytes);
    mu__accumulator_result(mu__accumulator_of(k), &sum, (char *)k->measured->block + index_bytes);
    out[0].shape.dims[0] = sum.shape.dims[0];
    out[1].shape = sum.shape;
    mu__gradient_sum_free(&sum);
    return MU_OK;
}

static void write_shape(const mu_accumulator *a, const mu_shape *values, int64_t *out)
{
    out[0] = a->declared_rank > 0 ? a->declared.dims[0] : MU_UNKNOWN;
    for (int i = 1; i < values->rank; i++)
        out[i] = values->dims[i];
}

static mu_status sparse_take_ref(const mu_kernel *k)
{
    const size_t index_bytes = (size_t)k->out[0].shape.dims[0] * sizeof(int64_t);
    const char *block = k->measured->block;
    memcpy(k->out[0].data, block, index_bytes);
    memcpy(k->out[1].data, block + index_bytes, k->measured->bytes - index_bytes);
    write_shape(mu__accumulator_of(k), &k->out[1].shape, k->out[2].data);
    return MU_OK;
}

// ---- Op definitions -----------------------------------------------------------------------------

enum { CHANGES = MU_OP_READS | MU_OP_WRITES };

#define NO_LOWERING                                                                                     \
    "accumulators are kept in host memory; use them outside of the function, or run the function on a " \
    "CPU device"

const mu_op mu_op_resource_accumulator_apply_gradient = {
    .name = "resource_accumulator_apply_gradient",
    .n_in = 2,
    .n_resources = 1,
    .flags = CHANGES,
    .resource_kind = "conditional_accumulator",
    .infer = apply_infer,
    .ref = apply_ref,
    .no_lowering = NO_LOWERING,
};

const mu_op mu_op_resource_accumulator_take_gradient = {
    .name = "resource_accumulator_take_gradient",
    .n_in = 1,
    .n_out = 1,
    .n_resources = 1,
    .flags = CHANGES | MU_OP_DATA_DEPENDENT | MU_OP_WAITS,
    .resource_kind = "conditional_accumulator",
    .attrs_bytes = sizeof(take_attrs),
    .attrs = take_fields,
    .infer = take_infer,
    .measure = take_measure,
    .ref = take_ref,
    .no_lowering = NO_LOWERING,
};

// Other threads change the number, so two reads are never merged: it is an effect.
#define COUNT_OP(text, kind)                                                                                    \
    {                                                                                                           \
        .name = text, .n_out = 1, .n_resources = 1, .flags = MU_OP_READS | MU_OP_EFFECT, .resource_kind = kind, \
        .infer = count_infer, .ref = count_ref, .no_lowering = NO_LOWERING                                      \
    }
#define STEP_OP(text, kind)                                                                                      \
    {                                                                                                            \
        .name = text, .n_in = 1, .n_resources = 1, .flags = CHANGES, .resource_kind = kind, .infer = step_infer, \
        .ref = step_ref, .no_lowering = NO_LOWERING                                                              \
    }

const mu_op mu_op_resource_accumulator_num_accumulated =
    COUNT_OP("resource_accumulator_num_accumulated", "conditional_accumulator");
const mu_op mu_op_resource_accumulator_set_global_step =
    STEP_OP("resource_accumulator_set_global_step", "conditional_accumulator");
const mu_op mu_op_sparse_accumulator_num_accumulated =
    COUNT_OP("sparse_accumulator_num_accumulated", "sparse_conditional_accumulator");
const mu_op mu_op_sparse_accumulator_set_global_step =
    STEP_OP("sparse_accumulator_set_global_step", "sparse_conditional_accumulator");

const mu_op mu_op_sparse_accumulator_apply_gradient = {
    .name = "sparse_accumulator_apply_gradient",
    .n_in = 3,
    .max_in = 4,
    .n_resources = 1,
    .flags = CHANGES,
    .resource_kind = "sparse_conditional_accumulator",
    .infer = sparse_apply_infer,
    .ref = sparse_apply_ref,
    .no_lowering = NO_LOWERING,
};

const mu_op mu_op_sparse_accumulator_take_gradient = {
    .name = "sparse_accumulator_take_gradient",
    .n_in = 1,
    .n_out = 3,
    .n_resources = 1,
    .flags = CHANGES | MU_OP_DATA_DEPENDENT | MU_OP_WAITS,
    .resource_kind = "sparse_conditional_accumulator",
    .attrs_bytes = sizeof(take_attrs),
    .attrs = take_fields,
    .infer = sparse_take_infer,
    .measure = sparse_take_measure,
    .ref = sparse_take_ref,
    .no_lowering = NO_LOWERING,
};

double mu__accumulator_seconds(const mu_op *op, const void *attrs)
{
    return op->flags & MU_OP_WAITS ? ((const take_attrs *)attrs)->timeout_s : 0;
}

// ---- Short forms --------------------------------------------------------------------------------

static mu_status need(const mu_accumulator *a, bool sparse, const char *function)
{
    if (mu__pending())
        return mu_error_code();
    if (!a)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the accumulator is NULL", function);
    if (a->sparse == sparse)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: accumulator '%s' holds %s gradients; use %s", function, a->resource.name,
                     a->sparse ? "sparse" : "dense",
                     a->sparse ? "the mu_sparse_accumulator functions" : "mu_accumulator_apply_grad and _take_grad");
}

static mu_status apply_op(const mu_op *op, mu_accumulator *a, int n, mu_tensor *const *in, mu_tensor **out)
{
    mu_resource *resource = &a->resource;
    return mu__apply(op, NULL, n, in, 1, &resource, out);
}

static mu_tensor *step_tensor(int64_t step) { return mu_tensor_new(MU_I64, 0, NULL, &step); }

// ---- Applying -----------------------------------------------------------------------------------

mu_status mu_resource_accumulator_apply_gradient(mu_accumulator *handle, mu_tensor *local_step, mu_tensor *gradient)
{
    MU_TRY(need(handle, false, "mu_resource_accumulator_apply_gradient"));
    mu_tensor *in[] = {local_step, gradient};
    return apply_op(&mu_op_resource_accumulator_apply_gradient, handle, 2, in, NULL);
}

// TensorFlow's front end refuses shapes that it knows to be wrong.
static mu_status check_known_shape(const mu_accumulator *a, const mu_tensor *grad, const char *function)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (!grad || !grad->node || a->declared_rank < 0 || mu__shape_compatible(&grad->shape, &a->declared))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the gradient has the shape %s; accumulator '%s' was made with %s",
                     function, mu__shape_text(&grad->shape, seen), a->resource.name,
                     mu__shape_text(&a->declared, wanted));
}

mu_status mu_accumulator_apply_grad(mu_accumulator *accumulator, mu_tensor *grad, int64_t local_step)
{
    MU_TRY(need(accumulator, false, "mu_accumulator_apply_grad"));
    MU_TRY(check_known_shape(accumulator, grad, "mu_accumulator_apply_grad"));
    return mu_resource_accumulator_apply_gradient(accumulator, step_tensor(local_step), grad);
}

mu_status mu_sparse_accumulator_apply_gradient(mu_accumulator *handle, mu_tensor *local_step,
                                               mu_tensor *gradient_indices, mu_tensor *gradient_values,
                                               mu_tensor *gradient_shape)
{
    MU_TRY(need(handle, true, "mu_sparse_accumulator_apply_gradient"));
    mu_tensor *in[] = {local_step, gradient_indices, gradient_values, gradient_shape};
    return apply_op(&mu_op_sparse_accumulator_apply_gradient, handle, gradient_shape ? 4 : 3, in, NULL);
}

mu_status mu_sparse_accumulator_apply_grad(mu_accumulator *accumulator, mu_tensor *indices, mu_tensor *values,
                                           mu_tensor *shape, int64_t local_step)
{
    MU_TRY(need(accumulator, true, "mu_sparse_accumulator_apply_grad"));
    MU_TRY(mu__need(indices, "mu_sparse_accumulator_apply_grad: the tensor of indices"));
    MU_TRY(mu__need(values, "mu_sparse_accumulator_apply_grad: the tensor of values"));
    mu_tensor *wide = mu_cast(indices, MU_I64), *wide_shape = shape ? mu_cast(shape, MU_I64) : NULL;
    if (mu__pending())
        return mu_error_code();
    return mu_sparse_accumulator_apply_gradient(accumulator, step_tensor(local_step), wide, values, wide_shape);
}

mu_status mu_sparse_accumulator_apply_indexed_slices_grad(mu_accumulator *accumulator, mu_value *slices,
                                                          int64_t local_step)
{
    MU_TRY(need(accumulator, true, "mu_sparse_accumulator_apply_indexed_slices_grad"));
    MU_TRY(mu__need(slices, "mu_sparse_accumulator_apply_indexed_slices_grad: the slices"));
    if (slices->kind != MU_VALUE_SLICES)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_sparse_accumulator_apply_indexed_slices_grad: the value is not indexed slices; make them "
                         "with mu_indexed_slices, or use mu_sparse_accumulator_apply_grad");
    return mu_sparse_accumulator_apply_grad(accumulator, mu_at(slices, 1), mu_at(slices, 0), mu_at(slices, 2),
                                            local_step);
}

// ---- Taking -------------------------------------------------------------------------------------

static mu_status check_take(const mu_accumulator *a, double timeout_s, mu_dtype dtype)
{
    if (!(timeout_s >= 0))
        return mu__error(MU_INVALID_ARGUMENT, "accumulator '%s': .timeout_seconds is %g; it must be positive",
                         a->resource.name, timeout_s);
    if (dtype != a->resource.spec.dtype)
        return mu__error(MU_INVALID_ARGUMENT,
                         "accumulator '%s' is of type %s, but the take asks for %s; ask for the accumulator's type",
                         a->resource.name, mu_dtype_name(a->resource.spec.dtype), mu_dtype_name(dtype));
    return MU_OK;
}

// The op of a trace. out: the results.
static mu_status take_traced(mu_accumulator *a, mu_tensor *num_required, double timeout_s, mu_tensor **out)
{
    take_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.shape = a->declared;
    attrs.timeout_s = timeout_s;
    if (a->declared_rank < (a->sparse ? 1 : 0))
        return mu__error(MU_INVALID_ARGUMENT,
                         "accumulator '%s' was made without a shape, so a traced function cannot know the rank of what "
                         "it takes; give .shape when the accumulator is made (its dimensions may be MU_UNKNOWN)",
                         a->resource.name);
    if (a->sparse)
        attrs.shape.dims[0] = MU_UNKNOWN;
    const mu_op *op = a->sparse ? &mu_op_sparse_accumulator_take_gradient : &mu_op_resource_accumulator_take_gradient;
    mu_resource *resource = &a->resource;
    return mu__apply(op, &attrs, 1, &num_required, 1, &resource, out);
}

// A tensor that takes over the memory of a sum's values.
static mu_tensor *adopt_values(const mu_accumulator *a, const mu_gradient_sum *sum)
{
    mu__accumulator_result(a, sum, sum->values);
    return mu__give(mu__tensor_view(sum->buffer, 0, a->resource.spec.dtype, &sum->shape));
}

static mu_status read_required(mu_tensor *num_required, const char *function, int64_t *out)
{
    char text[MU_SHAPE_TEXT];
    if (!num_required)
        return mu__error(MU_INVALID_ARGUMENT, "%s: num_required is NULL; give an int32 scalar", function);
    if (num_required->dtype != MU_I32 || num_required->shape.rank != 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: num_required is %s%s; it must be an int32 scalar", function,
                         mu_dtype_name(num_required->dtype), mu__shape_text(&num_required->shape, text));
    const int32_t *number = mu_tensor_data(num_required);
    *out = number ? *number : 0;
    return mu_error_code();
}

// `function` names the public function for errors.
static mu_tensor *take_dense(mu_accumulator *a, mu_tensor *num_required, double timeout_s, const char *function)
{
    mu_tensor *out = NULL;
    mu_gradient_sum sum = {0};
    int64_t required = 0;
    if (mu__context()->trace)
        return take_traced(a, num_required, timeout_s, &out) == MU_OK ? out : NULL;
    if (read_required(num_required, function, &required) != MU_OK)
        return NULL;
    if (a->keeper)
        return mu_at(a->keeper->take(a, required, timeout_s), 0);
    if (mu__accumulator_take(a, required, timeout_s, NULL, NULL, &sum) == MU_OK)
        out = adopt_values(a, &sum);
    mu__gradient_sum_free(&sum);
    return out;
}

static mu_value *take_sparse(mu_accumulator *a, mu_tensor *num_required, double timeout_s, const char *function)
{
    mu_tensor *out[3] = {0};
    mu_gradient_sum sum = {0};
    int64_t required = 0, shape[MU_MAX_RANK];
    if (mu__context()->trace) {
        (void)!take_traced(a, num_required, timeout_s, out);
    } else if (read_required(num_required, function, &required) == MU_OK && a->keeper) {
        return a->keeper->take(a, required, timeout_s);
    } else if (!mu__pending() && mu__accumulator_take(a, required, timeout_s, NULL, NULL, &sum) == MU_OK) {
        write_shape(a, &sum.shape, shape);
        out[0] = mu_tensor_new(MU_I64, 1, sum.shape.dims, sum.indices);
        out[1] = adopt_values(a, &sum);
        out[2] = mu_tensor_new(MU_I64, 1, (int64_t[]){sum.shape.rank}, shape);
    }
    mu__gradient_sum_free(&sum);
    return mu__pending() ? NULL : mu_list(out[0], out[1], out[2], MU_END);
}

static mu_tensor *required_tensor(int num_required)
{
    const int32_t number = num_required;
    return mu_tensor_new(MU_I32, 0, NULL, &number);
}

static mu_status take_args(mu_accumulator_take_grad_args *args, const mu_accumulator_take_grad_args *given, bool sparse,
                           const char *function)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(args, sizeof *args, given, function));
    MU_TRY(need(args->accumulator, sparse, function));
    if (args->timeout_seconds == 0 && MU_GIVEN(args, timeout_seconds))
        return mu__error(MU_INVALID_ARGUMENT,
                         "accumulator '%s': .timeout_seconds is 0; it must be positive, or left out for MUSTER_TIMEOUT",
                         args->accumulator->resource.name);
    return check_take(args->accumulator, args->timeout_seconds, args->accumulator->resource.spec.dtype);
}

mu_tensor *mu_accumulator_take_grad_with(const mu_accumulator_take_grad_args *given)
{
    static const char *const name = "mu_accumulator_take_grad";
    mu_accumulator_take_grad_args args;
    if (take_args(&args, given, false, name) != MU_OK)
        return NULL;
    return take_dense(args.accumulator, required_tensor(args.num_required), args.timeout_seconds, name);
}

mu_value *mu_sparse_accumulator_take_grad_with(const mu_accumulator_take_grad_args *given)
{
    static const char *const name = "mu_sparse_accumulator_take_grad";
    mu_accumulator_take_grad_args args;
    if (take_args(&args, given, true, name) != MU_OK)
        return NULL;
    return take_sparse(args.accumulator, required_tensor(args.num_required), args.timeout_seconds, name);
}

mu_tensor *mu_resource_accumulator_take_gradient(mu_accumulator *handle, mu_tensor *num_required, mu_dtype dtype)
{
    static const char *const name = "mu_resource_accumulator_take_gradient";
    if (need(handle, false, name) != MU_OK || check_take(handle, 0, dtype) != MU_OK)
        return NULL;
    return take_dense(handle, num_required, 0, name);
}

mu_value *mu_sparse_accumulator_take_gradient(mu_accumulator *handle, mu_tensor *num_required, mu_dtype dtype)
{
    static const char *const name = "mu_sparse_accumulator_take_gradient";
    if (need(handle, true, name) != MU_OK || check_take(handle, 0, dtype) != MU_OK)
        return NULL;
    return take_sparse(handle, num_required, 0, name);
}

// ---- Both kinds ---------------------------------------------------------------------------------

mu_tensor *mu_accumulator_num_accumulated(mu_accumulator *accumulator)
{
    mu_tensor *out = NULL;
    if (mu__pending() || mu__need(accumulator, "mu_accumulator_num_accumulated: the accumulator") != MU_OK)
        return NULL;
    const mu_op *op =
        accumulator->sparse ? &mu_op_sparse_accumulator_num_accumulated : &mu_op_resource_accumulator_num_accumulated;
    return apply_op(op, accumulator, 0, NULL, &out) == MU_OK ? out : NULL;
}

mu_tensor *mu_resource_accumulator_num_accumulated(mu_accumulator *handle)
{
    return mu_accumulator_num_accumulated(handle);
}

mu_status mu_resource_accumulator_set_global_step(mu_accumulator *handle, mu_tensor *new_global_step)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(handle, "mu_resource_accumulator_set_global_step: the accumulator"));
    return apply_op(handle->sparse ? &mu_op_sparse_accumulator_set_global_step
                                   : &mu_op_resource_accumulator_set_global_step,
                    handle, 1, &new_global_step, NULL);
}

mu_status mu_accumulator_set_global_step(mu_accumulator *accumulator, int64_t new_global_step)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(accumulator, "mu_accumulator_set_global_step: the accumulator"));
    return mu_resource_accumulator_set_global_step(accumulator, step_tensor(new_global_step));
}
