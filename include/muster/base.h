// Basics that every other public header uses: status codes and the error record, ownership by pools, keyword arguments,
// and starting and ending the library.
//
// Three conventions hold for the whole API and are not repeated:
//   Errors.    A call that fails returns NULL, a non-zero mu_status, NaN or -1, and records an error (code, message,
//              file and line) for the thread. The record is sticky: until mu_error_take() reads it, every call that
//              builds or runs something does nothing and fails. So a chain of calls needs one check, at its end.
//              Queries, releases and logging always work.
//   Ownership. An object returned by a mu_ function belongs to the thread's innermost open pool and is freed when
//              that pool closes. mu_retain keeps it longer; mu_release undoes mu_retain. Arguments are borrowed;
//              strings and arrays are copied.
//   Arguments. Options are structs with designated initializers, wrapped by a macro with the function's name. Zero
//              means the default. NAME_with takes a pointer to the struct, for other languages.
#ifndef MUSTER_BASE_H
#define MUSTER_BASE_H

// Argument structs leave fields out on purpose. g++ warns about that in macros, except in system headers.
#if defined(__cplusplus) && defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define MU_API __attribute__((visibility("default")))
#define MU_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define MU_MUST_CHECK __attribute__((warn_unused_result))
#else
#define MU_API
#define MU_PRINTF(text, first)
#define MU_MUST_CHECK
#endif

#define MU_VERSION_MAJOR 0
#define MU_VERSION_MINOR 1
#define MU_VERSION_PATCH 0

// mu_version returns the loaded library's version as "MAJOR.MINOR.PATCH" (static storage).
MU_API const char *mu_version(void);

// ---- Status -------------------------------------------------------------------------------------

// The canonical codes of TensorFlow, gRPC and PJRT, with their numbers. (UNKNOWN is MU_UNKNOWN_ERROR here because
// MU_UNKNOWN is a dimension.)
#define MU_STATUS_LIST(X)     \
    X(OK, 0)                  \
    X(CANCELLED, 1)           \
    X(UNKNOWN_ERROR, 2)       \
    X(INVALID_ARGUMENT, 3)    \
    X(DEADLINE_EXCEEDED, 4)   \
    X(NOT_FOUND, 5)           \
    X(ALREADY_EXISTS, 6)      \
    X(PERMISSION_DENIED, 7)   \
    X(RESOURCE_EXHAUSTED, 8)  \
    X(FAILED_PRECONDITION, 9) \
    X(ABORTED, 10)            \
    X(OUT_OF_RANGE, 11)       \
    X(UNIMPLEMENTED, 12)      \
    X(INTERNAL, 13)           \
    X(UNAVAILABLE, 14)        \
    X(DATA_LOSS, 15)          \
    X(UNAUTHENTICATED, 16)

typedef enum mu_status {
#define MU_STATUS_ENUM(name, number) MU_##name = number,
    MU_STATUS_LIST(MU_STATUS_ENUM)
#undef MU_STATUS_ENUM
} mu_status;

// mu_status_name returns the code's name, such as "INVALID_ARGUMENT" (static storage).
MU_API const char *mu_status_name(mu_status status);

// A copy of an error record, valid until the thread calls mu_error_take again.
typedef struct mu_error {
    mu_status code;
    const char *message;  // one sentence; lines of context may follow, each after a newline
    const char *file;     // source file and line where the error was recorded
    int line;
} mu_error;

// mu_error_code returns the code of the pending error, MU_OK if there is none. It does not clear the record.
MU_API mu_status mu_error_code(void);

// mu_error_message returns the message of the pending error, "" if there is none. It does not clear the record.
MU_API const char *mu_error_message(void);

// mu_error_take returns the pending error and clears the record. The code is MU_OK if there was none.
MU_API mu_error mu_error_take(void);

// mu_fail records an error. A user's callback calls it before it returns NULL or a status. If an error is already
// pending, that one is kept. Returns the code. `format` is as for printf.
#define mu_fail(code, ...) mu_fail_at(code, __FILE__, __LINE__, __VA_ARGS__)
MU_API mu_status mu_fail_at(mu_status code, const char *file, int line, const char *format, ...) MU_PRINTF(4, 5);

// ---- Keyword arguments --------------------------------------------------------------------------

// MU_ARGS makes the argument struct of one call; it lives until the call returns. In C++20 all arguments need their
// names, in the order of the fields: mu_conv2d(.filters = 32, .kernel_size = 3).
#ifndef __cplusplus
#define MU_ARGS(type, ...) (&(type){.size = sizeof(type), __VA_ARGS__})
#else
#define MU_ARGS(type, ...) mu_address_of(type{.size = sizeof(type), __VA_ARGS__})
extern "C++" {
template <typename T> inline const T *mu_address_of(const T &args)
{
    return &args;
}
}
#endif

// Fields after a member of this type can only be given by name.
typedef const struct mu_keyword_only_marker *mu_keyword_only;

// Write MU_ZERO for 0 in a field where 0 is a legal value but not the default (the field's comment mentions it).
#define MU_ZERO (-3.40282346638528859812e+38)

// mu_exactly maps a computed 0 to MU_ZERO, so that it does not mean "default".
static inline double mu_exactly(double value) { return value == 0.0 ? MU_ZERO : value; }

// Lists of pointers end with this sentinel. NULL cannot end a list because an element whose call failed is NULL.
MU_API extern const char mu_list_end;
#define MU_END ((void *)(uintptr_t)&mu_list_end)

// MU_LIST_OF(type, a, b) makes such a list for an argument of type `type *const *`. It lives until the call returns.
#ifndef __cplusplus
#define MU_LIST_OF(type, ...) ((type *const[]){__VA_ARGS__, MU_END})
#else
#define MU_LIST_OF(type, ...) mu_listed<type>(__VA_ARGS__)
extern "C++" {
template <typename T, size_t N> struct mu_list_holder {
    T *items[N];
    operator T *const *() const { return items; }
};
template <typename T, typename... Items> inline mu_list_holder<T, sizeof...(Items) + 1> mu_listed(Items... items)
{
    return {{items..., static_cast<T *>(MU_END)}};
}
}
#endif

// ---- Ownership ----------------------------------------------------------------------------------

typedef struct mu_pool mu_pool;  // objects that are freed together

// mu_pool_open opens a pool on this thread. Objects returned from here on belong to it, until it closes or another pool
// is opened.
MU_API mu_pool *mu_pool_open(void);

// mu_pool_close frees the pool's objects in reverse order, after those of every pool opened later. NULL is accepted.
MU_API void mu_pool_close(mu_pool *pool);

// mu_retain keeps an object beyond its pool and returns it. NULL returns NULL.
MU_API void *mu_retain(void *object);

// mu_release undoes one mu_retain. NULL is accepted.
MU_API void mu_release(void *object);

// ---- Start and end ------------------------------------------------------------------------------

// A runtime holds settings, devices and the cluster. mu_init makes the default one.
typedef struct mu_runtime mu_runtime;

typedef struct mu_runtime_args {
    size_t size;
    mu_keyword_only only_;
    int threads;        // threads that compute, for all devices together; default: every core this process may use
    int cpu_devices;    // logical CPU devices; default: one per core, at most 8
    uint64_t seed;      // see mu_set_seed; default: random, from the system
    bool has_seed;      // set it to use seed 0
    const char *log;    // level as in MUSTER_LOG: "error", "warning" (default), "info" or "debug"
} mu_runtime_args;

// mu_init makes the default runtime and opens the outermost pool. A second call is an error. Errors:
// MU_INVALID_ARGUMENT for an invalid setting; the message names it.
#define mu_init(...) mu_init_with(MU_ARGS(mu_runtime_args, __VA_ARGS__))
MU_API mu_status mu_init_with(const mu_runtime_args *args);

// mu_runtime_new makes another runtime (a process may have several). mu_runtime_use selects the runtime that this
// thread uses (NULL: the default one) and returns the previous one.
#define mu_runtime_new(...) mu_runtime_new_with(MU_ARGS(mu_runtime_args, __VA_ARGS__))
MU_API mu_runtime *mu_runtime_new_with(const mu_runtime_args *args);
MU_API mu_runtime *mu_runtime_use(mu_runtime *runtime);

// mu_exit prints the pending error, if any, closes every pool of the thread and ends the default runtime. Returns the
// exit code for the process: 0 if ok is true and no error is pending, otherwise the error's code from
// docs/exit-codes.md. Inside a callback it frees nothing, records FAILED_PRECONDITION and returns that error's exit
// code.
MU_API int mu_exit(bool ok);

// mu_set_seed seeds all random choices that follow (initial weights, dropout, shuffles without a seed of their own).
// The same seed gives the same bits.
MU_API void mu_set_seed(uint64_t seed);

// mu_stop_on_signals installs handlers for SIGINT and SIGTERM. After the first signal the running mu_fit, or any other
// wait, ends with MU_CANCELLED once the step in progress is done. A second signal kills the process as usual; while
// several workers agree on a step only a second SIGINT does. The library installs no handlers unless this is called,
// and mu_exit restores the previous ones.
MU_API mu_status mu_stop_on_signals(void);

#ifdef __cplusplus
}
#endif
#endif
