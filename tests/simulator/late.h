// Requests that come a second time, and late: a process of their own sends what another one has sent before, also when
// that has ended and when another process has the address.
#ifndef MU_TESTS_LATE_H
#define MU_TESTS_LATE_H

#include "rpc/rpc.h"

enum { MOST_LATE = 8 };

typedef struct late_requests {
    int process, host; // of the one that sends them
    mu_rpc_client *client;
    const char *method;
    int n;                         // 0: nothing is sent
    mu_value *messages[MOST_LATE]; // retained
    int64_t at_ns[MOST_LATE];
    mu_rpc_result *results[MOST_LATE];
    int64_t due_ns; // when late_send is due
} late_requests;

// late_add adds a request that is sent at a time, late_begin says to which host and port they go, with which method.
// Nobody connects before that.
void late_add(late_requests *late, mu_value *message, int64_t at_ns);
void late_begin(late_requests *late, int host, int port, const char *method);
// late_send sends what is due by now, and returns when the next one is.
int64_t late_send(late_requests *late);
// late_end gives up what was not answered.
void late_end(late_requests *late);

#endif
