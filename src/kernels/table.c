// One instruction set's table of kernels. Compiled once per set, like the kernels that it lists; kernels.c chooses
// the table to use.
#include "kernel_slots.h"

#define QUOTE_TOKEN(x)  #x
#define QUOTE(x)        QUOTE_TOKEN(x)
#define FILL_SLOT(name) .name = MU_KERNEL(name),

extern const mu_kernels MU_KERNEL(table);
const mu_kernels MU_KERNEL(table) = {.isa = QUOTE(MU_ISA), MU_KERNEL_SLOTS(FILL_SLOT)};
