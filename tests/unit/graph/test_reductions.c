// The pass that decides when reductions start: buckets in the order in which gradients become ready, each placed where
// its inputs are, and the nodes that need a bucket's result placed behind everything else.
#include "../model/model_test.h"

#include "ops/nn/nn.h"

static const int64_t four[] = {4};

static mu_edge input(mu_graph *graph)
{
    mu_spec spec = {.dtype = MU_F32, .shape = mu_shape_make(1, four)};
    return (mu_edge){.node = mu__graph_input(graph, &spec, NULL)};
}

static mu_edge apply(const mu_op *op, const void *attrs, mu_edge in, mu_variable *variable)
{
    mu_resource *resource = variable ? &variable->resource : NULL;
    mu_node *node =
        mu__graph_node(in.node->graph, op, attrs, op == &mu_op_read_variable ? 0 : 1, &in, variable ? 1 : 0, &resource);
    if (!node)
        fail_msg("%s", mu_error_message());
    return (mu_edge){.node = node};
}

static mu_edge negated(mu_edge in) { return apply(&mu_op_neg, NULL, in, NULL); }

// The sum over replicas of four floats (16 bytes), packed with others up to this size.
static mu_edge reduced(mu_edge in, const char *name, int64_t pack_bytes)
{
    mu_all_reduce_attrs attrs = {.reduction = MU_REDUCTION_SUM, .pack_bytes = pack_bytes};
    snprintf(attrs.name, sizeof attrs.name, "%s", name);
    return apply(&mu_op_all_reduce, &attrs, in, NULL);
}

// Returns every node as "op, the nodes of its inputs, name of a reduction". Applied twice, the pass changes nothing
// more.
static void assert_order(mu_graph *graph, const char *wanted)
{
    for (int turn = 0; turn < 2; turn++) {
        char text[512];
        int at = 0;
        if (mu__pass_reductions(graph) != MU_OK || mu__graph_check(graph) != MU_OK)
            fail_msg("%s", mu_error_message());
        for (size_t i = 0; i < graph->nodes.n; i++) {
            const mu_node *node = graph->nodes.items[i];
            at += snprintf(text + at, sizeof text - (size_t)at, "%s%s", i ? ", " : "", node->op->name);
            for (int k = 0; k < node->n_in; k++)
                at += snprintf(text + at, sizeof text - (size_t)at, " %d", node->in[k].node->id);
            if (node->op == &mu_op_all_reduce)
                at += snprintf(text + at, sizeof text - (size_t)at, " '%s'",
                               ((const mu_all_reduce_attrs *)node->attrs)->name);
        }
        assert_string_equal(text, wanted);
    }
    mu_release(graph);
}

static void buckets_fill_as_gradients_become_ready(void **state)
{
    (void)state;
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph), third = negated(x), second = negated(third), first = negated(second);
    mu_edge sums[] = {reduced(first, "first", 40), reduced(second, "second", 40), reduced(third, "third", 40)};
    for (int i = 0; i < 3; i++)
        assert_int_equal(MU_PUSH(&graph->outputs, negated(sums[i])), MU_OK);
    apply(&mu_op_exp, NULL, x, NULL);
    assert_order(graph, "input, neg 0, neg 1, all_reduce 1 2 'third and 1 more', neg 2, all_reduce 4 'first', exp 0, "
                        "neg 3, neg 3, neg 5");
    assert_int_equal(mu_error_code(), MU_OK);
}

// Other reductions start when they are ready, too, but the nodes that use them are not moved.
static void others_are_not_packed(void **state)
{
    (void)state;
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph), y = negated(x), z = apply(&mu_op_exp, NULL, x, NULL);
    mu_edge one = reduced(y, "one", 0), two = reduced(z, "two", 0);
    negated(one);
    negated(two);
    assert_order(graph, "input, neg 0, all_reduce 1 'one', exp 0, all_reduce 3 'two', neg 2, neg 4");
}

// A gradient that depends on the result of a reduction is not in its bucket.
static void dependent_ones_are_apart(void **state)
{
    (void)state;
    mu_graph *graph = mu__graph_new("g");
    mu_edge x = input(graph), one = reduced(negated(x), "one", 1000), two = reduced(negated(one), "two", 1000);
    negated(two);
    apply(&mu_op_exp, NULL, x, NULL);
    assert_order(graph, "input, neg 0, all_reduce 1 'one', exp 0, neg 2, all_reduce 4 'two', neg 5");
}

static void accesses_keep_their_order(void **state)
{
    (void)state;
    mu_graph *graph = mu__graph_new("g");
    mu_variable *w = mu_variable_new(mu_zeros(MU_F32, 1, four), "w");
    mu_edge x = input(graph), before = apply(&mu_op_read_variable, NULL, x, w);
    apply(&mu_op_assign_add_variable, NULL, reduced(negated(before), "w", 1000), w);
    mu_edge after = apply(&mu_op_read_variable, NULL, x, w);
    negated(after);
    apply(&mu_op_exp, NULL, x, NULL);
    assert_order(graph,
                 "input, read_variable, neg 1, all_reduce 2 'w', exp 0, assign_add_variable 3, read_variable, neg 6");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(buckets_fill_as_gradients_become_ready),
        MODEL_TEST(others_are_not_packed),
        MODEL_TEST(dependent_ones_are_apart),
        MODEL_TEST(accesses_keep_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
