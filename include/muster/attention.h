// Attention layers as in Keras: every query takes from the values what its key points at.
//
// They are called with .inputs = mu_list(query, value, MU_END) or mu_list(query, value, key, MU_END); without a key the
// value is the key. query: [batch, queries, features]; value and key: [batch, keys, …]. Inputs may have more axes: of
// mu_attention and mu_additive_attention between the batch and the queries or keys, in which all inputs must agree
// (else INVALID_ARGUMENT); see below for the others. Masks (of mu_embedding's .mask_zero, mu_masking, or mu_call's
// .masks) have the axes of their input but the last, and leave out keys; the mask of the query becomes the output's.
// With .return_attention_scores the outputs are a list: the output, then the weights of the keys (mu_call_values).
//
// Errors: as for all layers (muster/layer.h).
#ifndef MUSTER_ATTENTION_H
#define MUSTER_ATTENTION_H

#include <muster/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_attention_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    bool use_scale;               // multiply the scores by a trainable number
    const char *score_mode;       // "dot" (default), or "concat": the sum of tanh(query + key)
    double dropout;               // share of the weights dropped in training
    uint64_t seed;                // of dropout; default: from the program's seed
    bool use_causal_mask;         // query i takes from keys 0 to i only
    bool return_attention_scores; // return the weights [batch, queries, keys] too
    const char *name;
    const char *dtype;
} mu_attention_args;
// mu_attention makes a layer of dot-product attention (Luong's); y: [batch, queries, features of the value].
#define mu_attention(...) mu_attention_with(MU_ARGS(mu_attention_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_attention_with(const mu_attention_args *args);

typedef struct mu_additive_attention_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    bool no_scale;                // leave out the trainable factors of the features
    double dropout;               // share of the weights dropped in training
    uint64_t seed;                // of dropout; default: from the program's seed
    bool use_causal_mask;         // query i takes from keys 0 to i only
    bool return_attention_scores; // return the weights [batch, queries, keys] too
    const char *name;
    const char *dtype;
} mu_additive_attention_args;
// mu_additive_attention makes a layer of additive attention (Bahdanau's): a score is the sum of scale · tanh(query +
// key) over the features; y: [batch, queries, features of the value].
#define mu_additive_attention(...) \
    mu_additive_attention_with(MU_ARGS(mu_additive_attention_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_additive_attention_with(const mu_additive_attention_args *args);

// The next two layers also take .inputs = mu_list(query, value, key, mask, MU_END), where the mask is 0 where a query
// must not take from a key: [batch, queries, keys], or [batch, heads, queries, keys]. Of inputs with more axes it is
// [batch, …, heads, queries…, keys…], as the weights of the keys are; the heads, or all between batch and queries, may
// be left out. An axis of the mask but the batch's may have the size 1, for all.

typedef struct mu_multi_head_attention_args {
    size_t size;
    const char *given;
    int num_heads, key_dim; // heads, and features of each head's query and key
    mu_keyword_only only_;
    int value_dim;    // features of each head's value; default key_dim
    double dropout;   // share of the weights dropped in training
    bool no_bias;     // leave the biases out
    int output_shape; // features of the output; default: those of the query
    // axes that a query takes from, where inputs have several besides batch and features: {1, 2} of images, {2} along
    // their rows alone; default: all. Negative ones count from the end
    const int *attention_axes;
    int n_attention_axes;
    int sliding_window;                    // take from keys that are less than this many places away; default: all
    mu_any_initializer kernel_initializer; // an initializer; default "glorot_uniform"
    mu_any_initializer bias_initializer;   // default "zeros"
    mu_any_regularizer kernel_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, bias_constraint;
    bool use_gate;                // multiply what the heads take by a sigmoid of the query
    uint64_t seed;                // of dropout; default: from the program's seed
    bool use_causal_mask;         // query i takes from keys 0 to i only
    bool return_attention_scores; // return the weights [batch, heads, queries, keys] too (see below)
    const char *name;
    const char *dtype;
} mu_multi_head_attention_args;
// mu_multi_head_attention makes a layer that projects query, key and value to several heads, which attend separately,
// and projects what they take. Inputs may have more axes, [batch, …, features], all but the batch's known, and the
// weights of their keys are [batch, …, heads, queries…, keys…], with the axes that no query takes from in front of the
// heads. Its own weights are query/kernel [features, heads, key_dim], query/bias, and the same for key, gate, value and
// attention_output. Vaswani et al., "Attention is all you need", 2017. Errors: INVALID_ARGUMENT for .use_causal_mask or
// .sliding_window along several axes, which have no order.
#define mu_multi_head_attention(...) \
    mu_multi_head_attention_with(MU_ARGS(mu_multi_head_attention_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_multi_head_attention_with(const mu_multi_head_attention_args *args);

typedef struct mu_grouped_query_attention_args {
    size_t size;
    const char *given;
    int head_dim;            // features of each head
    int num_query_heads;     // heads of the query
    int num_key_value_heads; // heads of key and value, each of which serves a group of query heads
    mu_keyword_only only_;
    double dropout;                        // share of the weights dropped in training
    bool no_bias;                          // leave the biases out
    int sliding_window;                    // take from keys that are less than this many places away; default: all
    mu_any_initializer kernel_initializer; // an initializer; default "glorot_uniform"
    mu_any_initializer bias_initializer;   // default "zeros"
    mu_any_regularizer kernel_regularizer, bias_regularizer;
    mu_any_constraint kernel_constraint, bias_constraint;
    bool use_gate;                // multiply what the heads take by a sigmoid of the query
    uint64_t seed;                // of dropout; default: from the program's seed
    bool use_causal_mask;         // query i takes from keys 0 to i only
    bool return_attention_scores; // return the weights [batch, heads, queries, keys] too
    const char *name;
    const char *dtype;
} mu_grouped_query_attention_args;
// mu_grouped_query_attention makes a layer like mu_multi_head_attention with fewer heads of keys and values. Ainslie et
// al., "GQA: training generalized multi-query transformer models from multi-head checkpoints", 2023. Errors:
// INVALID_ARGUMENT unless num_key_value_heads divides num_query_heads.
#define mu_grouped_query_attention(...) \
    mu_grouped_query_attention_with(MU_ARGS(mu_grouped_query_attention_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_layer *mu_grouped_query_attention_with(const mu_grouped_query_attention_args *args);

#ifdef __cplusplus
}
#endif
#endif
