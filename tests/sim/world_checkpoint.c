// SPDX-License-Identifier: Apache-2.0
/*
 * Training on one host that saves and prunes while power, disk and processes fail, and a second
 * trainer is started by mistake.
 *
 * Safety: whenever the disk is not failing, a reader finds the newest acknowledged checkpoint or
 * a newer one, complete and with the right state; nothing with a step as its name is ever
 * damaged, except when a bit of the file that all checkpoints share flips at rest: what is saved
 * from then on is good again. Liveness: when faults have ceased, saving continues, and nothing
 * is left behind.
 */
#include "careless.h"
#include "toy.h"
#include "worlds.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TRAINERS = 2, EVENTS_MAX = 2000000 };

#define ROOT "run/checkpoints"

typedef struct world world;

/* A process that trains, dies, and is started again. */
typedef struct trainer {
    world *w;
    ls_env *env;
    toy_state state;
    bool saving;
} trainer;

struct world {
    sim_run *run;
    ls_sim_host host;
    uint64_t every, keep_last, step_ns;
    ls_env *trainers[TRAINERS];
    uint64_t acknowledged; /* step; 0: none */
    uint64_t saves, failures;
    uint64_t rots;        /* bits that flipped at rest */
    uint64_t fresh;       /* saves acknowledged that began behind the last of them */
    bool disk_fails;      /* now */
    uint64_t disk_failed; /* how often it began to */
};

/* ---- training ---- */

static void trainer_look(void *context);

static void pruned(void *context, ls_status status)
{
    trainer *self = context;
    self->saving = false;
    if (status != LS_OK) {
        sim_event(self->w->run, "prune failed: %s", ls_error_text());
    }
}

static void saved(trainer *self, uint64_t step, ls_status status)
{
    world *w = self->w;
    if (status != LS_OK) {
        w->failures++;
        self->saving = false;
        sim_event(w->run, "save failed: %s", ls_error_text());
        return;
    }
    w->saves++;
    if (ls_env_random_u64(self->env) % 2) {
        toy_prune(self->env, ls_sim_arena(self->env), ROOT, w->keep_last, step, pruned, self);
    } else {
        self->saving = false;
    }
}

typedef struct one_save {
    trainer *trainer;
    uint64_t step, rots;
} one_save;

static void save_ended(void *context, ls_status status)
{
    const one_save *save = context;
    world *w = save->trainer->w;
    if (status == LS_OK) {
        sim_event(w->run, "step %llu is committed", (unsigned long long)save->step);
        w->acknowledged = save->step > w->acknowledged ? save->step : w->acknowledged;
        w->fresh += save->rots == w->rots;
    }
    saved(save->trainer, save->step, status);
}

static void train(void *context)
{
    trainer *self = context;
    world *w = self->w;
    self->state = toy_next(self->state);
    if (self->state.step % w->every == 0 && !self->saving) {
        one_save *save = ls_sim_alloc(self->env, sizeof *save);
        *save = (one_save){self, self->state.step, w->rots};
        self->saving = true;
        sim_event(w->run, "saving step %llu", (unsigned long long)self->state.step);
        toy_save(self->env, ls_sim_arena(self->env), ROOT, self->state, save_ended, save);
    }
    ls_env_timer_set(self->env, w->step_ns, train, self);
}

static void trainer_loaded(void *context, const toy_found *found)
{
    trainer *self = context;
    if (found->failed) { /* the disk cannot be read: try again, as a person would */
        ls_env_timer_set(self->env, 10 * SIM_MS, trainer_look, self);
        return;
    }
    self->state = found->state;
    sim_event(self->w->run, "training from step %llu, %u skipped", (unsigned long long)found->state.step,
              found->skipped);
    train(self);
}

static void trainer_look(void *context)
{
    trainer *self = context;
    toy_load(self->env, ls_sim_arena(self->env), ROOT, &(toy_load_options){0}, trainer_loaded, self);
}

static void trainer_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    world *w = context;
    careless_init(w->run, env);
    trainer *self = ls_sim_alloc(env, sizeof *self);
    *self = (trainer){.w = w, .env = env};
    trainer_look(self);
}

static void start_trainer(world *w, size_t index)
{
    if (!w->trainers[index] || !ls_sim_is_running(w->trainers[index])) {
        w->trainers[index] = ls_sim_start(w->run->sim, w->host, trainer_program, w);
    }
}

static void kill_trainer(world *w, size_t index)
{
    if (w->trainers[index]) {
        ls_sim_signal(w->trainers[index], SIGKILL);
    }
}

/* ---- reading ---- */

typedef struct reader {
    world *w;
    uint64_t acknowledged, disk_failed; /* when it began */
    bool ended;
    bool all;
} reader;

static void reader_loaded(void *context, const toy_found *found)
{
    reader *self = context;
    world *w = self->w;
    self->ended = true;
    if (w->disk_fails || self->disk_failed != w->disk_failed) {
        return;
    }
    const toy_state wanted = toy_after(found->state.step);
    if (found->state.step < self->acknowledged) {
        sim_fail(w->run, "the loader finds step %llu, step %llu was acknowledged",
                 (unsigned long long)found->state.step, (unsigned long long)self->acknowledged);
    }
    SIM_CHECK(w->run, !found->failed);
    SIM_CHECK(w->run, found->damaged == 0 || w->rots > 0);
    SIM_CHECK(w->run, found->state.step == 0 || found->state.chain == wanted.chain);
}

static void reader_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    reader *self = context;
    self->acknowledged = self->w->acknowledged;
    self->disk_failed = self->w->disk_failed;
    const toy_load_options options = {.all = self->all,
                                      .never_again = sim_is_mutated(self->w->run, "reader-looks-once")};
    toy_load(env, ls_sim_arena(env), ROOT, &options, reader_loaded, self);
}

static void run_for(world *w, uint64_t ns)
{
    sim_until(w->run, ls_sim_now_ns(w->run->sim) + ns, EVENTS_MAX, NULL, NULL);
}

/* What is on the disk now, whichever process is using it. */
static void look(world *w, bool all)
{
    reader self = {.w = w, .all = all};
    ls_env *env = ls_sim_start(w->run->sim, w->host, reader_program, &self);
    for (int i = 0; i < 1000 && !self.ended && ls_sim_is_running(env); i++) {
        run_for(w, 5 * SIM_MS);
    }
    const bool lost_power = !ls_sim_is_running(env);
    SIM_CHECK(w->run, self.ended || lost_power);
    ls_sim_signal(env, SIGKILL);
}

/* ---- faults ---- */

typedef enum trouble {
    POWER_NOW,
    POWER_AT_CALL,
    KILL,
    TROUBLE,
    FULL,
    MISTAKE,
    ROT,
    JUST_LOOK,
    TROUBLES,
} trouble;

static void lose_power(world *w)
{
    sim_event(w->run, "the power goes");
    ls_sim_host_crash(w->run->sim, w->host);
    look(w, true);
}

static void power_at_call(world *w, uint64_t random)
{
    ls_sim_disk_fail(w->run->sim, w->host, 1 + random % 60, LS_SIM_POWER_CUT);
    for (int i = 0; i < 40 && ls_sim_is_running(w->trainers[0]); i++) {
        run_for(w, 5 * SIM_MS);
    }
    ls_sim_disk_fail(w->run->sim, w->host, 0, 0);
    sim_event(w->run, "the power %s within a disk call",
              ls_sim_is_running(w->trainers[0]) ? "did not go" : "went");
    look(w, true);
}

static void disk_troubled(world *w, bool on)
{
    w->disk_fails = on;
    w->disk_failed += on;
}

static void disk_fails(world *w, uint64_t random)
{
    sim_event(w->run, "disk calls fail now and then");
    disk_troubled(w, true);
    ls_sim_disk_trouble(w->run->sim, w->host, 0.005 * (double)(1 + random % 20));
    run_for(w, (20 + random % 200) * SIM_MS);
    ls_sim_disk_trouble(w->run->sim, w->host, 0);
    disk_troubled(w, false);
    look(w, false);
}

static void disk_full(world *w, uint64_t random)
{
    sim_event(w->run, "the disk is nearly full");
    ls_sim_disk_capacity(w->run->sim, w->host, ls_sim_disk_used(w->run->sim, w->host) + random % 12000);
    run_for(w, (20 + random % 200) * SIM_MS);
    look(w, true);
    ls_sim_disk_capacity(w->run->sim, w->host, UINT64_MAX);
}

static void second_trainer(world *w, uint64_t random)
{
    sim_event(w->run, "a second one trains in the same folder");
    start_trainer(w, 1);
    run_for(w, (20 + random % 300) * SIM_MS);
    look(w, false);
    kill_trainer(w, 1);
}

static void wait_for_save(world *w)
{
    w->fresh = 0;
    for (int i = 0; i < 400 && w->fresh == 0 && ls_sim_is_running(w->trainers[0]); i++) {
        run_for(w, 10 * SIM_MS);
    }
    SIM_CHECK(w->run, w->fresh > 0);
}

/* The trainer goes on meanwhile: a checkpoint that it begins after this must not have the bad
 * bit. */
static void bit_flips(world *w)
{
    char path[96];
    start_trainer(w, 0);
    wait_for_save(w);
    snprintf(path, sizeof path, ROOT "/%llu/" TOY_FROZEN_FILE, (unsigned long long)w->acknowledged);
    if (!ls_sim_disk_rot(w->run->sim, w->host, path)) {
        return;
    }
    sim_event(w->run, "a bit flips in the file that checkpoints share");
    w->rots++;
    /* everything that shares the file is bad, too, also steps that a restarted trainer has not
     * reached again */
    w->acknowledged = 0;
    wait_for_save(w);
    look(w, false);
}

static void next_trouble(world *w, trouble kind, uint64_t random)
{
    static const sim_fault classes[] = {
        [POWER_NOW] = SIM_FAULT_POWER, [POWER_AT_CALL] = SIM_FAULT_POWER, [KILL] = SIM_FAULT_KILL,
        [TROUBLE] = SIM_FAULT_DISK,    [FULL] = SIM_FAULT_DISK,           [MISTAKE] = SIM_FAULT_MISTAKE,
        [ROT] = SIM_FAULT_DISK,        [JUST_LOOK] = SIM_FAULT_ALL,
    };
    if (kind != JUST_LOOK && !(w->run->faults & classes[kind])) {
        return;
    }
    switch (kind) {
    case POWER_NOW:
        lose_power(w);
        break;
    case POWER_AT_CALL:
        power_at_call(w, random);
        break;
    case KILL:
        sim_event(w->run, "the trainer is killed");
        kill_trainer(w, 0);
        break;
    case TROUBLE:
        disk_fails(w, random);
        break;
    case FULL:
        disk_full(w, random);
        break;
    case MISTAKE:
        second_trainer(w, random);
        break;
    case ROT:
        bit_flips(w);
        break;
    case JUST_LOOK:
    case TROUBLES:
        look(w, random % 2);
        break;
    }
}

/* ---- the end ---- */

typedef struct listing {
    size_t count;
    bool has_temporary, ended;
} listing;

static void listed(void *context, int64_t result, const char *const *names, size_t count)
{
    listing *self = context;
    self->ended = result >= 0;
    self->count = count;
    for (size_t i = 0; i < count; i++) {
        self->has_temporary |= strstr(names[i], ".tmp-") != NULL;
    }
}

static void list_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    ls_env_disk_list(env, ROOT, listed, context);
}

typedef struct last_words {
    world *w;
    ls_status saved, pruned;
} last_words;

static void last_pruned(void *context, ls_status status)
{
    ((last_words *)context)->pruned = status;
}

static void last_saved(void *context, ls_status status)
{
    ((last_words *)context)->saved = status;
}

static void last_save_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    last_words *self = context;
    careless_init(self->w->run, env);
    toy_save(env, ls_sim_arena(env), ROOT, toy_after(self->w->acknowledged + 1000), last_saved, self);
}

static void last_prune_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    last_words *self = context;
    toy_prune(env, ls_sim_arena(env), ROOT, self->w->keep_last, self->w->acknowledged + 1000, last_pruned,
              self);
}

static void expect_progress(world *w)
{
    kill_trainer(w, 0);
    kill_trainer(w, 1);
    start_trainer(w, 0);
    const uint64_t saves = w->saves;
    for (int i = 0; i < 400 && w->saves < saves + 2; i++) {
        run_for(w, 10 * SIM_MS);
    }
    SIM_CHECK(w->run, w->saves >= saves + 2);
    kill_trainer(w, 0);
}

static void expect_tidy(world *w)
{
    last_words last = {.w = w, .saved = LS_ERR_IO, .pruned = LS_ERR_IO};
    ls_sim_start(w->run->sim, w->host, last_save_program, &last);
    run_for(w, 2 * SIM_S);
    SIM_CHECK(w->run, last.saved == LS_OK);
    ls_sim_start(w->run->sim, w->host, last_prune_program, &last);
    run_for(w, 2 * SIM_S);
    SIM_CHECK(w->run, last.pruned == LS_OK);
    listing names = {0};
    ls_sim_start(w->run->sim, w->host, list_program, &names);
    run_for(w, SIM_S);
    SIM_CHECK(w->run, names.ended && !names.has_temporary);
    SIM_CHECK(w->run, names.count >= 1 && names.count <= w->keep_last);
}

static void made(void *context, int64_t result)
{
    (void)context;
    (void)result;
}

static void run_folder_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    (void)context;
    ls_env_disk_mkdir(env, "run", made, NULL);
    ls_env_disk_sync_dir(env, "/", made, NULL);
}

static void run_world(sim_run *run)
{
    world w = {.run = run};
    const uint64_t disk_us = sim_draw(run, "disk_us", 20, 2000);
    sim_create(run,
               &(ls_sim_settings){.disk_delay_min_ns = 5 * SIM_US, .disk_delay_max_ns = disk_us * SIM_US});
    w.host = ls_sim_host_add(run->sim, "a");
    w.every = sim_draw(run, "every", 1, 5);
    w.keep_last = sim_draw(run, "keep_last", 1, 4);
    w.step_ns = sim_draw(run, "step_us", 500, 20000) * SIM_US;
    const uint64_t rounds = sim_draw(run, "rounds", 3, 12);
    toy_break(run->mutation);
    ls_sim_start(run->sim, w.host, run_folder_program, NULL);
    run_for(&w, 50 * SIM_MS);
    for (uint64_t i = 0; i < rounds; i++) {
        start_trainer(&w, 0);
        run_for(&w, (1 + ls_sim_random_u64(run->sim) % 150) * SIM_MS);
        next_trouble(&w, (trouble)(ls_sim_random_u64(run->sim) % TROUBLES), ls_sim_random_u64(run->sim) >> 8);
    }
    expect_progress(&w);
    look(&w, true);
    if (run->faults & SIM_FAULT_POWER) {
        lose_power(&w);
    }
    expect_tidy(&w);
    toy_break(NULL);
}

static const sim_mutation mutations[] = {
    {"no-file-sync", "files are not synced"},
    {"no-folder-sync", "the folder of a new checkpoint is not synced"},
    {"no-root-sync", "the root is not synced behind the rename"},
    {"no-parent-sync", "a new root is not made durable in its folder"},
    {"no-claim-sync", "a folder is emptied before its new name is durable"},
    {"trust-failed-sync", "a sync that failed counts as done"},
    {"link-unread", "a file is linked whatever is in it"},
    {"reader-looks-once", "a reader whose checkpoint is pruned meanwhile does not look again"},
};

const sim_world sim_world_checkpoint = {
    .name = "checkpoint",
    .text =
        "saves, prunes and readers on one host: power cuts, disk faults, full disks, kills, two by mistake",
    .run = run_world,
    .weight = 4,
    .mutations = mutations,
    .mutation_count = sizeof mutations / sizeof mutations[0],
};
