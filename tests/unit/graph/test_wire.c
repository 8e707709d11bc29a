// The serialised form: a graph that was written is read as the same graph, and a wrong graph is never accepted.
//
// Wrong graphs are made by damaging the nodes of a real one in memory before it is written, and by damaging the
// bytes; damaged bytes without end are left to the fuzzer (fuzz_graph.c).
#include "../model/model_test.h"
#include "printed.h"
#include "same_resource.h"

#include "engine/cpu/fused_ops.h"
#include "model/optimizers/optimizer.h"

static mu_model *model;
static mu_optimizer *optimizer;

// ---- Help ---------------------------------------------------------------------------------------

static mu_graph *through_bytes(const mu_graph *graph)
{
    void *bytes;
    size_t size;
    if (mu__graph_write(graph, &bytes, &size) != MU_OK)
        return NULL;
    mu_graph *read = mu__graph_read(bytes, size, same_resource, (void *)graph);
    mu__free(bytes);
    return read;
}

static void expect_same_attrs(const mu_node *a, const mu_node *b)
{
    if (a->op == &mu_op_constant) {
        const mu_tensor *x = ((const mu_constant_attrs *)a->attrs)->tensor,
                        *y = ((const mu_constant_attrs *)b->attrs)->tensor;
        const mu_spec spec = mu__spec_of(x);
        assert_memory_equal(mu__host_read(x), mu__host_read(y), mu__spec_bytes(&spec));
    } else if (a->attrs && memcmp(a->attrs, b->attrs, a->op->attrs_bytes) != 0) {
        fail_msg("node %d (%s) has other attributes than were written", a->id, a->op->name);
    }
}

static void expect_round_trip(const mu_graph *graph)
{
    mu_graph *read = through_bytes(graph);
    if (!read)
        fail_msg("%s", mu_error_message());
    char *before = printed(graph), *after = printed(read);
    assert_string_equal(before, after);
    for (size_t i = 0; i < graph->nodes.n; i++)
        expect_same_attrs(graph->nodes.items[i], read->nodes.items[i]);
    assert_int_equal(graph->collective, read->collective);
    assert_int_equal(graph->inputs.n, read->inputs.n);
    free(before);
    free(after);
    mu_release(read);
}

// Returns a graph with one application of an op to inputs of the sample's shapes; NULL if the op refuses them.
static mu_graph *graph_of_sample(const mu_op *op, const mu_sample *sample, mu_dtype dtype)
{
    mu_edge in[MU_COUNT(sample->in)];
    mu_graph *graph = mu__graph_new("sample");
    assert_non_null(graph);
    for (int i = 0; i < sample->n_in; i++) {
        const mu_spec spec = {.dtype = sample->dtypes[i] ? sample->dtypes[i] : dtype, .shape = sample->in[i]};
        in[i] = (mu_edge){.node = mu__graph_input(graph, &spec, "x")};
        assert_non_null(in[i].node);
    }
    mu_node *node = mu__graph_node(graph, op, sample->attrs, sample->n_in, in, 0, NULL);
    if (node && node->n_out > 0)
        assert_int_equal(MU_PUSH(&graph->outputs, ((mu_edge){.node = node})), MU_OK);
    if (node)
        return graph;
    mu_error_take();
    mu_release(graph);
    return NULL;
}

static int each_sample(int (*check)(mu_graph *graph))
{
    int cases = 0;
    for (int o = 0; o < mu__op_count(); o++) {
        const mu_op *op = mu__op_at(o);
        const bool sent = op->n_resources == 0;
        for (int s = 0; op->samples && sent && op->samples[s].n_in > 0; s++) {
            mu_pool *pool = mu_pool_open();
            mu_graph *graph = graph_of_sample(op, &op->samples[s], MU_F32);
            cases += graph ? check(graph) : 0;
            mu_release(graph);
            mu_pool_close(pool);
        }
    }
    return cases;
}

// ---- Round trips --------------------------------------------------------------------------------

static int check_round_trip(mu_graph *graph)
{
    expect_round_trip(graph);
    return 1;
}

static void every_op_comes_back_as_it_was(void **state)
{
    (void)state;
    assert_true(each_sample(check_round_trip) > 100);
}

static mu_value *train_step(mu_value *batch, void *arg)
{
    (void)arg;
    mu_tape *tape = mu_tape_open();
    mu_tensor *logits = mu_call(model, mu_at(batch, 0), .training = true);
    mu_tensor *loss =
        mu_compute_average_loss(mu_nn_sparse_softmax_cross_entropy(mu_at(batch, 1), logits), .global_batch_size = 4);
    mu_apply_gradients(optimizer, mu_gradients(tape, loss, mu_trainable_variables(model)));
    return mu_list(mu_of(loss), mu_of(logits), MU_END);
}

// A training step with convolution, pooling, gradients and Adam; borrowed from the function.
static mu_graph *training_graph(void)
{
    model = mu_sequential(mu_conv2d(4, 3, .activation = "relu"), mu_max_pool2d(2), mu_flatten(), mu_dense(5));
    optimizer = mu_adam(.learning_rate = 1e-3);
    mu_value *batch = mu_list(mu_of(numbers(4, (int64_t[]){4, 8, 8, 1}, 1)), mu_of(classes(4, 5, 2)), MU_END);
    mu_concrete *concrete = mu__function_concrete(mu_function_new(train_step, NULL), batch, true, NULL);
    if (!concrete)
        fail_msg("%s", mu_error_message());
    return concrete->graph;
}

static void a_training_step_comes_back_as_it_was(void **state)
{
    (void)state;
    mu_graph *graph = training_graph();
    assert_true(graph->resources.n >= 12); // weights, two slots for each, the count of steps
    expect_round_trip(graph);
}

static void writing_twice_gives_the_same_bytes(void **state)
{
    void *first, *second;
    size_t n_first, n_second;
    (void)state;
    mu_graph *graph = training_graph();
    assert_int_equal(mu__graph_write(graph, &first, &n_first), MU_OK);
    mu_graph *read = mu__graph_read(first, n_first, same_resource, graph);
    assert_non_null(read);
    assert_int_equal(mu__graph_write(read, &second, &n_second), MU_OK);
    assert_int_equal(n_first, n_second);
    assert_memory_equal(first, second, n_first);
    mu__free(first);
    mu__free(second);
    mu_release(read);
}

// ---- Refusals -----------------------------------------------------------------------------------

static const int64_t odd_numbers[] = {-1,        -2,        0,        1, 7, 8, 9, 25, INT32_MAX, (int64_t)INT32_MAX + 1,
                                      INT32_MIN, INT64_MAX, INT64_MIN};

// Reads the damaged bytes: the result is a graph or an error record.
static void try_damaged(const mu_graph *graph)
{
    mu_graph *read = through_bytes(graph);
    if (!read == !mu__pending())
        fail_msg("the reader gave neither a graph nor an error, or both");
    mu_error_take();
    mu_release(read);
}

static void damage_ints(const mu_graph *graph, mu_ints *ints)
{
    const mu_ints kept = *ints;
    for (size_t k = 0; k < MU_COUNT(odd_numbers); k++)
        for (int64_t at = 0; at < kept.n; at++) {
            *ints = kept;
            ints->at[at] = odd_numbers[k];
            try_damaged(graph);
        }
    for (int64_t n = 0; n <= MU_MAX_INTS; n++) {
        *ints = kept;
        ints->n = n;
        try_damaged(graph);
    }
    *ints = kept;
}

static void damage_shape(const mu_graph *graph, mu_shape *shape)
{
    const mu_shape kept = *shape;
    for (size_t k = 0; k < MU_COUNT(odd_numbers); k++)
        for (int at = 0; at < kept.rank; at++) {
            shape->dims[at] = odd_numbers[k];
            try_damaged(graph);
            *shape = kept;
        }
    for (shape->rank = 0; shape->rank <= MU_MAX_RANK; shape->rank++)
        try_damaged(graph);
    *shape = kept;
}

static void damage_number(const mu_graph *graph, const mu_attr_spec *spec, void *field)
{
    for (size_t k = 0; k < MU_COUNT(odd_numbers); k++) {
        if (spec->kind == MU_ATTR_INT) {
            const int64_t kept = *(int64_t *)field;
            *(int64_t *)field = odd_numbers[k];
            try_damaged(graph);
            *(int64_t *)field = kept;
        } else if (spec->kind == MU_ATTR_REAL) {
            const double kept = *(double *)field;
            *(double *)field = k % 2 ? NAN : (double)odd_numbers[k] * 1e300;
            try_damaged(graph);
            *(double *)field = kept;
        } else if (spec->kind == MU_ATTR_DTYPE) {
            const mu_dtype kept = *(mu_dtype *)field;
            *(mu_dtype *)field = (mu_dtype)k;
            try_damaged(graph);
            *(mu_dtype *)field = kept;
        }
    }
}

static void damage_text(const mu_graph *graph, char *text, size_t bytes)
{
    char kept[MU_ATTR_MESSAGE_BYTES];
    memcpy(kept, text, bytes);
    memset(text, '%', bytes - 1);
    try_damaged(graph);
    *text = 0;
    try_damaged(graph);
    memcpy(text, kept, bytes);
}

static int check_damaged_attributes(mu_graph *graph)
{
    mu_node *node = graph->nodes.items[graph->nodes.n - 1];
    int fields = 0;
    for (const mu_attr_spec *spec = node->op->attrs; spec && spec->name; spec++, fields++) {
        void *field = (char *)(uintptr_t)node->attrs + spec->offset;
        if (spec->kind == MU_ATTR_INTS)
            damage_ints(graph, field);
        else if (spec->kind == MU_ATTR_SHAPE)
            damage_shape(graph, field);
        else if (spec->kind == MU_ATTR_TEXT)
            damage_text(graph, field, MU_ATTR_TEXT_BYTES);
        else if (spec->kind == MU_ATTR_MESSAGE)
            damage_text(graph, field, MU_ATTR_MESSAGE_BYTES);
        else
            damage_number(graph, spec, field);
    }
    return fields;
}

// The shape rules see attributes that no function of the library would have made.
static void attributes_out_of_range_are_refused_or_harmless(void **state)
{
    (void)state;
    assert_true(each_sample(check_damaged_attributes) > 50);
}

static void expect_refused(const mu_graph *graph, mu_status code, const char *part)
{
    mu_graph *read = through_bytes(graph);
    assert_null(read);
    const mu_error error = mu_error_take();
    if (error.code != code || !strstr(error.message, part))
        fail_msg("code %d instead of %d, or no \"%s\" in: %s", (int)error.code, (int)code, part, error.message);
}

// x, y, exp(x), x + y
static mu_graph *small_graph(void)
{
    const mu_spec spec = {.dtype = MU_F32, .shape = {.rank = 1, .dims = {3}}};
    mu_graph *graph = mu__graph_new("small");
    const mu_edge x = {.node = mu__graph_input(graph, &spec, "x")}, y = {.node = mu__graph_input(graph, &spec, "y")};
    mu_node *exp = mu__graph_node(graph, &mu_op_exp, NULL, 1, &x, 0, NULL);
    mu_node *sum = mu__graph_node(graph, &mu_op_add, NULL, 2, (mu_edge[]){x, y}, 0, NULL);
    assert_non_null(exp);
    assert_non_null(sum);
    assert_int_equal(MU_PUSH(&graph->outputs, ((mu_edge){.node = sum})), MU_OK);
    return graph;
}

static void wrong_nodes_are_refused_by_number_and_op(void **state)
{
    (void)state;
    mu_graph *graph = small_graph();
    mu_node *exp = graph->nodes.items[2], *sum = graph->nodes.items[3];
    mu_op stranger = mu_op_exp;
    stranger.name = "mine";
    exp->op = &stranger;
    expect_refused(graph, MU_INVALID_ARGUMENT, "in node 2 (op mine)");
    exp->op = &mu_op_exp;

    exp->in[0].node = sum;
    expect_refused(graph, MU_DATA_LOSS, "in node 2 (op exp)");
    exp->in[0] = (mu_edge){.node = graph->nodes.items[0], .output = 1};
    expect_refused(graph, MU_DATA_LOSS, "output 1 of node 0 (input), which has 1");
    exp->in[0].output = 0;

    sum->n_in = 1;
    expect_refused(graph, MU_INVALID_ARGUMENT, "in node 3 (op add)");
    sum->n_in = 2;
    exp->op = &mu_op_cast;
    expect_refused(graph, MU_DATA_LOSS, "0 attributes are given; the op has 1");
    exp->op = &mu_op_exp;
    exp->n_resources = 1;
    exp->resources = &(int){0};
    expect_refused(graph, MU_DATA_LOSS, "resource number 0 is used; the graph has 0");
    exp->n_resources = 0;
    expect_round_trip(graph);
    mu_release(graph);
}

static void wrong_lists_are_refused(void **state)
{
    (void)state;
    mu_graph *graph = small_graph();
    mu_node **inputs = graph->inputs.items, *second = inputs[1];
    inputs[1] = inputs[0];
    expect_refused(graph, MU_DATA_LOSS, "was listed before");
    inputs[1] = graph->nodes.items[2];
    expect_refused(graph, MU_DATA_LOSS, "which is not an input");
    inputs[1] = second;
    graph->inputs.n = 1;
    expect_refused(graph, MU_DATA_LOSS, "1 inputs are listed, but 2 nodes are inputs");
    graph->inputs.n = 2;
    graph->outputs.items[0].output = 5;
    expect_refused(graph, MU_DATA_LOSS, "output 5 of node 3 (add)");
    graph->outputs.items[0].output = 0;
    mu_release(graph);
}

static void ops_of_engines_are_refused(void **state)
{
    (void)state;
    mu_graph *graph = graph_of_sample(&mu__op_relu_max_pool2d, mu__op_relu_max_pool2d.samples, MU_F32);
    assert_non_null(graph);
    expect_refused(graph, MU_INVALID_ARGUMENT, "there is no op of this name here");
    mu_release(graph);
}

static void a_bool_is_0_or_1(void **state)
{
    (void)state;
    mu_graph *graph = mu__graph_new("bools");
    mu_tensor *tensor = mu_tensor_new(MU_BOOL, 1, (int64_t[]){3}, NULL);
    assert_non_null(mu__graph_constant(graph, tensor));
    expect_round_trip(graph);
    ((uint8_t *)mu__host_write(tensor))[1] = 2;
    expect_refused(graph, MU_DATA_LOSS, "it must be 0 or 1");
    mu_release(graph);
}

static mu_value *use_variables(mu_value *arguments, void *arg)
{
    mu_variable **variables = arg;
    mu_variable_assign_add(variables[0], mu_at(arguments, 0));
    return mu_of(mu_add(mu_variable_read(variables[0]), mu_variable_read(variables[1])));
}

static mu_resource *nothing(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    (void)arg;
    (void)kind;
    (void)name;
    (void)spec;
    return NULL;
}

// Returns the same variable, whatever name is asked for.
static mu_resource *always(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    (void)kind;
    (void)name;
    (void)spec;
    return arg;
}

static void resources_are_found_by_name_and_checked(void **state)
{
    (void)state;
    mu_traced traced;
    mu_value *like = mu_of(mu_constant(MU_F64, 0));
    const mu_spec scalar = {.dtype = MU_F64};
    mu_variable *variables[] = {mu_variable_new(mu_constant(MU_F64, 1), "a"),
                                mu_variable_new(mu_constant(MU_F64, 1), "b")};
    assert_int_equal(mu__trace_run("two", use_variables, variables, like, &scalar, true, &traced), MU_OK);
    expect_round_trip(traced.graph);
    void *bytes;
    size_t size;
    assert_int_equal(mu__graph_write(traced.graph, &bytes, &size), MU_OK);
    assert_null(mu__graph_read(bytes, size, nothing, NULL));
    assert_int_equal(mu_error_take().code, MU_NOT_FOUND);
    assert_null(mu__graph_read(bytes, size, always, &variables[0]->resource));
    assert_int_equal(mu_error_take().code, MU_DATA_LOSS);
    mu_variable *other = mu_variable_new(mu_constant(MU_F32, 1), "a");
    assert_null(mu__graph_read(bytes, size, always, &other->resource));
    assert_int_equal(mu_error_take().code, MU_INVALID_ARGUMENT);
    mu__free(bytes);
    char *kept = variables[1]->resource.name;
    variables[1]->resource.name = variables[0]->resource.name;
    expect_refused(traced.graph, MU_INVALID_ARGUMENT, "two resources named 'a'");
    variables[1]->resource.name = kept;
    mu_release(traced.graph);
    mu_release(traced.inputs);
    mu_release(traced.outputs);
}

static void cut_off_and_foreign_bytes_are_refused(void **state)
{
    void *bytes;
    size_t size;
    (void)state;
    mu_graph *graph = small_graph();
    assert_int_equal(mu__graph_write(graph, &bytes, &size), MU_OK);
    for (size_t n = 0; n < size; n++) {
        mu_graph *read = mu__graph_read(bytes, n, same_resource, graph);
        assert_null(read);
        assert_int_equal(mu_error_take().code, MU_DATA_LOSS);
    }
    uint8_t *version = (uint8_t *)bytes + size - 1; // stands last
    assert_int_equal(*version, 1);
    *version = 2;
    assert_null(mu__graph_read(bytes, size, same_resource, graph));
    assert_non_null(strstr(mu_error_take().message, "version 2"));
    mu__free(bytes);
    mu_release(graph);
}

// An empty node takes two bytes on the wire and far more in memory: parsing stops at its budget.
static void a_small_message_cannot_take_much_memory(void **state)
{
    enum { NODES = 4000000 };
    (void)state;
    uint8_t *bytes = malloc(2 * NODES);
    assert_non_null(bytes);
    for (size_t i = 0; i < NODES; i++)
        memcpy(bytes + 2 * i, (uint8_t[]){3 << 3 | 2, 0}, 2);
    assert_null(mu__graph_read(bytes, 2 * NODES, nothing, NULL));
    assert_int_equal(mu_error_take().code, MU_DATA_LOSS);
    free(bytes);
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    mu_graph *graph = small_graph();
    assert_non_null(mu__graph_constant(graph, mu_constant(MU_F32, 3)));
    mu_graph *read = NULL;
    for (long n = 1; !read && n < 1000; n++) {
        mu__alloc_fail_at(n);
        read = through_bytes(graph);
        mu__alloc_fail_at(0);
        if (!read)
            assert_int_equal(mu_error_take().code, MU_RESOURCE_EXHAUSTED);
    }
    assert_non_null(read);
    mu_release(read);
    mu_release(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(every_op_comes_back_as_it_was),
        MODEL_TEST(a_training_step_comes_back_as_it_was),
        MODEL_TEST(writing_twice_gives_the_same_bytes),
        MODEL_TEST(attributes_out_of_range_are_refused_or_harmless),
        MODEL_TEST(wrong_nodes_are_refused_by_number_and_op),
        MODEL_TEST(wrong_lists_are_refused),
        MODEL_TEST(ops_of_engines_are_refused),
        MODEL_TEST(a_bool_is_0_or_1),
        MODEL_TEST(resources_are_found_by_name_and_checked),
        MODEL_TEST(cut_off_and_foreign_bytes_are_refused),
        MODEL_TEST(a_small_message_cannot_take_much_memory),
        MODEL_TEST(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
