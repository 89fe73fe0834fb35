// SPDX-License-Identifier: Apache-2.0
/*
 * A crew in a simulated world: members that compute the leaves of a step together by the lists of
 * their stages (model/pipeline.h) and the rules of execution/parallel/crew_room.h, without numbers.
 *
 *   receive -> compute -> add with the tensor group -> send -> ... -> meet at the end of the leaf;
 *   the leader pushes the leaf, and between meetings merges a pair of leaves
 *
 * What the ranks of a host share (crew) outlives them, each cell with one writer; where a member
 * is in its list (crew_member) dies with it. An attempt has a number that all members know. `wrong`
 * names the first rule that was broken: a value of another leaf, micro-batch or run of layers than
 * the one expected, members of a group in different passes, a leaf pushed before all have computed
 * it.
 */
#ifndef LS_TESTS_EXECUTION_MEMBERSHIP_CREW_H
#define LS_TESTS_EXECUTION_MEMBERSHIP_CREW_H

#include "execution/executor/crew.h"
#include "execution/parallel/mesh.h"
#include "model/pipeline.h"

enum { CREW_MEMBERS = 5 };

typedef enum crew_phase {
    CREW_ENTERS,
    CREW_AWAITS,
    CREW_RECEIVES,
    CREW_COMPUTES,
    CREW_ADDS,
    CREW_SENDS,
    CREW_MEETS,
    CREW_MERGES,
    CREW_PHASES
} crew_phase;

/* Written by one member. */
typedef struct crew_cell {
    uint64_t attempt;
    uint32_t met, given, asks[2];
    uint32_t at; /* entries of the list that were computed */
    uint32_t sent[LS_CREW_WAYS], received[LS_CREW_WAYS];
    uint32_t values[LS_CREW_WAYS][LS_CREW_SENDS_AHEAD];
} crew_cell;

typedef struct crew {
    ls_mesh mesh;
    ls_pipeline pipeline;
    const ls_pipeline_work *lists[CREW_MEMBERS]; /* by stage */
    uint32_t leaves;
    crew_cell cells[CREW_MEMBERS];
    uint64_t step;  /* whose leaves are on the stack */
    uint32_t stack; /* leaves that are finished */
    const char *wrong;
} crew;

/* What is at hand in the process of a member. */
typedef struct crew_member {
    crew *crew;
    uint32_t self;
    uint64_t attempt, step;
    crew_phase phase;
    uint32_t leaf;
    uint32_t turn;   /* of the meetings at the end of a leaf */
    bool has_posted; /* and waits for the others */
} crew_member;

typedef enum crew_next { CREW_GOES_ON, CREW_WORKS, CREW_WAITS, CREW_ENDED } crew_next;

static inline void crew_init(crew *c, ls_arena *arena, ls_mesh mesh, ls_pipeline pipeline, uint32_t leaves)
{
    *c = (crew){.mesh = mesh, .pipeline = pipeline, .leaves = leaves};
    for (uint32_t stage = 0; stage < pipeline.stages; stage++) {
        c->lists[stage] = ls_pipeline_list(arena, &pipeline, stage);
    }
}

static crew_cell *crew_own(const crew_member *m)
{
    return &m->crew->cells[m->self];
}

static uint32_t crew_stage(const crew_member *m)
{
    return m->self / m->crew->mesh.tensor;
}

static const ls_pipeline_work *crew_work(const crew_member *m)
{
    return &m->crew->lists[crew_stage(m)][crew_own(m)->at];
}

/* The way of a pass, and the run of layers whose value it receives and sends; false: it has none. */
static bool crew_travels(const crew_member *m, bool sends, ls_crew_way *way, uint32_t *run)
{
    const ls_pipeline_work *work = crew_work(m);
    const uint32_t stages = m->crew->pipeline.stages, last = stages * m->crew->pipeline.chunks - 1;
    *run = work->chunk * stages + crew_stage(m);
    *way = work->pass == LS_PIPELINE_FORWARD ? LS_CREW_FORWARD : LS_CREW_BACKWARD;
    const bool is_at_end = *run == ((*way == LS_CREW_FORWARD) == sends ? last : 0);
    return work->pass != LS_PIPELINE_BACKWARD_WEIGHT && !is_at_end;
}

/* The same member of the stage that a value on this way goes to, or comes from. */
static crew_cell *crew_neighbour(const crew_member *m, bool sends, ls_crew_way way)
{
    const uint32_t stages = m->crew->pipeline.stages, tensor = m->crew->mesh.tensor;
    const uint32_t by = sends == (way == LS_CREW_FORWARD) ? 1 : stages - 1;
    return &m->crew->cells[(crew_stage(m) + by) % stages * tensor + m->self % tensor];
}

static uint32_t crew_value(const crew_member *m, uint32_t run)
{
    return (m->leaf << 16) + (crew_work(m)->micro_batch << 8) + run;
}

static void crew_must(crew_member *m, bool is_true, const char *what)
{
    m->crew->wrong = m->crew->wrong || is_true ? m->crew->wrong : what;
}

static bool crew_all(const crew_member *m, uint32_t first, uint32_t past,
                     bool (*has)(const crew_cell *, uint64_t), uint64_t value)
{
    for (uint32_t i = first; i < past; i++) {
        if (!has(&m->crew->cells[i], value)) {
            return false;
        }
    }
    return true;
}

static bool crew_has_entered(const crew_cell *cell, uint64_t attempt)
{
    return cell->attempt == attempt;
}

static bool crew_has_met(const crew_cell *cell, uint64_t met)
{
    return cell->met >= met;
}

static bool crew_has_given(const crew_cell *cell, uint64_t given)
{
    return cell->given >= given;
}

static bool crew_has_computed(const crew_cell *cell, uint64_t length)
{
    return cell->at == length;
}

static crew_next crew_enters(crew_member *m)
{
    crew *c = m->crew;
    if (c->step != m->step) {
        c->step = m->step;
        c->stack = 0;
    }
    if (c->stack == c->leaves) {
        return CREW_ENDED; /* by an earlier attempt */
    }
    m->leaf = c->stack;
    *crew_own(m) = (crew_cell){.attempt = m->attempt};
    m->phase = CREW_AWAITS;
    return CREW_GOES_ON;
}

static crew_next crew_receives(crew_member *m)
{
    ls_crew_way way;
    uint32_t run;
    if (crew_travels(m, false, &way, &run)) {
        crew_cell *own = crew_own(m);
        const crew_cell *from = crew_neighbour(m, false, way);
        if (from->sent[way] == own->received[way]) {
            return CREW_WAITS;
        }
        crew_must(m, from->values[way][own->received[way] % LS_CREW_SENDS_AHEAD] == crew_value(m, run),
                  "a value is that of the pass that receives it");
        own->received[way]++;
    }
    m->phase = CREW_COMPUTES;
    return CREW_GOES_ON;
}

static crew_next crew_adds(crew_member *m)
{
    crew_cell *own = crew_own(m);
    const uint32_t first = crew_stage(m) * m->crew->mesh.tensor, past = first + m->crew->mesh.tensor;
    if (!m->has_posted) {
        own->asks[++own->given % 2] = own->at;
        m->has_posted = true;
    }
    if (!crew_all(m, first, past, crew_has_given, own->given)) {
        return CREW_WAITS;
    }
    for (uint32_t i = first; i < past; i++) {
        crew_must(m, m->crew->cells[i].asks[own->given % 2] == own->at,
                  "members of a group are in the same pass");
    }
    m->has_posted = false;
    m->phase = CREW_SENDS;
    return CREW_GOES_ON;
}

static crew_next crew_sends(crew_member *m)
{
    crew_cell *own = crew_own(m);
    ls_crew_way way;
    uint32_t run;
    if (crew_travels(m, true, &way, &run)) {
        if (own->sent[way] - crew_neighbour(m, true, way)->received[way] == LS_CREW_SENDS_AHEAD) {
            return CREW_WAITS;
        }
        const uint32_t to = way == LS_CREW_FORWARD ? run + 1 : run - 1;
        own->values[way][own->sent[way]++ % LS_CREW_SENDS_AHEAD] = crew_value(m, to);
    }
    own->at++;
    m->phase = own->at == ls_pipeline_length(&m->crew->pipeline) ? CREW_MEETS : CREW_RECEIVES;
    m->turn = 0;
    return CREW_GOES_ON;
}

/* What follows each meeting: the leader acts, or all make the sum of a pair of leaves, if more
 * leaves come. */
enum { CREW_PUSHES, CREW_POPS, CREW_SUMS, CREW_PUSHES_SUM, CREW_NEXT };

static void crew_leads(crew_member *m)
{
    crew *c = m->crew;
    if (m->self == 0 && m->turn == CREW_PUSHES) {
        crew_must(m,
                  crew_all(m, 0, ls_mesh_crew(c->mesh), crew_has_computed, ls_pipeline_length(&c->pipeline)),
                  "a leaf is pushed when all have computed it");
        c->stack++;
    } else if (m->self == 0 && m->turn == CREW_POPS) {
        c->stack -= 2;
    } else if (m->self == 0 && m->turn == CREW_PUSHES_SUM) {
        c->stack += 2;
    }
}

static crew_next crew_meets(crew_member *m)
{
    crew_cell *own = crew_own(m);
    own->met += m->has_posted ? 0 : 1;
    m->has_posted = true;
    if (!crew_all(m, 0, ls_mesh_crew(m->crew->mesh), crew_has_met, own->met)) {
        return CREW_WAITS;
    }
    m->has_posted = false;
    const bool is_pair = m->leaf % 2 == 1 && m->leaf + 1 < m->crew->leaves;
    m->turn = m->turn == CREW_POPS && !is_pair ? CREW_NEXT : m->turn;
    crew_leads(m);
    if (m->turn++ == CREW_SUMS) {
        m->phase = CREW_MERGES;
    } else if (m->turn > CREW_NEXT) {
        m->leaf++;
        own->at = 0;
        m->phase = CREW_RECEIVES;
        return m->leaf == m->crew->leaves ? CREW_ENDED : CREW_GOES_ON;
    }
    return CREW_GOES_ON;
}

/* One transition of a member. */
static inline crew_next crew_member_goes(crew_member *m)
{
    switch (m->phase) {
    case CREW_ENTERS:
        return crew_enters(m);
    case CREW_AWAITS:
        if (!crew_all(m, 0, ls_mesh_crew(m->crew->mesh), crew_has_entered, m->attempt)) {
            return CREW_WAITS;
        }
        m->phase = CREW_RECEIVES;
        return CREW_GOES_ON;
    case CREW_RECEIVES:
        return crew_receives(m);
    case CREW_COMPUTES:
        m->phase = CREW_ADDS;
        return CREW_WORKS;
    case CREW_ADDS:
        return crew_adds(m);
    case CREW_SENDS:
        return crew_sends(m);
    case CREW_MEETS:
        return crew_meets(m);
    case CREW_MERGES:
        crew_must(m, m->crew->stack + 1 == m->leaf, "leaves that are added are off the stack");
        m->phase = CREW_MEETS;
        return CREW_WORKS;
    case CREW_PHASES:
        break;
    }
    return CREW_ENDED;
}

#endif
