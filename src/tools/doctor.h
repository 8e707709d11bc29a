// Shared by the two files of `muster doctor`: the measurements of a pair of processes.
#ifndef MU_SRC_TOOLS_DOCTOR_H
#define MU_SRC_TOOLS_DOCTOR_H

#include "comm/mesh/mesh.h"

// Measured by the lower rank, `from`. Only processes of the same build exchange this struct.
typedef struct mu_doctor_pair {
    int32_t from, to;
    double round_trip_us, slowest_us; // median and maximum
    double out_mb_s, in_mb_s;         // 1e6 bytes per second, from `from` to `to` and back
    double resent;                    // fraction of messages that were retransmitted, at the worse end
    double clock_s;                   // how far the clock of `to` is ahead, in seconds
} mu_doctor_pair;

// mu__doctor_measure measures the connection with `peer`, which must call it too. Every wait ends after `seconds`.
// Errors: DEADLINE_EXCEEDED, UNAVAILABLE, DATA_LOSS naming the peer.
mu_status mu__doctor_measure(mu_mesh *mesh, int peer, double seconds, mu_doctor_pair *out);

#endif
