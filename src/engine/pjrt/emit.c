// Writes a pure graph with known shapes as StableHLO text in generic form: one function @main for each part.
//
// A program that replicas run together has their collectives in it, and all of its shapes are those of each replica.
// Each node is lowered by its op's definition, in program order. Values are named %v0, %v1, …, starting with the
// arguments. The plugin that compiles the text checks it and reports errors by line. Bodies of control flow are written
// where their op's lowering asks for them, inside of a region.
#include "engine/pjrt/pjrt.h"
#include "graph/passes/uniform.h"
#include "ops/core/lower.h"
#include "ops/nn/nn.h"

#include <ctype.h>
#include <stdarg.h>

// The values of a graph that is being written.
typedef struct graph_values {
    const mu_graph *graph;
    const int *first;     // slot of each node's output 0
    mu_hlo *slots;        // outputs of all nodes
    bool *uniform;        // [slots] surely the same on all replicas; NULL: not needed
    mu_pjrt_known *known; // values that are known; NULL: not needed
} graph_values;

typedef struct writer {
    mu_emitter emitter; // first member
    graph_values whole; // of the graph that the parts divide
    mu_pjrt_parts *parts;
    mu_pjrt_text *text;
    mu_arena memory;
    int n_values;        // values in the text
    int indent;          // of operations in regions
    const mu_node *node; // that is being written
    mu_pjrt_faults *faults;
    mu_pjrt_known known;
    int n_gathered; // of the wholes that replicas have gathered
    bool waits;     // for the size of the next one
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
    print(w, "%s%s>", text, mu__hlo_type(spec->dtype));
}

static void print_indent(writer *w) { print(w, "%*s", 4 + 4 * w->indent, ""); }

static void print_ids(writer *w, int n, const mu_hlo *values)
{
    for (int i = 0; i < n; i++)
        print(w, "%s%%v%d", i ? ", " : "", values[i].id);
}

static void print_types(writer *w, int n, const mu_hlo *values)
{
    for (int i = 0; i < n; i++) {
        print(w, "%s", i ? ", " : "");
        print_type(w, &values[i].spec);
    }
}

static void print_arguments_of_region(writer *w, int n, const mu_hlo *arguments)
{
    for (int i = 0; i < n; i++) {
        print(w, "%s%%v%d: ", i ? ", " : "", arguments[i].id);
        print_type(w, &arguments[i].spec);
    }
}

// Fails if a value is missing that an operation needs.
static mu_status need_values(writer *w, const char *op, int n, const mu_hlo *values)
{
    for (int i = 0; i < n && w->emitter.status == MU_OK; i++)
        if (values[i].id < 0)
            w->emitter.status = mu__error(MU_INTERNAL, "%s is written with operand %d missing", op, i);
    return w->emitter.status;
}

static void number_values(writer *w, int n, mu_hlo *values)
{
    for (int i = 0; i < n; i++)
        values[i].id = w->emitter.status == MU_OK ? w->n_values++ : -1;
}

// "%v7, %v8 = "op"(%v1, %v2)"
static void print_begin(writer *w, const char *op, int n_in, const mu_hlo *in, int n_out, mu_hlo *out)
{
    need_values(w, op, n_in, in);
    number_values(w, n_out, out);
    print_indent(w);
    print_ids(w, n_out, out);
    print(w, "%s\"%s\"(", n_out ? " = " : "", op);
    print_ids(w, n_in, in);
    print(w, ")");
}

// " : (types) -> (types)"
static void print_end(writer *w, int n_in, const mu_hlo *in, int n_out, const mu_hlo *out)
{
    print(w, " : (");
    print_types(w, n_in, in);
    print(w, ") -> %s", n_out == 1 ? "" : "(");
    print_types(w, n_out, out);
    print(w, "%s\n", n_out == 1 ? "" : ")");
}

static mu_hlo add(mu_emitter *emitter, const mu_spec *spec, const char *op, int n, const mu_hlo *operands,
                  const char *rest)
{
    writer *w = (writer *)emitter;
    mu_hlo value = {.id = -1, .spec = *spec};
    print_begin(w, op, n, operands, 1, &value);
    print(w, "%s%s", rest ? " " : "", rest ? rest : "");
    print_end(w, n, operands, 1, &value);
    if (emitter->status != MU_OK)
        value.id = -1;
    return value;
}

// ---- Operations with regions --------------------------------------------------------------------

static void open_operation(mu_emitter *emitter, mu_hlo_operation *o)
{
    o->n_regions = 0;
    print_begin((writer *)emitter, o->name, o->n_in, o->in, o->n_out, o->out);
}

// A block without arguments has no header.
static void enter_region(mu_emitter *emitter, mu_hlo_operation *o, int n, mu_hlo *arguments)
{
    writer *w = (writer *)emitter;
    print(w, o->n_regions++ ? ", {\n" : " ({\n");
    number_values(w, n, arguments);
    if (n > 0) {
        print_indent(w);
        print(w, "^bb0(");
        print_arguments_of_region(w, n, arguments);
        print(w, "):\n");
    }
    w->indent++;
}

static void leave_region(mu_emitter *emitter, int n, const mu_hlo *results)
{
    writer *w = (writer *)emitter;
    need_values(w, "stablehlo.return", n, results);
    print_indent(w);
    print(w, "\"stablehlo.return\"(");
    print_ids(w, n, results);
    print(w, ") : (");
    print_types(w, n, results);
    print(w, ") -> ()\n");
    w->indent--;
    print_indent(w);
    print(w, "}");
}

static void close_operation(mu_emitter *emitter, const mu_hlo_operation *o, const char *attributes)
{
    writer *w = (writer *)emitter;
    print(w, "%s%s%s", o->n_regions ? ")" : "", attributes ? " " : "", attributes ? attributes : "");
    print_end(w, o->n_in, o->in, o->n_out, o->out);
}

// ---- Nodes --------------------------------------------------------------------------------------

static mu_status cannot_lower(const mu_op *op)
{
    return mu__error(MU_UNIMPLEMENTED, "op %s has no StableHLO lowering: %s", op->name,
                     op->no_lowering ? op->no_lowering
                                     : "its definition has none (mu_op_args.lower); run the function on a CPU device");
}

// The parts that replicas gather in a program are of one size, also where the trace did not know that. Those that the
// host gathers are of any sizes: each run learns that of the whole when it gets there (run_parts.c).
static void know_whole(writer *w, const mu_node *node, const mu_spec *in, mu_spec *out)
{
    const mu_all_gather_attrs *attrs = node->attrs;
    int64_t *size = &out->shape.dims[attrs->axis];
    if (w->emitter.replicas > 1)
        *size = in->shape.dims[attrs->axis] * attrs->ranks;
    else if (w->emitter.replicas == MU_PJRT_ONE_BY_ONE && *size == MU_UNKNOWN) {
        w->waits = w->n_gathered == w->parts->n_wholes;
        *size = w->waits ? MU_UNKNOWN : w->parts->wholes[w->n_gathered++];
    }
}

static mu_status infer(writer *w, const graph_values *v, const mu_node *node, const mu_lowering *l)
{
    mu_spec *specs = mu__calloc((size_t)(node->n_in + node->n_out) + 1, sizeof *specs);
    mu_spec *out = MU_BEHIND(specs, node->n_in);
    if (!specs)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        specs[i] = l->in[i].spec;
    mu_infer rule = {
        .op = node->op, .attrs = node->attrs, .n_in = node->n_in, .n_out = node->n_out, .in = specs, .out = out};
    mu_status status = mu__infer_call(&rule);
    if (status == MU_OK && node->op == &mu_op_all_gather)
        know_whole(w, node, specs, out);
    for (int i = 0; status == MU_OK && i < node->n_out; i++) {
        l->out[i] = (mu_hlo){.id = -1, .spec = out[i]};
        if (!mu__shape_known(&out[i].shape) && !w->waits)
            status = node->op->no_lowering
                         ? cannot_lower(node->op)
                         : mu__error(MU_UNIMPLEMENTED,
                                     "op %s in '%s' has an output whose shape is known only at run time, and device "
                                     "programs need constant shapes; %srun the function on a CPU device",
                                     node->op->name, v->graph->name,
                                     node->op == &mu_op_while_loop
                                         ? "give a loop whose gradient is taken .maximum_iterations, or "
                                         : "");
    }
    mu__free(specs);
    return status;
}

static mu_status lower(mu_lowering *l)
{
    const mu_op *op = l->op;
    if (!op->lower && !op->hlo)
        return cannot_lower(op);
    MU_TRY(op->lower ? op->lower(l) : mu__lower_elementwise(l));
    for (int i = 0; i < l->n_out; i++)
        if (l->out[i].id < 0)
            return mu__error(MU_INTERNAL, "op %s: the lowering leaves output %d out", op->name, i);
    return MU_OK;
}

// Collectives that the host performs cannot be inside of a region, whose values it does not have.
static mu_status check_on_host(const mu_node *node)
{
    if (!(node->flags & MU_OP_CONTROL))
        return MU_OK;
    return mu__error(MU_UNIMPLEMENTED,
                     "op %s contains a collective, which the host performs here, because the replicas' shapes differ "
                     "or they are in several processes; move the collective out of the body, give all replicas the "
                     "same shapes, or run the function on CPU devices",
                     node->op->name);
}

// A comment ends at the line's end, but names of variables and layers may have line ends in them.
static void keep_on_one_line(const writer *w, size_t begin)
{
    for (size_t i = begin; w->emitter.status == MU_OK && i < w->text->n; i++)
        if (iscntrl((unsigned char)w->text->items[i]))
            w->text->items[i] = ' ';
}

// "// matmul (dense_1, train.c:42) of 'dense_1/kernel'": where the op was made, and the variables that it reads.
static void print_origin(writer *w, const mu_node *node)
{
    const mu_site site = mu__node_site(node);
    const size_t begin = w->text->n;
    bool named = false;
    print_indent(w);
    print(w, "// %s", node->op->name);
    if (site.file)
        print(w, " (%s%s%s:%d)", site.layer ? site.layer : "", site.layer ? ", " : "", site.file, site.line);
    for (int i = 0; i < node->n_in; i++) {
        const mu_node *in = node->in[i].node;
        if (in->op == &mu_op_input && in->name)
            print(w, "%s '%s'", named ? "," : " of", in->name);
        named |= in->op == &mu_op_input && in->name;
    }
    keep_on_one_line(w, begin);
    print(w, "\n");
}

static mu_status emit_call(writer *w, const graph_values *v, const mu_node *node, mu_lowering *l, bool on_host)
{
    bool checked = false;
    MU_TRY(infer(w, v, node, l));
    if (on_host)
        return check_on_host(node);
    if (v->known)
        MU_TRY(mu__pjrt_know(v->known, node, l->in, l->out, &checked));
    if (checked)
        return MU_OK;
    print_origin(w, node);
    return lower(l);
}

static void take_input(const graph_values *v, mu_edge edge, mu_hlo *in)
{
    const int slot = v->first[edge.node->id] + edge.output;
    *in = v->slots[slot];
    in->uniform = v->uniform && v->uniform[slot];
    in->known = edge.node->op == &mu_op_constant ? ((const mu_constant_attrs *)edge.node->attrs)->tensor
                : v->known                       ? v->known->values[slot]
                                                 : NULL;
}

static mu_status emit_node(writer *w, const graph_values *v, const mu_node *node, bool on_host)
{
    mu_hlo *in = mu__arena_alloc(&w->memory, sizeof *in * (size_t)(node->n_in + 1));
    if (!in)
        return MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < node->n_in; i++)
        take_input(v, node->in[i], &in[i]);
    mu_lowering l = {.emitter = &w->emitter,
                     .op = node->op,
                     .attrs = node->attrs,
                     .n_in = node->n_in,
                     .n_out = node->n_out,
                     .in = in,
                     .out = v->slots + v->first[node->id]};
    const mu_node *outer = w->node;
    w->node = node;
    const mu_status status = emit_call(w, v, node, &l, on_host);
    w->node = outer;
    if (status != MU_OK) {
        mu__error_add_site(mu__node_site(node));
        return mu_error_code();
    }
    return on_host ? MU_OK : w->emitter.status;
}

// ---- Bodies -------------------------------------------------------------------------------------

static int add_fault(mu_emitter *emitter, const mu_fault *fault)
{
    enum { MOST = (1 << (63 - MU_HLO_FAULT_BITS)) - 1 };
    writer *w = (writer *)emitter;
    const mu_pjrt_fault added = {.fault = *fault, .node = w->node};
    if (emitter->status == MU_OK && w->faults->n == MOST)
        emitter->status = mu__error(MU_RESOURCE_EXHAUSTED,
                                    "a program checks indices or values in at most %d places; write what repeats as a "
                                    "loop (mu_while_loop, mu_scan)",
                                    MOST);
    if (emitter->status == MU_OK && !(w->node->flags & (MU_OP_MAY_FAIL | MU_OP_CONTROL)))
        emitter->status =
            mu__error(MU_INTERNAL, "op %s can fail, which its definition does not say", w->node->op->name);
    if (emitter->status == MU_OK)
        emitter->status = MU_PUSH(w->faults, added);
    return (int)w->faults->n;
}

// Lowerings of control flow ask which of its inputs are uniform, if it has collectives that replicas perform together.
static mu_status find_uniform(writer *w, graph_values *v)
{
    const mu_graph *graph = v->graph;
    if (w->emitter.replicas <= 1 || !graph->collective)
        return MU_OK;
    bool *inputs = mu__arena_alloc(&w->memory, graph->inputs.n + 1);
    v->uniform = mu__arena_alloc(&w->memory, (size_t)v->first[graph->nodes.n] + 1);
    if (!inputs || !v->uniform)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->inputs.n; i++)
        inputs[i] = v->slots[v->first[graph->inputs.items[i]->id]].uniform;
    return mu__uniform_values(graph, v->first, inputs, v->uniform);
}

static mu_status emit_body(mu_emitter *emitter, const mu_graph *graph, const mu_hlo *in, mu_hlo *out)
{
    writer *w = (writer *)emitter;
    const int *first = mu__graph_slots(graph, &w->memory);
    const bool outer = emitter->in_body;
    graph_values v = {.graph = graph, .first = first};
    if (first)
        v.slots = mu__arena_alloc(&w->memory, sizeof *v.slots * ((size_t)first[graph->nodes.n] + 1));
    if (!v.slots)
        return w->emitter.status = MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->inputs.n; i++)
        v.slots[first[graph->inputs.items[i]->id]] = in[i];
    if (w->emitter.status == MU_OK)
        w->emitter.status = find_uniform(w, &v);
    emitter->in_body = true;
    for (size_t i = 0; i < graph->nodes.n && w->emitter.status == MU_OK; i++)
        if (graph->nodes.items[i]->op != &mu_op_input)
            w->emitter.status = emit_node(w, &v, graph->nodes.items[i], false);
    emitter->in_body = outer;
    for (size_t i = 0; i < graph->outputs.n && w->emitter.status == MU_OK; i++)
        out[i] = v.slots[first[graph->outputs.items[i].node->id] + graph->outputs.items[i].output];
    return w->emitter.status;
}

// ---- Functions ----------------------------------------------------------------------------------

static void print_value(writer *w, const mu_hlo *value, bool type)
{
    if (type)
        print_type(w, &value->spec);
    else
        print(w, "%%v%d", value->id);
}

// The values that a part returns, or their types.
static void print_returned(writer *w, const mu_pjrt_part *part, bool types)
{
    for (int i = 0; i < part->n_left; i++) {
        print(w, "%s", i ? ", " : "");
        print_value(w, &w->whole.slots[part->left[i]], types);
    }
    if (part->may_fail) {
        print(w, "%s", part->n_left ? ", " : "");
        print_value(w, &w->emitter.fault, types);
    }
}

// Every argument and result is on all logical devices of its replica; the partitioner would choose otherwise.
static const char whole[] = "mhlo.sharding = \"{replicated}\"";

static void print_results(writer *w, const mu_pjrt_part *part)
{
    for (int i = 0; i < part->n_left; i++) {
        print(w, "%s", i ? ", " : "");
        print_type(w, &w->whole.slots[part->left[i]].spec);
        if (w->emitter.partitions > 1)
            print(w, " {%s}", whole);
    }
    if (part->may_fail)
        print(w, "%stensor<i64>%s%s%s", part->n_left ? ", " : "", w->emitter.partitions > 1 ? " {" : "",
              w->emitter.partitions > 1 ? whole : "", w->emitter.partitions > 1 ? "}" : "");
}

// An argument whose memory a result takes over says so.
static void print_attributes(writer *w, const mu_pjrt_part *part, int argument)
{
    int donation = 0;
    while (donation < part->n_donated && part->donated[donation].argument != argument)
        donation++;
    const bool sharded = w->emitter.partitions > 1, donated = donation < part->n_donated;
    if (!sharded && !donated)
        return;
    print(w, " {%s%s", sharded ? whole : "", sharded && donated ? ", " : "");
    if (donated)
        print(w, "tf.aliasing_output = %d : i32", part->donated[donation].result);
    print(w, "}");
}

static void print_arguments(writer *w, const mu_pjrt_part *part)
{
    for (int i = 0; i < part->n_taken; i++) {
        const mu_hlo *argument = &w->whole.slots[part->taken[i]];
        print(w, "%s%%v%d: ", i ? ", " : "", argument->id);
        print_type(w, &argument->spec);
        print_attributes(w, part, i);
    }
    if (w->emitter.replicas == MU_PJRT_ONE_BY_ONE) {
        print(w, "%s%%v%d: ", part->n_taken ? ", " : "", w->emitter.replica.id);
        print_type(w, &w->emitter.replica.spec);
    }
}

// The host sees the faults of all replicas of its process. Those of other processes have to fail too; where replicas
// did not agree, they all know.
static mu_status write_nodes(writer *w, mu_pjrt_part *part)
{
    const mu_graph *graph = w->whole.graph;
    const size_t before = w->faults->n;
    bool own = false;
    if (w->whole.uniform || (graph->effects & MU_OP_MAY_FAIL))
        w->emitter.fault = mu__hlo_number(&w->emitter, MU_I64, 0);
    w->emitter.failing = false;
    mu_status status = w->emitter.status;
    for (int i = part->begin; status == MU_OK && i < part->end; i++)
        if (graph->nodes.items[i]->op != &mu_op_input)
            status = emit_node(w, &w->whole, graph->nodes.items[i], false);
    for (size_t i = before; i < w->faults->n; i++)
        own |= !w->faults->items[i].fault.common;
    part->may_fail = w->faults->n > before;
    if (own && w->parts->joined)
        mu__hlo_share_fault(&w->emitter);
    return status == MU_OK ? w->emitter.status : status;
}

// The function's header lists the arguments and their types; the result types are known only after the body.
static mu_status write_part(writer *w, mu_pjrt_part *part, mu_pjrt_text *out)
{
    mu_pjrt_text head = {0}, body = {0};
    w->n_values = 0;
    for (int i = 0; i < part->n_taken; i++)
        w->whole.slots[part->taken[i]].id = w->n_values++;
    w->emitter.replica = (mu_hlo){.id = w->n_values++, .spec = {.dtype = MU_I32}};
    w->text = &head;
    print_arguments(w, part);
    w->text = &body;
    const mu_status status = write_nodes(w, part);
    w->text = out;
    print(w, "module @muster ");
    if (w->emitter.partitions > 1)
        print(w, "attributes {mhlo.num_partitions = %d : i32, mhlo.num_replicas = %d : i32} ", w->emitter.partitions,
              w->emitter.replicas);
    print(w, "{\n  func.func public @main(%s) -> (", head.items ? head.items : "");
    print_results(w, part);
    print(w, ") {\n%s    \"func.return\"(", body.items ? body.items : "");
    print_returned(w, part, false);
    print(w, ") : (");
    print_returned(w, part, true);
    print(w, ") -> ()\n  }\n}\n");
    mu__free(head.items);
    mu__free(body.items);
    return status == MU_OK ? w->emitter.status : status;
}

static mu_status find_known(writer *w)
{
    if (!(w->whole.graph->effects & MU_OP_MAY_FAIL))
        return MU_OK;
    w->known = (mu_pjrt_known){.first = w->whole.first,
                               .replicas = w->emitter.replicas,
                               .values = mu__calloc((size_t)w->parts->n_values + 1, sizeof *w->known.values)};
    w->whole.known = &w->known;
    return w->known.values ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// Writes parts as long as their shapes are known.
static mu_status write_parts(writer *w, const mu_spec *inputs, mu_pjrt_text *texts, mu_spec *specs)
{
    const mu_graph *graph = w->whole.graph;
    const graph_values *v = &w->whole;
    w->whole.slots = mu__arena_alloc(&w->memory, sizeof *v->slots * (size_t)(w->parts->n_values + 1));
    if (!v->slots)
        return MU_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < graph->inputs.n; i++)
        v->slots[v->first[graph->inputs.items[i]->id]].spec = inputs[i];
    MU_TRY(find_uniform(w, &w->whole));
    MU_TRY(find_known(w));
    w->parts->n_written = 0;
    while (!w->waits && w->parts->n_written < w->parts->n_parts) {
        const int i = w->parts->n_written++;
        mu_pjrt_part *part = &w->parts->parts[i];
        MU_TRY(write_part(w, part, &texts[i]));
        if (part->end < (int)graph->nodes.n)
            MU_TRY(emit_node(w, v, graph->nodes.items[part->end], true));
    }
    for (int i = 0; i < w->parts->n_values; i++)
        specs[i] = v->slots[i].spec;
    return MU_OK;
}

mu_status mu__pjrt_emit(const mu_graph *graph, const mu_spec *inputs, mu_pjrt_parts *parts, int replicas,
                        int partitions, mu_pjrt_text *texts, mu_spec *specs, mu_pjrt_faults *faults)
{
    writer w = {
        .emitter = {.replicas = replicas,
                    .partitions = partitions,
                    .add = add,
                    .open = open_operation,
                    .enter = enter_region,
                    .leave = leave_region,
                    .close = close_operation,
                    .body = emit_body,
                    .may_fail = add_fault},
        .whole = {.graph = graph, .first = parts->first},
        .parts = parts,
        .faults = faults,
    };
    memset(texts, 0, sizeof *texts * (size_t)parts->n_parts);
    const mu_status status = write_parts(&w, inputs, texts, specs);
    mu__pjrt_forget_known(&w.known, parts->n_values);
    mu__arena_free(&w.memory);
    for (int i = 0; status != MU_OK && i < parts->n_parts; i++) {
        mu__free(texts[i].items);
        texts[i] = (mu_pjrt_text){0};
    }
    return status;
}
