// Reads and writes whole files: bounded reading (gzip too), atomic writing.
//
// Allocations follow what was actually read, never what a header claims. A writer works on a temporary file next to
// its target, so a crash or a full disk leaves the old file unchanged.
#include "base/linux.h"
#include "base/planted.h"
#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK = 1 << 16, WRITE_BUFFER = 1 << 18 };

// ---- Reading ------------------------------------------------------------------------------------

typedef struct reader {
    const char *path;
    int fd;
    size_t limit;
    uint8_t *data;
    size_t n, capacity;
} reader;

static mu_status system_failure(const char *what, const char *path)
{
    const int number = errno;
    return mu__error(mu__errno_code(number), "cannot %s %s: %s", what, path, strerror(number));
}

static mu_status over_limit(const reader *in)
{
    return mu__error(
        MU_RESOURCE_EXHAUSTED,
        "%s holds more than the %zu bytes that a file of its kind may have; check that it is the right file", in->path,
        in->limit);
}

static mu_status open_regular(reader *in, struct stat *found)
{
    // Non-blocking, because opening a pipe without a writer would hang.
    in->fd = open(in->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (in->fd < 0 || fstat(in->fd, found) != 0)
        return system_failure("open", in->path);
    if (S_ISREG(found->st_mode))
        return MU_OK;
    return mu__error(MU_FAILED_PRECONDITION, "%s is a %s, not a file; give the path of a file", in->path,
                     S_ISDIR(found->st_mode) ? "folder" : "device or pipe");
}

// Reads until `bytes` bytes are read or the file ends.
static mu_status read_some(int fd, const char *path, uint8_t *out, size_t bytes, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        const ssize_t n = read(fd, out + *got, bytes - *got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return system_failure("read", path);
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    return MU_OK;
}

// Makes room for more output: doubles the size, up to one byte over the limit. Always keeps one more byte for the
// final zero.
static mu_status make_room(reader *in)
{
    if (in->n > in->limit)
        return over_limit(in);
    if (in->n < in->capacity)
        return MU_OK;
    size_t target = in->capacity < CHUNK ? CHUNK : in->capacity <= SIZE_MAX / 4 ? 2 * in->capacity : SIZE_MAX / 2;
    if (in->limit < target - 1)
        target = in->limit + 1;
    uint8_t *grown = mu__realloc(in->data, target + 1);
    if (grown == NULL)
        return MU_RESOURCE_EXHAUSTED;
    in->data = grown;
    in->capacity = target;
    return MU_OK;
}

static mu_status read_plain(reader *in, size_t expected)
{
    if (expected > in->limit)
        return over_limit(in);
    // One byte more than the file's size, so that the usual file is read, and its end detected, without growing.
    in->data = mu__alloc(expected + 2);
    if (in->data == NULL)
        return MU_RESOURCE_EXHAUSTED;
    in->capacity = expected + 1;
    for (;;) {
        MU_TRY(make_room(in));
        const size_t wanted = in->capacity - in->n;
        size_t got;
        MU_TRY(read_some(in->fd, in->path, in->data + in->n, wanted, &got));
        in->n += got;
        if (got < wanted)
            return in->n > in->limit ? over_limit(in) : MU_OK;
    }
}

// ---- Gzip ---------------------------------------------------------------------------------------

typedef struct gzip {
    reader *out;
    z_stream stream;
    size_t offset; // offset of the chunk in the file
    bool between;  // a member has ended: another, padding or the end of the file may follow
    uint8_t chunk[CHUNK];
} gzip;

static void *zlib_alloc(void *opaque, unsigned items, unsigned size)
{
    (void)opaque;
    return mu__calloc(items, size);
}

static void zlib_free(void *opaque, void *block)
{
    (void)opaque;
    mu__free(block);
}

static size_t gzip_offset(const gzip *in) { return in->offset - in->stream.avail_in; }

static mu_status gzip_refill(gzip *in)
{
    size_t got;
    MU_TRY(read_some(in->out->fd, in->out->path, in->chunk, CHUNK, &got));
    in->stream.next_in = in->chunk;
    in->stream.avail_in = (unsigned)got;
    in->offset += got;
    return MU_OK;
}

// After a member: zeros are padding, 1f starts another member, anything else is damage.
static mu_status gzip_next_member(gzip *in)
{
    while (in->stream.avail_in > 0 && *in->stream.next_in == 0) {
        in->stream.next_in++;
        in->stream.avail_in--;
    }
    if (in->stream.avail_in == 0)
        return MU_OK;
    if (*in->stream.next_in != 0x1f)
        return mu__error(MU_DATA_LOSS,
                         "%s: at byte %zu other data follow the end of the gzip data; fetch the file again",
                         in->out->path, gzip_offset(in));
    in->between = false;
    return inflateReset(&in->stream) == Z_OK ? MU_OK : mu__error(MU_INTERNAL, "zlib cannot start a gzip member");
}

static mu_status gzip_inflate(gzip *in)
{
    reader *out = in->out;
    MU_TRY(make_room(out));
    const size_t space = MU_MIN(out->capacity - out->n, (size_t)1 << 30);
    in->stream.next_out = out->data + out->n;
    in->stream.avail_out = (unsigned)space;
    const int code = inflate(&in->stream, Z_NO_FLUSH);
    out->n += space - in->stream.avail_out;
    if (code == Z_STREAM_END) {
        in->between = true;
        return MU_OK;
    }
    if (code == Z_OK || code == Z_BUF_ERROR)
        return MU_OK;
    if (code == Z_MEM_ERROR)
        return mu__error(MU_RESOURCE_EXHAUSTED, "out of memory while inflating %s", out->path);
    return mu__error(MU_DATA_LOSS, "%s: the gzip data is damaged near byte %zu (%s); fetch the file again", out->path,
                     gzip_offset(in), in->stream.msg != NULL ? in->stream.msg : "no reason given");
}

static mu_status gzip_run(gzip *in)
{
    for (;;) {
        if (in->stream.avail_in == 0) {
            MU_TRY(gzip_refill(in));
            if (in->stream.avail_in == 0)
                break;
        }
        if (in->between)
            MU_TRY(gzip_next_member(in));
        while (in->stream.avail_in > 0 && !in->between)
            MU_TRY(gzip_inflate(in));
    }
    // The input is used up, but zlib may hold output for which there was no space.
    while (!in->between && in->out->n == in->out->capacity)
        MU_TRY(gzip_inflate(in));
    if (!in->between)
        return mu__error(MU_DATA_LOSS, "%s: the gzip data ends too early, at byte %zu; fetch the file again",
                         in->out->path, in->offset);
    return in->out->n > in->out->limit ? over_limit(in->out) : make_room(in->out);
}

static mu_status read_gzip(reader *out)
{
    gzip *in = mu__calloc(1, sizeof *in);
    if (in == NULL)
        return MU_RESOURCE_EXHAUSTED;
    in->out = out;
    in->stream.zalloc = zlib_alloc;
    in->stream.zfree = zlib_free;
    mu_status status = MU_OK;
    if (inflateInit2(&in->stream, 16 + MAX_WBITS) == Z_OK) {
        status = gzip_run(in);
        inflateEnd(&in->stream);
    } else {
        status = mu__error(MU_RESOURCE_EXHAUSTED, "out of memory while inflating %s", out->path);
    }
    mu__free(in);
    return status;
}

static mu_status read_open(reader *in, size_t expected)
{
    uint8_t magic[2] = {0};
    size_t got;
    MU_TRY(read_some(in->fd, in->path, magic, sizeof magic, &got));
    if (lseek(in->fd, 0, SEEK_SET) != 0)
        return system_failure("read", in->path);
    if (got == sizeof magic && magic[0] == 0x1f && magic[1] == 0x8b)
        return read_gzip(in);
    return read_plain(in, expected);
}

mu_status mu__linux_read_file(const char *path, size_t limit, void **data, size_t *bytes)
{
    *data = NULL;
    *bytes = 0;
    reader in = {.path = path, .fd = -1, .limit = MU_MIN(limit, SIZE_MAX / 2)};
    struct stat found;
    mu_status status = open_regular(&in, &found);
    if (status == MU_OK)
        status = read_open(&in, (size_t)found.st_size);
    if (in.fd >= 0)
        close(in.fd);
    if (status != MU_OK) {
        mu__free(in.data);
        return status;
    }
    in.data[in.n] = 0;
    *data = in.data;
    *bytes = in.n;
    return MU_OK;
}

mu_status mu__file_read(const char *path, size_t limit, void **data, size_t *bytes)
{
    return mu__system->read_file(path, limit, data, bytes);
}

// ---- Writing ------------------------------------------------------------------------------------

struct mu_file_writer {
    char *path, *temporary;
    int fd;
    mu_status failed; // status of an earlier write that failed; then commit fails too
    size_t written;   // bytes written to the disk
    size_t n;         // bytes in the buffer
    uint8_t buffer[WRITE_BUFFER];
};

static void writer_free(mu_file_writer *file)
{
    if (file->fd >= 0) {
        unlink(file->temporary); // still locked, so that no other process takes it for an abandoned file
        close(file->fd);
    }
    mu__free(file->path);
    mu__free(file->temporary);
    mu__free(file);
}

mu_file_writer *mu__file_create(const char *path)
{
    if (mu__pending())
        return NULL;
    struct stat found;
    if (path[0] == '\0') {
        mu__error(MU_INVALID_ARGUMENT, "the path of a file to write is empty; give one");
        return NULL;
    }
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) {
        mu__error(MU_FAILED_PRECONDITION, "cannot write %s: it is a %s; give the path of a file", path,
                  S_ISDIR(found.st_mode) ? "folder" : "device, pipe or socket, which the file would replace");
        return NULL;
    }
    mu_file_writer *file = mu__calloc(1, sizeof *file);
    if (file == NULL)
        return NULL;
    file->fd = -1;
    file->path = mu__strdup(path);
    if (file->path != NULL && mu__temporary_create(path, &file->temporary, &file->fd) == MU_OK)
        return file;
    writer_free(file);
    return NULL;
}

static mu_status put(mu_file_writer *file, const uint8_t *data, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = mu__system->write_file(file->fd, data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 && MU_PLANTED(MU_DEFECT_HALF_FILE))
            return MU_OK;
        if (n <= 0) {
            const int number = n < 0 ? errno : ENOSPC;
            file->failed = mu__errno_code(number);
            return mu__error(file->failed,
                             "cannot write %s after %zu bytes: %s; the file that was there before is unchanged",
                             file->path, file->written, strerror(number));
        }
        done += (size_t)n;
        file->written += (size_t)n;
    }
    return MU_OK;
}

static mu_status flush(mu_file_writer *file)
{
    const size_t n = file->n;
    file->n = 0;
    return put(file, file->buffer, n);
}

mu_status mu__file_write(mu_file_writer *file, const void *data, size_t bytes)
{
    if (file->failed != MU_OK)
        return mu__error(file->failed, "cannot write %s: an earlier write failed", file->path);
    if (bytes > WRITE_BUFFER - file->n)
        MU_TRY(flush(file));
    if (bytes >= WRITE_BUFFER)
        return put(file, data, bytes);
    if (bytes > 0)
        memcpy(file->buffer + file->n, data, bytes);
    file->n += bytes;
    return MU_OK;
}

// A rename is durable only once the folder is synced. Some file systems cannot sync a folder; then the rename is as
// durable as they make it.
static mu_status sync_folder(const char *path)
{
    char *folder = mu__strdup(path);
    if (folder == NULL)
        return MU_RESOURCE_EXHAUSTED;
    char *slash = strrchr(folder, '/');
    if (slash != NULL)
        slash[slash == folder ? 1 : 0] = '\0';
    const int fd = open(slash != NULL ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mu_status status = MU_OK;
    if (fd >= 0 && fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        status = system_failure("sync the folder of", path);
    if (fd >= 0)
        close(fd);
    mu__free(folder);
    return status;
}

static mu_status finish(mu_file_writer *file)
{
    if (file->failed != MU_OK)
        return mu__error(file->failed, "cannot write %s: an earlier write failed", file->path);
    MU_TRY(flush(file));
    if (fsync(file->fd) != 0) {
        const int number = errno;
        return mu__error(
            mu__errno_code(number),
            "cannot write %s: syncing its %zu bytes failed: %s; the file that was there before is unchanged",
            file->path, file->written, strerror(number));
    }
    if (rename(file->temporary, file->path) != 0)
        return system_failure("replace", file->path);
    close(file->fd);
    file->fd = -1;
    return sync_folder(file->path);
}

mu_status mu__file_commit(mu_file_writer *file)
{
    const mu_status status = finish(file);
    writer_free(file);
    return status;
}

void mu__file_abandon(mu_file_writer *file)
{
    if (file != NULL)
        writer_free(file);
}
