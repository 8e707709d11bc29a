// A membership policy of a test's own: a server with room for some clients, which come and go, and whose end is an
// ordinary event; it answers requests. A client has one member, the server.
#ifndef MU_TESTS_OWN_MEMBERSHIP_H
#define MU_TESTS_OWN_MEMBERSHIP_H

#include "comm/sessions/session.h"

enum { SERVER = 0, CLIENTS = 2, NODES = 1 + CLIENTS };

typedef struct party {
    mu_node node; // must be first
    mu_member members[CLIENTS], *list[CLIENTS];
    int joined, left, lost, replies;
    mu_status code; // of the last reply
    char text[64];
} party;

static party parties[NODES];

static int admit(mu_node *node, const mu_hello *hello, mu_failure *why, int64_t now)
{
    (void)hello, (void)now;
    for (int i = 0; i < node->n_members; i++)
        if (!mu__session_is_open(&node->members[i]->session))
            return i;
    snprintf(why->message, sizeof why->message, "the server has all its clients");
    return -1;
}

static void joined(mu_node *node, int member, const mu_hello *hello)
{
    (void)member, (void)hello;
    ((party *)node)->joined++;
}

static void left(mu_node *node, int member) { (void)member, ((party *)node)->left++; }
static void lost(mu_node *node, int member, const char *why) { (void)member, (void)why, ((party *)node)->lost++; }

static void asked(mu_node *node, int member, const mu_request *request)
{
    static const char none[] = "no such method";
    mu_session *session = &node->members[member]->session;
    const mu_reply echo = {.id = request->id, .code = MU_OK, .data = request->data, .bytes = request->bytes};
    const mu_reply refusal = {
        .id = request->id, .code = MU_NOT_FOUND, .data = (const uint8_t *)none, .bytes = sizeof none - 1};
    if (strcmp(request->method, "sleep") != 0)
        assert_int_equal(mu__session_reply(session, strcmp(request->method, "echo") == 0 ? &echo : &refusal), MU_OK);
}

static const mu_membership clients = {.admit = admit, .joined = joined, .asked = asked, .left = left, .lost = lost};

#endif
