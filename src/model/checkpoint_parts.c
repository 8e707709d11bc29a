// Parts of sharded variables in checkpoints: saved together as one tensor under the whole variable's name.
//
// The number of parts is not saved, so a file fits any other number, and a variable that is not sharded.
#include "model/checkpoint.h"

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

static int64_t rows_of(const mu_variable *part)
{
    return part->resource.spec.shape.dims[0];
}

bool mu__are_parts_of_one(const mu_variable *a, const mu_variable *b)
{
    if (!a->slice || !b->slice || strcmp(a->slice->full_name, b->slice->full_name) != 0 ||
        a->resource.spec.dtype != b->resource.spec.dtype ||
        !mu__shape_equal(&a->slice->full_shape, &b->slice->full_shape))
        return false;
    return a->slice->offset + rows_of(a) <= b->slice->offset || b->slice->offset + rows_of(b) <= a->slice->offset;
}

bool mu__saved_before(mu_variable *const *variables, size_t i)
{
    for (size_t k = 0; variables[i]->slice && k < i; k++)
        if (mu__are_parts_of_one(variables[k], variables[i]))
            return true;
    return false;
}

// The part that begins at a row; NULL if it is not among the variables.
static mu_variable *part_at(mu_variable *const *variables, size_t n, const mu_variable *like, int64_t row)
{
    for (size_t k = 0; k < n; k++)
        if (variables[k]->slice && variables[k]->slice->offset == row && rows_of(variables[k]) > 0 &&
            (variables[k] == like || mu__are_parts_of_one(variables[k], like)))
            return variables[k];
    return NULL;
}

mu_tensor *mu__saved_value(mu_variable *const *variables, size_t n, size_t i)
{
    mu_variable *first = variables[i], *part = NULL;
    if (!first->slice)
        return mu_variable_read(first);
    const int64_t rows = first->slice->full_shape.dims[0];
    mu_tensor **parts = mu__calloc(n, sizeof *parts), *whole = NULL;
    int n_parts = 0;
    for (int64_t row = 0; parts && row < rows && !mu__pending(); row += part ? rows_of(part) : 0) {
        if ((part = part_at(variables, n, first, row)))
            parts[n_parts++] = mu_variable_read(part);
        else
            mu__error(MU_INVALID_ARGUMENT, "the part of '%s' that begins at row %lld of %lld is not in the checkpoint; "
                      "give all parts of a sharded variable", first->slice->full_name, (long long)row, (long long)rows);
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
