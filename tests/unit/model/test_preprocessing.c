// Layers that prepare data: adapting to data, random changes of images, and refusals. Results without randomness are
// compared with Keras's (tests/conformance/layers.py).
#include "model/core/layer.h"
#include "model_test.h"

#include <muster/preprocessing.h>

static void normalization_adapts(void **state)
{
    (void)state;
    double rows[14];
    for (int i = 0; i < 7; i++) {
        rows[2 * i] = i;           // 0 to 6: mean 3, variance 4
        rows[2 * i + 1] = 1e6 + i; // the same, far from 0
    }
    mu_tensor *x = mu_tensor_new(MU_F64, 2, (int64_t[]){7, 2}, rows);
    mu_layer *layer = mu_normalization();
    mu_dataset *data = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_of(x)), 3);
    assert_int_equal(mu_normalization_adapt(layer, data), MU_OK);
    const double *y = doubles(mu_call(layer, x));
    for (int i = 0; i < 7; i++) {
        assert_number(y[2 * i], (i - 3) / 2., 1e-12);
        assert_number(y[2 * i + 1], (i - 3) / 2., 1e-9);
    }
    mu_layer *back = mu_normalization(.invert = true);
    mu_dataset *labelled = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_list(x, x, MU_END)), 7);
    assert_int_equal(mu_normalization_adapt(back, labelled), MU_OK);
    assert_near(doubles(mu_call(back, mu_call(layer, x))), rows, 14, 1e-9);
    assert_int_equal(mu_value_count(mu_trainable_variables(mu_sequential(layer))), 0);
    assert_int_not_equal(mu_normalization_adapt(mu_dense(1), data), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "is of class Dense");
    mu_dataset *wide = mu_dataset_batch(mu_dataset_from_tensor_slices(mu_of(mu_ones(MU_F64, 2, (int64_t[]){2, 3}))), 2);
    assert_int_not_equal(mu_normalization_adapt(layer, wide), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "has moments of shape [2]; those of the data have [3]");
    assert_int_not_equal(mu_normalization_adapt(mu_normalization(), mu_dataset_take(data, 0)), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "the dataset has no elements");
}

// A column of numbers without an axis of features, as in Keras's guide to regression, and the model behind it.
static void scalars_have_one_mean(void **state)
{
    (void)state;
    const double numbers[] = {0, 1, 2, 3, 4, 5, 6}; // mean 3, variance 4
    mu_tensor *x = mu_tensor_new(MU_F64, 1, (int64_t[]){7}, numbers), *column = mu_expand_dims(x, 1);
    mu_layer *layer = mu_normalization(.whole = true);
    mu_dataset *scalars = mu_dataset_from_tensor_slices(mu_of(x));
    assert_int_not_equal(mu_adapt(layer, scalars), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "the data have rank 0; batch the dataset (mu_dataset_batch)");
    assert_int_equal(mu_adapt(layer, mu_dataset_batch(scalars, 3)), MU_OK);
    for (int i = 0; i < 7; i++) {
        assert_number(doubles(mu_call(layer, x))[i], (numbers[i] - 3) / 2, 1e-12);
        assert_number(doubles(mu_call(layer, column))[i], (numbers[i] - 3) / 2, 1e-12);
    }
    assert_int_equal(mu_adapt(mu_normalization(.whole = true), x), MU_OK);
    assert_int_not_equal(mu_adapt(mu_normalization(), x), MU_OK);
    expect_error(MU_INVALID_ARGUMENT, "the data have rank 1; batch the dataset (mu_dataset_batch), or give the layer");
}

// Keras's EfficientNet with weights of ImageNet has a Rescaling with a list.
static void channels_have_scales_of_their_own(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3, 4}, wanted[] = {2, 8, 6, 16};
    mu_tensor *images = mu_tensor_new(MU_F64, 4, (int64_t[]){1, 2, 1, 2}, x);
    mu_layer *layer = mu_rescaling(.scales = (const double[]){2, 4}, .n_scales = 2);
    assert_near(doubles(mu_call(layer, images)), wanted, 4, 1e-15);
    const char *text = mu_layer_config(layer);
    assert_non_null(strstr(text, "\"scale\":[2.0,4.0],\"offset\":0.0"));
    layer = mu_layer_from_config("{\"class_name\": \"Rescaling\", \"config\": {\"scale\": 2.0, \"offset\": [0, "
                                 "{\"class_name\": \"__numpy__\"}]}}");
    assert_null(layer);
    expect_error(MU_INVALID_ARGUMENT, "'offset' of the configuration has a value that mu_rescaling does not take");
    layer = mu_layer_from_config(
        "{\"class_name\": \"Rescaling\", \"config\": {\"scale\": [2.0, 4.0], \"offset\": [0, -1]}}");
    const double moved[] = {2, 7, 6, 15};
    assert_near(doubles(mu_call(layer, images)), moved, 4, 1e-15);
    assert_near(doubles(mu_call(mu_clone_model(mu_sequential(layer)), images)), moved, 4, 1e-15);
    assert_null(mu_rescaling(2, .scales = x, .n_scales = 4));
    expect_error(MU_INVALID_ARGUMENT, ".scale and .scales are both given; give one number, or a list");
    assert_null(mu_rescaling(1, .offsets = x, .n_offsets = 4, .offset = 0));
    expect_error(MU_INVALID_ARGUMENT, ".offset and .offsets are both given");
    // As in Keras, a list of another length makes channels of one, and a list of one number is a number.
    mu_tensor *made = mu_call(mu_rescaling(.scales = x, .n_scales = 4), mu_ones(MU_F64, 2, (int64_t[]){1, 1}));
    assert_int_equal(mu_tensor_dim(made, 1), 4);
    assert_near(doubles(made), x, 4, 0);
    assert_null(mu_call(mu_rescaling(.scales = x, .n_scales = 4), images));
    expect_error(MU_INVALID_ARGUMENT, "[4]");
}

static mu_tensor *ramp(int64_t n) { return mu_cast(mu_range(MU_I64, 0, (double)n, 1), MU_F64); }

// Four bins of the numbers from 0 to 99 begin at quarters, with the last number of each as Keras has it.
static void bins_adapt(void **state)
{
    (void)state;
    mu_layer *layer = mu_discretization(.num_bins = 4);
    mu_tensor *x = mu_input({1});
    mu_model *early = mu_model_new(
        x,
        mu_call(mu_dense(2), mu_call(mu_discretization(.num_bins = 4, .output_mode = "one_hot", .name = "bins"), x)));
    assert_int_equal(mu_model_parameters(early), 10); // the layers after it know how many bins there will be
    assert_null(mu_call(layer, ramp(3)));
    expect_error(MU_FAILED_PRECONDITION, "has no boundaries of its 4 bins; call mu_adapt first");
    assert_int_equal(mu_adapt(layer, ramp(100)), MU_OK);
    const mu_discretization_args *args = layer->args;
    assert_int_equal(args->n_bin_boundaries, 3);
    assert_near(args->bin_boundaries, (double[]){24, 49, 74}, 3, 1e-4);
    // Forgets the first numbers.
    assert_int_equal(mu_adapt(layer, mu_multiply(ramp(8), mu_constant(MU_F64, 2))), MU_OK);
    assert_near(args->bin_boundaries, (double[]){2, 6, 10}, 3, 1e-4);
    mu_layer *read = mu_layer_from_config(mu_layer_config(layer));
    const double *wanted = doubles(mu_cast(mu_call(layer, ramp(12)), MU_F64));
    assert_near(doubles(mu_cast(mu_call(read, ramp(12)), MU_F64)), wanted, 12, 0);
    mu_dataset *labelled = mu_dataset_from_tensor_slices(mu_list(ramp(100), ramp(100), MU_END));
    assert_int_equal(mu_adapt(read, mu_dataset_batch(labelled, 7)), MU_OK);
    assert_near(((const mu_discretization_args *)read->args)->bin_boundaries, (double[]){24, 49, 74}, 3, 1.01);
    assert_int_equal(mu_adapt(mu_model_layer(early, "bins"), ramp(50)), MU_OK);
    assert_non_null(mu_call(early, mu_reshape(ramp(3), 2, (int64_t[]){3, 1})));
}

// As many bins as Keras makes: one more where 1 / (1. / n) is above n, fewer if the data have fewer numbers.
static void bins_are_as_many_as_in_keras(void **state)
{
    (void)state;
    static const struct {
        int bins;
        int64_t samples, columns;
    } cases[] = {{48, 1000, 48}, {49, 1000, 50}, {98, 1000, 99}, {10, 5, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mu_layer *layer = mu_discretization(.num_bins = cases[i].bins, .output_mode = "one_hot", .epsilon = .001);
        mu_tensor *data = ramp(cases[i].samples);
        assert_int_equal(mu_adapt(layer, data), MU_OK);
        assert_int_equal(mu_tensor_dim(mu_call(layer, data), -1), cases[i].columns);
    }
}

// The memory that adapting keeps does not grow with the number of batches.
static void adapting_keeps_no_batches(void **state)
{
    (void)state;
    long kept[2];
    for (int i = 0; i < 2; i++) {
        mu_dataset *data = mu_dataset_batch(
            mu_dataset_from_tensor_slices(mu_of(mu_reshape(ramp(2 * (i ? 64 : 2)), 2, (int64_t[]){-1, 2}))), 1);
        mu_layer *layer = mu_normalization();
        const long before = mu__live_objects(NULL);
        assert_int_equal(mu_adapt(layer, data), MU_OK);
        kept[i] = mu__live_objects(NULL) - before;
    }
    assert_int_equal(kept[0], kept[1]);
}

static void refuse_adapt(mu_layer *layer, mu_any_inputs data, mu_status code, const char *part)
{
    assert_int_equal(mu_adapt(layer, data), code);
    expect_error(code, part);
}

static void bad_data_are_refused(void **state)
{
    (void)state;
    mu_layer *layer = mu_discretization(.num_bins = 4);
    mu_tensor *nan = mu_divide(ramp(2), mu_zeros(MU_F64, 1, (int64_t[]){2}));
    refuse_adapt(mu_discretization(.bin_boundaries = (double[]){0}, .n_bin_boundaries = 1), ramp(3),
                 MU_FAILED_PRECONDITION, "was made with bin_boundaries; make it with .num_bins instead");
    refuse_adapt(layer, nan, MU_INVALID_ARGUMENT, "is given NaN or infinity");
    refuse_adapt(layer, ramp(1), MU_INVALID_ARGUMENT, "is given 1 number to find the boundaries of 4 bins");
    refuse_adapt(layer, ramp(0), MU_INVALID_ARGUMENT, "are empty");
    refuse_adapt(layer, mu_dataset_take(mu_dataset_from_tensors(mu_of(ramp(3))), 0), MU_INVALID_ARGUMENT,
                 "the dataset has no elements");
    refuse_adapt(layer, mu_tensor_strings(1, (int64_t[]){1}, (const char *const[]){"a"}), MU_INVALID_ARGUMENT,
                 "sorts numbers; the data are strings");
    refuse_adapt(layer, layer, MU_INVALID_ARGUMENT, "the data are of type layer; give a dataset of batches");
    refuse_adapt(layer, mu_dataset_repeat(mu_dataset_from_tensors(mu_of(ramp(3))), -1), MU_INVALID_ARGUMENT,
                 "never ends; take as many batches of it");
    assert_int_equal(mu_adapt(layer, ramp(9)), MU_OK); // nothing was lost
    mu_layer *normalization = mu_normalization();
    mu_tensor *rows = mu_reshape(ramp(4), 2, (int64_t[]){2, 2});
    assert_int_equal(mu_adapt(normalization, rows), MU_OK);
    refuse_adapt(normalization, mu_divide(rows, mu_zeros(MU_F64, 2, (int64_t[]){2, 2})), MU_INVALID_ARGUMENT,
                 "feature 0 of the data for layer");
    refuse_adapt(normalization, ramp(2), MU_INVALID_ARGUMENT, "the data have rank 1; batch the dataset");
    assert_near(doubles(mu_call(normalization, rows)), (double[]){-1, -1, 1, 1}, 4, 1e-6);
}

static mu_tensor *train(mu_layer *layer, mu_tensor *x)
{
    mu_tensor *y = mu_call(mu_sequential(layer), x, .training = true);
    if (!y)
        fail_msg("%s", mu_error_message());
    return y;
}

// Images of 2 rows and 2 columns: 0 1 / 2 3, so that the first element tells how an image was flipped.
static void images_are_flipped(void **state)
{
    (void)state;
    enum { IMAGES = 400 };
    static double images[IMAGES * 4];
    for (int i = 0; i < IMAGES * 4; i++)
        images[i] = i % 4;
    mu_tensor *x = mu_tensor_new(MU_F64, 4, (int64_t[]){IMAGES, 2, 2, 1}, images);
    static const struct {
        const char *mode;
        double first;
    } rows[] = {{"horizontal", 1}, {"vertical", 2}, {NULL, 3}};
    for (size_t k = 0; k < MU_COUNT(rows); k++) {
        mu_layer *layer = mu_random_flip(.mode = rows[k].mode, .seed = 5);
        const double *y = doubles(train(layer, x));
        int flipped = 0;
        for (int i = 0; i < IMAGES; i++) {
            assert_true(y[4 * i] == 0 || y[4 * i] == rows[k].first);
            assert_true(y[4 * i] + y[4 * i + 3] == 3 && y[4 * i + 1] + y[4 * i + 2] == 3);
            flipped += y[4 * i] != 0;
        }
        assert_in_range(flipped, 160, 240);
        assert_near(doubles(mu_call(layer, x)), images, IMAGES * 4, 0);
    }
}

static void colors_change_within_bounds(void **state)
{
    (void)state;
    enum { IMAGES = 200 };
    static double images[IMAGES * 2];
    for (int i = 0; i < IMAGES * 2; i++)
        images[i] = i % 2 ? 120 : 100;
    mu_tensor *x = mu_tensor_new(MU_F64, 4, (int64_t[]){IMAGES, 1, 2, 1}, images);
    const double *bright = doubles(train(mu_random_brightness({-.5, .25}, .value_range = {50, 150}), x));
    const double *contrast = doubles(train(mu_random_contrast({.5, .25}), x));
    double least = 0, most = 0, flat = 20, steep = 20;
    for (int i = 0; i < IMAGES; i++) {
        const double moved = bright[2 * i] - 100, apart = contrast[2 * i + 1] - contrast[2 * i];
        least = fmin(least, moved);
        most = fmax(most, moved);
        flat = fmin(flat, apart);
        steep = fmax(steep, apart);
        assert_true(bright[2 * i + 1] <= 150);
        assert_number(contrast[2 * i] + contrast[2 * i + 1], 220, 1e-9);
    }
    assert_true(least >= -50 && least < -45 && most <= 25 && most > 20);
    assert_true(flat >= 10 && flat < 11 && steep <= 25 && steep > 24);
}

// Images are sheared to one side or to the other, half of them to each.
static void images_are_sheared(void **state)
{
    (void)state;
    enum { IMAGES = 100, PIXELS = 12 };
    mu_tensor *x = mu_tile(numbers(4, (int64_t[]){1, 3, 4, 1}, 1), (int64_t[]){IMAGES, 1, 1, 1});
    const double *y = doubles(train(mu_random_shear(.x_factor = {.5, .5}, .fill_mode = "constant", .seed = 4), x));
    const double *ways[2];
    for (int k = 0; k < 2; k++)
        ways[k] = doubles(
            mu_image_affine_transform(x, mu_vector_f32(8, (const float[]){1, k ? -.5f : .5f, 0, 0, 1, 0, 0, 0})));
    int first = 0;
    for (int i = 0; i < IMAGES * PIXELS; i += PIXELS) {
        const bool is_first = memcmp(y + i, ways[0], PIXELS * sizeof *y) == 0;
        assert_true(is_first || memcmp(y + i, ways[1], PIXELS * sizeof *y) == 0);
        first += is_first;
    }
    assert_in_range(first, 30, 70);
}

// A crop takes the same part of all images, and every part is possible; each image is rotated by its own angle.
static void images_are_cropped_and_turned(void **state)
{
    (void)state;
    double pixels[2 * 3 * 4];
    bool seen[2 * 3] = {false};
    for (int i = 0; i < 24; i++)
        pixels[i] = i % 12;
    mu_tensor *x = mu_tensor_new(MU_F64, 4, (int64_t[]){2, 3, 4, 1}, pixels);
    mu_layer *crop = mu_random_crop(2, 2, .seed = 3);
    for (int i = 0; i < 100; i++) {
        const double *y = doubles(train(crop, x));
        assert_true(y[1] == y[0] + 1 && y[2] == y[0] + 4 && y[3] == y[0] + 5 && y[4] == y[0]);
        seen[(int)y[0] / 4 * 3 + (int)y[0] % 4] = true;
    }
    for (int i = 0; i < 6; i++)
        assert_true(seen[i]);
    assert_int_equal(mu_tensor_dim(mu_call(crop, x), 1), 2);
    mu_layer *turn = mu_random_rotation({-.25, .25}, .seed = 3);
    const double *y = doubles(train(turn, x));
    assert_true(memcmp(y, y + 12, 12 * sizeof *y) != 0);
    assert_near(doubles(mu_call(turn, x)), pixels, 24, 0);
}

// Shares of images that become grey or negative; what solarization and contrast make of known values.
static void colors_change_for_shares(void **state)
{
    (void)state;
    enum { IMAGES = 400 };
    mu_tensor *x = mu_tile(mu_tensor_new(MU_F64, 4, (int64_t[]){1, 1, 1, 3}, (double[]){10, 20, 200}),
                           (int64_t[]){IMAGES, 1, 1, 1});
    const double *gray = doubles(train(mu_random_grayscale(.factor = .25, .seed = 3), x));
    const double *negative = doubles(train(mu_random_invert({.75, .75}, .seed = 3), x));
    int n_gray = 0, n_negative = 0;
    for (int i = 0; i < IMAGES * 3; i += 3) {
        n_gray += gray[i] == gray[i + 1] && gray[i] == gray[i + 2];
        n_negative += negative[i] == 245;
        assert_true(gray[i] == 10 || fabs(gray[i] - (.2989 * 10 + .587 * 20 + .114 * 200)) < 1e-12);
        assert_true(negative[i] + negative[i + 1] == 30 || negative[i] + negative[i + 1] == 480);
    }
    assert_in_range(n_gray, 70, 130);
    assert_in_range(n_negative, 270, 330);
    mu_layer *solar = mu_solarization(.addition_factor = {.2, .2}, .threshold_factor = {.25, .25});
    assert_near(doubles(train(solar, x)), (double[]){61, 255 - 71, 255 - 251}, 3, 1e-12);
    mu_tensor *two = mu_tensor_new(MU_F64, 4, (int64_t[]){1, 1, 2, 2}, (double[]){10, 7, 60, 7});
    assert_near(doubles(mu_call(mu_auto_contrast(), two)), (double[]){0, 7, 255, 7}, 4, 1e-12);
    assert_null(mu_call(mu_random_grayscale(), two));
    expect_error(MU_INVALID_ARGUMENT, "needs images of 3 channels, or of 1; it was given 2");
}

// The results for each of N images of one value, its number, and their one-hot labels.
enum { MIXED = 40, SIDE = 8, AREA = SIDE * SIDE };
static mu_value *mix(mu_layer *layer, bool training)
{
    static double images[MIXED * AREA], labels[MIXED * MIXED];
    for (int i = 0; i < MIXED * AREA; i++)
        images[i] = i / AREA;
    for (int i = 0; i < MIXED; i++)
        labels[i * MIXED + i] = 1;
    mu_tensor *x = mu_tensor_new(MU_F64, 4, (int64_t[]){MIXED, SIDE, SIDE, 1}, images);
    mu_tensor *y = mu_tensor_new(MU_F64, 2, (int64_t[]){MIXED, MIXED}, labels);
    return mu_call_values(layer, .inputs = mu_map("labels", y, "images", x, MU_END), .training = training);
}

// Finds the image that is mixed into image i, and its share of the label.
static int partner_of(const double *label, int i, double *share)
{
    int partner = i;
    *share = 1 - label[i];
    for (int k = 0; k < MIXED; k++)
        if (k != i && label[k] != 0) {
            assert_int_equal(partner, i);
            partner = k;
            assert_number(label[k], *share, 1e-6);
        }
    return partner;
}

static void batches_are_mixed_up(void **state)
{
    (void)state;
    mu_layer *layer = mu_mix_up(.alpha = .5, .seed = 2);
    mu_value *mixed = mix(layer, true), *same = mix(layer, false);
    const double *images = doubles(mu_at(mixed, 1)), *labels = doubles(mu_at(mixed, 0));
    double share, sum = 0, squares = 0;
    int partners = 0;
    for (int i = 0; i < MIXED; i++) {
        const int partner = partner_of(labels + i * MIXED, i, &share);
        partners += partner != i;
        for (int k = 0; k < AREA; k++)
            assert_number(images[i * AREA + k], i + share * (partner - i), 1e-4);
        sum += share;
        squares += (share - .5) * (share - .5);
    }
    assert_true(partners > MIXED - 6 && fabs(sum / MIXED - .5) < .2);
    assert_true(fabs(squares / MIXED - .125) < .06); // the variance of Beta(0.5, 0.5)
    assert_number(doubles(mu_at(same, 1))[3 * AREA], 3, 0);
    assert_non_null(mu_call(layer, mu_ones(MU_F64, 4, (int64_t[]){2, 2, 2, 3}), .training = true));
}

static void rectangles_are_mixed(void **state)
{
    (void)state;
    mu_value *mixed = mix(mu_cut_mix(.factor = {.9, 1}, .seed = 3), true);
    const double *images = doubles(mu_at(mixed, 1)), *labels = doubles(mu_at(mixed, 0));
    double share;
    for (int i = 0; i < MIXED; i++) {
        const int partner = partner_of(labels + i * MIXED, i, &share);
        int taken = 0;
        for (int k = 0; k < AREA; k++) {
            const double pixel = images[i * AREA + k];
            assert_true(pixel == i || pixel == partner);
            taken += pixel != i;
        }
        const double side = sqrt(share) * SIDE; // whole pixels cover it within one pixel
        const double least = fmax(side - 1, 0) * fmax(side - 1, 0);
        assert_true(partner == i || (taken >= least - 1e-6 && taken <= (side + 1) * (side + 1)));
    }
}

static void refuse_mix(mu_value *inputs, const char *part)
{
    assert_null(mu_call_values(mu_mix_up(), .inputs = inputs, .training = true));
    expect_error(MU_INVALID_ARGUMENT, part);
}

static void bad_batches_are_not_mixed(void **state)
{
    (void)state;
    mu_tensor *x = mu_ones(MU_F64, 4, (int64_t[]){3, 2, 2, 1});
    refuse_mix(mu_map("images", x, "labels", mu_zeros(MU_I64, 1, (int64_t[]){3}), MU_END), "as mu_one_hot makes");
    refuse_mix(mu_map("images", x, "boxes", x, MU_END), "the key 'boxes'; it takes 'images' and 'labels'");
    refuse_mix(mu_map("labels", x, MU_END), "a map without 'images'");
    refuse_mix(mu_list(x, mu_eye(MU_F64, 3, 3), MU_END), "2 tensors in another form than it takes; give it");
    refuse_mix(mu_map("images", mu_list(x, x, MU_END), MU_END), "or mu_map(\"images\", images, \"labels\", labels");
    refuse_mix(mu_map("images", x, "labels", mu_zeros(MU_F64, 2, (int64_t[]){2, 3}), MU_END),
               "labels of shape [2, 3] for images of shape [3, 2, 2, 1]");
    mu_tensor *in = mu_input({2, 2, 1});
    mu_model *model = mu_model_new(in, mu_call(mu_mix_up(), in));
    assert_near(doubles(mu_call(model, x)), doubles(x), 12, 0);
    assert_non_null(mu_call(model, x, .training = true));
    assert_null(mu_cut_mix(.factor = {.5, .2}));
    expect_error(MU_INVALID_ARGUMENT, "mu_cut_mix: factor is {0.5, 0.2}");
}

static mu_value *augment(mu_value *batch, void *layer)
{
    return mu_of(mu_call(layer, mu_value_tensor(batch), .training = true));
}

// A drawn change is the same eagerly, where only that change is computed, and in a trace, which computes all of them.
static void changes_are_drawn(void **state)
{
    (void)state;
    double ramp[2 * AREA * 3], sums[30];
    for (int i = 0; i < 2 * AREA * 3; i++)
        ramp[i] = i * 255. / (2 * AREA * 3);
    mu_tensor *x = mu_tensor_new(MU_F64, 4, (int64_t[]){2, SIDE, SIDE, 3}, ramp);
    int kinds = 0;
    for (int seed = 0; seed < 30; seed++) {
        mu_layer *eager = mu_rand_augment(.num_ops = 1, .factor = {.5, .5}, .seed = (uint64_t)seed + 1);
        mu_layer *traced = mu_rand_augment(.num_ops = 1, .factor = {.5, .5}, .seed = (uint64_t)seed + 1);
        mu_tensor *y = train(eager, x);
        assert_near(doubles(mu_call(eager, x)), ramp, 2 * AREA * 3, 0);
        if (seed < 3) {
            mu_value *again = mu_run(mu_get_strategy(), mu_function_new(augment, traced), mu_of(x));
            assert_near(doubles(mu_value_tensor(again)), doubles(y), 2 * AREA * 3, 1e-4);
        }
        bool seen = false;
        sums[seed] = mu_scalar(mu_reduce_sum(mu_abs(mu_subtract(y, x)), MU_ALL_AXES));
        for (int k = 0; k < seed; k++)
            seen |= fabs(sums[k] - sums[seed]) < 1e-6 * sums[seed];
        kinds += !seen;
    }
    assert_true(kinds > 8);
    assert_null(mu_rand_augment(.factor = {0, 2}));
    expect_error(MU_INVALID_ARGUMENT, "mu_rand_augment: factor is {0, 2}");
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    mu_tensor *image = mu_ones(MU_F64, 4, (int64_t[]){2, 3, 4, 1});
    assert_null(mu_random_brightness({.5, -.5}));
    expect_error(MU_INVALID_ARGUMENT, "give the lowest number first");
    assert_null(mu_random_contrast({.5, 2}));
    expect_error(MU_INVALID_ARGUMENT, "factor is {0.5, 2}; both must be from 0 to 1");
    assert_null(mu_random_zoom({.2, -.2}));
    expect_error(MU_INVALID_ARGUMENT, "mu_random_zoom: height_factor is {0.2, -0.2}; give numbers from -1 to 1");
    assert_null(mu_random_rotation({0, .1}, .fill_mode = "mirror"));
    expect_error(MU_INVALID_ARGUMENT, "mirror");
    assert_null(mu_category_encoding(.output_mode = "count"));
    expect_error(MU_INVALID_ARGUMENT, "num_tokens is 0");
    assert_null(mu_call(mu_category_encoding(3), mu_fill(MU_I64, 2, (int64_t[]){2, 2}, 3)));
    expect_error(MU_INVALID_ARGUMENT, "tokens are integers from 0 to below num_tokens");
    assert_null(mu_discretization());
    expect_error(MU_INVALID_ARGUMENT, "there are no bin_boundaries, and num_bins is 0");
    assert_null(mu_discretization(.num_bins = 1));
    expect_error(MU_INVALID_ARGUMENT, "their number in n_bin_boundaries, or 2 bins or more");
    assert_null(mu_discretization(.num_bins = 3, .epsilon = 0));
    expect_error(MU_INVALID_ARGUMENT, "epsilon is 0");
    assert_null(mu_discretization(.bin_boundaries = (double[]){1, 0}, .n_bin_boundaries = 2));
    expect_error(MU_INVALID_ARGUMENT, "bin_boundaries[1] is 0 and follows 1");
    assert_null(mu_resizing(3));
    expect_error(MU_INVALID_ARGUMENT, "width is 0");
    assert_null(mu_call(mu_random_flip(), mu_ones(MU_F64, 3, (int64_t[]){3, 4, 1})));
    expect_error(MU_INVALID_ARGUMENT, "takes inputs of rank 4");
    assert_null(mu_call(mu_center_crop(2, 2), mu_input({MU_UNKNOWN, 4, 1})));
    expect_error(MU_INVALID_ARGUMENT, "needs images of known height and width");
    assert_non_null(mu_call(mu_center_crop(2, 2), image));
}

// One mean of all numbers, and one for each row of an image.
static void moments_of_other_axes(void **state)
{
    (void)state;
    mu_tensor *x = numbers(3, (int64_t[]){6, 3, 2}, 4);
    mu_layer *whole = mu_normalization(.whole = true), *rows = mu_normalization(.axes = (int[]){1}, .n_axes = 1);
    assert_int_equal(mu_adapt(whole, x), MU_OK);
    assert_int_equal(mu_adapt(rows, x), MU_OK);
    mu_tensor *y = mu_call(whole, x), *z = mu_call(rows, x);
    assert_number(doubles(mu_reduce_mean(y, MU_ALL_AXES))[0], 0, 1e-12);
    assert_number(doubles(mu_reduce_variance(y, MU_ALL_AXES))[0], 1, 1e-12);
    assert_int_equal(mu_tensor_rank(mu_variable_read(mu_layer_weight(whole, "mean"))), 0);
    const double *means = doubles(mu_reduce_mean(z, .axes = (int[]){0, 2}, .n_axes = 2));
    for (int i = 0; i < 3; i++)
        assert_number(means[i], 0, 1e-12);
    mu_layer *again = mu_layer_from_config(mu_layer_config(whole)); // which has the axis null, not Keras's default
    assert_int_equal(mu_adapt(again, x), MU_OK);
    assert_number(doubles(mu_call(again, x))[5], doubles(y)[5], 0);
    assert_null(mu_normalization(.whole = true, .axes = (int[]){1}, .n_axes = 1));
    expect_error(MU_INVALID_ARGUMENT, ".whole is true and .axes has 1; give one of them");
    assert_null(mu_call(mu_normalization(.axes = (int[]){0}, .n_axes = 1), x));
    expect_error(MU_INVALID_ARGUMENT, "distinct axes from 1 to 2");
}

// Keras's Resizing and UpSampling2D return bytes for bytes: rounded to even, and cut off where cubic kernels go beyond.
static void images_of_bytes_stay_bytes(void **state)
{
    (void)state;
    const uint8_t step[] = {0, 0, 255, 255}, halves[] = {0, 1, 3};
    mu_tensor *edge = mu_tensor_new(MU_U8, 4, (int64_t[]){1, 1, 4, 1}, step);
    mu_tensor *cubic = mu_call(mu_resizing(1, 12, .interpolation = "bicubic"), edge);
    assert_int_equal(mu_tensor_dtype(cubic), MU_U8);
    const uint8_t *pixels = mu_tensor_data(cubic);
    for (int i = 0; i < 12; i++)
        assert_true(i < 5 ? pixels[i] < 64 : i < 7 || pixels[i] > 192);
    mu_tensor *ramp = mu_tensor_new(MU_U8, 4, (int64_t[]){1, 1, 3, 1}, halves);
    mu_tensor *wide = mu_call(mu_up_sampling2d(.factor_per_axis = {1, 2}, .interpolation = "bilinear"), ramp);
    const uint8_t wanted[] = {0, 0, 1, 2, 2, 3}; // 0, 0.25, 0.75, 1.5, 2.5, 3
    assert_memory_equal(mu_tensor_data(wide), wanted, sizeof wanted);
    const int64_t far[] = {INT64_MAX, INT64_MIN};
    mu_tensor *ends = mu_tensor_new(MU_I64, 4, (int64_t[]){1, 1, 2, 1}, far);
    const int64_t *kept = mu_tensor_data(mu_call(mu_resizing(1, 2), ends));
    assert_true(kept[0] >= INT64_MAX - 1023 && kept[1] == INT64_MIN);
    assert_memory_equal(mu_tensor_data(mu_call(mu_resizing(1, 2, .interpolation = "nearest"), ends)), far, sizeof far);
}

static void counts_have_weights(void **state)
{
    (void)state;
    const int64_t tokens[] = {0, 2, 2, 1, 1, 0};
    const double weights[] = {.5, 1, 2, -1, 3, .25}, wanted[] = {.5, 0, 3, .25, 2, 0};
    mu_tensor *x = mu_tensor_new(MU_I64, 2, (int64_t[]){2, 3}, tokens);
    mu_tensor *w = mu_tensor_new(MU_F64, 2, (int64_t[]){2, 3}, weights);
    mu_layer *count = mu_category_encoding(3, .output_mode = "count");
    assert_near(doubles(mu_call(count, .inputs = mu_list(x, w, MU_END))), wanted, 6, 1e-15);
    assert_null(mu_call(count, .inputs = mu_list(x, mu_ones(MU_F64, 1, (int64_t[]){3}), MU_END)));
    expect_error(MU_INVALID_ARGUMENT, "was given tokens [2, 3] and weights [3]; give each token a weight");
    assert_null(mu_call(mu_category_encoding(3), .inputs = mu_list(x, w, MU_END)));
    expect_error(
        MU_INVALID_ARGUMENT,
        "was given 2 tensors; give it tokens, and behind them, only with .output_mode = \"count\", a weight for each");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL_TEST(images_of_bytes_stay_bytes),
        MODEL_TEST(counts_have_weights),
        MODEL_TEST(moments_of_other_axes),
        MODEL_TEST(normalization_adapts),
        MODEL_TEST(scalars_have_one_mean),
        MODEL_TEST(channels_have_scales_of_their_own),
        MODEL_TEST(bins_adapt),
        MODEL_TEST(bins_are_as_many_as_in_keras),
        MODEL_TEST(adapting_keeps_no_batches),
        MODEL_TEST(bad_data_are_refused),
        MODEL_TEST(images_are_flipped),
        MODEL_TEST(batches_are_mixed_up),
        MODEL_TEST(rectangles_are_mixed),
        MODEL_TEST(bad_batches_are_not_mixed),
        MODEL_TEST(changes_are_drawn),
        MODEL_TEST(images_are_sheared),
        MODEL_TEST(colors_change_for_shares),
        MODEL_TEST(images_are_cropped_and_turned),
        MODEL_TEST(colors_change_within_bounds),
        MODEL_TEST(wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
