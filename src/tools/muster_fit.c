// `muster fit`: trains the model that Keras's JSON, or a .keras file, describes, on data in files, under a strategy.
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"
#include "ops/spatial/image_size.h"
#include "tools/fit_data.h"
#include "tools/models.h"
#include "tools/tools.h"

enum {
    MODEL,
    DATA,
    LABELS,
    INPUTS,
    VALIDATION,
    VALIDATION_LABELS,
    VALIDATION_FREQ,
    STRATEGY,
    EPOCHS,
    BATCH_SIZE,
    OPTIMIZER,
    LOSS,
    METRICS,
    WEIGHTS,
    OUTPUT,
    LABEL_COLUMNS,
    SKIP_LINES,
    LABEL_MODE,
    IMAGE_SIZE,
    COLOR_MODE,
    INTERPOLATION,
    CROP,
    PAD,
    MAX_LENGTH,
    VALIDATION_SPLIT,
    SEED
};

static const char *const label_modes[] = {"int", "categorical", "binary", NULL};
static const char *const color_modes[] = {"rgb", "grayscale", "rgba", NULL};

static const mu_tool_option options[] = {
    [MODEL] = {.name = "model",
               .required = true,
               .value = "FILE",
               .text =
                   "model.json, as Keras's to_json() writes it, or a .keras file, whose weights training starts from"},
    [DATA] = {.name = "data",
              .required = true,
              .value = "PATH",
              .text = "samples: .npz, .csv, .npy, IDX, .tfrecord with records of tf.train.Example, or a folder with "
                      "one of images or texts for each class"},
    [LABELS] = {.name = "labels",
                .value = "FILE|NAME",
                .text = "labels: the file beside .npy or IDX; the names of arrays of .npz or features of .tfrecord, "
                        "with commas (default y)"},
    [INPUTS] = {.name = "inputs",
                .value = "NAMES",
                .initial = "x",
                .text =
                    "names of the arrays of .npz, or of the features of .tfrecord, that are the inputs, with commas"},
    [VALIDATION] = {.name = "validation-data",
                    .value = "PATH",
                    .text = "samples to evaluate after each epoch, in the form of --data"},
    [VALIDATION_LABELS] = {.name = "validation-labels", .value = "FILE", .text = "their labels, if they are in a file"},
    [VALIDATION_FREQ] = {.name = "validation-freq",
                         .value = "N[,N]...",
                         .initial = "1",
                         .text = "epochs from one evaluation to the next; several with commas: after these epochs"},
    [STRATEGY] = {.name = "strategy",
                  .value = "NAME",
                  .initial = "default",
                  .choices = mu__fit_strategies,
                  .text = "the strategy to train with"},
    [EPOCHS] = {.name = "epochs", .value = "N", .initial = "1", .text = "passes over the data"},
    [BATCH_SIZE] = {.name = "batch-size", .value = "N", .initial = "32", .text = "samples of a step, on all replicas"},
    [OPTIMIZER] = {.name = "optimizer",
                   .value = "NAME",
                   .text = "Keras's name of an optimizer; replaces that of a compiled model (default adam)"},
    [LOSS] = {.name = "loss", .value = "NAME", .text = "Keras's name of a loss; replaces that of a compiled model"},
    [METRICS] = {.name = "metrics", .value = "NAMES", .text = "Keras's names, with commas"},
    [WEIGHTS] = {.name = "weights", .value = "FILE", .text = "weights to start from, in any format of muster convert"},
    [OUTPUT] = {.name = "output",
                .letter = 'o',
                .value = "FILE",
                .text = "where the trained model (.keras) or its weights go"},
    [LABEL_COLUMNS] = {.name = "label-columns",
                       .value = "N",
                       .initial = "1",
                       .text = "of .csv: the last columns, which are the labels"},
    [SKIP_LINES] = {.name = "skip-lines",
                    .value = "N",
                    .initial = "0",
                    .text = "of .csv: lines before the first sample"},
    [LABEL_MODE] =
        {.name = "label-mode",
         .value = "MODE",
         .initial = "int",
         .choices = label_modes,
         .text = "of a folder: labels as numbers of classes, in order of their names; one-hot; or 0.0 and 1.0 of two"},
    [IMAGE_SIZE] =
        {.name = "image-size",
         .value = "HEIGHT,WIDTH",
         .text =
             "of a folder of images: their size (default that of the model's input, else 256,256); one number is both"},
    [COLOR_MODE] = {.name = "color-mode",
                    .value = "MODE",
                    .choices = color_modes,
                    .text = "of a folder of images: their channels (default those of the model's input, else rgb)"},
    [INTERPOLATION] = {.name = "interpolation",
                       .value = "NAME",
                       .initial = "bilinear",
                       .choices = mu__resize_methods,
                       .text = "of a folder of images: how they get their size"},
    [CROP] = {.name = "crop-to-aspect-ratio", .text = "of a folder of images: cut them to the proportion of the size"},
    [PAD] = {.name = "pad-to-aspect-ratio", .text = "of a folder of images: keep their proportion, with zeros beside"},
    [MAX_LENGTH] = {.name = "max-length",
                    .value = "BYTES",
                    .text = "of a folder of texts: how much of each is read (default all)"},
    [VALIDATION_SPLIT] =
        {.name = "validation-split",
         .value = "SHARE",
         .text = "of a folder: the share of its files to evaluate after each epoch instead of training on them"},
    [SEED] = {.name = "seed",
              .value = "N",
              .initial = "0",
              .text = "of weights, shuffling, dropout and --validation-split"},
    {.text = NULL},
};

// ---- The model ----------------------------------------------------------------------------------

// The names in an option, with commas between, as a list for mu_compile.
static mu_items *named_items(const mu_tool_arguments *a, int option)
{
    const void *items[MU_MAX_MODEL_INPUTS + 1];
    char *copy = mu__strdup(a->values[option]), *rest = copy;
    mu_items *list = NULL;
    int n = 0;
    for (char *word; n < MU_MAX_MODEL_INPUTS && (word = strsep(&rest, ","));)
        items[n++] = word;
    items[n] = MU_END;
    if (copy && rest)
        mu__error(MU_INVALID_ARGUMENT, "muster fit: --%s has more than %d names", options[option].name, n);
    else if (copy)
        list = mu_items_of(items);
    mu__free(copy);
    return list;
}

// Some of the metrics that the model was compiled with; NULL: none.
static mu_items *metrics_of(const mu_trainer *trainer, int begin, int end)
{
    const void *metrics[MU_MAX_LOGS];
    const int n = MU_MIN(end - begin, MU_MAX_LOGS - 1);
    for (int i = 0; i < n; i++)
        metrics[i] = trainer->metrics[begin + i];
    metrics[MU_MAX(n, 0)] = MU_END;
    return n > 0 ? mu_items_of(metrics) : NULL;
}

static mu_items *losses_of(const mu_trainer *trainer)
{
    const void *losses[MU_MAX_MODEL_INPUTS + 1];
    const int n = MU_MIN(trainer->n_losses, MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < n; i++)
        losses[i] = trainer->losses[i];
    losses[n] = MU_END;
    return mu_items_of(losses);
}

// What the options say, and for the rest what the model was compiled with.
static mu_status compile(mu_model *model, const mu_tool_arguments *a)
{
    const mu_trainer *trainer = model->trainer;
    const bool own_loss = a->values[LOSS] != NULL, own_metrics = a->values[METRICS] != NULL;
    if (!own_loss && !a->values[OPTIMIZER] && !own_metrics && trainer->n_losses > 0)
        return MU_OK;
    if (!own_loss && trainer->n_losses == 0)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "muster fit: %s does not say what to minimize; give --loss, such as --loss sparse_categorical_crossentropy",
            a->values[MODEL]);
    mu_optimizer *optimizer = a->values[OPTIMIZER] ? mu_optimizer_named(a->values[OPTIMIZER])
                              : trainer->optimizer ? trainer->optimizer
                                                   : mu_adam();
    const int first = trainer->first_metric, weighted = trainer->first_weighted, end = trainer->first_of_layers;
    const void *loss = !own_loss                      ? losses_of(trainer)
                       : strchr(a->values[LOSS], ',') ? (const void *)named_items(a, LOSS)
                                                      : a->values[LOSS]; // of all outputs
    mu_items *metrics = own_metrics ? named_items(a, METRICS) : metrics_of(trainer, first, weighted);
    mu_items *weighing = own_metrics ? NULL : metrics_of(trainer, weighted, end);
    const int *outputs = own_metrics ? NULL : trainer->metric_outputs;
    MU_TRY(mu_error_code());
    return mu_compile(model, .optimizer = optimizer, .loss = loss, .metrics = metrics, .weighted_metrics = weighing,
                      .loss_weights = own_loss ? NULL : trainer->loss_weights,
                      .n_loss_weights = own_loss ? 0 : trainer->n_losses, .run_eagerly = trainer->run_eagerly,
                      .steps_per_execution = MU_MAX(trainer->steps_per_execution, 1),
                      .metric_outputs = MU_BEHIND(outputs, first), .n_metric_outputs = outputs ? weighted - first : 0,
                      .weighted_metric_outputs = MU_BEHIND(outputs, weighted),
                      .n_weighted_metric_outputs = outputs ? end - weighted : 0);
}

static mu_model *make_model(const mu_tool_arguments *a)
{
    mu_model *model = mu__tool_model(a->values[MODEL], "muster fit");
    if (!model || compile(model, a) != MU_OK)
        return NULL;
    return !a->values[WEIGHTS] || mu_load_weights(model, a->values[WEIGHTS]) == MU_OK ? model : NULL;
}

// ---- Training -----------------------------------------------------------------------------------

// An option that the form of the data has no use for is a mistake, which would go unnoticed.
static mu_status check_form(const mu_tool_arguments *a)
{
    static const struct {
        int option;
        unsigned forms;
    } some[] = {{INPUTS, MU_FIT_ARRAYS | MU_FIT_EXAMPLES},
                {LABELS, MU_FIT_ARRAYS | MU_FIT_EXAMPLES | MU_FIT_TWO_FILES},
                {VALIDATION_LABELS, MU_FIT_ARRAYS | MU_FIT_EXAMPLES | MU_FIT_TWO_FILES},
                {LABEL_COLUMNS, MU_FIT_CSV},
                {SKIP_LINES, MU_FIT_CSV},
                {LABEL_MODE, MU_FIT_FOLDER},
                {IMAGE_SIZE, MU_FIT_FOLDER},
                {COLOR_MODE, MU_FIT_FOLDER},
                {INTERPOLATION, MU_FIT_FOLDER},
                {CROP, MU_FIT_FOLDER},
                {PAD, MU_FIT_FOLDER},
                {MAX_LENGTH, MU_FIT_FOLDER},
                {VALIDATION_SPLIT, MU_FIT_FOLDER}};
    const mu_fit_form form = mu__fit_form_of(a->values[DATA]);
    for (size_t i = 0; i < MU_COUNT(some); i++)
        if (a->values[some[i].option] != options[some[i].option].initial && !(some[i].forms & form))
            return mu__error(
                MU_INVALID_ARGUMENT,
                "muster fit: --%s is given, which says nothing about data like %s; leave it out (muster fit --help)",
                options[some[i].option].name, a->values[DATA]);
    return MU_OK;
}

// "height,width", or one number for both.
static mu_status read_image_size(const mu_tool_arguments *a, int size[2])
{
    enum { MOST = 1 << 16 };
    const char *text = a->values[IMAGE_SIZE];
    char *end;
    if (!text)
        return MU_OK;
    const long height = strtol(text, &end, 10), width = *end == ',' ? strtol(end + 1, &end, 10) : height;
    if (*end || height < 1 || height > MOST || width < 1 || width > MOST)
        return mu__tool_wrong(a, IMAGE_SIZE, "a height and a width in pixels, such as 224,224");
    size[0] = (int)height;
    size[1] = (int)width;
    return MU_OK;
}

// The name of the first option of some that is given; they end with SEED, which all data have.
static const char *first_given(const mu_tool_arguments *a, const int *some)
{
    for (; *some != SEED; some++)
        if (a->values[*some] != options[*some].initial)
            return options[*some].name;
    return NULL;
}

static mu_status read_folder_options(const mu_tool_arguments *a, mu_fit_folder *f)
{
    static const int of_images[] = {IMAGE_SIZE, COLOR_MODE, INTERPOLATION, CROP, PAD, SEED},
                     of_texts[] = {MAX_LENGTH, SEED};
    const int label_mode = mu__tool_choice(a, LABEL_MODE), interpolation = mu__tool_choice(a, INTERPOLATION);
    const int color_mode = a->values[COLOR_MODE] ? mu__tool_choice(a, COLOR_MODE) : 0;
    if (label_mode < 0 || interpolation < 0 || color_mode < 0)
        return mu_error_code();
    *f = (mu_fit_folder){.label_mode = label_modes[label_mode],
                         .interpolation = mu__resize_methods[interpolation],
                         .color_mode = a->values[COLOR_MODE] ? color_modes[color_mode] : NULL,
                         .crops = a->values[CROP] != NULL,
                         .pads = a->values[PAD] != NULL,
                         .of_images = first_given(a, of_images),
                         .of_texts = first_given(a, of_texts)};
    MU_TRY(read_image_size(a, f->image_size));
    MU_TRY(mu__tool_whole(a, SEED, 0, INT32_MAX, &f->seed));
    if (a->values[MAX_LENGTH])
        MU_TRY(mu__tool_whole(a, MAX_LENGTH, 1, INT32_MAX, &f->max_length));
    if (a->values[VALIDATION_SPLIT] && a->values[VALIDATION])
        return mu__error(MU_INVALID_ARGUMENT,
                         "muster fit: --validation-split and --validation-data are both given; give one of them");
    return a->values[VALIDATION_SPLIT]
               ? mu__tool_number(a, VALIDATION_SPLIT, "a share", 0.0001, 0.9999, &f->validation_split)
               : MU_OK;
}

static mu_status read_options(const mu_tool_arguments *a, mu_fit_source *source, int *epochs)
{
    *source = (mu_fit_source){.path = a->values[DATA], .labels = a->values[LABELS], .inputs = a->values[INPUTS]};
    MU_TRY(check_form(a));
    MU_TRY(read_folder_options(a, &source->folder));
    MU_TRY(mu__tool_whole(a, EPOCHS, 1, 1 << 30, epochs));
    MU_TRY(mu__tool_whole(a, BATCH_SIZE, 1, 1 << 30, &source->batch_size));
    MU_TRY(mu__tool_whole(a, LABEL_COLUMNS, 1, 1 << 20, &source->label_columns));
    MU_TRY(mu__tool_whole(a, SKIP_LINES, 0, 1 << 20, &source->skip_lines));
    mu_set_seed((uint64_t)source->folder.seed);
    if (a->values[OUTPUT])
        MU_TRY(mu__tool_check_target(a->values[OUTPUT], "muster fit"));
    return mu_error_code();
}

// A training is not lost at its end for a folder that nothing can be written to.
static mu_status try_output(const char *path)
{
    mu_file_writer *file = !path || !mu_strategy_should_checkpoint(mu_get_strategy()) ? NULL : mu__file_create(path);
    mu__file_abandon(file);
    if (mu__pending())
        mu__error_context("while trying whether --output can be written, before the training");
    return mu_error_code();
}

// `source` is that of the samples to train on.
static mu_dataset *validation_data(const mu_tool_arguments *a, mu_fit_source *source)
{
    const bool from_split = a->values[VALIDATION_SPLIT] != NULL;
    if (!a->values[VALIDATION] && !from_split)
        return NULL;
    source->subset = from_split ? "validation" : NULL;
    source->path = from_split ? a->values[DATA] : a->values[VALIDATION];
    source->like = !from_split && mu__fit_form_of(a->values[DATA]) == MU_FIT_FOLDER ? a->values[DATA] : NULL;
    if (a->values[VALIDATION_LABELS] || mu__fit_form_of(source->path) == MU_FIT_TWO_FILES)
        source->labels = a->values[VALIDATION_LABELS];
    source->shuffles = false;
    return mu__fit_data(source);
}

enum { MOST_EPOCHS_LISTED = 1000 };

// A number alone is Keras's integer, several are its list; they end with 0.
static mu_status read_validation_freq(const char *text, int epochs[MOST_EPOCHS_LISTED + 1])
{
    int n = 0;
    for (const char *at = text; n < MOST_EPOCHS_LISTED; at++) {
        char *end;
        const long number = strtol(at, &end, 10);
        if (end == at || number < 1 || number > INT32_MAX || (*end && *end != ','))
            break;
        epochs[n++] = (int)number;
        epochs[n] = 0;
        if (!*(at = end))
            return MU_OK;
    }
    return mu__error(MU_INVALID_ARGUMENT,
                     "muster fit: --validation-freq is '%.60s'; give a number of epochs from 1, or up to %d epochs "
                     "with commas, such as 1,2,10",
                     text, MOST_EPOCHS_LISTED);
}

static bool run(const mu_tool_arguments *a)
{
    mu_fit_source source;
    int epochs, validated[MOST_EPOCHS_LISTED + 1];
    if (read_options(a, &source, &epochs) != MU_OK ||
        read_validation_freq(a->values[VALIDATION_FREQ], validated) != MU_OK)
        return false;
    mu_strategy *strategy = mu__fit_strategy(mu__tool_choice(a, STRATEGY));
    mu_model *model = NULL;
    if (mu__pending())
        return false;
    mu_scope_guard scope = {0};
    if (strategy)
        scope = mu_scope_open(strategy);
    model = try_output(a->values[OUTPUT]) == MU_OK ? make_model(a) : NULL;
    if (strategy)
        mu_scope_close(&scope);
    if (!model)
        return false;
    source.shuffles = true;
    source.subset = a->values[VALIDATION_SPLIT] ? "training" : NULL;
    source.model = model;
    mu_fit_source other = source;
    mu_dataset *train = mu__fit_data(&source), *validation = train ? validation_data(a, &other) : NULL;
    if (mu__pending())
        return false;
    mu_fit_args args = {
        .size = sizeof args, .model = model, .x = train, .epochs = epochs, .validation_data = validation};
    if (validated[1] != 0)
        args.validation_epochs = validated;
    else
        args.validation_freq = validated[0];
    mu_history *history = mu_fit_with(&args);
    const char *output = a->values[OUTPUT];
    return history && (!output || mu__tool_save(model, output, "muster fit") == MU_OK);
}

const mu_tool_command mu__tool_fit = {
    .name = "muster fit",
    .usage = "--model FILE --data PATH [OPTION]...",
    .summary = "train a model of Keras's on data in files",
    .description = "Makes the model that FILE describes, compiles it as the file says or as --optimizer, --loss and "
                   "--metrics say, trains it, and writes the result to --output.\n\n"
                   "Samples of .npz and .tfrecord are the arrays and features that --inputs and --labels name. "
                   "Features get the shapes of the model's inputs; features of bytes are images (JPEG, PNG) or "
                   "elements of uint8. Lines of .csv are numbers, and the last --label-columns of them are labels. "
                   ".npy and IDX files have their labels in a second file, --labels.\n\n"
                   "In a folder each folder is a class, and the files in it, at any depth, are its samples: texts "
                   "(.txt) where the model's input is of strings, else images (JPEG, PNG). The options for them have "
                   "the names of Keras's image_dataset_from_directory and text_dataset_from_directory.\n\n"
                   "With --strategy multi_worker, run it in every process of a cluster: muster launch -n 2 -- muster "
                   "fit ARGUMENTS. With --strategy parameter_server, run muster launch --workers 2 --ps 1 -- muster "
                   "fit ARGUMENTS; without a cluster, the workers and the server are threads.",
    .example = "muster fit --model model.json --data train.npz --loss mse --epochs 5 -o trained.keras\n"
               "muster fit --model model.json --data train.tfrecord --inputs image --labels label --strategy mirrored\n"
               "muster fit --model model.keras --data photos/ --validation-split 0.2 --crop-to-aspect-ratio\n"
               "muster fit --model model.keras --data train.csv --strategy mirrored -o trained.safetensors\n",
    .options = options,
    .needs = "it takes options only",
    .fewest = 0,
    .most = 0,
    .run = run,
};
