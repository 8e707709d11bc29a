// The op that records a value in each run of a graph. It is an effect: it keeps its order among effects and is never
// removed. Of several replicas the first records.
#include "ops/state/recorder.h"

static const mu_resource_kind recorder_kind = {.name = MU_RECORDER_KIND,
                                               .acquire = mu__opaque_acquire,
                                               .commit = mu__opaque_commit,
                                               .opaque = true,
                                               .what = "summary writer"};

mu_status mu__recorder_make(mu_recorder *recorder, const char *name)
{
    recorder->resource.kind = &recorder_kind;
    recorder->resource.spec = (mu_spec){.dtype = MU_F32, .shape = {.rank = 1, .dims = {0}}};
    recorder->resource.shared = true;
    recorder->resource.name = mu__strdup(name);
    return recorder->resource.name ? mu__opaque_begin(&recorder->resource) : MU_RESOURCE_EXHAUSTED;
}

void mu__recorder_free(mu_recorder *recorder)
{
    mu_release(recorder->resource.self);
    mu__free(recorder->resource.name);
}

// ---- The op -------------------------------------------------------------------------------------

static mu_status record_infer(mu_infer *infer)
{
    const mu_spec *step = &infer->in[0];
    return step->dtype == MU_I64 && step->shape.rank == 0
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "record: the step is %s of rank %d; it must be an int64 scalar",
                           mu_dtype_name(step->dtype), step->shape.rank);
}

static mu_status record_ref(const mu_kernel *k)
{
    mu_recorder *recorder = k->resources[0].data;
    const mu_view *x = &k->in[1];
    if (k->replica > 0)
        return MU_OK;
    mu_tensor *copy = mu__tensor_alloc(x->dtype, &x->shape);
    if (!copy)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(mu__host_write(copy), x->data, (size_t)mu__elements(&x->shape) * mu_dtype_bytes(x->dtype));
    const mu_status status = recorder->record(recorder, k->attrs, *(const int64_t *)k->in[0].data, copy);
    mu_release(copy);
    return status;
}

static const mu_attr_spec record_attrs[] = {
    {"name", MU_ATTR_MESSAGE, offsetof(mu_record_attrs, name)},
    {"form", MU_ATTR_INT, offsetof(mu_record_attrs, form)},
    {"detail", MU_ATTR_INT, offsetof(mu_record_attrs, detail)},
    {0},
};

const mu_op mu_op_record = {
    .name = "record",
    .n_in = 2,
    .n_out = 0,
    .n_resources = 1,
    .resource_kind = MU_RECORDER_KIND,
    .flags = MU_OP_READS | MU_OP_EFFECT,
    .attrs_bytes = sizeof(mu_record_attrs),
    .attrs = record_attrs,
    .infer = record_infer,
    .ref = record_ref,
    .no_lowering = "a device program cannot write files of the host; return the tensor and record it after the call, "
                   "or run the function on a CPU device",
};

mu_status mu__record(mu_recorder *recorder, const mu_record_attrs *attrs, mu_tensor *step, mu_tensor *data)
{
    mu_resource *resource = &recorder->resource;
    mu_tensor *in[] = {step, data};
    return mu__apply(&mu_op_record, attrs, 2, in, 1, &resource, NULL);
}
