// Snapshots of stores as safetensors files: each tensor under the name of its part and its own; other values, and the
// table of requests, as the bytes of the RPC protocol.
#include "io/io.h"
#include "rpc/rpc.h"
#include "rpc/services/service.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#define TENSOR '/' // between part and name
#define VALUE  ':'
static const char requests[] = "requests:", sequence_key[] = "sequence";

static mu_tensor *bytes_of(const mu_value *value, const char *what)
{
    mu_message *message = mu__message_of(value, what);
    const int64_t bytes = message != NULL ? (int64_t)message->bytes : 0;
    mu_tensor *tensor = message != NULL ? mu_tensor_new(MU_U8, 1, &bytes, message->data) : NULL;
    mu_release(message);
    return tensor;
}

static mu_value *value_of(const mu_tensor *bytes)
{
    mu_value *value = NULL;
    const size_t n = bytes != NULL && bytes->dtype == MU_U8 ? (size_t)bytes->shape.dims[0] : 0;
    mu_message *message = bytes != NULL ? mu__message_new(n) : NULL;
    if (message != NULL && n > 0)
        memcpy(message->data, mu__host_read(bytes), n);
    if (message != NULL)
        mu__message_value_of_file(message, &value);
    mu_release(message);
    return mu__give(value);
}

// ---- Writing ------------------------------------------------------------------------------------

// The name in the file, owned by the caller, and the tensor, of the pool.
static mu_status entry_of(const mu_value *row, char **name, mu_tensor **tensor)
{
    char *part = NULL, *own = NULL;
    const mu_value *value = mu_value_at(row, 2);
    mu_status status = mu__value_text(mu_value_at(row, 0), "a part's name", &part);
    if (status == MU_OK)
        status = mu__value_text(mu_value_at(row, 1), "a resource's name", &own);
    if (status == MU_OK) {
        const bool plain = value->kind == MU_VALUE_TENSOR;
        *name = mu__sprintf("%s%c%s", part, plain ? TENSOR : VALUE, own);
        *tensor = plain ? mu_value_tensor(value) : bytes_of(value, own);
    }
    mu__free(part);
    mu__free(own);
    return mu_error_code();
}

mu_status mu__rows_write(const char *path, const mu_value *rows, const mu_value *seen, int64_t sequence)
{
    const int n = mu_value_count(rows);
    char text[32];
    char **names = mu__calloc((size_t)n + 1, sizeof *names);
    mu_tensor **tensors = mu__calloc((size_t)n + 1, sizeof *tensors);
    mu_status status = names != NULL && tensors != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
    for (int i = 0; i < n && status == MU_OK; i++)
        status = entry_of(mu_value_at(rows, i), &names[i], &tensors[i]);
    if (status == MU_OK) {
        names[n] = mu__strdup(requests);
        tensors[n] = bytes_of(seen, "the requests seen");
        status = mu_error_code();
    }
    snprintf(text, sizeof text, "%lld", (long long)sequence);
    if (status == MU_OK)
        status = mu__tensors_save(path, n + 1, (const char *const *)names, tensors,
                                  (const char *const[]){sequence_key, text, NULL});
    for (int i = 0; names != NULL && i <= n; i++)
        mu__free(names[i]);
    mu__free(names);
    mu__free(tensors);
    return status;
}

// ---- Deleting -----------------------------------------------------------------------------------

void mu__rows_delete(const char *folder, const char *name)
{
    char *path = mu__sprintf("%s/%s", folder, name);
    if (path != NULL)
        unlink(path);
    mu__free(path);
}

void mu__rows_each(const char *folder, void (*fn)(const char *name, void *arg), void *arg)
{
    DIR *directory = opendir(folder);
    if (directory == NULL)
        return;
    for (const struct dirent *file = readdir(directory); file != NULL; file = readdir(directory))
        fn(file->d_name, arg);
    closedir(directory);
}

// ---- Reading ------------------------------------------------------------------------------------

static mu_value *row_of(const mu_tensor_file *file, int i)
{
    const char *name = file->entries.items[i].name, *at = strpbrk(name, "/:");
    mu_tensor *tensor = at != NULL ? mu__give(mu__tensor_file_read(file, i)) : NULL;
    char *part = tensor != NULL ? mu__sprintf("%.*s", (int)(at - name), name) : NULL;
    mu_value *value = part == NULL ? NULL : *at == TENSOR ? mu_of(tensor) : value_of(tensor);
    mu_value *row = value != NULL ? mu_list(mu__text_value(part), mu__text_value(at + 1), value, MU_END) : NULL;
    mu__free(part);
    return row;
}

static int64_t sequence_of(const mu_tensor_file *file)
{
    for (size_t i = 0; i + 1 < file->metadata.n; i += 2)
        if (strcmp(file->metadata.items[i], sequence_key) == 0)
            return strtoll(file->metadata.items[i + 1], NULL, 10);
    return -1;
}

static mu_status read_all(const mu_tensor_file *file, mu_value **rows, mu_value **seen)
{
    const int n = (int)file->entries.n;
    int kept = 0;
    mu_value **items = mu__calloc((size_t)n + 1, sizeof *items);
    for (int i = 0; items != NULL && i < n && !mu__pending(); i++) {
        if (strcmp(file->entries.items[i].name, requests) == 0)
            *seen = value_of(mu__give(mu__tensor_file_read(file, i)));
        else
            items[kept++] = row_of(file, i);
    }
    *rows = items != NULL && !mu__pending() ? mu_list_of(kept, items) : NULL;
    mu__free(items);
    return mu_error_code();
}

mu_status mu__rows_read(const char *path, mu_value **rows, mu_value **seen, int64_t *sequence)
{
    mu_tensor_file *file = mu__tensor_file_open(path);
    if (file == NULL)
        return mu_error_code();
    *sequence = sequence_of(file);
    const mu_status status =
        *sequence >= 0 ? read_all(file, rows, seen)
                       : mu__error(MU_DATA_LOSS, "%s is not a snapshot of a parameter server, or it is damaged", path);
    mu_release(file);
    return status;
}
