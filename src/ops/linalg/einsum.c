// einsum and tensordot: sums of products in Einstein notation.
//
// The equation is converted to labels: one per letter, and one per axis of "...", counted from the right. A letter that
// occurs twice in an operand takes the diagonal. Several operands are multiplied in pairs, starting with the pair whose
// product grows least. contract.c computes the sums.
#include "ops/core/composed.h"
#include "ops/linalg/contract.h"

#include <ctype.h>
#include <muster/ops.h>

enum { MAX_OPERANDS = 16, LETTERS = 52, LAST_OF_ELLIPSIS = MU_LABELS - 1, MOST_WRITTEN = 64 };

// An operand's labels as written: letters, and the position of "..." (-1: none). A letter may occur twice.
typedef struct written {
    int n, ellipsis;
    unsigned char label[MOST_WRITTEN];
} written;

typedef struct equation {
    const char *text;
    int n; // number of operands
    written operand[MAX_OPERANDS], result;
    bool explicit_result;
    int ellipsis_rank; // most axes that "..." stands for in any operand
} equation;

// ---- Reading the equation -----------------------------------------------------------------------

static int label_of(char letter) // in ASCII order; results without "->" are sorted by it
{
    return letter >= 'A' && letter <= 'Z' ? letter - 'A' : letter >= 'a' && letter <= 'z' ? letter - 'a' + 26 : -1;
}

// Parses letters and "..." up to a comma, an arrow or the end. Returns the position after them, or NULL after an error.
static const char *read_written(const char *text, const char *at, written *out)
{
    *out = (written){.ellipsis = -1};
    for (; *at && *at != ',' && *at != '-'; at++) {
        if (isspace((unsigned char)*at))
            continue;
        const bool dots = strncmp(at, "...", 3) == 0;
        if ((dots && out->ellipsis >= 0) || (!dots && label_of(*at) < 0) || out->n == MOST_WRITTEN) {
            mu__error(MU_INVALID_ARGUMENT,
                      "einsum: equation \"%.80s\" has something at character %d that cannot be read; operands are "
                      "letters, with at most one \"...\", like \"...ij,...jk->...ik\"",
                      text, (int)(at - text));
            return NULL;
        }
        if (dots) {
            out->ellipsis = out->n;
            at += 2;
        } else {
            out->label[out->n++] = (unsigned char)label_of(*at);
        }
    }
    return at;
}

static mu_status read_equation(const char *text, int n, equation *out)
{
    *out = (equation){.text = text, .result = {.ellipsis = -1}};
    const char *at = text;
    do {
        if (out->n == MAX_OPERANDS)
            return mu__error(MU_INVALID_ARGUMENT, "einsum: more than %d operands", MAX_OPERANDS);
        at = read_written(text, at, &out->operand[out->n++]);
        if (!at)
            return MU_INVALID_ARGUMENT;
    } while (*at == ',' && at++);
    if (*at == '-') {
        out->explicit_result = true;
        at = at[1] == '>' ? read_written(text, at + 2, &out->result) : at;
        if (!at)
            return MU_INVALID_ARGUMENT;
    }
    if (*at)
        return mu__error(MU_INVALID_ARGUMENT,
                         "einsum: equation \"%.80s\" must have one \"->\" at most, before the result", text);
    if (out->n != n)
        return mu__error(MU_INVALID_ARGUMENT, "einsum: equation \"%.80s\" names %d operands, %d tensors are given",
                         text, out->n, n);
    return MU_OK;
}

// Without "->" the result has the axes of "...", then the letters that occur once, in alphabetical order.
static void imply_result(equation *e)
{
    int count[LETTERS] = {0};
    for (int i = 0; i < e->n; i++)
        for (int k = 0; k < e->operand[i].n; k++)
            count[e->operand[i].label[k]]++;
    for (int label = 0; label < LETTERS; label++)
        if (count[label] == 1)
            e->result.label[e->result.n++] = (unsigned char)label;
    e->result.ellipsis = e->ellipsis_rank > 0 ? 0 : -1;
}

// ---- Operands -----------------------------------------------------------------------------------

// Writes one label per axis; the axes of "..." get the last labels, right-aligned. Returns the number of labels.
static int expand_labels(const written *from, int ellipsis_rank, unsigned char *labels)
{
    int n = 0;
    for (int i = 0; i <= from->n; i++) {
        for (int k = 0; i == from->ellipsis && k < ellipsis_rank; k++)
            labels[n++] = (unsigned char)(LAST_OF_ELLIPSIS + 1 - ellipsis_rank + k);
        if (i < from->n)
            labels[n++] = from->label[i];
    }
    return n;
}

static bool operand_rank_fits(const equation *e, int i, const mu_tensor *x)
{
    const written *w = &e->operand[i];
    const int rank = x->shape.rank;
    if (rank == w->n || (rank > w->n && w->ellipsis >= 0))
        return true;
    char text[MU_SHAPE_TEXT];
    mu__error(MU_INVALID_ARGUMENT, "einsum: operand %d has shape %s; equation \"%.80s\" names %d axes of it%s", i,
              mu__shape_text(&x->shape, text), e->text, w->n, w->ellipsis >= 0 ? " or more" : "");
    return false;
}

// The diagonal of matrices whose size is known only at run time. Appends a row of zeros and reshapes to rows that are
// one element longer: the diagonal is then the first column.
static mu_tensor *unknown_diagonal(mu_tensor *x)
{
    if (!x)
        return NULL;
    const int last = x->shape.rank - 1;
    const unsigned others = (1u << last) - 1;
    int64_t none[MU_MAX_RANK] = {0}, row[MU_MAX_RANK] = {0}, column[MU_MAX_RANK] = {0}, strides[MU_MAX_RANK];
    row[last - 1] = column[last] = 1;
    for (int i = 0; i <= last; i++)
        strides[i] = 1;
    mu_tensor *skewed = mu_reshape_like(mu_pad(x, none, row, NULL, 0), mu_pad(x, none, column, NULL, 0));
    return mu_strided_slice(skewed, none, none, strides, others, others, 1u << last);
}

// Replaces axes p < q of equal size n by their diagonal, which becomes the last axis: every (n + 1)-th element of both.
static mu_tensor *diagonal(const equation *e, mu_tensor *x, int p, int q)
{
    const mu_shape *shape = &x->shape;
    const int64_t size = shape->dims[p], other = shape->dims[q];
    char text[MU_SHAPE_TEXT];
    if (size != other && size != MU_UNKNOWN && other != MU_UNKNOWN) {
        mu__error(MU_INVALID_ARGUMENT,
                  "einsum: in equation \"%.80s\" axes %d and %d of shape %s have one letter; their sizes must be equal",
                  e->text, p, q, mu__shape_text(shape, text));
        return NULL;
    }
    int axes[MU_MAX_RANK], n = 0, unknown = 0;
    int64_t dims[MU_MAX_RANK], begin[MU_MAX_RANK] = {0}, end[MU_MAX_RANK] = {0}, strides[MU_MAX_RANK];
    for (int i = 0; i < shape->rank; i++) {
        unknown += shape->dims[i] == MU_UNKNOWN;
        if (i != p && i != q) {
            dims[n] = shape->dims[i];
            strides[n] = 1;
            axes[n++] = i;
        }
    }
    axes[n] = p;
    axes[n + 1] = q;
    x = mu_transpose(x, axes);
    if (size == MU_UNKNOWN || other == MU_UNKNOWN || size == 0 || unknown > 1)
        return unknown_diagonal(x);
    dims[n] = end[n] = size * size;
    strides[n] = size + 1;
    return mu_strided_slice(mu_reshape(x, n + 1, dims), begin, end, strides, (1u << n) - 1, (1u << n) - 1, 0);
}

static mu_term make_operand(const equation *e, int i, mu_tensor *x)
{
    mu_term out = {.x = x};
    unsigned char labels[MOST_WRITTEN + MU_MAX_RANK];
    int n = expand_labels(&e->operand[i], x->shape.rank - e->operand[i].n, labels);
    for (int p = 0; p < n && out.x; p++)
        for (int q = p + 1; q < n && out.x; q++)
            if (labels[p] == labels[q]) {
                const unsigned char label = labels[p];
                out.x = diagonal(e, out.x, p, q);
                memmove(labels + q, labels + q + 1, (size_t)(n - q - 1));
                memmove(labels + p, labels + p + 1, (size_t)(n - p - 2));
                labels[n - 2] = label;
                n--;
                p = -1; // the axes moved: restart from the first
                break;
            }
    for (int k = 0; k < n && out.x; k++)
        out.label[out.n++] = labels[k];
    return out;
}

// ---- The product --------------------------------------------------------------------------------

static double term_size(const mu_term *a, mu_label_set set)
{
    double size = 1;
    for (int i = 0; i < a->n; i++)
        if (set >> a->label[i] & 1 && a->x->shape.dims[i] != MU_UNKNOWN)
            size *= (double)a->x->shape.dims[i];
    return size;
}

static mu_label_set kept_without(const mu_term *terms, int n, int i, int j, mu_label_set result)
{
    for (int k = 0; k < n; k++)
        if (k != i && k != j)
            result |= mu__labels_of(&terms[k]);
    return result;
}

// Growth of the size when two terms are multiplied; the pair with the least growth is multiplied first.
static double growth(const mu_term *terms, int n, int i, int j, mu_label_set result)
{
    const mu_label_set kept = kept_without(terms, n, i, j, result), all = ~(mu_label_set)0;
    const double size = term_size(&terms[i], kept) * term_size(&terms[j], kept & ~mu__labels_of(&terms[i]));
    return size - term_size(&terms[i], all) - term_size(&terms[j], all);
}

static mu_term multiply_all(mu_term *terms, int n, const mu_term *wanted)
{
    const mu_label_set result = mu__labels_of(wanted);
    const mu_label_set stretched = ~(((mu_label_set)1 << LETTERS) - 1);
    while (n > 1) {
        int best_i = 0, best_j = 1;
        for (int i = 0; i < n && n > 2; i++)
            for (int j = i + 1; j < n; j++)
                if (growth(terms, n, i, j, result) < growth(terms, n, best_i, best_j, result)) {
                    best_i = i;
                    best_j = j;
                }
        const mu_label_set kept = kept_without(terms, n, best_i, best_j, result);
        terms[best_i] =
            mu__term_product(&terms[best_i], &terms[best_j], kept, stretched, n == 2 ? wanted : NULL, "einsum");
        if (!terms[best_i].x)
            return terms[best_i];
        terms[best_j] = terms[--n];
    }
    return mu__term_sum(&terms[0], result);
}

// ---- The result ---------------------------------------------------------------------------------

// A letter of the result that no operand has, or that occurs twice, is an error.
static bool result_is_known(const equation *e)
{
    mu_label_set known = 0, seen = 0;
    for (int i = 0; i < e->n; i++)
        for (int k = 0; k < e->operand[i].n; k++)
            known |= (mu_label_set)1 << e->operand[i].label[k];
    for (int k = 0; k < e->result.n; k++) {
        const mu_label_set letter = (mu_label_set)1 << e->result.label[k];
        if (!(known & letter) || seen & letter) {
            mu__error(MU_INVALID_ARGUMENT, "einsum: the result of equation \"%.80s\" names a letter %s", e->text,
                      seen & letter ? "twice" : "that no operand has");
            return false;
        }
        seen |= letter;
    }
    if (e->ellipsis_rank > 0 && e->result.ellipsis < 0) {
        mu__error(MU_INVALID_ARGUMENT,
                  "einsum: \"...\" stands for %d axes in equation \"%.80s\"; the result must have it too",
                  e->ellipsis_rank, e->text);
        return false;
    }
    return true;
}

// The labels of the result, one per axis.
static mu_status read_result(equation *e, mu_term *out)
{
    unsigned char labels[MOST_WRITTEN + MU_MAX_RANK];
    if (!e->explicit_result)
        imply_result(e);
    const int rank = e->result.n + (e->result.ellipsis >= 0 ? e->ellipsis_rank : 0);
    if (!result_is_known(e))
        return MU_INVALID_ARGUMENT;
    if (rank > MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "einsum: the result would have rank %d; the limit is %d", rank,
                         MU_MAX_RANK);
    *out = (mu_term){.n = expand_labels(&e->result, e->ellipsis_rank, labels)};
    memcpy(out->label, labels, (size_t)rank);
    return MU_OK;
}

mu_tensor *mu_einsum(const char *text, int n, mu_tensor *const *tensors)
{
    equation e;
    mu_term terms[MAX_OPERANDS], wanted = {.n = 0};
    if (mu__pending())
        return NULL;
    if (mu__need(text, "einsum: the equation") != MU_OK || mu__need(tensors, "einsum: the list of operands") != MU_OK)
        return NULL;
    if (read_equation(text, n, &e) != MU_OK)
        return NULL;
    for (int i = 0; i < n; i++) {
        if (!tensors[i]) {
            mu__error(MU_INVALID_ARGUMENT, "einsum: operand %d is NULL; give a tensor", i);
            return NULL;
        }
        if (!operand_rank_fits(&e, i, tensors[i]))
            return NULL;
        e.ellipsis_rank = MU_MAX(e.ellipsis_rank, tensors[i]->shape.rank - e.operand[i].n);
    }
    if (read_result(&e, &wanted) != MU_OK)
        return NULL;
    for (int i = 0; i < n; i++) {
        terms[i] = make_operand(&e, i, tensors[i]);
        if (!terms[i].x)
            return NULL;
    }
    const mu_term product = multiply_all(terms, n, &wanted);
    return mu__composed("einsum", n, tensors, product.x ? mu__term_order(&product, wanted.label, wanted.n) : NULL);
}

// ---- tensordot ----------------------------------------------------------------------------------

static mu_tensor *tensordot(mu_tensor *a, mu_tensor *b, int n, const int *axes_a, const int *axes_b)
{
    if (!a || !b) {
        mu__error(MU_INVALID_ARGUMENT, "tensordot: one of the tensors is NULL; give both");
        return NULL;
    }
    if (n < 0 || n > a->shape.rank || n > b->shape.rank) {
        mu__error(MU_INVALID_ARGUMENT,
                  "tensordot: n is %d; from 0 pairs of axes to %d can be summed, for tensors of ranks %d and %d", n,
                  MU_MIN(a->shape.rank, b->shape.rank), a->shape.rank, b->shape.rank);
        return NULL;
    }
    if (n > 0 && (mu__need(axes_a, "tensordot: axes_a") != MU_OK || mu__need(axes_b, "tensordot: axes_b") != MU_OK))
        return NULL;
    mu_term x = {.x = a, .n = a->shape.rank}, y = {.x = b, .n = b->shape.rank};
    for (int i = 0; i < x.n; i++)
        x.label[i] = (unsigned char)i;
    for (int i = 0; i < y.n; i++)
        y.label[i] = (unsigned char)(MU_MAX_RANK + i);
    mu_label_set summed = 0;
    for (int i = 0; i < n; i++) {
        const int p = mu__axis(axes_a[i], x.n, "tensordot"), q = p < 0 ? -1 : mu__axis(axes_b[i], y.n, "tensordot");
        if (q < 0)
            return NULL;
        if (summed >> p & 1 || y.label[q] < MU_MAX_RANK) {
            mu__error(MU_INVALID_ARGUMENT, "tensordot: axis %d of a or axis %d of b is named twice", p, q);
            return NULL;
        }
        summed |= (mu_label_set)1 << p;
        y.label[q] = (unsigned char)p;
    }
    const int rank = x.n + y.n - 2 * n;
    if (rank > MU_MAX_RANK) {
        mu__error(MU_INVALID_ARGUMENT, "tensordot: the result would have rank %d; the limit is %d", rank, MU_MAX_RANK);
        return NULL;
    }
    mu_term wanted = {.n = 0};
    for (int i = 0; i < x.n; i++)
        if (!(summed >> x.label[i] & 1))
            wanted.label[wanted.n++] = x.label[i];
    for (int i = 0; i < y.n; i++)
        if (!(summed >> y.label[i] & 1))
            wanted.label[wanted.n++] = y.label[i];
    const mu_term product = mu__term_product(&x, &y, ~summed, 0, &wanted, "tensordot");
    return mu__composed2("tensordot", a, b, product.x ? mu__term_order(&product, wanted.label, wanted.n) : NULL);
}

// The last n axes of a and the first n of b.
static mu_tensor *adjacent_tensordot(mu_tensor *a, mu_tensor *b, int n)
{
    int axes_a[MU_MAX_RANK], axes_b[MU_MAX_RANK];
    const int rank = a ? a->shape.rank : 0, other = b ? b->shape.rank : 0;
    if (n < 0 || n > rank || n > other) {
        mu__error(MU_INVALID_ARGUMENT, "tensordot: %d axes are to be summed; the tensors have ranks %d and %d", n, rank,
                  other);
        return NULL;
    }
    for (int i = 0; i < n; i++) {
        axes_a[i] = rank - n + i;
        axes_b[i] = i;
    }
    return tensordot(a, b, n, axes_a, axes_b);
}

mu_tensor *mu_tensordot_with(const mu_tensordot_args *given)
{
    mu_tensordot_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_tensordot") != MU_OK)
        return NULL;
    const bool pairs = args.axes_a || args.axes_b || MU_GIVEN(&args, n_axes);
    if (pairs && (args.n != 0 || mu__args_text(&args, "n", 2))) {
        mu__error(MU_INVALID_ARGUMENT, "tensordot: both n and pairs of axes are given; give one of them");
        return NULL;
    }
    return pairs ? tensordot(args.a, args.b, args.n_axes, args.axes_a, args.axes_b)
                 : adjacent_tensordot(args.a, args.b, args.n);
}
