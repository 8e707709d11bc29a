// Records of tf.train.Example as samples for `muster fit`: features become tensors of the shapes of the model's inputs.
//
// The first record says of which type each feature is and how many values it has. Features of bytes are strings where
// the model's input is, else images in JPEG or PNG, or elements of uint8.
#include "tools/fit_data.h"

#include "data/formats/example.h"
#include "model/core/layer.h"
#include "model/models/functional.h"
#include "model/models/host_part.h"

#include <muster/image.h>
#include <muster/ops.h>

// ---- What the model takes -----------------------------------------------------------------------

int mu__fit_inputs(const mu_model *model, mu_tensor *inputs[MU_MAX_MODEL_INPUTS])
{
    mu_object *objects[MU_MAX_MODEL_INPUTS];
    const mu_functional *f = model->state;
    if (model->ops != &mu__functional_ops)
        return 0;
    const int n = MU_MIN(mu__value_flatten(f->inputs, objects, MU_MAX_MODEL_INPUTS), MU_MAX_MODEL_INPUTS);
    for (int i = 0; i < n; i++)
        inputs[i] = (mu_tensor *)objects[i];
    return n;
}

mu_spec mu__fit_input(const mu_model *model, int i)
{
    mu_spec batch = {.dtype = mu__host_input_dtype(model, mu__floatx())}, sample;
    mu_tensor *inputs[MU_MAX_MODEL_INPUTS];
    const int n = mu__fit_inputs(model, inputs);
    if (model->built)
        batch.shape = model->input;
    if (n > 0)
        batch = i < n ? mu__spec_of(inputs[i]) : (mu_spec){0};
    sample = (mu_spec){.dtype = batch.dtype};
    for (int axis = 1; axis < batch.shape.rank; axis++)
        sample.shape.dims[sample.shape.rank++] = batch.shape.dims[axis];
    return sample;
}

// ---- What the first record has ------------------------------------------------------------------

// Several strings, or an axis of one, are read only as the model's input has them.
static mu_status describe_strings(const mu_fit_source *source, int i, int64_t n, mu_feature *feature)
{
    const mu_spec wanted = mu__fit_input(source->model, i);
    char text[MU_SHAPE_TEXT];
    if (i < source->n_inputs && wanted.dtype == MU_STRING) {
        feature->shape = wanted.shape;
        return mu__shape_known(&wanted.shape) && mu__elements(&wanted.shape) == n
                   ? MU_OK
                   : mu__error(MU_INVALID_ARGUMENT,
                               "muster fit: feature '%.100s' of %s has %lld strings in an example; the model's input "
                               "takes %s",
                               feature->name, source->path, (long long)n, mu__shape_text(&wanted.shape, text));
    }
    return n == 1 ? MU_OK
                  : mu__error(MU_UNIMPLEMENTED,
                              "muster fit: feature '%.100s' of %s has %lld strings in an example; one is read, as an "
                              "image or as uint8, where the model's input does not take strings",
                              feature->name, source->path, (long long)n);
}

static mu_status describe(const mu_fit_source *source, int i, mu_span value, mu_feature *feature)
{
    const char *name = source->names[i];
    mu_span list = {0};
    mu_value_sink count = {0};
    *feature = (mu_feature){.name = name};
    if (!value.bytes)
        return mu__error(
            MU_INVALID_ARGUMENT,
            "muster fit: the first example of %s has no feature '%.100s'; name its features with --inputs and --labels",
            source->path, name);
    if (!mu__example_kind(value, false, &feature->dtype, &list) || feature->dtype == MU_DTYPE_DEFAULT ||
        mu__example_values(list, false, feature->dtype, &count) != MU_OK || count.n == 0)
        return mu__error(MU_DATA_LOSS, "muster fit: feature '%.100s' of the first example of %s has no values", name,
                         source->path);
    if (feature->dtype == MU_STRING)
        return describe_strings(source, i, (int64_t)count.n, feature);
    feature->shape = MU_SHAPE(count.n);
    return MU_OK;
}

static mu_status describe_all(mu_fit_source *source, mu_dataset *records)
{
    mu_value *first = mu_next(mu_iterate(records));
    mu_tensor *bytes = first ? mu_value_tensor(first) : NULL;
    const void *data = bytes ? mu__host_read(bytes) : NULL;
    mu_span values[MU_FIT_NAMES];
    if (!data)
        return mu__pending() ? mu_error_code()
                             : mu__error(MU_INVALID_ARGUMENT, "muster fit: %s has no records", source->path);
    if (!mu__example_find((mu_span){data, (size_t)mu_tensor_dim(bytes, 0)}, MU_EXAMPLE_FEATURES, source->n_names,
                          source->names, values))
        return mu__error(
            MU_DATA_LOSS,
            "muster fit: the first record of %s is not a tf.train.Example; expected a TFRecord file of examples",
            source->path);
    for (int i = 0; i < source->n_names; i++)
        MU_TRY(describe(source, i, values[i], &source->features[i]));
    return MU_OK;
}

// ---- One sample ---------------------------------------------------------------------------------

// `shape`: of the model's input. An image gets its channels, because data in colour often have some images in gray.
static mu_tensor *tensor_of_bytes(mu_tensor *text, const mu_shape *shape)
{
    const int64_t channels = shape->rank == 3 && shape->dims[2] > 0 && shape->dims[2] <= 4 ? shape->dims[2] : 0;
    const mu_string string = mu__string_at(text, 0);
    const bool png = string.n >= 8 && memcmp(string.bytes, "\x89PNG\r\n\x1a\n", 8) == 0;
    const bool jpeg = string.n >= 3 && memcmp(string.bytes, "\xff\xd8\xff", 3) == 0;
    return png || jpeg ? mu_decode_image(text, (int)channels)
                       : mu_tensor_new(MU_U8, 1, (int64_t[]){(int64_t)string.n}, string.bytes);
}

static mu_tensor *value_of(const mu_fit_source *source, const mu_value *example, int i)
{
    const bool label = i >= source->n_inputs;
    mu_value *value = mu_value_get(example, source->names[i]);
    mu_tensor *x = value ? mu_value_tensor(value) : NULL;
    const mu_spec wanted = mu__fit_input(source->model, i);
    if (x && mu__has_strings(x) && !label && wanted.dtype == MU_STRING)
        return x;
    if (x && mu__has_strings(x))
        x = tensor_of_bytes(x, label ? &mu__scalar_shape : &wanted.shape);
    if (!x)
        return NULL;
    if (label && mu_tensor_rank(x) == 1 && mu_tensor_dim(x, 0) == 1)
        x = mu_squeeze(x, 0);
    if (label)
        return mu__fit_label(source, i - source->n_inputs, x);
    const mu_shape *shape = &wanted.shape;
    return shape->rank > 0 && !mu__shape_equal(shape, &x->shape) ? mu_reshape(x, shape->rank, shape->dims) : x;
}

static mu_value *list_of(const mu_fit_source *source, const mu_value *example, int begin, int end)
{
    mu_value *items[MU_FIT_NAMES];
    for (int i = begin; i < end; i++) {
        mu_tensor *x = value_of(source, example, i);
        if (!x) {
            mu__error_context("in feature '%.100s' of an example of %s", source->names[i], source->path);
            return NULL;
        }
        items[i - begin] = mu_of(x);
    }
    return end - begin == 1 ? items[0] : mu_list_of(end - begin, items);
}

static mu_value *sample_of(mu_value *example, void *arg)
{
    const mu_fit_source *source = arg;
    mu_value *x = list_of(source, example, 0, source->n_inputs);
    mu_value *y = x ? list_of(source, example, source->n_inputs, source->n_names) : NULL;
    return y ? mu_list(x, y, MU_END) : NULL;
}

mu_dataset *mu__fit_examples(mu_fit_source *source)
{
    mu_dataset *records = mu_dataset_tfrecord(source->path);
    if (!records || describe_all(source, records) != MU_OK)
        return NULL;
    if (source->shuffles)
        records = mu_dataset_shuffle(records, MU_FIT_SHUFFLED_ROWS);
    mu_dataset *examples =
        mu_dataset_parse_example(records, .features = source->features, .n_features = source->n_names);
    return examples ? mu_dataset_map(examples, sample_of, source, .name = "sample_of") : NULL;
}
