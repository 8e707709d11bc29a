// A key-value store of a job: bytes by name, written once, read by every process. Rank 0 keeps the values.
//
// Runtimes whose devices form one world over several processes exchange their devices' descriptions through it (PJRT's
// key-value callbacks). Keys and values are bytes; sizes are bounded, so that no process can fill rank 0's memory.
#ifndef MU_SRC_COMM_KEY_VALUE_H
#define MU_SRC_COMM_KEY_VALUE_H

#include "comm/mesh/mesh.h"

enum {
    MU_MAX_KEY = 1024,                       // bytes of a key, which has at least one
    MU_MAX_KEY_VALUE = (1 << 20) - 2 * 1024, // bytes of a value; key and value fit into one request
    MU_MOST_KEYS = 16384,                    // in one job
    MU_MOST_KEY_BYTES = 256 << 20,           // of all keys and values of a job
    MU_MOST_KEY_WAITS = 1024,                // gets of one process that wait at a time
    MU_MOST_KEY_SECONDS = 3600               // longest wait of one get
};

// mu__key_value_put stores a value. Blocks until rank 0 has it, at most MUSTER_TIMEOUT. Errors: ALREADY_EXISTS;
// INVALID_ARGUMENT for sizes beyond the limits; RESOURCE_EXHAUSTED if the store is full; the job's failure.
mu_status mu__key_value_put(mu_mesh *mesh, const void *key, size_t key_bytes, const void *value, size_t bytes);

// mu__key_value_get returns a value, which the caller frees with mu__free, and waits for it at most `seconds`. Errors:
// NOT_FOUND if seconds is 0 and there is no such key; DEADLINE_EXCEEDED naming the key and the processes that have put
// none; the job's failure, which names the process that died; CANCELLED by a signal.
mu_status mu__key_value_get(mu_mesh *mesh, const void *key, size_t key_bytes, double seconds, void **value,
                            size_t *bytes);

// ---- What processes send (for the mesh, and for tests) ------------------------------------------

// A request's method is one of these words; its data are a number and a key, and in a put the value.
#define MU_KEY_VALUE_PUT "key_value/put"
#define MU_KEY_VALUE_GET "key_value/get"
typedef struct mu_key_request {
    bool put;
    uint32_t milliseconds;      // of a get: how long it waits; 0: not at all
    const uint8_t *key, *value; // point into the request; value NULL in a get
    size_t key_bytes, bytes;
} mu_key_request;
// mu__key_request_read reads an unchecked request; false: it is malformed, or beyond the limits.
bool mu__key_request_read(const char *method, const void *data, size_t bytes, mu_key_request *out);

#endif
