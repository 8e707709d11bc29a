// Internal interface of losses: what a class of losses is, and how one is computed. A class has a table of fields and
// a function written with ops (losses.c); weights, masks and the reduction over replicas are common to all (loss.c).
#ifndef MU_SRC_MODEL_LOSS_H
#define MU_SRC_MODEL_LOSS_H

#include "model/core/fields.h"

#include <muster/loss.h>

typedef struct mu_loss_ops {
    mu_class class;
    const char *short_name;   // "mse"; NULL: none
    bool takes_labels;        // y_true stays as it is; otherwise it gets the type and the rank of y_pred
    bool chooses;             // `call` chooses a loss by the shapes, which does the same with y_true by its class
    const char *other_shapes; // what to do if y_true has another shape than y_pred; NULL: they broadcast
    // call returns the loss of each sample: [batch, …]. Belongs to the pool; NULL on error.
    mu_tensor *(*call)(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred);
    // valid returns which of these losses count, bool of their shape; NULL without an error: all. Optional.
    mu_tensor *(*valid)(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred, mu_tensor *losses);
    // joins_replicas returns whether `call`, for predictions of this rank, returns the losses of the batch of all
    // replicas, the same on each of them. Optional.
    bool (*joins_replicas)(const mu_loss *loss, int rank);
} mu_loss_ops;

struct mu_loss {
    mu_object object;
    const mu_loss_ops *ops;
    void *args; // begins with the members of mu_loss_args
};

// The options that every class of losses begins with.
extern const char *const mu__reductions[];
extern const mu_field mu__loss_fields[];
#define MU_LOSS_FIELDS(type)                                                                     \
    MU_FIELD(type, reduction, CHOICE, .text = "sum_over_batch_size", .choices = mu__reductions), \
        MU_FIELD(type, name, NAME)

mu_loss *mu__loss_make(const mu_loss_ops *ops, const void *args); // belongs to the pool; NULL on error
const mu_loss_ops *mu__loss_find(const char *name);               // by Keras's names; NULL: there is none
mu_tensor *mu__loss_call(const mu_loss *loss, mu_tensor *y_true, mu_tensor *y_pred);
// mu__labels_of_steps returns labels [batch, steps] of predictions [batch, steps, 1] with the last axis too, if
// `counting`, a mask or weights, counts each step: then each has a loss. Else the steps are the outputs of a sample, as
// in Keras.
mu_tensor *mu__labels_of_steps(mu_tensor *y_true, const mu_tensor *y_pred, const mu_tensor *counting);
// mu__ctc_loss (loss_ctc.c) returns CTC's loss of each sample: [batch]. y_true: class numbers [batch, labels], 0 behind
// the last; y_pred: logits [batch, time, classes], class 0 the blank.
mu_tensor *mu__ctc_loss(mu_tensor *y_true, mu_tensor *y_pred);
// mu__weights_like broadcasts weights [batch, …] to `values`. mu__join_weights multiplies weights and mask, each of
// which may be NULL; a mask of more axes than `values` does not apply to them. NULL without an error: neither is there.
mu_tensor *mu__weights_like(mu_tensor *weights, mu_tensor *values);
mu_tensor *mu__join_weights(mu_tensor *weights, mu_tensor *mask, mu_tensor *values);

typedef struct mu_loss_inputs {
    mu_tensor *y_true, *y_pred, *weights, *mask; // the last two may be NULL
} mu_loss_inputs;
typedef struct mu_loss_share {
    mu_tensor *share;         // this replica's share of the batch's loss: the shares of all replicas add up to it
    mu_tensor *total, *count; // what it adds to the mean loss of the epoch
} mu_loss_share;
mu_status mu__loss_share(const mu_loss *loss, const mu_loss_inputs *in, mu_loss_share *out);
extern mu_type mu__loss_type;

#endif
