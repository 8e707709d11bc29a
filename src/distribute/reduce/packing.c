// Ways of reducing the values of several replicas, and packing: many small tensors are joined into few large ones.
//
// All ways give the same values except for the order of summation, which is fixed for each. Local replicas' values are
// in one address space, so nothing is copied to a device.
#include "base/callback.h"
#include "distribute/distribute.h"

#include <muster/ops.h>

typedef mu_tensor *reduce_fn(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg);

struct mu_cross_device_ops {
    mu_object object;
    reduce_fn *reduce;
    void *arg;
    int num_packs;
};

static mu_type ops_type = {.name = "cross device ops"};

static mu_cross_device_ops *new_ops(reduce_fn *reduce, void *arg, int num_packs, const char *function)
{
    if (mu__pending())
        return NULL;
    if (!reduce || num_packs < 0) {
        mu__error(MU_INVALID_ARGUMENT, "%s: %s", function,
                  reduce ? "num_packs is negative; 0 means no packing" : "the function is NULL");
        return NULL;
    }
    mu_cross_device_ops *ops = mu__new(&ops_type, sizeof *ops);
    if (!ops)
        return NULL;
    ops->reduce = reduce;
    ops->arg = arg;
    ops->num_packs = num_packs;
    return mu__give(ops);
}

static mu_tensor *in_order(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg)
{
    (void)arg;
    return mu__reduce_tensors(op, n, parts);
}

// Reduces each half, then the two results.
static mu_tensor *by_halves(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg)
{
    (void)arg;
    const int half = n / 2;
    if (half == 0)
        return mu__reduce_tensors(op, n, parts);
    mu_tensor *sums[] = {mu__reduce_tensors(MU_SUM, half, parts), mu__reduce_tensors(MU_SUM, n - half, parts + half)};
    mu_tensor *sum = sums[0] && sums[1] ? mu__reduce_tensors(MU_SUM, 2, sums) : NULL;
    return op == MU_MEAN && sum ? mu__mean_of(sum, n) : sum;
}

static mu_tensor *by_nccl(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg)
{
    static atomic_bool said;
    (void)arg;
    if (!atomic_exchange(&said, true))
        mu__log(MU_LOG_WARNING, "mu_nccl_all_reduce works in functions that replicas on GPU devices run; here the host "
                                "adds the values in replica order, as without .cross_device_ops");
    return mu__reduce_tensors(op, n, parts);
}

mu_cross_device_ops *mu_reduction_to_one_device(void)
{
    return new_ops(in_order, NULL, 0, "mu_reduction_to_one_device");
}

mu_cross_device_ops *mu_hierarchical_copy(int num_packs)
{
    return new_ops(by_halves, NULL, num_packs, "mu_hierarchical_copy");
}

mu_cross_device_ops *mu_nccl_all_reduce(int num_packs)
{
    return new_ops(by_nccl, NULL, num_packs, "mu_nccl_all_reduce");
}

mu_cross_device_ops *
mu_cross_device_ops_new(mu_tensor *(*reduce)(mu_reduce_op op, int n, mu_tensor *const *parts, void *arg), void *arg)
{
    return new_ops(reduce, arg, 0, "mu_cross_device_ops_new");
}

// Checks the result of a user's function: same type and shape as the parts; the mean of integers may be a float.
static mu_status check_reduced(mu_reduce_op op, const mu_tensor *part, const mu_tensor *reduced)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (!reduced || !mu__is(reduced, &mu__tensor_type))
        return mu__error(MU_INVALID_ARGUMENT,
                         "the function given to mu_cross_device_ops_new returned %s; it must return the %s of the "
                         "parts, or call mu_fail before it returns NULL",
                         reduced ? "something that is not a tensor" : "NULL", op == MU_SUM ? "sum" : "mean");
    const bool fraction = op == MU_MEAN && reduced->dtype == mu__mean_dtype(part->dtype);
    if ((reduced->dtype == part->dtype || fraction) && mu__shape_equal(&reduced->shape, &part->shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "the function given to mu_cross_device_ops_new returned %s%s for parts of %s%s; it must return "
                     "the type and shape that the parts have",
                     mu_dtype_name(reduced->dtype), mu__shape_text(&reduced->shape, seen), mu_dtype_name(part->dtype),
                     mu__shape_text(&part->shape, wanted));
}

mu_tensor *mu__cross_device_reduce(const mu_cross_device_ops *ops, mu_reduce_op op, int n, mu_tensor *const *parts)
{
    if (!ops)
        return mu__reduce_tensors(op, n, parts);
    mu_tensor *reduced;
    MU_CALLBACK("a function of mu_cross_device_ops_new", reduced = ops->reduce(op, n, parts, ops->arg));
    return !mu__pending() && check_reduced(op, parts[0], reduced) == MU_OK ? reduced : NULL;
}

// ---- Packs --------------------------------------------------------------------------------------

void mu__pack_sizes(int64_t total, int packs, int64_t *sizes)
{
    for (int i = 0; i < packs; i++)
        sizes[i] = total / packs;
    sizes[packs - 1] += total % packs;
}

int mu__group_by_size(int n, const int64_t *bytes, int64_t bytes_per_pack, int *pack)
{
    bool one = bytes_per_pack == 0;
    int64_t filled = 0;
    int last = 0;
    for (int i = 0; i < n; i++)
        one |= bytes[i] < 0;
    for (int i = 0; i < n; i++) {
        if (!one && i > 0 && filled > bytes_per_pack) {
            last++;
            filled = 0;
        }
        pack[i] = last;
        filled += bytes[i];
    }
    return n > 0 ? last + 1 : 0;
}

static mu_tensor *flat(mu_tensor *tensor)
{
    const int64_t all = -1;
    return mu_reshape(tensor, 1, &all);
}

// The tensors at these indices of one replica, flattened and concatenated.
static mu_tensor *pack_replica(int count, const int *indices, int n, int r, mu_tensor *const *parts, mu_tensor **flats)
{
    for (int i = 0; i < count; i++)
        if (!(flats[i] = flat(parts[indices[i] * n + r])))
            return NULL;
    return mu_concat(count, flats, 0);
}

// Divides one long tensor per replica into packs, reduces these, and joins the results.
static mu_tensor *reduce_packs(const mu_cross_device_ops *ops, mu_reduce_op op, int n, mu_tensor *const *whole)
{
    enum { MOST = 64 };
    mu_tensor *reduced[MOST], *pieces[MU_MAX_REPLICAS];
    int64_t sizes[MOST], at = 0;
    const int packs = MU_MIN(ops->num_packs, MOST);
    mu__pack_sizes(whole[0]->shape.dims[0], packs, sizes);
    for (int p = 0; p < packs; at += sizes[p++]) {
        for (int r = 0; r < n; r++)
            if (!(pieces[r] = mu_slice(whole[r], &at, &sizes[p])))
                return NULL;
        if (!(reduced[p] = mu__cross_device_reduce(ops, op, n, pieces)))
            return NULL;
    }
    return mu_concat(packs, reduced, 0);
}

static mu_status unpack(mu_tensor *whole, int count, const int *indices, int n, mu_tensor *const *parts,
                        mu_tensor **out)
{
    int64_t at = 0;
    for (int i = 0; i < count; i++) {
        const mu_shape *shape = &parts[indices[i] * n]->shape;
        const int64_t size = mu__elements(shape);
        mu_tensor *piece = mu_slice(whole, &at, &size);
        if (!piece || !(out[indices[i]] = mu_reshape(piece, shape->rank, shape->dims)))
            return mu_error_code();
        at += size;
    }
    return MU_OK;
}

static mu_status reduce_packed(const mu_cross_device_ops *ops, mu_reduce_op op, int count, const int *indices, int n,
                               mu_tensor *const *parts, mu_tensor **flats, mu_tensor **out)
{
    mu_tensor *whole[MU_MAX_REPLICAS];
    for (int r = 0; r < n; r++)
        if (!(whole[r] = pack_replica(count, indices, n, r, parts, flats)))
            return mu_error_code();
    mu_tensor *reduced = reduce_packs(ops, op, n, whole);
    return reduced ? unpack(reduced, count, indices, n, parts, out) : mu_error_code();
}

mu_status mu__cross_device_batch(const mu_cross_device_ops *ops, mu_reduce_op op, int n_tensors, int n,
                                 mu_tensor *const *parts, mu_tensor **out)
{
    if (!ops || ops->num_packs == 0) {
        for (int i = 0; i < n_tensors; i++)
            if (!(out[i] = mu__cross_device_reduce(ops, op, n, parts + i * n)))
                return mu_error_code();
        return MU_OK;
    }
    int *indices = mu__calloc((size_t)n_tensors + 1, sizeof *indices);
    mu_tensor **flats = mu__calloc((size_t)n_tensors + 1, sizeof *flats);
    mu_status status = indices && flats ? MU_OK : MU_RESOURCE_EXHAUSTED;
    memset(out, 0, sizeof *out * (size_t)n_tensors);
    for (int first = 0; first < n_tensors && status == MU_OK; first++) {
        int count = 0;
        for (int i = first; i < n_tensors && !out[first]; i++) // a pack has one type
            if (!out[i] && parts[i * n]->dtype == parts[first * n]->dtype)
                indices[count++] = i;
        if (count > 0)
            status = reduce_packed(ops, op, count, indices, n, parts, flats, out);
    }
    mu__free(indices);
    mu__free(flats);
    return status;
}

// ---- Arrays of replicas that take part in a collective ------------------------------------------

bool mu__cross_device_supports(const mu_cross_device_ops *ops, mu_reduction reduction, mu_dtype dtype)
{
    return ops && reduction <= MU_REDUCTION_MEAN && mu__dtype_is_float(dtype) &&
           (ops->reduce != in_order || ops->num_packs > 0);
}

bool mu__cross_device_default(const mu_cross_device_ops *ops) { return !ops || ops->reduce == by_nccl; }

mu_status mu__reduce_arrays(const mu_cross_device_ops *ops, mu_reduction reduction, mu_dtype dtype, int64_t count,
                            int n, void *const *parts, int n_out, void *const *out)
{
    mu_tensor *tensors[MU_MAX_REPLICAS], *result = NULL;
    mu_pool *pool = mu_pool_open();
    for (int r = 0; r < n; r++)
        tensors[r] = mu_tensor_wrap(dtype, 1, &count, parts[r], NULL, NULL);
    if (!mu__pending())
        mu__cross_device_batch(ops, reduction == MU_REDUCTION_SUM ? MU_SUM : MU_MEAN, 1, n, tensors, &result);
    const size_t bytes = (size_t)count * mu_dtype_bytes(dtype);
    const void *from = mu__pending() || !result ? NULL : mu__host_read(result);
    for (int r = 0; from && r < n_out; r++)
        if (out[r] != from)
            memcpy(out[r], from, bytes);
    mu_pool_close(pool);
    return mu_error_code();
}

void mu__reduce_replica_arrays(const mu_replica_arrays *a, int n, const void *const *from)
{
    mu__reduce(&(mu_local_reduce_args){.dtype = a->dtype,
                                       .reduction = a->reduction,
                                       .n_dst = a->n,
                                       .n_src = n,
                                       .dst = a->data,
                                       .src = from,
                                       .count = a->count,
                                       .divide = a->reduction == MU_REDUCTION_MEAN ? n : 1});
}

void mu__reduce_replica_block(const mu_replica_arrays *a, int n, const void *const *from, void *out)
{
    mu__reduce(&(mu_local_reduce_args){.dtype = a->dtype,
                                       .reduction = a->reduction,
                                       .n_dst = 1,
                                       .n_src = n,
                                       .dst = &out,
                                       .src = from,
                                       .count = a->count,
                                       .divide = a->reduction == MU_REDUCTION_MEAN ? n : 1});
}

static mu_status reduce_gathered(mu_cross_device_collective *own, int64_t number, const char *name,
                                 mu_reduction reduction, mu_dtype dtype, void *data, int64_t count)
{
    const int n = own->head.size;
    const size_t bytes = (size_t)count * mu_dtype_bytes(dtype), all = bytes * (size_t)n;
    char *gathered = mu__alloc_data(all);
    int64_t *counts = mu__calloc((size_t)n, sizeof *counts);
    void **parts = mu__calloc((size_t)n, sizeof *parts);
    mu_status status = gathered && counts && parts ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int r = 0; status == MU_OK && r < n; r++) {
        counts[r] = count;
        parts[r] = gathered + (size_t)r * bytes;
    }
    if (status == MU_OK)
        status = own->inner->all_gather(own->inner, number, name, dtype, data, count, gathered, counts);
    if (status == MU_OK)
        status = mu__reduce_arrays(own->ops, reduction, dtype, count, n, parts, 1, &data);
    mu__free(parts);
    mu__free(counts);
    mu__free_data(gathered, all);
    return status;
}

static mu_status reduce_exchanged(mu_cross_device_collective *own, int64_t number, const char *name,
                                  mu_reduction reduction, mu_dtype dtype, const void *in, void *out, int64_t count)
{
    const int n = own->head.size;
    const size_t bytes = (size_t)count * mu_dtype_bytes(dtype), all = bytes * (size_t)n;
    char *blocks = mu__alloc_data(all);
    void **parts = mu__calloc((size_t)n, sizeof *parts);
    mu_status status = blocks && parts ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int r = 0; status == MU_OK && r < n; r++)
        parts[r] = blocks + (size_t)r * bytes;
    if (status == MU_OK)
        status = mu__collective_all_to_all(own->inner, number, name, dtype, in, blocks, count);
    if (status == MU_OK)
        status = mu__reduce_arrays(own->ops, reduction, dtype, count, n, parts, 1, &out);
    mu__free(parts);
    if (blocks)
        mu__free_data(blocks, all);
    return status;
}

static mu_cross_device_collective *own_way(mu_collective *self)
{
    return (mu_cross_device_collective *)((char *)self - offsetof(mu_cross_device_collective, head));
}

static mu_status own_all_reduce(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                                mu_dtype dtype, void *data, int64_t count)
{
    mu_cross_device_collective *own = own_way(self);
    if (mu__cross_device_supports(own->ops, reduction, dtype))
        return reduce_gathered(own, number, name, reduction, dtype, data, count);
    return own->inner->all_reduce(own->inner, number, name, reduction, dtype, data, count);
}

static mu_status own_all_gather(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, const void *in,
                                int64_t count, void *out, const int64_t *counts)
{
    mu_collective *inner = own_way(self)->inner;
    return inner->all_gather(inner, number, name, dtype, in, count, out, counts);
}

static mu_status own_broadcast(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, void *data,
                               int64_t count, int root)
{
    mu_collective *inner = own_way(self)->inner;
    return inner->broadcast(inner, number, name, dtype, data, count, root);
}

static mu_status own_reduce_scatter(mu_collective *self, int64_t number, const char *name, mu_reduction reduction,
                                    mu_dtype dtype, const void *in, void *out, int64_t count)
{
    mu_cross_device_collective *own = own_way(self);
    if (mu__cross_device_supports(own->ops, reduction, dtype))
        return reduce_exchanged(own, number, name, reduction, dtype, in, out, count);
    return own->inner->reduce_scatter(own->inner, number, name, reduction, dtype, in, out, count);
}

static mu_status own_permute(mu_collective *self, int64_t number, const char *name, mu_dtype dtype, const void *in,
                             void *out, int64_t count, const int64_t *sources)
{
    mu_collective *inner = own_way(self)->inner;
    return inner->permute(inner, number, name, dtype, in, out, count, sources);
}

mu_collective *mu__cross_device_collective(mu_cross_device_collective *own, mu_collective *inner,
                                           const mu_cross_device_ops *ops)
{
    if (!inner || !ops)
        return inner;
    *own = (mu_cross_device_collective){.head = {.rank = inner->rank,
                                                 .size = inner->size,
                                                 .form = inner->form,
                                                 .all_reduce = own_all_reduce,
                                                 .all_gather = own_all_gather,
                                                 .broadcast = own_broadcast,
                                                 .reduce_scatter = own_reduce_scatter,
                                                 .permute = own_permute},
                                        .inner = inner,
                                        .ops = ops};
    return &own->head;
}
