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

// Writes a reduction by all replicas, with its region. `dimension` begins its attributes.
static void write_reduction(mu_emitter *e, mu_reduction reduction, mu_hlo_operation *operation, const char *dimension)
{
    char group[GROUP_TEXT], text[GROUP_TEXT + 64];
    const mu_dtype dtype = operation->in[0].spec.dtype;
    mu_hlo pair[2] = {{.spec = {.dtype = dtype}}, {.spec = {.dtype = dtype}}};
    write_group(e, group);
    snprintf(text, sizeof text, "{%s%s}", dimension, group);
    e->open(e, operation);
    e->enter(e, operation, 2, pair);
    const mu_hlo reduced = mu__hlo_binary(e, reducer(reduction), pair[0], pair[1]);
    e->leave(e, 1, &reduced);
    e->close(e, operation, text);
}

// Divides the sum of a mean, and gives it the type of what was reduced.
static mu_hlo finish_reduction(mu_emitter *e, mu_reduction reduction, mu_hlo sum, mu_dtype dtype)
{
    const mu_spec *spec = &sum.spec;
    const mu_hlo result =
        reduction != MU_REDUCTION_MEAN
            ? sum
            : mu__hlo_binary(e, "stablehlo.divide", sum, mu__hlo_fill(e, spec->dtype, &spec->shape, e->replicas));
    return spec->dtype == dtype ? result : mu__hlo_convert(e, result, dtype);
}

// One operation for all tensors, which have one type. XLA's partitioner compares the sharding of one operand with that
// of all results, a tuple, and ends the process where these differ, so a program that it divides has one for each.
// 16-bit floats are added in float32 and rounded once, as the native engine does.
mu_status mu__lower_all_reduce(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_reduction reduction = (mu_reduction)((const mu_all_reduce_attrs *)l->attrs)->reduction;
    const int n = e->replicas > 1 ? l->n_in : 0, each = e->partitions > 1 ? 1 : n;
    mu_hlo *wide = mu__calloc((size_t)l->n_in + 1, 2 * sizeof *wide), *sums = MU_BEHIND(wide, l->n_in);
    if (!wide)
        return e->status = MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < l->n_in; i++) {
        l->out[i] = l->in[i];
        wide[i] = mu__hlo_wide(e, l->in[i]);
        sums[i].spec = wide[i].spec;
    }
    for (int i = 0; i < n; i += each) {
        mu_hlo_operation operation = {
            .name = "stablehlo.all_reduce", .n_in = each, .in = wide + i, .n_out = each, .out = sums + i};
        write_reduction(e, reduction, &operation, "");
    }
    for (int i = 0; i < n; i++)
        l->out[i] = finish_reduction(e, reduction, sums[i], l->in[i].spec.dtype);
    mu__free(wide);
    return e->status;
}

static mu_status raise_difference(const mu_fault *fault, int64_t position, int64_t value)
{
    (void)position;
    (void)value;
    return mu__error(
        MU_FAILED_PRECONDITION,
        "%s has a collective inside, and the replicas differ in %s; all replicas must perform it together. Let it "
        "depend on what all replicas have, such as the result of an all-reduce, or move the collective out of it",
        fault->op->name, fault->op == &mu_op_cond ? "its predicate" : "the number of its iterations");
}

// Counts the replicas on which the predicate is true.
mu_hlo mu__hlo_agree(mu_lowering *l, mu_hlo predicate)
{
    mu_emitter *e = l->emitter;
    const mu_fault fault = {.raise = raise_difference, .op = l->op, .positions = 1, .common = true};
    const mu_hlo own = mu__hlo_convert(e, predicate, MU_I32), zero = mu__hlo_number(e, MU_I32, 0);
    mu_hlo count = {.id = -1, .spec = own.spec};
    mu_hlo_operation operation = {.name = "stablehlo.all_reduce", .n_in = 1, .in = &own, .n_out = 1, .out = &count};
    write_reduction(e, MU_REDUCTION_SUM, &operation, "");
    const mu_hlo all = mu__hlo_compare(e, "EQ", count, mu__hlo_number(e, MU_I32, e->replicas));
    const mu_hlo agreed = mu__hlo_binary(e, "stablehlo.or", all, mu__hlo_compare(e, "EQ", count, zero));
    mu__hlo_fail(e, &fault, mu__hlo_unary(e, "stablehlo.not", agreed), (mu_hlo){.id = -1});
    return all;
}

// The lowest number wins: what fails on other replicas further down is often only a consequence.
void mu__hlo_share_fault(mu_emitter *e)
{
    if (e->replicas <= 1)
        return;
    const mu_hlo zero = mu__hlo_number(e, MU_I64, 0), most = mu__hlo_minmax(e, MU_I64, true);
    const mu_hlo own = mu__hlo_select(e, mu__hlo_faultless(e), most, e->fault);
    mu_hlo lowest = {.id = -1, .spec = own.spec};
    mu_hlo_operation operation = {.name = "stablehlo.all_reduce", .n_in = 1, .in = &own, .n_out = 1, .out = &lowest};
    write_reduction(e, MU_REDUCTION_MIN, &operation, "");
    e->fault = mu__hlo_select(e, mu__hlo_compare(e, "EQ", lowest, most), zero, lowest);
}

// ---- all_gather, broadcast ----------------------------------------------------------------------

// StableHLO divides and joins no axis of size 0. All replicas have the same shapes, so none waits for another.
mu_hlo mu__hlo_gather_replicas(mu_emitter *e, mu_hlo a, int axis)
{
    char group[GROUP_TEXT], text[GROUP_TEXT + 64];
    mu_spec whole = a.spec;
    if (e->replicas <= 1)
        return a;
    whole.shape.dims[axis] *= e->replicas;
    if (mu__elements(&whole.shape) == 0)
        return mu__hlo_fill(e, whole.dtype, &whole.shape, 0);
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
        return mu__error(MU_INVALID_ARGUMENT,
                         "broadcast from replica %lld of %d, of a tensor of rank %d; expected one of the replicas, and "
                         "a rank below %d",
                         (long long)root, e->replicas, shape->rank, (int)MU_MAX_RANK);
    memmove(row.dims + 1, row.dims, sizeof *row.dims * (size_t)row.rank++);
    row.dims[0] = 1;
    const mu_hlo all = mu__hlo_gather_replicas(e, mu__hlo_reshape(e, l->in[0], &row), 0);
    return mu__lowered(l, 0, mu__hlo_reshape(e, mu__hlo_slice_axis(e, all, 0, root, root + 1, 1), shape));
}

// ---- reduce_scatter, collective_permute ---------------------------------------------------------

static mu_status check_replicas(const mu_emitter *e, const mu_op *op, int64_t ranks)
{
    if (ranks == MU_MAX(e->replicas, 1))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: the function was traced for %lld replicas, and its program is for %d; trace it under the "
                     "strategy that runs it",
                     op->name, (long long)ranks, MU_MAX(e->replicas, 1));
}

mu_status mu__lower_reduce_scatter(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_reduce_scatter_attrs *attrs = l->attrs;
    char dimension[64];
    MU_TRY(check_replicas(e, l->op, attrs->ranks));
    if (attrs->ranks == 1)
        return mu__lowered(l, 0, l->in[0]);
    if (mu__elements(&l->out[0].spec.shape) == 0)
        return mu__lowered(l, 0, mu__hlo_fill(e, l->out[0].spec.dtype, &l->out[0].spec.shape, 0));
    mu_hlo wide = mu__hlo_wide(e, l->in[0]), sum = {.spec = l->out[0].spec};
    sum.spec.dtype = wide.spec.dtype;
    mu_hlo_operation operation = {.name = "stablehlo.reduce_scatter", .n_in = 1, .in = &wide, .n_out = 1, .out = &sum};
    snprintf(dimension, sizeof dimension, "scatter_dimension = %lld : i64, ", (long long)attrs->axis);
    write_reduction(e, (mu_reduction)attrs->reduction, &operation, dimension);
    return mu__lowered(l, 0, finish_reduction(e, (mu_reduction)attrs->reduction, sum, l->in[0].spec.dtype));
}

mu_status mu__lower_permute(mu_lowering *l)
{
    mu_emitter *e = l->emitter;
    const mu_tensor *tensor = ((const mu_permute_attrs *)l->attrs)->sources;
    const int64_t *sources = mu__host_read(tensor), ranks = tensor->shape.dims[0];
    const mu_spec *spec = &l->in[0].spec;
    char text[16 * MOST_REPLICAS + 96];
    size_t at = (size_t)snprintf(text, sizeof text, "{source_target_pairs = dense<[");
    int pairs = 0;
    MU_TRY(check_replicas(e, l->op, ranks));
    for (int64_t to = 0; to < ranks; to++)
        if (sources[to] >= 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s[%lld, %lld]", pairs++ ? ", " : "",
                                   (long long)sources[to], (long long)to);
    if (pairs == 0)
        return mu__lowered(l, 0, mu__hlo_fill(e, spec->dtype, &spec->shape, 0));
    if (ranks == 1)
        return mu__lowered(l, 0, l->in[0]);
    snprintf(text + at, sizeof text - at, "]> : tensor<%dx2xi64>}", pairs);
    return mu__lowered(l, 0, e->add(e, spec, "stablehlo.collective_permute", 1, &l->in[0], text));
}
