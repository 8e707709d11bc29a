// Private header of the base layer: what every file of the library may use.
//
// Errors, objects and pools, memory, threads, time, log, settings, and the bounded reader that parses all untrusted
// bytes. The base layer knows no tensors: where a thread's context holds objects of higher layers, it holds them as
// pointers to incomplete types.
#ifndef MU_SRC_BASE_H
#define MU_SRC_BASE_H

#include <muster/base.h>

#include "kernels/dispatch.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MU_COUNT(array) (sizeof(array) / sizeof((array)[0]))
// MU_BEHIND(array, n) is the place of element n, and NULL if the array is NULL, to which C adds no number: for the
// second of two arrays that one allocation, which may fail, has made room for.
#define MU_BEHIND(array, n) ((array) ? (array) + (n) : NULL)
#define MU_MIN(a, b)        ((a) < (b) ? (a) : (b))
#define MU_MAX(a, b)        ((a) > (b) ? (a) : (b))

// ---- Errors (status.c) --------------------------------------------------------------------------

// mu__error records an error for this thread and returns its code; if an error is already recorded, that one stays.
#define mu__error(code, ...) mu_fail_at(code, __FILE__, __LINE__, __VA_ARGS__)

// mu__need records INVALID_ARGUMENT, "`what` is NULL", if the argument is NULL.
mu_status mu__need(const void *argument, const char *what);

// mu__pending returns whether this thread has a recorded error: every entry point that builds or runs something starts
// with `if (mu__pending()) return NULL;`.
bool mu__pending(void);

// mu__error_context adds one line ("while compiling train_step") to the recorded error, up to four.
void mu__error_context(const char *format, ...) MU_PRINTF(1, 2);
// mu__error_begin replaces the first `bytes` bytes of the recorded message by `text`.
void mu__error_begin(size_t bytes, const char *text);

// mu__error_append appends text to the recorded message.
void mu__error_append(const char *format, ...) MU_PRINTF(1, 2);

// An error as a value: it travels between threads with the result that failed.
typedef struct mu_error_value {
    mu_status code;
    int line;
    const char *file; // static storage
    char message[1000];
    bool skipped;   // the log has said that calls do nothing because of it
    bool of_caller; // the program is at fault, though the code is one of a library's faults: exit code 64
} mu_error_value;

// mu__error_of_caller says so of the recorded error: where TensorFlow's code is INTERNAL and the program is wrong.
void mu__error_of_caller(void);

// mu__error_move moves this thread's recorded error into `out` (code MU_OK if there is none).
void mu__error_move(mu_error_value *out);

// mu__error_raise records an error value that came from another thread and returns its code; for MU_OK it does
// nothing.
mu_status mu__error_raise(const mu_error_value *value);

// For functions that return a status: MU_TRY returns at the first failure; MU_GO jumps to the single `out:` label.
#define MU_TRY(expr)                \
    do {                            \
        mu_status mu_try_ = (expr); \
        if (mu_try_ != MU_OK)       \
            return mu_try_;         \
    } while (0)
#define MU_GO(expr)          \
    do {                     \
        status = (expr);     \
        if (status != MU_OK) \
            goto out;        \
    } while (0)

// mu__errno_code maps errno to a status: ENOENT is NOT_FOUND, ENOSPC RESOURCE_EXHAUSTED, …
mu_status mu__errno_code(int error_number);

// ---- Argument structs (arguments.c) -------------------------------------------------------------

// How every argument struct begins; muster/base.h says what the members mean.
typedef struct mu_args_head {
    size_t size;
    const char *given;
} mu_args_head;

// mu__args_copy copies a caller's argument struct, whose size may be that of an older version, into `*out` of `bytes`
// bytes and zeroes the rest; a NULL `args` gives all defaults. Errors: INVALID_ARGUMENT for a struct of a newer version
// (larger, with a non-zero tail), and for an argument without a name that must have one.
#define mu__args_copy(out, bytes, args, function) \
    mu__args_take(out, bytes, offsetof(__typeof__(*(out)), only_), args, function)
mu_status mu__args_take(void *out, size_t size, size_t only, const void *args, const char *function);

// mu__args_given returns whether the text of the arguments names this one: then its 0 is not the default.
// MU_GIVEN(&args, field) is true if the caller set the argument, to 0 or to anything else.
bool mu__args_given(const void *args, const char *name);
#define MU_GIVEN(args, field) ((args)->field != 0 || mu__args_given(args, #field))

// mu__args_text returns the text of an argument, by its name or its number among those without one: where it begins, up
// to the next comma outside of parentheses. NULL if it is not there. mu__in_name returns whether a character can be
// part of an identifier.
const char *mu__args_text(const void *args, const char *name, int position);
bool mu__in_name(char c);

// The axes that a call names in members axis, axes and n_axes of its argument struct: several, one, or none.
typedef struct mu_axes {
    bool named;
    int n;
    const int *at; // [n], of the caller or &one; NULL with n > 0 if the caller gave NULL
    int one;
} mu_axes;
// MU_AXES_TAKE(&args, position, &axes, function) reads them; `position` is the number of axis among the arguments
// without a name, -1 if it needs its name. Errors: INVALID_ARGUMENT if both forms are given.
#define MU_AXES_TAKE(args, position, out, function) \
    mu__axes_take(args, (args)->axis, position, (args)->axes, (args)->n_axes, out, function)
mu_status mu__axes_take(const void *args, int axis, int position, const int *axes, int n_axes, mu_axes *out,
                        const char *function);

// mu__args_positive refuses an argument that is negative, or 0 although 0 is not the default.
mu_status mu__args_positive(const void *args, const char *name, int64_t value, const char *function);
// mu__args_length checks the length n of an array argument, .n_NAME, of which there must be `wanted` elements, one for
// each `item` ("column that is read"), unless the array is left out (NULL and 0). Errors: INVALID_ARGUMENT.
mu_status mu__args_length(const char *function, const char *name, const void *array, int n, int wanted,
                          const char *item);

// ---- Names of enums (enum_name.c) ---------------------------------------------------------------

// mu__texts_end returns whether a list of texts ends here: with NULL, or with the end that MU_LIST_OF gives it.
static inline bool mu__texts_end(const char *text) { return !text || (const void *)text == MU_END; }

// One value of an enum; a table of them ends with NULL as name. mu__enum_name returns `unknown` for another number.
// mu__enum_number accepts a name in any case, else records INVALID_ARGUMENT with all names and returns `failed`.
typedef struct mu_enum_name {
    int number;
    const char *name;
} mu_enum_name;
const char *mu__enum_name(const mu_enum_name *names, int number, const char *unknown);
int mu__enum_number(const mu_enum_name *names, const char *name, int failed, const char *function);

// ---- Loops --------------------------------------------------------------------------------------

// The loop's iterations are independent although an output may be the same array as an input. clang would warn of
// each loop that it cannot vectorise, so it checks for overlap at run time instead.
#if defined(__clang__)
#define MU_INDEPENDENT
#else
#define MU_INDEPENDENT _Pragma("GCC ivdep")
#endif

// ---- Memory (memory.c) --------------------------------------------------------------------------

// All allocations of the library. On failure they record RESOURCE_EXHAUSTED with the number of bytes and return NULL.
// A size of 0 gives a valid pointer.
void *mu__alloc(size_t bytes);
void *mu__calloc(size_t count, size_t bytes); // zeroed, overflow checked
void *mu__realloc(void *block, size_t bytes);
char *mu__strdup(const char *text);
char *mu__sprintf(const char *format, ...) MU_PRINTF(1, 2);
void mu__free(void *block);

// Blocks for tensor data (allocator.c), 64-byte aligned; blocks from 4 MiB on are mapped directly and request huge
// pages. Some freed blocks are cached for the next allocation of their size. mu__free_data needs the size passed to
// mu__alloc_data.
void *mu__alloc_data(size_t bytes);
void mu__free_data(void *block, size_t bytes);

// For tests: the n-th allocation from now on fails (0: none). Returns the number of allocations since the last call.
long mu__alloc_fail_at(long n);

// A bump allocator for graph nodes and plans; its blocks live until the arena is freed.
typedef struct mu_arena {
    struct mu_arena_block *first;
    size_t bytes;
} mu_arena;
void *mu__arena_alloc(mu_arena *arena, size_t bytes); // zeroed, aligned to 16
void *mu__arena_copy(mu_arena *arena, const void *from, size_t bytes);
char *mu__arena_strdup(mu_arena *arena, const char *text);
void mu__arena_free(mu_arena *arena);

// A growing array; the macro expects struct { T *items; size_t n, capacity; }.
mu_status mu__grow(void **items, size_t *capacity, size_t wanted, size_t item_bytes);
#define MU_PUSH(array, value)                                                                                \
    (mu__grow((void **)&(array)->items, &(array)->capacity, (array)->n + 1, sizeof *(array)->items) == MU_OK \
         ? ((array)->items[(array)->n++] = (value), MU_OK)                                                   \
         : MU_RESOURCE_EXHAUSTED)

// ---- Objects and pools (object_pool.c) ----------------------------------------------------------

// One static, writable object per type; the counter serves leak checks only.
typedef struct mu_type {
    const char *name;                    // "tensor"
    void (*destroy)(void *object);       // frees what the object owns, not the object itself
    size_t (*bytes)(const void *object); // memory that only this object holds; NULL: little
    atomic_long live;
    struct mu_type *next; // list of types in use, for mu__live_objects
    atomic_int listed;
} mu_type;

// mu__retain_living is mu_retain for an object that another thread may be freeing: NULL if its last reference has gone.
// The caller makes sure that its memory stays meanwhile, as by a lock that its destructor takes.
void *mu__retain_living(void *object);

// First member of every object that mu_retain accepts.
typedef struct mu_object {
    unsigned char mark; // MU_OBJECT_MARK
    atomic_int references;
    mu_type *type;
} mu_object;

// No name begins with this byte, so that an argument may be an object or a name.
enum { MU_OBJECT_MARK = 0x01 };
static inline bool mu__is_object(const void *argument)
{
    return argument != NULL && *(const unsigned char *)argument == MU_OBJECT_MARK;
}

// mu__new makes a zeroed object with one reference that the caller owns.
void *mu__new(mu_type *type, size_t bytes);

// mu__keep_object is for the destroy function of an object that a thread uses which does not end: the object stays in
// memory for the rest of the process.
void mu__keep_object(void *object);

// mu__give hands the caller's reference to the innermost pool and returns the object. NULL stays NULL; on failure the
// reference is dropped, and the result is NULL: the object must not be used by another name. Public functions return
// their results through it.
__attribute__((warn_unused_result)) void *mu__give(void *object);

// mu__pool_return moves an object from `pool` to the enclosing pool: for the result of a function that opened its own
// pool. Retains the object as needed; call it just before mu_pool_close(pool).
void *mu__pool_return(mu_pool *pool, void *object);

// mu__is returns whether an object (first member mu_object) has this type.
bool mu__is(const void *object, const mu_type *type);

// A list of objects and names, from mu_items_of or mu_named_items_of; both belong to it.
typedef struct mu_items {
    mu_object object;
    int n;
    void **items;
    char **names; // under which the items are given; NULL: in order
} mu_items;
extern mu_type mu__items_type;

// mu__live_objects counts the live objects of all types; if `out` is given, it writes one line per type.
long mu__live_objects(FILE *out);

// ---- The thread's context (context.c) -----------------------------------------------------------

// A place in the program that uses the library. file: NULL if unknown. layer: the layer whose call the place belongs
// to, or NULL. function: static name of the composite function that the op is part of, or NULL.
typedef struct mu_site {
    const char *file;
    int line;
    const char *layer;
    const char *function;
} mu_site;
enum { MU_LINE_DEPTH = 16 }; // number of nested calls whose lines are kept; deeper ones are only counted

// The state of a thread. A replica, map worker or closure gets a child context; when it ends, its result and its
// first error move to the parent.
typedef struct mu_context {
    struct mu_context *parent;
    struct mu_context *previous; // restored on this thread at leave; differs from the parent on another thread
    mu_runtime *runtime;         // NULL: the default one
    mu_error_value error;
    int n_error_context;
    struct mu_pool *pool;                 // innermost
    struct mu_tape *tape;                 // innermost open tape (graph)
    struct mu_trace *trace;               // the trace in progress (graph)
    struct mu_scope *scope;               // innermost strategy scope (distribute)
    int on_host;                          // above 0: eager ops are computed on the host, whatever the scope's device
    struct mu_read_cache *read_cache;     // of the open scope of cached reads; NULL: none (graph)
    struct mu_replica *replica;           // inside run: which replica this is (distribute)
    struct mu_cancellation *cancellation; // ends this thread's waits; NULL: none; not retained
    uint64_t request;       // what this thread works for, in the timelines of all processes; 0: none (rpc)
    int64_t run;            // number of the run whose replica function is active; 0: none (distribute)
    int component;          // which component of a distributed variable this thread sees
    int n_components;       // how many components there are, on a replica
    int default_scopes;     // open scopes of the default strategy, which change no state (distribute)
    int n_layers;           // layer calls in progress (model)
    bool training;          // the mode of the innermost one that is neither functional nor sequential
    bool training_left_out; // that one was given no mode (model)
    int autocast;           // mu_dtype that reads of a layer's weights are converted to; 0: none (model, graph)
    const void *policy;     // mu_layer_policy of the layers that are being made; NULL: the program's (model)
    struct mu_host_results *host_results; // of the look-ups of the model whose step this is; NULL: none (model)
    void *clones;       // layers of one's own in the model that is being cloned; NULL: none is (model)
    void *added_losses; // that layers added on this thread; belongs to a pool; NULL: none (model)
    int64_t input_begin_ns, input_end_ns; // when this thread last waited for the next batch
    int n_inlined;                        // depth of traced functions that call each other (graph)
    uint64_t n_calls;                     // public calls so far that no other one made
    int n_lines;                          // public calls in progress (ops/core/source_line.c)
    mu_site lines[MU_LINE_DEPTH];
} mu_context;

// mu__context returns the calling thread's context, never NULL. A thread unknown to the library gets its own context
// with the default runtime. The storage must stay dynamic (no initial-exec model): initial-exec would take the
// library's thread-local storage from the few hundred bytes that a program reserves for libraries opened later, and
// Python with other libraries loaded has none left.
extern _Thread_local mu_context *mu__current;
mu_context *mu__context_first(void);
static inline mu_context *mu__context(void) { return mu__current ? mu__current : mu__context_first(); }

// mu__context_enter makes `child` (zeroed storage of the caller) the current context of this thread and opens a pool
// for it. The child inherits runtime, scope, replica, run, request and cancellation from the parent, but not tape and
// trace.
// mu__context_leave closes the pool and restores the previous context. If `result` is not NULL, it survives the
// closing: when the parent is on the same thread, the restored context's pool owns it, otherwise the caller owns the
// reference. A pending error moves to `error`; `error` may be NULL on the parent's thread only, then the error moves
// to the restored context.
mu_status mu__context_enter(mu_context *child, mu_context *parent);
void *mu__context_leave(mu_context *child, void *result, mu_error_value *error);

// ---- Cancellation (cancellation.c) --------------------------------------------------------------

// A wait that a cancellation ends: wake(arg) is called once, on the thread that cancels, or by the addition if it was
// cancelled before. When the removal returns, wake is not running. A NULL cancellation is accepted.
typedef struct mu_cancel_hook {
    void (*wake)(void *arg);
    void *arg;
    struct mu_cancel_hook *next;
} mu_cancel_hook;
void mu__cancel_hook_add(struct mu_cancellation *cancellation, mu_cancel_hook *hook);
void mu__cancel_hook_remove(struct mu_cancellation *cancellation, mu_cancel_hook *hook);

// ---- Runtime (runtime.c) ------------------------------------------------------------------------

// What higher layers keep per runtime: created on first use, destroyed in reverse order of creation.
typedef enum mu_slot {
    MU_SLOT_ENGINE,
    MU_SLOT_EAGER,
    MU_SLOT_TPU,
    MU_SLOT_PREPARED,
    MU_SLOT_CLUSTER,
    MU_SLOT_JOB,
    MU_SLOT_TPU_JOB,
    MU_SLOT_DISTRIBUTE,
    MU_SLOT_RANDOM,
    MU_SLOT_MODEL,
    MU_SLOT_ACCUMULATORS,
    MU_N_SLOTS
} mu_slot;

// mu__runtime returns the calling thread's runtime, and creates the default one if mu_init was not called. Returns
// NULL and records the error only if that fails (an invalid setting, no memory); every function below accepts that
// NULL.
mu_runtime *mu__runtime(void);
void *mu__runtime_slot(mu_runtime *runtime, mu_slot slot, void *(*create)(mu_runtime *), void (*destroy)(void *));

// mu__runtime_keep lets mu_exit write a runtime's timeline and leave the rest, because a thread of it does not end.
void mu__runtime_keep(mu_runtime *runtime);

// The number of cores that this process may use, bounded by the user's limit.
int mu__runtime_threads(mu_runtime *runtime);
// mu__runtime_take restricts threads that the runtime starts from now on to these `n` processors; running threads
// keep theirs. mu__runtime_limit lowers the limit on threads. Neither can raise a limit.
void mu__runtime_take(mu_runtime *runtime, const int *cpus, int n);
void mu__runtime_limit(mu_runtime *runtime, int n_threads);
int mu__runtime_cpu(mu_runtime *runtime,
                    int index);                 // number of the index-th allowed processor, modulo their count
uint64_t mu__runtime_seed(mu_runtime *runtime); // the current seed
uint64_t
mu__runtime_seed_epoch(mu_runtime *runtime); // counts calls of mu_set_seed; a generator restarts when it changes
uint64_t mu__runtime_next_seed(mu_runtime *runtime); // one for each generator, determined by the seed

// mu__check_stop records and returns CANCELLED if a signal requested a stop (mu_stop_on_signals). While a caller
// holds the stop (mu__stop_hold), mu__check_stop reports none; the holder checks mu__stopped at a point where all
// workers can stop together.
mu_status mu__check_stop(void);
mu_status mu__stopped(void);
void mu__stop_hold(void);
void mu__stop_let_go(void);

// The signal that requested the stop (0 if none) and the time of the request. mu__stop_by requests a stop as that
// signal would, because another worker received it.
int mu__stop_signal(void);
int64_t mu__stop_time_ns(void);
void mu__stop_by(int number);

// The exit code of a program that ends after a stop request: the one that was set, otherwise 128 + the signal's
// number, otherwise 1.
void mu__stop_exit_with(int code);
int mu__stop_exit_code(void);

// ---- Time ---------------------------------------------------------------------------------------

int64_t mu__now_ns(void);    // CLOCK_MONOTONIC
#define MU_FOREVER INT64_MAX // a deadline that never passes; only where another event ends the wait
int64_t mu__deadline_ns(double seconds_from_now);

// ---- Threads (team.c, worker.c) -----------------------------------------------------------------

// A team is the threads of one replica: the calling thread and its helper threads. A team of one has no helpers.
typedef struct mu_team {
    int n_threads;
} mu_team;

// mu__team_run calls fn(arg, index, count) once for each member and returns when all calls are done. If the system
// cannot start threads, or inside another mu__team_run, the caller does all parts itself.
void mu__team_run(const mu_team *team, void (*fn)(void *arg, int index, int count), void *arg);

// mu__team_try is mu__team_run for members that wait for each other (mu__team_barrier): if not every member gets a
// thread, it returns false and calls nothing. Inside fn, mu__team_index and mu__team_count are those of the calling
// member; outside, the count is 0.
bool mu__team_try(int count, void (*fn)(void *arg, int index, int count), void *arg);
int mu__team_count(void);
int mu__team_index(void);
void mu__team_barrier(void);

// mu__team_limit limits oneDNN's teams on the calling thread (which must not be a worker) to n_threads and returns
// the value that mu__team_unlimit restores.
int mu__team_limit(int n_threads);
void mu__team_unlimit(int before);

// Computes the part [*begin, *end) of n items for member `index` of `count`; parts differ by at most one grain.
void mu__team_share(int64_t n, int64_t grain, int index, int count, int64_t *begin, int64_t *end);

// A worker is a thread with a queue, such as a replica's thread. It pins itself to the `n_cpus` processors of `cpus`
// (NULL: not pinned) and sets oneDNN's team size, n_cpus (0: OpenMP's default). It blocks all signals. A function that
// it runs must pass its errors on (mu__context_leave); an error left behind is only logged.
typedef struct mu_worker mu_worker;
mu_worker *mu__worker_new(const char *name, const int *cpus, int n_cpus, mu_runtime *runtime);
mu_status mu__worker_post(mu_worker *worker, void (*run)(void *arg), void *arg); // in order
bool mu__worker_is_here(const mu_worker *worker);                                // whether this is its thread
void mu__worker_free(mu_worker *worker); // runs what was posted, then ends the thread

// A latch counts down arrivals; a wait spins briefly, then sleeps. After a wait returned MU_OK, the latch may be
// freed or initialised again at once; after any other status, arrivals may still come.
typedef struct mu_latch {
    atomic_int left; // arrivals still missing; one high bit marks a sleeping waiter
} mu_latch;
mu_status mu__latch_init(mu_latch *latch, int count);
void mu__latch_arrive(mu_latch *latch);
mu_status mu__latch_wait(mu_latch *latch, int64_t deadline_ns, const char *what); // DEADLINE_EXCEEDED naming `what`
bool mu__latch_done(const mu_latch *latch);                                       // all have arrived
void mu__latch_free(mu_latch *latch);

// mu__cpu_pause is for the inside of a loop that spins: it saves power and lets the core's other thread run.
static inline void mu__cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

// mu__condition_init makes a condition whose waits end by the clock of mu__now_ns, which never jumps; false: the system
// has no room for it.
bool mu__condition_init(pthread_cond_t *condition);
// mu__condition_wait sleeps until somebody signals the condition, for 0.1 s at most, so that the caller's loop can look
// for a signal or a cancellation; the caller holds the lock. It returns false, and does not sleep, once the deadline
// has passed.
bool mu__condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline_ns);
// mu__lock_init makes a lock; false: the system has no memory for it, which the error says of `what`.
bool mu__lock_init(pthread_mutex_t *lock, const char *what);

// A monitor is a lock and a condition (monitor.c). mu__monitor_wait is mu__condition_wait for `changed`. `what` names
// the owner in the error of an init that fails; mu__monitor_free accepts a zeroed monitor.
typedef struct mu_monitor {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool made;
} mu_monitor;
mu_status mu__monitor_init(mu_monitor *monitor, const char *what);
void mu__monitor_free(mu_monitor *monitor);
bool mu__monitor_wait(mu_monitor *monitor, int64_t deadline_ns);

// ---- Log and timeline (log.c, timeline.c) -------------------------------------------------------

typedef enum mu_log_level { MU_LOG_ERROR, MU_LOG_WARNING, MU_LOG_INFO, MU_LOG_DEBUG } mu_log_level;
bool mu__log_enabled(mu_log_level level);
void mu__log(mu_log_level level, const char *format, ...) MU_PRINTF(2, 3); // one line to standard error
// mu__printable replaces control characters in place, so that untrusted text cannot steer a terminal.
// mu__printable_copy does so in a copy, cut at MU_PRINTABLE_BYTES, and returns the copy.
enum { MU_PRINTABLE_BYTES = 256 };
void mu__printable(char *text, bool keep_newlines);
const char *mu__printable_copy(const char *text, char copy[MU_PRINTABLE_BYTES]);
int mu__columns(const char *text); // columns on a terminal, where a multi-byte character takes one
// mu__notice prints a message to the user without a level prefix, unless only errors are logged.
void mu__notice(const char *format, ...) MU_PRINTF(1, 2);

// Spans for MUSTER_TRACE=FILE (Chrome/Perfetto JSON). Names are static or live as long as the runtime. Spans of the
// category MU_SPAN_BESIDE may overlap the replica's other spans.
#define MU_SPAN_BESIDE "reduction"
bool mu__trace_on(void);
void mu__span(const char *category, const char *name, int replica, int64_t begin_ns, int64_t end_ns);
// mu__span_request records a span that overlaps others, as part of a request whose number all processes share. The name
// is copied.
void mu__span_request(const char *category, const char *name, uint64_t request, int64_t begin_ns, int64_t end_ns);
mu_status mu__trace_write(void);

// ---- Settings (settings.def, settings.c) --------------------------------------------------------

typedef enum mu_setting {
#define MU_SETTING_TEXT(id, variable, initial, sentence)                  MU_SETTING_##id,
#define MU_SETTING_INT(id, variable, unit, initial, low, high, sentence)  MU_SETTING_##id,
#define MU_SETTING_REAL(id, variable, unit, initial, low, high, sentence) MU_SETTING_##id,
#define MU_SETTING_BOOL(id, variable, initial, sentence)                  MU_SETTING_##id,
#include "base/settings.def"
#undef MU_SETTING_TEXT
#undef MU_SETTING_INT
#undef MU_SETTING_REAL
#undef MU_SETTING_BOOL
    MU_N_SETTINGS
} mu_setting;

const char *mu__setting_text(mu_setting setting); // NULL if not set and no default
int64_t mu__setting_int(mu_setting setting);
double mu__setting_real(mu_setting setting);
bool mu__setting_bool(mu_setting setting);

// mu__environment reads a variable of another system (TF_CONFIG, SLURM_PROCID); NULL if unset or empty.
const char *mu__environment(const char *variable);
// mu__environment_list returns the whole environment, "NAME=value", ending with NULL, for starting programs.
char *const *mu__environment_list(void);

// mu__settings_print writes every setting with value, unit, origin (default, environment, mu_init) and sentence.
void mu__settings_print(FILE *out);

// ---- Untrusted bytes (codec.c) ------------------------------------------------------------------

// A bounded cursor: a read past the end sets `bad`, returns zeros and does not advance.
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
const uint8_t *mu__cursor_bytes(mu_cursor *cursor, size_t bytes); // NULL and bad if fewer are left

// ---- Files (file.c) -----------------------------------------------------------------------------

// mu__file_read reads a whole file of at most `limit` bytes; gzip is decompressed, also up to `limit`. A zero byte,
// not counted, follows the data; free the data with mu__free. Errors: NOT_FOUND, PERMISSION_DENIED, DATA_LOSS
// (corrupt or truncated gzip), RESOURCE_EXHAUSTED (over the limit).
mu_status mu__file_read(const char *path, size_t limit, void **data, size_t *bytes);

// Atomic writing: data go to a temporary file in the same folder (temporary.c); commit syncs the file, renames it and
// syncs the folder; abandon removes it. A full disk is RESOURCE_EXHAUSTED with the file's name and size; the old file
// stays.
typedef struct mu_file_writer mu_file_writer;
mu_file_writer *mu__file_create(const char *path);
mu_status mu__file_write(mu_file_writer *file, const void *data, size_t bytes);
mu_status mu__file_commit(mu_file_writer *file); // frees the writer, also on failure
void mu__file_abandon(mu_file_writer *file);     // NULL accepted

#endif
