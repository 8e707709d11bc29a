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

#include "rpc/rpc.h"

#include <muster.h>

enum { STEP_SERVERS = 2, MOST_STEP_WORKERS = 4, MOST_STEPS = 200, MOST_RUNS = 12, MOST_DOUBLES = 16, STEP_PORT = 7000 };

typedef struct step_run {
    int process;
    int64_t begun_ns;
    bool ended;
    mu_status code; // of the op
} step_run;

typedef struct step {
    int round;
    int64_t takes_ns;
    mu_status fails;          // MU_OK: it succeeds
    bool raised;              // by the coordinator
    bool done;                // its result says that it succeeded
    double times, most_times; // that it took effect when that was last read; the most that was read
    bool noted;               // its round is over, and so many snapshots were complete by then
    int64_t snapshots;
    bool may_be_lost; // its effect, as a snapshot to which servers went back may not have it
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
    steps_task *task;  // NULL: the coordinator's
    mu_server *server; // of the one that is gone
    bool dead, disturbed;
} life;

// A request that comes again (steps_doubles.c).
typedef struct doubled {
    char method[64];     // one of the library
    int host, process;   // the receiver's; of whoever sends it again
    uint64_t call;       // the number that it had
    mu_message *message; // retained; NULL: it was sent again
    int64_t at_ns;       // MU_FOREVER: that has begun
} doubled;

typedef struct steps_run_state {
    uint64_t seed;
    int n_workers;
    bool only_kills; // no faults but the deaths of workers
    bool disturbed;  // another fault has been
    int replicas, timeouts_ignored, ps_failures_ignored;
    double snapshot_s; // between snapshots; 0: none
    bool saves;        // the program writes checkpoints
    steps_task servers[STEP_SERVERS], workers[MOST_STEP_WORKERS];
    life lives[MOST_LIVES];
    int n_processes, coordinator_process, coordinator_host;
    int n_faults;
    int64_t strikes_ns, server_ns; // when the next fault comes; until when one was about a server
    int64_t full_ns;               // until when disks are full; 0: they never were
    bool crowded; // servers were struck so soon one after the other that copies could not be made between
    doubled doubles[MOST_DOUBLES];
    int n_doubles, most_doubles;
    mu_ps_recovery recovery;  // when that was last noted
    int64_t noted_ns;         // when that was
    double saved[MOST_STEPS]; // what the last checkpoint says
    int n_saved, n_lost;
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
typedef struct program {
    mu_strategy *strategy;
    mu_coordinator *coordinator;
    mu_variable *variables[STEP_SERVERS];
    mu_function *functions[STEP_SERVERS];
    mu_value *own;
} program;
mu_status steps_register_op(void);
void steps_program(void *arg); // the coordinator's thread

// steps_kept.c
void note_recovery(const program *p); // what was lost by going back to snapshots
void note_effects(const program *p);
void check_effects(const program *p); // after all steps
void save_checkpoint(const program *p);

// steps_doubles.c
void doubles_send(void *arg); // a doubled request; the thread of a process of its own
void doubles_end(void);

#endif
