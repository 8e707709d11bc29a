// Every op against its own samples.
//
// For each op, sample and element type: the plain loops write exactly what the shape rule promised and use no kernel;
// the fast kernel agrees with them, under each instruction set and also for larger sizes; the shape rule copes with
// unknown dimensions. No op with a fast kernel is left out.
// Ops that act on resources or hold graphs have tests of their own; test_gradients checks the gradients.
#include "op_case.h"

#include "kernels/dispatch.h"
#include "kernels/kernels.h"

enum { GUARD = 64, MOST_OPS = 300 };

static const mu_team alone = {.n_threads = 1};

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
        in_views[i] = (mu_view){c->in[i].dtype, c->in[i].shape, mu__host_write(in[i])};
    for (int i = 0; i < c->n_out; i++) {
        out[i] = guarded(mu__spec_bytes(&c->out[i]), fill);
        out_views[i] = (mu_view){c->out[i].dtype, c->out[i].shape, out[i]};
    }
    mu_kernel kernel = {.op = c->op,
                        .attrs = c->sample->attrs,
                        .n_in = c->sample->n_in,
                        .n_out = c->n_out,
                        .in = in_views,
                        .out = out_views,
                        .team = &alone,
                        .state = state,
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

// Returns whether some operand has 16 bits. Plain loops may convert such operands as a whole (mu__run_as_f32), which
// uses a kernel: the one that the test of `cast` compares with its plain loops.
static bool has_half(const op_case *c)
{
    bool half = false;
    for (int i = 0; i < c->sample->n_in; i++)
        half |= mu__dtype_is_half(c->in[i].dtype);
    for (int i = 0; i < c->n_out; i++)
        half |= mu__dtype_is_half(c->out[i].dtype);
    return half;
}

// Every kernel of the tables, and every loop that is compiled per instruction set, first reads the set in use, which is
// then chosen if none is.
static const int no_isa = -1;

static int check_ref(op_case *c, mu_tensor *const *in)
{
    void *first[MOST_OUTPUTS], *second[MOST_OUTPUTS];
    int wrong = 0;
    const int isa = atomic_exchange(&mu__isa_in_use, no_isa);
    if (run_kernel(c, in, c->op->ref, NULL, 0, 0x00, first) != MU_OK) {
        describe(c, "the plain kernel fails");
        mu_error_take();
        free_outputs(c, first);
        atomic_store(&mu__isa_in_use, isa);
        return 1;
    }
    (void)!run_kernel(c, in, c->op->ref, NULL, 0, 0x77, second);
    if (atomic_exchange(&mu__isa_in_use, isa) != no_isa && !has_half(c)) {
        describe(c, "the plain loops use a kernel, which nothing compares them with");
        wrong++;
    }
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

// How far a fast kernel may be from the plain loops, relative to numbers above 1; whole numbers must be equal.
static double tolerance_of(const op_case *c, int output)
{
    const mu_dtype dtype = c->out[output].dtype;
    if (!mu__dtype_is_float(dtype))
        return 0;
    if (dtype == MU_F16 || c->dtype == MU_F16)
        return 4e-3;
    if (dtype == MU_BF16 || c->dtype == MU_BF16)
        return 3e-2;
    return dtype == MU_F64 && c->dtype == MU_F64 ? 1e-9 : 1e-4;
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
            if (!close_enough(a, b, tolerance_of(c, i))) {
                describe(c, "the fast kernel disagrees with the plain one");
                print_message("  output %d, element %lld: %.9g, plain %.9g (%s)\n", i, (long long)k, a, b,
                              mu__kernels()->isa);
                return 1;
            }
        }
    }
    return 0;
}

static const char *const isas[] = {"base", "avx2", "avx512"};
static int n_compared[MU_COUNT(isas)][MOST_OPS]; // outputs of each op's fast kernel, by any_op_at's number

// Ops whose fast kernel takes every type and shape.
static bool must_accept(const mu_op *op)
{
    static const char *const names[] = {"matmul",
                                        "matmul_bias",
                                        "conv2d",
                                        "conv2d_bias",
                                        "conv3d",
                                        "conv2d_input_grad",
                                        "conv3d_input_grad",
                                        "conv2d_filter_grad",
                                        "conv3d_filter_grad",
                                        "batch_norm_training",
                                        "batch_norm_grad",
                                        "bias_add_grad"};
    for (size_t i = 0; i < MU_COUNT(names); i++)
        if (strcmp(op->name, names[i]) == 0)
            return true;
    return false;
}

// Compares the fast kernel under one instruction set with what the plain loops wrote.
static int check_fast(const op_case *c, mu_tensor *const *in, void **plain, int *compared)
{
    mu_prepare prepare = {.op = c->op,
                          .attrs = c->sample->attrs,
                          .n_in = c->sample->n_in,
                          .n_out = c->n_out,
                          .in = c->in,
                          .out = c->out,
                          .team = &alone};
    int wrong = 0;
    if (c->op->cpu.prepare && c->op->cpu.prepare(&prepare) != MU_OK) {
        describe(c, "the fast kernel cannot be prepared");
        wrong = 1;
    } else if (prepare.declined) {
        wrong = must_accept(c->op);
        if (wrong)
            describe(c, "the fast kernel declines, and the plain loops are too slow to run in its place");
    } else {
        void *fast[MOST_OUTPUTS];
        if (run_kernel(c, in, c->op->cpu.run, prepare.state, prepare.scratch_bytes, 0x33, fast) != MU_OK) {
            describe(c, "the fast kernel fails");
            wrong = 1;
        } else {
            wrong = compare_outputs(c, fast, plain);
            ++*compared;
        }
        free_outputs(c, fast);
    }
    mu_error_take();
    if (prepare.state && c->op->cpu.release)
        c->op->cpu.release(prepare.state);
    return wrong;
}

static int check_cpu(op_case *c, mu_tensor *const *in)
{
    void *plain[MOST_OUTPUTS];
    const int isa_in_use = atomic_load(&mu__isa_in_use);
    int wrong = 0, op = 0;
    if (!c->op->cpu.run)
        return 0;
    while (any_op_at(op) != c->op)
        op++;
    (void)!run_kernel(c, in, c->op->ref, NULL, 0, 0x44, plain);
    mu_error_take();
    for (size_t isa = 0; isa < MU_COUNT(isas); isa++)
        if (mu__kernels_use(isas[isa]))
            wrong += check_fast(c, in, plain, &n_compared[isa][op]);
    atomic_store(&mu__isa_in_use, isa_in_use);
    free_outputs(c, plain);
    return wrong;
}

// The sample with every dimension above 1 made larger; equal dimensions stay equal. Returns false if the tensors would
// be too large for plain loops.
static bool grow(const mu_sample *sample, int64_t factor, mu_sample *out)
{
    enum { MOST = 60000 };
    *out = *sample;
    for (int i = 0; i < sample->n_in; i++) {
        for (int axis = 0; axis < sample->in[i].rank; axis++)
            if (sample->in[i].dims[axis] > 1)
                out->in[i].dims[axis] = factor * sample->in[i].dims[axis] + 1;
        if (mu__elements(&out->in[i]) > MOST)
            return false;
    }
    return true;
}

static bool is_small(const op_case *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n_out; i++)
        n += mu__elements(&c->out[i].shape);
    return n <= 200000;
}

// For ops whose number of results depends on elements: gives them elements that occur several times, or ascending
// segment numbers with gaps, and fills in the shapes of the results.
static void measure(op_case *c, mu_tensor *const *in)
{
    const int last = c->sample->n_in - 1;
    const bool sorted = strncmp(c->op->name, "segment_", 8) == 0, quarters = mu__dtype_is_float(c->in[last].dtype);
    void *data = mu__host_write(in[last]);
    for (int64_t i = 0; i < mu__elements(&c->in[last].shape) && (sorted || quarters); i++) {
        const double value = mu__read_element(c->in[last].dtype, data, i);
        mu__write_element(c->in[last].dtype, data, i, sorted ? (double)(i / 3 + i / 4) : floor(4 * value) / 4);
    }
    mu_view views[MOST_INPUTS];
    for (int i = 0; i <= last; i++)
        views[i] = (mu_view){c->in[i].dtype, c->in[i].shape, mu__host_write(in[i])};
    const mu_kernel kernel = {
        .op = c->op, .attrs = c->sample->attrs, .n_in = last + 1, .n_out = c->n_out, .in = views, .team = &alone};
    assert_int_equal(c->op->measure(&kernel, c->out), MU_OK);
}

// Calls `check` for every op with samples and every type it takes; returns the number of failures. factor: of the
// samples' sizes; 0: as they are.
static int each_case(int (*check)(op_case *c, mu_tensor *const *in), const mu_dtype *dtypes, int n_dtypes,
                     int64_t factor)
{
    int wrong = 0;
    for (int o = 0; any_op_at(o); o++) {
        const mu_op *op = any_op_at(o);
        for (int s = 0; op->samples && op->n_resources == 0 && op->samples[s].n_in > 0; s++)
            for (int d = 0; d < n_dtypes; d++) {
                op_case c;
                mu_sample grown;
                mu_tensor *in[MOST_INPUTS];
                if (factor > 0 && !grow(&op->samples[s], factor, &grown))
                    continue;
                mu_pool *pool = mu_pool_open();
                if (set_up(&c, op, factor > 0 ? &grown : &op->samples[s], s, dtypes[d])) {
                    draw_inputs(&c, in);
                    if (op->flags & MU_OP_DATA_DEPENDENT)
                        measure(&c, in);
                    wrong += factor == 0 || is_small(&c) ? check(&c, in) : 0;
                }
                mu_pool_close(pool);
            }
    }
    return wrong;
}

static const mu_dtype all_types[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I64, MU_I32, MU_I16, MU_I8, MU_U8, MU_BOOL};

// The suites skip a sample whose type the op does not take, so a sample that fits no type would be skipped everywhere.
static bool some_type_suits(const mu_op *op, int sample)
{
    bool suits = false;
    for (size_t d = 0; d < MU_COUNT(all_types) && !suits; d++) {
        op_case c;
        mu_pool *pool = mu_pool_open();
        suits = set_up(&c, op, &op->samples[sample], sample, all_types[d]);
        mu_pool_close(pool);
    }
    if (!suits)
        print_message("%s: the shape rule refuses sample %d with every type\n", op->name, sample);
    return suits;
}

static void test_shape_rules_accept_the_samples(void **state)
{
    int wrong = 0;
    (void)state;
    for (int o = 0; any_op_at(o); o++) {
        const mu_op *op = any_op_at(o);
        for (int s = 0; op->samples && op->samples[s].n_in > 0; s++)
            wrong += !some_type_suits(op, s);
    }
    assert_int_equal(wrong, 0);
}

static void test_plain_kernels_write_what_the_shape_rule_says(void **state)
{
    (void)state;
    assert_int_equal(each_case(check_ref, all_types, (int)MU_COUNT(all_types), 0), 0);
}

// Names the ops whose fast kernel was never compared under an instruction set of this processor; returns the number of
// ops that were compared.
static int count_compared(size_t isa, int *left_out)
{
    int compared = 0;
    for (int o = 0; any_op_at(o); o++) {
        const mu_op *op = any_op_at(o);
        if (n_compared[isa][o] > 0)
            compared++;
        else if (op->cpu.run && op->n_resources == 0) {
            print_message("%s: no sample compares the fast kernel with the plain loops (%s)\n", op->name, isas[isa]);
            ++*left_out;
        }
    }
    return compared;
}

static void test_fast_kernels_agree_with_plain_ones(void **state)
{
    enum { FLOOR = 182 }; // ops whose fast kernel was compared on 29 November 2026
    static const int64_t factors[] = {0, 3, 17};
    const char *own = mu__kernels()->isa;
    int wrong = 0, left_out = 0;
    (void)state;
    for (size_t f = 0; f < MU_COUNT(factors); f++)
        wrong += each_case(check_cpu, all_types, (int)MU_COUNT(all_types), factors[f]);
    for (size_t isa = 0; isa < MU_COUNT(isas); isa++)
        if (mu__kernels_use(isas[isa]))
            assert_true(count_compared(isa, &left_out) >= FLOOR);
    assert_true(mu__kernels_use(own));
    assert_int_equal(left_out, 0);
    assert_int_equal(wrong, 0);
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
    assert_int_equal(each_case(check_unknown, f32, 1, 0), 0);
}

// ---- The table itself ---------------------------------------------------------------------------

static void test_rows_are_complete(void **state)
{
    (void)state;
    for (int i = 0; any_op_at(i); i++) {
        const mu_op *op = any_op_at(i);
        assert_true(i < MOST_OPS);
        assert_ptr_equal(mu__op_by_name(op->name), i < mu__op_count() ? op : NULL);
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
        cmocka_unit_test(test_shape_rules_accept_the_samples),
        cmocka_unit_test(test_plain_kernels_write_what_the_shape_rule_says),
        cmocka_unit_test(test_fast_kernels_agree_with_plain_ones),
        cmocka_unit_test(test_shape_rules_cope_with_unknown_dimensions),
    };
    mu_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
