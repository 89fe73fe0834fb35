// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp/tcp_mesh.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* Messages given to a lane that has not sent them yet. */
enum { LANE_AHEAD = 2 };

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

/* How a message relates to the active call of its group: -1: it belongs to an earlier call; 0: to
 * this one; 1: to a later one, or to the other space. group->seq, sent and received include the
 * active call. */
static int call_order(const ls_tcp_group *group, uint32_t member, const ls_tcp_header *header)
{
    const ls_tcp_call *call = &group->call;
    /* In a pair, data belongs to a receive of this rank, READY to a send. */
    const bool data = header->kind == LS_TCP_DATA;
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

/* Compares the fingerprint of a message of the active call. Returns false on a mismatch. */
static bool agrees(ls_tcp_group *group, uint32_t member, const ls_tcp_header *header)
{
    heard(group, member);
    if (header->fingerprint != group->call.fingerprint) {
        ls_tcp_disagree(group, group->seq);
        return false;
    }
    return true;
}

/* The place of a piece of the active call; NULL if the members disagree about its size. */
static uint8_t *piece_place(ls_tcp_group *group, uint32_t member, const ls_tcp_header *header)
{
    if (!agrees(group, member, header)) {
        return NULL;
    }
    const uint32_t phase = ls_tcp_tag_phase(header->tag), piece = ls_tcp_tag_piece(header->tag);
    if (phase >= LS_TCP_PHASES || piece >= ls_tcp_in(group, phase, member)->pieces) {
        ls_tcp_fail_sizes(group, member, header->bytes, group->base.rank, 0);
        return NULL;
    }
    const ls_tcp_span span = group->call.plan->target(group, phase, member, piece);
    if (span.bytes != header->bytes) {
        ls_tcp_fail_sizes(group, member, header->bytes, group->base.rank, span.bytes);
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

/* The bytes that this rank sends to and wants from a member, where the fingerprint does not say
 * so. */
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
        ls_tcp_fail_sizes(group, member, ready.will_send_bytes, group->base.rank, own.wants_bytes);
    } else if (ready.wants_bytes != own.will_send_bytes) {
        ls_tcp_fail_sizes(group, group->base.rank, own.will_send_bytes, member, ready.wants_bytes);
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

/* A complete message of the active call. */
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

bool ls_tcp_call_needs(const ls_tcp_group *group, uint32_t member)
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

/* Whether two ranks wait for each other in different calls: the other one is in a call of this
 * group that it cannot leave before this rank joins it, while this rank waits for the other in its
 * own call. The first message of a call uses lane 0; so if the other had begun this rank's call,
 * its message would have arrived before this one. */
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
           !group->is_heard[member] && ls_tcp_call_needs(group, member);
}

/* A control message of the active call or of one that has not begun. */
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
            ls_tcp_disagree(group, group->seq);
        }
    }
}

/* Delivers a stray if its call is active now. Returns true if the stray is no longer needed. */
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
        ls_tcp_disagree(group, group->seq);
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
        ls_tcp_take_abort(group, lane);
    } else if (header->kind == LS_TCP_CLAIM && group) {
        ls_tcp_take_claim(group, member, lane);
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
        return ls_fail(LS_ERR_MEMORY, "not enough memory for %llu bytes of data that is being exchanged",
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

/* Sends READY to the members that will send something to this rank, or to all. */
static void send_ready(ls_tcp_group *group)
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

/* Gives the next piece of a stream to its lane, if it may be sent now and the lane has room. */
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

/* How far streams of phase 0 may go: `slack` pieces beyond the slowest, so that the last pieces to
 * all members leave at about the same time. */
static uint32_t find_front(const ls_tcp_group *group)
{
    uint32_t slowest = UINT32_MAX - group->call.slack;
    for (uint32_t i = 0; i < group->base.size && group->call.slack > 0; i++) {
        const ls_tcp_stream *out = ls_tcp_outgoing(group, 0, i);
        slowest = out->done < out->pieces && out->done < slowest ? out->done : slowest;
    }
    return slowest + group->call.slack;
}

/* Members in rotated order, so that not all send to the same one; results before contributions. */
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
            ls_tcp_judge(group);
        }
        if (mesh->moves == moves) {
            ls_tcp_mesh_check_links(mesh);
            ls_tcp_check_lost(group);
            ls_tcp_check_deadline(group, begin_ns);
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
        ls_tcp_disagree(group, group->disputed);
    }
    if (call->gated || call->space == LS_TCP_PAIR || call->op->kind == LS_COMM_ALL_TO_ALL_BLOCKS) {
        send_ready(group);
    }
    strays_take(group->mesh);
    call_loop(group);
    call->active = false;
    if (call->space == LS_TCP_GROUP) {
        group->last_op = *ls_tcp_shown_op(group);
    }
    if (group->status != LS_OK) {
        ls_tcp_mesh_forget(group->mesh, group);
        ls_tcp_farewell(group);
        return ls_fail(group->status, "%s", group->text);
    }
    return LS_OK;
}
