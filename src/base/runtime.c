// Starts and ends the library, and holds a runtime's state: settings, processors, seeds, and one slot for the state
// of each higher layer.
//
// The default runtime is the only mutable global, besides the process's signals, the leak counters and the selected
// kernels.
#include "base/callback.h"
#include "base/private.h"
#include "kernels/kernels.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

enum { MOST_CPUS = 4096 };

static _Atomic(mu_runtime *) default_runtime;
static pthread_mutex_t default_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int n_runtimes;

static void runtime_destroy(void *object);
static mu_type runtime_type = {.name = "runtime", .destroy = runtime_destroy};

#define TEXT_OF(number)                 #number
#define VERSION_OF(major, minor, patch) TEXT_OF(major) "." TEXT_OF(minor) "." TEXT_OF(patch)

const char *mu_version(void) { return VERSION_OF(MU_VERSION_MAJOR, MU_VERSION_MINOR, MU_VERSION_PATCH); }

// ---- Processors and seeds -----------------------------------------------------------------------

// A container's CPU quota, rounded up to whole processors; 0 if there is none.
static int cpu_quota(void)
{
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (file == NULL)
        return 0;
    long long quota = 0, period = 0;
    const int n = fscanf(file, "%lld %lld", &quota, &period);
    fclose(file);
    if (n != 2 || quota <= 0 || period <= 0)
        return 0;
    return (int)MU_MIN((quota + period - 1) / period, (long long)MOST_CPUS);
}

static mu_status find_cpus(mu_runtime *runtime)
{
    const size_t bytes = CPU_ALLOC_SIZE(MOST_CPUS);
    cpu_set_t *set = mu__calloc(1, bytes);
    runtime->cpus = mu__calloc(MOST_CPUS, sizeof *runtime->cpus);
    if (set == NULL || runtime->cpus == NULL) {
        mu__free(set);
        return MU_RESOURCE_EXHAUSTED;
    }
    if (sched_getaffinity(0, bytes, set) == 0)
        for (int cpu = 0; cpu < MOST_CPUS; cpu++)
            if (CPU_ISSET_S(cpu, bytes, set))
                runtime->cpus[runtime->n_cpus++] = cpu;
    mu__free(set);
    if (runtime->n_cpus == 0)
        runtime->n_cpus = 1;
    atomic_init(&runtime->n_threads, runtime->n_cpus);
    const int quota = cpu_quota();
    const int64_t limit = runtime->settings.values[MU_SETTING_THREADS].integer;
    if (quota > 0)
        mu__runtime_limit(runtime, quota);
    if (limit > 0)
        mu__runtime_limit(runtime, (int)limit);
    return MU_OK;
}

static uint64_t system_seed(void)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, GRND_NONBLOCK) != (ssize_t)sizeof seed)
        seed = (uint64_t)mu__now_ns() ^ (uint64_t)getpid() << 32;
    return seed;
}

// ---- Make and destroy ---------------------------------------------------------------------------

static mu_status make_lock(pthread_mutex_t *lock)
{
    pthread_mutexattr_t attributes;
    int failed = pthread_mutexattr_init(&attributes);
    if (failed == 0) {
        pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
        failed = pthread_mutex_init(lock, &attributes);
        pthread_mutexattr_destroy(&attributes);
    }
    return failed == 0 ? MU_OK : mu__error(mu__errno_code(failed), "cannot make a mutex: %s", strerror(failed));
}

static mu_status choose_kernels(const mu_runtime *runtime)
{
    const char *isa = runtime->settings.values[MU_SETTING_ISA].text;
    if (mu__kernels_use(isa))
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION,
                     "MUSTER_ISA is \"%s\", which this processor lacks; unset it to use the best one (%s)", isa,
                     mu__kernels()->isa);
}

static mu_status runtime_fill(mu_runtime *runtime, const mu_runtime_args *args)
{
    MU_TRY(make_lock(&runtime->lock));
    runtime->has_lock = true;
    MU_TRY(mu__settings_read(&runtime->settings, args));
    runtime->log_level = mu__settings_log_level(&runtime->settings);
    MU_TRY(choose_kernels(runtime));
    MU_TRY(find_cpus(runtime));
    atomic_init(&runtime->seed, MU_GIVEN(args, seed) ? args->seed : system_seed());
    if (runtime->settings.values[MU_SETTING_TRACE].text == NULL)
        return MU_OK;
    runtime->timeline = mu__timeline_new();
    return runtime->timeline != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

static mu_runtime *runtime_make(const mu_runtime_args *args)
{
    mu_runtime *runtime = mu__new(&runtime_type, sizeof *runtime);
    if (runtime == NULL)
        return NULL;
    if (runtime_fill(runtime, args) == MU_OK)
        return runtime;
    mu__timeline_drop(runtime);
    mu_release(runtime);
    return NULL;
}

// Ends the runtime's activities and writes its timeline; afterwards only memory remains.
static void runtime_stop(mu_runtime *runtime)
{
    mu_context *context = mu__context();
    mu_runtime *const used = context->runtime;
    context->runtime = runtime; // slots may ask for their runtime while they are freed
    while (runtime->n_made > 0) {
        mu_slot_entry *entry = &runtime->slots[runtime->made[--runtime->n_made]];
        void *value = atomic_exchange(&entry->value, NULL);
        if (entry->destroy != NULL && value != NULL)
            entry->destroy(value);
    }
    mu__timeline_write(runtime);
    mu__timeline_drop(runtime);
    context->runtime = used;
    for (mu_context *outer = context; outer != NULL; outer = outer->previous)
        if (outer->runtime == runtime)
            outer->runtime = NULL;
}

static void runtime_destroy(void *object)
{
    mu_runtime *runtime = object;
    runtime_stop(runtime);
    mu__settings_free(&runtime->settings);
    mu__free(runtime->cpus);
    if (runtime->has_lock)
        pthread_mutex_destroy(&runtime->lock);
}

// ---- The default and other runtimes -------------------------------------------------------------

mu_runtime *mu__runtime_present(void)
{
    mu_runtime *own = mu__context()->runtime;
    return own != NULL ? own : atomic_load_explicit(&default_runtime, memory_order_acquire);
}

// If a program starts with a standard stream closed, its next opened file (a connection, a file of weights) gets that
// descriptor and receives the output. So this opens /dev/null in its place.
static void hold_standard_numbers(void)
{
    for (int fd = 0; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0)
            return;
}

static mu_status make_default(const mu_runtime_args *args, bool must_be_first)
{
    mu_status status = MU_OK;
    pthread_mutex_lock(&default_lock);
    if (atomic_load(&default_runtime) == NULL) {
        hold_standard_numbers();
        mu_runtime *runtime = runtime_make(args);
        status = runtime != NULL ? MU_OK : mu_error_code();
        atomic_store(&default_runtime, runtime);
        if (runtime != NULL)
            mu__settings_unknown();
    } else if (must_be_first) {
        status = mu__error(MU_FAILED_PRECONDITION, "mu_init: the library is running already; call mu_init once, before "
                                                   "every other call, or mu_runtime_new for one more runtime");
    }
    pthread_mutex_unlock(&default_lock);
    return status;
}

mu_runtime *mu__runtime(void)
{
    mu_runtime *runtime = mu__runtime_present();
    if (runtime != NULL)
        return runtime;
    const mu_runtime_args defaults = {.size = sizeof defaults};
    if (make_default(&defaults, false) != MU_OK)
        return NULL;
    return mu__runtime_present();
}

mu_status mu_init_with(const mu_runtime_args *args)
{
    if (mu__pending())
        return mu_error_code();
    mu_runtime_args given;
    MU_TRY(mu__args_copy(&given, sizeof given, args, "mu_init"));
    MU_TRY(make_default(&given, true));
    mu_context *context = mu__context();
    if (context->pool == NULL && mu__pool_push(context) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    return MU_OK;
}

mu_runtime *mu_runtime_new_with(const mu_runtime_args *args)
{
    if (mu__pending())
        return NULL;
    mu_runtime_args given;
    if (mu__args_copy(&given, sizeof given, args, "mu_runtime_new") != MU_OK)
        return NULL;
    mu_runtime *runtime = runtime_make(&given);
    if (runtime == NULL)
        return NULL;
    runtime->number = atomic_fetch_add(&n_runtimes, 1) + 1;
    return mu__give(runtime);
}

mu_runtime *mu_runtime_use(mu_runtime *runtime)
{
    mu_context *context = mu__context();
    if (runtime != NULL && !mu__is(runtime, &runtime_type)) {
        mu__error(MU_INVALID_ARGUMENT, "mu_runtime_use: this is a %s, not a runtime; pass what mu_runtime_new returned",
                  runtime->object.type->name);
        return context->runtime;
    }
    mu_runtime *previous = context->runtime;
    context->runtime = runtime;
    return previous;
}

// ---- Queries ------------------------------------------------------------------------------------

void *mu__runtime_slot(mu_runtime *runtime, mu_slot slot, void *(*create)(mu_runtime *), void (*destroy)(void *))
{
    if (runtime == NULL)
        return NULL;
    mu_slot_entry *entry = &runtime->slots[slot];
    void *value = atomic_load_explicit(&entry->value, memory_order_acquire);
    if (value != NULL)
        return value;
    pthread_mutex_lock(&runtime->lock);
    value = atomic_load(&entry->value);
    if (value == NULL) {
        value = create(runtime);
        if (value != NULL) {
            entry->destroy = destroy;
            runtime->made[runtime->n_made++] = slot;
            atomic_store_explicit(&entry->value, value, memory_order_release);
        }
    }
    pthread_mutex_unlock(&runtime->lock);
    return value;
}

int mu__runtime_threads(mu_runtime *runtime) { return runtime != NULL ? atomic_load(&runtime->n_threads) : 1; }

void mu__runtime_limit(mu_runtime *runtime, int n_threads)
{
    int before = atomic_load(&runtime->n_threads);
    while (n_threads < before && !atomic_compare_exchange_weak(&runtime->n_threads, &before, n_threads))
        continue;
}

void mu__runtime_take(mu_runtime *runtime, const int *cpus, int n)
{
    pthread_mutex_lock(&runtime->lock);
    memcpy(runtime->cpus, cpus, (size_t)n * sizeof *cpus);
    runtime->n_cpus = n;
    pthread_mutex_unlock(&runtime->lock);
    mu__runtime_limit(runtime, n);
}

int mu__runtime_cpu(mu_runtime *runtime, int index)
{
    if (runtime == NULL || index < 0)
        return 0;
    pthread_mutex_lock(&runtime->lock);
    const int cpu = runtime->cpus[index % runtime->n_cpus];
    pthread_mutex_unlock(&runtime->lock);
    return cpu;
}

uint64_t mu__runtime_seed(mu_runtime *runtime) { return runtime != NULL ? atomic_load(&runtime->seed) : 0; }

uint64_t mu__runtime_seed_epoch(mu_runtime *runtime) { return runtime != NULL ? atomic_load(&runtime->seed_epoch) : 0; }

// SplitMix64 (Steele, Lea, Flood 2014): consecutive numbers give independent seeds.
static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t mu__runtime_next_seed(mu_runtime *runtime)
{
    if (runtime == NULL)
        return 0;
    const uint64_t number = atomic_fetch_add(&runtime->n_seeds, 1) + 1;
    return mixed(atomic_load(&runtime->seed) + number * UINT64_C(0x9e3779b97f4a7c15));
}

void mu_set_seed(uint64_t seed)
{
    mu_runtime *runtime = mu__runtime();
    if (runtime == NULL)
        return;
    atomic_store(&runtime->seed, seed);
    atomic_store(&runtime->n_seeds, 0);
    atomic_fetch_add(&runtime->seed_epoch, 1);
}

// ---- The end ------------------------------------------------------------------------------------

enum { CALLERS_FAULT = 64 };

// As docs/exit-codes.md lists them.
static int exit_code(mu_status code)
{
    switch (code) {
    case MU_OK: return 0;
    case MU_INVALID_ARGUMENT: return CALLERS_FAULT;
    case MU_DATA_LOSS: return 65;
    case MU_NOT_FOUND: return 66;
    case MU_UNAVAILABLE:
    case MU_DEADLINE_EXCEEDED: return 69;
    case MU_INTERNAL:
    case MU_UNKNOWN_ERROR: return 70;
    case MU_RESOURCE_EXHAUSTED: return 74;
    case MU_PERMISSION_DENIED:
    case MU_UNAUTHENTICATED: return 77;
    case MU_FAILED_PRECONDITION:
    case MU_UNIMPLEMENTED: return 78;
    case MU_CANCELLED: return mu__stop_exit_code();
    default: return 1;
    }
}

// Prints the pending error and returns its exit code; 0 if there is none.
static int report(void)
{
    mu_error_value error;
    mu__error_move(&error);
    if (error.code == MU_OK)
        return 0;
    const char *slash = strrchr(error.file, '/');
    const char *file = slash != NULL ? slash + 1 : error.file;
    mu__printable(error.message, true);
    char *rest = strchr(error.message, '\n');
    if (rest != NULL)
        *rest++ = '\0';
    if (file[0] != '\0')
        fprintf(stderr, "muster: error: %s [%s at %s:%d]\n", error.message, mu_status_name(error.code), file,
                error.line);
    else // of another process
        fprintf(stderr, "muster: error: %s [%s]\n", error.message, mu_status_name(error.code));
    for (char *line = rest; line != NULL; line = rest) {
        rest = strchr(line, '\n');
        if (rest != NULL)
            *rest++ = '\0';
        fprintf(stderr, "  %s\n", line);
    }
    return error.of_caller ? CALLERS_FAULT : exit_code(error.code);
}

static void end_default(void)
{
    pthread_mutex_lock(&default_lock);
    mu_runtime *runtime = atomic_load(&default_runtime);
    pthread_mutex_unlock(&default_lock);
    if (runtime != NULL && runtime->kept)
        mu__timeline_write(runtime);
    if (runtime == NULL || runtime->kept)
        return;
    // Still the default runtime while its slots are freed, so that no call creates another.
    runtime_stop(runtime);
    atomic_store(&default_runtime, NULL);
    mu_release(runtime);
}

void mu__runtime_keep(mu_runtime *runtime)
{
    if (runtime != NULL && !atomic_exchange(&runtime->kept, true))
        mu_retain(runtime);
}

// The error stays recorded, so that the call that runs this callback fails with it.
static int refuse_exit(const char *callback)
{
    if (!mu__pending())
        mu__error(MU_FAILED_PRECONDITION,
                  "mu_exit is called inside %s; the call that runs it still uses what mu_exit frees. Return the code "
                  "of mu_fail(...) from there to end the call, and call mu_exit afterwards",
                  callback);
    return exit_code(mu_error_code());
}

int mu_exit(bool ok)
{
    const char *callback = mu__callback_running();
    if (callback != NULL)
        return refuse_exit(callback);
    // Each stage may fail for its own reason; the first failure decides the exit code.
    const int failed = report();
    mu__context_unwind();
    const int closing = report();
    end_default();
    const int ending = report();
    mu__team_dismiss();
    mu__signals_restore();
    if (failed != 0 || closing != 0)
        return failed != 0 ? failed : closing;
    return ending != 0 ? ending : (ok ? 0 : 1);
}
