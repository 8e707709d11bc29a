// mu_plot_model: writes the diagram of a model as SVG.
#include "model/drawing/diagram.h"
#include "model/drawing/svg.h"
#include "model/models/model.h"

#include <math.h>

enum { MARGIN = 20 };

typedef struct picture {
    mu_svg svg;
    const mu_plot_model_args *options;
    bool sideways;
} picture;

// Colours of a box: of its lines and of its title.
typedef struct colours {
    const char *line, *title;
} colours;

static colours colours_of(const mu_box *box)
{
    if (!box->layer)
        return (colours){"#7a9a6b", "#e6f0df"};
    const bool weights = mu__layer_parameters(box->layer, false) > 0;
    return weights ? (colours){"#6285ad", "#dfeaf7"} : (colours){"#8d8d99", "#eeeef2"};
}

// ---- Boxes --------------------------------------------------------------------------------------

// The class in bold and the name behind it, around x or from x on.
static void draw_title(picture *p, const mu_box *box, int x, int y, const char *anchor)
{
    const char *class_name;
    char name[96];
    mu__box_names(box, p->options, &class_name, name);
    mu__svg_add(&p->svg,
                "<text x='%d' y='%d' text-anchor='%s' font-size='12' " MU_SVG_SANS ">"
                "<tspan font-weight='bold' fill='#222'>",
                x, y, anchor);
    mu__svg_escape(&p->svg, class_name, MU_BOX_COLUMNS);
    mu__svg_add(&p->svg, "</tspan>");
    if (*name) {
        mu__svg_add(&p->svg, "<tspan dx='7' fill='#555'>");
        mu__svg_escape(&p->svg, name, MU_BOX_COLUMNS);
        mu__svg_add(&p->svg, "</tspan>");
    }
    mu__svg_add(&p->svg, "</text>\n");
}

static void draw_rows(picture *p, const mu_box *box, int x, int y)
{
    mu_box_row row;
    for (int i = 0; mu__box_row(box, p->options, i, &row); i++, y += MU_BOX_ROW) {
        if (*row.label)
            mu__svg_add(&p->svg, "<text x='%d' y='%d' font-size='10' fill='#777' " MU_SVG_SANS ">%s</text>", x, y,
                        row.label);
        mu__svg_add(&p->svg, "<text x='%d' y='%d' font-size='11' fill='#222' " MU_SVG_MONO ">",
                    x + mu__box_label(p->options), y);
        mu__svg_escape(&p->svg, row.text, MU_BOX_COLUMNS);
        mu__svg_add(&p->svg, "</text>\n");
    }
}

// A box whose upper left corner is at x, y.
static void draw_box(picture *p, const mu_box *box, int x, int y, int width, int height)
{
    const colours c = colours_of(box);
    mu__svg_add(&p->svg, "<g><title>");
    mu__svg_escape(&p->svg, box->layer ? mu_layer_name(box->layer) : box->name ? box->name : "input", 500);
    mu__svg_add(&p->svg, "</title><rect x='%d' y='%d' width='%d' height='%d' rx='5' fill='%s'/>", x, y, width, height,
                height > MU_BOX_TITLE ? "#fff" : c.title);
    if (height > MU_BOX_TITLE)
        mu__svg_add(&p->svg,
                    "<path d='M%d %dv-%da5 5 0 0 1 5-5h%da5 5 0 0 1 5 5v%dz' fill='%s'/>"
                    "<path d='M%d %dh%d' stroke='%s' stroke-opacity='.4'/>",
                    x, y + MU_BOX_TITLE, MU_BOX_TITLE - 5, width - 10, MU_BOX_TITLE - 5, c.title, x, y + MU_BOX_TITLE,
                    width, c.line);
    mu__svg_add(&p->svg, "<rect x='%d' y='%d' width='%d' height='%d' rx='5' fill='none' stroke='%s'%s/>\n", x, y, width,
                height, c.line, box->calls > 1 ? " stroke-dasharray='5 3'" : "");
    draw_title(p, box, x + width / 2, y + 16, "middle");
    draw_rows(p, box, x + MU_BOX_PADDING, y + MU_BOX_TITLE + 16);
    mu__svg_add(&p->svg, "</g>\n");
}

// ---- Edges --------------------------------------------------------------------------------------

// A point of the layout as it is in the picture.
static mu_point to_picture(const picture *p, mu_point point, mu_point origin)
{
    return p->sideways ? (mu_point){origin.x + point.y, origin.y + point.x}
                       : (mu_point){origin.x + point.x, origin.y + point.y};
}

// Lines and Bézier curves that begin and end in the direction of the layers.
static void draw_edge(picture *p, const mu_layout_edge *edge, mu_point origin, bool arrow, mu_point begin, mu_point end)
{
    mu__svg_add(&p->svg, "<path d='M%ld %ld", lround(begin.x), lround(begin.y));
    for (int i = 0; i < edge->n_points; i++) {
        const mu_point at = edge->points[i], to = to_picture(p, at, origin);
        if (i % 2 == 0 && i > 0 && lround(at.x) != lround(edge->points[i - 1].x)) {
            const mu_point before = edge->points[i - 1];
            const double middle = (before.y + at.y) / 2;
            const mu_point c1 = to_picture(p, (mu_point){before.x, middle}, origin);
            const mu_point c2 = to_picture(p, (mu_point){at.x, middle}, origin);
            mu__svg_add(&p->svg, "C%ld %ld %ld %ld %ld %ld", lround(c1.x), lround(c1.y), lround(c2.x), lround(c2.y),
                        lround(to.x), lround(to.y));
        } else {
            mu__svg_add(&p->svg, "L%ld %ld", lround(to.x), lround(to.y));
        }
    }
    mu__svg_add(&p->svg, "L%ld %ld' fill='none' stroke='#666' stroke-width='1.3'%s/>\n", lround(end.x), lround(end.y),
                arrow ? " marker-end='url(#arrow)'" : "");
}

static void draw_diagram(picture *p, const mu_diagram *diagram, mu_point origin, const mu_point *frame);

// A node's rectangle in the picture: left, top, width and height.
static void rectangle_of(const picture *p, const mu_layout_node *node, mu_point origin, int rectangle[4])
{
    const mu_point corner = to_picture(p, (mu_point){node->x - node->width / 2, node->y - node->height / 2}, origin);
    rectangle[0] = (int)lround(corner.x);
    rectangle[1] = (int)lround(corner.y);
    rectangle[2] = (int)lround(p->sideways ? node->height : node->width);
    rectangle[3] = (int)lround(p->sideways ? node->width : node->height);
}

static void draw_group(picture *p, const mu_box *box, const int at[4])
{
    const mu_layout *inside = &box->inside->layout;
    const double wide = p->sideways ? inside->height : inside->width;
    const mu_point origin = {at[0] + (at[2] - wide) / 2, at[1] + (p->sideways ? MU_GROUP_TITLE : 0)};
    const mu_point frame[2] = {{at[0], at[1]}, {at[0] + at[2], at[1] + at[3]}};
    mu__svg_add(
        &p->svg,
        "<rect x='%d' y='%d' width='%d' height='%d' rx='8' fill='#f6f7fa' stroke='#a3a8b8' stroke-dasharray='%s'/>\n",
        at[0], at[1], at[2], at[3], box->calls > 1 ? "5 3" : "none");
    draw_diagram(p, box->inside, origin, frame);
    mu__svg_add(&p->svg, "<rect x='%d' y='%d' width='%d' height='18' rx='3' fill='#f6f7fa'/>", at[0] + 5, at[1] + 4,
                (int)mu__box_title(box, p->options) + 8);
    draw_title(p, box, at[0] + 9, at[1] + 17, "start");
}

// The edges of a group begin and end at its frame.
static void draw_edges(picture *p, const mu_diagram *diagram, mu_point origin, const mu_point *frame)
{
    for (size_t i = 0; i < diagram->layout.edges.n; i++) {
        const mu_layout_edge *edge = &diagram->layout.edges.items[i];
        mu_point begin = to_picture(p, edge->points[0], origin);
        mu_point end = to_picture(p, edge->points[edge->n_points - 1], origin);
        if (diagram->boxes.items[edge->from].port)
            *(p->sideways ? &begin.x : &begin.y) = p->sideways ? frame[0].x : frame[0].y;
        const bool leaves = diagram->boxes.items[edge->to].port;
        if (leaves)
            *(p->sideways ? &end.x : &end.y) = p->sideways ? frame[1].x : frame[1].y;
        draw_edge(p, edge, origin, !leaves && !diagram->boxes.items[edge->to].inside, begin, end);
    }
}

static void draw_diagram(picture *p, const mu_diagram *diagram, mu_point origin, const mu_point *frame)
{
    int at[4];
    draw_edges(p, diagram, origin, frame);
    for (size_t i = 0; i < diagram->boxes.n; i++) {
        const mu_box *box = &diagram->boxes.items[i];
        rectangle_of(p, &diagram->layout.nodes.items[i], origin, at);
        if (box->inside)
            draw_group(p, box, at);
        else if (!box->port)
            draw_box(p, box, at[0], at[1], at[2], at[3]);
    }
}

// ---- The file -----------------------------------------------------------------------------------

static mu_status draw(const mu_plot_model_args *args)
{
    mu_diagram *diagram = mu__diagram_new(args->model, args);
    if (!diagram)
        return mu_error_code();
    picture p = {.options = args, .sideways = diagram->sideways};
    const double width = p.sideways ? diagram->layout.height : diagram->layout.width;
    const double height = p.sideways ? diagram->layout.width : diagram->layout.height;
    mu__svg_add(&p.svg, "<title>");
    mu__svg_escape(&p.svg, mu_layer_name(args->model), 500);
    mu__svg_add(&p.svg,
                "</title>\n<defs><marker id='arrow' viewBox='0 0 8 8' refX='7.5' refY='4' markerWidth='8' "
                "markerHeight='8' markerUnits='userSpaceOnUse' orient='auto'><path d='M0 .8L8 4L0 7.2z' fill='#666'/>"
                "</marker></defs>\n");
    draw_diagram(&p, diagram, (mu_point){MARGIN, MARGIN}, NULL);
    mu__diagram_free(diagram);
    return mu__svg_save(&p.svg, args->to_file, (int)lround(width) + 2 * MARGIN, (int)lround(height) + 2 * MARGIN);
}

mu_status mu_plot_model_with(const mu_plot_model_args *given)
{
    mu_plot_model_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_plot_model"));
    MU_TRY(mu__need_model(args.model, "mu_plot_model"));
    args.to_file = args.to_file ? args.to_file : "model.svg";
    MU_TRY(mu__svg_path(args.to_file, "mu_plot_model"));
    if (args.rankdir && strcmp(args.rankdir, "TB") != 0 && strcmp(args.rankdir, "LR") != 0)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "mu_plot_model: rankdir is '%.20s'; it must be \"TB\", from top to bottom, or \"LR\", from left to right",
            args.rankdir);
    return mu_strategy_should_checkpoint(args.model->strategy) ? draw(&args) : MU_OK;
}
