// Others who connect to the tasks of a job: with another cluster's key, with nonsense, or without a word.
#include "run.h"

#include "comm/sessions/net.h"

#include <arpa/inet.h>
#include <netinet/in.h>

enum { N_STRANGERS = 4, STRANGER_HOST = MOST_HOSTS - 2, STRANGER_PROCESS = MOST_PROCESSES - 1 };
#define OTHER_KEY "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define PAUSE_NS  50000000
#define VISITS_NS 10000000000

static struct {
    const run *run;
    mu_keyring *keyring; // NULL: there are no strangers
    int64_t due_ns, until_ns;
    struct stranger {
        int fd; // -1: none
        mu_link *link;
        int64_t end_ns;
    } all[N_STRANGERS];
} strangers;

void strangers_begin(const run *r)
{
    memset(&strangers, 0, sizeof strangers);
    strangers.run = r;
    strangers.due_ns = MU_FOREVER;
    for (int i = 0; i < N_STRANGERS; i++)
        strangers.all[i].fd = -1;
    if (r->fault != FAULT_STRANGERS)
        return;
    strangers.keyring = mu__keyring_new(OTHER_KEY, true);
    strangers.due_ns = world_now();
    strangers.until_ns = world_now() + VISITS_NS;
}

static void hang_up(struct stranger *s)
{
    if (s->link != NULL)
        mu__link_free(s->link);
    else if (s->fd >= 0)
        mu__system->close(s->fd);
    *s = (struct stranger){.fd = -1};
}

static void visit(struct stranger *s)
{
    const int rank = (int)world_draw((uint64_t)strangers.run->n_tasks);
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(5000 + rank))};
    v4.sin_addr.s_addr = htonl(0x0a000001u + (uint32_t)strangers.run->tasks[rank].host);
    mu_endpoint to = {.bytes = sizeof v4};
    memcpy(&to.address, &v4, sizeof v4);
    s->fd = mu__system->connect(&to, &(mu_endpoints){0});
    s->end_ns = world_now() + world_draw_ns(0.01, 3);
    if (s->fd >= 0 && world_chance(0.5))
        s->link = mu__link_new(strangers.keyring, s->fd, true, (int)world_draw(MOST_TASKS), rank);
}

static void speak(struct stranger *s)
{
    static const char nonsense[] = "GET / HTTP/1.0\r\n\r\nMUSTER";
    const struct iovec words = {.iov_base = (void *)(uintptr_t)nonsense, .iov_len = sizeof nonsense - 1};
    bool done;
    if (mu__system->connect_result(s->fd) != 0)
        return;
    if (s->link != NULL && mu__link_shake(s->link, &done) == MU_OK && done)
        run_fails("a process with another key was let in");
    if (s->link == NULL && world_chance(0.2))
        (void)!mu__system->send(s->fd, &words, 1);
}

void strangers_run(void)
{
    world_enter(STRANGER_PROCESS, STRANGER_HOST);
    for (int i = 0; i < N_STRANGERS; i++) {
        struct stranger *s = &strangers.all[i];
        if (s->fd < 0 && world_chance(0.2))
            visit(s);
        else if (s->fd >= 0 && world_now() >= s->end_ns)
            hang_up(s);
        else if (s->fd >= 0)
            speak(s);
    }
    strangers.due_ns = world_now() < strangers.until_ns ? world_now() + PAUSE_NS : MU_FOREVER;
}

int64_t strangers_due(void) { return strangers.due_ns; }

void strangers_end(void)
{
    world_enter(STRANGER_PROCESS, STRANGER_HOST);
    for (int i = 0; i < N_STRANGERS; i++)
        hang_up(&strangers.all[i]);
    mu_release(strangers.keyring);
}
