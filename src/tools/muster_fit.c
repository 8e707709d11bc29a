// `muster fit`: trains the model that Keras's JSON, or a .keras file, describes, on data in files, under a strategy.
#include "model/optimizers/optimizer.h"
#include "model/training/training.h"
#include "tools/fit_data.h"
#include "tools/models.h"
#include "tools/tools.h"

enum { MODEL, DATA, LABELS, INPUTS, VALIDATION, VALIDATION_LABELS, VALIDATION_FREQ, STRATEGY, EPOCHS, BATCH_SIZE,
       OPTIMIZER, LOSS, METRICS, WEIGHTS, OUTPUT, LABEL_COLUMNS, SKIP_LINES, SEED };

static const mu_tool_option options[] = {
    [MODEL] = {.name = "model", .required = true, .value = "FILE", .text = "model.json, as Keras's to_json() writes "
               "it, or a .keras file, whose weights training starts from"},
    [DATA] = {.name = "data", .required = true, .value = "FILE", .text = "samples: .npz, .csv, .npy, IDX, "
              "or .tfrecord with records of tf.train.Example"},
    [LABELS] = {.name = "labels", .value = "FILE|NAME", .text = "labels: the file beside .npy or IDX; the names of "
                "arrays of .npz or features of .tfrecord, with commas (default y)"},
    [INPUTS] = {.name = "inputs", .value = "NAMES", .initial = "x", .text = "names of the arrays of .npz, or of the "
                "features of .tfrecord, that are the inputs, with commas"},
    [VALIDATION] = {.name = "validation-data", .value = "FILE", .text = "samples to evaluate after each epoch, in the "
                    "form of --data"},
    [VALIDATION_LABELS] = {.name = "validation-labels", .value = "FILE", .text = "their labels, if they are in a file"},
    [VALIDATION_FREQ] = {.name = "validation-freq", .value = "N[,N]...", .initial = "1", .text = "epochs from one "
                         "evaluation to the next; several with commas: after these epochs"},
    [STRATEGY] = {.name = "strategy", .value = "NAME", .initial = "default", .choices = mu__fit_strategies,
                  .text = "the strategy to train with"},
    [EPOCHS] = {.name = "epochs", .value = "N", .initial = "1", .text = "passes over the data"},
    [BATCH_SIZE] = {.name = "batch-size", .value = "N", .initial = "32", .text = "samples of a step, on all replicas"},
    [OPTIMIZER] = {.name = "optimizer", .value = "NAME", .text = "Keras's name of an optimizer; replaces "
                   "that of a compiled model (default adam)"},
    [LOSS] = {.name = "loss", .value = "NAME", .text = "Keras's name of a loss; replaces that of a compiled "
              "model"},
    [METRICS] = {.name = "metrics", .value = "NAMES", .text = "Keras's names, with commas"},
    [WEIGHTS] = {.name = "weights", .value = "FILE", .text = "weights to start from, in any format of muster convert"},
    [OUTPUT] = {.name = "output", .letter = 'o', .value = "FILE", .text = "where the trained model (.keras) or its "
                "weights go"},
    [LABEL_COLUMNS] = {.name = "label-columns", .value = "N", .initial = "1", .text = "of .csv: the last columns, "
                       "which are the labels"},
    [SKIP_LINES] = {.name = "skip-lines", .value = "N", .initial = "0", 
                    .text = "of .csv: lines before the first sample"},
    [SEED] = {.name = "seed", .value = "N", .initial = "0", .text = "of weights, shuffling and dropout"},
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
        return mu__error(MU_INVALID_ARGUMENT, "muster fit: %s does not say what to minimize; give --loss, such as "
                         "--loss sparse_categorical_crossentropy", a->values[MODEL]);
    mu_optimizer *optimizer = a->values[OPTIMIZER] ? mu_optimizer_named(a->values[OPTIMIZER])
                              : trainer->optimizer ? trainer->optimizer : mu_adam();
    const int first = trainer->first_metric, weighted = trainer->first_weighted, end = trainer->first_of_layers;
    const void *loss = !own_loss                      ? losses_of(trainer)
                       : strchr(a->values[LOSS], ',') ? (const void *)named_items(a, LOSS)
                                                      : a->values[LOSS];  // of all outputs
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
    static const struct { int option; unsigned forms; } some[] = {
        {INPUTS, MU_FIT_ARRAYS | MU_FIT_EXAMPLES}, {LABELS, MU_FIT_ARRAYS | MU_FIT_EXAMPLES | MU_FIT_TWO_FILES},
        {VALIDATION_LABELS, MU_FIT_ARRAYS | MU_FIT_EXAMPLES | MU_FIT_TWO_FILES}, {LABEL_COLUMNS, MU_FIT_CSV},
        {SKIP_LINES, MU_FIT_CSV}};
    const mu_fit_form form = mu__fit_form_of(a->values[DATA]);
    for (size_t i = 0; i < MU_COUNT(some); i++)
        if (a->values[some[i].option] != options[some[i].option].initial && !(some[i].forms & form))
            return mu__error(MU_INVALID_ARGUMENT, "muster fit: --%s is given, which says nothing about data like %s; "
                             "leave it out (muster fit --help)", options[some[i].option].name, a->values[DATA]);
    return MU_OK;
}

static mu_status read_options(const mu_tool_arguments *a, mu_fit_source *source, int *epochs)
{
    *source = (mu_fit_source){.path = a->values[DATA], .labels = a->values[LABELS], .inputs = a->values[INPUTS]};
    MU_TRY(check_form(a));
    MU_TRY(mu__tool_whole(a, EPOCHS, 1, 1 << 30, epochs));
    MU_TRY(mu__tool_whole(a, BATCH_SIZE, 1, 1 << 30, &source->batch_size));
    MU_TRY(mu__tool_whole(a, LABEL_COLUMNS, 1, 1 << 20, &source->label_columns));
    MU_TRY(mu__tool_whole(a, SKIP_LINES, 0, 1 << 20, &source->skip_lines));
    int seed;
    MU_TRY(mu__tool_whole(a, SEED, 0, INT32_MAX, &seed));
    mu_set_seed((uint64_t)seed);
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
    if (!a->values[VALIDATION])
        return NULL;
    source->path = a->values[VALIDATION];
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
    return mu__error(MU_INVALID_ARGUMENT, "muster fit: --validation-freq is '%.60s'; give a number of epochs from 1, "
                     "or up to %d epochs with commas, such as 1,2,10", text, MOST_EPOCHS_LISTED);
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
    source.model = model;
    mu_fit_source other = source;
    mu_dataset *train = mu__fit_data(&source), *validation = train ? validation_data(a, &other) : NULL;
    if (mu__pending())
        return false;
    mu_fit_args args = {.size = sizeof args, .model = model, .x = train, .epochs = epochs,
                        .validation_data = validation};
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
    .usage = "--model FILE --data FILE [OPTION]...",
    .summary = "train a model of Keras's on data in files",
    .description =
        "Makes the model that FILE describes, compiles it as the file says or as --optimizer, --loss and "
        "--metrics say, trains it, and writes the result to --output.\n\n"
        "Samples of .npz and .tfrecord are the arrays and features that --inputs and --labels name. Features "
        "get the shapes of the model's inputs; features of bytes are images (JPEG, PNG) or elements of "
        "uint8. Lines of .csv are numbers, and the last --label-columns of them are labels. .npy and IDX "
        "files have their labels in a second file, --labels.\n\n"
        "With --strategy multi_worker, run it in every process of a cluster: muster launch -n 2 -- muster "
        "fit ARGUMENTS. With --strategy parameter_server, run muster launch --workers 2 --ps 1 -- muster fit "
        "ARGUMENTS; without a cluster, the workers and the server are threads.",
    .example = "muster fit --model model.json --data train.npz --loss mse --epochs 5 -o trained.keras\n"
               "muster fit --model model.json --data train.tfrecord --inputs image --labels label --strategy mirrored\n"
               "muster fit --model model.keras --data train.csv --strategy mirrored -o trained.safetensors\n",
    .options = options,
    .needs = "it takes options only",
    .fewest = 0,
    .most = 0,
    .run = run,
};
