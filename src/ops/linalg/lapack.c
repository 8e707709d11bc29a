// Calls LAPACK's divide-and-conquer singular value decomposition (dgesdd); see lapack.h.
//
// Fortran takes every argument by address and stores matrices by columns, so it is given the transpose: its left
// vectors are our right ones.
#include "ops/linalg/lapack.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>

static const char library_name[] = "liblapack.so.3";

// The length of the text `job` follows the other arguments.
typedef void decompose(const char *job, const int *rows, const int *columns, double *a, const int *a_step,
                       double *values, double *u, const int *u_step, double *v, const int *v_step, double *work,
                       const int *work_length, int *integers, int *info, size_t job_length);
static decompose *dgesdd;
static char reason[256]; // why the library cannot be used
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_library(void)
{
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    void *found = library ? dlsym(library, "dgesdd_") : NULL;
    if (!found)
        snprintf(reason, sizeof reason, "%s", dlerror());
    memcpy(&dgesdd, &found, sizeof found); // POSIX allows this conversion; ISO C has no cast for it
    if (library)
        dlclose(library);
}

mu_status mu__lapack_open(const char *op)
{
    pthread_once(&once, open_library);
    return dgesdd ? MU_OK
                  : mu__error(MU_FAILED_PRECONDITION,
                              "%s needs LAPACK, but %s cannot be used (%s); install it (Debian: liblapack3)", op,
                              library_name, reason);
}

// Runs dgesdd; a work_length of -1 writes the best length to work[0] and does nothing else. Returns LAPACK's `info`.
static int call(const mu_svd_memory *memory, double *work, int work_length)
{
    const int rows = (int)memory->n, columns = (int)memory->m, least = MU_MIN(rows, columns);
    int info = 0;
    dgesdd(memory->left ? "S" : "N", &rows, &columns, memory->x, &rows, memory->values, memory->right, &rows,
           memory->left, &least, work, &work_length, memory->integers, &info, 1);
    return info;
}

bool mu__lapack_memory(mu_svd_memory *memory, bool vectors)
{
    const int64_t m = memory->m, n = memory->n, k = MU_MIN(m, n), own = m * n + k + (vectors ? k * (m + n) : 0);
    double best = 0, none = 0;
    mu_svd_memory shape = {.m = m, .n = n, .x = &none, .left = vectors ? &none : NULL, .right = &none, .values = &none};
    if (MU_MAX(m, n) > INT_MAX || call(&shape, &best, -1) != 0 || best > INT_MAX)
        return false;
    memory->work_length = (int)best;
    memory->x = mu__alloc(sizeof(double) * (size_t)(own + memory->work_length) + sizeof(int) * (size_t)(8 * k));
    if (!memory->x)
        return false;
    memory->block = memory->x;
    memory->values = memory->x + m * n;
    memory->left = vectors ? memory->values + k : NULL;
    memory->right = vectors ? memory->left + m * k : NULL;
    memory->work = memory->x + own;
    memory->integers = (int *)(memory->work + memory->work_length);
    return true;
}

bool mu__lapack_svd(const mu_svd_memory *memory) { return call(memory, memory->work, memory->work_length) == 0; }
