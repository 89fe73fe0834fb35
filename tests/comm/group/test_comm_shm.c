// SPDX-License-Identifier: Apache-2.0
/* Collectives over shared memory between real processes: exact bits, groups, faults. */
#include "test.h"

#include "comm/group/comm_ranks.h"

#include "base/half.h"
#include "comm/transport/transport.h"

#include <stdio.h>
#include <stdlib.h>

/* Nothing, less than a vector, small messages, several chunks (70,001 float32 are 280 KB). */
static const uint64_t counts[] = {0, 1, 3, 17, 1000, 5003, 70001};
enum { COUNTS = sizeof counts / sizeof counts[0], COUNT_MAX = 70001 };

/* ---- values that show a wrong order of sums ---- */

static void put_value(ls_dtype dtype, void *data, uint64_t i, uint32_t rank, uint32_t salt)
{
    uint64_t word =
        (i + 1) * 0x9e3779b97f4a7c15u ^ (rank + 1) * 0xc2b2ae3d27d4eb4fu ^ salt * 0x165667b19e3779f9u;
    word = (word ^ word >> 29) * 0xff51afd7ed558ccdu;
    word ^= word >> 32;
    const float value = ((float)(word % 2000003) - 1000001.0f) * (word & 1 << 30 ? 1.0f : 1e-4f);
    switch (dtype) {
    case LS_F32:
        ((float *)data)[i] = value;
        break;
    case LS_BF16:
        ((uint16_t *)data)[i] = ls_bf16_from_f32(value);
        break;
    case LS_F16:
        ((uint16_t *)data)[i] = ls_f16_from_f32(value * 1e-3f);
        break;
    case LS_I32:
        ((int32_t *)data)[i] = (int32_t)word;
        break;
    case LS_I64:
        ((int64_t *)data)[i] = (int64_t)word;
        break;
    default:
        ((uint8_t *)data)[i] = (uint8_t)word;
        break;
    }
}

static void fill(ls_dtype dtype, void *data, uint64_t count, uint32_t rank, uint32_t salt)
{
    for (uint64_t i = 0; i < count; i++) {
        put_value(dtype, data, i, rank, salt);
    }
}

/* ---- the reference: element by element, by recursion, in plain C ---- */

typedef union value {
    float f32;
    int64_t integer;
} value;

static value load(ls_dtype dtype, const void *data, uint64_t i)
{
    switch (dtype) {
    case LS_F32:
        return (value){.f32 = ((const float *)data)[i]};
    case LS_BF16:
        return (value){.f32 = ls_f32_from_bf16(((const uint16_t *)data)[i])};
    case LS_F16:
        return (value){.f32 = ls_f32_from_f16(((const uint16_t *)data)[i])};
    case LS_I32:
        return (value){.integer = ((const int32_t *)data)[i]};
    default:
        return (value){.integer = ((const int64_t *)data)[i]};
    }
}

static value combine(ls_dtype dtype, ls_comm_reduction reduction, value a, value b)
{
    const bool is_integer = dtype == LS_I32 || dtype == LS_I64;
    switch (reduction) {
    case LS_COMM_SUM:
        return is_integer ? (value){.integer = (int64_t)((uint64_t)a.integer + (uint64_t)b.integer)}
                          : (value){.f32 = a.f32 + b.f32};
    case LS_COMM_MAX:
        return is_integer ? (a.integer > b.integer ? a : b) : (a.f32 > b.f32 ? a : b);
    default:
        return is_integer ? (a.integer < b.integer ? a : b) : (a.f32 < b.f32 ? a : b);
    }
}

static value tree(ls_dtype dtype, ls_comm_reduction reduction, const void *const *inputs, uint32_t first,
                  uint32_t count, uint64_t i)
{
    if (count == 1) {
        return load(dtype, inputs[first], i);
    }
    uint32_t half = 1;
    while (half * 2 < count) {
        half *= 2;
    }
    return combine(dtype, reduction, tree(dtype, reduction, inputs, first, half, i),
                   tree(dtype, reduction, inputs, first + half, count - half, i));
}

static void store(ls_dtype dtype, value v, void *data, uint64_t i)
{
    switch (dtype) {
    case LS_F32:
        ((float *)data)[i] = v.f32;
        break;
    case LS_BF16:
        ((uint16_t *)data)[i] = ls_bf16_from_f32(v.f32);
        break;
    case LS_F16:
        ((uint16_t *)data)[i] = ls_f16_from_f32(v.f32);
        break;
    case LS_I32:
        ((int32_t *)data)[i] = (int32_t)(uint32_t)(uint64_t)v.integer;
        break;
    default:
        ((int64_t *)data)[i] = v.integer;
        break;
    }
}

static void reduce_tree_is_the_tree(void **state)
{
    (void)state;
    enum { COUNT = 1300 };
    const uint32_t sizes[] = {1, 2, 3, 5, 7, 8, 9, 13, 16, 27, 31, 40};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (int dtype = 0; dtype < LS_U8; dtype++) {
            void *inputs[40], *out = calloc(COUNT, 8), *expected = calloc(COUNT, 8);
            for (uint32_t k = 0; k < sizes[s]; k++) {
                inputs[k] = calloc(COUNT, 8);
                fill((ls_dtype)dtype, inputs[k], COUNT, k, 1);
            }
            for (int reduction = 0; reduction <= LS_COMM_MIN; reduction++) {
                for (uint64_t i = 0; i < COUNT; i++) {
                    store((ls_dtype)dtype,
                          tree((ls_dtype)dtype, (ls_comm_reduction)reduction, (const void *const *)inputs, 0,
                               sizes[s], i),
                          expected, i);
                }
                ls_comm_reduce_tree((ls_dtype)dtype, (ls_comm_reduction)reduction,
                                    (const void *const *)inputs, sizes[s], COUNT, out);
                assert_memory_equal(out, expected, COUNT * ls_dtype_bytes((ls_dtype)dtype));
            }
            for (uint32_t k = 0; k < sizes[s]; k++) {
                free(inputs[k]);
            }
            free(out);
            free(expected);
        }
    }
}

/* ---- collectives against it ---- */

/* What one call needs; `in` and `out` may be symmetric memory. */
typedef struct buffers {
    char *in, *out;          /* of this rank */
    void *inputs[RANKS_MAX]; /* copies of what every rank has */
    char *expected;
} buffers;

static void reference_reduce(ls_dtype dtype, ls_comm_reduction reduction, const buffers *b, uint32_t size,
                             uint64_t from, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        store(dtype, tree(dtype, reduction, (const void *const *)b->inputs, 0, size, from + i), b->expected,
              i);
    }
}

static void reset(const buffers *b, ls_dtype dtype, uint64_t count, const ls_comm *comm, uint32_t salt)
{
    for (uint32_t rank = 0; rank < ls_comm_size(comm); rank++) {
        fill(dtype, b->inputs[rank], count, rank, salt);
    }
    memcpy(b->in, b->inputs[ls_comm_rank(comm)], count * ls_dtype_bytes(dtype));
    memset(b->out, 0x5a, count * ls_dtype_bytes(dtype));
}

static int check_reductions(ls_comm *comm, const buffers *b, ls_dtype dtype, uint64_t count, uint32_t salt)
{
    const uint32_t size = ls_comm_size(comm), rank = ls_comm_rank(comm);
    const uint64_t unit = ls_dtype_bytes(dtype);
    for (int r = 0; r <= (count > 100 ? LS_COMM_SUM : LS_COMM_MIN); r++) {
        const ls_comm_reduction reduction = (ls_comm_reduction)r;
        reset(b, dtype, count, comm, salt);
        reference_reduce(dtype, reduction, b, size, 0, count);
        EXPECT_OK(ls_comm_all_reduce(comm, b->in, b->out, count, dtype, reduction, NULL));
        EXPECT(memcmp(b->out, b->expected, count * unit) == 0);
        EXPECT(memcmp(b->in, b->inputs[rank], count * unit) == 0);
        EXPECT_OK(ls_comm_all_reduce(comm, b->in, b->in, count, dtype, reduction, NULL));
        EXPECT(memcmp(b->in, b->expected, count * unit) == 0);

        reset(b, dtype, count * size, comm, salt);
        reference_reduce(dtype, reduction, b, size, rank * count, count);
        EXPECT_OK(ls_comm_reduce_scatter(comm, b->in, b->out, count, dtype, reduction, NULL));
        EXPECT(memcmp(b->out, b->expected, count * unit) == 0);
        EXPECT_OK(
            ls_comm_reduce_scatter(comm, b->in, b->in + rank * count * unit, count, dtype, reduction, NULL));
        EXPECT(memcmp(b->in + rank * count * unit, b->expected, count * unit) == 0);
    }
    return 0;
}

static int check_moves(ls_comm *comm, const buffers *b, ls_dtype dtype, uint64_t count, uint32_t salt)
{
    const uint32_t size = ls_comm_size(comm), rank = ls_comm_rank(comm);
    const uint64_t bytes = count * ls_dtype_bytes(dtype);
    reset(b, dtype, count * size, comm, salt);
    EXPECT_OK(ls_comm_all_gather(comm, b->in, b->out, count, dtype, NULL));
    for (uint32_t r = 0; r < size; r++) {
        EXPECT(memcmp(b->out + r * bytes, b->inputs[r], bytes) == 0);
    }
    memmove(b->in + rank * bytes, b->in, bytes);
    EXPECT_OK(ls_comm_all_gather(comm, b->in + rank * bytes, b->in, count, dtype, NULL));
    EXPECT(memcmp(b->in, b->out, bytes * size) == 0);

    reset(b, dtype, count * size, comm, salt);
    EXPECT_OK(ls_comm_all_to_all(comm, b->in, b->out, count, dtype, NULL));
    for (uint32_t r = 0; r < size; r++) {
        EXPECT(memcmp(b->out + r * bytes, (char *)b->inputs[r] + rank * bytes, bytes) == 0);
    }
    for (uint32_t root = 0; root < size; root++) {
        reset(b, dtype, count, comm, salt + root);
        EXPECT_OK(ls_comm_broadcast(comm, b->in, count, dtype, root, NULL));
        EXPECT(memcmp(b->in, b->inputs[root], bytes) == 0);
    }
    EXPECT_OK(ls_comm_barrier(comm, NULL));
    return 0;
}

/* Rank s sends (s + 2 r) % 5 * count / 4 elements to rank r, from one behind the other. */
static uint64_t block_count(uint32_t from, uint32_t to, uint64_t count)
{
    return (from + 2 * to) % 5 * (count / 4);
}

static int check_blocks(ls_comm *comm, const buffers *b, ls_dtype dtype, uint64_t count, uint32_t salt)
{
    const uint32_t size = ls_comm_size(comm), rank = ls_comm_rank(comm);
    const uint64_t unit = ls_dtype_bytes(dtype);
    uint64_t send[RANKS_MAX], send_at[RANKS_MAX], receive[RANKS_MAX], receive_at[RANKS_MAX];
    uint64_t sent = 0, received = 0;
    for (uint32_t r = 0; r < size; r++) {
        send[r] = block_count(rank, r, count);
        receive[r] = block_count(r, rank, count);
        send_at[r] = sent;
        receive_at[r] = received;
        sent += send[r];
        received += receive[r];
    }
    reset(b, dtype, count * size, comm, salt);
    const ls_comm_blocks blocks = {send, send_at, receive, receive_at};
    EXPECT_OK(ls_comm_all_to_all_blocks(comm, b->in, b->out, &blocks, dtype, NULL));
    for (uint32_t r = 0; r < size; r++) {
        uint64_t at = 0;
        for (uint32_t to = 0; to < rank; to++) {
            at += block_count(r, to, count);
        }
        EXPECT(memcmp(b->out + receive_at[r] * unit, (char *)b->inputs[r] + at * unit, receive[r] * unit) ==
               0);
    }
    return 0;
}

static int check_pairs(ls_comm *comm, const buffers *b, ls_dtype dtype, uint64_t count, uint32_t salt)
{
    const uint32_t size = ls_comm_size(comm), rank = ls_comm_rank(comm);
    if (size == 1) {
        return 0;
    }
    reset(b, dtype, count, comm, salt);
    /* Around the ring; rank 0 sends first, the others receive first. */
    const uint32_t next = (rank + 1) % size, before = (rank + size - 1) % size;
    if (rank == 0) {
        EXPECT_OK(ls_comm_send(comm, b->in, count, dtype, next, NULL));
        EXPECT_OK(ls_comm_receive(comm, b->out, count, dtype, before, NULL));
    } else {
        EXPECT_OK(ls_comm_receive(comm, b->out, count, dtype, before, NULL));
        EXPECT_OK(ls_comm_send(comm, b->in, count, dtype, next, NULL));
    }
    EXPECT(memcmp(b->out, b->inputs[before], count * ls_dtype_bytes(dtype)) == 0);
    return 0;
}

static int check_all(ls_comm *comm, const buffers *b)
{
    uint32_t salt = 1;
    for (int dtype = 0; dtype < LS_DTYPE_COUNT; dtype++) {
        for (int i = 0; i < COUNTS; i++, salt++) {
            if (counts[i] > 6000 && dtype != LS_F32) {
                continue;
            }
            const int failed =
                (dtype == LS_U8 ? 0 : check_reductions(comm, b, (ls_dtype)dtype, counts[i], salt)) ||
                check_moves(comm, b, (ls_dtype)dtype, counts[i], salt) ||
                check_blocks(comm, b, (ls_dtype)dtype, counts[i], salt) ||
                check_pairs(comm, b, (ls_dtype)dtype, counts[i], salt);
            if (failed) {
                fprintf(stderr, "rank %u of %u: type %d, count %d\n", ls_comm_rank(comm), ls_comm_size(comm),
                        dtype, (int)counts[i]);
                return 1;
            }
        }
    }
    return 0;
}

static int rank_checks_everything(const ls_comm_options *options)
{
    ls_comm *comm = NULL;
    EXPECT_OK(ls_comm_open(options, &comm));
    const uint64_t bytes = (uint64_t)COUNT_MAX * 8 * options->size;
    buffers b = {.expected = malloc(bytes)};
    for (uint32_t r = 0; r < options->size; r++) {
        b.inputs[r] = malloc(bytes);
    }
    /* Ordinary memory, symmetric memory at one offset, and at an offset of each rank's own; one of
     * each. */
    char *ordinary = malloc(2 * bytes);
    char *symmetric = ls_comm_alloc(comm, 2 * bytes + 64 * 8);
    EXPECT(symmetric && ordinary);
    const struct {
        char *in, *out;
    } places[] = {{ordinary, ordinary + bytes},
                  {symmetric, symmetric + bytes},
                  {symmetric + 8 * options->rank, symmetric + bytes + 16 * options->rank},
                  {symmetric, ordinary}};
    int failed = 0;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && !failed; i++) {
        b.in = places[i].in;
        b.out = places[i].out;
        failed = check_all(comm, &b);
    }
    for (uint32_t r = 0; r < options->size; r++) {
        free(b.inputs[r]);
    }
    ls_comm_free(comm, symmetric);
    free(ordinary);
    free(b.expected);
    ls_comm_close(comm);
    return failed;
}

static void collectives_give_the_bits_of_the_tree(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= 5; size++) {
        run_ranks(size, rank_checks_everything);
    }
}

/* ---- a long mixed sequence: what one call leaves in slots, tables and flags must not reach the
 * next ---- */

static uint32_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

static int64_t soak_value(uint32_t call, uint32_t rank, uint64_t i)
{
    return (int64_t)call * 1000003 + (int64_t)rank * 7919 + (int64_t)(i % 4001);
}

/* Rank s sends (s + r + call) % 3 thirds of `count` to rank r. */
static int check_blocks_of(ls_comm *comm, uint32_t call, uint64_t count, const int64_t *in, int64_t *out)
{
    const uint32_t size = ls_comm_size(comm), me = ls_comm_rank(comm);
    uint64_t send[RANKS_MAX], send_at[RANKS_MAX], receive[RANKS_MAX], receive_at[RANKS_MAX];
    for (uint32_t r = 0; r < size; r++) {
        send[r] = receive[r] = (me + r + call) % 3 * (count / 3);
        send_at[r] = r; /* overlapping is fine */
        send[r] = send[r] + r <= count ? send[r] : 0;
        receive[r] = receive[r] + me <= count ? receive[r] : 0;
        receive_at[r] = r * count;
    }
    const ls_comm_blocks blocks = {send, send_at, receive, receive_at};
    EXPECT_OK(ls_comm_all_to_all_blocks(comm, in, out, &blocks, LS_I64, NULL));
    for (uint32_t r = 0; r < size; r++) {
        for (uint64_t i = 0; i < receive[r]; i++) {
            EXPECT(out[r * count + i] == soak_value(call, r, me + i));
        }
    }
    return 0;
}

/* One call of a kind that all ranks draw alike; `in` and `out` are taken from this rank's
 * memory. */
static int soak_call(ls_comm *comm, uint32_t call, uint32_t kind, uint64_t count, int64_t *in, int64_t *out)
{
    const uint32_t size = ls_comm_size(comm), me = ls_comm_rank(comm), root = call % size;
    const uint64_t in_count = kind == 1 || kind == 3 ? count * size : count;
    for (uint64_t i = 0; i < in_count; i++) {
        in[i] = soak_value(call, me, i);
    }
    switch (kind) {
    case 0:
        EXPECT_OK(ls_comm_all_reduce(comm, in, out, count, LS_I64, LS_COMM_MAX, NULL));
        for (uint64_t i = 0; i < count; i++) {
            EXPECT(out[i] == soak_value(call, size - 1, i));
        }
        break;
    case 1:
        EXPECT_OK(ls_comm_reduce_scatter(comm, in, out, count, LS_I64, LS_COMM_MIN, NULL));
        for (uint64_t i = 0; i < count; i++) {
            EXPECT(out[i] == soak_value(call, 0, me * count + i));
        }
        break;
    case 2:
        EXPECT_OK(ls_comm_all_gather(comm, in, out, count, LS_I64, NULL));
        for (uint64_t i = 0; i < count * size; i++) {
            EXPECT(out[i] == soak_value(call, (uint32_t)(i / count), i % count));
        }
        break;
    case 3:
        EXPECT_OK(ls_comm_all_to_all(comm, in, out, count, LS_I64, NULL));
        for (uint64_t i = 0; i < count * size; i++) {
            EXPECT(out[i] == soak_value(call, (uint32_t)(i / count), me * count + i % count));
        }
        break;
    case 4:
        EXPECT_OK(ls_comm_broadcast(comm, in, count, LS_I64, root, NULL));
        for (uint64_t i = 0; i < count; i++) {
            EXPECT(in[i] == soak_value(call, root, i));
        }
        break;
    default:
        EXPECT(check_blocks_of(comm, call, count, in, out) == 0);
        break;
    }
    return 0;
}

static int rank_soaks(const ls_comm_options *options)
{
    enum { CALLS = 1500, MOST = 12000 };
    ls_comm *comm = NULL;
    EXPECT_OK(ls_comm_open(options, &comm));
    const uint64_t bytes = (uint64_t)MOST * options->size * sizeof(int64_t);
    int64_t *shared = ls_comm_alloc(comm, 2 * bytes), *own = malloc(2 * bytes);
    uint64_t state = 42, mine = options->rank;
    EXPECT(shared && own);
    for (uint32_t call = 0; call < CALLS; call++) {
        const uint32_t kind = draw(&state) % 6, scale = draw(&state) % 4;
        const uint64_t count = 1 + draw(&state) % (scale == 0   ? 8
                                                   : scale == 1 ? 200
                                                   : scale == 2 ? 2500
                                                                : MOST);
        /* all alike; the output is each rank's own affair */
        int64_t *in = draw(&state) % 3 ? shared : own;
        int64_t *out = (draw(&mine) % 2 ? shared : own) + bytes / sizeof(int64_t);
        if (draw(&mine) % 50 == 0) {
            usleep(draw(&mine) % 300);
        }
        if (soak_call(comm, call, kind, count, in, out) != 0) {
            fprintf(stderr, "rank %u, call %u of kind %u, count %d\n", options->rank, call, kind, (int)count);
            return 1;
        }
    }
    ls_comm_close(comm);
    free(own);
    return 0;
}

static void calls_do_not_reach_into_each_other(void **state)
{
    (void)state;
    run_ranks(2, rank_soaks);
    run_ranks(4, rank_soaks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reduce_tree_is_the_tree),
        cmocka_unit_test(collectives_give_the_bits_of_the_tree),
        cmocka_unit_test(calls_do_not_reach_into_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
