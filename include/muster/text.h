// Layers that make numbers of strings and categories: look-up in a vocabulary, hashing, crosses, and words of texts.
//
// They run on the host. In a sequential or functional model, mu_fit, mu_evaluate, mu_predict and their relatives call
// them on each batch, in the input pipeline, before the step that the rest of the model is, so a model may begin with
// strings: mu_input({0}, .dtype = MU_STRING). Layers in front of them must have no weights. A step of the program's own
// (mu_compile's .train_step) calls the model on the inputs of its batch, in which bools are in place of strings; it
// cannot call the model on other inputs of the look-ups, nor a look-up alone. A traced function and a layer of the
// program's own cannot call them; there, call them in the function of mu_dataset_map. A vocabulary is part of the
// layer's configuration; mu_load_model also reads vocabularies that Keras stores separately after adapt.
//
// Errors: as for all layers (muster/layer.h). In a traced function, and before there is a vocabulary, they fail with
// FAILED_PRECONDITION.
#ifndef MUSTER_TEXT_H
#define MUSTER_TEXT_H

#include <muster/preprocessing.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Look-up ------------------------------------------------------------------------------------
// Index 0 is the mask token, if there is one and the output mode is "int"; then come num_oov_indices indices for tokens
// that are not in the vocabulary, then the vocabulary. With several of them, such strings are spread by their hash,
// integers by their remainder or hash. Output modes: "int" (default; int64, the shape of x), and as
// mu_category_encoding "one_hot", "multi_hot" and "count" (int64); "tf_idf" (of the model's type) is "count" times the
// tokens' idf_weights, or, out of the vocabulary, times their average. Encodings leave the mask token out.

typedef struct mu_string_lookup_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int max_tokens;                // with the special tokens; default: no limit
    int num_oov_indices;           // default 1; 0: a token that is not in the vocabulary is an error
    const char *mask_token;        // default: none
    const char *oov_token;         // default "[UNK]"
    const char *const *vocabulary; // n_vocabulary strings, with the special tokens in front or without
    int n_vocabulary;
    const double *idf_weights; // n_idf_weights: one for each token, for "tf_idf"
    int n_idf_weights;
    bool invert;             // from indices (integers) to strings
    const char *output_mode; // "int" (default; int64), "one_hot", "multi_hot", "count" or "tf_idf"
    bool pad_to_max_tokens;  // encodings have max_tokens columns, whatever the vocabulary has
    // n_salt numbers, 1 or 2: of several out-of-vocabulary indices, a token gets one by SipHash with this key; default:
    // by FarmHash
    const int64_t *salt;
    int n_salt;
    const char *name;
    const char *dtype;
} mu_string_lookup_args;
// mu_string_lookup makes a layer that gives the indices of strings.
#define mu_string_lookup(...) mu_string_lookup_with(MU_ARGS(mu_string_lookup_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_string_lookup_with(const mu_string_lookup_args *args);

typedef struct mu_integer_lookup_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int max_tokens;            // as above
    int num_oov_indices;       // default 1
    int64_t mask_token;        // default: none
    int64_t oov_token;         // default -1
    const int64_t *vocabulary; // n_vocabulary integers
    int n_vocabulary;
    const double *idf_weights;
    int n_idf_weights;
    bool invert;
    const char *output_mode; // as in mu_string_lookup_args
    bool pad_to_max_tokens;
    // how an integer gets one of several out-of-vocabulary indices: "floormod" (default), its remainder, or "farmhash",
    // a hash of its decimal digits
    const char *oov_method;
    const int64_t *salt; // as above, with .oov_method = "farmhash"
    int n_salt;
    const char *name;
    const char *dtype;
} mu_integer_lookup_args;
// mu_integer_lookup makes a layer that gives the indices of integers. Errors: INVALID_ARGUMENT for a salt without
// .oov_method = "farmhash".
#define mu_integer_lookup(...) mu_integer_lookup_with(MU_ARGS(mu_integer_lookup_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_integer_lookup_with(const mu_integer_lookup_args *args);

// ---- Texts --------------------------------------------------------------------------------------

typedef struct mu_text_vectorization_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int max_tokens; // with the special tokens; default: no limit
    // "lower_and_strip_punctuation" (default), "lower", "strip_punctuation" or "none"; of ASCII letters and punctuation
    const char *standardize;
    const char *split;     // "whitespace" (default), "character" (of UTF-8) or "none"
    const int64_t *ngrams; // n_ngrams lengths, such as 1 and 2: also sequences of so many words
    int n_ngrams;
    const char *output_mode;    // "int" (default), "multi_hot", "count" or "tf_idf"
    int output_sequence_length; // "int": cut or padded to so many; default: the longest of the batch
    bool pad_to_max_tokens;
    const char *const *vocabulary; // n_vocabulary words
    int n_vocabulary;
    const double *idf_weights;
    int n_idf_weights;
    const char *name;
    const char *dtype;
} mu_text_vectorization_args;
// mu_text_vectorization makes a layer that splits texts into words and gives their indices ("int": int64 [batch,
// words], index 0 as padding after the end of shorter texts, 1 for words that are not in the vocabulary) or their
// encoding. Input: strings [batch] or [batch, 1]; a scalar is one text, whose result has no batch axis. With split
// "none": [batch, words].
#define mu_text_vectorization(...) \
    mu_text_vectorization_with(MU_ARGS(mu_text_vectorization_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_text_vectorization_with(const mu_text_vectorization_args *args);

// mu_vocabulary returns the tokens of a layer of this header in order of their indices, special ones included: strings,
// or int64. Errors: FAILED_PRECONDITION if it has none yet.
MU_API mu_tensor *mu_vocabulary(mu_layer *layer);

// ---- Hashing ------------------------------------------------------------------------------------

typedef struct mu_hashing_args {
    size_t size;
    const char *given;
    int num_bins;
    mu_keyword_only only_;
    const char *mask_value; // this string alone has bin 0; default: none
    const int64_t *salt;    // n_salt numbers, 1 or 2: SipHash with this key; default: FarmHash
    int n_salt;
    const char *output_mode; // "int" (default; int64), "one_hot", "multi_hot" or "count"
    const char *name;
    const char *dtype;
    int64_t mask_integer; // of integers in place of .mask_value; default: none
} mu_hashing_args;
// mu_hashing makes a layer that gives strings and integers bins by their hash: those that Keras's Hashing gives.
#define mu_hashing(...) mu_hashing_with(MU_ARGS(mu_hashing_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_hashing_with(const mu_hashing_args *args);

typedef struct mu_hashed_crossing_args {
    size_t size;
    const char *given;
    int num_bins;
    mu_keyword_only only_;
    const char *output_mode; // "int" (default; int64) or "one_hot"
    const char *name;
    const char *dtype;
} mu_hashed_crossing_args;
// mu_hashed_crossing makes a layer that gives each combination of several features a bin by its hash. Input: a list of
// tensors of strings or integers, all [batch] or all [batch, 1].
#define mu_hashed_crossing(...) mu_hashed_crossing_with(MU_ARGS(mu_hashed_crossing_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_hashed_crossing_with(const mu_hashed_crossing_args *args);

#ifdef __cplusplus
}
#endif
#endif
