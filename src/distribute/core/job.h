// The job that this process is in: one mesh, shared by all strategies of one cluster.
#ifndef MU_SRC_DISTRIBUTE_JOB_H
#define MU_SRC_DISTRIBUTE_JOB_H

#include "comm/mesh/mesh.h"
#include "engine/engine.h"

// One per runtime; a process is in one job at a time.
typedef struct mu_job mu_job;

// mu__job_of returns the runtime's job; owned by the caller (mu_release).
mu_job *mu__job_of(mu_runtime *runtime);

// mu__job_enter returns the mesh of this job and counts its users. The first user makes the mesh with `join`. Later
// users must have the same peers in the same order, the same addresses and the same rank; otherwise the call fails with
// FAILED_PRECONDITION naming `function` and the difference. Blocks while another thread enters. NULL on error.
typedef mu_mesh *mu_job_join(void *arg);
mu_mesh *mu__job_enter(mu_job *job, const char *function, int rank, int n, const mu_mesh_peer *peers, mu_job_join *join,
                       void *arg);

// mu__job_leave undoes one mu__job_enter; the last user leaves the job cleanly.
void mu__job_leave(mu_job *job);

// mu__job_launches returns the lock that a thread holds from the workers' agreement on a program for the devices of all
// of them until it has launched it: all processes queue such programs in one order.
pthread_mutex_t *mu__job_launches(mu_job *job);

// mu__job_next_launch numbers such a program, in that order. Called with the lock held.
int64_t mu__job_next_launch(mu_job *job);

// ---- The devices of all processes (device_world.c) ----------------------------------------------

// mu__world_new makes the world of a mesh's processes (retained); the caller owns it, NULL on error. While the process
// is in a job, the devices that a plugin makes are part of that job's world. mu__world_end ends it (NULL: nothing):
// what is still asked of it fails.
mu_device_world *mu__world_new(mu_mesh *mesh);
void mu__world_end(mu_device_world *world);

// ---- What workers compare (multi_worker.c) ------------------------------------------------------

// mu__arithmetic_text writes what the bits of a result depend on in addition to the program: the instruction sets of
// kernels and of oneDNN, the type in which oneDNN multiplies bfloat16 (which also depends on the processor's maker),
// and whether the compiler has made loops for each set (MU_PER_ISA), whose sums it then fuses with products.
enum { MU_ARITHMETIC_TEXT = 160 };
void mu__arithmetic_text(char text[MU_ARITHMETIC_TEXT]);

#endif
