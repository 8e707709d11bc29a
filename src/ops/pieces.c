// Element-wise results made piece by piece; see loops.h.
//
// Main idea: a result that is larger than the caches is made in pieces of a kilobyte, which stay in the nearest one and
// are put past all others from there, while what the pieces behind them read is already on its way. Knows nothing of
// what a piece is made of.
#include "ops/loops.h"

#include "kernels/kernels.h"

// A piece's bytes and how far ahead inputs are fetched. Pieces of 4 KB leave the memory idle while each is put.
enum { PIECE = 1024, AHEAD = 4096, LINE = 64 };

static void fetch(const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += LINE)
        __builtin_prefetch(from + at);
}

// Elements of a piece, of which no operand has more than PIECE bytes.
static int64_t piece_elements(const mu_pieces *p)
{
    size_t widest = p->out_bytes;
    for (int i = 0; i < p->n_in; i++)
        widest = MU_MAX(widest, p->in_bytes[i]);
    return PIECE / (int64_t)widest;
}

static void put_pieces(const mu_pieces *p, int64_t n)
{
    const int64_t step = piece_elements(p);
    _Alignas(LINE) char piece[PIECE];
    for (int64_t at = 0; at < n; at += step) {
        const int64_t count = MU_MIN(step, n - at);
        for (int i = 0; i < p->n_in; i++)
            fetch((const char *)p->in[i] + (size_t)at * p->in_bytes[i] + AHEAD, (size_t)count * p->in_bytes[i]);
        p->make(p->arg, at, count, piece);
        mu__put_piece((char *)p->out + (size_t)at * p->out_bytes, piece, count * (int64_t)p->out_bytes);
    }
}

void mu__run_pieces(const mu_pieces *p, bool stream, int64_t n)
{
    const int64_t step = p->most > 0 ? p->most : n;
    if (stream && n * (int64_t)p->out_bytes >= PIECE) {
        put_pieces(p, n);
        return;
    }
    for (int64_t at = 0; at < n; at += step)
        p->make(p->arg, at, MU_MIN(step, n - at), (char *)p->out + (size_t)at * p->out_bytes);
}
