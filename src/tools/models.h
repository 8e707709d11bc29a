// Models that subcommands read from files.
#ifndef MU_SRC_TOOLS_MODELS_H
#define MU_SRC_TOOLS_MODELS_H

#include "model/files/keras_names.h"

// mu__tool_model reads a .keras file, or the JSON that Keras's to_json() writes, and makes the model in the strategy in
// scope, compiled if the file says how. Belongs to the pool; NULL on error.
mu_model *mu__tool_model(const char *path, const char *function);

#endif
