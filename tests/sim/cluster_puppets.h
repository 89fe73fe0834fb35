// SPDX-License-Identifier: Apache-2.0
/*
 * The world of world_cluster.c and its puppets, which stand in for ranks. Included only there.
 *
 * The state is a number of cells. Of steps that all hosts make together, a cell is the number of
 * its updates. With local steps (train/local.h) a step below is a turn, a cell is a worker, a chain
 * of hashes that its host alone advances, and there is another chain, the shared parameters, which
 * every host has and which all workers enter at the end of a round, or with a delay as a gradient
 * that was made of them before and is on its way meanwhile.
 */
#ifndef LS_TESTS_SIM_CLUSTER_PUPPETS_H
#define LS_TESTS_SIM_CLUSTER_PUPPETS_H

#include "seams.h"
#include "worlds.h"

#include "base/hash.h"
#include "base/text.h"
#include "execution/elastic/hosts/cluster.h"
#include "execution/elastic/hosts/host_agent.h"
#include "execution/elastic/hosts/host_side.h"
#include "execution/parallel/data_parallel.h"
#include "execution/train/local.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HOSTS = 5,
    TRAINERS = 4,
    LOCAL_MAX = 2,
    CELLS = 12,
    CUTS = 256,
    STEPS = 40,
    TURNS_MAX = 4000,
    MACHINES = 64,
    COMEBACKS_MAX = 40
};
static const char token[] = "00112233445566778899aabbccddeeff";
static const char address[] = "host0:29500";

typedef struct state {
    uint64_t cells[CELLS], shared, gradient;
} state;

/* The memory of a host: one segment, and what is in it. */
typedef struct machine {
    uint32_t host;
    ls_segment segment;
    int fd;
    state state;
    bool is_moved[CUTS]; /* the state is that of the cut */
    bool exchanges;      /* a gradient is on its way */
    bool is_dead;
} machine;

typedef struct world {
    sim_run *run;
    ls_sim_host hosts[HOSTS];
    uint32_t host_count, ranks, zero, local_ranks[HOSTS], first[HOSTS];
    uint32_t crew, stage_ranks; /* ranks that compute together; those that must share a host */
    bool shadow, cut[HOSTS];
    ls_env *trainer;
    ls_agent
        /* of the trainer that is there; dead ones are kept until the end, as are clusters */
        *agent;
    ls_cluster *cluster;
    uint32_t trainer_count, formed; /* formed: cuts */
    ls_agent *trainer_agents[TRAINERS];
    ls_cluster *clusters[TRAINERS];
    ls_log_state left; /* of the log that a new trainer reads */
    ls_text log;
    char log_bytes[4096];
    int64_t log_file;
    ls_host_agent *agents[HOSTS];
    ls_env *agent_env[HOSTS], *rank_env[HOSTS][LOCAL_MAX];
    ls_host_agent *gone[COMEBACKS_MAX]; /* agents that were */
    uint32_t gone_count;
    enum { NEVER, BY_TRAINER, BY_HAND } comebacks; /* starts agents of hosts that were lost */
    bool wanted[HOSTS];                            /* the trainer does */
    machine machines[MACHINES];
    uint32_t machine_count, ready;
    bool running, ended, aborted;
    char why[512];
    uint64_t committed; /* results the trainer has seen */
    ls_cut cuts[CUTS];  /* by epoch, as formed */
    uint64_t newest;
    ls_local local;      /* steps 0: all hosts make every step together */
    uint32_t cell_count; /* workers */
    state *after;        /* [n]: an undisturbed run after n steps, as far as they are known */
    uint64_t known;
    uint64_t every, saved; /* checkpoints: each so many steps of the run; the newest */
    uint64_t redo_until;   /* steps that are made again after a return to one */
    /* epochs of the fences for which a checkpoint was asked for, and is on the trainer's host */
    uint64_t restore_asked, restored, restored_step;
    uint64_t outer[CUTS][CELLS]; /* workers as they were sent */
    uint64_t made[CUTS];         /* the turn in which those of carried[] sent them */
    uint32_t carried[CUTS];
    uint32_t lost; /* hosts that crashed */
    bool dies;     /* while this is set, no host comes back, and no rank dies alone */
    /* What travels between hosts: which host has sent what all wait for. */
    uint64_t sums[CUTS]; /* step + 1 that the parts in sent[] have come to, in this cut */
    uint32_t sent[CUTS], moving[CUTS], settled[CUTS];
    /* a rank parked in the middle: nothing more will come of it */
    bool is_broken[CUTS];
    int32_t computed_on[CUTS][CELLS]; /* host that computes a part */
} world;

typedef enum puppet_phase { IDLE, MOVING, SETTLING, COMPUTING, AGREEING, UPDATING, LEAVING } puppet_phase;

typedef struct puppet {
    world *w;
    ls_env *env;
    machine *m;
    uint32_t local;
    ls_team team;
    puppet_phase phase;
    uint64_t step, work_until_ns;
    bool is_parked;
} puppet;

static world *the_world;

/* ---- what is right ---- */

static uint64_t next_worker(const ls_local_turn *turn, uint64_t worker, uint64_t shared)
{
    const uint64_t mark[] = {worker, turn->begins ? shared : 0, turn->step, turn->worker};
    return ls_xxh3(mark, sizeof mark, 13);
}

static uint64_t gradient_of(const uint64_t *workers, uint32_t count)
{
    return ls_xxh3(workers, count * sizeof *workers, 17);
}

/* Makes a gradient of the workers that were sent, applies it, or both. */
static void apply_turn(state *s, const ls_local_turn *turn, const uint64_t *workers, uint32_t count)
{
    s->gradient = turn->makes ? gradient_of(workers, count) : s->gradient;
    s->shared = turn->applies ? ls_xxh3(&s->gradient, sizeof s->gradient, s->shared) : s->shared;
}

static const state *state_after(world *w, uint64_t steps)
{
    SIM_CHECK(w->run, steps < TURNS_MAX);
    for (; w->known < steps; w->known++) {
        const ls_local_turn turn = ls_local_turn_at(&w->local, w->known);
        const state *before = &w->after[w->known];
        state *next = &w->after[w->known + 1];
        *next = *before;
        if (turn.is_outer) {
            apply_turn(next, &turn, before->cells, w->cell_count);
        } else if (w->local.steps > 0) {
            next->cells[turn.worker] = next_worker(&turn, before->cells[turn.worker], before->shared);
        }
        for (uint32_t cell = 0; cell < CELLS && w->local.steps == 0; cell++) {
            next->cells[cell]++;
        }
    }
    return &w->after[steps];
}

/* ---- who keeps what ---- */

static uint32_t first_cell(uint32_t parts, uint32_t part)
{
    return the_world->cell_count * part / parts;
}

static uint32_t host_of_part(const ls_cut *cut, uint32_t part)
{
    uint32_t h = 0;
    while (h + 1 < cut->host_count && cut->hosts[h + 1].first_part <= part) {
        h++;
    }
    return h;
}

static uint32_t part_of_cell(const ls_cut *cut, uint32_t cell)
{
    uint32_t part = 0;
    while (part + 1 < cut->parts && first_cell(cut->parts, part + 1) <= cell) {
        part++;
    }
    return part;
}

/* Which local part of a host updates the cell there; -1: none. */
static int32_t updater(const world *w, const ls_cut *cut, uint32_t host, uint32_t cell)
{
    const uint32_t part = part_of_cell(cut, cell), owner = host_of_part(cut, part);
    const uint32_t index = part - cut->hosts[owner].first_part;
    uint32_t here = cut->host_count;
    for (uint32_t h = 0; h < cut->host_count; h++) {
        here = cut->hosts[h].host == host ? h : here;
    }
    if (here == cut->host_count) {
        return -1;
    }
    const bool keeps = here == owner || w->zero == 0 || (w->shadow && (owner + 1) % cut->host_count == here);
    return keeps ? (int32_t)(index % cut->hosts[here].part_count) : -1;
}

static bool can_talk(const world *w, uint32_t host)
{
    return host == 0 || !w->cut[host];
}

static machine *machine_of(world *w, uint32_t host)
{
    for (uint32_t i = w->machine_count; i > 0; i--) {
        if (w->machines[i - 1].host == host) {
            return &w->machines[i - 1];
        }
    }
    return NULL;
}

/* ---- puppets ---- */

static uint64_t finished_parts(const puppet *p)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < p->team.local_parts; i++) {
        const uint64_t done = atomic_load(&p->m->segment.control->parts[i].done);
        least = done < least ? done : least;
    }
    return least;
}

static bool holds(const puppet *p, uint32_t part)
{
    return p->team.holder[part] == p->local;
}

static bool holds_any(const puppet *p)
{
    for (uint32_t i = 0; i < p->team.local_parts; i++) {
        if (holds(p, i)) {
            return true;
        }
    }
    return false;
}

static uint32_t bits_of(const puppet *p)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < p->team.local_parts; i++) {
        bits |= holds(p, i) ? 1u << (p->team.first_part + i) : 0;
    }
    return bits;
}

static void say(world *w, puppet *p, uint32_t *words)
{
    if (can_talk(w, p->m->host) && !w->is_broken[p->team.cut]) {
        *words |= bits_of(p);
    }
}

static bool all_said(const world *w, const puppet *p, uint32_t words)
{
    return can_talk(w, p->m->host) && words == (1u << p->team.parts) - 1;
}

static uint64_t agreed(const puppet *p)
{
    ls_step_verdict verdict;
    ls_data_parallel_read_verdict(p->m->segment.exchange, &verdict);
    return verdict.agreed;
}

/* The cells come from the hosts that have them, as the control page says. */
static void move_cells(puppet *p, bool is_first)
{
    world *w = p->w;
    const ls_cut *cut = &w->cuts[p->team.cut], *held = &p->m->segment.control->sources;
    const state *right = state_after(w, cut->step);
    if (p->m->is_moved[p->team.cut]) {
        return;
    }
    for (uint32_t cell = 0; cell < w->cell_count; cell++) {
        if (updater(w, cut, p->m->host, cell) < 0) {
            continue;
        }
        uint32_t from = 0;
        if (!is_first) {
            const uint32_t source = host_of_part(held, part_of_cell(held, cell));
            const uint32_t index = held->hosts[source].holder;
            SIM_CHECK(w->run, index < cut->host_count);
            from = cut->hosts[index].host;
        }
        const machine *m = machine_of(w, from);
        SIM_CHECK(w->run, m->state.cells[cell] == right->cells[cell]);
        p->m->state.cells[cell] = m->state.cells[cell];
    }
    const state *first = &machine_of(w, 0)->state;
    SIM_CHECK(w->run, first->shared == right->shared && first->gradient == right->gradient);
    p->m->state.shared = first->shared;
    p->m->state.gradient = first->gradient;
    p->m->is_moved[p->team.cut] = true;
}

/* Whether the turn is of a worker of this host. */
static bool has_turn(const puppet *p, const ls_local_turn *turn)
{
    return !turn->is_outer && updater(p->w, &p->w->cuts[p->team.cut], p->m->host, turn->worker) >= 0;
}

static void send_workers(puppet *p)
{
    world *w = p->w;
    const uint64_t cut = p->team.cut;
    for (uint32_t i = 0; i < w->cell_count; i++) {
        const bool is_own = updater(w, &w->cuts[cut], p->m->host, i) >= 0;
        w->outer[cut][i] = is_own ? p->m->state.cells[i] : w->outer[cut][i];
    }
    w->carried[cut] = w->made[cut] == p->step ? w->carried[cut] : 0;
    w->made[cut] = p->step;
    say(w, p, &w->carried[cut]);
}

static void update_in_turn(puppet *p)
{
    world *w = p->w;
    machine *m = p->m;
    const ls_local_turn turn = ls_local_turn_at(&w->local, p->step);
    const state *right = state_after(w, p->step + 1);
    if (turn.applies) {
        const bool arrived = turn.makes || m->exchanges; /* else it came with the state */
        const ls_local_turn whole = {.makes = arrived, .applies = true};
        apply_turn(&m->state, &whole, w->outer[p->team.cut], w->cell_count);
        SIM_CHECK(w->run, m->state.gradient == right->gradient);
        m->exchanges = false;
    } else if (turn.makes) {
        send_workers(p);
        m->exchanges = true;
    } else if (has_turn(p, &turn)) {
        uint64_t *own = &m->state.cells[turn.worker];
        *own = next_worker(&turn, *own, m->state.shared);
        SIM_CHECK(w->run, *own == right->cells[turn.worker]);
    }
    SIM_CHECK(w->run, m->state.shared == right->shared);
}

/* One cell at a time: the process may die between two. True: all are done. */
static bool update_cell(puppet *p)
{
    world *w = p->w;
    const ls_cut *cut = &w->cuts[p->team.cut];
    uint64_t *cells = p->m->state.cells;
    for (uint32_t cell = 0; cell < CELLS && w->local.steps == 0; cell++) {
        const int32_t part = updater(w, cut, p->m->host, cell);
        if (part >= 0 && holds(p, (uint32_t)part) && cells[cell] != p->step + 1) {
            SIM_CHECK(w->run, cells[cell] == p->step);
            cells[cell]++;
            return false;
        }
    }
    if (w->local.steps > 0) {
        update_in_turn(p);
    }
    for (uint32_t i = 0; i < p->team.local_parts; i++) {
        if (holds(p, i)) {
            atomic_store(&p->m->segment.control->parts[i].done, p->step + 1);
        }
    }
    return true;
}

static void begin_step(puppet *p)
{
    world *w = p->w;
    ls_control *control = p->m->segment.control;
    const uint32_t cut = (uint32_t)p->team.cut;
    const bool is_first = p->team.cut == control->epoch;
    if (atomic_load(&control->held) < p->team.cut && p->team.local_parts < p->team.parts) {
        p->phase = MOVING;
        say(w, p, &w->moving[cut]);
        if (all_said(w, p, w->moving[cut])) {
            move_cells(p, is_first);
            p->phase = SETTLING;
            say(w, p, &w->settled[cut]);
        }
        return;
    }
    for (uint32_t i = 0; i < p->team.local_parts; i++) {
        if (holds(p, i)) {
            const uint32_t part = p->team.first_part + i;
            SIM_CHECK(w->run,
                      w->computed_on[cut][part] < 0 || w->computed_on[cut][part] == (int32_t)p->m->host);
            w->computed_on[cut][part] = (int32_t)p->m->host;
            atomic_store(&control->parts[i].entered, p->step + 1);
        }
    }
    const ls_local_turn turn = ls_local_turn_at(&w->local, p->step);
    const bool computes = w->local.steps == 0 || has_turn(p, &turn);
    p->phase = COMPUTING;
    p->work_until_ns = ls_env_now_ns(p->env) + (computes ? ls_env_random_u64(p->env) % (30 * SIM_MS) : 0);
}

/* Where a turn ends: hosts meet after the last worker of a step and at the end of a round. */
static puppet_phase after_computing(const puppet *p)
{
    const ls_local *local = &p->w->local;
    const ls_local_turn turn = ls_local_turn_at(local, p->step);
    const bool is_last = !turn.is_outer && turn.worker + 1 == local->workers;
    return local->steps == 0 || turn.applies || is_last ? AGREEING : UPDATING;
}

/* Each host goes on when it has the gradient. */
static void await_gradient(puppet *p, const ls_local_turn *turn)
{
    world *w = p->w;
    if (turn->makes) {
        send_workers(p);
    } else if (p->m->exchanges) {
        say(w, p, &w->carried[p->team.cut]);
    }
    const bool arrived = !(turn->makes || p->m->exchanges) || all_said(w, p, w->carried[p->team.cut]);
    p->phase = arrived && ls_env_random_u64(p->env) % 3 == 0 ? UPDATING : AGREEING;
}

static void agree(puppet *p)
{
    world *w = p->w;
    const uint32_t cut = (uint32_t)p->team.cut;
    const ls_local_turn turn = ls_local_turn_at(&w->local, p->step);
    if (turn.applies) {
        await_gradient(p, &turn);
        return;
    }
    if (agreed(p) == p->step + 1) {
        p->phase = UPDATING;
        return;
    }
    if (w->sums[cut] < p->step + 1) {
        w->sums[cut] = p->step + 1;
        w->sent[cut] = 0;
    }
    if (w->sums[cut] == p->step + 1) {
        say(w, p, &w->sent[cut]);
    }
    /* Sometime later the host's first part hears that all have said it. */
    const bool is_complete = w->sums[cut] > p->step + 1 || all_said(w, p, w->sent[cut]);
    const bool hears = holds(p, 0) && is_complete && can_talk(w, p->m->host);
    if (hears && ls_env_random_u64(p->env) % 3 == 0) {
        const ls_step_verdict verdict = {.agreed = p->step + 1};
        ls_data_parallel_write_verdict(p->m->segment.exchange, &verdict);
    }
}

static void leave_step(puppet *p)
{
    ls_control *control = p->m->segment.control;
    if (finished_parts(p) >= p->step + 1) {
        const ls_rank_result result = {.step = p->step};
        p->step++;
        p->phase = IDLE;
        ls_control_result(control, p->local, &result);
    }
}

static void work(puppet *p)
{
    world *w = p->w;
    ls_control *control = p->m->segment.control;
    switch (p->phase) {
    case IDLE:
    case MOVING:
        if (atomic_load(&control->until) > p->step && holds_any(p)) {
            begin_step(p);
        }
        break;
    case SETTLING:
        if (all_said(w, p, w->settled[p->team.cut])) {
            atomic_store(&control->held, p->team.cut);
            p->phase = IDLE;
        }
        break;
    case COMPUTING:
        p->phase = ls_env_now_ns(p->env) >= p->work_until_ns ? after_computing(p) : COMPUTING;
        break;
    case AGREEING:
        agree(p);
        break;
    case UPDATING:
        p->phase = update_cell(p) ? LEAVING : UPDATING;
        break;
    case LEAVING:
        leave_step(p);
        break;
    }
}

static bool may_park(const puppet *p)
{
    const ls_control *control = p->m->segment.control;
    const bool waits =
        p->phase == AGREEING || p->phase == LEAVING || p->phase == MOVING || p->phase == SETTLING;
    return (p->phase == IDLE && ls_control_is_fenced(control, p->step)) ||
           (waits && atomic_load(&control->interrupt) != 0);
}

/* Joins another team, as rank.c does. */
static void take_team(puppet *p)
{
    const uint64_t cut = p->team.cut;
    ls_control_read_team(p->m->segment.control, &p->team);
    p->is_parked = false;
    p->step = p->team.step;
    p->phase = IDLE;
    p->m->exchanges = false; /* what was on its way goes with the communicator */
    if (p->team.cut == cut) {
        SIM_CHECK(p->w->run, p->w->local.steps == 0); /* nothing is finished across hosts */
        /* The step that others agreed on. */
        p->step = finished_parts(p) > p->team.step ? p->team.step + 1 : p->team.step;
        /* A spare has nothing to finish, as in rank.c. */
        p->phase = holds_any(p) && p->step == p->team.step && agreed(p) == p->step + 1 ? UPDATING : IDLE;
    }
    if (p->phase == IDLE) {
        atomic_store(&ls_segment_slot(&p->m->segment, p->local)->finished, p->step);
    }
}

static void puppet_tick(void *context)
{
    puppet *p = context;
    world *w = p->w;
    ls_control *control = p->m->segment.control;
    if (atomic_load(&control->abort) != 0 || atomic_load(&control->quit) != 0) {
        ls_env_stop(p->env, atomic_load(&control->abort) != 0 ? 5 : 0);
        return;
    }
    if (p->m->host == 0 && !ls_sim_is_running(w->trainer) && !p->is_parked) {
        ls_control_fence_alone(control);
    }
    if (atomic_load(&control->team_epoch) != p->team.epoch) {
        if (p->is_parked || p->phase == IDLE) {
            take_team(p);
        }
    } else if (p->is_parked) {
        if (p->phase == IDLE || atomic_load(&control->hard) == 0) {
            p->is_parked = !ls_control_unpark(control, p->local, p->step);
        }
    } else if (may_park(p)) {
        p->is_parked = true;
        w->is_broken[p->team.cut] |= atomic_load(&control->hard) != 0 && holds_any(p);
        ls_control_park(control, p->local, p->team.epoch);
    } else {
        work(p);
    }
    ls_env_timer_set(p->env, SIM_MS / 4 + ls_env_random_u64(p->env) % (2 * SIM_MS), puppet_tick, p);
}

static void puppet_ready(void *context)
{
    puppet *p = context;
    ls_rank_slot *slot = ls_segment_slot(&p->m->segment, p->local);
    ls_control_read_team(p->m->segment.control, &p->team);
    p->step = p->team.step;
    /* The team still means the rank that was lost here, as in rank.c. */
    if (p->w->crew > 1 && atomic_load(&p->m->segment.control->fence) > p->team.epoch) {
        p->team.local_parts = 0;
    }
    slot->preflight = (ls_preflight){.version = LS_PREFLIGHT_VERSION, .part_count = LS_PREFLIGHT_PART_COUNT};
    ls_control_phase(p->m->segment.control, p->local, LS_RANK_READY);
    puppet_tick(p);
}

static void puppet_program(ls_env *env, const char *const *argv, void *context)
{
    world *w = context;
    const char *path = NULL, *rank = NULL;
    for (size_t i = 0; argv[i]; i++) {
        path = strcmp(argv[i], "--segment") == 0 ? argv[i + 1] : path;
        rank = argv[i];
    }
    const int fd = atoi(strrchr(path, '/') + 1);
    machine *m = NULL;
    for (uint32_t i = 0; i < w->machine_count; i++) {
        m = w->machines[i].fd == fd && !w->machines[i].is_dead ? &w->machines[i] : m;
    }
    puppet *p = ls_sim_alloc(env, sizeof *p);
    if (!m) { /* an agent's, seen for the first time */
        SIM_CHECK(w->run, w->machine_count < MACHINES);
        m = &w->machines[w->machine_count++];
        m->fd = fd;
        SIM_CHECK(w->run, ls_segment_attach(path, &m->segment) == LS_OK);
        for (uint32_t h = 0; h < w->host_count; h++) {
            m->host = m->segment.control->first_rank == w->first[h] ? h : m->host;
        }
    }
    *p = (puppet){.w = w, .env = env, .m = m};
    p->local = (uint32_t)atoi(rank) - m->segment.control->first_rank;
    atomic_store(&ls_segment_slot(&m->segment, p->local)->pid, ls_sim_pid(env));
    w->rank_env[m->host][p->local] = env;
    ls_env_timer_set(env, ls_env_random_u64(env) % (20 * SIM_MS), puppet_ready, p);
}

#endif
