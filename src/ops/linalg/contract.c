// Sums of products of tensors over labelled axes, computed as matrix products.
//
// For two terms each label has one of four roles: in both and kept (batch), in both and summed (inner), or kept from
// only one term (rows, columns). The axes of each role are brought together and merged. If nothing is summed, or only
// summed labels exist, an element-wise product does it. If matmul's transpose flags suffice, no transpose is made.
#include "ops/linalg/contract.h"

#include <muster/nn.h>
#include <muster/ops.h>

// An ordered list of labels.
typedef struct label_list {
    int n;
    unsigned char at[2 * MU_MAX_RANK];
} label_list;

static mu_label_set bit(int label) { return (mu_label_set)1 << label; }

static int find_label(const mu_term *term, int label)
{
    for (int i = 0; i < term->n; i++)
        if (term->label[i] == label)
            return i;
    return -1;
}

mu_label_set mu__labels_of(const mu_term *term)
{
    mu_label_set set = 0;
    for (int i = 0; i < term->n; i++)
        set |= bit(term->label[i]);
    return set;
}

int64_t mu__label_dim(const mu_term *term, int label)
{
    const int axis = find_label(term, label);
    return axis < 0 ? 1 : term->x->shape.dims[axis];
}

mu_term mu__term_sum(const mu_term *a, mu_label_set kept)
{
    mu_term out = {.x = a->x};
    int axes[MU_MAX_RANK], n = 0;
    for (int i = 0; i < a->n; i++)
        if (kept & bit(a->label[i]))
            out.label[out.n++] = a->label[i];
        else
            axes[n++] = i;
    if (n > 0)
        out.x = mu_reduce_sum(a->x, .axes = axes, .n_axes = n);
    return out;
}

// ---- Order of axes ------------------------------------------------------------------------------

// Whether the term's axes are already in the order of the list; labels that the term does not have are ignored.
static bool in_order(const mu_term *a, const label_list *list)
{
    int next = 0;
    for (int i = 0; i < list->n; i++)
        if (next < a->n && a->label[next] == list->at[i])
            next++;
    return next == a->n;
}

static mu_tensor *transposed(const mu_term *a, const unsigned char *labels, int n)
{
    int axes[MU_MAX_RANK], count = 0;
    bool moved = false;
    for (int i = 0; i < n; i++) {
        const int axis = find_label(a, labels[i]);
        if (axis < 0)
            continue;
        moved |= axis != count;
        axes[count++] = axis;
    }
    assert(count == a->n);
    return moved ? mu_transpose(a->x, axes) : a->x;
}

mu_tensor *mu__term_order(const mu_term *a, const unsigned char *labels, int n)
{
    mu_tensor *x = transposed(a, labels, n);
    for (int i = 0; i < n && x; i++)
        if (find_label(a, labels[i]) < 0)
            x = mu_expand_dims(x, i);
    return x;
}

// ---- Two terms ----------------------------------------------------------------------------------

typedef struct contraction {
    const mu_term *a, *b;
    label_list batch, inner, rows, columns;
    mu_label_set stretched;
    const char *op;
} contraction;

static void push(label_list *list, int label) { list->at[list->n++] = (unsigned char)label; }

static void append(label_list *list, const label_list *more)
{
    for (int i = 0; i < more->n; i++)
        push(list, more->at[i]);
}

static void sort_labels(contraction *c, mu_label_set kept)
{
    const mu_label_set in_a = mu__labels_of(c->a), in_b = mu__labels_of(c->b);
    for (int i = 0; i < c->a->n; i++) {
        const int label = c->a->label[i];
        push(!(in_b & bit(label)) ? &c->rows : kept & bit(label) ? &c->batch : &c->inner, label);
    }
    for (int i = 0; i < c->b->n; i++)
        if (!(in_a & bit(c->b->label[i])))
            push(&c->columns, c->b->label[i]);
}

// Reports axes with the same label but different sizes; returns whether all fit.
static bool sizes_fit(const contraction *c)
{
    for (int i = 0; i < c->a->n; i++) {
        const int label = c->a->label[i], axis = find_label(c->b, label);
        const int64_t m = c->a->x->shape.dims[i], n = axis < 0 ? m : c->b->x->shape.dims[axis];
        if (m == n || m == MU_UNKNOWN || n == MU_UNKNOWN || (c->stretched & bit(label) && (m == 1 || n == 1)))
            continue;
        char a_text[MU_SHAPE_TEXT], b_text[MU_SHAPE_TEXT];
        mu__error(MU_INVALID_ARGUMENT,
                  "%s: axis %d of shape %s is contracted with axis %d of shape %s; their sizes must be equal", c->op, i,
                  mu__shape_text(&c->a->x->shape, a_text), axis, mu__shape_text(&c->b->x->shape, b_text));
        return false;
    }
    return true;
}

static bool any_stretched(const contraction *c, const label_list *list)
{
    for (int i = 0; i < list->n; i++)
        if (mu__label_dim(c->a, list->at[i]) != mu__label_dim(c->b, list->at[i]))
            return true;
    return false;
}

// Element-wise: broadcasts both terms over all labels, multiplies, and sums over the inner labels.
static mu_term multiplied(const contraction *c)
{
    label_list all = {.n = 0};
    append(&all, &c->batch);
    append(&all, &c->rows);
    append(&all, &c->columns);
    append(&all, &c->inner);
    mu_term out = {.n = 0};
    if (all.n > MU_MAX_RANK) {
        mu__error(MU_INVALID_ARGUMENT, "%s: a product would have rank %d; the limit is %d", c->op, all.n, MU_MAX_RANK);
        return out;
    }
    out.x = mu_multiply(mu__term_order(c->a, all.at, all.n), mu__term_order(c->b, all.at, all.n));
    int axes[MU_MAX_RANK];
    out.n = all.n - c->inner.n;
    for (int i = 0; i < out.n; i++)
        out.label[i] = all.at[i];
    for (int i = 0; i < c->inner.n; i++)
        axes[i] = out.n + i;
    if (c->inner.n > 0)
        out.x = mu_reduce_sum(out.x, .axes = axes, .n_axes = c->inner.n);
    return out;
}

// The product of the sizes of some axes; unknown if one of them is.
static int64_t merged_size(const mu_term *a, const label_list *list)
{
    int64_t size = 1;
    for (int i = 0; i < list->n; i++) {
        const int64_t dim = mu__label_dim(a, list->at[i]);
        if (dim == MU_UNKNOWN)
            return MU_UNKNOWN;
        size *= dim;
    }
    return size;
}

// Whether a reshape to these dimensions is fully determined: at most one is unknown.
static bool says_all(int n, const int64_t *dims)
{
    int unknown = 0;
    bool empty = false;
    for (int i = 0; i < n; i++) {
        unknown += dims[i] == MU_UNKNOWN;
        empty |= dims[i] == 0;
    }
    return unknown <= 1 && !(unknown && empty);
}

// The dimensions of the term as batches of matrices; returns their number.
static int matrix_dims(const contraction *c, const mu_term *a, const label_list *first, const label_list *second,
                       int64_t *dims)
{
    for (int i = 0; i < c->batch.n; i++)
        dims[i] = mu__label_dim(a, c->batch.at[i]);
    dims[c->batch.n] = merged_size(a, first);
    dims[c->batch.n + 1] = merged_size(a, second);
    return c->batch.n + 2;
}

// False if axes that must be merged have sizes that a trace does not know.
static bool makes_matrices(const contraction *c, const mu_term *a, const label_list *first, const label_list *second)
{
    int64_t dims[MU_MAX_RANK];
    return (first->n == 1 && second->n == 1) || says_all(matrix_dims(c, a, first, second, dims), dims);
}

// The term as batches of matrices [batch…, first, second]; each of the last two merges several axes.
static mu_tensor *as_matrices(const contraction *c, const mu_term *a, const label_list *first, const label_list *second)
{
    label_list order = {.n = 0};
    append(&order, &c->batch);
    append(&order, first);
    append(&order, second);
    mu_tensor *x = transposed(a, order.at, order.n);
    if (!x || (first->n == 1 && second->n == 1))
        return x;
    int64_t dims[MU_MAX_RANK];
    const int rank = matrix_dims(c, a, first, second, dims);
    return mu_reshape(x, rank, dims);
}

// Whether the operand is ready for a matrix product if its two groups of axes are exchanged.
static bool ready_exchanged(const contraction *c, const mu_term *a, const label_list *first, const label_list *second)
{
    label_list plain = {.n = 0}, exchanged = {.n = 0};
    append(&plain, &c->batch);
    append(&exchanged, &c->batch);
    append(&plain, first);
    append(&plain, second);
    append(&exchanged, second);
    append(&exchanged, first);
    return !in_order(a, &plain) && in_order(a, &exchanged);
}

// A tensor with the result's shape, for a reshape whose shape is not known in the trace.
static mu_tensor *result_pattern(const contraction *c, const mu_term *result)
{
    const mu_label_set kept = mu__labels_of(result);
    const mu_term a = mu__term_sum(c->a, kept), b = mu__term_sum(c->b, kept);
    return mu_add(mu__term_order(&a, result->label, result->n), mu__term_order(&b, result->label, result->n));
}

// [batch…, rows, columns] with the merged axes separated again.
static mu_term unfolded(const contraction *c, mu_tensor *product)
{
    mu_term out = {.x = product};
    int64_t dims[MU_MAX_RANK];
    const label_list *groups[] = {&c->batch, &c->rows, &c->columns};
    for (int g = 0; g < 3; g++)
        for (int i = 0; i < groups[g]->n; i++) {
            const int label = groups[g]->at[i];
            dims[out.n] = g == 0 && product ? product->shape.dims[i] : mu__label_dim(g == 1 ? c->a : c->b, label);
            out.label[out.n++] = (unsigned char)label;
        }
    if (product && (c->rows.n != 1 || c->columns.n != 1))
        out.x = says_all(out.n, dims) ? mu_reshape(product, out.n, dims)
                                      : mu_reshape_like(product, result_pattern(c, &out));
    return out;
}

static mu_term matrix_product(const contraction *c)
{
    const bool transpose_a = ready_exchanged(c, c->a, &c->rows, &c->inner);
    const bool transpose_b = ready_exchanged(c, c->b, &c->inner, &c->columns);
    mu_tensor *a = transpose_a ? as_matrices(c, c->a, &c->inner, &c->rows) : as_matrices(c, c->a, &c->rows, &c->inner);
    mu_tensor *b =
        transpose_b ? as_matrices(c, c->b, &c->columns, &c->inner) : as_matrices(c, c->b, &c->inner, &c->columns);
    return unfolded(c, a && b ? mu_matmul_transposed(a, b, transpose_a, transpose_b) : NULL);
}

// Whether exchanging the factors alone yields the result in the requested order.
static bool better_exchanged(const contraction *c, const mu_term *wanted)
{
    label_list order = {.n = 0};
    if (!wanted)
        return false;
    for (int i = 0; i < wanted->n; i++)
        push(&order, wanted->label[i]);
    mu_term plain = {.n = 0}, exchanged = {.n = 0};
    const label_list *orders[2][3] = {{&c->batch, &c->rows, &c->columns}, {&c->batch, &c->columns, &c->rows}};
    for (int g = 0; g < 3; g++) {
        for (int i = 0; i < orders[0][g]->n; i++)
            plain.label[plain.n++] = orders[0][g]->at[i];
        for (int i = 0; i < orders[1][g]->n; i++)
            exchanged.label[exchanged.n++] = orders[1][g]->at[i];
    }
    return !in_order(&plain, &order) && in_order(&exchanged, &order);
}

mu_term mu__term_product(const mu_term *a, const mu_term *b, mu_label_set kept, mu_label_set stretched,
                         const mu_term *wanted, const char *op)
{
    const mu_label_set in_a = mu__labels_of(a), in_b = mu__labels_of(b);
    mu_term own_a = mu__term_sum(a, kept | in_b), own_b = mu__term_sum(b, kept | in_a);
    contraction c = {.a = &own_a, .b = &own_b, .stretched = stretched, .op = op};
    if (!own_a.x || !own_b.x || !sizes_fit(&c))
        return (mu_term){.n = 0};
    sort_labels(&c, kept);
    if (c.batch.n + c.rows.n + c.columns.n > MU_MAX_RANK) {
        mu__error(MU_INVALID_ARGUMENT, "%s: a product would have rank %d; the limit is %d", op,
                  c.batch.n + c.rows.n + c.columns.n, MU_MAX_RANK);
        return (mu_term){.n = 0};
    }
    const bool thin = c.rows.n == 0 && c.columns.n == 0;
    if (c.inner.n == 0 || thin || any_stretched(&c, &c.inner) || c.batch.n > MU_MAX_RANK - 2 ||
        !makes_matrices(&c, c.a, &c.rows, &c.inner) || !makes_matrices(&c, c.b, &c.inner, &c.columns))
        return multiplied(&c);
    if (better_exchanged(&c, wanted)) {
        const label_list rows = c.rows;
        c.a = &own_b;
        c.b = &own_a;
        c.rows = c.columns;
        c.columns = rows;
    }
    return matrix_product(&c);
}
