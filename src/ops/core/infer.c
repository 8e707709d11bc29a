// Shape rules shared by many ops, and the checks that run before every rule.
//
// A rule fills the specs of the outputs from those of the inputs. Dimensions may be unknown in a trace; if all inputs
// are known, the outputs must be known too. Errors name the op and the actual shapes and types.
#include "ops/core/op.h"

mu_status mu__check_counts(const mu_op *op, int n_in, int n_resources)
{
    int most = op->max_in == 0 ? op->n_in : op->max_in;
    if (n_in < op->n_in || (most != MU_VARIADIC && n_in > most))
        return mu__error(MU_INVALID_ARGUMENT, "%s: %d inputs given; it takes %s%d", op->name, n_in,
                         most == op->n_in ? "" : "at least ", op->n_in);
    if (op->n_resources != MU_VARIADIC && n_resources != op->n_resources)
        return mu__error(MU_INVALID_ARGUMENT, "%s: %d resources given; it takes %d", op->name, n_resources,
                         op->n_resources);
    return MU_OK;
}

// "float32, int32 and bool"
static void dtype_list(unsigned dtypes, char *text, size_t bytes)
{
    size_t at = 0;
    text[0] = 0;
    for (int i = 0; i < 32 && at < bytes; i++)
        if (dtypes >> i & 1)
            at += (size_t)snprintf(text + at, bytes - at, "%s%s", at ? ", " : "", mu_dtype_name((mu_dtype)i));
}

mu_status mu__infer_call(mu_infer *infer)
{
    const mu_op *op = infer->op;
    MU_TRY(mu__check_counts(infer->op, infer->n_in, infer->n_resources));
    for (int i = 0; i < infer->n_in; i++)
        if (infer->in[i].dtype == MU_STRING)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: input %d holds strings, which ops cannot compute with; turn them into numbers first "
                             "(mu_string_lookup, mu_hashing or mu_text_vectorization in mu_dataset_map)",
                             op->name, i);
    if (op->dtypes && infer->n_in > 0 && !(op->dtypes & MU_DTYPE_BIT(infer->in[0].dtype))) {
        char allowed[200];
        dtype_list(op->dtypes, allowed, sizeof allowed);
        return mu__error(MU_INVALID_ARGUMENT, "%s: the input has type %s; it takes %s (mu_cast converts)", op->name,
                         mu_dtype_name(infer->in[0].dtype), allowed);
    }
    MU_TRY(op->infer(infer));
    for (int i = 0; i < infer->n_out; i++)
        MU_TRY(mu__shape_check(&infer->out[i].shape, op->name));
    return MU_OK;
}

mu_status mu__need_same_dtype(const mu_infer *infer, int a, int b)
{
    mu_dtype x = infer->in[a].dtype, y = infer->in[b].dtype;
    if (x == y)
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "%s: inputs %d and %d have types %s and %s; they must be equal (mu_cast converts)",
                     infer->op->name, a, b, mu_dtype_name(x), mu_dtype_name(y));
}

mu_status mu__need_rank(const mu_infer *infer, int i, int rank)
{
    if (infer->in[i].shape.rank == rank)
        return MU_OK;
    char text[MU_SHAPE_TEXT];
    return mu__error(MU_INVALID_ARGUMENT, "%s: input %d has shape %s; its rank must be %d", infer->op->name, i,
                     mu__shape_text(&infer->in[i].shape, text), rank);
}

mu_status mu__infer_same(mu_infer *infer)
{
    infer->out[0] = infer->in[0];
    return MU_OK;
}

mu_status mu__infer_broadcast(mu_infer *infer)
{
    MU_TRY(mu__need_same_dtype(infer, 0, 1));
    infer->out[0].dtype = infer->in[0].dtype;
    return mu__broadcast(&infer->in[0].shape, &infer->in[1].shape, &infer->out[0].shape, infer->op->name);
}

mu_status mu__infer_like(mu_infer *infer)
{
    infer->out[0] = (mu_spec){.dtype = infer->in[0].dtype, .shape = infer->in[1].shape};
    return MU_OK;
}
