// Fuzzes what happens to a graph that reading has let pass: it is compiled for small inputs and run. Errors are fine,
// crashes are not.
//
// Bytes that are no graph choose one of this program's own (a sample of every op, and functions with bodies, gradients
// and state) and change some fields of its message, so most of what is tried gets far. Loops are cut short and plans
// that need much memory are left out: neither is a fault.
#include "engine/cpu/plan.h"
#include "graph/control/control.h"
#include "graph/wire/wire_form.h"

#include <muster.h>

#include <stdlib.h>

enum { CORPUS = 1024, ROUNDS = 32, MOST_TURNS = 3, MOST_BYTES = 1 << 22, MOST_INPUTS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct {
    void *data;
    size_t bytes;
} corpus[CORPUS];
static int n_corpus;
static uint64_t state;

static uint64_t draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

// ---- The graphs to begin with -------------------------------------------------------------------

static void keep_graph(const mu_graph *graph)
{
    if (graph && n_corpus < CORPUS && mu__graph_write(graph, &corpus[n_corpus].data, &corpus[n_corpus].bytes) == MU_OK)
        n_corpus++;
}

static void keep_sample(const mu_op *op, const mu_sample *sample, mu_dtype dtype)
{
    mu_edge in[MU_COUNT(sample->in)];
    mu_graph *graph = mu__graph_new("sample");
    for (int i = 0; i < sample->n_in; i++) {
        const mu_spec spec = {.dtype = sample->dtypes[i] ? sample->dtypes[i] : dtype, .shape = sample->in[i]};
        in[i] = (mu_edge){.node = mu__graph_input(graph, &spec, "x")};
    }
    mu_node *node = mu__graph_node(graph, op, sample->attrs, sample->n_in, in, 0, NULL);
    for (int k = 0; node && k < node->n_out; k++)
        if (MU_PUSH(&graph->outputs, ((mu_edge){.node = node, .output = k})) != MU_OK)
            abort();
    if (node)
        keep_graph(graph);
    mu_error_take();
    mu_release(graph);
}

static mu_variable *variable;

static mu_tensor *goes_on(mu_value *vars, void *arg)
{
    (void)arg;
    return mu_less(mu_reduce_sum(mu_at(vars, 0), MU_ALL_AXES), mu_constant(MU_F32, 50));
}

static mu_value *turn(mu_value *vars, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(vars, 0);
    mu_variable_assign_add(variable, mu_reduce_mean(x, 0));
    return mu_list(mu_add(mu_square(x), mu_variable_read(variable)), MU_END);
}

static mu_value *grow(mu_value *vars, void *arg)
{
    (void)arg;
    mu_tensor *x = mu_at(vars, 0);
    return mu_list(mu_concat(2, (mu_tensor *[]){x, mu_neg(x)}, 0), MU_END);
}

static mu_value *turn_of_scan(mu_value *states, mu_value *element, void *arg)
{
    (void)arg;
    return mu_list(mu_tanh(mu_add(mu_at(states, 0), mu_multiply(mu_at(element, 0), mu_variable_read(variable)))),
                   MU_END);
}

static mu_value *bend(mu_value *arguments, void *arg)
{
    (void)arg;
    return mu_list(mu_sin(mu_multiply(mu_at(arguments, 0), mu_variable_read(variable))), MU_END);
}

static mu_value *shift(mu_value *arguments, void *arg)
{
    (void)arg;
    mu_variable_assign(variable, mu_reduce_max(mu_at(arguments, 0), MU_ALL_AXES));
    return mu_list(mu_add(mu_at(arguments, 0), mu_variable_read(variable)), MU_END);
}

static mu_value *control(mu_value *arguments, void *arg)
{
    mu_tape *tape = mu_tape_open();
    mu_tensor *x = mu_at(arguments, 0);
    mu_value *looped = mu_while_loop(goes_on, turn, mu_list(x, MU_END), arg, .maximum_iterations = 3);
    mu_value *scanned = mu_scan(turn_of_scan, mu_list(x, MU_END), mu_list(mu_reduce_sum(x, MU_ALL_AXES), MU_END), arg);
    mu_value *bent = mu_cond(goes_on(looped, arg), bend, shift, scanned, arg);
    mu_value *again = mu_recompute_grad(shift, bent, arg);
    mu_tensor *y = mu_reduce_sum(mu_add(mu_at(again, 0), mu_at(mu_map_fn(bend, looped, arg), 0)), MU_ALL_AXES);
    mu_value *gradients = mu_gradients(tape, y, mu_list(x, mu_variables(variable, MU_END), MU_END));
    return mu_list(y, mu_at(gradients, 0), mu_at(mu_value_at(gradients, 1), 0), MU_END);
}

static mu_value *growing(mu_value *arguments, void *arg)
{
    mu_value *grown = mu_while_loop(goes_on, grow, arguments, arg, .maximum_iterations = 2);
    mu_tensor *x = mu_at(grown, 0), *values = NULL, *positions = NULL;
    mu_unique(x, &values, &positions);
    return mu_list(mu_multiply(values, values), positions, MU_END);
}

static mu_value *train(mu_value *arguments, void *arg)
{
    mu_optimizer *optimizer = arg;
    static mu_model *model;
    if (!model)
        model = mu_retain(mu_sequential(mu_embedding(7, 4), mu_dropout(.2), mu_dense(3, .activation = "relu"),
                                        mu_batch_normalization()));
    mu_tape *tape = mu_tape_open();
    mu_tensor *rows = mu_cast(mu_greater(mu_at(arguments, 0), mu_constant(MU_F32, 0)), MU_I64);
    mu_tensor *loss = mu_reduce_sum(mu_square(mu_call(model, rows, .training = true)), MU_ALL_AXES);
    mu_apply_gradients(optimizer, mu_gradients(tape, loss, mu_trainable_variables(model)));
    return mu_list(loss, MU_END);
}

static void keep_function(mu_traceable *fn, void *arg)
{
    mu_tensor *x = mu_tensor_new(MU_F32, 1, (int64_t[]){3}, (float[]){.5f, -1, 2});
    mu_concrete *concrete = mu__function_concrete(mu_function_new(fn, arg), mu_list(x, MU_END), false, NULL);
    if (!concrete)
        abort();
    keep_graph(concrete->graph);
}

static void make_corpus(void)
{
    mu_init(.cpu_devices = 1);
    variable = mu_variable_new(mu_constant(MU_F32, .5), "v");
    keep_function(control, NULL);
    keep_function(growing, NULL);
    keep_function(train, mu_adam());
    keep_function(train, mu_sgd(.momentum = .5));
    const int functions = n_corpus;
    for (int o = 0; o < mu__op_count(); o++) {
        const mu_op *op = mu__op_at(o);
        const bool sent = op->n_resources == 0;
        for (int s = 0; op->samples && sent && op->samples[s].n_in > 0; s++)
            keep_sample(op, &op->samples[s], op->dtypes && !(op->dtypes & MU_DTYPE_BIT(MU_F32)) ? MU_I64 : MU_F32);
    }
    if (functions != 4 || n_corpus < 100)
        abort();
}

// ---- Changing a message -------------------------------------------------------------------------

static int64_t telling_number(int64_t before)
{
    static const int64_t numbers[] = {0, 1, -1, 2, 3, 7, 8, 127, 1000, -5, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    return draw(2) ? numbers[draw(MU_COUNT(numbers))] : (int64_t)((uint64_t)before + draw(5) - 2);
}

static void change_attr(Mu__WireAttr *attr, int depth);

static void change_list(size_t n, int64_t *at)
{
    if (n > 0)
        at[draw(n)] = telling_number(at[draw(n)]);
}

static void change_graph(Mu__WireGraph *graph, int depth);

static void change_nested(ProtobufCBinaryData *bytes, int depth)
{
    Mu__WireGraph *graph = bytes->len ? mu__wire_graph__unpack(NULL, bytes->len, bytes->data) : NULL;
    if (!graph)
        return;
    change_graph(graph, depth + 1);
    free(bytes->data);
    bytes->len = mu__wire_graph__get_packed_size(graph);
    bytes->data = malloc(bytes->len + 1);
    if (!bytes->data)
        abort();
    mu__wire_graph__pack(graph, bytes->data);
    mu__wire_graph__free_unpacked(graph, NULL);
}

static void change_tensor(Mu__WireTensor *tensor)
{
    if (draw(3) && tensor->data.len)
        tensor->data.data[draw(tensor->data.len)] = (uint8_t)draw(256);
    else if (draw(2))
        tensor->dtype = (uint32_t)draw(24);
    else
        change_list(tensor->n_dims, tensor->dims);
}

static void change_attr(Mu__WireAttr *attr, int depth)
{
    switch (attr->value_case) {
    case MU__WIRE_ATTR__VALUE_INTEGER: attr->integer = telling_number(attr->integer); return;
    case MU__WIRE_ATTR__VALUE_REAL: attr->real = draw(2) ? (double)telling_number(0) : attr->real * -2; return;
    case MU__WIRE_ATTR__VALUE_BOOLEAN: attr->boolean = !attr->boolean; return;
    case MU__WIRE_ATTR__VALUE_INTS:
    case MU__WIRE_ATTR__VALUE_SHAPE:
        if (attr->ints->n_at && draw(4) == 0)
            attr->ints->n_at--;
        else
            change_list(attr->ints->n_at, attr->ints->at);
        return;
    case MU__WIRE_ATTR__VALUE_DTYPE: attr->dtype = (uint32_t)draw(24); return;
    case MU__WIRE_ATTR__VALUE_TENSOR: change_tensor(attr->tensor); return;
    case MU__WIRE_ATTR__VALUE_GRAPH: change_nested(&attr->graph, depth); return;
    default: return;
    }
}

static void change_edge(const Mu__WireGraph *graph, uint32_t *node, uint32_t *output)
{
    if (draw(4))
        *node = (uint32_t)draw(graph->n_nodes);
    if (draw(2))
        *output = (uint32_t)draw(3);
}

static void change_node(Mu__WireGraph *graph, Mu__WireNode *node, int depth)
{
    switch (draw(6)) {
    case 0:
        if (node->n_inputs && node->n_inputs == node->n_input_outputs) {
            const size_t i = draw(node->n_inputs);
            change_edge(graph, &node->inputs[i], &node->input_outputs[i]);
        }
        return;
    case 1:
        free(node->op);
        if (!(node->op = strdup(mu__op_at((int)draw((uint64_t)mu__op_count()))->name)))
            abort();
        return;
    case 2:
        if (node->n_inputs > 0 && node->n_inputs == node->n_input_outputs)
            node->n_inputs--, node->n_input_outputs--;
        return;
    case 3:
        if (node->n_resources > 0)
            node->resources[draw(node->n_resources)] = (uint32_t)draw(graph->n_resources + 1);
        return;
    default:
        if (node->n_attrs > 0)
            change_attr(node->attrs[draw(node->n_attrs)], depth);
    }
}

static void change_graph(Mu__WireGraph *graph, int depth)
{
    const uint64_t what = draw(12);
    if (graph->n_nodes == 0)
        return;
    if (what == 0 && graph->n_outputs && graph->n_outputs == graph->n_output_outputs) {
        const size_t i = draw(graph->n_outputs);
        change_edge(graph, &graph->outputs[i], &graph->output_outputs[i]);
    } else if (what == 1 && graph->n_resources) {
        Mu__WireResource *resource = graph->resources[draw(graph->n_resources)];
        if (draw(2))
            resource->dtype = (uint32_t)draw(24);
        else
            change_list(resource->n_dims, resource->dims);
    } else {
        change_node(graph, graph->nodes[draw(graph->n_nodes)], depth);
    }
}

// ---- Running ------------------------------------------------------------------------------------

static mu_resource *make_variable(void *arg, const char *kind, const char *name, const mu_spec *spec)
{
    (void)arg;
    if (strcmp(kind, "variable") != 0 || !mu__shape_known(&spec->shape) || mu__spec_bytes(spec) > 4096)
        return NULL;
    mu_variable *made = mu_variable_new(mu_tensor_new(spec->dtype, spec->shape.rank, spec->shape.dims, NULL), name);
    return made ? &made->resource : NULL;
}

// Loops may make few turns: their limits must be small constants, or say how long something is.
static bool is_short(const mu_graph *graph)
{
    mu_graph *body;
    bool all = true;
    for (size_t i = 0; all && i < graph->nodes.n; i++) {
        const mu_node *node = graph->nodes.items[i];
        for (int b = 0; all && (body = mu__node_body(node, b)); b++)
            all = is_short(body);
        if (node->op != &mu_op_while_loop || !all)
            continue;
        const mu_node *limit = node->in[0].node;
        if (limit->op == &mu_op_constant) {
            int64_t *turns = mu__host_write(((const mu_constant_attrs *)limit->attrs)->tensor);
            *turns = MU_MIN(*turns, MOST_TURNS);
        } else {
            all = limit->op == &mu_op_dim_size || (limit->op == &mu_op_while_loop && node->in[0].output == 0);
        }
    }
    return all;
}

static mu_tensor *small_input(mu_spec spec)
{
    for (int k = 0; k < spec.shape.rank; k++)
        if (spec.shape.dims[k] == MU_UNKNOWN)
            spec.shape.dims[k] = (int64_t)draw(4);
    if (mu__elements(&spec.shape) > 4096)
        return NULL;
    mu_tensor *tensor = mu_tensor_new(spec.dtype, spec.shape.rank, spec.shape.dims, NULL);
    for (int64_t i = 0; tensor && i < mu_tensor_elements(tensor); i++) {
        const double number = draw(8) ? (double)draw(9) / 2 - 1 : (double)telling_number(0);
        mu__write_element(spec.dtype, mu__host_write(tensor), i, spec.dtype == MU_BOOL ? draw(2) : number);
    }
    return tensor;
}

static bool is_small(const mu_plan *plan)
{
    size_t bytes = mu__cpu_bytes(plan);
    for (int i = 0; i < plan->n_values && bytes < MOST_BYTES; i++)
        bytes += MU_MIN(plan->values[i].bytes, (size_t)MOST_BYTES);
    return bytes < MOST_BYTES;
}

static void run_plan(mu_plan *plan, size_t n_out, mu_tensor *const *in)
{
    mu_tensor **out = mu__calloc(n_out + 1, sizeof *out);
    const mu_run_args args = {.in = in, .out = out};
    if (out && mu__cpu_run(plan, &args) == MU_OK)
        for (size_t i = 0; i < n_out; i++)
            mu_release(out[i]);
    mu__free(out);
}

static void compile_and_run(const mu_graph *graph)
{
    static mu_device device = {.engine = &mu__engine_cpu, .name = "fuzz", .team = {.n_threads = 1}};
    mu_tensor *in[MOST_INPUTS];
    mu_spec specs[MOST_INPUTS];
    if (graph->inputs.n > MOST_INPUTS || !is_short(graph))
        return;
    for (size_t i = 0; i < graph->inputs.n; i++) {
        if (!(in[i] = small_input(graph->inputs.items[i]->out[0])))
            return;
        specs[i] = mu__spec_of(in[i]);
    }
    mu_graph *lowered = mu__cpu_lower(graph);
    mu_plan *plan = lowered ? mu__cpu_compile(&device, lowered, specs, (int)graph->inputs.n) : NULL;
    if (plan && is_small(plan))
        run_plan(plan, graph->outputs.n, in);
    mu__cpu_free(plan);
    mu_release(lowered);
    mu__cpu_close_device(&device);
}

static bool try_graph(const void *data, size_t bytes)
{
    mu_pool *pool = mu_pool_open();
    mu_graph *graph = mu__graph_read(data, bytes, make_variable, NULL);
    const bool read = graph != NULL;
    if (read) {
        compile_and_run(graph);
        mu_error_take();
        mu_graph *pure = mu__pass_state(graph);
        if (pure && mu__graph_check(pure) != MU_OK)
            abort();
        mu_release(pure);
    }
    mu_release(graph);
    mu_error_take();
    mu_pool_close(pool);
    return read;
}

static void try_changed(int which)
{
    Mu__WireGraph *graph = mu__wire_graph__unpack(NULL, corpus[which].bytes, corpus[which].data);
    if (!graph)
        abort();
    for (uint64_t n = 1 + draw(3); n > 0; n--)
        change_graph(graph, 0);
    const size_t bytes = mu__wire_graph__get_packed_size(graph);
    uint8_t *packed = malloc(bytes + 1);
    if (!packed)
        abort();
    mu__wire_graph__pack(graph, packed);
    try_graph(packed, bytes);
    free(packed);
    mu__wire_graph__free_unpacked(graph, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (n_corpus == 0)
        make_corpus();
    state = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        state = (state ^ data[i]) * 0x100000001b3u;
    state += !state;
    if (try_graph(data, bytes))
        return 0;
    // A graph with bodies comes as often as one of the many with a single op.
    for (int round = 0; round < ROUNDS; round++)
        try_changed((int)draw(2) ? (int)draw(4) : (int)draw((uint64_t)n_corpus));
    return 0;
}
