// split_to_logical_devices: an annotation of where the elements of a tensor are computed, among the logical devices of
// a replica. It changes no value. In a program for several logical devices XLA's partitioner places the elements as
// annotated (GSPMD's "Sharding"), and divides the work of the ops around it; elsewhere it is the identity.
#include "ops/array/sharding.h"

#include "ops/core/grads.h"
#include "ops/core/lower.h"

mu_status mu__sharding_check(const char *name, const mu_shape *shape, const mu_sharding_attrs *sharding)
{
    int64_t product = 1;
    if (sharding->devices < 1 || sharding->devices > MU_MOST_LOGICAL_DEVICES)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %lld logical devices of each replica; 1 to %d are possible", name,
                         (long long)sharding->devices, MU_MOST_LOGICAL_DEVICES);
    if (sharding->device < MU_NO_DEVICE || sharding->device >= sharding->devices)
        return mu__error(MU_INVALID_ARGUMENT, "%s: logical device %lld; the replicas have devices 0 to %lld", name,
                         (long long)sharding->device, (long long)sharding->devices - 1);
    if (sharding->pieces.n == 0)
        return MU_OK;
    if (sharding->pieces.n != shape->rank || sharding->device != MU_NO_DEVICE)
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: %lld numbers of pieces for a tensor of rank %d; give one for each axis", name,
                         (long long)sharding->pieces.n, shape->rank);
    for (int i = 0; i < shape->rank; i++) {
        const int64_t pieces = sharding->pieces.at[i];
        if (pieces < 1)
            return mu__error(MU_INVALID_ARGUMENT, "%s: %lld pieces along axis %d; expected 1 or more", name,
                             (long long)pieces, i);
        if (shape->dims[i] != MU_UNKNOWN && shape->dims[i] % pieces != 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: axis %d has size %lld, which %lld pieces do not divide; split another axis, or give "
                             "each replica a number of rows that they divide (mu_dataset_batch(.drop_remainder = true) "
                             "leaves a shorter last batch out)",
                             name, i, (long long)shape->dims[i], (long long)pieces);
        product = MU_MIN(product * MU_MIN(pieces, (int64_t)INT32_MAX), (int64_t)INT32_MAX);
    }
    if (product == sharding->devices)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: %lld pieces in all, for %lld logical devices of each replica; they must be as many", name,
                     (long long)product, (long long)sharding->devices);
}

static mu_status infer(mu_infer *infer)
{
    MU_TRY(mu__sharding_check(infer->op->name, &infer->in[0].shape, infer->attrs));
    return mu__infer_same(infer);
}

// The gradient is divided as its tensor is.
static mu_tensor *grad(mu_grad *g, int i)
{
    (void)i;
    return mu__apply1(g->op, g->attrs, g->dy);
}

static mu_status ref(const mu_kernel *k)
{
    const size_t bytes = (size_t)mu__elements(&k->in[0].shape) * mu_dtype_bytes(k->in[0].dtype);
    if (bytes > 0 && k->out[0].data != k->in[0].data)
        memmove(k->out[0].data, k->in[0].data, bytes);
    return MU_OK;
}

// "{devices=[2,1]<=[2]}", "{maximal device=1}" or "{replicated}".
static void write_sharding(const mu_sharding_attrs *sharding, char *text, size_t bytes)
{
    if (sharding->device != MU_NO_DEVICE)
        snprintf(text, bytes, "{maximal device=%lld}", (long long)sharding->device);
    else if (sharding->pieces.n == 0)
        snprintf(text, bytes, "{replicated}");
    else {
        int n = snprintf(text, bytes, "{devices=[");
        for (int64_t i = 0; i < sharding->pieces.n; i++)
            n += snprintf(text + n, bytes - (size_t)n, "%s%lld", i ? "," : "", (long long)sharding->pieces.at[i]);
        snprintf(text + n, bytes - (size_t)n, "]<=[%lld]}", (long long)sharding->devices);
    }
}

static mu_status lower(mu_lowering *l)
{
    const mu_sharding_attrs *sharding = l->attrs;
    char text[MU_HLO_TEXT / 2], rest[MU_HLO_TEXT];
    if (l->emitter->partitions <= 1)
        return mu__lowered(l, 0, l->in[0]);
    if (sharding->devices != l->emitter->partitions)
        return mu__error(MU_FAILED_PRECONDITION,
                         "%s: the annotation is for %lld logical devices, and the replicas of the strategy that runs "
                         "the function have %d; trace a function for each strategy",
                         l->op->name, (long long)sharding->devices, l->emitter->partitions);
    write_sharding(sharding, text, sizeof text);
    snprintf(rest, sizeof rest, "{call_target_name = \"Sharding\", backend_config = \"\", mhlo.sharding = \"%s\"}",
             text);
    return mu__lowered(l, 0, l->emitter->add(l->emitter, &l->in[0].spec, "stablehlo.custom_call", 1, l->in, rest));
}

static const mu_attr_spec attrs[] = {{"pieces", MU_ATTR_INTS, offsetof(mu_sharding_attrs, pieces)},
                                     {"device", MU_ATTR_INT, offsetof(mu_sharding_attrs, device)},
                                     {"devices", MU_ATTR_INT, offsetof(mu_sharding_attrs, devices)},
                                     {0}};
static const mu_sharding_attrs rows = {.pieces = {2, {2, 1}}, .device = MU_NO_DEVICE, .devices = 2},
                               whole = {.device = MU_NO_DEVICE, .devices = 4}, second = {.device = 1, .devices = 2};
static const mu_sample samples[] = {{.n_in = 1, .in = {MU_DIMS(4, 3)}, .attrs = &rows},
                                    {.n_in = 1, .in = {MU_DIMS(3, 5)}, .attrs = &whole},
                                    {.n_in = 1, .in = {MU_DIMS(1)}, .attrs = &second},
                                    {.n_in = 1, .in = {MU_DIMS(0)}, .attrs = &whole},
                                    {0}};
const mu_op mu_op_split_to_logical_devices = {
    .name = "split_to_logical_devices",
    .n_in = 1,
    .n_out = 1,
    .flags = MU_OP_VIEW,
    .in_place = 1,
    .attrs_bytes = sizeof(mu_sharding_attrs),
    .attrs = attrs,
    .infer = infer,
    .grad = grad,
    .ref = ref,
    .samples = samples,
    .lower = lower,
};

mu_tensor *mu__sharding_annotate(const mu_sharding_attrs *sharding, mu_tensor *tensor)
{
    return mu__context()->trace ? mu__apply1(&mu_op_split_to_logical_devices, sharding, tensor) : tensor;
}
