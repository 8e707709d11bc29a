// Parts of sharded variables in checkpoints: saved together as one tensor under the whole variable's name.
//
// The number of parts is not saved, so a file fits any other number, and a variable that is not sharded.
#include "model/files/checkpoint.h"

#include <muster/ops.h>

const char *mu__saved_name(const mu_variable *variable)
{
    return variable->slice ? variable->slice->full_name : mu_variable_name(variable);
}

mu_spec mu__saved_spec(const mu_variable *variable)
{
    mu_spec spec = variable->resource.spec;
    if (variable->slice)
        spec.shape = variable->slice->full_shape;
    return spec;
}

static int64_t rows_of(const mu_variable *part) { return part->resource.spec.shape.dims[0]; }

bool mu__are_parts_of_one(const mu_variable *a, const mu_variable *b)
{
    if (!a->slice || !b->slice || strcmp(a->slice->full_name, b->slice->full_name) != 0 ||
        a->resource.spec.dtype != b->resource.spec.dtype ||
        !mu__shape_equal(&a->slice->full_shape, &b->slice->full_shape))
        return false;
    return a->slice->offset + rows_of(a) <= b->slice->offset || b->slice->offset + rows_of(b) <= a->slice->offset;
}

// Whether two entries are saved in one tensor. Variables of two objects may have the same name.
static bool are_together(const mu_entry *a, const mu_entry *b)
{
    return strcmp(a->name, b->name) == 0 && mu__are_parts_of_one(a->variable, b->variable);
}

int mu__saved_before(const mu_entries *all, size_t i)
{
    for (size_t k = 0; all->items[i].variable->slice && k < i; k++)
        if (are_together(&all->items[k], &all->items[i]))
            return (int)k;
    return -1;
}

// The part that begins at a row; NULL if it is not among the variables.
static mu_variable *part_at(const mu_entries *all, const mu_entry *like, int64_t row)
{
    for (size_t k = 0; k < all->n; k++) {
        mu_variable *variable = all->items[k].variable;
        if (variable->slice && variable->slice->offset == row && rows_of(variable) > 0 &&
            (&all->items[k] == like || are_together(&all->items[k], like)))
            return variable;
    }
    return NULL;
}

mu_tensor *mu__saved_value(const mu_entries *all, size_t i)
{
    mu_variable *first = all->items[i].variable, *part = NULL;
    if (!first->slice)
        return mu_variable_read(first);
    const int64_t rows = first->slice->full_shape.dims[0];
    mu_tensor **parts = mu__calloc(all->n, sizeof *parts), *whole = NULL;
    int n_parts = 0;
    for (int64_t row = 0; parts && row < rows && !mu__pending(); row += part ? rows_of(part) : 0) {
        if ((part = part_at(all, &all->items[i], row)))
            parts[n_parts++] = mu_variable_read(part);
        else
            mu__error(MU_INVALID_ARGUMENT,
                      "the part of '%s' that begins at row %lld of %lld is not in the checkpoint; give all parts of a "
                      "sharded variable",
                      first->slice->full_name, (long long)row, (long long)rows);
    }
    if (parts && !mu__pending())
        whole = n_parts > 0 ? mu_concat(n_parts, parts, 0) : mu_variable_read(first);
    mu__free(parts);
    return whole;
}

mu_tensor *mu__part_of_saved(const mu_variable *variable, mu_tensor *saved)
{
    if (!saved || !variable->slice)
        return saved;
    int64_t begin[MU_MAX_RANK] = {variable->slice->offset}, size[MU_MAX_RANK] = {rows_of(variable)};
    for (int a = 1; a < saved->shape.rank; a++)
        size[a] = -1;
    return mu_slice(saved, begin, size);
}
