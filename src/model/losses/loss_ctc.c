// Connectionist temporal classification: the probability that outputs over time spell a sequence of labels, summed
// over all alignments. Graves et al., "Connectionist temporal classification: labelling unsegmented sequence data with
// recurrent neural networks", 2006.
//
// The labels get a blank before, between and behind them: 2 L + 1 states. A scan over time adds, in logarithms, the
// probabilities of reaching each state: by staying, from the state before, or over a blank from a different label.

#include "model/core/layer.h"
#include "model/losses/loss.h"

#include <math.h>
#include <muster/control.h>
#include <muster/nn.h>
#include <muster/ops.h>

#define IMPOSSIBLE -1e30 // logarithm of the probability 0: finite, so that differences are numbers in f32 too

static mu_tensor *constant_like(const mu_tensor *x, double value)
{
    return x ? mu_constant(mu_tensor_dtype(x), value) : NULL;
}

static mu_status check(const mu_tensor *y_true, const mu_tensor *y_pred)
{
    char seen[MU_SHAPE_TEXT], other[MU_SHAPE_TEXT];
    if (mu_tensor_rank(y_true) == 2 && mu_tensor_rank(y_pred) == 3 && mu_tensor_dim(y_true, 1) != MU_UNKNOWN)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_ctc_loss: the labels have shape %s, the predictions %s; expected class numbers [batch, "
                     "labels], with 0 behind the last label, and logits [batch, time, classes]",
                     mu__shape_text(&y_true->shape, seen), mu__shape_text(&y_pred->shape, other));
}

// [batch, 2 L + 1]: blank (class 0), label, blank, label, …, blank.
static mu_tensor *with_blanks(mu_tensor *labels, int64_t n)
{
    mu_tensor *pairs[] = {mu_zeros_like(labels), labels};
    mu_tensor *flat = mu_reshape(mu_stack(2, pairs, 2), 2, (int64_t[]){-1, 2 * n});
    return mu_pad(flat, (int64_t[]){0, 0}, (int64_t[]){0, 1}, "constant", 0);
}

// The logarithms of all states moved up by `by` states.
static mu_tensor *moved(mu_tensor *states, int64_t by)
{
    const int64_t size = mu_tensor_dim(states, 1);
    mu_tensor *kept = mu_slice(states, (int64_t[]){0, 0}, (int64_t[]){-1, size - by});
    return mu_pad(kept, (int64_t[]){0, by}, (int64_t[]){0, 0}, "constant", IMPOSSIBLE);
}

// One moment. `arg` says which states are reached over a blank.
static mu_value *advance(mu_value *state, mu_value *element, void *arg)
{
    mu_tensor *before = mu_at(state, 0), *skips = arg;
    mu_tensor *over = mu_where(skips, moved(before, 2), constant_like(before, IMPOSSIBLE));
    mu_tensor *ways[] = {before, moved(before, 1), over};
    mu_tensor *reached = mu_reduce_logsumexp(mu_stack(3, ways, 0), 0);
    return mu_list(mu_add(reached, mu_at(element, 0)), MU_END);
}

// Which states may follow the one two before them: labels that differ from the label before.
static mu_tensor *skips_of(mu_tensor *path)
{
    const int64_t size = mu_tensor_dim(path, 1);
    mu_tensor *earlier = mu_pad(mu_slice(path, (int64_t[]){0, 0}, (int64_t[]){-1, size - 2}), (int64_t[]){0, 2},
                                (int64_t[]){0, 0}, "constant", 0);
    return mu_logical_and(mu_not_equal(path, constant_like(path, 0)), mu_not_equal(path, earlier));
}

// The logarithm of the probability of each state of `path` after the last moment.
static mu_tensor *last_states(mu_tensor *path, mu_tensor *logits)
{
    mu_tensor *chances = mu_gather(mu_nn_log_softmax(logits, -1), path, 2, 1);
    mu_tensor *over_time = mu_transpose(chances, (const int[]){1, 0, 2});
    mu_tensor *skips = skips_of(path);
    // Before the first moment, only the first blank can have been reached.
    mu_tensor *positions = mu_range(MU_I64, 0, (double)mu_tensor_dim(path, 1), 1);
    mu_tensor *none = mu_where(mu_equal(positions, mu_constant(MU_I64, 0)), constant_like(logits, 0),
                               constant_like(logits, IMPOSSIBLE));
    mu_tensor *first = mu_broadcast_like(none, mu_cast(path, mu_tensor_dtype(logits)));
    if (!over_time || !skips || !first)
        return NULL;
    mu_value *states = mu_scan(advance, mu_list(over_time, MU_END), mu_list(first, MU_END), skips, .name = "ctc");
    return states ? mu_strided_slice(mu_at(states, 0), (int64_t[]){-1, 0, 0}, (int64_t[]){0, 0, 0},
                                     (int64_t[]){1, 1, 1}, 6, 6, 1)
                  : NULL;
}

mu_tensor *mu__ctc_loss(mu_tensor *y_true, mu_tensor *y_pred)
{
    if (check(y_true, y_pred) != MU_OK)
        return NULL;
    mu_tensor *labels = mu_cast(y_true, MU_I64);
    mu_tensor *path = labels ? with_blanks(labels, mu_tensor_dim(labels, 1)) : NULL;
    mu_tensor *states = path ? last_states(path, y_pred) : NULL;
    if (!states)
        return NULL;
    // An alignment ends in the last label or in the blank behind it.
    mu_tensor *present = mu_cast(mu_not_equal(labels, mu_constant(MU_I64, 0)), MU_I64);
    mu_tensor *last = mu_expand_dims(mu_multiply(mu_reduce_sum(present, 1), mu_constant(MU_I64, 2)), -1);
    mu_tensor *positions = mu_range(MU_I64, 0, (double)mu_tensor_dim(path, 1), 1);
    mu_tensor *ends =
        mu_logical_or(mu_equal(positions, last), mu_equal(positions, mu_subtract(last, mu_constant(MU_I64, 1))));
    mu_tensor *impossible = constant_like(y_pred, IMPOSSIBLE);
    mu_tensor *chance = mu_reduce_logsumexp(mu_where(ends, states, impossible), -1);
    mu_tensor *possible = mu_greater(chance, constant_like(y_pred, IMPOSSIBLE / 2));
    return mu_where(possible, mu_neg(chance), constant_like(y_pred, INFINITY));
}
