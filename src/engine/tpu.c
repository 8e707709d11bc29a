// The TPU system of this host: which devices are its cores, and how often it has been initialised.
//
// Any plugin's devices can be the cores, so that a program for TPUs runs where there is none: the published CPU plugin
// with several devices, or the CPU devices of the native engine. Initialising again begins a new life: strategies
// and variables of an earlier one are lost, as on a TPU, and refuse every use (distribute/strategies/tpu_strategy.c).
#include "engine/engine.h"
#include "engine/pjrt/pjrt.h"

enum { MOST_CORES = 256, MOST_PLUGINS = 16 };

typedef struct tpu_system {
    pthread_mutex_t lock;
    int life, n_lives; // life: 0 after a shutdown
    int n_cores;
    mu_device *cores[MOST_CORES];
} tpu_system;

static void *create(mu_runtime *runtime)
{
    (void)runtime;
    tpu_system *tpu = mu__calloc(1, sizeof *tpu);
    if (tpu)
        pthread_mutex_init(&tpu->lock, NULL);
    return tpu;
}

static void destroy(void *slot)
{
    tpu_system *tpu = slot;
    pthread_mutex_destroy(&tpu->lock);
    mu__free(tpu);
}

static tpu_system *system_of(mu_runtime *runtime) { return mu__runtime_slot(runtime, MU_SLOT_TPU, create, destroy); }

// ---- Choosing the cores -------------------------------------------------------------------------

static mu_status take_plugin(mu_runtime *runtime, tpu_system *tpu, const char *plugin)
{
    int n = 0;
    mu_device *devices = mu__device_plugin(runtime, plugin, &n);
    if (!devices)
        return mu_error_code();
    if (n > MOST_CORES)
        return mu__error(MU_RESOURCE_EXHAUSTED, "plugin %s has %d devices; a TPU system here has at most %d cores",
                         plugin, n, (int)MOST_CORES);
    for (int i = 0; i < n; i++)
        tpu->cores[i] = &devices[i];
    tpu->n_cores = n;
    return MU_OK;
}

static mu_status take_processors(mu_runtime *runtime, tpu_system *tpu)
{
    const int n = MU_MIN(mu__device_count(runtime), (int)MOST_CORES);
    for (int i = 0; i < n; i++)
        tpu->cores[i] = mu__device_at(runtime, i);
    tpu->n_cores = n;
    mu__log(
        MU_LOG_WARNING,
        "there is no TPU here that can be used: CPU:0 to CPU:%d of the native engine are the cores TPU:0 to TPU:%d. To "
        "compile for a device, run `muster plugin install tpu`, or name a plugin in PJRT_NAMES_AND_LIBRARY_PATHS",
        n - 1, n - 1);
    return MU_OK;
}

// The plugins that may have the cores, in order: "tpu" and others that the program's environment names, then those that
// are only installed. Of these, only "tpu" has TPUs.
static int candidates(char names[MOST_PLUGINS][MU_PJRT_NAME])
{
    const int listed = mu__pjrt_list(names, MOST_PLUGINS);
    int n = 0, tpu = -1;
    for (int i = 0; i < listed; i++) {
        const bool is_tpu = strcmp(names[i], "tpu") == 0;
        if (!is_tpu && !mu__pjrt_named(names[i]))
            continue;
        tpu = is_tpu ? n : tpu;
        memmove(names[n++], names[i], MU_PJRT_NAME);
    }
    if (tpu > 0 && mu__pjrt_named("tpu")) {
        memmove(names[1], names[0], (size_t)tpu * MU_PJRT_NAME);
        snprintf(names[0], MU_PJRT_NAME, "tpu");
    }
    return n;
}

// A plugin that is there but does not start (libtpu on a machine without a TPU) leaves the choice to the next.
static mu_status take_any(mu_runtime *runtime, tpu_system *tpu)
{
    char names[MOST_PLUGINS][MU_PJRT_NAME];
    const int n = candidates(names);
    for (int i = 0; i < n; i++) {
        mu_error_value reason;
        if (take_plugin(runtime, tpu, names[i]) == MU_OK)
            return MU_OK;
        mu__error_move(&reason);
        mu__log(MU_LOG_WARNING, "the plugin %s cannot be used for the TPU system: %s", names[i], reason.message);
    }
    return take_processors(runtime, tpu);
}

mu_status mu__tpu_initialize(mu_runtime *runtime)
{
    const char *preferred = mu__device_preferred();
    tpu_system *tpu = system_of(runtime);
    if (!tpu)
        return mu_error_code();
    pthread_mutex_lock(&tpu->lock);
    if (tpu->life > 0)
        mu__log(MU_LOG_WARNING, "the TPU system is initialised again: strategies and variables made on it before are "
                                "lost. Initialise it once, at the start of the program");
    const mu_status status = preferred ? take_plugin(runtime, tpu, preferred) : take_any(runtime, tpu);
    if (status == MU_OK)
        tpu->life = ++tpu->n_lives;
    pthread_mutex_unlock(&tpu->lock);
    return status;
}

bool mu__tpu_shutdown(mu_runtime *runtime)
{
    tpu_system *tpu = system_of(runtime);
    if (!tpu)
        return false;
    pthread_mutex_lock(&tpu->lock);
    const bool was = tpu->life > 0;
    tpu->life = tpu->n_cores = 0;
    pthread_mutex_unlock(&tpu->lock);
    return was;
}

// ---- Queries ------------------------------------------------------------------------------------

int mu__tpu_life(mu_runtime *runtime)
{
    tpu_system *tpu = system_of(runtime);
    if (!tpu)
        return 0;
    pthread_mutex_lock(&tpu->lock);
    const int life = tpu->life;
    pthread_mutex_unlock(&tpu->lock);
    return life;
}

int mu__tpu_core_count(mu_runtime *runtime)
{
    tpu_system *tpu = system_of(runtime);
    if (!tpu)
        return 0;
    pthread_mutex_lock(&tpu->lock);
    const int n = tpu->n_cores;
    pthread_mutex_unlock(&tpu->lock);
    return n;
}

mu_device *mu__tpu_core(mu_runtime *runtime, int i)
{
    tpu_system *tpu = system_of(runtime);
    if (!tpu)
        return NULL;
    pthread_mutex_lock(&tpu->lock);
    mu_device *core = i >= 0 && i < tpu->n_cores ? tpu->cores[i] : NULL;
    pthread_mutex_unlock(&tpu->lock);
    return core;
}
