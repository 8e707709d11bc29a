// Attention along some axes: transposes and reshapes around the attention of sequences.
#include "model/layers/attention_axes.h"

#include <muster/ops.h>

static bool has(int n, const int *axes, int axis)
{
    bool found = false;
    for (int i = 0; i < n; i++)
        found |= axes[i] == axis;
    return found;
}

mu_status mu__attention_axes_find(const mu_layer *layer, int rank, int n, const int *axes, mu_attention_axes *out)
{
    *out = (mu_attention_axes){.rank = rank, .n_rest = 1};
    for (int i = 0; i < n; i++) {
        const int axis = axes[i] < 0 ? axes[i] + rank : axes[i];
        if (axis < 1 || axis > rank - 2 || has(out->n, out->axes, axis))
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s': attention_axes[%d] is %d; for inputs of rank %d, expected distinct axes from "
                             "1 to %d; negative ones count from the end",
                             mu_layer_name(layer), i, axes[i], rank, rank - 2);
        out->axes[out->n++] = axis;
    }
    for (int axis = 1; axis < rank - 1; axis++)
        if (n == 0)
            out->axes[out->n++] = axis;
        else if (!has(out->n, out->axes, axis))
            out->rest[out->n_rest++] = axis;
    return MU_OK;
}

mu_status mu__attention_axes_check(const mu_layer *layer, int n_inputs, const mu_shape *inputs, int n, const int *axes)
{
    char text[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    mu_attention_axes a;
    MU_TRY(mu__attention_axes_find(layer, inputs[0].rank, n, axes, &a));
    for (int i = 0; i < n_inputs; i++) {
        bool fits = inputs[i].rank == a.rank;
        for (int k = 1; k < a.n_rest && fits; k++)
            fits = inputs[i].dims[a.rest[k]] == inputs[0].dims[a.rest[k]];
        if (!fits)
            return mu__error(MU_INVALID_ARGUMENT,
                             "layer '%s': query is %s and input %d is %s; they must agree in rank and in the axes that "
                             "are not attended along (.attention_axes)",
                             mu_layer_name(layer), mu__shape_text(&inputs[0], text), i,
                             mu__shape_text(&inputs[i], other));
        for (int axis = 1; axis < a.rank && !mu__attention_is_plain(&a); axis++)
            if (inputs[i].dims[axis] == MU_UNKNOWN)
                return mu__error(
                    MU_INVALID_ARGUMENT,
                    "layer '%s' needs to know all axes of inputs of rank %d but the batch's; input %d is %s",
                    mu_layer_name(layer), a.rank, i, mu__shape_text(&inputs[i], text));
    }
    return MU_OK;
}

// The axes in the order: others, those to attend along, features.
static void order_of(const mu_attention_axes *a, int order[MU_MAX_RANK])
{
    int n = 0;
    for (int i = 0; i < a->n_rest; i++)
        order[n++] = a->rest[i];
    for (int i = 0; i < a->n; i++)
        order[n++] = a->axes[i];
    order[n] = a->rank - 1;
}

static int64_t steps_of(const mu_attention_axes *a, const mu_tensor *x)
{
    int64_t steps = 1;
    for (int i = 0; i < a->n; i++)
        steps *= mu_tensor_dim(x, a->axes[i]);
    return steps;
}

mu_tensor *mu__attention_fold(const mu_attention_axes *a, mu_tensor *x)
{
    int order[MU_MAX_RANK];
    if (!x || mu__attention_is_plain(a))
        return x;
    order_of(a, order);
    const int64_t dims[] = {-1, steps_of(a, x), mu_tensor_dim(x, a->rank - 1)};
    return mu_reshape(mu_transpose(x, order), 3, dims);
}

mu_tensor *mu__attention_fold_steps(const mu_attention_axes *a, mu_tensor *mask, mu_tensor *x)
{
    int order[MU_MAX_RANK];
    if (!mask || !x)
        return NULL;
    order_of(a, order);
    return mu_reshape(mu_transpose(mask, order), 2, (int64_t[]){-1, steps_of(a, x)});
}

// How many samples an element of the batch is folded to.
static int64_t others_of(const mu_attention_axes *a, const mu_tensor *x)
{
    int64_t others = 1;
    for (int i = 1; i < a->n_rest; i++)
        others *= mu_tensor_dim(x, a->rest[i]);
    return others;
}

// The shape of a mask of pairs with `before` axes in front of the queries and so many heads; of the batch, 1.
static mu_shape pairs_shape(const mu_attention_axes *a, int before, int heads, const mu_tensor *query,
                            const mu_tensor *key)
{
    mu_shape shape = {.rank = before + 2 * a->n};
    for (int i = 0; i < before; i++)
        shape.dims[i] = i == 0 ? 1 : i < a->n_rest ? mu_tensor_dim(query, a->rest[i]) : heads;
    for (int i = 0; i < a->n; i++) {
        shape.dims[before + i] = mu_tensor_dim(query, a->axes[i]);
        shape.dims[before + a->n + i] = mu_tensor_dim(key, a->axes[i]);
    }
    return shape;
}

// Whether a mask of pairs with `before` axes in front of the queries has the sizes that are wanted, or 1.
static bool pairs_fit(const mu_attention_axes *a, const mu_tensor *mask, int before, const mu_tensor *query,
                      const mu_shape *wanted)
{
    const int64_t rows = mu_tensor_dim(query, 0), given = before > 0 ? mu_tensor_dim(mask, 0) : 1;
    bool fits = before < 2 || before == a->n_rest || before == a->n_rest + 1;
    fits = fits && (given == rows || (given == 1 ? before < 2 : given == MU_UNKNOWN || rows == MU_UNKNOWN));
    for (int i = before > 0; i < wanted->rank && fits; i++)
        fits = mu_tensor_dim(mask, i) == wanted->dims[i] || mu_tensor_dim(mask, i) == 1;
    return fits;
}

static mu_status refuse_pairs(const mu_layer *layer, const mu_attention_axes *a, const mu_tensor *mask,
                              const mu_tensor *query, const mu_tensor *key, int heads)
{
    char seen[MU_SHAPE_TEXT], of_query[MU_SHAPE_TEXT], of_key[MU_SHAPE_TEXT];
    return mu__error(
        MU_INVALID_ARGUMENT,
        "layer '%s': the mask of pairs has shape %s, the query %s and the key %s; the mask must be [batch, axes not "
        "attended along, %d heads, the query's axes attended along, the key's], %d of each, where the heads, or all in "
        "front of the queries but the batch, may be left out, and all but the batch may be 1",
        mu_layer_name(layer), mu__shape_text(&mask->shape, seen), mu__shape_text(&query->shape, of_query),
        mu__shape_text(&key->shape, of_key), heads, a->n);
}

// The mask with all sizes of queries and keys and of the axes that are not attended along.
static mu_tensor *spread_pairs(mu_tensor *mask, mu_shape wanted, int before, int n_rest)
{
    bool differs = false;
    if (before > n_rest)
        wanted.dims[before - 1] = 1; // the heads broadcast
    for (int i = before > 0; i < wanted.rank; i++)
        differs |= mu_tensor_dim(mask, i) < wanted.dims[i];
    return differs ? mu_logical_and(mask, mu_ones(MU_BOOL, wanted.rank, wanted.dims)) : mask;
}

mu_tensor *mu__attention_fold_pairs(const mu_layer *layer, const mu_attention_axes *a, mu_tensor *mask,
                                    const mu_tensor *query, const mu_tensor *key, int heads)
{
    if (!mask || !query || !key)
        return NULL;
    const int before = mu_tensor_rank(mask) - 2 * a->n;
    const mu_shape wanted = before < 0 ? (mu_shape){0} : pairs_shape(a, before, heads, query, key);
    if (before < 0 || !pairs_fit(a, mask, before, query, &wanted)) {
        refuse_pairs(layer, a, mask, query, key, heads);
        return NULL;
    }
    mu_tensor *whole = spread_pairs(mask, wanted, before, a->n_rest);
    const int64_t given = before > a->n_rest ? mu_tensor_dim(mask, before - 1) : 1, others = others_of(a, query);
    mu_tensor *pairs = mu_reshape(whole, 4, (int64_t[]){-1, given, steps_of(a, query), steps_of(a, key)});
    const bool same_for_others = before == 1 && mu_tensor_dim(mask, 0) != 1 && others > 1;
    return same_for_others ? mu_repeat(pairs, others, 0) : pairs;
}

// Writes the sizes of the axes that are not attended along; the batch's is left to the reshape. Returns their number.
static int put_rest(const mu_attention_axes *a, const mu_tensor *like, int64_t dims[MU_MAX_RANK])
{
    dims[0] = -1;
    for (int i = 1; i < a->n_rest; i++)
        dims[i] = mu_tensor_dim(like, a->rest[i]);
    return a->n_rest;
}

static int put_steps(const mu_attention_axes *a, const mu_tensor *like, int64_t dims[MU_MAX_RANK], int n)
{
    for (int i = 0; i < a->n; i++)
        dims[n++] = mu_tensor_dim(like, a->axes[i]);
    return n;
}

mu_tensor *mu__attention_unfold(const mu_attention_axes *a, mu_tensor *y, const mu_tensor *like)
{
    int order[MU_MAX_RANK], back[MU_MAX_RANK];
    int64_t dims[MU_MAX_RANK];
    if (!y || mu__attention_is_plain(a))
        return y;
    order_of(a, order);
    for (int i = 0; i < a->rank; i++)
        back[order[i]] = i;
    const int n = put_steps(a, like, dims, put_rest(a, like, dims));
    dims[n] = mu_tensor_dim(y, 2);
    return mu_transpose(mu_reshape(y, n + 1, dims), back);
}

mu_tensor *mu__attention_unfold_scores(const mu_attention_axes *a, mu_tensor *scores, const mu_tensor *query,
                                       const mu_tensor *key)
{
    int64_t dims[2 * MU_MAX_RANK];
    if (!scores || mu__attention_is_plain(a))
        return scores;
    int n = put_rest(a, query, dims);
    dims[n++] = mu_tensor_dim(scores, 1);
    n = put_steps(a, query, dims, n);
    return mu_reshape(scores, put_steps(a, key, dims, n), dims);
}
