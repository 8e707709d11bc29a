// The files in a folder as samples for `muster fit`: texts where the model takes strings, else images. The folders in
// it are the classes.
#include "tools/fit_data.h"

#include <muster/image.h>
#include <muster/ops.h>

// ---- Classes ------------------------------------------------------------------------------------

static void write_classes(const mu_tensor *classes, size_t bytes, char *text)
{
    *text = '\0';
    for (int64_t i = 0; i < mu_tensor_dim(classes, 0); i++) {
        const size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s", i > 0 ? ", " : "", mu_tensor_string(classes, i).bytes);
    }
}

// Labels are the numbers of classes, so two folders must agree in all of them.
static mu_status check_classes(const char *path, const char *like)
{
    mu_tensor *seen = mu_image_folder_classes(path), *wanted = seen ? mu_image_folder_classes(like) : NULL;
    char text[200], wanted_text[200];
    if (!wanted)
        return mu_error_code();
    bool same = mu_tensor_dim(seen, 0) == mu_tensor_dim(wanted, 0);
    for (int64_t i = 0; same && i < mu_tensor_dim(seen, 0); i++)
        same = strcmp(mu_tensor_string(seen, i).bytes, mu_tensor_string(wanted, i).bytes) == 0;
    if (same)
        return MU_OK;
    write_classes(seen, sizeof text, text);
    write_classes(wanted, sizeof wanted_text, wanted_text);
    return mu__error(MU_INVALID_ARGUMENT,
                     "muster fit: the classes in %s are %s; in %s they are %s, and labels are their numbers: both need "
                     "folders of the same names",
                     path, text, like, wanted_text);
}

// ---- Samples ------------------------------------------------------------------------------------

static mu_dataset *texts_of(const mu_fit_source *source)
{
    const mu_fit_folder *f = &source->folder;
    mu_dataset_text_folder_args args = {.size = sizeof args,
                                        .given = ".seed .batch_size",
                                        .directory = source->path,
                                        .label_mode = f->label_mode,
                                        .batch_size = -1,
                                        .no_shuffle = !source->shuffles && !source->subset,
                                        .seed = (uint64_t)f->seed,
                                        .validation_split = source->subset ? f->validation_split : 0,
                                        .subset = source->subset,
                                        .max_length = f->max_length};
    return mu_dataset_text_folder_with(&args);
}

// Size and colours are those of the model's input, where it has some, unless options say others.
static mu_dataset *images_of(const mu_fit_source *source, const mu_shape *input)
{
    const mu_fit_folder *f = &source->folder;
    const int64_t *dims = input->dims, channels = input->rank == 3 ? dims[2] : 0;
    const bool known = input->rank == 3 && dims[0] > 0 && dims[1] > 0;
    const char *color_mode = f->color_mode   ? f->color_mode
                             : channels == 1 ? "grayscale"
                             : channels == 4 ? "rgba"
                                             : "rgb";
    mu_dataset_image_folder_args args = {
        .size = sizeof args,
        .given = ".seed .batch_size",
        .directory = source->path,
        .label_mode = f->label_mode,
        .color_mode = color_mode,
        .batch_size = -1,
        .interpolation = f->interpolation,
        .image_size = {f->image_size[0] > 0 || !known ? f->image_size[0] : (int)dims[0],
                       f->image_size[1] > 0 || !known ? f->image_size[1] : (int)dims[1]},
        .no_shuffle = !source->shuffles && !source->subset,
        .seed = (uint64_t)f->seed,
        .validation_split = source->subset ? f->validation_split : 0,
        .subset = source->subset,
        .crop_to_aspect_ratio = f->crops,
        .pad_to_aspect_ratio = f->pads};
    return mu_dataset_image_folder_with(&args);
}

static mu_status check(const mu_fit_source *source, bool texts)
{
    const char *const other = texts ? source->folder.of_images : source->folder.of_texts;
    mu_tensor *inputs[MU_MAX_MODEL_INPUTS];
    const int n = mu__fit_inputs(source->model, inputs);
    if (n > 1)
        return mu__error(MU_INVALID_ARGUMENT,
                         "muster fit: %s is a folder, whose files are one input, and the model takes %d; give .npz or "
                         ".tfrecord with all of them",
                         source->path, n);
    if (other)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "muster fit: --%s is given, which says nothing about %s, which the model takes%s; leave it out", other,
            texts ? "texts" : "images", texts ? "" : ", since its input is not of strings");
    return source->like ? check_classes(source->path, source->like) : MU_OK;
}

static mu_value *with_label(mu_value *sample, void *arg)
{
    mu_tensor *label = mu__fit_label(arg, 0, mu_at(sample, 1));
    return label ? mu_list(mu_at(sample, 0), label, MU_END) : NULL;
}

mu_dataset *mu__fit_files(const mu_fit_source *source)
{
    const mu_spec input = mu__fit_input(source->model, 0);
    const bool texts = input.dtype == MU_STRING;
    if (check(source, texts) != MU_OK)
        return NULL;
    mu_dataset *files = texts ? texts_of(source) : images_of(source, &input.shape);
    if (!files && mu_error_code() == MU_NOT_FOUND)
        mu__error_context("the model's input is %s strings, so the folder is one of %s", texts ? "of" : "not of",
                          texts ? "texts" : "images");
    return files ? mu_dataset_map(files, with_label, (void *)(uintptr_t)source, .name = "with_label") : NULL;
}
