// Embedding lookups: rows of a table by id, and combinations of several rows.
//
// The table is a variable, sharded or not; only the requested rows leave their part, each once. What is combined, and
// how, follows tf.nn.embedding_lookup_sparse and tf.nn.safe_embedding_lookup_sparse.
#include "distribute/variables/sharded_variable.h"

#include <muster/ops.h>

// ---- Arguments ----------------------------------------------------------------------------------

static mu_status check_table(const mu_variable *params, const mu_tensor *ids, const char *function)
{
    if (!params || !ids)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the %s is NULL", function, params ? "tensor of ids" : "table");
    if (params->resource.spec.shape.rank < 1)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the table '%s' is a scalar, which has no rows", function,
                         params->resource.name);
    if (ids->dtype != MU_I32 && ids->dtype != MU_I64)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the ids are of type %s; they must be int32 or int64", function,
                         mu_dtype_name(ids->dtype));
    return MU_OK;
}

static mu_status check_limits(const char *partition_strategy, double max_norm, const char *function)
{
    if (partition_strategy && strcmp(partition_strategy, "div") != 0 && strcmp(partition_strategy, "mod") != 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: .partition_strategy is \"%s\"; it must be \"div\" or \"mod\"",
                         function, partition_strategy);
    if (!(max_norm >= 0))
        return mu__error(MU_INVALID_ARGUMENT, "%s: .max_norm is %g; it must be positive", function, max_norm);
    return MU_OK;
}

// Part i of a table in the mod layout holds ids i, i + parts, …, so sizes differ by at most one and do not grow.
static mu_status check_mod_layout(const mu_variable *params, const char *function)
{
    const int64_t rows = params->resource.spec.shape.dims[0];
    for (int i = 0; i < params->n_shards; i++) {
        const int64_t wanted = rows / params->n_shards + (i < rows % params->n_shards),
                      seen = params->shards[i]->resource.spec.shape.dims[0];
        if (seen != wanted)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: part %d of '%s' has %lld rows; with .partition_strategy \"mod\" "
                             "it must have %lld",
                             function, i, params->resource.name, (long long)seen, (long long)wanted);
    }
    return MU_OK;
}

// ---- Looking up ---------------------------------------------------------------------------------

// Scales every row (the axes from `first` on) with a norm above the limit down to it.
static mu_tensor *clip_rows(mu_tensor *rows, int first, double max_norm)
{
    int axes[MU_MAX_RANK], n = 0;
    if (!rows || max_norm == 0)
        return rows;
    for (int a = first; a < rows->shape.rank; a++)
        axes[n++] = a;
    mu_tensor *limit = mu_constant(rows->dtype, max_norm), *zero = mu_constant(rows->dtype, 0);
    mu_tensor *squares = mu_reduce_sum(mu_square(rows), .axes = axes, .n_axes = n, .keep_dims = true);
    mu_tensor *positive = mu_greater(squares, zero);
    // The root has no gradient at 0, so it is taken of 1 there.
    mu_tensor *norm = mu_where(positive, mu_sqrt(mu_where(positive, squares, mu_constant(rows->dtype, 1))), zero);
    return mu_divide(mu_multiply(rows, limit), mu_maximum(norm, limit));
}

static mu_tensor *look_up(mu_variable *params, mu_tensor *ids, const char *partition_strategy, double max_norm,
                          const char *function)
{
    const bool mod = partition_strategy && strcmp(partition_strategy, "mod") == 0;
    if (mod && check_mod_layout(params, function) != MU_OK)
        return NULL;
    mu_tensor *rows = params->n_shards > 0 ? mu__sharded_gather(params, ids, mod) : mu__variable_gather(params, ids);
    rows = mu__autocast(params, rows);
    return clip_rows(rows, ids ? ids->shape.rank : 0, max_norm);
}

mu_tensor *mu_nn_embedding_lookup_with(const mu_nn_embedding_lookup_args *given)
{
    static const char *const name = "mu_nn_embedding_lookup";
    mu_nn_embedding_lookup_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK ||
        check_table(args.params, args.ids, name) != MU_OK ||
        check_limits(args.partition_strategy, args.max_norm, name) != MU_OK)
        return NULL;
    return look_up(args.params, args.ids, args.partition_strategy, args.max_norm, name);
}

// ---- Combining ----------------------------------------------------------------------------------

typedef struct combining {
    const mu_nn_embedding_lookup_sparse_args *args;
    mu_tensor *segments; // the row of the result that each id belongs to
    mu_tensor *weights;  // [n]; NULL: 1 each
    mu_tensor *kept;     // bool [n]: which ids count; NULL: all
} combining;

// x: [n] with axes of size 1 up to the rank of the table's rows.
static mu_tensor *as_column(mu_tensor *x, int rank)
{
    for (int a = 1; a < rank; a++)
        x = mu_expand_dims(x, -1);
    return x;
}

static mu_tensor *sum_segments(const combining *c, mu_tensor *x)
{
    return c->args->n_rows > 0 ? mu_unsorted_segment_sum(x, c->segments, c->args->n_rows)
                               : mu_segment_sum(x, c->segments);
}

static mu_tensor *combine(const combining *c, mu_tensor *rows)
{
    const char *combiner = c->args->combiner ? c->args->combiner : "mean";
    if (!rows)
        return NULL;
    const int rank = rows->shape.rank;
    mu_tensor *weights = c->weights ? c->weights : mu_cast(mu_ones_like(c->segments), rows->dtype);
    if (c->kept) {
        rows = mu_where(as_column(c->kept, rank), rows, mu_constant(rows->dtype, 0));
        weights = mu_where(c->kept, weights, mu_constant(rows->dtype, 0));
    }
    mu_tensor *sum = sum_segments(c, c->weights ? mu_multiply(rows, as_column(weights, rank)) : rows);
    if (strcmp(combiner, "sum") == 0)
        return sum;
    const bool squared = strcmp(combiner, "sqrtn") == 0;
    mu_tensor *total = sum_segments(c, squared ? mu_square(weights) : weights);
    return mu_divide_no_nan(sum, as_column(squared ? mu_sqrt(total) : total, rank));
}

static mu_status check_vector(const mu_tensor *x, const mu_tensor *ids, const char *what, const char *function)
{
    char seen[MU_SHAPE_TEXT], wanted[MU_SHAPE_TEXT];
    if (!x)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the tensor of %s is NULL", function, what);
    if (x->shape.rank == 1 && ids->shape.rank == 1 && mu__shape_compatible(&x->shape, &ids->shape))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: the %s have the shape %s, the ids %s; both must be vectors of one length", function, what,
                     mu__shape_text(&x->shape, seen), mu__shape_text(&ids->shape, wanted));
}

static mu_status check_sparse(const mu_nn_embedding_lookup_sparse_args *args, const char *function)
{
    const char *combiner = args->combiner ? args->combiner : "mean";
    MU_TRY(check_table(args->params, args->ids, function));
    MU_TRY(check_limits(args->partition_strategy, args->max_norm, function));
    MU_TRY(check_vector(args->rows, args->ids, "rows", function));
    if (args->weights)
        MU_TRY(check_vector(args->weights, args->ids, "weights", function));
    if (strcmp(combiner, "mean") != 0 && strcmp(combiner, "sum") != 0 && strcmp(combiner, "sqrtn") != 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: .combiner is \"%s\"; it must be \"mean\", \"sum\" or \"sqrtn\"",
                         function, combiner);
    if (args->n_rows < 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: .n_rows is %lld; it must be positive", function,
                         (long long)args->n_rows);
    return MU_OK;
}

mu_tensor *mu_nn_embedding_lookup_sparse_with(const mu_nn_embedding_lookup_sparse_args *given)
{
    static const char *const name = "mu_nn_embedding_lookup_sparse";
    mu_nn_embedding_lookup_sparse_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK || check_sparse(&args, name) != MU_OK)
        return NULL;
    const combining c = {.args = &args, .segments = args.rows, .weights = args.weights};
    return combine(&c, look_up(args.params, args.ids, args.partition_strategy, args.max_norm, name));
}

// ---- The safe variant ---------------------------------------------------------------------------

// Rows of the result that no id counts for get the default id's row.
static mu_tensor *fill_empty(const combining *c, mu_tensor *combined, const char *function)
{
    const mu_nn_embedding_lookup_sparse_args *args = c->args;
    if (!combined || !args->has_default_id)
        return combined;
    mu_tensor *id = mu_tensor_new(MU_I64, 1, (int64_t[]){1}, &args->default_id);
    mu_tensor *row = look_up(args->params, id, args->partition_strategy, args->max_norm, function);
    mu_tensor *counts = sum_segments(c, mu_cast(c->kept, MU_I32));
    mu_tensor *empty = mu_equal(counts, mu_constant(MU_I32, 0));
    return mu_where(as_column(empty, combined->shape.rank), row, combined);
}

mu_tensor *mu_nn_safe_embedding_lookup_sparse_with(const mu_nn_embedding_lookup_sparse_args *given)
{
    static const char *const name = "mu_nn_safe_embedding_lookup_sparse";
    mu_nn_embedding_lookup_sparse_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, name) != MU_OK || check_sparse(&args, name) != MU_OK)
        return NULL;
    if (args.n_rows == 0) {
        mu__error(MU_INVALID_ARGUMENT, "%s: .n_rows is not given; it is required, because rows may be empty", name);
        return NULL;
    }
    const bool sums = args.combiner && strcmp(args.combiner, "sum") == 0;
    mu_tensor *zero = mu_constant(args.ids->dtype, 0), *kept = mu_greater_equal(args.ids, zero);
    if (args.weights && !sums)
        kept = mu_logical_and(kept, mu_greater(args.weights, mu_constant(args.weights->dtype, 0)));
    const combining c = {.args = &args, .segments = args.rows, .weights = args.weights, .kept = kept};
    mu_tensor *ids = mu_where(kept, args.ids, zero); // a row that does not count, but exists
    mu_tensor *rows = look_up(args.params, ids, args.partition_strategy, args.max_norm, name);
    return fill_empty(&c, combine(&c, rows), name);
}
