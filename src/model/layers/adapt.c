// What layers learn of data before they are trained: each class has a function that adapts its layers (mu_layer_ops);
// here is what they share.

#include "model/core/layer.h"

#include <muster/ops.h>
#include <muster/preprocessing.h>

mu_status mu__adapt_each(mu_layer *layer, mu_dataset *data,
                         mu_status (*each)(mu_layer *layer, mu_tensor *inputs, void *arg), void *arg)
{
    mu_status status = MU_OK;
    mu_iterator *iterator = mu_iterate(data);
    for (bool more = iterator != NULL; more && status == MU_OK;) {
        mu_pool *pool = mu_pool_open();
        mu_value *element = mu_next(iterator);
        mu_value *inputs = mu_value_kind_of(element) == MU_VALUE_LIST ? mu_value_at(element, 0) : element;
        mu_tensor *x = element ? mu_at(inputs, 0) : NULL;
        more = element != NULL;
        status = x ? each(layer, x, arg) : mu_error_code();
        mu_pool_close(pool);
    }
    return status != MU_OK ? status : mu_error_code();
}

mu_status mu__adapt_empty(mu_layer *layer)
{
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_adapt: the data for layer '%s' are empty: the dataset has no elements; give batches of inputs",
                     mu_layer_name(layer));
}

// Arrays are a dataset with one element.
static mu_dataset *dataset_of(const void *data)
{
    void *object = (void *)(uintptr_t)data;
    if (mu__is(data, &mu__dataset_type))
        return object;
    if (mu__is(data, &mu__tensor_type))
        return mu_dataset_from_tensors(mu_of(object));
    if (mu__is(data, &mu__value_type))
        return mu_dataset_from_tensors(object);
    mu__error(MU_INVALID_ARGUMENT,
              "mu_adapt: the data are of type %s; give a dataset of batches, or a tensor or value with all rows",
              mu__is_object(data) ? ((const mu_object *)data)->type->name : "text");
    return NULL;
}

mu_status mu_adapt(mu_layer *layer, mu_any_inputs data)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(layer, "mu_adapt: the layer"));
    MU_TRY(mu__need(data, "mu_adapt: the data"));
    if (!layer->ops->adapt)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_adapt: layer '%s' is of class %s, which has nothing to adapt; give a look-up, a text "
                         "vectorisation, a normalisation or a discretisation",
                         mu_layer_name(layer), layer->ops->class.keras);
    mu_dataset *dataset = dataset_of(data);
    if (dataset && mu_dataset_cardinality(dataset) == MU_INFINITE)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_adapt: the dataset for layer '%s' never ends; take as many batches of it as are to be "
                         "learned from (mu_dataset_take)",
                         mu_layer_name(layer));
    return dataset ? layer->ops->adapt(layer, dataset) : mu_error_code();
}
