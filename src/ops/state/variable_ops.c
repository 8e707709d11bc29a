// Effects on variables: read, assign, assign_add, assign_sub.
//
// Each op has one resource, the variable; the kernel gets this replica's storage of it. The tape handles the gradient
// of a read. Independent of strategies, which choose the component.
#include "ops/core/lower.h"
#include "ops/core/op.h"

static mu_status read_infer(mu_infer *infer)
{
    infer->out[0] = infer->resources[0];
    return MU_OK;
}

static mu_status read_ref(const mu_kernel *kernel)
{
    const mu_view *variable = &kernel->resources[0], *out = &kernel->out[0];
    if (out->data != variable->data)
        memcpy(out->data, variable->data, (size_t)mu__elements(&out->shape) * mu_dtype_bytes(out->dtype));
    return MU_OK;
}

static mu_status assign_infer(mu_infer *infer)
{
    char own[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    const mu_spec *variable = &infer->resources[0], *value = &infer->in[0];
    if (variable->dtype == value->dtype && mu__shape_compatible(&variable->shape, &value->shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT, "%s: the variable is %s %s, the value %s %s; they must agree",
                     infer->op->name, mu_dtype_name(variable->dtype), mu__shape_text(&variable->shape, own),
                     mu_dtype_name(value->dtype), mu__shape_text(&value->shape, other));
}

static mu_status assign_ref(const mu_kernel *kernel)
{
    const mu_view *variable = &kernel->resources[0], *value = &kernel->in[0];
    memmove(variable->data, value->data, (size_t)mu__elements(&value->shape) * mu_dtype_bytes(value->dtype));
    return MU_OK;
}

// Runs the kernel of the plain op in place, so that the arithmetic is the same for every type.
static mu_status update_ref(const mu_kernel *kernel)
{
    const mu_op *plain = kernel->op == &mu_op_assign_add_variable ? &mu_op_add : &mu_op_subtract;
    const mu_view in[] = {kernel->resources[0], kernel->in[0]};
    mu_kernel inner = *kernel;
    inner.op = plain;
    inner.n_in = 2;
    inner.in = in;
    inner.n_out = 1;
    inner.out = kernel->resources;
    inner.n_resources = 0;
    return mu__run_direct(&inner);
}

const mu_op mu_op_read_variable = {
    .name = "read_variable",
    .n_out = 1,
    .n_resources = 1,
    .flags = MU_OP_READS,
    .infer = read_infer,
    .ref = read_ref,
    .lower = mu__lower_read,
};

const mu_op mu_op_assign_variable = {
    .name = "assign_variable",
    .n_in = 1,
    .n_resources = 1,
    .flags = MU_OP_WRITES,
    .infer = assign_infer,
    .ref = assign_ref,
    .lower = mu__lower_assign,
};

const mu_op mu_op_assign_add_variable = {
    .name = "assign_add_variable",
    .n_in = 1,
    .n_resources = 1,
    .flags = MU_OP_READS | MU_OP_WRITES,
    .dtypes = MU_NUMBERS,
    .infer = assign_infer,
    .ref = update_ref,
    .lower = mu__lower_assign,
};

const mu_op mu_op_assign_sub_variable = {
    .name = "assign_sub_variable",
    .n_in = 1,
    .n_resources = 1,
    .flags = MU_OP_READS | MU_OP_WRITES,
    .dtypes = MU_NUMBERS,
    .infer = assign_infer,
    .ref = update_ref,
    .lower = mu__lower_assign,
};
