// Cases ACCUM of the parameter-server list: conditional accumulators, dense and sparse.
#include "ops/state/accumulator.h"

#include "cases.h"

#include <pthread.h>
#include <sched.h>

enum { TAKES = 10 };

// The tensors of these cases, as bytes of their type.
static mu_tensor *number(mu_dtype dtype, double value) { return mu_constant(dtype, value); }

static mu_tensor *longs(int n, const double *values) { return mu_cast(vector(n, values), MU_I64); }
#define LONGS(...) longs((int)MU_COUNT(((double[]){__VA_ARGS__})), (double[]){__VA_ARGS__})

static mu_tensor *rows(int64_t n, int64_t width, const double *values)
{
    return mu_reshape(vector((int)(n * width), values), 2, (int64_t[]){n, width});
}

static void apply(mu_accumulator *a, double value, int64_t local_step)
{
    CHECK(mu_accumulator_apply_grad(a, scalar(value), local_step) == MU_OK);
}

static double count_of(mu_accumulator *a) { return mu_scalar(mu_accumulator_num_accumulated(a)); }
static double take(mu_accumulator *a, int n) { return mu_scalar(mu_accumulator_take_grad(a, n)); }

// ---- Threads that take and apply ----------------------------------------------------------------

typedef struct worker {
    pthread_t thread;
    mu_accumulator *accumulator;
    mu_cancellation *cancellation;
    int required;
    double value; // what a take returned, or what is applied
    mu_status status;
} worker;

static void *take_main(void *argument)
{
    worker *w = argument;
    mu_pool *pool = mu_pool_open();
    mu_cancellation_use(w->cancellation);
    w->value = take(w->accumulator, w->required);
    w->status = mu_error_take().code;
    mu_cancellation_use(NULL);
    mu_pool_close(pool);
    return NULL;
}

static void *apply_main(void *argument)
{
    worker *w = argument;
    mu_pool *pool = mu_pool_open();
    w->status = mu_accumulator_apply_grad(w->accumulator, scalar(w->value), 0);
    mu_pool_close(pool);
    return NULL;
}

// Starts a take and returns when it waits.
static void start_take(worker *w, mu_accumulator *a, int required)
{
    pthread_mutex_lock(&a->lock);
    const int before = a->n_waiting;
    pthread_mutex_unlock(&a->lock);
    w->accumulator = a;
    w->required = required;
    CHECK(pthread_create(&w->thread, NULL, take_main, w) == 0);
    for (int waiting = before; waiting == before; sched_yield()) {
        pthread_mutex_lock(&a->lock);
        waiting = a->n_waiting;
        pthread_mutex_unlock(&a->lock);
    }
}

// ---- Dense --------------------------------------------------------------------------------------

static void ps_133(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    CHECK(count_of(a) == 0);
    apply(a, 10, 0);
    CHECK(count_of(a) == 1);
    apply(a, 10, 0);
    CHECK(count_of(a) == 2);
    CHECK(take(a, 2) == 10 && count_of(a) == 0);
    for (int i = 0; i < 4; i++)
        apply(a, 10, 1);
    CHECK(count_of(a) == 4);
    CHECK(take(a, 2) == 10 && count_of(a) == 0);
}

static void ps_134(void)
{
    static const mu_dtype types[] = {MU_F16, MU_F32, MU_F64};
    for (size_t t = 0; t < MU_COUNT(types); t++) {
        mu_accumulator *a = mu_conditional_accumulator(types[t]);
        for (int i = 0; i < 10; i++)
            CHECK(mu_accumulator_apply_grad(a, number(types[t], i), 0) == MU_OK);
        mu_tensor *mean = mu_accumulator_take_grad(a, 1);
        CHECK(mu_tensor_dtype(mean) == types[t] && mu_scalar(mean) == 4.5);
    }
}

static void ps_136(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32, .reduction_type = "SUM");
    apply(a, 10, 0);
    apply(a, 20, 0);
    CHECK(take(a, 1) == 30);
    apply(a, 20, 1);
    apply(a, 30, 1);
    CHECK(take(a, 1) == 50);
}

static void ps_137(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {3, 2}});
    mu_tensor *x = rows(3, 2, (double[]){1, 2, 3, 4, 5, 6});
    CHECK(mu_accumulator_apply_grad(a, x, 0) == MU_OK);
    CHECK(mu_accumulator_apply_grad(a, mu_multiply(x, scalar(10)), 0) == MU_OK);
    EXPECT(mu_of(mu_accumulator_take_grad(a, 1)), 5.5, 11, 16.5, 22, 27.5, 33);
}

static void ps_139(void)
{
    static const int64_t other[][2] = {{2, 2}, {3, 1}};
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    CHECK(mu_accumulator_apply_grad(a, mu_ones(MU_F32, 2, (int64_t[]){3, 2}), 0) == MU_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(mu_accumulator_apply_grad(a, mu_ones(MU_F32, 2, other[i]), 0) != MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
    CHECK(count_of(a) == 1);
}

static void ps_140(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    apply(a, 10, 0);
    apply(a, 20, 0);
    CHECK(!mu_accumulator_take_grad(a, -1));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
    CHECK(!mu_conditional_accumulator(MU_F32, .reduction_type = "Invalid"));
    EXPECT_ERROR(MU_INVALID_ARGUMENT);
}

static void ps_142(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    worker workers[TAKES];
    for (int i = 0; i < TAKES; i++) {
        workers[i] = (worker){.accumulator = a, .value = 10 * (i + 1)};
        CHECK(pthread_create(&workers[i].thread, NULL, apply_main, &workers[i]) == 0);
    }
    for (int i = 0; i < TAKES; i++) {
        pthread_join(workers[i].thread, NULL);
        CHECK(workers[i].status == MU_OK);
    }
    CHECK(count_of(a) == TAKES && take(a, 1) == 55);
}

static void ps_143(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    worker takers[TAKES] = {0};
    bool seen[TAKES] = {0};
    for (int i = 0; i < TAKES; i++)
        start_take(&takers[i], a, 1);
    for (int e = 0; e < TAKES; e++)
        apply(a, e, e);
    for (int i = 0; i < TAKES; i++) {
        pthread_join(takers[i].thread, NULL);
        const int value = (int)takers[i].value;
        CHECK(takers[i].status == MU_OK && value >= 0 && value < TAKES && !seen[value]);
        seen[MU_MIN(MU_MAX(value, 0), TAKES - 1)] = true;
    }
}

static void ps_145(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    worker taker = {0};
    start_take(&taker, a, 1);
    CHECK(mu_accumulator_close(a) == MU_OK);
    pthread_join(taker.thread, NULL);
    CHECK(taker.status == MU_CANCELLED);
}

static void ps_146(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    worker five = {.cancellation = mu_cancellation_new()}, one = {0};
    start_take(&five, a, 5);
    start_take(&one, a, 1);
    apply(a, 7, 0);
    CHECK(count_of(a) == 1); // the head of the queue holds it up
    CHECK(mu_cancellation_cancel(five.cancellation) == MU_OK);
    pthread_join(five.thread, NULL);
    pthread_join(one.thread, NULL);
    CHECK(five.status == MU_CANCELLED && one.status == MU_OK && one.value == 7);
}

static void ps_148(void)
{
    mu_accumulator *a = mu_conditional_accumulator(MU_F32);
    CHECK(mu_accumulator_set_global_step(a, 5) == MU_OK);
    apply(a, 1, 5);
    apply(a, 2, 5);
    CHECK(mu_accumulator_set_global_step(a, 3) == MU_OK);
    apply(a, 6, 3);
    CHECK(count_of(a) == 3 && take(a, 3) == 3);
    apply(a, 1, 3); // behind: dropped
    CHECK(count_of(a) == 0);
    apply(a, 1, 4);
    CHECK(count_of(a) == 1);
}

// ---- Sparse -------------------------------------------------------------------------------------

static void ps_149(void)
{
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){0});
    CHECK(mu_sparse_accumulator_apply_grad(a, LONGS(0, 1), rows(2, 2, (double[]){1, 0, 0, 2}), LONGS(3, 2), 0) ==
          MU_OK);
    CHECK(mu_sparse_accumulator_apply_grad(a, LONGS(0, 2), rows(2, 2, (double[]){0, 1, 3, 0}), LONGS(3, 2), 0) ==
          MU_OK);
    EXPECT(mu_sparse_accumulator_take_grad(a, 1), 0, 1, 2, 0.5, 0.5, 0, 2, 3, 0, -1, 2);
}

static void ps_151(void)
{
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {3, 3}});
    for (int i = 0; i < 2; i++)
        CHECK(mu_sparse_accumulator_apply_grad(a, INDICES(0, 2), rows(2, 3, (double[]){0, 0, 1, 3, 0, 4}), NULL, 0) ==
              MU_OK);
    CHECK(count_of(a) == 2);
    EXPECT(mu_sparse_accumulator_take_grad(a, 1), 0, 2, 0, 0, 1, 3, 0, 4, 3, 3);
}

static void ps_152(void)
{
    mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32);
    mu_accumulator *two = mu_sparse_conditional_accumulator(MU_F32, .shape = &(mu_shape){2, {2, MU_UNKNOWN}});
    mu_tensor *one_row = rows(1, 2, (double[]){1, 2});
    const struct {
        mu_accumulator *accumulator;
        mu_tensor *indices, *values;
    } wrong[] = {
        {a, mu_reshape(LONGS(0, 1), 2, (int64_t[]){1, 2}), one_row},
        {a, LONGS(0), scalar(1)},
        {a, LONGS(0, 1), one_row},
        {two, LONGS(3), one_row},
    };
    for (size_t i = 0; i < MU_COUNT(wrong); i++) {
        CHECK(mu_sparse_accumulator_apply_grad(wrong[i].accumulator, wrong[i].indices, wrong[i].values, NULL, 0) !=
              MU_OK);
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
        CHECK(count_of(wrong[i].accumulator) == 0);
    }
}

static void ps_154(void)
{
    static const int64_t shapes[2][4] = {{2, 2, 2, 2}, {2, 2, 2, 3}};
    const mu_shape declared[] = {{2, {2, MU_UNKNOWN}}, {2, {MU_UNKNOWN, 2}}};
    for (int i = 0; i < 2; i++) {
        mu_accumulator *a = mu_sparse_conditional_accumulator(MU_F32, .shape = &declared[i]);
        mu_tensor *values = mu_ones(MU_F32, 4, shapes[i]);
        CHECK(mu_sparse_accumulator_apply_grad(a, LONGS(0, 1), values, NULL, 0) == MU_OK);
        mu_value *taken = mu_sparse_accumulator_take_grad(a, 1);
        if (i == 0)
            EXPECT(mu_value_at(taken, 2), 2, 2, 2, 2);
        else
            EXPECT(mu_value_at(taken, 2), -1, 2, 2, 3);
    }
}

const one_case accumulator_cases[] = {
    {"ps-133", ps_133, NULL}, {"ps-134", ps_134, NULL}, {"ps-136", ps_136, NULL}, {"ps-137", ps_137, NULL},
    {"ps-139", ps_139, NULL}, {"ps-140", ps_140, NULL}, {"ps-142", ps_142, NULL}, {"ps-143", ps_143, NULL},
    {"ps-145", ps_145, NULL}, {"ps-146", ps_146, NULL}, {"ps-148", ps_148, NULL}, {"ps-149", ps_149, NULL},
    {"ps-151", ps_151, NULL}, {"ps-152", ps_152, NULL}, {"ps-154", ps_154, NULL}, {0},
};
