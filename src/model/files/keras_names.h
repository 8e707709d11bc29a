// The names under which Keras's files and TensorFlow's checkpoints keep a model's variables and the optimizer's state.
#ifndef MU_SRC_MODEL_KERAS_NAMES_H
#define MU_SRC_MODEL_KERAS_NAMES_H

#include "io/io.h"
#include "model/core/layer.h"

typedef struct mu_named_variable {
    mu_variable *variable; // borrowed; NULL: `constant`
    mu_tensor *constant;   // idf weights of `look_up`, not in files with Muster's own names; retained
    mu_layer *look_up;     // borrowed; NULL: `constant` is written alone, what Keras keeps of a look-up besides
    const char *end;       // of the key in a checkpoint; NULL: MU_BUNDLE_SUFFIX
    char *keras;           // "layers/dense/vars/0"
    char *object;          // "_operations/1/kernel", without the end of a checkpoint's key
    bool of_optimizer;
    bool again; // a weight of a sublayer, which is in the list under the sublayer's names too
} mu_named_variable;

typedef struct mu_named_variables {
    mu_named_variable *items;
    size_t n, capacity;
} mu_named_variables;

// mu__keras_names lists all weights of a model, in Keras's order, for a file that names tensors so; if that is not in
// Muster's own way also the state of its optimizer, which it makes as the first step would. mu__keras_names_free frees
// the list, also after an error.
mu_status mu__keras_names(mu_model *model, mu_file_names names, mu_named_variables *out);
void mu__keras_names_free(mu_named_variables *list);
// mu__numbers_operations writes whether the names of checkpoints are those of the same model in Keras, which numbers
// the operations that compute masks too (mask_order.c).
mu_status mu__numbers_operations(const mu_layer *layer, bool *out);
// mu__named_as returns a variable's name in files that name tensors in a way; it belongs to the list.
const char *mu__named_as(const mu_named_variable *variable, mu_file_names names);

// mu__model_save writes a model's variables in a format, with these texts (weights.c). Collective. mu__model_load reads
// them. Errors are in the name of `function`.
mu_status mu__model_save(mu_model *model, const mu_file_format *format, const char *path, const char *const *metadata);
mu_status mu__model_load(mu_model *model, const mu_tensor_file *file, const char *function);
// mu__model_need_built checks that a model has all of its weights.
mu_status mu__model_need_built(const mu_model *model, const char *path, const char *function);

// mu__compile_json writes what a model was compiled with as Keras's compile_config (compile_config.c); NULL without an
// error: it was not compiled. mu__compile_from compiles a model from one.
json_t *mu__compile_json(const mu_model *model);
mu_status mu__compile_from(mu_model *model, const json_t *config, const char *function);

// mu__keras_assets_into puts the vocabularies of a .keras file into the configuration of its model, which is nothing
// else yet (keras_assets.c). Errors: DATA_LOSS.
mu_status mu__keras_assets_into(json_t *model, const mu_tensor_file *file);

// mu__model_from_json makes a model of a configuration, and compiles it if `compiles` and the configuration says how
// (saved_model.c); `file`: the .keras file that it is from, or NULL. Belongs to the pool; NULL on error.
mu_model *mu__model_from_json(const char *text, const mu_tensor_file *file, bool compiles, const char *function);
// mu__model_json returns the configuration of a model and of what it was compiled with, as Keras's to_json(); NULL on
// error (saved_model.c).
json_t *mu__model_json(const mu_model *model);
// mu__model_check_config returns whether a .keras file can hold the model, which need not have weights (saved_model.c).
// Errors: those of mu_save_model about layers, losses and metrics.
mu_status mu__model_check_config(const mu_model *model, const char *function);

#endif
