// The layers that look tokens up in a vocabulary: what string_lookup, integer_lookup and text_vectorization share.
//
// A token is a byte string; an integer is its 8 bytes. All of it runs on the host, on elements of datasets.
#ifndef MU_SRC_MODEL_LOOKUP_H
#define MU_SRC_MODEL_LOOKUP_H

#include "model/core/layer.h"

// A set of tokens with numbers from 0 in the order in which they were added.
typedef struct mu_token_set {
    mu_strings tokens;
    int64_t *slots; // 1 + number of a token; 0: free
    size_t n_slots;
} mu_token_set;

static inline int64_t mu__vocabulary_count(const mu_token_set *v) { return (int64_t)v->tokens.ends.n; }
mu_string mu__vocabulary_token(const mu_token_set *v, int64_t number);
int64_t mu__vocabulary_find(const mu_token_set *v, mu_string token);             // -1: not there
mu_status mu__vocabulary_add(mu_token_set *v, mu_string token, int64_t *number); // or finds it
void mu__vocabulary_free(mu_token_set *v);

// The state of such a layer (layer->state).
typedef struct mu_lookup {
    mu_token_set vocabulary; // without the special tokens
    double *idf;             // of each token, for "tf_idf"; NULL: none
    bool ready;              // there is a vocabulary
    bool adapted;            // which adapt has found
    bool integers;
    int n_oov;
    bool hashes_integers; // of several out-of-vocabulary indices, an integer gets one by its hash
    int n_salt;           // of hashes (mu__salted_hash)
    const int64_t *salt;  // the options'
    bool masks;           // the mask token has index 0; other output modes than "int" leave it out
    bool inverts;         // gives tokens of indices
    mu_string mask, oov;
    const char *output_mode;
    int64_t max_tokens; // 0: no limit
    bool pad_to_max;
} mu_lookup;

static inline int64_t mu__lookup_first(const mu_lookup *l) { return l->masks + l->n_oov; } // index of token 0

// mu__lookup_set sets the vocabulary, which may begin with the special tokens, from n tokens and idf weights (or NULL),
// which may then begin with theirs.
mu_status mu__lookup_set(mu_layer *layer, int n, mu_string (*token)(const mu_layer *layer, int i), const double *idf,
                         int n_idf);
#define MU_MASKED (-1) // the index of the mask token where an encoding leaves it out
// mu__lookup_index gives the index of a token; false after recording an error.
bool mu__lookup_index(const mu_layer *layer, mu_string token, int64_t *index);
// mu__lookup_encode makes the output of `mode` ("one_hot" and so on) from n indices in rows: row r ends before ends[r]
// and the result has the axes `before`, then one of tokens. Owned.
mu_tensor *mu__lookup_encode(const mu_layer *layer, const char *mode, const int64_t *indices, int64_t n_rows,
                             const int64_t *ends, mu_shape before);
// mu__tokens_shape returns the shape of an encoding in `mode` of tokens of a shape, where axes may be unknown.
mu_shape mu__tokens_shape(const char *mode, const mu_shape *tokens, int64_t depth);
// mu__lookup_depth returns the columns of an encoding; MU_UNKNOWN: there is no vocabulary yet. mu__lookup_spec fills
// type and shape of what mu__lookup_call returns for an input, or, with `inverts`, of the tokens of indices.
int64_t mu__lookup_depth(const mu_lookup *l);
mu_status mu__lookup_spec(const mu_layer *layer, bool inverts, const mu_spec *in, mu_spec *out);
// mu__lookup_call looks all elements of a tensor up; the result belongs to the pool.
mu_value *mu__lookup_call(mu_layer *layer, mu_value *inputs, const mu_call_context *context);

// mu__lookup_weights writes the idf weights as Keras keeps them: of all indices, the average for those of special
// tokens. NULL: the layer has none. It belongs to the pool.
mu_status mu__lookup_weights(const mu_layer *layer, mu_tensor **out);
// mu__lookup_adapted returns the state of a look-up whose vocabulary adapt has found; NULL: the layer is none.
const mu_lookup *mu__lookup_adapted(const mu_layer *layer);
// mu__lookup_take_weights takes such weights, of as many indices as the layer has, for its own.
mu_status mu__lookup_take_weights(mu_layer *layer, const mu_tensor *weights);

// Counts of tokens over a dataset, for adapt.
typedef struct mu_token_counts mu_token_counts;
struct mu_token_counts {
    mu_status (*document)(mu_layer *layer, const mu_tensor *inputs, mu_token_counts *counts); // counts an element's
    mu_token_set seen;
    struct {
        int64_t *items;
        size_t n, capacity;
    } counts, documents, last; // last: number of the last document
    int64_t n_documents;
};
mu_status mu__tokens_count(mu_token_counts *counts, mu_string token); // in document counts->n_documents
void mu__tokens_free(mu_token_counts *counts);
// mu__lookup_adapt makes the vocabulary from counts: most frequent first, of equal counts the larger token first.
mu_status mu__lookup_adapt(mu_layer *layer, mu_token_counts *counts);

// mu__host_only returns a layer's input as a tensor with elements; NULL and an error in a trace.
const mu_tensor *mu__host_only(const mu_layer *layer, mu_value *inputs, int i);

// What adapt does for these classes: mu__adapt_document is for mu__adapt_each, with counts whose function counts what
// one element of the data has, mu__adapt_values or mu__adapt_text.
mu_status mu__lookup_adapt_to(mu_layer *layer, mu_dataset *data);
mu_status mu__adapt_document(mu_layer *layer, mu_tensor *inputs, void *counts);
mu_status mu__adapt_values(mu_layer *layer, const mu_tensor *inputs, mu_token_counts *counts); // of the lookups
mu_status mu__adapt_text(mu_layer *layer, const mu_tensor *inputs, mu_token_counts *counts);   // of text_vectorization

#endif
