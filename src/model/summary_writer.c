// Values for TensorBoard from loops of one's own: mu_summary_scalar and its like. The first replica of the chief
// records.
#include "distribute/distribute.h"
#include "model/event_values.h"

#include <muster/summary.h>

struct mu_summary_writer {
    mu_object object;
    char *log_dir;
    mu_strategy *strategy;   // in whose scope it was made; retained
    mu_event_file *file;     // NULL: nothing was recorded yet
};

static void writer_destroy(void *object)
{
    mu_summary_writer *writer = object;
    mu__event_file_close(writer->file);
    mu_release(writer->strategy);
    mu__free(writer->log_dir);
}

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
    writer->strategy = mu_retain(mu_get_strategy());
    writer->log_dir = mu__strdup(log_dir);
    return writer->log_dir ? mu__give(writer) : (mu_release(writer), NULL);
}

static bool records_here(const mu_summary_writer *writer)
{
    const struct mu_replica *replica = mu__context()->replica;
    return (!replica || replica->id <= 0) && mu_strategy_should_checkpoint(writer->strategy) &&
           mu_strategy_should_checkpoint(mu_get_strategy());
}

// Checks what all functions are given, and opens the file where values are recorded. NULL without an error: elsewhere.
static mu_event_file *open_for(mu_summary_writer *writer, const char *name, const char *function)
{
    char what[64];
    snprintf(what, sizeof what, "%s: the writer", function);
    if (mu__pending() || mu__need(writer, what) != MU_OK)
        return NULL;
    snprintf(what, sizeof what, "%s: the name", function);
    if (mu__need(name, what) != MU_OK)
        return NULL;
    if (mu__context()->trace) {
        mu__error(MU_FAILED_PRECONDITION, "%s: this function is traced, and does not run again when its graph does; "
                  "return the value from it, and record it after the run", function);
        return NULL;
    }
    if (!writer->file && records_here(writer))
        writer->file = mu__event_file_create(writer->log_dir);
    return records_here(writer) ? writer->file : NULL;
}

mu_status mu_summary_scalar(mu_summary_writer *writer, const char *name, double value, int64_t step)
{
    mu_event_file *file = open_for(writer, name, "mu_summary_scalar");
    return file ? mu__event_file_scalar(file, name, step, value) : mu_error_code();
}

mu_status mu_summary_text(mu_summary_writer *writer, const char *name, const char *text, int64_t step)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(text, "mu_summary_text: the text"));
    mu_event_file *file = open_for(writer, name, "mu_summary_text");
    return file ? mu__event_file_text(file, name, step, text) : mu_error_code();
}

enum { MOST_BUCKETS = 1 << 20 };

mu_status mu_summary_histogram_with(const mu_summary_histogram_args *given)
{
    mu_summary_histogram_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_summary_histogram"));
    MU_TRY(mu__need(args.data, "mu_summary_histogram: data"));
    args.buckets = args.buckets || MU_GIVEN(&args, buckets) ? args.buckets : 30;
    if (args.buckets < 1 || args.buckets > MOST_BUCKETS)
        return mu__error(MU_INVALID_ARGUMENT, "mu_summary_histogram: buckets is %d; it must be from 1 to %d",
                         args.buckets, MOST_BUCKETS);
    mu_event_file *file = open_for(args.writer, args.name, "mu_summary_histogram");
    return file ? mu__event_histogram(file, args.name, args.step, args.data, args.buckets) : mu_error_code();
}

mu_status mu_summary_image_with(const mu_summary_image_args *given)
{
    mu_summary_image_args args;
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__args_copy(&args, sizeof args, given, "mu_summary_image"));
    MU_TRY(mu__need(args.data, "mu_summary_image: data"));
    args.max_outputs = args.max_outputs || MU_GIVEN(&args, max_outputs) ? args.max_outputs : 3;
    if (args.max_outputs < 0)
        return mu__error(MU_INVALID_ARGUMENT, "mu_summary_image: max_outputs is %d; it must not be negative",
                         args.max_outputs);
    mu_event_file *file = open_for(args.writer, args.name, "mu_summary_image");
    return file ? mu__event_image(file, args.name, args.step, args.data, args.max_outputs) : mu_error_code();
}

mu_status mu_summary_flush(mu_summary_writer *writer)
{
    if (mu__pending())
        return mu_error_code();
    MU_TRY(mu__need(writer, "mu_summary_flush: the writer"));
    return writer->file ? mu__event_file_flush(writer->file) : MU_OK;
}
