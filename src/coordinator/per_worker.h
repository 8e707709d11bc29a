// Per-worker values: made once on each worker, and made again when a worker comes back.
#ifndef MU_SRC_COORDINATOR_PER_WORKER_H
#define MU_SRC_COORDINATOR_PER_WORKER_H

#include "coordinator/closure_queue.h"
#include "distribute/distribute.h"

#include <stdatomic.h>

// How the value is made: by one of two functions of the program, or it is there.
typedef struct mu_maker {
    mu_object object;
    mu_dataset *(*dataset)(void *arg); // the value is an iterator of what it returns,
    mu_dataset *made;                  // or of this; retained
    mu_value *(*value)(void *arg);
    void *arg;
    bool shared;        // where elements belong to calls, all workers have one iterator of it
    atomic_bool logged; // the log says that it cannot be sent to workers
} mu_maker;

struct mu_per_worker_resource;

// The live per-worker values of a coordinator. They keep the list, not the coordinator.
typedef struct mu_resource_list {
    mu_object object;
    mu_monitor monitor; // guards `first`
    struct mu_per_worker_resource *first;
    mu_monitor making; // held while a function of the program makes a value: they need not be thread-safe
} mu_resource_list;

typedef struct mu_per_worker_resource {
    mu_object object;
    struct mu_per_worker_resource *next; // in the list, under its lock
    mu_resource_list *list;              // retained
    mu_maker *maker;                     // retained
    int n;
    mu_remote_value **values; // [n] one for each worker: a value, an iterator of this process, or a mu_remote_input
    bool drawn_here;          // a dataset whose elements belong to calls (draws.h): no worker has it
    int64_t n_drawn;          // of its elements
} mu_per_worker_resource;

extern mu_type mu__per_worker_type;

// mu__makes_dataset returns whether a maker's value is an iterator.
static inline bool mu__makes_dataset(const mu_maker *maker) { return maker->dataset || maker->made; }

mu_resource_list *mu__resource_list_new(void); // owned by the caller

// mu__per_worker_new makes a value for n workers, which is not ready yet, and puts it into the list. Owned.
mu_per_worker_resource *mu__per_worker_new(mu_resource_list *list, int n, const mu_maker *maker, bool drawn_here);

// mu__per_worker_make calls the maker for a worker, on this thread. The result (a value or a dataset) is owned by the
// caller; NULL on error. mu__per_worker_here takes it over and returns what stays in this process: the value, or an
// iterator.
void *mu__per_worker_make(mu_strategy *strategy, mu_resource_list *list, const mu_maker *maker, int worker);
void *mu__per_worker_here(void *made);

// mu__per_worker_argument returns what a call on this worker gets: the value, the iterator's next element, or the
// worker's own input, as a leaf. It belongs to the pool; NULL on error.
mu_value *mu__per_worker_argument(const mu_per_worker_resource *per_worker, int worker);

// mu__per_worker_drawn returns the next element of a dataset that no worker has, of the datasets of worker 0, 1, … in
// rotation, which it makes if they are not there. One thread at a time. It belongs to the pool; NULL on error.
mu_value *mu__per_worker_drawn(mu_strategy *strategy, mu_per_worker_resource *per_worker);

// mu__per_worker_abort marks all values of a lost worker, except those that no worker has.
void mu__per_worker_abort(mu_resource_list *list, int worker, const mu_error_value *error);

#endif
