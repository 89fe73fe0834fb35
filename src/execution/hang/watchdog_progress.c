// SPDX-License-Identifier: Apache-2.0
#include "execution/hang/watchdog_internal.h"

/* The most that one look adds to the time without progress. When this process was stopped itself (a
 * laptop that slept, a debugger), the gap says nothing about the ranks. */
enum { GAP_NS = 4 * LS_WATCHDOG_PERIOD_NS };

uint64_t ls_watchdog_hang_ns(const ls_watchdog *watchdog)
{
    const double timeout_s = watchdog->options.hang_timeout_s;
    return timeout_s > 0 ? (uint64_t)(timeout_s * 1e9) : UINT64_MAX;
}

bool ls_watchdog_is_fresh(const ls_watchdog *watchdog, uint32_t rank)
{
    const remote_rank *remote = &watchdog->remote[rank];
    return remote->seen_ns != 0 && !remote->absent &&
           ls_env_now_ns(watchdog->options.env) - remote->seen_ns < LS_WATCHDOG_SEEN_NS;
}

static bool is_wanted(const ls_watchdog *watchdog, uint32_t rank, bool is_idle)
{
    return watchdog->options.is_wanted &&
           watchdog->options.is_wanted(watchdog->options.context, rank, is_idle);
}

/* The process cannot run. One held by a debugger may be spared, so that a person can look at it. */
static bool cant_move(const ls_watchdog *watchdog, ls_process_state process)
{
    return process == LS_PROCESS_STOPPED || process == LS_PROCESS_BLOCKED ||
           (process == LS_PROCESS_TRACED && !watchdog->options.spare_traced);
}

/* No time counts against the rank: it is in a debugger and spared, it is gone (which its agent
 * reports), or its state is unknown. */
static bool is_spared(const ls_watchdog *watchdog, ls_process_state process)
{
    return (process == LS_PROCESS_TRACED && watchdog->options.spare_traced) || process == LS_PROCESS_DEAD ||
           process == LS_PROCESS_UNKNOWN;
}

/* ---- noting ---- */

/* Whether a rank that has made no progress since the last look should have. */
static bool owes_a_move(const ls_watchdog *watchdog, uint32_t rank, const rank_progress *progress)
{
    if (is_spared(watchdog, progress->process)) {
        return false;
    }
    const bool is_idle = progress->activity == LS_ACTIVITY_IDLE;
    return is_wanted(watchdog, rank, is_idle) || (!is_idle && cant_move(watchdog, progress->process));
}

/* Accounts for the time since the last look. process: the state of the rank's process, as seen
 * on its own host. */
static void note(ls_watchdog *watchdog, uint32_t rank, const ls_flight_now *now, ls_process_state process)
{
    rank_progress *progress = &watchdog->progress[rank];
    const uint64_t now_ns = ls_env_now_ns(watchdog->options.env);
    const uint64_t gap_ns = now_ns - progress->looked_ns < GAP_NS ? now_ns - progress->looked_ns : GAP_NS;
    const bool moved = progress->looked_ns == 0 || now->version != progress->version ||
                       now->activity != progress->activity || is_spared(watchdog, process);
    progress->version = now->version;
    progress->activity = now->activity;
    progress->looked_ns = now_ns;
    progress->process = process;
    progress->unchanged_ns = moved ? 0 : progress->unchanged_ns + gap_ns;
    progress->overdue_ns =
        !moved && owes_a_move(watchdog, rank, progress) ? progress->overdue_ns + gap_ns : 0;
}

static void note_local(ls_watchdog *watchdog, const local_rank *local)
{
    ls_flight_now now;
    if (local->reader && local->pid && ls_flight_reader_now(local->reader, &now, NULL) == LS_OK) {
        const rank_progress *progress = &watchdog->progress[local->rank];
        /* A rank that has made progress runs: reading /proc is saved. */
        const bool moved = now.version != progress->version;
        note(watchdog, local->rank, &now,
             moved ? LS_PROCESS_ALIVE : ls_process_look(local->pid, local->pid_start));
    } else {
        watchdog->progress[local->rank] = (rank_progress){0};
    }
}

void ls_watchdog_note_progress(ls_watchdog *watchdog)
{
    for (uint32_t i = 0; i < watchdog->rank_count; i++) {
        note_local(watchdog, &watchdog->ranks[i]);
    }
    for (uint32_t rank = 0; watchdog->remote && rank < watchdog->options.ranks; rank++) {
        const ls_rank_snapshot *snapshot = &watchdog->remote[rank].snapshot;
        if (ls_watchdog_is_remote(watchdog, rank) && ls_watchdog_is_fresh(watchdog, rank)) {
            note(watchdog, rank, &snapshot->now, snapshot->process);
        }
    }
}

/* ---- ending ---- */

static ls_cause cause_of(ls_process_state process)
{
    switch (process) {
    case LS_PROCESS_STOPPED:
        return LS_CAUSE_STOPPED;
    case LS_PROCESS_TRACED:
        return LS_CAUSE_TRACED;
    case LS_PROCESS_BLOCKED:
        return LS_CAUSE_BLOCKED;
    default:
        return LS_CAUSE_OTHER;
    }
}

/* The newest snapshot of a rank; NULL if its file cannot be read. */
static const ls_rank_snapshot *snapshot_of(ls_watchdog *watchdog, uint32_t rank)
{
    const local_rank *local = ls_watchdog_local(watchdog, rank);
    if (!local) {
        return &watchdog->remote[rank].snapshot;
    }
    const bool taken = ls_rank_snapshot_take(local->reader, ls_env_now_ns(watchdog->options.env),
                                             &watchdog->snapshots[0]) == LS_OK;
    return taken ? &watchdog->snapshots[0] : NULL;
}

void ls_watchdog_end_overdue(ls_watchdog *watchdog)
{
    const uint64_t hang_ns = ls_watchdog_hang_ns(watchdog);
    for (uint32_t rank = 0; rank < watchdog->options.ranks && watchdog->options.hung && !watchdog->over;
         rank++) {
        const rank_progress *progress = &watchdog->progress[rank];
        /* The extra second leaves the first word to judge(): ranks that wait for this one inside an
         * operation give a report with more in it. */
        if (progress->handed_over || hang_ns == UINT64_MAX ||
            progress->overdue_ns < hang_ns + LS_WATCHDOG_NEW_NS) {
            continue;
        }
        const ls_rank_snapshot *snapshot = snapshot_of(watchdog, rank);
        if (snapshot) {
            const ls_graph graph = {
                .snapshots = snapshot, .snapshot_count = 1, .size = watchdog->options.ranks};
            const ls_culprit culprit = {
                .rank = rank, .cause = cause_of(progress->process), .snapshot = snapshot};
            ls_watchdog_report_hang(watchdog, NULL, &graph, &culprit, 1e-9 * (double)progress->overdue_ns);
        }
    }
}
