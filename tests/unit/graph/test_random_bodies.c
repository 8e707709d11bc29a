// Random nests of branches, loops, maps, custom gradients, recomputation and Jacobians, differentiated one to three
// times: a traced function gives the results of the same callbacks outside of traces.
//
// A nest has three levels; a level is a kind of body around the next one. Derivatives of derivatives are taken through
// all of them with nested tapes. The first argument of the program is the first seed, the second how many follow.
#include "control_test.h"

#include <stdlib.h>

enum { LEVELS = 3, KEPT = 256 };

typedef enum kind {
    COND,
    WHILE,
    SCAN,
    CUSTOM,
    RECOMPUTE,
    VECTORIZED,
    MAP,
    JACOBIAN,
    GRADIENTS_OF_ROWS,
    JVP,
    KINDS
} kind;

typedef struct nest {
    struct {
        kind kind;
        unsigned choice;
    } levels[LEVELS + 1];
    int order, rows, rank;
} nest;

// The context of a callback: its level, and a tensor from outside.
typedef struct inside {
    const nest *nest;
    int level;
    mu_tensor *w;
} inside;

static mu_tensor *at_level(const nest *n, int level, mu_tensor *x, mu_tensor *w);

static mu_tensor *leaf(unsigned choice, mu_tensor *x, mu_tensor *w)
{
    switch (choice % 4) {
    case 0: return mu_sin(mu_multiply(x, w));
    case 1: return mu_tanh(mu_add(mu_square(x), w));
    case 2: return mu_divide(x, mu_add(mu_square(w), mu_constant(MU_F64, 1.5)));
    default: return mu_multiply(mu_exp(mu_multiply(x, mu_constant(MU_F64, .3))), w);
    }
}

static mu_tensor *next(const inside *in, mu_tensor *x) { return at_level(in->nest, in->level + 1, x, in->w); }

static mu_value *body(mu_value *arguments, void *arg) { return mu_list(next(arg, mu_at(arguments, 0)), MU_END); }

static mu_value *cosine_of_body(mu_value *arguments, void *arg)
{
    return mu_list(mu_cos(next(arg, mu_at(arguments, 0))), MU_END);
}

static mu_tensor *two_iterations(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_less(mu_at(vars, 0), mu_constant(MU_I64, 2));
}

static mu_value *iteration(mu_value *vars, void *arg)
{
    return mu_list(mu_add(mu_at(vars, 0), mu_constant(MU_I64, 1)), next(arg, mu_at(vars, 1)), MU_END);
}

static mu_value *scan_step(mu_value *states, mu_value *element, void *arg)
{
    mu_tensor *half = mu_multiply(mu_at(states, 0), mu_constant(MU_F64, .5));
    return mu_list(mu_add(half, next(arg, mu_at(element, 0))), MU_END);
}

static mu_value *backward(mu_value *arguments, mu_value *results, mu_value *gradients, void *arg)
{
    (void)results;
    (void)arg;
    mu_tensor *derivative = mu_cos(mu_multiply(mu_at(arguments, 0), mu_constant(MU_F64, .7)));
    return mu_list(mu_multiply(mu_at(gradients, 0), derivative), MU_END);
}

static mu_value *gradients_of_row(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = mu_reduce_sum(next(arg, mu_at(arguments, 0)), MU_ALL_AXES);
    mu_tape_close(tape);
    return mu_gradients(tape, y, arguments);
}

static mu_tensor *columns_of_jacobian(const inside *in, mu_tensor *x)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *y = next(in, x);
    mu_tape_close(tape);
    return mu_tensor_rank(x) == 1 ? mu_reduce_sum(mu_at(mu_tape_jacobian(tape, y, mu_list(x, MU_END)), 0), 0) : y;
}

static mu_value *looped(inside *in, mu_tensor *x, unsigned choice)
{
    mu_value *vars = mu_list(mu_constant(MU_I64, 0), x, MU_END);
    mu_value *last = mu_while_loop(two_iterations, iteration, vars, in, .maximum_iterations = choice % 2 ? 4 : 0);
    return last ? mu_list(mu_at(last, 1), MU_END) : NULL;
}

static mu_value *scanned(inside *in, mu_tensor *x, unsigned choice)
{
    mu_value *first = mu_list(mu_multiply(mu_reduce_sum(x, 0), in->w), MU_END);
    return mu_scan(scan_step, mu_list(x, MU_END), first, in, .reverse = choice % 2);
}

static mu_value *around_next(inside *in, kind which, mu_tensor *x, unsigned choice)
{
    mu_value *arguments = mu_list(x, MU_END), *found;
    mu_tensor *limit = mu_constant(MU_F64, choice % 3 - 1.0);
    switch (which) {
    case COND: return mu_cond(mu_greater(mu_reduce_sum(x, MU_ALL_AXES), limit), body, cosine_of_body, arguments, in);
    case WHILE: return looped(in, x, choice);
    case SCAN: return scanned(in, x, choice);
    case CUSTOM: return mu_custom_gradient(body, backward, arguments, in);
    case RECOMPUTE: return mu_recompute_grad(body, arguments, in);
    case VECTORIZED: return mu_vectorized_map(body, arguments, in);
    case MAP: return mu_map_fn(body, arguments, in);
    case GRADIENTS_OF_ROWS: return mu_vectorized_map(gradients_of_row, arguments, in);
    case JVP:
        found = mu_jvp(body, arguments, mu_list(mu_ones_like(x), MU_END), in);
        return found ? mu_value_at(found, 1) : NULL;
    default: return mu_list(columns_of_jacobian(in, x), MU_END);
    }
}

static mu_tensor *at_level(const nest *n, int level, mu_tensor *x, mu_tensor *w)
{
    static inside kept[KEPT]; // gradients ask for it later
    static int used;
    const kind which = n->levels[level].kind;
    const unsigned choice = n->levels[level].choice;
    const bool needs_rows = which == SCAN || which == MAP || which == VECTORIZED || which == GRADIENTS_OF_ROWS;
    if (level == LEVELS || (needs_rows && mu_tensor_rank(x) == 0))
        return leaf(choice, x, w);
    inside *in = &kept[used++ % KEPT];
    *in = (inside){.nest = n, .level = level, .w = w};
    mu_value *result = around_next(in, which, x, choice);
    return result ? mu_at(result, 0) : NULL;
}

// The gradient of the sum of the gradients of …
static mu_value *derivatives(mu_value *arguments, void *arg)
{
    const nest *n = arg;
    mu_tape *tapes[3];
    for (int i = 0; i < n->order; i++)
        tapes[i] = mu_tape_open();
    mu_tensor *y = mu_reduce_sum(at_level(n, 0, mu_at(arguments, 0), mu_at(arguments, 1)), MU_ALL_AXES);
    for (int i = n->order - 1; i > 0; i--) {
        mu_tape_close(tapes[i]);
        mu_value *slopes = mu_gradients(tapes[i], y, arguments);
        y = slopes ? mu_add(mu_reduce_sum(mu_sin(mu_at(slopes, 0)), MU_ALL_AXES), mu_at(slopes, 1)) : NULL;
    }
    mu_tape_close(tapes[0]);
    return y ? mu_gradients(tapes[0], y, arguments) : NULL;
}

static nest nest_of(uint64_t seed)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    unsigned numbers_drawn[2 * LEVELS + 5];
    for (size_t i = 0; i < MU_COUNT(numbers_drawn); i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        numbers_drawn[i] = (unsigned)(state >> 40);
    }
    nest n = {.order = 1 + (int)(numbers_drawn[0] % 3),
              .rows = 2 + (int)(numbers_drawn[1] % 2),
              .rank = 1 + (numbers_drawn[2] % 3 == 0)};
    for (int i = 0; i <= LEVELS; i++) {
        n.levels[i].kind = numbers_drawn[3 + 2 * i] % KINDS;
        n.levels[i].choice = numbers_drawn[4 + 2 * i] % 12;
    }
    return n;
}

static void compare(const nest *n, uint64_t seed)
{
    static const double at[] = {.3, -.7, 1.1, .2, .5, -.4, .9, .1, .6};
    mu_tensor *x = mu_tensor_new(MU_F64, n->rank, (int64_t[]){n->rows, 3}, at);
    mu_value *arguments = mu_list(x, mu_constant(MU_F64, .8), MU_END);
    mu_value *eager = derivatives(arguments, (void *)n);
    mu_value *traced = eager ? mu_run(NULL, mu_function_new(derivatives, (void *)n), arguments) : NULL;
    if (!traced)
        fail_msg("seed %llu, order %d, levels %d %d %d: %s", (unsigned long long)seed, n->order, (int)n->levels[0].kind,
                 (int)n->levels[1].kind, (int)n->levels[2].kind, mu_error_message());
    for (int i = 0; i < 2; i++)
        assert_near(doubles(mu_at(traced, i)), doubles(mu_at(eager, i)), mu_tensor_elements(mu_at(eager, i)), 1e-9);
}

static unsigned long long first_seed = 1, n_seeds = 300;

static void functions_give_what_their_callbacks_give(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed; seed < first_seed + n_seeds; seed++) {
        mu_pool *pool = mu_pool_open();
        const nest n = nest_of(seed);
        compare(&n, seed);
        mu_pool_close(pool);
    }
}

int main(int n, char **arguments)
{
    const struct CMUnitTest tests[] = {MODEL_TEST(functions_give_what_their_callbacks_give)};
    first_seed = n > 1 ? strtoull(arguments[1], NULL, 10) : first_seed;
    n_seeds = n > 2 ? strtoull(arguments[2], NULL, 10) : n_seeds;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
