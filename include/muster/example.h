// Records of tf.train.Example and tf.train.SequenceExample: parsing, writing, and TFRecord files of them.
//
// An Example is a map from names to lists of floats, int64 or byte strings; a SequenceExample has such a map, its
// context, and a map from names to lists of such lists, its sequences. The messages are TensorFlow's
// (tensorflow/core/example), in the wire format of protocol buffers.
//
// Errors: INVALID_ARGUMENT for tensors of a type that cannot be read or written so.
#ifndef MUSTER_EXAMPLE_H
#define MUSTER_EXAMPLE_H

#include <muster/data.h>

#ifdef __cplusplus
extern "C" {
#endif

// How many values a feature has.
typedef enum mu_feature_length {
    MU_FEATURE_FIXED = 0, // as many as `shape` has elements (tf.io.FixedLenFeature)
    // Any number of steps, each of `shape` (FixedLenSequenceFeature; VarLenFeature with shape [])
    MU_FEATURE_VARIABLE
} mu_feature_length;

typedef struct mu_feature {
    const char *name; // its key in the message, and in the map of the result
    mu_dtype dtype;   // MU_F32, MU_I64 or MU_STRING
    mu_feature_length length;
    mu_shape shape; // of the value, or of a step; default: scalar
    // The value where the feature is missing, of `shape` or a scalar; FIXED without it: the feature must be there.
    // VARIABLE: a scalar that pads shorter examples at their end; default 0 or "". Retains: nothing after the call
    mu_tensor *default_value;
    // VARIABLE, and each feature of the sequences: also give the numbers of steps (int64), under this name
    const char *lengths;
} mu_feature;

// mu_parse_example parses serialised Examples: a scalar of MU_STRING or a vector of uint8 is one, a vector of MU_STRING
// is a batch, whose features have a further axis 0. Features that are not listed are skipped. A VARIABLE feature of a
// batch has the steps of the longest example; shorter ones are padded. (The sparse tensor of VarLenFeature has the
// values in front of the padding; `lengths` says how many.) Of one example it has that example's steps. The result is a
// map. Errors: INVALID_ARGUMENT naming feature and example, for one that is missing, has another type, or another
// number of values; DATA_LOSS for bytes that are not an Example. Messages are read as strictly as TensorFlow's parser
// does, which refuses unknown fields in most places, and values of a list that are not all written in one way: packed
// in one field, or each in its own. (Where it would drop a second list or packed field, that is DATA_LOSS too.)
MU_API mu_value *mu_parse_example(mu_tensor *serialized, int n_features, const mu_feature *features);

// mu_parse_sequence_example parses serialised SequenceExamples in the same way. The result is a list of two maps:
// context and sequences. A feature of the sequences has an axis of steps in front of its shape, and of a batch axis 0
// before that; each of its steps has exactly the values of `shape` (FIXED) or any number (VARIABLE, of scalars), padded
// to the longest step. `lengths` counts the steps of the sequence. A missing sequence is an error if FIXED, and has no
// steps if VARIABLE or with a default value. Of a name that is there more than once the last counts; a feature of the
// context without any list has 0 values, and no default (in an Example it is as good as missing). Errors: as
// mu_parse_example.
MU_API mu_value *mu_parse_sequence_example(mu_tensor *serialized, int n_context, const mu_feature *context,
                                           int n_sequences, const mu_feature *sequences);

typedef struct mu_dataset_parse_example_args {
    size_t size;
    const char *given;
    mu_dataset *dataset; // of serialised Examples, or of batches of them: see mu_parse_example
    mu_keyword_only only_;
    const mu_feature *features; // [n_features]; the context, with sequences
    int n_features;
    const mu_feature *sequences; // [n_sequences]: the records are SequenceExamples
    int n_sequences;
} mu_dataset_parse_example_args;

// mu_dataset_parse_example parses every element of a dataset. Batching strings before parsing is faster than after it.
// Errors, where it is read: as mu_parse_example.
#define mu_dataset_parse_example(...) \
    mu_dataset_parse_example_with(MU_ARGS(mu_dataset_parse_example_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_dataset *mu_dataset_parse_example_with(const mu_dataset_parse_example_args *args);

// ---- Writing ------------------------------------------------------------------------------------

// mu_serialize_example makes a serialised Example (a scalar of MU_STRING) from a map of names to tensors: float types
// become floats, integers and bools int64, strings bytes; shapes are not kept. The names are written in order of the
// alphabet, so that equal maps give equal bytes.
MU_API mu_tensor *mu_serialize_example(mu_value *features);

// mu_serialize_sequence_example makes a serialised SequenceExample. A sequence is a tensor whose axis 0 are its steps,
// or a list of tensors, one for each step. context or sequences may be NULL: there are none.
MU_API mu_tensor *mu_serialize_sequence_example(mu_value *context, mu_value *sequences);

typedef struct mu_tfrecord_writer mu_tfrecord_writer; // a TFRecord file that is being written

// mu_tfrecord_writer_new begins a TFRecord file, mu_tfrecord_write adds a record: a scalar of MU_STRING, or a vector of
// uint8. mu_tfrecord_writer_close gives the file its name: until then, and if the writer is released without it, there
// is no new file and an old one stays. Errors: NOT_FOUND for a folder that is not there, and the others of writing a
// file; FAILED_PRECONDITION after the close.
MU_API mu_tfrecord_writer *mu_tfrecord_writer_new(const char *path);
MU_API mu_status mu_tfrecord_write(mu_tfrecord_writer *writer, mu_tensor *record);
MU_API mu_status mu_tfrecord_writer_close(mu_tfrecord_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
