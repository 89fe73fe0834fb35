// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/activation.h"

#include "compute/cuda/device/eight.h"

enum { OCTETS = LS_ACTIVATION_OCTETS };

/* exp(x): fast where the result is rounded to bfloat16. */
template <class T> LS_DEVICE float exponential(float x)
{
#ifdef __CUDACC__
    return sizeof(T) == 2 ? __expf(x) : expf(x);
#else
    return expf(x);
#endif
}

template <class T> LS_DEVICE float quotient(float a, float b)
{
#ifdef __CUDACC__
    return sizeof(T) == 2 ? __fdividef(a, b) : a / b;
#else
    return a / b;
#endif
}

/* The octet k of the thread: its row, its first column, and the elements in it, none past the
 * end. */
struct octet {
    int64_t row;
    int column, count;
};

LS_DEVICE octet octet_of(const ls_activation_args &args, int k)
{
    const uint32_t index = (blockIdx.x * OCTETS + k) * LS_ACTIVATION_THREADS + threadIdx.x;
    const uint32_t row = index / args.row_octets;
    octet o;
    o.row = row;
    o.column = (int)(index - row * args.row_octets) * 8;
    o.count = index < args.octets ? args.cols - o.column : 0;
    return o;
}

template <class T>
LS_DEVICE void load_at(const ls_activation_args &args, const octet &o, const void *from, int64_t stride,
                       eight<T> &to)
{
    load_eight((const T *)from + o.row * stride + o.column, o.count, args.vector != 0, to);
}

template <class T>
LS_DEVICE void store_at(const ls_activation_args &args, const octet &o, int64_t first, const float (&x)[8])
{
    eight<T> packed;
    pack(x, packed);
    store_eight((T *)args.out + o.row * args.out_stride + first + o.column, o.count, args.vector != 0,
                packed);
}

/* exp(-2 u), u = sqrt(2/pi) (x + 0.044715 x^3). */
template <class T> LS_DEVICE float gelu_exponential(float x)
{
    const float a = -2.0f * 0.7978845608028654f, b = a * 0.044715f;
    return exponential<T>(x * (a + b * x * x));
}

/* x sigmoid(2 u) */
template <class T> LS_DEVICE float gelu(float x)
{
    return quotient<T>(x, 1.0f + gelu_exponential<T>(x));
}

/* s + x s (1 - s) 2 u', s = sigmoid(2 u). 1 - s is taken so that its relative error is small. */
template <class T> LS_DEVICE float gelu_slope(float x)
{
    const float a = 2.0f * 0.7978845608028654f, b = 3.0f * a * 0.044715f;
    /* Beyond, the slope is 0 or 1; NaN stays NaN. */
    x = x < -50.0f ? -50.0f : x > 50.0f ? 50.0f : x;
    const float e = gelu_exponential<T>(x), s = quotient<T>(1.0f, 1.0f + e);
    const float rest = e < 1.0f ? e * s : 1.0f - s;
    return s + x * s * rest * (a + b * x * x);
}

template <class T> LS_DEVICE void gelu_forward(const ls_activation_args &args)
{
    octet o[OCTETS];
    eight<T> x[OCTETS];
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        o[k] = octet_of(args, k);
        load_at(args, o[k], args.x, args.x_stride, x[k]);
    }
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        float value[8];
        unpack(x[k], value);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            value[i] = gelu<T>(value[i]);
        }
        store_at<T>(args, o[k], 0, value);
    }
}

template <class T> LS_DEVICE void gelu_backward(const ls_activation_args &args)
{
    octet o[OCTETS];
    eight<T> x[OCTETS], dy[OCTETS];
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        o[k] = octet_of(args, k);
        load_at(args, o[k], args.x, args.x_stride, x[k]);
        load_at(args, o[k], args.dy, args.dy_stride, dy[k]);
    }
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        float value[8], slope[8];
        unpack(dy[k], value);
        unpack(x[k], slope);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            value[i] *= gelu_slope<T>(slope[i]);
        }
        store_at<T>(args, o[k], 0, value);
    }
}

template <class T> LS_DEVICE void swiglu_forward(const ls_activation_args &args)
{
    octet o[OCTETS];
    eight<T> gate[OCTETS], up[OCTETS];
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        o[k] = octet_of(args, k);
        load_at(args, o[k], args.x, args.x_stride, gate[k]);
        load_at(args, o[k], (const T *)args.x + args.cols, args.x_stride, up[k]);
    }
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        float g[8], u[8];
        unpack(gate[k], g);
        unpack(up[k], u);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            g[i] = quotient<T>(g[i], 1.0f + exponential<T>(-g[i])) * u[i];
        }
        store_at<T>(args, o[k], 0, g);
    }
}

/* dgate = dy up silu'(g), dup = dy silu(g), silu'(g) = s (1 + g (1 - s)). */
template <class T> LS_DEVICE void swiglu_slopes(float &g, float &u, float dy)
{
    const float e = exponential<T>(-g), s = quotient<T>(1.0f, 1.0f + e);
    const float rest = e < 1.0f ? e * s : 1.0f - s;
    const float silu = g * s;
    g = dy * u * (s + silu * rest);
    u = dy * silu;
}

template <class T> LS_DEVICE void swiglu_backward(const ls_activation_args &args)
{
    octet o[OCTETS];
    eight<T> gate[OCTETS], up[OCTETS], dy[OCTETS];
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        o[k] = octet_of(args, k);
        load_at(args, o[k], args.x, args.x_stride, gate[k]);
        load_at(args, o[k], (const T *)args.x + args.cols, args.x_stride, up[k]);
        load_at(args, o[k], args.dy, args.dy_stride, dy[k]);
    }
#pragma unroll
    for (int k = 0; k < OCTETS; k++) {
        float g[8], u[8], d[8];
        unpack(gate[k], g);
        unpack(up[k], u);
        unpack(dy[k], d);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            swiglu_slopes<T>(g[i], u[i], d[i]);
        }
        store_at<T>(args, o[k], 0, g);
        store_at<T>(args, o[k], args.cols, u);
    }
}

#define ACTIVATION_KERNELS(op)                                                                               \
    LS_KERNEL __launch_bounds__(LS_ACTIVATION_THREADS) op##_f32(ls_activation_args args)                     \
    {                                                                                                        \
        op<float>(args);                                                                                     \
    }                                                                                                        \
    LS_KERNEL_EXPORT(op##_f32)                                                                               \
    LS_KERNEL __launch_bounds__(LS_ACTIVATION_THREADS) op##_bf16(ls_activation_args args)                    \
    {                                                                                                        \
        op<bf16>(args);                                                                                      \
    }                                                                                                        \
    LS_KERNEL_EXPORT(op##_bf16)

ACTIVATION_KERNELS(gelu_forward)
ACTIVATION_KERNELS(gelu_backward)
ACTIVATION_KERNELS(swiglu_forward)
ACTIVATION_KERNELS(swiglu_backward)
