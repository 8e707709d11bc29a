// mu_save_tensors: a map of tensors or variables to a file, in the format of its extension.
#include "io/io.h"

#include <muster/graph.h>

// The tensor of a map's element; for a variable, its current value.
static mu_tensor *element_tensor(const mu_value *element)
{
    if (element->kind == MU_VALUE_VARIABLE)
        return mu_variable_read((mu_variable *)element->leaf);
    return mu_value_tensor(element);
}

static mu_status save_map(const mu_save_tensors_args *args, mu_tensor **tensors)
{
    const mu_value *map = args->tensors;
    for (int i = 0; i < map->n; i++) {
        tensors[i] = element_tensor(map->items[i]);
        if (!tensors[i])
            return mu_error_code();
    }
    return mu__tensors_save(args->path, map->n, (const char *const *)map->keys, tensors, args->metadata);
}

mu_status mu_save_tensors_with(const mu_save_tensors_args *given)
{
    mu_save_tensors_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_save_tensors"));
    if (!args.path)
        return mu__error(MU_INVALID_ARGUMENT, "mu_save_tensors needs a path as its first argument");
    if (!args.tensors || args.tensors->kind != MU_VALUE_MAP)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_save_tensors(\"%s\", …) needs a map of tensors as its second argument; make one with mu_map",
            args.path);
    mu_pool *pool = mu_pool_open();
    mu_tensor **tensors = mu__calloc((size_t)args.tensors->n + 1, sizeof *tensors);
    const mu_status status = pool && tensors ? save_map(&args, tensors) : mu_error_code();
    mu__free(tensors);
    mu_pool_close(pool);
    return status;
}
