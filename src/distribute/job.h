// The job that this process is in: one mesh, shared by all strategies of one cluster.
#ifndef MU_SRC_DISTRIBUTE_JOB_H
#define MU_SRC_DISTRIBUTE_JOB_H

#include "comm/mesh.h"

// One per runtime; a process is in one job at a time.
typedef struct mu_job mu_job;

// mu__job_of returns the runtime's job; owned by the caller (mu_release).
mu_job *mu__job_of(mu_runtime *runtime);

// mu__job_enter returns the mesh of this job and counts its users. The first user makes the mesh with `join`. Later
// users must have the same peers in the same order, the same addresses and the same rank; otherwise the call fails with
// FAILED_PRECONDITION naming the difference. Blocks while another thread enters. NULL on error.
typedef mu_mesh *mu_job_join(void *arg);
mu_mesh *mu__job_enter(mu_job *job, int rank, int n, const mu_mesh_peer *peers, mu_job_join *join, void *arg);

// mu__job_leave undoes one mu__job_enter; the last user leaves the job cleanly.
void mu__job_leave(mu_job *job);

#endif
