// Values that each worker has for itself: made once on each, and made again when a worker comes back.
#ifndef MU_SRC_COORDINATOR_PER_WORKER_H
#define MU_SRC_COORDINATOR_PER_WORKER_H

#include "coordinator/closure_queue.h"
#include "distribute/distribute.h"

// How the value is made: one of two functions of the program.
typedef struct mu_maker {
    mu_object object;
    mu_dataset *(*dataset)(void *arg);  // the value is an iterator of what it returns
    mu_value *(*value)(void *arg);
    void *arg;
} mu_maker;

struct mu_per_worker_resource;

// The live per-worker values of a coordinator. They keep the list, not the coordinator.
typedef struct mu_resource_list {
    mu_object object;
    mu_monitor monitor;           // guards `first`
    struct mu_per_worker_resource *first;
    mu_monitor making;            // held while a function of the program makes a value: they need not be thread-safe
} mu_resource_list;

typedef struct mu_per_worker_resource {
    mu_object object;
    struct mu_per_worker_resource *next;   // in the list, under its lock
    mu_resource_list *list;       // retained
    mu_maker *maker;              // retained
    int n;
    mu_remote_value **values;     // [n] one for each worker
} mu_per_worker_resource;

extern mu_type mu__per_worker_type;

mu_resource_list *mu__resource_list_new(void);  // owned by the caller

// mu__per_worker_new makes a value for n workers, which is not ready yet, and puts it into the list. Owned.
mu_per_worker_resource *mu__per_worker_new(mu_resource_list *list, int n, const mu_maker *maker);

// mu__per_worker_make calls the maker for a worker, on this thread. The result (a value or an iterator) is owned by the
// caller; NULL on error.
void *mu__per_worker_make(mu_strategy *strategy, mu_resource_list *list, const mu_maker *maker, int worker);

// mu__per_worker_argument returns what a call on this worker gets: the value, or the iterator's next element. It
// belongs to the pool; NULL on error.
mu_value *mu__per_worker_argument(const mu_per_worker_resource *per_worker, int worker);

// mu__per_worker_abort marks all values of a lost worker.
void mu__per_worker_abort(mu_resource_list *list, int worker, const mu_error_value *error);

#endif
