// SPDX-License-Identifier: Apache-2.0
/* Packing one block. See compute/kernels/compress.h and base/compression.h. */
#ifndef LS_COMPUTE_CPU_ISA_COMPRESS_H
#define LS_COMPUTE_CPU_ISA_COMPRESS_H

#include "base/compression.h"

#include <stdint.h>

typedef struct ls_compress_kernels {
    /* count: 1 to LS_COMPRESSION_BLOCK. x becomes what unpack gives; rest: what it was minus that,
     * NULL: not wanted. */
    void (*pack)(const ls_compression *compression, float *x, int64_t count, unsigned char *packed,
                 float *rest);
    void (*unpack)(const ls_compression *compression, const unsigned char *packed, int64_t count, float *x);
} ls_compress_kernels;

#endif
