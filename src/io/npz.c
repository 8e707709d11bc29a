// NumPy's .npz as a file of named tensors: one array for each, under its name.
//
// The whole file is read into memory, so that its checksums can be verified. bfloat16, which NumPy lacks, is refused.
#include "io/io.h"

#include "data/formats/npy.h"
#include "data/formats/zip.h"

// An open archive. An entry's part is the number of its member.
typedef struct npz {
    void *data;
    mu_zip zip;
} npz;

static void close_archive(mu_tensor_file *file)
{
    npz *archive = file->state;
    mu__zip_close(&archive->zip);
    mu__free(archive->data);
    mu__free(archive);
}

static mu_status add_array(mu_tensor_file *file, npz *archive, size_t i)
{
    const mu_zip_entry *member = &archive->zip.entries.items[i];
    const uint8_t *bytes;
    uint8_t *own;
    MU_TRY(mu__zip_read(&archive->zip, member, &bytes, &own));
    mu_file_entry entry = {.part = (uint32_t)i};
    mu_status status = mu__npy_spec(member->name, bytes, (size_t)member->size, &entry.spec);
    mu__free(own);
    if (status != MU_OK || !(entry.name = mu__npz_name(member->name)))
        return mu_error_code();
    entry.end = mu__spec_bytes(&entry.spec);
    file->data_bytes += entry.end;
    return mu__file_add_entry(file, entry);
}

static mu_status open_archive(mu_tensor_file *file)
{
    size_t bytes = 0;
    npz *archive = file->state = mu__calloc(1, sizeof *archive);
    if (!archive)
        return mu_error_code();
    MU_TRY(mu__file_read(file->path, MU_TENSOR_FILE_LIMIT, &archive->data, &bytes));
    MU_TRY(mu__zip_open(&archive->zip, file->path, archive->data, bytes));
    for (size_t i = 0; i < archive->zip.entries.n; i++)
        MU_TRY(add_array(file, archive, i));
    archive->zip.inflated = 0; // the members are read a second time, one by one
    return MU_OK;
}

static mu_status read_array(const mu_tensor_file *file, const mu_file_entry *entry, void *out)
{
    npz *archive = file->state;
    const uint8_t *bytes;
    uint8_t *own;
    MU_TRY(mu__zip_read(&archive->zip, &archive->zip.entries.items[entry->part], &bytes, &own));
    mu_tensor *tensor = mu__npy_parse(entry->name, bytes, (size_t)archive->zip.entries.items[entry->part].size);
    if (tensor)
        memcpy(out, mu__host_read(tensor), (size_t)entry->end);
    archive->zip.inflated = 0;
    mu__free(own);
    mu_release(tensor);
    return tensor ? MU_OK : mu_error_code();
}

// ---- Saving -------------------------------------------------------------------------------------

static mu_status add_member(mu_zip_writer *zip, const char *name, const mu_tensor *tensor)
{
    char header[MU_NPY_HEADER];
    const mu_spec spec = mu__spec_of(tensor);
    const size_t bytes = mu__npy_header(tensor, header);
    char *member = bytes ? mu__sprintf("%s.npy", name) : NULL;
    if (!member)
        return mu_error_code();
    const mu_zip_piece pieces[] = {{header, bytes}, {mu__host_read(tensor), mu__spec_bytes(&spec)}};
    const mu_status status = mu__zip_add(zip, member, MU_COUNT(pieces), pieces);
    mu__free(member);
    return status;
}

static mu_status check_names(const char *path, const mu_tensors *all)
{
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < i; k++)
            if (strcmp(all->names[i], all->names[k]) == 0)
                return mu__error(MU_INVALID_ARGUMENT, "two tensors to save in %s are called '%s'; names must differ",
                                 path, all->names[i]);
    return all->n > 0 ? MU_OK : mu__error(MU_INVALID_ARGUMENT, "%s: there are no tensors to save", path);
}

static mu_status save_archive(const char *path, const mu_tensors *all)
{
    MU_TRY(check_names(path, all));
    mu_zip_writer zip = {.file = mu__file_create(path)};
    if (!zip.file)
        return mu_error_code();
    mu_status status = MU_OK;
    for (int i = 0; status == MU_OK && i < all->n; i++)
        status = add_member(&zip, all->names[i], all->tensors[i]);
    if (status == MU_OK)
        status = mu__zip_finish(&zip);
    mu__zip_free(&zip);
    if (status == MU_OK)
        return mu__file_commit(zip.file);
    mu__file_abandon(zip.file);
    return status;
}

static bool recognise(const uint8_t *head, size_t bytes) { return bytes > 4 && memcmp(head, "PK\3\4", 4) == 0; }

static const char *const no_metadata[] = {NULL};

const mu_file_format mu__npz_format = {
    .name = "npz",
    .extension = ".npz",
    .text = "NumPy's archive of arrays",
    .names = MU_NAMES_OWN,
    .metadata = no_metadata,
    .recognise = recognise,
    .open = open_archive,
    .close = close_archive,
    .read = read_array,
    .save = save_archive,
};
