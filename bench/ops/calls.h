// What the parts of Muster's side of the bench of ops share: the table of calls, and the machine's limits.
#ifndef MU_BENCH_OPS_CALLS_H
#define MU_BENCH_OPS_CALLS_H

#include <muster/nn.h>
#include <muster/ops.h>

enum { MAX_OUTPUTS = 64 };

// call runs the op on the arguments that cases.py lists and returns the number of outputs, which it leaves in out.
typedef struct call_row {
    const char *name;
    int (*call)(mu_tensor *const *in, mu_tensor **out);
} call_row;
extern const call_row call_rows[];  // the last one has no name

// print_limits answers "ok READ COPY ADD FILL": bytes per second that loops of reading, copying, adding and filling
// move when their operands have so many bytes each. print_peak answers "ok FLOPS" of a matrix product in oneDNN.
void print_limits(size_t operand_bytes);
void print_peak(void);

#endif
