// Walking several tensors element by element: broadcasting as strides, and work shared by a team of threads.
//
// A walk describes the output's elements as nested loops. Neighbouring axes are merged wherever all operands allow it,
// so the innermost loop is long and every operand has stride 1 or 0 in it. Independent of what a loop computes.
#ifndef MU_SRC_OPS_LOOPS_H
#define MU_SRC_OPS_LOOPS_H

#include "kernels/kernels.h"
#include "ops/core/op.h"

// Elements from which a kernel shares its work with the team.
#define MU_PARALLEL_FROM 65536

enum { MU_WALK_OPERANDS = 3 };
typedef struct mu_walk {
    int rank, n;                    // at least one axis; operands
    int64_t dims[MU_MAX_RANK];
    int64_t strides[MU_WALK_OPERANDS][MU_MAX_RANK];  // in elements; 0 where an operand is broadcast
} mu_walk;

// mu__walk_make describes out's elements read from n operands that broadcast to it.
void mu__walk_make(mu_walk *walk, const mu_shape *out, int n, const mu_view *operands);

// mu__walk_strided is the same for operands with strides of their own (in elements, per axis of out).
void mu__walk_strided(mu_walk *walk, const mu_shape *out, int n, const int64_t (*strides)[MU_MAX_RANK]);

// Computes one row: `count` elements from out_at on. Operand i starts at at[i] with stride walk->strides[i][rank - 1].
typedef void mu_walk_row(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t count);
void mu__walk_run(const mu_walk *walk, const mu_team *team, mu_walk_row *row, void *arg);

// mu__walk_blocks is the same for elements that are blocks of `block` units each.
void mu__walk_blocks(const mu_walk *walk, const mu_team *team, int64_t block, mu_walk_row *row, void *arg);

// mu__team_for returns the team to use for this amount of work: one thread if waking the others takes longer than the
// work.
const mu_team *mu__team_for(const mu_team *team, int64_t work);

// mu__share_range calls fn(arg, begin, end) so that the calls cover [0, n). It uses the team if `work` (total cost, in
// elements) is large, else the calling thread. No part is smaller than `grain` items.
void mu__share_range(const mu_team *team, int64_t n, int64_t grain, int64_t work,
                     void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);

// mu__streams returns whether a result of this many bytes exceeds the caches, so that non-temporal stores, which do not
// read the replaced lines, are faster. Such a result is computed in tiles of MU_TILE_BYTES, which mu__put_piece stores.
// mu__put_end is the store fence that makes this thread's stores visible to others. Callers of kernels issue it after
// each kernel, because a fence per tile would cost a third of the bandwidth. Code that issues non-temporal stores
// itself must call mu__put_begun.
#define MU_TILE_BYTES 8192
bool mu__streams(int64_t bytes);
void mu__put_piece(void *to, const void *piece, int64_t bytes);
void mu__put_begun(void);
void mu__put_end(void);

// mu__run_tiles calls make(arg, at, n, to) until elements [0, n) of a dense result are computed. If the result streams,
// `to` is a tile that is then stored past the caches; otherwise `to` points into the result, at most `most` elements at
// a time (0: no limit). in, in_bytes: the dense operands, which are prefetched, and their bytes per element of the
// result (0: not dense). binary: the kernel that computes the same from two dense operands of the result's width
// (MU_BINARY_NONE: none); floats: whether the elements are floats.
typedef struct mu_tiles {
    void (*make)(void *arg, int64_t at, int64_t n, void *to);
    void *arg, *out;
    size_t out_bytes;
    int n_in;
    const void *in[MU_WALK_OPERANDS];
    size_t in_bytes[MU_WALK_OPERANDS];
    int64_t most;
    mu_binary binary;
    bool floats;
} mu_tiles;
void mu__run_tiles(const mu_tiles *pieces, bool stream, int64_t n);

// mu__copy_blocks copies n blocks of `bytes`; the steps are the distances in bytes between blocks. mu__fill writes n
// copies of an element of 1, 2, 4 or 8 bytes. stream: use non-temporal stores for blocks that are large enough.
void mu__copy_blocks(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes, int64_t n,
                     bool stream);
void mu__fill(void *to, const void *element, size_t bytes, int64_t n, bool stream);

// mu__fetch_start prefetches the first lines of the next block to copy. Hardware prefetchers cannot predict the start
// of scattered blocks.
void mu__fetch_start(const void *from, size_t bytes);

// mu__bool_reduce_row returns whether any, or all, of n bools are true.
bool mu__bool_reduce_row(bool all, const uint8_t *x, int64_t n);

// mu__accumulate combines n elements of `from` into `into`, in order.
typedef enum mu_combine { MU_COMBINE_ADD, MU_COMBINE_MIN, MU_COMBINE_MAX, MU_COMBINE_MULTIPLY } mu_combine;
void mu__accumulate(mu_combine combine, mu_dtype dtype, void *into, const void *from, int64_t n);

#endif
