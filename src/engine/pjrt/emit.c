// Writes a pure graph with known shapes as StableHLO text in generic form: one function @main for each part.
//
// Each node is lowered by its op's definition, in program order. Values are named %v0, %v1, …, starting with the
// arguments. The plugin that compiles the text checks it and reports errors by line.
#include "engine/pjrt/pjrt.h"
#include "ops/core/lower.h"

#include <stdarg.h>

typedef struct writer {
    mu_emitter emitter;       // first member
    const mu_graph *graph;
    const mu_pjrt_parts *parts;
    mu_pjrt_text *text;
    mu_arena memory;
    int n_values;             // values in the text
    mu_hlo *slots;            // outputs of all nodes
} writer;

// ---- Text ---------------------------------------------------------------------------------------

MU_PRINTF(2, 3) static void print(writer *w, const char *format, ...)
{
    mu_pjrt_text *text = w->text;
    va_list values, again;
    va_start(values, format);
    va_copy(again, values);
    const int length = vsnprintf(NULL, 0, format, values);
    va_end(values);
    if (w->emitter.status == MU_OK && length >= 0)
        w->emitter.status = mu__grow((void **)&text->items, &text->capacity, text->n + (size_t)length + 1, 1);
    if (w->emitter.status == MU_OK) {
        vsnprintf(text->items + text->n, (size_t)length + 1, format, again);
        text->n += (size_t)length;
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

static mu_hlo add(mu_emitter *emitter, const mu_spec *spec, const char *op, int n, const mu_hlo *operands,
                  const char *rest)
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
    mu_spec *specs = mu__calloc((size_t)(node->n_in + node->n_out) + 1, sizeof *specs), *out = specs + node->n_in;
    if (!specs)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        specs[i] = l->in[i].spec;
    mu_infer rule = {.op = node->op,
                     .attrs = node->attrs,
                     .n_in = node->n_in,
                     .n_out = node->n_out,
                     .in = specs,
                     .out = out};
    mu_status status = mu__infer_call(&rule);
    for (int i = 0; status == MU_OK && i < node->n_out; i++) {
        l->out[i] = (mu_hlo){.id = -1, .spec = out[i]};
        if (!mu__shape_known(&out[i].shape))
            status = mu__error(MU_UNIMPLEMENTED,
                               "op %s in '%s' has an output whose shape depends on elements; call it outside of "
                               "traced functions",
                               node->op->name, w->graph->name);
    }
    mu__free(specs);
    return status;
}

static mu_status lower(mu_lowering *l)
{
    const mu_op *op = l->op;
    if (!op->lower && !op->hlo)
        return mu__error(MU_UNIMPLEMENTED,
                         "op %s has no StableHLO lowering (`muster ops` lists which have); run the function on a "
                         "CPU device",
                         op->name);
    MU_TRY(op->lower ? op->lower(l) : mu__lower_elementwise(l));
    for (int i = 0; i < l->n_out; i++)
        if (l->out[i].id < 0)
            return mu__error(MU_INTERNAL, "op %s: the lowering leaves output %d out", op->name, i);
    return MU_OK;
}

static mu_status emit_call(writer *w, const mu_node *node, mu_lowering *l, bool on_host)
{
    MU_TRY(infer(w, node, l));
    if (on_host)
        return MU_OK;
    print(w, "    // %s\n", node->op->name);
    return lower(l);
}

static mu_status emit_node(writer *w, const mu_node *node, bool on_host)
{
    mu_hlo *in = mu__arena_alloc(&w->memory, sizeof *in * (size_t)(node->n_in + 1));
    if (!in)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        in[i] = w->slots[w->parts->first[node->in[i].node->id] + node->in[i].output];
    mu_lowering l = {.emitter = &w->emitter,
                     .op = node->op,
                     .attrs = node->attrs,
                     .n_in = node->n_in,
                     .n_out = node->n_out,
                     .in = in,
                     .out = w->slots + w->parts->first[node->id]};
    if (emit_call(w, node, &l, on_host) != MU_OK) {
        mu__error_place(mu__node_site(node));
        return mu_error_code();
    }
    return on_host ? MU_OK : w->emitter.status;
}

// ---- Functions ----------------------------------------------------------------------------------

static void print_slots(writer *w, int n, const int *slots, bool types)
{
    for (int i = 0; i < n; i++) {
        print(w, "%s", i ? ", " : "");
        if (types)
            print_type(w, &w->slots[slots[i]].spec);
        else
            print(w, "%%v%d", w->slots[slots[i]].id);
    }
}

// An argument whose memory a result takes over says so.
static void print_arguments(writer *w, const mu_pjrt_part *part)
{
    for (int i = 0; i < part->n_taken; i++) {
        print(w, "%s%%v%d: ", i ? ", " : "", w->slots[part->taken[i]].id);
        print_type(w, &w->slots[part->taken[i]].spec);
        for (int d = 0; d < part->n_donated; d++)
            if (part->donated[d].argument == i)
                print(w, " {tf.aliasing_output = %d : i32}", part->donated[d].result);
    }
}

// The function's header lists the arguments and their types; the result types are known only after the body.
static mu_status write_part(writer *w, const mu_pjrt_part *part, mu_pjrt_text *out)
{
    mu_pjrt_text head = {0}, body = {0};
    w->n_values = 0;
    for (int i = 0; i < part->n_taken; i++)
        w->slots[part->taken[i]].id = w->n_values++;
    w->text = &head;
    print_arguments(w, part);
    w->text = &body;
    mu_status status = w->emitter.status;
    for (int i = part->begin; status == MU_OK && i < part->end; i++)
        if (w->graph->nodes.items[i]->op != &mu_op_input)
            status = emit_node(w, w->graph->nodes.items[i], false);
    w->text = out;
    print(w, "module @muster {\n  func.func public @main(%s) -> (", head.items ? head.items : "");
    print_slots(w, part->n_left, part->left, true);
    print(w, ") {\n%s    \"func.return\"(", body.items ? body.items : "");
    print_slots(w, part->n_left, part->left, false);
    print(w, ") : (");
    print_slots(w, part->n_left, part->left, true);
    print(w, ") -> ()\n  }\n}\n");
    mu__free(head.items);
    mu__free(body.items);
    return status == MU_OK ? w->emitter.status : status;
}

static mu_status write_parts(writer *w, const mu_spec *inputs, mu_pjrt_text *texts, mu_spec *specs)
{
    const mu_graph *graph = w->graph;
    w->slots = mu__arena_alloc(&w->memory, sizeof *w->slots * (size_t)(w->parts->n_values + 1));
    if (!w->slots)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->inputs.n; i++)
        w->slots[w->parts->first[graph->inputs.items[i]->id]].spec = inputs[i];
    for (int i = 0; i < w->parts->n_parts; i++) {
        const mu_pjrt_part *part = &w->parts->parts[i];
        MU_TRY(write_part(w, part, &texts[i]));
        if (part->end < (int)graph->nodes.n)
            MU_TRY(emit_node(w, graph->nodes.items[part->end], true));
    }
    for (int i = 0; i < w->parts->n_values; i++)
        specs[i] = w->slots[i].spec;
    return MU_OK;
}

mu_status mu__pjrt_emit(const mu_graph *graph, const mu_spec *inputs, const mu_pjrt_parts *parts, int replica,
                        mu_pjrt_text *texts, mu_spec *specs)
{
    writer w = {.emitter = {.replica = replica, .add = add}, .graph = graph, .parts = parts};
    memset(texts, 0, sizeof *texts * (size_t)parts->n_parts);
    const mu_status status = write_parts(&w, inputs, texts, specs);
    mu__arena_free(&w.memory);
    for (int i = 0; status != MU_OK && i < parts->n_parts; i++) {
        mu__free(texts[i].items);
        texts[i] = (mu_pjrt_text){0};
    }
    return status;
}
