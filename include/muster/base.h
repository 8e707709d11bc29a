// Basics that every other public header uses: status codes and the error record, ownership by pools, keyword arguments,
// and starting and ending the library.
//
// These conventions hold for the whole API and are not repeated:
//   Errors.    A call that fails returns NULL, a non-zero mu_status, NaN or -1 (or what its comment has in parentheses
//              after "Errors"), and records an error (code, message, file and line) for the thread. The record is
//              sticky: until mu_error_take() reads it, every call that builds or runs something does nothing and fails.
//              So a chain of calls needs one check, at its end. Queries, releases and logging always work.
//   Codes.     Every call may fail with INVALID_ARGUMENT, for a NULL that it does not accept or a name, number, type or
//              shape that it does not take, and with RESOURCE_EXHAUSTED if memory or a disk is full. One that reads or
//              writes a file may fail with NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION (it is a folder) and
//              DATA_LOSS (it is damaged); one that waits for other replicas or processes with DEADLINE_EXCEEDED (they
//              are late), UNAVAILABLE (one is gone) and CANCELLED (a signal asks to stop); one that computes with
//              tensors with FAILED_PRECONDITION, for a symbolic one outside of the trace that it belongs to, and with
//              UNIMPLEMENTED, for strings, which only look-ups, datasets and layers that prepare data take; one that
//              runs a callback, a function or a dataset with its errors. The first call that needs the library's
//              runtime may fail as mu_init, and one that needs its threads with FAILED_PRECONDITION in a process that
//              was forked since. Comments name, after "Errors:", what is particular to a call.
//   Ownership. An object returned by a mu_ function belongs to the thread's innermost open pool and is freed when
//              that pool closes; one that is a part of another object belongs to that. mu_retain keeps it longer;
//              mu_release undoes mu_retain. Arguments are borrowed; strings and arrays are copied. A callback, and the
//              `arg` for it, must outlive the object that it was given to.
//   Arguments. Options are structs with designated initializers, wrapped by a macro with the function's name. An
//              argument that is left out has its default; one that is written has its value, 0 too. NAME_with takes a
//              pointer to the struct, for other languages; there zero means the default, see `given` below.
//   Threads.   Any thread may call. The pending error, pools, scopes and tapes are the thread's own. Several threads
//              may use an object at the same time if no call changes it; tensors never change.
//   Units.     Times are in seconds, sizes in bytes, angles in radians, unless the name or the comment says otherwise.
#ifndef MUSTER_BASE_H
#define MUSTER_BASE_H

// Argument structs leave fields out on purpose. g++ warns about that in macros, except in system headers; and gcc
// explains a mistake in an argument at the call and not in the macros below.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC system_header
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__) || defined(__clang__)
#define MU_API                 __attribute__((visibility("default")))
#define MU_PRINTF(text, first) __attribute__((format(printf, text, first)))
#define MU_MUST_CHECK          __attribute__((warn_unused_result))
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
    const char *message; // one sentence; lines of context may follow, each after a newline
    const char *file;    // source file and line where the error was recorded
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

// mu_line_enter says where the call is that follows; `file` is static storage. mu_line_leave ends it: a failure in
// between gets the line. mu_line_failed says before that that the call failed; `name` is static storage. If it did so
// because an error was pending already, the log says once that it and later calls do nothing. Enter and leave come in
// pairs. Programs in C and C++ need none of these: the macros of muster/lines.h call them.
MU_API void mu_line_enter(const char *file, int line);
MU_API void mu_line_failed(const char *name);
MU_API void mu_line_leave(void);

// ---- Keyword arguments --------------------------------------------------------------------------

// Every argument struct begins with two members that the macro sets:
//   size   sizeof the struct. The library accepts structs of older versions, which are smaller, and refuses a larger
//          one that sets an argument unknown to it.
//   given  the text of the arguments, such as "64, .momentum = 0". An argument that is 0 and named there is 0; one that
//          is not named there has its default. A program that fills a struct itself, in C or in another language,
//          leaves given NULL, or names each argument that shall be 0: ".learning_rate, .seed".
// The struct lives until the call returns. In C++20 all arguments need their names, in the order of the fields:
// mu_conv2d(.filters = 32, .kernel_size = 3).
#ifndef __cplusplus
#define MU_ARGS(type, text, ...) (&(type){.size = sizeof(type), .given = text, __VA_ARGS__})
#else
#define MU_ARGS(type, text, ...) mu_address_of(type{.size = sizeof(type), .given = text, __VA_ARGS__})
extern "C++" {
template <typename T> inline const T *mu_address_of(const T &args) { return &args; }
}
#endif

// Fields after a member of this type can only be given by name.
typedef const struct mu_keyword_only_marker *mu_keyword_only;

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
    operator T * const *() const { return items; }
};
template <typename T, typename... Items> inline mu_list_holder<T, sizeof...(Items) + 1> mu_listed(Items... items)
{
    return {{items..., static_cast<T *>(MU_END)}};
}
}
#endif

// A list of objects and names for an argument that takes several. mu_items_of retains the objects and copies the names;
// `items` ends with MU_END. MU_ITEMS(a, "b") makes a list. mu_named_items_of makes a list whose items have names, where
// an argument takes them by name, such as a loss for each output: name, item, name, item, …, MU_END. The same is
// MU_BY_NAME("first", a, "second", "b"). Errors of the latter: INVALID_ARGUMENT for a name without an item or given
// twice.
typedef struct mu_items mu_items;
MU_API mu_items *mu_items_of(const void *const *items);
MU_API mu_items *mu_named_items_of(const void *const *pairs);
#ifndef __cplusplus
#define MU_ITEMS(...)   mu_items_of((const void *const[]){__VA_ARGS__, MU_END})
#define MU_BY_NAME(...) mu_named_items_of((const void *const[]){__VA_ARGS__, MU_END})
#else
extern "C++" {
template <typename... Items> inline mu_items *mu_items_listed(Items... items)
{
    const void *const all[] = {items..., MU_END};
    return mu_items_of(all);
}
template <typename... Items> inline mu_items *mu_items_named(Items... items)
{
    const void *const all[] = {items..., MU_END};
    return mu_named_items_of(all);
}
}
#define MU_ITEMS(...)   mu_items_listed(__VA_ARGS__)
#define MU_BY_NAME(...) mu_items_named(__VA_ARGS__)
#endif

// MU_ANY(name, type *, …) declares an argument that is a pointer of any of these types, such as an object or its name.
// In C it is a plain pointer, and the library refuses others when it is called; in C++ others do not compile.
#ifndef __cplusplus
#define MU_ANY(name, ...) typedef const void *name
#else
extern "C++" {
template <typename A, typename B> struct mu_same {
    static const bool value = false;
};
template <typename A> struct mu_same<A, A> {
    static const bool value = true;
};
template <typename T, typename... Types> struct mu_one_of {
    static const bool value = false;
};
template <typename T, typename First, typename... Rest> struct mu_one_of<T, First, Rest...> {
    static const bool value =
        mu_same<T *, First>::value || mu_same<const T *, First>::value || mu_one_of<T, Rest...>::value;
};
template <bool> struct mu_only_if {
};
template <> struct mu_only_if<true> {
    typedef int type;
};
template <typename... Types> class mu_any
{
  public:
    mu_any() = default;
    mu_any(decltype(nullptr)) {}
    template <typename T, typename mu_only_if<mu_one_of<T, Types...>::value>::type = 0>
    mu_any(T *argument) : pointer_(argument)
    {
    }
    operator const void *() const { return pointer_; }

  private:
    const void *pointer_ = nullptr;
};
}
#define MU_ANY(name, ...) typedef mu_any<__VA_ARGS__> name
#endif

// ---- Ownership ----------------------------------------------------------------------------------

typedef struct mu_pool mu_pool; // objects that are freed together

// mu_pool_open opens a pool on this thread. Objects returned from here on belong to it, until it closes or another pool
// is opened.
MU_API mu_pool *mu_pool_open(void);

// mu_pool_close frees the pool's objects in reverse order, after those of every pool opened later. NULL is accepted.
// Errors: FAILED_PRECONDITION if the pool is not open on this thread and in this callback; it then frees nothing.
MU_API void mu_pool_close(mu_pool *pool);

// mu_line_pool_open and mu_line_pool_close do the same for the macros of muster/lines.h: an error names `file`, which
// is static storage, and `line`.
MU_API mu_pool *mu_line_pool_open(const char *file, int line);
MU_API void mu_line_pool_close(mu_pool *pool, const char *file, int line);

// mu_retain keeps an object beyond its pool and returns it. NULL returns NULL.
MU_API void *mu_retain(void *object);

// mu_release undoes one mu_retain. NULL is accepted.
MU_API void mu_release(void *object);

// ---- Start and end ------------------------------------------------------------------------------

// A runtime holds settings, devices and the cluster. mu_init makes the default one.
typedef struct mu_runtime mu_runtime;

typedef struct mu_runtime_args {
    size_t size;
    const char *given;
    mu_keyword_only only_;
    int threads;     // threads that compute, for all devices together; default: every core this process may use
    int cpu_devices; // logical CPU devices; default: one per core, at most 8
    uint64_t seed;   // see mu_set_seed; default: random, from the system
    const char *log; // level as in MUSTER_LOG: "error", "warning" (default), "info" or "debug"
} mu_runtime_args;

// mu_init makes the default runtime and opens the outermost pool. Without it, the first call that needs the runtime
// makes one with the defaults, and opens no pool. Errors: FAILED_PRECONDITION if there is a default runtime already, or
// MUSTER_ISA is not what this processor has; INVALID_ARGUMENT for an invalid setting, which the message names.
#define mu_init(...) mu_init_with(MU_ARGS(mu_runtime_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_init_with(const mu_runtime_args *args);

// mu_runtime_new makes another runtime (a process may have several); its errors are those of mu_init for a setting.
// mu_runtime_use selects the runtime that this thread uses (NULL: the default one) and returns the previous one. Errors
// (the runtime in use, which stays): INVALID_ARGUMENT for an object of another type.
#define mu_runtime_new(...) mu_runtime_new_with(MU_ARGS(mu_runtime_args, #__VA_ARGS__, __VA_ARGS__))
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
