// Notices a loop that forgot its pool: a line of the program that leaves more in the same pool on each iteration.
//
// A pool counts only from its 256th object on, so that small ones pay nothing. It counts how often each line of the
// program has called the library and what all of them left; callers that name no line (other languages) count together.
#include "base/private.h"

enum {
    LINES = 16,
    ITERATIONS_REPORTED = 256,
    BYTES_REPORTED = 16 << 20,
    OBJECT_BYTES = 128,
    OBJECTS_REPORTED = 1000000
};

struct mu_pool_growth {
    struct {
        const char *file;
        int line;
        uint64_t call;
        int64_t iterations;
    } lines[LINES];
    int n_lines;
    double bytes;
    bool reported;
};

// Counts a call of this line and returns how many there were.
static int64_t count_iteration(mu_pool_growth *growth, const mu_site *site, uint64_t call)
{
    int i = 0;
    while (i < growth->n_lines && (growth->lines[i].line != site->line || growth->lines[i].file != site->file))
        i++;
    if (i == LINES)
        return 0;
    if (i == growth->n_lines) {
        growth->n_lines++;
        growth->lines[i].file = site->file;
        growth->lines[i].line = site->line;
        growth->lines[i].iterations = 0;
        growth->lines[i].call = call - 1;
    }
    growth->lines[i].iterations += growth->lines[i].call != call;
    growth->lines[i].call = call;
    return growth->lines[i].iterations;
}

static void report(mu_pool_growth *growth, const mu_site *site, int64_t iterations)
{
    growth->reported = true;
    mu__log(MU_LOG_WARNING,
            "%s:%d: each iteration of this loop leaves about %.0f KB in its pool, %.1f MB after %lld iterations; give "
            "each iteration a pool of its own (MU_EACH, or mu_pool_open and mu_pool_close)",
            site->file, site->line, growth->bytes / (double)iterations / 1000, growth->bytes / 1e6,
            (long long)iterations);
}

mu_status mu__pool_grows(mu_pool_growth **kept, const mu_object *object, size_t n, int depth)
{
    mu_pool_growth *growth = *kept;
    if (growth == NULL)
        growth = *kept = mu__calloc(1, sizeof *growth);
    if (growth == NULL)
        return MU_RESOURCE_EXHAUSTED;
    if (growth->reported)
        return MU_OK;
    const mu_context *context = mu__context();
    const int at = MU_MIN(MU_MIN(depth, context->n_lines - 1), MU_LINE_DEPTH - 1);
    growth->bytes += OBJECT_BYTES + (object->type->bytes != NULL ? (double)object->type->bytes(object) : 0);
    if (at >= 0 && context->lines[at].file != NULL) {
        const int64_t iterations = count_iteration(growth, &context->lines[at], context->n_calls);
        if (iterations >= ITERATIONS_REPORTED && growth->bytes >= BYTES_REPORTED)
            report(growth, &context->lines[at], iterations);
    }
    if (n >= OBJECTS_REPORTED && !growth->reported) {
        growth->reported = true;
        mu__log(MU_LOG_WARNING,
                "a pool holds %d objects; give each iteration of the loop that fills it a pool of its own (MU_EACH, or "
                "mu_pool_open and mu_pool_close)",
                OBJECTS_REPORTED);
    }
    return MU_OK;
}
