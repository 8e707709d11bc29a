// Snapshots of stores: cuts, and the files that keep them. See store.h.
#include "rpc/stores/store.h"

#include "base/temporary.h"

// The time of a file from which on it is worth a word: a disk that is slow to sync holds up later snapshots.
#define SLOW_S 5.0

static bool is_primary(const mu_store *store)
{
    pthread_mutex_lock(&store->stores->lock);
    const bool primary = store->role == MU_STORE_PRIMARY;
    pthread_mutex_unlock(&store->stores->lock);
    return primary;
}

// A cut that cannot be made, for want of memory, is one that this store lacks: the snapshot does not count, and the
// update that was to follow the cut does.
void mu__snapshot_before(mu_store *store, int64_t cut)
{
    mu_error_value error;
    if (cut <= store->cut || mu__pending())
        return;
    mu_pool *pool = mu_pool_open();
    mu_value *rows = is_primary(store) ? mu__store_capture(store) : NULL;
    pthread_mutex_lock(&store->stores->lock);
    mu_value *seen = rows != NULL && store->role == MU_STORE_PRIMARY ? mu__seen_value(&store->seen) : NULL;
    mu_release(store->captured);
    mu_release(store->captured_seen);
    store->captured = seen != NULL ? mu_retain(rows) : NULL;
    store->captured_seen = mu_retain(seen);
    store->captured_at = store->applied;
    store->cut = cut;
    store->stores->cut = MU_MAX(store->stores->cut, cut);
    const bool led = store->role == MU_STORE_PRIMARY;
    pthread_mutex_unlock(&store->stores->lock);
    mu_pool_close(pool);
    mu__error_move(&error);
    if (error.code != MU_OK && led)
        mu__log(MU_LOG_WARNING, "store %d: snapshot %lld cannot have it, updates go on: %s", store->number,
                (long long)cut, error.message);
}

static char *path_of(const mu_store *store, int64_t cut, const char *folder)
{
    return mu__sprintf("%s/cut-%lld-store-%d.safetensors", folder, (long long)cut, store->number);
}

// The order may come after the cut was made, because of a request that knew of it; and a later cut may have followed.
static bool take_captured(mu_store *store, int64_t cut, mu_value **rows, mu_value **seen, int64_t *at)
{
    pthread_mutex_lock(&store->changing);
    mu__snapshot_before(store, cut);
    pthread_mutex_lock(&store->stores->lock);
    const bool there = store->role == MU_STORE_PRIMARY && store->cut == cut && store->captured != NULL;
    if (there) {
        *rows = mu__give(store->captured);
        *seen = mu__give(store->captured_seen);
        *at = store->captured_at;
        store->captured = store->captured_seen = NULL;
    }
    pthread_mutex_unlock(&store->stores->lock);
    pthread_mutex_unlock(&store->changing);
    return there;
}

int64_t mu__snapshot_write(mu_store *store, int64_t cut, const char *folder)
{
    mu_value *rows = NULL, *seen = NULL;
    int64_t at = -1;
    if (!take_captured(store, cut, &rows, &seen, &at)) {
        if (!mu__pending())
            mu__error(MU_ABORTED,
                      "store %d does not have cut %lld: it has made a later one, had no memory for it, or is no longer "
                      "led here",
                      store->number, (long long)cut);
        return -1;
    }
    char *path = path_of(store, cut, folder);
    const int64_t began_ns = mu__now_ns();
    const mu_status status = path != NULL ? mu__rows_write(path, rows, seen, at) : MU_RESOURCE_EXHAUSTED;
    const double seconds = (double)(mu__now_ns() - began_ns) / 1e9;
    if (path != NULL && seconds > SLOW_S)
        mu__log(MU_LOG_WARNING,
                "store %d: writing and syncing %s took %.1f s; updates do not wait for it, the next snapshot does: "
                "give snapshots a faster disk",
                store->number, path, seconds);
    mu__free(path);
    if (status != MU_OK && MU_PLANTED(MU_DEFECT_LOST_SNAPSHOT))
        mu_error_take();
    return mu__pending() ? -1 : at;
}

// Which files a store no longer needs.
typedef struct obsolete {
    const char *folder;
    long long before;
    int store;
} obsolete;

// A server that is killed while it writes a cut leaves a temporary file. No later cut has its name, so that no save
// removes it.
static void sweep(const char *folder, const char *name, int goal)
{
    char *path = mu__sprintf("%s/%.*s", folder, goal, name);
    if (path != NULL)
        mu__temporary_sweep(path);
    mu__free(path);
}

static void delete_obsolete(const char *name, void *arg)
{
    const obsolete *o = arg;
    long long cut;
    int store, end = 0;
    if (sscanf(name, "cut-%lld-store-%d.safetensors%n", &cut, &store, &end) != 2 || end == 0 || store != o->store)
        return;
    if (name[end] == '\0' && cut < o->before)
        mu__rows_delete(o->folder, name);
    else if (mu__temporary_goal(name) == (size_t)end)
        sweep(o->folder, name, end);
}

void mu__snapshot_delete_before(const mu_store *store, int64_t cut, const char *folder)
{
    mu__rows_each(folder, delete_obsolete,
                  &(obsolete){.folder = folder, .before = (long long)cut, .store = store->number});
}

// What reads the contents of a file knows no file, and may take them for a caller's arguments.
static void name_file(const char *path)
{
    mu_error_value error;
    if (!mu__pending() || mu_error_code() == MU_ABORTED || path == NULL || strstr(mu_error_message(), path) != NULL)
        return;
    mu__error_move(&error);
    const bool contents = error.code == MU_INVALID_ARGUMENT || error.code == MU_OUT_OF_RANGE;
    mu__error(contents ? MU_DATA_LOSS : error.code, "%s cannot be read: %s", path, error.message);
}

int64_t mu__snapshot_read(mu_store *store, int64_t cut, const char *folder)
{
    mu_value *rows = NULL, *seen = NULL;
    int64_t at = -1;
    char *path = path_of(store, cut, folder);
    if (path != NULL && mu__store_ready(store) == MU_OK && mu__rows_read(path, &rows, &seen, &at) == MU_OK) {
        for (int i = 0; i < mu_value_count(rows) && !mu__pending(); i++)
            mu__store_load(store, mu_value_at(rows, i));
        pthread_mutex_lock(&store->stores->lock);
        if (!mu__pending())
            mu__seen_load(&store->seen, seen);
        pthread_mutex_unlock(&store->stores->lock);
    }
    name_file(path);
    mu__free(path);
    return mu__pending() ? -1 : at;
}
