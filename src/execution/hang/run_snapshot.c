// SPDX-License-Identifier: Apache-2.0
/*
 * From flight files to a verdict:
 *
 *   open_files ──▶ take_snapshots ──▶ sort_by_rank ──┬── live:  find_parent
 *                                                    └── ended: look_back
 *              ──▶ read_records ──▶ ls_graph_build ──▶ keep_named_culprits
 *
 * A live run is judged as it is. The files of a run that has ended show its ranks after the end,
 * when all processes are dead; look_back rewinds them to the moment before, and the same graph is
 * built.
 */
#include "execution/hang/run_snapshot.h"

#include "base/file.h"
#include "execution/hang/mismatch.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512 };

/* A wait this long is enough if the cause is certain. */
static const double CERTAIN_S = 0.25;

const char *ls_verdict_name(ls_run_verdict verdict)
{
    static const char *const names[] = {
        [LS_VERDICT_HEALTHY] = "healthy", [LS_VERDICT_FINISHED] = "finished",
        [LS_VERDICT_HANG] = "hang",       [LS_VERDICT_MISMATCH] = "mismatch",
        [LS_VERDICT_DEAD] = "dead",       [LS_VERDICT_FAILED] = "failed",
        [LS_VERDICT_GONE] = "gone",
    };
    return names[verdict];
}

/* ---- opening ---- */

static void add_problem(ls_arena *arena, ls_run_snapshot *run, const char *text)
{
    run->problems[run->problem_count++] = ls_arena_strdup(arena, text);
}

static bool is_newer(const ls_flight_header *a, const ls_flight_header *b)
{
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->start_wall_s > b->start_wall_s;
}

/* Opens a reader for each file; *newest_out is the header of the file that was started last. */
static ls_status open_files(ls_arena *arena, const char *folder, ls_run_snapshot *run,
                            ls_flight_header *newest_out)
{
    char **names = NULL;
    size_t count = 0;
    LS_TRY(ls_dir_list(arena, folder, &names, &count));
    run->readers = ls_arena_new(arena, ls_flight_reader *, count);
    run->problems = ls_arena_new(arena, char *, count);
    for (size_t i = 0; i < count; i++) {
        ls_flight_reader *reader = NULL;
        ls_flight_header header;
        if (strncmp(names[i], "rank-", 5) != 0 || strchr(names[i], '.')) {
            continue; /* rank-1.lost-2: the file of a process that has been replaced */
        }
        if (ls_flight_reader_open(ls_path_join(arena, folder, names[i]), &reader) != LS_OK ||
            ls_flight_reader_header(reader, &header) != LS_OK) {
            add_problem(arena, run, ls_error_text());
            ls_flight_reader_close(reader);
            continue;
        }
        if (run->count == 0 || is_newer(&header, newest_out)) {
            *newest_out = header;
        }
        run->readers[run->count++] = reader;
    }
    if (run->count == 0) {
        return run->problem_count > 0
                   ? ls_fail(LS_ERR_DATA, "cannot read the flight recorder of any rank: %s", run->problems[0])
                   : ls_fail(LS_ERR_NOT_FOUND,
                             "%s holds none of the files rank-0, rank-1, ... in which ranks record their "
                             "operations",
                             folder);
    }
    return LS_OK;
}

/* A time of the rank's host on the shared clock, which is the coordinator's. */
static uint64_t shared_ns(const ls_rank_snapshot *snapshot, uint64_t ns)
{
    return ns + (uint64_t)snapshot->header.clock_offset_ns;
}

/* The last time that this rank recorded. */
static uint64_t last_trace_ns(const ls_rank_snapshot *snapshot)
{
    uint64_t ns = snapshot->now.since_ns;
    if (snapshot->has_last) {
        ns = snapshot->last.begin_ns > ns ? snapshot->last.begin_ns : ns;
        ns = snapshot->last.end_ns > ns ? snapshot->last.end_ns : ns;
    }
    return shared_ns(snapshot, ns);
}

/* Keeps the files of the newest start of the run and takes a snapshot of each. */
static void take_snapshots(ls_arena *arena, ls_run_snapshot *run, const ls_flight_header *newest)
{
    const uint64_t now_ns = ls_clock_monotonic_ns();
    const uint32_t opened = run->count;
    run->snapshots = ls_arena_new(arena, ls_rank_snapshot, opened);
    run->count = 0;
    for (uint32_t i = 0; i < opened; i++) {
        ls_flight_reader *reader = run->readers[i];
        ls_rank_snapshot *snapshot = &run->snapshots[run->count];
        const ls_status status = ls_rank_snapshot_take(reader, now_ns, snapshot);
        if (status != LS_OK) {
            add_problem(arena, run, ls_error_text());
        }
        if (status != LS_OK || snapshot->header.epoch != newest->epoch) {
            ls_flight_reader_close(reader);
            continue;
        }
        /* header.size is the number of ranks when this one started. An elastic run may have
         * gained or lost some since, so the largest number known is used. */
        const uint32_t size =
            snapshot->header.size > snapshot->rank ? snapshot->header.size : snapshot->rank + 1;
        run->size = size > run->size ? size : run->size;
        run->readers[run->count++] = reader;
    }
    for (uint32_t i = 0; i < run->count; i++) {
        const ls_rank_snapshot *snapshot = &run->snapshots[i];
        const bool ended =
            snapshot->process == LS_PROCESS_DEAD || snapshot->header.outcome != LS_FLIGHT_RUNNING;
        run->is_live = run->is_live || !ended;
        if (snapshot->process != LS_PROCESS_DEAD && snapshot->process != LS_PROCESS_UNKNOWN) {
            run->now_ns = shared_ns(snapshot, now_ns);
        }
    }
    for (uint32_t i = 0; i < run->count && (!run->is_live || run->now_ns == 0); i++) {
        const uint64_t ns = last_trace_ns(&run->snapshots[i]);
        run->now_ns = ns > run->now_ns ? ns : run->now_ns;
    }
}

static int by_rank(const void *a, const void *b)
{
    const ls_rank_snapshot *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Sorts snapshots and readers alike: in the folder, rank-10 precedes rank-2. */
static ls_status sort_by_rank(ls_arena *arena, ls_run_snapshot *run)
{
    ls_flight_reader **sorted = ls_arena_new(arena, ls_flight_reader *, run->count);
    qsort(run->snapshots, run->count, sizeof *run->snapshots, by_rank);
    for (uint32_t i = 0; i < run->count; i++) {
        ls_flight_header header;
        LS_TRY(ls_flight_reader_header(run->readers[i], &header));
        for (uint32_t k = 0; k < run->count; k++) {
            if (run->snapshots[k].rank == header.rank && !sorted[k]) {
                sorted[k] = run->readers[i];
                break;
            }
        }
    }
    memcpy(run->readers, sorted, run->count * sizeof *sorted);
    return LS_OK;
}

/* ---- back to the moment it ended ---- */

/* Puts back the rank that the run itself names as the reason for its end. */
static void rewind_named(ls_rank_snapshot *snapshot, const ls_ending *ending)
{
    if (ending->kind == LS_ENDING_DEAD) {
        snapshot->process = LS_PROCESS_DEAD;
    } else if (ending->kind == LS_ENDING_HANG) {
        /* It was killed, or failed, only because the run ended. */
        snapshot->process = ending->process;
        snapshot->header.outcome = LS_FLIGHT_RUNNING;
    }
}

/*
 * Rewinds one rank to the moment before the run ended.
 *
 *   the rank named by the run    its process gets the state that ended the run: dead or stopped
 *   failed in an operation       counts as still inside that operation
 *   killed in an operation       counts as running and waiting in it
 *   any other                    stays as it is: outside an operation it did not wait
 *
 * Without this, the graph would find each rank dead and each a culprit.
 */
static void rewind_snapshot(ls_rank_snapshot *snapshot, const ls_ending *ending)
{
    const bool failed = snapshot->has_last && (snapshot->last.flags & LS_FLIGHT_FAILED);
    if (snapshot->rank == ending->rank) {
        rewind_named(snapshot, ending);
        return;
    }
    if (snapshot->header.outcome == LS_FLIGHT_ENDED_BADLY && failed && snapshot->open_count == 0) {
        snapshot->open[snapshot->open_count++] = snapshot->last;
    }
    /* A rank that was inside an operation counts as waiting in it. How its process ended afterwards
     * is a consequence of the run's end and does not make it a culprit. */
    if (snapshot->open_count > 0 && snapshot->header.outcome != LS_FLIGHT_FINISHED) {
        snapshot->process = LS_PROCESS_UNKNOWN;
        snapshot->header.outcome = LS_FLIGHT_RUNNING;
    }
}

/* ---- records ---- */

static void note_record(ls_run_snapshot *run, const ls_rank_snapshot *snapshot,
                        const ls_flight_record *record)
{
    uint32_t size = 0;
    for (uint32_t i = 0; i < snapshot->comm_count; i++) {
        size = snapshot->comms[i].id == record->comm_id ? snapshot->comms[i].size : size;
    }
    const ls_arrival arrival = {.rank = snapshot->rank,
                                .comm_id = record->comm_id,
                                .comm_size = size,
                                .kind = record->kind,
                                .seq = record->seq,
                                .fingerprint = record->fingerprint,
                                .begin_ns = shared_ns(snapshot, record->begin_ns)};
    ls_disagreement disagreement;
    if (ls_arrivals_add(run->arrivals, &arrival, &disagreement)) {
        /* The first disagreement caused all later ones. */
        if (!run->disagrees || disagreement.seq < run->disagreement.seq) {
            run->disagreement = disagreement;
        }
        run->disagrees = true;
    }
    if (record->end_ns != 0) {
        ls_arrivals_end(run->arrivals, record->comm_id, record->seq, record->kind, record->wait_us);
    }
}

/* Reads the records of all ranks side by side, a piece of each in turn: arrivals are compared
 * within a window (LS_ARRIVALS_WINDOW), and a rank read far ahead of the others would leave it. */
static ls_status read_records(ls_arena *arena, ls_run_snapshot *run)
{
    ls_flight_entry *entries = ls_arena_new(arena, ls_flight_entry, CHUNK);
    uint64_t *next = ls_arena_new(arena, uint64_t, run->count);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < run->count; i++) {
            uint32_t count = 0;
            LS_TRY(ls_flight_reader_records(run->readers[i], next[i], CHUNK, entries, &count, &next[i]));
            for (uint32_t k = 0; k < count; k++) {
                note_record(run, &run->snapshots[i], &entries[k].record);
            }
            more = more || count == CHUNK;
        }
    }
    return LS_OK;
}

/* Finds the process that started the ranks of a live run. If they have outlived it (job.lease),
 * it is the one named in the lock. */
static void find_parent(ls_run_snapshot *run, int32_t lock_pid)
{
    bool is_any_here = false;
    for (uint32_t i = 0; i < run->count && run->trainer_pid == 0; i++) {
        const ls_rank_snapshot *snapshot = &run->snapshots[i];
        const bool is_here = snapshot->process != LS_PROCESS_DEAD && snapshot->process != LS_PROCESS_UNKNOWN;
        is_any_here = is_any_here || is_here;
        const int32_t parent = is_here ? ls_process_parent(snapshot->header.pid) : 0;
        if (parent > 1) {
            run->trainer_pid = parent;
            run->is_trainer = parent == lock_pid;
            run->trainer = ls_process_look(parent, 0);
        }
    }
    if (run->trainer_pid == 0 && is_any_here && lock_pid > 0 &&
        ls_process_look(lock_pid, 0) == LS_PROCESS_DEAD) {
        run->trainer_pid = lock_pid;
        run->is_trainer = true;
        run->trainer = LS_PROCESS_DEAD;
    }
}

/* If the run itself names the rank by which it ended, no other rank is a culprit. */
static void keep_named_culprits(ls_run_snapshot *run)
{
    const ls_ending *ending = &run->ending;
    const bool names_one =
        ending->rank != UINT32_MAX && (ending->kind == LS_ENDING_DEAD || ending->kind == LS_ENDING_HANG);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < run->graph.culprit_count; i++) {
        if (names_one && run->graph.culprits[i].rank == ending->rank) {
            run->graph.culprits[kept++] = run->graph.culprits[i];
        }
    }
    if (names_one || ending->kind == LS_ENDING_TRAINER_GONE) {
        run->graph.culprit_count = kept;
    }
    if (ending->kind == LS_ENDING_TRAINER_GONE) {
        run->graph.edge_count = 0; /* waits at that moment had nothing to do with the end */
    }
}

/* Puts the snapshot back to the moment when the run ended. */
static void look_back(ls_arena *arena, ls_run_snapshot *run, const ls_run_account *account)
{
    ls_ending_find(account, run->readers, run->snapshots, run->count, &run->ending);
    run->trainer_pid = account->trainer_pid;
    run->is_trainer = account->trainer_pid > 0;
    run->then = ls_arena_new(arena, ls_rank_snapshot, run->count);
    memcpy(run->then, run->snapshots, run->count * sizeof *run->then);
    for (uint32_t i = 0; i < run->count; i++) {
        rewind_snapshot(&run->then[i], &run->ending);
    }
}

/* When the first rank of this start of the run began. Older events belong to earlier starts. They
 * have the time of the trainer's host, which has the first ranks; other clocks may differ. */
static double begin_wall_s(const ls_run_snapshot *run)
{
    double begin_s = INFINITY;
    for (uint32_t i = 0; i < run->count; i++) {
        const ls_flight_header *header = &run->snapshots[i].header;
        const bool is_trainers = strcmp(header->host, run->snapshots[0].header.host) == 0;
        begin_s = is_trainers ? fmin(begin_s, header->start_wall_s) : begin_s;
    }
    return begin_s;
}

/* Fills the snapshot from the open files. The order matters: whether the run is live must be
 * known before ranks are rewound, the end must be known before that too, and the graph needs
 * ranks as they were. Arrivals need no rewinding: records do not change after the end. */
static ls_status fill(ls_arena *arena, const char *run_dir, ls_run_snapshot *run,
                      const ls_flight_header *newest)
{
    ls_run_account account;
    take_snapshots(arena, run, newest);
    LS_TRY(sort_by_rank(arena, run));
    ls_run_account_read(arena, run_dir, begin_wall_s(run), &account);
    run->then = run->snapshots;
    run->ending.rank = UINT32_MAX;
    if (run->is_live) {
        find_parent(run, account.trainer_pid);
    } else {
        look_back(arena, run, &account);
    }
    run->arrivals = ls_arrivals_create(run->size);
    LS_TRY(read_records(arena, run));
    ls_graph_build(arena, run->then, run->count, run->size, false, &run->graph);
    keep_named_culprits(run);
    return LS_OK;
}

ls_status ls_run_snapshot_open(ls_arena *arena, const char *run_dir, ls_run_snapshot *run_out)
{
    ls_run_snapshot run = {0};
    ls_flight_header newest = {0};
    const char *folder = ls_path_join(arena, run_dir, "flight");
    if (!ls_path_is_dir(run_dir)) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is not a run directory: the folder does not exist", run_dir);
    }
    if (!ls_path_is_dir(folder) && !ls_path_exists(ls_path_join(arena, run_dir, "run.yaml"))) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is not a run directory: it has no run.yaml", run_dir);
    }
    if (!ls_path_is_dir(folder)) {
        return ls_fail(LS_ERR_NOT_FOUND,
                       "%s has no folder 'flight' with records of ranks: the run was trained by one process, "
                       "or has not started",
                       run_dir);
    }
    ls_status status = open_files(arena, folder, &run, &newest);
    if (status == LS_OK) {
        status = fill(arena, run_dir, &run, &newest);
    }
    if (status != LS_OK) {
        ls_run_snapshot_close(&run);
        return status;
    }
    *run_out = run;
    return LS_OK;
}

void ls_run_snapshot_close(ls_run_snapshot *run)
{
    for (uint32_t i = 0; i < run->count; i++) {
        ls_flight_reader_close(run->readers[i]);
    }
    ls_arrivals_destroy(run->arrivals);
    *run = (ls_run_snapshot){0};
}

/* ---- verdict ---- */

double ls_run_snapshot_waited_s(const ls_run_snapshot *run, const ls_culprit *culprit)
{
    for (uint32_t i = 0; i < run->count; i++) {
        const ls_rank_snapshot *snapshot = &run->then[i];
        if (snapshot->rank == culprit->op_rank) {
            const uint64_t since_ns = shared_ns(snapshot, culprit->since_ns);
            return run->now_ns > since_ns ? 1e-9 * (double)(run->now_ns - since_ns) : 0.0;
        }
    }
    return 0.0;
}

/* Whether some rank left last words or an exit status. If so, the files show how the run ended;
 * otherwise they may show any moment, for example that of a power cut. */
static bool left_evidence(const ls_run_snapshot *run)
{
    bool found = false;
    for (uint32_t i = 0; i < run->count; i++) {
        const ls_flight_header *header = &run->snapshots[i].header;
        found = found || header->outcome == LS_FLIGHT_ENDED_BADLY || header->has_exit_status;
    }
    return found;
}

/* How long a culprit must have been waited for to be named. In a live run a short wait is normal;
 * after an end that left evidence, the waits found are those that ended the run, however short. */
static double least_wait_s(const ls_run_snapshot *run, const ls_culprit *culprit, double hang_s)
{
    const bool certain = ls_cause_is_certain(culprit->cause);
    if (run->is_live) {
        return certain ? CERTAIN_S : hang_s;
    }
    return left_evidence(run) && culprit->cause != LS_CAUSE_INSIDE ? 0.0 : CERTAIN_S;
}

/* Among the culprits waited for too long: a dead one before all others, then the one waited for
 * longest. */
static const ls_culprit *find_hang(const ls_run_snapshot *run, double hang_s, double *waited_out)
{
    const ls_culprit *worst = NULL;
    for (uint32_t i = 0; i < run->graph.culprit_count; i++) {
        const ls_culprit *culprit = &run->graph.culprits[i];
        const double waited_s = ls_run_snapshot_waited_s(run, culprit);
        if (!culprit->op || culprit->cause == LS_CAUSE_IDLE ||
            waited_s < least_wait_s(run, culprit, hang_s)) {
            continue;
        }
        const bool is_dead = culprit->cause == LS_CAUSE_DEAD;
        const bool worst_is_dead = worst && worst->cause == LS_CAUSE_DEAD;
        if (!worst || (is_dead && !worst_is_dead) || (is_dead == worst_is_dead && waited_s > *waited_out)) {
            worst = culprit;
            *waited_out = waited_s;
        }
    }
    return worst;
}

/* The rank that failed first. The others usually failed because of it. */
static const ls_rank_snapshot *find_failed(const ls_run_snapshot *run)
{
    const ls_rank_snapshot *failed = NULL;
    for (uint32_t i = 0; i < run->count; i++) {
        const ls_rank_snapshot *snapshot = &run->snapshots[i];
        const bool ended_badly = snapshot->header.outcome == LS_FLIGHT_ENDED_BADLY;
        if (ended_badly && (!failed || last_trace_ns(snapshot) < last_trace_ns(failed))) {
            failed = snapshot;
        }
    }
    return failed;
}

/* The verdict of a run that has ended and in which no rank waited for another. */
static ls_run_verdict judge_end(const ls_run_snapshot *run, const ls_describe *describe, ls_text *text)
{
    uint32_t finished = 0;
    uint64_t step = 0;
    for (uint32_t i = 0; i < run->count; i++) {
        finished += run->snapshots[i].header.outcome == LS_FLIGHT_FINISHED;
        step = run->snapshots[i].now.step > step ? run->snapshots[i].now.step : step;
    }
    if (finished == run->count && finished == run->size) {
        ls_text_printf(text, "finished: all %" PRIu32 " rank%s ended well; the last step was %" PRIu64,
                       finished, finished == 1 ? "" : "s", step);
        return LS_VERDICT_FINISHED;
    }
    const ls_rank_snapshot *failed = find_failed(run);
    if (failed) {
        char process[128], name[LS_MESH_NAME_BYTES];
        snprintf(process, sizeof process, "%.90s, pid %" PRId32, failed->header.host, failed->header.pid);
        ls_text_printf(text, "failed: %s failed in step %" PRIu64 ": %.*s",
                       ls_mesh_name(describe ? describe->mesh : (ls_mesh){0}, failed->rank, process, name),
                       failed->now.step, (int)strcspn(failed->words, "\n"), failed->words);
        return LS_VERDICT_FAILED;
    }
    ls_text_printf(text,
                   "gone: %" PRIu32 " of %" PRIu32 " ranks ended in step %" PRIu64
                   " without last words, and no rank waited for another: the whole run was killed, or its "
                   "machine went down",
                   run->size - finished, run->size, step);
    return LS_VERDICT_GONE;
}

/* The verdict of a run that is live and healthy. */
static ls_run_verdict judge_live(const ls_run_snapshot *run, ls_text *text)
{
    uint64_t low = UINT64_MAX, high = 0;
    uint32_t left = 0;
    double longest_s = 0.0;
    for (uint32_t i = 0; i < run->count; i++) {
        const uint64_t step = run->snapshots[i].now.step;
        if (run->snapshots[i].header.outcome == LS_FLIGHT_FINISHED) {
            left++; /* in order: the run has become smaller */
            continue;
        }
        low = step < low ? step : low;
        high = step > high ? step : high;
    }
    for (uint32_t i = 0; i < run->graph.culprit_count; i++) {
        const double waited_s = ls_run_snapshot_waited_s(run, &run->graph.culprits[i]);
        longest_s = waited_s > longest_s ? waited_s : longest_s;
    }
    ls_text_printf(text, "healthy: %" PRIu32 " of %" PRIu32 " ranks run, in step %" PRIu64, run->count - left,
                   run->size - left, low);
    if (high > low) {
        ls_text_printf(text, " to %" PRIu64, high);
    }
    ls_text_printf(text, "; no rank waits for longer than %.2f s", longest_s);
    if (run->trainer == LS_PROCESS_DEAD && run->is_trainer) {
        ls_text_printf(text,
                       ". Their trainer (pid %" PRId32
                       ") is gone: they wait, until job.lease expires, for the same command to be run again",
                       run->trainer_pid);
    }
    return LS_VERDICT_HEALTHY;
}

/* Whether all ranks wait for the trainer while it is stopped or held by a debugger. */
static bool trainer_holds_all(const ls_run_snapshot *run, double *waited_out)
{
    uint64_t last_ns = 0;
    if (run->trainer != LS_PROCESS_STOPPED && run->trainer != LS_PROCESS_TRACED) {
        return false;
    }
    for (uint32_t i = 0; i < run->count; i++) {
        const ls_rank_snapshot *snapshot = &run->snapshots[i];
        const uint64_t since_ns = shared_ns(snapshot, snapshot->now.since_ns);
        if (snapshot->now.activity != LS_ACTIVITY_IDLE || snapshot->open_count > 0) {
            return false;
        }
        last_ns = since_ns > last_ns ? since_ns : last_ns;
    }
    *waited_out = run->now_ns > last_ns ? 1e-9 * (double)(run->now_ns - last_ns) : 0.0;
    return *waited_out >= CERTAIN_S;
}

static void append_trainer(const ls_run_snapshot *run, double waited_s, ls_text *text)
{
    ls_text_printf(text, "hang: all ranks wait for the %s (pid %" PRId32 "), which is %s, for %.2f s",
                   run->is_trainer ? "trainer" : "process that started them", run->trainer_pid,
                   run->trainer == LS_PROCESS_TRACED
                       ? "held by a debugger"
                       : "stopped (by a signal such as SIGSTOP; SIGCONT resumes it)",
                   waited_s);
}

static const ls_rank_snapshot *snapshot_of(const ls_run_snapshot *run, uint32_t rank)
{
    for (uint32_t i = 0; i < run->count; i++) {
        if (run->then[i].rank == rank) {
            return &run->then[i];
        }
    }
    return NULL;
}

/* A rank's process ended, and the run with it. The graph says most about it, if ranks waited for
 * it; otherwise its last snapshot; if it left no file, the text that the run recorded. */
static ls_run_verdict judge_dead(const ls_run_snapshot *run, const ls_describe *describe, ls_text *text,
                                 const ls_culprit **culprit_out)
{
    const ls_ending *ending = &run->ending;
    const ls_culprit alone = {
        .rank = ending->rank, .cause = LS_CAUSE_DEAD, .snapshot = snapshot_of(run, ending->rank)};
    ls_text_append(text, "dead: ");
    if (run->graph.culprit_count > 0 && run->graph.culprits[0].cause == LS_CAUSE_DEAD) {
        *culprit_out = &run->graph.culprits[0];
        ls_graph_append_culprit(&run->graph, *culprit_out, describe, text);
    } else if (alone.snapshot) {
        ls_graph_append_cause(&alone, describe, text);
    } else {
        ls_text_append(text, ending->text);
    }
    return LS_VERDICT_DEAD;
}

static ls_run_verdict judge_trainer_gone(const ls_run_snapshot *run, ls_text *text)
{
    uint64_t step = 0;
    for (uint32_t i = 0; i < run->count; i++) {
        step = run->snapshots[i].now.step > step ? run->snapshots[i].now.step : step;
    }
    ls_text_printf(text, "gone: all %" PRIu32 " ranks ended together in step %" PRIu64 " because the trainer",
                   run->size, step);
    if (run->trainer_pid > 0) {
        ls_text_printf(text, " (pid %" PRId32 ")", run->trainer_pid);
    }
    ls_text_append(text,
                   " was killed; no rank is at fault. Run the same command again to continue from the newest "
                   "checkpoint");
    return LS_VERDICT_GONE;
}

/* The verdict if the run itself recorded why it ended. */
static ls_run_verdict judge_ending(const ls_run_snapshot *run, const ls_describe *describe, ls_text *text,
                                   const ls_culprit **culprit_out)
{
    switch (run->ending.kind) {
    case LS_ENDING_DEAD:
        return judge_dead(run, describe, text, culprit_out);
    case LS_ENDING_HANG:
        *culprit_out =
            run->ending.rank != UINT32_MAX && run->graph.culprit_count > 0 ? run->graph.culprits : NULL;
        ls_text_append(text, run->ending.text); /* "hang: ..." */
        return LS_VERDICT_HANG;
    case LS_ENDING_MISMATCH:
        ls_text_printf(text, "mismatch: %s", run->ending.text);
        return LS_VERDICT_MISMATCH;
    default:
        return judge_trainer_gone(run, text);
    }
}

static ls_run_verdict judge_culprit(const ls_run_snapshot *run, const ls_culprit *culprit, double waited_s,
                                    const ls_describe *describe, ls_text *text)
{
    const ls_run_verdict verdict = culprit->cause == LS_CAUSE_DEAD     ? LS_VERDICT_DEAD
                                   : culprit->cause == LS_CAUSE_FAILED ? LS_VERDICT_FAILED
                                                                       : LS_VERDICT_HANG;
    ls_text_printf(text, "%s: ", ls_verdict_name(verdict));
    ls_graph_append_culprit(&run->graph, culprit, describe, text);
    if (run->is_live || waited_s >= CERTAIN_S) {
        ls_text_printf(text, ", for %.2f s", waited_s);
    }
    return verdict;
}

static bool judge_mismatch(const ls_run_snapshot *run, ls_text *text)
{
    json_t *fields = NULL;
    ls_text found = {0};
    const bool is_one = run->disagrees && ls_mismatch_describe(run->readers, run->count, &run->disagreement,
                                                               &found, &fields) == LS_OK;
    if (is_one) {
        json_decref(fields);
        ls_text_printf(text, "mismatch: %s", ls_text_string(&found));
    }
    ls_text_release(&found);
    return is_one;
}

/* The first that applies, the surest first: a mismatch, which is proved by the records; what the
 * run recorded about its own end; a culprit waited for too long; a stopped trainer; none of
 * these. */
ls_run_verdict ls_run_snapshot_judge(const ls_run_snapshot *run, double hang_s, const ls_describe *describe,
                                     ls_text *text, const ls_culprit **culprit_out)
{
    double waited_s = 0.0;
    *culprit_out = NULL;
    if (judge_mismatch(run, text)) {
        return LS_VERDICT_MISMATCH;
    }
    if (run->ending.kind != LS_ENDING_UNKNOWN) {
        return judge_ending(run, describe, text, culprit_out);
    }
    const ls_culprit *culprit = find_hang(run, hang_s, &waited_s);
    if (culprit) {
        *culprit_out = culprit;
        return judge_culprit(run, culprit, waited_s, describe, text);
    }
    if (run->is_live && trainer_holds_all(run, &waited_s)) {
        append_trainer(run, waited_s, text);
        return LS_VERDICT_HANG;
    }
    return run->is_live ? judge_live(run, text) : judge_end(run, describe, text);
}
