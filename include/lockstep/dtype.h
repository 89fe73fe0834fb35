// SPDX-License-Identifier: Apache-2.0
/*
 * Element types of buffers. Values are written to disk and wire: append, never renumber.
 */
#ifndef LOCKSTEP_DTYPE_H
#define LOCKSTEP_DTYPE_H

/* LS_U8: bytes that are moved and never computed with. */
typedef enum ls_dtype { LS_F32, LS_BF16, LS_F16, LS_I32, LS_I64, LS_U8, LS_DTYPE_COUNT } ls_dtype;

#endif
