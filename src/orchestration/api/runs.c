// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/runs.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

typedef struct entry {
    ls_api_run run; /* first: what is dropped is found by it */
    uint64_t job;
    uint64_t used;
    uint32_t holders;
} entry;

struct ls_api_runs {
    entry *entries[LS_API_RUNS_MAX]; /* NULL: never used */
    uint64_t clock;
};

ls_api_runs *ls_api_runs_create(void)
{
    ls_api_runs *self = calloc(1, sizeof *self);
    LS_ASSERT(self && "not enough memory for the metrics of runs");
    return self;
}

void ls_api_runs_destroy(ls_api_runs *self)
{
    for (size_t i = 0; self && i < LS_API_RUNS_MAX; i++) {
        if (self->entries[i]) {
            ls_api_run_clear(&self->entries[i]->run);
            free(self->entries[i]);
        }
    }
    free(self);
}

void ls_api_run_clear(ls_api_run *run)
{
    ls_run_metrics_release(&run->data);
    for (size_t i = 0; i < run->file_count; i++) {
        free(run->files[i].name);
    }
    free(run->files);
    run->files = NULL;
    run->file_count = 0;
}

ls_feed *ls_api_run_feed(ls_api_run *run, const char *name)
{
    for (size_t i = 0; i < run->file_count; i++) {
        if (strcmp(run->files[i].name, name) == 0) {
            return &run->files[i].feed;
        }
    }
    run->files = realloc(run->files, (run->file_count + 1) * sizeof *run->files);
    char *copy = strdup(name);
    LS_ASSERT(run->files && copy && "not enough memory for the files of a run");
    ls_api_run_file *file = &run->files[run->file_count++];
    *file = (ls_api_run_file){.name = copy, .feed.kind = ls_feed_kind_of(name)};
    return &file->feed;
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
        ls_api_run_clear(&oldest->run);
        oldest->job = job;
    }
    return oldest;
}

ls_api_run *ls_api_runs_hold(ls_api_runs *self, uint64_t job)
{
    entry *found = find(self, job);
    if (!found) {
        return NULL;
    }
    found->holders++;
    found->used = ++self->clock;
    return &found->run;
}

void ls_api_runs_drop(ls_api_runs *self, ls_api_run *run)
{
    (void)self;
    if (run) {
        entry *held = (entry *)(void *)run;
        LS_ASSERT(held->holders > 0);
        held->holders--;
    }
}

const ls_api_run *ls_api_runs_find(const ls_api_runs *self, uint64_t job)
{
    for (size_t i = 0; i < LS_API_RUNS_MAX && self->entries[i]; i++) {
        if (self->entries[i]->job == job) {
            return &self->entries[i]->run;
        }
    }
    return NULL;
}
