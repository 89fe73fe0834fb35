// SPDX-License-Identifier: Apache-2.0
/*
 * One look of the watchdog, every 50 ms:
 *
 *   follow new records of each local rank ──▶ mismatch found? report it one look later
 *        │
 *        ├─ options.seen: send snapshots of the local ranks to the watchdog that judges
 *        └─ otherwise:    note progress ─▶ build the graph, judge culprits ─▶ stopped processes
 *                         ─▶ ranks that hang outside operations ─▶ incidents that are over
 *
 * In a run on several hosts, the watchdog of each host's agent only sends; the one beside the
 * coordinator judges, because only there the snapshots of all ranks come together.
 */
#include "base/assert.h"
#include "base/math.h"
#include "execution/hang/watchdog_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- how long is too long ---- */

bool ls_watchdog_is_of_a_process(ls_cause cause)
{
    return cause == LS_CAUSE_STOPPED || cause == LS_CAUSE_TRACED || cause == LS_CAUSE_BLOCKED ||
           cause == LS_CAUSE_DATA || cause == LS_CAUSE_COMPUTE || cause == LS_CAUSE_REDUCE ||
           cause == LS_CAUSE_UPDATE || cause == LS_CAUSE_OTHER;
}

/* The culprit will never arrive, however long the others wait. */
static bool is_hopeless(ls_cause cause)
{
    return cause == LS_CAUSE_FINISHED || cause == LS_CAUSE_LEFT || cause == LS_CAUSE_DEADLOCK;
}

static const watched_site *find_site(const ls_watchdog *watchdog, const char *name)
{
    for (uint32_t i = 0; i < watchdog->site_count; i++) {
        if (strcmp(watchdog->sites[i].name, name) == 0) {
            return &watchdog->sites[i];
        }
    }
    return NULL;
}

/* What the waiting rank itself took from its previous operation to this one. Without a history it
 * is the best guess of what the others need. */
static uint64_t lead_ns(const ls_watchdog *watchdog, const ls_culprit *culprit)
{
    const local_rank *local = ls_watchdog_local(watchdog, culprit->op_rank);
    return local && culprit->since_ns > local->last_end_ns ? culprit->since_ns - local->last_end_ns : 0;
}

/* How long the others must have waited before the culprit is reported as late (watchdog.h has the
 * table). Sure signs count at once; otherwise the call site's own history decides, so that a site
 * where ranks always wait for seconds does not raise an alarm at every step. */
static uint64_t threshold_ns(const ls_watchdog *watchdog, const ls_culprit *culprit)
{
    if (ls_cause_is_certain(culprit->cause)) {
        return LS_WATCHDOG_LATE_NS;
    }
    if (culprit->cause == LS_CAUSE_BLOCKED) {
        return LS_WATCHDOG_NEW_NS;
    }
    const bool inside = culprit->cause == LS_CAUSE_INSIDE;
    const watched_site *site = find_site(watchdog, culprit->op->site);
    const ls_wait_histogram *history = !site ? NULL : inside ? &site->durations : &site->waits;
    if (history && history->count >= LS_WATCHDOG_WAITS_MIN) {
        const uint64_t usual_ns = LS_WATCHDOG_P99_FACTOR * 1000 * ls_wait_histogram_p99_us(history);
        return ls_max_u64(inside ? LS_WATCHDOG_NEW_NS : LS_WATCHDOG_LATE_NS, usual_ns);
    }
    if (inside) {
        /* As long as the data would take at 10 MB/s, slower than any link in use. */
        const uint64_t bytes = culprit->op->count * 8;
        return ls_max_u64(2 * LS_WATCHDOG_NEW_NS, bytes < UINT64_MAX / 100 ? bytes * 100 : UINT64_MAX);
    }
    return ls_max_u64(LS_WATCHDOG_NEW_NS, 2 * lead_ns(watchdog, culprit));
}

/* Whether waiting longer cannot help. A process that can be handed over must also have made no
 * progress for the whole time: a slow rank that still moves is never ended. */
static bool is_hang(const ls_watchdog *watchdog, const ls_culprit *culprit, uint64_t waited_ns)
{
    const uint64_t hang_ns = ls_watchdog_hang_ns(watchdog);
    if (is_hopeless(culprit->cause)) {
        return waited_ns >= LS_WATCHDOG_NEW_NS;
    }
    if (!ls_watchdog_is_of_a_process(culprit->cause) || !watchdog->options.hung) {
        return waited_ns >= hang_ns;
    }
    const rank_progress *progress = &watchdog->progress[culprit->rank];
    return waited_ns >= hang_ns && progress->unchanged_ns >= hang_ns && !progress->handed_over;
}

/* ---- incidents ---- */

/* The incident of this culprit in this operation, made if it is new; NULL when the table is full,
 * and the culprit is then looked at again once another incident is over. */
static late_incident *find_incident(ls_watchdog *watchdog, const ls_culprit *culprit)
{
    late_incident *unused = NULL;
    const bool inside = culprit->cause == LS_CAUSE_INSIDE;
    for (uint32_t i = 0; i < LS_WATCHDOG_INCIDENTS_MAX; i++) {
        late_incident *at = &watchdog->incidents[i];
        if (at->used && at->rank == culprit->rank && at->comm_id == culprit->op->comm_id &&
            at->seq == culprit->op->seq && at->inside == inside) {
            return at;
        }
        unused = !at->used && !unused ? at : unused;
    }
    if (unused) {
        *unused = (late_incident){.used = true,
                                  .rank = culprit->rank,
                                  .comm_id = culprit->op->comm_id,
                                  .seq = culprit->op->seq,
                                  .inside = inside};
    }
    return unused;
}

/* The time up to which a rank's behaviour is known: now, or when its host took the snapshot. */
static uint64_t known_ns(const ls_watchdog *watchdog, uint32_t rank)
{
    const uint64_t now_ns = ls_env_now_ns(watchdog->options.env);
    const bool has_snapshot = ls_watchdog_is_remote(watchdog, rank) && watchdog->remote[rank].seen_ns != 0;
    return has_snapshot ? ls_min_u64(now_ns, watchdog->remote[rank].snapshot.taken_ns) : now_ns;
}

/* How long the culprit has been waited for. Counts only up to the time for which the behaviour of
 * every rank involved is known: a delayed message from an agent must not make a rank late. */
static uint64_t waited_ns_of(const ls_watchdog *watchdog, const ls_culprit *culprit)
{
    uint64_t until_ns = ls_min_u64(known_ns(watchdog, culprit->rank), known_ns(watchdog, culprit->op_rank));
    for (uint32_t i = 0; i < culprit->circle_count; i++) {
        until_ns = ls_min_u64(until_ns, known_ns(watchdog, culprit->circle[i]));
    }
    /* Ranks inside an operation from which a rank was just removed were waiting for that rank;
     * their wait for the remaining ones starts when it left. */
    const uint64_t since_ns = culprit->cause == LS_CAUSE_INSIDE
                                  ? ls_max_u64(culprit->since_ns, watchdog->left_ns)
                                  : culprit->since_ns;
    return until_ns > since_ns ? until_ns - since_ns : 0;
}

/*
 * Follows one culprit through its stages, one look at a time:
 *
 *   seen ── waited long enough, stack at hand ──▶ reported (`late`) ── hangs ──▶ ended or fatal
 *     └────────────── not a culprit any more: settle_incidents ─────────▶ forgotten (`late_over`)
 *
 * A hang is only declared after the report, so that users always see the stack first.
 */
static void judge_culprit(ls_watchdog *watchdog, const ls_graph *graph, const ls_culprit *culprit)
{
    if (culprit->cause == LS_CAUSE_IDLE || !culprit->op || watchdog->over) {
        return;
    }
    late_incident *incident = find_incident(watchdog, culprit);
    const uint64_t now_ns = ls_env_now_ns(watchdog->options.env);
    const uint64_t waited_ns = waited_ns_of(watchdog, culprit);
    if (!incident) {
        return;
    }
    incident->seen = true;
    if (!incident->reported && waited_ns >= threshold_ns(watchdog, culprit) &&
        ls_watchdog_has_answered(watchdog, incident, culprit, now_ns)) {
        incident->reported = true;
        ls_watchdog_report_late(watchdog, incident, graph, culprit, 1e-9 * (double)waited_ns);
    }
    if (incident->reported && is_hang(watchdog, culprit, waited_ns)) {
        ls_watchdog_report_hang(watchdog, incident, graph, culprit, 1e-9 * (double)waited_ns);
    }
}

/* Incidents that this look did not see again are over: the rank arrived. */
static void settle_incidents(ls_watchdog *watchdog)
{
    for (uint32_t i = 0; i < LS_WATCHDOG_INCIDENTS_MAX; i++) {
        late_incident *at = &watchdog->incidents[i];
        if (at->used && !at->seen) {
            if (at->reported && !watchdog->over) {
                ls_watchdog_send_event(
                    watchdog, "late_over",
                    json_pack("{s:I, s:I}", "rank", (json_int_t)at->rank, "seq", (json_int_t)at->seq));
            }
            free(at->answer);
            *at = (late_incident){0};
        }
        at->seen = false;
    }
}

/* Snapshots of this host's ranks. */
static uint32_t take_snapshots(ls_watchdog *watchdog)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < watchdog->rank_count; i++) {
        ls_flight_reader *reader = watchdog->ranks[i].reader;
        const uint64_t now_ns = ls_env_now_ns(watchdog->options.env);
        if (reader && ls_rank_snapshot_take(reader, now_ns, &watchdog->snapshots[count]) == LS_OK) {
            count++;
        }
    }
    return count;
}

/* Ranks of other hosts with a valid snapshot. */
static uint32_t count_remote(const ls_watchdog *watchdog)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; watchdog->remote && rank < watchdog->options.ranks; rank++) {
        count += ls_watchdog_is_fresh(watchdog, rank);
    }
    return count;
}

static uint32_t count_local(const ls_watchdog *watchdog)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < watchdog->rank_count; i++) {
        count += !watchdog->ranks[i].absent;
    }
    return count;
}

/* Whether some rank of the run cannot be seen at the moment. The graph must not take it for one
 * that has not started. */
static bool is_blind(const ls_watchdog *watchdog)
{
    return count_local(watchdog) + count_remote(watchdog) < watchdog->options.ranks;
}

/* Builds the graph of all ranks that can be seen and judges its culprits. */
static void judge(ls_watchdog *watchdog)
{
    uint32_t count = take_snapshots(watchdog);
    for (uint32_t rank = 0; watchdog->remote && rank < watchdog->options.ranks; rank++) {
        if (ls_watchdog_is_fresh(watchdog, rank)) {
            watchdog->snapshots[count++] = watchdog->remote[rank].snapshot;
        }
    }
    ls_graph graph;
    ls_graph_build(&watchdog->arena, watchdog->snapshots, count, watchdog->options.ranks, is_blind(watchdog),
                   &graph);
    for (uint32_t i = 0; i < graph.culprit_count; i++) {
        judge_culprit(watchdog, &graph, &graph.culprits[i]);
    }
}

/* Whether this rank has already been reported as late. */
static bool is_reported(const ls_watchdog *watchdog, uint32_t rank)
{
    for (uint32_t i = 0; i < LS_WATCHDOG_INCIDENTS_MAX; i++) {
        if (watchdog->incidents[i].used && watchdog->incidents[i].reported &&
            watchdog->incidents[i].rank == rank) {
            return true;
        }
    }
    return false;
}

static void report_stopped(ls_watchdog *watchdog, local_rank *local, ls_process_state state, uint64_t now_ns)
{
    ls_rank_snapshot *snapshot = &watchdog->snapshots[0];
    if (ls_rank_snapshot_take(local->reader, now_ns, snapshot) != LS_OK) {
        return;
    }
    const ls_graph graph = {.snapshots = snapshot, .snapshot_count = 1, .size = watchdog->options.ranks};
    const ls_culprit culprit = {.rank = local->rank,
                                .cause = state == LS_PROCESS_TRACED ? LS_CAUSE_TRACED : LS_CAUSE_STOPPED,
                                .snapshot = snapshot};
    ls_watchdog_report_late(watchdog, NULL, &graph, &culprit, 1e-9 * (double)(now_ns - local->stopped_ns));
}

/* Reports a local rank that is stopped even though no local rank waits for it: those that do may be
 * on another host. least_ns: how long the watchdog that sees who waits may report it first. */
static void look_at_process(ls_watchdog *watchdog, local_rank *local, uint64_t least_ns)
{
    const uint64_t now_ns = ls_env_now_ns(watchdog->options.env);
    const ls_process_state state =
        local->reader && local->pid ? ls_process_look(local->pid, local->pid_start) : LS_PROCESS_UNKNOWN;
    if (state != LS_PROCESS_STOPPED && state != LS_PROCESS_TRACED) {
        if (local->stopped_reported) {
            ls_watchdog_send_event(watchdog, "late_over",
                                   json_pack("{s:I}", "rank", (json_int_t)local->rank));
        }
        local->stopped_ns = 0;
        local->stopped_reported = false;
    } else if (local->stopped_ns == 0) {
        local->stopped_ns = now_ns;
    } else if (now_ns - local->stopped_ns >= least_ns && !local->stopped_reported &&
               !is_reported(watchdog, local->rank)) {
        local->stopped_reported = true;
        report_stopped(watchdog, local, state, now_ns);
    }
}

static bool some_remote_rank_waits(const ls_watchdog *watchdog)
{
    const uint64_t now_ns = ls_env_now_ns(watchdog->options.env);
    for (uint32_t rank = 0; watchdog->remote && rank < watchdog->options.ranks; rank++) {
        const ls_rank_snapshot *snapshot = &watchdog->remote[rank].snapshot;
        for (uint32_t k = 0; ls_watchdog_is_fresh(watchdog, rank) && k < snapshot->open_count; k++) {
            const uint64_t begin_ns = snapshot->open[k].begin_ns;
            if (now_ns > begin_ns && now_ns - begin_ns >= LS_WATCHDOG_LATE_NS) {
                return true;
            }
        }
    }
    return false;
}

/* Whether some rank has been inside an operation for a while. While none has, the graph need not be
 * built: that keeps a look at a healthy run cheap. */
static bool some_rank_waits(const ls_watchdog *watchdog)
{
    const uint64_t now_ns = ls_env_now_ns(watchdog->options.env);
    for (uint32_t i = 0; i < watchdog->rank_count; i++) {
        for (uint32_t k = 0; k < watchdog->ranks[i].open_count; k++) {
            const open_op *op = &watchdog->ranks[i].open[k];
            if (op->known && now_ns > op->begin_ns && now_ns - op->begin_ns >= LS_WATCHDOG_LATE_NS) {
                return true;
            }
        }
    }
    return some_remote_rank_waits(watchdog);
}

/* ---- what other hosts send ---- */

/* A snapshot that was already on its way when its rank left is ignored. */
void ls_watchdog_see(ls_watchdog *watchdog, const ls_rank_snapshot *snapshots, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        remote_rank *remote =
            ls_watchdog_is_remote(watchdog, snapshots[i].rank) ? &watchdog->remote[snapshots[i].rank] : NULL;
        if (remote && !remote->absent) {
            remote->snapshot = snapshots[i];
            remote->seen_ns = ls_env_now_ns(watchdog->options.env);
        }
    }
}

void ls_watchdog_answer(ls_watchdog *watchdog, uint32_t rank, bool is_stack, const char *text)
{
    for (uint32_t i = 0; i < LS_WATCHDOG_INCIDENTS_MAX; i++) {
        late_incident *at = &watchdog->incidents[i];
        if (at->used && at->rank == rank && at->asked_ns != 0 && !at->answer) {
            at->is_stack = is_stack;
            at->answer = strdup(text);
        }
    }
}

/* ---- the loop ---- */

/* One look at who is late. The order matters: progress is noted first, because judge() asks whether
 * a culprit has moved; ranks that hang without an operation come after judge(), because those who
 * wait inside an operation know more about the cause; incidents are settled last. */
static void look_for_late(ls_watchdog *watchdog)
{
    ls_watchdog_note_progress(watchdog);
    if (some_rank_waits(watchdog) && !watchdog->over) {
        judge(watchdog);
    }
    const uint64_t least_ns = is_blind(watchdog) ? LS_WATCHDOG_LATE_NS : LS_WATCHDOG_NEW_NS;
    for (uint32_t i = 0; i < watchdog->rank_count && watchdog->remote && !watchdog->over; i++) {
        look_at_process(watchdog, &watchdog->ranks[i], least_ns);
    }
    ls_watchdog_end_overdue(watchdog);
    settle_incidents(watchdog);
}

static void look(void *context)
{
    ls_watchdog *watchdog = context;
    for (uint32_t i = 0; i < watchdog->rank_count && !watchdog->over; i++) {
        if (!watchdog->ranks[i].absent) {
            ls_watchdog_follow(watchdog, &watchdog->ranks[i]);
        }
    }
    if (watchdog->disagrees && watchdog->gathered && !watchdog->over) {
        ls_watchdog_report_mismatch(watchdog);
    }
    /* A mismatch is reported one look after it was found, so that the other ranks' records are
     * there and the majority can be named. */
    watchdog->gathered = watchdog->disagrees;
    if (watchdog->options.seen) {
        if (watchdog->looks++ % 2 == 0 && !watchdog->over) {
            watchdog->options.seen(watchdog->options.context, watchdog->snapshots, take_snapshots(watchdog));
        }
    } else {
        look_for_late(watchdog);
    }
    ls_arena_release(&watchdog->arena);
    watchdog->timer =
        watchdog->over ? 0 : ls_env_timer_set(watchdog->options.env, LS_WATCHDOG_PERIOD_NS, look, watchdog);
}

ls_status ls_watchdog_create(const ls_watchdog_options *options, ls_watchdog **watchdog_out)
{
    const uint32_t count = options->local ? options->local_count : options->ranks;
    ls_watchdog *watchdog = calloc(1, sizeof *watchdog);
    if (!watchdog) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to watch %" PRIu32 " ranks", count);
    }
    watchdog->options = *options;
    watchdog->rank_count = count;
    watchdog->flight_dir = strdup(options->flight_dir);
    watchdog->ranks = calloc(count, sizeof *watchdog->ranks);
    const bool sees_remote = count < options->ranks && !options->seen;
    watchdog->snapshots = calloc(sees_remote ? options->ranks : count, sizeof *watchdog->snapshots);
    watchdog->remote = sees_remote ? calloc(options->ranks, sizeof *watchdog->remote) : NULL;
    watchdog->progress = calloc(options->ranks, sizeof *watchdog->progress);
    watchdog->entries = calloc(LS_WATCHDOG_CHUNK, sizeof *watchdog->entries);
    watchdog->sites = calloc(LS_WATCHDOG_SITES_MAX, sizeof *watchdog->sites);
    watchdog->arrivals = ls_arrivals_create(options->ranks);
    if (!watchdog->flight_dir || !watchdog->ranks || !watchdog->snapshots || !watchdog->progress ||
        !watchdog->entries || !watchdog->sites || (sees_remote && !watchdog->remote)) {
        ls_watchdog_destroy(watchdog);
        return ls_fail(LS_ERR_MEMORY, "not enough memory to watch %" PRIu32 " ranks", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        watchdog->ranks[i].rank = options->local ? options->local[i] : i;
    }
    watchdog->options.local = NULL; /* the caller's memory */
    watchdog->options.flight_dir = watchdog->flight_dir;
    watchdog->timer = ls_env_timer_set(options->env, LS_WATCHDOG_PERIOD_NS, look, watchdog);
    *watchdog_out = watchdog;
    return LS_OK;
}

void ls_watchdog_destroy(ls_watchdog *watchdog)
{
    if (!watchdog) {
        return;
    }
    if (watchdog->timer) {
        ls_env_timer_cancel(watchdog->options.env, watchdog->timer);
    }
    for (uint32_t i = 0; watchdog->ranks && i < watchdog->rank_count; i++) {
        ls_flight_reader_close(watchdog->ranks[i].reader);
    }
    ls_arrivals_destroy(watchdog->arrivals);
    ls_arena_release(&watchdog->arena);
    for (uint32_t i = 0; i < LS_WATCHDOG_INCIDENTS_MAX; i++) {
        free(watchdog->incidents[i].answer);
    }
    free(watchdog->flight_dir);
    free(watchdog->ranks);
    free(watchdog->remote);
    free(watchdog->progress);
    free(watchdog->snapshots);
    free(watchdog->entries);
    free(watchdog->sites);
    free(watchdog);
}

/* ---- membership ---- */

/* Forgets a rank's file, snapshot, progress and incidents. The next process with this rank number
 * starts with a clean record and is not blamed for what its predecessor did. */
static void forget(ls_watchdog *watchdog, uint32_t rank, bool absent)
{
    local_rank *local = ls_watchdog_local(watchdog, rank);
    if (local) {
        ls_flight_reader_close(local->reader);
        *local = (local_rank){.rank = rank, .absent = absent};
    } else if (watchdog->remote) {
        watchdog->remote[rank] = (remote_rank){.absent = absent};
    }
    watchdog->progress[rank] = (rank_progress){0};
    for (uint32_t i = 0; i < LS_WATCHDOG_INCIDENTS_MAX; i++) {
        late_incident *at = &watchdog->incidents[i];
        if (at->used && at->rank == rank) {
            free(at->answer);
            *at = (late_incident){0};
        }
    }
}

static bool is_absent(const ls_watchdog *watchdog, uint32_t rank)
{
    const local_rank *local = ls_watchdog_local(watchdog, rank);
    return local ? local->absent : watchdog->remote && watchdog->remote[rank].absent;
}

void ls_watchdog_leave(ls_watchdog *watchdog, uint32_t rank)
{
    LS_ASSERT(rank < watchdog->options.ranks);
    forget(watchdog, rank, true);
    watchdog->left_ns = ls_env_now_ns(watchdog->options.env);
}

void ls_watchdog_join(ls_watchdog *watchdog, uint32_t rank)
{
    LS_ASSERT(rank < watchdog->options.ranks);
    if (is_absent(watchdog, rank)) {
        forget(watchdog, rank, false);
    }
}
