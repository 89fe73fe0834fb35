// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/crew_room_internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/math.h"
#include "comm/flight/flight.h"

#include <stdlib.h>
#include <string.h>

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static uint64_t bytes_of_one(uint32_t size, uint64_t value_bytes)
{
    return sizeof(room_head) + size * (sizeof(room_member) + LS_CREW_WAYS * sizeof(room_channel)) +
           size * UINT64_C(2) * LS_CREW_GROUPS * LS_CREW_CHUNK_BYTES +
           (uint64_t)size * LS_CREW_WAYS * LS_CREW_SENDS_AHEAD * padded(value_bytes);
}

uint64_t ls_crew_room_bytes(ls_mesh mesh, uint32_t crews, uint64_t value_bytes)
{
    return ls_mesh_crew(mesh) > 1 ? crews * bytes_of_one(ls_mesh_crew(mesh), value_bytes) : 0;
}

/* ---- waits ---- */

/* A stage on another host gave the attempt up, or any part of this one. */
static bool is_given_up(const ls_crew_room *room)
{
    const ls_crew_room_options *o = &room->options;
    for (uint32_t way = 0; way < LS_CREW_WAYS; way++) {
        if (room->in[way] && ls_courier_is_given_up(room->in[way])) {
            return true;
        }
    }
    return o->is_given_up && o->is_given_up(o->context);
}

/* LS_OK while all couriers carry. */
static ls_status couriers_status(const ls_crew_room *room)
{
    for (uint32_t way = 0; way < LS_CREW_WAYS; way++) {
        LS_TRY(room->in[way] ? ls_courier_status(room->in[way]) : LS_OK);
        LS_TRY(room->out[way] ? ls_courier_status(room->out[way]) : LS_OK);
    }
    return LS_OK;
}

/* A courier that fails because a rank is gone knows it before the agents do: a fence follows, and
 * only if none comes is the failure an error of the step. */
static bool is_cut_off(ls_crew_room *room)
{
    static const uint64_t patience_ns = UINT64_C(20000000000);
    const ls_status status = couriers_status(room);
    if (status == LS_OK) {
        return false;
    }
    const uint64_t now_ns = ls_clock_monotonic_ns();
    room->cut_ns = room->cut_ns > 0 ? room->cut_ns : now_ns;
    return status == LS_ERR_MISMATCH || now_ns - room->cut_ns > patience_ns;
}

static bool look(void *context)
{
    ls_crew_room *room = context;
    const ls_crew_room_options *o = &room->options;
    return (!o->look || o->look(o->context)) && !is_given_up(room) && !is_cut_off(room);
}

/* "the rank 5 (dp 1, pp 0, tp 1)" of member `of` of this crew. */
const char *ls_room_name(const ls_crew_room *room, uint32_t of, char text[LS_MESH_NAME_BYTES])
{
    return ls_mesh_name(room->options.mesh, room->options.rank - room->self + of, NULL, text);
}

static ls_status fail_wait(const ls_crew_room *room, ls_wait_result result, uint32_t of, const char *what)
{
    const ls_crew_room_options *o = &room->options;
    char self[LS_MESH_NAME_BYTES], other[LS_MESH_NAME_BYTES];
    if (result == LS_WAIT_ABORTED && o->aborted) {
        LS_TRY(o->aborted(o->context));
    }
    if (result == LS_WAIT_REFUSED && is_given_up(room)) {
        return LS_STOPPED;
    }
    if (result == LS_WAIT_REFUSED) {
        LS_TRY(couriers_status(room));
    }
    if (result == LS_WAIT_TIMEOUT) {
        return ls_fail(LS_ERR_TIMEOUT, "%s gave up after it had waited %.3g s for %s at %s",
                       ls_room_name(room, room->self, self), o->timeout_s, ls_room_name(room, of, other),
                       what);
    }
    return ls_fail(LS_ERR_RANKS_LOST, "the run was ended while %s waited for %s at %s",
                   ls_room_name(room, room->self, self), ls_room_name(room, of, other), what);
}

static ls_wait wait_of(ls_crew_room *room, double timeout_s)
{
    return (ls_wait){.deadline_ns = ls_clock_monotonic_ns() + (uint64_t)(timeout_s * 1e9),
                     .spins = room->options.spins,
                     .abort = room->options.abort,
                     .look = look,
                     .context = room};
}

static uint32_t comm_id(const ls_crew_room *room)
{
    const uint32_t crew = room->options.rank / room->size; /* of the mesh: the same on all hosts */
    return LS_CREW_COMM + crew + ((uint32_t)(room->options.epoch & 0x3fff) << 10);
}

static uint32_t first_outside(const ls_crew_room *room)
{
    uint32_t of = room->first;
    while (of < room->past && atomic_load(&room->members[of].attempt) >= room->attempt) {
        of++;
    }
    return of;
}

static bool is_met(void *context)
{
    const room_wait *w = context;
    return w->word ? ls_word_reached(w->word, w->value) : first_outside(w->room) == w->room->past;
}

/* Waits on, for a member that is long in coming. */
static ls_wait_result wait_late(room_wait *w, ls_word *word, uint64_t begin_ns)
{
    const ls_flight_call call = {
        .seq = ++w->room->late_count,
        .begin_ns = begin_ns,
        .comm_id = comm_id(w->room),
        .peer = w->of,
        .site = ls_flight_site(w->what, 0),
        .kind = LS_COMM_RECEIVE,
        .dtype = LS_F32,
        .slot = w->room->flight_slot,
    };
    ls_flight_record *record = ls_flight_begin(&call);
    const ls_wait wait = wait_of(w->room, w->room->options.timeout_s);
    const ls_wait_result result = ls_wait_for(word, is_met, w, &wait);
    ls_flight_end(record, 0, w->of, ls_clock_monotonic_ns() - begin_ns,
                  result == LS_WAIT_DONE ? LS_OK : LS_ERR_FAILED);
    return result;
}

ls_status ls_room_await(room_wait w)
{
    static const double late_s = 0.05;
    if (is_met(&w)) {
        return LS_OK;
    }
    ls_crew_room *room = w.room;
    ls_word *word = w.word ? w.word : &room->head->entered;
    const uint64_t begin_ns = ls_clock_monotonic_ns();
    const ls_wait wait = wait_of(room, late_s);
    ls_flight_activity(LS_ACTIVITY_COMM, 0);
    ls_wait_result result = ls_wait_for(word, is_met, &w, &wait);
    if (result == LS_WAIT_TIMEOUT) {
        const uint32_t of = first_outside(room);
        w.of = w.word || of == room->past ? w.of : of;
        result = wait_late(&w, word, begin_ns);
    }
    const uint64_t waited_ns = ls_clock_monotonic_ns() - begin_ns;
    room->stats.wait_ns += waited_ns;
    room->stats.stage_wait_ns += w.of_stage ? waited_ns : 0;
    return result == LS_WAIT_DONE ? LS_OK : fail_wait(room, result, w.of, w.what);
}

/* ---- entering and meeting ---- */

static room_channel *channel_from(const ls_crew_room *room, uint32_t member, ls_crew_way way)
{
    return &room->channels[member * LS_CREW_WAYS + (uint32_t)way];
}

/* The member with the same numbers in another stage of this crew. */
static uint32_t member_at(const ls_crew_room *room, uint32_t stage)
{
    const uint32_t in_stage = room->crew.tensor_degree * room->crew.context_degree;
    return room->self + stage * in_stage - room->crew.stage * in_stage;
}

/* The stage that a value on this way goes to from `stage`; stages are a ring, because a stage may
 * hold several runs of layers. */
static uint32_t next_stage(const ls_crew_room *room, ls_crew_way way, uint32_t stage)
{
    const uint32_t stages = room->crew.stages;
    return (stage + (way == LS_CREW_FORWARD ? 1 : stages - 1)) % stages;
}

static uint32_t stage_before(const ls_crew_room *room, ls_crew_way way, uint32_t stage)
{
    return next_stage(room, way == LS_CREW_FORWARD ? LS_CREW_BACKWARD : LS_CREW_FORWARD, stage);
}

/* The words first, the attempt last: whoever sees the attempt sees words that belong to it. */
void ls_crew_room_enter(ls_crew_room *room, uint64_t attempt, uint64_t fingerprint)
{
    room_member *own = &room->members[room->self];
    room->stats = (ls_crew_room_stats){0};
    room->attempt = attempt;
    room->met = 0;
    for (uint32_t group = 0; group < LS_CREW_GROUPS; group++) {
        room->groups[group].given = 0;
        ls_word_post(&own->shares[group].given, 0);
    }
    ls_word_post(&own->met, 0);
    for (uint32_t way = 0; way < LS_CREW_WAYS; way++) {
        room->sent[way] = room->received[way] = 0;
        const uint32_t from = member_at(room, stage_before(room, (ls_crew_way)way, room->crew.stage));
        ls_word_post(&channel_from(room, room->self, (ls_crew_way)way)->sent, 0);
        ls_word_post(&channel_from(room, from, (ls_crew_way)way)->received, 0);
    }
    for (uint32_t way = 0; way < LS_CREW_WAYS; way++) {
        if (room->out[way]) {
            ls_courier_enter(room->out[way], attempt, fingerprint);
        }
        if (room->in[way]) {
            ls_courier_enter(room->in[way], attempt, fingerprint);
        }
    }
    atomic_store(&own->attempt, attempt);
    ls_word_add(&room->head->entered, 1);
}

void ls_crew_room_give_up(ls_crew_room *room)
{
    for (uint32_t way = 0; way < LS_CREW_WAYS; way++) {
        if (room->out[way]) {
            ls_courier_give_up(room->out[way]);
        }
        if (room->in[way]) {
            ls_courier_give_up(room->in[way]);
        }
    }
}

ls_status ls_crew_room_await(ls_crew_room *room)
{
    return ls_room_await((room_wait){.room = room, .of = room->self, .what = "the start of the step"});
}

ls_status ls_crew_room_meet(ls_crew_room *room)
{
    ls_word_post(&room->members[room->self].met, ++room->met);
    for (uint32_t of = room->first; of < room->past; of++) {
        LS_TRY(ls_room_await((room_wait){room, &room->members[of].met, room->met, of, "the end of a leaf",
                                         room->crew.stages > 1}));
    }
    return LS_OK;
}

/* ---- copies ---- */

/* Copies `count` values between a view, from its value number `first` on, and packed memory. */
void ls_room_copy(const ls_tensor *view, int64_t first, int64_t count, float *packed, bool to_view)
{
    while (count > 0) {
        const int64_t row = first / view->cols, col = first % view->cols;
        const int64_t left = view->stride == view->cols ? count : view->cols - col;
        const int64_t now = left < count ? left : count;
        float *at = (float *)view->data + row * view->stride + col;
        memcpy(to_view ? at : packed, to_view ? packed : at, (size_t)now * sizeof(float));
        first += now;
        packed += now;
        count -= now;
    }
}

/* ---- sends ---- */

static float *value_of(const ls_crew_room *room, uint32_t member, ls_crew_way way, uint32_t number)
{
    const size_t channel = (size_t)member * LS_CREW_WAYS + (size_t)way;
    return (float *)(void *)(room->values + (channel * LS_CREW_SENDS_AHEAD + number % LS_CREW_SENDS_AHEAD) *
                                                padded(room->options.value_bytes));
}

static ls_status send(void *context, ls_crew_way way, uint32_t to_stage, const ls_tensor *values)
{
    ls_crew_room *room = context;
    const int64_t total = values->rows * values->cols;
    const int64_t most = (int64_t)(room->options.value_bytes / sizeof(float));
    room_channel *channel = channel_from(room, room->self, way);
    LS_ASSERT(to_stage == next_stage(room, way, room->crew.stage) && values->dtype == LS_F32);
    for (int64_t at = 0; at < total; at += most) {
        const int64_t count = total - at < most ? total - at : most;
        const uint32_t number = ++room->sent[way];
        LS_TRY(ls_room_await((room_wait){room, &channel->received, number - LS_CREW_SENDS_AHEAD,
                                         member_at(room, to_stage), "a value between stages", true}));
        ls_room_copy(values, at, count, value_of(room, room->self, way, number), false);
        atomic_store(&channel->bytes[number % LS_CREW_SENDS_AHEAD], (uint64_t)count * sizeof(float));
        ls_word_post(&channel->sent, number);
        if (room->out[way]) {
            ls_courier_look(room->out[way]);
        }
        room->stats.sent_bytes += (uint64_t)count * sizeof(float);
    }
    return LS_OK;
}

static ls_status receive(void *context, ls_crew_way way, uint32_t from_stage, const ls_tensor *values)
{
    ls_crew_room *room = context;
    const int64_t total = values->rows * values->cols;
    const int64_t most = (int64_t)(room->options.value_bytes / sizeof(float));
    const uint32_t from = member_at(room, from_stage);
    room_channel *channel = channel_from(room, from, way);
    LS_ASSERT(from_stage == stage_before(room, way, room->crew.stage) && values->dtype == LS_F32);
    for (int64_t at = 0; at < total; at += most) {
        const int64_t count = total - at < most ? total - at : most;
        const uint32_t number = ++room->received[way];
        LS_TRY(
            ls_room_await((room_wait){room, &channel->sent, number, from, "a value between stages", true}));
        const uint64_t bytes = atomic_load(&channel->bytes[number % LS_CREW_SENDS_AHEAD]);
        if (bytes != (uint64_t)count * sizeof(float)) {
            char self[LS_MESH_NAME_BYTES], name[LS_MESH_NAME_BYTES];
            return ls_fail(LS_ERR_MISMATCH, "%s expects a value of %llu bytes, but %s sent %llu",
                           ls_room_name(room, room->self, self), (unsigned long long)count * sizeof(float),
                           ls_room_name(room, from, name), (unsigned long long)bytes);
        }
        ls_room_copy(values, at, count, value_of(room, from, way, number), true);
        ls_word_post(&channel->received, number);
        if (room->in[way]) {
            ls_courier_look(room->in[way]);
        }
    }
    return LS_OK;
}

/* ---- stages on other hosts ---- */

/* Edge e of the ring of stages is between stage e and the next one. Edges of one class have no
 * stage in common, so one split makes the groups of all of them. */
static uint32_t class_of(uint32_t stages, uint32_t edge)
{
    return edge + 1 == stages && stages % 2 == 1 ? 2 : edge % 2;
}

static uint32_t host_of(const ls_crew_room_options *o, uint32_t rank)
{
    uint32_t host = 0;
    while (host + 1 < o->host_count && o->hosts[host + 1].first_rank <= rank) {
        host++;
    }
    return host;
}

/* Whether any crew has stages on several hosts. All ranks come to the same result. */
static bool is_spread(const ls_crew_room *room)
{
    const ls_crew_room_options *o = &room->options;
    for (uint32_t host = 0; o->comm && host < o->host_count; host++) {
        if (o->hosts[host].first_rank % room->size != 0) {
            return true;
        }
    }
    return false;
}

/* Opens the courier of a way for the edge of a class that this stage is at; collective. */
static ls_status open_courier(ls_crew_room *room, ls_crew_way way, uint32_t class)
{
    const ls_crew_room_options *o = &room->options;
    const uint32_t stages = room->crew.stages, stage = room->crew.stage;
    const uint32_t before = (stage + stages - 1) % stages;
    const bool is_first = class_of(stages, stage) == class; /* of the two stages of the edge */
    const uint32_t other = member_at(room, is_first ? (stage + 1) % stages : before);
    const uint32_t rank = o->rank - room->self + other;
    const bool is_apart =
        (is_first || class_of(stages, before) == class) && host_of(o, rank) != host_of(o, o->rank);
    const bool sends = is_first == (way == LS_CREW_FORWARD);
    ls_comm *comm = NULL;
    LS_TRY(ls_comm_split(o->comm, is_apart ? (int32_t)(is_first ? o->rank : rank) : -1, is_first ? 0 : 1,
                         &comm));
    if (!comm) {
        return LS_OK;
    }
    ls_comm_in_background(comm);
    room->comms[room->comm_count++] = comm;
    const uint32_t from = sends ? room->self : other;
    room_channel *channel = channel_from(room, from, way);
    const ls_courier_channel ends = {.sent = &channel->sent,
                                     .received = &channel->received,
                                     .bytes = channel->bytes,
                                     .values = (char *)value_of(room, from, way, 0),
                                     .value_bytes = padded(o->value_bytes)};
    return ls_courier_open(comm, is_first ? 1 : 0, sends, ends, sends ? &room->out[way] : &room->in[way]);
}

static ls_status open_couriers(ls_crew_room *room)
{
    const uint32_t classes = room->crew.stages == 1 ? 0 : 2 + room->crew.stages % 2;
    for (uint32_t class = 0; class < classes && is_spread(room); class ++) {
        LS_TRY(open_courier(room, LS_CREW_FORWARD, class));
        LS_TRY(open_courier(room, LS_CREW_BACKWARD, class));
    }
    return LS_OK;
}

void ls_crew_room_break(ls_crew_room *room)
{
    for (uint32_t way = 0; way < LS_CREW_WAYS; way++) {
        ls_courier_close(room->out[way]);
        ls_courier_close(room->in[way]);
        room->out[way] = room->in[way] = NULL;
    }
}

/* ---- life ---- */

static void place_areas(ls_crew_room *room)
{
    char *at = (char *)room->options.memory +
               room->options.crew * bytes_of_one(room->size, room->options.value_bytes);
    room->head = (room_head *)(void *)at;
    room->members = (room_member *)(void *)(room->head + 1);
    room->channels = (room_channel *)(void *)(room->members + room->size);
    room->chunks = (char *)(room->channels + (size_t)room->size * LS_CREW_WAYS);
    room->values = room->chunks + (size_t)room->size * 2 * LS_CREW_GROUPS * LS_CREW_CHUNK_BYTES;
}

ls_status ls_crew_room_open(const ls_crew_room_options *options, ls_crew_room **room_out)
{
    LS_ASSERT(options->memory && (uintptr_t)options->memory % 64 == 0 && options->value_bytes > 0);
    ls_crew_room *room = calloc(1, sizeof *room);
    if (!room) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the exchanges of a rank with its crew");
    }
    room->options = *options;
    room->place = ls_mesh_place_of(options->mesh, options->rank);
    room->size = ls_mesh_crew(options->mesh);
    room->self = options->rank - ls_mesh_leader(options->mesh, options->rank);
    const uint32_t begin = options->rank - room->self;
    room->first = options->host.first_rank > begin ? options->host.first_rank - begin : 0;
    room->past =
        (uint32_t)ls_min_u64(room->size, options->host.first_rank + options->host.rank_count - begin);
    const uint32_t tensor = options->mesh.tensor > 0 ? options->mesh.tensor : 1;
    const uint32_t contexts = options->mesh.context > 0 ? options->mesh.context : 1;
    const uint32_t experts = options->mesh.expert > 0 ? options->mesh.expert : 1;
    const uint32_t stages = room->size / (tensor * contexts * experts);
    const uint32_t stage = (room->place.expert * stages + room->place.pipeline) * tensor * contexts;
    LS_ASSERT(tensor <= ROOM_DEGREE_MAX && (tensor & (tensor - 1)) == 0);
    LS_ASSERT(contexts <= ROOM_DEGREE_MAX && (contexts & (contexts - 1)) == 0);
    LS_ASSERT(experts <= (uint32_t)LS_EXPERT_DEGREE_MAX);
    room->groups[LS_CREW_TENSOR] =
        (room_group){.degree = tensor, .first = stage + room->place.context * tensor, .step = 1};
    room->groups[LS_CREW_CONTEXT] =
        (room_group){.degree = contexts, .first = stage + room->place.tensor, .step = tensor};
    room->groups[LS_CREW_EXPERT] =
        (room_group){.degree = experts,
                     .first = room->self - room->place.expert * (room->size / experts),
                     .step = room->size / experts};
    room->crew = (ls_crew){.context = room,
                           .tensor_degree = tensor,
                           .tensor_member = room->place.tensor,
                           .context_degree = contexts,
                           .context_member = room->place.context,
                           .expert_degree = experts,
                           .expert_member = room->place.expert,
                           .stages = stages,
                           .stage = room->place.pipeline,
                           .send = send,
                           .receive = receive};
    ls_room_open_groups(room);
    place_areas(room);
    room->flight_slot = ls_flight_join(comm_id(room), room->self, room->size, "crew");
    const ls_status status = open_couriers(room);
    if (status != LS_OK) {
        ls_crew_room_close(room);
        return status;
    }
    *room_out = room;
    return LS_OK;
}

void ls_crew_room_close(ls_crew_room *room)
{
    if (!room) {
        return;
    }
    ls_crew_room_break(room);
    while (room->comm_count > 0) {
        ls_comm_close(room->comms[--room->comm_count]);
    }
    ls_flight_leave(room->flight_slot);
    free(room);
}

const ls_crew *ls_crew_room_crew(const ls_crew_room *room)
{
    return &room->crew;
}

ls_crew_room_stats ls_crew_room_get_stats(const ls_crew_room *room)
{
    return room->stats;
}
