// What a function that runs on replicas can ask and do: its id, and collectives with the other replicas.
//
// In a trace these are nodes; the engine gives the id and the communicator when the graph runs.
#include "distribute/distribute.h"
#include "ops/nn.h"

static mu_strategy *replica_strategy(void)
{
    const mu_strategy_replica *replica = (const mu_strategy_replica *)mu__context()->replica;
    return replica ? replica->strategy : NULL;
}

int mu_replica_count(void)
{
    const mu_strategy *strategy = replica_strategy();
    return strategy ? strategy->n_replicas : 1;
}

mu_tensor *mu_replica_id(void)
{
    if (mu__pending())
        return NULL;
    const struct mu_replica *replica = mu__context()->replica;
    if (!replica || replica->id >= 0)
        return mu_constant(MU_I32, replica ? replica->id : 0);
    return mu__apply_n(&mu_op_replica_id, NULL, 0, NULL);
}

// ---- Reductions ---------------------------------------------------------------------------------

// Reduces the tensors with these indices as one bucket.
static mu_status reduce_bucket(mu_reduction reduction, int n, const int *indices, mu_tensor *const *in, mu_tensor **out)
{
    mu_tensor **parts = mu__calloc((size_t)n, 2 * sizeof *parts);
    if (!parts)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n; i++)
        parts[i] = in[indices[i]];
    mu_all_reduce_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.reduction = reduction;
    snprintf(attrs.name, sizeof attrs.name, "bucket of %d", n);
    mu_status status = mu__apply(&mu_op_all_reduce, &attrs, n, parts, 0, NULL, parts + n);
    for (int i = 0; i < n && status == MU_OK; i++)
        out[indices[i]] = parts[n + i];
    mu__free(parts);
    return status;
}

static size_t known_bytes(const mu_tensor *tensor)
{
    mu_spec spec = mu__spec_of(tensor);
    return mu__shape_known(&spec.shape) ? mu__spec_bytes(&spec) : 0;
}

mu_status mu__all_reduce_list(mu_reduction reduction, int n, mu_tensor *const *in, mu_tensor **out, size_t bytes_per_pack)
{
    if (mu_replica_count() == 1) {
        memcpy(out, in, sizeof *in * (size_t)n);
        return MU_OK;
    }
    int *indices = mu__calloc((size_t)n + 1, sizeof *indices);
    bool *done = mu__calloc((size_t)n + 1, sizeof *done);
    mu_status status = indices && done ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int first = 0; first < n && status == MU_OK; first++) {
        size_t bytes = 0;
        int count = 0;
        for (int i = first; i < n && !done[first]; i++) {
            if (done[i] || in[i]->dtype != in[first]->dtype || (bytes_per_pack && bytes > bytes_per_pack))
                continue;
            bytes += known_bytes(in[i]);
            indices[count++] = i;
        }
        for (int k = 0; k < count; k++)
            done[indices[k]] = true;
        if (count)
            status = reduce_bucket(reduction, count, indices, in, out);
    }
    mu__free(indices);
    mu__free(done);
    return status;
}

mu_tensor *mu_all_reduce(mu_reduce_op op, mu_tensor *value)
{
    if (mu__pending())
        return NULL;
    if (!value || (unsigned)op > MU_MEAN) {
        mu__error(MU_INVALID_ARGUMENT, "mu_all_reduce: %s", value ? "the operation is neither MU_SUM nor MU_MEAN" : "the value is NULL");
        return NULL;
    }
    if (!mu__context()->replica) {
        mu__error(MU_FAILED_PRECONDITION, "mu_all_reduce is for functions that run on replicas; outside of them use mu_reduce");
        return NULL;
    }
    mu_tensor *reduced = NULL;
    mu_reduction reduction = op == MU_SUM ? MU_REDUCTION_SUM : MU_REDUCTION_MEAN;
    return mu__all_reduce_list(reduction, 1, &value, &reduced, 0) == MU_OK ? reduced : NULL;
}

mu_tensor *mu__broadcast_from_first(mu_tensor *value)
{
    mu_broadcast_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    return mu_replica_count() == 1 ? value : mu__apply1(&mu_op_broadcast, &attrs, value);
}
