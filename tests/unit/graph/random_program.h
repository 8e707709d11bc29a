// Random programs: lists of instructions, each an op, a branch, a loop or a map over earlier values.
//
// A program is made while it is computed eagerly, where an instruction that its operands do not allow is dropped.
// What is compared with what is the tests' matter.
#ifndef MU_TEST_RANDOM_PROGRAM_H
#define MU_TEST_RANDOM_PROGRAM_H

#include "../model/model_test.h"

#include <muster.h>

#include <stdlib.h>

enum { INPUTS = 7, MOST = 40, ELEMENTS = 3000, RANK = 4, FEWEST = 6, GRADIENTS = 5, ROWS = 3 };

typedef enum kind {
    UNARY,
    BINARY,
    INTEGER_UNARY,
    COMPARE,
    LOGIC,
    NOT,
    TEST,
    WHERE,
    REDUCE,
    REDUCE_BOOL,
    ARG,
    CUMULATE,
    TRANSPOSE,
    EXPAND,
    SQUEEZE,
    CONCAT,
    STACK,
    SLICE,
    REVERSE,
    ROLL,
    PAD,
    TILE,
    REPEAT,
    CAST,
    MATMUL,
    SOFTMAX,
    GATHER,
    SORT,
    ARGSORT,
    ONE_HOT,
    UNIQUE,
    FLATTEN,
    LIKE,
    CONSTANT,
    CLIP,
    READ,
    ASSIGN,
    COND,
    WHILE,
    SCAN,
    MAP,
    VECTORIZED,
    RECOMPUTE,
    CALL,
    CUSTOM,
    KINDS
} kind;

typedef struct instruction {
    kind kind;
    int number;
    int a, b, c;   // operands
    unsigned p, q; // which function of its kind, which axis and the like
    bool around;   // bodies use b, from around them
    bool writes;   // bodies read the variable and assign to it
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
    mu_abs,
    mu_neg,
    mu_sign,
    mu_square,
    mu_floor,
    mu_ceil,
    mu_round,
    mu_exp,
    mu_expm1,
    mu_log,
    mu_log1p,
    mu_sqrt,
    mu_rsqrt,
    mu_reciprocal,
    mu_erf,
    mu_erfc,
    mu_lgamma,
    mu_sin,
    mu_cos,
    mu_tan,
    mu_asin,
    mu_acos,
    mu_atan,
    mu_sinh,
    mu_cosh,
    mu_tanh,
    mu_asinh,
    mu_acosh,
    mu_atanh,
    mu_sigmoid,
    mu_identity,
    mu_stop_gradient,
    mu_nn_relu,
    mu_nn_relu6,
    mu_nn_elu,
    mu_nn_selu,
    mu_nn_silu,
    mu_nn_mish,
    mu_nn_softplus,
    mu_nn_softsign,
    mu_nn_log_sigmoid,
    mu_nn_hard_sigmoid,
    gelu,
    leaky,
    mu_digamma,
};
static mu_tensor *(*const integer_unary[])(mu_tensor *) = {mu_abs, mu_neg, mu_sign, mu_square, mu_identity};
static mu_tensor *(*const binary[])(mu_tensor *, mu_tensor *) = {
    mu_add,     mu_subtract, mu_multiply,           mu_divide, mu_divide_no_nan, mu_floor_divide, mu_mod, mu_pow,
    mu_maximum, mu_minimum,  mu_squared_difference, mu_atan2,  mu_add,           mu_multiply,
};
static mu_tensor *(*const compare[])(mu_tensor *, mu_tensor *) = {mu_equal,      mu_not_equal, mu_less,
                                                                  mu_less_equal, mu_greater,   mu_greater_equal};
static mu_tensor *(*const logic[])(mu_tensor *, mu_tensor *) = {mu_logical_and, mu_logical_or, mu_logical_xor};
static mu_tensor *(*const test[])(mu_tensor *) = {mu_is_nan, mu_is_inf, mu_is_finite};
static mu_tensor *(*const reduce[])(const mu_reduction_args *) = {
    mu_reduce_sum_with,  mu_reduce_mean_with,      mu_reduce_max_with,      mu_reduce_min_with,
    mu_reduce_prod_with, mu_reduce_logsumexp_with, mu_reduce_variance_with, mu_reduce_std_with,
};
static const mu_dtype dtypes[] = {MU_F32, MU_F64, MU_F16, MU_BF16, MU_I32, MU_I64, MU_I8, MU_U8, MU_BOOL};

static mu_variable *cell; // a float32 scalar

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

static mu_value *body(mu_value *arguments, void *arg) { return mu_list(bent(arg, mu_at(arguments, 0), 0), MU_END); }

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
    static inside kept[MOST]; // gradients ask for it later
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
    static const struct {
        mu_dtype dtype;
        int rank;
        int64_t second;
    } kinds[INPUTS] = {
        {MU_F32, 2, 5},  {MU_F32, 1, 0}, {MU_F64, 2, 3},  {MU_I32, 2, 5},
        {MU_BOOL, 2, 5}, {MU_F16, 2, 5}, {MU_BF16, 2, 1},
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

static bool small(const mu_tensor *x) { return x->shape.rank <= RANK && mu__elements(&x->shape) <= ELEMENTS; }

// Makes shapes that only a run knows: numbers of elements, and of rounds whose values a gradient needs.
static bool has_unknown_shapes(const program *p, const instruction *i)
{
    return i->kind == UNIQUE || (p->gradient && i->kind == WHILE && i->p % 3);
}

// With constant_shapes the program has no instruction that makes unknown shapes.
static void make_program(program *p, mu_value *arguments, bool constant_shapes)
{
    mu_tensor *values[INPUTS + MOST];
    const int wanted = FEWEST + (int)draw(MOST - FEWEST);
    *p = (program){.gradient = draw(2)};
    for (int i = 0; i < INPUTS; i++)
        values[i] = mu_at(arguments, i);
    for (int tries = 0; p->n < wanted && tries < 40 * MOST; tries++) {
        const unsigned n = (unsigned)(INPUTS + p->n);
        instruction *i = &p->at[p->n];
        *i = (instruction){.kind = draw(KINDS),
                           .number = p->n,
                           .a = (int)draw(n),
                           .b = (int)draw(n),
                           .c = (int)draw(n),
                           .p = draw(1 << 20),
                           .q = draw(1 << 20)};
        if (draw(2))
            i->kind = draw(2) ? UNARY : BINARY;
        if (i->kind >= COND && !mu__dtype_is_float(values[i->a]->dtype))
            continue;
        if ((p->gradient && left_out(i)) || (constant_shapes && has_unknown_shapes(p, i)))
            continue;
        i->around = i->kind >= COND && fits(i->kind, values[i->a], values[i->b]) &&
                    !(p->gradient && (i->kind == WHILE || i->kind == MAP)); // whose iterations add to its gradient
        i->writes = i->kind >= COND && i->kind != VECTORIZED && i->kind != CUSTOM && draw(3) == 0;
        mu_tensor *made = applied(i, values[i->a], values[i->b], values[i->c]);
        if (mu_error_take().code == MU_OK && made && small(made))
            values[INPUTS + p->n++] = made;
    }
}

static void print_program(const program *p)
{
    for (int k = 0; k < p->n; k++)
        fprintf(stderr, "  v%d = %d(v%d, v%d, v%d) p %u q %u\n", INPUTS + k, (int)p->at[k].kind, p->at[k].a, p->at[k].b,
                p->at[k].c, p->at[k].p, p->at[k].q);
}

#endif
