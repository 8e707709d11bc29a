// Shared by the sources that are compiled once per instruction set: the list of the table's entries and the naming of
// kernels. MU_ISA comes from the build; MU_KERNEL(adam) expands to, for example, mu__adam_avx512, which is declared
// here with its entry's type, so that no prototype is written twice.
#ifndef MU_SRC_KERNELS_KERNEL_SLOTS_H
#define MU_SRC_KERNELS_KERNEL_SLOTS_H

#include "kernels.h"

#define MU_KERNEL_PASTE(slot, isa) mu__##slot##_##isa
#define MU_KERNEL_NAME(slot, isa)  MU_KERNEL_PASTE(slot, isa)
#define MU_KERNEL(slot)            MU_KERNEL_NAME(slot, MU_ISA)

#define MU_KERNEL_SLOTS(X)  \
    X(conv_relu_pool)       \
    X(conv_relu_pool_grad)  \
    X(conv_relu_pool_grads) \
    X(relu_pool)            \
    X(relu_pool_grad)       \
    X(max_pool)             \
    X(max_pool_grad)        \
    X(average_pool)         \
    X(average_pool_grad)    \
    X(bias_relu)            \
    X(relu_grad)            \
    X(bias_grad)            \
    X(softmax_xent)         \
    X(softmax)              \
    X(softmax_row)          \
    X(argmax)               \
    X(adam)                 \
    X(sgd)                  \
    X(softmax_f64)          \
    X(product_f64)          \
    X(product_i32)          \
    X(product_i64)          \
    X(normalize_row)        \
    X(normalize_row_grad)   \
    X(column_sums)          \
    X(affine_columns)       \
    X(mixed_columns)        \
    X(philox)               \
    X(reduce_n)             \
    X(transpose)            \
    X(sort_rows)            \
    X(fold_rows)            \
    X(sum_f64)              \
    X(bitwise)              \
    X(scale)                \
    X(minmax_f32)           \
    X(minmax_f64)           \
    X(minmax_columns_f32)   \
    X(minmax_columns_f64)   \
    X(scale_u8)             \
    X(gather_u8)            \
    X(math_f32)             \
    X(math_f64)             \
    X(math2_f32)            \
    X(math2_f64)            \
    X(widen_f16)            \
    X(widen_bf16)           \
    X(narrow_f16)           \
    X(narrow_bf16)

#define MU_KERNEL_DECLARE(slot) __typeof__(*((mu_kernels *)0)->slot) MU_KERNEL(slot);
MU_KERNEL_SLOTS(MU_KERNEL_DECLARE)

#endif
