// The gradient of every op against central differences (f64), and the gradient of every gradient.
//
// The cases are the ops' samples, and cases derived from them in which an axis is empty or has size 1, in all inputs
// that share its size or in one alone. Every op with a gradient must have been checked in both orders, with odd sizes,
// with an axis of size 1, with an empty axis and, if it is element-wise, with operands that broadcast: an op that lacks
// one of these is a failure unless a table below lists it, with the reason. composed_check.h has the same rules for
// composed functions. MU_TEST_DEVICE names the device of the ops; unset: the host. Arguments name the ops to check;
// none: all.
#include "asked_ops.h"
#include "op_case.h"

enum { FIRST = 1, SECOND = 2, ODD = 4, ONE = 8, EMPTY = 16, BROADCAST = 32, ALL = 63 };
enum { SMALL = 40 }; // elements up to which every axis is tried with size 1

// ---- Rules and differences ----------------------------------------------------------------------

static mu_tensor *apply_case(const op_case *c, mu_tensor *const *in)
{
    mu_tensor *out[MOST_OUTPUTS];
    return mu__apply(c->op, c->sample->attrs, c->sample->n_in, in, 0, NULL, out) == MU_OK ? out[0] : NULL;
}

static bool differentiated(const op_case *c, int i)
{
    return c->in[i].dtype == MU_F64 && !(c->sample->no_grad >> i & 1) && !(c->op->shape_only >> i & 1);
}

// Returns one number that depends on all inputs: the weighted sum of the first output.
typedef double value_fn(const op_case *c, mu_tensor *const *in);

static double weighted_sum(const mu_tensor *y, uint64_t seed)
{
    double sum = 0;
    for (int64_t k = 0; k < mu__elements(&y->shape); k++)
        sum += (draw(seed, k) + 0.5) * mu__read_element(y->dtype, mu__host_read(y), k);
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
        mu__write_element(y->dtype, mu__host_write(weights), k, draw(seed, k) + 0.5);
    return weights;
}

// Returns the gradients of value_of_output with respect to all inputs, by the ops' own rules; n_in entries.
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
    double *element = (double *)mu__host_write(in[i]) + k, kept = *element, up, down;
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
            double difference = central_difference(c, in, i, k, value), rule = ((const double *)mu__host_read(dx))[k];
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

static bool any_differentiated(const op_case *c)
{
    for (int i = 0; i < c->sample->n_in; i++)
        if (differentiated(c, i))
            return c->op->grad && mu__dtype_is_float(c->out[0].dtype);
    return false;
}

static int check_order(const op_case *c, mu_tensor *const *in, int order)
{
    mu_value *gradients = order == 1 ? rule_gradients(c, in) : second_gradients(c, in);
    int wrong = !gradients;
    if (wrong)
        describe(c, order == 1 ? "the gradient fails" : "the gradient of the gradient fails");
    else if (order == 1)
        wrong = compare_gradients(c, in, gradients, value_of_output, 1e-6, "the gradient is wrong");
    else
        wrong = compare_gradients(c, in, gradients, value_of_gradient, 1e-5, "the gradient of the gradient is wrong");
    if (mu_error_code() != MU_OK && !wrong) {
        describe(c, "an error is left behind");
        wrong = 1;
    }
    mu_error_take();
    return wrong;
}

// ---- What a case shows --------------------------------------------------------------------------

static unsigned shown_by(const op_case *c)
{
    unsigned shown = 0;
    for (int i = 0; i < c->sample->n_in; i++) {
        const mu_shape *shape = &c->in[i].shape;
        if (c->op->flags & MU_OP_ELEMENTWISE && !mu__shape_equal(shape, &c->out[0].shape))
            shown |= BROADCAST;
        for (int axis = 0; axis < shape->rank; axis++)
            shown |= shape->dims[axis] == 0 ? EMPTY : shape->dims[axis] == 1 ? ONE : shape->dims[axis] % 2 ? ODD : 0;
    }
    return shown;
}

// Ops for which one of the properties cannot be tested.
static const struct {
    const char *name;
    unsigned lacks;
    const char *why;
} exempt[] = {
    {"relu_grad", BROADCAST, "an engine's row, whose operands have one shape"},
    {"tanh_grad", BROADCAST, "a gradient's row, whose operands have one shape"},
    {"sigmoid_grad", BROADCAST, "a gradient's row, whose operands have one shape"},
    {"softplus_grad", BROADCAST, "a gradient's row, whose operands have one shape"},
    {"silu_grad", BROADCAST, "a gradient's row, whose operands have one shape"},
    {"gelu_grad", BROADCAST, "a gradient's row, whose operands have one shape"},
    {"gelu_tanh_grad", BROADCAST, "a gradient's row, whose operands have one shape"},
    {"sigmoid_cross_entropy", BROADCAST, "labels have the shape of the logits, as in TensorFlow"},
    {"sigmoid_cross_entropy_grad", BROADCAST, "a gradient's row, whose operands have one shape"},
};

static unsigned lacks(const mu_op *op)
{
    unsigned found = op->flags & MU_OP_ELEMENTWISE && op->n_in > 1 ? 0 : BROADCAST;
    for (size_t i = 0; i < MU_COUNT(exempt); i++)
        if (strcmp(exempt[i].name, op->name) == 0)
            found |= exempt[i].lacks;
    return found;
}

// Checks a case whose specs are set; the properties that it covers are added to `shown`. Returns the number of
// failures.
static int check_case(op_case *c, unsigned *shown)
{
    mu_tensor *in[MOST_INPUTS];
    draw_inputs(c, in);
    if (!any_differentiated(c))
        return 0;
    int wrong = check_order(c, in, 1);
    if (!wrong && !(lacks(c->op) & SECOND))
        wrong = check_order(c, in, 2);
    if (!wrong)
        *shown |= shown_by(c) | FIRST | SECOND;
    return wrong;
}

// The case with one axis of another size, in all inputs that have one of its size or in input i alone; false if the op
// refuses that, or its numbers (indices, attributes) no longer fit.
static bool derive(op_case *c, int i, int axis, int64_t size, bool together)
{
    const int64_t old = c->in[i].shape.dims[axis];
    for (int k = 0; k < c->sample->n_in && together; k++)
        for (int a = 0; a < c->in[k].shape.rank; a++)
            if (c->in[k].shape.dims[a] == old)
                c->in[k].shape.dims[a] = size;
    c->in[i].shape.dims[axis] = size;
    memset(c->out, 0, sizeof c->out);
    bool fits = infer_case(c);
    if (fits) {
        mu_tensor *in[MOST_INPUTS];
        draw_inputs(c, in);
        fits = apply_case(c, in) != NULL;
    }
    mu_error_take();
    return fits;
}

static int check_derived(const op_case *from, unsigned *shown)
{
    int64_t elements = 0;
    int wrong = 0;
    for (int i = 0; i < from->sample->n_in; i++)
        elements += mu__elements(&from->in[i].shape);
    for (int i = 0; i < from->sample->n_in; i++)
        for (int axis = 0; axis < from->in[i].shape.rank; axis++)
            for (int which = 0; which < 4; which++) {
                const int64_t size = which / 2, old = from->in[i].shape.dims[axis];
                mu_pool *pool = mu_pool_open();
                op_case c = *from;
                if (size != old && (size == 0 || elements <= SMALL || !(*shown & ONE)) &&
                    derive(&c, i, axis, size, which % 2))
                    wrong += check_case(&c, shown);
                mu_pool_close(pool);
            }
    return wrong;
}

// Checks an op; returns the number of failures.
static int check_op(const mu_op *op, unsigned *shown)
{
    int wrong = 0;
    for (int s = 0; op->samples && op->samples[s].n_in > 0; s++) {
        op_case c;
        mu_pool *pool = mu_pool_open();
        if (set_up(&c, op, &op->samples[s], s, MU_F64)) {
            wrong += check_case(&c, shown);
            wrong += any_differentiated(&c) ? check_derived(&c, shown) : 0;
        }
        mu_pool_close(pool);
    }
    return wrong;
}

// ---- All ops -----------------------------------------------------------------------------------

// Ops whose gradients other suites check: they act on resources, hold graphs, or their shapes follow from elements.
static const struct {
    const char *name, *where;
} elsewhere[] = {
    {"inner_read", "unit/graph/test_control_state.c"},
    {"stateless_random_gamma", "test_composed_segments.c, by the derivative of means"},
    {"segment_sum", "test_composed_segments.c"},
    {"segment_mean", "test_composed_segments.c"},
    {"segment_prod", "test_composed_segments.c"},
    {"segment_max", "test_composed_segments.c"},
    {"segment_min", "test_composed_segments.c"},
    {"dynamic_partition", "unit/distribute/test_sharded_variable.c"},
    {"attention_grad", "here: it is the second gradient of attention, whose outputs it takes as they come"},
    {"all_gather", "cases/reduce.c, among replicas"},
    {"collective_permute", "unit/distribute/test_scatter_permute.c, among replicas"},
    {"cond", "unit/graph/test_control_grad.c"},
    {"while_loop", "unit/graph/test_control_grad.c"},
    {"call", "unit/graph/test_control_grad.c"},
};

static bool is_elsewhere(const mu_op *op)
{
    for (size_t i = 0; i < MU_COUNT(elsewhere); i++)
        if (strcmp(elsewhere[i].name, op->name) == 0)
            return true;
    return false;
}

static int report(const mu_op *op, unsigned missing)
{
    static const char *const names[] = {"the gradient",  "the gradient of the gradient",
                                        "odd sizes",     "an axis of size 1",
                                        "an empty axis", "operands that broadcast"};
    for (int bit = 0; bit < 6; bit++)
        if (missing >> bit & 1)
            print_message("%s: no sample checks %s\n", op->name, names[bit]);
    return missing != 0;
}

static void test_every_gradient(void **state)
{
    int wrong = 0;
    (void)state;
    for (int o = 0; o < mu__op_count(); o++) {
        const mu_op *op = mu__op_at(o);
        unsigned shown = 0;
        if (!op->grad || is_elsewhere(op) || !asked_for(op))
            continue;
        if (op->n_resources == 0 && !(op->flags & MU_OP_DATA_DEPENDENT))
            wrong += check_op(op, &shown);
        wrong += report(op, ALL & ~shown & ~lacks(op));
    }
    assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_gradient)};
    n_asked = argc - 1;
    asked = argv + 1;
    mu_init();
    if (getenv("MU_TEST_DEVICE") && mu_set_device(getenv("MU_TEST_DEVICE")) != MU_OK)
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mu_exit(true);
    return failed;
}
