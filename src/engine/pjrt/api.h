// The part of the PJRT C interface that Muster uses, declared by hand for 64-bit machines.
//
// A plugin exports one table of functions; each takes one struct that starts with its own size, and returns an error
// or NULL. A function's index in the table never changes; structs only grow at their end. tests/pjrt compares sizes
// and offsets with the header in a plugin's package.
#ifndef MU_SRC_ENGINE_PJRT_API_H
#define MU_SRC_ENGINE_PJRT_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct pj_error pj_error;
typedef struct pj_event pj_event;
typedef struct pj_description pj_description;
typedef struct pj_client pj_client;
typedef struct pj_device pj_device;
typedef struct pj_buffer pj_buffer;
typedef struct pj_executable pj_executable;
typedef struct pj_loaded pj_loaded;

// Indices in the table.
typedef enum pj_function {
    PJ_ERROR_DESTROY = 0,
    PJ_ERROR_MESSAGE = 1,
    PJ_ERROR_GET_CODE = 2,
    PJ_PLUGIN_INITIALIZE = 3,
    PJ_EVENT_DESTROY = 5,
    PJ_EVENT_IS_READY = 6,
    PJ_EVENT_AWAIT = 8,
    PJ_EVENT_ON_READY = 9,
    PJ_CLIENT_CREATE = 10,
    PJ_CLIENT_DESTROY = 11,
    PJ_CLIENT_PLATFORM_NAME = 12,
    PJ_CLIENT_PROCESS_INDEX = 13,
    PJ_CLIENT_PLATFORM_VERSION = 14,
    PJ_CLIENT_DEVICES = 15,
    PJ_CLIENT_ADDRESSABLE_DEVICES = 16,
    PJ_CLIENT_COMPILE = 20,
    PJ_CLIENT_BUFFER_FROM_HOST_BUFFER = 22,
    PJ_DEVICE_DESCRIPTION_ID = 23,
    PJ_DEVICE_DESCRIPTION_ATTRIBUTES = 25,
    PJ_DEVICE_GET_DESCRIPTION = 29,
    PJ_DEVICE_MEMORY_STATS = 34,
    PJ_EXECUTABLE_DESTROY = 40,
    PJ_EXECUTABLE_NUM_OUTPUTS = 44,
    PJ_LOADED_DESTROY = 50,
    PJ_LOADED_GET_EXECUTABLE = 51,
    PJ_LOADED_ADDRESSABLE_DEVICES = 52,
    PJ_LOADED_EXECUTE = 55,
    PJ_BUFFER_DESTROY = 58,
    PJ_BUFFER_COPY_TO_DEVICE = 69,
    PJ_BUFFER_TO_HOST_BUFFER = 70,
    PJ_BUFFER_IS_ON_CPU = 71,
    PJ_BUFFER_READY_EVENT = 72,
    PJ_BUFFER_UNSAFE_POINTER = 73,
    PJ_EXECUTABLE_MEMORY_STATS = 96
} pj_function;

typedef pj_error *pj_call(void *args);

typedef struct pj_version {
    size_t size;
    void *extension;
    int major, minor;
} pj_version;

typedef struct pj_api {
    size_t size; // of the table in the plugin; entries beyond it are absent
    void *extension;
    pj_version version;
    pj_call *functions[];
} pj_api;

typedef const pj_api *pj_get_api(void);

#define PJ_HEAD  \
    size_t size; \
    void *extension

typedef struct pj_error_args {
    PJ_HEAD;
    pj_error *error;
} pj_error_args;
typedef struct pj_error_message_args {
    PJ_HEAD;
    const pj_error *error;
    const char *message;
    size_t bytes;
} pj_error_message_args;
typedef struct pj_error_code_args {
    PJ_HEAD;
    const pj_error *error;
    int code;
} pj_error_code_args;
typedef struct pj_plugin_args {
    PJ_HEAD;
} pj_plugin_args;
typedef struct pj_event_args {
    PJ_HEAD;
    pj_event *event;
} pj_event_args;
typedef struct pj_event_ready_args {
    PJ_HEAD;
    pj_event *event;
    bool ready;
} pj_event_ready_args;

typedef struct pj_event_on_ready_args {
    PJ_HEAD;
    pj_event *event;
    void (*callback)(pj_error *error, void *arg); // owns the error
    void *arg;
} pj_event_on_ready_args;

typedef enum pj_value_type { PJ_VALUE_TEXT, PJ_VALUE_INT, PJ_VALUE_INTS, PJ_VALUE_FLOAT, PJ_VALUE_BOOL } pj_value_type;
typedef struct pj_named_value {
    PJ_HEAD;
    const char *name;
    size_t name_bytes;
    int type; // pj_value_type
    union {
        const char *text;
        int64_t integer;
        const int64_t *integers;
        float real;
        bool flag;
    } value;
    size_t value_size; // length of a text or list, otherwise 1
} pj_named_value;

// Calls of the plugin for the key-value store of several processes. The plugin copies a value, then has it deleted.
// *error makes an error of the plugin's.
typedef pj_error *pj_callback_error(int code, const char *message, size_t bytes);
typedef struct pj_key_get_args {
    PJ_HEAD;
    const char *key;
    size_t key_bytes;
    int timeout_ms;
    pj_callback_error **error;
    void *arg;
    char *value;                       // out
    size_t bytes;                      // out
    void (*delete_value)(char *value); // out
} pj_key_get_args;
typedef struct pj_key_try_get_args {
    PJ_HEAD;
    const char *key;
    size_t key_bytes;
    pj_callback_error **error;
    void *arg;
    char *value;                       // out
    size_t bytes;                      // out
    void (*delete_value)(char *value); // out
} pj_key_try_get_args;
typedef struct pj_key_put_args {
    PJ_HEAD;
    const char *key;
    size_t key_bytes;
    const char *value;
    size_t bytes;
    pj_callback_error **error;
    void *arg;
} pj_key_put_args;

typedef struct pj_client_create_args {
    PJ_HEAD;
    const pj_named_value *options;
    size_t n_options;
    pj_error *(*get)(pj_key_get_args *args);
    void *get_arg;
    pj_error *(*put)(pj_key_put_args *args);
    void *put_arg;
    pj_client *client; // out
    pj_error *(*try_get)(pj_key_try_get_args *args);
    void *try_get_arg;
} pj_client_create_args;

typedef struct pj_client_args {
    PJ_HEAD;
    pj_client *client;
} pj_client_args;
typedef struct pj_client_process_args {
    PJ_HEAD;
    pj_client *client;
    int index;
} pj_client_process_args;
typedef struct pj_client_text_args {
    PJ_HEAD;
    pj_client *client;
    const char *text;
    size_t bytes;
} pj_client_text_args;
// A number of a device's memory that a plugin may leave out.
typedef struct pj_stat {
    int64_t value;
    bool is_set;
} pj_stat;
typedef struct pj_memory_stats_args {
    PJ_HEAD;
    pj_device *device;
    int64_t bytes_in_use;
    pj_stat peak_bytes_in_use, num_allocs, largest_alloc_size, bytes_limit, bytes_reserved, peak_bytes_reserved,
        bytes_reservable_limit, largest_free_block_bytes, pool_bytes, peak_pool_bytes;
} pj_memory_stats_args;
typedef struct pj_client_devices_args {
    PJ_HEAD;
    pj_client *client;
    pj_device *const *devices;
    size_t n;
} pj_client_devices_args;

typedef struct pj_device_description_args {
    PJ_HEAD;
    pj_device *device;
    pj_description *description; // out
} pj_device_description_args;
typedef struct pj_description_id_args {
    PJ_HEAD;
    pj_description *description;
    int id;
} pj_description_id_args;
typedef struct pj_description_attributes_args {
    PJ_HEAD;
    pj_description *description;
    size_t n;                         // out
    const pj_named_value *attributes; // out
} pj_description_attributes_args;

typedef struct pj_program {
    PJ_HEAD;
    char *code;
    size_t code_bytes;
    const char *format;
    size_t format_bytes;
} pj_program;

typedef struct pj_compile_args {
    PJ_HEAD;
    pj_client *client;
    const pj_program *program;
    const char *options; // serialised CompileOptionsProto
    size_t options_bytes;
    pj_loaded *loaded; // out
} pj_compile_args;

typedef struct pj_loaded_args {
    PJ_HEAD;
    pj_loaded *loaded;
} pj_loaded_args;
typedef struct pj_loaded_executable_args {
    PJ_HEAD;
    pj_loaded *loaded;
    pj_executable *executable;
} pj_loaded_executable_args;
typedef struct pj_loaded_devices_args {
    PJ_HEAD;
    pj_loaded *loaded;
    pj_device *const *devices; // out: of this process, in the order of arguments and results
    size_t n;
} pj_loaded_devices_args;
typedef struct pj_executable_args {
    PJ_HEAD;
    pj_executable *executable;
} pj_executable_args;
typedef struct pj_outputs_args {
    PJ_HEAD;
    pj_executable *executable;
    size_t n;
} pj_outputs_args;

// What a compiled program needs on each device, in bytes.
typedef struct pj_program_memory_args {
    PJ_HEAD;
    pj_executable *executable;
    int64_t code, arguments, outputs, aliased, temporaries;
    int64_t host_code, host_arguments, host_outputs, host_aliased, host_temporaries;
    int64_t peak;
} pj_program_memory_args;

typedef struct pj_execute_options {
    PJ_HEAD;
    void **send, **receive;
    size_t n_send, n_receive;
    int launch_id;
    const int64_t *not_donated;
    size_t n_not_donated;
    void *context;
    const char *call_location;
    size_t n_tasks;
    int *task_ids;
    int64_t *incarnation_ids;
} pj_execute_options;

typedef struct pj_execute_args {
    PJ_HEAD;
    pj_loaded *loaded;
    pj_execute_options *options;
    pj_buffer *const *const *arguments; // [devices][arguments]
    size_t n_devices, n_arguments;
    pj_buffer **const *outputs; // [devices][outputs], filled
    pj_event **complete;        // [devices], filled
    pj_device *device;
} pj_execute_args;

// How long a plugin may access the host's memory.
typedef enum pj_host_semantics {
    PJ_HOST_DURING_CALL,
    PJ_HOST_UNTIL_DONE,
    PJ_HOST_IMMUTABLE_ALIAS,
    PJ_HOST_MUTABLE_ALIAS
} pj_host_semantics;

typedef struct pj_from_host_args {
    PJ_HEAD;
    pj_client *client;
    const void *data;
    int type; // pj_buffer_type
    const int64_t *dims;
    size_t n_dims;
    const int64_t *strides;
    size_t n_strides;
    int semantics; // pj_host_semantics
    pj_device *device;
    void *memory, *layout;
    pj_event *done;    // out
    pj_buffer *buffer; // out
} pj_from_host_args;

typedef struct pj_tiled_layout {
    PJ_HEAD;
    const int64_t *minor_to_major;
    size_t n_minor_to_major;
    const int64_t *tile_dims;
    const size_t *tile_dim_sizes;
    size_t n_tiles;
} pj_tiled_layout;

typedef struct pj_layout {
    PJ_HEAD;
    pj_tiled_layout tiled; // the larger member of a union
    int type;              // 0: tiled
} pj_layout;

typedef struct pj_to_host_args {
    PJ_HEAD;
    pj_buffer *source;
    pj_layout *layout;
    void *data;
    size_t bytes;
    pj_event *event; // out
} pj_to_host_args;

typedef struct pj_buffer_args {
    PJ_HEAD;
    pj_buffer *buffer;
} pj_buffer_args;
typedef struct pj_copy_to_device_args {
    PJ_HEAD;
    pj_buffer *buffer;
    pj_device *device;
    pj_buffer *copy; // out
} pj_copy_to_device_args;
typedef struct pj_buffer_on_cpu_args {
    PJ_HEAD;
    pj_buffer *buffer;
    bool on_cpu;
} pj_buffer_on_cpu_args;
typedef struct pj_buffer_event_args {
    PJ_HEAD;
    pj_buffer *buffer;
    pj_event *event;
} pj_buffer_event_args;
typedef struct pj_buffer_address_args {
    PJ_HEAD;
    pj_buffer *buffer;
    uintptr_t address;
} pj_buffer_address_args;

typedef enum pj_buffer_type {
    PJ_PRED = 1,
    PJ_S8 = 2,
    PJ_S16 = 3,
    PJ_S32 = 4,
    PJ_S64 = 5,
    PJ_U8 = 6,
    PJ_F16 = 10,
    PJ_F32 = 11,
    PJ_F64 = 12,
    PJ_BF16 = 13
} pj_buffer_type;

#endif
