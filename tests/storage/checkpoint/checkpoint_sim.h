// SPDX-License-Identifier: Apache-2.0
/* The real save and the real removal on a simulated disk, and the real loader on what is left of
 * it. */
#ifndef LS_TESTS_STORAGE_CHECKPOINT_SIM_H
#define LS_TESTS_STORAGE_CHECKPOINT_SIM_H

#include "storage/checkpoint/checkpoint_fixture.h"

#include "sim/env/sim_env.h"
#include "storage/checkpoint/collect.h"
#include "storage/checkpoint/files.h"

#include <errno.h>
#include <unistd.h>

#define SIM_S    1000000000ull
#define SIM_ROOT "run/checkpoints"

typedef struct storage_sim {
    fixture *f;
    ls_sim *sim;
    ls_sim_host host;
    const ls_env_calls *calls; /* instead of the simulator's; NULL: those */
    ls_checkpoint_save_options options;
    ls_checkpoint_attachment attachment;
    const char *victims[4]; /* folders to be removed */
    size_t victim_count;
    bool ended;
    ls_status status; /* of the last save or removal that ended */
    char text[1024];
} storage_sim;

static inline void sim_use_calls(storage_sim *w, ls_env *env)
{
    env->calls = w->calls ? w->calls : env->calls;
}

static inline void sim_ended(storage_sim *w, ls_status status)
{
    w->ended = true;
    w->status = status;
    snprintf(w->text, sizeof w->text, "%s", status == LS_OK ? "" : ls_error_text());
}

static inline void sim_saved(void *context, ls_status status, const ls_checkpoint_saved *saved)
{
    (void)saved;
    sim_ended(context, status);
}

static inline void sim_save_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    storage_sim *w = context;
    sim_use_calls(w, env);
    assert_int_equal(ls_checkpoint_save_start(env, ls_sim_arena(env), &w->options, sim_saved, w), LS_OK);
}

static inline void sim_collected(void *context, ls_status status, const bool *claimed)
{
    (void)claimed;
    sim_ended(context, status);
}

static inline void sim_collect_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    storage_sim *w = context;
    const ls_collect_options options = {.env = env,
                                        .root = SIM_ROOT,
                                        .names = w->victims,
                                        .count = w->victim_count,
                                        .context = w,
                                        .done = sim_collected};
    sim_use_calls(w, env);
    ls_collect_start(ls_sim_arena(env), &options);
}

static inline void sim_ignore(void *context, int64_t result)
{
    (void)context;
    (void)result;
}

static inline void sim_run_program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    (void)context;
    ls_env_disk_mkdir(env, "run", sim_ignore, NULL);
    ls_env_disk_sync_dir(env, "/", sim_ignore, NULL);
}

static inline void sim_settle(storage_sim *w)
{
    assert_true(ls_sim_run(w->sim, ls_sim_now_ns(w->sim) + 600 * SIM_S, 1000000) < 1000000);
}

/* Runs a program to its end. False: the power went before. */
static inline bool sim_do(storage_sim *w, ls_sim_program program)
{
    w->ended = false;
    ls_sim_start(w->sim, w->host, program, w);
    sim_settle(w);
    return w->ended;
}

static inline bool sim_save(storage_sim *w, uint64_t step)
{
    fixture_fill(w->f, step);
    w->options.meta = &w->f->meta;
    return sim_do(w, sim_save_program);
}

static inline void sim_save_good(storage_sim *w, uint64_t step)
{
    if (!sim_save(w, step) || w->status != LS_OK) {
        fail_msg("saving step %llu: %s", (unsigned long long)step, w->text);
    }
}

static inline storage_sim *sim_create(fixture *f, uint64_t seed)
{
    storage_sim *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->f = f;
    w->sim = ls_sim_create(&(ls_sim_settings){.seed = seed});
    w->host = ls_sim_host_add(w->sim, "a");
    w->attachment = (ls_checkpoint_attachment){"config.json", "{}", 2};
    w->options = fixture_options(f);
    w->options.root = SIM_ROOT;
    w->options.threads = 1;
    w->options.attachments = &w->attachment;
    w->options.attachment_count = 1;
    ls_sim_start(w->sim, w->host, sim_run_program, w);
    sim_settle(w);
    return w;
}

static inline void sim_destroy(storage_sim *w)
{
    ls_sim_destroy(w->sim);
    free(w);
}

/* What the loader finds: its step, whole, or 0 for nothing. skipped_out: damaged ones before it. */
static inline uint64_t sim_load(storage_sim *w, size_t *skipped_out)
{
    fixture *f = w->f;
    ls_arena arena = {0};
    ls_checkpoint_latest latest = {0};
    uint64_t step = 0;
    *skipped_out = 0;
    assert_int_equal(ls_dir_remove(f->root), LS_OK);
    if (ls_sim_disk_export(w->sim, w->host, SIM_ROOT, f->root) != LS_OK) {
        return 0;
    }
    fixture_clear(f);
    const ls_status status =
        ls_checkpoint_load_latest(&arena, f->root, "f00d", f->tensors, FIXTURE_TENSORS, NULL, &latest);
    if (status == LS_OK && latest.checkpoint) {
        step = latest.checkpoint->meta.step;
        fixture_expect(f, step);
        ls_checkpoint_close(latest.checkpoint);
    }
    *skipped_out = status == LS_OK ? latest.skipped_count : 1;
    ls_arena_release(&arena);
    return step;
}

/* Everything with a step for a name is whole, and the newest is one of two. */
static inline uint64_t sim_expect(storage_sim *w, uint64_t old_step, uint64_t new_step)
{
    size_t skipped = 0;
    const uint64_t step = sim_load(w, &skipped);
    ls_arena arena = {0};
    ls_checkpoint_entry *entries = NULL;
    size_t count = 0;
    assert_int_equal(ls_checkpoint_list(&arena, w->f->root, &entries, &count), LS_OK);
    for (size_t i = 0; i < count; i++) {
        if (entries[i].problem) {
            fail_msg("%s", entries[i].problem);
        }
    }
    ls_arena_release(&arena);
    assert_int_equal(skipped, 0);
    assert_true(step == old_step || step == new_step);
    return step;
}

/* Names in the root, leftovers too. */
static inline size_t sim_name_count(storage_sim *w)
{
    ls_arena arena = {0};
    char **names = NULL;
    size_t count = 0, skipped = 0;
    (void)sim_load(w, &skipped);
    assert_int_equal(ls_dir_list(&arena, w->f->root, &names, &count), LS_OK);
    ls_arena_release(&arena);
    return count;
}

/* One small block per file, and in memory: these are thousands of saves. */
static inline int sim_fixture_create(void **state)
{
    const int result = fixture_create_in(state, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    ((fixture *)*state)->tensors[0].shape[0] = 3000;
    return result;
}

#endif
