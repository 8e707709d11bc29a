// What the source files of eager replicas share: the replicas of a run, and what a paused one waits for.
#ifndef MU_SRC_DISTRIBUTE_EAGER_REPLICAS_H
#define MU_SRC_DISTRIBUTE_EAGER_REPLICAS_H

#include "distribute/distribute.h"

typedef enum rendezvous_kind {
    RENDEZVOUS_MERGE,
    RENDEZVOUS_ASSIGN,
    RENDEZVOUS_REDUCE, // from here on collectives
    RENDEZVOUS_GATHER,
    RENDEZVOUS_BROADCAST,
    RENDEZVOUS_SCATTER,
    RENDEZVOUS_PERMUTE
} rendezvous_kind;

// The operation that a paused replica waits for; it is on that replica's stack.
typedef struct rendezvous {
    rendezvous_kind kind;
    const char *name;            // name of the collective or of the assigned variable; NULL: a merge
    const mu_variable *variable; // variable that is assigned
    mu_update update;            // kind of assignment
    mu_merge_fn *fn;
    void *arg;
    mu_value *arguments, *result; // the result is owned
    mu_reduction reduction;
    mu_dtype dtype;
    const void *in;
    void *data;
    int64_t count;
    const int64_t *counts; // of a gather; the sources of a permute
    int root;
    const mu_form *form; // of a collective
} rendezvous;

typedef enum eager_state { NOT_STARTED, PAUSED, ENDED } eager_state;

typedef struct eager_replica {
    mu_strategy_replica head; // first
    mu_collective collective;
    mu_form form; // form of the next collective
    pthread_t thread;
    eager_state stage;
    mu_value *arguments, *result; // owned
    mu_error_value error;
    rendezvous *rendezvous;
} eager_replica;

// A variable made by replica 0, and how many other replicas have received it.
typedef struct made_variable {
    mu_variable *variable; // retained
    int taken;
} made_variable;

struct mu_eager_replicas {
    mu_strategy *strategy;
    int64_t number; // number of this run, recorded in tensors that replicas make
    mu_strategy_scope scope;
    mu_context *caller;
    mu_replica_fn *fn;
    void *arg;
    int n;
    eager_replica *replicas;
    mu_error_value cause; // first error of the run
    struct {
        made_variable *items;
        size_t n, capacity;
    } made;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int whose; // replica that may run; -1: the coordinator
};

// mu__eager_rendezvous pauses a replica until the coordinator has carried out the operation (eager_replicas.c).
mu_status mu__eager_rendezvous(eager_replica *t, rendezvous *what);

// Collectives (eager_collectives.c). mu__eager_collective fills the slots of a replica's communicator, and
// mu__eager_collect carries out the collective at which all replicas of the run have paused, on the coordinator.
void mu__eager_collective(mu_collective *collective);
mu_status mu__eager_collect(const struct mu_eager_replicas *run);

#endif
