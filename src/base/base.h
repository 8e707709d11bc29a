// Private umbrella of the base layer: what every file of the library may use.
//
// Errors, objects and pools, memory, threads, time, log, settings, and the bounded reader that all
// hostile bytes pass through. Base knows nothing of tensors: where a thread's context carries things of
// higher layers it holds them as pointers to incomplete types.
#ifndef MU_SRC_BASE_H
#define MU_SRC_BASE_H

#include <muster/base.h>

#include <assert.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MU_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MU_MIN(a, b) ((a) < (b) ? (a) : (b))
#define MU_MAX(a, b) ((a) > (b) ? (a) : (b))

// ---- Errors (status.c) --------------------------------------------------------------------------

// mu__error records an error of this thread and returns its code; the first record stays.
#define mu__error(code, ...) mu_fail_at(code, __FILE__, __LINE__, __VA_ARGS__)

// mu__need records INVALID_ARGUMENT, "`what` is NULL", unless the argument is there.
mu_status mu__need(const void *argument, const char *what);

// mu__pending says whether this thread has a record: every entry point that builds or runs something
// starts with `if (mu__pending()) return NULL;`.
bool mu__pending(void);

// mu__error_context adds one line ("while compiling train_step") to the pending record, up to four.
void mu__error_context(const char *format, ...) MU_PRINTF(1, 2);
// mu__error_begin puts `text` in the place of the first `bytes` bytes of the pending record.
void mu__error_begin(size_t bytes, const char *text);

// mu__error_append adds words to the end of the pending record.
void mu__error_append(const char *format, ...) MU_PRINTF(1, 2);

// An error as a value, to travel between threads with the result that failed.
typedef struct mu_error_value {
    mu_status code;
    int line;
    const char *file;     // static storage
    char message[1000];
} mu_error_value;

// mu__error_move takes this thread's record out into `out` (code MU_OK if none).
void mu__error_move(mu_error_value *out);

// mu__error_raise records a value that came from another thread. Returns its code; MU_OK does nothing.
mu_status mu__error_raise(const mu_error_value *value);

// In functions that return a status: leave at the first failure; or jump to the single `out:`.
#define MU_TRY(expr)                      \
    do {                                  \
        mu_status mu_try_ = (expr);       \
        if (mu_try_ != MU_OK)             \
            return mu_try_;               \
    } while (0)
#define MU_GO(expr)                       \
    do {                                  \
        status = (expr);                  \
        if (status != MU_OK)              \
            goto out;                     \
    } while (0)

// mu__errno_code is the code for a failed system call: ENOENT is NOT_FOUND, ENOSPC RESOURCE_EXHAUSTED, …
mu_status mu__errno_code(int error_number);

// mu__args_copy copies a caller's argument struct of the size that the caller knew into `out` of `size`
// bytes, the rest zero; a NULL `args` gives all defaults. A caller from the future (larger struct with
// non-zero tail) is INVALID_ARGUMENT.
mu_status mu__args_copy(void *out, size_t size, const void *args, const char *function);

// ---- Loops ------------------------------------------------------------------------------------------

// For functions whose loops gain from wide registers: compiled several times, picked when the program loads.
// Sanitizers do not know such functions, so their builds take the plain one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define MU_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MU_CLONES
#endif

// Iterations are independent although an output may be one of the inputs (the same element of it). clang
// would warn of each loop that it cannot vectorise, so it finds out at run time.
#if defined(__clang__)
#define MU_INDEPENDENT
#else
#define MU_INDEPENDENT _Pragma("GCC ivdep")
#endif

// ---- Memory (memory.c) --------------------------------------------------------------------------

// All allocations of the library. NULL after recording RESOURCE_EXHAUSTED with the number of bytes.
// A size of 0 gives a valid pointer.
void *mu__alloc(size_t bytes);
void *mu__calloc(size_t count, size_t bytes);     // zeroed, overflow checked
void *mu__realloc(void *block, size_t bytes);
char *mu__strdup(const char *text);
char *mu__sprintf(const char *format, ...) MU_PRINTF(1, 2);
void mu__free(void *block);

// Blocks for tensor data (allocator.c): 64-byte aligned; from 4 MiB on mapped directly with huge pages asked for. Some
// freed blocks are kept for the next of their size. free_data needs the bytes that were asked for.
void *mu__alloc_data(size_t bytes);
void mu__free_data(void *block, size_t bytes);

// Tests: the n-th allocation from now on fails (0: none). Returns how many were made since the last call.
long mu__alloc_fail_at(long n);

// A bump allocator whose blocks live until the arena is freed: graph nodes, plans.
typedef struct mu_arena {
    struct mu_arena_block *first;
    size_t bytes;
} mu_arena;
void *mu__arena_alloc(mu_arena *arena, size_t bytes);              // zeroed, aligned to 16
void *mu__arena_copy(mu_arena *arena, const void *from, size_t bytes);
char *mu__arena_strdup(mu_arena *arena, const char *text);
void mu__arena_free(mu_arena *arena);

// A growing array: struct { T *items; size_t n, capacity; } is what the macro expects.
mu_status mu__grow(void **items, size_t *capacity, size_t wanted, size_t item_bytes);
#define MU_PUSH(array, value)                                                                             \
    (mu__grow((void **)&(array)->items, &(array)->capacity, (array)->n + 1, sizeof *(array)->items) == MU_OK \
         ? ((array)->items[(array)->n++] = (value), MU_OK)                                                \
         : MU_RESOURCE_EXHAUSTED)

// ---- Objects and pools (object_pool.c) ----------------------------------------------------------

// One static, writable object per kind of thing; the counter is for leak checks only.
typedef struct mu_type {
    const char *name;               // "tensor"
    void (*destroy)(void *object);  // frees what the object owns, not the object itself
    atomic_long live;
    struct mu_type *next;           // list of types seen, for mu__live_report
    atomic_int listed;
} mu_type;

// First member of everything that mu_retain accepts.
typedef struct mu_object {
    mu_type *type;
    atomic_int references;
} mu_object;

// mu__new makes a zeroed object with one reference that the caller owns.
void *mu__new(mu_type *type, size_t bytes);

// mu__give hands the caller's reference to the innermost pool and returns the object (NULL stays NULL;
// on failure the reference is dropped). Public functions return through it.
void *mu__give(void *object);

// mu__pool_return moves an object out of `pool` into the pool below it: the result of a function that
// opened a pool of its own. Retains as needed; call it just before mu_pool_close(pool).
void *mu__pool_return(mu_pool *pool, void *object);

// mu__is tells whether a thing has this type (first member mu_object).
bool mu__is(const void *object, const mu_type *type);

// mu__live_objects counts objects alive, of all types; with `out`, writes one line per type.
long mu__live_objects(FILE *out);

// ---- The thread's context (context.c) -----------------------------------------------------------

// A place in the program that uses the library; file NULL: not known. layer: whose call it is part of; NULL: none's.
// function: of which function made of several ops it is part, as static text; NULL: of none.
typedef struct mu_site {
    const char *file;
    int line;
    const char *layer;
    const char *function;
} mu_site;
enum { MU_LINE_DEPTH = 16 };  // calls in progress whose lines are kept; deeper ones are only counted

// What a thread is in the middle of. A replica, map worker or closure gets a child; when that ends, its
// result and its first error move to the parent.
typedef struct mu_context {
    struct mu_context *parent;
    struct mu_context *previous;  // what this thread goes back to; differs from the parent on another thread
    mu_runtime *runtime;          // NULL: the default one
    mu_error_value error;
    int n_error_context;
    struct mu_pool *pool;       // innermost
    struct mu_tape *tape;       // innermost open tape (graph)
    struct mu_trace *trace;     // the trace in progress (graph)
    struct mu_scope *scope;     // innermost strategy scope (distribute)
    struct mu_replica *replica; // inside run: which replica this is (distribute)
    int64_t run;                // number of the run whose replica function is in progress; 0: none (distribute)
    int component;              // which component of a distributed variable this thread sees
    int n_components;           // of how many, on a replica
    int default_scopes;         // open ones of the default strategy, which change no state (distribute)
    int64_t input_begin_ns, input_end_ns;  // when this thread last waited for the next batch
    int n_inlined;              // traced functions that call each other, at this moment (graph)
    int n_lines;                // public calls in progress (ops/source_line.c)
    mu_site lines[MU_LINE_DEPTH];
} mu_context;

// mu__context returns the calling thread's context; threads that the library has not seen get one of
// their own with the default runtime. Never NULL. The storage must stay dynamic: what is reached without a call
// (initial-exec) takes the whole library's thread-local storage from the few hundred bytes that programs keep for
// what they open later, and Python with other libraries loaded has none left.
extern _Thread_local mu_context *mu__current;
mu_context *mu__context_first(void);
static inline mu_context *mu__context(void)
{
    return mu__current ? mu__current : mu__context_first();
}

// mu__context_enter makes `child` (zeroed storage of the caller) the current context of this thread, with
// a pool of its own; runtime, scope, replica and run are the parent's, tape and trace are not handed down.
// mu__context_leave closes the pool and goes back. `result`, if not NULL, is retained across the closing
// and given to the pool of the context gone back to when the parent is on the same thread, otherwise the
// caller owns the reference. A pending error moves to `error` (NULL, on the parent's thread only: to the
// record of the context gone back to).
mu_status mu__context_enter(mu_context *child, mu_context *parent);
void *mu__context_leave(mu_context *child, void *result, mu_error_value *error);

// ---- Runtime (runtime.c) ------------------------------------------------------------------------

// What higher layers keep per runtime; made on first use, destroyed in reverse order of making.
typedef enum mu_slot {
    MU_SLOT_ENGINE,
    MU_SLOT_PREPARED,
    MU_SLOT_CLUSTER,
    MU_SLOT_JOB,
    MU_SLOT_DISTRIBUTE,
    MU_SLOT_RANDOM,
    MU_SLOT_MODEL,
    MU_N_SLOTS
} mu_slot;

// mu__runtime is the calling thread's; makes the default one if mu_init was not called. NULL only if that
// fails (a setting that cannot be, no memory), which is recorded; every function below accepts that NULL.
mu_runtime *mu__runtime(void);
void *mu__runtime_slot(mu_runtime *runtime, mu_slot slot, void *(*create)(mu_runtime *), void (*destroy)(void *));

// Cores that this process may use, and a limit set by the user, taken together.
int mu__runtime_threads(mu_runtime *runtime);
// mu__runtime_take makes these `n` processors all that the runtime's threads use from here on; what runs already stays.
// mu__runtime_limit lowers the limit on threads. Both only ever leave less.
void mu__runtime_take(mu_runtime *runtime, const int *cpus, int n);
void mu__runtime_limit(mu_runtime *runtime, int n_threads);
int mu__runtime_cpu(mu_runtime *runtime,
                    int index); // number of the index-th processor allowed, around again at the end
uint64_t mu__runtime_seed(mu_runtime *runtime);          // the seed in force
uint64_t mu__runtime_seed_epoch(
    mu_runtime *runtime); // counts the calls of mu_set_seed: a generator that sees it change starts anew
uint64_t mu__runtime_next_seed(mu_runtime *runtime);     // a new one for each generator, fixed by the seed

// mu__check_stop records CANCELLED and returns it if a signal asked for the end (mu_stop_on_signals). As long as
// somebody holds the stop it sees none; who holds it looks at mu__stopped itself, where all workers can end together.
mu_status mu__check_stop(void);
mu_status mu__stopped(void);
void mu__stop_hold(void);
void mu__stop_let_go(void);

// The signal that asked for the end, 0 if none did, and when it did. mu__stop_by asks for it as that signal would:
// another worker has got one.
int mu__stop_signal(void);
int64_t mu__stop_time_ns(void);
void mu__stop_by(int number);

// The exit code of a program that ends because it was asked to: what was set, or 128 + the signal's number, or 1
// where none came.
void mu__stop_exit_with(int code);
int mu__stop_exit_code(void);

// ---- Time ---------------------------------------------------------------------------------------

int64_t mu__now_ns(void);             // CLOCK_MONOTONIC
#define MU_FOREVER INT64_MAX          // a deadline that never passes; only where something else ends the wait
int64_t mu__deadline_ns(double seconds_from_now);

// ---- Threads (team.c, worker.c) -----------------------------------------------------------------

// A team is the threads of one replica: the calling thread and helpers that it keeps. With one thread there are none.
typedef struct mu_team {
    int n_threads;
} mu_team;

// mu__team_run calls fn(arg, index, count) once for each member, and returns when all are done. Where the system has no
// threads left, or inside another call, the caller does all parts itself.
void mu__team_run(const mu_team *team, void (*fn)(void *arg, int index, int count), void *arg);

// mu__team_try is mu__team_run for work whose members wait for each other (mu__team_barrier): false, and nothing is
// called, unless every member gets a thread. Within it index and count are the calling member's; count is 0 outside.
bool mu__team_try(int count, void (*fn)(void *arg, int index, int count), void *arg);
int mu__team_count(void);
int mu__team_index(void);
void mu__team_barrier(void);

// mu__team_limit keeps the teams that oneDNN asks for on the calling thread (one that is not a worker) to so many
// threads, and returns what mu__team_unlimit puts back.
int mu__team_limit(int n_threads);
void mu__team_unlimit(int before);

// The part [*begin, *end) of n items that member `index` of `count` takes; parts differ by at most one grain.
void mu__team_share(int64_t n, int64_t grain, int index, int count, int64_t *begin, int64_t *end);

// A worker is a thread with a queue: a replica's thread. It pins itself to the `n_cpus` processors of `cpus`
// (NULL: not pinned) and tells oneDNN its team size, n_cpus (0: OpenMP's default). All signals are
// blocked in it. What it runs must hand its errors on (mu__context_leave); one left behind is only logged.
typedef struct mu_worker mu_worker;
mu_worker *mu__worker_new(const char *name, const int *cpus, int n_cpus, mu_runtime *runtime);
mu_status mu__worker_post(mu_worker *worker, void (*run)(void *arg), void *arg);  // in order
void mu__worker_free(mu_worker *worker);  // finishes what was posted, then ends the thread

// A latch counts arrivals down; a wait spins shortly, then sleeps. When the wait has returned MU_OK the
// latch may be freed or initialised again at once; after any other status arrivals may still come.
typedef struct mu_latch {
    atomic_int left;  // arrivals to come; one high bit says that a waiter sleeps
} mu_latch;
mu_status mu__latch_init(mu_latch *latch, int count);
void mu__latch_arrive(mu_latch *latch);
mu_status mu__latch_wait(mu_latch *latch, int64_t deadline_ns, const char *what);  // DEADLINE_EXCEEDED naming `what`
bool mu__latch_done(const mu_latch *latch);  // all have arrived
void mu__latch_free(mu_latch *latch);

// ---- Log and timeline (log.c, timeline.c) -------------------------------------------------------

typedef enum mu_log_level { MU_LOG_ERROR, MU_LOG_WARNING, MU_LOG_INFO, MU_LOG_DEBUG } mu_log_level;
bool mu__log_enabled(mu_log_level level);
void mu__log(mu_log_level level, const char *format, ...) MU_PRINTF(2, 3);  // one line to standard error
// mu__printable replaces control characters in place, so that no text from outside steers a terminal;
// mu__printable_copy does it in a copy, which is cut at MU_PRINTABLE_BYTES, and returns that.
enum { MU_PRINTABLE_BYTES = 256 };
void mu__printable(char *text, bool keep_newlines);
const char *mu__printable_copy(const char *text, char copy[MU_PRINTABLE_BYTES]);
int mu__columns(const char *text);  // on a terminal, where a character of several bytes takes one column
// mu__notice says what the user is to know once, without a level before it; unless only errors are logged.
void mu__notice(const char *format, ...) MU_PRINTF(1, 2);

// Spans for MUSTER_TRACE=FILE (Chrome/Perfetto JSON). Names are static strings or live as long as the runtime. Those of
// the category MU_SPAN_BESIDE overlap the others of their replica.
#define MU_SPAN_BESIDE "reduction"
bool mu__trace_on(void);
void mu__span(const char *category, const char *name, int replica, int64_t begin_ns, int64_t end_ns);
mu_status mu__trace_write(void);

// ---- Settings (settings.def, settings.c) --------------------------------------------------------

typedef enum mu_setting {
#define MU_SETTING_TEXT(id, variable, initial, sentence) MU_SETTING_##id,
#define MU_SETTING_INT(id, variable, unit, initial, low, high, sentence) MU_SETTING_##id,
#define MU_SETTING_REAL(id, variable, unit, initial, low, high, sentence) MU_SETTING_##id,
#define MU_SETTING_BOOL(id, variable, initial, sentence) MU_SETTING_##id,
#include "base/settings.def"
#undef MU_SETTING_TEXT
#undef MU_SETTING_INT
#undef MU_SETTING_REAL
#undef MU_SETTING_BOOL
    MU_N_SETTINGS
} mu_setting;

const char *mu__setting_text(mu_setting setting);  // NULL if not set and no default
int64_t mu__setting_int(mu_setting setting);
double mu__setting_real(mu_setting setting);
bool mu__setting_bool(mu_setting setting);

// mu__environment reads a variable that is somebody else's (TF_CONFIG, SLURM_PROCID); NULL if unset or empty.
const char *mu__environment(const char *variable);
// mu__environment_list is all of it, "NAME=value", ending with NULL: for programs that are started.
char *const *mu__environment_list(void);

// mu__settings_print writes every setting with value, unit, origin (default, environment, mu_init) and sentence.
void mu__settings_print(FILE *out);

// ---- Hostile bytes (codec.c) --------------------------------------------------------------------

// A bounded cursor: a read past the end sets `bad`, returns zeros and never moves on.
typedef struct mu_cursor {
    const uint8_t *at, *end;
    bool bad;
} mu_cursor;
mu_cursor mu__cursor(const void *data, size_t bytes);
size_t mu__cursor_left(const mu_cursor *cursor);
uint8_t mu__cursor_u8(mu_cursor *cursor);
uint32_t mu__cursor_u32_big(mu_cursor *cursor);
uint32_t mu__cursor_u32_little(mu_cursor *cursor);
uint64_t mu__cursor_u64_little(mu_cursor *cursor);
const uint8_t *mu__cursor_bytes(mu_cursor *cursor, size_t bytes);  // NULL and bad if fewer are left

// ---- Files (file.c) -----------------------------------------------------------------------------

// mu__file_read reads a whole file of at most `limit` bytes; gzip is inflated (also bounded by `limit`).
// A zero byte, not counted, follows the data; free it with mu__free.
// Errors: NOT_FOUND, PERMISSION_DENIED, DATA_LOSS (corrupt or truncated gzip), RESOURCE_EXHAUSTED (over the limit).
mu_status mu__file_read(const char *path, size_t limit, void **data, size_t *bytes);

// Atomic writing: to a temporary file in the same folder (temporary.c); commit syncs, renames, syncs the folder;
// abandon removes. A full disk is RESOURCE_EXHAUSTED naming the file and the bytes; the old file stays.
typedef struct mu_file_writer mu_file_writer;
mu_file_writer *mu__file_create(const char *path);
mu_status mu__file_write(mu_file_writer *file, const void *data, size_t bytes);
mu_status mu__file_commit(mu_file_writer *file);   // frees the writer, also on failure
void mu__file_abandon(mu_file_writer *file);       // NULL accepted

#endif
