// Keras's .keras: a zip archive of config.json, metadata.json, the weights, model.weights.h5, and of layers' assets,
// such as assets/layers/string_lookup/vocabulary.txt.
//
// This file moves the members and leaves their meaning to the model layer: the texts are the file's metadata. Nothing
// is extracted to a disk and no member's name is used as a path.
#include "io/io.h"

#include "data/formats/zip.h"

#define CONFIG   "config.json"
#define METADATA "metadata.json"
#define WEIGHTS  "model.weights.h5"

#define ASSETS "assets/"

enum { MOST_TEXT = 64 << 20, MOST_ASSETS = 256 << 20 };

// An open archive and its weights, which are read in place unless they are compressed.
typedef struct keras_archive {
    void *data;
    uint8_t *inflated;
    const uint8_t *weights;
} keras_archive;

static void close_archive(mu_tensor_file *file)
{
    keras_archive *archive = file->state;
    mu__free(archive->inflated);
    mu__free(archive->data);
    mu__free(archive);
}

static mu_status missing(const mu_tensor_file *file, const char *member)
{
    return mu__error(MU_DATA_LOSS, "%s has no member '%s', as an archive of Keras has; save the model again",
                     file->path, member);
}

static mu_status add_member(mu_tensor_file *file, const mu_zip_entry *entry, const uint8_t *bytes)
{
    if (memchr(bytes, 0, (size_t)entry->size))
        return mu__error(MU_DATA_LOSS, "%s: '%s' is not a text, as it has a byte 0; save the model again", file->path,
                         entry->name);
    char *text = mu__alloc((size_t)entry->size + 1);
    if (!text)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(text, bytes, (size_t)entry->size);
    text[entry->size] = '\0';
    const mu_status status = mu__file_add_metadata(file, entry->name, text);
    mu__free(text);
    return status;
}

static mu_status read_text(mu_tensor_file *file, mu_zip *zip, const mu_zip_entry *entry)
{
    const uint8_t *bytes;
    uint8_t *own;
    if (entry->size > MOST_TEXT)
        return mu__error(MU_DATA_LOSS, "%s: '%s' has %llu bytes; a text has at most %d", file->path, entry->name,
                         (unsigned long long)entry->size, MOST_TEXT);
    MU_TRY(mu__zip_read(zip, entry, &bytes, &own));
    const mu_status status = add_member(file, entry, bytes);
    mu__free(own);
    return status;
}

static mu_status read_needed(mu_tensor_file *file, mu_zip *zip, const char *member)
{
    const mu_zip_entry *entry = mu__zip_find(zip, member);
    return entry ? read_text(file, zip, entry) : missing(file, member);
}

// The texts among the assets; what else a layer keeps there is passed over.
static mu_status read_assets(mu_tensor_file *file, mu_zip *zip)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < zip->entries.n; i++) {
        const mu_zip_entry *entry = &zip->entries.items[i];
        const size_t length = strlen(entry->name);
        if (strncmp(entry->name, ASSETS, strlen(ASSETS)) != 0 || length < 4 ||
            strcmp(entry->name + length - 4, ".txt") != 0)
            continue;
        bytes += MU_MIN(entry->size, (uint64_t)MOST_ASSETS + 1);
        if (bytes > MOST_ASSETS)
            return mu__error(MU_DATA_LOSS, "%s: the assets have more than %d bytes together, which is the limit",
                             file->path, MOST_ASSETS);
        MU_TRY(read_text(file, zip, entry));
    }
    return MU_OK;
}

static mu_status read_members(mu_tensor_file *file, keras_archive *archive, mu_zip *zip)
{
    const mu_zip_entry *weights = mu__zip_find(zip, WEIGHTS);
    MU_TRY(read_needed(file, zip, CONFIG));
    MU_TRY(read_needed(file, zip, METADATA));
    MU_TRY(read_assets(file, zip));
    if (!weights)
        return missing(file, WEIGHTS);
    MU_TRY(mu__zip_read(zip, weights, &archive->weights, &archive->inflated));
    return mu__hdf5_scan(file, archive->weights, (size_t)weights->size);
}

static mu_status open_archive(mu_tensor_file *file)
{
    size_t bytes = 0;
    mu_zip zip;
    keras_archive *archive = file->state = mu__calloc(1, sizeof *archive);
    if (!archive)
        return mu_error_code();
    MU_TRY(mu__file_read(file->path, MU_TENSOR_FILE_LIMIT, &archive->data, &bytes));
    mu_status status = mu__zip_open(&zip, file->path, archive->data, bytes);
    if (status == MU_OK)
        status = read_members(file, archive, &zip);
    mu__zip_close(&zip);
    return status;
}

static mu_status read_entry(const mu_tensor_file *file, const mu_file_entry *entry, void *out)
{
    mu__hdf5_read(entry, ((const keras_archive *)file->state)->weights, out);
    return MU_OK;
}

// ---- Saving -------------------------------------------------------------------------------------

static mu_status add_text(mu_zip_writer *zip, const mu_tensors *all, const char *member)
{
    const char *text = mu__tensors_metadata(all, member);
    return mu__zip_add(zip, member, 1, &(mu_zip_piece){text, strlen(text)});
}

static mu_status add_weights(mu_zip_writer *zip, const mu_tensors *all, const mu_hdf5_layout *layout)
{
    static const uint8_t zeros[64];
    mu_zip_piece *pieces = mu__calloc(2 * (size_t)all->n + 1, sizeof *pieces);
    if (!pieces)
        return mu_error_code();
    pieces[0] = (mu_zip_piece){layout->head, layout->head_bytes};
    for (int i = 0; i < all->n; i++) {
        const mu_spec spec = mu__spec_of(all->tensors[i]);
        pieces[2 * i + 1] = (mu_zip_piece){zeros, layout->padding[i]};
        pieces[2 * i + 2] = (mu_zip_piece){mu__host_read(all->tensors[i]), mu__spec_bytes(&spec)};
    }
    const mu_status status = mu__zip_add(zip, WEIGHTS, 2 * (size_t)all->n + 1, pieces);
    mu__free(pieces);
    return status;
}

static mu_status write_members(mu_zip_writer *zip, const mu_tensors *all, const mu_hdf5_layout *layout)
{
    MU_TRY(add_text(zip, all, METADATA));
    MU_TRY(add_text(zip, all, CONFIG));
    MU_TRY(add_weights(zip, all, layout));
    for (int i = 0; all->metadata[i]; i += 2)
        if (strncmp(all->metadata[i], ASSETS, strlen(ASSETS)) == 0)
            MU_TRY(add_text(zip, all, all->metadata[i]));
    return mu__zip_finish(zip);
}

static mu_status save_archive(const char *path, const mu_tensors *all)
{
    if (!mu__tensors_metadata(all, CONFIG) || !mu__tensors_metadata(all, METADATA))
        return mu__error(MU_INVALID_ARGUMENT,
                         "%s: a .keras file holds a model with its configuration, not weights alone; use "
                         "mu_save_model, or save the weights as .weights.h5",
                         path);
    mu_hdf5_layout layout;
    mu_zip_writer zip = {0};
    mu_status status = mu__hdf5_layout(path, all, &layout);
    if (status == MU_OK)
        status = (zip.file = mu__file_create(path)) ? write_members(&zip, all, &layout) : mu_error_code();
    mu__zip_free(&zip);
    mu__hdf5_layout_free(&layout);
    if (status == MU_OK)
        return mu__file_commit(zip.file);
    mu__file_abandon(zip.file);
    return status;
}

// Keras writes metadata.json first; any of the three members may be first in an archive that was packed again.
static bool recognise(const uint8_t *head, size_t bytes)
{
    static const char *const members[] = {METADATA, CONFIG, WEIGHTS};
    bool found = false;
    for (size_t i = 0; i < MU_COUNT(members); i++)
        found |= bytes >= 30 + strlen(members[i]) && memcmp(head + 30, members[i], strlen(members[i])) == 0;
    return found && memcmp(head, "PK\3\4", 4) == 0;
}

static const char *const texts[] = {CONFIG, METADATA, ASSETS, NULL};

const mu_file_format mu__keras_format = {
    .name = "keras",
    .extension = ".keras",
    .text = "Keras's model with its configuration",
    .names = MU_NAMES_KERAS,
    .metadata = texts,
    .recognise = recognise,
    .open = open_archive,
    .close = close_archive,
    .read = read_entry,
    .save = save_archive,
};
