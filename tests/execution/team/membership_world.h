// SPDX-License-Identifier: Apache-2.0
/*
 * A world for the membership of one host: the real coordinator and agent over the simulated env,
 * puppet ranks on a real segment, and faults drawn from a seed: deaths at any moment, of the
 * coordinator too (another succeeds it), stopped processes, ranks that start late or never,
 * requests to grow and shrink. Checked at every event:
 *
 *   - no process holds a part that another living process may act for (a team is published only
 *     when all that could act are parked)
 *   - epochs only rise; after a crash of the whole host the log has every epoch that was worked in,
 *     with its members, and no step too many
 *   - members of a crew keep their places, and follow the lists of their stages (membership_crew.h)
 *   - a part's step is begun and ended once; a finished step is never taken back; steps are reported
 *     in order, and none is left out
 *
 * and at the end: once faults cease, the run reaches its last step. membership_world_run is what
 * tests and lockstep-sim call.
 */
#ifndef LS_TESTS_EXECUTION_MEMBERSHIP_WORLD_H
#define LS_TESTS_EXECUTION_MEMBERSHIP_WORLD_H

#include "base/random.h"
#include "execution/elastic/host/coordinator.h"
#include "execution/elastic/host/coordinator_internal.h"
#include "execution/team/membership_crew.h"
#include "sim/env/sim_env.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORLD_SLOTS = 5, WORLD_LEAVES = 12, WORLD_PUPPETS = 512, WORLD_TEXT = 256, WORLD_STARTS = 16 };
#define WORLD_MS 1000000ull
#define WORLD_S  (1000 * WORLD_MS)

/* The process in `slot` dies the nth time that it is in a phase of this step. */
typedef struct world_death {
    uint32_t phase; /* crew_phase, or CREW_PHASES + the state of a puppet */
    uint32_t slot, nth;
    uint64_t step;
} world_death;

typedef struct world_settings {
    uint32_t ranks, min_ranks, max_replacements;
    /* how ranks divide the model: degrees 0 or 1 count as no; schedule, and leaves of a crew */
    ls_mesh mesh;
    ls_pipeline pipeline;
    uint32_t leaves;
    world_death deaths[3]; /* nth 0: none */
    uint64_t steps;
    uint64_t faults_ns;             /* faults occur until then */
    uint32_t kills, stops, resizes; /* at random moments of that time */
    uint32_t coordinator_kills;
    uint64_t lease_ns;    /* how long ranks wait for another coordinator; 0: they end with it */
    uint32_t disk_faults; /* calls of the log's disk that fail */
    bool slow_starts;     /* some processes take long to be ready, some never are */
    uint32_t deadly_part; /* + 1: every rank that computes it in step 3 dies; 0: none */
} world_settings;

typedef struct world world;

/* One process of a rank. */
typedef struct puppet {
    world *w;
    ls_env *env;
    uint32_t rank;
    enum {
        PUPPET_OPENS,
        PUPPET_IDLE,
        PUPPET_DECIDED,
        PUPPET_COMPUTES,
        PUPPET_AGREES,
        PUPPET_UPDATES,
        PUPPET_LEAVES
    } state;
    ls_team team;
    bool knows, parked, stopped, waits, fresh; /* fresh: has not yet acted */
    uint64_t finished;
    uint32_t part; /* being computed or updated */
    bool working;
    crew_member member;
} puppet;

struct world {
    ls_sim *sim;
    ls_sim_host host;
    uint64_t seed;
    world_settings settings;
    ls_segment segment;
    ls_env *env;
    ls_agent *agent, *old_agents[WORLD_STARTS];
    ls_coordinator *coordinator, *old_coordinators[WORLD_STARTS];
    uint32_t starts;   /* of a coordinator, before this one */
    uint64_t alone_ns; /* since when there has been none; 0: there is one */
    puppet *current[WORLD_SLOTS], *puppets[WORLD_PUPPETS];
    ls_env *envs[WORLD_PUPPETS];
    uint32_t puppet_count;
    uint64_t computed[LS_LOCAL_RANKS_MAX]; /* steps, by local part of the cut */
    ls_arena arena;
    crew crews[WORLD_SLOTS];
    uint32_t deaths; /* of those that the settings ask for */
    uint64_t seen_epoch, told, granted;
    bool running, ended, aborted;
    bool ending; /* its log is being ended: that may be on disk before it is reported */
    uint32_t aborts;
    ls_status status;
    char abort_text[2048];

    /* For a world around this one (tests/sim/world_run.c); NULL: none. */
    void *context;
    /* a part's update is done */
    void (*updated)(void *context, uint32_t part, uint32_t parts, uint64_t step);
    void (*trains)(void *context); /* decides what to grant, in place of random stretches */

    char log_text[1 << 16];
    int64_t log_bytes; /* bytes read after a crash; below 0: an error */
    uint32_t lost, recovered, joined, left, recuts, recovers;
    char wrong[WORLD_TEXT]; /* the first check that failed; "": none */
};

#define WORLD_CHECK(w, condition)                                                                            \
    do {                                                                                                     \
        if (!(condition) && !(w)->wrong[0]) {                                                                \
            snprintf((w)->wrong, WORLD_TEXT, "seed %llu, %.6f s: not true: %s",                              \
                     (unsigned long long)(w)->seed, 1e-9 * (double)ls_sim_now_ns((w)->sim), #condition);     \
        }                                                                                                    \
    } while (0)

/* ---- a rank ---- */

static void puppet_tick(void *context);

static void puppet_again(puppet *p, uint64_t most_us)
{
    ls_env_timer_set(p->env, 1000 * (1 + ls_env_random_u64(p->env) % most_us), puppet_tick, p);
}

static ls_rank_slot *puppet_slot(const puppet *p)
{
    return ls_segment_slot(&p->w->segment, p->rank);
}

static bool puppet_holds(const puppet *p, uint32_t part)
{
    return p->knows && part < p->team.local_parts && p->team.holder[part] == p->rank;
}

static bool puppet_holds_any(const puppet *p)
{
    for (uint32_t i = 0; i < p->team.local_parts; i++) {
        if (puppet_holds(p, i)) {
            return true;
        }
    }
    return false;
}

static bool puppet_lives(const world *w, uint32_t index)
{
    return ls_sim_is_running(w->envs[index]);
}

/* Before a rank writes for a part: no other process may be able to. */
static void puppet_acts(puppet *p, uint32_t part)
{
    world *w = p->w;
    WORLD_CHECK(w, puppet_holds(p, part));
    WORLD_CHECK(w, !p->parked);
    for (uint32_t i = 0; i < w->puppet_count; i++) {
        puppet *other = w->puppets[i];
        if (puppet_lives(w, i) && other != p) {
            WORLD_CHECK(w, other->parked || other->fresh || !puppet_holds(other, part));
        }
    }
}

static void puppet_reads_team(puppet *p)
{
    const bool same_cut = p->knows && p->team.epoch && atomic_load(&p->w->segment.control->team_epoch) &&
                          p->w->segment.control->team.cut == p->team.cut;
    ls_control_read_team(p->w->segment.control, &p->team);
    p->knows = true;
    p->parked = false;
    p->working = false;
    if (!same_cut || p->finished < p->team.step) {
        WORLD_CHECK(p->w, p->finished <= p->team.step);
        p->finished = p->team.step;
    }
    p->state =
        p->team.step > p->team.first_step || p->team.cut != p->team.epoch ? PUPPET_DECIDED : PUPPET_IDLE;
    if (!puppet_holds_any(p)) {
        p->state = PUPPET_IDLE;
    } else {
        atomic_store(&puppet_slot(p)->finished, p->finished);
    }
}

static void puppet_parks(puppet *p)
{
    p->parked = true;
    p->working = false;
    ls_control_park(p->w->segment.control, p->rank, p->team.epoch);
}

static bool all_have(const uint64_t *counts, uint32_t parts, uint64_t step)
{
    for (uint32_t i = 0; i < parts; i++) {
        if (counts[i] < step) {
            return false;
        }
    }
    return true;
}

static bool all_done(const puppet *p, uint64_t step)
{
    for (uint32_t i = 0; i < p->team.local_parts; i++) {
        if (atomic_load(&p->w->segment.control->parts[i].done) < step) {
            return false;
        }
    }
    return true;
}

/* A wait inside a step: continues when it is over, parks when a hard fence asks. */
static void puppet_waits(puppet *p)
{
    ls_control *control = p->w->segment.control;
    if (ls_control_is_fenced(control, atomic_load(&control->limit)) && atomic_load(&control->hard)) {
        puppet_parks(p);
    }
    puppet_again(p, 300);
}

/* A transition of the member that this rank is; its part has the number of its slot in the crew. */
static void puppet_computes_with_crew(puppet *p, uint32_t part)
{
    world *w = p->w;
    const uint32_t size = ls_mesh_crew(w->settings.mesh);
    crew *c = &w->crews[part / size];
    p->member.crew = c;
    p->member.self = part % size;
    p->member.step = p->finished + 1;
    p->member.attempt = (p->team.epoch << 32) + p->member.step;
    puppet_acts(p, part);
    WORLD_CHECK(w, p->rank % size == part % size);
    const crew_next next = crew_member_goes(&p->member);
    if (c->wrong && !w->wrong[0]) {
        snprintf(w->wrong, WORLD_TEXT, "seed %llu, rank %u: not true: %s", (unsigned long long)w->seed,
                 p->rank, c->wrong);
    }
    if (next == CREW_WAITS) {
        puppet_waits(p);
        return;
    }
    if (next == CREW_ENDED) {
        w->computed[part] = p->member.step;
        p->state = PUPPET_AGREES;
    }
    puppet_again(p, next == CREW_WORKS ? 1000 : 50);
}

static void puppet_computes(puppet *p)
{
    world *w = p->w;
    const uint64_t step = p->finished + 1;
    for (uint32_t i = 0; i < p->team.local_parts && ls_mesh_crew(w->settings.mesh) > 1; i++) {
        if (puppet_holds(p, i) && w->computed[i] < step) {
            puppet_computes_with_crew(p, i);
            return;
        }
    }
    if (p->working) {
        puppet_acts(p, p->part);
        if (w->settings.deadly_part == p->part + 1 && step == 3) {
            ls_sim_signal(p->env, SIGSEGV);
            return;
        }
        w->computed[p->part] = step;
        p->working = false;
    }
    for (uint32_t i = 0; i < p->team.local_parts; i++) {
        if (puppet_holds(p, i) && w->computed[i] < step) {
            p->part = i;
            p->working = true;
            puppet_again(p, 4000);
            return;
        }
    }
    p->state = PUPPET_AGREES;
    puppet_again(p, 50);
}

static void puppet_updates(puppet *p)
{
    world *w = p->w;
    ls_control *control = w->segment.control;
    const uint64_t step = p->finished + 1;
    if (p->working) {
        ls_part_marks *part = &control->parts[p->part];
        puppet_acts(p, p->part);
        WORLD_CHECK(w, atomic_load(&part->begun) == step && atomic_load(&part->done) == step - 1);
        atomic_store(&part->done, step);
        if (w->updated) {
            w->updated(w->context, p->part, p->team.parts, step);
        }
        p->working = false;
    }
    for (uint32_t i = 0; i < p->team.local_parts; i++) {
        if (puppet_holds(p, i) && atomic_load(&control->parts[i].done) < step) {
            puppet_acts(p, i);
            atomic_store(&control->parts[i].begun, step);
            p->part = i;
            p->working = true;
            puppet_again(p, 1000);
            return;
        }
    }
    p->state = PUPPET_LEAVES;
    puppet_again(p, 50);
}

static void puppet_tells(puppet *p)
{
    world *w = p->w;
    const ls_rank_result result = {.step = p->finished, .begin_ns = 1, .end_ns = ls_env_now_ns(p->env)};
    WORLD_CHECK(w, p->finished <= w->told);
    w->told = p->finished + 1 > w->told ? p->finished + 1 : w->told;
    p->finished++;
    ls_control_result(w->segment.control, p->rank, &result);
    p->state = PUPPET_IDLE;
}

static void puppet_idles(puppet *p)
{
    ls_control *control = p->w->segment.control;
    if (atomic_load(&puppet_slot(p)->leave) && !puppet_holds_any(p)) {
        ls_env_stop(p->env, 0);
        return;
    }
    if (ls_control_is_fenced(control, p->finished)) {
        puppet_parks(p);
    } else if (p->team.epoch != atomic_load(&control->team_epoch)) {
        puppet_reads_team(p); /* it was in none; looked at after the fence */
    } else if (atomic_load(&control->until) > p->finished && puppet_holds_any(p)) {
        p->state = PUPPET_DECIDED; /* and a fence may be raised before it enters */
    }
    puppet_again(p, 300);
}

static void puppet_enters(puppet *p)
{
    p->fresh = false;
    for (uint32_t i = 0; i < p->team.local_parts; i++) {
        if (puppet_holds(p, i)) {
            puppet_acts(p, i);
            _Atomic uint64_t *entered = &p->w->segment.control->parts[i].entered;
            WORLD_CHECK(p->w, atomic_load(entered) == p->finished || atomic_load(entered) == p->finished + 1);
            atomic_store(entered, p->finished + 1);
        }
    }
    p->state = PUPPET_COMPUTES;
    p->member = (crew_member){0};
    puppet_again(p, 50);
}

static void puppet_is_parked(puppet *p)
{
    ls_control *control = p->w->segment.control;
    if (atomic_load(&control->team_epoch) != p->team.epoch) {
        puppet_reads_team(p);
        if (ls_control_is_fenced(control, p->finished)) {
            puppet_parks(p); /* that team was over, too */
        }
    } else if (!ls_control_is_fenced(control, p->finished) &&
               ls_control_unpark(control, p->rank, p->finished)) {
        p->parked = false;
    }
    puppet_again(p, 300);
}

/* A death that the settings ask for. */
static bool puppet_dies(puppet *p)
{
    world_settings *s = &p->w->settings;
    const bool walks = p->state == PUPPET_COMPUTES && ls_mesh_crew(s->mesh) > 1;
    const uint32_t phase = walks ? (uint32_t)p->member.phase : CREW_PHASES + (uint32_t)p->state;
    for (size_t i = 0; i < sizeof s->deaths / sizeof *s->deaths; i++) {
        world_death *death = &s->deaths[i];
        if (death->nth > 0 && death->slot == p->rank && death->step == p->finished + 1 &&
            death->phase == phase && --death->nth == 0) {
            p->w->deaths++;
            ls_sim_signal(p->env, SIGKILL);
            return true;
        }
    }
    return false;
}

static void puppet_tick(void *context)
{
    puppet *p = context;
    ls_control *control = p->w->segment.control;
    atomic_store(&puppet_slot(p)->alive_ns, ls_env_now_ns(p->env));
    if (p->stopped) {
        p->waits = true;
        return;
    }
    if (p->w->alone_ns && ls_env_now_ns(p->env) - p->w->alone_ns >= p->w->settings.lease_ns) {
        ls_env_stop(p->env, 5); /* no coordinator has come */
        return;
    }
    if (atomic_load(&control->abort) != 0 || atomic_load(&control->quit) != 0) {
        ls_env_stop(p->env, atomic_load(&control->abort) != 0 ? 5 : 0);
    } else if (p->parked) {
        puppet_is_parked(p);
    } else if (!puppet_dies(p)) {
        switch (p->state) {
        case PUPPET_OPENS:
        case PUPPET_IDLE:
            puppet_idles(p);
            break;
        case PUPPET_DECIDED:
            puppet_enters(p);
            break;
        case PUPPET_COMPUTES:
            puppet_computes(p);
            break;
        case PUPPET_AGREES:
            if (all_have(p->w->computed, p->team.local_parts, p->finished + 1)) {
                p->state = PUPPET_UPDATES;
                puppet_again(p, 50);
            } else {
                puppet_waits(p);
            }
            break;
        case PUPPET_UPDATES:
            puppet_updates(p);
            break;
        case PUPPET_LEAVES:
            if (all_done(p, p->finished + 1)) {
                puppet_tells(p);
                puppet_again(p, 200);
            } else {
                puppet_waits(p);
            }
            break;
        }
    }
}

static void puppet_is_ready(void *context)
{
    puppet *p = context;
    puppet_slot(p)->preflight =
        (ls_preflight){.version = LS_PREFLIGHT_VERSION, .part_count = LS_PREFLIGHT_PART_COUNT};
    puppet_reads_team(p);
    ls_control_phase(p->w->segment.control, p->rank, LS_RANK_READY);
    /* A team older than the process may name its slot; then a fence is up, and it parks first. */
    p->state = PUPPET_IDLE;
    puppet_tick(p);
}

static void puppet_program(ls_env *env, const char *const *argv, void *context)
{
    world *w = context;
    size_t count = 0;
    while (argv[count]) {
        count++;
    }
    puppet *p = calloc(1, sizeof *p);
    *p = (puppet){.w = w, .env = env, .fresh = true, .rank = (uint32_t)strtoul(argv[count - 1], NULL, 10)};
    if (w->puppet_count == WORLD_PUPPETS) {
        abort();
    }
    w->current[p->rank] = w->puppets[w->puppet_count] = p;
    w->envs[w->puppet_count++] = env;
    atomic_store(&puppet_slot(p)->pid, ls_sim_pid(env));
    atomic_store(&puppet_slot(p)->pid_start, 7);
    ls_control_phase(w->segment.control, p->rank, LS_RANK_STARTING);
    const uint64_t luck = ls_env_random_u64(env) % 16;
    const bool slow = w->settings.slow_starts && luck < 3;
    if (!(slow && luck == 0)) { /* otherwise it is never ready */
        ls_env_timer_set(env, ls_env_random_u64(env) % ((slow ? 1000 : 60) * WORLD_MS), puppet_is_ready, p);
    }
}

/* ---- the trainer's process ---- */

static void world_on_ready(void *context, uint32_t rank)
{
    world *w = context;
    const ls_rank_slot *slot = ls_segment_slot(&w->segment, rank);
    ls_coordinator_hello(w->coordinator, &(ls_preflight_member){.rank = rank,
                                                                .pid = atomic_load(&slot->pid),
                                                                .host = "node",
                                                                .preflight = slot->preflight});
}

static void world_on_lost(void *context, const ls_rank_end *end)
{
    world *w = context;
    ls_rank_end known = *end;
    const puppet *p = w->current[end->rank];
    if (p->state == PUPPET_COMPUTES && p->working) {
        known.leaf = p->part;
    }
    ls_coordinator_lost(w->coordinator, "node", &known);
}

static void world_on_left(void *context, uint32_t rank, int32_t pid)
{
    ls_coordinator_left(((world *)context)->coordinator, rank, pid);
}

static void world_on_finished(void *context)
{
    ((world *)context)->ended = true;
}

static void world_on_ended(void *context)
{
    ((world *)context)->ending = true;
    ls_coordinator_finish(((world *)context)->coordinator, world_on_finished);
}

static void world_on_running(void *context)
{
    ((world *)context)->running = true;
}

static void world_on_abort(void *context, ls_status status, int32_t rank, const char *text)
{
    world *w = context;
    w->aborts++;
    w->status = status;
    snprintf(w->abort_text, sizeof w->abort_text, "%s", text);
    ls_control_abort(w->segment.control, status, rank, text);
}

static ls_status world_start(void *context, uint32_t local)
{
    return ls_agent_start_rank(((world *)context)->agent, local);
}

static void world_kill(void *context, uint32_t local)
{
    ls_agent_kill(((world *)context)->agent, local);
}

static bool world_adopt(void *context, uint32_t local)
{
    return ls_agent_adopt_rank(((world *)context)->agent, local);
}

static uint64_t world_start_time(void *context, int32_t pid)
{
    (void)context;
    (void)pid;
    return 7;
}

static bool world_is_stopped(void *context, uint32_t local)
{
    const puppet *p = ((world *)context)->current[local];
    return p && p->stopped;
}

static void world_recover(void *context, uint32_t part)
{
    world *w = context;
    w->recovers++;
    (void)part;
    for (uint32_t i = 0; i < w->puppet_count; i++) {
        const puppet *p = w->puppets[i];
        WORLD_CHECK(w, !puppet_lives(w, i) || p->parked || p->fresh || !puppet_holds_any(p));
    }
}

static void world_recut(void *context, const ls_team *team)
{
    world *w = context;
    w->recuts++;
    for (uint32_t i = 0; i < LS_LOCAL_RANKS_MAX; i++) {
        w->computed[i] = team->step;
    }
}

static void world_event(void *context, const char *name, json_t *fields)
{
    world *w = context;
    w->lost += strcmp(name, "rank_lost") == 0;
    w->recovered += strcmp(name, "recovered") == 0;
    w->joined += strcmp(name, "rank_joined") == 0;
    w->left += strcmp(name, "rank_left") == 0;
    json_decref(fields);
}

/* Grants steps in stretches, as the trainer does, and waits for their results. */
static void world_trains(void *context)
{
    world *w = context;
    if (w->trains) {
        w->trains(w->context);
    } else if (w->running && w->told >= w->granted && w->granted < w->settings.steps) {
        w->granted += 1 + ls_env_random_u64(w->env) % 8;
        w->granted = w->granted > w->settings.steps ? w->settings.steps : w->granted;
        ls_control_grant(w->segment.control, w->granted);
    }
    ls_env_timer_set(w->env, 1 * WORLD_MS, world_trains, w);
}

static void world_begins(ls_env *env, world *w)
{
    static const char *const rank_argv[] = {"rank", "--rank", NULL};
    const ls_agent_options agent = {.env = env,
                                    .segment = &w->segment,
                                    .argv = rank_argv,
                                    .grace_ns = WORLD_S / 2,
                                    .context = w,
                                    .ready = world_on_ready,
                                    .lost = world_on_lost,
                                    .left = world_on_left,
                                    .ended = world_on_ended,
                                    .start_time = world_start_time};
    WORLD_CHECK(w, ls_agent_create(&agent, &w->agent) == LS_OK);
    const ls_coordinator_options coordinator = {.env = env,
                                                .ranks = w->settings.ranks,
                                                .epoch = 1,
                                                .start_timeout_ns = 2 * WORLD_S,
                                                .segment = &w->segment,
                                                .min_ranks = w->settings.min_ranks,
                                                .mesh = w->settings.mesh,
                                                .max_replacements = w->settings.max_replacements,
                                                .hang_timeout_ns = 3 * WORLD_S,
                                                .context = w,
                                                .running = world_on_running,
                                                .abort = world_on_abort,
                                                .start = world_start,
                                                .kill = world_kill,
                                                .adopt = w->starts > 0 ? world_adopt : NULL,
                                                .is_stopped = world_is_stopped,
                                                .recover = world_recover,
                                                .recut = world_recut,
                                                .log_folder = "run",
                                                .identity = "of this run",
                                                .event = world_event};
    WORLD_CHECK(w, ls_coordinator_create(&coordinator, &w->coordinator) == LS_OK);
    ls_coordinator_begin(w->coordinator);
    world_trains(w);
}

static void world_folder_made(void *context, int64_t result);

/* Makes the run directory, durably, and begins. The disk may fail here as anywhere; then it is
 * tried again. */
static void world_folder_synced(void *context, int64_t result)
{
    world *w = context;
    if (result < 0) {
        ls_env_disk_mkdir(w->env, "run", world_folder_made, w);
        return;
    }
    world_begins(w->env, w);
}

static void world_folder_made(void *context, int64_t result)
{
    world *w = context;
    /* What was not made cannot be synced. */
    ls_env_disk_sync_dir(w->env, result < 0 && result != -EEXIST ? "run" : "", world_folder_synced, w);
}

static void world_foreground(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    world *w = context;
    w->env = env;
    w->alone_ns = 0;
    if (w->starts > 0) {
        world_begins(env, w);
        return;
    }
    ls_env_disk_mkdir(env, "run", world_folder_made, w);
}

/* ---- what must be true at every event ---- */

static void world_check(world *w)
{
    const ls_control *control = w->segment.control;
    const uint64_t epoch = atomic_load(&control->team_epoch);
    WORLD_CHECK(w, epoch >= w->seen_epoch);
    if (epoch != w->seen_epoch) {
        w->seen_epoch = epoch;
        for (uint32_t i = 0; i < w->puppet_count; i++) {
            /* Every living process that an older team names has stopped. */
            const puppet *p = w->puppets[i];
            WORLD_CHECK(w, !puppet_lives(w, i) || !puppet_holds_any(p) || p->parked || p->fresh);
        }
        for (uint32_t i = 0; i < control->team.local_parts; i++) {
            const puppet *p = w->current[control->team.holder[i]];
            WORLD_CHECK(w, p != NULL);
        }
    }
    WORLD_CHECK(w, control->team.local_parts >= 1);
}

/* ---- faults ---- */

static void world_stop(world *w, uint32_t slot, bool stop)
{
    puppet *p = w->current[slot];
    if (!p || !ls_sim_is_running(p->env) || p->stopped == stop) {
        return;
    }
    p->stopped = stop;
    if (!stop && p->waits) {
        p->waits = false;
        puppet_again(p, 100);
    }
}

static void world_kill_one(world *w, uint32_t slot)
{
    if (w->current[slot] && ls_sim_is_running(w->current[slot]->env)) {
        ls_sim_signal(w->current[slot]->env, SIGKILL);
    }
}

/* ---- a world from begin to end ---- */

/* A segment with the state after `step` steps, for a coordinator that begins. */
static void world_open(world *w, uint64_t step)
{
    const ls_segment_plan plan = {.float_count = 16,
                                  .leaves = WORLD_LEAVES,
                                  .crew = ls_mesh_crew(w->settings.mesh),
                                  .ranks = WORLD_SLOTS,
                                  .local_ranks = WORLD_SLOTS,
                                  .parts = w->settings.ranks,
                                  .local_parts = w->settings.ranks,
                                  .epoch = 1,
                                  .text = ""};
    WORLD_CHECK(w, ls_segment_create(&plan, &w->segment) == LS_OK);
    ls_segment_begin_at(&w->segment, step);
    w->seen_epoch = 1;
    w->told = w->granted = step;
    for (uint32_t i = 0; i < LS_LOCAL_RANKS_MAX; i++) {
        w->computed[i] = step;
    }
}

static void world_init(world *w, uint64_t seed, const world_settings *settings)
{
    *w = (world){.seed = seed, .settings = *settings};
    w->sim = ls_sim_create(&(ls_sim_settings){.seed = seed});
    ls_arena_init(&w->arena);
    for (uint32_t i = 0; i < WORLD_SLOTS && settings->pipeline.stages > 0; i++) {
        crew_init(&w->crews[i], &w->arena, settings->mesh, settings->pipeline, settings->leaves);
    }
    world_open(w, 0);
    ls_sim_program_add(w->sim, "rank", puppet_program, w);
    w->host = ls_sim_host_add(w->sim, "node");
    ls_sim_start(w->sim, w->host, world_foreground, w);
}

/* Once all its processes are gone. */
static void world_close(world *w)
{
    ls_coordinator_destroy(w->coordinator);
    ls_agent_destroy(w->agent);
    for (uint32_t i = 0; i < w->starts; i++) {
        ls_coordinator_destroy(w->old_coordinators[i]);
        ls_agent_destroy(w->old_agents[i]);
    }
    for (uint32_t i = 0; i < w->puppet_count; i++) {
        free(w->puppets[i]);
    }
    ls_segment_release(&w->segment);
}

static void world_release(world *w)
{
    ls_sim *sim = w->sim;
    world_close(w);
    ls_arena_release(&w->arena);
    ls_sim_destroy(sim);
}

/* Until `until_ns`, or a check failed, or the end: all steps are reported, or the run was
 * aborted and has ended. */
static void world_run_until(world *w, uint64_t until_ns)
{
    while (ls_sim_now_ns(w->sim) < until_ns && !w->wrong[0] && w->told < w->settings.steps && !w->ended &&
           ls_sim_step(w->sim)) {
        world_check(w);
    }
}

/* The coordinator dies, and another succeeds it; if late, its ranks are gone. */
static void world_kill_coordinator(world *w, bool another)
{
    if (!w->coordinator || w->starts == WORLD_STARTS || !ls_sim_is_running(w->env)) {
        return;
    }
    ls_sim_signal(w->env, SIGKILL);
    w->alone_ns = ls_sim_now_ns(w->sim);
    w->running = false;
    w->old_agents[w->starts] = w->agent;
    w->old_coordinators[w->starts++] = w->coordinator;
    w->agent = NULL;
    w->coordinator = NULL;
    if (another) {
        world_run_until(w, ls_sim_now_ns(w->sim) + 1 +
                               ls_sim_random_u64(w->sim) % (9 * w->settings.lease_ns / 10));
        ls_sim_start(w->sim, w->host, world_foreground, w);
    }
}

static void world_fault(world *w)
{
    const world_settings *s = &w->settings;
    const uint64_t all = s->kills + s->stops + s->resizes + s->disk_faults + s->coordinator_kills;
    const uint64_t choice = ls_sim_random_u64(w->sim) % (all ? all : 1);
    const uint32_t slot = (uint32_t)(ls_sim_random_u64(w->sim) % WORLD_SLOTS);
    if (choice < s->kills) {
        world_kill_one(w, slot);
        if (ls_sim_random_u64(w->sim) % 4 == 0) { /* another with it */
            world_kill_one(w, (uint32_t)(ls_sim_random_u64(w->sim) % WORLD_SLOTS));
        }
    } else if (choice < s->kills + s->stops) {
        world_stop(w, slot, ls_sim_random_u64(w->sim) % 3 != 0);
    } else if (choice < s->kills + s->stops + s->disk_faults) {
        static const int errors[] = {28, 5, LS_SIM_SHORT_WRITE};
        ls_sim_disk_fail(w->sim, w->host, 1 + ls_sim_random_u64(w->sim) % 8,
                         errors[ls_sim_random_u64(w->sim) % 3]);
    } else if (choice < s->kills + s->stops + s->disk_faults + s->coordinator_kills) {
        world_kill_coordinator(w, true);
    } else if (all > 0 && w->coordinator && w->coordinator->phase == LS_WORKERS_RUNNING) {
        const uint32_t size = ls_mesh_crew(s->mesh);
        const uint32_t drawn =
            s->min_ranks + (uint32_t)(ls_sim_random_u64(w->sim) % (WORLD_SLOTS - s->min_ranks + 1));
        const uint32_t ranks = drawn < size ? size : drawn / size * size;
        WORLD_CHECK(w, ls_coordinator_resize(w->coordinator, ranks) == LS_OK);
    }
}

static void world_faults(world *w)
{
    const world_settings *s = &w->settings;
    const uint32_t faults = s->kills + s->stops + s->resizes + s->disk_faults + s->coordinator_kills;
    for (uint32_t i = 0; i < faults && !w->wrong[0] && !w->ended; i++) {
        const uint64_t mean_ns = s->faults_ns / faults;
        world_run_until(w, ls_sim_now_ns(w->sim) + ls_sim_random_u64(w->sim) % (2 * mean_ns));
        world_fault(w);
    }
}

/* Faults until settings.faults_ns, then none; the run must reach its end. */
static void world_run(world *w)
{
    world_faults(w);
    for (uint32_t slot = 0; slot < WORLD_SLOTS; slot++) {
        world_stop(w, slot, false);
    }
    ls_sim_disk_fail(w->sim, w->host, 0, 0);
    world_run_until(w, ls_sim_now_ns(w->sim) + 120 * WORLD_S);
}

/* ---- what is left after a power loss ---- */

static void world_log_read(void *context, int64_t result)
{
    ((world *)context)->log_bytes = result;
}

static void world_log_opened(void *context, int64_t result)
{
    world *w = context;
    w->log_bytes = result < 0 ? result : -1;
    if (result >= 0) {
        ls_env_disk_read(w->env, result, w->log_text, sizeof w->log_text, 0, world_log_read, w);
    }
}

static void world_reader(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    world *w = context;
    w->env = env;
    ls_env_disk_open(env, "run/coordinator.log", LS_ENV_READ, world_log_opened, w);
}

/* Everything on the host ends. What its disk kept must name the epoch that was worked in. */
static void world_crash(world *w)
{
    ls_log_state log;
    ls_team team;
    ls_control_read_team(w->segment.control, &team);
    const bool lost = w->coordinator && w->coordinator->log_is_lost;
    ls_sim_disk_fail(w->sim, w->host, 0, 0);
    ls_sim_host_crash(w->sim, w->host);
    ls_sim_start(w->sim, w->host, world_reader, w);
    ls_sim_run(w->sim, ls_sim_now_ns(w->sim) + WORLD_S, 100000);
    ls_log_read(w->log_text, w->log_bytes > 0 ? (size_t)w->log_bytes : 0, &log);
    if (!w->running || lost) {
        return;
    }
    WORLD_CHECK(w, w->log_bytes > 0);
    WORLD_CHECK(w, log.epoch >= team.epoch && log.step <= w->told && (!log.ended || w->ending));
    WORLD_CHECK(w, log.run.pid != 0 && strcmp(log.run.identity, "of this run") == 0);
    for (uint32_t i = 0; log.epoch == team.epoch && i < team.local_parts; i++) {
        bool found = false;
        for (uint32_t k = 0; k < log.member_count; k++) {
            found = found || (log.members[k].rank == team.holder[i]);
        }
        WORLD_CHECK(w, found);
    }
}

/* Ranks that divide the model, and up to three of them that die at chosen places. */
static void world_draw_mesh(world_settings *s, uint64_t draw)
{
    static const struct {
        uint32_t tensor, pipeline, chunks;
        ls_pipeline_kind kind;
    } meshes[] = {{2, 1, 1, LS_PIPELINE_ONE_BY_ONE},  {4, 1, 1, LS_PIPELINE_ONE_BY_ONE},
                  {1, 2, 1, LS_PIPELINE_ONE_BY_ONE},  {1, 2, 2, LS_PIPELINE_ONE_BY_ONE},
                  {1, 2, 1, LS_PIPELINE_ZERO_BUBBLE}, {1, 3, 2, LS_PIPELINE_ONE_BY_ONE},
                  {1, 4, 1, LS_PIPELINE_ZERO_BUBBLE}, {2, 2, 1, LS_PIPELINE_ZERO_BUBBLE},
                  {2, 2, 2, LS_PIPELINE_ONE_BY_ONE},  {1, 5, 1, LS_PIPELINE_ALL_FORWARD}};
    const size_t mesh = draw % (sizeof meshes / sizeof *meshes);
    s->mesh = (ls_mesh){.tensor = meshes[mesh].tensor, .pipeline = meshes[mesh].pipeline};
    s->pipeline = (ls_pipeline){.kind = meshes[mesh].kind,
                                .stages = meshes[mesh].pipeline,
                                .chunks = meshes[mesh].chunks,
                                .micro_batches = 1 + (uint32_t)(draw / 16 % 5)};
    s->leaves = 1 + (uint32_t)(draw / 128 % 4);
    const uint32_t size = ls_mesh_crew(s->mesh);
    s->ranks = size == 2 && draw / 512 % 2 == 0 ? 4 : size;
    s->steps = 5 + draw / 1024 % 40;
    for (uint32_t i = 0; i < sizeof s->deaths / sizeof *s->deaths; i++) {
        const uint64_t where = draw >> (20 + 14 * i);
        s->deaths[i] = (world_death){.phase = (uint32_t)(where % (CREW_PHASES + PUPPET_LEAVES + 1)),
                                     .slot = (uint32_t)(where / 16 % 4),
                                     .nth = (uint32_t)(where / 64 % 8),
                                     .step = 2 + where / 512 % 16};
    }
}

/* A world drawn from its seed. Returns whether every check held; otherwise why_out says which
 * did not. Everything depends on the seed alone: trace_out (NULL allowed) is equal for equal
 * seeds. */
static inline bool membership_world_run(uint64_t seed, char why_out[WORLD_TEXT], uint64_t *trace_out)
{
    world *w = calloc(1, sizeof *w);
    const ls_random_key key = ls_random_stream(seed, LS_RANDOM_SIMULATION);
    const uint64_t draw = ls_random_u64(key, 0, 77);
    world_settings settings = {
        .ranks = 1 + (uint32_t)(draw % WORLD_SLOTS),
        .min_ranks = 1,
        .max_replacements = 1000,
        .steps = 20 + draw / 8 % 180,
        .faults_ns = (200 + draw / 512 % 800) * WORLD_MS,
        .kills = (uint32_t)(draw / 4096 % 16),
        .stops = (uint32_t)(draw / 65536 % 6),
        .resizes = (uint32_t)(draw / (1 << 20) % 5),
        .slow_starts = draw / (1 << 24) % 3 == 0,
        .disk_faults = draw / (1 << 27) % 4 == 0 ? 4 : 0,
        .coordinator_kills = draw >> 31 & 1 ? (uint32_t)(draw >> 32) % 6 : 0,
        .lease_ns = WORLD_S,
    };
    if ((draw >> 60) % 2 == 0) {
        world_draw_mesh(&settings, ls_random_u64(key, 0, 78));
    }
    world_init(w, seed, &settings);
    if (draw >> 30 & 1) {
        world_faults(w);
        world_crash(w);
    } else {
        world_run(w);
        WORLD_CHECK(w, w->told == settings.steps || w->aborts == 1);
    }
    WORLD_CHECK(w, w->aborts == 0 || strstr(w->abort_text, "did not become ready") ||
                       strstr(w->abort_text, "times in a row"));
    snprintf(why_out, WORLD_TEXT, "%.60s %.150s", w->wrong, w->abort_text);
    if (trace_out) {
        *trace_out = ls_sim_trace_hash(w->sim);
    }
    const bool good = !w->wrong[0];
    world_release(w);
    free(w);
    return good;
}

#endif
