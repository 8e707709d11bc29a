// Sends and receives messages in parts; see channel.h.
#include "rpc/channel.h"

#define PART_SECONDS 120.0
enum { WINDOW = MU_SLOTS, MOST_ARRIVING = 1024, PART_HEAD = 16, NO_SLOT = -1, PART_IN_SLOT = 1 << 17 };

struct mu_outgoing {
    mu_outgoing *next;
    mu_channel *channel;
    mu_message *message; // retained
    uint64_t transfer;
    size_t sent_bytes;
    int n_unanswered;
    bool accepted; // the first part was answered: there is room for the message
    bool done;     // `sent` was called, or is not wanted any more
    mu_status failed;
    char why[200];
    mu_sent *sent;
    void *arg;
};

// A part whose answer is missing.
typedef struct sent_part {
    mu_outgoing *out;
    int slot; // in which its bytes are; NO_SLOT: they are in the request
} sent_part;

struct mu_arriving {
    mu_arriving *next;
    uint64_t transfer;
    mu_message *message;
    size_t have;
};

uint8_t *mu__put_number(uint8_t *to, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        *to++ = (uint8_t)(number >> 8 * i);
    return to;
}

uint8_t *mu__put_bytes(uint8_t *to, const void *from, size_t bytes)
{
    if (bytes > 0)
        memcpy(to, from, bytes);
    return to + bytes;
}

bool mu__budget_take(mu_budget *budget, size_t bytes)
{
    if (bytes > budget->limit - budget->used)
        return false;
    budget->used += bytes;
    return true;
}

// ---- Sending ------------------------------------------------------------------------------------

static void outgoing_free(mu_outgoing *out)
{
    for (mu_outgoing **at = &out->channel->outgoing; *at != NULL; at = &(*at)->next)
        if (*at == out) {
            *at = out->next;
            break;
        }
    mu_release(out->message);
    mu__free(out);
}

uint64_t mu__channel_send(mu_channel *channel, mu_message *message, mu_sent *sent, void *arg)
{
    mu_outgoing *out = mu__calloc(1, sizeof *out), **end = &channel->outgoing;
    if (out == NULL)
        return 0;
    *out = (mu_outgoing){.channel = channel,
                         .message = mu_retain(message),
                         .transfer = ++channel->n_transfers,
                         .sent = sent,
                         .arg = arg};
    while (*end != NULL)
        end = &(*end)->next;
    *end = out;
    return out->transfer;
}

size_t mu__channel_sent(const mu_channel *channel, uint64_t transfer)
{
    const mu_outgoing *out = channel->outgoing;
    while (out != NULL && out->transfer != transfer)
        out = out->next;
    return out != NULL ? out->sent_bytes : 0;
}

static void drop_answered(void *arg, const mu_reply *reply) { (void)arg, (void)reply; }

// If this cannot be sent, the other end keeps the parts until the connection ends.
static void send_drop(mu_channel *channel, uint64_t transfer)
{
    uint8_t number[8];
    mu_error_value ignored;
    mu__put_number(number, transfer, 8);
    if (mu__session_request(channel->session, &(mu_request_options){.method = "rpc.drop",
                                                                    .data = number,
                                                                    .bytes = sizeof number,
                                                                    .seconds = PART_SECONDS,
                                                                    .replied = drop_answered}) != MU_OK)
        mu__error_move(&ignored);
}

// Calls `sent` when all is sent or the transfer has failed; frees it when no answer is missing. Of a message that was
// refused, parts that were on their way have come to the other end all the same.
static void settle(mu_outgoing *out)
{
    const bool all = out->sent_bytes == out->message->bytes;
    if (!out->done && (all || out->failed != MU_OK)) {
        out->done = true;
        out->sent(out->arg, out->transfer, all ? MU_OK : out->failed, out->why);
    }
    if (out->done && out->n_unanswered == 0) {
        if (out->failed != MU_OK && mu__session_is_open(out->channel->session))
            send_drop(out->channel, out->transfer);
        outgoing_free(out);
    }
}

static void part_answered(void *arg, const mu_reply *reply)
{
    sent_part *part = arg;
    mu_outgoing *out = part->out;
    if (part->slot != NO_SLOT)
        out->channel->in_use &= ~(1u << part->slot);
    mu__free(part);
    out->channel->n_unanswered--;
    out->n_unanswered--;
    out->accepted = out->accepted || reply->code == MU_OK;
    if (reply->code != MU_OK && out->failed == MU_OK) {
        out->failed = reply->code;
        snprintf(out->why, sizeof out->why, "%.*s", (int)MU_MIN(reply->bytes, sizeof out->why - 1),
                 (const char *)reply->data);
        mu__printable(out->why, false);
    }
    settle(out);
}

static int free_slot(const mu_channel *channel)
{
    int slot = 0;
    while (slot < MU_SLOTS && (channel->in_use & 1u << slot) != 0)
        slot++;
    return channel->sharing == MU_SHARING_YES && slot < MU_SLOTS ? slot : NO_SLOT;
}

// Writes the next part's request; its bytes go into the slot, if there is one. Returns the end of the request.
static uint8_t *write_part(const mu_outgoing *out, int slot, size_t bytes)
{
    const mu_channel *channel = out->channel;
    uint8_t *end = mu__put_number(channel->part, out->transfer, 8);
    end = mu__put_number(end, out->message->bytes, 8);
    if (slot != NO_SLOT) {
        mu__message_copy(out->message, out->sent_bytes, mu__slot_write(channel->own, slot), bytes);
        end = mu__put_number(end, (uint64_t)slot, 4);
        return mu__put_number(end, bytes, 4);
    }
    mu__message_copy(out->message, out->sent_bytes, end, bytes);
    return end + bytes;
}

static mu_status send_part(mu_outgoing *out)
{
    mu_channel *channel = out->channel;
    const int slot = free_slot(channel);
    const size_t bytes =
        MU_MIN(out->message->bytes - out->sent_bytes, (size_t)(slot != NO_SLOT ? PART_IN_SLOT : MU_RPC_PART));
    if (channel->part == NULL && (channel->part = mu__alloc(MU_RPC_PART + PART_HEAD)) == NULL)
        return MU_RESOURCE_EXHAUSTED;
    sent_part *part = mu__alloc(sizeof *part);
    if (part == NULL)
        return MU_RESOURCE_EXHAUSTED;
    *part = (sent_part){.out = out, .slot = slot};
    const uint8_t *end = write_part(out, slot, bytes);
    if (mu__session_request(channel->session, &(mu_request_options){.method = slot != NO_SLOT ? "rpc.slot" : "rpc.part",
                                                                    .data = channel->part,
                                                                    .bytes = (size_t)(end - channel->part),
                                                                    .seconds = PART_SECONDS,
                                                                    .replied = part_answered,
                                                                    .arg = part}) != MU_OK) {
        mu__free(part);
        return mu_error_code();
    }
    channel->in_use |= slot != NO_SLOT ? 1u << slot : 0;
    out->sent_bytes += bytes;
    out->n_unanswered++;
    channel->n_unanswered++;
    return MU_OK;
}

// The first one in the list that has bytes to send. Of a message that goes through shared memory all parts but the last
// may be on their way before the first is answered: they cost the other end nothing, and what follows the last part
// must not follow a message that was refused.
static mu_outgoing *next_to_send(const mu_channel *channel)
{
    const bool shared = free_slot(channel) != NO_SLOT;
    for (mu_outgoing *out = channel->outgoing; out != NULL; out = out->next)
        if (!out->done &&
            (out->accepted || out->sent_bytes == 0 || (shared && out->message->bytes - out->sent_bytes > PART_IN_SLOT)))
            return out;
    return NULL;
}

static void to_the_end(mu_channel *channel, mu_outgoing *out)
{
    mu_outgoing **at = &channel->outgoing;
    while (*at != out)
        at = &(*at)->next;
    *at = out->next;
    out->next = NULL;
    for (at = &channel->outgoing; *at != NULL; at = &(*at)->next)
        continue;
    *at = out;
}

void mu__channel_pump(mu_channel *channel)
{
    mu_outgoing *out;
    while (channel->n_unanswered < WINDOW && mu__session_is_open(channel->session) &&
           (out = next_to_send(channel)) != NULL) {
        to_the_end(channel, out); // so that each message has its turn
        if (send_part(out) != MU_OK) {
            mu_error_value error;
            mu__error_move(&error);
            out->failed = error.code;
            snprintf(out->why, sizeof out->why, "%.199s", error.message);
        }
        const bool more = out->failed == MU_OK && out->sent_bytes < out->message->bytes;
        settle(out);
        if (more) // so that the other end reads this part while the next is written
            mu__session_flush(channel->node, channel->member);
    }
}

void mu__channel_drop(mu_channel *channel, uint64_t transfer)
{
    mu_outgoing *out = channel->outgoing;
    while (out != NULL && (out->transfer != transfer || out->done))
        out = out->next;
    if (out == NULL)
        return;
    out->done = true;
    if (out->sent_bytes > 0)
        send_drop(channel, transfer);
    if (out->n_unanswered == 0)
        outgoing_free(out);
}

// ---- Receiving ----------------------------------------------------------------------------------

static mu_arriving **find(mu_channel *channel, uint64_t transfer)
{
    mu_arriving **at = &channel->arriving;
    while (*at != NULL && (*at)->transfer != transfer)
        at = &(*at)->next;
    return at;
}

static void forget(mu_channel *channel, mu_arriving **at, bool give_back)
{
    mu_arriving *gone = *at;
    *at = gone->next;
    if (give_back)
        channel->budget->used -= gone->message->bytes;
    channel->n_arriving--;
    mu_release(gone->message);
    mu__free(gone);
}

// Makes the message for the first part of a transfer; an error is the answer.
static mu_status begin(mu_channel *channel, uint64_t transfer, uint64_t total, mu_arriving **at)
{
    if (channel->n_arriving == MOST_ARRIVING)
        return mu__error(MU_RESOURCE_EXHAUSTED, "%d messages arrive at one time; no more are accepted", MOST_ARRIVING);
    if (total > SIZE_MAX || !mu__budget_take(channel->budget, (size_t)total))
        return mu__error(MU_RESOURCE_EXHAUSTED,
                         "a message of %llu bytes does not fit: %zu of at most %zu bytes are in use; send less at one "
                         "time, or raise max_bytes",
                         (unsigned long long)total, channel->budget->used, channel->budget->limit);
    mu_arriving *made = mu__calloc(1, sizeof *made);
    mu_message *message = made != NULL ? mu__message_new((size_t)total) : NULL;
    if (message == NULL) {
        mu__free(made);
        channel->budget->used -= (size_t)total;
        return MU_RESOURCE_EXHAUSTED;
    }
    *made = (mu_arriving){.transfer = transfer, .message = message};
    *at = made;
    channel->n_arriving++;
    return MU_OK;
}

// The bytes of a part: what is left of the request, or what its slot has. NULL: there is no such slot.
static const uint8_t *part_bytes(const mu_channel *channel, mu_cursor *cursor, bool in_slot, size_t *bytes)
{
    *bytes = mu__cursor_left(cursor);
    if (!in_slot)
        return cursor->at;
    const uint32_t slot = mu__cursor_u32_little(cursor);
    *bytes = mu__cursor_u32_little(cursor);
    const bool good = !cursor->bad && cursor->at == cursor->end && channel->theirs != NULL && slot < MU_SLOTS &&
                      *bytes <= MU_SLOT_BYTES;
    return good ? mu__slot_read(channel->theirs, (int)slot) : NULL;
}

static mu_status take_part(mu_channel *channel, const mu_request *request, bool in_slot)
{
    mu_cursor cursor = mu__cursor(request->data, request->bytes);
    const uint64_t transfer = mu__cursor_u64_little(&cursor), total = mu__cursor_u64_little(&cursor);
    size_t bytes = 0;
    const uint8_t *from = part_bytes(channel, &cursor, in_slot, &bytes);
    if (cursor.bad || from == NULL || bytes == 0 || transfer == 0)
        return mu__error(MU_DATA_LOSS, "a part of a message is damaged");
    mu_arriving **at = find(channel, transfer);
    if (*at == NULL)
        MU_TRY(begin(channel, transfer, total, at));
    mu_arriving *here = *at;
    if (here->message->bytes != total || bytes > total - here->have) {
        forget(channel, at, true);
        return mu__error(MU_DATA_LOSS, "the parts of a message are larger than the message");
    }
    memcpy(here->message->data + here->have, from, bytes);
    here->have += bytes;
    return MU_OK;
}

static mu_status take_drop(mu_channel *channel, const mu_request *request)
{
    mu_cursor cursor = mu__cursor(request->data, request->bytes);
    mu_arriving **at = find(channel, mu__cursor_u64_little(&cursor));
    if (*at != NULL)
        forget(channel, at, true);
    return MU_OK;
}

// What a request of the channel comes to: its answer is written to `out`.
static mu_status take(mu_channel *channel, const mu_request *request, uint8_t out[MU_SLOTS_CHALLENGE], size_t *bytes)
{
    if (strcmp(request->method, "rpc.part") == 0)
        return take_part(channel, request, false);
    if (strcmp(request->method, "rpc.slot") == 0)
        return take_part(channel, request, true);
    if (strcmp(request->method, "rpc.drop") == 0)
        return take_drop(channel, request);
    return mu__sharing_asked(channel, request, out, bytes);
}

bool mu__channel_asked(mu_channel *channel, const mu_request *request)
{
    static const char *const methods[] = {"rpc.part", "rpc.slot", "rpc.drop", "rpc.memory"};
    uint8_t answer[MU_SLOTS_CHALLENGE];
    mu_error_value error = {.code = MU_OK};
    size_t bytes = 0, i = 0;
    while (i < MU_COUNT(methods) && strcmp(request->method, methods[i]) != 0)
        i++;
    if (i == MU_COUNT(methods))
        return false;
    if (take(channel, request, answer, &bytes) != MU_OK) {
        mu__error_move(&error);
        bytes = strlen(error.message);
    }
    const void *data = error.code == MU_OK ? (const void *)answer : error.message;
    if (mu__session_reply(channel->session,
                          &(mu_reply){.id = request->id, .code = error.code, .data = data, .bytes = bytes}) != MU_OK)
        mu__error_move(&error); // the other end's part runs into its deadline
    return true;
}

mu_message *mu__channel_take(mu_channel *channel, uint64_t transfer)
{
    mu_arriving **at = find(channel, transfer);
    if (*at == NULL || (*at)->have != (*at)->message->bytes)
        return NULL;
    mu_message *message = mu_retain((*at)->message);
    forget(channel, at, false);
    return message;
}

void mu__channel_end(mu_channel *channel)
{
    while (channel->outgoing != NULL) {
        mu_outgoing *out = channel->outgoing;
        out->failed = out->failed != MU_OK ? out->failed : MU_UNAVAILABLE;
        out->n_unanswered = 0;
        settle(out);
    }
    while (channel->arriving != NULL)
        forget(channel, &channel->arriving, true);
    mu__free(channel->part);
    mu__sharing_end(channel);
    *channel = (mu_channel){.session = channel->session, .budget = channel->budget};
}

void mu__channel_begin(mu_channel *channel, mu_node *node, int member, mu_budget *budget)
{
    *channel =
        (mu_channel){.node = node, .member = member, .session = &node->members[member]->session, .budget = budget};
}

bool mu__channel_fits_inline(mu_channel *channel, size_t bytes)
{
    if (bytes > MU_RPC_SHARED && channel->sharing == MU_SHARING_POSSIBLE)
        mu__sharing_ask(channel);
    return bytes <= (size_t)(channel->sharing == MU_SHARING_YES ? MU_RPC_SHARED : MU_RPC_INLINE);
}
