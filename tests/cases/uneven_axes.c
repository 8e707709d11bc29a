// Traced functions whose per-replica tensors differ along any axis: they compute what eager replicas do, and gather
// along such an axis, with gradients, in one process and on workers.
#include "cases.h"

typedef struct shapes {
    int rank, axis; // the axis that differs
    int64_t dims[4];
    int64_t sizes[4]; // along the axis, of each replica of all workers
    mu_dtype dtype;
} shapes;

// Numbers that tell replica and place: 30 r + i, small enough for every type.
static mu_tensor *part_of(const shapes *s, int replica)
{
    int64_t dims[4];
    memcpy(dims, s->dims, sizeof dims);
    dims[s->axis] = s->sizes[replica];
    mu_tensor *tensor = mu_tensor_new(s->dtype, s->rank, dims, NULL);
    for (int64_t i = 0; tensor && i < mu__elements(&tensor->shape); i++)
        mu__write_element(s->dtype, mu__host_write(tensor), i,
                          s->dtype == MU_BOOL ? (double)(i % 2) : 30 * replica + (double)i);
    return tensor;
}

static mu_value *parts_of(const shapes *s, mu_strategy *strategy)
{
    const int n = mu_strategy_device_count(strategy), first = n * mu_strategy_worker_index(strategy);
    mu_tensor *parts[4];
    for (int r = 0; r < n; r++)
        parts[r] = part_of(s, first + r);
    return mu_list(n == 1 ? mu_of(parts[0]) : per_replica_of(n, parts), MU_END);
}

// ---- The functions ------------------------------------------------------------------------------

static mu_value *use_alone(mu_value *arguments, void *arg)
{
    static const int axes[] = {0, 1, 2, 3};
    mu_tensor *x = mu_at(arguments, 0), *sum = mu_reduce_sum(x, .axes = axes, .n_axes = ((const shapes *)arg)->rank);
    return mu_list(mu_of(mu_add(x, x)), mu_of(mu_reduce_sum(x, -1)), mu_of(mu_all_reduce(MU_SUM, sum)), MU_END);
}

static mu_value *gather_only(mu_value *arguments, void *arg)
{
    return mu_of(mu_all_gather(mu_at(arguments, 0), ((const shapes *)arg)->axis));
}

// The gradient of the sum of (id + 1) y² is 2 x (1 + … + N): each replica must find its own part again.
static mu_value *gather_and_differentiate(mu_value *arguments, void *arg)
{
    const shapes *s = arg;
    mu_tensor *x = mu_at(arguments, 0);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_all_gather(x, s->axis), *weight = mu_cast(mu_add(id(), scalar(1)), s->dtype);
    mu_value *gradients = mu_gradients(tape, mu_multiply(mu_square(y), weight), mu_of(x));
    return mu_list(mu_of(y), gradients, MU_END);
}

// ---- Comparing ----------------------------------------------------------------------------------

static bool same_tensors(const mu_value *a, const mu_value *b)
{
    mu_object *mine[32], *theirs[32];
    const int n = mu__value_flatten(a, mine, 32);
    if (n != mu__value_flatten(b, theirs, 32) || n == 0)
        return false;
    for (int i = 0; i < n; i++) {
        const mu_tensor *x = (const mu_tensor *)mine[i], *y = (const mu_tensor *)theirs[i];
        if (x->dtype != y->dtype || !mu__shape_equal(&x->shape, &y->shape))
            return false;
        for (int64_t k = 0; k < mu__elements(&x->shape); k++)
            if (mu__read_element(x->dtype, mu__host_read(x), k) != mu__read_element(y->dtype, mu__host_read(y), k))
                return false;
    }
    return true;
}

static void check_gradient(const shapes *s, mu_strategy *strategy, const mu_value *result)
{
    const int n = mu_num_replicas_in_sync(strategy), local = mu_strategy_device_count(strategy);
    const mu_value *gradients = result ? mu_value_at(result, 1) : NULL;
    const mu_value *gradient = gradients && gradients->kind == MU_VALUE_LIST ? gradients->items[0] : gradients;
    for (int r = 0; gradient && r < local; r++) {
        const int replica = local * mu_strategy_worker_index(strategy) + r;
        mu_tensor *own = mu_value_tensor(local == 1 ? gradient : gradient->items[r]);
        mu_tensor *wanted = mu_multiply(part_of(s, replica), mu_constant(s->dtype, n * (n + 1)));
        CHECK(own && same_tensors(mu_of(own), mu_of(wanted)));
    }
    CHECK(gradient != NULL);
}

static void compare(const shapes *s, mu_strategy *strategy, replica_fn *fn, mu_function *function)
{
    mu_value *parts = parts_of(s, strategy);
    mu_value *eager_result = mu_run_callback(strategy, fn, (void *)s, parts);
    mu_value *traced_result = mu_run(strategy, function ? function : mu_function_new(fn, (void *)s), parts);
    if (!eager_result || !traced_result || !same_tensors(eager_result, traced_result))
        fail_case(__LINE__, "rank %d, axis %d, %s: eager and traced differ; %s", s->rank, s->axis,
                  mu_dtype_name(s->dtype), mu_error_message());
    if (fn == gather_and_differentiate && traced_result)
        check_gradient(s, strategy, traced_result);
}

static const shapes all[] = {
    {2, 1, {1, 0}, {2, 3, 2, 3}, MU_F32},       {2, 1, {2, 0}, {3, 5, 3, 3}, MU_F32},
    {2, 1, {2, 0}, {3, 3, 5, 5}, MU_F64}, // different between workers only
    {2, 1, {2, 0}, {3, 0, 1, 2}, MU_F32}, // a replica with nothing
    {3, 1, {2, 0, 2}, {1, 2, 3, 1}, MU_F32},    {3, 2, {2, 2, 0}, {1, 3, 1, 3}, MU_F64},
    {4, 2, {2, 1, 0, 2}, {2, 1, 2, 2}, MU_F32}, {3, 0, {0, 2, 2}, {1, 2, 2, 1}, MU_F32},
};

static void run_all(mu_strategy *strategy)
{
    for (size_t i = 0; i < MU_COUNT(all); i++) {
        compare(&all[i], strategy, use_alone, NULL);
        compare(&all[i], strategy, gather_and_differentiate, NULL);
    }
    static const mu_dtype dtypes[] = {MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8, MU_BOOL};
    for (size_t i = 0; i < MU_COUNT(dtypes); i++)
        compare(&(shapes){2, 1, {2, 0}, {3, 5, 2, 4}, dtypes[i]}, strategy, gather_only, NULL);
}

static void on_one_machine(void)
{
    for (int n = 1; n <= 3; n++)
        run_all(mirrored(n));
    run_all(mu_central_storage_strategy(.replicas = 2));
    run_all(mu_one_device_strategy("CPU:0"));
}

// One function for one set of sizes after the other; a trace that does not know the axis serves all that follow.
void uneven_in_turn(mu_strategy *strategy)
{
    shapes now = {2, 1, {2, 0}, {3, 3, 3, 3}, MU_F32};
    mu_function *function = mu_function_new(gather_and_differentiate, &now);
    static const int64_t sizes[][4] = {{3, 3, 3, 3}, {3, 5, 3, 5}, {2, 2, 2, 2}, {4, 4, 1, 1}, {3, 3, 3, 3}};
    for (size_t i = 0; i < MU_COUNT(sizes); i++) {
        memcpy(now.sizes, sizes[i], sizeof now.sizes);
        compare(&now, strategy, gather_and_differentiate, function);
    }
    CHECK(mu_function_trace_count(function) <= 3);
}

static void in_turn(void) { uneven_in_turn(mirrored(2)); }

// Types and numbers of axes must be those of the first replica.
static void wrong_parts(void)
{
    mu_strategy *s = mirrored(2);
    mu_tensor *wrong[] = {mu_zeros(MU_F32, 3, (int64_t[]){2, 3, 1}), mu_zeros(MU_F64, 2, (int64_t[]){2, 3})};
    for (int i = 0; i < 2; i++) {
        mu_tensor *parts[] = {mu_zeros(MU_F32, 2, (int64_t[]){2, 3}), wrong[i]};
        CHECK(!mu_run(s, mu_function_new(use_alone, (void *)&all[0]), mu_list(per_replica_of(2, parts), MU_END)));
        CHECK(strstr(mu_error_message(), "on replica 1") && strstr(mu_error_message(), "[2, 3]"));
        EXPECT_ERROR(MU_INVALID_ARGUMENT);
    }
}

void uneven_on_workers(mu_strategy *strategy) { run_all(strategy); }

const one_case uneven_axes_cases[] = {
    {"uneven-axes", on_one_machine, NULL},
    {"uneven-axes-in-turn", in_turn, NULL},
    {"uneven-axes-wrong", wrong_parts, NULL},
    {0},
};
