// What mu_plot_model draws: the boxes of a model's layers and the edges between them, with their places.
#ifndef MU_SRC_MODEL_DIAGRAM_H
#define MU_SRC_MODEL_DIAGRAM_H

#include "model/core/layer.h"
#include "model/drawing/layered_layout.h"

#include <muster/plot.h>

typedef struct mu_diagram mu_diagram;

// One call of a layer; an input; or a port, through which an edge enters or leaves a group.
typedef struct mu_box {
    const mu_layer *layer; // NULL: an input, or a port
    const char *name;      // of an input; NULL: it has none
    bool port;
    int call, calls; // which call of the layer it is, from 1, and how many there are
    struct {
        mu_spec *items;
        size_t n, capacity;
    } inputs, outputs;
    mu_diagram *inside; // of a nested model that is drawn as a group
} mu_box;

// The boxes are the nodes of the layout. Of a group, the first and the last ones are its ports.
struct mu_diagram {
    mu_layout layout;
    struct {
        mu_box *items;
        size_t n, capacity;
    } boxes;
    size_t n_inputs, n_outputs; // ports
    bool sideways;              // from left to right: the layout has x and y exchanged
};

// A group has this space beside its inside. Its title is where the edges enter; sideways it has room of its own.
enum { MU_GROUP_MARGIN = 16, MU_GROUP_TITLE = 26 };

// mu__diagram_new makes the diagram of a model and computes its layout. mu__diagram_free accepts NULL. NULL on error:
// FAILED_PRECONDITION for a model without weights.
mu_diagram *mu__diagram_new(const mu_layer *model, const mu_plot_model_args *options);
void mu__diagram_free(mu_diagram *diagram);

// mu__box_row returns the label and the text of a row of a box's body; false past the last one.
typedef struct mu_box_row {
    const char *label;
    char text[MU_SHAPE_TEXT + 32];
} mu_box_row;
bool mu__box_row(const mu_box *box, const mu_plot_model_args *options, int i, mu_box_row *row);
// mu__box_names returns the class and the name of a box ("": it has none, or they are not shown).
void mu__box_names(const mu_box *box, const mu_plot_model_args *options, const char **class_name, char name[96]);
bool mu__box_is_group(const mu_box *box);

// The measures of boxes, in pixels.
enum { MU_BOX_TITLE = 24, MU_BOX_ROW = 16, MU_BOX_PADDING = 10, MU_BOX_COLUMNS = 44 };
int mu__box_label(const mu_plot_model_args *options);                       // the width of the labels
double mu__box_title(const mu_box *box, const mu_plot_model_args *options); // that of the title

#endif
