// SPDX-License-Identifier: Apache-2.0
#include "base/assert.h"
#include "execution/diagnose/watch_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how long is too long ---- */

/* The state of the culprit leaves no doubt. */
static bool is_certain(ls_cause cause)
{
    return cause == LS_CAUSE_DEAD || cause == LS_CAUSE_FINISHED || cause == LS_CAUSE_FAILED ||
           cause == LS_CAUSE_LEFT || cause == LS_CAUSE_STOPPED || cause == LS_CAUSE_TRACED ||
           cause == LS_CAUSE_DEADLOCK;
}

bool ls_watch_is_of_a_process(ls_cause cause)
{
    return cause == LS_CAUSE_STOPPED || cause == LS_CAUSE_TRACED || cause == LS_CAUSE_BLOCKED ||
           cause == LS_CAUSE_DATA || cause == LS_CAUSE_COMPUTE || cause == LS_CAUSE_REDUCE ||
           cause == LS_CAUSE_UPDATE || cause == LS_CAUSE_OTHER;
}

static bool is_hopeless(ls_cause cause)
{
    return cause == LS_CAUSE_FINISHED || cause == LS_CAUSE_LEFT || cause == LS_CAUSE_DEADLOCK;
}

static const watched_site *find_site(const ls_watch *watch, const char *name)
{
    for (uint32_t i = 0; i < watch->site_count; i++) {
        if (strcmp(watch->sites[i].name, name) == 0) {
            return &watch->sites[i];
        }
    }
    return NULL;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t lead_ns(const ls_watch *watch, const ls_culprit *culprit)
{
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        const watched *w = &watch->ranks[i];
        if (w->rank == culprit->op_rank) {
            return culprit->since_ns > w->last_end_ns ? culprit->since_ns - w->last_end_ns : 0;
        }
    }
    return 0;
}

static uint64_t threshold_ns(const ls_watch *watch, const ls_culprit *culprit)
{
    if (is_certain(culprit->cause)) {
        return LS_WATCH_LATE_NS;
    }
    if (culprit->cause == LS_CAUSE_BLOCKED) {
        return LS_WATCH_NEW_NS;
    }
    const bool inside = culprit->cause == LS_CAUSE_INSIDE;
    const watched_site *site = find_site(watch, culprit->op->site);
    const ls_site_waits *history = !site ? NULL : inside ? &site->durations : &site->waits;
    if (history && history->count >= LS_WATCH_WAITS_MIN) {
        const uint64_t usual_ns = LS_WATCH_P99_FACTOR * 1000 * ls_site_waits_p99_us(history);
        return larger(inside ? LS_WATCH_NEW_NS : LS_WATCH_LATE_NS, usual_ns);
    }
    if (inside) {
        /* As if the slowest link in use moved 10 MB/s. */
        const uint64_t bytes = culprit->op->count * 8;
        return larger(2 * LS_WATCH_NEW_NS, bytes < UINT64_MAX / 100 ? bytes * 100 : UINT64_MAX);
    }
    return larger(LS_WATCH_NEW_NS, 2 * lead_ns(watch, culprit));
}

/* Whether nothing but an end helps. */
static bool is_hang(const ls_watch *watch, const ls_culprit *culprit, uint64_t waited_ns)
{
    const uint64_t hang_ns = ls_watch_hang_ns(watch);
    if (is_hopeless(culprit->cause)) {
        return waited_ns >= LS_WATCH_NEW_NS;
    }
    if (!ls_watch_is_of_a_process(culprit->cause) || !watch->options.hung) {
        return waited_ns >= hang_ns;
    }
    const stillness *still = &watch->still[culprit->rank];
    return waited_ns >= hang_ns && still->still_ns >= hang_ns && !still->handed_over;
}

/* ---- incidents ---- */

static late_incident *find_incident(ls_watch *watch, const ls_culprit *culprit)
{
    late_incident *unused = NULL;
    const bool inside = culprit->cause == LS_CAUSE_INSIDE;
    for (uint32_t i = 0; i < LS_WATCH_INCIDENTS_MAX; i++) {
        late_incident *at = &watch->incidents[i];
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

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The moment for which it is known what a rank did: now, or when it was looked at on its host. */
static uint64_t known_ns(const ls_watch *watch, uint32_t rank)
{
    const uint64_t now_ns = ls_env_now_ns(watch->options.env);
    const bool is_told = ls_watch_is_far(watch, rank) && watch->far[rank].seen_ns != 0;
    return is_told ? earlier(now_ns, watch->far[rank].sight.taken_ns) : now_ns;
}

/* How long the culprit has been waited for, as far as is known of all concerned: a message that is held up makes nobody late. */
static uint64_t waited_ns_of(const ls_watch *watch, const ls_culprit *culprit)
{
    uint64_t until_ns = earlier(known_ns(watch, culprit->rank), known_ns(watch, culprit->op_rank));
    for (uint32_t i = 0; i < culprit->circle_count; i++) {
        until_ns = earlier(until_ns, known_ns(watch, culprit->circle[i]));
    }
    /* Who waits for data has waited for the rank that is gone: for the others it waits from now on. */
    const uint64_t since_ns =
        culprit->cause == LS_CAUSE_INSIDE ? larger(culprit->since_ns, watch->left_ns) : culprit->since_ns;
    return until_ns > since_ns ? until_ns - since_ns : 0;
}

static void judge_culprit(ls_watch *watch, const ls_graph *graph, const ls_culprit *culprit)
{
    if (culprit->cause == LS_CAUSE_IDLE || !culprit->op || watch->over) {
        return;
    }
    late_incident *incident = find_incident(watch, culprit);
    const uint64_t now_ns = ls_env_now_ns(watch->options.env);
    const uint64_t waited_ns = waited_ns_of(watch, culprit);
    if (!incident) {
        return;
    }
    incident->seen = true;
    if (!incident->reported && waited_ns >= threshold_ns(watch, culprit) &&
        ls_watch_has_answered(watch, incident, culprit, now_ns)) {
        incident->reported = true;
        ls_watch_report_late(watch, incident, graph, culprit, 1e-9 * (double)waited_ns);
    }
    if (incident->reported && is_hang(watch, culprit, waited_ns)) {
        ls_watch_report_hang(watch, incident, graph, culprit, 1e-9 * (double)waited_ns);
    }
}

static void settle_incidents(ls_watch *watch)
{
    for (uint32_t i = 0; i < LS_WATCH_INCIDENTS_MAX; i++) {
        late_incident *at = &watch->incidents[i];
        if (at->used && !at->seen) {
            if (at->reported && !watch->over) {
                ls_watch_send_event(
                    watch, "late_over",
                    json_pack("{s:I, s:I}", "rank", (json_int_t)at->rank, "seq", (json_int_t)at->seq));
            }
            free(at->answer);
            *at = (late_incident){0};
        }
        at->seen = false;
    }
}

/* Of this host's ranks. */
static uint32_t take_sights(ls_watch *watch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        ls_flight_reader *reader = watch->ranks[i].reader;
        const uint64_t now_ns = ls_env_now_ns(watch->options.env);
        if (reader && ls_sight_take(reader, now_ns, &watch->sights[count]) == LS_OK) {
            count++;
        }
    }
    return count;
}

/* Ranks of other hosts of which it is known what they do. */
static uint32_t count_far(const ls_watch *watch)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; watch->far && rank < watch->options.ranks; rank++) {
        count += ls_watch_is_fresh(watch, rank);
    }
    return count;
}

static uint32_t count_local(const ls_watch *watch)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        count += !watch->ranks[i].absent;
    }
    return count;
}

static bool is_blind(const ls_watch *watch)
{
    return count_local(watch) + count_far(watch) < watch->options.ranks;
}

static void judge(ls_watch *watch)
{
    uint32_t count = take_sights(watch);
    for (uint32_t rank = 0; watch->far && rank < watch->options.ranks; rank++) {
        if (ls_watch_is_fresh(watch, rank)) {
            watch->sights[count++] = watch->far[rank].sight;
        }
    }
    ls_graph graph;
    ls_graph_build(&watch->arena, watch->sights, count, watch->options.ranks, is_blind(watch), &graph);
    for (uint32_t i = 0; i < graph.culprit_count; i++) {
        judge_culprit(watch, &graph, &graph.culprits[i]);
    }
}

/* Whether an incident of this rank has been reported. */
static bool is_reported(const ls_watch *watch, uint32_t rank)
{
    for (uint32_t i = 0; i < LS_WATCH_INCIDENTS_MAX; i++) {
        if (watch->incidents[i].used && watch->incidents[i].reported && watch->incidents[i].rank == rank) {
            return true;
        }
    }
    return false;
}

static void report_stopped(ls_watch *watch, watched *w, ls_process_state state, uint64_t now_ns)
{
    ls_sight *sight = &watch->sights[0];
    if (ls_sight_take(w->reader, now_ns, sight) != LS_OK) {
        return;
    }
    const ls_graph graph = {.sights = sight, .sight_count = 1, .size = watch->options.ranks};
    const ls_culprit culprit = {.rank = w->rank,
                                .cause = state == LS_PROCESS_TRACED ? LS_CAUSE_TRACED : LS_CAUSE_STOPPED,
                                .sight = sight};
    ls_watch_report_late(watch, NULL, &graph, &culprit, 1e-9 * (double)(now_ns - w->stopped_ns));
}

/* Who waits for this rank may be on another host: what its process is says enough. least_ns: how long it is left to those who see who waits. */
static void look_at_process(ls_watch *watch, watched *w, uint64_t least_ns)
{
    const uint64_t now_ns = ls_env_now_ns(watch->options.env);
    const ls_process_state state =
        w->reader && w->pid ? ls_process_look(w->pid, w->pid_start) : LS_PROCESS_UNKNOWN;
    if (state != LS_PROCESS_STOPPED && state != LS_PROCESS_TRACED) {
        if (w->stopped_told) {
            ls_watch_send_event(watch, "late_over", json_pack("{s:I}", "rank", (json_int_t)w->rank));
        }
        w->stopped_ns = 0;
        w->stopped_told = false;
    } else if (w->stopped_ns == 0) {
        w->stopped_ns = now_ns;
    } else if (now_ns - w->stopped_ns >= least_ns && !w->stopped_told && !is_reported(watch, w->rank)) {
        w->stopped_told = true;
        report_stopped(watch, w, state, now_ns);
    }
}

static bool somebody_far_waits(const ls_watch *watch)
{
    const uint64_t now_ns = ls_env_now_ns(watch->options.env);
    for (uint32_t rank = 0; watch->far && rank < watch->options.ranks; rank++) {
        const ls_sight *sight = &watch->far[rank].sight;
        for (uint32_t k = 0; ls_watch_is_fresh(watch, rank) && k < sight->open_count; k++) {
            const uint64_t begin_ns = sight->open[k].begin_ns;
            if (now_ns > begin_ns && now_ns - begin_ns >= LS_WATCH_LATE_NS) {
                return true;
            }
        }
    }
    return false;
}

/* Whether some rank has been inside an operation for a while. */
static bool somebody_waits(const ls_watch *watch)
{
    const uint64_t now_ns = ls_env_now_ns(watch->options.env);
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        for (uint32_t k = 0; k < watch->ranks[i].open_count; k++) {
            const open_op *op = &watch->ranks[i].open[k];
            if (op->known && now_ns > op->begin_ns && now_ns - op->begin_ns >= LS_WATCH_LATE_NS) {
                return true;
            }
        }
    }
    return somebody_far_waits(watch);
}

/* ---- other hosts say ---- */

void ls_watch_see(ls_watch *watch, const ls_sight *sights, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        far_rank *far = ls_watch_is_far(watch, sights[i].rank) ? &watch->far[sights[i].rank] : NULL;
        if (far && !far->absent) {
            far->sight = sights[i];
            far->seen_ns = ls_env_now_ns(watch->options.env);
        }
    }
}

void ls_watch_answer(ls_watch *watch, uint32_t rank, bool is_stack, const char *text)
{
    for (uint32_t i = 0; i < LS_WATCH_INCIDENTS_MAX; i++) {
        late_incident *at = &watch->incidents[i];
        if (at->used && at->rank == rank && at->asked_ns != 0 && !at->answer) {
            at->is_stack = is_stack;
            at->answer = strdup(text);
        }
    }
}

/* ---- the loop ---- */

static void look_for_late(ls_watch *watch)
{
    ls_watch_note_stillness(watch);
    if (somebody_waits(watch) && !watch->over) {
        judge(watch);
    }
    const uint64_t least_ns = is_blind(watch) ? LS_WATCH_LATE_NS : LS_WATCH_NEW_NS;
    for (uint32_t i = 0; i < watch->rank_count && watch->far && !watch->over; i++) {
        look_at_process(watch, &watch->ranks[i], least_ns);
    }
    ls_watch_look_for_still(watch);
    settle_incidents(watch);
}

static void look(void *context)
{
    ls_watch *watch = context;
    for (uint32_t i = 0; i < watch->rank_count && !watch->over; i++) {
        if (!watch->ranks[i].absent) {
            ls_watch_follow(watch, &watch->ranks[i]);
        }
    }
    if (watch->disagrees && watch->gathered && !watch->over) {
        ls_watch_report_mismatch(watch);
    }
    watch->gathered =
        watch->disagrees; /* one more look, so that the others' records are there for the majority */
    if (watch->options.seen) {
        if (watch->looks++ % 2 == 0 && !watch->over) {
            watch->options.seen(watch->options.context, watch->sights, take_sights(watch));
        }
    } else {
        look_for_late(watch);
    }
    ls_arena_release(&watch->arena);
    watch->timer = watch->over ? 0 : ls_env_timer_set(watch->options.env, LS_WATCH_PERIOD_NS, look, watch);
}

ls_status ls_watch_create(const ls_watch_options *options, ls_watch **watch_out)
{
    const uint32_t count = options->local ? options->local_count : options->ranks;
    ls_watch *watch = calloc(1, sizeof *watch);
    if (!watch) {
        return ls_fail(LS_ERR_MEMORY, "no memory for the watch over %" PRIu32 " ranks", count);
    }
    watch->options = *options;
    watch->rank_count = count;
    watch->flight_dir = strdup(options->flight_dir);
    watch->ranks = calloc(count, sizeof *watch->ranks);
    const bool sees_far = count < options->ranks && !options->seen;
    watch->sights = calloc(sees_far ? options->ranks : count, sizeof *watch->sights);
    watch->far = sees_far ? calloc(options->ranks, sizeof *watch->far) : NULL;
    watch->still = calloc(options->ranks, sizeof *watch->still);
    watch->entries = calloc(LS_WATCH_CHUNK, sizeof *watch->entries);
    watch->sites = calloc(LS_WATCH_SITES_MAX, sizeof *watch->sites);
    watch->arrivals = ls_arrivals_create(options->ranks);
    if (!watch->flight_dir || !watch->ranks || !watch->sights || !watch->still || !watch->entries ||
        !watch->sites || (sees_far && !watch->far)) {
        ls_watch_destroy(watch);
        return ls_fail(LS_ERR_MEMORY, "no memory for the watch over %" PRIu32 " ranks", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        watch->ranks[i].rank = options->local ? options->local[i] : i;
    }
    watch->options.local = NULL; /* not needed any more */
    watch->options.flight_dir = watch->flight_dir;
    watch->timer = ls_env_timer_set(options->env, LS_WATCH_PERIOD_NS, look, watch);
    *watch_out = watch;
    return LS_OK;
}

void ls_watch_destroy(ls_watch *watch)
{
    if (!watch) {
        return;
    }
    if (watch->timer) {
        ls_env_timer_cancel(watch->options.env, watch->timer);
    }
    for (uint32_t i = 0; watch->ranks && i < watch->rank_count; i++) {
        ls_flight_reader_close(watch->ranks[i].reader);
    }
    ls_arrivals_destroy(watch->arrivals);
    ls_arena_release(&watch->arena);
    for (uint32_t i = 0; i < LS_WATCH_INCIDENTS_MAX; i++) {
        free(watch->incidents[i].answer);
    }
    free(watch->flight_dir);
    free(watch->ranks);
    free(watch->far);
    free(watch->still);
    free(watch->sights);
    free(watch->entries);
    free(watch->sites);
    free(watch);
}

/* ---- who is a member ---- */

static void forget(ls_watch *watch, uint32_t rank, bool absent)
{
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        if (watch->ranks[i].rank == rank) {
            ls_flight_reader_close(watch->ranks[i].reader);
            watch->ranks[i] = (watched){.rank = rank, .absent = absent};
        }
    }
    if (ls_watch_is_far(watch, rank)) {
        watch->far[rank] = (far_rank){.absent = absent};
    }
    watch->still[rank] = (stillness){0};
    for (uint32_t i = 0; i < LS_WATCH_INCIDENTS_MAX; i++) {
        late_incident *at = &watch->incidents[i];
        if (at->used && at->rank == rank) {
            free(at->answer);
            *at = (late_incident){0};
        }
    }
}

static bool is_absent(const ls_watch *watch, uint32_t rank)
{
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        if (watch->ranks[i].rank == rank) {
            return watch->ranks[i].absent;
        }
    }
    return watch->far && rank < watch->options.ranks && watch->far[rank].absent;
}

void ls_watch_leave(ls_watch *watch, uint32_t rank)
{
    LS_ASSERT(rank < watch->options.ranks);
    forget(watch, rank, true);
    watch->left_ns = ls_env_now_ns(watch->options.env);
}

void ls_watch_join(ls_watch *watch, uint32_t rank)
{
    LS_ASSERT(rank < watch->options.ranks);
    if (is_absent(watch, rank)) {
        forget(watch, rank, false);
    }
}

json_t *ls_watch_stragglers(const ls_watch *watch)
{
    return ls_arrivals_to_json(watch->arrivals);
}
