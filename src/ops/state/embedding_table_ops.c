// The ops of embedding tables: looking rows up, and updating them with the table's optimizer.
//
// Both write: a lookup makes rows. Neither has a gradient, because a table is not a tensor; the program differentiates
// with respect to the rows and applies that (mu_embedding_table_apply_gradients).
#include "ops/state/embedding_table.h"

#include "ops/nn/nn.h"

static mu_table *table_of(const mu_kernel *k) { return k->resources[0].data; }

static mu_status rows_shape(const mu_infer *infer, mu_shape *out)
{
    const mu_shape *keys = &infer->in[0].shape;
    if (infer->resources[0].shape.rank != 1 || keys->rank >= MU_MAX_RANK)
        return mu__error(MU_INVALID_ARGUMENT, "%s: keys of rank %d; at most %d is possible", infer->op->name,
                         keys->rank, MU_MAX_RANK - 1);
    *out = *keys;
    out->dims[out->rank++] = infer->resources[0].shape.dims[0];
    return MU_OK;
}

static mu_status lookup_infer(mu_infer *infer)
{
    infer->out[0].dtype = MU_F32;
    return rows_shape(infer, &infer->out[0].shape);
}

static mu_status update_infer(mu_infer *infer)
{
    char seen[MU_SHAPE_TEXT], text[MU_SHAPE_TEXT];
    mu_shape wanted;
    MU_TRY(rows_shape(infer, &wanted));
    if (infer->in[1].dtype != MU_F32 || !mu__shape_compatible(&infer->in[1].shape, &wanted))
        return mu__error(MU_INVALID_ARGUMENT, "%s: the gradients are %s%s; for these keys they must be float32%s",
                         infer->op->name, mu_dtype_name(infer->in[1].dtype), mu__shape_text(&infer->in[1].shape, seen),
                         mu__shape_text(&wanted, text));
    if (infer->in[2].dtype != MU_F64 || infer->in[2].shape.rank != 0)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the learning rate must be a scalar of float64", infer->op->name);
    return MU_OK;
}

static mu_status lookup_ref(const mu_kernel *k)
{
    const mu_table_lookup_attrs *attrs = k->attrs;
    return mu__table_lookup(table_of(k), mu__elements(&k->in[0].shape), k->in[0].data, !attrs->read_only,
                            k->out[0].data);
}

static mu_status update_ref(const mu_kernel *k)
{
    return mu__table_update(table_of(k), mu__elements(&k->in[0].shape), k->in[0].data, k->in[1].data,
                            *(const double *)k->in[2].data);
}

static const mu_attr_spec lookup_fields[] = {{"read_only", MU_ATTR_BOOL, offsetof(mu_table_lookup_attrs, read_only)},
                                             {0}};

#define TABLE_OP(text)                                                                                   \
    .name = text, .n_resources = 1, .resource_kind = MU_TABLE_KIND, .flags = MU_OP_READS | MU_OP_WRITES, \
    .dtypes = MU_DTYPE_BIT(MU_I64),                                                                      \
    .no_lowering = "the rows are in the memory of a host; look them up outside of the compiled function"

// Input: keys. Output: rows as float32.
const mu_op mu_op_embedding_table_lookup = {TABLE_OP("embedding_table_lookup"),
                                            .n_in = 1,
                                            .n_out = 1,
                                            .attrs_bytes = sizeof(mu_table_lookup_attrs),
                                            .attrs = lookup_fields,
                                            .infer = lookup_infer,
                                            .ref = lookup_ref};

// Inputs: keys, gradients of their rows, learning rate; negative: the table's own.
const mu_op mu_op_embedding_table_update = {TABLE_OP("embedding_table_update"), .n_in = 3, .infer = update_infer,
                                            .ref = update_ref};
