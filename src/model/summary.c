// Prints a model's layers, their output shapes and numbers of parameters, as Keras does.
#include "model/model.h"

void mu__shape_as_keras(const mu_shape *shape, char text[MU_SHAPE_TEXT])
{
    size_t used = (size_t)snprintf(text, MU_SHAPE_TEXT, "(");
    for (int i = 0; i < shape->rank && used < MU_SHAPE_TEXT; i++) {
        const char *comma = i ? ", " : "";
        if (shape->dims[i] == MU_UNKNOWN)
            used += (size_t)snprintf(text + used, MU_SHAPE_TEXT - used, "%sNone", comma);
        else
            used += (size_t)snprintf(text + used, MU_SHAPE_TEXT - used, "%s%lld", comma, (long long)shape->dims[i]);
    }
    if (used < MU_SHAPE_TEXT)
        snprintf(text + used, MU_SHAPE_TEXT - used, ")");
}

enum { TITLE_BYTES = MU_PRINTABLE_BYTES + 64 };

// "name (type)"; returns its columns.
static int title_of(const mu_layer *layer, char title[TITLE_BYTES])
{
    char name[MU_PRINTABLE_BYTES];
    snprintf(title, TITLE_BYTES, "%s (%s)", mu__printable_copy(mu_layer_name(layer), name), mu__layer_class(layer));
    return mu__columns(title);
}

// Columns are as wide as their contents, and at least this wide.
enum { TITLE_COLUMN = 34, SHAPE_COLUMN = 24, COUNT_COLUMN = 12 };

static void shape_of_output(const mu_layer *layer, char text[MU_SHAPE_TEXT])
{
    snprintf(text, MU_SHAPE_TEXT, "?");
    if (layer->built)
        mu__shape_as_keras(&layer->output, text);
}

static void measure_columns(const mu_model *model, int *title, int *shape)
{
    char text[MU_SHAPE_TEXT], name[TITLE_BYTES];
    *title = TITLE_COLUMN;
    *shape = SHAPE_COLUMN;
    for (size_t i = 0; i < model->sublayers.n; i++) {
        const mu_layer *layer = model->sublayers.items[i];
        shape_of_output(layer, text);
        *title = MU_MAX(*title, title_of(layer, name));
        *shape = MU_MAX(*shape, (int)strlen(text));
    }
}

mu_status mu_summary(mu_model *model, FILE *out)
{
    if (mu__pending())
        return mu_error_code();
    if (!out)
        return mu__error(MU_INVALID_ARGUMENT, "mu_summary: out is NULL");
    MU_TRY(mu__need_model(model, "mu_summary"));
    int64_t trainable = 0, all = mu_model_parameters(model);
    char shape[MU_SHAPE_TEXT], title[TITLE_BYTES];
    int title_width, shape_width;
    measure_columns(model, &title_width, &shape_width);
    fprintf(out, "%-*s %-*s %*s\n", title_width, "Layer (type)", shape_width, "Output Shape", COUNT_COLUMN, "Param #");
    for (size_t i = 0; i < model->sublayers.n; i++) {
        const mu_layer *layer = model->sublayers.items[i];
        shape_of_output(layer, shape);
        const int used = title_of(layer, title);
        fprintf(out, "%s%*s %-*s %*lld\n", title, title_width - used, "", shape_width, shape, COUNT_COLUMN,
                (long long)mu__layer_parameters(layer, false));
        trainable += mu__layer_parameters(layer, true);
    }
    fprintf(out, "Total params: %lld\nTrainable params: %lld\nNon-trainable params: %lld\n", (long long)all,
            (long long)trainable, (long long)(all - trainable));
    return MU_OK;
}
