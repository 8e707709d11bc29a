// The networks of the bench of XLA devices: formulas over a list of weights whose first values are computed, so that
// other frameworks start with the same ones (networks.py has the same lists).
#ifndef MU_BENCH_XLA_NETWORKS_H
#define MU_BENCH_XLA_NETWORKS_H

#include <muster.h>

enum { MOST_WEIGHTS = 64 };

typedef struct network {
    const char *name;
    mu_tensor *(*loss)(mu_tensor *const *weights, mu_tensor *x, mu_tensor *y);  // of each sample
    int samples;                      // of a batch, over all replicas
    mu_value *(*batch)(int samples);  // inputs and labels
    int n_weights;
    mu_variable *weights[MOST_WEIGHTS];
    mu_optimizer *optimizer;
    mu_function *step;
    int replicas;
} network;

// These make the weights in the strategy in force.
void make_cnn(network *out);
void make_gpt(network *out);

#endif
