// Between the files of `muster launch`: what was asked for, a process of the job, and the lines it writes.
//
// launch.c watches over the job, launch_start.c starts one process, launch_lines.c passes on what all of them
// write. A process is called a rank here, by its number; each is the leader of a process group of its own.
#ifndef MU_SRC_TOOLS_LAUNCH_H
#define MU_SRC_TOOLS_LAUNCH_H

#include "base/base.h"
#include "comm/net.h"

#include <sys/types.h>

enum { MU_MAX_LAUNCHED = 1024 };

typedef struct mu_launch_options {
    int n, replicas;       // replicas: CPU devices of each; 0: not said
    int max_restarts;
    double grace, timeout; // seconds; timeout 0: none
    char **program;        // ends with NULL
} mu_launch_options;

// ---- Starting (launch_start.c) ------------------------------------------------------------------

// mu__default_replicas is how many devices each of n ranks gets unless told: one per core of its share, the same for
// all.
int mu__default_replicas(int n);

// The guard is a process that ends all ranks' groups should the launcher itself be killed.
typedef struct mu_guard {
    pid_t pid;
    int fd;
} mu_guard;
mu_status mu__guard_start(mu_guard *guard);
void mu__guard_end(mu_guard *guard);

typedef struct mu_started {
    pid_t pid;
    int out, err;  // what it writes
    bool terminal; // `out` is a terminal made for it
} mu_started;

// mu__rank_start runs the program as one rank; an empty key leaves the caller's in force. Errors: NOT_FOUND,
// PERMISSION_DENIED for the program.
mu_status mu__rank_start(const mu_launch_options *options, int rank, const mu_kept_port *ports, const char *key,
                         const mu_guard *guard, mu_started *out);

// ---- Lines (launch_lines.c) ---------------------------------------------------------------------

// One stream of one rank on its way to the launcher's own.
typedef struct mu_relay {
    int fd;   // -1: ended
    int rank;
    int out;  // 1 or 2
    bool bar; // a terminal: carriage returns draw a line again
    bool over; // the line in `text` is one that is drawn again
    struct {
        char *items;
        size_t n, capacity;
    } text; // of the line that is not ended yet
} mu_relay;

// What stands on the terminal's last line.
typedef struct mu_screen {
    bool terminal, plain; // plain: no cursor movement
    const mu_relay *bar;  // whose line stands there; NULL: none
    int lost;             // errno of the first line that could not be written; 0: none
} mu_screen;

void mu__screen_open(mu_screen *screen);
// mu__relay_read passes on what there is; at the end of the stream it closes it.
mu_status mu__relay_read(mu_relay *relay, mu_screen *screen);
void mu__relay_close(mu_relay *relay, mu_screen *screen);
// mu__screen_say writes a line of the launcher itself to standard error.
void mu__screen_say(mu_screen *screen, const char *format, ...) MU_PRINTF(2, 3);

#endif
