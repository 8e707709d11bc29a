// The wire form of tf.train.Example: entries of maps, and the values of a feature.
//
// Nothing is copied; all positions are borrowed from the message. Bytes are untrusted.
#ifndef MU_SRC_DATA_EXAMPLE_H
#define MU_SRC_DATA_EXAMPLE_H

#include "data/dataset.h"

#include <muster/example.h>

// A part of a message. `bytes` NULL: there is none.
typedef struct mu_span {
    const uint8_t *bytes;
    size_t n;
} mu_span;

enum { MU_EXAMPLE_FEATURES_FIELD = 1, MU_EXAMPLE_LISTS_FIELD = 2 }; // of Example and SequenceExample

// The maps of an Example, and of a SequenceExample: its context and its sequences.
typedef enum mu_example_map { MU_EXAMPLE_FEATURES, MU_EXAMPLE_CONTEXT, MU_EXAMPLE_LISTS } mu_example_map;

// mu__example_find finds what the keys have in a message's map: of keys that are there more than once, the last counts
// (of the features of an Example: the last that is not empty). values: [n], set by this function. False: the bytes are
// no such message.
bool mu__example_find(mu_span message, mu_example_map map, int n, const char *const *keys, mu_span *values);

// mu__example_step gives the features of a FeatureList one after the other: *at counts bytes from 0; false at the end
// or, with *bad, for damage.
bool mu__example_step(mu_span list, size_t *at, mu_span *feature, bool *bad);

// What a Feature holds: MU_F32, MU_I64, MU_STRING, or MU_DTYPE_DEFAULT if nothing. *list is the list of its values.
// step: it is a step of a sequence, which TensorFlow reads more strictly.
bool mu__example_kind(mu_span feature, bool step, mu_dtype *dtype, mu_span *list);

// Where values go. Counts them alone if there is neither.
typedef struct mu_value_sink {
    void *numbers; // float or int64; space for all
    mu_strings *strings;
    int64_t n; // values so far
} mu_value_sink;

// mu__example_values reads the values of a list. DATA_LOSS without a record: the bytes are no such list, or one
// with values in several forms.
mu_status mu__example_values(mu_span list, bool step, mu_dtype dtype, mu_value_sink *sink);

#endif
