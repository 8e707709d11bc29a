// Ops that feed a graph: its inputs, captured eager tensors, and the id of the replica that runs it.
//
// Inputs and captured tensors do not compute: an engine binds them to actual tensors before the first step.
#include "ops/core/lower.h"
#include "ops/core/op.h"

static const mu_attr_spec input_attrs[] = {
    {"dtype", MU_ATTR_DTYPE, offsetof(mu_input_attrs, dtype)},
    {"shape", MU_ATTR_SHAPE, offsetof(mu_input_attrs, shape)},
    {0},
};

static mu_status input_infer(mu_infer *infer)
{
    const mu_input_attrs *attrs = infer->attrs;
    infer->out[0] = (mu_spec){.dtype = attrs->dtype, .shape = attrs->shape};
    return MU_OK;
}

static mu_status bound_by_engine(const mu_kernel *kernel)
{
    return mu__error(MU_INTERNAL, "op %s was run; an engine must bind it to a tensor instead", kernel->op->name);
}

const mu_op mu_op_input = {
    .name = "input",
    .n_in = 0,
    .n_out = 1,
    .attrs_bytes = sizeof(mu_input_attrs),
    .attrs = input_attrs,
    .infer = input_infer,
    .ref = bound_by_engine,
};

static const mu_attr_spec constant_attrs[] = {
    {"value", MU_ATTR_TENSOR, offsetof(mu_constant_attrs, tensor)},
    {0},
};

static mu_status constant_infer(mu_infer *infer)
{
    infer->out[0] = mu__spec_of(((const mu_constant_attrs *)infer->attrs)->tensor);
    return MU_OK;
}

const mu_op mu_op_constant = {
    .name = "constant",
    .n_in = 0,
    .n_out = 1,
    .attrs_bytes = sizeof(mu_constant_attrs),
    .attrs = constant_attrs,
    .infer = constant_infer,
    .ref = bound_by_engine,
    .lower = mu__lower_constant,
};

static mu_status replica_id_infer(mu_infer *infer)
{
    infer->out[0] = (mu_spec){.dtype = MU_I32};
    return MU_OK;
}

static mu_status replica_id_run(const mu_kernel *kernel)
{
    *(int32_t *)kernel->out[0].data = kernel->replica;
    return MU_OK;
}

const mu_op mu_op_replica_id = {
    .name = "replica_id",
    .n_in = 0,
    .n_out = 1,
    .infer = replica_id_infer,
    .ref = replica_id_run,
    .lower = mu__lower_replica_id,
};
