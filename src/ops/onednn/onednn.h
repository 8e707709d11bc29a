// A thin layer over oneDNN: a list of primitives whose memories are bound to pointers at each run.
//
// An op's prepare builds a mu_dnnl: it declares the operands, places intermediate arrays in the plan's scratch, appends
// primitives, and finishes. After a failure the calls do nothing, so the sequence is checked once, by mu__dnnl_finish,
// which also declines operations for which oneDNN has only its slow reference code. A mu_dnnl belongs to the thread
// that made it, because oneDNN's primitives depend on that thread's team size.
#ifndef MU_SRC_OPS_ONEDNN_H
#define MU_SRC_OPS_ONEDNN_H

#include "ops/core/op.h"

#include <oneapi/dnnl/dnnl.h>

typedef struct mu_dnnl mu_dnnl;

mu_dnnl *mu__dnnl_new(const char *op); // `op` (static) is for messages; NULL after an error
void mu__dnnl_free(void *dnnl);        // NULL accepted; fits the release slot of ops

// mu__dnnl_use_teams makes oneDNN's parallel regions run on the calling thread's team (onednn_team.c), once per
// process; returns false if oneDNN still uses libgomp's threads.
bool mu__dnnl_use_teams(void);

// mu__dnnl_isa returns oneDNN's number of the highest instruction set that MUSTER_ISA allows.
int mu__dnnl_isa(void);

// mu__dnnl_type finds the type in which oneDNN computes products of an element type; false if the fast paths do not
// support the type. It is dnnl_f32 for float16, and for bfloat16 unless the processor multiplies bfloat16 faster: such
// operands are converted (mu__run_as_f32).
bool mu__dnnl_type(mu_dtype dtype, dnnl_data_type_t *type);

// mu__dnnl_layout describes an array by its strides in elements (NULL: row-major).
dnnl_memory_desc_t mu__dnnl_layout(mu_dnnl *dnnl, int rank, const dnnl_dim_t *dims, dnnl_data_type_t type,
                                   const dnnl_dim_t *strides);
// mu__dnnl_any describes an array whose layout the primitive chooses.
dnnl_memory_desc_t mu__dnnl_any(mu_dnnl *dnnl, int rank, const dnnl_dim_t *dims, dnnl_data_type_t type);

// mu__dnnl_operand makes a memory bound to that operand at each run; mu__dnnl_scratch makes one in scratch.
dnnl_memory_t mu__dnnl_operand(mu_dnnl *dnnl, int operand, const dnnl_memory_desc_t *layout);
dnnl_memory_t mu__dnnl_scratch(mu_dnnl *dnnl, const dnnl_memory_desc_t *layout);

// mu__dnnl_choose returns the first implementation of an operation that is not oneDNN's reference; NULL if there is
// none. `relu` fuses a ReLU after it. `hint` is the forward descriptor for backward operations. The result lives as
// long as the mu_dnnl.
const_dnnl_primitive_desc_t mu__dnnl_choose(mu_dnnl *dnnl, const_dnnl_op_desc_t operation, bool relu,
                                            const_dnnl_primitive_desc_t hint);
// The same, but prefers implementations whose name begins with `kind` ("gemm").
const_dnnl_primitive_desc_t mu__dnnl_choose_kind(mu_dnnl *dnnl, const_dnnl_op_desc_t operation, bool relu,
                                                 const_dnnl_primitive_desc_t hint, const char *kind);

// mu__dnnl_wants returns the layout that an implementation chose for an argument.
const dnnl_memory_desc_t *mu__dnnl_wants(mu_dnnl *dnnl, const_dnnl_primitive_desc_t chosen, dnnl_query_t what);

// mu__dnnl_step appends a chosen operation over n arguments.
void mu__dnnl_step(mu_dnnl *dnnl, const_dnnl_primitive_desc_t chosen, int n, const dnnl_exec_arg_t *args);
// mu__dnnl_reorder appends a copy from one layout to another.
void mu__dnnl_reorder(mu_dnnl *dnnl, dnnl_memory_t from, dnnl_memory_t to);

// mu__dnnl_finish moves the list into `prepare`; otherwise it frees the list and declines or fails.
mu_status mu__dnnl_finish(mu_dnnl *dnnl, mu_prepare *prepare);

// mu__dnnl_run executes the list. Operands are numbered: the kernel's inputs first, then its outputs.
mu_status mu__dnnl_run(const mu_kernel *kernel);
// mu__dnnl_run_from skips the first `first` steps, whose results are still in scratch.
mu_status mu__dnnl_run_from(const mu_kernel *kernel, int first);

#endif
