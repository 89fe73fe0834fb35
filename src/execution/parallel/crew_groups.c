// SPDX-License-Identifier: Apache-2.0
/* What the members of a group exchange in the room of their crew, chunk by chunk. */
#include "base/assert.h"
#include "base/math.h"
#include "base/pieces.h"
#include "execution/parallel/crew_room_internal.h"

#include <string.h>

/* ---- sums and gathers ---- */

/* Chunk `number` that member `member` of the crew gives to its group `group`. */
static char *chunk_of(const ls_crew_room *room, uint32_t member, ls_crew_group group, uint32_t number)
{
    const size_t share = (size_t)member * LS_CREW_GROUPS + (size_t)group;
    return room->chunks + (2 * share + (number & 1)) * LS_CREW_CHUNK_BYTES;
}

static float *own_chunk(const ls_crew_room *room, ls_crew_group group, uint32_t number)
{
    return (float *)(void *)chunk_of(room, room->self, group, number);
}

enum { ASK_GATHER = 2, ASK_SCATTER, ASK_EXCHANGE }; /* after the reductions */

static const char *const exchanges[LS_CREW_GROUPS] = {
    "an exchange of the tensor group", "an exchange of the context group", "an exchange of the expert group"};

static ls_status fail_asks(const ls_crew_room *room, ls_crew_group group, uint32_t of, uint64_t other)
{
    static const char *const asks[] = {"adds", "compares", "gathers", "scatters", "exchanges"};
    const room_group *g = &room->groups[group];
    const uint64_t own = atomic_load(&room->members[room->self].shares[group].asks[g->given & 1]);
    char self[LS_MESH_NAME_BYTES], name[LS_MESH_NAME_BYTES];
    return ls_fail(LS_ERR_MISMATCH, "%s, number %u of this step: %s %s %llu bytes, %s %s %llu bytes",
                   exchanges[group], g->given, ls_room_name(room, room->self, self), asks[own >> 56],
                   (unsigned long long)(own << 8 >> 8), ls_room_name(room, of, name), asks[other >> 56],
                   (unsigned long long)(other << 8 >> 8));
}

/* Announces the chunk that this member has written, and waits for those of the group. */
static ls_status give_chunk(ls_crew_room *room, ls_crew_group group, uint32_t kind, uint64_t bytes)
{
    room_share *own = &room->members[room->self].shares[group];
    room_group *g = &room->groups[group];
    const uint32_t number = ++g->given;
    const uint64_t ask = (uint64_t)kind << 56 | bytes;
    atomic_store(&own->asks[number & 1], ask);
    ls_word_post(&own->given, number);
    for (uint32_t i = 0; i < g->degree; i++) {
        const uint32_t of = g->first + i * g->step;
        room_share *share = &room->members[of].shares[group];
        LS_TRY(ls_room_await((room_wait){room, &share->given, number, of, exchanges[group], false}));
        const uint64_t other = atomic_load(&share->asks[number & 1]);
        if (other != ask) {
            return fail_asks(room, group, of, other);
        }
    }
    return LS_OK;
}

static void count_given(ls_crew_room *room, ls_crew_group group, uint64_t bytes)
{
    room->stats.group_bytes[group] += bytes;
}

/* The tree over members: pairs of neighbours, then pairs of pairs. In place in v[0]. */
static inline float combine(ls_crew_reduction reduction, float *v, uint32_t degree)
{
    for (uint32_t width = 1; width < degree; width *= 2) {
        for (uint32_t i = 0; i < degree; i += 2 * width) {
            const float a = v[i], b = v[i + width];
            v[i] = reduction == LS_CREW_SUM ? a + b : a > b ? a : b;
        }
    }
    return v[0];
}

enum { CHUNK_FLOATS = LS_CREW_CHUNK_BYTES / sizeof(float) };

/* Floats of a chunk. */
typedef struct chunk_range {
    int64_t first, count;
} chunk_range;

/* Combines a range of the newest chunks of the group into `out`. */
static void combine_chunks(const ls_crew_room *room, ls_crew_group group, ls_crew_reduction reduction,
                           chunk_range range, float *out)
{
    const room_group *g = &room->groups[group];
    const int64_t count = range.count;
    const uint32_t degree = g->degree;
    const float *in[ROOM_DEGREE_MAX];
    for (uint32_t i = 0; i < degree; i++) {
        in[i] = (const float *)(const void *)chunk_of(room, g->first + i * g->step, group, g->given) +
                range.first;
    }
    if (degree == 2 && reduction == LS_CREW_SUM) {
        for (int64_t k = 0; k < count; k++) {
            out[k] = in[0][k] + in[1][k];
        }
        return;
    }
    if (degree == 4 && reduction == LS_CREW_SUM) {
        for (int64_t k = 0; k < count; k++) {
            out[k] = (in[0][k] + in[1][k]) + (in[2][k] + in[3][k]);
        }
        return;
    }
    for (int64_t k = 0; k < count; k++) {
        float v[ROOM_DEGREE_MAX] = {in[0][k]};
        for (uint32_t i = 1; i < degree; i++) {
            v[i] = in[i][k];
        }
        out[k] = combine(reduction, v, degree);
    }
}

static ls_status reduce(void *context, ls_crew_group group, ls_crew_reduction reduction,
                        const ls_tensor *values)
{
    ls_crew_room *room = context;
    const room_group *g = &room->groups[group];
    const int64_t total = values->rows * values->cols;
    LS_DCHECK(values->dtype == LS_F32);
    count_given(room, group, (g->degree - 1) * (uint64_t)total * sizeof(float));
    for (int64_t at = 0; at < total && g->degree > 1; at += CHUNK_FLOATS) {
        const int64_t count = total - at < CHUNK_FLOATS ? total - at : CHUNK_FLOATS;
        float *own = own_chunk(room, group, g->given + 1);
        ls_room_copy(values, at, count, own, false);
        LS_TRY(give_chunk(room, group, (uint32_t)reduction, (uint64_t)count * sizeof(float)));
        if (values->stride == values->cols) {
            combine_chunks(room, group, reduction, (chunk_range){0, count}, (float *)values->data + at);
            continue;
        }
        /* The chunk before is free: the others have given this one, so they have read that one. */
        float *sum = own_chunk(room, group, g->given + 1);
        combine_chunks(room, group, reduction, (chunk_range){0, count}, sum);
        ls_room_copy(values, at, count, sum, true);
    }
    return LS_OK;
}

static ls_status gather(void *context, ls_crew_group group, const void *own, size_t bytes, void *all_out)
{
    ls_crew_room *room = context;
    const room_group *g = &room->groups[group];
    if (g->degree == 1) {
        memcpy(all_out, own, bytes);
        return LS_OK;
    }
    count_given(room, group, (g->degree - 1) * (uint64_t)bytes);
    for (size_t at = 0; at < bytes; at += LS_CREW_CHUNK_BYTES) {
        const size_t count = bytes - at < LS_CREW_CHUNK_BYTES ? bytes - at : LS_CREW_CHUNK_BYTES;
        memcpy(own_chunk(room, group, g->given + 1), (const char *)own + at, count);
        LS_TRY(give_chunk(room, group, ASK_GATHER, count));
        for (uint32_t i = 0; i < g->degree; i++) {
            const uint32_t of = g->first + i * g->step;
            memcpy((char *)all_out + i * bytes + at, chunk_of(room, of, group, g->given), count);
        }
    }
    return LS_OK;
}

/* The first float of the rows of member `member` of the tensor group. */
static int64_t piece_at(const ls_crew_room *room, const ls_tensor *all, uint32_t member)
{
    return ls_piece_first(all->rows, room->crew.tensor_degree, member) * all->cols;
}

static bool is_packed(const ls_tensor *t)
{
    return t->dtype == LS_F32 && (t->stride == t->cols || t->rows == 1);
}

/* Pieces differ by at most one row; all members give as many chunks as the largest needs. */
static ls_status gather_rows(void *context, const ls_tensor *own, const ls_tensor *all)
{
    ls_crew_room *room = context;
    const room_group *g = &room->groups[LS_CREW_TENSOR];
    const int64_t mine = own->rows * own->cols, most = (all->rows + g->degree - 1) / g->degree * all->cols;
    LS_DCHECK(is_packed(own) && is_packed(all));
    count_given(room, LS_CREW_TENSOR, (g->degree - 1) * (uint64_t)mine * sizeof(float));
    for (int64_t at = 0; at < most; at += CHUNK_FLOATS) {
        const int64_t count = ls_min_i64(most - at, CHUNK_FLOATS), left = ls_max_i64(mine - at, 0);
        memcpy(own_chunk(room, LS_CREW_TENSOR, g->given + 1), (const float *)own->data + at,
               (size_t)ls_min_i64(left, count) * sizeof(float));
        LS_TRY(give_chunk(room, LS_CREW_TENSOR, ASK_GATHER, (uint64_t)count * sizeof(float)));
        for (uint32_t i = 0; i < g->degree; i++) {
            const int64_t to = piece_at(room, all, i) + at, size = piece_at(room, all, i + 1) - to;
            memcpy((float *)all->data + to, chunk_of(room, g->first + i * g->step, LS_CREW_TENSOR, g->given),
                   (size_t)ls_max_i64(ls_min_i64(size, count), 0) * sizeof(float));
        }
    }
    return LS_OK;
}

static ls_status scatter_rows(void *context, const ls_tensor *values, const ls_tensor *own)
{
    ls_crew_room *room = context;
    const room_group *g = &room->groups[LS_CREW_TENSOR];
    const int64_t total = values->rows * values->cols;
    const int64_t begin = piece_at(room, values, room->crew.tensor_member);
    const int64_t end = begin + own->rows * own->cols;
    LS_DCHECK(is_packed(own) && is_packed(values));
    count_given(room, LS_CREW_TENSOR, (uint64_t)(total - (end - begin)) * sizeof(float));
    for (int64_t at = 0; at < total; at += CHUNK_FLOATS) {
        const int64_t count = ls_min_i64(total - at, CHUNK_FLOATS);
        const int64_t low = ls_max_i64(at, begin), high = ls_min_i64(at + count, end);
        memcpy(own_chunk(room, LS_CREW_TENSOR, g->given + 1), (const float *)values->data + at,
               (size_t)count * sizeof(float));
        LS_TRY(give_chunk(room, LS_CREW_TENSOR, ASK_SCATTER, (uint64_t)count * sizeof(float)));
        if (low < high) {
            combine_chunks(room, LS_CREW_TENSOR, LS_CREW_SUM, (chunk_range){low - at, high - low},
                           (float *)own->data + low - begin);
        }
    }
    return LS_OK;
}

/* ---- exchanges of uneven blocks ---- */

/* Floats that each member of the group gives each: of[i * degree + j] by i to j. */
typedef struct exchange_sizes {
    uint32_t degree;
    uint64_t of[LS_EXPERT_DEGREE_MAX * LS_EXPERT_DEGREE_MAX];
} exchange_sizes;

/* What `from` gives the members before `to`, except itself: where the part of `to` begins. */
static int64_t given_before(const exchange_sizes *sizes, uint32_t from, uint32_t to)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < to; i++) {
        sum += i == from ? 0 : sizes->of[from * sizes->degree + i];
    }
    return (int64_t)sum;
}

static ls_status learn_sizes(ls_crew_room *room, const ls_crew_block *give, const ls_crew_block *take,
                             exchange_sizes *sizes)
{
    const room_group *g = &room->groups[LS_CREW_EXPERT];
    const uint32_t self = room->crew.expert_member;
    uint64_t own[LS_EXPERT_DEGREE_MAX] = {0};
    for (uint32_t i = 0; i < g->degree; i++) {
        own[i] = (uint64_t)give[i].count;
    }
    LS_TRY(gather(room, LS_CREW_EXPERT, own, g->degree * sizeof *own, sizes->of));
    for (uint32_t i = 0; i < g->degree; i++) {
        const uint64_t given = sizes->of[i * g->degree + self];
        if (given != (uint64_t)take[i].count) {
            char name[LS_MESH_NAME_BYTES], other[LS_MESH_NAME_BYTES];
            return ls_fail(LS_ERR_MISMATCH, "%s takes %lld floats from %s, which gives it %llu",
                           ls_room_name(room, room->self, name), (long long)take[i].count,
                           ls_room_name(room, g->first + i * g->step, other), (unsigned long long)given);
        }
    }
    return LS_OK;
}

/* Floats [at, at + CHUNK_FLOATS) of all that this member gives, into `chunk`. */
static void fill_chunk(const ls_crew_room *room, const exchange_sizes *sizes, const ls_crew_block *give,
                       int64_t at, float *chunk)
{
    const uint32_t self = room->crew.expert_member;
    for (uint32_t to = 0; to < room->crew.expert_degree; to++) {
        const int64_t first = given_before(sizes, self, to);
        const int64_t low = ls_max_i64(first, at),
                      high = ls_min_i64(first + give[to].count, at + CHUNK_FLOATS);
        if (to != self && low < high) {
            memcpy(chunk + low - at, give[to].data + low - first, (size_t)(high - low) * sizeof(float));
        }
    }
}

/* The same floats of what member `from` gives: those that are for this member. */
static void take_chunk(const ls_crew_room *room, const exchange_sizes *sizes, uint32_t from, int64_t at,
                       const ls_crew_block *into)
{
    const room_group *g = &room->groups[LS_CREW_EXPERT];
    const int64_t first = given_before(sizes, from, room->crew.expert_member);
    const int64_t low = ls_max_i64(first, at), high = ls_min_i64(first + into->count, at + CHUNK_FLOATS);
    if (low < high) {
        const float *chunk =
            (const float *)(const void *)chunk_of(room, g->first + from * g->step, LS_CREW_EXPERT, g->given);
        memcpy(into->data + low - first, chunk + low - at, (size_t)(high - low) * sizeof(float));
    }
}

/* Each member gives its blocks one after the other, in as many chunks as the one with the most
 * needs. */
static ls_status exchange(void *context, const ls_crew_block *give, const ls_crew_block *take)
{
    ls_crew_room *room = context;
    const room_group *g = &room->groups[LS_CREW_EXPERT];
    const uint32_t self = room->crew.expert_member;
    exchange_sizes sizes = {.degree = g->degree};
    int64_t most = 0;
    LS_TRY(learn_sizes(room, give, take, &sizes));
    if (give[self].count > 0) {
        memcpy(take[self].data, give[self].data, (size_t)give[self].count * sizeof(float));
    }
    for (uint32_t i = 0; i < g->degree; i++) {
        most = ls_max_i64(most, given_before(&sizes, i, g->degree));
    }
    count_given(room, LS_CREW_EXPERT, (uint64_t)given_before(&sizes, self, g->degree) * sizeof(float));
    for (int64_t at = 0; at < most; at += CHUNK_FLOATS) {
        fill_chunk(room, &sizes, give, at, own_chunk(room, LS_CREW_EXPERT, g->given + 1));
        const uint64_t count = (uint64_t)ls_min_i64(most - at, CHUNK_FLOATS);
        LS_TRY(give_chunk(room, LS_CREW_EXPERT, ASK_EXCHANGE, count * sizeof(float)));
        for (uint32_t from = 0; from < g->degree; from++) {
            if (from != self) {
                take_chunk(room, &sizes, from, at, &take[from]);
            }
        }
    }
    return LS_OK;
}

void ls_room_open_groups(ls_crew_room *room)
{
    room->crew.reduce = reduce;
    room->crew.gather = gather;
    room->crew.gather_rows = gather_rows;
    room->crew.scatter_rows = scatter_rows;
    room->crew.exchange = exchange;
}
