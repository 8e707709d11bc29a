// Every row of the op table against its own samples.
//
// For each row, sample and element type: the plain loops write exactly what the shape rule promised; the
// fast kernel agrees with them (f32); the shape rule copes with unknown dimensions; the gradient agrees with central
// differences (f64), and so does the gradient of the gradient. Rows that act on resources or feed graphs have tests of
// their own.
#include "graph/graph.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <muster/ops.h>
#include <cmocka.h>

enum { MOST_INPUTS = 6, MOST_OUTPUTS = 16, GUARD = 64 };

static const mu_team alone = {.n_threads = 1};

// A case: one row, one sample, one type under test.
typedef struct op_case {
    const mu_op *op;
    const mu_sample *sample;
    int number;          // of the sample
    mu_dtype dtype;
    int n_out;
    mu_spec in[MOST_INPUTS], out[MOST_OUTPUTS];
} op_case;

static void describe(const op_case *c, const char *what)
{
    char text[MU_SHAPE_TEXT];
    print_message("%s, sample %d, %s: %s", c->op->name, c->number, mu_dtype_name(c->dtype), what);
    for (int i = 0; i < c->sample->n_in; i++)
        print_message(" %s", mu__shape_text(&c->in[i].shape, text));
    print_message("%s%s\n", mu__pending() ? ": " : "", mu_error_message());
}

// A number in [0, 1) that follows from its arguments (splitmix64).
static double draw(uint64_t seed, int64_t i)
{
    uint64_t z = seed * 0x9e3779b97f4a7c15u + (uint64_t)i * 0xbf58476d1ce4e5b9u + 0x94d049bb133111ebu;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

static mu_tensor *drawn_tensor(const mu_spec *spec, uint64_t seed, double low, double high)
{
    mu_tensor *tensor = mu_tensor_new(spec->dtype, spec->shape.rank, spec->shape.dims, NULL);
    assert_non_null(tensor);
    if (low == 0 && high == 0) {
        low = -2;
        high = 2;
    }
    bool whole = !mu__dtype_is_float(spec->dtype);
    if (spec->dtype == MU_U8 && high <= 0) {
        double kept = low;
        low = -high;
        high = -kept;
    } else if (spec->dtype == MU_U8) {
        low = fmax(low, 0);
    }
    for (int64_t i = 0; i < mu__elements(&spec->shape); i++) {
        double u = draw(seed, i), value = low + u * (high - low);
        if (spec->dtype == MU_BOOL)
            value = u < 0.5;
        else if (whole)
            value = ceil(low) + floor(u * (ceil(high) - ceil(low)));  // high itself is left out
        mu__write_element(spec->dtype, mu__data(tensor), i, value);
    }
    return tensor;
}

static void draw_inputs(const op_case *c, mu_tensor **in)
{
    for (int i = 0; i < c->sample->n_in; i++)
        in[i] = drawn_tensor(&c->in[i], (uint64_t)(c->number * 10 + i + 1), c->sample->low[i], c->sample->high[i]);
}

static mu_infer infer_of(op_case *c)
{
    return (mu_infer){.op = c->op, .attrs = c->sample->attrs, .n_in = c->sample->n_in, .n_out = c->n_out,
                      .in = c->in, .out = c->out};
}

// Fills the case's specs; false if the row does not take this type.
static bool set_up(op_case *c, const mu_op *op, const mu_sample *sample, int number, mu_dtype dtype)
{
    *c = (op_case){.op = op, .sample = sample, .number = number, .dtype = dtype};
    c->n_out = mu__op_outputs(op, sample->attrs, sample->n_in);
    assert_in_range(c->n_out, 0, MOST_OUTPUTS);
    for (int i = 0; i < sample->n_in; i++)
        c->in[i] = (mu_spec){sample->dtypes[i] ? sample->dtypes[i] : dtype, sample->in[i]};
    if (sample->n_in > 0 && op->dtypes && !(op->dtypes & MU_DTYPE_BIT(c->in[0].dtype)))
        return false;
    mu_infer infer = infer_of(c);
    if (mu__infer_call(&infer) != MU_OK) {
        if (dtype == MU_F32 || dtype == MU_F64)
            describe(c, "the shape rule refuses the sample");
        mu_error_take();
        return false;
    }
    return true;
}

// ---- Kernels write what the shape rule says -----------------------------------------------------

static void *guarded(size_t bytes, int fill)
{
    char *block = aligned_alloc(64, (bytes + GUARD + 63) / 64 * 64);
    assert_non_null(block);
    memset(block, fill, bytes);
    memset(block + bytes, 0x5a, GUARD);
    return block;
}

// Runs one kernel on fresh outputs filled with `fill`; returns its status.
static mu_status run_kernel(const op_case *c, mu_tensor *const *in, mu_kernel_run *run, void *state, size_t scratch,
                            int fill, void **out)
{
    mu_view in_views[MOST_INPUTS], out_views[MOST_OUTPUTS];
    for (int i = 0; i < c->sample->n_in; i++)
        in_views[i] = (mu_view){c->in[i].dtype, c->in[i].shape, mu__data(in[i])};
    for (int i = 0; i < c->n_out; i++) {
        out[i] = guarded(mu__spec_bytes(&c->out[i]), fill);
        out_views[i] = (mu_view){c->out[i].dtype, c->out[i].shape, out[i]};
    }
    mu_kernel kernel = {.op = c->op, .attrs = c->sample->attrs, .n_in = c->sample->n_in, .n_out = c->n_out,
                        .in = in_views, .out = out_views, .team = &alone, .state = state,
                        .scratch = scratch ? guarded(scratch, 0x11) : NULL};
    mu_status status = run(&kernel);
    free(kernel.scratch);
    return status;
}

static void free_outputs(const op_case *c, void **out)
{
    for (int i = 0; i < c->n_out; i++)
        free(out[i]);
}

static bool guard_holds(const void *block, size_t bytes)
{
    const unsigned char *guard = (const unsigned char *)block + bytes;
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != 0x5a)
            return false;
    return true;
}

static int check_ref(op_case *c, mu_tensor *const *in)
{
    void *first[MOST_OUTPUTS], *second[MOST_OUTPUTS];
    int wrong = 0;
    if (run_kernel(c, in, c->op->ref, NULL, 0, 0x00, first) != MU_OK) {
        describe(c, "the plain kernel fails");
        mu_error_take();
        free_outputs(c, first);
        return 1;
    }
    (void)!run_kernel(c, in, c->op->ref, NULL, 0, 0x77, second);
    for (int i = 0; i < c->n_out; i++) {
        size_t bytes = mu__spec_bytes(&c->out[i]);
        if (!guard_holds(first[i], bytes) || !guard_holds(second[i], bytes)) {
            describe(c, "the plain kernel writes past its output");
            wrong++;
        } else if (memcmp(first[i], second[i], bytes) != 0) {
            describe(c, "the plain kernel leaves elements unwritten");
            wrong++;
        }
    }
    free_outputs(c, first);
    free_outputs(c, second);
    return wrong;
}

static bool close_enough(double a, double b, double tolerance)
{
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b);
    return a == b || fabs(a - b) <= tolerance * (1 + fmax(fabs(a), fabs(b)));
}

static int compare_outputs(const op_case *c, void **fast, void **plain)
{
    for (int i = 0; i < c->n_out; i++) {
        size_t bytes = mu__spec_bytes(&c->out[i]);
        if (!guard_holds(fast[i], bytes)) {
            describe(c, "the fast kernel writes past its output");
            return 1;
        }
        for (int64_t k = 0; k < mu__elements(&c->out[i].shape); k++) {
            double a = mu__read_element(c->out[i].dtype, fast[i], k),
                   b = mu__read_element(c->out[i].dtype, plain[i], k);
            if (!close_enough(a, b, 1e-4)) {
                describe(c, "the fast kernel disagrees with the plain one");
                print_message("  output %d, element %lld: %.9g, plain %.9g\n", i, (long long)k, a, b);
                return 1;
            }
        }
    }
    return 0;
}

static int check_cpu(op_case *c, mu_tensor *const *in)
{
    mu_prepare prepare = {.op = c->op, .attrs = c->sample->attrs, .n_in = c->sample->n_in, .n_out = c->n_out,
                          .in = c->in, .out = c->out, .team = &alone};
    if (!c->op->cpu.run)
        return 0;
    if (c->op->cpu.prepare && c->op->cpu.prepare(&prepare) != MU_OK) {
        describe(c, "the fast kernel cannot be prepared");
        mu_error_take();
        return 1;
    }
    int wrong = 0;
    if (!prepare.declined) {
        void *fast[MOST_OUTPUTS], *plain[MOST_OUTPUTS];
        wrong = run_kernel(c, in, c->op->cpu.run, prepare.state, prepare.scratch_bytes, 0x33, fast) != MU_OK;
        (void)!run_kernel(c, in, c->op->ref, NULL, 0, 0x44, plain);
        if (wrong)
            describe(c, "the fast kernel fails");
        else
            wrong = compare_outputs(c, fast, plain);
        mu_error_take();
        free_outputs(c, fast);
        free_outputs(c, plain);
    }
    if (prepare.state && c->op->cpu.release)
        c->op->cpu.release(prepare.state);
    return wrong;
}

// Calls `check` for every row with samples and every type it takes; returns the number of failures.
static int each_case(int (*check)(op_case *c, mu_tensor *const *in), const mu_dtype *dtypes, int n_dtypes)
{
    int wrong = 0;
    for (int o = 0; o < mu__op_count(); o++) {
        const mu_op *op = mu__op_at(o);
        for (int s = 0; op->samples && op->n_resources == 0 && op->samples[s].n_in > 0; s++)
            for (int d = 0; d < n_dtypes; d++) {
                op_case c;
                mu_tensor *in[MOST_INPUTS];
                mu_pool *pool = mu_pool_open();
                if (!(op->flags & MU_OP_DATA_DEPENDENT) && set_up(&c, op, &op->samples[s], s, dtypes[d])) {
                    draw_inputs(&c, in);
                    wrong += check(&c, in);
                }
                mu_pool_close(pool);
            }
    }
    return wrong;
}

static void test_plain_kernels_write_what_the_shape_rule_says(void **state)
{
    static const mu_dtype all[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8, MU_BOOL};
    (void)state;
    assert_int_equal(each_case(check_ref, all, (int)MU_COUNT(all)), 0);
}

static void test_fast_kernels_agree_with_plain_ones(void **state)
{
    static const mu_dtype f32[] = {MU_F32};
    (void)state;
    assert_int_equal(each_case(check_cpu, f32, 1), 0);
}

// ---- Traces know less ---------------------------------------------------------------------------

// With the batch axis unknown (the first one, of all inputs that share its size) the rule must still answer,
// and what it says must fit what it says later.
static int check_unknown(op_case *c, mu_tensor *const *in)
{
    mu_spec known[MOST_OUTPUTS];
    (void)in;
    memcpy(known, c->out, sizeof known);
    memset(c->out, 0, sizeof c->out);
    int64_t batch = c->in[0].shape.dims[0];
    for (int i = 0; i < c->sample->n_in; i++)
        if (c->in[i].shape.rank > 0 && c->in[i].shape.dims[0] == batch)
            c->in[i].shape.dims[0] = MU_UNKNOWN;
    mu_infer infer = infer_of(c);
    if (mu__infer_call(&infer) != MU_OK) {
        describe(c, "the shape rule refuses unknown dimensions");
        mu_error_take();
        return 1;
    }
    for (int i = 0; i < c->n_out; i++)
        if (c->out[i].dtype != known[i].dtype || !mu__shape_compatible(&c->out[i].shape, &known[i].shape)) {
            describe(c, "the shape rule says something else of unknown dimensions");
            return 1;
        }
    return 0;
}

static void test_shape_rules_cope_with_unknown_dimensions(void **state)
{
    static const mu_dtype f32[] = {MU_F32};
    (void)state;
    assert_int_equal(each_case(check_unknown, f32, 1), 0);
}

// ---- Gradients ----------------------------------------------------------------------------------

static mu_tensor *apply_case(const op_case *c, mu_tensor *const *in)
{
    mu_tensor *out[MOST_OUTPUTS];
    return mu__apply(c->op, c->sample->attrs, c->sample->n_in, in, 0, NULL, out) == MU_OK ? out[0] : NULL;
}

static bool differentiated(const op_case *c, int i)
{
    return c->in[i].dtype == MU_F64 && !(c->sample->no_grad >> i & 1) && !(c->op->shape_only >> i & 1);
}

// A number that follows from the inputs: the sum of the first output, weighted.
typedef double value_fn(const op_case *c, mu_tensor *const *in);

static double weighted_sum(const mu_tensor *y, uint64_t seed)
{
    double sum = 0;
    for (int64_t k = 0; k < mu__elements(&y->shape); k++)
        sum += (draw(seed, k) + 0.5) * mu__read_element(y->dtype, mu__data(y), k);
    return sum;
}

static double value_of_output(const op_case *c, mu_tensor *const *in)
{
    mu_tensor *y = apply_case(c, in);
    return y ? weighted_sum(y, 77) : NAN;
}

static mu_tensor *weights_like(const mu_tensor *y, uint64_t seed)
{
    mu_tensor *weights = mu_tensor_new(y->dtype, y->shape.rank, y->shape.dims, NULL);
    for (int64_t k = 0; weights && k < mu__elements(&y->shape); k++)
        mu__write_element(y->dtype, mu__data(weights), k, draw(seed, k) + 0.5);
    return weights;
}

// The gradients of value_of_output with respect to all inputs, by the rows' own rules; n_in entries.
static mu_value *rule_gradients(const op_case *c, mu_tensor *const *in)
{
    mu_value *sources[MOST_INPUTS];
    for (int i = 0; i < c->sample->n_in; i++)
        sources[i] = mu_of(in[i]);
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = apply_case(c, in);
    mu_tensor *loss = y ? mu_reduce_sum(mu_multiply(y, weights_like(y, 77)), MU_ALL_AXES) : NULL;
    mu_value *gradients = loss ? mu_gradients(tape, loss, mu_list_of(c->sample->n_in, sources)) : NULL;
    mu_tape_close(tape);
    return gradients;
}

// The sum of all gradients, weighted: differentiating it again is the second derivative.
static mu_tensor *gradient_sum(const op_case *c, mu_value *gradients)
{
    mu_tensor *sum = NULL;
    for (int i = 0; gradients && i < c->sample->n_in; i++) {
        if (!differentiated(c, i))
            continue;
        mu_tensor *dx = mu_at(gradients, i);
        mu_tensor *part = dx ? mu_reduce_sum(mu_multiply(dx, weights_like(dx, 99)), MU_ALL_AXES) : NULL;
        sum = sum ? mu_add(sum, part) : part;
    }
    return sum;
}

static double value_of_gradient(const op_case *c, mu_tensor *const *in)
{
    mu_tensor *sum = gradient_sum(c, rule_gradients(c, in));
    return sum ? mu_scalar(sum) : NAN;
}

static mu_value *second_gradients(const op_case *c, mu_tensor *const *in)
{
    mu_value *sources[MOST_INPUTS];
    for (int i = 0; i < c->sample->n_in; i++)
        sources[i] = mu_of(in[i]);
    mu_tape *tape = mu_tape_open();
    mu_tensor *sum = gradient_sum(c, rule_gradients(c, in));
    mu_value *gradients = sum ? mu_gradients(tape, sum, mu_list_of(c->sample->n_in, sources)) : NULL;
    mu_tape_close(tape);
    return gradients;
}

static double central_difference(const op_case *c, mu_tensor *const *in, int i, int64_t k, value_fn *value)
{
    const double step = 1e-5;
    double *element = (double *)mu__data(in[i]) + k, kept = *element, up, down;
    mu_pool *pool = mu_pool_open();
    *element = kept + step;
    up = value(c, in);
    *element = kept - step;
    down = value(c, in);
    *element = kept;
    mu_pool_close(pool);
    return (up - down) / (2 * step);
}

static int compare_gradients(const op_case *c, mu_tensor *const *in, mu_value *gradients, value_fn *value,
                             double tolerance, const char *order)
{
    for (int i = 0; i < c->sample->n_in; i++) {
        if (!differentiated(c, i))
            continue;
        const mu_tensor *dx = mu_at(gradients, i);
        if (!dx || !mu__shape_equal(&dx->shape, &c->in[i].shape)) {
            describe(c, "the gradient has another shape than its input");
            return 1;
        }
        for (int64_t k = 0; k < mu__elements(&dx->shape); k++) {
            double difference = central_difference(c, in, i, k, value), rule = ((const double *)mu__data(dx))[k];
            if (!close_enough(rule, difference, tolerance)) {
                describe(c, order);
                print_message("  input %d, element %lld: rule %.9g, differences %.9g\n", i, (long long)k, rule,
                              difference);
                return 1;
            }
        }
    }
    return 0;
}

static int check_gradient(op_case *c, mu_tensor *const *in)
{
    bool any = false;
    for (int i = 0; i < c->sample->n_in; i++)
        any |= differentiated(c, i);
    if (!c->op->grad || !mu__dtype_is_float(c->out[0].dtype) || !any)
        return 0;
    mu_value *gradients = rule_gradients(c, in);
    int wrong = !gradients;
    if (wrong)
        describe(c, "the gradient fails");
    else
        wrong = compare_gradients(c, in, gradients, value_of_output, 1e-6, "the gradient is wrong");
    if (mu_error_code() != MU_OK && !wrong)
        describe(c, "an error is left behind");
    mu_error_take();
    return wrong;
}

static int check_second_gradient(op_case *c, mu_tensor *const *in)
{
    bool any = false;
    for (int i = 0; i < c->sample->n_in; i++)
        any |= differentiated(c, i);
    bool ends = c->op == &mu_op_digamma;  // its gradient has none
    if (!c->op->grad || !mu__dtype_is_float(c->out[0].dtype) || !any || ends)
        return 0;
    mu_value *gradients = second_gradients(c, in);
    int wrong = !gradients;
    if (wrong)
        describe(c, "the gradient of the gradient fails");
    else
        wrong = compare_gradients(c, in, gradients, value_of_gradient, 1e-5, "the gradient of the gradient is wrong");
    mu_error_take();
    return wrong;
}

static const mu_dtype f64_only[] = {MU_F64};

static void test_gradients_agree_with_differences(void **state)
{
    (void)state;
    assert_int_equal(each_case(check_gradient, f64_only, 1), 0);
}

static void test_second_gradients_agree_with_differences(void **state)
{
    (void)state;
    assert_int_equal(each_case(check_second_gradient, f64_only, 1), 0);
}

// ---- The table itself ---------------------------------------------------------------------------

static void test_rows_are_complete(void **state)
{
    (void)state;
    for (int i = 0; i < mu__op_count(); i++) {
        const mu_op *op = mu__op_at(i);
        assert_ptr_equal(mu__op_by_name(op->name), op);
        assert_non_null(op->infer);
        assert_non_null(op->ref);
        assert_true((op->attrs_bytes == 0) == (op->attrs == NULL));
        assert_true(!(op->flags & MU_OP_DATA_DEPENDENT) || op->measure);
        bool bound = strcmp(op->name, "input") == 0 || strcmp(op->name, "constant") == 0;
        if (!op->samples && op->n_resources == 0 && !bound && !(op->flags & (MU_OP_EFFECT | MU_OP_COLLECTIVE)))
            print_message("%s has no samples\n", op->name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_plain_kernels_write_what_the_shape_rule_says),
        cmocka_unit_test(test_fast_kernels_agree_with_plain_ones),
        cmocka_unit_test(test_shape_rules_cope_with_unknown_dimensions),
        cmocka_unit_test(test_gradients_agree_with_differences),
        cmocka_unit_test(test_second_gradients_agree_with_differences),
    };
    mu_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
