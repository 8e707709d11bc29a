// Shared by Muster's side of the op benchmark: the table of calls, and the machine's limits.
#ifndef MU_BENCH_OPS_CALLS_H
#define MU_BENCH_OPS_CALLS_H

#include <muster/nn.h>
#include <muster/ops.h>

enum { MAX_OUTPUTS = 64 };

// `call` runs the op on the arguments that a case lists, writes the outputs to `out` and returns their number.
// `prepare` (or NULL) runs once each time the case is selected, in a pool that stays open until the next case.
typedef struct call_row {
    const char *name;
    int (*call)(mu_tensor *const *in, mu_tensor **out);
    void (*prepare)(mu_tensor *const *in);
} call_row;
extern const call_row call_elements[], call_shapes[], call_index[], call_nn[], call_grad[], call_cells[], call_order[],
    call_linear[]; // the last entry of each has a NULL name

// find_call returns the entry of this name, or NULL.
const call_row *find_call(const char *name);

// Macros for the tables: functions with one result, from an expression or from a function of one, two or three
// tensors; and their entries.
#define ONE(name, expression)                                     \
    static int call_##name(mu_tensor *const *in, mu_tensor **out) \
    {                                                             \
        out[0] = (expression);                                    \
        return 1;                                                 \
    }
#define CALL1(name, function) ONE(name, function(in[0]))
#define CALL2(name, function) ONE(name, function(in[0], in[1]))
#define CALL3(name, function) ONE(name, function(in[0], in[1], in[2]))
#define NAMED(name, what)     {#name, call_##name, NULL},

static inline int64_t dim(mu_tensor *x, int axis) { return mu_tensor_dim(x, axis); }

// seconds_per_call runs `run` for about wanted_s seconds, in three tries, and returns the mean time of the best try.
double seconds_per_call(void (*run)(const void *arg), const void *arg, double wanted_s);

// print_limit prints "ok" and the bytes per second of one way of moving memory (limits.c, in the order of run.py)
// with operands of operand_bytes bytes, timed for about wanted_s seconds. print_peak prints "ok FLOPS" of oneDNN's
// matrix product.
void print_limit(int way, size_t operand_bytes, double wanted_s);
void print_peak(void);

#endif
