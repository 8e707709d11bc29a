// One process calls a collective differently, field by field: all ranks get an error at once that names both sides, and
// never a wrong number; in shared memory and over TCP, with small and large data, whichever process it is.
#include "world_test.h"

enum { SMALL = 4, LARGE = 60000 };

// One field of a call, with the value that the odd process has.
typedef struct oddity {
    const char *name;
    mu_status code;
    const char *odd, *other; // words about either side
} oddity;

static const oddity oddities[] = {
    {"name", MU_INVALID_ARGUMENT, "\"y\"", "\"x\""},
    {"kind", MU_INTERNAL, "broadcast \"x\"", "all_reduce \"x\""},
    {"number", MU_INVALID_ARGUMENT, "op 8", "op 7"},
    {"run", MU_INVALID_ARGUMENT, "run 6", "run 5"},
    {"dtype", MU_INTERNAL, "elements of int32", "elements of float32"},
    {"reduction", MU_INTERNAL, "max", "sum"},
    {"count", MU_INVALID_ARGUMENT, "3 elements", " elements"},
    {"shape", MU_INVALID_ARGUMENT, "float32[4, 3]", "float32[3, 4]"},
    {"rank", MU_INVALID_ARGUMENT, "float32[12]", "float32[3, 4]"},
    {"pack", MU_INVALID_ARGUMENT, "Number 2 of these tensors has the shapes", "3 tensors of float32"},
    {"end of a long name", MU_INVALID_ARGUMENT, "~", "~"},
};

typedef struct mismatch {
    int odd; // process
    int64_t n;
    size_t first, last; // of the oddities
    bool started;
} mismatch;

static const char *name_of(const oddity *o, bool odd)
{
    static const char long_x[] = "a_model/with_many_blocks/block_12/attention/of_many_heads/projection/kernel",
                      long_y[] = "a_model/with_many_blocks/block_12/attention/of_many_heads/projection/shadow";
    if (strstr(o->name, "long") != NULL)
        return odd ? long_y : long_x;
    return odd && strcmp(o->name, "name") == 0 ? "y" : "x";
}

// All processes bring [3, 4]; the odd one brings the transpose, or a vector of the same length. In a pack of three
// tensors only the second one differs.
static void say_form(mu_collective *c, const char *field, bool odd)
{
    const bool pack = strcmp(field, "pack") == 0, rank = strcmp(field, "rank") == 0;
    const mu_shape matrix = MU_SHAPE(3, 4), own = !odd ? matrix : rank ? MU_SHAPE(12) : MU_SHAPE(4, 3);
    if (!pack && !rank && strcmp(field, "shape") != 0)
        return;
    mu__form_begin(c->form, MU_NO_AXIS);
    for (int i = 0; i < (pack ? 3 : 1); i++)
        mu__form_add(c->form, MU_F32, pack && i != 1 ? &matrix : &own);
}

static mu_status start_and_wait(mu_collective *c, int64_t number, const char *name, mu_reduction reduction,
                                mu_dtype dtype, void *data, int64_t count)
{
    int64_t started;
    const mu_status status = c->start(c, number, name, reduction, dtype, data, count, false, &started);
    return status == MU_OK ? c->wait(c, started) : status;
}

static mu_status call(mu_collective *c, const oddity *o, bool odd, const mismatch *m, void *data)
{
    const char *name = name_of(o, odd), *field = odd ? o->name : "";
    mu__collective_begin(c, strcmp(field, "run") == 0 ? 6 : 5);
    const int64_t number = strcmp(field, "number") == 0 ? 8 : 7, count = strcmp(field, "count") == 0 ? 3 : m->n;
    const mu_dtype dtype = strcmp(field, "dtype") == 0 ? MU_I32 : MU_F32;
    const mu_reduction reduction = strcmp(field, "reduction") == 0 ? MU_REDUCTION_MAX : MU_REDUCTION_SUM;
    say_form(c, o->name, odd);
    if (strcmp(field, "kind") == 0)
        return c->broadcast(c, number, name, dtype, data, count, 0);
    return (m->started ? start_and_wait : c->all_reduce)(c, number, name, reduction, dtype, data, count);
}

static int differ(world *w, mu_collective *c)
{
    const mismatch *m = w->arg;
    const int process = c->rank / w->n_local;
    float *data = calloc(LARGE, sizeof *data);
    for (size_t i = m->first; i <= m->last; i++) {
        const oddity *o = &oddities[i];
        char odd[64];
        if (m->started && strcmp(o->name, "kind") == 0)
            continue; // a rank in another collective never starts: test_nonblocking.c
        snprintf(odd, sizeof odd, "of /job:worker/task:%d", m->odd);
        const double began = idle_now();
        CHECK(call(c, o, process == m->odd, m, data) == o->code);
        CHECK(in_time(began, 20));
        const mu_error error = mu_error_take();
        CHECK(error.code == o->code && strstr(error.message, odd) != NULL && strstr(error.message, o->odd) != NULL &&
              strstr(error.message, o->other) != NULL && strstr(error.message, "do not agree") != NULL);
        CHECK(m->odd == 0 || strstr(error.message, "rank 0 of /job:worker/task:0") != NULL);
    }
    free(data);
    return 0;
}

static void run_mismatch(int processes, int n_local, bool tcp, mismatch m)
{
    run_world((world){.processes = processes, .n_local = n_local, .tcp = tcp, .run = differ, .arg = &m});
}

static void test_small(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (int processes = 2; processes <= 4; processes++)
            for (int odd = 0; odd < processes; odd++)
                for (int started = 0; started < 2; started++)
                    run_mismatch(processes, 1 + odd % 2, tcp,
                                 (mismatch){odd, SMALL, 0, MU_COUNT(oddities) - 1, started});
}

// Some data of a large collective may have been sent already, which ends the job, so each case has a job of its own.
static void test_large(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++)
        for (size_t i = 0; i < MU_COUNT(oddities); i++)
            run_mismatch(2 + (int)i % 3, 1 + (int)i / 4 % 2, tcp, (mismatch){(int)i % 2, LARGE, i, i, false});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),
        cmocka_unit_test(test_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
