// The job that this process is in: one mesh, which all strategies of one cluster share.
#ifndef MU_SRC_DISTRIBUTE_JOB_H
#define MU_SRC_DISTRIBUTE_JOB_H

#include "comm/mesh.h"

// One for each runtime; a process is in one job at a time.
typedef struct mu_job mu_job;

// mu__job_of is the runtime's, owned by the caller (mu_release).
mu_job *mu__job_of(mu_runtime *runtime);

// mu__job_enter returns the mesh of this job, and counts the caller in. If nobody is in it, `join` makes the mesh. Who
// is in it already must have the same peers, in the same order and at the same addresses, and the same rank: else
// FAILED_PRECONDITION, which says what differs. Blocks while another thread enters. NULL on error.
typedef mu_mesh *mu_job_join(void *arg);
mu_mesh *mu__job_enter(mu_job *job, int rank, int n, const mu_mesh_peer *peers, mu_job_join *join, void *arg);

// mu__job_leave undoes one mu__job_enter; the last one leaves the job in order.
void mu__job_leave(mu_job *job);

#endif
