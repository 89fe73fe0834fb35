// SPDX-License-Identifier: Apache-2.0
/* What jobs do: how busy they are, and how far they are. */
#include "orchestration/engines/local/local_internal.h"

#include "base/assert.h"
#include "orchestration/engines/job_files.h"
#include "orchestration/policy/topology.h"
#include "telemetry/record/metrics_reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ALERTS_BYTES_MAX = 16 * 1024, ALERTS_MAX = 32 };

_Static_assert((int)LS_NVML_DEVICES_MAX == (int)LS_NODE_DEVICES_MAX, "NVML reports every device of a share");

static int by_session(const void *a, const void *b)
{
    const ls_local_look *x = a, *y = b;
    return (x->session > y->session) - (x->session < y->session);
}

/* When its terminal was last typed into (client/terminal.c); 0: never. */
static double typed_s(const track *t)
{
    char path[LS_LOCAL_PATH_BYTES + 16];
    struct stat info;
    snprintf(path, sizeof path, "%s/" LS_LOCAL_TYPED, t->folder.text);
    return lstat(path, &info) == 0 ? (double)info.st_mtim.tv_sec : 0.0;
}

static void report_activity(track *t, uint32_t busy_permille)
{
    ls_track_report(t, (ls_engine_report){.kind = LS_ENGINE_ACTIVITY,
                                          .busy_permille = busy_permille,
                                          .time_s = typed_s(t),
                                          .energy_mj = ls_track_take_energy(t)});
}

static void tell_activity(track *t, uint64_t cpu_ms, double now_s)
{
    const double span_s = now_s - t->looked_s;
    if (t->has_cpu && span_s > 0.0 && t->ranks > 0) {
        /* When processes end, their time is no longer counted and the sum seems to fall: no report
         * then. */
        const uint64_t used_ms = cpu_ms > t->cpu_ms ? cpu_ms - t->cpu_ms : 0;
        const double busy = (double)used_ms / (span_s * t->ranks);
        if (cpu_ms >= t->cpu_ms) {
            report_activity(t, busy > 1000.0 ? 1000 : (uint32_t)busy);
        }
    }
    t->cpu_ms = cpu_ms;
    t->looked_s = now_s;
    t->has_cpu = true;
}

static bool runs(const track *t)
{
    return t->told_started && !t->told_end;
}

/* Without control groups, looks through all processes of the machine for those in the runner's
 * session. */
static ls_local_look *look_at_sessions(const local_engine *e, uint32_t *count_out)
{
    uint32_t count = 0;
    for (const track *t = e->tracks; t; t = t->next) {
        count += runs(t) && !t->is_grouped && t->pid > 0;
    }
    ls_local_look *looks = calloc(count + 1, sizeof *looks);
    LS_ASSERT(looks && "not enough memory to look at what jobs do");
    *count_out = count;
    for (const track *t = e->tracks; t; t = t->next) {
        if (runs(t) && !t->is_grouped && t->pid > 0) {
            looks[--count].session = t->pid;
        }
    }
    qsort(looks, *count_out, sizeof *looks, by_session);
    if (*count_out > 0) {
        ls_local_look_all(looks, *count_out);
    }
    return looks;
}

static bool cpu_ms_of(const track *t, const ls_local_look *looks, uint32_t count, uint64_t *cpu_ms_out)
{
    if (t->is_grouped) {
        return ls_local_group_cpu_ms(&t->group, cpu_ms_out);
    }
    const ls_local_look key = {.session = t->pid},
                        *found = bsearch(&key, looks, count, sizeof *looks, by_session);
    *cpu_ms_out = found ? found->cpu_ms : 0;
    return found != NULL;
}

static int by_size(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}

/* The mean over as many of its busiest devices as it has ranks: a job that shrinks chooses itself
 * which devices it keeps. */
static void tell_devices(track *t, const uint32_t permille[LS_NVML_DEVICES_MAX])
{
    uint32_t mine[LS_NVML_DEVICES_MAX], count = 0, sum = 0;
    for (int bit = 0; bit < LS_NVML_DEVICES_MAX; bit++) {
        if (t->devices >> bit & 1) {
            mine[count++] = permille[bit];
        }
    }
    qsort(mine, count, sizeof mine[0], by_size);
    count = t->ranks > 0 && t->ranks < count ? t->ranks : count;
    for (uint32_t i = 0; i < count; i++) {
        sum += mine[i];
    }
    if (count > 0) {
        report_activity(t, sum / count);
    }
}

/* The file is in the hands of the job's user, so it may hold anything: a few short lines count. A
 * start begins without one (folder.c). */
void ls_track_look_for_alerts(track *t)
{
    char path[LS_LOCAL_PATH_BYTES + 16], text[ALERTS_BYTES_MAX];
    struct stat info;
    int fd = -1;
    snprintf(path, sizeof path, "%s/" LS_LOCAL_ALERTS, t->folder.text);
    const ssize_t bytes = ls_job_file_read(path, O_RDONLY, text, sizeof text, &fd);
    if (bytes < 0) {
        return;
    }
    const bool is_there = fstat(fd, &info) == 0;
    close(fd);
    const int64_t written_ns =
        is_there ? info.st_mtim.tv_sec * INT64_C(1000000000) + info.st_mtim.tv_nsec : 0;
    if (!is_there || written_ns == t->alerts_ns) {
        return;
    }
    t->alerts_ns = written_ns;
    ls_line_reader reader = {.text = text, .bytes = (size_t)bytes};
    json_t *object = NULL;
    uint32_t index = 0;
    for (ls_line_kind kind; (kind = ls_object_reader_next(&reader, &object)) != LS_LINE_END;) {
        const char *what = kind == LS_LINE_GOOD ? json_string_value(json_object_get(object, "text")) : NULL;
        if (what && what[0] && index < ALERTS_MAX && index++ >= t->alerts) {
            t->alerts = index;
            ls_track_report(t, (ls_engine_report){.kind = LS_ENGINE_ALERT,
                                                  .alert_number = index,
                                                  .alert = ls_alert_named(
                                                      json_string_value(json_object_get(object, "kind"))),
                                                  .text = what});
        }
        if (kind == LS_LINE_GOOD) {
            json_decref(object);
        }
    }
}

/* Judges by the utilisation of its devices where it is known, otherwise by processor time. */
static void look_at(track *t, const uint32_t *permille, const ls_local_look *looks, uint32_t count,
                    double now_s)
{
    uint64_t cpu_ms = 0;
    if (permille) {
        tell_devices(t, permille);
    } else if (cpu_ms_of(t, looks, count, &cpu_ms)) {
        tell_activity(t, cpu_ms, now_s);
    }
    ls_track_look_for_save(t);
    ls_track_look_for_steps(t);
}

/* Energy that belongs to no job is reported in whole joules. */
static void tell_free_energy(local_engine *e)
{
    ls_local_divide_energy(e);
    if (e->free_energy_mj >= 1000.0) {
        const uint64_t whole = (uint64_t)e->free_energy_mj;
        e->free_energy_mj -= (double)whole;
        ls_local_report(e, (ls_engine_report){.kind = LS_ENGINE_FREE_ENERGY, .energy_mj = whole});
    }
}

void ls_local_look_at_jobs(void *context)
{
    local_engine *e = context;
    ls_env *env = e->settings.env;
    tell_free_energy(e);
    bool any = false;
    for (const track *t = e->tracks; t; t = t->next) {
        any = any || runs(t);
    }
    uint32_t permille[LS_NVML_DEVICES_MAX] = {0}, count = 0;
    const bool is_known = e->gpus && ls_nvml_take_utilization(e->gpus, any, permille);
    ls_local_look *looks = is_known ? NULL : look_at_sessions(e, &count);
    const double now_s = 1e-9 * (double)ls_env_now_ns(env);
    for (track *t = e->tracks; t; t = t->next) {
        if (runs(t)) {
            look_at(t, is_known ? permille : NULL, looks, count, now_s);
        }
    }
    free(looks);
    ls_local_groups_sweep(e);
    e->look_timer = ls_env_timer_set(env, (uint64_t)(1e9 * e->settings.look_s), ls_local_look_at_jobs, e);
}
