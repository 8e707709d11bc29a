// What the two files of `muster doctor` share: a measured pair of processes.
#ifndef MU_SRC_TOOLS_DOCTOR_H
#define MU_SRC_TOOLS_DOCTOR_H

#include "comm/mesh.h"

// Between two ranks, seen from the lower one. Travels between equal builds of this tool only.
typedef struct mu_doctor_pair {
    int32_t from, to;
    double round_trip_us, slowest_us; // median and largest of the trips
    double out_mb_s, in_mb_s;         // 1e6 bytes a second, there and back
    double resent;                    // share of the messages that had to be sent again, of the worse end
    double clock_s;                   // how far the other's clock is ahead
} mu_doctor_pair;

// mu__doctor_measure measures with `peer`, which calls it too. Every wait ends after `seconds`. Errors:
// DEADLINE_EXCEEDED, UNAVAILABLE, DATA_LOSS naming the peer.
mu_status mu__doctor_measure(mu_mesh *mesh, int peer, double seconds, mu_doctor_pair *out);

#endif
