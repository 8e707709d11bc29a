// Masks: which steps count, on their way through layers.
//
// The masks of a value have its structure, with a tensor (bool) for a tensor, or an empty list where there is none. A
// mask also travels with the tensor that a layer returned, so that layers in C functions find it.
#include "model/core/note.h"
#include "model/models/model.h"

#include <muster/ops.h>

mu_tensor *mu__mask_at(const mu_value *mask, int i)
{
    if (!mask || mask->leaf)
        return mask && i == 0 ? mu_at(mask, 0) : NULL;
    const mu_value *item = i < mask->n ? mask->items[i] : NULL;
    return item && item->leaf ? mu_at(item, 0) : NULL;
}

// Writes the masks of a value from position n on; returns the next position.
static int leaves_from(const mu_value *values, const mu_value *mask, mu_tensor **out, int n, int capacity)
{
    if (values->leaf) {
        if (n < capacity)
            out[n] = mask && mask->leaf ? mu_at(mask, 0) : NULL;
        return n + 1;
    }
    for (int i = 0; i < values->n; i++)
        n = leaves_from(values->items[i], mask && !mask->leaf && i < mask->n ? mask->items[i] : NULL, out, n, capacity);
    return n;
}

void mu__mask_leaves(const mu_value *values, const mu_value *mask, mu_tensor **out, int capacity)
{
    leaves_from(values, mask, out, 0, capacity);
}

// Packs the masks from `*next` on.
static mu_value *nest_from(const mu_value *values, mu_tensor *const **next)
{
    if (values->leaf) {
        mu_tensor *mask = *(*next)++;
        return mask ? mu_of(mask) : mu_list_of(0, NULL);
    }
    mu_value **items = mu__calloc((size_t)values->n + 1, sizeof *items), *nest = NULL;
    for (int i = 0; items && i < values->n; i++)
        items[i] = nest_from(values->items[i], next);
    if (items)
        nest = mu_list_of(values->n, items);
    mu__free(items);
    return nest;
}

mu_value *mu__mask_nest(const mu_value *values, mu_tensor *const *masks)
{
    const int n = mu__value_flatten(values, NULL, 0);
    bool any = false;
    for (int i = 0; i < n; i++)
        any |= masks[i] != NULL;
    return any ? nest_from(values, &masks) : NULL;
}

// Whether the first n_axes axes of a mask are those of x; an axis of size 1 counts for all of x's.
static bool fits(const mu_tensor *x, const mu_tensor *mask, int n_axes)
{
    bool all = n_axes <= mask->shape.rank && n_axes <= x->shape.rank;
    for (int i = 0; all && i < n_axes; i++) {
        const int64_t dim = mask->shape.dims[i], of_x = x->shape.dims[i];
        all = dim == MU_UNKNOWN || of_x == MU_UNKNOWN || dim == of_x || dim == 1;
    }
    return all;
}

// The mask with all sizes that x has in its first n_axes axes; the mask may have further axes after them.
static mu_tensor *spread(mu_tensor *mask, mu_tensor *x, int n_axes)
{
    const int64_t begin[MU_MAX_RANK] = {0};
    int64_t column[MU_MAX_RANK];
    bool differs = false;
    for (int i = 0; i < MU_MAX_RANK; i++)
        column[i] = i < n_axes ? -1 : 1;
    for (int i = 0; i < n_axes; i++)
        differs |= mu_tensor_dim(mask, i) == 1 && mu_tensor_dim(x, i) != 1;
    if (!differs)
        return mask;
    mu_tensor *like = mu_slice(x, begin, column);
    while (like && mu_tensor_rank(like) > n_axes)
        like = mu_squeeze(like, -1);
    while (like && mu_tensor_rank(like) < mu_tensor_rank(mask))
        like = mu_expand_dims(like, -1);
    if (like && mu_tensor_rank(mask) > n_axes)
        like = mu_logical_or(mu_cast(mask, MU_BOOL), mu_cast(mu_zeros_like(like), MU_BOOL));
    return mu_broadcast_like(mask, like);
}

mu_tensor *mu__step_mask(const mu_layer *layer, mu_tensor *x, mu_tensor *mask, int n_axes)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (!mask || !x)
        return NULL;
    if (mask->shape.rank == n_axes && fits(x, mask, n_axes))
        return spread(mask, x, n_axes);
    mu__error(MU_INVALID_ARGUMENT,
              "layer '%s': its mask has shape %s and its input %s; the mask must have the first %d axes of the input, "
              "because it says which steps count. Give such a mask (.mask), or none: .masks = mu_list_of(0, NULL)",
              mu_layer_name(layer), mu__shape_text(&mask->shape, seen), mu__shape_text(&x->shape, wanted),
              MU_MIN(n_axes, x->shape.rank));
    return NULL;
}

mu_tensor *mu__mask_for_steps(const mu_layer *layer, mu_tensor *x, mu_tensor *mask)
{
    const int rank = mu_tensor_rank(mask);
    if (mask && x && rank > 2 && fits(x, mask, 2) && !fits(x, mask, rank))
        return spread(mask, x, 2);
    return mu__step_mask(layer, x, mask, mask && x && rank > 2 && fits(x, mask, rank) ? rank : 2);
}

mu_value *mu__masks_complete(mu_value *given, const mu_value *carried, int n)
{
    mu_value *items[MU_MAX_MODEL_INPUTS];
    if (!given || !carried || (!given->leaf && given->n == 0))
        return given;
    n = MU_MIN(n, MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < n; i++) {
        mu_tensor *mask = mu__mask_at(given, i), *own = mask ? mask : mu__mask_at(carried, i);
        items[i] = own ? mu_of(own) : mu_list_of(0, NULL);
    }
    return mu_list_of(n, items);
}

mu_value *mu__mask_join(mu_value *mask)
{
    if (!mask || mask->leaf)
        return mask;
    mu_tensor *joined = mu__mask_at(mask, 0);
    for (int i = 1; i < mask->n && joined; i++) {
        mu_tensor *other = mu__mask_at(mask, i);
        joined = other ? mu_logical_or(joined, other) : NULL;
    }
    return joined ? mu_of(joined) : NULL;
}

// ---- Masks of whole rows ------------------------------------------------------------------------

// That of the innermost call of a step. It is known by its address, as a mask of this shape may be another: one of
// classes, which a function gives to a softmax.
static _Thread_local const mu_tensor *row_mask;

const mu_tensor *mu__row_mask_set(const mu_tensor *mask)
{
    const mu_tensor *outer = row_mask;
    row_mask = mask;
    return outer;
}

bool mu__is_row_mask(const mu_tensor *mask) { return mask && mask == row_mask; }

bool mu__mask_has_rows(const mu_value *values, const mu_value *mask)
{
    mu_tensor *masks[MU_MAX_MODEL_INPUTS] = {NULL};
    bool has = false;
    if (row_mask && mask)
        mu__mask_leaves(values, mask, masks, MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < MU_MAX_MODEL_INPUTS; i++)
        has |= mu__is_row_mask(masks[i]);
    return has;
}

mu_value *mu__mask_without_rows(const mu_value *values, const mu_value *mask)
{
    mu_tensor *masks[MU_MAX_MODEL_INPUTS];
    const int n = mu__value_flatten(values, NULL, 0);
    mu__mask_leaves(values, mask, masks, MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < MU_MIN(n, MU_MAX_MODEL_INPUTS); i++)
        masks[i] = mu__is_row_mask(masks[i]) ? NULL : masks[i];
    return n <= MU_MAX_MODEL_INPUTS ? mu__mask_nest(values, masks) : NULL;
}

mu_value *mu__mask_of_rows(const mu_value *values)
{
    mu_tensor *masks[MU_MAX_MODEL_INPUTS];
    for (int i = 0; i < MU_MAX_MODEL_INPUTS; i++)
        masks[i] = (mu_tensor *)row_mask;
    return mu__value_flatten(values, NULL, 0) <= MU_MAX_MODEL_INPUTS ? mu__mask_nest(values, masks) : NULL;
}

// ---- Masks that travel with tensors -------------------------------------------------------------

// Tensors have no masks, so the mask is noted next to them (note.h).
mu_tensor *mu_mask_of(const mu_tensor *tensor)
{
    const mu_note *note = mu__note_of(tensor, MU_NOTE_MASK | MU_NOTE_LENT_MASK);
    return note ? note->noted : NULL;
}

// Keeps the masks of all tensors, or none. Lent notes say of each tensor what a call was given, also that it has no
// mask.
static mu_status keep_all(const mu_value *values, const mu_value *mask, bool lent)
{
    mu_note *kept[MU_MAX_MODEL_INPUTS];
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    mu_tensor *masks[MU_MAX_MODEL_INPUTS];
    int n_kept = 0;
    const int n = mask ? mu__value_flatten(values, leaves, MU_MAX_MODEL_INPUTS) : 0;
    mu__mask_leaves(values, mask, masks, MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < MU_MIN(n, MU_MAX_MODEL_INPUTS); i++) {
        if (!lent && (!masks[i] || masks[i] == mu_mask_of((const mu_tensor *)leaves[i])))
            continue;
        kept[n_kept] = mu__note_keep((mu_tensor *)leaves[i], masks[i], lent ? MU_NOTE_LENT_MASK : MU_NOTE_MASK);
        if (kept[n_kept++])
            continue;
        for (n_kept--; n_kept > 0; n_kept--)
            mu__note_take_back(kept[n_kept - 1]);
        return mu_error_code();
    }
    return MU_OK;
}

mu_value *mu__masks_kept(const mu_value *values)
{
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    mu_tensor *masks[MU_MAX_MODEL_INPUTS];
    const int n = mu__value_flatten(values, leaves, MU_MAX_MODEL_INPUTS);
    if (n < 1 || n > MU_MAX_MODEL_INPUTS)
        return NULL;
    for (int i = 0; i < n; i++)
        masks[i] = mu_mask_of((const mu_tensor *)leaves[i]);
    return mu__mask_nest(values, masks);
}

mu_status mu__masks_keep(const mu_value *values, const mu_value *mask) { return keep_all(values, mask, false); }

// A tensor that has another mask, or none, is one that a layer inside returned or that the call was given.
mu_value *mu__masks_set(mu_value *values, const mu_value *mask)
{
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    mu_tensor *masks[MU_MAX_MODEL_INPUTS];
    const int n = mu__value_flatten(values, leaves, MU_MAX_MODEL_INPUTS);
    if (n > MU_MAX_MODEL_INPUTS)
        return values;
    mu__mask_leaves(values, mask, masks, MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < n; i++)
        if (masks[i] != mu_mask_of((const mu_tensor *)leaves[i]) &&
            !(leaves[i] = (mu_object *)mu_identity((mu_tensor *)leaves[i])))
            return NULL;
    mu_value *set = mu__give(mu__value_pack(values, leaves, n));
    return set && mu__masks_keep(set, mask) == MU_OK ? set : NULL;
}

mu_status mu__masks_lend(const mu_value *values, const mu_value *mask) { return keep_all(values, mask, true); }

void mu__masks_take_back(const mu_value *values, const mu_value *mask)
{
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    const int n = mask ? mu__value_flatten(values, leaves, MU_MAX_MODEL_INPUTS) : 0;
    for (int i = 0; i < MU_MIN(n, MU_MAX_MODEL_INPUTS); i++) {
        mu_note *lent = mu__note_of((const mu_tensor *)leaves[i], MU_NOTE_LENT_MASK);
        if (lent)
            mu__note_take_back(lent);
    }
}
