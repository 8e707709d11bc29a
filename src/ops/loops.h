// How element-wise kernels walk several tensors at once: broadcasting as strides, and work shared by a team.
//
// A walk describes the output's elements as nested loops in which neighbouring axes are joined wherever all
// operands allow it, so the innermost loop is long and every operand either steps by one in it or stands
// still. Knows nothing of what a loop computes.
#ifndef MU_SRC_OPS_LOOPS_H
#define MU_SRC_OPS_LOOPS_H

#include "kernels/kernels.h"
#include "ops/op.h"

// From so many elements on a kernel shares its work with the team.
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

// A row: `count` elements from out_at on; operand i starts at at[i] and steps by walk->strides[i][rank - 1].
typedef void mu_walk_row(void *arg, const mu_walk *walk, const int64_t *at, int64_t out_at, int64_t count);
void mu__walk_run(const mu_walk *walk, const mu_team *team, mu_walk_row *row, void *arg);

// mu__walk_blocks is the same where what the walk takes for an element is a block of so many.
void mu__walk_blocks(const mu_walk *walk, const mu_team *team, int64_t block, mu_walk_row *row, void *arg);

// mu__team_for is the team for so much work: of one thread where waking the others takes longer than the work.
const mu_team *mu__team_for(const mu_team *team, int64_t work);

// mu__share_range calls fn(arg, begin, end) so that the calls cover [0, n), on one thread or on the team
// when `work` (n times what each item costs) is large; no part is smaller than `grain` items.
void mu__share_range(const mu_team *team, int64_t n, int64_t grain, int64_t work,
                     void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);

// mu__streams says whether a result of so many bytes is larger than what caches keep, so that writing it past them
// saves reading the lines that it replaces. Such a result is made in pieces of MU_TILE_BYTES and put in place by
// mu__put_piece. mu__put_end makes what this thread has put sure to be seen by others; who runs kernels calls it behind
// each, since a fence for every piece would cost a third of the bandwidth. Who puts pieces by the kernel itself says so
// with mu__put_begun.
#define MU_TILE_BYTES 8192
bool mu__streams(int64_t bytes);
void mu__put_piece(void *to, const void *piece, int64_t bytes);
void mu__put_begun(void);
void mu__put_end(void);

// mu__run_tiles calls make(arg, at, n, to) until elements [0, n) of a dense result are made: with `to` in the result,
// at most `most` at a time (0: any number), or, if it streams, in pieces that are put past the caches. in: the dense
// operands, which are then fetched ahead, and the bytes that each has per element of the result (0: not dense). pair:
// the kernel that does the same with two dense operands of the result's width (MU_BINARY_NONE: none); floats: of
// floats.
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

// mu__copy_blocks copies n blocks of `bytes`, each so many bytes behind the one before; mu__fill writes n copies of an
// element of 1, 2, 4 or 8 bytes. stream: past the caches, where a block is large enough for it.
void mu__copy_blocks(void *to, size_t to_step, const void *from, size_t from_step, size_t bytes, int64_t n,
                     bool stream);
void mu__fill(void *to, const void *element, size_t bytes, int64_t n, bool stream);

// mu__fetch_start asks for the first lines of a block of so many bytes that will be copied after the one at hand, since
// no processor foresees where blocks here and there begin.
void mu__fetch_start(const void *from, size_t bytes);

// mu__bool_reduce_row tells whether any, or all, of n bools are true.
bool mu__bool_reduce_row(bool all, const uint8_t *x, int64_t n);

// mu__accumulate combines n elements of `from` into `into`, in order.
typedef enum mu_combine { MU_COMBINE_ADD, MU_COMBINE_MIN, MU_COMBINE_MAX, MU_COMBINE_MULTIPLY } mu_combine;
void mu__accumulate(mu_combine combine, mu_dtype dtype, void *into, const void *from, int64_t n);

#endif
