// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host/coordinator_log.h"

#include "base/math.h"

#include <string.h>

/* What is wrong with a record, or NULL. Only the checksum proves that a record was written
 * completely; the other checks keep a random length from being believed. */
static const char *check(const ls_log_head *head, const char *payload, size_t room)
{
    ls_log_head bare = *head;
    bare.crc = 0;
    if (head->magic != LS_LOG_MAGIC) {
        return "bytes that are not a record";
    }
    if (head->bytes > LS_LOG_PAYLOAD_BYTES_MAX) {
        return "a record that is too long";
    }
    if (head->bytes > room) {
        return "an incomplete record";
    }
    if (ls_crc32c(ls_crc32c(0, &bare, sizeof bare), payload, head->bytes) != head->crc) {
        return "a record with a wrong checksum";
    }
    return NULL;
}

/* Whether host numbers and parts are within their ranges. */
static bool is_cut(const ls_cut *cut)
{
    bool is = cut->host_count <= LS_REFORM_HOSTS_MAX && cut->parts <= LS_COMM_SIZE_MAX;
    for (uint32_t i = 0; is && i < cut->host_count; i++) {
        const ls_cut_host *host = &cut->hosts[i];
        is = host->host < LS_REFORM_HOSTS_MAX && host->first_part + host->part_count <= (int)cut->parts;
    }
    return is;
}

/* A cut from the disk indexes tables, so every number in it is checked before it is taken over. */
static bool take_cuts(const ls_log_head *head, const char *payload, ls_log_state *state)
{
    ls_log_cuts cuts;
    if (head->bytes != sizeof cuts) {
        return false;
    }
    memcpy(&cuts, payload, sizeof cuts);
    bool is = is_cut(&cuts.newest) && is_cut(&cuts.held) && cuts.newest.epoch == head->epoch;
    for (uint32_t i = 0; is && i < LS_REFORM_HOSTS_MAX; i++) {
        is = cuts.hosts[i].first_rank + cuts.hosts[i].count <= LS_COMM_SIZE_MAX;
    }
    state->cuts = is ? cuts : state->cuts;
    return is;
}

/* Takes over a record. False: the payload does not fit the kind. */
static bool take(const ls_log_head *head, const char *payload, ls_log_state *state)
{
    const uint32_t members = head->bytes / (uint32_t)sizeof(ls_log_member);
    switch ((ls_log_kind)head->kind) {
    case LS_LOG_RUN:
        if (head->bytes != sizeof(ls_log_run)) {
            return false;
        }
        memcpy(&state->run, payload, sizeof state->run);
        state->run.identity[sizeof state->run.identity - 1] = '\0';
        state->ended = false;
        break;
    case LS_LOG_EPOCH:
        if (head->bytes % sizeof(ls_log_member) != 0 || members > LS_LOG_MEMBERS_MAX) {
            return false;
        }
        if (head->epoch >= state->epoch) {
            memcpy(state->members, payload, head->bytes);
            state->member_count = members;
        }
        break;
    case LS_LOG_STEPS:
        if (head->bytes != 0) {
            return false;
        }
        break;
    case LS_LOG_CUTS:
        if (!take_cuts(head, payload, state)) {
            return false;
        }
        break;
    case LS_LOG_END:
        if (head->bytes != 0) {
            return false;
        }
        state->ended = true;
        break;
    default:
        return false;
    }
    state->epoch = ls_max_u64(state->epoch, head->epoch);
    state->step = ls_max_u64(state->step, head->step);
    return true;
}

/* Stops at the first record that is not good: what follows could be older than what is missing. */
void ls_log_read(const void *data, size_t bytes, ls_log_state *state_out)
{
    ls_log_state *state = state_out;
    *state = (ls_log_state){0};
    const char *at = data;
    for (size_t left = bytes; left > 0;) {
        ls_log_head head;
        if (left < sizeof head) {
            state->wrong = "an incomplete record";
            return;
        }
        memcpy(&head, at, sizeof head);
        state->wrong = check(&head, at + sizeof head, left - sizeof head);
        if (!state->wrong && !take(&head, at + sizeof head, state)) {
            state->wrong = "a record of an unknown kind or size";
        }
        if (state->wrong) {
            return;
        }
        at += sizeof head + head.bytes;
        left -= sizeof head + head.bytes;
        state->good_bytes += sizeof head + head.bytes;
        state->records++;
    }
}
