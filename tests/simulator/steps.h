// A simulated cluster with a coordinator: the shipped coordinator with its dispatchers, workers and servers, all on
// threads of their own on virtual time (threads.h), with a checker that knows every run of every step.
//
// A step is a function with an op of this program (steps_program.c) in front of an addition to a variable on a server.
// The op says which process runs which step, takes a while, and fails if the step is one that fails. So the checker
// sees each run, whatever the coordinator is told of it, and the variables say how often each step took effect.
#ifndef MU_TESTS_STEPS_H
#define MU_TESTS_STEPS_H

#include "seeds.h"
#include "threads.h"

#include <muster.h>

enum { STEP_SERVERS = 2, MOST_STEP_WORKERS = 4, MOST_STEPS = 200, MOST_RUNS = 12, STEP_PORT = 7000 };

typedef struct step_run {
    int process;
    int64_t begun_ns;
    bool ended;
    mu_status code; // of the op
} step_run;

typedef struct step {
    int round;
    int64_t takes_ns;
    mu_status fails; // MU_OK: it succeeds
    bool raised;     // by the coordinator
    bool done;       // its result says that it succeeded
    double times;    // that it took effect when that was last read
    step_run runs[MOST_RUNS];
    int n_runs;
    mu_value *result; // of mu_schedule; of the round's pool
} step;

// A worker or a server, one process after the other.
typedef struct steps_task {
    bool worker;
    int index, host, process;
    mu_server *server; // retained; NULL: not there
    bool alive;
    int64_t start_ns; // when the next process begins
} steps_task;

// One process; it has died, or was stopped or cut off for a while, so that others may have taken it for dead.
typedef struct life {
    steps_task *task; // NULL: the coordinator's
    mu_server *server; // of the one that is gone
    bool dead, disturbed;
} life;

typedef struct steps_run_state {
    uint64_t seed;
    int n_workers;
    bool only_kills;      // no faults but the deaths of workers
    bool disturbed;       // another fault has been
    int replicas, timeouts_ignored, ps_failures_ignored;
    steps_task servers[STEP_SERVERS], workers[MOST_STEP_WORKERS];
    life lives[MOST_LIVES];
    int n_processes, coordinator_process, coordinator_host;
    int n_faults;
    int64_t strikes_ns, server_ns; // when the next fault comes; until when one was about a server
    step steps[MOST_STEPS];
    int n_steps, n_rounds, round, closed; // closed: rounds below are over
    int n_again, n_errors, n_cancelled;   // runs of steps that had run before; errors raised
    int n_ignored;                        // of the former, after an error that is ignored
    bool kept;                            // the effects of all rounds that are over were read
    bool over;                            // the program has ended
    mu_coordinator *coordinator;
} steps_run_state;

extern steps_run_state steps_now;

// steps_program.c
mu_status steps_register_op(void);
void steps_program(void *arg); // the coordinator's thread

#endif
