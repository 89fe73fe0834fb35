// SPDX-License-Identifier: Apache-2.0
/*
 * Activations of the MLP.
 *
 *   gelu:   y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *   swiglu: y = silu(gate) * up, silu(g) = g / (1 + exp(-g))
 *
 * gelu is the tanh form that GPT-2 was trained with. gate and up are the halves of one (n, 2 f)
 * tensor, y is (n, f). Both use 1 + tanh(u) = 2 sigmoid(2 u), so small results keep their relative
 * accuracy. On the CPU, the error relative to float64 is below 1e-6 (forward) and 1e-5 (backward)
 * for |x| <= 30, and no call fails. A large |x| gives the limits 0 and x, never NaN.
 *
 * Sources: Hendrycks and Gimpel, "Gaussian error linear units", 2016; Shazeer, "GLU variants
 * improve transformer", 2020.
 */
#ifndef LS_COMPUTE_KERNELS_ACTIVATION_H
#define LS_COMPUTE_KERNELS_ACTIVATION_H

#include "compute/queue.h"

LS_MUST_CHECK ls_status ls_gelu_forward(ls_queue *queue, const ls_tensor *x, const ls_tensor *y);
/* dx = dy * gelu'(x); dx may be dy. */
LS_MUST_CHECK ls_status ls_gelu_backward(ls_queue *queue, const ls_tensor *x, const ls_tensor *dy,
                                         const ls_tensor *dx);

LS_MUST_CHECK ls_status ls_swiglu_forward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *y);
/* dgate_up (n, 2 f); may be gate_up itself. */
LS_MUST_CHECK ls_status ls_swiglu_backward(ls_queue *queue, const ls_tensor *gate_up, const ls_tensor *dy,
                                           const ls_tensor *dgate_up);

#endif
