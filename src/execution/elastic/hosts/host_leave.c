// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/hosts/host_leave.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

#define PATIENCE_NS UINT64_C(200000000)

ls_status ls_host_leave_open(ls_host_leave *leave, const char *run_file, size_t bytes)
{
    ls_arena arena = {0};
    ls_run_file run;
    ls_status status = ls_run_file_parse(run_file, bytes, "run.yaml", NULL, 0, &arena, &run);
    if (status == LS_OK) {
        status = ls_preemption_watch_for(&run.job, &leave->notices);
    }
    ls_arena_release(&arena);
    return status;
}

void ls_host_leave_close(ls_host_leave *leave)
{
    ls_preemption_watch_stop(leave->notices);
    leave->notices = NULL;
}

static void note(ls_host_leave *leave, const char *source, double grace_s, uint64_t now_ns)
{
    if (leave->noticed_ns == 0) {
        leave->noticed_ns = now_ns > 0 ? now_ns : 1;
        leave->grace_s = grace_s;
        snprintf(leave->source, sizeof leave->source, "%s", source);
    }
}

void ls_host_leave_signal(ls_host_leave *leave, uint64_t now_ns)
{
    note(leave, "signal", 0.0, now_ns);
}

bool ls_host_leave_look(ls_host_leave *leave, uint64_t now_ns, bool ends)
{
    ls_preemption_notice notice;
    while (ls_preemption_watch_take(leave->notices, &notice)) {
        ls_log_warn("preemption notice from %s: %s", ls_preemption_source_name(notice.source), notice.action);
        if (notice.leave) {
            note(leave, ls_preemption_source_name(notice.source), notice.grace_s, now_ns);
        }
    }
    if (leave->noticed_ns != 0 && !leave->leaving && !ends && now_ns - leave->noticed_ns >= PATIENCE_NS) {
        leave->leaving = true;
        ls_log_warn("preemption notice from %s: the ranks of this host leave at the next step boundary",
                    leave->source);
    }
    return leave->leaving && !leave->was_sent;
}

void ls_host_leave_fill(ls_host_leave *leave, ls_cluster_status *status)
{
    leave->was_sent = leave->leaving;
    status->leaving = leave->leaving;
    status->grace_s = leave->grace_s;
    memcpy(status->source, leave->source, sizeof status->source);
}
