// mu_vectorized_map: runs a function of one row on all rows at once.
//
// The function is traced for one row; then a rule for each op applies it to all rows. Ops that do not depend on the
// rows run once, but each row draws its own seed. An op without a rule runs row by row, and the log says so.
#include "graph/control/vectorize.h"
#include "graph/variables/variables_read.h"
#include "ops/nn/nn.h"

#include <muster/ops.h>

typedef struct vectorizing {
    const mu_graph *graph;
    mu_tensor *elem; // one of the arguments; its first axis is the number of rows
    int *first;      // of each node's values
    mu_vector_rows *values;
} vectorizing;

// One op for one row, in the loop used if there is no rule.
typedef struct row_by_row {
    const mu_node *node;
    const mu_vector_rows *in;
} row_by_row;

static mu_value *apply_to_row(mu_value *element, void *arg)
{
    const row_by_row *r = arg;
    const mu_node *node = r->node;
    mu_tensor **in = mu__calloc((size_t)(node->n_in + node->n_out) + 1, sizeof *in);
    mu_tensor **out = MU_BEHIND(in, node->n_in);
    mu_value **items = mu__calloc((size_t)node->n_out + 1, sizeof *items), *result = NULL;
    bool whole = in && items;
    for (int i = 0, k = 0; whole && i < node->n_in; i++)
        in[i] = r->in[i].rows ? mu_at(element, k++) : r->in[i].at;
    if (whole && mu__apply(node->op, node->attrs, node->n_in, in, 0, NULL, out) == MU_OK) {
        for (int i = 0; i < node->n_out; i++)
            items[i] = mu_of(out[i]);
        result = mu_list_of(node->n_out, items);
    }
    mu__free(in);
    mu__free(items);
    return result;
}

static mu_status loop_over_rows(const mu_node *node, const mu_vector_rows *in, mu_tensor **out)
{
    row_by_row r = {.node = node, .in = in};
    mu_value **items = mu__calloc((size_t)node->n_in + 1, sizeof *items);
    int n = 0;
    if (!items)
        return MU_RESOURCE_EXHAUSTED;
    mu__log(MU_LOG_INFO, "mu_vectorized_map: %s has no rule for these inputs and is done row by row", node->op->name);
    for (int i = 0; i < node->n_in; i++)
        if (in[i].rows)
            items[n++] = mu_of(in[i].at);
    mu_value *elems = mu_list_of(n, items), *stacked = elems ? mu_map_fn(apply_to_row, elems, &r) : NULL;
    mu__free(items);
    for (int i = 0; stacked && i < node->n_out; i++)
        out[i] = mu_at(stacked, i);
    return stacked ? MU_OK : mu_error_code();
}

static mu_status once(const vectorizing *v, mu_node *node, mu_tensor **in, mu_tensor **out)
{
    mu_resource **resources = mu__calloc((size_t)node->n_resources + 1, sizeof *resources);
    if (!resources)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_resources; i++)
        resources[i] = v->graph->resources.items[node->resources[i]];
    const mu_status status = mu__apply(node->op, node->attrs, node->n_in, in, node->n_resources, resources, out);
    mu__free(resources);
    return status;
}

// One zero per row of a tensor.
static mu_tensor *zero_per_row(mu_tensor *x)
{
    int axes[MU_MAX_RANK], n = 0;
    for (int axis = 1; axis < x->shape.rank; axis++)
        axes[n++] = axis;
    return mu_reduce_sum(mu_cast(mu_zeros_like(x), MU_I32), .axes = axes, .n_axes = n);
}

static mu_value *draw_for_row(mu_value *element, void *generator)
{
    (void)element;
    return mu_of(mu__generator_next(generator));
}

// A generator's seed has no inputs, but each row gets its own, as in a loop over rows.
static mu_status draw_for_rows(const vectorizing *v, const mu_node *node, mu_tensor **out)
{
    mu_value *seeds =
        mu_map_fn(draw_for_row, mu_of(zero_per_row(v->elem)), v->graph->resources.items[node->resources[0]]);
    *out = seeds ? mu_at(seeds, 0) : NULL;
    return *out ? MU_OK : mu_error_code();
}

static mu_status for_all(const mu_node *node, const mu_vector_rows *in, mu_tensor **out)
{
    bool done = false;
    // Checking all rows at once equals checking each.
    const bool checks = node->n_in == 1 && (node->op == &mu_op_check_numerics || node->op == &mu_op_assert);
    if (!checks && (node->flags & (MU_OP_READS | MU_OP_WRITES | MU_OP_EFFECT | MU_OP_COLLECTIVE)))
        return mu__error(
            MU_UNIMPLEMENTED,
            "mu_vectorized_map: %s is an effect, which would happen once for all rows together; use mu_map_fn",
            node->op->name);
    MU_TRY(mu__vectorize_node(node, in, out, &done));
    return done ? MU_OK : loop_over_rows(node, in, out);
}

static mu_status do_node(const vectorizing *v, mu_node *node)
{
    mu_vector_rows *in = mu__calloc((size_t)node->n_in + 1, sizeof *in), *values = v->values + v->first[node->id];
    mu_tensor **plain = mu__calloc((size_t)(node->n_in + node->n_out) + 1, sizeof *plain);
    mu_tensor **out = MU_BEHIND(plain, node->n_in);
    mu_status status = in && plain ? MU_OK : MU_RESOURCE_EXHAUSTED;
    bool rows = false;
    for (int i = 0; status == MU_OK && i < node->n_in; i++) {
        in[i] = v->values[v->first[node->in[i].node->id] + node->in[i].output];
        plain[i] = in[i].at;
        rows |= in[i].rows;
    }
    if (status == MU_OK && node->op == &mu_op_generator_next) {
        status = draw_for_rows(v, node, out);
        rows = true;
    } else if (status == MU_OK)
        status = rows ? for_all(node, in, out) : once(v, node, plain, out);
    for (int i = 0; status == MU_OK && i < node->n_out; i++)
        values[i] = (mu_vector_rows){.at = out[i], .rows = rows};
    mu__free(in);
    mu__free(plain);
    return status;
}

// Errors name the line of the op, not that of the map.
static mu_status do_at_its_line(const vectorizing *v, mu_node *node)
{
    mu_context *context = mu__context();
    mu__line_push(context, mu__node_site(node));
    const mu_status status = do_node(v, node);
    if (status != MU_OK)
        mu__error_add_site(mu__line());
    mu__line_pop(context);
    return status;
}

// A result that depends on no row is the same for all.
static mu_tensor *with_rows(const mu_vector_rows *x, mu_tensor *elem)
{
    mu_shape shape = {.rank = x->at->shape.rank + 1, .dims = {elem->shape.dims[0]}};
    if (x->rows)
        return x->at;
    if (shape.rank > MU_MAX_RANK) {
        mu__error(MU_INVALID_ARGUMENT, "mu_vectorized_map: a result has rank %d already and cannot be stacked",
                  MU_MAX_RANK);
        return NULL;
    }
    memcpy(shape.dims + 1, x->at->shape.dims, sizeof(int64_t) * (size_t)x->at->shape.rank);
    if (mu__shape_known(&shape))
        return mu_broadcast_to(x->at, shape.rank, shape.dims);
    return mu_gather(mu_expand_dims(x->at, 0), zero_per_row(elem), 0, 0);
}

static mu_status do_all(vectorizing *v, const mu_body_trace *body, const mu_tensors *elems, mu_tensor **out)
{
    const mu_graph *graph = v->graph;
    for (size_t i = 0; i < graph->inputs.n; i++)
        v->values[v->first[graph->inputs.items[i]->id]] =
            i < (size_t)elems->n ? (mu_vector_rows){.at = elems->at[i], .rows = true}
                                 : (mu_vector_rows){.at = body->trace.captured.items[i - (size_t)elems->n].tensor};
    for (size_t i = 0; i < graph->nodes.n; i++) {
        mu_node *node = graph->nodes.items[i];
        if (node->op == &mu_op_constant)
            v->values[v->first[i]] = (mu_vector_rows){.at = ((const mu_constant_attrs *)node->attrs)->tensor};
        else if (node->op != &mu_op_input)
            MU_TRY(do_at_its_line(v, node));
    }
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const mu_edge edge = graph->outputs.items[i];
        if (!(out[i] = with_rows(&v->values[v->first[edge.node->id] + edge.output], elems->at[0])))
            return mu_error_code();
    }
    return MU_OK;
}

static mu_status vectorize(const mu_body_trace *body, const mu_tensors *elems, mu_tensor ***out)
{
    const mu_graph *graph = body->trace.graph;
    vectorizing v = {.graph = graph, .elem = elems->at[0], .first = mu__calloc(graph->nodes.n + 1, sizeof *v.first)};
    size_t n = 0;
    for (size_t i = 0; v.first && i < graph->nodes.n; i++) {
        v.first[i] = (int)n;
        n += (size_t)graph->nodes.items[i]->n_out;
    }
    v.values = v.first ? mu__calloc(n + 1, sizeof *v.values) : NULL;
    *out = mu__calloc(graph->outputs.n + 1, sizeof **out);
    const mu_status status = v.values && *out ? do_all(&v, body, elems, *out) : MU_RESOURCE_EXHAUSTED;
    mu__free(v.values);
    mu__free(v.first);
    return status;
}

// Outside of traces, nodes with bodies cannot run; then fn is called for each row.
static bool needs_an_engine(const mu_graph *graph)
{
    bool control = false;
    for (size_t i = 0; i < graph->nodes.n; i++)
        control |= (graph->nodes.items[i]->op->flags & MU_OP_CONTROL) != 0;
    return control && !mu__context()->trace;
}

static mu_value *call_for_each_row(const mu_graph *graph, mu_body *fn, mu_value *elems, void *arg)
{
    if (!(graph->effects & (MU_OP_WRITES | MU_OP_EFFECT | MU_OP_COLLECTIVE)))
        return mu_map_fn(fn, elems, arg);
    mu__error(MU_UNIMPLEMENTED, "mu_vectorized_map: effects together with branches or loops are possible only in "
                                "traced functions; use mu_map_fn, or call it in a traced function");
    return NULL;
}

static mu_value *map_vectorized(mu_body *fn, mu_value *elems, const mu_tensors *leaves, void *arg)
{
    mu_body_trace body;
    mu_tensors results = {0};
    mu_tensor **out = NULL;
    mu_value *result = NULL;
    mu_status status = mu__body_begin(&body, "vectorized_map");
    mu_value *element = status == MU_OK ? mu__row_inputs(&body, elems, leaves) : NULL;
    mu_value *inner = element ? fn(element, arg) : NULL;
    MU_GO(mu__body_finish(&body, inner, "mu_vectorized_map", &results));
    MU_GO(mu__pass_prune(body.trace.graph));
    if (needs_an_engine(body.trace.graph)) {
        result = call_for_each_row(body.trace.graph, fn, elems, arg);
        if (result)
            result = mu__pool_return(body.pool, result);
        goto out;
    }
    MU_GO(vectorize(&body, leaves, &out));
    result = mu__value_around(inner, out);
    if (result)
        result = mu__pool_return(body.pool, result);
out:
    mu__free(results.at);
    mu__free(out);
    mu__body_free(&body);
    return result;
}

mu_value *mu_vectorized_map(mu_body *fn, mu_value *elems, void *arg)
{
    mu_tensors leaves = {0};
    mu_value *result = NULL;
    elems = mu__variables_read(elems);
    if (mu__map_leaves(fn, elems, "mu_vectorized_map", &leaves) == MU_OK)
        result = map_vectorized(fn, elems, &leaves, arg);
    mu__free(leaves.at);
    return result;
}
