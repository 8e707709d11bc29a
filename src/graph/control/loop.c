// Loops: mu_while_loop and mu_scan.
//
// Outside of traces a loop calls its callbacks in each iteration, so tapes record every op. In a trace the body is
// traced once (again with unknown dimensions if a value's shape changes) and becomes one while_loop node.
#include "base/callback.h"
#include "graph/control/map_fn.h"
#include "graph/variables/variables_read.h"

#include <muster/ops.h>

// Both kinds of loops, when traced.
typedef struct loop {
    const char *what; // "mu_while_loop"
    const char *name;
    mu_condition *condition; // NULL: a scan
    mu_body *body;
    mu_scan_step *step; // of a scan
    void *arg;
    mu_value *vars, *elems;
    mu_tensors carried, slices;
    mu_spec *specs; // of the carried values in every iteration
    int64_t rows;
    mu_tensor *limit;
    bool reverse;
    mu_body_trace condition_trace, body_trace;
} loop;

static mu_tensor *int64_scalar(int64_t value) { return mu_tensor_new(MU_I64, 0, NULL, &value); }

// ---- In a trace ---------------------------------------------------------------------------------

// The structure of `like` around new inputs of the body.
static mu_value *inputs_like(mu_body_trace *body, const mu_value *like, int n, const mu_spec *specs)
{
    mu_tensor **inputs = mu__calloc((size_t)n + 1, sizeof *inputs);
    mu_value *value = NULL;
    bool whole = inputs != NULL;
    for (int i = 0; whole && i < n; i++)
        whole = (inputs[i] = mu__body_input(body, &specs[i])) != NULL;
    if (whole)
        value = mu__value_around(like, inputs);
    mu__free(inputs);
    return value;
}

static mu_status trace_condition(loop *l)
{
    MU_TRY(mu__body_begin(&l->condition_trace, "condition"));
    l->condition_trace.reads_again = true;
    mu_value *vars = inputs_like(&l->condition_trace, l->vars, l->carried.n, l->specs);
    mu_tensor *continues = vars ? l->condition(vars, l->arg) : NULL;
    mu_status status = continues ? mu__body_output(&l->condition_trace, continues) : mu_error_code();
    if (!continues && !mu__pending())
        status = mu__error(MU_INVALID_ARGUMENT, "%s: the condition gave NULL; it must give a bool scalar", l->what);
    mu__body_end(&l->condition_trace);
    return status;
}

static mu_status take_results(loop *l, mu_value *result)
{
    mu_tensors leaves;
    result = mu__variables_read(result);
    if (mu__pending())
        return mu_error_code();
    if (l->vars && (!result || !mu__value_same_structure(l->vars, result)))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: the body's result has another structure than the %d values that it was given; it must "
                         "give all of them back",
                         l->what, l->carried.n);
    MU_TRY(mu__tensors_of(result, l->what, &leaves));
    mu_status status = MU_OK;
    for (int i = 0; status == MU_OK && i < leaves.n; i++)
        status = mu__body_output(&l->body_trace, leaves.at[i]);
    for (int i = 0; status == MU_OK && l->step && i < leaves.n; i++) // a scan also returns each state as a row
        status = mu__body_output(&l->body_trace, leaves.at[i]);
    mu__free(leaves.at);
    return status;
}

static mu_status trace_body(loop *l)
{
    MU_TRY(mu__body_begin(&l->body_trace, l->name));
    mu_value *vars = inputs_like(&l->body_trace, l->vars, l->carried.n, l->specs);
    mu_value *slices = l->step ? mu__row_inputs(&l->body_trace, l->elems, &l->slices) : NULL, *result = NULL;
    if (vars && (slices || !l->step))
        result = l->step ? l->step(vars, slices, l->arg) : l->body(vars, l->arg);
    mu_status status = take_results(l, result);
    mu__body_end(&l->body_trace);
    return status;
}

// Compares an iteration's results with its inputs; a dimension that differs is unknown in the next trace.
static mu_status widen(loop *l, bool *changed)
{
    const mu_graph *graph = l->body_trace.trace.graph;
    char a[MU_SHAPE_TEXT], b[MU_SHAPE_TEXT];
    *changed = false;
    for (int i = 0; i < l->carried.n; i++) {
        const mu_edge edge = graph->outputs.items[i];
        const mu_spec *out = &edge.node->out[edge.output];
        mu_spec *in = &l->specs[i];
        if (in->dtype != out->dtype || in->shape.rank != out->shape.rank)
            return mu__error(MU_INVALID_ARGUMENT,
                             "%s: value %d is %s%s before an iteration and %s%s after it; type and rank must not "
                             "change (mu_cast converts)",
                             l->what, i, mu_dtype_name(in->dtype), mu__shape_text(&in->shape, a),
                             mu_dtype_name(out->dtype), mu__shape_text(&out->shape, b));
        for (int k = 0; k < in->shape.rank; k++)
            if (in->shape.dims[k] != out->shape.dims[k] && in->shape.dims[k] != MU_UNKNOWN) {
                in->shape.dims[k] = MU_UNKNOWN;
                *changed = true;
            }
    }
    return MU_OK;
}

static mu_status trace_until_settled(loop *l)
{
    bool changed = true;
    while (changed) {
        MU_TRY(trace_body(l));
        MU_TRY(widen(l, &changed));
        if (changed)
            mu__body_free(&l->body_trace);
    }
    return l->condition ? trace_condition(l) : MU_OK;
}

static mu_status apply_loop(loop *l, mu_tensor ***out)
{
    const int n_graphs = l->condition ? 2 : 1, carried = l->carried.n, slices = l->slices.n;
    mu_body_trace *bodies[] = {&l->body_trace, &l->condition_trace};
    mu_loop_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.body = l->body_trace.trace.graph;
    attrs.condition = l->condition_trace.trace.graph;
    attrs.n_carried = carried;
    attrs.n_slices = slices;
    attrs.rows = l->rows;
    attrs.reverse = l->reverse;
    MU_TRY(mu__body_hoist_reads(n_graphs, bodies));
    if (mu__tape_listens())
        MU_TRY(mu__body_keep(attrs.body, carried));
    mu_tensor **own = mu__calloc((size_t)(1 + carried + slices), sizeof *own);
    if (!own)
        return MU_RESOURCE_EXHAUSTED;
    own[0] = l->limit;
    for (int i = 0; i < carried; i++)
        own[1 + i] = l->carried.at[i];
    for (int i = 0; i < slices; i++)
        own[1 + carried + i] = l->slices.at[i];
    mu_status status = mu__control_apply(&mu_op_while_loop, &attrs, n_graphs, bodies, 1 + carried + slices, own, out);
    mu__free(own);
    return status;
}

// The node's outputs; free the array with mu__free. The tensors belong to the enclosing pool.
static mu_value *trace_loop(loop *l)
{
    mu_tensor **out = NULL;
    mu_value *result = NULL;
    l->specs = mu__calloc((size_t)l->carried.n + 1, sizeof *l->specs);
    for (int i = 0; l->specs && i < l->carried.n; i++)
        l->specs[i] = mu__spec_of(l->carried.at[i]);
    if (l->specs && trace_until_settled(l) == MU_OK && apply_loop(l, &out) == MU_OK)
        result = mu__value_around(l->vars, out + 1 + (l->step ? l->carried.n : 0));
    if (result && l->condition_trace.pool)
        result = mu__pool_return(l->condition_trace.pool, result);
    if (result)
        result = mu__pool_return(l->body_trace.pool, result);
    mu__body_free(&l->condition_trace);
    mu__body_free(&l->body_trace);
    mu__free(l->specs);
    mu__free(out);
    if (mu__pending())
        mu__error_context("in %s '%s'", l->what, l->name);
    return result;
}

// ---- Outside of traces --------------------------------------------------------------------------

// Whether to run another iteration; the loop's values are borrowed.
static mu_status continues(const loop *l, mu_value *vars, bool *out)
{
    mu_tensor *condition;
    MU_CALLBACK("the condition of a loop", condition = l->condition(vars, l->arg));
    *out = false;
    if (mu__pending())
        return mu_error_code();
    if (!condition || condition->dtype != MU_BOOL || condition->shape.rank != 0 || !condition->buffer)
        return mu__error(MU_INVALID_ARGUMENT, "%s: the condition must give a bool scalar", l->what);
    const bool *holds = mu__host_read(condition);
    *out = holds && *holds;
    return holds ? MU_OK : mu_error_code();
}

static mu_value *checked_iteration(const loop *l, mu_value *vars)
{
    mu_value *next;
    MU_CALLBACK("the body of a loop", next = l->body(vars, l->arg));
    next = mu__variables_read(next);
    if (mu__pending() || !next || mu__value_same_structure(vars, next)) {
        if (!next && !mu__pending())
            mu__error(MU_INVALID_ARGUMENT, "%s: the body gave NULL; it must give the loop's values", l->what);
        return next;
    }
    mu__error(MU_INVALID_ARGUMENT,
              "%s: the body's result has another structure than the %d values that it was given; it must give all of "
              "them back",
              l->what, l->carried.n);
    return NULL;
}

// Each iteration has its own pool; only the loop's values outlive it.
static mu_value *run_iterations(const loop *l, int64_t limit)
{
    mu_value *vars = mu_retain(l->vars);
    bool more = true;
    for (int64_t iteration = 0; vars && more && iteration < limit; iteration++) {
        mu_pool *pool = mu_pool_open();
        mu_value *next = NULL;
        mu_status status = pool ? continues(l, vars, &more) : mu_error_code();
        if (status == MU_OK && more)
            next = mu_retain(checked_iteration(l, vars));
        if (pool)
            mu_pool_close(pool);
        if (mu__pending() || more) {
            mu_release(vars);
            vars = next;
        }
    }
    return mu__give(vars);
}

mu_value *mu_while_loop_with(const mu_while_loop_args *given)
{
    mu_while_loop_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_while_loop") != MU_OK)
        return NULL;
    if (!args.condition || !args.body || !args.loop_vars || args.maximum_iterations < 0) {
        mu__error(MU_INVALID_ARGUMENT, "mu_while_loop: %s",
                  args.maximum_iterations < 0 ? "maximum_iterations is negative"
                                              : "condition, body and loop_vars must be given");
        return NULL;
    }
    int64_t limit = args.maximum_iterations > 0 ? args.maximum_iterations : INT64_MAX;
    loop l = {.what = "mu_while_loop",
              .name = args.name ? args.name : "while_loop",
              .condition = args.condition,
              .body = args.body,
              .arg = args.arg,
              .vars = mu__variables_read(args.loop_vars),
              .rows = args.maximum_iterations > 0 ? limit : -1};
    mu_value *result = NULL;
    if (!l.vars || mu__tensors_of(l.vars, l.what, &l.carried) != MU_OK)
        return NULL;
    if (!mu__context()->trace)
        result = run_iterations(&l, limit);
    else if ((l.limit = int64_scalar(limit)))
        result = trace_loop(&l);
    mu__free(l.carried.at);
    return result;
}

// ---- Scan ---------------------------------------------------------------------------------------

// Stacks the k-th tensor of all states.
static mu_tensor *stack_states(mu_value **states, int n, int k)
{
    mu_tensor **rows = mu__calloc((size_t)n + 1, sizeof *rows), *stacked = NULL;
    bool whole = rows != NULL;
    for (int t = 0; whole && t < n; t++) {
        mu_tensors leaves;
        whole = mu__tensors_of(states[t], "mu_scan", &leaves) == MU_OK;
        rows[t] = whole && k < leaves.n ? leaves.at[k] : NULL;
        mu__free(whole ? leaves.at : NULL);
    }
    if (whole)
        stacked = mu_stack(n, rows, 0);
    mu__free(rows);
    return stacked;
}

static mu_tensor *no_rows(const mu_tensor *like)
{
    mu_shape shape = {.rank = like->shape.rank + 1};
    memcpy(shape.dims + 1, like->shape.dims, sizeof(int64_t) * (size_t)like->shape.rank);
    return mu_tensor_new(like->dtype, shape.rank, shape.dims, NULL);
}

static mu_value *scan_now(const loop *l)
{
    const int n = (int)l->slices.at[0]->shape.dims[0];
    mu_value **states = mu__calloc((size_t)n + 1, sizeof *states), *state = l->vars, *result = NULL;
    mu_tensor **stacks = mu__calloc((size_t)l->carried.n + 1, sizeof *stacks);
    bool whole = states && stacks;
    for (int t = 0; whole && t < n; t++) {
        int i = l->reverse ? n - 1 - t : t;
        mu_value *element = mu__row_of_all(l->elems, &l->slices, i);
        MU_CALLBACK("a step of mu_scan", state = element ? l->step(state, element, l->arg) : NULL);
        state = mu__variables_read(state);
        whole = state && !mu__pending() && mu__value_same_structure(l->vars, state);
        if (!whole && !mu__pending())
            mu__error(MU_INVALID_ARGUMENT, "mu_scan: step %d gave another structure than the initializer's %d tensors",
                      t, l->carried.n);
        states[i] = state;
    }
    for (int k = 0; whole && k < l->carried.n; k++)
        whole = (stacks[k] = n > 0 ? stack_states(states, n, k) : no_rows(l->carried.at[k])) != NULL;
    if (whole)
        result = mu__value_around(l->vars, stacks);
    mu__free(states);
    mu__free(stacks);
    return result;
}

mu_value *mu_scan_with(const mu_scan_args *given)
{
    mu_scan_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_scan") != MU_OK)
        return NULL;
    if (!args.fn || !args.elems || !args.initializer) {
        mu__error(MU_INVALID_ARGUMENT, "mu_scan: fn, elems and initializer must be given");
        return NULL;
    }
    loop l = {.what = "mu_scan",
              .name = args.name ? args.name : "scan",
              .step = args.fn,
              .arg = args.arg,
              .vars = mu__variables_read(args.initializer),
              .elems = mu__variables_read(args.elems),
              .rows = -1,
              .reverse = args.reverse};
    mu_value *result = NULL;
    if (l.vars && l.elems && mu__tensors_of(l.vars, l.what, &l.carried) == MU_OK &&
        mu__tensors_of(l.elems, l.what, &l.slices) == MU_OK && mu__need_rows(&l.slices, l.what) == MU_OK) {
        if (!mu__context()->trace)
            result = scan_now(&l);
        else if ((l.limit = mu_dim_size(l.slices.at[0], 0)))
            result = trace_loop(&l);
    }
    mu__free(l.carried.at);
    mu__free(l.slices.at);
    return result;
}
