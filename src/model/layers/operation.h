// Operations of keras.ops in functional models: x + y, x[:, 0], keras.ops.mean(x, axis=1).
//
// In Python they are called on tensors that stand for values to come, and a configuration has them among the layers.
// Here each is a layer without weights, which is made of its entry in a configuration and is written back as it was.
#ifndef MU_SRC_MODEL_OPERATION_H
#define MU_SRC_MODEL_OPERATION_H

#include "model/core/layer.h"

extern const mu_layer_ops mu__operation_ops;

// mu__is_operation_json returns whether an entry of a configuration is an operation, not a layer.
bool mu__is_operation_json(const json_t *json);
// mu__operation_from makes the layer of an entry with its one call. Belongs to the pool. Errors (NULL): UNIMPLEMENTED
// for an operation or option that Muster lacks; INVALID_ARGUMENT for an entry that Keras does not write.
mu_layer *mu__operation_from(const json_t *json);
// mu__operation_tensors adds the tensors in the arguments of a call to a list, in order. Errors: RESOURCE_EXHAUSTED.
mu_status mu__operation_tensors(const json_t *args, json_t *tensors);
// mu__operation_class returns Keras's class of such a layer; mu__operation_json the entry without its calls, and
// mu__operation_args the arguments of its call with `tensors` in the places of those that it was made of. Both return
// NULL if there is no memory.
const char *mu__operation_class(const mu_layer *layer);
json_t *mu__operation_json(const mu_layer *layer);
json_t *mu__operation_args(const mu_layer *layer, const json_t *tensors);

#endif
