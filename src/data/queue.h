// Elements that threads make ahead: a ring of slots, filled and emptied in the order of their sequence numbers.
//
// A maker thread takes a sequence number and an input (one maker at a time, so inputs go with sequence numbers in
// order), makes the element, and puts it into that number's slot; the reader waits for the slot of its next number. So
// the order does not depend on the number of makers. An error travels in its slot. Knows nothing of stages.
#ifndef MU_SRC_DATA_QUEUE_H
#define MU_SRC_DATA_QUEUE_H

#include "data/dataset.h"

// How elements are made, on the makers' threads; a failing function leaves its record with the thread.
typedef struct mu_queue_ops {
    const char *name;
    mu_status (*take)(void *arg, mu_item *item, bool *end);  // the next input; one call at a time
    mu_status (*make)(void *arg, mu_item *item);             // input to element; several at once. Optional
} mu_queue_ops;

typedef struct mu_queue mu_queue;

// mu__queue_open starts n_threads makers for a ring of n_slots. Owned by the caller.
mu_queue *mu__queue_open(const mu_queue_ops *ops, void *arg, int64_t n_slots, int n_threads);

// mu__queue_close stops the makers, waits for what they are making, and drops it. NULL is accepted.
void mu__queue_close(mu_queue *queue);

// mu__queue_get waits for the next element. Errors: what making it failed with; CANCELLED after a signal;
// DEADLINE_EXCEEDED when MUSTER_TIMEOUT has passed.
mu_status mu__queue_get(mu_queue *queue, mu_item *item, bool *end);

#endif
