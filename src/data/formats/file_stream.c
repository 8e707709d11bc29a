// Reads files sequentially, plain or gzip (also several gzip members); see file_stream.h.
#include "data/formats/file_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define INPUT_BYTES        65536
#define MOST_DEFLATE_RATIO 1032 // deflate's best compression ratio

struct mu_file_stream {
    char *path;
    int fd;
    bool gzip, inflating, file_ended;
    uint64_t at, file_bytes;
    z_stream z; // next_in and avail_in are the unread input, also of plain files
    uint8_t *input;
};

static mu_status fill_input(mu_file_stream *stream)
{
    while (stream->z.avail_in == 0 && !stream->file_ended) {
        ssize_t n = read(stream->fd, stream->input, INPUT_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int number = errno;
            return mu__error(mu__errno_code(number), "cannot read %s: %s", stream->path, strerror(number));
        }
        stream->file_ended = n == 0;
        stream->z.next_in = stream->input;
        stream->z.avail_in = (uInt)n;
    }
    return MU_OK;
}

static mu_status open_file(mu_file_stream *stream)
{
    struct stat found;
    // Non-blocking, because opening a pipe without a writer would hang.
    stream->fd = open(stream->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (stream->fd < 0 || fstat(stream->fd, &found) != 0) {
        int number = errno;
        return mu__error(mu__errno_code(number), "cannot open %s: %s", stream->path, strerror(number));
    }
    if (!S_ISREG(found.st_mode))
        return mu__error(MU_FAILED_PRECONDITION, "%s is a %s, not a file; give the path of a file", stream->path,
                         S_ISDIR(found.st_mode) ? "folder" : "device or pipe");
    stream->file_bytes = (uint64_t)found.st_size;
    MU_TRY(fill_input(stream));
    stream->gzip = stream->z.avail_in >= 2 && stream->input[0] == 0x1f && stream->input[1] == 0x8b;
    if (stream->gzip && inflateInit2(&stream->z, 16 + MAX_WBITS) != Z_OK)
        return mu__error(MU_RESOURCE_EXHAUSTED, "no memory to inflate %s", stream->path);
    stream->inflating = stream->gzip;
    return MU_OK;
}

mu_file_stream *mu__file_stream_open(const char *path)
{
    mu_file_stream *stream = mu__calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->fd = -1;
    stream->path = mu__strdup(path);
    stream->input = mu__alloc(INPUT_BYTES);
    if (stream->path == NULL || stream->input == NULL || open_file(stream) != MU_OK) {
        mu__file_stream_close(stream);
        return NULL;
    }
    return stream;
}

void mu__file_stream_close(mu_file_stream *stream)
{
    if (stream == NULL)
        return;
    if (stream->gzip)
        inflateEnd(&stream->z);
    if (stream->fd >= 0)
        close(stream->fd);
    mu__free(stream->path);
    mu__free(stream->input);
    mu__free(stream);
}

static mu_status corrupt(const mu_file_stream *stream, const char *seen)
{
    return mu__error(MU_DATA_LOSS, "%s: the gzip data is %s after %llu bytes of content; get the file again",
                     stream->path, seen, (unsigned long long)(stream->at));
}

// One step of inflation; at the end of a member, the next one begins.
static mu_status inflate_some(mu_file_stream *stream, uint8_t *out, size_t bytes, size_t *got)
{
    MU_TRY(fill_input(stream));
    if (stream->z.avail_in == 0)
        return corrupt(stream, "cut off");
    stream->z.next_out = out;
    stream->z.avail_out = (uInt)MU_MIN(bytes, (size_t)1 << 30);
    uInt before = stream->z.avail_out;
    int result = inflate(&stream->z, Z_NO_FLUSH);
    *got = before - stream->z.avail_out;
    if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR)
        return corrupt(stream, result == Z_MEM_ERROR ? "too large for the memory" : "corrupt");
    if (result == Z_STREAM_END) {
        MU_TRY(fill_input(stream));
        stream->inflating = stream->z.avail_in > 0;
        if (stream->inflating && inflateReset(&stream->z) != Z_OK)
            return corrupt(stream, "corrupt");
    }
    return MU_OK;
}

static mu_status copy_some(mu_file_stream *stream, uint8_t *out, size_t bytes, size_t *got)
{
    MU_TRY(fill_input(stream));
    *got = MU_MIN(bytes, (size_t)stream->z.avail_in);
    memcpy(out, stream->z.next_in, *got);
    stream->z.next_in += *got;
    stream->z.avail_in -= (uInt)*got;
    return MU_OK;
}

mu_status mu__file_stream_read(mu_file_stream *stream, void *data, size_t bytes, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        size_t part = 0;
        if (stream->gzip && stream->inflating)
            MU_TRY(inflate_some(stream, (uint8_t *)data + *got, bytes - *got, &part));
        else if (!stream->gzip)
            MU_TRY(copy_some(stream, (uint8_t *)data + *got, bytes - *got, &part));
        *got += part;
        stream->at += part;
        if (part == 0 && (stream->gzip ? !stream->inflating : stream->file_ended))
            break;
    }
    return MU_OK;
}

uint64_t mu__file_stream_at(const mu_file_stream *stream) { return stream->at; }

uint64_t mu__file_stream_most(const mu_file_stream *stream)
{
    return stream->gzip ? stream->file_bytes * MOST_DEFLATE_RATIO : stream->file_bytes;
}

const char *mu__file_stream_path(const mu_file_stream *stream) { return stream->path; }

void mu__swap_bytes(void *data, size_t bytes, size_t element)
{
    uint8_t *at = data;
    for (size_t i = 0; i < bytes; i += element)
        for (size_t a = i, b = i + element - 1; a < b; a++, b--) {
            uint8_t first = at[a];
            at[a] = at[b];
            at[b] = first;
        }
}
