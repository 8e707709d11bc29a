// `muster ops`: prints the op definitions as a matrix, one line per op.
//
// A missing gradient, fast CPU kernel or lowering is a dash; the last column says why.
#include "engine/cpu/fused_ops.h"
#include "ops/core/op.h"
#include "tools/tools.h"

#include <muster/tensor.h>

enum { TYPES_WIDTH = 34, REASON_BYTES = 300 };

static const mu_dtype dtypes[] = {
#define MU_DTYPE(id, name, type, number, hlo, safetensors, kind) MU_##id,
#include "tensor/dtype.def"
#undef MU_DTYPE
};

// Writes "f32 f64 i32", or one word for a common set of types.
static const char *types_text(unsigned allowed, char text[TYPES_WIDTH * 2])
{
    size_t used = 0;
    if (allowed == 0 || allowed == MU_ALL_DTYPES)
        return "any";
    if (allowed == MU_NUMBERS)
        return "numbers";
    if (allowed == MU_FLOATS)
        return "floats";
    if (allowed == MU_INTS)
        return "integers";
    text[0] = '\0';
    for (size_t i = 0; i < MU_COUNT(dtypes); i++)
        if (allowed & MU_DTYPE_BIT(dtypes[i]))
            used += (size_t)snprintf(text + used, TYPES_WIDTH * 2 - used, "%s%s", used ? " " : "",
                                     mu__dtype_hlo(dtypes[i]));
    return text;
}

static bool lowers(const mu_op *op) { return op->hlo || op->lower; }

static const char *no_gradient_reason(const mu_op *op)
{
    if (op->flags & (MU_OP_READS | MU_OP_WRITES | MU_OP_EFFECT))
        return "gradient: an effect; tapes follow variables themselves";
    if (op->dtypes && !(op->dtypes & MU_FLOATS))
        return "gradient: no floating-point values";
    return "gradient: constant or not differentiable";
}

// Other engines never see fused ops.
static const char *no_lowering_reason(const mu_op *op)
{
    if (op->no_lowering)
        return op->no_lowering;
    return op == &mu_op_input ? "an argument of the program" : "only the native engine's passes create it";
}

static void reasons_text(const mu_op *op, char text[REASON_BYTES])
{
    snprintf(text, REASON_BYTES, "%s%s%s%s", op->grad ? "" : no_gradient_reason(op), op->grad || lowers(op) ? "" : "; ",
             lowers(op) ? "" : "stablehlo: ", lowers(op) ? "" : no_lowering_reason(op));
}

static void print_op(const mu_op *op)
{
    char types[TYPES_WIDTH * 2], reasons[REASON_BYTES];
    reasons_text(op, reasons);
    printf("%-34s %-12s %-4s %-4s %-4s %-9s %s\n", op->name, types_text(op->dtypes, types), op->grad ? "yes" : "-",
           op->ref ? "yes" : "-", op->cpu.run ? "yes" : "ref", lowers(op) ? "yes" : "-", reasons);
}

// All ops, and after them the fused ones; NULL after the last.
static const mu_op *op_at(int i) { return i < mu__op_count() ? mu__op_at(i) : mu__fused_op_at(i - mu__op_count()); }

static bool run(const mu_tool_arguments *a)
{
    int n_ops = 0, with_gradient = 0, with_cpu = 0, with_hlo = 0;
    (void)a;
    printf("%-34s %-12s %-4s %-4s %-4s %-9s %s\n", "op", "types", "grad", "ref", "cpu", "stablehlo", "why not");
    for (int i = 0; op_at(i); i++, n_ops++) {
        const mu_op *op = op_at(i);
        print_op(op);
        with_gradient += op->grad != NULL;
        with_cpu += op->cpu.run != NULL;
        with_hlo += lowers(op);
    }
    printf("%d ops: %d with a gradient, %d with a fast CPU kernel (the others run their reference loops), %d with a "
           "StableHLO lowering\n",
           n_ops, with_gradient, with_cpu, with_hlo);
    return true;
}

const mu_tool_command mu__tool_ops = {
    .name = "muster ops",
    .usage = "",
    .summary = "list every operation: element types, gradient, engines, and why one is missing",
    .description = "Prints a table of all operations. The columns are the element types, and whether the operation has "
                   "a gradient, a plain reference loop, a fast CPU kernel (\"ref\": it runs the reference loop) and a "
                   "lowering to StableHLO for XLA devices. The last column says why one of them is missing.",
    .example = "muster ops | grep conv\n",
    .run = run,
};
