// A task of the simulated job: the shipped mesh, and a script of what its program does with it.
#ifndef MU_TESTS_TASK_H
#define MU_TESTS_TASK_H

#include "seeds.h"
#include "world.h"

#include "comm/mesh/mesh.h"

enum { MOST_TASKS = 16, MOST_PROCESSES = 32, TIMEOUT_S = 20, WORD_BYTES = 48 };

typedef enum stage {
    STAGE_ABSENT, // not started
    STAGE_JOINING,
    STAGE_WORKING, // computes until next_ns, then exchanges, or leaves after the last exchange
    STAGE_EXCHANGING,
    STAGE_STREAMING, // after the first exchange: opens streams to others and tells them a word
    STAGE_LEAVING,
    STAGE_ENDED,
    STAGE_DEAD // killed
} stage;

typedef struct task {
    int process, host, rank;
    mu_mesh_options options;
    int n_exchanges;   // that its script makes
    int n_streams;     // that its script opens, one to each of as many others
    int64_t linger_ns; // how long it stays after the last exchange
    int64_t start_ns;  // MU_FOREVER: never
    int64_t paused_ns; // it does not run before this time
    stage stage;
    int64_t since_ns; // when the stage began
    int64_t due_ns;   // when the mesh wants its next step
    int64_t next_ns;  // WORKING: until when; STREAMING: when it looks again
    mu_mesh *mesh;
    mu_exchange exchange;
    int exchanged;              // exchanges that succeeded
    mu_stream_opening *opening; // STREAMING: until the stream is open
    mu_stream *stream;
    size_t sent, received; // bytes of the words on it
    char received_word[WORD_BYTES];
    int streamed; // streams that it is done with
    bool joined;
    int64_t joined_ns, failed_ns;
    mu_error_value error; // why its program ended; code MU_OK: it did all
} task;

// task_run does all that a task has to do now. task_due is when it wants to run again. task_kill ends its process.
void task_run(task *t);
int64_t task_due(const task *t);
void task_kill(task *t);
void task_free(task *t);
const char *task_name(int rank);
bool task_is_over(const task *t);

// What every run must hold. They say what went wrong, and the run fails.
// The blocks of one exchange are the same on every task that completes it: keeps the first ones, compares the others.
void check_blocks(int exchange, const mu_blocks *blocks);

#endif
