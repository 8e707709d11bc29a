// Streams of bytes over the messages of a network module.
//
// Each send becomes one message. A receive goes directly into the caller's memory if the message fits, else into a
// buffer of the stream. On a network that only the thread that opened it may use (MPI below MPI_THREAD_MULTIPLE), other
// threads put their calls in a mailbox, and the opener executes them while it waits for those threads. Independent of
// groups.
#include "comm/transports/network.h"
#include "comm/sessions/net.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

// MPI has tags up to 32767 everywhere. With the last one no message is sent.
enum { LONGEST_PATH = 4096, MAX_TAG = 32766, UNUSED_TAG = 32767 };
static const size_t longest_message = (size_t)1 << 30;

struct mu_network {
    mu_object object;
    const mu_network_module *module;
    void *handle; // the module's handle
    int rank, next_tag;
    mu_network_threads threads;
    pthread_t opener;
    pthread_mutex_t lock; // MU_NETWORK_ONE: held during each call; MU_NETWORK_OPENER: protects the mailbox
    struct call *waiting; // the mailbox
};

typedef struct network_stream {
    mu_stream head; // must be first
    mu_network *network;
    int peer, tag;
    void *sending, *receiving; // the module's requests in flight; NULL: none
    size_t sent, received;     // their sizes in bytes
    char *buffer;              // received bytes that the caller has not read yet
    size_t buffered, taken;
    bool into_buffer; // `receiving` goes into `buffer`
} network_stream;

// A call of another thread that the opener executes.
typedef struct call {
    struct call *next;
    network_stream *stream;
    bool send;
    const void *out;
    void *in;
    size_t bytes, moved;
    mu_status status;
    atomic_bool done;
} call;

// ---- Modules ------------------------------------------------------------------------------------

// Writes the module's path: in the folder of the setting, else in the library's folder.
static mu_status module_path(const char *name, char path[LONGEST_PATH])
{
    const char *folder = mu__setting_text(MU_SETTING_MODULES);
    Dl_info own;
    const void *here = (const void *)&mu__stream_ops_network;
    if (folder != NULL) {
        snprintf(path, LONGEST_PATH, "%s/libmuster-%s.so", folder, name);
        return MU_OK;
    }
    if (dladdr(here, &own) == 0 || own.dli_fname == NULL)
        return mu__error(MU_FAILED_PRECONDITION,
                         "the folder of Muster's modules is not known; set MUSTER_MODULES to it");
    const char *slash = strrchr(own.dli_fname, '/');
    snprintf(path, LONGEST_PATH, "%.*smuster/libmuster-%s.so", slash ? (int)(slash - own.dli_fname) + 1 : 0,
             own.dli_fname, name);
    return MU_OK;
}

bool mu__network_is_installed(const char *name)
{
    char path[LONGEST_PATH];
    mu_error_value ignored;
    const bool known = module_path(name, path) == MU_OK;
    if (!known)
        mu__error_move(&ignored);
    return known && access(path, R_OK) == 0;
}

// Whether the comma-separated list has this word; always false for a list that begins with ^ (an exclusion list).
static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = list; list[0] != '^' && at != NULL; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return false;
}

// Libraries read these variables when they are loaded. UCX must not install signal handlers or intercept munmap, TCP
// must not use the rendezvous protocol for short messages, and dead peers must be detected; UCX uses shared memory only
// if it may detect errors there. Variables that the user set are kept. UCX warns about settings of transports that
// UCX_TLS excludes, so those are not set.
static void prepare_environment(const char *name)
{
    static const struct {
        const char *variable, *value;
        const char *of[5]; // words of UCX_TLS that enable the transport; empty: always enabled
    } wanted[] = {{"UCX_HANDLE_ERRORS", "none", {0}},
                  {"UCX_MEM_EVENTS", "n", {0}},
                  {"UCX_RNDV_THRESH", "256k", {0}},
                  {"UCX_KEEPALIVE_INTERVAL", "1s", {0}},
                  {"UCX_POSIX_ERROR_HANDLING", "y", {"posix", "shm", "sm", "mm", "all"}},
                  {"UCX_SYSV_ERROR_HANDLING", "y", {"sysv", "shm", "sm", "mm", "all"}}};
    const char *transports = mu__environment("UCX_TLS");
    for (size_t i = 0; strcmp(name, "ucx") == 0 && i < MU_COUNT(wanted); i++) {
        bool there = transports == NULL || wanted[i].of[0] == NULL;
        for (size_t k = 0; !there && k < MU_COUNT(wanted[i].of); k++)
            there = has_word(transports, wanted[i].of[k]);
        if (there)
            setenv(wanted[i].variable, wanted[i].value, 0);
    }
}

static const mu_network_module *open_module(const char *name)
{
    char path[LONGEST_PATH];
    if (module_path(name, path) != MU_OK)
        return NULL;
    prepare_environment(name);
    // Libraries that a module loads (MPI's own plugins) need its symbols, so they are global.
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    const mu_network_module *module = library != NULL ? dlsym(library, "muster_network") : NULL;
    if (library == NULL)
        mu__error(MU_FAILED_PRECONDITION,
                  "the %s module cannot be opened (%s); install it with the library it needs, or compile "
                  "share/muster/muster_mpi.c for your MPI and set MUSTER_MODULES to its folder",
                  name, dlerror());
    else if (module == NULL || module->version != MU_NETWORK_VERSION)
        mu__error(MU_FAILED_PRECONDITION, "'%s' is not a network module of version %d", path, MU_NETWORK_VERSION);
    else
        return module;
    return NULL;
}

// ---- Opening ------------------------------------------------------------------------------------

static void network_destroy(void *object)
{
    mu_network *network = object;
    if (network->handle != NULL)
        network->module->close(network->handle);
    pthread_mutex_destroy(&network->lock);
}

static mu_type network_type = {.name = "network", .destroy = network_destroy};

static bool is_opener(const mu_network *network) { return pthread_equal(network->opener, pthread_self()) != 0; }

// A call of the module, in which it also sends what it has kept. The answer does not matter: no message has this tag.
static void look_for_nothing(mu_network *network)
{
    size_t bytes;
    void *message;
    (void)network->module->probe(network->handle, network->rank, UNUSED_TAG, &bytes, &message);
}

// While this thread waits for another process outside of the network.
static void make_progress(void *object)
{
    mu_network *network = object;
    if (network->threads == MU_NETWORK_OPENER) {
        mu__network_serve(network);
    } else if (network->threads == MU_NETWORK_ONE) {
        pthread_mutex_lock(&network->lock);
        look_for_nothing(network);
        pthread_mutex_unlock(&network->lock);
    } else {
        look_for_nothing(network);
    }
}

// Callback for a module's open: exchanges one block per process.
static int exchange(void *arg, const void *mine, size_t bytes, void *all)
{
    mu_mesh *mesh = arg;
    mu_blocks blocks = {0};
    if (mu__mesh_exchange(mesh, "addresses of a network", mine, bytes, &blocks) != MU_OK)
        return 0;
    int same = 1;
    for (int i = 0; i < blocks.n; i++) {
        same &= blocks.bytes[i] == bytes;
        if (blocks.bytes[i] == bytes)
            memcpy((char *)all + (size_t)i * bytes, blocks.data[i], bytes);
    }
    mu__blocks_free(&blocks);
    return same;
}

// All processes agree before any of them calls a function in which the others would wait. `what`: what they need.
static mu_status agree(mu_mesh *mesh, const char *name, const char *what, bool has)
{
    const char mine = has;
    mu_error_value why;
    mu__error_move(&why);
    mu_blocks blocks = {0};
    MU_TRY(mu__mesh_exchange(mesh, what, &mine, sizeof mine, &blocks));
    int without = -1;
    for (int i = blocks.n; i-- > 0;)
        if (blocks.bytes[i] != 1 || *(const char *)blocks.data[i] != 1)
            without = i;
    mu__blocks_free(&blocks);
    if (!has)
        return mu__error_raise(&why);
    return without < 0 ? MU_OK
                       : mu__error(MU_FAILED_PRECONDITION, "%s cannot use the %s network (%s); its own log says why",
                                   mu__mesh_name(mesh, without), name, what);
}

static mu_status join_network(mu_network *network, mu_mesh *mesh, const void *communicator)
{
    char why[512] = "";
    mu_network_args args = {.size = sizeof args,
                            .rank = mu__mesh_rank(mesh),
                            .ranks = mu__mesh_ranks(mesh),
                            .communicator = communicator,
                            .exchange = exchange,
                            .arg = mesh,
                            .error = why,
                            .error_bytes = sizeof why};
    network->rank = args.rank;
    network->opener = pthread_self();
    network->handle = network->module->open(&args);
    network->threads = args.threads;
    if (network->handle == NULL && !mu__pending())
        mu__error(MU_FAILED_PRECONDITION, "the %s network cannot be joined: %s", network->module->name, why);
    return agree(mesh, network->module->name, "whether a network was joined", network->handle != NULL);
}

// Any communicator of the program has the mesh's processes in the mesh's order, so its network serves for all.
static mu_network *joined_before(mu_mesh *mesh, const char *name)
{
    mu_network *network = NULL;
    for (size_t i = 0; (network = mu__mesh_kept(mesh, i)) != NULL; i++)
        if (mu__is(network, &network_type) && strcmp(network->module->name, name) == 0)
            return mu_retain(network);
    return NULL;
}

mu_network *mu__network_open(mu_mesh *mesh, const char *name, const void *communicator)
{
    if (strcmp(name, "ucx") == 0 && !mu__setting_bool(MU_SETTING_TRUSTED_NETWORK)) {
        mu__error(MU_PERMISSION_DENIED,
                  "UCX reads what strangers send before they have shown the cluster's key; set "
                  "MUSTER_TRUSTED_NETWORK=1 where none can reach these hosts, or leave the communication AUTO");
        return NULL;
    }
    mu_network *network = joined_before(mesh, name);
    if (network != NULL)
        return network;
    const mu_network_module *module = open_module(name);
    if (agree(mesh, name, "whether a network module is there", module != NULL) != MU_OK ||
        (network = mu__new(&network_type, sizeof *network)) == NULL)
        return NULL;
    pthread_mutex_init(&network->lock, NULL);
    network->module = module;
    if (join_network(network, mesh, communicator) == MU_OK && mu__mesh_keep(mesh, network, make_progress) == MU_OK)
        return network;
    mu_release(network);
    return NULL;
}

int mu__network_next_tag(mu_network *network)
{
    const int tag = network->next_tag;
    network->next_tag = tag == MAX_TAG ? 0 : tag + 1;
    return tag;
}

// On failure the fields are left empty, so that all processes see it.
static void make_up(mu_mpi_bootstrap *out, mu_kept_port *kept)
{
    unsigned char secret[32];
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !mu__system->random(secret, sizeof secret))
        return;
    if (mu__ports_keep(kept, 1, false) != MU_OK) {
        mu_error_take(); // all processes report that there is none
        kept->fd = -1;   // already given back
        return;
    }
    snprintf(out->address, sizeof out->address, "%s:%d", host, kept->port);
    for (size_t i = 0; i < sizeof secret; i++)
        snprintf(out->key + 2 * i, 3, "%02x", secret[i]);
}

mu_status mu__network_bootstrap(const void *communicator, bool first, mu_mpi_bootstrap *out, mu_kept_port *kept)
{
    char why[512] = "";
    memset(out, 0, sizeof *out);
    const mu_network_module *module = open_module("mpi");
    kept->fd = -1;
    if (module == NULL)
        return mu_error_code();
    if (first)
        make_up(out, kept);
    if (!module->broadcast(communicator, out, sizeof *out, why, sizeof why))
        return mu__error(MU_FAILED_PRECONDITION, "MPI cannot send the first process's address to the others: %s", why);
    if (memchr(out->address, 0, sizeof out->address) == NULL || memchr(out->key, 0, sizeof out->key) == NULL ||
        !out->address[0])
        return mu__error(MU_UNAVAILABLE, "the first process has no free port, no host name or no random numbers; give "
                                         "it an address with MASTER_ADDR and MASTER_PORT");
    return MU_OK;
}

// ---- Moving bytes -------------------------------------------------------------------------------

static mu_status move_out(network_stream *s, const void *data, size_t bytes, size_t *moved)
{
    const mu_network_module *module = s->network->module;
    void *handle = s->network->handle;
    if (s->sending == NULL) {
        s->sent = MU_MIN(bytes, longest_message);
        s->sending = module->send(handle, s->peer, s->tag, data, s->sent);
    }
    const int done = s->sending != NULL ? module->test(handle, s->sending) : -1;
    if (done != 0)
        s->sending = NULL;
    *moved = done > 0 ? s->sent : 0;
    return done < 0 ? MU_UNAVAILABLE : MU_OK;
}

// Starts to receive the next message, if there is one.
static mu_status begin_in(network_stream *s, void *data, size_t bytes)
{
    const mu_network_module *module = s->network->module;
    void *message = NULL;
    const int there = module->probe(s->network->handle, s->peer, s->tag, &s->received, &message);
    if (there <= 0)
        return there < 0 ? MU_UNAVAILABLE : MU_OK;
    s->into_buffer = s->received > bytes;
    if (s->received > longest_message)
        return MU_DATA_LOSS;
    if (s->into_buffer) {
        mu__free(s->buffer);
        s->buffer = mu__alloc(s->received);
        if (s->buffer == NULL)
            return MU_RESOURCE_EXHAUSTED;
    }
    s->receiving = module->receive(s->network->handle, message, s->into_buffer ? s->buffer : data, s->received);
    return s->receiving != NULL ? MU_OK : MU_UNAVAILABLE;
}

static size_t from_buffer(network_stream *s, void *data, size_t bytes)
{
    const size_t some = MU_MIN(bytes, s->buffered - s->taken);
    if (some > 0)
        memcpy(data, s->buffer + s->taken, some);
    s->taken += some;
    return some;
}

static mu_status move_in(network_stream *s, void *data, size_t bytes, size_t *moved)
{
    *moved = from_buffer(s, data, bytes);
    if (*moved > 0)
        return MU_OK;
    if (s->receiving == NULL)
        MU_TRY(begin_in(s, data, bytes));
    if (s->receiving == NULL)
        return MU_OK;
    const int done = s->network->module->test(s->network->handle, s->receiving);
    if (done == 0)
        return MU_OK;
    s->receiving = NULL;
    if (done < 0)
        return MU_UNAVAILABLE;
    if (!s->into_buffer) {
        *moved = s->received;
        return MU_OK;
    }
    s->buffered = s->received;
    s->taken = 0;
    *moved = from_buffer(s, data, bytes);
    return MU_OK;
}

// ---- Which thread -------------------------------------------------------------------------------

static void carry_out(call *c)
{
    c->status =
        c->send ? move_out(c->stream, c->out, c->bytes, &c->moved) : move_in(c->stream, c->in, c->bytes, &c->moved);
}

void mu__network_serve(mu_network *network)
{
    if (!mu__network_needs_service(network) || !is_opener(network))
        return;
    pthread_mutex_lock(&network->lock);
    call *all = network->waiting;
    network->waiting = NULL;
    pthread_mutex_unlock(&network->lock);
    if (all == NULL)
        look_for_nothing(network);
    while (all != NULL) {
        call *next = all->next;
        carry_out(all);
        atomic_store_explicit(&all->done, true, memory_order_release); // after this store the call's memory may be gone
        all = next;
    }
}

bool mu__network_needs_service(const mu_network *network)
{
    return network != NULL && network->threads == MU_NETWORK_OPENER;
}

const char *mu__network_name(const mu_network *network) { return network->module->name; }

// Withdraws a call from the mailbox; false: the opener is executing it.
static bool take_back(mu_network *network, const call *c)
{
    pthread_mutex_lock(&network->lock);
    call **at = &network->waiting;
    while (*at != NULL && *at != c)
        at = &(*at)->next;
    const bool found = *at == c;
    if (found)
        *at = c->next;
    pthread_mutex_unlock(&network->lock);
    return found;
}

// Puts the call in the mailbox for at most 10 ms. If the opener does not take it, nothing was moved and the caller
// tries again.
static void ask_opener(call *c)
{
    mu_network *network = c->stream->network;
    const int64_t quick = mu__now_ns() + 50000, backoff = quick + 10000000;
    pthread_mutex_lock(&network->lock);
    c->next = network->waiting;
    network->waiting = c;
    pthread_mutex_unlock(&network->lock);
    while (!atomic_load_explicit(&c->done, memory_order_acquire)) {
        const int64_t now = mu__now_ns();
        if (now > backoff && take_back(network, c))
            return;
        if (now < quick)
            sched_yield();
        else
            mu__sleep_ns(50000);
    }
}

static mu_status perform(call *c, size_t *moved)
{
    mu_network *network = c->stream->network;
    if (network->threads == MU_NETWORK_OPENER && !is_opener(network)) {
        ask_opener(c);
    } else if (network->threads == MU_NETWORK_ONE) {
        pthread_mutex_lock(&network->lock);
        carry_out(c);
        pthread_mutex_unlock(&network->lock);
    } else {
        carry_out(c);
    }
    *moved = c->moved;
    return c->status;
}

// ---- The stream ---------------------------------------------------------------------------------

static mu_status network_send(mu_stream *stream, const void *data, size_t bytes, size_t *moved)
{
    return perform(&(call){.stream = (network_stream *)stream, .send = true, .out = data, .bytes = bytes}, moved);
}

static mu_status network_recv(mu_stream *stream, void *data, size_t bytes, size_t *moved)
{
    return perform(&(call){.stream = (network_stream *)stream, .in = data, .bytes = bytes}, moved);
}

static int network_fd(const mu_stream *stream)
{
    (void)stream;
    return -1; // no descriptor: the caller polls
}

static void network_close(mu_stream *stream)
{
    network_stream *s = (network_stream *)stream;
    mu_release(s->network);
    // A message may still arrive in the buffer; this happens only when the process is about to end, so the buffer is
    // not freed.
    if (s->receiving == NULL)
        mu__free(s->buffer);
    mu__free(s);
}

const mu_stream_ops mu__stream_ops_network = {
    .send = network_send, .recv = network_recv, .fd = network_fd, .close = network_close};

mu_stream *mu__network_stream(mu_network *network, int rank, int tag)
{
    if (tag < 0 || tag > MAX_TAG) {
        mu__error(MU_INVALID_ARGUMENT, "a stream has the tag %d; expected 0 to %d", tag, MAX_TAG);
        return NULL;
    }
    network_stream *s = mu__calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->head.ops = &mu__stream_ops_network;
    s->network = mu_retain(network);
    s->peer = rank;
    s->tag = tag;
    return &s->head;
}
