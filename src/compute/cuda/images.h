// SPDX-License-Identifier: Apache-2.0
/*
 * The compiled kernels that are built into the program, one image per source of
 * compute/cuda/device. The table is written by cmake/cuda.cmake; it is empty in a program built
 * without the CUDA toolkit.
 */
#ifndef LS_COMPUTE_CUDA_IMAGES_H
#define LS_COMPUTE_CUDA_IMAGES_H

typedef struct ls_cuda_image {
    /* The source without its ending: "elementwise". NULL ends the table. */
    const char *name;
    const unsigned char *begin, *end;
} ls_cuda_image;

extern const ls_cuda_image ls_cuda_images[];

#endif
