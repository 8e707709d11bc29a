// The key-value store of a job: rank 0 keeps the values, the others ask it over their sessions.
//
// A get for a key that is not there yet waits on rank 0, which answers when the key is put or the wait is over.
// Requests come from processes that have proven the key of the cluster, but their sizes are checked all the same.
// Meshes connect processes of one version only, so that these requests need no version of their own.
#include "comm/mesh/key_value.h"

#include "comm/mesh/mesh_private.h"

#include <math.h>

enum { HEAD = 8, SHOWN_KEY = 80, REPLY_GRACE_SECONDS = 10 };

typedef struct entry {
    uint64_t hash;
    size_t key_bytes, bytes;
    uint8_t *key, *value; // one allocation
} entry;

// A get of another process that waits for its key.
typedef struct waiting {
    int rank;
    uint64_t request;
    int64_t begin_ns, deadline_ns;
    size_t key_bytes;
    uint8_t *key;
} waiting;

// All under the mesh's lock.
struct mu_key_values {
    struct {
        entry *items;
        size_t n, capacity;
    } entries;
    struct {
        waiting *items;
        size_t n, capacity;
    } waits;
    size_t bytes;
    int *n_put; // [ranks] keys that each process has put
};

// ---- Requests as bytes --------------------------------------------------------------------------

bool mu__key_request_read(const char *method, const void *data, size_t bytes, mu_key_request *out)
{
    mu_cursor cursor = mu__cursor(data, bytes);
    *out = (mu_key_request){.put = strcmp(method, MU_KEY_VALUE_PUT) == 0};
    if (!out->put && strcmp(method, MU_KEY_VALUE_GET) != 0)
        return false;
    out->milliseconds = mu__cursor_u32_little(&cursor);
    out->key_bytes = mu__cursor_u32_little(&cursor);
    out->key = mu__cursor_bytes(&cursor, out->key_bytes);
    out->bytes = mu__cursor_left(&cursor);
    out->value = out->put ? mu__cursor_bytes(&cursor, out->bytes) : NULL;
    if (cursor.bad || out->key_bytes < 1 || out->key_bytes > MU_MAX_KEY)
        return false;
    return out->put ? out->bytes <= MU_MAX_KEY_VALUE
                    : out->bytes == 0 && out->milliseconds <= MU_MOST_KEY_SECONDS * 1000u;
}

static void put_u32(uint8_t *out, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(number >> 8 * i);
}

static uint8_t *written(const mu_key_request *request, size_t *bytes)
{
    *bytes = HEAD + request->key_bytes + request->bytes;
    uint8_t *out = mu__alloc(*bytes);
    if (out == NULL)
        return NULL;
    put_u32(out, request->milliseconds);
    put_u32(out + 4, (uint32_t)request->key_bytes);
    memcpy(out + HEAD, request->key, request->key_bytes);
    if (request->bytes > 0)
        memcpy(out + HEAD + request->key_bytes, request->value, request->bytes);
    return out;
}

// A key as text: control characters and what is not ASCII become dots.
static const char *key_text(const uint8_t *key, size_t bytes, char text[SHOWN_KEY + 4])
{
    const size_t n = MU_MIN(bytes, (size_t)SHOWN_KEY);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)(key[i] < 0x20 || key[i] > 0x7E ? '.' : key[i]);
    memcpy(text + n, bytes > n ? "..." : "", bytes > n ? 4 : 1);
    return text;
}

// ---- The values on rank 0: called with the lock held --------------------------------------------

static mu_key_values *values_of(mu_mesh *mesh)
{
    if (mesh->key_values != NULL)
        return mesh->key_values;
    mu_key_values *values = mu__calloc(1, sizeof *values);
    if (values != NULL && (values->n_put = mu__calloc((size_t)mesh->ranks, sizeof *values->n_put)) == NULL) {
        mu__free(values);
        values = NULL;
    }
    return mesh->key_values = values;
}

void mu__key_values_free(mu_key_values *values)
{
    for (size_t i = 0; values != NULL && i < values->entries.n; i++)
        mu__free(values->entries.items[i].key);
    for (size_t i = 0; values != NULL && i < values->waits.n; i++)
        mu__free(values->waits.items[i].key);
    if (values == NULL)
        return;
    mu__free(values->entries.items);
    mu__free(values->waits.items);
    mu__free(values->n_put);
    mu__free(values);
}

// FNV-1a.
static uint64_t hash_of(const uint8_t *key, size_t bytes)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ key[i]) * 1099511628211u;
    return hash;
}

static const entry *find(const mu_key_values *values, const uint8_t *key, size_t bytes)
{
    const uint64_t hash = hash_of(key, bytes);
    for (size_t i = 0; i < values->entries.n; i++) {
        const entry *e = &values->entries.items[i];
        if (e->hash == hash && e->key_bytes == bytes && memcmp(e->key, key, bytes) == 0)
            return e;
    }
    return NULL;
}

// "; /job:worker/task:1, which has been compiling for 12 s, has put no key": who may be the one that is waited for.
static void name_silent(const mu_mesh *mesh, char *text, size_t bytes)
{
    enum { SHOWN = 4 };
    int n = 0, silent = 0;
    for (int rank = 0; rank < mesh->ranks; rank++) {
        char doing[MU_MAX_WORD + 64] = "waits here";
        if (mesh->key_values->n_put[rank] > 0 || silent++ >= SHOWN)
            continue;
        if (rank != mesh->rank)
            mu__peer_doing(&mesh->peers[rank], doing, sizeof doing);
        n += snprintf(text + n, bytes - (size_t)n, "%s%s, which %s", n > 0 ? ", and " : "; no key came from ",
                      mesh->peers[rank].name, doing);
        n = MU_MIN(n, (int)bytes - 1);
    }
    if (silent > SHOWN)
        snprintf(text + n, bytes - (size_t)n, ", and %d more", silent - SHOWN);
    else if (silent == 0)
        snprintf(text + n, bytes - (size_t)n, "; every process has put others");
}

static void late_text(const mu_mesh *mesh, const uint8_t *key, size_t key_bytes, double seconds, char *text,
                      size_t bytes)
{
    char shown[SHOWN_KEY + 4], who[600] = "";
    name_silent(mesh, who, sizeof who);
    snprintf(text, bytes,
             "waited %.1f s for the key \"%s\", which no process has put%s. All processes must run the same program, "
             "and start the same devices",
             seconds, key_text(key, key_bytes, shown), who);
}

static void reply(mu_mesh *mesh, int rank, uint64_t request, mu_status code, const void *data, size_t bytes)
{
    const mu_reply answer = {.id = request, .code = code, .data = data, .bytes = bytes};
    if (mu__session_reply(mu__peer_session(mesh, rank), &answer) != MU_OK) {
        mu_error_value cause;
        mu__error_move(&cause);
        mu__session_lost(&mesh->node, rank, "no memory here for an answer to it");
    }
    mu__node_wake(&mesh->node);
}

// Takes wait i out of the list.
static waiting take_wait(mu_key_values *values, size_t i)
{
    const waiting taken = values->waits.items[i];
    values->waits.items[i] = values->waits.items[--values->waits.n];
    return taken;
}

static void answer_waits(mu_mesh *mesh, const entry *e)
{
    mu_key_values *values = mesh->key_values;
    for (size_t i = 0; i < values->waits.n;) {
        if (values->waits.items[i].key_bytes != e->key_bytes ||
            memcmp(values->waits.items[i].key, e->key, e->key_bytes) != 0) {
            i++;
            continue;
        }
        const waiting w = take_wait(values, i);
        reply(mesh, w.rank, w.request, MU_OK, e->value, e->bytes);
        mu__free(w.key);
    }
    pthread_cond_broadcast(&mesh->changed);
}

// Errors are not recorded: they become a reply, or the caller's.
static mu_status store(mu_mesh *mesh, int rank, const mu_key_request *put)
{
    mu_key_values *values = values_of(mesh);
    const size_t bytes = put->key_bytes + put->bytes;
    if (values == NULL)
        return MU_RESOURCE_EXHAUSTED;
    if (find(values, put->key, put->key_bytes) != NULL)
        return MU_ALREADY_EXISTS;
    if (values->entries.n >= MU_MOST_KEYS || bytes > (size_t)MU_MOST_KEY_BYTES - values->bytes)
        return MU_RESOURCE_EXHAUSTED;
    entry e = {.hash = hash_of(put->key, put->key_bytes),
               .key_bytes = put->key_bytes,
               .bytes = put->bytes,
               .key = mu__alloc(bytes)};
    if (e.key == NULL || MU_PUSH(&values->entries, e) != MU_OK) {
        mu_error_value cause;
        mu__error_move(&cause);
        mu__free(e.key);
        return MU_RESOURCE_EXHAUSTED;
    }
    entry *kept = &values->entries.items[values->entries.n - 1];
    kept->value = kept->key + put->key_bytes;
    memcpy(kept->key, put->key, put->key_bytes);
    if (put->bytes > 0)
        memcpy(kept->value, put->value, put->bytes);
    values->bytes += bytes;
    values->n_put[rank]++;
    answer_waits(mesh, kept);
    return MU_OK;
}

// What is wrong, for the one who asked.
static void write_refusal(mu_status code, const mu_key_request *request, char *text, size_t bytes)
{
    char shown[SHOWN_KEY + 4];
    const char *why = code == MU_ALREADY_EXISTS ? "has a value already; a key is put once"
                      : code == MU_NOT_FOUND    ? "has no value yet"
                                                : "does not fit into the store";
    snprintf(text, bytes, "the key \"%s\" %s", key_text(request->key, request->key_bytes, shown), why);
    if (code == MU_RESOURCE_EXHAUSTED)
        snprintf(text + strlen(text), bytes - strlen(text),
                 ": a job has at most %d keys with %d MiB in all, and a process waits for at most %d of them",
                 MU_MOST_KEYS, MU_MOST_KEY_BYTES >> 20, MU_MOST_KEY_WAITS);
}

// ---- Requests of other processes: on the mesh's thread, with the lock held ----------------------

static mu_status begin_wait(mu_mesh *mesh, int rank, uint64_t id, const mu_key_request *get)
{
    mu_key_values *values = mesh->key_values;
    int own = 0;
    for (size_t i = 0; i < values->waits.n; i++)
        own += values->waits.items[i].rank == rank;
    const int64_t now = mu__now_ns();
    waiting w = {.rank = rank,
                 .request = id,
                 .begin_ns = now,
                 .key_bytes = get->key_bytes,
                 .deadline_ns = now + (int64_t)get->milliseconds * 1000000};
    if (own >= MU_MOST_KEY_WAITS || (w.key = mu__alloc(get->key_bytes)) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    memcpy(w.key, get->key, get->key_bytes);
    const mu_status status = MU_PUSH(&values->waits, w);
    if (status != MU_OK)
        mu__free(w.key);
    return status;
}

static void asked_for(mu_mesh *mesh, int rank, uint64_t id, const mu_key_request *get)
{
    char text[400];
    mu_error_value cause;
    const mu_key_values *values = values_of(mesh);
    const entry *e = values != NULL ? find(values, get->key, get->key_bytes) : NULL;
    if (e != NULL) {
        reply(mesh, rank, id, MU_OK, e->value, e->bytes);
        return;
    }
    const mu_status status = values == NULL           ? MU_RESOURCE_EXHAUSTED
                             : get->milliseconds == 0 ? MU_NOT_FOUND
                                                      : begin_wait(mesh, rank, id, get);
    mu__error_move(&cause);
    if (status == MU_OK)
        return;
    write_refusal(status, get, text, sizeof text);
    reply(mesh, rank, id, status, text, strlen(text));
}

void mu__key_value_asked(mu_node *node, int rank, const mu_request *request)
{
    mu_mesh *mesh = mu__mesh_of(node);
    mu_key_request asked;
    char text[400] = "this process answers no such request; the key-value store is on rank 0";
    if (mesh->rank != 0 || !mu__key_request_read(request->method, request->data, request->bytes, &asked)) {
        if (mesh->rank == 0)
            snprintf(text, sizeof text,
                     "the request \"%.60s\" with %zu bytes cannot be: a key has 1 to %d bytes, a value at most %d",
                     request->method, request->bytes, MU_MAX_KEY, MU_MAX_KEY_VALUE);
        reply(mesh, rank, request->id, mesh->rank == 0 ? MU_INVALID_ARGUMENT : MU_UNIMPLEMENTED, text, strlen(text));
        return;
    }
    if (!asked.put) {
        asked_for(mesh, rank, request->id, &asked);
        return;
    }
    const mu_status status = store(mesh, rank, &asked);
    mu_error_value cause;
    mu__error_move(&cause);
    if (status != MU_OK)
        write_refusal(status, &asked, text, sizeof text);
    reply(mesh, rank, request->id, status, text, status == MU_OK ? 0 : strlen(text));
}

int64_t mu__key_value_step(mu_mesh *mesh, int64_t now)
{
    mu_key_values *values = mesh->key_values;
    int64_t next = MU_FOREVER;
    for (size_t i = 0; values != NULL && i < values->waits.n;) {
        if (now < values->waits.items[i].deadline_ns) {
            mu__sooner(&next, values->waits.items[i++].deadline_ns);
            continue;
        }
        char text[1000];
        const waiting w = take_wait(values, i);
        late_text(mesh, w.key, w.key_bytes, (double)(now - w.begin_ns) / 1e9, text, sizeof text);
        reply(mesh, w.rank, w.request, MU_DEADLINE_EXCEEDED, text, strlen(text));
        mu__free(w.key);
    }
    return next;
}

// ---- Asking rank 0 ------------------------------------------------------------------------------

// What a thread waits for. It may give up before the answer comes, which then frees it.
typedef struct question {
    mu_mesh *mesh;
    bool answered, abandoned;
    mu_status code;
    void *data;
    size_t bytes;
} question;

// With the lock held, or when the mesh ends and no thread waits.
static void heard(void *arg, const mu_reply *reply)
{
    question *q = arg;
    if (q->abandoned) {
        mu__free(q);
        return;
    }
    q->answered = true;
    q->code = reply->code;
    q->bytes = reply->bytes;
    q->data = mu__alloc(reply->bytes + 1);
    if (q->data == NULL) {
        mu_error_value cause;
        mu__error_move(&cause);
        q->code = MU_RESOURCE_EXHAUSTED;
        q->bytes = 0;
    } else {
        if (reply->bytes > 0)
            memcpy(q->data, reply->data, reply->bytes);
        ((char *)q->data)[reply->bytes] = '\0';
    }
    pthread_cond_broadcast(&q->mesh->changed);
}

// With the lock held. A process that died has made the job fail, and that error names the process.
static mu_status may_wait(mu_mesh *mesh, int rank)
{
    if (mesh->failure.code != MU_OK)
        return mu__error_raise(&mesh->failure);
    if (rank == mesh->rank || mesh->peers[rank].state != MU_PEER_LEFT)
        return MU_OK;
    return mu__error(MU_UNAVAILABLE,
                     "%s (%s), which keeps the job's key-value store, has left the job; let all processes leave "
                     "together, for example after a barrier",
                     mesh->peers[rank].name, mu__peer_where(&mesh->peers[rank]));
}

static mu_status send_question(mu_mesh *mesh, question *q, const mu_key_request *request, double seconds)
{
    size_t bytes;
    uint8_t *data = written(request, &bytes);
    if (data == NULL)
        return MU_RESOURCE_EXHAUSTED;
    const mu_request_options options = {.method = request->put ? MU_KEY_VALUE_PUT : MU_KEY_VALUE_GET,
                                        .data = data,
                                        .bytes = bytes,
                                        .seconds = seconds,
                                        .replied = heard,
                                        .arg = q};
    const mu_status status = mu__session_request(mu__peer_session(mesh, 0), &options);
    mu__free(data);
    mu__node_wake(&mesh->node);
    return status;
}

// Gives the answer's data to the caller, or raises its error.
static mu_status take_answer(question *q, const mu_key_request *request, void **value, size_t *bytes)
{
    char shown[SHOWN_KEY + 4];
    if (q->code == MU_OK && value != NULL) {
        *value = q->data;
        *bytes = q->bytes;
        q->data = NULL;
    }
    return q->code == MU_OK ? MU_OK
                            : mu__error(q->code, "%s \"%s\" at %s: %.900s", request->put ? "putting" : "getting",
                                        key_text(request->key, request->key_bytes, shown), q->mesh->peers[0].name,
                                        q->data != NULL ? (const char *)q->data : "no memory for its answer");
}

// With the lock held.
static mu_status ask(mu_mesh *mesh, const mu_key_request *request, double seconds, void **value, size_t *bytes)
{
    question *q = mu__calloc(1, sizeof *q);
    if (q == NULL)
        return MU_RESOURCE_EXHAUSTED;
    q->mesh = mesh;
    mu_status status = may_wait(mesh, 0);
    const bool sent = status == MU_OK && (status = send_question(mesh, q, request, seconds)) == MU_OK;
    while (sent && status == MU_OK && !q->answered)
        if ((status = may_wait(mesh, 0)) == MU_OK)
            status = mu__mesh_pause(mesh);
    q->abandoned = sent && !q->answered;
    if (q->abandoned)
        return status;
    if (status == MU_OK && q->code == MU_UNAVAILABLE)
        status = may_wait(mesh, 0); // the session has ended: the job's failure says why
    if (status == MU_OK)
        status = take_answer(q, request, value, bytes);
    mu__free(q->data);
    mu__free(q);
    return status;
}

// ---- On rank 0 itself ---------------------------------------------------------------------------

static mu_status copy_value(const entry *e, void **value, size_t *bytes)
{
    void *copy = mu__alloc(e->bytes + 1);
    if (copy == NULL)
        return MU_RESOURCE_EXHAUSTED;
    if (e->bytes > 0)
        memcpy(copy, e->value, e->bytes);
    *value = copy;
    *bytes = e->bytes;
    return MU_OK;
}

static mu_status refuse_own(mu_status code, const mu_key_request *request)
{
    char text[400];
    write_refusal(code, request, text, sizeof text);
    return mu__error(code, "%s", text);
}

static mu_status get_own(mu_mesh *mesh, const mu_key_request *get, void **value, size_t *bytes)
{
    const int64_t begin = mu__now_ns(), deadline = begin + (int64_t)get->milliseconds * 1000000;
    const mu_key_values *values = values_of(mesh);
    if (values == NULL)
        return MU_RESOURCE_EXHAUSTED;
    for (;;) {
        const entry *e = find(values, get->key, get->key_bytes);
        if (e != NULL)
            return copy_value(e, value, bytes);
        if (get->milliseconds == 0)
            return refuse_own(MU_NOT_FOUND, get);
        MU_TRY(may_wait(mesh, mesh->rank));
        if (mu__now_ns() >= deadline) {
            char text[1000];
            late_text(mesh, get->key, get->key_bytes, (double)(mu__now_ns() - begin) / 1e9, text, sizeof text);
            return mu__error(MU_DEADLINE_EXCEEDED, "%s", text);
        }
        MU_TRY(mu__mesh_pause(mesh));
    }
}

// ---- Put and get --------------------------------------------------------------------------------

static mu_status check_sizes(const mu_key_request *request)
{
    char shown[SHOWN_KEY + 4];
    if (request->key_bytes < 1 || request->key_bytes > MU_MAX_KEY)
        return mu__error(MU_INVALID_ARGUMENT,
                         "a key of %zu bytes (\"%s\"); the key-value store takes keys of 1 to %d bytes",
                         request->key_bytes, key_text(request->key, request->key_bytes, shown), MU_MAX_KEY);
    if (request->bytes > MU_MAX_KEY_VALUE)
        return mu__error(MU_INVALID_ARGUMENT, "the value of the key \"%s\" has %zu bytes; at most %d fit",
                         key_text(request->key, request->key_bytes, shown), request->bytes, MU_MAX_KEY_VALUE);
    return MU_OK;
}

mu_status mu__key_value_put(mu_mesh *mesh, const void *key, size_t key_bytes, const void *value, size_t bytes)
{
    const mu_key_request put = {.put = true, .key = key, .key_bytes = key_bytes, .value = value, .bytes = bytes};
    MU_TRY(check_sizes(&put));
    pthread_mutex_lock(&mesh->lock);
    mu_status status;
    if (mesh->rank != 0)
        status = ask(mesh, &put, mesh->timeout, NULL, NULL);
    else if ((status = may_wait(mesh, 0)) == MU_OK && (status = store(mesh, 0, &put)) != MU_OK)
        status = refuse_own(status, &put);
    pthread_mutex_unlock(&mesh->lock);
    return status;
}

mu_status mu__key_value_get(mu_mesh *mesh, const void *key, size_t key_bytes, double seconds, void **value,
                            size_t *bytes)
{
    const double limited = seconds > 0 ? MU_MIN(seconds, (double)MU_MOST_KEY_SECONDS) : 0;
    const mu_key_request get = {.milliseconds = (uint32_t)ceil(limited * 1000), .key = key, .key_bytes = key_bytes};
    *value = NULL;
    *bytes = 0;
    MU_TRY(check_sizes(&get));
    pthread_mutex_lock(&mesh->lock);
    // Rank 0 reports the timeout and the processes that it waits for; this end only waits a little longer.
    const mu_status status = mesh->rank == 0 ? get_own(mesh, &get, value, bytes)
                                             : ask(mesh, &get, limited + REPLY_GRACE_SECONDS, value, bytes);
    pthread_mutex_unlock(&mesh->lock);
    return status;
}
