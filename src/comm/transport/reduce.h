// SPDX-License-Identifier: Apache-2.0
/*
 * The kernels with which transports add and copy. ls_comm_reduce_tree is declared in
 * comm/transport/transport.h.
 */
#ifndef LS_COMM_TRANSPORT_REDUCE_H
#define LS_COMM_TRANSPORT_REDUCE_H

#include "comm/transport/transport.h"

/* The kernels for this processor (compute/cpu/isa/reduce.h). NULL, with the reason in
 * ls_error_text, if the variable LS_ISA names an instruction set that the processor lacks;
 * ls_comm_open checks this first, so transports need not. Thread-safe. */
const struct ls_reduce_kernels *ls_comm_kernels(void);

#endif
