// Files in a folder, labelled by the folders that they are in, for datasets of images and of texts.
//
// The files are listed when the dataset is made. A dataset of names and labels follows, which is divided, shuffled and
// repeated like any other, and then a stage that reads one file.
#ifndef MU_SRC_DATA_LABELLED_FOLDER_H
#define MU_SRC_DATA_LABELLED_FOLDER_H

#include "data/dataset.h"

// Which files are samples, and how messages name them.
typedef struct mu_folder_kind {
    const char *function, *need; // "mu_dataset_image_folder", "mu_dataset_image_folder: the directory"
    const char *samples;         // "images"
    const char *const *ends;     // of their names, in any case: ".png"; ends with NULL
} mu_folder_kind;

// What the public structs of options have in common.
typedef struct mu_folder_options {
    const char *directory, *label_mode, *subset;
    int64_t batch_size;
    bool no_shuffle;
    const uint64_t *seed; // NULL: not given
    double validation_split;
} mu_folder_options;

// The form of the labels.
typedef struct mu_folder_labels {
    bool given, categorical, binary;
    int classes;
} mu_folder_labels;

// mu__folder_files makes the dataset of names and labels, lists of both, and fills `labels`. NULL on error:
// INVALID_ARGUMENT for options, NOT_FOUND without files.
mu_dataset *mu__folder_files(const mu_folder_kind *kind, const mu_folder_options *options, mu_folder_labels *labels);
// mu__folder_classes returns the names of the classes; NULL on error.
mu_tensor *mu__folder_classes(const mu_folder_kind *kind, const char *directory);
// mu__folder_word checks an option that is one of some words.
mu_status mu__folder_word(const char *function, const char *option, const char *word, const char *const *words);

// Slots of the stage that reads it. mu__folder_next makes an element of what `load` returns for a file's path, which
// gets the stage's arguments; mu__folder_spec is the spec of an element, and takes over that of a sample.
mu_status mu__folder_next(mu_stage *stage, const mu_folder_labels *labels, mu_item *item, bool *end,
                          mu_tensor *(*load)(const void *args, const char *path));
mu_status mu__folder_skip(mu_stage *stage, int64_t count, int64_t *skipped);
int64_t mu__folder_cardinality(const mu_dataset *dataset);
mu_value *mu__folder_spec(const mu_folder_labels *labels, mu_value *sample);

#endif
