// Frames: encodes and decodes the messages of a mesh.
//
// A frame is a header of 12 bytes (length of the body, type, number) and a body. The length is checked against the
// type's limit before memory is allocated. Frames of one direction are numbered, so that a missing or repeated frame is
// detected. Numbers are little-endian; texts have a length and no control characters. Bodies are untrusted until
// parsed. Independent of senders and their purposes.
#include "comm/sessions/net.h"

static const struct frame_row {
    const char *name;
    size_t limit; // most bytes in the body
} rows[MU_N_FRAMES] = {
    [MU_FRAME_HELLO] = {"hello", 8192},
    [MU_FRAME_WELCOME] = {"welcome", 8192},
    [MU_FRAME_REFUSE] = {"refuse", MU_MAX_REASON + 64},
    [MU_FRAME_ADDRESS] = {"address", MU_MAX_ADDRESS + 64},
    [MU_FRAME_READY] = {"ready", 0},
    [MU_FRAME_GO] = {"go", 0},
    [MU_FRAME_HEARTBEAT] = {"beat", MU_MAX_WORD + 64},
    [MU_FRAME_BLOCK] = {"block", MU_MAX_BLOCK + MU_MAX_WHAT + 64},
    [MU_FRAME_FAILURE] = {"failure", MU_MAX_REASON + 64},
    [MU_FRAME_LEAVE] = {"leave", 0},
    [MU_FRAME_REQUEST] = {"request", MU_MAX_BLOCK + MU_MAX_METHOD + 64},
    [MU_FRAME_REPLY] = {"reply", MU_MAX_BLOCK + 64},
};

const char *mu__frame_name(mu_frame_type type) { return type > 0 && type < MU_N_FRAMES ? rows[type].name : "unknown"; }

// Bit of a failure's code: the program is at fault.
enum { OF_CALLER = 1 << 16 };

// ---- Writing ------------------------------------------------------------------------------------

void mu__bytes_free(mu_bytes *bytes)
{
    mu__free(bytes->items);
    *bytes = (mu_bytes){0};
}

// Reserves memory for the whole frame, so that the writes after it cannot fail.
static mu_status begin(mu_bytes *out, uint32_t number, mu_frame_type type, size_t most)
{
    MU_TRY(mu__grow((void **)&out->items, &out->capacity, out->n + MU_FRAME_HEADER + most, 1));
    uint8_t *header = out->items + out->n;
    memset(header, 0, MU_FRAME_HEADER);
    header[4] = (uint8_t)type;
    for (int i = 0; i < 4; i++)
        header[8 + i] = (uint8_t)(number >> 8 * i);
    out->n += MU_FRAME_HEADER;
    return MU_OK;
}

// `at` is the frame's first byte.
static mu_status end(mu_bytes *out, size_t at)
{
    const size_t bytes = out->n - at - MU_FRAME_HEADER;
    for (int i = 0; i < 4; i++)
        out->items[at + (size_t)i] = (uint8_t)(bytes >> 8 * i);
    return MU_OK;
}

static void put(mu_bytes *out, const void *data, size_t bytes)
{
    if (bytes > 0)
        memcpy(out->items + out->n, data, bytes);
    out->n += bytes;
}

static void put_number(mu_bytes *out, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++)
        out->items[out->n++] = (uint8_t)(number >> 8 * i);
}

static void put_text(mu_bytes *out, const char *text, size_t most)
{
    const size_t bytes = strnlen(text, most);
    put_number(out, bytes, 2);
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        out->items[out->n++] = c < 0x20 || c == 0x7F ? ' ' : c;
    }
}

mu_status mu__frame_put_hello(mu_bytes *out, uint32_t number, mu_frame_type type, const mu_hello *hello)
{
    const size_t at = out->n;
    MU_TRY(begin(out, number, type, sizeof *hello + 64));
    put_number(out, (uint32_t)hello->rank, 4);
    put_number(out, (uint32_t)hello->to, 4);
    put_number(out, (uint32_t)hello->ranks, 4);
    put_number(out, hello->process, 4);
    put_number(out, hello->port, 2);
    put(out, hello->incarnation, sizeof hello->incarnation);
    put(out, hello->peer, sizeof hello->peer);
    put(out, hello->host_id, sizeof hello->host_id);
    put_text(out, hello->version, sizeof hello->version - 1);
    put_text(out, hello->stream, MU_MAX_STREAM_NAME);
    put_text(out, hello->greeting, MU_MAX_GREETING);
    return end(out, at);
}

mu_status mu__frame_put_heartbeat(mu_bytes *out, uint32_t number, const mu_heartbeat *beat)
{
    const size_t at = out->n;
    MU_TRY(begin(out, number, MU_FRAME_HEARTBEAT, sizeof *beat + 64));
    put_number(out, beat->age_ns, 8);
    put_text(out, beat->doing, MU_MAX_WORD);
    return end(out, at);
}

mu_status mu__frame_put_block(mu_bytes *out, uint32_t number, const mu_block *block)
{
    const size_t at = out->n;
    MU_TRY(begin(out, number, MU_FRAME_BLOCK, sizeof *block + block->bytes + 64));
    put_number(out, block->number, 8);
    put_text(out, block->what, MU_MAX_WHAT);
    put(out, block->data, block->bytes);
    return end(out, at);
}

mu_status mu__frame_put_failure(mu_bytes *out, uint32_t number, mu_frame_type type, const mu_failure *failure)
{
    const size_t at = out->n;
    MU_TRY(begin(out, number, type, sizeof *failure + 64));
    put_number(out, (uint64_t)failure->code | (failure->of_caller ? OF_CALLER : 0), 4);
    put_text(out, failure->message, MU_MAX_REASON);
    return end(out, at);
}

mu_status mu__frame_put_peer_address(mu_bytes *out, uint32_t number, const mu_peer_address *address)
{
    const size_t at = out->n;
    MU_TRY(begin(out, number, MU_FRAME_ADDRESS, sizeof *address + 64));
    put_number(out, (uint32_t)address->rank, 4);
    put_text(out, address->address, MU_MAX_ADDRESS);
    return end(out, at);
}

mu_status mu__frame_put_request(mu_bytes *out, uint32_t number, const mu_request *request)
{
    const size_t at = out->n;
    MU_TRY(begin(out, number, MU_FRAME_REQUEST, sizeof *request + request->bytes + 64));
    put_number(out, request->id, 8);
    put_number(out, request->patience_ns, 8);
    put_text(out, request->method, MU_MAX_METHOD);
    put(out, request->data, request->bytes);
    return end(out, at);
}

mu_status mu__frame_put_reply(mu_bytes *out, uint32_t number, const mu_reply *reply)
{
    const size_t at = out->n;
    MU_TRY(begin(out, number, MU_FRAME_REPLY, sizeof *reply + reply->bytes + 64));
    put_number(out, reply->id, 8);
    put_number(out, (uint64_t)reply->code | (reply->of_caller ? OF_CALLER : 0), 4);
    put(out, reply->data, reply->bytes);
    return end(out, at);
}

mu_status mu__frame_put_word(mu_bytes *out, uint32_t number, mu_frame_type type)
{
    const size_t at = out->n;
    MU_TRY(begin(out, number, type, 0));
    return end(out, at);
}

// ---- Reading bodies -----------------------------------------------------------------------------

static uint16_t get_u16(mu_cursor *cursor)
{
    const uint8_t low = mu__cursor_u8(cursor), high = mu__cursor_u8(cursor);
    return (uint16_t)(low | high << 8);
}

static void get_bytes(mu_cursor *cursor, uint8_t *out, size_t bytes)
{
    const uint8_t *from = mu__cursor_bytes(cursor, bytes);
    if (from != NULL)
        memcpy(out, from, bytes);
}

// `out` has most + 1 bytes.
static void get_text(mu_cursor *cursor, char *out, size_t most)
{
    const size_t bytes = get_u16(cursor);
    const uint8_t *from = bytes <= most ? mu__cursor_bytes(cursor, bytes) : NULL;
    if (from == NULL) {
        cursor->bad = true;
        return;
    }
    for (size_t i = 0; i < bytes; i++)
        cursor->bad = cursor->bad || from[i] < 0x20 || from[i] == 0x7F;
    memcpy(out, from, bytes);
    out[bytes] = '\0';
}

static bool at_end(const mu_cursor *cursor) { return !cursor->bad && cursor->at == cursor->end; }

bool mu__frame_hello(const mu_frame *frame, mu_hello *out)
{
    mu_cursor cursor = mu__cursor(frame->body, frame->bytes);
    *out = (mu_hello){0};
    out->rank = (int)mu__cursor_u32_little(&cursor);
    out->to = (int)mu__cursor_u32_little(&cursor);
    out->ranks = (int)mu__cursor_u32_little(&cursor);
    out->process = mu__cursor_u32_little(&cursor);
    out->port = get_u16(&cursor);
    get_bytes(&cursor, out->incarnation, sizeof out->incarnation);
    get_bytes(&cursor, out->peer, sizeof out->peer);
    get_bytes(&cursor, out->host_id, sizeof out->host_id);
    get_text(&cursor, out->version, sizeof out->version - 1);
    get_text(&cursor, out->stream, MU_MAX_STREAM_NAME);
    get_text(&cursor, out->greeting, MU_MAX_GREETING);
    return at_end(&cursor) && out->ranks > 0 && out->rank >= 0 && out->to >= 0 && out->to < out->ranks &&
           out->rank < out->ranks && out->rank != out->to;
}

bool mu__frame_heartbeat(const mu_frame *frame, mu_heartbeat *out)
{
    mu_cursor cursor = mu__cursor(frame->body, frame->bytes);
    *out = (mu_heartbeat){.age_ns = mu__cursor_u64_little(&cursor)};
    get_text(&cursor, out->doing, MU_MAX_WORD);
    return at_end(&cursor);
}

// What is left of a body is data.
static const uint8_t *get_data(mu_cursor *cursor, size_t *bytes)
{
    *bytes = mu__cursor_left(cursor);
    return mu__cursor_bytes(cursor, *bytes);
}

bool mu__frame_request(const mu_frame *frame, mu_request *out)
{
    mu_cursor cursor = mu__cursor(frame->body, frame->bytes);
    *out = (mu_request){.id = mu__cursor_u64_little(&cursor)};
    out->patience_ns = mu__cursor_u64_little(&cursor);
    get_text(&cursor, out->method, MU_MAX_METHOD);
    out->data = get_data(&cursor, &out->bytes);
    return !cursor.bad && out->bytes <= MU_MAX_BLOCK;
}

bool mu__frame_reply(const mu_frame *frame, mu_reply *out)
{
    mu_cursor cursor = mu__cursor(frame->body, frame->bytes);
    *out = (mu_reply){.id = mu__cursor_u64_little(&cursor)};
    const uint32_t word = mu__cursor_u32_little(&cursor), code = word & ~(uint32_t)OF_CALLER;
    out->code = (mu_status)MU_MIN(code, (uint32_t)MU_UNAUTHENTICATED);
    out->of_caller = word != code;
    out->data = get_data(&cursor, &out->bytes);
    return !cursor.bad && code <= MU_UNAUTHENTICATED && (code != MU_OK || !out->of_caller) &&
           out->bytes <= MU_MAX_BLOCK;
}

bool mu__frame_block(const mu_frame *frame, mu_block *out)
{
    mu_cursor cursor = mu__cursor(frame->body, frame->bytes);
    *out = (mu_block){.number = mu__cursor_u64_little(&cursor)};
    get_text(&cursor, out->what, MU_MAX_WHAT);
    out->data = get_data(&cursor, &out->bytes);
    return !cursor.bad && out->bytes <= MU_MAX_BLOCK;
}

bool mu__frame_failure(const mu_frame *frame, mu_failure *out)
{
    mu_cursor cursor = mu__cursor(frame->body, frame->bytes);
    const uint32_t word = mu__cursor_u32_little(&cursor), code = word & ~(uint32_t)OF_CALLER;
    *out = (mu_failure){.code = (mu_status)MU_MIN(code, (uint32_t)MU_UNAUTHENTICATED),
                        .of_caller = (word & OF_CALLER) != 0};
    get_text(&cursor, out->message, MU_MAX_REASON);
    return at_end(&cursor) && code > 0 && code <= MU_UNAUTHENTICATED;
}

bool mu__frame_peer_address(const mu_frame *frame, mu_peer_address *out)
{
    char host[MU_MAX_HOST + 1];
    int port;
    mu_cursor cursor = mu__cursor(frame->body, frame->bytes);
    *out = (mu_peer_address){.rank = (int)mu__cursor_u32_little(&cursor)};
    get_text(&cursor, out->address, MU_MAX_ADDRESS);
    if (!at_end(&cursor) || out->rank < 0)
        return false;
    mu_error_value ignored;
    if (mu__address_split(out->address, host, &port) == MU_OK)
        return true;
    mu__error_move(&ignored);
    return false;
}

// ---- Reading frames -----------------------------------------------------------------------------

mu_status mu__frames_header(const uint8_t header[MU_FRAME_HEADER], uint32_t number, mu_frame_type *type, size_t *bytes)
{
    mu_cursor cursor = mu__cursor(header, MU_FRAME_HEADER);
    *bytes = mu__cursor_u32_little(&cursor);
    const uint32_t kind = mu__cursor_u32_little(&cursor);
    *type = (mu_frame_type)kind;
    const bool good =
        kind > 0 && kind < MU_N_FRAMES && *bytes <= rows[kind].limit && mu__cursor_u32_little(&cursor) == number;
    return good ? MU_OK : MU_DATA_LOSS;
}

static mu_status read_header(mu_frames *frames, mu_link *link, mu_frame_type *type)
{
    size_t moved = 0;
    if (frames->have < MU_FRAME_HEADER) {
        MU_TRY(mu__link_recv(link, frames->header + frames->have, MU_FRAME_HEADER - frames->have, &moved));
        frames->have += moved;
    }
    if (frames->have < MU_FRAME_HEADER)
        return MU_OK;
    MU_TRY(mu__frames_header(frames->header, frames->number, type, &frames->bytes));
    if (frames->body != NULL)
        return MU_OK;
    frames->body = mu__alloc(frames->bytes);
    return frames->body != NULL ? MU_OK : MU_RESOURCE_EXHAUSTED;
}

mu_status mu__frames_next(mu_frames *frames, mu_link *link, mu_frame *out)
{
    *out = (mu_frame){0};
    if (frames->complete) {
        mu__free(frames->body);
        *frames = (mu_frames){.number = frames->number + 1};
    }
    mu_frame_type type = 0;
    MU_TRY(read_header(frames, link, &type));
    if (frames->have < MU_FRAME_HEADER)
        return MU_OK;
    const size_t have = frames->have - MU_FRAME_HEADER;
    size_t moved = 0;
    if (have < frames->bytes)
        MU_TRY(mu__link_recv(link, frames->body + have, frames->bytes - have, &moved));
    frames->have += moved;
    frames->complete = have + moved == frames->bytes;
    if (frames->complete)
        *out = (mu_frame){.type = type, .bytes = frames->bytes, .body = frames->body};
    return MU_OK;
}

void mu__frames_free(mu_frames *frames)
{
    mu__free(frames->body);
    *frames = (mu_frames){0};
}
