// Models that subcommands read from files and write to files.
#ifndef MU_SRC_TOOLS_MODELS_H
#define MU_SRC_TOOLS_MODELS_H

#include "model/files/keras_names.h"

// mu__tool_model reads a .keras file, or the JSON that Keras's to_json() writes, and makes the model in the strategy in
// scope, compiled if the file says how. Belongs to the pool; NULL on error.
mu_model *mu__tool_model(const char *path, const char *function);
bool mu__tool_is_json(const char *path); // whether its extension is that of Keras's JSON
// mu__tool_check_target refuses a path of a file to write whose extension is that of no format. Errors:
// INVALID_ARGUMENT.
mu_status mu__tool_check_target(const char *path, const char *function);
// mu__tool_save writes what the extension says: the configuration (.json), the whole model (.keras), or the weights.
mu_status mu__tool_save(mu_model *model, const char *path, const char *function);

#endif
