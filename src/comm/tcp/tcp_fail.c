// SPDX-License-Identifier: Apache-2.0
/*
 * Calls that cannot succeed: lost members, deadlines, aborts, and disagreement about what is
 * called.
 *
 * Disagreement. The member that receives a message with another fingerprint sends its claim to all;
 * each member that receives a claim sends its own. After all claims, or CLAIMS_MS, every member has
 * the same picture and fails with the same text.
 */
#include "comm/tcp/tcp_mesh.h"

#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    CALL_BYTES = 256,
    NAME_BYTES = 192,
    /* How long to wait for the claims of others. */
    CLAIMS_MS = 200,
    /* How long sending the reason of a failure may take. */
    FAREWELL_MS = 100,
    /* Added to the time-out, in percent of it: a rank that waits for another one, which itself
     * waits for a third, lets that one report first. */
    GRACE_PERCENT = 10,
    GRACE_MS_MAX = 250,
};

/* ---- failing ---- */

static const char *member_name(const ls_tcp_group *group, uint32_t member, char text[NAME_BYTES])
{
    const ls_comm_member *m = &group->members[member];
    const char *address = ls_tcp_peer_of(group, member)->address;
    snprintf(text, NAME_BYTES, "rank %u (%.63s, pid %d%s%s)", m->world_rank, m->host_name, m->pid,
             address[0] ? ", " : "", address);
    return text;
}

static bool descends(const ls_tcp_group *group, const ls_tcp_group *from)
{
    while (group && group != from) {
        group = group->parent;
    }
    return group != NULL;
}

static void fail_here(ls_tcp_group *group, ls_status status, const char *text)
{
    group->mesh->failed = true;
    for (ls_tcp_group *g = group->mesh->groups; g; g = g->next) {
        if (g->status == LS_OK && descends(g, group)) {
            snprintf(g->text, LS_TCP_TEXT_BYTES, "%s", text);
            g->status = status;
        }
    }
    group->mesh->moves++;
}

static void tell_all(ls_tcp_group *group, const ls_tcp_header *header, const void *payload)
{
    for (uint32_t i = 1; i < group->base.size; i++) {
        ls_tcp_post_copy(group->mesh, group->peer_of[(group->base.rank + i) % group->base.size], header,
                         payload);
    }
}

void ls_tcp_fail(ls_tcp_group *group, ls_status status, bool tell, const char *format, ...)
{
    if (group->status != LS_OK) {
        return;
    }
    uint8_t payload[4 + LS_TCP_TEXT_BYTES] = {(uint8_t)status};
    char *text = (char *)payload + 4;
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text, LS_TCP_TEXT_BYTES, format, args);
    va_end(args);
    fail_here(group, status, text);
    if (tell) {
        const uint32_t shown = length < LS_TCP_TEXT_BYTES ? (uint32_t)length : LS_TCP_TEXT_BYTES - 1;
        const ls_tcp_header header = {.kind = LS_TCP_ABORT, .group = group->id, .bytes = 4 + shown};
        tell_all(group, &header, payload);
    }
}

void ls_tcp_take_abort(ls_tcp_group *group, const ls_tcp_lane *lane)
{
    char text[LS_TCP_TEXT_BYTES] = "aborted";
    const uint32_t bytes = lane->header.bytes;
    if (bytes > 4) {
        const uint32_t length = bytes - 4 < sizeof text - 1 ? bytes - 4 : (uint32_t)sizeof text - 1;
        memcpy(text, lane->control + 4, length);
        text[length] = 0;
    }
    const ls_status status = bytes > 0 && lane->control[0] > LS_OK && lane->control[0] <= LS_ERR_MISMATCH
                                 ? (ls_status)lane->control[0]
                                 : LS_ERR_FAILED;
    if (group->status == LS_OK) {
        fail_here(group, status, text);
    }
}

void ls_tcp_disagree(ls_tcp_group *group, uint32_t disputed)
{
    if (group->disagree_ns != 0 || group->status != LS_OK || !group->call.active) {
        return;
    }
    group->disagree_ns = ls_clock_monotonic_ns() + CLAIMS_MS * 1000000ull;
    ls_comm_claim *own = &group->claims[group->base.rank];
    /* A member that needed nothing from those that disagree may be one call further by now; its
     * claim is then about its previous call. A member in a send or receive has not yet begun the
     * next call of the group. */
    const bool is_pair = group->call.space == LS_TCP_PAIR;
    const bool was_last = !is_pair && disputed == group->seq - 1;
    ls_comm_claim_fill(own, was_last ? &group->last_op : ls_tcp_shown_op(group), &group->base);
    group->claimed[group->base.rank] = true;
    const ls_tcp_header header = {.kind = LS_TCP_CLAIM,
                                  .group = group->id,
                                  .seq = was_last ? group->seq - 1 : group->seq + is_pair,
                                  .bytes = sizeof *own};
    tell_all(group, &header, own);
}

void ls_tcp_take_claim(ls_tcp_group *group, uint32_t member, const ls_tcp_lane *lane)
{
    if (lane->header.bytes != sizeof(ls_comm_claim)) {
        return;
    }
    memcpy(&group->claims[member], lane->control, sizeof(ls_comm_claim));
    group->claims[member].rank = member;
    group->claims[member].file[sizeof group->claims[member].file - 1] = 0;
    group->claimed[member] = true;
    group->disputed = lane->header.seq;
    /* If the claim is about a later call, the current one does not depend on it and ends first,
     * unless this rank is waiting for that member. */
    const bool is_later = (int32_t)(lane->header.seq - group->seq) > 0;
    const bool waits_for_it = group->call.space == LS_TCP_PAIR && group->call.peer == member;
    if (!is_later || waits_for_it) {
        ls_tcp_disagree(group, group->disputed); /* between calls this happens at the next one */
    }
}

void ls_tcp_judge(ls_tcp_group *group)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < group->base.size; i++) {
        count += group->claimed[i];
    }
    if (count < group->base.size && ls_clock_monotonic_ns() < group->disagree_ns) {
        return;
    }
    count = 0;
    for (uint32_t i = 0; i < group->base.size; i++) { /* moves the claims to the front, in order */
        if (group->claimed[i]) {
            group->claims[count++] = group->claims[i];
        }
    }
    const ls_status status = ls_comm_fail_mismatch(&group->base, group->claims, count);
    ls_tcp_fail(group, status, false, "%s", ls_error_text());
}

void ls_tcp_fail_sizes(ls_tcp_group *group, uint32_t from, uint64_t from_bytes, uint32_t to,
                       uint64_t to_bytes)
{
    char a[NAME_BYTES], b[NAME_BYTES];
    ls_tcp_fail(group, LS_ERR_MISMATCH, true,
                "%s: %s sends %llu bytes to %s, which expects %llu (call %u, %s:%u): the two counts must be "
                "equal",
                ls_comm_kind_name(group->call.op->kind), member_name(group, from, a),
                (unsigned long long)from_bytes, member_name(group, to, b), (unsigned long long)to_bytes,
                group->call.seq, group->call.op->site.file, group->call.op->site.line);
}

static const char *call_text(const ls_tcp_group *group, char text[CALL_BYTES])
{
    const ls_comm_op *op = ls_tcp_shown_op(group);
    char words[LS_COMM_WORDS_BYTES];
    ls_comm_op_words(op, words);
    snprintf(text, CALL_BYTES, "%s (call %llu) at %.80s:%u", words, (unsigned long long)op->seq,
             op->site.file ? op->site.file : "?", op->site.line);
    return text;
}

void ls_tcp_check_lost(ls_tcp_group *group)
{
    char name[NAME_BYTES], call[CALL_BYTES];
    for (uint32_t i = 0; i < group->base.size && group->status == LS_OK; i++) {
        if (i != group->base.rank && ls_tcp_peer_of(group, i)->gone && ls_tcp_call_needs(group, i)) {
            ls_tcp_fail(group, LS_ERR_RANKS_LOST, true, "%s: %s %s", call_text(group, call),
                        member_name(group, i, name), ls_tcp_peer_of(group, i)->why);
        }
    }
}

/* Lists the members for which the call waits; absent: only those that have not begun the call.
 * Returns their number. */
static uint32_t list_missing(ls_tcp_group *group, bool absent, char *text, size_t bytes)
{
    uint32_t count = 0;
    size_t used = 0;
    for (uint32_t i = 0; i < group->base.size; i++) {
        const bool counts = ls_tcp_call_needs(group, i) || (absent && group->call.all_meet);
        if (i == group->base.rank || !counts || (absent && group->is_heard[i])) {
            continue;
        }
        char name[NAME_BYTES];
        if (count < 4 && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", count ? ", " : "",
                                     member_name(group, i, name));
        }
        count++;
    }
    if (count > 4 && used < bytes) {
        snprintf(text + used, bytes - used, " and %u more", count - 4);
    }
    return count;
}

void ls_tcp_check_deadline(ls_tcp_group *group, uint64_t begin_ns)
{
    const uint64_t now = ls_clock_monotonic_ns(), deadline = group->call.op->deadline_ns;
    if (now < deadline || group->disagree_ns != 0) {
        return;
    }
    char missing[LS_TCP_TEXT_BYTES / 2] = "", call[CALL_BYTES];
    if (list_missing(group, true, missing, sizeof missing) > 0) {
        ls_tcp_fail(group, LS_ERR_TIMEOUT, true, "%s waited %.1f s; these ranks did not call it: %s",
                    call_text(group, call), 1e-9 * (double)(now - begin_ns), missing);
        return;
    }
    uint64_t grace = deadline > begin_ns ? (deadline - begin_ns) / 100 * GRACE_PERCENT : 0;
    grace = grace < GRACE_MS_MAX * 1000000ull ? grace : GRACE_MS_MAX * 1000000ull;
    if (now >= deadline + grace) {
        list_missing(group, false, missing, sizeof missing);
        ls_tcp_fail(group, LS_ERR_TIMEOUT, true,
                    "%s waited %.1f s; these ranks called it, but their data did not arrive: %s",
                    call_text(group, call), 1e-9 * (double)(now - begin_ns), missing);
    }
}

void ls_tcp_farewell(ls_tcp_group *group)
{
    const uint64_t until = ls_clock_monotonic_ns() + FAREWELL_MS * 1000000ull;
    bool waiting = true;
    while (waiting && ls_clock_monotonic_ns() < until) {
        ls_tcp_mesh_flush(group->mesh);
        waiting = false;
        for (uint32_t i = 0; i < group->mesh->size; i++) {
            const ls_tcp_peer *peer = &group->mesh->peers[i];
            waiting |= !peer->gone && peer->lane_count > 0 && peer->lanes[0].count > 0;
        }
        if (waiting) {
            ls_tcp_mesh_wait(group->mesh, until);
        }
    }
}
