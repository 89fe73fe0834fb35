// SPDX-License-Identifier: Apache-2.0
/*
 * Element types of buffers. Their numbers are stored in files and sent over networks: append new
 * ones, never renumber.
 */
#ifndef LOCKSTEP_DTYPE_H
#define LOCKSTEP_DTYPE_H

/* LS_U8 is for bytes that are moved, never computed with. */
typedef enum ls_dtype { LS_F32, LS_BF16, LS_F16, LS_I32, LS_I64, LS_U8, LS_DTYPE_COUNT } ls_dtype;

#endif
