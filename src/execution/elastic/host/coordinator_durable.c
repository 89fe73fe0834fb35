// SPDX-License-Identifier: Apache-2.0
/* What must be in the log before it is done. */
#include "execution/elastic/host/coordinator_internal.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void opened(void *context, const ls_log_state *before)
{
    ls_coordinator *c = context;
    if (before->wrong) {
        ls_log_warn("coordinator.log has %s after %llu valid bytes; the file was cut off there",
                    before->wrong, (unsigned long long)before->good_bytes);
    }
    c->log_is_open = true;
    ls_coordinator_look_soon(c);
}

/* With job.lease the log is what was asked for, so the run ends without it. Otherwise it only
 * helps a person to see what happened, and the run continues. */
static void failed(void *context, int error)
{
    ls_coordinator *c = context;
    char text[600];
    snprintf(text, sizeof text, "cannot write coordinator.log in %s: %s", c->options.log_folder,
             strerror(-error));
    c->log_is_open = false;
    c->log_is_lost = true;
    if (c->finished) {
        c->finished(c->options.context);
    } else if (c->options.log_is_needed) {
        ls_coordinator_end_all(c, LS_ERR_DISK, -1, text);
    } else {
        ls_log_warn("%s; the run continues without it", text);
        ls_coordinator_look_soon(c);
    }
}

/* Without a folder the log counts as lost from the beginning: nothing waits for it. */
ls_status ls_coordinator_open_log(ls_coordinator *c)
{
    ls_coordinator_log_options options = {
        .env = c->options.env,
        .folder = c->options.log_folder,
        .run = {.pid = getpid()},
        .context = c,
        .opened = opened,
        .failed = failed,
    };
    if (!c->options.log_folder || !c->control) {
        c->log_is_lost = true;
        return LS_OK;
    }
    snprintf(options.run.identity, sizeof options.run.identity, "%s",
             c->options.identity ? c->options.identity : "");
    options.run.start_time =
        c->options.start_time ? c->options.start_time(c->options.context, options.run.pid) : 0;
    return ls_coordinator_log_open(&options, &c->log);
}

/* Epochs become durable in the order in which they were written; only the last one counts. */
static void is_durable(void *context)
{
    ls_coordinator *c = context;
    c->log_pending--;
    c->logged.durable = c->log_pending == 0; /* otherwise this was an earlier epoch */
    ls_coordinator_look_soon(c);
}

/* Written as soon as a fence is raised, so that the disk works while ranks park. If the members
 * change until then, the same epoch is written once more; the reader takes the last record of an
 * epoch. */
void ls_coordinator_foresee(ls_coordinator *c, uint64_t epoch)
{
    ls_log_member members[LS_LOCAL_RANKS_MAX];
    uint32_t count = 0;
    if (!c->log_is_open || (c->logged.epoch == epoch && !c->logged.durable)) {
        return;
    }
    memset(&c->logged, 0, sizeof c->logged);
    c->logged.epoch = epoch;
    for (uint32_t i = 0; i < c->slots; i++) {
        if (c->slot[i].process && c->slot[i].ready) {
            const int32_t pid = c->slot[i].member.pid;
            c->logged.member[i] = true;
            members[count++] = (ls_log_member){
                .rank = c->control->first_rank + i,
                .pid = pid,
                .start_time = c->options.start_time ? c->options.start_time(c->options.context, pid) : 0};
        }
    }
    c->log_pending++;
    const ls_log_epoch entry = {
        .epoch = epoch, .step = ls_coordinator_reported(c), .members = members, .count = count};
    ls_coordinator_log_epoch(c->log, &entry, is_durable, c);
}

/* Every rank that could act in the epoch must be in the log: a successor finds the ranks by it,
 * and must not miss one that writes. */
bool ls_coordinator_is_durable(ls_coordinator *c, uint64_t epoch, const ls_team *team)
{
    if (c->log_is_lost) {
        return true;
    }
    bool all = c->logged.epoch == epoch;
    for (uint32_t i = 0; all && i < team->local_parts; i++) {
        all = c->logged.member[team->holder[i]];
    }
    if (!all) {
        ls_coordinator_foresee(c, epoch);
    }
    return all && c->logged.durable;
}

void ls_coordinator_log_progress(ls_coordinator *c)
{
    const uint64_t reported = c->log_is_open ? ls_coordinator_reported(c) : 0;
    if (reported > c->logged_steps) {
        c->logged_steps = reported;
        ls_coordinator_log_steps(c->log, reported);
    }
}

static void end_is_durable(void *context)
{
    ls_coordinator *c = context;
    c->finished(c->options.context);
}

/* `done` is called in any case: a log that cannot be written must not keep the run from ending. */
void ls_coordinator_finish(ls_coordinator *c, void (*done)(void *context))
{
    c->finished = done;
    if (c->log_is_open) {
        ls_coordinator_log_end(c->log, ls_coordinator_reported(c), end_is_durable, c);
    } else {
        done(c->options.context);
    }
}
