// What records values of a running graph for people to look at: summaries for TensorBoard
// (model/callbacks/summary_writer.c).
//
// A recorder is an opaque resource: the buffer of it that kernels get has its address.
#ifndef MU_SRC_OPS_RECORDER_H
#define MU_SRC_OPS_RECORDER_H

#include "ops/core/op.h"

#define MU_RECORDER_KIND "recorder"

typedef struct mu_record_attrs {
    char name[MU_ATTR_MESSAGE_BYTES];
    int64_t form;   // what the recorder makes of the tensor
    int64_t detail; // of this form: a number of buckets or images, …
} mu_record_attrs;

typedef struct mu_recorder mu_recorder;
struct mu_recorder {
    mu_resource resource; // first
    // record is called in each run, on the first replica's thread; it locks what it needs.
    mu_status (*record)(mu_recorder *recorder, const mu_record_attrs *attrs, int64_t step, mu_tensor *data);
};

// mu__recorder_make makes a recorder of a struct that begins with one, by mu__new; mu__recorder_free releases what it
// made.
mu_status mu__recorder_make(mu_recorder *recorder, const char *name);
void mu__recorder_free(mu_recorder *recorder);
// mu__record adds the recording of a tensor to the trace in progress. `step`: an int64 scalar.
mu_status mu__record(mu_recorder *recorder, const mu_record_attrs *attrs, mu_tensor *step, mu_tensor *data);

#endif
