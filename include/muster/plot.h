// Pictures as SVG, which browsers, GitHub and editors show: the layers of a model, and the curves of a training run.
#ifndef MUSTER_PLOT_H
#define MUSTER_PLOT_H

#include <muster/model.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mu_plot_model_args {
    size_t size;
    const char *given;
    mu_model *model;
    const char *to_file; // ends with .svg; default "model.svg"
    mu_keyword_only only_;
    bool show_shapes;            // of the inputs and outputs of each layer
    bool show_dtype;             // likewise the types
    bool no_layer_names;         // classes alone
    const char *rankdir;         // "TB": from top to bottom, the default; "LR": from left to right
    bool expand_nested;          // draw models in models as groups
    bool show_layer_activations; // the activations that are options of layers
    bool show_trainable;         // whether a layer is trained: T or NT
} mu_plot_model_args;
// mu_plot_model draws a model's layers and how they lead to each other, as keras.utils.plot_model does. A layer that is
// called several times is drawn for each call. The file is written atomically; with several workers the chief writes
// it. Errors: INVALID_ARGUMENT for another format than SVG; FAILED_PRECONDITION for a model without weights, whose
// shapes are not known yet (mu_model_build makes them).
#define mu_plot_model(...) mu_plot_model_with(MU_ARGS(mu_plot_model_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_plot_model_with(const mu_plot_model_args *args);

typedef struct mu_plot_history_args {
    size_t size;
    const char *given;
    mu_history *history;
    const char *to_file; // ends with .svg; default "history.svg"
    mu_keyword_only only_;
} mu_plot_history_args;
// mu_plot_history draws the values of a training run by epoch: a panel for the loss and for each metric, with those of
// training and of validation. Values that are not finite leave a gap. In the scope of a strategy with several workers
// the chief writes. Errors: INVALID_ARGUMENT for another format, or a history without epochs;
// FAILED_PRECONDITION if to_file is a folder.
#define mu_plot_history(...) mu_plot_history_with(MU_ARGS(mu_plot_history_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_plot_history_with(const mu_plot_history_args *args);

#ifdef __cplusplus
}
#endif
#endif
