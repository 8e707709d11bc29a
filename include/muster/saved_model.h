// Whole models in files: Keras's .keras, which holds the configuration, what the model was compiled with, the weights
// and the state of the optimizer. A model moves between Python and C both ways.
#ifndef MUSTER_SAVED_MODEL_H
#define MUSTER_SAVED_MODEL_H

#include <muster/model.h>

#ifdef __cplusplus
extern "C" {
#endif

// mu_save_model writes a model to a file whose name ends with .keras, atomically; keras.saving.load_model opens it.
// Collective: under a strategy with several workers every worker must call it; the chief writes the file. Errors:
// INVALID_ARGUMENT for another extension; FAILED_PRECONDITION for a model without weights; UNIMPLEMENTED for layers,
// losses and metrics of the program's own, which the file cannot hold; RESOURCE_EXHAUSTED (disk full; the old file is
// kept).
MU_API mu_status mu_save_model(mu_model *model, const char *path);

typedef struct mu_load_model_args {
    size_t size;
    const char *given;
    const char *path; // of a .keras file
    mu_keyword_only only_;
    bool no_compile; // leave out optimizer, loss and metrics
} mu_load_model_args;

// mu_load_model makes the model that a .keras file describes, compiles it and loads its weights and the state of its
// optimizer. It executes nothing from the file: Lambda layers are refused by name, and so are custom objects, unless
// the program registered their class (mu_register_layer). The model belongs to the strategy in scope. Errors:
// NOT_FOUND; DATA_LOSS for a damaged file; UNIMPLEMENTED for a class or an option that Muster lacks; INVALID_ARGUMENT
// if the weights do not fit the configuration.
#define mu_load_model(...) mu_load_model_with(MU_ARGS(mu_load_model_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_model *mu_load_model_with(const mu_load_model_args *args);

#ifdef __cplusplus
}
#endif
#endif
