// Internal interface of checkpoints: metadata, counters, and the strategy that they belong to.
#ifndef MU_SRC_MODEL_CHECKPOINT_H
#define MU_SRC_MODEL_CHECKPOINT_H

#include "data/dataset.h"
#include "io/io.h"
#include "model/core/layer.h"
#include "model/metrics/metric.h"
#include "model/optimizers/optimizer.h"

#include <muster/checkpoint.h>

// ---- The objects (checkpoint_objects.c) ---------------------------------------------------------

// What is saved under one name: an object of .objects, or the arguments without a name ("") together. Retained; NULL:
// not included.
typedef struct mu_checkpoint_part {
    char *name;
    mu_model *model;
    mu_optimizer *optimizer;
    mu_value *variables;
    mu_iterator *iterator;
    mu_metric *metric;
} mu_checkpoint_part;

struct mu_checkpoint {
    mu_object object;
    struct {
        mu_checkpoint_part *items;
        size_t n, capacity;
    } parts;
    int64_t *counter;            // of a preemption handler; NULL: none
    mu_embedding_table **tables; // [n_tables] retained
    int n_tables;
};

// The variables of a checkpoint: borrowed, each once, in a fixed order, with the names that they have in the file.
typedef struct mu_entry {
    mu_variable *variable;
    char *name;
} mu_entry;
typedef struct mu_entries {
    mu_entry *items;
    size_t n, capacity;
} mu_entries;
mu_status mu__checkpoint_collect(const mu_checkpoint *checkpoint, mu_entries *all);
void mu__entries_free(mu_entries *all);
// mu__checkpoint_check_names refuses two variables under one name, those that a first step will make included.
mu_status mu__checkpoint_check_names(const mu_checkpoint *checkpoint);
// mu__checkpoint_build makes the state of metrics and optimizers that the first step would make, as far as weights
// exist. So any file can be restored, also before the first step.
mu_status mu__checkpoint_build(const mu_checkpoint *checkpoint);
// mu__checkpoint_find_columns tells metrics whose states are as wide as the predictions how wide they are in a file, so
// that these are made too.
mu_status mu__checkpoint_find_columns(const mu_checkpoint_part *part, const mu_tensor_file *file);

// ---- Files --------------------------------------------------------------------------------------

// mu__checkpoint_write is mu_checkpoint_save with more metadata: pairs of key and text, ended by NULL (or NULL for
// none).
mu_status mu__checkpoint_write(mu_checkpoint *checkpoint, const char *path, const char *const *metadata);
// mu__checkpoint_is_ours returns whether this process writes the files; with several workers only the chief does.
bool mu__checkpoint_is_ours(const mu_checkpoint *checkpoint);
// mu__checkpoint_count adds a counter to the checkpoint: saves write it, and a restore sets it (to 0 if the file has
// none). It must stay valid until another call removes it with NULL.
void mu__checkpoint_count(mu_checkpoint *checkpoint, int64_t *counter);
// mu__checkpoint_strategy returns the strategy in whose scope its existing variables were made; NULL: none.
mu_strategy *mu__checkpoint_strategy(const mu_checkpoint *checkpoint);
mu_checkpoint *mu__manager_checkpoint(const mu_checkpoint_manager *manager);
const char *mu__manager_directory(const mu_checkpoint_manager *manager);
// mu__checkpoint_read is mu_checkpoint_restore from an open file, so that the caller can read the metadata.
mu_status mu__checkpoint_read(mu_checkpoint *checkpoint, mu_tensor_file *file);

// ---- Parts of sharded variables (checkpoint_parts.c) --------------------------------------------

// Name, and type and shape, of the tensor that a variable is saved in: for a part, those of the whole variable.
const char *mu__saved_name(const mu_variable *variable);
mu_spec mu__saved_spec(const mu_variable *variable);
// mu__are_parts_of_one returns whether two variables are different parts of one whole.
bool mu__are_parts_of_one(const mu_variable *a, const mu_variable *b);
// mu__saved_before returns the first earlier variable of the list that is a part of the same whole; -1: none is.
int mu__saved_before(const mu_entries *all, size_t i);
// mu__saved_value returns the tensor to save for variable i of n: for a part, that of all parts in the list. Errors:
// INVALID_ARGUMENT if the list lacks a part.
mu_tensor *mu__saved_value(const mu_entries *all, size_t i);
// mu__part_of_saved returns a variable's own rows of the tensor that it was saved in.
mu_tensor *mu__part_of_saved(const mu_variable *variable, mu_tensor *saved);

// ---- Embedding tables (checkpoint_tables.c) -----------------------------------------------------

// mu__table_tensors appends the tensors of a table, at most MU_TABLE_TENSORS, and their names; both are of the pool.
// mu__table_check_file checks that a file has them in the table's form. mu__table_restore replaces the table's rows.
enum { MU_TABLE_TENSORS = 4 };
mu_status mu__table_tensors(mu_embedding_table *table, const char **names, mu_tensor **tensors, int *n);
mu_status mu__table_check_file(const mu_embedding_table *table, const mu_tensor_file *file);
mu_status mu__table_restore(mu_embedding_table *table, const mu_tensor_file *file);

#endif
