// The networks of the benches of XLA devices and of steps: formulas over a list of weights whose first values are
// computed, so that other frameworks start with the same ones (networks.py has the lists of those that are compared).
#ifndef MU_BENCH_XLA_NETWORKS_H
#define MU_BENCH_XLA_NETWORKS_H

#include <muster.h>

enum { MOST_WEIGHTS = 160 };

// The sizes of a GPT. "gpt" is small, "gpt2" is GPT-2 124M; "gpt2_small" shows on a processor that its programs run.
typedef struct gpt_size {
    const char *name;
    int vocabulary, length, width, heads, layers;
    int samples;
    mu_dtype dtype; // of the computation; weights are float32
} gpt_size;
enum { GPT_SIZES = 3 };
extern const gpt_size gpt_sizes[GPT_SIZES];

typedef struct network network;
struct network {
    const char *name;
    const gpt_size *size; // of a GPT
    mu_dtype dtype;       // that the loss computes with
    mu_tensor *(*loss)(const network *net, mu_tensor *const *weights, mu_tensor *x, mu_tensor *y); // of each sample
    int samples;                            // of a batch, over all replicas
    mu_value *(*batch)(const network *net); // inputs and labels
    int n_weights;
    mu_variable *weights[MOST_WEIGHTS];
    mu_optimizer *optimizer;
    mu_function *step;
    int replicas;
};

// These make the weights in the strategy in force.
void make_cnn(network *out);
void make_mlp(network *out);
void make_lstm(network *out);
void make_gpt(network *out, const gpt_size *size);

#endif
