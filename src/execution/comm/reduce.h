// SPDX-License-Identifier: Apache-2.0
/*
 * What transports add and copy with. ls_comm_reduce_tree itself is in execution/comm/transport.h.
 */
#ifndef LS_EXECUTION_COMM_REDUCE_H
#define LS_EXECUTION_COMM_REDUCE_H

#include "execution/comm/transport.h"

/* The kernels of this processor (compute/cpu/isa/reduce.h). NULL when the environment variable LS_ISA names an instruction set that it
 * lacks (ls_error_text says so): ls_comm_open asks first and fails with it. Thread-safe. */
const struct ls_reduce_kernels *ls_comm_kernels(void);

#endif
