// Datasets as descriptions: a value from which another process makes the same pipeline.
//
// A description is a list of stages, each after its inputs; the last one is the dataset. A stage is a list of its name,
// the numbers of its inputs, and what its file says is sent of its arguments. A dataset that is used twice is one
// stage. A reader trusts nothing: names, numbers and structures are checked before a stage exists.
#ifndef MU_SRC_DATA_DESCRIBE_H
#define MU_SRC_DATA_DESCRIBE_H

#include "data/dataset.h"

enum { MU_MOST_STAGES = 1024 };

// mu__dataset_describe makes the description of a dataset, for an iteration that begins now in another process: its
// shuffles have an order that no other iteration has. It belongs to the pool and uses the dataset's rows. Errors:
// UNIMPLEMENTED naming the stage that cannot be sent: it calls a function of the program, or is not a stage of
// stages.def.
mu_value *mu__dataset_describe(mu_dataset *dataset);

// mu__dataset_described makes the dataset of a description from another process; owned by the caller. The files that it
// names are opened when it is iterated. Errors: INVALID_ARGUMENT naming the stage and what is wrong; DATA_LOSS for a
// damaged graph.
mu_dataset *mu__dataset_described(const mu_value *description);

// mu__spec_describe makes a value of a spec: its structure, with a vector [type, axis, …] for each leaf.
// mu__spec_described makes the spec again. Both are owned by the caller; NULL on error.
mu_value *mu__spec_describe(const mu_value *spec);
mu_value *mu__spec_described(const mu_value *value);

// Elements of a list in a description, borrowed; false if they are something else.
bool mu__described_number(const mu_value *value, int64_t *out);
bool mu__described_text(const mu_value *value, mu_string *out); // without zeros, and one behind it
bool mu__described_numbers(const mu_value *value, const int64_t **items, int64_t *n);
mu_value *mu__int64s_value(int64_t n, const int64_t *numbers); // of the pool

// How an object among a stage's arguments is sent (mu_sent_field).
struct mu_object_form {
    mu_value *(*write)(const void *object, const mu_dataset *dataset); // of the pool; NULL on error
    void *(*read)(const mu_value *value);                              // owned by the caller; NULL on error
};

#endif
