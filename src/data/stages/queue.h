// A ring buffer of prefetched elements, filled and emptied in the order of their sequence numbers.
//
// A producer thread takes a sequence number and an input (one producer at a time, so inputs are numbered in order),
// makes the element, and puts it into that number's slot. The reader waits for the slot of its next number. So the
// order does not depend on the number of producers. An error is stored in its slot. The queue does not depend on
// stages.
#ifndef MU_SRC_DATA_QUEUE_H
#define MU_SRC_DATA_QUEUE_H

#include "data/dataset.h"

// How producer threads make elements; a function that fails records an error on its thread.
typedef struct mu_queue_ops {
    const char *name;
    mu_status (*take)(void *arg, mu_item *item, bool *end); // the next input; one call at a time
    mu_status (*make)(void *arg, mu_item *item);            // input to element; several calls at a time. Optional
} mu_queue_ops;

typedef struct mu_queue mu_queue;

// mu__queue_open starts n_threads producers for a ring of n_slots slots. Owned by the caller.
mu_queue *mu__queue_open(const mu_queue_ops *ops, void *arg, int64_t n_slots, int n_threads);

// mu__queue_close stops the producers, waits for elements in progress, and drops them. NULL is accepted.
void mu__queue_close(mu_queue *queue);

// mu__queue_get waits for the next element. Errors: the producer's error; CANCELLED after a signal; DEADLINE_EXCEEDED
// after MUSTER_TIMEOUT.
mu_status mu__queue_get(mu_queue *queue, mu_item *item, bool *end);

#endif
