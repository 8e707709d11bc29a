// Stages that divide batches along axis 0: unbatch, rebatch, split.
//
// A piece of one batch is a view of its buffer; a piece that spans batches is a copy. rebatch makes pieces across
// batches; split divides each batch separately into a fixed number of pieces, empty ones included.
#include "data/dataset.h"

typedef struct rebatch_state {
    mu_value *batch;  // the batch being divided; NULL: take the next one
    mu_leaves leaves; // of batch
    int64_t rows, at; // rows in batch, and the next row
    int64_t piece;    // rebatch, split: number of the next piece
    bool cut_short;   // rebatch: the input ended within a piece, so that was the last one, whatever size is next
} rebatch_state;

static void drop_batch(rebatch_state *state)
{
    mu__leaves_free(&state->leaves);
    mu_release(state->batch);
    state->batch = NULL;
    state->rows = state->at = 0;
}

static void rebatch_close(mu_stage *stage) { drop_batch(stage->state); }

static mu_status measure(mu_stage *stage)
{
    rebatch_state *state = stage->state;
    MU_TRY(mu__leaves_of(state->batch, &state->leaves));
    for (int i = 0; i < state->leaves.n; i++) {
        const mu_shape *shape = &mu__leaf(&state->leaves, i)->shape;
        if (shape->rank == 0)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: component %d of an element is a scalar, which has no rows; batch the dataset first",
                             stage->ops->name, i);
        if (i > 0 && shape->dims[0] != state->rows)
            return mu__error(
                MU_INVALID_ARGUMENT,
                "%s: component %d of a batch has %lld rows and component 0 has %lld; all must have the same number",
                stage->ops->name, i, (long long)shape->dims[0], (long long)state->rows);
        state->rows = shape->dims[0];
    }
    return MU_OK;
}

static mu_status take_batch(mu_stage *stage, bool *end)
{
    rebatch_state *state = stage->state;
    mu_item item;
    drop_batch(state);
    MU_TRY(mu__stage_next(stage, 0, &item, end));
    if (*end)
        return MU_OK;
    state->batch = mu__item_value(&item);
    mu_status status = state->batch != NULL ? measure(stage) : mu_error_code();
    if (status != MU_OK)
        drop_batch(state);
    return status;
}

mu_tensor *mu__row_view(const mu_tensor *tensor, int64_t begin, int64_t n, bool cut)
{
    mu_shape shape = tensor->shape;
    shape.dims[0] = 1;
    mu_spec row = {.dtype = tensor->dtype, .shape = shape};
    size_t offset = tensor->offset + (size_t)begin * mu__spec_bytes(&row);
    if (cut)
        shape = mu_shape_make(shape.rank - 1, shape.dims + 1);
    else
        shape.dims[0] = n;
    return mu__tensor_view(tensor->buffer, offset, tensor->dtype, &shape);
}

static mu_value *view_value(const rebatch_state *state, int64_t n, bool cut)
{
    mu_leaves views;
    bool ok = mu__build_begin(&views, state->leaves.n);
    while (ok && views.n < state->leaves.n)
        ok = mu__build_add(&views, mu__row_view(mu__leaf(&state->leaves, views.n), state->at, n, cut));
    return mu__build_end(&views, state->batch);
}

static mu_status forget_rows(mu_spec *leaf, int64_t number)
{
    if (leaf->shape.rank == 0)
        return mu__error(MU_INVALID_ARGUMENT,
                         "an element is a scalar, which has no rows to cut; batch the dataset first");
    leaf->shape.dims[0] = number;
    return MU_OK;
}

// ---- Unbatch ------------------------------------------------------------------------------------

static mu_status unbatch_next(mu_stage *stage, mu_item *item, bool *end)
{
    rebatch_state *state = stage->state;
    while (state->at == state->rows) {
        MU_TRY(take_batch(stage, end));
        if (*end)
            return MU_OK;
    }
    item->value = view_value(state, 1, true);
    state->at++;
    return item->value != NULL ? MU_OK : mu_error_code();
}

static mu_status drop_first_axis(mu_spec *leaf, int64_t number)
{
    MU_TRY(forget_rows(leaf, number));
    leaf->shape = mu_shape_make(leaf->shape.rank - 1, leaf->shape.dims + 1);
    return MU_OK;
}

static mu_value *unbatch_spec(const mu_dataset *dataset)
{
    return mu__map_spec(mu__dataset_spec(dataset->inputs[0]), drop_first_axis, MU_UNKNOWN);
}

const mu_stage_ops mu__unbatch_stage = {
    .name = "unbatch",
    .state_bytes = sizeof(rebatch_state),
    .next = unbatch_next,
    .close = rebatch_close,
    .spec = unbatch_spec,
};

mu_dataset *mu_dataset_unbatch(mu_dataset *dataset) { return mu__dataset_stage(&mu__unbatch_stage, NULL, dataset); }

// ---- Rebatch ------------------------------------------------------------------------------------

typedef struct rebatch_args {
    mu_numbers sizes; // rows of the pieces, used cyclically; owned
    bool drop_remainder;
} rebatch_args;

static const mu_sent_field rebatch_sent[] = {MU_SENDS_NUMBERS(rebatch_args, sizes, 0, INT64_MAX),
                                             MU_SENDS_INT(rebatch_args, drop_remainder, 0, 1),
                                             {.kind = MU_SENT_END}};

static const mu_owned_field rebatch_owned[] = {{MU_OWNS_NUMBERS, offsetof(rebatch_args, sizes)}, {MU_OWNS_END, 0}};

// A piece that may span batches, joined from views.
typedef struct collected {
    struct {
        mu_item *items;
        size_t n, capacity;
    } parts;
    int64_t rows;
} collected;

static mu_status collect(mu_stage *stage, int64_t wanted, collected *piece)
{
    rebatch_state *state = stage->state;
    bool end = false;
    while (piece->rows < wanted) {
        if (state->at == state->rows) {
            MU_TRY(take_batch(stage, &end));
            state->cut_short = end;
            if (end)
                return MU_OK;
            continue;
        }
        int64_t n = MU_MIN(wanted - piece->rows, state->rows - state->at);
        mu_item part = {.value = view_value(state, n, false)};
        if (part.value == NULL || MU_PUSH(&piece->parts, part) != MU_OK) {
            mu__item_drop(&part);
            return mu_error_code();
        }
        state->at += n;
        piece->rows += n;
    }
    return MU_OK;
}

// Makes an empty batch like the current batch, or like the spec if none was read yet.
static mu_value *empty_batch(mu_stage *stage)
{
    rebatch_state *state = stage->state;
    bool end = false;
    if (state->batch == NULL) {
        mu_value *spec = mu__dataset_spec(stage->dataset->inputs[0]);
        mu_value *empty = spec != NULL ? mu__empty_like(spec) : NULL;
        mu_release(spec);
        if (empty != NULL || mu__pending() || take_batch(stage, &end) != MU_OK || end)
            return empty;
    }
    return mu__empty_like(state->batch);
}

static mu_status rebatch_next(mu_stage *stage, mu_item *item, bool *end)
{
    rebatch_state *state = stage->state;
    const rebatch_args *args = stage->dataset->args;
    *end = state->cut_short;
    if (*end)
        return MU_OK;
    int64_t wanted = args->sizes.items[state->piece++ % args->sizes.n];
    if (wanted == 0) {
        item->value = empty_batch(stage);
        *end = item->value == NULL;
        return mu_error_code();
    }
    collected piece = {0};
    mu_status status = collect(stage, wanted, &piece);
    *end = status == MU_OK && (piece.rows == 0 || (args->drop_remainder && piece.rows < wanted));
    if (status == MU_OK && !*end) {
        item->value = mu__join(piece.parts.items, (int)piece.parts.n, stage->ops->name);
        status = item->value != NULL ? MU_OK : mu_error_code();
    }
    for (size_t i = 0; i < piece.parts.n; i++)
        mu__item_drop(&piece.parts.items[i]);
    mu__free(piece.parts.items);
    return status;
}

static mu_value *rebatch_spec(const mu_dataset *dataset)
{
    const rebatch_args *args = dataset->args;
    int64_t rows = args->drop_remainder ? args->sizes.items[0] : MU_UNKNOWN;
    for (int i = 1; i < args->sizes.n; i++)
        rows = args->sizes.items[i] == rows ? rows : MU_UNKNOWN;
    return mu__map_spec(mu__dataset_spec(dataset->inputs[0]), forget_rows, rows);
}

static mu_status check_sizes(int n, const int64_t *sizes)
{
    int64_t sum = 0;
    for (int i = 0; i < n && sum >= 0; i++)
        sum = sizes[i] < 0 || sizes[i] > INT64_MAX - sum ? -1 : sum + sizes[i];
    return n >= 1 && sum >= 1
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT,
                           "mu_dataset_rebatch got %d sizes; expected at least one, none negative, and not all 0", n);
}

static mu_status check_rebatch(const mu_dataset *dataset)
{
    const rebatch_args *args = dataset->args;
    return check_sizes(args->sizes.n, args->sizes.items);
}

const mu_stage_ops mu__rebatch_stage = {
    .name = "rebatch",
    .sent = rebatch_sent,
    .check = check_rebatch,
    .state_bytes = sizeof(rebatch_state),
    .args_bytes = sizeof(rebatch_args),
    .owned = rebatch_owned,
    .next = rebatch_next,
    .close = rebatch_close,
    .spec = rebatch_spec,
};

mu_dataset *mu_dataset_rebatch(mu_dataset *dataset, int n_sizes, const int64_t *sizes, bool drop_remainder)
{
    if (mu__pending() || (n_sizes > 0 && mu__need(sizes, "mu_dataset_rebatch: sizes") != MU_OK))
        return NULL;
    if (check_sizes(n_sizes, sizes) != MU_OK)
        return NULL;
    const rebatch_args args = {{n_sizes, mu__alloc((size_t)n_sizes * sizeof *sizes)}, drop_remainder};
    if (args.sizes.items == NULL)
        return NULL;
    memcpy(args.sizes.items, sizes, (size_t)n_sizes * sizeof *sizes);
    return mu__dataset_stage(&mu__rebatch_stage, &args, dataset);
}

// ---- Split --------------------------------------------------------------------------------------

typedef struct split_args {
    int64_t pieces;
} split_args;

static mu_status split_next(mu_stage *stage, mu_item *item, bool *end)
{
    rebatch_state *state = stage->state;
    const int64_t pieces = ((const split_args *)stage->dataset->args)->pieces;
    if (state->piece % pieces == 0) {
        MU_TRY(take_batch(stage, end));
        if (*end)
            return MU_OK;
    }
    int64_t size = state->rows / pieces + (state->rows % pieces > 0);
    int64_t n = MU_MIN(size, state->rows - state->at);
    item->value = view_value(state, n, false);
    state->at += n;
    state->piece++;
    return item->value != NULL ? MU_OK : mu_error_code();
}

static int64_t split_cardinality(const mu_dataset *dataset)
{
    int64_t n = mu_dataset_cardinality(dataset->inputs[0]);
    return n < 0 ? n : n * ((const split_args *)dataset->args)->pieces;
}

static mu_value *split_spec(const mu_dataset *dataset)
{
    return mu__map_spec(mu__dataset_spec(dataset->inputs[0]), forget_rows, MU_UNKNOWN);
}

static const mu_stage_ops split_stage = {
    .name = "split",
    .state_bytes = sizeof(rebatch_state),
    .args_bytes = sizeof(split_args),
    .next = split_next,
    .close = rebatch_close,
    .cardinality = split_cardinality,
    .spec = split_spec,
};

mu_dataset *mu__dataset_split(mu_dataset *dataset, int64_t pieces)
{
    if (!mu__pending() && pieces < 1) {
        mu__error(MU_INVALID_ARGUMENT, "a batch cannot be split into %lld pieces; expected at least 1",
                  (long long)pieces);
        return NULL;
    }
    return mu__dataset_stage(&split_stage, &(split_args){pieces}, dataset);
}
