// What `muster fit` trains with: samples and labels from files, as batches; the strategy.
#ifndef MU_SRC_TOOLS_FIT_DATA_H
#define MU_SRC_TOOLS_FIT_DATA_H

#include "model/core/layer.h"

#include <muster/example.h>
#include <muster/model.h>

enum { MU_FIT_NAMES = 64, MU_FIT_NAMES_BYTES = 1000, MU_FIT_SHUFFLED_ROWS = 10000 };

// The forms of data, which can be added to a set: .npz; .tfrecord; .csv; two files, of samples and of labels, .npy or
// IDX; a folder of images or texts.
typedef enum mu_fit_form {
    MU_FIT_ARRAYS = 1,
    MU_FIT_EXAMPLES = 2,
    MU_FIT_CSV = 4,
    MU_FIT_TWO_FILES = 8,
    MU_FIT_FOLDER = 16
} mu_fit_form;

// How files in a folder become samples, as in mu_dataset_image_folder and mu_dataset_text_folder.
typedef struct mu_fit_folder {
    const char *label_mode, *color_mode, *interpolation; // color_mode NULL: that of the model's input
    int image_size[2];                                   // 0: that of the model's input
    bool crops, pads;
    int max_length; // of texts; 0: any
    double validation_split;
    int seed;                         // of shuffling and of the split
    const char *of_images, *of_texts; // an option that only they have, if one is given
} mu_fit_folder;

// Must live as long as the dataset that is made of it.
typedef struct mu_fit_source {
    const char *path;
    const mu_model *model;         // compiled; whose inputs and outputs the samples are for
    const char *labels;            // of .npz and .tfrecord: names, with commas (NULL: "y"); of .npy and IDX: a file
    const char *inputs;            // of .npz and .tfrecord: names, with commas
    int label_columns, skip_lines; // of .csv
    mu_fit_folder folder;          // of folders
    const char *subset;            // of folders: "training" or "validation", with a validation_split; else NULL
    const char *like;              // of folders: another one that must have the same classes, or NULL
    int batch_size;
    bool shuffles;
    // Set by mu__fit_data, of .npz and .tfrecord: the names of the inputs, then those of the labels.
    char text[2 * MU_FIT_NAMES_BYTES];
    const char *names[MU_FIT_NAMES];
    int n_inputs, n_names;
    mu_feature features[MU_FIT_NAMES]; // of .tfrecord
} mu_fit_source;

// The names of the strategies, and the strategy of a name's number, which belongs to the pool; NULL without an error:
// the default one (fit_strategy.c).
extern const char *const mu__fit_strategies[];
mu_strategy *mu__fit_strategy(int which);
mu_fit_form mu__fit_form_of(const char *path); // by its name, or a folder
// mu__fit_data returns batches whose elements are lists of inputs and labels. Belongs to the pool; NULL on error.
mu_dataset *mu__fit_data(mu_fit_source *source);
// mu__fit_label returns label `output` in the type that the loss of this output takes: numbers of classes are integers,
// whatever their file has. Belongs to the pool; NULL on error.
mu_tensor *mu__fit_label(const mu_fit_source *source, int output, mu_tensor *label);
// mu__fit_inputs gives the inputs of a functional model and returns how many there are; 0 of another model, which has
// one. mu__fit_input returns the type and shape of a sample for input i; rank 0: the shape is not known, or the sample
// is a scalar.
int mu__fit_inputs(const mu_model *model, mu_tensor *inputs[MU_MAX_MODEL_INPUTS]);
mu_spec mu__fit_input(const mu_model *model, int i);
// For mu__fit_data: the samples of a TFRecord file of tf.train.Example; of the files in a folder, whose labels are its
// folders.
mu_dataset *mu__fit_examples(mu_fit_source *source);
mu_dataset *mu__fit_files(const mu_fit_source *source);

#endif
