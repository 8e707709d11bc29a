// What the parts of Muster's side of the bench of ops share: the table of calls, and the machine's limits.
#ifndef MU_BENCH_OPS_CALLS_H
#define MU_BENCH_OPS_CALLS_H

#include <muster/nn.h>
#include <muster/ops.h>

enum { MAX_OUTPUTS = 64 };

// call runs the op on the arguments that a case lists, returns the number of outputs and leaves them in out. prepare,
// if there is one, is called before, once for each time that the case is chosen, in a pool that stays open meanwhile.
typedef struct call_row {
    const char *name;
    int (*call)(mu_tensor *const *in, mu_tensor **out);
    void (*prepare)(mu_tensor *const *in);
} call_row;
extern const call_row call_elements[], call_shapes[], call_index[], call_nn[], call_grad[], call_cells[], call_order[],
    call_linear[];  // the last of each has no name

// find_call returns the row of this name, or NULL.
const call_row *find_call(const char *name);

// What the files of rows are written with: functions of one result, by an expression or by the name of a function of
// one, two or three tensors; and their rows.
#define ONE(name, expression)                                            \
    static int call_##name(mu_tensor *const *in, mu_tensor **out)        \
    {                                                                    \
        out[0] = (expression);                                           \
        return 1;                                                        \
    }
#define CALL1(name, function) ONE(name, function(in[0]))
#define CALL2(name, function) ONE(name, function(in[0], in[1]))
#define CALL3(name, function) ONE(name, function(in[0], in[1], in[2]))
#define NAMED(name, what) {#name, call_##name, NULL},

static inline int64_t dim(mu_tensor *x, int axis)
{
    return mu_tensor_dim(x, axis);
}

// seconds_per_call runs `run` about wanted_s seconds long, in three tries, and returns the mean of the best one.
double seconds_per_call(void (*run)(const void *arg), const void *arg, double wanted_s);

// print_limit answers "ok" and the bytes per second that a way of moving memory (limits.c; in the order of run.py)
// moves when its operands have so many bytes each, timed for about wanted_s. print_peak answers "ok FLOPS" of a matrix
// product in oneDNN.
void print_limit(int way, size_t operand_bytes, double wanted_s);
void print_peak(void);

#endif
