// Hostile integers: every public op and dataset stage that takes axes, counts or sizes, with the smallest and the
// largest numbers in each argument and in all of them. Each call succeeds or is refused as the caller's mistake; none
// may overflow, which the undefined-behaviour sanitizer would detect, and none may crash.
//
// The rows are in hostile.def. Ops run eagerly, with a gradient if they have one, and inside a trace that does not know
// the first axis of their inputs.
#include <muster.h>

#include "../unit/base/base_test.h"

#include <limits.h>
#include <signal.h>
#include <unistd.h>

// A size larger than any memory is an error here, not the end of the program.
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=4096"; }

// ---- What the rows use --------------------------------------------------------------------------

#define DIMS(...)            ((const int64_t[8]){__VA_ARGS__})
#define AXES(...)            ((const int[16]){__VA_ARGS__})
#define LONGS(first, second) mu_tensor_new(MU_I64, 1, DIMS(2), (int64_t[]){first, second})
#define MANY                 ((mu_tensor *const[]){x, x, x})
#define WIDE                 ((mu_tensor *const[]){wide, wide, wide})
#define FEW(n)               ((n) > 3 ? 3 : (n)) // a list's length is the caller's word: here a list has three

static mu_tensor *x, *one, *truth, *indices, *seed, *image, *kernel, *pixel, *sequence, *filter, *volume, *cube, *wide,
    *empty;
static mu_dataset *data;
static mu_tensor *parts[4];
static char space[64];

// The first of several results; x if there are none.
static mu_tensor *first(mu_status status) { return status != MU_OK ? NULL : parts[0] ? parts[0] : x; }

static mu_value *echo(mu_value *element, void *arg)
{
    (void)arg;
    return element;
}

static mu_dataset *again(mu_value *element, void *arg)
{
    (void)arg;
    return mu_dataset_from_tensors(element);
}

static mu_tensor *ones(int rank, const int64_t *dims) { return mu_ones(MU_F32, rank, dims); }

static void make_inputs(void)
{
    x = mu_tensor_new(MU_F32, 2, DIMS(2, 3), (float[]){1, 2, 3, 4, 5, 6});
    one = mu_constant(MU_F32, 1);
    truth = mu_cast(x, MU_BOOL);
    indices = mu_tensor_new(MU_I32, 1, DIMS(2), (int32_t[]){0, 1});
    seed = LONGS(1, 2);
    image = ones(4, DIMS(1, 4, 4, 1));
    kernel = ones(4, DIMS(2, 2, 1, 1));
    pixel = ones(4, DIMS(1, 1, 1, 1));
    sequence = ones(3, DIMS(1, 4, 1));
    filter = ones(3, DIMS(2, 1, 1));
    volume = ones(5, DIMS(1, 3, 3, 3, 1));
    cube = ones(5, DIMS(2, 2, 2, 1, 1));
    wide = mu_zeros(MU_F32, 2, DIMS(0, (int64_t)1 << 50));
    empty = mu_zeros(MU_F32, 2, DIMS(0, 3));
    data = mu_dataset_from_tensor_slices(mu_of(x));
}

// ---- The table ----------------------------------------------------------------------------------

enum { NO_PLACE = -1, ALL_PLACES = -2 };

// Selects the argument that gets a number; the others keep values that work.
typedef struct hostile {
    int place;
    int64_t number;
} hostile;

static int64_t number_at(const hostile *h, int place, int64_t good)
{
    return h->place == place || h->place == ALL_PLACES ? h->number : good;
}

static int int_at(const hostile *h, int place, int good)
{
    const int64_t number = number_at(h, place, good);
    return number > INT_MAX ? INT_MAX - (int)(INT64_MAX - number > 1) : number < INT_MIN ? INT_MIN : (int)number;
}

#define I(place, good) int_at(h, place, good)
#define L(place, good) number_at(h, place, good)

#define OP(name, n, call)                          \
    static mu_tensor *run_##name(const hostile *h) \
    {                                              \
        (void)h;                                   \
        return call;                               \
    }
#define STAGE(name, n, call) \
    static mu_dataset *run_##name(const hostile *h) { return call; }
#include "hostile.def"
#undef OP
#undef STAGE

static const struct row {
    const char *name;
    int n;
    mu_tensor *(*op)(const hostile *h);
    mu_dataset *(*stage)(const hostile *h);
} rows[] = {
#define OP(name, n, call)    {#name, n, run_##name, NULL},
#define STAGE(name, n, call) {#name, n, NULL, run_##name},
#include "hostile.def"
#undef OP
#undef STAGE
};

// 2^58 elements can be counted but not stored; 2^32 + 1 becomes 1 if it is truncated to 32 bits.
static const int64_t numbers[] = {
    INT64_MIN, INT64_MIN + 1,    INT64_MIN / 2,    -((int64_t)1 << 32), INT_MIN,       -1000,         -2,        -1,
    0,         (int64_t)1 << 58, (int64_t)1 << 60, (int64_t)1 << 62,    INT64_MAX / 2, INT64_MAX - 1, INT64_MAX,
};

// ---- Running ------------------------------------------------------------------------------------

static const struct row *running;
static hostile running_with;

static void name_the_row(int number)
{
    char text[200];
    const int n = snprintf(text, sizeof text, "%s crashed (signal %d) with %lld at place %d\n", running->name, number,
                           (long long)running_with.number, running_with.place);
    if (write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(2);
    _exit(1);
}

static int wrong;

static int print_failure(const char *how, const mu_error *error)
{
    print_message("%s (%s) with %lld at place %d: code %d, \"%s\"\n", running->name, how,
                  (long long)running_with.number, running_with.place, (int)error->code, error->message);
    return 1;
}

// Without a hostile number the call must succeed; with one it may be refused, but only with these codes.
static void check_outcome(const char *how, bool worked)
{
    const mu_error error = mu_error_take();
    if (running_with.place == NO_PLACE && !worked && running->n > 0)
        wrong += print_failure(how, &error);
    if (!worked && error.code != MU_INVALID_ARGUMENT && error.code != MU_RESOURCE_EXHAUSTED &&
        error.code != MU_OUT_OF_RANGE && error.code != MU_UNIMPLEMENTED && error.code != MU_NOT_FOUND &&
        !(running->stage && error.code == MU_FAILED_PRECONDITION)) // a shard of MU_SHARD_HINT
        wrong += print_failure(how, &error);
}

static bool gradient_works(void)
{
    mu_tape *tape = mu_tape_open();
    memset(parts, 0, sizeof parts);
    mu_tensor *y = running->op(&running_with);
    if (y && mu_tensor_dtype(y) == MU_F32)
        mu_gradients(tape, mu_reduce_sum(y, MU_ALL_AXES), mu_list(x, image, sequence, volume, MU_END));
    mu_tape_close(tape);
    return y && mu_error_code() == MU_OK;
}

static void run_eagerly(void) { check_outcome("eagerly", gradient_works()); }

static mu_value *traced(mu_value *arguments, void *arg)
{
    mu_tensor **const inputs[] = {&x, &truth, &image, &sequence, &volume, &empty};
    mu_tensor *kept[MU_COUNT(inputs)];
    (void)arg;
    for (size_t i = 0; i < MU_COUNT(inputs); i++) {
        kept[i] = *inputs[i];
        *inputs[i] = mu_at(arguments, (int)i);
    }
    memset(parts, 0, sizeof parts);
    mu_tensor *y = running->op(&running_with);
    for (size_t i = 0; i < MU_COUNT(inputs); i++)
        *inputs[i] = kept[i];
    return y ? mu_of(y) : NULL;
}

static void run_traced(void)
{
    mu_value *arguments = mu_list(x, truth, image, sequence, volume, empty, MU_END);
    check_outcome("traced",
                  mu_run(NULL, mu_function_new(traced, NULL), arguments) != NULL || running_with.place == NO_PLACE);
}

static void run_stage(void)
{
    mu_dataset *dataset = running->stage(&running_with);
    mu_iterator *iterator = dataset ? mu_iterate(dataset) : NULL;
    bool worked = iterator != NULL;
    if (dataset)
        mu_dataset_cardinality(dataset);
    for (int i = 0; i < 5 && iterator && mu_next(iterator); i++)
        continue;
    check_outcome("iterated", worked && mu_error_code() == MU_OK);
}

static void run_with(hostile h)
{
    mu_pool *pool = mu_pool_open();
    running_with = h;
    if (running->stage) {
        run_stage();
    } else {
        run_eagerly();
        run_traced();
    }
    mu_pool_close(pool);
}

static void test_rows(void **state)
{
    (void)state;
    signal(SIGSEGV, name_the_row);
    signal(SIGFPE, name_the_row);
    signal(SIGABRT, name_the_row);
    make_inputs();
    for (size_t r = 0; r < MU_COUNT(rows); r++) {
        running = &rows[r];
        run_with((hostile){.place = NO_PLACE});
        for (size_t k = 0; k < MU_COUNT(numbers); k++)
            for (int place = ALL_PLACES; place < running->n; place++)
                if (place != NO_PLACE)
                    run_with((hostile){.place = place, .number = numbers[k]});
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
