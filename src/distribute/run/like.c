// The argument types and shapes that a function is traced for, valid for all replicas.
//
// There is one graph for all replicas, but their tensors may differ in size. An axis whose size differs is unknown in
// the trace; each replica's plan knows its own. Several workers compare sizes only for functions that gather: results
// of these have sizes that depend on all replicas, so all workers must trace the same sizes.
#include "distribute/distribute.h"

// The tensors of one replica's arguments.
typedef struct tensors {
    mu_object **leaves; // [n]: all leaves
    int n, n_tensors;
} tensors;

static mu_status tensors_of(const mu_value *arguments, tensors *out)
{
    *out = (tensors){.n = mu__value_flatten(arguments, NULL, 0)};
    if (!(out->leaves = mu__calloc((size_t)out->n + 1, sizeof *out->leaves)))
        return MU_RESOURCE_EXHAUSTED;
    mu__value_flatten(arguments, out->leaves, out->n);
    for (int i = 0; i < out->n; i++)
        out->n_tensors += mu__is(out->leaves[i], &mu__tensor_type);
    return MU_OK;
}

static mu_status refuse(const mu_strategy *strategy, int argument, int replica, const mu_spec *first,
                        const mu_spec *other)
{
    char mine[MU_SHAPE_TEXT], theirs[MU_SHAPE_TEXT];
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_run: tensor %d of the arguments is %s%s on replica %d and %s%s on replica %d. Tensors of one "
                     "argument may differ in sizes, not in type or number of axes: reshape or cast them",
                     argument, mu_dtype_name(first->dtype), mu__shape_text(&first->shape, mine),
                     strategy->first_replica, mu_dtype_name(other->dtype), mu__shape_text(&other->shape, theirs),
                     replica);
}

static bool joins(mu_spec *all, const mu_spec *other)
{
    if (all->dtype != other->dtype || all->shape.rank != other->shape.rank)
        return false;
    for (int k = 0; k < all->shape.rank; k++)
        if (all->shape.dims[k] != other->shape.dims[k])
            all->shape.dims[k] = MU_UNKNOWN;
    return true;
}

// A wrong number of tensors is reported where each replica takes its arguments (strategy_run.c).
static mu_status join_replica(const mu_strategy *strategy, const mu_value *arguments, int r, int n, mu_spec *specs)
{
    mu_value *mine = mu__select(arguments, r);
    tensors of;
    if (!mine || tensors_of(mine, &of) != MU_OK) {
        mu_release(mine);
        return mu_error_code();
    }
    mu_status status = MU_OK;
    for (int i = 0, t = 0; i < of.n && of.n_tensors == n && status == MU_OK; i++) {
        if (!mu__is(of.leaves[i], &mu__tensor_type))
            continue;
        const mu_spec spec = mu__spec_of((mu_tensor *)of.leaves[i]);
        if (!joins(&specs[t], &spec))
            status = refuse(strategy, t, strategy->first_replica + r, &specs[t], &spec);
        t++;
    }
    mu__free(of.leaves);
    mu_release(mine);
    return status;
}

// ---- Between workers ----------------------------------------------------------------------------

enum { SPEC_INTS = MU_MAX_RANK + 2 }; // type, rank and sizes, as workers exchange them

static void spec_to_ints(const mu_spec *spec, int64_t *ints)
{
    ints[0] = spec->dtype;
    ints[1] = spec->shape.rank;
    memcpy(ints + 2, spec->shape.dims, sizeof *ints * (size_t)spec->shape.rank);
}

// Type and rank must equal this worker's; sizes may differ.
static mu_status join_ints(const mu_strategy *strategy, int argument, int worker, const int64_t *ints, mu_spec *all)
{
    if (ints[0] != (int64_t)all->dtype || ints[1] != all->shape.rank)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_run: tensor %d of the arguments has type %s and %d axes on worker %d, another type or "
                         "number of axes on worker %d; workers must pass tensors that differ in sizes only",
                         argument, mu_dtype_name(all->dtype), all->shape.rank, strategy->worker, worker);
    for (int k = 0; k < all->shape.rank; k++)
        if (all->shape.dims[k] != ints[2 + k])
            all->shape.dims[k] = MU_UNKNOWN;
    return MU_OK;
}

mu_status mu__workers_join_specs(mu_strategy *strategy, int n, mu_spec *specs)
{
    int workers = 0;
    int64_t *mine = mu__calloc((size_t)n * SPEC_INTS + 1, sizeof *mine), *all = NULL;
    for (int i = 0; mine && i < n; i++)
        spec_to_ints(&specs[i], mine + i * SPEC_INTS);
    if (mine)
        all = mu__workers_gather_equal(strategy, "shapes of arguments", MU_I64, (int64_t)n * SPEC_INTS, mine, &workers);
    mu_status status = all ? MU_OK : mu_error_code();
    for (int k = 0; status == MU_OK && k < workers * n; k++)
        status = join_ints(strategy, k % n, k / n, all + (size_t)k * SPEC_INTS, &specs[k % n]);
    mu__free(all);
    mu__free(mine);
    return status;
}

// ---- The value ----------------------------------------------------------------------------------

// `like` with other shapes, made of tensors that have only type, shape and run. Owned.
static mu_value *with_shapes(const mu_value *like, const tensors *of, const mu_spec *specs)
{
    mu_pool *pool = mu_pool_open();
    bool whole = pool != NULL;
    for (int i = 0, t = 0; i < of->n && whole; i++) {
        mu_tensor *tensor = (mu_tensor *)of->leaves[i];
        if (!mu__is(tensor, &mu__tensor_type))
            continue;
        mu_tensor *other = mu__give(mu__tensor_again(tensor, tensor->run));
        if (other)
            other->shape = specs[t].shape;
        whole = (of->leaves[i] = (mu_object *)other) != NULL;
        t++;
    }
    mu_value *value = whole ? mu__value_pack(like, of->leaves, of->n) : NULL;
    mu_pool_close(pool);
    return value;
}

static mu_status join_all(mu_strategy *strategy, const mu_value *arguments, bool agree, int n, mu_spec *specs)
{
    mu_status status = MU_OK;
    for (int r = 1; r < strategy->n_local && status == MU_OK; r++)
        status = join_replica(strategy, arguments, r, n, specs);
    if (!agree)
        return status;
    if (status != MU_OK)
        mu__strategy_failed(strategy); // the others wait for this worker's shapes
    return status == MU_OK && n > 0 ? strategy->ops->cross_worker->join_specs(strategy, n, specs) : status;
}

mu_value *mu__like_all(mu_strategy *strategy, const mu_value *arguments, int64_t run, bool agree)
{
    mu_value *like = mu__select_for(strategy, arguments, 0, run), *all = NULL;
    if (!like || strategy->n_replicas == 1)
        return like;
    tensors of;
    mu_spec *specs = NULL;
    bool same = true;
    if (tensors_of(like, &of) == MU_OK)
        specs = mu__calloc((size_t)of.n_tensors + 1, sizeof *specs);
    for (int i = 0, t = 0; specs && i < of.n; i++)
        if (mu__is(of.leaves[i], &mu__tensor_type))
            specs[t++] = mu__spec_of((mu_tensor *)of.leaves[i]);
    if (specs && join_all(strategy, arguments, agree, of.n_tensors, specs) == MU_OK) {
        for (int i = 0, t = 0; i < of.n; i++)
            if (mu__is(of.leaves[i], &mu__tensor_type))
                same &= mu__shape_equal(&((mu_tensor *)of.leaves[i])->shape, &specs[t++].shape);
        all = same ? mu_retain(like) : with_shapes(like, &of, specs);
    }
    mu__free(specs);
    mu__free(of.leaves);
    mu_release(like);
    return all;
}
