// Variables that a body both reads and writes: the gradient with respect to such a variable is the sum over all its
// reads, as outside of traces, where tapes record every op.
#include "control_test.h"

static mu_variable *level, *other;

static mu_tensor *total(mu_tensor *x) { return mu_reduce_sum(x, MU_ALL_AXES); }

static mu_tensor *few_iterations(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_less(mu_at(vars, 0), mu_constant(MU_I32, 4));
}

// Reads before and after an assignment whose value depends on the loop's value.
static mu_value *iteration(mu_value *vars, void *arg)
{
    mu_tensor *i = mu_at(vars, 0), *x = mu_at(vars, 1), *s = arg;
    mu_tensor *before = mu_variable_read(level);
    mu_variable_assign(level, mu_tanh(mu_add(mu_multiply(before, s), mu_reduce_mean(x, 0))));
    mu_tensor *behind = mu_variable_read(level);
    mu_variable_assign_add(level, mu_constant(MU_F64, .25));
    mu_tensor *next = mu_add(mu_sin(mu_multiply(x, before)), mu_multiply(behind, mu_variable_read(other)));
    return mu_list(mu_add(i, mu_constant(MU_I32, 1)), next, MU_END);
}

static mu_tensor *in_a_loop(mu_tensor *x, mu_tensor *s)
{
    mu_tensor *ahead = mu_multiply(mu_variable_read(level), s);
    mu_value *vars = mu_while_loop(few_iterations, iteration, mu_list(mu_constant(MU_I32, 0), mu_square(x), MU_END), s);
    return mu_add(total(mu_multiply(mu_at(vars, 1), x)), mu_multiply(ahead, mu_variable_read(level)));
}

static mu_value *step(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor *s = arg, *h = mu_at(state, 0), *e = mu_at(element, 0);
    mu_tensor *next = mu_tanh(mu_add(mu_multiply(h, mu_variable_read(level)), mu_multiply(e, s)));
    mu_variable_assign_sub(level, mu_multiply(next, mu_constant(MU_F64, .5)));
    return mu_list(next, MU_END);
}

static mu_tensor *in_a_scan(mu_tensor *x, mu_tensor *s)
{
    return total(mu_multiply(mu_at(mu_scan(step, mu_list(x, MU_END), mu_list(s, MU_END), s), 0), x));
}

static mu_value *writes(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *y = mu_multiply(mu_at(arguments, 0), mu_variable_read(level));
    mu_variable_assign(level, mu_multiply(mu_variable_read(level), mu_at(arguments, 1)));
    return mu_list(mu_multiply(mu_exp(y), mu_variable_read(level)), MU_END);
}

static mu_value *only_reads(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_multiply(mu_sin(mu_at(arguments, 0)), mu_variable_read(level)), MU_END);
}

static mu_tensor *branches(mu_tensor *x, mu_tensor *s, double limit)
{
    mu_tensor *low = mu_less(total(x), mu_constant(MU_F64, limit));
    mu_value *both = mu_cond(low, writes, only_reads, mu_list(mu_tanh(x), s, MU_END), NULL);
    return total(mu_multiply(mu_at(both, 0), mu_variable_read(level)));
}

static mu_tensor *in_the_branch_taken(mu_tensor *x, mu_tensor *s) { return branches(x, s, 100); }

static mu_tensor *in_the_other_branch(mu_tensor *x, mu_tensor *s) { return branches(x, s, -100); }

static mu_value *outer_step(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor *h = mu_at(state, 0), *e = mu_at(element, 0);
    mu_value *inner = mu_cond(mu_greater(e, mu_constant(MU_F64, 0)), writes, only_reads, mu_list(h, arg, MU_END), NULL);
    return mu_list(mu_tanh(mu_add(mu_at(inner, 0), e)), MU_END);
}

static mu_tensor *in_a_branch_of_a_scan(mu_tensor *x, mu_tensor *s)
{
    return total(mu_at(mu_scan(outer_step, mu_list(x, MU_END), mu_list(s, MU_END), s), 0));
}

static mu_tensor *recomputed(mu_tensor *x, mu_tensor *s)
{
    mu_value *result = mu_recompute_grad(writes, mu_list(mu_sin(x), s, MU_END), NULL);
    return total(mu_multiply(mu_at(result, 0), x));
}

// Effects inside of recomputed code happen once, and gradients pass through the effects that return a value.
static mu_value *counts(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_check_numerics(mu_at(arguments, 0), "x");
    mu_variable_assign_add(level, mu_constant(MU_F64, 1));
    mu_value *both = mu_cond(mu_less(total(x), mu_constant(MU_F64, 100)), writes, only_reads,
                             mu_list(x, mu_at(arguments, 1), MU_END), NULL);
    return mu_list(mu_sin(mu_at(both, 0)), MU_END);
}

static mu_tensor *recomputed_effects(mu_tensor *x, mu_tensor *s)
{
    mu_value *result = mu_recompute_grad(counts, mu_list(mu_multiply(x, s), s, MU_END), NULL);
    return total(mu_multiply(mu_at(result, 0), x));
}

typedef mu_tensor *scalar_fn(mu_tensor *x, mu_tensor *s);
static const struct {
    const char *name;
    scalar_fn *fn;
} functions[] = {
    {"in_a_loop", in_a_loop},
    {"in_a_scan", in_a_scan},
    {"in_the_branch_taken", in_the_branch_taken},
    {"in_the_other_branch", in_the_other_branch},
    {"in_a_branch_of_a_scan", in_a_branch_of_a_scan},
    {"recomputed", recomputed},
    {"recomputed_effects", recomputed_effects},
};

// Returns the value and the gradients, and the gradients of the sum of their squares.
static mu_value *slopes(mu_value *arguments, void *arg)
{
    scalar_fn *const *fn = arg;
    mu_tensor *x = mu_at(arguments, 0), *s = mu_at(arguments, 1);
    mu_tape *outer = mu_tape_open(), *inner = mu_tape_open();
    mu_value *sources = mu_list(x, s, mu_variables(level, other, MU_END), MU_END);
    mu_tensor *y = (*fn)(x, s);
    mu_value *first = mu_gradients(inner, y, sources);
    mu_tape_close(inner);
    if (!first)
        return NULL;
    mu_value *of_variables = mu_value_at(first, 2);
    mu_tensor *sum = mu_add(total(mu_square(mu_at(first, 0))), mu_square(mu_at(of_variables, 0)));
    mu_tape_close(outer);
    mu_value *second = sum ? mu_gradients(outer, sum, sources) : NULL;
    if (!second)
        return NULL;
    return mu_list(y, mu_at(first, 0), mu_at(first, 1), mu_at(of_variables, 0), mu_at(of_variables, 1),
                   mu_at(second, 0), mu_at(second, 1), mu_at(mu_value_at(second, 2), 0), MU_END);
}

static void gradients_are_those_of_the_eager_ops(void **state)
{
    (void)state;
    const double at[] = {.3, -.7, 1.1, .2};
    level = mu_variable_new(mu_constant(MU_F64, .6), "level");
    other = mu_variable_new(mu_constant(MU_F64, -.4), "other");
    for (size_t i = 0; i < MU_COUNT(functions); i++) {
        mu_pool *pool = mu_pool_open();
        scalar_fn *fn = functions[i].fn;
        mu_value *arguments = mu_list(vector(4, at), mu_constant(MU_F64, .8), MU_END);
        mu_variable_assign(level, mu_constant(MU_F64, .6));
        mu_value *eager = slopes(arguments, &fn);
        const double left = mu_scalar(mu_variable_read(level));
        mu_variable_assign(level, mu_constant(MU_F64, .6));
        mu_value *seen = eager ? mu_run(NULL, mu_function_new(slopes, &fn), arguments) : NULL;
        if (!seen)
            fail_msg("%s: %s", functions[i].name, mu_error_message());
        for (int k = 0; k < mu_value_count(eager); k++)
            assert_near(doubles(mu_at(seen, k)), doubles(mu_at(eager, k)), mu_tensor_elements(mu_at(eager, k)), 1e-11);
        assert_number(mu_scalar(mu_variable_read(level)), left, 1e-13);
        assert_true(fabs(mu_scalar(mu_at(seen, 3))) > 1e-3);
        mu_pool_close(pool);
    }
}

// The numbers of TensorFlow 2 for the loop as a tf.function.
static void gradients_are_those_of_tensorflow(void **state)
{
    (void)state;
    static const double dx[] = {-.35774061, .00962143, .48104145, -.39971158};
    scalar_fn *fn = in_a_loop;
    level = mu_variable_new(mu_constant(MU_F64, .6), "level");
    other = mu_variable_new(mu_constant(MU_F64, -.4), "other");
    mu_value *arguments = mu_list(vector(4, (double[]){.3, -.7, 1.1, .2}), mu_constant(MU_F64, .8), MU_END);
    mu_value *seen = mu_run(NULL, mu_function_new(slopes, &fn), arguments);
    if (!seen)
        fail_msg("%s", mu_error_message());
    assert_number(mu_scalar(mu_at(seen, 0)), .07205032976377443, 1e-13);
    assert_near(doubles(mu_at(seen, 1)), dx, 4, 1e-8);
    assert_number(mu_scalar(mu_at(seen, 2)), .21506671960306067, 1e-13);
    assert_number(mu_scalar(mu_at(seen, 3)), .2926676711906552, 1e-13);
    assert_number(mu_scalar(mu_at(seen, 4)), .9521097751519952, 1e-13);
}

// Without a gradient no read is moved outside, and none of the ties between reads remains.
static mu_value *plain(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(in_a_loop(mu_at(arguments, 0), mu_at(arguments, 1)), MU_END);
}

static mu_value *with_a_tape(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    mu_value *result = plain(arguments, arg);
    mu_tape_close(tape);
    return result;
}

static size_t nodes_of(const mu_graph *graph)
{
    size_t n = graph->nodes.n;
    mu_graph *body;
    for (size_t i = 0; i < graph->nodes.n; i++) {
        assert_ptr_not_equal(graph->nodes.items[i]->op, &mu_op_inner_read);
        for (int b = 0; (body = mu__node_body(graph->nodes.items[i], b)); b++)
            n += nodes_of(body);
    }
    return n;
}

static void nothing_stays_of_what_no_gradient_uses(void **state)
{
    (void)state;
    level = mu_variable_new(mu_constant(MU_F64, .6), "level");
    other = mu_variable_new(mu_constant(MU_F64, -.4), "other");
    mu_value *arguments = mu_list(mu_zeros(MU_F64, 1, (int64_t[]){4}), mu_constant(MU_F64, .8), MU_END);
    mu_concrete *bare = mu__function_concrete(mu_function_new(plain, NULL), arguments, false, NULL);
    mu_concrete *heard = mu__function_concrete(mu_function_new(with_a_tape, NULL), arguments, false, NULL);
    if (!bare || !heard)
        fail_msg("%s", mu_error_message());
    assert_int_equal(nodes_of(heard->graph), nodes_of(bare->graph));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(gradients_are_those_of_the_eager_ops),
        MODEL_TEST(gradients_are_those_of_tensorflow),
        MODEL_TEST(nothing_stays_of_what_no_gradient_uses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
