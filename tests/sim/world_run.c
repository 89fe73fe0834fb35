// SPDX-License-Identifier: Apache-2.0
/*
 * Everything of one host together: a trainer with coordinator, log and agent, ranks that join and
 * leave, and checkpoints through the real commit, while ranks, the trainer (with a lease another
 * takes over; otherwise the run is started again), the power and the disk fail. Ranks are the
 * puppets of tests/execution/team/membership_world.h; they train twelve leaves, each a chain of
 * hashes that the holder of its part advances once per step.
 *
 * Safety: all the rules of membership_world.h at every event; each leaf is updated exactly once
 * per step; every checkpoint has the state of its step; a trainer that starts again finds the
 * newest acknowledged checkpoint or a newer one. Liveness: once faults cease the run reaches its
 * last step, with the state of an undisturbed run.
 */
#include "careless.h"
#include "seams.h"
#include "toy.h"
#include "worlds.h"

#include "base/hash.h"

#include "execution/team/membership_world.h"

#include <errno.h>

enum { EVENTS_MAX = 5000000, KEEP_LAST = 2 };

#define ROOT "run/checkpoints"

typedef struct leaf {
    uint64_t step, chain;
} leaf;

typedef struct run_world {
    sim_run *run;
    world w; /* of the trainer that lives now */
    ls_env *trainer;
    bool open, finished; /* w is open; all steps are done and saved */
    leaf leaves[WORLD_LEAVES];
    uint64_t every, last_step;
    bool saving;
    uint64_t saving_step, saved_step, acknowledged;
    uint32_t lives;
    uint64_t comes_ns;    /* when another trainer takes over from one that died */
    bool disk_fails;      /* now */
    uint32_t disk_failed; /* times so far */
    uint32_t load_began;  /* disk_failed, when the load under way began */
} run_world;

static leaf leaf_next(leaf before, uint32_t index)
{
    const uint64_t mark[] = {before.chain, ++before.step, index};
    before.chain = ls_xxh3(mark, sizeof mark, 11);
    return before;
}

/* All leaves together after `step` steps; their states at that point, when leaves_out is not
 * NULL. */
static uint64_t fold(const leaf *leaves)
{
    return ls_xxh3(leaves, WORLD_LEAVES * sizeof *leaves, 12);
}

static uint64_t fold_after(uint64_t step, leaf leaves_out[WORLD_LEAVES])
{
    leaf leaves[WORLD_LEAVES] = {{0}};
    for (uint32_t i = 0; i < WORLD_LEAVES; i++) {
        while (leaves[i].step < step) {
            leaves[i] = leaf_next(leaves[i], i);
        }
    }
    if (leaves_out) {
        memcpy(leaves_out, leaves, sizeof leaves);
    }
    return fold(leaves);
}

/* ---- training ---- */

static void updated(void *context, uint32_t part, uint32_t parts, uint64_t step)
{
    run_world *r = context;
    for (uint32_t i = 0; i < WORLD_LEAVES; i++) {
        if (i * parts / WORLD_LEAVES == part) {
            SIM_CHECK(r->run, r->leaves[i].step == step - 1);
            r->leaves[i] = leaf_next(r->leaves[i], i);
        }
    }
}

static void pruned(void *context, ls_status status)
{
    run_world *r = context;
    (void)status;
    r->saving = false;
}

static void saved(void *context, ls_status status)
{
    run_world *r = context;
    if (status != LS_OK) {
        sim_event(r->run, "step %llu is not saved: %s", (unsigned long long)r->saving_step, ls_error_text());
        r->saving = false;
        return;
    }
    sim_event(r->run, "step %llu is committed", (unsigned long long)r->saving_step);
    r->saved_step = r->saving_step;
    r->acknowledged = r->saving_step > r->acknowledged ? r->saving_step : r->acknowledged;
    toy_prune(r->trainer, ls_sim_arena(r->trainer), ROOT, KEEP_LAST, r->saving_step, pruned, r);
}

/* At a boundary, with the results of all steps before it, as the trainer does. */
static void save(run_world *r)
{
    for (uint32_t i = 0; i < WORLD_LEAVES; i++) {
        SIM_CHECK(r->run, r->leaves[i].step == r->w.told);
    }
    const toy_state state = {.step = r->w.told, .chain = fold(r->leaves)};
    r->saving = true;
    r->saving_step = state.step;
    toy_save(r->trainer, ls_sim_arena(r->trainer), ROOT, state, saved, r);
}

/* Called every millisecond: saves at boundaries, grants the steps up to the next. */
static void trains(void *context)
{
    run_world *r = context;
    world *w = &r->w;
    if (!w->running || w->told < w->granted || r->finished) {
        return;
    }
    const bool due = w->told > 0 && (w->told % r->every == 0 || w->told == r->last_step);
    if (due && r->saved_step < w->told) {
        if (!r->saving) {
            save(r);
        }
        if (w->told == r->last_step) {
            return;
        }
    }
    if (w->told == r->last_step) {
        sim_event(r->run, "all steps are done and saved");
        r->finished = true;
        ls_control_quit(w->segment.control);
        /* the one before must be finished by now */
    } else if (!r->saving || r->saving_step == w->told) {
        w->granted = (w->told / r->every + 1) * r->every;
        w->granted = w->granted > r->last_step ? r->last_step : w->granted;
        ls_control_grant(w->segment.control, w->granted);
    }
}

/* ---- a trainer's life ---- */

static void look_for_checkpoint(void *context);

static void loaded(void *context, const toy_found *found)
{
    run_world *r = context;
    const uint64_t step = found->state.step;
    if (!r->disk_fails && r->load_began == r->disk_failed) {
        SIM_CHECK(r->run, !found->failed && found->damaged == 0);
        if (step < r->acknowledged) {
            sim_fail(r->run, "the trainer finds step %llu, step %llu was acknowledged",
                     (unsigned long long)step, (unsigned long long)r->acknowledged);
        }
    } else if (found->failed || found->skipped > 0) { /* a person looks at the disk first */
        ls_env_timer_set(r->trainer, 10 * SIM_MS, look_for_checkpoint, r);
        return;
    }
    const uint64_t wanted = fold_after(step, r->leaves);
    SIM_CHECK(r->run, step == 0 || found->state.chain == wanted);
    sim_event(r->run, "life %u: from step %llu", r->lives, (unsigned long long)step);
    r->saved_step = step;
    world_open(&r->w, step);
    r->open = true;
    world_begins(r->trainer, &r->w);
}

static void look_for_checkpoint(void *context)
{
    run_world *r = context;
    r->load_began = r->disk_fails ? UINT32_MAX : r->disk_failed;
    toy_load(r->trainer, ls_sim_arena(r->trainer), ROOT, &(toy_load_options){.all = true}, loaded, r);
}

static void folder_synced(void *context, int64_t result)
{
    run_world *r = context;
    if (result < 0) {
        ls_env_stop(r->trainer, 4);
        return;
    }
    look_for_checkpoint(r);
}

static void folder_made(void *context, int64_t result)
{
    run_world *r = context;
    if (result < 0 && result != -EEXIST) {
        ls_env_stop(r->trainer, 4);
        return;
    }
    ls_env_disk_sync_dir(r->trainer, "/", folder_synced, r);
}

static void trainer_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    run_world *r = context;
    careless_init(r->run, env);
    r->trainer = r->w.env = env;
    if (r->w.starts > 0) { /* its ranks are there, and the state with them */
        sim_event(r->run, "another trainer goes on at step %llu", (unsigned long long)r->w.told);
        r->w.alone_ns = 0;
        r->saving = false;
        r->saved_step = r->acknowledged;
        world_begins(env, &r->w);
        return;
    }
    ls_env_disk_mkdir(env, "run", folder_made, r);
}

/* Ranks die with their trainer: its agent is their parent, and they asked to. */
static void end_life(run_world *r)
{
    if (r->trainer) {
        ls_sim_signal(r->trainer, SIGKILL);
    }
    for (uint32_t i = 0; i < r->w.puppet_count; i++) {
        ls_sim_signal(r->w.envs[i], SIGKILL);
    }
    if (r->open) {
        world_close(&r->w);
        r->open = false;
    }
    r->trainer = NULL;
    r->w.alone_ns = 0;
}

static void start_life(run_world *r)
{
    const world before = r->w;
    r->w = (world){.sim = before.sim,
                   .host = before.host,
                   .seed = before.seed,
                   .settings = before.settings,
                   .context = r,
                   .updated = updated,
                   .trains = trains};
    r->saving = r->finished = false;
    r->lives++;
    ls_sim_start(r->run->sim, r->w.host, trainer_program, r);
}

/* ---- time ---- */

static void check(void *context)
{
    run_world *r = context;
    if (r->open) {
        world_check(&r->w);
    }
    if (r->w.wrong[0]) {
        sim_fail(r->run, "%s", r->w.wrong);
    }
}

static bool is_through(const run_world *r)
{
    return r->finished && r->w.ended;
}

/* With a lease the ranks wait for another trainer. If it comes too late, nothing is left to
 * continue with. */
static void lose_trainer(run_world *r, uint64_t random)
{
    const uint64_t lease_ns = r->w.settings.lease_ns;
    if (r->w.alone_ns) {
        return; /* there is none */
    }
    if (lease_ns == 0 || !r->open || r->w.starts == WORLD_STARTS || r->finished ||
        !ls_sim_is_running(r->trainer)) {
        end_life(r);
        return;
    }
    world_kill_coordinator(&r->w, false);
    r->trainer = NULL;
    r->comes_ns = ls_sim_now_ns(r->run->sim) + random % (lease_ns + lease_ns / 5);
}

static void follow(run_world *r)
{
    const bool in_time = ls_sim_now_ns(r->run->sim) - r->w.alone_ns < r->w.settings.lease_ns;
    if (in_time) {
        ls_sim_start(r->run->sim, r->w.host, trainer_program, r);
    } else {
        end_life(r);
        start_life(r);
    }
}

/* The run is started again when it has ended before its last step. */
static void live(run_world *r, uint64_t ns)
{
    const uint64_t until_ns = ls_sim_now_ns(r->run->sim) + ns;
    while (ls_sim_now_ns(r->run->sim) < until_ns && !is_through(r)) {
        if (r->w.alone_ns && ls_sim_now_ns(r->run->sim) >= r->comes_ns) {
            follow(r);
        } else if (r->w.alone_ns) {
            /* no trainer yet */
        } else if (!r->trainer || !ls_sim_is_running(r->trainer) || (r->w.ended && !r->finished)) {
            if (r->w.aborts) {
                sim_event(r->run, "the run ended: %s", r->w.abort_text);
            }
            end_life(r);
            start_life(r);
        }
        sim_until(r->run, ls_sim_now_ns(r->run->sim) + 2 * SIM_MS, EVENTS_MAX, check, r);
    }
}

/* ---- faults ---- */

static void disk_fails(run_world *r, uint64_t random)
{
    sim_event(r->run, "disk calls fail now and then");
    r->disk_fails = true;
    r->disk_failed++;
    ls_sim_disk_trouble(r->run->sim, r->w.host, 0.003 * (double)(1 + random % 20));
    live(r, (10 + random % 100) * SIM_MS);
    ls_sim_disk_trouble(r->run->sim, r->w.host, 0);
    r->disk_fails = false;
}

static void lose_power(run_world *r, bool at_call, uint64_t random)
{
    if (at_call) {
        ls_sim_disk_fail(r->run->sim, r->w.host, 1 + random % 60, LS_SIM_POWER_CUT);
        for (int i = 0; i < 50 && r->trainer && ls_sim_is_running(r->trainer); i++) {
            live(r, 4 * SIM_MS);
        }
        ls_sim_disk_fail(r->run->sim, r->w.host, 0, 0);
    }
    sim_event(r->run, "the power goes");
    ls_sim_host_crash(r->run->sim, r->w.host);
    end_life(r);
}

static void fault(run_world *r)
{
    static const sim_fault classes[] = {SIM_FAULT_POWER, SIM_FAULT_POWER, SIM_FAULT_DISK, SIM_FAULT_KILL,
                                        SIM_FAULT_KILL,  SIM_FAULT_KILL,  SIM_FAULT_HANG, SIM_FAULT_ALL};
    const uint64_t random = ls_sim_random_u64(r->run->sim), kind = random % 8;
    const uint32_t place = (uint32_t)(random >> 8) % WORLD_SLOTS;
    if (!(r->run->faults & classes[kind]) || is_through(r)) {
        return;
    }
    if (kind < 2) {
        lose_power(r, kind == 0, random >> 16);
    } else if (kind == 2) {
        disk_fails(r, random >> 16);
    } else if (kind == 3) {
        sim_event(r->run, "the trainer is killed");
        lose_trainer(r, random >> 16);
    } else if (!r->open) {
        return;
    } else if (kind <= 5) {
        sim_event(r->run, "rank %u is killed", place);
        world_kill_one(&r->w, place);
    } else if (kind == 6) {
        sim_event(r->run, "rank %u stops", place);
        world_stop(&r->w, place, true);
    } else if (r->w.coordinator && r->w.coordinator->phase == LS_WORKERS_RUNNING) {
        const uint32_t ranks = 1 + (uint32_t)(random >> 16) % WORLD_SLOTS;
        sim_event(r->run, "%u ranks are asked for", ranks);
        SIM_CHECK(r->run, ls_coordinator_resize(r->w.coordinator, ranks) == LS_OK);
    }
}

/* ---- the world ---- */

static void run_all(sim_run *run)
{
    run_world *r = calloc(1, sizeof *r);
    r->run = run;
    const uint64_t disk_us = sim_draw(run, "disk_us", 20, 3000);
    sim_create(run,
               &(ls_sim_settings){.disk_delay_min_ns = 5 * SIM_US, .disk_delay_max_ns = disk_us * SIM_US});
    r->w.sim = run->sim;
    r->w.seed = run->seed;
    r->w.settings = (world_settings){.ranks = (uint32_t)sim_draw(run, "ranks", 1, WORLD_SLOTS),
                                     .min_ranks = 1,
                                     .max_replacements = (uint32_t)sim_draw(run, "max_replacements", 0, 20),
                                     .slow_starts = sim_draw(run, "slow_starts", 0, 4) == 0};
    r->every = sim_draw(run, "every", 1, 12);
    r->last_step = sim_draw(run, "steps", 10, 80);
    r->w.settings.steps = r->last_step;
    r->w.settings.lease_ns = sim_draw(run, "lease", 0, 1) * sim_draw(run, "lease_ms", 50, 1500) * SIM_MS;
    const uint64_t faults = sim_draw(run, "faults", 0, 12);
    r->w.host = ls_sim_host_add(run->sim, "node");
    ls_sim_program_add(run->sim, "rank", puppet_program, &r->w);
    seams_break(run->mutation);
    toy_break(run->mutation);
    start_life(r);
    for (uint64_t i = 0; i < faults && !is_through(r); i++) {
        live(r, (1 + ls_sim_random_u64(run->sim) % 120) * SIM_MS);
        fault(r);
    }
    sim_event(run, "no more faults");
    for (uint32_t place = 0; place < WORLD_SLOTS && r->open; place++) {
        /* the watchdog would find a hung rank without a fence, and it is not here */
        world_stop(&r->w, place, false);
    }
    r->w.settings.slow_starts = false;
    live(r, 60 * SIM_S);
    if (!is_through(r)) {
        sim_fail(run, "no more faults, and after 60 s step %llu of %llu: nothing moves",
                 (unsigned long long)r->w.told, (unsigned long long)r->last_step);
    }
    SIM_CHECK(run, fold(r->leaves) == fold_after(r->last_step, NULL));
    SIM_CHECK(run, r->saved_step == r->last_step);
    seams_break(NULL);
    end_life(r);
    free(r);
}

static const sim_mutation mutations[] = {
    {"team-before-parked", "a team is published while ranks may still act in the old one"},
    {"recover-on-events", "who dies behind a fence that stands already is overlooked"},
    {"no-root-sync", "the root is not synced behind the rename of a checkpoint"},
    {"no-claim-sync", "a folder is emptied before its new name is durable"},
};

const sim_world sim_world_run = {
    .name = "run",
    .text = "one host, everything together: ranks, trainer, coordinator's log, checkpoints, power and disk",
    .run = run_all,
    .weight = 3,
    .mutations = mutations,
    .mutation_count = sizeof mutations / sizeof mutations[0],
};
