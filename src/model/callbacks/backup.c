// BackupAndRestore: saves fit's state in one file during training, and restores it when the program runs again.
//
// Besides a checkpoint's contents, the file holds the next epoch and step and the position in the data. It is saved
// between steps, when no step is in progress: at the end of an epoch, every save_freq steps, and when a signal ends
// fit. It is deleted after a successful end, with its folder if that is empty, so that the next run starts from the
// beginning.
#include "model/callbacks/callback_class.h"
#include "model/files/checkpoint.h"
#include "model/training/training.h"

#include "base/directory.h"
#include "base/temporary.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct backup {
    mu_items *objects;        // besides the model; retained. NULL: none
    int64_t save_freq;        // 0: at the end of every epoch
    bool keep;                // keep the file after a successful end
    mu_counted_steps counted; // since the last backup within an epoch
    char *folder;             // stored after the path
    char path[];
} backup;

static const char *const epoch_key = "muster.epoch";
static const char *const step_key = "muster.step";
static const char *const data_key = "muster.data";

// What is saved together.
static mu_checkpoint *checkpoint_of(const backup *state, mu_model *model)
{
    return mu_checkpoint_new(.model = model, .objects = state->objects);
}

static mu_status save(backup *state, mu_model *model)
{
    char epoch[24], step[24];
    const mu_fit_position *at = model->trainer->use->position;
    char *data = mu__fit_data_state(model);
    mu_checkpoint *checkpoint = data ? checkpoint_of(state, model) : NULL;
    snprintf(epoch, sizeof epoch, "%d", at->epoch);
    snprintf(step, sizeof step, "%lld", (long long)at->step);
    const char *const metadata[] = {epoch_key, epoch, step_key, step, data_key, data, NULL};
    mu_status status = checkpoint ? mu__checkpoint_write(checkpoint, state->path, metadata) : mu_error_code();
    mu__free(data);
    return status;
}

// The value of a key that must be a number from 0 to `most`.
static mu_status read_number(const mu_tensor_file *file, const char *key, int64_t most, int64_t *out)
{
    const char *text = mu_tensor_file_metadata(file, key);
    char *end = NULL;
    errno = 0;
    *out = text ? strtoll(text, &end, 10) : -1;
    if (text && end != text && !*end && errno == 0 && *out >= 0 && *out <= most)
        return MU_OK;
    return mu__error(
        MU_DATA_LOSS,
        "the backup '%s' has \"%.40s\" for %s; expected a number from 0 to %lld. Delete the file to start again",
        file->path, text ? text : "nothing", key, (long long)most);
}

static mu_status take_up(const backup *state, mu_model *model, mu_tensor_file *file)
{
    int64_t epoch, step;
    MU_TRY(read_number(file, epoch_key, INT32_MAX, &epoch));
    MU_TRY(read_number(file, step_key, INT64_MAX, &step));
    const char *data = mu_tensor_file_metadata(file, data_key);
    mu_checkpoint *checkpoint = checkpoint_of(state, model);
    MU_TRY(checkpoint ? mu__checkpoint_read(checkpoint, file) : mu_error_code());
    mu_fit_position *at = model->trainer->use->position;
    at->epoch = (int)epoch;
    at->step = step;
    mu__free(at->restored);
    at->restored = data ? mu__strdup(data) : NULL;
    mu__log(MU_LOG_INFO, "mu_backup_and_restore: resuming from '%s' with epoch %lld after %lld of its steps",
            file->path, (long long)epoch + 1, (long long)step);
    return data && !at->restored ? MU_RESOURCE_EXHAUSTED : MU_OK;
}

static mu_status restore(const mu_logs *logs, void *arg)
{
    backup *state = arg;
    state->counted = (mu_counted_steps){0};
    MU_TRY(mu__directory_make(state->folder));
    mu__temporary_sweep(state->path);
    if (access(state->path, F_OK) != 0)
        return checkpoint_of(state, logs->model) ? MU_OK : mu_error_code(); // what cannot be saved fails now
    mu_tensor_file *file = mu__tensor_file_open(state->path);
    mu_status status = file ? take_up(state, logs->model, file) : mu_error_code();
    mu_release(file);
    return status;
}

static mu_status save_epoch(const mu_logs *logs, void *arg)
{
    backup *state = arg;
    return state->save_freq == 0 ? save(state, logs->model) : MU_OK;
}

static mu_status begin_epoch(const mu_logs *logs, void *arg)
{
    ((backup *)arg)->counted.last = logs->step;
    return MU_OK;
}

static mu_status save_batch(const mu_logs *logs, void *arg)
{
    backup *state = arg;
    return mu__steps_are_due(&state->counted, logs, state->save_freq) ? save(state, logs->model) : MU_OK;
}

static mu_status save_interrupted(const mu_logs *logs, const char **saved_in, void *arg)
{
    backup *state = arg;
    const mu_model *model = logs->model;
    const mu_trainer *trainer = model->trainer;
    const bool begun = trainer->n_metrics > 0 && trainer->metrics[0]->states.n > 0; // else there is nothing to restore
    if (!begun)
        return MU_OK;
    MU_TRY(save(state, logs->model));
    *saved_in = state->folder;
    return MU_OK;
}

static mu_status finish(const mu_logs *logs, void *arg)
{
    const backup *state = arg;
    if (state->keep || !mu_strategy_should_checkpoint(logs->model->strategy))
        return MU_OK;
    if (unlink(state->path) != 0 && errno != ENOENT)
        mu__log(MU_LOG_WARNING, "the backup '%s' of a finished run cannot be deleted: %s", state->path,
                strerror(errno));
    if (rmdir(state->folder) != 0 && errno != ENOTEMPTY && errno != EEXIST && errno != ENOENT)
        mu__log(MU_LOG_DEBUG, "the folder '%s' of a finished run is kept: %s", state->folder, strerror(errno));
    return MU_OK;
}

static void forget(void *arg) { mu_release(((backup *)arg)->objects); }

mu_callback *mu_backup_and_restore_with(const mu_backup_and_restore_args *given)
{
    mu_backup_and_restore_args args;
    if (mu__pending() || mu__args_copy(&args, sizeof args, given, "mu_backup_and_restore") != MU_OK)
        return NULL;
    if (!args.backup_dir || !*args.backup_dir || args.save_freq < 0) {
        mu__error(MU_INVALID_ARGUMENT,
                  "mu_backup_and_restore: backup_dir '%s', save_freq %lld; expected a folder and 0 or more steps",
                  args.backup_dir ? args.backup_dir : "", (long long)args.save_freq);
        return NULL;
    }
    if (mu__directory_make(args.backup_dir) != MU_OK)
        return NULL;
    static const char *const file = "/backup.safetensors";
    const size_t bytes = strlen(args.backup_dir) + strlen(file) + 1;
    backup *state = mu__calloc(1, sizeof *state + 2 * bytes);
    if (!state)
        return NULL;
    state->save_freq = args.save_freq;
    state->keep = args.no_delete_checkpoint;
    state->folder = state->path + bytes;
    snprintf(state->path, bytes, "%s%s", args.backup_dir, file);
    snprintf(state->folder, bytes, "%s", args.backup_dir);
    mu_callback *callback = mu__callback_built_in((mu_callback_args){.on_train_begin = restore,
                                                                     .on_epoch_begin = begin_epoch,
                                                                     .on_epoch_end = save_epoch,
                                                                     .on_batch_end = args.save_freq ? save_batch : NULL,
                                                                     .on_train_end = finish},
                                                  state);
    if (!callback)
        return NULL;
    state->objects = mu_retain(args.objects);
    callback->on_interrupt = save_interrupted;
    callback->on_destroy = forget;
    return callback;
}
