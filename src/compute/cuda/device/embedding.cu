// SPDX-License-Identifier: Apache-2.0
#include "compute/cuda/device/embedding.h"

#include "compute/cuda/device/runs.h"

/* ---- forward ---- */

/* The rows of a block: where they come from. */
struct gather_rows {
    int32_t tokens[LS_GATHER_ROWS];
    int64_t positions[LS_GATHER_ROWS];
};

/* Tokens are in memory of the host, so a block reads those of several rows at once. */
LS_DEVICE void load_rows(const ls_gather_args &args, int64_t first, uint32_t count, gather_rows &rows)
{
    if (threadIdx.x < count) {
        const int64_t row = first + threadIdx.x;
        const int32_t token = args.tokens[row];
        if (token < 0 || token >= args.vocab) {
            __trap();
        }
        rows.tokens[threadIdx.x] = token;
        rows.positions[threadIdx.x] =
            args.first_position + row % args.positions_per_sequence - (args.first ? args.first[row] : 0);
    }
    __syncthreads();
}

template <class T> LS_DEVICE void gather(const ls_gather_args &args)
{
    constexpr int WIDTH = 16 / sizeof(T), BATCH = 16 / WIDTH;
    __shared__ gather_rows rows;
    const int64_t first = (int64_t)blockIdx.x * LS_GATHER_ROWS, left = args.rows - first;
    const uint32_t count = left < LS_GATHER_ROWS ? (uint32_t)left : (uint32_t)LS_GATHER_ROWS;
    load_rows(args, first, count, rows);
    const uint32_t row_units = (uint32_t)((args.cols + WIDTH - 1) / WIDTH), units = count * row_units;
    for (uint32_t begin = threadIdx.x; begin < units; begin += BATCH * LS_GATHER_THREADS) {
        float x[BATCH][WIDTH], p[BATCH][WIDTH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const uint32_t unit = begin + k * LS_GATHER_THREADS, row = unit / row_units;
            const int64_t col = (int64_t)(unit - row * row_units) * WIDTH, cols_left = args.cols - col;
            if (unit >= units) {
                continue;
            }
            load_part((const T *)args.table + rows.tokens[row] * args.table_stride + col, cols_left,
                      args.aligned, x[k]);
            if (args.positions) {
                load_part((const T *)args.positions + rows.positions[row] * args.positions_stride + col,
                          cols_left, args.aligned, p[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const uint32_t unit = begin + k * LS_GATHER_THREADS, row = unit / row_units;
            const int64_t col = (int64_t)(unit - row * row_units) * WIDTH;
            if (unit >= units) {
                continue;
            }
#pragma unroll
            for (int j = 0; j < WIDTH; j++) {
                x[k][j] = args.positions ? x[k][j] + p[k][j] : x[k][j];
            }
            store_part((T *)args.out + (first + row) * args.out_stride + col, args.cols - col, args.aligned,
                       x[k]);
        }
    }
}

LS_KERNEL gather_f32(ls_gather_args args)
{
    gather<float>(args);
}
LS_KERNEL_EXPORT(gather_f32)

LS_KERNEL gather_bf16(ls_gather_args args)
{
    gather<bf16>(args);
}
LS_KERNEL_EXPORT(gather_bf16)

/* ---- the order of the rows ---- */

enum {
    SORT_DIGITS = 1 << LS_SORT_DIGIT_BITS_MAX,
    SORT_WARPS = LS_SORT_THREADS / 32,
    /* Rounds in which a warp takes its keys, 32 at a time. */
    SORT_ROUNDS = LS_SORT_TILE / LS_SORT_THREADS,
};

LS_DEVICE uint32_t digit_of(const ls_sort_args &args, int32_t key)
{
    return (uint32_t)key >> args.shift & ((1u << args.digit_bits) - 1u);
}

LS_KERNEL sort_count(ls_sort_args args)
{
    __shared__ uint32_t counts[SORT_DIGITS];
    for (int d = threadIdx.x; d < SORT_DIGITS; d += LS_SORT_THREADS) {
        counts[d] = 0;
    }
    __syncthreads();
    const int64_t first = (int64_t)blockIdx.x * LS_SORT_TILE;
    for (int64_t i = first + threadIdx.x; i < first + LS_SORT_TILE && i < args.count; i += LS_SORT_THREADS) {
        if (args.keys[i] < 0 || args.keys[i] >= args.keys_below) {
            __trap();
        }
        /* A sum of integers does not depend on the order of the threads. */
        atomicAdd(&counts[digit_of(args, args.keys[i])], 1u);
    }
    __syncthreads();
    for (int d = threadIdx.x; d < 1 << args.digit_bits; d += LS_SORT_THREADS) {
        args.counts[d * args.tiles + blockIdx.x] = counts[d];
    }
}
LS_KERNEL_EXPORT(sort_count)

/* The sum of `x` over the lanes before this one. */
LS_DEVICE uint32_t sum_before_in_warp(uint32_t x)
{
    uint32_t sum = x;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
        const uint32_t other = __shfl_sync(~0u, sum, (int)(threadIdx.x % 32 - apart) & 31);
        sum += threadIdx.x % 32 >= (uint32_t)apart ? other : 0u;
    }
    return sum - x;
}

/* Replaces each count by the sum of those before it. One block. */
LS_KERNEL sort_scan(ls_sort_args args)
{
    __shared__ uint32_t of_warp[32];
    const int64_t entries = args.tiles << args.digit_bits;
    const int64_t each = (entries + LS_SCAN_THREADS - 1) / LS_SCAN_THREADS;
    const int64_t begin = threadIdx.x * each;
    const int64_t end = begin + each < entries ? begin + each : entries;
    uint32_t sum = 0;
    for (int64_t i = begin; i < end; i++) {
        sum += args.counts[i];
    }
    const uint32_t before = sum_before_in_warp(sum);
    if (threadIdx.x % 32 == 31) {
        of_warp[threadIdx.x / 32] = before + sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        of_warp[threadIdx.x] = sum_before_in_warp(of_warp[threadIdx.x]);
    }
    __syncthreads();
    uint32_t place = of_warp[threadIdx.x / 32] + before;
    for (int64_t i = begin; i < end; i++) {
        const uint32_t count = args.counts[i];
        args.counts[i] = place;
        place += count;
    }
}
LS_KERNEL_EXPORT(sort_scan)

/* The lanes among `voters` that have this lane's digit. */
LS_DEVICE uint32_t lanes_alike(uint32_t digit, int digit_bits, uint32_t voters)
{
    uint32_t alike = voters;
    for (int bit = 0; bit < digit_bits; bit++) {
        const bool is_set = digit >> bit & 1u;
        const uint32_t votes = __ballot_sync(~0u, is_set);
        alike &= is_set ? votes : ~votes;
    }
    return alike;
}

/* Moves keys and rows to their places. A warp takes its keys in order, and warps follow each
 * other. */
LS_KERNEL sort_move(ls_sort_args args)
{
    /* How often a warp has a digit; then the place of its first key with that digit. */
    __shared__ uint32_t places[SORT_WARPS][SORT_DIGITS];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int d = threadIdx.x; d < SORT_WARPS * SORT_DIGITS; d += LS_SORT_THREADS) {
        places[d / SORT_DIGITS][d % SORT_DIGITS] = 0;
    }
    __syncthreads();
    const int64_t first = (int64_t)blockIdx.x * LS_SORT_TILE + warp * (SORT_ROUNDS * 32) + lane;
    int32_t keys[SORT_ROUNDS];
    uint32_t ranks[SORT_ROUNDS];
#pragma unroll
    for (int k = 0; k < SORT_ROUNDS; k++) {
        const bool inside = first + k * 32 < args.count;
        keys[k] = inside ? args.keys[first + k * 32] : 0;
        const uint32_t digit = digit_of(args, keys[k]);
        const uint32_t alike = lanes_alike(digit, args.digit_bits, __ballot_sync(~0u, inside));
        const uint32_t lower = alike & ((1u << lane) - 1u);
        ranks[k] = places[warp][digit] + __popc(lower);
        __syncwarp();
        if (inside && lower == 0) {
            places[warp][digit] += __popc(alike);
        }
        __syncwarp();
    }
    __syncthreads();
    for (int d = threadIdx.x; d < 1 << args.digit_bits; d += LS_SORT_THREADS) {
        uint32_t place = args.counts[d * args.tiles + blockIdx.x];
        for (int w = 0; w < SORT_WARPS; w++) {
            const uint32_t count = places[w][d];
            places[w][d] = place;
            place += count;
        }
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < SORT_ROUNDS; k++) {
        const int64_t i = first + k * 32;
        if (i < args.count) {
            const uint32_t place = places[warp][digit_of(args, keys[k])] + ranks[k];
            args.sorted_keys[place] = keys[k];
            args.sorted_rows[place] = args.rows ? args.rows[i] : (int32_t)i;
        }
    }
}
LS_KERNEL_EXPORT(sort_move)

LS_KERNEL position_keys(ls_position_keys_args args)
{
    const int64_t row = (int64_t)blockIdx.x * LS_GATHER_THREADS + threadIdx.x;
    if (row < args.rows) {
        args.keys[row] = (int32_t)(row % args.length) - args.first[row];
    }
}
LS_KERNEL_EXPORT(position_keys)

/* ---- backward ---- */

enum { WIDTH = LS_SCATTER_COLS };

/* The first column of this thread. Blocks along y are slices of columns. */
LS_DEVICE int64_t first_col(void)
{
    return ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * WIDTH;
}

LS_DEVICE void add_run(float (&sum)[WIDTH], const float (&x)[WIDTH])
{
#pragma unroll
    for (int j = 0; j < WIDTH; j++) {
        sum[j] += x[j];
    }
}

/* to += sum, for `left` columns. */
LS_DEVICE void add_to_memory(float *to, int64_t left, bool aligned, const float (&sum)[WIDTH])
{
    float x[WIDTH];
    load_part(to, left, aligned, x);
    add_run(x, sum);
    store_part(to, left, aligned, x);
}

/* A tile of sorted rows, and the keys on both sides of it. */
struct scatter_tile {
    int32_t keys[LS_SCATTER_ROWS], rows[LS_SCATTER_ROWS];
    int32_t key_before, key_after; /* -1: none */
    int count;
};

LS_DEVICE void load_tile(const ls_scatter_args &args, scatter_tile &tile)
{
    const int64_t first = (int64_t)blockIdx.x * LS_SCATTER_ROWS, left = args.count - first;
    const int count = left < LS_SCATTER_ROWS ? (int)left : (int)LS_SCATTER_ROWS;
    if ((int)threadIdx.x < count) {
        tile.keys[threadIdx.x] = args.keys[first + threadIdx.x];
        tile.rows[threadIdx.x] = args.rows[first + threadIdx.x];
    }
    if (threadIdx.x == 0) {
        tile.count = count;
        tile.key_before = first > 0 ? args.keys[first - 1] : -1;
        tile.key_after = first + count < args.count ? args.keys[first + count] : -1;
    }
    __syncthreads();
}

/* Stores the sum of the rows [begin, end) of a tile, all of one token. */
LS_DEVICE void store_run_sum(const ls_scatter_args &args, const scatter_tile &tile, int begin, int end,
                             const float (&sum)[WIDTH])
{
    const int32_t key = tile.keys[begin];
    const int64_t left = args.cols - first_col();
    const bool begins_before = begin == 0 && tile.key_before == key;
    const bool ends_after = end == tile.count && tile.key_after == key;
    if (begins_before || ends_after) {
        const int64_t slot = 2 * (int64_t)blockIdx.x + (begin > 0);
        store_part(args.partials + slot * args.partial_stride + first_col(), left, true, sum);
        return;
    }
    add_to_memory(args.dtable + key * args.dtable_stride + first_col(), left, args.aligned, sum);
}

template <class T> LS_DEVICE void scatter(const ls_scatter_args &args)
{
    constexpr int BATCH = 8;
    __shared__ scatter_tile tile;
    load_tile(args, tile);
    const int64_t left = args.cols - first_col();
    if (left <= 0) {
        return;
    }
    float sum[WIDTH] = {};
    int begin = 0;
    for (int i = 0; i < tile.count; i += BATCH) {
        float x[BATCH][WIDTH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (i + k < tile.count) {
                load_part((const T *)args.dout + tile.rows[i + k] * args.dout_stride + first_col(), left,
                          args.aligned, x[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int at = i + k;
            if (at >= tile.count) {
                continue;
            }
            add_run(sum, x[k]);
            if (at + 1 == tile.count || tile.keys[at + 1] != tile.keys[at]) {
                store_run_sum(args, tile, begin, at + 1, sum);
                begin = at + 1;
                sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
            }
        }
    }
}

LS_KERNEL scatter_f32(ls_scatter_args args)
{
    scatter<float>(args);
}
LS_KERNEL_EXPORT(scatter_f32)

LS_KERNEL scatter_bf16(ls_scatter_args args)
{
    scatter<bf16>(args);
}
LS_KERNEL_EXPORT(scatter_bf16)

/* Adds the sums of a token that begins in this tile and goes on in the next ones. */
LS_KERNEL scatter_spans(ls_scatter_args args)
{
    constexpr int BATCH = 8;
    const int64_t tile = blockIdx.x, first = tile * LS_SCATTER_ROWS, next = first + LS_SCATTER_ROWS;
    const int64_t left = args.cols - first_col();
    if (next >= args.count || args.keys[next] != args.keys[next - 1] || left <= 0) {
        return;
    }
    const int32_t key = args.keys[next - 1];
    const bool from_begin = args.keys[first] == key;
    if (from_begin && first > 0 && args.keys[first - 1] == key) {
        return;
    }
    float sum[WIDTH];
    load_part(args.partials + (2 * tile + !from_begin) * args.partial_stride + first_col(), left, true, sum);
    bool more = true;
    for (int64_t t = tile + 1; more; t += BATCH) {
        float x[BATCH][WIDTH];
        bool is_ours[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            is_ours[k] = t + k < args.tiles && args.keys[(t + k) * LS_SCATTER_ROWS] == key;
            if (is_ours[k]) {
                load_part(args.partials + 2 * (t + k) * args.partial_stride + first_col(), left, true, x[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (is_ours[k]) {
                add_run(sum, x[k]);
            }
        }
        more = is_ours[BATCH - 1];
    }
    add_to_memory(args.dtable + key * args.dtable_stride + first_col(), left, args.aligned, sum);
}
LS_KERNEL_EXPORT(scatter_spans)

/* The block has one position, which it adds over the sequences in order. */
template <class T> LS_DEVICE void add_positions(const ls_positions_args &args)
{
    constexpr int BATCH = 8;
    const int64_t left = args.cols - first_col();
    if (left <= 0) {
        return;
    }
    float sum[WIDTH] = {};
    for (int64_t r = blockIdx.x; r < args.rows; r += BATCH * args.positions_per_sequence) {
        float x[BATCH][WIDTH];
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            const int64_t row = r + k * args.positions_per_sequence;
            if (row < args.rows) {
                load_part((const T *)args.dout + row * args.dout_stride + first_col(), left, args.aligned,
                          x[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < BATCH; k++) {
            if (r + k * args.positions_per_sequence < args.rows) {
                add_run(sum, x[k]);
            }
        }
    }
    add_to_memory(args.dpositions + blockIdx.x * args.dpositions_stride + first_col(), left, args.aligned,
                  sum);
}

LS_KERNEL positions_f32(ls_positions_args args)
{
    add_positions<float>(args);
}
LS_KERNEL_EXPORT(positions_f32)

LS_KERNEL positions_bf16(ls_positions_args args)
{
    add_positions<bf16>(args);
}
LS_KERNEL_EXPORT(positions_bf16)
