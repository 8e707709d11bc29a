// Shared by the files of the base layer; no other layer includes this.
//
// The inside of a runtime (settings, slots, timeline), and the functions that connect pools, contexts, the log and
// the signal handler.
#ifndef MU_SRC_BASE_PRIVATE_H
#define MU_SRC_BASE_PRIVATE_H

#include "base/base.h"

#include <pthread.h>

// ---- Memory (memory.c, allocator.c) -------------------------------------------------------------

// Whether the next allocation may proceed (tests make one fail), and the error for one that failed.
bool mu__alloc_allowed(void);
void *mu__alloc_checked(void *block, size_t bytes);

// mu__blocks_drain frees the blocks that the calling thread has cached.
void mu__blocks_drain(void);

// ---- Settings (settings.c) ----------------------------------------------------------------------

typedef struct mu_setting_value {
    char *text;      // owned; NULL: not set
    int64_t integer; // booleans too
    double real;
    const char *origin; // "default", "environment" or "mu_init"
} mu_setting_value;

typedef struct mu_settings {
    mu_setting_value values[MU_N_SETTINGS];
} mu_settings;

// mu__settings_read fills zeroed `out` from the defaults, the environment and the arguments of mu_init.
mu_status mu__settings_read(mu_settings *out, const mu_runtime_args *args);
void mu__settings_free(mu_settings *settings);

// The level that MU_SETTING_LOG names.
mu_log_level mu__settings_log_level(const mu_settings *settings);

// mu__settings_unknown warns of each MUSTER_ variable that matches no setting.
void mu__settings_unknown(void);

// ---- Runtime (runtime.c) ------------------------------------------------------------------------

typedef struct mu_slot_entry {
    _Atomic(void *) value;
    void (*destroy)(void *value);
} mu_slot_entry;

struct mu_runtime {
    mu_object object;
    int number; // 0: the default one
    mu_settings settings;
    mu_log_level log_level;
    int *cpus; // allowed processors; read and changed under the lock
    int n_cpus;
    atomic_int n_threads; // fewer than n_cpus under a quota or a limit
    _Atomic uint64_t seed;
    _Atomic uint64_t n_seeds; // seeds handed out since the seed was set
    _Atomic uint64_t seed_epoch;
    pthread_mutex_t lock; // recursive: creating one slot may need another
    bool has_lock;
    mu_slot_entry slots[MU_N_SLOTS];
    mu_slot made[MU_N_SLOTS]; // in order of creation
    int n_made;
    struct mu_timeline *timeline; // NULL: off
    atomic_bool kept;             // mu__runtime_keep
};

// mu__runtime_present returns the runtime without creating one; NULL if there is none yet.
mu_runtime *mu__runtime_present(void);

// ---- Pools and contexts (object_pool.c, context.c) ----------------------------------------------

// mu__pool_push opens a pool in a context that need not be current.
mu_pool *mu__pool_push(mu_context *context);

// mu__pool_grows counts an object that a large pool got, and warns once of a loop that leaves more on each iteration.
// `n` is the number of objects in the pool, `depth` the number of public calls that were in progress when it was opened
// (pool_growth.c).
typedef struct mu_pool_growth mu_pool_growth;
mu_status mu__pool_grows(mu_pool_growth **growth, const mu_object *object, size_t n, int depth);

// mu__pools_close closes every pool of the context.
void mu__pools_close(mu_context *context);

// mu__context_unwind closes the pools of this thread's contexts and makes its outermost context current.
void mu__context_unwind(void);

// Storage for the message that mu_error_take last returned on this thread.
mu_error_value *mu__context_taken(void);

// ---- Waiting and teams (wait.c, team.c, worker.c) -----------------------------------------------

// mu__spin waits briefly until (*word & mask) == value (or, with `equal` false, until it differs). Returns false if
// that took too long, or if another program needed the processor.
bool mu__spin(const atomic_int *word, int mask, int value, bool equal, int64_t most_ns);
// mu__futex_sleep sleeps while *word is `seen`, until woken or until the deadline; it may also return spuriously.
void mu__futex_sleep(atomic_int *word, int seen, int64_t deadline_ns);
void mu__futex_wake(atomic_int *word);

// mu__fork_count returns the number of forks that led to this process. Threads created under another count do not
// exist here.
int mu__fork_count(void);

// mu__team_dismiss ends the calling thread's helpers; the next team creates new ones.
void mu__team_dismiss(void);

// ---- Log, timeline, signals ---------------------------------------------------------------------

// A runtime's timeline: created if MUSTER_TRACE is set, written once at the runtime's end. Freeing or writing a NULL
// timeline does nothing.
struct mu_timeline *mu__timeline_new(void);
void mu__timeline_drop(mu_runtime *runtime);
mu_status mu__timeline_write(const mu_runtime *runtime);

// mu__signals_restore reinstalls the handlers that mu_stop_on_signals replaced.
void mu__signals_restore(void);

#endif
