// Images: PNG and back, damage and limits, and the images of a folder. (Comparison with TensorFlow, JPEG too:
// tests/conformance/datasets.py.)
#include "data_test.h"

#include <muster/image.h>
#include <muster/ops.h>
#include <sys/stat.h>
#include <unistd.h>

static mu_tensor *counting(int64_t height, int64_t width, int64_t channels)
{
    mu_tensor *image = mu_tensor_new(MU_U8, 3, (int64_t[]){height, width, channels}, NULL);
    for (int64_t i = 0; i < height * width * channels; i++)
        ((uint8_t *)mu__host_write(image))[i] = (uint8_t)(7 * i);
    return image;
}

static void test_png_and_back(void **state)
{
    (void)state;
    for (int channels = 1; channels <= 4; channels++) {
        mu_tensor *image = counting(3, 5, channels), *back = mu_decode_image(mu_encode_png(image), 0);
        assert_true(mu__shape_equal(&back->shape, &image->shape));
        assert_memory_equal(mu_tensor_data(back), mu_tensor_data(image), (size_t)(15 * channels));
    }
    assert_int_equal(mu_tensor_dim(mu_decode_image(mu_encode_png(counting(2, 2, 4)), 1), 2), 1);
}

static void test_refusals(void **state)
{
    (void)state;
    const mu_string png = mu_tensor_string(mu_encode_png(counting(9, 9, 3)), 0);
    assert_null(mu_decode_image(mu_string_scalar("GIF89a"), 0));
    expect_error(MU_INVALID_ARGUMENT, "neither a JPEG nor a PNG");
    assert_null(mu_decode_image(mu_tensor_byte_strings(0, NULL, &(mu_string){png.bytes, png.n / 2}), 0));
    expect_error(MU_DATA_LOSS, "the image cannot be decoded");
    char *huge = malloc(png.n);
    memcpy(huge, png.bytes, png.n);
    huge[16] = 0x7f; // the width; its checksum is wrong then, too
    assert_null(mu_decode_image(mu_tensor_byte_strings(0, NULL, &(mu_string){huge, png.n}), 0));
    expect_error(MU_DATA_LOSS, "the image cannot be decoded");
    free(huge);
    assert_null(mu_decode_image(mu_string_scalar(""), 5));
    expect_error(MU_INVALID_ARGUMENT, "5 channels are requested");
    assert_null(mu_encode_png(mu_constant(MU_F32, 1)));
    expect_error(MU_INVALID_ARGUMENT, "expected uint8 [height, width, 1 to 4]");
}

// A JPEG of 3 x 2 pixels in CMYK, inverted, with Adobe's marker: Pillow's.
static const uint8_t inks[] = {
    255, 216, 255, 238, 0,   14,  65,  100, 111, 98,  101, 0,   100, 0,   0,   0,   0,   0,   255, 219, 0,   67,
    0,   3,   2,   2,   3,   2,   2,   3,   3,   3,   3,   4,   3,   3,   4,   5,   8,   5,   5,   4,   4,   5,
    10,  7,   7,   6,   8,   12,  10,  12,  12,  11,  10,  11,  11,  13,  14,  18,  16,  13,  14,  17,  14,  11,
    11,  16,  22,  16,  17,  19,  20,  21,  21,  21,  12,  15,  23,  24,  22,  20,  24,  18,  20,  21,  20,  255,
    192, 0,   20,  8,   0,   2,   0,   3,   4,   67,  17,  0,   77,  17,  0,   89,  17,  0,   75,  17,  0,   255,
    196, 0,   21,  0,   1,   1,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   0,   8,   9,
    255, 196, 0,   33,  16,  0,   2,   2,   1,   4,   3,   1,   1,   0,   0,   0,   0,   0,   0,   0,   0,   1,
    2,   3,   4,   5,   0,   6,   7,   17,  8,   18,  49,  65,  33,  255, 218, 0,   14,  4,   67,  0,   77,  0,
    89,  0,   75,  0,   0,   63,  0,   165, 28,  111, 140, 167, 141, 218, 145, 208, 169, 82,  10,  180, 104, 219,
    185, 78,  173, 88,  35,  9,   21,  120, 34,  181, 44,  113, 69,  26,  129, 210, 162, 34,  170, 42,  142, 130,
    170, 128, 0,   0,   106, 139, 241, 22,  46,  156, 59,  87,  32,  35,  169, 4,   97,  183, 14,  114, 70,  11,
    26,  142, 217, 178, 182, 217, 152, 255, 0,   62,  146, 73,  39,  244, 146, 116, 198, 240, 11,  49,  127, 125,
    120, 131, 199, 57,  221, 201, 118, 206, 225, 205, 220, 171, 97,  172, 228, 178, 178, 181, 155, 51,  145, 110,
    101, 5,   228, 114, 89,  186, 85,  80,  59,  63,  0,   31,  154, 48,  249, 165, 206, 188, 149, 182, 60,  135,
    204, 208, 195, 242, 22,  234, 196, 209, 24,  172, 36,  226, 173, 28,  221, 152, 98,  18,  75,  137, 167, 44,
    175, 234, 174, 7,   179, 200, 238, 236, 126, 150, 102, 39,  178, 73,  215, 255, 217,
};

static void test_cmyk(void **state)
{
    (void)state;
    static const uint8_t wanted[] = {1,   255, 255, 184, 0,   184, 206, 198, 190, // TensorFlow's decode_jpeg
                                     120, 120, 3,   145, 101, 56,  2,   1,   1};
    mu_tensor *jpeg = mu_tensor_byte_strings(0, NULL, &(mu_string){(const char *)inks, sizeof inks});
    mu_tensor *image = mu_decode_image(jpeg, 0);
    assert_non_null(image);
    assert_true(mu__shape_equal(&image->shape, &(mu_shape){3, {2, 3, 3}}));
    assert_memory_equal(mu_tensor_data(image), wanted, sizeof wanted);
    assert_null(mu_decode_image(jpeg, 1));
    expect_error(MU_UNIMPLEMENTED, "CMYK colours, which are not decoded to gray");
}

static void write_png(const char *path, mu_tensor *image)
{
    const mu_string png = mu_tensor_string(mu_encode_png(image), 0);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(png.bytes, 1, png.n, file);
    fclose(file);
}

static char root[] = "muster-image-XXXXXX";

static void put(const char *folder, const char *name, int64_t shade)
{
    char path[200];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    mu_tensor *image = counting(1, 1, 1);
    *(uint8_t *)mu__host_write(image) = (uint8_t)shade;
    write_png(path, image);
}

static void test_folder(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(root));
    put("b", "1.png", 10);
    put("a", "2.png", 20);
    put("a", "1.PNG", 30);
    put("a", "notes.txt", 0);
    mu_dataset_image_folder_args args = {.size = sizeof args,
                                         .given = ".batch_size .seed",
                                         .directory = root,
                                         .batch_size = -1,
                                         .color_mode = "grayscale",
                                         .image_size = {1, 1},
                                         .no_shuffle = true,
                                         .seed = 3};
    assert_elements(mu_dataset_image_folder_with(&args), "([30],0) ([20],0) ([10],1)");
    assert_int_equal(mu_dataset_cardinality(mu_dataset_image_folder_with(&args)), 3);
    args.label_mode = "none";
    assert_elements(mu_dataset_image_folder_with(&args), "[30] [20] [10]");
    args.label_mode = "binary";
    assert_elements(mu_dataset_image_folder_with(&args), "([30],[0]) ([20],[0]) ([10],[1])");
    args.label_mode = "categorical";
    args.validation_split = .4;
    args.subset = "validation";
    assert_elements(mu_dataset_image_folder_with(&args), "([10],[0 1])");
    args.no_shuffle = false;
    args.subset = "training";
    assert_int_equal(mu_dataset_cardinality(mu_dataset_image_folder_with(&args)), 2);
    args.subset = "test";
    assert_null(mu_dataset_image_folder_with(&args));
    expect_error(MU_INVALID_ARGUMENT, "subset is \"test\"; expected one of \"training\", \"validation\"");
    args.subset = NULL;
    assert_null(mu_dataset_image_folder_with(&args));
    expect_error(MU_INVALID_ARGUMENT, "validation_split is 0.4 and subset is NULL");
    args = (mu_dataset_image_folder_args){
        .size = sizeof args, .given = ".batch_size", .directory = root, .batch_size = -1, .no_shuffle = true};
    mu_dataset *damaged = mu_dataset_skip(mu_dataset_image_folder_with(&args), 2);
    char command[64];
    snprintf(command, sizeof command, "%s/b/1.png", root);
    assert_int_equal(truncate(command, 20), 0);
    assert_null(mu_next(mu_iterate(damaged)));
    expect_error(MU_DATA_LOSS, "the image cannot be decoded");
    static const char *const files[] = {"a/1.PNG", "a/2.png", "a/notes.txt", "b/1.png"};
    for (size_t i = 0; i < MU_COUNT(files); i++) {
        snprintf(command, sizeof command, "%s/%s", root, files[i]);
        unlink(command);
    }
    assert_null(mu_dataset_image_folder(root));
    expect_error(MU_NOT_FOUND, "there are no images (.jpg, .jpeg, .png)");
    snprintf(command, sizeof command, "%s/a", root);
    rmdir(command);
    snprintf(command, sizeof command, "%s/b", root);
    rmdir(command);
    rmdir(root);
}

// An image of 2 x 6 pixels, 0, 7, 14, …, at other sizes: what TensorFlow makes of it.
static void test_sizes(void **state)
{
    (void)state;
    char sizes[] = "muster-sizes-XXXXXX", path[64];
    assert_non_null(mkdtemp(sizes));
    snprintf(path, sizeof path, "%s/1.png", sizes);
    write_png(path, counting(2, 6, 1));
    static const struct {
        const char *interpolation;
        int height, width;
        bool crops, pads;
        const char *wanted;
    } rows[] = {
        {"area", 1, 3, false, false, "[24.5 38.5 52.5]"},
        {"area", 1, 4, false, false, "[23.3333 32.6667 44.3333 53.6667]"},
        {"gaussian", 1, 3, false, false, "[24.5 38.5 52.5]"},
        {"bilinear", 2, 2, true, false, "[14 21|56 63]"},
        {"nearest", 4, 4, true, false, "[14 14 21 21|14 14 21 21|56 56 63 63|56 56 63 63]"},
        {"area", 4, 3, false, true, "[0 0 0|24.5 38.5 52.5|0 0 0|0 0 0]"},
        {"area", 2, 2, false, true, "[28 49|0 0]"}, // a third of a pixel high
    };
    for (size_t i = 0; i < MU_COUNT(rows); i++) {
        mu_dataset *images = mu_dataset_image_folder(
            sizes, .label_mode = "none", .color_mode = "grayscale", .batch_size = -1,
            .interpolation = rows[i].interpolation, .image_size = {rows[i].height, rows[i].width},
            .crop_to_aspect_ratio = rows[i].crops, .pad_to_aspect_ratio = rows[i].pads);
        mu_value *image = mu_next(mu_iterate(images));
        char text[TEXT_BYTES] = "";
        assert_non_null(image);
        write_value(mu_of(mu_squeeze(mu_value_tensor(image), 2)), text);
        assert_string_equal(text, rows[i].wanted);
    }
    assert_null(mu_dataset_image_folder(sizes, .interpolation = "lanczos4"));
    expect_error(MU_INVALID_ARGUMENT, "\"lanczos4\"; expected one of \"nearest\", \"bilinear\", \"bicubic\"");
    assert_null(mu_dataset_image_folder(sizes, .crop_to_aspect_ratio = true, .pad_to_aspect_ratio = true));
    expect_error(MU_INVALID_ARGUMENT, "crop_to_aspect_ratio and pad_to_aspect_ratio are both true");
    unlink(path);
    rmdir(sizes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {DATA_TEST(test_png_and_back), DATA_TEST(test_refusals), DATA_TEST(test_cmyk),
                                       DATA_TEST(test_folder), DATA_TEST(test_sizes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
