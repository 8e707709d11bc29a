// Random programs on a plugin's device: each instruction gives what the native engine makes of the same operands.
//
// A function returns every value of a program (tests/unit/graph/random_program.h), with the derivatives of each by its
// operands. The native engine then executes one instruction at a time, with the operands that the device had, so that
// rounding does not grow along the program. The first argument of this program is the first seed, the second how many
// follow.
#include "../unit/graph/random_program.h"
#include "skip.h"

// Weights the elements by 1, 2, … along the first and the last axis: numbers that have no rounding error.
static mu_tensor *weighted(mu_tensor *made)
{
    mu_tensor *weights = mu_ones_like(made);
    if (mu_tensor_rank(made) > 0)
        weights = mu_cumsum(mu_cumsum(weights, 0, false, false), -1, false, false);
    return mu_multiply(made, weights);
}

// What an instruction makes: its value, the variable afterwards, and, where the program asks for them, derivatives by
// the operands. Two values may be one tensor, such as that of a cast to its own type; derivatives tell operands apart.
static mu_value *step(const program *p, const instruction *i, mu_tensor *const *values)
{
    mu_tensor *operands[] = {mu_identity(values[i->a]), mu_identity(values[i->b]), mu_identity(values[i->c])}, *sum;
    mu_tape *tape = mu_tape_open();
    mu_tensor *made = applied(i, operands[0], operands[1], operands[2]);
    const bool derive = made && p->gradient && mu__dtype_is_float(made->dtype);
    sum = derive ? mu_reduce_sum(weighted(made), MU_ALL_AXES) : NULL;
    mu_tape_close(tape);
    if (!made)
        return NULL;
    mu_value *sources = mu_list(operands[0], operands[1], operands[2], MU_END);
    return mu_list(made, mu_variable_read(cell), derive ? mu_gradients(tape, sum, sources) : mu_list(MU_END), MU_END);
}

static mu_value *every_value(mu_value *arguments, void *arg)
{
    const program *p = arg;
    mu_tensor *values[INPUTS + MOST];
    mu_value *steps[MOST];
    for (int i = 0; i < INPUTS; i++)
        values[i] = mu_at(arguments, i);
    for (int k = 0; k < p->n; k++) {
        steps[k] = step(p, &p->at[k], values);
        if (!steps[k])
            return NULL;
        values[INPUTS + k] = mu_at(steps[k], 0);
    }
    return mu_list_of(p->n, steps);
}

// ---- Comparing ----------------------------------------------------------------------------------

// Either side may leave out the rounding of a 16-bit float between two operations.
static double tolerance_of(mu_dtype dtype)
{
    return dtype == MU_F64 ? 1e-9 : dtype == MU_F32 ? 1e-4 : dtype == MU_F16 ? 2e-2 : dtype == MU_BF16 ? 0.1 : 0;
}

static bool same(const mu_tensor *native, const mu_tensor *seen, double tolerance)
{
    if (native->dtype != seen->dtype || !mu__shape_equal(&native->shape, &seen->shape))
        return false;
    for (int64_t i = 0; i < mu_tensor_elements(native); i++) {
        const double a = mu__read_element(native->dtype, mu__host_read(native), i);
        const double b = mu__read_element(seen->dtype, mu__host_read(seen), i);
        if (!(a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (1 + fabs(a))))
            return false;
    }
    return true;
}

// XLA takes denormal numbers for 0.
static mu_tensor *without_denormals(mu_tensor *x)
{
    mu_tensor *flushed = mu_tensor_new(x->dtype, mu_tensor_rank(x), x->shape.dims, NULL);
    for (int64_t i = 0; i < mu_tensor_elements(x); i++) {
        const double value = mu__read_element(x->dtype, mu__host_read(x), i);
        const double smallest = x->dtype == MU_F64 ? 0x1p-1022 : 0x1p-126;
        mu__write_element(x->dtype, mu__host_write(flushed), i, fabs(value) < smallest ? copysign(0, value) : value);
    }
    return mu__dtype_is_float(x->dtype) ? flushed : x;
}

static int differences;

static void report(uint64_t seed, const program *p, const instruction *i, const char *what)
{
    differences++;
    fprintf(stderr, "seed %llu, v%d, an instruction of kind %d: %s; the program:\n", (unsigned long long)seed,
            INPUTS + i->number, (int)i->kind, what);
    print_program(p);
}

static void report_result(uint64_t seed, const program *p, const instruction *i, mu_tensor *const *values,
                          const mu_tensor *native, const mu_tensor *seen)
{
    const mu_tensor *shown[] = {values[i->a], values[i->b], values[i->c], native, seen};
    report(seed, p, i, "a result differs; below: the operands, the native result, that of the device");
    for (size_t k = 0; k < MU_COUNT(shown); k++)
        mu_tensor_print(shown[k], stderr);
}

// XLA makes y log |x| of log(x ** y), which has numbers where the power is NaN.
static bool is_log_of_power(const program *p, const instruction *i)
{
    const instruction *operand = i->a >= INPUTS ? &p->at[i->a - INPUTS] : NULL;
    return i->kind == UNARY && unary[i->p % MU_COUNT(unary)] == mu_log && operand && operand->kind == BINARY &&
           binary[operand->p % MU_COUNT(binary)] == mu_pow;
}

// Results: the value, the variable after it, derivatives.
static void compare_step(uint64_t seed, const program *p, const instruction *i, mu_tensor *const *values,
                         mu_value *seen)
{
    mu_object *a[8], *b[8];
    mu_value *native = step(p, i, values);
    if (!native) {
        report(seed, p, i, mu_error_message());
        mu_error_take();
        return;
    }
    const int n = mu__value_flatten(native, a, 8);
    if (mu__value_flatten(seen, b, 8) != n) {
        report(seed, p, i, "another number of results than natively");
        return;
    }
    const mu_tensor *made = (mu_tensor *)a[0];
    const double tolerance = fmax(tolerance_of(made->dtype), tolerance_of(values[i->a]->dtype));
    for (int k = 0; k < n; k++)
        if (!same((mu_tensor *)a[k], (mu_tensor *)b[k], tolerance)) {
            report_result(seed, p, i, values, (mu_tensor *)a[k], (mu_tensor *)b[k]);
            return;
        }
}

static void check_program(uint64_t seed, program *p, mu_value *arguments, mu_strategy *strategy)
{
    mu_tensor *values[INPUTS + MOST];
    mu_variable_assign(cell, mu_constant(MU_F32, 1));
    mu_value *all = mu_run(strategy, mu_function_new(every_value, p), arguments);
    if (!all) {
        report(seed, p, &p->at[0], mu_error_message());
        mu_error_take();
        return;
    }
    for (int i = 0; i < INPUTS; i++)
        values[i] = without_denormals(mu_at(arguments, i));
    mu_tensor *variable = mu_constant(MU_F32, 1);
    for (int k = 0; k < p->n; k++) {
        mu_value *seen = mu_value_at(all, k);
        mu_variable_assign(cell, variable);
        if (!is_log_of_power(p, &p->at[k]))
            compare_step(seed, p, &p->at[k], values, seen);
        variable = mu_at(seen, 1);
        values[INPUTS + k] = without_denormals(mu_at(seen, 0));
    }
}

static unsigned long long first_seed = 1, n_seeds = 30;

static void instructions_give_what_they_do_natively(void **unused)
{
    (void)unused;
    cell = mu_variable_new(mu_constant(MU_F32, 1), "cell");
    mu_strategy *strategy = mu_one_device_strategy("XLA_CPU:0");
    assert_non_null(strategy);
    for (uint64_t seed = first_seed; seed < first_seed + n_seeds; seed++) {
        mu_pool *pool = mu_pool_open();
        program p;
        mu_value *arguments = inputs_of(seed, ROWS, 0);
        make_program(&p, arguments, true);
        check_program(seed, &p, arguments, strategy);
        mu_pool_close(pool);
    }
    assert_int_equal(differences, 0);
}

int main(int n, char **arguments)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(instructions_give_what_they_do_natively)};
    first_seed = n > 1 ? strtoull(arguments[1], NULL, 10) : first_seed;
    n_seeds = n > 2 ? strtoull(arguments[2], NULL, 10) : n_seeds;
    return plugin_missing() ? SKIPPED : cmocka_run_group_tests(tests, NULL, NULL);
}
