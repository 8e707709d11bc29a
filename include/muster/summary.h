// Values for TensorBoard from loops of one's own, as tf.summary writes them. For mu_fit there is mu_tensorboard
// (muster/callback.h). Any thread may use a writer, several at the same time.
//
// Errors: INVALID_ARGUMENT for data of another type or shape; PERMISSION_DENIED, NOT_FOUND and RESOURCE_EXHAUSTED with
// the file's name; UNIMPLEMENTED in a function that XLA devices run.
#ifndef MUSTER_SUMMARY_H
#define MUSTER_SUMMARY_H

#include <muster/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

// mu_summary_writer_new makes a writer of event files in a folder, which is made with the first value. Make it in the
// strategy's scope: on several workers the chief writes, and of functions that run on replicas the first replica; the
// functions below do nothing elsewhere, and return MU_OK. In a traced function they record in each of its runs, as in
// tf.function: tensors their values then, numbers and texts those of the trace; the function keeps the writer. XLA
// devices refuse such a function with UNIMPLEMENTED.
typedef struct mu_summary_writer mu_summary_writer;
MU_API mu_summary_writer *mu_summary_writer_new(const char *log_dir);

// mu_summary_scalar and mu_summary_text record a number, or a text in Markdown, under a name at a step.
MU_API mu_status mu_summary_scalar(mu_summary_writer *writer, const char *name, double value, int64_t step);
MU_API mu_status mu_summary_text(mu_summary_writer *writer, const char *name, const char *text, int64_t step);
// mu_summary_scalar_tensor records the number in a scalar at the step in an integer scalar, as both are in each run
// of a traced function; mu_variable_read(mu_optimizer_iterations(optimizer)) is such a step.
MU_API mu_status mu_summary_scalar_tensor(mu_summary_writer *writer, const char *name, mu_tensor *value,
                                          mu_tensor *step);

typedef struct mu_summary_histogram_args {
    size_t size;
    const char *given;
    mu_summary_writer *writer;
    const char *name;
    mu_tensor *data; // numbers of any shape; those that are not finite are left out
    int64_t step;
    mu_keyword_only only_;
    int buckets;            // of equal widths from the least number to the greatest; default 30
    mu_tensor *step_tensor; // instead of step: an integer scalar
} mu_summary_histogram_args;
// mu_summary_histogram records how many numbers are in each bucket. If all numbers are the same, the last one has them.
#define mu_summary_histogram(...) \
    mu_summary_histogram_with(MU_ARGS(mu_summary_histogram_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_summary_histogram_with(const mu_summary_histogram_args *args);

typedef struct mu_summary_image_args {
    size_t size;
    const char *given;
    mu_summary_writer *writer;
    const char *name;
    mu_tensor *data; // [images, height, width, 1 to 4 channels]: uint8, or floats from 0 to 1
    int64_t step;
    mu_keyword_only only_;
    int max_outputs;        // so many of the images at most; default 3
    mu_tensor *step_tensor; // instead of step: an integer scalar
} mu_summary_image_args;
// mu_summary_image records images, as PNG.
#define mu_summary_image(...) mu_summary_image_with(MU_ARGS(mu_summary_image_args, #__VA_ARGS__, __VA_ARGS__))
MU_API mu_status mu_summary_image_with(const mu_summary_image_args *args);

// mu_summary_flush makes what was recorded visible to readers; the writer's end does so too.
MU_API mu_status mu_summary_flush(mu_summary_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
