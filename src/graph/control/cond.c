// Branches: mu_cond and mu_switch_case.
//
// If the predicate is known (outside of traces, or a constant), the branch is simply called. In a trace both branches
// are traced, joined, and become one node. A switch is a tree of conds.
#include "base/callback.h"
#include "graph/control/control.h"

#include <muster/ops.h>

typedef struct branch {
    mu_body_trace body;
    mu_value *result;
    mu_tensors leaves;
} branch;

static mu_status trace_branch(branch *b, const char *name, mu_body *fn, mu_value *arguments, void *arg)
{
    MU_TRY(mu__body_begin(&b->body, name));
    b->result = fn(arguments, arg);
    return mu__body_finish(&b->body, b->result, "mu_cond", &b->leaves);
}

static mu_status need_same(const branch *then, const branch *otherwise)
{
    if (then->leaves.n == 0 && otherwise->leaves.n == 0)
        return MU_OK;
    if (then->result && otherwise->result && mu__value_same_structure(then->result, otherwise->result))
        return MU_OK;
    return mu__error(MU_INVALID_ARGUMENT,
                     "mu_cond: the branch for true gives %d tensors, the one for false %d, or they differ in "
                     "structure; both must give the same",
                     then->leaves.n, otherwise->leaves.n);
}

// Makes the node of two traced branches and applies it outside.
static mu_status apply_cond(branch *then, branch *otherwise, mu_tensor *pred, mu_tensor ***out)
{
    mu_body_trace *bodies[] = {&then->body, &otherwise->body};
    mu_cond_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    attrs.then = then->body.trace.graph;
    attrs.otherwise = otherwise->body.trace.graph;
    attrs.n_shared = then->leaves.n;
    MU_TRY(mu__body_hoist_reads(2, bodies));
    for (int b = 0; b < 2 && mu__tape_listens(); b++)
        MU_TRY(mu__body_keep(bodies[b]->trace.graph, 0));
    return mu__control_apply(&mu_op_cond, &attrs, 2, bodies, 1, &pred, out);
}

static mu_value *trace_cond(mu_tensor *pred, mu_body *true_fn, mu_body *false_fn, mu_value *arguments, void *arg)
{
    branch then = {0}, otherwise = {0};
    mu_tensor **out = NULL;
    mu_value *result = NULL;
    mu_status status = trace_branch(&then, "then", true_fn, arguments, arg);
    if (status == MU_OK)
        status = trace_branch(&otherwise, "otherwise", false_fn, arguments, arg);
    if (status == MU_OK)
        status = need_same(&then, &otherwise);
    mu_value *like = mu_retain(then.result);
    // Pools close in reverse order of opening; the node's outputs belong to the pool outside of both.
    mu_pool *pools[] = {otherwise.body.pool, then.body.pool};
    if (status == MU_OK && apply_cond(&then, &otherwise, pred, &out) == MU_OK)
        result = mu__value_around(like, out);
    for (int i = 0; i < 2 && result; i++)
        result = mu__pool_return(pools[i], result);
    mu__free(then.leaves.at);
    mu__free(otherwise.leaves.at);
    mu__body_free(&otherwise.body);
    mu__body_free(&then.body);
    mu_release(like);
    mu__free(out);
    if (mu__pending())
        mu__error_context("in mu_cond");
    return result;
}

static mu_value *call_now(mu_body *fn, mu_value *arguments, void *arg)
{
    mu_value *result;
    MU_CALLBACK("a branch of mu_cond", result = fn(arguments, arg));
    return result || mu__pending() ? result : mu_list(MU_END);
}

mu_value *mu_cond(mu_tensor *pred, mu_body *true_fn, mu_body *false_fn, mu_value *arguments, void *arg)
{
    char text[MU_SHAPE_TEXT];
    if (mu__pending())
        return NULL;
    if (!pred || !true_fn || !false_fn) {
        mu__error(MU_INVALID_ARGUMENT, "mu_cond: the %s is NULL", !pred ? "predicate" : "callback of a branch");
        return NULL;
    }
    if (pred->dtype != MU_BOOL || pred->shape.rank != 0) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_cond: the predicate is %s%s; it must be a scalar of type bool (mu_reduce_all makes one)",
                  mu_dtype_name(pred->dtype), mu__shape_text(&pred->shape, text));
        return NULL;
    }
    if (pred->node)
        return trace_cond(pred, true_fn, false_fn, arguments, arg);
    const bool *holds = mu__host_read(pred);
    return holds ? call_now(*holds ? true_fn : false_fn, arguments, arg) : NULL;
}

// ---- Switch -------------------------------------------------------------------------------------

// Branches [first, first + n) under one node of the tree.
typedef struct choice {
    mu_tensor *index;
    mu_body *const *branches;
    int first, n;
    void *arg;
} choice;

static mu_value *choose(mu_value *arguments, const choice *c);

static mu_value *choose_low(mu_value *arguments, void *arg)
{
    choice low = *(const choice *)arg;
    low.n = low.n / 2;
    return choose(arguments, &low);
}

static mu_value *choose_high(mu_value *arguments, void *arg)
{
    choice high = *(const choice *)arg;
    high.first += high.n / 2;
    high.n -= high.n / 2;
    return choose(arguments, &high);
}

static mu_value *choose(mu_value *arguments, const choice *c)
{
    if (c->n == 1)
        return call_now(c->branches[c->first], arguments, c->arg);
    mu_tensor *middle = mu_constant(c->index->dtype, c->first + c->n / 2);
    return mu_cond(mu_less(c->index, middle), choose_low, choose_high, arguments, (void *)c);
}

mu_value *mu_switch_case(mu_tensor *index, int n, mu_body *const *branches, mu_value *arguments, void *arg)
{
    char text[MU_SHAPE_TEXT];
    if (mu__pending())
        return NULL;
    if (!index || n < 1 || !branches) {
        mu__error(MU_INVALID_ARGUMENT, "mu_switch_case: %s", !index ? "the index is NULL" : "there must be a branch");
        return NULL;
    }
    if ((index->dtype != MU_I32 && index->dtype != MU_I64) || index->shape.rank != 0) {
        mu__error(MU_INVALID_ARGUMENT, "mu_switch_case: the index is %s%s; it must be a scalar of type int32 or int64",
                  mu_dtype_name(index->dtype), mu__shape_text(&index->shape, text));
        return NULL;
    }
    for (int i = 0; i < n; i++)
        if (!branches[i]) {
            mu__error(MU_INVALID_ARGUMENT, "mu_switch_case: branch %d is NULL", i);
            return NULL;
        }
    mu_tensor *below = mu_less(index, mu_constant(index->dtype, 0));
    choice all = {
        .index = mu_where(below, mu_constant(index->dtype, n - 1), index), .branches = branches, .n = n, .arg = arg};
    return all.index ? choose(arguments, &all) : NULL;
}
