// SPDX-License-Identifier: Apache-2.0
#include "execution/diagnose/watch_internal.h"

enum { GAP_NS = 4 * LS_WATCH_PERIOD_NS }; /* between looks: more than that does not count */

uint64_t ls_watch_hang_ns(const ls_watch *watch)
{
    const double timeout_s = watch->options.hang_timeout_s;
    return timeout_s > 0 ? (uint64_t)(timeout_s * 1e9) : UINT64_MAX;
}

bool ls_watch_is_fresh(const ls_watch *watch, uint32_t rank)
{
    const far_rank *far = &watch->far[rank];
    return far->seen_ns != 0 && !far->absent &&
           ls_env_now_ns(watch->options.env) - far->seen_ns < LS_WATCH_SEEN_NS;
}

static bool is_wanted(const ls_watch *watch, uint32_t rank, bool is_idle)
{
    return watch->options.is_wanted && watch->options.is_wanted(watch->options.context, rank, is_idle);
}

static bool cant_move(const ls_watch *watch, ls_process_state process)
{
    return process == LS_PROCESS_STOPPED || process == LS_PROCESS_BLOCKED ||
           (process == LS_PROCESS_TRACED && !watch->options.spare_traced);
}

static bool is_spared(const ls_watch *watch, ls_process_state process)
{
    return (process == LS_PROCESS_TRACED && watch->options.spare_traced) || process == LS_PROCESS_DEAD ||
           process == LS_PROCESS_UNKNOWN;
}

/* ---- noting ---- */

/* Whether a rank that has not moved since the last look owes somebody a move. */
static bool owes_a_move(const ls_watch *watch, uint32_t rank, const stillness *still)
{
    if (is_spared(watch, still->process)) {
        return false;
    }
    const bool is_idle = still->activity == LS_ACTIVITY_IDLE;
    return is_wanted(watch, rank, is_idle) || (!is_idle && cant_move(watch, still->process));
}

/* process: as it is seen where the rank is; called when the rank has not moved. */
static void note(ls_watch *watch, uint32_t rank, const ls_flight_now *now, ls_process_state process)
{
    stillness *still = &watch->still[rank];
    const uint64_t now_ns = ls_env_now_ns(watch->options.env);
    const uint64_t gap_ns = now_ns - still->looked_ns < GAP_NS ? now_ns - still->looked_ns : GAP_NS;
    const bool moved = still->looked_ns == 0 || now->version != still->version ||
                       now->activity != still->activity || is_spared(watch, process);
    still->version = now->version;
    still->activity = now->activity;
    still->looked_ns = now_ns;
    still->process = process;
    still->still_ns = moved ? 0 : still->still_ns + gap_ns;
    still->held_ns = !moved && owes_a_move(watch, rank, still) ? still->held_ns + gap_ns : 0;
}

static void note_local(ls_watch *watch, const watched *w)
{
    ls_flight_now now;
    if (w->reader && w->pid && ls_flight_reader_now(w->reader, &now, NULL) == LS_OK) {
        const stillness *still = &watch->still[w->rank];
        /* One that moves runs: a look at its process is saved. */
        const bool moved = now.version != still->version;
        note(watch, w->rank, &now, moved ? LS_PROCESS_ALIVE : ls_process_look(w->pid, w->pid_start));
    } else {
        watch->still[w->rank] = (stillness){0};
    }
}

void ls_watch_note_stillness(ls_watch *watch)
{
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        note_local(watch, &watch->ranks[i]);
    }
    for (uint32_t rank = 0; watch->far && rank < watch->options.ranks; rank++) {
        const ls_sight *sight = &watch->far[rank].sight;
        if (ls_watch_is_far(watch, rank) && ls_watch_is_fresh(watch, rank)) {
            note(watch, rank, &sight->now, sight->process);
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

static const watched *find_local(const ls_watch *watch, uint32_t rank)
{
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        if (watch->ranks[i].rank == rank) {
            return &watch->ranks[i];
        }
    }
    return NULL;
}

static const ls_sight *sight_of(ls_watch *watch, uint32_t rank)
{
    const watched *w = find_local(watch, rank);
    if (!w) {
        return &watch->far[rank].sight;
    }
    const bool taken =
        ls_sight_take(w->reader, ls_env_now_ns(watch->options.env), &watch->sights[0]) == LS_OK;
    return taken ? &watch->sights[0] : NULL;
}

void ls_watch_look_for_still(ls_watch *watch)
{
    const uint64_t hang_ns = ls_watch_hang_ns(watch);
    for (uint32_t rank = 0; rank < watch->options.ranks && watch->options.hung && !watch->over; rank++) {
        const stillness *still = &watch->still[rank];
        /* Those in operations that wait for it know more: they go first. */
        if (still->handed_over || hang_ns == UINT64_MAX || still->held_ns < hang_ns + LS_WATCH_NEW_NS) {
            continue;
        }
        const ls_sight *sight = sight_of(watch, rank);
        if (sight) {
            const ls_graph graph = {.sights = sight, .sight_count = 1, .size = watch->options.ranks};
            const ls_culprit culprit = {.rank = rank, .cause = cause_of(still->process), .sight = sight};
            ls_watch_report_hang(watch, NULL, &graph, &culprit, 1e-9 * (double)still->held_ns);
        }
    }
}
