// Random programs: after all passes, fusion and planning a function gives, bit for bit, the results of its ops executed
// one after the other.
//
// A program is a list of instructions, each an op, a branch, a loop or a map over earlier values. It is made while it
// is computed eagerly, where an instruction that its operands do not allow is dropped; then it is traced, with an
// unknown number of rows, and run for two of them; then second axes are longer, and unknown in the next trace.
// Gradients of all inputs are compared too. The first argument of this program is the first seed, the second how many
// follow.
#include "../model/model_test.h"

#include <muster.h>

#include <stdlib.h>

enum { INPUTS = 7, MOST = 40, ELEMENTS = 3000, RANK = 4, FEWEST = 6, GRADIENTS = 5, ROWS = 3 };

typedef enum kind {
    UNARY, BINARY, INTEGER_UNARY, COMPARE, LOGIC, NOT, TEST, WHERE, REDUCE, REDUCE_BOOL, ARG, CUMULATE, TRANSPOSE,
    EXPAND, SQUEEZE, CONCAT, STACK, SLICE, REVERSE, ROLL, PAD, TILE, REPEAT, CAST, MATMUL, SOFTMAX, GATHER, SORT,
    ARGSORT, ONE_HOT, UNIQUE, FLATTEN, LIKE, CONSTANT, CLIP, READ, ASSIGN,
    COND, WHILE, SCAN, MAP, VECTORIZED, RECOMPUTE, CALL,
    CUSTOM, KINDS
} kind;

typedef struct instruction {
    kind kind;
    int number;
    int a, b, c;          // operands
    unsigned p, q;        // which function of its kind, which axis and the like
    bool around;          // bodies use b, from around them
    bool writes;          // bodies read the variable and assign to it
} instruction;

typedef struct program {
    int n;
    instruction at[MOST];
    bool gradient;
} program;

static uint64_t state;

static unsigned draw(unsigned below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)((state >> 20) % below);
}

// ---- What instructions do -----------------------------------------------------------------------

static mu_tensor *gelu(mu_tensor *x) { return mu_nn_gelu(x, false); }
static mu_tensor *leaky(mu_tensor *x) { return mu_nn_leaky_relu(x, .1); }

static mu_tensor *(*const unary[])(mu_tensor *) = {
    mu_abs, mu_neg, mu_sign, mu_square, mu_floor, mu_ceil, mu_round, mu_exp, mu_expm1, mu_log, mu_log1p, mu_sqrt,
    mu_rsqrt, mu_reciprocal, mu_erf, mu_erfc, mu_lgamma, mu_sin, mu_cos, mu_tan, mu_asin, mu_acos, mu_atan, mu_sinh,
    mu_cosh, mu_tanh, mu_asinh, mu_acosh, mu_atanh, mu_sigmoid, mu_identity, mu_stop_gradient, mu_nn_relu, mu_nn_relu6,
    mu_nn_elu, mu_nn_selu, mu_nn_silu, mu_nn_mish, mu_nn_softplus, mu_nn_softsign, mu_nn_log_sigmoid,
    mu_nn_hard_sigmoid, gelu, leaky, mu_digamma,
};
static mu_tensor *(*const integer_unary[])(mu_tensor *) = {mu_abs, mu_neg, mu_sign, mu_square, mu_identity};
static mu_tensor *(*const binary[])(mu_tensor *, mu_tensor *) = {
    mu_add, mu_subtract, mu_multiply, mu_divide, mu_divide_no_nan, mu_floor_divide, mu_mod, mu_pow, mu_maximum,
    mu_minimum, mu_squared_difference, mu_atan2, mu_add, mu_multiply,
};
static mu_tensor *(*const compare[])(mu_tensor *, mu_tensor *) = {mu_equal, mu_not_equal, mu_less, mu_less_equal,
                                                                  mu_greater, mu_greater_equal};
static mu_tensor *(*const logic[])(mu_tensor *, mu_tensor *) = {mu_logical_and, mu_logical_or, mu_logical_xor};
static mu_tensor *(*const test[])(mu_tensor *) = {mu_is_nan, mu_is_inf, mu_is_finite};
static mu_tensor *(*const reduce[])(const mu_reduction_args *) = {
    mu_reduce_sum_with, mu_reduce_mean_with, mu_reduce_max_with, mu_reduce_min_with, mu_reduce_prod_with,
    mu_reduce_logsumexp_with, mu_reduce_variance_with, mu_reduce_std_with,
};
static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I32, MU_I64, MU_I8, MU_U8, MU_BOOL};

static mu_variable *cell;  // a float32 scalar

static mu_tensor *assign_to_cell(mu_tensor *x)
{
    mu_tensor *mean = mu_tanh(mu_reduce_mean(x, MU_ALL_AXES));
    return mu_variable_assign(cell, mean) == MU_OK ? mean : NULL;
}

// The body: unary[p], then binary[q] with the outer tensor where it fits; some bodies have effects.
typedef struct inside {
    const instruction *i;
    mu_tensor *around;
} inside;

static mu_tensor *bent(const inside *in, mu_tensor *x, unsigned iteration)
{
    mu_tensor *y = unary[(in->i->p + iteration) % MU_COUNT(unary)](x);
    if (in->around)
        y = binary[(in->i->q + iteration) % MU_COUNT(binary)](y, in->around);
    if (!in->i->writes || mu_tensor_dtype(y) != MU_F32)
        return y;
    y = mu_multiply(y, mu_variable_read(cell));
    assign_to_cell(y);
    return y;
}

static mu_value *body(mu_value *arguments, void *arg)
{
    return mu_list(bent(arg, mu_at(arguments, 0), 0), MU_END);
}

static mu_value *other_body(mu_value *arguments, void *arg)
{
    return mu_list(bent(arg, mu_at(arguments, 0), 3), MU_END);
}

static mu_tensor *continues(mu_value *vars, void *arg)
{
    const inside *in = arg;
    return mu_less(mu_at(vars, 0), mu_constant(MU_I64, in->i->c % 4));
}

static mu_value *iteration(mu_value *vars, void *arg)
{
    return mu_list(mu_add(mu_at(vars, 0), mu_constant(MU_I64, 1)), bent(arg, mu_at(vars, 1), 0), MU_END);
}

static mu_value *scan_step(mu_value *states, mu_value *element, void *arg)
{
    return mu_list(mu_add(mu_at(states, 0), bent(arg, mu_at(element, 0), 0)), MU_END);
}

static mu_value *derivative(mu_value *arguments, mu_value *results, mu_value *gradients, void *arg)
{
    (void)results;
    return mu_list(mu_multiply(mu_at(gradients, 0), bent(arg, mu_at(arguments, 0), 1)), MU_END);
}

static mu_value *derivative_body(mu_value *arguments, void *arg)
{
    const inside *in = arg;
    return mu_list(unary[in->i->p % MU_COUNT(unary)](mu_at(arguments, 0)), MU_END);
}

// Whether a body can use a tensor without changing the shape of its argument, a (of maps: a row of it).
static bool fits(kind which, const mu_tensor *a, const mu_tensor *b)
{
    mu_shape shape = a->shape;
    const bool rows = which == MAP || which == VECTORIZED;
    if (a == b || a->dtype != b->dtype || which == SCAN)
        return false;
    if (rows && shape.rank > 0)
        shape = mu_shape_make(shape.rank - 1, shape.dims + 1);
    return b->shape.rank == 0 || mu__shape_equal(&shape, &b->shape);
}

// Has no gradient: outside of bodies nothing passes, where the gradient of a body passes zeros, which make NaN of NaN.
static bool is_flat(const instruction *i, unsigned iteration)
{
    mu_tensor *(*const fn)(mu_tensor *) = unary[(i->p + iteration) % MU_COUNT(unary)];
    return fn == mu_sign || fn == mu_floor || fn == mu_ceil || fn == mu_round || fn == mu_stop_gradient ||
           binary[(i->q + iteration) % MU_COUNT(binary)] == mu_floor_divide;
}

// Returns whether a program with gradients leaves an instruction out. An instruction that returns its argument where
// shapes or iterations are known makes gradients that are added in another order.
static bool left_out(const instruction *i)
{
    return i->kind == LIKE || (i->kind == WHILE && i->c % 4 == 0) ||
           (i->kind >= COND && (is_flat(i, 0) || is_flat(i, 1) || is_flat(i, 3)));
}

static mu_tensor *with_bodies(const instruction *i, mu_tensor *a, mu_tensor *b, mu_tensor *c)
{
    static inside kept[MOST];  // gradients ask for it later
    inside *in = &kept[i->number];
    *in = (inside){.i = i, .around = i->around ? b : NULL};
    mu_value *x = mu_list(a, MU_END), *y = NULL;
    int at = 0;
    switch (i->kind) {
    case COND: y = mu_cond(mu_reduce_any(c, MU_ALL_AXES), body, other_body, x, in); break;
    case WHILE:
        y = mu_while_loop(continues, iteration, mu_list(mu_constant(MU_I64, 0), a, MU_END), in,
                          .maximum_iterations = i->p % 3 ? 0 : 2 + i->q % 3);
        at = 1;
        break;
    case SCAN: y = mu_scan(scan_step, x, mu_list(mu_reduce_mean(a, 0), MU_END), in, .reverse = i->q & 1); break;
    case MAP: y = mu_map_fn(body, x, in); break;
    case VECTORIZED: y = mu_vectorized_map(body, x, in); break;
    case RECOMPUTE: y = mu_recompute_grad(body, x, in); break;
    case CALL: y = mu__context()->trace ? mu_function_call(mu_function_new(body, in), x) : body(x, in); break;
    default: y = mu_custom_gradient(derivative_body, derivative, x, in); break;
    }
    return y ? mu_at(y, at) : NULL;
}

static mu_tensor *permuted(mu_tensor *a, unsigned p)
{
    int axes[MU_MAX_RANK], rank = mu_tensor_rank(a);
    for (int k = 0; k < rank; k++)
        axes[k] = k;
    for (int k = rank - 1; k > 0; k--, p /= 3) {
        const int other = (int)(p % (unsigned)(k + 1)), kept = axes[k];
        axes[k] = axes[other];
        axes[other] = kept;
    }
    return mu_transpose(a, axes);
}

static mu_tensor *sliced(mu_tensor *a, const instruction *i)
{
    int64_t begin[MU_MAX_RANK], end[MU_MAX_RANK], strides[MU_MAX_RANK];
    for (int k = 0; k < mu_tensor_rank(a); k++) {
        const unsigned way = (i->p >> 3 * k) % 5;
        strides[k] = way == 1 ? -1 : way == 2 ? 2 : way == 3 ? -2 : 1;
        begin[k] = (i->q >> 2 * k) % 2;
        end[k] = strides[k] < 0 ? -9999 : 9999;
        if (strides[k] < 0)
            begin[k] = -1 - begin[k];
    }
    return mu_strided_slice(a, begin, end, strides, 0, 0, 0);
}

static mu_tensor *padded(mu_tensor *a, const instruction *i)
{
    static const char *const modes[] = {"constant", "constant", "reflect", "symmetric"};
    int64_t before[MU_MAX_RANK], after[MU_MAX_RANK];
    for (int k = 0; k < mu_tensor_rank(a); k++) {
        before[k] = (i->p >> k) % 2;
        after[k] = (i->q >> k) % 2;
    }
    return mu_pad(a, before, after, modes[i->c % 4], 1.5);
}

static mu_tensor *tiled(mu_tensor *a, const instruction *i)
{
    int64_t times[MU_MAX_RANK];
    for (int k = 0; k < mu_tensor_rank(a); k++)
        times[k] = 1 + (i->p >> k) % 2;
    return mu_tile(a, times);
}

static mu_tensor *first_unique(mu_tensor *a, unsigned p)
{
    mu_tensor *values = NULL, *positions = NULL;
    mu_unique(a, &values, &positions);
    return p & 1 ? positions : values;
}

static mu_tensor *moved(const instruction *i, mu_tensor *a, mu_tensor *b, int axis)
{
    const int64_t all = -1;
    switch (i->kind) {
    case TRANSPOSE: return permuted(a, i->p);
    case EXPAND: return mu_expand_dims(a, axis);
    case SQUEEZE: return mu_squeeze(a, axis);
    case CONCAT: return mu_concat(2, (mu_tensor *[]){a, b}, axis);
    case STACK: return mu_stack(2, (mu_tensor *[]){a, b}, axis);
    case SLICE: return sliced(a, i);
    case REVERSE: return mu_reverse(a, axis);
    case ROLL: return mu_roll(a, (int)(i->q % 5) - 2, axis);
    case PAD: return padded(a, i);
    case TILE: return tiled(a, i);
    case REPEAT: return mu_repeat(a, 1 + i->q % 3, axis);
    case FLATTEN: return mu_reshape(a, 1, &all);
    case LIKE: return mu_broadcast_like(a, b);
    default: return NULL;
    }
}

static mu_tensor *applied(const instruction *i, mu_tensor *a, mu_tensor *b, mu_tensor *c)
{
    const int rank = mu_tensor_rank(a), axis = rank ? (int)(i->q % (unsigned)rank) : 0;
    switch (i->kind) {
    case UNARY: return unary[i->p % MU_COUNT(unary)](a);
    case INTEGER_UNARY: return integer_unary[i->p % MU_COUNT(integer_unary)](a);
    case BINARY: return binary[i->p % MU_COUNT(binary)](a, b);
    case COMPARE: return compare[i->p % MU_COUNT(compare)](a, b);
    case LOGIC: return logic[i->p % MU_COUNT(logic)](a, b);
    case NOT: return mu_logical_not(a);
    case TEST: return test[i->p % MU_COUNT(test)](a);
    case WHERE: return mu_where(c, a, b);
    case REDUCE:
        return reduce[i->p % MU_COUNT(reduce)](MU_ARGS(mu_reduction_args, ".axis", a, i->q % 4 ? axis : MU_ALL_AXES));
    case REDUCE_BOOL:
        return i->p & 1 ? mu_reduce_any(a, i->q % 4 ? axis : MU_ALL_AXES)
                        : mu_reduce_all(a, i->q % 4 ? axis : MU_ALL_AXES);
    case ARG: return (i->p & 1 ? mu_argmax : mu_argmin)(a, axis);
    case CUMULATE: return (i->p & 1 ? mu_cumsum : mu_cumprod)(a, axis, i->p & 2, i->p & 4);
    case CAST: return mu_cast(a, dtypes[i->p % MU_COUNT(dtypes)]);
    case MATMUL: return mu_matmul_transposed(a, b, i->p & 1, i->p & 2);
    case SOFTMAX: return (i->p & 1 ? mu_nn_softmax : mu_nn_log_softmax)(a, axis);
    case GATHER: return mu_gather(a, b, axis, 0);
    case SORT: return mu_sort(a, axis, i->p & 1);
    case ARGSORT: return mu_argsort(a, axis, i->p & 1);
    case ONE_HOT: return mu_one_hot(a, 1 + i->p % 4, MU_F32);
    case UNIQUE: return first_unique(a, i->p);
    case CONSTANT: return mu_constant(a->dtype, (double)(i->p % 5) - (i->q & 1 ? 2 : 2.5));
    case CLIP: return mu_clip_by_value(a, b, c);
    case READ: return mu_variable_read(cell);
    case ASSIGN: return assign_to_cell(a);
    default: return i->kind < COND ? moved(i, a, b, axis) : with_bodies(i, a, b, c);
    }
}

// ---- Programs -----------------------------------------------------------------------------------

static mu_tensor *input_of(int number, int64_t rows, int64_t wider)
{
    static const struct { mu_dtype dtype; int rank; int64_t second; } kinds[INPUTS] = {
        {MU_F32, 2, 5}, {MU_F32, 1, 0}, {MU_F64, 2, 3}, {MU_I32, 2, 5}, {MU_BOOL, 2, 5}, {MU_F16, 2, 5},
        {MU_BF16, 2, 1},
    };
    static const double odd[] = {0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 1e-40, 65504, 1e30, -3, 0.5, 1e-8};
    const int64_t dims[] = {rows, kinds[number].second + wider};
    mu_tensor *x = mu_tensor_new(kinds[number].dtype, kinds[number].rank, dims, NULL);
    const bool float_type = mu__dtype_is_float(x->dtype), with_odd = draw(3) == 0;
    for (int64_t i = 0; i < mu_tensor_elements(x); i++) {
        double value = (double)draw(4001) / 1000 - 2;
        if (float_type && with_odd && draw(4) == 0)
            value = odd[draw(MU_COUNT(odd))];
        mu__write_element(x->dtype, mu__host_write(x), i, float_type ? value : x->dtype == MU_BOOL ? draw(2) : draw(5));
    }
    return x;
}

static mu_value *inputs_of(uint64_t seed, int64_t rows, int64_t wider)
{
    mu_value *items[INPUTS];
    state = seed * 0x9E3779B97F4A7C15u + 0x1234567u + (uint64_t)rows;
    for (int i = 0; i < INPUTS; i++)
        items[i] = mu_of(input_of(i, rows, wider));
    return mu_list_of(INPUTS, items);
}

static bool small(const mu_tensor *x)
{
    return x->shape.rank <= RANK && mu__elements(&x->shape) <= ELEMENTS;
}

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
        items[n++] = mu_gradients(tape, sum, mu_list(mu_at(arguments, 0), mu_at(arguments, 1), mu_at(arguments, 2),
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

static void make_program(program *p, mu_value *arguments)
{
    mu_tensor *values[INPUTS + MOST];
    const int wanted = FEWEST + (int)draw(MOST - FEWEST);
    *p = (program){.gradient = draw(2)};
    for (int i = 0; i < INPUTS; i++)
        values[i] = mu_at(arguments, i);
    for (int tries = 0; p->n < wanted && tries < 40 * MOST; tries++) {
        const unsigned n = (unsigned)(INPUTS + p->n);
        instruction *i = &p->at[p->n];
        *i = (instruction){.kind = draw(KINDS), .number = p->n, .a = (int)draw(n), .b = (int)draw(n), .c = (int)draw(n),
                           .p = draw(1 << 20), .q = draw(1 << 20)};
        if (draw(2))
            i->kind = draw(2) ? UNARY : BINARY;
        if (i->kind >= COND && !mu__dtype_is_float(values[i->a]->dtype))
            continue;
        if (p->gradient && left_out(i))
            continue;
        i->around = i->kind >= COND && fits(i->kind, values[i->a], values[i->b]) &&
                    !(p->gradient && (i->kind == WHILE || i->kind == MAP));  // whose iterations add to its gradient
        i->writes = i->kind >= COND && i->kind != VECTORIZED && i->kind != CUSTOM && draw(3) == 0;
        mu_tensor *made = applied(i, values[i->a], values[i->b], values[i->c]);
        if (mu_error_take().code == MU_OK && made && small(made))
            values[INPUTS + p->n++] = made;
    }
}

// ---- Comparing ----------------------------------------------------------------------------------

static void print_program(const program *p)
{
    for (int k = 0; k < p->n; k++)
        fprintf(stderr, "  v%d = %d(v%d, v%d, v%d) p %u q %u\n", INPUTS + k, (int)p->at[k].kind, p->at[k].a, p->at[k].b,
                p->at[k].c, p->at[k].p, p->at[k].q);
}

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
        mu_error_take();  // so may those in a branch that is not taken
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
        make_program(&p, inputs_of(seed, ROWS, 0));
        mu_function *function = mu_function_new(computed, &p);
        const int64_t sizes[] = {ROWS, 1 + draw(6), ROWS};
        for (int k = 0; k < 3; k++) {
            mu_value *arguments = inputs_of(seed, sizes[k], k == 2), *eager = from_one(arguments, &p, NULL);
            if (!eager || mu__pending())
                mu_error_take();  // shapes that fit 3 rows may not fit others
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
