// Checkpoints inside the library: what they say besides tensors, and how fit is stopped and taken up again.
#ifndef MU_SRC_MODEL_CHECKPOINT_H
#define MU_SRC_MODEL_CHECKPOINT_H

#include "io/io.h"
#include "model/model.h"

#include <muster/checkpoint.h>

// mu__checkpoint_write is mu_checkpoint_save with more metadata: key, text, …, NULL (or NULL).
mu_status mu__checkpoint_write(mu_checkpoint *checkpoint, const char *path, const char *const *metadata);
// mu__checkpoint_is_ours says whether this process writes the files; of several workers only the chief does.
bool mu__checkpoint_is_ours(const mu_checkpoint *checkpoint);
// mu__checkpoint_count makes a number part of the checkpoint: saved with it, set by a restore (to 0 by a file without
// it). It must live as long as it is part; NULL ends that.
void mu__checkpoint_count(mu_checkpoint *checkpoint, int64_t *counter);
// mu__checkpoint_strategy is the one whose scope its variables were made in, as far as they are made; NULL: none.
mu_strategy *mu__checkpoint_strategy(const mu_checkpoint *checkpoint);
mu_checkpoint *mu__manager_checkpoint(const mu_checkpoint_manager *manager);
// mu__checkpoint_read is mu_checkpoint_restore from an open file, whose metadata the caller reads.
mu_status mu__checkpoint_read(mu_checkpoint *checkpoint, mu_tensor_file *file);

// mu__directory_make makes a folder and those above it.
mu_status mu__directory_make(const char *path);

#endif
