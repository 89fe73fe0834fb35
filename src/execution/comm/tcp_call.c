// SPDX-License-Identifier: Apache-2.0
#include "execution/comm/tcp_mesh.h"

#include "base/assert.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CALL_BYTES = 256,
    LANE_AHEAD = 2,    /* messages handed to a lane that has not sent them yet */
    CLAIMS_MS = 200,   /* how long others' sides of a mismatch are waited for */
    FAREWELL_MS = 100, /* how long a reason for failing may take to leave */
    GRACE_PERCENT =
        10, /* of the time-out: a rank that waits for one that waits itself lets that one speak first */
    GRACE_MS_MAX = 250,
};

/* ---- failing ---- */

const char *ls_tcp_name(const ls_tcp_group *group, uint32_t member, char text[192])
{
    const ls_comm_member *m = &group->members[member];
    const char *address = ls_tcp_peer_of(group, member)->address;
    snprintf(text, 192, "rank %u (%.63s, pid %d%s%s)", m->world_rank, m->host_name, m->pid,
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

static void take_abort(ls_tcp_group *group, const ls_tcp_lane *lane)
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

/* What the caller called. */
static const ls_comm_op *shown_op(const ls_tcp_group *group)
{
    return group->said ? group->said : group->call.op;
}

/* Members do not agree what is called: everybody shows everybody its side, then all fail with the same picture. */
static void disagree(ls_tcp_group *group, uint32_t disputed)
{
    if (group->disagree_ns != 0 || group->status != LS_OK || !group->call.active) {
        return;
    }
    group->disagree_ns = ls_clock_monotonic_ns() + CLAIMS_MS * 1000000ull;
    ls_comm_claim *own = &group->claims[group->base.rank];
    /* Who needed nothing from those that disagree may be one call further by now; its side of that call is the last one. Who is in a
     * call with one other rank stands before the next call of all. */
    const bool is_pair = group->call.space == LS_TCP_PAIR;
    const bool was_last = !is_pair && disputed == group->seq - 1;
    ls_comm_claim_fill(own, was_last ? &group->last_op : shown_op(group), &group->base);
    group->claimed[group->base.rank] = true;
    const ls_tcp_header header = {.kind = LS_TCP_CLAIM,
                                  .group = group->id,
                                  .seq = was_last ? group->seq - 1 : group->seq + is_pair,
                                  .bytes = sizeof *own};
    tell_all(group, &header, own);
}

static void take_claim(ls_tcp_group *group, uint32_t member, const ls_tcp_lane *lane)
{
    if (lane->header.bytes != sizeof(ls_comm_claim)) {
        return;
    }
    memcpy(&group->claims[member], lane->control, sizeof(ls_comm_claim));
    group->claims[member].rank = member;
    group->claims[member].file[sizeof group->claims[member].file - 1] = 0;
    group->claimed[member] = true;
    group->disputed = lane->header.seq;
    /* About a call that this rank has not reached: what it is in now does not need who disagrees later, and ends first. */
    const bool is_later = (int32_t)(lane->header.seq - group->seq) > 0;
    const bool waits_for_it = group->call.space == LS_TCP_PAIR && group->call.peer == member;
    if (!is_later || waits_for_it) {
        disagree(group, group->disputed); /* without a call: when the next one begins */
    }
}

static void judge(ls_tcp_group *group)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < group->base.size; i++) {
        count += group->claimed[i];
    }
    if (count < group->base.size && ls_clock_monotonic_ns() < group->disagree_ns) {
        return;
    }
    count = 0;
    for (uint32_t i = 0; i < group->base.size; i++) { /* in place: they end up in front, in order */
        if (group->claimed[i]) {
            group->claims[count++] = group->claims[i];
        }
    }
    const ls_status status = ls_comm_fail_mismatch(&group->base, group->claims, count);
    ls_tcp_fail(group, status, false, "%s", ls_error_text());
}

/* ---- messages ---- */

static ls_tcp_group *find_group(ls_tcp_mesh *mesh, uint32_t id)
{
    for (ls_tcp_group *group = mesh->groups; group; group = group->next) {
        if (group->id == id) {
            return group;
        }
    }
    return NULL;
}

/* How a message relates to the call that its group is in: of an earlier one (-1), of it (0), of a later one or of the other space (1).
 * group->seq, sent and received count the active call already. */
static int call_order(const ls_tcp_group *group, uint32_t member, const ls_tcp_header *header)
{
    const ls_tcp_call *call = &group->call;
    const bool data = header->kind == LS_TCP_DATA; /* of a pair: belongs to a receive here; READY to a send */
    uint32_t seq = group->seq;
    bool active = call->active && call->space == LS_TCP_GROUP;
    if (ls_tcp_tag_space(header->tag) == LS_TCP_PAIR) {
        seq = data ? group->received[member] : group->sent[member];
        active = call->active && call->space == LS_TCP_PAIR && call->peer == member && call->receives == data;
    }
    const int32_t ahead = (int32_t)(header->seq - seq);
    return ahead > 0 ? 1 : ahead == 0 && active ? 0 : -1;
}

static void heard(ls_tcp_group *group, uint32_t member)
{
    if (!group->is_heard[member]) {
        group->is_heard[member] = true;
        group->call.heard++;
        group->call.op->last_rank = member;
    }
}

/* Looks at a message of the active call. False: the group has failed over it. */
static bool agrees(ls_tcp_group *group, uint32_t member, const ls_tcp_header *header)
{
    heard(group, member);
    if (header->fingerprint != group->call.fingerprint) {
        disagree(group, group->seq);
        return false;
    }
    return true;
}

static void fail_sizes(ls_tcp_group *group, uint32_t from, uint64_t from_bytes, uint32_t to,
                       uint64_t to_bytes)
{
    char a[192], b[192];
    ls_tcp_fail(group, LS_ERR_MISMATCH, true,
                "%s: %s sends %llu bytes to %s, which expects %llu (call %u, %s:%u): make the counts of the "
                "pair equal",
                ls_comm_kind_name(group->call.op->kind), ls_tcp_name(group, from, a),
                (unsigned long long)from_bytes, ls_tcp_name(group, to, b), (unsigned long long)to_bytes,
                group->call.seq, group->call.op->site.file, group->call.op->site.line);
}

/* The place of a piece of the active call. */
static uint8_t *piece_place(ls_tcp_group *group, uint32_t member, const ls_tcp_header *header)
{
    if (!agrees(group, member, header)) {
        return NULL;
    }
    const uint32_t phase = ls_tcp_tag_phase(header->tag), piece = ls_tcp_tag_piece(header->tag);
    if (phase >= LS_TCP_PHASES || piece >= ls_tcp_in(group, phase, member)->pieces) {
        fail_sizes(group, member, header->bytes, group->base.rank, 0);
        return NULL;
    }
    const ls_tcp_span span = group->call.plan->target(group, phase, member, piece);
    if (span.bytes != header->bytes) {
        fail_sizes(group, member, header->bytes, group->base.rank, span.bytes);
        return NULL;
    }
    static uint8_t nothing;
    return span.data ? span.data : &nothing;
}

static void piece_arrived(ls_tcp_group *group, uint32_t member, const ls_tcp_header *header)
{
    const uint32_t phase = ls_tcp_tag_phase(header->tag), piece = ls_tcp_tag_piece(header->tag);
    const uint32_t lanes = ls_tcp_peer_of(group, member)->lane_count;
    ls_tcp_stream *in = ls_tcp_in(group, phase, member);
    ls_tcp_stream_count(in, piece % lanes, lanes);
    in->last = piece + 1 > in->last ? piece + 1 : in->last;
    if (group->call.plan->arrived) {
        group->call.plan->arrived(group, phase, member, piece);
    }
    if (in->done == in->pieces) {
        group->call.in_left--;
    }
}

static ls_tcp_stray *stray_new(ls_tcp_mesh *mesh, uint32_t peer, const ls_tcp_header *header)
{
    ls_tcp_stray **at = &mesh->spare;
    while (*at && (*at)->capacity < header->bytes) {
        at = &(*at)->next;
    }
    ls_tcp_stray *stray = *at;
    if (stray) {
        *at = stray->next;
    } else {
        const uint64_t capacity = (header->bytes + 1023ull) / 1024 * 1024;
        stray = malloc(sizeof *stray + capacity);
        if (!stray) {
            return NULL;
        }
        stray->capacity = capacity;
    }
    stray->next = NULL;
    stray->header = *header;
    stray->peer = peer;
    stray->whole = false;
    for (at = &mesh->strays; *at; at = &(*at)->next) {
    }
    *at = stray;
    return stray;
}

void ls_tcp_place(ls_tcp_mesh *mesh, ls_tcp_lane *lane)
{
    ls_tcp_group *group = find_group(mesh, lane->header.group);
    const uint32_t member = group ? group->member_of[lane->peer] : UINT32_MAX;
    if (group && (group->status != LS_OK || member == UINT32_MAX)) {
        return;
    }
    const int order = group ? call_order(group, member, &lane->header) : 1;
    if (order == 0) {
        lane->to = piece_place(group, member, &lane->header);
        lane->group = lane->to ? group : NULL;
    } else if (order > 0 && lane->header.bytes <= LS_TCP_EAGER_BYTES) {
        lane->stray = stray_new(mesh, lane->peer, &lane->header);
        lane->to = lane->stray ? lane->stray->data : NULL;
    }
}

/* What this rank sends to and wants from a member, where the fingerprint does not say it. */
static ls_tcp_ready own_totals(const ls_tcp_group *group, uint32_t member)
{
    const ls_comm_op *op = group->call.op;
    if (op->kind != LS_COMM_ALL_TO_ALL_BLOCKS) {
        return (ls_tcp_ready){0};
    }
    return (ls_tcp_ready){.will_send_bytes = op->blocks->send_counts[member] * group->call.element_bytes,
                          .wants_bytes = op->blocks->receive_counts[member] * group->call.element_bytes};
}

static void take_ready(ls_tcp_group *group, uint32_t member, const ls_tcp_header *header, const void *payload)
{
    ls_tcp_ready ready;
    if (!agrees(group, member, header) || header->bytes != sizeof ready) {
        return;
    }
    memcpy(&ready, payload, sizeof ready);
    const ls_tcp_ready own = own_totals(group, member);
    if (ready.will_send_bytes != own.wants_bytes) {
        fail_sizes(group, member, ready.will_send_bytes, group->base.rank, own.wants_bytes);
    } else if (ready.wants_bytes != own.will_send_bytes) {
        fail_sizes(group, group->base.rank, own.will_send_bytes, member, ready.wants_bytes);
    }
    group->ready[member] = true;
}

static void take_credit(ls_tcp_group *group, uint32_t member, const ls_tcp_header *header)
{
    ls_tcp_stream *out = ls_tcp_outgoing(group, 0, member);
    const uint32_t room = ls_tcp_tag_piece(header->tag) + group->call.window;
    if (agrees(group, member, header) && room > out->room) {
        out->room = room;
    }
}

/* A whole message that belongs to the active call. */
static void take(ls_tcp_group *group, uint32_t member, const ls_tcp_header *header, const void *payload)
{
    if (header->kind == LS_TCP_READY) {
        take_ready(group, member, header, payload);
    } else if (header->kind == LS_TCP_CREDIT) {
        take_credit(group, member, header);
    } else {
        uint8_t *to = piece_place(group, member, header);
        if (to) {
            memcpy(to, payload, header->bytes);
            piece_arrived(group, member, header);
        }
    }
}

/* Whether this rank still sends to or receives from a member. */
static bool is_needed(const ls_tcp_group *group, uint32_t member)
{
    for (uint32_t phase = 0; phase < LS_TCP_PHASES; phase++) {
        const ls_tcp_stream *in = ls_tcp_in(group, phase, member),
                            *out = ls_tcp_outgoing(group, phase, member);
        if (in->done < in->pieces || out->done < out->pieces) {
            return true;
        }
    }
    return false;
}

/* The other is in a call of this group that it can't leave before this rank comes, and this rank waits for it in another one. That this rank
 * has heard nothing of it in its own call says so: the first message of a call goes on lane 0, so it would have come before. */
static bool is_crossed(const ls_tcp_group *group, uint32_t member, const ls_tcp_header *header)
{
    const ls_tcp_call *call = &group->call;
    if (!call->active || ls_tcp_tag_space(header->tag) == call->space) {
        return false;
    }
    if (call->space == LS_TCP_PAIR) {
        return call->peer == member && call->receives && ls_tcp_in(group, 0, member)->last == 0;
    }
    return header->kind == LS_TCP_READY && (int32_t)(header->seq - group->sent[member]) > 0 &&
           !group->is_heard[member] && is_needed(group, member);
}

/* A control message of a call that has not begun, or of the active one. */
static void take_or_keep(ls_tcp_mesh *mesh, ls_tcp_group *group, uint32_t member, ls_tcp_lane *lane)
{
    const ls_tcp_header *header = &lane->header;
    if (header->kind == LS_TCP_READY && group && ls_tcp_tag_space(header->tag) == LS_TCP_PAIR &&
        (int32_t)(header->seq - group->pair_ready[member]) > 0) {
        group->pair_ready[member] = header->seq;
    }
    const int order = group ? call_order(group, member, header) : 1;
    if (order == 0) {
        take(group, member, header, lane->control);
    } else if (order > 0) {
        ls_tcp_stray *stray = stray_new(mesh, lane->peer, header);
        if (stray) {
            memcpy(stray->data, lane->control, header->bytes);
            stray->whole = true;
        }
        if (group && is_crossed(group, member, header)) {
            disagree(group, group->seq);
        }
    }
}

/* Hands a stray over if its call is active now. Returns whether it is done with. */
static bool stray_take(ls_tcp_mesh *mesh, ls_tcp_stray *stray)
{
    ls_tcp_group *group = find_group(mesh, stray->header.group);
    const uint32_t member = group ? group->member_of[stray->peer] : UINT32_MAX;
    if (!stray->whole || !group) {
        return false;
    }
    if (group->status != LS_OK || member == UINT32_MAX) {
        return true;
    }
    const int order = call_order(group, member, &stray->header);
    if (order == 0) {
        take(group, member, &stray->header, stray->data);
    } else if (order > 0 && is_crossed(group, member, &stray->header)) {
        disagree(group, group->seq);
    }
    return order <= 0;
}

static void strays_take(ls_tcp_mesh *mesh)
{
    for (ls_tcp_stray **at = &mesh->strays; *at;) {
        ls_tcp_stray *stray = *at;
        if (stray_take(mesh, stray)) {
            *at = stray->next;
            ls_tcp_mesh_free_stray(mesh, stray);
        } else {
            at = &stray->next;
        }
    }
}

void ls_tcp_arrived(ls_tcp_mesh *mesh, ls_tcp_lane *lane)
{
    const ls_tcp_header *header = &lane->header;
    if (header->kind == LS_TCP_GOODBYE) {
        mesh->peers[lane->peer].left = true;
        return;
    }
    ls_tcp_group *group = find_group(mesh, header->group);
    const uint32_t member = group ? group->member_of[lane->peer] : UINT32_MAX;
    if (header->kind == LS_TCP_DATA) {
        if (lane->stray) {
            lane->stray->whole = true;
            strays_take(mesh);
        } else if (lane->group && group && group->call.active) {
            piece_arrived(group, member, header);
        }
        return;
    }
    if (group && (member == UINT32_MAX || group->status != LS_OK)) {
        return;
    }
    if (header->kind == LS_TCP_ABORT && group) {
        take_abort(group, lane);
    } else if (header->kind == LS_TCP_CLAIM && group) {
        take_claim(group, member, lane);
    } else if (header->kind == LS_TCP_READY || header->kind == LS_TCP_CREDIT) {
        take_or_keep(mesh, group, member, lane);
    }
}

/* ---- a call ---- */

ls_status ls_tcp_scratch(ls_tcp_group *group, uint64_t bytes)
{
    if (bytes <= group->scratch_bytes) {
        return LS_OK;
    }
    free(group->scratch);
    group->scratch_bytes = 0;
    const uint64_t whole = (bytes + 4095) / 4096 * 4096;
    group->scratch = aligned_alloc(4096, whole);
    if (!group->scratch) {
        return ls_fail(LS_ERR_MEMORY, "no memory: %llu bytes for pieces on their way",
                       (unsigned long long)whole);
    }
    group->scratch_bytes = whole;
    return LS_OK;
}

void ls_tcp_call_begin(ls_tcp_group *group, ls_comm_op *op, const ls_tcp_plan *plan, ls_tcp_space space)
{
    const uint32_t size = group->base.size;
    memset(group->in, 0, sizeof *group->in * LS_TCP_PHASES * size);
    memset(group->out, 0, sizeof *group->out * LS_TCP_PHASES * size);
    memset(group->ready, 0, sizeof *group->ready * size);
    memset(group->is_heard, 0, sizeof *group->is_heard * size);
    group->call = (ls_tcp_call){.op = op,
                                .plan = plan,
                                .space = space,
                                .peer = space == LS_TCP_PAIR ? op->peer : UINT32_MAX,
                                .fingerprint = op->fingerprint,
                                .element_bytes = ls_dtype_bytes(op->dtype),
                                .parent = UINT32_MAX};
    op->last_rank = UINT32_MAX;
    op->wait_ns = 0;
}

void ls_tcp_call_out(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t pieces, uint32_t limit)
{
    ls_tcp_stream *out = ls_tcp_outgoing(group, phase, member);
    out->pieces = pieces;
    out->limit = limit < pieces ? limit : pieces;
    out->room = UINT32_MAX;
    group->call.out_left += pieces > 0;
}

void ls_tcp_call_in(ls_tcp_group *group, uint32_t phase, uint32_t member, uint32_t pieces)
{
    ls_tcp_in(group, phase, member)->pieces = pieces;
    group->call.in_left += pieces > 0;
}

static ls_tcp_header call_header(const ls_tcp_group *group, ls_tcp_kind kind, uint32_t phase, uint32_t piece)
{
    return (ls_tcp_header){.kind = (uint8_t)kind,
                           .dtype = (uint8_t)group->call.op->dtype,
                           .group = group->id,
                           .fingerprint = group->call.fingerprint,
                           .seq = group->call.seq,
                           .tag = ls_tcp_tag(group->call.space, phase, piece)};
}

void ls_tcp_call_credit(ls_tcp_group *group, uint32_t member, uint32_t pieces)
{
    const ls_tcp_header header = call_header(group, LS_TCP_CREDIT, 0, pieces);
    ls_tcp_post(group->mesh, group->peer_of[member], 0, &header, NULL);
}

/* Tells those who will send me something, or all, that I am here. */
static void say_ready(ls_tcp_group *group)
{
    ls_tcp_header header = call_header(group, LS_TCP_READY, 0, 0);
    header.bytes = sizeof(ls_tcp_ready);
    for (uint32_t i = 1; i < group->base.size; i++) {
        const uint32_t member = (group->base.rank + i) % group->base.size;
        if (group->call.all_meet || ls_tcp_in(group, 0, member)->pieces > 0 ||
            ls_tcp_in(group, 1, member)->pieces > 0) {
            const ls_tcp_ready ready = own_totals(group, member);
            ls_tcp_out *out = ls_tcp_post(group->mesh, group->peer_of[member], 0, &header, NULL);
            memcpy(out->small, &ready, sizeof ready);
        }
    }
}

/* Hands the next piece of a stream to its lane, if it may go and the lane has room. */
static bool stream_send(ls_tcp_group *group, uint32_t phase, uint32_t member)
{
    ls_tcp_stream *out = ls_tcp_outgoing(group, phase, member);
    const ls_tcp_peer *peer = ls_tcp_peer_of(group, member);
    if (out->next >= out->limit || out->next >= out->room || (group->call.gated && !group->ready[member]) ||
        (phase == 0 && out->next >= group->call.front)) {
        return false;
    }
    const uint32_t lane = out->next % peer->lane_count;
    if (peer->lanes[lane].count >= LANE_AHEAD || peer->lanes[lane].fd < 0) {
        return false;
    }
    const ls_tcp_span span = group->call.plan->source(group, phase, member, out->next);
    ls_tcp_header header = call_header(group, LS_TCP_DATA, phase, out->next);
    header.bytes = (uint32_t)span.bytes;
    ls_tcp_out *entry = ls_tcp_post(group->mesh, group->peer_of[member], lane, &header, span.data);
    entry->group = group;
    entry->stream = out;
    out->next++;
    return true;
}

/* How far streams of contributions may go: `slack` pieces beyond the slowest, so that all members' last pieces leave together. */
static uint32_t find_front(const ls_tcp_group *group)
{
    uint32_t slowest = UINT32_MAX - group->call.slack;
    for (uint32_t i = 0; i < group->base.size && group->call.slack > 0; i++) {
        const ls_tcp_stream *out = ls_tcp_outgoing(group, 0, i);
        slowest = out->done < out->pieces && out->done < slowest ? out->done : slowest;
    }
    return slowest + group->call.slack;
}

/* Peers in rotated order, so that not all send to the same one; results before contributions. */
static void streams_send(ls_tcp_group *group)
{
    bool more = true;
    group->call.front = find_front(group);
    while (more) {
        more = false;
        for (uint32_t i = 1; i < group->base.size; i++) {
            const uint32_t member = (group->base.rank + i) % group->base.size;
            more |= stream_send(group, 1, member);
            more |= stream_send(group, 0, member);
        }
    }
}

static const char *call_text(const ls_tcp_group *group, char text[CALL_BYTES])
{
    const ls_comm_op *op = shown_op(group);
    char words[LS_COMM_WORDS_BYTES];
    ls_comm_op_words(op, words);
    snprintf(text, CALL_BYTES, "%s (call %llu) at %.80s:%u", words, (unsigned long long)op->seq,
             op->site.file ? op->site.file : "?", op->site.line);
    return text;
}

static void check_lost(ls_tcp_group *group)
{
    char name[192], call[CALL_BYTES];
    for (uint32_t i = 0; i < group->base.size && group->status == LS_OK; i++) {
        if (i != group->base.rank && ls_tcp_peer_of(group, i)->gone && is_needed(group, i)) {
            ls_tcp_fail(group, LS_ERR_RANKS_LOST, true, "%s: %s %s", call_text(group, call),
                        ls_tcp_name(group, i, name), ls_tcp_peer_of(group, i)->why);
        }
    }
}

/* Who is waited for; those that never came if there are any. */
static uint32_t list_missing(ls_tcp_group *group, bool absent, char *text, size_t bytes)
{
    uint32_t count = 0;
    size_t used = 0;
    for (uint32_t i = 0; i < group->base.size; i++) {
        const bool counts = is_needed(group, i) || (absent && group->call.all_meet);
        if (i == group->base.rank || !counts || (absent && group->is_heard[i])) {
            continue;
        }
        char name[192];
        if (count < 4 && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", count ? ", " : "",
                                     ls_tcp_name(group, i, name));
        }
        count++;
    }
    if (count > 4 && used < bytes) {
        snprintf(text + used, bytes - used, " and %u more", count - 4);
    }
    return count;
}

static void check_deadline(ls_tcp_group *group, uint64_t begin_ns)
{
    const uint64_t now = ls_clock_monotonic_ns(), deadline = group->call.op->deadline_ns;
    if (now < deadline || group->disagree_ns != 0) {
        return;
    }
    char missing[LS_TCP_TEXT_BYTES / 2] = "", call[CALL_BYTES];
    if (list_missing(group, true, missing, sizeof missing) > 0) {
        ls_tcp_fail(group, LS_ERR_TIMEOUT, true, "%s waited %.1f s; did not come to it: %s",
                    call_text(group, call), 1e-9 * (double)(now - begin_ns), missing);
        return;
    }
    uint64_t grace = deadline > begin_ns ? (deadline - begin_ns) / 100 * GRACE_PERCENT : 0;
    grace = grace < GRACE_MS_MAX * 1000000ull ? grace : GRACE_MS_MAX * 1000000ull;
    if (now >= deadline + grace) {
        list_missing(group, false, missing, sizeof missing);
        ls_tcp_fail(group, LS_ERR_TIMEOUT, true, "%s waited %.1f s; came to it, but their data did not: %s",
                    call_text(group, call), 1e-9 * (double)(now - begin_ns), missing);
    }
}

/* Lets the reason of a failure leave; others would have to guess. */
static void farewell(ls_tcp_group *group)
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

static bool call_step(ls_tcp_group *group)
{
    ls_tcp_call *call = &group->call;
    const bool computed = call->plan->advance(group);
    streams_send(group);
    ls_tcp_mesh_flush(group->mesh);
    return computed && call->in_left == 0 && call->out_left == 0;
}

static uint64_t next_look(const ls_tcp_group *group)
{
    const uint64_t deadline = group->call.op->deadline_ns;
    const uint64_t until =
        group->disagree_ns && group->disagree_ns < deadline ? group->disagree_ns : deadline;
    return until > ls_clock_monotonic_ns() ? until : ls_clock_monotonic_ns() + 10000000;
}

static void call_loop(ls_tcp_group *group)
{
    ls_tcp_mesh *mesh = group->mesh;
    const uint64_t begin_ns = ls_clock_monotonic_ns();
    while (group->status == LS_OK) {
        const uint64_t moves = mesh->moves;
        if (call_step(group)) {
            return;
        }
        if (group->disagree_ns) {
            judge(group);
        }
        if (mesh->moves == moves) {
            ls_tcp_mesh_check_links(mesh);
            check_lost(group);
            check_deadline(group, begin_ns);
            if (group->status == LS_OK) {
                group->call.op->wait_ns += ls_tcp_mesh_wait(mesh, next_look(group));
            }
        }
    }
}

ls_status ls_tcp_call_run(ls_tcp_group *group)
{
    ls_tcp_call *call = &group->call;
    call->active = true;
    bool claims = false;
    for (uint32_t i = 0; i < group->base.size; i++) {
        claims |= group->claimed[i];
    }
    if (claims) {
        disagree(group, group->disputed);
    }
    if (call->gated || call->space == LS_TCP_PAIR || call->op->kind == LS_COMM_ALL_TO_ALL_BLOCKS) {
        say_ready(group);
    }
    strays_take(group->mesh);
    call_loop(group);
    call->active = false;
    if (call->space == LS_TCP_GROUP) {
        group->last_op = *shown_op(group);
    }
    if (group->status != LS_OK) {
        ls_tcp_mesh_forget(group->mesh, group);
        farewell(group);
        return ls_fail(group->status, "%s", group->text);
    }
    return LS_OK;
}
