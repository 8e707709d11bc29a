// Decodes JPEG (libjpeg-turbo) and PNG (libpng) as TensorFlow's decode_image does, and writes PNG.
//
// Both libraries report errors by longjmp; memory to free is therefore recorded in a struct outside of the function
// that calls setjmp. Sizes are checked before memory is taken: a file of a few bytes may claim an image of any size.
#include "data/formats/image.h"

#include <jpeglib.h>
#include <jerror.h>
#include <png.h>
#include <setjmp.h>

enum { MOST_SIDE = 65500, MOST_SCANS = 200 }; // pixels; of a progressive JPEG, which is decoded once for each
#define MOST_IMAGE_BYTES ((size_t)1 << 30)

// What a decoder works on.
typedef struct decoding {
    const uint8_t *bytes;
    size_t n, at;
    int channels;     // wanted; 0: those of the file
    mu_tensor *image; // owned
    uint8_t *inks;    // a row of cyan, magenta, yellow and black; owned. NULL: the JPEG has other colours
    jmp_buf jump;
    char why[JMSG_LENGTH_MAX];
} decoding;

static mu_status damaged(const char *why)
{
    return mu__error(MU_DATA_LOSS, "the image cannot be decoded: %s; is the file whole?", why);
}

static mu_status make_image(decoding *d, uint64_t height, uint64_t width, int channels)
{
    if (height < 1 || width < 1 || height > MOST_SIDE || width > MOST_SIDE ||
        height * width * (uint64_t)channels > MOST_IMAGE_BYTES)
        return mu__error(MU_RESOURCE_EXHAUSTED,
                         "the image has %llu x %llu pixels; the limits are %d in a direction and %zu bytes",
                         (unsigned long long)width, (unsigned long long)height, MOST_SIDE, MOST_IMAGE_BYTES);
    d->image = mu__tensor_alloc(MU_U8, &(mu_shape){3, {(int64_t)height, (int64_t)width, channels}});
    return d->image != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// ---- JPEG ---------------------------------------------------------------------------------------

typedef struct jpeg_job {
    struct jpeg_decompress_struct info; // first
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    decoding *decoding;
} jpeg_job;

static void jpeg_fail(j_common_ptr info)
{
    decoding *d = ((jpeg_job *)(void *)info)->decoding;
    info->err->format_message(info, d->why);
    longjmp(d->jump, 1);
}

// Data that end early or have holes are an error, as in TensorFlow; other warnings are not.
static void jpeg_warn(j_common_ptr info, int level)
{
    if (level < 0 && (info->err->msg_code == JWRN_JPEG_EOF || info->err->msg_code == JWRN_HIT_MARKER))
        jpeg_fail(info);
}

static void jpeg_watch(j_common_ptr info)
{
    jpeg_job *job = (jpeg_job *)(void *)info;
    if (info->is_decompressor && job->info.input_scan_number > MOST_SCANS) {
        snprintf(job->decoding->why, sizeof job->decoding->why, "it has more than %d scans", MOST_SCANS);
        longjmp(job->decoding->jump, 1);
    }
}

// Chooses the form of the colours that libjpeg gives: for CMYK, which it cannot convert, the inks.
static mu_status choose_colours(decoding *d, struct jpeg_decompress_struct *info, int *channels)
{
    const bool inks = info->jpeg_color_space == JCS_CMYK || info->jpeg_color_space == JCS_YCCK;
    *channels = d->channels != 0 ? d->channels : info->num_components == 1 ? 1 : 3;
    if (*channels != 1 && *channels != 3)
        return mu__error(MU_INVALID_ARGUMENT, "a JPEG cannot be decoded to %d channels; give 0, 1 or 3", *channels);
    if (inks && *channels == 1)
        return mu__error(MU_UNIMPLEMENTED,
                         "the JPEG has CMYK colours, which are not decoded to gray; give 0 or 3 channels");
    info->out_color_space = *channels == 1 ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
    MU_TRY(make_image(d, info->image_height, info->image_width, *channels));
    d->inks = inks ? mu__alloc((size_t)info->image_width * 4) : NULL;
    return !inks || d->inks != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

// Programs of Adobe's, whose marker the file then has, write the inks inverted.
static void inks_to_rgb(const uint8_t *inks, size_t pixels, bool inverted, uint8_t *out)
{
    for (size_t i = 0; i < pixels; i++, inks += 4)
        for (int channel = 0; channel < 3; channel++) {
            const int ink = inverted ? inks[channel] : 255 - inks[channel], black = inverted ? inks[3] : 255 - inks[3];
            *out++ = (uint8_t)(black * ink / 255);
        }
}

static mu_status read_jpeg(jpeg_job *job)
{
    decoding *d = job->decoding;
    struct jpeg_decompress_struct *info = &job->info;
    int channels;
    jpeg_mem_src(info, d->bytes, d->n);
    jpeg_read_header(info, TRUE);
    info->dct_method = JDCT_IFAST; // TensorFlow's default
    MU_TRY(choose_colours(d, info, &channels));
    jpeg_start_decompress(info);
    const size_t width = info->output_width;
    while (info->output_scanline < info->output_height) {
        uint8_t *to = (uint8_t *)mu__host_write(d->image) + info->output_scanline * width * (size_t)channels;
        JSAMPROW row = d->inks != NULL ? d->inks : to;
        jpeg_read_scanlines(info, &row, 1);
        if (d->inks != NULL)
            inks_to_rgb(d->inks, width, info->saw_Adobe_marker, to);
    }
    jpeg_finish_decompress(info);
    return MU_OK;
}

static mu_status decode_jpeg(decoding *d)
{
    jpeg_job job = {.decoding = d};
    job.info.err = jpeg_std_error(&job.errors);
    job.errors.error_exit = jpeg_fail;
    job.errors.emit_message = jpeg_warn;
    job.progress.progress_monitor = jpeg_watch;
    jpeg_create_decompress(&job.info);
    job.info.progress = &job.progress;
    const mu_status status = setjmp(d->jump) == 0 ? read_jpeg(&job) : damaged(d->why);
    jpeg_destroy_decompress(&job.info);
    mu__free(d->inks);
    return status;
}

// ---- PNG ----------------------------------------------------------------------------------------

static void png_fail(png_structp png, png_const_charp why)
{
    decoding *d = png_get_error_ptr(png);
    snprintf(d->why, sizeof d->why, "%s", why);
    longjmp(d->jump, 1);
}

static void png_ignore(png_structp png, png_const_charp why) { (void)png, (void)why; }

static void png_take(png_structp png, png_bytep out, png_size_t n)
{
    decoding *d = png_get_io_ptr(png);
    if (n > d->n - d->at)
        png_error(png, "it ends early");
    memcpy(out, d->bytes + d->at, n);
    d->at += n;
}

// Asks libpng for 8 bits and the requested number of channels, as TensorFlow does.
static int want_channels(const decoding *d, png_structp png, png_infop info)
{
    const int type = png_get_color_type(png, info);
    const bool palette = type == PNG_COLOR_TYPE_PALETTE, clear = png_get_valid(png, info, PNG_INFO_tRNS) != 0;
    const bool gray = (type & PNG_COLOR_MASK_COLOR) == 0, alpha = (type & PNG_COLOR_MASK_ALPHA) != 0;
    const int channels = d->channels != 0 ? d->channels : palette ? 3 + clear : png_get_channels(png, info);
    if (palette)
        png_set_palette_to_rgb(png);
    if (gray && png_get_bit_depth(png, info) < 8)
        png_set_expand_gray_1_2_4_to_8(png);
    if (channels % 2 == 1 && (alpha || clear))
        png_set_strip_alpha(png);
    else if (channels % 2 == 0 && !alpha && clear)
        png_set_tRNS_to_alpha(png);
    else if (channels % 2 == 0 && !alpha)
        png_set_add_alpha(png, 0xff, PNG_FILLER_AFTER);
    png_set_strip_16(png);
    png_set_packing(png);
    if (channels < 3 && !gray)
        png_set_rgb_to_gray(png, 1, 0.299, 0.587);
    if (channels >= 3 && gray)
        png_set_gray_to_rgb(png);
    return channels;
}

static mu_status read_png(decoding *d, png_structp png, png_infop info)
{
    png_set_read_fn(png, d, png_take);
    png_set_user_limits(png, MOST_SIDE, MOST_SIDE);
    png_read_info(png, info);
    const int channels = want_channels(d, png, info), passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
    const size_t height = png_get_image_height(png, info), width = png_get_image_width(png, info);
    if (png_get_rowbytes(png, info) != width * (size_t)channels)
        return mu__error(MU_UNIMPLEMENTED, "the PNG has a form of colours that cannot be decoded to %d channels",
                         channels);
    MU_TRY(make_image(d, height, width, channels));
    for (int pass = 0; pass < passes; pass++)
        for (size_t row = 0; row < height; row++)
            png_read_row(png, (uint8_t *)mu__host_write(d->image) + row * width * (size_t)channels, NULL);
    return MU_OK;
}

static mu_status decode_png(decoding *d)
{
    png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, d, png_fail, png_ignore);
    png_infop info = png != NULL ? png_create_info_struct(png) : NULL;
    mu_status status = MU_RESOURCE_EXHAUSTED;
    if (info != NULL)
        status = setjmp(d->jump) == 0 ? read_png(d, png, info) : damaged(d->why);
    else
        mu__error(status, "no memory to decode a PNG");
    png_destroy_read_struct(&png, &info, NULL);
    return status;
}

// ---- Either -------------------------------------------------------------------------------------

mu_tensor *mu__decode_image(const void *bytes, size_t n, int channels)
{
    static const uint8_t png[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'}, jpeg[] = {0xff, 0xd8, 0xff};
    decoding d = {.bytes = bytes, .n = n, .channels = channels};
    mu_status status;
    if (n >= sizeof png && memcmp(bytes, png, sizeof png) == 0)
        status = decode_png(&d);
    else if (n >= sizeof jpeg && memcmp(bytes, jpeg, sizeof jpeg) == 0)
        status = decode_jpeg(&d);
    else
        status =
            mu__error(MU_INVALID_ARGUMENT, "the bytes are neither a JPEG nor a PNG; other formats are not decoded");
    if (status == MU_OK)
        return d.image;
    mu_release(d.image);
    return NULL;
}

mu_tensor *mu_decode_image(mu_tensor *contents, int channels)
{
    if (mu__need(contents, "mu_decode_image: the contents") != MU_OK)
        return NULL;
    const bool string = contents->dtype == MU_STRING && contents->shape.rank == 0;
    if (contents->buffer == NULL || !(string || (contents->dtype == MU_U8 && contents->shape.rank == 1)) ||
        channels < 0 || channels > 4) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_decode_image: the contents are %s of rank %d, and %d channels are requested; expected one string "
                  "or a vector of uint8, and 0 to 4 channels",
                  mu_dtype_name(contents->dtype), contents->shape.rank, channels);
        return NULL;
    }
    const mu_string bytes =
        string ? mu__string_at(contents, 0) : (mu_string){mu__host_read(contents), (size_t)contents->shape.dims[0]};
    return mu__give(mu__decode_image(bytes.bytes, bytes.n, channels));
}

// ---- Writing ------------------------------------------------------------------------------------

mu_tensor *mu_encode_png(mu_tensor *image)
{
    static const int formats[] = {0, PNG_FORMAT_GRAY, PNG_FORMAT_GA, PNG_FORMAT_RGB, PNG_FORMAT_RGBA};
    if (mu__need(image, "mu_encode_png: the image") != MU_OK)
        return NULL;
    const int64_t *dims = image->shape.dims;
    if (image->buffer == NULL || image->dtype != MU_U8 || image->shape.rank != 3 || dims[2] < 1 || dims[2] > 4 ||
        dims[0] < 1 || dims[1] < 1 || dims[0] > MOST_SIDE || dims[1] > MOST_SIDE) {
        char text[MU_SHAPE_TEXT];
        mu__error(MU_INVALID_ARGUMENT, "mu_encode_png: the image is %s %s; expected uint8 [height, width, 1 to 4]",
                  mu_dtype_name(image->dtype), mu__shape_text(&image->shape, text));
        return NULL;
    }
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)dims[1],
                     .height = (png_uint_32)dims[0],
                     .format = (png_uint_32)formats[dims[2]]};
    png_alloc_size_t n = 0;
    const void *pixels = mu__host_read(image);
    void *bytes = NULL;
    mu_tensor *out = NULL;
    if (pixels != NULL && png_image_write_get_memory_size(png, n, 0, pixels, 0, NULL) &&
        (bytes = mu__alloc(n)) != NULL && png_image_write_to_memory(&png, bytes, &n, 0, pixels, 0, NULL))
        out = mu__strings_text(bytes, n);
    if (out == NULL && !mu__pending())
        mu__error(MU_INTERNAL, "mu_encode_png: %s", png.message);
    png_image_free(&png);
    mu__free(bytes);
    return mu__give(out);
}
