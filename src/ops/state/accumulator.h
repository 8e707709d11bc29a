// Accumulators inside the library: what the operations and the loops of accumulators share.
//
// An accumulator is an opaque resource: the buffer of it that kernels get has its address (mu__accumulator_of).
#ifndef MU_SRC_OPS_ACCUMULATOR_H
#define MU_SRC_OPS_ACCUMULATOR_H

#include "ops/core/op.h"
#include "ops/state/budget.h"

#include <muster/accumulator.h>
#include <pthread.h>

// The sum of some gradients. Sparse: row i of the values belongs to indices[i], and counts[i] gradients had that row.
typedef struct mu_gradient_sum {
    mu_shape shape;    // of the values
    mu_buffer *buffer; // of the values, so that a tensor can take it over
    void *values;
    size_t bytes;
    int64_t *indices; // sparse; these two are from mu__alloc
    int64_t *counts;
    int64_t n; // number of gradients
} mu_gradient_sum;
void mu__gradient_sum_free(mu_gradient_sum *sum);
size_t mu__gradient_sum_bytes(const mu_gradient_sum *sum); // that it holds

struct mu_take_request;

// A gradient that is kept apart (accumulator_kept.c).
typedef struct mu_kept_gradient {
    int64_t attempt;
    void *values; // owned
} mu_kept_gradient;

// How an accumulator is reached that another process keeps. What it waits for there, this thread's cancellation ends.
typedef struct mu_accumulator_keeper {
    // take returns [values], of a sparse accumulator [indices, values, shape]; it belongs to the pool. NULL on error.
    mu_value *(*take)(mu_accumulator *accumulator, int64_t required, double timeout_s);
    mu_status (*close)(mu_accumulator *accumulator);
} mu_accumulator_keeper;

struct mu_accumulator {
    mu_resource resource; // first; its name is the shared name, if it has one; its spec has the type and no elements
    const mu_accumulator_keeper *keeper; // NULL: this process keeps it; else the kind sends ops to resource.home
    bool sparse, mean;
    char *shared_name; // NULL: none
    int declared_rank; // -1: any shape
    mu_shape declared;
    pthread_mutex_t lock;
    pthread_cond_t taken; // a request was served, or a wait has another reason to look
    int made;             // how many of the two exist
    // Under the lock:
    int64_t step;
    mu_gradient_sum sum;
    struct mu_take_request *first, *last; // takes that wait, in the order of their calls
    int n_waiting;
    bool closed;
    struct {
        mu_kept_gradient *items;
        size_t n, capacity;
    } kept;
    mu_holder holder; // of the bytes of `sum` and `kept`
};

// mu__accumulator_new makes an accumulator from checked arguments; owned by the caller.
mu_accumulator *mu__accumulator_new(const mu_conditional_accumulator_args *args, bool sparse);

// mu__accumulator_budget makes an accumulator, which no other thread has yet, take the bytes of its gradients from a
// budget, those that it has too. Errors: RESOURCE_EXHAUSTED.
mu_status mu__accumulator_budget(mu_accumulator *accumulator, mu_byte_budget *budget);
// mu__accumulator_reserve reserves bytes for a gradient. Errors: RESOURCE_EXHAUSTED, which names the largest holders.
mu_status mu__accumulator_reserve(mu_accumulator *accumulator, size_t bytes);

// mu__accumulator_seconds returns how long an op with these attributes waits; 0: it is not a take, or MUSTER_TIMEOUT.
double mu__accumulator_seconds(const mu_op *op, const void *attrs);

extern const mu_resource_kind mu__dense_accumulator_kind, mu__sparse_accumulator_kind;

static inline mu_accumulator *mu__accumulator_of(const mu_kernel *kernel) { return kernel->resources[0].data; }

// mu__accumulator_apply adds a gradient of the accumulator's type. `indices` (int64) and `shape` (int64, may be NULL)
// are those of a sparse gradient, NULL for a dense one.
mu_status mu__accumulator_apply(mu_accumulator *accumulator, int64_t local_step, const mu_view *values,
                                const mu_view *indices, const mu_view *shape);

// mu__accumulator_take waits for `required` gradients and moves their sum to `out`, which the caller frees. `expected`:
// the shape of the values (MU_UNKNOWN where any size will do); NULL: any. A sum of another shape stays, and the take
// fails with INVALID_ARGUMENT. timeout_s 0: MUSTER_TIMEOUT. `block`, unless it is NULL, gets memory for the sum's
// indices and values, which the caller frees; if there is none, the sum stays: RESOURCE_EXHAUSTED.
mu_status mu__accumulator_take(mu_accumulator *accumulator, int64_t required, double timeout_s,
                               const mu_shape *expected, mu_measured *block, mu_gradient_sum *out);

mu_status mu__accumulator_set_step(mu_accumulator *accumulator, int64_t step);
mu_status mu__accumulator_count(mu_accumulator *accumulator, int64_t *out);
// mu__accumulator_ready returns whether a take would not wait: enough gradients are there, or it is closed.
bool mu__accumulator_ready(mu_accumulator *accumulator, int64_t required);

// mu__accumulator_result writes what a take returns: the values of `sum`, divided if the accumulator averages. `out`
// may be the sum's own values.
void mu__accumulator_result(const mu_accumulator *accumulator, const mu_gradient_sum *sum, void *out);

// ---- Gradients that are kept apart (accumulator_kept.c) -----------------------------------------

// mu__accumulator_keep keeps a gradient under an attempt's number (an int64 scalar), unless that is below the global
// step. mu__accumulator_take_kept returns the sum of those of `attempts` (int64 [n]) in this order, and sets the global
// step, which drops all gradients with a lower number. Ops, for accumulators with a known shape. Errors:
// FAILED_PRECONDITION for an attempt that is not there.
mu_status mu__accumulator_keep(mu_accumulator *accumulator, mu_tensor *attempt, mu_tensor *gradient);
mu_tensor *mu__accumulator_take_kept(mu_accumulator *accumulator, mu_tensor *attempts, mu_tensor *step);
void mu__accumulator_drop_kept(mu_accumulator *accumulator, int64_t below); // with the lock, if threads use it

// ---- As a value (accumulator_saved.c) -----------------------------------------------------------

// mu__accumulator_save returns all that an accumulator has, of the pool; mu__accumulator_load makes one of it, owned by
// the caller, that answers as the first does. It trusts nothing. Errors: DATA_LOSS.
mu_value *mu__accumulator_save(mu_accumulator *accumulator);
mu_accumulator *mu__accumulator_load(const char *name, const mu_value *value);

// ---- Sums (accumulator_sum.c) -------------------------------------------------------------------

// mu__dense_add and mu__sparse_add check a gradient against the sum so far and the declared shape, and add it. On
// failure the accumulator is unchanged. The caller holds the lock.
mu_status mu__dense_add(mu_accumulator *accumulator, const mu_view *gradient);
mu_status mu__sparse_add(mu_accumulator *accumulator, const mu_view *values, const mu_view *indices,
                         const mu_view *shape);

// sum[i] += x[i], and out[i] = x[i] / count, in the type's own arithmetic.
void mu__add_elements(mu_dtype dtype, void *sum, const void *x, int64_t n);
void mu__divide_elements(mu_dtype dtype, void *out, const void *x, int64_t n, int64_t count);

#endif
