// The operations of keras.ops that functional models may have (operation_kinds.c): what each computes.
#ifndef MU_SRC_MODEL_OPERATION_KINDS_H
#define MU_SRC_MODEL_OPERATION_KINDS_H

#include "model/layers/operation.h"

#include <muster/ops.h>

typedef struct mu_operation_kind mu_operation_kind;

// One call of an operation.
typedef struct mu_operation_call {
    const mu_operation_kind *kind;
    const json_t *config, *args; // its options; all arguments, tensors and others
    const char *name;            // for messages
    int n;                       // operands: tensors, and numbers as tensors
    mu_tensor *x[MU_MAX_MODEL_INPUTS];
} mu_operation_call;

struct mu_operation_kind {
    const char *keras;   // Keras's class
    const char *options; // of its configuration that it reads, with spaces between
    const char *option;  // a number that must have the value `usual`; NULL: none
    double usual;
    bool real;        // of integers it computes floats
    bool first_alone; // only the first argument is an operand
    // One of these computes the result.
    mu_tensor *(*one)(mu_tensor *x);
    mu_tensor *(*two)(mu_tensor *a, mu_tensor *b); // of one type
    mu_tensor *(*reduce)(const mu_reduction_args *args);
    const char *activation;
    mu_tensor *(*other)(const mu_operation_call *call);
    mu_value *(*several)(const mu_operation_call *call); // results
};

const mu_operation_kind *mu__operation_kind(const char *keras_class); // NULL: Muster does not have it
// mu__takes_numbers_alone returns whether an operation takes numbers in Python as mu__number_alone makes them, without
// regard to the tensors beside them (NULL on error). Others take those of the type beside them.
bool mu__takes_numbers_alone(const mu_operation_kind *kind);
mu_tensor *mu__number_alone(const json_t *number);
// mu__operation_apply computes the result; belongs to the pool, NULL on error.
mu_value *mu__operation_apply(mu_operation_call *call);

#endif
