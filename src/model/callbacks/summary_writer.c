// Values for TensorBoard from custom loops: mu_summary_scalar and the other mu_summary_ functions. The first replica of
// the chief records. A writer is a recorder: traced functions record in each run (ops/state/recorder.h).
#include "distribute/distribute.h"
#include "model/callbacks/event_values.h"
#include "ops/state/recorder.h"

#include <muster/ops.h>
#include <muster/summary.h>
#include <pthread.h>

struct mu_summary_writer {
    mu_recorder recorder; // first
    char *log_dir;
    mu_strategy *strategy; // in whose scope it was made; retained
    pthread_mutex_t lock;
    bool has_lock;
    // Under the lock:
    mu_event_file *file; // NULL: nothing was recorded yet
    struct {
        char **items;
        size_t n, capacity;
    } texts; // that traced functions record
};

static void writer_destroy(void *object)
{
    mu_summary_writer *writer = object;
    mu__event_file_close(writer->file);
    for (size_t i = 0; i < writer->texts.n; i++)
        mu__free(writer->texts.items[i]);
    mu__free(writer->texts.items);
    if (writer->has_lock)
        pthread_mutex_destroy(&writer->lock);
    mu_release(writer->strategy);
    mu__free(writer->log_dir);
    mu__recorder_free(&writer->recorder);
}

static mu_status record(mu_recorder *recorder, const mu_record_attrs *what, int64_t step, mu_tensor *data);

static mu_type writer_type = {.name = "summary writer", .destroy = writer_destroy};

mu_summary_writer *mu_summary_writer_new(const char *log_dir)
{
    if (mu__pending() || mu__need(log_dir, "mu_summary_writer_new: log_dir") != MU_OK)
        return NULL;
    if (!*log_dir) {
        mu__error(MU_INVALID_ARGUMENT, "mu_summary_writer_new: log_dir is empty; give a folder");
        return NULL;
    }
    mu_summary_writer *writer = mu__new(&writer_type, sizeof *writer);
    if (!writer)
        return NULL;
    writer->recorder.record = record;
    writer->strategy = mu_retain(mu_get_strategy());
    writer->log_dir = mu__strdup(log_dir);
    writer->has_lock = pthread_mutex_init(&writer->lock, NULL) == 0;
    const bool whole = writer->log_dir && writer->has_lock && mu__recorder_make(&writer->recorder, log_dir) == MU_OK;
    return whole ? mu__give(writer) : (mu_release(writer), NULL);
}

// ---- Recording ----------------------------------------------------------------------------------

// What is recorded of a tensor, and what the detail means.
typedef enum form {
    SCALAR,
    HISTOGRAM, // the number of buckets
    IMAGE,     // at most so many images
    TEXT,      // the index among the writer's texts; the tensor is not used
} form;

// The caller holds the lock.
static mu_status write_value(mu_summary_writer *writer, const mu_record_attrs *what, int64_t step, mu_tensor *data)
{
    if (!writer->file && !(writer->file = mu__event_file_create(writer->log_dir)))
        return mu_error_code();
    switch ((form)what->form) {
    case SCALAR:
        return mu__event_file_scalar(writer->file, what->name, step,
                                     mu__read_element(data->dtype, mu__host_read(data), 0));
    case HISTOGRAM: return mu__event_histogram(writer->file, what->name, step, data, (int)what->detail);
    case IMAGE: return mu__event_image(writer->file, what->name, step, data, (int)what->detail);
    default: return mu__event_file_text(writer->file, what->name, step, writer->texts.items[what->detail]);
    }
}

// The recorder's record: on the chief, whose first replica calls it.
static mu_status record(mu_recorder *recorder, const mu_record_attrs *what, int64_t step, mu_tensor *data)
{
    mu_summary_writer *writer = (mu_summary_writer *)recorder;
    if (!mu_strategy_should_checkpoint(writer->strategy))
        return MU_OK;
    mu_pool *pool = mu_pool_open();
    pthread_mutex_lock(&writer->lock);
    const mu_status status = write_value(writer, what, step, data);
    pthread_mutex_unlock(&writer->lock);
    mu_pool_close(pool);
    return status;
}

static bool records_here(const mu_summary_writer *writer)
{
    const struct mu_replica *replica = mu__context()->replica;
    return (!replica || replica->id <= 0) && mu_strategy_should_checkpoint(writer->strategy) &&
           mu_strategy_should_checkpoint(mu_get_strategy());
}

// Checks what all functions are given.
static mu_status check(const mu_summary_writer *writer, const char *name, const char *function)
{
    char what[64];
    snprintf(what, sizeof what, "%s: the writer", function);
    MU_TRY(mu__need(writer, what));
    snprintf(what, sizeof what, "%s: the name", function);
    MU_TRY(mu__need(name, what));
    return strlen(name) < MU_ATTR_MESSAGE_BYTES
               ? MU_OK
               : mu__error(MU_INVALID_ARGUMENT, "%s: the name has %zu bytes; it may have %d", function, strlen(name),
                           MU_ATTR_MESSAGE_BYTES - 1);
}

// The step as a number, outside of traces; a tensor of it is an integer scalar.
static mu_status read_step(mu_tensor *given, const char *function, int64_t *step)
{
    if (!given)
        return MU_OK;
    const void *elements = mu_tensor_elements(given) == 1 && given->dtype != MU_STRING ? mu__host_read(given) : NULL;
    if (elements)
        *step = (int64_t)mu__read_element(given->dtype, elements, 0);
    return elements || mu__pending()
               ? mu_error_code()
               : mu__error(MU_INVALID_ARGUMENT, "%s: the step has %lld elements of %s; give an integer scalar",
                           function, (long long)mu_tensor_elements(given), mu_dtype_name(given->dtype));
}

// Records now, or in each run of the function that is traced. at: the step, instead of `step`; NULL: none.
static mu_status add(mu_summary_writer *writer, const mu_record_attrs *what, int64_t step, mu_tensor *at,
                     mu_tensor *data, const char *function)
{
    if (mu__context()->trace) {
        mu_tensor *constant = at ? mu_cast(at, MU_I64) : mu_tensor_new(MU_I64, 0, NULL, &step);
        return constant && data ? mu__record(&writer->recorder, what, constant, data) : mu_error_code();
    }
    MU_TRY(read_step(at, function, &step));
    return records_here(writer) ? record(&writer->recorder, what, step, data) : MU_OK;
}

static mu_record_attrs attrs_of(const char *name, form made, int64_t detail)
{
    mu_record_attrs attrs;
    memset(&attrs, 0, sizeof attrs);
    snprintf(attrs.name, sizeof attrs.name, "%s", name);
    attrs.form = made;
    attrs.detail = detail;
    return attrs;
}

mu_status mu_summary_scalar(mu_summary_writer *writer, const char *name, double value, int64_t step)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(check(writer, name, "mu_summary_scalar"));
    mu_tensor *data = mu_constant(MU_F64, value);
    const mu_record_attrs what = attrs_of(name, SCALAR, 0);
    return data ? add(writer, &what, step, NULL, data, "mu_summary_scalar") : mu_error_code();
}

mu_status mu_summary_scalar_tensor(mu_summary_writer *writer, const char *name, mu_tensor *value, mu_tensor *step)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(check(writer, name, "mu_summary_scalar_tensor"));
    MU_TRY(mu__need(value, "mu_summary_scalar_tensor: the value"));
    MU_TRY(mu__need(step, "mu_summary_scalar_tensor: the step"));
    if (mu_tensor_rank(value) != 0 || mu_tensor_dtype(value) == MU_STRING)
        return mu__error(MU_INVALID_ARGUMENT,
                         "mu_summary_scalar_tensor: the value is %s of rank %d; it must be a number, such as the mean "
                         "of the tensor (mu_reduce_mean)",
                         mu_dtype_name(mu_tensor_dtype(value)), mu_tensor_rank(value));
    const mu_record_attrs what = attrs_of(name, SCALAR, 0);
    return add(writer, &what, 0, step, value, "mu_summary_scalar_tensor");
}

// The index of a text among the writer's.
static mu_status keep_text(mu_summary_writer *writer, const char *text, int64_t *index)
{
    char *copy = mu__strdup(text);
    if (!copy)
        return MU_RESOURCE_EXHAUSTED;
    pthread_mutex_lock(&writer->lock);
    *index = (int64_t)writer->texts.n;
    const mu_status status = MU_PUSH(&writer->texts, copy);
    pthread_mutex_unlock(&writer->lock);
    if (status != MU_OK)
        mu__free(copy);
    return status;
}

// The texts of a traced function are kept, for its runs.
mu_status mu_summary_text(mu_summary_writer *writer, const char *name, const char *text, int64_t step)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(check(writer, name, "mu_summary_text"));
    MU_TRY(mu__need(text, "mu_summary_text: the text"));
    int64_t index = 0;
    if (mu__context()->trace) {
        MU_TRY(keep_text(writer, text, &index));
        const mu_record_attrs what = attrs_of(name, TEXT, index);
        return add(writer, &what, step, NULL, mu_constant(MU_F64, 0), "mu_summary_text");
    }
    if (!records_here(writer))
        return MU_OK;
    pthread_mutex_lock(&writer->lock);
    if (!writer->file)
        writer->file = mu__event_file_create(writer->log_dir);
    const mu_status status = writer->file ? mu__event_file_text(writer->file, name, step, text) : mu_error_code();
    pthread_mutex_unlock(&writer->lock);
    return status;
}

enum { MOST_BUCKETS = 1 << 20 };

mu_status mu_summary_histogram_with(const mu_summary_histogram_args *given)
{
    mu_summary_histogram_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_summary_histogram"));
    MU_TRY(check(args.writer, args.name, "mu_summary_histogram"));
    MU_TRY(mu__need(args.data, "mu_summary_histogram: data"));
    args.buckets = args.buckets || MU_GIVEN(&args, buckets) ? args.buckets : 30;
    if (args.buckets < 1 || args.buckets > MOST_BUCKETS)
        return mu__error(MU_INVALID_ARGUMENT, "mu_summary_histogram: buckets is %d; it must be from 1 to %d",
                         args.buckets, MOST_BUCKETS);
    const mu_record_attrs what = attrs_of(args.name, HISTOGRAM, args.buckets);
    return add(args.writer, &what, args.step, args.step_tensor, args.data, "mu_summary_histogram");
}

mu_status mu_summary_image_with(const mu_summary_image_args *given)
{
    mu_summary_image_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_summary_image"));
    MU_TRY(check(args.writer, args.name, "mu_summary_image"));
    MU_TRY(mu__need(args.data, "mu_summary_image: data"));
    args.max_outputs = args.max_outputs || MU_GIVEN(&args, max_outputs) ? args.max_outputs : 3;
    if (args.max_outputs < 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_summary_image: max_outputs is %d; it must not be negative",
                         args.max_outputs);
    const mu_record_attrs what = attrs_of(args.name, IMAGE, args.max_outputs);
    return add(args.writer, &what, args.step, args.step_tensor, args.data, "mu_summary_image");
}

mu_status mu_summary_flush(mu_summary_writer *writer)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(writer, "mu_summary_flush: the writer"));
    pthread_mutex_lock(&writer->lock);
    const mu_status status = writer->file ? mu__event_file_flush(writer->file) : MU_OK;
    pthread_mutex_unlock(&writer->lock);
    return status;
}
