// Random programs: after all passes, fusion and planning a function gives, bit for bit, the results of its ops executed
// one after the other.
//
// A program (random_program.h) is traced with an unknown number of rows, and run for two of them; then second axes are
// longer, and unknown in the next trace. Gradients of all inputs are compared too. The first argument of this program
// is the first seed, the second how many follow. pjrt/test_random_programs runs the programs on XLA devices.
#include "random_program.h"

// ---- Running ------------------------------------------------------------------------------------

// The values that nothing uses, and the gradients of their sum.
static mu_value *results_of(const program *p, mu_tape *tape, mu_tensor *const *values, mu_value *arguments)
{
    bool used[INPUTS + MOST] = {false};
    mu_value *items[MOST + 2];
    mu_tensor *sum = mu_constant(MU_F64, 0);
    int n = 0;
    items[n++] = mu_of(mu_variable_read(cell));
    for (int k = 0; k < p->n; k++)
        used[p->at[k].a] = used[p->at[k].b] = used[p->at[k].c] = true;
    for (int k = INPUTS; k < INPUTS + p->n; k++) {
        if (used[k] || !values[k])
            continue;
        items[n++] = mu_of(values[k]);
        if (mu__dtype_is_float(values[k]->dtype))
            sum = mu_add(sum, mu_cast(mu_reduce_sum(values[k], MU_ALL_AXES), MU_F64));
    }
    if (p->gradient)
        items[n++] = mu_gradients(tape, sum,
                                  mu_list(mu_at(arguments, 0), mu_at(arguments, 1), mu_at(arguments, 2),
                                          mu_at(arguments, 5), mu_at(arguments, 6), MU_END));
    return mu_list_of(n, items);
}

static mu_value *computed(mu_value *arguments, void *arg)
{
    const program *p = arg;
    mu_tensor *values[INPUTS + MOST];
    mu_tape *tape = p->gradient ? mu_tape_open() : NULL;
    for (int i = 0; i < INPUTS; i++)
        values[i] = mu_at(arguments, i);
    for (int k = 0; k < p->n; k++) {
        const instruction *i = &p->at[k];
        values[INPUTS + k] = applied(i, values[i->a], values[i->b], values[i->c]);
        if (!values[INPUTS + k])
            return NULL;
    }
    return results_of(p, tape, values, arguments);
}

// ---- Comparing ----------------------------------------------------------------------------------

// Two NaNs are equal. In gradients, zeros are equal whatever their sign, because eager gradients of rows are sums with
// the zeros of the others.
static bool same_element(const mu_tensor *a, const mu_tensor *b, int64_t i, bool gradient)
{
    const size_t bytes = mu_dtype_bytes(a->dtype);
    const double x = mu__read_element(a->dtype, mu__host_read(a), i);
    const double y = mu__read_element(a->dtype, mu__host_read(b), i);
    return (isnan(x) && isnan(y)) || (gradient && x == 0 && y == 0) ||
           memcmp((const char *)mu__host_read(a) + (size_t)i * bytes,
                  (const char *)mu__host_read(b) + (size_t)i * bytes, bytes) == 0;
}

static bool same_bits(const mu_tensor *a, const mu_tensor *b, bool gradient)
{
    bool same = a->dtype == b->dtype && mu__shape_equal(&a->shape, &b->shape);
    for (int64_t i = 0; same && i < mu_tensor_elements(a); i++)
        same = same_element(a, b, i, gradient);
    return same;
}

static void compare_values(const program *p, uint64_t seed, int64_t rows, mu_value *eager, mu_value *traced)
{
    const int n = mu__value_flatten(eager, NULL, 0), m = traced ? mu__value_flatten(traced, NULL, 0) : -1;
    mu_object *a[MOST + INPUTS], *b[MOST + INPUTS];
    if (n != m && rows != ROWS && mu_error_code() == MU_INVALID_ARGUMENT) {
        mu_error_take(); // so may those in a branch that is not taken
        return;
    }
    if (n != m) {
        print_program(p);
        fail_msg("seed %llu, %lld rows: %d results instead of %d: %s", (unsigned long long)seed, (long long)rows, m, n,
                 mu_error_message());
    }
    mu__value_flatten(eager, a, n);
    mu__value_flatten(traced, b, n);
    for (int i = 0; i < n; i++)
        if (!same_bits((mu_tensor *)a[i], (mu_tensor *)b[i], p->gradient && i >= n - GRADIENTS)) {
            print_program(p);
            fprintf(stderr, "eager:\n");
            mu_tensor_print((mu_tensor *)a[i], stderr);
            fprintf(stderr, "function:\n");
            mu_tensor_print((mu_tensor *)b[i], stderr);
            fail_msg("seed %llu, %lld rows: result %d of %d differs", (unsigned long long)seed, (long long)rows, i, n);
        }
}

// Computes a program, or runs a function of it, with the variable as it was at first.
static mu_value *from_one(mu_value *arguments, program *p, mu_function *function)
{
    mu_variable_assign(cell, mu_constant(MU_F32, 1));
    return function ? mu_run(NULL, function, arguments) : computed(arguments, p);
}

static mu_resource *the_cell(void *arg, const char *which, const char *name, const mu_spec *spec)
{
    (void)which, (void)name, (void)spec;
    return arg;
}

// The serialised form is complete: a graph that was read is written as the same bytes.
static void check_wire(uint64_t seed, mu_function *function, mu_value *arguments)
{
    void *bytes, *again = NULL;
    size_t n, m = 0;
    mu_concrete *concrete = mu__function_concrete(function, arguments, true, NULL);
    assert_non_null(concrete);
    assert_int_equal(mu__graph_write(concrete->graph, &bytes, &n), MU_OK);
    mu_graph *read = mu__graph_read(bytes, n, the_cell, cell);
    if (!read || mu__graph_write(read, &again, &m) != MU_OK || n != m || memcmp(bytes, again, n) != 0)
        fail_msg("seed %llu: %zu bytes became %zu: %s", (unsigned long long)seed, n, m, mu_error_message());
    mu_release(read);
    mu__free(bytes);
    mu__free(again);
}

static unsigned long long first_seed = 1, n_seeds = 1500;

static void functions_compute_what_their_ops_do(void **unused)
{
    (void)unused;
    cell = mu_variable_new(mu_constant(MU_F32, 1), "cell");
    for (uint64_t seed = first_seed; seed < first_seed + n_seeds; seed++) {
        mu_pool *pool = mu_pool_open();
        program p;
        make_program(&p, inputs_of(seed, ROWS, 0), false);
        mu_function *function = mu_function_new(computed, &p);
        const int64_t sizes[] = {ROWS, 1 + draw(6), ROWS};
        for (int k = 0; k < 3; k++) {
            mu_value *arguments = inputs_of(seed, sizes[k], k == 2), *eager = from_one(arguments, &p, NULL);
            if (!eager || mu__pending())
                mu_error_take(); // shapes that fit 3 rows may not fit others
            else
                compare_values(&p, seed, sizes[k], eager, from_one(arguments, &p, function));
        }
        if (seed % 8 == 0)
            check_wire(seed, function, inputs_of(seed, ROWS, 0));
        mu_pool_close(pool);
    }
}

int main(int n, char **arguments)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(functions_compute_what_their_ops_do)};
    first_seed = n > 1 ? strtoull(arguments[1], NULL, 10) : first_seed;
    n_seeds = n > 2 ? strtoull(arguments[2], NULL, 10) : n_seeds;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
