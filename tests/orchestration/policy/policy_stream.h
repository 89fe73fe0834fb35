// SPDX-License-Identifier: Apache-2.0
/*
 * A stream of events from bytes, with separate accounts of which job has which device, against
 * which the policy's actions are checked.
 *
 * The same bytes make the same cluster, settings and events, so a stream can be replayed, and a
 * fuzzer can write one. Any error ends the process, with the step and the values seen.
 */
#ifndef LS_TESTS_ORCHESTRATION_POLICY_STREAM_H
#define LS_TESTS_ORCHESTRATION_POLICY_STREAM_H

#include "base/hash.h"
#include "orchestration/policy/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAM_NODES = 12, STREAM_JOBS = 48, STREAM_ACCOUNTS = 4 };

typedef struct stream_job {
    ls_policy_job spec;
    bool here, running, told_resize, told_stop;
    uint32_t ranks;
    uint64_t devices[STREAM_NODES], keep[STREAM_NODES]; /* keep: after a SHRINK */
    uint64_t reserved_ms;                               /* promised start; 0: none */
    uint64_t waits_for;                                 /* a job that must have left; 0: none */
} stream_job;

typedef struct stream {
    const uint8_t *bytes;
    size_t count, at;
    bool ask; /* ask `why` now and then: it must not change anything */
    ls_node_spec nodes[STREAM_NODES];
    ls_policy_cluster cluster;
    ls_policy *policy;
    ls_policy_settings settings;
    uint64_t now, next_id, hash;
    uint32_t passes, starts, stops, resizes, promises;
    uint64_t owner[STREAM_NODES]; /* which devices some job has */
    bool down[STREAM_NODES];
    ls_policy_window windows[2];
    uint32_t window_count;
    stream_job jobs[STREAM_JOBS];
} stream;

#define STREAM_FAIL(s, ...)                                                                                  \
    do {                                                                                                     \
        fprintf(stderr, "byte %zu of %zu, time %" PRIu64 ": ", (s)->at, (s)->count, (s)->now);               \
        fprintf(stderr, __VA_ARGS__);                                                                        \
        fprintf(stderr, "\n");                                                                               \
        abort();                                                                                             \
    } while (0)

/* The next number below `bound`; 0 after the end. */
static inline uint32_t stream_take(stream *s, uint32_t bound)
{
    return s->at < s->count ? s->bytes[s->at++] % bound : 0;
}

static inline stream_job *stream_find(stream *s, uint64_t id)
{
    for (int i = 0; i < STREAM_JOBS; i++) {
        if (s->jobs[i].here && s->jobs[i].spec.id == id) {
            return &s->jobs[i];
        }
    }
    return NULL;
}

/* A job that is here; NULL when the one that was drawn is not. */
static inline stream_job *stream_draw(stream *s)
{
    stream_job *j = &s->jobs[stream_take(s, STREAM_JOBS)];
    return j->here ? j : NULL;
}

static inline void stream_give(stream *s, stream_job *j, bool all)
{
    for (uint32_t n = 0; n < s->cluster.node_count; n++) {
        const uint64_t given = all ? j->devices[n] : j->devices[n] & ~j->keep[n];
        s->owner[n] &= ~given;
        j->devices[n] &= ~given;
    }
}

static inline void stream_check(stream *s)
{
    if (ls_policy_check(s->policy) != LS_OK) {
        STREAM_FAIL(s, "%s", ls_error_text());
    }
}

/* ---- what a pass said ---- */

static inline uint32_t stream_shares(stream *s, const ls_action *a, uint64_t devices[STREAM_NODES])
{
    uint32_t count = 0;
    memset(devices, 0, STREAM_NODES * sizeof *devices);
    for (uint32_t i = 0; i < a->share_count; i++) {
        if (a->shares[i].node >= s->cluster.node_count || devices[a->shares[i].node]) {
            STREAM_FAIL(s, "job %" PRIu64 ": shares name node %u, twice or not there", a->job,
                        a->shares[i].node);
        }
        devices[a->shares[i].node] = a->shares[i].devices;
        count += (uint32_t)__builtin_popcountll(a->shares[i].devices);
    }
    if (!s->settings.pooled && count != a->ranks) {
        STREAM_FAIL(s, "job %" PRIu64 ": %u devices for %u ranks: a gang is whole or not there", a->job,
                    count, a->ranks);
    }
    return count;
}

/* Devices that a job gets were free, exist, and are on nodes that are up. */
static inline void stream_own(stream *s, stream_job *j, const uint64_t devices[STREAM_NODES])
{
    for (uint32_t n = 0; n < s->cluster.node_count; n++) {
        const uint64_t more = devices[n] & ~j->devices[n];
        if ((more & s->owner[n]) || (more && s->down[n]) || (more >> 1 >> (s->nodes[n].devices - 1))) {
            STREAM_FAIL(s, "job %" PRIu64 " gets devices 0x%" PRIx64 " of node %u, taken are 0x%" PRIx64,
                        j->spec.id, more, n, s->owner[n]);
        }
        if (more && ((s->nodes[n].spot && !j->spec.spot) ||
                     (j->spec.kind >= 0 && j->spec.kind != s->nodes[n].kind))) {
            STREAM_FAIL(s, "job %" PRIu64 " is put on node %u, which it may not use", j->spec.id, n);
        }
        s->owner[n] |= more;
        j->devices[n] |= more;
    }
}

/* No start in a window of maintenance, nor one that could run into it. */
static inline void stream_keep_clear(stream *s, const stream_job *j)
{
    for (uint32_t i = 0; i < s->window_count; i++) {
        const ls_policy_window *window = &s->windows[i];
        const bool is_late =
            !j->spec.preemptible && (!j->spec.limit_ms || s->now + j->spec.limit_ms > window->begin_ms);
        if (s->now < window->end_ms && (s->now >= window->begin_ms || is_late)) {
            STREAM_FAIL(s, "job %" PRIu64 " starts with maintenance from %" PRIu64 " to %" PRIu64, j->spec.id,
                        window->begin_ms, window->end_ms);
        }
    }
}

static inline void stream_started(stream *s, stream_job *j, const ls_action *a)
{
    uint64_t devices[STREAM_NODES];
    stream_shares(s, a, devices);
    if (j->running || a->ranks < j->spec.min_ranks || a->ranks > j->spec.ranks ||
        a->ranks % j->spec.ranks_multiple) {
        STREAM_FAIL(s, "job %" PRIu64 " starts with %u ranks; asked for %u to %u, running: %d", a->job,
                    a->ranks, j->spec.min_ranks, j->spec.ranks, j->running);
    }
    if (j->spec.held || j->spec.begin_ms > s->now || (!s->settings.pooled && a->level > j->spec.required)) {
        STREAM_FAIL(s, "job %" PRIu64 " starts: held %d, begin %" PRIu64 ", level %s for %s", a->job,
                    j->spec.held, j->spec.begin_ms, ls_level_name(a->level), ls_level_name(j->spec.required));
    }
    if (j->waits_for && stream_find(s, j->waits_for)) {
        STREAM_FAIL(s, "job %" PRIu64 " starts before job %" PRIu64 " has left", a->job, j->waits_for);
    }
    stream_keep_clear(s, j);
    stream_own(s, j, devices);
    j->running = true;
    j->ranks = a->ranks;
    s->starts++;
}

static inline void stream_resize(stream *s, stream_job *j, const ls_action *a)
{
    uint64_t devices[STREAM_NODES];
    stream_shares(s, a, devices);
    const bool grows = a->kind == LS_ACTION_GROW;
    if (!j->running || j->told_resize || j->told_stop ||
        (grows ? a->ranks <= j->ranks : a->ranks >= j->ranks)) {
        STREAM_FAIL(s, "job %" PRIu64 " is to %s from %u to %u ranks; running %d, busy %d", a->job,
                    ls_action_name(a->kind), j->ranks, a->ranks, j->running, j->told_resize || j->told_stop);
    }
    for (uint32_t n = 0; n < s->cluster.node_count; n++) {
        if (grows ? j->devices[n] & ~devices[n] : devices[n] & ~j->devices[n]) {
            STREAM_FAIL(s, "job %" PRIu64 ": %s moves it", a->job, ls_action_name(a->kind));
        }
    }
    if (grows) {
        stream_own(s, j, devices);
    }
    memcpy(j->keep, devices, sizeof j->keep);
    j->told_resize = true;
    j->ranks = a->ranks;
    s->resizes++;
}

static inline void stream_act(stream *s, const ls_action *a)
{
    stream_job *j = stream_find(s, a->job);
    if (!j) {
        STREAM_FAIL(s, "an action for job %" PRIu64 ", which is not here", a->job);
    }
    switch (a->kind) {
    case LS_ACTION_START:
        stream_started(s, j, a);
        return;
    case LS_ACTION_SHRINK:
    case LS_ACTION_GROW:
        stream_resize(s, j, a);
        return;
    case LS_ACTION_CANNOT:
        if (j->running) {
            STREAM_FAIL(s, "job %" PRIu64 " runs and can't", a->job);
        }
        j->here = false;
        return;
    default:
        if (!j->running || (a->kind == LS_ACTION_PREEMPT && j->told_stop)) {
            STREAM_FAIL(s, "job %" PRIu64 " is told to %s; running %d, told %d", a->job,
                        ls_action_name(a->kind), j->running, j->told_stop);
        }
        j->told_stop = true;
        s->stops++;
    }
}

static inline void stream_mix(stream *s, const void *data, size_t bytes)
{
    s->hash = ls_xxh3(data, bytes, s->hash);
}

static inline void stream_pass(stream *s)
{
    const ls_action *actions = NULL;
    uint32_t count = 0;
    ls_policy_pass(s->policy, s->now, &actions, &count);
    s->passes++;
    for (uint32_t i = 0; i < count; i++) {
        const ls_action *a = &actions[i];
        const uint64_t words[6] = {a->kind, a->job, a->for_job, a->ranks, a->level, a->share_count};
        stream_mix(s, words, sizeof words);
        for (uint32_t k = 0; k < a->share_count; k++) {
            const uint64_t share[2] = {a->shares[k].node, a->shares[k].devices};
            stream_mix(s, share, sizeof share);
        }
        stream_act(s, a);
    }
    for (uint32_t i = 0; i < s->window_count; i++) {
        const bool is_open = s->windows[i].begin_ms <= s->now && s->now < s->windows[i].end_ms;
        for (int k = 0; is_open && k < STREAM_JOBS; k++) {
            if (s->jobs[k].here && s->jobs[k].running && !s->jobs[k].told_stop) {
                STREAM_FAIL(s, "job %" PRIu64 " runs in maintenance", s->jobs[k].spec.id);
            }
        }
    }
    stream_check(s);
}

/* ---- what happens ---- */

static inline void stream_leave(stream *s, stream_job *j)
{
    stream_give(s, j, true);
    j->running = j->told_resize = j->told_stop = false;
    j->ranks = 0;
}

static inline void stream_submit(stream *s)
{
    stream_job *j = NULL;
    for (int i = 0; i < STREAM_JOBS && !j; i++) {
        j = s->jobs[i].here ? NULL : &s->jobs[i];
    }
    if (!j) {
        return;
    }
    ls_policy_job job = ls_policy_job_default();
    const uint32_t curve[] = {1000, 1900, 2600, 3000, 3200, 3300};
    const uint64_t after[1] = {s->next_id - 1 - stream_take(s, 4)};
    const uint32_t flags = stream_take(s, 256);
    job.id = s->next_id++;
    job.submit_ms = s->now;
    job.account = stream_take(s, STREAM_ACCOUNTS);
    job.priority = (uint8_t)stream_take(s, 3);
    job.ranks_multiple = 1 + stream_take(s, 2);
    job.min_ranks = job.ranks_multiple * (1 + stream_take(s, 6));
    job.ranks = job.min_ranks + job.ranks_multiple * (flags & 1 ? stream_take(s, 5) : 0);
    job.max_ranks = job.ranks + job.ranks_multiple * (flags & 1 ? stream_take(s, 5) : 0);
    job.devices_per_node = flags & 2 && !(flags & 1) && stream_take(s, 2) ? 1 + stream_take(s, 2) : 0;
    job.kind = (int32_t)stream_take(s, 3) - 1;
    job.spot = flags & 4;
    job.preemptible = !(flags & 8);
    job.required = flags & 16 ? (ls_level)(LS_LEVEL_NODE + stream_take(s, 4)) : LS_LEVEL_CLUSTER;
    job.preferred = (ls_level)stream_take(s, LS_LEVEL_COUNT);
    job.cpus_per_rank = flags & 32 ? stream_take(s, 12) : 0;
    job.expected_ms = flags & 64 ? 1000 * (1 + stream_take(s, 100)) : 0;
    job.limit_ms = flags & 128 ? 1000 * (1 + stream_take(s, 100)) : 0;
    job.dataset = stream_take(s, 3);
    job.group = stream_take(s, 4);
    job.group_running_max = stream_take(s, 4);
    job.after = after;
    job.after_count = stream_take(s, 5) == 0;
    job.after_any = stream_take(s, 2);
    job.begin_ms = stream_take(s, 6) == 0 ? s->now + 5000 : 0;
    job.deadline_ms = stream_take(s, 6) == 0 ? s->now + 90000 : 0;
    job.held = stream_take(s, 10) == 1;
    job.comm_bytes_per_step = UINT64_C(1) << stream_take(s, 40);
    job.gain_permille = curve;
    job.gain_count = stream_take(s, 7);
    if (ls_policy_submit(s->policy, s->now, &job) == LS_OK) {
        *j = (stream_job){.spec = job, .here = true, .waits_for = job.after_count ? after[0] : 0};
    }
    ls_error_clear();
}

static inline void stream_end(stream *s, stream_job *j, bool succeeded)
{
    if (ls_policy_ended(s->policy, s->now, j->spec.id, succeeded) != LS_OK) {
        STREAM_FAIL(s, "%s", ls_error_text());
    }
    stream_leave(s, j);
    j->here = false;
}

static inline void stream_requeue(stream *s, stream_job *j)
{
    if (ls_policy_requeued(s->policy, s->now, j->spec.id) != LS_OK) {
        STREAM_FAIL(s, "%s", ls_error_text());
    }
    stream_leave(s, j);
}

/* The caller carries out an action. */
static inline void stream_report(stream *s, stream_job *j)
{
    if (!j->running) {
        return;
    }
    if (ls_policy_started(s->policy, s->now, j->spec.id) != LS_OK) {
        STREAM_FAIL(s, "%s", ls_error_text());
    }
    if (j->told_stop) {
        if (j->spec.preemptible) {
            stream_requeue(s, j);
        } else {
            stream_end(s, j, false);
        }
    } else if (j->told_resize) {
        if (ls_policy_resized(s->policy, s->now, j->spec.id) != LS_OK) {
            STREAM_FAIL(s, "%s", ls_error_text());
        }
        stream_give(s, j, false);
        j->told_resize = false;
    }
}

static inline void stream_node(stream *s)
{
    const uint32_t node = stream_take(s, s->cluster.node_count);
    const ls_node_state state = (ls_node_state)stream_take(s, 3);
    if (ls_policy_node_set(s->policy, s->now, node, state) != LS_OK) {
        STREAM_FAIL(s, "%s", ls_error_text());
    }
    s->down[node] = state != LS_NODE_UP;
    for (int i = 0; i < STREAM_JOBS && state == LS_NODE_DOWN; i++) {
        if (s->jobs[i].here && s->jobs[i].running && s->jobs[i].devices[node]) {
            stream_requeue(s, &s->jobs[i]);
        }
    }
}

static inline void stream_account(stream *s)
{
    ls_policy_account account = ls_policy_account_default();
    const uint32_t index = stream_take(s, STREAM_ACCOUNTS);
    account.weight = 1 + stream_take(s, 3);
    if (stream_take(s, 3)) {
        account.quota[0].nominal = stream_take(s, 24);
        account.quota[0].borrow_max = stream_take(s, 2) ? LS_UNLIMITED : stream_take(s, 24);
        account.quota[0].lend_max = stream_take(s, 2) ? LS_UNLIMITED : stream_take(s, 24);
    }
    if (ls_policy_account_set(s->policy, s->now, index, &account) != LS_OK) {
        STREAM_FAIL(s, "%s", ls_error_text());
    }
}

static inline void stream_change(stream *s, stream_job *j)
{
    const ls_change_kind kind = (ls_change_kind)stream_take(s, LS_CHANGE_COUNT);
    const uint64_t value = stream_take(s, 12);
    if (ls_policy_change(s->policy, s->now, j->spec.id, kind, value) != LS_OK) {
        ls_error_clear();
        return;
    }
    switch (kind) {
    case LS_CHANGE_RANKS:
        j->spec.ranks = (uint32_t)value;
        j->spec.min_ranks = j->spec.min_ranks < value ? j->spec.min_ranks : (uint32_t)value;
        j->spec.ranks_multiple = 1;
        break;
    case LS_CHANGE_MAX_RANKS:
        j->spec.ranks = j->spec.ranks < value ? j->spec.ranks : (uint32_t)value;
        j->spec.ranks_multiple = 1;
        break;
    case LS_CHANGE_LIMIT:
        j->spec.limit_ms = value;
        break;
    case LS_CHANGE_REQUIRED:
        j->spec.required = (ls_level)value;
        break;
    case LS_CHANGE_KIND:
        j->spec.kind = (int32_t)value - 1;
        break;
    case LS_CHANGE_SPOT:
        j->spec.spot = value;
        break;
    case LS_CHANGE_HELD:
        j->spec.held = value;
        break;
    case LS_CHANGE_BEGIN:
        j->spec.begin_ms = value;
        break;
    default:
        break;
    }
}

static inline void stream_window(stream *s)
{
    s->window_count = stream_take(s, 3);
    for (uint32_t i = 0; i < s->window_count; i++) {
        const uint64_t begin = s->now + 1000 * stream_take(s, 60);
        s->windows[i] = (ls_policy_window){begin, begin + 1 + 500 * stream_take(s, 20)};
    }
    if (ls_policy_windows_set(s->policy, s->windows, s->window_count) != LS_OK) {
        STREAM_FAIL(s, "%s", ls_error_text());
    }
}

/* A waiting job is told to wait for one that came before it, or for none. */
static inline void stream_depend(stream *s, stream_job *j)
{
    const uint64_t after[1] = {j->spec.id - 1 - stream_take(s, 5)};
    const uint32_t count = stream_take(s, 3) > 0;
    const ls_status status = ls_policy_depend(s->policy, s->now, j->spec.id, after, count, stream_take(s, 2));
    if ((status == LS_OK) == j->running) {
        STREAM_FAIL(s, "job %" PRIu64 " is told what to wait for: %d; running %d", j->spec.id, status,
                    j->running);
    }
    ls_error_clear();
    j->waits_for = status == LS_OK ? (count ? after[0] : 0) : j->waits_for;
}

static inline void stream_why(stream *s)
{
    ls_why why;
    const stream_job *j = stream_draw(s);
    if (!s->ask || !j) {
        return;
    }
    if (ls_policy_why(s->policy, s->now, j->spec.id, &why) != LS_OK) {
        STREAM_FAIL(s, "%s", ls_error_text());
    }
    if ((why.stage == LS_WHY_RUNNING) != j->running || why.change_count > LS_WHY_CHANGES_MAX) {
        STREAM_FAIL(s, "job %" PRIu64 " is said to wait for %s; running %d", j->spec.id,
                    ls_why_stage_name(why.stage), j->running);
    }
    stream_check(s);
}

static inline void stream_step(stream *s)
{
    const uint32_t what = stream_take(s, 26);
    stream_job *j = (what >= 4 && what < 16) || what == 24 ? stream_draw(s) : NULL;
    s->now += what == 3 ? 1000 * stream_take(s, 30) : 1;
    if (what < 3) {
        stream_submit(s);
    } else if (what >= 16 && what < 21) {
        stream_pass(s);
    } else if (what == 21) {
        stream_node(s);
    } else if (what == 22) {
        stream_account(s);
    } else if (what == 23) {
        stream_why(s);
    } else if (what == 25) {
        stream_window(s);
    } else if (what == 15) {
        const uint32_t node = stream_take(s, s->cluster.node_count);
        if (ls_policy_dataset_set(s->policy, node, 1 + stream_take(s, 3), stream_take(s, 2)) != LS_OK) {
            STREAM_FAIL(s, "%s", ls_error_text());
        }
    } else if (!j) {
        return;
    } else if (what == 24) {
        stream_depend(s, j);
    } else if (what < 9) {
        stream_report(s, j);
    } else if (what < 11) {
        stream_end(s, j, stream_take(s, 2));
    } else if (what == 11 && j->running) {
        stream_requeue(s, j);
    } else if (what == 12) {
        stream_change(s, j);
    } else if (what == 13) {
        if (ls_policy_progress(s->policy, s->now, j->spec.id, 1000 * stream_take(s, 50)) != LS_OK) {
            STREAM_FAIL(s, "%s", ls_error_text());
        }
    } else if (what == 14 && ls_policy_checkpointed(s->policy, s->now, j->spec.id) != LS_OK) {
        STREAM_FAIL(s, "%s", ls_error_text());
    }
}

static inline void stream_open(stream *s, const uint8_t *bytes, size_t count, bool ask)
{
    static const char *kinds[] = {"a", "b"};
    *s = (stream){.bytes = bytes, .count = count, .ask = ask, .now = 1000, .next_id = 10};
    s->cluster = (ls_policy_cluster){.kinds = kinds, .kind_count = 2, .nodes = s->nodes};
    s->cluster.node_count = 1 + stream_take(s, STREAM_NODES);
    const uint32_t mixed = stream_take(s, 4);
    for (uint32_t n = 0; n < s->cluster.node_count; n++) {
        const uint16_t devices = (uint16_t)(1u << (mixed & 1 ? stream_take(s, 4) : 3));
        s->nodes[n] = (ls_node_spec){.name = "n",
                                     .leaf = n / 2,
                                     .spine = n / 6,
                                     .devices = devices,
                                     .island_devices = mixed & 2 && devices > 1 ? devices / 2 : devices,
                                     .kind = mixed & 1 ? (uint16_t)stream_take(s, 2) : 0,
                                     .spot = mixed & 1 && stream_take(s, 3) == 0,
                                     .cpus = 32,
                                     .memory_mib = 1000};
    }
    s->settings = ls_policy_settings_default();
    s->settings.order = (ls_policy_order)stream_take(s, LS_ORDER_COUNT);
    s->settings.pooled = stream_take(s, 8) == 7;
    s->settings.preempt = stream_take(s, 4) != 0;
    s->settings.elastic = stream_take(s, 4) != 0;
    s->settings.reservations = stream_take(s, 5);
    s->settings.min_run_ms = 1000 * stream_take(s, 5);
    s->settings.resize_pause_ms = 1000 * stream_take(s, 5);
    s->settings.age_max_ms = 20000;
    s->settings.las_thresholds_device_ms[0] = 20000;
    s->settings.las_thresholds_device_ms[1] = 80000;
    s->settings.jobs_max = STREAM_JOBS;
    s->settings.accounts_max = STREAM_ACCOUNTS;
    s->settings.datasets_max = 2;
    if (ls_policy_create(&s->cluster, &s->settings, &s->policy) != LS_OK) {
        STREAM_FAIL(s, "%s", ls_error_text());
    }
}

/* Runs the whole stream; returns a hash of all actions. */
static inline uint64_t stream_run(stream *s, const uint8_t *bytes, size_t count, bool ask)
{
    stream_open(s, bytes, count, ask);
    while (s->at < s->count) {
        stream_step(s);
    }
    stream_pass(s);
    ls_policy_destroy(s->policy);
    return s->hash;
}

#endif
