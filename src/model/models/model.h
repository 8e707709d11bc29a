// Internal interface of models: layers that call others, with inputs and outputs of their own.
#ifndef MU_SRC_MODEL_MODEL_H
#define MU_SRC_MODEL_MODEL_H

#include "model/core/layer.h"

#include <muster/model.h>

typedef struct mu_layer_call mu_layer_call;

// mu__model_make makes a model of a class of layers that call others. Belongs to the pool; NULL on error.
mu_model *mu__model_make(const mu_layer_ops *ops, const void *args);
// mu__model_build makes the weights for inputs of this shape, whose batch axis may be known.
mu_status mu__model_build(mu_model *model, const mu_shape *input);

// mu__need_model checks that a layer is a model. Errors: INVALID_ARGUMENT in the name of `function`.
mu_status mu__need_model(const mu_model *model, const char *function);

// mu__added_losses (losses_added.c) writes the sum of the losses that layers added in the model's last call on this
// thread, and the sum of all penalties on weights; NULL where there are none.
mu_status mu__added_losses(const mu_model *model, mu_tensor **added, mu_tensor **penalty);

// mu__shape_as_keras writes "(None, 28, 28)" (summary.c).
void mu__shape_as_keras(const mu_shape *shape, char text[MU_SHAPE_TEXT]);

#endif
