// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/dropout.h"

#include "compute/kernels/shape.h"

#include <string.h>

/* 16 bits of a block of random bits for each column. */
enum { BLOCK = 8, TILE_ROWS = 16, SITE_SHIFT = 24, PASS_SHIFT = 40 };

typedef struct job {
    const ls_dropout *dropout;
    const ls_tensor *x, *y;
    uint32_t threshold; /* an element stays if its 16 bits are not below */
    float scale;
    bool accumulate;
} job;

static void run_row(const job *j, int64_t row)
{
    const ls_dropout *d = j->dropout;
    const float *x = (const float *)j->x->data + row * j->x->stride;
    float *y = (float *)j->y->data + row * j->y->stride;
    const int64_t sequence = row / d->length;
    const uint32_t token = (uint32_t)(row - sequence * d->length - (d->first ? d->first[row] : 0));
    const uint64_t index = (uint64_t)(uint32_t)d->record[row] << 32 | token;
    const uint64_t sub = (uint64_t)d->pass[sequence] << PASS_SHIFT | (uint64_t)d->site << SITE_SHIFT;
    for (int64_t first = 0; first < j->x->cols; first += BLOCK) {
        uint16_t bits[BLOCK];
        const ls_random_block block = ls_random_at(d->key, index, sub | (uint64_t)(first / BLOCK));
        const int64_t left = j->x->cols - first, count = left < BLOCK ? left : BLOCK;
        memcpy(bits, block.word, sizeof bits);
        for (int64_t i = 0; i < count; i++) {
            const float value = bits[i] < j->threshold ? 0.0f : x[first + i] * j->scale;
            y[first + i] = j->accumulate ? y[first + i] + value : value;
        }
    }
}

static void run_tile(void *context, int64_t tile, uint32_t worker)
{
    (void)worker;
    const job *j = context;
    const int64_t begin = tile * TILE_ROWS, rows = j->x->rows;
    for (int64_t row = begin; row < begin + TILE_ROWS && row < rows; row++) {
        run_row(j, row);
    }
}

ls_status ls_dropout_apply(ls_queue *queue, const ls_dropout *dropout, const ls_tensor *x, const ls_tensor *y,
                           bool accumulate)
{
    LS_ASSERT(ls_tensor_is(x, x->dtype, y->rows, y->cols) && dropout->length >= 1);
    LS_ASSERT(dropout->probability >= 0.0 && dropout->probability < 1.0);
    if (ls_queue_device(queue) != LS_DEVICE_CPU) {
        return ls_fail(LS_ERR_UNSUPPORTED, "dropout is computed on the CPU only; set adapter.dropout: 0");
    }
    job j = {.dropout = dropout, .x = x, .y = y, .accumulate = accumulate};
    j.threshold = (uint32_t)(dropout->probability * 65536.0 + 0.5);
    j.threshold = j.threshold > 65535 ? 65535 : j.threshold;
    j.scale = (float)(65536.0 / (65536.0 - (double)j.threshold));
    ls_queue_run_tiles(queue, (x->rows + TILE_ROWS - 1) / TILE_ROWS, run_tile, &j);
    return LS_OK;
}
