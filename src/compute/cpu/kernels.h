// SPDX-License-Identifier: Apache-2.0
/*
 * The table of CPU kernels, one per instruction set, and the choice between them.
 *
 * Each source in compute/cpu/isa/ is compiled three times (generic, avx2, avx512) with
 * compute/cpu/simd/simd.h and gives the same bits in all three: reductions run over 16 lanes in one
 * fixed order, every fused multiply-add is explicit, and no function of the C library's mathematics
 * is called. So the choice changes only the speed and is not part of a run's determinism class.
 *
 *   compute/kernels/<op>.c    the public function: checks shapes, calls the queue's backend
 *   compute/cpu/<op>.c        the backend's function: cuts fixed tiles, calls
 *                             ls_queue_kernels(queue)-><op>->...
 *   compute/cpu/isa/<op>.h    struct ls_<op>_kernels: the functions of one op
 *   compute/cpu/isa/<op>.c    const ls_<op>_kernels LS_ISA_NAME(ls_<op>_kernels) = {...}, compiled
 *                             once per instruction set
 *
 * To add an op, write these files, add one line to LS_KERNEL_OPS, and add the backend's function to
 * compute/backend.h, compute/cpu/ops.h and compute/cpu/backend.c.
 */
#ifndef LS_COMPUTE_CPU_KERNELS_H
#define LS_COMPUTE_CPU_KERNELS_H

#include "base/status.h"

#define LS_KERNEL_OPS(X)                                                                                     \
    X(elementwise)                                                                                           \
    X(gemm)                                                                                                  \
    X(norm)                                                                                                  \
    X(rotary)                                                                                                \
    X(activation)                                                                                            \
    X(cross_entropy)                                                                                         \
    X(adamw)                                                                                                 \
    X(attention)                                                                                             \
    X(reduce)                                                                                                \
    X(compress)                                                                                              \
    X(experts)

typedef struct ls_cpu_kernels {
    /* "generic", "avx2" or "avx512". */
    const char *isa;
#define LS_KERNEL_FIELD(op) const struct ls_##op##_kernels *op;
    LS_KERNEL_OPS(LS_KERNEL_FIELD)
#undef LS_KERNEL_FIELD
} ls_cpu_kernels;

/*
 * Selects the best table that this processor can run, or the one that the environment variable
 * LS_ISA names (generic, avx2 or avx512; for tests and measurements). Errors: LS_ERR_INVALID for an
 * unknown name; LS_ERR_UNSUPPORTED if the processor or this build lacks that instruction set.
 */
LS_MUST_CHECK ls_status ls_cpu_kernels_select(const ls_cpu_kernels **kernels_out);

#endif
