// A training step of programs in tests/ranks with a training loop of their own.
#ifndef MU_TESTS_RANKS_TRAIN_ON_BATCH_H
#define MU_TESTS_RANKS_TRAIN_ON_BATCH_H

#include <muster.h>

// Trains a classifier on a batch of inputs and class numbers; returns the loss.
static inline mu_value *train_on_batch(mu_model *model, mu_optimizer *optimizer, mu_value *batch)
{
    mu_tensor *x = mu_at(batch, 0), *y = mu_at(batch, 1);
    mu_tape *tape = mu_tape_open();
    mu_tensor *logits = mu_call(model, x, .training = true);
    mu_tensor *loss = mu_compute_average_loss(mu_nn_sparse_softmax_cross_entropy(y, logits));
    mu_apply_gradients(optimizer, mu_gradients(tape, loss, mu_trainable_variables(model)));
    return mu_of(loss);
}

#endif
