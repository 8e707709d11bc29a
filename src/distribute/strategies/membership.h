// How a strategy of several workers is made: it joins the job, then its replicas take part in the groups of all
// (multi_worker.c). Strategies of the kinds MultiWorkerMirroredStrategy and TPUStrategy are.
#ifndef MU_SRC_DISTRIBUTE_MEMBERSHIP_H
#define MU_SRC_DISTRIBUTE_MEMBERSHIP_H

#include "cluster/cluster.h"
#include "distribute/distribute.h"
#include "distribute/core/job.h"

// The workers, in the order of their indices; owned.
typedef struct mu_bootstrap {
    int n;
    mu_mesh_peer *peers;
    char **names;
} mu_bootstrap;

// Everything that a strategy needs, collected before it is made.
typedef struct mu_membership {
    mu_cluster *cluster;  // borrowed
    const char *function; // that the program has called
    const char *kind;     // of the strategy; workers compare it
    mu_communication_options options;
    int worker, n_workers;
    bool gpus; // whether this worker has GPUs; once workers have agreed: whether every worker has
    mu_bootstrap bootstrap;
    struct mu_job *job;
    mu_mesh *mesh; // retained by mu__job_enter; NULL for one worker
} mu_membership;

// mu__bootstrap_reserve allocates the lists of n workers at most; mu__bootstrap_job adds the tasks of a job.
mu_status mu__bootstrap_reserve(mu_bootstrap *bootstrap, int workers);
mu_status mu__bootstrap_job(const mu_cluster_spec *spec, const char *job, mu_bootstrap *bootstrap);
void mu__bootstrap_free(mu_bootstrap *bootstrap);

// mu__membership_enter joins the job of the bootstrap's workers, unless there is only one. mu__membership_leave undoes
// it.
mu_status mu__membership_enter(mu_membership *membership);
void mu__membership_leave(mu_membership *membership);
// mu__membership_tell sends the pending error to the other workers, which would otherwise wait for this process.
void mu__membership_tell(mu_mesh *mesh);
// mu__membership_take_part makes a strategy of local replicas (owned; NULL: there is an error) one of all workers'. It
// takes the job over. NULL on error.
mu_strategy *mu__membership_take_part(mu_membership *membership, mu_strategy *strategy);

#endif
