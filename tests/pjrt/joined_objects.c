// Errors, events and buffers of joined_plugin.
#include "joined_plugin.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const pj_api *joined_inner;
pthread_mutex_t joined_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t joined_changed = PTHREAD_COND_INITIALIZER;

void *joined_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);
    if (!memory)
        abort();
    return memory;
}

// ---- Errors -------------------------------------------------------------------------------------

enum { MOST_ERRORS = 64, LONGEST = 1200 };

// The plugin's own errors are recognised by their address; the oldest one is reused. All others are the CPU plugin's.
struct pj_error {
    int code;
    char message[LONGEST];
};
static struct pj_error errors[MOST_ERRORS];
static atomic_uint n_errors;

static bool is_own(const pj_error *error) { return error >= errors && error < errors + MOST_ERRORS; }

pj_error *joined_error_of(int code, const char *message, size_t bytes)
{
    pj_error *error = &errors[atomic_fetch_add(&n_errors, 1) % MOST_ERRORS];
    error->code = code;
    snprintf(error->message, sizeof error->message, "%.*s", (int)bytes, message);
    return error;
}

pj_error *joined_error(int code, const char *format, ...)
{
    char message[LONGEST];
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    return joined_error_of(code, message, strlen(message));
}

static pj_error *error_destroy(void *args)
{
    return is_own(((pj_error_args *)args)->error) ? NULL : joined_call(PJ_ERROR_DESTROY, args);
}

static pj_error *error_message(void *args)
{
    pj_error_message_args *message = args;
    if (!is_own(message->error))
        return joined_call(PJ_ERROR_MESSAGE, args);
    message->message = message->error->message;
    message->bytes = strlen(message->message);
    return NULL;
}

static pj_error *error_code(void *args)
{
    pj_error_code_args *code = args;
    if (!is_own(code->error))
        return joined_call(PJ_ERROR_GET_CODE, args);
    code->code = code->error->code;
    return NULL;
}

// ---- Gates --------------------------------------------------------------------------------------

typedef struct waiter {
    struct waiter *next;
    void (*call)(pj_error *error, void *arg);
    void *arg;
} waiter;

struct joined_gate {
    int references;
    bool open;
    int code; // 0: no error
    char message[LONGEST];
    waiter *waiters;
};

joined_gate *joined_gate_new(void)
{
    joined_gate *gate = joined_alloc(sizeof *gate);
    gate->references = 1;
    return gate;
}

joined_gate *joined_gate_keep(joined_gate *gate)
{
    pthread_mutex_lock(&joined_lock);
    if (gate)
        gate->references++;
    pthread_mutex_unlock(&joined_lock);
    return gate;
}

void joined_gate_drop(joined_gate *gate)
{
    pthread_mutex_lock(&joined_lock);
    const bool last = gate && --gate->references == 0;
    pthread_mutex_unlock(&joined_lock);
    if (last)
        free(gate);
}

static pj_error *error_of(const joined_gate *gate)
{
    return gate->code ? joined_error_of(gate->code, gate->message, strlen(gate->message)) : NULL;
}

static void read_error(joined_gate *gate, pj_error *error)
{
    pj_error_message_args message = JOINED_ARGS(pj_error_message_args, .error = error);
    pj_error_code_args code = JOINED_ARGS(pj_error_code_args, .error = error);
    error_message(&message);
    error_code(&code);
    gate->code = code.code;
    snprintf(gate->message, sizeof gate->message, "%.*s", (int)message.bytes, message.message);
    error_destroy(&JOINED_ARGS(pj_error_args, .error = error));
}

void joined_gate_open(joined_gate *gate, pj_error *error)
{
    pthread_mutex_lock(&joined_lock);
    if (error)
        read_error(gate, error);
    gate->open = true;
    waiter *waiters = gate->waiters;
    gate->waiters = NULL;
    pthread_cond_broadcast(&joined_changed);
    pthread_mutex_unlock(&joined_lock);
    while (waiters) {
        waiter *next = waiters->next;
        waiters->call(error_of(gate), waiters->arg);
        free(waiters);
        waiters = next;
    }
}

pj_error *joined_gate_wait(joined_gate *gate)
{
    pthread_mutex_lock(&joined_lock);
    while (!gate->open)
        pthread_cond_wait(&joined_changed, &joined_lock);
    pthread_mutex_unlock(&joined_lock);
    return error_of(gate);
}

static bool is_open(joined_gate *gate)
{
    pthread_mutex_lock(&joined_lock);
    const bool open = gate->open;
    pthread_mutex_unlock(&joined_lock);
    return open;
}

// ---- Events -------------------------------------------------------------------------------------

struct pj_event {
    pj_event *inner;
    joined_gate *gate;
};

pj_event *joined_event(pj_event *inner, joined_gate *gate)
{
    if (!inner && !gate)
        return NULL;
    pj_event *event = joined_alloc(sizeof *event);
    event->inner = inner;
    event->gate = joined_gate_keep(gate);
    return event;
}

pj_error *joined_await_inner(pj_event *inner)
{
    if (!inner)
        return NULL;
    pj_event_args args = JOINED_ARGS(pj_event_args, .event = inner);
    pj_error *error = joined_call(PJ_EVENT_AWAIT, &args);
    joined_call(PJ_EVENT_DESTROY, &args);
    return error;
}

static pj_error *event_destroy(void *args)
{
    pj_event *event = ((pj_event_args *)args)->event;
    pj_error *error = NULL;
    if (event->inner)
        error = joined_call(PJ_EVENT_DESTROY, &JOINED_ARGS(pj_event_args, .event = event->inner));
    joined_gate_drop(event->gate);
    free(event);
    return error;
}

static pj_error *event_is_ready(void *args)
{
    pj_event_ready_args *ready = args;
    if (ready->event->gate) {
        ready->ready = is_open(ready->event->gate);
        return NULL;
    }
    pj_event_ready_args inner = JOINED_ARGS(pj_event_ready_args, .event = ready->event->inner);
    pj_error *error = joined_call(PJ_EVENT_IS_READY, &inner);
    ready->ready = inner.ready;
    return error;
}

static pj_error *event_await(void *args)
{
    const pj_event *event = ((pj_event_args *)args)->event;
    if (event->gate)
        return joined_gate_wait(event->gate);
    return joined_call(PJ_EVENT_AWAIT, &JOINED_ARGS(pj_event_args, .event = event->inner));
}

// Called only for events that are ready.
static pj_error *event_error(void *args)
{
    const pj_event *event = ((pj_event_args *)args)->event;
    if (event->gate)
        return joined_gate_wait(event->gate);
    return joined_call(EVENT_ERROR, &JOINED_ARGS(pj_event_args, .event = event->inner));
}

static pj_error *event_on_ready(void *args)
{
    const on_ready_args *asked = args;
    joined_gate *gate = asked->event->gate;
    if (!gate)
        return joined_call(EVENT_ON_READY, &JOINED_ARGS(on_ready_args, .event = asked->event->inner,
                                                        .call = asked->call, .arg = asked->arg));
    waiter *one = joined_alloc(sizeof *one);
    *one = (waiter){.call = asked->call, .arg = asked->arg};
    pthread_mutex_lock(&joined_lock);
    const bool open = gate->open;
    if (!open) {
        one->next = gate->waiters;
        gate->waiters = one;
    }
    pthread_mutex_unlock(&joined_lock);
    if (open) {
        free(one);
        asked->call(error_of(gate), asked->arg);
    }
    return NULL;
}

// ---- Buffers ------------------------------------------------------------------------------------

pj_buffer *joined_buffer(pj_buffer *inner, joined_gate *gate)
{
    pj_buffer *buffer = joined_alloc(sizeof *buffer);
    *buffer = (pj_buffer){.inner = inner, .gate = joined_gate_keep(gate), .references = 1};
    return buffer;
}

pj_buffer *joined_buffer_keep(pj_buffer *buffer)
{
    pthread_mutex_lock(&joined_lock);
    buffer->references++;
    pthread_mutex_unlock(&joined_lock);
    return buffer;
}

void joined_buffer_drop(pj_buffer *buffer)
{
    pthread_mutex_lock(&joined_lock);
    const bool last = --buffer->references == 0;
    pthread_mutex_unlock(&joined_lock);
    if (!last)
        return;
    if (buffer->inner)
        joined_call(PJ_BUFFER_DESTROY, &JOINED_ARGS(pj_buffer_args, .buffer = buffer->inner));
    joined_gate_drop(buffer->gate);
    free(buffer);
}

pj_error *joined_buffer_inner(pj_buffer *buffer, pj_buffer **inner)
{
    pj_error *error = buffer->gate ? joined_gate_wait(buffer->gate) : NULL;
    *inner = buffer->inner;
    return error;
}

static pj_error *buffer_destroy(void *args)
{
    joined_buffer_drop(((pj_buffer_args *)args)->buffer);
    return NULL;
}

static pj_error *buffer_to_host(void *args)
{
    pj_to_host_args *given = args, own = *given;
    pj_error *error = joined_buffer_inner(given->source, &own.source);
    if (!error)
        error = joined_call(PJ_BUFFER_TO_HOST_BUFFER, &own);
    if (error)
        return error;
    given->bytes = own.bytes;
    given->event = joined_event(own.event, NULL);
    return NULL;
}

static pj_error *buffer_copy(void *args)
{
    pj_copy_to_device_args *given = args, own = *given;
    pj_error *error = joined_buffer_inner(given->buffer, &own.buffer);
    if (!error)
        error = joined_call(PJ_BUFFER_COPY_TO_DEVICE, &own);
    if (!error)
        given->copy = joined_buffer(own.copy, NULL);
    return error;
}

static pj_error *buffer_on_cpu(void *args)
{
    pj_buffer_on_cpu_args *given = args, own = *given;
    pj_error *error = joined_buffer_inner(given->buffer, &own.buffer);
    if (!error)
        error = joined_call(PJ_BUFFER_IS_ON_CPU, &own);
    given->on_cpu = own.on_cpu;
    return error;
}

static pj_error *buffer_address(void *args)
{
    pj_buffer_address_args *given = args, own = *given;
    pj_error *error = joined_buffer_inner(given->buffer, &own.buffer);
    if (!error)
        error = joined_call(PJ_BUFFER_UNSAFE_POINTER, &own);
    given->address = own.address;
    return error;
}

static pj_error *buffer_ready_event(void *args)
{
    pj_buffer_event_args *given = args, own = *given;
    if (given->buffer->gate) {
        given->event = joined_event(NULL, given->buffer->gate);
        return NULL;
    }
    own.buffer = given->buffer->inner;
    pj_error *error = joined_call(PJ_BUFFER_READY_EVENT, &own);
    if (!error)
        given->event = joined_event(own.event, NULL);
    return error;
}

void joined_objects(pj_call **functions)
{
    functions[PJ_ERROR_DESTROY] = error_destroy;
    functions[PJ_ERROR_MESSAGE] = error_message;
    functions[PJ_ERROR_GET_CODE] = error_code;
    functions[PJ_EVENT_DESTROY] = event_destroy;
    functions[PJ_EVENT_IS_READY] = event_is_ready;
    functions[EVENT_ERROR] = event_error;
    functions[PJ_EVENT_AWAIT] = event_await;
    functions[EVENT_ON_READY] = event_on_ready;
    functions[PJ_BUFFER_DESTROY] = buffer_destroy;
    functions[PJ_BUFFER_TO_HOST_BUFFER] = buffer_to_host;
    functions[PJ_BUFFER_COPY_TO_DEVICE] = buffer_copy;
    functions[PJ_BUFFER_IS_ON_CPU] = buffer_on_cpu;
    functions[PJ_BUFFER_UNSAFE_POINTER] = buffer_address;
    functions[PJ_BUFFER_READY_EVENT] = buffer_ready_event;
}
