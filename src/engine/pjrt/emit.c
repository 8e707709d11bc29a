// Writes a graph under known shapes as StableHLO text in generic form: one function @main.
//
// Each node is lowered by its row, in program order. Values are %v0, %v1, …; the first are the arguments. The
// text is plain data: it is checked by the plugin that compiles it, which names the line. Knows no plugin.
#include "engine/pjrt/pjrt.h"
#include "ops/lower.h"

#include <stdarg.h>

typedef struct writer {
    mu_emitter emitter;       // first
    const mu_graph *graph;
    mu_program *program;
    mu_arena memory;
    int n_values;             // in the text
    int *first;               // of each node, into values
    mu_hlo *values;           // outputs of all nodes
    mu_hlo *state;            // of each resource, at this point
} writer;

// ---- Text ---------------------------------------------------------------------------------------

MU_PRINTF(2, 3) static void print(writer *w, const char *format, ...)
{
    mu_program *program = w->program;
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    const int length = vsnprintf(NULL, 0, format, values);
    va_end(values);
    if (w->emitter.status == MU_OK && length >= 0)
        w->emitter.status = mu__grow((void **)&program->text.items, &program->text.capacity, program->text.n + (size_t)length + 1, 1);
    if (w->emitter.status == MU_OK) {
        vsnprintf(program->text.items + program->text.n, (size_t)length + 1, format, again);
        program->text.n += (size_t)length;
    }
    va_end(again);
}

static void print_type(writer *w, const mu_spec *spec)
{
    char text[MU_MAX_RANK * 24 + 32];
    int used = snprintf(text, sizeof text, "tensor<");
    for (int i = 0; i < spec->shape.rank; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%lldx", (long long)spec->shape.dims[i]);
    print(w, "%s%s>", text, mu__dtype_hlo(spec->dtype));
}

static mu_hlo add(mu_emitter *emitter, const mu_spec *spec, const char *op, int n, const mu_hlo *operands, const char *rest)
{
    writer *w = (writer *)emitter;
    mu_hlo value = {.id = -1, .spec = *spec};
    for (int i = 0; i < n; i++)
        if (operands[i].id < 0 && emitter->status == MU_OK)
            emitter->status = mu__error(MU_INTERNAL, "%s is written with operand %d missing", op, i);
    if (emitter->status != MU_OK)
        return value;
    print(w, "    %%v%d = \"%s\"(", w->n_values, op);
    for (int i = 0; i < n; i++)
        print(w, "%s%%v%d", i ? ", " : "", operands[i].id);
    print(w, ") %s : (", rest ? rest : "");
    for (int i = 0; i < n; i++) {
        print(w, "%s", i ? ", " : "");
        print_type(w, &operands[i].spec);
    }
    print(w, ") -> ");
    print_type(w, spec);
    print(w, "\n");
    if (emitter->status == MU_OK)
        value.id = w->n_values++;
    return value;
}

// ---- Nodes --------------------------------------------------------------------------------------

static mu_status infer(writer *w, const mu_node *node, const mu_lowering *l)
{
    const size_t n = (size_t)(node->n_in + node->n_out + node->n_resources);
    mu_spec *specs = mu__calloc(n + 1, sizeof *specs), *out = specs + node->n_in + node->n_resources;
    if (!specs)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        specs[i] = l->in[i].spec;
    for (int i = 0; i < node->n_resources; i++)
        specs[node->n_in + i] = l->state[i].spec;
    mu_infer rule = {.op = node->op, .attrs = node->attrs, .n_in = node->n_in, .n_out = node->n_out, .n_resources = node->n_resources,
                     .in = specs, .resources = specs + node->n_in, .out = out};
    mu_status status = mu__infer_call(&rule);
    for (int i = 0; status == MU_OK && i < node->n_out; i++) {
        l->out[i] = (mu_hlo){.id = -1, .spec = out[i]};
        if (!mu__shape_known(&out[i].shape))
            status = mu__error(MU_UNIMPLEMENTED, "op %s in '%s' has an output whose shape depends on elements; call it outside of "
                               "traced functions", node->op->name, w->graph->name);
    }
    mu__free(specs);
    return status;
}

static mu_status lower(mu_lowering *l)
{
    const mu_op *op = l->op;
    if (!op->lower && !op->hlo)
        return mu__error(MU_UNIMPLEMENTED, "op %s has no StableHLO lowering (`muster ops` lists which have); run the function on a "
                         "CPU device", op->name);
    MU_TRY(op->lower ? op->lower(l) : mu__lower_elementwise(l));
    for (int i = 0; i < l->n_out; i++)
        if (l->out[i].id < 0)
            return mu__error(MU_INTERNAL, "op %s: the lowering leaves output %d out", op->name, i);
    return MU_OK;
}

static mu_status emit_node(writer *w, const mu_node *node)
{
    mu_hlo *in = mu__arena_alloc(&w->memory, sizeof *in * (size_t)(node->n_in + 1));
    mu_hlo *state = mu__arena_alloc(&w->memory, sizeof *state * (size_t)(node->n_resources + 1));
    if (!in || !state)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        in[i] = w->values[w->first[node->in[i].node->id] + node->in[i].output];
    for (int i = 0; i < node->n_resources; i++)
        state[i] = w->state[node->resources[i]];
    mu_lowering l = {.emitter = &w->emitter, .op = node->op, .attrs = node->attrs, .n_in = node->n_in, .n_out = node->n_out,
                     .n_resources = node->n_resources, .in = in, .state = state, .out = w->values + w->first[node->id]};
    MU_TRY(infer(w, node, &l));
    print(w, "    // %s\n", node->op->name);
    MU_TRY(lower(&l));
    for (int i = 0; i < node->n_resources; i++)
        w->state[node->resources[i]] = state[i];
    return w->emitter.status;
}

// ---- The function -------------------------------------------------------------------------------

static void print_list(writer *w, int n, const mu_hlo *values, bool names, bool types)
{
    for (int i = 0; i < n; i++) {
        print(w, "%s", i ? ", " : "");
        if (names)
            print(w, "%%v%d%s", values[i].id, types ? ": " : "");
        if (types)
            print_type(w, &values[i].spec);
    }
}

static mu_hlo *take_arguments(writer *w, const mu_spec *inputs, const mu_pjrt_state *state, int *n)
{
    const mu_graph *graph = w->graph;
    mu_hlo *arguments = mu__arena_alloc(&w->memory, sizeof *arguments * (graph->inputs.n + (size_t)state->n_taken + 1));
    if (!arguments)
        return NULL;
    for (size_t i = 0; i < graph->inputs.n; i++) {
        arguments[w->n_values] = (mu_hlo){.id = w->n_values, .spec = inputs[i]};
        w->values[w->first[graph->inputs.items[i]->id]] = arguments[w->n_values++];
    }
    for (int i = 0; i < state->n_taken; i++) {
        arguments[w->n_values] = (mu_hlo){.id = w->n_values, .spec = graph->resources.items[state->taken[i]]->spec};
        w->state[state->taken[i]] = arguments[w->n_values++];
    }
    *n = w->n_values;
    return arguments;
}

static mu_hlo *leave_results(writer *w, const mu_pjrt_state *state, int *n)
{
    const mu_graph *graph = w->graph;
    mu_hlo *results = mu__arena_alloc(&w->memory, sizeof *results * (graph->outputs.n + (size_t)state->n_left + 1));
    if (!results)
        return NULL;
    *n = 0;
    for (size_t i = 0; i < graph->outputs.n; i++) {
        const mu_edge edge = graph->outputs.items[i];
        results[(*n)++] = w->values[w->first[edge.node->id] + edge.output];
    }
    for (int i = 0; i < state->n_left; i++)
        results[(*n)++] = w->state[state->left[i]];
    return results;
}

static mu_status prepare(writer *w)
{
    const mu_graph *graph = w->graph;
    int n = 0;
    w->first = mu__arena_alloc(&w->memory, sizeof *w->first * (graph->nodes.n + 1));
    w->state = mu__arena_alloc(&w->memory, sizeof *w->state * (graph->resources.n + 1));
    for (size_t i = 0; w->first && i < graph->nodes.n; i++) {
        w->first[i] = n;
        n += graph->nodes.items[i]->n_out;
    }
    w->values = mu__arena_alloc(&w->memory, sizeof *w->values * (size_t)(n + 1));
    return w->first && w->state && w->values ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// The body comes first, because the types of its results stand in the function's head.
static mu_status write_program(writer *w, const mu_spec *inputs, const mu_pjrt_state *state, mu_program *out, mu_spec *outputs)
{
    const mu_graph *graph = w->graph;
    MU_TRY(prepare(w));
    mu_hlo *arguments = take_arguments(w, inputs, state, &out->n_arguments);
    if (!arguments)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (graph->nodes.items[i]->op != &mu_op_input)
            MU_TRY(emit_node(w, graph->nodes.items[i]));
    mu_hlo *results = leave_results(w, state, &out->n_results);
    if (!results)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->outputs.n; i++)
        outputs[i] = results[i].spec;
    const mu_program body = *w->program;
    w->program = out;
    print(w, "module @muster {\n  func.func public @main(");
    print_list(w, out->n_arguments, arguments, true, true);
    print(w, ") -> (");
    print_list(w, out->n_results, results, false, true);
    print(w, ") {\n%s    \"func.return\"(", body.text.items ? body.text.items : "");
    print_list(w, out->n_results, results, true, false);
    print(w, ") : (");
    print_list(w, out->n_results, results, false, true);
    print(w, ") -> ()\n  }\n}\n");
    return w->emitter.status;
}

mu_status mu__pjrt_emit(const mu_graph *graph, const mu_spec *inputs, const mu_pjrt_state *state, mu_program *out,
                        mu_spec *outputs)
{
    mu_program body = {0};
    writer w = {.emitter = {.replicas = 1, .add = add}, .graph = graph, .program = &body};
    *out = (mu_program){0};
    const mu_status status = write_program(&w, inputs, state, out, outputs);
    mu__free(body.text.items);
    mu__arena_free(&w.memory);
    if (status == MU_OK)
        return MU_OK;
    mu__free(out->text.items);
    *out = (mu_program){0};
    return status;
}
