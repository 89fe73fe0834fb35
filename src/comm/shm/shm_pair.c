// SPDX-License-Identifier: Apache-2.0
/* Sends and receives: each pair has a ring of chunks per direction, so that a small send returns at
 * once. */
#include "comm/shm/shm.h"

#include <string.h>

static char *chunk_of(const ls_shm *shm, shm_pair *pair, uint32_t number)
{
    return (char *)(pair + 1) + number % SHM_PAIR_CHUNKS * shm->pair_chunk_bytes;
}

static ls_status wait_for(ls_shm *shm, const ls_comm_op *op, ls_word *word, uint32_t value)
{
    if (shm_is_over(shm)) {
        return shm_judge(shm, LS_ERR_FAILED);
    }
    if (ls_word_reached(word, value)) {
        return LS_OK;
    }
    shm_look look;
    const ls_wait wait = shm_wait_of(shm, op, op->peer, &look);
    const ls_wait_result result = ls_wait_until(word, value, &wait);
    return result == LS_WAIT_DONE ? LS_OK : shm_fail_wait(op, result, &look);
}

static uint64_t next_bytes(const ls_shm *shm, uint64_t left)
{
    return left < shm->pair_chunk_bytes ? left : shm->pair_chunk_bytes;
}

ls_status shm_send(ls_shm *shm, ls_comm_op *op)
{
    shm_pair *pair = shm_pair_of(shm, shm->transport.rank, op->peer);
    const char *data = op->in;
    uint64_t left = op->count * ls_dtype_bytes(op->dtype);
    for (bool is_first = true; is_first || left > 0; is_first = false) {
        const uint32_t number = ls_word_get(&pair->sent);
        const uint64_t bytes = next_bytes(shm, left);
        LS_TRY(wait_for(shm, op, &pair->received, number + 1 - SHM_PAIR_CHUNKS));
        if (is_first) {
            memcpy(&pair->claims[number % SHM_PAIR_CHUNKS], &shm->places[shm->transport.rank].claim,
                   sizeof pair->claims[0]);
        }
        if (bytes) {
            memcpy(chunk_of(shm, pair, number), data, bytes);
            data += bytes;
        }
        left -= bytes;
        ls_word_post(&pair->sent, number + 1);
    }
    return LS_OK;
}

static ls_status check_claim(ls_shm *shm, const ls_comm_op *op, const ls_comm_claim *sent)
{
    if (sent->fingerprint == op->fingerprint) {
        return LS_OK;
    }
    ls_comm_claim claims[2];
    memcpy(&claims[0], sent, sizeof claims[0]);
    memcpy(&claims[1], &shm->places[shm->transport.rank].claim, sizeof claims[1]);
    return shm_judge(shm, ls_comm_fail_mismatch(&shm->transport, claims, 2));
}

ls_status shm_receive(ls_shm *shm, ls_comm_op *op)
{
    shm_pair *pair = shm_pair_of(shm, op->peer, shm->transport.rank);
    char *data = op->out;
    uint64_t left = op->count * ls_dtype_bytes(op->dtype);
    for (bool is_first = true; is_first || left > 0; is_first = false) {
        const uint32_t number = ls_word_get(&pair->received);
        const uint64_t bytes = next_bytes(shm, left);
        LS_TRY(wait_for(shm, op, &pair->sent, number + 1));
        if (is_first) {
            LS_TRY(check_claim(shm, op, &pair->claims[number % SHM_PAIR_CHUNKS]));
        }
        if (bytes) {
            memcpy(data, chunk_of(shm, pair, number), bytes);
            data += bytes;
        }
        left -= bytes;
        ls_word_post(&pair->received, number + 1);
    }
    return LS_OK;
}
