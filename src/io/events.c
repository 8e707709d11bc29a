// Event files: TFRecords of messages Event, as TensorFlow's tf.summary writes them.
//
// An event is written as a protobuf by hand, in the order of its field numbers; a nested message is written to a buffer
// first, because its length precedes it. Formats: tensorflow/core/util/event.proto, framework/summary.proto.
#include "io/events.h"

#include "base/directory.h"
#include "data/formats/crc32c.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#define LONGEST_TAG 1024
#define MOST_FILES  1000 // of one process in one folder in one second

struct mu_event_file {
    FILE *file;
    char *path;
};

// ---- Protobuf -----------------------------------------------------------------------------------

typedef struct message {
    uint8_t *items;
    size_t n, capacity;
    mu_status status; // of the first failure; the message is not written then
} message;

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; // wire types

static void put_bytes(message *m, const void *data, size_t n)
{
    if (m->status == MU_OK)
        m->status = mu__grow((void **)&m->items, &m->capacity, m->n + n, 1);
    if (m->status != MU_OK || n == 0)
        return;
    memcpy(m->items + m->n, data, n);
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

static void put_key(message *m, int field, int wire) { put_varint(m, (uint64_t)(field << 3 | wire)); }

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

static void put_text(message *m, int field, const char *text) { put_block(m, field, text, strlen(text)); }

// Puts a message into another one and frees it.
static void put_message(message *m, int field, message *inner)
{
    if (inner->status != MU_OK)
        m->status = inner->status;
    put_block(m, field, inner->items, inner->n);
    mu__free(inner->items);
}

// The beginning of a TensorProto: DT_FLOAT, DT_DOUBLE or DT_STRING, and the axes.
enum { DT_FLOAT = 1, DT_DOUBLE = 2, DT_STRING = 7 };
static message new_tensor(int type, int rank, const int64_t *dims)
{
    message tensor = {0}, shape = {0};
    put_key(&tensor, 1, VARINT);
    put_varint(&tensor, (uint64_t)type);
    for (int i = 0; i < rank; i++) {
        message dim = {0};
        put_key(&dim, 1, VARINT);
        put_varint(&dim, (uint64_t)dims[i]);
        put_message(&shape, 2, &dim);
    }
    put_message(&tensor, 2, &shape);
    return tensor;
}

// ---- Values -------------------------------------------------------------------------------------

// A float scalar: one number of float_val.
static message scalar_tensor(double value)
{
    const float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    message tensor = new_tensor(DT_FLOAT, 0, NULL), number = {0};
    put_little(&number, bits, 4);
    put_message(&tensor, 5, &number);
    return tensor;
}

// Rows of three doubles, as tensor_content.
static message rows_tensor(int n, const double (*rows)[3])
{
    message tensor = new_tensor(DT_DOUBLE, 2, (int64_t[]){n, 3}), content = {0};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) {
            uint64_t bits;
            memcpy(&bits, &rows[i][k], sizeof bits);
            put_little(&content, bits, 8);
        }
    put_message(&tensor, 4, &content);
    return tensor;
}

static message strings_tensor(bool scalar, int n, const mu_event_bytes *strings)
{
    message tensor = new_tensor(DT_STRING, scalar ? 0 : 1, &(int64_t){n});
    for (int i = 0; i < n; i++)
        put_block(&tensor, 8, strings[i].bytes, strings[i].n);
    return tensor;
}

// The SummaryMetadata: the plugin that shows the value, and its class of data.
enum { SCALAR = 1, TENSOR = 2, BLOB_SEQUENCE = 3 };
static message new_metadata(const char *plugin_name, int data_class)
{
    message plugin = {0}, metadata = {0};
    put_text(&plugin, 1, plugin_name);
    put_message(&metadata, 1, &plugin);
    put_key(&metadata, 4, VARINT);
    put_varint(&metadata, (uint64_t)data_class);
    return metadata;
}

// ---- Records ------------------------------------------------------------------------------------

static mu_status failed(const mu_event_file *file)
{
    return mu__error(mu__errno_code(errno), "the event file '%s' cannot be written: %s", file->path, strerror(errno));
}

// A TFRecord: length, its checksum, data, their checksum.
static mu_status write_parts(mu_event_file *file, const message *data, const message *head, const message *tail)
{
    if (data->status != MU_OK || head->status != MU_OK || tail->status != MU_OK)
        return mu_error_code();
    const bool written = fwrite(head->items, 1, head->n, file->file) == head->n &&
                         fwrite(data->items, 1, data->n, file->file) == data->n &&
                         fwrite(tail->items, 1, tail->n, file->file) == tail->n;
    return written ? MU_OK : failed(file);
}

// Writes a message and frees it.
static mu_status write_record(mu_event_file *file, message *data)
{
    message head = {0}, tail = {0};
    put_little(&head, data->n, 8);
    if (head.status == MU_OK)
        put_little(&head, mu__crc32c_mask(mu__crc32c(0, head.items, 8)), 4);
    put_little(&tail, mu__crc32c_mask(mu__crc32c(0, data->items, data->n)), 4);
    const mu_status status = write_parts(file, data, &head, &tail);
    mu__free(head.items);
    mu__free(tail.items);
    mu__free(data->items);
    return status;
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
    if (mu__directory_make(folder) != MU_OK)
        return NULL;
    mu_event_file *file = mu__calloc(1, sizeof *file);
    if (!file || open_file(file, folder) == MU_OK)
        return file;
    mu__event_file_close(file);
    return NULL;
}

// Writes an event with one value: its tag, its tensor, which is freed, and its metadata.
static mu_status write_value(mu_event_file *file, const char *tag, int64_t step, message *tensor, const char *plugin,
                             int data_class)
{
    if (strlen(tag) > LONGEST_TAG) {
        mu__free(tensor->items);
        return mu__error(MU_INVALID_ARGUMENT,
                         "the tag '%.40s…' of an event has %zu characters; at most %d are supported", tag, strlen(tag),
                         LONGEST_TAG);
    }
    message event = new_event(step), summary = {0}, entry = {0}, metadata = new_metadata(plugin, data_class);
    put_text(&entry, 1, tag);
    put_message(&entry, 8, tensor);
    put_message(&entry, 9, &metadata);
    put_message(&summary, 1, &entry);
    put_message(&event, 5, &summary);
    return write_record(file, &event);
}

mu_status mu__event_file_scalar(mu_event_file *file, const char *tag, int64_t step, double value)
{
    message tensor = scalar_tensor(value);
    return write_value(file, tag, step, &tensor, "scalars", SCALAR);
}

mu_status mu__event_file_histogram(mu_event_file *file, const char *tag, int64_t step, int n, const double (*rows)[3])
{
    message tensor = rows_tensor(n, rows);
    return write_value(file, tag, step, &tensor, "histograms", TENSOR);
}

mu_status mu__event_file_images(mu_event_file *file, const char *tag, int64_t step, int n, const mu_event_bytes *parts)
{
    message tensor = strings_tensor(false, n, parts);
    return write_value(file, tag, step, &tensor, "images", BLOB_SEQUENCE);
}

mu_status mu__event_file_text(mu_event_file *file, const char *tag, int64_t step, const char *text)
{
    message tensor = strings_tensor(true, 1, &(mu_event_bytes){text, strlen(text)});
    return write_value(file, tag, step, &tensor, "text", TENSOR);
}

mu_status mu__event_file_flush(mu_event_file *file) { return fflush(file->file) == 0 ? MU_OK : failed(file); }

void mu__event_file_close(mu_event_file *file)
{
    if (!file)
        return;
    if (file->file)
        fclose(file->file);
    mu__free(file->path);
    mu__free(file);
}
