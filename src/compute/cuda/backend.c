// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/backend_cuda.h"

#include "compute/cuda/activation.h"
#include "compute/cuda/adamw.h"
#include "compute/cuda/attention.h"
#include "compute/cuda/cross_entropy.h"
#include "compute/cuda/elementwise.h"
#include "compute/cuda/embedding.h"
#include "compute/cuda/hash.h"
#include "compute/cuda/linear.h"
#include "compute/cuda/norm.h"
#include "compute/cuda/rotary.h"
#include "compute/cuda/tree_sum.h"

const ls_backend ls_cuda_backend = {
    .device = LS_DEVICE_CUDA,

    .destroy = ls_cuda_queue_destroy,
    .wait = ls_cuda_wait,
    .threads = ls_cuda_threads,
    .alloc = ls_cuda_alloc,
    .free = ls_cuda_free,
    .move = ls_cuda_move,
    .determinism_class = ls_cuda_determinism_class,
    .device_name = ls_cuda_device_name,
    .gemm_peak_flops = ls_cuda_gemm_peak_flops,
    .free_memory = ls_cuda_free_memory,

    .add = ls_cuda_add,
    .fill = ls_cuda_fill,
    .scale = ls_cuda_scale,
    .copy = ls_cuda_copy,
    .find_nonfinite = ls_cuda_find_nonfinite,
    .tree_sum = ls_cuda_tree_sum,
    .adamw = ls_cuda_adamw,
    .embedding_forward = ls_cuda_embedding_forward,
    .embedding_backward = ls_cuda_embedding_backward,
    .linear_forward = ls_cuda_linear_forward,
    .linear_backward_input = ls_cuda_linear_backward_input,
    .linear_backward_weight = ls_cuda_linear_backward_weight,
    .norm_forward = ls_cuda_norm_forward,
    .norm_forward_residual = ls_cuda_norm_forward_residual,
    .norm_backward = ls_cuda_norm_backward,
    .norm_workspace = ls_cuda_norm_workspace,
    .rotary = ls_cuda_rotary,
    .gelu_forward = ls_cuda_gelu_forward,
    .gelu_backward = ls_cuda_gelu_backward,
    .swiglu_forward = ls_cuda_swiglu_forward,
    .swiglu_backward = ls_cuda_swiglu_backward,
    .attention_forward = ls_cuda_attention_forward,
    .attention_backward = ls_cuda_attention_backward,
    .attention_workspace = ls_cuda_attention_workspace,
    .attention_decode = ls_cuda_attention_decode,
    .cross_entropy = ls_cuda_cross_entropy,
    .hash_tiles = ls_cuda_hash_tiles,
};
