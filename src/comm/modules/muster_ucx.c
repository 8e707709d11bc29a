// The UCX module: messages over InfiniBand and RoCE, on networks declared trusted.
//
// Processes exchange worker addresses over the mesh, so UCX does not listen for connections. But UCX parses packets
// from anybody before any key is checked, so it is used only where strangers cannot send. Endpoints report peers that
// are gone; the mesh detects peers that only fall silent. Messages are tagged with sender and tag, so a late message
// never matches another receive.
#include <muster/network.h>
#include <ucp/api/ucp.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>

enum { MAX_ADDRESS = 4096 };

typedef struct address {
    size_t bytes;
    unsigned char data[MAX_ADDRESS];
} address;

typedef struct network {
    ucp_context_h context;
    ucp_worker_h worker;
    int rank, ranks;
    ucp_ep_h *endpoints; // [ranks]; NULL: this process
    int *lost;           // [ranks] set by the error callback
} network;

// A request that UCX completes at once has no UCX handle.
typedef struct request {
    ucs_status_ptr_t handle; // NULL: complete
    int status;              // ucs_status_t of a request without a handle
    int peer;                // -1: a receive
} request;

static uint64_t tag_of(int rank, int tag) { return (uint64_t)(uint32_t)rank << 32 | (uint32_t)tag; }

static void *fail(mu_network_args *args, const char *what, ucs_status_t status)
{
    snprintf(args->error, args->error_bytes, "%s: %s", what, ucs_status_string(status));
    return NULL;
}

// UCX keeps the queues between processes of a host in /dev/shm; if that is full, its error only says that a resource is
// short.
static void *fail_to_start(mu_network_args *args, ucs_status_t status)
{
    enum { LITTLE = 64 };
    struct statvfs memory;
    fail(args, "UCX cannot start", status);
    const size_t used = strlen(args->error);
    const int short_of = status == UCS_ERR_NO_RESOURCE || status == UCS_ERR_NO_MEMORY;
    if (!short_of || statvfs("/dev/shm", &memory) != 0)
        return NULL;
    const unsigned long long left = (unsigned long long)memory.f_bavail * memory.f_frsize >> 20;
    const unsigned long long all = (unsigned long long)memory.f_blocks * memory.f_frsize >> 20;
    if (left < LITTLE)
        snprintf(args->error + used, args->error_bytes - used,
                 "; /dev/shm, where it keeps its queues, has %llu MB left of %llu: make room there (mount -o "
                 "remount,size=1G /dev/shm; docker run --shm-size=1g), or leave it out with UCX_TLS=tcp",
                 left, all);
    else
        snprintf(args->error + used, args->error_bytes - used,
                 "; UCX_LOG_LEVEL=info shows which, UCX_TLS=tcp needs the least");
    return NULL;
}

// ---- Joining ------------------------------------------------------------------------------------

static ucs_status_t open_context(network *n)
{
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return status;
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED,
                                 .features = UCP_FEATURE_TAG,
                                 .mt_workers_shared = 1};
    status = ucp_init(&params, config, &n->context);
    ucp_config_release(config);
    return status;
}

static ucs_status_t open_worker(network *n)
{
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_MULTI};
    return ucp_worker_create(n->context, &params, &n->worker);
}

static void peer_lost(void *arg, ucp_ep_h endpoint, ucs_status_t status)
{
    (void)endpoint;
    (void)status;
    *(int *)arg = 1; // UCX functions must not be called here
}

static ucs_status_t connect_to(network *n, int peer, const address *where)
{
    const ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                                  UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER,
                                    .address = (const ucp_address_t *)where->data,
                                    .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                                    .err_handler = {.cb = peer_lost, .arg = &n->lost[peer]}};
    return ucp_ep_create(n->worker, &params, &n->endpoints[peer]);
}

static int swap_addresses(const network *n, const mu_network_args *args, address *all)
{
    ucp_address_t *own;
    size_t bytes;
    address mine = {0};
    if (ucp_worker_get_address(n->worker, &own, &bytes) != UCS_OK)
        return 0;
    const int fits = bytes <= MAX_ADDRESS;
    if (fits) {
        mine.bytes = bytes;
        memcpy(mine.data, own, bytes);
    }
    ucp_worker_release_address(n->worker, own);
    return fits && args->exchange(args->arg, &mine, sizeof mine, all);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

// Waits, for a second at most, until what was sent last has left: a forced close discards it.
static void flush_all(network *n)
{
    const ucp_request_param_t plain = {0};
    const double deadline = seconds_now() + 1;
    for (int i = 0; n->endpoints != NULL && i < n->ranks; i++) {
        if (n->endpoints[i] == NULL || n->lost[i])
            continue;
        ucs_status_ptr_t flushing = ucp_ep_flush_nbx(n->endpoints[i], &plain);
        while (UCS_PTR_IS_PTR(flushing) && ucp_request_check_status(flushing) == UCS_INPROGRESS && !n->lost[i] &&
               seconds_now() < deadline)
            ucp_worker_progress(n->worker);
        if (UCS_PTR_IS_PTR(flushing))
            ucp_request_free(flushing);
    }
}

static void ucx_close(void *self)
{
    network *n = self;
    flush_all(n);
    const ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS, .flags = UCP_EP_CLOSE_FLAG_FORCE};
    for (int i = 0; n->endpoints != NULL && i < n->ranks; i++) {
        if (n->endpoints[i] == NULL)
            continue;
        ucs_status_ptr_t closing = ucp_ep_close_nbx(n->endpoints[i], &force);
        while (UCS_PTR_IS_PTR(closing) && ucp_request_check_status(closing) == UCS_INPROGRESS)
            ucp_worker_progress(n->worker);
        if (UCS_PTR_IS_PTR(closing))
            ucp_request_free(closing);
    }
    if (n->worker != NULL)
        ucp_worker_destroy(n->worker);
    if (n->context != NULL)
        ucp_cleanup(n->context);
    free(n->endpoints);
    free(n->lost);
    free(n);
}

static void *open_endpoints(network *n, mu_network_args *args)
{
    address *all = calloc((size_t)n->ranks, sizeof *all);
    ucs_status_t status = UCS_OK;
    const int known = all != NULL && swap_addresses(n, args, all);
    for (int i = 0; known && status == UCS_OK && i < n->ranks; i++)
        if (i != n->rank)
            status = connect_to(n, i, &all[i]);
    free(all);
    if (!known)
        return fail(args, "the processes could not exchange their UCX addresses", UCS_ERR_UNREACHABLE);
    return status == UCS_OK ? n : fail(args, "ucp_ep_create", status);
}

static void *ucx_open(mu_network_args *args)
{
    network *n = calloc(1, sizeof *n);
    if (n == NULL)
        return fail(args, "memory", UCS_ERR_NO_MEMORY);
    n->rank = args->rank;
    n->ranks = args->ranks;
    n->endpoints = calloc((size_t)n->ranks, sizeof *n->endpoints);
    n->lost = calloc((size_t)n->ranks, sizeof *n->lost);
    ucs_status_t status = n->endpoints != NULL && n->lost != NULL ? open_context(n) : UCS_ERR_NO_MEMORY;
    if (status == UCS_OK)
        status = open_worker(n);
    args->threads = MU_NETWORK_ANY;
    void *made = status == UCS_OK ? open_endpoints(n, args) : fail_to_start(args, status);
    if (made == NULL)
        ucx_close(n);
    return made;
}

// ---- Messages -----------------------------------------------------------------------------------

static void *request_of(ucs_status_ptr_t handle, int peer)
{
    request *made = malloc(sizeof *made);
    if (made == NULL)
        return NULL;
    *made = (request){.handle = UCS_PTR_IS_PTR(handle) ? handle : NULL, .status = UCS_PTR_STATUS(handle), .peer = peer};
    return made;
}

static void *ucx_send(void *self, int peer, int tag, const void *data, size_t bytes)
{
    network *n = self;
    const ucp_request_param_t plain = {0};
    return n->lost[peer]
               ? NULL
               : request_of(ucp_tag_send_nbx(n->endpoints[peer], data, bytes, tag_of(n->rank, tag), &plain), peer);
}

static int ucx_probe(void *self, int peer, int tag, size_t *bytes, void **message)
{
    network *n = self;
    ucp_tag_recv_info_t info;
    ucp_worker_progress(n->worker);
    ucp_tag_message_h found = ucp_tag_probe_nb(n->worker, tag_of(peer, tag), UINT64_MAX, 1, &info);
    if (found == NULL)
        return n->lost[peer] ? -1 : 0;
    *bytes = info.length;
    *message = found;
    return 1;
}

static void *ucx_receive(void *self, void *message, void *data, size_t bytes)
{
    network *n = self;
    const ucp_request_param_t plain = {0};
    return request_of(ucp_tag_msg_recv_nbx(n->worker, data, bytes, message, &plain), -1);
}

static int ucx_test(void *self, void *asked)
{
    network *n = self;
    request *r = asked;
    int status = r->status;
    ucp_worker_progress(n->worker);
    if (r->handle != NULL) {
        status = ucp_request_check_status(r->handle);
        if (status == UCS_INPROGRESS && !(r->peer >= 0 && n->lost[r->peer]))
            return 0;
        ucp_request_free(r->handle);
    }
    free(r);
    return status == UCS_OK ? 1 : -1;
}

const mu_network_module muster_network = {
    .version = MU_NETWORK_VERSION,
    .name = "ucx",
    .open = ucx_open,
    .close = ucx_close,
    .send = ucx_send,
    .probe = ucx_probe,
    .receive = ucx_receive,
    .test = ucx_test,
};
