// Which values of a pure graph are those of generators after draws alone, also after draws in branches and loops.
#include "engine/pjrt/pjrt_plan.h"
#include "graph/control/control.h"

// Which input of a body its output is, but for draws from it; -1: it is something else.
static int drawn_input(const mu_graph *body, int output)
{
    const mu_edge from = mu__pjrt_before_draws(body->outputs.items[output]);
    int i = from.node->op == &mu_op_input ? (int)body->inputs.n - 1 : -1;
    while (i >= 0 && body->inputs.items[i] != from.node)
        i--;
    return i;
}

// Which input of a control flow node its output is, but for draws in bodies; -1: it is something else.
static int drawn_through(const mu_node *node, int output)
{
    const mu_cond_attrs *cond = node->attrs;
    const mu_loop_attrs *loop = node->attrs;
    int input = -1;
    if (node->op == &mu_op_cond && output < cond->n_shared) {
        input = drawn_input(cond->then, output);
        input = drawn_input(cond->otherwise, output) == input ? input : -1;
    } else if (node->op == &mu_op_while_loop && output >= 1 && output <= loop->n_carried) {
        input = drawn_input(loop->body, output - 1) == output - 1 ? output - 1 : -1;
    }
    return input < 0 ? -1 : 1 + input;
}

// Bodies are nested at most MU_MAX_DEPTH deep.
mu_edge mu__pjrt_before_draws(mu_edge edge)
{
    for (;;) {
        const mu_node *node = edge.node;
        int input = -1;
        // The last output of a draw is the generator, the others are what it drew.
        if (node->op->flags & MU_OP_DRAWS)
            input = edge.output == node->op->pure_of->n_out ? 0 : -1;
        else if (node->op->flags & MU_OP_CONTROL)
            input = drawn_through(node, edge.output);
        if (input < 0)
            return edge;
        edge = node->in[input];
    }
}
