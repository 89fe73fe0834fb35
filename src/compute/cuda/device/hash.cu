// SPDX-License-Identifier: Apache-2.0
/*
 * XXH3 of 128 bits with seed 0, for inputs of more than 240 bytes.
 * Source: the specification of XXH3 in the documentation of the xxHash project.
 *
 *   stripe       64 bytes: one word of 64 bits for each of eight accumulators
 *   group        16 stripes; after it the accumulators are scrambled
 *
 * Within a group, a stripe only adds to the accumulators, and what it adds depends on its data
 * alone. So all groups are summed in parallel first. Then eight threads walk through the sums.
 */
#include "compute/cuda/device/hash.h"

#include "compute/cuda/device/device.h"

typedef unsigned long long word;

enum {
    THREADS = LS_HASH_THREADS,
    WARPS = THREADS / 32,
    LANES = 8,
    STRIPE_FLOATS = 16,
    GROUP_STRIPES = 16,
    GROUP_FLOATS = GROUP_STRIPES * STRIPE_FLOATS,
    GROUPS_MAX = LS_HASH_BLOCK_FLOATS / GROUP_FLOATS,
    SECRET_WORDS = 24,
};

/* The default secret of XXH3. */
__constant__ const word secret[SECRET_WORDS] = {
    0xbe4ba423396cfeb8ull, 0x1cad21f72c81017cull, 0xdb979083e96dd4deull, 0x1f67b3b7a4a44072ull,
    0x78e5c0cc4ee679cbull, 0x2172ffcc7dd05a82ull, 0x8e2443f7744608b8ull, 0x4c263a81e69035e0ull,
    0xcb00c391bb52283cull, 0xa32e531b8b65d088ull, 0x4ef90da297486471ull, 0xd8acdea946ef1938ull,
    0x3f349ce33f76faa8ull, 0x1d4f0bc7c7bbdcf9ull, 0x3159b4cd4be0518aull, 0x647378d9c97e9fc8ull,
    0xc3ebd33483acc5eaull, 0xeb6313faffa081c5ull, 0x49daf0b751dd0d17ull, 0x9e68d429265516d3ull,
    0xfca1477d58be162bull, 0xce31d07ad1b8f88full, 0x280416958f3acb45ull, 0x7e404bbbcafbd7afull,
};

#define PRIME32_1 0x9e3779b1ull
#define PRIME32_2 0x85ebca77ull
#define PRIME32_3 0xc2b2ae3dull
#define PRIME64_1 0x9e3779b185ebca87ull
#define PRIME64_2 0xc2b2ae3d27d4eb4full
#define PRIME64_3 0x165667b19e3779f9ull
#define PRIME64_4 0x85ebca77c2b2ae63ull
#define PRIME64_5 0x27d4eb2f165667c5ull

/* Eight bytes of the secret from any byte on. */
LS_DEVICE word secret_at(int byte)
{
    const int at = byte / 8, shift = byte % 8 * 8;
    return shift == 0 ? secret[at] : secret[at] >> shift | secret[at + 1] << (64 - shift);
}

/* ---- the floats of a tile ---- */

LS_DEVICE uint32_t join(uint32_t weight, uint32_t rest)
{
    return (weight << 16) + (uint32_t)(int32_t)(int16_t)(uint16_t)rest;
}

LS_DEVICE word word_of(uint32_t low, uint32_t high)
{
    return (word)high << 32 | low;
}

LS_DEVICE uint32_t bits_at(const ls_hash_args &args, int64_t i)
{
    return args.values ? __float_as_uint(args.values[i]) : join(args.weights[i], (uint16_t)args.rests[i]);
}

/* Two words from float `i` on, a multiple of four in the tile. */
LS_DEVICE void load_words(const ls_hash_args &args, int64_t i, word (&x)[2])
{
    if (!args.aligned) {
        x[0] = word_of(bits_at(args, i), bits_at(args, i + 1));
        x[1] = word_of(bits_at(args, i + 2), bits_at(args, i + 3));
    } else if (args.values) {
        const uint4 bits = *(const uint4 *)(args.values + i);
        x[0] = word_of(bits.x, bits.y);
        x[1] = word_of(bits.z, bits.w);
    } else {
        const uint2 weights = *(const uint2 *)(args.weights + i), rests = *(const uint2 *)(args.rests + i);
        x[0] = word_of(join(weights.x & 0xffffu, rests.x), join(weights.x >> 16, rests.x >> 16));
        x[1] = word_of(join(weights.y & 0xffffu, rests.y), join(weights.y >> 16, rests.y >> 16));
    }
}

/* ---- sums of groups ---- */

LS_DEVICE word product_of_halves(word x)
{
    return (word)(uint32_t)x * (uint32_t)(x >> 32);
}

/* The words of the secret that a thread uses in every group. */
struct thread_keys {
    word of[2][2];
};

LS_DEVICE thread_keys keys_of_thread(void)
{
    thread_keys keys;
    const int stripe = threadIdx.x % 32 / 4, j = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        keys.of[i / 2][i % 2] = secret[stripe + i / 2 * 8 + 2 * j + i % 2];
    }
    return keys;
}

/*
 * The sums of a group of `stripes`, by one warp. A thread has two words of every eighth stripe:
 * those of the accumulators 2 j and 2 j + 1, where j is the thread modulo 4.
 */
LS_DEVICE void sum_group(const ls_hash_args &args, const thread_keys &keys, int64_t first, int stripes,
                         word (&sums)[LANES])
{
    const int lane = threadIdx.x % 32, j = lane % 4;
    word sum[2] = {0, 0};
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int stripe = lane / 4 + half * 8;
        if (stripe < stripes) {
            word x[2];
            load_words(args, first + stripe * STRIPE_FLOATS + j * 4, x);
            sum[0] += x[1] + product_of_halves(x[0] ^ keys.of[half][0]);
            sum[1] += x[0] + product_of_halves(x[1] ^ keys.of[half][1]);
        }
    }
#pragma unroll
    for (int apart = 4; apart < 32; apart *= 2) {
        sum[0] += __shfl_xor_sync(~0u, sum[0], apart);
        sum[1] += __shfl_xor_sync(~0u, sum[1], apart);
    }
    if (lane < 4) {
        sums[2 * j] = sum[0];
        sums[2 * j + 1] = sum[1];
    }
}

/* ---- from sums to the hash ---- */

LS_DEVICE word first_accumulator(int lane)
{
    const word even = lane == 0 ? PRIME32_3 : lane == 2 ? PRIME64_2 : lane == 4 ? PRIME64_4 : PRIME64_5;
    const word odd = lane == 1 ? PRIME64_1 : lane == 3 ? PRIME64_3 : lane == 5 ? PRIME32_2 : PRIME32_1;
    return lane % 2 == 0 ? even : odd;
}

/* What the last 64 bytes of a tile add, which may overlap the stripe before them. */
LS_DEVICE word last_stripe(const ls_hash_args &args, int64_t end, int lane)
{
    const int64_t own = end - STRIPE_FLOATS + 2 * lane, other = end - STRIPE_FLOATS + 2 * (lane ^ 1);
    const word x = word_of(bits_at(args, own), bits_at(args, own + 1));
    return word_of(bits_at(args, other), bits_at(args, other + 1)) +
           product_of_halves(x ^ secret_at(121 + 8 * lane));
}

/* An accumulator after all groups: `whole` of 16 stripes, and one of fewer. */
LS_DEVICE word accumulate(const word (*sums)[LANES], int whole, int lane)
{
    const word key = secret[16 + lane];
    word x = first_accumulator(lane);
    for (int group = 0; group < whole; group++) {
        x += sums[group][lane];
        x = (x ^ x >> 47 ^ key) * PRIME32_1;
    }
    return x + sums[whole][lane];
}

LS_DEVICE word fold_product(word a, word b)
{
    return a * b ^ __umul64hi(a, b);
}

LS_DEVICE word merge(const word (&accumulators)[LANES], int secret_byte, word start)
{
    word x = start;
    for (int i = 0; i < LANES; i += 2) {
        x += fold_product(accumulators[i] ^ secret_at(secret_byte + 8 * i),
                          accumulators[i + 1] ^ secret_at(secret_byte + 8 * i + 8));
    }
    x = (x ^ x >> 37) * 0x165667919e3779f9ull;
    return x ^ x >> 32;
}

LS_KERNEL hash_tiles(ls_hash_args args)
{
    __shared__ word sums[GROUPS_MAX][LANES], accumulators[LANES];
    const int64_t first = (int64_t)blockIdx.x * LS_HASH_BLOCK_FLOATS, left = args.count - first;
    const int floats = left < LS_HASH_BLOCK_FLOATS ? (int)left : (int)LS_HASH_BLOCK_FLOATS;
    /* The last stripe is not one of a group, even if nothing is missing from it. */
    const int stripes = (floats * 4 - 1) / (STRIPE_FLOATS * 4), whole = stripes / GROUP_STRIPES;
    const thread_keys keys = keys_of_thread();
    for (int group = threadIdx.x / 32; group <= whole; group += WARPS) {
        const int rest = stripes - group * GROUP_STRIPES;
        sum_group(args, keys, first + group * GROUP_FLOATS, rest < GROUP_STRIPES ? rest : (int)GROUP_STRIPES,
                  sums[group]);
    }
    __syncthreads();
    if (threadIdx.x < LANES) {
        accumulators[threadIdx.x] =
            accumulate(sums, whole, threadIdx.x) + last_stripe(args, first + floats, threadIdx.x);
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        const word bytes = (word)floats * 4;
        args.hashes[2 * (int64_t)blockIdx.x + threadIdx.x] =
            threadIdx.x == 0 ? merge(accumulators, 11, bytes * PRIME64_1)
                             : merge(accumulators, 117, ~(bytes * PRIME64_2));
    }
}
LS_KERNEL_EXPORT(hash_tiles)
