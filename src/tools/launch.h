// Shared by the files of `muster launch`: options, a process of the job, and the lines that it writes.
//
// muster_launch.c supervises the job, launch_start.c starts one process, launch_lines.c passes on the output of all. A
// process is called a rank; each leads its own process group.
#ifndef MU_SRC_TOOLS_LAUNCH_H
#define MU_SRC_TOOLS_LAUNCH_H

#include "base/base.h"
#include "comm/sessions/net.h"

#include <sys/types.h>

enum { MU_MAX_LAUNCHED = 1024 };

typedef struct mu_launch_options {
    int n, replicas; // replicas: CPU devices per rank; 0: not given
    // With workers, rank 0 runs the program as the chief, and the others are servers (`muster serve`): first the
    // workers, then the parameter servers. 0: every rank runs the program as a worker.
    int workers, servers;
    char server_path[512]; // of this command
    const char *key;       // that the ranks are given; "": the caller's remains in force
    mu_keyring *keyring;   // of which each worker's own key is made; NULL: there are no workers apart
    int max_restarts;
    double grace, timeout; // seconds; timeout 0: none
    char **program;        // arguments, terminated by NULL
} mu_launch_options;

// The task of a rank in the cluster.
typedef struct mu_launched_task {
    const char *job;
    int index;
} mu_launched_task;
mu_launched_task mu__launched_task(const mu_launch_options *options, int rank);

// ---- Starting (launch_start.c) ------------------------------------------------------------------

// mu__default_replicas returns the default number of devices for each of n ranks: one per core of its share, the same
// for all ranks.
int mu__default_replicas(int n);

// The guard is a process that kills all ranks' groups if the launcher itself is killed.
typedef struct mu_guard {
    pid_t pid;
    int fd;
} mu_guard;
mu_status mu__guard_start(mu_guard *guard);
void mu__guard_end(mu_guard *guard);

typedef struct mu_started {
    pid_t pid;
    int out, err;  // read ends of its output
    bool terminal; // `out` is a pseudoterminal
} mu_started;

// mu__rank_start runs the program as one rank. Errors: NOT_FOUND or PERMISSION_DENIED for the program.
mu_status mu__rank_start(const mu_launch_options *options, int rank, const mu_kept_port *ports, const mu_guard *guard,
                         mu_started *out);

// ---- Lines (launch_lines.c) ---------------------------------------------------------------------

// Passes one output stream of a rank on to the launcher's own.
typedef struct mu_relay {
    int fd; // -1: ended
    int rank;
    int out;   // destination: 1 or 2
    bool bar;  // the stream is a terminal: carriage returns redraw a line
    bool over; // the line in `text` is being redrawn
    struct {
        char *items;
        size_t n, capacity;
    } text; // of the current incomplete line
} mu_relay;

// State of the last line of the terminal.
typedef struct mu_screen {
    bool terminal, plain; // plain: without cursor movement
    const mu_relay *bar;  // the stream whose progress bar is on the last line; NULL: none
    int lost;             // errno of the first line that could not be written; 0: none
} mu_screen;

void mu__screen_open(mu_screen *screen);
// mu__relay_read passes on the available output and closes the stream at its end.
mu_status mu__relay_read(mu_relay *relay, mu_screen *screen);
void mu__relay_close(mu_relay *relay, mu_screen *screen);
// mu__screen_say writes a message of the launcher to standard error.
void mu__screen_say(mu_screen *screen, const char *format, ...) MU_PRINTF(2, 3);

#endif
