// SPDX-License-Identifier: Apache-2.0
/*
 * Hashes of flat buffers on a GPU: those of the xxHash library on the host.
 */
#include "compute/cuda/cuda_test.h"

#include "compute/kernels/hash.h"

/* Hashes `count` floats that begin `offset` elements into their memory, in both forms. */
static void hashes_are_those_of_the_library(int64_t count, int64_t offset)
{
    enum { TILES_MAX = 4 };
    cuda_matrix values = cuda_matrix_make(LS_F32, 1, count + offset, 0, 1, 1.0);
    const size_t halves = (size_t)(count + offset) * 2;
    float *host = malloc(2 * halves);
    uint16_t *weights = malloc(halves);
    int16_t *rests = malloc(halves);
    for (int64_t i = 0; i < count + offset; i++) {
        host[i] = (float)values.x[i];
        ls_master_split(host[i], &weights[i], &rests[i]);
    }
    ls_master split = {0};
    CUDA_OK(ls_device_alloc(cuda_queue(), halves, (void **)&split.weights));
    CUDA_OK(ls_device_alloc(cuda_queue(), halves, (void **)&split.rests));
    CUDA_OK(ls_queue_move(cuda_queue(), split.weights, weights, halves));
    CUDA_OK(ls_queue_move(cuda_queue(), split.rests, rests, halves));
    const ls_master whole = {.values = values.t.data};
    const ls_master forms[] = {ls_master_from(whole, offset), ls_master_from(split, offset)};
    for (int form = 0; form < 2; form++) {
        ls_hash128 hashes[TILES_MAX];
        CUDA_OK(ls_hash_tiles(cuda_queue(), &forms[form], count, hashes));
        for (int64_t first = 0; first < count; first += LS_HASH_TILE) {
            const int64_t left = count - first < LS_HASH_TILE ? count - first : LS_HASH_TILE;
            const ls_hash128 wanted = ls_xxh3_128(host + offset + first, (size_t)left * sizeof *host);
            assert_true(ls_hash128_equal(hashes[first / LS_HASH_TILE], wanted));
        }
    }
    ls_device_free(cuda_queue(), split.weights, halves);
    ls_device_free(cuda_queue(), split.rests, halves);
    cuda_matrix_free(&values);
    free(host);
    free(weights);
    free(rests);
}

static void hash_any_length_is_that_of_the_library(void **state)
{
    (void)state;
    const int64_t counts[] = {1, 16, 60, 61, 64, 65, 255, 256, 257, 272, 511, 4096, 4099, 65520};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        hashes_are_those_of_the_library(counts[i], 0);
        hashes_are_those_of_the_library(counts[i], 1);
    }
}

static void hash_several_tiles_are_those_of_the_library(void **state)
{
    (void)state;
    hashes_are_those_of_the_library(LS_HASH_TILE, 0);
    hashes_are_those_of_the_library(LS_HASH_TILE + 16, 0);
    hashes_are_those_of_the_library(2 * LS_HASH_TILE + 4112, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hash_any_length_is_that_of_the_library),
        cmocka_unit_test(hash_several_tiles_are_those_of_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
