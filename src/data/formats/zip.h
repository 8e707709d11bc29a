// Zip archives in memory, for NumPy's .npz and Keras's .keras: a reader that trusts no claim, and a writer.
//
// Names of members are only compared, never used as paths.
#ifndef MU_SRC_DATA_ZIP_H
#define MU_SRC_DATA_ZIP_H

#include "base/base.h"

typedef struct mu_zip_entry {
    char name[256];
    uint16_t method;
    uint32_t crc;
    uint64_t packed, size, offset;
} mu_zip_entry;

typedef struct mu_zip {
    const char *path;    // for errors
    const uint8_t *data; // the whole archive; the caller's
    size_t bytes;
    uint64_t inflated; // by all reads so far; members may share their packed bytes
    struct {
        mu_zip_entry *items;
        size_t n, capacity;
    } entries;
} mu_zip;

// mu__zip_open reads the directory. Errors: DATA_LOSS; UNIMPLEMENTED for an archive in several parts. Close it also
// after an error.
mu_status mu__zip_open(mu_zip *zip, const char *path, const void *data, size_t bytes);
void mu__zip_close(mu_zip *zip);
const mu_zip_entry *mu__zip_find(const mu_zip *zip, const char *name); // NULL without an error: there is none
// mu__zip_read returns a member's bytes after checking its checksum: in the archive itself, or inflated into `*own`,
// which the caller frees with mu__free. Errors: DATA_LOSS, also if members claim more than the archive can inflate to;
// UNIMPLEMENTED for packing other than deflate.
mu_status mu__zip_read(mu_zip *zip, const mu_zip_entry *entry, const uint8_t **bytes, uint8_t **own);

// Part of a member to write.
typedef struct mu_zip_piece {
    const void *data;
    size_t bytes;
} mu_zip_piece;

// The members written so far and their places.
typedef struct mu_zip_writer {
    mu_file_writer *file; // the caller's
    uint64_t at;
    struct {
        mu_zip_entry *items;
        size_t n, capacity;
    } entries;
} mu_zip_writer;

// mu__zip_add writes one member, not packed, from its pieces. mu__zip_finish writes the directory. mu__zip_free frees
// what the writer keeps, and leaves the file to the caller.
mu_status mu__zip_add(mu_zip_writer *zip, const char *name, size_t n, const mu_zip_piece *pieces);
mu_status mu__zip_finish(mu_zip_writer *zip);
void mu__zip_free(mu_zip_writer *zip);

#endif
