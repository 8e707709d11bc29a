// The ground that every other public header stands on: status codes and the error record,
// ownership by pools, keyword arguments, start and end of the library.
//
// Three conventions hold for the whole API and are not repeated:
//   Errors.    A call that fails returns NULL, a non-zero mu_status, NaN or -1, and leaves a record
//              (code, sentence, place) with the thread. The record is sticky: until mu_error_take()
//              reads it, every call that builds or runs something does nothing and fails. So a chain
//              of expressions is checked once, at its end. Queries, releases and logs always work.
//   Ownership. Whatever a mu_ function returns belongs to the innermost open pool of the thread and is
//              freed when that pool closes; mu_retain keeps it, mu_release lets it go. Arguments are
//              borrowed; strings and arrays are copied.
//   Arguments. Options are structs with designated initialisers, wrapped by a macro of the function's
//              name; zero means the default. Name_with takes a pointer to the struct, for other languages.
#ifndef MUSTER_BASE_H
#define MUSTER_BASE_H

// The argument structs leave fields out on purpose, which g++ warns of in macros that are not a system's.
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

// mu_version returns "MAJOR.MINOR.PATCH" of the library that is loaded (static storage).
MU_API const char *mu_version(void);

// ---- Status -------------------------------------------------------------------------------------

// The canonical codes that TensorFlow, gRPC and PJRT share, with their numbers. (UNKNOWN is MU_UNKNOWN_ERROR here:
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

// mu_status_name returns "INVALID_ARGUMENT" and the like (static storage).
MU_API const char *mu_status_name(mu_status status);

// What failed: a copy, valid until the thread takes the next one.
typedef struct mu_error {
    mu_status code;
    const char *message;  // one sentence; lines of context follow, each after a newline
    const char *file;     // where it was recorded
    int line;
} mu_error;

// mu_error_code returns the code of the pending record, MU_OK if there is none; it does not clear.
MU_API mu_status mu_error_code(void);

// mu_error_message returns the sentence of the pending record ("" if none); it does not clear.
MU_API const char *mu_error_message(void);

// mu_error_take reads and clears the record; code MU_OK if there was none.
MU_API mu_error mu_error_take(void);

// mu_fail records an error, as a user's callback does before it returns NULL or a status; the first
// record of a thread stays. Returns the code.
#define mu_fail(code, ...) mu_fail_at(code, __FILE__, __LINE__, __VA_ARGS__)
MU_API mu_status mu_fail_at(mu_status code, const char *file, int line, const char *format, ...) MU_PRINTF(4, 5);

// ---- Keyword arguments --------------------------------------------------------------------------

// MU_ARGS makes the argument struct of one call, which lives until the call is over. C++20 writes the names of
// all arguments, in the order of the fields: mu_conv2d(.filters = 32, .kernel_size = 3).
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

// Fields after a member of this type are given by name only.
typedef const struct mu_keyword_only_marker *mu_keyword_only;

// Where 0 is legal but not the default, MU_ZERO asks for it (the field's comment says so).
#define MU_ZERO (-3.40282346638528859812e+38)

// mu_exactly maps a computed 0 to MU_ZERO, so that it is not taken for "absent".
static inline double mu_exactly(double value) { return value == 0.0 ? MU_ZERO : value; }

// Lists of pointers end with this mark (not with NULL, which is what a failed element looks like).
MU_API extern const char mu_list_end;
#define MU_END ((void *)(uintptr_t)&mu_list_end)

// MU_LIST_OF(type, a, b) is such a list, for an argument that asks for a `type *const *`; it lives as long as the call.
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

typedef struct mu_pool mu_pool;

// mu_pool_open opens a pool on this thread; what is returned from here on belongs to it.
MU_API mu_pool *mu_pool_open(void);

// mu_pool_close frees the pool's things, in reverse order, and every pool opened after it. NULL: nothing.
MU_API void mu_pool_close(mu_pool *pool);

// mu_retain keeps a thing beyond its pool; returns it. NULL stays NULL.
MU_API void *mu_retain(void *object);

// mu_release undoes one mu_retain. NULL is accepted.
MU_API void mu_release(void *object);

// ---- Start and end ------------------------------------------------------------------------------

// A runtime holds settings, devices and cluster. mu_init makes the default one.
typedef struct mu_runtime mu_runtime;

typedef struct mu_runtime_args {
    size_t size;
    mu_keyword_only only_;
    int threads;        // limit on computing threads, all devices together; default: every core allowed
    int cpu_devices;    // logical CPU devices; default: one per core, at most 8
    uint64_t seed;      // see mu_set_seed; default: drawn from the system
    bool has_seed;      // seed 0 is a seed only with this set
    const char *log;    // as MUSTER_LOG: error, warning, info, debug; default warning
} mu_runtime_args;

// mu_init makes the default runtime and opens the outermost pool. Calling it again is an error.
// Errors: MU_INVALID_ARGUMENT for a setting that cannot be; the message names it.
#define mu_init(...) mu_init_with(MU_ARGS(mu_runtime_args, __VA_ARGS__))
MU_API mu_status mu_init_with(const mu_runtime_args *args);

// mu_runtime_new makes one more runtime (several may live in one process); mu_runtime_use makes it the
// one that this thread works with (NULL: the default one) and returns the previous.
#define mu_runtime_new(...) mu_runtime_new_with(MU_ARGS(mu_runtime_args, __VA_ARGS__))
MU_API mu_runtime *mu_runtime_new_with(const mu_runtime_args *args);
MU_API mu_runtime *mu_runtime_use(mu_runtime *runtime);

// mu_exit prints the pending error, if any, closes every pool of the thread, ends the default runtime and
// returns the exit code of the process: 0 if ok and nothing is pending, else by the error's code as
// docs/exit-codes.md lists them. Inside a callback it frees nothing: FAILED_PRECONDITION, and the code of that.
MU_API int mu_exit(bool ok);

// mu_set_seed fixes every random choice that follows (initial weights, dropout, shuffles without their
// own seed): the same seed gives the same bits.
MU_API void mu_set_seed(uint64_t seed);

// mu_stop_on_signals asks for SIGINT and SIGTERM: the first makes the running fit (and every other wait)
// end with MU_CANCELLED after the step in progress, the second kills as usual (while several workers agree on
// a step only a second SIGINT does). The library takes no signal unasked; mu_exit restores the handlers.
MU_API mu_status mu_stop_on_signals(void);

#ifdef __cplusplus
}
#endif
#endif
