// SPDX-License-Identifier: Apache-2.0
#include "execution/diagnose/watch.h"

#include "base/assert.h"
#include "base/log.h"
#include "execution/diagnose/arrivals.h"
#include "execution/diagnose/mismatch.h"
#include "execution/diagnose/site_waits.h"
#include "execution/diagnose/stack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CHUNK = 512,     /* records read at once */
    OPEN_MAX = 512,  /* operations of a rank that have not ended */
    SITES_MAX = 256, /* of all ranks together */
    INCIDENTS_MAX = 64,
};

/* An operation of a rank that is still to be looked at again. */
typedef struct open_op {
    uint64_t number, begin_ns;
    bool known; /* its record was whole */
} open_op;

typedef struct watched {
    uint32_t rank;
    ls_flight_reader *reader; /* NULL: no file yet */
    uint64_t next;            /* record to read from */
    open_op open[OPEN_MAX];
    uint32_t open_count;
    uint64_t last_end_ns; /* of the operation that ended last; before the first: of the start */
    int64_t clock_offset_ns;
    int32_t pid;
    uint64_t pid_start;
    uint64_t stopped_ns; /* since when it has been seen stopped; 0: it is not */
    bool stopped_told;
    uint16_t sites[LS_FLIGHT_SITES]; /* number in watch->sites + 1; 0: not known yet */
    ls_flight_comm comms[LS_FLIGHT_COMMS];
} watched;

typedef struct watched_site {
    char name[LS_FLIGHT_SITE_BYTES];
    ls_site_waits waits, durations;
} watched_site;

typedef struct late_incident {
    bool used, seen, reported;
    uint32_t rank, comm_id;
    uint64_t seq;
    bool inside;
    /* Of a rank of another host. */
    uint64_t asked_ns; /* for its stack; 0: not yet */
    bool is_stack;
    char *answer; /* the stack or why there is none; NULL: nothing came */
} late_incident;

/* A rank of another host. */
typedef struct far_rank {
    uint64_t seen_ns; /* 0: never */
    ls_sight sight;
} far_rank;

struct ls_watch {
    ls_watch_options options;
    char *flight_dir;
    ls_env_id timer;
    watched *ranks;
    uint32_t rank_count;
    far_rank *far;    /* by rank in the run; NULL: all are here */
    ls_sight *sights; /* room for one of each rank that can be seen */
    uint64_t looks;
    ls_flight_entry *entries;
    ls_arrivals *arrivals;
    watched_site *sites;
    uint32_t site_count;
    late_incident incidents[INCIDENTS_MAX];
    bool disagrees, gathered, over;
    ls_disagreement disagreement;
    ls_arena arena; /* of one look */
};

/* ---- following the records ---- */

static watched_site *site_of(ls_watch *watch, watched *w, uint32_t index)
{
    char name[LS_FLIGHT_SITE_BYTES];
    index %= LS_FLIGHT_SITES;
    if (w->sites[index] > 0) {
        return &watch->sites[w->sites[index] - 1];
    }
    if (ls_flight_reader_site(w->reader, index, name) != LS_OK) {
        return NULL;
    }
    uint32_t at = 0;
    while (at < watch->site_count && strcmp(watch->sites[at].name, name) != 0) {
        at++;
    }
    if (at == SITES_MAX) {
        return NULL;
    }
    if (at == watch->site_count) {
        watch->site_count++;
        memcpy(watch->sites[at].name, name, sizeof name);
    }
    w->sites[index] = (uint16_t)(at + 1);
    return &watch->sites[at];
}

/* A wait that was long enough to be reported counts as one that was just not: one stopped rank must not make the watch deaf, and ranks that
 * always wait this long are learnt in a few steps. */
static uint64_t clip_us(const ls_site_waits *waits, uint64_t us)
{
    const uint64_t least_us = LS_WATCH_LATE_NS / 1000,
                   limit_us = LS_WATCH_P99_FACTOR * ls_site_waits_p99_us(waits);
    const uint64_t threshold_us = limit_us > least_us ? limit_us : least_us;
    return us < threshold_us ? us : threshold_us;
}

static void note_end(ls_watch *watch, watched *w, const ls_flight_record *record)
{
    w->last_end_ns = record->end_ns > w->last_end_ns ? record->end_ns : w->last_end_ns;
    ls_arrivals_end(watch->arrivals, record->comm_id, record->seq, record->kind, record->wait_us);
    watched_site *site = site_of(watch, w, record->site);
    if (!site || (record->flags & LS_FLIGHT_FAILED) || record->end_ns < record->begin_ns) {
        return;
    }
    const uint64_t duration_us = (record->end_ns - record->begin_ns) / 1000;
    ls_site_waits_add(&site->waits, clip_us(&site->waits, record->wait_us));
    ls_site_waits_add(&site->durations, clip_us(&site->durations, duration_us));
}

static void note_begin(ls_watch *watch, watched *w, const ls_flight_record *record)
{
    const ls_flight_comm *comm = &w->comms[record->slot % LS_FLIGHT_COMMS];
    const ls_arrival arrival = {.rank = w->rank,
                                .comm_id = record->comm_id,
                                .comm_size = comm->id == record->comm_id ? comm->size : 0,
                                .kind = record->kind,
                                .seq = record->seq,
                                .fingerprint = record->fingerprint,
                                .begin_ns = record->begin_ns + (uint64_t)w->clock_offset_ns};
    ls_disagreement disagreement;
    if (ls_arrivals_add(watch->arrivals, &arrival, &disagreement) && !watch->disagrees) {
        watch->disagrees = true;
        watch->disagreement = disagreement;
    }
}

static void keep_open(watched *w, uint64_t number, const ls_flight_record *record)
{
    if (w->open_count < OPEN_MAX) {
        w->open[w->open_count++] =
            (open_op){.number = number, .begin_ns = record ? record->begin_ns : 0, .known = record != NULL};
    }
}

static void note_entry(ls_watch *watch, watched *w, const ls_flight_entry *entry)
{
    note_begin(watch, w, &entry->record);
    if (entry->record.end_ns == 0) {
        keep_open(w, entry->number, &entry->record);
    } else {
        note_end(watch, w, &entry->record);
    }
}

/* Looks again at what had not ended. */
static ls_status follow_open(ls_watch *watch, watched *w)
{
    const uint32_t count = w->open_count;
    open_op before[OPEN_MAX];
    memcpy(before, w->open, sizeof before);
    w->open_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        ls_flight_entry entry;
        uint32_t copied = 0;
        uint64_t next = 0, head = 0;
        LS_TRY(ls_flight_reader_records(w->reader, before[i].number, 1, &entry, &copied, &next));
        if (copied == 1 && entry.number == before[i].number) {
            if (!before[i].known) {
                note_entry(watch, w, &entry);
            } else if (entry.record.end_ns != 0) {
                note_end(watch, w, &entry.record);
            } else {
                keep_open(w, entry.number, &entry.record);
            }
            continue;
        }
        LS_TRY(ls_flight_reader_head(w->reader, &head));
        if (before[i].number + LS_FLIGHT_RECORDS > head) {
            w->open[w->open_count++] = before[i]; /* still being written */
        }
    }
    return LS_OK;
}

static ls_status follow_new(ls_watch *watch, watched *w)
{
    uint32_t count = 0;
    uint64_t next = w->next;
    do {
        const uint64_t from = next;
        LS_TRY(ls_flight_reader_records(w->reader, from, CHUNK, watch->entries, &count, &next));
        uint64_t expected = from;
        for (uint32_t i = 0; i < count; i++) {
            const ls_flight_entry *entry = &watch->entries[i];
            for (; expected < entry->number; expected++) {
                if (expected + LS_FLIGHT_RECORDS > next) {
                    keep_open(w, expected, NULL);
                }
            }
            expected = entry->number + 1;
            note_entry(watch, w, entry);
        }
        for (; expected < next && next - expected <= OPEN_MAX; expected++) {
            keep_open(w, expected, NULL);
        }
        if (next == from) {
            break;
        }
    } while (count == CHUNK);
    w->next = next;
    return LS_OK;
}

static void open_file(ls_watch *watch, watched *w)
{
    char *path = ls_arena_printf(&watch->arena, "%s/rank-%" PRIu32, watch->flight_dir, w->rank);
    ls_flight_header header;
    if (ls_flight_reader_open(path, &w->reader) != LS_OK) {
        w->reader = NULL; /* not there yet, or not yet filled in */
    } else if (ls_flight_reader_header(w->reader, &header) == LS_OK) {
        w->last_end_ns = header.start_ns;
    }
}

static void follow(ls_watch *watch, watched *w)
{
    ls_flight_header header;
    if (!w->reader) {
        open_file(watch, w);
    }
    if (!w->reader) {
        return;
    }
    ls_status status = ls_flight_reader_header(w->reader, &header);
    if (status == LS_OK) {
        w->clock_offset_ns = header.clock_offset_ns;
        w->pid = header.outcome == LS_FLIGHT_RUNNING ? header.pid : 0;
        w->pid_start = header.pid_start;
        status = ls_flight_reader_comms(w->reader, w->comms);
    }
    if (status == LS_OK) {
        status = follow_open(watch, w);
    }
    if (status == LS_OK) {
        status = follow_new(watch, w);
    }
    if (status != LS_OK) {
        ls_log_warn("rank %" PRIu32 " can't be watched any more: %s", w->rank, ls_error_text());
        ls_flight_reader_close(w->reader);
        w->reader = NULL;
    }
}

/* ---- reports ---- */

static void send_event(ls_watch *watch, const char *name, json_t *fields)
{
    if (watch->options.event) {
        watch->options.event(watch->options.context, name, fields);
    } else {
        json_decref(fields);
    }
}

static void end(ls_watch *watch, const char *text)
{
    watch->over = true;
    if (watch->options.fatal) {
        watch->options.fatal(watch->options.context, LS_ERR_MISMATCH, text);
    }
}

static void report_mismatch(ls_watch *watch)
{
    ls_text text = {0};
    json_t *fields = NULL;
    ls_flight_reader **readers = ls_arena_new(&watch->arena, ls_flight_reader *, watch->rank_count);
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        readers[i] = watch->ranks[i].reader;
    }
    if (ls_mismatch_describe(readers, watch->rank_count, &watch->disagreement, &text, &fields) == LS_OK) {
        ls_log_warn("%s", ls_text_string(&text));
        send_event(watch, "mismatch", fields);
    } else {
        ls_text_printf(&text,
                       "ranks %" PRIu32 " and %" PRIu32 " disagree about operation %" PRIu64
                       " of a communicator (%s)",
                       watch->disagreement.rank, watch->disagreement.other_rank, watch->disagreement.seq,
                       ls_error_text());
    }
    end(watch, ls_text_string(&text));
    ls_text_release(&text);
}

static bool is_far(const ls_watch *watch, uint32_t rank)
{
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        if (watch->ranks[i].rank == rank) {
            return false;
        }
    }
    return watch->far && rank < watch->options.ranks;
}

/* There is a process to look into. */
static bool can_have_stack(const ls_watch *watch, const ls_culprit *culprit)
{
    return !watch->options.no_stacks && culprit->sight && culprit->cause != LS_CAUSE_DEAD &&
           culprit->cause != LS_CAUSE_FINISHED && culprit->cause != LS_CAUSE_FAILED &&
           culprit->cause != LS_CAUSE_INSIDE && culprit->sight->process != LS_PROCESS_UNKNOWN;
}

/* Whether the host of the culprit has said what it can of its stack, or has had its time. */
static bool has_answered(ls_watch *watch, late_incident *incident, const ls_culprit *culprit, uint64_t now_ns)
{
    if (!can_have_stack(watch, culprit) || !is_far(watch, culprit->rank)) {
        return true;
    }
    if (incident->asked_ns == 0) {
        incident->asked_ns = now_ns;
        return !watch->options.ask_stack ||
               !watch->options.ask_stack(watch->options.context, culprit->rank, culprit->sight->header.pid);
    }
    return incident->answer || now_ns - incident->asked_ns >= LS_WATCH_ANSWER_NS;
}

static void add_no_stack(const char *reason, json_t *fields, ls_text *text)
{
    json_object_set_new(fields, "no_stack", json_string(reason));
    ls_text_printf(text, "\n  (no stack: %s)", reason);
}

static void add_lines(const char *stack, json_t *fields, ls_text *text)
{
    json_t *lines = json_array();
    for (const char *at = stack; *at; at += strspn(at, "\n")) {
        const int bytes = (int)strcspn(at, "\n");
        json_array_append_new(lines, json_stringn(at, (size_t)bytes));
        ls_text_printf(text, "\n    %.*s", bytes, at);
        at += bytes;
    }
    json_object_set_new(fields, "stack", lines);
}

/* The stack as an array of lines in the event and as text; the reason when there is none. incident: NULL for a rank of this host. */
static void add_stack(const ls_watch *watch, const late_incident *incident, const ls_culprit *culprit,
                      json_t *fields, ls_text *text)
{
    ls_text stack = {0};
    if (!can_have_stack(watch, culprit)) {
        return;
    }
    if (incident && is_far(watch, culprit->rank)) {
        if (incident->answer && incident->is_stack) {
            add_lines(incident->answer, fields, text);
        } else {
            add_no_stack(incident->answer ? incident->answer : "its host did not answer in time", fields,
                         text);
        }
    } else if (ls_stack_take(culprit->sight->header.pid, LS_STACK_FRAMES, &stack) == LS_OK) {
        add_lines(ls_text_string(&stack), fields, text);
    } else {
        add_no_stack(ls_error_text(), fields, text);
    }
    ls_text_release(&stack);
}

static const ls_describe *describe_of(const ls_watch *watch)
{
    return watch->options.describe.activity ? &watch->options.describe : NULL;
}

static void report_late(ls_watch *watch, const late_incident *incident, const ls_graph *graph,
                        const ls_culprit *culprit, double waited_s)
{
    ls_text text = {0};
    json_t *fields = ls_culprit_to_json(graph, culprit, describe_of(watch));
    json_object_set_new(fields, "waited_s", json_real(waited_s));
    ls_text_append(&text, "late: ");
    ls_graph_append_culprit(graph, culprit, describe_of(watch), &text);
    ls_text_printf(&text, ", for %.2f s", waited_s);
    add_stack(watch, incident, culprit, fields, &text);
    ls_log_warn("%s", ls_text_string(&text));
    send_event(watch, "late", fields);
    ls_text_release(&text);
}

static void report_hang(ls_watch *watch, const late_incident *incident, const ls_graph *graph,
                        const ls_culprit *culprit, double waited_s)
{
    ls_text text = {0};
    json_t *fields = json_object(); /* the event `late` has said all of this */
    ls_text_append(&text, "hang: ");
    ls_graph_append_culprit(graph, culprit, describe_of(watch), &text);
    ls_text_printf(&text, ", for %.1f s", waited_s);
    if (waited_s >= watch->options.hang_timeout_s) {
        ls_text_printf(&text, " (job.hang_timeout is %g s)", watch->options.hang_timeout_s);
    }
    add_stack(watch, incident, culprit, fields, &text);
    json_decref(fields);
    end(watch, ls_text_string(&text));
    ls_text_release(&text);
}

/* ---- how long is too long ---- */

/* The state of the culprit leaves no doubt. */
static bool is_certain(ls_cause cause)
{
    return cause == LS_CAUSE_DEAD || cause == LS_CAUSE_FINISHED || cause == LS_CAUSE_FAILED ||
           cause == LS_CAUSE_LEFT || cause == LS_CAUSE_STOPPED || cause == LS_CAUSE_TRACED ||
           cause == LS_CAUSE_DEADLOCK;
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

static uint64_t limit_ns(const ls_watch *watch, const ls_culprit *culprit)
{
    if (is_hopeless(culprit->cause)) {
        return LS_WATCH_NEW_NS;
    }
    return watch->options.hang_timeout_s > 0 ? (uint64_t)(watch->options.hang_timeout_s * 1e9) : UINT64_MAX;
}

/* ---- incidents ---- */

static late_incident *find_incident(ls_watch *watch, const ls_culprit *culprit)
{
    late_incident *unused = NULL;
    const bool inside = culprit->cause == LS_CAUSE_INSIDE;
    for (uint32_t i = 0; i < INCIDENTS_MAX; i++) {
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
    const bool is_told = is_far(watch, rank) && watch->far[rank].seen_ns != 0;
    return is_told ? earlier(now_ns, watch->far[rank].sight.taken_ns) : now_ns;
}

/* How long the culprit has been waited for, as far as is known of all concerned: a message that is held up makes nobody late. */
static uint64_t waited_ns_of(const ls_watch *watch, const ls_culprit *culprit)
{
    uint64_t until_ns = earlier(known_ns(watch, culprit->rank), known_ns(watch, culprit->op_rank));
    for (uint32_t i = 0; i < culprit->circle_count; i++) {
        until_ns = earlier(until_ns, known_ns(watch, culprit->circle[i]));
    }
    return until_ns > culprit->since_ns ? until_ns - culprit->since_ns : 0;
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
        has_answered(watch, incident, culprit, now_ns)) {
        incident->reported = true;
        report_late(watch, incident, graph, culprit, 1e-9 * (double)waited_ns);
    }
    if (incident->reported && waited_ns >= limit_ns(watch, culprit)) {
        report_hang(watch, incident, graph, culprit, 1e-9 * (double)waited_ns);
    }
}

static void settle_incidents(ls_watch *watch)
{
    for (uint32_t i = 0; i < INCIDENTS_MAX; i++) {
        late_incident *at = &watch->incidents[i];
        if (at->used && !at->seen) {
            if (at->reported && !watch->over) {
                send_event(watch, "late_over",
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

static bool is_fresh(const ls_watch *watch, const far_rank *far)
{
    return far->seen_ns != 0 && ls_env_now_ns(watch->options.env) - far->seen_ns < LS_WATCH_SEEN_NS;
}

/* Ranks of other hosts of which it is known what they do. */
static uint32_t count_far(const ls_watch *watch)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; watch->far && rank < watch->options.ranks; rank++) {
        count += is_fresh(watch, &watch->far[rank]);
    }
    return count;
}

static bool is_blind(const ls_watch *watch)
{
    return watch->rank_count + count_far(watch) < watch->options.ranks;
}

static void judge(ls_watch *watch)
{
    uint32_t count = take_sights(watch);
    for (uint32_t rank = 0; watch->far && rank < watch->options.ranks; rank++) {
        if (is_fresh(watch, &watch->far[rank])) {
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
    for (uint32_t i = 0; i < INCIDENTS_MAX; i++) {
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
    report_late(watch, NULL, &graph, &culprit, 1e-9 * (double)(now_ns - w->stopped_ns));
}

/* Who waits for this rank may be on another host: what its process is says enough. least_ns: how long it is left to those who see who waits. */
static void look_at_process(ls_watch *watch, watched *w, uint64_t least_ns)
{
    const uint64_t now_ns = ls_env_now_ns(watch->options.env);
    const ls_process_state state =
        w->reader && w->pid ? ls_process_look(w->pid, w->pid_start) : LS_PROCESS_UNKNOWN;
    if (state != LS_PROCESS_STOPPED && state != LS_PROCESS_TRACED) {
        if (w->stopped_told) {
            send_event(watch, "late_over", json_pack("{s:I}", "rank", (json_int_t)w->rank));
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
        for (uint32_t k = 0; is_fresh(watch, &watch->far[rank]) && k < sight->open_count; k++) {
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
        if (is_far(watch, sights[i].rank)) {
            far_rank *far = &watch->far[sights[i].rank];
            far->sight = sights[i];
            far->seen_ns = ls_env_now_ns(watch->options.env);
        }
    }
}

void ls_watch_answer(ls_watch *watch, uint32_t rank, bool is_stack, const char *text)
{
    for (uint32_t i = 0; i < INCIDENTS_MAX; i++) {
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
    if (somebody_waits(watch) && !watch->over) {
        judge(watch);
    }
    const uint64_t least_ns = is_blind(watch) ? LS_WATCH_LATE_NS : LS_WATCH_NEW_NS;
    for (uint32_t i = 0; i < watch->rank_count && watch->far && !watch->over; i++) {
        look_at_process(watch, &watch->ranks[i], least_ns);
    }
    settle_incidents(watch);
}

static void look(void *context)
{
    ls_watch *watch = context;
    for (uint32_t i = 0; i < watch->rank_count && !watch->over; i++) {
        follow(watch, &watch->ranks[i]);
    }
    if (watch->disagrees && watch->gathered && !watch->over) {
        report_mismatch(watch);
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
    watch->entries = calloc(CHUNK, sizeof *watch->entries);
    watch->sites = calloc(SITES_MAX, sizeof *watch->sites);
    watch->arrivals = ls_arrivals_create(options->ranks);
    if (!watch->flight_dir || !watch->ranks || !watch->sights || !watch->entries || !watch->sites ||
        (sees_far && !watch->far)) {
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
    for (uint32_t i = 0; i < INCIDENTS_MAX; i++) {
        free(watch->incidents[i].answer);
    }
    free(watch->flight_dir);
    free(watch->ranks);
    free(watch->far);
    free(watch->sights);
    free(watch->entries);
    free(watch->sites);
    free(watch);
}

void ls_watch_forget(ls_watch *watch, uint32_t rank)
{
    for (uint32_t i = 0; i < watch->rank_count; i++) {
        if (watch->ranks[i].rank == rank) {
            ls_flight_reader_close(watch->ranks[i].reader);
            watch->ranks[i] = (watched){.rank = rank};
        }
    }
    if (is_far(watch, rank)) {
        watch->far[rank] = (far_rank){0};
    }
}

json_t *ls_watch_stragglers(const ls_watch *watch)
{
    return ls_arrivals_to_json(watch->arrivals);
}
