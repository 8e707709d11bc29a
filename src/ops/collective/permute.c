// collective_permute: each replica gets the tensor of its source, zeros if it has none.
//
// The sources are a tensor in the attributes, an entry for each replica: -1 for none, and no replica is the source of
// two. The pairs are also in the name that replicas compare. Independent of transports.
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

enum { MOST_REPLICAS = 1024, PAIRS_TEXT = 12 * MOST_REPLICAS };

static bool can_be(const mu_tensor *sources)
{
    bool taken[MOST_REPLICAS] = {false};
    if (!sources || sources->node || sources->dtype != MU_I64 || sources->shape.rank != 1 ||
        sources->shape.dims[0] < 1 || sources->shape.dims[0] > MOST_REPLICAS)
        return false;
    const int64_t *from = mu__host_read(sources), n = sources->shape.dims[0];
    for (int64_t to = 0; from && to < n; to++) {
        if (from[to] < -1 || from[to] >= n || (from[to] >= 0 && taken[from[to]]))
            return false;
        if (from[to] >= 0)
            taken[from[to]] = true;
    }
    return from != NULL;
}

static mu_status permute_infer(mu_infer *infer)
{
    const mu_permute_attrs *attrs = infer->attrs;
    infer->out[0] = infer->in[0];
    return can_be(attrs->sources)
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "collective_permute: the sources must be an int64 vector with an entry for each of at most "
                           "%d replicas: a replica that is not in it twice, or -1",
                           (int)MOST_REPLICAS);
}

// "collective_permute 0>1, 1>2", in the order of the targets.
static void write_pairs(const int64_t *sources, int ranks, char text[PAIRS_TEXT])
{
    size_t at = (size_t)snprintf(text, PAIRS_TEXT, "collective_permute");
    for (int to = 0, n = 0; to < ranks; to++)
        if (sources[to] >= 0)
            at +=
                (size_t)snprintf(text + at, PAIRS_TEXT - at, "%s %lld>%d", n++ ? "," : "", (long long)sources[to], to);
}

static mu_status permute_run(const mu_kernel *kernel)
{
    const mu_tensor *tensor = ((const mu_permute_attrs *)kernel->attrs)->sources;
    const int64_t *sources = mu__host_read(tensor);
    const mu_view *in = &kernel->in[0], *out = &kernel->out[0];
    const int ranks = kernel->collective ? kernel->collective->size : 1;
    const int64_t count = mu__elements(&in->shape);
    char name[PAIRS_TEXT];
    if (tensor->shape.dims[0] != ranks)
        return mu__error(MU_INVALID_ARGUMENT,
                         "collective_permute: the function was traced for %lld replicas and is run by %d; trace it "
                         "under the strategy that runs it",
                         (long long)tensor->shape.dims[0], ranks);
    if (!kernel->collective) {
        const size_t bytes = (size_t)count * mu_dtype_bytes(in->dtype);
        sources[0] == 0 ? memcpy(out->data, in->data, bytes) : memset(out->data, 0, bytes);
        return MU_OK;
    }
    write_pairs(sources, ranks, name);
    mu__form_said(kernel->collective, 1, in, MU_NO_AXIS);
    return kernel->collective->permute(kernel->collective, kernel->number, name, in->dtype, in->data, out->data, count,
                                       sources);
}

// Back along the pairs.
static mu_tensor *permute_grad(mu_grad *g, int i)
{
    const mu_tensor *forth = ((const mu_permute_attrs *)g->attrs)->sources;
    const int64_t *from = mu__host_read(forth), n = forth->shape.dims[0];
    mu_tensor *back = mu__give(mu__tensor_alloc(MU_I64, &forth->shape));
    int64_t *to = back ? mu__host_write(back) : NULL;
    (void)i;
    for (int64_t r = 0; to && r < n; r++)
        to[r] = -1;
    for (int64_t r = 0; to && r < n; r++)
        if (from[r] >= 0)
            to[from[r]] = r;
    return to ? mu__apply1(&mu_op_collective_permute, &(mu_permute_attrs){.sources = back}, g->dy) : NULL;
}

static const mu_attr_spec permute_fields[] = {{"sources", MU_ATTR_TENSOR, offsetof(mu_permute_attrs, sources)}, {0}};

const mu_op mu_op_collective_permute = {
    .name = "collective_permute",
    .n_in = 1,
    .n_out = 1,
    .flags = MU_OP_COLLECTIVE,
    .dtypes = MU_ALL_DTYPES,
    .attrs_bytes = sizeof(mu_permute_attrs),
    .attrs = permute_fields,
    .infer = permute_infer,
    .grad = permute_grad,
    .ref = permute_run,
    .lower = mu__lower_permute,
};
