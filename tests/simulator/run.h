// One simulated run: a job, what fate has in store for it, and what must hold of its end.
#ifndef MU_TESTS_RUN_H
#define MU_TESTS_RUN_H

#include "task.h"

// What happens to the job besides delays. All is drawn from the seed.
typedef enum fault {
    FAULT_NONE,
    FAULT_ABSENT,    // one or two tasks never start
    FAULT_KILL,      // a task's process dies
    FAULT_DARK,      // a host is switched off
    FAULT_RESTART,   // a task dies while the others join, and starts again
    FAULT_CUT,       // a host is cut off from another one or from all, one way or both ways, for a while
    FAULT_SLOW,      // a process is stopped for a while
    FAULT_STRANGERS, // others connect: with another key, with nonsense, or without a word
    FAULT_TWIN,      // a second process claims to be a task
    N_FAULTS
} fault;

typedef struct run {
    uint64_t seed;
    fault fault;
    int n_tasks, n_processes; // a twin is one more process
    task tasks[MOST_PROCESSES];
    mu_mesh_peer peers[MOST_TASKS];
    char addresses[MOST_TASKS][32];
    double heartbeat_s, join_s, most_delay_s;
    int victim, other; // ranks; `other` -1: all others
    bool one_way;
    bool struck;                  // the fault has happened
    int64_t strikes_ns, until_ns; // when it begins and ends
    stage stage_struck;           // of the victim
    bool all_joined_struck;       // when it began, every task had joined
} run;

void plan_run(run *r); // plan.c: draws the run
void strike(run *r);   // plan.c: lets the fault happen, when its time has come
int64_t strike_due(const run *r);
void check_run(const run *r); // check.c: what must hold at the end
const char *fault_name(fault what);

// strangers.c
void strangers_begin(const run *r);
void strangers_run(void);
int64_t strangers_due(void);
void strangers_end(void);

#endif
