// A network module around that of UCX which says at once that a message has left, but keeps it for 30 ms, and then
// until it is called again: as a library does whose queue to another process is full.
#include <muster/network.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct request {
    struct request *next;
    void *real; // NULL: not passed on, or a send
    void *data;
    size_t bytes;
    double leaves; // in seconds
    int peer, tag, is_send;
} request;

typedef struct late {
    void *real;
    request *kept, **end, *on_its_way;
} late;

static const mu_network_module *module;

static void *late_open(mu_network_args *args)
{
    void *library = dlopen(MU_TEST_MODULES "/libmuster-ucx.so", RTLD_NOW | RTLD_NODELETE);
    module = library != NULL ? dlsym(library, "muster_network") : NULL;
    late *made = module != NULL ? calloc(1, sizeof *made) : NULL;
    if (made == NULL) {
        snprintf(args->error, args->error_bytes, "UCX's module is not there");
        return NULL;
    }
    made->end = &made->kept;
    made->real = module->open(args);
    args->threads = MU_NETWORK_ONE;
    return made->real != NULL ? made : NULL;
}

static void late_close(void *self)
{
    late *l = self;
    module->close(l->real);
    free(l);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *late_send(void *self, int peer, int tag, const void *data, size_t bytes)
{
    late *l = self;
    request *kept = calloc(1, sizeof *kept), *asked = calloc(1, sizeof *asked);
    *kept =
        (request){.data = malloc(bytes + 1), .bytes = bytes, .leaves = seconds_now() + .03, .peer = peer, .tag = tag};
    memcpy(kept->data, data, bytes);
    *l->end = kept;
    l->end = &kept->next;
    asked->is_send = 1;
    return asked;
}

static void pass_on(late *l)
{
    for (request *next; l->kept != NULL && l->kept->leaves < seconds_now(); l->kept = next) {
        request *kept = l->kept;
        next = kept->next;
        kept->real = module->send(l->real, kept->peer, kept->tag, kept->data, kept->bytes);
        kept->next = l->on_its_way;
        l->on_its_way = kept;
    }
    l->end = l->kept != NULL ? l->end : &l->kept;
    for (request **at = &l->on_its_way; *at != NULL;) {
        request *sent = *at;
        if (sent->real != NULL && module->test(l->real, sent->real) == 0) {
            at = &sent->next;
            continue;
        }
        *at = sent->next;
        free(sent->data);
        free(sent);
    }
}

static int late_probe(void *self, int peer, int tag, size_t *bytes, void **message)
{
    late *l = self;
    pass_on(l);
    return module->probe(l->real, peer, tag, bytes, message);
}

static void *late_receive(void *self, void *message, void *data, size_t bytes)
{
    late *l = self;
    request *asked = calloc(1, sizeof *asked);
    pass_on(l);
    asked->real = module->receive(l->real, message, data, bytes);
    return asked;
}

static int late_test(void *self, void *which)
{
    late *l = self;
    request *asked = which;
    int done = 1;
    if (!asked->is_send) {
        pass_on(l);
        done = asked->real != NULL ? module->test(l->real, asked->real) : -1;
    }
    if (done != 0)
        free(asked);
    return done;
}

const mu_network_module muster_network = {.version = MU_NETWORK_VERSION,
                                          .name = "ucx",
                                          .open = late_open,
                                          .close = late_close,
                                          .send = late_send,
                                          .probe = late_probe,
                                          .receive = late_receive,
                                          .test = late_test};
