// Event files: TFRecords of messages Event, as TensorFlow's tf.summary writes them.
//
// An event is written as a protobuf by hand, in the order of its field numbers; a nested message is written to a buffer
// first, because its length stands before it. Formats: tensorflow/core/util/event.proto, framework/summary.proto.
#include "io/events.h"

#include "data/crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_TAG 1024
#define LONGEST_EVENT (2 * LONGEST_TAG)
#define MOST_FILES 1000  // of one process in one folder in one second

struct mu_event_file {
    FILE *file;
    char *path;
};

// ---- Protobuf -----------------------------------------------------------------------------------

typedef struct message {
    size_t n;
    uint8_t bytes[LONGEST_EVENT];
} message;

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };  // wire types

static void put_bytes(message *m, const void *data, size_t n)
{
    assert(m->n + n <= sizeof m->bytes);
    memcpy(m->bytes + m->n, data, n);
    m->n += n;
}

static void put_varint(message *m, uint64_t value)
{
    do {
        const uint8_t byte = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        put_bytes(m, &byte, 1);
        value >>= 7;
    } while (value > 0);
}

static void put_key(message *m, int field, int wire)
{
    put_varint(m, (uint64_t)(field << 3 | wire));
}

static void put_little(message *m, uint64_t value, int n)
{
    for (int i = 0; i < n; i++)
        put_bytes(m, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

static void put_double(message *m, int field, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_key(m, field, FIXED64);
    put_little(m, bits, 8);
}

static void put_block(message *m, int field, const void *data, size_t n)
{
    put_key(m, field, BYTES);
    put_varint(m, n);
    put_bytes(m, data, n);
}

static void put_text(message *m, int field, const char *text)
{
    put_block(m, field, text, strlen(text));
}

static void put_message(message *m, int field, const message *inner)
{
    put_block(m, field, inner->bytes, inner->n);
}

// A TensorProto that is a float scalar: dtype DT_FLOAT, an empty shape, one number of float_val.
static void put_float_tensor(message *m, int field, double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    message tensor = {0}, number = {0};
    put_key(&tensor, 1, VARINT);
    put_varint(&tensor, 1);
    put_block(&tensor, 2, "", 0);
    put_little(&number, bits, 4);
    put_message(&tensor, 5, &number);
    put_message(m, field, &tensor);
}

// The SummaryMetadata of a scalar: the plugin that shows it, and DATA_CLASS_SCALAR.
static void put_scalar_metadata(message *m, int field)
{
    message plugin = {0}, metadata = {0};
    put_text(&plugin, 1, "scalars");
    put_message(&metadata, 1, &plugin);
    put_key(&metadata, 4, VARINT);
    put_varint(&metadata, 1);
    put_message(m, field, &metadata);
}

// ---- Records ------------------------------------------------------------------------------------

static mu_status failed(const mu_event_file *file)
{
    return mu__error(mu__errno_code(errno), "the event file '%s' cannot be written: %s", file->path, strerror(errno));
}

// A TFRecord: length, its checksum, data, their checksum.
static mu_status write_record(mu_event_file *file, const message *data)
{
    message head = {0}, tail = {0};
    put_little(&head, data->n, 8);
    put_little(&head, mu__crc32c_mask(mu__crc32c(0, head.bytes, 8)), 4);
    put_little(&tail, mu__crc32c_mask(mu__crc32c(0, data->bytes, data->n)), 4);
    const bool written = fwrite(head.bytes, 1, head.n, file->file) == head.n &&
                         fwrite(data->bytes, 1, data->n, file->file) == data->n &&
                         fwrite(tail.bytes, 1, tail.n, file->file) == tail.n;
    return written ? MU_OK : failed(file);
}

static double wall_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static message new_event(int64_t step)
{
    message event = {0};
    put_double(&event, 1, wall_time());
    put_key(&event, 2, VARINT);
    put_varint(&event, (uint64_t)step);
    return event;
}

// ---- Files --------------------------------------------------------------------------------------

// The folder and the folders around it. Errors: those of mkdir.
static mu_status make_folder(const char *folder)
{
    char *path = mu__strdup(folder);
    mu_status status = path ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (char *at = path; status == MU_OK && at;) {
        at = strchr(at + 1, '/');
        if (at)
            *at = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            status = mu__error(mu__errno_code(errno), "the folder '%s' of event files cannot be made: %s", path,
                               strerror(errno));
        if (at)
            *at = '/';
    }
    mu__free(path);
    return status;
}

// Opens the first file that is not there yet; a name is what TensorFlow's tools look for.
static int open_next(const char *folder, char **path)
{
    char host[128] = "host";
    int descriptor = -1;
    gethostname(host, sizeof host - 1);
    const long long now = (long long)wall_time();
    for (int i = 0; i < MOST_FILES && descriptor < 0; i++) {
        mu__free(*path);
        *path = mu__sprintf("%s/events.out.tfevents.%010lld.%s.%ld.%d.v2", folder, now, host, (long)getpid(), i);
        if (!*path)
            return -1;
        descriptor = open(*path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (descriptor < 0 && errno != EEXIST)
            break;
    }
    return descriptor;
}

static mu_status open_file(mu_event_file *file, const char *folder)
{
    const int descriptor = open_next(folder, &file->path);
    if (mu__pending())
        return mu_error_code();
    file->file = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    if (!file->file && descriptor >= 0)
        close(descriptor);
    if (!file->file)
        return failed(file);
    message event = {0};
    put_double(&event, 1, wall_time());
    put_text(&event, 3, "brain.Event:2");
    return write_record(file, &event);
}

mu_event_file *mu__event_file_create(const char *folder)
{
    if (make_folder(folder) != MU_OK)
        return NULL;
    mu_event_file *file = mu__calloc(1, sizeof *file);
    if (!file || open_file(file, folder) == MU_OK)
        return file;
    mu__event_file_close(file);
    return NULL;
}

mu_status mu__event_file_scalar(mu_event_file *file, const char *tag, int64_t step, double value)
{
    if (strlen(tag) > LONGEST_TAG)
        return mu__error(MU_INVALID_ARGUMENT, "the tag '%.40s…' of an event has %zu characters; at most %d are "
                         "supported", tag, strlen(tag), LONGEST_TAG);
    message event = new_event(step), summary = {0}, entry = {0};
    put_text(&entry, 1, tag);
    put_float_tensor(&entry, 8, value);
    put_scalar_metadata(&entry, 9);
    put_message(&summary, 1, &entry);
    put_message(&event, 5, &summary);
    return write_record(file, &event);
}

mu_status mu__event_file_flush(mu_event_file *file)
{
    return fflush(file->file) == 0 ? MU_OK : failed(file);
}

void mu__event_file_close(mu_event_file *file)
{
    if (!file)
        return;
    if (file->file)
        fclose(file->file);
    mu__free(file->path);
    mu__free(file);
}
