// Activations by Keras's names.

#include "model/core/layer.h"
#include "model/core/note.h"

#include <muster/nn.h>
#include <muster/ops.h>

static mu_tensor *with_logits(mu_tensor *y, mu_tensor *x, mu_note_kind kind, int axis)
{
    mu_note *note = y ? mu__note_keep(y, x, kind) : NULL;
    if (!note)
        return NULL;
    note->axis = axis < 0 ? axis + mu_tensor_rank(x) : axis;
    return y;
}

mu_tensor *mu__softmax(mu_tensor *x, int axis) { return with_logits(mu_nn_softmax(x, axis), x, MU_NOTE_SOFTMAX, axis); }

static mu_tensor *softmax(mu_tensor *x) { return mu__softmax(x, -1); }

static mu_tensor *sigmoid(mu_tensor *x) { return with_logits(mu_sigmoid(x), x, MU_NOTE_SIGMOID, -1); }

static mu_tensor *log_softmax(mu_tensor *x) { return mu_nn_log_softmax(x, -1); }

static mu_tensor *leaky_relu(mu_tensor *x) { return mu_nn_leaky_relu(x, .2); }

static mu_tensor *gelu(mu_tensor *x) { return mu_nn_gelu(x, false); }

static mu_tensor *hard_silu(mu_tensor *x) { return mu_multiply(x, mu_nn_hard_sigmoid(x)); }

static mu_tensor *number(const mu_tensor *x, double value) { return mu_constant(x->dtype, value); }

static mu_tensor *celu(mu_tensor *x)
{
    return mu_add(mu_maximum(x, number(x, 0)), mu_expm1(mu_minimum(x, number(x, 0))));
}

// The first half of the last axis, gated by the second.
static mu_tensor *glu(mu_tensor *x)
{
    mu_tensor *halves[2];
    return mu_split(x, 2, -1, halves) == MU_OK ? mu_multiply(halves[0], mu_sigmoid(halves[1])) : NULL;
}

static mu_tensor *hard_tanh(mu_tensor *x) { return mu_clip_by_value(x, number(x, -1), number(x, 1)); }

static mu_tensor *hard_shrink(mu_tensor *x)
{
    return mu_where(mu_greater(mu_abs(x), number(x, .5)), x, mu_zeros_like(x));
}

static mu_tensor *soft_shrink(mu_tensor *x)
{
    mu_tensor *half = number(x, .5);
    mu_tensor *above = mu_greater(x, half), *below = mu_less(x, number(x, -.5));
    return mu_where(above, mu_subtract(x, half), mu_where(below, mu_add(x, half), mu_zeros_like(x)));
}

static mu_tensor *tanh_shrink(mu_tensor *x) { return mu_subtract(x, mu_tanh(x)); }

static mu_tensor *squareplus(mu_tensor *x)
{
    mu_tensor *root = mu_sqrt(mu_add(mu_square(x), number(x, 4)));
    return mu_multiply(mu_add(x, root), number(x, .5));
}

// 0 up to -1, x from 1 on, a parabola between.
static mu_tensor *sparse_plus(mu_tensor *x)
{
    mu_tensor *one = number(x, 1), *between = mu_multiply(mu_square(mu_add(x, one)), number(x, .25));
    return mu_where(mu_less_equal(x, number(x, -1)), mu_zeros_like(x), mu_where(mu_less(x, one), between, x));
}

static mu_tensor *sparse_sigmoid(mu_tensor *x)
{
    mu_tensor *one = number(x, 1), *between = mu_multiply(mu_add(x, one), number(x, .5));
    return mu_where(mu_less_equal(x, number(x, -1)), mu_zeros_like(x),
                    mu_where(mu_greater_equal(x, one), mu_ones_like(x), between));
}

static const struct {
    const char *name;
    mu_tensor *(*call)(mu_tensor *x);
} activations[] = {
    {"relu", mu_nn_relu},
    {"sigmoid", sigmoid},
    {"tanh", mu_tanh},
    {"softmax", softmax},
    {"exponential", mu_exp},
    {"relu6", mu_nn_relu6},
    {"leaky_relu", leaky_relu},
    {"elu", mu_nn_elu},
    {"selu", mu_nn_selu},
    {"gelu", gelu},
    {"silu", mu_nn_silu},
    {"swish", mu_nn_silu},
    {"mish", mu_nn_mish},
    {"softplus", mu_nn_softplus},
    {"softsign", mu_nn_softsign},
    {"hard_sigmoid", mu_nn_hard_sigmoid},
    {"hard_silu", hard_silu},
    {"hard_swish", hard_silu},
    {"log_sigmoid", mu_nn_log_sigmoid},
    {"log_softmax", log_softmax},
    {"celu", celu},
    {"glu", glu},
    {"hard_tanh", hard_tanh},
    {"hard_shrink", hard_shrink},
    {"soft_shrink", soft_shrink},
    {"tanh_shrink", tanh_shrink},
    {"squareplus", squareplus},
    {"sparse_plus", sparse_plus},
    {"sparse_sigmoid", sparse_sigmoid},
};

static mu_tensor *(*find_activation(const char *name))(mu_tensor *)
{
    for (size_t i = 0; i < MU_COUNT(activations); i++)
        if (strcmp(activations[i].name, name) == 0)
            return activations[i].call;
    return NULL;
}

static bool is_linear(const char *activation) { return !activation || strcmp(activation, "linear") == 0; }

mu_status mu__activation_known(const char *activation, const char *function)
{
    if (is_linear(activation) || find_activation(activation))
        return MU_OK;
    char known[512] = "linear";
    for (size_t i = 0, used; i < MU_COUNT(activations); i++) {
        used = strlen(known);
        snprintf(known + used, sizeof known - used, ", %s", activations[i].name);
    }
    return mu__error(MU_INVALID_ARGUMENT, "%s: no activation is named '%s'; there are %s", function, activation, known);
}

mu_tensor *mu__activate(const char *activation, mu_tensor *x)
{
    return is_linear(activation) || !x ? x : find_activation(activation)(x);
}
