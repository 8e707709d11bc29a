// The boxes and edges of a model: of a functional model its calls, of a sequential one its layers, whose shapes and
// types are those of a trace. Nested models become groups if they are to be expanded.
#include "model/drawing/diagram.h"

#include "model/models/functional.h"
#include "model/models/host_part.h"
#include "model/models/model.h"

#include <math.h>

// ---- Boxes --------------------------------------------------------------------------------------

void mu__diagram_free(mu_diagram *diagram)
{
    if (!diagram)
        return;
    for (size_t i = 0; i < diagram->boxes.n; i++) {
        mu__free(diagram->boxes.items[i].inputs.items);
        mu__free(diagram->boxes.items[i].outputs.items);
        mu__diagram_free(diagram->boxes.items[i].inside);
    }
    mu__free(diagram->boxes.items);
    mu__layout_free(&diagram->layout);
    mu__free(diagram);
}

// Adds a box and returns it; it moves when the next one is added. NULL on error.
static mu_box *add_box(mu_diagram *diagram, const mu_layer *layer)
{
    const mu_box box = {.layer = layer, .call = 1, .calls = 1};
    return MU_PUSH(&diagram->boxes, box) == MU_OK ? &diagram->boxes.items[diagram->boxes.n - 1] : NULL;
}

static mu_status add_ports(mu_diagram *diagram, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mu_box *box = add_box(diagram, NULL);
        if (!box)
            return MU_RESOURCE_EXHAUSTED;
        box->port = true;
    }
    return MU_OK;
}

static bool is_model(const mu_layer *layer) { return layer && mu__layer_only_calls(layer); }

bool mu__box_is_group(const mu_box *box) { return box->inside != NULL; }

// ---- Rows ---------------------------------------------------------------------------------------

void mu__box_names(const mu_box *box, const mu_plot_model_args *options, const char **class_name, char name[96])
{
    const char *given = box->layer ? mu_layer_name(box->layer) : box->name;
    *class_name = box->layer ? mu__layer_keras_class(box->layer) : "InputLayer";
    name[0] = '\0';
    if (!options->no_layer_names && given)
        snprintf(name, 96, "%s", given);
    const size_t used = strlen(name);
    if (box->calls > 1)
        snprintf(name + used, 96 - used, "%scall %d of %d", used ? ", " : "", box->call, box->calls);
}

static void spec_text(const mu_spec *spec, const mu_plot_model_args *options, mu_box_row *row)
{
    char shape[MU_SHAPE_TEXT] = "";
    if (options->show_shapes)
        mu__shape_as_keras(&spec->shape, shape);
    snprintf(row->text, sizeof row->text, "%s%s%s", shape, options->show_shapes && options->show_dtype ? " " : "",
             options->show_dtype ? mu_dtype_name(spec->dtype) : "");
}

enum { MOST_ROWS = 6 }; // of inputs, and of outputs

// The i-th row of a list of tensors, of which at most MOST_ROWS are shown. Returns the rows that it has.
static int spec_row(int n, const mu_spec *specs, const char *label, const mu_plot_model_args *options, int i,
                    mu_box_row *row)
{
    const int rows = MU_MIN(n, MOST_ROWS);
    if (i < 0 || i >= rows)
        return rows;
    row->label = i == 0 ? label : "";
    if (i == MOST_ROWS - 1 && n > MOST_ROWS)
        snprintf(row->text, sizeof row->text, "… %d more", n - MOST_ROWS + 1);
    else
        spec_text(&specs[i], options, row);
    return rows;
}

bool mu__box_row(const mu_box *box, const mu_plot_model_args *options, int i, mu_box_row *row)
{
    if (box->port)
        return false;
    const mu_layer *layer = box->layer;
    const char *activation = layer ? mu__fields_text(&layer->ops->class, layer->args, "activation") : NULL;
    if (options->show_layer_activations && activation && i-- == 0) {
        row->label = "activation";
        snprintf(row->text, sizeof row->text, "%.60s", activation);
        return true;
    }
    if (options->show_trainable && layer && mu__layer_parameters(layer, false) > 0 && i-- == 0) {
        row->label = "weights";
        snprintf(row->text, sizeof row->text, mu__layer_parameters(box->layer, true) > 0 ? "trained" : "not trained");
        return true;
    }
    if (!options->show_shapes && !options->show_dtype)
        return false;
    if (box->layer) {
        const int rows = spec_row((int)box->inputs.n, box->inputs.items, "input", options, i, row);
        if (i < rows)
            return true;
        i -= rows;
    }
    return i < spec_row((int)box->outputs.n, box->outputs.items, "output", options, i, row);
}

// ---- Sizes --------------------------------------------------------------------------------------

static int columns_of(const char *text) { return MU_MIN(mu__columns(text), MU_BOX_COLUMNS); }

double mu__box_title(const mu_box *box, const mu_plot_model_args *options)
{
    const char *class_name;
    char name[96];
    mu__box_names(box, options, &class_name, name);
    return 8.6 * columns_of(class_name) + (*name ? 7.5 * columns_of(name) + 8 : 0);
}

int mu__box_label(const mu_plot_model_args *options) { return options->show_layer_activations ? 66 : 48; }

static mu_layout_node size_of(const mu_box *box, const mu_plot_model_args *options, bool sideways)
{
    double width = mu__box_title(box, options), height = MU_BOX_TITLE;
    mu_box_row row;
    int rows = 0;
    for (; mu__box_row(box, options, rows, &row); rows++)
        width = fmax(width, mu__box_label(options) + 6.7 * columns_of(row.text));
    width += 2 * MU_BOX_PADDING;
    height += rows ? rows * MU_BOX_ROW + 8 : 0;
    if (box->inside) {
        const mu_layout *inside = &box->inside->layout;
        width = fmax(width, sideways ? inside->height : inside->width + 2 * MU_GROUP_MARGIN);
        height = sideways ? inside->width + MU_GROUP_TITLE + MU_GROUP_MARGIN : inside->height;
    }
    return sideways ? (mu_layout_node){.width = ceil(height), .height = ceil(width)}
                    : (mu_layout_node){.width = ceil(width), .height = ceil(height)};
}

static mu_status measure(mu_diagram *diagram, const mu_plot_model_args *options)
{
    for (size_t i = 0; i < diagram->boxes.n; i++) {
        const mu_box *box = &diagram->boxes.items[i];
        mu_layout_node node = {.pin = i < diagram->n_inputs ? MU_PIN_FIRST : MU_PIN_LAST};
        if (!box->port)
            node = size_of(box, options, diagram->sideways);
        MU_TRY(MU_PUSH(&diagram->layout.nodes, node));
    }
    return MU_OK;
}

// ---- Edges --------------------------------------------------------------------------------------

// Where a port of a group is, from the middle of its side.
static double port_offset(const mu_diagram *diagram, int box, bool output, int port)
{
    const mu_box *group = &diagram->boxes.items[box];
    const mu_layout_node *node = &diagram->layout.nodes.items[box];
    if (!group->inside)
        return 0;
    const mu_diagram *inside = group->inside;
    const size_t index = output ? inside->boxes.n - inside->n_outputs + (size_t)port : (size_t)port;
    const double margin = diagram->sideways ? MU_GROUP_TITLE : (node->width - inside->layout.width) / 2;
    return margin + inside->layout.nodes.items[index].x - node->width / 2;
}

static mu_status add_edge(mu_diagram *diagram, int from, int output, int to, int input)
{
    const mu_layout_edge edge = {.from = from,
                                 .to = to,
                                 .from_at = port_offset(diagram, from, true, output),
                                 .to_at = port_offset(diagram, to, false, input)};
    for (size_t i = diagram->layout.edges.n; i > 0 && diagram->layout.edges.items[i - 1].to == to; i--) {
        const mu_layout_edge *other = &diagram->layout.edges.items[i - 1];
        if (other->from == from && other->from_at == edge.from_at && other->to_at == edge.to_at)
            return MU_OK;
    }
    return MU_PUSH(&diagram->layout.edges, edge);
}

// ---- Functional models --------------------------------------------------------------------------

static mu_status add_specs(const mu_value *nest, mu_box *box, bool outputs)
{
    for (int i = 0; !nest->leaf && i < nest->n; i++)
        MU_TRY(add_specs(nest->items[i], box, outputs));
    if (!nest->leaf || !mu__is(nest->leaf, &mu__tensor_type))
        return MU_OK;
    const mu_spec spec = mu__spec_of((const mu_tensor *)nest->leaf);
    if (outputs)
        return MU_PUSH(&box->outputs, spec);
    return MU_PUSH(&box->inputs, spec);
}

static mu_status add_call(mu_diagram *diagram, const mu_functional *f, size_t i, const mu_plot_model_args *options)
{
    const mu_layer_call *call = f->calls.items[i];
    mu_box *box = add_box(diagram, call->layer);
    if (!box)
        return MU_RESOURCE_EXHAUSTED;
    box->name = call->name;
    for (size_t k = f->n_inputs; call->layer && k < f->calls.n; k++)
        if (k != i && f->calls.items[k]->layer == call->layer) {
            box->calls++;
            box->call += k < i;
        }
    for (size_t k = 0; k < call->graph->inputs.n; k++)
        MU_TRY(MU_PUSH(&box->outputs, call->graph->inputs.items[k]->out[0]));
    if (call->inputs)
        MU_TRY(add_specs(call->inputs, box, false));
    if (options->expand_nested && is_model(call->layer) && i >= f->n_inputs)
        return (box->inside = mu__diagram_new(call->layer, options)) ? MU_OK : mu_error_code();
    return MU_OK;
}

// Adds the edges from the calls that made a nest of tensors; `*port` counts its leaves.
static mu_status add_edges(mu_diagram *diagram, const mu_functional *f, const mu_value *nest, int to, int *port)
{
    for (int i = 0; !nest->leaf && i < nest->n; i++)
        MU_TRY(add_edges(diagram, f, nest->items[i], to, port));
    if (!nest->leaf)
        return MU_OK;
    const mu_tensor *tensor = (const mu_tensor *)nest->leaf;
    const int index = mu__is(nest->leaf, &mu__tensor_type) && mu__is_layer_tensor(tensor)
                          ? mu__call_index(f, mu__call_of(tensor))
                          : -1;
    const int from = (int)diagram->n_inputs + index, input = (*port)++;
    return index < 0 ? MU_OK : add_edge(diagram, from, tensor->node->id, to, input);
}

static mu_status connect_calls(mu_diagram *diagram, const mu_functional *f)
{
    int port = 0;
    mu_object *leaves[MU_MAX_MODEL_INPUTS];
    mu__value_flatten(f->inputs, leaves, MU_MAX_MODEL_INPUTS);
    for (size_t i = 0; i < f->n_inputs; i++)
        for (size_t k = 0; k < diagram->n_inputs; k++)
            if (mu__call_of((const mu_tensor *)leaves[k]) == f->calls.items[i])
                MU_TRY(add_edge(diagram, (int)k, 0, (int)(diagram->n_inputs + i), 0));
    for (size_t i = f->n_inputs; i < f->calls.n; i++, port = 0)
        MU_TRY(add_edges(diagram, f, f->calls.items[i]->inputs, (int)(diagram->n_inputs + i), &port));
    mu__value_flatten(f->outputs, leaves, MU_MAX_MODEL_INPUTS);
    for (size_t k = 0; k < diagram->n_outputs; k++) {
        const mu_tensor *tensor = (const mu_tensor *)leaves[k];
        const int index = mu__call_index(f, mu__call_of(tensor));
        MU_TRY(add_edge(diagram, (int)diagram->n_inputs + index, tensor->node->id,
                        (int)(diagram->boxes.n - diagram->n_outputs + k), 0));
    }
    return MU_OK;
}

static mu_status draw_functional(mu_diagram *diagram, const mu_layer *model, const mu_plot_model_args *options)
{
    const mu_functional *f = model->state;
    if (model != options->model) {
        diagram->n_inputs = (size_t)mu__value_flatten(f->inputs, NULL, 0);
        diagram->n_outputs = (size_t)mu__value_flatten(f->outputs, NULL, 0);
    }
    MU_TRY(add_ports(diagram, diagram->n_inputs));
    for (size_t i = 0; i < f->calls.n; i++)
        MU_TRY(add_call(diagram, f, i, options));
    MU_TRY(add_ports(diagram, diagram->n_outputs));
    MU_TRY(measure(diagram, options));
    return connect_calls(diagram, f);
}

// ---- Sequential models --------------------------------------------------------------------------

typedef struct chain {
    const mu_layer *model;
    mu_diagram *diagram;
    size_t first; // the box of the first layer
} chain;

// Calls the layers one by one and notes what goes into each and what comes out.
static mu_value *trace_chain(mu_value *arguments, void *arg)
{
    const chain *c = arg;
    mu_value *value = arguments, *mask = NULL;
    for (size_t i = 0; i < c->model->sublayers.n && value; i++) {
        mu_layer *layer = c->model->sublayers.items[i];
        const mu_call_context context = {.mask = mask};
        mu_box *box = layer->ops == &mu__input_layer_ops ? NULL : &c->diagram->boxes.items[c->first + i];
        if (box && add_specs(value, box, false) != MU_OK)
            return NULL;
        value = mu__layer_call(layer, value, &context, &mask);
        if (value && box && add_specs(value, box, true) != MU_OK)
            return NULL;
    }
    return value;
}

// The type of a sequential model's input, if its first layer determines it.
static mu_spec input_spec(const mu_layer *model)
{
    const mu_layer *first = model->sublayers.items[0];
    const mu_dtype given = first->ops == &mu__input_layer_ops ? ((const mu_input_args *)first->args)->dtype : 0;
    const mu_dtype guess = mu__host_input_dtype(first, mu__layer_takes_integers(model) ? MU_I32 : mu__floatx());
    return (mu_spec){.dtype = given ? given : guess, .shape = model->input};
}

static mu_status trace_specs(mu_diagram *diagram, const mu_layer *model, size_t first, const mu_spec *input)
{
    chain c = {.model = model, .diagram = diagram, .first = first};
    mu_traced traced = {0};
    mu_tensor *zero = mu_constant(mu__floatx(), 0);
    mu_value *like = zero ? mu_of(zero) : NULL;
    mu_host_results shapes, *outer = mu__host_shapes_begin(&shapes);
    const mu_status status =
        like ? mu__trace_run("plot_model", trace_chain, &c, like, input, false, &traced) : mu_error_code();
    mu__host_shapes_end(outer);
    mu_release(traced.graph);
    mu_release(traced.inputs);
    mu_release(traced.outputs);
    return status;
}

// The boxes of a sequential model: an input, or the port of a group, and the layers.
static mu_status add_layers(mu_diagram *diagram, const mu_layer *model, const mu_plot_model_args *options)
{
    const mu_spec input = input_spec(model);
    const mu_layer *first = model->sublayers.items[0];
    const bool declared = first->ops == &mu__input_layer_ops;
    MU_TRY(add_ports(diagram, diagram->n_inputs));
    mu_box *box = diagram->n_inputs && !declared ? NULL : add_box(diagram, NULL);
    if (box) {
        box->name = declared ? mu_layer_name(first) : "input_layer";
        MU_TRY(MU_PUSH(&box->outputs, input));
    }
    const size_t before = diagram->boxes.n;
    for (size_t i = declared; i < model->sublayers.n; i++) {
        mu_layer *layer = model->sublayers.items[i];
        if (!(box = add_box(diagram, layer)))
            return MU_RESOURCE_EXHAUSTED;
        if (options->expand_nested && is_model(layer) && !(box->inside = mu__diagram_new(layer, options)))
            return mu_error_code();
    }
    MU_TRY(add_ports(diagram, diagram->n_outputs));
    return trace_specs(diagram, model, before - declared, &input);
}

static mu_status need_built(const mu_layer *model)
{
    return model->built ? MU_OK
                        : mu__error(MU_FAILED_PRECONDITION,
                                    "mu_plot_model: the model '%s' has no weights yet, so the shapes of its layers are "
                                    "not known; call mu_model_build or mu_fit first, or begin it with mu_input_layer",
                                    mu_layer_name(model));
}

static mu_status draw_sequential(mu_diagram *diagram, const mu_layer *model, const mu_plot_model_args *options)
{
    MU_TRY(need_built(model));
    diagram->n_inputs = diagram->n_outputs = model != options->model;
    MU_TRY(add_layers(diagram, model, options));
    MU_TRY(measure(diagram, options));
    for (size_t i = 1; i < diagram->boxes.n; i++)
        MU_TRY(add_edge(diagram, (int)i - 1, 0, (int)i, 0));
    return MU_OK;
}

// A model whose call is a function in C is one box, as in Keras: which layers it calls on what is not known.
static mu_status draw_own(mu_diagram *diagram, const mu_layer *model, const mu_plot_model_args *options)
{
    MU_TRY(need_built(model));
    mu_box *box = add_box(diagram, (mu_layer *)(uintptr_t)model);
    if (!box || MU_PUSH(&box->inputs, ((mu_spec){.dtype = mu__floatx(), .shape = model->input})) != MU_OK ||
        MU_PUSH(&box->outputs, ((mu_spec){.dtype = mu__floatx(), .shape = model->output})) != MU_OK)
        return MU_RESOURCE_EXHAUSTED;
    return measure(diagram, options);
}

mu_diagram *mu__diagram_new(const mu_layer *model, const mu_plot_model_args *options)
{
    mu_diagram *diagram = mu__calloc(1, sizeof *diagram);
    if (!diagram)
        return NULL;
    diagram->sideways = options->rankdir && strcmp(options->rankdir, "LR") == 0;
    mu_status status = model->ops == &mu__functional_ops   ? draw_functional(diagram, model, options)
                       : model->ops == &mu__sequential_ops ? draw_sequential(diagram, model, options)
                                                           : draw_own(diagram, model, options);
    if (status == MU_OK && (status = mu__layout_compute(&diagram->layout)) == MU_OK)
        return diagram;
    mu__diagram_free(diagram);
    return NULL;
}
