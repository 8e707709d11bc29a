// The server of MU_TEST_API, a Python program that speaks a web API: started, and ended.
#ifndef MU_TESTS_API_SERVER_H
#define MU_TESTS_API_SERVER_H

#include "cluster_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

// Starts it with one argument (NULL: none). Returns the port that it prints; -1 if it does not.
static inline int start_api(const char *argument, pid_t *server)
{
    int ends[2], port = -1;
    if (pipe(ends) != 0)
        return -1;
    if ((*server = fork()) == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execlp("python3", "python3", MU_TEST_API, argument, NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *out = fdopen(ends[0], "r");
    if (!out || fscanf(out, "%d", &port) != 1)
        port = -1;
    if (out)
        fclose(out);
    return port;
}

static inline void stop_api(pid_t server)
{
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
}

#endif
