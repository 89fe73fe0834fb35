// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/run_heads.h"

#include "base/assert.h"
#include "orchestration/api/api_internal.h"

#include <stdlib.h>
#include <string.h>

enum {
    READING_MAX = 512, /* at a time */
    HEADS_MAX = 1 << 16,
    SUMMARY_BYTES = 256 * 1024,
};

#define FRESH_NS UINT64_C(2000000000)

typedef struct run_head {
    ls_api_heads *all;
    uint64_t job;
    ls_run_head head;
    bool is_known, has_ended, is_final; /* final: it is not read again */
    uint64_t read_ns, question;
    uint32_t uid, gid;
    char *run_dir; /* while it is read */
} run_head;

struct ls_api_heads {
    const ls_api *api;
    run_head **heads; /* by number of the job */
    size_t count, capacity, reading;
};

ls_api_heads *ls_api_heads_create(const ls_api *api)
{
    ls_api_heads *all = calloc(1, sizeof *all);
    LS_ASSERT(all && "not enough memory for runs");
    *all = (ls_api_heads){.api = api};
    return all;
}

void ls_api_heads_destroy(ls_api_heads *all)
{
    for (size_t i = 0; all && i < all->count; i++) {
        ls_user_files_forget(all->api->files, all->heads[i]->question);
        free(all->heads[i]->run_dir);
        free(all->heads[i]);
    }
    if (all) {
        free(all->heads);
    }
    free(all);
}

/* ---- reading ---- */

static void ask(run_head *h, const char *name, bool is_tail, ls_user_file_done done)
{
    const size_t bytes = is_tail ? LS_RUN_TAIL_BYTES : SUMMARY_BYTES;
    const ls_user_file file = {.folder = h->run_dir,
                               .name = name,
                               .uid = h->uid,
                               .gid = h->gid,
                               .from_end = is_tail,
                               .offset = is_tail ? bytes : 0,
                               .bytes = bytes};
    h->question = ls_user_files_ask(h->all->api->files, &file, done, h);
}

static void finish(run_head *h)
{
    free(h->run_dir);
    h->run_dir = NULL;
    h->question = 0;
    h->is_known = true;
    h->is_final = h->has_ended;
    h->all->reading--;
}

static bool is_own(const run_head *h, const ls_user_file_answer *answer)
{
    return answer->error == 0 && answer->owner == h->uid;
}

static void hear_events(void *context, const ls_user_file_answer *answer)
{
    run_head *h = context;
    if (is_own(h, answer)) {
        ls_run_head_take_tail(&h->head, answer->data, answer->bytes, answer->offset > 0);
    }
    finish(h);
}

static void hear_tail(void *context, const ls_user_file_answer *answer)
{
    run_head *h = context;
    if (is_own(h, answer)) {
        ls_run_head_take_tail(&h->head, answer->data, answer->bytes, answer->offset > 0);
    }
    ask(h, "events.jsonl", true, hear_events);
}

/* First, because it may be of an earlier start. */
static void hear_summary(void *context, const ls_user_file_answer *answer)
{
    run_head *h = context;
    json_t *summary = is_own(h, answer) ? json_loadb(answer->data, answer->bytes, 0, NULL) : NULL;
    ls_run_head_take_summary(&h->head, summary);
    json_decref(summary);
    ask(h, "metrics.jsonl", true, hear_tail);
}

static void read_again(run_head *h, const json_t *job)
{
    const uint64_t now_ns = ls_env_now_ns(h->all->api->env);
    if (h->run_dir || h->is_final || (h->is_known && now_ns - h->read_ns < FRESH_NS)) {
        return;
    }
    if (h->all->reading >= READING_MAX) {
        return; /* later: the caller asks again */
    }
    const char *run_dir = json_string_value(json_object_get(job, "run_dir"));
    ls_text logged = {0};
    char name[32];
    const ls_user_file file = ls_api_logged_file(h->all->api, h->job, &logged, name);
    const bool trains = run_dir && run_dir[0]; /* if not, it may have logged by HTTP */
    h->run_dir = strdup(trains ? run_dir : file.folder);
    LS_ASSERT(h->run_dir && "not enough memory for a path");
    ls_text_release(&logged);
    h->uid = trains ? (uint32_t)json_integer_value(json_object_get(job, "uid")) : file.uid;
    h->gid = trains ? (uint32_t)json_integer_value(json_object_get(job, "gid")) : file.gid;
    h->has_ended = json_is_number(json_object_get(job, "ended"));
    h->read_ns = now_ns;
    h->all->reading++;
    ask(h, trains ? "summary.json" : name, !trains, trains ? hear_summary : hear_events);
}

/* ---- finding ---- */

/* Those of the older half, which are read again if they are asked for. */
static void forget_old(ls_api_heads *all)
{
    const size_t count = all->count;
    all->count = 0;
    for (size_t i = 0; i < count; i++) {
        run_head *h = all->heads[i];
        if (i >= count / 2 || h->run_dir) {
            all->heads[all->count++] = h;
        } else {
            free(h);
        }
    }
}

static run_head *find_or_make(ls_api_heads *all, uint64_t job)
{
    if (all->count >= HEADS_MAX) {
        forget_old(all);
    }
    size_t low = 0, high = all->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (all->heads[middle]->job < job) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low < all->count && all->heads[low]->job == job) {
        return all->heads[low];
    }
    if (all->count == all->capacity) {
        all->capacity = all->capacity ? 2 * all->capacity : 64;
        all->heads = realloc(all->heads, all->capacity * sizeof *all->heads);
    }
    run_head *made = calloc(1, sizeof *made);
    LS_ASSERT(all->heads && made && "not enough memory for runs");
    *made = (run_head){.all = all, .job = job, .head = ls_run_head_none()};
    memmove(all->heads + low + 1, all->heads + low, (all->count - low) * sizeof *all->heads);
    all->heads[low] = made;
    all->count++;
    return made;
}

const ls_run_head *ls_api_heads_find(ls_api_heads *all, const json_t *job)
{
    run_head *h = find_or_make(all, (uint64_t)json_integer_value(json_object_get(job, "job")));
    read_again(h, job);
    return h->is_known ? &h->head : NULL;
}

bool ls_api_heads_wait(const ls_api_heads *all)
{
    return all->reading > 0;
}
