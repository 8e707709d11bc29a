// The gradient of every op, in a traced function: the plugin's numbers against the native engine's, which
// tables/test_gradients checks against differences.
//
// Each op with a gradient runs with its first sample, in float64. Several ops make one program, because compiling is
// what takes time; where the engine refuses one of them by name, the others run alone. Arguments name the ops to check;
// none: all.
#include "../tables/asked_ops.h"
#include "skip.h"

#include "../tables/op_case.h"

#include <muster.h>
#include <string.h>

enum { MOST_CASES = 12, MOST_TENSORS = MOST_CASES * MOST_INPUTS };

typedef struct batch {
    op_case cases[MOST_CASES];
    int n, n_inputs;
    mu_tensor *inputs[MOST_TENSORS];
} batch;

static bool differentiated(const op_case *c, int i)
{
    return mu__dtype_is_float(c->in[i].dtype) && !(c->sample->no_grad >> i & 1) && !(c->op->shape_only >> i & 1);
}

// ---- The gradients of a batch as a function -----------------------------------------------------

// Adds the gradients of one case to `results`.
static bool add_gradients(const op_case *c, mu_tensor *const *in, mu_value **results, int *n)
{
    mu_value *sources[MOST_INPUTS];
    mu_tensor *out[MOST_OUTPUTS] = {NULL};
    int n_sources = 0;
    for (int i = 0; i < c->sample->n_in; i++)
        if (differentiated(c, i))
            sources[n_sources++] = mu_of(in[i]);
    mu_tape *tape = mu_tape_open();
    if (mu__apply(c->op, c->sample->attrs, c->sample->n_in, in, 0, NULL, out) != MU_OK)
        return false;
    mu_tensor *loss = mu_reduce_sum(mu_multiply(out[0], drawn_tensor(&c->out[0], 77, 0.5, 1.5)), MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, loss, mu_list_of(n_sources, sources));
    mu_tape_close(tape);
    for (int i = 0; gradients && i < n_sources; i++)
        results[(*n)++] = mu_of(mu_at(gradients, i));
    return gradients != NULL;
}

static mu_value *gradients_of(mu_value *arguments, void *arg)
{
    const batch *b = arg;
    mu_value *results[MOST_TENSORS];
    mu_tensor *in[MOST_INPUTS];
    int n = 0, at = 0;
    for (int k = 0; k < b->n; k++) {
        for (int i = 0; i < b->cases[k].sample->n_in; i++)
            in[i] = mu_at(arguments, at++);
        if (!add_gradients(&b->cases[k], in, results, &n))
            return NULL;
    }
    return mu_list_of(n, results);
}

static mu_value *run_on(const char *device, batch *b)
{
    mu_value *arguments[MOST_TENSORS];
    for (int i = 0; i < b->n_inputs; i++)
        arguments[i] = mu_of(b->inputs[i]);
    mu_function *function =
        mu_function_new(gradients_of, b, .batch_axes = (const int[]){MU_NO_BATCH}, .n_batch_axes = 1);
    return mu_run(mu_one_device_strategy(device), function, mu_list_of(b->n_inputs, arguments));
}

// ---- Comparing ----------------------------------------------------------------------------------

static bool same(const mu_tensor *wanted, const mu_tensor *seen)
{
    const void *a = mu__host_read(wanted), *b = mu__host_read(seen);
    bool equal = mu__shape_equal(&wanted->shape, &seen->shape) && wanted->dtype == seen->dtype;
    for (int64_t k = 0; equal && k < mu__elements(&wanted->shape); k++)
        equal = close_enough(mu__read_element(wanted->dtype, a, k), mu__read_element(seen->dtype, b, k), 1e-9);
    return equal;
}

// Returns the number of ops whose gradients differ.
static int compare(const batch *b, mu_value *native, mu_value *plugin)
{
    int wrong = 0, at = 0;
    for (int k = 0; k < b->n; k++) {
        bool equal = true;
        for (int i = 0; i < b->cases[k].sample->n_in; i++)
            if (differentiated(&b->cases[k], i)) {
                equal &= same(mu_at(native, at), mu_at(plugin, at));
                at++;
            }
        if (!equal)
            describe(&b->cases[k], "the plugin's gradient is another one than the native engine's");
        wrong += !equal;
    }
    return wrong;
}

static int checked, refused;

static int check(batch *b);

static int check_each(const batch *b)
{
    int wrong = 0, at = 0;
    for (int k = 0; k < b->n; k++) {
        batch one = {.cases = {b->cases[k]}, .n = 1, .n_inputs = b->cases[k].sample->n_in};
        memcpy(one.inputs, b->inputs + at, sizeof *one.inputs * (size_t)one.n_inputs);
        at += one.n_inputs;
        wrong += check(&one);
    }
    return wrong;
}

static int check(batch *b)
{
    mu_value *native = run_on("CPU:0", b), *plugin = native ? run_on("XLA_CPU:0", b) : NULL;
    if (plugin) {
        checked += b->n;
        return compare(b, native, plugin);
    }
    const mu_error error = mu_error_take();
    if (b->n > 1)
        return check_each(b);
    refused++;
    const bool by_name = error.code == MU_UNIMPLEMENTED && strstr(error.message, "has no StableHLO lowering");
    if (!by_name)
        print_message("%s: %s\n", b->cases[0].op->name, error.message);
    return !by_name;
}

// ---- All ops ------------------------------------------------------------------------------------

static bool add(batch *b, const mu_op *op)
{
    op_case *c = &b->cases[b->n];
    const bool plain = op->grad && op->samples && op->samples[0].n_in > 0 && op->n_resources == 0;
    if (!plain || (op->flags & (MU_OP_DATA_DEPENDENT | MU_OP_CONTROL | MU_OP_COLLECTIVE)) || !asked_for(op) ||
        !set_up(c, op, &op->samples[0], 0, MU_F64) || !mu__dtype_is_float(c->out[0].dtype))
        return false;
    bool any = false;
    for (int i = 0; i < op->samples[0].n_in; i++)
        any |= differentiated(c, i);
    if (!any)
        return false;
    draw_inputs(c, b->inputs + b->n_inputs);
    b->n_inputs += c->sample->n_in;
    b->n++;
    return true;
}

static void test_every_gradient(void **state)
{
    int wrong = 0;
    (void)state;
    for (int o = 0; o < mu__op_count();) {
        mu_pool *pool = mu_pool_open();
        batch b = {.n = 0};
        for (; o < mu__op_count() && b.n < MOST_CASES; o++)
            add(&b, mu__op_at(o));
        wrong += b.n > 0 ? check(&b) : 0;
        mu_pool_close(pool);
    }
    print_message("%d gradients compared, %d refused by name\n", checked, refused);
    assert_int_equal(wrong, 0);
    assert_true(checked > 100 || n_asked > 0);
    assert_true(refused < 10);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_gradient)};
    if (plugin_missing())
        return SKIPPED;
    n_asked = argc - 1;
    asked = argv + 1;
    mu_init(.cpu_devices = 1);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
