// Fuzzes the frames of a mesh: the input is a sequence of frames; every body is given to the reader of its type and, to
// be sure, to all others. What can be read can be written, and reads the same again.
#include "comm/mesh/key_value.h"
#include "comm/sessions/net.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void demand(bool truth)
{
    if (!truth)
        abort();
}

// The body of the one frame in `out`.
static mu_frame written(const mu_bytes *out)
{
    mu_frame frame = {.body = out->items + MU_FRAME_HEADER};
    demand(mu__frames_header(out->items, 7, &frame.type, &frame.bytes) == MU_OK);
    demand(frame.bytes == out->n - MU_FRAME_HEADER);
    return frame;
}

static void try_hello(const mu_frame *frame)
{
    static mu_hello hello, again;
    mu_bytes out = {0};
    if (!mu__frame_hello(frame, &hello))
        return;
    demand(mu__frame_put_hello(&out, 7, MU_FRAME_HELLO, &hello) == MU_OK);
    const mu_frame copy = written(&out);
    demand(mu__frame_hello(&copy, &again) && memcmp(&hello, &again, sizeof hello) == 0);
    demand(hello.rank != hello.to && hello.rank < hello.ranks && hello.to < hello.ranks);
    mu__bytes_free(&out);
}

// Keys and values are inside of the request, and within their limits.
static void try_key(const mu_request *request)
{
    mu_key_request key;
    if (!mu__key_request_read(request->method, request->data, request->bytes, &key))
        return;
    const uint8_t *begin = request->data, *end = begin + request->bytes;
    demand(key.key_bytes >= 1 && key.key_bytes <= MU_MAX_KEY && key.bytes <= MU_MAX_KEY_VALUE);
    demand(key.key > begin && key.key + key.key_bytes + key.bytes == end);
    demand(key.put ? key.value == key.key + key.key_bytes : key.value == NULL && key.bytes == 0);
    demand(key.put || key.milliseconds <= MU_MOST_KEY_SECONDS * 1000);
}

static void try_requests(const mu_frame *frame)
{
    mu_bytes out = {0};
    mu_request request, same_request;
    mu_reply reply, same_reply;
    if (mu__frame_request(frame, &request)) {
        try_key(&request);
        demand(mu__frame_put_request(&out, 7, &request) == MU_OK);
        const mu_frame copy = written(&out);
        demand(mu__frame_request(&copy, &same_request) && strcmp(request.method, same_request.method) == 0);
        demand(request.id == same_request.id && request.patience_ns == same_request.patience_ns);
        demand(request.bytes == same_request.bytes && memcmp(request.data, same_request.data, request.bytes) == 0);
    }
    out.n = 0;
    if (mu__frame_reply(frame, &reply)) {
        demand(mu__frame_put_reply(&out, 7, &reply) == MU_OK);
        const mu_frame copy = written(&out);
        demand(mu__frame_reply(&copy, &same_reply) && reply.id == same_reply.id && reply.code == same_reply.code &&
               reply.of_caller == same_reply.of_caller);
        demand(reply.bytes == same_reply.bytes && memcmp(reply.data, same_reply.data, reply.bytes) == 0);
    }
    mu__bytes_free(&out);
}

static void try_others(const mu_frame *frame)
{
    mu_bytes out = {0};
    mu_heartbeat beat, same_beat;
    mu_block block, same_block;
    mu_failure news, same_news;
    mu_peer_address where, same_where;
    if (mu__frame_heartbeat(frame, &beat)) {
        demand(mu__frame_put_heartbeat(&out, 7, &beat) == MU_OK);
        const mu_frame copy = written(&out);
        demand(mu__frame_heartbeat(&copy, &same_beat) && strcmp(beat.doing, same_beat.doing) == 0);
    }
    out.n = 0;
    if (mu__frame_block(frame, &block)) {
        demand(mu__frame_put_block(&out, 7, &block) == MU_OK);
        const mu_frame copy = written(&out);
        demand(mu__frame_block(&copy, &same_block) && block.bytes == same_block.bytes &&
               block.number == same_block.number);
    }
    out.n = 0;
    if (mu__frame_failure(frame, &news)) {
        demand(mu__frame_put_failure(&out, 7, MU_FRAME_FAILURE, &news) == MU_OK);
        const mu_frame copy = written(&out);
        demand(mu__frame_failure(&copy, &same_news) && news.code == same_news.code && news.code != MU_OK &&
               news.of_caller == same_news.of_caller);
    }
    out.n = 0;
    if (mu__frame_peer_address(frame, &where)) {
        demand(mu__frame_put_peer_address(&out, 7, &where) == MU_OK);
        const mu_frame copy = written(&out);
        demand(mu__frame_peer_address(&copy, &same_where) && strcmp(where.address, same_where.address) == 0);
    }
    mu__bytes_free(&out);
    demand(mu_error_take().code == MU_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    for (uint32_t number = 0; bytes >= MU_FRAME_HEADER; number++) {
        mu_frame frame = {.body = data + MU_FRAME_HEADER};
        if (mu__frames_header(data, number, &frame.type, &frame.bytes) != MU_OK)
            return 0;
        bytes -= MU_FRAME_HEADER;
        frame.bytes = MU_MIN(frame.bytes, bytes);
        try_hello(&frame);
        try_requests(&frame);
        try_others(&frame);
        data = frame.body + frame.bytes;
        bytes -= frame.bytes;
    }
    return 0;
}
