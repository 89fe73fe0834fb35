// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/runs.h"

#include "base/arena.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct entry {
    ls_stored_run run; /* first: what is dropped is found by it */
    uint64_t job;
    uint64_t used;
    uint64_t bytes; /* in memory, as of the last look */
    uint32_t holders;
} entry;

struct ls_api_runs {
    entry *entries[LS_API_RUNS_MAX]; /* NULL: never used */
    uint64_t clock, bytes_max;
    char *folder; /* NULL: none */
};

ls_api_runs *ls_api_runs_create(const char *folder, uint64_t bytes_max)
{
    ls_api_runs *self = calloc(1, sizeof *self);
    LS_ASSERT(self && "not enough memory for the metrics of runs");
    self->bytes_max = bytes_max;
    if (folder && ls_dir_create(folder) == LS_OK) {
        ls_stored_runs_trim(folder);
        self->folder = strdup(folder);
    }
    ls_error_clear(); /* without the folder, they are in memory alone */
    return self;
}

void ls_api_runs_destroy(ls_api_runs *self)
{
    for (size_t i = 0; self && i < LS_API_RUNS_MAX; i++) {
        if (self->entries[i]) {
            ls_stored_run_release(&self->entries[i]->run);
            free(self->entries[i]);
        }
    }
    if (self) {
        free(self->folder);
    }
    free(self);
}

static void forget(entry *e)
{
    ls_stored_run_release(&e->run);
    e->used = e->bytes = 0;
}

/* The job's own, or one that is free to become it; NULL: neither. */
static entry *find(ls_api_runs *self, uint64_t job)
{
    entry *oldest = NULL;
    for (size_t i = 0; i < LS_API_RUNS_MAX; i++) {
        entry **at = &self->entries[i];
        if (!*at) {
            *at = calloc(1, sizeof(entry));
            LS_ASSERT(*at && "not enough memory for the metrics of a run");
            (*at)->job = job;
        }
        if ((*at)->job == job) {
            return *at;
        }
        if ((*at)->holders == 0 && (!oldest || (*at)->used < oldest->used)) {
            oldest = *at;
        }
    }
    if (oldest) {
        forget(oldest);
        oldest->job = job;
    }
    return oldest;
}

/* The name of its file follows from user, job and path: with numbers that are given out again, as
 * those of folders are, another run has another file; and a user who names a folder of another gets
 * nothing of what was read for that one. */
static void open_stored(const ls_api_runs *self, entry *e, uint32_t uid, const char *run_dir)
{
    ls_arena arena = {0};
    const char *identity =
        ls_arena_printf(&arena, "%" PRIu32 " %" PRIu64 " %s", uid, run_dir[0] ? 0 : e->job, run_dir);
    const uint64_t hash = ls_xxh3(identity, strlen(identity), 0);
    ls_stored_run_open(&e->run, ls_arena_printf(&arena, "%s/%016" PRIx64 ".metrics", self->folder, hash),
                       identity);
    ls_arena_release(&arena);
}

static uint64_t bytes_of(const ls_stored_run *run)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < run->data.count; i++) {
        const ls_series *series = &run->data.metrics[i].series;
        bytes += series->bytes + series->open_capacity * sizeof *series->open;
        bytes += series->block_capacity * (sizeof *series->blocks + sizeof **series->levels);
    }
    return bytes;
}

/* Forgets the runs that were used least recently and are not held, until the others fit. False:
 * those that are held do not fit. */
static bool make_room(ls_api_runs *self)
{
    for (;;) {
        entry *oldest = NULL;
        uint64_t bytes = 0;
        for (size_t i = 0; i < LS_API_RUNS_MAX && self->entries[i]; i++) {
            entry *e = self->entries[i];
            bytes += e->bytes;
            if (e->holders == 0 && e->used > 0 && (!oldest || e->used < oldest->used)) {
                oldest = e;
            }
        }
        if (!oldest || bytes <= self->bytes_max) {
            return bytes <= self->bytes_max;
        }
        forget(oldest);
    }
}

ls_stored_run *ls_api_runs_hold(ls_api_runs *self, uint64_t job, uint32_t uid, const char *run_dir)
{
    entry *found = find(self, job);
    if (!found || (found->used == 0 && !make_room(self))) {
        return NULL;
    }
    if (found->used == 0 && self->folder) {
        open_stored(self, found, uid, run_dir);
    }
    found->holders++;
    found->used = ++self->clock;
    (void)ls_api_runs_have_room(self, &found->run);
    return &found->run;
}

bool ls_api_runs_have_room(ls_api_runs *self, ls_stored_run *run)
{
    entry *held = (entry *)(void *)run;
    held->bytes = bytes_of(run);
    return make_room(self) && held->bytes <= self->bytes_max / 4;
}

void ls_api_runs_drop(ls_api_runs *self, ls_stored_run *run)
{
    (void)self;
    if (run) {
        entry *held = (entry *)(void *)run;
        LS_ASSERT(held->holders > 0);
        held->holders--;
    }
}

const ls_stored_run *ls_api_runs_find(const ls_api_runs *self, uint64_t job)
{
    for (size_t i = 0; i < LS_API_RUNS_MAX && self->entries[i]; i++) {
        if (self->entries[i]->job == job) {
            return &self->entries[i]->run;
        }
    }
    return NULL;
}
