// Images: PNG and back, damage and limits, and the images of a folder. (Comparison with TensorFlow, JPEG too:
// tests/conformance/datasets.py.)
#include "data_test.h"

#include <muster/image.h>
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
    huge[16] = 0x7f;  // the width; its checksum is wrong then, too
    assert_null(mu_decode_image(mu_tensor_byte_strings(0, NULL, &(mu_string){huge, png.n}), 0));
    expect_error(MU_DATA_LOSS, "the image cannot be decoded");
    free(huge);
    assert_null(mu_decode_image(mu_string_scalar(""), 5));
    expect_error(MU_INVALID_ARGUMENT, "5 channels are requested");
    assert_null(mu_encode_png(mu_constant(MU_F32, 1)));
    expect_error(MU_INVALID_ARGUMENT, "expected uint8 [height, width, 1 to 4]");
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
    const mu_string png = mu_tensor_string(mu_encode_png(image), 0);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(png.bytes, 1, png.n, file);
    fclose(file);
}

static void test_folder(void **state)
{
    (void)state;
    assert_non_null(mkdtemp(root));
    put("b", "1.png", 10);
    put("a", "2.png", 20);
    put("a", "1.PNG", 30);
    put("a", "notes.txt", 0);
    mu_dataset_image_folder_args args = {.size = sizeof args, .given = ".batch_size .seed", .directory = root,
                                         .batch_size = -1,
                                         .color_mode = "grayscale", .image_size = {1, 1}, .no_shuffle = true, .seed =
                                             3};
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
    args = (mu_dataset_image_folder_args){.size = sizeof args, .given = ".batch_size", .directory = root,
                                          .batch_size = -1,
                                          .no_shuffle = true};
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

int main(void)
{
    const struct CMUnitTest tests[] = {DATA_TEST(test_png_and_back), DATA_TEST(test_refusals), DATA_TEST(test_folder)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
