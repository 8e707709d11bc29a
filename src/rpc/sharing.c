// How the two ends of a connection agree on memory that one writes and the other reads.
//
// The writer asks ("rpc.memory" without data), the reader answers with random bytes, the writer makes memory that
// begins with their signature and names it ("rpc.memory" with its address), and the reader maps it. Until then, or
// whenever a step fails, messages go through the connection.
#include "rpc/channel.h"

#define SECONDS 30.0

static bool may_share(const mu_channel *channel)
{
    return channel->node != NULL && channel->session->same_host && channel->session->version >= MU_WIRE_MEMORY &&
           mu__setting_bool(MU_SETTING_SHARED_MEMORY);
}

static void give_up(mu_channel *channel)
{
    mu_error_value why;
    mu__error_move(&why);
    if (why.code != MU_OK)
        mu__log(MU_LOG_INFO, "RPC: messages on this host go through the connection: %s", why.message);
    channel->sharing = MU_SHARING_NO;
    mu__slots_free(channel->own);
    channel->own = NULL;
}

static mu_status sign(const mu_channel *channel, const uint8_t challenge[MU_SLOTS_CHALLENGE],
                      const uint8_t writer[MU_INCARNATION], uint8_t out[MU_KEY_BYTES])
{
    return mu__slots_proof(channel->node->keyring, mu__link_bearer(channel->session->handshake.link), challenge, writer,
                           out);
}

// Sends "rpc.memory" with a text.
static void ask(mu_channel *channel, const char *text, mu_replied *replied)
{
    channel->sharing = MU_SHARING_ASKED;
    if (mu__session_request(channel->session, &(mu_request_options){.method = "rpc.memory",
                                                                    .data = text,
                                                                    .bytes = strlen(text),
                                                                    .seconds = SECONDS,
                                                                    .replied = replied,
                                                                    .arg = channel}) != MU_OK)
        give_up(channel);
}

static void mapped(void *arg, const mu_reply *reply)
{
    mu_channel *channel = arg;
    channel->sharing = MU_SHARING_YES;
    if (reply->code != MU_OK)
        give_up(channel);
}

static void challenged(void *arg, const mu_reply *reply)
{
    mu_channel *channel = arg;
    char address[MU_SLOTS_ADDRESS] = "";
    uint8_t proof[MU_KEY_BYTES];
    if (reply->code == MU_OK && reply->bytes == MU_SLOTS_CHALLENGE &&
        sign(channel, reply->data, channel->node->own.incarnation, proof) == MU_OK)
        channel->own = mu__slots_new(proof, address);
    if (channel->own != NULL)
        ask(channel, address, mapped);
    else
        give_up(channel);
}

void mu__sharing_ask(mu_channel *channel)
{
    if (may_share(channel))
        ask(channel, "", challenged);
    else
        channel->sharing = MU_SHARING_NO;
}

mu_status mu__sharing_asked(mu_channel *channel, const mu_request *request, uint8_t out[MU_SLOTS_CHALLENGE],
                            size_t *bytes)
{
    char address[MU_SLOTS_ADDRESS] = "";
    uint8_t proof[MU_KEY_BYTES];
    if (!may_share(channel))
        return mu__error(MU_UNIMPLEMENTED, "this process shares no memory with the other end");
    if (request->bytes == 0 && !channel->challenged) {
        MU_TRY(mu__random(channel->challenge, sizeof channel->challenge));
        channel->challenged = true;
        memcpy(out, channel->challenge, sizeof channel->challenge);
        *bytes = sizeof channel->challenge;
        return MU_OK;
    }
    if (request->bytes >= sizeof address || !channel->challenged || channel->theirs != NULL)
        return mu__error(MU_DATA_LOSS, "memory is offered twice, or was not requested");
    memcpy(address, request->data, request->bytes);
    mu__printable(address, false);
    MU_TRY(sign(channel, channel->challenge, channel->session->incarnation, proof));
    channel->theirs = mu__slots_find(address, proof);
    return channel->theirs != NULL ? MU_OK : mu_error_code();
}

void mu__sharing_end(mu_channel *channel)
{
    mu__slots_free(channel->own);
    mu__slots_free(channel->theirs);
    channel->own = channel->theirs = NULL;
}
