// What travels with tensors that layers return, which have no room for it: their masks (mask.c), and the logits of
// which an activation made them (activation.c). A note belongs to the pool in which it is made, and keeps the tensor,
// whose address therefore names no other one.
#ifndef MU_SRC_MODEL_NOTE_H
#define MU_SRC_MODEL_NOTE_H

#include "tensor/tensor.h"

typedef enum mu_note_kind {
    MU_NOTE_MASK = 1,
    MU_NOTE_LENT_MASK = 2, // what a call was given: NULL, too
    MU_NOTE_SIGMOID = 4,   // the tensor is the sigmoid of this one
    MU_NOTE_SOFTMAX = 8,   // its softmax along an axis
} mu_note_kind;

typedef struct mu_note {
    mu_object object;
    struct mu_note *older, *newer; // in its list
    mu_tensor *tensor;             // retained; NULL: the note has been taken back
    mu_tensor *noted;              // the mask or the logits; retained
    mu_note_kind kind;
    int axis; // of a softmax, counted from the first
} mu_note;

// mu__note_keep makes a note of this thread; NULL on error. mu__note_of returns the newest note on a tensor of one of
// these kinds, or NULL. mu__note_take_back ends one before its pool does.
mu_note *mu__note_keep(mu_tensor *tensor, mu_tensor *noted, mu_note_kind kind);
mu_note *mu__note_of(const mu_tensor *tensor, int kinds);
void mu__note_take_back(mu_note *note);

#endif
