// Lowerings of collectives to StableHLO.
//
// In a program that several replicas run together they are StableHLO's own, over all of these replicas. In a program of
// one replica they are the identity: the group has one member, or the engine performs them between programs.
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

enum { MOST_REPLICAS = 1024, GROUP_TEXT = 8 * MOST_REPLICAS };

// "replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>": every replica, in one group.
static void write_group(mu_emitter *e, char text[GROUP_TEXT])
{
    if (e->replicas > MOST_REPLICAS && e->status == MU_OK)
        e->status = mu__error(MU_INVALID_ARGUMENT, "%d replicas; one program is for at most %d", e->replicas,
                              (int)MOST_REPLICAS);
    const int n = MU_MIN(e->replicas, (int)MOST_REPLICAS);
    size_t at = (size_t)snprintf(text, GROUP_TEXT, "replica_groups = dense<[[");
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, GROUP_TEXT - at, "%s%d", i ? ", " : "", i);
    snprintf(text + at, GROUP_TEXT - at, "]]> : tensor<1x%dxi64>", n);
}

// ---- all_reduce ---------------------------------------------------------------------------------

static const char *reducer(mu_reduction reduction)
{
    return reduction == MU_REDUCTION_MIN   ? "stablehlo.minimum"
           : reduction == MU_REDUCTION_MAX ? "stablehlo.maximum"
                                           : "stablehlo.add";
}

// One operation for all tensors, which have one type.
static void reduce_all(mu_emitter *e, mu_reduction reduction, int n, const mu_hlo *in, mu_hlo *out)
{
    char group[GROUP_TEXT], text[GROUP_TEXT + 8];
    mu_hlo pair[2] = {{.spec = {.dtype = in[0].spec.dtype}}, {.spec = {.dtype = in[0].spec.dtype}}};
    mu_hlo_operation operation = {.name = "stablehlo.all_reduce", .n_in = n, .in = in, .n_out = n, .out = out};
    write_group(e, group);
    snprintf(text, sizeof text, "{%s}", group);
    e->open(e, &operation);
    e->enter(e, &operation, 2, pair);
    const mu_hlo reduced = mu__hlo_binary(e, reducer(reduction), pair[0], pair[1]);
    e->leave(e, 1, &reduced);
    e->close(e, &operation, text);
}

// 16-bit floats are added in float32 and rounded once, as the native engine does.
mu_status mu__lower_all_reduce(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_reduction reduction = (mu_reduction)((const mu_all_reduce_attrs *)l->attrs)->reduction;
    mu_hlo *wide = mu__calloc((size_t)l->n_in + 1, 2 * sizeof *wide), *sums = MU_BEHIND(wide, l->n_in);
    if (!wide)
        return e->status = MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < l->n_in; i++) {
        l->out[i] = l->in[i];
        wide[i] = mu__hlo_wide(e, l->in[i]);
        sums[i].spec = wide[i].spec;
    }
    if (e->replicas > 1 && l->n_in > 0) {
        reduce_all(e, reduction, l->n_in, wide, sums);
        for (int i = 0; i < l->n_in; i++) {
            const mu_spec *spec = &sums[i].spec;
            const mu_hlo result = reduction != MU_REDUCTION_MEAN
                                      ? sums[i]
                                      : mu__hlo_binary(e, "stablehlo.divide", sums[i],
                                                       mu__hlo_fill(e, spec->dtype, &spec->shape, e->replicas));
            l->out[i] = spec->dtype == l->in[i].spec.dtype ? result : mu__hlo_convert(e, result, l->in[i].spec.dtype);
        }
    }
    mu__free(wide);
    return e->status;
}

// ---- all_gather, broadcast ----------------------------------------------------------------------

mu_hlo mu__hlo_gather_replicas(mu_emitter *e, mu_hlo a, int axis)
{
    char group[GROUP_TEXT], text[GROUP_TEXT + 64];
    mu_spec whole = a.spec;
    if (e->replicas <= 1)
        return a;
    whole.shape.dims[axis] *= e->replicas;
    write_group(e, group);
    snprintf(text, sizeof text, "{all_gather_dim = %d : i64, %s}", axis, group);
    return e->add(e, &whole, "stablehlo.all_gather", 1, &a, text);
}

// The second result has every replica's size.
mu_status mu__lower_all_gather(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const int axis = (int)((const mu_all_gather_attrs *)l->attrs)->axis;
    l->out[1] = mu__hlo_fill(e, MU_I64, &l->out[1].spec.shape, (double)l->in[0].spec.shape.dims[axis]);
    return mu__lowered(l, 0, mu__hlo_gather_replicas(e, l->in[0], axis));
}

// Gathered, because a sum with zeros would lose the sign of a zero, and not every type can be added.
mu_status mu__lower_broadcast_from(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const int64_t root = ((const mu_broadcast_attrs *)l->attrs)->root;
    const mu_shape *shape = &l->in[0].spec.shape;
    mu_shape row = *shape;
    if (e->replicas <= 1)
        return mu__lowered(l, 0, l->in[0]);
    if (root >= e->replicas || shape->rank == MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "broadcast from replica %lld of %d, of a tensor of rank %d; expected one "
                         "of the replicas, and a rank below %d", (long long)root, e->replicas, shape->rank,
                         (int)MU_MAX_RANK);
    memmove(row.dims + 1, row.dims, sizeof *row.dims * (size_t)row.rank++);
    row.dims[0] = 1;
    const mu_hlo all = mu__hlo_gather_replicas(e, mu__hlo_reshape(e, l->in[0], &row), 0);
    return mu__lowered(l, 0, mu__hlo_reshape(e, mu__hlo_slice_axis(e, all, 0, root, root + 1, 1), shape));
}
