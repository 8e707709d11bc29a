// What a user asks of serialised examples, checked and kept; and the examples to parse.
#ifndef MU_SRC_DATA_EXAMPLE_FORM_H
#define MU_SRC_DATA_EXAMPLE_FORM_H

#include "data/formats/example.h"

typedef struct mu_feature_list {
    int n, n_leaves;   // features; tensors of the result: lengths are further ones
    mu_feature *items; // names are copied, default values retained
    mu_value *like;    // the result's structure
} mu_feature_list;

// The features of Examples or, with sequences, of SequenceExamples.
typedef struct mu_example_form {
    mu_object object;
    bool sequential;
    mu_feature_list features, sequences;
} mu_example_form;

// mu__example_form_new copies what the caller of `function` gives; owned by the caller. n_sequences < 0: Examples.
mu_example_form *mu__example_form_new(const char *function, int n_features, const mu_feature *features, int n_sequences,
                                      const mu_feature *sequences);

extern const mu_object_form mu__example_form_form; // in descriptions (example_sent.c)

// The messages of one call.
typedef struct mu_records {
    const char *function;
    int64_t n;
    mu_span *items;
    bool batch; // else there is one, and tensors have no axis for it
} mu_records;

// mu__example_parse makes the map of one list of features, from a map of the messages. Owned by the caller; NULL on
// error.
mu_value *mu__example_parse(const mu_records *records, const mu_feature_list *list, mu_example_map map);

#endif
